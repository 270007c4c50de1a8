//! The report of `bellows filter`, for people and for programs.

use std::fmt::Write;

use bellows_config::{DiagnosticEntry, Diagnostics};
use bellows_filter::plan::ExpressionPart;
use bellows_filter::{excerpt, listing};
use bellows_inspect::text::sanitize;
use bellows_observe::listing::CodeLine;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Arguments;
use super::captures::{Count, Listed};
use crate::filters::Compiled;
use crate::text::{count, percent, plural};

/// What there is to show.
pub struct View<'v> {
    pub text: &'v str,
    pub scope: &'static str,
    /// The expression for each link type; at least one.
    pub compiled: &'v [Compiled],
    pub counts: &'v [Count],
}

/// The report on an expression with an error.
pub fn refused(text: &str, scope: &str, diagnostics: &Diagnostics) -> Value {
    let (expression, diagnostics) = (text, diagnostics.entries());
    json!(Explained { expression, ok: false, scope, diagnostics, meaning: None, forms: None, captures: None })
}

impl View<'_> {
    /// The meaning, the chosen forms, and what matches.
    pub fn render(&self, arguments: &Arguments) -> String {
        let mut text = format!("{}\n", sanitize(&self.meaning()));
        for compiled in self.compiled {
            let mut add = |is_wanted: bool, name: &str, form: &dyn Fn() -> String| {
                if is_wanted {
                    let _ = write!(text, "\n{name} for {}:\n\n{}", compiled.link_type, form());
                }
            };
            add(arguments.graph, "graph", &|| self.graph(compiled));
            add(arguments.code, "machine code", &|| self.code(compiled));
            add(arguments.bpf, "BPF", &|| lines(listing(&compiled.expression.instructions())));
        }
        for (index, capture) in self.counts.iter().enumerate() {
            let is_apart = index == 0 || arguments.list;
            let (matches, packets) = (count(capture.matches), plural(capture.packets, "packet"));
            let share = match capture.packets {
                0 => String::new(),
                packets => format!(" ({})", percent(capture.matches as f64 / packets as f64)),
            };
            let verb = if capture.matches == 1 { "matches" } else { "match" };
            let file = sanitize(&capture.file);
            let _ = writeln!(text, "{}{file}: {matches} of {packets} {verb}{share}", if is_apart { "\n" } else { "" });
            text += &lines(capture.listed.iter().map(Listed::line));
        }
        text
    }

    /// The report as JSON, with the numbers of the packets that match if `list`.
    pub fn json(&self, warnings: &Diagnostics, list: bool) -> Value {
        let captures = self.counts.iter().map(|capture| FilteredCapture {
            file: &capture.file,
            packets: capture.packets,
            matches: capture.matches,
            damage: capture.damage.as_deref(),
            list: list.then_some(&capture.listed[..]),
        });
        json!(Explained {
            expression: self.text,
            ok: true,
            scope: self.scope,
            diagnostics: warnings.entries(),
            meaning: Some(self.meaning()),
            forms: Some(self.compiled.iter().map(|compiled| self.form(compiled)).collect()),
            captures: Some(captures.collect()),
        })
    }

    /// The expression with everything that its tests imply.
    fn meaning(&self) -> String {
        let meaning = self.compiled.first().map(|compiled| compiled.expression.explain()).unwrap_or_default();
        if meaning.is_empty() { "every packet".to_owned() } else { meaning }
    }

    fn graph(&self, compiled: &Compiled) -> String {
        let mut text = String::new();
        for (index, block) in compiled.expression.graph().blocks.iter().enumerate() {
            let part = excerpt(self.text, block.part.clone());
            let note = if part.is_empty() { String::new() } else { format!("  ; {}", sanitize(&part)) };
            let _ = writeln!(text, "{index}:{note}");
            for step in &block.steps {
                let _ = writeln!(text, "    {step}");
            }
            let _ = writeln!(text, "    {}", block.end);
        }
        text
    }

    fn code(&self, compiled: &Compiled) -> String {
        if let Some(reason) = compiled.program.fallback() {
            return format!("none: {}; the interpreter runs\n", sanitize(reason));
        }
        let (mut text, mut last) = (String::new(), None);
        for line in compiled.program.listing(|part| self.name(part)) {
            // Several tests may decide the same part.
            if line.label.is_some()
                && line.label != last
                && let Some(label) = &line.label
            {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}; {}", sanitize(label));
                last.clone_from(&line.label);
            }
            let _ = writeln!(text, "  {:x}  {}", line.address, line.text);
        }
        text
    }

    fn name(&self, part: &ExpressionPart) -> String {
        excerpt(self.text, part.text.clone())
    }

    fn form<'c>(&self, compiled: &'c Compiled) -> CompiledForm<'c> {
        let Compiled { link_type, expression, program } = compiled;
        let blocks = expression.graph().blocks.iter().map(|block| FilterBlock {
            part: excerpt(self.text, block.part.clone()),
            steps: block.steps.iter().map(ToString::to_string).collect(),
            end: block.end.to_string(),
        });
        let code = program.listing(|part| self.name(part)).into_iter().map(|line| CodeLine {
            address: line.address,
            bytes: line.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            text: line.text,
            label: line.label,
        });
        let instructions = expression.instructions();
        let bpf = instructions.iter().zip(listing(&instructions)).map(|(instruction, text)| BpfInstruction {
            code: instruction.code,
            jt: instruction.yes,
            jf: instruction.no,
            k: instruction.operand,
            text,
        });
        CompiledForm {
            link_type: link_type.number(),
            link_type_name: link_type.to_string(),
            constant: program.plan().constant().map(|verdict| verdict.first.is_some()),
            graph: blocks.collect(),
            bpf: bpf.collect(),
            code: code.collect(),
            fallback_reason: program.fallback(),
            table_bytes: program.size().1,
            assembling_ns: program.assembling().as_nanos() as u64,
        }
    }
}

