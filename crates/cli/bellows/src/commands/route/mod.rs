//! `bellows route`.

pub mod batch;
pub mod query;

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_config::nearest;
use bellows_inspect::networks::Access;
use bellows_router::vrf::requests::{BareVerb, Change, Changed, Page, Request, Selection};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::command_error::CommandError;
use crate::operating::{self, Domain, DomainArguments, DomainNames, take_action, take_pair};
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Show and change the routes of a running network
///
/// The words are those of `ip route`; docs/router.md explains the actions with examples.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, visible_alias = "r")]
pub struct Arguments {
    /// add, append, replace, del, replace-all, show, lookup or flush [default: show], then what `ip route` writes behind it
    #[arg(value_name = "ACTION", long_help = ACTIONS)]
    words: Vec<String>,
    #[command(flatten)]
    domain: DomainArguments,
    /// Read a route or a command from each line of a file; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Go on after lines with errors, which are left out
    #[arg(long, requires = "file")]
    force: bool,
    /// Show only routes of this family
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Show only routes of this family
    #[arg(short = '6')]
    ipv6: bool,
    /// Show only the number of routes
    #[arg(long, conflicts_with = "json")]
    count: bool,
    /// Show at most this many routes
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    /// Show the routes behind those to this prefix
    #[arg(long, value_name = "PREFIX")]
    after: Option<String>,
    /// Save the change, so that it is there again after a restart of the network
    #[arg(long)]
    save: bool,
    /// Print JSON (see docs/json.md)
    #[arg(short, long)]
    json: bool,
}

const ACTIONS: &str = "What to do:
  add ROUTE
      enter a route; there must be none to the prefix with its metric
  append ROUTE
      add next hops to the route to the prefix with its metric
  replace ROUTE
      enter a route, in place of one
  del ROUTE
      remove the best route to the prefix that has what is given: a prefix alone, or more
  replace-all
      replace all routes by those of a file, at once
  show [exact|root|match PREFIX] [dev INTERFACE] [via ADDRESS] [proto ORIGIN]
      print routes [default: those of the network file, of commands and of Linux]; ORIGIN is static, control, kernel, connected, neighbour, all, or who entered the route in Linux, such as bgp
  lookup ADDRESS [from ADDRESS]
      print the route of an address, where it leads, and the neighbour's state
  flush all|(as for show)
      remove routes";

const EXAMPLES: &str = "Examples:
  bellows route add 198.51.100.0/24 via 192.0.2.1 dev lan
  bellows route replace default nexthop via 192.0.2.1 nexthop via 192.0.2.9
  bellows route show root 10.0.0.0/8 via 192.0.2.1
  bellows route lookup 198.51.100.7
  bellows route show > routes.txt; bellows route replace-all -f routes.txt
  ip route | bellows route replace -f -";

/// The words that an action can be.
const NAMES: [&str; 14] = [
    "add",
    "append",
    "replace",
    "del",
    "delete",
    "replace-all",
    "show",
    "list",
    "ls",
    "lookup",
    "get",
    "flush",
    "route",
    "vrf",
];

