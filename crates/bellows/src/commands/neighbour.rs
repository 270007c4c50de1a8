//! `bellows neighbour`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_apps::vrf::requests::{BareVerb, Changed, NeighbourSelection, Request};
use bellows_config::nearest;
use clap::Args;
use serde_json::json;

use crate::command_error::CommandError;
use crate::commands::show::neighbours;
use crate::operating::{self, Counts, Domain, DomainArguments, Lines, take_action, take_pair};
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::plural;

/// Show and change the neighbours of a running network
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
                 print the neighbours
  flush all|[ADDRESS] [dev INTERFACE]
                 remove neighbours, as `del` does";

const EXAMPLES: &str = "Examples:
  bellows neighbour show dev lan
  bellows neighbour add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan
  bellows neighbour flush dev lan";

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
        let answer = domain.ask(&Request::ChangeNeighbours { commands, bare })?;
        serde_json::from_value(answer).map_err(|error| CommandError::Failed(format!("unexpected answer: {error}")))
    }

    fn finish(&self, domain: &Domain, counts: &Counts) -> Result<ExitCode, CommandError> {
        if self.json {
            let mut value = counts.json();
            value["name"] = json!(domain.network());
            value["vrf"] = json!(domain.name());
            terminal::print(&format!("{value:#}\n"))?;
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
        let (mut lines, mut counts) = (Lines::open(file)?, Counts::default());
        while let Some(batch) = lines.next_batch(|_| false)? {
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
        self.finish(domain, &counts)
    }
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let mut words = self.words.clone();
        let vrf = take_pair(&mut words, "vrf")?;
        let action = take_action(&mut words, self.file.is_some());
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
        let changes = bare.is_some() || action == "flush";
        let mut domain = self.domain.open(vrf.as_deref(), changes)?;
        match (bare, &self.file) {
            (Some(bare), Some(file)) => self.change_file(&mut domain, file, bare),
            (Some(bare), None) => {
                let line = format!("{action} {}", words.join(" "));
                let changed = Arguments::ask(&mut domain, vec![line.clone()], bare)?;
                if let Some(error) = changed.errors.first() {
                    return Err(CommandError::Diagnosed(operating::render("", &line, error)));
                }
                let number = |count: usize| count as u64;
                let counts = Counts {
                    added: number(changed.added),
                    replaced: number(changed.replaced),
                    deleted: number(changed.deleted),
                    ..Counts::default()
                };
                self.finish(&domain, &counts)
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
                    let value = json!({ "name": domain.network(), "vrf": domain.name(), "deleted": deleted });
                    terminal::print(&format!("{value:#}\n"))?;
                } else {
                    terminal::notice(&format!("{} forgotten\n", plural(deleted, "neighbour")));
                }
                Ok(ExitCode::SUCCESS)
            }
            (None, _) => neighbours::print(vec![domain], Arguments::selection(&words)?, self.json),
        }
    }

    fn only_reports(&self) -> bool {
        self.file.is_none() && self.words.first().is_none_or(|word| ["show", "list", "ls"].contains(&word.as_str()))
    }
}
