//! Arbitrary bytes as messages of the kernel about routes, neighbours and interfaces: each route that is reported is
//! whole.

#![no_main]

use bellows_exercise::netlink::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    read(input.0, &input.1);
});
