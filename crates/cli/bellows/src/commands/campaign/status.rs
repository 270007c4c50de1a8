//! `bellows campaign status`.

use std::process::ExitCode;

use bellows_campaign::{Planned, QueueStatus, Status};
use bellows_inspect::text::sanitize;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::queue::{self, OptionalQueue};
use super::{CampaignPlace, journal_error, shown};
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::plural;

/// Print how far a campaign is
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    place: CampaignPlace,
    #[command(flatten)]
    queue: OptionalQueue,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// How far a campaign is, and what its queue has.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Campaign in a queue")]
pub struct QueuedStatus {
    /// What `status` prints without `--queue`; null if this machine has no results of the campaign.
    status: Option<Status>,
    /// The queue.
    queue: QueueStatus,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let queue = match self.queue.given() {
            Some(queue) => Some(queue::status(&queue, &self.place.load()?.campaign.name)?),
            None => None,
        };
        // A queue can be looked at from any machine.
        let status = match (Status::read(&self.place.folder()), &queue) {
            (Ok(mut status), _) => {
                // The number of blocks may be another one than when the folder was made.
                if let Ok(loaded) = self.place.load() {
                    status.plan(loaded.campaign.repeats);
                }
                Some(status)
            }
            (Err(_), Some(_)) => None,
            (Err(error), None) => return Err(journal_error(error)),
        };
        let (queue_text, queue) = queue.unzip();
        let text = match (self.json, queue) {
            (true, Some(queue)) => format!("{:#}\n", json!(QueuedStatus { status, queue })),
            (true, None) => format!("{:#}\n", json!(status)),
            (false, _) => status.as_ref().map(text_of).unwrap_or_default() + &queue_text.unwrap_or_default(),
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        true
    }
}

/// How far a campaign is.
fn text_of(status: &Status) -> String {
    let Planned { block, runs, .. } = status.planned;
    let done = status.done();
    let mut lines = vec![match runs {
        Some(runs) => format!("{}: {} of {}", status.name, shown(done), plural(runs as u64, "run")),
        None => format!("{}: {}", status.name, plural(done as u64, "run")),
    }];
    if let (Some((begun, made)), Some(block)) = (status.begun(), block) {
        lines[0] += &format!(", block {begun} has {} of {}", shown(made), shown(block));
    }
    if status.rows > done {
        lines.push(format!("  {} of more blocks than planned", plural((status.rows - done) as u64, "run")));
    }
    if let Some((first, last)) = &status.span {
        lines.push(format!("  from {first} to {last}"));
    }
    lines.push(format!("  {}", plural(status.blocks.len() as u64, "block")));
    for (kind, number) in &status.failed {
        lines.push(format!("  {} without a score: {}", shown(*number), kind.name()));
    }
    if status.disturbed > 0 {
        lines.push(format!("  {} were disturbed", shown(status.disturbed)));
    }
    for (machine, runs) in &status.machines {
        lines.push(format!("  {} on {machine}", shown(*runs)));
    }
    lines.push(if status.running {
        "  a runner makes more".to_owned()
    } else {
        "  no runner uses the folder".to_owned()
    });
    lines.iter().map(|line| sanitize(line) + "\n").collect()
}
