//! What commands have changed with `--save`: routes and neighbours, in a file of the state folder, and keys of IPsec. They
//! are entered again when a network of the name starts.
//!
//! The file has a line for each: the routing domain, `route` or `neighbour`, and the command that enters it. It belongs to
//! the name of the network, and is written by its process alone, after each change.

mod keys;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use bellows_inspect::control::{Reply, SavedChanges, SavedEntry};
use bellows_router::vrf::requests::{
    BareVerb, Change, Changed, NeighbourLines, NeighbourPage, NeighbourSelection, Page, PrefixMatch, Request,
    RouteLines, Selection,
};
use bellows_sys::private_file::{self, PrivateFileError};
use bellows_sys::{atomic_file, remedy};
use bellows_vrf::RouteSpec;
use bellows_vrf::command::{NeighbourCommand, RouteCommand, Verb};
use bellows_vrf::route::IpPrefix;
use serde_json::{Value, json};

use crate::state_folder;

pub use keys::{ESP, ForgottenKeys, SavedKeys};

/// The folder within the state folder.
const FOLDER: &str = "saved";

/// The most entries, and the longest file.
const MAX_ENTRIES: usize = 10_000;
const MAX_FILE: usize = 4 << 20;

/// The first line of the file.
const HEADER: &str =
    "# Written by `bellows route` and `bellows neighbour` with `--save`; entered when the network starts.";

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EntrySubject {
    /// The route to a prefix with a metric.
    Route(IpPrefix, u32),
    /// A neighbour on an interface's link.
    Neighbour(IpAddr, String),
}

/// An entry: the command that enters it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SavedCommand {
    command: String,
    /// Why it could not be entered when the network started.
    problem: Option<String>,
}

impl SavedCommand {
    /// Whether the tables may lack it although it is saved: it was deleted without the option, or could not be entered.
    fn is_absent(&self) -> bool {
        self.problem.is_some() || !self.command.starts_with("del ")
    }
}

/// What one command changes.
enum SavedTarget {
    Route { prefix: IpPrefix, metric: Option<u32>, is_deleted: bool },
    Neighbour { address: IpAddr, interface: Option<String>, is_deleted: bool },
}

impl SavedTarget {
    fn of_route(text: &str, bare: BareVerb) -> Option<SavedTarget> {
        Some(match RouteCommand::parse(text, bare.into()).ok()? {
            RouteCommand::Add(route) | RouteCommand::Append(route) | RouteCommand::Replace(route) => {
                SavedTarget::Route { prefix: route.prefix, metric: Some(route.metric), is_deleted: false }
            }
            RouteCommand::Delete(known) => {
                SavedTarget::Route { prefix: known.prefix, metric: known.metric, is_deleted: true }
            }
        })
    }

    fn of_neighbour(text: &str, bare: BareVerb) -> Option<SavedTarget> {
        let NeighbourCommand { verb, address, interface, .. } = NeighbourCommand::parse(text, bare.into()).ok()?;
        Some(SavedTarget::Neighbour { address, interface, is_deleted: verb == Verb::Delete })
    }

    fn is_deleted(&self) -> bool {
        let (SavedTarget::Route { is_deleted, .. } | SavedTarget::Neighbour { is_deleted, .. }) = self;
        *is_deleted
    }

    /// Whether an entry is about the same.
    fn is(&self, key: &EntrySubject) -> bool {
        match (self, key) {
            (SavedTarget::Route { prefix, metric, .. }, EntrySubject::Route(known, its)) => {
                prefix == known && metric.is_none_or(|metric| metric == *its)
            }
            (SavedTarget::Neighbour { address, interface, .. }, EntrySubject::Neighbour(known, its)) => {
                address == known && interface.as_ref().is_none_or(|interface| interface == its)
            }
            _ => false,
        }
    }
}

/// The commands of a request, and what each of them changes; `None` for those that are wrong.
fn targets(request: &Value) -> Result<(bool, Vec<Option<SavedTarget>>), String> {
    match serde_json::from_value(request.clone()) {
        Ok(Request::Change(Change { commands, bare, force })) => {
            Ok((force, commands.iter().map(|text| SavedTarget::of_route(text, bare)).collect()))
        }
        Ok(Request::ChangeNeighbours(NeighbourLines { commands, bare })) => {
            Ok((false, commands.iter().map(|text| SavedTarget::of_neighbour(text, bare)).collect()))
        }
        _ => Err("only changes of routes and of neighbours, and new keys, can be saved; leave `--save` out".to_owned()),
    }
}

