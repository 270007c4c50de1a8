//! Where frames go: the hot part of a bridge.

use bellows_common::nexts::UNUSUAL;
use bellows_engine::Io;
use bellows_packet::{CAPACITY, Packet};

use super::vlans::{Leaves, Membership, retag};
use super::{Bridge, InputOrigin, way};
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

/// Stands for a frame that must be looked at closely.
const CLOSE: u16 = UNUSUAL + 9;

/// The keys of frames that have no addresses, or are in no VLAN of their port. They are those of multicast addresses, so
/// that nothing is learned or found.
pub(super) const SHORT_KEY: Key = Key(u64::MAX);
pub(super) const OTHER_VLAN: Key = Key(u64::MAX - 2);

/// The keys of no frame.
const NO_KEY: Key = Key(u64::MAX - 4);

/// The frames of a call. Those with the same addresses one behind the other are a run.
pub(super) struct Frames {
    runs: Vec<Run>,
    /// The number of runs.
    count: usize,
    /// The hashes of each run's addresses.
    hashes: Vec<[u64; 2]>,
    /// The run of each frame.
    run_of: Vec<u16>,
    /// Runs to be decided about closely.
    unusual: Vec<u16>,
    /// The number of the output of each frame.
    pub(super) numbers: Vec<u16>,
}

/// Frames with the same addresses.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Destination and source.
    keys: [Key; 2],
    /// The frame behind the last one.
    end: usize,
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
    // One load each, which the bytes one by one are not.
    let word = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    [Key::new(word(0) & MAC, vlan), Key::new(word(4) >> 16, vlan)]
}

impl Frames {
    pub(super) fn new() -> Frames {
        Frames {
            runs: vec![Run::default(); CAPACITY],
            count: 0,
            hashes: vec![[0; 2]; CAPACITY],
            run_of: vec![0; CAPACITY],
            unusual: vec![0; CAPACITY],
            numbers: vec![0; CAPACITY],
        }
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
        let Frames { runs, hashes, run_of, .. } = self;
        packets.iter().take(ahead).for_each(Packet::prefetch);
        // The first frame begins the run 0.
        let (mut last, mut run) = ([NO_KEY; 2], usize::MAX);
        for (index, (packet, run_of)) in packets.iter().zip(run_of).enumerate() {
            if let Some(ahead) = packets.get(index + ahead) {
                ahead.prefetch();
            }
            let keys = read(packet.bytes());
            let differences = (keys[0].0 ^ last[0].0) | (keys[1].0 ^ last[1].0);
            run = run.wrapping_add(usize::from(differences != 0));
            runs[run] = Run { keys, end: index + 1 };
            *run_of = run as u16;
            last = keys;
        }
        self.count = run.wrapping_add(1);
        // The hashes of several runs overlap.
        view.hash(self.runs[..self.count].iter().map(|run| run.keys), hashes);
    }

    /// The destination of each frame.
    pub(super) fn destinations(&self) -> impl Iterator<Item = Key> {
        self.run_of.iter().map(|&run| self.runs[usize::from(run)].keys[0])
    }

    /// Learns the sources of the first frames, and finds the output for each. Without VLANs, frames that all go to one
    /// output have no numbers then. Hot.
    #[inline(never)]
    pub(super) fn decide(
        &mut self,
        io: &Io<Bridge>,
        view: &View<'_>,
        count: usize,
        origin: &InputOrigin,
        drops_violations: bool,
    ) -> Common {
        let usual = self.decide_usual(view, origin);
        if let Common::Output(_) = usual
            && origin.membership.is_none()
        {
            return usual;
        }
        let listed = if usual == Common::Unusual { self.list_unusual() } else { 0 };
        let Frames { run_of, numbers, .. } = self;
        if self.count < count {
            // From numbers of runs to those of frames, which are at the same places or behind them.
            (0..count).rev().for_each(|frame| numbers[frame] = numbers[usize::from(run_of[frame])]);
        }
        if listed == 0 {
            return usual;
        }
        self.decide_unusual(listed, &Closely { io, view, origin, drops_violations });
        Common::of(&self.numbers[..count])
    }

