//! The results folder: crashes at any moment, other campaigns, other runners.

use std::fs;
use std::path::Path;

use bellows_campaign::{
    Campaign, Hash, JOURNAL, Journal, JournalError, Machine, Plan, Results, Row, Score, TABLE, import_file,
    is_results_file, read_rows,
};
use bellows_testkit::scratch;
use proptest::prelude::*;

use crate::support::{campaign, go_on, shell};

/// A row as a program would give it that prints a number which depends on the run.
fn row(campaign: &Campaign, run: bellows_campaign::RunId) -> Row {
    let plan = Plan::new(campaign);
    let levels = campaign.factors.iter().zip(plan.levels(run).unwrap());
    let machine = Machine {
        host: "h\"ost, \n".to_owned(),
        cpu: "CPU @ 3 GHz".to_owned(),
        cpus: "0, 1".to_owned(),
        os: "Linux 6".to_owned(),
        load: 0.1,
        steal: None,
        yardstick_before: 1.0 / 3.0,
        yardstick_after: 1.1,
    };
    let value = Some(f64::from(run.combination) / 7.0 + f64::from(run.block) * 1e-17);
    Row {
        run,
        campaign: plan.hash(),
        levels: levels.map(|(factor, level)| (factor.name.clone(), factor.levels[*level].label.clone())).collect(),
        scores: vec![Score { name: "score".to_owned(), unit: "Mpps".to_owned(), value, failure: None }],
        failure: None,
        disturbed: Vec::new(),
        start: "2026-01-01T00:00:00.000Z".to_owned(),
        seconds: 0.1,
        machine,
        versions: Default::default(),
        registered: None,
        known: None,
    }
}

/// Makes all pending runs at once.
fn complete(folder: &Path, campaign: &Campaign) -> usize {
    let mut journal = Journal::open(folder, campaign, "text").unwrap();
    let pending = journal.pending();
    for run in &pending {
        journal.append(row(campaign, *run)).unwrap();
    }
    pending.len()
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).unwrap()
}

/// The names of files that were moved aside.
fn aside(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut aside: Vec<String> = names.filter(|name| name.contains(".torn-") || name.contains(".changed-")).collect();
    aside.sort();
    aside
}

#[test]
fn a_journal_torn_at_any_byte_is_recovered() {
    let campaign = shell("true", "exclude = [{ size = 64 }]\nrepeats = 2");
    let folder = scratch();
    assert_eq!(complete(folder.path(), &campaign), 2);
    let (rows, table) = (read(folder.path(), JOURNAL), read(folder.path(), TABLE));
    for length in 0..=rows.len() {
        fs::write(folder.path().join(JOURNAL), &rows[..length]).unwrap();
        fs::remove_file(folder.path().join(TABLE)).unwrap();
        let lines = rows[..length].iter().filter(|byte| **byte == b'\n').count();
        let is_torn = length > 0 && rows[length - 1] != b'\n';
        let mut journal = Journal::open(folder.path(), &campaign, "text").unwrap();
        assert_eq!(journal.rows(), lines, "{length}");
        assert_eq!(journal.notes().len(), usize::from(is_torn), "{length}: {:?}", journal.notes());
        for run in journal.pending() {
            journal.append(row(&campaign, run)).unwrap();
        }
        assert_eq!(read(folder.path(), JOURNAL), rows, "{length}");
        assert_eq!(read(folder.path(), TABLE), table, "{length}");
        let aside = folder.path().join(format!("{JOURNAL}.torn-1"));
        assert_eq!(aside.exists(), is_torn, "{length}");
        if is_torn {
            let start = rows[..length].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
            assert_eq!(fs::read(&aside).unwrap(), rows[start..length]);
            fs::remove_file(aside).unwrap();
        }
    }
}

#[test]
fn a_table_torn_at_any_byte_follows_the_journal() {
    let campaign = shell("true", "repeats = 2");
    let folder = scratch();
    complete(folder.path(), &campaign);
    let table = read(folder.path(), TABLE);
    for length in 0..table.len() {
        fs::write(folder.path().join(TABLE), &table[..length]).unwrap();
        let journal = Journal::open(folder.path(), &campaign, "text").unwrap();
        assert!(journal.notes().is_empty() && read(folder.path(), TABLE) == table, "{length}");
    }
    assert!(aside(folder.path()).is_empty());
    fs::write(folder.path().join(TABLE), "size,id,score\n64,1,3\n").unwrap();
    let journal = Journal::open(folder.path(), &campaign, "text").unwrap();
    assert!(journal.notes()[0].contains("did not agree with the journal"), "{:?}", journal.notes());
    assert_eq!((read(folder.path(), TABLE), aside(folder.path())), (table, vec![format!("{TABLE}.changed-1")]));
}

