//! `bellows campaign register`.

use std::process::ExitCode;

use bellows_campaign::{HypothesisRecord, Journal, JournalError, register};
use bellows_inspect::text::sanitize;
use clap::Args;
use serde_json::json;

use super::{CampaignPlace, journal_error, say, shown};
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Fix the text of the file's hypotheses, and the time: only later runs can confirm them
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    place: CampaignPlace,
    /// The number of blocks after which the hypotheses are tested, instead of that in the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let (mut loaded, folder) = (self.place.load_hypotheses()?, self.place.folder());
        loaded.campaign.repeats = self.repeats.unwrap_or(loaded.campaign.repeats);
        // The folder gets its campaign, as by a run; a runner that uses it has done so.
        match Journal::open(&folder, &loaded.campaign, &loaded.text) {
            Ok(journal) => journal.notes().iter().for_each(|note| say(note)),
            Err(JournalError::Locked { .. }) => {}
            Err(error) => return Err(journal_error(error)),
        }
        let records = loaded.campaign.hypotheses.iter().map(|it| register(&folder, &loaded.campaign, it));
        let records: Vec<HypothesisRecord> = records.collect::<Result<_, _>>().map_err(journal_error)?;
        if self.json {
            terminal::print(&format!("{:#}\n", json!(records)))?;
        } else {
            for HypothesisRecord { hypothesis, time, rows, hash, .. } in &records {
                let name = sanitize(&hypothesis.name);
                terminal::print(&format!("{name}\n  registered {time}, after {} runs, as {hash}\n", shown(*rows)))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
