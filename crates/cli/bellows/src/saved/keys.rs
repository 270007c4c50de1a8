//! The keys of IPsec that commands have saved.
//!
//! They are in a file of their own, in a folder that is closed to others, as JSON: a line for each direction of a pair.
//! This process keeps what is said of them, and no key: each change reads the file again.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use bellows_inspect::control::{Reply, SavedKey};
use bellows_sys::private_file::{self, PrivateFileError};
use bellows_sys::{clock, private_folder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::refusal;
use crate::state_folder;

/// The type of the apps.
pub const ESP: &str = "esp";

/// The folder within the state folder.
const FOLDER: &str = "saved-keys";

/// The most keys, and the longest file.
const MAX_KEYS: usize = 10_000;
const MAX_FILE: usize = 8 << 20;

/// The first line of the file.
const HEADER: &[u8] = b"# Written by `bellows esp rekey --save`; these keys are used when the network starts.\n";

const DIRECTIONS: [&str; 2] = ["inbound", "outbound"];

/// An app, its pair, and the direction.
type PairPlace = (String, String, String);

/// What is said of a key.
struct KeyEntry {
    spi: u32,
    algorithm: String,
    saved_ns: u64,
    /// Why it could not be used when the network started.
    problem: Option<String>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLine {
    app: String,
    pair: String,
    direction: String,
    /// When it was saved, in nanoseconds since 1970.
    saved_ns: u64,
    /// The fingerprint of the key in the network file that it has replaced.
    instead_of: String,
    /// What the network file would have.
    keys: Value,
}

impl FileLine {
    fn read(text: &[u8]) -> Option<FileLine> {
        let line: FileLine = serde_json::from_slice(text).ok()?;
        let is_whole = line.keys["spi"].as_u64().is_some_and(|spi| u32::try_from(spi).is_ok());
        (is_whole && DIRECTIONS.contains(&line.direction.as_str())).then_some(line)
    }

    fn place(&self) -> PairPlace {
        (self.app.clone(), self.pair.clone(), self.direction.clone())
    }

    fn entry(&self) -> KeyEntry {
        KeyEntry {
            spi: self.keys["spi"].as_u64().unwrap_or_default() as u32,
            algorithm: self.keys["algorithm"].as_str().unwrap_or_default().to_owned(),
            saved_ns: self.saved_ns,
            problem: None,
        }
    }
}

/// A request that is saved.
enum SavedRequest {
    Rekey(Value),
    Forget { pair: String },
}

impl SavedRequest {
    fn read(request: &Value) -> Option<SavedRequest> {
        if request["rekey"].is_object() {
            return Some(SavedRequest::Rekey(request["rekey"].clone()));
        }
        let pair = request["forget"]["pair"].as_str()?.to_owned();
        Some(SavedRequest::Forget { pair })
    }
}

/// Keys that are saved no longer.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Forgotten keys")]
pub struct ForgottenKeys {
    /// The name of the pair.
    pair: String,
    /// The number of keys that are saved no longer.
    forgotten: usize,
}

/// The keys that are saved of a network.
pub struct SavedKeys {
    /// The file, or why there is none.
    file: Result<PathBuf, String>,
    entries: BTreeMap<PairPlace, KeyEntry>,
    /// Why the file cannot be read, which keeps it from being written.
    is_unreadable: Option<String>,
}

impl SavedKeys {
    /// Those of the network of this name, which are not read yet.
    pub fn of(name: &str) -> SavedKeys {
        let file = state_folder::find().map(|folder| folder.join(FOLDER).join(name));
        SavedKeys { file, entries: BTreeMap::new(), is_unreadable: None }
    }

    /// Whether a request changes what is saved here.
    pub fn are_meant(kind: Option<&str>, request: &Value) -> bool {
        kind.is_none_or(|kind| kind == ESP) && SavedRequest::read(request).is_some()
    }

    /// The file's name, for messages.
    pub fn file(&self) -> String {
        self.file.as_ref().map_or_else(|_| String::new(), |file| file.display().to_string())
    }

    /// The text of the file, which may not be there.
    fn text(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let Ok(file) = &self.file else { return Ok(Zeroizing::default()) };
        match private_file::read(file, MAX_FILE) {
            Ok(text) => Ok(text),
            Err(PrivateFileError::System(_, error)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Zeroizing::default())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Writes the file without some of its lines, and with others.
    fn write(&self, is_gone: impl Fn(&PairPlace) -> bool, new: &[FileLine]) -> Result<(), String> {
        let (file, folder) = super::writable(&self.file, self.is_unreadable.as_ref())?;
        if !private_folder::is_private(folder, rustix::process::geteuid().as_raw()) {
            let path = folder.display();
            return Err(format!("`{path}` is open to others than its user; close it with `chmod 700 {path}`"));
        }
        let before = self.text()?;
        let is_kept = |line: &[u8]| FileLine::read(line).is_none_or(|line| !is_gone(&line.place()));
        let new: Vec<Zeroizing<Vec<u8>>> =
            new.iter().map(|line| Zeroizing::new(serde_json::to_vec(line).expect("a line is JSON"))).collect();
        let kept = lines(&before).map(|(_, line)| line).filter(|line| is_kept(line));
        // One block of the final size at once: a vector that grows leaves copies behind.
        let more: usize = new.iter().map(|line| line.len() + 1).sum();
        let mut text = Zeroizing::new(Vec::with_capacity(HEADER.len() + before.len() + 1 + more));
        text.extend_from_slice(HEADER);
        for line in kept.chain(new.iter().map(|line| &line[..])) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        super::write(file, &text)
    }

    /// Has an app carry out a request, and saves what it changes. `ask` sends requests to the app.
    pub fn change(&mut self, app: Option<&str>, request: &Value, mut ask: impl FnMut(Value) -> Reply) -> Reply {
        let changed = match SavedRequest::read(request) {
            Some(SavedRequest::Rekey(rekey)) => self.rekey(rekey, &mut ask),
            Some(SavedRequest::Forget { pair }) => self.forget(app, &pair),
            None => return ask(request.clone()),
        };
        changed.unwrap_or_else(|refusal| *refusal)
    }

    fn rekey(&mut self, mut rekey: Value, ask: &mut impl FnMut(Value) -> Reply) -> Result<Reply, Box<Reply>> {
        if self.entries.len() + DIRECTIONS.len() > MAX_KEYS {
            let why = format!("at most {MAX_KEYS} keys can be saved; write some into the files that `key_file` names");
            return Err(refusal(true, format!("nothing was changed: {why}")));
        }
        // Whether the file can be written is known before anything changes.
        self.write(|_| false, &[]).map_err(|why| refusal(false, format!("nothing was changed: {why}")))?;
        rekey["save"] = json!(true);
        let mut reply = ask(json!({ "rekey": rekey }));
        let Reply::Answer { name, answer } = &mut reply else { return Ok(reply) };
        let instead_of = answer.as_object_mut().and_then(|answer| answer.remove("instead_of")).unwrap_or_default();
        let pair = answer["pair"].as_str().unwrap_or_default();
        let line = |direction: &str| {
            let mut keys = rekey[direction].take();
            if let Some(key) = keys["key"].as_str() {
                keys["key"] = json!(key.trim());
            }
            keys.is_object().then(|| FileLine {
                app: name.clone(),
                pair: pair.to_owned(),
                direction: direction.to_owned(),
                saved_ns: clock::unix_ns(),
                instead_of: instead_of[direction].as_str().unwrap_or_default().to_owned(),
                keys,
            })
        };
        let new: Vec<FileLine> = DIRECTIONS.into_iter().filter_map(line).collect();
        let is_gone = |place: &PairPlace| new.iter().any(|line| line.place() == *place);
        self.write(is_gone, &new)
            .map_err(|why| refusal(false, format!("the new keys are in use, but not saved: {why}")))?;
        self.entries.extend(new.iter().map(|line| (line.place(), line.entry())));
        Ok(reply)
    }

    /// Removes the keys of a pair from the file. Those in use stay.
    fn forget(&mut self, app: Option<&str>, pair: &str) -> Result<Reply, Box<Reply>> {
        let is_meant = |(its_app, its_pair, _): &PairPlace| its_pair == pair && app.is_none_or(|app| app == its_app);
        let mut apps: Vec<&String> = self.entries.keys().filter(|place| is_meant(place)).map(|(app, ..)| app).collect();
        apps.dedup();
        let [name] = apps[..] else {
            let problem = if apps.is_empty() { "no key is saved of" } else { "keys of several apps are saved for" };
            return Err(refusal(true, format!("{problem} the pair `{pair}`; `bellows show saved` lists them")));
        };
        let name = name.clone();
        self.write(is_meant, &[]).map_err(|why| refusal(false, format!("nothing was changed: {why}")))?;
        let before = self.entries.len();
        self.entries.retain(|place, _| !is_meant(place));
        let answer = ForgottenKeys { pair: pair.to_owned(), forgotten: before - self.entries.len() };
        Ok(Reply::Answer { name, answer: json!(answer) })
    }

    /// Reads what is saved, and has the apps use it. `ask` sends requests to the app of a name. Returns an error for each
    /// line that is wrong and each key that could not be used. None shows any of it.
    pub fn restore(&mut self, mut ask: impl FnMut(&str, Value) -> Reply) -> Vec<String> {
        let text = match self.text() {
            Ok(text) => text,
            Err(why) => {
                let error = format!("keys that were saved with `--save` are left out: {why}");
                self.is_unreadable = Some(why);
                return vec![error];
            }
        };
        let mut errors = Vec::new();
        let mut by_app: BTreeMap<String, Vec<FileLine>> = BTreeMap::new();
        for (number, line) in lines(&text) {
            match FileLine::read(line) {
                Some(line) => {
                    self.entries.insert(line.place(), line.entry());
                    by_app.entry(line.app.clone()).or_default().push(line);
                }
                None => errors.push(format!(
                    "{}:{number}: this is no saved key, and is left out; correct or remove the line",
                    self.file()
                )),
            }
        }
        drop(text);
        for (app, lines) in by_app {
            let places: Vec<PairPlace> = lines.iter().map(FileLine::place).collect();
            let saved = lines.into_iter().map(|line| {
                let FileLine { pair, direction, instead_of, keys, .. } = line;
                json!({ "pair": pair, "direction": direction, "keys": keys, "instead_of": instead_of })
            });
            let reply = ask(&app, json!({ "restore": saved.collect::<Vec<_>>() }));
            for (index, place) in places.into_iter().enumerate() {
                let why = match &reply {
                    Reply::Answer { answer, .. } => answer["problems"][index].as_str(),
                    Reply::Refused { message, .. } => Some(message.strip_prefix("error: ").unwrap_or(message)),
                    _ => Some("unexpected reply"),
                };
                let (Some(why), Some(entry)) = (why, self.entries.get_mut(&place)) else { continue };
                entry.problem = Some(why.to_owned());
                let (app, pair, direction) = place;
                errors.push(format!(
                    "the saved key of `{direction}` of the pair `{pair}` of `{app}` is left out: {why}; `bellows esp \
                     forget {pair} --app {app}` removes it"
                ));
            }
        }
        errors
    }

    /// The file, and what is said of the keys.
    pub fn list(&self) -> (Option<String>, Vec<SavedKey>) {
        let one = |((app, pair, direction), entry): (&PairPlace, &KeyEntry)| SavedKey {
            app: app.clone(),
            pair: pair.clone(),
            direction: direction.clone(),
            spi: entry.spi,
            algorithm: entry.algorithm.clone(),
            saved_unix_ns: entry.saved_ns,
            problem: entry.problem.clone(),
        };
        let file = self.file.as_ref().ok().map(|file| file.display().to_string());
        (file, self.entries.iter().map(one).collect())
    }
}

/// The lines of a text with their numbers, without those that are empty or comments.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let all = text.split(|byte| *byte == b'\n').enumerate().map(|(index, line)| (index + 1, line));
    all.filter(|(_, line)| !line.trim_ascii().is_empty() && !line.starts_with(b"#"))
}
