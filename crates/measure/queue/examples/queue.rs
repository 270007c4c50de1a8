//! A coordinator, a worker and the status of a queue as small programs, for trials and for the tests:
//!
//! ```text
//! queue run FILE RESULTS URL [OPTION …]
//! queue worker FILE URL [OPTION …]
//! queue fetched-worker NAME SHA256 FOLDER URL [OPTION …]
//! queue status NAME URL [OPTION …]
//! queue purge NAME URL [OPTION …]
//! ```
//!
//! Options are `--credentials FILE`, `--ca FILE`, `--certificate FILE`, `--key FILE`, `--lease MILLISECONDS`,
//! `--blocks N`, `--name NAME` and `--split`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bellows_campaign::{CampaignProgress, Journal, Loaded, Observer, Row, RunId, Stop, load};
use bellows_queue::{
    CoordinatorOptions, QueueName, Server, ServerLink, WorkerOptions, coordinate, fetch, purge, status, work,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Words {
    positional: Vec<String>,
    server: Server,
    coordinator: CoordinatorOptions,
    worker: WorkerOptions,
    name: Option<String>,
}

fn words() -> Result<Words, Box<dyn Error>> {
    let mut words = Words {
        positional: Vec::new(),
        server: Server::default(),
        coordinator: CoordinatorOptions::default(),
        worker: WorkerOptions::default(),
        name: None,
    };
    let (mut certificate, mut key) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} has no value"));
        match argument.as_str() {
            "--credentials" => words.server.credentials = Some(PathBuf::from(value()?)),
            "--certificate" => certificate = Some(PathBuf::from(value()?)),
            "--key" => key = Some(PathBuf::from(value()?)),
            "--ca" => words.server.ca = Some(PathBuf::from(value()?)),
            "--lease" => words.coordinator.lease = Duration::from_millis(value()?.parse()?),
            "--blocks" => words.worker.max_blocks = Some(value()?.parse()?),
            "--name" => words.name = Some(value()?),
            "--split" => words.coordinator.may_split = true,
            _ => words.positional.push(argument),
        }
    }
    words.server.certificate = certificate.zip(key);
    words.server.url = words.positional.pop().ok_or("there is no URL")?;
    Ok(words)
}

fn run() -> Result<(), Box<dyn Error>> {
    let Words { positional, server, coordinator, worker, name } = words()?;
    let positional: Vec<&str> = positional.iter().map(String::as_str).collect();
    let link = ServerLink::connect(&server, positional[0], Arc::new(|text: &str| eprintln!("{text}")))?;
    let name_of = |loaded: &Loaded| match &name {
        Some(name) => name.parse(),
        None => Ok(QueueName::of_campaign(&loaded.campaign.name)),
    };
    match positional[..] {
        ["run", file, results] => {
            let loaded = load(Path::new(file)).map_err(|diagnostics| diagnostics.to_string())?;
            let mut journal = Journal::open(Path::new(results), &loaded.campaign, &loaded.text)?;
            let name = name_of(&loaded)?;
            let summary = coordinate(&link, &name, &loaded, &mut journal, &coordinator, &*stop()?, &mut Printer)?;
            println!("{} of {}", summary.done, summary.all);
        }
        ["worker", file] => {
            let loaded = load(Path::new(file)).map_err(|diagnostics| diagnostics.to_string())?;
            println!("{:?}", work(&link, &name_of(&loaded)?, &loaded, &worker, &*stop()?, &mut Printer)?);
        }
        ["fetched-worker", name, sha256, folder] => {
            let name = name.parse()?;
            let loaded = fetch(&link, &name, sha256, Path::new(folder))?;
            println!("{:?}", work(&link, &name, &loaded, &worker, &*stop()?, &mut Printer)?);
        }
        ["status", name] => {
            let status = status(&link, &name.parse()?)?;
            println!("{}", serde_json::to_string_pretty(&status)?);
        }
        ["purge", name] => println!("{:?}", purge(&link, &name.parse()?)?),
        _ => return Err("see the source for the arguments".into()),
    }
    Ok(())
}

struct Printer;

impl Observer for Printer {
    fn started(&mut self, run: RunId, _: &CampaignProgress) {
        println!("started {run}");
    }

    fn recorded(&mut self, row: &Row, progress: &CampaignProgress) {
        println!("recorded {}, {} of {}", row.run, progress.done, progress.all);
    }
}

/// A request to end that signals make.
fn stop() -> Result<Arc<Stop>, std::io::Error> {
    let stop = Arc::new(Stop::new()?);
    let (mut signals, request) = (Signals::new([SIGINT, SIGTERM])?, Arc::clone(&stop));
    std::thread::spawn(move || signals.forever().for_each(|_| request.set()));
    Ok(stop)
}
