//! The command `bellows`.
#![forbid(unsafe_code)]

/// Apps of several workers are made by one thread, one behind the other.
#[global_allocator]
static HEAP: bellows_sys::heap::WholeLines = bellows_sys::heap::WholeLines;

fn main() -> std::process::ExitCode {
    bellows::Command::new("bellows").main()
}
