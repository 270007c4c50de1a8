//! `bellows clear`.

use std::process::ExitCode;

use bellows_inspect::baseline;
use bellows_inspect::networks::{self, Access, Sample, State};
use bellows_switch::mac_table::requests::Request;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::arguments::NameOption;
use crate::command_error::CommandError;
use crate::commands::show::mac;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::count;

/// Restart counts of `show` and `top`, or forget MAC addresses
///
/// The counters themselves go on: `show`, the report of the run and all other readers are not affected. The counters of
/// a crashed network are evidence and are not cleared. Root cannot clear the networks of other users.
///
/// `clear mac` has bridges forget the MAC addresses that they have learned, all or those that the options choose. Static
/// ones stay.
#[derive(Debug, Args)]
pub struct Arguments {
    /// `mac` to forget MAC addresses, or the network's name, if several run
    #[arg(value_name = "mac|NAME")]
    name: Option<String>,
    /// The network's name, behind `mac`
    #[arg(value_name = "NAME", conflicts_with = "named")]
    second: Option<String>,
    #[command(flatten)]
    option: NameOption,
    /// Print JSON, for `clear mac` (see docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    mac: mac::MacOptions,
}

/// What bridges have forgotten.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Forgotten MAC addresses")]
pub struct ForgottenAddresses {
    /// The name of the network.
    name: String,
    /// The number of addresses that were forgotten.
    deleted: u64,
}

/// The word for addresses.
const MAC: &str = "mac";

impl Execute for Arguments {
    const CHANGES: &'static [&'static str] = &["clear NAME", "clear mac NAME"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        if self.name.as_deref() == Some(MAC) {
            return self.forget();
        }
        if self.second.is_some() || self.json || self.mac.is_given() {
            let message = "a second name, --json, --table, --port, --vlan and --mac are for `clear mac`";
            return Err(CommandError::Usage(message.to_owned()));
        }
        if let (Some(name), Some(word)) = (self.option.or(None), &self.name) {
            let message = format!("the network is named twice, by `-n {name}` and by `{word}`; leave one out");
            return Err(CommandError::Usage(message));
        }
        let runtime_dir = networks::pick(self.option.or(self.name.as_deref()), Access::Read)?;
        networks::refuse_foreign(&runtime_dir, "clear", "only its user may restart its counts")?;
        let name = runtime_dir.name();
        if networks::state(&runtime_dir) == State::Crashed {
            return Err(CommandError::Usage(format!(
                "`{name}` has crashed: its counters are evidence and are not cleared; \
                 `bellows show run {name}` shows them, `bellows ps --clean` removes them"
            )));
        }
        let mut observer = networks::open(runtime_dir)?;
        let sample = Sample::settled(&mut observer);
        baseline::write(observer.runtime_dir(), &sample)?;
        terminal::notice(&format!("`show run`, `show latency` and `top` of `{name}` count from now on\n"));
        Ok(ExitCode::SUCCESS)
    }
}

impl Arguments {
    /// Has bridges forget addresses.
    fn forget(self) -> Result<ExitCode, CommandError> {
        let runtime_dir = networks::pick(self.option.or(self.second.as_deref()), Access::Read)?;
        networks::refuse_foreign(&runtime_dir, "clear", "only its user may have its bridges forget addresses")?;
        let deleted = mac::ask_each(self.mac.tables(&runtime_dir)?, &self.mac, |table| {
            let answer = table.ask(&Request::Flush(self.mac.selection()))?;
            Ok(answer["deleted"].as_u64().unwrap_or_default())
        })?;
        let deleted: u64 = deleted.into_iter().sum();
        if self.json {
            terminal::print(&format!("{:#}\n", json!(ForgottenAddresses { name: runtime_dir.name(), deleted })))?;
        } else {
            let noun = if deleted == 1 { "MAC address" } else { "MAC addresses" };
            terminal::notice(&format!("{} {noun} forgotten\n", count(deleted)));
        }
        Ok(ExitCode::SUCCESS)
    }
}
