//! Checks the dependencies by the rules of `deny.toml`, and those of the queue by its own: the cargo-deny step of
//! `cargo xtask test`.
//!
//! cargo-deny takes minutes to build, and fetches its advisories from the network. So it runs only where it is
//! installed. The tests below check its rules for licences, versions and sources everywhere, with Cargo's own
//! data.

use crate::report::StepsReport;
use crate::tools;
use crate::workspace::cargo;

/// The checks of cargo-deny that need no network.
const CHECKS: &[&str] = &["licenses", "bans", "sources"];

/// The rules for all crates but one, and those for all, each with its option for the choice of crates.
const RULES: [(&str, &[&str]); 2] =
    [("deny.toml", &["--exclude", "bellows-queue"]), ("crates/measure/queue/deny.toml", &[])];

/// Runs cargo-deny, or notes why it cannot run.
pub fn run(report: &mut StepsReport) {
    if !tools::is_installed("cargo-deny") {
        let reason = "cargo-deny is not installed (cargo install --locked cargo-deny); without it, the tests of xtask \
                      check licences, versions and sources, and nobody looks for advisories";
        return report.leave_out_step("dependencies", reason);
    }
    for (rules, crates) in RULES {
        let mut check = cargo(&["deny", "--workspace", "--locked"]);
        check.args(crates).args(["check", "--config", rules]).args(CHECKS);
        report.run(&format!("dependencies by {rules}"), &mut check);
    }
    let has_advisories = cargo(&["deny", "fetch", "db"]).status().is_ok_and(|status| status.success());
    match has_advisories {
        true => {
            let words = ["deny", "--workspace", "--locked", "--offline", "check", "advisories"];
            report.run("advisories", &mut cargo(&words));
        }
        false => report.leave_out_step("advisories", "cargo-deny cannot fetch them (its message is above)"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::PathBuf;

    use bellows_testkit::tree::{self, root};

    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(format!("../{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The strings of the list `key` in a TOML file, without comment lines and tables, each of which has its own line.
    fn list(toml: &str, key: &str) -> Vec<String> {
        let lines: Vec<&str> = toml.lines().filter(|line| !line.trim_start().starts_with(['#', '{'])).collect();
        let text = lines.join("\n");
        let start = text.find(&format!("\n{key} = [")).unwrap_or_else(|| panic!("no list `{key}`"));
        let items =
            text[start..].split_once('[').and_then(|(_, rest)| rest.split_once(']')).expect("a list that ends").0;
        items.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// A package in the build for this machine, which is one of the systems of `deny.toml`.
    struct Package {
        name: String,
        version: String,
        license: String,
    }

    /// What `cargo tree` prints about these crates.
    fn cargo_tree(crates: &[&str], options: &[&str]) -> String {
        let words = ["tree", "--offline", "--locked", "--workspace", "--edges", "normal,build,dev", "--prefix", "none"];
        let output = cargo(&words).args(crates).args(options).output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// The packages that rules are for.
    fn packages(crates: &[&str]) -> Vec<Package> {
        let lines = cargo_tree(crates, &["--format", "{p}\t{l}"]);
        // The same package may be listed again with other notes: its path, that it is a macro, that it was shown
        // before.
        let mut packages = BTreeMap::new();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (package, license) = line.split_once('\t').unwrap_or_else(|| panic!("no licence field in {line}"));
            let mut words = package.split(' ');
            let (Some(name), Some(version)) = (words.next(), words.next()) else { panic!("{line}") };
            let license = license.trim_end_matches(" (*)").to_owned();
            packages.insert((name.to_owned(), version.to_owned()), license);
        }
        packages.into_iter().map(|((name, version), license)| Package { name, version, license }).collect()
    }

    /// Whether these licences satisfy a licence expression (SPDX, or the older form with a slash).
    fn is_allowed(expression: &str, allowed: &[String]) -> bool {
        let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = &words[..];
        let is_allowed = any_of(&mut rest, allowed);
        is_allowed && rest.is_empty()
    }

    fn any_of(words: &mut &[&str], allowed: &[String]) -> bool {
        let mut verdict = all_of(words, allowed);
        while let Some((&"OR", rest)) = words.split_first() {
            *words = rest;
            verdict |= all_of(words, allowed);
        }
        verdict
    }

    fn all_of(words: &mut &[&str], allowed: &[String]) -> bool {
        let mut verdict = one(words, allowed);
        while let Some((&"AND", rest)) = words.split_first() {
            *words = rest;
            verdict &= one(words, allowed);
        }
        verdict
    }

    fn one(words: &mut &[&str], allowed: &[String]) -> bool {
        let Some((first, rest)) = words.split_first() else { return false };
        *words = rest;
        if *first == "(" {
            let verdict = any_of(words, allowed);
            let Some((&")", rest)) = words.split_first() else { return false };
            *words = rest;
            return verdict;
        }
        let mut license = (*first).to_owned();
        if let Some((&"WITH", rest)) = words.split_first() {
            let Some((exception, rest)) = rest.split_first() else { return false };
            license = format!("{license} WITH {exception}");
            *words = rest;
        }
        allowed.contains(&license)
    }

    #[test]
    fn licence_expressions_are_understood() {
        let allowed = ["MIT", "Apache-2.0"].map(str::to_owned);
        for good in
            ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(GPL-3.0 OR MIT) AND Apache-2.0", "MIT AND MIT OR GPL-3.0"]
        {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT AND (GPL-3.0 OR Zlib)",
            "Apache-2.0 WITH X",
            "(MIT",
            "MIT MIT",
            "OR MIT",
        ] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn every_licence_is_allowed() {
        for (rules, crates) in RULES {
            let (allowed, packages) = (list(&read(rules), "allow"), packages(crates));
            assert!(packages.len() > 50 && allowed.len() > 2, "{} packages, {allowed:?}", packages.len());
            let refused = packages.iter().filter(|package| !is_allowed(&package.license, &allowed));
            let refused: Vec<_> =
                refused.map(|Package { name, version, license }| format!("{name} {version}: {license:?}")).collect();
            assert!(refused.is_empty(), "licences that {rules} does not allow:\n{}", refused.join("\n"));
        }
    }

    #[test]
    fn no_crate_has_two_versions_except_named_ones() {
        for (rules, crates) in RULES {
            let mut versions = BTreeMap::<_, Vec<_>>::new();
            for package in packages(crates) {
                versions.entry(package.name).or_default().push(package.version);
            }
            versions.retain(|_, versions| versions.len() > 1);
            let named = list(&read(rules), "skip");
            assert!(versions.keys().eq(&named), "in several versions: {versions:?}; {rules} names {named:?}");
        }
    }

    #[test]
    fn banned_crates_are_used_by_those_that_may_alone() {
        for (rules, crates) in RULES {
            let text = read(rules);
            let banned = list(&text, "deny");
            assert!(!banned.is_empty());
            let found: Vec<_> =
                packages(crates).into_iter().map(|package| package.name).filter(|name| banned.contains(name)).collect();
            assert!(found.is_empty(), "{rules} bans {found:?}");

            // A crate and those that may use it, in the form of cargo-deny.
            let exceptions: Vec<&str> =
                text.lines().filter(|line| line.trim_start().starts_with("{ crate =")).collect();
            assert!(!exceptions.is_empty());
            for exception in exceptions {
                let mut names = exception.split('"').skip(1).step_by(2);
                let name = names.next().expect("a crate's name");
                let allowed: Vec<&str> = names.collect();
                let lines = cargo_tree(crates, &["--format", "{p}", "--invert", name, "--depth", "1"]);
                let users = lines.lines().skip(1).filter_map(|line| line.split(' ').next());
                let users: Vec<&str> = users.filter(|user| !user.is_empty() && !allowed.contains(user)).collect();
                assert!(users.is_empty(), "{rules} lets {allowed:?} use {name}, not {users:?}");
            }
        }
    }

    #[test]
    fn every_crate_comes_from_the_registry() {
        let [common, queue] = RULES.map(|(rules, _)| read(rules));
        let allowed = list(&common, "allow-registry");
        assert_eq!(list(&queue, "allow-registry"), allowed);
        let lock = read("Cargo.lock");
        let sources: BTreeSet<_> = lock.lines().filter_map(|line| line.strip_prefix("source = ")).collect();
        let allowed: BTreeSet<_> = allowed.iter().map(|url| format!("\"registry+{url}\"")).collect();
        assert!(!sources.is_empty() && sources.iter().all(|source| allowed.contains(*source)), "{sources:?}");
    }

    /// The lines of a manifest's dependency tables: name and the rest.
    fn dependencies(manifest: &str) -> Vec<(&str, &str)> {
        let mut is_table = false;
        let mut found = Vec::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                is_table = line.trim_end().ends_with("dependencies]");
            } else if let Some((name, rest)) =
                line.split_once([' ', '.']).filter(|_| is_table && !line.starts_with('#'))
            {
                found.push((name, rest));
            }
        }
        found
    }

    fn members() -> Vec<String> {
        let relative =
            |folder: PathBuf| folder.strip_prefix(root()).expect("a crate of the tree").display().to_string();
        let crates = tree::crates().into_iter().map(|folder| format!("{}/Cargo.toml", relative(folder)));
        crates.chain(["xtask/Cargo.toml".into(), "examples/custom-app/Cargo.toml".into()]).collect()
    }

    #[test]
    fn versions_are_stated_in_the_workspace_alone_and_each_is_used() {
        let workspace = read("Cargo.toml");
        let mut unused: BTreeSet<_> = dependencies(&workspace).into_iter().map(|(name, _)| name).collect();
        assert!(unused.len() > 30, "{unused:?}");
        for path in members() {
            let manifest = read(&path);
            for (name, rest) in dependencies(&manifest) {
                assert!(
                    rest.contains("workspace = true"),
                    "{path}: {name}: its version belongs into the root's Cargo.toml"
                );
                unused.remove(name);
            }
        }
        // Used only by projects that use Bellows as the example does.
        assert!(unused.is_empty(), "no crate uses {unused:?}");
    }

    #[test]
    fn every_dependency_has_a_documented_reason() {
        let reasons = read("docs/dependencies.md");
        let table: String = reasons.lines().filter(|line| line.starts_with('|')).collect();
        for (name, _) in dependencies(&read("Cargo.toml")).into_iter().filter(|(name, _)| !name.starts_with("bellows"))
        {
            assert!(table.contains(&format!("`{name}`")), "docs/dependencies.md says nothing of {name}");
        }
    }
}
