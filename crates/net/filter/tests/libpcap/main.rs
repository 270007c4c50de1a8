//! Expressions mean what they mean to libpcap: the same are refused, and the verdict on every packet is the same, also
//! if the packet is cut off. Interpreter and machine code are both compared.
//!
//! The random comparisons take seconds, or as many as the variable `BELLOWS_FILTER_SECONDS` says; each round prints its
//! seed, with which `BELLOWS_FILTER_SEED` repeats it. `BELLOWS_SHOW=EXPRESSION` with the test `show` prints the programs
//! of both.

mod expressions;
mod oracle;
mod packets;
mod pieces;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bellows_capture::Reader;
use bellows_filter::interpret::{PacketView, matches};
use bellows_filter::{Expression, Instruction, LinkType, Options, Program, Scope, WarningKind};
use bellows_testkit::{captures, soak};
use fastrand::Rng;

use expressions::Generator;
use oracle::{Answer, Oracle, Packet, Verdict};

/// Packets that are decided together.
const VECTOR: usize = 128;

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
        let options = Options { link_type, scope: Scope::LibpcapFaults, ..Options::default() };
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
                if comparable(&ours.instructions()) == comparable(&program) {
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
                let program = match Program::new(ours.graph()) {
                    Ok(program) => program,
                    Err(error) => return self.note(format!("{}: {error}", place())),
                };
                let views: Vec<PacketView<'_>> = packets.iter().map(view).collect();
                let code = views.chunks(VECTOR).flat_map(|vector| program.decide_together(vector));
                for ((packet, verdict), code) in packets.iter().zip(verdicts).zip(code) {
                    self.verdicts += 1;
                    let ours = matches(ours.graph(), view(packet));
                    let code = code.first.is_some();
                    self.matches += u64::from(ours);
                    if ours != (verdict == Verdict::Match) || code != ours {
                        let text = format!("libpcap: {verdict:?}, interpreter: {ours}, code: {code}");
                        self.note(format!("{}: {text}, of {packet:?}", place()));
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
    for link_type in LinkType::ALL {
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

/// Compares random expressions on random packets, for seconds, or as long as the environment says. Each round has a seed
/// of its own, a link type, and `count` expressions that `expression` makes, on `packets` packets.
fn random_rounds(test: &str, packets: usize, count: usize, mut expression: impl FnMut(&mut Rng) -> String) {
    let Some(mut oracle) = Oracle::start(test) else { return };
    let number = |name| env::var(name).ok().and_then(|value| value.parse().ok());
    let usual = if soak::is_soaking() { 300 } else { 5 };
    let duration = Duration::from_secs(number("BELLOWS_FILTER_SECONDS").unwrap_or(usual));
    let first = number("BELLOWS_FILTER_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let start = Instant::now();
    let mut books = Books::default();
    let mut seed = first;
    while start.elapsed() < duration && books.mistakes.is_empty() {
        println!("BELLOWS_FILTER_SEED={seed}");
        let mut random = Rng::with_seed(seed);
        let any = LinkType::ALL[random.usize(..LinkType::ALL.len())];
        let link_type = if random.bool() { LinkType::Ethernet } else { any };
        let packets = packets::random(&mut random, link_type, packets);
        oracle.load(&packets);
        for _ in 0..count {
            books.compare(&mut oracle, link_type, &expression(&mut random), &packets);
        }
        seed += 1;
    }
    books.finish(&format!("seeds {first}..{seed}"));
}

#[test]
fn random_expressions() {
    random_rounds("random_expressions", 300, 100, |random| Generator::new(random).expression());
}

/// Pieces of expressions in any order: most are refused, and by both.
#[test]
fn random_pieces() {
    let written = written();
    random_rounds("random_pieces", 30, 300, |random| pieces::pieces(random, &written));
}

/// An expression that is printed and parsed again is the same. So are both scopes, unless there is a warning.
#[test]
fn printed_expressions() {
    let mut random = Rng::with_seed(7);
    let random: Vec<String> = (0..2_000).map(|_| Generator::new(&mut random).expression()).collect();
    let (mut printed, mut same) = (0, 0);
    for text in written().iter().chain(&random) {
        for link_type in [LinkType::Ethernet, LinkType::Cooked] {
            let options = Options { link_type, ..Options::default() };
            let Ok(expression) = Expression::parse(text, &options) else { continue };
            let Some(tree) = expression.tree() else { continue };
            let again = tree.to_string();
            let parsed =
                Expression::parse(&again, &options).unwrap_or_else(|mistake| panic!("{text}, {again}: {mistake}"));
            assert_eq!(parsed.instructions(), expression.instructions(), "{text}, {again}");
            printed += 1;
            // Where no shift escapes, both scopes are the same.
            if !expression.warnings().iter().any(|warning| warning.kind == WarningKind::ShiftEscapes) {
                let lexical = Expression::parse(text, &Options { scope: Scope::Lexical, ..options }).unwrap();
                assert_eq!(lexical.instructions(), expression.instructions(), "{text}");
                same += 1;
            }
        }
    }
    assert!(same > 2_000 && same < printed, "{same} of {printed}");
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
        for line in ours.instructions() {
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
