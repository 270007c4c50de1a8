//! `repeater`: sends the same packets again.

use std::slice;

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, SettingError, TrafficRate};
use bellows_engine::{App, Counters, Io, Output, Port, Ports, counters};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pace::{Due, Pace};

/// Sends its packets again and again: the stored sequence without end, or each packet several times in a row.
///
/// By default it stores the first packets that come in and sends them in a loop as fast as possible; packets that come
/// later join the end of the sequence. So a short capture becomes endless traffic. The loop does not end: stop the run,
/// or give it a duration.
///
/// With `times` each packet is sent that many times before the next, and the run ends as usual.
///
/// When the output is full, the app waits. Copies carry tag and metadata. If the pool has no buffer for a copy, it is
/// counted as `no_buffer`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Number of times in a row to send each packet, instead of storing packets.
    #[schemars(range(min = 1))]
    pub times: Option<u64>,

    /// Maximum number of packets to store, each in a buffer of the pool; later packets are dropped as `over_limit`.
    #[schemars(extend("x-unit" = "packets"), range(min = 1))]
    pub limit: usize,

    /// The rate: packets per second (`"1.5Mpps"`, or a number), bits of packet data per second (`"10Gb/s"`), bits on an
    /// Ethernet wire (`"10Gb/s L1"`), or a share of a line rate on the wire (`"30% of 10Gb/s"`). An app that could not
    /// send catches up with up to a tenth of a second. By default as fast as possible.
    pub rate: Option<TrafficRate>,
}

impl Default for Config {
    fn default() -> Config {
        Config { times: None, limit: 1024, rate: None }
    }
}

/// Sends packets again.
pub struct Repeater {
    mode: Mode,
    pace: Option<Pace>,
}

/// The packets to send again.
enum Mode {
    /// Stores packets and sends them in a loop.
    Loop {
        /// The packets to send.
        stored: Vec<Packet>,
        /// Index of the next packet.
        next: usize,
        /// Maximum number of packets to store.
        limit: usize,
    },
    /// Sends each packet several times.
    Row {
        /// Number of times.
        times: u64,
        /// The current packet, and how many times it has yet to be sent.
        current: Option<(Packet, u64)>,
    },
}

counters! { Repeater;
    drop OVER_LIMIT = "over_limit", "packets that came when `limit` packets were stored";
}

impl App for Repeater {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to repeat")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets, many times")]);
    const PULLS: bool = true;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn pull(&mut self, io: &Io<Self>) {
        let pace = if self.held() > 0 { self.pace.as_mut() } else { None };
        let mut due = pace.map(|pace| pace.due(io.now()));
        match &mut self.mode {
            Mode::Loop { stored, next, .. } => {
                let mut output = io.output(0);
                let mut wanted = if stored.is_empty() { 0 } else { io.burst().min(output.room()) };
                while wanted > 0 {
                    let run = &stored[*next..stored.len().min(*next + wanted)];
                    let count = match &mut due {
                        Some(due) => run.iter().take_while(|packet| due.take(packet.len(), 1) == 1).count(),
                        None => run.len(),
                    };
                    output.push_copies(&run[..count]);
                    wanted = if count < run.len() { 0 } else { wanted - count };
                    *next = (*next + count) % stored.len();
                }
            }
            Mode::Row { current, .. } => send_current(current, due.as_mut(), &mut io.output(0)),
        }
        self.record_sent(due, io);
    }

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        let mut due = None;
        match &mut self.mode {
            Mode::Loop { stored, limit, .. } => {
                let free = *limit - stored.len();
                stored.extend((&mut input).into_iter().take(free).map(|mut packet| {
                    packet.end_mark();
                    packet
                }));
                if !input.is_empty() {
                    io.drop_all(&mut input, Repeater::OVER_LIMIT);
                }
            }
            Mode::Row { times, current } => {
                due = self.pace.as_mut().map(|pace| pace.due(io.now()));
                let mut output = io.output(0);
                send_current(current, due.as_mut(), &mut output);
                let ready = if current.is_some() { 0 } else { usize::MAX };
                for packet in (&mut input).into_iter().take(ready) {
                    *current = Some((packet, *times));
                    send_current(current, due.as_mut(), &mut output);
                    if current.is_some() {
                        break;
                    }
                }
            }
        }
        self.record_sent(due, io);
    }

    /// A packet is due.
    fn tick(&mut self, io: &Io<Self>) {
        if self.held() > 0 {
            io.slot(0).always();
        }
    }

    fn slots(&self) -> usize {
        1
    }

    fn held(&self) -> usize {
        match &self.mode {
            Mode::Loop { stored, .. } => stored.len(),
            Mode::Row { current, .. } => usize::from(current.is_some()),
        }
    }

    fn is_finished(&self) -> bool {
        match &self.mode {
            Mode::Loop { stored, .. } => stored.is_empty(),
            Mode::Row { .. } => true,
        }
    }
}

