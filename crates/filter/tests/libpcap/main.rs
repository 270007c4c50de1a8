//! Expressions mean what they mean to libpcap: the same are refused, and the verdict on every packet is the same, also
//! if the packet is cut off.

mod expressions;
mod oracle;
mod packets;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bellows_capture::Reader;
use bellows_filter::interpret::{PacketView, matches};
use bellows_filter::{Expression, Instruction, LinkType, Options};
use bellows_testkit::{captures, soak};
use fastrand::Rng;

use expressions::Generator;
use oracle::{Answer, Oracle, Packet, Verdict};

const LINK_TYPES: [LinkType; 8] = [
    LinkType::Ethernet,
    LinkType::Raw,
    LinkType::Ipv4,
    LinkType::Ipv6,
    LinkType::Cooked,
    LinkType::Cooked2,
    LinkType::Null,
    LinkType::Loop,
];

/// What has been compared.
#[derive(Default)]
struct Books {
    expressions: u64,
    refused: u64,
    verdicts: u64,
    matches: u64,
    /// Programs that are libpcap's, instruction by instruction, of those that its optimiser has seen.
    same_programs: u64,
    other_programs: u64,
    mistakes: Vec<String>,
}

impl Books {
    /// Compares what becomes of an expression.
    fn compare(&mut self, oracle: &mut Oracle, link_type: LinkType, expression: &str, packets: &[Packet]) {
        self.expressions += 1;
        let options = Options { link_type, ..Options::default() };
        let ours = Expression::parse(expression, &options);
        let theirs = oracle.ask(link_type.number(), expression);
        let place = || format!("{link_type}: `{expression}`");
        match (ours, theirs) {
            // Only a warning here. The answer has no verdicts, because all are the same.
            (Ok(ours), Answer::Refused(message)) if message == "expression rejects all packets" => {
                for packet in packets {
                    self.verdicts += 1;
                    if matches(ours.graph(), view(packet)) {
                        self.note(format!("{}: libpcap rejects all packets, but we not {packet:?}", place()));
                        return;
                    }
                }
            }
            (Ok(_), Answer::Refused(message)) => self.note(format!("{}: libpcap refuses it: {message}", place())),
            (Err(mistake), Answer::Compiled { .. }) => {
                self.note(format!("{}: libpcap accepts it; we say at {:?}: {mistake}", place(), mistake.range));
            }
            (Err(mistake), Answer::Refused(_)) => {
                self.refused += 1;
                let Some(text) = expression.get(mistake.range.clone()) else {
                    return self.note(format!("{}: no place {:?}", place(), mistake.range));
                };
                if mistake.message.is_empty() || mistake.help.is_empty() || text.contains('\n') {
                    self.note(format!("{}: {mistake:?}", place()));
                }
            }
            (Ok(ours), Answer::Compiled { program, verdicts }) => {
                if comparable(&ours.program()) == comparable(&program) {
                    self.same_programs += 1;
                } else {
                    self.other_programs += 1;
                    if env::var_os("BELLOWS_SHOW_PROGRAMS").is_some() {
                        eprintln!("{}: another program", place());
                    }
                }
                if let Err(error) = ours.graph().check() {
                    return self.note(format!("{}: {error}", place()));
                }
                for (packet, verdict) in packets.iter().zip(verdicts) {
                    self.verdicts += 1;
                    let ours = matches(ours.graph(), view(packet));
                    self.matches += u64::from(ours);
                    if ours != (verdict == Verdict::Match) {
                        self.note(format!("{}: libpcap: {verdict:?}, we: {ours}, of {packet:?}", place()));
                        return;
                    }
                }
            }
        }
    }

    fn note(&mut self, mistake: String) {
        if self.mistakes.len() < 20 {
            self.mistakes.push(mistake);
        } else {
            panic!("{}", self.mistakes.join("\n"));
        }
    }

    fn finish(self, what: &str) {
        println!(
            "{what}: {} expressions ({} refused by both; programs: {} the same, {} others), {} verdicts, {} matches",
            self.expressions, self.refused, self.same_programs, self.other_programs, self.verdicts, self.matches
        );
        assert!(self.mistakes.is_empty(), "{}", self.mistakes.join("\n"));
    }
}

/// Without the operands that mean nothing, which libpcap leaves as they are when it changes instructions.
fn comparable(program: &[Instruction]) -> Vec<Instruction> {
    const CLASS: u16 = 0x07;
    const INDEX: u16 = 0x08;
    let plain = |&instruction: &Instruction| match instruction.code & CLASS {
        7 => Instruction { operand: 0, ..instruction },
        4 | 5 if instruction.code & INDEX != 0 => Instruction { operand: 0, ..instruction },
        _ => instruction,
    };
    program.iter().map(plain).collect()
}

fn view(packet: &Packet) -> PacketView<'_> {
    PacketView { bytes: &packet.bytes, wire_length: packet.wire_length }
}

/// The expressions of the file beside this one.
fn written() -> Vec<String> {
    let lines = include_str!("expressions.txt").lines().filter(|line| !line.starts_with("# "));
    lines.map(|line| line.replace("{n}", "\n").replace("{r}", "\r").replace("{t}", "\t")).collect()
}

