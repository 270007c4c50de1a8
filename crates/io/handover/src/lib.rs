//! Control threads, and the exchange of values between them and an engine that never waits.
//!
//! A port of a network has a control thread, which opens sockets, negotiates with the other side and waits for changes.
//! It lends the engine what packets pass through, such as rings and queues, and takes it back when the other side has
//! gone. The engine checks one word to see whether there is anything to exchange.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod exchange;
mod log_limit;
mod signal;
mod thread;

pub use exchange::{Bell, Borrowed, Borrower, Held, Lender, Recalled, Stopper, exchange, shared_exchange};
pub use log_limit::{LogLimit, with_suppressed};
pub use signal::Signal;
pub use thread::{ControlThread, panic_message};
