//! The command `bellows` with an app of one's own.
#![forbid(unsafe_code)]

mod decrement_ttl;

fn main() -> std::process::ExitCode {
    bellows::Command::new("custom-bellows").app::<decrement_ttl::DecrementTtl>().main()
}
