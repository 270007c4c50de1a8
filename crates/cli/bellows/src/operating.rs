//! Requests to routing domains and other objects of running networks, and files of lines that are sent in batches.

use std::cell::Cell;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bellows_config::plain_text;
use bellows_inspect::control::{Connection, Reply, Request, ask};
use bellows_inspect::networks::{self, Access, State};
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use bellows_router::vrf::requests::{self, LineError, MAX_LINES};
use bellows_switch::mac_table;
use bellows_sys::FileError;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::NameOption;
use crate::command_error::CommandError;
use crate::terminal;
use crate::text::{count, plural, scaled};

/// The type of routing domains.
pub const VRF: &str = "vrf";

/// The time within which an answer is expected: a reload, or another client, may come first.
const PATIENCE: Duration = Duration::from_secs(120);

/// The maximum length of a line, bytes.
const MAX_LINE: usize = 64 << 10;

/// The number of bytes at which a batch is sent. With its quotes it must fit into a request.
const MAX_BATCH: usize = 256 << 10;

/// The interval between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The network of this name, or the only one. Says which it is if that is another user's and the name does not say so.
///
/// # Errors
/// Those of [`networks::pick`].
pub fn network(name: Option<&str>, access: Access) -> Result<RuntimeDir, CommandError> {
    let runtime_dir = networks::pick(name, access)?;
    if runtime_dir.is_foreign() && !name.is_some_and(|name| name.contains('/')) {
        terminal::notice(&format!("network {}\n", runtime_dir.name()));
    }
    Ok(runtime_dir)
}

/// A request to an app or object, which knows whether it changes anything there.
pub trait Ask: Serialize {
    /// What it does.
    fn access(&self) -> Access;
}

impl Ask for requests::Request {
    fn access(&self) -> Access {
        use requests::Request;
        match self {
            Request::Routes(_) | Request::LookUp(_) | Request::Fib {} | Request::Neighbours(_) => Access::Read,
            Request::Change(_)
            | Request::Flush(_)
            | Request::Stage(_)
            | Request::Swap(_)
            | Request::ChangeNeighbours(_)
            | Request::FlushNeighbours(_) => Access::Change,
        }
    }
}

impl Ask for mac_table::requests::Request {
    fn access(&self) -> Access {
        use mac_table::requests::Request;
        match self {
            Request::Addresses(_) => Access::Read,
            Request::Flush(_) => Access::Change,
        }
    }
}

/// An app or object of a running network that answers requests.
pub struct AnsweringApp {
    runtime_dir: RuntimeDir,
    connection: Option<Connection>,
    /// Its name, once it is known.
    name: Option<String>,
    kind: String,
    /// Whether changes are saved.
    saves: bool,
}

/// A routing domain of a running network.
pub struct Domain(AnsweringApp);

/// The arguments that choose a routing domain.
#[derive(Debug, Args)]
pub struct DomainArguments {
    #[command(flatten)]
    option: NameOption,
    /// The network's name among the words.
    #[arg(skip)]
    name: Option<String>,
    /// The routing domain, if the network has several: `vrf NAME` among the words means the same
    #[arg(long, value_name = "VRF")]
    vrf: Option<String>,
}

/// Words that can follow an action, and are no names of networks there.
const AFTER_ACTIONS: [&str; 13] = [
    "default",
    "blackhole",
    "unreachable",
    "prohibit",
    "exact",
    "root",
    "match",
    "all",
    "to",
    "dev",
    "via",
    "proto",
    "from",
];

impl DomainArguments {
    /// Takes the network's name out of the words, if it is the first of them: `route core`, `route show core`.
    /// Another user's network would change what a word means, and needs `--name`.
    pub fn take_name(&mut self, words: &mut Vec<String>) {
        let is_name = |word: &String| {
            let is_other = AFTER_ACTIONS.contains(&word.as_str()) || word.contains(['.', ':', '/']);
            !is_other && networks::pick(Some(word), Access::Change).is_ok()
        };
        if self.option.or(self.name.as_deref()).is_none() && words.first().is_some_and(is_name) {
            self.name = Some(words.remove(0));
        }
    }

