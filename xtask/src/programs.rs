//! The test programs that Cargo has built, read from its messages, and how it would run each.

use std::env;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::TaskError;
use crate::commands::output;
use crate::workspace::cargo;

/// The options that make `cargo test` print what [`read`] reads, and run nothing.
pub const BUILD_ONLY: [&str; 2] = ["--no-run", "--message-format=json-render-diagnostics"];

/// The kinds of targets in the order in which Cargo runs them.
const KINDS: [&str; 5] = ["lib", "bin", "test", "bench", "example"];

/// A program that runs tests.
pub struct Program {
    /// The name of its package without `bellows-`, and that of its target: `wire/views`.
    pub name: String,
    /// The line that Cargo prints before it runs the program. A command of Cargo's prints more of them.
    pub heading: String,
    /// What makes Cargo run it alone: `-p bellows-wire --test views`.
    pub selection: String,
    pub command: Command,
}

impl Program {
    /// A command of Cargo's that runs tests.
    pub fn of_cargo(name: &str, selection: &str, command: Command) -> Program {
        let heading = format!("   Doc-tests {name} (cargo)");
        Program { name: name.to_owned(), heading, selection: selection.to_owned(), command }
    }
}

/// The test programs among the messages of a build, ordered as Cargo runs them. Cargo also lists those that it did not
/// have to build again.
///
/// # Errors
///
/// A message that lacks something, or that there are no test programs.
pub fn read(messages: &str) -> Result<Vec<Program>, String> {
    let mut programs = Vec::new();
    // What build scripts and macros print comes between.
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value =
            serde_json::from_str(line).map_err(|error| format!("{error} in Cargo's message {line}"))?;
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        if !is_test || message["executable"].is_null() {
            continue;
        }
        programs.push(program(&message).ok_or_else(|| format!("Cargo's message lacks something: {line}"))?);
    }
    programs.sort_by(|(one, _), (other, _)| one.cmp(other));
    match programs.is_empty() {
        true => Err("Cargo has built no test program".to_owned()),
        false => Ok(programs.into_iter().map(|(_, program)| program).collect()),
    }
}

/// A program, and its place in the order: package, kind and name.
fn program(message: &Value) -> Option<((String, usize, String), Program)> {
    let (package, version) = package(message["package_id"].as_str()?)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?;
    let target = &message["target"];
    let kind = target["kind"][0].as_str()?;
    let kind = KINDS.iter().position(|known| *known == kind).unwrap_or(0);
    let name = target["name"].as_str()?;
    let source = Path::new(target["src_path"].as_str()?);
    let source = source.strip_prefix(folder).unwrap_or(source).display().to_string();
    let executable = Path::new(message["executable"].as_str()?);
    let shown = env::current_dir().ok();
    let shown = shown.and_then(|current| executable.strip_prefix(current).ok()).unwrap_or(executable);

    let unit_tests = if KINDS[kind] == "test" { "" } else { "unittests " };
    let heading = format!("     Running {unit_tests}{source} ({})", shown.display());
    let selection = match KINDS[kind] {
        "lib" => format!("-p {package} --lib"),
        kind => format!("-p {package} --{kind} {name}"),
    };
    let mut command = Command::new(executable);
    // Cargo runs tests in the folder of their package.
    command.current_dir(folder);
    // Cargo has set these for this program, to values of its own package. The tests read no others at run time.
    for (variable, _) in env::vars_os().filter(|(variable, _)| is_of_package(&variable.to_string_lossy())) {
        command.env_remove(variable);
    }
    command.env("CARGO_MANIFEST_DIR", folder).env("CARGO_MANIFEST_PATH", manifest);
    command.env("CARGO_PKG_NAME", package).env("CARGO_PKG_VERSION", version);
    let program = Program { name: self::name(package, name), heading, selection, command };
    Some(((package.to_owned(), kind, name.to_owned()), program))
}

/// The name of a target's program.
fn name(package: &str, target: &str) -> String {
    format!("{}/{target}", package.strip_prefix("bellows-").unwrap_or(package))
}

/// The names of the workspace's integration tests.
///
/// # Errors
///
/// Cargo cannot list the workspace.
pub fn in_workspace() -> Result<Vec<String>, TaskError> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| TaskError::failed(format!("cargo metadata: {error}")))?;
    let mut names = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let tests = package["targets"].as_array().into_iter().flatten().filter(|target| target["kind"][0] == "test");
        let targets = tests.filter_map(|target| target["name"].as_str());
        names.extend(targets.map(|target| name(package["name"].as_str().unwrap_or_default(), target)));
    }
    Ok(names)
}

