//! `bellows run`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use bellows_config::{EngineConfig, Registry};
use bellows_engine::{Home, HomeError, Schedule};
use bellows_packet::pool;
use bellows_sys::cpu;
use clap::Args;

use crate::cli::NetworkFile;
use crate::failure::{EXIT_CODES, Failure};
use crate::logging;
use crate::report::RunReport;
use crate::supervisor::{Supervisor, catch_signals};
use crate::terminal;

/// Run a network until all its packets have gone their way, and report what happened to them
///
/// The run ends when every source is dry, every link empty and no app holds a packet; when the duration is over; or on
/// SIGINT or SIGTERM, which flush and report as a normal end does (a second SIGINT ends it at once). SIGHUP reads the
/// network file again. The report goes to standard output, all else to standard error.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    file: NetworkFile,
    /// Stop after this time, such as `10s` or `500ms`
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<bellows_config::Duration>,
    /// How to take a breath: nested (the textbook loop), flat (an array of calls), or native (machine code made for the
    /// network; where that cannot be, flat takes its place and the report says why) [default: the `schedule` in [engine]]
    #[arg(long)]
    schedule: Option<Schedule>,
    /// The name under which `show`, `top`, `reload` and `stop` find the network [default: the `name` in [engine],
    /// else that of the file, with `-2`, `-3`, … appended if a live network has it]
    #[arg(long)]
    name: Option<String>,
    /// The processor to run on, counted from 0
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Write /tmp/perf-PID.map, by which `perf` attributes samples to the stretches of the native breath
    #[arg(long)]
    perf_map: bool,
    /// Reload when the network file or a file that it includes changes
    #[arg(long)]
    watch: bool,
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

pub fn execute(arguments: Arguments, registry: Arc<Registry>) -> Result<ExitCode, Failure> {
    let rich_errors = terminal::stderr_is_rich();
    let loaded = arguments.file.load(&registry).map_err(|mistakes| Failure::Diagnosed(mistakes.render(rich_errors)))?;
    terminal::complain(&loaded.warnings.render(rich_errors));

    let mut settings = loaded.engine.settings();
    settings.schedule = arguments.schedule.unwrap_or(settings.schedule);
    settings.perf_map = arguments.perf_map;
    let cpu = arguments.cpu.or(loaded.engine.cpu);
    check_cpu(cpu)?;
    let size = pool::Config { packets: loaded.engine.pool, ..pool::Config::default() };
    pool::init(size).map_err(|error| Failure::Mistake(error.to_string()))?;
    // From here on there is something to clear up.
    let signals = catch_signals()?;
    logging::log_panics();
    let home = Arc::new(claim(arguments.name.as_deref(), &loaded.engine, &arguments.file.path)?);

    let supervisor = Supervisor {
        file: arguments.file,
        registry,
        loaded,
        settings,
        cpu,
        home: Arc::clone(&home),
        duration: arguments.duration.map(Into::into),
        watch: arguments.watch,
    };
    let result = supervisor.run(signals);
    let report = result.map(|(outcome, stopped_by)| RunReport::new(home.name(), outcome, stopped_by));
    let printed = report.and_then(|report| {
        // Where the report goes to a file or a program, why the run failed is still for the person at the terminal.
        if arguments.json || !terminal::shows_stdout() {
            terminal::complain(&report.errors(terminal::stderr_is_rich()));
        }
        let text = if arguments.json {
            format!("{:#}\n", serde_json::json!(report))
        } else {
            report.render(terminal::stdout_is_rich())
        };
        terminal::print(&text)?;
        Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    });
    // Threads that serve clients may still hold the folder.
    let _ = home.remove();
    printed
}

fn check_cpu(cpu: Option<usize>) -> Result<(), Failure> {
    let Some(cpu) = cpu else { return Ok(()) };
    let allowed = cpu::allowed();
    if allowed.contains(&cpu) {
        return Ok(());
    }
    let allowed = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    Err(Failure::Mistake(format!("there is no processor {cpu} for this process; it may use {allowed}")))
}

/// Gets the run its name: the one asked for, or one made from the file's that is free.
fn claim(asked: Option<&str>, config: &EngineConfig, file: &Path) -> Result<Home, Failure> {
    let mistake = |error: HomeError| Failure::Mistake(error.to_string());
    if let Some(name) = asked.or(config.name.as_deref()) {
        return Home::claim(name).map_err(mistake);
    }
    let name = name_of(file);
    let candidates = std::iter::once(name.clone()).chain((2..100).map(|number| format!("{name}-{number}")));
    for candidate in candidates {
        match Home::claim(&candidate) {
            Err(HomeError::Taken { .. }) => {}
            other => return other.map_err(mistake),
        }
    }
    Err(Failure::Mistake(format!("a hundred networks named `{name}` are running; give this one a name with --name")))
}

/// A run's name, made from its file's: what fits into a name.
fn name_of(file: &Path) -> String {
    const LONGEST: usize = 60;
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = stem.chars().map(|c| if fits(c) { c } else { '-' }).take(LONGEST).collect();
    match name.trim_start_matches('.') {
        "" => "network".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_its_name() {
        let names = ["examples/quickstart.toml", "/dev/stdin", "a b.toml", "..toml", "ä.toml", "x.y.toml"];
        let expected = ["quickstart", "stdin", "a-b", "network", "-", "x.y"];
        assert_eq!(names.map(|name| name_of(Path::new(name))), expected);
    }
}
