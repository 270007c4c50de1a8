//! `cargo xtask fresh`: runs the README's two commands on a Debian system with only Debian's packages and the Rust
//! toolchain.

mod host;
mod root;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellows_testkit::page;

use self::root::Root;
use crate::tools::{self, Tool};
use crate::{TaskError, guest_kernel, package, peers, quickstart, workspace};

const TOOLS: &[Tool] = &[
    Tool { programs: &["debootstrap"], package: "debootstrap", purpose: "the clean system" },
    Tool { programs: &["unshare", "setpriv"], package: "util-linux", purpose: "separate namespaces" },
    Tool { programs: &["git"], package: "git", purpose: "a clean clone" },
];

/// The script that runs inside the clean system.
const INSIDE: &str = include_str!("inside.sh");

const README: &str = "README.md";
const FIRST_STEPS: &str = "docs/first-steps.md";

/// The time that they may take, installation of the packages included.
const FIRST_STEPS_TIME: Duration = Duration::from_secs(600);

/// The section of the README with the commands, and their prefix.
const SECTION: &str = "## Two commands";
const COMMAND: &str = "    cargo ";

/// The name of the ordinary user.
const USER: &str = "user";

/// The options of `fresh`.
#[derive(Debug, PartialEq, Eq)]
struct FreshOptions {
    user: bool,
    quick: bool,
    packages: bool,
    book: bool,
    keep: bool,
    suite: String,
    folder: Option<PathBuf>,
}

impl FreshOptions {
    fn parse(words: &[String]) -> Result<FreshOptions, TaskError> {
        let mut options = FreshOptions {
            user: false,
            quick: false,
            packages: false,
            book: false,
            keep: false,
            suite: "bookworm".into(),
            folder: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--user" => options.user = true,
                "--quick" => options.quick = true,
                "--packages" => options.packages = true,
                "--book" => options.book = true,
                "--keep" => options.keep = true,
                "--suite" => {
                    let suite = words.next().filter(|name| is_suite(name));
                    let suite =
                        suite.ok_or_else(|| TaskError::usage("--suite needs a Debian release, such as bookworm"))?;
                    options.suite = suite.clone();
                }
                other if other.starts_with('-') => {
                    return Err(TaskError::usage(format!("fresh: '{other}' is not an option")));
                }
                folder if options.folder.is_none() => options.folder = Some(folder.into()),
                other => return Err(TaskError::usage(format!("fresh: '{other}' is a second folder"))),
            }
        }
        if options.packages && (options.user || options.quick) {
            return Err(TaskError::usage("--packages cannot be combined with --user or --quick"));
        }
        if options.book && (options.packages || options.user || options.quick) {
            return Err(TaskError::usage("--book cannot be combined with --packages, --user or --quick"));
        }
        Ok(options)
    }
}

fn is_suite(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase())
}

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    let options = FreshOptions::parse(words)?;
    if !tools::is_root() {
        return Err(TaskError::failed("a clean system needs root: mounts, and files of other users"));
    }
    if let Some(tool) = tools::provide(TOOLS).first() {
        return Err(TaskError::failed(format!("missing: {tool}; needed for {}", tool.purpose)));
    }
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => workspace::target_dir().join("fresh"),
    };
    fs::create_dir_all(&folder)
        .and_then(|()| folder.canonicalize())
        .map_err(|error| TaskError::failed(format!("cannot make {}: {error}", folder.display())))
        .and_then(|folder| in_folder(&folder, &options))
}

fn in_folder(folder: &Path, options: &FreshOptions) -> Result<(), TaskError> {
    root::remove_leftovers(folder)?;
    let base = root::base(folder, &options.suite)?;
    let mut root = Root::copy(&base, folder)?;
    root.keep(options.keep);
    let verdict = match options {
        FreshOptions { packages: true, .. } => check_packages(&root),
        FreshOptions { book: true, .. } => follow_first_steps(&root),
        _ => check_commands(&root, options),
    };
    root.save_archives();
    if options.keep {
        println!("the clean system is kept in {}", root.path().display());
    }
    verdict
}

