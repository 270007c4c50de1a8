//! Rows of apps on a command line.

mod common;

use std::path::Path;

use bellows_config::load_chain;
use bellows_engine::AppSpec;
use common::registry;
use expect_test::expect;

fn chain(text: &str) -> Result<Vec<AppSpec>, String> {
    load_chain(text, "", "APP", Path::new("nets"), &registry()).map_err(|mistakes| mistakes.render(false))
}

#[test]
fn apps_are_named_after_their_types_and_have_keys_in_parentheses() {
    let apps =
        chain(r#"source(size = 100, mix = [{ size = 64 }]) | tee| tee (prefetch = 8) | writer(path = "a|b.pcap")"#);
    let apps = apps.unwrap();
    let named: Vec<String> = apps.iter().map(|app| format!("{app:?}")).collect();
    assert_eq!(named, ["source: source", "tee: tee", "tee-2: tee", "writer: writer"]);
    assert!(apps[0].fingerprint.starts_with(r#"{"size":100,"#), "{}", apps[0].fingerprint);
    assert!(apps[3].fingerprint.starts_with(r#"{"path":"a|b.pcap""#) && apps[3].fingerprint.ends_with("in \"nets\""));
    assert_eq!((apps[1].info().prefetch, apps[2].info().prefetch), (0, 8));
}

#[test]
fn errors_point_at_the_text() {
    for (text, expected) in [
        (
            "tee | monitr",
            expect![[r#"
                error: there is no app type `monitr`
                 --> APP:1:7
                  |
                1 | tee | monitr
                  |       ^^^^^^ did you mean `monitor`?
                  |
                  = help: there are `monitor`, `source`, `tee`, `writer`
            "#]],
        ),
        (
            "tee | source(size = 9)",
            expect![[r#"
                error: `size` must be an integer 14 to 9,000
                 --> APP:1:21
                  |
                1 | tee | source(size = 9)
                  |                     ^ out of range
            "#]],
        ),
        (
            "writer",
            expect![[r#"
                error: app type `writer` needs the key `path`
                 --> APP:1:1
                  |
                1 | writer
                  | ^^^^^^ missing here
                  |
                  = help: add `path = …` (text)
            "#]],
        ),
        (
            "source(rate = 0)",
            expect![[r#"
                error: `source`: a source of rate 0 makes nothing
                 --> APP:1:15
                  |
                1 | source(rate = 0)
                  |               ^
                  |
                  = help: leave `rate` out for the highest rate
            "#]],
        ),
        (
            "source(size = 99, size = 9)",
            expect![[r#"
                error: this is not TOML: duplicate key
                 --> APP:1:19
                  |
                1 | source(size = 99, size = 9)
                  |                   ^^^^
                  |
                  = help: keep one of them: a key or table is written once in a file
                  = help: write apps as `TYPE(key = value, …) | TYPE`
            "#]],
        ),
        (
            "tee(",
            expect![[r#"
                error: `(` is not closed
                 --> APP:1:4
                  |
                1 | tee(
                  |    ^ a `)` is missing
                  |
                  = help: write apps as `TYPE(key = value, …) | TYPE`
            "#]],
        ),
        (
            "tee() tee",
            expect![[r#"
                error: unexpected text after the keys
                 --> APP:1:6
                  |
                1 | tee() tee
                  |      ^^^^ only ` | ` and another app can follow
                  |
                  = help: write apps as `TYPE(key = value, …) | TYPE`
            "#]],
        ),
        (
            "tee |",
            expect![[r#"
                error: an app is missing here
                 --> APP:1:5
                  |
                1 | tee |
                  |     ^ name its type
                  |
                  = help: write apps as `TYPE(key = value, …) | TYPE`
            "#]],
        ),
    ] {
        let report = chain(text).map(|_| ()).unwrap_err();
        expected.assert_eq(&report);
    }
}
