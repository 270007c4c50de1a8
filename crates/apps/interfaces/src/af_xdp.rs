//! `af-xdp`: an interface of the kernel, whose frames come and go without passing through its network stack.

use std::path::PathBuf;
use std::sync::Arc;

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError, SystemAccess};
use bellows_netif::arp_guard::find_conflicts;
use bellows_netif::status::PortStatus;
use bellows_netif::xdp::{
    CAPABILITIES, CopyMode, Filter, Match, TransmitChecksums, XdpConfig, XdpMode, XdpQueue, XdpSource,
};
use bellows_netif::{InterfaceName, Keeper, Start, Started};
use bellows_sys::capability::{Set, memlock_limit, permitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::app::PortApp;
use crate::port::interface::{InterfaceKind, InterfacePort, InterfacePortStatus, usual_ring_size};
use crate::port::{queues, yes};

/// A network interface through AF_XDP sockets: the kernel receives frames into the packet pool and sends them from
/// there.
///
/// `input` takes packets to send, `output` delivers packets that have arrived. An XDP program, which this app loads and
/// attaches, takes frames off the interface before the kernel's network stack sees them. `redirect` and `pass` choose
/// the frames, so that a machine can be administered through the same interface (`pass = ["tcp port 22", "arp"]`). The
/// program is gone when the process ends, however it ends. If the interface has a program already, the app names it
/// and does not start.
///
/// In `native` mode the driver runs the program, in `generic` mode the kernel's receive path does, for drivers without
/// XDP. Some drivers hand frames over without a copy; with others the kernel copies each frame once. Bellows itself
/// copies only frames longer than 2,048 bytes, which arrive in pieces (Linux 6.6; with older kernels they are dropped
/// and counted as `kernel_refused`).
///
/// The kernel locks the memory of the packet pool. If the limit of locked memory (`ulimit -l`) does not allow that,
/// frames are copied to and from memory of the socket's own, and counted as `copied`. `bellows show status` says which.
///
/// AF_XDP carries frames alone. GSO packets and partial checksums from other apps are finished before they are sent. A
/// sender on the same machine, such as the other end of a veth pair, must be told not to leave them to the interface:
/// `ethtool -K NAME tx off` there. GSO packets from it are lost; partial checksums are recognized by their value (see
/// `finish_checksums`).
///
/// Starting takes `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`, and the process keeps them to open the interface again. An
/// interface that disappears is opened as soon as one of its name is there; meanwhile packets are dropped as
/// `no_interface`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The interface's name.
    pub interface: String,

    /// The receive queues to take frames from: `"all"`, or a list of numbers. The kernel keeps frames of other queues,
    /// unless another app lists them: several apps, each with a worker of its own, may share an interface if they list
    /// different queues, and have the same `mode`, `redirect` and `pass`.
    #[serde(default)]
    pub queues: QueueChoice,

    /// Where the XDP program runs: `native`, `generic`, or `auto` for native if the driver can.
    #[serde(default)]
    pub mode: ModeChoice,

    /// Whether the driver hands frames over without a copy: `auto` if it can, `required`, or `off`.
    #[serde(default)]
    pub zero_copy: ZeroCopy,

    /// Poll the interface from the engine, at most this many frames at a time, in place of interrupts. The interface's
    /// `napi_defer_hard_irqs` and `gro_flush_timeout` must be set for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "packets"))]
    pub busy_poll: Option<u16>,

    /// The frames to take. Each entry is `all` or a match in the words of tcpdump: `arp`, `ip`, `ip6`, `icmp`, `icmp6`,
    /// `tcp`, `udp`, `sctp`, `port 53`, `tcp port 80`, `udp dst port 4789`, `port 1000-2000`, `ether proto 0x88cc`,
    /// `ether dst 02:00:00:00:00:01`, `ip proto 47`.
    #[serde(default = "all")]
    pub redirect: Vec<String>,

    /// The frames that the kernel keeps, of those that `redirect` names.
    #[serde(default)]
    pub pass: Vec<String>,

    /// Whether the interface receives frames for other hosts, too, as a bridge needs. The kernel ends this with the
    /// process.
    #[serde(default)]
    pub promiscuous: bool,

    /// Whether to finish checksums that a sender on the same machine has left to the interface. AF_XDP does not say
    /// which these are, so this is a heuristic: a TCP or UDP checksum that equals the sum of the pseudo-header is
    /// finished. A complete checksum with this value stays the same. Finished ones count as `checksums_finished`.
    #[serde(default = "yes")]
    pub finish_checksums: bool,

    /// Who finishes partial checksums of packets to send: `auto` for the device if it offers that, `software` for the
    /// kernel (to test the former; Linux 6.8), or `off` for Bellows.
    #[serde(default)]
    pub transmit_checksums: Checksums,

    /// Number of frames that may wait in each direction of each queue: a power of two from 64 to 32768.
    #[serde(default = "usual_ring_size")]
    #[schemars(range(min = 64, max = 32768), extend("x-unit" = "packets"))]
    pub ring_size: u32,

    /// Number of queues to give the interface while the network runs. By default it keeps those that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "queues"))]
    pub set_queues: Option<u32>,

    /// The network namespace of the interface: a name of `ip netns`, or a path such as `/proc/PID/ns/net`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PathBuf>,

    /// Whether to start although the interface does not exist yet, and to wait for it.
    #[serde(default)]
    pub wait: bool,
}

