//! What can be typed. The help, the completions and the man pages are made from these definitions.

use std::path::PathBuf;

use bellows_config::{Diagnostics, Loaded, Overrides, Registry};
use clap::{Args, Parser, ValueEnum};

use crate::commands::{
    appbench, apps, bench, breathsim, check, clear, completions, graph, man, ps, reload, run, show, stop, tap,
    timeline, top, trace,
};
use crate::failure::EXIT_CODES;

/// Runs app networks: apps that are joined by links, through which packets go.
///
/// A network is described by a TOML file. `bellows run FILE` runs it and reports where each packet went; the other
/// commands explain apps and networks, and look at running engines from outside.
#[derive(Debug, Parser)]
#[command(name = "bellows", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub logging: Logging,
    #[command(subcommand)]
    pub command: Subcommand,
}

/// How to log. The log goes to standard error.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Log")]
pub struct Logging {
    /// The least important messages to log
    #[arg(long, global = true, value_enum, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Lines for people, or an object of JSON a line
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// How important a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// The network file, and what to change in it.
#[derive(Clone, Debug, Args)]
pub struct NetworkFile {
    /// The network file (TOML)
    #[arg(value_name = "NETWORK")]
    pub path: PathBuf,
    /// Set a key of the file, such as `apps.source.rate="1Mpps"` or `engine.burst=32`; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
}

impl NetworkFile {
    /// Reads the network, with the changes.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn load(&self, registry: &Registry) -> Result<Loaded, Diagnostics> {
        bellows_config::load(&self.path, registry, &Overrides::new(&self.overrides))
    }
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    Run(run::Arguments),
    Check(check::Arguments),
    Apps(apps::Arguments),
    Graph(graph::Arguments),
    Ps(ps::Arguments),
    Show(show::Arguments),
    Top(top::Arguments),
    Trace(trace::Arguments),
    Tap(tap::Arguments),
    Clear(clear::Arguments),
    Timeline(timeline::Arguments),
    Reload(reload::Arguments),
    Stop(stop::Arguments),
    Appbench(Box<appbench::Arguments>),
    Bench(bench::Arguments),
    Breathsim(breathsim::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}
