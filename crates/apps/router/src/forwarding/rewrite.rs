//! The rewriting of usual packets.

use bellows_packet::{Contents, Frames, FramesMut, Handles, Packet, Start};
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::adjacency::{AdjacencyState, Lines, Seen};
use bellows_vrf::{Adjacencies, Tag};

use super::family::{Family, Headers};
use super::header::ETHERNET;
use super::mixed::{KnownFacts, Places, rewrite_mixed};
use super::{BATCH, FEW, LookAhead, STEP, UNUSUAL};

/// What is read from a batch before anything is written. Loops use the room again and again.
pub struct RewriteBatch<F: Family> {
    hops: [F::Hops; BATCH],
    aged: [F::Hops; BATCH],
    heads: [Seen; BATCH],
    places: Places,
}

impl<F: Family> RewriteBatch<F> {
    pub fn new() -> Box<RewriteBatch<F>> {
        let hops = [F::Hops::default(); BATCH];
        Box::new(RewriteBatch { hops, aged: hops, heads: [Seen::default(); BATCH], places: Places::NONE })
    }
}

/// Where packets go.
#[derive(Clone, Copy)]
pub struct Ways<'a> {
    pub adjacencies: &'a Adjacencies,
    /// The output of each interface, by its number.
    pub outputs: &'a [u16],
    /// The output of packets whose sender is told about an error, or [`UNUSUAL`].
    pub error: u16,
    /// The output of packets whose next hop is to be resolved, or [`UNUSUAL`].
    pub resolve: u16,
}

impl Ways<'_> {
    /// The output of an interface. That of one which does not exist is not in the list. Hot.
    #[inline(always)]
    fn output(&self, interface: u16) -> u16 {
        self.outputs.get(usize::from(interface)).copied().unwrap_or(UNUSUAL)
    }
}

/// Rewrites packets to complete adjacencies without VLAN tags, and numbers them by their outputs. Of others, those of
/// usual floods may be tagged and numbered, too. Hot.
pub fn rewrite<F: Family>(
    simd: Simd,
    batch: &mut RewriteBatch<F>,
    packets: Contents<'_>,
    ahead: usize,
    ways: Ways<'_>,
    numbers: &mut [u16],
) {
    simd.run(Rewrite { batch, packets, ahead, ways, numbers });
}

struct Rewrite<'a, F: Family> {
    batch: &'a mut RewriteBatch<F>,
    packets: Contents<'a>,
    ahead: usize,
    ways: Ways<'a>,
    numbers: &'a mut [u16],
}

impl<F: Family> Loop for Rewrite<'_, F> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        let Rewrite { batch, mut packets, ahead, ways, numbers } = self;
        for (mut packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            // One by one, a few are quicker.
            let is_done = packets.packets().len() > FEW && batch.rewrite(&mut packets, ahead, ways, numbers);
            if !is_done {
                rewrite_each::<F>(&mut packets, ways, numbers);
            }
        }
    }
}

impl<F: Family> RewriteBatch<F> {
    /// Rewrites packets, unless one is shorter than its headers: then none has changed, and the result is false. Hot.
    #[inline(always)]
    fn rewrite(&mut self, packets: &mut Contents<'_>, ahead: usize, ways: Ways<'_>, numbers: &mut [u16]) -> bool {
        let Some((mut frames, handles)) = packets.frames::<F::Headers>() else { return false };
        let count = numbers.len();
        read_hops::<F>(&frames.frames(), ahead, &mut self.hops[..count]);
        if !self.rewrite_usual(&mut frames, handles, ahead, ways, numbers) {
            let RewriteBatch { hops, heads, places, .. } = self;
            let (hops, heads) = (&hops[..count], &mut heads[..count]);
            let (lines, first_tag) = (ways.adjacencies.lines(), first_tag(&frames));
            if Tag(handles.different).number() == 0 {
                heads.fill(lines.head(first_tag.number()));
            } else {
                read_heads(frames.packets(), ahead, lines, heads);
            }
            number(heads, ways, numbers);
            rewrite_mixed::<F>(&mut frames, &mut KnownFacts { hops, heads, numbers }, places, ways);
        }
        true
    }

