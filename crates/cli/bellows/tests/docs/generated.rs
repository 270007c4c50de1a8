//! The parts of pages that come from the code. `cargo xtask docs` writes them; without it, the test says which are out of
//! date.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::{Sandbox, root};
use bellows_config::Entry;
use bellows_testkit::tree;

/// A part of a page, or a whole file, that the code makes.
struct Part {
    file: &'static str,
    /// What the line before the part says of it. `None` for a whole file.
    of: Option<&'static str>,
    make: fn() -> String,
}

const PARTS: &[Part] = &[
    Part { file: "docs/commands.md", of: Some("the list of commands"), make: commands },
    Part { file: "docs/json.md", of: Some("bellows schema --reports"), make: || print(&["schema", "--reports"]) },
    Part { file: "docs/metrics.md", of: Some("bellows metrics --list"), make: || print(&["metrics", "--list"]) },
    Part { file: "docs/operating.md", of: Some("the list of events"), make: events },
    Part { file: "docs/dependencies.md", of: Some("the dependencies"), make: dependencies },
    Part { file: "docs/design/crates.md", of: Some("the list of crates"), make: crates },
    Part { file: "crates/apps/apps/README.md", of: Some("the list of apps"), make: apps },
    Part { file: "docs/images/quickstart.svg", of: None, make: quickstart },
];

const END: &str = "<!-- end -->\n";

impl Part {
    /// The file as it is, and as it should be.
    fn contents(&self) -> (String, String) {
        let made = (self.make)();
        let old = fs::read_to_string(root().join(self.file)).unwrap_or_default();
        let Some(of) = self.of else { return (old, made) };
        let begin = format!("<!-- generated: {of} -->\n");
        let parts = old.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let (before, after) =
            parts.unwrap_or_else(|| panic!("{} has no part between `{begin}` and `{END}`", self.file));
        let new = format!("{before}{begin}\n{}\n\n{END}{after}", made.trim());
        (old, new)
    }
}

#[test]
fn what_is_generated_is_up_to_date() {
    let mut wrong = Vec::new();
    for part in PARTS {
        // The commands of campaigns on several machines are in builds with this feature alone.
        if part.file == "docs/commands.md" && !cfg!(feature = "nats") {
            continue;
        }
        let (old, new) = part.contents();
        if old == new {
            continue;
        }
        if std::env::var_os("BELLOWS_WRITE_DOCS").is_some() {
            fs::write(root().join(part.file), new).unwrap();
            println!("wrote {}", part.file);
            continue;
        }
        let different = old.lines().zip(new.lines()).find(|(old, new)| old != new);
        wrong.push(format!("{}: {different:?}", part.file));
    }
    assert!(wrong.is_empty(), "out of date; `cargo xtask docs` writes them:\n{}", wrong.join("\n"));
}

fn print(words: &[&str]) -> String {
    Sandbox::new().bellows(words).success().stdout
}

fn quickstart() -> String {
    let sandbox = Sandbox::new();
    let [network, picture] = [root().join("examples/quickstart.toml"), sandbox.path("quickstart.svg")];
    sandbox.bellows(&["graph", network.to_str().unwrap(), "-o", picture.to_str().unwrap()]).success();
    fs::read_to_string(picture).unwrap()
}

fn row(cells: &[String]) -> String {
    // A bar within a cell would end it.
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

fn apps() -> String {
    let line = |app: &Entry| row(&[format!("`{}`", app.name()), app.summary().trim_end_matches('.').to_owned()]);
    let rows: String = bellows_apps::registry().entries().map(line).collect();
    format!("| app | what it does |\n|---|---|\n{rows}")
}

fn events() -> String {
    let rows = bellows_events::ALL.iter().map(|event| {
        let fields: Vec<String> = event.fields.iter().map(|field| format!("`{}`", field.name)).collect();
        row(&[format!("`{}`", event.name), event.level.name().to_owned(), fields.join(", "), event.sentences()])
    });
    format!("| event | level | fields | when |\n|---|---|---|---|\n{}", rows.collect::<String>())
}

fn commands() -> String {
    let mut rows = String::new();
    let mut definition = bellows::Command::new("bellows").definition();
    definition.build();
    list_commands(&definition, &mut rows);
    format!("| command | what it does | options |\n|---|---|---|\n{rows}")
}

/// Adds the rows of the subcommands of a command.
fn list_commands(command: &clap::Command, rows: &mut String) {
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set()) {
        let name = inner.get_bin_name().unwrap_or_default();
        let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
        let aliases: Vec<String> = inner.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
        let also = if aliases.is_empty() { String::new() } else { format!("; also {}", aliases.join(", ")) };
        // Those of all commands are left out.
        let shown = inner.get_arguments().filter(|option| !option.is_hide_set() && !option.is_global_set());
        let options = shown.filter_map(|option| option.get_long()).filter(|long| *long != "help");
        let options: Vec<String> = options.map(|long| format!("`--{long}`")).collect();
        *rows += &row(&[format!("`{name}`"), about + &also, options.join(", ")]);
        list_commands(inner, rows);
    }
}

