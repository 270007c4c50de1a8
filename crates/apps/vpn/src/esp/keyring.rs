//! The associations in use, and how a reload or a command changes them.

use std::collections::{BTreeMap, BTreeSet};

use bellows_esp::{Associations, Fingerprint, PairId, Spi};

use super::plan::{AssociationPlan, Spec, Way};
use super::records::Slot;
use super::register::{self, Claim, User};

/// The time that the key of an association is in use.
pub(super) struct Age {
    /// Where it is kept.
    slot: Slot,
    way: Way,
    /// How long it was before this association, in nanoseconds.
    before: u64,
    /// Since when it is; nothing before the first tick.
    since: Option<u64>,
    /// Whether the soft limit of time was reported.
    pub(super) is_told: bool,
    /// Whether the hard limit of time is reached.
    pub(super) is_expired: bool,
}

impl Age {
    fn new(slot: Slot, way: Way) -> Age {
        let before = slot.used(way).nanoseconds;
        Age { slot, way, before, since: None, is_told: false, is_expired: false }
    }

    /// The age in nanoseconds.
    pub(super) fn at(&self, now: u64) -> u64 {
        self.before.saturating_add(self.since.map_or(0, |since| now.saturating_sub(since)))
    }

    /// Notes the time, and returns the age in nanoseconds.
    pub(super) fn pass(&mut self, now: u64) -> u64 {
        self.since.get_or_insert(now);
        let age = self.at(now);
        self.slot.set_nanoseconds(self.way, age);
        age
    }
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
    pub(super) inbound: AssociationPlan,
    pub(super) outbound: AssociationPlan,
}

/// New keys of a pair.
#[derive(Default)]
pub(super) struct NewKeys {
    pub(super) inbound: Option<AssociationPlan>,
    pub(super) outbound: Option<AssociationPlan>,
    /// The configured key that they replace, if they were saved: another one is younger than they.
    pub(super) instead_of: Option<Fingerprint>,
}

/// The associations of an app, by the names of their pairs. Dropped, it has their keys not in use any more.
pub(super) struct Keyring {
    user: User,
    pub(super) associations: Associations,
    pub(super) running: BTreeMap<String, Running>,
    /// The keys that are claimed, also those of associations that were replaced and still receive.
    claims: BTreeSet<Claim>,
    /// The key that was last given to each SPI.
    receiving: BTreeMap<Spi, Fingerprint>,
}

const INBOUND: usize = Way::Inbound as usize;
const OUTBOUND: usize = Way::Outbound as usize;

impl Keyring {
    pub(super) fn new(grace: u64) -> Keyring {
        Keyring {
            user: User::new(),
            associations: Associations::new(grace),
            running: BTreeMap::new(),
            claims: BTreeSet::new(),
            receiving: BTreeMap::new(),
        }
    }

    /// Checks whether these pairs can take the places of the present ones, and claims their keys. Returns the claimed
    /// ones that were not in use here.
    ///
    /// # Errors
    /// With a sentence that names the pair, the reason and the way out.
    pub(super) fn prepare(&mut self, plans: &BTreeMap<String, Plans>) -> Result<Vec<Claim>, String> {
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
        let named = [Way::Inbound, Way::Outbound]
            .into_iter()
            .flat_map(|way| changed[way as usize].iter().map(move |(name, spec)| (*name, spec.claim(way))));
        let named: Vec<(&str, Claim)> = named.collect();
        let claims: Vec<Claim> = named.iter().map(|(_, claim)| *claim).collect();
        register::learn(&claims)?;
        register::claim(self.user, &claims).map_err(|(refused, refusal)| {
            let name = named.iter().find(|(_, claim)| *claim == refused).map_or("", |(name, _)| name);
            refusal.of_pair(name)
        })
    }

