//! The counters of one engine, in cells that its process writes and any process may read.
//!
//! A *generation* of counters belongs to one configuration. It lies in one block of 64-bit cells: a header, a
//! directory in JSON that names every cell, and the cells. With a [`RuntimeDir`] the block is a file on tmpfs, and a
//! reload replaces the file; otherwise it is private memory of the same layout.
//!
//! ```text
//!  cell 0        magic number, "BELLOWS" and the layout's version
//!       1        generation
//!       2        1 once a newer generation has replaced this one
//!       3, 4     where the directory's JSON starts (in cells) and its length in bytes
//!       5        where the counters start (in cells)
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_sys::shared::SharedCells;
use bellows_sys::text::{cut, is_hidden, one_line, sanitize};
use bellows_sys::{clock, remedy};
use bellows_wiring::{LinkEnd, LinkSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cells::Cells;
use crate::classes::CELLS;
use crate::counter::Counter;
use crate::layout::{Activity, account, common, doing, engine, histogram, link};
use crate::runtime_dir::{COUNTERS, RuntimeDir};

/// "BELLOWS" and the version of the layout.
const MAGIC: u64 = u64::from_be_bytes(*b"BELLOWS\x04");
const HEADER: usize = 8;
const SUPERSEDED: usize = 2;
/// The cell of the header with the position of the counters.
const FIRST: usize = 5;

/// A limit on the JSON above the size for any network; a reader rejects more.
const MAX_DIRECTORY: usize = 64 << 20;

/// The app that the engine is calling.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Call")]
pub struct CurrentCall {
    /// The app.
    pub app: String,
    /// The kind of call.
    pub activity: Activity,
}

impl CurrentCall {
    /// Decodes a number. [`doing::NEW_APP`] stands for the app that [`Slab::name_new_app`] has named.
    fn read(number: u64, cells: &impl CounterCells) -> Option<CurrentCall> {
        let activity = match number >> 32 {
            0 => Activity::Call,
            1 => Activity::Question,
            2 => Activity::Start,
            3 => Activity::Stop,
            _ => return None,
        };
        let app = usize::try_from(number & 0xffff_ffff).ok()?.checked_sub(1)?;
        let new_app = || (app == doing::NEW_APP).then(|| new_app::name(cells));
        let name = cells.directory().app(app).map(|entry| entry.name.clone());
        Some(CurrentCall { app: name.or_else(new_app)?, activity })
    }
}

/// The current activity of an engine or a worker, from its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Liveness {
    /// The worker's name, if there are several.
    pub worker: Option<String>,
    /// The app that the engine is calling, if any.
    pub doing: Option<CurrentCall>,
    /// Whether it sleeps.
    pub asleep: bool,
    /// The time when it was last seen outside of apps, in nanoseconds since the Unix epoch.
    pub alive: u64,
}

impl Liveness {
    /// The activity of the engine: that of the worker which was seen outside of apps the longest time ago, among those
    /// that are awake.
    pub fn of(cells: &impl CounterCells) -> Liveness {
        let workers = cells.directory().workers.iter().map(|worker| Liveness::of_worker(cells, worker));
        workers.min_by_key(|worker| (worker.asleep, worker.alive)).unwrap_or_default()
    }

    /// The activity of one worker.
    pub fn of_worker(cells: &impl CounterCells, worker: &WorkerEntry) -> Liveness {
        let number = cells.get(worker.cell + engine::DOING);
        Liveness {
            worker: (cells.directory().workers.len() > 1).then(|| worker.name.clone()),
            doing: CurrentCall::read(number, cells),
            asleep: number == doing::ASLEEP,
            alive: cells.get(worker.cell + engine::ALIVE),
        }
    }
}

/// The name of an app that a reload is about to add: its length in bytes, then its bytes.
mod new_app {
    use bellows_sys::text::one_line;

    /// The maximum length of this name in bytes; a longer one is cut.
    pub(super) const MAX_NAME: usize = 128;
    pub(super) const CELLS: usize = 1 + MAX_NAME / 8;

    /// The name that was written last.
    pub(super) fn name(cells: &impl super::CounterCells) -> String {
        let first = cells.directory().newcomer;
        let length = usize::try_from(cells.get(first)).unwrap_or(usize::MAX).min(MAX_NAME);
        let words = (0..length.div_ceil(8)).flat_map(|index| cells.get(first + 1 + index).to_ne_bytes());
        one_line(&String::from_utf8_lossy(&words.take(length).collect::<Vec<u8>>()))
    }
}

/// Counters that can be read: those of a [`Slab`], which change, or a copy of them, a [`Reading`](crate::Reading).
pub trait CounterCells {
    /// The directory, which names the cells.
    fn directory(&self) -> &Directory;

    /// The value of a cell; 0 if there is none.
    fn get(&self, cell: usize) -> u64;
}

/// A sum of counters, which may have any value if another process has written them.
pub(crate) fn sum(counters: impl Iterator<Item = u64>) -> u64 {
    counters.fold(0, u64::saturating_add)
}

/// The description of one of the engine's own counters.
pub fn counter_help(name: &str) -> Option<&'static str> {
    engine::COUNTERS.iter().find(|counter| counter.name == name).map(|counter| counter.help)
}