    /// The domain. `vrf` is the name among the words.
    pub fn open(&self, vrf: Option<&str>, access: Access) -> Result<Domain, CommandError> {
        Domain::new(network(self.option.or(self.name.as_deref()), access)?, vrf.or(self.vrf.as_deref()))
    }
}

/// The words of `ip route` and `ip neighbour` with a value behind them, which may be any word: an interface can have the
/// name `via`.
const WITH_VALUE: [&str; 19] = [
    "dev", "via", "vrf", "metric", "weight", "proto", "protocol", "origin", "scope", "src", "pref", "from", "to",
    "lladdr", "nud", "table", "ref", "used", "probes",
];

/// The positions of words that are no values of others.
fn keys<'t>(words: impl Iterator<Item = &'t str>) -> impl Iterator<Item = (usize, &'t str)> {
    let mut words = words.enumerate();
    std::iter::from_fn(move || {
        let (at, word) = words.next()?;
        if WITH_VALUE.contains(&word) {
            words.next();
        }
        Some((at, word))
    })
}

/// The words of a line that are no values of others.
pub fn key_words(line: &str) -> impl Iterator<Item = &str> {
    keys(line.split_whitespace()).map(|(_, word)| word)
}

/// The value of a word in a line.
pub fn value_of<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    let (at, _) = keys(line.split_whitespace()).find(|(_, word)| *word == key)?;
    line.split_whitespace().nth(at + 1)
}

/// Takes a pair of words out, and returns the second one: `dev lan`.
pub fn take_pair(words: &mut Vec<String>, key: &str) -> Result<Option<String>, CommandError> {
    let found = keys(words.iter().map(String::as_str)).find(|(_, word)| *word == key);
    let Some((at, _)) = found else { return Ok(None) };
    if at + 1 == words.len() {
        return Err(CommandError::Usage(format!("`{key}` needs a value")));
    }
    words.remove(at);
    Ok(Some(words.remove(at)))
}

/// Takes the action out, which comes first. Without one, the lines of a file are added, or what there is is shown.
pub fn take_action(words: &mut Vec<String>, has_file: bool) -> String {
    match (words.is_empty(), has_file) {
        (true, true) => "add".to_owned(),
        (true, false) => "show".to_owned(),
        (false, _) => words.remove(0),
    }
}

impl AnsweringApp {
    /// The one of a name, or the only one of the type.
    pub fn new(runtime_dir: RuntimeDir, name: Option<&str>, kind: &str) -> Result<AnsweringApp, CommandError> {
        refuse_crashed(&runtime_dir)?;
        Ok(AnsweringApp {
            runtime_dir,
            connection: None,
            name: name.map(str::to_owned),
            kind: kind.to_owned(),
            saves: false,
        })
    }

    /// All apps and objects of some types.
    pub fn all(runtime_dir: &RuntimeDir, kinds: &[&str]) -> Result<Vec<AnsweringApp>, CommandError> {
        refuse_crashed(runtime_dir)?;
        let (apps, objects) = match ask(runtime_dir, &Request::Apps)? {
            Reply::Apps { apps, objects } => (apps, objects),
            other => return Err(CommandError::Failed(format!("unexpected reply: {other:?}"))),
        };
        let apps = apps.into_iter().map(|app| (app.app, app.kind));
        let named = objects.into_iter().map(|object| (object.object, object.kind)).chain(apps);
        let meant = named.filter(|(_, kind)| kinds.contains(&kind.as_str()));
        meant.map(|(name, kind)| AnsweringApp::new(runtime_dir.for_reading(), Some(&name), &kind)).collect()
    }

    /// Has changes saved, so that they are there again when the network starts.
    pub fn save(&mut self) {
        self.saves = true;
    }

    /// Its name, once it has answered.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The name of the network.
    pub fn network(&self) -> String {
        self.runtime_dir.name()
    }

