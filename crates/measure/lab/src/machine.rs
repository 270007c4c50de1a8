//! The machine of a measurement.

use bellows_packet::{Packet, pool};
use bellows_sys::{clock, cpu};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine of a measurement.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Machine")]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Frequency of the time-stamp counter, the unit of clocks.
    pub tsc_hz: u64,
    /// Pages of the packet pool: `hugetlb` or `thp`: 2 MiB pages; `4k`.
    #[schemars(extend("enum" = ["hugetlb", "thp", "4k"]))]
    pub memory: String,
    /// Instructions of the vector loops: `avx512`, `avx2` or `baseline`.
    #[schemars(extend("enum" = ["avx512", "avx2", "baseline"]))]
    pub simd: String,
    /// Bytes from one packet buffer to the next.
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
