//! The counters at the time of `bellows clear`, which later readers subtract.
//!
//! The engine's counters never go back. A baseline is a file in the folder of the run, so it disappears with the run.
//! The start time of the run identifies a baseline that an earlier process of the same name left.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use bellows_engine::Reloaded;
use bellows_observe::{AppCounts, Gone, Histogram, LinkCounts, RuntimeDir, Snapshot};
use bellows_sys::atomic_file;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::InspectError;
use crate::networks::Sample;
use crate::text::foreign_json;

/// The file's name.
const FILE: &str = "baseline";

/// The part of the file that is read: all counters that readers subtract, in their JSON form.
#[derive(Deserialize)]
struct Kept {
    at_ns: u64,
    counters: KeptCounters,
}

#[derive(Deserialize)]
struct KeptCounters {
    pid: u32,
    engine: BTreeMap<String, u64>,
    apps: Vec<KeptApp>,
    links: Vec<KeptLink>,
    #[serde(default)]
    gone: KeptGone,
    histograms: BTreeMap<String, Histogram>,
}

#[derive(Default, Deserialize)]
struct KeptGone {
    apps: Vec<KeptApp>,
    links: Vec<KeptLink>,
}

#[derive(Deserialize)]
struct KeptApp {
    name: String,
    kind: String,
    in_packets: u64,
    out_packets: u64,
    drops: BTreeMap<String, u64>,
    calls: BTreeMap<String, u64>,
    sleeps: u64,
    account: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct KeptLink {
    from: String,
    to: String,
    packets: u64,
    bytes: u64,
    txdrop: u64,
    #[serde(default)]
    removed: u64,
}

impl From<Kept> for Sample {
    fn from(kept: Kept) -> Sample {
        let KeptCounters { pid, engine, apps, links, gone, histograms } = kept.counters;
        let app = |KeptApp { name, kind, in_packets, out_packets, drops, calls, sleeps, account }: KeptApp| AppCounts {
            name,
            kind,
            in_packets,
            out_packets,
            drops,
            calls,
            sleeps,
            account,
            ..AppCounts::default()
        };
        let link = |KeptLink { from, to, packets, bytes, txdrop, removed }: KeptLink| LinkCounts {
            from,
            to,
            packets,
            bytes,
            txdrop,
            removed,
            ..LinkCounts::default()
        };
        let gone =
            Gone { apps: gone.apps.into_iter().map(app).collect(), links: gone.links.into_iter().map(link).collect() };
        let apps = apps.into_iter().map(app).collect();
        let links = links.into_iter().map(link).collect();
        Sample {
            at: kept.at_ns,
            counters: Snapshot { pid, engine, apps, links, gone, histograms, ..Snapshot::default() },
        }
    }
}

/// The time from which to count.
#[derive(Clone, Debug)]
pub enum Since {
    /// The start of the run.
    Start(Sample),
    /// The last `bellows clear`.
    Clear(Sample),
}

impl Since {
    /// The counters to subtract from those of an engine.
    pub fn read(runtime_dir: &RuntimeDir, now: &Sample) -> Since {
        match read(runtime_dir, now) {
            Ok(Some(sample)) => Since::Clear(sample),
            Ok(None) => Since::Start(now.beginning()),
            Err(why) => {
                tracing::warn!("{} {why}; `bellows clear` writes a new one", runtime_dir.file(FILE).display());
                Since::Start(now.beginning())
            }
        }
    }

    /// Whether `bellows clear` has been run.
    pub fn is_clear(&self) -> bool {
        matches!(self, Since::Clear(_))
    }

