//! Vectors, tables and buffers lie at the same places in processes that do the same.

use std::env;
use std::process::Command;

use bellows_arena::Fixed;
use bellows_packet::{Packet, Vector};

const HUGE_PAGE: usize = 2 << 20;

/// Set in the processes that are compared: the size of an unrelated allocation, which must not matter.
const UNRELATED: &str = "UNRELATED_ALLOCATIONS";

#[test]
fn processes_that_do_the_same_have_everything_at_the_same_places() {
    if let Ok(unrelated) = env::var(UNRELATED) {
        let _unrelated = vec![1u8; unrelated.len() * 777];
        println!("places: {:?}", places());
        return;
    }
    let all = [1, 10_000].map(places_in_process);
    assert!(all[0].contains("places: ["));
    assert_eq!(all[0], all[1]);
}

fn places_in_process(unrelated: usize) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "processes_that_do_the_same_have_everything_at_the_same_places", "--nocapture"])
        .env(UNRELATED, "x".repeat(unrelated))
        .env_remove("BELLOWS_ARENA")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let from = text.find("places: ").unwrap_or_else(|| panic!("{text}"));
    text[from..].lines().next().unwrap().to_owned()
}

/// Makes and drops vectors, tables and packets, and returns the position of each in its huge page.
fn places() -> Vec<usize> {
    let mut places = Vec::new();
    let mut note = |address: usize| places.push(address % HUGE_PAGE);
    let mut vectors: Vec<Vector> = (0..150).map(|_| Vector::new()).collect();
    let table: Fixed<[u64]> = (0..5_000).collect();
    let packets: Vec<Packet> = Packet::allocate_burst(2_000).collect();
    vectors.drain(30..60).for_each(drop);
    vectors.extend((0..40).map(|_| Vector::new()));
    note(table.as_ptr() as usize);
    vectors.iter().for_each(|vector| note(vector.as_slice().as_ptr() as usize));
    packets.iter().for_each(|packet| note(packet.bytes().as_ptr() as usize));
    places
}
