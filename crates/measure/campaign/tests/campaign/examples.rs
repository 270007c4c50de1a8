//! The example campaigns.

use bellows_campaign::{Plan, load};

fn files(folder: &str) -> Vec<std::path::PathBuf> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

#[test]
fn the_examples_are_campaigns_that_can_be_made() {
    let paths = files("examples");
    for path in &paths {
        let loaded = load(path).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        assert!(Plan::new(&loaded.campaign).runs_in_all() > 1 && loaded.folder.is_dir(), "{}", path.display());
    }
    assert!(paths.len() >= 3);
}

/// Each says how many runs a block has.
#[test]
fn the_campaigns_that_come_with_bellows_have_the_runs_that_they_say() {
    let paths = files("../../../bench/campaigns");
    for path in &paths {
        let loaded = load(path).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        let combinations = Plan::new(&loaded.campaign).combinations();
        let is_paired = loaded.campaign.build.is_some() || loaded.campaign.paired.is_some();
        let stated = match is_paired {
            true => format!("A block has {} pairs of runs", combinations / 2),
            false => format!("A block has {combinations} runs"),
        };
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(&stated), "{}: {stated}", path.display());
    }
    assert!(paths.len() >= 5);
}

/// The first example needs no other program.
#[test]
fn the_first_example_runs() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/checksums.toml");
    let mut loaded = load(&path).unwrap();
    loaded.campaign.repeats = 1;
    let folder = bellows_testkit::scratch();
    let mut journal = bellows_campaign::Journal::open(folder.path(), &loaded.campaign, &loaded.text).unwrap();
    let mut executor = bellows_campaign::LocalExecutor::new(&loaded.campaign, &loaded.folder).unwrap();
    let stop = bellows_campaign::Stop::new().unwrap();
    let summary = bellows_campaign::run(&mut journal, &mut executor, &stop, &mut ()).unwrap();
    assert_eq!((summary.done, summary.failed), (summary.all, 0), "{:?}", bellows_campaign::read_rows(folder.path()));
}

/// Nor does the example of two versions.
#[test]
fn the_example_of_two_programs_runs() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/two-programs.toml");
    let mut loaded = load(&path).unwrap();
    loaded.campaign.repeats = 3;
    let scratch = bellows_testkit::scratch();
    let (results, builds) = (scratch.path().join("results"), scratch.path().join("builds"));
    let folders = bellows_campaign::Folders { file: &path, results: &results, builds: &builds };
    let stop = bellows_campaign::Stop::new().unwrap();
    let programs = ["md5sum", "sha256sum"].map(|name| bellows_testkit::programs::find_program(name).unwrap());
    let sides = programs.each_ref().map(|path| path.to_str());
    bellows_campaign::build_versions(&mut loaded, sides, &folders, &stop, &mut ()).unwrap();
    let mut journal = bellows_campaign::Journal::open(&results, &loaded.campaign, &loaded.text).unwrap();
    let mut executor = bellows_campaign::LocalExecutor::new(&loaded.campaign, &loaded.folder).unwrap();
    let summary = bellows_campaign::run(&mut journal, &mut executor, &stop, &mut ()).unwrap();
    assert_eq!((summary.done, summary.failed), (12, 0), "{:?}", bellows_campaign::read_rows(&results));
    let options = bellows_campaign::CompareOptions::default();
    let found = bellows_campaign::Comparison::read(&results, &loaded.campaign, &options).unwrap();
    assert_eq!((found.results.len(), found.whole.len(), found.is_same), (2, 1, false));
}
