//! Entries on their way from one output to another, and the packets that wait for them.

use std::collections::VecDeque;

use bellows_packet::Packet;

/// Entries that change their output at the same time.
struct Move {
    /// When packets may go to the new output.
    until: u64,
    entries: Vec<u16>,
}

/// Entries that are about to change their output, and their packets.
#[derive(Default)]
pub(super) struct Transit {
    moves: Vec<Move>,
    /// For each entry of the table, whether it is in one of the moves.
    is_moving: Vec<bool>,
    /// For each entry the number of its packets here.
    waiting: Vec<u32>,
    /// Packets and their entries, in the order in which they came.
    packets: VecDeque<(u16, Packet)>,
}

impl Transit {
    /// No entry of a table of this size moves.
    pub(super) fn new(size: usize) -> Transit {
        Transit { is_moving: vec![false; size], waiting: vec![0; size], ..Transit::default() }
    }

    /// The number of packets that wait.
    pub(super) fn held(&self) -> usize {
        self.packets.len()
    }

    /// The number of entries that move.
    pub(super) fn moving(&self) -> usize {
        self.moves.iter().map(|one| one.entries.len()).sum()
    }

    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.moves.is_empty()
    }

    pub(super) fn is_moving(&self, entry: usize) -> bool {
        self.is_moving.get(entry).is_some_and(|moving| *moving)
    }

    /// The time at which the next entry may be released.
    pub(super) fn next(&self) -> Option<u64> {
        self.moves.iter().map(|one| one.until).min()
    }

    /// From now on packets of these entries wait, until the given time. An entry that moves already keeps its time.
    pub(super) fn begin(&mut self, entries: impl Iterator<Item = usize>, until: u64) {
        let entries: Vec<u16> = entries.filter(|&entry| !self.is_moving[entry]).map(|entry| entry as u16).collect();
        entries.iter().for_each(|&entry| self.is_moving[usize::from(entry)] = true);
        if !entries.is_empty() {
            self.moves.push(Move { until, entries });
        }
    }

    /// Keeps a packet of an entry that moves.
    pub(super) fn hold(&mut self, entry: usize, packet: Packet) {
        self.waiting[entry] += 1;
        self.packets.push_back((entry as u16, packet));
    }

    /// Sends the packets of entries whose time has come, in order, as far as `send` takes them. An entry whose packets
    /// have all left has moved. True if an entry has.
    pub(super) fn release(&mut self, now: u64, mut send: impl FnMut(usize, Packet) -> Result<(), Packet>) -> bool {
        if self.moves.iter().all(|one| one.until > now) {
            return false;
        }
        let mut is_due = vec![false; self.is_moving.len()];
        let due = self.moves.iter().filter(|one| one.until <= now).flat_map(|one| &one.entries);
        due.for_each(|&entry| is_due[usize::from(entry)] = true);
        for _ in 0..self.packets.len() {
            let Some((entry, packet)) = self.packets.pop_front() else { break };
            let index = usize::from(entry);
            let left = if is_due[index] { send(index, packet).err() } else { Some(packet) };
            match left {
                None => self.waiting[index] -= 1,
                Some(packet) => {
                    // Later packets of the entry stay behind this one.
                    is_due[index] = false;
                    self.packets.push_back((entry, packet));
                }
            }
        }
        let before = self.moving();
        let Transit { moves, is_moving, waiting, .. } = self;
        for one in moves.iter_mut().filter(|one| one.until <= now) {
            one.entries.retain(|&entry| {
                is_moving[usize::from(entry)] = waiting[usize::from(entry)] > 0;
                is_moving[usize::from(entry)]
            });
        }
        moves.retain(|one| !one.entries.is_empty());
        self.moving() < before
    }

    /// The packets, in the order in which they came.
    pub(super) fn into_packets(self) -> impl Iterator<Item = Packet> {
        self.packets.into_iter().map(|(_, packet)| packet)
    }
}
