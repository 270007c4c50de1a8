//! What is known of keys, and the files that keep it over restarts.
//!
//! There are two kinds of files, for each network:
//!
//! - *live*, in the runtime directory, which is in memory: the cells in which associations count. They are exact when
//!   the process was killed, and gone when the machine restarts. Each network locks a file beside its own, so that
//!   others see whether it runs.
//! - *lasting*, in the state folder: the same as JSON, written at the end of a run and every few seconds before. While a
//!   key is in use, its numbers there are ahead of what was used, so that those of a machine that loses its power are
//!   rather skipped than used again.
//!
//! A network reads the files of the user's other networks as well, so that a network that has got another name does not
//! begin anew. No number depends on a clock.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellows_esp::{Amount, Fingerprint, KeyProgress};
use bellows_sys::atomic_file::Replacement;
use bellows_sys::shared::SharedCells;
use serde::{Deserialize, Serialize};

use super::ivs::Ivs;
use super::plan::Way;

/// The cells of a key.
const SLOT: usize = 16;

/// The keys of a live file.
const SLOTS: usize = 255;

/// The first cell of a live file: what it is.
const MAGIC: u64 = u64::from_le_bytes(*b"bellkey1");

/// The maximum size of a file.
const MAX_FILE: u64 = 256 << 20;

/// The version of lasting files.
const VERSION: u32 = 1;

/// How far a key was used in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Used {
    /// The highest sequence number.
    pub(super) sequence: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// How long it was in use.
    pub(super) nanoseconds: u64,
}

impl Used {
    fn merge(&mut self, other: Used) {
        self.sequence = self.sequence.max(other.sequence);
        self.packets = self.packets.max(other.packets);
        self.bytes = self.bytes.max(other.bytes);
        self.nanoseconds = self.nanoseconds.max(other.nanoseconds);
    }
}

/// What is known of a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyRecord {
    /// The SPI with which it received; 0 for none.
    pub(super) spi: u32,
    /// Whether another app of the same network had the other end of the key.
    pub(super) has_both_ends: bool,
    /// By direction, as [`Way`] numbers them: also by other networks.
    pub(super) used: [Used; 2],
    /// Whether this network has used it.
    pub(super) is_used_here: [bool; 2],
    /// The IVs with which it may have sealed.
    pub(super) ivs: Ivs,
}

impl KeyRecord {
    /// Adds what another file has of this network.
    fn merge(&mut self, other: &KeyRecord) {
        self.has_both_ends |= other.has_both_ends;
        self.is_used_here[0] |= other.is_used_here[0];
        self.is_used_here[1] |= other.is_used_here[1];
        self.learn(other);
    }

    /// Adds what another network has done.
    pub(super) fn learn(&mut self, other: &KeyRecord) {
        self.spi = if other.spi == 0 { self.spi } else { other.spi };
        self.used[0].merge(other.used[0]);
        self.used[1].merge(other.used[1]);
        self.ivs.add_all(&other.ivs);
    }
}

/// Records by key.
pub(super) type Records = HashMap<Fingerprint, KeyRecord>;

/// The cells of one key.
#[derive(Clone)]
pub(super) struct Slot {
    cells: Arc<SharedCells>,
    first: usize,
}

/// Where the cells of a slot are.
mod cell {
    /// The fingerprint, and its lower half. The upper one is written last, and is never 0 in a slot in use.
    pub(super) const KEY: usize = 0;
    pub(super) const KEY_LOW: usize = 1;
    pub(super) const FLAGS: usize = 2;
    pub(super) const SPI: usize = 3;
    pub(super) const IV_OFFSET: usize = 4;
    /// The sequence number behind which this run seals.
    pub(super) const FIRST_SEQUENCE: usize = 5;
    /// The progress in each direction, and the time.
    pub(super) const USED: [usize; 2] = [6, 10];
    /// The packets of earlier runs, and of other networks.
    pub(super) const BEFORE: [usize; 2] = [14, 15];
}

/// Bits of a slot's flags.
mod flag {
    pub(super) const BOTH_ENDS: u64 = 1;
    /// In use, by direction.
    pub(super) const IN_USE: [u64; 2] = [2, 4];
    /// Used by earlier runs of this network, by direction.
    pub(super) const USED_HERE: [u64; 2] = [8, 16];
}

