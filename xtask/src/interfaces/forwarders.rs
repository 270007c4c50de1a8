//! The forwarders: Bellows, DPDK's testpmd, and the kernel's bridge.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bellows_testkit::netns;
use bellows_testkit::programs::Background;
use bellows_testkit::scratch::{self, TempDir};
use bellows_testkit::testpmd::{Launch, Testpmd};

use super::lab::{FORWARDER_NAMESPACE, LEFT, RIGHT};
use super::{Forwarder, Options, Port, Steering};
use crate::TaskError;
use crate::measured::{SESSION, raise_session_priority};
use crate::workspace::target_dir;

/// The name of the kernel's bridge.
const BRIDGE: &str = "bridge";

/// A forwarder at work. It ends when the value is dropped.
pub enum Running {
    Dpdk(Testpmd),
    Bellows(Bellows),
    Bridge(Bridge),
}

impl Running {
    /// Starts a forwarder between the two interfaces.
    pub fn start(options: &Options, forwarder: Forwarder) -> Result<Running, TaskError> {
        match (forwarder, &options.against) {
            (Forwarder::Bridge(steering), _) => {
                Bridge::start(options.cpu, steering).map(Running::Bridge).map_err(TaskError::failed)
            }
            (Forwarder::Reference(port), None) => start_dpdk(options.cpu, port).map(Running::Dpdk),
            (Forwarder::Reference(port), Some(program)) => {
                Bellows::start(program, options.cpu, port).map(Running::Bellows)
            }
            (Forwarder::Bellows(port), _) => {
                Bellows::start(&target_dir().join("release/bellows"), options.cpu, port).map(Running::Bellows)
            }
        }
    }

    /// The number of its process; the bridge has none.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Running::Dpdk(dpdk) => Some(dpdk.pid()),
            Running::Bellows(bellows) => Some(bellows.process.pid()),
            Running::Bridge(_) => None,
        }
    }

    /// Whether it has ended by itself. Of a testpmd, which has a prompt, the commands say it.
    pub fn has_ended(&mut self) -> bool {
        match self {
            Running::Bellows(bellows) => bellows.process.has_ended(),
            Running::Dpdk(_) | Running::Bridge(_) => false,
        }
    }

    /// What it has said so far, to explain a failure.
    pub fn said(&self) -> String {
        match self {
            Running::Dpdk(dpdk) => dpdk.said(),
            Running::Bellows(bellows) => fs::read_to_string(bellows.log()).unwrap_or_default(),
            Running::Bridge(_) => String::new(),
        }
    }
}

/// A program in its own session, in the namespace of the forwarder.
fn wrapper() -> Vec<String> {
    SESSION.into_iter().chain(["ip", "netns", "exec", FORWARDER_NAMESPACE]).map(String::from).collect()
}

/// The devices of DPDK for the two interfaces. On veth no option makes them faster than they are by default: not
/// `busy_budget=0`, `qdisc_bypass=1`, nor rings larger or smaller (`framecnt`, `--rxd`, `--txd`); longer bursts than
/// testpmd's 32 make the one for AF_XDP slower.
fn dpdk_devices(port: Port) -> [String; 2] {
    let driver = match port {
        Port::AfXdp => "net_af_xdp",
        Port::Packet => "net_af_packet",
    };
    [(0, LEFT), (1, RIGHT)].map(|(number, interface)| format!("{driver}{number},iface={interface}"))
}

fn start_dpdk(cpu: usize, port: Port) -> Result<Testpmd, TaskError> {
    let launch = Launch {
        wrapper: wrapper(),
        cpus: cpu.to_string(),
        hugepages: false,
        megabytes: 256,
        devices: dpdk_devices(port).into(),
        environment: Vec::new(),
        options: ["--total-num-mbufs=32768", "--burst=32", "--forward-mode=io"].map(String::from).into(),
    };
    let mut testpmd = launch.spawn().map_err(TaskError::failed)?;
    raise_session_priority(testpmd.pid());
    testpmd.ready().map_err(TaskError::failed)?;
    testpmd.command("start").map_err(TaskError::failed)?;
    Ok(testpmd)
}

/// A Bellows, with its network file and its log.
pub struct Bellows {
    process: Background,
    folder: TempDir,
}

impl Bellows {
    fn start(program: &Path, cpu: usize, port: Port) -> Result<Bellows, TaskError> {
        let fail = |error: std::io::Error| TaskError::failed(format!("cannot run {}: {error}", program.display()));
        let folder = scratch::make().map_err(TaskError::failed)?;
        let file = folder.path().join("network.toml");
        fs::write(&file, network(port)).map_err(fail)?;
        let log = fs::File::create(folder.path().join("log")).map_err(fail)?;
        let wrapper = wrapper();
        let mut command = Command::new(&wrapper[0]);
        command.args(&wrapper[1..]).arg(program.canonicalize().map_err(fail)?).arg("run").arg(&file);
        command.args(["--name", "peers", "--cpu", &cpu.to_string()]);
        command.env("BELLOWS_RUNTIME_DIR", folder.path().join("networks"));
        let process = Background::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log));
        let process = process.map_err(TaskError::failed)?;
        raise_session_priority(process.pid());
        Ok(Bellows { process, folder })
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

/// The network that forwards in both directions, as testpmd's mode `io` does.
fn network(port: Port) -> String {
    let app = match port {
        Port::AfXdp => "af-xdp",
        Port::Packet => "raw-socket",
    };
    let port = |name: &str| format!("[apps.{name}]\napp = \"{app}\"\ninterface = \"{name}\"\n");
    format!(
        "links = [\"{LEFT}.output -> {RIGHT}.input\", \"{RIGHT}.output -> {LEFT}.input\"]\n{}{}",
        port(LEFT),
        port(RIGHT)
    )
}

/// The kernel's bridge.
pub struct Bridge;

impl Bridge {
    fn start(cpu: usize, steering: Steering) -> Result<Bridge, String> {
        let run = |words: &str| netns::run(FORWARDER_NAMESPACE, words);
        let bridge = Bridge;
        run(&format!("ip link add {BRIDGE} type bridge mcast_snooping 0 stp_state 0 forward_delay 0"))?;
        for port in [LEFT, RIGHT] {
            run(&format!("ip link set {port} master {BRIDGE}"))?;
            if steering == Steering::On {
                let steer = format!("echo {} > /sys/class/net/{port}/queues/rx-0/rps_cpus", mask(cpu));
                netns::sh(FORWARDER_NAMESPACE, &steer)?;
            }
        }
        run(&format!("ip link set {BRIDGE} up"))?;
        Ok(bridge)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = netns::run(FORWARDER_NAMESPACE, &format!("ip link delete {BRIDGE}"));
    }
}

/// The set of one processor, as the kernel reads it: words of 32 bits, the highest first.
fn mask(cpu: usize) -> String {
    let lower_words = ",00000000".repeat(cpu / 32);
    format!("{:x}{lower_words}", 1u32 << (cpu % 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_one_processor() {
        assert_eq!((mask(0), mask(5), mask(33)), ("1".to_owned(), "20".to_owned(), "2,00000000".to_owned()));
    }

    #[test]
    fn the_network_forwards_in_both_directions() {
        let network = network(Port::Packet);
        assert_eq!(network.matches("app = \"raw-socket\"").count(), 2);
        assert!(network.contains("\"left.output -> right.input\", \"right.output -> left.input\""), "{network}");
        assert!(network.contains("[apps.right]\napp = \"raw-socket\"\ninterface = \"right\"\n"), "{network}");
    }
}
