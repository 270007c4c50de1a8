//! What property tests and fuzz targets do alike with arbitrary bytes. It is in no program that users run.
//!
//! Functions here panic where the code that they exercise breaks a promise: the test fails, or the fuzzer has found
//! something.
#![forbid(unsafe_code)]

pub mod backend;
pub mod wire;
