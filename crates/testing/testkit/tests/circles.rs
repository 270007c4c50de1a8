//! The modules of a crate do not import one another in a circle: each can be read with those that it uses, and without
//! those that use it.
//!
//! A module here is an entry of the source folder: a file, or a folder with its contents. An import from the crate's
//! root counts as an import from the module that the root re-exports it from.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use source::{Crate, File, Token};

/// For each module those that it uses, with one place of the use.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// A path in the source: `crate::a::b` or `super::c`.
type Words<'t> = Vec<&'t str>;

/// The modules of a path.
fn names(path: &Path) -> Vec<&str> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect()
}

/// All paths that begin with one of the words, each with its line. Braces are expanded.
fn paths<'t>(tokens: &'t [Token], starts: &[&str]) -> Vec<(Words<'t>, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = tokens[at].word().is_some_and(|word| starts.contains(&word));
        let goes_on = at > 0 && tokens[at - 1].is(':');
        if begins && !goes_on {
            spread(tokens, &mut at, &mut Vec::new(), &mut found);
        }
        at += 1;
    }
    found
}

/// Reads a path after a prefix, or a tree of them, and leaves `at` at its last token.
fn spread<'t>(tokens: &'t [Token], at: &mut usize, before: &mut Words<'t>, found: &mut Vec<(Words<'t>, usize)>) {
    let depth = before.len();
    while let Some(word) = tokens.get(*at).and_then(Token::word) {
        before.push(word);
        let [one, two] = [1, 2].map(|ahead| tokens.get(*at + ahead).is_some_and(|token| token.is(':')));
        if !(one && two) {
            break;
        }
        *at += 3;
    }
    if before.len() > depth && !tokens.get(*at).is_some_and(|token| token.is('{')) {
        found.push((before.clone(), tokens[(*at).min(tokens.len() - 1)].line));
    } else if tokens.get(*at).is_some_and(|token| token.is('{')) {
        let end = source::group_end(tokens, *at);
        *at += 1;
        while *at + 1 < end {
            let is_word = tokens[*at].word().is_some();
            if is_word || tokens[*at].is('{') {
                spread(tokens, at, before, found);
            } else if tokens[*at].is('*') {
                found.push((before.clone(), tokens[*at].line));
            }
            // To the next part of the tree, past a new name.
            while *at + 1 < end && !tokens[*at].is(',') {
                *at += 1;
            }
            *at += 1;
        }
        *at = end - 1;
    }
    before.truncate(depth);
}

/// The items that the crate's root re-exports from its modules.
fn shown_by_root(root: &File, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    for (at, token) in root.tokens.iter().enumerate() {
        if token.word() != Some("use") {
            continue;
        }
        let mut found = Vec::new();
        let mut at = at + 1;
        spread(&root.tokens, &mut at, &mut Vec::new(), &mut found);
        for (words, _) in found {
            let words: &[&str] = if ["crate", "self"].contains(&words[0]) { &words[1..] } else { &words };
            if let [module, .., name] = words
                && modules.contains(*module)
            {
                shown.insert((*name).to_owned(), (*module).to_owned());
            }
        }
    }
    shown
}

/// The modules that each module of a crate uses.
fn uses(one: &Crate) -> Uses {
    let is_root = |file: &&File| file.path == Path::new("lib.rs") || file.path == Path::new("main.rs");
    let of = |file: &File| names(&source::module_path(&file.path)).first().map(|&name| name.to_owned());
    let modules: BTreeSet<String> = one.files.iter().filter_map(of).collect();
    let shown: BTreeMap<String, String> =
        one.files.iter().filter(is_root).flat_map(|root| shown_by_root(root, &modules)).collect();
    let mut uses = Uses::new();
    for file in one.files.iter().filter(|file| !is_root(file)) {
        let path = source::module_path(&file.path);
        let here = names(&path);
        for (words, line) in paths(&file.tokens, &["crate", "super"]) {
            // An inline module has one more `super` than there are folders.
            let supers = words.iter().take_while(|&&word| word == "super").count();
            let from_root: Vec<&str> = match words[0] {
                "crate" => words[1..].to_vec(),
                _ if supers > here.len() => continue,
                _ => here[..here.len() - supers].iter().copied().chain(words[supers..].iter().copied()).collect(),
            };
            let Some(&first) = from_root.first() else { continue };
            let used = if modules.contains(first) { Some(first) } else { shown.get(first).map(String::as_str) };
            let Some(used) = used.filter(|&used| used != here[0]) else { continue };
            let place = format!("{}:{line}", one.source.join(&file.path).display());
            uses.entry(here[0].to_owned()).or_default().entry(used.to_owned()).or_insert(place);
        }
    }
    uses
}

