//! `cargo xtask book`: the pages of `docs` as a book for a browser, with references that the program writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::TaskError;
use crate::commands::{CargoTool, cannot_write, files_below, output, succeed};
use crate::report::Report;
use crate::workspace::{cargo, target_dir};

const MDBOOK: CargoTool =
    CargoTool { name: "mdbook", version: "0.5.4", options: &["--no-default-features", "--features", "search"] };
/// The folder of the pages and of the book's settings.
const DOCS: &str = "docs";
/// The line of the summary behind which the references come.
const REFERENCES: &str = "# Programs\n";

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    if let [other, ..] = words {
        return Err(TaskError::usage(format!("book: '{other}' is not an option")));
    }
    let sources = target_dir().join("book-source");
    write_sources(&sources)?;
    let book = target_dir().join("book");
    let book = std::path::absolute(&book).map_err(|error| cannot_write(&book, &error))?;
    let mdbook = MDBOOK.provide()?;
    succeed(Command::new(mdbook).arg("build").arg(&sources).arg("--dest-dir").arg(&book))?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// Writes the sources of the book: the pages, and the references.
fn write_sources(sources: &Path) -> Result<(), TaskError> {
    succeed(&mut cargo(&["build", "--release", "--locked", "--package", "bellows"]))?;
    let program = target_dir().join("release/bellows");
    let _ = fs::remove_dir_all(sources);
    for path in files_below(Path::new(DOCS))? {
        let to = sources.join(path.strip_prefix(DOCS).unwrap_or(&path));
        write(&to, |to| match path.extension().is_some_and(|extension| extension == "md") {
            true => fs::read_to_string(&path).and_then(|text| fs::write(to, without_outer_links(&text))),
            false => fs::copy(&path, to).map(drop),
        })?;
    }
    let mut summary = String::from("# Reference\n\n");
    let apps = apps(&program)?;
    for (name, title, text) in [
        ("apps", "Apps", apps),
        ("engine", "Settings of the engine", manual(&program, &["apps", "engine"], "Settings of the engine")?),
        ("commands", "Commands", commands(&program)?),
    ] {
        write(&sources.join(format!("reference-{name}.md")), |to| fs::write(to, &text))?;
        summary += &format!("- [{title}](reference-{name}.md)\n");
    }
    let path = sources.join("SUMMARY.md");
    let text = fs::read_to_string(&path).map_err(|error| TaskError::failed(format!("{}: {error}", path.display())))?;
    if !text.contains(REFERENCES) {
        return Err(TaskError::failed(format!("{}: there is no line `{}`", path.display(), REFERENCES.trim())));
    }
    let text = text.replacen(REFERENCES, &format!("{summary}\n{REFERENCES}"), 1);
    write(&path, |to| fs::write(to, &text))
}

fn write(to: &Path, work: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), TaskError> {
    let folder = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).and_then(|()| work(to)).map_err(|error| cannot_write(to, &error))
}

/// A page whose links to files outside of the book are the names of these files.
fn without_outer_links(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("](../") {
        let end = rest[at..].find(')').map(|end| at + end);
        let (Some(start), Some(end)) = (rest[..at].rfind('['), end) else {
            let (before, after) = rest.split_at(at + 1);
            result += before;
            rest = after;
            continue;
        };
        let (words, target) = (&rest[start + 1..at], &rest[at + "](../".len()..end]);
        // A picture of another folder would be missing.
        result += rest[..start].trim_end_matches('!');
        let target = target.split('#').next().unwrap_or(target);
        let words_alone = words.trim_matches('`');
        result += &match target.ends_with(words_alone) {
            true => format!("`{target}`"),
            false => format!("{words} (`{target}`)"),
        };
        rest = &rest[end + 1..];
    }
    result + rest
}

/// The step of `cargo xtask test`: the sources of the book, whose links all lead somewhere. It needs no mdbook.
pub fn step(report: &mut Report) {
    report.step("book", || {
        let sources = target_dir().join("book-source");
        write_sources(&sources)?;
        check_links(&sources)
    });
}

