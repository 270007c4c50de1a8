//! The names of networks: which ones are valid, and how to make one from other text.

use super::RuntimeDir;

/// The longest name, in characters.
const MAX_LENGTH: usize = 64;

/// Room after a generated name, for a number such as `-99`.
const SUFFIX_ROOM: usize = 4;

fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

impl RuntimeDir {
    /// The rule for names, for messages.
    pub const NAMES: &str = "use at most 64 letters, digits, `-`, `_` and `.`, not beginning with `.`";

    /// Whether a network's name is valid.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && name.len() <= MAX_LENGTH && !name.starts_with('.') && name.chars().all(fits)
    }

    /// A name made from a text, such as a file's name: invalid characters become `-`. There is room for a number after
    /// it.
    pub fn name_from(text: &str) -> String {
        let name: String = text.chars().map(|c| if fits(c) { c } else { '-' }).take(MAX_LENGTH - SUFFIX_ROOM).collect();
        match name.trim_start_matches('.') {
            "" => "network".to_owned(),
            name => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_gives_a_name_with_room_for_a_number() {
        for (text, name) in [("a b", "a-b"), ("x.y", "x.y"), ("..", "network"), ("", "network"), ("ä", "-")] {
            assert_eq!(RuntimeDir::name_from(text), name);
        }
        let long = "ö".repeat(1000);
        for text in ["a b", ".hidden", "", "/", "@1", "\u{0}", &long] {
            let name = RuntimeDir::name_from(text);
            assert!(RuntimeDir::is_name(&format!("{name}-99")), "{name}");
        }
    }

    #[test]
    fn the_message_says_how_long_a_name_can_be() {
        assert!(RuntimeDir::NAMES.contains(&format!("at most {MAX_LENGTH} ")));
        assert!(RuntimeDir::is_name(&"x".repeat(MAX_LENGTH)) && !RuntimeDir::is_name(&"x".repeat(MAX_LENGTH + 1)));
    }
}
