//! `source`: generates packets.
//!
//! `frames` lays out the contents of packets, `order` the order of their sizes. Packets that differ in nothing are made
//! from a template, many at a time, without touching each of them.

mod frames;
mod order;

use std::net::IpAddr;

use bellows_config::{Configure, Context, SettingError, TrafficRate};
use bellows_engine::{App, AppError, Counters, Io, Port, Ports, counters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pace::Pace;
use frames::Frames;

/// Generates packets of one size or a mix of sizes, at a rate or as fast as possible, a given number or without end.
///
/// Without `headers` a packet is bare payload. With `headers` it is an Ethernet frame, optionally with an IPv4 or IPv6
/// packet and a UDP datagram in it, with correct lengths and checksums. Sizes count the whole frame without the frame
/// check sequence. A size that is too small for the headers is an error, and so is a size above 73,600 bytes (65,549
/// with IPv4, 65,589 with IPv6, and 4 more with a VLAN tag).
///
/// When the output is full, the source waits. When the pool has no buffer, the source tries again later: no packet is
/// lost, and each failed attempt is counted as `buffer_waits`. After a reload the packet numbers and the packet count
/// continue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Length of each packet.
    #[schemars(extend("x-unit" = "bytes", "default" = frames::DEFAULT_SIZE), range(min = 1, max = 73_600))]
    pub size: Option<u32>,

    /// Several lengths in turn, in place of `size`: `[60, 570, 1514]`.
    #[schemars(extend("x-unit" = "bytes", "default" = ()), inner(range(min = 1, max = 73_600)))]
    pub sizes: Vec<u32>,

    /// For each of `sizes`, the number of consecutive packets before the next size has its turn; with `shuffle`, its
    /// share of the sum of all weights. By default 1 each.
    #[schemars(extend("x-unit" = "packets", "default" = ()), inner(range(min = 1)))]
    pub weights: Vec<u32>,

    /// A well-known mix, in place of `size`. Its sizes come in shuffled order.
    pub mix: Option<Mix>,

    /// Whether the sizes come in a random order that depends on `seed`. In each round of packets, as many as the sum of
    /// the weights, each size comes as often as its weight says. A regular order falls into step with the engine's
    /// burst, so a full link or queue drops packets of the same sizes all the time. By default `true` with `mix` and
    /// `false` with `sizes`.
    pub shuffle: Option<bool>,

    /// The rate: packets per second (`"1.5Mpps"`, or a number), bits of packet data per second (`"10Gb/s"`), bits on an
    /// Ethernet wire (`"10Gb/s L1"`, 24 bytes more for each packet), or a share of a line rate on the wire (`"30% of
    /// 10Gb/s"`). Each packet leaves when the time of the one before it is over. A source that could not send catches
    /// up with a tenth of a second; older packets are counted as `skipped`. By default as fast as possible.
    pub rate: Option<TrafficRate>,

    /// Number of packets to generate; then the source is finished, and the run may end. By default there is no end.
    #[schemars(extend("x-unit" = "packets"))]
    pub count: Option<u64>,

    /// The contents of the packets after the headers.
    pub payload: Payload,

    /// Seed of random payload and shuffled order: the same seed gives the same packets.
    pub seed: u64,

    /// The headers of each packet.
    pub headers: Headers,

    /// Ethernet address of the sender; only with headers.
    #[schemars(extend("default" = frames::SRC_MAC, "x-type" = "Ethernet address"))]
    pub src_mac: Option<String>,

    /// Ethernet address of the receiver; only with headers.
    #[schemars(extend("default" = frames::DST_MAC, "x-type" = "Ethernet address"))]
    pub dst_mac: Option<String>,

    /// VLAN identifier of an IEEE 802.1Q tag; only with headers. By default there is no tag.
    #[schemars(range(max = 4094))]
    pub vlan: Option<u16>,

    /// IP address of the sender. By default 198.18.0.1 or 2001:2::1, from the networks for benchmarks (RFC 2544, RFC
    /// 5180).
    #[schemars(extend("x-type" = "IPv4 or IPv6 address"))]
    pub src: Option<IpAddr>,

    /// IP address of the receiver. By default 198.19.0.1 or 2001:2:0:1::1, from the same networks.
    #[schemars(extend("x-type" = "IPv4 or IPv6 address"))]
    pub dst: Option<IpAddr>,

    /// UDP port of the sender.
    #[schemars(extend("default" = frames::SRC_PORT))]
    pub src_port: Option<u16>,

    /// UDP port of the receiver. The default is the discard port (RFC 863).
    #[schemars(extend("default" = frames::DST_PORT))]
    pub dst_port: Option<u16>,

    /// Time to live (IPv4) or hop limit (IPv6).
    #[schemars(extend("x-unit" = "hops", "default" = frames::TTL))]
    pub ttl: Option<u8>,
}

