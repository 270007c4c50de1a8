//! The project's own chores: `cargo xtask help` lists them.
//!
//! `main` only reads the command line; each chore is a module. They print what they run, so that a reader can run the
//! same by hand. Exit codes: 0 done, 1 a chore failed, 2 a command line that cannot be understood.
#![forbid(unsafe_code)]

mod capture_check;
mod deny;
mod format;
mod fresh;
mod fuzz;
mod guest_kernel;
mod memcheck;
mod netlab;
mod peers;
mod quickstart;
mod report;
mod rust_version;
mod soak;
mod tally;
mod test;
mod tools;
mod vhost;
mod workspace;
mod wrap;

use std::fmt;
use std::process::ExitCode;

/// What `cargo xtask NAME` does.
struct Chore {
    name: &'static str,
    /// One line for those who do not know it yet.
    summary: &'static str,
    run: fn(&[String]) -> Result<(), TaskError>,
}

/// All of them; `help` is not among them. Their options are in [`HELP`].
const CHORES: &[Chore] = &[
    Chore {
        name: "test",
        summary: "what must hold before a commit: formatting, lints, dependencies, all tests",
        run: test::run,
    },
    Chore { name: "soak", summary: "what takes hours: long tests, memory check, all fuzz targets", run: soak::run },
    Chore { name: "fmt", summary: "formats the code, with the files that `cargo fmt` does not find", run: format::run },
    Chore { name: "fuzz", summary: "fuzzes captures, network files, headers, rings or messages", run: fuzz::run },
    Chore { name: "wrap", summary: "wraps Markdown pages at 100 columns", run: wrap::run },
    Chore { name: "peers", summary: "measures Bellows beside Snabb's loop or DPDK's vhost back end", run: peers::run },
    Chore {
        name: "fresh",
        summary: "runs the README's two commands on a clean Debian system (as root)",
        run: fresh::run,
    },
    Chore {
        name: "record-quickstart",
        summary: "records the quickstart's capture anew (as root)",
        run: quickstart::run,
    },
];

/// The chores, one line each.
fn list() -> String {
    let mut text = "The project's own chores: cargo xtask CHORE [OPTIONS]\n\n".to_owned();
    for Chore { name, summary, .. } in CHORES {
        text += &format!("  {name:<18}  {summary}\n");
    }
    text + "  help                this list, and the options of each chore\n"
}

const HELP: &str = "
Options:

  test [--filter NAME]                formatting, lints, documentation, dependencies, oldest Rust, release build, and
                                      every test
  test --quick [--filter NAME]        the same without guests and other programs' drivers, which take minutes
  test --memcheck [--filter NAME]     the tests of the crates with unsafe code, under AddressSanitizer (when a
                                      nightly toolchain is installed) or else under valgrind
  soak [--minutes N] [--filter NAME]  the tests in their long forms, the memory check, and N minutes (30) of each fuzz
                                      target; with --filter only the tests whose name contains NAME
  fresh [--user] [--quick] [--keep] [--suite NAME] [DIR]
                                      the README's two commands on a clean Debian system (as root)
  fresh --packages [--keep] [--suite NAME] [DIR]
                                      whether Debian's packages hold the programs that the chores need (as root)
  fmt                                 formats the code, also the files that a macro lists
  fuzz --list                         the fuzz targets
  fuzz TARGET [--minutes N]           fuzzes one target, for 10 minutes unless told otherwise
  peers breathsim [--processes N] [--cpu N] [--brief] [--json]
                                      what a breath costs, beside a model of it that LuaJIT runs
  peers vhost [--brief] [--json | --markdown] [OPTIONS]
                                      a vhost-user port beside DPDK's vhost back end, before the same DPDK driver
  wrap [FILE...]                      wraps the text of Markdown pages at 100 columns
  record-quickstart                   records examples/captures/quickstart.pcap anew (as root)

  --filter NAME runs only the tests whose name contains NAME, and neither lints nor documentation.

`test` installs the programs that tests compare with (tcpdump, capinfos, zstd, ...) when it runs as root on a system
with apt; otherwise it names what is missing and which tests are skipped for it. `peers` installs what it compares
with in the same way. The processes of both programs live at the same time and take turns of a millisecond, each figure in 9
fresh processes unless told otherwise, on the last processor that it may use; --brief takes a thousandth of the breaths,
to see that it works.

