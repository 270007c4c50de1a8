//! Writes families of metrics in a format.

use std::borrow::Cow;

use bellows_observe::Histogram;
use bellows_sys::text::is_hidden;

use crate::family::{FamilyKind, MetricFamily, Scale};
use crate::format::Format;

/// The upper bounds of the buckets of a histogram: as they are written, in seconds, and in nanoseconds.
pub(crate) const BOUNDS: [(&str, u64); 25] = [
    ("1e-07", 100),
    ("2e-07", 200),
    ("5e-07", 500),
    ("1e-06", 1_000),
    ("2e-06", 2_000),
    ("5e-06", 5_000),
    ("1e-05", 10_000),
    ("2e-05", 20_000),
    ("5e-05", 50_000),
    ("0.0001", 100_000),
    ("0.0002", 200_000),
    ("0.0005", 500_000),
    ("0.001", 1_000_000),
    ("0.002", 2_000_000),
    ("0.005", 5_000_000),
    ("0.01", 10_000_000),
    ("0.02", 20_000_000),
    ("0.05", 50_000_000),
    ("0.1", 100_000_000),
    ("0.2", 200_000_000),
    ("0.5", 500_000_000),
    ("1.0", 1_000_000_000),
    ("2.0", 2_000_000_000),
    ("5.0", 5_000_000_000),
    ("10.0", 10_000_000_000),
];

/// An exposition under construction.
pub(crate) struct Exposition {
    format: Format,
    text: Vec<u8>,
}

/// The samples of one family. Its head is written with the first of them.
pub(crate) struct Samples<'a> {
    exposition: &'a mut Exposition,
    family: &'a MetricFamily<'a>,
    name: String,
    has_head: bool,
}

impl Exposition {
    /// An empty one, with room for as many bytes as the last one had.
    pub(crate) fn new(format: Format, room: usize) -> Exposition {
        Exposition { format, text: Vec::with_capacity(room) }
    }

    /// Begins a family. Each family is begun once.
    pub(crate) fn family<'a>(&'a mut self, family: &'a MetricFamily<'a>) -> Samples<'a> {
        Samples { name: family.sample_name(), exposition: self, family, has_head: false }
    }

    /// The whole text.
    pub(crate) fn end(mut self) -> Vec<u8> {
        if self.format == Format::OpenMetrics {
            self.text.extend_from_slice(b"# EOF\n");
        }
        self.text
    }

    fn line(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.text.extend_from_slice(part.as_bytes()));
        self.text.push(b'\n');
    }

    fn head(&mut self, family: &MetricFamily<'_>, sample_name: &str) {
        let MetricFamily { name, kind, unit, help, .. } = family;
        match self.format {
            Format::OpenMetrics => {
                self.line(&["# TYPE ", name, " ", kind.name()]);
                if !unit.is_empty() && *kind != FamilyKind::Info {
                    self.line(&["# UNIT ", name, " ", unit]);
                }
                self.line(&["# HELP ", name, " ", &escaped(help, true)]);
            }
            Format::Text => {
                let kind = if *kind == FamilyKind::Info { FamilyKind::Gauge } else { *kind };
                self.line(&["# HELP ", sample_name, " ", &escaped(help, false)]);
                self.line(&["# TYPE ", sample_name, " ", kind.name()]);
            }
        }
    }
}

impl Samples<'_> {
    /// A sample. `labels` and `further` are written one after the other; each is empty or made by [`label`], and all
    /// but the first begin with a comma.
    pub(crate) fn sample(&mut self, labels: &str, further: &str, value: i128) {
        self.begin("", labels, further);
        let text = &mut self.exposition.text;
        match self.family.scale {
            Scale::Whole => push_number(text, value),
            Scale::Nanoseconds => push_seconds(text, u64::try_from(value).unwrap_or(0)),
        }
        text.push(b'\n');
    }

    /// The samples of a histogram.
    pub(crate) fn histogram(&mut self, labels: &str, times: &Histogram) {
        let mut classes = times.classes.iter().peekable();
        let mut count = 0u64;
        for (bound, nanos) in BOUNDS {
            while let Some((_, times)) = classes.next_if(|(longest, _)| *longest <= nanos) {
                count = count.saturating_add(*times);
            }
            self.begin("_bucket", labels, &format!(",le=\"{bound}\""));
            push_line_end(&mut self.exposition.text, count);
        }
        let count = times.count();
        self.begin("_bucket", labels, ",le=\"+Inf\"");
        push_line_end(&mut self.exposition.text, count);
        self.begin("_count", labels, "");
        push_line_end(&mut self.exposition.text, count);
        self.begin("_sum", labels, "");
        push_seconds(&mut self.exposition.text, sum(times));
        self.exposition.text.push(b'\n');
    }

    /// Writes everything of a sample but its value.
    fn begin(&mut self, ending: &str, labels: &str, further: &str) {
        if !self.has_head {
            self.exposition.head(self.family, &self.name);
            self.has_head = true;
        }
        let text = &mut self.exposition.text;
        text.extend_from_slice(self.name.as_bytes());
        text.extend_from_slice(ending.as_bytes());
        if labels.is_empty() && further.is_empty() {
            text.push(b' ');
            return;
        }
        text.push(b'{');
        text.extend_from_slice(labels.as_bytes());
        let further = if labels.is_empty() { further.trim_start_matches(',') } else { further };
        text.extend_from_slice(further.as_bytes());
        text.extend_from_slice(b"} ");
    }
}

