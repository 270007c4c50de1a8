//! Creating an app from its table in a network file.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellows_engine::{App, Status};
use bellows_sys::FileError;
use bellows_sys::capability::Set;
use bellows_sys::private_file::{self, PrivateFileError};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::bench::{BenchFiles, BenchSetup};
use crate::fusion::Fusion;
use crate::objects::{Change, Objects};
use crate::output::OutputSchema;
use crate::path_bases::{Bases, base_of};
use crate::resources::Resource;
use crate::text_file::open_text;
use crate::texts::{MAX_SECRET, Texts, text_mark};
use crate::wrong_file::WrongFile;

/// An app that a network file can name.
///
/// The doc comment of the [`Config`](Configure::Config) type is the app's manual, and the doc comments of its fields
/// describe the keys: `bellows apps NAME` prints them. Set a key's unit with
/// `#[schemars(extend("x-unit" = "packets"))]` and its default with `#[serde(default…)]`. Refuse unknown keys with
/// `#[serde(deny_unknown_fields)]`.
pub trait Configure: App {
    /// The type's name in network files: lower-case words joined by `-`.
    const NAME: &'static str;

    /// Whether `bellows show interfaces` lists the app although it has both inputs and outputs, as for a virtual
    /// machine's port. Apps that are linked on one side only are always listed.
    const INTERFACE: bool = false;

    /// What the app uses of the system's network.
    const SYSTEM: SystemAccess = SystemAccess::NONE;

    /// The schema of the app's status ([`App::status`]), which describes it in the reference of all JSON. An app of your
    /// own may have a status without one.
    const STATUS: Option<OutputSchema> = None;

    /// The apps whose work it does in one loop, if the loader is to put it in front of them.
    const FUSION: Option<Fusion> = None;

    /// The keys of its table. A reload compares the serialized form to find out whether the app changed.
    type Config: DeserializeOwned + Serialize + JsonSchema;

    /// Creates the app without side effects, because `check` calls this too. It may open and read an input file, but
    /// must close it again; no file is locked, kept open or written before [`App::start`].
    ///
    /// # Errors
    /// When a value is wrong.
    fn configure(config: Self::Config, context: &Context) -> Result<Self, SettingError>;

    /// Checks keys that refer to the app's outputs, for an app with outputs of any names. `outputs` are the names of the
    /// linked ones, in the order of the links.
    ///
    /// # Errors
    /// When a value does not fit the outputs.
    fn check_outputs(_config: &Self::Config, _outputs: &[&str]) -> Result<(), SettingError> {
        Ok(())
    }

    /// How to measure the app: the keys that a meaningful benchmark needs, or the reason why it has none.
    fn bench(_files: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys("")
    }

    /// The capabilities that it takes to open the app's interface again when it has disappeared. The process gives up
    /// all others when the network has started.
    fn capabilities(_config: &Self::Config) -> Set {
        Set::EMPTY
    }

    /// The files, sockets and network interfaces that the app will use. The loader checks that files are accessible and
    /// that no two apps conflict, so neither [`configure`](Configure::configure) nor [`App::start`] needs to.
    fn resources(_config: &Self::Config, _context: &Context) -> Vec<Resource> {
        Vec::new()
    }
}

/// What a type of app uses of the system that a service manager does not allow unless it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemAccess {
    /// Families of sockets. `AF_INET` is for requests about interfaces alone.
    pub families: &'static [&'static str],
    /// System calls beyond those of common services.
    pub calls: &'static [&'static str],
    /// Devices that it opens.
    pub devices: &'static [&'static str],
    /// Whether it locks memory.
    pub locks: bool,
}

impl SystemAccess {
    /// Nothing.
    pub const NONE: SystemAccess = SystemAccess { families: &[], calls: &[], devices: &[], locks: false };
}

/// A shared object that a network file can name: a table of addresses, of routes, of states.
///
/// Apps get it by its name, with [`Context::object`], and use it from the threads of all workers. A reload keeps an
/// object whose table has not changed, with its contents; apps that use a changed one are started anew.
///
/// As for [apps](Configure), the doc comment of the config is the manual.
pub trait SharedObject: Status + Sized {
    /// The type's name in network files: lower-case words joined by `-`.
    const NAME: &'static str;