/// The report as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Explained filter")]
pub struct Explained<'v> {
    /// The expression.
    expression: &'v str,
    /// Whether it was compiled. If not, `meaning`, `forms` and `captures` are absent, and the exit code is 2.
    ok: bool,
    /// How far `vlan` and other words shift what comes after them: `libpcap`, `libpcap-1.10` or `lexical`, as `--scope`
    /// has it.
    #[schemars(extend("enum" = ["libpcap", "libpcap-1.10", "lexical"]))]
    scope: &'v str,
    /// The error, or the warnings and notes; their `file` is `expression`.
    diagnostics: Vec<DiagnosticEntry>,
    /// The expression with everything that its tests imply.
    #[serde(skip_serializing_if = "Option::is_none")]
    meaning: Option<String>,
    /// The expression compiled, for each link type of the captures' packets, or for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    forms: Option<Vec<CompiledForm<'v>>>,
    /// The captures, in the order of the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    captures: Option<Vec<FilteredCapture<'v>>>,
}

/// An expression for packets of one link type.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Compiled filter")]
struct CompiledForm<'v> {
    /// The link type, as numbered by pcap.
    link_type: u32,
    /// The link type in words.
    link_type_name: String,
    /// The verdict if it is the same for all packets: true if all match; else null.
    constant: Option<bool>,
    /// The intermediate form: blocks, numbered from 0.
    graph: Vec<FilterBlock>,
    /// The program for kernels.
    bpf: Vec<BpfInstruction>,
    /// The machine code; empty if there is none.
    code: Vec<CodeLine>,
    /// A sentence: why there is no machine code; null if there is.
    fallback_reason: Option<&'v str>,
    /// Bytes of the tables that the code reads.
    table_bytes: usize,
    /// Time to assemble the code.
    assembling_ns: u64,
}

/// A block of the intermediate form.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Block of a filter")]
struct FilterBlock {
    /// The part of the expression that the block decides; of a part longer than 160 bytes start and end, with `…` between
    /// them.
    part: String,
    /// Its steps, as `--graph` prints them.
    steps: Vec<String>,
    /// Its end, as `--graph` prints it.
    end: String,
}

/// An instruction of the program for kernels.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "BPF instruction")]
struct BpfInstruction {
    /// As in `struct bpf_insn`.
    code: u16,
    /// As in `struct bpf_insn`.
    jt: u8,
    /// As in `struct bpf_insn`.
    jf: u8,
    /// As in `struct bpf_insn`.
    k: u32,
    /// The instruction as `tcpdump -d` prints it.
    text: String,
}

/// A capture and how many of its packets match.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Filtered capture")]
struct FilteredCapture<'v> {
    /// Its name.
    file: &'v str,
    /// Number of its packets.
    packets: u64,
    /// Number of those that match.
    matches: u64,
    /// Where and how it is damaged, a sentence; the packets before are counted, and the exit code is 1. Null if it is not.
    damage: Option<&'v str>,
    /// With `--list`, the packets that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<&'v [Listed]>,
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}
