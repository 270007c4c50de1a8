//! The register of all keys that this process uses or has used: in which direction, by whom, and how far.
//!
//! - A key has one user in each direction at a time. A user is an app and its successors in reloads.
//! - A key is for one direction. One with which the other end has sealed never seals here, because the other end's IVs
//!   would be used again; one with which this end has sealed never receives, because its own packets could be sent back
//!   to it. Both ends may be in one process, in two apps.
//! - A key that is used again goes on behind its last sequence number, its replay window and what it has spent of its
//!   limits, whatever happened to its pair meanwhile, also in an earlier run.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bellows_esp::{Fingerprint, Spi};

use super::plan::Way;
pub use super::records::Places;
use super::records::{KeyRecord, Records, Slot, Slots, Store, StoreError, Used};

/// How often the lasting file is written.
const INTERVAL: Duration = Duration::from_secs(10);

/// How far the sequence numbers in the lasting file are ahead, at least and at most.
const AHEAD: [u64; 2] = [1 << 12, 1 << 28];

/// One who uses keys: an app and its successors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct User(u64);

impl User {
    /// Another one than all before.
    pub(super) fn new() -> User {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        User(NEXT.fetch_add(1, Relaxed))
    }
}

/// The use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) way: Way,
    pub(super) key: Fingerprint,
    pub(super) spi: Spi,
    /// Whether sequence numbers have 64 bits.
    pub(super) is_extended: bool,
}

/// Why a key is not to be used: a sentence about the key of a direction, without its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another app has it in use in this direction.
    InUse(Way),
    /// The other end has sealed with it.
    HasReceived,
    /// This end has sealed with it.
    HasSealed,
    /// It has received with another SPI.
    OtherSpi(Spi, Spi),
    /// It has used more sequence numbers than there are without ESN.
    TooFar(Way),
    /// The files cannot be read or written, or another process uses it.
    Store(StoreError),
}

impl Refusal {
    /// The whole sentence, for a pair.
    pub(super) fn of_pair(&self, pair: &str) -> String {
        match self {
            Refusal::InUse(way) => format!(
                "the key of `{}` of the pair `{pair}` is in use elsewhere in this process; make another, or remove the \
                 other app first, in a reload of its own",
                way.key()
            ),
            Refusal::HasReceived => format!(
                "the key of `outbound` of the pair `{pair}` has received packets, so the other end has sealed with it; a \
                 key is for one direction: make another"
            ),
            Refusal::HasSealed => format!(
                "the key of `inbound` of the pair `{pair}` has sealed packets here; a key is for one direction: make \
                 another"
            ),
            Refusal::OtherSpi(spi, before) => format!(
                "the key of `inbound` of the pair `{pair}` has received with SPI {before}, and is to receive with \
                 {spi}; a new SPI needs a new key"
            ),
            Refusal::TooFar(way) => format!(
                "the key of `{}` of the pair `{pair}` has used more than 2^32 sequence numbers, and cannot go on without \
                 `esn`; make another",
                way.key()
            ),
            Refusal::Store(error) => error.clone(),
        }
    }
}

/// What an association goes on with.
#[derive(Clone)]
pub(super) struct RegisterEntry {
    pub(super) slot: Slot,
    /// Those who use it, by direction.
    users: [Option<User>; 2],
    /// Those who have used it.
    had: [BTreeSet<User>; 2],
    /// The packets received when the last app that sealed with the key left.
    received_at_leave: u64,
    /// What is known of earlier runs.
    known: KeyRecord,
    /// When the lasting file was written last.
    written: [u64; 2],
}

impl RegisterEntry {
    fn packets(&self, way: Way) -> u64 {
        self.slot.used(way).packets
    }

