//! Malicious front ends of the vhost-user protocol.
//!
//! A device must serve anything that connects to its socket, and one guest must not harm another. Tests, fuzzers and
//! `bellows bench neighbours` use the front ends of this crate, which speak the protocol as far as necessary, and then
//! do what a guest or its process could do to the engine.
//!
//! - [`ATTACKS`]: the attacks by name. An [`Assault`] repeats one of them, or inputs of a fuzzer, in short turns.
//! - [`ScriptedDriver`]: a front end scripted by bytes, each of which decides its next action. [`RingInput`]: a
//!   driver's memory from bytes. Fuzzers use both.
//!
//! "Specification" means virtio 1.2 (OASIS, 2022) throughout.
#![forbid(unsafe_code)]

mod assault;
mod attacks;
mod bytes;
mod peer;
mod rings;

pub use assault::Assault;
pub use attacks::{ATTACKS, Attack};
pub use bytes::ScriptedDriver;
pub use rings::{REGION, RingInput, START};
