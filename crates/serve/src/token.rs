//! Secrets that clients must know.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bellows_sys::way_out;
use subtle::ConstantTimeEq;

/// The shortest token: 16 characters of base64 have 96 bits.
const MIN_LENGTH: usize = 16;

/// The longest one.
const MAX_LENGTH: usize = 256;

/// A secret that clients must know. It is compared in a time that does not depend on its characters, and never printed
/// by mistake: only [`secret`](Token::secret) gives it away.
#[derive(Clone)]
pub struct Token(String);

/// The reason why a text or file is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It has other characters, or is too short or too long.
    #[error(
        "a token has {MIN_LENGTH} to {MAX_LENGTH} letters, digits and characters of -._~; \
         `openssl rand -hex 16` makes one"
    )]
    Malformed,
    /// The content of a file is no token.
    #[error("there is no token in {0}: {1}")]
    MalformedIn(PathBuf, Box<TokenError>),
    /// It is a folder, a device or something else.
    #[error("{0} is not a regular file; give the path of a file with a token on one line")]
    NoFile(PathBuf),
    /// The file cannot be read.
    #[error("the token cannot be read from {0}: {1}; {help}", help = way_out(.1, "write it there, on one line"))]
    Unreadable(PathBuf, io::Error),
    /// Any user of the machine can read the file.
    #[error("every user can read the token in {0}; close the file with `chmod o-rwx`")]
    Open(PathBuf),
    /// The kernel has no random numbers.
    #[error("the kernel gives no random numbers for a token: {0}")]
    Random(io::Error),
}

impl Token {
    /// A token of these characters.
    ///
    /// # Errors
    /// If it is too short or too long, or has characters that would have to be escaped in a URL.
    pub fn new(secret: &str) -> Result<Token, TokenError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match (MIN_LENGTH..=MAX_LENGTH).contains(&secret.len()) && secret.bytes().all(fits) {
            true => Ok(Token(secret.to_owned())),
            false => Err(TokenError::Malformed),
        }
    }

    /// A random token of 128 bits.
    ///
    /// # Errors
    /// If the kernel gives no random numbers.
    pub fn random() -> Result<Token, TokenError> {
        let mut bytes = [0; 16];
        let taken = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
        match taken {
            Ok(taken) if taken == bytes.len() => {
                Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
            }
            Ok(_) => Err(TokenError::Random(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(TokenError::Random(error.into())),
        }
    }

    /// The token in a file, without the white space around it.
    ///
    /// # Errors
    /// If the file cannot be read or is open to all users, or its content is no token.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let unreadable = |error| TokenError::Unreadable(path.to_owned(), error);
        // Opening a pipe would wait for its writer.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(TokenError::NoFile(path.to_owned()));
        }
        let file = fs::File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.permissions().mode() & 0o007 != 0 {
            return Err(TokenError::Open(path.to_owned()));
        }
        let mut bytes = Vec::new();
        file.take(2 * MAX_LENGTH as u64).read_to_end(&mut bytes).map_err(unreadable)?;
        let text = str::from_utf8(&bytes).map_err(|_| TokenError::Malformed);
        let token = text.and_then(|text| Token::new(text.trim()));
        token.map_err(|error| TokenError::MalformedIn(path.to_owned(), Box::new(error)))
    }

    /// The secret itself, for the one who is to know it.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Whether a client knows it.
    pub(crate) fn is(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_testkit::scratch;

    #[test]
    fn tokens_are_compared_and_not_shown() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is("0123456789abcdef"));
        for guess in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.is(guess), "{guess}");
        }
        assert_eq!(format!("{token:?}"), "Token");
        for text in ["", "short", "0123456789abcde ", "0123456789abcdeé", &"x".repeat(257)] {
            assert!(matches!(Token::new(text), Err(TokenError::Malformed)), "{text}");
        }
        let [one, other] = [Token::random().unwrap(), Token::random().unwrap()];
        assert!(one.secret().len() == 32 && one.secret() != other.secret());
        assert!(Token::new(one.secret()).is_ok());
    }

    #[test]
    fn a_file_that_everyone_can_read_is_refused() {
        let folder = scratch();
        let path = scratch::write(&folder, "token", "0123456789abcdef\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Token::read(&path), Err(TokenError::Open(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Token::read(&path).unwrap().is("0123456789abcdef"));
        let missing = Token::read(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("cannot be read"), "{missing}");
    }

    #[test]
    fn a_file_without_a_token_is_named() {
        let folder = scratch();
        let path = scratch::write(&folder, "token", "");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for content in [&b""[..], b"\n", b"short", b"0123456789abcdef 0123456789abcdef", &[b'x'; 10_000], &[0xff; 20]] {
            fs::write(&path, content).unwrap();
            let error = Token::read(&path).unwrap_err().to_string();
            let start = format!("there is no token in {}: a token has 16 to 256 letters", path.display());
            assert!(error.starts_with(&start), "{error}");
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = Token::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is not a regular file") && !error.contains("chmod"), "{error}");
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert!(matches!(Token::read(&pipe), Err(TokenError::NoFile(_))));
    }
}
