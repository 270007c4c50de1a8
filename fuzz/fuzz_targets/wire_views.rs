//! Arbitrary bytes as a packet of every protocol: views are created, read, damaged and read again. Nothing panics.

#![no_main]

use bellows_exercise::wire::touch_all;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, u32)| touch_all(input.0, input.1));
