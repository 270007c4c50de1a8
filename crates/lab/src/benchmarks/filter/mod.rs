//! `bench filter`: what a filter costs a packet, and what it costs to compile one.
//!
//! A process compiles one filter and decides frames of 64 bytes in vectors of 128: such that match, such that do not,
//! and both at random; hot, which is one vector again and again, and with 8,192 packets in flight. Processes take turns
//! of about a millisecond ([`turns`](crate::turns)). At its end a process checks that the filter matched what it should
//! have matched.
//!
//! - A long list is measured beside one item of it.
//! - Histories: a filter that met only some packets first is measured beside one that met nothing before.
//! - Other programs with filters, such as bench/peers/filter.c, take turns with the same frames, which they read from
//!   captures.

mod filters;
mod targets;

use std::hint::black_box;
use std::path::Path;
use std::str::FromStr;

use bellows_capture::{Interface, LinkType, Record, Writer, WriterOptions};
use bellows_config::Registry;
use bellows_filter::{Expression, Matches, Options, Program};
use bellows_packet::{Packet, pool};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::audience::Observer;
use crate::bench::{Benchmark, Common, Figures, Finished, Lab, Listed, whole};
use crate::networks::Folder;
use crate::report::{BenchError, Measurement, Report, Table, chosen};
use crate::slices::{Sliced, Turn, sliced};
use crate::timing::median_or_nan;
use crate::turns::{Match, Peer, Session};
use crate::workers::{self, ProcessError, Side, fail, settle};
use filters::{Filter, Packets};
use targets::{Target, conclusions};

/// Packets in a vector, and packets in flight.
const VECTOR: usize = 128;
const IN_FLIGHT: usize = 8_192;

/// Timed slices of a figure in a turn, each of [`IN_FLIGHT`] packets.
const SLICES: usize = 12;

/// Bytes of the long texts, and the maximum number of turns to compile them.
const LONG: usize = 64 << 10;
const LONG_TURNS: usize = 4;

/// What a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Filter(Filter),
    /// A long list, beside one item of it.
    List { list: Filter, item: Filter },
    History,
    Compile,
}

impl Case {
    const ALL: [Case; 9] = [
        Case::Filter(Filter::Document),
        Case::Filter(Filter::Portrange),
        Case::Filter(Filter::TcpPort),
        Case::Filter(Filter::SrcNet),
        Case::Filter(Filter::Host),
        Case::List { list: Filter::Ports, item: Filter::Port },
        Case::List { list: Filter::Prefixes, item: Filter::Prefix },
        Case::History,
        Case::Compile,
    ];

    fn name(self) -> &'static str {
        match self {
            Case::Filter(filter) | Case::List { list: filter, .. } => match filter {
                Filter::Document => "document",
                Filter::Portrange => "portrange",
                Filter::TcpPort => "tcp-port",
                Filter::SrcNet => "src-net",
                Filter::Host => "host",
                Filter::Port | Filter::Ports => "ports",
                Filter::Prefix | Filter::Prefixes => "prefixes",
            },
            Case::History => "history",
            Case::Compile => "compile",
        }
    }

    /// The filters to measure on packets, the one that peers run too first.
    fn filters(self) -> Vec<Filter> {
        match self {
            Case::Filter(filter) => vec![filter],
            Case::List { list, item } => vec![list, item],
            Case::History | Case::Compile => Vec::new(),
        }
    }
}

/// Measure what a filter costs a packet, and what it costs to compile one
///
/// Clocks a packet over frames of 64 bytes in vectors of 128 that match, do not match (`other`) or both at random
/// (`mixed`), with one vector that stays in the first-level cache and with 8,192 packets in flight. Cases: document, the
/// filter of the document that measures Snabb's app PcapFilter; portrange, tcp-port, src-net and host, filters of the
/// pflua project; ports and prefixes, lists of 200 ports and of 1,000 prefixes, as a ratio to one of them; history, the
/// filters that first met only matching, only other or only foreign packets (ARP, IPv6, UDP, ICMP), as a ratio to those
/// that met nothing before; compile, the time from the text to machine code, the first time in a process and again, of
/// the document's filter and of texts of 64 KiB.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Turns of about 1 ms per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = whole(1..=60_000))]
    rounds: usize,
    /// Another program with filters, which takes turns with this one (see bench/peers/filter.c)
    #[arg(long, value_name = "NAME=PROGRAM ARGUMENT …", hide = true)]
    peer: Vec<OtherProgram>,
}

