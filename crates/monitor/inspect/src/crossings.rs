//! The cost of a packet that crosses from worker to worker: measured in the network, or between two processors of this
//! machine, or assumed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// Clocks that a crossing is assumed to take from the sender's worker for each packet. The engine's own work is one of
/// them; most are the cost of buffers that come back from the other processor's caches.
pub const SEND_CLOCKS: f64 = 20.0;

/// Clocks that a crossing is assumed to take from the receiver's worker for each packet.
pub const RECEIVE_CLOCKS: f64 = 3.0;

/// Costs that differ by at most this share lead to the same placement, within what can be measured.
const NEAR: f64 = 0.1;

/// The maximum number of pairs of processors that count for a placement: those with the most packets. Each measurement
/// takes some milliseconds from both processors.
const MAX_PAIRS: usize = 8;

/// How the cost of a crossing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CrossingSource {
    /// Measured in this network's own crossings.
    Network,
    /// Measured between the processors of `pairs`.
    Processors,
    /// Not measured.
    Assumed,
}

/// The measured cost of a crossing from one processor to another.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Crossing between two processors")]
pub struct PairCost {
    /// The processor that sent.
    pub sender: usize,
    /// The processor that received.
    pub receiver: usize,
    /// Packets in each vector that crossed.
    pub packets_per_vector: usize,
    /// Clocks for each packet, of the sender.
    pub send: f64,
    /// Clocks for each packet, of the receiver.
    pub receive: f64,
    /// Nanoseconds for a packet that crosses alone, while neither processor sleeps.
    pub latency_ns: f64,
}

/// The cost of a crossing in clocks for each packet.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Cost of a crossing")]
pub struct CrossingCost {
    /// Clocks for each packet, of the sender's worker.
    pub send: f64,
    /// Clocks for each packet, of the receiver's worker.
    pub receive: f64,
    /// Whether they were measured; otherwise they are assumed.
    pub measured: bool,
    /// How they are known.
    pub source: CrossingSource,
    /// The measured pairs of processors, of which they are the mean by packets; empty with another source.
    pub pairs: Vec<PairCost>,
    /// Why they are assumed; null if they are measured.
    pub why_assumed: Option<String>,
}

impl CrossingCost {
    /// That of a network's own crossings.
    pub fn in_network(send: f64, receive: f64) -> CrossingCost {
        let source = CrossingSource::Network;
        CrossingCost { send, receive, measured: true, source, pairs: Vec::new(), why_assumed: None }
    }

    /// The assumption, with its reason.
    pub fn assumed(why: impl Into<String>) -> CrossingCost {
        CrossingCost {
            send: SEND_CLOCKS,
            receive: RECEIVE_CLOCKS,
            measured: false,
            source: CrossingSource::Assumed,
            pairs: Vec::new(),
            why_assumed: Some(why.into()),
        }
    }

    /// The mean of measured pairs, each with its packets.
    fn of_pairs(pairs: &[(PairCost, u64)]) -> CrossingCost {
        let weight = |packets: u64| packets.max(1) as f64;
        let all: f64 = pairs.iter().map(|&(_, packets)| weight(packets)).sum();
        let mean = |of: fn(&PairCost) -> f64| {
            pairs.iter().map(|(pair, packets)| of(pair) * (weight(*packets) / all)).sum::<f64>()
        };
        CrossingCost {
            send: mean(|pair| pair.send),
            receive: mean(|pair| pair.receive),
            measured: true,
            source: CrossingSource::Processors,
            pairs: pairs.iter().map(|(pair, _)| *pair).collect(),
            why_assumed: None,
        }
    }

    /// Whether another cost is nearly the same.
    pub(crate) fn is_near(&self, other: &CrossingCost) -> bool {
        let near = |one: f64, other: f64| (one - other).abs() <= NEAR * (self.send + self.receive);
        near(self.send, other.send) && near(self.receive, other.receive)
    }
}

/// Two processors, and the packets that cross between them.
pub type ProcessorPair = ([usize; 2], u64);

/// Measures a crossing from one processor to another, or says why it cannot.
type Measure = Box<dyn FnMut(usize, usize) -> Result<PairCost, String>>;

