//! The programs of expressions, for one link type or for each that packets have; and what other threads see of them.

use std::net::Ipv4Addr;
use std::ops::Range;

use bellows_config::{Context, SettingError};
use bellows_engine::{Status, listing};
use bellows_filter::graph::{Block, End, Graph};
use bellows_filter::interpret::PacketView;
use bellows_filter::plan::{Mode, Part, PlanError};
use bellows_filter::program::Options as Code;
use bellows_filter::{Expression, LinkType, Options, Program, Scope, SystemNames, Warning, WarningKind};
use bellows_packet::{Meta, Packet};
use serde_json::{Value, json};

use super::filters::Source;

/// What the verdicts of expressions depend on, other than their texts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Choices {
    /// The only link type; `None` if each packet has its own.
    pub link_type: Option<LinkType>,
    pub scope: Scope,
    pub netmask: Option<Ipv4Addr>,
    pub mode: Mode,
}

/// Expressions that are ready to decide, and their status.
pub(crate) struct Programs {
    sources: Vec<Source>,
    /// The expressions with their implied qualifiers.
    explained: Vec<String>,
    is_by_packet: bool,
    /// By link type.
    compiled: Vec<(LinkType, Program)>,
}

impl Programs {
    /// Compiles expressions. Without any, no packet matches. The texts are what may surprise about them. An expression
    /// that libpcap refuses for one of several link types matches none of its packets.
    pub fn compile(
        sources: Vec<Source>,
        choices: &Choices,
        context: &Context,
    ) -> Result<(Programs, Vec<String>), SettingError> {
        let link_types = match choices.link_type {
            _ if sources.is_empty() => Vec::new(),
            Some(only) => vec![only],
            None => LinkType::ALL.to_vec(),
        };
        let parsed: Result<Vec<_>, _> = sources.iter().map(|source| parse_all(source, &link_types, choices)).collect();
        let parsed = parsed?;
        let nothing = Graph { blocks: vec![Block { steps: Vec::new(), end: End::Reject, part: 0..0 }], registers: 0 };
        let mut compiled = Vec::new();
        for (index, &link_type) in link_types.iter().enumerate() {
            let graphs: Vec<&Graph> =
                parsed.iter().map(|of| of[index].as_ref().map_or(&nothing, Expression::graph)).collect();
            // What is wrong with a graph is not in the text.
            let wrong = |error: PlanError| sources[0].error(error.to_string(), "give a simpler filter");
            let code = Code { for_perf: context.for_perf, ..Code::default() };
            compiled.push((link_type, Program::with(&graphs, choices.mode, code).map_err(wrong)?));
        }
        // The first link type, which is Ethernet, stands for the others, which say the same.
        let first = sources.iter().zip(&parsed).filter_map(|(source, of)| Some((source, of.first()?.as_ref()?)));
        let worth_telling = |warning: &&Warning| warning.kind != WarningKind::SkipsTagged;
        let warnings = first.flat_map(|(source, expression)| {
            expression.warnings().iter().filter(worth_telling).map(|warning| {
                let part = source.text.get(warning.range.clone()).unwrap_or_default();
                format!("`{}`: {}: `{part}`: {}", context.app, source.place(), warning.message)
            })
        });
        let warnings = warnings.collect();
        let explain =
            |of: &Vec<Option<Expression>>| of.iter().flatten().next().map_or(String::new(), Expression::explain);
        let explained = parsed.iter().map(explain).collect();
        let is_by_packet = choices.link_type.is_none();
        Ok((Programs { sources, explained, is_by_packet, compiled }, warnings))
    }

    /// The expressions.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The program for all packets, unless it depends on their link types. Hot.
    #[inline]
    pub fn only(&self) -> Option<&Program> {
        self.compiled.first().filter(|_| !self.is_by_packet).map(|(_, program)| program)
    }

    /// The program for packets of a link type, by its number in captures. Hot.
    #[inline]
    pub fn of(&self, number: u32) -> Option<&Program> {
        let link_type = LinkType::from_number(number).ok()?;
        self.compiled.iter().find(|(known, _)| *known == link_type).map(|(_, program)| program)
    }

