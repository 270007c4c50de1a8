//! Plans as machine code: one function that decides a vector of packets.
//!
//! | module | contents |
//! |---|---|
//! | `writer` | the code of a plan |
//! | `groups` | the loop over groups of packets |
//! | `chains`, `flat` | the last tests of a path at once, without a branch: in a group, and of a single packet |
//! | `conditions`, `tuples` | tests |
//! | `values` | values in registers |
//! | `machine` | flags, operands and registers |
//! | `tables` | tables for long lists |
//! | `short_lists` | tests of a few intervals at once |
//! | `call` | calls the code: the only `unsafe` of the crate |

pub(crate) mod call;
mod chains;
mod conditions;
mod flat;
mod groups;
mod machine;
mod short_lists;
mod tables;
mod tuples;
mod values;
mod writer;

use std::mem::offset_of;
use std::time::{Duration, Instant};

use bellows_arena::Fixed;
use bellows_codemem::assembler::{self, Mark};
use bellows_codemem::{Code, Draft, Symbol};
use bellows_packet::handle;

use self::call::Handle;
use self::writer::{Section, Writer};
use crate::code_line::CodeLine;
use crate::plan::{ExpressionPart, Plan};

/// Bytes of a handle.
const HANDLE_SIZE: usize = handle::SIZE;

/// Where the length is in a handle: the low bits of this word.
const HANDLE_WORD: usize = handle::WORD;

/// The bits of the length in that word.
const HANDLE_LENGTH_MASK: u32 = handle::LENGTH_MASK;

// The code reads handles of packets and handles made of slices.
const _: () = assert!(size_of::<Handle>() == HANDLE_SIZE && HANDLE_SIZE.is_power_of_two());
const _: () = assert!(offset_of!(Handle, data) == handle::DATA && handle::DATA == 0);
const _: () = assert!(offset_of!(Handle, length) == HANDLE_WORD);

/// The code of a plan.
pub(crate) struct Native {
    code: Code,
    marks: Vec<Mark<Section>>,
    /// Tables that the code reads.
    tables: Fixed<[u32]>,
    assembling: Duration,
}

impl Native {
    /// Writes the code of a plan; with `for_perf` in memory for which `perf` uses the map. The error is the fallback
    /// reason.
    pub(crate) fn assemble(plan: &Plan, for_perf: bool) -> Result<Native, String> {
        if !std::is_x86_feature_detected!("sse4.2") {
            return Err("the processor lacks SSE 4.2, which the code of filters needs".to_owned());
        }
        let start = Instant::now();
        let function = Writer::new(plan).write().map_err(|error| error.to_string())?;
        let near = call::run as *const () as usize;
        let draft = Draft::near(near..=near, function.bytes.len()).map_err(|refused| refused.to_string())?;
        let seal = if for_perf { Draft::seal_for_perf } else { Draft::seal };
        let code = seal(draft, &function.bytes).map_err(|refused| refused.to_string())?;
        Ok(Native { code, marks: function.marks, tables: function.tables, assembling: start.elapsed() })
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    pub(crate) fn table_bytes(&self) -> usize {
        size_of_val(&*self.tables)
    }

    pub(crate) fn assembling(&self) -> Duration {
        self.assembling
    }

    /// The sections of the code, for `perf`, with names from `name`.
    pub(crate) fn symbols(&self, name: impl Fn(&ExpressionPart) -> String) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = Vec::new();
        let ends = self.marks.iter().skip(1).map(|mark| mark.offset).chain([self.code.bytes().len()]);
        for (mark, end) in self.marks.iter().zip(ends) {
            let (start, size) = (self.code.address() + mark.offset, end - mark.offset);
            let name = format!("filter: {}", label(&mark.part, &name));
            match symbols.last_mut() {
                Some(last) if last.name == name => last.size += size,
                _ if size > 0 => symbols.push(Symbol { start, size, name }),
                _ => {}
            }
        }
        symbols
    }

    /// The code, instruction by instruction. `name` names parts of the expressions.
    pub(crate) fn listing(&self, name: impl Fn(&ExpressionPart) -> String) -> Vec<CodeLine> {
        let lines = assembler::listing(
            self.code.bytes(),
            self.code.address(),
            &self.marks,
            |section| label(section, &name),
            |_| None,
        );
        let line = |line: assembler::CodeLine| CodeLine {
            address: line.address as u64,
            bytes: line.bytes,
            text: line.text,
            label: line.label,
        };
        lines.into_iter().map(line).collect()
    }
}

fn label(section: &Section, name: impl Fn(&ExpressionPart) -> String) -> String {
    match section {
        Section::Entry => "entry".to_owned(),
        Section::Test(part) => name(part),
        Section::Verdict => "verdict".to_owned(),
    }
}