/// The queues of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum QueueChoice {
    /// All of them.
    Word(AllQueues),
    /// Those with these numbers.
    Numbers(Vec<u16>),
}

/// The word for all queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum AllQueues {
    /// All queues of the interface.
    #[default]
    All,
}

impl Default for QueueChoice {
    fn default() -> QueueChoice {
        QueueChoice::Word(AllQueues::All)
    }
}

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ModeChoice {
    /// In the driver if it can, else in the kernel.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's receive path.
    Generic,
}

/// Whether frames are copied by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ZeroCopy {
    /// Not if the driver can do without.
    #[default]
    Auto,
    /// Never.
    Required,
    /// Always.
    Off,
}

/// Who finishes checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Checksums {
    /// The device if it offers that, else Bellows.
    #[default]
    Auto,
    /// The kernel.
    Software,
    /// Bellows.
    Off,
}

fn all() -> Vec<String> {
    vec!["all".to_owned()]
}

/// AF_XDP sockets of an interface.
pub struct AfXdpKind;

/// An interface through AF_XDP.
pub type AfXdp = InterfacePort<AfXdpKind>;

impl InterfaceKind for AfXdpKind {
    type Config = (XdpConfig, bool);
    type Queue = XdpQueue;
    const NAME: &'static str = "af-xdp";

    fn place((config, _): &Self::Config) -> String {
        config.interface.name.clone()
    }

    fn may_be_missing((_, wait): &Self::Config) -> bool {
        *wait
    }

    fn excludes((config, _): &Self::Config, (other, _): &Self::Config) -> bool {
        config.interface == other.interface
    }

    fn start((config, _): Self::Config, start: Start, status: Arc<PortStatus>) -> Started<XdpQueue> {
        Keeper::start("af-xdp", XdpSource::new(config), start, status)
    }
}

/// Reads matches.
fn matches(key: &'static str, texts: &[String]) -> Result<Vec<Match>, SettingError> {
    let read = |text: &String| text.parse::<Match>().map_err(|error| SettingError::at(key, error.to_string(), ""));
    texts.iter().map(read).collect()
}

