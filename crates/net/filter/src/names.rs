//! Names of hosts, services, protocols and networks in expressions.
#![forbid(unsafe_code)]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

/// Where names are looked up, once, when a filter is made.
pub trait Names {
    /// The addresses of a host, in the order in which they are tested.
    fn host(&self, name: &str) -> Vec<IpAddr>;

    /// The port of a service over TCP, or over UDP.
    fn port(&self, name: &str, transport: Transport) -> Option<u16>;

    /// The number of an IP protocol.
    fn protocol(&self, name: &str) -> Option<u8>;

    /// The number of an IPv4 network: its bytes as they are written, so 127 for `127`, and 0x7f000000 for `127.0.0.0`.
    fn network(&self, name: &str) -> Option<u32>;

    /// The address of an Ethernet host.
    fn ethernet(&self, name: &str) -> Option<[u8; 6]>;
}

/// A transport protocol with ports that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The names that the system knows: `/etc/services`, `/etc/protocols`, `/etc/networks`, `/etc/ethers`, and the resolver
/// for hosts. A name server that does not answer makes the look-up of a host wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemNames;

/// The fields of the first line of a file for which `find` returns a value.
fn find_line<T>(file: &str, find: impl Fn(&[&str]) -> Option<T>) -> Option<T> {
    let text = fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        find(&line.split_whitespace().collect::<Vec<_>>())
    })
}

/// The second field of a line whose first field, or one after the second, is the name.
fn value_of<'a>(name: &str, fields: &[&'a str]) -> Option<&'a str> {
    let (first, rest) = fields.split_first()?;
    let (value, aliases) = rest.split_first()?;
    (*first == name || aliases.contains(&name)).then_some(*value)
}

impl Names for SystemNames {
    fn host(&self, name: &str) -> Vec<IpAddr> {
        let addresses = (name, 0).to_socket_addrs();
        addresses.map(|addresses| addresses.map(|address| address.ip()).collect()).unwrap_or_default()
    }

    fn port(&self, name: &str, transport: Transport) -> Option<u16> {
        let transport = match transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        };
        find_line("/etc/services", |fields| {
            let (port, over) = value_of(name, fields)?.split_once('/')?;
            if over == transport { port.parse().ok() } else { None }
        })
    }

    fn protocol(&self, name: &str) -> Option<u8> {
        find_line("/etc/protocols", |fields| value_of(name, fields)?.parse().ok())
    }

    fn network(&self, name: &str) -> Option<u32> {
        find_line("/etc/networks", |fields| network_number(value_of(name, fields)?))
    }

    fn ethernet(&self, name: &str) -> Option<[u8; 6]> {
        find_line("/etc/ethers", |fields| match fields {
            [address, host, ..] if *host == name => ethernet_address(address),
            _ => None,
        })
    }
}

/// The number of a network from its dotted form.
fn network_number(text: &str) -> Option<u32> {
    let mut number = 0u32;
    let mut bytes = 0;
    for part in text.split('.') {
        bytes += 1;
        if bytes > 4 {
            return None;
        }
        number = number << 8 | u32::from(part.parse::<u8>().ok()?);
    }
    Some(number)
}

/// An Ethernet address: six pairs of digits, single digits allowed, with separators or without.
pub(crate) fn ethernet_address(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut digits = text.chars().peekable();
    for byte in &mut address {
        if digits.peek().is_some_and(|separator| matches!(separator, ':' | '.' | '-')) {
            digits.next();
        }
        let high = digits.next()?.to_digit(16)?;
        let low = digits.peek().and_then(|digit| digit.to_digit(16));
        *byte = match low {
            Some(low) => {
                digits.next();
                (high << 4 | low) as u8
            }
            None => high as u8,
        };
    }
    digits.next().is_none().then_some(address)
}

/// The parts of an IPv4 address or its beginning: its number, shifted to the right, and its length in bits.
pub(crate) fn ipv4_prefix(text: &str) -> Option<(u32, u32)> {
    let mut number = 0u32;
    let mut bits = 0;
    for part in text.split('.') {
        let digits = part.bytes().all(|digit| digit.is_ascii_digit());
        // Any number of leading zeros.
        let part = part.trim_start_matches('0');
        let byte = if part.is_empty() { 0 } else { part.parse::<u8>().ok()? };
        if !digits || bits == 32 {
            return None;
        }
        number = number << 8 | u32::from(byte);
        bits += 8;
    }
    Some((number, bits))
}

/// Fixed names, for tests and examples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedNames {
    /// Hosts, with their addresses.
    pub hosts: Vec<(String, IpAddr)>,
    /// Services, with their ports.
    pub ports: Vec<(String, Transport, u16)>,
    /// IP protocols, with their numbers.
    pub protocols: Vec<(String, u8)>,
    /// Networks, with their addresses.
    pub networks: Vec<(String, Ipv4Addr)>,
    /// Ethernet hosts, with their addresses.
    pub ethernet: Vec<(String, [u8; 6])>,
}

impl Names for FixedNames {
    fn host(&self, name: &str) -> Vec<IpAddr> {
        self.hosts.iter().filter(|(host, _)| host == name).map(|&(_, address)| address).collect()
    }

    fn port(&self, name: &str, transport: Transport) -> Option<u16> {
        let is_it = |(service, over, _): &&(String, Transport, u16)| service == name && *over == transport;
        self.ports.iter().find(is_it).map(|&(_, _, port)| port)
    }

    fn protocol(&self, name: &str) -> Option<u8> {
        self.protocols.iter().find(|(protocol, _)| protocol == name).map(|&(_, number)| number)
    }

    fn network(&self, name: &str) -> Option<u32> {
        let (_, address) = self.networks.iter().find(|(network, _)| network == name)?;
        network_number(&address.to_string())
    }

    fn ethernet(&self, name: &str) -> Option<[u8; 6]> {
        self.ethernet.iter().find(|(host, _)| host == name).map(|&(_, address)| address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_some_names() {
        assert_eq!(SystemNames.port("domain", Transport::Udp), Some(53));
        assert_eq!(SystemNames.port("no-such-service", Transport::Tcp), None);
        assert_eq!(SystemNames.protocol("tcp"), Some(6));
        assert_eq!(SystemNames.protocol("TCP"), Some(6));
        assert!(SystemNames.host("localhost").iter().all(IpAddr::is_loopback));
        assert_eq!(SystemNames.ethernet("no-such-host"), None);
    }

    #[test]
    fn addresses_are_read_in_all_spellings() {
        let address = Some([0, 0x1b, 0x21, 0xa, 0xb, 0xc]);
        for text in ["00:1b:21:0a:0b:0c", "0:1b:21:a:b:c", "00-1b-21-0a-0b-0c", "001b.210a.0b0c", "001b210a0b0c"] {
            assert_eq!(ethernet_address(text), address, "{text}");
        }
        assert_eq!(ethernet_address("00:1b"), None);
        assert_eq!(ethernet_address("00:1b:21:0a:0b:0c:1"), None);
        assert_eq!(ipv4_prefix("10.1"), Some((0xa01, 16)));
        assert_eq!(ipv4_prefix("010.0.0.255"), Some((0xa0000ff, 32)));
        for text in ["10.256", "10.0x1", "1.2.3.4.5"] {
            assert_eq!(ipv4_prefix(text), None, "{text}");
        }
        assert_eq!(network_number("127.0.0.0"), Some(0x7f00_0000));
        assert_eq!(network_number("10.1"), Some(0xa01));
    }
}
