//! The measurement: fresh interfaces and programs for each window, in random order.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bellows_testkit::netns;
use bellows_testkit::programs::Background;
use serde_json::Value;

use super::counters::{self, Interface, Processor};
use super::forwarders::Running;
use super::generator::{self, Rate};
use super::lab::{self, Lab, SINK, SINK_ADDRESS, SOURCE, SOURCE_NAMESPACE};
use super::{Case, Forwarder, Options, Steering};
use crate::TaskError;
use crate::measured::{self, SESSION, Scheduled, TIMEOUT, raise_session_priority};

/// Maximum share of a window that the forwarder may wait for its processor, in front of a generator. Behind iperf3 it
/// waits for the software interrupts of its own traffic, which the kernel defers to a thread.
const STARVED: f64 = 0.08;

/// Maximum share of a window that the host may take a processor away.
const STOLEN: f64 = 0.05;

/// Time after the first frame has arrived at the sink.
const WARM_UP: Duration = Duration::from_millis(300);

/// The results of one forwarder in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// The number of the round, from 1; windows of one round are neighbours in time.
    pub round: usize,
    pub seconds: f64,
    /// Packets that the source sent, and that the sink received.
    pub offered: f64,
    pub forwarded: f64,
    /// Bits a second of the TCP stream, by the receiver.
    pub tcp: Option<f64>,
    /// Nanoseconds of the forwarder for a forwarded packet, in user space and in the kernel; NaN for the bridge.
    pub user: f64,
    pub system: f64,
    /// Shares of the window of the generator's processor and the forwarder's: in software interrupts, idle, and stolen.
    pub softirq: [f64; 2],
    pub idle: [f64; 2],
    pub stolen: [f64; 2],
    /// The share of the window that the forwarder ran, and waited for its processor. For the steered bridge: that its
    /// processor was in software interrupts, and that other programs had it.
    pub ran: f64,
    pub waited: f64,
}

impl Window {
    pub fn is_starved(&self, case: Case) -> bool {
        self.waited > STARVED && !case.is_tcp() || self.stolen.iter().any(|stolen| *stolen > STOLEN)
    }

    /// Packets a second at the sink, or bits a second of the TCP stream.
    pub fn rate(&self) -> f64 {
        self.tcp.unwrap_or(self.forwarded / self.seconds)
    }
}

/// The windows of one forwarder in one case, one for each round of the case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub case: Case,
    pub forwarder: Forwarder,
    pub windows: Vec<Window>,
}

/// Measures all cases.
pub fn measure(options: &Options) -> Result<Vec<Row>, TaskError> {
    lab::make_namespaces().map_err(TaskError::failed)?;
    measured::raise_own_priority();
    let mut rows = Vec::new();
    for &case in &options.cases {
        rows.extend(measure_case(options, case)?);
    }
    Ok(rows)
}

fn measure_case(options: &Options, case: Case) -> Result<Vec<Row>, TaskError> {
    let forwarders = options.forwarders(case);
    let row = |&forwarder: &Forwarder| Row { case, forwarder, windows: Vec::new() };
    let mut rows: Vec<Row> = forwarders.iter().map(row).collect();
    for round in 1..=options.attempts * options.rounds {
        let mut groups = groups(&forwarders);
        groups.retain(|group| valid_rounds(&rows, group) < options.rounds);
        if groups.is_empty() {
            break;
        }
        groups.iter_mut().for_each(|group| fastrand::shuffle(group));
        fastrand::shuffle(&mut groups);
        for forwarder in groups.concat() {
            eprintln!("measuring {}: round {round}, {}", case.name(), options.name(forwarder));
            let window = measure_window(options, case, forwarder)
                .map_err(|error| TaskError::failed(format!("{}, {}: {error}", case.name(), options.name(forwarder))))?;
            if let Some(row) = rows.iter_mut().find(|row| row.forwarder == forwarder) {
                row.windows.push(Window { round, ..window });
            }
        }
    }
    Ok(rows)
}

