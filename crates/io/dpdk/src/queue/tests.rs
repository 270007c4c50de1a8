use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bellows_netif::OpenError;
use bellows_packet::pool;
use bellows_ports::QueueSet;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::environment::Environment;
use crate::fake::{self, Way};
use crate::source::DpdkConfig;

/// Tests here compare the use of the whole pool, and share the devices.
static ALONE: Mutex<()> = Mutex::new(());

fn environment() -> Environment {
    Environment { table: &fake::TABLE, memory: Memory::get(&fake::TABLE).unwrap(), has_huge_pages: false }
}

fn config(device: &str, mtu: u16) -> DpdkConfig {
    DpdkConfig {
        device: device.to_owned(),
        queues: QueueSet::Whole(1),
        device_queues: None,
        descriptors: 64,
        mtu: Some(mtu),
        promiscuous: true,
    }
}

/// A queue of a new device.
fn queue(mtu: u16) -> DpdkQueue {
    let device = Device::open(environment(), &config("fake0", mtu)).unwrap();
    DpdkQueue::new(&device, 0, 64).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    /// Sends packets of these lengths, from so many bytes behind where they usually begin; large ones come in a large
    /// buffer.
    Send(Vec<(usize, usize, bool)>),
    Receive(usize),
    /// The driver takes only so many packets.
    Accept(usize),
    Flush,
    Ways(Vec<Way>),
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![8 => 14usize..200, 2 => 1_000usize..2_048, 1 => 2_049usize..9_014, 1 => 1usize..14];
    let packet = (length, 0usize..3, prop::bool::weighted(0.1));
    let way = prop_oneof![
        6 => Just(Way::AsItIs),
        2 => (0usize..200).prop_map(Way::Moved),
        1 => (60usize..2_048).prop_map(Way::Divided),
        1 => Just(Way::Foreign),
        1 => Just(Way::Lost),
    ];
    prop_oneof![
        4 => vec(packet, 0..20).prop_map(Step::Send),
        3 => (0usize..100).prop_map(Step::Receive),
        1 => (0usize..10).prop_map(Step::Accept),
        1 => Just(Step::Flush),
        2 => vec(way, 0..20).prop_map(Step::Ways),
    ]
}

/// What the driver is expected to do, with frames as bytes.
#[derive(Default)]
struct Model {
    staged: VecDeque<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
    ways: VecDeque<Way>,
    accepts: usize,
    not_sent: u64,
}

impl Model {
    fn flush(&mut self) {
        while self.accepts > 0
            && let Some(frame) = self.staged.pop_front()
        {
            self.accepts -= 1;
            if self.ways.pop_front() != Some(Way::Lost) {
                self.waiting.push_back(frame);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Whatever a driver does with buffers, packets arrive byte by byte and in order, the counts of packets are right, and at
    /// the end no buffer is lost.
    #[test]
    fn packets_go_through_a_driver_and_back(steps in vec(step(), 1..60)) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let foreign = environment().memory.foreign();
        let before = pool::usage();
        let used = bellows_packet::buffer_use();
        let mut queue = queue(9_000);
        let mut model = Model { accepts: usize::MAX, ..Model::default() };
        let mut received = 0;
        let mut serial = 0u8;
        for step in steps {
            match step {
                Step::Send(lengths) => {
                    let mut packets = Vector::new();
                    let mut frames = Vec::new();
                    for (length, skip, large) in lengths {
                        serial = serial.wrapping_add(1);
                        let room = if large { 9_014 } else { length + skip };
                        let mut packet = Packet::with_room(room).unwrap();
                        packet.extend(skip + length).fill(serial);
                        packet.trim_front(skip);
                        frames.push(packet.bytes().to_vec());
                        prop_assert!(packets.push(packet).is_ok());
                    }
                    let room = 64 - model.staged.len();
                    let taken = queue.send(packets.as_slice()).unwrap();
                    prop_assert_eq!(taken.count, frames.len().min(room));
                    prop_assert_eq!(taken.stop, (frames.len() > room).then_some(Rejection::Full));
                    queue.keep_first(&mut packets, taken.count);
                    prop_assert_eq!(packets.len(), frames.len() - taken.count);
                    for frame in frames.into_iter().take(taken.count) {
                        match frame.len() {
                            0..HEADER => model.not_sent += 1,
                            _ => model.staged.push_back(frame),
                        }
                    }
                }
                Step::Flush => {
                    queue.flush().unwrap();
                    model.flush();
                    prop_assert_eq!(queue.has_unsent(), !model.staged.is_empty());
                }
                Step::Receive(most) => {
                    let mut packets = Vector::new();
                    queue.receive(&mut packets, most).unwrap();
                    prop_assert_eq!(packets.len(), most.min(model.waiting.len()));
                    received += packets.len();
                    for packet in packets.as_slice() {
                        prop_assert_eq!(packet.bytes(), model.waiting.pop_front().unwrap());
                    }
                }
                Step::Accept(count) => {
                    fake::with(|fake| fake.ports.get_mut(&0).unwrap().accepts = count);
                    model.accepts = count;
                }
                Step::Ways(ways) => {
                    fake::with(|fake| fake.ports.get_mut(&0).unwrap().ways.extend(&ways));
                    model.ways.extend(ways);
                }
            }
        }
        let counts = queue.counts();
        prop_assert_eq!((counts.not_sent, counts.rx_bad_header, counts.rx_no_buffer), (model.not_sent, 0, 0));
        drop(queue);
        prop_assert_eq!(pool::usage(), before, "{} received", received);
        let used = bellows_packet::buffer_use().since(used);
        prop_assert_eq!(used.taken, used.freed);
        prop_assert_eq!(environment().memory.foreign(), foreign);
    }
}

#[test]
fn frames_longer_than_the_mtu_are_refused_and_vlan_tags_are_not() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut queue = queue(1_500);
    let packet = |length: usize, tagged: bool| {
        let mut bytes = vec![0; length];
        if tagged {
            bytes[12..14].copy_from_slice(&[0x81, 0x00]);
        }
        Packet::from_bytes(&bytes).unwrap()
    };
    for (length, tagged, stop) in [
        (1_514, false, None),
        (1_515, false, Some(Rejection::TooLong)),
        (1_518, true, None),
        (1_519, true, Some(Rejection::TooLong)),
    ] {
        let packets = [packet(length, tagged)];
        let taken = queue.send(&packets).unwrap();
        assert_eq!((taken.count == 1, taken.stop), (stop.is_none(), stop), "{length}");
        packets.into_iter().take(taken.count).for_each(|packet| queue.keep(packet));
    }
}

#[test]
fn a_pool_without_buffers_loses_no_buffer() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = pool::usage();
    let mut queue = queue(9_000);
    let mut long = Packet::with_room(9_000).unwrap();
    long.extend(9_000).fill(7);
    let mut all = Vec::new();
    while let Some(packet) = Packet::with_room(60) {
        all.push(packet);
    }
    // Two buffers are not enough for five parts.
    all.truncate(all.len() - 2);
    let packets = [long];
    assert_eq!(queue.send(&packets).unwrap(), Taken { count: 1, stop: None });
    packets.into_iter().for_each(|packet| queue.keep(packet));
    queue.flush().unwrap();
    assert_eq!((queue.counts().not_sent, queue.has_unsent()), (1, false));
    drop((queue, all));
    assert_eq!(pool::usage(), before);
}

