//! `bellows reload`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::networks;
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use clap::Args;

use crate::command_error::CommandError;
use crate::report;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Reload a running network from its file, or from another one
///
/// Unchanged apps and links keep their state and their packets. If the new network has errors, they are reported and
/// the old network runs on. The settings in `[engine]` are fixed when the process starts. If only one network runs,
/// `bellows reload` and `bellows reload other.toml` need no name.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The running network's name; needed if several run
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Network file to use from now on [default: the same file]
    #[arg(value_name = "NETWORK")]
    network: Option<PathBuf>,
    /// Restart this app even if it has not changed (repeatable). Every reload restarts apps that have panicked
    #[arg(long, value_name = "APP")]
    restart: Vec<String>,
    /// Print the changes as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The network to reload, and the file to read in place of its own. A single word is a file if it names no network
    /// and the file exists.
    fn read(&self) -> Result<(RuntimeDir, Option<PathBuf>), CommandError> {
        let named = networks::pick_to_change(self.name.as_deref());
        match (named, &self.name, &self.network) {
            (Err(_), Some(word), None) if is_file(word) => Ok((networks::pick_to_change(None)?, Some(word.into()))),
            (named, _, network) => Ok((named?, network.clone())),
        }
    }
}

/// Whether a word can only be a file's path.
fn is_file(word: &str) -> bool {
    word.contains('/') || Path::new(word).is_file()
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let (runtime_dir, network) = self.read()?;
        // The engine's process may have another working directory.
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| CommandError::Usage(format!("{}: {error}", path.display())))
        };
        let network = network.as_ref().map(absolute).transpose()?;
        match ask(&runtime_dir, &Request::Reload { network, restart: self.restart.clone() })? {
            Reply::Reloaded(report) if self.json => {
                terminal::print(&format!("{:#}\n", serde_json::json!(report)))?;
            }
            Reply::Reloaded(report) => terminal::print(&sanitize(&report::reload(&report)))?,
            other => return Err(CommandError::Failed(format!("unexpected reply: {other:?}"))),
        }
        Ok(ExitCode::SUCCESS)
    }
}
