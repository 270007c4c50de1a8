//! `bellows bench neighbours`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_lab::neighbours::{self, Options};
use bellows_lab::audience::Audience;
use bellows_lab::workers;
use clap::Args;

use crate::failure::Failure;
use crate::measuring::{failure, print, watched};
use crate::subcommand::{Execute, Program};

/// Measure what a guest notices of another one that attacks the engine
///
/// An engine with two virtio-net devices has a processor to itself. On another, one thread is an honest driver at the first
/// device and whoever is at the second, in turns: another honest driver for a while, then somebody who tries an attack.
/// A device pauses between short connections, as it does in production; without the pauses, attacks are tried more often.
/// Each case is an attack, its figure the clocks of a breath that 99.9 of 100 breaths do not exceed, beside the same of the
/// honest second driver. The honest driver must lose no packet, its packets must wait two breaths at most, and a breath
/// must not cost more than 1.5 times the clocks; else the report says what is broken, and the exit code is 1.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only attacks whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Seconds per process, shared out among the attacks
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Fresh processes; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Accept the next connection at once, however short the last one was
    #[arg(long)]
    without_pauses: bool,
    /// Folder with what fuzzers found, in `vring` and `vhost_messages`: more attacks
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
    /// The engine's processor [default: last allowed]
    #[arg(long, value_name = "N", value_parser = crate::arguments::processor)]
    cpu: Option<usize>,
    /// Do one task from standard input and write its result (how fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

/// How long, in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 0.1 to 86400".to_owned()),
    }
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        if self.measure {
            workers::answer(neighbours::measure)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            seconds: self.seconds,
            processes: self.processes.into(),
            cpu: self.cpu,
            pauses: !self.without_pauses,
            corpus: self.corpus.clone(),
            filter: self.case.clone(),
        };
        // What attackers do is not worth a line each.
        let again = ["bench", "neighbours", "--measure", "--log-level", "error"];
        let run = |audience: &mut dyn Audience| neighbours::run(&options, &again, audience);
        let report = watched(self.json, run).map_err(failure)?;
        print(&report, self.json, neighbours::text)
    }
}
