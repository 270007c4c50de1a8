//! The characters that the output may contain. All output of the command goes through [`localized`].

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::de::IgnoredAny;

/// Whether the locale can show more than ASCII. An unset locale counts as UTF-8, which today's terminals support.
pub fn is_unicode() -> bool {
    static UNICODE: OnceLock<bool> = OnceLock::new();
    // Unit tests do not depend on the locale.
    *UNICODE.get_or_init(|| cfg!(test) || names_unicode(|variable| std::env::var(variable).ok()))
}

/// Whether the locale set by these variables is a Unicode locale. The first variable that is not empty counts.
fn names_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    locale.is_none_or(|locale| locale.to_ascii_lowercase().contains("utf"))
}

/// Text in the characters of the locale. JSON stays JSON, with the same values.
pub fn localized(text: &str) -> Cow<'_, str> {
    if is_unicode() { Cow::Borrowed(text) } else { to_ascii(text) }
}

/// Text in ASCII: JSON with escapes, other text with the nearest characters.
fn to_ascii(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let escape = if is_json(text) { push_escaped } else { push_nearest };
    let mut ascii = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_ascii() {
            true => ascii.push(character),
            false => escape(&mut ascii, character),
        }
    }
    Cow::Owned(ascii)
}

/// Whether text is one JSON value, or several.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"'])
        && serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>().all(|value| value.is_ok())
}

/// A character as a JSON escape. In JSON, only strings have characters beyond ASCII.
fn push_escaped(json: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        json.push_str(&format!("\\u{unit:04x}"));
    }
}

/// The nearest ASCII for a character; `?` for letters and signs that have none.
fn push_nearest(text: &mut String, character: char) {
    text.push_str(match character {
        '\u{a0}' => " ",
        '–' | '‐' | '‑' | '−' | '─' => "-",
        '—' => "--",
        '…' => "...",
        'µ' | 'μ' => "u",
        '×' => "x",
        '·' => ".",
        '±' => "+/-",
        '≤' => "<=",
        '≥' => ">=",
        '→' => "->",
        '←' => "<-",
        '↑' | '▲' => "^",
        '↓' | '▼' => "v",
        '►' | '▶' => ">",
        '◄' | '◀' => "<",
        '↺' => "(back)",
        '│' | '▏' | '▎' | '▍' => "|",
        '⋮' => ":",
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => "+",
        '▌' | '▋' | '▊' | '▉' | '█' => "#",
        '‘' | '’' => "'",
        '“' | '”' => "\"",
        _ => "?",
    });
}

/// XML and DOT in ASCII, with character references, if the locale needs it.
pub fn shown_markup(markup: &str) -> Cow<'_, str> {
    if is_unicode() || markup.is_ascii() { Cow::Borrowed(markup) } else { Cow::Owned(with_references(markup)) }
}

fn with_references(markup: &str) -> String {
    let reference = |character: char| match character.is_ascii() {
        true => character.to_string(),
        false => format!("&#{};", u32::from(character)),
    };
    markup.chars().map(reference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_first_variable_that_is_set_counts() {
        let unicode = |set: &[(&str, &str)]| {
            names_unicode(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(unicode(&[]));
        assert!(unicode(&[("LANG", "en_US.UTF-8")]));
        assert!(unicode(&[("LANG", "C"), ("LC_ALL", "C.utf8")]));
        assert!(unicode(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "")]));
        for c in [("LANG", "C"), ("LC_CTYPE", "POSIX"), ("LC_ALL", "C"), ("LANG", "de_DE")] {
            assert!(!unicode(&[c]), "{c:?}");
        }
        assert!(!unicode(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]));
    }

    #[test]
    fn text_becomes_ascii() {
        assert_eq!(to_ascii("plain"), "plain");
        assert_eq!(to_ascii("12 µs – 3 × 4 ≤ 20 …"), "12 us - 3 x 4 <= 20 ...");
        assert_eq!(to_ascii("├─▶│ länger"), "+->| l?nger");
        // A manual that begins like JSON is text.
        assert_eq!(to_ascii("[engine]\n  – x"), "[engine]\n  - x");
    }

    #[test]
    fn json_keeps_its_values() {
        let value = json!({ "nämé": ["–", "パケット", "𝄞", "a"] });
        let ascii = to_ascii(&value.to_string()).into_owned();
        assert!(ascii.is_ascii(), "{ascii}");
        assert_eq!(serde_json::from_str::<Value>(&ascii).unwrap(), value);
        let lines = format!("{value}\n{value}\n");
        assert_eq!(to_ascii(&lines), format!("{ascii}\n{ascii}\n"));
    }

    #[test]
    fn markup_keeps_its_characters() {
        assert_eq!(with_references("<text>ä→</text>"), "<text>&#228;&#8594;</text>");
    }
}
