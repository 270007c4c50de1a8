//! Families of metrics, and their names from declarations of counters.
//!
//! A name is `bellows_`, the subject, the counter's own name and its unit: `bellows_link_waiting_bytes`. Counts end in
//! `_total`. Times are in seconds. A unit that the counter's name has already is not repeated.

use std::borrow::Cow;

use bellows_observe::{Counter, CounterEntry};

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FamilyKind {
    /// A count that only grows.
    Counter,
    /// A number that may also fall.
    Gauge,
    /// Times by class.
    Histogram,
    /// A 1 whose labels say something.
    Info,
}

impl FamilyKind {
    /// Its name in OpenMetrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
            FamilyKind::Info => "info",
        }
    }
}

/// How the values of a family are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// As they are.
    Whole,
    /// Nanoseconds, as seconds.
    Nanoseconds,
}

/// A family of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricFamily<'a> {
    /// Its name without `_total` or `_info`.
    pub(crate) name: Cow<'a, str>,
    pub(crate) kind: FamilyKind,
    /// The unit that ends its name; empty if none does.
    pub(crate) unit: Cow<'a, str>,
    pub(crate) help: Cow<'a, str>,
    pub(crate) scale: Scale,
}

impl<'a> MetricFamily<'a> {
    /// A family of this name, which ends in its unit.
    pub(crate) const fn new(name: &'a str, kind: FamilyKind, unit: &'a str, help: &'a str) -> MetricFamily<'a> {
        let (name, unit, help) = (Cow::Borrowed(name), Cow::Borrowed(unit), Cow::Borrowed(help));
        MetricFamily { name, kind, unit, help, scale: Scale::Whole }
    }

    /// The family of a counter that `subject` has, such as `link`.
    pub(crate) fn of(subject: &str, counter: &Counter) -> MetricFamily<'static> {
        MetricFamily::declared(subject, counter.name, counter.help, counter.unit, counter.gauge)
    }

    /// The family of a counter that a type of apps declares.
    pub(crate) fn of_type(kind: &str, counter: &CounterEntry) -> MetricFamily<'static> {
        let CounterEntry { name, help, unit, gauge } = counter;
        MetricFamily::declared(&subject_of(kind), name, help, unit, *gauge)
    }

    fn declared(subject: &str, counter: &str, help: &str, unit: &str, gauge: bool) -> MetricFamily<'static> {
        let (unit, scale) = match unit {
            "nanoseconds" => ("seconds".to_owned(), Scale::Nanoseconds),
            "nanoseconds since 1970" => ("timestamp_seconds".to_owned(), Scale::Nanoseconds),
            // Numbers of something that has no other name than the counter's.
            "times" | "1 or 0" | "" => (String::new(), Scale::Whole),
            unit => (snake(unit), Scale::Whole),
        };
        let counter = snake(counter);
        let counter = if scale == Scale::Nanoseconds { counter.trim_end_matches("_ns") } else { &counter };
        let counter = if gauge { counter } else { counter.trim_end_matches("_total") };
        let mut name = format!("bellows_{subject}_{counter}");
        let has_unit = format!("_{counter}_").contains(&format!("_{unit}_"));
        if !unit.is_empty() && !has_unit {
            name = format!("{name}_{unit}");
        }
        if gauge && RESERVED_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            name += "_value";
        }
        // The unit of a timestamp is the second.
        let unit = unit.rsplit('_').next().filter(|_| scale == Scale::Nanoseconds).unwrap_or(&unit).to_owned();
        let unit = if name.ends_with(&format!("_{unit}")) { unit } else { String::new() };
        let help = if scale == Scale::Nanoseconds { help.replace("nanoseconds", "seconds") } else { help.to_owned() };
        let kind = if gauge { FamilyKind::Gauge } else { FamilyKind::Counter };
        MetricFamily { name: name.into(), kind, unit: unit.into(), help: help.into(), scale }
    }

    /// Whether a family of the same name has the same kind, unit and scale, so that both can be one.
    pub(crate) fn is_like(&self, other: &MetricFamily<'_>) -> bool {
        self.kind == other.kind && self.unit == other.unit && self.scale == other.scale
    }

    /// The name of its samples; those of a histogram have endings of their own.
    pub(crate) fn sample_name(&self) -> String {
        match self.kind {
            FamilyKind::Counter => format!("{}_total", self.name),
            FamilyKind::Info => format!("{}_info", self.name),
            FamilyKind::Gauge | FamilyKind::Histogram => self.name.clone().into_owned(),
        }
    }
}