/// Checks that the pages of a folder link to files in it.
fn check_links(sources: &Path) -> Result<(), TaskError> {
    let mut missing = Vec::new();
    for page in files_below(sources)?.iter().filter(|path| path.extension().is_some_and(|kind| kind == "md")) {
        let text = fs::read_to_string(page)
            .map_err(|error| TaskError::failed(format!("cannot read {}: {error}", page.display())))?;
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        for target in targets {
            let file = target.split('#').next().unwrap_or_default();
            let is_outside = file.contains("://") || file.contains(' ');
            if !(file.is_empty() || is_outside || page.with_file_name(file).is_file()) {
                missing.push(format!("{}: {target}", page.display()));
            }
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(TaskError::failed(format!("links of the book lead nowhere:\n{}", missing.join("\n")))),
    }
}

/// The manuals of all apps, one section each.
fn apps(program: &Path) -> Result<String, TaskError> {
    let list = output(Command::new(program).args(["apps", "--json"]))?;
    let list: Value =
        serde_json::from_str(&list).map_err(|error| TaskError::failed(format!("bellows apps --json: {error}")))?;
    let mut page = String::from("# Apps\n\n`bellows apps` prints this list, and `bellows apps NAME` a manual.\n");
    for app in list.as_array().into_iter().flatten() {
        let Some(name) = app["name"].as_str() else { continue };
        let manual = output(Command::new(program).args(["apps", name]))?;
        page += &format!("\n## {name}\n\n{}", block(&manual));
    }
    Ok(page)
}

/// A manual that the program prints, as a page.
fn manual(program: &Path, words: &[&str], title: &str) -> Result<String, TaskError> {
    Ok(format!("# {title}\n\n{}", block(&output(Command::new(program).args(words))?)))
}

/// The help of all commands, as their manual pages name them.
fn commands(program: &Path) -> Result<String, TaskError> {
    let pages = target_dir().join("book-manuals");
    let _ = fs::remove_dir_all(&pages);
    succeed(Command::new(program).arg("man").arg("-o").arg(&pages))?;
    let mut page = String::from("# Commands\n\n`bellows help COMMAND` prints one of these.\n");
    let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = files_below(&pages)?.iter().map(stem).collect();
    for name in &names {
        let words = words_of(name, &names);
        let help = output(Command::new(program).args(&words[1..]).arg("--help"))?;
        page += &format!("\n## {}\n\n{}", words.join(" "), block(&help));
    }
    Ok(page)
}

/// The words of a command whose manual page has a name such as `bellows-route-replace-all`. Each command above it has a page,
/// too.
fn words_of(name: &str, names: &[String]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut start = 0;
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    for end in ends {
        if names.iter().any(|page| *page == name[..end]) {
            words.push(name[start..end].to_owned());
            start = (end + 1).min(name.len());
        }
    }
    words
}

fn block(text: &str) -> String {
    format!("~~~text\n{}\n~~~\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_are_names_of_files() {
        let page =
            "See [`x`](../crates/x) and [the unit](../a/b.service), [here](json.md#a), [that](../README.md#two).";
        let expected = "See `crates/x` and the unit (`a/b.service`), [here](json.md#a), that (`README.md`).";
        assert_eq!(without_outer_links(page), expected);
        assert_eq!(without_outer_links("](../a ![x](../b.svg) y"), "](../a x (`b.svg`) y");
    }

    #[test]
    fn commands_have_the_words_of_their_pages() {
        let names = ["bellows", "bellows-route", "bellows-route-replace-all", "bellows-run"].map(str::to_owned);
        assert_eq!(words_of("bellows", &names), ["bellows"]);
        assert_eq!(words_of("bellows-run", &names), ["bellows", "run"]);
        assert_eq!(words_of("bellows-route-replace-all", &names), ["bellows", "route", "replace-all"]);
    }

    #[test]
    fn all_pages_are_in_the_summary() {
        let summary = fs::read_to_string("../docs/SUMMARY.md").unwrap();
        assert!(summary.contains(REFERENCES));
        let linked: Vec<&str> =
            summary.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect();
        for page in fs::read_dir("../docs").unwrap().map(|entry| entry.unwrap().path()) {
            let name = page.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                assert_eq!(linked.iter().filter(|target| **target == name).count(), 1, "{name} in docs/SUMMARY.md");
            }
        }
        for target in linked {
            assert!(Path::new("../docs").join(target).is_file(), "docs/SUMMARY.md: {target}");
        }
    }
}