impl Slot {
    fn load(&self, cell: usize) -> u64 {
        self.cells.cells()[self.first + cell].load(Relaxed)
    }

    fn store(&self, cell: usize, value: u64) {
        self.cells.cells()[self.first + cell].store(value, Relaxed);
    }

    /// Begins with what is known of a key, and seals with IVs at this offset.
    fn fill(&self, key: Fingerprint, known: &KeyRecord, iv_offset: u64) {
        self.store(cell::SPI, known.spi.into());
        self.store(cell::IV_OFFSET, iv_offset);
        self.store(cell::FIRST_SEQUENCE, known.used[Way::Outbound as usize].sequence);
        let mut flags = if known.has_both_ends { flag::BOTH_ENDS } else { 0 };
        for way in [Way::Inbound, Way::Outbound] {
            let Used { sequence, packets, bytes, nanoseconds } = known.used[way as usize];
            flags |= if known.is_used_here[way as usize] { flag::USED_HERE[way as usize] } else { 0 };
            self.store(cell::BEFORE[way as usize], packets);
            self.progress(way).set(sequence, Amount { packets, bytes });
            self.set_nanoseconds(way, nanoseconds);
        }
        self.store(cell::FLAGS, flags);
        let number = u128::from(key);
        self.store(cell::KEY_LOW, number as u64);
        self.store(cell::KEY, (number >> 64) as u64);
    }

    /// Where an association with this key counts.
    pub(super) fn progress(&self, way: Way) -> KeyProgress {
        let first = self.first + cell::USED[way as usize];
        KeyProgress::in_cells(Arc::clone(&self.cells), first).expect("a slot has all its cells")
    }

    pub(super) fn used(&self, way: Way) -> Used {
        let progress = self.progress(way);
        let Amount { packets, bytes } = progress.used();
        let nanoseconds = self.load(cell::USED[way as usize] + KeyProgress::CELLS);
        Used { sequence: progress.sequence(), packets, bytes, nanoseconds }
    }

    pub(super) fn set_nanoseconds(&self, way: Way, nanoseconds: u64) {
        self.store(cell::USED[way as usize] + KeyProgress::CELLS, nanoseconds);
    }

    /// Whether this network has used the key in a direction, in this run or before.
    pub(super) fn is_used_here(&self, way: Way) -> bool {
        let was_used = self.load(cell::FLAGS) & flag::USED_HERE[way as usize] != 0;
        was_used || self.used(way).packets > self.load(cell::BEFORE[way as usize])
    }

    pub(super) fn iv_offset(&self) -> u64 {
        self.load(cell::IV_OFFSET)
    }

    pub(super) fn spi(&self) -> u32 {
        self.load(cell::SPI) as u32
    }

    pub(super) fn set_spi(&self, spi: u32) {
        self.store(cell::SPI, spi.into());
    }

    pub(super) fn has_both_ends(&self) -> bool {
        self.load(cell::FLAGS) & flag::BOTH_ENDS != 0
    }

    pub(super) fn set_both_ends(&self) {
        self.store(cell::FLAGS, self.load(cell::FLAGS) | flag::BOTH_ENDS);
    }

    pub(super) fn set_in_use(&self, way: Way, is_in_use: bool) {
        let (flags, bit) = (self.load(cell::FLAGS), flag::IN_USE[way as usize]);
        self.store(cell::FLAGS, if is_in_use { flags | bit } else { flags & !bit });
    }

    /// All that it has, where this run may have sealed up to `sequence`.
    pub(super) fn record(&self, sequence: u64) -> KeyRecord {
        let mut ivs = Ivs::default();
        let (first, offset) = (self.load(cell::FIRST_SEQUENCE), self.iv_offset());
        if sequence > first {
            ivs.add(first.wrapping_add(1).wrapping_add(offset), sequence.wrapping_add(offset));
        }
        let mut used = [self.used(Way::Inbound), self.used(Way::Outbound)];
        used[Way::Outbound as usize].sequence = sequence;
        let is_used_here = [Way::Inbound, Way::Outbound].map(|way| self.is_used_here(way));
        KeyRecord { spi: self.spi(), has_both_ends: self.has_both_ends(), used, is_used_here, ivs }
    }
}

