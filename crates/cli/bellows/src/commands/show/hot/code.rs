//! The hot instructions of a function, for people.

use std::fmt::Write;

use bellows_inspect::hot::code::CodeLine;
use bellows_inspect::text::sanitize;

use crate::text::percent;

/// The number of instructions shown on either side of a hot one.
const CONTEXT: usize = 4;

/// The maximum number of hot instructions of a function, and their minimum share of its samples.
const MAX_HOT: usize = 12;
const MIN_SHARE: f64 = 0.02;

/// The hottest instructions and those around them, each with its share. The hottest is marked.
pub fn render(lines: &[CodeLine], samples: u64, rich: bool) -> String {
    let mut hot: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].samples > 0).collect();
    hot.sort_by_key(|index| (std::cmp::Reverse(lines[*index].samples), *index));
    let least = (MIN_SHARE * samples as f64) as u64;
    let hottest = hot.first().copied();
    hot.truncate(MAX_HOT);
    hot.retain(|index| Some(*index) == hottest || lines[*index].samples >= least);
    let mut text = String::new();
    let mut is_gap = false;
    for (index, line) in lines.iter().enumerate() {
        if hot.iter().all(|hot| hot.abs_diff(index) > CONTEXT) {
            is_gap = true;
            continue;
        }
        if std::mem::take(&mut is_gap) && !text.is_empty() {
            text += "              ...\n";
        }
        let (bold, plain) = if rich && Some(index) == hottest { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let mark = if Some(index) == hottest { '>' } else { ' ' };
        let share = if line.samples > 0 { percent(line.share) } else { String::new() };
        let _ = writeln!(text, "{bold}{mark} {share:>8}  {:x}  {}{plain}", line.address, sanitize(&line.text));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_instruction_is_marked_and_cold_ones_are_left_out() {
        let line = |index: u64, samples: u64| CodeLine {
            address: 0x1000 + index,
            bytes: "90".to_owned(),
            text: format!("nop {index}"),
            samples,
            share: samples as f64 / 100.0,
        };
        let lines: Vec<CodeLine> = (0..60)
            .map(|index| {
                line(
                    index,
                    match index {
                        10 => 70,
                        40 => 29,
                        55 => 1,
                        _ => 0,
                    },
                )
            })
            .collect();
        let text = render(&lines, 100, false);
        assert!(text.contains(">   70.0 %  100a  nop 10\n"), "{text}");
        assert!(text.contains("    29.0 %  1028  nop 40\n") && text.contains("..."), "{text}");
        assert!(!text.contains("nop 5\n") && !text.contains("nop 55"), "{text}");
        assert_eq!(text.lines().count(), 2 * (2 * CONTEXT + 1) + 1, "{text}");
    }
}
