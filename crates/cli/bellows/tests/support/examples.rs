//! The networks in `examples/`, and the commands at their tops.

use std::fs;
use std::path::PathBuf;

use super::{Sandbox, root};

/// The networks that need interfaces of certain names. `tests/interfaces/examples.rs` runs them in network namespaces.
pub const WITH_INTERFACES: [&str; 8] = [
    "bridge.toml",
    "container.toml",
    "mirror.toml",
    "router-host.toml",
    "router-stages.toml",
    "router.toml",
    "shared-port.toml",
    "vlan.toml",
];

/// The capture that comes with the examples.
pub const CAPTURE: &str = "examples/captures/quickstart.pcap";

/// All network files.
pub fn networks() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

/// The folder `examples` in a sandbox, as in a checkout.
pub fn checkout(sandbox: Sandbox) -> Sandbox {
    fs::create_dir_all(sandbox.path("examples/captures")).unwrap();
    fs::copy(root().join(CAPTURE), sandbox.path(CAPTURE)).unwrap();
    fs::create_dir_all(sandbox.path("examples/parts")).unwrap();
    for part in fs::read_dir(root().join("examples/parts")).unwrap() {
        let part = part.unwrap();
        fs::copy(part.path(), sandbox.path("examples/parts").join(part.file_name())).unwrap();
    }
    for file in networks() {
        fs::copy(&file, sandbox.path("examples").join(file.file_name().unwrap())).unwrap();
    }
    sandbox
}

/// A command line that runs a network.
#[derive(Debug)]
pub struct CommandLine {
    /// The variables before the program, such as `INTERFACE=eth1`.
    pub variables: Vec<String>,
    /// The words after the program, from `run` on.
    pub words: Vec<String>,
}

impl CommandLine {
    fn new(line: &str) -> CommandLine {
        let command = line.split('#').next().unwrap();
        // Quotes are for the shell, and around no spaces.
        let mut variables: Vec<String> = command.split_whitespace().map(|word| word.replace('\'', "")).collect();
        let program = variables.iter().position(|word| word == "bellows").expect("a command of bellows");
        let words = variables.split_off(program).split_off(1);
        CommandLine { variables, words }
    }

    pub fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|one| one == word)
    }
}

/// The command lines in the comment at the top of a network file that run an example.
pub fn command_lines(name: &str) -> Vec<CommandLine> {
    let text = fs::read_to_string(root().join("examples").join(name)).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("#     "));
    lines.filter(|line| line.contains("bellows run examples/")).map(CommandLine::new).collect()
}
