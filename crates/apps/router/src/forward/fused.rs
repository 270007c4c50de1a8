//! The loop over a batch: what nearly all packets need of three apps.
//!
//! Headers are read once, into columns, of which each step takes what it needs: the check of headers, the destinations, and
//! the words that change with a hop. So the packets are touched twice, to read and to write. Loops that compute go over
//! columns, as many packets at a time as an instruction takes; loops that load from many places are apart, because
//! compilers make gathers of them where they can, which take longer. A packet that is not usual in every respect keeps its
//! bytes and its tag.

use std::marker::PhantomData;

use bellows_config::Fusion;
use bellows_fib::NO_ROUTE;
use bellows_packet::{CAPACITY, Contents, Frames, FramesMut, Packet};
use bellows_shared::{Breath, SeqSnapshot};
use bellows_sys::clock;
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::adjacency::{AdjacencyState, AdjacencyTable, InCommon, special};
use bellows_vrf::{IcmpError, Reason, Tag, Vrf};

use crate::forwarding::{BATCH, Columns, ETHERNET, Family, Headers, LookAhead, UNUSUAL, USUAL, V4, V6, usual_if};
use crate::lookup::{Repeated, flow_hash, has_groups};
use crate::reverse_path::{SourceChecker, Sources};
use crate::rewrite::{Places, RewriteTargets, diverted, number_by_interface};
use crate::{ip4_input, ip6_input};

/// A family whose packets are forwarded in one loop.
pub trait Forwarded: Sources<TtlWords = u32> {
    /// The name of the family's app.
    const FORWARD: &'static str;

    /// The apps whose work it does.
    const FUSION: Fusion;

    /// Reads headers into columns, and destinations if these are not in them. Hot.
    fn read(
        frames: &Frames<'_, Self::Headers>,
        look_ahead: &mut LookAhead<'_>,
        columns: &mut Columns,
        destinations: &mut [Self::Address],
    );

    /// Writes destinations that are in columns. Hot.
    fn destinations(columns: &Columns, destinations: &mut [Self::Address]);

    /// Numbers packets by what is [known of their headers](judged), and writes what their [words](Family::TtlWords) become
    /// with a hop. Returns whether any may have bytes behind it. Hot.
    fn number(columns: &Columns, numbers: &mut [u16], decremented: &mut [u32; BATCH]) -> bool;

    /// The [words](Family::TtlWords) in a row. Hot.
    fn words_of(row: [u32; 4]) -> u32;
}

/// What the fusions of both families have in common.
const FUSION: Fusion =
    Fusion { stages: &[], shared: "vrf", rest: "unusual", outputs: &[], lacks: &["fragment", "resolve6"] };

impl Forwarded for V4 {
    const FORWARD: &'static str = "ip4-forward";
    const FUSION: Fusion = Fusion {
        stages: &[
            &["ip4-input", "ip4-lookup", "ip4-rewrite"],
            &["ip4-input", "ip4-reverse-path", "ip4-lookup", "ip4-rewrite"],
        ],
        outputs: &[
            ("error", &[("ip4-input", "error"), ("ip4-lookup", "error"), ("ip4-rewrite", "error")]),
            ("to-router", &[("ip4-lookup", "local")]),
            ("resolve", &[("ip4-rewrite", "resolve")]),
        ],
        ..FUSION
    };

    #[inline(always)]
    fn read(frames: &Frames<'_, Self::Headers>, look_ahead: &mut LookAhead<'_>, columns: &mut Columns, _: &mut [u32]) {
        ip4_input::read(frames, look_ahead, columns);
    }

    #[inline(always)]
    fn destinations(columns: &Columns, destinations: &mut [u32]) {
        destinations.iter_mut().zip(&columns.words).for_each(|(to, word)| *to = u32::from_be(word.to_le()));
    }

    #[inline(always)]
    fn number(columns: &Columns, numbers: &mut [u16], decremented: &mut [u32; BATCH]) -> bool {
        let number = |row, destination, length| {
            judged(ip4_input::are_right::<true>(row, destination, length), Self::ttl_ok(Self::words_of(row)))
        };
        set(decremented, columns, numbers.len(), |[_, _, words, _]| Self::decremented(words));
        columns.number(numbers, number, ip4_input::behind)
    }