/// Installs every package that a task may need, and checks that the expected programs came with them.
fn check_packages(root: &Root) -> Result<(), TaskError> {
    let lists =
        [tools::FOR_TESTS, tools::PEERS, peers::TOOLS, peers::FIB_TOOLS, peers::FILTER_TOOLS, quickstart::TOOLS, TOOLS];
    let wanted: Vec<&Tool> = lists.into_iter().flatten().collect();
    let missing = wanted.iter().filter(|tool| !root.has(tool));
    let packages: BTreeSet<&str> = missing.map(|tool| tool.package).collect();
    let before = root.packages();
    let packages: Vec<&str> = packages.into_iter().collect();
    let command = format!(
        "set -e; export DEBIAN_FRONTEND=noninteractive\napt-get -qq update\n\
         apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends {}\n\
         kernel=$(apt-cache depends {kernel} | sed -n 's/^ *Depends: \\(linux-image-[^ ]*\\)$/\\1/p' | head -n 1)\n\
         echo \"the kernel of {kernel}: $kernel\"\napt-get -qq download --print-uris \"$kernel\" >/dev/null",
        packages.join(" "),
        kernel = guest_kernel::PACKAGE,
    );
    println!("\n== packages: apt-get install {}", packages.join(" "));
    run_inside(root, "none", "root", "/", &command, |_| {})?;
    println!("\n== summary");
    print_installed(&before, root);
    let mut complete = true;
    for tool in wanted {
        match root.find(tool) {
            Some(program) => println!("  {:<20} {:<18} {}", tool.programs[0], tool.package, program.display()),
            None => {
                complete = false;
                println!("  {:<20} {:<18} NOT IN THE PACKAGE", tool.programs.join(" or "), tool.package);
            }
        }
    }
    if complete { Ok(()) } else { Err(TaskError::Reported) }
}

/// Installs the Debian package, and does what the page for newcomers says, with the packages that it names.
fn follow_first_steps(root: &Root) -> Result<(), TaskError> {
    let package = package::make(&workspace::target_dir())?;
    let page = fs::read_to_string(FIRST_STEPS)
        .map_err(|error| TaskError::failed(format!("cannot read {FIRST_STEPS}: {error}")))?;
    let put = |name: &str, content: &[u8]| {
        let path = root.path().join("root").join(name);
        fs::write(&path, content)
            .map_err(|error| TaskError::failed(format!("cannot write {}: {error}", path.display())))
    };
    let content =
        fs::read(&package).map_err(|error| TaskError::failed(format!("cannot read {}: {error}", package.display())))?;
    put("bellows.deb", &content)?;
    put("first-steps.sh", page::script(&page).as_bytes())?;
    let before = root.packages();
    let command = format!(
        "set -e; export DEBIAN_FRONTEND=noninteractive; install=\"apt-get -qq -o Dpkg::Use-Pty=0 install --yes \
         --no-install-recommends\"\napt-get -qq update\n$install ./bellows.deb\n\
         $install tcpdump iproute2 qemu-system-x86 busybox-static\n\
         kernel=$(apt-cache depends {kernel} | sed -n 's/^ *Depends: \\(linux-image-[^ ]*\\)$/\\1/p' | head -n 1)\n\
         mkdir kernel steps; apt-get -qq -o APT::Sandbox::User=root download $kernel; dpkg-deb -x $kernel*.deb kernel\n\
         cd steps; KERNEL=/root/kernel unshare --net -- sh -c 'ip link set lo up; bash ../first-steps.sh'",
        kernel = guest_kernel::PACKAGE,
    );
    let start = Instant::now();
    let mut pings = false;
    println!("\n== the first steps, with {}", package.display());
    run_inside(root, "none", "root", "/root", &command, |line| pings |= line.contains("5 packets received"))?;
    let time = start.elapsed();
    println!("\n== summary: from the package to a machine that pings in {:.0} s", time.as_secs_f64());
    print_installed(&before, root);
    match (pings, time <= FIRST_STEPS_TIME) {
        (true, true) => Ok(()),
        (true, false) => {
            Err(TaskError::failed("the first steps take more than the ten minutes that the book promises"))
        }
        (false, _) => Err(TaskError::failed("the machine has not said that it pings")),
    }
}

