//! Names of hosts, networks, ports and protocols, which are looked up.

use std::collections::HashMap;
use std::net::IpAddr;

use super::addresses::left_aligned;
use super::fragment::Fragment;
use super::numbers::{ethertype, ip_protocol, osi, sap};
use super::ports::Ports;
use super::{Generator, Made};
use crate::names::Transport;
use crate::syntax::{AddressKind, Direction, Protocol, Qualifiers};

/// Names that have been looked up, since one expression can have the same name many times.
#[derive(Default)]
pub(super) struct Lookups {
    pub(super) hosts: HashMap<String, Vec<IpAddr>>,
    pub(super) ports: HashMap<(String, Transport), Option<u16>>,
    pub(super) protocols: HashMap<String, Option<u8>>,
    pub(super) networks: HashMap<String, Option<u32>>,
    pub(super) ethernet: HashMap<String, Option<[u8; 6]>>,
}

impl Generator<'_> {
    pub(super) fn name(&mut self, name: &str, qualifiers: &Qualifiers) -> Made<Fragment> {
        let Qualifiers { protocol, direction, kind } = *qualifiers;
        match kind {
            AddressKind::Net => {
                let names = self.options.names;
                let found = *self.lookups.networks.entry(name.to_owned()).or_insert_with(|| names.network(name));
                match found {
                    None | Some(0) => {
                        self.mistake(format!("there is no network `{name}`"), "networks have names in /etc/networks")
                    }
                    Some(number) => {
                        let (address, mask) = left_aligned(number);
                        self.ipv4(address, mask, protocol, direction, "net")
                    }
                }
            }
            AddressKind::Default | AddressKind::Host => match protocol {
                Some(Protocol::Link) => {
                    self.require_ethernet("hosts with Ethernet addresses")?;
                    let names = self.options.names;
                    let found = *self.lookups.ethernet.entry(name.to_owned()).or_insert_with(|| names.ethernet(name));
                    match found {
                        Some(address) => self.ethernet_host(address, direction),
                        None => self.mistake(
                            format!("there is no Ethernet host `{name}`"),
                            "Ethernet hosts have names in /etc/ethers",
                        ),
                    }
                }
                Some(Protocol::Decnet) => {
                    self.mistake("DECnet hosts have no names here", "write an area and a node: `decnet host 1.23`")
                }
                _ => self.host_name(name, protocol, direction),
            },
            AddressKind::Port => {
                let given = self.port_protocol(protocol)?;
                let (port, found) = self.port_name(name)?;
                let protocol = self.agreed(given, found, name)?;
                self.ports(Ports::One(port), protocol, direction)
            }
            AddressKind::PortRange => {
                let given = self.port_protocol(protocol)?;
                let (first, last, found) = self.port_range(name)?;
                let protocol = self.agreed(given, found, name)?;
                self.ports(Ports::Range(first, last), protocol, direction)
            }
            AddressKind::Gateway => self.gateway(),
            AddressKind::Proto => {
                let number = self.protocol_name(name, protocol)?;
                self.protocol_in(number, protocol)
            }
            AddressKind::ProtoChain => {
                let number = self.protocol_name(name, protocol)?;
                self.protocol_chain(number, protocol)
            }
        }
    }

    fn host_name(&mut self, name: &str, protocol: Option<Protocol>, direction: Direction) -> Made<Fragment> {
        let names = self.options.names;
        let addresses = self.lookups.hosts.entry(name.to_owned()).or_insert_with(|| names.host(name)).clone();
        if addresses.is_empty() {
            return self
                .mistake(format!("there is no host `{name}`"), "its name cannot be resolved; write its address");
        }
        // Without a type field, there is no ARP to look into.
        let is_plain = protocol.is_none() && self.layout.link_type.is_none();
        let mut all: Option<Fragment> = None;
        for address in addresses {
            let one = match address {
                IpAddr::V4(_) if protocol == Some(Protocol::Ip6) => continue,
                IpAddr::V6(_) if protocol == Some(Protocol::Ip) => continue,
                IpAddr::V4(address) => {
                    let protocol = if is_plain { Some(Protocol::Ip) } else { protocol };
                    self.ipv4(address.to_bits(), u32::MAX, protocol, direction, "host")?
                }
                IpAddr::V6(address) => {
                    let protocol = if is_plain { Some(Protocol::Ip6) } else { protocol };
                    self.ipv6(address, u128::MAX, protocol, direction, "host")?
                }
            };
            all = Some(match all {
                Some(all) => self.or(all, one),
                None => one,
            });
        }
        match all {
            Some(all) => Ok(all),
            None => self.mistake(
                format!("`{name}` has no address of this family"),
                "leave out `ip` or `ip6`, or write an address",
            ),
        }
    }

    /// The port of a name, and its IP protocol unless it is that of several.
    fn port_name(&mut self, name: &str) -> Made<(u32, Option<u32>)> {
        if let Ok(port) = name.parse::<u32>() {
            return Ok((port, None));
        }
        let names = self.options.names;
        let mut find = |transport| {
            let lookup = self.lookups.ports.entry((name.to_owned(), transport));
            *lookup.or_insert_with(|| names.port(name, transport))
        };
        match (find(Transport::Tcp), find(Transport::Udp)) {
            (Some(tcp), Some(udp)) if tcp == udp => Ok((tcp.into(), None)),
            (Some(tcp), _) => Ok((tcp.into(), Some(ip_protocol::TCP))),
            (None, Some(udp)) => Ok((udp.into(), Some(ip_protocol::UDP))),
            (None, None) => {
                self.mistake(format!("there is no service `{name}`"), "services have names in /etc/services")
            }
        }
    }

    fn port_range(&mut self, text: &str) -> Made<(u32, u32, Option<u32>)> {
        let Some((first, last)) = text.split_once('-') else {
            return self.mistake(format!("`{text}` is not a range of ports"), "such as `portrange 6000-6100`");
        };
        let leading = |text: &str| {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            text[..digits].parse::<u32>().ok()
        };
        // As in libpcap, what follows the second number does not count.
        if let (Ok(first), Some(last)) = (first.parse::<u32>(), leading(last)) {
            return Ok((first, last, None));
        }
        let (first, of_first) = self.port_name(first)?;
        let (last, of_last) = self.port_name(last)?;
        Ok((first, last, if of_first == of_last { of_first } else { None }))
    }

    /// The IP protocol of ports, from the qualifiers and from their names.
    fn agreed(&self, given: Option<u32>, found: Option<u32>, name: &str) -> Made<Option<u32>> {
        match (given, found) {
            (Some(given), Some(found)) if given != found => {
                let protocol = if found == ip_protocol::TCP { "tcp" } else { "udp" };
                self.mistake(
                    format!("`{name}` is a port of {protocol}"),
                    format!("write `{protocol} port {name}`, or its number"),
                )
            }
            (Some(given), _) => Ok(Some(given)),
            (None, found) => Ok(found),
        }
    }

    fn protocol_name(&mut self, name: &str, outer: Option<Protocol>) -> Made<u32> {
        let number = match outer {
            None | Some(Protocol::Ip | Protocol::Ip6) => {
                let names = self.options.names;
                let lookup = self.lookups.protocols.entry(name.to_owned());
                let found = *lookup.or_insert_with(|| names.protocol(name));
                found.map(u32::from)
            }
            Some(Protocol::Link) => match name {
                "aarp" => Some(ethertype::AARP),
                "arp" => Some(ethertype::ARP),
                "atalk" => Some(ethertype::ATALK),
                "decnet" => Some(ethertype::DECNET),
                "ip" => Some(ethertype::IP),
                "ip6" => Some(ethertype::IP6),
                "lat" => Some(ethertype::LAT),
                "loopback" => Some(ethertype::LOOPBACK),
                "mopdl" => Some(ethertype::MOPDL),
                "moprc" => Some(ethertype::MOPRC),
                "rarp" => Some(ethertype::RARP),
                "sca" => Some(ethertype::SCA),
                "iso" => Some(sap::OSI),
                "stp" => Some(sap::STP),
                "ipx" => Some(sap::IPX),
                "netbeui" => Some(sap::NETBEUI),
                _ => None,
            },
            Some(Protocol::Iso) => match name {
                "esis" => Some(osi::ESIS),
                "isis" => Some(osi::ISIS),
                "clnp" => Some(osi::CLNP),
                _ => None,
            },
            Some(_) => None,
        };
        match number {
            Some(number) => Ok(number),
            None => self.mistake(
                format!("there is no protocol `{name}` here"),
                "IP protocols have names in /etc/protocols; a number says the same",
            ),
        }
    }
}