/// A crate of the workspace.
struct Crate {
    folder: PathBuf,
    /// The crates of the workspace that it uses.
    uses: Vec<String>,
}

impl Crate {
    fn read(folder: PathBuf) -> (String, Crate) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"');
        let listed = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
        let listed = listed.take_while(|line| !line.starts_with('['));
        let used = listed.filter_map(|line| line.strip_prefix("bellows-")?.split(['.', ' ']).next());
        let uses = used.map(str::to_owned).collect();
        (name.trim_start_matches("bellows-").to_owned(), Crate { folder, uses })
    }

    /// The text of its root.
    fn root(&self) -> String {
        let roots = ["src/lib.rs", "src/main.rs"].map(|file| self.folder.join(file));
        roots.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default()
    }

    /// The first sentence of its documentation.
    fn summary(&self) -> String {
        let root = self.root();
        let first = root.lines().find(|line| !line.trim_start_matches("//!").trim().is_empty()).unwrap_or_default();
        let paragraph: Vec<String> = if first.starts_with("//!") {
            let text = root.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.trim().to_owned());
            text.take_while(|line| !line.is_empty()).collect()
        } else {
            let page = fs::read_to_string(self.folder.join("README.md")).unwrap_or_default();
            let text = page.lines().skip_while(|line| line.is_empty() || line.starts_with('#'));
            text.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        let paragraph = without_links(&paragraph.join(" "));
        paragraph.split(". ").next().unwrap_or_default().trim_end_matches(['.', ':']).to_owned()
    }

    fn may_be_unsafe(&self) -> &'static str {
        let root = self.root();
        match () {
            () if root.contains("#![forbid(unsafe_code)]") => "no",
            () if root.contains("#![deny(unsafe_code)]") => "one place",
            () => "yes",
        }
    }
}

