//! What `bellows --version` says of a release build: the revision of its sources, its date and the features. Development
//! builds have none of these, so that a commit alone does not compile anything again.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=BELLOWS_REVISION");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // Sources without git, such as those of a package, have the revision in the environment.
    let revision = match env::var("BELLOWS_REVISION") {
        Ok(given) if !given.trim().is_empty() => given.trim().to_owned(),
        _ if is_release => revision().unwrap_or_else(|| "unknown revision".to_owned()),
        _ => "development build".to_owned(),
    };
    let features = if env::var_os("CARGO_FEATURE_NATS").is_some() { "nats" } else { "none" };
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo:rustc-env=BELLOWS_VERSION={version} ({revision}; features: {features})");
}

/// The commit and its date, and whether tracked files differ from it. None without git, or outside of a checkout.
fn revision() -> Option<String> {
    // A commit changes the first ones, a change of the sources the last one.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rerun-if-changed=..");
    let commit = git(&["show", "--no-patch", "--abbrev=12", "--format=%h, %cs", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, modified") })
}

/// The output of a git command that succeeds.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
