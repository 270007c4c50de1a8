//! The associations in use, and how a reload or a command changes them.

use std::collections::{BTreeMap, BTreeSet};

use bellows_esp::{Associations, Fingerprint, PairId};

use super::plan::{Plan, Spec, Way};
use super::spent::{self, User};

/// The time that an association is in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Age {
    /// Since when; nothing before the first tick.
    pub(super) since: Option<u64>,
    /// Whether the soft limit of time was told.
    pub(super) is_told: bool,
    /// Whether the hard limit of time is reached.
    pub(super) is_expired: bool,
}

/// The associations of a pair.
pub(super) struct Running {
    pub(super) id: PairId,
    /// As the configuration has them, inbound and outbound: what a reload compares.
    configured: [Spec; 2],
    /// As they are: a command may have replaced them.
    pub(super) current: [Spec; 2],
    pub(super) ages: [Age; 2],
}

/// The plans of a pair.
pub(super) struct Plans {
    pub(super) inbound: Plan,
    pub(super) outbound: Plan,
}

/// New keys of a pair.
#[derive(Default)]
pub(super) struct NewKeys {
    pub(super) inbound: Option<Plan>,
    pub(super) outbound: Option<Plan>,
}

/// The associations of an app, by the names of their pairs. Dropped, it notes how far their keys have been used.
pub(super) struct Keyring {
    user: User,
    pub(super) associations: Associations,
    pub(super) running: BTreeMap<String, Running>,
}

const INBOUND: usize = Way::Inbound as usize;
const OUTBOUND: usize = Way::Outbound as usize;

impl Keyring {
    pub(super) fn new(grace: u64) -> Keyring {
        Keyring { user: User::new(), associations: Associations::new(grace), running: BTreeMap::new() }
    }

    /// Checks whether these pairs can take the places of the present ones, and claims the keys that seal. Returns the
    /// claimed ones that were not in use here.
    ///
    /// # Errors
    /// With a sentence that names the pair, the reason and the way out.
    pub(super) fn prepare(&mut self, plans: &BTreeMap<String, Plans>) -> Result<Vec<Fingerprint>, String> {
        let mut kept = BTreeSet::new();
        let mut changed: [Vec<(&str, Spec)>; 2] = Default::default();
        for (name, plans) in plans {
            let running = self.running.get(name);
            for (way, spec) in [plans.inbound.spec, plans.outbound.spec].into_iter().enumerate() {
                match running.filter(|running| running.configured[way] == spec) {
                    Some(running) => drop(kept.insert(running.current[way].fingerprint)),
                    None => changed[way].push((name, spec)),
                }
            }
        }
        if let Some((name, _)) = changed.iter().flatten().find(|(_, spec)| kept.contains(&spec.fingerprint)) {
            return Err(format!("a key of the pair `{name}` is in use for another direction or pair; make another"));
        }
        for (name, spec) in &changed[INBOUND] {
            self.check_inbound(name, spec, |other| !plans.contains_key(other))?;
        }
        let keys: Vec<Fingerprint> = changed[OUTBOUND].iter().map(|(_, spec)| spec.fingerprint).collect();
        spent::claim(self.user, &keys).map_err(|taken| {
            let name =
                changed[OUTBOUND].iter().find(|(_, spec)| spec.fingerprint == taken).map_or("", |(name, _)| name);
            in_use(name)
        })
    }

    /// Checks whether an association can receive. `is_removed` says which pairs give way.
    fn check_inbound(&self, name: &str, spec: &Spec, is_removed: impl Fn(&str) -> bool) -> Result<(), String> {
        let (spi, Some(owner)) = (spec.spi, self.associations.owner(spec.spi)) else { return Ok(()) };
        if let Some(running) = self.running.get(name).filter(|running| running.id == owner) {
            let current = running.current[INBOUND];
            return match current.spi == spi && current.fingerprint == spec.fingerprint {
                true => Ok(()),
                false => {
                    Err(format!("the pair `{name}` receives with SPI {spi} and another key; new keys need a new SPI"))
                }
            };
        }
        let other = self.running.iter().find(|(_, running)| running.id == owner).map_or("", |(name, _)| name);
        if is_removed(other) {
            return Ok(());
        }
        Err(format!("the pair `{name}` cannot receive with SPI {spi}, because `{other}` does; choose another"))
    }

