//! The rewriting of both families: `ip4-rewrite` and `ip6-rewrite`.
//!
//! There are three versions of one decision, which property tests hold together: `RewriteBatch` for a batch (`mixed` if
//! not all of its packets are usual), `rewrite_each` for a few packets, and `rewrite_unusual`, which decides with care
//! about any packet.

mod mixed;
pub(crate) mod redirect;

use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_common::nexts::{Next, NextVectors};
use bellows_common::segmentation::kind_of;
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, DropReason, Io, Port, Ports, counters};
use bellows_packet::{Contents, Frames, FramesMut, Handles, Offload, Packet, Start};
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::adjacency::{AdjacencyKind, AdjacencyState, AdjacencyTable, MAX_HEADER, SeqSnapshot};
use bellows_vrf::{Adjacencies, IcmpError, IpFamily, Reason, Tag};
use bellows_wire::offload::GsoPacket;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::{BATCH, FEW, Family, Headers, LookAhead, Refusal, STEP, UNUSUAL, V4, V6, set_header};
use crate::router_bench::{Behind, OUT, row};
use crate::vrf::RoutingDomain;

use mixed::{KnownFacts, rewrite_mixed};
pub(crate) use mixed::{Places, diverted};
use redirect::Redirects;

/// Sends packets to their next hops: takes a hop off the time to live or hop limit, and writes the Ethernet header of
/// the packet's adjacency, with the VLAN tags of its interface.
///
/// Outputs have the names of ports; packets of a port without an output are dropped. Four outputs have other meanings.
/// `error` gets packets whose sender is to be told that their time is exceeded, that they are too long, or that they
/// would leave the link to which their link-local source belongs (RFC 4443, section 3.1), and copies of packets whose
/// sender has a better first hop on its link. `resolve` gets packets to neighbours whose Ethernet address is not known,
/// `resolve6` those of IPv4 whose next hop has an IPv6 address.
/// `fragment` gets packets that are too long and may be fragmented: of IPv6 those of the router itself; their fragments
/// come back to the input `fragments`, so that they are not checked again as the packet was. If they are not linked,
/// these packets are dropped. Packets of the router itself lose no hop.
///
/// With `prefetch`, the app looks ahead for the first cache lines of packets and for their adjacencies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,
}

/// Sends packets to their next hops.
pub struct Rewrite<F: Family> {
    domain: Arc<RoutingDomain>,
    /// The output of each interface, by its number.
    outputs: Vec<u16>,
    error: Option<u16>,
    resolve: Option<u16>,
    resolve6: Option<u16>,
    fragment: Option<u16>,
    redirects: Redirects,
    next_vectors: NextVectors,
    batch: Box<RewriteBatch<F>>,
}

/// Sends IPv4 packets to their next hops.
pub type Ip4Rewrite = Rewrite<V4>;

/// Sends IPv6 packets to their next hops.
pub type Ip6Rewrite = Rewrite<V6>;

counters! { for[F: Family] Rewrite<F>;
    drop TIME_EXCEEDED = "time_exceeded", "packets whose time to live or hop limit ran out, if `error` is not linked";
    drop TOO_BIG = "too_big", "packets longer than the link's MTU, if `error` or `fragment` is not linked";
    drop UNRESOLVED = "unresolved", "packets to neighbours whose Ethernet address is not known, if `resolve` or `resolve6` is not linked";
    drop SOURCE_SCOPE = "source_scope", "packets whose source is loopback, multicast or unspecified, or link-local if `error` is not linked or for IPv4";
    drop NO_ADJACENCY = "no_adjacency", "packets whose adjacency has gone";
    drop NO_OUTPUT = "no_output", "packets for a port that is not linked";
    drop NO_HEADROOM = "no_headroom", "packets without room for the VLAN tags of their interface";
    drop TOO_SHORT = "too_short", "packets without a whole header";
    count UNMADE = "unmade", "packets with redirects that were not made because the pool had no buffer";
}

impl<F: Family> App for Rewrite<F> {
    const INPUTS: Ports = Ports::Named(&[
        Port::required("input", "packets tagged with their adjacencies"),
        Port::optional("fragments", "as `input`: what `fragment` makes of packets that were too long"),
    ]);
    const OUTPUTS: Ports =
        Ports::Any { at_least: 1, help: "frames of a port; `error`, `resolve`, `fragment`, `resolve6`" };
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        if self.outputs.is_empty() {
            self.rewire(io);
        }
        for index in io.waiting_inputs() {
            self.send(io, index);
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
    }
}

/// The outputs that are not ports.
struct Exits {
    error: Option<u16>,
    resolve: Option<u16>,
    resolve6: Option<u16>,
    fragment: Option<u16>,
}

