//! The driver's side of a split ring (specification, 2.7).

use std::collections::VecDeque;

use bellows_virtio::Features;
use bellows_virtio::ring::{Areas, Position};

use super::chains::{Chain, Piece};
use super::flag::{INDIRECT, NEXT, WRITE};
use super::guest::Guest;
use super::random::Random;
use super::{Driver, NotifyMode, Reaped, Used, descriptor};

/// Neither side wants notifications (`VIRTQ_AVAIL_F_NO_INTERRUPT`, `VIRTQ_USED_F_NO_NOTIFY`).
const QUIET: u16 = 1;

pub struct SplitDriver {
    areas: Areas,
    size: u64,
    event_idx: bool,
    in_order: bool,
    /// Free descriptors, the next one to use first.
    free: VecDeque<u16>,
    /// Heads of chains that the device has, the oldest first, and their descriptors.
    outstanding: VecDeque<(u16, Vec<u16>)>,
    random: Random,
    /// Chains, counted from a start at index 0: added, made available, and used.
    added: u64,
    available: u64,
    used: u64,
    mode: NotifyMode,
    /// The chain whose use triggers a notification: the number of chains used before it.
    event: u64,
}

impl SplitDriver {
    pub fn new(guest: &mut Guest, features: Features, size: u16, random: &mut Random) -> SplitDriver {
        let length = usize::from(size);
        let areas = Areas {
            descriptors: guest.area(16 * length, 16, random),
            driver: guest.area(6 + 2 * length, 2, random),
            device: guest.area(6 + 8 * length, 4, random),
        };
        let mut free: VecDeque<u16> = (0..size).collect();
        let in_order = features.has(Features::IN_ORDER);
        if !in_order {
            random.shuffle(free.make_contiguous());
        }
        // A new ring begins with 0; a ring that has moved here may be anywhere, and soon wraps around.
        let start = if random.one_in(2) { 0 } else { 0x10000 - random.between(0, 3 * length) as u64 + (1 << 20) };
        let mut driver = SplitDriver {
            areas,
            size: size.into(),
            event_idx: features.has(Features::EVENT_IDX),
            in_order,
            free,
            outstanding: VecDeque::new(),
            random: Random::new(random.next()),
            added: start,
            available: start,
            used: start,
            mode: NotifyMode::Always,
            event: start,
        };
        guest.write_u16(driver.areas.driver + 2, start as u16);
        guest.write_u16(driver.areas.device + 2, start as u16);
        driver.set_notify_mode(guest, NotifyMode::Always);
        driver
    }

    fn write_descriptor(&self, guest: &mut Guest, index: u16, piece: Piece, flags: u16, next: u16) {
        let bytes = descriptor(piece.address, piece.length, [flags, next]);
        guest.write(self.areas.descriptors + 16 * u64::from(index), &bytes);
    }

    fn slot(&self, count: u64) -> u64 {
        count % self.size
    }

    /// After the ring of heads: the index at which the driver wants a notification.
    fn used_event(&self) -> u64 {
        self.areas.driver + 4 + 2 * self.size
    }

    /// After the used ring: the index at which the device wants a notification.
    fn avail_event(&self) -> u64 {
        self.areas.device + 4 + 8 * self.size
    }

    /// Reads one used entry: the chains that it gives back.
    fn take(&mut self, id: u32, length: u32, used: &mut Vec<Used>) {
        let position = self.outstanding.iter().position(|(head, _)| u32::from(*head) == id);
        let position = position.unwrap_or_else(|| panic!("chain {id} came back, which was not there"));
        // With in-order one entry may stand for all chains up to this one (2.7.9). Without, each has its own.
        let first = if self.in_order { 0 } else { position };
        for number in first..=position {
            let (id, descriptors) = self.outstanding.remove(first).expect("found above");
            self.free.extend(&descriptors);
            used.push(Used { id, length: (number == position).then_some(length) });
        }
        if !self.in_order {
            self.random.shuffle(self.free.make_contiguous());
        }
    }
}