    #[inline(always)]
    fn words_of([_, _, words, source]: [u32; 4]) -> u32 {
        Self::ttl_words_from(words, source)
    }
}

impl Forwarded for V6 {
    const FORWARD: &'static str = "ip6-forward";
    const FUSION: Fusion = Fusion {
        stages: &[
            &["ip6-input", "ip6-lookup", "ip6-rewrite"],
            &["ip6-input", "ip6-reverse-path", "ip6-lookup", "ip6-rewrite"],
        ],
        outputs: &[
            ("error", &[("ip6-input", "error"), ("ip6-lookup", "error"), ("ip6-rewrite", "error")]),
            ("to-router", &[("ip6-lookup", "local")]),
            ("resolve", &[("ip6-rewrite", "resolve")]),
        ],
        ..FUSION
    };

    #[inline(always)]
    fn read(
        frames: &Frames<'_, Self::Headers>,
        look_ahead: &mut LookAhead<'_>,
        columns: &mut Columns,
        destinations: &mut [u128],
    ) {
        ip6_input::read(frames, look_ahead, columns);
        frames.iter().zip(destinations).for_each(|(headers, to)| *to = Self::destination(headers));
    }

    #[inline(always)]
    fn destinations(_: &Columns, _: &mut [u128]) {}

    #[inline(always)]
    fn number(columns: &Columns, numbers: &mut [u16], decremented: &mut [u32; BATCH]) -> bool {
        let number = |row, _, length| judged(ip6_input::are_right(row, length), Self::ttl_ok(Self::words_of(row)));
        set(decremented, columns, numbers.len(), |row| Self::decremented(Self::words_of(row)));
        columns.number(numbers, number, ip6_input::behind)
    }

    #[inline(always)]
    fn words_of([_, second, source, _]: [u32; 4]) -> u32 {
        second >> 16 | source << 16
    }
}

/// The number of a packet whose header is right, but which may go no hop further.
const EXPIRED: u16 = 1;

/// The number of a packet by what is known of its header. Hot.
#[inline(always)]
fn judged(is_right: bool, ttl_ok: bool) -> u16 {
    let number = if ttl_ok { USUAL } else { EXPIRED };
    if is_right { number } else { UNUSUAL }
}

/// Writes what `of` makes of each row. Hot.
#[inline(always)]
fn set(words: &mut [u32; BATCH], columns: &Columns, count: usize, of: impl Fn([u32; 4]) -> u32) {
    words[..count].iter_mut().zip(&columns.rows).for_each(|(word, &row)| *word = of(row));
}

/// What the steps leave for one another, for a whole vector where it is asked for later. The loops use it again and again.
pub(super) struct FusedRoom<F: Family> {
    columns: Box<Columns>,
    batch: Box<BatchRoom>,
    destinations: Vec<F::Address>,
    adjacencies: Vec<u32>,
    /// What is known of the headers of a batch in which not all packets are usual.
    headers: Vec<u16>,
    repeated: Repeated<F>,
}

struct BatchRoom {
    state_words: [SeqSnapshot; BATCH],
    decremented: [u32; BATCH],
}

impl<F: Family> FusedRoom<F> {
    pub(super) fn new() -> FusedRoom<F> {
        let batch = BatchRoom { state_words: [SeqSnapshot::default(); BATCH], decremented: [0; BATCH] };
        FusedRoom {
            columns: Columns::new(),
            batch: Box::new(batch),
            destinations: vec![F::Address::default(); CAPACITY],
            adjacencies: vec![0; CAPACITY],
            headers: vec![UNUSUAL; CAPACITY],
            repeated: Repeated::new(),
        }
    }

    /// What was found for a packet that was not forwarded, by its place in the last vector, if its header is right.
    pub(super) fn found(&self, place: usize) -> Option<u32> {
        (self.headers[place] == USUAL).then_some(self.adjacencies[place])
    }
}

/// What a vector is forwarded by: the routes, the adjacencies with their outputs, and how far to look ahead.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) vrf: &'a Vrf,
    pub(super) targets: RewriteTargets<'a>,
    /// The output of packets for the router itself, or [`UNUSUAL`].
    pub(super) to_router: u16,
    pub(super) ahead: usize,
}

/// What is to be done for packets of a vector one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOver {
    /// Some have the number [`UNUSUAL`].
    pub(super) are_unusual: bool,
    /// Some may have bytes behind them.
    pub(super) are_longer: bool,
}

