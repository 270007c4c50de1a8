//! The first bytes of all packets of a vector, for loops without a branch for each length.

use std::marker::PhantomData;

use crate::packet::{LENGTH_MASK, Packet};

/// An array of bytes at the start of each packet.
pub trait Start: sealed::Array {
    /// Its length.
    const LENGTH: usize;
}

impl<const N: usize> Start for [u8; N] {
    const LENGTH: usize = N;
}

mod sealed {
    /// Types of which any bytes are a value, and whose alignment is 1.
    pub trait Array: 'static {}

    impl<const N: usize> Array for [u8; N] {}
}

/// What the handles of packets say, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handles {
    /// The length of the shortest packet, bytes; the highest number if there is none.
    pub shortest: usize,
    /// The length of the longest packet, bytes.
    pub longest: usize,
    /// The least tag.
    pub least_tag: u32,
    /// The bits in which tags differ.
    pub different: u32,
}

impl Handles {
    /// Those of packets. Hot: to be called in a [loop for the processor](bellows_sys::simd::Loop).
    #[inline(always)]
    pub fn of(packets: &[Packet]) -> Handles {
        let mut least = u64::MAX;
        let (mut all, mut any) = (u64::MAX, 0_u64);
        let (mut shortest, mut longest) = (u32::MAX, 0_u32);
        for word in packets.iter().map(Packet::word) {
            (least, all, any) = (least.min(word), all & word, any | word);
            let length = (word & LENGTH_MASK) as u32;
            (shortest, longest) = (shortest.min(length), longest.max(length));
        }
        let tag = |word: u64| (word >> 32) as u32;
        Handles {
            shortest: shortest as usize,
            longest: longest as usize,
            least_tag: tag(least),
            different: tag(any & !all),
        }
    }
}

/// Packets that begin with an `S` each.
#[derive(Debug)]
pub struct Frames<'p, S> {
    /// Each has the bytes of an `S`.
    packets: &'p [Packet],
    start: PhantomData<S>,
}

impl<'p, S: Start> Frames<'p, S> {
    /// The packets, unless one of them is shorter. Hot.
    #[inline(always)]
    pub fn of(packets: &'p [Packet]) -> Option<Frames<'p, S>> {
        let shortest = packets.iter().fold(u32::MAX, |shortest, packet| shortest.min(packet.len() as u32));
        (shortest as usize >= S::LENGTH).then_some(Frames { packets, start: PhantomData })
    }

    /// As [`Frames::of`], and writes the length of each packet to its place, up to the end of `lengths`. Hot.
    #[inline(always)]
    pub fn with_lengths(packets: &'p [Packet], lengths: &mut [u32]) -> Option<Frames<'p, S>> {
        let packets = &packets[..lengths.len().min(packets.len())];
        let shortest = packets.iter().zip(lengths).fold(u32::MAX, |shortest, (packet, length)| {
            *length = packet.len() as u32;
            shortest.min(*length)
        });
        (shortest as usize >= S::LENGTH).then_some(Frames { packets, start: PhantomData })
    }

    /// The packets.
    #[inline(always)]
    pub fn packets(&self) -> &'p [Packet] {
        self.packets
    }

    /// Chunks of `count` packets; the last one may have fewer. Hot.
    #[inline(always)]
    pub fn chunks(&self, count: usize) -> impl ExactSizeIterator<Item = Frames<'p, S>> + use<'p, S> {
        self.packets.chunks(count).map(|packets| Frames { packets, start: PhantomData })
    }

    /// The start of each packet. Hot.
    #[inline(always)]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'p S> + use<'p, S> {
        self.packets.iter().map(|packet| {
            // SAFETY: the packet has at least S::LENGTH bytes, as every constructor has checked, and its handle cannot
            // change while it is borrowed. S is an array of so many bytes.
            unsafe { &*packet.start().as_ptr().cast::<S>() }
        })
    }
}

/// Packets whose bytes and tags may change, but not their lengths.
#[derive(Debug)]
pub struct Contents<'p>(&'p mut [Packet]);

