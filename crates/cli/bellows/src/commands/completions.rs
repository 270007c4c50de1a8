//! `bellows completions`.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use crate::command_error::CommandError;
use crate::complete;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Print the completion script of a shell
///
/// The script completes subcommands and options, and the names that exist at that moment: running networks, their apps
/// and links, app types and the parts of `show`.
///
/// For bash: `bellows completions bash > ~/.local/share/bash-completion/completions/bellows`
///
/// For zsh, in a folder that is in `fpath`: `bellows completions zsh > ~/.zfunc/_bellows`
///
/// For fish: `bellows completions fish > ~/.config/fish/completions/bellows.fish`
#[derive(Debug, Args)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        let shell = self.shell.to_string();
        let script = complete::script(&shell, program.definition.get_name()).ok_or_else(|| {
            CommandError::Failed(format!("there is no script for {shell}; bash, zsh and fish have one"))
        })?;
        terminal::print(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
