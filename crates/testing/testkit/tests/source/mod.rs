//! Rust source as tokens, for tests that look at the workspace's own code.
use std::fs;
use std::path::{Path, PathBuf};

use bellows_testkit::tree::{self, root};

/// A piece of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or a keyword.
    Word(String),
    /// A number, a string, a character.
    Literal,
    /// A lifetime or a label.
    Lifetime,
    /// Any other character, one at a time.
    Mark(char),
}

/// A token and its line, from 1.
#[derive(Clone, Debug)]
pub struct Token {
    pub kind: Kind,
    pub line: usize,
}

impl Token {
    /// The name or keyword, if it is one.
    pub fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub fn is(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

/// The tokens of a text, without comments.
pub fn tokens(text: &str) -> Vec<Token> {
    let text: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&first) = text.get(at) {
        let start = at;
        let next = text.get(at + 1).copied().unwrap_or(' ');
        let kind = match first {
            '/' if next == '/' => {
                at += text[at..].iter().position(|&letter| letter == '\n').unwrap_or(text.len() - at);
                None
            }
            '/' if next == '*' => {
                at = comment_end(&text, at);
                None
            }
            _ if first.is_whitespace() => {
                at += 1;
                None
            }
            '"' => {
                at = text_end(&text, at + 1, '"');
                Some(Kind::Literal)
            }
            '\'' if next == '\\' || text.get(at + 2) == Some(&'\'') => {
                at = text_end(&text, at + 1, '\'');
                Some(Kind::Literal)
            }
            '\'' => {
                at = word_end(&text, at + 1);
                Some(Kind::Lifetime)
            }
            _ if first.is_ascii_digit() => {
                at = number_end(&text, at);
                Some(Kind::Literal)
            }
            _ if first.is_alphabetic() || first == '_' => {
                at = word_end(&text, at);
                let word: String = text[start..at].iter().collect();
                let hashes = text[at..].iter().take_while(|&&letter| letter == '#').count();
                match text.get(at + hashes) {
                    // A raw string, up to as many marks as it began with.
                    Some('"') if ["r", "br", "cr"].contains(&word.as_str()) => {
                        at = raw_end(&text, at + hashes + 1, hashes);
                        Some(Kind::Literal)
                    }
                    Some(&quote @ ('"' | '\'')) if hashes == 0 && ["b", "c"].contains(&word.as_str()) => {
                        at = text_end(&text, at + 1, quote);
                        Some(Kind::Literal)
                    }
                    _ => Some(Kind::Word(word)),
                }
            }
            _ => {
                at += 1;
                Some(Kind::Mark(first))
            }
        };
        tokens.extend(kind.map(|kind| Token { kind, line }));
        line += text[start..at].iter().filter(|&&letter| letter == '\n').count();
    }
    tokens
}

fn word_end(text: &[char], at: usize) -> usize {
    at + text[at..].iter().take_while(|letter| letter.is_alphanumeric() || **letter == '_').count()
}

/// The end of a number: `1.5e-3`, `0xff_u8`, but not the `.` of `1..2` or `0.max(1)`.
fn number_end(text: &[char], at: usize) -> usize {
    let end = word_end(text, at);
    match text[end..] {
        ['.', digit, ..] if digit.is_ascii_digit() => word_end(text, end + 1),
        _ => end,
    }
}

/// The end of the string or character that begins at a place, with escapes.
fn text_end(text: &[char], mut at: usize, quote: char) -> usize {
    while let Some(&letter) = text.get(at) {
        match letter {
            '\\' => at += 2,
            _ if letter == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_end(text: &[char], at: usize, hashes: usize) -> usize {
    let is_end =
        |at: usize| text[at] == '"' && text[at + 1..].iter().take(hashes).filter(|&&one| one == '#').count() == hashes;
    (at..text.len()).find(|&at| is_end(at)).map_or(text.len(), |end| end + 1 + hashes)
}

/// The end of a comment, which may contain others.
fn comment_end(text: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < text.len() {
        match text[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

/// The position after the bracket that closes the one at a place.
pub fn group_end(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0;
    for (offset, token) in tokens[at..].iter().enumerate() {
        match token.kind {
            Kind::Mark('(' | '[' | '{') => depth += 1,
            Kind::Mark(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + offset + 1;
        }
    }
    tokens.len()
}

/// Removes test-only code: returns the other tokens, and the modules that were declared in it and are in files of their
/// own.
pub fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let is_attribute = tokens[at].is('#') && tokens.get(at + 1).is_some_and(|token| token.is('['));
        if !is_attribute {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let end = group_end(tokens, at + 1);
        if is_for_tests(&tokens[at + 2..end]) {
            let after = item_end(tokens, end);
            if let [.., keyword, name, mark] = &tokens[end..after]
                && keyword.word() == Some("mod")
                && mark.is(';')
            {
                modules.extend(name.word().map(str::to_owned));
            }
            at = after;
        } else {
            kept.extend_from_slice(&tokens[at..end]);
            at = end;
        }
    }
    (kept, modules)
}

/// Whether the inside of an attribute is `cfg(test)` or `cfg(all(test, …))`.
fn is_for_tests(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().filter_map(Token::word).collect();
    matches!(words[..], ["cfg", "test", ..] | ["cfg", "all", "test", ..])
}

/// The end of the item, statement, field or arm that begins at a place.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    const ITEMS: [&str; 16] = [
        "pub",
        "fn",
        "mod",
        "impl",
        "struct",
        "enum",
        "trait",
        "unsafe",
        "async",
        "extern",
        "const",
        "static",
        "use",
        "type",
        "macro_rules",
        "union",
    ];
    /// In these, braces do not end the item.
    const LONG: [&str; 5] = ["use", "const", "static", "type", "let"];
    while tokens.get(at).is_some_and(|token| token.is('#')) {
        at = group_end(tokens, at + 1);
    }
    let is_item = tokens.get(at).and_then(Token::word).is_some_and(|word| ITEMS.contains(&word));
    let words = tokens[at..].iter().filter_map(Token::word);
    let mut keyword =
        words.filter(|word| !["pub", "crate", "super", "unsafe", "async", "extern"].contains(word)).take(2);
    let keyword = (keyword.next(), keyword.next());
    let is_long = keyword.0.is_some_and(|word| LONG.contains(&word)) && keyword != (Some("const"), Some("fn"));
    while let Some(token) = tokens.get(at) {
        match token.kind {
            Kind::Mark(';') => return at + 1,
            Kind::Mark(',') if !is_item => return at + 1,
            Kind::Mark('{') if !is_long => return group_end(tokens, at),
            Kind::Mark('(' | '[' | '{') => at = group_end(tokens, at),
            Kind::Mark(')' | ']' | '}') => return at,
            _ => at += 1,
        }
    }
    at
}

/// A source file.
pub struct File {
    /// Its path from the folder of the crate's source.
    pub path: PathBuf,
    /// Its tokens, without test-only code.
    pub tokens: Vec<Token>,
}

/// A crate of the workspace.
pub struct Crate {
    /// The folder of its source, from the workspace's.
    pub source: PathBuf,
    pub files: Vec<File>,
}

/// All crates of the workspace, without test-only code.
pub fn crates() -> Vec<Crate> {
    let mut folders = tree::crates();
    folders.extend(["examples/custom-app", "xtask"].map(|folder| root().join(folder)));
    folders.sort();
    let read = |folder: &PathBuf| {
        let source = folder.join("src");
        Crate { files: files(&source), source: source.strip_prefix(root()).unwrap().to_owned() }
    };
    folders.iter().map(read).collect()
}

/// All files below a folder that are not compiled for tests only.
fn files(source: &Path) -> Vec<File> {
    let mut files = Vec::new();
    let mut of_tests = Vec::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let (tokens, modules) = without_tests(&tokens(&fs::read_to_string(&path).unwrap()));
                let path = path.strip_prefix(source).unwrap().to_owned();
                let inside = inside(&path);
                of_tests.extend(modules.iter().map(|module| inside.join(module)));
                files.push(File { path, tokens });
            }
        }
    }
    files.retain(|file| !of_tests.iter().any(|module| module_path(&file.path).starts_with(module)));
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// The folder of the modules that a file declares.
fn inside(path: &Path) -> PathBuf {
    match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    }
}

/// The module of a file: its path of names, empty for the crate's root.
pub fn module_path(path: &Path) -> PathBuf {
    inside(path)
}
