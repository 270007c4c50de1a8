//! `bellows show`.

mod advice;
mod breath;
pub mod counters;
pub mod fib;
mod hot;
pub mod interfaces;
mod latency;
pub mod mac;
pub mod neighbours;
mod router;
pub mod run;
pub mod saved;
pub mod status;
pub mod vhost;

use std::process::ExitCode;

use bellows_config::nearest;
use bellows_inspect::health::problems;
use bellows_inspect::networks::{self, Access, Obstacle, Sample, State};
use bellows_inspect::reports::{Shown, Subject};
use bellows_inspect::text::sanitize;
use bellows_observe::{AppCounts, LinkCounts, RuntimeDir, Snapshot};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::arguments::NameOption;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::report;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{count, span};

/// Show a network's counters and costs
///
/// For a crashed network, its last counters are shown. Without a part, `show` prints apps, links, drops and counters.
#[derive(Debug, Args)]
#[command(visible_aliases = ["status", "stats"])]
pub struct Arguments {
    /// What to show: run, latency, hot, counters, apps, links, interfaces, neighbours, fib, mac, saved, errors, config, breath, vhost, status
    #[arg(value_name = "PART", long_help = parts_help())]
    first: Option<String>,
    /// The network's name, if several run, or an app for vhost and status
    #[arg(value_name = "NAME")]
    second: Option<String>,
    #[command(flatten)]
    option: NameOption,
    /// Print that part, or all counters, as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// One routing domain, for fib and neighbours
    #[arg(long, value_name = "VRF")]
    vrf: Option<String>,
    #[command(flatten)]
    run: run::RunOptions,
    #[command(flatten)]
    hot: hot::HotOptions,
    #[command(flatten)]
    mac: mac::MacOptions,
}

/// The parts that `show` can print alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowPart {
    Apps,
    Breath,
    Config,
    Counters,
    Errors,
    Fib,
    Hot,
    Interfaces,
    Latency,
    Links,
    Mac,
    Neighbours,
    Run,
    Saved,
    Vhost,
    Status,
}

/// The parts by name, with a description of each.
const PARTS: &[(&str, ShowPart, &str)] = &[
    ("run", ShowPart::Run, "the cost of each app"),
    ("latency", ShowPart::Latency, "how long packets and breaths take"),
    ("hot", ShowPart::Hot, "the hottest functions and instructions, by samples"),
    ("counters", ShowPart::Counters, "every counter that is not 0, with its description"),
    ("apps", ShowPart::Apps, "packets in and out of each app"),
    ("links", ShowPart::Links, "packets through each link"),
    ("interfaces", ShowPart::Interfaces, "ports to the outside, and the interfaces of routers"),
    ("neighbours", ShowPart::Neighbours, "the neighbours of routers: addresses, states and ages"),
    ("fib", ShowPart::Fib, "the forwarding tables of routers: sizes, next hops"),
    ("mac", ShowPart::Mac, "the MAC addresses of bridges: ports, VLANs and ages"),
    ("saved", ShowPart::Saved, "routes, neighbours and keys that commands have saved"),
    ("errors", ShowPart::Errors, "packets that were dropped, by app and reason"),
    ("config", ShowPart::Config, "the network file as it was read"),
    ("breath", ShowPart::Breath, "the calls of a breath in order, and their machine code"),
    ("vhost", ShowPart::Vhost, "virtio devices: sockets, features, rings, counters"),
    ("status", ShowPart::Status, "the state that each app reports"),
];

/// The list of parts and their descriptions, as help text.
pub fn parts() -> Vec<(&'static str, &'static str)> {
    PARTS.iter().map(|(name, _, what)| (*name, *what)).collect()
}

fn parts_help() -> String {
    let width = PARTS.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let parts = PARTS.iter().map(|(name, _, what)| format!("\n  {name:width$}  {what}"));
    "What to show:".to_owned() + &parts.collect::<String>()
}

fn part(name: &str) -> Option<ShowPart> {
    PARTS.iter().find(|(known, ..)| *known == name).map(|(_, part, _)| *part)
}

