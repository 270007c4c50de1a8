//! `match`: compares two streams.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use bellows_config::{Configure, Context, Duration, SettingError};
use bellows_engine::{App, AppError, Counters, Io, Output, Port, Ports, counters};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Compares two streams of packets, and fails the run if they differ: for tests.
///
/// Each packet waits for its partner in the other stream. With `order`, the first expected packet belongs to the first
/// actual packet, the second to the second, and so on: one lost packet puts all later ones out of step. Without
/// `order`, two equal packets belong together wherever they are. Only the data is compared, not times or other
/// metadata.
///
/// A packet without a partner counts as `missing` if it was expected and as `unexpected` if it came; partners that
/// differ count as `mismatched`. If any of these counters is not 0, the run fails: the end of the run reports it and
/// the exit code is not 0. Packets that still wait when a run is cut short do not count, unless nothing has matched by
/// then.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether the packets must come in the expected order.
    pub order: bool,

    /// Maximum time a packet waits for its partner.
    pub patience: Duration,

    /// Maximum number of waiting packets of one stream, each in a buffer of the pool; beyond it the oldest has no
    /// partner.
    #[schemars(extend("x-unit" = "packets"), range(min = 1))]
    pub window: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { order: true, patience: Duration::from_secs(1), window: 4096 }
    }
}

/// Compares two streams.
pub struct Match {
    config: Config,
    expected: WaitingStream,
    actual: WaitingStream,
    totals: Totals,
    /// A description of the first difference in order.
    first_difference: Option<String>,
}

/// The results, in the order of [`App::COUNTERS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    matched: u64,
    mismatched: u64,
    missing: u64,
    unexpected: u64,
}

/// The waiting packets of one stream.
#[derive(Default)]
struct WaitingStream {
    /// Number of packets so far, which is the position of the next.
    count: u64,
    /// By position.
    waiting: BTreeMap<u64, Waiting>,
    /// Positions by key, the oldest first.
    by_key: HashMap<u64, VecDeque<u64>>,
}

struct Waiting {
    since: u64,
    /// The key that partners share: with `order` the position, otherwise a hash of the data.
    key: u64,
    packet: Packet,
}

impl WaitingStream {
    fn add(&mut self, position: u64, waiting: Waiting) {
        self.by_key.entry(waiting.key).or_default().push_back(position);
        self.waiting.insert(position, waiting);
    }

    /// Takes the oldest packet of this key that `wanted` accepts.
    fn take(&mut self, key: u64, wanted: impl Fn(&Packet) -> bool) -> Option<Packet> {
        let positions = self.by_key.get(&key)?;
        let found = |position: &&u64| self.waiting.get(position).is_some_and(|waiting| wanted(&waiting.packet));
        let position = *positions.iter().find(found)?;
        self.remove(position)
    }

    fn remove(&mut self, position: u64) -> Option<Packet> {
        let Waiting { key, packet, .. } = self.waiting.remove(&position)?;
        if let Some(positions) = self.by_key.get_mut(&key) {
            positions.retain(|other| *other != position);
            if positions.is_empty() {
                self.by_key.remove(&key);
            }
        }
        Some(packet)
    }

    /// Takes the oldest packet, if there are more than `most` or it has waited since `moment`.
    fn take_oldest(&mut self, most: usize, moment: Option<u64>) -> Option<Packet> {
        let (position, oldest) = self.waiting.first_key_value()?;
        let position = *position;
        let overdue = moment.is_some_and(|moment| oldest.since <= moment);
        if overdue || self.waiting.len() > most { self.remove(position) } else { None }
    }

