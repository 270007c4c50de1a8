//! `cargo xtask peers`: builds other programs that take turns with Bellows in its benchmarks, and runs these.

use std::process::Command;

use crate::TaskError;
use crate::tools::{self, Tool};
use crate::workspace::{cargo, target_dir};

pub const TOOLS: &[Tool] = &[Tool { programs: &["luajit"], package: "luajit", purpose: "the breath model in Lua" }];
pub const FILTER_TOOLS: &[Tool] = &[tools::CC, tools::PKG_CONFIG, tools::LIBPCAP, tools::DPDK_LIBRARIES];
pub const FIB_TOOLS: &[Tool] = &[tools::CC, tools::PKG_CONFIG, tools::DPDK_LIBRARIES];

/// The model in Lua, and its loops.
const MODEL: &str = "bench/peers/breathsim.lua";
const LOOPS: [&str; 2] = ["nested", "flattened"];

/// Breaths of a brief run.
const BRIEF: &str = "4000";

/// Builds the program with the other filters, and their names.
const BUILD_FILTERS: &str = "bench/peers/build-filter.sh";
const FILTERS: [&str; 2] = ["libpcap", "dpdk"];

/// Builds the program with the other forwarding tables, and their names.
const BUILD_TABLES: &str = "bench/peers/build-fib.sh";
const TABLES: [&str; 4] = ["fib", "lpm", "fib6", "lpm6"];

/// The example that has the tables of other crates, and their names.
const CRATES: &str = "fib_peers";
const TABLES_OF_CRATES: [&str; 4] = ["poptrie", "prefix-trie", "poptrie6", "prefix-trie6"];

/// Turns of a process, and of one of a brief run.
const ROUNDS: &str = "20";
const BRIEF_ROUNDS: &str = "2";

/// The same of forwarding tables, whose turns are longer.
const TABLE_ROUNDS: &str = "6";

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// The cost of a breath, with a model of Snabb's loop.
    Breathsim,
    /// The cost of a filter, with those of libpcap and DPDK.
    Filter,
    /// The cost of a look-up of a next hop, with those of DPDK and of other crates.
    Fib,
}

impl Comparison {
    fn tools(self) -> &'static [Tool] {
        match self {
            Comparison::Breathsim => TOOLS,
            Comparison::Filter => FILTER_TOOLS,
            Comparison::Fib => FIB_TOOLS,
        }
    }

    /// The script that builds the other program, and the program's name.
    fn other_program(self) -> Option<(&'static str, &'static str)> {
        match self {
            Comparison::Breathsim => None,
            Comparison::Filter => Some((BUILD_FILTERS, "filter-peers")),
            Comparison::Fib => Some((BUILD_TABLES, "fib-peers")),
        }
    }
}

/// The options of `peers breathsim`, `peers filter` and `peers fib`.
#[derive(Debug, PartialEq, Eq)]
struct PeersOptions {
    comparison: Comparison,
    processes: usize,
    cpu: Option<usize>,
    json: bool,
    /// A run is too short for figures that mean something.
    brief: bool,
    /// Only cases of `filter` or `fib` with this in their name.
    case: Option<String>,
    /// A file with the prefixes of `fib`.
    routes: Option<String>,
    /// How a process beside `fib` disturbs it.
    beside: Option<String>,
}

