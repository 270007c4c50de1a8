//! A supply against a model: whatever the measured apps do to packets, each round sends the bytes of the frames, in as
//! many buffers as it has packets, and no packet is lost.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellows_basic::sink::Sink;
use bellows_engine::{App, Engine, Io, Network, Port, Ports, Settings};
use bellows_lab::residence::{Levels, Resident};
use bellows_lab::supply::{Frame, Handle, Supply, SupplyConfig, SupplyError, pair, pair_of};
use bellows_packet::{HEADROOM, Meta, Packet, pool};
use bellows_rig::Rig;
use proptest::prelude::*;

const BURST: usize = 32;

/// Runs one test at a time, because they count the buffers of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A received packet: its contents and its address.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    bytes: Vec<u8>,
    address: usize,
    pristine: bool,
}

type Log = Arc<Mutex<Vec<Seen>>>;

/// What the app does to one packet.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Pass,
    Drop,
    Hold,
    Copy,
    Truncate,
    Overwrite,
    TakeHeader,
    AddHeader,
    Annotate,
}

/// Records the received packets, and does one of its deeds in turn to each.
struct Meddler {
    log: Log,
    deeds: Vec<Deed>,
    next: usize,
    held: Vec<Packet>,
}

impl App for Meddler {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets"), Port::required("copies", "copies")]);

    fn push(&mut self, io: &Io<Self>) {
        let (mut output, mut copies) = (io.output(0), io.output(1));
        // Half of the held packets go on when packets arrive.
        self.held.drain(..self.held.len() / 2).for_each(|packet| output.push(packet));
        for mut packet in &mut io.input(0) {
            self.log.lock().unwrap().push(Seen {
                bytes: packet.bytes().to_vec(),
                address: packet.bytes().as_ptr().addr(),
                pristine: packet.headroom() == HEADROOM && packet.tag() == 0 && packet.meta().is_none(),
            });
            self.next = (self.next + 1) % self.deeds.len();
            match self.deeds[self.next] {
                Deed::Pass => {}
                Deed::Drop => continue,
                Deed::Hold => {
                    self.held.push(packet);
                    continue;
                }
                Deed::Copy => packet.copy().into_iter().for_each(|copy| copies.push(copy)),
                Deed::Truncate => packet.truncate(20),
                Deed::Overwrite => packet.bytes_mut().fill(0xff),
                Deed::TakeHeader => packet.trim_front(14),
                Deed::AddHeader => packet.prepend(20).fill(0xee),
                Deed::Annotate => {
                    packet.set_tag(7);
                    packet.set_meta(Meta::default());
                }
            }
            output.push(packet);
        }
    }
}

fn order(traffic: &str, level: Resident) -> SupplyConfig {
    SupplyConfig {
        residence: Some(Levels::simulated().residence(level).unwrap()),
        ..SupplyConfig::new(traffic.parse().unwrap())
    }
}

fn settings() -> Settings {
    Settings { burst: BURST, sampling: false, ..Settings::default() }
}

/// A supply in a network with a [`Meddler`].
fn meddled(order: &SupplyConfig, deeds: &[Deed]) -> (Engine, Handle, Log) {
    let (supply, handle) = pair(order, BURST).unwrap();
    let log = Log::default();
    let meddler = Meddler { log: Arc::clone(&log), deeds: deeds.to_vec(), next: 0, held: Vec::new() };
    let network = Network::new().app("supply", supply).app("meddler", meddler).app("end", Sink).app("copies", Sink);
    let links = ["supply.output -> meddler.input", "meddler.output -> end.input", "meddler.copies -> copies.input"];
    let network = links.iter().fold(network, |network, link| network.link(link).unwrap());
    (Engine::new(network, settings(), None).unwrap(), handle, log)
}

fn deed() -> impl Strategy<Value = Deed> {
    use Deed::*;
    prop::sample::select(vec![Pass, Drop, Hold, Copy, Truncate, Overwrite, TakeHeader, AddHeader, Annotate])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Each round begins with the frame after the previous round's last, sends its frames in order as far as it gets,
    /// each in its own buffer and unchanged; at the end all buffers are free again.
    #[test]
    fn each_round_sends_the_frames(
        deeds in prop::collection::vec(deed(), 1..20),
        traffic in prop_oneof![Just("60"), Just("64:3,590:2,1514"), Just("protocols"), Just("60:3,9000:1")],
        level in prop::sample::select(Resident::ALL.to_vec()),
        rounds in prop::collection::vec(0usize..12, 1..5),
    ) {
        let _alone = alone();
        let before = pool::usage().in_use;
        let order = order(traffic, level);
        let frames = order.traffic.frames().unwrap();
        let (mut engine, mut handle, log) = meddled(&order, &deeds);
        let packets = handle.footprint().unwrap().packets;
        prop_assert!(packets % BURST == 0 && packets >= 2 * BURST);
        for (round, breaths) in rounds.into_iter().enumerate() {
            handle.prepare().unwrap();
            prop_assert_eq!(handle.left(), packets);
            engine.breathe_times(breaths as u64);
            let sent = (breaths * BURST).min(packets);
            prop_assert_eq!(handle.left(), packets - sent);
            let seen = std::mem::take(&mut *log.lock().unwrap());
            prop_assert_eq!(seen.len(), sent);
            for (place, packet) in seen.iter().enumerate() {
                prop_assert_eq!(&packet.bytes, &frames[(round * packets + place) % frames.len()]);
                prop_assert!(packet.pristine, "{:?}", packet);
            }
            let buffers: HashSet<usize> = seen.iter().map(|packet| packet.address).collect();
            prop_assert_eq!(buffers.len(), sent, "a buffer came twice in a round");
        }
        drop((engine, handle));
        prop_assert_eq!(pool::usage().in_use, before);
    }
}

