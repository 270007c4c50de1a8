//! `bellows show saved`: what commands have saved.

use std::process::ExitCode;

use bellows_inspect::control::{Reply, Request, SavedChanges, SavedEntry, SavedKey, ask};
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::command_error::CommandError;
use crate::terminal;
use crate::text::{Align, Table, date_and_time};

/// What is saved of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "What is saved", extend("includes" = ["Saved changes"]))]
pub struct ShownSaved {
    /// The network's name.
    name: String,
    #[serde(flatten)]
    saved: SavedChanges,
}

pub fn execute(runtime_dir: &RuntimeDir, as_json: bool) -> Result<ExitCode, CommandError> {
    let saved = match ask(runtime_dir, &Request::Saved)? {
        Reply::Saved(saved) => saved,
        other => return Err(CommandError::Failed(format!("unexpected reply: {other:?}"))),
    };
    if as_json {
        terminal::print(&format!("{:#}\n", json!(ShownSaved { name: runtime_dir.name(), saved })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let SavedChanges { file, entries, keys_file, keys } = saved;
    if entries.is_empty() && keys.is_empty() {
        terminal::notice(&format!(
            "nothing of `{}` is saved; `bellows route`, `bellows neighbour` and `bellows esp rekey` save their changes \
             with `--save`\n",
            runtime_dir.name()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let both = [(!entries.is_empty(), changes(entries), file), (!keys.is_empty(), associations(keys), keys_file)];
    let shown = both.into_iter().filter(|(is_there, ..)| *is_there);
    let text =
        |(_, text, file): (bool, String, Option<String>)| format!("{text}in {}\n", sanitize(&file.unwrap_or_default()));
    terminal::print(&shown.map(text).collect::<Vec<_>>().join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The routes and neighbours, and what is wrong with them.
fn changes(entries: Vec<SavedEntry>) -> String {
    let mut table = Table::new(&[("VRF", Align::Left), ("WHAT", Align::Left), ("COMMAND", Align::Left)]);
    let mut problems = String::new();
    for entry in entries {
        if let Some(problem) = &entry.problem {
            problems += &format!("left out: `{}` of `{}`: {problem}\n", entry.command, entry.vrf);
        }
        table.row([entry.vrf, entry.what, entry.command]);
    }
    table.render(terminal::stdout_is_rich()) + &sanitize(&problems)
}

/// The keys, and what is wrong with them.
fn associations(keys: Vec<SavedKey>) -> String {
    let columns = ["APP", "PAIR", "DIRECTION", "SPI", "CIPHER", "SAVED (UTC)"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns);
    let mut problems = String::new();
    for SavedKey { app, pair, direction, spi, algorithm, saved_unix_ns, problem } in keys {
        if let Some(problem) = &problem {
            problems += &format!("left out: `{direction}` of `{pair}` of `{app}`: {problem}\n");
        }
        let time = date_and_time(saved_unix_ns);
        let time = time.split_once('.').map_or(&*time, |(time, _)| time).to_owned();
        table.row([app, pair, sanitize(&direction), format!("{spi:#010x}"), sanitize(&algorithm), time]);
    }
    table.render(terminal::stdout_is_rich()) + &sanitize(&problems)
}
