//! Reads scores from the output of a command.

use std::collections::HashMap;

use regex::bytes::Regex;
use serde_json::Value;

use crate::campaign::{Campaign, Read, ScoreSpec, Stream};
use crate::plan::Hash;
use crate::row::{Failure, FailureKind, Score};

/// The maximum size of a compiled pattern in bytes.
const MAX_PATTERN: usize = 1 << 20;

/// The output of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
}

/// What a command wrote, or the start and the end of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The bytes that are kept.
    pub bytes: Vec<u8>,
    /// The number of bytes that are left out in the middle.
    pub left_out: u64,
}

/// A step of a path into a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathStep {
    Key(String),
    Index(usize),
    /// The first element of a list whose key has this value.
    Where(String, String),
}

/// Parses a path such as `results[0].median` or `results[case=chain].median`.
pub(crate) fn json_path(path: &str) -> Result<Vec<PathStep>, String> {
    let wrong = |why: &str| Err(format!("`{path}` is no path into JSON: {why}"));
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let Some((inside, after)) = inner.split_once(']') else { return wrong("a `[` without a `]`") };
            steps.push(match (inside.parse(), inside.split_once('=')) {
                (Ok(index), _) => PathStep::Index(index),
                (Err(_), Some((key, value))) => PathStep::Where(key.to_owned(), value.to_owned()),
                (Err(_), None) => return wrong("brackets hold a number or key=value"),
            });
            rest = after;
            if !rest.is_empty() && !rest.starts_with(['.', '[']) {
                return wrong("a `.` or `[` follows a `]`");
            }
            continue;
        }
        let name = match (rest.strip_prefix('.'), steps.is_empty()) {
            (Some(_), true) => return wrong("it begins with a `.`"),
            (Some(after), false) => after,
            (None, _) => rest,
        };
        let end = name.find(['.', '[']).unwrap_or(name.len());
        if end == 0 {
            return wrong("a name is empty");
        }
        steps.push(PathStep::Key(name[..end].to_owned()));
        rest = &name[end..];
    }
    if steps.is_empty() { wrong("it is empty") } else { Ok(steps) }
}

fn follow<'v>(value: &'v Value, steps: &[PathStep]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        PathStep::Key(key) => match (value, key.parse::<usize>()) {
            (Value::Array(items), Ok(index)) => items.get(index),
            _ => value.get(key),
        },
        PathStep::Index(index) => value.get(index),
        PathStep::Where(key, wanted) => {
            value.as_array()?.iter().find(|item| item.get(key).is_some_and(|found| is_label(found, wanted)))
        }
    })
}

/// Whether a JSON value is this word.
fn is_label(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Bool(boolean) => boolean.to_string().as_str() == wanted,
        Value::Number(number) => number.to_string().as_str() == wanted,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Compiles a pattern with exactly one named group.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let compiled = regex::bytes::RegexBuilder::new(pattern).size_limit(MAX_PATTERN).build();
    let regex = compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large; repeat less in it".to_owned(),
        // The last line says what is wrong; those before it draw the place.
        other => {
            let text = other.to_string();
            let why = text.lines().last().unwrap_or_default();
            format!("the pattern is no regular expression: {}", why.trim_start_matches("error: "))
        }
    })?;
    match regex.capture_names().flatten().count() {
        1 => Ok(regex),
        0 => Err("the pattern has no named group for the number".to_owned()),
        count => Err(format!("the pattern has {count} named groups, of which one can be the number")),
    }
}

/// Reads the scores of a campaign from outputs.
pub struct ScoreReader {
    specs: Vec<(ScoreSpec, How)>,
}

enum How {
    Json(Vec<PathStep>),
    Pattern(Regex, String),
    Bench,
    /// A pattern or path that does not parse, of a campaign that did not come from a file.
    Broken(String),
}