    /// Whether a packet matches the first expression. Hot.
    #[inline]
    pub fn matches(&self, packet: &Packet) -> bool {
        self.matches_bytes(packet.bytes(), &packet.meta().unwrap_or(WITHOUT_META))
    }

    /// As [`Programs::matches`], for a packet that is not in a buffer yet. Hot.
    #[inline]
    pub fn matches_bytes(&self, bytes: &[u8], meta: &Meta) -> bool {
        let wire_length = meta.original_length.max(bytes.len() as u32);
        self.of(meta.link_type).is_some_and(|program| program.decide(PacketView { bytes, wire_length }).first.is_some())
    }

    /// Calls `run` with the program for each run of packets of one link type, `None` if there are no filters for it.
    /// Hot.
    #[inline]
    pub fn each(&self, packets: &[Packet], mut run: impl FnMut(Option<&Program>, Range<usize>)) {
        if !self.is_by_packet {
            return run(self.only(), 0..packets.len());
        }
        let mut start = 0;
        for same in packets.chunk_by(|packet, next| number(packet) == number(next)) {
            run(self.of(number(&same[0])), start..start + same.len());
            start += same.len();
        }
    }

    /// The name of a part of the expressions.
    fn name(&self, part: &Part) -> String {
        let Some(source) = self.sources.get(part.filter) else { return String::new() };
        let text =
            source.text.get(part.text.clone()).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        match self.sources.len() {
            1 => text,
            _ => format!("{}: {text}", source.output),
        }
    }
}

/// What packets without metadata are.
const WITHOUT_META: Meta = Meta { timestamp: 0, original_length: 0, ingress_port: 0, link_type: 1 };

/// The number of a packet's link type.
#[inline]
pub(super) fn number(packet: &Packet) -> u32 {
    packet.meta().unwrap_or(WITHOUT_META).link_type
}

/// The expression for each link type, for at least one of them.
fn parse_all(
    source: &Source,
    link_types: &[LinkType],
    choices: &Choices,
) -> Result<Vec<Option<Expression>>, SettingError> {
    let &Choices { scope, netmask, .. } = choices;
    let mut first = None;
    let mut parse = |&link_type: &LinkType| {
        let options = Options { link_type, scope, netmask, names: &SystemNames, ..Options::default() };
        Expression::parse(&source.text, &options).map_err(|mistake| first.get_or_insert(mistake).clone()).ok()
    };
    let parsed: Vec<Option<Expression>> = link_types.iter().map(&mut parse).collect();
    match first {
        Some(mistake) if parsed.iter().all(Option::is_none) => Err(source.mistake(mistake)),
        _ => Ok(parsed),
    }
}

impl Status for Programs {
    fn status(&self) -> Value {
        let filter =
            |(source, explained): (&Source, &String)| json!({ "name": source.output, "expression": explained });
        let program = |(link_type, program): &(LinkType, Program)| {
            let (code, tables) = program.size();
            json!({
                "link_type": link_type.to_string(), "code_bytes": code, "table_bytes": tables,
                "fallback_reason": program.fallback(),
            })
        };
        json!({
            "filters": self.sources.iter().zip(&self.explained).map(filter).collect::<Vec<_>>(),
            "programs": self.compiled.iter().map(program).collect::<Vec<_>>(),
        })
    }

    fn code(&self) -> Vec<Vec<listing::CodeLine>> {
        let of_program = |(link_type, program): &(LinkType, Program)| {
            let of_type = if self.is_by_packet { format!(" ({link_type})") } else { String::new() };
            let lines = program.listing(|part| self.name(part)).into_iter();
            let line = move |line: bellows_filter::CodeLine| listing::CodeLine {
                address: line.address,
                bytes: line.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                text: line.text,
                label: line.label.map(|label| format!("{label}{of_type}")),
            };
            lines.map(line).collect()
        };
        self.compiled.iter().map(of_program).collect()
    }
}
