//! `raw-socket`: an interface of the kernel through packet sockets, beside the host's network stack.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError, SystemAccess};
use bellows_netdev::packet_socket::{FanoutMode, has_usual_buffers};
use bellows_netif::arp_guard::find_conflicts;
use bellows_netif::raw::{RawConfig, RawQueue};
use bellows_netif::status::PortStatus;
use bellows_netif::{InterfaceName, Start, Started};
use bellows_sys::capability::{Set, permitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::app::PortApp;
use crate::port::interface::{InterfaceKind, InterfacePort, InterfacePortStatus, check_interface, usual_ring_size};
use crate::port::queues::Queues;
use crate::port::yes;

/// A network interface through packet sockets (`AF_PACKET`): works with every driver, and passes offloads on.
///
/// `input` takes packets to send, `output` delivers packets that have arrived. Both go through rings in memory, without a
/// system call for each. The ring for sending has at least 256 slots, which frames keep until a queueing discipline has
/// passed them on. Frames longer than the MTU are sent by system calls, up to 64 with each. Frames that this host sends
/// through the interface are not delivered.
///
/// The host's own network stack still receives each frame. If it has addresses on the interface it answers, too; a host
/// that forwards packets may forward them a second time. To keep it quiet, remove the addresses (`ip address flush dev
/// NAME`), disable IPv6 (`sysctl net.ipv6.conf.NAME.disable_ipv6=1`), and leave forwarding off for the interface; or move
/// the interface into a network namespace of its own and name that in `namespace`. `af-xdp` takes frames away from the
/// host.
///
/// With `offloads`, packets keep the partial checksums and the segmentation that a sender on the same machine left to
/// the interface, and pass whole to the next port; ports without offloads finish them. A network of such ports forwards
/// TCP in packets of up to 64 KiB. Without `offloads` they are finished when they arrive. GSO packets of protocols other
/// than TCP cannot be passed on, and count as `rx_bad_header`: `ethtool -K NAME tx-udp-segmentation off` at the sender
/// avoids them. VLAN tags that the kernel strips are put back.
///
/// With several `queues`, the kernel distributes incoming frames according to `fanout`. All outgoing packets of a flow go
/// through one queue. Several apps, each with a worker of its own, may share an interface if each lists other queues:
/// `queues = [0]` and `queues = [1]`. Each frame then reaches one of them. The numbers only tell the queues apart.
///
/// Starting takes `CAP_NET_RAW`, and with `namespace` also `CAP_SYS_ADMIN`; the process keeps them to open the interface
/// again, and `CAP_NET_ADMIN`, if it has that, for large socket buffers. An interface that disappears is opened as soon as
/// one of its name is there; meanwhile packets are dropped as `no_interface`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The interface's name.
    pub interface: String,

    /// Number of queues, from 1 to 32. Several need the interface to be up. If several apps share the interface, the list
    /// of this app's queues, such as `[0, 1]`.
    #[serde(default)]
    pub queues: Queues,

    /// How the kernel distributes incoming frames over several queues, also over those of several apps: `hash`, each flow to one queue; `load-balance`, in
    /// turn; `cpu`, by the processor that received the frame; `queue`, by the interface's receive queue.
    #[serde(default)]
    pub fanout: FanoutChoice,

    /// Whether packets keep partial checksums and are segmented late.
    #[serde(default = "yes")]
    pub offloads: bool,

    /// Whether the interface receives frames for other hosts, too. The kernel ends this with the process.
    #[serde(default = "yes")]
    pub promiscuous: bool,

    /// Whether packets go through the interface's queueing discipline (`tc qdisc`). Without it, `tcpdump` on the same
    /// interface does not see them; this saves time only with interfaces that have a discipline.
    #[serde(default = "yes")]
    pub qdisc: bool,

    /// Number of frames that the kernel may hold for each queue; those beyond it count as `kernel_dropped`.
    #[serde(default = "usual_ring_size")]
    #[schemars(range(min = 16, max = 65536), extend("x-unit" = "packets"))]
    pub ring_size: u32,

    /// Time for which the kernel polls the driver for frames before the engine sleeps (`SO_BUSY_POLL`); takes
    /// `CAP_NET_ADMIN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "µs"))]
    pub busy_poll: Option<u32>,

    /// The network namespace of the interface: a name of `ip netns`, or a path such as `/proc/PID/ns/net`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PathBuf>,

    /// Whether to start although the interface does not exist yet, and to wait for it.
    #[serde(default)]
    pub wait: bool,
}

/// How the kernel distributes frames over queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum FanoutChoice {
    /// Each flow to one queue.
    #[default]
    Hash,
    /// In turn.
    LoadBalance,
    /// By the processor that received the frame.
    Cpu,
    /// By the interface's receive queue.
    Queue,
}

