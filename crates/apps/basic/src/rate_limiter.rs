//! `rate-limiter`: a token bucket.

use std::collections::VecDeque;

use bellows_config::{BenchFiles, BenchSetup, Bytes, Configure, Context, Rate, SettingError, TrafficRate, wire_bytes};
use bellows_engine::{App, AppError, Counters, Io, Output, Port, Ports, counters};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits the bits or packets per second, or both. It is a token bucket (RFC 2697, section 3, with one bucket): unused
/// tokens are saved, up to `burst`, so that in any time t at most `burst` plus `rate` times t gets through.
///
/// Without a `queue` it polices: packets that exceed the rate are dropped as `over_rate`. With a queue it shapes:
/// packets wait in order until they may leave, and packets that find the queue full are dropped as `queue_full`. A
/// packet larger than `burst` can never leave and is dropped as `over_burst`.
///
/// A reload keeps the queue and the saved tokens.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The rate, above 0, with its unit: bits of packet data per second (`"100Mb/s"`), bits on an Ethernet wire
    /// (`"100Mb/s L1"`), a share of a line rate on the wire (`"30% of 10Gb/s"`), or packets per second (`"250kpps"`).
    /// At least one of `rate` and `packets` is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<TrafficRate>,

    /// A limit in packets per second, besides a `rate` in bits: from one packet in a thousand seconds to 1 T.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets/s"))]
    pub packets: Option<Rate>,

    /// The token limit of a `rate` in bits, 1 byte or more. By default 10 ms of the rate, but at least 96 KiB, so that
    /// the largest packets fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "bytes"))]
    pub burst: Option<Bytes>,

    /// The token limit of a rate in packets, 1 or more. By default 10 ms of the rate, but at least 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets"), range(min = 1))]
    pub burst_packets: Option<u64>,

    /// Maximum length of the queue, up to 1,048,576; 0 drops packets that exceed the rate at once.
    #[serde(default)]
    #[schemars(extend("x-unit" = "packets"), range(max = 1048576))]
    pub queue: usize,

    /// Count the bits that a packet takes on an Ethernet wire, as link speeds do: a frame of at least 60 bytes, and 24
    /// bytes of preamble, start delimiter, frame check sequence and interpacket gap (IEEE 802.3). Not needed for a
    /// `rate` that ends in `L1` or is a share of a line rate.
    #[serde(default)]
    pub layer1: bool,
}

const MAX_QUEUED: usize = 1 << 20;

/// Tokens that come at a steady rate and are saved up to a limit.
///
/// Stored in units × nanoseconds per second, so that nothing is ever rounded: a unit is a bit, or a thousandth of a
/// packet.
#[derive(Clone, Debug)]
struct Bucket {
    /// Units per second.
    rate: u64,
    depth: u128,
    level: u128,
    filled_at: u64,
}

const SECOND: u128 = 1_000_000_000;

impl Bucket {
    /// A full bucket.
    fn new(rate: u64, depth: u128) -> Bucket {
        let depth = depth * SECOND;
        Bucket { rate, depth, level: depth, filled_at: 0 }
    }

    fn fill(&mut self, now: u64) {
        let came = u128::from(self.rate) * u128::from(now.saturating_sub(self.filled_at));
        self.level = self.depth.min(self.level + came);
        self.filled_at = now;
    }

    /// Nanoseconds until the bucket has `units`.
    fn wait(&self, units: u128) -> u64 {
        let missing = (units * SECOND).saturating_sub(self.level);
        u64::try_from(missing.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }

    /// Takes over the tokens that another bucket has saved.
    fn inherit(&mut self, old: &Bucket) {
        self.level = self.depth.min(old.level);
        self.filled_at = old.filled_at;
    }
}

/// Limits the rate of packets.
pub struct RateLimiter {
    bits: Option<Bucket>,
    packets: Option<Bucket>,
    layer1: bool,
    most_queued: usize,
    queue: VecDeque<Packet>,
}

/// Units that one packet takes from the bucket of packets.
const PER_PACKET: u128 = 1_000;

impl RateLimiter {
    /// The tokens that a packet takes from each bucket.
    fn costs(&self, packet: &Packet) -> [u128; 2] {
        let length = packet.len();
        let bytes = if self.layer1 { wire_bytes(length) } else { length };
        [bytes as u128 * 8, PER_PACKET]
    }

