//! The glossary defines the words of the documentation in a few sentences each, and is linked from the starting pages.

mod source;

use std::fs;

use source::root;

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The words, each with its definition on one line.
fn entries() -> Vec<(String, String)> {
    let page = page("docs/glossary.md");
    let parts = page.split("\n### ").skip(1);
    let entry = |part: &str| {
        let (word, text) = part.split_once('\n').unwrap();
        (word.to_owned(), text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    parts.map(entry).collect()
}

/// The number of occurrences of a word in a text, including plurals.
fn count(text: &str, word: &str) -> usize {
    let is_letter = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let places = text.match_indices(word).map(|(at, _)| (&text[..at], &text[at + word.len()..]));
    let whole = places.filter(|(before, after)| {
        let after = after.strip_prefix("es").or_else(|| after.strip_prefix('s')).unwrap_or(after);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    });
    whole.count()
}

#[test]
fn words_have_a_definition_of_two_or_three_sentences() {
    let entries = entries();
    assert_eq!(entries.len(), 27);
    let words: Vec<String> = entries.iter().map(|(word, _)| word.to_lowercase()).collect();
    assert!(words.is_sorted_by(|one, other| one < other), "in the order of the alphabet");
    for (word, text) in entries {
        let sentences = text.split(['.', ')']).filter(|rest| rest.starts_with(' ')).count() + 1;
        assert!((2..=4).contains(&sentences) && text.len() > 120, "{word}: {sentences} sentences: {text}");
    }
}

#[test]
fn the_glossary_words_are_used_in_pages_and_code() {
    let mut text = String::new();
    let mut folders = ["", "docs", "crates"].map(|folder| root().join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.starts_with(root().join("crates")) && path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| ["md", "rs"].iter().any(|&one| kind == one))
                && path.file_stem().is_none_or(|stem| stem != "glossary")
            {
                text += &fs::read_to_string(path).unwrap().to_lowercase();
            }
        }
    }
    let pages = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (word, _) in entries() {
        let found = count(&pages, &word.to_lowercase());
        assert!(found >= 3, "others use `{word}` only {found} times");
    }
    assert_eq!(count("links, a linker, relink, (link) link_x", "link"), 2);
}

#[test]
fn readers_are_led_to_it() {
    for (name, link) in [("README.md", "(docs/glossary.md)"), ("docs/design.md", "(glossary.md)")] {
        assert!(page(name).contains(link), "{name} does not lead to the glossary");
    }
}
