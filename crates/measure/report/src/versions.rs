//! The picture of a comparison of two versions.

use bellows_campaign::{Compared, Comparison, PairConclusion as Conclusion, Scale};

use crate::axis::Axis;
use crate::draw::canvas::sheet;
use crate::draw::intervals::{IntervalRow, rows};
use crate::pictures::Picture;
use crate::words::{counted, estimate, percent, sentence};

/// The longest axis, in percent. Intervals that end outside are cut there.
const LONGEST: f64 = 100.0;

/// The largest end of an interval that says something, in percent, as in the text.
const MOST: f64 = 10_000.0;

impl Picture {
    /// What the pairs say of each combination and score: the change from the old version to the new one in percent, with
    /// its interval. Changes that are no shares, because a score is 0 or below, are only numbers.
    pub fn of_comparison(comparison: &Comparison) -> Picture {
        let lines: Vec<IntervalRow> =
            comparison.results.iter().zip(comparison.names()).map(|(compared, name)| row(compared, name)).collect();
        let ends = lines.iter().filter_map(|row| row.values).flat_map(|[low, _, high]| [low, high]);
        let scale = Axis::around(ends.chain([0.0]).map(|end| end.clamp(-LONGEST, LONGEST)), 0.04);
        let compared = comparison.results.iter().filter(|compared| compared.effect.is_some()).count();
        let title = format!("{}: from {} to {}", comparison.name, comparison.old, comparison.new);
        let captions = vec![
            sentence(&comparison.answer()),
            format!(
                "Each row is the change of a score. The intervals of the {} hold together in {} of 100 cases.",
                counted(compared, "comparison", "comparisons"),
                percent(comparison.confidence)
            ),
        ];
        let panel = rows(&lines, &scale, "change of the score (%)");
        Picture { svg: sheet(&title, &captions, &[panel], 1), name: "comparison".to_owned(), title }
    }
}

fn row(compared: &Compared, name: String) -> IntervalRow {
    let label = format!("{}{name}", sign(compared.conclusion));
    let Some(effect) = compared.effect else {
        return IntervalRow { label, values: None, numbers: "no interval".to_owned() };
    };
    let factor = if effect.scale == Scale::Share { 100.0 } else { 1.0 };
    let [low, middle, high] = [effect.low, effect.difference, effect.high].map(|value| value * factor);
    let unit = if effect.scale == Scale::Share { "%" } else { &compared.unit };
    let numbers = estimate(middle, low, high, unit);
    match effect.scale {
        // Too few pairs can have intervals without an end.
        Scale::Share if high <= MOST => IntervalRow { label, values: Some([low, middle, high]), numbers },
        Scale::Share => IntervalRow { label, values: None, numbers: "no interval".to_owned() },
        Scale::Unit => IntervalRow { label, values: None, numbers },
    }
}

/// What is said of a row that differs.
fn sign(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Faster => "faster: ",
        Conclusion::Slower => "slower: ",
        Conclusion::Higher => "higher: ",
        Conclusion::Lower => "lower: ",
        Conclusion::NewFails => "new fails: ",
        Conclusion::OldFails => "old fails: ",
        Conclusion::Equal | Conclusion::NoDifference | Conclusion::TooFewPairs => "",
    }
}
