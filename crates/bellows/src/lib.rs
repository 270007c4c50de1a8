//! The command `bellows`, as a library: a program of your own gets the whole command, with your apps in its
//! catalogue, by three lines.
//!
//! ```no_run
//! # mod mine {
//! #     use bellows_config::{Configure, Context, Mistake};
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
//! #         fn configure(_: Config, _: &Context) -> Result<MyApp, Mistake> { Ok(MyApp) }
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
//! | module | what it holds |
//! |---|---|
//! | `cli`, `usage` | what can be typed, and what is said to the rest |
//! | `commands` | a thin file for each subcommand |
//! | `supervisor` | the process around a running engine: threads, signals, reloads, the end |
//! | `control` | the control socket: the engine's side, the client's side, what goes between |
//! | `observe` | running engines seen from outside |
//! | `journey` | the ways of packets, put together from a trace |
//! | `baseline` | what `bellows clear` leaves, from which later readers count |
//! | `accounting` | what each app costs |
//! | `times` | percentiles of latency and of breaths |
//! | `timeline` | what an engine recorded of its last breaths |
//! | `report` | what a run did, for people and for programs |
//! | `complete` | what the shells complete: networks, apps, links, parts |
//! | `terminal`, `charset`, `text`, `logging`, `failure` | output, its characters, numbers, the log, exit codes |
#![forbid(unsafe_code)]

mod accounting;
mod baseline;
mod charset;
mod cli;
mod commands;
mod complete;
mod control;
mod failure;
mod journey;
mod logging;
mod observe;
mod progress;
mod report;
mod slow_log;
mod supervisor;
mod terminal;
mod text;
mod timeline;
mod times;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use bellows_config::{Configure, Registry};
use clap::{CommandFactory, FromArgMatches};

use cli::{Cli, Subcommand};
use failure::Failure;

/// The command, ready to run.
#[derive(Debug)]
pub struct Command {
    name: &'static str,
    registry: Registry,
}

impl Command {
    /// The command under a name, with the apps that come with Bellows.
    pub fn new(name: &'static str) -> Command {
        Command { name, registry: bellows_apps::registry() }
    }

    /// Adds an app to the catalogue. It takes the place of one of the same name.
    #[must_use]
    pub fn app<A: Configure>(mut self) -> Command {
        self.registry.add::<A>();
        self
    }

    /// Does what the process's arguments say. What it returns is for `main` to return.
    pub fn main(self) -> ExitCode {
        self.run(std::env::args_os())
    }

    /// Does what these arguments say; the first is the program's name.
    pub fn run<A: Into<OsString> + Clone>(self, arguments: impl IntoIterator<Item = A>) -> ExitCode {
        let definition = Cli::command().name(self.name).bin_name(self.name);
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        if let Some(code) = complete::answer(&definition, &self.registry, &arguments) {
            return code;
        }
        // For mistakes in the arguments themselves, which no parser has understood.
        let wants_json = logging::asks_for_json(&arguments);
        let parsed = definition.clone().try_get_matches_from(arguments);
        let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
            Ok(cli) => cli,
            Err(error) => {
                if wants_json {
                    terminal::write_errors_as_json();
                }
                return usage::print(error);
            }
        };
        logging::init(cli.logging);
        if cli.command.only_reports() {
            commands::watch::exit_when_unread();
        }
        // A file at the limit of `ulimit -f` is an error like a full disk, and not the end of the process.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
        let code = match execute(cli.command, Arc::new(self.registry), definition) {
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

fn execute(command: Subcommand, registry: Arc<Registry>, definition: clap::Command) -> Result<ExitCode, Failure> {
    match command {
        Subcommand::Run(arguments) => commands::run::execute(arguments, registry),
        Subcommand::Check(arguments) => commands::check::execute(&arguments, &registry),
        Subcommand::Apps(arguments) => commands::apps::execute(&arguments, &registry),
        Subcommand::Schema(arguments) => commands::schema::execute(&arguments, &registry),
        Subcommand::Graph(arguments) => commands::graph::execute(&arguments, &registry),
        Subcommand::Ps(arguments) => commands::ps::execute(&arguments),
        Subcommand::Show(arguments) => commands::show::execute(&arguments, &registry),
        Subcommand::Top(arguments) => commands::top::execute(&arguments),
        Subcommand::Trace(arguments) => commands::trace::execute(&arguments),
        Subcommand::Tap(arguments) => commands::tap::execute(&arguments),
        Subcommand::Clear(arguments) => commands::clear::execute(&arguments),
        Subcommand::Timeline(arguments) => commands::timeline::execute(&arguments),
        Subcommand::Reload(arguments) => commands::reload::execute(&arguments),
        Subcommand::Stop(arguments) => commands::stop::execute(&arguments),
        Subcommand::Appbench(arguments) => commands::appbench::execute(&arguments, &registry),
        Subcommand::Bench(arguments) => commands::bench::execute(&arguments, &registry),
        Subcommand::Breathsim(arguments) => commands::breathsim::execute(&arguments),
        Subcommand::Completions(arguments) => commands::completions::execute(&arguments, definition.get_name()),
        Subcommand::Man(arguments) => commands::man::execute(&arguments, definition),
    }
}
