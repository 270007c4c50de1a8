//! `bellows check`.

use std::process::ExitCode;

use bellows_config::Registry;
use clap::Args;
use serde_json::json;

use crate::cli::NetworkFile;
use crate::failure::Failure;
use crate::terminal;
use crate::text::plural;

/// Report all that is wrong with a network file, without running it
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    file: NetworkFile,
    /// Print the result as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

pub fn execute(arguments: &Arguments, registry: &Registry) -> Result<ExitCode, Failure> {
    let loaded = arguments.file.load(registry);
    if arguments.json {
        let (diagnostics, apps, links) = match &loaded {
            Ok(loaded) => (&loaded.warnings, loaded.network.apps.len(), loaded.network.links.len()),
            Err(diagnostics) => (diagnostics, 0, 0),
        };
        let result = json!({
            "network": arguments.file.path, "ok": loaded.is_ok(), "apps": apps, "links": links,
            "diagnostics": diagnostics.to_json(),
        });
        terminal::print(&format!("{result:#}\n"))?;
        return Ok(if loaded.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) });
    }
    let loaded = loaded.map_err(|diagnostics| Failure::Diagnosed(diagnostics.render(terminal::stderr_is_rich())))?;
    terminal::complain(&loaded.warnings.render(terminal::stderr_is_rich()));
    let (apps, links) = (loaded.network.apps.len() as u64, loaded.network.links.len() as u64);
    let path = arguments.file.path.display();
    terminal::print(&format!("{path}: fine ({}, {})\n", plural(apps, "app"), plural(links, "link")))?;
    Ok(ExitCode::SUCCESS)
}