/// The description of a drop reason that every app has.
pub fn drop_help(reason: &str) -> Option<&'static str> {
    let full = &link::COUNTERS[link::DROPS];
    std::iter::once(full).chain(common::DROPS).find(|counter| counter.name == reason).map(|counter| counter.help)
}

/// An app's information in a directory.
#[derive(Clone, Copy, Debug)]
pub struct AppDescription<'a> {
    /// Its name in the network.
    pub name: &'a str,
    /// Its type's name in the catalogue.
    pub kind: &'a str,
    /// How it is called: `polling`, `slots` or `active`.
    pub state: &'static str,
    /// Its drop reasons.
    pub drops: &'a [Counter],
    /// Its other counters.
    pub counters: &'a [Counter],
    /// Whether packets end in it.
    pub ends: bool,
    /// Whether it only brings packets in.
    pub brings_in: bool,
    /// The position of its worker.
    pub worker: usize,
    /// The app with which it moves to another worker.
    pub moves_with: Option<&'a str>,
    /// Whether no file names it, because the loader has added it.
    pub is_made: bool,
}

/// A link in a directory.
#[derive(Clone, Debug)]
pub struct LinkDescription {
    /// `app.port` that sends.
    pub from: String,
    /// `app.port` that receives.
    pub to: String,
    /// The positions of the workers at its ends.
    pub workers: [usize; 2],
}

/// One worker in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerEntry {
    /// Its name in the network.
    pub name: String,
    /// The first cell of its counters.
    pub cell: usize,
    /// The first cell of its histograms.
    pub histograms: usize,
    /// Its memory node, if the machine has several and it has one of its own.
    #[serde(default)]
    pub node: Option<usize>,
}

impl WorkerEntry {
    /// The first cell of a histogram.
    pub fn histogram(&self, which: usize) -> usize {
        self.histograms + which * CELLS
    }
}

/// A link between two workers. Its own cells belong to the worker that sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CrossingEntry {
    /// The link, as a position among the links.
    pub link: usize,
    /// The engine's work for it on the worker that sends, and on the one that receives, listed as for apps.
    pub sides: [AppEntry; 2],
    /// The first cell of the counters of packets that have arrived: those of a link.
    pub arrived: usize,
}

/// One app in the directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppEntry {
    /// Its name in the network.
    pub name: String,
    /// Its type's name in the catalogue.
    pub kind: String,
    /// How it is called: `polling`, `slots` or `active`.
    pub state: String,
    /// Its first accounting cell.
    pub account: usize,
    /// Its first cell of drops.
    pub cell: usize,
    /// Names of its drop counters, from the first cell on.
    pub drops: Vec<String>,
    /// Drop counters of unintended losses, with their descriptions.
    pub losses: BTreeMap<String, String>,
    /// Whether packets end in the app.
    pub ends: bool,
    /// Whether it only brings packets in. A buffer that it frees without a reason is one that it did not need.
    pub brings_in: bool,
    /// Names of its other counters, in the cells that follow.
    pub counters: Vec<String>,
    /// The position of its worker.
    pub worker: usize,
    /// The app with which it moves to another worker.
    #[serde(default)]
    pub moves_with: Option<String>,
    /// Whether no file names it, because the loader has added it.
    #[serde(default)]
    pub is_made: bool,
}

/// A declared counter of a type of apps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterEntry {
    /// Its name.
    pub name: String,
    /// Its description, on one line.
    pub help: String,
    /// Its unit.
    pub unit: String,
    /// Whether it is a number that may also fall.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gauge: bool,
}

/// A type of apps, with the counters that its apps declare beside those that every app has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeEntry {
    /// Its name in the catalogue.
    pub kind: String,
    /// Its drop reasons.
    pub drops: Vec<CounterEntry>,
    /// Its other counters.
    pub counters: Vec<CounterEntry>,
}

impl CounterEntry {
    fn describe(counter: &Counter) -> CounterEntry {
        let Counter { name, help, unit, gauge, .. } = *counter;
        CounterEntry { name: name.to_owned(), help: help.to_owned(), unit: unit.to_owned(), gauge }
    }
}

impl TypeEntry {
    /// The type of this name, with its drop reasons and other counters.
    pub fn of(kind: &str, drops: &[Counter], counters: &[Counter]) -> TypeEntry {
        let describe = |counters: &[Counter]| counters.iter().map(CounterEntry::describe).collect();
        TypeEntry { kind: kind.to_owned(), drops: describe(drops), counters: describe(counters) }
    }
}

/// The types of these apps, each once.
fn types(apps: &[AppDescription<'_>]) -> Vec<TypeEntry> {
    let mut types: BTreeMap<&str, TypeEntry> = BTreeMap::new();
    for app in apps {
        types.entry(app.kind).or_insert_with(|| TypeEntry::of(app.kind, app.drops, app.counters));
    }
    types.into_values().collect()
}

/// One link in the directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkEntry {
    /// `app.port` that sends.
    pub from: String,
    /// `app.port` that receives.
    pub to: String,
    /// Its first cell.
    pub cell: usize,
    /// Names of its counters, from the first cell on.
    pub counters: Vec<String>,
}

