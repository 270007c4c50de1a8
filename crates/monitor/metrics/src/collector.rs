//! Reads all networks, and writes what they count.

use std::collections::HashMap;
use std::time::Instant;

use bellows_inspect::foreign::Allowance;
use bellows_inspect::health::{Health, NetworkHealth};
use bellows_observe::layout::account;
use bellows_observe::{CounterCells, Directory, Histogram, Liveness, RuntimeDir, engine_count, sampled_events};

use crate::declared::{
    ALL_DROPS, APP, ASLEEP, BUILD, CALLS, CLOCK, DEGRADED, DROPS, Declared, EVENTS, HEALTH, LEFT_OUT, NETWORK, SCRAPE,
    UP,
};
use crate::exposition::{Exposition, label};
use crate::family::MetricFamily;
use crate::format::Format;
use crate::health::MachineHealth;
use crate::network::{AppLabels, Counted, Network, TXDROP, Watched, cut_text, joined};

/// The program that reads the counters.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Its version.
    pub version: &'static str,
    /// The revision of its sources.
    pub revision: &'static str,
    /// The features that it was built with.
    pub features: &'static str,
}

impl Build {
    fn labels(&self) -> String {
        let Build { version, revision, features } = self;
        label("version", version) + &label("revision", revision) + &label("features", features)
    }
}

/// Reads the counters of all networks of this machine that this user can see, again and again.
///
/// Counters are read through read-only maps of the networks' files, or from copies if they are another user's.
pub struct Collector {
    build: Build,
    is_port: Box<dyn Fn(&str) -> bool>,
    declared: Declared,
    watched: HashMap<String, Watched>,
    /// The length of the last exposition.
    length: usize,
}

impl Collector {
    /// A collector that has read nothing yet. `is_port` says whether a type of apps connects a network to the outside.
    pub fn new(build: Build, is_port: impl Fn(&str) -> bool + 'static) -> Collector {
        Collector { build, is_port: Box::new(is_port), declared: Declared::new(), watched: HashMap::new(), length: 0 }
    }

    /// Reads the networks that are meant now, by name, and returns how many were left out because their user has too
    /// much. What is known of those that have ended is forgotten.
    fn networks(&mut self, is_meant: impl Fn(&RuntimeDir) -> bool) -> (Vec<Network>, usize) {
        let mut known = std::mem::take(&mut self.watched);
        let mut allowances: HashMap<String, Allowance> = HashMap::new();
        let (mut networks, mut left_out) = (Vec::new(), 0);
        for runtime_dir in RuntimeDir::all() {
            let name = runtime_dir.name();
            let watched = known.remove(&name);
            if !is_meant(&runtime_dir) {
                self.watched.extend(watched.map(|watched| (name, watched)));
                continue;
            }
            let new = Allowance::new(runtime_dir.is_foreign());
            let allowance = allowances.entry(runtime_dir.user()).or_insert(new);
            if allowance.left() == 0 {
                left_out += 1;
                continue;
            }
            let (network, watched) = Network::read(runtime_dir, watched, &*self.is_port);
            allowance.spend(network.counted.as_ref().map_or(0, Counted::bytes));
            self.watched.extend(watched.map(|watched| (name, watched)));
            networks.push(network);
        }
        (networks, left_out)
    }

    /// The health of the networks now: of all, or of those that have this name.
    pub fn health(&mut self, name: Option<&str>) -> MachineHealth {
        let (networks, _) = self.networks(|runtime_dir| name.is_none_or(|name| runtime_dir.has_name(name)));
        let health = |network: Network| {
            let Network { name, user, checkup, .. } = network;
            NetworkHealth { name, user, checkup }
        };
        MachineHealth::of(networks.into_iter().map(health).collect())
    }

