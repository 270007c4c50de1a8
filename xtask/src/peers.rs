//! `cargo xtask peers`: Bellows beside the programs that it is compared with, in one run on one machine.

use std::fmt::Write;
use std::process::Command;

use crate::tools::{self, Tool};
use crate::workspace::{cargo, target_dir};
use crate::{Failure, vhost};

const TOOLS: &[Tool] = &[
    Tool { programs: &["luajit"], package: "luajit", purpose: "the breath model in Lua" },
    Tool { programs: &["taskset"], package: "util-linux", purpose: "measuring on one processor" },
];

/// The model in Lua, and the loops that it has.
const MODEL: &str = "bench/peers/breathsim.lua";
const LOOPS: [&str; 2] = ["nested", "flattened"];

/// When the apps become busy, and of how many breaths a run is: of a second or two, in the slower program.
const CELLS: [(&str, u64); 3] = [("never", 20_000_000), ("1000", 3_000_000), ("0", 3_000_000)];

/// What `peers breathsim` is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    processes: usize,
    cpu: Option<usize>,
    json: bool,
    /// A run has so many times fewer breaths.
    brief: u64,
}

impl Options {
    fn parse(words: &[String]) -> Result<Options, Failure> {
        let mut options = Options { processes: 9, cpu: None, json: false, brief: 1 };
        let mut words = words.iter();
        match words.next().map(String::as_str) {
            Some("breathsim") => {}
            Some(other) => {
                return Err(Failure::usage(format!(
                    "peers: there is no comparison '{other}'; there are breathsim and vhost"
                )));
            }
            None => return Err(Failure::usage("peers: say which comparison; there are breathsim and vhost")),
        }
        while let Some(word) = words.next() {
            let mut number = |name: &str| {
                let number = words.next().and_then(|number| number.parse::<usize>().ok());
                number.ok_or_else(|| Failure::usage(format!("{name} needs a whole number")))
            };
            match word.as_str() {
                "--json" => options.json = true,
                "--brief" => options.brief = 1_000,
                "--cpu" => options.cpu = Some(number("--cpu")?),
                "--processes" => match number("--processes")? {
                    0 => return Err(Failure::usage("--processes needs at least 1")),
                    processes => options.processes = processes,
                },
                other => return Err(Failure::usage(format!("peers: '{other}' is not an option"))),
            }
        }
        Ok(options)
    }
}

/// Runs the chore.
pub fn run(words: &[String]) -> Result<(), Failure> {
    if let Some((_, words)) = words.split_first().filter(|(comparison, _)| *comparison == "vhost") {
        return vhost::run(words);
    }
    let options = Options::parse(words)?;
    if let Some(tool) = tools::provide(TOOLS).first() {
        return Err(Failure::chore(format!("missing: {tool}; needed for {}", tool.purpose)));
    }
    let mut build = cargo(&["build", "--release", "--quiet", "--package", "bellows"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err(Failure::chore("the release build of bellows failed: see above"));
    }
    let cpu = match options.cpu {
        Some(cpu) => cpu,
        None => last_allowed_cpu()?,
    };
    let rows = measure(&options, cpu)?;
    print!("{}", if options.json { json(&rows, options.processes) } else { text(&rows, options.processes, cpu) });
    Ok(())
}

/// Which program with which loop, measured when the apps become busy after so many breaths.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    program: &'static str,
    shape: String,
    busy_after: &'static str,
}

/// Its figures, in nanoseconds a breath: one from each process.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    cell: Cell,
    samples: Vec<f64>,
}

impl Row {
    fn new(cell: Cell, mut samples: Vec<f64>) -> Row {
        samples.sort_by(f64::total_cmp);
        Row { cell, samples }
    }

    fn median(&self) -> f64 {
        let middle = self.samples.len() / 2;
        if self.samples.len() % 2 == 1 {
            self.samples[middle]
        } else {
            (self.samples[middle - 1] + self.samples[middle]) / 2.0
        }
    }

    fn least(&self) -> f64 {
        self.samples[0]
    }

    fn most(&self) -> f64 {
        self.samples[self.samples.len() - 1]
    }
}