    fn check(&self, user: User, claim: &Claim) -> Result<(), Refusal> {
        let other_way = claim.way.other();
        let [own, other] = [claim.way, other_way].map(|way| self.users[way as usize]);
        if own.is_some_and(|present| present != user) {
            return Err(Refusal::InUse(claim.way));
        }
        let has_other_end = other == Some(user) || self.had[other_way as usize].contains(&user);
        let is_wrong = match claim.way {
            Way::Outbound if self.slot.has_both_ends() => {
                own.is_none() && self.packets(Way::Inbound) > self.received_at_leave
            }
            Way::Outbound => self.slot.is_used_here(Way::Inbound),
            Way::Inbound => other.is_none() && !self.slot.has_both_ends() && self.slot.is_used_here(Way::Outbound),
        };
        if has_other_end || is_wrong && own != Some(user) {
            return Err(if claim.way == Way::Outbound { Refusal::HasReceived } else { Refusal::HasSealed });
        }
        let used = self.slot.used(claim.way);
        let before = Spi::new(self.slot.spi()).ok().filter(|_| claim.way == Way::Inbound && used.packets > 0);
        if let Some(before) = before.filter(|before| *before != claim.spi) {
            return Err(Refusal::OtherSpi(claim.spi, before));
        }
        if !claim.is_extended && used.sequence > u32::MAX.into() {
            return Err(Refusal::TooFar(claim.way));
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Register {
    entries: HashMap<Fingerprint, RegisterEntry>,
    slots: Slots,
    places: Option<Places>,
    store: Option<Store>,
    /// What the lasting file has.
    written: Option<Records>,
    has_thread: bool,
}

static REGISTER: Mutex<Option<Register>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Register) -> T) -> T {
    #[cfg(test)]
    if let Some(mut register) = own::take() {
        let result = act(&mut register);
        own::replace(Some(register));
        return result;
    }
    let mut register: MutexGuard<'_, Option<Register>> = REGISTER.lock().unwrap_or_else(PoisonError::into_inner);
    act(register.get_or_insert_default())
}

/// Has this process keep how far keys were used in these places, from the first key on. Without it, that is forgotten at
/// the end of the process.
pub fn keep(places: Places) {
    with(|register| register.places = Some(places));
}

/// Reads what is known of keys that are not in use here. It may take a while.
///
/// # Errors
/// If another process has one in use in the same direction, or files cannot be read.
pub(super) fn learn(claims: &[Claim]) -> Result<(), StoreError> {
    with(|register| register.learn(claims))
}

/// As [`learn`], of those keys alone that were used before, as far as is known: by this process, an earlier run or another
/// network. Returns them.
///
/// # Errors
/// Those of [`learn`].
pub(super) fn recall(claims: &[Claim]) -> Result<BTreeSet<Fingerprint>, StoreError> {
    with(|register| {
        let others = register.others(claims)?;
        let is_own = |key: &Fingerprint| register.store.as_ref().is_some_and(|store| store.known.contains_key(key));
        let is_known =
            |key: &Fingerprint| register.entries.contains_key(key) || is_own(key) || others.contains_key(key);
        let known: BTreeSet<Fingerprint> = claims.iter().map(|claim| claim.key).filter(is_known).collect();
        register.enter(known.iter().copied(), &others)?;
        Ok(known)
    })
}

/// Has a user use keys, which were [learnt](learn) before. Returns the claims that it did not have before.
///
/// # Errors
/// With the first one that is refused; then nothing has changed.
pub(super) fn claim(user: User, claims: &[Claim]) -> Result<Vec<Claim>, (Claim, Refusal)> {
    with(|register| {
        let mut new: Vec<Claim> = Vec::new();
        for claim in claims {
            match register.claim(user, claim) {
                Ok(true) => new.push(*claim),
                Ok(false) => {}
                Err(refusal) => {
                    new.iter().for_each(|claim| register.release(user, claim));
                    return Err((*claim, refusal));
                }
            }
        }
        Ok(new)
    })
    .inspect(|_| wake_writer())
}

/// Has a user that has claimed a key begin with it. Returns its cells.
pub(super) fn begin(user: User, claim: &Claim) -> Option<Slot> {
    with(|register| {
        let entry = register.entries.get_mut(&claim.key)?;
        entry.had[claim.way as usize].insert(user);
        if claim.way == Way::Inbound {
            entry.slot.set_spi(claim.spi.get());
        }
        let other = claim.way.other() as usize;
        if entry.users[other].is_some_and(|present| present != user && entry.had[other].contains(&present)) {
            entry.slot.set_both_ends();
        }
        Some(entry.slot.clone())
    })
}

/// Notes that a user does not use these keys any more. At the end of an app it writes files.
pub(super) fn release(user: User, claims: &[Claim], is_end: bool) {
    with(|register| claims.iter().for_each(|claim| register.release(user, claim)));
    if is_end {
        drop(write(true));
    } else {
        wake_writer();
    }
}

impl Register {
    /// Returns whether the claim is new.
    fn claim(&mut self, user: User, claim: &Claim) -> Result<bool, Refusal> {
        if !self.entries.contains_key(&claim.key) {
            self.learn(std::slice::from_ref(claim)).map_err(Refusal::Store)?;
        }
        let entry = self.entries.get_mut(&claim.key).ok_or_else(|| Refusal::Store("its key is unknown".to_owned()))?;
        entry.check(user, claim)?;
        let is_new = entry.users[claim.way as usize].replace(user).is_none();
        entry.slot.set_in_use(claim.way, true);
        Ok(is_new)
    }

    fn release(&mut self, user: User, claim: &Claim) {
        let Some(entry) = self.entries.get_mut(&claim.key) else { return };
        if entry.users[claim.way as usize] == Some(user) {
            entry.users[claim.way as usize] = None;
            entry.slot.set_in_use(claim.way, false);
            if claim.way == Way::Outbound {
                entry.received_at_leave = entry.packets(Way::Inbound);
            }
        }
    }

    /// What other networks know of keys that are not in use here. Opens the files before the first key.
    fn others(&mut self, claims: &[Claim]) -> Result<Records, StoreError> {
        let new: Vec<(Way, Fingerprint)> = claims
            .iter()
            .filter(|claim| self.entries.get(&claim.key).is_none_or(|entry| entry.users[claim.way as usize].is_none()))
            .map(|claim| (claim.way, claim.key))
            .collect();
        if new.is_empty() {
            return Ok(Records::new());
        }
        if let (None, Some(places)) = (&self.store, &self.places) {
            self.store = Some(Store::open(places)?);
            if !std::mem::replace(&mut self.has_thread, true) {
                let thread = thread::Builder::new().name("esp-keys".to_owned());
                thread.spawn(keep_writing).map_err(|error| format!("no thread can be started: {error}"))?;
            }
        }
        self.store.as_ref().map_or(Ok(Records::new()), |store| store.others(&new))
    }