impl Configure for AfXdp {
    const NAME: &'static str = AfXdpKind::NAME;
    const INTERFACE: bool = true;
    const SYSTEM: SystemAccess =
        SystemAccess { families: &["AF_INET", "AF_NETLINK", "AF_XDP"], calls: &["bpf"], devices: &[], locks: true };
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<InterfacePortStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured("it needs a network interface; use bench/campaigns/interfaces.toml, not `bellows bench`")
    }

    fn capabilities(config: &Config) -> Set {
        let enters = if config.namespace.is_some() { Set::SYS_ADMIN } else { Set::EMPTY };
        // With it, the pool may be locked beyond the limit.
        let locks = if memlock_limit().is_some() { Set::IPC_LOCK & permitted() } else { Set::EMPTY };
        CAPABILITIES | enters | locks
    }

    fn resources(config: &Config, _context: &Context) -> Vec<Resource> {
        // They share the XDP program.
        let is_common = |key: &str| ["mode", "redirect", "pass"].contains(&key);
        let interface =
            Resource::interface("interface", AfXdpKind::NAME, config.namespace.as_deref(), &config.interface)
                .heard_by_kernel(find_conflicts);
        vec![match &config.queues {
            QueueChoice::Word(AllQueues::All) => interface,
            QueueChoice::Numbers(numbers) => queues::share(interface, numbers, config, is_common),
        }]
    }

    fn configure(config: Config, context: &Context) -> Result<AfXdp, SettingError> {
        let size = config.ring_size;
        if !(64..=32_768).contains(&size) || !size.is_power_of_two() {
            let message = format!("a ring cannot have {size} entries");
            return Err(SettingError::at("ring_size", message, "give a power of two from 64 to 32768"));
        }
        let queues = match config.queues {
            QueueChoice::Word(AllQueues::All) => None,
            QueueChoice::Numbers(numbers) if numbers.is_empty() => {
                return Err(SettingError::at("queues", "the list has no queue", "give `\"all\"` or numbers from 0"));
            }
            QueueChoice::Numbers(mut numbers) => {
                numbers.sort_unstable();
                numbers.dedup();
                Some(numbers.into_iter().map(u32::from).collect())
            }
        };
        if config.redirect.is_empty() {
            let help = "give `[\"all\"]`, or leave the key out";
            return Err(SettingError::at("redirect", "nothing is redirected", help));
        }
        let filter = Filter { redirect: matches("redirect", &config.redirect)?, pass: matches("pass", &config.pass)? };
        let xdp = XdpConfig {
            interface: InterfaceName { name: config.interface, namespace: config.namespace },
            queues,
            mode: match config.mode {
                ModeChoice::Auto => XdpMode::Auto,
                ModeChoice::Native => XdpMode::Native,
                ModeChoice::Generic => XdpMode::Generic,
            },
            copy: match config.zero_copy {
                ZeroCopy::Auto => CopyMode::Auto,
                ZeroCopy::Required => CopyMode::ZeroCopy,
                ZeroCopy::Off => CopyMode::Copy,
            },
            busy_poll: config.busy_poll,
            filter,
            finish_checksums: config.finish_checksums,
            transmit_checksums: match config.transmit_checksums {
                Checksums::Auto => TransmitChecksums::Device,
                Checksums::Software => TransmitChecksums::Software,
                Checksums::Off => TransmitChecksums::Off,
            },
            ring_size: size,
            promiscuous: config.promiscuous,
            set_queues: config.set_queues,
        };
        Ok(PortApp::new(&context.app, (xdp, config.wait)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn configure(mut keys: Value) -> Result<(), SettingError> {
        keys["interface"] = json!("eth0");
        AfXdp::configure(serde_json::from_value(keys).unwrap(), &Context::default()).map(drop)
    }

    #[test]
    fn impossible_settings_are_refused_by_key() {
        assert_eq!(configure(json!({})), Ok(()));
        assert_eq!(configure(json!({ "queues": [1, 0, 1], "pass": ["tcp port 22", "arp"] })), Ok(()));
        for (keys, key, said) in [
            (json!({ "ring_size": 1000 }), "ring_size", "power of two"),
            (json!({ "ring_size": 32 }), "ring_size", "32 entries"),
            (json!({ "queues": [] }), "queues", "no queue"),
            (json!({ "redirect": [] }), "redirect", "nothing"),
            (json!({ "redirect": ["tcp prot 80"] }), "redirect", "prot"),
            (json!({ "pass": ["port 70000"] }), "pass", "70000"),
        ] {
            let error = configure(keys.clone()).unwrap_err();
            assert_eq!(error.key, Some(key), "{keys}");
            assert!(format!("{error:?}").contains(said), "{keys}: {error:?}");
        }
    }
}
