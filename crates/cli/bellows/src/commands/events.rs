//! `bellows events`.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bellows_events::{ALL, EventInfo, Level};
use bellows_inspect::events::{EventWatch, News, Occurrence, in_words};
use bellows_inspect::networks;
use bellows_inspect::text::sanitize;
use bellows_sys::clock;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::arguments::NameOptions;
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{Align, Table};

/// Print what happened to networks, also to those that have ended
///
/// A network keeps its events in files beside its counters: started, reloaded, app failed, peer connected, link down
/// and so on. The last 64 KiB of each network are always there, and those of the last 64 networks that have ended. A
/// crash is noticed by the next run of the name, or by this command; its time is that at which the process was last
/// seen.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Names of the networks [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    option: NameOptions,
    /// Only the events of this app, or of the parts of a compound one
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// Go on with what happens from now on, also to networks that start later
    #[arg(long, short)]
    follow: bool,
    /// Leave out what happened earlier, such as `10m` ago; `0s` leaves out all that has happened
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<bellows_config::Duration>,
    /// List the kinds of events, with their levels and fields
    #[arg(long, conflicts_with_all = ["names", "named", "app", "follow", "since"])]
    list: bool,
    /// Print one JSON object per line (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// The interval at which the files are looked at.
const INTERVAL: Duration = Duration::from_millis(200);

impl Execute for Arguments {
    const READS_ALL: &'static [&'static str] = &["events NAME"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        if self.list {
            return self.list();
        }
        let ago = self.since.map_or(u64::MAX, bellows_config::Duration::nanos);
        let mut watch = EventWatch::new(self.option.and(&self.names), clock::unix_ns().saturating_sub(ago));
        if !self.follow {
            if let [name, ..] = watch.unknown()[..] {
                let places = networks::searched_places();
                let message = format!("there is no network named `{name}`, and no events of one ({places})");
                return Err(CommandError::Usage(message));
            }
            self.print(&watch.poll(true))?;
            return Ok(ExitCode::SUCCESS);
        }
        while self.print(&watch.poll(false))? {
            thread::sleep(INTERVAL);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        true
    }
}

impl Arguments {
    /// Whether news are about the app that is meant.
    fn is_meant(&self, news: &News) -> bool {
        match (&self.app, news) {
            (Some(meant), News::Event(Occurrence { event, .. })) => event.text("app").is_some_and(|app| {
                app.strip_prefix(&**meant).is_some_and(|part| part.is_empty() || part.starts_with('/'))
            }),
            _ => true,
        }
    }

    /// Prints news, and returns whether anybody reads them.
    fn print(&self, news: &[News]) -> Result<bool, CommandError> {
        let line = |news: &News| if self.json { format!("{}\n", news.to_json()) } else { in_text(news) };
        let text: String = news.iter().filter(|news| self.is_meant(news)).map(line).collect();
        Ok(text.is_empty() || terminal::print_on(&text)?)
    }

    /// Prints the kinds of events.
    fn list(&self) -> Result<ExitCode, CommandError> {
        if self.json {
            let lines: String = ALL.iter().map(|info| format!("{}\n", json!(Declaration::of(info)))).collect();
            terminal::print(&lines)?;
            return Ok(ExitCode::SUCCESS);
        }
        let columns = [("EVENT", Align::Left), ("LEVEL", Align::Left), ("FIELDS", Align::Left)];
        let mut table = Table::new(&columns);
        for info in ALL {
            let fields: Vec<&str> = info.fields.iter().map(|field| field.name).collect();
            table.row([info.name.to_owned(), info.level.name().to_owned(), fields.join(", ")]);
        }
        terminal::print(&table.render(terminal::stdout_is_rich()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The declaration of an event as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Kind of event")]
pub struct Declaration {
    /// Its name.
    event: &'static str,
    /// The level.
    level: Level,
    /// When it happens.
    help: String,
    /// Its fields.
    fields: Vec<DeclaredField>,
}

/// A field of an event as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Field of an event")]
struct DeclaredField {
    /// Its name.
    name: &'static str,
    /// Its meaning.
    help: String,
}

impl Declaration {
    fn of(info: &EventInfo) -> Declaration {
        let fields = info.fields.iter().map(|field| DeclaredField { name: field.name, help: field.sentences() });
        Declaration { event: info.name, level: info.level, help: info.sentences(), fields: fields.collect() }
    }
}

/// News as a line of text, or several if the message has several.
pub fn in_text(news: &News) -> String {
    let text = match news {
        News::Event(Occurrence { network, time, event, .. }) => {
            format!("{time} {network} {}: {}", event.name, event.message.trim_end())
        }
        News::Missing { network, missing, .. } => format!("-- {network}: {}", in_words(*missing)),
    };
    // A line at the margin begins an event.
    format!("{}\n", sanitize(&text).replace('\n', "\n    "))
}

#[cfg(test)]
mod tests {
    use bellows_events::Missing;

    use super::*;

    #[test]
    fn a_message_of_several_lines_is_indented_and_harmless() {
        let network = "edge".to_owned();
        let missing = Missing { events: 1, damaged_lines: 0 };
        let news = News::Missing { network: network.clone(), user: "ada".to_owned(), missing };
        assert_eq!(in_text(&news), "-- edge: missing here: 1 event\n");
        let event = json!({
            "network": "edge", "user": "ada", "time": "T", "id": "1-1", "time_ns": 1, "level": "info",
            "event": "reloaded", "message": "reloaded\nkept: \u{1b}[2J\n", "pid": 1, "fields": {},
        });
        let event = serde_json::from_value(event).unwrap();
        let news = News::Event(Occurrence { network, user: "ada".to_owned(), time: "T".to_owned(), event });
        assert_eq!(in_text(&news), "T edge reloaded: reloaded\n    kept: \u{fffd}[2J\n");
    }
}