/// The clocks that the stages have taken; nothing is read if they are not asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageClocks {
    last: Option<u64>,
    /// Those of the check of headers, the look-up, and the rewriting.
    pub(super) stages: [u64; 3],
}

impl StageClocks {
    /// Begins, if the clocks are asked for.
    #[inline]
    pub(super) fn begin(are_asked: bool) -> StageClocks {
        StageClocks { last: are_asked.then(clock::ticks), stages: [0; 3] }
    }

    /// Ends a stage.
    #[inline]
    fn end(&mut self, stage: usize) {
        if let Some(last) = &mut self.last {
            let now = clock::ticks();
            self.stages[stage] += now.wrapping_sub(*last);
            *last = now;
        }
    }
}

/// Forwards packets to complete adjacencies without VLAN tags, and numbers them by their outputs. Others that floods are
/// made of are numbered and tagged for the apps that answer them; the rest get the number [`UNUSUAL`]. `look` sees the packets
/// of each batch before they change, with their adjacencies, and with what is known of their headers. Hot.
#[inline]
pub(super) fn forward<F: Forwarded>(
    (room, mut checker): (&mut FusedRoom<F>, Option<&mut SourceChecker<F>>),
    packets: &mut Contents<'_>,
    given: Given<'_>,
    breath: &impl Breath,
    numbers: &mut [u16],
    clocks: &mut StageClocks,
    mut look: impl FnMut(&[Packet], &[u32], &[u16]),
) -> LeftOver {
    let Given { vrf, targets, ahead, .. } = given;
    let FusedRoom { columns, batch, destinations, adjacencies, headers, repeated } = room;
    let table = targets.adjacencies.table();
    let mut left_over = LeftOver::default();
    let places = destinations.chunks_mut(BATCH).zip(adjacencies.chunks_mut(BATCH)).zip(headers.chunks_mut(BATCH));
    for ((mut packets, numbers), ((destinations, adjacencies), headers)) in
        packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)).zip(places)
    {
        let count = numbers.len();
        let (destinations, adjacencies, headers) =
            (&mut destinations[..count], &mut adjacencies[..count], &mut headers[..count]);
        let Some(mut frames) = Simd::chosen().run(Begin(&mut packets, &mut columns.lengths, PhantomData::<F>)) else {
            headers.fill(UNUSUAL);
            numbers.fill(UNUSUAL);
            left_over.are_unusual = true;
            continue;
        };
        read::<F>(&frames.frames(), ahead, columns, destinations);
        left_over.are_longer |=
            Simd::chosen().run(Check::<F> { columns, destinations, headers, decremented: &mut batch.decremented });
        clocks.end(0);
        repeated.look_up(vrf, breath, destinations, adjacencies);
        if has_groups(adjacencies) {
            vrf.choose_paths(breath, adjacencies, |place| flow_hash(&frames.packets()[place]));
        }
        if let Some(checker) = &mut checker {
            checker.check(vrf, breath, frames.packets(), 0, |place, passes| {
                headers[place] = if passes { headers[place] } else { UNUSUAL };
            });
        }
        clocks.end(1);
        look(frames.packets(), adjacencies, headers);
        let state_words = &mut batch.state_words[..count];
        let only = Simd::chosen().run(Only(adjacencies));
        match only {
            Some(adjacency) => state_words.fill(table.state_word(adjacency)),
            None => read_state_words(adjacencies, table, state_words),
        }
        let in_common = Simd::chosen().run(Judge { lengths: &columns.lengths, state_words, headers });
        if in_common.are_usual && number(state_words, in_common.interface, targets, numbers) {
            let all = match only {
                Some(adjacency) if write_same::<F>(&mut frames, adjacency, table, batch) => true,
                Some(_) => {
                    numbers.fill(UNUSUAL);
                    false
                }
                None => write_all::<F>(&mut frames, adjacencies, table, batch, numbers),
            };
            left_over.are_unusual |= !all;
            repeated.keep(destinations, adjacencies, 0);
            clocks.end(2);
            continue;
        }
        let is_local = |&&adjacency: &&u32| adjacency == special::LOCAL;
        repeated.keep(destinations, adjacencies, adjacencies.iter().filter(is_local).count());
        Simd::chosen().run(Separate { lengths: &columns.lengths, state_words, headers, numbers });
        let [usual, others] = Places::separate(numbers);
        write_some::<F>(&mut frames, adjacencies, targets, batch, usual, numbers);
        refer::<F>(&mut frames, (columns, adjacencies, headers), given, batch, others, numbers);
        left_over.are_unusual |= numbers.iter().fold(0, |any, &number| any | number) & UNUSUAL != 0;
        clocks.end(2);
    }
    left_over
}

