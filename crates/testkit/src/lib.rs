//! Helpers shared by the tests of several crates.
//!
//! Functions here panic when something other than the subject of the test goes wrong: the test then fails with that
//! message. [`testpmd`] alone returns errors, because `xtask` measures with it, too.
#![forbid(unsafe_code)]

pub mod captures;
pub mod frames;
pub mod guest;
pub mod hugepages;
pub mod programs;
pub mod pty;
pub mod scratch;
pub mod skips;
pub mod soak;
pub mod stream;
pub mod testpmd;
pub mod wait;

pub use scratch::scratch;
pub use skips::skip;
pub use wait::eventually;
