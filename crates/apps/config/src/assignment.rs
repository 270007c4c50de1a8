//! Writes an assignment of apps to workers into network files, whose comments and order stay.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bellows_engine::MAIN;
use bellows_sys::FileError;
use bellows_sys::atomic_file::Replacement;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value, value};

use crate::diagnostics::{Diagnostics, quoted};
use crate::source::{FileReader, Overrides, PART, setting_keys};

/// Apps on workers, and workers on processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The worker of each app, by the app's name.
    pub apps: BTreeMap<String, String>,
    /// The workers in use, and their processors; without one, what the file says stays. The first worker is `main`.
    pub workers: BTreeMap<String, Option<usize>>,
}

/// The reason why an assignment cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum AssignError {
    /// The text of a running network is not that of its files.
    #[error("{0} or a file that it includes has changed since the network read it; reload the network first")]
    Changed(String),
    /// A setting of the command line determines a value.
    #[error("the network was started with `{setting}`, which would contradict {wanted}; start it without this setting")]
    Set {
        /// The setting: `--set KEY=VALUE`.
        setting: String,
        /// The value of the assignment.
        wanted: String,
    },
    /// A value in the file is a variable.
    #[error("{file}: {key} is {written}, which has a variable; write {wanted} by hand, or replace the variable first")]
    Variable {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// Its value as written.
        written: String,
        /// The value of the assignment.
        wanted: String,
    },
    /// No file has the table of an app.
    #[error("no file has the table `[apps.{0}]`")]
    NoTable(String),
    /// A file is not TOML.
    #[error("{0}: {1}")]
    Syntax(String, String),
    /// A file cannot be written.
    #[error("{}", FileError::writing(Path::new(.0), .1))]
    Write(String, io::Error),
}

/// A file of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    path: PathBuf,
    text: String,
}

/// The files of a network as they are: the network file and all that it includes.
#[derive(Clone, Debug)]
pub struct NetworkFiles {
    files: Vec<File>,
}

impl NetworkFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// If the network file cannot be read.
    pub fn read(path: &Path) -> Result<NetworkFiles, Diagnostics> {
        let overrides = Overrides::default();
        let mut reader = FileReader::new(&overrides);
        reader.file(path, None);
        let FileReader { diagnostics, .. } = reader;
        if diagnostics.sources.is_empty() {
            return Err(diagnostics);
        }
        // A file that cannot be read has no source. The comparison with the running network's text finds that.
        let texts = diagnostics.sources.into_iter().map(|source| source.text);
        let files = diagnostics.files.into_iter().zip(texts).map(|(path, text)| File { path, text }).collect();
        Ok(NetworkFiles { files })
    }

    /// The settings of the command line in the text of a running network, such as `apps.capture.worker=disk`.
    ///
    /// # Errors
    /// If the text is not that of these files.
    pub fn settings(&self, running: &str) -> Result<Vec<String>, AssignError> {
        let name = || self.files[0].path.display().to_string();
        self.rest(running).map(settings).ok_or_else(|| AssignError::Changed(name()))
    }

    /// What follows the files in the text of a running network.
    fn rest<'t>(&self, running: &'t str) -> Option<&'t str> {
        let (first, included) = self.files.split_first()?;
        let mut rest = running.strip_prefix(first.text.as_str())?;
        for file in included {
            // Paths depend on the working directory, so the name of an included file does not matter.
            let (_, after) = rest.strip_prefix("\n# ")?.split_once('\n')?;
            rest = after.strip_prefix(file.text.as_str())?;
        }
        // Files of parts follow the settings. They are not edited: the network file sets the workers of parts.
        let rest = rest.split_once(&format!("\n{PART}")).map_or(rest, |(settings, _)| settings);
        (rest.is_empty() || rest.starts_with(SETTING)).then_some(rest)
    }

    /// The files that change, with their new texts.
    ///
    /// # Errors
    /// If a setting contradicts the assignment, or a value cannot be edited.
    pub fn assigned(
        &self,
        assignment: &Assignment,
        settings: &[String],
    ) -> Result<Vec<(PathBuf, String)>, AssignError> {
        settings.iter().try_for_each(|setting| agrees(setting, assignment))?;
        let name = |file: &File| file.path.display().to_string();
        let parse = |file: &File| {
            let parsed = file.text.parse::<DocumentMut>();
            parsed.map_err(|error| AssignError::Syntax(name(file), error.message().to_owned()))
        };
        let documents = self.files.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let mut editor = Editor { names: self.files.iter().map(name).collect(), documents };
        let is_alone = assignment.workers.len() <= 1;
        for (app, worker) in &assignment.apps {
            editor.app(app, worker, is_alone)?;
        }
        for (worker, cpu) in &assignment.workers {
            editor.worker(worker, *cpu)?;
        }
        editor.remove_other_workers(assignment);
        let texts = editor.documents.iter().map(DocumentMut::to_string);
        let edited = self.files.iter().zip(texts).filter(|(file, text)| file.text != *text);
        Ok(edited.map(|(file, text)| (file.path.clone(), text)).collect())
    }

    /// Writes new texts. Each file is replaced in one step, and none unless all texts could be stored.
    ///
    /// # Errors
    /// If a file cannot be written, or is not as it was read any more.
    pub fn write(&self, edited: &[(PathBuf, String)]) -> Result<(), AssignError> {
        for file in self.files.iter().filter(|file| edited.iter().any(|(path, _)| *path == file.path)) {
            if fs::read(&file.path).ok().as_deref() != Some(file.text.as_bytes()) {
                return Err(AssignError::Changed(file.path.display().to_string()));
            }
        }
        let mut stored = Vec::new();
        for (path, text) in edited {
            let failed = |error| AssignError::Write(path.display().to_string(), error);
            stored.push((store(path, text).map_err(failed)?, failed));
        }
        stored.into_iter().try_for_each(|(new, failed)| new.put().map_err(failed))
    }
}