    fn learn(&mut self, claims: &[Claim]) -> Result<(), StoreError> {
        let others = self.others(claims)?;
        self.enter(claims.iter().map(|claim| claim.key), &others)
    }

    /// Makes an entry for each new key, with what other networks know of it.
    fn enter(&mut self, keys: impl Iterator<Item = Fingerprint>, others: &Records) -> Result<(), StoreError> {
        for key in keys {
            if self.entries.contains_key(&key) {
                continue;
            }
            let own = self.store.as_ref().and_then(|store| store.known.get(&key));
            let mut known = own.cloned().unwrap_or_default();
            others.get(&key).into_iter().for_each(|other| known.learn(other));
            let slot = self.slots.take(self.store.as_mut(), key, &known)?;
            let entry = RegisterEntry {
                slot,
                users: [None; 2],
                had: Default::default(),
                received_at_leave: known.used[Way::Inbound as usize].packets,
                written: known.used.map(|used| used.sequence),
                known,
            };
            self.entries.insert(key, entry);
        }
        Ok(())
    }

    /// What the lasting file is to have: numbers of keys in use ahead of what they are.
    fn snapshot(&mut self) -> Records {
        let mut records = self.store.as_ref().map(|store| store.known.clone()).unwrap_or_default();
        for (key, entry) in &mut self.entries {
            let [inbound, outbound] = [Way::Inbound, Way::Outbound].map(|way| {
                let Used { sequence, .. } = entry.slot.used(way);
                let since = sequence.saturating_sub(std::mem::replace(&mut entry.written[way as usize], sequence));
                let ahead = match way {
                    _ if entry.users[way as usize].is_none() => 0,
                    Way::Outbound => since.saturating_mul(4).clamp(AHEAD[0], AHEAD[1]),
                    Way::Inbound => since.saturating_mul(2),
                };
                sequence.saturating_add(ahead)
            });
            let mut record = entry.slot.record(outbound);
            record.used[Way::Inbound as usize].sequence = inbound;
            record.ivs.add_all(&entry.known.ivs);
            records.insert(*key, record);
        }
        records
    }

    /// Whether any key is in use.
    fn is_in_use(&self) -> bool {
        self.entries.values().any(|entry| entry.users != [None; 2])
    }
}

/// Writes what is known of keys, so that it outlives the machine.
///
/// # Errors
/// If files cannot be written.
pub(super) fn settle() -> Result<(), StoreError> {
    write(false)
}

/// Writes the lasting file if it would change. At the end of the last app it closes all files.
fn write(is_end: bool) -> Result<(), StoreError> {
    /// Held while a file is written, which may take long, in place of the register.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((records, lasting, ended)) = with(|register| {
        let lasting = register.store.as_ref()?.lasting();
        let is_last = is_end && !register.is_in_use();
        let records = register.snapshot();
        if !is_last && register.written.as_ref() == Some(&records) {
            return None;
        }
        register.written = Some(records.clone());
        let ended = register.store.take_if(|_| is_last);
        if is_last {
            register.entries.clear();
            register.slots = Slots::default();
        }
        Some((records, lasting, ended))
    }) else {
        return Ok(());
    };
    lasting.write(&records).inspect_err(|error| {
        with(|register| register.written = None);
        tracing::warn!("{error}; make new keys if the machine restarts before this is mended");
    })?;
    ended.iter().for_each(Store::end);
    Ok(())
}

/// What the writer waits for.
static WAKE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn wake_writer() {
    *WAKE.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    WAKE.1.notify_one();
}

/// Writes the lasting file again and again.
fn keep_writing() {
    loop {
        let woken = WAKE.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = WAKE.1.wait_timeout_while(woken, INTERVAL, |is_woken| !*is_woken);
        *waited.map(|(woken, _)| woken).unwrap_or_else(|error| error.into_inner().0) = false;
        drop(write(false));
    }
}

/// Registers of single tests, which so have processes of their own.
#[cfg(test)]
pub(super) mod own {
    use std::cell::Cell;

    use super::{Places, Register};

    thread_local! {
        static REGISTER: Cell<Option<Register>> = const { Cell::new(None) };
    }

    pub(in super::super) fn take() -> Option<Register> {
        REGISTER.take()
    }

    pub(in super::super) fn replace(register: Option<Register>) {
        REGISTER.set(register);
    }

    /// Begins a process: this thread's keys are in a register of its own from here on.
    pub(in super::super) fn begin(places: Option<Places>) {
        // A thread would write into the register of all.
        replace(Some(Register { places, has_thread: true, ..Register::default() }));
    }

    /// Writes the lasting file, as the thread does from time to time.
    pub(in super::super) fn write() {
        super::settle().unwrap();
    }

    /// Kills the process: nothing is written any more.
    pub(in super::super) fn kill() {
        begin(None);
    }
}