/// Whether a variable describes the package of a program that Cargo runs.
fn is_of_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
}

/// The name and version in the identification of a package: `path+file:///src/crates/base/wire#bellows-wire@0.1.0`, or
/// `path+file:///src/xtask#0.1.0` if the folder has the name of the package.
fn package(id: &str) -> Option<(&str, &str)> {
    let (source, fragment) = id.split_once('#')?;
    fragment.split_once('@').or_else(|| Some((source.rsplit('/').next()?, fragment)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    const WIRE: &str = "path+file:///src/crates/base/wire#bellows-wire@0.1.0";

    /// A message about a test program of the package `wire`.
    fn artifact(package: &str, kind: &str, name: &str, source: &str) -> String {
        let folder = package.split('#').next().unwrap().trim_start_matches("path+file://");
        serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": package,
            "manifest_path": format!("{folder}/Cargo.toml"),
            "target": { "kind": [kind], "name": name, "src_path": format!("{folder}/{source}"), "test": true },
            "profile": { "opt_level": "1", "test": true },
            "executable": format!("/elsewhere/debug/deps/{name}-0123"),
            "fresh": true,
        })
        .to_string()
    }

    fn variable<'c>(command: &'c Command, name: &str) -> Option<Option<&'c OsStr>> {
        command.get_envs().find(|(variable, _)| *variable == name).map(|(_, value)| value)
    }

    #[test]
    fn test_programs_are_in_cargos_order() {
        let messages = [
            artifact("path+file:///src/xtask#0.1.0", "bin", "xtask", "src/main.rs"),
            artifact(WIRE, "test", "views", "tests/views.rs"),
            "what a build script prints".to_owned(),
            artifact(WIRE, "test", "frames", "tests/frames/main.rs"),
            artifact(WIRE, "lib", "bellows_wire", "src/lib.rs"),
            // A library, a program and a message that are no tests.
            artifact(WIRE, "lib", "bellows_wire", "src/lib.rs").replace("\"test\":true}", "\"test\":false}"),
            artifact(WIRE, "bin", "wired", "src/main.rs").replace("\"test\":true", "\"test\":false"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let programs = read(&messages.join("\n")).unwrap();
        let of = |part: fn(&Program) -> &str| programs.iter().map(part).collect::<Vec<_>>();
        assert_eq!(of(|program| &program.name), ["wire/bellows_wire", "wire/frames", "wire/views", "xtask/xtask"]);
        assert_eq!(
            of(|program| &*program.heading),
            [
                "     Running unittests src/lib.rs (/elsewhere/debug/deps/bellows_wire-0123)",
                "     Running tests/frames/main.rs (/elsewhere/debug/deps/frames-0123)",
                "     Running tests/views.rs (/elsewhere/debug/deps/views-0123)",
                "     Running unittests src/main.rs (/elsewhere/debug/deps/xtask-0123)",
            ]
        );
        assert_eq!(
            of(|program| &program.selection),
            [
                "-p bellows-wire --lib",
                "-p bellows-wire --test frames",
                "-p bellows-wire --test views",
                "-p xtask --bin xtask"
            ]
        );
    }

    #[test]
    fn a_program_runs_as_cargo_runs_it() {
        let programs = read(&artifact(WIRE, "test", "views", "tests/views.rs")).unwrap();
        let command = &programs[0].command;
        assert_eq!(command.get_program(), "/elsewhere/debug/deps/views-0123");
        assert_eq!(command.get_current_dir(), Some(Path::new("/src/crates/base/wire")));
        for (name, value) in [
            ("CARGO_MANIFEST_DIR", "/src/crates/base/wire"),
            ("CARGO_MANIFEST_PATH", "/src/crates/base/wire/Cargo.toml"),
            ("CARGO_PKG_NAME", "bellows-wire"),
            ("CARGO_PKG_VERSION", "0.1.0"),
        ] {
            assert_eq!(variable(command, name), Some(Some(OsStr::new(value))), "{name}");
        }
        // Cargo sets it for this test.
        assert!(
            env::var_os("CARGO_PKG_VERSION_MINOR").is_none()
                || variable(command, "CARGO_PKG_VERSION_MINOR") == Some(None)
        );
    }

    #[test]
    fn a_build_without_test_programs_is_an_error() {
        let Err(why) = read(r#"{"reason":"build-finished","success":true}"#) else { panic!("there are none") };
        assert!(why.contains("no test program"), "{why}");
        let Err(why) = read(&artifact("wire", "lib", "bellows_wire", "src/lib.rs")) else { panic!("no version") };
        assert!(why.contains("lacks something"), "{why}");
    }
}