/// A live file that was read, of a process that may have ended.
#[derive(Default)]
struct Live {
    run: u64,
    records: Records,
    /// The keys in use, by direction.
    in_use: [Vec<Fingerprint>; 2],
}

impl Live {
    /// Reads the bytes of a live file. What is no such file has no keys.
    fn read(bytes: &[u8]) -> Live {
        let words: Vec<u64> =
            bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).take(SLOT * (SLOTS + 1)).collect();
        let mut live = Live::default();
        let Some((first, slots)) = words.split_at_checked(SLOT).filter(|(first, _)| first[0] == MAGIC) else {
            return live;
        };
        live.run = first[1];
        let Ok(cells) = SharedCells::private(SLOT) else { return live };
        let slot = Slot { cells: Arc::new(cells), first: 0 };
        for words in slots.chunks_exact(SLOT).filter(|words| words[cell::KEY] != 0) {
            words.iter().enumerate().for_each(|(index, word)| slot.store(index, *word));
            let key = Fingerprint::from(u128::from(words[cell::KEY]) << 64 | u128::from(words[cell::KEY_LOW]));
            live.records.entry(key).or_default().merge(&slot.record(slot.used(Way::Outbound).sequence));
            for (in_use, bit) in live.in_use.iter_mut().zip(flag::IN_USE) {
                if words[cell::FLAGS] & bit != 0 {
                    in_use.push(key);
                }
            }
        }
        live
    }
}

/// The contents of a lasting file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lasting {
    version: u32,
    /// The run of the network that has written it.
    run: u64,
    #[serde(with = "by_digits")]
    keys: Records,
}

/// Records by the hexadecimal digits of their keys' fingerprints.
mod by_digits {
    use std::collections::HashMap;

    use bellows_esp::Fingerprint;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use super::{KeyRecord, Records};