impl Arguments {
    /// The part (or all), and the word for the network or app. A single word that is not a part is a network's name.
    fn read(&self) -> Result<(Option<ShowPart>, Option<&str>), CommandError> {
        let (first, second) = (self.first.as_deref(), self.second.as_deref());
        match (first.map(|word| (word, part(word))), second.map(|word| (word, part(word)))) {
            (None, _) => Ok((None, None)),
            (Some((_, Some(part))), name) => Ok((Some(part), name.map(|(name, _)| name))),
            // With the arguments swapped there is only one meaning.
            (Some((name, None)), Some((_, Some(part)))) => Ok((Some(part), Some(name))),
            (Some((name, None)), None) => {
                let all = RuntimeDir::all();
                // The suffix after `@` selects one of a network's runs.
                let network = name.split('@').next().unwrap_or(name);
                if all.iter().any(|runtime_dir| runtime_dir.has_name(network)) {
                    return Ok((None, Some(name)));
                }
                let names: Vec<String> = all.iter().map(RuntimeDir::name).collect();
                Err(CommandError::Usage(unknown(name, &names)))
            }
            (Some((word, None)), Some(_)) => Err(CommandError::Usage(unknown(word, &[]))),
        }
    }
}

/// The error for a word that is neither a part nor one of these networks.
fn unknown(word: &str, networks: &[String]) -> String {
    let names = || PARTS.iter().map(|(name, ..)| *name);
    let meant = match nearest(word, names().chain(networks.iter().map(String::as_str))) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    };
    let running = match networks {
        [] => String::new(),
        names => format!("; networks: {}", names.join(", ")),
    };
    format!(
        "`{word}` is neither a part of `show` nor a network{meant} (parts: {}{running}; {})",
        names().collect::<Vec<_>>().join(", "),
        networks::searched_places()
    )
}

impl Execute for Arguments {
    const READS: &'static [&'static str] = &[
        "show NAME",
        "show links NAME",
        "show NAME links",
        "show mac NAME",
        "show saved NAME",
        "show vhost NAME",
        "show status NAME",
        "show run -n NAME --advise=1s",
    ];

    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        let (part, word) = self.read()?;
        let takes_app = matches!(part, Some(ShowPart::Vhost | ShowPart::Status));
        if let (Some(name), Some(word), false) = (self.option.or(None), word, takes_app) {
            let message = format!("the network is named twice, by `-n {name}` and by `{word}`; leave one out");
            return Err(CommandError::Usage(message));
        }
        self.run.check(part)?;
        if self.hot.is_given() && part != Some(ShowPart::Hot) {
            return Err(CommandError::Usage("--app, --for and --top are for `show hot`".to_owned()));
        }
        if self.vrf.is_some() && !matches!(part, Some(ShowPart::Fib | ShowPart::Neighbours)) {
            return Err(CommandError::Usage("--vrf is for `show fib` and `show neighbours`".to_owned()));
        }
        if self.mac.is_given() && part != Some(ShowPart::Mac) {
            return Err(CommandError::Usage("--table, --port, --vlan and --mac are for `show mac`".to_owned()));
        }
        if part == Some(ShowPart::Vhost) {
            return vhost::execute(self.option.or(None), word, self.json);
        }
        if part == Some(ShowPart::Status) {
            return status::execute(self.option.or(None), word, self.json);
        }
        let runtime_dir = network(self.option.or(word), Access::Read)?;
        match part {
            Some(ShowPart::Fib) => fib::execute(&runtime_dir, self.vrf.as_deref(), self.json),
            Some(ShowPart::Neighbours) => neighbours::execute(&runtime_dir, self.vrf.as_deref(), self.json),
            Some(ShowPart::Mac) => mac::execute(&runtime_dir, &self.mac, self.json),
            Some(ShowPart::Saved) => saved::execute(&runtime_dir, self.json),
            Some(ShowPart::Breath) => breath::execute(&runtime_dir, self.json),
            Some(ShowPart::Run) => run::execute(runtime_dir, &self.run, self.json),
            Some(ShowPart::Latency) => latency::execute(runtime_dir, self.json),
            Some(ShowPart::Hot) => hot::execute(&runtime_dir, &self.hot, self.json),
            Some(ShowPart::Interfaces) => interfaces::execute(runtime_dir, &program.registry, self.json),
            Some(ShowPart::Counters) => counters::execute(runtime_dir, &program.registry, self.run.all(), self.json),
            part => execute_tables(runtime_dir, part, self.json),
        }
    }

    fn only_reports(&self) -> bool {
        true
    }
}