    /// Has it answer a request.
    pub fn ask(&mut self, request: &impl Ask) -> Result<Value, CommandError> {
        let (kind, access) = (Some(self.kind.clone()), request.access());
        let save = self.saves && access == Access::Change;
        let request = Request::Object { name: self.name.clone(), kind, request: json!(request), save, access };
        let reply = match &mut self.connection {
            Some(connection) => connection.ask(&request, PATIENCE)?,
            None => {
                let (reply, connection) = Connection::open_within(&self.runtime_dir, &request, PATIENCE)?;
                self.connection = Some(connection);
                reply
            }
        };
        match reply {
            Reply::Answer { name, answer } => {
                self.name = Some(name);
                Ok(answer)
            }
            other => Err(CommandError::Failed(format!("unexpected reply: {other:?}"))),
        }
    }
}

impl Domain {
    /// The domain of a name, or the only one of the network.
    pub fn new(runtime_dir: RuntimeDir, name: Option<&str>) -> Result<Domain, CommandError> {
        Ok(Domain(AnsweringApp::new(runtime_dir, name, VRF)?))
    }

    /// All domains of a network, or the one of a name.
    pub fn all(runtime_dir: &RuntimeDir, name: Option<&str>) -> Result<Vec<Domain>, CommandError> {
        if name.is_some() {
            return Ok(vec![Domain::new(runtime_dir.for_reading(), name)?]);
        }
        let domains: Vec<Domain> = AnsweringApp::all(runtime_dir, &[VRF])?.into_iter().map(Domain).collect();
        if domains.is_empty() {
            return Err(CommandError::Usage(format!(
                "`{}` has no routing domain: no object of type `{VRF}`, and no `router`",
                runtime_dir.name()
            )));
        }
        Ok(domains)
    }

    /// Has changes saved, so that they are there again when the network starts.
    pub fn save(&mut self) {
        self.0.save();
    }

    /// The name of the object, once it has answered.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The name of the network.
    pub fn network(&self) -> String {
        self.0.network()
    }

    /// The names of both, once it has answered.
    pub fn names(&self) -> DomainNames {
        DomainNames { name: self.network(), vrf: self.name().to_owned() }
    }

    /// Has the domain answer a request.
    pub fn ask(&mut self, request: &requests::Request) -> Result<Value, CommandError> {
        self.0.ask(request)
    }
}

/// What the output of commands for one routing domain has in common.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(title = "Routing domain")]
pub struct DomainNames {
    /// The name of the network.
    pub name: String,
    /// That of the routing domain.
    pub vrf: String,
}

fn refuse_crashed(runtime_dir: &RuntimeDir) -> Result<(), CommandError> {
    if networks::state(runtime_dir) != State::Crashed {
        return Ok(());
    }
    let name = runtime_dir.name();
    Err(CommandError::Usage(format!(
        "`{name}` has crashed: its tables were in the memory of its process; \
         `bellows show {name}` shows its last counters"
    )))
}

/// A batch of lines.
#[derive(Debug, Default)]
pub struct LineBatch {
    /// The lines.
    pub lines: Vec<String>,
    /// The number of each in the file.
    pub numbers: Vec<u64>,
}

/// A file whose reader says how far it has come.
struct CountedFile {
    file: File,
    read: Rc<Cell<u64>>,
}

impl Read for CountedFile {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(to)?;
        self.read.set(self.read.get() + length as u64);
        Ok(length)
    }
}

/// A file of lines, plain or compressed with gzip, read in batches. Empty lines and those that begin with `#` do not count.
pub struct Lines {
    reader: Box<dyn BufRead>,
    name: String,
    number: u64,
    /// The length of the file, and how much of it has been read.
    length: Option<(u64, Rc<Cell<u64>>)>,
    /// Lines that were left out.
    pub skipped: u64,
    progress: Option<Instant>,
    is_at_end: bool,
}

