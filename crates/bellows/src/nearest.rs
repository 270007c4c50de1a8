//! The name that was meant.

/// The nearest of the names that there are, if one is near enough to have been meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|other| (strsim::damerau_levenshtein(name, other), other));
    near.filter(|(distance, other)| *distance <= (name.len().max(other.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_understood_and_other_words_are_not() {
        let known = || ["pcap-reader", "sink", "source"].into_iter();
        assert_eq!(nearest("pcap-raeder", known()), Some("pcap-reader"));
        assert_eq!(nearest("snik", known()), Some("sink"));
        assert_eq!(nearest("firewall", known()), None);
    }
}
