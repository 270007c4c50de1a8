//! The transfer of counters from one configuration to the next.
//!
//! A reload lays out a new generation of counters. Apps and links that stay keep their counts. Removed ones keep a row
//! until more than [`MAX_REMOVED`] others have been removed after them. The traffic of removed links is moved to the
//! accounts of the apps at their ends, so that their books balance.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use crate::layout::{account, common, engine, link};
use crate::slab::{AppDescription, AppEntry, Directory, LinkDescription, LinkEntry, Removed, Slab};

/// The maximum number of removed apps and of removed links that a directory lists.
const MAX_REMOVED: usize = 128;

/// A removed app.
struct RemovedApp {
    /// Its position in the old directory.
    app: usize,
    /// The first cell of drops of its row in the new directory, if it has one.
    cell: Option<usize>,
}

/// An end of a link.
#[derive(Clone, Copy)]
enum End {
    Sender,
    Receiver,
}

/// A link that stays while another app of the same name takes over an end of it. Its traffic so far belongs to the
/// removed app, not to the new one.
struct NewEnd {
    /// The link, as a position in the old directory, and its cells there.
    link: usize,
    cell: usize,
    end: End,
    /// The account of the removed app, if it is listed.
    gone: Option<usize>,
    new: usize,
}

/// Consecutive cells of the old generation, and their place in the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellRange {
    from: usize,
    to: usize,
    count: usize,
}

/// A removed link.
struct RemovedLink {
    /// Its position in the old directory, and its cells there.
    link: usize,
    cell: usize,
    /// The accounts of the apps that sent and received.
    ends: [Option<usize>; 2],
}

/// The destination of each counter of a configuration when another one replaces it. Accounts and cells are those of the
/// new directory.
///
/// All cells are known before the engine swaps configurations, because its thread would have to fetch the directories
/// from another processor's cache.
#[derive(Default)]
pub struct Succession {
    /// Counters that continue.
    copies: Vec<CellRange>,
    /// Drops of continuing apps as `removed`, which the start of a replacing app may have counted already.
    removed_drops: Vec<usize>,
    /// Counters of removed apps and links with a row in the new directory.
    sums: Vec<CellRange>,
    /// Drops of removed apps and links without one.
    forgotten: Vec<Range<usize>>,
    /// Apps that the new configuration removes.
    removed_apps: Vec<RemovedApp>,
    removed_links: Vec<RemovedLink>,
    new_ends: Vec<NewEnd>,
}

/// The identity of a removed app: apps that come and go under one name are the same.
fn app_key(entry: &AppEntry) -> (&str, &str, &[String], &[String]) {
    (&entry.name, &entry.kind, &entry.drops, &entry.counters)
}

fn link_key(entry: &LinkEntry) -> (&str, &str) {
    (&entry.from, &entry.to)
}

/// The app of a link's end: names may contain dots, and the port follows the last one.
fn app_of(end: &str) -> &str {
    end.rsplit_once('.').map_or(end, |(app, _)| app)
}

/// Each item once. If there are more than the limit, the last ones.
fn last<'a, T, K: Hash + Eq>(items: impl Iterator<Item = &'a T>, key: impl Fn(&'a T) -> K) -> Vec<&'a T> {
    let mut known = HashSet::new();
    let mut items: Vec<&T> = items.filter(|item| known.insert(key(item))).collect();
    items.drain(..items.len().saturating_sub(MAX_REMOVED));
    items
}

/// The old items, by position, that no new one continues.
fn removed(old: usize, origins: &[Option<usize>]) -> Vec<usize> {
    let mut stays = vec![false; old];
    origins.iter().flatten().for_each(|&index| stays[index] = true);
    (0..old).filter(|&index| !stays[index]).collect()
}

impl Directory {
    /// Lays out the counters of a network that replaces another one: its workers, apps and links, the removed rows, and
    /// the counted events. For each app and link there is the position of the one in the `old` directory that it
    /// continues.
    pub fn lay_out_after<'a>(
        old: &Directory,
        workers: &[String],
        apps: impl Iterator<Item = (AppDescription<'a>, Option<usize>)>,
        links: impl Iterator<Item = (LinkDescription, Option<usize>)>,
        events: Vec<String>,
    ) -> (Directory, Succession) {
        let (apps, app_origins): (Vec<_>, Vec<_>) = apps.unzip();
        let (links, link_origins): (Vec<_>, Vec<_>) = links.unzip();
        let removed_apps = removed(old.apps.len(), &app_origins);
        let removed_links = removed(old.links.len(), &link_origins);
        let gone = Removed {
            apps: last(old.gone_apps.iter().chain(removed_apps.iter().map(|&app| &old.apps[app])), app_key),
            links: last(old.gone_links.iter().chain(removed_links.iter().map(|&link| &old.links[link])), link_key),
        };
        let new = Directory::lay_out(workers, &apps, &links, &gone, events);
        let mut succession = Succession::default();
        succession.continue_rows(old, &new, &app_origins, &link_origins);
        succession.find_successors(old, &new, (&app_origins, &link_origins), (&removed_apps, &removed_links));
        (new, succession)
    }
}

/// The cells of an app's account, and those of its drops and counters.
fn app_ranges(from: &AppEntry, to: (usize, usize), events: usize) -> [CellRange; 2] {
    let (account, cell) = to;
    [
        CellRange { from: from.account, to: account, count: account::cells(events) },
        CellRange { from: from.cell, to: cell, count: from.drops.len() + from.counters.len() },
    ]
}

fn link_range(from: usize, to: usize) -> CellRange {
    CellRange { from, to, count: link::COUNTERS.len() }
}

/// Joins ranges that are adjacent in both generations.
fn joined(mut ranges: Vec<CellRange>) -> Vec<CellRange> {
    ranges.sort_unstable_by_key(|range| range.from);
    let mut joined: Vec<CellRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.from + last.count == range.from && last.to + last.count == range.to => {
                last.count += range.count;
            }
            _ => joined.push(range),
        }
    }
    joined
}

