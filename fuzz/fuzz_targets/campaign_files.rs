//! Arbitrary bytes as a campaign file, a table in CSV, a journal of results or a register of hypotheses: the first byte
//! says which. Any input is one or has errors, which can be rendered; what a runner reads as a row a test reads alike.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| bellows_campaign::exercise(bytes));
