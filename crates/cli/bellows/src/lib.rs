//! The command `bellows`, as a library: three lines give a program of your own the whole command, with your apps in its
//! catalogue.
//!
//! ```no_run
//! # mod mine {
//! #     use bellows_config::{Configure, Context, SettingError};
//! #     use bellows_engine::{App, Io, Port, Ports};
//! #     #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
//! #     #[serde(deny_unknown_fields)]
//! #     pub struct Config {}
//! #     pub struct MyApp;
//! #     impl App for MyApp {
//! #         const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
//! #     }
//! #     impl Configure for MyApp {
//! #         const NAME: &'static str = "my-app";
//! #         type Config = Config;
//! #         fn configure(_: Config, _: &Context) -> Result<MyApp, SettingError> { Ok(MyApp) }
//! #     }
//! # }
//! # use mine::MyApp;
//! fn main() -> std::process::ExitCode {
//!     bellows::Command::new("my-bellows").app::<MyApp>().main()
//! }
//! ```
//!
//! `docs/writing-an-app.md` in the repository walks through it, and `examples/custom-app` is such a program.
//!
//! # How it is layered
//!
//! A module uses only the modules below it, or to its right in its row.
//!
//! | module | what it holds |
//! |---|---|
//! | `usage`, `cli` | the command line, and the errors for invalid ones |
//! | `json_reference` | the keys of the JSON that commands print, with their types and meanings |
//! | `commands` | one thin file for each subcommand |
//! | `complete` | shell completion: networks, apps, links, parts |
//! | `measuring`, `watch` | the shared parts of commands that measure, and of those that watch packets |
//! | `subcommand` | the shared part of all subcommands |
//! | `supervisor`, `service`, `privileges`, `progress` | the process around a running engine: threads, signals, the service manager, reloads, privileges, the end |
//! | `report` | reports of runs and reloads, for people and for programs |
//! | `saved` | what commands have saved for the next start |
//! | `operating` | requests to the routing domains of running networks, and files of lines |
//! | `state_folder` | where a run keeps what must outlive it |
//! | `control` | the engine's side of the control socket |
//! | `filters` | filter expressions of commands and of requests, compiled for link types as they come |
//! | `logging`, `history`, `arguments` | the log; the events of a run, which are kept; arguments shared by several commands |
//! | `terminal`, `journal`, `text`, `charset`, `command_error` | output, the journal of systemd, numbers in words, characters, exit codes |
#![forbid(unsafe_code)]

mod arguments;
mod charset;
mod cli;
mod command_error;
mod commands;
mod complete;
mod control;
mod filters;
mod history;
mod journal;
#[doc(hidden)]
pub mod json_reference;
mod logging;
#[cfg(feature = "measure")]
mod measuring;
mod operating;
mod privileges;
mod progress;
mod report;
mod saved;
mod service;
mod state_folder;
#[doc(hidden)]
pub mod subcommand;
mod supervisor;
mod terminal;
mod text;
mod usage;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use bellows_config::{Compound, Configure, Registry, SharedObject};
use bellows_sys::simd::SIMD;
use bellows_sys::switches::{NO_ARENA, ONLY_PACKETS_ON_HUGE_PAGES, Switch};
use clap::{CommandFactory, FromArgMatches};

use cli::Cli;
use command_error::CommandError;
use commands::{Subcommand, show};
use subcommand::{Execute, Listed, Program, SubcommandEntry};

/// The subcommands, for tests.
#[doc(hidden)]
pub const SUBCOMMANDS: &[SubcommandEntry] = Subcommand::ALL;

/// The heap of programs with the command. One thread makes the apps of all workers, one behind the other.
#[global_allocator]
static HEAP: bellows_sys::heap::WholeLines = bellows_sys::heap::WholeLines;

/// The command, ready to run.
#[derive(Debug)]
pub struct Command {
    name: &'static str,
    registry: Registry,
}

impl Command {
    /// The command under a name, with the apps of Bellows.
    pub fn new(name: &'static str) -> Command {
        Command { name, registry: bellows_apps::registry() }
    }

    /// Adds an app to the catalogue. It replaces an app of the same name.
    #[must_use]
    pub fn app<A: Configure>(mut self) -> Command {
        self.registry.add::<A>();
        self
    }

    /// Adds a compound app to the catalogue. It replaces an app of the same name.
    #[must_use]
    pub fn compound<C: Compound>(mut self) -> Command {
        self.registry.add_compound::<C>();
        self
    }

    /// Adds an app for parts of compound apps, which network files cannot name.
    #[must_use]
    pub fn part<A: Configure>(mut self) -> Command {
        self.registry = self.registry.with_part::<A>();
        self
    }

    /// Adds a type of shared objects to the catalogue. It replaces a type of the same name.
    #[must_use]
    pub fn object<O: SharedObject>(mut self) -> Command {
        self.registry = self.registry.with_object::<O>();
        self
    }

    /// The definition of the command line, for manuals.
    pub fn definition(&self) -> clap::Command {
        Cli::command().name(self.name).bin_name(self.name)
    }

    /// Runs the command line of the process. `main` returns the result.
    pub fn main(self) -> ExitCode {
        self.run(std::env::args_os())
    }

    /// Runs this command line; the first argument is the program's name.
    pub fn run<A: Into<OsString> + Clone>(self, arguments: impl IntoIterator<Item = A>) -> ExitCode {
        let definition = self.definition();
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        if let Some(code) = complete::answer(&definition, &self.registry, &show::parts(), &arguments) {
            return code;
        }
        // For errors in the arguments themselves, before any parser has run.
        let wants_json = logging::asks_for_json(&arguments);
        let parsed = definition.clone().try_get_matches_from(arguments);
        let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
            Ok(cli) => cli,
            Err(error) => {
                if wants_json {
                    terminal::write_errors_as_json();
                }
                return usage::print(error, &definition);
            }
        };
        logging::init(cli.logging);
        if cli.command.only_reports() {
            watch::exit_when_unread();
        }
        // A write beyond `ulimit -f` becomes an error like a full disk. The default would end the process.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
        let program = Program { definition, registry: Arc::new(self.registry), reference: json_reference::markdown };
        let switches = [&SIMD, &ONLY_PACKETS_ON_HUGE_PAGES, &NO_ARENA];
        let checked = switches.into_iter().try_for_each(Switch::check).map_err(CommandError::Usage);
        let code = match checked.and_then(|()| cli.command.execute(&program)) {
            Ok(code) => code,
            Err(failure) => {
                terminal::fail(&format!("{failure}\n"));
                failure.code()
            }
        };
        terminal::flush();
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_types_and_parts_are_offered() {
        let apps = [("tee".to_owned(), "copies".to_owned()), ("sink".to_owned(), "frees".to_owned())];
        let mut definition = complete::with_candidates(Cli::command(), &apps, &show::parts());
        definition.build();
        let mut offered = |words: &[&str]| -> Vec<String> {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            let last = words.len() - 1;
            let candidates = clap_complete::engine::complete(&mut definition, words, last, None).unwrap();
            candidates.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(offered(&["bellows", "apps", "te"]), ["tee"]);
        assert_eq!(offered(&["bellows", "apps", "e"]), ["engine"]);
        assert_eq!(offered(&["bellows", "appbench", "si"]), ["sink"]);
        assert_eq!(offered(&["bellows", "show", "lat"]), ["latency"]);
        assert_eq!(offered(&["bellows", "timel"]), ["timeline"]);
        assert_eq!(offered(&["bellows", "run", "--sched"]), ["--schedule"]);
    }
}