impl<F: Family> Rewrite<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> Rewrite<F> {
        Rewrite {
            domain,
            outputs: Vec::new(),
            error: None,
            resolve: None,
            resolve6: None,
            fragment: None,
            redirects: Redirects::default(),
            next_vectors: NextVectors::new(),
            batch: RewriteBatch::new(),
        }
    }

    /// Sends the packets of an input. Hot.
    #[inline]
    fn send(&mut self, io: &Io<Self>, index: usize) {
        let mut input = io.input(index);
        if input.is_empty() {
            return;
        }
        if let Some(error) = self.error {
            let packets = input.packets();
            let adjacency = |place: usize| Tag(packets[place].tag()).number();
            let unmade = self.redirects.look(io, &self.domain, packets, adjacency, error);
            io.count(Self::UNMADE, unmade);
        }
        let Rewrite { error, resolve, resolve6, fragment, .. } = *self;
        let Rewrite { domain, outputs, next_vectors, batch, .. } = self;
        let vrf = domain.tables();
        let packets = input.contents_mut();
        let numbers = next_vectors.nexts(packets.packets().len());
        let (adjacencies, outputs) = (vrf.adjacencies(), &outputs[..]);
        let [to_error, to_resolve] = [error, resolve].map(|output| output.unwrap_or(UNUSUAL));
        let targets = RewriteTargets { adjacencies, outputs, error: to_error, resolve: to_resolve };
        rewrite(Simd::chosen(), batch, packets, io.prefetch(), targets, numbers);
        let ends = Exits { error, resolve, resolve6, fragment };
        self.next_vectors.send_all(io, index, input, |packet| rewrite_unusual(packet, adjacencies, outputs, &ends));
    }

    /// Finds the outputs of the interfaces.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        self.outputs = outputs_of_interfaces(io, &self.domain);
        [self.error, self.resolve, self.fragment, self.resolve6] =
            ["error", "resolve", "fragment", "resolve6"].map(|name| find_output(io, name));
        self.next_vectors.resize(io.outputs());
    }
}

/// The number of the output of a name.
pub(crate) fn find_output<A: App>(io: &Io<A>, name: &str) -> Option<u16> {
    (0..io.outputs()).find(|&output| io.output_name(output) == Some(name)).map(|at| at as u16)
}

/// The outputs of the interfaces of a routing domain by their numbers, or [`UNUSUAL`].
pub(crate) fn outputs_of_interfaces<A: App>(io: &Io<A>, domain: &RoutingDomain) -> Vec<u16> {
    let interfaces = domain.tables().interfaces().iter();
    // There is no interface 0.
    std::iter::once(UNUSUAL).chain(interfaces.map(|it| find_output(io, &it.port).unwrap_or(UNUSUAL))).collect()
}

/// What is read from a batch before anything is written. Loops use the room again and again.
pub(crate) struct RewriteBatch<F: Family> {
    ttl_words: [F::TtlWords; BATCH],
    decremented: [F::TtlWords; BATCH],
    state_words: [SeqSnapshot; BATCH],
}

impl<F: Family> RewriteBatch<F> {
    pub(crate) fn new() -> Box<RewriteBatch<F>> {
        let ttl_words = [F::TtlWords::default(); BATCH];
        Box::new(RewriteBatch { ttl_words, decremented: ttl_words, state_words: [SeqSnapshot::default(); BATCH] })
    }
}

/// The adjacencies and outputs of a rewrite.
#[derive(Clone, Copy)]
pub(crate) struct RewriteTargets<'a> {
    pub(crate) adjacencies: &'a Adjacencies,
    /// The output of each interface, by its number.
    pub(crate) outputs: &'a [u16],
    /// The output of packets whose sender is told about an error, or [`UNUSUAL`].
    pub(crate) error: u16,
    /// The output of packets whose next hop is to be resolved, or [`UNUSUAL`].
    pub(crate) resolve: u16,
}

impl RewriteTargets<'_> {
    /// The output of an interface. That of one which does not exist is not in the list. Hot.
    #[inline(always)]
    pub(crate) fn output(&self, interface: u16) -> u16 {
        self.outputs.get(usize::from(interface)).copied().unwrap_or(UNUSUAL)
    }
}

/// Rewrites packets to complete adjacencies without VLAN tags, and numbers them by their outputs. Of others, those of
/// usual floods may be tagged and numbered, too. Hot.
pub(crate) fn rewrite<F: Family>(
    simd: Simd,
    batch: &mut RewriteBatch<F>,
    packets: Contents<'_>,
    ahead: usize,
    targets: RewriteTargets<'_>,
    numbers: &mut [u16],
) {
    simd.run(RewriteLoop { batch, packets, ahead, targets, numbers });
}

