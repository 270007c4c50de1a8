//! `bellows trace`.

use std::process::ExitCode;

use bellows_engine::MAX_TRACED;
use bellows_inspect::control::{Connection, OBSTACLE_TIMEOUT, Reply, Request, TraceEnd};
use bellows_inspect::journey::{Journeys, TraceReport};
use bellows_inspect::networks::{self, Access};
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use clap::Args;
use serde_json::json;

use crate::arguments::NetworkName;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{plural, span};
use crate::watch::{Status, catch_signals, on_signal};

/// Follow packets through a running network: each app, link and time
///
/// Each packet is described in tcpdump's format, once and wherever it has changed. Copies are branches under one
/// number. The command ends when all packets have ended, when the time is over, or with Ctrl-C; it names the app of
/// each packet that has not ended. If the process is stopped or an app hangs, the command gives up and prints the
/// reason. A network runs a little slower while packets are followed.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    network: NetworkName,
    /// Number of packets to follow
    #[arg(long, short, value_name = "PACKETS", default_value_t = 20, value_parser = count)]
    count: usize,
    /// Follow packets that this app sends [default: those that any app brings in]
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// Follow packets that match this expression, such as 'tcp port 80'
    ///
    /// The language is that of tcpdump; `bellows filter EXPR` explains an expression. Packets of link types that filters
    /// do not know match nothing.
    #[arg(long, short, value_name = "EXPR")]
    filter: Option<String>,
    /// Stop after this time, such as `500ms`
    #[arg(long = "for", value_name = "TIME", default_value = "5s", allow_hyphen_values = true)]
    duration: bellows_config::Duration,
    /// Print the packets' paths as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_TRACED).contains(count));
    count.ok_or_else(|| format!("give a number from 1 to {MAX_TRACED}"))
}

impl Execute for Arguments {
    const READS: &'static [&'static str] = &["trace NAME --for 2s -c 1"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dir = network(self.network.get(), Access::Read)?;
        let name = runtime_dir.name();
        let duration = self.duration.std();
        let request = Request::Trace {
            count: self.count,
            app: self.app.clone(),
            filter: self.filter.clone(),
            seconds: duration.as_secs_f64(),
        };
        let signals = catch_signals()?;
        let (reply, mut connection) = Connection::open(&runtime_dir, &request)?;
        if reply != Reply::Tracing {
            return Err(CommandError::Failed(format!("unexpected reply: {reply:?}")));
        }
        on_signal(signals, connection.hangup()?);
        let (journeys, end) = listen(&mut connection, &self)?;
        let given_up = match connection.given_up() {
            None if end == TraceEnd::Time && journeys.packets() < self.count => obstacle(&runtime_dir, &name),
            why => why.map(str::to_owned),
        };
        if given_up.is_none()
            && let Some(comment) = comment(&self, &name, journeys.packets(), end)
        {
            terminal::notice(&sanitize(&format!("{comment}\n")));
        }
        if self.json {
            let complete = end == TraceEnd::Complete && journeys.are_over();
            let report = TraceReport { name: name.clone(), complete, packets: journeys.traced() };
            terminal::print(&format!("{:#}\n", json!(report)))?;
        } else {
            terminal::print(&sanitize(&journeys.render()))?;
        }
        match given_up {
            Some(why) => Err(CommandError::Failed(format!(
                "{} of {} came from `{name}`: {why}",
                journeys.packets(),
                plural(self.count as u64, "packet")
            ))),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn only_reports(&self) -> bool {
        true
    }
}

/// The reason why a network sends no packets, and the remedy.
fn obstacle(runtime_dir: &RuntimeDir, name: &str) -> Option<String> {
    let pid = runtime_dir.process()?;
    Some(networks::obstacle(runtime_dir)?.advice(name, pid))
}

/// The note on how a trace ended after this many packets.
fn comment(arguments: &Arguments, name: &str, packets: usize, end: TraceEnd) -> Option<String> {
    let mut whom = match &arguments.app {
        Some(app) => format!("a packet that app `{app}` sends"),
        None => "a packet that comes into the network".to_owned(),
    };
    if let Some(filter) = &arguments.filter {
        whom.push_str(&format!(" and matches `{filter}`"));
    }
    let until = span(arguments.duration.std());
    match end {
        TraceEnd::Complete => None,
        TraceEnd::Over => Some(format!("`{name}` has ended")),
        TraceEnd::Gone => Some(format!("`{}` is gone", arguments.app.as_deref().unwrap_or(name))),
        TraceEnd::Steps => Some("the packets take too many steps to follow them further".to_owned()),
        TraceEnd::Time if packets == 0 => Some(format!("waited {until} for {whom}, and none came")),
        TraceEnd::Requested if packets == 0 => Some(format!("waited for {whom}, and none came")),
        TraceEnd::Time | TraceEnd::Requested if packets < arguments.count => {
            Some(format!("{packets} of {} came", plural(arguments.count as u64, "packet")))
        }
        TraceEnd::Time | TraceEnd::Requested => None,
    }
}

/// Collects the steps, and the reason for the end.
fn listen(connection: &mut Connection, arguments: &Arguments) -> Result<(Journeys, TraceEnd), CommandError> {
    let mut journeys = Journeys::default();
    let mut status = Status::on_terminal();
    let Arguments { count, duration, .. } = arguments;
    // The other side ends the trace when the time is over. If it does not, it hangs.
    let stream = connection.stream(Some(duration.std().saturating_add(OBSTACLE_TIMEOUT)));
    let wanted = plural(*count as u64, "packet");
    let end = journeys.read(stream, |journeys| {
        status.update(|| format!("{} of {wanted} on their way", journeys.packets()));
    })?;
    Ok((journeys, end))
}
