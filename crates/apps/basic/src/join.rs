//! `join`: merges streams into one.

use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Io, Port, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends the packets of all inputs to one output.
///
/// Inputs may have any names. Packets of one input keep their order; there is no order between inputs. Each time,
/// another input is served first, so an input that is always full does not starve the others when the output is short
/// of room. The app has no keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// Sends the packets of all inputs to one output.
#[derive(Default)]
pub struct Join {
    /// The input that is served first.
    first: usize,
}

impl App for Join {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "packets of one stream" };
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets of all streams")]);

    fn push(&mut self, io: &Io<Self>) {
        self.first = (self.first + 1) % io.inputs();
        let mut output = io.output(0);
        let (before, after) = (|&index: &usize| index < self.first, |&index: &usize| index >= self.first);
        for index in io.waiting_inputs().filter(after).chain(io.waiting_inputs().filter(before)) {
            output.forward(&mut io.input(index));
        }
    }
}

impl Configure for Join {
    const NAME: &'static str = "join";
    type Config = Config;

    fn configure(_: Config, _: &Context) -> Result<Join, SettingError> {
        Ok(Join::default())
    }
}

#[cfg(test)]
mod tests {
    use bellows_engine::Settings;
    use bellows_rig::Rig;

    use super::*;

    const INPUTS: [&str; 3] = ["a", "b", "c"];

    /// More than a thousand packets for each input: each holds the input's number and its own.
    fn send_all(rig: &mut Rig, count: u16) {
        for (input, name) in (0..).zip(INPUTS) {
            rig.send(name, (0..count).map(|number| [[0, input], number.to_be_bytes()].concat()));
        }
    }

    fn numbers_of(input: u8, packets: &[Vec<u8>]) -> Vec<u16> {
        let of_input = packets.iter().filter(|packet| packet[1] == input);
        of_input.map(|packet| u16::from_be_bytes([packet[2], packet[3]])).collect()
    }

    #[test]
    fn every_input_keeps_its_order() {
        let mut rig = Rig::with_settings(
            Join::default(),
            &INPUTS,
            &["output"],
            Settings { lossless: true, ..Settings::default() },
        );
        send_all(&mut rig, 3000);
        rig.settle();
        let packets = rig.received("output");
        for input in 0..3 {
            assert_eq!(numbers_of(input, &packets), (0..3000).collect::<Vec<u16>>());
        }
    }

    #[test]
    fn full_inputs_share_a_narrow_output() {
        for lossless in [true, false] {
            let mut rig =
                Rig::with_settings(Join::default(), &INPUTS, &["output"], Settings { lossless, ..Settings::default() });
            send_all(&mut rig, 30_000 / 3);
            for _ in 0..9 {
                rig.breathe();
            }
            let packets = rig.received("output");
            assert_eq!(packets.len(), 9 * 1024);
            let shares: Vec<usize> = (0..3).map(|input| numbers_of(input, &packets).len()).collect();
            assert!(shares.iter().all(|share| *share == 3 * 1024), "{shares:?}");
        }
    }
}
