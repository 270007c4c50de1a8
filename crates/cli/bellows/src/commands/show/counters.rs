//! `bellows show counters`: every counter by name, with its description.

use std::process::ExitCode;

use bellows_config::Registry;
use bellows_inspect::networks::{self, Sample};
use bellows_inspect::reports::Subject;
use bellows_observe::{AppCounts, LinkCounts, RuntimeDir, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::say_if_not_running;
use crate::command_error::CommandError;
use crate::terminal;
use crate::text::{Align, Table, count};

/// The owner of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Owner {
    Engine,
    App,
    Link,
}

#[derive(Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Counter")]
struct Counted {
    /// What counts it.
    owner: Owner,
    /// Of the app, or the link as written in the file; empty for the engine.
    name: String,
    /// The counter's name.
    counter: String,
    /// Its value.
    value: u64,
    /// Its meaning; absent if it is unknown to this program.
    ///
    /// The counter's description, if known: an app of another program may have counters of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

/// A network with its counters.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown counters", extend("includes" = ["Network"]))]
pub struct ShownCounters {
    #[serde(flatten)]
    subject: Subject,
    /// Every counter, including zeros.
    counters: Vec<Counted>,
}

pub fn execute(runtime_dir: RuntimeDir, registry: &Registry, all: bool, json: bool) -> Result<ExitCode, CommandError> {
    let subject = Subject::of(&runtime_dir);
    let mut observer = networks::open(runtime_dir)?;
    let counters = Sample::take(&mut observer).counters;
    let rows = rows(&counters, registry, all || json);
    let text = match json {
        true => {
            format!("{:#}\n", json!(ShownCounters { subject, counters: rows }))
        }
        false => {
            say_if_not_running(&subject.name, subject.state, &counters);
            render(&rows, terminal::stdout_is_rich())
        }
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn render(rows: &[Counted], rich: bool) -> String {
    let mut table = Table::new(&[
        ("COUNTED BY", Align::Left),
        ("COUNTER", Align::Left),
        ("VALUE", Align::Right),
        ("WHAT IT COUNTS", Align::Left),
    ]);
    for row in rows {
        let name = if row.owner == Owner::Engine { "(engine)".to_owned() } else { row.name.clone() };
        table.row([name, row.counter.clone(), count(row.value), row.help.clone().unwrap_or_default()]);
    }
    table.render(rich)
}

/// The counters of the apps, the links and the engine. Counters that are 0 are included only if `all`.
fn rows(snapshot: &Snapshot, registry: &Registry, all: bool) -> Vec<Counted> {
    let apps = snapshot.apps.iter().flat_map(|app| of_app(app, registry));
    let links = snapshot.links.iter().flat_map(of_link);
    let engine = snapshot.engine.iter().map(|(counter, value)| Counted {
        owner: Owner::Engine,
        name: String::new(),
        counter: counter.clone(),
        value: *value,
        help: bellows_observe::counter_help(counter).map(str::to_owned),
    });
    apps.chain(links).chain(engine).filter(|row| all || row.value > 0).collect()
}

fn of_app(app: &AppCounts, registry: &Registry) -> Vec<Counted> {
    let info = registry.get(&app.kind).map(|entry| entry.info());
    let own = |counter: &str| {
        let known = info.into_iter().flat_map(|info| info.drops.iter().chain(info.counters));
        known.into_iter().find(|known| known.name == counter).map(|known| known.help)
    };
    let help = |counter: &str| own(counter).or_else(|| bellows_observe::drop_help(counter)).map(str::to_owned);
    let row = |counter: &str, value: u64, help: Option<String>| Counted {
        owner: Owner::App,
        name: app.name.clone(),
        counter: counter.to_owned(),
        value,
        help,
    };
    let passed = [
        ("in_packets", app.in_packets, "packets received on all inputs"),
        ("in_bytes", app.in_bytes, "bytes received on all inputs"),
        ("out_packets", app.out_packets, "packets sent on all outputs"),
        ("out_bytes", app.out_bytes, "bytes sent on all outputs"),
    ];
    let passed = passed.map(|(counter, value, help)| row(counter, value, Some(help.to_owned())));
    let drops = app.drops.iter().map(|(counter, value)| {
        let why = help(counter).unwrap_or_default();
        row(counter, *value, Some(format!("dropped: {why}").trim_end_matches(": ").to_owned()))
    });
    let counters = app.counters.iter().map(|(counter, value)| row(counter, *value, help(counter)));
    passed.into_iter().chain(drops).chain(counters).collect()
}

fn of_link(link: &LinkCounts) -> [Counted; 5] {
    let counters = [
        ("packets", link.packets, "packets sent into the link"),
        ("bytes", link.bytes, "bytes sent into the link"),
        ("txdrop", link.txdrop, "dropped: the link was full"),
        ("waiting", link.waiting, "packets sent and not yet received"),
        ("waiting_bytes", link.waiting_bytes, "bytes sent and not yet received"),
    ];
    counters.map(|(counter, value, help)| Counted {
        owner: Owner::Link,
        name: format!("{} -> {}", link.from, link.to),
        counter: counter.to_owned(),
        value,
        help: Some(help.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_meaning_and_nothing_is_left_out() {
        let app = AppCounts {
            name: "shaper".into(),
            kind: "rate-limiter".into(),
            in_packets: 7,
            drops: [("over_rate".to_owned(), 3), ("no_buffer".to_owned(), 0), ("odd".to_owned(), 2)].into(),
            ..AppCounts::default()
        };
        let link =
            LinkCounts { from: "a.output".into(), to: "shaper.input".into(), txdrop: 1, ..LinkCounts::default() };
        let snapshot = Snapshot {
            apps: vec![app],
            links: vec![link],
            engine: [("breaths".to_owned(), 5)].into(),
            ..Snapshot::default()
        };
        let registry = bellows_apps::registry();
        let text = render(&rows(&snapshot, &registry, false), false);
        for line in [
            "shaper                    in_packets      7  packets received on all inputs\n",
            "shaper                    over_rate       3  dropped: packets above the rate, without a queue\n",
            "shaper                    odd             2  dropped\n",
            "a.output -> shaper.input  txdrop          1  dropped: the link was full\n",
            "(engine)                  breaths         5  ",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("no_buffer"), "{text}");
        let all = rows(&snapshot, &registry, true);
        assert_eq!(all.len(), 4 + 3 + 5 + 1);
        assert!(all.iter().all(|row| row.help.is_some()), "{all:?}");
    }
}
