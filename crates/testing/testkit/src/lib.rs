//! Helpers shared by the tests of several crates.
//!
//! Functions here panic when something other than the subject of the test goes wrong: the test then fails with that
//! message. [`testpmd`], [`dpdk`] and the functions that `xtask` uses as well return errors.
#![forbid(unsafe_code)]

pub mod captures;
pub mod child;
pub mod dpdk;
pub mod frames;
pub mod guest;
pub mod hugepages;
pub mod memory;
pub mod netns;
pub mod page;
pub mod programs;
pub mod pty;
pub mod rib;
pub mod scratch;
pub mod skips;
pub mod soak;
pub mod stream;
pub mod testpmd;
pub mod tree;
pub mod wait;

pub use scratch::scratch;
pub use skips::skip;
pub use wait::eventually;