/// The packets of capture files by link type, each once.
fn packets_of(files: &[PathBuf]) -> BTreeMap<u32, Vec<Packet>> {
    let mut seen = BTreeSet::new();
    let mut packets: BTreeMap<u32, Vec<Packet>> = BTreeMap::new();
    for path in files {
        let Ok(mut reader) = Reader::open(path) else { continue };
        while let Ok(Some(record)) = reader.next_record() {
            let packet = Packet { bytes: record.data.to_vec(), wire_length: record.original_length };
            let interface = record.interface as usize;
            let link_type = reader.interfaces()[interface].link_type.0;
            if seen.insert((link_type, packet.bytes.clone(), packet.wire_length)) {
                packets.entry(link_type).or_default().push(packet);
            }
        }
    }
    packets
}

fn compare_captures(test: &str, files: &[PathBuf]) {
    let Some(mut oracle) = Oracle::start(test) else { return };
    let mut books = Books::default();
    let mut packets = packets_of(files);
    for link_type in LINK_TYPES {
        let packets = packets.remove(&link_type.number()).unwrap_or_default();
        oracle.load(&packets);
        for expression in written() {
            books.compare(&mut oracle, link_type, &expression, &packets);
        }
    }
    books.finish(test);
}

#[test]
fn own_captures() {
    compare_captures("own_captures", &captures::own());
}

#[test]
fn real_captures() {
    let Some(files) = captures::real("real_captures") else { return };
    compare_captures("real_captures", &files);
}

/// The seconds of the random comparison, and the seed of its first round.
fn random_settings() -> (Duration, u64) {
    let number = |name| env::var(name).ok().and_then(|value| value.parse().ok());
    let usual = if soak::is_soaking() { 300 } else { 5 };
    let seconds = number("BELLOWS_FILTER_SECONDS").unwrap_or(usual);
    (Duration::from_secs(seconds), number("BELLOWS_FILTER_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32)))
}

#[test]
fn random_expressions() {
    let Some(mut oracle) = Oracle::start("random_expressions") else { return };
    let (duration, first) = random_settings();
    let start = Instant::now();
    let mut books = Books::default();
    let mut seed = first;
    while start.elapsed() < duration {
        println!("BELLOWS_FILTER_SEED={seed}");
        let mut random = Rng::with_seed(seed);
        let link_type = if random.bool() { LinkType::Ethernet } else { LINK_TYPES[random.usize(..LINK_TYPES.len())] };
        let packets = packets::random(&mut random, link_type, 300);
        oracle.load(&packets);
        for _ in 0..100 {
            let expression = Generator::new(&mut random).expression();
            books.compare(&mut oracle, link_type, &expression, &packets);
        }
        if !books.mistakes.is_empty() {
            break;
        }
        seed += 1;
    }
    books.finish(&format!("seeds {first}..{seed}"));
}

/// Pieces of expressions in any order: most are refused, and by both.
#[test]
fn random_pieces() {
    let Some(mut oracle) = Oracle::start("random_pieces") else { return };
    let (duration, first) = random_settings();
    let start = Instant::now();
    let mut books = Books::default();
    let mut seed = first;
    let written = written();
    while start.elapsed() < duration {
        println!("BELLOWS_FILTER_SEED={seed}");
        let mut random = Rng::with_seed(seed);
        let link_type = LINK_TYPES[random.usize(..LINK_TYPES.len())];
        let packets = packets::random(&mut random, link_type, 30);
        oracle.load(&packets);
        for _ in 0..300 {
            let expression = expressions::pieces(&mut random, &written);
            books.compare(&mut oracle, link_type, &expression, &packets);
        }
        if !books.mistakes.is_empty() {
            break;
        }
        seed += 1;
    }
    books.finish(&format!("seeds {first}..{seed}"));
}

/// An expression that is printed and parsed again is the same.
#[test]
fn printed_expressions() {
    let mut random = Rng::with_seed(7);
    let random: Vec<String> = (0..2_000).map(|_| Generator::new(&mut random).expression()).collect();
    let mut printed = 0;
    for text in written().iter().chain(&random) {
        for link_type in [LinkType::Ethernet, LinkType::Cooked] {
            let options = Options { link_type, ..Options::default() };
            let Ok(expression) = Expression::parse(text, &options) else { continue };
            let Some(tree) = expression.tree() else { continue };
            let again = tree.to_string();
            let parsed =
                Expression::parse(&again, &options).unwrap_or_else(|mistake| panic!("{text}, {again}: {mistake}"));
            assert_eq!(parsed.program(), expression.program(), "{text}, {again}");
            printed += 1;
        }
    }
    assert!(printed > 2_000, "{printed}");
}

/// Prints what becomes of an expression, to look into a difference.
#[test]
fn show() {
    let Ok(expression) = env::var("BELLOWS_SHOW") else { return };
    let Some(mut oracle) = Oracle::start("show") else { return };
    let link_type = env::var("BELLOWS_SHOW_LINK").ok().and_then(|number| number.parse().ok()).unwrap_or(1);
    let options = Options { link_type: LinkType::from_number(link_type).unwrap(), ..Options::default() };
    let start = Instant::now();
    let ours = Expression::parse(&expression, &options);
    println!("{:?}", start.elapsed());
    if let Ok(ours) = &ours {
        for line in ours.program() {
            println!("{line}");
        }
    }
    match oracle.ask(link_type, &expression) {
        Answer::Refused(message) => println!("libpcap: {message}; {:?}", ours.err()),
        Answer::Compiled { program, .. } => {
            for line in program {
                println!("libpcap: {line}");
            }
        }
    }
}
