//! Marks: packets that are followed on their way.
//!
//! A mark is a flag in the handle and two numbers in the metadata line of the buffer. It costs nothing while no packet
//! has one: the paths that free and copy vectors check the flags of all packets at once anyway. Events of marked
//! packets go to a log of the thread, in which the code that set the marks finds the ends of its packets.

use std::cell::RefCell;

use bellows_sys::clock;

/// The mark of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Mark {
    /// Time at which the packet was created: [`clock::ticks`].
    pub created: u64,
    /// Number of the packet. A copy inherits the mark unless this number is 0, which stands for a packet of which only
    /// the end is of interest.
    pub id: u32,
}

/// The kind of a [`MarkedEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedEventKind {
    /// The packet was copied; the copy has the same mark.
    Copied,
    /// The packet was freed.
    Freed,
    /// The packet was dropped for this reason: see [`attribute_drops`].
    Dropped(u32),
}

/// One entry of the thread's log of marked packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkedEvent {
    /// The packet's mark.
    pub mark: Mark,
    /// Time of the event: [`clock::ticks`].
    pub at: u64,
    /// The kind of event.
    pub kind: MarkedEventKind,
}

/// Maximum number of entries in a thread's log; later events are lost. One call can make this many from a full link and
/// 63 outputs.
const MAX_LOG_ENTRIES: usize = 64 << 10;

/// Appends an event to the thread's log.
#[cold]
#[inline(never)]
pub(crate) fn log_event(mark: Mark, kind: MarkedEventKind) {
    let at = clock::ticks();
    with_marked_events(|log| {
        if log.len() < MAX_LOG_ENTRIES {
            log.push(MarkedEvent { mark, at, kind });
        }
    });
}

thread_local! {
    /// The events of this thread's marked packets.
    static LOG: RefCell<Vec<MarkedEvent>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on the thread's log, or returns the default value if the thread is ending.
///
/// `work` must not allocate or free packets.
#[inline]
fn with_marked_events<T: Default>(work: impl FnOnce(&mut Vec<MarkedEvent>) -> T) -> T {
    LOG.try_with(|log| work(&mut log.borrow_mut())).unwrap_or_default()
}

/// The number of entries in the thread's log.
#[inline]
pub fn marked_events() -> usize {
    with_marked_events(|log| log.len())
}

/// Attributes packets that were freed since the log had `from` entries to a drop reason, a number that the caller
/// chooses.
pub fn attribute_drops(from: usize, reason: u32) {
    with_marked_events(|log| {
        for event in log.iter_mut().skip(from).filter(|event| event.kind == MarkedEventKind::Freed) {
            event.kind = MarkedEventKind::Dropped(reason);
        }
    });
}

/// Appends the thread's log to `to` and empties it.
pub fn take_marked_events(to: &mut Vec<MarkedEvent>) {
    with_marked_events(|log| to.append(log));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CAPACITY, Packet, Vector, free_all, pool, push_copies};
    use proptest::prelude::*;

    fn taken() -> Vec<(u32, MarkedEventKind)> {
        let mut log = Vec::new();
        take_marked_events(&mut log);
        assert!(log.windows(2).all(|pair| pair[0].at <= pair[1].at));
        log.into_iter().map(|event| (event.mark.id, event.kind)).collect()
    }

    fn packet(id: Option<u32>) -> Packet {
        let mut packet = Packet::from_bytes(b"some bytes").unwrap();
        if let Some(id) = id {
            packet.mark(Mark { created: 7, id });
        }
        packet
    }

    #[test]
    fn copies_of_a_packet_without_a_number_are_not_marked() {
        pool::ensure().unwrap();
        taken();
        let mut one = packet(Some(0));
        drop(one.copy());
        assert_eq!(taken(), []);
        one.end_mark();
        one.end_mark();
        assert_eq!((one.marked(), taken()), (None, vec![(0, MarkedEventKind::Freed)]));
    }

    #[test]
    fn a_mark_stays_with_its_packet_and_goes_over_to_copies() {
        pool::ensure().unwrap();
        taken();
        let mut one = packet(Some(3));
        one.trim_front(2);
        one.prepend(1);
        assert_eq!(one.marked(), Some(Mark { created: 7, id: 3 }));
        let copy = one.copy().unwrap();
        assert_eq!((copy.marked(), copy.meta()), (one.marked(), None));
        drop(one);
        assert_eq!(taken(), [(3, MarkedEventKind::Copied), (3, MarkedEventKind::Freed)]);
        let from = marked_events();
        drop(copy);
        attribute_drops(from, 9);
        assert_eq!(taken(), [(3, MarkedEventKind::Dropped(9))]);
        let unmarked = Packet::from_bytes(b"in the same buffer").unwrap();
        assert_eq!(unmarked.marked(), None);
        drop(unmarked);
        assert_eq!(taken(), []);
    }

    proptest! {
        /// The log has one copy and one free of every marked packet of a vector, in order, whatever lies between.
        #[test]
        fn vectors_note_the_marked_packets_and_no_others(
            marks in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..CAPACITY / 2)
        ) {
            pool::ensure().unwrap();
            taken();
            let (mut vector, mut copies) = (Vector::new(), Vector::new());
            let mut expected = Vec::new();
            for (id, &(is_marked, has_moved)) in marks.iter().enumerate() {
                let id = id as u32 + 1;
                let mut packet = packet(is_marked.then_some(id));
                if has_moved {
                    packet.trim_front(1);
                }
                expected.extend(is_marked.then_some(id));
                vector.push(packet).unwrap();
            }
            prop_assert_eq!(push_copies(&mut copies, vector.as_slice()), marks.len());
            let with = |kind| expected.iter().map(|&id| (id, kind)).collect::<Vec<_>>();
            prop_assert_eq!(taken(), with(MarkedEventKind::Copied));
            let before = pool::usage().in_use;
            for vector in [&mut vector, &mut copies] {
                free_all(vector);
                prop_assert_eq!(taken(), with(MarkedEventKind::Freed));
            }
            prop_assert!(before >= 2 * marks.len());
        }
    }
}
