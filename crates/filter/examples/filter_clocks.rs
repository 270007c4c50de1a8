//! Clocks a packet of filters that tcpdump compiles, hot and with 8,192 packets in flight. With an argument, the code of
//! this expression.

use std::time::{Duration, Instant};

use bellows_filter::graph::Graph;
use bellows_filter::{Matches, Program};
use bellows_packet::{Packet, pool};

#[path = "../tests/support/cbpf.rs"]
mod cbpf;

const VECTOR: usize = 128;

/// An Ethernet frame with IPv4 and TCP.
fn frame(source: [u8; 4], destination: [u8; 4], ports: [u16; 2], protocol: u8) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[17] = 50;
    frame[22] = 64;
    frame[23] = protocol;
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&destination);
    frame[34..36].copy_from_slice(&ports[0].to_be_bytes());
    frame[36..38].copy_from_slice(&ports[1].to_be_bytes());
    frame
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Clocks a packet: the least of several rounds.
fn clocks(program: &Program, vectors: &[Vec<Packet>]) -> f64 {
    let mut matches = Matches::default();
    let mut least = f64::MAX;
    let end = Instant::now() + Duration::from_millis(60);
    while Instant::now() < end {
        let repeats = (64 / vectors.len()).max(1);
        let start = bellows_sys::clock::ticks();
        for _ in 0..repeats {
            for vector in vectors {
                program.matches(vector, &mut matches);
            }
        }
        let ticks = bellows_sys::clock::ticks() - start;
        least = least.min(ticks as f64 / (repeats * vectors.len() * VECTOR) as f64);
    }
    least
}

fn vectors(count: usize, mut make: impl FnMut(usize) -> Vec<u8>) -> Vec<Vec<Packet>> {
    let packet = |index| Packet::from_bytes(&make(index)).expect("a buffer");
    let mut packets: Vec<Packet> = (0..count * VECTOR).map(packet).collect();
    (0..count).map(|_| packets.split_off(packets.len() - VECTOR)).collect()
}

fn program(expression: &str) -> Program {
    let graph: Graph = cbpf::compiled(expression).expect("tcpdump compiles the expression");
    let start = Instant::now();
    let program = Program::new(&graph).expect("a valid graph");
    let elapsed = start.elapsed();
    let (code, tables) = program.size();
    let fallback = program.fallback().unwrap_or("");
    println!(
        "{:.60}: {elapsed:?} (code {:?}), {code} bytes, tables {tables} {fallback}",
        expression,
        program.assembling()
    );
    program
}

fn list(kind: &str, count: u32) -> String {
    let item = |index: u32| match kind {
        "port" => format!("{}", 1_000 + index * 37),
        "net" => format!("net 10.{}.{}.0/24", index / 200, index % 200),
        "host" => format!("host 10.{}.{}.7", index / 200, index % 200),
        "host6" => format!("host 2001:db8:{:x}::{:x}", index * 7, index + 1),
        _ => format!("net 2001:db8:{:x}::/48", index * 3),
    };
    let items: Vec<String> = (0..count).map(item).collect();
    let first = if kind == "port" { "port " } else { "" };
    format!("{first}{}", items.join(" or "))
}

fn main() {
    pool::ensure().expect("a pool");
    if let Some(expression) = std::env::args().nth(1) {
        let program = program(&expression);
        for line in program.listing(|part| format!("{}..{}", part.text.start, part.text.end)) {
            if let Some(label) = line.label {
                println!("{label}:");
            }
            println!("  {:x}  {}", line.address & 0xffff, line.text);
        }
        return;
    }
    let lists: Vec<String> = [("port", 200), ("host", 1_000), ("net", 1_000), ("host6", 500), ("net6", 500)]
        .map(|(kind, count)| list(kind, count))
        .into();
    let mut expressions = vec![
        "",
        "tcp port 80",
        "tcp port 5555",
        "portrange 0-6000",
        "src net 10.0.0.0/8",
        "host 1.2.3.4",
        "port 80",
        "ip and udp",
        "len > 100",
        "host 2001:db8::1",
    ];
    expressions.extend(lists.iter().map(String::as_str));
    println!("columns: matching, not matching, mixed; hot and 8,192 in flight");
    for expression in expressions {
        let program = program(expression);
        let figures: Vec<String> = [1, 64]
            .into_iter()
            .flat_map(|count| (0..3).map(move |kind| (count, kind)))
            .map(|(count, kind)| {
                let mut random = Random(88_172_645_463_325_252);
                let all = vectors(count, |_| {
                    let matching = match kind {
                        0 => true,
                        1 => false,
                        _ => random.next() >> 33 & 1 == 1,
                    };
                    let port = (random.next() % 50_000) as u16;
                    if matching {
                        let source = if expression.contains("10.") { [10, 0, 3, 7] } else { [1, 2, 3, 4] };
                        let port = if expression.contains("5555") {
                            5555
                        } else if expression.starts_with("port 10") {
                            1_037
                        } else {
                            80
                        };
                        frame(source, [9, 9, 9, 9], [7000, port], 6)
                    } else {
                        frame(
                            [99, 0, 0, random.next() as u8],
                            [98, 0, 0, random.next() as u8],
                            [7000, port.max(6001)],
                            6,
                        )
                    }
                });
                let mut matches = Matches::default();
                program.matches(&all[0], &mut matches);
                format!("{:6.2} ({:3})", clocks(&program, &all), matches.count())
            })
            .collect();
        println!("    {}", figures.join(" "));
    }
}