    /// All metrics of all networks now, in a format.
    pub fn scrape(&mut self, format: Format) -> Vec<u8> {
        let start = Instant::now();
        let (networks, mut left_out) = self.networks(|_| true);
        // Lengths change little.
        let mut exposition = Exposition::new(format, self.length + self.length / 8 + 4_096);
        exposition.family(&BUILD).sample("", &self.build.labels(), 1);
        self.write_networks(&mut exposition, &networks);
        let counted: Vec<(&str, &Counted)> =
            networks.iter().filter_map(|network| Some((network.label.as_str(), network.counted.as_ref()?))).collect();
        left_out += counted.iter().map(|(_, counted)| counted.labels.left_out).sum::<usize>();
        left_out += self.write_counters(&mut exposition, &counted);
        exposition.family(&LEFT_OUT).sample("", "", left_out as i128);
        let nanos = start.elapsed().as_nanos().try_into().unwrap_or(i128::MAX);
        exposition.family(&MetricFamily { scale: crate::family::Scale::Nanoseconds, ..SCRAPE }).sample("", "", nanos);
        let text = exposition.end();
        self.length = text.len();
        text
    }

    /// What is known of networks without counters, too.
    fn write_networks(&self, exposition: &mut Exposition, networks: &[Network]) {
        let mut up = exposition.family(&UP);
        for network in networks {
            up.sample(&network.label, "", (network.is_alive && network.counted.is_some()).into());
        }
        let mut health = exposition.family(&HEALTH);
        for network in networks {
            for state in Health::ALL {
                health.sample(&network.label, &label("state", state.name()), (network.checkup.health == state).into());
            }
        }
        let mut info = exposition.family(&NETWORK);
        for network in networks {
            let pid = network.pid.map(|pid| pid.to_string()).unwrap_or_default();
            let mut further = label("user", &network.user) + &label("pid", &pid);
            if let Some(counted) = &network.counted {
                let Directory { version, schedule, source, .. } = counted.reading.directory();
                for (name, value) in [("version", version), ("schedule", schedule), ("source", source)] {
                    further += &label(name, cut_text(value));
                }
            }
            info.sample(&network.label, &further, 1);
        }
    }

    /// Returns how many counters were left out because they are declared otherwise than others of the same name.
    fn write_counters(&self, exposition: &mut Exposition, counted: &[(&str, &Counted)]) -> usize {
        let Declared { process, pool, workers, apps, ports, links, samples, times } = &self.declared;
        for (which, family) in process.iter().chain(pool) {
            let mut lines = exposition.family(family);
            for (label, counted) in counted {
                // An older version does not have the newest counters.
                if *which < counted.reading.directory().engine.len() {
                    lines.sample(label, "", engine_count(&*counted.reading, *which).into());
                }
            }
        }
        let mut clock = exposition.family(&CLOCK);
        for (label, counted) in counted {
            clock.sample(label, "", counted.reading.directory().ticks_per_second.into());
        }
        let mut drops = exposition.family(&ALL_DROPS);
        for (label, counted) in counted {
            drops.sample(label, "", counted.all_drops().into());
        }
        for (which, family) in workers {
            let mut lines = exposition.family(family);
            for_each_worker(counted, |counted, position, labels| {
                let cell = counted.reading.directory().workers[position].cell + which;
                lines.sample(labels, "", counted.reading.get(cell).into());
            });
        }
        let mut asleep = exposition.family(&ASLEEP);
        for_each_worker(counted, |counted, position, labels| {
            let worker = &counted.reading.directory().workers[position];
            asleep.sample(labels, "", Liveness::of_worker(&*counted.reading, worker).asleep.into());
        });
        for (which, [histogram, longest]) in times.iter().enumerate() {
            let read = |counted: &Counted, position: usize| {
                let workers = &counted.reading.directory().workers;
                Histogram::of_workers(&*counted.reading, which, &workers[position..=position])
            };
            let mut lines = exposition.family(histogram);
            for_each_worker(counted, |counted, position, labels| lines.histogram(labels, &read(counted, position)));
            let mut lines = exposition.family(longest);
            for_each_worker(counted, |counted, position, labels| {
                lines.sample(labels, "", read(counted, position).maximum.into());
            });
        }
        for (value, family) in ports {
            let mut lines = exposition.family(family);
            for (_, counted) in counted {
                for (app, labels) in &counted.labels.ports {
                    lines.sample(labels, "", value(&counted.totals.apps[counted.labels.apps[*app].position]));
                }
            }
        }
        for (value, family) in links {
            let mut lines = exposition.family(family);
            for (_, counted) in counted {
                for (position, labels) in &counted.labels.links {
                    lines.sample(labels, "", value(&counted.totals.links[*position]));
                }
            }
        }
        let mut info = exposition.family(&APP);
        for_each_app(counted, |_, app| info.sample(&app.labels, &app.worker, 1));
        for (value, family) in apps {
            let mut lines = exposition.family(family);
            for_each_app(counted, |counted, app| {
                lines.sample(&app.labels, "", value(&counted.totals.apps[app.position]));
            });
        }
        let mut degraded = exposition.family(&DEGRADED);
        for_each_app(counted, |counted, app| {
            degraded.sample(&app.labels, "", counted.degraded.contains(&counted.entry(app).name).into());
        });
        let mut drops = exposition.family(&DROPS);
        let full = label("reason", TXDROP);
        for_each_app(counted, |counted, app| {
            for (cell, reason) in &app.drops {
                drops.sample(&app.labels, reason, counted.reading.get(*cell).into());
            }
            drops.sample(&app.labels, &full, counted.totals.apps[app.position].txdrop.into());
        });
        write_calls(exposition, samples, counted);
        let (own, left_out) = joined(counted.iter().map(|(_, counted)| &*counted.labels));
        for families in own.values() {
            let mut lines = exposition.family(&families[0].1.family);
            for (network, own) in families {
                let (_, counted) = counted[*network];
                for (app, cell) in &own.cells {
                    lines.sample(&counted.labels.apps[*app].labels, "", counted.reading.get(*cell).into());
                }
            }
        }
        left_out
    }
}

