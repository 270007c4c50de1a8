//! A measured network, and its packet counts.

use std::collections::BTreeMap;

use bellows_basic::{sink, source};
use bellows_engine::{AppSpec, Engine, LinkEnd, LinkSpec, Network, Settings, TrialResult};
use bellows_observe::AppCounts;
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use super::wiring::Wiring;
use crate::networks::configured;
use crate::supply::{Footprint, Frame, Handle, SupplyConfig, pair_of};

/// The links that count the packets of a measurement: those into the measured apps.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(Vec<LinkSpec>);

impl Links {
    /// The links into an app, or out of an app without inputs.
    pub(super) fn into(network: &Network, app: &str) -> Links {
        let of = |side: fn(&LinkSpec) -> &LinkEnd| -> Vec<LinkSpec> {
            network.links.iter().filter(|link| side(link).app == app).cloned().collect()
        };
        let into = of(|link| &link.to);
        Links(if into.is_empty() { of(|link| &link.from) } else { into })
    }

    /// The link to one input.
    pub(super) fn from(network: &Network, to: &LinkEnd) -> Links {
        Links(network.links.iter().filter(|link| &link.to == to).cloned().collect())
    }
}

/// How long prepared packets may stand still before a round is given up, in nanoseconds.
const STUCK_TIMEOUT: u64 = 100_000_000;

/// How many calls a trial of look-ahead has, unless it takes longer than this, in nanoseconds.
const TRIAL_CALLS: usize = 1_000;
const MAX_TRIAL_NS: u64 = 500_000_000;

/// What the sources of a network send, and how.
pub(super) struct Supplies {
    pub(super) frames: Vec<Frame>,
    pub(super) config: SupplyConfig,
}

/// A measured network.
pub(super) struct Testbed {
    pub(super) engine: Engine,
    burst: usize,
    handles: Vec<Handle>,
    /// The links by which packets enter the measured apps, and those by which they leave, as positions in a snapshot.
    coming: Vec<usize>,
    leaving: Vec<usize>,
    /// The names of the measured apps, and of their sources.
    pub(super) measured: Vec<String>,
    sources: Vec<String>,
}

/// What the live accounting has recorded for an app.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// The app.
    pub app: String,
    /// Clocks of its calls in sampled breaths.
    pub clocks: u64,
    /// Packets that it took from its inputs, or sent if it has no inputs, in all calls.
    pub packets: u64,
    /// The number of calls that moved these packets.
    pub calls: u64,
}

/// What the sampled breaths of a network have recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The account of each app.
    pub accounts: Vec<Account>,
    /// Packets that entered the measured apps in those breaths.
    pub packets: u64,
}

impl Recording {
    /// The difference to an earlier recording of the same network.
    pub(super) fn since(mut self, earlier: &Recording) -> Recording {
        for (account, earlier) in self.accounts.iter_mut().zip(&earlier.accounts) {
            account.clocks -= earlier.clocks;
            account.packets -= earlier.packets;
            account.calls -= earlier.calls;
        }
        Recording { packets: self.packets - earlier.packets, ..self }
    }
}

/// The counters of a network at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    /// Packets that entered the measured apps, and packets that left them.
    pub(super) entered: u64,
    pub(super) left: u64,
    /// Packets that wait in the links into the measured apps.
    pub(super) waiting: u64,
    /// Packets that the measured apps dropped, by reason.
    pub(super) drops: BTreeMap<String, u64>,
    /// The name of an app that panicked.
    pub(super) panicked: Option<String>,
    pub(super) recording: Recording,
    /// The number of sampled breaths.
    pub(super) sampled: u64,
}

impl Totals {
    /// The number of packets that the measured apps dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }
}

impl Testbed {
    /// Apps in a row between sources and sinks. Without apps there are `pairs` pairs of source and sink. The new names
    /// differ from `taken`.
    pub(super) fn of_row(
        apps: Vec<AppSpec>,
        wiring: &Wiring,
        pairs: usize,
        taken: &[String],
        supplies: Supplies,
        settings: Settings,
    ) -> Result<Testbed, String> {
        let measured: Vec<String> = apps.iter().map(|app| app.name.clone()).collect();
        let (sources, handles) = Default::default();
        let mut ends = Endpoints { taken: taken.to_vec(), supplies, burst: settings.burst, sources, handles };
        let mut network = Network { apps, links: wiring.links.clone(), ..Network::default() };
        let mut links = Vec::new();
        if measured.is_empty() {
            for _ in 0..pairs.max(1) {
                let from = ends.source(&mut network)?;
                let to = ends.sink(&mut network);
                links.push(LinkSpec { from, to });
            }
        }
        for to in &wiring.fed {
            let from = ends.source(&mut network)?;
            links.push(LinkSpec { from, to: to.clone() });
        }
        network.links.extend(links.iter().cloned());
        for to in &wiring.quiet {
            let from = ends.quiet(&mut network);
            network.links.push(LinkSpec { from, to: to.clone() });
        }
        for from in &wiring.drained {
            let to = ends.sink(&mut network);
            network.links.push(LinkSpec { from: from.clone(), to });
        }
        if let Some(own) = &wiring.own_source {
            ends.sources.push(own.clone());
            links = Links::into(&network, own).0;
        }
        Testbed::new(network, links, measured, ends.sources, ends.handles, settings)
    }

