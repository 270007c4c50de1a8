//! `bellows reload`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::control::{ReloadReport, Reply, Request, ask};
use crate::failure::Failure;
use crate::observe;
use crate::terminal::{self, harmless};
use crate::text::{plural, span};

/// Have a running network read its file again, or another one in its place
///
/// What did not change keeps its state and its packets. If the new network is wrong, it is reported and the old one
/// runs on. The settings in `[engine]` are fixed when the process starts.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The running network's name
    #[arg(value_name = "NAME")]
    name: String,
    /// The file to read from now on
    #[arg(value_name = "NETWORK")]
    network: Option<PathBuf>,
    /// Print what was done as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let home = observe::pick(Some(&arguments.name))?;
    // The engine's process may be in another folder than this one.
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|error| Failure::Mistake(format!("{}: {error}", path.display())))
    };
    let network = arguments.network.as_ref().map(absolute).transpose()?;
    match ask(&home, &Request::Reload { network })? {
        Reply::Reloaded(report) if arguments.json => {
            terminal::print(&format!("{:#}\n", serde_json::json!(report)))?;
        }
        Reply::Reloaded(report) => terminal::print(&harmless(&render(&report)))?,
        other => return Err(Failure::Failed(format!("an answer to something else came: {other:?}"))),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a reload did, in lines.
pub fn render(report: &ReloadReport) -> String {
    let lists = [
        ("kept", &report.reloaded.kept),
        ("replaced", &report.reloaded.replaced),
        ("added", &report.reloaded.added),
        ("removed", &report.reloaded.removed),
        ("links added", &report.reloaded.links_added),
        ("links removed", &report.reloaded.links_removed),
    ];
    let mut text = String::new();
    for (what, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        text += &format!("{what}: {}\n", names.join(", "));
    }
    let pause = span(Duration::from_nanos(report.reloaded.pause_nanos));
    text += &format!("dropped: {}; pause: {pause}\n", plural(report.reloaded.dropped, "packet"));
    for warning in &report.warnings {
        text += &format!("warning: {warning}\n");
    }
    text
}
