//! Secrets that clients must know.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bellows_sys::private_file::{self, PrivateFileError};
use subtle::ConstantTimeEq;

/// The shortest token: 16 characters of base64 have 96 bits.
const MIN_LENGTH: usize = 16;

/// The longest one.
const MAX_LENGTH: usize = 256;

/// The longest file with one.
const MAX_FILE: usize = 4_096;

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
    /// The file cannot be read, or others can read it too.
    #[error(transparent)]
    File(#[from] PrivateFileError),
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
    /// If the file cannot be read or others can read it too, or its content is no token.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let bytes = private_file::read(path, MAX_FILE)?;
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
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

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
    fn a_file_that_others_can_read_is_refused() {
        let folder = scratch();
        let path = scratch::write(&folder, "token", "0123456789abcdef\n");
        for mode in [0o644, 0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Token::read(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:04o}")) && error.contains("`chmod 600 "), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::read(&path).unwrap().is("0123456789abcdef"));
        let missing = Token::read(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("cannot read `"), "{missing}");
    }

    #[test]
    fn a_file_without_a_token_is_named() {
        let folder = scratch();
        let path = scratch::write(&folder, "token", "");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for content in [&b""[..], b"\n", b"short", b"0123456789abcdef 0123456789abcdef", &[b'x'; 4_000], &[0xff; 20]] {
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
        assert!(matches!(Token::read(&pipe), Err(TokenError::File(PrivateFileError::NotRegular(_)))));
    }
}
