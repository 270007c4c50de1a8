//! `repeater`: the same packets again.

use std::slice;

use bellows_config::{Configure, Context, Mistake};
use bellows_engine::{App, Counter, Io, Output, Port, Ports};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends what it receives again and again: the stored sequence for ever, or each packet several times in a row.
///
/// By default it stores the first packets that come in and sends them round and round as fast as they are taken; what
/// comes while it sends joins the end of the sequence. So a short capture becomes endless traffic. It has no end of
/// its own: stop the run, or give it a duration.
///
/// With `times` each packet is sent so many times before the next, and the run ends as usual.
///
/// A full output makes the app wait. Copies carry tag and metadata; those for which the pool has no buffer are counted
/// as `no_buffer`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How many times in a row to send each packet, in place of storing the packets.
    #[schemars(range(min = 1))]
    pub times: Option<u64>,

    /// How many packets to store at most; those that come later are dropped as `over_limit`. Each takes a buffer of the
    /// pool.
    #[schemars(extend("x-unit" = "packets"), range(min = 1))]
    pub limit: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { times: None, limit: 1024 }
    }
}

/// Sends packets again.
pub enum Repeater {
    /// Stores packets and sends them for ever.
    Loop {
        /// What to send.
        stored: Vec<Packet>,
        /// Which of them is next.
        next: usize,
        /// How many to store.
        limit: usize,
    },
    /// Sends each packet several times.
    Row {
        /// How many times.
        times: u64,
        /// The packet whose turn it is, and how many times it is still to be sent.
        current: Option<(Packet, u64)>,
    },
}

const OVER_LIMIT: usize = 0;

impl App for Repeater {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to be repeated")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets, many times")]);
    const PULLS: bool = true;
    const DROPS: &'static [Counter] = &[Counter::new("over_limit", "packets that came when `limit` were stored")];

    fn pull(&mut self, io: &Io<Self>) {
        match self {
            Repeater::Loop { stored, next, .. } => {
                let mut output = io.output(0);
                let mut wanted = if stored.is_empty() { 0 } else { io.burst().min(output.room()) };
                while wanted > 0 {
                    let end = stored.len().min(*next + wanted);
                    output.push_copies(&stored[*next..end]);
                    wanted -= end - *next;
                    *next = end % stored.len();
                }
            }
            Repeater::Row { current, .. } => send_current(current, &mut io.output(0)),
        }
        self.set_slot(io);
    }

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        match self {
            Repeater::Loop { stored, limit, .. } => {
                let free = *limit - stored.len();
                stored.extend((&mut input).into_iter().take(free).map(|mut packet| {
                    packet.end_mark();
                    packet
                }));
                if !input.is_empty() {
                    io.drop_all(&mut input, OVER_LIMIT);
                }
            }
            Repeater::Row { times, current } => {
                let mut output = io.output(0);
                send_current(current, &mut output);
                let ready = if current.is_some() { 0 } else { usize::MAX };
                for packet in (&mut input).into_iter().take(ready) {
                    *current = Some((packet, *times));
                    send_current(current, &mut output);
                    if current.is_some() {
                        break;
                    }
                }
            }
        }
        self.set_slot(io);
    }

    fn slots(&self) -> usize {
        1
    }

    fn held(&self) -> usize {
        match self {
            Repeater::Loop { stored, .. } => stored.len(),
            Repeater::Row { current, .. } => usize::from(current.is_some()),
        }
    }

    fn exhausted(&self) -> bool {
        match self {
            Repeater::Loop { stored, .. } => stored.is_empty(),
            Repeater::Row { .. } => true,
        }
    }
}

impl Repeater {
    /// There is something to pull while a packet is to be repeated.
    fn set_slot(&self, io: &Io<Self>) {
        match self.held() {
            0 => io.slot(0).never(),
            _ => io.slot(0).always(),
        }
    }
}

/// Sends the packet as often as there is room, copies first and then the packet itself.
fn send_current(current: &mut Option<(Packet, u64)>, output: &mut Output<'_>) {
    let Some((packet, left)) = current else { return };
    let copies = (*left - 1).min(output.room() as u64);
    for _ in 0..copies {
        output.push_copies(slice::from_ref(packet));
    }
    *left -= copies;
    if *left == 1
        && output.room() > 0
        && let Some((packet, _)) = current.take()
    {
        output.push(packet);
    }
}

impl Configure for Repeater {
    const NAME: &'static str = "repeater";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Repeater, Mistake> {
        match config {
            Config { times: Some(0), .. } => {
                Err(Mistake::at("times", "0 times is never", "give 1 to send each packet once, or more"))
            }
            Config { times: Some(times), .. } => Ok(Repeater::Row { times, current: None }),
            Config { times: None, limit: 0 } => {
                Err(Mistake::at("limit", "with a limit of 0 there is nothing to send", "give 1 or more packets"))
            }
            Config { times: None, limit } => Ok(Repeater::Loop { stored: Vec::new(), next: 0, limit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_engine::Settings;
    use bellows_engine::testing::Rig;

    fn rig(config: Config, lossless: bool) -> Rig {
        let repeater = Repeater::configure(config, &Context::default()).expect("a good config");
        Rig::with_settings(repeater, &["input"], &["output"], Settings { lossless, ..Settings::default() })
    }

    #[test]
    fn the_stored_sequence_goes_round_for_ever() {
        for lossless in [false, true] {
            let mut rig = rig(Config { limit: 3, ..Config::default() }, lossless);
            rig.send("input", [b"a", b"b", b"c", b"d"]);
            for _ in 0..6 {
                rig.breathe();
            }
            let packets = rig.received("output");
            assert_eq!(packets.len(), 5 * 128);
            let expected = [b"a", b"b", b"c"].into_iter().cycle().take(packets.len()).map(|packet| packet.to_vec());
            assert!(packets.into_iter().eq(expected));
            assert_eq!(rig.counts().drops["over_limit"], 1);
            assert!(!rig.is_done());
        }
    }

    #[test]
    fn each_packet_is_sent_so_many_times_in_a_row() {
        for lossless in [false, true] {
            for (times, count) in [(1, 3000), (3, 3000), (1024, 5), (5000, 3)] {
                let mut rig = rig(Config { times: Some(times), ..Config::default() }, lossless);
                rig.send("input", (0..count).map(u32::to_be_bytes));
                let mut packets = Vec::new();
                while rig.breathe() {
                    packets.extend(rig.received("output"));
                }
                let row = |number: u32| std::iter::repeat_n(number.to_be_bytes().to_vec(), times as usize);
                assert!(packets.into_iter().eq((0..count).flat_map(row)), "{count} packets {times} times");
                assert_eq!(rig.counts().drops["txdrop"], 0);
                assert!(rig.is_done());
            }
        }
    }

    #[test]
    fn nothing_to_send_is_refused() {
        let key = |config| Repeater::configure(config, &Context::default()).err().unwrap().key;
        assert_eq!(key(Config { times: Some(0), ..Config::default() }), Some("times"));
        assert_eq!(key(Config { limit: 0, ..Config::default() }), Some("limit"));
    }
}
