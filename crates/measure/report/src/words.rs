//! Numbers, probabilities and labels as text.

use bellows_campaign::visible;

/// What a level without a name is called.
const NAMELESS: &str = "(empty)";

/// A number of things: `1,234,567`.
pub(crate) fn count(number: usize) -> String {
    grouped(&number.to_string())
}

/// A number of things with their name: `1 run`, `30 runs`.
pub(crate) fn counted(number: usize, one: &str, several: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { several })
}

/// The prefixes of units (SI brochure, section 3) for large numbers, each with its power of ten.
const PREFIXES: [(i32, &str); 3] = [(12, "T"), (9, "G"), (6, "M")];

/// A number with four significant digits: `0.6529`, `12.34`, `1,234`, `14.31M`, `5.678e-9`. `none` if it is not one.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    if rounded == 0.0 {
        return "0".to_owned();
    }
    let power = rounded.abs().log10().floor() as i32;
    match power {
        -4..=5 => with_minus(&decimals(rounded, (3 - power).max(0) as usize)),
        6..=14 => {
            let (thousands, prefix) = PREFIXES.into_iter().find(|(least, _)| power >= *least).unwrap_or((0, ""));
            let shown = rounded / 10f64.powi(thousands);
            with_minus(&format!("{}{prefix}", decimals(shown, (3 - (power - thousands)).max(0) as usize)))
        }
        _ => {
            let text = format!("{rounded:.3e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            with_minus(&format!("{}e{exponent}", trimmed(digits)))
        }
    }
}

/// A number as [`number`] has it, without zeros at the end of its decimals: `5M`, `0.5`.
pub(crate) fn brief(value: f64) -> String {
    let text = number(value);
    if text.contains('e') {
        return text;
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    format!("{}{}", trimmed(digits), &text[digits.len()..])
}

/// A number with its sign: `+0.6806`, `−0.6529`, `0`.
pub(crate) fn signed(value: f64) -> String {
    let text = number(value);
    if value > 0.0 && value.is_finite() && text != "0" { format!("+{text}") } else { text }
}

/// A difference and its interval, with as many decimals as the interval's width gives sense: `+0.681 [+0.413, +0.948]`,
/// with the unit behind the difference.
pub(crate) fn estimate(difference: f64, low: f64, high: f64, unit: &str) -> String {
    let half = high / 2.0 - low / 2.0;
    let decimals = 2.0 - half.log10().floor();
    let signed = |value: f64| match (1e-3..1e6).contains(&half) && value.abs() < 1e9 {
        true => {
            let text = with_minus(&self::decimals(value, decimals.clamp(0.0, 6.0) as usize));
            let is_zero = !text.contains(|c: char| ('1'..='9').contains(&c));
            match (is_zero, value > 0.0) {
                (true, _) => text.trim_start_matches('\u{2212}').to_owned(),
                (false, true) => format!("+{text}"),
                (false, false) => text,
            }
        }
        false => signed(value),
    };
    format!("{} [{}, {}]", with_unit(&signed(difference), unit), signed(low), signed(high))
}

/// A number and its unit, if it has one.
pub(crate) fn with_unit(text: &str, unit: &str) -> String {
    format!("{text} {unit}").trim_end().to_owned()
}

/// A probability: `p = 0.0042`, `p < 0.0001`.
pub(crate) fn probability(p: f64) -> String {
    match p {
        p if p.is_nan() => "p unknown".to_owned(),
        p if p < 1e-4 => "p < 0.0001".to_owned(),
        p if p < 0.01 => format!("p = {p:.4}"),
        p => format!("p = {p:.2}"),
    }
}

/// A number without decimals if it has none, such as degrees of freedom.
pub(crate) fn whole(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { with_minus(&decimals(value, 0)) } else { number(value) }
}

/// A share as percent: `95`, `99.5`, `99.83`.
pub(crate) fn percent(share: f64) -> String {
    with_minus(trimmed(&format!("{:.2}", 100.0 * share)))
}

/// A ratio: `1.054`.
pub(crate) fn ratio(value: f64) -> String {
    if (1e-3..1e4).contains(&value.abs()) { with_minus(&format!("{value:.3}")) } else { number(value) }
}

/// Words as a list: `a, b and c`.
pub(crate) fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The first letter as a capital, and a full stop at the end.
pub(crate) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    let stop = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{}{stop}", characters.as_str())
}

