//! The picture: clocks a packet in the order of time, phase after phase.

use std::fmt::Write;

use bellows_engine::Schedule;

use crate::benchmarks::prefetch::picture::round_up;
use crate::timing::median_or_nan;
use crate::turns::Match;

/// What a process cost from its start to its end.
#[derive(Clone, Debug)]
pub(super) struct Course {
    schedule: Schedule,
    /// Clocks a packet in each phase, turn after turn.
    phases: Vec<Vec<f64>>,
    /// Those of the processes that had one phase alone.
    alone: Vec<f64>,
}

impl Course {
    /// The course of a match with `phases` phases.
    pub(super) fn of(schedule: Schedule, phases: usize, found: &Match) -> Course {
        let alone = |phase: usize| found.figure(phase + 1, phase, 0).unwrap_or(f64::NAN);
        Course {
            schedule,
            phases: (0..phases).map(|phase| found.course(0, phase, 0)).collect(),
            alone: (0..phases).map(alone).collect(),
        }
    }
}

/// Size of the picture, and the margins around the plot: left, right, above, below.
const SIZE: (f64, f64) = (900.0, 460.0);
const MARGINS: [f64; 4] = [60.0, 90.0, 66.0, 170.0];

/// The approximate number of lines across the plot.
const LINES: f64 = 6.0;

/// The classes of the curves, in their order.
const CLASSES: [&str; 3] = ["with", "without", "third"];

/// Draws courses through phases with these names, as SVG.
pub(super) fn svg(title: &str, names: &[String], courses: &[Course]) -> String {
    let [left, right, above, below] = MARGINS;
    let (width, height) = SIZE;
    let (end, ground) = (width - right, height - below);
    let step_x = (end - left) / names.len().max(1) as f64;
    // A turn in which the machine was busy elsewhere does not set the scale.
    let costs = courses.iter().flat_map(|course| course.phases.iter().map(|turns| median_or_nan(turns)));
    let most = costs.fold(1.0, f64::max) * 1.1;
    let step = round_up(most / LINES);
    let top = (most / step).ceil() * step;
    let y = |clocks: f64| ground - clocks.min(top) / top * (ground - above);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bellows-course\" role=\"img\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n\
         <text class=\"title\" x=\"{left}\" y=\"26\">{title}</text>\n\
         <text x=\"{}\" y=\"{}\">clocks a packet; dashes: a process that had this phase alone</text>\n",
        left - 40.0,
        above - 16.0,
    );
    for line in 0..=(top / step).round() as u32 {
        let clocks = f64::from(line) * step;
        let at = y(clocks);
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{left} {at:.1}H{end}\"/><text class=\"end\" x=\"{}\" y=\"{:.1}\">{clocks}</text>",
            left - 8.0,
            at + 4.0,
        );
    }
    for (place, name) in names.iter().enumerate() {
        let from = left + step_x * place as f64;
        let middle = from + step_x / 2.0;
        let label = ground + 16.0;
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{from:.1} {above}V{ground}\"/>\
             <text class=\"end\" transform=\"translate({middle:.1} {label}) rotate(-45)\">{name}</text>",
        );
    }
    for (course, (Course { schedule, phases, alone }, class)) in courses.iter().zip(CLASSES).enumerate() {
        let (mut line, mut dashes) = (String::new(), String::new());
        for (place, (turns, alone)) in phases.iter().zip(alone).enumerate() {
            let from = left + step_x * place as f64;
            for (turn, &clocks) in turns.iter().enumerate() {
                let at = from + step_x * (turn as f64 + 0.5) / turns.len() as f64;
                let _ = write!(line, "{}{at:.1} {:.1}", if line.is_empty() { "M" } else { "L" }, y(clocks));
            }
            if alone.is_finite() {
                let _ = write!(dashes, "M{from:.1} {:.1}H{:.1}", y(*alone), from + step_x);
            }
        }
        let _ = writeln!(
            out,
            "<g class=\"{class}\"><path d=\"{line}\"/><path class=\"alone\" d=\"{dashes}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{schedule}</text></g>",
            end + 12.0,
            above + 14.0 + 18.0 * course as f64,
        );
    }
    out + "</svg>\n"
}

const STYLE: &str = ".bellows-course text{font:12px system-ui,sans-serif;fill:#1f2733}\
     .bellows-course .title{font-size:14px;font-weight:600}.bellows-course .end{text-anchor:end}\
     .bellows-course .paper{fill:#fff}.bellows-course .grid{stroke:#d5dbe4}\
     .bellows-course g path{fill:none;stroke-width:1.5}.bellows-course g .alone{stroke-dasharray:4 4;opacity:.6}\
     .bellows-course .with path{stroke:#1769aa}.bellows-course .with text{fill:#1769aa}\
     .bellows-course .without path{stroke:#c2410c}.bellows-course .without text{fill:#c2410c}\
     .bellows-course .third path{stroke:#4d7c0f}.bellows-course .third text{fill:#4d7c0f}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::Turn;
    use crate::turns::Record;

    #[test]
    fn each_phase_is_drawn_in_its_turn_beside_the_process_that_had_it_alone() {
        let turns = |figures: &[f64]| -> Vec<Turn> {
            figures.iter().map(|&figure| Turn { figures: vec![figure], took: 1.0, lost: 0.0 }).collect()
        };
        let both = Record::of(vec![turns(&[100.0, 104.0]), turns(&[50.0, 50.0])]);
        let alone = |place: usize, clocks: f64| {
            let mut stages = vec![Vec::new(), Vec::new()];
            stages[place] = turns(&[clocks; 2]);
            Record::of(stages)
        };
        let found = Match::of(vec![both, alone(0, 102.0), alone(1, 51.0)], 2);
        let course = Course::of(Schedule::Flat, 2, &found);
        assert_eq!((&course.phases, &course.alone), (&vec![vec![100.0, 104.0], vec![50.0, 50.0]], &vec![102.0, 51.0]));
        let names = ["one", "other"].map(str::to_owned);
        let svg = svg("a title", &names, &[course.clone(), Course { schedule: Schedule::Nested, ..course }]);
        // Lines at 20, 40, …, 120: the second phase is lower, and the first one begins at the left.
        for wanted in
            ["<title>a title</title>", ">one</text>", ">other</text>", "M153.8 ", ">flat</text>", ">nested</text>"]
        {
            assert!(svg.contains(wanted), "{wanted} in {svg}");
        }
        assert_eq!(svg.matches("class=\"alone\"").count(), 2);
    }
}
