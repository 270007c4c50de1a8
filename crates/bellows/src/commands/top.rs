//! `bellows top`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::observe::{self, Change, Sample, State};
use crate::terminal::{self, Screen, harmless};
use crate::text::{Align, Table, bit_rate, count, packet_rate, scaled, span};

/// Watch a running network: rates, totals, drops, how idle it is; q quits
#[derive(Debug, Args)]
pub struct Arguments {
    /// The network's name; needed if several run
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The time between two looks, such as `500ms`
    #[arg(long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true)]
    interval: bellows_config::Duration,
    /// Print one view and end
    #[arg(long)]
    once: bool,
}

enum Event {
    Key(u8),
    Signal,
}

/// The shortest interval: a terminal shows no more, and counters need some time to change.
const SHORTEST: Duration = Duration::from_millis(50);

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let home = observe::pick(arguments.name.as_deref())?;
    let name = home.name();
    let was_running = observe::state(&home) == State::Running;
    let end = if was_running { "ended" } else { "crashed" };
    let mut observer = observe::open(home)?;
    let interval = arguments.interval.std().max(SHORTEST);
    let (sender, events) = channel();
    let watching = !arguments.once && io::stdout().is_terminal() && io::stdin().is_terminal();
    let screen = if watching {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let signal_sender = sender.clone();
        std::thread::spawn(move || signals.forever().any(|_| signal_sender.send(Event::Signal).is_err()));
        terminal::send_keys(sender.clone(), Event::Key);
        Some(Screen::open()?)
    } else {
        None
    };
    let mut before = Sample::take(&mut observer);
    // The first view should not keep anybody waiting.
    let mut wait = if arguments.once && was_running { interval } else { interval.min(Duration::from_millis(250)) };
    loop {
        match events.recv_timeout(wait) {
            Ok(Event::Key(b'q' | b'Q' | 3 | 4)) | Ok(Event::Signal) => return Ok(ExitCode::SUCCESS),
            Ok(Event::Key(_)) => continue,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(wait),
        }
        wait = interval;
        let after = Sample::take(&mut observer);
        let change = Change::between(before, after.clone());
        before = after;
        let state = observe::state(observer.home());
        let view = view(&name, (state == State::Crashed).then_some(end), &change, terminal::stdout_is_rich());
        match &screen {
            Some(screen) => screen.draw(&view)?,
            None => terminal::print(&format!("{view}\n"))?,
        }
        if arguments.once {
            return Ok(ExitCode::SUCCESS);
        }
        if state == State::Crashed {
            drop(screen);
            terminal::complain(&format!("`{name}` has {end}\n"));
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// What is to be seen of an engine; `end` is how it ended, if it did.
fn view(name: &str, end: Option<&str>, change: &Change, rich: bool) -> String {
    let counters = &change.after.counters;
    let state = match end {
        None => format!("running for {}\n{}", span(change.after.uptime()), pace(change)),
        Some(end) => format!("{end}, so its rates are not known\n"),
    };
    let mut text = format!(
        "{name} (process {}, {}): {state}{} of {} buffers in use\n\n",
        counters.pid,
        harmless(&counters.source).replace('\n', " "),
        count(counters.engine("buffers_in_use")),
        count(counters.engine("buffers")),
    );
    text += &apps(change, end.is_none()).render(rich);
    text.push('\n');
    text += &links(change, end.is_none()).render(rich);
    text
}

/// How busy a running engine is, up to its memory.
fn pace(change: &Change) -> String {
    let busiest = change.busiest_link();
    let idle = match change.idle_breaths() {
        Some(share) => format!("{:.0} % of its breaths idle, ", 100.0 * share),
        None => String::new(),
    };
    format!(
        "asleep {:.1} % of the time, {idle}{} naps/s\nbusiest link {}, {}; ",
        100.0 * change.asleep(),
        scaled(change.engine("naps")),
        packet_rate(busiest.packets),
        bit_rate(busiest.bits),
    )
}

/// What stands for a rate that is not known.
const UNKNOWN: &str = "–";

fn apps(change: &Change, rates_known: bool) -> Table {
    let mut table = Table::new(&[
        ("APP", Align::Left),
        ("TYPE", Align::Left),
        ("IN RATE", Align::Right),
        ("OUT RATE", Align::Right),
        ("DROP RATE", Align::Right),
        ("IN", Align::Right),
        ("OUT", Align::Right),
        ("DROPPED", Align::Right),
    ]);
    for (before, app) in change.apps() {
        let none = Default::default();
        let before = before.unwrap_or(&none);
        let rate = |before: u64, after: u64| match rates_known {
            true => packet_rate(change.per_second(before, after)),
            false => UNKNOWN.to_owned(),
        };
        table.row([
            app.name.clone(),
            app.kind.clone(),
            rate(before.in_packets, app.in_packets),
            rate(before.out_packets, app.out_packets),
            rate(before.dropped(), app.dropped()),
            count(app.in_packets),
            count(app.out_packets),
            count(app.dropped()),
        ]);
    }
    table
}

fn links(change: &Change, rates_known: bool) -> Table {
    let mut table = Table::new(&[
        ("LINK", Align::Left),
        ("PACKET RATE", Align::Right),
        ("BIT RATE", Align::Right),
        ("PACKETS", Align::Right),
        ("WAITING", Align::Right),
        ("DROPPED", Align::Right),
    ]);
    for (link, rate) in change.links() {
        let [packets, bits] = match rates_known {
            true => [packet_rate(rate.packets), bit_rate(rate.bits)],
            false => [UNKNOWN, UNKNOWN].map(str::to_owned),
        };
        table.row([
            format!("{} -> {}", link.from, link.to),
            packets,
            bits,
            count(link.packets),
            count(link.waiting),
            count(link.txdrop),
        ]);
    }
    table
}
