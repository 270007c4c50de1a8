//! Destinations that no router forwards packets to, whatever its routes say.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::route::IpPrefix;

/// A block of addresses that no route leads to (RFC 6890; RFC 1812, section 5.3.7; RFC 4291, section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    address: IpAddr,
    length: u8,
    what: &'static str,
}

const fn v4(address: [u8; 4], length: u8, what: &'static str) -> Reserved {
    let [a, b, c, d] = address;
    Reserved { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), length, what }
}

const fn v6(first: u16, sixth: u16, last: u16, length: u8, what: &'static str) -> Reserved {
    Reserved { address: IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, sixth, 0, last)), length, what }
}

const BLOCKS: [Reserved; 9] = [
    v4([0, 0, 0, 0], 8, "this network"),
    v4([127, 0, 0, 0], 8, "loopback addresses"),
    v4([224, 0, 0, 0], 4, "multicast groups"),
    v4([240, 0, 0, 0], 4, "reserved addresses"),
    v6(0, 0, 0, 128, "the unspecified address"),
    v6(0, 0, 1, 128, "the loopback address"),
    v6(0, 0xffff, 0, 96, "IPv4-mapped addresses"),
    v6(0xfe80, 0, 0, 10, "link-local addresses"),
    v6(0xff00, 0, 0, 8, "multicast groups"),
];

impl IpPrefix {
    /// The block that the prefix is within, if no router forwards packets to it.
    pub fn reserved(self) -> Option<Reserved> {
        let covers = |block: &&Reserved| {
            IpPrefix::of(block.address, block.length).is_some_and(|outer: IpPrefix| outer.covers(self))
        };
        BLOCKS.iter().find(covers).copied()
    }
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.address, self.length, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_what_is_within_them_are_reserved() {
        for (prefix, block) in [
            ("0.0.0.0/8", Some("0.0.0.0/8 (this network)")),
            ("0.0.0.0/32", Some("0.0.0.0/8 (this network)")),
            ("127.0.0.1", Some("127.0.0.0/8 (loopback addresses)")),
            ("224.0.0.0/24", Some("224.0.0.0/4 (multicast groups)")),
            ("255.255.255.255/32", Some("240.0.0.0/4 (reserved addresses)")),
            ("::/128", Some("::/128 (the unspecified address)")),
            ("::1", Some("::1/128 (the loopback address)")),
            ("::ffff:10.0.0.0/104", Some("::ffff:0.0.0.0/96 (IPv4-mapped addresses)")),
            ("fe80::/64", Some("fe80::/10 (link-local addresses)")),
            ("ff05::/16", Some("ff00::/8 (multicast groups)")),
            ("0.0.0.0/0", None),
            ("0.0.0.0/7", None),
            ("::/0", None),
            ("::/96", None),
            ("224.0.0.0/3", None),
            ("169.254.0.0/16", None),
            ("fec0::/10", None),
        ] {
            let prefix: IpPrefix = prefix.parse().unwrap();
            let found = prefix.reserved().map(|block| block.to_string());
            assert_eq!(found.as_deref(), block, "{prefix}");
        }
    }
}