/// A disk may lose the middle of what was written last.
#[test]
fn a_last_line_with_lost_bytes_is_recovered() {
    let campaign = shell("true", "repeats = 2");
    let folder = scratch();
    complete(folder.path(), &campaign);
    let rows = read(folder.path(), JOURNAL);
    let last = rows[..rows.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let mut lost = rows.clone();
    lost[last + 10..rows.len() - 1].fill(0);
    fs::write(folder.path().join(JOURNAL), &lost).unwrap();
    assert_eq!(complete(folder.path(), &campaign), 1);
    assert_eq!(read(folder.path(), JOURNAL), rows);
    // In the middle it is no crash.
    let mut damaged = rows.clone();
    damaged[5..20].fill(0);
    fs::write(folder.path().join(JOURNAL), &damaged).unwrap();
    let error = Journal::open(folder.path(), &campaign, "text").err().unwrap().to_string();
    assert!(error.contains("results.jsonl, line 1") && error.contains("restore the file"), "{error}");
    assert_eq!(read(folder.path(), JOURNAL), damaged, "and nothing is changed");
}

#[test]
fn more_repeats_keep_the_first_runs() {
    let folder = scratch();
    let few = shell("true", "repeats = 2");
    assert_eq!(complete(folder.path(), &few), 4);
    let first = read(folder.path(), JOURNAL);
    let many = shell("true", "repeats = 5\n# and a comment");
    assert_eq!(complete(folder.path(), &many), 6);
    assert!(read(folder.path(), JOURNAL).starts_with(&first));
    assert_eq!(complete(folder.path(), &few), 0);
    let results = Results::read(folder.path()).unwrap();
    assert_eq!((results.len(), results.ids.iter().filter(|id| **id <= 2).count()), (10, 4));
}

#[test]
fn another_campaign_is_refused() {
    let folder = scratch();
    complete(folder.path(), &shell("true", ""));
    for (other, key) in [
        (shell("false", ""), "`command`"),
        (shell("true", "seed = 9"), "`seed`"),
        (shell("true", "exclude = [{ size = 64 }]"), "`exclude`"),
        (shell("true", "warmup = 2\ncpus = [0]"), "`cpus`, `warmup`"),
    ] {
        let error = Journal::open(folder.path(), &other, "").err().unwrap();
        assert!(matches!(error, JournalError::OtherCampaign { .. }));
        let text = error.to_string();
        assert!(text.contains(&format!("differs in {key};")) && text.contains("give another folder"), "{text}");
    }
    let text = "name = 'x'\ncommand = ['x']\n[factors]\na = [1]\n[score]\nunit = '1'\njson = 'x'\n";
    let text = Journal::open(folder.path(), &campaign(text), "").err().unwrap().to_string();
    assert!(text.contains("differs in `command`, `factors`, `score`;"), "{text}");
}

#[test]
fn a_row_of_another_campaign_is_told() {
    let campaign = shell("true", "");
    let folder = scratch();
    complete(folder.path(), &campaign);
    let text = String::from_utf8(read(folder.path(), JOURNAL)).unwrap();
    let other = "0".repeat(64);
    fs::write(folder.path().join(JOURNAL), text.replace(&Plan::new(&campaign).hash().to_string(), &other)).unwrap();
    let error = Journal::open(folder.path(), &campaign, "").err().unwrap().to_string();
    assert!(error.contains("another campaign") && other.parse::<Hash>().is_ok(), "{error}");
}

#[test]
fn one_runner_at_a_time() {
    let campaign = shell("true", "");
    let folder = scratch();
    let first = Journal::open(folder.path(), &campaign, "").unwrap();
    let error = Journal::open(folder.path(), &campaign, "").err().unwrap().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())) && error.contains("wait for it"), "{error}");
    drop(first);
    Journal::open(folder.path(), &campaign, "").unwrap();
}

