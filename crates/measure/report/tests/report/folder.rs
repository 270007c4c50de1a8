//! Reports of a campaign's folder, with hypotheses that were registered.

use std::path::Path;

use bellows_campaign::{
    ColumnNames, Folders, Journal, Loaded, LocalExecutor, Stop, build_versions, import_folder, load, register, run,
};
use bellows_report::{Report, ReportOptions, ResultSource};
use bellows_testkit::scratch;

/// Its runs print numbers that follow from the run's id: `new` is faster by 3, one in twelve of `large` fails, and the
/// campaign has two scores.
const CAMPAIGN: &str = r#"
name = "copies"
seed = 4
repeats = REPEATS
command = { shell = "n=$(( ({block} * 7919 + 13) % 11 )); test {size} = large -a $(( {block} % 12 )) = 5 && exit 9; echo time $(( {version.base} + n )) ms; echo pages $(( 100 + n ))" }

[factors]
version = [{ label = "old", base = "20" }, { label = "new", base = "17" }]
size = ["small", "large"]

[versions]
sh = ["echo", "shell 1.2"]

[[score]]
name = "time"
unit = "ms"
better = "lower"
pattern = 'time (?<time>\d+) ms'

[[score]]
name = "pages"
unit = "1"
pattern = 'pages (?<pages>\d+)'

[[hypothesis]]
name = "new is faster"
score = "time"
factor = "version"
compare = ["new", "old"]
direction = "less"
explored = 2
"#;

/// Writes the campaign file with `repeats` blocks.
fn plan(file: &Path, repeats: usize) {
    std::fs::write(file, CAMPAIGN.replace("REPEATS", &repeats.to_string())).unwrap();
}

fn make_runs(file: &Path, folder: &Path) {
    make_runs_of(&load(file).unwrap_or_else(|error| panic!("{error}")), folder);
}

pub fn make_runs_of(loaded: &Loaded, folder: &Path) {
    let mut journal = Journal::open(folder, &loaded.campaign, &loaded.text).unwrap();
    let mut executor = LocalExecutor::new(&loaded.campaign, &loaded.folder).unwrap().with_journal(&journal);
    run(&mut journal, &mut executor, &Stop::new().unwrap(), &mut ()).unwrap();
}

#[test]
fn a_folder_has_exploration_and_confirmation() {
    let scratch = scratch();
    let (file, folder) = (scratch.path().join("copies.toml"), scratch.path().join("copies.results"));
    plan(&file, 4);
    make_runs(&file, &folder);
    let before = Report::of(&ResultSource::open(&file, None).unwrap(), &ReportOptions::default()).unwrap();
    let refused = &before.confirmation.hypotheses[0].findings;
    assert!(refused[0].starts_with("Refused: it is not registered"), "{refused:?}");
    let of_folder = Report::of(&ResultSource::open(&folder, None).unwrap(), &ReportOptions::default()).unwrap();
    let note = of_folder.confirmation.note.unwrap();
    assert!(note.starts_with("No hypothesis is registered") && note.contains("Name the campaign file"), "{note}");
    plan(&file, 20);
    let loaded = load(&file).unwrap();
    register(&folder, &loaded.campaign, &loaded.campaign.hypotheses[0]).unwrap();
    make_runs(&file, &folder);

    // By the campaign file, and by the folder alone.
    for path in [&file, &folder] {
        let report = Report::of(&ResultSource::open(path, None).unwrap(), &ReportOptions::default()).unwrap();
        let setup = &report.setup;
        assert_eq!((report.title.as_str(), setup.runs, setup.blocks, setup.combinations), ("copies", 80, 20, 4));
        assert_eq!(setup.failed, 4, "two versions in blocks 5 and 17");
        assert!(setup.span.as_ref().is_some_and(|(first, last)| first < last));
        assert!(setup.command.as_ref().unwrap().contains("{version.base}"));
        assert_eq!(setup.factors[0].levels[1].values.as_deref(), Some("base = 17"));
        assert_eq!((setup.versions[0].name.as_str(), setup.versions[0].runs), ("sh: shell 1.2", 80));
        let shown: Vec<(&str, &str, usize, usize)> = report
            .sections
            .iter()
            .map(|section| (section.score.as_str(), section.unit.as_str(), section.runs, section.scored))
            .collect();
        assert_eq!(shown, [("time", "ms", 80, 76), ("pages", "", 80, 76)]);
        let time = &report.sections[0];
        assert_eq!(time.factor.as_deref(), Some("version"), "that of the hypothesis");
        assert_eq!(time.levels[0].label, "old", "levels are in the order of the file");
        assert!(time.failures[0].reason.starts_with("exit-code"), "{:?}", time.failures);
        let finding = time.findings.iter().find(|it| it.starts_with("Time is lower, which is better, with new"));
        assert!(finding.is_some_and(|it| it.contains("\u{2212}3.00 ms")), "{:?}", time.findings);
        let tested = &report.confirmation.hypotheses[0];
        assert_eq!(tested.statement, "The mean time is less with version new than with version old.");
        assert!(tested.findings[0].starts_with("Confirmed:"), "{:?}", tested.findings);
        let html = report.html().unwrap();
        for wanted in
            ["new is faster", "Confirmed:", "Registered 2", "less is better", "shell 1.2", "hash of the campaign"]
        {
            assert!(html.contains(wanted), "{wanted}");
        }
        assert!(report.text(100).contains("new is faster"));
    }

    // The file in the folder says how many runs are planned: with another one, nothing may be tested.
    let kept = folder.join("campaign.toml");
    let text = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(&kept, text.replace("seed = 4", "seed = 4\nexclude = [{ size = \"large\" }]")).unwrap();
    let Err(error) = ResultSource::open(&folder, None) else { panic!("a changed plan is taken") };
    assert!(error.to_string().contains("campaign"), "{error}");
}

