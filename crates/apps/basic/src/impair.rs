//! `impair`: simulates a bad line.

use std::collections::VecDeque;

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, Duration, Fraction, SettingError};
use bellows_engine::{App, AppError, Counters, Io, Output, Port, Ports, counters};
use bellows_packet::Packet;
use fastrand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Loses, corrupts, duplicates and reorders packets at random, each with its own probability.
///
/// The app decides in this order. A packet may be *lost*: it is dropped as `lost`. If not, it may be *corrupted*: one
/// bit, anywhere in it, is flipped. It may be *duplicated*: a copy follows right behind it. And it may be *reordered*,
/// together with its copy: it is held back until `gap` later packets have been sent or held back, but no longer than
/// `hold`.
///
/// The outcome depends on the seed and on the packets before, not on the burst size; only `hold` depends on the clock.
/// Each impairment has its own random numbers: changing one probability does not change which packets the others
/// affect, as long as the same packets are lost.
///
/// If there is no buffer for a copy, it is counted as `no_buffer`. A reload keeps the packets that are held back.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Probability that a packet is lost: 0 for never, 1 or `"100%"` for always.
    #[serde(default)]
    pub loss: Fraction,

    /// Probability that a bit of a packet is flipped.
    #[serde(default)]
    pub corrupt: Fraction,

    /// Probability that a packet is sent twice.
    #[serde(default)]
    pub duplicate: Fraction,

    /// Probability that a packet is held back.
    #[serde(default)]
    pub reorder: Fraction,

    /// Number of packets that overtake a packet that is held back, from 1 to 65,536.
    #[serde(default = "default_gap")]
    #[schemars(extend("x-unit" = "packets"), range(min = 1, max = 65536))]
    pub gap: u64,

    /// Maximum time a packet is held back, in case too few packets follow it.
    #[serde(default = "default_hold")]
    #[schemars(extend("x-unit" = "time"))]
    pub hold: Duration,

    /// Seed of the random numbers: the same seed does the same to the same packets.
    #[serde(default)]
    pub seed: u64,
}

fn default_gap() -> u64 {
    3
}

fn default_hold() -> Duration {
    Duration::from_millis(10)
}

const MAX_GAP: u64 = 1 << 16;

/// A random event.
#[derive(Clone, Debug)]
struct Chance {
    probability: f64,
    random: Rng,
}

impl Chance {
    fn new(probability: f64, random: &mut Rng) -> Chance {
        Chance { probability, random: random.fork() }
    }

    fn happens(&mut self) -> bool {
        self.probability > 0.0 && self.random.f64() < self.probability
    }
}

/// A packet that is held back.
struct Held {
    /// Until this number of packets has passed.
    until: u64,
    /// Or until this time, whichever comes first.
    deadline: u64,
    packet: Packet,
}

/// Loses, corrupts, duplicates and reorders packets.
pub struct Impair {
    loss: Chance,
    corrupt: Chance,
    duplicate: Chance,
    reorder: Chance,
    gap: u64,
    hold: u64,
    seed: u64,
    /// Packets that have passed: all that came and were not lost.
    passed: u64,
    held: VecDeque<Held>,
}

impl Impair {
    /// Sends the packets that are due by number or by time.
    fn release(&mut self, now: Option<u64>, output: &mut Output<'_>) {
        let due = |held: &mut Held| held.until <= self.passed || now.is_some_and(|now| held.deadline <= now);
        while output.room() > 0
            && let Some(held) = self.held.pop_front_if(due)
        {
            output.push(held.packet);
        }
    }

    /// Sends a packet, now or later.
    fn pass(&mut self, packet: Packet, holds: Option<u64>, output: &mut Output<'_>) {
        match holds {
            Some(deadline) => self.held.push_back(Held { until: self.passed + self.gap, deadline, packet }),
            None => output.push(packet),
        }
    }

    fn plan(&self, io: &Io<Self>) {
        if let Some(held) = self.held.front() {
            let is_late = held.until <= self.passed;
            io.wake_at(if is_late { io.now() } else { held.deadline.max(io.now()) });
        }
    }
}

counters! { Impair;
    asked drop LOST = "lost", "packets lost at random";
    count CORRUPTED = "corrupted", "packets in which a bit was flipped";
    count DUPLICATED = "duplicated", "packets sent twice";
    count REORDERED = "reordered", "packets held back";
}