    /// Gives back claims of a start that has failed.
    pub(super) fn give_back(&self, claims: Vec<Claim>) {
        register::release(self.user, &claims, false);
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
                instead_of: None,
            };
            running.configured = specs;
            self.replace(&name, keys);
        }
        self.release_unused();
    }

    /// Removes associations whose grace is over.
    pub(super) fn remove_old(&mut self, now: u64) {
        if self.associations.remove_old(now) > 0 {
            self.release_unused();
        }
    }

    /// Gives up the claims on keys with which no association seals or receives any more.
    pub(super) fn release_unused(&mut self) {
        let sealing: BTreeSet<Fingerprint> =
            self.running.values().map(|running| running.current[OUTBOUND].fingerprint).collect();
        let Keyring { associations, claims, receiving, .. } = self;
        receiving.retain(|spi, _| associations.owner(*spi).is_some());
        let is_used = |claim: &Claim| match claim.way {
            Way::Inbound => receiving.get(&claim.spi) == Some(&claim.key),
            Way::Outbound => sealing.contains(&claim.key),
        };
        let unused: Vec<Claim> = claims.iter().filter(|claim| !is_used(claim)).copied().collect();
        if !unused.is_empty() {
            claims.retain(is_used);
            register::release(self.user, &unused, false);
        }
    }

    /// Begins to use a key that is claimed.
    fn begin(&mut self, claim: Claim) -> Option<Slot> {
        self.claims.insert(claim);
        if claim.way == Way::Inbound {
            self.receiving.insert(claim.spi, claim.key);
        }
        register::begin(self.user, &claim)
    }

    /// Adds a prepared pair.
    fn add(&mut self, name: String, plans: Plans, specs: [Spec; 2]) {
        let claims = [specs[INBOUND].claim(Way::Inbound), specs[OUTBOUND].claim(Way::Outbound)];
        let [Some(inbound), Some(outbound)] = claims.map(|claim| self.begin(claim)) else {
            return debug_assert!(false, "the keys are claimed");
        };
        let added = self.associations.add(plans.inbound.inbound(&inbound), plans.outbound.outbound(&outbound));
        debug_assert!(added.is_ok(), "the SPI was checked");
        if let Ok(id) = added {
            let ages = [Age::new(inbound, Way::Inbound), Age::new(outbound, Way::Outbound)];
            self.running.insert(name, Running { id, configured: specs, current: specs, ages });
        }
    }

    /// The keys of a pair that the configuration has.
    pub(super) fn configured(&self, name: &str) -> Option<[Fingerprint; 2]> {
        self.running.get(name).map(|running| running.configured.map(|spec| spec.fingerprint))
    }

    /// Replaces the keys of a pair, as a command asks. [`release_unused`](Keyring::release_unused) comes after it.
    ///
    /// # Errors
    /// With a sentence that names the reason and the way out; then nothing has changed.
    pub(super) fn rekey(&mut self, name: &str, keys: NewKeys) -> Result<(), String> {
        if !self.running.contains_key(name) {
            let names: Vec<String> = self.running.keys().take(20).map(|name| format!("`{name}`")).collect();
            return Err(format!("there is no pair `{name}`; there are {}", names.join(", ")));
        }
        let Running { current, configured, .. } = &self.running[name];
        if let Some(expected) = keys.instead_of {
            let given = [&keys.inbound, &keys.outbound].into_iter().zip(configured);
            for (plan, configured) in given.filter_map(|(plan, configured)| Some((plan.as_ref()?, configured))) {
                if plan.spec.fingerprint == configured.fingerprint {
                    // Somebody has written the key into the configuration.
                    return Ok(());
                }
                if configured.fingerprint != expected {
                    return Err(format!("the network file has another key of the pair `{name}` since it was saved"));
                }
            }
        }
        let mut others =
            self.running.iter().filter(|(other, _)| *other != name).flat_map(|(_, running)| running.current);
        let after = [
            keys.inbound.as_ref().map_or(current[INBOUND], |plan| plan.spec).fingerprint,
            keys.outbound.as_ref().map_or(current[OUTBOUND], |plan| plan.spec).fingerprint,
        ];
        if after[0] == after[1] || others.any(|spec| after.contains(&spec.fingerprint)) {
            return Err("the key is in use for another direction or pair; make one for each".to_owned());
        }
        if let Some(plan) = &keys.inbound {
            self.check_inbound(name, &plan.spec, |_| false)?;
        }
        register::claim(self.user, &keys.claims()).map_err(|(_, refusal)| refusal.of_pair(name))?;
        self.replace(name, keys);
        Ok(())
    }

    /// Replaces keys that were checked and claimed.
    fn replace(&mut self, name: &str, NewKeys { inbound, outbound, .. }: NewKeys) {
        for (way, plan) in [(Way::Inbound, inbound), (Way::Outbound, outbound)] {
            let Some(plan) = plan else { continue };
            let (spec, begun) = (plan.spec, self.begin(plan.spec.claim(way)));
            let (Some(slot), Some(running)) = (begun, self.running.get_mut(name)) else {
                return debug_assert!(false, "the keys are claimed");
            };
            (running.current[way as usize], running.ages[way as usize]) = (spec, Age::new(slot.clone(), way));
            let replaced = match way {
                Way::Inbound => self.associations.replace_inbound(running.id, plan.inbound(&slot)).is_ok(),
                Way::Outbound => self.associations.replace_outbound(running.id, plan.outbound(&slot)).is_ok(),
            };
            debug_assert!(replaced, "the pair is there, and the SPI was checked");
        }
    }
}

impl NewKeys {
    /// The uses of the keys.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let claim = |plan: &Option<AssociationPlan>, way: Way| plan.as_ref().map(|plan| plan.spec.claim(way));
        [claim(&self.inbound, Way::Inbound), claim(&self.outbound, Way::Outbound)].into_iter().flatten().collect()
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        if !self.claims.is_empty() {
            let claims: Vec<Claim> = std::mem::take(&mut self.claims).into_iter().collect();
            register::release(self.user, &claims, true);
        }
    }
}
