//! Texts as they are written in TOML: which part of what is written gives which part of the text.

use std::ops::Range;

/// The bytes of a written string, with its quotes, that give a range of its text. `None` if that is not what is written:
/// a variable has been replaced in it, for example.
pub(crate) fn place_within(written: &str, text: &str, range: &Range<usize>) -> Option<Range<usize>> {
    let delimiter = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quotes| written.starts_with(quotes)).unwrap_or("");
    let body = written.strip_prefix(delimiter)?.strip_suffix(delimiter)?;
    let is_long = delimiter.len() == 3;
    let line_break = ["\n", "\r\n"].into_iter().find(|line_break| is_long && body.starts_with(line_break));
    let mut at = delimiter.len() + line_break.map_or(0, str::len);
    let mut start = None;
    let (mut end, mut length) = (at, 0);
    for character in text.chars() {
        let from = at + skipped(&written[at..], delimiter);
        at = from + width(&written[from..], delimiter, character)?;
        if length >= range.start {
            start.get_or_insert(from);
        }
        length += character.len_utf8();
        if length <= range.end {
            end = at;
        }
    }
    let start = start.unwrap_or(at);
    Some(start..end.max(start))
}

/// Number of bytes of line breaks that a `\` at the end of a line hides.
fn skipped(rest: &str, delimiter: &str) -> usize {
    let mut all = 0;
    while delimiter == "\"\"\""
        && let Some(after) = rest[all..].strip_prefix('\\')
        && let Some((blank, _)) = after.split_once('\n')
        && blank.trim().is_empty()
    {
        all = rest.len() - after.trim_start().len();
    }
    all
}

/// Number of bytes in which the next character of a text is written.
fn width(rest: &str, delimiter: &str, character: char) -> Option<usize> {
    if delimiter.starts_with('"') && rest.starts_with('\\') {
        return Some(match rest[1..].chars().next()? {
            'x' => 4,
            'u' => 6,
            'U' => 10,
            _ => 2,
        })
        .filter(|&width| rest.is_char_boundary(width) && width <= rest.len());
    }
    // A line break is one character of the text however it is written.
    if character == '\n' && rest.starts_with("\r\n") {
        return Some(2);
    }
    rest.starts_with(character).then_some(character.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_however_the_text_is_written() {
        let quotes = "'''";
        for written in [
            "\"tcp port http\"".to_owned(),
            "'tcp port http'".to_owned(),
            "tcp port http".to_owned(),
            "\"\"\"\ntcp port http\"\"\"".to_owned(),
            format!("{quotes}\r\ntcp port http{quotes}"),
            "\"\\u0074\\x63p \\U00000070ort http\"".to_owned(),
            "\"\"\"\\\n   tcp \\\n\n  port http\"\"\"".to_owned(),
        ] {
            let place = |range| place_within(&written, "tcp port http", &range).map(|range| &written[range]);
            assert_eq!(place(9..13), Some("http"), "{written}");
            assert_eq!(place(4..4), Some(""), "{written}");
            assert_eq!(place(13..13), Some(""), "{written}");
            assert!(place(0..3).is_some_and(|part| part.ends_with('p')), "{written}");
        }
        assert_eq!(place_within("\"${FILTER}\"", "tcp", &(0..3)), None);
        assert_eq!(place_within("\"\\u12", "x", &(0..1)), None);
        assert_eq!(place_within("\"é or é\"", "é or é", &(6..8)), Some(7..9));
    }
}
