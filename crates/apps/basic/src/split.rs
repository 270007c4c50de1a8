//! `split`: deals packets to many outputs.

use bellows_common::nexts::NextVectors;
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Io, Port, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends one packet to each output in turn.
///
/// Outputs may have any names; they take turns in the order of the links. The packets of a flow go to all outputs, and
/// may overtake one another behind them: use `rss` to keep flows together. The app has no keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// Sends one packet to each output in turn.
pub struct Split {
    /// The output that is next.
    next: u16,
    next_vectors: NextVectors,
}

impl App for Split {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to deal")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "a share of the packets" };

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        let (count, outputs) = (input.len(), io.outputs());
        self.next_vectors.resize(outputs);
        for number in self.next_vectors.nexts(count) {
            // A reload may have removed outputs.
            let turn = if usize::from(self.next) < outputs { self.next } else { 0 };
            *number = turn;
            self.next = turn + 1;
        }
        self.next_vectors.send_numbered(io, &mut input, count);
    }
}

impl Configure for Split {
    const NAME: &'static str = "split";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let two = BenchRow { label: "2 outputs", outputs: &["a", "b"], ..BenchRow::default() };
        BenchSetup::Rows(vec![BenchRow::default(), two])
    }

    fn configure(_: Config, _: &Context) -> Result<Split, SettingError> {
        Ok(Split { next: 0, next_vectors: NextVectors::new() })
    }
}

#[cfg(test)]
mod tests {
    use bellows_engine::Settings;
    use bellows_rig::Rig;

    use super::*;

    const OUTPUTS: [&str; 3] = ["a", "b", "c"];

    #[test]
    fn packets_are_dealt_like_cards() {
        for lossless in [false, true] {
            let split = Split::configure(Config {}, &Context::default()).unwrap();
            let settings = Settings { lossless, ..Settings::default() };
            let mut rig = Rig::with_settings(split, &["input"], &OUTPUTS, settings);
            rig.send("input", (0..3000u32).map(u32::to_be_bytes));
            rig.settle();
            for (share, output) in (0..).zip(OUTPUTS) {
                let expected =
                    (0..3000u32).filter(|number| number % 3 == share).map(|number| number.to_be_bytes().to_vec());
                assert!(rig.received(output).into_iter().eq(expected), "{output}");
            }
        }
    }
}
