//! `bellows man`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellows_sys::FileError;
use clap::Args;
use clap_mangen::Man;

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Print the man page, or write those of all subcommands
#[derive(Debug, Args)]
pub struct Arguments {
    /// Write one page per subcommand to this directory, which is created if needed
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        // The page of `help` would repeat the others.
        let definition = program.definition.clone().disable_help_subcommand(true);
        match &self.output {
            None => {
                let mut page = Vec::new();
                Man::new(definition).render(&mut page)?;
                terminal::print(&String::from_utf8_lossy(&page))?;
            }
            Some(folder) => write_pages(definition, folder)
                .map_err(|error| CommandError::Usage(FileError::writing(folder, &error).to_string()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write_pages(definition: clap::Command, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(definition, folder)
}