struct RewriteLoop<'a, F: Family> {
    batch: &'a mut RewriteBatch<F>,
    packets: Contents<'a>,
    ahead: usize,
    targets: RewriteTargets<'a>,
    numbers: &'a mut [u16],
}

impl<F: Family> Loop for RewriteLoop<'_, F> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        let RewriteLoop { batch, mut packets, ahead, targets, numbers } = self;
        for (mut packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            // One by one, a few are quicker.
            let is_done = packets.packets().len() > FEW && batch.rewrite(&mut packets, ahead, targets, numbers);
            if !is_done {
                rewrite_each::<F>(&mut packets, targets, numbers);
            }
        }
    }
}

impl<F: Family> RewriteBatch<F> {
    /// Rewrites packets, unless one is shorter than its headers: then none has changed, and the result is false. Hot.
    #[inline(always)]
    fn rewrite(
        &mut self,
        packets: &mut Contents<'_>,
        ahead: usize,
        targets: RewriteTargets<'_>,
        numbers: &mut [u16],
    ) -> bool {
        let Some((mut frames, handles)) = packets.frames::<F::Headers>() else { return false };
        let count = numbers.len();
        read_ttl_words::<F>(&frames.frames(), ahead, &mut self.ttl_words[..count]);
        if !self.rewrite_all_usual(&mut frames, handles, ahead, targets, numbers) {
            let RewriteBatch { ttl_words, state_words, .. } = self;
            let (ttl_words, state_words) = (&ttl_words[..count], &mut state_words[..count]);
            let (table, first_tag) = (targets.adjacencies.table(), first_tag(&frames));
            if Tag(handles.different).number() == 0 {
                state_words.fill(table.state_word(first_tag.number()));
            } else {
                read_state_words(frames.packets(), ahead, table, state_words);
            }
            number(state_words, targets, numbers);
            rewrite_mixed::<F>(&mut frames, &mut KnownFacts { ttl_words, state_words, numbers }, targets);
        }
        true
    }

    /// Rewrites packets, if all are usual. Otherwise no packet has changed its IP header, and the result is false. Hot.
    #[inline(always)]
    fn rewrite_all_usual(
        &mut self,
        frames: &mut FramesMut<'_, F::Headers>,
        handles: Handles,
        ahead: usize,
        targets: RewriteTargets<'_>,
        numbers: &mut [u16],
    ) -> bool {
        let table = targets.adjacencies.table();
        let first_tag = first_tag(frames);
        let is_usual =
            |state: AdjacencyState| state.is_usual() & (handles.longest <= ETHERNET + usize::from(state.mtu()));
        let first = table.state_word(first_tag.number());
        if (Tag(handles.least_tag).interface() == 0) | !is_usual(AdjacencyState::of(first)) {
            return false;
        }
        let count = numbers.len();
        let (ttl_words, decremented, state_words) =
            (&self.ttl_words[..count], &mut self.decremented[..count], &mut self.state_words[..count]);
        if !ttl_words.iter().fold(true, |all, &words| all & F::ttl_ok(words)) {
            return false;
        }
        decremented.iter_mut().zip(ttl_words).for_each(|(after, &words)| *after = F::decremented(words));
        if Tag(handles.different).number() == 0 {
            let output = targets.output(AdjacencyState::of(first).interface());
            let (header, is_same) = table.header_of(first_tag.number(), first);
            if !is_same | (output == UNUSUAL) {
                return false;
            }
            for ((_, headers), &decremented) in frames.iter_mut().zip(&*decremented) {
                headers.set_ethernet(header);
                F::set_ttl_words(headers, decremented);
            }
            numbers.fill(output);
            return true;
        }
        read_state_words(frames.packets(), ahead, table, state_words);
        if !state_words.iter().fold(true, |all, &word| all & is_usual(AdjacencyState::of(word))) {
            return false;
        }
        number(state_words, targets, numbers) && write_several::<F>(frames, table, state_words, ttl_words, decremented)
    }
}

/// The tag of the first packet.
#[inline(always)]
fn first_tag<S: Start>(frames: &FramesMut<'_, S>) -> Tag {
    frames.packets().first().map_or(Tag(0), |packet| Tag(packet.tag()))
}

