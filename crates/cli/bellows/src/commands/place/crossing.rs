//! What a crossing costs between two processors of this machine.

use bellows_engine::{MeasuredCrossing, measure_crossing};
use bellows_inspect::crossings::PairCost;
use bellows_packet::pool;

/// Buffers in the pool: some thousands for each memory node. Not as many as by default, because the network may need
/// the huge pages.
const PACKETS: usize = 16_384;

/// Measures a crossing from one processor to another.
///
/// # Errors
/// Why it cannot be measured: a sentence.
pub fn measure(sender: usize, receiver: usize) -> Result<PairCost, String> {
    // A pool that exists already is as good. If there is no memory for this one, the measurement says so.
    let _ = pool::init(pool::Config { packets: PACKETS, large_packets: 0, ..pool::Config::default() });
    let measured = measure_crossing(sender, receiver).map_err(|error| error.to_string())?;
    let MeasuredCrossing { send, receive, latency_ns } = measured;
    let packets_per_vector = MeasuredCrossing::PACKETS_PER_VECTOR;
    Ok(PairCost { sender, receiver, packets_per_vector, send, receive, latency_ns })
}