impl Repeater {
    /// Records what was sent. There is something to pull while a packet remains to be repeated, as soon as it is due.
    fn record_sent(&mut self, due: Option<Due>, io: &Io<Self>) {
        if let (Some(pace), Some(due)) = (&mut self.pace, &due) {
            pace.sent(due);
        }
        match &self.pace {
            _ if self.held() == 0 => io.slot(0).never(),
            Some(pace) if pace.next() > io.now() => {
                io.wake_at(pace.next());
                io.slot(0).never();
            }
            _ => io.slot(0).always(),
        }
    }
}

/// Sends the packet as often as there is room and it is due: first copies, then the packet itself.
fn send_current(current: &mut Option<(Packet, u64)>, mut due: Option<&mut Due>, output: &mut Output<'_>) {
    let Some((packet, left)) = current else { return };
    let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(output.room());
    let count = due.as_mut().map_or(wanted, |due| due.take(packet.len(), wanted)) as u64;
    let is_last = count == *left;
    for _ in 0..count - u64::from(is_last) {
        output.push_copies(slice::from_ref(packet));
    }
    *left -= count;
    if is_last
        && count > 0
        && let Some((packet, _)) = current.take()
    {
        output.push(packet);
    }
}

impl Configure for Repeater {
    const NAME: &'static str = "repeater";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys("times = 1")
    }

    fn configure(config: Config, _: &Context) -> Result<Repeater, SettingError> {
        let Config { times, limit, rate } = config;
        if rate.is_some_and(TrafficRate::is_zero) {
            let help = "leave `rate` out to send as fast as possible";
            return Err(SettingError::at("rate", "a rate of 0 sends nothing", help));
        }
        let mode = match times {
            Some(0) => {
                return Err(SettingError::at(
                    "times",
                    "`times` is 0, so nothing is sent",
                    "give 1 to send each packet once, or more",
                ));
            }
            Some(times) => Mode::Row { times, current: None },
            None if limit == 0 => {
                let help = "give 1 or more packets";
                return Err(SettingError::at("limit", "a limit of 0 stores nothing to send", help));
            }
            None => Mode::Loop { stored: Vec::new(), next: 0, limit },
        };
        Ok(Repeater { mode, pace: rate.map(Pace::new) })
    }
}

#[cfg(test)]
mod tests {
    use bellows_engine::Settings;
    use bellows_rig::Rig;

    use super::*;

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
    fn each_packet_is_sent_several_times_in_a_row() {
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
    fn a_rate_is_kept_in_packets_and_in_bits() {
        for (times, rate, expected) in [
            (None, "1kpps", 101),
            (None, "8Mb/s", 1_999),
            (Some(1_000_000), "8Mb/s", 1_001),
            (Some(1_000_000), "8Mb/s L1", 807),
        ] {
            let mut rig = rig(Config { times, rate: rate.parse().ok(), ..Config::default() }, false);
            rig.send("input", [vec![1; 100]]);
            if times.is_none() {
                rig.send("input", [vec![1; 30], vec![2; 20]]);
            }
            let mut sent = 0;
            for tenth in 0..=1000 {
                rig.set_time(1_000_000_000 + tenth * 100_000);
                rig.breathe();
                sent += rig.received("output").len();
            }
            assert!((sent as i64 - expected).abs() <= 1, "{sent} packets at {rate}");
        }
    }

    #[test]
    fn nothing_to_send_is_refused() {
        let key = |config| Repeater::configure(config, &Context::default()).err().unwrap().key;
        assert_eq!(key(Config { times: Some(0), ..Config::default() }), Some("times"));
        assert_eq!(key(Config { limit: 0, ..Config::default() }), Some("limit"));
        assert_eq!(key(Config { rate: "0b/s".parse().ok(), ..Config::default() }), Some("rate"));
    }
}
