//! The three programs of the comparison, and their counters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bellows_testkit::testpmd::{Driver, Launch, Testpmd};
use serde_json::Value;

use super::{Cell, Direction, Memory, Options};
use crate::measured::{SESSION, TIMEOUT, raise_session_priority};
use crate::workspace::target_dir;
use crate::{TaskError, tools};

/// The work of a program so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// All packets.
    pub packets: f64,
    /// For each kind of measured work: its clocks of the time-stamp counter, and its packets.
    pub measured: [[f64; 2]; KINDS],
}

/// Two apps, each with pull and push.
const KINDS: usize = 4;

fn launch(cpu: usize, memory: Memory, devices: Vec<String>) -> Launch {
    Launch {
        wrapper: SESSION.map(String::from).into(),
        cpus: cpu.to_string(),
        hugepages: memory == Memory::Hugepages,
        megabytes: 128,
        devices,
        environment: Vec::new(),
        options: ["--total-num-mbufs=16384", "--burst=32", "--port-topology=loop"].map(String::from).into(),
    }
}

fn start(launch: &Launch) -> Result<Testpmd, TaskError> {
    let mut testpmd = launch.spawn().map_err(TaskError::failed)?;
    raise_session_priority(testpmd.pid());
    testpmd.ready().map_err(TaskError::failed)?;
    Ok(testpmd)
}

/// DPDK's vhost back end in a testpmd.
pub fn dpdk(
    options: &Options,
    memory: Memory,
    direction: Direction,
    size: usize,
    socket: &Path,
) -> Result<Testpmd, TaskError> {
    let mut dpdk =
        start(&launch(options.cpu, memory, vec![format!("net_vhost0,iface={},queues=1", socket.display())]))?;
    let mode = match direction {
        Direction::GuestToHost => "rxonly",
        Direction::HostToGuest => "txonly",
        Direction::Looped => "io",
    };
    let (mode, size) = (format!("set fwd {mode}"), format!("set txpkts {size}"));
    dpdk.commands(&["set record-core-cycles on", &mode, &size, "start"]).map_err(TaskError::failed)?;
    Ok(dpdk)
}

/// The client: its first port leads to DPDK's back end, its second to Bellows.
pub fn client(
    options: &Options,
    cell: Cell,
    memory: Memory,
    size: usize,
    sockets: [&Path; 2],
) -> Result<Testpmd, TaskError> {
    let Cell { packed, mergeable, in_order } = cell;
    let driver = Driver { packed, mergeable, in_order, vectorized: options.vectorized, ..Driver::default() };
    let devices =
        sockets.iter().enumerate().map(|(number, socket)| driver.device(number, &socket.display().to_string()));
    let mut launch = launch(options.client_cpu, memory, devices.collect());
    if options.vectorized {
        launch.environment.push("--force-max-simd-bitwidth=512".into());
    }
    let mut client = start(&launch)?;
    let size = format!("set txpkts {size}");
    client.commands(&["set record-core-cycles on", &size]).map_err(TaskError::failed)?;
    Ok(client)
}

/// A Bellows in the background. It is killed when it is dropped.
pub struct Bellows {
    child: Child,
    program: PathBuf,
    folder: PathBuf,
}

