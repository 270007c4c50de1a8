//! The state folder: what must outlive a run and a restart of the machine.
//!
//! It is the first of these that is set:
//!
//! 1. `$BELLOWS_STATE_DIR`;
//! 2. `$STATE_DIRECTORY`, which systemd sets for a service with `StateDirectory=`;
//! 3. `$XDG_STATE_HOME/bellows`;
//! 4. `$HOME/.local/state/bellows`.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// Finds the folder, and makes it if it is not there.
///
/// # Errors
/// With the reason why there is none: a sentence.
pub fn state_folder() -> Result<PathBuf, String> {
    let folder = find()?;
    match DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
        Ok(()) => Ok(folder),
        Err(error) => Err(format!(
            "the state folder `{}` cannot be made: {error}; choose another with BELLOWS_STATE_DIR",
            folder.display()
        )),
    }
}

/// Finds the folder, which may not be there.
///
/// # Errors
/// With the reason why there is none: a sentence.
pub fn find() -> Result<PathBuf, String> {
    let found = choose(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    found.ok_or_else(|| "there is no state folder, because neither BELLOWS_STATE_DIR nor HOME is set".to_owned())
}

fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd separates several folders by colons.
    let of_service = variable("STATE_DIRECTORY").and_then(|folders| {
        let first = folders.to_str()?.split(':').next()?;
        Some(PathBuf::from(first)).filter(|path| path.is_absolute())
    });
    let own =
        variable("BELLOWS_STATE_DIR").map(|folder| std::path::absolute(&folder).unwrap_or_else(|_| folder.into()));
    own.or(of_service)
        .or_else(|| Some(path("XDG_STATE_HOME")?.join("bellows")))
        .or_else(|| Some(path("HOME")?.join(".local/state/bellows")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_decides() {
        let all = [
            ("HOME", "/home/a", "/home/a/.local/state/bellows"),
            ("XDG_STATE_HOME", "/state", "/state/bellows"),
            ("STATE_DIRECTORY", "/var/lib/bellows:/var/lib/other", "/var/lib/bellows"),
            ("BELLOWS_STATE_DIR", "/here", "/here"),
        ];
        for count in 1..=all.len() {
            let variable = |name: &str| {
                all[..count].iter().find(|(known, ..)| *known == name).map(|(_, value, _)| (*value).into())
            };
            assert_eq!(choose(variable), Some(all[count - 1].2.into()));
        }
        assert_eq!(choose(|_| None), None);
        assert_eq!(choose(|name| (name == "HOME").then(|| "relative".into())), None);
    }
}
