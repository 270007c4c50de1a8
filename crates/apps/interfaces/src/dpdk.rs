//! `dpdk`: a network card or a virtual device with a driver of DPDK.

use std::sync::Arc;

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError, SystemAccess};
use bellows_dpdk::{DpdkConfig, DpdkQueue, DpdkSource, MissingLibrary, find_library};
use bellows_netif::status::PortStatus;
use bellows_netif::{Keeper, Start, Started};
use bellows_sys::capability::{Set, permitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::app::PortApp;
use crate::port::interface::{InterfaceKind, InterfacePort, InterfacePortStatus};
use crate::port::queues::Queues;
use crate::port::yes;

/// A network card or a virtual device with a driver of DPDK, which receives into packets and sends from them without a
/// copy.
///
/// `input` takes packets to send, `output` delivers packets that have arrived. A card on the PCI bus is named by its
/// address, such as `0000:3b:00.0`; the kernel must have given it to `vfio-pci` (`dpdk-devbind.py -b vfio-pci ADDRESS`), but
/// cards of NVIDIA keep their kernel driver. A virtual device is named by its driver and a number, with arguments behind
/// commas: `net_tap0,iface=tap0`, `net_af_packet0,iface=eth0`, `net_pcap0,rx_pcap=in.pcap,tx_pcap=out.pcap`, `net_ring0`,
/// `net_null0`, `net_memif0,role=client,socket=/run/vpp/memif.sock`. The device is made when the app starts, and removed
/// when it ends.
///
/// Bellows itself is built and runs without DPDK. This app opens `libbellows-dpdk.so`: the file that the variable
/// `BELLOWS_DPDK` names; else the one beside the program, in `../lib/bellows` from there, in `/usr/local/lib/bellows`, or in
/// `/usr/lib/bellows`. `cargo xtask dpdk` builds it against the installed DPDK. DPDK's environment starts with the first
/// such app, and stays as long as the process, also across reloads. Its own structures take 128 MiB of huge pages if as
/// many are free (`vm.nr_hugepages`), else plain pages.
///
/// Frames longer than 2,048 bytes are copied once, in both directions; those in other buffers than Bellows' too. These
/// count as `copied`. Offloads of other apps are finished before packets are sent.
///
/// The engine asks the device in every breath and never sleeps, so the worker's processor is always busy.
///
/// A card takes the limit of locked memory off (`ulimit -l unlimited`), and an IOMMU. `net_tap` takes `CAP_NET_ADMIN`,
/// `net_af_packet` and cards of NVIDIA `CAP_NET_RAW`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The device: an address on the PCI bus, or a driver's name with a number; arguments of the driver follow behind
    /// commas.
    pub device: String,

    /// Number of queues, from 1 to 32. The device distributes arriving packets by flow, if it can. If several apps share
    /// the device, each with a worker of its own, the list of this app's queues, such as `[0, 1]`.
    #[serde(default)]
    pub queues: Queues,

    /// Number of the device's queues. Only needed, and then by all apps that share it, if `queues` is a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32), extend("x-unit" = "queues"))]
    pub device_queues: Option<u16>,

    /// Number of frames that may wait in each direction of each queue, as far as the device allows.
    #[serde(default = "usual_descriptors")]
    #[schemars(range(min = 32, max = 16384), extend("x-unit" = "packets"))]
    pub descriptors: u16,

    /// The MTU, without the Ethernet header. By default the device's own. Longer packets are dropped as `too_long`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 68, max = 9702), extend("x-unit" = "bytes"))]
    pub mtu: Option<u16>,

    /// Whether the device receives frames for other hosts, too.
    #[serde(default = "yes")]
    pub promiscuous: bool,
}

fn usual_descriptors() -> u16 {
    1_024
}

/// A device of DPDK.
pub struct DpdkKind;

/// A port at a device of DPDK.
pub type Dpdk = InterfacePort<DpdkKind>;

impl InterfaceKind for DpdkKind {
    type Config = DpdkConfig;
    type Queue = DpdkQueue;
    const NAME: &'static str = "dpdk";

    fn place(config: &DpdkConfig) -> String {
        config.name().to_owned()
    }

    fn may_be_missing(_: &DpdkConfig) -> bool {
        false
    }

    fn excludes(config: &DpdkConfig, other: &DpdkConfig) -> bool {
        config.name() == other.name()
    }

    fn start(config: DpdkConfig, start: Start, status: Arc<PortStatus>) -> Started<DpdkQueue> {
        Keeper::start(DpdkKind::NAME, DpdkSource::new(config), start, status)
    }
}

/// The device's name, without its arguments.
fn name(device: &str) -> &str {
    device.split(',').next().unwrap_or_default()
}