/// The forwarders by what they are made of: the members of a group are compared, and measured one after the other.
fn groups(forwarders: &[Forwarder]) -> Vec<Vec<Forwarder>> {
    let kind = |forwarder| match forwarder {
        Forwarder::Bellows(port) | Forwarder::Reference(port) => Ok(port),
        Forwarder::Bridge(steering) => Err(steering),
    };
    let mut groups: Vec<Vec<Forwarder>> = Vec::new();
    for &forwarder in forwarders {
        match groups.iter_mut().find(|group| kind(group[0]) == kind(forwarder)) {
            Some(group) => group.push(forwarder),
            None => groups.push(vec![forwarder]),
        }
    }
    groups
}

/// The rounds in which no member of a group was starved.
fn valid_rounds(rows: &[Row], group: &[Forwarder]) -> usize {
    let members: Vec<&Row> = rows.iter().filter(|row| group.contains(&row.forwarder)).collect();
    let rounds = members.first().map_or(0, |row| row.windows.len());
    (0..rounds).filter(|&round| members.iter().all(|row| !row.windows[round].is_starved(row.case))).count()
}

fn measure_window(options: &Options, case: Case, forwarder: Forwarder) -> Result<Window, TaskError> {
    let _lab = Lab::new(case).map_err(TaskError::failed)?;
    let running = Running::start(options, forwarder)?;
    let mut bench = Bench { options, running };
    let window = match case {
        Case::Flood => bench.measure_frames(Rate::Full),
        Case::Paced => bench.measure_frames(Rate::Of(options.rate)),
        Case::Tcp | Case::TcpOffloads => bench.measure_tcp(),
    };
    match window {
        Ok(window) if forwarder == Forwarder::Bridge(Steering::On) => Ok(of_steered_bridge(window)),
        window => window.map_err(|error| TaskError::failed(format!("{error}\n{}", bench.running.said()))),
    }
}

/// The kernel does not say how long its software interrupts waited: the time that other programs had is an estimate.
fn of_steered_bridge(window: Window) -> Window {
    let ran = window.softirq[1];
    Window { ran, waited: (1.0 - ran - window.idle[1] - window.stolen[1]).max(0.0), ..window }
}

/// A forwarder that runs.
struct Bench<'a> {
    options: &'a Options,
    running: Running,
}