/// A well-known mix of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// The "simple IMIX": of 12 packets, 7 have 40 bytes of IP, 4 have 576 and 1 has 1,500; as Ethernet frames 60, 590
    /// and 1,514 bytes. If the headers need more than 60 bytes, the small packets are as short as possible.
    Imix,
}

/// The contents of packets after the headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// The bytes 0, 1, 2, … in every packet.
    #[default]
    Fixed,
    /// As `fixed`, but the first 8 bytes are the packet's number: 0, 1, 2, … in network byte order.
    Sequence,
    /// Random bytes.
    Random,
}

/// The headers of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Headers {
    /// None: the packet is all payload.
    #[default]
    None,
    /// Ethernet, with the EtherType for local experiments, 0x88b5.
    Ethernet,
    /// Ethernet, IPv4 and UDP.
    Ipv4,
    /// Ethernet, IPv6 and UDP.
    Ipv6,
}

/// Generates packets.
pub struct Source {
    frames: Frames,
    pace: Option<Pace>,
    /// Number of packets to generate in all.
    count: u64,
    made: u64,
}

counters! { Source;
    count BUFFER_WAITS = "buffer_waits", "attempts that the pool had too few buffers for: the packets are made later", in "attempts";
    count SKIPPED = "skipped", "packets never sent because they were due more than a tenth of a second ago";
}

impl App for Source {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        let left = usize::try_from(self.count - self.made).unwrap_or(usize::MAX);
        let wanted = io.burst().min(output.room()).min(left);
        let mut due = self.pace.as_mut().map(|pace| pace.due(io.now()));
        let (made, missed) = self.frames.make(wanted, self.made, due.as_mut(), &mut output);
        self.made += made as u64;
        io.count(Source::BUFFER_WAITS, (missed > 0).into());
        if let (Some(pace), Some(due)) = (&mut self.pace, &due) {
            pace.sent(due);
            match pace.take_skipped(self.frames.mean_length()) {
                0 => {}
                skipped => io.count(Source::SKIPPED, skipped),
            }
            if pace.next() > io.now() && self.made < self.count {
                io.wake_at(pace.next());
                io.slot(0).never();
            }
        }
        if self.is_finished() {
            io.slot(0).never();
        }
    }

    /// A packet is due.
    fn tick(&mut self, io: &Io<Self>) {
        if !self.is_finished() {
            io.slot(0).always();
        }
    }

    fn slots(&self) -> usize {
        1
    }

    fn is_finished(&self) -> bool {
        self.made >= self.count
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        self.frames.prepare();
        if let Some(old) = old {
            self.made = old.made.min(self.count);
        }
        Ok(())
    }
}

