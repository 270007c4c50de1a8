//! The network namespaces and the pairs of interfaces between them.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use super::Case;
use crate::TaskError;
use crate::netlab::{NO_OFFLOADS, inside, no_offloads, run, sh};

/// The namespace of the source, of the client of TCP.
pub const SOURCE_NAMESPACE: &str = "generator";
/// The namespace of the forwarder.
pub const FORWARDER_NAMESPACE: &str = "forwarder";

/// The far end of `left`, in its own namespace.
pub const SOURCE: &str = "source";
/// The far end of `right`, in the namespace of this process.
pub const SINK: &str = "sink";
/// The interfaces of the forwarder.
pub const LEFT: &str = "left";
pub const RIGHT: &str = "right";

/// The address of `source`, and that of `sink` for TCP.
const SOURCE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const SINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The address that the generator sends to. Nothing has it, nor its MAC address, so the kernel drops the frames when it
/// has read the Ethernet header.
pub const FRAME_SINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// Makes the two namespaces beside the process's own.
pub fn make_namespaces() -> Result<(), TaskError> {
    // `ip netns` keeps names there; the mount is this process's own.
    let names = Path::new("/run/netns");
    fs::create_dir_all(names).map_err(|error| TaskError::failed(format!("cannot make {names:?}: {error}")))?;
    sh("mount -t tmpfs tmpfs /run/netns")?;
    // The kernel's own packets (neighbour discovery, reports of multicast groups) would be counted.
    const NO_IPV6: &str = "for scope in all default; do echo 1 > /proc/sys/net/ipv6/conf/$scope/disable_ipv6; done";
    run(Command::new("sh").args(["-c", NO_IPV6]))?;
    for namespace in [SOURCE_NAMESPACE, FORWARDER_NAMESPACE] {
        sh(&format!("ip netns add {namespace}"))?;
        inside(namespace, NO_IPV6)?;
    }
    Ok(())
}

/// The two pairs of interfaces. They are removed when the value is dropped.
pub struct Lab;

impl Lab {
    pub const SOURCE_MAC: [u8; 6] = [0, 0, 0x5e, 0, 0x53, 1];
    pub const FRAME_SINK_MAC: [u8; 6] = [0, 0, 0x5e, 0, 0x53, 3];

    /// Makes the interfaces for a case.
    pub fn new(case: Case) -> Result<Lab, TaskError> {
        // AF_XDP on veth requires as many receive queues as the peer has for sending.
        const QUEUES: &str = "numtxqueues 1 numrxqueues 1";
        let source_mac = mac(Lab::SOURCE_MAC);
        let lab = Lab;
        sh(&format!(
            "ip -n {FORWARDER_NAMESPACE} link add {LEFT} {QUEUES} type veth peer name {SOURCE} {QUEUES} \
             address {source_mac} netns {SOURCE_NAMESPACE}"
        ))?;
        sh(&format!("ip link add {SINK} {QUEUES} type veth peer name {RIGHT} {QUEUES} netns {FORWARDER_NAMESPACE}"))?;
        if case != Case::TcpOffloads {
            no_offloads(SOURCE_NAMESPACE, SOURCE)?;
            no_offloads(FORWARDER_NAMESPACE, LEFT)?;
            no_offloads(FORWARDER_NAMESPACE, RIGHT)?;
            run(Command::new("ethtool").args(["-K", SINK]).args(NO_OFFLOADS.split(' ')))?;
        }
        if !case.is_tcp() {
            // Makes it poll, as an XDP program does: otherwise it takes no frame of the generator.
            inside(FORWARDER_NAMESPACE, &format!("ethtool -K {LEFT} gro on"))?;
        }
        for (namespace, name) in [(SOURCE_NAMESPACE, SOURCE), (FORWARDER_NAMESPACE, LEFT), (FORWARDER_NAMESPACE, RIGHT)]
        {
            sh(&format!("ip -n {namespace} link set {name} up"))?;
        }
        sh(&format!("ip link set {SINK} up"))?;
        lab.give_addresses(case)?;
        Ok(lab)
    }

    fn give_addresses(&self, case: Case) -> Result<(), TaskError> {
        match case {
            Case::Flood => Ok(()),
            Case::Paced => {
                let sink_mac = mac(Lab::FRAME_SINK_MAC);
                sh(&format!("ip -n {SOURCE_NAMESPACE} address add {SOURCE_ADDRESS}/24 dev {SOURCE}"))?;
                sh(&format!(
                    "ip -n {SOURCE_NAMESPACE} neighbour add {FRAME_SINK_ADDRESS} lladdr {sink_mac} dev {SOURCE}"
                ))
            }
            Case::Tcp | Case::TcpOffloads => {
                sh(&format!("ip -n {SOURCE_NAMESPACE} address add {SOURCE_ADDRESS}/24 dev {SOURCE}"))?;
                sh(&format!("ip address add {SINK_ADDRESS}/24 dev {SINK}"))
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Either end takes the other along.
        let _ = sh(&format!("ip -n {FORWARDER_NAMESPACE} link del {LEFT}"));
        let _ = sh(&format!("ip link del {SINK}"));
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