#[test]
fn versions_that_were_built_are_those_of_the_folder() {
    let scratch = scratch();
    let at = |name: &str| scratch.path().join(name);
    let (file, folder) = (at("tool.toml"), at("tool.results"));
    let text = "name = 'tool'\nrepeats = 4\ncommand = ['sh', '{version.program}', '{block}']\n[build]\n[score]\n\
                pattern = 'took (?<time>\\d+)'\nunit = 'ms'\n";
    std::fs::write(&file, text).unwrap();
    for (name, time) in [("old", 20), ("new", 10)] {
        std::fs::write(at(name), format!("echo took $(( {time} + $1 % 3 ))\n")).unwrap();
    }
    let mut loaded = load(&file).unwrap_or_else(|error| panic!("{error}"));
    let folders = Folders { file: &file, results: &folder, builds: &at("tool.builds") };
    let [old, new] = [at("old"), at("new")].map(|path| path.display().to_string());
    build_versions(&mut loaded, [Some(&old), Some(&new)], &folders, &Stop::new().unwrap(), &mut ()).unwrap();
    make_runs_of(&loaded, &folder);
    for path in [&file, &folder] {
        let report = Report::of(&ResultSource::open(path, None).unwrap(), &ReportOptions::default()).unwrap();
        assert_eq!((report.setup.runs, report.setup.combinations, report.setup.failed), (8, 2, 0));
    }
    std::fs::write(&file, text.replace("'ms'", "'s'")).unwrap();
    let error = ResultSource::open(&file, None).unwrap_err().to_string();
    assert!(error.contains("another campaign") && !error.contains("compared"), "{error}");
}

#[test]
fn an_imported_folder_is_reported_as_its_table() {
    let scratch = scratch();
    let (table, folder) = (scratch.path().join("t.csv"), scratch.path().join("t.results"));
    std::fs::write(&table, "version,id,score\na,1,5\nb,1,7\na,2,6\nb,2,9\na,3,5\nb,3,7\n").unwrap();
    import_folder(&table, &folder, &ColumnNames::default()).unwrap();
    let report = Report::of(&ResultSource::open(&folder, None).unwrap(), &ReportOptions::default()).unwrap();
    let setup = &report.setup;
    assert_eq!(
        (&setup.command, &setup.machines[..], &setup.processors[..], &setup.kernels[..]),
        (&None, &[][..], &[][..], &[][..])
    );
    assert!(setup.notes[0].contains("were imported from") && setup.notes[0].contains("t.csv"), "{:?}", setup.notes);
    assert!(setup.notes[0].contains("commands of its runs are not known"), "{:?}", setup.notes);
    let note = report.confirmation.note.unwrap();
    assert!(note.starts_with("The results are a table, which has no register"), "{note}");
}

#[test]
fn files_are_told_by_what_they_hold() {
    let scratch = scratch();
    let at = |name: &str| scratch.path().join(name);
    plan(&at("copies.toml"), 1);
    make_runs(&at("copies.toml"), &at("copies.results"));
    std::fs::copy(at("copies.toml"), at("copies")).unwrap();
    assert_eq!(ResultSource::open(&at("copies"), None).unwrap().results.len(), 8, "a campaign file without .toml");
    std::fs::rename(at("copies.results"), at("other")).unwrap();
    assert_eq!(ResultSource::open(&at("copies"), Some(&at("other"))).unwrap().results.len(), 8);
    std::fs::write(at("numbers"), "a,score\nx,1\ny,2\n").unwrap();
    assert_eq!(ResultSource::open(&at("numbers"), None).unwrap().results.len(), 2, "a table without .csv");
    let error = |path: &Path, results| ResultSource::open(path, results).unwrap_err().to_string();
    let journal = error(&at("other/results.jsonl"), None);
    assert!(journal.ends_with(&format!("name its folder, {}", at("other").display())), "{journal}");
    let other = at("other");
    assert!(error(&other, Some(&other)).contains("is a results folder, which has its own results; leave out"));
    assert!(error(&at("other/results.csv"), Some(&other)).contains("is a table, which has its own results"));
}

#[test]
fn what_is_no_source_is_an_error_with_a_remedy() {
    let scratch = scratch();
    let error = |path: &Path| ResultSource::open(path, None).unwrap_err().to_string();
    assert!(error(scratch.path()).contains("has no results of a campaign; check the path"));
    assert!(error(&scratch.path().join("absent.csv")).contains("check the path"));
    let file = scratch.path().join("wrong.csv");
    std::fs::write(&file, "a,b\n1,2\n").unwrap();
    assert!(error(&file).contains("name the column of numbers `score`"), "{}", error(&file));
}