impl App for Impair {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the impaired packets")]);
    /// A packet and its copy, and a packet that was held back with its copy.
    const MAX_FAN_OUT: usize = 4;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for mut packet in &mut io.input(0) {
            if self.loss.happens() {
                io.drop(packet, Impair::LOST);
                continue;
            }
            self.passed += 1;
            if self.corrupt.happens() && packet.len() > 0 {
                let bit = self.corrupt.random.usize(..packet.len() * 8);
                packet.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
                io.count(Impair::CORRUPTED, 1);
            }
            let copies = self.duplicate.happens();
            let holds = self.reorder.happens().then(|| io.now().saturating_add(self.hold));
            io.count(Impair::REORDERED, u64::from(holds.is_some()));
            let copy = if copies { packet.copy() } else { None };
            self.pass(packet, holds, &mut output);
            match copy {
                Some(copy) => {
                    io.count(Impair::DUPLICATED, 1);
                    self.pass(copy, holds, &mut output);
                }
                None if copies => io.count_no_buffer(1),
                None => {}
            }
            self.release(None, &mut output);
        }
        drop(output);
        self.plan(io);
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.release(Some(io.now()), &mut io.output(0));
        self.plan(io);
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old {
            self.held = std::mem::take(&mut old.held);
            self.passed = old.passed;
            if self.seed == old.seed {
                for (chance, old) in [
                    (&mut self.loss, &old.loss),
                    (&mut self.corrupt, &old.corrupt),
                    (&mut self.duplicate, &old.duplicate),
                    (&mut self.reorder, &old.reorder),
                ] {
                    chance.random = old.random.clone();
                }
            }
        }
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        old.held = std::mem::take(&mut self.held);
    }
}