impl Benchmark for Arguments {
    fn common(&self) -> Common {
        self.common.clone()
    }

    fn measured_labels(&self) -> &'static [&'static str] {
        &["clocks", "verdict"]
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
        run(self, &lab.worker("filter"), lab.observer).map(|report| Finished::new(report, Report::text_after_rows))
    }
}

/// Another program with filters, which speaks the [protocol](crate::workers) of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProgram {
    name: String,
    /// The program and its arguments. Appended: the expression, and a capture for each kind of [`Packets`].
    command: Vec<String>,
}

impl FromStr for OtherProgram {
    type Err = String;

    fn from_str(text: &str) -> Result<OtherProgram, String> {
        let (name, command) = text.split_once('=').unwrap_or_default();
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        match name.is_empty() || command.is_empty() {
            true => Err("give NAME=PROGRAM ARGUMENT …".to_owned()),
            false => Ok(OtherProgram { name: name.to_owned(), command }),
        }
    }
}

impl OtherProgram {
    /// The program for a filter whose packets are in a folder.
    fn peer(&self, filter: Filter, folder: &Path) -> Peer {
        let captures = Packets::MEASURED.map(|packets| folder.join(packets.name()).display().to_string());
        let arguments = self.command[1..].iter().cloned().chain([filter.expression()]).chain(captures);
        Peer { program: self.command[0].clone(), arguments: arguments.collect() }
    }
}

/// Writes the packets for a filter to a folder.
fn write_packets(filter: Filter, folder: &Path) -> Result<(), bellows_capture::Error> {
    for packets in Packets::MEASURED {
        let path = folder.join(packets.name());
        let mut writer = Writer::create(path, WriterOptions::default(), &[Interface::new(LinkType::ETHERNET)])?;
        for (frame, _) in packets.frames(filter, IN_FLIGHT) {
            writer.write(&Record {
                data: &frame,
                timestamp: 0,
                original_length: frame.len() as u32,
                interface: 0,
            })?;
        }
        writer.finish()?;
    }
    Ok(())
}

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    work: Work,
    rounds: usize,
    cpu: Option<usize>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Work {
    /// Decides packets, and has decided others before.
    Decide { filter: Filter, before: Option<Packets>, residence: Residence },
    Compile(Text),
}

/// Where packets are when a filter decides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Residence {
    /// One vector is decided again and again.
    Hot,
    /// That, and [`IN_FLIGHT`] packets.
    Both,
}

impl Residence {
    /// The numbers of packets to measure with.
    fn in_flight(self) -> &'static [usize] {
        match self {
            Residence::Hot => &[VECTOR],
            Residence::Both => &[VECTOR, IN_FLIGHT],
        }
    }

    /// The figures of a turn, in their order.
    fn figures(self) -> impl Iterator<Item = (usize, Packets, usize)> {
        let each = move |packets: Packets| self.in_flight().iter().map(move |&in_flight| (packets, in_flight));
        let all = Packets::MEASURED.into_iter().flat_map(each).enumerate();
        all.map(|(figure, (packets, in_flight))| (figure, packets, in_flight))
    }
}

/// A text to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Text {
    Document,
    Ports,
    Hosts,
    Alternating,
}

impl Text {
    const ALL: [Text; 4] = [Text::Document, Text::Ports, Text::Hosts, Text::Alternating];

