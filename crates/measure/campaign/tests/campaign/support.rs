//! Campaigns for tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bellows_campaign::{Campaign, Journal, LocalExecutor, Observer, Row, Stop, Summary, parse, read_rows, run};

/// The campaign of a text, which has no errors.
pub fn campaign(text: &str) -> Campaign {
    parse("test.toml", text).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

/// A campaign with a shell line as its command and a score that its output has as `score=NUMBER`.
pub fn shell(line: &str, more: &str) -> Campaign {
    campaign(&format!(
        "name = 'test'\ncommand = {{ shell = '''{line}''' }}\n{more}\n\
         [factors]\nsize = [64, 1500]\n\
         [score]\npattern = 'score=(?<score>\\S+)'\nunit = 'Mpps'\n"
    ))
}

/// How long a process sleeps that must be ended before: no other test run has this number, and one that is left behind
/// ends by itself.
pub fn long(number: u32) -> String {
    format!("120.{number}{}", std::process::id())
}

/// The processes whose command has a text.
pub fn processes_with(text: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let has_text = |path: &PathBuf| {
        let words = fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).replace('\0', " ").contains(text)
    };
    entries.filter(has_text).collect()
}

/// Makes the runs of a campaign that a folder lacks.
pub fn go_on(folder: &Path, campaign: &Campaign) -> Summary {
    watch(folder, campaign, &Stop::new().unwrap(), &mut ())
}

/// The same, until it is stopped.
pub fn watch(folder: &Path, campaign: &Campaign, stop: &Stop, observer: &mut dyn Observer) -> Summary {
    let mut journal = Journal::open(folder, campaign, "").unwrap();
    let mut executor = LocalExecutor::new(campaign, Path::new(".")).unwrap().with_journal(&journal);
    run(&mut journal, &mut executor, stop, observer).unwrap_or_else(|error| panic!("{error}"))
}

/// The rows of a campaign that is made from the start.
pub fn rows(campaign: &Campaign) -> Vec<Row> {
    let folder = bellows_testkit::scratch();
    go_on(folder.path(), campaign);
    read_rows(folder.path()).unwrap()
}