impl PeersOptions {
    fn parse(words: &[String]) -> Result<PeersOptions, TaskError> {
        let mut words = words.iter();
        let comparison = match words.next().map(String::as_str) {
            Some("breathsim") => Comparison::Breathsim,
            Some("filter") => Comparison::Filter,
            Some("fib") => Comparison::Fib,
            Some(other) => {
                return Err(TaskError::usage(format!(
                    "peers: there is no comparison '{other}'; there are breathsim, filter and fib"
                )));
            }
            None => {
                return Err(TaskError::usage("peers needs a comparison: breathsim, filter or fib"));
            }
        };
        let mut options = PeersOptions {
            comparison,
            processes: 9,
            cpu: None,
            json: false,
            brief: false,
            case: None,
            routes: None,
            beside: None,
        };
        while let Some(word) = words.next() {
            let mut number = |name: &str| {
                let number = words.next().and_then(|number| number.parse::<usize>().ok());
                number.ok_or_else(|| TaskError::usage(format!("{name} needs a whole number")))
            };
            match word.as_str() {
                "--json" => options.json = true,
                "--brief" => options.brief = true,
                "--routes" if comparison == Comparison::Fib => {
                    let routes = words.next().ok_or_else(|| TaskError::usage("--routes needs a file"))?;
                    options.routes = Some(routes.clone());
                }
                "--beside" if comparison == Comparison::Fib => {
                    let how = words.next().ok_or_else(|| TaskError::usage("--beside needs thrash or bursts"))?;
                    options.beside = Some(how.clone());
                }
                "--case" if comparison != Comparison::Breathsim => {
                    let case = words.next().ok_or_else(|| TaskError::usage("--case needs a part of a case's name"))?;
                    options.case = Some(case.clone());
                }
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
    let options = PeersOptions::parse(words)?;
    if let Some(tool) = tools::provide(options.comparison.tools()).first() {
        return Err(TaskError::failed(format!("missing: {tool}; needed for {}", tool.purpose)));
    }
    let mut build = cargo(&["build", "--release", "--quiet", "--package", "bellows"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err(TaskError::failed("the release build of bellows failed: see above"));
    }
    let mut peer = String::new();
    if let Some((build, name)) = options.comparison.other_program() {
        let program = target_dir().join(name);
        let built = Command::new(build).arg(&program).env("PATH", tools::search_path()).status();
        if !built.is_ok_and(|status| status.success()) {
            return Err(TaskError::failed(format!("{build} failed: see above")));
        }
        peer = program.display().to_string();
    }
    if options.comparison == Comparison::Fib {
        let mut build = cargo(&["build", "--release", "--quiet", "--package", "bellows-fib", "--example", CRATES]);
        if !build.status().is_ok_and(|status| status.success()) {
            return Err(TaskError::failed("the release build of the tables of other crates failed: see above"));
        }
    }
    // `bellows` makes its own processes and those of the peers take turns.
    let mut bellows = Command::new(target_dir().join("release/bellows"));
    let crates = target_dir().join("release/examples").join(CRATES);
    let arguments = arguments(&options, &peer, &crates.display().to_string());
    let status = bellows.args(arguments).env("PATH", tools::search_path()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(TaskError::failed(format!("the comparison ended with {status}: see above"))),
        Err(error) => Err(TaskError::failed(format!("cannot run {bellows:?}: {error}"))),
    }
}

/// The arguments for `bellows`; `peer` is the program with the other filters or tables, and `crates` that with the tables
/// of other crates.
fn arguments(options: &PeersOptions, peer: &str, crates: &str) -> Vec<String> {
    let PeersOptions { comparison, processes, cpu, json, brief, case, routes, beside } = options;
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
    match comparison {
        Comparison::Breathsim => {
            add(&["breathsim", "--apps", "5", "--work", "100"]);
            for shape in LOOPS {
                add(&["--model", &format!("luajit/{shape}=luajit {MODEL} {shape} turns")]);
            }
            if *brief {
                add(&["--iterations", BRIEF]);
            }
        }
        Comparison::Filter => {
            add(&["bench", "filter", "--rounds", if *brief { BRIEF_ROUNDS } else { ROUNDS }]);
            for filter in FILTERS {
                add(&["--peer", &format!("{filter}={peer} {filter}")]);
            }
        }
        Comparison::Fib => {
            add(&["bench", "fib", "--rounds", if *brief { BRIEF_ROUNDS } else { TABLE_ROUNDS }]);
            for table in TABLES {
                add(&["--peer", &format!("rte_{table}={peer} {table}")]);
            }
            for table in TABLES_OF_CRATES {
                add(&["--peer", &format!("{table}={crates} {table}")]);
            }
            if let Some(routes) = routes {
                add(&["--routes", routes]);
            }
            if let Some(how) = beside {
                add(&["--beside", how]);
            }
        }
    }
    if let Some(case) = case {
        add(&["--case", case]);
    }
    add(&["--processes", &processes.to_string()]);
    if let Some(cpu) = cpu {
        add(&["--cpu", &cpu.to_string()]);
    }
    if *json {
        add(&["--json"]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<PeersOptions, TaskError> {
        PeersOptions::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn options_follow_the_comparison() {
        let all = parse(&["breathsim", "--brief", "--processes", "3", "--json", "--cpu", "1"]).ok().unwrap();
        assert_eq!((all.comparison, all.processes, all.cpu), (Comparison::Breathsim, 3, Some(1)));
        assert_eq!((all.json, all.brief, all.case, all.routes, all.beside), (true, true, None, None, None));
        let filter = parse(&["filter", "--case", "host"]).ok().unwrap();
        assert_eq!((filter.comparison, filter.case.as_deref()), (Comparison::Filter, Some("host")));
        for (words, why) in [
            (&[] as &[&str], "breathsim, filter or fib"),
            (&["bridge"], "no comparison 'bridge'"),
            (&["breathsim", "--fast"], "'--fast'"),
            (&["breathsim", "--case", "host"], "'--case'"),
            (&["filter", "--case"], "--case needs a part"),
            (&["filter", "--routes", "table"], "'--routes'"),
            (&["fib", "--routes"], "--routes needs a file"),
            (&["fib", "--beside"], "--beside needs thrash or bursts"),
            (&["filter", "--beside", "thrash"], "'--beside'"),
            (&["breathsim", "--processes", "0"], "at least 1"),
            (&["breathsim", "--cpu", "first"], "--cpu needs a whole number"),
        ] {
            let Err(TaskError::Usage(message)) = parse(words) else { panic!("{words:?} was accepted") };
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn the_models_loops_take_turns_with_the_engine() {
        let said = arguments(&parse(&["breathsim", "--brief", "--json", "--cpu", "1"]).ok().unwrap(), "", "").join(" ");
        for part in [
            "breathsim --apps 5 --work 100 ",
            "--model luajit/nested=luajit bench/peers/breathsim.lua nested turns ",
            "--model luajit/flattened=luajit bench/peers/breathsim.lua flattened turns ",
            "--iterations 4000 --processes 9 --cpu 1 --json",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }

    #[test]
    fn other_filters_take_turns_with_ours() {
        let options = parse(&["filter", "--brief", "--case", "host"]).ok().unwrap();
        assert_eq!(
            arguments(&options, "target/peer", "").join(" "),
            "bench filter --rounds 2 --peer libpcap=target/peer libpcap --peer dpdk=target/peer dpdk --case host \
             --processes 9"
        );
    }

    #[test]
    fn other_tables_take_turns_with_ours() {
        let options =
            parse(&["fib", "--brief", "--case", "ipv6", "--routes", "table", "--beside", "thrash"]).ok().unwrap();
        let said = arguments(&options, "target/peer", "target/crates").join(" ");
        assert!(
            said.starts_with("bench fib --rounds 2 --peer rte_fib=target/peer fib --peer rte_lpm=target/peer lpm ")
        );
        assert!(said.contains("--peer rte_lpm6=target/peer lpm6 --peer poptrie=target/crates poptrie "), "{said}");
        assert!(said.contains("--peer prefix-trie6=target/crates prefix-trie6 --routes table "), "{said}");
        assert!(said.ends_with("--routes table --beside thrash --case ipv6 --processes 9"), "{said}");
    }
}