    pub(super) fn serialize<S: Serializer>(records: &Records, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(records.iter().map(|(key, record)| (key.to_string(), record)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Records, D::Error> {
        let texts = HashMap::<String, KeyRecord>::deserialize(deserializer)?;
        let key = |text: &str| u128::from_str_radix(text, 16).map(Fingerprint::from).map_err(Error::custom);
        texts.into_iter().map(|(text, record)| Ok((key(&text)?, record))).collect()
    }
}

/// Where a network keeps what is known of its keys.
#[derive(Clone, Debug)]
pub struct Places {
    /// The name of the network.
    pub network: String,
    /// The runtime directory that it is in, on a file system in memory.
    pub live: PathBuf,
    /// Finds the state folder, when the first key is used; or the reason why there is none.
    pub lasting: fn() -> Result<PathBuf, String>,
}

/// The name of both folders.
const FOLDER: &str = "esp-keys";

/// The name of the folder of live files, which no network can have.
const LIVE_FOLDER: &str = ".esp-keys";

/// The reason why records cannot be kept: a sentence that names the file and the way out.
pub(super) type StoreError = String;

/// The files of one network.
pub(super) struct Store {
    network: String,
    live: PathBuf,
    lasting: Option<PathBuf>,
    /// Locked as long as this process has live files.
    _lock: File,
    /// The live files of this run.
    files: usize,
    /// Counts the runs of the network.
    run: u64,
    /// What was known when this run began.
    pub(super) known: Records,
}

impl Store {
    /// Finds what earlier runs of the network have left, and begins live files.
    pub(super) fn open(places: &Places) -> Result<Store, StoreError> {
        let live = places.live.join(LIVE_FOLDER);
        own_folder(&live)?;
        let lasting = (places.lasting)()
            .inspect_err(|why| tracing::warn!("{why}; what is known of IPsec keys is lost when the machine restarts"));
        let lasting = lasting.ok().map(|folder| folder.join(FOLDER));
        lasting.as_deref().map_or(Ok(()), own_folder)?;
        let lock = lock_file(&live, &places.network).map_err(|error| wrong(&live, &error))?;
        lock.try_lock().map_err(|_| {
            format!("the keys of the network `{}` are in use by another process; stop that first", places.network)
        })?;
        let own = lasting.as_deref().map(|folder| lasting_file(folder, &places.network));
        let Lasting { run, mut keys, .. } = own.as_deref().map_or(Ok(None), read_lasting)?.unwrap_or_default();
        let network = places.network.clone();
        let mut store = Store { network, live, lasting, _lock: lock, files: 0, run: run + 1, known: Records::new() };
        let left = store.live_files(true)?;
        for (_, path) in &left {
            let live = Live::read(&read_own(path)?.unwrap_or_default());
            for (key, record) in &live.records {
                let known = keys.entry(*key).or_default();
                if live.run == run {
                    // Of the run that has written the lasting file, whose numbers are ahead.
                    known.used = <[Used; 2]>::default();
                }
                known.merge(record);
            }
        }
        store.known = keys;
        if store.lasting.is_some() {
            store.lasting().write(&store.known)?;
        } else {
            // What earlier runs have left in live files stays in those of this one.
            for chunk in store.known.clone().iter().collect::<Vec<_>>().chunks(SLOTS) {
                let cells = store.new_cells()?;
                chunk.iter().enumerate().for_each(|(index, (key, record))| slot(&cells, index).fill(**key, record, 0));
            }
        }
        let new: Vec<PathBuf> = (0..store.files).map(|number| store.live_file(number)).collect();
        left.iter().filter(|(_, path)| !new.contains(path)).for_each(|(_, path)| drop(fs::remove_file(path)));
        Ok(store)
    }

    /// A new live file.
    pub(super) fn new_cells(&mut self) -> Result<Arc<SharedCells>, StoreError> {
        let path = self.live_file(self.files);
        let cells =
            SharedCells::create(&path, &vec![0; SLOT * (SLOTS + 1) * 8]).map_err(|error| wrong(&path, &error))?;
        cells.cells()[1].store(self.run, Relaxed);
        cells.cells()[0].store(MAGIC, Relaxed);
        self.files += 1;
        Ok(Arc::new(cells))
    }

    /// What other networks of this user know of a key.
    ///
    /// # Errors
    /// With the network that has the key in use in this direction, or why its files cannot be read.
    pub(super) fn others(&self, keys: &[(Way, Fingerprint)]) -> Result<Records, StoreError> {
        let mut found = Records::new();
        let mut add = |records: &Records| {
            for (key, record) in records.iter().filter(|(key, _)| keys.iter().any(|(_, wanted)| wanted == *key)) {
                found.entry(*key).or_default().learn(record);
            }
        };
        for path in self.lasting.as_deref().map_or(Ok(Vec::new()), list)? {
            let is_own = path.file_stem().is_some_and(|stem| *stem == *self.network);
            if !is_own && path.extension().is_some_and(|extension| extension == "json") {
                add(&read_lasting(&path)?.unwrap_or_default().keys);
            }
        }
        for (network, path) in self.live_files(false)? {
            let live = Live::read(&read_own(&path)?.unwrap_or_default());
            let runs = lock_file(&self.live, &network).is_ok_and(|lock| lock.try_lock().is_err());
            if let Some((way, _)) = keys.iter().find(|(way, key)| runs && live.in_use[*way as usize].contains(key)) {
                let way = way.key();
                return Err(format!(
                    "its key of `{way}` is in use by the running network `{network}`, in the same direction; stop that, \
                     or make another key"
                ));
            }
            add(&live.records);
        }
        Ok(found)
    }

    /// Where to write the lasting file.
    pub(super) fn lasting(&self) -> LastingFile {
        let path = self.lasting.as_ref().map(|folder| lasting_file(folder, &self.network));
        LastingFile { path, run: self.run }
    }

    /// Removes the live files at the end of the run, when the lasting file has all that they have.
    pub(super) fn end(&self) {
        if self.lasting.is_some() {
            (0..self.files).for_each(|number| drop(fs::remove_file(self.live_file(number))));
        }
    }

    fn live_file(&self, number: usize) -> PathBuf {
        self.live.join(format!("{}.{number}", self.network))
    }

    /// The live files of this network, or those of all others, with the names of their networks.
    fn live_files(&self, is_own: bool) -> Result<Vec<(String, PathBuf)>, StoreError> {
        let network = |path: &Path| {
            let (network, number) = path.file_name()?.to_str()?.rsplit_once('.')?;
            number.parse::<usize>().ok().map(|_| network.to_owned())
        };
        let all = list(&self.live)?.into_iter().filter_map(|path| Some((network(&path)?, path)));
        Ok(all.filter(|(name, _)| (*name == self.network) == is_own).collect())
    }
}

/// The lasting file of a network, if it has one.
pub(super) struct LastingFile {
    path: Option<PathBuf>,
    run: u64,
}

impl LastingFile {
    /// Replaces its contents. It may take a while.
    pub(super) fn write(&self, records: &Records) -> Result<(), StoreError> {
        let Some(path) = &self.path else { return Ok(()) };
        let lasting = Lasting { version: VERSION, run: self.run, keys: records.clone() };
        let text = serde_json::to_vec(&lasting).expect("records are JSON");
        let write = || {
            let mut new = Replacement::create(path, Some(0o600))?;
            new.file().write_all(&text)?;
            new.file().sync_data()?;
            new.put()
        };
        write().map_err(|error| wrong(path, &error))
    }
}

/// The cells of the key with this number in a live file.
pub(super) fn slot(cells: &Arc<SharedCells>, index: usize) -> Slot {
    Slot { cells: Arc::clone(cells), first: SLOT * (index + 1) }
}

/// Slots for keys: in live files, or in memory alone.
#[derive(Default)]
pub(super) struct Slots {
    cells: Option<Arc<SharedCells>>,
    taken: usize,
}

impl Slots {
    /// A slot for a key, of which this is known.
    pub(super) fn take(
        &mut self,
        store: Option<&mut Store>,
        key: Fingerprint,
        known: &KeyRecord,
    ) -> Result<Slot, StoreError> {
        let cells = match &self.cells {
            Some(cells) if self.taken < SLOTS => Arc::clone(cells),
            _ => {
                self.taken = 0;
                match store {
                    Some(store) => store.new_cells()?,
                    None => Arc::new(SharedCells::private(SLOT * (SLOTS + 1)).map_err(|error| error.to_string())?),
                }
            }
        };
        let slot = slot(&cells, self.taken);
        self.taken += 1;
        self.cells = Some(cells);
        let first = known.used[Way::Outbound as usize].sequence.wrapping_add(1);
        slot.fill(key, known, known.ivs.new_start().wrapping_sub(first));
        Ok(slot)
    }
}

fn lasting_file(folder: &Path, network: &str) -> PathBuf {
    folder.join(format!("{network}.json"))
}

/// The file that a running network has locked.
fn lock_file(live: &Path, network: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).open(live.join(format!("{network}.lock")))
}

fn wrong(path: &Path, error: &io::Error) -> StoreError {
    format!("`{}`, which keeps how far keys have been used, cannot be used: {error}", path.display())
}

/// Makes a folder that is this user's alone, unless it is there.
fn own_folder(path: &Path) -> Result<(), StoreError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) => return Err(wrong(path, &error)),
    }
    let there = fs::symlink_metadata(path).map_err(|error| wrong(path, &error))?;
    if there.is_dir() && there.uid() == rustix::process::geteuid().as_raw() && there.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(format!(
        "`{}`, which keeps how far keys have been used, is not a folder that belongs to this user alone; correct that \
         with `chown` and `chmod 700`, or choose another state folder with BELLOWS_STATE_DIR",
        path.display()
    ))
}

/// The files of a folder, in the order of their names.
fn list(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let read = || fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = read().map_err(|error| wrong(folder, &error))?;
    paths.sort();
    Ok(paths)
}

/// The bytes of a file; `None` if there is none.
fn read_own(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let read = || {
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::from(ErrorKind::InvalidInput));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(path, &error)),
    }
}

/// Reads a lasting file; `None` if there is none.
fn read_lasting(path: &Path) -> Result<Option<Lasting>, StoreError> {
    let Some(bytes) = read_own(path)? else { return Ok(None) };
    let damaged = |why: &str| {
        format!(
            "`{}`, which keeps how far keys have been used, cannot be read: {why}; restore it, or remove it and make new \
             keys",
            path.display()
        )
    };
    let lasting: Lasting = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
    match lasting.version {
        VERSION => Ok(Some(lasting)),
        other => Err(damaged(&format!("it has version {other}, and this program knows {VERSION}"))),
    }
}
