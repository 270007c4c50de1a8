//! The command `bellows`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    bellows::Command::new("bellows").main()
}