/// The directory of a block of counters, and the process that owns it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Directory {
    /// Version of Bellows.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// The schedule that runs the network.
    pub schedule: String,
    /// The fallback reason: why that is not the requested schedule; empty if it is.
    pub fallback_reason: String,
    /// File that the network was read from; empty if none.
    pub source: String,
    /// Text of the network.
    pub config: String,
    /// Names of a worker's counters, from its cell on.
    pub engine: Vec<String>,
    /// The events that the sampled breaths count.
    pub events: Vec<String>,
    /// The apps, in the network's order.
    pub apps: Vec<AppEntry>,
    /// The types of the apps, by name.
    #[serde(default)]
    pub types: Vec<TypeEntry>,
    /// The links, in the network's order.
    pub links: Vec<LinkEntry>,
    /// The workers; there is at least one.
    pub workers: Vec<WorkerEntry>,
    /// The links between workers.
    pub crossings: Vec<CrossingEntry>,
    /// Apps that reloads have removed, oldest removal first.
    pub gone_apps: Vec<AppEntry>,
    /// Links that reloads have removed.
    pub gone_links: Vec<LinkEntry>,
    /// The first cell of the name of an app that a reload is about to add.
    #[serde(default)]
    pub newcomer: usize,
    /// Number of counter cells.
    pub cells: usize,
    /// Frequency of the clock in which times are counted, in Hz.
    pub ticks_per_second: u64,
}

impl Directory {
    /// The number of cells of all histograms.
    pub const HISTOGRAM_CELLS: usize = histogram::NAMES.len() * CELLS;