    /// Finds the output for each run between stations that are both known and easily found; all others are [`CLOSE`].
    /// Returns what the runs have in common. Hot: a step without branches.
    #[inline(never)]
    fn decide_usual(&mut self, view: &View<'_>, origin: &InputOrigin) -> Common {
        let (runs, numbers) = (&self.runs[..self.count], &mut self.numbers[..self.count]);
        let Some(port) = &origin.port else {
            numbers.fill(CLOSE);
            return Common::Unusual;
        };
        let (known, ways) = (view.known_at(port.number), &origin.ways[..]);
        for ((Run { keys, .. }, hashes), number) in runs.iter().zip(&self.hashes).zip(&mut *numbers) {
            let (to, counts) = known(hashed(keys, hashes));
            let way = way(ways, to);
            *number = if counts { way } else { CLOSE };
        }
        Common::of(numbers)
    }

    /// Lists the runs that must be looked at closely. Returns their number.
    #[inline(never)]
    fn list_unusual(&mut self) -> usize {
        let mut listed = 0;
        for (run, number) in self.numbers[..self.count].iter().enumerate() {
            self.unusual[listed] = run as u16;
            listed += usize::from(*number == CLOSE);
        }
        listed
    }

    /// Decides about the listed runs, in order.
    #[inline(never)]
    fn decide_unusual(&mut self, listed: usize, closely: &Closely<'_>) {
        let Frames { runs, count, hashes, unusual, numbers, .. } = self;
        let listed = unusual[..listed].iter().map(|&run| usize::from(run));
        listed.clone().for_each(|run| closely.view.prefetch_others(hashes[run]));
        let mut decide = |run: usize| {
            let start = run.checked_sub(1).map_or(0, |before| runs[before].end);
            let mut frames = numbers[start..runs[run].end].iter_mut();
            let mut has_changed = false;
            while let Some(number) = frames.next() {
                let decided = closely.decide(hashed(&runs[run].keys, &hashes[run]));
                *number = decided.number;
                has_changed |= decided.has_changed;
                if decided.stays {
                    frames.by_ref().for_each(|number| *number = decided.number);
                }
            }
            has_changed
        };
        // What a frame changes in the table counts for all behind it.
        if let Some(changed) = listed.clone().find(|&run| decide(run)) {
            (changed + 1..*count).for_each(|run| {
                decide(run);
            });
        }
    }
}

impl Common {
    /// Of numbers. Hot.
    #[inline(always)]
    fn of(numbers: &[u16]) -> Common {
        let (any, all) = numbers.iter().fold((0, u16::MAX), |(any, all), number| (any | number, all & number));
        match any {
            _ if any & UNUSUAL != 0 => Common::Unusual,
            _ if any == all => Common::Output(any),
            _ => Common::Outputs,
        }
    }
}

/// Two keys with their hashes. Hot.
#[inline(always)]
fn hashed(keys: &[Key; 2], hashes: &[u64; 2]) -> [Hashed; 2] {
    [0, 1].map(|at| Hashed { key: keys[at], hash: hashes[at] })
}

/// Decides about frames that are not between stations which are both known and easily found.
struct Closely<'d> {
    io: &'d Io<'d, Bridge>,
    view: &'d View<'d>,
    origin: &'d InputOrigin,
    drops_violations: bool,
}

/// What was decided about a frame.
struct Decided {
    /// The number of its output.
    number: u16,
    /// Whether the next one with its addresses goes there, too.
    stays: bool,
    /// Whether the table may be another one now.
    has_changed: bool,
}

impl Closely<'_> {
    #[inline(never)]
    fn decide(&self, [destination, source]: [Hashed; 2]) -> Decided {
        let number = self.view.look_up(destination).map_or(FLOOD, |port| way(&self.origin.ways, port));
        // Another frame to its own source finds another way.
        let stays = destination.key != source.key;
        let learned = if source.key.is_station() { self.learn(source) } else { Learned::Known };
        if learned == Learned::Known {
            return Decided { number, stays, has_changed: false };
        }
        // One whose source is not known counts again.
        let (refused, is_settled) = self.note(learned);
        Decided { number: refused.unwrap_or(number), stays: stays && is_settled, has_changed: true }
    }

    /// Learns a source.
    #[inline(always)]
    fn learn(&self, source: Hashed) -> Learned {
        match &self.origin.port {
            Some(port) => self.view.learn(source, port.number, self.origin.max_addresses),
            None => Learned::TableFull,
        }
    }

    /// Counts what is not usual, for the bridge, and for the port where it is about the room for addresses. Returns how
    /// the frame is dropped, if it is, and whether its source is known at its port now.
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
        for ((packet, &run), number) in packets.iter_mut().zip(&self.run_of).zip(&mut self.numbers) {
            // Those that go to none, or to several, have no membership.
            let Some(membership) = memberships.get(usize::from(*number)) else { continue };
            let vlan = self.runs[usize::from(run)].keys[0].vlan();
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
