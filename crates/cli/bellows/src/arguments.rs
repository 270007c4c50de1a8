//! Arguments shared by several commands, or by all.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bellows_config::{Diagnostics, Loaded, Overrides, Registry, Texts};
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

/// A running network by name, as every command about one accepts it.
#[derive(Clone, Debug, Default, Args)]
pub struct NameOption {
    /// The network's name, if several run
    ///
    /// Every command about a running network accepts this.
    #[arg(short = 'n', long = "name", value_name = "NAME")]
    named: Option<String>,
}

impl NameOption {
    /// The name, which may also be a word of its own. The two exclude each other on the command line.
    pub fn or<'a>(&'a self, word: Option<&'a str>) -> Option<&'a str> {
        self.named.as_deref().or(word)
    }
}

/// The same as a word of its own, too: the only one that a command has, or its first.
#[derive(Clone, Debug, Default, Args)]
pub struct NetworkName {
    /// The network's name, if several run
    #[arg(value_name = "NAME", conflicts_with = "named")]
    name: Option<String>,
    #[command(flatten)]
    option: NameOption,
}

impl NetworkName {
    /// The name, if one was given.
    pub fn get(&self) -> Option<&str> {
        self.option.or(self.name.as_deref())
    }
}

/// Running networks by name: the [`NameOption`] of commands that accept several.
#[derive(Clone, Debug, Args)]
pub struct NameOptions {
    /// A network's name (repeatable)
    ///
    /// Every command about a running network accepts this.
    #[arg(short = 'n', long = "name", value_name = "NAME")]
    named: Vec<String>,
}

impl NameOptions {
    /// The names, behind those that are words of their own.
    pub fn and(&self, words: &[String]) -> Vec<String> {
        [words, &self.named].concat()
    }
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
        self.read(registry, &Overrides::new(&self.overrides))
    }

    /// The same with these texts in place of those that the files have by now.
    ///
    /// # Errors
    /// All errors in the network.
    pub fn load_from(&self, registry: &Registry, texts: &Texts) -> Result<Loaded, Diagnostics> {
        self.read(registry, &Overrides::new(&self.overrides).with_texts(texts))
    }

    fn read(&self, registry: &Registry, overrides: &Overrides) -> Result<Loaded, Diagnostics> {
        let overrides = overrides.clone().for_perf(self.for_perf);
        if !self.is_stdin() {
            return bellows_config::load(&self.path, registry, &overrides);
        }
        bellows_basic::pcap_reader::reserve_stdin();
        let mut text = Vec::new();
        if let Some(kept) = overrides.texts().of(&self.path) {
            text.extend_from_slice(&kept);
        } else if let Err(error) = io::stdin().lock().take(MAX_TEXT).read_to_end(&mut text) {
            tracing::error!("standard input cannot be read: {error}");
        }
        overrides.texts().keep(&self.path, &text);
        let text = String::from_utf8_lossy(&text);
        bellows_config::load_str(&text, STDIN, Path::new(""), registry, &overrides)
    }
}
