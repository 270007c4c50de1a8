//! The bare loop: moves a ring's descriptors and its packets' bytes without the ring's checks.
//!
//! The memory is private memory of this process, which no driver can change, so nothing is checked and nothing is read
//! through atomics. The loop does only what every device must do: find the next chain and read its descriptors,
//! allocate or free the packet's buffer, copy, and mark the chain as used.

use std::hint::black_box;

use bellows_packet::{Packet, Template, Vector, free_all, push_filled};
use bellows_sys::clock;

use super::{Chain, Copies, RING, Ring};
use crate::slices::Sliced;
use crate::timing::lower_quartile;
use crate::workers::fail;

/// The number of entries of the ring, and the mask for positions.
const ENTRIES: usize = RING as usize;
const MASK: usize = ENTRIES - 1;

/// The bytes of a buffer, and the offset of the data if the header has its own descriptor.
const BUFFER: usize = 2_240;
const APART: usize = 64;

/// The longest header.
const HEADER: usize = 12;

/// A descriptor: buffer, offset and length.
#[derive(Clone, Copy, Default)]
struct Descriptor {
    buffer: u32,
    from: u32,
    length: u32,
    /// The owner in a packed ring, the next descriptor in a split one.
    word: u32,
}

/// The data in a buffer that begins with the header.
#[inline(always)]
fn behind_header(whole: Descriptor, header: u32) -> Descriptor {
    Descriptor { from: header, length: whole.length - header, ..whole }
}

/// A ring without a device, and the packets that go through it.
pub(super) struct BareRing {
    ring: Ring,
    batch: usize,
    descriptors: Box<[Descriptor; ENTRIES]>,
    /// The tables of indirect chains: header and data.
    tables: Box<[[Descriptor; 2]; ENTRIES]>,
    available: Box<[u32; ENTRIES]>,
    /// The used chains: heads and lengths.
    used: Box<[[u32; 2]; ENTRIES]>,
    /// The places of a batch's data.
    located: Box<[Descriptor; ENTRIES]>,
    /// The number of used chains.
    used_index: u32,
    buffers: Box<[[u8; BUFFER]; ENTRIES]>,
    /// The position of the next chain.
    next: usize,
    vector: Vector,
}

/// A table with the ring's number of entries.
fn entries<T: Clone + Default>(entry: T) -> Box<[T; ENTRIES]> {
    let all = vec![entry; ENTRIES].into_boxed_slice();
    all.try_into().unwrap_or_else(|_| unreachable!("it has as many entries"))
}

impl BareRing {
    pub(super) fn new(ring: Ring, batch: usize) -> BareRing {
        let buffers = vec![[0u8; BUFFER]; ENTRIES].into_boxed_slice();
        let mut bare = BareRing {
            ring,
            batch,
            descriptors: entries(Descriptor::default()),
            tables: entries([Descriptor::default(); 2]),
            available: entries(0),
            used: entries([0; 2]),
            located: entries(Descriptor::default()),
            used_index: 0,
            buffers: buffers.try_into().unwrap_or_else(|_| unreachable!("it has as many entries")),
            next: 0,
            vector: Vector::new(),
        };
        bare.lay_out();
        bare
    }

    /// The number of ring descriptors in a chain.
    fn step(&self) -> usize {
        if self.ring.chain == Chain::Chained { 2 } else { 1 }
    }

    /// Writes the driver's descriptors, which never change.
    fn lay_out(&mut self) {
        let header = self.ring.header();
        let room = (BUFFER - APART) as u32;
        for index in 0..ENTRIES {
            let buffer = (index / self.step()) as u32;
            let own = Descriptor { buffer, from: 0, length: header, word: (index as u32 + 1) & MASK as u32 };
            let data = Descriptor { from: APART as u32, length: room, ..own };
            self.tables[index] = [own, data];
            self.descriptors[index] = match self.ring.chain {
                Chain::Single => Descriptor { length: header + room, ..own },
                Chain::Chained if index % 2 == 1 => data,
                Chain::Chained | Chain::Indirect => own,
            };
        }
    }

    /// The driver's work for a batch: makes its chains available.
    fn make_available(&mut self) {
        let step = self.step();
        for number in 0..self.batch {
            let at = self.next + number * step;
            self.available[(self.next / step + number) & MASK] = (at & MASK) as u32;
        }
        black_box(&mut self.available);
    }

