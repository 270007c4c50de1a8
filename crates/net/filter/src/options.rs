//! What the meaning of an expression depends on, other than its text.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;

use crate::link::LinkType;
use crate::names::{Names, SystemNames};

/// How far `vlan`, `mpls`, `pppoes` and `geneve` shift what comes after them, and whose arithmetic counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// To the end of the expression, as in libpcap: across `or`, `not` and parentheses. The second test of `vlan 5 or
    /// vlan 6` looks for a second tag.
    #[default]
    Libpcap,
    /// As [`Scope::Libpcap`], with the faults of the optimiser of libpcap 1.10, which decides a few expressions otherwise
    /// than their arithmetic says: `ip[1] & 0xffffffff != 0` matches every IPv4 packet.
    LibpcapFaults,
    /// Through what is joined to them by `and`. Each side of an `or` starts where the `or` started; what follows the
    /// `or` is shifted if both sides are shifted alike. What follows a `not` is never shifted by what is in it.
    Lexical,
}

/// What an expression's meaning depends on, other than its text.
#[derive(Clone, Copy)]
pub struct Options<'n> {
    /// How packets begin.
    pub link_type: LinkType,
    /// How far tests shift later ones.
    pub scope: Scope,
    /// Maximum number of captured bytes, which [programs](crate::Expression::instructions) return for packets that match.
    pub snap_length: u32,
    /// The mask of the network for `ip broadcast`, which is refused if it is not known.
    pub netmask: Option<Ipv4Addr>,
    /// Where names are looked up.
    pub names: &'n dyn Names,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            link_type: LinkType::Ethernet,
            scope: Scope::Libpcap,
            snap_length: 262_144,
            netmask: None,
            names: &SystemNames,
        }
    }
}

/// Where tests look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Where libpcap looks.
    #[default]
    Libpcap,
    /// For an access list, in usual packets: with an Ethernet header without tags, and behind an IP header without
    /// options, extension headers and fragments the whole fixed header of TCP, UDP or ICMP.
    Usual,
    /// For an access list, in any packet, as [`Laid`](crate::access::Laid) presents it.
    LaidOut,
}
