//! The driver's side against the device's: packets of all sizes go through both, with every relevant set of features,
//! and against a device that writes anything anywhere.

mod model;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellows_ipc::mapping::SharedMapping;
use bellows_ipc::notify::{Notifier, Notifiers};
use bellows_packet::{Offload, Packet, Vector, pool};
use bellows_ports::Rejection;
use bellows_sys::wake::PeerEvent;
use bellows_testkit::wait::meanwhile;
use bellows_virtio::driver::{Chains, Driver, DriverConfig, UsedBell};
use bellows_virtio::ring::{Position, ReceiveRing, Setup, Stop, Taken, TransmitRing};
use bellows_virtio::vhost::{Placed, QueueLayout};
use bellows_virtio::{Features, Memory, RegionSpec};

use model::features::subsets;
use model::frames;
use model::random::Random;

const CHAINS: [Chains; 3] = [Chains::Single, Chains::Chained, Chains::Indirect];

/// A driver and a device that share its memory.
struct Pair {
    driver: Driver,
    transmit: TransmitRing,
    receive: ReceiveRing,
    shared: SharedMapping,
    length: usize,
}

fn connect(features: Features, ring_size: u16, chains: Chains) -> Pair {
    pool::ensure().unwrap();
    let config = DriverConfig { features, pairs: 1, ring_size, chains };
    let Placed { driver, mut memory, mut queues } = Driver::place(config, &Notifiers::new(2, 0).unwrap()).unwrap();
    let shared = memory.remove(0);
    let mapping = SharedMapping::new(&shared.file, 0, shared.length).unwrap();
    let length = shared.length as usize;
    let spec = RegionSpec {
        guest: shared.address,
        length: shared.length,
        user: shared.address,
        offset: shared.offset,
        file: shared.file,
    };
    let memory = Arc::new(Memory::map(vec![spec]).unwrap());
    let setup = |queue: QueueLayout| Setup {
        memory: Arc::clone(&memory),
        features,
        size: queue.size,
        areas: queue.areas,
        position: Position::start(features),
        call: queue.call.map(notifier),
        kick: queue.kick.map(|kick| PeerEvent::new(kick.into()).unwrap()),
    };
    let transmit = TransmitRing::new(setup(queues.remove(1))).unwrap();
    let receive = ReceiveRing::new(setup(queues.remove(0))).unwrap();
    Pair { driver, transmit, receive, shared: mapping, length }
}

/// A notifier that raises an event.
fn notifier(call: File) -> Notifier {
    let notifier = Notifiers::patient(1).unwrap().get(0);
    notifier.set(Some(call.into())).unwrap();
    notifier
}

/// All sets of the features that make a difference to a driver.
fn feature_sets() -> Vec<Features> {
    let options = [
        Features::RING_PACKED,
        Features::MRG_RXBUF,
        Features::IN_ORDER,
        Features::EVENT_IDX,
        Features::INDIRECT_DESC,
        Features::VERSION_1,
        Features::CSUM | Features::GUEST_CSUM,
        Features::HOST_TSO4 | Features::GUEST_TSO4,
    ];
    subsets(&options).filter(|set| set.check().is_ok()).collect()
}

/// A packet of any length and kind. Most are small.
fn packet(random: &mut Random, features: Features) -> Packet {
    let gso_packet = features.has(Features::HOST_TSO4) && random.one_in(50);
    let length = match random.between(0, 9) {
        _ if gso_packet => random.between(2_000, 65_550),
        0..=6 => random.between(1, 200),
        7 | 8 => random.between(1, 2_048),
        _ => random.between(2_000, 9_014),
    };
    if !gso_packet && (!features.has(Features::CSUM) || random.one_in(2)) {
        return Packet::from_bytes(&random.bytes(length)).unwrap();
    }
    let is_tcp = gso_packet || random.one_in(2);
    let is_ipv6 = !gso_packet && random.one_in(2);
    let frame = frames::frame(random, length, is_tcp, is_ipv6);
    let mut packet = Packet::from_bytes(&frame.bytes).unwrap();
    packet.set_offload(if gso_packet { frame.gso(1448) } else { frame.checksum() });
    packet
}