    /// The schema of its status, as for [apps](Configure::STATUS).
    const STATUS: Option<OutputSchema> = None;

    /// The keys of its table.
    type Config: DeserializeOwned + Serialize + JsonSchema;

    /// Creates the object without side effects, because `check` calls this too.
    ///
    /// # Errors
    /// When a value is wrong.
    fn configure(config: Self::Config, context: &Context) -> Result<Self, SettingError>;

    /// Takes the place of the object of this name that a running network uses, and whose table or text files have
    /// changed. No control client changes that one meanwhile. By default nothing is taken over, and apps that use the
    /// object start anew.
    fn take_over(self, _running: &Arc<Self>) -> Succession<Self> {
        Succession::Object(self)
    }
}

/// What takes the place of a running object whose table has changed.
pub enum Succession<O> {
    /// Another object: the apps that use the running one start anew, with this one.
    Object(O),
    /// The running object goes on, and its apps with it; this changes it when the new network runs.
    Change(Change),
}

/// Information about the network file that an app's table is in.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The folder of the network file, to which relative paths are relative.
    pub folder: PathBuf,
    /// The app's name in the network.
    pub app: String,
    /// Whether the app is to put the code that it generates where `perf` looks it up in its map.
    pub for_perf: bool,
    /// Texts that come from elsewhere than the file of the table.
    bases: Bases,
    /// The folders of those that [`Context::path`] was called with.
    used_bases: RefCell<BTreeSet<PathBuf>>,
    /// The shared objects of the network.
    objects: Arc<Objects>,
    /// What the objects were made from that [`Context::object`] has returned, and what [`Context::read_text`] has read.
    used_objects: RefCell<String>,
    /// Whether [`Context::object`] was called for an object with errors.
    has_faulty_object: Cell<bool>,
    /// The files that [`Context::read_text`] and [`Context::read_secret`] were to read.
    texts: RefCell<Vec<PathBuf>>,
    /// The secrets that are in the table itself.
    secrets: RefCell<BTreeSet<(&'static str, Vec<String>)>>,
    /// The texts of the network's files.
    files: Texts,
    /// The warnings given to [`Context::warn`].
    warnings: RefCell<Vec<SettingError>>,
}

impl Context {
    /// The context of an app with this name. Its relative paths start at `folder`.
    pub fn new(folder: impl Into<PathBuf>, app: impl Into<String>) -> Context {
        Context { folder: folder.into(), app: app.into(), ..Context::default() }
    }

    /// Adds texts that come from elsewhere.
    pub(crate) fn with_bases(self, bases: Bases) -> Context {
        Context { bases, ..self }
    }

    /// Adds the shared objects of the network.
    pub(crate) fn with_objects(self, objects: &Arc<Objects>) -> Context {
        Context { objects: Arc::clone(objects), ..self }
    }

    /// Adds the texts of the network's files.
    pub(crate) fn with_texts(self, texts: &Texts) -> Context {
        Context { files: texts.clone(), ..self }
    }

    /// The texts of the network's files.
    pub(crate) fn files(&self) -> &Texts {
        &self.files
    }

    /// What the objects were made from that the app uses, and the texts.
    pub(crate) fn used_objects(&self) -> String {
        self.used_objects.take()
    }

    /// Whether the app names an object that has errors, so that it cannot be made.
    pub(crate) fn has_faulty_object(&self) -> bool {
        self.has_faulty_object.get()
    }

    /// Reports a value that is no error, but probably not what was meant, when the network is read.
    pub fn warn(&self, warning: SettingError) {
        self.warnings.borrow_mut().push(warning);
    }

    /// What was reported.
    pub fn warnings(&self) -> Vec<SettingError> {
        self.warnings.take()
    }

    /// The files of the texts that have been read so far.
    pub(crate) fn noted_texts(&self) -> Vec<PathBuf> {
        self.texts.borrow().clone()
    }

    /// Notes files whose texts are known without reading them here.
    pub(crate) fn note_texts(&self, paths: &[PathBuf]) {
        self.texts.borrow_mut().extend_from_slice(paths);
    }