/// A name from a file for people: control characters are shown as escapes, and nothing as a word.
pub(crate) fn label(text: &str) -> String {
    if text.is_empty() { NAMELESS.to_owned() } else { visible(text) }
}

/// The name of a factor for people and for models, in which a colon joins factors.
pub(crate) fn factor_name(text: &str) -> String {
    label(text).replace(':', "\u{2236}")
}

/// A label within a sentence. One that is written from right to left keeps its neighbours in their order.
pub(crate) fn quoted(label: &str) -> String {
    match is_right_to_left(label) {
        true => format!("\u{2068}{label}\u{2069}"),
        false => label.to_owned(),
    }
}

/// Text without the marks of [`quoted`], which terminals show.
pub(crate) fn without_marks(text: &str) -> String {
    text.replace(['\u{2068}', '\u{2069}'], "")
}

fn is_right_to_left(text: &str) -> bool {
    text.chars().any(|c| matches!(c as u32, 0x590..=0x8ff | 0xfb1d..=0xfdff | 0xfe70..=0xfeff | 0x10800..=0x10fff | 0x1e800..=0x1efff))
}

/// A number with some decimals, and commas between thousands.
pub(crate) fn decimals(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    match digits.split_once('.') {
        Some((whole, part)) => format!("{sign}{}.{part}", grouped(whole)),
        None => format!("{sign}{}", grouped(digits)),
    }
}

/// A true minus sign, which is as wide as a plus.
pub(crate) fn with_minus(text: &str) -> String {
    text.strip_prefix('-').map_or_else(|| text.to_owned(), |digits| format!("\u{2212}{digits}"))
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn grouped(digits: &str) -> String {
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().map(|digit| *digit as char));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let shown =
            [0.0, -0.65285714, 12.345, 1234.6, -1_234_567.0, 5.678e12, 1e-9, 9.99996, f64::NAN, -1e300].map(number);
        let expected = [
            "0",
            "\u{2212}0.6529",
            "12.35",
            "1,235",
            "\u{2212}1.235M",
            "5.678T",
            "1e-9",
            "10.00",
            "none",
            "\u{2212}1e300",
        ];
        assert_eq!(shown, expected.map(str::to_owned));
        assert_eq!([signed(0.5), signed(0.0), signed(-2.0)], ["+0.5000", "0", "\u{2212}2.000"].map(str::to_owned));
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!([999_949.0, 999_960.0, 14_312_243.0, 1e15].map(number), ["999,900", "1.000M", "14.31M", "1e15"]);
        assert_eq!([5e6, 12.5e9, 0.5, 1.5e-10, f64::NAN].map(brief), ["5M", "12.5G", "0.5", "1.5e-10", "none"]);
        assert_eq!(estimate(14_310_000.0, 9_100_000.0, 19_520_000.0, ""), "+14.31M [+9.100M, +19.52M]");
        assert_eq!(estimate(0.6805714, 0.4134409, 0.9477019, "Gbps"), "+0.681 Gbps [+0.413, +0.948]");
        assert_eq!(estimate(0.06, -6.607, 6.727, ""), "+0.06 [\u{2212}6.61, +6.73]");
        assert_eq!(estimate(1234.6, -0.001, 2469.0, "s"), "+1,235 s [0, +2,469]");
        assert_eq!(estimate(1e300, -1e300, 3e300, ""), "+1e300 [\u{2212}1e300, +3e300]");
    }

    #[test]
    fn probabilities_never_are_zero() {
        let shown = [0.0, 3e-5, 0.0042371, 0.0501, 1.0].map(probability);
        assert_eq!(shown, ["p < 0.0001", "p < 0.0001", "p = 0.0042", "p = 0.05", "p = 1.00"].map(str::to_owned));
        assert_eq!([percent(0.95), percent(0.995), percent(0.5)], ["95", "99.5", "50"].map(str::to_owned));
    }

    #[test]
    fn labels_are_harmless() {
        assert_eq!(label("a\u{1b}[31m\u{202e}b"), "a\\u{1b}[31m\\u{202e}b");
        assert_eq!(label(""), "(empty)");
        assert_eq!(without_marks(&quoted("שלום")), "שלום");
        assert_ne!(quoted("שלום"), "שלום");
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(sentence("a b"), "A b.");
        assert_eq!(listed(&["a", "b", "c"].map(str::to_owned)), "a, b and c");
    }
}