/// Sends packets to one end, as many as it takes, and records what must come out at the other.
fn send<S>(
    packets: Vec<Packet>,
    on_the_way: &mut Vec<Packet>,
    mut give: impl FnMut(&[Packet]) -> Taken<S>,
) -> Option<S> {
    let taken = give(&packets);
    let mut packets = packets.into_iter();
    on_the_way.extend(packets.by_ref().take(taken.count));
    packets.next().map(|_| taken.stop)
}

fn compare(received: &Vector, on_the_way: &mut Vec<Packet>) {
    for packet in received.as_slice() {
        let sent = on_the_way.remove(0);
        assert!(packet.bytes() == sent.bytes(), "a packet of {} bytes differs", sent.len());
        assert_eq!(packet.offload(), sent.offload());
    }
}

fn rings(bell: &UsedBell) -> bool {
    bell.word().load(Relaxed) & bell.mask() != bell.quiet()
}

/// Packets go both ways, in batches of all sizes, until the indices have wrapped around.
fn exchange(features: Features, ring_size: u16, chains: Chains, seed: u64) {
    let mut random = Random::new(seed);
    let mut pair = connect(features, ring_size, chains);
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let queues = &mut pair.driver.pairs[0];
    let bell = queues.receive.bell();
    for step in 0..60 {
        if step == 30 {
            // A driver may change its layout: Linux chooses one for each packet.
            let other = random.of(&CHAINS);
            queues.transmit.set_chains(other);
            queues.receive.set_chains(other);
        }
        let batch = random.of(&[0, 1, 5, 40]);
        let packets = (0..batch).map(|_| packet(&mut random, features)).collect();
        match send(packets, &mut up, |packets| queues.transmit.transmit(packets).unwrap()) {
            Some(Some(Rejection::TooLong)) => assert!(ring_size < 64, "every packet fits into a ring of 64"),
            stop => assert!(matches!(stop, None | Some(Some(Rejection::Full))), "{stop:?}"),
        }
        let mut received = Vector::new();
        pair.transmit.transmit(&mut received, random.of(&[1, 30, 1024])).unwrap();
        compare(&received, &mut up);

        if down.is_empty() {
            assert!(!rings(&bell), "the bell rings while nothing has come");
            bell.arm();
        }
        let packets = (0..batch).map(|_| packet(&mut random, features)).collect();
        let quiet = down.is_empty();
        match send(packets, &mut down, |packets| pair.receive.receive(packets).unwrap()) {
            Some(Stop::TooLong) => assert!(ring_size < 64 || !features.has(Features::MRG_RXBUF)),
            stop => assert!(matches!(stop, None | Some(Stop::Full | Stop::Spent)), "{stop:?}"),
        }
        if quiet && !down.is_empty() {
            assert!(rings(&bell), "the bell does not ring");
            let readable =
                bellows_sys::wake::sleep_until_readable(&[bell.descriptor().unwrap()], Some(std::time::Duration::ZERO));
            assert_eq!(readable.unwrap(), [true], "an armed driver is told");
        }
        bell.disarm();
        let mut received = Vector::new();
        queues.receive.receive(&mut received, random.of(&[1, 30, 1024])).unwrap();
        compare(&received, &mut down);
    }
    let through = [queues.transmit.counters(), queues.receive.counters()].map(|counters| counters.packets);
    assert!(through[0] > 100 && through[1] > 100, "{through:?} packets went through");
}

