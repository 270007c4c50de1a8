//! `cargo xtask peers interfaces`: forwarding between two real interfaces, by Bellows, DPDK's drivers and the kernel.
//!
//! Three network namespaces, two veth pairs and one forwarder between them:
//!
//! ```text
//!  generator: source ── left :forwarder: right ── sink
//! ```
//!
//! One forwarder after the other gets fresh pairs and a window of half a minute. The generator has one processor, the
//! forwarder the other. The packets are counted at the far end, whose namespace has no address and therefore drops
//! them in the kernel at little cost, on the processor that sent them: a veth interface receives by software interrupt
//! on the processor of its peer's sender. So the generator's processor also works for `left`, and the forwarder's for
//! the sink, whichever program forwards. The kernel's bridge has no process. By default it works where a packet was
//! received, on the generator's processor; receive packet steering moves it to the forwarder's, and both are measured.
//!
//! The measuring process is the sink's namespace. It is the first process of its own process and mount namespaces too,
//! so the kernel removes all programs, interfaces and namespaces, whatever happens to it.

mod bench;
mod counters;
mod forwarders;
mod generator;
mod lab;
mod results;

use std::path::PathBuf;
use std::time::Duration;

use bellows_testkit::netns;

use crate::TaskError;
use crate::options::{list, number};
use crate::tools::{self, Tool};
use crate::workspace::cargo;

pub const TOOLS: &[Tool] = &[
    Tool { programs: &["ip"], package: "iproute2", purpose: "network namespaces" },
    Tool { programs: &["ethtool"], package: "ethtool", purpose: "offloads of interfaces" },
    Tool { programs: &["unshare"], package: "util-linux", purpose: "namespaces" },
    Tool { programs: &["chrt"], package: "util-linux", purpose: "scheduling priorities" },
    Tool { programs: &["taskset"], package: "util-linux", purpose: "a processor for each program" },
    Tool { programs: &["iperf3"], package: "iperf3", purpose: "TCP through the forwarders" },
    Tool { programs: &["dpdk-testpmd"], package: "dpdk-dev", purpose: "DPDK's drivers for interfaces" },
];

/// Tells this program that it already runs in its own namespaces; not for users.
const INSIDE: &str = "--inside-namespaces";

/// Maximum length of a TCP stream.
const MAX_TCP_WINDOW: Duration = Duration::from_secs(10);

/// The traffic of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Frames of 64 bytes, as many as the generator can send.
    Flood,
    /// Frames of 64 bytes at a rate that all forwarders can forward.
    Paced,
    /// One TCP stream, with all offloads off.
    Tcp,
    /// One TCP stream with offloads, through the forwarders that have them.
    TcpOffloads,
}

impl Case {
    const ALL: [Case; 4] = [Case::Flood, Case::Paced, Case::Tcp, Case::TcpOffloads];

    pub fn name(self) -> &'static str {
        match self {
            Case::Flood => "flood",
            Case::Paced => "paced",
            Case::Tcp => "tcp",
            Case::TcpOffloads => "tcp-offloads",
        }
    }

    pub fn is_tcp(self) -> bool {
        matches!(self, Case::Tcp | Case::TcpOffloads)
    }
}

/// A kind of port: an app of Bellows, and the driver of DPDK that uses the same facility of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    AfXdp,
    Packet,
}

/// What forwards between the interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarder {
    Bellows(Port),
    /// DPDK, or another build of Bellows.
    Reference(Port),
    Bridge(Steering),
}

/// Where the kernel's bridge works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// On the processor that received a packet: the generator's.
    Off,
    /// On the forwarder's processor, by receive packet steering.
    On,
}

impl Forwarder {
    const ALL: [Forwarder; 6] = [
        Forwarder::Bellows(Port::AfXdp),
        Forwarder::Reference(Port::AfXdp),
        Forwarder::Bellows(Port::Packet),
        Forwarder::Reference(Port::Packet),
        Forwarder::Bridge(Steering::Off),
        Forwarder::Bridge(Steering::On),
    ];

    /// Its name on the command line, and in tables of comparisons with DPDK.
    pub fn name(self) -> &'static str {
        match self {
            Forwarder::Bellows(Port::AfXdp) => "bellows-af-xdp",
            Forwarder::Bellows(Port::Packet) => "bellows-raw-socket",
            Forwarder::Reference(Port::AfXdp) => "dpdk-af-xdp",
            Forwarder::Reference(Port::Packet) => "dpdk-af-packet",
            Forwarder::Bridge(Steering::Off) => "kernel-bridge",
            Forwarder::Bridge(Steering::On) => "kernel-bridge-steered",
        }
    }
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Text,
    Json,
    Markdown,
}

