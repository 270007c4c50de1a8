//! Which packets are refused at a glance: those that floods are made of, most of them of strangers.
//!
//! All of them are packets that a closer look would refuse for the same reason.

use std::net::{IpAddr, Ipv4Addr};

use bellows_common::headers::ETHERNET;
use bellows_common::limit::MessageSender;
use bellows_engine::{DropReason, Io};
use bellows_packet::Packet;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{Interface, Tag};

use super::Arp;
use crate::forwarding::{load_u32, load_u64};

/// Bytes of an Ethernet header and an ARP packet.
const LENGTH: usize = ETHERNET + 28;

/// The bits of an Ethernet address that is loaded, and the one that addresses of many have.
const ADDRESS: u64 = (1 << 48) - 1;
const MANY: u64 = 1;

/// The first bytes of an ARP packet for IPv4 over Ethernet, as they are loaded, without the operation's second byte.
const START: u64 = u64::from_le_bytes([0, 1, 8, 0, 6, 4, 0, 0]);
const OPERATION_SHIFT: u32 = 56;
const REQUEST: u64 = 1;
const REPLY: u64 = 2;

/// The link of an interface.
#[derive(Debug, Default)]
pub(super) struct LinkStrangers {
    /// The interface's Ethernet address, as it is loaded.
    mac: u64,
    /// Its addresses, and the bits of the link's part in them.
    addresses: Vec<(u32, u32)>,
}

impl LinkStrangers {
    /// That of an interface.
    pub(super) fn of(interface: &Interface) -> LinkStrangers {
        let address = |own: &InterfaceAddress| match own.address {
            IpAddr::V4(address) => {
                Some((u32::from(address), u32::MAX.checked_shl(32 - u32::from(own.length)).unwrap_or(0)))
            }
            IpAddr::V6(_) => None,
        };
        let mac = interface.mac.0.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
        LinkStrangers { mac, addresses: interface.addresses.iter().filter_map(address).collect() }
    }

    /// Whether an address is certainly that of another station on the link.
    #[inline]
    fn has_station(&self, address: u32) -> bool {
        let (mut is_on_link, mut is_doubtful) = (false, matches!(address >> 24, 127 | 224..));
        for &(own, mask) in &self.addresses {
            let (is_here, host) = ((address ^ own) & mask == 0, address & !mask);
            is_on_link |= is_here;
            is_doubtful |= is_here & ((host == 0) | (host == !mask) | (address == own));
        }
        is_on_link & !is_doubtful
    }

    #[inline]
    fn has_address(&self, address: u32) -> bool {
        self.addresses.iter().fold(false, |any, &(own, _)| any | (own == address))
    }
}

/// Why a packet is refused at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It asks for the router, or its sender is known, and it is beyond the limit.
    RateLimited,
    /// It asks for another station.
    NotLocal,
    /// It answers what nobody asked.
    Unasked,
    /// It announces a neighbour of whom nobody wants to know.
    Announced,
}

impl Refused {
    /// Counts what packets are. Returns the reason for dropping them.
    pub(super) fn count(self, io: &Io<Arp>, packets: u64) -> DropReason<Arp> {
        match self {
            Refused::RateLimited => Arp::RATE_LIMITED,
            Refused::NotLocal => Arp::NOT_LOCAL,
            Refused::Unasked => {
                io.count(Arp::REPLIES_RECEIVED, packets);
                Arp::UNASKED
            }
            Refused::Announced => {
                io.count(Arp::GRATUITOUS, packets);
                Arp::UNASKED
            }
        }
    }
}

impl Arp {
    /// Why all packets are refused, if they are for one reason. They are counted then.
    pub(super) fn refuse_all(&self, io: &Io<Self>, packets: &[Packet]) -> Option<DropReason<Arp>> {
        let (first, others) = packets.split_first()?;
        let (now, refused) = (io.now(), self.refuse(io.now(), first)?);
        let are_alike = others.iter().all(|packet| self.refuse(now, packet) == Some(refused));
        are_alike.then(|| refused.count(io, packets.len() as u64))
    }

    /// Why a packet is refused, if a glance shows it. Hot.
    #[inline(always)]
    pub(super) fn refuse(&self, now: u64, packet: &Packet) -> Option<Refused> {
        let frame = packet.bytes().first_chunk::<LENGTH>()?;
        let number = Tag(packet.tag()).interface();
        let link = self.links.get(usize::from(number))?;
        let start = load_u64(frame, ETHERNET);
        let (operation, mac) = (start >> OPERATION_SHIFT, load_u64(frame, ETHERNET + 8) & ADDRESS);
        let [sender, target] = [14, 24].map(|at| load_u32(frame, ETHERNET + at).swap_bytes());
        let is_proper = (start & ((1 << OPERATION_SHIFT) - 1) == START)
            & ((operation == REQUEST) | (operation == REPLY))
            & (mac == load_u64(frame, 6) & ADDRESS)
            & (mac & MANY == 0)
            & (mac != 0)
            & (mac != link.mac)
            & link.has_station(sender);
        if !is_proper {
            return None;
        }
        if self.resolver.may_know((number, Ipv4Addr::from(sender).into())) {
            return (!self.hearing.would_hear(number, MessageSender::Known, now)).then_some(Refused::RateLimited);
        }
        if sender == target {
            return Some(Refused::Announced).filter(|_| operation == REQUEST || self.host.is_none());
        }
        if operation == REPLY {
            return Some(Refused::Unasked).filter(|_| self.host.is_none());
        }
        if self.proxy.contains(&number) {
            return None;
        }
        match link.has_address(target) {
            true if self.hearing.would_hear(number, MessageSender::Stranger, now) => None,
            true => Some(Refused::RateLimited),
            false => Some(Refused::NotLocal),
        }
    }
}
