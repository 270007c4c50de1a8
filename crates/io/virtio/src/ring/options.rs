//! The options that a ring's loop is compiled for.

use std::fmt;

use crate::features::Features;

/// The direction of packets, as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the driver.
    Receive,
    /// From the driver.
    Transmit,
}

impl Direction {
    /// The direction of a queue of a network device: even ones receive.
    pub fn of_queue(index: usize) -> Direction {
        if index.is_multiple_of(2) { Direction::Receive } else { Direction::Transmit }
    }

    /// `receive` or `transmit`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Receive => "receive",
            Direction::Transmit => "transmit",
        }
    }
}

/// The negotiated features that make a difference to a ring's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingOptions {
    /// Packed; otherwise split.
    pub packed: bool,
    /// A received packet may be spread over several buffers. Always false for transmit.
    pub mergeable: bool,
    /// Buffers are used in the order in which they are made available.
    pub in_order: bool,
    /// Notifications are at an index.
    pub event_idx: bool,
    /// Descriptors may point to indirect tables.
    pub indirect: bool,
    /// The header has 12 bytes; otherwise 10.
    pub long_header: bool,
    /// Headers may ask for checksums and segmentation; otherwise they are ignored.
    pub offloads: bool,
}

impl RingOptions {
    /// The options of a ring.
    pub fn new(features: Features, direction: Direction) -> RingOptions {
        let mergeable = features.has(Features::MRG_RXBUF);
        let offloads = match direction {
            Direction::Receive => Features::GUEST_CSUM | Features::GUEST_TSO4 | Features::GUEST_TSO6,
            Direction::Transmit => Features::CSUM | Features::HOST_TSO4 | Features::HOST_TSO6,
        };
        RingOptions {
            packed: features.has(Features::RING_PACKED),
            mergeable: mergeable && direction == Direction::Receive,
            in_order: features.has(Features::IN_ORDER),
            event_idx: features.has(Features::EVENT_IDX),
            indirect: features.has(Features::INDIRECT_DESC),
            long_header: mergeable || features.has(Features::VERSION_1),
            offloads: features.has_any(offloads),
        }
    }

    /// Bytes of the virtio-net header (specification, 5.1.6 and 5.1.6.1).
    pub fn header(self) -> usize {
        if self.long_header { 12 } else { 10 }
    }
}

/// The instance's name: `packed in-order header-12`.
impl fmt::Display for RingOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.packed { "packed" } else { "split" })?;
        let words = [
            (self.mergeable, " mergeable"),
            (self.in_order, " in-order"),
            (self.event_idx, " event-idx"),
            (self.indirect, " indirect"),
        ];
        words.iter().filter(|(set, _)| *set).try_for_each(|(_, word)| formatter.write_str(word))?;
        write!(formatter, " header-{}", self.header())?;
        if self.offloads { formatter.write_str(" offloads") } else { Ok(()) }
    }
}

/// One combination of options, known when the loop is compiled.
pub(super) trait RingKind {
    const PACKED: bool;
    const MERGEABLE: bool;
    const IN_ORDER: bool;
    const EVENT_IDX: bool;
    const INDIRECT: bool;
    const HEADER: usize;
    const OFFLOADS: bool;
}

/// The combinations. `HEADER` is the header's length.
pub(super) struct Vring<
    const PACKED: bool,
    const MERGEABLE: bool,
    const IN_ORDER: bool,
    const EVENT_IDX: bool,
    const INDIRECT: bool,
    const HEADER: usize,
    const OFFLOADS: bool,
>;

impl<
    const PACKED: bool,
    const MERGEABLE: bool,
    const IN_ORDER: bool,
    const EVENT_IDX: bool,
    const INDIRECT: bool,
    const HEADER: usize,
    const OFFLOADS: bool,
> RingKind for Vring<PACKED, MERGEABLE, IN_ORDER, EVENT_IDX, INDIRECT, HEADER, OFFLOADS>
{
    const PACKED: bool = PACKED;
    const MERGEABLE: bool = MERGEABLE;
    const IN_ORDER: bool = IN_ORDER;
    const EVENT_IDX: bool = EVENT_IDX;
    const INDIRECT: bool = INDIRECT;
    const HEADER: usize = HEADER;
    const OFFLOADS: bool = OFFLOADS;
}

/// The header's length for a combination: packed and mergeable rings have no short one.
const fn header(packed: bool, mergeable: bool, long: bool) -> usize {
    if packed || mergeable || long { 12 } else { 10 }
}

/// Turns a value into a constant: compiles the code after it for both.
macro_rules! fixed {
    ($name:ident = $value:expr => $body:expr) => {
        if $value {
            const $name: bool = true;
            $body
        } else {
            const $name: bool = false;
            $body
        }
    };
}

/// The loop of one ring: the instance of `transmit` for its options.
pub(super) fn transmit(options: RingOptions) -> super::transmit::Loop {
    fixed!(PACKED = options.packed => fixed!(IN_ORDER = options.in_order => fixed!(EVENT_IDX = options.event_idx =>
    fixed!(INDIRECT = options.indirect => fixed!(LONG = options.long_header => fixed!(OFFLOADS = options.offloads =>
        super::transmit::transmit::<
            Vring<PACKED, false, IN_ORDER, EVENT_IDX, INDIRECT, { header(PACKED, false, LONG) }, OFFLOADS>,
        >
    ))))))
}

/// The loop of one ring: the instance of `receive` for its options.
pub(super) fn receive(options: RingOptions) -> super::receive::Loop {
    fixed!(PACKED = options.packed => fixed!(MERGEABLE = options.mergeable => fixed!(IN_ORDER = options.in_order =>
    fixed!(EVENT_IDX = options.event_idx => fixed!(INDIRECT = options.indirect => fixed!(LONG = options.long_header =>
    fixed!(OFFLOADS = options.offloads =>
        super::receive::receive::<
            Vring<PACKED, MERGEABLE, IN_ORDER, EVENT_IDX, INDIRECT, { header(PACKED, MERGEABLE, LONG) }, OFFLOADS>,
        >
    )))))))
}
