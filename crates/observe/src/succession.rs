//! The transfer of counters from one configuration to the next.
//!
//! A reload lays out a new generation of counters. Apps and links that stay keep their counts. Removed ones keep a row
//! until more than [`MAX_REMOVED`] others have been removed after them. The traffic of removed links is moved to the
//! accounts of the apps at their ends, so that their books balance.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::layout::{account, common, engine, link};
use crate::slab::{AppDescription, AppEntry, Directory, LinkEntry, Removed, Slab};

/// The maximum number of removed apps and of removed links that a directory lists.
const MAX_REMOVED: usize = 128;

/// The destination of the counters of an app or link that is removed.
struct CounterSuccessor {
    /// Its position in the old directory: in the lists of active rows, or in those of removed ones.
    from: usize,
    /// The cells of its row in the new directory (those of an app's account, and the others), if it still has one.
    to: Option<(usize, usize)>,
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
    /// The link, as a position in the old directory.
    link: usize,
    end: End,
    /// The account of the removed app, if it is listed.
    gone: Option<usize>,
    new: usize,
}

/// The destination of each counter of a configuration when another one replaces it. Accounts and cells are those of the
/// new directory.
#[derive(Default)]
pub struct Succession {
    /// For each app and each link of the new directory, its predecessor in the old one.
    apps: Vec<Option<usize>>,
    links: Vec<Option<usize>>,
    /// Apps that the new configuration removes, and those removed before.
    removed_apps: Vec<CounterSuccessor>,
    gone_apps: Vec<CounterSuccessor>,
    /// The same of links.
    removed_links: Vec<CounterSuccessor>,
    gone_links: Vec<CounterSuccessor>,
    /// For each link that it removes, the accounts of the apps that sent and received.
    ends: Vec<[Option<usize>; 2]>,
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
    /// Lays out the counters of a network that replaces another one: its apps, its links, the removed rows, and the
    /// counted events. For each app and link there is the position of the one in the `old` directory that it continues.
    pub fn lay_out_after<'a>(
        old: &Directory,
        apps: impl Iterator<Item = (AppDescription<'a>, Option<usize>)>,
        links: impl Iterator<Item = ((String, String), Option<usize>)>,
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
        let new = Directory::lay_out(apps.into_iter(), links.into_iter(), &gone, events);
        let succession = Succession { apps: app_origins, links: link_origins, ..Succession::default() };
        let succession = succession.find_heirs(old, &new, &removed_apps, &removed_links);
        (new, succession)
    }
}

impl Succession {
    fn find_heirs(self, old: &Directory, new: &Directory, apps: &[usize], links: &[usize]) -> Succession {
        if apps.is_empty() && links.is_empty() && old.gone_apps.is_empty() && old.gone_links.is_empty() {
            return self;
        }
        let app_rows = new.gone_apps.iter().map(|entry| (app_key(entry), (entry.account, entry.cell)));
        let app_rows: HashMap<_, _> = app_rows.collect();
        let link_rows = new.gone_links.iter().map(|entry| (link_key(entry), (entry.cell, entry.cell)));
        let link_rows: HashMap<_, _> = link_rows.collect();
        let app =
            |(from, entry): (usize, &AppEntry)| CounterSuccessor { from, to: app_rows.get(&app_key(entry)).copied() };
        let link = |(from, entry): (usize, &LinkEntry)| CounterSuccessor {
            from,
            to: link_rows.get(&link_key(entry)).copied(),
        };

        // The account of each app of the old configuration in the new one, without those of apps that only take over a
        // name.
        let mut accounts: HashMap<&str, usize> = HashMap::new();
        let mut new_accounts: HashMap<&str, usize> = HashMap::new();
        for entry in apps.iter().map(|&app| &old.apps[app]) {
            accounts.extend(app_rows.get(&app_key(entry)).map(|(account, _)| (&*entry.name, *account)));
        }
        for (origin, entry) in self.apps.iter().zip(&new.apps) {
            let accounts = if origin.is_some() { &mut accounts } else { &mut new_accounts };
            accounts.insert(&entry.name, entry.account);
        }
        let account = |end: &str| accounts.get(app_of(end)).copied();
        let mut new_ends = Vec::new();
        for &link in self.links.iter().flatten() {
            let entry = &old.links[link];
            for (end, name) in [(End::Sender, &entry.from), (End::Receiver, &entry.to)] {
                if let Some(&new) = new_accounts.get(app_of(name)) {
                    new_ends.push(NewEnd { link, end, gone: account(name), new });
                }
            }
        }
        let ends = links.iter().map(|&link| [&old.links[link].from, &old.links[link].to].map(|end| account(end)));
        Succession {
            ends: ends.collect(),
            new_ends,
            removed_apps: apps.iter().map(|&index| app((index, &old.apps[index]))).collect(),
            gone_apps: old.gone_apps.iter().enumerate().map(app).collect(),
            removed_links: links.iter().map(|&index| link((index, &old.links[index]))).collect(),
            gone_links: old.gone_links.iter().enumerate().map(link).collect(),
            ..self
        }
    }

