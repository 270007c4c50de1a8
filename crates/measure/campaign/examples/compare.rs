//! Compares two versions of a thing: `compare FILE RESULTS BUILDS [OLD [NEW]]`.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use bellows_campaign::{
    CampaignProgress, CompareOptions, Comparison, Folders, Journal, LocalExecutor, Observer, Row, RunId, Stop,
    build_versions, load, run,
};

/// Prints what is done.
struct Terminal;

impl Observer for Terminal {
    fn preparing(&mut self, what: &str) {
        eprintln!("{what}");
    }

    fn started(&mut self, _: RunId, _: &CampaignProgress) {}

    fn recorded(&mut self, row: &Row, CampaignProgress { done, all, .. }: &CampaignProgress) {
        eprintln!("{done} of {all}: {:?}", row.levels);
    }
}

fn main() -> ExitCode {
    match compared() {
        Ok(comparison) => {
            print!("{comparison}");
            if comparison.is_slower() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compared() -> Result<Comparison, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, results, builds, sides @ ..] = arguments.as_slice() else {
        return Err("give FILE RESULTS BUILDS [OLD [NEW]]".into());
    };
    let [file, results, builds] = [file, results, builds].map(Path::new);
    let mut loaded = load(file)?;
    let stop = Stop::new()?;
    let sides = [0, 1].map(|side| sides.get(side).map(String::as_str));
    build_versions(&mut loaded, sides, &Folders { file, results, builds }, &stop, &mut Terminal)?;
    let mut journal = Journal::open(results, &loaded.campaign, &loaded.text)?;
    let mut executor = LocalExecutor::new(&loaded.campaign, &loaded.folder)?.with_journal(&journal);
    run(&mut journal, &mut executor, &stop, &mut Terminal)?;
    Ok(Comparison::read(
        results,
        &loaded.campaign,
        &CompareOptions { margin: Some(0.02), ..CompareOptions::default() },
    )?)
}