impl Bellows {
    /// Starts Bellows with a port at a socket; its files go into `folder`. It is the release build, or another build.
    pub fn start(
        options: &Options,
        other: Option<&Path>,
        direction: Direction,
        size: usize,
        socket: &Path,
        folder: &Path,
    ) -> Result<Bellows, TaskError> {
        let failure = |error: std::io::Error| TaskError::failed(format!("cannot run bellows: {error}"));
        let file = folder.join("network.toml");
        fs::write(&file, network(direction, size, socket)).map_err(failure)?;
        let built = target_dir().join("release/bellows");
        let program = other.unwrap_or(&built).canonicalize().map_err(failure)?;
        let log = fs::File::create(folder.join("log")).map_err(failure)?;
        let mut command = Command::new(SESSION[0]);
        command.args(&SESSION[1..]).arg(&program).arg("run").arg(&file).args([
            "--name",
            "peers",
            "--cpu",
            &options.cpu.to_string(),
        ]);
        command.env("BELLOWS_RUNTIME_DIR", folder.join("networks")).env("PATH", tools::search_path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map_err(failure)?;
        raise_session_priority(child.id());
        let mut bellows = Bellows { child, program, folder: folder.to_owned() };
        let deadline = Instant::now() + TIMEOUT;
        while !socket.exists() {
            let ended = bellows.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                return Err(TaskError::failed(format!("bellows does not listen at {}:\n{log}", socket.display())));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(bellows)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its counters.
    pub fn work(&self) -> Result<Work, TaskError> {
        let mut command = Command::new(&self.program);
        let output =
            command.args(["show", "peers", "--json"]).env("BELLOWS_RUNTIME_DIR", self.folder.join("networks")).output();
        let output = output.map_err(|error| TaskError::failed(format!("cannot run bellows show: {error}")))?;
        match output.status.success() {
            true => Work::read(&output.stdout)
                .map_err(|why| TaskError::failed(format!("cannot parse the output of `bellows show --json`: {why}"))),
            false => Err(TaskError::failed(format!(
                "bellows show: {}\nits log:\n{}",
                String::from_utf8_lossy(&output.stderr).trim(),
                fs::read_to_string(self.folder.join("log")).unwrap_or_default()
            ))),
        }
    }
}

impl Drop for Bellows {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The network that does the same as DPDK in testpmd's modes `rxonly`, `txonly` and `io`.
fn network(direction: Direction, size: usize, socket: &Path) -> String {
    let (links, partner) = match direction {
        Direction::GuestToHost => ("\"port.output -> partner.input\"", "app = \"sink\"".to_owned()),
        Direction::HostToGuest => ("\"partner.output -> port.input\"", format!("app = \"source\"\nsize = {size}")),
        // An app's output may not lead to itself; this app forwards whole vectors.
        Direction::Looped => {
            ("\"port.output -> partner.input\", \"partner.output -> port.input\"", "app = \"join\"".to_owned())
        }
    };
    let socket = socket.display();
    format!("links = [{links}]\n[apps.port]\napp = \"vhost-user\"\nsocket = \"{socket}\"\n[apps.partner]\n{partner}\n")
}

impl Work {
    /// The work of a testpmd, which measures every iteration.
    pub fn of(testpmd: &mut Testpmd) -> Result<Work, TaskError> {
        let (clocks, packets) = testpmd.forwarded().map_err(TaskError::failed)?.cycles.unwrap_or_default();
        let mut measured = [[0.0; 2]; KINDS];
        measured[0] = [clocks as f64, packets as f64];
        Ok(Work { packets: packets as f64, measured })
    }

    /// Packets since then, and clocks per packet.
    pub fn since(&self, then: &Work) -> (f64, f64) {
        let kinds = self.measured.iter().zip(&then.measured).filter(|(now, then)| now[1] > then[1]);
        let clocks = kinds.map(|(now, then)| (now[0] - then[0]) / (now[1] - then[1])).sum();
        (self.packets - then.packets, clocks)
    }

    /// Parses the output of `bellows show --json`: of each app the clocks and packets of its calls in sampled breaths,
    /// and the packets of the first link.
    fn read(counters: &[u8]) -> Result<Work, String> {
        let counters: Value = serde_json::from_slice(counters).map_err(|error| error.to_string())?;
        let number = |place: &str| {
            counters.pointer(place).and_then(Value::as_f64).ok_or_else(|| format!("no number at {place} in {counters}"))
        };
        let mut work = Work { packets: number("/links/0/packets")?, ..Work::default() };
        for (kind, measured) in work.measured.iter_mut().enumerate() {
            let (app, callback) = (kind / 2, ["pull", "push"][kind % 2]);
            *measured = [
                number(&format!("/apps/{app}/account/{callback}_clocks"))?,
                number(&format!("/apps/{app}/account/{callback}_packets"))?,
            ];
        }
        Ok(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_clocks_are_extrapolated() {
        let counters = r#"{
  "apps": [
    {
      "account": {
        "pull_clocks": 700,
        "pull_packets": 10,
        "push_clocks": 0,
        "push_packets": 0
      }
    },
    {
      "account": {
        "pull_clocks": 0,
        "pull_packets": 0,
        "push_clocks": 300,
        "push_packets": 20
      }
    }
  ],
  "links": [
    {
      "packets": 4000,
      "txdrop": 0
    },
    {
      "packets": 3999
    }
  ]
}"#;
        let work = Work::read(counters.as_bytes()).unwrap();
        assert_eq!(work.since(&Work::default()), (4_000.0, 85.0));
        let measured = |clocks, packets| {
            let mut work = Work { packets, ..Work::default() };
            work.measured[0] = [clocks, packets];
            work
        };
        assert_eq!(measured(950.0, 10.0).since(&measured(500.0, 5.0)), (5.0, 90.0));
        let without = counters.replacen("\"push_packets\"", "\"pushed\"", 1);
        let error = Work::read(without.as_bytes()).unwrap_err();
        assert!(error.starts_with("no number at /apps/0/account/push_packets in {\"apps\":"), "{error}");
        assert!(Work::read(b"{").unwrap_err().contains("line 1"));
    }

    #[test]
    fn networks_match_testpmd_modes() {
        let network = |direction| network(direction, 64, Path::new("/tmp/s"));
        assert!(network(Direction::GuestToHost).contains("app = \"sink\""));
        assert!(network(Direction::HostToGuest).contains("app = \"source\"\nsize = 64\n"));
        assert_eq!(network(Direction::Looped).matches("->").count(), 2);
    }
}