impl ScoreReader {
    /// The reader of a campaign.
    pub fn new(campaign: &Campaign) -> ScoreReader {
        let how = |spec: &ScoreSpec| match &spec.read {
            Read::Json(path) => json_path(path).map_or_else(How::Broken, How::Json),
            Read::Pattern(pattern) => match compile(pattern) {
                Ok(regex) => {
                    let name = regex.capture_names().flatten().next().unwrap_or_default().to_owned();
                    How::Pattern(regex, name)
                }
                Err(why) => How::Broken(why),
            },
            Read::Bench { .. } => How::Bench,
        };
        ScoreReader { specs: campaign.scores.iter().map(|spec| (spec.clone(), how(spec))).collect() }
    }

    /// Whether the scores are figures of a report of Bellows, whose exit code 3 says that some are undecided.
    pub(crate) fn is_bench(&self) -> bool {
        self.specs.iter().any(|(_, how)| matches!(how, How::Bench))
    }

    /// Whether a pattern or a path does not parse, which a file may not have.
    pub(crate) fn is_broken(&self) -> bool {
        self.specs.iter().any(|(_, how)| matches!(how, How::Broken(_)))
    }

    /// The scores of a run that failed: all absent.
    pub fn absent(&self) -> Vec<Score> {
        let declared = self.specs.iter().filter(|(spec, _)| !matches!(spec.read, Read::Bench { case: None, .. }));
        declared
            .map(|(spec, _)| Score { name: spec.name.clone(), unit: spec.unit.clone(), value: None, failure: None })
            .collect()
    }

    /// The scores of an output, each with its number or the reason why there is none.
    ///
    /// # Errors
    /// The reason for all scores together, if it is not known which there are.
    pub fn read(&self, output: &Output) -> Result<Vec<Score>, Failure> {
        let mut scores = Vec::new();
        // Several scores of one output share its value.
        let mut parsed: [Option<Result<Value, String>>; 2] = [None, None];
        for (spec, how) in &self.specs {
            let captured = match spec.from {
                Stream::Stdout => &output.stdout,
                Stream::Stderr => &output.stderr,
            };
            let json = &mut parsed[spec.from as usize];
            match how {
                How::Broken(why) => scores.push(absent(spec, Failure::new(FailureKind::NoScore, why.clone()))),
                How::Pattern(regex, group) => scores.push(score(spec, matched(regex, group, captured))),
                How::Json(steps) => {
                    let found = value_of(json, captured).and_then(|value| number_at(value, steps, &spec.read));
                    scores.push(score(spec, found));
                }
                How::Bench => scores.extend(figures(spec, value_of(json, captured)?)?),
            }
        }
        if scores.is_empty() {
            let units: Vec<&str> = self.specs.iter().map(|(spec, _)| spec.unit.as_str()).collect();
            let of = if units.iter().any(|unit| unit.is_empty()) { String::new() } else { units.join(" or ") };
            let of = if of.is_empty() { of } else { format!(" in {of}") };
            return Err(Failure::new(FailureKind::NoScore, format!("the report has no figures{of}")));
        }
        number_equal_names(&mut scores);
        Ok(scores)
    }
}

fn absent(spec: &ScoreSpec, failure: Failure) -> Score {
    score(spec, Err(failure))
}

fn score(spec: &ScoreSpec, found: Result<f64, Failure>) -> Score {
    let (value, failure) = match found {
        Ok(value) => (Some(value), None),
        Err(failure) => (None, Some(failure)),
    };
    Score { name: spec.name.clone(), unit: spec.unit.clone(), value, failure }
}

/// The JSON value of an output, which is parsed once.
fn value_of<'p>(parsed: &'p mut Option<Result<Value, String>>, captured: &Captured) -> Result<&'p Value, Failure> {
    let value = parsed.get_or_insert_with(|| parse_json(captured)).as_ref();
    value.map_err(|why| Failure::new(FailureKind::NoScore, why.clone()))
}

