//! Ports that do not give large buffers back leave the other ports their share.

mod model;

use std::sync::Arc;

use bellows_packet::{LargeShare, Packet, Vector, pool};
use bellows_virtio::Features;
use bellows_virtio::ring::TransmitRing;

use model::flag::NEXT;
use model::guest::BORDER;
use model::random::Random;
use model::raw::RawRing;

const LARGE: usize = 64;
const SIZE: u16 = 256;

/// A driver that makes chains of one length available.
struct Port {
    raw: RawRing,
    ring: TransmitRing,
}

impl Port {
    fn new(features: Features, share: Option<&Arc<LargeShare>>) -> Port {
        let raw = RawRing::new(features, SIZE, &mut Random::new(7));
        let mut ring = TransmitRing::new(raw.setup()).unwrap();
        share.into_iter().for_each(|share| ring.set_share(Arc::clone(share)));
        Port { raw, ring }
    }

    /// Makes packets of these lengths available, from the start of the ring.
    fn offer(&mut self, lengths: &[u32]) {
        for (index, &length) in (0..).zip(lengths) {
            for (place, bytes, flags) in [(2 * index, 12, NEXT), (2 * index + 1, length, 0)] {
                self.raw.write(place, BORDER - 100_000, bytes, flags, place + 1);
            }
            self.raw.write_head(index, 2 * index);
        }
        self.raw.write_index(lengths.len() as u16);
    }

    /// All packets that come.
    fn take(&mut self) -> Vec<Packet> {
        let mut all = Vec::new();
        let mut packets = Vector::new();
        while self.ring.transmit(&mut packets, 32).unwrap() > 0 {
            all.extend(packets.drain(usize::MAX));
        }
        all
    }
}

#[test]
fn large_packets_parked_at_one_port_leave_the_others_their_quota() {
    pool::init(pool::Config { large_packets: LARGE, ..pool::Config::default() }).unwrap();
    for features in [Features::VERSION_1, Features::VERSION_1 | Features::RING_PACKED] {
        let [greedy, other] = [(); 2].map(|()| Arc::new(LargeShare::new()));
        let mut port = Port::new(features, Some(&greedy));
        let mut lengths = vec![5_000; 100];
        lengths.push(60);
        port.offer(&lengths);
        let held = port.take();
        // A third of the half is set aside for the other port, and a third for everybody without a share.
        let most = LARGE - 2 * (LARGE / 6);
        assert_eq!(held.iter().filter(|packet| packet.len() == 5_000).count(), most);
        assert_eq!(held.last().map(Packet::len), Some(60), "what comes behind is not held up");
        assert_eq!(port.ring.counters().no_large_buffer, 100 - most as u64);
        assert_eq!((port.ring.counters().packets, greedy.in_use()), (most as u64 + 1, most));
        // A copy is charged to the quota of its original, which has nothing left.
        assert!(held[0].copy().is_none() && held.last().unwrap().copy().is_some());

        let mut second = Port::new(features, Some(&other));
        second.offer(&[5_000; 30]);
        assert_eq!(second.take().len(), LARGE / 6);
        let mut third = Port::new(features, None);
        third.offer(&[5_000; 30]);
        assert_eq!(third.take().len(), LARGE / 6);

        drop(held);
        assert_eq!(greedy.in_use(), 0);
        third.offer(&[]);
        let mut fourth = Port::new(features, Some(&other));
        fourth.offer(&[5_000; 100]);
        assert_eq!(fourth.take().len(), most);
    }
}
