//! `tee`: copies one stream to many outputs.

use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Io, Port, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends every packet to every output, and keeps their order.
///
/// Outputs may have any names; each linked output gets every packet. The last output in the order of the links gets the
/// packet itself, the others get a copy with the same data, tag and metadata. If the pool has no buffer for a copy, it
/// is counted as `no_buffer`. The app has no keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// Sends every packet to every output.
pub struct Tee;

impl App for Tee {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to copy")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "a copy of every packet" };

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        let last = io.outputs() - 1;
        for output in 0..last {
            io.output(output).push_copies(input.packets());
        }
        io.output(last).forward(&mut input);
    }
}

impl Configure for Tee {
    const NAME: &'static str = "tee";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let two = BenchRow { label: "2 outputs", outputs: &["a", "b"], ..BenchRow::default() };
        BenchSetup::Rows(vec![BenchRow::default(), two])
    }

    fn configure(_: Config, _: &Context) -> Result<Tee, SettingError> {
        Ok(Tee)
    }
}

#[cfg(test)]
mod tests {
    use bellows_engine::Settings;
    use bellows_packet::{Meta, Packet};
    use bellows_rig::Rig;

    use super::*;

    const OUTPUTS: [&str; 3] = ["a", "b", "c"];

    #[test]
    fn every_output_gets_every_packet() {
        for lossless in [false, true] {
            let mut rig = Rig::with_settings(Tee, &["input"], &OUTPUTS, Settings { lossless, ..Settings::default() });
            let packets: Vec<Vec<u8>> = (0..3000usize).map(|n| vec![n as u8; n % 1600 + n / 2990 * 9000]).collect();
            rig.send("input", &packets);
            rig.settle();
            for output in OUTPUTS {
                assert!(rig.received(output) == packets, "{output}");
            }
            assert_eq!(rig.counts().dropped(), 0);
        }
    }

    #[test]
    fn copies_carry_tag_and_metadata() {
        let mut rig = Rig::new(Tee, &["input"], &OUTPUTS);
        let meta = Meta { timestamp: 1, original_length: 1500, ingress_port: 2, link_type: 3 };
        let mut packet = Packet::from_bytes(b"packet").unwrap();
        packet.set_tag(7);
        packet.set_meta(meta);
        rig.send_packets("input", [packet]);
        rig.breathe();
        for output in OUTPUTS {
            let packets = rig.received_packets(output);
            assert_eq!((packets[0].tag(), packets[0].meta()), (7, Some(meta)), "{output}");
        }
    }
}