/// The sum of times, in nanoseconds: each is taken for the middle of its class, so the sum is right to 3 percent.
fn sum(times: &Histogram) -> u64 {
    // A class is a sixteenth of an octave, so its middle is less than its end by a 33rd.
    let middle = |longest: u64| longest - longest / 33;
    times
        .classes
        .iter()
        .fold(0, |sum: u64, &(longest, count)| sum.saturating_add(middle(longest).saturating_mul(count)))
}

fn push_line_end(text: &mut Vec<u8>, value: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    text.push(b'\n');
}

fn push_number(text: &mut Vec<u8>, value: i128) {
    // Most numbers are short, and 128 bits take long.
    match u64::try_from(value) {
        Ok(value) => text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        Err(_) => text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
    }
}

/// Nanoseconds as seconds, without zeros at the end of the fraction.
fn push_seconds(text: &mut Vec<u8>, nanos: u64) {
    const NANOS: u64 = 1_000_000_000;
    push_number(text, (nanos / NANOS).into());
    let fraction = nanos % NANOS;
    if fraction > 0 {
        let digits = format!(".{fraction:09}");
        text.extend_from_slice(digits.trim_end_matches('0').as_bytes());
    }
}

/// A label, with a comma in front.
pub(crate) fn label(name: &str, value: &str) -> String {
    format!(",{name}=\"{}\"", escaped(value, true))
}

/// Labels as they begin: without the comma in front.
pub(crate) fn labels(labels: &[(&str, &str)]) -> String {
    let all: String = labels.iter().map(|(name, value)| label(name, value)).collect();
    all.trim_start_matches(',').to_owned()
}