/// The file and its folder, which is made if it is not there.
fn writable<'f>(
    file: &'f Result<PathBuf, String>,
    is_unreadable: Option<&String>,
) -> Result<(&'f Path, &'f Path), String> {
    if let Some(why) = is_unreadable {
        return Err(format!("what is saved already cannot be read: {why}"));
    }
    let file = file.as_ref().map_err(|why| format!("{why}; set BELLOWS_STATE_DIR when the network is started"))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| not_written(folder, &error))?;
    Ok((file, folder))
}

/// Replaces the file.
fn write(file: &Path, text: &[u8]) -> Result<(), String> {
    atomic_file::write_durably(file, text, Some(0o600)).map_err(|error| not_written(file, &error))
}

fn not_written(path: &Path, error: &io::Error) -> String {
    format!("`{}` cannot be written: {error}; {}", path.display(), remedy(error, "check its permissions"))
}

/// An error that the client gets.
fn refusal(mistake: bool, message: impl fmt::Display) -> Box<Reply> {
    let message = if mistake { format!("error: {message}") } else { message.to_string() };
    Box::new(Reply::Refused { mistake, message })
}

/// The answer to a question about the tables.
fn answer(reply: Reply) -> Result<Value, Box<Reply>> {
    match reply {
        Reply::Answer { answer, .. } => Ok(answer),
        other => Err(Box::new(other)),
    }
}

/// The commands that enter what the tables have: those of commands, or static ones.
fn present(
    target: &SavedTarget,
    origin: &str,
    ask: &mut impl FnMut(Value) -> Reply,
) -> Result<BTreeMap<EntrySubject, String>, Box<Reply>> {
    match target {
        SavedTarget::Route { prefix, .. } => {
            let prefix = Some((PrefixMatch::Exact, prefix.to_string()));
            let select = Selection { prefix, origins: vec![origin.to_owned()], ..Selection::default() };
            let page = Page { select, text: Some(RouteLines::Plain), ..Page::default() };
            let answer = answer(ask(json!(Request::Routes(page))))?;
            let text = answer["text"].as_str().unwrap_or_default();
            let entry = |line: &str| {
                let line = line.strip_suffix(&format!(" proto {origin}")).unwrap_or(line);
                let route = RouteSpec::parse(line).ok()?;
                Some((EntrySubject::Route(route.prefix, route.metric), format!("replace {line}")))
            };
            Ok(text.lines().filter_map(entry).filter(|(key, _)| target.is(key)).collect())
        }
        SavedTarget::Neighbour { address, interface, .. } => {
            let select = NeighbourSelection { dev: interface.clone(), address: Some(*address) };
            let page = NeighbourPage { select, goes_on: false };
            let answer = answer(ask(json!(Request::Neighbours(page))))?;
            let entry = |one: &Value| {
                let (mac, interface) = (one["mac"].as_str()?, one["interface"].as_str()?);
                let command = format!("replace {address} lladdr {mac} dev {interface}");
                (one["protocol"] == origin).then(|| (EntrySubject::Neighbour(*address, interface.to_owned()), command))
            };
            Ok(answer["neighbours"].as_array().into_iter().flatten().filter_map(entry).collect())
        }
    }
}

/// What is saved of a network.
pub struct Saved {
    /// The file, or why there is none.
    file: Result<PathBuf, String>,
    /// By the routing domain and what they are about.
    entries: BTreeMap<(String, EntrySubject), SavedCommand>,
    /// Lines that are not right, which stay in the file.
    wrong: Vec<String>,
    /// Why the file cannot be read, which keeps it from being written.
    is_unreadable: Option<String>,
    pub keys: SavedKeys,
}

