//! `bellows neighbour`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_config::nearest;
use bellows_inspect::networks::Access;
use bellows_inspect::text::sanitize;
use bellows_router::vrf::requests::{BareVerb, Changed, NeighbourLines, NeighbourSelection, Request};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::commands::route::Flushed;
use crate::commands::show::neighbours;
use crate::operating::{
    self, Domain, DomainArguments, DomainNames, LineCounts, Lines, key_words, take_action, take_pair,
};
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::plural;

/// Show and change the neighbours of a network
///
/// The words are those of `ip neighbour`; docs/router.md explains the actions with examples.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, visible_alias = "neigh", alias = "neighbor")]
pub struct Arguments {
    /// add, replace, del, show or flush [default: show], then what `ip neighbour` writes behind it
    #[arg(value_name = "ACTION", long_help = ACTIONS)]
    words: Vec<String>,
    #[command(flatten)]
    domain: DomainArguments,
    /// Read a neighbour or a command from each line of a file; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Save the change, so that it is there again after a restart of the network
    #[arg(long)]
    save: bool,
    /// Print JSON (see docs/json.md)
    #[arg(short, long)]
    json: bool,
}

const ACTIONS: &str = "What to do:
  add ADDRESS lladdr ADDRESS [dev INTERFACE]
      enter a neighbour for good; what is heard from it changes nothing
  replace ADDRESS lladdr ADDRESS [dev INTERFACE]
      enter a neighbour, in place of what a command entered before
  del ADDRESS [dev INTERFACE]
      remove a neighbour of a command, or have one that was learned be asked anew
  show [ADDRESS] [dev INTERFACE]
      print the neighbours, as `ip neighbour` does
  flush all|[ADDRESS] [dev INTERFACE]
      remove neighbours, as `del` does";

const EXAMPLES: &str = "Examples:
  bellows neighbour show dev lan
  bellows neighbour add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan
  bellows neighbour flush dev lan
  bellows neighbour show dev lan | bellows neighbour replace -f - --name other";

/// The words that an action can be.
const NAMES: [&str; 8] = ["add", "replace", "del", "delete", "show", "list", "ls", "flush"];

