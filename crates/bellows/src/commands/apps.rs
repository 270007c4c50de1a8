//! `bellows apps`.

use std::process::ExitCode;

use bellows_config::{Entry, Registry};
use clap::Args;
use serde_json::Value;

use crate::failure::Failure;
use crate::terminal;
use crate::text::{Align, Table};

/// List the apps that a network file can name, or print the manual of one
#[derive(Debug, Args)]
pub struct Arguments {
    /// The app whose manual to print; `engine` for the settings in the table `[engine]`
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print manuals as JSON, each with the JSON Schema of its keys
    #[arg(long)]
    json: bool,
}

/// The widest that a manual is set: longer lines are hard to read.
const WIDEST: usize = 100;

pub fn execute(arguments: &Arguments, registry: &Registry) -> Result<ExitCode, Failure> {
    let width = terminal::size().map_or(WIDEST, |(columns, _)| columns.min(WIDEST));
    let text = match arguments.name.as_deref() {
        None if arguments.json => json(&registry.entries().map(Entry::manual_json).collect()),
        None => list(registry),
        Some(name) => match registry.get(name) {
            Some(entry) if arguments.json => json(&entry.manual_json()),
            Some(entry) => entry.manual_text(width),
            None if name == "engine" && arguments.json => json(&bellows_config::engine_manual().json()),
            None if name == "engine" => bellows_config::engine_manual().text(width),
            None => return Err(unknown(name, registry)),
        },
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

fn list(registry: &Registry) -> String {
    let mut table = Table::new(&[("APP", Align::Left), ("WHAT IT DOES", Align::Left)]);
    for entry in registry.entries() {
        table.row([entry.name().to_owned(), entry.summary()]);
    }
    table.render(terminal::stdout_is_rich())
}

fn unknown(name: &str, registry: &Registry) -> Failure {
    let way_out = match registry.nearest(name) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`bellows apps` lists them".to_owned(),
    };
    Failure::Mistake(format!("there is no app `{name}`; {way_out}"))
}
