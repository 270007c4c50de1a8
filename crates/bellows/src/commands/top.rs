//! `bellows top`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bellows_engine::{AppCounts, LinkCounts};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::accounting::Accounts;
use crate::baseline::Since;
use crate::failure::Failure;
use crate::observe::{self, Change, Sample, State};
use crate::terminal::{self, Screen, harmless};
use crate::text::{Align, Table, bit_rate, count, figure, known, packet_rate, percent, scaled, span};
use crate::times::{self, TIMES};

/// Watch a running network: rates, totals, drops, how idle it is, what each app costs; q quits
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
        let since = Since::read(observer.home(), &change.after);
        let total = Change::between(since.sample().clone(), change.after.clone());
        let looks =
            Looks { name: &name, end: (state == State::Crashed).then_some(end), change: &change, total: &total };
        let view = looks.view(terminal::stdout_is_rich());
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

/// What is to be seen of an engine.
struct Looks<'a> {
    name: &'a str,
    /// How it ended, if it did: its rates are not known then.
    end: Option<&'a str>,
    /// From the last look to this one.
    change: &'a Change,
    /// From when on the totals count to now.
    total: &'a Change,
}

impl Looks<'_> {
    fn view(&self, rich: bool) -> String {
        let counters = &self.change.after.counters;
        let state = match self.end {
            None => format!("running for {}\n{}", span(self.change.after.uptime()), self.pace()),
            Some(end) => format!("{end}, so its rates are not known\n"),
        };
        let mut text = format!(
            "{} (process {}, {}): {state}{} of {} buffers in use\n\n",
            self.name,
            counters.pid,
            harmless(&counters.source).replace('\n', " "),
            count(counters.engine("buffers_in_use")),
            count(counters.engine("buffers")),
        );
        text += &self.apps().render(rich);
        text.push('\n');
        text += &self.links().render(rich);
        text
    }

    /// How busy a running engine is, up to its memory.
    fn pace(&self) -> String {
        let change = self.change;
        let busiest = change.busiest_link();
        let idle = match change.idle_breaths() {
            Some(share) => format!("{:.0} % of its breaths idle, ", 100.0 * share),
            None => String::new(),
        };
        let times: Vec<String> =
            TIMES.iter().filter_map(|(name, _)| times::brief(name, &change.histogram(name), 2)).collect();
        format!(
            "asleep {:.1} % of the time, {idle}{} naps/s\n{}{}busiest link {}, {}; ",
            100.0 * change.asleep(),
            scaled(change.engine("naps")),
            times.join("; "),
            if times.is_empty() { "" } else { "\n" },
            packet_rate(busiest.packets),
            bit_rate(busiest.bits),
        )
    }

    fn rate(&self, write: fn(f64) -> String, rate: f64) -> String {
        known(self.end.is_none().then_some(rate), write)
    }

    fn apps(&self) -> Table {
        let mut table = Table::new(&[
            ("APP", Align::Left),
            ("TYPE", Align::Left),
            ("IN RATE", Align::Right),
            ("OUT RATE", Align::Right),
            ("DROP RATE", Align::Right),
            ("DROPPED", Align::Right),
            ("CLOCKS/PKT", Align::Right),
            ("PKTS/CALL", Align::Right),
            ("SHARE", Align::Right),
        ]);
        let accounts = Accounts::of(self.change);
        let none = AppCounts::default();
        for ((before, app), (first, _)) in self.change.apps().zip(self.total.apps()) {
            let (before, first) = (before.unwrap_or(&none), first.unwrap_or(&none));
            let rate = |of: fn(&AppCounts) -> u64| self.rate(packet_rate, self.change.per_second(of(before), of(app)));
            let cost = accounts.app(&app.name);
            table.row([
                app.name.clone(),
                app.kind.clone(),
                rate(|app| app.in_packets),
                rate(|app| app.out_packets),
                rate(AppCounts::dropped),
                count(app.dropped().saturating_sub(first.dropped())),
                known(cost.clocks_per_packet, figure),
                known(cost.packets_per_call, figure),
                known(cost.share, percent),
            ]);
        }
        table
    }

    fn links(&self) -> Table {
        let mut table = Table::new(&[
            ("LINK", Align::Left),
            ("PACKET RATE", Align::Right),
            ("BIT RATE", Align::Right),
            ("PACKETS", Align::Right),
            ("WAITING", Align::Right),
            ("DROPPED", Align::Right),
        ]);
        for ((link, rate), (first, _)) in self.change.links().zip(self.total.link_counts()) {
            let total = |of: fn(&LinkCounts) -> u64| count(of(link).saturating_sub(first.map_or(0, of)));
            table.row([
                format!("{} -> {}", link.from, link.to),
                self.rate(packet_rate, rate.packets),
                self.rate(bit_rate, rate.bits),
                total(|link| link.packets),
                count(link.waiting),
                total(|link| link.txdrop),
            ]);
        }
        table
    }
}
