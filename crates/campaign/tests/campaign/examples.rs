//! The example campaigns.

use bellows_campaign::{Plan, load};

#[test]
fn the_examples_are_campaigns_that_can_be_made() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let loaded = load(&path).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
            assert!(Plan::new(&loaded.campaign).runs_in_all() > 1 && loaded.folder.is_dir(), "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3);
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
