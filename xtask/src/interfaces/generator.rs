//! The generator of frames: this program again, in the generator's namespace, on its processor.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellows_netdev::bpf::LiveFrames;
use bellows_testkit::programs::Background;

use super::lab::{FRAME_SINK_ADDRESS, Lab, SOURCE, SOURCE_NAMESPACE};
use crate::TaskError;
use crate::measured::{SESSION, raise_session_priority};

/// Makes this program the generator; not for users.
pub const GENERATE: &str = "--generate";

/// A frame of 64 bytes with the check sequence, which no interface here has.
const FRAME: usize = 60;

/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

/// The EtherType for local experiments (IEEE 802): no protocol of the kernel takes it.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Frames in one call, which lasts as long as the whole measurement.
const ENDLESS: u32 = u32::MAX;

/// The rate of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As many as the kernel can send.
    Full,
    /// Frames a second.
    Of(usize),
}

/// Starts the generator. It is killed when the value is dropped.
pub fn start(rate: Rate, cpu: usize) -> Result<Background, TaskError> {
    let program = std::env::current_exe().map_err(|error| TaskError::failed(format!("cannot find xtask: {error}")))?;
    let mut command = Command::new(SESSION[0]);
    command.args(&SESSION[1..]).args(["taskset", "--cpu-list", &cpu.to_string()]);
    command.args(["ip", "netns", "exec", SOURCE_NAMESPACE]).arg(program).args(["peers", "interfaces", GENERATE]);
    if let Rate::Of(rate) = rate {
        command.arg(rate.to_string());
    }
    let process = Background::start(command.stdin(Stdio::null()).stdout(Stdio::null())).map_err(TaskError::failed)?;
    raise_session_priority(process.pid());
    Ok(process)
}

/// Sends frames until it is killed.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    match words {
        [] => flood(),
        [rate] => pace(rate.parse().map_err(|_| TaskError::usage(format!("{GENERATE} {rate}: no number")))?),
        _ => Err(TaskError::usage(format!("{GENERATE} takes one number"))),
    }
}

/// No socket sends as fast as forwarders forward, with the same processor at work for the receiver.
fn flood() -> Result<(), TaskError> {
    let fail = |error| TaskError::failed(format!("the generator cannot send live frames (Linux ≥ 5.18): {error}"));
    let frames = LiveFrames::to_interface(SOURCE).map_err(fail)?;
    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&Lab::FRAME_SINK_MAC);
    frame[6..12].copy_from_slice(&Lab::SOURCE_MAC);
    frame[12..14].copy_from_slice(&ETHERTYPE);
    loop {
        frames.send(&frame, ENDLESS).map_err(fail)?;
    }
}

/// Sends UDP at a fixed mean rate, one frame at a time, without ever sleeping.
fn pace(rate: f64) -> Result<(), TaskError> {
    let fail = |error| TaskError::failed(format!("the generator cannot send UDP: {error}"));
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(fail)?;
    socket.connect((FRAME_SINK_ADDRESS, 9)).map_err(fail)?;
    let mut pace = Pace::new(rate);
    let start = Instant::now();
    loop {
        for _ in 0..pace.due(start.elapsed()) {
            // A full queue loses the frame; the counter of the interface does not have it.
            let _ = socket.send(&[0; FRAME - HEADERS]);
        }
    }
}

/// The longest burst after an interruption: small beside the rings of all forwarders.
const MAX_BURST: u64 = 64;

/// When frames are due: after gaps from half of the mean to one and a half, at random. The kernel's ticks sample what a
/// processor does, and equal gaps of 5 µs would let all of them hit the same part of the work.
struct Pace {
    mean: Duration,
    next: Duration,
}

impl Pace {
    fn new(rate: f64) -> Pace {
        Pace { mean: Duration::from_secs_f64(1.0 / rate), next: Duration::ZERO }
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
        let mut pace = Pace::new(200_000.0);
        let bursts: Vec<u64> = (0..1_000_000).map(|microsecond| pace.due(Duration::from_micros(microsecond))).collect();
        let all: u64 = bursts.iter().sum();
        assert!((198_000..=202_000).contains(&all), "{all} in a second");
        assert!(bursts.iter().all(|burst| *burst <= 1), "gaps are longer than 2 µs");
        assert_eq!(pace.due(Duration::from_secs(5)), MAX_BURST);
        assert!(pace.due(Duration::from_secs(5)) <= 1);
    }
}