impl Driver for SplitDriver {
    fn areas(&self) -> Areas {
        Areas { ..self.areas }
    }

    fn free(&self) -> usize {
        self.free.len()
    }

    fn add(&mut self, guest: &mut Guest, chain: &Chain) -> u16 {
        let descriptors: Vec<u16> = self.free.drain(..chain.descriptors()).collect();
        let access = if chain.writable { WRITE } else { 0 };
        let table = chain.table.as_ref().map(|table| (table.place, INDIRECT));
        let parts = chain.direct.iter().map(|&piece| (piece, access)).chain(table);
        for (number, (piece, flags)) in parts.enumerate() {
            match descriptors.get(number + 1) {
                Some(&next) => self.write_descriptor(guest, descriptors[number], piece, flags | NEXT, next),
                None => {
                    let anything = self.random.word();
                    self.write_descriptor(guest, descriptors[number], piece, flags, anything);
                }
            }
        }
        let head = descriptors[0];
        guest.write_u16(self.areas.driver + 4 + 2 * self.slot(self.added), head);
        self.outstanding.push_back((head, descriptors));
        self.added += 1;
        head
    }

    fn publish(&mut self, guest: &mut Guest) -> bool {
        let (old, new) = (self.available, self.added);
        guest.write_u16(self.areas.driver + 2, new as u16);
        self.available = new;
        self.accept_suppression(guest);
        if self.event_idx {
            // Whether the index that the device waits for is among those of the new chains (2.7.10.1).
            let event = guest.read_u16(self.avail_event());
            (old..new).any(|index| index as u16 == event)
        } else {
            guest.read_u16(self.areas.device) & QUIET == 0 && new > old
        }
    }

    fn set_notify_mode(&mut self, guest: &mut Guest, mode: NotifyMode) {
        self.mode = mode;
        if !self.event_idx {
            guest.write_u16(self.areas.driver, if mode == NotifyMode::Never { QUIET } else { 0 });
            return;
        }
        self.event = match mode {
            NotifyMode::Always => self.used,
            NotifyMode::Never => self.used.wrapping_sub(1),
            NotifyMode::After(count) => self.used + u64::from(count),
            NotifyMode::Passed(count) => self.used.wrapping_sub(1 + u64::from(count)),
        };
        guest.write_u16(self.used_event(), self.event as u16);
    }

    fn reap(&mut self, guest: &mut Guest) -> Reaped {
        self.accept_suppression(guest);
        let old = self.used;
        let there = guest.read_u16(self.areas.device + 2);
        let count = u64::from(there.wrapping_sub(old as u16));
        assert!(count <= self.available - old, "{count} chains used of {}", self.available - old);
        guest.accept(self.areas.device + 2, 2);
        if count > 0 {
            guest.expect_logged(self.areas.device + 2, 2);
        }
        let mut used = Vec::new();
        while self.used < old + count {
            let entry = self.areas.device + 4 + 8 * self.slot(self.used);
            let before = used.len();
            self.take(guest.read_u32(entry), guest.read_u32(entry + 4), &mut used);
            guest.accept(entry, 8);
            guest.expect_logged(entry, 8);
            self.used += (used.len() - before) as u64;
        }
        assert_eq!(self.used, old + count, "the index lies in the middle of a batch");
        let call_due = count > 0
            && match self.event_idx {
                true => (old..self.used).contains(&self.event),
                false => self.mode != NotifyMode::Never,
            };
        Reaped { used, call_due }
    }

    fn accept_suppression(&self, guest: &mut Guest) {
        let flags = guest.read_u16(self.areas.device);
        let allowed = if self.event_idx { 0 } else { QUIET };
        assert!(flags & !allowed == 0, "the flags of the used ring are {flags:#x}");
        guest.accept(self.areas.device, 2);
        if self.event_idx {
            guest.accept(self.avail_event(), 2);
        }
    }

    fn position(&self) -> Position {
        Position::Split { avail: self.used as u16, used: self.used as u16 }
    }
}
