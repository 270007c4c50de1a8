//! `bellows reload`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::networks;
use bellows_inspect::text::harmless;
use bellows_observe::RuntimeDir;
use clap::Args;

use crate::command_error::CommandError;
use crate::report;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Reload a running network from its file, or from another one
///
/// What did not change keeps its state and its packets. If the new network is wrong, it is reported and the old one
/// runs on. The settings in `[engine]` are fixed when the process starts. If one network runs, neither its name nor a file need
/// be given: `bellows reload`, `bellows reload other.toml`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The running network's name; needed if several run
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Network file to use from now on [default: the same file]
    #[arg(value_name = "NETWORK")]
    network: Option<PathBuf>,
    /// An app that is to be started again though it has not changed; can be given several times. Apps that have panicked are
    /// started again by every reload
    #[arg(long, value_name = "APP")]
    restart: Vec<String>,
    /// Print what was done as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Which network, and the file to read in place of its own. A single word that names no network and is a file is the file.
    fn read(&self) -> Result<(RuntimeDir, Option<PathBuf>), CommandError> {
        let named = networks::pick_to_change(self.name.as_deref());
        match (named, &self.name, &self.network) {
            (Err(_), Some(word), None) if is_file(word) => Ok((networks::pick_to_change(None)?, Some(word.into()))),
            (named, _, network) => Ok((named?, network.clone())),
        }
    }
}

/// Whether a word is a file's path, or can be nothing else.
fn is_file(word: &str) -> bool {
    word.contains('/') || Path::new(word).is_file()
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let (runtime_dir, network) = self.read()?;
        // The engine's process may be in another folder than this one.
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| CommandError::Usage(format!("{}: {error}", path.display())))
        };
        let network = network.as_ref().map(absolute).transpose()?;
        match ask(&runtime_dir, &Request::Reload { network, restart: self.restart.clone() })? {
            Reply::Reloaded(report) if self.json => {
                terminal::print(&format!("{:#}\n", serde_json::json!(report)))?;
            }
            Reply::Reloaded(report) => terminal::print(&harmless(&report::reload(&report)))?,
            other => return Err(CommandError::Failed(format!("an answer to something else came: {other:?}"))),
        }
        Ok(ExitCode::SUCCESS)
    }
}