impl Configure for Dpdk {
    const NAME: &'static str = DpdkKind::NAME;
    const INTERFACE: bool = true;
    const SYSTEM: SystemAccess = SystemAccess {
        families: &["AF_INET", "AF_NETLINK", "AF_PACKET"],
        calls: &["mbind", "set_mempolicy", "get_mempolicy"],
        devices: &["/dev/vfio/vfio", "/dev/net/tun"],
        locks: true,
    };
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<InterfacePortStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured("it needs a device of DPDK")
    }

    fn capabilities(config: &Config) -> Set {
        match name(&config.device) {
            device if device.starts_with("net_tap") => Set::NET_ADMIN,
            device if device.starts_with("net_af_packet") => Set::NET_RAW,
            device if device.starts_with("net_") => Set::EMPTY,
            // Not every card takes them.
            _ => (Set::NET_RAW | Set::IPC_LOCK) & permitted(),
        }
    }

    fn resources(config: &Config, _context: &Context) -> Vec<Resource> {
        let device = Resource::interface("device", DpdkKind::NAME, None, name(&config.device));
        vec![config.queues.share(device, config, |key| key != "queues")]
    }

    fn configure(config: Config, context: &Context) -> Result<Dpdk, SettingError> {
        let device = &config.device;
        if name(device).is_empty() || device.contains(['\0', '\n']) || name(device).contains(char::is_whitespace) {
            let help = "give an address such as 0000:3b:00.0, or a driver such as net_ring0";
            return Err(SettingError::at("device", format!("`{device}` cannot be a device of DPDK"), help));
        }
        if !(32..=16_384).contains(&config.descriptors) {
            let message = format!("a queue cannot have {} descriptors", config.descriptors);
            return Err(SettingError::at("descriptors", message, "give a number from 32 to 16384"));
        }
        if let Some(mtu) = config.mtu.filter(|mtu| !(68..=9_702).contains(mtu)) {
            let message = format!("{mtu} bytes is out of range for an MTU");
            return Err(SettingError::at("mtu", message, "give a number from 68 to 9702"));
        }
        let queues = config.queues.check("queue", "queues")?;
        let highest = queues.numbers().last().copied().unwrap_or(0);
        match config.device_queues {
            None if queues.is_part() => {
                let message = "the number of the device's queues is missing";
                let help = "give it in all apps that share the device: one starts it with the queues of all";
                return Err(SettingError::at("device_queues", message.to_owned(), help));
            }
            Some(count) if !queues.is_part() || count <= highest || count > 32 => {
                let message = format!("{count} queues of the device do not fit `queues`");
                let help = "give a number above all in the list, at most 32; without a list, leave the key out";
                return Err(SettingError::at("device_queues", message, help));
            }
            _ => {}
        }
        if let Err(missing) = find_library() {
            return Err(SettingError::at("device", missing.to_string(), MissingLibrary::REMEDY));
        }
        let dpdk = DpdkConfig {
            device: config.device,
            queues,
            device_queues: config.device_queues,
            descriptors: config.descriptors,
            mtu: config.mtu,
            promiscuous: config.promiscuous,
        };
        Ok(PortApp::new(&context.app, dpdk))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn configure(mut keys: Value) -> Result<(), SettingError> {
        if keys.get("device").is_none() {
            keys["device"] = json!("net_ring0");
        }
        Dpdk::configure(serde_json::from_value(keys).unwrap(), &Context::default()).map(drop)
    }

    #[test]
    fn impossible_settings_are_refused_by_key() {
        for (keys, key, said) in [
            (json!({ "device": "" }), "device", "``"),
            (json!({ "device": "net ring0" }), "device", "net ring0"),
            (json!({ "descriptors": 8 }), "descriptors", "8 descriptors"),
            (json!({ "mtu": 60 }), "mtu", "60 bytes"),
            (json!({ "queues": 33 }), "queues", "from 1 to 32"),
            (json!({ "queues": [0] }), "device_queues", "missing"),
            (json!({ "queues": [0, 3], "device_queues": 3 }), "device_queues", "do not fit"),
            (json!({ "queues": 2, "device_queues": 2 }), "device_queues", "do not fit"),
        ] {
            let error = configure(keys.clone()).unwrap_err();
            assert_eq!(error.key, Some(key), "{keys}");
            assert!(format!("{error:?}").contains(said), "{keys}: {error:?}");
        }
    }

    #[test]
    fn possible_settings_need_the_library_alone() {
        for keys in [json!({}), json!({ "queues": [1], "device_queues": 2, "mtu": 9_000 })] {
            if let Err(error) = configure(keys) {
                assert!(error.key == Some("device") && error.message.contains("libbellows-dpdk.so"), "{error:?}");
                assert!(format!("{error:?}").contains("cargo xtask dpdk"), "{error:?}");
            }
        }
    }
}
