//! Post-mortems of crashed runs: which ones are kept when the name is taken again, and how they are numbered.
//!
//! A post-mortem stays in its runtime directory, and is renamed to `NAME@N` there. Runs of one name may have crashed in
//! several directories, so readers number post-mortems by age across all of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{RuntimeDir, folders_in};

/// The number of post-mortems kept for a name.
pub const POST_MORTEMS: usize = 5;

/// A run that starts this soon after the one before it belongs to a series of restarts.
const RESTART_WINDOW: Duration = Duration::from_secs(600);

/// The file that marks a run as part of a series of restarts.
pub(super) const RESTARTED: &str = "restarted";

/// The network's name in a folder's name, and the number of the post-mortem, or 0. `None` if it is not a network's
/// folder.
pub(super) fn parse(folder: &str) -> Option<(String, usize)> {
    let (name, number) = match folder.split_once('@') {
        Some((name, number)) => (name, number.parse().ok().filter(|number| *number > 0)?),
        None => (folder, 0),
    };
    RuntimeDir::is_name(name).then(|| (name.to_owned(), number))
}

/// Numbers the runs in several directories of one user: a name's newest run has the number 0 if its folder has none,
/// and the others follow by age. Sorted by name and number.
pub(super) fn number(directories: Vec<Vec<RuntimeDir>>) -> Vec<RuntimeDir> {
    let mut names: BTreeMap<String, Vec<(SystemTime, RuntimeDir)>> = BTreeMap::new();
    for mut runs in directories {
        runs.sort_by(|one, other| (&one.name, one.number).cmp(&(&other.name, other.number)));
        let mut last: Option<(String, SystemTime)> = None;
        for runtime_dir in runs {
            // Within a directory the numbers give the age, even if the clock was set back between two runs.
            let age = last.take().filter(|(name, _)| *name == runtime_dir.name).map(|(_, time)| time);
            let time = age.map_or_else(|| runtime_dir.recency(), |age| age.min(runtime_dir.recency()));
            last = Some((runtime_dir.name.clone(), time));
            names.entry(runtime_dir.name.clone()).or_default().push((time, runtime_dir));
        }
    }
    let numbered = names.into_values().flat_map(|mut runs| {
        runs.sort_by_key(|(time, _)| Reverse(*time));
        let first = usize::from(runs.iter().all(|(_, runtime_dir)| runtime_dir.number > 0));
        for (index, (_, runtime_dir)) in runs.iter_mut().enumerate() {
            runtime_dir.number = first + index;
        }
        runs.into_iter().map(|(_, runtime_dir)| runtime_dir)
    });
    numbered.collect()
}

impl RuntimeDir {
    /// The order of a name's runs: by start time. A live run is newer than all that have ended.
    fn recency(&self) -> SystemTime {
        const FAR: Duration = Duration::from_secs(1 << 40);
        let start = self.claimed().unwrap_or(SystemTime::UNIX_EPOCH);
        let is_live = self.number == 0 && self.process().is_some();
        if is_live { SystemTime::UNIX_EPOCH + FAR } else { start }
    }
}

/// Makes post-mortems of the folders that runs of a name left in these directories, if they contain counters, and
/// returns whether the next run belongs to a series of restarts.
pub(super) fn archive(directories: &[PathBuf], name: &str) -> Result<bool, (PathBuf, io::Error)> {
    let mut last: Vec<&PathBuf> = directories.iter().filter(|directory| directory.join(name).exists()).collect();
    // The newest is archived last, and has the lowest number.
    last.sort_by_key(|directory| RuntimeDir::at(directory, name, 0).claimed());
    let mut is_restart = false;
    for directory in last {
        is_restart |= archive_in(directory, directories, name).map_err(|error| (directory.join(name), error))?;
    }
    Ok(is_restart)
}

