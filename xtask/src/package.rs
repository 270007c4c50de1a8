//! `cargo xtask package`: the Debian package of the release build, and the check that it installs, runs and goes.
//!
//! cargo-deb is built for this where it is missing, without its C library for xz.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::TaskError;
use crate::book;
use crate::commands::{CargoTool, cannot_write, files_below, output, succeed};
use crate::report::Report;
use crate::tools::{self, Tool};
use crate::workspace::{cargo, target_dir};

/// cargo-deb, without the C library for xz.
const CARGO_DEB: CargoTool =
    CargoTool { name: "cargo-deb", version: "3.8.0", options: &["--no-default-features", "--features", "gzip"] };
/// Pages and completions for the package, as its manifest names them.
const PARTS: &str = "packaging/generated";
const TOOLS: &[Tool] = &[
    Tool { programs: &["dpkg-deb"], package: "dpkg", purpose: "the Debian package" },
    Tool { programs: &["dpkg-shlibdeps"], package: "dpkg-dev", purpose: "the packages that it depends on" },
];
/// The completions of each shell: their name as a part of the package, and where it installs them.
const COMPLETIONS: &[(&str, &str, &str)] = &[
    ("bash", "bellows.bash", "usr/share/bash-completion/completions/bellows"),
    ("zsh", "_bellows", "usr/share/zsh/vendor-completions/_bellows"),
    ("fish", "bellows.fish", "usr/share/fish/vendor_completions.d/bellows.fish"),
];

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    let mut check = false;
    let mut reproduce = false;
    for word in words {
        match word.as_str() {
            "--check" => check = true,
            "--reproduce" => reproduce = true,
            other => return Err(TaskError::usage(format!("package: '{other}' is not an option"))),
        }
    }
    let package = make(&target_dir())?;
    if check {
        self::check(&package)?;
    }
    if reproduce {
        again(&package)?;
    }
    println!("{}", package.display());
    Ok(())
}

/// The step of `cargo xtask test`.
pub fn step(report: &mut Report) {
    match CARGO_DEB.provide() {
        Ok(_) => report.step("package", || check(&make(&target_dir())?)),
        Err(why) => report.leave_out_step("package", &format!("cargo-deb cannot be built: {why}")),
    }
}

/// Builds the package. Returns its path.
pub fn make(target: &Path) -> Result<PathBuf, TaskError> {
    let missing = tools::provide(TOOLS);
    if !missing.is_empty() {
        return Err(TaskError::failed(format!("missing: {}", tools::packages(&missing).join(" "))));
    }
    let cargo_deb = CARGO_DEB.provide()?;
    succeed(cargo(&["build", "--release", "--locked", "--package", "bellows"]).env("CARGO_TARGET_DIR", target))?;
    write_parts(&target.join("release/bellows"))?;
    let folder = target.join("debian");
    // Packages of other versions would be found below.
    let _ = fs::remove_dir_all(&folder);
    let mut deb = Command::new(cargo_deb);
    deb.args(["deb", "--package", "bellows", "--no-build", "--locked", "--output"]).arg(&folder);
    // The time of all files in the package.
    let time = output(Command::new("git").args(["log", "-1", "--format=%ct"])).unwrap_or_else(|_| "0".to_owned());
    deb.env("SOURCE_DATE_EPOCH", time.trim()).env("CARGO", cargo(&[]).get_program());
    succeed(deb.env("CARGO_TARGET_DIR", target))?;
    files_below(&folder)?
        .into_iter()
        .find(|path| path.extension() == Some(OsStr::new("deb")))
        .ok_or_else(|| TaskError::failed(format!("cargo-deb left no package in {}", folder.display())))
}

/// Writes the manual pages, completions and schema of a program where the package's manifest expects them.
fn write_parts(program: &Path) -> Result<(), TaskError> {
    let parts = Path::new(PARTS);
    let _ = fs::remove_dir_all(parts);
    let completions = parts.join("completions");
    fs::create_dir_all(&completions).map_err(|error| cannot_write(&completions, &error))?;
    succeed(Command::new(program).arg("man").arg("-o").arg(parts.join("man")))?;
    // Completions call the program by its name if it is on the path, as it is where the package is installed.
    let folder = program.parent().into_iter().map(Path::to_path_buf);
    let path = env::join_paths(folder.chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())))
        .map_err(|error| TaskError::failed(format!("the folder of {}: {error}", program.display())))?;
    let write = |words: &[&str], path_of_part: PathBuf| {
        let text = output(Command::new(program).args(words).env("PATH", &path))?;
        fs::write(&path_of_part, text).map_err(|error| cannot_write(&path_of_part, &error))
    };
    for (shell, name, _) in COMPLETIONS {
        write(&["completions", shell], completions.join(name))?;
    }
    write(&["schema"], parts.join("bellows.schema.json"))?;
    let pages = parts.join("docs/design");
    fs::create_dir_all(&pages).map_err(|error| cannot_write(&pages, &error))?;
    let mut paths = files_below(Path::new("docs"))?;
    paths.retain(|path| path.extension() == Some(OsStr::new("md")));
    for path in paths.iter().map(PathBuf::as_path).chain([Path::new("README.md")]) {
        let text = fs::read_to_string(path)
            .map_err(|error| TaskError::failed(format!("cannot read {}: {error}", path.display())))?;
        let to = parts.join(path);
        fs::write(&to, book::without_links(&text, is_left_out)).map_err(|error| cannot_write(&to, &error))?;
    }
    Ok(())
}

