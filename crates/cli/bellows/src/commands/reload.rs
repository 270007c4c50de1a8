//! `bellows reload`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::networks::Access;
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use clap::Args;

use crate::arguments::NameOption;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::report;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Reload a running network from its file, or from another one
///
/// Unchanged apps and links keep their state and their packets. If the new network has errors, they are reported and
/// the old network runs on. The settings in `[engine]` are fixed when the process starts. If only one network runs,
/// `bellows reload` and `bellows reload other.toml` need no name.
///
/// With --confirm, the change undoes itself: the former network is put back after the time unless `bellows confirm` keeps
/// the new one. The network's own process waits, so a lost connection does not matter. Until then no other reload is
/// possible but one with --confirm, which begins the time anew, and --undo. If the network is stopped and started
/// meanwhile, it starts from its file as it is then.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The running network's name, if several run
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    option: NameOption,
    /// Network file to use from now on [default: the same file]
    #[arg(value_name = "NETWORK")]
    network: Option<PathBuf>,
    /// Restart this app even if it has not changed (repeatable). Every reload restarts apps that have panicked
    #[arg(long, value_name = "APP")]
    restart: Vec<String>,
    /// Put the former network back after this time, such as `60s`, unless `bellows confirm` keeps the new one
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    confirm: Option<bellows_config::Duration>,
    /// Put the former network back now, while a change awaits its confirmation
    #[arg(long, conflicts_with_all = ["network", "restart", "confirm"])]
    undo: bool,
    /// Print the changes as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The network to reload, and the file to read in place of its own. A single word is a file if it names no network
    /// and the file exists.
    fn read(&self) -> Result<(RuntimeDir, Option<PathBuf>), CommandError> {
        if let Some(name) = self.option.or(None) {
            if let (Some(word), Some(_)) = (&self.name, &self.network) {
                let message = format!("the network is named twice, by `-n {name}` and by `{word}`; leave one out");
                return Err(CommandError::Usage(message));
            }
            return Ok((network(Some(name), Access::Change)?, self.name.as_ref().map(PathBuf::from)));
        }
        let picked = network(self.name.as_deref(), Access::Change);
        match (picked, &self.name, &self.network) {
            (Err(_), Some(word), None) if is_file(word) => Ok((network(None, Access::Change)?, Some(word.into()))),
            (picked, _, file) => Ok((picked?, file.clone())),
        }
    }
}

/// Whether a word can only be a file's path.
fn is_file(word: &str) -> bool {
    word.contains('/') || Path::new(word).is_file()
}

impl Execute for Arguments {
    const CHANGES: &'static [&'static str] =
        &["reload NAME", "reload NAME FILE", "reload -n NAME --confirm 60s", "reload -n NAME --undo"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let (runtime_dir, network) = self.read()?;
        // The engine's process may have another working directory.
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| CommandError::Usage(format!("{}: {error}", path.display())))
        };
        let network = network.as_ref().map(absolute).transpose()?;
        let request = match (self.undo, &network) {
            (true, Some(_)) => {
                let message = "--undo puts the former network back and takes no file; leave the file out";
                return Err(CommandError::Usage(message.to_owned()));
            }
            (true, None) => Request::Undo,
            (false, _) => {
                let confirm_ns = self.confirm.map(|time| u64::try_from(time.std().as_nanos()).unwrap_or(u64::MAX));
                Request::Reload { network, restart: self.restart.clone(), confirm_ns }
            }
        };
        match ask(&runtime_dir, &request)? {
            Reply::Reloaded(report) if self.json => {
                terminal::print(&format!("{:#}\n", serde_json::json!(report)))?;
            }
            Reply::Reloaded(report) => terminal::print(&sanitize(&report::reload(&report)))?,
            other => return Err(CommandError::Failed(format!("unexpected reply: {other:?}"))),
        }
        Ok(ExitCode::SUCCESS)
    }
}
