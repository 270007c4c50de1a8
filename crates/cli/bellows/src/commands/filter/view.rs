//! The report of `bellows filter`, for people and for programs.

use std::fmt::Write;

use bellows_config::Diagnostics;
use bellows_filter::plan::ExpressionPart;
use bellows_filter::{excerpt, listing};
use bellows_inspect::text::sanitize;
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
    json!({ "expression": text, "ok": false, "scope": scope, "diagnostics": diagnostics.to_json() })
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
        let forms: Vec<Value> = self.compiled.iter().map(|compiled| self.form(compiled)).collect();
        let captures = self.counts.iter().map(|capture| {
            let mut entry = json!({
                "file": capture.file, "packets": capture.packets, "matches": capture.matches, "damage": capture.damage,
            });
            if list {
                entry["list"] = capture.listed.iter().map(listed).collect();
            }
            entry
        });
        json!({
            "expression": self.text, "ok": true, "scope": self.scope, "diagnostics": warnings.to_json(),
            "meaning": self.meaning(), "forms": forms, "captures": captures.collect::<Vec<_>>(),
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

    fn form(&self, compiled: &Compiled) -> Value {
        let Compiled { link_type, expression, program } = compiled;
        let blocks = expression.graph().blocks.iter().map(|block| {
            let steps: Vec<String> = block.steps.iter().map(ToString::to_string).collect();
            json!({ "part": excerpt(self.text, block.part.clone()), "steps": steps, "end": block.end.to_string() })
        });
        let code = program.listing(|part| self.name(part)).into_iter().map(|line| {
            let bytes: String = line.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut entry = json!({ "address": line.address, "bytes": bytes, "text": line.text });
            if let Some(label) = line.label {
                entry["label"] = json!(label);
            }
            entry
        });
        let instructions = expression.instructions();
        let bpf = instructions.iter().zip(listing(&instructions)).map(|(instruction, text)| {
            json!({
                "code": instruction.code, "jt": instruction.yes, "jf": instruction.no, "k": instruction.operand,
                "text": text,
            })
        });
        json!({
            "link_type": link_type.number(), "link_type_name": link_type.to_string(),
            "constant": program.plan().constant().map(|verdict| verdict.first.is_some()),
            "fallback_reason": program.fallback(), "table_bytes": program.size().1,
            "assembling_ns": program.assembling().as_nanos() as u64,
            "graph": blocks.collect::<Vec<_>>(), "code": code.collect::<Vec<_>>(), "bpf": bpf.collect::<Vec<_>>(),
        })
    }
}

fn listed(packet: &Listed) -> Value {
    json!({ "number": packet.number, "time_ns": packet.time_ns, "summary": packet.summary })
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}
