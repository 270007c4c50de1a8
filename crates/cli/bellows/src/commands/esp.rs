//! `bellows esp`.

use std::path::Path;
use std::process::ExitCode;

use bellows_config::nearest;
use bellows_engine::AppStatus;
use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::events::{EventWatch, News, NewsLine, Occurrence};
use bellows_inspect::networks::{self, Access};
use bellows_inspect::reports::Subject;
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use bellows_sys::private_file;
use bellows_vpn::esp::PairState;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::NameOption;
use crate::command_error::CommandError;
use crate::commands::events::in_text;
use crate::operating::{AnsweringApp, Ask, network};
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, count, plural};

/// The type of the app.
const ESP: &str = "esp";

/// The maximum length of a file with a key, in bytes.
const MAX_KEY_FILE: usize = 4_096;

/// The number of events that are shown below the table.
const MAX_SHOWN: usize = 10;

/// Show a network's IPsec associations, and give them new keys
///
/// Below the associations are the latest events of their keys; `bellows events --app APP` prints all of them. No key is
/// ever shown. docs/ipsec.md explains in which order two ends get new keys, so that no packet is lost.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// show, rekey or forget [default: show], then the pair of associations [for show: all]
    ///
    /// The network's name, if several run, stands alone or before the pair: `esp NAME`, `esp rekey NAME PAIR`.
    #[arg(value_name = "ACTION", num_args = 0..=3)]
    words: Vec<String>,
    /// For rekey: receive with this SPI, cipher, and key in a private file (mode 0600); `-` is standard input
    #[arg(long, num_args = 3, value_names = ["SPI", "ALGORITHM", "FILE"])]
    inbound: Option<Vec<String>>,
    /// For rekey: send with these
    #[arg(long, num_args = 3, value_names = ["SPI", "ALGORITHM", "FILE"])]
    outbound: Option<Vec<String>>,
    /// For rekey: use the new keys also when a network of this name starts (`show saved` lists them, `forget` ends it)
    #[arg(long)]
    save: bool,
    /// The app, if the network has several of type `esp`
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    #[command(flatten)]
    option: NameOption,
    /// Print JSON (see docs/json.md)
    #[arg(short, long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  bellows esp
  bellows esp show site --json
  bellows esp rekey site --inbound 0x2001 aes-128-gcm new-in.key
  bellows esp rekey site --outbound 0x2002 aes-128-gcm new-out.key
  bellows esp rekey site --outbound 0x2002 aes-128-gcm new-out.key --save
  bellows esp forget site";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Print the pairs, with sequence numbers, packets, bytes and limits.
    Show,
    /// Replace the keys of a pair. Other settings of the direction stay.
    Rekey,
    /// Save the keys of a pair no longer.
    Forget,
}

/// The actions by name.
const ACTIONS: [(&str, Action); 3] = [("show", Action::Show), ("rekey", Action::Rekey), ("forget", Action::Forget)];

/// What the words of the command line mean.
struct Meaning<'a> {
    action: Action,
    network: Option<&'a str>,
    pair: Option<&'a str>,
}

fn action(word: &str) -> Option<Action> {
    ACTIONS.iter().find(|(name, _)| *name == word).map(|(_, action)| *action)
}

fn is_network(word: &str) -> bool {
    networks::pick(Some(word), Access::Read).is_ok()
}

impl Execute for Arguments {
    const READS: &'static [&'static str] = &["esp NAME", "esp show NAME", "esp show NAME pair"];
    const CHANGES: &'static [&'static str] = &[
        "esp rekey pair --inbound 1 aes-128-gcm FILE -n NAME",
        "esp rekey pair --outbound 1 aes-128-gcm FILE --app esp -n NAME",
        "esp rekey pair --inbound 1 aes-128-gcm FILE --save -n NAME",
        "esp forget pair -n NAME",
    ];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let meaning = self.read()?;
        match meaning.action {
            Action::Rekey => self.rekey(&meaning),
            _ if self.inbound.is_some() || self.outbound.is_some() || self.save => {
                Err(CommandError::Usage("`--inbound`, `--outbound` and `--save` are for `rekey`".to_owned()))
            }
            Action::Show => self.show(&meaning),
            Action::Forget => self.forget(&meaning),
        }
    }

    fn only_reports(&self) -> bool {
        self.words.iter().all(|word| action(word).is_none_or(|action| action == Action::Show))
    }
}