/// Stores a text beside a file that it is to replace.
fn store(path: &Path, text: &str) -> io::Result<Replacement> {
    // A link to the file stays one.
    let target = fs::canonicalize(path)?;
    // A file that may not be written is not replaced either.
    OpenOptions::new().write(true).open(&target)?;
    let mut new = Replacement::create(&target, Some(fs::metadata(&target)?.permissions().mode()))?;
    new.file().write_all(text.as_bytes())?;
    new.file().sync_all()?;
    Ok(new)
}

/// The start of a setting in a network's text.
const SETTING: &str = "\n# --set ";

/// The settings at the end of a network's text. Further lines of a setting begin as comments do.
fn settings(rest: &str) -> Vec<String> {
    let settings = rest.split(SETTING).skip(1);
    settings.map(|setting| setting.trim_end_matches('\n').replace("\n# ", "\n")).collect()
}

/// Whether a setting of the command line leaves an assignment as it is.
fn agrees(setting: &str, assignment: &Assignment) -> Result<(), AssignError> {
    let keys = setting_keys(setting).unwrap_or_default();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let set = setting.split_once('=').map_or("", |(_, value)| value.trim().trim_matches(['"', '\'']));
    let cpu = |worker: &str| assignment.workers.get(worker).copied().flatten().map(|cpu| cpu.to_string());
    let wanted = match keys[..] {
        ["apps", ref names @ .., "worker"] => part_name(names).and_then(|app| assignment.apps.get(&app).cloned()),
        ["workers", worker, "cpu"] => cpu(worker),
        ["engine", "cpu"] => cpu(MAIN),
        _ => None,
    };
    // Without a value, the key is removed.
    let is_main = set.is_empty() && wanted.as_deref() == Some(MAIN);
    match wanted {
        Some(wanted) if wanted != set && !is_main => {
            let wanted = format!("{} = {wanted}", keys.join("."));
            Err(AssignError::Set { setting: format!("--set {setting}"), wanted })
        }
        _ => Ok(()),
    }
}

/// The full name of an app: of `router` and `parts`, `lookup`, it is `router/lookup`.
fn part_name(names: &[&str]) -> Option<String> {
    let (first, rest) = names.split_first()?;
    let parts = rest.chunks(2).map(|pair| if let ["parts", part] = pair { Some(*part) } else { None });
    let names = std::iter::once(Some(*first)).chain(parts).collect::<Option<Vec<&str>>>()?;
    Some(names.join("/"))
}

/// The files of a network, being edited.
struct Editor {
    names: Vec<String>,
    documents: Vec<DocumentMut>,
}

impl Editor {
    /// The table of this name in a table of the top level, and the file that has it.
    fn table(&mut self, group: &str, name: &str) -> Option<(&str, &mut dyn TableLike)> {
        let mut found = self.names.iter().zip(&mut self.documents).filter_map(|(file, document)| {
            let table = document.get_mut(group)?.as_table_like_mut()?.get_mut(name)?.as_table_like_mut()?;
            Some((file.as_str(), table))
        });
        found.next()
    }

