//! The processes that measure: packets to decide, and texts to compile.

use std::hint::black_box;

use bellows_filter::{Expression, Matches, Options, Program};
use bellows_packet::{Packet, pool};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use super::filters::{Filter, Packets};
use super::states::States;
use super::{IN_FLIGHT, VECTOR};
use crate::slices::{Sliced, Turn, sliced};
use crate::targets::Target;
use crate::workers::{Contender, fail, settle};

/// Timed slices of a figure in a turn, each of [`IN_FLIGHT`] packets.
const SLICES: usize = 12;

/// Bytes of the long texts.
const LONG: usize = 64 << 10;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FilterTask {
    pub(super) work: FilterWork,
    pub(super) rounds: usize,
    pub(super) cpu: Option<usize>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FilterWork {
    /// Decides packets, and has decided others before.
    Decide {
        filter: Filter,
        before: Option<Packets>,
        residence: Residence,
    },
    Compile(CompiledText),
    /// Decides packets of this number of established connections.
    States(u32),
}

/// Where packets are when a filter decides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Residence {
    /// One vector is decided again and again.
    Hot,
    /// That, and [`IN_FLIGHT`] packets.
    Both,
}

impl Residence {
    /// The numbers of packets to measure with.
    pub(super) fn in_flight(self) -> &'static [usize] {
        match self {
            Residence::Hot => &[VECTOR],
            Residence::Both => &[VECTOR, IN_FLIGHT],
        }
    }

    /// The figures of a turn, in their order.
    pub(super) fn figures(self) -> impl Iterator<Item = (usize, Packets, usize)> {
        let each = move |packets: Packets| self.in_flight().iter().map(move |&in_flight| (packets, in_flight));
        let all = Packets::MEASURED.into_iter().flat_map(each).enumerate();
        all.map(|(figure, (packets, in_flight))| (figure, packets, in_flight))
    }
}

/// A text to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CompiledText {
    Document,
    Ports,
    CarriedPorts,
    Portranges,
    Hosts,
    Alternating,
    Groups,
}

impl CompiledText {
    pub(super) const ALL: [CompiledText; 7] = [
        CompiledText::Document,
        CompiledText::Ports,
        CompiledText::CarriedPorts,
        CompiledText::Portranges,
        CompiledText::Hosts,
        CompiledText::Alternating,
        CompiledText::Groups,
    ];

    pub(super) fn expression(self) -> String {
        // Each port once, in no order.
        let port = |number: usize| number * 7_919 % 65_536;
        let item: &dyn Fn(usize) -> String = match self {
            CompiledText::Document => return Filter::Document.expression(),
            CompiledText::Ports => &|number| format!("port {}", port(number)),
            CompiledText::CarriedPorts => {
                &|number| if number == 0 { "port 0".to_owned() } else { port(number).to_string() }
            }
            CompiledText::Portranges => &|number| format!("portrange {}-{}", 10 * number, 10 * number + 5),
            CompiledText::Hosts => &|number| format!("host 10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255),
            CompiledText::Alternating => {
                &|number| format!("tcp port {} and not host 10.0.0.{}", port(number), number % 256)
            }
            CompiledText::Groups => &|number| {
                let [.., high, low] = number.to_be_bytes();
                format!("((port {} and host 10.0.{high}.{low}) and not udp)", port(number))
            },
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

    pub(super) fn label(self) -> &'static str {
        match self {
            CompiledText::Document => "document",
            CompiledText::Ports => "ports",
            CompiledText::CarriedPorts => "carried ports",
            CompiledText::Portranges => "portranges",
            CompiledText::Hosts => "hosts",
            CompiledText::Alternating => "alternating",
            CompiledText::Groups => "groups",
        }
    }

    /// The maximum time in microseconds.
    pub(super) fn target(self) -> Target {
        Target::AtMost(if self == CompiledText::Document { 500.0 } else { 200_000.0 })
    }
}

/// Lays out the work of one process.
///
/// # Errors
/// Why there is no machine code.
pub(super) fn lay_out(task: FilterTask) -> Result<Box<dyn Contender>, String> {
    let FilterTask { work, rounds, cpu } = task;
    settle(cpu);
    pool::ensure().unwrap_or_else(|error| fail(&error));
    match work {
        FilterWork::Compile(text) => {
            let text = text.expression();
            let first = compile(&text).1;
            Ok(Box::new(Compiling { text, first }))
        }
        FilterWork::States(connections) => Ok(Box::new(States::new(connections))),
        FilterWork::Decide { filter, before, residence } => {
            let program = compile(&filter.expression()).0;
            if let Some(why) = program.fallback() {
                return Err(format!("the interpreter runs: {why}"));
            }
            let deciding = Deciding {
                program,
                residence,
                flows: Packets::MEASURED.map(|packets| FilterFlow::new(filter, packets)),
            };
            if let Some(before) = before {
                let flow = FilterFlow::new(filter, before);
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

impl Contender for Compiling {
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
    flows: [FilterFlow; Packets::MEASURED.len()],
}

impl Contender for Deciding {
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
struct FilterFlow {
    vectors: Vec<Vec<Packet>>,
    /// How many of each vector match.
    matching: Vec<usize>,
}

impl FilterFlow {
    fn new(filter: Filter, packets: Packets) -> FilterFlow {
        let frames = packets.frames(filter, IN_FLIGHT);
        let packet = |(frame, _): &(Vec<u8>, bool)| {
            Packet::from_bytes(frame).unwrap_or_else(|| fail(&"there is no buffer for a packet"))
        };
        FilterFlow {
            vectors: frames.chunks(VECTOR).map(|vector| vector.iter().map(packet).collect()).collect(),
            matching: frames
                .chunks(VECTOR)
                .map(|vector| vector.iter().filter(|(_, matches)| *matches).count())
                .collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_as_long_as_they_may_be() {
        for text in CompiledText::ALL.into_iter().filter(|&text| text != CompiledText::Document) {
            let length = text.expression().len();
            assert!((LONG - 50..=LONG).contains(&length), "{text:?}: {length}");
        }
    }

    #[test]
    fn a_side_measures_every_figure_and_checks_what_its_filter_matches() {
        for (residence, figures) in [(Residence::Hot, 3), (Residence::Both, 6)] {
            let work = FilterWork::Decide { filter: Filter::Host, before: Some(Packets::Foreign), residence };
            // A machine without machine code measures nothing.
            let Ok(mut side) = lay_out(FilterTask { work, rounds: 1, cpu: None }) else { return };
            let turn = side.turn();
            assert_eq!((turn.figures.len(), residence.figures().count()), (figures, figures));
            assert!(turn.figures.iter().all(|&clocks| clocks > 0.0), "{turn:?}");
            assert_eq!(side.finish(), Ok(()));
        }
        let (other, flow) = (compile("host 9.9.9.9").0, FilterFlow::new(Filter::Host, Packets::Matching));
        let wrong = flow.check(&other).unwrap_err();
        assert!(wrong.contains("matched 0 packets of a vector instead of 128"), "{wrong}");
    }

    #[test]
    fn a_text_is_compiled_once_a_turn() {
        let mut side =
            lay_out(FilterTask { work: FilterWork::Compile(CompiledText::Document), rounds: 1, cpu: None }).unwrap();
        let [first, again] = side.turn().figures[..] else { panic!("two figures") };
        assert!(first > 0.0 && again > 0.0);
    }
}
