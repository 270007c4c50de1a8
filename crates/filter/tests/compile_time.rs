//! Long expressions compile in a time that is in proportion to their length.

use std::time::{Duration, Instant};

use bellows_filter::{Expression, Options};

/// Many tests of one kind, joined by `or`.
fn joined(count: u32, test: impl Fn(u32) -> String) -> String {
    (0..count).map(test).collect::<Vec<_>>().join(" or ")
}

/// Compiles an expression several times, and returns the shortest time.
fn time(text: &str) -> Duration {
    let compile = || {
        let start = Instant::now();
        Expression::parse(text, &Options::default()).unwrap();
        start.elapsed()
    };
    (0..3).map(|_| compile()).min().unwrap_or_default()
}

#[test]
fn long_expressions() {
    let host = |number: u32| format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
    let cases = [
        ("a port", "tcp port 80".to_owned()),
        ("200 ports", joined(200, |port| format!("port {}", 2 * port))),
        ("200 TCP ports", joined(200, |port| format!("tcp port {}", 2 * port))),
        ("200 destination ports", format!("tcp dst port {}", joined(200, |port| (2 * port).to_string()))),
        ("1,000 prefixes", joined(1_000, |number| format!("net {}/32", host(number)))),
        ("1,000 source prefixes", joined(1_000, |number| format!("ip src net {}/32", host(number)))),
        ("4,000 hosts", joined(4_000, |number| format!("host {}", host(number)))),
        ("6,000 carried hosts", format!("host {}", joined(4_500, host))),
        ("8,000 carried ports", format!("port {}", joined(6_500, |port| (port + 1_000).to_string()))),
        ("6,000 IPv6 hosts", format!("src host {}", joined(3_500, |number| format!("2001:db8::{number:x}")))),
        ("a long sum", format!("{} = 5", vec!["len"; 10_000].join(" + "))),
        ("many comparisons", joined(4_000, |number| format!("ip[2:2] = {number}"))),
        ("nested", format!("{}ip{}", "(not ".repeat(100), ")".repeat(100))),
        ("alternating", joined(1_500, |port| format!("port {port} and not host 10.0.0.1"))),
        (
            "conjunction",
            format!(
                "not port {}",
                (0..6_000).map(|port| (port + 1_000).to_string()).collect::<Vec<_>>().join(" and not ")
            ),
        ),
    ];
    for (name, text) in cases {
        let time = time(&text);
        println!("{name}: {} bytes, {time:?}", text.len());
        // Far above what it takes, so that a busy machine does not fail the test, and far below what it would take if
        // passes were quadratic.
        assert!(time < Duration::from_secs(10), "{name}: {time:?}");
    }
}