/// Looks at the handles of packets. There are no frames if a packet is shorter than its headers, or is one of the router
/// itself, which loses no hop.
struct Begin<'a, 'p, 'l, F>(&'a mut Contents<'p>, &'l mut [u32; BATCH], PhantomData<F>);

impl<'a, F: Forwarded> Loop for Begin<'a, '_, '_, F> {
    type Result = Option<FramesMut<'a, F::Headers>>;

    #[inline(always)]
    fn run(self) -> Self::Result {
        self.0.frames_with_lengths(self.1, Tag::received_on(1).0)
    }
}

/// Reads headers. Hot.
#[inline(never)]
fn read<F: Forwarded>(
    frames: &Frames<'_, F::Headers>,
    ahead: usize,
    columns: &mut Columns,
    destinations: &mut [F::Address],
) {
    let mut look_ahead = LookAhead::begin(frames.packets(), ahead, Packet::prefetch);
    F::read(frames, &mut look_ahead, columns, destinations);
}

/// Checks headers.
struct Check<'a, F: Forwarded> {
    columns: &'a Columns,
    destinations: &'a mut [F::Address],
    headers: &'a mut [u16],
    decremented: &'a mut [u32; BATCH],
}

impl<F: Forwarded> Loop for Check<'_, F> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        F::destinations(self.columns, self.destinations);
        F::number(self.columns, self.headers, self.decremented)
    }
}

/// Reads the state words of adjacencies. Hot.
#[inline(never)]
fn read_state_words(adjacencies: &[u32], table: AdjacencyTable<'_>, state_words: &mut [SeqSnapshot]) {
    for (&adjacency, state_word) in adjacencies.iter().zip(state_words) {
        *state_word = table.state_word(adjacency);
    }
}

/// The adjacency of all packets, if they have the same.
struct Only<'a>(&'a [u32]);

impl Loop for Only<'_> {
    type Result = Option<u32>;

    #[inline(always)]
    fn run(self) -> Option<u32> {
        let &first = self.0.first()?;
        let differences = self.0.iter().fold(0, |any, &adjacency| any | (adjacency ^ first));
        (differences == 0).then_some(first)
    }
}

/// Finds whether all packets of a batch are forwarded.
struct Judge<'a> {
    lengths: &'a [u32; BATCH],
    state_words: &'a [SeqSnapshot],
    headers: &'a [u16],
}

impl Loop for Judge<'_> {
    type Result = InCommon;

    #[inline(always)]
    fn run(self) -> InCommon {
        let are_right = self.headers.iter().fold(0, |any, &header| any | header) == USUAL;
        let in_common = InCommon::of(self.state_words, self.lengths);
        InCommon { are_usual: are_right & in_common.are_usual, ..in_common }
    }
}

/// Numbers the packets of a batch by whether they are usual.
struct Separate<'a> {
    lengths: &'a [u32; BATCH],
    state_words: &'a [SeqSnapshot],
    headers: &'a [u16],
    numbers: &'a mut [u16],
}

impl Loop for Separate<'_> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        let known = self.headers.iter().zip(self.state_words).zip(self.lengths);
        for (((&header, &state_word), &length), number) in known.zip(self.numbers) {
            let state = AdjacencyState::of(state_word);
            let fits = u64::from(length) <= ETHERNET as u64 + u64::from(state.mtu());
            *number = usual_if((header == USUAL) & state.is_usual() & fits);
        }
    }
}

/// Numbers packets by the outputs of their adjacencies. Returns whether all have one. Hot.
#[inline]
fn number(
    state_words: &[SeqSnapshot],
    interface: Option<u16>,
    targets: RewriteTargets<'_>,
    numbers: &mut [u16],
) -> bool {
    let Some(interface) = interface else { return number_by_interface(state_words, targets, numbers) };
    let output = targets.output(interface);
    numbers.fill(output);
    output != UNUSUAL
}