/// The JSON value of an output: all of it, or its last line.
fn parse_json(captured: &Captured) -> Result<Value, String> {
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes);
    if captured.left_out == 0
        && let Ok(value) = parse(&captured.bytes)
    {
        return Ok(value);
    }
    let line = captured.bytes.split(|byte| *byte == b'\n').rfind(|line| !line.trim_ascii().is_empty());
    match parse(line.unwrap_or_default()) {
        Ok(value) => Ok(value),
        Err(_) if captured.left_out > 0 => Err("the output is too long to be read as JSON".to_owned()),
        Err(_) if captured.bytes.trim_ascii().is_empty() => Err("the output is empty".to_owned()),
        Err(error) => Err(format!("neither the output nor its last line is JSON: {error}")),
    }
}

fn number_at(value: &Value, steps: &[PathStep], read: &Read) -> Result<f64, Failure> {
    let path = if let Read::Json(path) = read { path } else { "" };
    let no_score = |why: &str| Failure::new(FailureKind::NoScore, format!("{why} `{path}` of the output"));
    let found = follow(value, steps).ok_or_else(|| no_score("there is nothing at"))?;
    match found {
        Value::Number(number) => finite(number.as_f64().unwrap_or(f64::NAN), &number.to_string()),
        Value::String(text) => number(text),
        // NaN and infinities in JSON.
        Value::Null => Err(Failure::new(FailureKind::NotFinite, format!("`{path}` is null"))),
        _ => Err(no_score("there is no number at")),
    }
}

fn matched(regex: &Regex, group: &str, captured: &Captured) -> Result<f64, Failure> {
    let last = regex.captures_iter(&captured.bytes).filter_map(|captures| captures.name(group)).last();
    match last {
        Some(found) => number(&String::from_utf8_lossy(found.as_bytes())),
        None => {
            let why = match captured.left_out {
                0 => "the pattern matches nothing of the output".to_owned(),
                left_out => {
                    format!("the pattern matches nothing of the output, of which {left_out} bytes are not kept")
                }
            };
            Err(Failure::new(FailureKind::NoScore, why))
        }
    }
}

/// A number as programs print it.
fn number(text: &str) -> Result<f64, Failure> {
    let shown: String = text.chars().take(40).collect();
    match text.trim().parse::<f64>() {
        Ok(value) => finite(value, &shown),
        Err(_) => Err(Failure::new(FailureKind::NoScore, format!("`{shown}` is no number"))),
    }
}

fn finite(value: f64, text: &str) -> Result<f64, Failure> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(Failure::new(FailureKind::NotFinite, format!("`{text}` is not a finite number"))),
    }
}

/// The figures of a report of Bellows.
fn figures(spec: &ScoreSpec, report: &Value) -> Result<Vec<Score>, Failure> {
    let no_score = |why: String| Failure::new(FailureKind::NoScore, why);
    let Read::Bench { case, labels, mean } = &spec.read else { return Ok(Vec::new()) };
    let Some(results) = report.get("results").and_then(Value::as_array) else {
        return Err(no_score("the output is no report of `bellows bench … --json`".to_owned()));
    };
    if report.get("interrupted").is_some_and(|interrupted| interrupted == true) {
        return Err(no_score("the report says that its benchmark was interrupted".to_owned()));
    }
    let has_label = |figure: &Value, name: &str, wanted: &str| {
        figure.get("labels").and_then(|labels| labels.get(name)).is_some_and(|found| is_label(found, wanted))
    };
    let chosen: Vec<&Value> = results
        .iter()
        .filter(|figure| case.as_ref().is_none_or(|case| figure.get("case").is_some_and(|found| is_label(found, case))))
        .filter(|figure| labels.iter().all(|(name, wanted)| has_label(figure, name, wanted)))
        .filter(|figure| spec.unit.is_empty() || figure.get("unit").is_some_and(|unit| is_label(unit, &spec.unit)))
        .collect();
    if *mean {
        return Ok(geometric_mean(spec, &chosen).into_iter().collect());
    }
    let Some(case) = case else {
        return Ok(chosen.into_iter().map(|figure| figure_score(full_name(figure), figure)).collect());
    };
    let found = match chosen.as_slice() {
        [only] => return Ok(vec![figure_score(spec.name.clone(), only)]),
        [] => format!("the report has no figure `{case}` with these labels and this unit"),
        several => format!("the report has {} figures `{case}`; choose one by `labels` and `unit`", several.len()),
    };
    Ok(vec![absent(spec, no_score(found))])
}

