//! The user as whom the services of this machine run their networks, by configuration.
//!
//! Root operates these networks, and would have to write their user each time. Which user that is, only root can say:
//! in a file that nobody else can write.

use std::io::ErrorKind;
use std::path::Path;

use bellows_sys::remedy;
use bellows_sys::untrusted::read_of_root;

/// The file.
pub const FILE: &str = "/etc/bellows/service.conf";

/// The maximum size of the file, in bytes.
const MAX_FILE: u64 = 4 << 10;

/// The name or number of the user; `None` if the machine has no such file.
///
/// # Errors
/// If the file cannot be read, or others than root may have written it, or it has something else: a sentence.
pub fn service_user() -> Result<Option<String>, String> {
    read(Path::new(FILE))
}

fn read(path: &Path) -> Result<Option<String>, String> {
    let content = match read_of_root(path, MAX_FILE) {
        Ok(content) => content,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(format!(
                "{0} is not used, because others than root could have written it; `chown root {0}` and `chmod 644 {0}`, \
                 and the same for its folder",
                path.display()
            ));
        }
        Err(error) => {
            let help = remedy(&error, "it is a short text");
            return Err(format!("{} cannot be read: {error}; {help}", path.display()));
        }
    };
    let user = String::from_utf8(content).ok().and_then(|text| parse(&text));
    user.ok_or_else(|| format!("{} is not understood; write one line: `user = NAME`", path.display())).map(Some)
}

/// The user in the text of the file: one line `user = NAME`, and comments.
fn parse(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (key, user) = lines.next()?.split_once('=')?;
    let user = user.trim();
    let fits = |c: char| c.is_alphanumeric() || "-_.$+".contains(c);
    let is_fine = key.trim() == "user" && !user.is_empty() && user.chars().all(fits) && lines.next().is_none();
    is_fine.then(|| user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_one_user() {
        assert_eq!(parse("# comment\n\n user = bellows \n").as_deref(), Some("bellows"));
        assert_eq!(parse("user=1000").as_deref(), Some("1000"));
        for wrong in
            ["", "user", "user =", "users = a", "user = a\nuser = b", "user = a b", "user = a/b", "user = \"a\""]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_file_is_no_user() {
        assert_eq!(read(Path::new("/nonexistent/service.conf")), Ok(None));
    }
}
