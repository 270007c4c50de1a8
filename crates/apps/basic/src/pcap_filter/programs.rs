//! The programs of expressions, for one link type or for each that packets have; and what other threads see of them.

use std::net::Ipv4Addr;
use std::ops::Range;

use bellows_config::{Context, SettingError};
use bellows_engine::{Status, listing};
use bellows_filter::graph::{Block, BlockEnd, Graph};
use bellows_filter::plan::{DecisionMode, ExpressionPart, PlanError};
use bellows_filter::program::ProgramOptions as Code;
use bellows_filter::{
    ByLinkType, Expression, LinkType, Mistake, Options, Program, Scope, SystemNames, Warning, WarningKind, excerpt,
    parse_each,
};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::filters::FilterSource;

/// What the verdicts of expressions depend on, other than their texts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Choices {
    /// The only link type; `None` if each packet has its own.
    pub link_type: Option<LinkType>,
    pub scope: Scope,
    pub netmask: Option<Ipv4Addr>,
    pub mode: DecisionMode,
}

/// Expressions that are ready to decide, and their status.
pub(crate) struct Programs {
    sources: Vec<FilterSource>,
    /// The expressions with their implied qualifiers.
    explained: Vec<String>,
    is_by_packet: bool,
    compiled: ByLinkType,
}

impl Programs {
    /// Compiles expressions, and warns of what may surprise about them. Without any, no packet matches. An expression
    /// that libpcap refuses for one of several link types matches none of its packets.
    pub fn compile(sources: Vec<FilterSource>, choices: &Choices, context: &Context) -> Result<Programs, SettingError> {
        let link_types = match choices.link_type {
            _ if sources.is_empty() => Vec::new(),
            Some(only) => vec![only],
            None => LinkType::ALL.to_vec(),
        };
        let &Choices { scope, netmask, .. } = choices;
        let options = Options { scope, netmask, names: &SystemNames, ..Options::default() };
        let parse = |source: &FilterSource| {
            parse_each(&source.text, &link_types, &options).map_err(|mistake| source.mistake(mistake))
        };
        let parsed: Result<Vec<_>, _> = sources.iter().map(parse).collect();
        let parsed = parsed?;
        let nothing =
            Graph { blocks: vec![Block { steps: Vec::new(), end: BlockEnd::Reject, part: 0..0 }], registers: 0 };
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
        // Packets with link types of their own come from captures, which are not guarded.
        let worth_telling = |warning: &&Warning| match warning.kind {
            WarningKind::SkipsTagged => false,
            WarningKind::MatchesHidden => choices.link_type.is_some(),
            _ => true,
        };
        for (source, expression) in first {
            for Warning { range, message, .. } in expression.warnings().iter().filter(worth_telling) {
                let (range, message) = (range.clone(), message.clone());
                context.warn(source.mistake(Mistake { range, message, help: String::new() }));
            }
        }
        let explain =
            |of: &Vec<Option<Expression>>| of.iter().flatten().next().map_or(String::new(), Expression::explain);
        let explained = parsed.iter().map(explain).collect();
        let is_by_packet = choices.link_type.is_none();
        Ok(Programs { sources, explained, is_by_packet, compiled: ByLinkType::new(compiled) })
    }

    /// The expressions.
    pub fn sources(&self) -> &[FilterSource] {
        &self.sources
    }

    /// The program for all packets, unless it depends on their link types. Hot.
    #[inline]
    pub fn only(&self) -> Option<&Program> {
        self.compiled.programs().first().filter(|_| !self.is_by_packet).map(|(_, program)| program)
    }

    /// The programs of the expressions by link type.
    #[inline]
    pub fn by_link_type(&self) -> &ByLinkType {
        &self.compiled
    }

    /// Calls `run` with the program for each run of packets of one link type, `None` if there are no filters for it.
    /// Hot.
    #[inline]
    pub fn each(&self, packets: &[Packet], mut run: impl FnMut(Option<&Program>, Range<usize>)) {
        if !self.is_by_packet {
            return run(self.only(), 0..packets.len());
        }
        let mut start = 0;
        for same in packets.chunk_by(|packet, next| ByLinkType::number(packet) == ByLinkType::number(next)) {
            run(self.compiled.of(ByLinkType::number(&same[0])), start..start + same.len());
            start += same.len();
        }
    }

    /// The name of a part of the expressions.
    fn name(&self, part: &ExpressionPart) -> String {
        let Some(source) = self.sources.get(part.filter) else { return String::new() };
        let text = excerpt(&source.text, part.text.clone());
        match self.sources.len() {
            1 => text,
            _ => format!("{}: {text}", source.output),
        }
    }
}

/// The status of an app with filters.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `pcap-filter`, and of `pcap-reader` with a filter")]
pub(crate) struct FiltersStatus<'a> {
    /// The filters, in their order.
    filters: Vec<FilterStatus<'a>>,
    /// What they were compiled to, for each link type.
    programs: Vec<ProgramStatus>,
}

/// What the status says of a filter.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Filter")]
struct FilterStatus<'a> {
    /// The output for packets that match; `match` for `pcap-reader`.
    name: &'a str,
    /// The expression, with its implied qualifiers.
    expression: &'a str,
}

/// What the status says of the filters of a link type.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Program of filters")]
struct ProgramStatus {
    /// The link type of the packets, in words.
    link_type: String,
    /// Bytes of machine code; 0 without.
    code_bytes: usize,
    /// Bytes of the tables that it reads.
    table_bytes: usize,
    /// A sentence: why the interpreter runs instead; null if it does not.
    fallback_reason: Option<String>,
}

impl Status for Programs {
    fn status(&self) -> Value {
        let filters = self.sources.iter().zip(&self.explained);
        let filters = filters.map(|(source, expression)| FilterStatus { name: &source.output, expression });
        let program = |(link_type, program): &(LinkType, Program)| {
            let (code_bytes, table_bytes) = program.size();
            let fallback_reason = program.fallback().map(str::to_owned);
            ProgramStatus { link_type: link_type.to_string(), code_bytes, table_bytes, fallback_reason }
        };
        json!(FiltersStatus {
            filters: filters.collect(),
            programs: self.compiled.programs().iter().map(program).collect(),
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
        self.compiled.programs().iter().map(of_program).collect()
    }
}