/// Whether a link of a page leads to a file of the project that the package does not have.
fn is_left_out(target: &str) -> bool {
    let file = target.split('#').next().unwrap_or(target).trim_start_matches("../");
    let is_below = ["docs/", "design/"].iter().any(|folder| file.starts_with(folder));
    let is_page = is_below || !file.contains('/') && file.ends_with(".md");
    let is_example = file.starts_with("examples/") && Path::new(file).extension().is_some();
    let is_here = is_page && !["CONTRIBUTING.md", "SECURITY.md"].contains(&file);
    !(file.is_empty() || file.contains("://") || file.starts_with("images/") || is_here || is_example)
}

/// Installs the package below a folder, runs what it installed, and removes it.
fn check(package: &Path) -> Result<(), TaskError> {
    let root = target_dir().join("package-root");
    let _ = fs::remove_dir_all(&root);
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(|error| cannot_write(&folder, &error))?;
    }
    let status = root.join("var/lib/dpkg/status");
    fs::write(&status, "").map_err(|error| cannot_write(&status, &error))?;
    let root = root.canonicalize().map_err(|error| cannot_write(&root, &error))?;

    // What the package needs is not below the folder, but here.
    let needed = output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"))?;
    if !needed.contains("libc6") {
        return Err(TaskError::failed(format!("the package does not depend on libc6, but on `{}`", needed.trim())));
    }
    for name in needed.split(',').filter_map(|dependency| dependency.split_whitespace().next()) {
        let installed = Command::new("dpkg-query").args(["-W", name]).stdout(Stdio::null()).status();
        if !installed.is_ok_and(|status| status.success()) {
            return Err(TaskError::failed(format!("the package depends on {name}, which is not installed here")));
        }
    }

    // This machine may leave out documents, as containers do.
    dpkg(&root, &["--force-depends", "--path-include=*", "--install"], package.as_os_str())?;
    let installed: Vec<PathBuf> = payload(&root)?;
    let program = root.join("usr/bin/bellows");
    let version = output(Command::new(&program).arg("--version"))?;
    println!("{}", version.trim());
    let examples = root.join("usr/share/doc/bellows/examples");
    let mut names: Vec<PathBuf> = files_below(&examples)?;
    names.retain(|path| path.extension() == Some(OsStr::new("toml")) && path.parent() == Some(&examples));
    if names.len() < 10 {
        return Err(TaskError::failed(format!("{} examples are installed", names.len())));
    }
    let run = ["--set", "apps.file.path=out.pcap"];
    let mut quickstart = Command::new(&program);
    quickstart.arg("run").arg(examples.join("quickstart.toml")).args(run).current_dir(&root);
    succeed(quickstart.stdout(Stdio::null()))?;
    let target = fs::canonicalize(target_dir()).unwrap_or_else(|_| target_dir()).display().to_string();
    for (.., path) in COMPLETIONS {
        let path = root.join(path);
        let text = fs::read_to_string(&path)
            .map_err(|error| TaskError::failed(format!("cannot read {}: {error}", path.display())))?;
        if text.contains(&target) {
            return Err(TaskError::failed(format!("{} calls the program in {target}", path.display())));
        }
    }
    book::check_links(&root.join("usr/share/doc/bellows"))?;
    let service = root.join("etc/bellows/service.conf");
    let mode = fs::metadata(&service).map(|metadata| metadata.permissions().mode() & 0o7777);
    if !mode.as_ref().is_ok_and(|mode| *mode == 0o644) {
        return Err(TaskError::failed(format!("{}: mode 0644 is expected, not {mode:?}", service.display())));
    }
    for page in ["usr/share/man/man1/bellows.1.gz", "usr/share/man/man1/bellows-run.1.gz"] {
        if !root.join(page).is_file() {
            return Err(TaskError::failed(format!("the package has no {page}")));
        }
    }
    dpkg(&root, &["--purge"], OsStr::new("bellows"))?;
    let left: Vec<PathBuf> = payload(&root)?;
    if let Some(path) = left.iter().find(|path| installed.contains(path)) {
        return Err(TaskError::failed(format!("{} is left after the package was removed", path.display())));
    }
    Ok(())
}

/// Builds everything a second time, and compares.
fn again(package: &Path) -> Result<(), TaskError> {
    let first = fs::read(package).map_err(|error| TaskError::failed(format!("{}: {error}", package.display())))?;
    let target = target_dir().join("reproduce");
    let _ = fs::remove_dir_all(&target);
    let second = make(&target)?;
    let other = fs::read(&second).map_err(|error| TaskError::failed(format!("{}: {error}", second.display())))?;
    if first != other {
        let (first, second) = (package.display(), second.display());
        return Err(TaskError::failed(format!("two builds differ: {first} and {second}")));
    }
    println!("two builds have given the same package, byte by byte");
    fs::remove_dir_all(&target).map_err(|error| cannot_write(&target, &error))
}

