//! The project's own tasks: `cargo xtask help` lists them.
//!
//! `main` only parses the command line; each task is a module. Tasks print the commands that they run, so that a reader
//! can run them by hand. Exit codes: 0 success, 1 a task failed, 2 invalid command line.
#![forbid(unsafe_code)]

mod book;
mod capture_check;
mod commands;
mod deny;
mod docs;
mod dpdk;
mod fast;
mod fresh;
mod fuzz;
mod guest_kernel;
mod lanes;
mod memcheck;
mod netlab;
mod package;
mod peers;
mod programs;
mod quickstart;
mod races;
mod report;
mod rust_version;
mod soak;
mod tally;
mod test;
mod tools;
mod workspace;
mod wrap;

use std::fmt;
use std::process::ExitCode;

/// A task: `cargo xtask NAME`.
struct Task {
    name: &'static str,
    /// One line for the list.
    summary: &'static str,
    run: fn(&[String]) -> Result<(), TaskError>,
}

/// All tasks except `help`. Their options are in [`HELP`].
const TASKS: &[Task] = &[
    Task {
        name: "test",
        summary: "checks that a commit must pass: formatting, lints, dependencies, all tests",
        run: test::run,
    },
    Task {
        name: "soak",
        summary: "before a release: long tests, memory check, packages, all fuzz targets",
        run: soak::run,
    },
    Task { name: "docs", summary: "writes the parts of pages that come from the code", run: docs::run },
    Task { name: "fuzz", summary: "fuzzes captures, network files, headers, rings or messages", run: fuzz::run },
    Task { name: "wrap", summary: "wraps Markdown pages at 100 columns", run: wrap::run },
    Task {
        name: "peers",
        summary: "measures Bellows beside Snabb's loop, and filters and tables of others",
        run: peers::run,
    },
    Task {
        name: "fresh",
        summary: "runs the README's two commands on a clean Debian system (as root)",
        run: fresh::run,
    },
    Task { name: "book", summary: "makes a book for a browser of the pages in docs", run: book::run },
    Task { name: "package", summary: "makes the Debian package of the release build", run: package::run },
    Task { name: "dpdk", summary: "builds the object with which Bellows opens the installed DPDK", run: dpdk::run },
    Task {
        name: "record-quickstart",
        summary: "records the capture of the quickstart again (as root)",
        run: quickstart::run,
    },
];

/// The tasks, one line each.
fn list() -> String {
    let mut text = "The project's own tasks: cargo xtask TASK [OPTIONS]\n\n".to_owned();
    for Task { name, summary, .. } in TASKS {
        text += &format!("  {name:<18}  {summary}\n");
    }
    text + "  help                this list, and the options of each task\n"
}

const HELP: &str = "
Options:

  test [--filter NAME]                formatting, lints, documentation, dependencies, oldest Rust, release build, and
                                      every test
  test --quick [--filter NAME]        the same without guests, other programs' drivers, package and book
  test --fast [--filter NAME]         unit tests, property tests and the command line: two minutes once built
  test --memcheck [--filter NAME]     the tests of the crates with unsafe code, under AddressSanitizer (if a nightly
                                      toolchain is installed) or valgrind; then --races
  test --races [--filter NAME]        whole runs with several workers, under ThreadSanitizer (if a nightly toolchain
                                      with rust-src is installed)
  soak [--minutes N] [--filter NAME]  before a release: the tests in their long forms, the memory check, two builds of
                                      the package, the book, the first steps in a clean system, and N minutes (30) of
                                      each fuzz target; with --filter only tests whose name contains NAME
  fresh [--user] [--quick] [--keep] [--suite NAME] [DIR]
                                      the README's two commands on a clean Debian system (as root)
  fresh --packages [--keep] [--suite NAME] [DIR]
                                      check that Debian's packages contain the programs of all tasks (as root)
  fresh --book [--keep] [--suite NAME] [DIR]
                                      install the Debian package on a clean system, and do what docs/first-steps.md
                                      says (as root)
  docs                                write the lists of commands, keys, metrics, events, crates and apps into their
                                      pages
  fuzz --list                         list the fuzz targets
  fuzz TARGET [--minutes N]           run one fuzz target, for N minutes (10)
  peers breathsim [--processes N] [--cpu N] [--brief] [--json]
                                      the cost of a breath, beside a model of Snabb's loop in LuaJIT
  peers fib [--routes FILE] [--beside HOW] [--case TEXT] [--processes N] [--cpu N] [--brief] [--json]
                                      the cost of a look-up of a next hop, beside DPDK's tables and those of two crates
  peers filter [--case TEXT] [--processes N] [--cpu N] [--brief] [--json]
                                      the cost of a filter, beside libpcap's interpreter and DPDK's machine code
  book                                make the book, with references of apps and commands
  package [--check] [--reproduce]     make the Debian package; install, run and remove it in a folder of its own; build
                                      it twice and compare
  dpdk [FOLDER]                       build libbellows-dpdk.so into the folder, or into target/dpdk
  wrap [FILE...]                      wrap the text of Markdown pages at 100 columns
  record-quickstart                   record examples/captures/quickstart.pcap again (as root)

  --filter NAME runs only tests whose name contains NAME, without lints and documentation.

