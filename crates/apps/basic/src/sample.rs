//! `sample`: passes some packets of many.

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, Fraction, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use fastrand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Passes one packet in `every`, or each with a `probability`, and drops the others as `not_sampled`.
///
/// Give either `every` or `probability`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Pass the first of every group of this many packets: `100` passes one percent of them, evenly spaced.
    #[schemars(extend("x-unit" = "packets"), range(min = 1))]
    pub every: Option<u64>,

    /// Pass each packet with this probability, independently of the others.
    pub probability: Option<Fraction>,

    /// Seed of the random choice: the same seed chooses the same packets.
    pub seed: u64,
}

/// Passes some packets.
pub struct Sample {
    choice: Choice,
}

enum Choice {
    /// One in `every`; the next `left` packets do not pass.
    Every {
        every: u64,
        left: u64,
    },
    Random {
        probability: f64,
        random: Rng,
    },
}

impl Choice {
    #[inline]
    fn passes(&mut self) -> bool {
        match self {
            Choice::Every { every, left } => match left.checked_sub(1) {
                Some(fewer) => {
                    *left = fewer;
                    false
                }
                None => {
                    *left = *every - 1;
                    true
                }
            },
            Choice::Random { probability, random } => random.f64() < *probability,
        }
    }
}

counters! { Sample;
    asked drop NOT_SAMPLED = "not_sampled", "packets that were not chosen";
}

impl App for Sample {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to choose from")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets that were chosen")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for packet in &mut io.input(0) {
            if self.choice.passes() {
                output.push(packet);
            } else {
                io.drop(packet, Sample::NOT_SAMPLED);
            }
        }
    }
}

impl Configure for Sample {
    const NAME: &'static str = "sample";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys("every = 2")
    }

    fn configure(config: Config, _: &Context) -> Result<Sample, SettingError> {
        let choice = match (config.every, config.probability) {
            (Some(0), None) => {
                return Err(SettingError::at(
                    "every",
                    "one packet in 0 is not a choice",
                    "give 1 to let all pass, or more",
                ));
            }
            (Some(every), None) => Choice::Every { every, left: 0 },
            (None, Some(probability)) => {
                Choice::Random { probability: probability.get(), random: Rng::with_seed(config.seed) }
            }
            (Some(_), Some(_)) => {
                return Err(SettingError::at(
                    "probability",
                    "`every` and `probability` exclude each other",
                    "give one of them",
                ));
            }
            (None, None) => {
                let help = "give `every = 100`, for example, or `probability = \"1%\"`";
                return Err(SettingError::of_table("neither `every` nor `probability` is given", help));
            }
        };
        Ok(Sample { choice })
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;

    use super::*;

    fn sample(config: Config) -> Result<Sample, SettingError> {
        Sample::configure(config, &Context::default())
    }

    /// The numbers of the packets, out of 3,000, that pass.
    fn chosen(config: Config) -> Vec<u32> {
        let mut rig = Rig::new(sample(config).unwrap(), &["input"], &["output"]);
        rig.send("input", (0..3000u32).map(u32::to_be_bytes));
        rig.settle();
        let numbers: Vec<u32> =
            rig.received("output").iter().map(|packet| u32::from_be_bytes(packet[..].try_into().unwrap())).collect();
        let counts = rig.counts();
        assert_eq!(counts.in_packets, 3000);
        assert_eq!(counts.drops["not_sampled"], 3000 - numbers.len() as u64);
        numbers
    }

    #[test]
    fn one_in_every_passes_evenly_spaced() {
        for every in [1, 2, 7, 1000, 5000] {
            let expected: Vec<u32> = (0..3000).step_by(every as usize).collect();
            assert_eq!(chosen(Config { every: Some(every), ..Config::default() }), expected);
        }
    }

    #[test]
    fn a_probability_is_kept_and_its_choice_repeats() {
        let part = |probability| Fraction::new(probability).ok();
        let with = |probability, seed| chosen(Config { probability: part(probability), seed, ..Config::default() });
        assert_eq!((with(0.0, 1).len(), with(1.0, 1).len()), (0, 3000));
        // The standard deviation is 25.
        assert!(with(0.3, 1).len().abs_diff(900) < 125);
        assert_eq!(with(0.3, 1), with(0.3, 1));
        assert_ne!(with(0.3, 1), with(0.3, 2));
    }

    #[test]
    fn mistakes_name_their_key() {
        let mistake = |every, probability| sample(Config { every, probability, seed: 0 }).err().unwrap().key;
        assert_eq!(mistake(Some(0), None), Some("every"));
        assert_eq!(mistake(Some(1), "50%".parse().ok()), Some("probability"));
        for probability in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(Fraction::new(probability).is_err());
        }
        assert_eq!(mistake(None, None), None);
    }
}
