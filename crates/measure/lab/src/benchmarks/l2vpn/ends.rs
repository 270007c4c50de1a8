//! The end of a VPN that is measured, and the other ends, whose packets it gets.
//!
//! The other ends are a network of their own, which is not timed: it makes the packets that come out of tunnels, and
//! answers control channels. Packets of ESP can come only once, so these are made for each turn.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bellows_engine::{App, AppSpec, Engine, Network, Schedule, Settings};
use bellows_observe::{AppCounts, Snapshot};
use bellows_packet::Packet;
use bellows_sys::{atomic_file, clock};
use bellows_wire::IpProtocol;
use tracing::subscriber::{NoSubscriber, with_default};

use super::phases::{Phase, Size, Wire};
use super::traffic::{Feed, Kept, Stock, TrafficTap, Valve, locked};
use crate::networks::{Folder, loaded};

/// Packets per breath.
pub(super) const BURST: usize = 128;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// The VLAN of the line, a tag in the frames of the trunk.
const TAG: [u8; 4] = [0x81, 0, 0, 100];

/// Packets in a stock of which all differ, or that has a mix of lengths.
const MANY: usize = 1_000;

/// Packets in a stock of which all are alike.
const FEW: usize = 128;

/// The network of this end, and that of the others.
const HERE: &str = include_str!("here.toml");
const THERE: &str = include_str!("there.toml");

/// The files with keys, each for one direction.
const KEYS: [&str; 4] = ["bern-to-here", "here-to-bern", "zurich-to-here", "here-to-zurich"];

/// The ports of this end.
pub(super) const UPLINK: &str = "uplink";
const CIRCUITS: [&str; 2] = ["office", "customers"];

/// Breaths in which packets that were sent last leave a network, and in which both ends are up.
const LAST_BREATHS: usize = 8;
const BREATHS_TO_MEET: usize = 32;

/// Stations on each side.
const STATIONS: usize = 1_100;

/// How often stations of a phase are introduced, and the time that the bridge's table has to grow each time.
const LESSONS: usize = 3;
const LESSON_NS: u64 = 4_000_000;

/// The networks of both sides.
///
/// # Errors
/// If the keys cannot be written.
pub(super) fn networks() -> Result<[Network; 2], String> {
    // A process may have several.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let own = NUMBER.fetch_add(1, Relaxed);
    let folder = Folder::new(&format!("l2vpn-{own}")).map_err(|error| error.to_string())?;
    for (number, name) in KEYS.iter().enumerate() {
        // A run's packets stay in its process, in which no key may be used twice.
        let key = format!("{}{own:08x}", format!("{:02x}", 0x31 + number).repeat(16));
        let written = atomic_file::write(&folder.0.join(name), key.as_bytes(), Some(0o600));
        written.map_err(|error| format!("{}: {error}", folder.0.display()))?;
    }
    Ok([HERE, THERE].map(|text| loaded(&text.replace("KEYS", &folder.0.to_string_lossy()))))
}

/// The end that is measured, and the others.
pub(super) struct Ends {
    here: NetworkSide,
    there: NetworkSide,
    /// The pseudowire of the phase, if its packets are made for each turn.
    sealed: Option<Wire>,
    /// Packets of the phase in a breath, from the circuit and from the tunnel.
    per_breath: [usize; 2],
}