impl Arguments {
    /// Which routes the words behind an action mean.
    fn selection(&self, mut words: Vec<String>) -> Result<Selection, CommandError> {
        let mut select = Selection {
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Some(4),
                (_, true) => Some(6),
                _ => None,
            },
            ..Selection::default()
        };
        select.dev = take_pair(&mut words, "dev")?;
        if let Some(text) = take_pair(&mut words, "via")? {
            let wrong = |_| CommandError::Usage(format!("`{text}` is not the address of a router"));
            select.via = Some(text.parse().map_err(wrong)?);
        }
        for key in ["proto", "protocol", "origin"] {
            if let Some(origin) = take_pair(&mut words, key)? {
                select.origins = if origin == "all" {
                    bellows_router::vrf::requests::all_origins()
                } else {
                    origin.split(',').map(str::to_owned).collect()
                };
            }
        }
        query::select_prefix(&mut select, &words)?;
        Ok(select)
    }

    /// Carries out one command.
    fn change(&self, domain: &mut Domain, line: String) -> Result<ExitCode, CommandError> {
        let change = Change { commands: vec![line.clone()], bare: BareVerb::Add, force: false };
        let answer = domain.ask(&Request::Change(change))?;
        let changed: Changed = serde_json::from_value(answer)
            .map_err(|error| CommandError::Failed(format!("unexpected answer: {error}")))?;
        if let Some(error) = changed.errors.first() {
            return Err(CommandError::Diagnosed(operating::render("", &line, error)));
        }
        if self.json {
            terminal::print(&format!("{:#}\n", json!(ChangedRoute { domain: domain.names(), changed })))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn flush(&self, domain: &mut Domain, words: Vec<String>) -> Result<ExitCode, CommandError> {
        let is_all = words == ["all"];
        let select = self.selection(if is_all { Vec::new() } else { words })?;
        if !is_all && select == Selection::default() {
            let message = "`flush` needs to know which routes: give conditions as for `show`, or `all`";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let (mut deleted, mut after) = (0, None);
        loop {
            let page = Page { select: select.clone(), after: after.take(), ..Page::default() };
            let answer = domain.ask(&Request::Flush(page))?;
            deleted += answer["deleted"].as_u64().unwrap_or_default();
            after = serde_json::from_value(answer["next"].clone()).unwrap_or_default();
            if after.is_none() {
                break;
            }
        }
        if self.json {
            terminal::print(&format!("{:#}\n", json!(Flushed { domain: domain.names(), deleted })))?;
        } else {
            terminal::notice(&format!("{} deleted\n", crate::text::plural(deleted, "route")));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The change of a route.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Changed route", extend("includes" = ["Routing domain"]))]
pub struct ChangedRoute {
    #[serde(flatten)]
    domain: DomainNames,
    /// What has changed.
    changed: Changed,
}

/// What was flushed.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Flushed", extend("includes" = ["Routing domain"]))]
pub struct Flushed {
    #[serde(flatten)]
    pub domain: DomainNames,
    /// The number of routes or neighbours that were removed.
    pub deleted: u64,
}

impl Execute for Arguments {
    const READS: &'static [&'static str] =
        &["route NAME", "route show NAME", "route NAME show", "route lookup 192.0.2.1 -n NAME"];
    const CHANGES: &'static [&'static str] = &[
        "route flush all -n NAME",
        "route add 192.0.2.0/24 blackhole -n NAME",
        "route append 192.0.2.0/24 via 198.51.100.1 -n NAME",
        "route replace 192.0.2.0/24 blackhole -n NAME",
        "route del 192.0.2.0/24 -n NAME",
        "route add 192.0.2.0/24 blackhole --save -n NAME",
        "route add -f FILE -n NAME",
        "route replace-all -f FILE -n NAME",
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
            "append" => Some(BareVerb::Append),
            "replace" => Some(BareVerb::Replace),
            "del" | "delete" => Some(BareVerb::Delete),
            _ => None,
        };
        let changes = bare.is_some() || matches!(&*action, "replace-all" | "flush");
        let is_known = changes || matches!(&*action, "show" | "list" | "ls" | "lookup" | "get");
        if !is_known {
            let near = nearest(&action, NAMES).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let known = "add, append, replace, del, replace-all, show, lookup and flush";
            return Err(CommandError::Usage(format!("`{action}` is not an action{near}; there are {known}")));
        }
        let takes_file = bare.is_some() || action == "replace-all";
        if self.file.is_some() && (!takes_file || !words.is_empty()) {
            let message =
                format!("`--file` is for add, append, replace, del and replace-all alone, not for `{action}`");
            let words = words.join(" ");
            let message = if takes_file { format!("the route is in the file: leave out `{words}`") } else { message };
            return Err(CommandError::Usage(message));
        }
        let access = if changes { Access::Change } else { Access::Read };
        if self.save && bare.is_none() {
            let message = format!("`--save` is for add, append, replace and del, not for `{action}`");
            return Err(CommandError::Usage(message));
        }
        let mut domain = self.domain.open(vrf.as_deref(), access)?;
        if self.save {
            domain.save();
        }
        match (&*action, bare, &self.file) {
            (_, Some(bare), Some(file)) => batch::change(&mut domain, file, bare, self.force, self.json),
            ("replace-all", _, Some(file)) => batch::replace_all(&mut domain, file, self.json),
            ("replace-all", ..) => {
                Err(CommandError::Usage("`replace-all` needs the routes: give a file with `-f FILE`".to_owned()))
            }
            (verb, Some(_), None) => self.change(&mut domain, format!("{verb} {}", words.join(" "))),
            ("flush", ..) => self.flush(&mut domain, words),
            ("lookup" | "get", ..) => query::look_up(&mut domain, words, self.json),
            _ => {
                let select = query::usual(self.selection(words)?);
                let after = self.after.as_deref().map(|prefix| (prefix.to_owned(), u32::MAX));
                query::show(&mut domain, select, after, self.limit, self.count, self.json)
            }
        }
    }

    fn only_reports(&self) -> bool {
        let changes = ["add", "append", "replace", "del", "delete", "replace-all", "flush"];
        self.file.is_none() && !self.words.iter().any(|word| changes.contains(&word.as_str()))
    }
}