/// Numbers packets by the outputs of their adjacencies. Returns whether all have one. Hot.
#[inline(always)]
fn number(state_words: &[SeqSnapshot], targets: RewriteTargets<'_>, numbers: &mut [u16]) -> bool {
    let interface = state_words.first().map_or(0, |&word| AdjacencyState::of(word).interface());
    if state_words.iter().fold(false, |any, &word| any | (AdjacencyState::of(word).interface() != interface)) {
        return number_by_interface(state_words, targets, numbers);
    }
    let output = targets.output(interface);
    numbers.fill(output);
    output != UNUSUAL
}

/// As [`number`], for several interfaces. Hot.
#[inline(never)]
pub(crate) fn number_by_interface(
    state_words: &[SeqSnapshot],
    targets: RewriteTargets<'_>,
    numbers: &mut [u16],
) -> bool {
    let mut have_outputs = true;
    for (state_word, number) in state_words.iter().zip(numbers) {
        *number = targets.output(AdjacencyState::of(*state_word).interface());
        have_outputs &= *number != UNUSUAL;
    }
    have_outputs
}

// Loops of loads from many places are apart, because compilers make gathers of them where they can, which take longer.

/// Reads the words of packets with their times to live. Hot.
#[inline(never)]
fn read_ttl_words<F: Family>(frames: &Frames<'_, F::Headers>, ahead: usize, ttl_words: &mut [F::TtlWords]) {
    let mut look_ahead = LookAhead::begin(frames.packets(), ahead, Packet::prefetch);
    for (frames, ttl_words) in frames.chunks(STEP).zip(ttl_words.chunks_mut(STEP)) {
        look_ahead.step(Packet::prefetch);
        frames.iter().zip(ttl_words).for_each(|(headers, words)| *words = F::ttl_words(headers));
    }
}

/// Reads the state words of the adjacencies of packets. Hot.
#[inline(never)]
fn read_state_words(packets: &[Packet], ahead: usize, table: AdjacencyTable<'_>, state_words: &mut [SeqSnapshot]) {
    let number = |packet: &Packet| Tag(packet.tag()).number();
    let prefetch = |packet: &Packet| table.prefetch(number(packet));
    let mut look_ahead = LookAhead::begin(packets, ahead, prefetch);
    for (packets, state_words) in packets.chunks(STEP).zip(state_words.chunks_mut(STEP)) {
        look_ahead.step(prefetch);
        packets.iter().zip(state_words).for_each(|(packet, state_word)| *state_word = table.state_word(number(packet)));
    }
}

/// Writes the headers of packets to several adjacencies. Returns false if adjacencies have changed since their state
/// words were read: then only Ethernet headers have been written. Hot.
#[inline(never)]
fn write_several<F: Family>(
    frames: &mut FramesMut<'_, F::Headers>,
    table: AdjacencyTable<'_>,
    state_words: &[SeqSnapshot],
    ttl_words: &[F::TtlWords],
    decremented: &[F::TtlWords],
) -> bool {
    let mut are_same = true;
    for (((tag, headers), &state_word), &decremented) in frames.iter_mut().zip(state_words).zip(decremented) {
        let (header, is_same) = table.header_of(Tag(tag).number(), state_word);
        headers.set_ethernet(header);
        F::set_ttl_words(headers, decremented);
        are_same &= is_same;
    }
    if !are_same {
        frames.iter_mut().zip(ttl_words).for_each(|((_, headers), &words)| F::set_ttl_words(headers, words));
    }
    are_same
}

/// Rewrites packets one by one.
#[inline(never)]
fn rewrite_each<F: Family>(packets: &mut Contents<'_>, targets: RewriteTargets<'_>, numbers: &mut [u16]) {
    for ((tag, frame), number) in packets.iter_mut().zip(numbers) {
        *number = rewrite_one::<F>(Tag(tag), frame, targets);
    }
}

/// Rewrites a packet, if it is usual. Returns its output.
#[inline(always)]
fn rewrite_one<F: Family>(tag: Tag, frame: &mut [u8], targets: RewriteTargets<'_>) -> u16 {
    let (words, state) = targets.adjacencies.header(tag.number());
    let fits = frame.len() <= ETHERNET + usize::from(state.mtu());
    let output = targets.output(state.interface());
    let is_usual = state.is_usual() & fits & (tag.interface() != 0) & (output != UNUSUAL);
    match F::Headers::of_mut(frame) {
        Some(headers) if is_usual => {
            if !F::decrement_ttl(headers) {
                return UNUSUAL;
            }
            headers.set_ethernet(words);
            output
        }
        _ => UNUSUAL,
    }
}