impl Arguments {
    fn selection(words: &[String]) -> Result<NeighbourSelection, CommandError> {
        let mut select = NeighbourSelection::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "dev" {
                let name = words.next().ok_or_else(|| CommandError::Usage("`dev` needs an interface".to_owned()))?;
                select.dev = Some(name.clone());
            } else {
                let wrong = |_| CommandError::Usage(format!("`{word}` is neither an IP address nor `dev INTERFACE`"));
                select.address = Some(word.parse().map_err(wrong)?);
            }
        }
        Ok(select)
    }

    fn ask(domain: &mut Domain, commands: Vec<String>, bare: BareVerb) -> Result<Changed, CommandError> {
        let answer = domain.ask(&Request::ChangeNeighbours(NeighbourLines { commands, bare }))?;
        serde_json::from_value(answer).map_err(|error| CommandError::Failed(format!("unexpected answer: {error}")))
    }

    fn finish(&self, domain: &Domain, counts: LineCounts) -> Result<ExitCode, CommandError> {
        if self.json {
            terminal::print(&format!("{:#}\n", json!(ChangedNeighbours { counts, domain: domain.names() })))?;
        } else if self.file.is_some() {
            terminal::print(&format!("{}\n", counts.sentence("neighbour")))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn change_file(
        &self,
        domain: &mut Domain,
        file: &std::path::Path,
        bare: BareVerb,
    ) -> Result<ExitCode, CommandError> {
        let (mut lines, mut counts) = (Lines::open(file)?, LineCounts::default());
        while let Some(batch) = lines.next_batch(|line| bare != BareVerb::Delete && has_no_address(line))? {
            if batch.lines.is_empty() {
                continue;
            }
            let changed = Arguments::ask(domain, batch.lines.clone(), bare)?;
            if !changed.errors.is_empty() {
                let first = batch.numbers.first().copied().unwrap_or_default();
                let text = lines.render(&batch, &changed.errors);
                let done = plural(counts.done(), "command");
                let rest = format!("{done} before line {first} took effect, none from there on");
                return Err(CommandError::Diagnosed(format!("{}\n{rest}", text.trim_end())));
            }
            counts.added += changed.added as u64;
            counts.replaced += changed.replaced as u64;
            counts.deleted += changed.deleted as u64;
        }
        counts.skipped = lines.skipped;
        self.finish(domain, counts)
    }
}

/// Changes of neighbours.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Changed neighbours", extend("includes" = ["Routing domain", "Counts of lines"]))]
pub struct ChangedNeighbours {
    #[serde(flatten)]
    counts: LineCounts,
    #[serde(flatten)]
    domain: DomainNames,
}

/// Whether a line is that of a neighbour without an Ethernet address of its own, as `show` and `ip neighbour` print it.
fn has_no_address(line: &str) -> bool {
    let mut words = key_words(line).filter(|word| !["ip", "neigh", "neighbour", "neighbor"].contains(word)).peekable();
    let is_command = words.peek().is_some_and(|word| ["add", "append", "replace", "del", "delete"].contains(word));
    let states = ["INCOMPLETE", "FAILED", "NOARP", "NONE", "proxy"];
    !is_command && words.any(|word| states.contains(&word))
}

/// Prints neighbours as `ip neighbour` does, page by page. `add -f` reads what it prints.
fn show(domain: &mut Domain, select: &NeighbourSelection) -> Result<ExitCode, CommandError> {
    let mut goes_on = false;
    loop {
        let (page, more) = neighbours::page(domain, select, goes_on)?;
        let lines: String = page.iter().map(line).collect();
        if !terminal::print_on(&sanitize(&lines))? || !more {
            return Ok(ExitCode::SUCCESS);
        }
        goes_on = true;
    }
}

/// A neighbour as a line that `add` understands.
fn line(one: &Value) -> String {
    let word = |key: &str| one[key].as_str();
    let mac = word("mac").map_or_else(String::new, |mac| format!(" lladdr {mac}"));
    let origin = word("protocol").map_or_else(String::new, |origin| format!(" proto {origin}"));
    let (address, interface) = (word("address").unwrap_or_default(), word("interface").unwrap_or_default());
    let state = word("state").unwrap_or_default().to_ascii_uppercase();
    format!("{address} dev {interface}{mac} {state}{origin}\n")
}

impl Execute for Arguments {
    const READS: &'static [&'static str] = &["neighbour NAME", "neighbour show NAME"];
    const CHANGES: &'static [&'static str] = &[
        "neighbour flush all -n NAME",
        "neighbour add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan -n NAME",
        "neighbour replace 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan -n NAME",
        "neighbour del 192.0.2.7 -n NAME",
        "neighbour add -f FILE -n NAME",
        "neighbour del 192.0.2.7 --save -n NAME",
    ];

    fn execute(mut self, _: &Program) -> Result<ExitCode, CommandError> {
        let mut words = self.words.clone();
        let vrf = take_pair(&mut words, "vrf")?;
        if words.first().is_some_and(|word| !NAMES.contains(&word.as_str())) {
            self.domain.take_name(&mut words);
        }
        let action = take_action(&mut words, self.file.is_some());
        self.domain.take_name(&mut words);
        let bare = match &*action {
            "add" => Some(BareVerb::Add),
            "replace" => Some(BareVerb::Replace),
            "del" | "delete" => Some(BareVerb::Delete),
            "show" | "list" | "ls" | "flush" => None,
            _ => {
                let near = nearest(&action, ["add", "replace", "del", "show", "flush"]);
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                let known = "there are add, replace, del, show and flush";
                return Err(CommandError::Usage(format!("`{action}` is not an action{near}; {known}")));
            }
        };
        if self.file.is_some() && (bare.is_none() || !words.is_empty()) {
            return Err(CommandError::Usage("`--file` is for add, replace and del without further words".to_owned()));
        }
        let access = if bare.is_some() || action == "flush" { Access::Change } else { Access::Read };
        if self.save && bare.is_none() {
            let message = format!("`--save` is for add, replace and del, not for `{action}`");
            return Err(CommandError::Usage(message));
        }
        let mut domain = self.domain.open(vrf.as_deref(), access)?;
        if self.save {
            domain.save();
        }
        match (bare, &self.file) {
            (Some(bare), Some(file)) => self.change_file(&mut domain, file, bare),
            (Some(bare), None) => {
                let line = format!("{action} {}", words.join(" "));
                let changed = Arguments::ask(&mut domain, vec![line.clone()], bare)?;
                if let Some(error) = changed.errors.first() {
                    return Err(CommandError::Diagnosed(operating::render("", &line, error)));
                }
                let number = |count: usize| count as u64;
                let counts = LineCounts {
                    added: number(changed.added),
                    replaced: number(changed.replaced),
                    deleted: number(changed.deleted),
                    ..LineCounts::default()
                };
                self.finish(&domain, counts)
            }
            (None, _) if action == "flush" => {
                let is_all = words == ["all"];
                let select = Arguments::selection(if is_all { &[] } else { &words })?;
                if !is_all && select == NeighbourSelection::default() {
                    let message = "`flush` needs to know which neighbours: an address, `dev INTERFACE`, or `all`";
                    return Err(CommandError::Usage(message.to_owned()));
                }
                let answer = domain.ask(&Request::FlushNeighbours(select))?;
                let deleted = answer["deleted"].as_u64().unwrap_or_default();
                if self.json {
                    terminal::print(&format!("{:#}\n", json!(Flushed { domain: domain.names(), deleted })))?;
                } else {
                    terminal::notice(&format!("{} forgotten\n", plural(deleted, "neighbour")));
                }
                Ok(ExitCode::SUCCESS)
            }
            (None, _) if self.json => neighbours::print(vec![domain], &Arguments::selection(&words)?, true),
            (None, _) => show(&mut domain, &Arguments::selection(&words)?),
        }
    }

    fn only_reports(&self) -> bool {
        let changes = ["add", "replace", "del", "delete", "flush"];
        self.file.is_none() && !self.words.iter().any(|word| changes.contains(&word.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_without_an_address_are_known() {
        for (line, expected) in [
            ("192.0.2.9 dev lan INCOMPLETE", true),
            ("ip neigh 192.0.2.9 dev lan FAILED", true),
            ("192.0.2.9 dev lan proxy", true),
            ("ff02::16 dev lan lladdr 33:33:00:00:00:16 NOARP", true),
            ("192.0.2.9 dev lan lladdr 04:00:00:00:00:09 router STALE", false),
            ("192.0.2.9 dev FAILED lladdr 04:00:00:00:00:09 STALE", false),
            ("del 192.0.2.9 dev lan FAILED", false),
        ] {
            assert_eq!(has_no_address(line), expected, "{line}");
        }
    }

    #[test]
    fn neighbours_are_printed_as_ip_prints_them() {
        let one = json!({ "address": "192.0.2.9", "interface": "lan", "mac": "04:00:00:00:00:09", "state": "permanent",
            "protocol": "control" });
        assert_eq!(line(&one), "192.0.2.9 dev lan lladdr 04:00:00:00:00:09 PERMANENT proto control\n");
        let one = json!({ "address": "192.0.2.9", "interface": "lan", "mac": null, "state": "incomplete" });
        assert_eq!(line(&one), "192.0.2.9 dev lan INCOMPLETE\n");
    }
}
