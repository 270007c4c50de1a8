//! Reads a line of the journal in the form in which rows are written: fields in the order of [`Row`](crate::Row), and no
//! spaces. That is several times as fast as a parser of any JSON, which reads all other lines.

use std::borrow::Cow;

use crate::line::{Line, LineMachine, LineScore, Pairs, Text};
use crate::plan::Hash;
use crate::row::{Failure, FailureKind};

impl<'l> Line<'l> {
    /// Reads a line.
    pub(crate) fn parse(bytes: &'l [u8]) -> serde_json::Result<Line<'l>> {
        match std::str::from_utf8(bytes) {
            Ok(text) => line(text).map_or_else(|| serde_json::from_str(text), Ok),
            Err(_) => serde_json::from_slice(bytes),
        }
    }
}

/// A line in that form. Nothing if it may be one in another form, or none.
pub(crate) fn line(text: &str) -> Option<Line<'_>> {
    let mut rest = Scanner(text.strip_suffix('\n').unwrap_or(text));
    let line = Line {
        run: rest.named("{", "run")?.parse().ok()?,
        campaign: Text(rest.hash("campaign")?),
        levels: Pairs(rest.skip(r#","levels":"#)?.pairs()?),
        scores: rest.skip(r#","scores":"#)?.list(Scanner::score)?,
        failure: rest.optional(r#","failure":"#, Scanner::failure)?,
        disturbed: rest
            .optional(r#","disturbed":"#, |rest| rest.list(|rest| rest.text().map(Text)))?
            .unwrap_or_default(),
        start: Text(rest.named(",", "start")?),
        seconds: rest.skip(r#","seconds":"#)?.number()?,
        machine: rest.machine()?,
        versions: Pairs(rest.optional(r#","versions":"#, Scanner::pairs)?.unwrap_or_default()),
        registered: rest.optional_hash(r#","registered":"#)?,
        known: rest.optional_hash(r#","known":"#)?,
    };
    (rest.0 == "}").then_some(line)
}

/// What is left of a line. Its functions give nothing if something else comes next.
struct Scanner<'l>(&'l str);

impl<'l> Scanner<'l> {
    fn skip(&mut self, text: &str) -> Option<&mut Self> {
        self.0 = self.0.strip_prefix(text)?;
        Some(self)
    }

    fn has(&mut self, text: &str) -> bool {
        self.skip(text).is_some()
    }

    /// A text with its name, behind a brace or a comma.
    fn named(&mut self, before: &str, name: &str) -> Option<Cow<'l, str>> {
        self.skip(before)?.skip("\"")?.skip(name)?.skip("\":")?.text()
    }

    /// A field that there need not be.
    fn optional<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.has(name) { read(self).map(Some) } else { Some(None) }
    }

    fn hash(&mut self, name: &str) -> Option<Cow<'l, str>> {
        let text = self.named(",", name)?;
        text.parse::<Hash>().is_ok().then_some(text)
    }

    fn optional_hash(&mut self, name: &str) -> Option<Option<Text<'l>>> {
        self.optional(name, |rest| {
            let text = rest.text()?;
            text.parse::<Hash>().is_ok().then_some(Text(text))
        })
    }

    fn text(&mut self) -> Option<Cow<'l, str>> {
        let start = self.0.strip_prefix('"')?;
        let is_end = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..b' ');
        let end = start.bytes().position(|byte| is_end(&byte))?;
        match start.as_bytes()[end] {
            b'"' => {
                self.0 = &start[end + 1..];
                Some(Cow::Borrowed(&start[..end]))
            }
            b'\\' => self.escaped(end),
            _ => None,
        }
    }

    /// A text whose first escape is at this place behind its quote.
    fn escaped(&mut self, first: usize) -> Option<Cow<'l, str>> {
        let bytes = self.0.as_bytes();
        let mut place = first + 1;
        loop {
            match bytes.get(place)? {
                b'"' => break,
                b'\\' => place += 2,
                _ => place += 1,
            }
        }
        let text: String = serde_json::from_str(self.0.get(..=place)?).ok()?;
        self.0 = &self.0[place + 1..];
        Some(Cow::Owned(text))
    }

    /// A number of JSON, which is finite.
    fn number(&mut self) -> Option<f64> {
        let bytes = self.0.as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = usize::from(bytes.first() == Some(&b'-'));
        match (bytes.get(end)?, digits(end)) {
            (b'0', count) if count > 1 => return None,
            (_, 0) => return None,
            (_, count) => end += count,
        }
        if bytes.get(end) == Some(&b'.') {
            let count = digits(end + 1);
            if count == 0 {
                return None;
            }
            end += 1 + count;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let count = digits((end + 1 + sign).min(bytes.len()));
            if count == 0 {
                return None;
            }
            end += 1 + sign + count;
        }
        let number: f64 = self.0[..end].parse().ok()?;
        self.0 = &self.0[end..];
        number.is_finite().then_some(number)
    }

    fn number_or_null(&mut self) -> Option<Option<f64>> {
        if self.has("null") { Some(None) } else { self.number().map(Some) }
    }

    /// Texts with their names.
    fn pairs(&mut self) -> Option<Vec<(Text<'l>, Text<'l>)>> {
        let mut pairs = Vec::with_capacity(4);
        if self.has("{}") {
            return Some(pairs);
        }
        self.skip("{")?;
        loop {
            let name = self.text()?;
            pairs.push((Text(name), Text(self.skip(":")?.text()?)));
            if !self.has(",") {
                self.skip("}")?;
                return Some(pairs);
            }
        }
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut list = Vec::new();
        if self.has("[]") {
            return Some(list);
        }
        self.skip("[")?;
        loop {
            list.push(read(self)?);
            if !self.has(",") {
                self.skip("]")?;
                return Some(list);
            }
        }
    }

    fn score(&mut self) -> Option<LineScore<'l>> {
        let score = LineScore {
            name: Text(self.named("{", "name")?),
            unit: Text(self.named(",", "unit")?),
            value: self.skip(r#","value":"#)?.number_or_null()?,
            failure: self.optional(r#","failure":"#, Scanner::failure)?,
        };
        self.skip("}")?;
        Some(score)
    }

    fn failure(&mut self) -> Option<Failure> {
        let kind = FailureKind::of_name(&self.named("{", "kind")?)?;
        let why = self.named(",", "why")?.into_owned();
        let stderr = self.optional(r#","stderr":"#, Scanner::text)?.unwrap_or_default().into_owned();
        self.skip("}")?;
        Some(Failure { kind, why, stderr })
    }

    fn machine(&mut self) -> Option<LineMachine<'l>> {
        self.skip(r#","machine":"#)?;
        let machine = LineMachine {
            host: Text(self.named("{", "host")?),
            cpu: Text(self.named(",", "cpu")?),
            cpus: Text(self.named(",", "cpus")?),
            os: Text(self.named(",", "os")?),
            load: self.skip(r#","load":"#)?.number()?,
            steal: self.skip(r#","steal":"#)?.number_or_null()?,
            yardstick_before: self.skip(r#","yardstick_before":"#)?.number()?,
            yardstick_after: self.skip(r#","yardstick_after":"#)?.number()?,
        };
        self.skip("}")?;
        Some(machine)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::RunId;
    use crate::row::{Machine, Row, Score};

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![any::<f64>().prop_filter("JSON has only these", |number| number.is_finite()), 0.0..10.0, Just(0.0)]
    }

    fn failure() -> impl Strategy<Value = Option<Failure>> {
        let kind = prop::sample::select(FailureKind::ALL.to_vec());
        prop::option::of((kind, ".{0,9}", ".{0,9}").prop_map(|(kind, why, stderr)| Failure { kind, why, stderr }))
    }

    fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[a-z]{0,3}|.{0,3}", ".{0,9}", 0..4)
    }

    fn rows() -> impl Strategy<Value = Row> {
        let score = (".{0,5}", ".{0,5}", prop::option::of(number()), failure())
            .prop_map(|(name, unit, value, failure)| Score { name, unit, value, failure });
        let scores = prop::collection::vec(score, 0..3);
        let machine =
            ((".{0,5}", ".{0,5}", ".{0,5}", ".{0,5}"), number(), prop::option::of(number()), number(), number());
        let hash = prop::option::of(any::<[u8; 4]>().prop_map(|bytes| Hash::of(&bytes)));
        let some = (1u32.., 1u32.., any::<[u8; 4]>(), texts(), scores, failure());
        let more = (prop::collection::vec(".{0,9}", 0..3), ".{0,24}", number(), machine, texts(), hash.clone(), hash);
        (some, more).prop_map(|((block, combination, campaign, levels, scores, failure), more)| {
            let (disturbed, start, seconds, machine, versions, registered, known) = more;
            let ((host, cpu, cpus, os), load, steal, yardstick_before, yardstick_after) = machine;
            let machine = Machine { host, cpu, cpus, os, load, steal, yardstick_before, yardstick_after };
            Row {
                run: RunId { block, combination },
                campaign: Hash::of(&campaign),
                levels,
                scores,
                failure,
                disturbed,
                start,
                seconds,
                machine,
                versions,
                registered,
                known,
            }
        })
    }

    /// Every line that is read here is a row, and a parser reads the same.
    fn check(text: &str) -> Option<Line<'_>> {
        let scanned = line(text)?;
        serde_json::from_str::<Row>(text).unwrap();
        assert_eq!(scanned, serde_json::from_str::<Line<'_>>(text).unwrap(), "{text}");
        Some(scanned)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn rows_are_read_as_they_are_written(row in rows()) {
            let text = serde_json::to_string(&row).unwrap() + "\n";
            prop_assert_eq!(check(&text), Some(Line::of(&row)));
        }

        #[test]
        fn what_was_changed_is_read_as_json_or_left_to_a_parser(
            row in rows(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..4),
        ) {
            let mut bytes = serde_json::to_vec(&row).unwrap();
            for (place, byte, change) in changes {
                let place = place.index(bytes.len());
                match change {
                    0 => bytes[place] = byte,
                    1 => bytes[place] = b"\"\\{}[]:,0-.eE null1"[usize::from(byte) % 19],
                    2 => drop(bytes.remove(place)),
                    _ => bytes.insert(place, byte % 128),
                }
            }
            if let Ok(text) = std::str::from_utf8(&bytes) {
                check(text);
            }
        }
    }

    #[test]
    fn numbers_are_those_of_json() {
        for text in ["0", "-0", "1", "12.50", "1e3", "-1.5E-3", "1e+9", "123456789012345678901234567890", "0.0"] {
            let mut scanner = Scanner(text);
            assert_eq!(scanner.number(), Some(serde_json::from_str::<f64>(text).unwrap()), "{text}");
            assert_eq!(scanner.0, "", "{text}");
        }
        for text in ["", "-", "01", "00", "+1", ".5", "1.", "1.e3", "1e", "1e+", "1e999", "NaN", "inf", "null", "e5"] {
            assert_eq!(Scanner(text).number(), None, "{text}");
        }
    }
}
