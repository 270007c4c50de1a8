//! `bellows top`.

mod page;
pub mod rows;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bellows_inspect::baseline::Since;
use bellows_inspect::health::problems;
use bellows_inspect::networks::{self, Access, Change, Sample};
use bellows_observe::Observer;
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::arguments::NetworkName;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::subcommand::{Execute, Program};
use crate::terminal::{self, KeyPress, Screen};
use page::{Page, Reaction};
use rows::TopView;

/// Watch the rates, drops and costs of a running network
///
/// On a terminal, keys scroll, sort and switch between apps and links; the last line lists them. If standard output is
/// not a terminal, a table is printed at every interval.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    network: NetworkName,
    /// Time between two updates, such as `500ms`
    #[arg(long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true)]
    interval: bellows_config::Duration,
    /// Sort by this column, see --help [default: file order]
    #[arg(long, value_name = "COLUMN", value_parser = rows::column_names(), hide_possible_values = true,
          long_help = rows::sort_help())]
    sort: Option<String>,
    /// Print one update and exit
    #[arg(long)]
    once: bool,
    /// Print each update as a line of JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

enum TopEvent {
    Key(KeyPress),
    Resized,
    Signal,
}

/// The minimum interval: a terminal cannot show more, and counters need some time to change.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The time until the first update, short so that the user need not wait.
const FIRST_UPDATE: Duration = Duration::from_millis(250);

impl Execute for Arguments {
    const READS: &'static [&'static str] = &["top NAME --once"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dir = network(self.network.get(), Access::Read)?;
        let was_running = networks::state(&runtime_dir).is_alive();
        let mut source = UpdateSource {
            name: runtime_dir.name(),
            user: runtime_dir.user(),
            end: if was_running { "ended" } else { "crashed" },
            observer: networks::open(runtime_dir)?,
            before: None,
        };
        source.before = Some(Sample::take(&mut source.observer));
        let interval = self.interval.std().max(MIN_INTERVAL);
        let is_exact = (self.once && was_running) || self.json;
        let first = if is_exact { interval } else { interval.min(FIRST_UPDATE) };
        let page = Page::sorted_by(self.sort.as_deref());
        let to_screen = !self.once && !self.json && io::stdout().is_terminal() && io::stdin().is_terminal();
        let end = match to_screen {
            true => watch(&mut source, page, first, interval)?,
            false => print(&mut source, &page, first, interval, &self)?,
        };
        if let Some(end) = end {
            terminal::notice(&format!("`{}` has {end}\n", source.name));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        true
    }
}

/// The source of updates.
struct UpdateSource {
    name: String,
    user: String,
    /// How the network has ended, once it has.
    end: &'static str,
    observer: Observer,
    before: Option<Sample>,
}

impl UpdateSource {
    /// The current state, and the changes since the last update.
    fn update(&mut self) -> TopView {
        let after = Sample::take(&mut self.observer);
        let before = self.before.replace(after.clone()).unwrap_or_else(|| after.clone());
        let change = Change::between(before, after);
        let state = networks::state(self.observer.runtime_dir());
        let since = Since::read(self.observer.runtime_dir(), &change.after);
        let total = Change::between(since.sample().clone(), change.after.clone());
        let problems = problems(self.observer.runtime_dir(), state, &change.after);
        TopView::new(&self.name, state, (!state.is_alive()).then_some(self.end), &problems, &change, &total)
    }
}

/// Prints updates until their reader is gone. Returns how the network ended, if it did.
fn print(
    source: &mut UpdateSource,
    page: &Page,
    first: Duration,
    interval: Duration,
    arguments: &Arguments,
) -> Result<Option<&'static str>, CommandError> {
    let mut next = Instant::now() + first;
    loop {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next = Instant::now() + interval;
        let view = source.update();
        let text = match (arguments.json, arguments.once) {
            (true, _) => format!("{}\n", view.json(&source.user)),
            (false, once) => {
                let width = terminal::size().map(|(columns, _)| columns);
                let text = page.text(&view, width, terminal::stdout_is_rich());
                if once { text } else { text + "\n" }
            }
        };
        if !terminal::print_on(&text)? || arguments.once {
            return Ok(None);
        }
        if view.end.is_some() {
            return Ok(view.end);
        }
    }
}

/// Shows updates in full-screen mode until the user quits. Returns how the network ended, if it did.
fn watch(
    source: &mut UpdateSource,
    mut page: Page,
    first: Duration,
    interval: Duration,
) -> Result<Option<&'static str>, CommandError> {
    let events = events()?;
    let screen = Screen::open()?;
    let mut view: Option<TopView> = None;
    let mut next = Instant::now() + first;
    loop {
        let mut updated = false;
        match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(TopEvent::Signal) => return Ok(None),
            Ok(TopEvent::Key(key)) => match page.press(key) {
                Reaction::Quit => return Ok(None),
                Reaction::Redraw => {}
            },
            Ok(TopEvent::Resized) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                next = Instant::now() + interval;
                view = Some(source.update());
                updated = true;
            }
        }
        if let Some(view) = &view {
            screen.draw(&page.screen(view, terminal::size().unwrap_or((80, 24)), terminal::stdout_is_rich()))?;
            if updated && view.end.is_some() {
                return Ok(view.end);
            }
        }
    }
}

/// Keys, signals and size changes of the terminal.
fn events() -> Result<Receiver<TopEvent>, CommandError> {
    let (sender, events) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGWINCH])?;
    let signal_sender = sender.clone();
    std::thread::spawn(move || {
        let event = |signal| if signal == SIGWINCH { TopEvent::Resized } else { TopEvent::Signal };
        signals.forever().any(|signal| signal_sender.send(event(signal)).is_err())
    });
    terminal::send_keys(sender, TopEvent::Key);
    Ok(events)
}
