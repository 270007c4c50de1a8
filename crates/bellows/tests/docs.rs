//! The command lines in the documentation: the command accepts each, and its files exist.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bellows_testkit::page::words;
use support::{Sandbox, root};

/// The pages, and the networks, whose comments also have commands.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for (folder, extension) in
        [("", "md"), ("docs", "md"), ("examples", "md"), ("examples", "toml"), ("examples/custom-app", "md")]
    {
        let files = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|found| found == extension)));
    }
    pages
}

/// The command lines of a page: lines of code that begin with one of the programs, and code spans in the text.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let mut commands = Vec::new();
    for line in text.lines() {
        let code = line.trim_start_matches("# ").trim_start_matches("    ").trim().trim_start_matches("$ ");
        let spans = line.split('`').skip(1).step_by(2);
        let lines = [code].into_iter().chain(spans);
        commands.extend(lines.filter(|code| arguments(code).is_some()).map(str::to_owned));
    }
    commands
}

/// The arguments of a line of code for `bellows`, if it runs that.
fn arguments(code: &str) -> Option<Vec<String>> {
    let words = words(code);
    let command = words.iter().position(|word| !word.contains('='))?;
    let (program, rest) = words[command..].split_first()?;
    let rest = match (program.rsplit('/').next()?, rest.first().map(String::as_str)) {
        ("bellows" | "my-bellows", Some(_)) => rest.to_vec(),
        ("cargo", Some("run")) => rest[rest.iter().position(|word| word == "--")? + 1..].to_vec(),
        _ => return None,
    };
    // A sentence that begins with the name, or an incomplete command.
    let is_command = rest.iter().all(|word| !word.contains('…') && !word.contains('[') && word != "...");
    (is_command && rest.first()?.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '-'))
        .then_some(rest)
}