    fn oldest(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(_, waiting)| waiting.since)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamSide {
    Expected,
    Actual,
}

counters! { Match;
    gauge MATCHED = "matched", "pairs of equal packets", in "pairs";
    gauge MISMATCHED = "mismatched", "pairs of packets at the same position that differ", in "pairs";
    gauge MISSING = "missing", "expected packets that did not come";
    gauge UNEXPECTED = "unexpected", "packets that were not expected";
}

impl App for Match {
    const INPUTS: Ports = Ports::Named(&[
        Port::required("expected", "the packets to expect"),
        Port::required("actual", "the packets to check"),
    ]);
    const OUTPUTS: Ports =
        Ports::Named(&[Port::optional("mismatch", "packets of `actual` that differ or were not expected")]);
    const PREFETCH: usize = 8;
    const ENDS: bool = true;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        let now = io.now();
        for (index, side) in [StreamSide::Expected, StreamSide::Actual].into_iter().enumerate() {
            for packet in &mut io.input(index) {
                self.arrive(side, packet, now, &mut output);
            }
        }
        self.update(io);
    }

    fn tick(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        let overdue = io.now().checked_sub(self.config.patience.nanos());
        for side in [StreamSide::Expected, StreamSide::Actual] {
            let most = io.burst();
            (0..most).take_while(|_| self.give_up(side, usize::MAX, overdue, &mut output)).for_each(drop);
        }
        self.update(io);
    }

    fn held(&self) -> usize {
        self.expected.waiting.len() + self.actual.waiting.len()
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old {
            self.swap_results(old);
        }
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        self.swap_results(old);
    }

    fn stop(&mut self) -> Result<(), AppError> {
        let Totals { matched, mismatched, missing, unexpected } = self.totals;
        if mismatched + missing + unexpected > 0 {
            let first = self.first_difference.as_deref().unwrap_or_default();
            let message = format!(
                "the streams differ: {matched} packets matched, {mismatched} mismatched, {missing} are missing, \
                 {unexpected} were not expected{first}; link `mismatch` to a `pcap-writer` to see what came"
            );
            return Err(message.into());
        }
        if matched == 0 && self.held() > 0 {
            let waiting = self.held();
            let message = format!(
                "no packet has matched, and {waiting} still waited when the run was stopped; let it run for longer than \
                 `patience`"
            );
            return Err(message.into());
        }
        Ok(())
    }
}

impl Match {
    /// Swaps the results with another instance, and the waiting packets too if both have the same `order`.
    fn swap_results(&mut self, other: &mut Match) {
        mem::swap(&mut self.totals, &mut other.totals);
        mem::swap(&mut self.first_difference, &mut other.first_difference);
        if self.config.order == other.config.order {
            mem::swap(&mut self.expected, &mut other.expected);
            mem::swap(&mut self.actual, &mut other.actual);
        }
    }

    /// Finds the partner of a packet, or stores the packet to wait for one.
    fn arrive(&mut self, side: StreamSide, packet: Packet, now: u64, output: &mut Output<'_>) {
        let order = self.config.order;
        let (own, other) = match side {
            StreamSide::Expected => (&mut self.expected, &mut self.actual),
            StreamSide::Actual => (&mut self.actual, &mut self.expected),
        };
        let position = own.count;
        own.count += 1;
        let key = if order { position } else { hash(packet.bytes()) };
        match other.take(key, |partner| order || partner.bytes() == packet.bytes()) {
            Some(partner) if partner.bytes() == packet.bytes() => self.totals.matched += 1,
            Some(partner) => {
                let (expected, actual) =
                    if side == StreamSide::Expected { (packet, partner) } else { (partner, packet) };
                self.totals.mismatched += 1;
                self.first_difference.get_or_insert_with(|| difference(position, expected.bytes(), actual.bytes()));
                output.push(actual);
            }
            None => {
                own.add(position, Waiting { since: now, key, packet });
                self.give_up(side, self.config.window, None, output);
            }
        }
    }

