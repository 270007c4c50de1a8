//! Arguments shared by several commands, or by all.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bellows_config::{Diagnostics, Loaded, Overrides, Registry};
use clap::{Args, ValueEnum};

/// The log's level and format, as arguments. The log goes to standard error.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct Logging {
    /// Minimum log level
    #[arg(long, global = true, value_enum, value_name = "LEVEL", default_value = "info", hide_short_help = true)]
    pub log_level: LogLevel,
    /// Log format: text, or one JSON object per line
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text", hide_short_help = true)]
    pub log_format: LogFormat,
}

/// The levels of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The formats of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// The network file, and the keys to override in it.
#[derive(Clone, Debug, Args)]
pub struct NetworkFile {
    /// Network file (TOML), or - for standard input
    #[arg(value_name = "NETWORK")]
    pub path: PathBuf,
    /// Override a key of the file, such as `engine.burst=32` (repeatable)
    ///
    /// Another example: `--set 'apps.source.rate="1Mpps"'`. The value is TOML. Paths are relative to the current
    /// directory. `KEY=` without a value removes the key from the file; an empty text is `KEY=""`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Whether apps put the code that they generate where `perf` looks it up.
    #[arg(skip)]
    pub for_perf: bool,
}

/// The name that reports use for a network read from standard input.
const STDIN: &str = "<stdin>";

/// More than any network needs. A longer input is rejected with an error.
const MAX_TEXT: u64 = 16 << 20;

impl NetworkFile {
    /// Whether the network comes from standard input, which cannot be read again.
    pub fn is_stdin(&self) -> bool {
        self.path == Path::new("-")
    }

    /// The name that reports use for it.
    pub fn name(&self) -> String {
        if self.is_stdin() { STDIN.to_owned() } else { self.path.display().to_string() }
    }

    /// Reads the network and applies the overrides.
    ///
    /// # Errors
    /// All errors in the network.
    pub fn load(&self, registry: &Registry) -> Result<Loaded, Diagnostics> {
        let overrides = Overrides::new(&self.overrides).for_perf(self.for_perf);
        if self.is_stdin() {
            bellows_apps::pcap_reader::reserve_stdin();
            let mut text = Vec::new();
            if let Err(error) = io::stdin().lock().take(MAX_TEXT).read_to_end(&mut text) {
                tracing::error!("standard input cannot be read: {error}");
            }
            let text = String::from_utf8_lossy(&text);
            return bellows_config::load_str(&text, STDIN, Path::new(""), registry, &overrides);
        }
        bellows_config::load(&self.path, registry, &overrides)
    }
}