/// The geometric mean of figures, in which each counts by its ratio to another build's. None if there are no figures; without
/// a number if one of them has none, because a mean of the others is another quantity. For the same reason its name says
/// which figures it is of, by their number and a hash of their names: means of others are other scores.
fn geometric_mean(spec: &ScoreSpec, figures: &[&Value]) -> Option<Score> {
    let figures: Vec<Score> = figures.iter().map(|figure| figure_score(full_name(figure), figure)).collect();
    let mut names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
    names.sort_unstable();
    let hash = Hash::of(names.join("\n").as_bytes()).short();
    let count = match figures.len() {
        0 => return None,
        1 => "1 figure".to_owned(),
        count => format!("{count} figures"),
    };
    let name = format!("{} (mean of {count}, {})", spec.name, &hash[..4]);
    let value_of = |figure: &Score| match (figure.value, &figure.failure) {
        (Some(value), _) if value > 0.0 => Ok(value.ln()),
        (Some(value), _) => Err(format!("it is {value}, which has no geometric mean")),
        (None, failure) => Err(failure.as_ref().map_or("it has no number".to_owned(), |failure| failure.why.clone())),
    };
    let mut sum = 0.0;
    for figure in &figures {
        match value_of(figure) {
            Ok(logarithm) => sum += logarithm,
            Err(why) => {
                let why = format!("the mean lacks the figure `{}`: {why}", figure.name);
                let failure = Some(Failure::new(FailureKind::NoScore, why));
                return Some(Score { name, unit: spec.unit.clone(), value: None, failure });
            }
        }
    }
    let value = (sum / figures.len() as f64).exp();
    Some(Score { name, unit: spec.unit.clone(), value: Some(value), failure: None })
}

/// Numbers the later scores of the same name and unit, so that each has its own name.
fn number_equal_names(scores: &mut [Score]) {
    let mut counts: HashMap<(String, String), usize> = HashMap::new();
    for score in scores {
        let count = counts.entry((score.name.clone(), score.unit.clone())).or_default();
        *count += 1;
        if *count > 1 {
            score.name = format!("{} #{count}", score.name);
        }
    }
}

/// The case of a figure and its conditions. Labels with a decimal point and verdicts are measured and differ between runs,
/// so that they are no part of the name.
fn full_name(figure: &Value) -> String {
    let case = figure.get("case").and_then(Value::as_str).unwrap_or("figure");
    let labels = figure.get("labels").and_then(Value::as_object).into_iter().flatten();
    let labels: Vec<String> = labels
        .filter(|(name, value)| !value.is_f64() && *name != "verdict")
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name} {text}"),
            other => format!("{name} {other}"),
        })
        .collect();
    if labels.is_empty() { case.to_owned() } else { format!("{case} ({})", labels.join(", ")) }
}

fn figure_score(name: String, figure: &Value) -> Score {
    let unit = figure.get("unit").and_then(Value::as_str).unwrap_or_default().to_owned();
    let value = figure.get("median").and_then(Value::as_f64).filter(|median| median.is_finite());
    let failure = match (value, figure.get("undecided")) {
        (Some(_), _) => None,
        (None, Some(Value::Bool(true))) => {
            Some(Failure::new(FailureKind::NotFinite, "undecided: the machine was too disturbed"))
        }
        (None, _) => Some(Failure::new(FailureKind::NotFinite, "the figure has no median")),
    };
    Score { name, unit, value, failure }
}
