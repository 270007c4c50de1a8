//! Arbitrary bytes as filters and a packet: interpreters and machine code agree, and nothing is read beyond the packet,
//! whose bytes end at a page that cannot be read.

#![no_main]

use bellows_exercise::filter::agree_on;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<u8>, Vec<u8>)| agree_on(&[&input.0, &input.1], &input.2));
