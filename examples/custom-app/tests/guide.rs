//! `docs/writing-an-app.md` shows the code of this crate and of the engine's documentation, and the command works.

use std::fs;
use std::path::Path;
use std::process::Command;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_guide_shows_this_code() {
    let guide = read("../../docs/writing-an-app.md");
    let files = ["src/main.rs", "src/decrement_ttl.rs", "src/udp_receiver.rs", "Cargo.toml", "network.toml"].map(read);
    let documentation = read("../../crates/engine/src/slots.rs").replace("/// ", "").replace("///\n", "\n");
    let blocks: Vec<&str> = guide.split("\n```").skip(1).step_by(2).collect();
    assert!(blocks.len() >= 7);
    for block in blocks {
        let (_, code) = block.split_once('\n').unwrap();
        let shown = files.iter().chain([&documentation]).any(|file| file.contains(code));
        assert!(shown, "this is in no file:\n{code}");
    }
}

#[test]
fn the_command_knows_the_apps() {
    let bellows = |words: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_custom-app"));
        let output = command.args(words).env("XDG_RUNTIME_DIR", folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(bellows(&["apps", "decrement-ttl"]).contains("hops to take off"));
    assert!(bellows(&["apps", "udp-receiver"]).contains("listen on"));
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("network.toml");
    assert!(bellows(&["run", network.to_str().unwrap()]).contains("expired"));
}
