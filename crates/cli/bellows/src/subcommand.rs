//! The shared part of all subcommands, and the list that makes a command line of them.

use std::process::ExitCode;
use std::sync::Arc;

use bellows_config::Registry;

use crate::command_error::CommandError;

/// The program that contains a subcommand.
pub struct Program {
    /// The definition of its whole command line.
    pub definition: clap::Command,
    /// Its catalogue of apps.
    pub registry: Arc<Registry>,
    /// The reference of the JSON that its subcommands print, in Markdown.
    pub reference: fn() -> String,
}

/// The arguments of a subcommand, which can execute themselves.
pub trait Execute: Sized {
    /// Executes the subcommand and returns the exit code.
    ///
    /// # Errors
    /// The reason for a failure.
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError>;

    /// Command lines that read a running network, for the tests of all subcommands. `NAME` is the network's name, `LINK` a
    /// link, `FILE` a file. Tests put the name into other places where lines have it without `-n`.
    const READS: &'static [&'static str] = &[];

    /// The same; without a name they read all networks.
    const READS_ALL: &'static [&'static str] = &[];

    /// The same; they change a network or send it a secret.
    const CHANGES: &'static [&'static str] = &[];

    /// Whether the subcommand only prints a report, so that it can end when nobody reads its output any more.
    fn only_reports(&self) -> bool {
        false
    }
}

/// A subcommand of the list.
#[derive(Clone, Copy, Debug)]
pub struct SubcommandEntry {
    /// Its name.
    pub name: &'static str,
    /// See [`Execute::READS`].
    pub reads: &'static [&'static str],
    /// See [`Execute::READS_ALL`].
    pub reads_all: &'static [&'static str],
    /// See [`Execute::CHANGES`].
    pub changes: &'static [&'static str],
}

impl SubcommandEntry {
    pub(crate) const fn of<E: Execute>(name: &'static str) -> SubcommandEntry {
        SubcommandEntry { name, reads: E::READS, reads_all: E::READS_ALL, changes: E::CHANGES }
    }

    /// Whether it is about running networks.
    pub fn uses_networks(&self) -> bool {
        !(self.reads.is_empty() && self.reads_all.is_empty() && self.changes.is_empty())
    }
}

/// A list of subcommands.
pub trait Listed {
    /// All of them, in the order of the help.
    const ALL: &'static [SubcommandEntry];
}

/// Declares the enum of the command line, from the list of subcommands.
///
/// `Name(module)` is the subcommand `name` in the module beside the list, whose type `Arguments` is [`clap::Args`] and
/// [`Execute`]. The help lists them in this order. A variant may have a condition, such as a feature.
macro_rules! subcommands {
    ($(#[$attribute:meta])* $visibility:vis enum $name:ident { $($(#[$condition:meta])* $variant:ident($module:ident),)* }) => {
        $(#[$attribute])*
        #[derive(Debug, clap::Subcommand)]
        $visibility enum $name {
            $($(#[$condition])* $variant(Box<$module::Arguments>),)*
        }

        impl $crate::subcommand::Listed for $name {
            const ALL: &'static [$crate::subcommand::SubcommandEntry] = &[
                $($(#[$condition])* $crate::subcommand::SubcommandEntry::of::<$module::Arguments>(stringify!($module)),)*
            ];
        }

        impl $crate::subcommand::Execute for $name {
            fn execute(
                self,
                program: &$crate::subcommand::Program,
            ) -> Result<std::process::ExitCode, $crate::command_error::CommandError> {
                match self {
                    $($(#[$condition])* $name::$variant(arguments) => arguments.execute(program),)*
                }
            }

            fn only_reports(&self) -> bool {
                match self {
                    $($(#[$condition])* $name::$variant(arguments) => arguments.only_reports(),)*
                }
            }
        }
    };
}

pub(crate) use subcommands;
