//! A pool that runs empty. This test has its own process: other threads would keep free buffers in their caches.

use bellows_packet::{Packet, pool};

#[test]
fn a_pool_that_runs_out_says_so_and_recovers() {
    pool::init(pool::Config { packets: 4_096, ..pool::Config::default() }).unwrap();
    let all: Vec<Packet> = Packet::allocate_burst(usize::MAX).collect();
    assert_eq!(all.len(), 4_096);
    assert_eq!(pool::usage().in_use, 4_096);
    assert!(Packet::from_bytes(b"one more").is_none());
    let mut burst = Packet::allocate_burst(10);
    assert!(burst.next().is_none());
    assert_eq!(burst.missing(), 10);
    drop(burst);
    drop(all);
    assert_eq!(pool::usage().in_use, 0);
    let again: Vec<Packet> = Packet::allocate_burst(4_096).collect();
    let mut addresses: Vec<_> = again.iter().map(|packet| packet.bytes().as_ptr() as usize).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 4_096, "each buffer has one owner");
}