/// The options of the comparison.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    cases: Vec<Case>,
    forwarders: Vec<Forwarder>,
    /// Windows of each forwarder in each case.
    rounds: usize,
    /// Maximum number of tried rounds, as a multiple of `rounds`.
    attempts: usize,
    window: Duration,
    /// Frames a second of the case `paced`.
    rate: usize,
    generator_cpu: usize,
    cpu: usize,
    /// Another build of Bellows, in place of DPDK.
    against: Option<PathBuf>,
    shape: Shape,
}

impl Options {
    fn full() -> Options {
        Options {
            cases: Case::ALL.to_vec(),
            forwarders: Forwarder::ALL.to_vec(),
            rounds: 9,
            attempts: 3,
            window: Duration::from_secs(30),
            rate: 200_000,
            generator_cpu: 0,
            cpu: 1,
            against: None,
            shape: Shape::Text,
        }
    }

    fn parse(words: &[String]) -> Result<Options, TaskError> {
        let mut options = Options::full();
        if words.iter().any(|word| word == "--brief") {
            options.rounds = 1;
            options.attempts = 1;
            options.window = Duration::from_secs(2);
        }
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next().map(String::as_str);
                value.ok_or_else(|| TaskError::usage(format!("{word} needs a value; see: cargo xtask help")))
            };
            match word.as_str() {
                "--brief" => {}
                "--json" => options.shape = Shape::Json,
                "--markdown" => options.shape = Shape::Markdown,
                "--case" => options.cases = list(word, value()?, &Case::ALL, |case| case.name().to_owned())?,
                "--forwarders" => {
                    let name = |forwarder: &Forwarder| forwarder.name().to_owned();
                    options.forwarders = list(word, value()?, &Forwarder::ALL, name)?;
                }
                "--rounds" => options.rounds = number(word, value()?, 1..=1_000)?,
                "--seconds" => options.window = Duration::from_secs(number(word, value()?, 1..=3_600)? as u64),
                "--rate" => options.rate = number(word, value()?, 1_000..=10_000_000)?,
                "--generator-cpu" => options.generator_cpu = number(word, value()?, 0..=1_023)?,
                "--cpu" => options.cpu = number(word, value()?, 0..=1_023)?,
                "--against" => options.against = Some(PathBuf::from(value()?)),
                other => return Err(TaskError::usage(format!("peers interfaces: '{other}' is not an option"))),
            }
        }
        match options.cpu == options.generator_cpu {
            true => Err(TaskError::usage(
                "--cpu and --generator-cpu are the same: programs that poll cannot share a processor",
            )),
            false => Ok(options),
        }
    }

    /// The forwarders of a case, those of one kind of port next to each other.
    fn forwarders(&self, case: Case) -> Vec<Forwarder> {
        // Neither AF_XDP nor DPDK's driver knows of segments longer than the MTU.
        let takes_part = |forwarder: &&Forwarder| match forwarder {
            _ if case != Case::TcpOffloads => true,
            Forwarder::Bellows(port) => *port == Port::Packet,
            Forwarder::Reference(port) => *port == Port::Packet && self.against.is_some(),
            Forwarder::Bridge(_) => true,
        };
        self.forwarders.iter().filter(takes_part).copied().collect()
    }

    /// The length of a TCP stream: it shows its rate sooner than the time of a packet can be told.
    fn tcp_window(&self) -> Duration {
        self.window.min(MAX_TCP_WINDOW)
    }

    /// The name of a forwarder in tables.
    fn name(&self, forwarder: Forwarder) -> &'static str {
        match forwarder {
            Forwarder::Reference(Port::AfXdp) if self.against.is_some() => "other-af-xdp",
            Forwarder::Reference(Port::Packet) if self.against.is_some() => "other-raw-socket",
            forwarder => forwarder.name(),
        }
    }

    fn needs(&self, is_needed: impl Fn(&Forwarder) -> bool) -> bool {
        self.forwarders.iter().any(is_needed)
    }
}