/// A text with the words of its links alone.
fn without_links(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once('[') {
        let (link, after) = inside.split_once(']').unwrap_or((inside, ""));
        words += &format!("{before}{link}");
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    words + rest
}

fn all_crates() -> BTreeMap<String, Crate> {
    tree::crates().into_iter().chain([root().join("xtask")]).map(Crate::read).collect()
}

fn crates() -> String {
    let all = all_crates();
    let mut rows: Vec<(String, usize, &String, String)> = Vec::new();
    for (name, one) in &all {
        let folder = one.folder.strip_prefix(root()).unwrap().display().to_string();
        let group = folder.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let link = format!("[`{name}`](../../{folder})");
        let line = row(&[link, format!("`{folder}`"), one.summary(), one.uses.join(", "), one.may_be_unsafe().into()]);
        rows.push((group, height(name, &all), name, line));
    }
    rows.sort();
    let rows: String = rows.into_iter().map(|(.., line)| line).collect();
    format!("| crate | folder | contents | uses | `unsafe` |\n|---|---|---|---|---|\n{rows}")
}

/// The table of dependencies: the page's own, with the crates that use each according to their manifests.
fn dependencies() -> String {
    let others = ["xtask", "fuzz", "examples/custom-app"].map(|folder| root().join(folder));
    let mut folders: Vec<PathBuf> = tree::crates().into_iter().chain(others).collect();
    folders.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    let used: Vec<(String, Vec<(String, bool)>)> = folders
        .iter()
        .map(|folder| {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            (name, listed_in(&fs::read_to_string(folder.join("Cargo.toml")).unwrap()))
        })
        .collect();
    let page = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let table = page.split("<!-- generated: the dependencies -->").nth(1).unwrap().split(END).next().unwrap();
    let line = |line: &str| {
        let cells: Vec<&str> = line.splitn(3, " | ").collect();
        let [names, _, reason] = cells[..] else { return format!("{line}\n") };
        if !names.starts_with("| `") {
            return format!("{line}\n");
        }
        // What is in brackets are features.
        let outside: String =
            names.split('(').map(|part| part.split_once(')').map_or(part, |(_, after)| after)).collect();
        let names_of: Vec<&str> = outside.split('`').skip(1).step_by(2).collect();
        let users = |for_tests: bool| -> Vec<&str> {
            let uses = |listed: &[(String, bool)]| {
                let found = listed.iter().filter(|(name, _)| names_of.contains(&name.as_str()));
                found.map(|(_, is_for_tests)| *is_for_tests).min() == Some(for_tests)
            };
            used.iter().filter(|(_, listed)| uses(listed)).map(|(name, _)| name.as_str()).collect()
        };
        let mut cell = users(false).join(", ");
        let tests = users(true);
        if !tests.is_empty() {
            let of = if tests.len() > 12 { String::new() } else { format!(" of {}", tests.join(", ")) };
            cell += &format!("{}tests{of}", if cell.is_empty() { "" } else { "; " });
        }
        format!("{names} | {cell} | {reason}\n")
    };
    table.trim().lines().map(line).collect()
}

/// The dependencies in a manifest, each with whether only tests and examples use it.
fn listed_in(manifest: &str) -> Vec<(String, bool)> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies") && line.starts_with(|letter: char| letter.is_ascii_lowercase()) {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            found.push((name.to_owned(), section.contains("dev-")));
        }
    }
    found
}

/// How many crates are below this one, one above the other.
fn height(name: &str, all: &BTreeMap<String, Crate>) -> usize {
    all[name].uses.iter().map(|used| height(used, all) + 1).max().unwrap_or(0)
}

/// The table of folders in the design names each crate once, and a crate uses no folder above its own.
#[test]
fn folders_use_only_those_below_them() {
    let design = fs::read_to_string(root().join("docs/design.md")).unwrap();
    let table = design.split("| folder | crates |").nth(1).unwrap();
    let mut folders: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (place, line) in table.lines().skip(2).take_while(|line| line.starts_with('|')).enumerate() {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        for name in cells[2].split(", ") {
            assert_eq!(folders.insert(name, (place, cells[1])), None, "{name} is named twice");
        }
    }
    let mut wrong = Vec::new();
    for (name, one) in all_crates().iter().filter(|(name, _)| *name != "xtask") {
        let &(place, folder) = folders.get(name.as_str()).unwrap_or_else(|| panic!("docs/design.md has no {name}"));
        assert!(one.folder.ends_with(format!("{folder}/{name}")), "{name} lies in {}", one.folder.display());
        for used in &one.uses {
            let (below, other) = folders[used.as_str()];
            if below < place && folder != "testing" {
                wrong.push(format!("{name} in {folder} uses {used} in {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "against the table of docs/design.md:\n{}", wrong.join("\n"));
}

/// Files and folders in the design are named from the folder of the sources of a crate, or from the root.
#[test]
fn places_in_the_design_exist() {
    let design = fs::read_to_string(root().join("docs/design.md")).unwrap();
    let all = all_crates();
    let mut seen = 0;
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_/.".contains(letter);
    let spans = design.split('`').skip(1).step_by(2);
    for span in spans.filter(|span| span.contains('/') && span.chars().all(is_part)) {
        let (first, rest) = span.split_once('/').unwrap();
        let of_crate =
            all.get(first).into_iter().flat_map(|one| [one.folder.join("src").join(rest), one.folder.join(rest)]);
        let places = of_crate.chain([root().join(span)]);
        let exists = |place: PathBuf| place.exists() || place.with_extension("rs").exists();
        assert!(places.into_iter().any(exists), "docs/design.md names {span}");
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn links_become_their_words() {
    assert_eq!(without_links("a [`B`](c::D) e [f] g"), "a `B` e f g");
}
