//! `tap`: an interface of the host whose other side is the network of apps.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bellows_config::access::{FileGroup, User};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError, SystemAccess};
use bellows_netdev::tap::MAX_NAME;
use bellows_netif::status::PortStatus;
use bellows_netif::tap::{TapConfig, TapQueue};
use bellows_netif::{Start, Started};
use bellows_sys::capability::Set;
use bellows_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::app::PortApp;
use crate::port::interface::{InterfaceKind, InterfacePort, InterfacePortStatus, check_interface};
use crate::port::queues::Queues;
use crate::port::{read_mac, yes};

/// A TAP device: a network interface of the host, or of a container, whose cable ends in this network.
///
/// `output` delivers the packets that the host sends through the interface, `input` takes packets that the host is to
/// receive there. Each packet is one system call. The app creates the device, gives it addresses and sets it up; the
/// device is gone when the process ends, unless it is `persistent`. A device that exists is used and keeps its owner; it
/// gets its MTU, Ethernet address, IP addresses and state back when the network ends.
///
/// The interface may be moved to another network namespace while the network runs. If it is deleted, it is created
/// again. While it is down, packets to it are dropped as `no_interface`.
///
/// With `offloads`, packets keep the partial checksums and the segmentation that the host left to the interface, and
/// pass whole to the next port; ports without offloads finish them. Without `offloads` the host finishes them.
///
/// With several `queues`, the host distributes its packets by flow, and all packets of a flow to the host go through one
/// queue. A device that exists must have been created for several queues, too. Several apps, each with a worker of its
/// own, may share a device if each lists other queues (`queues = [0]` and `queues = [1]`) and all other keys are equal.
/// The numbers only tell the queues apart. The first app creates the device, and it is gone when the last one ends.
///
/// Creating a device and setting it up take `CAP_NET_ADMIN`; `namespace` takes `CAP_SYS_ADMIN`. The process keeps them to
/// create the device again. A device that `ip tuntap add dev NAME mode tap user USER` has created for the user takes
/// neither, if no setting is to be changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The device's name, of at most 15 bytes. By default the kernel chooses one: `tap0`, `tap1`, and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,

    /// Number of queues, from 1 to 32. If several apps share the device, the list of this app's queues, such as `[0, 1]`.
    #[serde(default)]
    pub queues: Queues,

    /// Whether packets keep partial checksums and are segmented late.
    #[serde(default = "yes")]
    pub offloads: bool,

    /// Whether a device that this app creates stays when the network ends, with its settings.
    #[serde(default)]
    pub persistent: bool,

    /// The user who may open a device that this app creates: name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<User>,

    /// The group that may open a device that this app creates: name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<FileGroup>,

    /// The host's IP addresses on the interface, each with the length of its prefix: `["192.0.2.1/24"]`.
    #[serde(default)]
    pub address: Vec<String>,

    /// The MTU of the interface. By default it stays as it is; a new device has 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 68, max = 65521), extend("x-unit" = "bytes"))]
    pub mtu: Option<u32>,

    /// The host's Ethernet address on the interface. By default it stays as it is; a new device has a random one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-type" = "Ethernet address"))]
    pub mac: Option<String>,

    /// Whether the host may configure itself by router advertisements (RFC 4861) that come through the interface. `false`
    /// sets `net.ipv6.conf.NAME.accept_ra` to 0; a device that exists gets its value back.
    #[serde(default = "yes")]
    pub accept_ra: bool,

    /// Whether to set the interface up.
    #[serde(default = "yes")]
    pub up: bool,

    /// The network namespace of the device: a name of `ip netns`, or a path such as `/proc/PID/ns/net`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PathBuf>,
}

/// TAP devices.
pub struct TapKind;

/// A TAP device.
pub type Tap = InterfacePort<TapKind>;

impl InterfaceKind for TapKind {
    type Config = TapConfig;
    type Queue = TapQueue;
    const NAME: &'static str = "tap";

    fn place(config: &TapConfig) -> String {
        config.name.clone().unwrap_or_else(|| "a new TAP device".to_owned())
    }

    fn may_be_missing(_: &TapConfig) -> bool {
        false
    }

    fn excludes(config: &TapConfig, other: &TapConfig) -> bool {
        config.name.is_some() && (&config.name, &config.namespace) == (&other.name, &other.namespace)
    }

    fn start(config: TapConfig, start: Start, status: Arc<PortStatus>) -> Started<TapQueue> {
        config.start(TapKind::NAME, start, status)
    }
}

