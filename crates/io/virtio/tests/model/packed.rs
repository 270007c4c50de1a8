//! The driver's side of a packed ring (specification, 2.8).

use std::collections::VecDeque;

use bellows_virtio::Features;
use bellows_virtio::ring::{Areas, Position};

use super::chains::{Chain, Piece};
use super::flag::{AVAIL, INDIRECT, NEXT, USED, WRITE};
use super::guest::Guest;
use super::random::Random;
use super::{Driver, NotifyMode, Reaped, Used, descriptor};

/// The values of the event structures (2.8.14).
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const AT_DESCRIPTOR: u16 = 2;

pub struct PackedDriver {
    areas: Areas,
    size: u64,
    event_idx: bool,
    in_order: bool,
    /// Chains that the device has, the oldest first: id and number of descriptors.
    outstanding: VecDeque<(u16, u64)>,
    /// Chains that were added but not made available: the position of the head, and the flags that make it available.
    hidden: Vec<(u64, u16)>,
    random: Random,
    /// Descriptors, counted from a start at position 0 with a wrap counter of 1: added, made available, and used.
    added: u64,
    available: u64,
    used: u64,
    mode: NotifyMode,
    /// The descriptor whose use triggers a notification: the number of those before it.
    event: u64,
}

impl PackedDriver {
    pub fn new(guest: &mut Guest, features: Features, size: u16, random: &mut Random) -> PackedDriver {
        let areas = Areas {
            descriptors: guest.area(16 * usize::from(size), 16, random),
            driver: guest.area(4, 4, random),
            device: guest.area(4, 4, random),
        };
        // Two rounds are added so that earlier descriptors can be counted too.
        let start = 2 * u64::from(size);
        let start = start + if random.one_in(2) { 0 } else { random.between(0, 2 * usize::from(size) - 1) as u64 };
        let mut driver = PackedDriver {
            areas,
            size: size.into(),
            event_idx: features.has(Features::EVENT_IDX),
            in_order: features.has(Features::IN_ORDER),
            outstanding: VecDeque::new(),
            hidden: Vec::new(),
            random: Random::new(random.next()),
            added: start,
            available: start,
            used: start,
            mode: NotifyMode::Always,
            event: start,
        };
        driver.write_past(guest);
        driver.set_notify_mode(guest, NotifyMode::Always);
        driver
    }

    /// The descriptors of a ring that has moved here look as the last round has left them: used.
    fn write_past(&mut self, guest: &mut Guest) {
        for count in self.used - self.size..self.used {
            let flags = if self.wrap(count) { AVAIL | USED } else { 0 };
            let bytes = descriptor(self.random.next(), self.random.word().into(), [self.random.word(), flags]);
            guest.write(self.place(count), &bytes);
        }
    }

    fn place(&self, count: u64) -> u64 {
        self.areas.descriptors + 16 * (count % self.size)
    }

    /// The wrap counter in the round of a descriptor: 1 in the first.
    fn wrap(&self, count: u64) -> bool {
        (count / self.size).is_multiple_of(2)
    }

    /// A descriptor's position as in event structures: index and wrap counter.
    fn position_word(&self, count: u64) -> u16 {
        (count % self.size) as u16 | u16::from(self.wrap(count)) << 15
    }

    /// An id of no chain that the device has.
    fn new_id(&mut self) -> u16 {
        loop {
            let id = self.random.word();
            if self.outstanding.iter().all(|(other, _)| *other != id) {
                return id;
            }
        }
    }

    /// Reads one used descriptor: the chains that it gives back.
    fn take(&mut self, id: u16, flags: u16, length: u32, used: &mut Vec<Used>) {
        let position = self.outstanding.iter().position(|(other, _)| *other == id);
        let position = position.unwrap_or_else(|| panic!("chain {id} came back, which was not there"));
        // With in-order one descriptor may stand for all chains up to this one. Without, each has its own.
        let first = if self.in_order { 0 } else { position };
        for number in first..=position {
            let (id, descriptors) = self.outstanding.remove(first).expect("found above");
            // Only a descriptor marked as written has a length.
            let length = if flags & WRITE != 0 { length } else { 0 };
            used.push(Used { id, length: (number == position).then_some(length) });
            self.used += descriptors;
        }
    }
}

