//! `bellows apps`.

use std::process::ExitCode;

use bellows_config::{CompoundEntry, Entry, Registry};
use clap::Args;
use serde_json::Value;

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{Align, Table, wrapped};

/// List app types, or print the manual of an app or a shared object
#[derive(Debug, Args)]
pub struct Arguments {
    /// App type, type of shared objects, or `engine` for the settings in [engine]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print manuals as JSON, with the JSON Schema of their keys
    #[arg(long)]
    json: bool,
}

/// The maximum width of a manual. Longer lines are hard to read.
const MAX_WIDTH: usize = 100;

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        let width = terminal::size().map_or(MAX_WIDTH, |(columns, _)| columns.min(MAX_WIDTH));
        let text = match self.name.as_deref() {
            None if self.json => {
                let (apps, compounds) = (program.registry.entries(), program.registry.compounds());
                let mut manuals: Vec<Value> =
                    apps.map(Entry::manual_json).chain(compounds.map(CompoundEntry::manual_json)).collect();
                manuals.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
                json(&Value::Array(manuals))
            }
            None => list(&program.registry),
            Some(name) => {
                let manual = manual(name, &program.registry, self.json, width);
                manual.ok_or_else(|| unknown(name, &program.registry))?
            }
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The manual of an app, a compound app, the engine, or a type of shared objects.
fn manual(name: &str, registry: &Registry, as_json: bool, width: usize) -> Option<String> {
    let either = |text: &dyn Fn() -> String, value: &dyn Fn() -> Value| if as_json { json(&value()) } else { text() };
    if let Some(entry) = registry.get(name) {
        return Some(either(&|| entry.manual_text(width), &|| entry.manual_json()));
    }
    if let Some(entry) = registry.compound(name) {
        return Some(either(&|| entry.manual_text(width), &|| entry.manual_json()));
    }
    if name == "engine" {
        let manual = bellows_config::engine_manual();
        return Some(either(&|| manual.text(width), &|| manual.json()));
    }
    let entry = registry.object(name)?;
    Some(either(&|| entry.manual_text(width), &|| entry.manual_json()))
}

fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

fn list(registry: &Registry) -> String {
    let mut table = Table::new(&[("APP", Align::Left), ("WHAT IT DOES", Align::Left)]);
    let names = registry.names().map(|name| name.chars().count()).max().unwrap_or(0);
    // Programs that read the list expect one app on each line.
    let room = terminal::size().map_or(usize::MAX, |(columns, _)| columns.saturating_sub(names + 2).max(20));
    for (name, summary) in registry.summaries() {
        let lines = wrapped(&summary, room);
        for (index, line) in lines.into_iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            table.row([name.to_owned(), line]);
        }
    }
    table.render(terminal::stdout_is_rich())
}

fn unknown(name: &str, registry: &Registry) -> CommandError {
    let remedy = match registry.nearest(name) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`bellows apps` lists them".to_owned(),
    };
    CommandError::Usage(format!("there is no app `{name}`; {remedy}"))
}