impl Lines {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> Result<Lines, CommandError> {
        let is_shown = io::stderr().is_terminal();
        let of = |reader: Box<dyn BufRead>, name: String, length| Lines {
            reader,
            name,
            number: 0,
            length,
            skipped: 0,
            progress: is_shown.then(Instant::now),
            is_at_end: false,
        };
        if path == Path::new("-") {
            let name = "standard input".to_owned();
            let reader = plain_text(io::stdin())
                .map_err(|error| CommandError::Usage(format!("{name} cannot be read: {error}")))?;
            return Ok(of(reader, name, None));
        }
        let name = path.display().to_string();
        let unreadable = |error: io::Error| CommandError::Usage(FileError::reading(path, &error).to_string());
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(CommandError::Usage(format!("`{name}` is a folder, not a file of lines")));
        }
        let read = Rc::new(Cell::new(0));
        let counted = CountedFile { file, read: Rc::clone(&read) };
        let reader = plain_text(counted).map_err(unreadable)?;
        let length = metadata.is_file().then_some((metadata.len(), read));
        Ok(of(reader, name.clone(), length))
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next lines, those of `leave_out` not among them. `None` at the end.
    pub fn next_batch(&mut self, leave_out: impl Fn(&str) -> bool) -> Result<Option<LineBatch>, CommandError> {
        let mut batch = LineBatch::default();
        let mut bytes = 0;
        while batch.lines.len() < MAX_LINES && bytes < MAX_BATCH {
            let mut line = Vec::new();
            let mut reader = (&mut self.reader).take(MAX_LINE as u64 + 1);
            let length = reader
                .read_until(b'\n', &mut line)
                .map_err(|error| CommandError::Failed(format!("`{}` cannot be read: {error}", self.name)))?;
            if length == 0 {
                self.is_at_end = true;
                break;
            }
            self.number += 1;
            let place = |lines: &Lines| format!("{}:{}", lines.name, lines.number);
            if length > MAX_LINE {
                let message = format!("{}: the line is longer than {} KiB", place(self), MAX_LINE >> 10);
                return Err(CommandError::Usage(message));
            }
            let Ok(text) = String::from_utf8(line) else {
                return Err(CommandError::Usage(format!("{}: the line is not UTF-8", place(self))));
            };
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if leave_out(text) {
                self.skipped += 1;
                continue;
            }
            bytes += text.len();
            batch.lines.push(text.to_owned());
            batch.numbers.push(self.number);
        }
        Ok((!batch.lines.is_empty() || !self.is_at_end).then_some(batch))
    }

