//! `bellows show hot`: the instructions in which the engine spends its time, by samples.

mod code;

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use bellows_inspect::hot::{self, Function, Report};
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use clap::Args;
use serde_json::json;

use crate::command_error::CommandError;
use crate::terminal;
use crate::text::{Align, Table, count, percent, plural};

/// Options of `hot` alone.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of `show hot`")]
#[group(id = "hot")]
pub struct HotOptions {
    /// Only time spent for this app
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// Sampling time [default: 5s]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<bellows_config::Duration>,
    /// Functions whose instructions are shown [default: 3]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

impl HotOptions {
    /// Whether any option was given.
    pub fn is_given(&self) -> bool {
        self.app.is_some() || self.duration.is_some() || self.top.is_some()
    }
}

const DEFAULT_DURATION: Duration = Duration::from_secs(5);

/// The number of functions to list.
const MAX_FUNCTIONS: usize = 20;

/// The number of functions whose instructions are shown.
const DEFAULT_TOP: usize = 3;

pub fn execute(runtime_dir: &RuntimeDir, options: &HotOptions, json: bool) -> Result<ExitCode, CommandError> {
    let duration = options.duration.map_or(DEFAULT_DURATION, bellows_config::Duration::std);
    let mut report = hot::report(runtime_dir, options.app.as_deref(), duration)?;
    let text = if json {
        report.functions.iter_mut().for_each(|function| function.instructions.retain(|line| line.samples > 0));
        format!("{:#}\n", json!(report))
    } else {
        render(&report, options.top.unwrap_or(DEFAULT_TOP), terminal::stdout_is_rich())
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn render(report: &Report, top: usize, rich: bool) -> String {
    let mut text = header(report);
    let mut table =
        Table::new(&[("SHARE", Align::Right), ("FUNCTION", Align::Left), ("APP", Align::Left), ("IN", Align::Left)]);
    for function in report.functions.iter().take(MAX_FUNCTIONS) {
        let share = percent(function.share);
        table.row([share, function.function.clone(), apps(function), function.module.clone()]);
    }
    text.push('\n');
    text += &table.render(rich);
    if let Some(more) = report.functions.len().checked_sub(MAX_FUNCTIONS).filter(|more| *more > 0) {
        let share: f64 = report.functions[MAX_FUNCTIONS..].iter().map(|function| function.share).sum();
        let _ = writeln!(text, "{}  in {}", percent(share), plural(more as u64, "other function"));
    }
    let shown = report.functions.iter().filter(|function| !function.instructions.is_empty()).take(top);
    for function in shown {
        let title = sanitize(&format!("{}  {}", function.function, apps(function)));
        let (bold, plain) = if rich { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let _ = write!(text, "\n{bold}{}  {title}{plain}\n", percent(function.share));
        text += &code::render(&function.instructions, function.samples, rich);
    }
    text
}

fn header(report: &Report) -> String {
    let mut text = format!(
        "{}: {} in {:.2} s, {} lost; the {} on a processor for {} of the time\n",
        report.name,
        plural(report.samples, "sample"),
        report.seconds,
        count(report.lost),
        if report.threads > 1 { "workers were, on average," } else { "engine was" },
        percent(report.running)
    );
    if let Some(app) = &report.app {
        let share = report.selected as f64 / report.samples as f64;
        let _ = writeln!(text, "`{}` has {} of them; shares below are of these", sanitize(app), percent(share));
    }
    if report.user_only {
        text += "Only user mode was sampled: kernel mode takes CAP_PERFMON or kernel.perf_event_paranoid below 2.\n";
    }
    if report.functions.iter().any(|function| function.apps.len() > 1) {
        text += "Apps of one type share their code: where several are named, it may be any of them.\n";
    }
    text += "A timer takes the samples, and each names the next instruction: the slow one is the marked one or one just before\n\
             it. In a virtual machine it may be further before.\n";
    text
}

fn apps(function: &Function) -> String {
    if function.apps.is_empty() { "(engine)".to_owned() } else { function.apps.join(" or ") }
}
