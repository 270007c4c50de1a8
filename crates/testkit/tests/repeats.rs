//! No ten consecutive statements appear twice, apart from names, numbers and texts: shared code is written once.
//!
//! A statement here is the text between two of `;`, `{` and `}`. Imports, constants, the tables of macros, and tests do
//! not count.

mod source;

use std::collections::{BTreeMap, HashMap};

use source::{Kind, Token};

/// The number of consecutive statements that may not be repeated.
const RUN: usize = 10;

/// A statement: its shape, and its first line.
#[derive(Clone)]
struct Statement {
    shape: String,
    line: usize,
}

/// Words that determine a statement's shape; all others are names.
const KEYWORDS: [&str; 33] = [
    "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "ref", "return", "self", "static",
    "struct", "trait", "true", "unsafe", "where", "while",
];

/// The statements of a file.
fn statements(tokens: &[Token]) -> Vec<Statement> {
    let mut statements = Vec::new();
    let (mut shape, mut line) = (String::new(), 0);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let begins = shape.is_empty();
        if begins && token.is('#') && tokens.get(at + 1).is_some_and(|next| next.is('[')) {
            at = source::group_end(tokens, at + 1);
            continue;
        }
        if begins && let Some(end) = declaration_end(tokens, at) {
            at = end;
            continue;
        }
        if begins {
            line = token.line;
        }
        at += 1;
        match &token.kind {
            Kind::Mark(';' | '{' | '}') => {
                if !begins {
                    let shape = std::mem::take(&mut shape);
                    statements.push(Statement { shape, line });
                }
            }
            Kind::Mark(mark) => shape.push(*mark),
            Kind::Literal => shape.push_str("0 "),
            Kind::Lifetime => shape.push_str("' "),
            Kind::Word(word) if KEYWORDS.contains(&word.as_str()) => shape += &format!("{word} "),
            Kind::Word(_) => shape.push_str("a "),
        }
    }
    statements
}

/// The end of the import, constant, macro table or module declaration that begins at a place.
fn declaration_end(tokens: &[Token], start: usize) -> Option<usize> {
    let mut at = start;
    if let [name, mark, brace, ..] = &tokens[start..]
        && name.word().is_some()
        && mark.is('!')
        && brace.is('{')
    {
        return Some(source::group_end(tokens, start + 2));
    }
    if tokens[at].word() == Some("pub") {
        at += 1;
        if tokens.get(at)?.is('(') {
            at = source::group_end(tokens, at);
        }
    }
    let keyword = tokens.get(at)?.word()?;
    let is_function = tokens.get(at + 1)?.word() == Some("fn");
    if !["use", "mod", "const", "static"].contains(&keyword) || is_function {
        return None;
    }
    while let Some(token) = tokens.get(at) {
        match token.kind {
            Kind::Mark(';') => return Some(at + 1),
            Kind::Mark('{') if keyword == "mod" => return None,
            Kind::Mark('(' | '[' | '{') => at = source::group_end(tokens, at),
            _ => at += 1,
        }
    }
    None
}

/// A repeated run of statements.
struct Repeat {
    places: [(String, usize); 2],
    statements: usize,
}

/// The repeated runs, each at its full length.
fn repeats(files: &[(String, Vec<Statement>)]) -> Vec<Repeat> {
    let mut seen: HashMap<Vec<&str>, Vec<(usize, usize)>> = HashMap::new();
    // Continuation of a run already found: its two files, and the next position in each.
    let mut going: BTreeMap<(usize, usize, usize, usize), usize> = BTreeMap::new();
    let mut found: Vec<Repeat> = Vec::new();
    for (number, (name, statements)) in files.iter().enumerate() {
        for (at, run) in statements.windows(RUN).enumerate() {
            let places = seen.entry(run.iter().map(|one| one.shape.as_str()).collect()).or_default();
            for &(other, from) in places.iter() {
                if other == number && at < from + RUN {
                    continue;
                }
                let index = going.remove(&(other, from, number, at)).inspect(|&index| found[index].statements += 1);
                let index = index.unwrap_or_else(|| {
                    let first = (files[other].0.clone(), files[other].1[from].line);
                    let places = [first, (name.clone(), run[0].line)];
                    found.push(Repeat { places, statements: RUN });
                    found.len() - 1
                });
                going.insert((other, from + 1, number, at + 1), index);
            }
            places.push((number, at));
        }
    }
    found
}

#[test]
fn no_ten_statements_stand_twice() {
    let mut files = Vec::new();
    for one in source::crates() {
        for file in &one.files {
            files.push((one.source.join(&file.path).display().to_string(), statements(&file.tokens)));
        }
    }
    let count: usize = files.iter().map(|(_, statements)| statements.len()).sum();
    assert!(count > 10_000, "only {count} statements were found");
    let found = repeats(&files);
    let wrong: Vec<String> = found
        .iter()
        .map(|Repeat { places: [(one, at), (other, line)], statements }| {
            format!("{one}:{at} and {other}:{line}: {statements} statements")
        })
        .collect();
    assert!(wrong.is_empty(), "these stand twice:\n{}", wrong.join("\n"));
}

/// A function of this many statements of different shapes, with names that begin with a letter.
fn function(letter: char, statements: usize) -> String {
    let body: Vec<String> = (1..=statements).map(|count| format!("{letter}{};", ".f(1)".repeat(count))).collect();
    format!("#[inline] fn {letter}() {{ {} }}", body.join("\n"))
}

#[test]
fn a_run_is_found_under_other_names() {
    let files = |texts: &[&str]| -> Vec<(String, Vec<Statement>)> {
        let read = |(index, text): (usize, &&str)| (index.to_string(), statements(&source::tokens(text)));
        texts.iter().enumerate().map(read).collect()
    };
    let (one, other) = (function('a', 12), function('b', 12));
    let found = repeats(&files(&[&one, "fn c() { d; }", &format!("use a::{{b, c}}; \n{other}")]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].places, [("0".to_owned(), 1), ("2".to_owned(), 2)]);
    assert_eq!(found[0].statements, 13, "with the function's head");
    assert_eq!(repeats(&files(&[&format!("{one} {other}")])).len(), 1, "within one file");
    assert!(repeats(&files(&[&function('a', 8), &function('b', 8)])).is_empty(), "too short");
    let changed = other.replacen(".f(1).f(1).f(1).f(1).f(1).f(1);", "return;", 1);
    assert!(repeats(&files(&[&one, &changed])).is_empty(), "interrupted");
    let table = "const T: [(u8, u8); 3] = [(1, { 2 }), (3, 4), (5, 6)]; use a::{b, c};".repeat(20);
    assert!(repeats(&files(&[&table, &table])).is_empty(), "tables and imports");
    assert!(repeats(&files(&[&"a; ".repeat(15)])).is_empty(), "a run does not repeat itself by its own parts");
}