    /// Takes the oldest packet of a stream as one without a partner, if it is time. Returns false if it is not.
    fn give_up(&mut self, side: StreamSide, most: usize, overdue: Option<u64>, output: &mut Output<'_>) -> bool {
        let stream = if side == StreamSide::Expected { &mut self.expected } else { &mut self.actual };
        let Some(packet) = stream.take_oldest(most, overdue) else { return false };
        match side {
            StreamSide::Expected => self.totals.missing += 1,
            StreamSide::Actual => {
                self.totals.unexpected += 1;
                output.push(packet);
            }
        }
        true
    }

    /// Writes the counters, and asks for a tick when the oldest packet has waited long enough.
    fn update(&mut self, io: &Io<Self>) {
        io.set(Match::MATCHED, self.totals.matched);
        io.set(Match::MISMATCHED, self.totals.mismatched);
        io.set(Match::MISSING, self.totals.missing);
        io.set(Match::UNEXPECTED, self.totals.unexpected);
        if let Some(since) = self.expected.oldest().into_iter().chain(self.actual.oldest()).min() {
            io.wake_at(since.saturating_add(self.config.patience.nanos()));
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn difference(position: u64, expected: &[u8], actual: &[u8]) -> String {
    let same = expected.iter().zip(actual).take_while(|(expected, actual)| expected == actual).count();
    let (long, short) = (expected.len(), actual.len());
    format!(
        "; the first to differ is packet {position} (from 0), at byte {same}: {long} bytes were expected, {short} came"
    )
}

impl Configure for Match {
    const NAME: &'static str = "match";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Match, SettingError> {
        if config.window == 0 {
            return Err(SettingError::at("window", "with a window of 0 packets cannot wait", "give 1 or more"));
        }
        Ok(Match {
            config,
            expected: WaitingStream::default(),
            actual: WaitingStream::default(),
            totals: Totals::default(),
            first_difference: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rig(config: Config) -> Rig {
        let app = Match::configure(config, &Context::default()).expect("a good config");
        Rig::new(app, &["expected", "actual"], &["mismatch"])
    }

    fn totals(rig: &Rig) -> Totals {
        let counters = rig.counts().counters;
        Totals {
            matched: counters["matched"],
            mismatched: counters["mismatched"],
            missing: counters["missing"],
            unexpected: counters["unexpected"],
        }
    }

    /// Sends the streams in pieces, and waits until the patience is over.
    fn compare(rig: &mut Rig, expected: &[Vec<u8>], actual: &[Vec<u8>]) -> Totals {
        let mut streams = [("expected", expected), ("actual", actual)];
        while streams.iter().any(|(_, packets)| !packets.is_empty()) {
            for (input, packets) in &mut streams {
                let (now, later) = packets.split_at(packets.len().min(1 + packets.len() / 2));
                rig.send(input, now);
                *packets = later;
                rig.settle();
            }
        }
        rig.set_time(10 * SECOND);
        rig.settle();
        assert!(rig.is_done());
        totals(rig)
    }

    fn packets(names: &str) -> Vec<Vec<u8>> {
        names.bytes().map(|name| vec![name]).collect()
    }

    #[test]
    fn equal_streams_match_and_the_run_succeeds() {
        let mut rig = rig(Config::default());
        let same = compare(&mut rig, &packets("abcab"), &packets("abcab"));
        assert_eq!(same, Totals { matched: 5, ..Totals::default() });
        assert!(rig.finish().unfinished.is_empty());
    }

    #[test]
    fn a_difference_fails_the_run_and_says_where_it_is() {
        let mut rig = rig(Config::default());
        let found = compare(&mut rig, &packets("abcd"), &packets("axc"));
        assert_eq!(found, Totals { matched: 2, mismatched: 1, missing: 1, unexpected: 0 });
        assert_eq!(rig.received("mismatch"), packets("x"));
        let (app, message) = rig.finish().unfinished.remove(0);
        assert_eq!(app, "app");
        assert!(message.contains("packet 1 (from 0), at byte 0: 1 bytes were expected, 1 came"), "{message}");
    }

    #[test]
    fn a_packet_waits_as_long_as_the_patience_lasts() {
        let mut rig = rig(Config { patience: Duration::from_millis(10), ..Config::default() });
        rig.send("actual", packets("a"));
        rig.settle();
        rig.set_time(SECOND + 9_999_999);
        rig.settle();
        assert!(!rig.is_done());
        rig.set_time(SECOND + 10_000_000);
        rig.settle();
        assert_eq!(totals(&rig), Totals { unexpected: 1, ..Totals::default() });
        assert_eq!(rig.received("mismatch"), packets("a"));
    }

    #[test]
    fn no_more_than_the_window_waits() {
        for order in [true, false] {
            let mut rig = rig(Config { window: 3, order, ..Config::default() });
            rig.send("actual", packets("abcde"));
            rig.settle();
            assert_eq!(rig.received("mismatch"), packets("ab"));
            assert_eq!(
                compare(&mut rig, &packets("abcde"), &[]),
                Totals { matched: 3, mismatched: 0, missing: 2, unexpected: 2 }
            );
        }
    }

    #[test]
    fn a_run_that_is_cut_short_fails_only_if_nothing_matched() {
        let mut lagging = rig(Config::default());
        lagging.send("expected", packets("ab"));
        lagging.send("actual", packets("a"));
        lagging.settle();
        assert!(lagging.finish().unfinished.is_empty());
        let mut silent = rig(Config::default());
        silent.send("expected", packets("ab"));
        silent.settle();
        assert!(silent.finish().unfinished[0].1.contains("no packet has matched"));
    }

    #[test]
    fn a_reload_continues_to_compare() {
        let with = |patience| {
            let config = Config { patience: Duration::from_secs(patience), ..Config::default() };
            Match::configure(config, &Context::default()).unwrap()
        };
        let (mut old, mut new) = (with(1), with(2));
        old.totals.missing = 1;
        old.expected.add(0, Waiting { since: 0, key: 0, packet: Packet::from_bytes(b"a").unwrap() });
        new.start(Some(&mut old)).unwrap();
        assert_eq!((old.held(), new.held()), (0, 1));
        assert!(old.stop().is_ok() && new.stop().is_err());
        new.give_back(&mut old);
        assert_eq!((old.held(), new.held()), (1, 0));
        assert!(old.stop().is_err());
    }

    #[test]
    fn a_window_of_nothing_is_refused() {
        let config = Config { window: 0, ..Config::default() };
        assert_eq!(Match::configure(config, &Context::default()).err().unwrap().key, Some("window"));
    }

    fn any_stream() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(0..2u8, 0..3), 0..40)
    }

    proptest! {
        /// The naive models: position by position, or as multisets.
        #[test]
        fn the_totals_are_those_of_the_model(expected in any_stream(), actual in any_stream(), order: bool) {
            let mut rig = rig(Config { order, ..Config::default() });
            let found = compare(&mut rig, &expected, &actual);
            let mut rest = actual.clone();
            let pairs = expected.len().min(actual.len());
            let matched = if order {
                expected.iter().zip(&actual).filter(|(expected, actual)| expected == actual).count()
            } else {
                let take = |packet: &Vec<u8>| {
                    let place = rest.iter().position(|other| other == packet);
                    place.map(|place| rest.remove(place))
                };
                expected.iter().filter_map(take).count()
            };
            let mismatched = if order { pairs - matched } else { 0 };
            prop_assert_eq!(found, Totals {
                matched: matched as u64,
                mismatched: mismatched as u64,
                missing: (expected.len() - matched - mismatched) as u64,
                unexpected: (actual.len() - matched - mismatched) as u64,
            });
            let sent = rig.received("mismatch").len() as u64;
            prop_assert_eq!(sent, found.mismatched + found.unexpected);
            let same = expected.len() == actual.len() && matched == expected.len();
            prop_assert_eq!(rig.finish().unfinished.is_empty(), same);
        }
    }
}