    /// A whole network, of which one app is measured.
    pub(super) fn in_place(network: Network, app: &str, links: Links, settings: Settings) -> Result<Testbed, String> {
        let measured = network.apps.iter().filter(|spec| spec.name == app).map(|spec| spec.name.clone()).collect();
        Testbed::new(network, links.0, measured, vec![app.to_owned()], Vec::new(), settings)
    }

    fn new(
        network: Network,
        coming: Vec<LinkSpec>,
        measured: Vec<String>,
        sources: Vec<String>,
        handles: Vec<Handle>,
        settings: Settings,
    ) -> Result<Testbed, String> {
        let burst = settings.burst;
        let at = |link: &LinkSpec| network.links.iter().position(|other| other == link);
        let coming = coming.iter().filter_map(at).collect();
        let ends = |link: &LinkSpec| measured.contains(&link.from.app) && !measured.contains(&link.to.app);
        let leaving = (0..network.links.len()).filter(|&index| ends(&network.links[index])).collect();
        let engine = Engine::new(network, settings, None).map_err(|error| error.to_string())?;
        Ok(Testbed { engine, burst, handles, coming, leaving, measured, sources })
    }

    /// Whether packets are prepared for each round, so that a round has a fixed number of them.
    pub(super) fn has_rounds(&self) -> bool {
        self.handles.iter().any(|handle| handle.footprint().is_some())
    }

    /// The memory footprint of a round's packets.
    pub(super) fn footprint(&self) -> Option<Footprint> {
        self.handles.iter().find_map(Handle::footprint)
    }

    /// Offered packets that were dropped because the backlog was full.
    pub(super) fn missed(&self) -> u64 {
        self.handles.iter().map(Handle::missed).sum()
    }

    /// Packets of this round that have not been sent.
    pub(super) fn left(&self) -> u64 {
        self.handles.iter().map(|handle| handle.left() as u64).sum()
    }

    /// Prepares a round's packets, and takes one breath to bring the engine's own data back into the caches. Returns
    /// the number of packets left for the timed part.
    pub(super) fn ready(&mut self) -> Result<u64, String> {
        self.rest()?;
        self.engine.breathe();
        Ok(self.left())
    }

    fn rest(&mut self) -> Result<(), String> {
        // A table of the apps that was replaced is kept, and does not grow again, until all engines have passed.
        self.engine.handle_requests();
        self.handles.iter_mut().try_for_each(Handle::prepare).map_err(|error| error.to_string())
    }

    /// Breathes until the prepared packets have been sent. Returns the number of breaths in which a packet moved.
    pub(super) fn send_ready(&mut self) -> u64 {
        let most = self.handles.iter().map(Handle::left).max().unwrap_or(0);
        let mut moved = self.engine.breathe_times(most.div_ceil(self.burst) as u64);
        let mut end = 0;
        // Needed only if packets are offered at a rate, or not accepted.
        while self.left() > 0 {
            let left = self.left();
            moved += self.engine.breathe_times(1);
            let now = clock::now();
            if self.left() < left || end == 0 {
                end = now + STUCK_TIMEOUT;
            } else if now > end {
                break;
            }
        }
        moved
    }

    /// Passes the packets of about `breaths` full breaths, untimed.
    pub(super) fn pass(&mut self, breaths: u64) -> Result<(), String> {
        if !self.has_rounds() {
            // Packets offered while this network did not breathe must not arrive now.
            self.rest()?;
            self.engine.breathe_times(breaths);
            return Ok(());
        }
        let mut wanted = breaths as i64 * self.burst as i64;
        while wanted > 0 {
            let ready = self.ready()?;
            self.send_ready();
            if self.left() == ready {
                break;
            }
            wanted -= (ready - self.left()) as i64;
        }
        Ok(())
    }