/// Runs the comparison.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    match words.split_first() {
        Some((first, words)) if first == INSIDE => measure(&Options::parse(words)?),
        Some((first, words)) if first == generator::GENERATE => generator::run(words),
        _ => prepare(words),
    }
}

/// Builds Bellows, and measures in namespaces of its own.
fn prepare(words: &[String]) -> Result<(), TaskError> {
    let options = Options::parse(words)?;
    if let Some(program) = options.against.as_ref().filter(|program| !program.is_file()) {
        return Err(TaskError::usage(format!("--against: there is no program {}", program.display())));
    }
    if !tools::is_root() {
        return Err(TaskError::failed("peers interfaces creates network namespaces: run it as root"));
    }
    let needs_dpdk = options.against.is_none() && options.needs(|one| matches!(one, Forwarder::Reference(_)));
    let needed = TOOLS.iter().filter(|tool| needs_dpdk || tool.package != "dpdk-dev");
    if let Some(tool) = tools::provide(needed).first() {
        return Err(TaskError::failed(format!("missing: {tool}; needed for {}", tool.purpose)));
    }
    if options.needs(|one| matches!(one, Forwarder::Bellows(_))) {
        let mut build = cargo(&["build", "--release", "--quiet", "--package", "bellows"]);
        if !build.status().is_ok_and(|status| status.success()) {
            return Err(TaskError::failed("the release build of bellows failed: see above"));
        }
    }
    let mut inside = netns::in_own_namespaces(&[]).map_err(TaskError::failed)?;
    match inside.args(["peers", "interfaces", INSIDE]).args(words).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() == Some(1) => Err(TaskError::Reported),
        Ok(status) => Err(TaskError::failed(format!(
            "the comparison failed ({status}); network namespaces need CAP_SYS_ADMIN, which containers often lack"
        ))),
        Err(error) => Err(TaskError::failed(format!("cannot run setpriv and unshare: {error}"))),
    }
}

fn measure(options: &Options) -> Result<(), TaskError> {
    let rows = bench::measure(options)?;
    let text = match options.shape {
        Shape::Text => results::text(options, &rows),
        Shape::Json => results::json(options, &rows),
        Shape::Markdown => results::markdown(options, &rows),
    };
    print!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIDGE: Forwarder = Forwarder::Bridge(Steering::Off);

    fn parse(words: &[&str]) -> Result<Options, TaskError> {
        Options::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn everything_is_measured_by_default() {
        let options = parse(&[]).ok().unwrap();
        assert_eq!(options, Options::full());
        assert_eq!(options.forwarders(Case::Flood).len(), 6);
        let with_offloads = [Forwarder::Bellows(Port::Packet), BRIDGE, Forwarder::Bridge(Steering::On)];
        assert_eq!(options.forwarders(Case::TcpOffloads), with_offloads);
        assert_eq!(options.tcp_window(), Duration::from_secs(10));
        let other = Options { against: Some("bellows".into()), ..options };
        assert_eq!(other.forwarders(Case::TcpOffloads).len(), 4);
        assert_eq!(other.name(Forwarder::Reference(Port::Packet)), "other-raw-socket");
        assert_eq!(other.name(BRIDGE), "kernel-bridge");
    }

    #[test]
    fn brief_shortens_everything_except_given_options() {
        let options = parse(&["--rounds", "5", "--brief", "--case", "paced,tcp", "--forwarders", "dpdk-af-xdp"]);
        let options = options.ok().unwrap();
        assert_eq!((options.rounds, options.attempts, options.window), (5, 1, Duration::from_secs(2)));
        assert_eq!(options.tcp_window(), options.window);
        assert_eq!(options.cases, [Case::Paced, Case::Tcp]);
        assert_eq!(options.forwarders, [Forwarder::Reference(Port::AfXdp)]);
    }

    #[test]
    fn an_invalid_option_is_named() {
        for (words, why) in [
            (&["--case", "udp"] as &[&str], "there is no 'udp'; choose from flood, paced"),
            (&["--forwarders", "vpp"], "vpp"),
            (&["--seconds", "0"], "from 1 to 3600"),
            (&["--rounds"], "--rounds needs a value"),
            (&["--cpu", "0"], "the same"),
            (&["--fast"], "'--fast'"),
        ] {
            let Err(TaskError::Usage(message)) = parse(words) else { panic!("{words:?} was accepted") };
            assert!(message.contains(why), "{message}");
        }
    }
}