impl Saved {
    /// What is saved of the network of this name, and what is wrong with the file: an error for each line.
    pub fn read(name: &str) -> (Saved, Vec<String>) {
        let file = state_folder::find().map(|folder| folder.join(FOLDER).join(name));
        let keys = SavedKeys::of(name);
        let mut saved = Saved { file, entries: BTreeMap::new(), wrong: Vec::new(), is_unreadable: None, keys };
        let Ok(file) = saved.file.clone() else { return (saved, Vec::new()) };
        let text = private_file::read(&file, MAX_FILE).map_err(|error| match error {
            PrivateFileError::System(_, error) if error.kind() == io::ErrorKind::NotFound => None,
            error => Some(format!("{}; {}", error.message(), error.help())),
        });
        let text = match text.map(|text| String::from_utf8_lossy(&text).into_owned()) {
            Ok(text) => text,
            Err(None) => return (saved, Vec::new()),
            Err(Some(why)) => {
                saved.is_unreadable = Some(why.clone());
                return (saved, vec![format!("what was saved with `--save` is left out: {why}")]);
            }
        };
        let mut errors = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            match read_line(line) {
                Some((place, command)) => drop(saved.entries.insert(place, SavedCommand { command, problem: None })),
                None => {
                    errors.push(format!(
                        "{}:{}: `{line}` is no saved route or neighbour and is left out; correct or remove the line",
                        file.display(),
                        number + 1
                    ));
                    saved.wrong.push(line.to_owned());
                }
            }
        }
        (saved, errors)
    }

    /// The file's name, for messages.
    pub fn file(&self) -> String {
        self.file.as_ref().map_or_else(|_| String::new(), |file| file.display().to_string())
    }

    /// The lines of the file.
    fn lines(&self) -> impl Iterator<Item = String> {
        let line = |((domain, key), entry): (&(String, EntrySubject), &SavedCommand)| {
            let what = if matches!(key, EntrySubject::Route(..)) { "route" } else { "neighbour" };
            format!("{domain} {what} {}", entry.command)
        };
        self.entries.iter().map(line).chain(self.wrong.iter().cloned())
    }

    /// Writes the file.
    fn write(&self) -> Result<(), String> {
        let (file, _) = writable(&self.file, self.is_unreadable.as_ref())?;
        let text: String = std::iter::once(HEADER.to_owned()).chain(self.lines()).map(|line| line + "\n").collect();
        write(file, text.as_bytes())
    }

    /// Has a routing domain carry out a request, and saves what it changes. `ask` sends requests to the domain.
    pub fn change(&mut self, request: Value, mut ask: impl FnMut(Value) -> Reply) -> Reply {
        self.try_change(request, &mut ask).unwrap_or_else(|refusal| *refusal)
    }

    fn try_change(&mut self, request: Value, ask: &mut impl FnMut(Value) -> Reply) -> Result<Reply, Box<Reply>> {
        let (is_forced, targets) = targets(&request).map_err(|why| refusal(true, why))?;
        if self.entries.len() + targets.len() > MAX_ENTRIES {
            let why =
                format!("at most {MAX_ENTRIES} routes and neighbours can be saved; put more into the network file");
            return Err(refusal(true, format!("nothing was changed: {why}")));
        }
        // Whether the file can be written is known before anything changes.
        self.write().map_err(|why| refusal(false, format!("nothing was changed: {why}")))?;
        let known = |target: &Option<SavedTarget>| target.as_ref().is_some_and(SavedTarget::is_deleted);
        let mut before = BTreeMap::new();
        for (index, target) in targets.iter().enumerate().filter(|(_, target)| known(target)) {
            let Some(target) = target else { continue };
            before.insert(index, present(target, "static", ask)?);
        }
        let mut reply = ask(request);
        let Reply::Answer { name: domain, answer } = &mut reply else { return Ok(reply) };
        let mut changed: Changed = serde_json::from_value(answer.clone())
            .map_err(|error| refusal(false, format!("unexpected answer: {error}")))?;
        let domain = domain.clone();
        // What could not be entered when the network started is saved alone.
        if let ([Some(target)], [_]) = (&targets[..], &changed.errors[..])
            && target.is_deleted()
            && !self.forget(&domain, target, SavedCommand::is_absent).is_empty()
        {
            changed = Changed { deleted: 1, ..Changed::default() };
            *answer = json!(changed);
        }
        if !changed.errors.is_empty() && !is_forced {
            return Ok(reply);
        }
        let is_done = |index: &usize| changed.errors.iter().all(|error| error.index != *index);
        for (index, target) in targets.iter().enumerate().filter(|(index, _)| is_done(index)) {
            let Some(target) = target else { continue };
            let former = self.forget(&domain, target, |_| true);
            let mut now = present(target, "control", ask)?;
            if target.is_deleted() {
                now.retain(|key, _| former.contains(key));
            }
            if let Some(before) = before.remove(&index).filter(|before| !before.is_empty()) {
                let left = present(target, "static", ask)?;
                let gone = before.into_iter().filter(|(key, _)| !left.contains_key(key) && !now.contains_key(key));
                let gone: Vec<_> = gone.map(|(key, command)| (key, command.replacen("replace ", "del ", 1))).collect();
                now.extend(gone);
            }
            let entry = |(key, command)| ((domain.clone(), key), SavedCommand { command, problem: None });
            self.entries.extend(now.into_iter().map(entry));
        }
        match self.write() {
            Ok(()) => Ok(reply),
            Err(why) => Err(refusal(false, format!("the change is made, but not saved: {why}"))),
        }
    }

    /// Removes what a command changes, of those that are meant. Returns what they were about.
    fn forget(
        &mut self,
        domain: &str,
        target: &SavedTarget,
        is_meant: impl Fn(&SavedCommand) -> bool,
    ) -> BTreeSet<EntrySubject> {
        let is_gone = |(its, key): &(String, EntrySubject), entry: &SavedCommand| {
            its == domain && target.is(key) && is_meant(entry)
        };
        let gone = self.entries.iter().filter(|(place, entry)| is_gone(place, entry)).map(|((_, key), _)| key.clone());
        let gone = gone.collect();
        self.entries.retain(|place, entry| !is_gone(place, entry));
        gone
    }

    /// Enters what is saved. `ask` sends requests to the domain of a name. Returns an error for each that could not be
    /// entered.
    pub fn enter(&mut self, mut ask: impl FnMut(&str, Value) -> Reply) -> Vec<String> {
        let mut errors = Vec::new();
        for ((domain, key), entry) in &mut self.entries {
            let (commands, bare) = (vec![entry.command.clone()], BareVerb::Replace);
            let (what, request) = match key {
                EntrySubject::Route(..) => ("route", Request::Change(Change { commands, bare, force: false })),
                EntrySubject::Neighbour(..) => {
                    ("neighbour", Request::ChangeNeighbours(NeighbourLines { commands, bare }))
                }
            };
            let why = match ask(domain, json!(request)) {
                Reply::Answer { answer, .. } => answer["errors"][0]["message"].as_str().map(str::to_owned),
                Reply::Refused { message, .. } => Some(message.strip_prefix("error: ").unwrap_or(&message).to_owned()),
                other => Some(format!("unexpected reply: {other:?}")),
            };
            let Some(why) = why else { continue };
            let command = entry.command.split_once(' ').map_or("", |(_, rest)| rest);
            errors.push(format!(
                "the saved {what} `{command}` of `{domain}` is left out: {why}; `bellows {what} del {command} --save` \
                 removes it"
            ));
            entry.problem = Some(why);
        }
        errors
    }

    /// The file and the entries.
    pub fn list(&self) -> Reply {
        let entry = |((domain, key), entry): (&(String, EntrySubject), &SavedCommand)| SavedEntry {
            vrf: domain.clone(),
            what: if matches!(key, EntrySubject::Route(..)) { "route" } else { "neighbour" }.to_owned(),
            command: entry.command.clone(),
            problem: entry.problem.clone(),
        };
        let file = self.file.as_ref().ok().map(|file| file.display().to_string());
        let (keys_file, keys) = self.keys.list();
        Reply::Saved(SavedChanges { file, entries: self.entries.iter().map(entry).collect(), keys_file, keys })
    }
}