    /// The files of the texts that the app has read, or could not read.
    pub(crate) fn texts(&self) -> Vec<PathBuf> {
        self.texts.take()
    }

    /// The secrets that the app has [noted](Context::note_secret). An app is made again without keys that were wrong, and
    /// notes the others again.
    pub(crate) fn secrets(&self) -> BTreeSet<(&'static str, Vec<String>)> {
        self.secrets.take()
    }

    /// Notes that the value of a key, at these steps into it, is a secret. There is a warning if others can read the file
    /// that has it.
    pub fn note_secret(&self, key: &'static str, steps: &[&str]) {
        let steps = steps.iter().map(|step| (*step).to_owned()).collect();
        self.secrets.borrow_mut().insert((key, steps));
    }

    /// The shared object that the value `name` of a key names. For a part of a compound app, objects of the compound come
    /// before those of the network.
    ///
    /// # Errors
    /// If the network has no object of this name and type.
    pub fn object<O: SharedObject>(&self, key: &'static str, name: &str) -> Result<Arc<O>, SettingError> {
        let name = self.objects.visible(&self.app, name);
        if self.objects.is_faulty(&name) {
            self.has_faulty_object.set(true);
        }
        let found = self.objects.get(&name, O::NAME);
        let (object, fingerprint) = found.map_err(|[message, help]| SettingError::at(key, message, help))?;
        self.used_objects.borrow_mut().push_str(&format!(" with {name}: {fingerprint}"));
        self.objects.note_use(&name);
        Ok(object)
    }

    /// What a fingerprint says of paths that are not relative to the folder of the table's file.
    pub(crate) fn used_bases(&self) -> String {
        let mark = |base: &PathBuf| match base.as_os_str().is_empty() {
            true => " with paths as set".to_owned(),
            false => format!(" with paths in {base:?}"),
        };
        self.used_bases.borrow().iter().map(mark).collect()
    }

    /// Resolves a path of the config: a path in a file is relative to that file's folder, also if it is passed to a part
    /// of the network in another file; a path given by `--set` is relative to the current directory.
    pub fn path(&self, path: &Path) -> PathBuf {
        if path.is_absolute() {
            return path.to_owned();
        }
        if let Some(base) = path.to_str().and_then(|path| base_of(&self.bases, path)) {
            self.used_bases.borrow_mut().insert(base.to_owned());
            return base.join(path);
        }
        self.folder.join(path)
    }

    /// Reads a text file that a key names. A reload starts the app anew if the text has changed, and `run --watch`
    /// reloads.
    ///
    /// # Errors
    /// If the file cannot be read, is longer than 1 MiB, or is not UTF-8.
    pub fn read_text(&self, key: &'static str, path: &Path) -> Result<String, SettingError> {
        self.read_text_up_to(key, path, MAX_TEXT)
    }

