//! The command lines in the documentation: the command accepts each, and its files exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Sandbox, root};
use bellows_testkit::page::words;

/// The pages, and the networks, whose comments also have commands.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for (folder, extension) in [
        ("", "md"),
        ("docs", "md"),
        ("docs/design", "md"),
        ("examples", "md"),
        ("examples", "toml"),
        ("examples/custom-app", "md"),
    ] {
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
    let is_of_design = |page: &PathBuf| page.display().to_string().contains("docs/design");
    let design = pages().into_iter().filter(is_of_design);
    for page in ["CONTRIBUTING.md", "SECURITY.md"].map(|page| root().join(page)).into_iter().chain(design) {
        let text = fs::read_to_string(&page).unwrap();
        for span in text.split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "docs/", "examples/"].iter().any(|start| span.starts_with(start));
            // NAME stands for the reader's choice.
            if is_path && !span.contains("NAME") {
                assert!(root().join(span).exists(), "{} names {span}", page.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
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
