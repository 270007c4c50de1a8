//! Errors of files that somebody has named: the same sentences everywhere.

use std::io;
use std::path::{Path, PathBuf};

use crate::remedy;

/// A file that cannot be read, written or opened, in one sentence: ``cannot read `routes.txt`: it does not exist; correct
/// the path, or create the file``.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {help}")]
pub struct FileError {
    /// What cannot be done with which file, and why.
    pub message: String,
    /// The way out, as a clause.
    pub help: String,
}

impl FileError {
    /// An error of reading a file.
    pub fn reading(path: &Path, error: &io::Error) -> FileError {
        FileError::of("read", path, error, "check the path")
    }

    /// An error of writing or creating a file.
    pub fn writing(path: &Path, error: &io::Error) -> FileError {
        FileError::of("write", path, error, "check the permissions of the folder, or give another path")
    }

    /// An error of doing something else with a file; `usual` is the way out of errors with many possible causes.
    pub fn of(doing: &str, path: &Path, error: &io::Error, usual: &str) -> FileError {
        let (why, help) = why(path, error, usual);
        FileError { message: format!("cannot {doing} `{}`: {why}", path.display()), help }
    }
}

/// Why something cannot be done with a file, and the way out.
fn why(path: &Path, error: &io::Error, usual: &str) -> (String, String) {
    if error.kind() == io::ErrorKind::NotFound {
        return match missing_folder(path) {
            Some(folder) => {
                let why = format!("there is no folder `{}`", folder.display());
                (why, "check the path, or create the folder".to_owned())
            }
            None => ("it does not exist".to_owned(), "check the path, or create the file".to_owned()),
        };
    }
    if error.kind() == io::ErrorKind::IsADirectory {
        return ("it is a folder".to_owned(), "give the name of a file".to_owned());
    }
    (reason(error), remedy(error, usual).to_owned())
}

/// The first folder above a file that does not exist.
fn missing_folder(path: &Path) -> Option<PathBuf> {
    let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    folders.take_while(|folder| !folder.exists()).last().map(Path::to_owned)
}

/// The text of a system's error without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use bellows_testkit::scratch::scratch;

    use super::*;

    #[test]
    fn a_file_that_is_not_there_and_its_folder_are_told_apart() {
        let folder = scratch();
        let at = |name: &str| folder.path().join(name);
        let read = |path: &Path| {
            let error = fs::read(path).unwrap_err();
            FileError::reading(path, &error).to_string()
        };
        let path = at("none");
        let expected =
            format!("cannot read `{}`: it does not exist; check the path, or create the file", path.display());
        assert_eq!(read(&path), expected);
        let said = read(&at("one/two/three"));
        assert!(said.contains(&format!("there is no folder `{}`;", at("one").display())), "{said}");
        let said = read(Path::new("none-at-all"));
        assert_eq!(said, "cannot read `none-at-all`: it does not exist; check the path, or create the file");
        let said = read(folder.path());
        assert!(said.ends_with("it is a folder; give the name of a file"), "{said}");
        File::create(at("file")).unwrap();
        let said = read(&at("file/inside"));
        assert!(said.contains("not a directory; a part of the path is a file"), "{said}");
        let said = FileError::writing(&at("x"), &io::Error::from_raw_os_error(28)).to_string();
        assert!(
            said.starts_with("cannot write `") && said.contains("no space left on device; the disk is full"),
            "{said}"
        );
    }
}
