//! The packets of connections that a filter has let through.

use std::sync::Arc;

use bellows_engine::Io;
use bellows_filter::{ByLinkType, LinkType};
use bellows_packet::{CAPACITY, Packet};
use bellows_wire::EtherType;
use bellows_wire::connection::{self, Member};

use super::PcapFilter;
use crate::state_table::{Entered, Place, StateTable};

/// A table of connections, and those of the packets of a call.
pub(super) struct States {
    table: Arc<StateTable>,
    /// `None` if each packet has its own.
    link_type: Option<LinkType>,
    members: Vec<Option<(Member, Place)>>,
}

impl States {
    pub fn new(table: Arc<StateTable>, link_type: Option<LinkType>) -> States {
        States { table, link_type, members: vec![None; CAPACITY] }
    }

    /// Lets the packets of known connections through, by the number 0, and enters the connections of the others with that
    /// number. Hot.
    #[inline(never)]
    pub fn decide(&mut self, io: &Io<PcapFilter>, packets: &[Packet], numbers: &mut [u16]) {
        let States { table, link_type, members } = self;
        let place = |member: Option<Member>| member.map(|member| (member, table.place(&member)));
        match link_type {
            Some(LinkType::Ethernet) => {
                for (packet, found) in packets.iter().zip(&mut *members) {
                    *found = place(connection::of_frame(packet.bytes()));
                }
            }
            link_type => {
                for (packet, found) in packets.iter().zip(&mut *members) {
                    let link_type = link_type.or_else(|| LinkType::from_number(ByLinkType::number(packet)).ok());
                    *found = place(link_type.and_then(|link_type| member(link_type, packet.bytes())));
                }
            }
        }
        let now = io.now();
        let (mut passed, mut entered) = (0, 0);
        for (number, found) in numbers.iter_mut().zip(&*members) {
            let Some((member, place)) = found else { continue };
            if table.pass(member, *place, now) {
                *number = 0;
                passed += 1;
            } else if *number == 0 {
                let became = table.enter(member, *place, now);
                entered += u64::from(matches!(became, Entered::New | Entered::Expired | Entered::Evicted));
                match became {
                    Entered::New | Entered::Nothing => {}
                    Entered::Expired => io.count(PcapFilter::STATES_EXPIRED, 1),
                    Entered::Evicted => io.count(PcapFilter::STATES_EVICTED, 1),
                    Entered::Refused => io.count(PcapFilter::STATES_REFUSED, 1),
                }
            }
        }
        io.count(PcapFilter::PASSED_BY_STATE, passed);
        io.count(PcapFilter::STATES_ENTERED, entered);
    }

    /// Removes connections that have expired. Meant for the app's tick.
    pub fn expire(&self, io: &Io<PcapFilter>) {
        let (expired, next) = self.table.expire(io.now());
        io.count(PcapFilter::STATES_EXPIRED, expired as u64);
        io.wake_at(next);
    }
}

/// The connection of a packet by its link type.
fn member(link_type: LinkType, packet: &[u8]) -> Option<Member> {
    let behind = |start: usize, ether_type: usize| {
        let [high, low] = *packet.get(ether_type..)?.first_chunk()?;
        connection::of_payload(EtherType(u16::from_be_bytes([high, low])), packet.get(start..)?)
    };
    match link_type {
        LinkType::Ethernet => connection::of_frame(packet),
        LinkType::Raw | LinkType::Ipv4 | LinkType::Ipv6 => connection::of_ip(packet),
        LinkType::Cooked => behind(16, 14),
        LinkType::Cooked2 => behind(20, 0),
        LinkType::Null | LinkType::Loop => connection::of_ip(packet.get(4..)?),
    }
}