    /// Shows how far the file has been read, if somebody is looking.
    pub fn show_progress(&mut self, done: u64) {
        if self.progress.is_none_or(|shown| shown.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        self.progress = Some(Instant::now());
        let share = self.length.as_ref().filter(|(length, _)| *length > 0);
        let share = share.map(|(length, read)| format!("{:3.0} % ", 100.0 * read.get() as f64 / *length as f64));
        terminal::show_status(&format!("{}{} routes", share.unwrap_or_default(), scaled(done as f64)));
    }

    /// Removes the line that shows the progress.
    pub fn clear_progress(&self) {
        if self.progress.is_some() {
            terminal::clear_status();
        }
    }

    /// The text of errors in lines of a batch.
    pub fn render(&self, batch: &LineBatch, errors: &[LineError]) -> String {
        let one = |error: &LineError| {
            let place = batch.numbers.get(error.index).map_or_else(String::new, u64::to_string);
            render(&format!("{}:{place}: ", self.name), batch.lines.get(error.index).map_or("", |line| line), error)
        };
        errors.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}

/// The text of an error in a line, which is underlined.
pub fn render(place: &str, line: &str, error: &LineError) -> String {
    let LineError { message, help, range: (start, end), .. } = error;
    let mut text = format!("error: {place}{message}\n");
    let (start, end) = (line.floor_char_boundary(*start), line.floor_char_boundary(*end));
    let before = line[..start.min(line.len())].chars().count();
    let marked = line.get(start..end).map_or(0, |part| part.chars().count()).max(1);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  |\n  | {line}\n  | {}{}", " ".repeat(before), "^".repeat(marked));
    if !help.is_empty() {
        let _ = writeln!(text, "  |\n  = help: {help}");
    }
    sanitize(&text)
}

/// Counts of a file of lines.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
#[schemars(title = "Counts of lines")]
pub struct LineCounts {
    /// The number of routes or neighbours that are new.
    pub added: u64,
    /// The number of those that are in the place of others.
    pub replaced: u64,
    /// The number of those that are gone.
    pub deleted: u64,
    /// Lines that were left out: routes that follow from interfaces and neighbours, and neighbours without an Ethernet
    /// address.
    pub skipped: u64,
    /// Lines that were wrong, and were left out because of `--force`.
    pub failed: u64,
}

impl LineCounts {
    /// The lines that were carried out.
    pub fn done(&self) -> u64 {
        self.added + self.replaced + self.deleted
    }

    /// The counts as a sentence about these things.
    pub fn sentence(&self, noun: &str) -> String {
        let mut parts = vec![format!("{} added", plural(self.added, noun))];
        let more = [
            (self.replaced, "replaced"),
            (self.deleted, "deleted"),
            (self.skipped, "left out"),
            (self.failed, "with errors"),
        ];
        parts.extend(
            more.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{} {what}", count(*number))),
        );
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_testkit::scratch::scratch;

    #[test]
    fn names_of_interfaces_may_be_words_of_the_language() {
        for (line, key, value, rest) in [
            ("show dev vrf vrf green", "vrf", Some("green"), "show dev vrf"),
            ("show dev via via 192.0.2.1", "via", Some("192.0.2.1"), "show dev via"),
            ("add 10.0.0.0/8 via inet6 fe80::1 dev vrf", "vrf", None, "add 10.0.0.0/8 via inet6 fe80::1 dev vrf"),
            ("show via 192.0.2.1 dev dev", "dev", Some("dev"), "show via 192.0.2.1"),
        ] {
            let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(value_of(line, key), value);
            assert_eq!(take_pair(&mut words, key).unwrap().as_deref(), value, "{line}");
            assert_eq!(words.join(" "), rest);
        }
        let mut words = vec!["show".to_owned(), "dev".to_owned()];
        assert!(take_pair(&mut words, "dev").unwrap_err().to_string().contains("`dev` needs a value"));
    }

    #[test]
    fn lines_come_in_batches_with_their_numbers() {
        let folder = scratch();
        let path = folder.path().join("routes");
        let lines: String = (0..2 * MAX_LINES).map(|number| format!("{number}\n# a comment\n\n")).collect();
        std::fs::write(&path, lines).unwrap();
        let mut lines = Lines::open(&path).unwrap();
        let first = lines.next_batch(|text| text == "1").unwrap().unwrap();
        assert_eq!((first.lines.len(), &first.numbers[..2], lines.skipped), (MAX_LINES, &[1, 7][..], 1));
        assert_eq!(first.lines[1], "2");
        assert_eq!(lines.next_batch(|_| false).unwrap().unwrap().lines.len(), MAX_LINES - 1);
        assert!(lines.next_batch(|_| false).unwrap().is_none());
    }

    #[test]
    fn what_is_no_line_is_told_with_its_number() {
        let folder = scratch();
        let path = folder.path().join("routes");
        for (bytes, said) in
            [(b"a\n\xff\n".to_vec(), ":2: the line is not UTF-8"), (vec![b'x'; MAX_LINE + 1], ":1: the line is longer")]
        {
            std::fs::write(&path, bytes).unwrap();
            let error = Lines::open(&path).unwrap().next_batch(|_| false).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert!(Lines::open(folder.path()).err().unwrap().to_string().contains("is a folder"));
        assert!(Lines::open(&folder.path().join("none")).err().unwrap().to_string().contains("cannot read `"));
    }

    #[test]
    fn the_wrong_part_of_a_line_is_underlined() {
        let error = LineError { index: 0, message: "wrong".to_owned(), help: "right it".to_owned(), range: (3, 5) };
        let text = render("a:7: ", "é bcd", &error);
        assert_eq!(text, "error: a:7: wrong\n  |\n  | é bcd\n  |   ^^\n  |\n  = help: right it\n");
        let beyond = LineError { range: (90, 99), ..error };
        assert!(render("", "", &beyond).contains("^"));
    }
}