`fresh` makes a clean Debian system with `debootstrap` in DIR (target/fresh), brings in this machine's Rust toolchain, a
clone of the last commit and what lies in ../shared/captures, and runs there what the README says, in namespaces that vanish
when it ends. As root no test may be skipped; with --user, all that is missing has to be named. --quick runs the tests as
`test --quick` does. --keep leaves the system for a look at it. --suite is Debian's release (bookworm). The system from which
each run starts, and the packages that were fetched, stay in DIR: the first run takes two minutes more.

`peers vhost` measures every cell of split or packed rings, mergeable buffers or not, in order or not, in all directions and
at 64, 256 and 1518 bytes, which takes half an hour; --brief takes three minutes for 64 bytes in short windows. Its options:

  --cells LIST        such as split,split+mergeable,packed+in-order,packed+mergeable+in-order
  --directions LIST   of guest-to-host,host-to-guest,looped
  --sizes LIST        bytes
  --memory LIST       of plain,hugepages: what the client's and DPDK's memory is made of (hugepages)
  --against PROGRAM   another build of bellows in place of DPDK's back end: what a change has brought
  --windows N         windows of each back end at a point (15)
  --window MS         how long each is (300)
  --vectorized        lets the driver use vector instructions
  --client-cpu N, --cpu N   the processors of the client (0) and of the back ends (1)
";

/// Why a chore ended without success.
enum TaskError {
    /// The command line cannot be understood: exit code 2.
    Usage(String),
    /// The chore failed: exit code 1.
    Chore(String),
    /// The chore failed, and its report, which stays the last thing printed, says why: exit code 1.
    Reported,
}

impl TaskError {
    fn chore(message: impl Into<String>) -> TaskError {
        TaskError::Chore(message.into())
    }

    fn usage(message: impl Into<String>) -> TaskError {
        TaskError::Usage(message.into())
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::Usage(message) => write!(f, "{message}\nTry: cargo xtask help"),
            TaskError::Chore(message) => write!(f, "{message}"),
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
                TaskError::Chore(_) | TaskError::Reported => 1,
            })
        }
    }
}

fn dispatch(arguments: Vec<String>) -> Result<(), TaskError> {
    workspace::enter()?;
    let Some((chore, options)) = arguments.split_first() else {
        print!("{}", list());
        return Ok(());
    };
    if arguments.iter().any(|word| word == "--help" || word == "-h") || chore == "help" {
        print!("{}{HELP}", list());
        return Ok(());
    }
    let Some(known) = CHORES.iter().find(|known| known.name == *chore) else {
        return Err(TaskError::usage(format!("there is no chore '{chore}'")));
    };
    (known.run)(options)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_chore_has_a_line_and_its_options() {
        let list = list();
        for line in list.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for chore in CHORES {
            assert_eq!(list.lines().filter(|line| line.starts_with(&format!("  {} ", chore.name))).count(), 1);
            assert!(HELP.contains(&format!("\n  {} ", chore.name)), "the help does not know {}", chore.name);
        }
        // What the help explains is a chore.
        let explained = HELP.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        for name in explained.filter_map(|line| line.split_whitespace().next()).filter(|name| !name.starts_with("--")) {
            assert!(CHORES.iter().any(|chore| chore.name == name), "the help explains {name}");
        }
    }

    /// The chores that a page tells its readers to run, each with its options.
    fn chores(page: &str) -> Vec<Vec<&str>> {
        let starts = page.match_indices("cargo xtask ").map(|(at, program)| &page[at + program.len()..]);
        let commands = starts.map(|rest| rest.split(['`', '\n', '#', '|', '(', ')']).next().unwrap_or_default());
        commands
            .map(|command| command.split_whitespace().collect())
            .filter(|words: &Vec<&str>| !words.is_empty())
            .collect()
    }

    #[test]
    fn the_help_knows_every_chore_of_the_documentation() {
        let mut pages =
            vec!["../README.md".into(), "../CONTRIBUTING.md".into(), "../SECURITY.md".into(), "README.md".into()];
        for folder in ["../docs", "../examples"] {
            let files = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it can be read").path());
            pages.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
        }
        let mut seen = 0;
        for page in pages {
            let text = fs::read_to_string(&page).expect("it can be read");
            for words in chores(&text) {
                let chore = words[0].trim_end_matches(|letter: char| letter.is_ascii_punctuation());
                if ["CHORE", "help"].contains(&chore) {
                    continue;
                }
                let place = format!("{}: cargo xtask {}", page.display(), words.join(" "));
                assert!(HELP.contains(&format!("\n  {chore} ")), "{place}: there is no such chore");
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