/// Runs the README's commands verbatim in a clean clone.
fn check_commands(root: &Root, options: &FreshOptions) -> Result<(), TaskError> {
    let readme =
        fs::read_to_string(README).map_err(|error| TaskError::failed(format!("cannot read {README}: {error}")))?;
    let commands = commands(&readme)?;
    let user = if options.user { USER } else { "root" };
    let toolchain = host::toolchain()?;
    let folder = root.clone_project(user)?;
    let before = root.packages();
    let mut result = CommandsOutcome::default();
    let mut times = Vec::new();
    for command in commands {
        let command = match options.quick && command == "cargo xtask test" {
            true => command + " --quick",
            false => command,
        };
        println!("\n== as {user}: {command}");
        let start = Instant::now();
        let verdict = run_inside(root, &toolchain, user, &folder, &command, |line| result.read_line(line));
        times.push(format!("{command:<52} {:>7.1} s", start.elapsed().as_secs_f64()));
        if let Err(failure) = verdict {
            result.problems.push(format!("`{command}`: {failure}"));
        }
    }
    println!("\n== summary: a fresh Debian {}, as {user}", options.suite);
    times.iter().for_each(|line| println!("{line}"));
    print_installed(&before, root);
    if options.user {
        let wanted: &[&[Tool]] = if options.quick { &[tools::FOR_TESTS] } else { &[tools::FOR_TESTS, tools::PEERS] };
        let missing = wanted.iter().copied().flatten().filter(|tool| !root.has(tool));
        result.check_user(missing.map(|tool| tool.package));
    } else {
        result.check_root();
    }
    result.skipped.iter().for_each(|line| println!("  skipped: {line}"));
    result.finish()
}

/// The relevant output of the commands.
#[derive(Debug, Default, PartialEq, Eq)]
struct CommandsOutcome {
    /// The test runner's line `tests: …`.
    tests: Option<String>,
    failed: Option<u64>,
    skipped_count: Option<u64>,
    /// The skipped tests, each with its reason.
    skipped: Vec<String>,
    /// The packages reported as missing.
    named: BTreeSet<String>,
    in_list: bool,
    problems: Vec<String>,
}

impl CommandsOutcome {
    fn read_line(&mut self, line: &str) {
        if line.starts_with("skipped tests") {
            self.in_list = true;
        } else if let Some(entry) = line.strip_prefix("  ").filter(|_| self.in_list) {
            self.skipped.push(entry.to_owned());
        } else {
            self.in_list = false;
        }
        if let Some(packages) = line.strip_prefix("some tools are missing; as root: apt-get install ") {
            self.named.extend(packages.split_whitespace().map(str::to_owned));
        }
        if let Some(counts) = line.strip_prefix("tests: ") {
            let count = |what: &str| {
                let part =
                    counts.split(", ").find_map(|part| part.split_once(' ').filter(|(_, word)| word.starts_with(what)));
                part.and_then(|(count, _)| count.parse().ok())
            };
            (self.failed, self.skipped_count) = (count("failed"), count("skipped"));
            self.tests = Some(line.to_owned());
        }
    }

    /// As root, nothing may be missing.
    fn check_root(&mut self) {
        match self.skipped_count {
            Some(0) => {}
            Some(count) => {
                self.problems.push(format!("{count} tests were skipped, although root can install all packages"))
            }
            None => self.problems.push("the tests printed no summary".to_owned()),
        }
    }

    /// The report for a user who may not install anything must list exactly the missing packages.
    fn check_user<'a>(&mut self, missing: impl Iterator<Item = &'a str>) {
        let missing: BTreeSet<String> = missing.map(str::to_owned).collect();
        if self.tests.is_none() {
            self.problems.push("the tests printed no summary".to_owned());
        }
        if missing != self.named {
            self.problems.push(format!("missing packages: {missing:?}; reported packages: {:?}", self.named));
        }
    }

    fn finish(self) -> Result<(), TaskError> {
        println!("{}", self.tests.as_deref().unwrap_or("tests: none"));
        self.problems.iter().for_each(|problem| println!("FAILED: {problem}"));
        if self.problems.is_empty() { Ok(()) } else { Err(TaskError::Reported) }
    }
}