As root on a system with apt, `test` installs the programs for tests (tcpdump, capinfos, zstd, ...). Otherwise it lists
the missing programs and the skipped tests. `peers` installs its programs in the same way.

The processes of `peers breathsim` and `peers filter` run at the same time and take turns of some milliseconds: 9 fresh
processes per figure unless --processes is given, on the last permitted processor unless --cpu is given. --brief takes a
thousandth of the breaths, or a tenth of the turns, as a check. `peers filter` takes three minutes; --case measures only
the filters with this in their name: document, portrange, tcp-port, src-net, host, ports.

`fresh` creates a clean Debian system in DIR (target/fresh) with `debootstrap`, adds this machine's Rust toolchain, a
clone of the last commit and the captures in ../shared/captures, and runs the README's commands there, in namespaces
that vanish at the end. As root no test may be skipped; with --user, the tests must list all missing packages. --quick
runs `test --quick`. --keep keeps the system. --suite is Debian's release (bookworm). The base system and the fetched
packages stay in DIR: the first run takes two minutes more.
";

/// Why a task ended without success.
enum TaskError {
    /// The command line is invalid: exit code 2.
    Usage(String),
    /// The task failed: exit code 1.
    Failed(String),
    /// The task failed, and its report, which must be the last output, gives the reason: exit code 1.
    Reported,
}

impl TaskError {
    fn failed(message: impl Into<String>) -> TaskError {
        TaskError::Failed(message.into())
    }

    fn usage(message: impl Into<String>) -> TaskError {
        TaskError::Usage(message.into())
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::Usage(message) => write!(f, "{message}\nTry: cargo xtask help"),
            TaskError::Failed(message) => write!(f, "{message}"),
            TaskError::Reported => write!(f, "see the report above"),
        }
    }
}

fn main() -> ExitCode {
    match dispatch(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, TaskError::Reported) {
                eprintln!("xtask: {failure}");
            }
            ExitCode::from(match failure {
                TaskError::Usage(_) => 2,
                TaskError::Failed(_) | TaskError::Reported => 1,
            })
        }
    }
}

fn dispatch(arguments: Vec<String>) -> Result<(), TaskError> {
    workspace::enter()?;
    let Some((task, options)) = arguments.split_first() else {
        print!("{}", list());
        return Ok(());
    };
    if arguments.iter().any(|word| word == "--help" || word == "-h") || task == "help" {
        print!("{}{HELP}", list());
        return Ok(());
    }
    let Some(known) = TASKS.iter().find(|known| known.name == *task) else {
        return Err(TaskError::usage(format!("there is no task '{task}'")));
    };
    (known.run)(options)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_task_has_a_line_and_its_options() {
        let list = list();
        for line in list.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for task in TASKS {
            assert_eq!(list.lines().filter(|line| line.starts_with(&format!("  {} ", task.name))).count(), 1);
            assert!(HELP.contains(&format!("\n  {} ", task.name)), "the help does not know {}", task.name);
        }
        // Every name in the help is a task.
        let explained = HELP.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        for name in explained.filter_map(|line| line.split_whitespace().next()).filter(|name| !name.starts_with("--")) {
            assert!(TASKS.iter().any(|task| task.name == name), "the help explains {name}");
        }
    }

    /// The tasks in the commands of a page, each with its options.
    fn tasks(page: &str) -> Vec<Vec<&str>> {
        let starts = page.match_indices("cargo xtask ").map(|(at, program)| &page[at + program.len()..]);
        let commands = starts.map(|rest| rest.split(['`', '\n', '#', '|', '(', ')']).next().unwrap_or_default());
        commands
            .map(|command| command.split_whitespace().collect())
            .filter(|words: &Vec<&str>| !words.is_empty())
            .collect()
    }

    #[test]
    fn the_help_knows_every_task_of_the_documentation() {
        let mut pages =
            vec!["../README.md".into(), "../CONTRIBUTING.md".into(), "../SECURITY.md".into(), "README.md".into()];
        for folder in ["../docs", "../docs/design", "../examples"] {
            let files = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it can be read").path());
            pages.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
        }
        let mut seen = 0;
        for page in pages {
            let text = fs::read_to_string(&page).expect("it can be read");
            for words in tasks(&text) {
                let task = words[0].trim_end_matches(|letter: char| letter.is_ascii_punctuation());
                if ["TASK", "help"].contains(&task) {
                    continue;
                }
                let place = format!("{}: cargo xtask {}", page.display(), words.join(" "));
                assert!(HELP.contains(&format!("\n  {task} ")), "{place}: there is no such task");
                for option in
                    words.iter().filter_map(|word| word.split('=').next()).filter(|word| word.starts_with("--"))
                {
                    assert!(HELP.contains(option), "{place}: the help does not know {option}");
                }
                seen += 1;
            }
        }
        assert!(seen >= 10, "{seen}");
    }
}
