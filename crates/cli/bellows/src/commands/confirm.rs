//! `bellows confirm`.

use std::process::ExitCode;

use bellows_inspect::control::{Confirmation, Reply, Request, ask};
use bellows_inspect::networks::Access;
use bellows_inspect::text::sanitize;
use clap::Args;
use serde_json::json;

use crate::arguments::NetworkName;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Keep a change that `reload --confirm` has made
///
/// Without this, the former network is put back when the time of `reload --confirm` is over. `bellows reload --undo` puts
/// it back at once.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    network: NetworkName,
    /// Print the confirmed change as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Execute for Arguments {
    const CHANGES: &'static [&'static str] = &["confirm NAME"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dir = network(self.network.get(), Access::Change)?;
        match ask(&runtime_dir, &Request::Confirm)? {
            Reply::Confirmed(confirmed) if self.json => terminal::print(&format!("{:#}\n", json!(confirmed)))?,
            Reply::Confirmed(Confirmation { network, .. }) => {
                let text = format!("confirmed: `{}` goes on with `{network}`\n", runtime_dir.name());
                terminal::print(&sanitize(&text))?;
            }
            other => return Err(CommandError::Failed(format!("unexpected reply: {other:?}"))),
        }
        Ok(ExitCode::SUCCESS)
    }
}