impl Ends {
    /// Both sides, which know one another. `change` changes the network that is measured, and names the further sources
    /// and sinks that it has then.
    ///
    /// # Errors
    /// If they cannot be laid out, or a pseudowire does not come up.
    pub(super) fn new(
        schedule: Schedule,
        change: impl FnOnce(&mut Network) -> Result<&'static [&'static str], String>,
    ) -> Result<Ends, String> {
        let [mut here, there] = networks()?;
        let further = change(&mut here)?;
        let settings = Settings { burst: BURST, schedule, ..Settings::default() };
        let here = NetworkSide::new(here, &[&CIRCUITS, further].concat(), further, settings)?;
        let settings = Settings { burst: BURST, sampling: false, ..Settings::default() };
        let there = NetworkSide::new(there, &Wire::ALL.map(Wire::site), &[], settings)?;
        let mut ends = Ends { here, there, sealed: None, per_breath: [0, 0] };
        // That pseudowires come up is no news in a measurement.
        with_default(NoSubscriber::default(), || ends.meet());
        let up = |app: &AppCounts| app.counters.get("up").copied().unwrap_or(0);
        let up: u64 = ends.snapshot().apps.iter().map(up).sum();
        if up == Wire::ALL.len() as u64 { Ok(ends) } else { Err(format!("{up} of 4 pseudowires are up")) }
    }

    /// Adds a valve of the end that is measured, as a source and a sink.
    pub(super) fn add(&mut self, name: &'static str, valve: &Valve) {
        self.here.feeds.push((name, Arc::clone(&valve.stock)));
        self.here.taps.push((name, Arc::clone(&valve.kept)));
    }

    /// Carries what leaves each uplink to the other one.
    fn meet(&mut self) {
        let mut to_here = Vec::new();
        for _ in 0..BREATHS_TO_MEET {
            let to_there = self.here.send_once(UPLINK, to_here);
            to_here = self.there.send_once(UPLINK, to_there);
        }
    }

    /// Has the bridge learn all stations, also those that a phase does not use, behind its tunnel: the table is the same
    /// in all phases. Those behind the tunnel come first, so that no frame is flooded to others. The table grows between
    /// two breaths, so what had no place is learned later.
    pub(super) fn learn(&mut self, phase: Phase) {
        let phase = Phase { size: Size::Fixed(64), stations: STATIONS, ..phase };
        let breaths = (2 * STATIONS).div_ceil(BURST);
        for _ in 0..LESSONS {
            for per_breath in [[0, BURST], [BURST, 0]] {
                self.begin(phase, per_breath);
                self.prepare(breaths);
                self.breathe(breaths + LAST_BREATHS);
            }
            self.pause();
            let end = clock::now() + LESSON_NS;
            while clock::now() < end {
                self.breathe(LAST_BREATHS);
                self.pass();
            }
        }
    }

    /// Switches to the traffic of a phase, with this number of packets in a breath from the circuit and from the
    /// tunnel.
    pub(super) fn begin(&mut self, phase: Phase, per_breath: [usize; 2]) {
        self.pause();
        let Phase { wire, .. } = phase;
        self.per_breath = per_breath;
        let [from_circuit, from_tunnel] = per_breath;
        let tag = if wire == Wire::Line { &TAG[..] } else { &[] };
        self.here.supply(wire.circuit(), Stock::round(frames(phase, true, tag), from_circuit));
        let outside = frames(phase, false, &[]);
        self.sealed = wire.is_encrypted().then_some(wire);
        if self.sealed.is_some() {
            return self.there.supply(wire.site(), Stock::round(outside, 0));
        }
        let packets = of_tunnels(self.there.send_once(wire.site(), outside));
        self.here.supply(UPLINK, Stock::round(packets, from_tunnel));
    }

    /// Lets both engines pass between two breaths: a table that was replaced is kept, and does not grow again, until all
    /// engines of the process have.
    fn pass(&mut self) {
        for side in [&mut self.here, &mut self.there] {
            side.engine.handle_requests();
        }
    }

    /// Ends all traffic.
    pub(super) fn pause(&mut self) {
        self.sealed = None;
        self.per_breath = [0, 0];
        self.here.feeds.iter().for_each(|(_, stock)| *locked(stock) = Stock::default());
    }

    /// Makes what the next breaths need.
    pub(super) fn prepare(&mut self, breaths: usize) {
        self.pass();
        let Some(wire) = self.sealed else { return };
        let [_, from_tunnel] = self.per_breath;
        // Those of the turn before are no longer needed.
        self.here.supply(UPLINK, Stock::default());
        self.there.set_rate(wire.site(), BURST);
        let packets = of_tunnels(self.there.sent(wire.site(), breaths * from_tunnel));
        self.here.supply(UPLINK, Stock::once(packets, from_tunnel));
    }

    /// Takes breaths. Returns how many packets came from the ports.
    pub(super) fn breathe(&mut self, breaths: usize) -> usize {
        self.here.engine.breathe_times(breaths as u64);
        breaths * self.per_breath.iter().sum::<usize>()
    }

    /// The packets that a sink gets in some breaths.
    pub(super) fn record(&mut self, sink: &str, breaths: usize) -> Vec<Packet> {
        self.here.keep(sink, true);
        self.breathe(breaths);
        self.here.keep(sink, false)
    }

    /// Gives a source packets, of which it sends none yet.
    pub(super) fn supply(&self, source: &str, packets: Vec<Packet>) {
        self.here.supply(source, Stock::round(packets, 0));
    }

    /// Has a source send `per_breath` packets in each breath.
    pub(super) fn set_rate(&self, source: &str, per_breath: usize) {
        self.here.set_rate(source, per_breath);
    }

    /// Copies of the packets of a source.
    pub(super) fn copies(&self, source: &str) -> Vec<Packet> {
        let stock = self.here.feeds.iter().find(|(name, _)| *name == source).map(|(_, stock)| locked(stock));
        stock.iter().flat_map(|stock| stock.packets.iter()).map_while(Packet::copy).collect()
    }

    /// The counters of the end that is measured.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.here.engine.snapshot()
    }
}