fn archive_in(directory: &Path, directories: &[PathBuf], name: &str) -> io::Result<bool> {
    let last = RuntimeDir::at(directory, name, 0);
    let is_restart = last.claimed().and_then(|claimed| claimed.elapsed().ok()).is_some_and(|age| age < RESTART_WINDOW);
    if !last.counters().exists() || last.identity().is_none() {
        // It ended before it had an engine.
        last.remove()?;
        return Ok(false);
    }
    let archived = |directory: &PathBuf| {
        let runs = folders_in(directory).into_iter();
        runs.filter(|runtime_dir| runtime_dir.name == name && runtime_dir.number > 0).collect::<Vec<_>>()
    };
    let mut kept = number(directories.iter().map(archived).collect());
    while kept.len() >= POST_MORTEMS {
        let oldest_restart = kept.iter().rposition(|runtime_dir| runtime_dir.file(RESTARTED).exists());
        kept.remove(oldest_restart.unwrap_or(kept.len() - 1)).remove()?;
    }
    let numbered = |number: usize| directory.join(format!("{name}@{number}"));
    // First close the gaps, then move each by one to make room, so that no target name is taken.
    let here: Vec<RuntimeDir> =
        kept.into_iter().filter(|runtime_dir| runtime_dir.folder.parent() == Some(directory)).collect();
    for (index, runtime_dir) in here.iter().enumerate() {
        if runtime_dir.folder != numbered(index + 1) {
            fs::rename(&runtime_dir.folder, numbered(index + 1))?;
        }
    }
    for number in (1..=here.len()).rev() {
        fs::rename(numbered(number), numbered(number + 1))?;
    }
    fs::rename(&last.folder, numbered(1))?;
    Ok(is_restart)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;

    /// The folder that a run of process 1 leaves (which is not the process that started at 1), with this start time.
    fn crash(directory: &Path, name: &str, content: &str, is_restart: bool, start: SystemTime) {
        let folder = directory.join(name);
        super::super::make_private_folder(&folder).unwrap();
        fs::write(folder.join("identity"), "1 1\n").unwrap();
        fs::File::open(folder.join("identity")).unwrap().set_modified(start).unwrap();
        fs::write(folder.join("counters"), content).unwrap();
        if is_restart {
            fs::write(folder.join(RESTARTED), "").unwrap();
        }
    }

    /// The post-mortems of a name: numbers, and the contents of the counters.
    fn kept(directories: &[PathBuf], name: &str) -> Vec<(usize, String)> {
        let runs = number(directories.iter().map(|directory| folders_in(directory)).collect()).into_iter();
        let kept = runs.filter(|runtime_dir| runtime_dir.name == name && runtime_dir.number > 0);
        kept.map(|runtime_dir| (runtime_dir.number, fs::read_to_string(runtime_dir.counters()).unwrap())).collect()
    }

    /// The same, numbered from 1.
    fn contents(directories: &[PathBuf], name: &str) -> Vec<String> {
        let kept = kept(directories, name);
        assert!(kept.iter().enumerate().all(|(index, (number, _))| *number == index + 1), "{kept:?}");
        kept.into_iter().map(|(_, content)| content).collect()
    }

    #[test]
    fn the_first_crash_of_a_series_of_restarts_is_kept() {
        let folder = Folder::new("archived");
        let directory = [folder.0.clone()];
        let now = SystemTime::now();
        for run in 0..20 {
            // A similar name is left alone.
            assert!(archive(&directory, "a").unwrap() || run == 0);
            crash(&folder.0, "a", &run.to_string(), run > 1, now);
        }
        assert_eq!(contents(&directory, "a"), ["18", "17", "16", "1", "0"]);
        for run in 0..20 {
            archive(&directory, "a-1").unwrap();
            crash(&folder.0, "a-1", &run.to_string(), false, now);
        }
        assert_eq!(contents(&directory, "a-1"), ["18", "17", "16", "15", "14"]);
        assert_eq!(contents(&directory, "a"), ["18", "17", "16", "1", "0"]);
        fs::remove_dir_all(folder.0.join("a@2")).unwrap();
        fs::remove_file(folder.0.join("a/identity")).unwrap();
        assert!(!archive(&directory, "a").unwrap(), "what never ran is no post-mortem");
        crash(&folder.0, "a", "20", false, now);
        archive(&directory, "a").unwrap();
        assert_eq!(contents(&directory, "a"), ["20", "18", "16", "1", "0"]);
    }

    #[test]
    fn crashes_in_several_directories_are_numbered_by_age() {
        let (one, two) = (Folder::new("one"), Folder::new("two"));
        let directories = [one.0.clone(), two.0.clone()];
        let start = |run: u64| SystemTime::now() - Duration::from_secs(10_000 - 700 * run);
        for run in 0..8 {
            archive(&directories, "a").unwrap();
            crash(if run % 3 == 0 { &two.0 } else { &one.0 }, "a", &run.to_string(), false, start(run));
        }
        assert_eq!(contents(&directories, "a"), ["6", "5", "4", "3", "2"], "five in all directories together");
        let names = |directory: &Path| {
            let runs = number(vec![folders_in(directory)]).into_iter();
            runs.map(|runtime_dir| runtime_dir.folder.file_name().unwrap().to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&one.0), ["a", "a@1", "a@2", "a@3"]);
        assert_eq!(names(&two.0), ["a@1", "a@2"], "each stays where it was");
        // Two crashes without numbers, as older versions left them: only one has the name.
        crash(&two.0, "a", "8", false, start(8));
        assert_eq!(contents(&directories, "a"), ["7", "6", "5", "4", "3", "2"]);
        archive(&directories, "a").unwrap();
        assert_eq!(contents(&directories, "a"), ["8", "7", "6", "5", "4"]);
    }

    #[test]
    fn a_clock_that_was_set_back_reorders_nothing() {
        let folder = Folder::new("clock");
        let directory = [folder.0.clone()];
        for run in 0..4 {
            archive(&directory, "a").unwrap();
            crash(&folder.0, "a", &run.to_string(), false, SystemTime::now() - Duration::from_secs(1_000 * run));
        }
        assert_eq!(contents(&directory, "a"), ["2", "1", "0"]);
    }

    #[test]
    fn only_a_valid_name_is_a_networks_folder() {
        assert_eq!(parse("edge-1.x_"), Some(("edge-1.x_".to_owned(), 0)));
        assert_eq!(parse("edge@12"), Some(("edge".to_owned(), 12)));
        for name in ["", ".lock", "edge@", "edge@0", "edge@x", "@1", "a b", "a\u{1b}[2J", "a\n", "a/b", "a@1@2"] {
            assert_eq!(parse(name), None, "{name:?}");
        }
    }
}
