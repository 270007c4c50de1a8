//! `bellows run`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use bellows_config::EngineConfig;
use bellows_engine::Schedule;
use bellows_events::Stopped;
use bellows_observe::{RuntimeDir, RuntimeDirError};
use bellows_packet::pool;
use bellows_sys::private_folder;
use bellows_vpn::esp::register::{self, Places};
use clap::Args;
use rustix::process::{Resource, geteuid, getrlimit};

use crate::arguments::NetworkFile;
use crate::command_error::{CommandError, EXIT_CODES};
use crate::history;
use crate::journal;
use crate::logging;
use crate::report::RunReport;
use crate::state_folder::state_folder;
use crate::subcommand::{Execute, Program};
use crate::supervisor::{Supervisor, catch_signals};
use crate::terminal::{self, ControllingTerminal};

/// Run a network to its end and report where its packets went
///
/// The run ends when all sources are finished, all links are empty and no app holds a packet; after --duration; or on
/// SIGINT or SIGTERM, which flush and report like a normal end (a second signal ends the run at once). SIGHUP reloads
/// the network file. If the terminal goes away, its SIGHUP ends the run like SIGTERM, unless the run was started with
/// `nohup`. The report goes to standard output and everything else to standard error; if a capture goes to standard
/// output, the report goes to standard error, too.
#[derive(Debug, Args)]
#[command(after_long_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    file: NetworkFile,
    /// Stop after this time, such as `10s` or `500ms`
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<bellows_config::Duration>,
    /// Schedule of breaths: nested, flat or native [default: `schedule` in [engine]]
    ///
    /// nested is the textbook loop, flat an array of calls, and native machine code generated for the network. If
    /// native is not possible, flat is used and the report says why.
    #[arg(long)]
    schedule: Option<Schedule>,
    /// Name for `show`, `top`, `stop` and others [default: `name` in [engine], or the file's]
    ///
    /// If a running network has the file's name, `-2`, `-3`, … is appended.
    #[arg(short, long)]
    name: Option<String>,
    /// Run on this processor, counted from 0
    #[arg(long, value_name = "N", value_parser = bellows_sys::cpu::parse)]
    cpu: Option<usize>,
    /// Write /tmp/perf-PID.map, so that `perf` can name generated code
    #[arg(long)]
    perf_map: bool,
    /// Reload when the network file, an included file or the `file` of a filter changes
    #[arg(long)]
    watch: bool,
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Execute for Arguments {
    fn execute(mut self, program: &Program) -> Result<ExitCode, CommandError> {
        if self.watch && self.file.is_stdin() {
            return Err(CommandError::Usage(
                "standard input cannot be watched; give a network file, or leave --watch out".to_owned(),
            ));
        }
        if let Some(cpu) = self.cpu {
            // The option overrides the file's setting, even an invalid one.
            self.file.overrides.push(format!("engine.cpu={cpu}"));
        }
        self.file.for_perf = self.perf_map;
        let rich_errors = terminal::stderr_is_rich();
        let loaded = self
            .file
            .load(&program.registry)
            .map_err(|mistakes| CommandError::Diagnosed(mistakes.render(rich_errors)))?;
        terminal::warn(&loaded.warnings.render(rich_errors));

        let mut settings = loaded.engine.settings();
        settings.schedule = self.schedule.unwrap_or(settings.schedule);
        settings.perf_map = self.perf_map && has_place_for_perf_map();
        pool::init(loaded.engine.pool_config())
            .map_err(|error| CommandError::Usage(format!("{error}{}", address_space_advice())))?;
        check_address_space()?;
        // From here on, errors need a clean-up.
        let terminal = ControllingTerminal::new();
        let signals = catch_signals()?;
        terminal::write_in_background();
        logging::log_panics();
        let runtime_dir = Arc::new(claim(self.name.as_deref(), &loaded.engine, &self.file.path)?);
        journal::set_network(&runtime_dir.name());
        history::begin(&runtime_dir);
        keep_keys(&runtime_dir);

        let supervisor = Supervisor {
            file: self.file,
            registry: Arc::clone(&program.registry),
            loaded,
            settings,
            runtime_dir: Arc::clone(&runtime_dir),
            duration: self.duration.map(Into::into),
            watch: self.watch,
        };
        let result = supervisor.run(signals, terminal);
        let report = result.map(|(outcome, stopped_by)| {
            RunReport::new(runtime_dir.name(), outcome, stopped_by, terminal::lost_log_lines())
        });
        if let Ok(report) = &report {
            let (end, exit_code) = (report.end, u64::from(!report.is_fine()));
            Stopped { end, exit_code }.log(format_args!("the run has ended: {end}"));
        }
        let printed = report.and_then(|report| {
            // If the report goes to a file or a program, the person at the terminal still needs the reason for a
            // failure.
            if self.json || !terminal::stdout_is_stderr() && !terminal::shows_stdout() {
                report.errors(terminal::stderr_is_rich()).iter().for_each(|error| terminal::fail(error));
            }
            let text = if self.json {
                format!("{:#}\n", serde_json::json!(report))
            } else {
                report.render(terminal::stdout_is_rich())
            };
            if bellows_basic::pcap_writer::has_stdout() {
                terminal::notice(&text);
            } else {
                terminal::print(&text)?;
            }
            Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::from(1) })
        });
        // The next run of the name may begin as soon as the folder is gone.
        history::end();
        // Threads that serve clients may still hold the folder.
        let _ = runtime_dir.remove();
        printed
    }
}

