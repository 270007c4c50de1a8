//! Text of others: the characters that must not reach a terminal, a log, or a reader of lines.

/// The character in place of one that was taken out.
const REPLACEMENT: char = '\u{fffd}';

/// Whether a character is invisible or changes how others are shown: control characters, line separators, and those
/// that have no width or set the direction of text.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Text of any number of lines: hidden characters except line feeds and tabs become `�`.
pub fn sanitize(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) && c != '\n' && c != '\t' { REPLACEMENT } else { c }).collect()
}

/// Text on one line: hidden characters, line feeds among them, become `�`.
pub fn one_line(text: &str) -> String {
    text.replace(is_hidden, "\u{fffd}")
}

/// Cuts a text to this many bytes at most, at a character, and marks the cut.
pub fn cut(text: &mut String, max: usize) {
    const MARK: &str = "…";
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_control_the_terminal() {
        assert_eq!(sanitize("a\tb\n\x1b[2Jc\r"), "a\tb\n\u{fffd}[2Jc\u{fffd}");
        assert_eq!(one_line("a\tb\n\x1b[2Jc\r"), "a\u{fffd}b\u{fffd}\u{fffd}[2Jc\u{fffd}");
        // Directions, marks without width, fillers, tags.
        for hidden in ['\u{9b}', '\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{3164}', '\u{e0041}', '\u{2029}'] {
            assert_eq!(one_line(&format!("a{hidden}b")), "a\u{fffd}b", "{hidden:?}");
        }
        for shown in ["länger", "→ µs – …", "\u{fffd}", "名前"] {
            assert_eq!(one_line(shown), shown);
        }
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let mut text = "ä".repeat(10);
        cut(&mut text, 20);
        assert_eq!(text.len(), 20);
        cut(&mut text, 10);
        assert_eq!(text, "äää…");
    }
}
