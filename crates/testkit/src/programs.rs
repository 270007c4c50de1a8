//! Other programs that tests compare with: whether they are installed, and their output.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Child, Command, Output};

use crate::skips::{is_skipped, skip};
use crate::wait;

/// The PATH with the administrator's folders, which an ordinary user's often lacks.
pub fn search_path() -> OsString {
    let mut folders: Vec<PathBuf> =
        env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    for folder in ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    // It fails only for a folder with a colon in its name, which split_paths cannot return.
    env::join_paths(folders).unwrap_or_default()
}

/// The path of a program, if it is installed.
pub fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|program| program.is_file())
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

/// Runs a command to its end, and returns its standard output.
///
/// # Errors
///
/// The command, with its exit status and standard error, if it fails.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = wait::output(command).map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{command:?}: {}\n{}{said}", output.status, String::from_utf8_lossy(&output.stdout)))
    }
}

/// A program in the background. It is killed when this value is dropped.
pub struct Background(pub Child);

impl Background {
    /// Starts a command.
    ///
    /// # Errors
    ///
    /// The command, and why it cannot be started.
    pub fn start(command: &mut Command) -> Result<Background, String> {
        let child = command.spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
        Ok(Background(child))
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Stdio;

    use super::*;
    use crate::eventually;

    #[test]
    fn the_search_path_has_the_administrators_folders() {
        assert!(env::split_paths(&search_path()).any(|folder| folder == Path::new("/usr/sbin")));
    }

    #[test]
    fn a_failed_command_is_an_error_with_its_output() {
        assert_eq!(run(Command::new("echo").arg("one")).as_deref(), Ok("one\n"));
        let error = run(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"])).unwrap_err();
        assert!(error.contains("exit status: 3\none\ntwo\n"), "{error}");
        let error = run(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.starts_with("cannot run \"no-such-program\": "), "{error}");
    }

    #[test]
    fn a_program_in_the_background_ends_with_its_value() {
        let start = || Background::start(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null())).unwrap();
        let mut cat = start();
        let folder = format!("/proc/{}", cat.pid());
        assert!(Path::new(&folder).exists() && !cat.has_ended());
        drop(cat);
        assert!(!Path::new(&folder).exists());
        let mut cat = start();
        drop(cat.0.stdin.take());
        eventually("the end of its input", || cat.has_ended());
    }

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
