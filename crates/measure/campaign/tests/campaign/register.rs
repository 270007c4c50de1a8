//! Hypotheses: what was stated, when, and which runs can confirm it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bellows_campaign::{
    Campaign, Conclusion, Evidence, JOURNAL, JournalError, REGISTER, Register, Standing, Use, register, verdicts,
};
use bellows_testkit::scratch;

use crate::support::{go_on, shell};

fn stated(repeats: u32, margin: f64, explored: u32) -> Campaign {
    let hypothesis = format!(
        "[[hypothesis]]\nname = 'larger is faster'\nfactor = 'size'\ncompare = [1500, 64]\ndirection = 'greater'\n\
         margin = {margin:?}\nexplored = {explored}\n\
         [[hypothesis]]\nname = 'other'\nfactor = 'size'\ncompare = [64, 1500]"
    );
    shell("echo score={size}", &format!("repeats = {repeats}\n{hypothesis}"))
}

/// What each block's rows can be used for.
fn uses(folder: &Path, campaign: &Campaign) -> Vec<(u32, Use)> {
    let evidence = Evidence::of(folder, campaign).unwrap();
    let Standing::Registered(record) = evidence.register().standing(&campaign.hypotheses[0]) else { panic!() };
    let blocks = evidence.results().ids.iter().copied();
    let mut uses: Vec<_> = blocks.zip(evidence.uses(record)).collect();
    uses.dedup();
    uses
}

#[test]
fn runs_made_before_or_looked_at_confirm_nothing() {
    let folder = scratch();
    go_on(folder.path(), &stated(2, 0.0, 0));
    let campaign = stated(5, 0.5, 3);
    let first = register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    go_on(folder.path(), &campaign);
    let (explored, confirms) = (Use::Explored, Use::Confirmation);
    let expected = [(1, explored), (2, explored), (3, explored), (4, confirms), (5, confirms)];
    assert_eq!(uses(folder.path(), &campaign), expected);
    let again = register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    assert_eq!((again, first.rows), (first.clone(), 4), "registered once");

    // Without having been looked at, the first runs were made before.
    let campaign = stated(6, 0.5, 0);
    assert!(matches!(Register::read(folder.path()).unwrap().standing(&campaign.hypotheses[0]), Standing::Changed(_)));
    let second = register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    assert_eq!((second.previous, second.rows), (Some(first.hash), 10));
    let before: Vec<_> = (1..=5).map(|block| (block, Use::MadeBefore)).collect();
    assert_eq!(uses(folder.path(), &campaign), before);
    let unregistered = &campaign.hypotheses[1];
    assert_eq!(Register::read(folder.path()).unwrap().standing(unregistered), Standing::Unregistered);
}

#[test]
fn a_hypothesis_registered_before_any_run_is_confirmed_by_all() {
    let folder = scratch();
    let campaign = stated(2, 0.0, 0);
    register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    go_on(folder.path(), &campaign);
    assert_eq!(uses(folder.path(), &campaign), [(1, Use::Confirmation), (2, Use::Confirmation)]);
}