impl Bench<'_> {
    fn measure_frames(&mut self, rate: Rate) -> Result<Window, TaskError> {
        let mut generator = generator::start(rate, self.options.generator_cpu)?;
        let deadline = Instant::now() + TIMEOUT;
        while Interface::of("self", SINK)?.received == 0 {
            if Instant::now() > deadline || generator.has_ended() || self.running.has_ended() {
                return Err(TaskError::failed("no frame has arrived at the sink"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(WARM_UP);
        let source = generator.pid().to_string();
        let before = self.look(&source)?;
        thread::sleep(self.options.window);
        let after = self.look(&source)?;
        if generator.has_ended() {
            return Err(TaskError::failed("the generator has ended"));
        }
        Ok(after.since(&before))
    }

    fn measure_tcp(&mut self) -> Result<Window, TaskError> {
        // Its counters are those of the source's namespace, as long as the process lives.
        let mut sleep = netns::inside(SOURCE_NAMESPACE);
        let holder = Background::start(sleep.args(["sleep", "infinity"])).map_err(TaskError::failed)?;
        let source = holder.pid().to_string();
        let _server = self.start_server()?;
        let deadline = Instant::now() + TIMEOUT;
        // It is not there until `ip` has entered the namespace.
        while Interface::of(&source, SOURCE).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        loop {
            let before = self.look(&source)?;
            let report = self.run_client()?;
            let after = self.look(&source)?;
            match throughput(&report) {
                Ok(rate) => return Ok(Window { tcp: Some(rate), ..after.since(&before) }),
                // The server or the forwarder is not ready yet.
                Err(_) if Instant::now() < deadline && !self.running.has_ended() => {
                    thread::sleep(Duration::from_millis(100))
                }
                Err(why) => return Err(TaskError::failed(format!("iperf3: {why}"))),
            }
        }
    }

    fn start_server(&self) -> Result<Background, TaskError> {
        let mut server = Command::new(SESSION[0]);
        server.args(&SESSION[1..]).args(self.iperf3()).args(["--server", "--bind", &SINK_ADDRESS.to_string()]);
        let server = Background::start(server.stdin(Stdio::null()).stdout(Stdio::null())).map_err(TaskError::failed)?;
        raise_session_priority(server.pid());
        Ok(server)
    }

    /// Sends for the length of a window, and returns what it reports as JSON.
    fn run_client(&self) -> Result<Value, TaskError> {
        let mut client = Command::new(SESSION[0]);
        client.args(&SESSION[1..]).args(["ip", "netns", "exec", SOURCE_NAMESPACE]).args(self.iperf3());
        client.args(["--client", &SINK_ADDRESS.to_string(), "--json", "--connect-timeout", "1000"]);
        client.args(["--time", &self.options.tcp_window().as_secs().to_string()]);
        client.stdin(Stdio::null()).stdout(Stdio::piped());
        let fail = |error: std::io::Error| TaskError::failed(format!("cannot run iperf3: {error}"));
        let client = client.spawn().map_err(fail)?;
        raise_session_priority(client.id());
        let output = client.wait_with_output().map_err(fail)?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Client and server share the generator's processor.
    fn iperf3(&self) -> Vec<String> {
        ["taskset", "--cpu-list", &self.options.generator_cpu.to_string(), "iperf3"].map(String::from).into()
    }

    fn look(&self, source: &str) -> Result<Look, TaskError> {
        let pid = self.running.pid();
        let forwarded = Interface::of("self", SINK)?.received;
        Ok(Look {
            at: Instant::now(),
            forwarded,
            offered: Interface::of(source, SOURCE)?.sent,
            process: pid.map(counters::Process::of).transpose()?,
            scheduled: pid.map(Scheduled::of).unwrap_or_default(),
            processors: [Processor::of(self.options.generator_cpu)?, Processor::of(self.options.cpu)?],
        })
    }
}

/// The receiver's bits a second in a report of iperf3.
fn throughput(report: &Value) -> Result<f64, String> {
    let rate = report.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
    rate.filter(|rate| *rate > 0.0).ok_or_else(|| match report.get("error").and_then(Value::as_str) {
        Some(error) => error.to_owned(),
        None => format!("no throughput in {report}"),
    })
}

/// All counters at one time.
struct Look {
    at: Instant,
    forwarded: u64,
    offered: u64,
    process: Option<counters::Process>,
    scheduled: Scheduled,
    processors: [Processor; 2],
}

impl Look {
    fn since(&self, then: &Look) -> Window {
        let seconds = (self.at - then.at).as_secs_f64();
        let forwarded = (self.forwarded - then.forwarded) as f64;
        let ticks = |now: u64, then: u64| now.saturating_sub(then) as f64 / counters::TICKS;
        let nanoseconds = |now: u64, then: u64| ticks(now, then) * 1e9 / forwarded;
        let shares = |of: fn(&Processor) -> u64| {
            [0, 1].map(|side| ticks(of(&self.processors[side]), of(&then.processors[side])) / seconds)
        };
        let [user, system] = match (self.process, then.process) {
            (Some(now), Some(then)) => [nanoseconds(now.user, then.user), nanoseconds(now.system, then.system)],
            _ => [f64::NAN; 2],
        };
        let [ran, waited] = self.scheduled.since(&then.scheduled).map(|nanoseconds| nanoseconds / 1e9 / seconds);
        Window {
            round: 0,
            seconds,
            offered: (self.offered - then.offered) as f64,
            forwarded,
            tcp: None,
            user,
            system,
            softirq: shares(|processor| processor.softirq),
            idle: shares(|processor| processor.idle),
            stolen: shares(|processor| processor.stolen),
            ran,
            waited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Port;
    use super::*;

    #[test]
    fn counters_become_rates_and_times_of_a_packet() {
        let at = Instant::now();
        let processor = |softirq| Processor { softirq, stolen: softirq / 10, idle: 0 };
        let look = |seconds: u64, forwarded, user, system| Look {
            at: at + Duration::from_secs(seconds),
            forwarded,
            offered: 2 * forwarded,
            process: Some(counters::Process { user, system }),
            scheduled: Scheduled::default(),
            processors: [processor(seconds * 10), processor(seconds * 20)],
        };
        let window = look(12, 10_001_000, 150, 950).since(&look(2, 1_000, 50, 50));
        assert_eq!((window.seconds, window.offered, window.forwarded), (10.0, 2e7, 1e7));
        assert_eq!((window.user, window.system, window.rate()), (100.0, 900.0, 1e6));
        assert_eq!((window.softirq, window.stolen), ([0.1, 0.2], [0.01, 0.02]));
        assert!(!window.is_starved(Case::Flood));
        let waited = Window { waited: 0.1, ..window };
        assert!(waited.is_starved(Case::Flood) && !waited.is_starved(Case::Tcp));
        assert!(Window { stolen: [0.06, 0.0], ..window }.is_starved(Case::Tcp));
        let bridge = |seconds, forwarded| Look { process: None, ..look(seconds, forwarded, 0, 0) };
        let window = bridge(12, 10_001_000).since(&bridge(2, 1_000));
        assert!(window.user.is_nan() && window.system.is_nan());
        let steered = of_steered_bridge(window);
        assert_eq!((steered.ran, steered.is_starved(Case::Flood)), (0.2, true), "others had the rest of the processor");
        assert!(!of_steered_bridge(Window { idle: [0.0, 0.75], ..window }).is_starved(Case::Flood));
    }

    #[test]
    fn forwarders_that_are_compared_form_a_group() {
        let groups = groups(&Forwarder::ALL);
        assert_eq!(groups.concat().len(), Forwarder::ALL.len());
        for (group, port) in groups.iter().zip([Port::AfXdp, Port::Packet]) {
            assert_eq!(*group, [Forwarder::Bellows(port), Forwarder::Reference(port)]);
        }
        assert_eq!((groups.len(), groups[2].len()), (4, 1), "each bridge alone");
    }

    #[test]
    fn a_round_counts_if_no_member_of_the_group_was_starved() {
        let row = |forwarder, starved: [bool; 3]| {
            let window = |starved| Window { waited: if starved { 0.5 } else { 0.0 }, ..Window::default() };
            Row { case: Case::Flood, forwarder, windows: starved.map(window).into() }
        };
        let group = [Forwarder::Bellows(Port::AfXdp), Forwarder::Reference(Port::AfXdp)];
        let rows = [row(group[0], [true, false, false]), row(group[1], [false, false, true])];
        assert_eq!(valid_rounds(&rows, &group), 1);
        assert_eq!((valid_rounds(&rows, &group[..1]), valid_rounds(&[], &group)), (2, 0));
    }

    #[test]
    fn throughput_is_the_receivers() {
        let report = serde_json::json!({"end": {"sum_sent": {"bits_per_second": 5e9},
                                                "sum_received": {"bits_per_second": 4e9}}});
        assert_eq!(throughput(&report), Ok(4e9));
        let error = serde_json::json!({"error": "unable to connect to server"});
        assert_eq!(throughput(&error), Err("unable to connect to server".to_owned()));
        assert!(throughput(&Value::Null).unwrap_err().contains("null"));
    }
}