    fn expression(self) -> String {
        let item: fn(usize) -> String = match self {
            Text::Document => return Filter::Document.expression(),
            Text::Ports => |number| format!("port {}", number % 65_536),
            Text::Hosts => |number| format!("host 10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255),
            Text::Alternating => |number| format!("tcp port {} and not host 10.0.0.{}", number % 65_536, number % 256),
        };
        let mut text = item(0);
        for next in (1..).map(|number| format!(" or {}", item(number))) {
            if text.len() + next.len() > LONG {
                break;
            }
            text += &next;
        }
        text
    }

    fn label(self) -> &'static str {
        match self {
            Text::Document => "document",
            Text::Ports => "ports",
            Text::Hosts => "hosts",
            Text::Alternating => "alternating",
        }
    }

    /// The maximum time in microseconds.
    fn target(self) -> Target {
        Target::AtMost(if self == Text::Document { 500.0 } else { 200_000.0 })
    }
}

/// Runs the benchmark. `arguments` make this program a worker that calls [`lay_out`].
fn run(options: &Arguments, arguments: &[&str], observer: &mut dyn Observer) -> Result<Report, BenchError> {
    let has_peers = !options.peer.is_empty();
    let cases = Case::ALL.into_iter().filter(|case| !has_peers || !case.filters().is_empty());
    let groups: Vec<Group> = chosen(cases, Case::name, &options.figures.case)?.into_iter().flat_map(groups).collect();
    let processes = options.figures.processes;
    let sides = |group: &Group| group.tasks.len() + if group.peers_run.is_some() { options.peer.len() } else { 0 };
    let all = groups.iter().map(sides).sum::<usize>() * processes;
    let mut session = Session::new(arguments, options.common.cpu, all, observer);
    let bench = if has_peers { "peers filter" } else { "filter" };
    let (mut table, mut results, mut notes) = (Table::default(), Vec::new(), Vec::new());
    for group in &groups {
        let folder = if has_peers { Some(Folder::new("filter")?) } else { None };
        let mut peers = Vec::new();
        if let (Some(folder), Some(filter)) = (&folder, group.peers_run) {
            write_packets(filter, &folder.0).map_err(BenchError::Capture)?;
            peers.extend(options.peer.iter().map(|peer| peer.peer(filter, &folder.0)));
        }
        let rounds = options.rounds.min(group.max_rounds);
        let task = |work: &Work| Task { work: *work, rounds, cpu: options.common.cpu };
        let matches = session.matches(processes, &[rounds], &peers, |_| group.tasks.iter().map(task).collect())?;
        let names: Vec<&str> = options.peer.iter().map(|peer| peer.name.as_str()).collect();
        let sides = matches.first().map_or(&[][..], |found| &found.sides);
        for (side, record) in sides.iter().enumerate() {
            let name = side.checked_sub(group.tasks.len()).map_or("bellows", |peer| names[peer]);
            let refused = |why: &String| format!("{} by {name} cannot be measured here: {why}", group.case.name());
            notes.extend(record.refused.as_ref().map(refused));
        }
        let found = group.results(&matches, if peers.is_empty() { &[] } else { &names });
        session.show(&table.part(bench, session.machine(), processes, &found));
        results.extend(found);
    }
    if results.is_empty() {
        return Err(match notes.pop() {
            Some(why) => BenchError::Refused(why),
            None => ProcessError::Interrupted.into(),
        });
    }
    let mut report = Report::of_turns(bench, session.info(), processes, results);
    notes.extend(conclusions(&report.results));
    report.notes = notes;
    Ok(report)
}

/// Processes that are compared.
struct Group {
    case: Case,
    tasks: Vec<Work>,
    max_rounds: usize,
    /// The filter that peers run beside the first task.
    peers_run: Option<Filter>,
}

