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
    let enabled = |name: &&str| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some();
    let features = FEATURES.into_iter().filter(enabled).collect::<Vec<_>>().join(", ");
    let features = if features.is_empty() { "none".to_owned() } else { features };
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo:rustc-env=BELLOWS_BUILT_FROM={revision}");
    println!("cargo:rustc-env=BELLOWS_FEATURES={features}");
    println!("cargo:rustc-env=BELLOWS_VERSION={version} ({revision}; features: {features})");
}

/// The features of this crate.
const FEATURES: [&str; 3] = ["http", "measure", "nats"];

/// What a build is made of. A change elsewhere, such as in the documentation, is no change of the program.
const SOURCES: [&str; 3] = ["../../../crates", "../../../Cargo.toml", "../../../Cargo.lock"];

/// The commit and its date, and whether tracked sources differ from it. None without git, or outside of a checkout.
fn revision() -> Option<String> {
    // A commit changes one of these: the branch may be in a file of its own, or packed with others.
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"])?;
    for name in ["HEAD", "logs/HEAD", "packed-refs", &branch] {
        watch(&git(&["rev-parse", "--git-path", name])?);
    }
    SOURCES.iter().for_each(|path| watch(path));
    let commit = git(&["show", "--no-patch", "--abbrev=12", "--format=%h, %cs", "HEAD"])?;
    let changes = git(&[&["status", "--porcelain", "--untracked-files=no", "--"][..], &SOURCES].concat())?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, modified") })
}

/// Has Cargo run this again when a file, or one below a folder, changes. With one that is missing, it would always.
fn watch(path: &str) {
    if Path::new(path).exists() {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// The output of a git command that succeeds. It takes no lock that another command may want.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .args(words)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
