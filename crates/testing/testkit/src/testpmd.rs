//! DPDK's `dpdk-testpmd`, driven through its prompt: a real virtio driver without a virtual machine.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any command takes on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The prompt's answer to an unknown command: a mark that all commands before it are done.
const UNKNOWN: &str = "Command not found";

/// The options for starting a testpmd.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The processors for its threads, in the syntax of `taskset`.
    pub cpus: String,
    /// Whether its memory is hugepages; otherwise it is a plain memory file.
    pub hugepages: bool,
    /// The size of its memory.
    pub megabytes: usize,
    /// One device for each port: a driver with its arguments.
    pub devices: Vec<String>,
    /// More options of the EAL.
    pub environment: Vec<String>,
    /// More options of testpmd itself.
    pub options: Vec<String>,
}

impl Launch {
    /// Its command line.
    fn words(&self) -> Vec<String> {
        // Two threads: one at the prompt, one that forwards.
        let mut words = vec!["--lcores".to_owned(), format!("(0,1)@({})", self.cpus)];
        let memory: &[&str] = match self.hugepages {
            true => &["--in-memory", "--single-file-segments"],
            false => &["--no-huge", "--no-shconf"],
        };
        words.extend(memory.iter().map(|word| word.to_string()));
        words.extend(["-m".to_owned(), self.megabytes.to_string()]);
        words.extend(["--no-pci".to_owned(), "--no-telemetry".to_owned()]);
        words.extend(self.environment.iter().cloned());
        words.extend(self.devices.iter().map(|device| format!("--vdev={device}")));
        words.extend(["--".to_owned(), "-i".to_owned()]);
        words.extend(self.options.iter().cloned());
        words
    }

    /// Starts it, and waits until it accepts commands: a port that listens must find its peer by then.
    pub fn start(&self) -> Result<Testpmd, String> {
        let describe = |error: std::io::Error| format!("cannot run dpdk-testpmd: {error}");
        let (output, for_stdout) = std::io::pipe().map_err(describe)?;
        let for_stderr = for_stdout.try_clone().map_err(describe)?;
        // Standard input must stay open. `stdbuf -oL` makes it write each line at once, not whole blocks.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd"]).args(self.words());
        let mut child =
            command.stdin(Stdio::piped()).stdout(for_stdout).stderr(for_stderr).spawn().map_err(describe)?;
        // A write end in the command would keep the pipe open after the child's end.
        drop(command);
        let prompt = child.stdin.take().ok_or("no standard input")?;
        let said = Arc::new(Said::default());
        let listener = said.clone();
        thread::spawn(move || listener.listen(output));
        let mut testpmd = Testpmd { child, prompt, said, read: 0, commands: 0 };
        testpmd.command("")?;
        Ok(testpmd)
    }
}

/// The output of a process so far.
#[derive(Default)]
struct Said {
    text: Mutex<TestpmdText>,
    changed: Condvar,
}

#[derive(Default)]
struct TestpmdText {
    text: String,
    ended: bool,
}