    /// Sets the worker of an app. `is_alone` says whether there is only one worker.
    fn app(&mut self, app: &str, worker: &str, is_alone: bool) -> Result<(), AssignError> {
        if self.table("apps", app).is_none() {
            return self.part(app, worker, is_alone);
        }
        let (file, table) = self.table("apps", app).ok_or_else(|| AssignError::NoTable(app.to_owned()))?;
        // An app without the key runs on the first worker.
        if worker == MAIN && table.get("worker").is_none() {
            return Ok(());
        }
        set(table, file, &format!("apps.{app}"), "worker", worker.into())
    }

    /// Sets the worker of a part, in the table of its compound app.
    fn part(&mut self, app: &str, worker: &str, is_alone: bool) -> Result<(), AssignError> {
        let no_table = || AssignError::NoTable(app.to_owned());
        let splits = app.match_indices('/').map(|(at, _)| app.split_at(at));
        let compound = splits.rev().find(|(compound, _)| self.table("apps", compound).is_some());
        let (compound, parts) = compound.ok_or_else(no_table)?;
        let (file, mut table) = self.table("apps", compound).ok_or_else(no_table)?;
        let (file, mut path) = (file.to_owned(), format!("apps.{compound}"));
        let mut has_worker = table.contains_key("worker");
        if is_alone && worker == MAIN {
            let mut level = Some(&*table);
            for part in parts.split('/').skip(1) {
                let inner = level.and_then(|level| level.get("parts")?.as_table_like()?.get(part)?.as_table_like());
                has_worker |= inner.is_some_and(|inner| inner.contains_key("worker"));
                level = inner;
            }
            if !has_worker {
                return Ok(());
            }
        }
        for part in parts.split('/').skip(1) {
            for name in ["parts", part] {
                path = format!("{path}.{name}");
                let new = || {
                    let Item::Table(mut new) = new_table() else { return Item::None };
                    new.set_implicit(true);
                    Item::Table(new)
                };
                table = table.entry(name).or_insert_with(new).as_table_like_mut().ok_or_else(no_table)?;
            }
        }
        set(table, &file, &path, "worker", worker.into())
    }

    fn worker(&mut self, worker: &str, cpu: Option<usize>) -> Result<(), AssignError> {
        let cpu = cpu.map(|cpu| Value::from(cpu as i64));
        if worker == MAIN {
            let Some(cpu) = cpu else { return Ok(()) };
            // Tables of the engine may be in several files; the first that has the key decides.
            let has = |document: &&mut DocumentMut, key: &str| {
                let engine = document.get("engine").and_then(Item::as_table_like);
                engine.is_some_and(|engine| key.is_empty() || engine.contains_key(key))
            };
            let place = ["cpu", ""].into_iter().find_map(|key| self.documents.iter_mut().position(|it| has(&it, key)));
            let place = place.unwrap_or(0);
            let engine = self.documents[place].entry("engine").or_insert_with(new_table);
            let Some(engine) = engine.as_table_like_mut() else { return Ok(()) };
            return set(engine, &self.names[place], "engine", "cpu", cpu);
        }
        if self.table("workers", worker).is_none() {
            let mut group = Table::new();
            group.set_implicit(true);
            let workers = self.documents[0].entry("workers").or_insert(Item::Table(group));
            if let Some(workers) = workers.as_table_like_mut() {
                workers.insert(worker, new_table());
            }
        }
        match (self.table("workers", worker), cpu) {
            (Some((file, table)), Some(cpu)) => set(table, file, &format!("workers.{worker}"), "cpu", cpu),
            _ => Ok(()),
        }
    }

    /// Removes the tables of workers that have no apps any more.
    fn remove_other_workers(&mut self, assignment: &Assignment) {
        for document in &mut self.documents {
            let Some(workers) = document.get_mut("workers").and_then(Item::as_table_like_mut) else { continue };
            let names: Vec<String> = workers.iter().map(|(name, _)| name.to_owned()).collect();
            for name in names.iter().filter(|name| !assignment.workers.contains_key(*name)) {
                workers.remove(name);
            }
        }
    }
}

fn new_table() -> Item {
    let mut table = Table::new();
    table.decor_mut().set_prefix("\n");
    Item::Table(table)
}