/// Everything reachable.
fn reached(uses: &Uses, from: &str) -> BTreeSet<String> {
    let next = |module: &str| uses.get(module).into_iter().flat_map(BTreeMap::keys).cloned().collect::<Vec<String>>();
    let mut reached = BTreeSet::new();
    let mut open = next(from);
    while let Some(module) = open.pop() {
        if reached.insert(module.clone()) {
            open.extend(next(&module));
        }
    }
    reached
}

/// The strongly connected groups of modules, with the uses inside.
fn circles(uses: &Uses) -> Vec<String> {
    let mut circles = BTreeSet::new();
    for module in uses.keys() {
        let mut around: Vec<String> = reached(uses, module).into_iter().collect();
        around.retain(|other| reached(uses, other).contains(module));
        if around.len() < 2 {
            continue;
        }
        let mut text = around.join(", ");
        for user in &around {
            for (used, place) in uses[user].iter().filter(|(used, _)| around.contains(used)) {
                text += &format!("\n    {user} uses {used}: {place}");
            }
        }
        circles.insert(text);
    }
    circles.into_iter().collect()
}

#[test]
fn modules_do_not_import_one_another_in_circles() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for one in source::crates() {
        let uses = uses(&one);
        count += uses.values().map(BTreeMap::len).sum::<usize>();
        wrong.extend(circles(&uses).iter().map(|circle| format!("{}: {circle}", one.source.display())));
    }
    assert!(wrong.is_empty(), "modules that import one another:\n{}", wrong.join("\n"));
    assert!(count > 200, "only {count} uses were found");
}

/// A crate of some files.
fn made_of(files: &[(&str, &str)]) -> Crate {
    let file = |&(path, text): &(&str, &str)| File {
        path: PathBuf::from(path),
        tokens: source::without_tests(&source::tokens(text)).0,
    };
    Crate { source: "src".into(), files: files.iter().map(file).collect() }
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let ways = [
        "use crate::b::Thing;",
        "use crate::{c::Other as D, b::{self, Thing}};",
        "fn f() -> super::b::Thing { todo!() }",
        "fn f() { crate::b::f::<u8>() }",
        "use crate::Thing;",
        "pub(crate) use super::b::*;",
        "mod inner { use super::super::b::Thing; }",
    ];
    for way in ways {
        let crate_ = made_of(&[
            ("lib.rs", "mod a; mod b; mod c; pub use b::{Thing, more as most};"),
            ("a.rs", if way.starts_with("mod inner") { "" } else { way }),
            ("a/inner.rs", if way.starts_with("mod inner") { "use super::super::b::Thing;" } else { "" }),
            ("b/mod.rs", "use std::fmt;"),
            ("b/deep.rs", "fn f() { crate::c::g() }"),
            ("c.rs", "use super::a;"),
        ]);
        let found = circles(&uses(&crate_));
        assert_eq!(found.len(), 1, "{way}: {found:?}");
        assert!(found[0].starts_with("a, b, c\n    a uses b: src/a"), "{way}: {found:?}");
        assert!(found[0].contains("b uses c: src/b/deep.rs:1"), "{found:?}");
    }
}

#[test]
fn uses_in_tests_are_not_circles() {
    for way in [
        "#[cfg(test)] mod tests { use crate::b::Thing; }",
        "#[cfg(all(test, unix))] use crate::b::{Thing, Other}; fn f() {}",
        "#[cfg(test)] #[allow(unused)] fn f(b: [u8; 3]) { crate::b::g() }",
        "struct S { #[cfg(test)] b: crate::b::Thing, c: u8 }",
        "// crate::b::Thing\n/* /* */ crate::b */ const T: &str = r#\"\" crate::b \"#;",
        "fn f<'a>(x: &'a str) -> char { '\\'' } const T: &str = \"crate::b::x\";",
    ] {
        let crate_ = made_of(&[("lib.rs", "mod a; mod b;"), ("a.rs", way), ("b.rs", "use crate::a;")]);
        assert_eq!(uses(&crate_).len(), 1, "{way}: {:?}", uses(&crate_));
    }
    // What comes after is not lost.
    let text = "#[cfg(test)] mod tests { fn f() {} } use crate::b;";
    let crate_ = made_of(&[("lib.rs", ""), ("a.rs", text), ("b.rs", "use crate::a;")]);
    assert_eq!(circles(&uses(&crate_)).len(), 1);
}
