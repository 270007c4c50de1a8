//! `delay`: sends packets some time after they came.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, Duration, SettingError};
use bellows_engine::{App, AppError, Counters, Io, Output, Port, Ports, counters};
use bellows_packet::Packet;
use fastrand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Holds each packet for `time`, plus up to `jitter` more, evenly distributed.
///
/// Packets keep their order, so a packet that is held for long also holds those behind it; with `reorder` packets leave
/// when their time is over. A packet that comes while `limit` packets are held is dropped as `full`. At a rate r the
/// app holds r times `time` packets: choose `limit` and the engine's pool accordingly.
///
/// A reload keeps the packets that are held, and the times at which they leave.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Minimum time each packet is held. `0s` lets packets through at once.
    #[schemars(extend("x-unit" = "time"))]
    pub time: Duration,

    /// Maximum extra time a packet is held.
    #[serde(default)]
    #[schemars(extend("x-unit" = "time"))]
    pub jitter: Duration,

    /// Let packets overtake each other when their jitter differs.
    #[serde(default)]
    pub reorder: bool,

    /// Maximum number of packets held, from 1 to 16,777,216.
    #[serde(default = "default_limit")]
    #[schemars(extend("x-unit" = "packets"), range(min = 1, max = 16777216))]
    pub limit: usize,

    /// Seed of the random numbers: the same seed gives the same packets the same jitter.
    #[serde(default)]
    pub seed: u64,
}

const MAX_HELD: usize = 1 << 24;

fn default_limit() -> usize {
    32_768
}

/// Packets and the times at which they leave.
enum DelayLine {
    /// In the order of arrival; the times never decrease.
    InOrder(VecDeque<(u64, Packet)>),
    /// By their times.
    ByTime(BinaryHeap<Reverse<Timed>>),
}

/// A packet in a heap, ordered by the time it leaves, then by arrival.
struct Timed {
    leaves: u64,
    arrival: u64,
    packet: Packet,
}

impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        (self.leaves, self.arrival).cmp(&(other.leaves, other.arrival))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timed {}

impl DelayLine {
    fn new(reorder: bool) -> DelayLine {
        if reorder { DelayLine::ByTime(BinaryHeap::new()) } else { DelayLine::InOrder(VecDeque::new()) }
    }

    fn len(&self) -> usize {
        match self {
            DelayLine::InOrder(queue) => queue.len(),
            DelayLine::ByTime(heap) => heap.len(),
        }
    }

    fn push(&mut self, leaves: u64, arrival: u64, packet: Packet) {
        match self {
            DelayLine::InOrder(queue) => {
                let leaves = queue.back().map_or(leaves, |&(last, _)| last.max(leaves));
                queue.push_back((leaves, packet));
            }
            DelayLine::ByTime(heap) => heap.push(Reverse(Timed { leaves, arrival, packet })),
        }
    }

    /// When the first packet leaves.
    fn next(&self) -> Option<u64> {
        match self {
            DelayLine::InOrder(queue) => queue.front().map(|&(leaves, _)| leaves),
            DelayLine::ByTime(heap) => heap.peek().map(|Reverse(timed)| timed.leaves),
        }
    }

    fn pop(&mut self) -> Option<(u64, Packet)> {
        match self {
            DelayLine::InOrder(queue) => queue.pop_front(),
            DelayLine::ByTime(heap) => heap.pop().map(|Reverse(Timed { leaves, packet, .. })| (leaves, packet)),
        }
    }
}

/// Holds packets for some time.
pub struct Delay {
    config: Config,
    random: Rng,
    line: DelayLine,
    /// Number of packets that have come.
    arrivals: u64,
}

impl Delay {
    /// Sends the packets that are due, and asks for a tick for the next.
    fn release(&mut self, io: &Io<Self>, output: &mut Output<'_>) {
        let now = io.now();
        while let Some(leaves) = self.line.next() {
            if leaves > now || output.room() == 0 {
                io.wake_at(leaves.max(now));
                return;
            }
            if let Some((_, packet)) = self.line.pop() {
                output.push(packet);
            }
        }
    }

