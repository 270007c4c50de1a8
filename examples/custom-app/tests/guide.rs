//! `docs/writing-an-app.md`: its files compile when copied, its fragments occur in the code, and the command works.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const GUIDE: &str = "docs/writing-an-app.md";

/// The file with the settings of debug builds, added to the guide's files.
const SETTINGS: &str = "profile.toml";

/// The name of the project, in the guide and here.
const NAME: &str = "my-bellows";

/// A network with the guide's other app, at a port that is free.
const RECEIVER: &str = r#"
links = ["receiver -> end"]
[apps.receiver]
app = "udp-receiver"
listen = "127.0.0.1:0"
[apps.end]
app = "sink"
"#;

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A block of code.
struct Block {
    /// The name of the file, if the block is a whole file.
    file: Option<String>,
    code: String,
}

/// The fenced blocks of the guide. A block that is a whole file has its name after the language.
fn blocks() -> Vec<Block> {
    let guide = format!("\n{}", read(GUIDE));
    let blocks = guide.split("\n```").skip(1).step_by(2).map(|block| {
        let (head, code) = block.split_once('\n').unwrap();
        Block { file: head.split_once(' ').map(|(_, file)| file.to_owned()), code: format!("{code}\n") }
    });
    blocks.collect()
}

/// The command `new`, in a folder.
fn new(within: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_custom-app")).arg("new").args(words).current_dir(within).output().unwrap()
}

/// The project that `new` makes: the guide's files, but with paths to this checkout of Bellows.
fn project() -> TempDir {
    let folder = tempfile::Builder::new().prefix("new-").tempdir().unwrap();
    let said = new(folder.path(), &[".", "--name", NAME]);
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.ends_with(
            "  cd .\n  cargo test --release\n  cargo run --release -- apps decrement-ttl\n  cargo run --release -- run network.toml\n"
        ),
        "{said}"
    );
    let mut written = 0;
    for Block { file, code } in blocks() {
        let Some(file) = file else { continue };
        let made = fs::read_to_string(folder.path().join(&file)).unwrap();
        assert_eq!(made.replace(&format!("{}/", root().display()), "../bellows/"), code, "{file}");
        written += 1;
    }
    assert_eq!(written, 8);
    // The versions and settings of this workspace: nothing is fetched, and no dependency is rebuilt.
    let manifest = read("Cargo.toml");
    let settings = manifest.find("[profile.dev]").expect("the settings of debug builds are last in Cargo.toml");
    fs::write(folder.path().join(SETTINGS), &manifest[settings..]).unwrap();
    folder
}

fn cargo(folder: &Path, words: &[&str]) -> Output {
    // The target folder of this test, to reuse its builds.
    let target = Path::new(env!("CARGO_BIN_EXE_custom-app")).ancestors().nth(2).unwrap();
    let mut command = Command::new(env!("CARGO"));
    command.args(["--config", SETTINGS]);
    // A project outside of the tree rebuilds Bellows' own crates: build them as fast as possible.
    let groups = fs::read_dir(root().join("crates")).unwrap().map(|group| group.unwrap().path());
    for folder in groups.flat_map(|group| fs::read_dir(group).unwrap()) {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let package = if name == "bellows" { name } else { format!("bellows-{name}") };
        for setting in ["opt-level=0", "debug=false"] {
            command.args(["--config", &format!("profile.dev.package.{package}.{setting}")]);
        }
    }
    let output = command.args(words).arg("--offline").current_dir(folder).env("CARGO_TARGET_DIR", target).output();
    let output = output.unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {}\n{complaints}", String::from_utf8_lossy(&output.stdout));
    assert!(!complaints.contains("warning: unused"), "{complaints}");
    output
}

