//! Parts of expressions as labels.
#![forbid(unsafe_code)]

use std::ops::Range;

/// The longest part that is shown whole, in bytes. Many blocks of a long expression may decide nearly all of it.
const MAX_WHOLE: usize = 160;

/// Bytes of the start and of the end of a longer part.
const KEPT: usize = 70;

/// A part of an expression on one line. The middle of a long one is left out: `port 1 or port 2 … port 999`.
pub fn excerpt(text: &str, range: Range<usize>) -> String {
    let part = text.get(range).unwrap_or_default();
    if part.len() <= MAX_WHOLE {
        return on_one_line(part);
    }
    let start = &part[..part.floor_char_boundary(KEPT)];
    let end = &part[part.ceil_char_boundary(part.len() - KEPT)..];
    // No halves of words, unless there are no others.
    let start = start.rsplit_once(char::is_whitespace).map_or(start, |(words, _)| words);
    let end = end.split_once(char::is_whitespace).map_or(end, |(_, words)| words);
    format!("{} … {}", on_one_line(start), on_one_line(end))
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_are_cut_in_the_middle() {
        let whole = |text: &str| excerpt(text, 0..text.len());
        assert_eq!(whole("port 80\n  or\tport 443 "), "port 80 or port 443");
        assert_eq!(excerpt("tcp and udp", 4..7), "and");
        assert_eq!(excerpt("tcp", 2..9), "");
        let ports = (1..400).map(|port| format!("port {port}")).collect::<Vec<_>>().join(" or ");
        let short = whole(&ports);
        assert!(short.starts_with("port 1 or port 2 or ") && short.ends_with(" or port 398 or port 399"), "{short}");
        for text in [ports, "(".repeat(1_000), "é".repeat(1_000), format!("a{}b", " ".repeat(1_000))] {
            let short = whole(&text);
            assert!(short.contains(" … ") && short.len() <= MAX_WHOLE, "{short}");
        }
    }
}