    fn buckets(&mut self) -> [Option<&mut Bucket>; 2] {
        [self.bits.as_mut(), self.packets.as_mut()]
    }

    fn fill(&mut self, now: u64) {
        self.buckets().into_iter().flatten().for_each(|bucket| bucket.fill(now));
    }

    /// Nanoseconds until a packet may leave.
    fn wait(&self, packet: &Packet) -> u64 {
        let [bits, packets] = self.costs(packet);
        let wait = |bucket: &Option<Bucket>, cost| bucket.as_ref().map_or(0, |bucket| bucket.wait(cost));
        wait(&self.bits, bits).max(wait(&self.packets, packets))
    }

    /// Takes the tokens for a packet, if there are enough.
    fn pay(&mut self, packet: &Packet) -> bool {
        let costs = self.costs(packet).map(|cost| cost * SECOND);
        let enough = self.buckets().into_iter().zip(costs).all(|(bucket, cost)| bucket.is_none_or(|b| b.level >= cost));
        if enough {
            for (bucket, cost) in self.buckets().into_iter().zip(costs) {
                bucket.into_iter().for_each(|bucket| bucket.level -= cost);
            }
        }
        enough
    }

    fn can_ever_leave(&mut self, packet: &Packet) -> bool {
        let costs = self.costs(packet);
        self.buckets().into_iter().zip(costs).all(|(bucket, cost)| bucket.is_none_or(|b| b.depth >= cost * SECOND))
    }

    /// Sends the packets of the queue that may leave.
    fn release(&mut self, output: &mut Output<'_>) {
        while output.room() > 0
            && let Some(packet) = self.queue.pop_front()
        {
            if !self.pay(&packet) {
                self.queue.push_front(packet);
                return;
            }
            output.push(packet);
        }
    }

    /// Asks for a tick when the first packet of the queue may leave.
    fn plan(&self, io: &Io<Self>) {
        if let Some(packet) = self.queue.front() {
            io.wake_at(io.now().saturating_add(self.wait(packet)));
        }
    }
}

counters! { RateLimiter;
    asked drop OVER_RATE = "over_rate", "packets above the rate, without a queue";
    asked drop QUEUE_FULL = "queue_full", "packets that found the queue full";
    asked drop OVER_BURST = "over_burst", "packets larger than `burst`";
}

impl App for RateLimiter {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets at any rate")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets within the rate")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        self.fill(io.now());
        let mut output = io.output(0);
        self.release(&mut output);
        let shapes = self.most_queued > 0;
        for packet in &mut io.input(0) {
            let has_way = self.queue.is_empty() && (output.room() > 0 || !shapes);
            if has_way && self.pay(&packet) {
                output.push(packet);
            } else if !self.can_ever_leave(&packet) {
                io.drop(packet, RateLimiter::OVER_BURST);
            } else if !shapes {
                io.drop(packet, RateLimiter::OVER_RATE);
            } else if self.queue.len() < self.most_queued {
                self.queue.push_back(packet);
            } else {
                io.drop(packet, RateLimiter::QUEUE_FULL);
            }
        }
        drop(output);
        self.plan(io);
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.fill(io.now());
        self.release(&mut io.output(0));
        self.plan(io);
    }

    fn held(&self) -> usize {
        self.queue.len()
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old {
            for (bucket, old) in self.buckets().into_iter().zip(old.buckets()) {
                if let (Some(bucket), Some(old)) = (bucket, old) {
                    bucket.inherit(old);
                }
            }
            self.queue = std::mem::take(&mut old.queue);
        }
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        old.queue = std::mem::take(&mut self.queue);
    }
}

