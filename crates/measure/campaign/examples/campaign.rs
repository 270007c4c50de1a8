//! Makes the runs of a campaign: `campaign FILE FOLDER [REPEATS]`.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use bellows_campaign::{CampaignProgress, Journal, LocalExecutor, Observer, Row, RunId, Stop, load, run};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Prints each run.
struct Terminal;

impl Observer for Terminal {
    fn started(&mut self, _: RunId, _: &CampaignProgress) {}

    fn recorded(&mut self, row: &Row, progress: &CampaignProgress) {
        let CampaignProgress { done, all, left, .. } = progress;
        let left = left.map_or(String::new(), |left| format!(", {} s left", left.as_secs()));
        let scores = row.scores.iter().map(|score| match score.value {
            Some(value) => format!("{value} {}", score.unit),
            None => "no score".to_owned(),
        });
        let why = row.first_failure().map_or(String::new(), |failure| format!(" ({failure})"));
        println!("{done} of {all}{left}: {:?} {}{why}", row.levels, scores.collect::<Vec<_>>().join(", "));
    }
}

fn main() -> ExitCode {
    match made() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The exit code: 130 if the campaign was interrupted.
fn made() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, folder, repeats @ ..] = arguments.as_slice() else { return Err("give FILE FOLDER [REPEATS]".into()) };
    let loaded = load(Path::new(file))?;
    let stop = Arc::new(Stop::new()?);
    let (signals, request) = (Signals::new([SIGINT, SIGTERM])?, stop.clone());
    std::thread::spawn(move || {
        let mut signals = signals;
        signals.forever().for_each(|_| request.set());
    });
    let mut journal = Journal::open(Path::new(folder), &loaded.campaign, &loaded.text)?;
    if let [repeats] = repeats {
        journal.set_repeats(repeats.parse()?)?;
    }
    journal.notes().iter().for_each(|note| eprintln!("{note}"));
    let mut executor = LocalExecutor::new(&loaded.campaign, &loaded.folder)?.with_journal(&journal);
    let summary = run(&mut journal, &mut executor, &stop, &mut Terminal)?;
    println!("{} of {} runs, {} without a score", summary.done, summary.all, summary.failed);
    Ok(if summary.interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS })
}