/// Runs dpkg on the folder of a system.
fn dpkg(root: &Path, words: &[&str], what: &OsStr) -> Result<(), TaskError> {
    let mut command = Command::new("dpkg");
    command.arg("--root").arg(root).args(["--force-not-root", "--force-script-chrootless", "--log=/dev/null"]);
    succeed(command.args(words).arg(what))
}

/// All files below a system's folder but those of dpkg.
fn payload(root: &Path) -> Result<Vec<PathBuf>, TaskError> {
    Ok(files_below(root)?.into_iter().filter(|path| !path.starts_with(root.join("var"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_option_is_named() {
        let words = ["--chek".to_owned()];
        let Err(TaskError::Usage(message)) = run(&words) else { panic!("it was accepted") };
        assert!(message.contains("--chek"), "{message}");
    }

    #[test]
    fn links_to_pages_and_examples_stay() {
        for inside in ["docs/design.md", "design/fib.md#x", "../json.md", "../../examples/router.toml", "images/a.svg"]
        {
            assert!(!is_left_out(inside), "{inside}");
        }
        for outside in ["../../CONTRIBUTING.md#add-an-app", "../../crates/net/fib", "../crates/apps/vpn/src/gre/mod.rs"]
        {
            assert!(is_left_out(outside), "{outside}");
        }
    }

    #[test]
    fn all_files_of_the_package_are_in_the_tree_or_are_generated() {
        let manifest = fs::read_to_string("../crates/cli/bellows/Cargo.toml").unwrap();
        let assets = manifest.split_once("assets = [").and_then(|(_, rest)| rest.split_once("\n]")).unwrap().0;
        let mut checked = 0;
        for source in assets.lines().filter_map(|line| line.split('"').nth(1)) {
            if source.starts_with("target/") || source.contains(PARTS) {
                continue;
            }
            // `*` stands for any file of the folder, or any of a kind.
            let path = Path::new("../crates/cli/bellows").join(source);
            let pattern = path.file_name().unwrap().to_str().unwrap();
            let kind = pattern.strip_prefix('*').unwrap_or(pattern);
            let files = fs::read_dir(path.parent().unwrap()).unwrap_or_else(|error| panic!("{source}: {error}"));
            let matches = files.filter(|file| file.as_ref().unwrap().file_name().to_str().unwrap().ends_with(kind));
            assert!(matches.count() > 0, "{source}: there is no such file");
            checked += 1;
        }
        assert!(checked >= 8, "{checked}");
    }

    /// What a linter of such files would say: no builder is needed for it.
    #[test]
    fn the_container_is_made_of_fixed_bases_and_files_of_the_tree() {
        let text = fs::read_to_string("../packaging/container/Dockerfile").unwrap();
        let ignored = fs::read_to_string("../.dockerignore").unwrap();
        assert!(ignored.lines().any(|line| line == "target"), "the build's folder is no part of the context");
        let joined = text.replace("\\\n", " ");
        let lines: Vec<&str> = joined.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let mut arguments = Vec::new();
        let mut stages = Vec::new();
        for line in &lines {
            let words = words(line);
            match words[0].as_str() {
                "ARG" => arguments.push(words[1].split('=').next().unwrap().to_owned()),
                "FROM" => {
                    let (name, tag) = words[1].split_once(':').expect("a base has a tag");
                    assert!(!name.is_empty() && tag != "latest", "{line}");
                    stages.extend(words.iter().skip_while(|word| *word != "AS").nth(1).cloned());
                }
                "COPY" if words[1].starts_with("--from=") => {
                    assert!(stages.iter().any(|stage| words[1] == format!("--from={stage}")), "{line}");
                    let source = words[2].strip_prefix("/source/").expect("a path of the first stage");
                    assert!(source.starts_with("target/") || Path::new("..").join(source).exists(), "{line}");
                }
                "COPY" => assert_eq!(words[1], ".", "{line}"),
                "ENTRYPOINT" | "CMD" => {
                    let list = line.split_once(' ').unwrap().1;
                    assert!(serde_json::from_str::<Vec<String>>(list).is_ok(), "{line}: a list runs without a shell");
                }
                "WORKDIR" => assert!(words[1].starts_with('/'), "{line}"),
                "RUN" => assert!(!line.contains("apt-get upgrade") && !line.contains("sudo "), "{line}"),
                other => panic!("{other} is not used here: {line}"),
            }
        }
        for name in text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name) {
            assert!(arguments.iter().any(|argument| argument == name), "${{{name}}} has no ARG");
        }
        assert!(lines.iter().any(|line| line.contains("--locked")), "the build has the versions of Cargo.lock");
        assert_eq!(stages, ["build"]);
    }
}