impl From<FanoutChoice> for FanoutMode {
    fn from(choice: FanoutChoice) -> FanoutMode {
        match choice {
            FanoutChoice::Hash => FanoutMode::Hash,
            FanoutChoice::LoadBalance => FanoutMode::LoadBalance,
            FanoutChoice::Cpu => FanoutMode::Processor,
            FanoutChoice::Queue => FanoutMode::Queue,
        }
    }
}

/// Packet sockets of an interface.
pub struct RawSocketKind;

/// An interface through packet sockets.
pub type RawSocket = InterfacePort<RawSocketKind>;

impl InterfaceKind for RawSocketKind {
    type Config = (RawConfig, bool);
    type Queue = RawQueue;
    const NAME: &'static str = "raw-socket";

    fn excludes((config, _): &Self::Config, (other, _): &Self::Config) -> bool {
        // Both could open it, but would deliver the same frames twice, or to the one that ends.
        config.interface == other.interface
    }

    fn place((config, _): &Self::Config) -> String {
        config.interface.name.clone()
    }

    fn may_be_missing((_, wait): &Self::Config) -> bool {
        *wait
    }

    fn start((config, _): Self::Config, start: Start, status: Arc<PortStatus>) -> Started<RawQueue> {
        config.start(RawSocketKind::NAME, start, status)
    }
}

impl Configure for RawSocket {
    const NAME: &'static str = RawSocketKind::NAME;
    const INTERFACE: bool = true;
    const SYSTEM: SystemAccess =
        SystemAccess { families: &["AF_INET", "AF_NETLINK", "AF_PACKET"], ..SystemAccess::NONE };
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<InterfacePortStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured("it needs a network interface; use bench/campaigns/interfaces.toml, not `bellows bench`")
    }

    fn capabilities(config: &Config) -> Set {
        // Raising `SO_BUSY_POLL` takes it. Buffers beyond the system's limits take it as well, but a port works without.
        let admin = match (config.busy_poll.is_some(), has_usual_buffers()) {
            (true, _) => Set::NET_ADMIN,
            (false, false) => Set::NET_ADMIN & permitted(),
            (false, true) => Set::EMPTY,
        };
        RawConfig::capabilities(config.namespace.is_some()) | admin
    }

    fn resources(config: &Config, _context: &Context) -> Vec<Resource> {
        let namespace = config.namespace.as_deref();
        let interface = Resource::interface("interface", RawSocketKind::NAME, namespace, &config.interface)
            .heard_by_kernel(find_conflicts);
        vec![config.queues.share(interface, config, |key| key == "fanout")]
    }

    fn configure(config: Config, context: &Context) -> Result<RawSocket, SettingError> {
        check_interface(&config.interface)?;
        let queues = config.queues.check("queue", "queues")?;
        let size = config.ring_size;
        if !(16..=65_536).contains(&size) {
            let message = format!("a ring cannot have {size} frames");
            return Err(SettingError::at("ring_size", message, "give a number from 16 to 65536"));
        }
        let raw = RawConfig {
            interface: InterfaceName { name: config.interface, namespace: config.namespace },
            queues,
            fanout: config.fanout.into(),
            offloads: config.offloads,
            promiscuous: config.promiscuous,
            qdisc: config.qdisc,
            ring_size: size as usize,
            busy_poll: config.busy_poll.map(|time| Duration::from_micros(time.into())),
        };
        Ok(PortApp::new(&context.app, (raw, config.wait)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn configure(mut keys: Value) -> Result<(), SettingError> {
        if keys.get("interface").is_none() {
            keys["interface"] = json!("eth0");
        }
        RawSocket::configure(serde_json::from_value(keys).unwrap(), &Context::default()).map(drop)
    }

    #[test]
    fn impossible_settings_are_refused_by_key() {
        assert_eq!(configure(json!({})), Ok(()));
        assert_eq!(configure(json!({ "queues": 4, "fanout": "load-balance", "busy_poll": 50 })), Ok(()));
        assert_eq!(configure(json!({ "queues": [3, 1] })), Ok(()));
        for (keys, key, said) in [
            (json!({ "ring_size": 15 }), "ring_size", "15 frames"),
            (json!({ "ring_size": 70000 }), "ring_size", "65536"),
            (json!({ "queues": 33 }), "queues", "from 1 to 32"),
            (json!({ "interface": "" }), "interface", "empty"),
            (json!({ "interface": "a/b" }), "interface", "a/b"),
        ] {
            let error = configure(keys.clone()).unwrap_err();
            assert_eq!(error.key, Some(key), "{keys}");
            assert!(format!("{error:?}").contains(said), "{keys}: {error:?}");
        }
    }
}