    /// Lays out the counters of a network: its workers, apps and links, the rows that reloads have removed, and the
    /// counted events. The cells of each worker are on cache lines of their own.
    pub(crate) fn lay_out(
        workers: &[String],
        apps: &[AppDescription<'_>],
        links: &[LinkDescription],
        removed: &Removed<'_>,
        events: Vec<String>,
    ) -> Directory {
        let mut cells = Claims { next: 0, events: events.len() };
        let mut directory = Directory {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            engine: names(engine::COUNTERS),
            apps: apps.iter().map(AppEntry::describe).collect(),
            types: types(apps),
            links: links.iter().map(LinkEntry::describe).collect(),
            crossings: crossings(links),
            gone_apps: removed.apps.iter().copied().cloned().collect(),
            gone_links: removed.links.iter().copied().cloned().collect(),
            events,
            ticks_per_second: clock::ticks_per_second(),
            ..Directory::default()
        };
        for (worker, name) in workers.iter().enumerate() {
            let cell = cells.claim(engine::COUNTERS.len());
            let histograms = cells.claim(Directory::HISTOGRAM_CELLS);
            directory.workers.push(WorkerEntry { name: name.clone(), cell, histograms, node: None });
            if worker == 0 {
                directory.newcomer = cells.claim(new_app::CELLS);
            }
            directory.apps.iter_mut().filter(|app| app.worker == worker).for_each(|app| cells.claim_app(app));
            let sent = directory.links.iter_mut().zip(links).filter(|(_, link)| link.workers[0] == worker);
            sent.for_each(|(entry, _)| entry.cell = cells.claim(link::COUNTERS.len()));
            for crossing in &mut directory.crossings {
                crossing.sides.iter_mut().filter(|side| side.worker == worker).for_each(|side| cells.claim_app(side));
                if crossing.sides[1].worker == worker {
                    crossing.arrived = cells.claim(link::COUNTERS.len());
                }
            }
            if worker == 0 {
                directory.gone_apps.iter_mut().for_each(|app| cells.claim_app(app));
                let gone_links = directory.gone_links.iter_mut();
                gone_links.for_each(|entry| entry.cell = cells.claim(link::COUNTERS.len()));
            }
            if worker + 1 < workers.len() {
                cells.next = cells.next.next_multiple_of(LINE_CELLS) + LINE_CELLS;
            }
        }
        directory.cells = cells.next;
        directory
    }

    /// An app by position. The two sides of each crossing follow the apps.
    pub fn app(&self, position: usize) -> Option<&AppEntry> {
        self.apps.get(position).or_else(|| {
            let side = position.checked_sub(self.apps.len())?;
            Some(&self.crossings.get(side / 2)?.sides[side % 2])
        })
    }

    /// Checks the texts of a directory that another process has written: names must be those that networks can have,
    /// and all others become harmless for a terminal. So whoever reads the directory may believe them.
    fn has_names(&mut self) -> bool {
        let Directory { version, schedule, fallback_reason, source, config, .. } = self;
        for text in [version, schedule, fallback_reason, source] {
            *text = shown(text);
        }
        // An editor may have ended lines with both characters.
        *config = sanitize(&config.replace("\r\n", "\n"));
        let apps = self.apps.iter_mut().chain(self.crossings.iter_mut().flat_map(|crossing| &mut crossing.sides));
        for app in apps.chain(&mut self.gone_apps) {
            app.losses.values_mut().for_each(|help| *help = shown(help));
        }
        for entry in self.types.iter_mut().flat_map(|entry| entry.drops.iter_mut().chain(&mut entry.counters)) {
            entry.help = shown(&entry.help);
        }
        let is_app = |app: &AppEntry| {
            let names = app.drops.iter().chain(&app.counters).chain(app.losses.keys());
            names.chain([&app.kind, &app.state]).all(|name| is_label(name))
        };
        let is_crossing = |name: &str| {
            let sides = CROSSING_SIDES.iter().filter_map(|side| name.strip_suffix(side)?.strip_suffix(", "));
            sides.into_iter().any(|link| link.parse::<LinkSpec>().is_ok())
        };
        let is_end = |end: &str| end.parse::<LinkEnd>().is_ok();
        let is_link = |link: &LinkEntry| {
            is_end(&link.from) && is_end(&link.to) && link.counters.iter().all(|name| is_label(name))
        };
        let is_counter =
            |counter: &CounterEntry| is_label(&counter.name) && (counter.unit.is_empty() || is_label(&counter.unit));
        let is_type =
            |entry: &TypeEntry| is_label(&entry.kind) && entry.drops.iter().chain(&entry.counters).all(is_counter);
        let gone = |app: &AppEntry| is_app(app) && (LinkEnd::is_name(&app.name) || is_crossing(&app.name));
        let sides =
            |crossing: &CrossingEntry| crossing.sides.iter().all(|side| is_app(side) && is_crossing(&side.name));
        self.apps.iter().all(|app| is_app(app) && LinkEnd::is_name(&app.name))
            && self.gone_apps.iter().all(gone)
            && self.crossings.iter().all(sides)
            && self.links.iter().chain(&self.gone_links).all(is_link)
            && self.workers.iter().all(|worker| LinkEnd::is_name(&worker.name))
            && self.types.iter().all(is_type)
            && self.engine.iter().chain(&self.events).all(|name| is_label(name))
    }

    /// Whether all counters that it names lie among its cells.
    fn is_consistent(&self) -> bool {
        let fits = |cell: usize, count: usize| cell.checked_add(count).is_some_and(|end| end <= self.cells);
        let sides = self.crossings.iter().flat_map(|crossing| &crossing.sides);
        !self.workers.is_empty()
            && self.workers.iter().all(|worker| {
                fits(worker.cell, self.engine.len().max(engine::COUNTERS.len()))
                    && fits(worker.histograms, Directory::HISTOGRAM_CELLS)
            })
            && fits(self.newcomer, new_app::CELLS)
            && self.ticks_per_second > 0
            && self
                .crossings
                .iter()
                .all(|crossing| fits(crossing.arrived, link::COUNTERS.len()) && crossing.link < self.links.len())
            && self.apps.iter().chain(&self.gone_apps).chain(sides).all(|app| {
                fits(app.cell, app.drops.len() + app.counters.len())
                    && fits(app.account, account::cells(self.events.len()))
            })
            && self.links.iter().chain(&self.gone_links).all(|entry| fits(entry.cell, link::COUNTERS.len()))
    }
}

/// The maximum length of a text without rules, in bytes; the rest of a longer one is cut off.
const MAX_TEXT: usize = 4 << 10;

/// Whether a counter, a type of apps or an event can have this name: those of programs with apps of their own have no
/// further rules.
fn is_label(name: &str) -> bool {
    (1..=LinkEnd::MAX_NAME).contains(&name.len()) && !name.contains(is_hidden)
}

/// A text without rules, on one line.
fn shown(text: &str) -> String {
    let mut text = one_line(text);
    cut(&mut text, MAX_TEXT);
    text
}

fn names(counters: &[Counter]) -> Vec<String> {
    counters.iter().map(|counter| counter.name.to_owned()).collect()
}

/// Cells of a cache line.
const LINE_CELLS: usize = 8;

/// Hands out consecutive cells.
struct Claims {
    next: usize,
    /// The number of counted events.
    events: usize,
}

impl Claims {
    fn claim(&mut self, count: usize) -> usize {
        let first = self.next;
        self.next += count;
        first
    }

