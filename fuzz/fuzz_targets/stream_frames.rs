//! Arbitrary bytes as a stream of frames with their lengths, read in arbitrary pieces: the frames are those that a
//! model finds in the whole stream.

#![no_main]

use bellows_exercise::frames::split;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<u16>)| split(&input.0, &input.1));
