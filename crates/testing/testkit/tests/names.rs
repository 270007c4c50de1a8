//! Few types share a name, so that a reader need not find out which of many is meant.

mod source;

use std::collections::BTreeMap;

use source::File;

/// Maximum number of types of a name.
const MAX_TYPES: usize = 4;

/// Names that mean the same everywhere: the keys of an app, the arguments of a subcommand, the error of a module.
const CONVENTIONS: [&str; 3] = ["Arguments", "Config", "Error"];

/// The types that a file defines outside of tests, each with its line. An alias counts in a module, but not in a trait,
/// an implementation or a function.
fn types(file: &File) -> Vec<(&str, usize)> {
    let tokens = &file.tokens;
    let mut types = Vec::new();
    // Whether each of the braces around is that of a module.
    let mut braces = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if pair[0].is('{') {
            braces.push(at >= 2 && tokens[at - 2].word() == Some("mod"));
        } else if pair[0].is('}') {
            braces.pop();
        }
        let is_definition = match pair[0].word() {
            Some("struct" | "enum" | "trait" | "union") => true,
            Some("type") => braces.iter().all(|&is_module| is_module),
            _ => false,
        };
        let name = pair[1].word().filter(|name| is_definition && name.starts_with(char::is_uppercase));
        types.extend(name.map(|name| (name, pair[1].line)));
    }
    types
}

#[test]
fn no_name_stands_for_more_than_four_types() {
    let crates = source::crates();
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in &crates {
        for file in &one.files {
            let path = one.source.join(&file.path);
            for (name, line) in types(file) {
                places.entry(name).or_default().push(format!("{}:{line}", path.display()));
            }
        }
    }
    assert!(places.len() > 2_000, "only {} names were found", places.len());
    let shared: Vec<String> = places
        .iter()
        .filter(|(name, places)| places.len() > MAX_TYPES && !CONVENTIONS.contains(*name))
        .map(|(name, places)| format!("`{name}` is the name of {} types:\n    {}", places.len(), places.join("\n    ")))
        .collect();
    assert!(
        shared.is_empty(),
        "at most {MAX_TYPES} types may share a name; say in the name of the most private what it is of, such as \
         `NetlinkMessage` instead of `Message`:\n{}",
        shared.join("\n")
    );
}

#[test]
fn types_are_found_however_they_are_written() {
    let text = "pub struct One<T>(T); pub(super) enum Two { Struct } trait Three { type Item; } type Four = One<u8>;
        impl Three for Two { type Item = Four; } mod inner { pub type Five = u8; fn f() { struct Six; type Item = u8; } }
        macro_rules! seven { () => { struct $name; } } union Eight { union: u8 } // struct Nine;
        #[cfg(test)] mod tests { struct Ten; } #[cfg(test)] struct Eleven;";
    let file = File { path: "a.rs".into(), tokens: source::without_tests(&source::tokens(text)).0 };
    let names: Vec<&str> = types(&file).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["One", "Two", "Three", "Four", "Five", "Six", "Eight"]);
}