impl Configure for Source {
    const NAME: &'static str = "source";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Source, SettingError> {
        if config.rate.is_some_and(TrafficRate::is_zero) {
            return Err(SettingError::at(
                "rate",
                "a rate of 0 sends nothing",
                "leave `rate` out to send as fast as possible",
            ));
        }
        Ok(Source {
            frames: Frames::of(&config)?,
            pace: config.rate.map(Pace::new),
            count: config.count.unwrap_or(u64::MAX),
            made: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use bellows_engine::Settings;
    use bellows_rig::Rig;
    use bellows_wire::verify_checksums;
    use proptest::prelude::*;

    use super::*;

    fn rig(config: Config) -> Rig {
        rig_with(config, Settings::default())
    }

    fn rig_with(config: Config, settings: Settings) -> Rig {
        let source = Source::configure(config, &Context::default()).expect("a good config");
        Rig::with_settings(source, &[], &["output"], settings)
    }

    fn mistake(config: Config) -> (Option<&'static str>, String) {
        let mistake = Source::configure(config, &Context::default()).err().expect("a mistake");
        (mistake.key, mistake.help)
    }

    #[test]
    fn the_plain_source_fills_bursts_of_60_bytes_without_end() {
        let mut rig = rig(Config::default());
        for _ in 0..3 {
            assert!(rig.breathe());
            let packets = rig.received("output");
            assert_eq!(packets.len(), 128);
            assert!(packets.iter().all(|packet| packet[..] == (0..60).collect::<Vec<u8>>()));
        }
        assert!(!rig.is_done());
    }

    #[test]
    fn it_is_dry_after_the_count() {
        let mut rig = rig(Config { count: Some(300), ..Config::default() });
        rig.settle();
        assert_eq!(rig.received("output").len(), 300);
        assert!(rig.is_done());
    }

    #[test]
    fn imix_is_seven_small_four_medium_and_one_large() {
        let lengths = |shuffle, seed| -> Vec<usize> {
            let config = Config { mix: Some(Mix::Imix), count: Some(1_200), shuffle, seed, ..Config::default() };
            let mut rig = rig(config);
            rig.settle();
            rig.received("output").iter().map(Vec::len).collect()
        };
        let once = [vec![60; 7], vec![590; 4], vec![1514]].concat();
        assert_eq!(lengths(Some(false), 0), once.repeat(100));
        let shuffled = lengths(None, 0);
        for dozen in shuffled.chunks(12) {
            let mut sorted = dozen.to_vec();
            sorted.sort();
            assert_eq!(sorted, once);
        }
        assert!(shuffled.chunks(12).collect::<std::collections::HashSet<_>>().len() > 50, "no order comes again soon");
        assert_eq!(shuffled, lengths(Some(true), 0));
        assert_ne!(shuffled, lengths(None, 1));
    }

    #[test]
    fn a_source_that_is_paced_in_bits_sends_mixed_sizes_at_that_rate() {
        for (rate, mean) in [("100Mb/s", 357.833), ("100Mb/s L1", 381.833), ("10% of 1Gb/s", 381.833)] {
            let rate = Some(rate.parse().unwrap());
            let mut rig = rig(Config { mix: Some(Mix::Imix), rate, ..Config::default() });
            let mut sent = 0;
            for millisecond in 0..=100 {
                rig.set_time(1_000_000_000 + millisecond * 1_000_000);
                rig.breathe();
                sent += rig.received("output").len();
            }
            let expected = 10e6 / 8.0 / mean;
            assert!((sent as f64 / expected - 1.0).abs() < 0.003, "{sent} packets instead of {expected}");
        }
    }

    proptest! {
        /// The mix's average length holds in each burst, and also if only the first packets of each burst are counted.
        #[test]
        fn a_mix_keeps_out_of_step_with_any_burst(burst in 1usize..1024, seen in 1usize..1024, seed in 0u64..4) {
            let settings = Settings { burst, ..Settings::default() };
            let mut rig = rig_with(Config { mix: Some(Mix::Imix), seed, ..Config::default() }, settings);
            let (mut bytes, mut packets) = (0, 0);
            while packets < 30_000 {
                rig.breathe();
                for packet in rig.received_packets("output").iter().take(seen) {
                    bytes += packet.len();
                    packets += 1;
                }
            }
            let average = bytes as f64 / packets as f64;
            // The standard deviation of the mean of 30,000 random packets is 2.3 bytes.
            prop_assert!((average - 357.833).abs() < 12.0, "{average} bytes on average");
        }
    }

    #[test]
    fn sizes_take_turns_by_their_weights_across_bursts() {
        let settings = Settings { burst: 2, ..Settings::default() };
        let config =
            Config { sizes: vec![64, 9000, 70_000], weights: vec![3, 1, 1], count: Some(10), ..Config::default() };
        let mut rig = rig_with(config, settings);
        rig.settle();
        let lengths: Vec<usize> = rig.received("output").iter().map(Vec::len).collect();
        assert_eq!(lengths, [64, 64, 64, 9000, 70_000, 64, 64, 64, 9000, 70_000]);
    }

    #[test]
    fn the_rate_is_kept_and_a_tenth_of_a_second_is_caught_up_with() {
        let rate = "1kpps".parse().unwrap();
        let mut rig = rig(Config { rate: Some(rate), ..Config::default() });
        let mut sent = |milliseconds: u64| {
            rig.set_time(1_000_000_000 + milliseconds * 1_000_000);
            rig.breathe();
            rig.received("output").len()
        };
        assert_eq!([0, 1, 1, 2, 12].map(&mut sent), [1, 1, 0, 1, 10]);
        assert_eq!([10_000, 10_000, 10_001].map(&mut sent), [100, 0, 1], "after a long pause");
        assert_eq!(rig.counts().counters["skipped"], 9_988 - 100);
    }

    #[test]
    fn a_reload_continues_the_numbers() {
        let config = Config { payload: Payload::Sequence, count: Some(10), ..Config::default() };
        let mut old = Source::configure(config.clone(), &Context::default()).unwrap();
        old.made = 7;
        let mut new = Source::configure(config, &Context::default()).unwrap();
        new.start(Some(&mut old)).unwrap();
        let mut output = Rig::new(new, &[], &["output"]);
        output.settle();
        // The rig starts the app again, without an old one, and so keeps the number.
        let numbers: Vec<u8> = output.received("output").iter().map(|packet| packet[7]).collect();
        assert_eq!(numbers, [7, 8, 9]);
    }

    #[test]
    fn mistakes_name_their_key() {
        let plain = Config::default();
        let v4 = Config { headers: Headers::Ipv4, ..Config::default() };
        assert_eq!(
            mistake(Config { size: Some(41), ..v4.clone() }),
            (Some("size"), "give a size from 42 to 65549".into())
        );
        assert_eq!(mistake(Config { size: Some(49), payload: Payload::Sequence, ..v4.clone() }).0, Some("size"));
        assert_eq!(mistake(Config { size: Some(0), ..plain.clone() }).0, Some("size"));
        assert_eq!(mistake(Config { size: Some(73_601), ..plain.clone() }).0, Some("size"));
        assert_eq!(
            mistake(Config { sizes: vec![60, 7], payload: Payload::Sequence, ..plain.clone() }).0,
            Some("sizes")
        );
        assert_eq!(mistake(Config { size: Some(60), mix: Some(Mix::Imix), ..plain.clone() }).0, Some("mix"));
        assert_eq!(mistake(Config { size: Some(60), sizes: vec![60], ..plain.clone() }).0, Some("sizes"));
        assert_eq!(mistake(Config { sizes: vec![60, 70], weights: vec![1], ..plain.clone() }).0, Some("weights"));
        assert_eq!(mistake(Config { sizes: vec![60], weights: vec![0], ..plain.clone() }).0, Some("weights"));
        assert_eq!(mistake(Config { weights: vec![1], ..plain.clone() }).0, Some("weights"));
        assert_eq!(mistake(Config { rate: "0pps".parse().ok(), ..plain.clone() }).0, Some("rate"));
        assert_eq!(mistake(Config { shuffle: Some(true), ..plain.clone() }).0, Some("shuffle"));
        let many = Config { sizes: vec![60, 70], weights: vec![u32::MAX, 1], shuffle: Some(true), ..plain.clone() };
        assert_eq!(mistake(many).0, Some("weights"));
        assert_eq!(mistake(Config { ttl: Some(1), ..plain.clone() }).0, Some("ttl"));
        assert_eq!(mistake(Config { vlan: Some(1), ..plain }).0, Some("vlan"));
        assert_eq!(mistake(Config { vlan: Some(4095), ..v4.clone() }).0, Some("vlan"));
        assert_eq!(mistake(Config { src: "2001:db8::1".parse().ok(), ..v4.clone() }).0, Some("src"));
        assert_eq!(mistake(Config { dst_mac: Some("02:00".into()), ..v4 }).0, Some("dst_mac"));
    }

    #[test]
    fn the_schema_knows_the_defaults() {
        let schema = schemars::schema_for!(Config);
        let default = |key: &str| schema.as_value()["properties"][key]["default"].clone();
        assert_eq!(default("size"), 60);
        assert_eq!(default("payload"), "fixed");
        assert_eq!(default("src_mac"), "02:00:00:00:00:01");
    }

    fn any_headers() -> impl Strategy<Value = Headers> {
        prop_oneof![Just(Headers::None), Just(Headers::Ethernet), Just(Headers::Ipv4), Just(Headers::Ipv6)]
    }

    fn any_payload() -> impl Strategy<Value = Payload> {
        prop_oneof![Just(Payload::Fixed), Just(Payload::Sequence), Just(Payload::Random)]
    }

    proptest! {
        /// For any config: the sizes, the number of packets, the numbers in them and their checksums are right.
        #[test]
        fn frames_match_the_config(
            headers in any_headers(),
            payload in any_payload(),
            vlan in prop::option::of(0u16..4095),
            sizes in prop::collection::vec(prop_oneof![74u32..200, 74u32..2100, 2000u32..9200], 1..4),
            count in 1u64..200,
        ) {
            let tagged = vlan.filter(|_| headers != Headers::None);
            let plain = Config::default();
            let config = Config { headers, payload, vlan: tagged, sizes: sizes.clone(), count: Some(count), ..plain };
            let mut rig = rig(config);
            rig.settle();
            let packets = rig.received("output");
            let lengths: Vec<u32> = packets.iter().map(|packet| packet.len() as u32).collect();
            let expected: Vec<u32> = sizes.iter().copied().cycle().take(count as usize).collect();
            prop_assert_eq!(lengths, expected);
            let header = match headers {
                Headers::None => 0,
                Headers::Ethernet => 14,
                Headers::Ipv4 => 42,
                Headers::Ipv6 => 62,
            } + if tagged.is_some() { 4 } else { 0 };
            for (number, packet) in packets.iter().enumerate() {
                if matches!(headers, Headers::Ipv4 | Headers::Ipv6) {
                    prop_assert!(verify_checksums(packet).unwrap().upper.is_some());
                }
                if payload == Payload::Sequence {
                    prop_assert_eq!(&packet[header..header + 8], (number as u64).to_be_bytes());
                }
                if payload == Payload::Fixed {
                    prop_assert!(packet[header..].iter().zip(0..).all(|(byte, index)| *byte == index as u32 as u8));
                }
            }
        }
    }

    #[test]
    fn random_payloads_depend_on_the_seed_alone() {
        let packets = |seed| {
            let mut rig = rig(Config { payload: Payload::Random, seed, count: Some(5), ..Config::default() });
            rig.settle();
            rig.received("output")
        };
        assert_eq!(packets(1), packets(1));
        assert_ne!(packets(1), packets(2));
        assert_ne!(packets(1)[0], packets(1)[1]);
    }
}
