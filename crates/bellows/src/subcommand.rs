//! What every subcommand has in common, and the list that makes a command line of them.

use std::process::ExitCode;
use std::sync::Arc;

use bellows_config::Registry;

use crate::command_error::CommandError;

/// The program that a subcommand is a part of.
pub struct Program {
    /// Its whole command line.
    pub definition: clap::Command,
    /// Its catalogue of apps.
    pub registry: Arc<Registry>,
}

/// The arguments of a subcommand, which know what to do.
pub trait Execute: Sized {
    /// Does what was asked for. The code is for the process to end with.
    ///
    /// # Errors
    /// Why it could not be done.
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError>;

    /// Whether all that it does is to print a report, so that there is nothing to do when nobody reads it any more.
    fn only_reports(&self) -> bool {
        false
    }
}

/// Declares the modules of subcommands and the enum that the command line is read into, from one list.
///
/// `Name(module)` is the subcommand `name` in the file `module.rs`, whose type `Arguments` is [`clap::Args`] and
/// [`Execute`]. The help lists them in this order.
macro_rules! subcommands {
    ($(#[$attribute:meta])* $visibility:vis enum $name:ident { $($variant:ident($module:ident),)* }) => {
        $($visibility mod $module;)*

        $(#[$attribute])*
        #[derive(Debug, clap::Subcommand)]
        $visibility enum $name {
            $($variant(Box<$module::Arguments>),)*
        }

        impl $crate::subcommand::Execute for $name {
            fn execute(
                self,
                program: &$crate::subcommand::Program,
            ) -> Result<std::process::ExitCode, $crate::command_error::CommandError> {
                match self {
                    $($name::$variant(arguments) => arguments.execute(program),)*
                }
            }

            fn only_reports(&self) -> bool {
                match self {
                    $($name::$variant(arguments) => arguments.only_reports(),)*
                }
            }
        }
    };
}

pub(crate) use subcommands;