/// Endings with a meaning in OpenMetrics, which no other name may have.
const RESERVED_ENDINGS: [&str; 6] = ["_total", "_count", "_sum", "_bucket", "_created", "_info"];

/// What the names of all networks' families begin with. A type of apps with such a name gets another one.
const SUBJECTS: [&str; 10] =
    ["app", "breath", "build", "latency", "link", "network", "pool", "port", "scrape", "worker"];

/// The types of metrics, which no part of a name may be (`promtool check metrics`).
const TYPE_WORDS: [&str; 6] = ["counter", "gauge", "histogram", "summary", "untyped", "info"];

/// A type of apps as a part of a name: `ip4-input` is `ip4_input`, and `counter` is `counters`.
pub(crate) fn subject_of(kind: &str) -> String {
    let subject = snake(kind);
    let first = subject.split('_').next().unwrap_or_default();
    if SUBJECTS.contains(&first) { format!("type_{subject}") } else { subject }
}

/// A text as a part of a name: lower-case letters and digits, in words joined by `_`.
fn snake(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.map(|word| {
        let word = word.to_ascii_lowercase();
        if TYPE_WORDS.contains(&&*word) { word + "s" } else { word }
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "unnamed".to_owned() } else { words.join("_") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn family(counter: Counter) -> (String, String, &'static str) {
        let family = MetricFamily::of("link", &counter);
        (family.sample_name(), family.unit.into_owned(), family.kind.name())
    }

    #[test]
    fn names_have_units_once() {
        for (counter, name, unit, kind) in [
            (Counter::new("packets", ""), "bellows_link_packets_total", "packets", "counter"),
            (Counter::new("txdrop", ""), "bellows_link_txdrop_packets_total", "packets", "counter"),
            (Counter::new("bytes", "").in_unit("bytes"), "bellows_link_bytes_total", "bytes", "counter"),
            (Counter::new("waiting", "").gauge(), "bellows_link_waiting_packets", "packets", "gauge"),
            (Counter::new("messages_sent", "").in_unit("messages"), "bellows_link_messages_sent_total", "", "counter"),
            (
                Counter::new("sleep_ns", "").in_unit("nanoseconds"),
                "bellows_link_sleep_seconds_total",
                "seconds",
                "counter",
            ),
            (Counter::new("sleeps", "").in_unit("times"), "bellows_link_sleeps_total", "", "counter"),
            (
                Counter::new("started", "").in_unit("nanoseconds since 1970").gauge(),
                "bellows_link_started_timestamp_seconds",
                "seconds",
                "gauge",
            ),
            (
                Counter::new("hops", "").in_unit("next hops"),
                "bellows_link_hops_next_hops_total",
                "next_hops",
                "counter",
            ),
            (
                Counter::new("progress_total", "").in_unit("bytes").gauge(),
                "bellows_link_progress_total_bytes",
                "bytes",
                "gauge",
            ),
            (Counter::new("file_count", "").in_unit("1 or 0").gauge(), "bellows_link_file_count_value", "", "gauge"),
            (Counter::new("grand_total", "").in_unit("times"), "bellows_link_grand_total", "", "counter"),
        ] {
            assert_eq!(family(counter), (name.to_owned(), unit.to_owned(), kind));
        }
    }

    #[test]
    fn types_have_names_of_their_own() {
        for (kind, subject) in [
            ("ip4-input", "ip4_input"),
            ("counter", "counters"),
            ("link", "type_link"),
            ("app-x", "type_app_x"),
            ("My.App", "my_app"),
            ("é", "unnamed"),
        ] {
            assert_eq!(subject_of(kind), subject);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever a program declares, the name is one that every parser takes, and ends in the unit.
        #[test]
        fn any_declaration_has_a_name(
            kind in any::<String>(),
            name in any::<String>(),
            unit in any::<String>(),
            gauge in any::<bool>(),
        ) {
            let family = MetricFamily::of_type(&kind, &CounterEntry { name, help: String::new(), unit, gauge });
            let sample = family.sample_name();
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            prop_assert!(sample.starts_with("bellows_") && sample.bytes().all(fits), "{sample}");
            prop_assert!(family.unit.is_empty() || family.name.ends_with(&format!("_{}", family.unit)), "{family:?}");
            prop_assert_eq!(sample.ends_with("_total"), !gauge);
            for word in TYPE_WORDS {
                prop_assert!(!format!("{sample}_").contains(&format!("_{word}_")), "{sample}");
            }
        }
    }
}