/// The comparisons of a case.
fn groups(case: Case) -> Vec<Group> {
    let decide = |filter, before, residence| Work::Decide { filter, before, residence };
    let group = |tasks, max_rounds| Group { case, tasks, max_rounds, peers_run: None };
    match case {
        Case::Filter(_) | Case::List { .. } => {
            let filters = case.filters();
            let tasks = filters.iter().map(|&filter| decide(filter, None, Residence::Both)).collect();
            vec![Group { peers_run: filters.first().copied(), ..group(tasks, usize::MAX) }]
        }
        Case::History => {
            let befores = [None, Some(Packets::Matching), Some(Packets::Other), Some(Packets::Foreign)];
            let tasks = |filter| befores.map(|before| decide(filter, before, Residence::Hot)).into();
            Filter::SHORT.into_iter().map(|filter| group(tasks(filter), usize::MAX)).collect()
        }
        Case::Compile => {
            let turns = |text| if text == Text::Document { usize::MAX } else { LONG_TURNS };
            Text::ALL.into_iter().map(|text| group(vec![Work::Compile(text)], turns(text))).collect()
        }
    }
}

impl Group {
    /// The figures over all matches, and the ratios of turns.
    fn results(&self, matches: &[Match], peers: &[&str]) -> Vec<Measurement> {
        let each = |side, figure| -> Vec<f64> {
            matches.iter().filter_map(|found| found.figure(side, 0, figure)).collect()
        };
        let mut found = Vec::new();
        if let [Work::Compile(text)] = self.tasks[..] {
            for (figure, compiled) in ["first", "again"].into_iter().enumerate() {
                let labels = vec![
                    ("text", json!(text.label())),
                    ("bytes", text.expression().len().into()),
                    ("compiled", compiled.into()),
                ];
                let time = Measurement::compared(self.case.name(), "µs", &each(0, figure), labels);
                found.extend(time.map(|time| text.target().judge(time, matches.len())));
            }
            return found;
        }
        for (side, &task) in self.tasks.iter().enumerate() {
            let Work::Decide { filter, before, residence } = task else { continue };
            for (figure, packets, in_flight) in residence.figures() {
                let labels = |more: Vec<(&'static str, Value)>| {
                    let usual = [
                        ("filter", json!(filter.label())),
                        ("packets", json!(packets.name())),
                        ("in_flight", in_flight.into()),
                    ];
                    usual.into_iter().chain(more).collect::<Vec<_>>()
                };
                let ratios = |one, other| -> Vec<f64> {
                    matches.iter().filter_map(|found| found.ratio(one, other, 0)).collect()
                };
                let name = self.case.name();
                if self.case == Case::History {
                    let Some(before) = before else { continue };
                    let clocks = tenths(median_or_nan(&each(0, figure)));
                    let labels = labels(vec![("first", json!(before.name())), ("clocks", clocks)]);
                    let ratio = Measurement::compared(name, "ratio", &ratios((side, figure), (0, figure)), labels);
                    found.extend(ratio.map(|ratio| Target::Within(0.97, 1.03).judge(ratio, matches.len())));
                    continue;
                }
                let program = if peers.is_empty() { vec![] } else { vec![("program", json!("bellows"))] };
                found.extend(Measurement::compared(name, "clocks/packet", &each(side, figure), labels(program)));
                if side > 0 {
                    // A list over one of its items.
                    let labels = labels(vec![("of", json!("a list to one item"))]);
                    let ratio = Measurement::of(name, "ratio", &ratios((0, figure), (side, figure)), labels);
                    found.extend(ratio.map(|ratio| Target::AtMost(2.0).judge(ratio, matches.len())));
                }
            }
        }
        found
    }
}

fn tenths(clocks: f64) -> Value {
    json!((clocks * 10.0).round() / 10.0)
}

/// Lays out the work of one process.
///
/// # Errors
/// Why there is no machine code.
fn lay_out(task: Task) -> Result<Box<dyn Side>, String> {
    let Task { work, rounds, cpu } = task;
    settle(cpu);
    pool::ensure().unwrap_or_else(|error| fail(&error));
    match work {
        Work::Compile(text) => {
            let text = text.expression();
            let first = compile(&text).1;
            Ok(Box::new(Compiling { text, first }))
        }
        Work::Decide { filter, before, residence } => {
            let program = compile(&filter.expression()).0;
            if let Some(why) = program.fallback() {
                return Err(format!("the interpreter runs: {why}"));
            }
            let deciding = Deciding { program, residence, flows: Packets::MEASURED.map(|packets| Flow::new(filter, packets)) };
            if let Some(before) = before {
                let flow = Flow::new(filter, before);
                (0..rounds * SLICES).for_each(|_| flow.pass(&deciding.program, IN_FLIGHT));
            }
            Ok(Box::new(deciding))
        }
    }
}

