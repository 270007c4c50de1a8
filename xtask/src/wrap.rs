//! `cargo xtask wrap`: wraps the text of Markdown pages. Only paragraphs with too wide lines change, so that a diff
//! shows the edited text. Code, tables, headings, quotes and HTML stay unchanged, and so do lines without a place to
//! break.

use std::fs;
use std::path::{Path, PathBuf};

use crate::TaskError;

/// The maximum line length, in characters.
const WIDTH: usize = 100;

/// Folders with pages.
const FOLDERS: &[&str] = &[".", "docs", "docs/design", "examples", "examples/custom-app", "xtask"];

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
        return Err(TaskError::usage(format!("wrap: '{option}' is not an option")));
    }
    let files = if words.is_empty() { pages(Path::new("."))? } else { words.iter().map(PathBuf::from).collect() };
    for file in files {
        let failure = |what: &str, error| TaskError::failed(format!("cannot {what} {}: {error}", file.display()));
        let text = fs::read_to_string(&file).map_err(|error| failure("read", error))?;
        let wrapped = wrap(&text);
        if wrapped != text {
            fs::write(&file, wrapped).map_err(|error| failure("write", error))?;
            println!("{}", file.display());
        }
    }
    Ok(())
}

/// The project's pages, below the workspace's folder.
fn pages(root: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let list = |folder: &Path| {
        let failure = |error| TaskError::failed(format!("cannot read {}: {error}", folder.display()));
        let entries = fs::read_dir(folder).map_err(failure)?;
        entries.map(|entry| Ok(entry.map_err(failure)?.path())).collect::<Result<Vec<_>, TaskError>>()
    };
    let mut folders: Vec<_> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    folders.extend(list(&root.join("crates"))?);
    let mut pages = Vec::new();
    for folder in folders {
        pages.extend(list(&folder)?.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    pages.sort();
    Ok(pages)
}

/// The kind of a line.
enum LineKind {
    /// A line that is not wrapped.
    Fixed,
    /// The first line of a paragraph, and the indentation of its further lines.
    First(usize),
    /// A further line, if a paragraph is there.
    Further,
}

/// Follows the blocks of a page from line to line.
#[derive(Default)]
struct Blocks {
    /// The mark that ends the current code block.
    fence: Option<String>,
    /// The indentation of the text of the current list item; 0 outside of lists.
    item: usize,
    is_after_blank: bool,
}

impl Blocks {
    fn kind(&mut self, line: &str) -> LineKind {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let was_blank = std::mem::replace(&mut self.is_after_blank, text.is_empty());
        if let Some(fence) = &self.fence {
            if text.starts_with(fence.as_str()) {
                self.fence = None;
            }
            return LineKind::Fixed;
        }
        if text.starts_with("```") || text.starts_with("~~~") {
            self.fence = Some(text[..3].to_owned());
            return LineKind::Fixed;
        }
        if was_blank && indent < self.item && marker(text).is_none() {
            self.item = 0;
        }
        if text.is_empty() || was_blank && indent >= self.item + 4 || text.starts_with(['|', '#', '>', '<']) {
            return LineKind::Fixed;
        }
        match marker(text) {
            Some(length) => {
                self.item = indent + length;
                LineKind::First(self.item)
            }
            None if was_blank => LineKind::First(indent),
            None => LineKind::Further,
        }
    }
}

/// The length of a list item's mark and the spaces behind it.
fn marker(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let mark = match digits {
        0 => text.starts_with(['-', '*', '+']).then_some(1)?,
        1..4 => text[digits..].starts_with(['.', ')']).then_some(digits + 1)?,
        _ => return None,
    };
    let spaces = text[mark..].bytes().take_while(|byte| *byte == b' ').count();
    (spaces > 0).then_some(mark + spaces)
}

/// The page, with paragraphs wrapped that have lines longer than [`WIDTH`].
fn wrap(page: &str) -> String {
    let (mut blocks, mut wrapped) = (Blocks { is_after_blank: true, ..Blocks::default() }, String::new());
    let (mut paragraph, mut hanging) = (Vec::new(), 0);
    for line in page.lines() {
        match blocks.kind(line) {
            LineKind::Further if !paragraph.is_empty() => paragraph.push(line),
            LineKind::First(indent) => {
                finish(&mut wrapped, &mut paragraph, hanging);
                (paragraph, hanging) = (vec![line], indent);
            }
            LineKind::Fixed | LineKind::Further => {
                finish(&mut wrapped, &mut paragraph, hanging);
                wrapped += line;
                wrapped.push('\n');
            }
        }
    }
    finish(&mut wrapped, &mut paragraph, hanging);
    wrapped
}

/// Writes a paragraph, wrapped if a line of it is too long. Paragraphs with intentional line breaks stay unchanged.
fn finish(wrapped: &mut String, paragraph: &mut Vec<&str>, hanging: usize) {
    let lines = std::mem::take(paragraph);
    let is_wide = lines.iter().any(|line| line.chars().count() > WIDTH);
    let ends_on_purpose = lines.iter().any(|line| line.ends_with("  ") || line.ends_with('\\'));
    if !is_wide || ends_on_purpose {
        for line in lines {
            *wrapped += line;
            wrapped.push('\n');
        }
        return;
    }
    let first = lines[0];
    let start = hanging.min(first.len());
    let mut line = first[..start].to_owned();
    let mut is_empty = true;
    for word in words(&[&first[start..], "\n", &lines[1..].join("\n")].concat()) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            *wrapped += &line;
            wrapped.push('\n');
            (line, is_empty) = (" ".repeat(hanging), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line += &word;
        is_empty = false;
    }
    *wrapped += &line;
    wrapped.push('\n');
}

/// The words between which a line may break: code spans and links stay whole, and words that would change their meaning
/// at a line's start stay on the line before.
fn words(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let mut words: Vec<String> = Vec::new();
    // Whether a code span is open, and the number of further parts that belong to a link.
    let (mut is_code, mut of_link) = (false, 0_usize);
    for (at, part) in parts.iter().enumerate() {
        let is_piece = is_code || of_link > 0 || is_mark_at_line_start(part);
        match words.last_mut().filter(|_| is_piece) {
            Some(last) => *last += &format!(" {part}"),
            None => words.push((*part).to_owned()),
        }
        of_link = usize::max(of_link.saturating_sub(1), if is_code { 0 } else { link_length(&parts[at..]) });
        is_code ^= part.matches('`').count() % 2 == 1;
    }
    words
}

/// Whether a line that begins with this would be another block: an item of a list, a heading, a quote, a rule.
fn is_mark_at_line_start(part: &str) -> bool {
    let is_mark = ["-", "*", "+"].contains(&part) || part.starts_with(['#', '>', '|', '<']);
    let is_number = marker(&format!("{part} ")).is_some_and(|length| length == part.len() + 1);
    let is_rule = part.bytes().all(|byte| byte == b'-') || part.bytes().all(|byte| byte == b'=');
    is_mark || is_number || is_rule
}

/// The number of further parts of a link whose text begins in the first part; 0 without a link.
fn link_length(parts: &[&str]) -> usize {
    const LONGEST: usize = 20;
    let begins = parts[0].rfind('[').is_some_and(|at| !parts[0][at..].contains(']'));
    let rest = parts.iter().skip(1).take(LONGEST);
    let end = rest.clone().position(|part| part.contains("](")).map(|at| at + 1);
    let other = rest.clone().position(|part| part.contains('[')).map_or(usize::MAX, |at| at + 1);
    end.filter(|end| begins && *end <= other).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "Words that go on and on, with `a span of code` in the middle of them, until the line is too wide, \
                        and then `some more code` and [a link](somewhere.md) at its end.";

    #[test]
    fn a_wide_paragraph_is_wrapped_and_code_stays_whole() {
        let wrapped = wrap(&format!("{LONG}\n"));
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH && line.matches('`').count() % 2 == 0), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), LONG.split_whitespace().collect::<Vec<_>>());
        assert_eq!(wrap(&wrapped), wrapped);
    }

    #[test]
    fn a_link_stays_whole_and_a_bracket_is_none() {
        for at in 0..12 {
            let text = format!(
                "{} {} the range [0, 1) of [a link of some words](somewhere.md), and more.",
                "x".repeat(60),
                "y".repeat(at)
            );
            let wrapped = wrap(&format!("{text} {text}\n"));
            assert_eq!(wrapped.matches("[a link of some words](somewhere.md)").count(), 2, "{wrapped}");
            assert!(wrapped.lines().all(|line| line.len() <= WIDTH), "{wrapped}");
        }
    }

    #[test]
    fn blocks_without_text_stay() {
        let wide = "x ".repeat(80);
        let wide = wide.trim_end();
        let link = format!("[{}](somewhere)", "x".repeat(120));
        let page = format!(
            "# {wide}\n\n| {wide} |\n\n```\n{wide}\n```\n\n    {wide}\n\n> {wide}\n\n{link}\n\nShort,\nbut not joined.\n"
        );
        assert_eq!(wrap(&page), page);
    }

    #[test]
    fn items_of_lists_hang() {
        let page = format!("Before:\n\n- {LONG}\n- short\n\n  {LONG}\n\n      code {LONG}\n\n10. {LONG}\n");
        let wrapped = wrap(&page);
        let lines: Vec<&str> = wrapped.lines().collect();
        assert!(lines[2].starts_with("- Words") && lines[3].starts_with("  ") && !lines[3].starts_with("   "));
        assert!(lines.iter().any(|line| line.len() > WIDTH && line.starts_with("      code")), "{wrapped}");
        assert!(lines.last().is_some_and(|line| line.starts_with("    ") && !line.starts_with("     ")), "{wrapped}");
    }

    #[test]
    fn no_line_begins_with_a_mark() {
        for mark in ["-", "+", "1.", "#", ">", "=="] {
            let text = format!("{} {mark} {}", "x".repeat(WIDTH - 1), "y".repeat(30));
            let wrapped = wrap(&text);
            assert!(wrapped.lines().all(|line| !line.starts_with(mark)), "{wrapped}");
        }
    }

    #[test]
    fn every_page_is_wrapped() {
        let pages = pages(Path::new("..")).ok().expect("the pages");
        assert!(pages.len() > 20, "{pages:?}");
        for page in pages {
            let text = fs::read_to_string(&page).expect("a page");
            let wrapped = wrap(&text);
            let wide = text.lines().zip(wrapped.lines()).position(|(is, should)| is != should);
            assert!(
                wrapped == text,
                "{}:{}: wider than {WIDTH} columns; `cargo xtask wrap` wraps it",
                page.display(),
                wide.map_or(1, |line| line + 1)
            );
        }
    }
}