/// All rounds use the same buffers, so that they have the same number of pages.
#[test]
fn rounds_use_the_same_buffers() {
    let _alone = alone();
    let (mut engine, mut handle, log) = meddled(&order("60", Resident::L2), &[Deed::Pass]);
    let mut rounds = (0..5).map(|_| {
        handle.prepare().unwrap();
        engine.breathe_times(1_000);
        let seen = std::mem::take(&mut *log.lock().unwrap());
        seen.into_iter().map(|packet| packet.address).collect::<Vec<usize>>()
    });
    // The second round is prepared while packets of the first are still in use.
    let [first, second] = [rounds.next().unwrap(), rounds.next().unwrap()];
    assert!(!first.is_sorted() && !first.iter().rev().is_sorted(), "no prefetcher may guess the next");
    let known: HashSet<usize> = first.iter().chain(&second).copied().collect();
    for round in rounds {
        assert!(round.iter().all(|address| known.contains(address)));
        assert_ne!(round, first, "each round has its own order");
    }
}

/// The capacity of a level determines the number of packets, and several supplies share it.
#[test]
fn a_level_takes_as_many_packets_as_it_holds() {
    let _alone = alone();
    let footprint = |order: &SupplyConfig| pair(order, 128).unwrap().1.footprint().unwrap();
    let packets = |traffic, level| footprint(&order(traffic, level)).packets;
    assert_eq!(packets("60", Resident::L1), 256, "two bursts at least");
    assert_eq!(packets("60", Resident::L2), 4_096, "512 KiB of lines and books");
    assert_eq!(packets("60", Resident::L3), 8_192, "the maximum");
    assert_eq!(packets("1514", Resident::L3), 5_120, "8 MiB");
    assert_eq!(packets("1514", Resident::Dram), 8_192);
    assert_eq!(packets("9000", Resident::Dram), 256, "large buffers are few");
    assert!(footprint(&order("60", Resident::L1)).fits && !footprint(&order("1514", Resident::L1)).fits);
    let shared = SupplyConfig { supplies: 2, ..order("60", Resident::L2) };
    assert_eq!(footprint(&shared).packets, 2_048);
}

#[test]
fn the_reach_counts_pages() {
    let _alone = alone();
    let (_supply, mut handle) = pair(&order("1514", Resident::Dram), 128).unwrap();
    handle.prepare().unwrap();
    let footprint = handle.footprint().unwrap();
    assert_eq!(footprint.bytes, 8_192 * 1_536);
    let least = 8_192 * 2_240 / footprint.page_size;
    let most = if footprint.page_size == 4096 { 2 * 8_192 } else { 65_536 * 2_240 / footprint.page_size + 1 };
    assert!((least..=most).contains(&footprint.pages), "{footprint:?}");
}

#[test]
fn without_a_level_packets_are_written_when_they_are_sent() {
    let _alone = alone();
    for traffic in ["60", "64:3,590:2,9000"] {
        let order = SupplyConfig::new(traffic.parse().unwrap());
        let frames = order.traffic.frames().unwrap();
        let deeds = [Deed::Overwrite, Deed::Truncate, Deed::Drop, Deed::AddHeader];
        let (mut engine, mut handle, log) = meddled(&order, &deeds);
        for _ in 0..3 {
            handle.prepare().unwrap();
            engine.breathe_times(50);
        }
        assert_eq!((handle.left(), handle.footprint()), (usize::MAX, None));
        let seen = log.lock().unwrap();
        assert_eq!(seen.len(), 150 * BURST);
        assert!(
            seen.iter().zip(frames.iter().cycle()).all(|(packet, frame)| packet.bytes == *frame && packet.pristine)
        );
    }
}

