//! A source generates its packets later if the pool has no buffers. The only test of its process, because the pool
//! belongs to the process.

use bellows_basic::source::{Config, Headers, Payload, Source};
use bellows_config::{Configure, Context};
use bellows_packet::{Packet, pool};
use bellows_rig::Rig;

#[test]
fn a_starved_source_leaves_no_number_out() {
    pool::init(pool::Config { packets: 1024, large_packets: 2, ..pool::Config::default() }).unwrap();
    let config = Config {
        sizes: vec![60, 9000, 1514],
        weights: vec![20, 1, 20],
        payload: Payload::Sequence,
        headers: Headers::Ethernet,
        count: Some(5000),
        ..Config::default()
    };
    let mut rig = Rig::new(Source::configure(config, &Context::default()).unwrap(), &[], &["output"]);
    let mut numbers = Vec::new();
    while !rig.is_done() {
        // Packets are not freed until the pool is empty.
        while rig.breathe() {}
        assert!(pool::usage().in_use > 0);
        let packets = rig.received_packets("output");
        numbers.extend(
            packets.iter().map(|packet: &Packet| u64::from_be_bytes(packet.bytes()[14..22].try_into().unwrap())),
        );
    }
    assert!(numbers.into_iter().eq(0..5000));
    let counts = rig.counts();
    assert_eq!((counts.out_packets, counts.drops["txdrop"]), (5000, 0));
    assert!(counts.counters["buffer_waits"] > 0);
    assert_eq!(counts.dropped(), 0, "what was never made is not dropped");
    drop(rig);
    assert_eq!(pool::usage().in_use, 0);
}