/// Runs both programs in turns, each cell in a fresh process in every round.
fn measure(options: &Options, cpu: usize) -> Result<Vec<Row>, Failure> {
    let mut found: Vec<(Cell, Vec<f64>)> = Vec::new();
    for round in 1..=options.processes {
        eprintln!("measuring: round {round} of {}", options.processes);
        for (busy_after, breaths) in CELLS {
            let breaths = breaths / options.brief;
            let mut measured = Vec::new();
            for shape in LOOPS {
                let cell = Cell { program: "luajit", shape: shape.to_owned(), busy_after };
                measured.push((cell, run_model(cpu, shape, busy_after, breaths)?));
            }
            for (shape, time) in run_bellows(cpu, busy_after, breaths)? {
                measured.push((Cell { program: "bellows", shape, busy_after }, time));
            }
            for (cell, time) in measured {
                match found.iter_mut().find(|(other, _)| *other == cell) {
                    Some((_, samples)) => samples.push(time),
                    None => found.push((cell, vec![time])),
                }
            }
        }
    }
    Ok(found.into_iter().map(|(cell, samples)| Row::new(cell, samples)).collect())
}

fn run_model(cpu: usize, shape: &str, busy_after: &str, breaths: u64) -> Result<f64, Failure> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string(), "luajit", MODEL, shape, busy_after, &breaths.to_string()]);
    let said = output(&mut command)?;
    time_of(&said).ok_or_else(|| Failure::chore(format!("{MODEL} printed no time of a breath but: {said}")))
}

/// `77.213 ns/breath`
fn time_of(said: &str) -> Option<f64> {
    said.trim().strip_suffix(" ns/breath")?.parse().ok()
}

/// The time of a breath under every schedule that there is here.
fn run_bellows(cpu: usize, busy_after: &str, breaths: u64) -> Result<Vec<(String, f64)>, Failure> {
    let mut command = Command::new(target_dir().join("release/bellows"));
    command.args(["breathsim", "--processes", "1", "--json", "--cpu", &cpu.to_string()]);
    command.args(["--busy-after", busy_after, "--iterations", &breaths.to_string()]);
    let said = output(&mut command)?;
    let figures = figures_of(&said);
    match figures.is_empty() {
        true => Err(Failure::chore(format!("bellows breathsim reported no figure but: {said}"))),
        false => Ok(figures),
    }
}

/// Schedule and median of each figure in a report: its keys come in alphabetical order, a figure's labels last.
fn figures_of(report: &str) -> Vec<(String, f64)> {
    let mut median = None;
    let mut figures = Vec::new();
    for line in report.lines() {
        let Some((key, value)) = line.trim().trim_end_matches(',').split_once(": ") else { continue };
        match key {
            "\"median\"" => median = value.parse().ok(),
            "\"schedule\"" => figures.extend(median.take().map(|median| (value.trim_matches('"').to_owned(), median))),
            _ => {}
        }
    }
    figures
}

