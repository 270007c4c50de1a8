//! The instructions of a function, with the samples of each.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, Mnemonic, NasmFormatter};
use schemars::JsonSchema;
use serde::Serialize;

use super::image::{Function, Image};
use super::name;

/// An instruction.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Sampled instruction")]
pub struct CodeLine {
    /// Its address in the module's file, as `objdump` shows it; for `assembled`, in the process's memory.
    pub address: u64,
    /// Its bytes, in hexadecimal.
    pub bytes: String,
    /// The instruction in NASM syntax; calls have the name of the function.
    pub text: String,
    /// Its samples.
    pub samples: u64,
    /// Their share of the function's samples, from 0 to 1.
    pub share: f64,
}

/// The number of instructions shown on either side of a hot one.
const CONTEXT: usize = 4;

/// The maximum length of a function to disassemble, in bytes.
const MAX_FUNCTION_LEN: u64 = 1 << 20;

/// The instructions from the first to the last with samples, and some around them; none if the bytes are unknown.
pub fn instructions(
    image: &mut Image,
    module: usize,
    function: &Function,
    samples: &HashMap<u64, u64>,
) -> Vec<CodeLine> {
    if function.range.end - function.range.start > MAX_FUNCTION_LEN {
        return Vec::new();
    }
    let Some(bytes) = image.module(module).bytes(&function.range).map(<[u8]>::to_vec) else { return Vec::new() };
    let total = samples.values().sum::<u64>().max(1) as f64;
    let mut formatter = NasmFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_uppercase_hex(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    options.set_signed_immediate_operands(true);
    let mut decoder = Decoder::with_ip(64, &bytes, function.range.start, DecoderOptions::NONE);
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let start = decoder.position();
        let instruction = decoder.decode();
        let samples = samples.get(&instruction.ip()).copied().unwrap_or_default();
        lines.push(CodeLine {
            address: instruction.ip(),
            bytes: bytes[start..decoder.position()].iter().map(|byte| format!("{byte:02x}")).collect(),
            text: text(image, module, function, &instruction, &mut formatter),
            samples,
            share: samples as f64 / total,
        });
    }
    let first = lines.iter().position(|line| line.samples > 0).unwrap_or(lines.len());
    let last = lines.iter().rposition(|line| line.samples > 0).unwrap_or(0);
    lines.truncate(last + 1 + CONTEXT);
    lines.drain(..first.saturating_sub(CONTEXT).min(lines.len()));
    lines
}

/// An instruction as text. Targets of calls and jumps outside of its function appear by name.
fn text(
    image: &mut Image,
    module: usize,
    function: &Function,
    instruction: &Instruction,
    formatter: &mut NasmFormatter,
) -> String {
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    // 0 for instructions other than calls and jumps.
    let target = instruction.near_branch_target();
    let target = if target != 0 && !function.range.contains(&target) {
        image.target(module, target)
    } else if matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp) && instruction.is_ip_rel_memory_operand()
    {
        image.indirect_target(module, instruction.ip_rel_memory_address())
    } else {
        None
    };
    if let Some(target) = target {
        let mnemonic = text.split(' ').next().unwrap_or_default();
        text = format!("{mnemonic} {}", name::short(&target));
    }
    text
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use bellows_engine::listing::{self, Listing};

    /// A breath whose stretches hold this code.
    fn image(stretches: &[(&str, &str)]) -> Image {
        let mut address = 0x1000;
        let code = stretches.iter().map(|(label, bytes)| {
            let line = listing::CodeLine {
                address,
                bytes: (*bytes).to_owned(),
                text: String::new(),
                label: Some((*label).to_owned()),
            };
            address += bytes.len() as u64 / 2;
            line
        });
        Image::open(std::process::id(), &Listing { code: code.collect(), ..Listing::default() }).unwrap()
    }

    fn function(image: &mut Image, address: u64) -> Function {
        let location = image.locate(address).unwrap();
        image.function(location).unwrap().clone()
    }

    #[test]
    fn instructions_have_samples_and_the_names_of_their_targets() {
        // xor eax, eax; call +0 (to the next stretch); jmp to the xor; then ret.
        let mut image = image(&[("entry", "31c0e802000000ebf7"), ("leave", "c3")]);
        let entry = function(&mut image, 0x1000);
        let lines = instructions(&mut image, 0, &entry, &HashMap::from([(0x1002, 3), (0x1007, 1), (0x1001, 9)]));
        let texts: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
        assert_eq!(texts, ["xor eax, eax", "call breath: leave", "jmp 0x1000"]);
        let samples: Vec<u64> = lines.iter().map(|line| line.samples).collect();
        assert_eq!(samples, [0, 3, 1], "samples between instructions have no place");
        assert_eq!((lines[1].address, &*lines[1].bytes), (0x1002, "e802000000"));
    }
}
