//! Tests of addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::fragment::Fragment;
use super::layout::Base;
use super::numbers::ethertype;
use super::ports::Ports;
use super::{Generator, Made};
use crate::graph::Width;
use crate::names;
use crate::syntax::{AddressKind, Direction, Id, Protocol, Qualifiers};

impl Generator<'_> {
    /// One or both of source and destination.
    pub(super) fn directed(
        &mut self,
        direction: Direction,
        mut test: impl FnMut(&mut Self, bool) -> Made<Fragment>,
    ) -> Made<Fragment> {
        match direction {
            Direction::Source => test(self, true),
            Direction::Destination => test(self, false),
            Direction::Both | Direction::Any | Direction::Either => {
                let source = test(self, true)?;
                let destination = test(self, false)?;
                if direction == Direction::Both {
                    Ok(self.and(source, destination))
                } else {
                    Ok(self.or(source, destination))
                }
            }
        }
    }

    pub(super) fn ipv4(
        &mut self,
        address: u32,
        mask: u32,
        protocol: Option<Protocol>,
        direction: Direction,
        what: &str,
    ) -> Made<Fragment> {
        let (kind, source, destination) = match protocol {
            None => {
                let ip = self.ipv4(address, mask, Some(Protocol::Ip), direction, what)?;
                if self.layout.mpls_labels > 0 {
                    return Ok(ip);
                }
                let arp = self.ipv4(address, mask, Some(Protocol::Arp), direction, what)?;
                let both = self.or(ip, arp);
                let rarp = self.ipv4(address, mask, Some(Protocol::Rarp), direction, what)?;
                return Ok(self.or(both, rarp));
            }
            Some(Protocol::Ip) => (ethertype::IP, 12, 16),
            Some(Protocol::Arp) => (ethertype::ARP, 14, 24),
            Some(Protocol::Rarp) => (ethertype::RARP, 14, 24),
            Some(Protocol::Decnet) => return self.decnet(address, direction),
            Some(protocol) => {
                return self.mistake(
                    format!("`{protocol}` has no IPv4 {what}"),
                    format!("an IPv4 {what} is of `ip`, `arp` or `rarp`, or of any of them: `{what} …`"),
                );
            }
        };
        self.directed(direction, |this, is_source| {
            this.link_types_then(kind, |this| {
                let offset = if is_source { source } else { destination };
                this.masked(Base::Network, offset, Width::Word, address, mask)
            })
        })
    }

    pub(super) fn ipv6(
        &mut self,
        address: Ipv6Addr,
        mask: u128,
        protocol: Option<Protocol>,
        direction: Direction,
        what: &str,
    ) -> Made<Fragment> {
        if let Some(protocol) = protocol
            && protocol != Protocol::Ip6
        {
            return self.mistake(
                format!("`{protocol}` has no IPv6 {what}"),
                format!("an IPv6 {what} is of `ip6`: `ip6 {what} …`, or `{what} …`"),
            );
        }
        let word = |number: u128, index: u32| (number >> (96 - 32 * index)) as u32;
        self.directed(direction, |this, is_source| {
            let offset = if is_source { 8 } else { 24 };
            // The last word is compared last, but its test comes first into the graph.
            let mut words: Vec<Fragment> = (0..4)
                .rev()
                .map(|index| {
                    let (number, mask) = (word(address.to_bits(), index), word(mask, index));
                    this.masked(Base::Network, offset + 4 * index, Width::Word, number, mask)
                })
                .collect();
            let link = this.link_type(ethertype::IP6)?;
            words.push(link);
            words.reverse();
            match this.all(words) {
                Some(fragment) => Ok(fragment),
                None => Ok(this.constant(true)),
            }
        })
    }

    fn decnet(&mut self, address: u32, direction: Direction) -> Made<Fragment> {
        // Numbers are little-endian, and a byte of padding may come before the header.
        let swap = |number: u32| u32::from((number as u16).swap_bytes());
        let address = swap(address);
        self.directed(direction, |this, is_source| {
            let (short, long) = if is_source { (3, 15) } else { (1, 7) };
            let link = this.link_type(ethertype::DECNET)?;
            let padded = |this: &mut Self, flags: u32, offset: u32| {
                let header = this.masked(Base::Network, 2, Width::Half, swap(flags << 8 | 0x81), swap(0x07ff));
                let node = this.equal(Base::Network, 3 + offset, Width::Half, address);
                this.and(header, node)
            };
            let plain = |this: &mut Self, flags: u32, offset: u32| {
                let header = this.masked(Base::Network, 2, Width::Byte, flags, 0x07);
                let node = this.equal(Base::Network, 2 + offset, Width::Half, address);
                this.and(header, node)
            };
            let mut all = padded(this, 0x06, long);
            let one = plain(this, 0x06, long);
            all = this.or(one, all);
            let one = padded(this, 0x02, short);
            all = this.or(one, all);
            let one = plain(this, 0x02, short);
            all = this.or(one, all);
            Ok(this.and(link, all))
        })
    }

    pub(super) fn ethernet_host(&mut self, address: [u8; 6], direction: Direction) -> Made<Fragment> {
        let inner = self.has_inner_ethernet();
        let host = self.directed(direction, |this, is_source| {
            Ok(this.bytes(Base::LinkHeader, if is_source { 6 } else { 0 }, &address))
        })?;
        Ok(self.after(inner, host))
    }

    pub(super) fn address(&mut self, qualifiers: &Qualifiers, id: &Id) -> Made<Fragment> {
        match id {
            Id::Number(number) => self.number(*number, qualifiers),
            Id::Name(name) => self.name(name, qualifiers),
            Id::Ipv4(text) => self.ipv4_text(text, qualifiers),
            Id::Ipv4Prefix(text, length) => {
                if *length > 32 {
                    return self
                        .mistake(format!("a prefix of {length} bits is too long"), "an IPv4 address has 32 bits");
                }
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                self.network(text, mask, &format!("/{length}"), qualifiers)
            }
            Id::Ipv4Mask(text, mask) => {
                let (number, bits) = self.ipv4_number(mask)?;
                self.network(text, number << (32 - bits), &format!(" mask {mask}"), qualifiers)
            }
            Id::Ipv6(text, length) => self.ipv6_text(text, *length, qualifiers),
            Id::Mac(text) => {
                if qualifiers.protocol != Some(Protocol::Link)
                    || !matches!(qualifiers.kind, AddressKind::Default | AddressKind::Host)
                {
                    return self
                        .mistake(format!("`{text}` is an Ethernet address"), format!("write `ether host {text}`"));
                }
                self.require_ethernet("hosts with Ethernet addresses")?;
                match names::ethernet_address(text) {
                    Some(address) => self.ethernet_host(address, qualifiers.direction),
                    None => self
                        .mistake(format!("`{text}` is not an Ethernet address"), "it has six bytes: 00:1b:21:0a:0b:0c"),
                }
            }
        }
    }

    pub(super) fn require_ethernet(&self, what: &str) -> Made<()> {
        if self.layout.is_ethernet() {
            Ok(())
        } else {
            self.mistake(
                format!("there are no {what} in {}", self.link_name()),
                "this test is for link type Ethernet only",
            )
        }
    }

    fn ipv4_number(&self, text: &str) -> Made<(u32, u32)> {
        match names::ipv4_prefix(text) {
            Some(number) => Ok(number),
            None => self.mistake(
                format!("`{text}` is not an IPv4 address"),
                "it has up to four numbers from 0 to 255, with dots between them",
            ),
        }
    }

    pub(super) fn network(&mut self, text: &str, mask: u32, suffix: &str, qualifiers: &Qualifiers) -> Made<Fragment> {
        let (number, bits) = self.ipv4_number(text)?;
        let address = number << (32 - bits);
        if address & !mask != 0 {
            let network = Ipv4Addr::from_bits(address & mask);
            return self
                .mistake(format!("`{text}{suffix}` has bits after its prefix"), format!("write `{network}{suffix}`"));
        }
        if qualifiers.kind != AddressKind::Net {
            return self.mistake(format!("`{text}{suffix}` is a network"), format!("write `net {text}{suffix}`"));
        }
        self.ipv4(address, mask, qualifiers.protocol, qualifiers.direction, "net")
    }

    fn ipv4_text(&mut self, text: &str, qualifiers: &Qualifiers) -> Made<Fragment> {
        let what = match qualifiers.kind {
            AddressKind::Default | AddressKind::Host => "host",
            AddressKind::Net => "net",
            AddressKind::Gateway => return self.gateway(),
            AddressKind::Port | AddressKind::PortRange | AddressKind::Proto | AddressKind::ProtoChain => {
                return self.mistake(format!("`{text}` is an IPv4 address"), format!("write `host {text}`"));
            }
        };
        if qualifiers.protocol == Some(Protocol::Decnet) {
            let Some((area, node)) = decnet_address(text) else {
                return self.mistake(
                    format!("`{text}` is not a DECnet address"),
                    "it is an area and a node: `decnet host 1.23`",
                );
            };
            return self.decnet(area << 10 & 0xfc00 | node & 0x03ff, qualifiers.direction);
        }
        let (number, bits) = self.ipv4_number(text)?;
        if qualifiers.protocol == Some(Protocol::Link) {
            return self.link_layer_address(text);
        }
        let (address, mask) = (number << (32 - bits), u32::MAX << (32 - bits));
        self.ipv4(address, mask, qualifiers.protocol, qualifiers.direction, what)
    }

    fn link_layer_address<T>(&self, text: &str) -> Made<T> {
        self.mistake(format!("`{text}` is not an address of the link layer"), "such as `ether host 00:1b:21:0a:0b:0c`")
    }

    pub(super) fn gateway<T>(&self) -> Made<T> {
        self.mistake(
            "`gateway` is not supported where IPv6 is, as in libpcap",
            "write `ether host MAC and not host ADDRESS`",
        )
    }

    pub(super) fn number(&mut self, number: u32, qualifiers: &Qualifiers) -> Made<Fragment> {
        let Qualifiers { protocol, direction, kind } = *qualifiers;
        match kind {
            AddressKind::Default | AddressKind::Host | AddressKind::Net => {
                let what = if kind == AddressKind::Net { "net" } else { "host" };
                match protocol {
                    Some(Protocol::Decnet) => self.decnet(number, direction),
                    Some(Protocol::Link) => self.link_layer_address(&number.to_string()),
                    _ => {
                        let (mut address, mut mask) = (number, u32::MAX);
                        if kind == AddressKind::Net {
                            (address, mask) = left_aligned(address);
                        }
                        self.ipv4(address, mask, protocol, direction, what)
                    }
                }
            }
            AddressKind::Port => {
                let protocol = self.port_protocol(protocol)?;
                self.ports(Ports::One(number), protocol, direction)
            }
            AddressKind::PortRange => {
                let protocol = self.port_protocol(protocol)?;
                self.ports(Ports::Range(number, number), protocol, direction)
            }
            AddressKind::Gateway => self.gateway(),
            AddressKind::Proto => self.protocol_in(number, protocol),
            AddressKind::ProtoChain => self.protocol_chain(number, protocol),
        }
    }

    fn ipv6_text(&mut self, text: &str, length: Option<u32>, qualifiers: &Qualifiers) -> Made<Fragment> {
        let Ok(address) = text.parse::<Ipv6Addr>() else {
            return self.mistake(format!("`{text}` is not an IPv6 address"), "such as 2001:db8::1");
        };
        let bits = length.unwrap_or(128);
        if bits > 128 {
            return self.mistake(format!("a prefix of {bits} bits is too long"), "an IPv6 address has 128 bits");
        }
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        if address.to_bits() & !mask != 0 {
            let network = Ipv6Addr::from_bits(address.to_bits() & mask);
            return self
                .mistake(format!("`{text}/{bits}` has bits after its prefix"), format!("write `{network}/{bits}`"));
        }
        let what = match qualifiers.kind {
            AddressKind::Default | AddressKind::Host if bits != 128 => {
                return self.mistake(format!("`{text}/{bits}` is a network"), format!("write `net {text}/{bits}`"));
            }
            AddressKind::Default | AddressKind::Host => "host",
            AddressKind::Net => "net",
            _ => return self.mistake(format!("`{text}` is an IPv6 address"), format!("write `host {text}`")),
        };
        self.ipv6(address, mask, qualifiers.protocol, qualifiers.direction, what)
    }
}

fn decnet_address(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A network number moved to the left, and its mask.
pub(super) fn left_aligned(mut number: u32) -> (u32, u32) {
    let mut mask = u32::MAX;
    while number != 0 && number & 0xff00_0000 == 0 {
        number <<= 8;
        mask <<= 8;
    }
    (number, mask)
}