/// The costs of crossings between processors. Each pair is measured once.
pub struct CrossingMeter {
    measure: Measure,
    known: BTreeMap<[usize; 2], Result<PairCost, String>>,
}

impl CrossingMeter {
    /// A meter that measures a pair by this function, given the sender and the receiver.
    pub fn new(measure: impl FnMut(usize, usize) -> Result<PairCost, String> + 'static) -> CrossingMeter {
        CrossingMeter { measure: Box::new(measure), known: BTreeMap::new() }
    }

    /// The cost of packets that cross between these processors, or the assumption if no pair can be measured.
    pub fn between(&mut self, pairs: &[ProcessorPair]) -> CrossingCost {
        let mut packets_of: BTreeMap<[usize; 2], u64> = BTreeMap::new();
        for &([one, other], packets) in pairs.iter().filter(|([one, other], _)| one != other) {
            let all = packets_of.entry([one.min(other), one.max(other)]).or_default();
            *all = all.saturating_add(packets);
        }
        let mut pairs: Vec<ProcessorPair> = packets_of.into_iter().collect();
        pairs.sort_by_key(|&(_, packets)| Reverse(packets));
        pairs.truncate(MAX_PAIRS);
        let (mut found, mut why) = (Vec::new(), None);
        for (pair, packets) in pairs {
            match self.pair(pair) {
                Ok(cost) => found.push((cost, packets)),
                Err(error) => {
                    why = why.or(Some(format!("between the processors {} and {}: {error}", pair[0], pair[1])))
                }
            }
        }
        match (found.is_empty(), why) {
            (false, _) => CrossingCost::of_pairs(&found),
            (true, Some(why)) => CrossingCost::assumed(format!("it could not be measured {why}")),
            (true, None) => CrossingCost::assumed("there are no two processors to measure it between"),
        }
    }

    fn pair(&mut self, pair: [usize; 2]) -> Result<PairCost, String> {
        let [sender, receiver] = pair;
        self.known.entry(pair).or_insert_with(|| (self.measure)(sender, receiver)).clone()
    }
}

impl fmt::Debug for CrossingMeter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CrossingMeter").field("known", &self.known).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// A pair whose cost is that of the receiver's number.
    fn cost(sender: usize, receiver: usize) -> PairCost {
        PairCost {
            sender,
            receiver,
            packets_per_vector: 128,
            send: 10.0 * receiver as f64,
            receive: receiver as f64,
            latency_ns: 100.0,
        }
    }

    #[test]
    fn each_pair_is_measured_once_and_counts_by_its_packets() {
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        let mut meter = CrossingMeter::new(move |sender, receiver| {
            counted.set(counted.get() + 1);
            Ok(cost(sender, receiver))
        });
        let one = meter.between(&[([1, 0], 5), ([0, 1], 5)]);
        assert_eq!((one.send, one.receive, &one.pairs[..]), (10.0, 1.0, &[cost(0, 1)][..]));
        let both = meter.between(&[([0, 1], 10), ([2, 0], 30), ([2, 2], 1_000)]);
        assert_eq!((both.send, both.source, both.measured), (17.5, CrossingSource::Processors, true));
        assert_eq!(both.pairs, [cost(0, 2), cost(0, 1)]);
        assert_eq!(calls.get(), 2);
    }

    #[test]
    fn what_cannot_be_measured_is_assumed_with_its_reason() {
        let mut meter = CrossingMeter::new(|sender, receiver| match receiver {
            9 => Err("it is gone".to_owned()),
            _ => Ok(cost(sender, receiver)),
        });
        let lost = meter.between(&[([0, 9], 1)]);
        assert_eq!((lost.send, lost.receive, lost.measured), (SEND_CLOCKS, RECEIVE_CLOCKS, false));
        assert_eq!(
            lost.why_assumed.as_deref(),
            Some("it could not be measured between the processors 0 and 9: it is gone")
        );
        assert_eq!(meter.between(&[([0, 9], 9), ([0, 1], 1)]).pairs, [cost(0, 1)], "the others count");
        let alone = meter.between(&[([3, 3], 7)]);
        assert_eq!((alone.source, alone.pairs.len()), (CrossingSource::Assumed, 0));
    }
}