#[test]
fn rows_with_the_same_run_count_once() {
    let campaign = shell("true", "");
    let folder = scratch();
    complete(folder.path(), &campaign);
    let rows = read(folder.path(), JOURNAL);
    fs::write(folder.path().join(JOURNAL), [rows.clone(), rows].concat()).unwrap();
    assert_eq!(read_rows(folder.path()).unwrap().len(), 2);
    assert_eq!(Results::read(folder.path()).unwrap().len(), 2);
    fs::remove_file(folder.path().join(TABLE)).unwrap();
    let mut journal = Journal::open(folder.path(), &campaign, "").unwrap();
    assert_eq!((journal.rows(), read(folder.path(), TABLE).split(|byte| *byte == b'\n').count()), (2, 1 + 4 + 1));
    assert!(journal.set_repeats(5_000_000).is_ok() && journal.set_repeats(5_000_001).is_err());
}

#[test]
fn the_table_says_the_same_as_the_journal() {
    let folder = scratch();
    let campaign = shell("test {size} = 64 && echo score=0.1", "repeats = 3");
    go_on(folder.path(), &campaign);
    let (journal, table) = (Results::read(folder.path()).unwrap(), import_file(&folder.path().join(TABLE)).unwrap());
    assert_eq!((journal.len(), journal.failures(), table.failures()), (6, 3, 3));
    let words = |results: &Results| -> Vec<String> {
        let size = results.factor("size").unwrap();
        (0..results.len())
            .map(|row| {
                let score = results.scores[row];
                let [unit, reason] =
                    [results.units.word(results.unit[row]), results.reasons.word(results.failure[row])];
                format!("{} {} {score} {unit} {reason}", size.levels.word(size.rows[row]), results.ids[row])
            })
            .collect()
    };
    assert_eq!(words(&journal), words(&table));
    assert_eq!(journal.factors.len(), table.factors.len(), "no other column is a factor");
    let header = String::from_utf8(read(folder.path(), TABLE)).unwrap();
    assert!(header.starts_with("size,id,score,unit,failure,run,start,"), "{header}");
    assert!(header.contains("\n1500,1,NA,Mpps,exit-code: the command ended with exit code 1,1."), "{header}");
}

#[test]
fn several_scores_are_rows_of_their_own() {
    let text = "name = 'x'\ncommand = ['echo', '{{\"a\": 1, \"b\": 2}}']\n[factors]\nf = [1]\n\
                [[score]]\nname = 'a'\nunit = 'ns'\njson = 'a'\n[[score]]\nname = 'b'\nunit = 'Mpps'\njson = 'c'\n";
    let folder = scratch();
    go_on(folder.path(), &campaign(text));
    let table = String::from_utf8(read(folder.path(), TABLE)).unwrap();
    assert!(
        table.contains("\n1,a,1,1,ns,,1.1,") && table.contains("\n1,b,1,NA,Mpps,no-score: there is nothing"),
        "{table}"
    );
    let results = Results::read(folder.path()).unwrap();
    assert_eq!((results.len(), results.failures(), results.measures.all()), (2, 1, &["a", "b"].map(str::to_owned)[..]));
}