/// Text on one line: a backslash in front of each backslash and, in labels and in OpenMetrics, each quote; line feeds
/// as `\n`. Other hidden characters become `\u{fffd}`: some parsers reject them, and terminals obey them.
fn escaped(text: &str, quotes: bool) -> Cow<'_, str> {
    if !text.contains(|letter: char| matches!(letter, '\\' | '"') || is_hidden(letter)) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if quotes => escaped.push_str("\\\""),
            letter if is_hidden(letter) => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(format: Format, write: impl FnOnce(&mut Exposition)) -> String {
        let mut exposition = Exposition::new(format, 0);
        write(&mut exposition);
        String::from_utf8(exposition.end()).unwrap()
    }

    #[test]
    fn both_formats_have_their_heads() {
        let packets = MetricFamily::new("bellows_link_packets", FamilyKind::Counter, "packets", "a \"quoted\" \\ help");
        let info = MetricFamily::new("bellows_build", FamilyKind::Info, "", "version");
        let unused = MetricFamily::new("bellows_none", FamilyKind::Gauge, "", "nothing");
        let write = |exposition: &mut Exposition| {
            exposition.family(&packets).sample(&labels(&[("link", "a -> b")]), &label("x", "1"), 7);
            exposition.family(&unused);
            exposition.family(&info).sample("", &label("version", "1"), 1);
        };
        let expected = "# HELP bellows_link_packets_total a \"quoted\" \\\\ help\n\
                        # TYPE bellows_link_packets_total counter\n\
                        bellows_link_packets_total{link=\"a -> b\",x=\"1\"} 7\n\
                        # HELP bellows_build_info version\n\
                        # TYPE bellows_build_info gauge\n\
                        bellows_build_info{version=\"1\"} 1\n";
        assert_eq!(text(Format::Text, write), expected);
        let expected = "# TYPE bellows_link_packets counter\n\
                        # UNIT bellows_link_packets packets\n\
                        # HELP bellows_link_packets a \\\"quoted\\\" \\\\ help\n\
                        bellows_link_packets_total{link=\"a -> b\",x=\"1\"} 7\n\
                        # TYPE bellows_build info\n\
                        # HELP bellows_build version\n\
                        bellows_build_info{version=\"1\"} 1\n\
                        # EOF\n";
        assert_eq!(text(Format::OpenMetrics, write), expected);
    }

    #[test]
    fn times_are_seconds() {
        let seconds = |nanos: u64| {
            let mut text = Vec::new();
            push_seconds(&mut text, nanos);
            String::from_utf8(text).unwrap()
        };
        let written = [0, 1, 1_500_000_000, 20_000_000_000, 1_700_000_000_123_456_789].map(seconds);
        assert_eq!(written, ["0", "0.000000001", "1.5", "20", "1700000000.123456789"]);
        for (bound, nanos) in BOUNDS {
            assert_eq!((bound.parse::<f64>().unwrap() * 1e9).round() as u64, nanos);
        }
        assert!(BOUNDS.is_sorted_by_key(|(_, nanos)| *nanos));
    }

    #[test]
    fn buckets_add_up() {
        let family = MetricFamily::new("bellows_breath_seconds", FamilyKind::Histogram, "seconds", "h");
        let times = Histogram { classes: vec![(90, 1), (150, 2), (1_000, 3), (20_000_000_000, 4)], maximum: 0 };
        let text = text(Format::Text, |exposition| exposition.family(&family).histogram("worker=\"main\"", &times));
        for line in [
            "bellows_breath_seconds_bucket{worker=\"main\",le=\"1e-07\"} 1\n",
            "bellows_breath_seconds_bucket{worker=\"main\",le=\"2e-07\"} 3\n",
            "bellows_breath_seconds_bucket{worker=\"main\",le=\"1e-06\"} 6\n",
            "bellows_breath_seconds_bucket{worker=\"main\",le=\"10.0\"} 6\n",
            "bellows_breath_seconds_bucket{worker=\"main\",le=\"+Inf\"} 10\n",
            "bellows_breath_seconds_count{worker=\"main\"} 10\n",
            "bellows_breath_seconds_sum{worker=\"main\"} 77.",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    /// The labels of a line, by the grammar of both formats: a naive parser.
    fn parsed(line: &str) -> Option<Vec<(String, String)>> {
        let mut rest = line.split_once('{')?.1.chars().peekable();
        let mut labels = Vec::new();
        loop {
            if rest.next_if_eq(&'}').is_some() {
                return (rest.next()? == ' ').then_some(labels);
            }
            let mut name = String::new();
            while let Some(letter) = rest.next_if(|letter| *letter != '=') {
                name.push(letter);
            }
            (rest.next()? == '=' && rest.next()? == '"').then_some(())?;
            let mut value = String::new();
            loop {
                match rest.next()? {
                    '"' => break,
                    '\\' => value.push(match rest.next()? {
                        'n' => '\n',
                        letter @ ('\\' | '"') => letter,
                        _ => return None,
                    }),
                    '\n' => return None,
                    letter => value.push(letter),
                }
            }
            labels.push((name, value));
            rest.next_if_eq(&',');
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever a name or a reason contains, a parser reads it back, without control characters.
        #[test]
        fn any_value_of_a_label_survives(
            first in "(\\PC|[\"\\\\\n\r{},=]){0,12}",
            second in any::<String>(),
            value in any::<i64>(),
        ) {
            let family = MetricFamily::new("bellows_x", FamilyKind::Gauge, "", "h");
            for format in [Format::Text, Format::OpenMetrics] {
                let text = text(format, |exposition| {
                    exposition.family(&family).sample(&labels(&[("a", &first)]), &label("b", &second), value.into());
                });
                let line = text.split('\n').find(|line| line.starts_with("bellows_x{")).unwrap();
                prop_assert!(!line.contains(char::is_control), "{line:?}");
                let kept = |letter: char| if is_hidden(letter) && letter != '\n' { '\u{fffd}' } else { letter };
                let kept = |text: &str| text.chars().map(kept).collect::<String>();
                let expected = [("a".to_owned(), kept(&first)), ("b".to_owned(), kept(&second))];
                prop_assert_eq!(parsed(line), Some(expected.to_vec()), "{}", line);
                prop_assert!(line.ends_with(&format!("}} {value}")), "{}", line);
            }
        }

        /// Whatever the counts are, the buckets grow and end with the number of all.
        #[test]
        fn buckets_grow(mut classes in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..20)) {
            classes.sort_unstable();
            let times = Histogram { classes, maximum: 0 };
            let family = MetricFamily::new("x", FamilyKind::Histogram, "", "h");
            let text = text(Format::Text, |exposition| exposition.family(&family).histogram("", &times));
            let buckets = text.lines().filter(|line| line.starts_with("x_bucket"));
            let counts: Vec<u64> = buckets.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
            prop_assert!(counts.is_sorted() && counts.len() == BOUNDS.len() + 1);
            prop_assert_eq!(counts.last(), Some(&times.count()));
        }
    }
}