impl Said {
    fn listen(&self, mut output: impl Read) {
        let mut bytes = [0; 4096];
        loop {
            let length = output.read(&mut bytes).unwrap_or(0);
            let mut said = self.lock();
            said.text.push_str(&String::from_utf8_lossy(&bytes[..length]));
            said.ended = length == 0;
            self.changed.notify_all();
            if said.ended {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, TestpmdText> {
        self.text.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until `wanted` appears after `from`, and returns its end.
    fn wait(&self, from: usize, wanted: &str, patience: Duration) -> Result<usize, String> {
        let deadline = Instant::now() + patience;
        let mut said = self.lock();
        loop {
            if let Some(place) = said.text[from..].find(wanted) {
                return Ok(from + place + wanted.len());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if said.ended || left.is_zero() {
                let why = if said.ended { "ended" } else { "hangs" };
                return Err(format!("dpdk-testpmd {why}; `{wanted}` is not in:\n{}", &said.text[from..]));
            }
            said = match self.changed.wait_timeout(said, left) {
                Ok((said, _)) => said,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

/// A testpmd in the background. It is killed when it is dropped.
pub struct Testpmd {
    child: Child,
    prompt: ChildStdin,
    said: Arc<Said>,
    /// The length of the output of earlier commands.
    read: usize,
    commands: usize,
}

impl Testpmd {
    /// Sends a command, waits until it is done and returns the output meanwhile.
    pub fn command(&mut self, command: &str) -> Result<String, String> {
        let from = self.read;
        let write = |prompt: &mut ChildStdin, line: &str| writeln!(prompt, "{line}").and_then(|()| prompt.flush());
        let complain = |error: std::io::Error| format!("cannot write to dpdk-testpmd: {error}");
        write(&mut self.prompt, command).map_err(complain)?;
        let start = Instant::now();
        let echo = loop {
            self.commands += 1;
            let mark = format!("done{}", self.commands);
            write(&mut self.prompt, &mark).map_err(complain)?;
            // The prompt echoes its input, and ends the line in its own way. Output of its drivers may appear in the
            // middle of a mark; then the next one is awaited.
            match self.said.wait(from, &format!("{mark}\r"), Duration::from_secs(5)) {
                Ok(echo) => break echo,
                Err(why) if start.elapsed() > PATIENCE => return Err(format!("{why}\nafter the command `{command}`")),
                Err(_) => {}
            }
        };
        self.read = self.said.wait(echo, UNKNOWN, PATIENCE)?;
        Ok(self.said.lock().text[from..echo].to_owned())
    }

    /// Sends several commands.
    pub fn commands(&mut self, commands: &[&str]) -> Result<(), String> {
        commands.iter().try_for_each(|command| self.command(command).map(drop))
    }

    /// The forwarding statistics since `start`.
    pub fn forwarded(&mut self) -> Result<Forwarded, String> {
        Ok(Forwarded::read(&self.command("show fwd stats all")?))
    }

    /// Ends it cleanly, so that the captures that it writes are complete.
    pub fn quit(mut self) -> Result<String, String> {
        let told = writeln!(self.prompt, "quit").and_then(|()| self.prompt.flush());
        told.map_err(|error| format!("cannot write to dpdk-testpmd: {error}"))?;
        self.said.wait(self.read, "Bye...", PATIENCE)?;
        let _ = self.child.wait();
        Ok(self.said.lock().text.clone())
    }

    /// Kills it, like a crash.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.end();
    }
}

/// Counters of a testpmd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forwarded {
    /// For each port with traffic: its number, packets received, sent, and dropped because a ring was full.
    pub ports: Vec<(usize, u64, u64, u64)>,
}

impl Forwarded {
    fn read(text: &str) -> Forwarded {
        let mut forwarded = Forwarded::default();
        let mut in_port = false;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Some(place) = line.find("Forward statistics for port ") {
                let number = line[place..].split_whitespace().nth(4).and_then(|word| word.parse().ok());
                in_port = number.is_some();
                forwarded.ports.extend(number.map(|number| (number, 0, 0, 0)));
            } else if line.contains("Accumulated forward statistics") {
                in_port = false;
            } else if let (true, Some(port)) = (in_port, forwarded.ports.last_mut()) {
                let number = |name: &str| {
                    let place = words.iter().position(|word| *word == name)?;
                    words.get(place + 1)?.parse().ok()
                };
                port.1 = number("RX-packets:").unwrap_or(port.1);
                port.2 = number("TX-packets:").unwrap_or(port.2);
                port.3 = number("TX-dropped:").unwrap_or(port.3);
            }
        }
        forwarded
    }

    /// The packets that a port has received, sent and dropped.
    pub fn port(&self, number: usize) -> (u64, u64, u64) {
        let port = self.ports.iter().find(|port| port.0 == number);
        port.map_or((0, 0, 0), |&(_, received, sent, dropped)| (received, sent, dropped))
    }
}

/// The arguments of a port of DPDK's virtio driver that connects to a device at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Whether its rings are packed; otherwise they are split.
    pub packed: bool,
    /// Whether a packet may span several receive buffers (mergeable).
    pub mergeable: bool,
    /// Whether buffers are used in order.
    pub in_order: bool,
    /// Whether it may use its vectorised loops.
    pub vectorized: bool,
    /// Pairs of rings.
    pub queues: usize,
    /// Descriptors of each ring.
    pub queue_size: usize,
    /// Whether the driver is the side that listens.
    pub server: bool,
}

impl Default for Driver {
    fn default() -> Driver {
        Driver {
            packed: false,
            mergeable: true,
            in_order: false,
            vectorized: false,
            queues: 1,
            queue_size: 256,
            server: false,
        }
    }
}

impl Driver {
    /// The device argument of its port.
    pub fn device(&self, number: usize, socket: &str) -> String {
        let Driver { packed, mergeable, in_order, vectorized, queues, queue_size, server } = *self;
        let mut device = format!("net_virtio_user{number},path={socket},queues={queues},queue_size={queue_size}");
        for (name, value) in
            [("packed_vq", packed), ("mrg_rxbuf", mergeable), ("in_order", in_order), ("vectorized", vectorized)]
        {
            let _ = write!(device, ",{name}={}", u8::from(value));
        }
        if server {
            device.push_str(",server=1");
        }
        device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_parsed_from_testpmds_output() {
        let text = "
  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 7              RX-dropped: 0             RX-total: 7
  TX-packets: 56320576       TX-dropped: 19755936      TX-total: 76076512
  ----------------------------------------------------------------------------

  ---------------------- Forward statistics for port 12 ----------------------
  RX-packets: 8              RX-dropped: 0             RX-total: 8
  TX-packets: 9              TX-dropped: 0             TX-total: 9
  ----------------------------------------------------------------------------

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 15             RX-dropped: 0             RX-total: 15
  TX-packets: 56320585       TX-dropped: 19755936      TX-total: 76076521
  ++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++
";
        let forwarded = Forwarded::read(text);
        assert_eq!(forwarded.ports, [(0, 7, 56_320_576, 19_755_936), (12, 8, 9, 0)]);
        assert_eq!((forwarded.port(12), forwarded.port(3)), ((8, 9, 0), (0, 0, 0)));
        assert_eq!(Forwarded::read("testpmd> "), Forwarded::default());
    }
}