    /// Moves all packets from one delay line to another.
    fn inherit(&mut self, old: &mut Delay) {
        if self.line.len() == 0 && old.config.reorder == self.config.reorder {
            // Without a copy of each packet: the engine takes no breath meanwhile.
            (self.arrivals, self.line) =
                (old.arrivals, std::mem::replace(&mut old.line, DelayLine::new(self.config.reorder)));
            return;
        }
        while let Some((leaves, packet)) = old.line.pop() {
            self.arrivals += 1;
            self.line.push(leaves, self.arrivals, packet);
        }
    }
}

counters! { Delay;
    drop FULL = "full", "packets that came while `limit` packets were held";
}

impl App for Delay {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets, later")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let leaves = io.now().saturating_add(self.config.time.nanos());
        let mut output = io.output(0);
        self.release(io, &mut output);
        for packet in &mut io.input(0) {
            let jitter = match self.config.jitter.nanos() {
                0 => 0,
                most => self.random.u64(..=most),
            };
            if self.line.len() < self.config.limit {
                self.arrivals += 1;
                self.line.push(leaves.saturating_add(jitter), self.arrivals, packet);
            } else {
                io.drop(packet, Delay::FULL);
            }
        }
        self.release(io, &mut output);
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.release(io, &mut io.output(0));
    }

    fn held(&self) -> usize {
        self.line.len()
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old {
            if old.config.seed == self.config.seed {
                self.random = old.random.clone();
            }
            self.inherit(old);
        }
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        old.inherit(self);
    }
}

impl Configure for Delay {
    const NAME: &'static str = "delay";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys(r#"time = "10us""#)
    }

    fn configure(config: Config, _: &Context) -> Result<Delay, SettingError> {
        if !(1..=MAX_HELD).contains(&config.limit) {
            let message = format!("a limit of {} packets is out of range", config.limit);
            return Err(SettingError::at("limit", message, format!("give a number from 1 to {MAX_HELD}")));
        }
        if config.reorder && config.jitter.is_zero() {
            let help = "add `jitter`, or leave `reorder` out";
            return Err(SettingError::at("reorder", "without `jitter` no packet overtakes another", help));
        }
        let (random, line) = (Rng::with_seed(config.seed), DelayLine::new(config.reorder));
        Ok(Delay { config, random, line, arrivals: 0 })
    }
}

#[cfg(test)]
mod tests {
    use bellows_engine::Settings;
    use bellows_rig::Rig;
    use proptest::prelude::*;

    use super::*;

    fn delay(config: &str) -> Result<Delay, SettingError> {
        Delay::configure(serde_json::from_str(config).unwrap(), &Context::default())
    }

    fn rig(config: &str) -> Rig {
        Rig::new(delay(config).unwrap(), &["input"], &["output"])
    }

    const START: u64 = 1_000_000_000;