    /// Rewrites packets, if all are usual. Otherwise no packet has changed its IP header, and the result is false. Hot.
    #[inline(always)]
    fn rewrite_usual(
        &mut self,
        frames: &mut FramesMut<'_, F::Headers>,
        handles: Handles,
        ahead: usize,
        ways: Ways<'_>,
        numbers: &mut [u16],
    ) -> bool {
        let lines = ways.adjacencies.lines();
        let first_tag = first_tag(frames);
        let is_usual =
            |shape: AdjacencyState| shape.is_usual() & (handles.longest <= ETHERNET + usize::from(shape.mtu()));
        let first = lines.head(first_tag.number());
        if (Tag(handles.least_tag).interface() == 0) | !is_usual(AdjacencyState::of(first)) {
            return false;
        }
        let count = numbers.len();
        let (hops, aged, heads) = (&self.hops[..count], &mut self.aged[..count], &mut self.heads[..count]);
        if !hops.iter().fold(true, |all, &hops| all & F::has_hops(hops)) {
            return false;
        }
        aged.iter_mut().zip(hops).for_each(|(aged, &hops)| *aged = F::aged(hops));
        if Tag(handles.different).number() == 0 {
            let output = ways.output(AdjacencyState::of(first).interface());
            let (header, is_same) = lines.header_of(first_tag.number(), first);
            if !is_same | (output == UNUSUAL) {
                return false;
            }
            for ((_, headers), &aged) in frames.iter_mut().zip(&*aged) {
                headers.set_ethernet(header);
                F::set_hops(headers, aged);
            }
            numbers.fill(output);
            return true;
        }
        read_heads(frames.packets(), ahead, lines, heads);
        if !heads.iter().fold(true, |all, &head| all & is_usual(AdjacencyState::of(head))) {
            return false;
        }
        number(heads, ways, numbers) && write_several::<F>(frames, lines, heads, hops, aged)
    }
}

/// The tag of the first packet.
#[inline(always)]
fn first_tag<S: Start>(frames: &FramesMut<'_, S>) -> Tag {
    frames.packets().first().map_or(Tag(0), |packet| Tag(packet.tag()))
}

/// Numbers packets by the outputs of their adjacencies. Returns whether all have one. Hot.
#[inline(always)]
fn number(heads: &[Seen], ways: Ways<'_>, numbers: &mut [u16]) -> bool {
    let interface = heads.first().map_or(0, |&head| AdjacencyState::of(head).interface());
    if heads.iter().fold(false, |any, &head| any | (AdjacencyState::of(head).interface() != interface)) {
        return number_by_interface(heads, ways, numbers);
    }
    let output = ways.output(interface);
    numbers.fill(output);
    output != UNUSUAL
}

/// As [`number`], for several interfaces. Hot.
#[inline(never)]
fn number_by_interface(heads: &[Seen], ways: Ways<'_>, numbers: &mut [u16]) -> bool {
    let mut have_outputs = true;
    for (head, number) in heads.iter().zip(numbers) {
        *number = ways.output(AdjacencyState::of(*head).interface());
        have_outputs &= *number != UNUSUAL;
    }
    have_outputs
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

/// Writes the headers of packets to several adjacencies. Returns false if adjacencies have changed since their heads were
/// read: then only Ethernet headers have been written. Hot.
#[inline(never)]
fn write_several<F: Family>(
    frames: &mut FramesMut<'_, F::Headers>,
    lines: Lines<'_>,
    heads: &[Seen],
    hops: &[F::Hops],
    aged: &[F::Hops],
) -> bool {
    let mut are_same = true;
    for (((tag, headers), &head), &aged) in frames.iter_mut().zip(heads).zip(aged) {
        let (header, is_same) = lines.header_of(Tag(tag).number(), head);
        headers.set_ethernet(header);
        F::set_hops(headers, aged);
        are_same &= is_same;
    }
    if !are_same {
        frames.iter_mut().zip(hops).for_each(|((_, headers), &hops)| F::set_hops(headers, hops));
    }
    are_same
}

/// Rewrites packets one by one.
#[inline(never)]
fn rewrite_each<F: Family>(packets: &mut Contents<'_>, ways: Ways<'_>, numbers: &mut [u16]) {
    for ((tag, frame), number) in packets.iter_mut().zip(numbers) {
        *number = rewrite_usual::<F>(Tag(tag), frame, ways);
    }
}

/// Rewrites a packet, if it is usual. Returns its output.
#[inline(always)]
fn rewrite_usual<F: Family>(tag: Tag, frame: &mut [u8], ways: Ways<'_>) -> u16 {
    let (words, shape) = ways.adjacencies.header(tag.number());
    let fits = frame.len() <= ETHERNET + usize::from(shape.mtu());
    let output = ways.output(shape.interface());
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