impl<'p> Contents<'p> {
    /// Those of packets.
    #[inline(always)]
    pub fn of(packets: &'p mut [Packet]) -> Contents<'p> {
        Contents(packets)
    }

    /// The packets, to be read.
    #[inline(always)]
    pub fn packets(&self) -> &[Packet] {
        self.0
    }

    /// Chunks of `count` packets; the last one may have fewer. Hot.
    #[inline(always)]
    pub fn chunks(&mut self, count: usize) -> impl ExactSizeIterator<Item = Contents<'_>> {
        self.0.chunks_mut(count).map(Contents)
    }

    /// The tag and the bytes of each packet. Hot.
    #[inline(always)]
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (u32, &mut [u8])> {
        self.0.iter_mut().map(|packet| (packet.tag(), packet.bytes_mut()))
    }

    /// Sets the tag of each packet to what `change` makes of it. Hot.
    #[inline(always)]
    pub fn set_tags(&mut self, mut change: impl FnMut(&Packet) -> u32) {
        for packet in &mut *self.0 {
            let tag = change(packet);
            packet.set_tag(tag);
        }
    }

    /// As [`Contents::set_tags`], with a value for each packet. Hot.
    #[inline(always)]
    pub fn set_tags_with<T: Copy>(&mut self, values: &[T], mut change: impl FnMut(u32, T) -> u32) {
        self.0.iter_mut().zip(values).for_each(|(packet, &value)| packet.set_tag(change(packet.tag(), value)));
    }

    /// The first bytes, unless a packet is shorter, and what the handles say. Hot.
    #[inline(always)]
    pub fn frames<S: Start>(&mut self) -> Option<(FramesMut<'_, S>, Handles)> {
        let handles = Handles::of(self.0);
        (handles.shortest >= S::LENGTH).then_some((FramesMut { packets: self.0, start: PhantomData }, handles))
    }

    /// As [`Contents::frames`], and writes the length of each packet to its place. There are none either if a packet has a
    /// tag below `least_tag`, or if there are fewer places than packets. Hot.
    #[inline(always)]
    pub fn frames_with_lengths<S: Start>(&mut self, lengths: &mut [u32], least_tag: u32) -> Option<FramesMut<'_, S>> {
        let lengths = lengths.get_mut(..self.0.len())?;
        let (mut shortest, mut least) = (u32::MAX, u64::MAX);
        for (packet, length) in self.0.iter().zip(lengths) {
            *length = packet.len() as u32;
            shortest = shortest.min(*length);
            least = least.min(packet.word());
        }
        let are_usual = (shortest as usize >= S::LENGTH) & ((least >> 32) as u32 >= least_tag);
        are_usual.then_some(FramesMut { packets: self.0, start: PhantomData })
    }
}

/// Packets that begin with an `S` each, which may change.
#[derive(Debug)]
pub struct FramesMut<'p, S> {
    /// Each has the bytes of an `S`.
    packets: &'p mut [Packet],
    start: PhantomData<S>,
}

impl<S: Start> FramesMut<'_, S> {
    /// The packets, to be read.
    #[inline(always)]
    pub fn packets(&self) -> &[Packet] {
        self.packets
    }

    /// The same, to be read.
    #[inline(always)]
    pub fn frames(&self) -> Frames<'_, S> {
        Frames { packets: self.packets, start: PhantomData }
    }

    /// The tag and the start of each packet, which can be changed in place. Hot.
    #[inline(always)]
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (u32, &mut S)> {
        self.packets.iter_mut().map(|packet| {
            // SAFETY: the packet has at least S::LENGTH bytes, as the constructor has checked; its handle is borrowed
            // exclusively as long as these bytes are, and it owns its buffer alone. S is an array of so many bytes.
            (packet.tag(), unsafe { &mut *packet.start().as_ptr().cast::<S>() })
        })
    }

    /// The tag and the start of one packet, which can be changed in place. Hot.
    ///
    /// # Panics
    /// If there is no such packet.
    #[inline(always)]
    pub fn at_mut(&mut self, place: usize) -> (u32, &mut S) {
        let packet = &mut self.packets[place];
        // SAFETY: as in `iter_mut`.
        (packet.tag(), unsafe { &mut *packet.start().as_ptr().cast::<S>() })
    }

    /// Sets the tag of one packet. Hot.
    ///
    /// # Panics
    /// If there is no such packet.
    #[inline(always)]
    pub fn set_tag(&mut self, place: usize, tag: u32) {
        self.packets[place].set_tag(tag);
    }
}
