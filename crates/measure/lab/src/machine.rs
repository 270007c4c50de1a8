//! The machine of a measurement.

use bellows_packet::{Packet, pool};
use bellows_sys::{clock, cpu};
use serde::{Deserialize, Serialize};

/// The machine of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// The frequency of the time-stamp counter, the unit of clocks.
    pub tsc_hz: u64,
    /// The pages of the packet pool: `hugetlb`, `thp` (both 2 MiB) or `4k`.
    pub memory: String,
    /// The instruction set of the vector loops.
    pub simd: String,
    /// The distance between packet buffers in bytes.
    pub stride: usize,
}

impl Machine {
    /// This machine, as this process sees it. Allocates a packet, so that the packet pool exists.
    pub fn here() -> Machine {
        let packet = Packet::from_bytes(&[0]);
        let memory = pool::pages().to_string();
        drop(packet);
        Machine {
            cpu: cpu::model(),
            tsc_hz: clock::ticks_per_second(),
            memory,
            simd: bellows_sys::simd::Simd::chosen().name().to_owned(),
            stride: pool::config().stride,
        }
    }
}
