//! On what a measurement was made.

use bellows_packet::{Packet, pool};
use bellows_sys::{clock, cpu};
use serde::{Deserialize, Serialize};

/// On what the measurement was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Frequency of the time-stamp counter, in which clocks are counted.
    pub tsc_hz: u64,
    /// Pages under the packet pool: `hugetlb`, `thp` (2 MiB both) or `4k`.
    pub memory: String,
    /// Instruction set that the vector loops use.
    pub simd: String,
    /// Distance between packet buffers in bytes.
    pub stride: usize,
}

impl Machine {
    /// This one, as it is in this process. Takes a packet, so that there is memory to look at.
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
