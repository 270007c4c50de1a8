//! `cargo xtask peers`: measures Bellows beside other programs, in one run on one machine.

use std::process::Command;

use crate::tools::{self, Tool};
use crate::workspace::{cargo, target_dir};
use crate::{TaskError, interfaces, vhost};

pub const TOOLS: &[Tool] = &[Tool { programs: &["luajit"], package: "luajit", purpose: "the breath model in Lua" }];

/// The model in Lua, and its loops.
const MODEL: &str = "bench/peers/breathsim.lua";
const LOOPS: [&str; 2] = ["nested", "flattened"];

/// Breaths of a brief run.
const BRIEF: &str = "4000";

/// The options of `peers breathsim`.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    processes: usize,
    cpu: Option<usize>,
    json: bool,
    /// A run has a thousandth of the breaths.
    brief: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Options, TaskError> {
        let mut options = Options { processes: 9, cpu: None, json: false, brief: false };
        let mut words = words.iter();
        match words.next().map(String::as_str) {
            Some("breathsim") => {}
            Some(other) => {
                return Err(TaskError::usage(format!(
                    "peers: there is no comparison '{other}'; there are breathsim, vhost and interfaces"
                )));
            }
            None => return Err(TaskError::usage("peers needs a comparison: breathsim, vhost or interfaces")),
        }
        while let Some(word) = words.next() {
            let mut number = |name: &str| {
                let number = words.next().and_then(|number| number.parse::<usize>().ok());
                number.ok_or_else(|| TaskError::usage(format!("{name} needs a whole number")))
            };
            match word.as_str() {
                "--json" => options.json = true,
                "--brief" => options.brief = true,
                "--cpu" => options.cpu = Some(number("--cpu")?),
                "--processes" => match number("--processes")? {
                    0 => return Err(TaskError::usage("--processes needs at least 1")),
                    processes => options.processes = processes,
                },
                other => return Err(TaskError::usage(format!("peers: '{other}' is not an option"))),
            }
        }
        Ok(options)
    }
}

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    if let Some((_, words)) = words.split_first().filter(|(comparison, _)| *comparison == "vhost") {
        return vhost::run(words);
    }
    if let Some((_, words)) = words.split_first().filter(|(comparison, _)| *comparison == "interfaces") {
        return interfaces::run(words);
    }
    let options = Options::parse(words)?;
    if let Some(tool) = tools::provide(TOOLS).first() {
        return Err(TaskError::failed(format!("missing: {tool}; needed for {}", tool.purpose)));
    }
    let mut build = cargo(&["build", "--release", "--quiet", "--package", "bellows"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err(TaskError::failed("the release build of bellows failed: see above"));
    }
    // `bellows` makes its own processes and those of the model take turns.
    let mut bellows = Command::new(target_dir().join("release/bellows"));
    let status = bellows.args(arguments(&options)).env("PATH", tools::search_path()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(TaskError::failed(format!("the comparison ended with {status}: see above"))),
        Err(error) => Err(TaskError::failed(format!("cannot run {bellows:?}: {error}"))),
    }
}

/// The arguments for `bellows`.
fn arguments(options: &Options) -> Vec<String> {
    let Options { processes, cpu, json, brief } = options;
    let mut arguments: Vec<String> =
        ["breathsim", "--apps", "5", "--work", "100", "--processes", &processes.to_string()].map(String::from).into();
    for shape in LOOPS {
        arguments.extend(["--model".to_owned(), format!("luajit/{shape}=luajit {MODEL} {shape} turns")]);
    }
    if let Some(cpu) = cpu {
        arguments.extend(["--cpu".to_owned(), cpu.to_string()]);
    }
    arguments.extend(json.then(|| "--json".to_owned()));
    if *brief {
        arguments.extend(["--iterations", BRIEF].map(String::from));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, TaskError> {
        Options::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn options_follow_the_comparison() {
        let all = Options { processes: 3, cpu: Some(1), json: true, brief: true };
        assert_eq!(parse(&["breathsim", "--brief", "--processes", "3", "--json", "--cpu", "1"]).ok(), Some(all));
        for (words, why) in [
            (&[] as &[&str], "breathsim, vhost or interfaces"),
            (&["bridge"], "no comparison 'bridge'"),
            (&["breathsim", "--fast"], "'--fast'"),
            (&["breathsim", "--processes", "0"], "at least 1"),
            (&["breathsim", "--cpu", "first"], "--cpu needs a whole number"),
        ] {
            let Err(TaskError::Usage(message)) = parse(words) else { panic!("{words:?} was accepted") };
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn the_models_loops_take_turns_with_the_engine() {
        let said = arguments(&parse(&["breathsim", "--brief", "--json", "--cpu", "1"]).ok().unwrap()).join(" ");
        for part in [
            "breathsim --apps 5 --work 100 --processes 9 ",
            "--model luajit/nested=luajit bench/peers/breathsim.lua nested turns ",
            "--model luajit/flattened=luajit bench/peers/breathsim.lua flattened turns ",
            "--cpu 1 --json --iterations 4000",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }
}
