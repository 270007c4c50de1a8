//! No app loses a packet: a packet that came in has gone out, was dropped for a counted reason, or waits; and when a
//! network is gone the pool is whole again. The only test of its process, because the pool belongs to the process.

use bellows_basic::counter::{self, Counter};
use bellows_basic::join::{self, Join};
use bellows_basic::matching::{self, Match};
use bellows_basic::pcap_filter::{self, PcapFilter, Which};
use bellows_basic::repeater::{self, Repeater};
use bellows_basic::rss::{self, Rss};
use bellows_basic::sample::{self, Sample};
use bellows_basic::sink::{self, Sink};
use bellows_basic::split::{self, Split};
use bellows_basic::tee::{self, Tee};
use bellows_basic::truncate::{self, Truncate};
use bellows_config::{Bytes, Configure, Context};
use bellows_engine::Settings;
use bellows_observe::AppCounts;
use bellows_packet::pool;
use bellows_rig::Rig;
use proptest::prelude::*;

/// A pool that is too small for three copies of the longest batch.
const POOL: pool::Config = pool::Config { packets: 2048, large_packets: 4, stride: 35 * 64 };

/// Packets for one input: which input, how many, how long.
type Batch = (usize, usize, usize);

/// The packets that went through an app.
struct Books {
    counts: AppCounts,
    /// Packets that the outputs delivered.
    delivered: u64,
    lossless: bool,
}

/// Sends the batches through an app, with some breaths between them, and waits until it is idle.
fn run<A: Configure>(
    config: A::Config,
    inputs: &[&str],
    outputs: &[&str],
    batches: &[Batch],
    lossless: bool,
    check: impl Fn(Books) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let app = A::configure(config, &Context::default()).expect("a good config");
    let mut rig = Rig::with_settings(app, inputs, outputs, Settings { lossless, ..Settings::default() });
    let mut delivered = 0;
    for (time, &(input, count, length)) in (0..).zip(batches) {
        let packet = |number: usize| vec![number as u8; length];
        rig.send(inputs[input % inputs.len()], (0..count).map(packet));
        rig.breathe();
        rig.set_time((2 + time) * 1_000_000_000);
        for _ in 0..10 {
            rig.breathe();
            delivered += outputs.iter().map(|output| rig.received_packets(output).len() as u64).sum::<u64>();
        }
    }
    let counts = rig.counts();
    prop_assert_eq!(delivered, counts.out_packets);
    check(Books { counts, delivered, lossless })?;
    drop(rig);
    prop_assert_eq!(pool::usage().in_use, 0);
    Ok(())
}

/// Each packet became `copies` packets, and each of these was delivered or dropped.
fn times(copies: u64) -> impl Fn(Books) -> Result<(), TestCaseError> {
    move |Books { counts, delivered, lossless }| {
        prop_assert_eq!(counts.in_packets * copies, delivered + counts.dropped(), "{:?}", counts);
        prop_assert!(!lossless || counts.drops["txdrop"] == 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_app_loses_a_packet(
        batches in prop::collection::vec((0usize..3, 0usize..1500, 0usize..2000), 1..6),
        lossless: bool,
    ) {
        pool::init(POOL).expect("the first pool of the process");
        let (one, two, three) = (["input"], ["a", "b"], ["a", "b", "c"]);
        let out = ["output"];
        let batches = &batches[..];

        run::<Sink>(sink::Config {}, &one, &[], batches, lossless, |books| {
            prop_assert_eq!((books.delivered, books.counts.dropped()), (0, 0));
            Ok(())
        })?;
        run::<Tee>(tee::Config {}, &one, &three, batches, lossless, times(3))?;
        run::<Join>(join::Config {}, &three, &out, batches, lossless, times(1))?;
        run::<Split>(split::Config {}, &one, &two, batches, lossless, times(1))?;
        run::<Rss>(rss::Config::default(), &one, &two, batches, lossless, times(1))?;
        let filter = pcap_filter::Config { filter: Some("len > 1000".to_owned()), ..Default::default() };
        run::<PcapFilter>(filter.clone(), &one, &["match"], batches, lossless, times(1))?;
        run::<PcapFilter>(filter, &one, &["rest", "match"], batches, lossless, times(1))?;
        let every = |name: &str| (name.to_owned(), "len >= 0".to_owned());
        let filters = pcap_filter::Filters(vec![every("a"), every("b")]);
        let all = pcap_filter::Config { filters, which: Which::All, ..Default::default() };
        run::<PcapFilter>(all, &one, &two, batches, lossless, times(2))?;
        run::<Truncate>(truncate::Config { length: Bytes::new(700) }, &one, &out, batches, lossless, times(1))?;
        run::<Counter>(counter::Config::default(), &one, &out, batches, lossless, times(1))?;
        let every = sample::Config { every: Some(3), ..Default::default() };
        run::<Sample>(every, &one, &out, batches, lossless, times(1))?;
        let probability = sample::Config { probability: "50%".parse().ok(), ..Default::default() };
        run::<Sample>(probability, &one, &out, batches, lossless, times(1))?;
        let row = repeater::Config { times: Some(2), ..Default::default() };
        run::<Repeater>(row, &one, &out, batches, lossless, times(2))?;
        let endless = repeater::Config { limit: 100, ..Default::default() };
        run::<Repeater>(endless, &one, &out, batches, lossless, |books| {
            let stored = books.counts.in_packets - books.counts.drops["over_limit"];
            prop_assert_eq!(stored, books.counts.in_packets.min(100));
            prop_assert_eq!(books.delivered > 0, stored > 0);
            Ok(())
        })?;
        for order in [true, false] {
            let window = matching::Config { order, window: 300, ..Default::default() };
            run::<Match>(window, &["expected", "actual"], &["mismatch"], batches, lossless, |books| {
                let count = |name: &str| books.counts.counters[name];
                let settled = 2 * (count("matched") + count("mismatched")) + count("missing") + count("unexpected");
                let waiting = books.counts.in_packets - settled;
                prop_assert!(waiting <= 600);
                let sent = books.delivered + books.counts.dropped();
                prop_assert_eq!(sent, count("mismatched") + count("unexpected"));
                Ok(())
            })?;
        }
    }
}
