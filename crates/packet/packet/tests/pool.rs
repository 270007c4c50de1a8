//! The pool's books balance whatever is allocated, copied, moved and freed, on any thread.
//!
//! A process has one pool, so the tests of this file take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellows_packet::{CAPACITY, DATA_ROOM, Meta, Packet, Template, Vector, free_all, pool, push_copies, push_filled};
use proptest::prelude::*;

static TURN: Mutex<()> = Mutex::new(());

/// The pool is several times larger than a test needs: a thread of the previous test may still be ending, with buffers
/// in its cache.
fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    pool::init(pool::Config { packets: 16_384, large_packets: 8, ..pool::Config::default() }).unwrap();
    guard
}

/// The number of buffers in use, once it is as expected or after a timeout: buffers that an ending thread returns count
/// as in use until it is done.
fn in_use(expected: usize) -> usize {
    let start = Instant::now();
    loop {
        let found = pool::usage().in_use;
        if found == expected || start.elapsed() > Duration::from_secs(5) {
            return found;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn large_packets_are_few_and_come_back() {
    let _turn = turn();
    assert!(Packet::with_room(bellows_packet::LARGE_DATA_ROOM + 1).is_none());
    let mut all: Vec<Packet> = (0..8).map(|_| Packet::with_room(70_000).unwrap()).collect();
    assert!(Packet::with_room(70_000).is_none());
    for (index, packet) in all.iter_mut().enumerate() {
        packet.extend(70_000).fill(index as u8);
        packet.trim_front(69_000);
        assert!(packet.headroom() > 69_000);
    }
    assert!(all.iter().enumerate().all(|(index, packet)| packet.bytes() == vec![index as u8; 1_000]));
    let mut vector = Vector::new();
    all.drain(..).for_each(|packet| vector.push(packet).unwrap());
    vector.push(Packet::from_bytes(b"small").unwrap()).unwrap();
    free_all(&mut vector);
    assert_eq!(in_use(0), 0);
}

#[test]
fn a_new_packet_of_a_length_has_it_and_none_is_longer_than_its_buffer() {
    let _turn = turn();
    let mut burst = Packet::allocate_burst(3);
    assert!(burst.next_of(DATA_ROOM + 1).is_none());
    for length in [0, 60, DATA_ROOM] {
        let mut packet = burst.next_of(length).unwrap();
        assert_eq!((packet.len(), packet.bytes_mut().len(), packet.tailroom()), (length, length, DATA_ROOM - length));
    }
    assert!(burst.next_of(60).is_none(), "no more were asked for");
}

#[test]
fn a_vector_that_was_emptied_into_others_has_all_its_room_again() {
    let _turn = turn();
    let (mut from, mut to) = (Vector::new(), Vector::new());
    for round in 0..40 {
        for _ in 0..100 {
            from.push(Packet::from_bytes(&[round]).unwrap()).unwrap();
        }
        // `to` is not empty, so that packets are copied and the memory is not swapped.
        to.push(Packet::from_bytes(&[round]).unwrap()).unwrap();
        assert_eq!(to.append(&mut from, usize::MAX), 100);
        assert_eq!((from.len(), from.room()), (0, CAPACITY));
        free_all(&mut to);
    }
}

#[test]
fn packets_freed_on_other_threads_are_back_when_those_have_ended() {
    let _turn = turn();
    for round in 0..20 {
        let mut vectors: Vec<Vector> = (0..3).map(|_| Vector::new()).collect();
        for vector in &mut vectors {
            assert_eq!(push_filled(vector, 1_000, &Template::new(b"template").unwrap()), 1_000, "round {round}");
        }
        assert_eq!(in_use(3_000), 3_000);
        let work = |mut vector| {
            free_all(&mut vector);
            // Allocate and free on this thread, so that its cache is used both ways.
            let mut own: Vec<Packet> = Packet::allocate_burst(300).collect();
            own.truncate(100);
        };
        let threads: Vec<_> = vectors.into_iter().map(|vector: Vector| thread::spawn(move || work(vector))).collect();
        // Joining a thread waits until its cache is returned.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(in_use(0), 0, "round {round}");
    }
}

#[test]
fn a_copy_carries_data_tag_and_metadata_but_not_the_position() {
    let _turn = turn();
    let mut packet = Packet::from_bytes(b"0123456789").unwrap();
    packet.trim_front(4);
    packet.prepend(1)[0] = b'x';
    packet.set_tag(77);
    let meta = Meta { timestamp: 1, original_length: 2, ingress_port: 3, link_type: 4 };
    packet.set_meta(meta);
    let mut vector = Vector::new();
    assert_eq!(push_copies(&mut vector, std::slice::from_ref(&packet)), 1);
    for copy in [packet.copy().unwrap()].into_iter().chain(vector.drain(1)) {
        assert_eq!((copy.bytes(), copy.tag(), copy.meta()), (b"x456789".as_slice(), 77, Some(meta)));
        assert_eq!(copy.headroom(), bellows_packet::HEADROOM);
    }
    drop(packet);
    assert_eq!(in_use(0), 0);
}

#[test]
fn a_packet_that_filled_its_buffer_and_lost_it_all_still_owns_that_buffer() {
    let _turn = turn();
    for (length, full) in [2_048, bellows_packet::LARGE_DATA_ROOM].map(|length| (length, vec![7; length])) {
        let mut packet = Packet::from_bytes(&full).unwrap();
        let start = packet.bytes().as_ptr();
        packet.trim_front(length);
        assert_eq!((packet.len(), packet.tailroom()), (0, 0));
        assert_eq!(packet.headroom(), bellows_packet::HEADROOM + length);
        drop(packet);
        let again = Packet::with_room(length).unwrap();
        assert_eq!(again.bytes().as_ptr(), start, "the buffer that was freed last is the one that it had");
    }
    assert_eq!(in_use(0), 0);
}

#[test]
fn a_thread_that_is_ending_can_still_take_and_free_packets() {
    struct Late(Option<Packet>);
    impl Drop for Late {
        fn drop(&mut self) {
            // The thread's cache is gone by now: ordinary buffers are unavailable, large ones are not.
            let mut burst = Packet::allocate_burst(1);
            assert!(burst.next().is_none());
            drop(Packet::with_room(70_000).unwrap());
        }
    }
    thread_local! { static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) } }
    let _turn = turn();
    let work = || LATE.with_borrow_mut(|late| late.insert(Late(None)).0 = Packet::from_bytes(b"x"));
    let held = Packet::from_bytes(b"y").unwrap();
    thread::spawn(work).join().unwrap();
    assert_eq!(in_use(1), 1);
    drop(held);
    // A thread without buffers receives the magazine that was returned last: an empty magazine would look like an empty
    // pool.
    let template = Template::new(b"z").unwrap();
    let filled = thread::spawn(move || push_filled(&mut Vector::new(), 1, &template));
    assert_eq!(filled.join().unwrap(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { wanted: usize, used: usize },
    Fill { count: usize, length: usize },
    Copy,
    DropFirst(usize),
    TrimFront(usize),
    Prepend(usize),
    Truncate(usize),
    FreeAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0usize..600, 0usize..600).prop_map(|(wanted, used)| Step::Allocate { wanted, used }),
        (0usize..300, 1usize..300).prop_map(|(count, length)| Step::Fill { count, length }),
        Just(Step::Copy),
        (0usize..50).prop_map(Step::DropFirst),
        (0usize..30).prop_map(Step::TrimFront),
        (0usize..30).prop_map(Step::Prepend),
        (0usize..100).prop_map(Step::Truncate),
        Just(Step::FreeAll),
    ]
}

/// A vector of packets holds the same bytes as a vector of byte vectors, and the pool counts its packets.
#[test]
fn packets_hold_what_byte_vectors_hold() {
    // One turn for all cases: between cases this thread's cache holds buffers that another test could miss.
    let _turn = turn();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in proptest::collection::vec(step(), 1..25))| {
        let mut vector = Vector::new();
        let mut model: Vec<Vec<u8>> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let number = number as u8;
            match step {
                Step::Allocate { wanted, used } => for mut packet in Packet::allocate_burst(wanted).take(used) {
                    packet.append(&[number; 9]);
                    if vector.push(packet).is_ok() { model.push(vec![number; 9]) }
                },
                Step::Fill { count, length } => {
                    let made = push_filled(&mut vector, count, &Template::new(&vec![number; length]).unwrap());
                    prop_assert_eq!(made, count.min(CAPACITY - model.len()));
                    model.extend(vec![vec![number; length]; made]);
                }
                Step::Copy => {
                    let mut copies = Vector::new();
                    prop_assert_eq!(push_copies(&mut copies, vector.as_slice()), model.len());
                    prop_assert_eq!(copies.bytes(), vector.bytes());
                    std::mem::swap(&mut vector, &mut copies);
                }
                Step::DropFirst(count) => {
                    vector.drain(count).for_each(drop);
                    vector.compact();
                    model.drain(..count.min(model.len()));
                }
                Step::TrimFront(count) => for (packet, bytes) in vector.as_mut_slice().iter_mut().zip(&mut model) {
                    packet.trim_front(count);
                    bytes.drain(..count.min(bytes.len()));
                },
                Step::Prepend(count) => for (packet, bytes) in vector.as_mut_slice().iter_mut().zip(&mut model) {
                    if packet.headroom() >= count {
                        packet.prepend(count)[..count].fill(number);
                        bytes.splice(..0, vec![number; count]);
                    }
                },
                Step::Truncate(length) => for (packet, bytes) in vector.as_mut_slice().iter_mut().zip(&mut model) {
                    packet.truncate(length);
                    bytes.truncate(length);
                },
                Step::FreeAll => { free_all(&mut vector); model.clear() }
            }
            vector.recount();
            prop_assert_eq!(in_use(model.len()), model.len());
            let held: Vec<&[u8]> = vector.as_slice().iter().map(Packet::bytes).collect();
            prop_assert_eq!(held, model.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        drop(vector);
        prop_assert_eq!(in_use(0), 0);
    });
}

