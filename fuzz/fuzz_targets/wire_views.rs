//! Arbitrary bytes as a packet of every protocol: views are made, read, broken and read again. Nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|input: (Vec<u8>, u32)| exercise::touch_all(input.0, input.1));