#[test]
fn packets_go_both_ways_with_any_features() {
    for (number, features) in feature_sets().into_iter().enumerate() {
        for (layout, chains) in CHAINS.into_iter().enumerate() {
            let packed = features.has(Features::RING_PACKED);
            let sizes = if packed { [37, 64, 200, 256] } else { [16, 64, 128, 256] };
            let size = sizes[(number + layout) % sizes.len()];
            eprintln!("{features}, {chains:?}, a ring of {size}");
            exchange(features, size, chains, number as u64);
        }
    }
}

#[test]
fn packets_with_offloads_not_negotiated_are_left_to_the_caller() {
    let mut pair = connect(Features::VERSION_1, 64, Chains::Single);
    let mut packet = Packet::from_bytes(&[0; 100]).unwrap();
    packet.set_offload(Offload { flags: Offload::NEEDS_CHECKSUM, checksum_start: 34, ..Offload::default() });
    let packets = [Packet::from_bytes(&[1; 60]).unwrap(), packet];
    let taken = pair.driver.pairs[0].transmit.transmit(&packets).unwrap();
    assert_eq!((taken.count, taken.stop), (1, Some(Rejection::Offload)));
}

/// The device's process writes randomly into all of the shared memory, while the driver sends and receives: a step may
/// only fail with an error that names the violation.
#[test]
fn a_device_that_writes_anything_anywhere_stops_a_queue_at_most() {
    let mut errors = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let features = random.of(&feature_sets());
        let mut pair = connect(features, 64, random.of(&CHAINS));
        let queues = &mut pair.driver.pairs[0];
        for _ in 0..30 {
            let packets: Vec<Packet> = (0..10).map(|_| packet(&mut random, features)).collect();
            let sent = queues.transmit.transmit(&packets);
            errors.extend(sent.err().map(|error| error.name()));
            // A device that mostly works, so that later code is reached.
            let _ = pair.transmit.transmit(&mut Vector::new(), 5);
            let _ = pair.receive.receive(&packets);
            for _ in 0..random.of(&[0, 1, 40]) {
                // Rings are at the start, where most damage is possible.
                let most = if random.one_in(2) { 6_000 } else { pair.length };
                let at = random.between(0, most / 2 - 1) * 2;
                let value = random.of(&[0, 1, 2, 64, 0x8080, 0xffff]);
                // SAFETY: the offset is below the mapping's length.
                unsafe { pair.shared.start().as_ptr().add(at).cast::<u16>().write_volatile(value) };
            }
            let mut received = Vector::new();
            let came = queues.receive.receive(&mut received, 20);
            errors.extend(came.err().map(|error| error.name()));
        }
    }
    let all = ["buffer_count", "index_jump", "no_header", "too_much_written", "unknown_buffer"];
    assert_eq!(errors.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn memory_that_changes_while_the_driver_reads_it_does_no_harm() {
    for features in [
        Features::NONE,
        Features::VERSION_1 | Features::RING_PACKED | Features::MRG_RXBUF | Features::CSUM | Features::GUEST_CSUM,
        Features::VERSION_1 | Features::IN_ORDER | Features::EVENT_IDX | Features::MRG_RXBUF,
    ] {
        let Pair { mut driver, mut transmit, mut receive, shared, length } = connect(features, 64, Chains::Single);
        let mut scribbles = Random::new(1);
        let scribble = || {
            let at = scribbles.between(0, length.min(8_000) - 1);
            // SAFETY: the offset is below the mapping's length.
            unsafe { shared.start().as_ptr().add(at).write_volatile(scribbles.next() as u8) };
        };
        meanwhile(scribble, || {
            let mut random = Random::new(2);
            for _ in 0..2_000 {
                let packets: Vec<Packet> = (0..5).map(|_| packet(&mut random, features)).collect();
                let _ = driver.pairs[0].transmit.transmit(&packets);
                let _ = transmit.transmit(&mut Vector::new(), 5);
                let _ = receive.receive(&packets);
                let _ = driver.pairs[0].receive.receive(&mut Vector::new(), 20);
            }
        });
    }
}