#[test]
fn buffers_that_were_freed_in_disorder_are_taken_in_order_once_they_are_sorted() {
    let addresses =
        |packets: &[Packet]| -> Vec<usize> { packets.iter().map(|packet| packet.bytes().as_ptr().addr()).collect() };
    let mut packets: Vec<Packet> = Packet::allocate_burst(700).collect();
    // A full-period walk: 257 shares no factor with 700.
    for step in 0..700 {
        packets.swap(step, step * 257 % 700);
    }
    drop(packets);
    let disordered: Vec<Packet> = Packet::allocate_burst(700).collect();
    assert!(!addresses(&disordered).is_sorted(), "there is something to sort");
    drop(disordered);
    bellows_packet::sort_free_buffers();
    let packets: Vec<Packet> = Packet::allocate_burst(700).collect();
    assert!(addresses(&packets).is_sorted());
}

/// The flags of the mapping that contains an address, from `/proc/self/smaps`.
fn mapping_flags(address: usize) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_inside = false;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-')
            && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            is_inside = (from..to).contains(&address);
        } else if is_inside && first == "VmFlags:" {
            return line.to_owned();
        }
    }
    panic!("{address:#x} is in no mapping")
}

#[test]
fn packets_are_left_out_of_core_dumps_and_the_engines_tables_are_not() {
    let _turn = turn();
    let packets = [Packet::with_room(60).unwrap(), Packet::with_room(70_000).unwrap()];
    for packet in &packets {
        let flags = mapping_flags(packet.bytes().as_ptr() as usize);
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    }
    let vector = Vector::new();
    let flags = mapping_flags(vector.as_slice().as_ptr() as usize);
    assert!(flags.split_whitespace().all(|flag| flag != "dd"), "{flags}");
}
