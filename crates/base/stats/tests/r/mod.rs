//! Comparisons with R: expressions that it evaluates, many in one process because it takes a third of a second to
//! start.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Command;

use bellows_stats::Factor;
use bellows_testkit::programs::{has_program, run};
use bellows_testkit::scratch;

/// How far two numbers may be apart.
#[derive(Clone, Copy)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
}

/// The tolerance for whatever has no reason for another.
pub const STRICT: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-12 };

/// Numbers of ours and the expressions for which R gives theirs.
pub struct Comparisons {
    test: &'static str,
    script: String,
    ours: Vec<(String, Vec<f64>, Tolerance)>,
}

impl Comparisons {
    pub fn new(test: &'static str) -> Comparisons {
        Comparisons { test, script: String::new(), ours: Vec::new() }
    }

    /// Adds a statement to the script.
    pub fn run(&mut self, statement: &str) {
        writeln!(self.script, "{statement}").unwrap();
    }

    /// Defines a vector of R.
    pub fn define(&mut self, name: &str, values: &[f64]) {
        let statement = format!("{name} <- {}", vector(values));
        self.run(&statement);
    }

    /// Defines a data frame of R with scores `y` and these factors, with our order of levels.
    pub fn define_frame(&mut self, name: &str, scores: &[f64], factors: &[Factor]) {
        let mut statement = format!("{name} <- data.frame(y = {}", vector(scores));
        for factor in factors {
            let codes: Vec<f64> = factor.codes().iter().map(|&code| f64::from(code) + 1.0).collect();
            let levels = factor.levels().join("\", \"");
            let (column, codes) = (factor.name(), vector(&codes));
            write!(statement, ", {column} = factor({codes}, {}, c(\"{levels}\"))", indices(factor.levels().len()))
                .unwrap();
        }
        self.run(&(statement + ")"));
    }

    /// Compares numbers with those of an expression, within [`STRICT`].
    pub fn same(&mut self, expression: &str, ours: impl Into<Vec<f64>>) {
        self.near(expression, ours, STRICT);
    }

    /// Compares numbers with those of an expression.
    pub fn near(&mut self, expression: &str, ours: impl Into<Vec<f64>>, tolerance: Tolerance) {
        let number = self.ours.len();
        self.run(&format!("cat(\"= {number}\", sprintf(\"%.17g\", as.numeric({{ {expression} }})), \"\\n\")"));
        self.ours.push((expression.to_owned(), ours.into(), tolerance));
    }

    /// Runs the script, and panics with all the differences. Skips the test without R.
    pub fn check(self) {
        let Some(output) = evaluate(self.test, &self.script) else { return };
        let mut theirs: HashMap<usize, Vec<f64>> = HashMap::new();
        for line in output.lines().filter_map(|line| line.strip_prefix("= ")) {
            let mut words = line.split_whitespace();
            let number = words.next().unwrap().parse().unwrap();
            theirs.insert(number, words.map(number_of).collect());
        }
        assert!(!self.ours.is_empty(), "something is compared");
        assert_eq!(theirs.len(), self.ours.len(), "one answer for each expression:\n{output}");
        let compare = |(number, (expression, ours, tolerance)): (usize, &(String, Vec<f64>, Tolerance))| {
            difference(ours, &theirs[&number], *tolerance).map(|text| format!("{expression}: {text}"))
        };
        let wrong: Vec<String> = self.ours.iter().enumerate().filter_map(compare).collect();
        assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), self.ours.len(), wrong.join("\n"));
    }
}

/// The output of a script, or `None` without R: the test is then skipped.
pub fn evaluate(test: &str, script: &str) -> Option<String> {
    if !has_program(test, "Rscript") {
        return None;
    }
    let folder = scratch();
    let path = folder.path().join("script.R");
    std::fs::write(&path, format!("options(warn = -1)\n{script}")).unwrap();
    Some(run(Command::new("Rscript").arg("--vanilla").arg(&path)).unwrap_or_else(|error| panic!("{error}")))
}

/// The first difference of two vectors that is too large.
fn difference(ours: &[f64], theirs: &[f64], tolerance: Tolerance) -> Option<String> {
    if ours.len() != theirs.len() {
        return Some(format!("{} numbers, R has {}: {ours:?} {theirs:?}", ours.len(), theirs.len()));
    }
    let is_near = |one: f64, other: f64| {
        let allowed = tolerance.absolute + tolerance.relative * other.abs();
        one == other || (one - other).abs() <= allowed || one.is_nan() && other.is_nan()
    };
    let place = ours.iter().zip(theirs).position(|(one, other)| !is_near(*one, *other))?;
    Some(format!("number {place} is {:e}, R has {:e}", ours[place], theirs[place]))
}

fn number_of(word: &str) -> f64 {
    match word {
        "NA" | "NaN" => f64::NAN,
        "Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        word => word.parse().unwrap_or_else(|_| panic!("R printed {word:?}")),
    }
}

/// A vector in the notation of R.
pub fn vector(values: &[f64]) -> String {
    let number = |value: &f64| if value.is_nan() { "NA".to_owned() } else { format!("{value:?}") };
    // R's parser gives up on very long lines.
    let lines: Vec<String> =
        values.chunks(20).map(|line| line.iter().map(number).collect::<Vec<String>>().join(", ")).collect();
    format!("c({})", lines.join(",\n"))
}

fn indices(count: usize) -> String {
    format!("1:{count}")
}

/// A data set that comes with R.
pub struct DataSet {
    pub name: &'static str,
    pub scores: Vec<f64>,
    pub factors: Vec<Factor>,
}

/// Data sets of R: name, score and factors. `None` without R.
pub fn data_sets(test: &str, columns: &[(&'static str, &str, &[&str])]) -> Option<Vec<DataSet>> {
    let mut script = String::new();
    for (name, score, factors) in columns {
        writeln!(script, "cat(sprintf('%.17g', {name}${score}), '\\n')").unwrap();
        for factor in *factors {
            // Also for names of levels with spaces, and in the order of levels of R.
            writeln!(script, "cat(as.integer(factor({name}${factor})), '\\n')").unwrap();
            writeln!(script, "cat(levels(factor({name}${factor})), sep = '|'); cat('\\n')").unwrap();
        }
    }
    let output = evaluate(test, &script)?;
    let mut lines = output.lines();
    let mut set = |(name, _, factors): &(&'static str, &str, &[&str])| {
        let scores = lines.next().unwrap().split_whitespace().map(number_of).collect();
        let mut factor = |name: &&str| {
            let codes = lines.next().unwrap().split_whitespace().map(|code| code.parse::<u32>().unwrap() - 1).collect();
            let levels = lines.next().unwrap().split('|').map(str::to_owned).collect();
            Factor::with_levels(*name, levels, codes).unwrap()
        };
        DataSet { name, scores, factors: factors.iter().map(&mut factor).collect() }
    };
    Some(columns.iter().map(&mut set).collect())
}