    /// The counters at that time.
    pub fn sample(&self) -> &Sample {
        match self {
            Since::Start(sample) | Since::Clear(sample) => sample,
        }
    }
}

/// The baseline of the run that these counters belong to, if there is one.
fn read(runtime_dir: &RuntimeDir, now: &Sample) -> Result<Option<Sample>, String> {
    let bytes = match runtime_dir.read(FILE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let kept: Kept = foreign_json(&bytes).map_err(|error| format!("is not a baseline: {error}"))?;
    let sample = Sample::from(kept);
    let run = |sample: &Sample| (sample.counters.pid, sample.counters.engine("started"));
    Ok(Some(sample).filter(|sample| run(sample) == run(now)))
}

/// Makes these counters the new baseline.
///
/// # Errors
/// When the file cannot be written.
pub fn write(runtime_dir: &RuntimeDir, sample: &Sample) -> Result<(), InspectError> {
    let value = json!({"at_ns": sample.at, "counters": sample.counters});
    replace(runtime_dir, FILE, &value).map_err(|error| {
        let file = runtime_dir.file(FILE);
        InspectError::Failed(format!(
            "cannot write {}: {error}; check that the disk has room and that the run still exists",
            file.display()
        ))
    })
}

/// Forgets apps and links that a reload has created anew under an old name.
pub fn forget(runtime_dir: &RuntimeDir, reloaded: &Reloaded) {
    let Ok(Ok(mut value)) = fs::read(runtime_dir.file(FILE)).map(|bytes| serde_json::from_slice::<Value>(&bytes))
    else {
        return;
    };
    if let Some(apps) = value["counters"]["apps"].as_array_mut() {
        apps.retain(|app| !reloaded.added.iter().any(|added| app["name"] == json!(added)));
    }
    if let Some(links) = value["counters"]["links"].as_array_mut() {
        let name = |link: &Value| Some(format!("{} -> {}", link["from"].as_str()?, link["to"].as_str()?));
        links.retain(|link| name(link).is_some_and(|name| !reloaded.links_added.contains(&name)));
    }
    if let Err(error) = replace(runtime_dir, FILE, &value) {
        tracing::warn!("{} cannot be updated: {error}", runtime_dir.file(FILE).display());
    }
}

/// Writes a file of the run's folder atomically: a reader finds either the old or the new one.
///
/// # Errors
/// Those of writing a file; `PermissionDenied` if the folder is another user's.
pub fn replace(runtime_dir: &RuntimeDir, file: &str, value: &Value) -> io::Result<()> {
    if runtime_dir.is_foreign() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    atomic_file::write(&runtime_dir.file(file), value.to_string().as_bytes(), Some(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like that of a run, removed when dropped.
    fn runtime_dir() -> RuntimeDir {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        RuntimeDir::claim(&format!("test-baseline-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed))).unwrap()
    }

    fn sample(started: u64, packets: u64) -> Sample {
        let app = |name: &str| AppCounts {
            name: name.to_owned(),
            in_packets: packets,
            calls: [("push".to_owned(), packets / 10)].into(),
            ..AppCounts::default()
        };
        let link = LinkCounts { from: "a.o".to_owned(), to: "b.i".to_owned(), packets, ..LinkCounts::default() };
        let histogram = Histogram { classes: vec![(100, packets)], maximum: 99 };
        let counters = Snapshot {
            pid: 7,
            engine: [("started".to_owned(), started), ("breaths".to_owned(), packets)].into(),
            apps: vec![app("a"), app("b")],
            links: vec![link],
            histograms: [("latency".to_owned(), histogram)].into(),
            ..Snapshot::default()
        };
        Sample { counters, at: started + packets }
    }

    #[test]
    fn a_written_baseline_is_subtracted() {
        let runtime_dir = runtime_dir();
        assert!(!Since::read(&runtime_dir, &sample(5, 1_000)).is_clear());
        write(&runtime_dir, &sample(5, 400)).unwrap();
        let since = Since::read(&runtime_dir, &sample(5, 1_000));
        assert!(since.is_clear());
        let then = since.sample();
        assert_eq!((then.at, then.counters.engine("breaths")), (405, 400));
        assert_eq!(then.counters.apps, sample(5, 400).counters.apps);
        assert_eq!((then.counters.links[0].packets, then.counters.histograms["latency"].count()), (400, 400));
        let files: Vec<_> = fs::read_dir(runtime_dir.file("")).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(files.iter().all(|file| file == FILE || !file.to_string_lossy().contains(FILE)), "{files:?}");
    }

    #[test]
    fn a_baseline_of_another_run_is_ignored() {
        let runtime_dir = runtime_dir();
        write(&runtime_dir, &sample(5, 400)).unwrap();
        let since = Since::read(&runtime_dir, &sample(6, 1_000));
        assert!(!since.is_clear());
        assert_eq!((since.sample().at, since.sample().counters.engine("breaths")), (6, 0));
    }

    #[test]
    fn a_damaged_baseline_is_ignored() {
        let runtime_dir = runtime_dir();
        for text in ["", "{}", "{\"at_ns\": -1}", "\u{0}"] {
            fs::write(runtime_dir.file(FILE), text).unwrap();
            assert!(!Since::read(&runtime_dir, &sample(5, 1)).is_clear());
            forget(&runtime_dir, &Reloaded::default());
        }
    }

    #[test]
    fn the_baseline_of_replaced_apps_is_forgotten() {
        let runtime_dir = runtime_dir();
        let reloaded = Reloaded {
            added: vec!["b".to_owned()],
            links_added: vec!["a.o -> b.i".to_owned()],
            kept: vec!["a".to_owned()],
            ..Reloaded::default()
        };
        forget(&runtime_dir, &reloaded);
        assert!(!runtime_dir.file(FILE).exists());
        write(&runtime_dir, &sample(5, 400)).unwrap();
        forget(&runtime_dir, &reloaded);
        let since = Since::read(&runtime_dir, &sample(5, 1_000));
        let then = &since.sample().counters;
        assert_eq!((then.apps.len(), &*then.apps[0].name, then.links.len()), (1, "a", 0));
        assert_eq!(then.engine("breaths"), 400);
    }

    #[test]
    fn without_a_folder_the_error_names_the_path() {
        let runtime_dir = runtime_dir();
        runtime_dir.remove().unwrap();
        let said = write(&runtime_dir, &sample(5, 1)).unwrap_err().to_string();
        assert!(said.contains("baseline") && said.contains("cannot write"), "{said}");
    }
}
