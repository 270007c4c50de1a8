//! The command line. Help, completions and man pages are generated from these definitions.

use clap::Parser;

use crate::arguments::Logging;
use crate::command_error::EXIT_CODES;
use crate::commands::Subcommand;

/// Run networks of packet-processing apps, and see what they do
///
/// A network file (TOML) names apps and the links between them. `bellows run FILE` runs the network and reports where
/// each packet went. The other commands check, draw and measure networks, and inspect running ones.
#[derive(Debug, Parser)]
#[command(name = "bellows", version = env!("BELLOWS_VERSION"), after_long_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub logging: Logging,
    #[command(subcommand)]
    pub command: Subcommand,
}