    /// Puts prepared pairs in the places of the present ones.
    pub(super) fn put(&mut self, plans: BTreeMap<String, Plans>) {
        // Before any key goes to another pair.
        let before = self.note_all();
        self.running.retain(|name, running| {
            let is_kept = plans.contains_key(name);
            if !is_kept {
                drop(self.associations.remove(running.id));
            }
            is_kept
        });
        for (name, plans) in plans {
            let specs = [plans.inbound.spec, plans.outbound.spec];
            let Some(running) = self.running.get_mut(&name) else {
                self.add(name, plans, specs);
                continue;
            };
            let differs = [INBOUND, OUTBOUND].map(|way| running.configured[way] != specs[way]);
            let keys = NewKeys {
                inbound: Some(plans.inbound).filter(|_| differs[INBOUND]),
                outbound: Some(plans.outbound).filter(|_| differs[OUTBOUND]),
            };
            running.configured = specs;
            self.replace(&name, keys);
        }
        self.release_unused(before);
    }

    /// Notes how far all keys that seal have been used, and returns them.
    fn note_all(&mut self) -> Vec<Fingerprint> {
        let Keyring { associations, running, .. } = self;
        let note = |running: &Running| {
            let key = running.current[OUTBOUND].fingerprint;
            spent::note(key, associations.outbound(running.id)?.last_sequence());
            Some(key)
        };
        running.values().filter_map(note).collect()
    }

    /// Notes that those of these keys are not in use with which no pair seals.
    fn release_unused(&self, keys: Vec<Fingerprint>) {
        let used: BTreeSet<Fingerprint> =
            self.running.values().map(|running| running.current[OUTBOUND].fingerprint).collect();
        keys.into_iter().filter(|key| !used.contains(key)).for_each(spent::release);
    }

    /// Adds a prepared pair.
    fn add(&mut self, name: String, plans: Plans, specs: [Spec; 2]) {
        let outbound = plans.outbound.outbound(spent::last(specs[OUTBOUND].fingerprint));
        let added = self.associations.add(plans.inbound.inbound(0), outbound);
        debug_assert!(added.is_ok(), "the SPI was checked");
        if let Ok(id) = added {
            self.running.insert(name, Running { id, configured: specs, current: specs, ages: <[Age; 2]>::default() });
        }
    }

    /// Replaces the keys of a pair, as a command asks.
    ///
    /// # Errors
    /// With a sentence that names the reason and the way out; then nothing has changed.
    pub(super) fn rekey(&mut self, name: &str, keys: NewKeys) -> Result<(), String> {
        if !self.running.contains_key(name) {
            let names: Vec<String> = self.running.keys().take(20).map(|name| format!("`{name}`")).collect();
            return Err(format!("there is no pair `{name}`; there are {}", names.join(", ")));
        }
        let others = self.running.iter().filter(|(other, _)| *other != name).flat_map(|(_, running)| running.current);
        let used: BTreeSet<Fingerprint> = others.map(|spec| spec.fingerprint).collect();
        let Running { current, .. } = &self.running[name];
        let after = [
            keys.inbound.as_ref().map_or(current[INBOUND], |plan| plan.spec).fingerprint,
            keys.outbound.as_ref().map_or(current[OUTBOUND], |plan| plan.spec).fingerprint,
        ];
        if after[0] == after[1] || after.iter().any(|key| used.contains(key)) {
            return Err("the key is in use for another direction or pair; make one for each".to_owned());
        }
        if let Some(plan) = &keys.inbound {
            self.check_inbound(name, &plan.spec, |_| false)?;
        }
        if let Some(plan) = &keys.outbound {
            spent::claim(self.user, &[plan.spec.fingerprint]).map_err(|_| in_use(name))?;
        }
        let before = self.note_all();
        self.replace(name, keys);
        self.release_unused(before);
        Ok(())
    }

    /// Replaces keys that were checked, claimed and noted.
    fn replace(&mut self, name: &str, NewKeys { inbound, outbound }: NewKeys) {
        let Keyring { associations, running, .. } = self;
        let Some(Running { id, current, ages, .. }) = running.get_mut(name) else { return };
        if let Some(plan) = inbound {
            let (old, spec) = (current[INBOUND], plan.spec);
            let is_resumed = old.fingerprint == spec.fingerprint && old.spi == spec.spi;
            let last = associations.current_inbound(*id).filter(|_| is_resumed).map_or(0, |it| it.last_sequence());
            (current[INBOUND], ages[INBOUND]) = (spec, Age::default());
            let replaced = associations.replace_inbound(*id, plan.inbound(last));
            debug_assert!(replaced.is_ok(), "the SPI was checked");
        }
        if let Some(plan) = outbound {
            (current[OUTBOUND], ages[OUTBOUND]) = (plan.spec, Age::default());
            let last = spent::last(plan.spec.fingerprint);
            drop(associations.replace_outbound(*id, plan.outbound(last)));
        }
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        self.note_all().into_iter().for_each(spent::release);
    }
}

/// Why a key cannot seal.
fn in_use(name: &str) -> String {
    format!("the key of `outbound` of the pair `{name}` is in use elsewhere in this process; make another")
}