#[test]
fn every_command_line_of_the_documentation_is_understood() {
    let sandbox = Sandbox::new();
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for page in pages() {
        for command in commands(&fs::read_to_string(&page).unwrap()) {
            let arguments = arguments(&command).unwrap();
            if !seen.insert(arguments.clone()) {
                continue;
            }
            let place = page.display();
            // N stands for a number.
            let words: Vec<&str> = arguments.iter().map(|word| if word == "N" { "2240" } else { word }).collect();
            let said = sandbox.bellows(&[&words[..], &["--help"]].concat());
            if said.code != Some(0) || !said.stdout.contains("Usage:") {
                wrong.push(format!("{place}: {command}: {}", said.stderr));
            }
            for file in words.iter().filter(|word| word.starts_with("examples/") && !word.contains("-out")) {
                if !root().join(file).exists() {
                    wrong.push(format!("{place}: {command}: there is no {file}"));
                }
            }
            if let ["show", part, ..] = words[..]
                && !part.starts_with('-')
            {
                let said = sandbox.bellows(&["show", part, "no-such-network"]);
                if said.stderr.contains("there is no part") {
                    wrong.push(format!("{place}: {command}: {}", said.stderr));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen.len() > 100, "{} command lines: {seen:#?}", seen.len());
}

/// The pictures in the table of the book, each with the command that makes it and the name of the file that it writes.
fn pictures() -> Vec<(String, Vec<String>, String)> {
    let book = fs::read_to_string(root().join("docs/book.md")).unwrap();
    let rows = book.lines().skip_while(|line| *line != "| picture | command |").skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let spans: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
            let arguments = arguments(spans[1]).unwrap_or_else(|| panic!("{row}: no command"));
            // A folder is given to commands that write several.
            let written = spans.get(2).map_or_else(|| arguments.last().cloned(), |file| Some((*file).to_owned()));
            let written = written.unwrap_or_default();
            (spans[0].to_owned(), arguments, written)
        })
        .collect()
}

#[test]
fn every_picture_is_shown_and_has_its_command() {
    let files = fs::read_dir(root().join("docs/images")).unwrap();
    let files: BTreeSet<String> =
        files.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    let mut shown = BTreeSet::new();
    for page in pages().iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(page).unwrap();
        let embedded =
            text.split("![").skip(1).filter_map(|rest| rest.split_once(']')?.1.strip_prefix('(')?.split_once(')'));
        for (target, _) in embedded {
            let path = page.parent().unwrap().join(target);
            assert_eq!(path.parent(), Some(&*root().join("docs/images")), "{}: {target}", page.display());
            shown.insert(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    let told = pictures();
    let names: BTreeSet<String> = told.iter().map(|(name, ..)| name.clone()).collect();
    assert_eq!(names.len(), told.len(), "a picture has two rows in docs/book.md");
    assert_eq!(files, shown, "the files of docs/images beside the pictures that pages show");
    assert_eq!(files, names, "the files of docs/images beside the table in docs/book.md");
    for (name, arguments, written) in told {
        let svg = arguments.iter().skip_while(|word| *word != "--svg").nth(1);
        let is_in_folder = svg.is_some_and(|folder| !folder.ends_with(".svg"));
        let is_written = written.ends_with(".svg") && (is_in_folder || written == format!("docs/images/{name}"));
        assert!(is_written, "docs/book.md: {name} is not what `{}` writes: {written}", arguments.join(" "));
    }
}

#[test]
fn pictures_that_need_no_measurement_are_what_their_commands_make() {
    let sandbox = Sandbox::new();
    let mut made = 0;
    for (name, arguments, written) in pictures().into_iter().filter(|(_, arguments, _)| arguments[0] == "graph") {
        let again = sandbox.path(&name).display().to_string();
        // Files are named from the folder of the repository.
        let inside = |word: &String| match word.strip_prefix("examples/") {
            Some(_) => root().join(word).display().to_string(),
            None if *word == written => again.clone(),
            None => word.clone(),
        };
        let words: Vec<String> = arguments.iter().map(inside).collect();
        sandbox.bellows(&words.iter().map(String::as_str).collect::<Vec<_>>()).fine();
        let [old, new] = [root().join(&written), again.into()].map(|path| fs::read_to_string(path).unwrap());
        assert!(old == new, "{written} is out of date; `bellows {}` makes it", arguments.join(" "));
        made += 1;
    }
    assert!(made > 0);
}

#[test]
fn links_between_pages_lead_somewhere() {
    for page in pages().iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if target.contains(' ') || file.starts_with("http") {
                continue;
            }
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: {target}", page.display());
            assert!(anchor.is_empty() || has_heading(&to, anchor), "{}: {target}", page.display());
        }
    }
}

#[test]
fn the_files_that_pages_name_exist() {
    let mut seen = 0;
    for page in ["CONTRIBUTING.md", "SECURITY.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for span in text.split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "docs/", "examples/"].iter().any(|start| span.starts_with(start));
            // NAME stands for the reader's choice.
            if is_path && !span.contains("NAME") {
                assert!(root().join(span).exists(), "{page} names {span}");
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

/// The table of crates in the design: each with the crates that it uses, as in its manifest, and the crates that may be
/// unsafe.
#[test]
fn the_table_of_crates_is_that_of_the_manifests() {
    let design = fs::read_to_string(root().join("docs/design.md")).unwrap();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<String>>();
    let rows = design.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    let told: BTreeMap<String, BTreeSet<String>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells = cells(line);
            let uses = cells[3].split(", ").filter(|name| *name != "nothing").map(str::to_owned);
            (cells[1].trim_matches('`').to_owned(), uses.collect())
        })
        .collect();
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let uses = |folder: &PathBuf| -> BTreeSet<String> {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let listed = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
        let listed = listed.take_while(|line| !line.starts_with('['));
        let name = |line: &str| Some(line.strip_prefix("bellows-")?.split(['.', ' ']).next()?.to_owned());
        listed.filter_map(name).collect()
    };
    let name = |folder: &PathBuf| folder.file_name().unwrap().to_string_lossy().into_owned();
    let folders: Vec<PathBuf> = crates.chain([root().join("xtask")]).collect();
    let found: BTreeMap<String, BTreeSet<String>> = folders.iter().map(|folder| (name(folder), uses(folder))).collect();
    assert_eq!(told, found, "docs/design.md beside the manifests");

    let sentence = design.split("`unsafe` code exists in").nth(1).unwrap().split("alone").next().unwrap();
    let told: BTreeSet<&str> = sentence.split('`').skip(1).step_by(2).collect();
    let is_unsafe = |folder: &&PathBuf| {
        let code = fs::read_to_string(folder.join("src/lib.rs"));
        code.is_ok_and(|code| !code.contains("#![forbid(unsafe_code)]"))
    };
    let found: Vec<String> = folders.iter().filter(is_unsafe).map(name).collect();
    assert_eq!(told, found.iter().map(String::as_str).collect::<BTreeSet<_>>(), "crates without `forbid(unsafe_code)`");
}

fn has_heading(page: &Path, anchor: &str) -> bool {
    let text = fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        kept.chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
            .collect::<String>()
            .replace(' ', "-")
    };
    headings.map(slug).any(|found| found == anchor)
}

#[test]
fn arguments_are_those_of_the_programs() {
    assert_eq!(arguments("A=b target/release/bellows run x"), Some(vec!["run".to_owned(), "x".to_owned()]));
    assert_eq!(arguments("cargo run --release -- apps sink"), Some(vec!["apps".to_owned(), "sink".to_owned()]));
    assert_eq!(arguments("bellows"), None);
    assert_eq!(arguments("cargo test"), None);
}