    /// The removed apps, as positions in the old directory, each with the first cell of drops of its row in the new
    /// one, if it has one.
    pub fn removed_apps(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        self.removed_apps.iter().map(|&CounterSuccessor { from, to }| (from, to.map(|(_, cell)| cell)))
    }

    /// The removed links, as positions in the old directory.
    pub fn removed_links(&self) -> impl Iterator<Item = usize> {
        self.removed_links.iter().map(|heir| heir.from)
    }

    /// Copies all counts to the new generation. `waiting` returns the number of packets and bytes that wait in a link
    /// of the old one; those that wait in removed links count as removed.
    pub fn carry_over(&self, from: &Slab, to: &Slab, waiting: impl Fn(usize) -> (u64, u64)) {
        let copy = |first: usize, target: usize, count: usize| {
            (0..count).for_each(|index| to.set(target + index, from.get(first + index)));
        };
        let add = |first: usize, target: usize, count: usize| {
            (0..count).for_each(|index| to.add(target + index, from.get(first + index)));
        };
        let forget = |drops: u64| to.add(engine::FORGOTTEN_DROPS, drops);
        let (old, new) = (&from.directory, &to.directory);
        let account_cells = account::cells(old.events.len());
        copy(0, 0, old.engine.len());
        copy(old.histograms, new.histograms, Directory::HISTOGRAM_CELLS);

        let apps = self.removed_apps.iter().map(|heir| (heir, &old.apps[heir.from]));
        for (heir, entry) in apps.chain(self.gone_apps.iter().map(|heir| (heir, &old.gone_apps[heir.from]))) {
            match heir.to {
                Some((account, cell)) => {
                    add(entry.account, account, account_cells);
                    add(entry.cell, cell, entry.drops.len() + entry.counters.len());
                }
                None => {
                    let past = from.get(entry.account + account::PAST_TXDROP);
                    let drops = (0..entry.drops.len()).map(|drop| from.get(entry.cell + drop));
                    forget(drops.fold(past, u64::wrapping_add));
                }
            }
        }
        for (origin, after) in self.apps.iter().zip(&new.apps) {
            let Some(before) = origin.map(|origin| &old.apps[origin]) else { continue };
            // Its drops during the start are there already.
            let removed = to.get(after.cell + common::REMOVED);
            copy(before.cell, after.cell, after.drops.len() + after.counters.len());
            to.add(after.cell + common::REMOVED, removed);
            copy(before.account, after.account, account_cells);
        }

        // The traffic of removed links stays with the apps at their ends.
        for (heir, [sender, receiver]) in self.removed_links.iter().zip(&self.ends) {
            let cell = old.links[heir.from].cell;
            let waiting = waiting(heir.from);
            let passed = LinkTraffic::of(from, cell, waiting);
            match sender {
                Some(sender) => passed.add_to_sender(to, *sender),
                None => forget(passed.txdrop),
            }
            if let Some(receiver) = receiver {
                passed.add_to_receiver(to, *receiver);
            }
            from.set(cell + link::WAITING, 0);
            from.set(cell + link::WAITING_BYTES, 0);
            from.set(cell + link::REMOVED, waiting.0);
        }
        let links = self.removed_links.iter().map(|heir| (heir, &old.links[heir.from]));
        for (heir, entry) in links.chain(self.gone_links.iter().map(|heir| (heir, &old.gone_links[heir.from]))) {
            match heir.to {
                Some((cell, _)) => add(entry.cell, cell, link::COUNTERS.len()),
                None => forget(from.get(entry.cell + link::REMOVED)),
            }
        }
        for &NewEnd { link, end, gone, new } in &self.new_ends {
            let passed = LinkTraffic::of(from, old.links[link].cell, waiting(link));
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
        for (origin, after) in self.links.iter().zip(&new.links) {
            if let Some(before) = origin.map(|origin| &old.links[origin]) {
                copy(before.cell, after.cell, link::COUNTERS.len());
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