    /// Reads a text file as [`Context::read_text`] does, of up to `max` bytes.
    ///
    /// # Errors
    /// If the file cannot be read, is longer, or is not UTF-8.
    pub fn read_text_up_to(&self, key: &'static str, path: &Path, max: u64) -> Result<String, SettingError> {
        let path = self.path(path);
        self.texts.borrow_mut().push(path.clone());
        let name = path.display();
        let unreadable = |error: std::io::Error| {
            let FileError { message, help } = FileError::of("read", &path, &error, "give the path of a text file");
            SettingError::at(key, message, help)
        };
        let mut bytes = Vec::new();
        if let Some(text) = self.files.of(&path) {
            bytes.extend_from_slice(&text);
        } else {
            // Opening a pipe would wait for its writer.
            if !std::fs::metadata(&path).map_err(unreadable)?.is_file() {
                return Err(SettingError::at(key, format!("`{name}` is not a file"), "give the path of a text file"));
            }
            let text = open_text(&path).map_err(unreadable)?;
            text.take(max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
            if bytes.len() as u64 > max {
                let message = format!("`{name}` is longer than {} MiB", max >> 20);
                return Err(SettingError::at(key, message, "give the path of a shorter text file"));
            }
            self.files.keep(&path, &bytes);
        }
        self.used_objects.borrow_mut().push_str(&text_mark(&bytes));
        let not_text = |_| SettingError::at(key, format!("`{name}` is not UTF-8"), "give the path of a text file");
        String::from_utf8(bytes).map_err(not_text)
    }

    /// Reads a text file with a secret as [`Context::read_text`] does. The text is zeroed when it is dropped.
    ///
    /// # Errors
    /// If the file cannot be read, is longer than 4 KiB, or is not UTF-8; if it belongs to a user who is neither this one
    /// nor root, or others can read it.
    pub fn read_secret(&self, key: &'static str, path: &Path) -> Result<Zeroizing<String>, SettingError> {
        let path = self.path(path);
        self.texts.borrow_mut().push(path.clone());
        let refused = |error: PrivateFileError| SettingError::at(key, error.message(), error.help());
        let mut bytes = match self.files.of(&path) {
            Some(text) => Zeroizing::clone(&text),
            None => private_file::read(&path, MAX_SECRET).map_err(refused)?,
        };
        self.files.note_secret(&path, &bytes);
        self.used_objects.borrow_mut().push_str(&text_mark(&bytes));
        String::from_utf8(std::mem::take(&mut *bytes)).map(Zeroizing::new).map_err(|error| {
            drop(Zeroizing::new(error.into_bytes()));
            SettingError::at(key, format!("`{}` is not UTF-8", path.display()), "give the path of a text file")
        })
    }
}

/// The maximum length of a text that [`Context::read_text`] reads, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// A value that an app refuses: the key, the error, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingError {
    /// The key with the wrong value, or `None` for the whole table.
    pub key: Option<&'static str>,
    /// The error, as one sentence without a full stop.
    pub message: String,
    /// How to fix it, as one sentence without a full stop. May be empty.
    pub help: String,
    /// The place within the key's value, if it is known.
    pub part: Part,
    /// Whether something else is absent from the table that uses the value, or that it needs: then it is no mistake if
    /// that was wrong itself.
    pub is_absence: bool,
    /// The text file that the key names, if the mistakes are in there.
    pub file: Option<Box<WrongFile>>,
}

/// A place within the value of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Steps into the value, from the outside in: the name of an entry of a table, or the position of an item of a list.
    pub steps: Vec<String>,
    /// Bytes of the text, if the value there is text.
    pub range: Option<Range<u32>>,
}

impl SettingError {
    /// An error in the value of a key.
    pub fn at(key: &'static str, message: impl Into<String>, help: impl Into<String>) -> SettingError {
        SettingError { key: Some(key), ..SettingError::of_table(message, help) }
    }

    /// Mistakes in the text file that the value of a key names.
    pub fn in_file(key: &'static str, file: WrongFile) -> SettingError {
        let (message, help) = file.first();
        let error = SettingError::at(key, message, help);
        SettingError { file: Some(Box::new(file)), ..error }
    }

    /// An error in the table as a whole.
    pub fn of_table(message: impl Into<String>, help: impl Into<String>) -> SettingError {
        let (message, help) = (message.into(), help.into());
        SettingError { key: None, message, help, part: Part::default(), is_absence: false, file: None }
    }

    /// The same error about something else that is absent from the table: what uses the value, or what it needs.
    #[must_use]
    pub fn of_absence(self) -> SettingError {
        SettingError { is_absence: true, ..self }
    }

    /// The same error within an entry of a table. Of several steps into the key's value, the outermost comes last.
    #[must_use]
    pub fn in_entry(mut self, name: impl Into<String>) -> SettingError {
        self.part.steps.insert(0, name.into());
        self
    }

    /// The same error within an item of a list, as for [`SettingError::in_entry`]; the first one has the index 0.
    #[must_use]
    pub fn in_item(self, index: usize) -> SettingError {
        self.in_entry(index.to_string())
    }

    /// The same error at a part of the text at this place: a range of its bytes.
    #[must_use]
    pub fn in_text(mut self, range: Range<usize>) -> SettingError {
        let byte = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.part.range = Some(byte(range.start)..byte(range.end));
        self
    }
}
