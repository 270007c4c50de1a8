//! Few types share a name, so that who reads one need not ask which of many it is.

mod source;

use std::collections::BTreeMap;

use source::File;

/// How many types may share a name.
const MOST: usize = 4;

/// Names that mean the same everywhere: the keys of an app, the arguments of a subcommand, the error of a module.
const CONVENTIONS: [&str; 3] = ["Arguments", "Config", "Error"];

/// The types that a file defines, each with its line. Types of traits are not counted.
fn types(file: &File) -> Vec<(&str, usize)> {
    let mut depth = 0_i32;
    let mut types = Vec::new();
    for pair in file.tokens.windows(2) {
        depth += i32::from(pair[0].is('{')) - i32::from(pair[0].is('}'));
        let defines = match pair[0].word() {
            Some("struct" | "enum" | "trait" | "union") => true,
            Some("type") => depth == 0,
            _ => false,
        };
        let name = pair[1].word().filter(|name| defines && name.starts_with(char::is_uppercase));
        types.extend(name.map(|name| (name, pair[1].line)));
    }
    types
}

#[test]
fn no_name_stands_for_more_than_four_types() {
    let crates = source::crates();
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (one, file) in crates.iter().flat_map(|one| one.files.iter().map(move |file| (one, file))) {
        for (name, line) in types(file) {
            places.entry(name).or_default().push(format!(
                "{} in {}:{line}",
                one.name,
                one.source.join(&file.path).display()
            ));
        }
    }
    assert!(places.len() > 2_000, "only {} names were found", places.len());
    let crowded = places.iter().filter(|(name, places)| places.len() > MOST && !CONVENTIONS.contains(*name));
    let crowded: Vec<String> =
        crowded.map(|(name, places)| format!("{name}:\n    {}", places.join("\n    "))).collect();
    assert!(crowded.is_empty(), "name these types by what they are of, such as `PortKind`:\n{}", crowded.join("\n"));
}

#[test]
fn types_are_found_however_they_are_written() {
    let text = "pub struct One<T>(T); pub(super) enum Two { Struct } mod inner { trait Three { type Item; } }
        type Four = One<u8>; impl Three for Two { type Item = Four; } macro_rules! five { () => { struct $name; } }
        #[cfg(test)] mod tests { struct Six; }";
    let file = File { path: "a.rs".into(), tokens: source::without_tests(&source::tokens(text)).0 };
    let found: Vec<&str> = types(&file).into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["One", "Two", "Three", "Four"]);
}
