//! Bounds for figures, and whether these hold.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use bellows_stats::ENOUGH;
use serde_json::json;

use crate::report::Measurement;

/// The labels of a judged figure.
const TARGET: &str = "target";
pub(crate) const VERDICT: &str = "verdict";

/// The verdict about an interval that neither keeps nor breaks its target, or that there are too few processes for.
pub(crate) const UNDECIDED: &str = "undecided";

/// A bound that a figure should keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    Within(f64, f64),
    /// The interval holds the first number, and half of its width is at most the second one.
    Unchanged(f64, f64),
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::AtMost(bound) => write!(formatter, "at most {bound}"),
            Target::AtLeast(bound) => write!(formatter, "at least {bound}"),
            Target::Within(low, high) => write!(formatter, "{low}–{high}"),
            Target::Unchanged(value, half_width) => write!(formatter, "{value}, half-width at most {half_width}"),
        }
    }
}

impl Target {
    /// Labels a figure of some processes with the target and with whether its interval keeps it.
    pub(crate) fn judge(self, measurement: Measurement, processes: usize) -> Measurement {
        let verdict = self.verdict(measurement.low, measurement.high, processes);
        let mut labels = measurement.labels;
        labels.extend([(TARGET.to_owned(), json!(self.to_string())), (VERDICT.to_owned(), json!(verdict))]);
        Measurement { labels, ..measurement }
    }

    /// Whether an interval from some processes keeps the target: `holds`, `fails` or `undecided`.
    pub(crate) fn verdict(self, low: f64, high: f64, processes: usize) -> &'static str {
        let (keeps, breaks) = match self {
            Target::AtMost(bound) => (high <= bound, low > bound),
            Target::AtLeast(bound) => (low >= bound, high < bound),
            Target::Within(bottom, top) => (bottom <= low && high <= top, high < bottom || top < low),
            Target::Unchanged(value, half_width) => {
                let holds_value = (low..=high).contains(&value);
                (holds_value && (high - low) / 2.0 <= half_width, !holds_value)
            }
        };
        match () {
            () if processes < ENOUGH => UNDECIDED,
            () if keeps => "holds",
            () if breaks => "fails",
            () => UNDECIDED,
        }
    }
}

/// A sentence for each kind of target and figure: how many hold, and which do not.
pub(crate) fn conclusions(results: &[Measurement]) -> Vec<String> {
    let text = |result: &Measurement, label: &str| {
        result.labels.get(label).map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
    };
    let mut kinds: BTreeMap<(String, String), Vec<&Measurement>> = BTreeMap::new();
    for result in results {
        if let Some(target) = text(result, TARGET) {
            let what = text(result, "of").unwrap_or_else(|| result.case.clone());
            kinds.entry((what, target)).or_default().push(result);
        }
    }
    let sentence = |((what, target), results): ((String, String), Vec<&Measurement>)| {
        let with = |verdict: &str| -> Vec<String> {
            let chosen = results.iter().filter(|result| text(result, VERDICT).as_deref() == Some(verdict));
            chosen
                .map(|result| {
                    let conditions = [
                        "text",
                        "compiled",
                        "first",
                        "connections",
                        "packets",
                        "in_flight",
                        "next_hops",
                        "keys",
                        "count",
                        "commit",
                        "phase",
                    ];
                    let labels = conditions.iter().filter_map(|label| text(result, label));
                    let name = std::iter::once(result.case.clone()).chain(labels).collect::<Vec<_>>().join(" ");
                    format!("{name} ({:.3} – {:.3})", result.low, result.high)
                })
                .collect()
        };
        let mut sentence = format!("{what}, {target}: {} of {} hold", with("holds").len(), results.len());
        for verdict in ["fails", UNDECIDED] {
            let found = with(verdict);
            if !found.is_empty() {
                sentence += &format!("; {verdict}: {}", found.join(", "));
            }
        }
        sentence
    };
    kinds.into_iter().map(sentence).collect()
}

/// A sentence for ratios that all have the same bounds: whether their intervals lie within, and which do not. `named`
/// names a ratio.
pub(crate) fn conclusion_within(
    results: &[Measurement],
    bounds: RangeInclusive<f64>,
    named: impl Fn(&Measurement) -> String,
) -> String {
    let decided: Vec<&Measurement> = results.iter().filter(|result| !result.undecided).collect();
    let outside: Vec<String> = decided
        .iter()
        .filter(|result| !bounds.contains(&result.low) || !bounds.contains(&result.high))
        .map(|result| format!("{} ({:.3} – {:.3})", named(result), result.low, result.high))
        .collect();
    let bounds = format!("{}–{}", bounds.start(), bounds.end());
    match outside.as_slice() {
        _ if decided.is_empty() => format!("no interval is narrow enough to say whether it lies within {bounds}"),
        [] if decided.len() < results.len() => format!("every interval that is narrow enough lies within {bounds}"),
        [] => format!("every interval lies within {bounds}"),
        [one] => format!("one of {} intervals does not lie within {bounds}: {one}", decided.len()),
        many => {
            format!("{} of {} intervals do not lie within {bounds}: {}", many.len(), decided.len(), many.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(target: Target, values: &[f64]) -> Measurement {
        let measurement = Measurement::of("host", "ratio", values, vec![("packets", json!("mixed"))]).unwrap();
        target.judge(measurement, values.len())
    }

    #[test]
    fn a_target_holds_or_fails_only_with_the_whole_interval() {
        let verdict = |target, values: &[f64]| judged(target, values).labels[VERDICT].as_str().unwrap().to_owned();
        let (low, across, high) = ([1.0, 1.1, 1.2, 1.0, 1.1, 1.2], [1.9, 2.1, 1.9, 2.1, 1.9, 2.1], [3.0; 6]);
        for (target, verdicts) in [
            (Target::AtMost(2.0), ["holds", "undecided", "fails"]),
            (Target::AtLeast(2.0), ["fails", "undecided", "holds"]),
            (Target::Within(1.95, 2.05), ["fails", "undecided", "fails"]),
            (Target::Within(1.0, 2.2), ["holds", "holds", "fails"]),
        ] {
            assert_eq!([low, across, high].map(|values| verdict(target, &values)), verdicts, "{target}");
        }
        assert_eq!(verdict(Target::AtMost(2.0), &low[..5]), "undecided", "too few processes have no interval");
    }

    #[test]
    fn nothing_has_changed_if_a_narrow_interval_holds_the_value() {
        let verdict = |low, high, processes| Target::Unchanged(1.0, 0.01).verdict(low, high, processes);
        assert_eq!([verdict(0.995, 1.004, 6), verdict(1.0, 1.019, 6), verdict(0.985, 1.0, 6)], ["holds"; 3]);
        assert_eq!([verdict(0.989, 1.012, 6), verdict(0.5, 2.0, 6), verdict(0.995, 1.004, 5)], ["undecided"; 3]);
        assert_eq!([verdict(0.99, 0.999, 6), verdict(1.001, 1.002, 6), verdict(0.5, 0.9, 6)], ["fails"; 3]);
        assert_eq!(Target::Unchanged(1.0, 0.01).to_string(), "1, half-width at most 0.01");
    }

    #[test]
    fn conclusions_count_and_name_what_does_not_hold() {
        let results = [[1.0; 6], [3.0; 6], [1.0; 6]].map(|values| judged(Target::AtMost(2.0), &values));
        assert_eq!(conclusions(&results), ["host, at most 2: 2 of 3 hold; fails: host mixed (3.000 – 3.000)"]);
        assert_eq!(conclusions(&[]), Vec::<String>::new());
    }
}