impl Succession {
    /// Finds the cells that continue.
    fn continue_rows(
        &mut self,
        old: &Directory,
        new: &Directory,
        app_origins: &[Option<usize>],
        link_origins: &[Option<usize>],
    ) {
        let mut copies = Vec::new();
        for after in &new.workers {
            let Some(before) = old.workers.iter().find(|before| before.name == after.name) else { continue };
            copies.extend([
                CellRange { from: before.cell, to: after.cell, count: old.engine.len() },
                CellRange { from: before.histograms, to: after.histograms, count: Directory::HISTOGRAM_CELLS },
            ]);
        }
        for after in &new.crossings {
            let Some(origin) = link_origins[after.link] else { continue };
            let Some(before) = old.crossings.iter().find(|before| before.link == origin) else { continue };
            for (before, after) in before.sides.iter().zip(&after.sides) {
                copies.extend(app_ranges(before, (after.account, after.cell), old.events.len()));
            }
        }
        for (origin, after) in app_origins.iter().zip(&new.apps) {
            if let Some(before) = origin.map(|origin| &old.apps[origin]) {
                copies.extend(app_ranges(before, (after.account, after.cell), old.events.len()));
                self.removed_drops.push(after.cell + common::REMOVED);
            }
        }
        for (origin, after) in link_origins.iter().zip(&new.links) {
            copies.extend(origin.map(|origin| link_range(old.links[origin].cell, after.cell)));
        }
        self.copies = joined(copies);
    }

    /// Finds the destinations of the counters of removed rows. `origins` are the predecessors of the new apps and links,
    /// `removed` the positions of those that the new configuration removes.
    fn find_successors(
        &mut self,
        old: &Directory,
        new: &Directory,
        (app_origins, link_origins): (&[Option<usize>], &[Option<usize>]),
        (apps, links): (&[usize], &[usize]),
    ) {
        if apps.is_empty() && links.is_empty() && old.gone_apps.is_empty() && old.gone_links.is_empty() {
            return;
        }
        let app_rows = new.gone_apps.iter().map(|entry| (app_key(entry), (entry.account, entry.cell)));
        let app_rows: HashMap<_, _> = app_rows.collect();
        let link_rows: HashMap<_, _> = new.gone_links.iter().map(|entry| (link_key(entry), entry.cell)).collect();
        for entry in apps.iter().map(|&app| &old.apps[app]).chain(&old.gone_apps) {
            match app_rows.get(&app_key(entry)) {
                Some(&row) => self.sums.extend(app_ranges(entry, row, old.events.len())),
                None => {
                    let past = entry.account + account::PAST_TXDROP;
                    self.forgotten.extend([past..past + 1, entry.cell..entry.cell + entry.drops.len()]);
                }
            }
        }
        for entry in links.iter().map(|&link| &old.links[link]).chain(&old.gone_links) {
            match link_rows.get(&link_key(entry)) {
                Some(&cell) => self.sums.push(link_range(entry.cell, cell)),
                None => {
                    let removed = entry.cell + link::REMOVED;
                    self.forgotten.push(removed..removed + 1);
                }
            }
        }

        // The account of each app of the old configuration in the new one, without those of apps that only take over a
        // name.
        let mut accounts: HashMap<&str, usize> = HashMap::new();
        let mut new_accounts: HashMap<&str, usize> = HashMap::new();
        for entry in apps.iter().map(|&app| &old.apps[app]) {
            accounts.extend(app_rows.get(&app_key(entry)).map(|(account, _)| (&*entry.name, *account)));
        }
        for (origin, entry) in app_origins.iter().zip(&new.apps) {
            let accounts = if origin.is_some() { &mut accounts } else { &mut new_accounts };
            accounts.insert(&entry.name, entry.account);
        }
        let account = |end: &str| accounts.get(app_of(end)).copied();
        for &link in link_origins.iter().flatten() {
            let entry = &old.links[link];
            for (end, name) in [(End::Sender, &entry.from), (End::Receiver, &entry.to)] {
                if let Some(&new) = new_accounts.get(app_of(name)) {
                    self.new_ends.push(NewEnd { link, cell: entry.cell, end, gone: account(name), new });
                }
            }
        }
        let removed_app = |&app: &usize| {
            let row = app_rows.get(&app_key(&old.apps[app]));
            RemovedApp { app, cell: row.map(|&(_, cell)| cell) }
        };
        self.removed_apps = apps.iter().map(removed_app).collect();
        let removed_link = |&link: &usize| {
            let LinkEntry { from, to, cell, .. } = &old.links[link];
            RemovedLink { link, cell: *cell, ends: [account(from), account(to)] }
        };
        self.removed_links = links.iter().map(removed_link).collect();
    }