/// What a program prints, if it ends well.
fn output(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .env("PATH", tools::search_path())
        .output()
        .map_err(|error| Failure::chore(format!("cannot run {name}: {error}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::chore(format!("{name} failed ({}): {why}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The last processor that this process may use.
fn last_allowed_cpu() -> Result<usize, Failure> {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| last_of_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?))
        .ok_or_else(|| Failure::chore("/proc/self/status does not say which processors may be used; name one by --cpu"))
}

/// `0-3,8-11` ends with 11.
fn last_of_list(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// The figures side by side, with what each is of LuaJIT's with the same loops and of its flattened ones.
fn text(rows: &[Row], processes: usize, cpu: usize) -> String {
    let mut text = format!(
        "breathsim · 5 apps, 100 increments · {processes} processes a figure, in turns, on processor {cpu}\n\n"
    );
    let _ = writeln!(
        text,
        "{:>10}  {:8}  {:9}  {:>9}  {:>17}  {:>16}  {:>19}",
        "busy after", "program", "loops", "ns/breath", "least – most", "of luajit nested", "of luajit flattened"
    );
    for row in rows {
        let Cell { program, shape, busy_after } = &row.cell;
        let of =
            |shape: &str| find(rows, "luajit", shape, busy_after).map_or(f64::NAN, |peer| row.median() / peer.median());
        let _ = writeln!(
            text,
            "{busy_after:>10}  {program:8}  {shape:9}  {:>9.2}  {:>17}  {:>16.3}  {:>19.3}",
            row.median(),
            format!("{:.2} – {:.2}", row.least(), row.most()),
            of("nested"),
            of("flattened"),
        );
    }
    text.push_str("\nhistory, busy after 1000 idle breaths over busy from the start:\n");
    for Row { cell: Cell { program, shape, .. }, .. } in rows.iter().filter(|row| row.cell.busy_after == "0") {
        if let (Some(after), Some(before)) = (find(rows, program, shape, "1000"), find(rows, program, shape, "0")) {
            let _ = writeln!(text, "  {program:8}  {shape:9}  {:.3}", after.median() / before.median());
        }
    }
    text
}

fn find<'a>(rows: &'a [Row], program: &str, shape: &str, busy_after: &str) -> Option<&'a Row> {
    rows.iter().find(|Row { cell, .. }| (cell.program, &*cell.shape, cell.busy_after) == (program, shape, busy_after))
}

/// The figures in the shape of a benchmark's report.
fn json(rows: &[Row], processes: usize) -> String {
    let results: Vec<String> = rows
        .iter()
        .map(|row| {
            let Cell { program, shape, busy_after } = &row.cell;
            let busy_after = if *busy_after == "never" { "\"never\"" } else { busy_after };
            format!(
                "    {{\"case\": \"breath\", \"unit\": \"ns/breath\", \"median\": {:.3}, \"low\": {:.3}, \"high\": {:.3}, \
                 \"labels\": {{\"program\": \"{program}\", \"schedule\": \"{shape}\", \"apps\": 5, \"work\": 100, \
                 \"busy_after\": {busy_after}}}}}",
                row.median(),
                row.least(),
                row.most()
            )
        })
        .collect();
    format!(
        "{{\n  \"bench\": \"peers breathsim\",\n  \"processes\": {processes},\n  \"results\": [\n{}\n  ]\n}}\n",
        results.join(",\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, Failure> {
        Options::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn options_follow_the_comparison() {
        let all = Options { processes: 3, cpu: Some(1), json: true, brief: 1_000 };
        assert_eq!(parse(&["breathsim", "--brief", "--processes", "3", "--json", "--cpu", "1"]).ok(), Some(all));
        for (words, why) in [
            (&[] as &[&str], "there are breathsim and vhost"),
            (&["bridge"], "no comparison 'bridge'"),
            (&["breathsim", "--fast"], "'--fast'"),
            (&["breathsim", "--processes", "0"], "at least 1"),
            (&["breathsim", "--cpu", "first"], "--cpu needs a whole number"),
        ] {
            let Err(Failure::Usage(message)) = parse(words) else { panic!("{words:?} was accepted") };
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn what_the_programs_print_is_understood() {
        assert_eq!(time_of("77.213 ns/breath\n"), Some(77.213));
        assert_eq!(time_of("luajit: no such file"), None);
        let report = r#"{
            "results": [
              {
                "median": 22.5,
                "reference": 1.0,
                "labels": {
                  "apps": 5,
                  "schedule": "nested",
                  "work": 100
                }
              },
              {
                "median": 10.25,
                "labels": {
                  "schedule": "flat"
                }
              }
            ]
          }"#;
        assert_eq!(figures_of(report), [("nested".to_owned(), 22.5), ("flat".to_owned(), 10.25)]);
        assert_eq!(figures_of("error: no such thing"), []);
    }

    #[test]
    fn the_last_processor_is_the_end_of_the_list() {
        for (list, last) in
            [("\t0-1\n", Some(1)), ("0", Some(0)), ("0-3,8-11", Some(11)), ("0-3,7", Some(7)), ("", None)]
        {
            assert_eq!(last_of_list(list), last);
        }
    }

    /// Two programs at 100 and 50 ns when idle, and so on.
    fn rows() -> Vec<Row> {
        let row = |program, shape: &str, busy_after, samples: &[f64]| {
            Row::new(Cell { program, shape: shape.to_owned(), busy_after }, samples.to_vec())
        };
        vec![
            row("luajit", "nested", "1000", &[440.0, 400.0, 420.0]),
            row("luajit", "flattened", "1000", &[350.0, 340.0]),
            row("bellows", "flat", "1000", &[210.0]),
            row("luajit", "nested", "0", &[350.0]),
        ]
    }

    #[test]
    fn the_table_shows_medians_ratios_and_history() {
        let text = text(&rows(), 3, 1);
        let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_default().to_owned();
        for part in ["210.00", "0.500", "0.609"] {
            assert!(line("bellows").contains(part), "{part} is not in {text}");
        }
        assert!(line("345.00").contains("340.00 – 350.00"), "{text}");
        assert!(text.ends_with("luajit    nested     1.200\n"), "{text}");
    }

    #[test]
    fn the_json_has_the_shape_of_a_report() {
        let json = json(&rows(), 3);
        let row = "{\"case\": \"breath\", \"unit\": \"ns/breath\", \"median\": 420.000, \"low\": 400.000, \"high\": 440.000, \
                   \"labels\": {\"program\": \"luajit\", \"schedule\": \"nested\", \"apps\": 5, \"work\": 100, \
                   \"busy_after\": 1000}}";
        assert!(json.contains(row), "{json}");
        for key in ["\"bench\": \"peers breathsim\"", "\"processes\": 3", "\"results\": ["] {
            assert!(json.contains(key), "{key} is not in {json}");
        }
    }
}
