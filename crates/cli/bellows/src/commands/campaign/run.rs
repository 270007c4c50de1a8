//! `bellows campaign run`.

use std::process::ExitCode;

use bellows_campaign::{Journal, LocalExecutor, run};
use bellows_inspect::text::sanitize;
use clap::Args;

use super::observer::{Printer, stop_at_signals};
use super::queue::{self, Coordination, OptionalQueue, QueueOptions};
use super::{CampaignPlace, execute_error, journal_error, run_error, say, shown};
use crate::command_error::{CommandError, INTERRUPTED};
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Make the runs that have no results yet
///
/// Each run prints a line. With --queue workers make the runs, on any machines. Ctrl-C ends the run that is being made,
/// which is not recorded; the same command goes on there later.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    place: CampaignPlace,
    /// The number of blocks, instead of that in the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    #[command(flatten)]
    queue: OptionalQueue,
    /// Give a block to another worker after this time without a sign of life of its worker [default: 30s]
    #[arg(long, value_name = "TIME", requires = "url")]
    lease: Option<bellows_config::Duration>,
    /// Let the rest of a block that was begun on one machine be made on another one
    #[arg(long, requires = "url")]
    split_blocks: bool,
    /// Print each run as a line of JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  bellows campaign run sizes.toml
  bellows campaign run sizes.toml --repeats 30 --results monday
  bellows campaign run sizes.toml --queue nats://lab  # workers make the runs";

/// Who makes the runs.
enum Maker<'c> {
    Here(Box<LocalExecutor<'c>>),
    Workers(QueueOptions),
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let (loaded, folder) = (self.place.load_own()?, self.place.folder());
        let stop = stop_at_signals()?;
        // What cannot work is reported before there is a folder.
        let maker = match self.queue.given() {
            None => {
                let executor = LocalExecutor::new(&loaded.campaign, &loaded.folder).map_err(execute_error)?;
                Maker::Here(Box::new(executor))
            }
            Some(queue) => {
                queue::check(&queue, &loaded.campaign.name)?;
                Maker::Workers(queue)
            }
        };
        let mut journal = Journal::open(&folder, &loaded.campaign, &loaded.text).map_err(journal_error)?;
        if let Some(repeats) = self.repeats {
            journal.set_repeats(repeats).map_err(journal_error)?;
        }
        journal.notes().iter().for_each(|note| say(note));
        let mut printer = Printer::new(self.json);
        let summary = match maker {
            Maker::Here(executor) => {
                let mut executor = executor.with_journal(&journal);
                run(&mut journal, &mut executor, &stop, &mut printer).map_err(run_error)?
            }
            Maker::Workers(queue) => {
                let how = Coordination { lease: self.lease.map(Into::into), may_split: self.split_blocks };
                queue::coordinate(&queue, &how, &loaded, &mut journal, &stop, &mut printer)?
            }
        };
        if !self.json {
            let [done, all, made, failed] = [summary.done, summary.all, summary.made, summary.failed].map(shown);
            let failures = if summary.failed == 0 { String::new() } else { format!(", {failed} without a score") };
            terminal::print(&format!(
                "{done} of {all} runs have results{failures}; {made} were made now: {}\n",
                sanitize(&folder.join(bellows_campaign::TABLE).display().to_string())
            ))?;
        }
        Ok(if summary.interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
    }
}
