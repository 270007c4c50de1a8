//! The network namespaces and the pairs of interfaces between them.

use std::net::Ipv4Addr;
use std::process::Command;

use bellows_testkit::{netns, programs};

use super::Case;

/// The namespace of the source, of the client of TCP.
pub const SOURCE_NAMESPACE: &str = "generator";
/// The namespace of the forwarder.
pub const FORWARDER_NAMESPACE: &str = "forwarder";
/// The namespace of this process: the sink, and the server of TCP.
const SINK_NAMESPACE: &str = "receiver";

/// The far end of `left`, in its own namespace.
pub const SOURCE: &str = "source";
/// The far end of `right`, in the namespace of this process.
pub const SINK: &str = "sink";
/// The interfaces of the forwarder.
pub const LEFT: &str = "left";
pub const RIGHT: &str = "right";

/// All interfaces, with their namespaces.
const ENDS: [(&str, &str); 4] =
    [(SOURCE_NAMESPACE, SOURCE), (FORWARDER_NAMESPACE, LEFT), (FORWARDER_NAMESPACE, RIGHT), (SINK_NAMESPACE, SINK)];

/// The address of `source`, and that of `sink` for TCP.
const SOURCE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const SINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The address that the generator sends to. Nothing has it, nor its MAC address, so the kernel drops the frames when it
/// has read the Ethernet header.
pub const FRAME_SINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// Makes two namespaces beside the process's own, and names all three.
pub fn make_namespaces() -> Result<(), String> {
    netns::hide_names()?;
    let own = std::process::id().to_string();
    for words in
        [&["add", SOURCE_NAMESPACE] as &[&str], &["add", FORWARDER_NAMESPACE], &["attach", SINK_NAMESPACE, &own]]
    {
        programs::run(Command::new("ip").arg("netns").args(words))?;
    }
    // The kernel's own packets would be counted.
    [SOURCE_NAMESPACE, FORWARDER_NAMESPACE, SINK_NAMESPACE].into_iter().try_for_each(netns::disable_ipv6)
}

/// Runs a command line in a namespace.
fn run(namespace: &str, words: &str) -> Result<(), String> {
    netns::run(namespace, words).map(drop)
}

/// The two pairs of interfaces. They are removed when the value is dropped.
pub struct Lab;

impl Lab {
    pub const SOURCE_MAC: [u8; 6] = [0, 0, 0x5e, 0, 0x53, 1];
    pub const FRAME_SINK_MAC: [u8; 6] = [0, 0, 0x5e, 0, 0x53, 3];

    /// Makes the interfaces for a case.
    pub fn new(case: Case) -> Result<Lab, String> {
        // AF_XDP on veth requires as many receive queues as the peer has for sending.
        const QUEUES: &str = "numtxqueues 1 numrxqueues 1";
        let source_mac = mac(Lab::SOURCE_MAC);
        let lab = Lab;
        let source = format!("name {SOURCE} {QUEUES} address {source_mac} netns {SOURCE_NAMESPACE}");
        run(FORWARDER_NAMESPACE, &format!("ip link add {LEFT} {QUEUES} type veth peer {source}"))?;
        let right = format!("name {RIGHT} {QUEUES} netns {FORWARDER_NAMESPACE}");
        run(SINK_NAMESPACE, &format!("ip link add {SINK} {QUEUES} type veth peer {right}"))?;
        if case != Case::TcpOffloads {
            ENDS.into_iter().try_for_each(|(namespace, name)| netns::disable_offloads(namespace, name))?;
        }
        if !case.is_tcp() {
            // Makes it poll, as an XDP program does: otherwise it takes no frame of the generator.
            run(FORWARDER_NAMESPACE, &format!("ethtool -K {LEFT} gro on"))?;
        }
        for (namespace, name) in ENDS {
            run(namespace, &format!("ip link set {name} up"))?;
        }
        lab.give_addresses(case)?;
        Ok(lab)
    }

    fn give_addresses(&self, case: Case) -> Result<(), String> {
        if case == Case::Flood {
            return Ok(());
        }
        run(SOURCE_NAMESPACE, &format!("ip address add {SOURCE_ADDRESS}/24 dev {SOURCE}"))?;
        if case.is_tcp() {
            return run(SINK_NAMESPACE, &format!("ip address add {SINK_ADDRESS}/24 dev {SINK}"));
        }
        let sink_mac = mac(Lab::FRAME_SINK_MAC);
        run(SOURCE_NAMESPACE, &format!("ip neighbour add {FRAME_SINK_ADDRESS} lladdr {sink_mac} dev {SOURCE}"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Either end takes the other along.
        for (namespace, name) in [(FORWARDER_NAMESPACE, LEFT), (SINK_NAMESPACE, SINK)] {
            let _ = run(namespace, &format!("ip link delete {name}"));
        }
    }
}

/// A MAC address as `ip` takes it.
fn mac(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_for_documentation() {
        for octets in [Lab::SOURCE_MAC, Lab::FRAME_SINK_MAC] {
            assert!(mac(octets).starts_with("00:00:5e:00:53:"), "{}", mac(octets));
        }
        for address in [SOURCE_ADDRESS, SINK_ADDRESS, FRAME_SINK_ADDRESS] {
            assert!(address.is_documentation());
        }
    }
}