#[test]
fn a_folder_without_results_is_told() {
    let folder = scratch();
    let error = Results::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("has no results of a campaign; check the path"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Interrupted at any runs, torn at any bytes, with any number of repeats meanwhile: the same files as without.
    #[test]
    fn resumed_is_the_same_as_uninterrupted(
        cuts in proptest::collection::vec((0..6usize, 0..400usize, 1..5u32), 0..6),
    ) {
        let campaign = |repeats: u32| shell("true", &format!("repeats = {repeats}"));
        let whole = scratch();
        complete(whole.path(), &campaign(4));
        let folder = scratch();
        for (runs, torn, repeats) in cuts {
            let campaign = campaign(repeats);
            let mut journal = Journal::open(folder.path(), &campaign, "text").unwrap();
            for run in journal.pending().into_iter().take(runs) {
                journal.append(row(&campaign, run)).unwrap();
            }
            drop(journal);
            let rows = read(folder.path(), JOURNAL);
            let mut kept = rows.len().saturating_sub(torn);
            // Only the last line is ever torn.
            if let Some(last) = rows[..rows.len().saturating_sub(1)].iter().rposition(|byte| *byte == b'\n') {
                kept = kept.max(last + 1);
            }
            fs::write(folder.path().join(JOURNAL), &rows[..kept]).unwrap();
        }
        complete(folder.path(), &campaign(4));
        let order = |folder: &Path| {
            let mut rows = read_rows(folder).unwrap();
            rows.sort_by_key(|row| row.run);
            rows
        };
        prop_assert_eq!(order(folder.path()), order(whole.path()));
        prop_assert_eq!(read(folder.path(), JOURNAL), read(whole.path(), JOURNAL));
        // The table of a run that was torn in the journal was ahead of it, and is written again.
        prop_assert_eq!(read(folder.path(), TABLE), read(whole.path(), TABLE));
    }
}

/// The order of factors in a file may change; that of the table's columns does not.
#[test]
fn the_table_keeps_its_columns() {
    let folder = scratch();
    let text = |factors: &str, repeats: u32| {
        let start = format!("name = 'test'\nrepeats = {repeats}\ncommand = {{ shell = 'true' }}\n");
        campaign(&format!("{start}[factors]\n{factors}\n[score]\npattern = '(?<x>.)'\nunit = 'Mpps'\n"))
    };
    let (first, turned) = ("a = [1, 2]\nb = [3]", "b = [3]\na = [2, 1]");
    complete(folder.path(), &text(first, 1));
    complete(folder.path(), &text(turned, 2));
    let lines = String::from_utf8(read(folder.path(), TABLE)).unwrap();
    assert!(
        lines.starts_with("a,b,id,") && lines.matches(",Mpps,").count() == 4 && aside(folder.path()).is_empty(),
        "{lines}"
    );
    assert_eq!(Results::read(folder.path()).unwrap().factors[0].name, "a");
}

#[test]
fn failures_beyond_the_plan_do_not_count() {
    let folder = scratch();
    let failing = |repeats: u32| shell("exit 1", &format!("repeats = {repeats}"));
    assert_eq!(go_on(folder.path(), &failing(3)).failed, 6);
    let summary = go_on(folder.path(), &failing(1));
    assert_eq!((summary.done, summary.all, summary.failed), (2, 2, 2));
}

/// A table that differs from the journal is kept beside, and its equal part is not lost.
#[test]
fn a_table_that_differs_anywhere_is_written_again() {
    let folder = scratch();
    let campaign = shell("true", "repeats = 3");
    complete(folder.path(), &campaign);
    let table = read(folder.path(), TABLE);
    for place in (0..table.len()).step_by(7) {
        let mut changed = table.clone();
        changed[place] ^= 1;
        for changed in [changed, [table.as_slice(), b"more"].concat()] {
            fs::write(folder.path().join(TABLE), &changed).unwrap();
            let journal = Journal::open(folder.path(), &campaign, "").unwrap();
            assert_eq!(journal.notes().len(), 1, "{place}: {:?}", journal.notes());
            drop(journal);
            assert!(read(folder.path(), TABLE) == table, "{place}");
            let kept = folder.path().join(&aside(folder.path())[0]);
            assert!(fs::read(&kept).unwrap() == changed, "{place}");
            fs::remove_file(kept).unwrap();
        }
    }
}

#[test]
fn a_status_says_what_is_planned() {
    let folder = scratch();
    let text = "name = 'it'\nrepeats = 4\ncommand = ['echo', 'score=1']\n\
                [factors]\nsize = [64, 1500, 9000]\n[score]\npattern = 'score=(?<score>\\S+)'\nunit = 's'\n";
    let campaign = campaign(text);
    let mut journal = Journal::open(folder.path(), &campaign, text).unwrap();
    for run in journal.pending().into_iter().take(4) {
        assert!(journal.append(row(&campaign, run)).unwrap());
    }
    let mut status = bellows_campaign::Status::read(folder.path()).unwrap();
    let planned = bellows_campaign::Planned { block: Some(3), blocks: Some(4), runs: Some(12) };
    assert_eq!((status.planned, status.done(), status.begun()), (planned, 4, Some((2, 1))));
    for (name, is_kept) in [("results.csv", true), ("lock", true), ("report.html", false)] {
        assert_eq!(is_results_file(&folder.path().join(name)), is_kept, "{name}");
    }
    assert!(!is_results_file(&scratch().path().join("results.csv")));
    status.plan(1);
    assert_eq!((status.planned.runs, status.done()), (Some(3), 3));
}
