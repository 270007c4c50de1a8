//! Long expressions compile in a time that is in proportion to their length.

use std::time::{Duration, Instant};

use bellows_filter::{Expression, Options, Program};

/// Bytes of text of the long expressions.
const LONG: usize = 64 << 10;

/// Many tests of one kind, joined, in about as many bytes as a long expression has.
fn joined(first: &str, separator: &str, test: impl Fn(u32) -> String) -> String {
    let mut text = first.to_owned();
    for number in 0.. {
        let next = test(number);
        if text.len() + separator.len() + next.len() > LONG {
            break;
        }
        if number > 0 {
            text += separator;
        }
        text += &next;
    }
    text
}

/// Far above what any expression takes, so that a busy machine does not fail the test, and far below what it would take
/// if passes were quadratic.
const LIMIT: Duration = Duration::from_secs(8);

/// How long an expression takes to become machine code. If that is too long, the machine may be busy: once more.
fn time(text: &str) -> Duration {
    let compile = |_| {
        let start = Instant::now();
        let expression = Expression::parse(text, &Options::default()).unwrap();
        Program::new(expression.graph()).unwrap();
        start.elapsed()
    };
    let first = compile(0);
    if first < LIMIT { first } else { (1..3).map(compile).fold(first, Duration::min) }
}

#[test]
fn long_expressions() {
    let host = |number: u32| format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
    // Numbers without an order.
    let mixed = |number: u32| number.wrapping_add(1).wrapping_mul(0x9e37_79b9);
    let mixed_host = |number: u32| {
        let [first, second, third, fourth] = mixed(number).to_be_bytes();
        format!("{}.{second}.{third}.{fourth}", 1 + first % 220)
    };
    let cases = [
        ("a port", "tcp port 80".to_owned()),
        ("ports", joined("", " or ", |number| format!("port {}", 2 * number + 1_000))),
        ("TCP ports", joined("", " or ", |number| format!("tcp port {}", 2 * number))),
        ("destination ports", joined("tcp dst port ", " or ", |number| (2 * number + 1_000).to_string())),
        ("carried ports", joined("port ", " or ", |number| (number + 1_000).to_string())),
        ("ranges", joined("", " or ", |number| format!("portrange {}-{}", 10 * number, 10 * number + 5))),
        ("no ports", joined("not port ", " and not ", |number| (number + 1_000).to_string())),
        ("hosts", joined("", " or ", |number| format!("host {}", host(number)))),
        ("carried hosts", joined("host ", " or ", mixed_host)),
        ("prefixes", joined("", " or ", |number| format!("net {}/24", host(256 * number)))),
        ("source prefixes", joined("", " or ", |number| format!("ip src net {}/32", host(number)))),
        ("IPv6 hosts", joined("src host ", " or ", |number| format!("2001:db8::{number:x}"))),
        ("IPv6 prefixes", joined("", " or ", |number| format!("net 2001:db8:{number:x}::/48"))),
        (
            "Ethernet hosts",
            joined("ether host ", " or ", |number| format!("2:0:0:0:{:x}:{:x}", number >> 8, number & 255)),
        ),
        (
            "pairs",
            joined("", " or ", |number| {
                format!("(src host {} and dst port {})", mixed_host(number), mixed(number) % 65_536)
            }),
        ),
        ("bytes", joined("", " or ", |number| format!("ip[{}:2] = {number}", number % 32))),
        ("a long sum", joined("5 = ", " + ", |_| "len".to_owned())),
        ("nested", format!("{}ip{}", "(not ".repeat(120), ")".repeat(120))),
        ("groups", joined("", " or ", |number| format!("((port {number} and host {}) and not udp)", host(number)))),
        ("alternating", joined("", " or ", |number| format!("port {number} and not host 10.0.0.1"))),
        ("conjunction", joined("", " and ", |number| format!("(port {number} or host {})", host(number)))),
        ("tags", joined("", " or ", |number| format!("vlan {}", number % 4_096))),
        ("chains", joined("", " or ", |number| format!("ip6 protochain {}", number % 256))),
    ];
    for (name, text) in cases {
        let time = time(&text);
        println!("{name}: {} bytes, {time:?}", text.len());
        assert!(time < LIMIT, "{name}: {time:?}");
    }
}
