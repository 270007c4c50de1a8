//! The command `bellows` with your own apps.
#![forbid(unsafe_code)]

mod decrement_ttl;
mod long_path;
mod udp_receiver;

fn main() -> std::process::ExitCode {
    let command = bellows::Command::new("my-bellows").app::<decrement_ttl::DecrementTtl>();
    command.app::<udp_receiver::UdpReceiver>().compound::<long_path::LongPath>().main()
}