    fn claim_app(&mut self, app: &mut AppEntry) {
        app.account = self.claim(account::cells(self.events));
        app.cell = self.claim(app.drops.len() + app.counters.len());
    }
}

impl AppEntry {
    /// An entry that has no cells yet.
    fn describe(app: &AppDescription<'_>) -> AppEntry {
        let losses = common::DROPS.iter().chain(app.drops).filter(|drop| !drop.asked);
        AppEntry {
            name: app.name.to_owned(),
            kind: app.kind.to_owned(),
            state: app.state.to_owned(),
            account: 0,
            cell: 0,
            drops: [names(common::DROPS), names(app.drops)].concat(),
            losses: losses.map(|drop| (drop.name.to_owned(), drop.help.to_owned())).collect(),
            ends: app.ends,
            brings_in: app.brings_in,
            counters: names(app.counters),
            worker: app.worker,
            moves_with: app.moves_with.map(str::to_owned),
            is_made: app.is_made,
        }
    }
}

impl LinkEntry {
    /// An entry that has no cells yet.
    fn describe(link: &LinkDescription) -> LinkEntry {
        LinkEntry { from: link.from.clone(), to: link.to.clone(), cell: 0, counters: names(link::COUNTERS) }
    }
}

/// The type that crossings have in listings, and what their names end in.
pub const CROSSING: &str = "crossing";
/// What the names of the two sides of a crossing end in.
pub const CROSSING_SIDES: [&str; 2] = ["leaving", "arriving"];

/// The entries of links whose ends have different workers. They have no cells yet.
fn crossings(links: &[LinkDescription]) -> Vec<CrossingEntry> {
    let side = |link: &LinkDescription, worker: usize, state: &'static str, side: &str| {
        let name = format!("{} -> {}, {side}", link.from, link.to);
        let (name, kind, drops, counters) = (&*name, CROSSING, &[][..], &[][..]);
        AppEntry::describe(&AppDescription {
            name,
            kind,
            state,
            drops,
            counters,
            ends: false,
            brings_in: false,
            worker,
            moves_with: None,
            is_made: false,
        })
    };
    let crossing = links.iter().enumerate().filter(|(_, link)| link.workers[0] != link.workers[1]);
    crossing
        .map(|(index, link)| CrossingEntry {
            link: index,
            sides: [
                side(link, link.workers[0], "active", CROSSING_SIDES[0]),
                side(link, link.workers[1], "slots", CROSSING_SIDES[1]),
            ],
            arrived: 0,
        })
        .collect()
}

/// The removed apps and links of a configuration, as described in earlier directories.
#[derive(Default)]
pub(crate) struct Removed<'a> {
    /// The apps.
    pub(crate) apps: Vec<&'a AppEntry>,
    /// The links.
    pub(crate) links: Vec<&'a LinkEntry>,
}

/// One generation of counters.
pub struct Slab {
    memory: Cells,
    /// The counters, inside the memory.
    counters: NonNull<[AtomicU64]>,
    /// The directory of the counters.
    pub directory: Directory,
}

// SAFETY: the pointer leads into the value's own memory, which any thread may read and write as atomics.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

/// The errors of opening a file of counters.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened or mapped.
    #[error("{0}: {1}; {help}", help = remedy(.1, "`bellows ps` lists the networks that can be read"))]
    Unreadable(PathBuf, io::Error),
    /// It is another kind of file, or of another version of Bellows.
    #[error("{0} is not a counter file of this version of bellows ({1})")]
    Foreign(PathBuf, &'static str),
}

impl Slab {
    /// Creates a generation with all counters at 0, in a file of the runtime directory if there is one.
    pub fn create(directory: Directory, generation: u64, runtime_dir: Option<&RuntimeDir>) -> io::Result<Slab> {
        let json = serde_json::to_vec(&directory).map_err(io::Error::other)?;
        // At the start of a cache line, so that workers do not share lines.
        let first = (HEADER + json.len().div_ceil(8)).next_multiple_of(LINE_CELLS);
        let count = directory.cells;
        let mut header = [0u64; HEADER];
        header[..6].copy_from_slice(&[MAGIC, generation, 0, HEADER as u64, json.len() as u64, first as u64]);
        let mut content = Vec::with_capacity((first + count) * 8);
        content.extend(header.iter().flat_map(|cell| cell.to_ne_bytes()));
        content.extend_from_slice(&json);
        content.resize((first + count) * 8, 0);
        let memory = match runtime_dir {
            Some(runtime_dir) => Cells::Shared(SharedCells::create(&runtime_dir.generation(generation), &content)?),
            None => Cells::copied(&content)?,
        };
        Slab::new(memory, first, directory).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    /// Maps another process's generation, or copies it if it is another user's. Reading it is safe for any content.
    /// (Truncating it while it is mapped is not: the reader gets SIGBUS. Engines never do that.)
    pub(crate) fn open(runtime_dir: &RuntimeDir) -> Result<Slab, ReadError> {
        match runtime_dir.cells(COUNTERS) {
            Ok(memory) => Slab::read_of(runtime_dir, memory),
            Err(error) => Err(ReadError::Unreadable(runtime_dir.counters(), error)),
        }
    }

    /// The generation in these cells of an engine's file. Another user's must be of the process that the folder names,
    /// so that it gives no other process for its own.
    pub(crate) fn read_of(runtime_dir: &RuntimeDir, memory: Cells) -> Result<Slab, ReadError> {
        let slab = Slab::read(memory, runtime_dir.counters())?;
        if runtime_dir.is_foreign() && runtime_dir.pid() != Some(slab.directory.pid) {
            return Err(ReadError::Foreign(runtime_dir.counters(), "it names another process than its folder"));
        }
        Ok(slab)
    }

    /// The generation in these cells of a file.
    fn read(memory: Cells, path: PathBuf) -> Result<Slab, ReadError> {
        let parse = |cells: &[AtomicU64]| {
            let header = |cell: usize| cells.get(cell).map_or(0, |cell| cell.load(Relaxed));
            if header(0) != MAGIC {
                return Err("its header is wrong");
            }
            let at = |cell: usize| usize::try_from(header(cell)).unwrap_or(usize::MAX);
            let (start, length, first) = (at(3), at(4), at(FIRST));
            if length > MAX_DIRECTORY {
                return Err("its directory is too long");
            }
            let json = cells.get(start..).and_then(|cells| cells.get(..length.div_ceil(8)));
            let json: Vec<u8> =
                json.ok_or("it is truncated")?.iter().flat_map(|cell| cell.load(Relaxed).to_ne_bytes()).collect();
            let mut directory: Directory =
                serde_json::from_slice(&json[..length.min(json.len())]).map_err(|_| "its directory cannot be read")?;
            if !directory.is_consistent() {
                return Err("its directory names counters that it does not have");
            }
            if !directory.has_names() {
                return Err("its directory has names that no network can have");
            }
            Ok((first, directory))
        };
        let parsed = parse(memory.cells());
        let slab = parsed.and_then(|(first, directory)| Slab::new(memory, first, directory).ok_or("it is truncated"));
        match slab {
            Ok(slab) => Ok(slab),
            Err(why) => Err(ReadError::Foreign(path, why)),
        }
    }

    /// The counters in another copy of the file, if it has the same directory and no newer generation.
    pub(crate) fn counters_in(&self, copy: &Cells) -> Option<Vec<u64>> {
        let all = |cells: &[AtomicU64]| cells.iter().map(|cell| cell.load(Relaxed)).collect::<Vec<u64>>();
        let (own, copy) = (self.memory.cells(), copy.cells());
        let first = usize::try_from(own.get(FIRST)?.load(Relaxed)).ok()?;
        let is_same = all(own.get(..first)?) == all(copy.get(..first)?);
        let counters = copy.get(first..)?.get(..self.directory.cells)?;
        is_same.then(|| all(counters))
    }

    /// `None` if the memory does not hold as many counters from cell `first` on as the directory says.
    fn new(memory: Cells, first: usize, directory: Directory) -> Option<Slab> {
        let counters = NonNull::from(memory.cells().get(first..)?.get(..directory.cells)?);
        Some(Slab { memory, counters, directory })
    }

    /// The counters. Each has one writer, the thread of its worker.
    #[inline(always)]
    pub fn cells(&self) -> &[AtomicU64] {
        // SAFETY: new() made the pointer from a slice of the memory that this value owns and that does not move with
        // it: a vector's, which never grows, or a mapping.
        unsafe { self.counters.as_ref() }
    }

    /// Writes the name of an app that has no row here because a reload is about to add it. A reader may see parts of
    /// both names while another one is written.
    pub fn name_new_app(&self, name: &str) {
        let name = &name.as_bytes()[..name.floor_char_boundary(new_app::MAX_NAME)];
        let first = self.directory.newcomer;
        self.set(first, name.len() as u64);
        for (index, bytes) in name.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.set(first + 1 + index, u64::from_ne_bytes(word));
        }
    }

