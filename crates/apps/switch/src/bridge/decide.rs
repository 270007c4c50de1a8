//! Where frames go: the hot part of a bridge.

use bellows_common::nexts::UNUSUAL;
use bellows_engine::Io;
use bellows_packet::{CAPACITY, Packet};

use super::vlans::{Leaves, Membership, retag};
use super::{Bridge, InputOrigin};
use crate::mac_table::{Hashed, Key, Learned, PortLimit, View};
use crate::vlan::header::{Outer, outer};

/// Stand for a frame that goes to all outputs, and for those that are dropped, among the numbers of outputs.
pub(super) const FLOOD: u16 = UNUSUAL;
pub(super) const SAME_PORT: u16 = UNUSUAL + 1;
pub(super) const SAME_GROUP: u16 = UNUSUAL + 2;
pub(super) const NO_OUTPUT: u16 = UNUSUAL + 3;
pub(super) const VIOLATION: u16 = UNUSUAL + 4;
pub(super) const HELD: u16 = UNUSUAL + 5;
pub(super) const NO_HEADROOM: u16 = UNUSUAL + 6;
pub(super) const TOO_SHORT: u16 = UNUSUAL + 7;
pub(super) const NOT_ALLOWED: u16 = UNUSUAL + 8;

/// The keys of frames that have no addresses, or are in no VLAN of their port. They are those of multicast addresses, so
/// that nothing is learned or found.
pub(super) const SHORT_KEY: Key = Key(u64::MAX);
pub(super) const OTHER_VLAN: Key = Key(u64::MAX - 2);

/// The frames of a call: destination and source of each, their hashes, and the number of its output.
pub(super) struct Frames {
    pub(super) keys: Vec<[Key; 2]>,
    hashes: Vec<[u64; 2]>,
    pub(super) numbers: Vec<u16>,
}

/// What the frames of a call have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Common {
    /// All go to this output.
    Output(u16),
    /// Each goes to one output.
    Outputs,
    /// Some go to several outputs or to none.
    Unusual,
}

/// The two addresses of a frame, in a VLAN. Hot.
#[inline(always)]
fn keys(header: &[u8; 14], vlan: u16) -> [Key; 2] {
    const MAC: u64 = (1 << 48) - 1;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
    [Key::new(word(0) & MAC, vlan), Key::new(word(4) >> 16, vlan)]
}

impl Frames {
    pub(super) fn new() -> Frames {
        Frames { keys: vec![[Key::default(); 2]; CAPACITY], hashes: vec![[0; 2]; CAPACITY], numbers: vec![0; CAPACITY] }
    }

    /// Reads the addresses of frames, and prefetches what is known of them. Hot.
    #[inline(never)]
    pub(super) fn read(&mut self, packets: &[Packet], ahead: usize, view: &View<'_>) {
        self.read_by(packets, ahead, view, |frame| match frame.first_chunk() {
            Some(header) => keys(header, 0),
            None => [SHORT_KEY; 2],
        });
    }

    /// As [`Frames::read`], in the VLANs of the port. Hot.
    #[inline(never)]
    pub(super) fn read_in_vlans(
        &mut self,
        packets: &[Packet],
        ahead: usize,
        view: &View<'_>,
        (membership, protocols): (&Membership, [u16; 2]),
    ) {
        self.read_by(packets, ahead, view, |frame| {
            let id = match outer(frame, protocols) {
                Outer::TooShort => return [SHORT_KEY; 2],
                Outer::Untagged => 0,
                Outer::Tagged(tag) => tag.id(),
            };
            match (frame.first_chunk(), membership.vlan_of(id)) {
                (Some(_), 0) => [OTHER_VLAN; 2],
                (Some(header), vlan) => keys(header, vlan),
                (None, _) => [SHORT_KEY; 2],
            }
        });
    }

    #[inline(always)]
    fn read_by(&mut self, packets: &[Packet], ahead: usize, view: &View<'_>, read: impl Fn(&[u8]) -> [Key; 2]) {
        packets.iter().take(ahead).for_each(Packet::prefetch);
        for (index, (packet, keys)) in packets.iter().zip(&mut self.keys).enumerate() {
            if let Some(ahead) = packets.get(index + ahead) {
                ahead.prefetch();
            }
            *keys = read(packet.bytes());
        }
        // The hashes of several frames overlap.
        view.prefetch(&self.keys[..packets.len()], &mut self.hashes);
    }