    /// Times some batches of this packet: clocks per packet of the loop, including allocating or freeing the buffers.
    pub(super) fn measure(&mut self, template: &Template, warm_up: usize, batches: usize) -> (f64, Sliced) {
        let packets = self.batch as u64;
        (0..warm_up).for_each(|_| {
            self.pass(template);
        });
        let times: Vec<f64> = (0..batches).map(|_| self.pass(template)).collect();
        let slices: Vec<(u64, f64)> = times.iter().map(|time| (packets, time * packets as f64)).collect();
        (lower_quartile(&times), Sliced::of(&slices))
    }

    /// One batch. Returns clocks per packet of the loop.
    fn pass(&mut self, template: &Template) -> f64 {
        self.make_available();
        if push_filled(&mut self.vector, self.batch, template) != self.batch {
            fail(&"the pool has too few packets");
        }
        if !self.ring.receive {
            self.send();
        }
        let start = clock::ticks();
        let count = self.call();
        if self.ring.receive {
            free_all(&mut self.vector);
        }
        let ticks = clock::ticks() - start;
        if count != self.batch {
            fail(&format!("the bare loop moved {count} instead of {} packets", self.batch));
        }
        free_all(&mut self.vector);
        ticks.saturating_sub(clock::cost()) as f64 / self.batch as f64
    }

    /// The driver's work for packets to transmit: writes them into its buffers.
    fn send(&mut self) {
        let packets = std::mem::replace(&mut self.vector, Vector::none());
        for (number, packet) in packets.as_slice().iter().enumerate() {
            let head = self.next + number * self.step();
            let Descriptor { buffer, from, .. } = self.data(head);
            self.buffers[buffer as usize & MASK][from as usize..][..packet.len()].copy_from_slice(packet.bytes());
            let length = packet.len() as u32;
            match self.ring.chain {
                Chain::Single => self.descriptors[head & MASK].length = self.ring.header() + length,
                Chain::Chained => self.descriptors[(head + 1) & MASK].length = length,
                Chain::Indirect => self.tables[buffer as usize & MASK][1].length = length,
            }
        }
        self.vector = packets;
        free_all(&mut self.vector);
    }

    /// Calls the loop for the ring's layout.
    fn call(&mut self) -> usize {
        match (self.ring.is_packed(), self.ring.chain) {
            (false, Chain::Single) => self.run::<false, 0>(),
            (false, Chain::Chained) => self.run::<false, 1>(),
            (false, Chain::Indirect) => self.run::<false, 2>(),
            (true, Chain::Single) => self.run::<true, 0>(),
            (true, Chain::Chained) => self.run::<true, 1>(),
            (true, Chain::Indirect) => self.run::<true, 2>(),
        }
    }

    /// The place of the data of the chain at a position.
    fn data(&self, head: usize) -> Descriptor {
        let first = self.descriptors[head & MASK];
        match self.ring.chain {
            Chain::Single => behind_header(first, self.ring.header()),
            Chain::Chained => self.descriptors[(head + 1) & MASK],
            Chain::Indirect => self.tables[first.buffer as usize & MASK][1],
        }
    }

    /// Moves a batch in the ring's direction. Returns the number of packets.
    #[inline(never)]
    fn run<const PACKED: bool, const CHAIN: u8>(&mut self) -> usize {
        let receives = self.ring.receive;
        let copies = self.ring.copies != Copies::None;
        match (receives, copies) {
            (true, true) => self.receive::<PACKED, CHAIN, true>(),
            (true, false) => self.receive::<PACKED, CHAIN, false>(),
            (false, true) => self.transmit::<PACKED, CHAIN, true>(),
            (false, false) => self.transmit::<PACKED, CHAIN, false>(),
        }
    }

    /// Reads the next chain: its head and its data.
    #[inline(always)]
    fn chain<const PACKED: bool, const CHAIN: u8>(&self, number: usize, header: u32) -> (usize, Descriptor) {
        let step = if CHAIN == 1 { 2 } else { 1 };
        let at = self.next + number * step;
        let head = if PACKED { at & MASK } else { self.available[(at / step) & MASK] as usize };
        let first = self.descriptors[head & MASK];
        let data = match CHAIN {
            0 => behind_header(first, header),
            1 => self.descriptors[(head + 1) & MASK],
            _ => self.tables[first.buffer as usize & MASK][1],
        };
        (head, data)
    }

