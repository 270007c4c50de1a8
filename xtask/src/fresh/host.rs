//! Settings that the clean system copies from this one: access to packages, and the Rust toolchain.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::TaskError;

/// A package archive that this machine's apt uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    pub uri: String,
    pub release: String,
}

/// The archives of a Debian release, as this machine's apt reaches them. Empty if the machine runs another release or
/// system.
pub fn archives(suite: &str) -> Vec<Archive> {
    let format = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)";
    let said = printed("apt-get", &["indextargets", "--format", format, "Created-By: Packages"]);
    parse_archives(&said.unwrap_or_default(), suite)
}

fn parse_archives(said: &str, suite: &str) -> Vec<Archive> {
    let mut archives = Vec::new();
    for line in said.lines() {
        let [uri, release, "main", origin] = line.split('|').collect::<Vec<_>>()[..] else { continue };
        let of_suite = release.strip_prefix(suite).is_some_and(|rest| ["", "-updates", "-security"].contains(&rest));
        // The origin is known only after the lists have been fetched.
        let of_debian = origin == "Debian" || origin.is_empty() || origin.starts_with('$');
        let archive = Archive { uri: uri.to_owned(), release: release.to_owned() };
        if of_suite && of_debian && !archives.contains(&archive) {
            archives.push(archive);
        }
    }
    archives
}

/// How this machine's apt fetches files (proxies, certificates, trust), as lines of a configuration file.
pub fn apt_settings() -> String {
    // Settings for index files depend on the packages installed here.
    let keep = |line: &&str| !line.starts_with("Acquire::IndexTargets");
    let said = printed("apt-config", &["dump", "Acquire"]).unwrap_or_default();
    said.lines().filter(keep).map(|line| format!("{line}\n")).collect()
}

/// The proxy that apt uses, for `debootstrap`, which does not read apt's settings.
pub fn apt_proxy() -> Option<String> {
    let said = printed("apt-config", &["shell", "PROXY", "Acquire::http::Proxy"])?;
    let proxy = said.trim().strip_prefix("PROXY='")?.strip_suffix('\'')?;
    (!proxy.is_empty()).then(|| proxy.to_owned())
}

/// The variables with the network settings of Cargo and others. Tokens are excluded: nothing here logs in.
pub fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on))
}

fn is_passed_on(name: &str) -> bool {
    let cargo = ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_"];
    let upper = name.to_ascii_uppercase();
    let others = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"].contains(&&*upper)
        || ["SSL_CERT_FILE", "SSL_CERT_DIR", "TERM"].contains(&name);
    others || cargo.iter().any(|prefix| name.starts_with(prefix)) && !upper.contains("TOKEN")
}

/// The folder of the toolchain that runs this program: `bin/cargo` and its files.
pub fn toolchain() -> Result<String, TaskError> {
    let folder = printed("rustc", &["--print", "sysroot"]).map(|said| said.trim().to_owned());
    let folder = folder.ok_or_else(|| TaskError::failed("cannot run rustc; is the Rust toolchain on the PATH?"))?;
    for program in ["cargo", "rustc", "rustfmt", "cargo-clippy"] {
        if !PathBuf::from(&folder).join("bin").join(program).is_file() {
            return Err(TaskError::failed(format!(
                "the toolchain in {folder} has no {program}; the one of rustup has (rustup component add rustfmt clippy)"
            )));
        }
    }
    Ok(folder)
}

/// The folder in which Cargo keeps downloads.
pub fn cargo_home() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home)
}

/// The output of a program, if it succeeds.
fn printed(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).env("LC_ALL", "C").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_debians_of_that_release() {
        let said = "http://a/debian/|bookworm|main|Debian\nhttp://a/debian/|bookworm|contrib|Debian\n\
                    http://a/security/|bookworm-security|main|$(ORIGIN)\nhttp://b/|bookworm|main|Docker\n\
                    http://a/debian/|bookworm|main|Debian\nhttp://a/debian/|trixie|main|Debian\nnonsense\n";
        let archive = |uri: &str, release: &str| Archive { uri: uri.into(), release: release.into() };
        let expected = [archive("http://a/debian/", "bookworm"), archive("http://a/security/", "bookworm-security")];
        assert_eq!(parse_archives(said, "bookworm"), expected);
        assert_eq!(parse_archives(said, "sid"), []);
    }

    #[test]
    fn settings_are_passed_on_and_secrets_are_not() {
        for name in ["https_proxy", "CARGO_NET_OFFLINE", "CARGO_REGISTRIES_MINE_INDEX", "SSL_CERT_FILE"] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in
            ["HOME", "CARGO_REGISTRY_TOKEN", "CARGO_REGISTRIES_MINE_TOKEN", "CARGO_TARGET_DIR", "RUSTFLAGS", "CI"]
        {
            assert!(!is_passed_on(name), "{name}");
        }
    }
}