#[test]
fn the_project_that_new_makes_compiles() {
    let project = project();
    let tested = String::from_utf8(cargo(project.path(), &["test", "--quiet"]).stdout).unwrap();
    assert!(tested.contains("test result: ok. 7 passed"), "{tested}");
    let runtime = tempfile::tempdir().unwrap();
    let target = Path::new(env!("CARGO_BIN_EXE_custom-app")).parent().unwrap();
    cargo(project.path(), &["build", "--quiet"]);
    let my_bellows = |words: &[&str]| {
        let mut command = Command::new(target.join(NAME));
        command.args(words).current_dir(project.path());
        command.env("BELLOWS_RUNTIME_DIR", runtime.path().join("networks"));
        command.env("BELLOWS_STATE_DIR", runtime.path().join("state"));
        command
    };
    let said = my_bellows(&["run", "network.toml", "--json"]).output().unwrap().stdout;
    let report: serde_json::Value = serde_json::from_slice(&said).unwrap();
    assert!(report["apps"][1]["drops"]["expired"].as_u64().unwrap() > 0, "{report:#}");

    // The guide's commands: what Cargo runs, and the program itself.
    let guide = read(GUIDE);
    let commands: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("    cargo run ")).collect();
    assert!(commands.len() > 4, "{commands:?}");
    for command in commands {
        let (_, words) = command.split_once("-- ").unwrap();
        let output = my_bellows(&words.split(' ').collect::<Vec<_>>()).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(project.path().join("path.svg").exists());
    assert!(guide.contains("\n    $ my-bellows show status\n"));
    fs::write(project.path().join("receiver.toml"), RECEIVER).unwrap();
    let mut running = my_bellows(&["run", "receiver.toml"]).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let said = loop {
        let output = my_bellows(&["show", "status"]).output().unwrap();
        if output.status.success() || Instant::now() > deadline {
            break String::from_utf8_lossy(&output.stdout).into_owned();
        }
        thread::sleep(Duration::from_millis(50));
    };
    let stopped = my_bellows(&["stop"]).status().unwrap().success();
    if !stopped {
        running.kill().unwrap();
    }
    assert!(running.wait().unwrap().success() && stopped, "{said}");
    assert!(said.starts_with("receiver (udp-receiver):\n  listening_on: 127.0.0.1:"), "{said}");
}

#[test]
fn a_project_is_made_only_where_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path();
    fs::create_dir(within.join("full")).unwrap();
    fs::write(within.join("full/mine"), "").unwrap();
    fs::write(within.join("file"), "").unwrap();
    for (words, why) in [
        (&["full"][..], "is not empty"),
        (&["file"], "is not a folder"),
        (&["fn"], "the project's name `fn` is a word of Rust or Cargo; give one with `--name NAME`"),
        (&["other", "--name", "serde"], "is the name of a crate that the project uses; choose another"),
        (&["other", "--bellows", "full"], "`full` is no checkout of Bellows"),
        (&["/"], "the folder has no name"),
    ] {
        let said = new(within, words);
        let complaint = String::from_utf8(said.stderr).unwrap();
        assert!(said.status.code() == Some(2) && complaint.contains(why), "{words:?}: {complaint}");
    }
    let left: Vec<_> = fs::read_dir(within).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!((left.len(), fs::read_dir(within.join("full")).unwrap().count()), (2, 1), "{left:?}");
    // Another name, in folders that are not there yet, with a checkout that is named.
    let checkout = root().display().to_string();
    let said = new(within, &["a/it's/edge", "--bellows", &checkout]);
    assert!(said.status.success(), "{said:?}");
    assert!(String::from_utf8(said.stdout).unwrap().contains("  cd 'a/it'\\''s/edge'\n"));
    let made = |file: &str| fs::read_to_string(within.join("a/it's/edge").join(file)).unwrap();
    assert!(made("Cargo.toml").starts_with("[package]\nname = \"edge\"\n"));
    assert!(made("src/main.rs").contains("bellows::Command::new(\"edge\")"));
}

#[test]
fn files_equal_the_example_and_flags_equal_the_project() {
    let mut seen = 0;
    for Block { file, code } in blocks() {
        match file.as_deref() {
            Some(file) if file.starts_with("src/") => {
                assert_eq!(code, read(&format!("examples/custom-app/{file}")), "{file}");
                seen += 1;
            }
            Some(file @ ".cargo/config.toml") => assert!(read(file).contains(&code), "{file}"),
            _ => {}
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn fragments_occur_in_the_code() {
    let documentation = read("crates/engine/engine/src/runtime/slots.rs").replace("/// ", "").replace("///\n", "\n");
    let mut seen = 0;
    for Block { code, .. } in blocks().into_iter().filter(|block| block.file.is_none() && !block.code.contains("git ="))
    {
        assert!(documentation.contains(&code), "no file contains:\n{code}");
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn the_command_knows_the_apps() {
    let bellows = |words: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_custom-app"));
        let output = command.args(words).env("BELLOWS_RUNTIME_DIR", folder.path().join("networks")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(bellows(&["apps", "decrement-ttl"]).contains("hops to take off"));
    assert!(bellows(&["apps", "udp-receiver"]).contains("listen on"));
    assert!(bellows(&["apps", "long-path"]).contains("the network gets its parts instead"));
    let run = |network: &str| {
        let network = Path::new(env!("CARGO_MANIFEST_DIR")).join(network);
        bellows(&["run", network.to_str().unwrap()])
    };
    assert!(run("network.toml").contains("expired"));
    let path = run("path.toml");
    let drops = path.lines().find(|line| line.starts_with("path/hop30 ") && line.contains(" expired "));
    assert!(drops.is_some(), "the last router is farther away than packets come:\n{path}");
}
