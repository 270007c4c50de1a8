//! The formats of an exposition, and the choice between them.

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

/// A media range of an `Accept` field: its type, the value of `version`, and its weight in thousandths.
struct Range<'a> {
    media: &'a str,
    version: Option<&'a str>,
    weight: u32,
}

impl Format {
    /// The media type for `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a client prefers by its `Accept` fields (RFC 9110, section 12.5.1). A client that accepts
    /// neither, or does not say, gets [`Format::Text`], as from other exporters.
    pub fn accepted<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
        let ranges: Vec<Range<'_>> = accept.flat_map(|field| field.split(',')).filter_map(Range::read).collect();
        let weight = |is_meant: fn(&Range<'_>) -> bool| {
            ranges.iter().filter(|range| is_meant(range)).map(|range| range.weight).max().unwrap_or(0)
        };
        let open = weight(|range| {
            range.media.eq_ignore_ascii_case("application/openmetrics-text")
                && range.version.is_none_or(|version| version == "1.0.0" || version == "1.0")
        });
        let text = weight(|range| {
            let is_any = range.media == "*/*" || range.media.eq_ignore_ascii_case("text/*");
            let is_text = range.media.eq_ignore_ascii_case("text/plain");
            is_any || (is_text && range.version.is_none_or(|version| version == "0.0.4"))
        });
        if open > 0 && open >= text { Format::OpenMetrics } else { Format::Text }
    }
}

impl<'a> Range<'a> {
    /// Reads a range; `None` if its weight is malformed.
    fn read(text: &'a str) -> Option<Range<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Range { media: parts.next()?, version: None, weight: 1_000 };
        for part in parts {
            let Some((name, value)) = part.split_once('=') else { continue };
            match name.trim() {
                name if name.eq_ignore_ascii_case("q") => range.weight = weight(value.trim())?,
                name if name.eq_ignore_ascii_case("version") => range.version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        Some(range)
    }
}

/// A weight from `0` to `1` with up to three decimals, in thousandths.
fn weight(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(whole, "0" | "1") || decimals.len() > 3 || !is_number(decimals) {
        return None;
    }
    let thousandths: u32 = format!("{decimals:0<3}").parse().ok()?;
    Some(whole.parse::<u32>().ok()? * 1_000 + thousandths).filter(|weight| *weight <= 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What Prometheus 2.42 and 3 send.
    const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
                                q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                                application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;\
                                escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[test]
    fn a_client_gets_what_it_prefers() {
        for (accept, expected) in [
            (PROMETHEUS_2, Format::OpenMetrics),
            (PROMETHEUS_3, Format::OpenMetrics),
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            ("application/openmetrics-text;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.9", Format::Text),
            ("application/openmetrics-text;q=2", Format::Text),
            ("application/json", Format::Text),
        ] {
            assert_eq!(Format::accepted([accept].into_iter()), expected, "{accept}");
        }
        assert_eq!(
            Format::accepted(["text/plain;q=0.5", "application/openmetrics-text"].into_iter()),
            Format::OpenMetrics
        );
        let weights = ["1", "0", "0.5", "1.000", "0.123", "1.001", "2", "0.1234", ".5", "", "0.x"].map(weight);
        let expected = [Some(1_000), Some(0), Some(500), Some(1_000), Some(123)];
        assert_eq!(weights[..5], expected);
        assert!(weights[5..].iter().all(Option::is_none), "{weights:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_field_chooses_a_format(accept in "[a-z/*;=,.q0-9 \"-]{0,60}") {
            Format::accepted([accept.as_str()].into_iter());
        }
    }
}