/// Reads an address with the length of its prefix.
fn read_address(text: &str) -> Result<(IpAddr, u8), SettingError> {
    let parts = text.split_once('/').and_then(|(address, prefix)| {
        let address: IpAddr = address.parse().ok()?;
        let prefix: u8 = prefix.parse().ok()?;
        (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
    });
    parts.ok_or_else(|| {
        let message = format!("`{text}` is not an address with the length of its prefix");
        SettingError::at("address", message, "write it like 192.0.2.1/24 or 2001:db8::1/64")
    })
}

impl Configure for Tap {
    const NAME: &'static str = TapKind::NAME;
    const INTERFACE: bool = true;
    const SYSTEM: SystemAccess =
        SystemAccess { families: &["AF_INET", "AF_NETLINK"], devices: &["/dev/net/tun"], ..SystemAccess::NONE };
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<InterfacePortStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured(
            "it makes an interface of the host; use bench/campaigns/interfaces.toml, not `bellows bench`",
        )
    }

    fn capabilities(config: &Config) -> Set {
        TapConfig::capabilities(config.namespace.is_some())
    }

    fn resources(config: &Config, _context: &Context) -> Vec<Resource> {
        let namespace = config.namespace.as_deref();
        let device = |name: &String| Resource::interface("interface", TapKind::NAME, namespace, name);
        let shared = |device| config.queues.share(device, config, |key| key != "queues");
        config.interface.iter().map(device).map(shared).collect()
    }

    fn configure(config: Config, context: &Context) -> Result<Tap, SettingError> {
        if let Some(name) = &config.interface {
            check_interface(name)?;
            if name.len() > MAX_NAME || name.contains('%') {
                let message = format!("`{name}` cannot be a device's name");
                let help = format!("give a name of at most {MAX_NAME} bytes without `%`");
                return Err(SettingError::at("interface", message, help));
            }
        }
        if let Some(mtu) = config.mtu.filter(|mtu| !(68..=65_521).contains(mtu)) {
            let message = format!("a TAP device cannot have an MTU of {mtu} bytes");
            return Err(SettingError::at("mtu", message, "give a number from 68 to 65521"));
        }
        let queues = config.queues.check("queue", "queues")?;
        if queues.is_part() && config.interface.is_none() {
            let message = "apps that share a device must name it";
            return Err(SettingError::at("queues", message, "set `interface`, or give a number of queues"));
        }
        Ok(PortApp::new(
            &context.app,
            TapConfig {
                queues,
                name: config.interface,
                namespace: config.namespace,
                offloads: config.offloads,
                persistent: config.persistent,
                owner: config.owner.map(User::id),
                group: config.group.map(FileGroup::id),
                addresses: config.address.iter().map(|text| read_address(text)).collect::<Result<_, _>>()?,
                mtu: config.mtu,
                mac: read_mac(config.mac.as_deref())?.map(MacAddr),
                accept_ra: config.accept_ra,
                up: config.up,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn configure(keys: Value) -> Result<(), SettingError> {
        Tap::configure(serde_json::from_value(keys).unwrap(), &Context::default()).map(drop)
    }

    #[test]
    fn impossible_settings_are_refused_by_key() {
        assert_eq!(configure(json!({})), Ok(()));
        let addresses = ["192.0.2.1/24", "2001:db8::1/64"];
        assert_eq!(configure(json!({ "interface": "tap7", "address": addresses, "owner": 1000, "mtu": 9000 })), Ok(()));
        for (keys, key, said) in [
            (json!({ "interface": "a-name-too-long-for-it" }), "interface", "15 bytes"),
            (json!({ "interface": "tap%d" }), "interface", "%"),
            (json!({ "queues": [0] }), "queues", "must name it"),
            (json!({ "mtu": 67 }), "mtu", "68"),
            (json!({ "mac": "01:00:00:00:00:01" }), "mac", "multicast"),
            (json!({ "address": ["192.0.2.1"] }), "address", "192.0.2.1/24"),
            (json!({ "address": ["192.0.2.1/33"] }), "address", "192.0.2.1/33"),
            (json!({ "address": ["2001:db8::1/129"] }), "address", "prefix"),
        ] {
            let error = configure(keys.clone()).unwrap_err();
            assert_eq!(error.key, Some(key), "{keys}");
            assert!(format!("{error:?}").contains(said), "{keys}: {error:?}");
        }
    }
}
