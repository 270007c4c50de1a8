//! Arbitrary text as a filter expression, for every link type and both scopes, and a packet to run it on: after the
//! first NUL. Any text becomes a graph that can be run, or a mistake at a place in the text. An expression that is
//! printed and parsed again is the same.

#![no_main]

use bellows_filter::interpret::{PacketView, matches};
use bellows_filter::{Expression, FixedNames, LinkType, Options, Scope};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let Ok(text) = str::from_utf8(&bytes[..end]) else { return };
    let packet = bytes.get(end + 1..).unwrap_or_default();
    let numbers = [1, 101, 228, 229, 113, 276, 0, 108];
    let link_type = LinkType::from_number(numbers[usize::from(choice) % numbers.len()]).unwrap();
    let scope = if choice & 0x80 == 0 { Scope::Libpcap } else { Scope::Lexical };
    // Names of the machine, and its resolver, are not under test.
    let names = FixedNames {
        hosts: vec![("a".to_owned(), [10, 0, 0, 1].into())],
        protocols: vec![("tcp".to_owned(), 6)],
        ..FixedNames::default()
    };
    let options = Options { link_type, scope, names: &names, ..Options::default() };
    match Expression::parse(text, &options) {
        Ok(expression) => {
            assert_eq!(expression.graph().check(), Ok(()));
            matches(expression.graph(), PacketView::whole(packet));
            for warning in expression.warnings() {
                assert!(text.get(warning.range.clone()).is_some() && !warning.message.is_empty());
            }
            assert_eq!(expression.explain().is_empty(), expression.tree().is_none());
            if let Some(tree) = expression.tree() {
                let printed = tree.to_string();
                let again = Expression::parse(&printed, &options).unwrap();
                assert_eq!(again.program(), expression.program(), "{text} {printed}");
            }
        }
        Err(mistake) => {
            assert!(text.get(mistake.range.clone()).is_some(), "{mistake:?}");
            assert!(!mistake.message.is_empty() && !mistake.help.is_empty());
        }
    }
});