/// Rewrites any packet.
fn rewrite_unusual<F: Family>(
    packet: &mut Packet,
    adjacencies: &Adjacencies,
    outputs: &[u16],
    exits: &Exits,
) -> Next<Rewrite<F>> {
    let tag = Tag(packet.tag());
    let state = adjacencies.state(tag.number());
    if let Some(error) = exits.error
        && state.is_complete()
        && tag.interface() != 0
        && F::Headers::of(packet.bytes()).is_some_and(F::ttl_expired)
    {
        packet.set_tag(tag.with(IcmpError::of(Reason::TimeExceeded).number()).0);
        return Next::To(error.into());
    }
    let Some(adjacency) = adjacencies.get(tag.number()) else { return Next::Drop(Rewrite::NO_ADJACENCY) };
    let segment = segment_length(packet);
    let (length, frame) = (packet.len(), packet.bytes_mut());
    let Some(headers) = F::Headers::of_mut(frame) else { return Next::Drop(Rewrite::TOO_SHORT) };
    // Padding behind the packet does not count.
    let length = segment.unwrap_or_else(|| F::length(headers).min(length - ETHERNET));
    let is_too_big = length > usize::from(adjacency.mtu);
    let is_own = tag.interface() == 0;
    let checked = if is_own { Ok(()) } else { F::check_ttl(headers, adjacency.interface == tag.interface()) };
    match checked {
        Err(Refusal::SourceScope) => return Next::Drop(Rewrite::SOURCE_SCOPE),
        Err(Refusal::BeyondScope) => {
            return exits.tell(packet, IcmpError::of(Reason::BeyondScope), Rewrite::SOURCE_SCOPE);
        }
        Err(Refusal::TimeExceeded) => {
            return exits.tell(packet, IcmpError::of(Reason::TimeExceeded), Rewrite::TIME_EXCEEDED);
        }
        Ok(()) if is_too_big && !F::may_fragment(headers, is_own) => {
            return exits.tell(packet, IcmpError { reason: Reason::TooBig, value: adjacency.mtu }, Rewrite::TOO_BIG);
        }
        Ok(()) => {}
    }
    // Its fragments age.
    if is_too_big {
        return to(exits.fragment, Rewrite::TOO_BIG);
    }
    if !is_own {
        F::set_ttl_words(headers, F::decremented(F::ttl_words(headers)));
    }
    if segment.is_none() {
        // Padding must not make the frame longer than the link's.
        packet.truncate(ETHERNET + usize::from(adjacency.mtu));
    }
    if adjacency.kind != AdjacencyKind::Complete {
        let is_other = adjacency.next_hop.is_some_and(|next| IpFamily::of(next) != adjacency.packets());
        return to(if is_other { exits.resolve6 } else { exits.resolve }, Rewrite::UNRESOLVED);
    }
    let output = outputs.get(usize::from(adjacency.interface)).copied().filter(|&output| output != UNUSUAL);
    let Some(output) = output else { return Next::Drop(Rewrite::NO_OUTPUT) };
    let header = &adjacency.header[..usize::from(adjacency.length).min(MAX_HEADER)];
    if !set_header(packet, header) {
        return Next::Drop(Rewrite::NO_HEADROOM);
    }
    Next::To(output.into())
}

/// The output, if it is linked.
fn to<F: Family>(output: Option<u16>, reason: DropReason<Rewrite<F>>) -> Next<Rewrite<F>> {
    output.map_or(Next::Drop(reason), |output| Next::To(output.into()))
}

impl Exits {
    /// Tags a packet with an ICMP error and sends it to the output `error`; without a link there it is dropped.
    fn tell<F: Family>(
        &self,
        packet: &mut Packet,
        error: IcmpError,
        reason: DropReason<Rewrite<F>>,
    ) -> Next<Rewrite<F>> {
        packet.set_tag(Tag(packet.tag()).with(error.number()).0);
        to(self.error, reason)
    }
}

/// Bytes of the IP packets that a GSO packet will be segmented into.
pub(crate) fn segment_length(packet: &Packet) -> Option<usize> {
    let offload = packet.offload().filter(Offload::is_gso)?;
    let gso = GsoPacket::new(packet.bytes(), kind_of(offload)?, offload.segment_size).ok()?;
    Some(gso.longest_segment() - ETHERNET)
}

impl<F: Family> Configure for Rewrite<F> {
    const NAME: &'static str = F::REWRITE;
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Rows(vec![BenchRow {
            inputs: &["input"],
            outputs: &[OUT],
            ..row(&F::REWRITE[..3], Behind::LookUp)
        }])
    }

    fn configure(config: Config, context: &Context) -> Result<Rewrite<F>, SettingError> {
        Ok(Rewrite::new(context.object("vrf", &config.vrf)?))
    }
}

#[cfg(test)]
mod tests;
