//! The server: its address, and the files with credentials and certificates.

use std::fs;
use std::path::{Path, PathBuf};

use async_nats::rustls::crypto::CryptoProvider;
use async_nats::{ConnectOptions, ServerAddr};
use bellows_sys::{FileError, private_file};

use crate::error::QueueError;

/// The longest file with a secret, in bytes.
const MAX_SECRET: usize = 64 << 10;

const HELP_CREDENTIALS: &str =
    "give a file that `nsc generate creds` has written, or one with the seed of a user's nkey";

/// Where the server is, and how to be let in.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// `nats://HOST[:PORT]`, `tls://HOST[:PORT]`, with `USER:PASSWORD@` or `TOKEN@` before the host if wanted.
    pub url: String,
    /// A file of credentials as `nsc` writes it (a user's JWT and seed), or with the seed of an nkey alone.
    pub credentials: Option<PathBuf>,
    /// A file with certificates of authorities that are trusted, in PEM; those of the system if there is none.
    pub ca: Option<PathBuf>,
    /// Files with the client's own certificate and its key, in PEM, if the server asks for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Server {
    /// A server without credentials but those of its address.
    pub fn new(url: impl Into<String>) -> Server {
        Server { url: url.into(), ..Server::default() }
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> Result<ServerAddr, QueueError> {
        let wrong = |why: String| QueueError::Address { url: without_password(&self.url), why };
        let address: ServerAddr = self.url.parse().map_err(|error: std::io::Error| wrong(error.to_string()))?;
        match address.scheme() {
            "nats" | "tls" if !address.host().is_empty() => Ok(address),
            "nats" | "tls" => Err(wrong("it has no host".to_owned())),
            other => Err(wrong(format!("`{other}://` is not supported"))),
        }
    }

    /// The address for people, without a password.
    pub(crate) fn shown(address: &ServerAddr) -> String {
        let host = address.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("{}://{host}:{}", address.scheme(), address.port())
    }

    /// The options of a connection.
    pub(crate) fn options(&self, address: &ServerAddr) -> Result<ConnectOptions, QueueError> {
        let mut options = ConnectOptions::new();
        if let Some(user) = address.username() {
            let user = percent_decoded(user);
            options = match address.password() {
                Some(password) => options.user_and_password(user, percent_decoded(password)),
                None => options.token(user),
            };
        }
        if let Some(path) = &self.credentials {
            let bytes = private_file::read(path, MAX_SECRET)?;
            let text = str::from_utf8(&bytes).map_err(|_| QueueError::File {
                path: path.clone(),
                why: "is not UTF-8".to_owned(),
                help: HELP_CREDENTIALS,
            })?;
            options = match text.trim() {
                seed if is_seed(seed) => options.nkey(seed.to_owned()),
                _ => options.credentials(text).map_err(|error| QueueError::File {
                    path: path.clone(),
                    why: format!("it has no credentials: {error}"),
                    help: HELP_CREDENTIALS,
                })?,
            };
        }
        if let Some(path) = &self.ca {
            read(path, "check the path of the certificates")?;
            options = options.add_root_certificates(path.clone());
        }
        if let Some((certificate, key)) = &self.certificate {
            read(certificate, "check the path of the certificate")?;
            // The client reads it again.
            private_file::read(key, MAX_SECRET)?;
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options.require_tls(self.wants_tls(address)))
    }

    /// Whether the connection must be encrypted. It also is if the server asks for it.
    pub(crate) fn wants_tls(&self, address: &ServerAddr) -> bool {
        self.ca.is_some() || self.certificate.is_some() || address.tls_required()
    }
}

/// Chooses the ciphers of TLS connections, which this process may have done already.
pub(crate) fn choose_ciphers(server: &str) -> Result<(), QueueError> {
    if CryptoProvider::get_default().is_some() {
        return Ok(());
    }
    if !graviola::util::is_cpu_supported() {
        return Err(QueueError::Tls {
            server: server.to_owned(),
            why: "the processor lacks instructions that its ciphers need (AES, PCLMULQDQ, AVX2, BMI1 and ADX)"
                .to_owned(),
            help: "use nats:// through an encrypted tunnel",
        });
    }
    // Another thread may have been faster, which is as good.
    let _ = rustls_graviola::default_provider().install_default();
    Ok(())
}

fn read(path: &Path, help: &'static str) -> Result<String, QueueError> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => {
            QueueError::File { path: path.to_owned(), why: "is not UTF-8".to_owned(), help }
        }
        _ => FileError::of("read", path, &error, help).into(),
    })
}

/// Whether a text is the seed of a user's nkey: `SU` and 56 characters of base 32.
fn is_seed(text: &str) -> bool {
    text.len() == 58 && text.starts_with("SU") && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// An address as it was given, without what is between `//` and `@`.
fn without_password(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("//").map_or("", |(scheme, _)| scheme);
            if scheme.is_empty() { host.to_owned() } else { format!("{scheme}//{host}") }
        }
        None => url.to_owned(),
    }
}

/// A text with `%XX` as the bytes that they stand for.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let digits = (bytes[index] == b'%').then(|| text.get(index + 1..index + 3)).flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                index += 3;
            }
            None => {
                decoded.push(bytes[index]);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_shown_without_passwords() {
        let shown = |url: &str| Server::new(url).address().map(|address| Server::shown(&address));
        assert_eq!(shown("nats://lab").unwrap(), "nats://lab:4222");
        assert_eq!(shown("lab:4000").unwrap(), "nats://lab:4000");
        assert_eq!(shown("tls://me:secret@lab").unwrap(), "tls://lab:4222");
        assert_eq!(shown("nats://[::1]:9").unwrap(), "nats://[::1]:9");
        for bad in ["ws://me:secret@lab", "http://me:secret@lab", "nats://me:secret@lab:99999", ""] {
            let error = shown(bad).unwrap_err().to_string();
            assert!(error.contains("no address of a server") && !error.contains("secret"), "{bad}: {error}");
        }
    }

    #[test]
    fn percent_signs_stand_for_bytes() {
        for (text, decoded) in
            [("a%40b%2F", "a@b/"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%c3%a4", "ä"), ("%ä", "%ä")]
        {
            assert_eq!(percent_decoded(text), decoded);
        }
    }
}