impl Arguments {
    /// The action, the network and the pair.
    fn read(&self) -> Result<Meaning<'_>, CommandError> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let named = self.option.or(None);
        let (action, before, rest) = match words[..] {
            [] => (Action::Show, None, &words[..]),
            [word, ref rest @ ..] if let Some(action) = action(word) => (action, None, rest),
            [name, word, ref rest @ ..] if let Some(action) = action(word) => (action, Some(name), rest),
            [name] if named.is_none() && is_network(name) => (Action::Show, Some(name), &[][..]),
            [word, ..] => {
                let near = nearest(word, ACTIONS.map(|(name, _)| name));
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                return Err(CommandError::Usage(format!(
                    "`{word}` is neither an action nor a running network{near}; there are show, rekey and forget"
                )));
            }
        };
        let (network, pair) = match *rest {
            [] => (before, None),
            // A pair of the network that would be picked comes before a network of the same name.
            [name]
                if named.or(before).is_none() && action == Action::Show && !self.has_pair(name) && is_network(name) =>
            {
                (Some(name), None)
            }
            [pair] => (before, Some(pair)),
            [name, pair] if before.is_none() => (Some(name), Some(pair)),
            [.., word] => return Err(CommandError::Usage(format!("`{word}` is one word too many"))),
        };
        if let (Some(name), Some(word)) = (named, network) {
            let message = format!("the network is named twice, by `-n {name}` and by `{word}`; leave one out");
            return Err(CommandError::Usage(message));
        }
        Ok(Meaning { action, network: named.or(network), pair })
    }

    /// Whether the network that no name picks has this pair.
    fn has_pair(&self, name: &str) -> bool {
        let runtime_dir = networks::pick(None, Access::Read).ok();
        let apps = runtime_dir.and_then(|runtime_dir| self.apps(&runtime_dir).ok()).unwrap_or_default();
        apps.iter().flat_map(pairs).any(|pair| pair["pair"] == json!(name))
    }

    /// The apps of the network, or the one that is meant.
    fn apps(&self, runtime_dir: &RuntimeDir) -> Result<Vec<AppStatus>, CommandError> {
        let Reply::Apps { apps, .. } = ask(runtime_dir, &Request::Apps)? else {
            return Err(CommandError::Failed(format!("`{}` did not answer with its apps", runtime_dir.name())));
        };
        let all: Vec<AppStatus> = apps.into_iter().filter(|app| app.kind == ESP).collect();
        let names = all.iter().map(|app| format!("`{}`", app.app)).collect::<Vec<_>>().join(", ");
        let meant: Vec<AppStatus> =
            all.into_iter().filter(|app| self.app.as_ref().is_none_or(|name| *name == app.app)).collect();
        match (meant.is_empty(), names.is_empty()) {
            (false, _) => Ok(meant),
            (true, true) => Err(CommandError::Usage(format!("`{}` has no app of type `{ESP}`", runtime_dir.name()))),
            (true, false) => {
                let name = self.app.as_deref().unwrap_or_default();
                Err(CommandError::Usage(format!("there is no app of type `{ESP}` named `{name}`; there are {names}")))
            }
        }
    }

    fn show(&self, meaning: &Meaning<'_>) -> Result<ExitCode, CommandError> {
        let runtime_dir = network(meaning.network, Access::Read)?;
        let apps = self.apps(&runtime_dir)?;
        let is_meant = |pair: &Value| meaning.pair.is_none_or(|name| pair["pair"] == json!(name));
        let of_app = |app: &AppStatus| -> Vec<ShownPair> {
            let meant = pairs(app).filter(|pair| is_meant(pair));
            meant.map(|pair| ShownPair { pair: pair.clone(), app: app.app.clone() }).collect()
        };
        let shown: Vec<ShownPair> = apps.iter().flat_map(of_app).collect();
        if let Some(name) = meaning.pair
            && shown.is_empty()
        {
            return Err(CommandError::Usage(format!("there is no pair `{name}`; `bellows esp show` lists them")));
        }
        let events = events(&runtime_dir, &apps, meaning.pair);
        if self.json {
            let value = ShownAssociations {
                network: Subject::of(&runtime_dir),
                instructions: apps.first().and_then(|app| app.status["instructions"].as_str()),
                pairs: shown,
                events: events.iter().map(News::to_json).collect(),
            };
            terminal::print(&format!("{:#}\n", json!(value)))?;
        } else {
            let latest = &events[events.len().saturating_sub(MAX_SHOWN)..];
            let latest: String = latest.iter().map(in_text).collect();
            let gap = if latest.is_empty() { "" } else { "\n" };
            terminal::print(&format!("{}{gap}{latest}", table(&shown)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn rekey(&self, meaning: &Meaning<'_>) -> Result<ExitCode, CommandError> {
        let Some(pair) = meaning.pair else {
            return Err(CommandError::Usage("`rekey` needs a pair: `bellows esp show` lists them".to_owned()));
        };
        if self.inbound.is_none() && self.outbound.is_none() {
            return Err(CommandError::Usage("`rekey` needs `--inbound`, `--outbound`, or both".to_owned()));
        }
        let runtime_dir = network(meaning.network, Access::Change)?;
        let apps = self.apps(&runtime_dir)?;
        let has = |app: &&AppStatus| pairs(app).any(|other| other["pair"] == json!(pair));
        let found: Vec<&AppStatus> = apps.iter().filter(has).collect();
        let [app] = found[..] else {
            let problem = if found.is_empty() { "there is no pair" } else { "several apps have a pair" };
            return Err(CommandError::Usage(format!(
                "{problem} `{pair}`; `bellows esp show` lists them; `--app` names one"
            )));
        };
        let present = pairs(app).find(|other| other["pair"] == json!(pair)).cloned().unwrap_or_default();
        let mut keys = json!({ "pair": pair });
        for (way, words) in [("inbound", &self.inbound), ("outbound", &self.outbound)] {
            if let Some(words) = words {
                keys[way] = direction(words, &present[way])?;
            }
        }
        let mut peer = AnsweringApp::new(runtime_dir, Some(&app.app), ESP)?;
        if self.save {
            peer.save();
        }
        let answer = peer.ask(&Rekey { rekey: keys })?;
        let text = if self.json { format!("{answer:#}\n") } else { self.replaced(pair, &answer) };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Removes what is saved of a pair, which may not be there any more.
    fn forget(&self, meaning: &Meaning<'_>) -> Result<ExitCode, CommandError> {
        let Some(pair) = meaning.pair else {
            return Err(CommandError::Usage("`forget` needs a pair: `bellows show saved` lists them".to_owned()));
        };
        let runtime_dir = network(meaning.network, Access::Change)?;
        let mut peer = AnsweringApp::new(runtime_dir, self.app.as_deref(), ESP)?;
        peer.save();
        let answer = peer.ask(&Forget { forget: json!({ "pair": pair }) })?;
        let keys = plural(answer["forgotten"].as_u64().unwrap_or(0), "saved key");
        let text = if self.json { format!("{answer:#}\n") } else { format!("{}: {keys} removed\n", sanitize(pair)) };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// What has changed.
    fn replaced(&self, pair: &str, answer: &Value) -> String {
        let spi = |key: &str| answer[key].as_u64().map_or_else(|| UNKNOWN.to_owned(), |spi| format!("{spi:#010x}"));
        let cipher = |words: &[String]| words.get(1).cloned().unwrap_or_default();
        let pair = sanitize(pair);
        let mut text = String::new();
        if let Some(words) = &self.inbound {
            let (new, old, grace) = (spi("inbound"), spi("old_inbound"), answer["grace_seconds"].as_u64().unwrap_or(0));
            let (cipher, until) = (
                cipher(words),
                if old == new {
                    String::new()
                } else {
                    format!("; packets with the old one ({old}) are received for {grace} s more")
                },
            );
            text += &format!("{pair}: receives with SPI {new} and a key of {cipher}{until}\n");
        }
        if let Some(words) = &self.outbound {
            let (new, old, cipher) = (spi("outbound"), spi("old_outbound"), cipher(words));
            text += &format!("{pair}: sends with SPI {new} and a key of {cipher}; the old one ({old}) is gone\n");
        }
        text
    }
}

/// The associations of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown associations", extend("includes" = ["Network"]))]
pub struct ShownAssociations<'a> {
    #[serde(flatten)]
    network: Subject,
    /// The instructions that the ciphers use.
    #[schemars(with = "String")]
    instructions: Option<&'a str>,
    /// The pairs of associations; only those that were named.
    pairs: Vec<ShownPair>,
    /// What happened to them, the latest last: the events of these apps that the network has kept, or those of the pair that
    /// was named.
    #[schemars(with = "Vec<NewsLine<'static>>")]
    events: Vec<Value>,
}

/// A pair of an app.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Pair of an app", extend("includes" = ["Pair of associations"]))]
struct ShownPair {
    #[serde(flatten)]
    #[schemars(with = "PairState")]
    pair: Value,
    /// The app of type `esp`.
    app: String,
}

/// What happened to the apps, or to a pair of theirs, in the order of time.
fn events(runtime_dir: &RuntimeDir, apps: &[AppStatus], pair: Option<&str>) -> Vec<News> {
    let is_meant = |news: &News| {
        let News::Event(Occurrence { user, event, .. }) = news else { return false };
        let is_own = event.text("app").is_some_and(|name| apps.iter().any(|app| app.app == name));
        *user == runtime_dir.user() && is_own && (pair.is_none() || event.text("pair") == pair)
    };
    EventWatch::new(vec![runtime_dir.name()], 0).poll(true).into_iter().filter(is_meant).collect()
}

/// The request for new keys.
#[derive(Serialize)]
struct Rekey {
    rekey: Value,
}

impl Ask for Rekey {
    fn access(&self) -> Access {
        Access::Change
    }
}

/// The request to save keys no longer.
#[derive(Serialize)]
struct Forget {
    forget: Value,
}

impl Ask for Forget {
    fn access(&self) -> Access {
        Access::Change
    }
}

/// The pairs of an app.
fn pairs(app: &AppStatus) -> impl Iterator<Item = &Value> {
    app.status["pairs"].as_array().into_iter().flatten()
}

/// The new keys of a direction, with the settings that it has.
fn direction(words: &[String], present: &Value) -> Result<Value, CommandError> {
    let [spi, algorithm, file] = words else {
        return Err(CommandError::Usage("a direction is an SPI, a cipher and a file".to_owned()));
    };
    let digits = spi.strip_prefix("0x");
    let number = digits.map_or_else(|| spi.parse(), |digits| u32::from_str_radix(digits, 16));
    let number = number.map_err(|_| CommandError::Usage(format!("`{spi}` is no SPI; give a number such as 0x1001")))?;
    let mut value = json!({ "spi": number, "algorithm": algorithm, "key": read_key(Path::new(file))? });
    for key in ["esn", "window", "resync_after", "soft", "hard"] {
        if !present[key].is_null() {
            value[key] = present[key].clone();
        }
    }
    Ok(value)
}

/// The text of a private file with a key, or of standard input.
fn read_key(path: &Path) -> Result<String, CommandError> {
    let wrong = |message: String| CommandError::Usage(message);
    let (name, bytes) = if path == Path::new("-") {
        let input = private_file::read_up_to(std::io::stdin(), MAX_KEY_FILE);
        let input = input.map_err(|error| wrong(format!("standard input cannot be read: {error}")))?;
        let long = || wrong(format!("standard input is longer than {MAX_KEY_FILE} bytes; give the key alone"));
        ("standard input".to_owned(), input.ok_or_else(long)?)
    } else {
        let read = private_file::read(path, MAX_KEY_FILE).map_err(|error| wrong(error.to_string()))?;
        (format!("`{}`", path.display()), read)
    };
    let text = str::from_utf8(&bytes).map_err(|_| wrong(format!("{name} is not UTF-8; give the digits of a key")))?;
    Ok(text.trim().to_owned())
}

/// The pairs as a table.
fn table(pairs: &[ShownPair]) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("APP", Align::Left),
        ("PAIR", Align::Left),
        ("MODE", Align::Left),
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("SPI", Align::Left),
        ("CIPHER", Align::Left),
        ("SEQUENCE", right),
        ("PACKETS", right),
        ("BYTES", right),
        ("HARD LIMIT", right),
        ("AGE, S", right),
        ("WINDOW", right),
    ]);
    let text = |value: &Value| sanitize(value.as_str().unwrap_or(UNKNOWN));
    let number = |value: &Value| value.as_u64().map_or_else(|| UNKNOWN.to_owned(), count);
    // An end with its UDP port, if it has one.
    let end = |pair: &Value, end: &str| {
        let (address, port) = (text(&pair[end]), pair[format!("{end}_port")].as_u64());
        match port {
            None => address,
            Some(port) if address.contains(':') => format!("[{address}]:{port}"),
            Some(port) => format!("{address}:{port}"),
        }
    };
    for ShownPair { pair, app } in pairs {
        for (way, ends) in [("inbound", ["remote", "local"]), ("outbound", ["local", "remote"])] {
            let state = &pair[way];
            table.row([
                sanitize(app),
                text(&pair["pair"]),
                text(&pair["mode"]),
                end(pair, ends[0]),
                end(pair, ends[1]),
                state["spi"].as_u64().map_or_else(|| UNKNOWN.to_owned(), |spi| format!("{spi:#010x}")),
                text(&state["algorithm"]),
                number(&state["sequence"]),
                number(&state["packets"]),
                number(&state["bytes"]),
                limit(&state["hard"]),
                state["seconds"].as_f64().map_or_else(|| UNKNOWN.to_owned(), |seconds| format!("{seconds:.0}")),
                number(&state["window"]),
            ]);
        }
    }
    table.render(terminal::stdout_is_rich()) + &failing(pairs)
}

/// What is said of pairs that have received nothing that is authentic.
fn failing(pairs: &[ShownPair]) -> String {
    let line = |ShownPair { pair, app }: &ShownPair| {
        let (inbound, text) = (&pair["inbound"], |value: &Value| sanitize(value.as_str().unwrap_or(UNKNOWN)));
        let (failures, cause) = (inbound["failures"].as_u64()?, text(inbound.get("likely_cause")?));
        let (app, name) = (sanitize(app), text(&pair["pair"]));
        let packets = plural(failures, "packet");
        Some(format!("{name} of {app}: {packets} received, none authentic (bad_icv); probably {cause}\n"))
    };
    pairs.iter().filter_map(line).collect()
}

/// A hard limit as text.
fn limit(limits: &Value) -> String {
    let one = |(key, unit): (&str, &str)| limits[key].as_u64().map(|value| format!("{} {unit}", count(value)));
    let all: Vec<String> = [("packets", "p"), ("bytes", "B"), ("seconds", "s")].into_iter().filter_map(one).collect();
    if all.is_empty() { UNKNOWN.to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_the_udp_ports_that_are_in_use() {
        let shown = |more: &Value| {
            let mut pair = json!({ "pair": "p", "mode": "tunnel", "inbound": {}, "outbound": {} });
            pair.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let text = table(&[ShownPair { pair, app: "a".to_owned() }]);
            let row = |line: usize| {
                text.lines().nth(line).unwrap().split_whitespace().skip(3).take(2).collect::<Vec<_>>().join(" ")
            };
            (row(1), row(2))
        };
        let ends = |ends: [&str; 2]| (format!("{} {}", ends[1], ends[0]), format!("{} {}", ends[0], ends[1]));
        let v4 = json!({ "local": "192.0.2.1", "remote": "192.0.2.2" });
        assert_eq!(shown(&v4), ends(["192.0.2.1", "192.0.2.2"]));
        let v4 = json!({ "local": "192.0.2.1", "remote": "192.0.2.2", "local_port": 4500, "remote_port": 6001 });
        assert_eq!(shown(&v4), ends(["192.0.2.1:4500", "192.0.2.2:6001"]));
        let v6 = json!({ "local": "2001:db8::1", "remote": "2001:db8::2", "local_port": 4500, "remote_port": 7 });
        assert_eq!(shown(&v6), ends(["[2001:db8::1]:4500", "[2001:db8::2]:7"]));
    }
}