/// The apps of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown apps", extend("includes" = ["Network"]))]
pub struct ShownApps<'s> {
    #[serde(flatten)]
    subject: &'s Subject,
    /// The apps, in the order of the network file.
    apps: &'s [AppCounts],
}

/// The links of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown links", extend("includes" = ["Network"]))]
pub struct ShownLinks<'s> {
    #[serde(flatten)]
    subject: &'s Subject,
    /// The links, in the order of the network file.
    links: &'s [LinkCounts],
}

/// What a network has dropped.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown errors", extend("includes" = ["Network"]))]
pub struct ShownErrors<'s> {
    #[serde(flatten)]
    subject: &'s Subject,
    /// What was dropped.
    errors: Vec<Drops<'s>>,
}

/// Packets that were dropped for one reason.
#[derive(Default, JsonSchema, Serialize)]
#[schemars(title = "Drops")]
struct Drops<'s> {
    /// The app; absent for packets in removed links, and for parts removed long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<&'s str>,
    /// The removed link, in place of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    /// Whether a reload has removed the app or the link.
    removed: bool,
    /// The drop reason; `all reasons` of parts removed long ago.
    reason: &'s str,
    /// The number of packets.
    packets: u64,
    /// What the reason means, with the likely cause; absent if it is the purpose of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

/// The configuration of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown configuration", extend("includes" = ["Network"]))]
pub struct ShownConfig<'s> {
    #[serde(flatten)]
    subject: &'s Subject,
    /// The network file as named on the command line.
    source: &'s str,
    /// Its text and all that it includes.
    config: &'s str,
}