#[test]
fn a_later_change_of_text_or_time_shows() {
    let folder = scratch();
    let campaign = stated(1, 0.0, 0);
    for hypothesis in &campaign.hypotheses {
        register(folder.path(), &campaign, hypothesis).unwrap();
    }
    go_on(folder.path(), &campaign);
    let path = folder.path().join(REGISTER);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let year = |line: &str| line.replacen("\"time\":\"2", "\"time\":\"1", 1);
    for (changed, line, why) in [
        (text.replacen("\"margin\":0.0", "\"margin\":0.5", 1), 1, "its text was changed"),
        (format!("{}\n{}\n", year(lines[0]), lines[1]), 1, "its time or what"),
        (format!("{}\n", lines[1]), 1, "a record before it"),
        (format!("{}\n{}\n", lines[0], lines[0]), 2, "a record before it"),
    ] {
        assert_ne!(changed, text);
        fs::write(&path, changed).unwrap();
        let error = Register::read(folder.path()).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { line: found, .. } if found == line), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    // One that is removed from the end is missed, too: also where no row names it.
    let without_last = format!("{}\n", lines[0]);
    fs::write(&path, &without_last).unwrap();
    let error = Register::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("has 1 records, but had 2"), "{error}");
    fs::remove_file(folder.path().join("hypotheses.head")).unwrap();
    let error = verdicts(folder.path(), &campaign).unwrap_err();
    assert!(matches!(error, JournalError::Disagreement { line: 1, .. }), "{error}");
    assert!(error.to_string().contains("the row of run 1."), "{error}");
    fs::write(&path, &text).unwrap();
    assert_eq!(uses(folder.path(), &campaign), [(1, Use::Confirmation)]);

    // A register that is made anew agrees with itself, but not with the rows.
    fs::remove_file(&path).unwrap();
    register(folder.path(), &stated(2, 0.0, 0), &campaign.hypotheses[0]).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    record["time"] = "1999-01-01T00:00:00.000Z".into();
    record["rows"] = 0.into();
    record["journal"] = EMPTY.into();
    let fields = ["text", "campaign", "time", "host", "repeats", "rows", "journal", "previous"]
        .map(|key| (key, record[key].clone()));
    record["hash"] = hash_of(&fields.into()).into();
    fs::write(&path, format!("{record}\n")).unwrap();
    fs::remove_file(folder.path().join("hypotheses.head")).unwrap();
    let error = verdicts(folder.path(), &campaign).unwrap_err().to_string();
    assert!(error.contains("results.jsonl, line 1: ") && error.contains("was removed or changed"), "{error}");
}

/// The hash of nothing.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Rows from before a hypothesis was registered are those that they were.
#[test]
fn a_change_of_rows_before_a_hypothesis_shows() {
    let folder = scratch();
    go_on(folder.path(), &stated(2, 0.0, 0));
    let campaign = stated(3, 0.0, 0);
    register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    let path = folder.path().join(JOURNAL);
    let before = fs::read_to_string(&path).unwrap();
    go_on(folder.path(), &campaign);
    let text = fs::read_to_string(&path).unwrap();
    let score = "\"value\":1500.0";
    for (changed, line, why) in [
        (text.replacen(score, "\"value\":1501.0", 1), 5, "the 4 rows until here"),
        (text.split_once('\n').unwrap().1.to_owned(), 4, "was recorded with 1 of the register's records, but 0"),
        (before.split_once('\n').unwrap().1.to_owned(), 3, "has 3 rows, but had 4"),
        (before.replacen(score, "\"value\":1501.0", 1), 4, "the 4 rows until here"),
        (format!("{}{text}", text.split_inclusive('\n').next().unwrap()), 5, "the 4 rows until here"),
    ] {
        fs::write(&path, changed).unwrap();
        let error = verdicts(folder.path(), &campaign).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(matches!(error, JournalError::Disagreement { line: found, .. } if found == line), "{line}: {error}");
    }
    fs::write(&path, &text).unwrap();
    assert!(verdicts(folder.path(), &campaign).is_ok());
}

/// A score that grows with the block, with a hypothesis that is tested after `planned` blocks.
fn planned(repeats: u32, planned: u32) -> Campaign {
    let line = "if [ {size} = 64 ]; then echo score=$(({block} % 3)); else echo score=$(({block} % 2 + 10)); fi";
    shell(
        line,
        &format!(
            "repeats = {repeats}\n[[hypothesis]]\nname = 'larger is faster'\nfactor = 'size'\ncompare = [1500, 64]\n\
             direction = 'greater'\nrepeats = {planned}"
        ),
    )
}