    /// Learns the sources of the first frames, and finds the output for each. Hot.
    #[inline(never)]
    pub(super) fn decide(
        &mut self,
        io: &Io<Bridge>,
        view: &View<'_>,
        count: usize,
        origin: &InputOrigin,
        drops_violations: bool,
    ) -> Common {
        let closely = Closely { io, view, origin, drops_violations };
        let port = origin.port.as_ref().map(|port| port.number);
        let (mut last, mut last_number) = (None, FLOOD);
        let (mut any, mut all) = (0, u16::MAX);
        for ((&addresses, hashes), number) in self.keys[..count].iter().zip(&self.hashes).zip(&mut self.numbers) {
            // The frames of a flow come one after the other.
            if last != Some(addresses) {
                let hashed = [0, 1].map(|at| Hashed { key: addresses[at], hash: hashes[at] });
                let known = port.and_then(|port| view.port_from_known(hashed, port));
                let (decided, stays) = match known.and_then(|port| origin.ways.get(usize::from(port))) {
                    Some(&way) => (way, true),
                    None => closely.decide(hashed),
                };
                (last, last_number) = (stays.then_some(addresses), decided);
            }
            *number = last_number;
            any |= last_number;
            all &= last_number;
        }
        match any {
            _ if any & UNUSUAL != 0 => Common::Unusual,
            _ if any == all => Common::Output(any),
            _ => Common::Outputs,
        }
    }
}

/// Decides about frames that are not between stations which are both known and easily found.
struct Closely<'d> {
    io: &'d Io<'d, Bridge>,
    view: &'d View<'d>,
    origin: &'d InputOrigin,
    drops_violations: bool,
}

impl Closely<'_> {
    /// Where a frame goes, and whether the next one with its addresses goes there, too.
    #[inline(never)]
    fn decide(&self, [destination, source]: [Hashed; 2]) -> (u16, bool) {
        let decided = match self.view.look_up(destination) {
            Some(port) => self.origin.ways.get(usize::from(port)).copied().unwrap_or(NO_OUTPUT),
            None => FLOOD,
        };
        let (refused, is_settled) = if source.key.is_station() { self.learn(source) } else { (None, true) };
        let decided = refused.unwrap_or(decided);
        // Another frame to its own source finds another way; one whose source is not known counts again.
        (decided, is_settled && destination.key != source.key)
    }

    /// Learns a source. Returns how its frame is dropped, if it is, and whether the source is known at its port now.
    #[inline(always)]
    fn learn(&self, source: Hashed) -> (Option<u16>, bool) {
        let learned = match &self.origin.port {
            Some(port) => self.view.learn(source, port.number, self.origin.max_addresses),
            None => Learned::TableFull,
        };
        if learned == Learned::Known { (None, true) } else { self.note(learned) }
    }

    /// Counts what is not usual, for the bridge, and for the port where it is about the room for addresses.
    #[cold]
    fn note(&self, learned: Learned) -> (Option<u16>, bool) {
        let io = self.io;
        let at_port = |limit| self.origin.port.iter().for_each(|port| port.count(limit));
        match learned {
            Learned::Known => {}
            Learned::Moved => io.count(Bridge::MOVED, 1),
            Learned::New => io.count(Bridge::LEARNED, 1),
            Learned::Displaced => {
                io.count(Bridge::LEARNED, 1);
                io.count(Bridge::DISPLACED, 1);
                at_port(PortLimit::Displaced);
            }
            Learned::TableFull => {
                io.count(Bridge::TABLE_FULL, 1);
                at_port(PortLimit::TableFull);
            }
            Learned::PortFull => {
                io.count(Bridge::PORT_FULL, 1);
                at_port(PortLimit::PortFull);
            }
            Learned::Held => return (Some(HELD), false),
            Learned::Violation if self.drops_violations => return (Some(VIOLATION), false),
            Learned::Violation => io.count(Bridge::VIOLATIONS_FORWARDED, 1),
        }
        (None, matches!(learned, Learned::Known | Learned::Moved | Learned::New | Learned::Displaced))
    }
}

impl Frames {
    /// Gives frames that go to one output each the tags with which they leave. Returns false if one cannot. Hot.
    #[inline(never)]
    pub(super) fn retag(&mut self, packets: &mut [Packet], memberships: &[Membership], protocols: [u16; 2]) -> bool {
        let mut can_all = true;
        for ((packet, [destination, _]), number) in packets.iter_mut().zip(&self.keys).zip(&mut self.numbers) {
            // Those that go to none, or to several, have no membership.
            let Some(membership) = memberships.get(usize::from(*number)) else { continue };
            let vlan = destination.vlan();
            let refused = match membership.leaves(vlan) {
                Leaves::Not => NOT_ALLOWED,
                leaves if retag(packet, protocols, vlan, leaves == Leaves::Tagged) => continue,
                _ => NO_HEADROOM,
            };
            *number = refused;
            can_all = false;
        }
        can_all
    }
}
