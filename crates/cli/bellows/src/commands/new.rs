//! `bellows new`.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Make the project of a program with apps of your own
///
/// The project has the files of docs/writing-an-app.md, which explains them: two apps with their tests, a compound app,
/// two networks. It is built with Cargo, and takes Bellows from a checkout.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Folder to make; it may exist if it is empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name of the project and of its program [default: the folder's]
    #[arg(long)]
    name: Option<String>,
    /// The checkout of Bellows [default: that which this program was built from]
    #[arg(long, value_name = "CHECKOUT")]
    bellows: Option<PathBuf>,
}

/// The page whose files are written.
const PAGE: &str = include_str!("../../../../../docs/writing-an-app.md");

/// The name of the project, and the path to the checkout, in the page's files.
const NAME: &str = "my-bellows";
const CHECKOUT: &str = "../bellows/";

/// The longest name.
const MAX_NAME: usize = 64;

/// Names that Cargo refuses for programs: keywords (The Rust Reference, "Keywords"), the compiler's own crate, and Cargo's
/// folders.
const RESERVED: &str = "abstract as async await become box break const continue crate do dyn else enum extern false \
    final fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super \
    trait true try type typeof unsafe unsized use virtual where while yield test core std alloc proc_macro build deps \
    examples incremental";

/// The files of the page: the name and the content of each.
fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = PAGE.split("\n```").skip(1).step_by(2);
    blocks.filter_map(|block| {
        let (head, code) = block.split_once('\n')?;
        let (_, file) = head.split_once(' ')?;
        Some((file, code))
    })
}

/// Why a project cannot have a name, if so: a sentence about it.
fn wrong_name(name: &str) -> Option<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(is_word) {
        return Some("must begin with a letter, and have only letters, digits, `-` and `_`".to_owned());
    }
    if name.len() > MAX_NAME {
        return Some(format!("is longer than {MAX_NAME} letters"));
    }
    // Rust writes both as `_`.
    let name = name.replace('-', "_");
    if RESERVED.split_whitespace().any(|word| word == name) {
        return Some("is a word of Rust or Cargo".to_owned());
    }
    let manifest = files().find_map(|(file, text)| (file == "Cargo.toml").then_some(text)).unwrap_or_default();
    let dependencies = manifest
        .split("\n[")
        .filter(|table| table.split(']').next().is_some_and(|name| name.ends_with("dependencies")));
    let lines = dependencies.flat_map(str::lines).filter_map(|line| line.split_once(" = "));
    let mut others = lines.map(|(dependency, _)| dependency.replace('-', "_"));
    others.any(|other| other == name).then(|| "is the name of a crate that the project uses".to_owned())
}

/// The folder's path, absolute and without `.` and `..`, so that it has a name.
fn absolute(folder: &Path) -> io::Result<PathBuf> {
    let mut path = PathBuf::new();
    for part in std::path::absolute(folder)?.components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    Ok(path)
}

impl Arguments {
    fn name(&self, folder: &Path) -> Result<String, CommandError> {
        let (name, remedy) = match (&self.name, folder.file_name()) {
            (Some(name), _) => (name.clone(), "choose another"),
            (None, Some(name)) => (name.to_string_lossy().into_owned(), "give one with `--name NAME`"),
            (None, None) => {
                return Err(CommandError::Usage("the folder has no name; give one with `--name NAME`".to_owned()));
            }
        };
        match wrong_name(&name) {
            Some(why) => Err(CommandError::Usage(format!("the project's name `{name}` {why}; {remedy}"))),
            None => Ok(name),
        }
    }

    /// The checkout of Bellows, as it is written into the files.
    fn checkout(&self) -> Result<PathBuf, CommandError> {
        let is_checkout = |folder: &Path| folder.join("crates/cli/bellows/Cargo.toml").is_file();
        let given = |folder: &PathBuf| {
            let found = fs::canonicalize(folder).ok().filter(|found| is_checkout(found));
            found.ok_or_else(|| {
                format!("`{}` is no checkout of Bellows: it has no crates/cli/bellows", folder.display())
            })
        };
        // Cargo's own copies of repositories may go at any time.
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
        let built_from =
            built_from.filter(|folder| is_checkout(folder) && !folder.to_string_lossy().contains("/git/checkouts/"));
        let found = match (&self.bellows, built_from) {
            (Some(folder), _) => given(folder),
            (None, Some(folder)) => Ok(folder.to_owned()),
            (None, None) => Err("the checkout that this program was built from is not here".to_owned()),
        };
        found.map_err(|why| CommandError::Usage(format!("{why}; name one with `--bellows CHECKOUT`")))
    }
}