impl Configure for RateLimiter {
    const NAME: &'static str = "rate-limiter";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys(r#"rate = "10Tb/s""#)
    }

    fn configure(config: Config, _: &Context) -> Result<RateLimiter, SettingError> {
        let Config { rate, packets, burst, burst_packets, queue, layer1 } = config;
        if rate.is_none() && packets.is_none() {
            let help = "add `rate = \"100Mb/s\"` or `rate = \"10kpps\"`, for example";
            return Err(SettingError::of_table("neither `rate` nor `packets` is given", help));
        }
        if rate.is_some_and(TrafficRate::is_zero) {
            return Err(SettingError::at("rate", "a rate of 0 lets nothing through", "give a rate above 0"));
        }
        let (bits, by_number, layer1) = match rate {
            None => (None, None, layer1),
            Some(TrafficRate::Bits(bits)) => (Some(bits), None, layer1),
            Some(TrafficRate::WireBits(bits)) => (Some(bits), None, true),
            Some(TrafficRate::Packets(rate)) => (None, Some(rate), layer1),
            Some(TrafficRate::Unitless(number)) => {
                let help = format!("write \"{number}b/s\" for bits or \"{number}pps\" for packets per second");
                return Err(SettingError::at("rate", format!("`{number}` has no unit"), help));
            }
        };
        if by_number.is_some() && packets.is_some() {
            let help = "give `rate` in bits per second, or leave one of them out";
            return Err(SettingError::at("packets", "`rate` limits packets per second already", help));
        }
        let key = if by_number.is_some() { "rate" } else { "packets" };
        let packets = by_number.or(packets);
        if packets.is_some_and(|rate| !(0.001..=1e12).contains(&rate.per_second())) {
            let help = "give packets per second between 0.001 and 1e12";
            return Err(SettingError::at(key, "the rate is out of range", help));
        }
        if burst == Some(Bytes::new(0)) {
            return Err(SettingError::at("burst", "a burst of 0 bytes lets nothing through", "give 1 byte or more"));
        }
        if burst_packets == Some(0) {
            return Err(SettingError::at(
                "burst_packets",
                "a burst of 0 packets lets nothing through",
                "give 1 or more",
            ));
        }
        if burst.is_some() && bits.is_none() {
            let help = "give `rate` in bits per second, or `burst_packets` in place of `burst`";
            return Err(SettingError::at("burst", "`burst` is in bytes, but no rate is in bits", help));
        }
        if burst_packets.is_some() && packets.is_none() {
            let help = "add `packets`, or give `burst` in bytes in place of `burst_packets`";
            return Err(SettingError::at(
                "burst_packets",
                "`burst_packets` is in packets, but no rate is in packets",
                help,
            ));
        }
        if queue > MAX_QUEUED {
            let message = format!("a queue of {queue} packets is longer than the maximum of {MAX_QUEUED}");
            return Err(SettingError::at("queue", message, "give a shorter queue"));
        }
        let bits = bits.map(|rate| {
            let default = (rate.bits_per_second() / 800).max(96 << 10);
            Bucket::new(rate.bits_per_second(), u128::from(burst.map_or(default, Bytes::bytes)) * 8)
        });
        let packets = packets.map(|rate| {
            let default = (rate.per_second() / 100.0).max(128.0) as u64;
            let units = (rate.per_second() * PER_PACKET as f64).round() as u64;
            Bucket::new(units, u128::from(burst_packets.unwrap_or(default)) * PER_PACKET)
        });
        Ok(RateLimiter { bits, packets, layer1, most_queued: queue, queue: VecDeque::new() })
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;
    use proptest::prelude::*;

    use super::*;

    fn limiter(config: &str) -> Result<RateLimiter, SettingError> {
        RateLimiter::configure(serde_json::from_str(config).unwrap(), &Context::default())
    }

    fn rig(config: &str) -> Rig {
        Rig::new(limiter(config).unwrap(), &["input"], &["output"])
    }

    fn lengths(rig: &mut Rig) -> Vec<usize> {
        rig.received("output").iter().map(Vec::len).collect()
    }

    /// The time in milliseconds since the rig's start.
    fn set_time(rig: &mut Rig, milliseconds: u64) {
        rig.set_time(1_000_000_000 + milliseconds * 1_000_000);
    }

    #[test]
    fn a_policer_lets_a_burst_through_and_then_the_rate() {
        let mut rig = rig(r#"{"rate": "8kb/s", "burst": 300}"#);
        rig.send("input", [[1; 100]; 5]);
        rig.settle();
        assert_eq!(lengths(&mut rig), [100, 100, 100]);
        set_time(&mut rig, 99);
        rig.send("input", [[1; 100]]);
        rig.settle();
        assert_eq!(lengths(&mut rig), [0; 0]);
        set_time(&mut rig, 100);
        rig.send("input", [[1; 100]; 2]);
        rig.settle();
        assert_eq!(lengths(&mut rig), [100]);
        rig.send("input", [[1; 301]]);
        rig.settle();
        assert_eq!((rig.counts().drops["over_rate"], rig.counts().drops["over_burst"]), (4, 1));
    }

    #[test]
    fn a_shaper_sends_each_packet_as_soon_as_it_may() {
        let mut rig = rig(r#"{"rate": "8kb/s", "burst": 100, "queue": 2}"#);
        rig.send("input", [vec![1; 100], vec![2; 50], vec![3; 100], vec![4; 100]]);
        rig.settle();
        assert_eq!(lengths(&mut rig), [100]);
        assert_eq!(rig.counts().drops["queue_full"], 1);
        for (milliseconds, leaves) in [(49, vec![]), (50, vec![50]), (149, vec![]), (150, vec![100]), (900, vec![])] {
            assert!(leaves.is_empty() || !rig.is_done());
            set_time(&mut rig, milliseconds);
            rig.settle();
            assert_eq!(lengths(&mut rig), leaves, "at {milliseconds} ms");
        }
        assert!(rig.is_done());
    }

    #[test]
    fn packets_are_counted_by_number_or_by_bits_on_the_wire() {
        for rate in [r#""packets": 10"#, r#""rate": "10pps""#] {
            let mut by_number = rig(&format!(r#"{{{rate}, "burst_packets": 2, "queue": 10}}"#));
            by_number.send("input", [[1; 1]; 4]);
            by_number.settle();
            assert_eq!(lengths(&mut by_number), [1, 1]);
            set_time(&mut by_number, 100);
            by_number.settle();
            assert_eq!(lengths(&mut by_number), [1]);
        }

        for rate in [r#""1Mb/s", "layer1": true"#, r#""1Mb/s L1""#, r#""10% of 10Mb/s""#] {
            let mut on_the_wire = rig(&format!(r#"{{"rate": {rate}, "burst": 168}}"#));
            on_the_wire.send("input", [[1; 1]; 3]);
            on_the_wire.settle();
            assert_eq!(lengths(&mut on_the_wire), [1, 1], "{rate}");
        }
    }

    #[test]
    fn a_successor_takes_over_the_queue_and_the_tokens() {
        let mut old = limiter(r#"{"rate": "8kb/s", "burst": 100, "queue": 5}"#).unwrap();
        old.fill(5);
        assert!(old.pay(&Packet::from_bytes(&[1; 60]).unwrap()));
        old.queue.push_back(Packet::from_bytes(&[2; 80]).unwrap());
        let mut new = limiter(r#"{"rate": "16kb/s", "burst": 1000, "queue": 9}"#).unwrap();
        new.start(Some(&mut old)).unwrap();
        assert_eq!((old.held(), new.held()), (0, 1));
        assert_eq!(new.wait(&new.queue[0]), 20_000_000);
        new.give_back(&mut old);
        assert_eq!((old.held(), new.held()), (1, 0));
    }

    #[test]
    fn invalid_configs_name_their_key() {
        for (config, key) in [
            ("{}", None),
            (r#"{"rate": "0b/s"}"#, Some("rate")),
            (r#"{"rate": 8000}"#, Some("rate")),
            (r#"{"rate": "1pps", "packets": 1}"#, Some("packets")),
            (r#"{"rate": "1pps", "burst": 10}"#, Some("burst")),
            (r#"{"packets": 1e-9}"#, Some("packets")),
            (r#"{"rate": "1b/s", "burst": 0}"#, Some("burst")),
            (r#"{"packets": 1, "burst": 10}"#, Some("burst")),
            (r#"{"rate": "1b/s", "burst_packets": 10}"#, Some("burst_packets")),
            (r#"{"packets": 1, "burst_packets": 0}"#, Some("burst_packets")),
            (r#"{"rate": "1b/s", "queue": 10000000}"#, Some("queue")),
        ] {
            assert_eq!(limiter(config).err().map(|mistake| mistake.key), Some(key), "{config}");
        }
    }

    /// Packets as pauses in microseconds before each, and lengths.
    fn traffic() -> impl Strategy<Value = Vec<(u64, usize)>> {
        proptest::collection::vec((prop_oneof![2 => Just(0u64), 1 => 0u64..4_000], 1usize..400), 1..80)
    }

    proptest! {
        /// In any time at most the burst plus the rate gets through; a policer drops no packet that conforms; packets
        /// keep their order and every one is accounted for.
        #[test]
        fn the_rate_is_kept(
            traffic in traffic(),
            (kilobits, burst, queue) in (1u64..4_000, 400u64..3_000, 0usize..20),
        ) {
            let mut rig = rig(&format!(r#"{{"rate": "{kilobits}kb/s", "burst": {burst}, "queue": {queue}}}"#));
            let (mut now, mut sent) = (1_000_000_000, Vec::<(u64, usize)>::new());
            // Bits in the model's bucket, times 1,000,000.
            let (mut saved, mut model) = (u128::from(burst) * 8_000_000, Vec::new());
            for (index, &(pause, length)) in traffic.iter().enumerate() {
                now += pause * 1_000;
                saved = (saved + u128::from(pause * kilobits * 1_000)).min(u128::from(burst) * 8_000_000);
                if saved >= length as u128 * 8_000_000 {
                    saved -= length as u128 * 8_000_000;
                    model.push(index);
                }
                rig.set_time(now);
                let mut packet = Packet::from_bytes(&vec![0; length]).unwrap();
                packet.set_tag(index as u32);
                rig.send_packets("input", [packet]);
                rig.settle();
                sent.extend(rig.received_packets("output").iter().map(|packet| (now, packet.tag() as usize)));
            }
            while !rig.is_done() {
                now += 1_000_000;
                rig.set_time(now);
                rig.settle();
                sent.extend(rig.received_packets("output").iter().map(|packet| (now, packet.tag() as usize)));
            }
            prop_assert!(sent.is_sorted_by(|one, next| one.1 < next.1));
            prop_assert_eq!(sent.len() as u64 + rig.counts().dropped(), traffic.len() as u64);
            for first in 0..sent.len() {
                let mut bits = 0;
                for &(time, index) in &sent[first..] {
                    bits += traffic[index].1 as u64 * 8;
                    let allowed = burst * 8 * 1_000_000 + (time - sent[first].0) / 1_000 * kilobits * 1_000;
                    prop_assert!(bits * 1_000_000 <= allowed, "{bits} bits from packet {first} to {index}");
                }
            }
            if queue == 0 {
                prop_assert_eq!(sent.iter().map(|&(_, index)| index).collect::<Vec<_>>(), model);
            }
        }
    }
}
