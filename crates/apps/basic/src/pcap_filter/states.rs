//! The packets of connections that a filter has let through.

use std::sync::Arc;

use bellows_common::full_table::FullTable;
use bellows_engine::Io;
use bellows_filter::{ByLinkType, LinkType};
use bellows_packet::{CAPACITY, Packet};
use bellows_wire::EtherType;
use bellows_wire::connection::{self, Member};

use super::PcapFilter;
use crate::state_table::{Entered, Place, StateTable};

/// Tells who has begun the most connections where one has made room for another one, or found none.
#[cold]
fn tell_full(full: &FullTable, app: &str, table: &StateTable, place: Place, now: u64) {
    if let Some(address) = table.fullest(place) {
        let outcome =
            "its connections make room for those of others, or are not entered; raise `capacity` if there are so many";
        full.tell(app, 0, now, || (address.to_string(), outcome));
    }
}

/// A table of connections, and those of the packets of a call.
pub(super) struct States {
    /// The app's name.
    app: String,
    table: Arc<StateTable>,
    full: FullTable,
    /// `None` if each packet has its own.
    link_type: Option<LinkType>,
    /// The packets that belong to connections: their positions, what they are, and their places in the table.
    positions: Vec<u16>,
    members: Vec<Member>,
    places: Vec<Place>,
}

impl States {
    pub fn new(app: &str, table: Arc<StateTable>, link_type: Option<LinkType>) -> States {
        let (positions, members) = (Vec::with_capacity(CAPACITY), Vec::with_capacity(CAPACITY));
        let (app, full) = (app.to_owned(), FullTable::new("connections"));
        States { app, table, full, link_type, positions, members, places: Vec::with_capacity(CAPACITY) }
    }

    /// Lets the packets of known connections through, by the number 0, and enters the connections of the others with that
    /// number. Hot.
    #[inline(never)]
    pub fn decide(&mut self, io: &Io<PcapFilter>, packets: &[Packet], numbers: &mut [u16]) {
        match self.link_type {
            Some(LinkType::Ethernet) => {
                let usual = |packet: &Packet| connection::of_usual_frame(packet.bytes());
                self.collect(packets, usual, |packet| connection::of_frame(packet.bytes()));
            }
            only => {
                let other = |packet: &Packet| {
                    let link_type = only.or_else(|| LinkType::from_number(ByLinkType::number(packet)).ok());
                    member(link_type?, packet.bytes())
                };
                self.collect(packets, |_| None, other);
            }
        }
        let States { app, table, full, positions, members, places, .. } = self;
        table.places(members, places);
        let now = io.now();
        let (mut passed, mut entered) = (0, 0);
        for ((&position, member), &place) in positions.iter().zip(&*members).zip(&*places) {
            let number = &mut numbers[usize::from(position)];
            if table.pass(member, place, now) {
                *number = 0;
                passed += 1;
            } else if *number == 0 {
                let became = table.enter(member, place, now);
                entered += u64::from(matches!(became, Entered::New | Entered::Expired | Entered::Evicted));
                match became {
                    Entered::New | Entered::Nothing => {}
                    Entered::Expired => io.count(PcapFilter::STATES_EXPIRED, 1),
                    Entered::Evicted => io.count(PcapFilter::STATES_EVICTED, 1),
                    Entered::Refused => io.count(PcapFilter::STATES_REFUSED, 1),
                }
                if matches!(became, Entered::Evicted | Entered::Refused) && !full.is_quiet(now) {
                    tell_full(full, app, table, place, now);
                }
            }
        }
        io.count(PcapFilter::PASSED_BY_STATE, passed);
        io.count(PcapFilter::STATES_ENTERED, entered);
    }

    /// Collects the packets that belong to connections, as the first function says that knows. Hot.
    #[inline(always)]
    fn collect(
        &mut self,
        packets: &[Packet],
        usual: impl Fn(&Packet) -> Option<Member>,
        other: impl Fn(&Packet) -> Option<Member>,
    ) {
        let States { positions, members, .. } = self;
        positions.clear();
        members.clear();
        for (packet, position) in packets.iter().zip(0..) {
            // Not joined: what is returned in memory is written in parts, and waits where it is read as a whole.
            if let Some(member) = usual(packet) {
                positions.push(position);
                members.push(member);
            } else if let Some(member) = other(packet) {
                positions.push(position);
                members.push(member);
            }
        }
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
