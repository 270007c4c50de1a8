//! The generator of frames for `bench/campaigns/interfaces.sh`: frames of 64 bytes until it is killed.
//!
//! `frames flood INTERFACE` sends as many as the kernel can, out of an interface; `frames paced ADDRESS RATE` sends UDP at
//! a fixed mean rate, in frames a second.
#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellows_netdev::bpf::LiveFrames;

/// A frame of 64 bytes with the check sequence, which no interface here has.
const FRAME: usize = 60;

/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

/// MAC addresses for documentation (RFC 7042). The interface has the second one; nothing has the first.
const MACS: [[u8; 6]; 2] = [[0, 0, 0x5e, 0, 0x53, 3], [0, 0, 0x5e, 0, 0x53, 1]];

/// The EtherType for local experiments (IEEE 802): no protocol of the kernel takes it.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Frames in one call, which lasts as long as the whole measurement.
const ENDLESS: u32 = u32::MAX;

/// The longest burst after an interruption: small beside the rings of all forwarders.
const MAX_BURST: u64 = 64;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let error = match words[..] {
        ["flood", interface] => match flood(interface) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => format!("cannot send live frames (Linux ≥ 5.18): {error}"),
        },
        ["paced", address, rate] => match (address.parse(), rate.parse()) {
            (Ok(address), Ok(rate)) => match pace(address, rate) {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => format!("cannot send UDP: {error}"),
            },
            _ => format!("no address and rate: {address} {rate}"),
        },
        _ => "write: frames flood INTERFACE, or frames paced ADDRESS RATE".to_owned(),
    };
    eprintln!("frames: {error}");
    ExitCode::FAILURE
}

/// No socket sends as fast as forwarders forward, with the same processor at work for the receiver.
fn flood(interface: &str) -> io::Result<()> {
    let frames = LiveFrames::to_interface(interface)?;
    let mut frame = [0; FRAME];
    frame[..12].copy_from_slice(MACS.as_flattened());
    frame[12..14].copy_from_slice(&ETHERTYPE);
    loop {
        frames.send(&frame, ENDLESS)?;
    }
}

/// Sends one frame at a time, without ever sleeping.
fn pace(address: Ipv4Addr, rate: u32) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((address, 9))?;
    let mut pace = Pace::new(rate);
    let start = Instant::now();
    loop {
        for _ in 0..pace.due(start.elapsed()) {
            // A full queue loses the frame; the counter of the interface does not have it.
            let _ = socket.send(&[0; FRAME - HEADERS]);
        }
    }
}

/// When frames are due: after gaps from half of the mean to one and a half, at random. The kernel's ticks sample what a
/// processor does, and equal gaps of 5 µs would let all of them hit the same part of the work.
struct Pace {
    mean: Duration,
    next: Duration,
}

impl Pace {
    fn new(rate: u32) -> Pace {
        Pace { mean: Duration::from_secs(1) / rate.max(1), next: Duration::ZERO }
    }

    /// The number of frames that are due by now. What the processor missed while it was taken away is not made up for.
    fn due(&mut self, now: Duration) -> u64 {
        let mut due = 0;
        while self.next <= now {
            self.next += self.mean.mul_f64(0.5 + fastrand::f64());
            due += 1;
            if due == MAX_BURST {
                self.next = self.next.max(now);
                break;
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_at_the_mean_rate_and_never_in_long_bursts() {
        let mut pace = Pace::new(200_000);
        let bursts: Vec<u64> = (0..1_000_000).map(|microsecond| pace.due(Duration::from_micros(microsecond))).collect();
        let all: u64 = bursts.iter().sum();
        assert!((198_000..=202_000).contains(&all), "{all} in a second");
        assert!(bursts.iter().all(|burst| *burst <= 1), "gaps are longer than 2 µs");
        assert_eq!(pace.due(Duration::from_secs(5)), MAX_BURST);
        assert!(pace.due(Duration::from_secs(5)) <= 1);
    }
}
