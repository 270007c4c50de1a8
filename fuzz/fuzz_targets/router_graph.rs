//! Arbitrary frames into a whole router, one after the other: what leaves it is what the RFCs allow, and its books balance.

#![no_main]

use bellows_exercise::router::{MACS, PORTS, Router, seal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frames: Vec<(bool, bool, bool, Vec<u8>)>| {
    let mut router = Router::new();
    for (port, is_addressed, is_sealed, mut frame) in frames {
        let port = usize::from(port) % PORTS.len();
        // Most frames for others end at the first check.
        if is_addressed && frame.len() >= 6 {
            frame[..6].copy_from_slice(&MACS[port]);
        }
        if is_sealed {
            seal(&mut frame);
        }
        router.check(port, &frame);
    }
});
