//! Hypotheses: what was stated, when, and which runs can confirm it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bellows_campaign::{Campaign, JournalError, REGISTER, Register, Standing, Use, read_rows, register};
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
    let known = Register::read(folder).unwrap();
    let Standing::Registered(record) = known.standing(&campaign.hypotheses[0]) else { panic!() };
    let rows = read_rows(folder).unwrap();
    let mut uses: Vec<_> = rows.iter().map(|row| row.run.block).zip(known.uses(record, &rows)).collect();
    uses.dedup();
    uses
}

#[test]
fn runs_made_before_or_looked_at_confirm_nothing() {
    let folder = scratch();
    go_on(folder.path(), &stated(2, 0.0, 0));
    let campaign = stated(5, 0.5, 3);
    let first = register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(5));
    go_on(folder.path(), &campaign);
    let (explored, confirms) = (Use::Explored, Use::Confirmation);
    let expected = [(1, explored), (2, explored), (3, explored), (4, confirms), (5, confirms)];
    assert_eq!(uses(folder.path(), &campaign), expected);
    let again = register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    assert_eq!((again, first.rows), (first.clone(), 4), "registered once");

    // Without having been looked at, the first runs were made before.
    let campaign = stated(5, 0.5, 0);
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
    std::thread::sleep(std::time::Duration::from_millis(5));
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
    std::thread::sleep(std::time::Duration::from_millis(5));
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
    fs::write(&path, &text).unwrap();
    assert_eq!(uses(folder.path(), &campaign), [(1, Use::Confirmation)]);

    // A register that is made anew agrees with itself, but not with the rows.
    fs::remove_file(&path).unwrap();
    register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    record["time"] = "1999-01-01T00:00:00.000Z".into();
    record["rows"] = 0.into();
    let fields = ["text", "campaign", "time", "rows", "journal", "previous"].map(|key| (key, record[key].clone()));
    record["hash"] = hash_of(&fields.into()).into();
    fs::write(&path, format!("{record}\n")).unwrap();
    assert_eq!(uses(folder.path(), &campaign), [(1, Use::Contradictory)]);
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
    assert_eq!(Register::read(folder.path()).unwrap().records().len(), 1);
    let again = register(folder.path(), &campaign, &campaign.hypotheses[1]).unwrap();
    let known = Register::read(folder.path()).unwrap();
    assert_eq!((known.records().len(), known.head()), (2, Some(again.hash)));
    assert!(fs::read(&path).unwrap().starts_with(&whole));
}
