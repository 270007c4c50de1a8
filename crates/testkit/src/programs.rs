//! Other programs that tests compare with: whether they are installed, and their output.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::skips::{is_skipped, skip};

/// The path of a program, if it is installed.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// The reason to skip a test that needs these programs, if one of them is not installed.
pub fn missing(programs: &[&str]) -> Option<String> {
    let missing = programs.iter().find(|program| find_program(program).is_none())?;
    Some(format!("{missing} is not installed"))
}

/// Whether a test can run this program. If not, the test is skipped.
pub fn has_program(test: &str, program: &str) -> bool {
    !is_skipped(test, missing(&[program]))
}

/// Runs a command to its end. `None`, and the test is skipped, if the program is not installed.
pub fn output(test: &str, command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip(test, format!("{} is not installed", command.get_program().display()));
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find_program("sh").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find_program("no-such-program"), None);
        assert_eq!(missing(&["sh", "no-such-program"]).as_deref(), Some("no-such-program is not installed"));
        assert_eq!(missing(&["sh"]), None);
    }

    #[test]
    fn the_output_of_a_program_is_returned() {
        let output = output("prints", Command::new("sh").args(["-c", "echo one; exit 3"])).unwrap();
        assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"one\n"[..], Some(3)));
    }
}
