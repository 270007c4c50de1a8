//! Verdicts on the packets of a vector.

use bellows_config::SettingError;
use bellows_filter::graph::{Block, End, Graph};
use bellows_filter::plan::Mode;
use bellows_filter::program::Options as Code;
use bellows_filter::{Expression, LinkType, Matches, Options, Program, SystemNames, Warning};
use bellows_packet::Packet;

use super::filters::Source;
use super::{Config, Which};

/// Decides which filters packets match.
pub(super) struct Decider {
    filters: usize,
    programs: Programs,
    matches: Matches,
}

enum Programs {
    /// No packet matches.
    Nothing,
    /// For packets of one link type.
    Only(Box<Program>),
    /// By link type.
    ByPacket(Vec<(LinkType, Program)>),
}

/// Warnings, each with the position of its expression.
type Found = Vec<(usize, Warning)>;

impl Decider {
    /// Compiles expressions. Without any there is one filter, which matches nothing.
    pub fn new(sources: &[Source], config: &Config) -> Result<(Decider, Found), SettingError> {
        if sources.is_empty() {
            return Ok((Decider { filters: 1, programs: Programs::Nothing, matches: Matches::default() }, Vec::new()));
        }
        let (programs, found) = match config.link_type.only() {
            Some(link_type) => {
                let expressions: Result<Vec<Expression>, SettingError> =
                    sources.iter().map(|source| parse(source, link_type, config)).collect();
                let expressions = expressions?;
                let graphs: Vec<&Graph> = expressions.iter().map(Expression::graph).collect();
                let program = compile(&graphs, sources, config)?;
                (Programs::Only(Box::new(program)), warnings(&expressions))
            }
            None => by_packet(sources, config)?,
        };
        Ok((Decider { filters: sources.len(), programs, matches: Matches::default() }, found))
    }

    /// The number of the first filter that matches each packet, or the number of filters where none does. Hot.
    pub fn first(&mut self, packets: &[Packet], numbers: &mut [u16]) {
        let Decider { filters, programs, matches } = self;
        programs.each(packets, |program, range| {
            let numbers = &mut numbers[range.clone()];
            match program {
                Some(program) if *filters == 1 => {
                    program.matches(&packets[range], matches);
                    spread(matches, numbers);
                }
                Some(program) => program.first(&packets[range], numbers),
                None => numbers.fill(*filters as u16),
            }
        });
    }

    /// For each packet a bit for each filter that matches. Hot.
    pub fn all(&self, packets: &[Packet], sets: &mut [u64]) {
        self.programs.each(packets, |program, range| {
            let sets = &mut sets[range.clone()];
            match program {
                Some(program) => program.all(&packets[range], sets),
                None => sets.fill(0),
            }
        });
    }
}

impl Programs {
    /// Calls `run` with the program for each run of packets of one link type, `None` if there are no filters for it.
    #[inline]
    fn each(&self, packets: &[Packet], mut run: impl FnMut(Option<&Program>, std::ops::Range<usize>)) {
        let programs = match self {
            Programs::Nothing => return run(None, 0..packets.len()),
            Programs::Only(program) => return run(Some(program), 0..packets.len()),
            Programs::ByPacket(programs) => programs,
        };
        let mut start = 0;
        for same in packets.chunk_by(|packet, next| number(packet) == number(next)) {
            let link_type = LinkType::from_number(number(&same[0])).ok();
            let program = programs.iter().find(|(known, _)| Some(*known) == link_type).map(|(_, program)| program);
            run(program, start..start + same.len());
            start += same.len();
        }
    }
}

/// The number of a packet's link type.
#[inline]
pub(super) fn number(packet: &Packet) -> u32 {
    packet.meta().map_or(1, |meta| meta.link_type)
}

/// 0 for packets that match and 1 for others.
#[inline]
fn spread(matches: &Matches, numbers: &mut [u16]) {
    for (numbers, &word) in numbers.chunks_mut(64).zip(matches.words()) {
        for (index, number) in numbers.iter_mut().enumerate() {
            *number = u16::from(word >> index & 1 == 0);
        }
    }
}

fn parse(source: &Source, link_type: LinkType, config: &Config) -> Result<Expression, SettingError> {
    let names = &SystemNames;
    let options = Options { link_type, scope: config.scope.into(), names, ..Options::default() };
    Expression::parse(&source.text, &options).map_err(|mistake| source.mistake(mistake))
}

fn compile(graphs: &[&Graph], sources: &[Source], config: &Config) -> Result<Program, SettingError> {
    let mode = match config.which {
        Which::First => Mode::First,
        Which::All => Mode::All,
    };
    // What is wrong with a graph is not in the text.
    let wrong = |error: bellows_filter::plan::PlanError| sources[0].error(error.to_string(), "give a simpler filter");
    Program::with(graphs, mode, Code::default()).map_err(wrong)
}

fn warnings(expressions: &[Expression]) -> Found {
    let each = expressions.iter().enumerate();
    each.flat_map(|(index, expression)| expression.warnings().iter().map(move |warning| (index, warning.clone())))
        .collect()
}

/// Programs for all link types. An expression that libpcap refuses for a link type matches none of its packets.
fn by_packet(sources: &[Source], config: &Config) -> Result<(Programs, Found), SettingError> {
    let nothing = Graph { blocks: vec![Block { steps: Vec::new(), end: End::Reject, part: 0..0 }], registers: 0 };
    let mut parsed: Vec<Vec<Option<Expression>>> = Vec::new();
    for source in sources {
        let mut mistake = None;
        let results = LinkType::ALL.map(|link_type| match parse(source, link_type, config) {
            Ok(expression) => Some(expression),
            Err(error) => {
                mistake.get_or_insert(error);
                None
            }
        });
        if let (Some(mistake), true) = (mistake, results.iter().all(Option::is_none)) {
            return Err(mistake);
        }
        parsed.push(results.into());
    }
    let mut programs = Vec::new();
    for (index, link_type) in LinkType::ALL.into_iter().enumerate() {
        let graphs: Vec<&Graph> =
            parsed.iter().map(|of| of[index].as_ref().map_or(&nothing, Expression::graph)).collect();
        programs.push((link_type, compile(&graphs, sources, config)?));
    }
    // Those for Ethernet stand for the others, which say the same.
    let ethernet = parsed.iter().enumerate().filter_map(|(index, of)| Some((index, of.first()?.as_ref()?)));
    let found = ethernet
        .flat_map(|(index, expression)| expression.warnings().iter().map(move |warning| (index, warning.clone())));
    let found = found.collect();
    Ok((Programs::ByPacket(programs), found))
}