    #[test]
    fn packets_leave_when_their_time_has_passed() {
        let mut rig = rig(r#"{"time": "10ms"}"#);
        rig.send("input", [b"one"]);
        rig.settle();
        rig.set_time(START + 4_000_000);
        rig.send("input", [b"two"]);
        rig.settle();
        for (time, leaves) in [(9_999_999, vec![]), (10_000_000, vec![b"one"]), (14_000_000, vec![b"two"])] {
            assert!(!rig.is_done());
            rig.set_time(START + time);
            rig.settle();
            assert_eq!(rig.received("output"), leaves);
        }
        assert!(rig.is_done());
    }

    #[test]
    fn no_more_are_held_than_allowed() {
        let mut rig = rig(r#"{"time": "1s", "limit": 2}"#);
        rig.send("input", ["a", "b", "c"]);
        rig.settle();
        assert_eq!(rig.counts().drops["full"], 1);
        rig.set_time(2 * START);
        rig.settle();
        assert_eq!(rig.received("output"), [b"a", b"b"]);
    }

    #[test]
    fn more_packets_than_a_link_holds_can_become_due_at_once() {
        for lossless in [false, true] {
            let settings = Settings { lossless, ..Settings::default() };
            let mut rig = Rig::with_settings(delay(r#"{"time": "1s"}"#).unwrap(), &["input"], &["output"], settings);
            rig.send("input", std::iter::repeat_n("x", 5_000));
            rig.settle();
            rig.set_time(2 * START);
            rig.settle();
            assert_eq!((rig.received("output").len(), rig.counts().dropped()), (5_000, 0));
        }
    }

    #[test]
    fn a_successor_takes_over_the_held_packets() {
        let mut old = delay(r#"{"time": "1s", "jitter": "1s", "reorder": true}"#).unwrap();
        for leaves in [30, 10, 20] {
            old.line.push(leaves, leaves, Packet::from_bytes(&[leaves as u8]).unwrap());
        }
        let mut new = delay(r#"{"time": "2s"}"#).unwrap();
        new.start(Some(&mut old)).unwrap();
        assert_eq!((old.held(), new.held()), (0, 3));
        new.give_back(&mut old);
        let left: Vec<u64> = std::iter::from_fn(|| old.line.pop()).map(|(leaves, _)| leaves).collect();
        assert_eq!((left, new.held()), (vec![10, 20, 30], 0));
    }

    #[test]
    fn invalid_configs_name_their_key() {
        let key = |config| delay(config).err().and_then(|mistake| mistake.key);
        assert_eq!(key(r#"{"time": "1s", "limit": 0}"#), Some("limit"));
        assert_eq!(key(r#"{"time": "1s", "reorder": true}"#), Some("reorder"));
    }

    proptest! {
        /// Each packet leaves between `time` and `time + jitter` after it came (later only behind an earlier packet),
        /// and a seed gives the same departures for any burst size.
        #[test]
        fn jitter_keeps_its_bounds(
            pauses in proptest::collection::vec(0u64..40, 1..60),
            (time, jitter, reorder) in (0u64..50, 1u64..50, any::<bool>()),
            (seed, burst) in (any::<u64>(), 1usize..200),
        ) {
            let config =
                format!(r#"{{"time": "{time}ns", "jitter": "{jitter}ns", "reorder": {reorder}, "seed": {seed}}}"#);
            let run = |burst: usize| {
                let settings = Settings { burst, ..Settings::default() };
                let mut rig = Rig::with_settings(delay(&config).unwrap(), &["input"], &["output"], settings);
                let mut now = START;
                let arrivals: Vec<u64> = pauses.iter().map(|pause| { now += pause; now }).collect();
                let mut departures = Vec::new();
                for now in START..START + 60 * 40 + 200 {
                    rig.set_time(now);
                    for (index, _) in arrivals.iter().enumerate().filter(|(_, arrival)| **arrival == now) {
                        let mut packet = Packet::from_bytes(b"x").unwrap();
                        packet.set_tag(index as u32);
                        rig.send_packets("input", [packet]);
                    }
                    rig.settle();
                    departures.extend(rig.received_packets("output").iter().map(|packet| (now, packet.tag() as usize)));
                }
                (arrivals, departures)
            };
            let (arrivals, departures) = run(burst);
            prop_assert_eq!(&departures, &run(128).1);
            prop_assert_eq!(departures.len(), arrivals.len());
            prop_assert!(reorder || departures.is_sorted_by_key(|&(_, index)| index));
            // In order, a packet leaves behind earlier packets, all of which have left by then.
            for (departure, index) in departures {
                let earliest = arrivals[index] + time;
                prop_assert!((earliest..=earliest + jitter).contains(&departure));
            }
        }
    }
}