/// The commands of the README's section, as typed.
fn commands(readme: &str) -> Result<Vec<String>, TaskError> {
    let section = readme.split_once(SECTION).map(|(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let lines = section.unwrap_or_default().lines().filter(|line| line.starts_with(COMMAND));
    let commands: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    match commands.len() {
        2 => Ok(commands),
        other => {
            Err(TaskError::failed(format!("{README} has {other} commands in its section '{SECTION}' instead of two")))
        }
    }
}

/// Runs a command in the clean system and streams its output.
fn run_inside(
    root: &Root,
    toolchain: &str,
    user: &str,
    folder: &str,
    command: &str,
    mut read_line: impl FnMut(&str),
) -> Result<(), TaskError> {
    let mut child = Command::new("unshare")
        .args(["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private", "--"])
        .args(["sh", "-c", INSIDE, "inside.sh"])
        .arg(root.path())
        .args([toolchain, user, folder, &format!("exec 2>&1\n{command}")])
        .env_clear()
        .envs(host::environment())
        .env("PATH", tools::search_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| TaskError::failed(format!("cannot run unshare: {error}")))?;
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            // If the reader closes our output early, it does not want the rest; the verdict still counts.
            let _ = std::io::stdout().write_all(&line);
            read_line(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
    }
    // The end of the pipe tells the inside that the parent has gone.
    let stdin = child.stdin.take();
    let status = child.wait().map_err(|error| TaskError::failed(format!("cannot wait for unshare: {error}")))?;
    drop(stdin);
    if status.success() { Ok(()) } else { Err(TaskError::failed(status.to_string())) }
}

fn print_installed(before: &BTreeSet<String>, root: &Root) {
    let after = root.packages();
    let new: Vec<&str> = after.difference(before).map(String::as_str).collect();
    let asked: Vec<&str> = root.explicitly_installed(&new);
    println!(
        "installed: {} packages; asked for were {}",
        new.len(),
        if asked.is_empty() { "none".into() } else { asked.join(" ") }
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<FreshOptions, TaskError> {
        FreshOptions::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_any_order() {
        let options = parse(&["--quick", "/srv/fresh", "--suite", "trixie", "--user"]).ok().expect("it is right");
        assert!(options.quick && options.user && !options.keep && !options.packages);
        assert_eq!((options.suite.as_str(), options.folder), ("trixie", Some("/srv/fresh".into())));
    }

    #[test]
    fn an_invalid_option_is_named() {
        let mistakes =
            [&["--suite"] as &[&str], &["--suite", "../x"], &["--quik"], &["a", "b"], &["--packages", "--user"]];
        for words in mistakes {
            let Err(TaskError::Usage(message)) = parse(words) else { panic!("{words:?} was accepted") };
            assert!(message.contains(words[words.len() - 1]) || message.contains(words[0]), "{message}");
        }
    }

    #[test]
    fn the_readme_has_two_commands() {
        let readme = fs::read_to_string(Path::new("..").join(README)).expect("the README is there");
        let commands = commands(&readme).ok().expect("it has two commands");
        assert_eq!(commands, ["cargo run --no-default-features -- run examples/quickstart.toml", "cargo xtask test"]);
    }

    #[test]
    fn the_readme_lists_the_prerequisites() {
        let readme = fs::read_to_string(Path::new("..").join(README)).expect("the README is there");
        for package in root::PREREQUISITES {
            assert!(readme.contains(&format!("`{package}`")), "the README does not ask for {package}");
        }
    }

    #[test]
    fn other_commands_of_the_readme_are_not_run() {
        let readme =
            "# B\n    cargo a\n## Two commands\n    cargo b\ntext\n    cargo c d\n    other\n## Next\n    cargo e\n";
        assert_eq!(commands(readme).ok(), Some(vec!["cargo b".to_owned(), "cargo c d".to_owned()]));
        assert!(commands("## Two commands\n    cargo b\n").is_err());
    }

    fn outcome(text: &str) -> CommandsOutcome {
        let mut outcome = CommandsOutcome::default();
        text.lines().for_each(|line| outcome.read_line(line));
        outcome
    }

    #[test]
    fn root_must_not_skip_a_test() {
        let skipping = "\nskipped tests, each with its reason:\n  pings: no ping\n\ntests: 7 passed, 0 failed, 1 skipped (reasons above)\n";
        let mut skipping = outcome(skipping);
        skipping.check_root();
        assert_eq!(skipping.skipped, ["pings: no ping"]);
        assert_eq!(skipping.problems.len(), 1);
        for (text, problems) in [("tests: 7 passed, 0 failed, 0 skipped\n", 0), ("no summary\n", 1)] {
            let mut outcome = outcome(text);
            outcome.check_root();
            assert_eq!(outcome.problems.len(), problems, "{text}");
        }
    }

    #[test]
    fn a_user_gets_the_exact_list_of_missing_packages() {
        let text =
            "some tools are missing; as root: apt-get install dpdk-dev zstd\ntests: 1 passed, 0 failed, 1 skipped\n";
        for (missing, problems) in
            [(&["zstd", "dpdk-dev"] as &[&str], 0), (&["zstd"], 1), (&["zstd", "dpdk-dev", "ip"], 1)]
        {
            let mut outcome = outcome(text);
            outcome.check_user(missing.iter().copied());
            assert_eq!(outcome.problems.len(), problems, "{missing:?}");
        }
    }
}