/// Sets a key. A value that is there keeps the comment beside it.
fn set(table: &mut dyn TableLike, file: &str, path: &str, key: &str, new: Value) -> Result<(), AssignError> {
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            if old.as_str().is_some_and(|text| text.contains('$')) {
                return Err(AssignError::Variable {
                    file: file.to_owned(),
                    key: quoted(&format!("{path}.{key}")),
                    written: old.to_string().trim().to_owned(),
                    wanted: new.to_string(),
                });
            }
            let is_same = match (&*old, &new) {
                (Value::String(old), Value::String(new)) => old.value() == new.value(),
                (Value::Integer(old), Value::Integer(new)) => old.value() == new.value(),
                _ => false,
            };
            if !is_same {
                let decor = old.decor().clone();
                *old = new;
                *old.decor_mut() = decor;
            }
        }
        _ => drop(table.insert(key, value(new))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_testkit::scratch;

    const NETWORK: &str = r#"# A network.
links = ["a.output -> b.input"] # one link

[engine] # the engine
lossless = true

# The disk's thread.
[workers.disk]

[apps.a]
app = "source" # makes packets
# Where it runs.
worker = "disk" # with the disk

[apps.b]
app = "sink"
"#;

    fn assignment(apps: &[(&str, &str)], workers: &[(&str, Option<usize>)]) -> Assignment {
        Assignment {
            apps: apps.iter().map(|(app, worker)| ((*app).to_owned(), (*worker).to_owned())).collect(),
            workers: workers.iter().map(|(worker, cpu)| ((*worker).to_owned(), *cpu)).collect(),
        }
    }

    fn files_of(text: &str) -> NetworkFiles {
        NetworkFiles { files: vec![File { path: "net.toml".into(), text: text.to_owned() }] }
    }

    fn edited(text: &str, assignment: &Assignment) -> Result<String, AssignError> {
        let edited = files_of(text).assigned(assignment, &[])?;
        Ok(edited.into_iter().next().map_or_else(|| text.to_owned(), |(_, text)| text))
    }

    #[test]
    fn comments_and_order_stay() {
        let wanted = assignment(&[("a", "main"), ("b", "other")], &[("main", Some(0)), ("other", Some(1))]);
        let expected = NETWORK
            .replace("worker = \"disk\"", "worker = \"main\"")
            .replace("lossless = true\n", "lossless = true\ncpu = 0\n")
            .replace("app = \"sink\"\n", "app = \"sink\"\nworker = \"other\"\n")
            .replace("\n# The disk's thread.\n[workers.disk]\n", "");
        let text = edited(NETWORK, &wanted).unwrap();
        let (rest, added) = text.split_once("\n[workers.other]\ncpu = 1\n").unwrap_or_else(|| panic!("{text}"));
        assert_eq!(format!("{rest}{added}"), expected);
    }

    #[test]
    fn what_is_as_wanted_stays_as_written() {
        let wanted = assignment(&[("a", "disk"), ("b", "main")], &[("main", None), ("disk", None)]);
        assert_eq!(edited(NETWORK, &wanted).unwrap(), NETWORK);
        let inline = "apps = { a = { app = 'tee', worker = 'disk' } } # all\nworkers.disk.cpu = 0x1\n";
        let same = assignment(&[("a", "disk")], &[("disk", Some(1))]);
        assert_eq!(edited(inline, &same).unwrap(), inline);
        let other = assignment(&[("a", "main")], &[("main", None), ("disk", Some(2))]);
        let expected = "apps = { a = { app = 'tee', worker = \"main\" } } # all\nworkers.disk.cpu = 2\n";
        assert_eq!(edited(inline, &other).unwrap(), expected);
    }

    #[test]
    fn variables_are_not_replaced() {
        let text = "[apps.a]\napp = \"tee\"\nworker = \"${WORKER}\"\n";
        let error = edited(text, &assignment(&[("a", "main")], &[])).unwrap_err().to_string();
        assert!(error.contains("`apps.a.worker` is \"${WORKER}\"") && error.contains("by hand"), "{error}");
        let error = edited(text, &assignment(&[("z", "main")], &[])).unwrap_err().to_string();
        assert_eq!(error, "no file has the table `[apps.z]`");
    }

    #[test]
    fn settings_that_agree_are_accepted() {
        let wanted = assignment(&[("a", "disk"), ("b", "main")], &[("main", Some(0)), ("disk", Some(1))]);
        for setting in
            ["apps.a.worker=disk", "apps.a.worker=\"disk\"", "apps.b.worker=", "engine.cpu=0", "apps.a.count=9"]
        {
            agrees(setting, &wanted).unwrap_or_else(|error| panic!("{setting}: {error}"));
        }
        for setting in ["apps.a.worker=main", "apps.a.worker=", "workers.disk.cpu=0", "engine.cpu=1"] {
            let error = agrees(setting, &wanted).unwrap_err().to_string();
            assert!(error.contains(&format!("`--set {setting}`")), "{error}");
        }
    }

    #[test]
    fn workers_of_parts_are_set_in_the_table_of_the_compound_app() {
        let network =
            NETWORK.to_owned() + "\n[apps.r]\napp = \"router\"\n\n[apps.i]\nnetwork = \"i.toml\"\nparts = { x = {} }\n";
        let apps = [("a", "disk"), ("b", "main"), ("r/lookup", "disk"), ("r/in/check", "main"), ("i/x", "disk")];
        let wanted = assignment(&apps, &[("main", None), ("disk", None)]);
        let text = edited(&network, &wanted).unwrap();
        let tables = "[apps.r]\napp = \"router\"\n\n[apps.r.parts.in.parts.check]\nworker = \"main\"\n\n[apps.r.parts.lookup]\nworker = \"disk\"\n";
        assert!(text.contains("parts = { x = { worker = \"disk\" } }"), "{text}");
        for line in tables.lines() {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert_eq!(edited(&text, &wanted).unwrap(), text);
        let alone = assignment(&[("a", "main"), ("b", "main"), ("r/lookup", "main")], &[("main", None)]);
        assert!(!edited(&network, &alone).unwrap().contains("parts.lookup"), "all apps run on it");
        let unknown = assignment(&[("q/lookup", "disk")], &[("main", None)]);
        assert!(matches!(edited(&network, &unknown), Err(AssignError::NoTable(app)) if app == "q/lookup"));
        let contradiction = files_of(&network).assigned(&wanted, &["apps.r.parts.lookup.worker=main".to_owned()]);
        assert!(matches!(contradiction, Err(AssignError::Set { .. })));
        let agrees = ["apps.r.parts.in.parts.check.worker=main".to_owned()];
        assert!(files_of(&network).assigned(&wanted, &agrees).is_ok());
    }

    #[test]
    fn files_of_parts_follow_the_settings_in_the_text_of_a_running_network() {
        let files = files_of(NETWORK);
        let running = format!("{NETWORK}\n# --set apps.a.rate=1\n\n#part i.toml\n# --set is no setting here\n");
        assert_eq!(files.settings(&running).unwrap(), ["apps.a.rate=1"]);
        assert_eq!(files.settings(&format!("{NETWORK}\n#part i.toml\n# x")).unwrap(), [""; 0]);
        assert!(files.settings(&format!("{NETWORK}#part i.toml\n")).is_err());
    }

    #[test]
    fn a_running_network_has_the_text_of_its_files() {
        let folder = scratch();
        let path = folder.path().join("net.toml");
        fs::write(&path, format!("include = [\"more.toml\"]\n{NETWORK}")).unwrap();
        fs::write(folder.path().join("more.toml"), "[apps.c]\napp = \"sink\"\n").unwrap();
        let files = NetworkFiles::read(&path).unwrap();
        let text = format!("include = [\"more.toml\"]\n{NETWORK}\n# more.toml\n[apps.c]\napp = \"sink\"\n");
        assert_eq!(files.settings(&text).unwrap(), Vec::<String>::new());
        let started = format!("{text}\n# --set apps.a.worker=main\n\n# --set engine.cpu=\n# 1\n");
        assert_eq!(files.settings(&started).unwrap(), ["apps.a.worker=main", "engine.cpu=\n1"]);
        for other in [NETWORK.to_owned(), format!("{text}\n"), text.replace("sink", "tee")] {
            assert!(matches!(files.settings(&other), Err(AssignError::Changed(_))), "{other}");
        }

        let wanted = assignment(&[("c", "w")], &[("w", None), ("disk", None)]);
        let edited = files.assigned(&wanted, &[]).unwrap();
        assert_eq!(edited.len(), 2, "the app is in one file, and its worker in the other");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let unknown = (folder.path().join("none.toml"), String::new());
        assert!(matches!(files.write(&[&edited[..], &[unknown]].concat()), Err(AssignError::Write(..))));
        assert!(!fs::read_to_string(&path).unwrap().contains("[workers.w]"), "all files are replaced, or none");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        files.write(&edited).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("[workers.w]"));
        assert!(fs::read_to_string(folder.path().join("more.toml")).unwrap().contains("worker = \"w\""));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no other files remain");
        assert!(matches!(files.write(&edited), Err(AssignError::Changed(_))), "they are not as they were read");
        assert!(NetworkFiles::read(&folder.path().join("none.toml")).is_err());
    }
}
