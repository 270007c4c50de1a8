//! Front ends of the vhost-user protocol that mean harm.
//!
//! A device must serve whatever connects to its socket, and one guest must not cost another anything. This crate is what
//! tests, fuzzers and `bellows bench neighbours` connect: front ends that speak the protocol as far as they have to, and do
//! then what a guest or its process could do to the engine.
//!
//! - [`ATTACKS`]: what can be tried, by name. An [`Assault`] tries one of them, or what a fuzzer found, again and again, in
//!   short turns.
//! - [`ScriptedDriver`]: a front end made of bytes: each decides what it says next. [`RingInput`]: a driver's memory made of bytes.
//!   Fuzzers feed both.
//!
//! "Specification" is virtio 1.2 (OASIS, 2022) throughout.
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