    /// The removed apps, as positions in the old directory, each with the first cell of drops of its row in the new
    /// one, if it has one.
    pub fn removed_apps(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        self.removed_apps.iter().map(|&RemovedApp { app, cell }| (app, cell))
    }

    /// The removed links, as positions in the old directory.
    pub fn removed_links(&self) -> impl Iterator<Item = usize> {
        self.removed_links.iter().map(|removed| removed.link)
    }

    /// Copies all counts to the new generation. `waiting` returns the number of packets and bytes that wait in a link
    /// of the old one; those that wait in removed links count as removed.
    pub fn carry_over(&self, from: &Slab, to: &Slab, waiting: impl Fn(usize) -> (u64, u64)) {
        let during_start = self.removed_drops.iter().map(|&cell| (cell, to.get(cell)));
        let during_start: Vec<(usize, u64)> = during_start.filter(|(_, count)| *count > 0).collect();
        for CellRange { from: first, to: target, count } in &self.copies {
            let (before, after) = (&from.cells()[*first..first + count], &to.cells()[*target..target + count]);
            before.iter().zip(after).for_each(|(before, after)| after.store(before.load(Relaxed), Relaxed));
        }
        during_start.iter().for_each(|&(cell, count)| to.add(cell, count));

        let forget = |drops: u64| to.add(engine::FORGOTTEN_DROPS, drops);
        // The traffic of removed links stays with the apps at their ends.
        for &RemovedLink { link, cell, ends: [sender, receiver] } in &self.removed_links {
            let waiting = waiting(link);
            let passed = LinkTraffic::of(from, cell, waiting);
            match sender {
                Some(sender) => passed.add_to_sender(to, sender),
                None => forget(passed.txdrop),
            }
            if let Some(receiver) = receiver {
                passed.add_to_receiver(to, receiver);
            }
            from.set(cell + link::WAITING, 0);
            from.set(cell + link::WAITING_BYTES, 0);
            from.set(cell + link::REMOVED, waiting.0);
        }
        for range in &self.sums {
            (0..range.count).for_each(|index| to.add(range.to + index, from.get(range.from + index)));
        }
        for cells in &self.forgotten {
            forget(cells.clone().fold(0, |sum, cell| sum.wrapping_add(from.get(cell))));
        }
        for &NewEnd { link, cell, end, gone, new } in &self.new_ends {
            let passed = LinkTraffic::of(from, cell, waiting(link));
            match (end, gone) {
                (End::Sender, Some(gone)) => passed.add_to_sender(to, gone),
                (End::Receiver, Some(gone)) => passed.add_to_receiver(to, gone),
                (End::Sender, None) => forget(passed.txdrop),
                (End::Receiver, None) => {}
            }
            match end {
                End::Sender => passed.negative().add_to_sender(to, new),
                End::Receiver => passed.negative().add_to_receiver(to, new),
            }
        }
    }
}

/// The traffic of a link. Sums wrap, so that it can be subtracted as well.
struct LinkTraffic {
    packets: u64,
    bytes: u64,
    txdrop: u64,
    received: u64,
    received_bytes: u64,
}

impl LinkTraffic {
    fn of(slab: &Slab, cell: usize, (waiting, waiting_bytes): (u64, u64)) -> LinkTraffic {
        let [packets, bytes, txdrop] = [link::PACKETS, link::BYTES, link::DROPS].map(|count| slab.get(cell + count));
        let (received, received_bytes) = (packets.wrapping_sub(waiting), bytes.wrapping_sub(waiting_bytes));
        LinkTraffic { packets, bytes, txdrop, received, received_bytes }
    }

    fn negative(&self) -> LinkTraffic {
        LinkTraffic {
            packets: self.packets.wrapping_neg(),
            bytes: self.bytes.wrapping_neg(),
            txdrop: self.txdrop.wrapping_neg(),
            received: self.received.wrapping_neg(),
            received_bytes: self.received_bytes.wrapping_neg(),
        }
    }

    fn add_to_sender(&self, slab: &Slab, app: usize) {
        slab.add(app + account::PAST_OUT, self.packets);
        slab.add(app + account::PAST_OUT_BYTES, self.bytes);
        slab.add(app + account::PAST_TXDROP, self.txdrop);
    }

    fn add_to_receiver(&self, slab: &Slab, app: usize) {
        slab.add(app + account::PAST_IN, self.received);
        slab.add(app + account::PAST_IN_BYTES, self.received_bytes);
    }
}
