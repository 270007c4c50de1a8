//! What happens to keys, reported as events: who looks at a history later must find when a key was changed, and by
//! what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bellows_esp::{PairId, Spi};
use bellows_events::{KeyChanged, KeyExpired, KeyRetired, PairAdded, PairRemoved};
use schemars::JsonSchema;
use serde::Serialize;

use super::keyring::{Keyring, Running};
use super::plan::{Spec, Way};

/// The most events in a period: a reload may change thousands of keys. The others follow in the next periods.
const MAX_TOLD: usize = 16;

/// What brought a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum By {
    #[default]
    Start,
    Reload,
    Command,
    /// A command of an earlier run.
    Saved,
}

/// The keys of all pairs at a time.
pub(super) type Specs = BTreeMap<String, [Spec; 2]>;

/// The keys of all pairs as they are.
pub(super) fn specs(keyring: &Keyring) -> Specs {
    keyring.running.iter().map(|(name, running)| (name.clone(), running.current)).collect()
}

/// Whether two directions have different keys. Limits and windows may change without them.
fn is_new_key(one: &Spec, other: &Spec) -> bool {
    (one.spi, one.algorithm, one.fingerprint) != (other.spi, other.algorithm, other.fingerprint)
}

/// One thing that has happened to a pair.
#[derive(Debug)]
enum PairChange {
    Added { spis: [Spi; 2] },
    Removed,
    Replaced { way: Way, old: Spi, new: Spi, algorithm: &'static str, by: By },
    Retired { spi: Spi },
    Expired { way: Way, spi: Spi, limit: &'static str },
}

/// The changes of an app and its successors.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Whether pairs have begun: those of the start are none.
    has_begun: bool,
    /// Those that have not been reported yet.
    untold: VecDeque<(String, PairChange)>,
    /// Whether a key is gone with which the thread of the app has computed.
    has_lost_key: bool,
    /// Old keys that still receive, by pair.
    old: Vec<(String, PairId, Spi)>,
    /// Keys beyond a hard limit that were reported.
    expired: BTreeSet<(String, bool, Spi)>,
    /// What brought the keys, except those of the start.
    by: BTreeMap<String, [By; 2]>,
}

impl Changes {
    /// Notes what is different from before.
    pub(super) fn note(&mut self, by: By, before: &Specs, keyring: &Keyring) {
        if !std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        for (name, running) in &keyring.running {
            let now = running.current;
            let Some(then) = before.get(name) else {
                self.untold.push_back((name.clone(), PairChange::Added { spis: now.map(|spec| spec.spi) }));
                self.by.insert(name.clone(), [by; 2]);
                continue;
            };
            for way in [Way::Inbound, Way::Outbound] {
                let (old, new) = (&then[way as usize], &now[way as usize]);
                if !is_new_key(old, new) {
                    continue;
                }
                self.has_lost_key = true;
                self.by.entry(name.clone()).or_default()[way as usize] = by;
                let (old, new, algorithm) = (old.spi, new.spi, new.algorithm.name());
                self.untold.push_back((name.clone(), PairChange::Replaced { way, old, new, algorithm, by }));
                if way == Way::Inbound && old != new {
                    self.old.push((name.clone(), running.id, old));
                }
            }
        }
        for name in before.keys().filter(|name| !keyring.running.contains_key(*name)) {
            self.has_lost_key = true;
            self.untold.push_back((name.clone(), PairChange::Removed));
            self.by.remove(name);
        }
        self.expired.retain(|(name, is_outbound, spi)| {
            let running = keyring.running.get(name);
            running.is_some_and(|running| running.current[usize::from(*is_outbound)].spi == *spi)
        });
    }

    /// What brought the keys of a pair.
    pub(super) fn by(&self, name: &str) -> [By; 2] {
        self.by.get(name).copied().unwrap_or_default()
    }

    /// Whether a key is gone since the last call.
    pub(super) fn take_lost_key(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_key)
    }

    /// Notes old keys that are gone.
    pub(super) fn note_gone(&mut self, keyring: &Keyring) {
        let before = self.old.len();
        self.old.retain(|(name, id, spi)| {
            let is_there = keyring.associations.owner(*spi) == Some(*id);
            // Of a removed pair, only its removal is reported.
            if !is_there && keyring.running.get(name).is_some_and(|running| running.id == *id) {
                self.untold.push_back((name.clone(), PairChange::Retired { spi: *spi }));
            }
            is_there
        });
        self.has_lost_key |= self.old.len() < before;
    }

    /// Notes that a key has reached a hard limit, once.
    pub(super) fn note_expired(&mut self, name: &str, way: Way, running: &Running, limit: &'static str) {
        let spi = running.current[way as usize].spi;
        if self.expired.insert((name.to_owned(), way == Way::Outbound, spi)) {
            self.untold.push_back((name.to_owned(), PairChange::Expired { way, spi, limit }));
        }
    }

    /// Tells what has happened, as far as a period permits.
    pub(super) fn tell(&mut self, app: &str) {
        for (pair, change) in self.untold.drain(..self.untold.len().min(MAX_TOLD)) {
            tell(app, &pair, &change);
        }
    }
}

fn tell(app: &str, pair: &str, change: &PairChange) {
    let number = |spi: &Spi| u64::from(spi.get());
    match change {
        PairChange::Added { spis: [inbound, outbound] } => {
            let (inbound_spi, outbound_spi) = (number(inbound), number(outbound));
            PairAdded { app, pair, inbound_spi, outbound_spi }.log(format_args!(
                "{app}: the pair `{pair}` is new: it receives with SPI {inbound} and sends with {outbound}"
            ));
        }
        PairChange::Removed => {
            PairRemoved { app, pair }.log(format_args!("{app}: the pair `{pair}` and its keys are removed"));
        }
        PairChange::Replaced { way, old, new, algorithm, by } => {
            let direction = way.key();
            let by = match by {
                By::Start => "start",
                By::Command => "command",
                By::Reload => "reload",
                By::Saved => "saved",
            };
            let event = KeyChanged { app, pair, direction, spi: number(new), algorithm, old_spi: number(old), by };
            event.log(format_args!(
                "{app}: `{direction}` of the pair `{pair}` has a new key by {by}: SPI {new} after {old}, {algorithm}"
            ));
        }
        PairChange::Retired { spi } => {
            KeyRetired { app, pair, spi: number(spi) }.log(format_args!(
                "{app}: the old key of `inbound` of the pair `{pair}` (SPI {spi}) is gone, and packets with it are not \
                 received any more"
            ));
        }
        PairChange::Expired { way, spi, limit } => {
            let direction = way.key();
            let event = KeyExpired { app, pair, direction, spi: number(spi), limit };
            event.log(format_args!(
                "{app}: `{direction}` of the pair `{pair}` (SPI {spi}) is beyond its hard limit of {limit}, and its \
                 packets are dropped; replace the keys"
            ));
        }
    }
}