/// Writes the header of a packet, unless its adjacency has changed: then it is not usual any more. Hot.
#[inline(always)]
fn write<F: Forwarded>(
    headers: &mut F::Headers,
    adjacency: u32,
    table: AdjacencyTable<'_>,
    (state_word, decremented): (SeqSnapshot, u32),
) -> bool {
    let (header, is_same) = table.header_of(adjacency, state_word);
    if is_same {
        headers.set_ethernet(header);
        F::set_ttl_words(headers, decremented);
    }
    is_same
}

/// Writes the headers of all packets to one adjacency. False, and none is written, if it has changed. Hot.
#[inline(never)]
fn write_same<F: Forwarded>(
    frames: &mut FramesMut<'_, F::Headers>,
    adjacency: u32,
    table: AdjacencyTable<'_>,
    batch: &BatchRoom,
) -> bool {
    let (header, is_same) = table.header_of(adjacency, batch.state_words[0]);
    if is_same {
        for ((_, headers), &decremented) in frames.iter_mut().zip(&batch.decremented) {
            headers.set_ethernet(header);
            F::set_ttl_words(headers, decremented);
        }
    }
    is_same
}

/// Writes the headers of all packets. Returns whether none has become unusual. Hot.
#[inline(never)]
fn write_all<F: Forwarded>(
    frames: &mut FramesMut<'_, F::Headers>,
    adjacencies: &[u32],
    table: AdjacencyTable<'_>,
    batch: &BatchRoom,
    numbers: &mut [u16],
) -> bool {
    let mut all = true;
    let known = batch.state_words.iter().zip(&batch.decremented);
    let packets = frames.iter_mut().zip(adjacencies).zip(known).enumerate();
    for (place, (((_, headers), &adjacency), (&state_word, &decremented))) in packets {
        if !write::<F>(headers, adjacency, table, (state_word, decremented)) {
            numbers[place] = UNUSUAL;
            all = false;
        }
    }
    all
}

/// Writes the headers of the packets that are usual, and numbers them by their outputs. They are found without a branch,
/// because floods are mixed with them. Hot.
#[inline(never)]
fn write_some<F: Forwarded>(
    frames: &mut FramesMut<'_, F::Headers>,
    adjacencies: &[u32],
    targets: RewriteTargets<'_>,
    batch: &BatchRoom,
    places: Places,
    numbers: &mut [u16],
) {
    let BatchRoom { state_words, decremented } = batch;
    let table = targets.adjacencies.table();
    for place in places.iter() {
        let (_, headers) = frames.at_mut(place);
        let output = targets.output(AdjacencyState::of(state_words[place]).interface());
        let known = (state_words[place], decremented[place]);
        let is_sent = output != UNUSUAL && write::<F>(headers, adjacencies[place], table, known);
        numbers[place] = if is_sent { output } else { UNUSUAL };
    }
}

/// Numbers and tags packets of which floods are made, as the apps of the stages would: those for the router itself, without
/// a route, whose time runs out, that are too long, or whose next hop is not resolved. Hot.
#[inline(never)]
fn refer<F: Forwarded>(
    frames: &mut FramesMut<'_, F::Headers>,
    (columns, adjacencies, headers): (&Columns, &[u32], &[u16]),
    given: Given<'_>,
    batch: &BatchRoom,
    places: Places,
    numbers: &mut [u16],
) {
    for place in places.iter() {
        let adjacency = adjacencies[place];
        let tag = Tag(frames.packets()[place].tag());
        let told = |reason| (given.targets.error, IcmpError::of(reason).number());
        let (output, number) = match adjacency {
            _ if headers[place] == UNUSUAL => continue,
            NO_ROUTE | special::NO_ROUTE => told(Reason::NoRoute),
            special::UNREACHABLE => told(F::UNREACHABLE),
            special::PROHIBIT => told(Reason::Prohibited),
            special::LOCAL => (given.to_router, special::LOCAL),
            special::FIRST.. => {
                frames.set_tag(place, tag.with(adjacency).0);
                let (state, ttl_words) =
                    (AdjacencyState::of(batch.state_words[place]), F::words_of(columns.rows[place]));
                match diverted::<F>(frames, place, state, ttl_words, given.targets) {
                    Some(diverted) => diverted,
                    None => continue,
                }
            }
            _ => continue,
        };
        numbers[place] = output;
        frames.set_tag(place, tag.with(number).0);
    }
}