impl Driver for PackedDriver {
    fn areas(&self) -> Areas {
        Areas { ..self.areas }
    }

    fn free(&self) -> usize {
        (self.size - (self.added - self.used)) as usize
    }

    fn add(&mut self, guest: &mut Guest, chain: &Chain) -> u16 {
        let id = self.new_id();
        let access = if chain.writable { WRITE } else { 0 };
        let table = chain.table.as_ref().map(|table| (table.place, INDIRECT));
        let parts: Vec<(Piece, u16)> = chain.direct.iter().map(|&piece| (piece, access)).chain(table).collect();
        for (number, &(piece, flags)) in parts.iter().enumerate() {
            let last = number + 1 == parts.len();
            let state = if self.wrap(self.added) { AVAIL } else { USED };
            let flags = flags | state | if last { 0 } else { NEXT };
            // The last descriptor has the chain's id.
            let word = if last { id } else { self.random.word() };
            let place = self.place(self.added);
            if number > 0 {
                guest.write(place, &descriptor(piece.address, piece.length, [word, flags]));
            } else {
                // Until it is published the head looks as the device left it.
                let before = guest.read_u16(place + 14);
                guest.write(place, &descriptor(piece.address, piece.length, [word, before]));
                self.hidden.push((place, flags));
            }
            self.added += 1;
        }
        self.outstanding.push_back((id, parts.len() as u64));
        id
    }

    fn publish(&mut self, guest: &mut Guest) -> bool {
        // The first head last, so that the device sees all or nothing.
        for (place, flags) in self.hidden.drain(..).rev() {
            guest.write_u16(place + 14, flags);
        }
        let (old, new) = (self.available, self.added);
        self.available = new;
        self.accept_suppression(guest);
        let at = guest.read_u16(self.areas.device);
        match guest.read_u16(self.areas.device + 2) {
            ENABLE => new > old,
            DISABLE => false,
            _ => (old..new).any(|count| self.position_word(count) == at),
        }
    }

    fn set_notify_mode(&mut self, guest: &mut Guest, mode: NotifyMode) {
        self.mode = mode;
        let (event, flags) = match mode {
            NotifyMode::Always => (self.used, ENABLE),
            NotifyMode::Never => (self.used, DISABLE),
            NotifyMode::After(count) => (self.used + u64::from(count) % self.size, AT_DESCRIPTOR),
            NotifyMode::Passed(count) => (self.used - 1 - u64::from(count) % self.size, AT_DESCRIPTOR),
        };
        self.event = event;
        guest.write_u16(self.areas.driver, self.position_word(event));
        guest.write_u16(self.areas.driver + 2, flags);
    }

    fn reap(&mut self, guest: &mut Guest) -> Reaped {
        self.accept_suppression(guest);
        let old = self.used;
        let mut used = Vec::new();
        while self.used < self.available {
            let place = self.place(self.used);
            let flags = guest.read_u16(place + 14);
            let expected = if self.wrap(self.used) { AVAIL | USED } else { 0 };
            if flags & (AVAIL | USED) != expected {
                break;
            }
            let (id, length) = (guest.read_u16(place + 12), guest.read_u32(place + 8));
            guest.accept(place, 16);
            guest.expect_logged(place, 16);
            self.take(id, flags, length, &mut used);
        }
        let call_due = self.used > old
            && match self.mode {
                NotifyMode::Always => true,
                NotifyMode::Never => false,
                NotifyMode::After(_) | NotifyMode::Passed(_) => (old..self.used).contains(&self.event),
            };
        Reaped { used, call_due }
    }

    fn accept_suppression(&self, guest: &mut Guest) {
        let flags = guest.read_u16(self.areas.device + 2);
        let most = if self.event_idx { AT_DESCRIPTOR } else { DISABLE };
        assert!(flags <= most, "the device's event structure has the flags {flags:#x}");
        guest.accept(self.areas.device, 4);
    }

    fn position(&self) -> Position {
        let (index, wrap) = ((self.used % self.size) as u16, self.wrap(self.used));
        Position::Packed { avail: index, avail_wrap: wrap, used: index, used_wrap: wrap }
    }
}