/// One of both networks, with its sources and some of its sinks.
struct NetworkSide {
    engine: Engine,
    feeds: Vec<(&'static str, Arc<Mutex<Stock>>)>,
    taps: Vec<(&'static str, Arc<Mutex<Kept>>)>,
}

impl NetworkSide {
    /// A network whose sources `from-NAME` and sinks `to-NAME` have these names. The uplink has both.
    fn new(
        mut network: Network,
        sources: &[&'static str],
        sinks: &[&'static str],
        settings: Settings,
    ) -> Result<NetworkSide, String> {
        let (mut feeds, mut taps) = (Vec::new(), Vec::new());
        for &name in sources.iter().chain(&[UPLINK]) {
            let stock = Arc::default();
            put(&mut network, &format!("from-{name}"), "source", Feed(Arc::clone(&stock)));
            feeds.push((name, stock));
        }
        for &name in sinks.iter().chain(&[UPLINK]) {
            let kept = Arc::default();
            put(&mut network, &format!("to-{name}"), "sink", TrafficTap(Arc::clone(&kept)));
            taps.push((name, kept));
        }
        let engine = Engine::new(network, settings, None).map_err(|error| error.to_string())?;
        Ok(NetworkSide { engine, feeds, taps })
    }

    fn supply(&self, source: &str, stock: Stock) {
        if let Some((_, place)) = self.feeds.iter().find(|(name, _)| *name == source) {
            *locked(place) = stock;
        }
    }

    /// Has a sink keep what it gets, or not. Returns what it has kept.
    fn keep(&self, sink: &str, keeps: bool) -> Vec<Packet> {
        let mut found = Vec::new();
        for (_, kept) in self.taps.iter().filter(|(name, _)| *name == sink) {
            let mut kept = locked(kept);
            kept.keeps = keeps;
            found.append(&mut kept.packets);
        }
        found
    }

    /// Has a source send `per_breath` packets in each breath.
    fn set_rate(&self, source: &str, per_breath: usize) {
        if let Some((_, stock)) = self.feeds.iter().find(|(name, _)| *name == source) {
            locked(stock).per_breath = per_breath;
        }
    }

    /// Sends packets once, and returns what leaves the uplink.
    fn send_once(&mut self, source: &str, packets: Vec<Packet>) -> Vec<Packet> {
        let count = packets.len();
        self.supply(source, Stock::once(packets, BURST));
        let sent = self.sent(source, count);
        self.supply(source, Stock::default());
        sent
    }

    /// What leaves the uplink when a source sends `packets` packets, [`BURST`] in each breath, and then none.
    fn sent(&mut self, source: &str, packets: usize) -> Vec<Packet> {
        self.keep(UPLINK, true);
        self.engine.breathe_times(packets.div_ceil(BURST) as u64);
        self.set_rate(source, 0);
        self.engine.breathe_times(LAST_BREATHS as u64);
        self.keep(UPLINK, false)
    }
}

/// Replaces an app of a network, or adds it.
pub(super) fn put<A: App>(network: &mut Network, name: &str, kind: &str, app: A) {
    let app = AppSpec::new(name, kind, "", app);
    match network.apps.iter_mut().find(|other| other.name == name) {
        Some(other) => *other = app,
        None => network.apps.push(app),
    }
}

/// The packets of tunnels and their fragments: a router sends messages of its own, too.
fn of_tunnels(mut packets: Vec<Packet>) -> Vec<Packet> {
    const ESP: IpProtocol = IpProtocol(50);
    const L2TP: IpProtocol = IpProtocol(115);
    let protocols = [IpProtocol::GRE, L2TP, ESP, IpProtocol::IPV6_FRAGMENT].map(|protocol| protocol.0);
    packets.retain(|packet| {
        let bytes = packet.bytes();
        let number = match bytes.get(ETHERNET - 2..ETHERNET) {
            Some([0x08, 0x00]) => bytes.get(ETHERNET + 9),
            Some([0x86, 0xdd]) => bytes.get(ETHERNET + 6),
            _ => None,
        };
        number.is_some_and(|number| protocols.contains(number))
    });
    packets
}

/// The frames of a phase, from the office or from the site.
fn frames(phase: Phase, is_inside: bool, tag: &[u8]) -> Vec<Packet> {
    let Phase { size, stations, .. } = phase;
    let is_uniform = stations == 1 && matches!(size, Size::Fixed(_));
    let count = if is_uniform { FEW } else { MANY.max(stations) };
    let frame = |(number, length): (usize, usize)| {
        let station = |site: u8| [&[2, 0, 0, site][..], &((number % stations) as u16).to_be_bytes()].concat();
        let (office, site) = (station(1), station(2));
        let [dst, src] = if is_inside { [site, office] } else { [office, site] };
        let mut frame = [&dst, &src, tag, &[0x88, 0xb5]].concat();
        frame.resize(length + tag.len(), 0x5a);
        Packet::from_bytes(&frame)
    };
    size.lengths(count).into_iter().enumerate().map_while(frame).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bellows_config::{Overrides, load};
    use bellows_testkit::tree::root;

    use super::*;

    /// The apps of an end and their kinds.
    fn parts(network: &Network) -> BTreeSet<(String, String)> {
        let parts = network.apps.iter().filter(|app| app.name.starts_with("here/"));
        parts.map(|app| (app.name.clone(), app.kind.clone())).collect()
    }

    #[test]
    fn the_end_is_that_of_the_example_with_two_encrypted_transports() {
        let file = root().join("examples/l2vpn.toml");
        let example = load(&file, &bellows_apps::registry(), &Overrides::default()).unwrap().network;
        let [here, _] = networks().unwrap();
        let esp = ["bern", "zurich-v6"].map(|transport| (format!("here/esp-{transport}"), "esp".to_owned()));
        assert_eq!(parts(&here), parts(&example).into_iter().chain(esp).collect::<BTreeSet<_>>());
        let is_of_end = |end: &bellows_engine::LinkEnd| end.app.starts_with("here/");
        let links = here.links.iter().filter(|link| is_of_end(&link.from) || is_of_end(&link.to)).count();
        let kinds: BTreeSet<String> = parts(&here).into_iter().map(|(_, kind)| kind).collect();
        // As docs/reproductions.md says.
        assert_eq!([parts(&here).len(), kinds.len(), links], [42, 27, 108]);
    }
}