    /// What a trial of look-ahead finds about the measured apps, if their packets come from a chosen level of the memory
    /// hierarchy. `breaths` are those of a round.
    pub(super) fn try_look_ahead(&mut self, breaths: u64) -> Result<Vec<TrialResult>, String> {
        if !self.has_rounds() {
            return Ok(Vec::new());
        }
        let trial = self.engine.control().try_look_ahead().map_err(|error| error.to_string())?;
        self.engine.handle_requests();
        let end = clock::now() + MAX_TRIAL_NS;
        while trial.calls() < TRIAL_CALLS && clock::now() < end {
            self.pass(breaths)?;
        }
        let mut results = trial.results();
        drop(trial);
        self.engine.handle_requests();
        results.retain(|result| self.measured.contains(&result.app));
        Ok(results)
    }

    /// Reads the counters.
    pub(super) fn totals(&self) -> Totals {
        let snapshot = self.engine.snapshot();
        let sum = |links: &[usize]| links.iter().map(|&link| snapshot.links[link].packets).sum();
        let mut drops = BTreeMap::new();
        for app in snapshot.apps.iter().filter(|app| self.measured.contains(&app.name)) {
            for (reason, &count) in app.drops.iter().filter(|(_, count)| **count > 0) {
                *drops.entry(reason.clone()).or_default() += count;
            }
        }
        let failed = |app: &&AppCounts| app.drops.get("app_failed").is_some_and(|&count| count > 0);
        let sources = snapshot.apps.iter().filter(|app| self.sources.contains(&app.name));
        let recorded = sources.map(|app| recorded(app, "packets")).sum();
        Totals {
            entered: sum(&self.coming),
            left: sum(&self.leaving),
            waiting: self.coming.iter().map(|&link| snapshot.links[link].waiting).sum(),
            drops,
            panicked: snapshot.apps.iter().find(failed).map(|app| app.name.clone()),
            recording: Recording { accounts: snapshot.apps.iter().map(account).collect(), packets: recorded },
            sampled: snapshot.engine("sampled_breaths"),
        }
    }
}

/// Sums up an app's recorded value over `pull`, `push` and `tick`.
fn recorded(app: &AppCounts, what: &str) -> u64 {
    let at = |entry: &str| app.account.get(&format!("{entry}_{what}")).copied().unwrap_or(0);
    ["pull", "push", "tick"].map(at).iter().sum()
}

fn account(app: &AppCounts) -> Account {
    let calls = |entry: &str| app.calls.get(entry).copied().unwrap_or(0);
    let (packets, calls) = match app.in_packets {
        0 => (app.out_packets, calls("pull") + calls("tick")),
        taken => (taken, calls("push")),
    };
    Account { app: app.name.clone(), clocks: recorded(app, "clocks"), packets, calls }
}

/// Creates the sources and sinks of a measurement under unused names.
struct Endpoints {
    taken: Vec<String>,
    supplies: Supplies,
    burst: usize,
    sources: Vec<String>,
    handles: Vec<Handle>,
}

impl Endpoints {
    fn name(&mut self, base: &str) -> String {
        let numbered = (1..).map(|number| if number == 1 { base.to_owned() } else { format!("{base}-{number}") });
        let name = numbered.into_iter().find(|name| !self.taken.contains(name)).unwrap_or_default();
        self.taken.push(name.clone());
        name
    }

    fn source(&mut self, network: &mut Network) -> Result<LinkEnd, String> {
        let name = self.name("source");
        let Supplies { frames, config } = &self.supplies;
        let (supply, handle) = pair_of(frames.clone(), config, self.burst).map_err(|error| error.to_string())?;
        network.apps.push(AppSpec::new(&name, "source", "", supply));
        self.handles.push(handle);
        self.sources.push(name.clone());
        Ok(LinkEnd { app: name, port: "output".to_owned() })
    }

    fn quiet(&mut self, network: &mut Network) -> LinkEnd {
        let name = self.name("quiet");
        let source: source::Source = configured(source::Config { count: Some(0), ..source::Config::default() });
        network.apps.push(AppSpec::new(&name, "source", "", source));
        LinkEnd { app: name, port: "output".to_owned() }
    }

    fn sink(&mut self, network: &mut Network) -> LinkEnd {
        let name = self.name("sink");
        network.apps.push(AppSpec::new(&name, "sink", "", sink::Sink));
        LinkEnd { app: name, port: "input".to_owned() }
    }
}