/// Has IPsec keep how far keys were used, so that another run of the network goes on behind.
fn keep_keys(runtime_dir: &RuntimeDir) {
    let Some(live) = runtime_dir.control().ancestors().nth(2).map(Path::to_owned) else { return };
    register::keep(Places { network: runtime_dir.name(), live, lasting: state_folder });
}

/// Address space that a run needs besides its pool: queues and tables, stacks, and 64 MiB for the allocator of each
/// thread.
const OVERHEAD: usize = 512 << 20;

/// Rejects a limit that leaves too little address space. Otherwise a later allocation would fail and abort.
fn check_address_space() -> Result<(), CommandError> {
    if getrlimit(Resource::As).current.is_none() {
        return Ok(());
    }
    let mut probe = Vec::<u8>::new();
    match std::hint::black_box(&mut probe).try_reserve_exact(OVERHEAD) {
        Ok(()) => Ok(()),
        Err(_) => Err(CommandError::Usage(format!(
            "too little address space: a run takes {} MiB beside its pool{}",
            OVERHEAD >> 20,
            address_space_advice()
        ))),
    }
}

/// The advice about the limit on address space, if there is one.
fn address_space_advice() -> String {
    let Some(limit) = getrlimit(Resource::As).current else { return String::new() };
    format!(
        "; the process is limited to {} KiB of address space: raise that (`ulimit -v`, LimitAS= of systemd) or \
         set a smaller `pool` or `large_packets` in [engine]",
        limit >> 10
    )
}

/// Claims a name for the run: the requested one, or a free one made from the file's name.
fn claim(asked: Option<&str>, config: &EngineConfig, file: &Path) -> Result<RuntimeDir, CommandError> {
    let mistake = |error: RuntimeDirError| CommandError::Usage(error.to_string());
    if let Some(name) = asked.or(config.name.as_deref()) {
        return RuntimeDir::claim(name).map_err(mistake);
    }
    let name = if file == Path::new("-") { "stdin".to_owned() } else { name_of(file) };
    let candidates = std::iter::once(name.clone()).chain((2..100).map(|number| format!("{name}-{number}")));
    for candidate in candidates {
        match RuntimeDir::claim(&candidate) {
            Err(RuntimeDirError::Taken { .. }) => {}
            other => return other.map_err(mistake),
        }
    }
    Err(CommandError::Usage(format!("a hundred networks named `{name}` are running; give this one a name with --name")))
}

/// Whether nothing of another user's is where `perf` looks for the map of this process. `perf` takes no other place, and
/// not that user's map either.
fn has_place_for_perf_map() -> bool {
    let map = format!("/tmp/perf-{}.map", std::process::id());
    let is_foreign = private_folder::is_foreign(Path::new(&map), geteuid().as_raw());
    if is_foreign {
        tracing::warn!(
            "`{map}` belongs to another user, so `perf` will not know the names of generated code; remove it"
        );
    }
    !is_foreign
}

/// The name of a run, made from its file's name.
fn name_of(file: &Path) -> String {
    RuntimeDir::name_from(&file.file_stem().unwrap_or_default().to_string_lossy())
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
