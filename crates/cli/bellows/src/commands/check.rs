//! `bellows check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellows_config::{DiagnosticEntry, Diagnostics, Loaded};
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::NetworkFile;
use crate::command_error::CommandError;
use crate::privileges::Needs;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::plural;

/// Find all errors in network files
///
/// Reports everything that would keep a network from starting: errors in the files, files that cannot be read or
/// written, and files or sockets that two apps cannot share. A resource that another process uses at the moment is a
/// warning. Nothing is started or changed.
#[derive(Debug, Args)]
#[command(visible_alias = "validate")]
#[command(after_help = "Exit codes:\n  0  all networks can run\n  2  at least one of them has errors")]
pub struct Arguments {
    /// Network files (TOML), each a network of its own
    #[arg(value_name = "NETWORK", required = true)]
    paths: Vec<PathBuf>,
    /// Override a key of each file, such as `engine.burst=32` (repeatable)
    ///
    /// Another example: `--set 'apps.source.rate="1Mpps"'`. The value is TOML. Paths are relative to the
    /// current directory. `KEY=` without a value removes the key from the file; an empty text is `KEY=""`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print the privileges that each network needs, as text or as a drop-in for the unit `bellows@.service`
    ///
    /// Capabilities, devices, locked memory, and folders in which it creates files or sockets. `bellows run` gives up
    /// all other capabilities.
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    privileges: Option<PrivilegesFormat>,
    /// Print the result as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// How privileges are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PrivilegesFormat {
    Text,
    Systemd,
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        if self.privileges == Some(PrivilegesFormat::Systemd) && (self.json || self.paths.len() > 1) {
            let message = "a drop-in has the privileges of one network; name one, without --json";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let is_rich = terminal::stderr_is_rich();
        let (mut results, mut wrong) = (Vec::new(), Vec::new());
        for path in &self.paths {
            let file = NetworkFile { path: path.clone(), overrides: self.overrides.clone(), for_perf: false };
            let loaded = file.load(&program.registry);
            if self.json {
                results.push(json!(Checked::of(path, &loaded, self.privileges.is_some())));
            } else if let Ok(loaded) = &loaded {
                terminal::warn(&loaded.warnings.render(is_rich));
                let (apps, links) = (loaded.network.apps.len() as u64, loaded.network.links.len() as u64);
                let (path, apps, links) = (file.name(), plural(apps, "app"), plural(links, "link"));
                let fine = format!("{path}: fine ({apps}, {links})\n");
                terminal::print(&match self.privileges {
                    None => fine,
                    Some(PrivilegesFormat::Text) => fine + &Needs::of(loaded).text(),
                    Some(PrivilegesFormat::Systemd) => Needs::of(loaded).drop_in(&path),
                })?;
            }
            wrong.extend(loaded.err().map(|diagnostics| diagnostics.render(is_rich)));
        }
        if self.json {
            let result = match results.len() {
                1 => results.remove(0),
                _ => Value::Array(results),
            };
            terminal::print(&format!("{result:#}\n"))?;
            return Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) });
        }
        if wrong.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(CommandError::Diagnosed(wrong.join("\n"))) }
    }
}

/// The result of a check as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Checked network")]
pub struct Checked {
    /// The file.
    network: PathBuf,
    /// Whether it can run.
    ok: bool,
    /// The number of its apps; 0 if it is not ok.
    apps: usize,
    /// The number of its links; 0 if it is not ok.
    links: usize,
    /// Errors, or warnings and notes.
    diagnostics: Vec<DiagnosticEntry>,
    /// With `--privileges`; null if the network is not ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    privileges: Option<Option<Needs>>,
}

impl Checked {
    fn of(path: &Path, loaded: &Result<Loaded, Diagnostics>, with_privileges: bool) -> Checked {
        let (diagnostics, apps, links) = match loaded {
            Ok(loaded) => (&loaded.warnings, loaded.network.apps.len(), loaded.network.links.len()),
            Err(diagnostics) => (diagnostics, 0, 0),
        };
        Checked {
            network: path.to_owned(),
            ok: loaded.is_ok(),
            apps,
            links,
            diagnostics: diagnostics.entries(),
            privileges: with_privileges.then(|| loaded.as_ref().ok().map(Needs::of)),
        }
    }
}
