//! Other programs that tests compare with: whether they are installed, and their output. Programs that tests make.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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

/// Copies a program that a test then starts. Every user may run it.
///
/// A child process writes the copy, because the kernel does not start a file that anyone has open for writing ("Text
/// file busy"). If a test wrote it, for example with `fs::copy`, other tests of the same process would start programs on
/// their threads meanwhile, and these inherit all descriptors, also that of the copy. They have them until they have
/// executed their own programs, which may be after the test has closed the copy and starts it.
///
/// # Panics
///
/// If there is no such program, or no file can be written there.
pub fn install(program: impl AsRef<Path>, to: impl AsRef<Path>) {
    let program = program.as_ref();
    let file = File::open(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    write_program(to.as_ref(), file.into(), |_| ());
}

/// Writes a script that a test then starts, as [`install`] copies a program. Returns its path.
///
/// # Panics
///
/// If no file can be written there.
pub fn script(to: impl AsRef<Path>, text: &str) -> PathBuf {
    let to = to.as_ref();
    write_program(to, Stdio::piped(), |child| {
        let mut input = child.stdin.take().expect("its input is a pipe");
        input.write_all(text.as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    });
    to.to_owned()
}

/// Has a child process write its input to an executable file.
fn write_program(to: &Path, input: Stdio, feed: impl FnOnce(&mut Child)) {
    let mut command = Command::new("sh");
    // A test may have no programs on its path.
    let mut path = search_path();
    path.push(":/usr/bin:/bin");
    command.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(to).env("PATH", path).stdin(input);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    feed(&mut child);
    let status = child.wait().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
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
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::wait::meanwhile;
    use crate::{eventually, scratch};

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
    fn copies_and_scripts_can_be_started_while_other_threads_start_programs() {
        let folder = scratch();
        let (copy, others) = (folder.path().join("copy"), AtomicUsize::new(0));
        let other = || {
            assert!(Command::new("true").status().unwrap().success());
            others.fetch_add(1, Relaxed);
        };
        let rounds = || {
            for round in 0..50 {
                install(find_program("echo").unwrap(), &copy);
                assert_eq!(run(Command::new(&copy).arg("one")).as_deref(), Ok("one\n"));
                let script = script(folder.path().join("a script"), &format!("#!/bin/sh\necho $1 {round}\n"));
                assert_eq!(run(Command::new(script).arg("two")), Ok(format!("two {round}\n")));
            }
        };
        meanwhile(other, || meanwhile(other, || meanwhile(other, rounds)));
        assert!(others.load(Relaxed) > 0);
        assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o755);
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
