//! The rings as a naive program would have them, on a copy of the memory: no shared memory, and no attention to speed.

use crate::Side;

/// The memory of a session with one region, and one ring in it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) bytes: Vec<u8>,
    /// Where the ring begins.
    pub(super) ring: usize,
    pub(super) size: u16,
    pub(super) side: Side,
    /// The first buffer of a client, and the length of each.
    pub(super) buffers: Option<(usize, usize)>,
    /// The position of the next packet.
    pub(super) next: u16,
}

/// What happens to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Delivered(Vec<u8>),
    BadDescriptor,
    TooLong,
}

impl Model {
    fn half(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes[at..at + 2].try_into().unwrap())
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn theirs(&self) -> u16 {
        self.half(self.ring + if self.side == Side::Server { 6 } else { 64 })
    }

    fn publish(&mut self, ours: u16) {
        let at = self.ring + if self.side == Side::Server { 64 } else { 6 };
        self.set(at, &ours.to_ne_bytes());
    }

    fn descriptor(&self, position: u16) -> usize {
        self.ring + 128 + 16 * usize::from(position % self.size)
    }

    /// The place of a piece, if it is in the memory.
    fn piece(&self, position: u16) -> Option<std::ops::Range<usize>> {
        let at = self.descriptor(position);
        let length = self.word(at + 4) as usize;
        if let Some((first, each)) = self.buffers {
            let start = first + usize::from(position % self.size) * each;
            return (length <= each).then_some(start..start + length);
        }
        let start = self.word(at + 8) as usize;
        (self.half(at + 2) == 0 && start + length <= self.bytes.len()).then_some(start..start + length)
    }

    /// Receives until nothing is left. `None` if the other side's index cannot be.
    pub(super) fn receive_all(&mut self) -> Option<Vec<Fate>> {
        let end = self.theirs();
        if end.wrapping_sub(self.next) > self.size {
            return None;
        }
        let first = self.next;
        let mut fates = Vec::new();
        while self.next != end {
            let (mut packet, mut fate) = (Vec::new(), None);
            loop {
                match self.piece(self.next) {
                    _ if fate.is_some() => {}
                    None => fate = Some(Fate::BadDescriptor),
                    Some(place) if packet.len() + place.len() > 73_600 => fate = Some(Fate::TooLong),
                    Some(place) => packet.extend_from_slice(&self.bytes[place]),
                }
                let goes_on = self.half(self.descriptor(self.next)) & 1 != 0;
                self.next = self.next.wrapping_add(1);
                if !goes_on {
                    break;
                }
                if self.next == end {
                    fate.get_or_insert(Fate::BadDescriptor);
                    break;
                }
            }
            if packet.is_empty() {
                fate.get_or_insert(Fate::BadDescriptor);
            }
            fates.push(fate.unwrap_or(Fate::Delivered(packet)));
        }
        if self.side == Side::Server {
            self.publish(self.next);
        } else {
            self.offer(first);
        }
        Some(fates)
    }

    /// A client offers its buffers from a position up to the next packet's again.
    fn offer(&mut self, mut position: u16) {
        let Some((first, each)) = self.buffers else { return };
        while position != self.next {
            let at = self.descriptor(position);
            let start = first + usize::from(position % self.size) * each;
            self.write(at, 0, 0, each, start);
            position = position.wrapping_add(1);
        }
        self.publish(self.next.wrapping_add(self.size));
    }

    pub(super) fn write(&mut self, at: usize, flags: u16, region: u16, length: usize, start: usize) {
        self.set(at, &flags.to_ne_bytes());
        self.set(at + 2, &region.to_ne_bytes());
        self.set(at + 4, &(length as u32).to_ne_bytes());
        self.set(at + 8, &(start as u32).to_ne_bytes());
        self.set(at + 12, &[0; 4]);
    }

    /// Sends packets. Returns how many were taken, and whether an empty buffer or the index cannot be.
    pub(super) fn send(&mut self, packets: &[Vec<u8>]) -> (usize, bool) {
        let theirs = self.theirs();
        let distance = match self.side {
            Side::Server => theirs.wrapping_sub(self.next),
            Side::Client => self.next.wrapping_sub(theirs),
        };
        if distance > self.size {
            return (0, true);
        }
        let mut free = if self.side == Side::Server { distance } else { self.size - distance };
        let (mut taken, mut stops) = (0, false);
        'packets: for packet in packets {
            let (mut places, mut room) = (Vec::new(), 0);
            while room < packet.len() || places.is_empty() {
                if places.len() == usize::from(free) {
                    break 'packets;
                }
                let position = self.next.wrapping_add(places.len() as u16);
                if let Some((first, each)) = self.buffers {
                    let start = first + usize::from(position % self.size) * each;
                    places.push(start..start + each);
                } else if let Some(place) = self.piece(position).filter(|place| place.len() >= 64) {
                    places.push(place);
                } else {
                    stops = true;
                    break 'packets;
                }
                room += places.last().unwrap().len();
            }
            let mut rest = &packet[..];
            for place in places {
                let (part, others) = rest.split_at(rest.len().min(place.len()));
                self.set(place.start, part);
                let region = if self.buffers.is_some() { 0 } else { self.half(self.descriptor(self.next) + 2) };
                let at = self.descriptor(self.next);
                self.write(at, u16::from(!others.is_empty()), region, part.len(), place.start);
                self.next = self.next.wrapping_add(1);
                free -= 1;
                rest = others;
            }
            taken += 1;
        }
        self.publish(self.next);
        (taken, stops)
    }
}