/// Shows the parts that are tables made from one snapshot of the counters.
fn execute_tables(runtime_dir: RuntimeDir, part: Option<ShowPart>, json: bool) -> Result<ExitCode, CommandError> {
    let (name, state, pid) = (runtime_dir.name(), networks::state(&runtime_dir), runtime_dir.process());
    let user = runtime_dir.user();
    let mut observer = networks::open(runtime_dir)?;
    let sample = Sample::take(&mut observer);
    let counters = &sample.counters;
    let config = &observer.directory().config;
    if json {
        let subject = &Subject { name, user, state };
        let value = match part {
            Some(ShowPart::Apps) => json!(ShownApps { subject, apps: &counters.apps }),
            Some(ShowPart::Links) => json!(ShownLinks { subject, links: &counters.links }),
            Some(ShowPart::Errors) => json!(ShownErrors { subject, errors: errors(counters) }),
            Some(ShowPart::Config) => json!(ShownConfig { subject, source: &counters.source, config }),
            _ => json!(Shown::of(subject, &sample, config)),
        };
        terminal::print(&format!("{value:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    say_if_not_running(&name, state, counters);
    let rich = terminal::stdout_is_rich();
    let text = match part {
        Some(ShowPart::Apps) => report::apps(counters).render(rich),
        Some(ShowPart::Links) => report::links(counters).render(rich),
        Some(ShowPart::Errors) => {
            let drops = report::drops(counters);
            match drops.is_empty() {
                true => "nothing was dropped\n".to_owned(),
                false => drops.render(rich) + &report::causes(counters, u64::MAX),
            }
        }
        Some(ShowPart::Config) => {
            let text = sanitize(config);
            terminal::print_verbatim(&if text.ends_with('\n') { text } else { text + "\n" })?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {
            let head = match pid {
                Some(pid) if state == State::Stopped => format!("{name}: stopped (process {pid})"),
                Some(pid) => format!("{name}: running for {} (process {pid})", span(sample.uptime())),
                None => format!("{name}: crashed (process {})", counters.pid),
            };
            let (source, problems) = (sanitize(&counters.source), problems(observer.runtime_dir(), state, &sample));
            format!("{head}, {source}\n{problems}\n{}\n{}", report::counters(counters, rich), engine(counters))
        }
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Says that the figures are the last that the network left.
fn say_if_not_running(name: &str, state: State, counters: &Snapshot) {
    let pid = counters.pid;
    match state {
        State::Running => {}
        State::Stopped => {
            terminal::warn(&format!("`{name}` (process {pid}): {}\n", Obstacle::Stopped.advice(name, pid)));
        }
        State::Crashed => terminal::warn(&format!("`{name}` (process {pid}) has crashed; this is its last state\n")),
    }
}

/// The rows of `show errors`: drops by app and reason.
fn errors(counters: &Snapshot) -> Vec<Drops<'_>> {
    let gone = &counters.gone;
    let apps = counters.apps.iter().map(|app| (false, app)).chain(gone.apps.iter().map(|app| (true, app)));
    let drops =
        apps.flat_map(|(removed, app)| app.drops.iter().map(move |(reason, packets)| (removed, app, reason, *packets)));
    let drops = drops.filter(|(.., packets)| *packets > 0).map(|(removed, app, reason, packets)| Drops {
        app: Some(&app.name),
        removed,
        reason,
        packets,
        help: report::loss_help(app, reason),
        ..Drops::default()
    });
    let links = gone.links.iter().filter(|link| link.removed > 0).map(|link| Drops {
        link: Some(format!("{} -> {}", link.from, link.to)),
        removed: true,
        reason: "removed",
        packets: link.removed,
        ..Drops::default()
    });
    let forgotten = Some(counters.engine("forgotten_drops")).filter(|packets| *packets > 0);
    let forgotten =
        forgotten.map(|packets| Drops { removed: true, reason: "all reasons", packets, ..Drops::default() });
    drops.chain(links).chain(forgotten).collect()
}

/// The engine's own counters, on one line.
fn engine(counters: &Snapshot) -> String {
    format!(
        "schedule {}; {} breaths, {} of them idle; {} sleeps; {}; {} reloads{}\n",
        counters.schedule,
        count(counters.engine("breaths")),
        count(counters.engine("idle_breaths")),
        count(counters.engine("sleeps")),
        networks::buffers(counters),
        count(counters.engine("reloads")),
        networks::slow(counters).map(|slow| format!("; {slow}")).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_names_of_their_own() {
        for (name, this, what) in PARTS {
            assert_eq!(part(name), Some(*this), "{name}");
            assert!(!what.is_empty());
        }
    }

    #[test]
    fn errors_of_removed_parts_have_no_other_owner() {
        let link = bellows_observe::LinkCounts { removed: 2, ..Default::default() };
        let app = bellows_observe::AppCounts { drops: [("odd".to_owned(), 1)].into(), ..Default::default() };
        let gone = bellows_observe::Gone { apps: vec![app], links: vec![link] };
        let engine = [("forgotten_drops".to_owned(), 3)].into();
        let snapshot = Snapshot { gone, engine, ..Snapshot::default() };
        let errors = errors(&snapshot);
        let lacking =
            |error| ["app", "link", "help"].into_iter().filter(|key| json!(error).get(key).is_none()).collect();
        let lacking: Vec<Vec<&str>> = errors.iter().map(lacking).collect();
        assert_eq!(lacking, [vec!["link", "help"], vec!["app", "help"], vec!["app", "link", "help"]]);
    }

    #[test]
    fn a_typo_is_answered_with_the_parts() {
        let said = unknown("latnecy", &["one".to_owned(), "two".to_owned()]);
        for wanted in ["did you mean `latency`?", "run, latency, hot", "networks: one, two"] {
            assert!(said.contains(wanted), "{said}");
        }
        assert!(!unknown("firewall", &[]).contains("did you mean"));
    }
}
