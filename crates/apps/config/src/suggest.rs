//! "Did you mean …?": finds the name that a misspelling most likely means.

/// Longer names are not compared, because the time grows with the product of the lengths.
const MAX_LENGTH: usize = 100;

/// The maximum number of names to compare.
const MAX_NAMES: usize = 1000;

/// A name for comparison: differences that people confuse are removed.
fn folded(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// The name that was probably meant.
///
/// Candidates differ by a typing error, begin with or contain the written text, or are contained in it.
///
/// ```
/// use bellows_config::nearest;
///
/// let names = ["pcap-reader", "sink", "source"];
/// assert_eq!(nearest("pcap_raeder", names), Some("pcap-reader"));
/// assert_eq!(nearest("so", names), Some("source"));
/// assert_eq!(nearest("firewall", names), None);
/// ```
pub fn nearest<'n>(meant: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if meant.len() > MAX_LENGTH {
        return None;
    }
    let meant = folded(meant);
    let likeness = |name: &str| {
        let name = folded(name);
        let close = strsim::jaro_winkler(&meant, &name);
        let typo = strsim::damerau_levenshtein(&meant, &name) <= 1 + meant.chars().count() / 4;
        let part = (meant.len() >= 2 && name.starts_with(&meant))
            || (meant.len() >= 3 && name.len() >= 3 && (name.contains(&meant) || meant.contains(&name)));
        (part || close > 0.87 || (typo && close > 0.0)).then_some(close)
    };
    let short = names.into_iter().take(MAX_NAMES).filter(|name| name.len() <= MAX_LENGTH);
    let near = short.filter_map(|name| Some((likeness(name)?, name)));
    near.max_by(|(left, _), (right, _)| left.total_cmp(right)).map(|(_, name)| name)
}

/// Whether `name`, the [`nearest`] one, was clearly meant: only a few letters are wrong, and no other name is as near.
pub(crate) fn is_sure<'n>(meant: &str, name: &str, names: impl IntoIterator<Item = &'n str>) -> bool {
    let meant = folded(meant);
    let distance = |other: &str| strsim::damerau_levenshtein(&meant, &folded(other));
    let least = distance(name);
    let is_farther = |other: &str| distance(other) > least;
    least <= (meant.chars().count() / 3).clamp(1, 3) && names.into_iter().filter(|other| *other != name).all(is_farther)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = ["pcap-reader", "pcap-writer", "sink", "source", "ternary"];

    #[test]
    fn misspellings_are_recognized_and_other_words_are_not() {
        assert_eq!(nearest("pcap-raeder", NAMES), Some("pcap-reader"));
        assert_eq!(nearest("snik", NAMES), Some("sink"));
        assert_eq!(nearest("PCAP_WRITER", NAMES), Some("pcap-writer"));
        assert_eq!(nearest("so", NAMES), Some("source"), "a beginning");
        assert_eq!(nearest("the-sink", NAMES), Some("sink"), "a part");
        assert_eq!(nearest("firewall", NAMES), None);
        assert_eq!(nearest("x", ["w"]), None, "no letter in common");
        assert_eq!(nearest("", NAMES), None);
    }

    #[test]
    fn long_names_and_the_last_of_very_many_are_not_compared() {
        let long = "x".repeat(MAX_LENGTH + 1);
        assert_eq!(nearest(&long, [&*long]), None);
        assert_eq!(nearest("x", [&*long]), None);
        let many = |before| std::iter::repeat_n("other", before).chain(["sink"]);
        assert_eq!(nearest("sinc", many(MAX_NAMES - 1)), Some("sink"));
        assert_eq!(nearest("sinc", many(MAX_NAMES)), None);
    }

    #[test]
    fn a_name_is_sure_if_few_letters_are_wrong_and_no_other_is_as_near() {
        assert!(is_sure("snik", "sink", NAMES));
        assert!(is_sure("pcap_reader", "pcap-reader", NAMES));
        assert!(!is_sure("pcap-", "pcap-reader", NAMES), "far away");
        assert!(!is_sure("pcap-riter", "pcap-writer", ["pcap-writer", "pcap-rider"]), "as near as another");
    }
}