/// Makes the folder, unless it is there and empty.
fn make_folder(folder: &Path) -> Result<(), CommandError> {
    let shown = folder.display();
    match fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(CommandError::Usage(format!("`{shown}` is not empty; name a new folder, or an empty one"))),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(CommandError::Usage(format!("`{shown}` is not a folder; name a new folder, or an empty one")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(folder)
            .map_err(|error| CommandError::Failed(format!("the folder `{shown}` cannot be made: {error}"))),
        Err(error) => Err(CommandError::Failed(format!("the folder `{shown}` cannot be read: {error}"))),
    }
}

/// Writes the files. Those that were there stay as they are.
fn write_files(folder: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<(), CommandError> {
    for (file, content) in files {
        let path = folder.join(file);
        let write = || -> io::Result<()> {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            OpenOptions::new().write(true).create_new(true).open(&path)?.write_all(content)
        };
        write().map_err(|error| {
            CommandError::Failed(format!(
                "`{}` cannot be written: {error}; remove the incomplete `{}` before you try again",
                path.display(),
                folder.display()
            ))
        })?;
    }
    Ok(())
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let unknown = |error| CommandError::Usage(format!("{}: {error}", self.folder.display()));
        let folder = absolute(&self.folder).map_err(unknown)?;
        let name = self.name(&folder)?;
        let checkout = self.checkout()?;
        let not_text =
            || CommandError::Usage(format!("the path of the checkout is not UTF-8: `{}`", checkout.display()));
        // A basic string of TOML has the escapes of JSON.
        let path = serde_json::Value::from(format!("{}/", checkout.to_str().ok_or_else(not_text)?)).to_string();
        let filled = |(file, text): (&str, &str)| {
            let text = text.replace(NAME, &name).replace(CHECKOUT, path.trim_matches('"'));
            (PathBuf::from(file), (text + "\n").into_bytes())
        };
        let mut files: Vec<_> = files().map(filled).collect();
        // The versions of dependencies that Bellows was tested with.
        if let Ok(lock) = fs::read(checkout.join("Cargo.lock")) {
            files.push(("Cargo.lock".into(), lock));
        }
        make_folder(&folder)?;
        write_files(&folder, &files)?;
        let mut text = format!("made the project `{name}`; docs/writing-an-app.md explains it. Next:\n");
        for command in [
            &*format!("cd {}", quoted(&self.folder)),
            "cargo test --release",
            "cargo run --release -- apps decrement-ttl",
            "cargo run --release -- run network.toml",
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {command}");
        }
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A path as a word of a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,=".contains(c);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_refuses_are_refused() {
        for name in ["my-bellows", "edge", "version", "Router_2", "tests", "a"] {
            assert_eq!(wrong_name(name), None, "{name}");
        }
        for name in ["", "7up", "-a", "_", "a b", "ä", "a.b", "a/b", "fn", "self", "test", "proc-macro", "build"] {
            assert!(wrong_name(name).is_some(), "{name}");
        }
        for name in ["bellows", "bellows-rig", "bellows_wire", "serde", "serde-json", "schemars"] {
            assert_eq!(wrong_name(name).as_deref(), Some("is the name of a crate that the project uses"), "{name}");
        }
        assert!(wrong_name(&"a".repeat(MAX_NAME + 1)).is_some());
    }

    #[test]
    fn the_page_has_the_files_of_a_project() {
        let files: Vec<&str> = files().map(|(file, _)| file).collect();
        for file in ["Cargo.toml", ".cargo/config.toml", "network.toml", "path.toml", "src/main.rs"] {
            assert!(files.contains(&file), "{file} is not in {files:?}");
        }
    }

    #[test]
    fn folders_have_names() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new(".")).unwrap(), here);
        assert_eq!(absolute(Path::new("a/../b/.")).unwrap(), here.join("b"));
        assert_eq!(quoted(Path::new("it's")), "'it'\\''s'");
    }
}
