//! `bellows esp`.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use bellows_engine::AppStatus;
use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::networks;
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use clap::Args;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::operating::Peer;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, count};

/// The type of the app.
const ESP: &str = "esp";

/// The maximum length of a file with a key, in bytes.
const MAX_KEY_FILE: u64 = 4_096;

/// Show a network's IPsec associations, and give them new keys
///
/// No key is ever shown. docs/ipsec.md explains in which order two ends get new keys, so that no packet is lost.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// show or rekey
    #[arg(value_name = "ACTION", default_value = "show")]
    action: Action,
    /// The pair of associations [for show: all]
    #[arg(value_name = "PAIR")]
    pair: Option<String>,
    /// For rekey: receive with this SPI, cipher, and key; `-` is standard input
    #[arg(long, num_args = 3, value_names = ["SPI", "ALGORITHM", "FILE"])]
    inbound: Option<Vec<String>>,
    /// For rekey: send with these
    #[arg(long, num_args = 3, value_names = ["SPI", "ALGORITHM", "FILE"])]
    outbound: Option<Vec<String>>,
    /// The app, if the network has several of type `esp`
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// The network's name, if several run
    #[arg(short = 'n', long, value_name = "NAME")]
    name: Option<String>,
    /// Print JSON (see docs/json.md)
    #[arg(short, long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  bellows esp
  bellows esp show site --json
  bellows esp rekey site --inbound 0x2001 aes-128-gcm new-in.key
  bellows esp rekey site --outbound 0x2002 aes-128-gcm new-out.key";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Print the pairs, with sequence numbers, packets, bytes and limits.
    Show,
    /// Replace the keys of a pair. Other settings of the direction stay.
    Rekey,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        match self.action {
            Action::Show if self.inbound.is_some() || self.outbound.is_some() => {
                Err(CommandError::Usage("`--inbound` and `--outbound` are for `rekey`".to_owned()))
            }
            Action::Show => self.show(),
            Action::Rekey => self.rekey(),
        }
    }

    fn only_reports(&self) -> bool {
        self.action == Action::Show
    }
}

impl Arguments {
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

    fn show(&self) -> Result<ExitCode, CommandError> {
        let runtime_dir = networks::pick(self.name.as_deref())?;
        let apps = self.apps(&runtime_dir)?;
        let is_meant = |pair: &Value| self.pair.as_ref().is_none_or(|name| pair["pair"] == json!(name));
        let mut shown: Vec<Value> = Vec::new();
        for app in &apps {
            for pair in app.status["pairs"].as_array().into_iter().flatten().filter(|pair| is_meant(pair)) {
                let mut pair = pair.clone();
                pair["app"] = json!(app.app);
                shown.push(pair);
            }
        }
        if shown.is_empty() && self.pair.is_some() {
            let name = self.pair.as_deref().unwrap_or_default();
            return Err(CommandError::Usage(format!("there is no pair `{name}`; `bellows esp show` lists them")));
        }
        if self.json {
            let mut value = networks::identity(&runtime_dir);
            value["instructions"] = apps.first().map_or(Value::Null, |app| app.status["instructions"].clone());
            value["pairs"] = json!(shown);
            terminal::print(&format!("{value:#}\n"))?;
        } else {
            terminal::print(&table(&shown))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn rekey(&self) -> Result<ExitCode, CommandError> {
        let Some(pair) = &self.pair else {
            return Err(CommandError::Usage("`rekey` needs a pair: `bellows esp show` lists them".to_owned()));
        };
        if self.inbound.is_none() && self.outbound.is_none() {
            return Err(CommandError::Usage("`rekey` needs `--inbound`, `--outbound`, or both".to_owned()));
        }
        let runtime_dir = networks::pick_to_change(self.name.as_deref())?;
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
        let answer = Peer::new(runtime_dir, Some(&app.app), ESP)?.ask(&json!({ "rekey": keys }))?;
        if self.json {
            terminal::print(&format!("{answer:#}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
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

/// The text of a file with a key.
fn read_key(path: &Path) -> Result<String, CommandError> {
    let is_input = path == Path::new("-");
    let name = if is_input { "standard input".to_owned() } else { format!("`{}`", path.display()) };
    let wrong = |error: std::io::Error| CommandError::Usage(format!("{name} cannot be read: {error}"));
    let mut text = String::new();
    if is_input {
        std::io::stdin().take(MAX_KEY_FILE).read_to_string(&mut text).map_err(wrong)?;
    } else {
        let file = std::fs::File::open(path).map_err(wrong)?;
        file.take(MAX_KEY_FILE).read_to_string(&mut text).map_err(wrong)?;
    }
    Ok(text.trim().to_owned())
}

/// The pairs as a table.
fn table(pairs: &[Value]) -> String {
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
    for pair in pairs {
        for (way, ends) in [("inbound", ["remote", "local"]), ("outbound", ["local", "remote"])] {
            let state = &pair[way];
            table.row([
                text(&pair["app"]),
                text(&pair["pair"]),
                text(&pair["mode"]),
                text(&pair[ends[0]]),
                text(&pair[ends[1]]),
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
    table.render(terminal::stdout_is_rich())
}

/// A hard limit as text.
fn limit(limits: &Value) -> String {
    let one = |(key, unit): (&str, &str)| limits[key].as_u64().map(|value| format!("{} {unit}", count(value)));
    let all: Vec<String> = [("packets", "p"), ("bytes", "B"), ("seconds", "s")].into_iter().filter_map(one).collect();
    if all.is_empty() { UNKNOWN.to_owned() } else { all.join(", ") }
}
