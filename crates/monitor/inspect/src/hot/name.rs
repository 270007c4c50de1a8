//! Short function names for people.

/// The Rust name of a compiled function, demangled, without the hashes of crates.
pub fn demangled(symbol: &str) -> String {
    match rustc_demangle::try_demangle(symbol) {
        Ok(name) => format!("{name:#}"),
        Err(_) => symbol.to_owned(),
    }
}

/// A name without the modules in its paths: `<bellows_basic::tee::Tee as bellows_engine::app::App>::push` becomes `<Tee
/// as App>::push`. A path outside of brackets keeps its last two parts.
pub fn short(name: &str) -> String {
    let mut text = String::new();
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let length = path_length(rest);
        if length > 0 {
            let kept = if depth == 0 { 2 } else { 1 };
            text += last_parts(&rest[..length], kept);
            rest = &rest[length..];
            continue;
        }
        match first {
            '<' | '(' | '[' => depth += 1,
            '>' if text.ends_with('-') => {}
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        text.push(first);
        rest = &rest[first.len_utf8()..];
    }
    text
}

/// The length of the path at the start of a text: names joined by `::`.
fn path_length(text: &str) -> usize {
    let mut end = 0;
    loop {
        let length = text[end..].find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len() - end);
        if length == 0 {
            // A path does not end in `::`: brackets follow.
            return end.saturating_sub(2);
        }
        end += length;
        if !text[end..].starts_with("::") {
            return end;
        }
        end += 2;
    }
}

fn last_parts(path: &str, count: usize) -> &str {
    path.rmatch_indices("::").nth(count - 1).map_or(path, |(at, joint)| &path[at + joint.len()..])
}

/// Whether a name is that of a type, or of something within it.
pub fn mentions(name: &str, path: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    name.match_indices(path).any(|(at, found)| {
        let (before, after) = (name[..at].chars().next_back(), name[at + found.len()..].chars().next());
        !before.is_some_and(|c| is_part(c) || c == ':') && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_modules() {
        let cases = [
            ("<bellows_basic::tee::Tee as bellows_engine::app::App>::push", "<Tee as App>::push"),
            ("bellows_engine::app::push::<bellows_basic::sink::Sink>", "app::push::<Sink>"),
            ("<bellows_engine::io::Output>::push_copies", "<Output>::push_copies"),
            ("bellows_packet::bulk::x86::copy_avx512", "x86::copy_avx512"),
            (
                "bellows_engine::app::answer::<(), bellows_engine::app::push<a::B>::{closure#0}>",
                "app::answer::<(), push<B>::{closure#0}>",
            ),
            ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "ptr::drop_in_place::<Vec<u8>>"),
            ("<a::Walk<16> as core::ops::FnOnce<(u64,)>>::call_once", "<Walk<16> as FnOnce<(u64,)>>::call_once"),
            ("<fn(a::B) -> c::D as e::F>::g", "<fn(B) -> D as F>::g"),
            ("memmove", "memmove"),
            ("", ""),
            ("größe::maß::länge", "maß::länge"),
        ];
        for (name, expected) in cases {
            assert_eq!(short(name), expected);
        }
    }

    #[test]
    fn symbols_are_demangled_and_others_are_left_alone() {
        assert_eq!(
            demangled("_RNvNtCs5FhCZ4dnFFK_14bellows_engine2io11close_input"),
            "bellows_engine::io::close_input"
        );
        assert_eq!(demangled("__memmove_avx512_unaligned_erms"), "__memmove_avx512_unaligned_erms");
    }

    #[test]
    fn a_type_is_mentioned_as_a_whole_or_not() {
        let name = "bellows_engine::app::push::<bellows_basic::sink::Sink>";
        assert!(mentions(name, "bellows_basic::sink::Sink"));
        assert!(!mentions(name, "bellows_basic::sink::Sin") && !mentions(name, "basic::sink::Sink"));
        assert!(mentions("<a::Tee>::push::{closure#0}", "a::Tee") && !mentions("<b::a::Tee>::push", "a::Tee"));
    }
}
