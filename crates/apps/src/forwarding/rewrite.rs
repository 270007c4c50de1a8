//! The rewriting of usual packets.

use std::marker::PhantomData;

use bellows_packet::{Contents, Frames, FramesMut, Packet};
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::adjacency::{Lines, Seen, Shape};
use bellows_vrf::{Adjacencies, Tag};

use super::family::{Family, Headers};
use super::header::ETHERNET;
use super::{BATCH, LookAhead, STEP, UNUSUAL};

/// Rewrites packets to complete adjacencies without VLAN tags, and numbers them by their outputs. Hot.
pub fn rewrite<F: Family>(
    simd: Simd,
    packets: Contents<'_>,
    ahead: usize,
    adjacencies: &Adjacencies,
    outputs: &[u16],
    numbers: &mut [u16],
) {
    simd.run(Rewrite::<F> { packets, ahead, adjacencies, outputs, numbers, family: PhantomData });
}

struct Rewrite<'a, F> {
    packets: Contents<'a>,
    ahead: usize,
    adjacencies: &'a Adjacencies,
    outputs: &'a [u16],
    numbers: &'a mut [u16],
    family: PhantomData<F>,
}

impl<F: Family> Loop for Rewrite<'_, F> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        let Rewrite { mut packets, ahead, adjacencies, outputs, numbers, .. } = self;
        for (mut packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            if !rewrite_together::<F>(&mut packets, ahead, adjacencies, outputs, numbers) {
                rewrite_each::<F>(&mut packets, adjacencies, outputs, numbers);
            }
        }
    }
}

/// Rewrites the packets of a batch, if all are usual and leave by the same interface. Otherwise no packet has changed its
/// IP header, and the result is false. Hot.
#[inline(always)]
fn rewrite_together<F: Family>(
    packets: &mut Contents<'_>,
    ahead: usize,
    adjacencies: &Adjacencies,
    outputs: &[u16],
    numbers: &mut [u16],
) -> bool {
    let lines = adjacencies.lines();
    let first_tag = packets.packets().first().map_or(Tag(0), |packet| Tag(packet.tag()));
    let Some((mut frames, handles)) = packets.frames::<F::Headers>() else { return false };
    let first = lines.head(first_tag.number());
    let interface = Shape::of(first).interface();
    // That of an interface which does not exist is not in the list.
    let output = outputs.get(usize::from(interface)).copied().unwrap_or(UNUSUAL);
    let is_received = Tag(handles.least_tag).interface() != 0;
    let is_usual = |shape: Shape| {
        shape.is_usual() & (handles.longest <= ETHERNET + usize::from(shape.mtu())) & (shape.interface() == interface)
    };
    if !is_received | (output == UNUSUAL) | !is_usual(Shape::of(first)) {
        return false;
    }
    let mut hops = [F::Hops::default(); BATCH];
    let hops = &mut hops[..frames.packets().len()];
    read_hops::<F>(&frames.frames(), ahead, hops);
    if !hops.iter().fold(true, |all, &hops| all & F::has_hops(hops)) {
        return false;
    }
    hops.iter_mut().for_each(|hops| *hops = F::aged(*hops));
    if Tag(handles.different).number() == 0 {
        let (header, is_same) = lines.header_of(first_tag.number(), first);
        if !is_same {
            return false;
        }
        for ((_, headers), &hops) in frames.iter_mut().zip(&*hops) {
            headers.set_ethernet(header);
            F::set_hops(headers, hops);
        }
    } else {
        let mut heads = [first; BATCH];
        let heads = &mut heads[..hops.len()];
        read_heads(frames.packets(), ahead, lines, heads);
        if !heads.iter().fold(true, |all, &head| all & is_usual(Shape::of(head))) {
            return false;
        }
        if !write_mixed::<F>(&mut frames, lines, heads, hops) {
            return false;
        }
    }
    numbers.fill(output);
    true
}

// Loops of loads from many places are apart, because compilers make gathers of them where they can, which take longer.

/// Reads the hops of packets. Hot.
#[inline(never)]
fn read_hops<F: Family>(frames: &Frames<'_, F::Headers>, ahead: usize, hops: &mut [F::Hops]) {
    let mut look_ahead = LookAhead::begin(frames.packets(), ahead, Packet::prefetch);
    for (frames, hops) in frames.chunks(STEP).zip(hops.chunks_mut(STEP)) {
        look_ahead.step(Packet::prefetch);
        frames.iter().zip(hops).for_each(|(headers, hops)| *hops = F::hops(headers));
    }
}

/// Reads the heads of the adjacencies of packets. Hot.
#[inline(never)]
fn read_heads(packets: &[Packet], ahead: usize, lines: Lines<'_>, heads: &mut [Seen]) {
    let number = |packet: &Packet| Tag(packet.tag()).number();
    let prefetch = |packet: &Packet| lines.prefetch(number(packet));
    let mut look_ahead = LookAhead::begin(packets, ahead, prefetch);
    for (packets, heads) in packets.chunks(STEP).zip(heads.chunks_mut(STEP)) {
        look_ahead.step(prefetch);
        packets.iter().zip(heads).for_each(|(packet, head)| *head = lines.head(number(packet)));
    }
}

/// Writes the headers of packets to several adjacencies. Returns false if the adjacencies have changed since their heads
/// were read: then only Ethernet headers have been written. Hot.
#[inline(never)]
fn write_mixed<F: Family>(
    frames: &mut FramesMut<'_, F::Headers>,
    lines: Lines<'_>,
    heads: &[Seen],
    hops: &[F::Hops],
) -> bool {
    let mut are_same = true;
    for (((tag, headers), &head), &hops) in frames.iter_mut().zip(heads).zip(hops) {
        let (header, is_same) = lines.header_of(Tag(tag).number(), head);
        headers.set_ethernet(header);
        F::set_hops(headers, hops);
        are_same &= is_same;
    }
    are_same
}

/// Rewrites packets one by one.
#[inline(never)]
fn rewrite_each<F: Family>(
    packets: &mut Contents<'_>,
    adjacencies: &Adjacencies,
    outputs: &[u16],
    numbers: &mut [u16],
) {
    for ((tag, frame), number) in packets.iter_mut().zip(numbers) {
        *number = rewrite_usual::<F>(Tag(tag), frame, adjacencies, outputs);
    }
}

/// Rewrites a packet, if it is usual. Returns its output.
#[inline(always)]
fn rewrite_usual<F: Family>(tag: Tag, frame: &mut [u8], adjacencies: &Adjacencies, outputs: &[u16]) -> u16 {
    let (words, shape) = adjacencies.header(tag.number());
    let fits = frame.len() <= ETHERNET + usize::from(shape.mtu());
    // That of an interface which does not exist is not in the list.
    let output = outputs.get(usize::from(shape.interface())).copied().unwrap_or(UNUSUAL);
    let is_usual = shape.is_usual() & fits & (tag.interface() != 0) & (output != UNUSUAL);
    match F::Headers::of_mut(frame) {
        Some(headers) if is_usual => {
            if !F::age(headers) {
                return UNUSUAL;
            }
            headers.set_ethernet(words);
            output
        }
        _ => UNUSUAL,
    }
}
