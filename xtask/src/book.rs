//! `cargo xtask book`: the pages of `docs` as a book for a browser, with references that the program writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::TaskError;
use crate::commands::{CargoTool, cannot_write, files_below, output, succeed};
use crate::report::StepsReport;
use crate::workspace::{cargo, target_dir};

const MDBOOK: CargoTool =
    CargoTool { name: "mdbook", version: "0.5.4", options: &["--no-default-features", "--features", "search"] };
/// The folder of the pages and of the book's settings.
const DOCS: &str = "docs";
/// The line of the summary behind which the references come.
const REFERENCES: &str = "# Programs\n";

/// A part of a page that the program prints. In the book it is a page of the reference.
struct Printed {
    page: &'static str,
    /// The arguments of the program.
    words: &'static [&'static str],
    name: &'static str,
    title: &'static str,
}

const PRINTED: [Printed; 2] = [
    Printed { page: "json.md", words: &["schema", "--reports"], name: "json", title: "JSON of the commands" },
    Printed { page: "metrics.md", words: &["metrics", "--list"], name: "metrics", title: "All metrics" },
];

impl Printed {
    fn file(&self) -> String {
        format!("reference-{}.md", self.name)
    }

    fn command(&self) -> String {
        format!("bellows {}", self.words.join(" "))
    }

    /// The page without that part; `None` if it has none.
    fn cut(&self, page: &str) -> Option<String> {
        let (before, rest) = page.split_once(&format!("<!-- generated: {} -->\n", self.command()))?;
        let (_, after) = rest.split_once("<!-- end -->\n")?;
        Some(format!("{before}The list is the chapter [{}]({}).\n{after}", self.title, self.file()))
    }
}

/// A part that has become a page, with its headings.
struct Moved {
    printed: &'static Printed,
    text: String,
    headings: BTreeSet<String>,
}

impl Moved {
    fn new(printed: &'static Printed, program: &Path) -> Result<Moved, TaskError> {
        let text = output(Command::new(program).args(printed.words))?;
        Ok(Moved { headings: headings(&text), printed, text })
    }

    /// The page of the reference.
    fn page(&self, all: &[Moved]) -> String {
        let Printed { title, page, .. } = self.printed;
        let command = self.printed.command();
        let text =
            with_links(&self.text, |target| moved_link(page, target, all).unwrap_or_else(|| own_link(page, target)));
        format!("# {title}\n\n`{command}` prints this list. [More about it]({page}).\n\n{text}")
    }
}

/// A link from a part of a page, as one from another page.
fn own_link(page: &str, target: &str) -> String {
    if target.starts_with('#') { format!("{page}{target}") } else { target.to_owned() }
}

/// Where a link of a page leads after parts have moved; `None` if to the same place.
fn moved_link(page: &str, target: &str, all: &[Moved]) -> Option<String> {
    let (file, anchor) = target.split_once('#')?;
    let file = if file.is_empty() { page } else { file };
    let moved = all.iter().find(|moved| moved.printed.page == file && moved.headings.contains(anchor))?;
    Some(format!("{}#{anchor}", moved.printed.file()))
}

/// A text with other targets of its links.
fn with_links(text: &str, target: impl Fn(&str) -> String) -> String {
    let mut result = String::with_capacity(text.len());
    let mut parts = text.split("](");
    result += parts.next().unwrap_or_default();
    for part in parts {
        let end = part.find(')').unwrap_or(0);
        result += &format!("]({}{}", target(&part[..end]), &part[end..]);
    }
    result
}

/// The anchors of the headings of a page.
fn headings(page: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.collect::<String>().replace(' ', "-")
    };
    page.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

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
    let moved =
        PRINTED.iter().map(|printed| Moved::new(printed, &program)).collect::<Result<Vec<Moved>, TaskError>>()?;
    for path in files_below(Path::new(DOCS))? {
        let inner = path.strip_prefix(DOCS).unwrap_or(&path);
        let to = sources.join(inner);
        if path.extension().is_none_or(|extension| extension != "md") {
            write(&to, |to| fs::copy(&path, to).map(drop))?;
            continue;
        }
        let name = inner.to_string_lossy();
        let mut text = read(&path)?;
        for printed in PRINTED.iter().filter(|printed| printed.page == name) {
            let command = printed.command();
            text = printed.cut(&text).ok_or_else(|| {
                TaskError::failed(format!("{}: there is no part that `{command}` prints", path.display()))
            })?;
        }
        let text = in_book(&name, &text, &moved);
        write(&to, |to| fs::write(to, &text))?;
    }
    let mut summary = String::from("# Reference\n\n");
    let mut references = vec![
        ("apps", "Apps", apps(&program)?),
        ("engine", "Settings of the engine", manual(&program, &["apps", "engine"], "Settings of the engine")?),
        ("commands", "Commands", commands(&program)?),
    ];
    references.extend(moved.iter().map(|part| (part.printed.name, part.printed.title, part.page(&moved))));
    for (name, title, text) in references {
        write(&sources.join(format!("reference-{name}.md")), |to| fs::write(to, &text))?;
        summary += &format!("- [{title}](reference-{name}.md)\n");
    }
    let path = sources.join("SUMMARY.md");
    let text = read(&path)?;
    if !text.contains(REFERENCES) {
        return Err(TaskError::failed(format!("{}: there is no line `{}`", path.display(), REFERENCES.trim())));
    }
    let text = text.replacen(REFERENCES, &format!("{summary}\n{REFERENCES}"), 1);
    write(&path, |to| fs::write(to, &text))
}

