//! `bellows completions`.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::terminal;

/// Print the completions for a shell
///
/// For bash: `bellows completions bash > ~/.local/share/bash-completion/completions/bellows`
#[derive(Debug, Args)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

pub fn execute(arguments: &Arguments, mut definition: clap::Command) -> Result<ExitCode, Failure> {
    let name = definition.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition, name, &mut script);
    terminal::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