/// The calls of all apps, and the record of those that were timed. An entry that is never called has none.
fn write_calls(exposition: &mut Exposition, samples: &[MetricFamily<'_>], counted: &[(&str, &Counted)]) {
    let entries = account::NAMES.map(|name| label("entry", name));
    let mut calls = exposition.family(&CALLS);
    for_each_entry(counted, |counted, app, entry| {
        let cell = counted.entry(app).account + account::CALLS + entry;
        calls.sample(&app.labels, &entries[entry], counted.reading.get(cell).into());
    });
    for (offset, family) in samples.iter().enumerate() {
        let mut lines = exposition.family(family);
        for_each_entry(counted, |counted, app, entry| {
            let events = counted.reading.directory().events.len();
            let cell = counted.entry(app).account + account::samples(entry, events) + offset;
            lines.sample(&app.labels, &entries[entry], counted.reading.get(cell).into());
        });
    }
    let mut lines = exposition.family(&EVENTS);
    for_each_entry(counted, |counted, app, entry| {
        let counts: Vec<Option<u64>> = sampled_events(&*counted.reading, counted.entry(app), entry).collect();
        for (position, event) in &counted.labels.events {
            if let Some(count) = counts[*position] {
                lines.sample(&app.labels, &format!("{}{event}", entries[entry]), count.into());
            }
        }
    });
}

/// The entries at which apps were called.
fn for_each_entry(counted: &[(&str, &Counted)], mut write: impl FnMut(&Counted, &AppLabels, usize)) {
    for_each_app(counted, |counted, app| {
        let calls = counted.entry(app).account + account::CALLS;
        let called = (0..account::ENTRIES).filter(|entry| counted.reading.get(calls + entry) > 0);
        called.for_each(|entry| write(counted, app, entry));
    });
}

fn for_each_worker(counted: &[(&str, &Counted)], mut write: impl FnMut(&Counted, usize, &str)) {
    for (_, counted) in counted {
        for (position, labels) in &counted.labels.workers {
            write(counted, *position, labels);
        }
    }
}

fn for_each_app(counted: &[(&str, &Counted)], mut write: impl FnMut(&Counted, &AppLabels)) {
    for (_, counted) in counted {
        for app in &counted.labels.apps {
            write(counted, app);
        }
    }
}