#[test]
fn a_device_is_removed_with_its_last_queue_and_can_be_made_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let part = |numbers: &[u16]| DpdkConfig {
        queues: QueueSet::Part(numbers.to_vec()),
        device_queues: Some(2),
        ..config("fake1", 1_500)
    };
    for _ in 0..2 {
        let first = Device::open(environment(), &part(&[0])).unwrap();
        let second = Device::open(environment(), &part(&[1])).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let other = DpdkConfig { promiscuous: false, ..part(&[1]) };
        assert!(matches!(Device::open(environment(), &other), Err(OpenError::Busy(_))));
        let queue = DpdkQueue::new(&first, 0, 64).unwrap();
        assert!(DpdkQueue::new(&first, 0, 64).is_none(), "in use");
        drop(queue);
        assert!(DpdkQueue::new(&first, 0, 64).is_some());
        drop((first, second));
        assert!(fake::with(|fake| fake.ports.is_empty()));
    }
}

#[test]
fn a_device_that_cannot_be_started_says_what_failed_and_is_gone() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let open = |config: DpdkConfig| match Device::open(environment(), &config) {
        Err(OpenError::Failed(why)) => why,
        _ => panic!("{config:?} is opened"),
    };
    let error = open(config("no_such0,a=b", 1_500));
    assert_eq!(error, "DPDK cannot make the device no_such0: No such device");
    let error = open(DpdkConfig { descriptors: 13, ..config("fake2", 1_500) });
    assert_eq!(error, "fake2: DPDK cannot start it: failed");
    let error = open(DpdkConfig { queues: QueueSet::Whole(5), ..config("fake2", 1_500) });
    assert!(error.contains("at most 4 queues"), "{error}");
    assert!(fake::with(|fake| fake.ports.is_empty()));
}

#[test]
fn the_statistics_of_a_device_are_counted_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let two = DpdkConfig { queues: QueueSet::Whole(2), ..config("fake3", 1_500) };
    let device = Device::open(environment(), &two).unwrap();
    let mut queues = [0, 1].map(|number| DpdkQueue::new(&device, number, 64).unwrap());
    fake::with(|fake| {
        let port = fake.ports.get_mut(&3).unwrap();
        (port.stats.missed, port.stats.no_mbuf, port.stats.receive_errors, port.stats.send_errors) = (1, 2, 3, 4);
        port.down = true;
    });
    device.update_stats().unwrap();
    let counts = queues[0].counts();
    assert_eq!((counts.missed, counts.no_mbuf, counts.errors, counts.send_errors), (1, 2, 3, 4));
    assert_eq!(queues[1].counts(), QueueCounts::default());
    assert_eq!(device.link().map(|link| link.up), Some(0));
}