/// Neither fewer nor more runs than were planned decide.
#[test]
fn a_hypothesis_is_tested_after_its_planned_number_of_runs() {
    let folder = scratch();
    register(folder.path(), &planned(4, 6), &planned(4, 6).hypotheses[0]).unwrap();
    let mut last = None;
    for (blocks, conclusion, missing, beyond) in [
        (1, Conclusion::Refused, 10, 0),
        (5, Conclusion::Refused, 2, 0),
        (6, Conclusion::Confirmed, 0, 0),
        (9, Conclusion::Confirmed, 0, 6),
    ] {
        go_on(folder.path(), &planned(blocks, 6));
        let verdict = verdicts(folder.path(), &planned(blocks, 6)).unwrap().remove(0);
        assert_eq!((verdict.conclusion, verdict.repeats), (conclusion, Some(6)), "{verdict:#?}");
        assert_eq!((verdict.runs.missing, verdict.runs.beyond_plan), (missing, beyond));
        match verdict.refused {
            Some(why) => {
                assert!(why.contains(&format!("{missing} runs are not made yet")) && why.contains("6"), "{why}")
            }
            None => assert!(last.replace(verdict.confirmation).is_none_or(|last| last == verdict.confirmation)),
        }
        assert!(missing == 0 || verdict.confirmation.is_none());
    }
}

#[test]
fn a_hypothesis_without_runs_to_come_is_not_registered() {
    let folder = scratch();
    go_on(folder.path(), &planned(2, 2));
    let error = register(folder.path(), &planned(2, 2), &planned(2, 2).hypotheses[0]).unwrap_err();
    assert!(matches!(error, JournalError::NoRunsLeft { repeats: 2, .. }), "{error}");
    assert!(register(folder.path(), &planned(2, 3), &planned(2, 3).hypotheses[0]).is_ok());
}

/// What was registered counts, also if the file no longer says it.
#[test]
fn a_dropped_hypothesis_is_corrected_for() {
    let folder = scratch();
    let campaign = planned(3, 3);
    let mut other = campaign.clone();
    other.hypotheses[0].name = "smaller is faster".to_owned();
    other.hypotheses[0].compare.reverse();
    for campaign in [&campaign, &other] {
        register(folder.path(), campaign, &campaign.hypotheses[0]).unwrap();
    }
    go_on(folder.path(), &campaign);
    let found = verdicts(folder.path(), &campaign).unwrap();
    let names: Vec<_> = found.iter().map(|it| (it.hypothesis.name.as_str(), it.stated)).collect();
    assert_eq!(names, [("larger is faster", true), ("smaller is faster", false)]);
    let estimate = found[0].confirmation.unwrap();
    assert_eq!(estimate.corrected_p, Some(2.0 * estimate.p));
}

/// The hash of a record's fields, as anyone can compute it.
fn hash_of(fields: &BTreeMap<&str, serde_json::Value>) -> String {
    let file = scratch();
    // The keys are sorted, and there are no nested tables.
    let path = bellows_testkit::scratch::write(&file, "fields", serde_json::to_string(fields).unwrap());
    let output = std::process::Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

#[test]
fn a_hypothesis_belongs_to_its_campaign() {
    let folder = scratch();
    go_on(folder.path(), &shell("echo score=1", ""));
    let other = stated(1, 0.0, 0);
    let error = register(folder.path(), &other, &other.hypotheses[0]).unwrap_err();
    assert!(matches!(error, JournalError::OtherCampaign { .. }), "{error}");
}

/// A record that was written in part by a crash is none.
#[test]
fn a_torn_register_is_recovered() {
    let folder = scratch();
    let campaign = stated(1, 0.0, 0);
    register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    let path = folder.path().join(REGISTER);
    let whole = fs::read(&path).unwrap();
    register(folder.path(), &campaign, &campaign.hypotheses[1]).unwrap();
    let both = fs::read(&path).unwrap();
    fs::write(&path, &both[..both.len() - 9]).unwrap();
    // The crash was before its name was written.
    fs::remove_file(folder.path().join("hypotheses.head")).unwrap();
    assert_eq!(Register::read(folder.path()).unwrap().records().len(), 1);
    let again = register(folder.path(), &campaign, &campaign.hypotheses[1]).unwrap();
    let known = Register::read(folder.path()).unwrap();
    assert_eq!((known.records().len(), known.head()), (2, Some(again.hash)));
    assert!(fs::read(&path).unwrap().starts_with(&whole));
}