/// A page with the links that it has in the book: those to other files are names, and those to parts that have moved follow.
fn in_book(page: &str, text: &str, moved: &[Moved]) -> String {
    // From the page's folder to that of the book.
    let up = "../".repeat(page.matches('/').count());
    let text = without_links(text, |target| target.starts_with(&format!("{up}../")));
    with_links(&text, |target| {
        let inside = target.strip_prefix(&up).and_then(|target| moved_link(page, target, moved));
        inside.map_or_else(|| target.to_owned(), |target| format!("{up}{target}"))
    })
}

fn read(path: &Path) -> Result<String, TaskError> {
    fs::read_to_string(path).map_err(|error| TaskError::failed(format!("cannot read {}: {error}", path.display())))
}

fn write(to: &Path, work: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), TaskError> {
    let folder = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).and_then(|()| work(to)).map_err(|error| cannot_write(to, &error))
}

/// A page in which links to these files are the names of the files.
pub fn without_links(text: &str, is_outer: impl Fn(&str) -> bool) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let end = rest[at..].find(')').map(|end| at + end).filter(|&end| is_outer(&rest[at + 2..end]));
        let (Some(start), Some(end)) = (rest[..at].rfind('['), end) else {
            let (before, after) = rest.split_at(at + 1);
            result += before;
            rest = after;
            continue;
        };
        let (words, target) = (&rest[start + 1..at], rest[at + 2..end].trim_start_matches("../"));
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
pub fn step(report: &mut StepsReport) {
    report.step("book", || {
        let sources = target_dir().join("book-source");
        write_sources(&sources)?;
        check_links(&sources)
    });
}

/// Checks that the pages of a folder link to files in it, and to headings that these have.
pub fn check_links(sources: &Path) -> Result<(), TaskError> {
    let mut missing = Vec::new();
    for page in files_below(sources)?.iter().filter(|path| path.extension().is_some_and(|kind| kind == "md")) {
        let text = read(page)?;
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        for target in targets {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains("://") || target.contains(' ') {
                continue;
            }
            let to = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            if !to.is_file() || !(anchor.is_empty() || headings(&read(&to)?).contains(anchor)) {
                missing.push(format!("{}: {target}", page.display()));
            }
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(TaskError::failed(format!("links lead nowhere:\n{}", missing.join("\n")))),
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
        let is_outer = |target: &str| target.starts_with("../");
        assert_eq!(without_links(page, is_outer), expected);
        assert_eq!(without_links("](../a ![x](../b.svg) y", is_outer), "](../a x (`b.svg`) y");
        let some = "See [`x`](../crates/x) and the unit (`a/b.service`), here (`json.md`), [that](../README.md#two).";
        assert_eq!(without_links(page, |target| ["../a/b.service", "json.md#a"].contains(&target)), some);
    }

    #[test]
    fn a_printed_part_moves_with_the_links_to_it() {
        let printed = &PRINTED[0];
        let text = "## `bellows ps --json`\n\nSee [this](#bellows-ps---json), [that](#the-socket).\n".to_owned();
        let moved = [Moved { printed, headings: headings(&text), text }];
        let page = "# JSON\n\n<!-- generated: bellows schema --reports -->\nold\n<!-- end -->\n## The socket\n";
        let expected = "# JSON\n\nThe list is the chapter [JSON of the commands](reference-json.md).\n## The socket\n";
        assert_eq!(printed.cut(page).as_deref(), Some(expected));
        assert_eq!(printed.cut("# JSON\n"), None);
        let reference = moved[0].page(&moved);
        assert!(
            reference.contains("[this](reference-json.md#bellows-ps---json), [that](json.md#the-socket)"),
            "{reference}"
        );
        let linked = |page: &str, target: &str| moved_link(page, target, &moved);
        assert_eq!(linked("a.md", "json.md#bellows-ps---json").as_deref(), Some("reference-json.md#bellows-ps---json"));
        assert_eq!((linked("a.md", "#bellows-ps---json"), linked("a.md", "json.md#the-socket")), (None, None));
        let page =
            "[a](../json.md#bellows-ps---json) [b](../json.md#the-socket) [c](fib.md#x) [d](../../crates/net/fib)";
        let expected =
            "[a](../reference-json.md#bellows-ps---json) [b](../json.md#the-socket) [c](fib.md#x) d (`crates/net/fib`)";
        assert_eq!(in_book("design/engine.md", page, &moved), expected);
        assert_eq!(with_links("a [b](c) ](", |target| target.to_uppercase()), "a [b](C) ](");
    }

    #[test]
    fn every_printed_part_is_in_its_page() {
        for printed in &PRINTED {
            let page = fs::read_to_string(Path::new("../docs").join(printed.page)).unwrap();
            assert!(printed.cut(&page).is_some(), "docs/{} without `{}`", printed.page, printed.command());
        }
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
        for page in files_below(Path::new("../docs")).ok().unwrap() {
            let name = page.strip_prefix("../docs").unwrap().to_str().unwrap();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                assert_eq!(linked.iter().filter(|target| **target == name).count(), 1, "{name} in docs/SUMMARY.md");
            }
        }
        for target in linked {
            assert!(Path::new("../docs").join(target).is_file(), "docs/SUMMARY.md: {target}");
        }
    }
}