impl Configure for Impair {
    const NAME: &'static str = "impair";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys("loss = 0.001, corrupt = 1e-6, duplicate = 0.001, reorder = 0.001")
    }

    fn configure(config: Config, _: &Context) -> Result<Impair, SettingError> {
        let Config { loss, corrupt, duplicate, reorder, gap, hold, seed } = config;
        if !(1..=MAX_GAP).contains(&gap) {
            return Err(SettingError::at(
                "gap",
                format!("a gap of {gap} packets is out of range"),
                format!("give 1 to {MAX_GAP}"),
            ));
        }
        let mut random = Rng::with_seed(seed);
        Ok(Impair {
            loss: Chance::new(loss.get(), &mut random),
            corrupt: Chance::new(corrupt.get(), &mut random),
            duplicate: Chance::new(duplicate.get(), &mut random),
            reorder: Chance::new(reorder.get(), &mut random),
            gap,
            hold: hold.nanos(),
            seed,
            passed: 0,
            held: VecDeque::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use bellows_engine::Settings;
    use bellows_rig::Rig;
    use proptest::prelude::*;

    use super::*;

    fn impair(config: &str) -> Result<Impair, SettingError> {
        Impair::configure(serde_json::from_str(config).unwrap(), &Context::default())
    }

    fn rig(config: &str) -> Rig {
        Rig::new(impair(config).unwrap(), &["input"], &["output"])
    }

    /// Packets of one byte: 0, 1, 2 and so on.
    fn numbers(count: u8) -> impl Iterator<Item = [u8; 1]> {
        (0..count).map(|number| [number])
    }

    fn received(rig: &mut Rig) -> Vec<u8> {
        rig.received("output").concat()
    }

    #[test]
    fn a_perfect_line_changes_nothing() {
        let mut rig = rig("{}");
        rig.send("input", numbers(200));
        rig.settle();
        assert_eq!(received(&mut rig), (0..200).collect::<Vec<u8>>());
        assert!(rig.is_done() && rig.counts().dropped() == 0);
    }

    #[test]
    fn each_impairment_alone_works_and_is_counted() {
        let counts = |config: &str| {
            let mut rig = rig(config);
            rig.send("input", numbers(4));
            rig.settle();
            rig.set_time(2_000_000_000);
            rig.settle();
            assert!(rig.is_done());
            (received(&mut rig), rig.counts())
        };
        let (sent, counted) = counts(r#"{"loss": 1}"#);
        assert_eq!((sent, counted.drops["lost"]), (vec![], 4));
        let (sent, counted) = counts(r#"{"duplicate": 1}"#);
        assert_eq!((sent, counted.counters["duplicated"]), (vec![0, 0, 1, 1, 2, 2, 3, 3], 4));
        let (sent, counted) = counts(r#"{"corrupt": 1}"#);
        assert_eq!(sent.iter().zip(0..4).map(|(sent, was)| (sent ^ was).count_ones()).sum::<u32>(), 4);
        assert_eq!(counted.counters["corrupted"], 4);
        let (sent, counted) = counts(r#"{"reorder": 1, "gap": 2}"#);
        assert_eq!(
            (sent, counted.counters["reordered"]),
            (vec![0, 1, 2, 3], 4),
            "all held back alike keep their order"
        );
    }

    #[test]
    fn a_packet_is_held_back_behind_the_gap_or_until_its_time_is_over() {
        // With this seed the first of two packets is held back.
        let seed = (0..).find(|seed| {
            let mut impair = impair(&format!(r#"{{"reorder": 0.3, "seed": {seed}}}"#)).unwrap();
            impair.reorder.happens() && (0..5).all(|_| !impair.reorder.happens())
        });
        let config = format!(r#"{{"reorder": 0.3, "gap": 2, "hold": "1ms", "seed": {}}}"#, seed.unwrap());
        let mut rig_of_four = rig(&config);
        rig_of_four.send("input", numbers(4));
        rig_of_four.settle();
        assert_eq!(received(&mut rig_of_four), [1, 2, 0, 3]);

        let mut rig_of_two = rig(&config);
        rig_of_two.send("input", numbers(2));
        rig_of_two.settle();
        assert_eq!((received(&mut rig_of_two), rig_of_two.is_done()), (vec![1], false));
        rig_of_two.set_time(1_001_000_000);
        rig_of_two.settle();
        assert_eq!((received(&mut rig_of_two), rig_of_two.is_done()), (vec![0], true));
    }

    #[test]
    fn invalid_configs_name_their_key() {
        assert_eq!(impair(r#"{"gap": 0}"#).err().and_then(|mistake| mistake.key), Some("gap"));
        for (loss, answer) in
            [("5", "write `5%` or `0.05`"), ("-0.5", "is not a fraction"), ("\"101%\"", "at most 100%")]
        {
            let error = serde_json::from_str::<Config>(&format!(r#"{{"loss": {loss}}}"#)).unwrap_err();
            assert!(error.to_string().contains(answer), "{error}");
        }
        assert_eq!(serde_json::from_str::<Config>(r#"{"loss": "1%"}"#).unwrap().loss.get(), 0.01);
    }

    fn probability() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64]
    }

    proptest! {
        /// The outcome does not depend on the burst size, with lossless links or without, and every packet is accounted
        /// for: sent, sent twice, or lost.
        #[test]
        fn a_seed_decides_for_any_burst(
            [loss, corrupt, duplicate, reorder] in [probability(), probability(), probability(), probability()],
            (gap, seed) in (1u64..9, any::<u64>()),
            // Twice that number must fit into a link at once.
            cuts in proptest::collection::vec(1usize..60, 1..9),
            lossless: bool,
        ) {
            let config = format!(
                r#"{{"loss": {loss}, "corrupt": {corrupt}, "duplicate": {duplicate}, "reorder": {reorder},
                    "gap": {gap}, "seed": {seed}}}"#
            );
            let packets: Vec<[u8; 2]> = (0..cuts.iter().sum::<usize>() as u16).map(u16::to_be_bytes).collect();
            let run = |cuts: &[usize], lossless: bool| {
                let settings = Settings { lossless, ..Settings::default() };
                let mut rig = Rig::with_settings(impair(&config).unwrap(), &["input"], &["output"], settings);
                let mut rest = packets.as_slice();
                for &cut in cuts {
                    let (now, later) = rest.split_at(cut);
                    rig.send("input", now);
                    rig.settle();
                    rest = later;
                }
                rig.set_time(2_000_000_000);
                rig.settle();
                assert!(rig.is_done());
                (rig.received("output"), rig.counts())
            };
            let (sent, counts) = run(&cuts, lossless);
            let (sent_at_once, counts_at_once) = run(&[packets.len()], false);
            prop_assert!(sent == sent_at_once);
            prop_assert_eq!(&counts.counters, &counts_at_once.counters);
            prop_assert_eq!(counts.drops["lost"], counts.dropped());
            let (lost, duplicated) = (counts.drops["lost"] as usize, counts.counters["duplicated"] as usize);
            prop_assert_eq!(sent.len() + lost, packets.len() + duplicated);
            if corrupt == 0.0 && duplicate == 0.0 {
                // No packet is overtaken by more packets than the gap, and none is sent twice.
                let mut seen = sent.clone();
                seen.sort();
                seen.dedup();
                prop_assert_eq!(seen.len(), sent.len());
                for (place, packet) in sent.iter().enumerate() {
                    let overtaken_by = sent[..place].iter().filter(|before| *before > packet).count();
                    prop_assert!(overtaken_by as u64 <= gap);
                }
            }
        }
    }
}