    /// Tells readers that there is a newer generation.
    pub fn supersede(&self) {
        self.memory.cells()[SUPERSEDED].store(1, Relaxed);
    }

    /// Whether there is a newer generation.
    pub(crate) fn is_superseded(&self) -> bool {
        self.memory.cells()[SUPERSEDED].load(Relaxed) != 0
    }

    /// The value of a cell; 0 if there is none.
    #[inline(always)]
    pub fn get(&self, cell: usize) -> u64 {
        self.cells().get(cell).map_or(0, |cell| cell.load(Relaxed))
    }

    /// Sets a cell. Only the thread of its worker may do this, or the one that has stopped all workers.
    ///
    /// # Panics
    /// If there is no such cell, here as in [`add`](Slab::add).
    #[inline(always)]
    pub fn set(&self, cell: usize, value: u64) {
        self.cells()[cell].store(value, Relaxed);
    }

    /// Adds to a cell. Only the thread of its worker may do this, or the one that has stopped all workers.
    #[inline(always)]
    pub fn add(&self, cell: usize, count: u64) {
        let cell = &self.cells()[cell];
        cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
    }
}

impl CounterCells for Slab {
    fn directory(&self) -> &Directory {
        &self.directory
    }

    fn get(&self, cell: usize) -> u64 {
        Slab::get(self, cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_testkit::scratch;
    use proptest::prelude::*;

    /// A file of these cells, opened as counters.
    fn opened(cells: &[u64]) -> Result<Slab, ReadError> {
        let bytes: Vec<u8> = cells.iter().flat_map(|cell| cell.to_ne_bytes()).collect();
        let folder = scratch();
        let path = scratch::write(&folder, "counters", bytes);
        Slab::read(Cells::Shared(SharedCells::open(&path).unwrap()), path)
    }

    /// The cells of a block that holds this directory.
    fn block(directory: &Directory) -> Vec<u64> {
        let mut json = serde_json::to_vec(directory).unwrap();
        let length = json.len();
        json.resize(length.next_multiple_of(8), b' ');
        let words = json.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut cells = vec![MAGIC, 0, 0, HEADER as u64, length as u64, (HEADER + length.div_ceil(8)) as u64, 0, 0];
        cells.extend(words);
        cells.extend(std::iter::repeat_n(u64::MAX, directory.cells.min(10_000)));
        cells
    }

    fn directory() -> Directory {
        let link =
            |from: &str, to: &str, workers| LinkDescription { from: from.to_owned(), to: to.to_owned(), workers };
        let app = |name, state| AppDescription {
            name,
            kind: "k",
            state,
            drops: &[],
            counters: &[],
            ends: false,
            brings_in: false,
            worker: usize::from(name == "b"),
            moves_with: None,
            is_made: false,
        };
        Directory::lay_out(
            &["main".to_owned(), "other".to_owned()],
            &[app("a", "polling"), app("b", "slots")],
            &[link("a.o", "b.i", [0, 1]), link("a.p", "b.j", [0, 1]), link("a.q", "a.i", [0, 0])],
            &Removed::default(),
            vec!["page_faults".to_owned()],
        )
    }

    #[test]
    fn counters_outside_the_cells_are_rejected() {
        assert!(opened(&block(&directory())).is_ok());
        let spoilt: [fn(&mut Directory); 10] = [
            |directory| directory.apps[1].cell = usize::MAX,
            |directory| directory.links[0].cell = directory.cells - 1,
            |directory| directory.engine.resize(2_000, String::new()),
            |directory| directory.cells = usize::MAX,
            |directory| directory.events.resize(5_000, String::new()),
            |directory| directory.workers[1].histograms = directory.cells,
            |directory| directory.workers.clear(),
            |directory| directory.crossings[0].arrived = directory.cells,
            |directory| directory.crossings[1].link = 3,
            |directory| directory.newcomer = directory.cells - 1,
        ];
        for spoil in spoilt {
            let mut directory = directory();
            spoil(&mut directory);
            let error = opened(&block(&directory)).err().unwrap();
            assert!(matches!(error, ReadError::Foreign(..)), "{error}");
        }
    }

    /// Another user may have written the file.
    #[test]
    fn names_that_no_network_can_have_are_rejected() {
        const HOSTILE: [&str; 12] =
            ["", " ", "a b", "$(id)", "`id`", "a;id", "a\u{1b}[2J", "a\nb", "a\u{202e}b", "a\u{3164}", "'", "a\\b"];
        let spoilt: [fn(&mut Directory, String); 9] = [
            |directory, text| directory.apps[0].name = text,
            |directory, text| directory.workers[0].name = text,
            |directory, text| directory.links[0].from = text,
            |directory, text| directory.links[1].to = format!("{text}.port"),
            |directory, text| directory.links[1].to = format!("a.{text}"),
            |directory, text| directory.crossings[0].sides[1].name = format!("{text}.a -> b.c, arriving"),
            |directory, text| directory.crossings[0].sides[1].name = format!("a.a -> b.c, {text}"),
            |directory, text| directory.gone_apps = vec![AppEntry { name: text, ..directory.apps[0].clone() }],
            |directory, text| {
                directory.gone_links = vec![LinkEntry { from: text, ..directory.links[0].clone() }];
            },
        ];
        for (spoil, text) in spoilt.iter().flat_map(|spoil| HOSTILE.map(|text| (spoil, text))) {
            let mut directory = directory();
            spoil(&mut directory, text.to_owned());
            let error = opened(&block(&directory)).err().unwrap_or_else(|| panic!("{text:?}")).to_string();
            assert!(error.contains("names that no network can have"), "{error}");
        }
        // What programs with apps of their own name as they like is shown as one line.
        let spoilt: [fn(&mut Directory, String); 8] = [
            |directory, text| directory.apps[0].kind = text,
            |directory, text| directory.apps[0].state = text,
            |directory, text| directory.apps[0].drops[0] = text,
            |directory, text| directory.crossings[0].sides[0].kind = text,
            |directory, text| directory.apps[0].losses = [(text, String::new())].into(),
            |directory, text| directory.types[0].kind = text,
            |directory, text| directory.engine[0] = text,
            |directory, text| directory.events[0] = text,
        ];
        for (spoil, text) in
            spoilt.iter().flat_map(|spoil| ["", "a\u{1b}[2J", "a\nb", "a\u{202e}b"].map(|text| (spoil, text)))
        {
            let mut directory = directory();
            spoil(&mut directory, text.to_owned());
            assert!(opened(&block(&directory)).is_err(), "{text:?}");
        }
        let long = "x".repeat(1_000_000);
        let mut directory = directory();
        let Directory { version, schedule, fallback_reason, source, config, .. } = &mut directory;
        for text in [version, schedule, fallback_reason, source] {
            *text = format!("a\u{1b}[2J\n{long}");
        }
        *config = "a = 1\r\n\u{1b}]0;b\u{7}\n\tc".to_owned();
        directory.apps[0].losses.values_mut().for_each(|help| *help = "a\nb".to_owned());
        directory.types[0].drops =
            vec![CounterEntry { name: "a".into(), help: "a\rb".into(), ..CounterEntry::default() }];
        let found = opened(&block(&directory)).unwrap().directory;
        for text in [&found.version, &found.schedule, &found.fallback_reason, &found.source] {
            assert!(text.starts_with("a\u{fffd}[2J\u{fffd}xxx") && text.len() <= MAX_TEXT, "{}", text.len());
        }
        assert_eq!(found.config, "a = 1\n\u{fffd}]0;b\u{fffd}\n\tc");
        assert!(found.apps[0].losses.values().all(|help| help == "a\u{fffd}b"));
        assert_eq!(found.types[0].drops[0].help, "a\u{fffd}b");
    }

    #[test]
    fn a_copy_with_the_same_directory_need_not_be_parsed_again() {
        let cells = block(&directory());
        let slab = opened(&cells).unwrap();
        let counters = |change: fn(&mut Vec<u64>)| {
            let mut cells = cells.clone();
            change(&mut cells);
            let bytes: Vec<u8> = cells.iter().flat_map(|cell| cell.to_ne_bytes()).collect();
            slab.counters_in(&Cells::copied(&bytes).unwrap())
        };
        let found = counters(|cells| *cells.last_mut().unwrap() = 7).unwrap();
        assert_eq!((found.len(), found.last()), (slab.directory.cells, Some(&7)));
        let others: [fn(&mut Vec<u64>); 4] = [
            |cells| cells[1] += 1,
            |cells| cells[SUPERSEDED] = 1,
            |cells| cells[HEADER + 3] ^= 1,
            |cells| cells.truncate(cells.len() - 1),
        ];
        assert!(others.into_iter().all(|change| counters(change).is_none()));
    }

    #[test]
    fn types_are_described_once() {
        const COUNTERS: &[Counter] = &[Counter::new("held", "packets held").gauge()];
        let app = |name, kind| AppDescription {
            name,
            kind,
            state: "active",
            drops: &[],
            counters: COUNTERS,
            ends: false,
            brings_in: false,
            worker: 0,
            moves_with: None,
            is_made: false,
        };
        let apps = [app("a", "one"), app("b", "one"), app("c", "another")];
        let directory = Directory::lay_out(&["main".to_owned()], &apps, &[], &Removed::default(), Vec::new());
        let kinds: Vec<&str> = directory.types.iter().map(|entry| entry.kind.as_str()).collect();
        assert_eq!(kinds, ["another", "one"]);
        assert!(directory.types[1].counters[0].gauge && directory.types[1].counters[0].help == "packets held");
    }

    #[test]
    fn workers_share_no_cache_line_and_no_cell() {
        let directory = directory();
        let mut cells = vec![None; directory.cells];
        let mut claim = |worker: usize, first: usize, count: usize| {
            cells[first..first + count].iter_mut().for_each(|cell| assert_eq!(cell.replace(worker), None));
        };
        for (worker, entry) in directory.workers.iter().enumerate() {
            claim(worker, entry.cell, engine::COUNTERS.len());
            claim(worker, entry.histograms, Directory::HISTOGRAM_CELLS);
        }
        let sides = directory.crossings.iter().flat_map(|crossing| &crossing.sides);
        for app in directory.apps.iter().chain(sides) {
            claim(app.worker, app.account, account::cells(1));
            claim(app.worker, app.cell, app.drops.len() + app.counters.len());
        }
        directory.links.iter().for_each(|link| claim(0, link.cell, link::COUNTERS.len()));
        directory.crossings.iter().for_each(|crossing| claim(1, crossing.arrived, link::COUNTERS.len()));
        claim(0, directory.newcomer, new_app::CELLS);
        for line in cells.chunks(LINE_CELLS) {
            let mut owners = line.iter().flatten();
            let first = owners.next();
            assert!(owners.all(|owner| Some(owner) == first), "{line:?}");
        }
        let sides: Vec<&str> = (2..6).map(|app| &*directory.app(app).unwrap().name).collect();
        let expected = ["a.o -> b.i, leaving", "a.o -> b.i, arriving", "a.p -> b.j, leaving", "a.p -> b.j, arriving"];
        assert_eq!(sides, expected);
        assert!(directory.app(6).is_none());
    }

    #[test]
    fn an_app_without_a_row_is_named() {
        let slab = Slab::create(directory(), 0, None).unwrap();
        let number = doing::with(Activity::Start, doing::NEW_APP);
        for name in ["next", "", "twelve bytes", &"ä".repeat(100)] {
            slab.name_new_app(name);
            let doing = CurrentCall::read(number, &slab).unwrap();
            assert_eq!((doing.app.as_str(), doing.activity), (&name[..name.len().min(128)], Activity::Start));
        }
        assert_eq!(CurrentCall::read(number + 1, &slab), None);
        // Whatever the cells hold, the result is text.
        slab.set(slab.directory.newcomer, u64::MAX);
        slab.set(slab.directory.newcomer + 1, u64::MAX);
        assert!(CurrentCall::read(number, &slab).unwrap().app.contains('\u{fffd}'));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever cells are overwritten or cut off, a file of counters is either read or rejected.
        #[test]
        fn a_damaged_file_is_read_or_refused(
            damage in proptest::collection::vec((0usize..80, prop_oneof![any::<u64>(), 0u64..100]), 0..6),
            length in 1usize..200,
        ) {
            let mut cells = block(&directory());
            let count = cells.len();
            for (cell, value) in damage {
                cells[cell % count] = value;
            }
            cells.truncate(length.max(count.saturating_sub(100)));
            if let Ok(slab) = opened(&cells) {
                let _ = crate::Snapshot::of(&slab).dropped();
            }
        }
    }
}