/// Compiles a filter. Returns the clocks too.
fn compile(text: &str) -> (Program, u64) {
    let start = clock::ticks();
    let expression = Expression::parse(text, &Options::default()).unwrap_or_else(|mistake| fail(&mistake));
    let program = Program::new(expression.graph()).unwrap_or_else(|error| fail(&error));
    (program, clock::ticks() - start)
}

/// The worker's side: a text that is compiled once a turn.
struct Compiling {
    text: String,
    /// The clocks of the first time.
    first: u64,
}

impl Side for Compiling {
    fn turn(&mut self) -> Turn {
        let again = compile(&self.text).1;
        let micros = |clocks: u64| clocks as f64 * 1e6 / clock::ticks_per_second() as f64;
        Turn::of(vec![micros(self.first), micros(again)], &[Sliced::of(&[(1, again as f64)])])
    }
}

/// The worker's side: a filter and packets to decide.
struct Deciding {
    program: Program,
    residence: Residence,
    flows: [Flow; Packets::MEASURED.len()],
}

impl Side for Deciding {
    fn turn(&mut self) -> Turn {
        let Deciding { program, residence, flows } = self;
        let mut parts = Vec::new();
        for flow in flows {
            for &in_flight in residence.in_flight() {
                // Untimed, to reload the data that other processes evicted from the caches.
                flow.pass(program, in_flight);
                parts.push(sliced(SLICES, || flow.pass(program, in_flight)));
            }
        }
        Turn::of(parts.iter().map(|part| part.clocks / IN_FLIGHT as f64).collect(), &parts)
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.flows.iter().try_for_each(|flow| flow.check(&self.program))
    }
}

/// Packets in vectors.
struct Flow {
    vectors: Vec<Vec<Packet>>,
    /// How many of each vector match.
    matching: Vec<usize>,
}

impl Flow {
    fn new(filter: Filter, packets: Packets) -> Flow {
        let frames = packets.frames(filter, IN_FLIGHT);
        let packet = |(frame, _): &(Vec<u8>, bool)| {
            Packet::from_bytes(frame).unwrap_or_else(|| fail(&"there is no buffer for a packet"))
        };
        Flow {
            vectors: frames.chunks(VECTOR).map(|vector| vector.iter().map(packet).collect()).collect(),
            matching: frames.chunks(VECTOR).map(|vector| vector.iter().filter(|(_, matches)| *matches).count()).collect(),
        }
    }

    /// Decides [`IN_FLIGHT`] packets, of which this many are different ones.
    fn pass(&self, program: &Program, in_flight: usize) {
        let vectors = &self.vectors[..in_flight / VECTOR];
        let mut matches = Matches::default();
        for vector in vectors.iter().cycle().take(IN_FLIGHT / VECTOR) {
            program.matches(vector, &mut matches);
            black_box(&matches);
        }
    }

    /// Fails unless the filter matches what it should.
    fn check(&self, program: &Program) -> Result<(), String> {
        for (vector, &matching) in self.vectors.iter().zip(&self.matching) {
            let mut matches = Matches::default();
            program.matches(vector, &mut matches);
            if matches.count() != matching {
                let found = matches.count();
                return Err(format!("the filter matched {found} packets of a vector instead of {matching}"));
            }
        }
        Ok(())
    }
}

impl Listed for Arguments {
    const QUICK: &'static [&'static str] = &["--processes", "1", "--rounds", "1"];
    const REFUSED: &'static [(&'static [&'static str], &'static str)] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are document, portrange"),
        (&["--peer", "libpcap"], "give NAME=PROGRAM ARGUMENT"),
    ];

    fn work(_: &Registry) -> Result<(), std::io::Error> {
        workers::take_part(lay_out)
    }
}