/// The place and the command of a line.
fn read_line(line: &str) -> Option<((String, EntrySubject), String)> {
    let (domain, rest) = line.split_once(' ')?;
    let (what, command) = rest.split_once(' ')?;
    let key = match what {
        "route" => match RouteCommand::parse(command, Verb::Replace).ok()? {
            RouteCommand::Add(route) | RouteCommand::Append(route) | RouteCommand::Replace(route) => {
                EntrySubject::Route(route.prefix, route.metric)
            }
            RouteCommand::Delete(known) => EntrySubject::Route(known.prefix, known.metric.unwrap_or_default()),
        },
        "neighbour" => {
            let NeighbourCommand { address, interface, .. } = NeighbourCommand::parse(command, Verb::Replace).ok()?;
            EntrySubject::Neighbour(address, interface?)
        }
        _ => return None,
    };
    Some(((domain.to_owned(), key), command.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        for line in [
            "router route replace 10.0.0.0/8 via 198.51.100.3 dev right",
            "router route replace 10.0.0.0/8 metric 5 nexthop via 198.51.100.3 dev right nexthop dev left",
            "router/vrf route del 198.18.0.0/15 via 198.51.100.3 dev right",
            "green neighbour replace 2001:db8::9 lladdr 04:00:00:00:00:09 dev right",
        ] {
            let (place, command) = read_line(line).unwrap_or_else(|| panic!("{line}"));
            let entries = BTreeMap::from([(place, SavedCommand { command, problem: None })]);
            let keys = SavedKeys::of("none");
            let wrong = vec!["x".to_owned()];
            let saved = Saved { file: Err(String::new()), entries, wrong, is_unreadable: None, keys };
            assert_eq!(saved.lines().collect::<Vec<_>>(), [line, "x"]);
        }
        for line in [
            "",
            "router",
            "router route",
            "router route replace",
            "router door replace 10.0.0.0/8 dev a",
            "router neighbour replace 192.0.2.7 lladdr 04:00:00:00:00:09",
        ] {
            assert_eq!(read_line(line), None, "{line}");
        }
    }
}