    /// Marks a chain as used.
    #[inline(always)]
    fn complete<const PACKED: bool>(&mut self, head: usize, length: usize) {
        if PACKED {
            let descriptor = &mut self.descriptors[head & MASK];
            descriptor.word ^= 1 << 16;
        } else {
            self.used[self.used_index as usize & MASK] = [head as u32, length as u32];
            self.used_index = self.used_index.wrapping_add(1);
        }
    }

    /// To the driver.
    #[inline(always)]
    fn receive<const PACKED: bool, const CHAIN: u8, const COPIES: bool>(&mut self) -> usize {
        let own = self.ring.header();
        let header = own as usize;
        let vector = std::mem::replace(&mut self.vector, Vector::none());
        for (number, packet) in vector.as_slice().iter().enumerate() {
            let (head, data) = self.chain::<PACKED, CHAIN>(number, own);
            let buffer = &mut self.buffers[data.buffer as usize & MASK];
            if COPIES {
                buffer[..header].copy_from_slice(&[0; HEADER][..header]);
                let bytes = packet.bytes();
                buffer[data.from as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            self.complete::<PACKED>(head, header + packet.len());
        }
        self.vector = vector;
        self.end::<CHAIN>(self.vector.len())
    }

    /// From the driver.
    #[inline(always)]
    fn transmit<const PACKED: bool, const CHAIN: u8, const COPIES: bool>(&mut self) -> usize {
        let header = self.ring.header();
        let mut vector = std::mem::replace(&mut self.vector, Vector::none());
        let mut burst = Packet::allocate_burst(self.batch);
        for number in 0..self.batch {
            let (head, data) = self.chain::<PACKED, CHAIN>(number, header);
            let Some(packet) = burst.next_of(data.length as usize) else { break };
            let _ = vector.push(packet);
            self.located[number & MASK] = data;
            self.complete::<PACKED>(head, 0);
        }
        drop(burst);
        if COPIES {
            // A separate loop, because writing to a packet while it moves would force it from registers into memory.
            for (packet, data) in vector.as_mut_slice().iter_mut().zip(self.located.iter()) {
                let buffer = &self.buffers[data.buffer as usize & MASK];
                let bytes = packet.bytes_mut();
                bytes.copy_from_slice(&buffer[data.from as usize..][..bytes.len()]);
            }
        }
        self.vector = vector;
        self.end::<CHAIN>(self.vector.len())
    }

    /// Advances past some chains.
    #[inline(always)]
    fn end<const CHAIN: u8>(&mut self, chains: usize) -> usize {
        self.next += chains * if CHAIN == 1 { 2 } else { 1 };
        black_box((&mut self.used, &mut self.descriptors, &mut self.buffers, &mut self.used_index));
        chains
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_virtio::Features;

    fn ring(receive: bool, packed: bool, chain: Chain) -> Ring {
        let layout = if packed { Features::RING_PACKED } else { Features::NONE };
        Ring { receive, features: (layout | Features::VERSION_1).0, chain, copies: Copies::Blitter }
    }

    /// Each packet's bytes are where the driver expects them, in every layout, also after wrapping around the ring.
    #[test]
    fn the_bare_loop_moves_every_byte() {
        clock::calibrate();
        let bytes: Vec<u8> = (0..=255).cycle().take(700).collect();
        let template = Template::new(&bytes).unwrap();
        for chain in Chain::ALL {
            for packed in [false, true] {
                let mut bare = BareRing::new(ring(true, packed, chain), 100);
                (0..7).for_each(|_| assert!(bare.pass(&template) >= 0.0));
                let step = bare.step();
                assert_eq!((bare.next, bare.used_index), (700 * step, if packed { 0 } else { 700 }));
                for number in 0..ENTRIES / step {
                    let data = bare.data(number * step);
                    let buffer = &bare.buffers[data.buffer as usize];
                    assert_eq!(buffer[data.from as usize..][..bytes.len()], bytes, "{chain:?} {packed} {number}");
                }

                let mut bare = BareRing::new(ring(false, packed, chain), 100);
                for _ in 0..7 {
                    bare.make_available();
                    assert_eq!(push_filled(&mut bare.vector, 100, &template), 100);
                    bare.send();
                    assert_eq!(bare.call(), 100);
                    let packets = bare.vector.as_slice();
                    assert!(packets.len() == 100 && packets.iter().all(|packet| packet.bytes() == bytes));
                    free_all(&mut bare.vector);
                }
            }
        }
    }
}
