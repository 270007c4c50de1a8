//! `truncate`: cuts packets to a length.

use bellows_config::{BenchFiles, BenchSetup, Bytes, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cuts packets to a length; shorter ones pass unchanged.
///
/// The original length stays with the packet as metadata, so that a capture file has it. Headers and checksums are not
/// changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Maximum length, 1 or more; longer packets are cut.
    #[schemars(extend("x-unit" = "bytes"))]
    pub length: Bytes,
}

/// Cuts packets to a length.
pub struct Truncate {
    length: usize,
}

counters! { Truncate;
    count CUT = "cut", "packets that were longer than `length`";
}

impl App for Truncate {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets of any length")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets, with at most `length` bytes")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        let mut cut = 0;
        for packet in input.packets_mut() {
            if packet.len() > self.length {
                let meta = packet.meta().unwrap_or(Meta { link_type: ETHERNET, ..Meta::default() });
                packet.set_meta(Meta { original_length: meta.original_length.max(packet.len() as u32), ..meta });
                packet.truncate(self.length);
                cut += 1;
            }
        }
        io.output(0).forward(&mut input);
        io.count(Truncate::CUT, cut);
    }
}

/// Link type of Ethernet in capture files.
const ETHERNET: u32 = 1;

impl Configure for Truncate {
    const NAME: &'static str = "truncate";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys("length = 40")
    }

    fn configure(config: Config, _: &Context) -> Result<Truncate, SettingError> {
        if config.length.bytes() == 0 {
            return Err(SettingError::at("length", "a length of 0 leaves no packet data", "give 1 or more bytes"));
        }
        Ok(Truncate { length: usize::try_from(config.length.bytes()).unwrap_or(usize::MAX) })
    }
}

#[cfg(test)]
mod tests {
    use bellows_packet::Packet;
    use bellows_rig::Rig;
    use proptest::prelude::*;

    use super::*;

    fn truncate(length: u64) -> Result<Truncate, SettingError> {
        Truncate::configure(Config { length: Bytes::new(length) }, &Context::default())
    }

    proptest! {
        #[test]
        fn packets_are_cut_and_remember_their_length(
            length in 1usize..200,
            lengths in prop::collection::vec(0usize..300, 0..50),
        ) {
            let mut rig = Rig::new(truncate(length as u64).unwrap(), &["input"], &["output"]);
            rig.send("input", lengths.iter().map(|length| vec![1; *length]));
            rig.settle();
            let packets = rig.received_packets("output");
            let expected: Vec<usize> = lengths.iter().map(|had| length.min(*had)).collect();
            prop_assert_eq!(packets.iter().map(Packet::len).collect::<Vec<usize>>(), expected.clone());
            let original = lengths.iter().map(|had| (*had > length).then_some(*had as u32));
            let remembered = packets.iter().map(|packet| packet.meta().map(|meta| meta.original_length));
            prop_assert!(remembered.eq(original));
            let counts = rig.counts();
            prop_assert_eq!(counts.out_bytes, expected.iter().sum::<usize>() as u64);
            prop_assert_eq!(counts.counters["cut"], lengths.iter().filter(|had| **had > length).count() as u64);
        }
    }

    #[test]
    fn the_first_of_two_cuts_records_the_length() {
        let mut rig = Rig::new(truncate(10).unwrap(), &["input"], &["output"]);
        let mut packet = Packet::from_bytes(&[0; 20]).unwrap();
        let meta = Meta { timestamp: 5, original_length: 1500, ingress_port: 1, link_type: 101 };
        packet.set_meta(meta);
        rig.send_packets("input", [packet]);
        rig.breathe();
        assert_eq!(rig.received_packets("output")[0].meta(), Some(meta));
    }

    #[test]
    fn a_length_of_nothing_is_refused() {
        assert_eq!(truncate(0).err().unwrap().key, Some("length"));
    }
}