/// An app that keeps all packets empties the pool: an error says so, and nothing is sent.
#[test]
fn an_empty_pool_is_an_error() {
    let _alone = alone();
    let before = pool::usage().in_use;
    let mut kept: Vec<Packet> = Packet::allocate_burst(pool::config().packets).collect();
    kept.truncate(kept.len() - 100);
    let (mut engine, mut handle, log) = meddled(&order("60", Resident::L1), &[Deed::Pass]);
    let error = handle.prepare().unwrap_err();
    assert!(matches!(error, SupplyError::Pool { .. }), "{error}");
    assert!(error.to_string().contains("use a smaller burst"), "{error}");
    engine.breathe_times(10);
    assert!(log.lock().unwrap().is_empty());
    drop(kept);
    handle.prepare().unwrap();
    engine.breathe();
    assert_eq!(log.lock().unwrap().len(), BURST);
    drop((engine, handle));
    assert_eq!(pool::usage().in_use, before);
}

/// A supply by itself, with a manual clock.
fn paced(order: &SupplyConfig) -> (Rig, Handle) {
    let (supply, handle): (Supply, Handle) = pair(order, BURST).unwrap();
    (Rig::with_settings(supply, &[], &["output"], settings()), handle)
}

#[test]
fn offered_packets_are_sent_when_they_are_due() {
    let _alone = alone();
    for resident in [None, Some(Resident::L3)] {
        let residence = resident.map(|level| Levels::simulated().residence(level).unwrap());
        let order = SupplyConfig { residence, offered: Some(1e6), ..SupplyConfig::new("60".parse().unwrap()) };
        let (mut rig, mut handle) = paced(&order);
        let sent = |handle: &mut Handle, rig: &mut Rig, micros: u64| {
            if micros == 0 {
                handle.prepare().unwrap();
            }
            rig.set_time(1_000_000_000 + micros * 1_000);
            rig.breathe();
            rig.received("output").len()
        };
        let times = [0, 1, 1, 11, 100, 100, 100, 100];
        // At most a burst at a time; the rest follows in the next breaths.
        let expected = [1, 1, 0, 10, 32, 32, 25, 0];
        assert_eq!(times.map(|time| sent(&mut handle, &mut rig, time)), expected);
        // A round begins when its first packet is sent.
        let pause = 10_000_000;
        handle.prepare().unwrap();
        assert_eq!([pause, pause + 5].map(|time| sent(&mut handle, &mut rig, time)), [1, 5]);
        assert_eq!(handle.missed(), 0);
        // Packets beyond the backlog are missed and counted.
        assert_eq!(sent(&mut handle, &mut rig, pause + 5 + 5_000), 32);
        assert_eq!(handle.missed(), 5_000 - 1_024);
        assert_eq!(rig.counts().counters["missed"], 5_000 - 1_024);
    }
}

proptest! {
    /// With frequent breaths, exactly the packets of the elapsed time are sent.
    #[test]
    fn the_offered_rate_is_kept(rate in 1_000.0..40e6f64, steps in prop::collection::vec(1u64..20_000, 1..50)) {
        let _alone = alone();
        let order = SupplyConfig { offered: Some(rate), ..SupplyConfig::new("60".parse().unwrap()) };
        let (mut rig, mut handle) = paced(&order);
        handle.prepare().unwrap();
        let (mut now, mut sent) = (5_000_000_000u64, 0);
        let start = now;
        for step in [0].into_iter().chain(steps) {
            now += step;
            rig.set_time(now);
            while rig.breathe() {}
            sent += rig.received("output").len();
            let exact = ((now - start) as f64 * rate / 1e9) as usize + 1;
            prop_assert!(sent.abs_diff(exact) <= 1, "{} sent, {} due", sent, exact);
        }
        prop_assert_eq!(handle.missed(), 0);
    }
}

#[test]
fn invalid_rates_are_refused() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let order = SupplyConfig { offered: Some(rate), ..SupplyConfig::new("60".parse().unwrap()) };
        assert!(matches!(pair(&order, BURST), Err(SupplyError::Rate(_))));
    }
}

#[test]
fn packets_have_the_tags_of_their_frames() {
    let _alone = alone();
    let frames: Vec<Frame> = (1..=3u8).map(|tag| Frame { bytes: vec![tag; 60], tag: tag.into() }).collect();
    for level in [None, Some(Resident::L1), Some(Resident::Dram)] {
        for frames in [&frames[..], &frames[..1]] {
            let residence = level.map(|level| Levels::simulated().residence(level).unwrap());
            let config = SupplyConfig { residence, ..SupplyConfig::new("60".parse().unwrap()) };
            let (supply, mut handle) = pair_of(frames.to_vec(), &config, BURST).unwrap();
            let mut rig = Rig::with_settings(supply, &[], &["output"], settings());
            handle.prepare().unwrap();
            rig.breathe();
            let received = rig.received_packets("output");
            assert_eq!(received.len(), BURST);
            for (place, packet) in received.iter().enumerate() {
                let frame = &frames[place % frames.len()];
                assert_eq!((packet.bytes(), packet.tag()), (&frame.bytes[..], frame.tag), "{level:?}");
            }
        }
    }
}
