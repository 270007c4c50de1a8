//! Reads a campaign file: TOML to a [`Campaign`], with errors that point at the text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::campaign::{
    Better, Build, Campaign, Command, Direction, Disturbance, Exclusion, Factor, Hypothesis, LAST_TAG, Level, Read,
    ScoreSpec, Stream,
};
use crate::diagnostics::{Diagnostics, did_you_mean, listed, quoted};
use crate::folder::{columns, is_column};
use crate::plan::{self, MAX_COMBINATIONS, MAX_RUNS};
use crate::score::{compile, json_path};
use crate::table::{Node, Table, called, items, text, word};
use crate::template::{Placeholder, Template, Value};

/// Maximum size of a campaign file, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Maximum number of repeats.
const MAX_REPEATS: u64 = 1_000_000;

/// Maximum number of factors.
const MAX_FACTORS: usize = 32;

const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(3_600);

/// The factor whose levels are two builds, unless the file gives it another name.
const VERSION: &str = "version";

/// What a build command may fill in: the folder of the checked out revision, that for what it makes, and the commit.
const BUILD_NAMES: [&str; 3] = ["source", "build", "commit"];

/// The values of a version.
const VERSION_VALUES: [&str; 5] = ["program", "build", "source", "commit", "name"];

/// What the placeholders of a command stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The levels of a run.
    Run,
    /// Nothing: it is not that of a run.
    Session,
    /// The folders of a build.
    Build,
}

/// A campaign and where it was read from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The campaign.
    pub campaign: Campaign,
    /// The text of the file.
    pub text: String,
    /// The working folder of the commands.
    pub folder: PathBuf,
}

/// Reads a campaign file.
///
/// # Errors
/// All errors in the file, or why it cannot be read.
pub fn load(path: &Path) -> Result<Loaded, Diagnostics> {
    let name = path.display().to_string();
    let fail = |why: String, help: &str| {
        let mut diagnostics = Diagnostics::new(&name, "");
        diagnostics.whole(why, help);
        diagnostics
    };
    let bytes = read(path).map_err(|(why, help)| fail(why, &help))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| fail("the file is not UTF-8 text".to_owned(), "a campaign file is TOML; save it as UTF-8"))?;
    let campaign = parse(&name, &text)?;
    let folder = path.parent().unwrap_or(Path::new("")).join(&campaign.folder);
    // The current folder has the empty path, which no program can be started in.
    let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
    Ok(Loaded { campaign, text, folder })
}

/// The bytes of a file, which is a file and not too large; else why not, and the way out.
fn read(path: &Path) -> Result<Vec<u8>, (String, String)> {
    let failed = |error: std::io::Error| {
        let help = bellows_sys::way_out(&error, "check the path");
        (format!("cannot read the campaign file: {error}"), help.to_owned())
    };
    // Without waiting for who writes into a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a folder" } else { "a device, a pipe or a socket" };
        return Err((format!("the campaign file is {what}"), "name a file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() > MAX_TEXT {
        true => Err(("the file is larger than 1 MiB".to_owned(), "name a campaign file".to_owned())),
        false => Ok(bytes),
    }
}

/// Reads the text of a campaign file. `name` stands for the file in errors.
///
/// # Errors
/// All errors in the text.
pub fn parse(name: &str, text: &str) -> Result<Campaign, Diagnostics> {
    let mut diagnostics = Diagnostics::new(name, text);
    if text.len() > MAX_TEXT {
        diagnostics.whole("the file is larger than 1 MiB", "name a campaign file");
        return Err(diagnostics);
    }
    let parsed = match DeTable::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            diagnostics.at(error.span().unwrap_or(0..0), error.message(), "a campaign file is TOML: key = value");
            return Err(diagnostics);
        }
    };
    let campaign = File { diagnostics: &mut diagnostics, factors: Vec::new() }.read(parsed.get_ref());
    match campaign {
        Some(campaign) if diagnostics.is_empty() => Ok(campaign),
        _ => {
            diagnostics.sort();
            Err(diagnostics)
        }
    }
}

struct File<'d> {
    diagnostics: &'d mut Diagnostics,
    factors: Vec<Factor>,
}

impl File<'_> {
    fn read(mut self, root: &DeTable<'_>) -> Option<Campaign> {
        let mut table = Table::new("a campaign file", root, 0..0);
        let name = table.text("name", self.diagnostics);
        let build = table.take("build").map(|node| (self.build(node), node.span()));
        let factors = table.take("factors");
        self.factors(factors, build.as_ref());
        let paired = table.take("paired").and_then(|node| self.paired(node, build.is_some()));
        let paired = paired.or_else(|| build.as_ref().map(|((_, factor), _)| factor.clone()));
        let are_factors_valid = self.diagnostics.is_empty();
        let seed = table.number("seed", 0..=u64::MAX, self.diagnostics).unwrap_or(1);
        let repeats = table.number("repeats", 1..=MAX_REPEATS, self.diagnostics).unwrap_or(1) as u32;
        let warmup = table.number("warmup", 0..=1_000, self.diagnostics).unwrap_or(0) as u32;
        let command = match table.take("command") {
            Some(node) => self.command("command", node, Scope::Run),
            None => {
                let help = "add command = [\"program\", \"{factor}\"], or command = { shell = \"…\" }";
                self.diagnostics.whole("the campaign has no `command`", help);
                None
            }
        };
        let prepare = table.take("prepare").map_or(Vec::new(), |node| self.commands("prepare", node, Scope::Run));
        let tidy = table.take("tidy").map_or(Vec::new(), |node| self.commands("tidy", node, Scope::Run));
        let setup = table.take("setup").map_or(Vec::new(), |node| self.commands("setup", node, Scope::Session));
        let teardown =
            table.take("teardown").map_or(Vec::new(), |node| self.commands("teardown", node, Scope::Session));
        let time_limit = table.take("time_limit").and_then(|node| self.duration("time_limit", node));
        let cpus = table.take("cpus").map_or(Vec::new(), |node| self.cpus(node));
        let environment = table.take("environment").map_or(BTreeMap::new(), |node| self.environment(node));
        let versions = table.take("versions").map_or(BTreeMap::new(), |node| self.versions(node));
        let folder = table.text("folder", self.diagnostics).unwrap_or_default();
        let scores = self.scores(table.take("score"));
        let disturbance = table.take("disturbance").map_or(Disturbance::default(), |node| self.disturbance(node));
        let (exclude, hypotheses) = (table.take("exclude"), table.take("hypothesis"));
        table.finish(self.diagnostics);
        // Without valid factors all levels would seem to be unknown.
        let exclusions: Vec<Exclusion> = match exclude {
            Some(node) if are_factors_valid => self.exclusions(node, paired.as_deref()),
            _ => Vec::new(),
        };
        let hypotheses = match hypotheses {
            Some(node) if build.is_some() => {
                let message = "a campaign with a table `build` compares its two versions, and states no `hypothesis`";
                self.diagnostics.at(node.span(), message, "remove it, or name the versions in `factors`");
                Vec::new()
            }
            Some(node) if are_factors_valid => self.hypotheses(node, &scores, &exclusions),
            _ => Vec::new(),
        };
        let levels = self.factors.iter().map(|factor| factor.levels.len());
        let combinations = levels.fold(1, usize::saturating_mul);
        if are_factors_valid && combinations.saturating_mul(repeats as usize) > MAX_RUNS {
            let message = format!("{repeats} repeats of {combinations} combinations are more than {MAX_RUNS} runs");
            self.diagnostics.whole(message, "write fewer `repeats`");
        }
        if name.is_none() {
            self.diagnostics.whole("the campaign has no `name`", "add name = \"…\"");
        }
        Some(Campaign {
            name: name?,
            seed,
            repeats,
            factors: self.factors,
            exclusions,
            command: command?,
            scores,
            setup,
            teardown,
            prepare,
            tidy,
            warmup,
            time_limit: time_limit.unwrap_or(DEFAULT_TIME_LIMIT),
            cpus,
            environment,
            folder: PathBuf::from(folder),
            versions,
            disturbance,
            hypotheses,
            paired,
            build: build.map(|((build, _), _)| build),
        })
    }

    /// The table `build`, and the name of its factor.
    fn build(&mut self, node: &Node<'_>) -> (Build, String) {
        let mut build = Build {
            command: None,
            program: None,
            time_limit: DEFAULT_TIME_LIMIT,
            base: None,
            otherwise: None,
            versions: None,
        };
        let mut factor = VERSION.to_owned();
        let Some(mut table) = Table::of("`build`", node, self.diagnostics) else { return (build, factor) };
        build.command = table.take("command").and_then(|node| self.command("command", node, Scope::Build));
        if let Some(node) = table.take("program")
            && let Some(path) = text("program", node, self.diagnostics)
        {
            let is_within = |part| matches!(part, Component::Normal(_) | Component::CurDir);
            if path.trim().is_empty() || path.contains('\0') || !Path::new(&path).components().all(is_within) {
                let help = "write a path such as \"release/tool\", below the folder that `command` fills";
                self.diagnostics.at(node.span(), format!("`program` cannot be {}", quoted(&path)), help);
            }
            build.program = Some(PathBuf::from(path));
        }
        if let Some(limit) = table.take("time_limit").and_then(|node| self.duration("time_limit", node)) {
            build.time_limit = limit;
        }
        build.base = table.text("base", self.diagnostics);
        build.otherwise = table.text("else", self.diagnostics);
        if build.otherwise.is_some() && build.base.as_deref() != Some(LAST_TAG) {
            let message =
                format!("`else` is the revision for the case that there is no tag, with base = \"{LAST_TAG}\"");
            self.diagnostics.at(node.span(), message, "remove it, or add that `base`");
        }
        if let Some(name) = table.text("factor", self.diagnostics) {
            if !is_name(&name) || is_column(&name) {
                let help = "take a name of letters that is no column of the results, such as \"version\"";
                self.diagnostics.at(node.span(), format!("a factor cannot be called {}", quoted(&name)), help);
            }
            factor = name;
        }
        table.finish(self.diagnostics);
        (build, factor)
    }

    /// The factor whose two levels are paired.
    fn paired(&mut self, node: &Node<'_>, has_build: bool) -> Option<String> {
        let name = text("paired", node, self.diagnostics)?;
        if has_build {
            let help = "remove it, or the table `build`";
            self.diagnostics.at(node.span(), "the versions of `build` are paired, and no other factor", help);
            return None;
        }
        let factor = self.known_factor(&name, node.span())?;
        let levels = self.factors[factor].levels.len();
        if levels != 2 {
            let message = format!("{} has {levels} levels, and a pair is of two", quoted(&name));
            self.diagnostics.at(node.span(), message, "name a factor of two levels, the old one first");
        }
        Some(name)
    }

    fn factors(&mut self, node: Option<&Node<'_>>, build: Option<&((Build, String), Range<usize>)>) {
        if let Some(((_, name), _)) = build {
            let values: BTreeMap<_, _> =
                VERSION_VALUES.iter().map(|key| ((*key).to_owned(), Value::Text(String::new()))).collect();
            let levels = ["old", "new"].map(|label| Level { label: label.to_owned(), values: values.clone() });
            self.factors.push(Factor { name: name.clone(), levels: levels.into() });
        }
        let help = "add a table [factors] with lines such as size = [64, 1500]";
        let Some(node) = node else {
            if build.is_none() {
                self.diagnostics.whole("the campaign has no `factors`", help);
            }
            return;
        };
        let Some(mut table) = Table::of("`factors`", node, self.diagnostics) else { return };
        let entries = table.rest();
        if entries.is_empty() || entries.len() > MAX_FACTORS {
            let message = format!("a campaign has 1 to {MAX_FACTORS} factors, this one {}", entries.len());
            return self.diagnostics.at(node.span(), message, help);
        }
        let mut product = 1 + usize::from(build.is_some());
        for (name, span, node) in entries {
            if self.factors.iter().any(|factor| factor.name == name) {
                let message = format!("{} is the factor of the two builds, too", quoted(name));
                self.diagnostics.at(span, message, "rename it, or write another `factor` in the table `build`");
                continue;
            }
            if !is_name(name) || is_column(name) {
                let message = format!("a factor cannot be called {}", quoted(name));
                let help = match is_column(name) {
                    true => format!("results have columns {}; take another name", listed(columns())),
                    false => "a name has letters, digits, `_` and `-` and begins with a letter".to_owned(),
                };
                self.diagnostics.at(span, message, help);
                continue;
            }
            let Some(levels) = items(name, node, self.diagnostics) else { continue };
            if levels.is_empty() {
                self.diagnostics.at(node.span(), format!("{} has no levels", quoted(name)), "add a level");
            }
            product = product.saturating_mul(levels.len().max(1));
            let levels = self.levels(name, &levels);
            self.factors.push(Factor { name: name.to_owned(), levels });
        }
        if product > MAX_COMBINATIONS {
            let message = format!("the factors have more than {MAX_COMBINATIONS} combinations");
            self.diagnostics.at(node.span(), message, "remove levels, or split the campaign into several");
        }
    }

    fn levels(&mut self, factor: &str, nodes: &[&Node<'_>]) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        let mut labels = BTreeSet::new();
        for node in nodes {
            let Some(level) = self.level(factor, node) else { continue };
            if !labels.insert(level.label.clone()) {
                let message = format!("{} has the level {} twice", quoted(factor), quoted(&level.label));
                self.diagnostics.at(node.span(), message, "remove one, or give it another label");
            }
            levels.push(level);
        }
        levels
    }

    fn level(&mut self, factor: &str, node: &Node<'_>) -> Option<Level> {
        if let Some(label) = word(node) {
            return Some(Level { label: self.label(label, node)?, values: BTreeMap::new() });
        }
        let DeValue::Table(table) = node.get_ref() else {
            let message = format!("a level of {} is a word or a table, not {}", quoted(factor), called(node.get_ref()));
            self.diagnostics.at(node.span(), message, "write \"word\" or { label = \"word\", key = \"value\" }");
            return None;
        };
        let mut table = Table::new("a level", table, node.span());
        let Some(label) = table.take("label") else {
            let help = "add label = \"…\", its name in results";
            self.diagnostics.at(node.span(), format!("a level of {} has no `label`", quoted(factor)), help);
            return None;
        };
        let label = match word(label) {
            Some(word) => self.label(word, label)?,
            None => text("label", label, self.diagnostics)?,
        };
        let mut values = BTreeMap::new();
        for (key, span, node) in table.rest() {
            if !is_name(key) {
                let help = "a name has letters, digits, `_` and `-` and begins with a letter";
                self.diagnostics.at(span, format!("{} cannot be filled in", quoted(key)), help);
                continue;
            }
            if let Some(value) = self.value(key, node) {
                values.insert(key.to_owned(), value);
            }
        }
        Some(Level { label, values })
    }

    fn label(&mut self, label: String, node: &Node<'_>) -> Option<String> {
        let fault = match () {
            () if label.trim().is_empty() => "is empty",
            () if label.chars().any(char::is_control) => "has control characters",
            () if label.len() > 200 => "is longer than 200 bytes",
            // In tables it would look like another one.
            () if label.trim() != label => "begins or ends with a space",
            () => return Some(label),
        };
        let help = "write a short word, and longer values as { label = \"word\", value = \"…\" }";
        self.diagnostics.at(node.span(), format!("the label of a level {fault}"), help);
        None
    }

    fn value(&mut self, key: &str, node: &Node<'_>) -> Option<Value> {
        if let Some(text) = word(node) {
            return self.without_nul(text, node).map(Value::Text);
        }
        let DeValue::Array(array) = node.get_ref() else {
            let message = format!("{} is a text or a list of texts, not {}", quoted(key), called(node.get_ref()));
            self.diagnostics.at(node.span(), message, "write \"text\" or [\"text\", …]");
            return None;
        };
        let words: Option<Vec<String>> = array.iter().map(word).collect();
        let Some(words) = words else {
            let message = format!("{} is a list of something other than texts", quoted(key));
            self.diagnostics.at(node.span(), message, "write [\"text\", …]");
            return None;
        };
        let words: Vec<_> =
            words.into_iter().zip(array.iter()).map(|(word, node)| self.without_nul(word, node)).collect();
        words.into_iter().collect::<Option<_>>().map(Value::Words)
    }

    /// A text that can be passed to a program.
    fn without_nul(&mut self, text: String, node: &Node<'_>) -> Option<String> {
        if text.contains('\0') {
            self.diagnostics.at(node.span(), "a NUL byte cannot be passed to a program", "remove it");
            return None;
        }
        Some(text)
    }

    fn exclusions(&mut self, node: &Node<'_>, paired: Option<&str>) -> Vec<Exclusion> {
        let Some(nodes) = items("exclude", node, self.diagnostics) else { return Vec::new() };
        let mut exclusions = Vec::new();
        for node in nodes {
            let Some(mut table) = Table::of("an exclusion", node, self.diagnostics) else { continue };
            let mut levels = Vec::new();
            let entries = table.rest();
            let all = entries.len();
            for (name, span, node) in entries {
                if paired == Some(name) {
                    let message = format!("without a level of {} the other runs have no partner", quoted(name));
                    self.diagnostics.at(span, message, "exclude by other factors");
                } else if let Some(factor) = self.known_factor(name, span)
                    && let Some(chosen) = self.known_levels(factor, node)
                {
                    levels.push((factor, chosen));
                }
            }
            if levels.len() == all {
                exclusions.push((Exclusion { levels }, node.span()));
            }
        }
        self.check_exclusions(&exclusions);
        exclusions.into_iter().map(|(exclusion, _)| exclusion).collect()
    }

    /// Each exclusion removes combinations, and leaves some.
    fn check_exclusions(&mut self, exclusions: &[(Exclusion, Range<usize>)]) {
        if !self.diagnostics.is_empty() {
            return;
        }
        let mut removed = vec![0usize; exclusions.len()];
        let mut left = 0;
        plan::each_combination(&self.factors, |combination| {
            match exclusions.iter().position(|(exclusion, _)| exclusion.has(combination)) {
                Some(first) => removed[first] += 1,
                None => left += 1,
            }
        });
        for ((exclusion, span), removed) in exclusions.iter().zip(removed) {
            let is_all =
                exclusion.levels.iter().all(|(factor, levels)| levels.len() == self.factors[*factor].levels.len());
            if is_all {
                let help = "name fewer levels, or more factors";
                self.diagnostics.at(span.clone(), "this exclusion removes all combinations", help);
            } else if removed == 0 {
                let message = "this exclusion removes nothing that those before it have not removed";
                self.diagnostics.at(span.clone(), message, "remove it");
            }
        }
        if left == 0 && self.diagnostics.is_empty() {
            let span = exclusions.last().map_or(0..0, |(_, span)| span.clone());
            self.diagnostics.at(span, "the exclusions together remove all combinations", "remove one of them");
        }
    }

    fn known_factor(&mut self, name: &str, span: Range<usize>) -> Option<usize> {
        let found = self.factors.iter().position(|factor| factor.name == name);
        if found.is_none() {
            let help = did_you_mean(name, self.factors.iter().map(|factor| factor.name.as_str()));
            self.diagnostics.at(span, format!("there is no factor {}", quoted(name)), help);
        }
        found
    }

    /// One level, or a list of levels.
    fn known_levels(&mut self, factor: usize, node: &Node<'_>) -> Option<Vec<usize>> {
        match node.get_ref() {
            DeValue::Array(array) if !array.is_empty() => {
                let levels: Vec<_> = array.iter().map(|node| self.known_level(factor, node)).collect();
                let mut levels: Vec<usize> = levels.into_iter().collect::<Option<_>>()?;
                levels.sort_unstable();
                levels.dedup();
                Some(levels)
            }
            _ => Some(vec![self.known_level(factor, node)?]),
        }
    }

    fn known_level(&mut self, factor: usize, node: &Node<'_>) -> Option<usize> {
        let factor = &self.factors[factor];
        let labels = || factor.levels.iter().map(|level| level.label.as_str());
        let written = word(node);
        let found = written.as_deref().and_then(|label| factor.level(label));
        if found.is_none() {
            let (message, help) = match written {
                Some(label) => (
                    format!("{} has no level {}", quoted(&factor.name), quoted(&label)),
                    did_you_mean(&label, labels()),
                ),
                None => {
                    let message = format!("a level of {} is a word or a list of words", quoted(&factor.name));
                    (message, format!("there are {}", listed(labels())))
                }
            };
            self.diagnostics.at(node.span(), message, help);
        }
        found
    }

    /// A list of commands, or one command.
    fn commands(&mut self, key: &str, node: &Node<'_>, scope: Scope) -> Vec<Command> {
        match node.get_ref() {
            DeValue::Array(array)
                if array.iter().any(|node| matches!(node.get_ref(), DeValue::Array(_) | DeValue::Table(_))) =>
            {
                array.iter().filter_map(|node| self.command(key, node, scope)).collect()
            }
            _ => self.command(key, node, scope).into_iter().collect(),
        }
    }

    fn command(&mut self, key: &str, node: &Node<'_>, scope: Scope) -> Option<Command> {
        match node.get_ref() {
            DeValue::Array(array) if !array.is_empty() => {
                let arguments: Vec<Option<Template>> = array
                    .iter()
                    .map(|node| {
                        let Some(text) = word(node) else {
                            let message = format!("`{key}` has an argument that is {}", called(node.get_ref()));
                            self.diagnostics.at(node.span(), message, "write arguments in quotes");
                            return None;
                        };
                        self.template(&text, node, scope, false)
                    })
                    .collect();
                Some(Command::Arguments(arguments.into_iter().collect::<Option<_>>()?))
            }
            DeValue::Table(table) => {
                let mut table = Table::new(format!("`{key}`"), table, node.span());
                let shell = table.take("shell");
                table.finish(self.diagnostics);
                let Some(node) = shell else {
                    let help = "write { shell = \"…\" }, or [\"program\", \"argument\", …]";
                    self.diagnostics.at(node.span(), format!("`{key}` has no `shell`"), help);
                    return None;
                };
                let text = text("shell", node, self.diagnostics)?;
                Some(Command::Shell { shell: self.template(&text, node, scope, true)? })
            }
            _ => {
                let message = format!("`{key}` is not a command");
                let help = "write [\"program\", \"argument\", …], or { shell = \"…\" } for a line of shell";
                self.diagnostics.at(node.span(), message, help);
                None
            }
        }
    }

    /// A text whose placeholders exist.
    fn template(&mut self, text: &str, node: &Node<'_>, scope: Scope, is_shell: bool) -> Option<Template> {
        let text = self.without_nul(text.to_owned(), node)?;
        let template = match Template::parse(&text) {
            Ok(template) => template,
            Err(why) => {
                self.diagnostics.at(node.span(), why, "a placeholder is {factor} or {factor.key}");
                return None;
            }
        };
        if is_shell && template.has_quoted_placeholder() {
            let help = "remove the quotes: each value is quoted as one word";
            self.diagnostics.at(node.span(), "a placeholder stands within quotes of the shell line", help);
        }
        let is_alone = is_shell || template.only_placeholder().is_some();
        for placeholder in template.placeholders() {
            if let Err((message, help)) = self.check_placeholder(placeholder, scope, is_alone) {
                self.diagnostics.at(node.span(), message, help);
            }
        }
        Some(template)
    }

    fn check_placeholder(
        &self,
        placeholder: &Placeholder,
        scope: Scope,
        is_alone: bool,
    ) -> Result<(), (String, String)> {
        if scope == Scope::Session {
            let message = "this command is not that of a run, so there is nothing to fill in".to_owned();
            return Err((message, "remove the placeholder, or write {{ and }} for braces".to_owned()));
        }
        if scope == Scope::Build {
            let is_known = matches!(placeholder, Placeholder::Label(name) if BUILD_NAMES.contains(&name.as_str()));
            let message = || format!("a build has {} to fill in, and nothing else", listed(BUILD_NAMES));
            let help = "write one of these in braces, or {{ and }} for braces";
            return if is_known { Ok(()) } else { Err((message(), help.to_owned())) };
        }
        let (Placeholder::Label(name) | Placeholder::Value(name, _)) = placeholder else { return Ok(()) };
        let Some(factor) = self.factors.iter().find(|factor| factor.name == *name) else {
            let names = self.factors.iter().map(|factor| factor.name.as_str()).chain(["run", "block"]);
            let help = format!("{} (write {{{{ and }}}} for braces)", did_you_mean(name, names));
            return Err((format!("there is no factor {} to fill in", quoted(name)), help));
        };
        let Placeholder::Value(_, key) = placeholder else { return Ok(()) };
        for level in &factor.levels {
            match level.values.get(key) {
                None => {
                    let message = format!("the level {} of {} has no `{key}`", quoted(&level.label), quoted(name));
                    let help = format!("write the level as {{ label = \"{}\", {key} = \"…\" }}", level.label);
                    return Err((message, help));
                }
                Some(Value::Words(_)) if !is_alone => {
                    let message =
                        format!("`{key}` of {} is a list, which cannot be a part of an argument", quoted(name));
                    return Err((message, format!("make \"{{{name}.{key}}}\" an argument of its own")));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn environment(&mut self, node: &Node<'_>) -> BTreeMap<String, Template> {
        let Some(mut table) = Table::of("`environment`", node, self.diagnostics) else { return BTreeMap::new() };
        let mut environment = BTreeMap::new();
        for (name, span, node) in table.rest() {
            if name.is_empty() || name.contains(['=', '\0']) {
                let message = format!("{} cannot be the name of a variable", quoted(name));
                self.diagnostics.at(span, message, "a name has no `=`");
                continue;
            }
            match word(node) {
                Some(text) => {
                    if let Some(template) = self.template(&text, node, Scope::Run, false) {
                        environment.insert(name.to_owned(), template);
                    }
                }
                None => {
                    let message = format!("the variable {} is a text, not {}", quoted(name), called(node.get_ref()));
                    self.diagnostics.at(node.span(), message, "write it in quotes");
                }
            }
        }
        environment
    }

    fn versions(&mut self, node: &Node<'_>) -> BTreeMap<String, Command> {
        let Some(mut table) = Table::of("`versions`", node, self.diagnostics) else { return BTreeMap::new() };
        let rest = table.rest();
        rest.into_iter()
            .filter_map(|(name, _, node)| Some((name.to_owned(), self.command(name, node, Scope::Session)?)))
            .collect()
    }

    fn duration(&mut self, key: &str, node: &Node<'_>) -> Option<Duration> {
        const MAX: f64 = 31_536_000.0;
        let parsed = match node.get_ref() {
            DeValue::String(text) => parse_duration(text),
            DeValue::Integer(_) | DeValue::Float(_) => word(node).and_then(|text| text.parse().ok()),
            _ => None,
        };
        match parsed.filter(|seconds| (0.001..=MAX).contains(seconds)) {
            Some(seconds) => Some(Duration::from_secs_f64(seconds)),
            None => {
                let help = "write \"90 s\", \"500 ms\", \"10 min\" or \"2 h\", at most a year";
                self.diagnostics.at(node.span(), format!("`{key}` is not a duration"), help);
                None
            }
        }
    }

    fn cpus(&mut self, node: &Node<'_>) -> Vec<usize> {
        const MAX: usize = 1_024;
        let mut cpus = BTreeSet::new();
        let parsed: Option<()> = (|| {
            match node.get_ref() {
                DeValue::Array(array) => {
                    for node in array.iter() {
                        cpus.insert(word(node)?.parse().ok()?);
                    }
                }
                DeValue::Integer(_) => {
                    cpus.insert(word(node)?.parse().ok()?);
                }
                DeValue::String(text) => {
                    for part in text.split(',') {
                        let (first, last) = part.split_once('-').unwrap_or((part, part));
                        let [first, last] = [first, last].map(|end| end.trim().parse::<usize>().ok());
                        cpus.extend(first?..=last.filter(|last| *last < MAX)?);
                    }
                }
                _ => return None,
            }
            (!cpus.is_empty() && cpus.iter().all(|cpu| *cpu < MAX)).then_some(())
        })();
        if parsed.is_none() {
            let help = "write [0, 1] or \"0-3, 8\"";
            self.diagnostics.at(node.span(), "`cpus` is not a list of processors", help);
        }
        cpus.into_iter().collect()
    }

    fn disturbance(&mut self, node: &Node<'_>) -> Disturbance {
        let default = Disturbance::default();
        let Some(mut table) = Table::of("`disturbance`", node, self.diagnostics) else { return default };
        let steal = table.float("steal", 0.0..=1.0, self.diagnostics).unwrap_or(default.steal);
        let speed = table.float("speed", 0.0..=f64::MAX, self.diagnostics).unwrap_or(default.speed);
        table.finish(self.diagnostics);
        Disturbance { steal, speed }
    }

    fn scores(&mut self, node: Option<&Node<'_>>) -> Vec<ScoreSpec> {
        let help = "add a table [score] with `unit` and `json`, `pattern` or `reads`";
        let Some(node) = node else {
            self.diagnostics.whole("the campaign has no `score`", help);
            return Vec::new();
        };
        let nodes = match node.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![node],
        };
        if nodes.is_empty() {
            self.diagnostics.at(node.span(), "the campaign has no `score`", help);
        }
        let mut scores: Vec<ScoreSpec> = Vec::new();
        for node in &nodes {
            let Some(score) = self.score(node) else { continue };
            let all = |score: &ScoreSpec| matches!(score.read, Read::Bench { case: None, .. });
            let differs = scores.iter().any(|other| all(other) != all(&score));
            if differs || (all(&score) && nodes.len() > 1 && score.unit.is_empty()) {
                let message = "figures of a report without `case` stand beside such of other units alone";
                let help = "give each score a `case`, or each one a `unit`, or leave out the others";
                self.diagnostics.at(node.span(), message, help);
            }
            if scores.iter().any(|other| other.name == score.name) {
                let message = format!("there are two scores {}", quoted(&score.name));
                self.diagnostics.at(node.span(), message, "give each score a `name` of its own");
            }
            scores.push(score);
        }
        scores
    }

    fn score(&mut self, node: &Node<'_>) -> Option<ScoreSpec> {
        let mut table = Table::of("`score`", node, self.diagnostics)?;
        let name = table.text("name", self.diagnostics);
        let unit = table.text("unit", self.diagnostics);
        let better = table.choice("better", &[("higher", Better::Higher), ("lower", Better::Lower)], self.diagnostics);
        let from = table.choice("from", &[("stdout", Stream::Stdout), ("stderr", Stream::Stderr)], self.diagnostics);
        let (json, pattern, reads) = (table.take("json"), table.take("pattern"), table.take("reads"));
        let case = table.text("case", self.diagnostics);
        let labels = table.take("labels");
        let span = table.span.clone();
        table.finish(self.diagnostics);
        let read = match (json, pattern, reads) {
            (Some(node), None, None) => {
                let path = text("json", node, self.diagnostics)?;
                if let Err(why) = json_path(&path) {
                    self.diagnostics.at(node.span(), why, "write results[0].median or results[case=chain].median");
                }
                Read::Json(path)
            }
            (None, Some(node), None) => {
                let pattern = text("pattern", node, self.diagnostics)?;
                if let Err(why) = compile(&pattern) {
                    let help = "write a regular expression such as '(?<score>[0-9.]+) Mpps'";
                    self.diagnostics.at(node.span(), why, help);
                }
                Read::Pattern(pattern)
            }
            (None, None, Some(node)) => {
                let reader = text("reads", node, self.diagnostics)?;
                if reader != "bellows-bench" {
                    let message = format!("there is no reader {}", quoted(&reader));
                    self.diagnostics.at(node.span(), message, "write reads = \"bellows-bench\", or use `json`");
                }
                Read::Bench { case: case.clone(), labels: self.labels(labels) }
            }
            _ => {
                let message = "a score has exactly one of `json`, `pattern` and `reads`";
                let help = "write json = \"path\", pattern = 'regex with a named group' or reads = \"bellows-bench\"";
                self.diagnostics.at(span, message, help);
                return None;
            }
        };
        let is_bench = matches!(read, Read::Bench { .. });
        if !is_bench && (case.is_some() || labels.is_some()) {
            let help = "remove them, or add reads = \"bellows-bench\"";
            self.diagnostics.at(span.clone(), "`case` and `labels` choose figures of a report of Bellows", help);
        }
        if !is_bench && unit.as_deref().is_none_or(|unit| unit.trim().is_empty()) {
            self.diagnostics.at(span, "the score has no `unit`", "add unit = \"Mpps\", or unit = \"1\" without a unit");
        }
        let is_all = is_bench && case.is_none();
        let name = name.or(case).or_else(|| unit.clone().filter(|_| is_all)).unwrap_or_else(|| "score".to_owned());
        let (unit, from) = (unit.unwrap_or_default(), from.unwrap_or_default());
        Some(ScoreSpec { name, unit, better, read, from })
    }

    fn labels(&mut self, node: Option<&Node<'_>>) -> BTreeMap<String, String> {
        let Some(node) = node else { return BTreeMap::new() };
        let Some(mut table) = Table::of("`labels`", node, self.diagnostics) else { return BTreeMap::new() };
        let mut labels = BTreeMap::new();
        for (name, _, node) in table.rest() {
            match word(node) {
                Some(word) => drop(labels.insert(name.to_owned(), word)),
                None => {
                    let message = format!("the label {} is a word, not {}", quoted(name), called(node.get_ref()));
                    self.diagnostics.at(node.span(), message, "write a text or a number");
                }
            }
        }
        labels
    }

    fn hypotheses(&mut self, node: &Node<'_>, scores: &[ScoreSpec], exclusions: &[Exclusion]) -> Vec<Hypothesis> {
        let nodes = match node.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![node],
        };
        let mut hypotheses: Vec<Hypothesis> = Vec::new();
        for node in nodes {
            let Some(hypothesis) = self.hypothesis(node, scores) else { continue };
            if hypotheses.iter().any(|other| other.name == hypothesis.name) {
                let message = format!("there are two hypotheses {}", quoted(&hypothesis.name));
                self.diagnostics.at(node.span(), message, "give each a `name` of its own");
            }
            self.check_cells(&hypothesis, node, exclusions);
            hypotheses.push(hypothesis);
        }
        hypotheses
    }

    /// Both means have runs.
    fn check_cells(&mut self, hypothesis: &Hypothesis, node: &Node<'_>, exclusions: &[Exclusion]) {
        let place = |name: &String| self.factors.iter().position(|factor| factor.name == *name);
        let label = |combination: &[usize], factor: usize| &self.factors[factor].levels[combination[factor]].label;
        let Some(term) = hypothesis.term.iter().map(place).collect::<Option<Vec<usize>>>() else { return };
        let subset = hypothesis.subset.iter().filter_map(|(name, levels)| Some((place(name)?, levels)));
        let subset: Vec<(usize, &Vec<String>)> = subset.collect();
        let mut have_runs = [false; 2];
        plan::each_combination(&self.factors, |combination| {
            let is_meant = subset.iter().all(|(factor, levels)| levels.contains(label(combination, *factor)));
            if !is_meant || exclusions.iter().any(|exclusion| exclusion.has(combination)) {
                return;
            }
            for (has_runs, levels) in have_runs.iter_mut().zip(&hypothesis.compare) {
                *has_runs |= term.iter().zip(levels).all(|(factor, level)| label(combination, *factor) == level);
            }
        });
        if let Some(without) = have_runs.iter().position(|has_runs| !has_runs) {
            let mean = listed(&hypothesis.compare[without]);
            let message = format!("all runs of the mean {mean} of {} are excluded", quoted(&hypothesis.name));
            self.diagnostics.at(node.span(), message, "compare other levels, or change `where` or `exclude`");
        }
    }

    fn hypothesis(&mut self, node: &Node<'_>, scores: &[ScoreSpec]) -> Option<Hypothesis> {
        let mut table = Table::of("`hypothesis`", node, self.diagnostics)?;
        let name = table.text("name", self.diagnostics);
        let score = self.hypothesis_score(&mut table, scores);
        let term = self.term(&mut table);
        let compare = match (&term, table.take("compare")) {
            (Some(term), Some(node)) => self.compare(term, node),
            (Some(_), None) => {
                let help = "add compare = [\"first\", \"second\"]: the first mean minus the second";
                self.diagnostics.at(node.span(), "the hypothesis has no `compare`", help);
                None
            }
            (None, _) => None,
        };
        let subset = table.take("where").map_or(BTreeMap::new(), |node| self.subset(node));
        let directions = [
            ("greater", Direction::Greater),
            ("less", Direction::Less),
            ("different", Direction::Different),
            ("equal", Direction::Equal),
        ];
        let direction = table.choice("direction", &directions, self.diagnostics).unwrap_or(Direction::Different);
        let margin = table.float("margin", 0.0..=f64::MAX, self.diagnostics).unwrap_or(0.0);
        let level = table.float("level", 1e-9..=0.5, self.diagnostics).unwrap_or(0.05);
        let explored = table.number("explored", 0..=MAX_REPEATS, self.diagnostics).unwrap_or(0) as u32;
        let repeats = table.number("repeats", 1..=MAX_REPEATS, self.diagnostics).map(|repeats| repeats as u32);
        table.finish(self.diagnostics);
        if repeats.is_some_and(|repeats| repeats <= explored) {
            let help = "state more `repeats`: the blocks behind those that were explored can confirm it";
            self.diagnostics.at(node.span(), "no block is left that could confirm the hypothesis", help);
        }
        if direction == Direction::Equal && margin == 0.0 {
            let help = "add margin = …, the difference that does not matter, in the score's unit";
            self.diagnostics.at(node.span(), "that means are equal can be shown only within a `margin`", help);
        }
        let (Some(name), Some(term)) = (&name, &term) else {
            if name.is_none() {
                self.diagnostics.at(node.span(), "the hypothesis has no `name`", "add name = \"…\"");
            }
            return None;
        };
        if let Some(both) = term.iter().find(|factor| subset.contains_key(*factor)) {
            let message = format!("{} is a factor of the term, and chosen by `where`, too", quoted(both));
            self.diagnostics.at(node.span(), message, "remove it from one of them");
        }
        Some(Hypothesis {
            name: name.clone(),
            score: score?,
            term: term.clone(),
            compare: compare?,
            subset,
            direction,
            margin,
            level,
            explored,
            repeats,
        })
    }

    fn hypothesis_score(&mut self, table: &mut Table<'_, '_>, scores: &[ScoreSpec]) -> Option<String> {
        let Some(node) = table.take("score") else {
            if let [only] = scores
                && !matches!(only.read, Read::Bench { case: None, .. })
            {
                return Some(only.name.clone());
            }
            let message = "the campaign may have several scores, and the hypothesis does not say which";
            self.diagnostics.at(table.span.clone(), message, "add score = \"name\"");
            return None;
        };
        let score = text("score", node, self.diagnostics)?;
        let is_any = scores.iter().any(|score| matches!(score.read, Read::Bench { case: None, .. }));
        if !is_any && !scores.iter().any(|other| other.name == score) {
            let help = did_you_mean(&score, scores.iter().map(|score| score.name.as_str()));
            self.diagnostics.at(node.span(), format!("there is no score {}", quoted(&score)), help);
        }
        Some(score)
    }

    fn term(&mut self, table: &mut Table<'_, '_>) -> Option<Vec<String>> {
        let nodes = match (table.take("factor"), table.take("term")) {
            (Some(node), None) => vec![node],
            (None, Some(node)) => items("term", node, self.diagnostics)?,
            _ => Vec::new(),
        };
        if nodes.is_empty() {
            let help = "add factor = \"name\", or term = [\"name\", \"name\"] for the cells of an interaction";
            self.diagnostics.at(table.span.clone(), "a hypothesis has either `factor` or `term`", help);
            return None;
        }
        let mut term = Vec::new();
        for node in nodes {
            let name = text("factor", node, self.diagnostics)?;
            self.known_factor(&name, node.span())?;
            if term.contains(&name) {
                self.diagnostics.at(node.span(), format!("{} is there twice", quoted(&name)), "remove one");
                return None;
            }
            term.push(name);
        }
        Some(term)
    }

    fn compare(&mut self, term: &[String], node: &Node<'_>) -> Option<[Vec<String>; 2]> {
        let means = items("compare", node, self.diagnostics)?;
        let &[first, second] = means.as_slice() else {
            let help = "write compare = [first, second]; the difference is the first minus the second";
            self.diagnostics.at(node.span(), format!("`compare` has {} means, not two", means.len()), help);
            return None;
        };
        let [first, second] = [first, second].map(|mean| self.mean(term, mean));
        let (first, second) = (first?, second?);
        if first == second {
            self.diagnostics.at(node.span(), "`compare` has the same mean twice", "name two different ones");
            return None;
        }
        Some([first, second])
    }

    /// A level for each factor of the term: a word for one factor, else a table.
    fn mean(&mut self, term: &[String], node: &Node<'_>) -> Option<Vec<String>> {
        let index = |name: &str, factors: &[Factor]| factors.iter().position(|factor| factor.name == name);
        if let ([only], Some(label)) = (term, word(node)) {
            let factor = index(only, &self.factors)?;
            self.known_level(factor, node)?;
            return Some(vec![label]);
        }
        let mut table = Table::of("a mean of several factors", node, self.diagnostics)?;
        let mut chosen = BTreeMap::new();
        for (name, span, node) in table.rest() {
            if !term.iter().any(|factor| factor == name) {
                let help = did_you_mean(name, term.iter().map(String::as_str));
                self.diagnostics.at(span, format!("{} is no factor of the term", quoted(name)), help);
                return None;
            }
            let factor = index(name, &self.factors)?;
            let level = self.known_level(factor, node)?;
            chosen.insert(name.to_owned(), self.factors[factor].levels[level].label.clone());
        }
        let levels: Option<Vec<String>> = term.iter().map(|factor| chosen.remove(factor)).collect();
        if levels.is_none() {
            let message = format!("a mean has a level for each of {}", listed(term));
            self.diagnostics.at(node.span(), message, "add the missing ones");
        }
        levels
    }

    fn subset(&mut self, node: &Node<'_>) -> BTreeMap<String, Vec<String>> {
        let Some(mut table) = Table::of("`where`", node, self.diagnostics) else { return BTreeMap::new() };
        let mut subset = BTreeMap::new();
        for (name, span, node) in table.rest() {
            if let Some(factor) = self.known_factor(name, span)
                && let Some(levels) = self.known_levels(factor, node)
            {
                let labels = levels.into_iter().map(|level| self.factors[factor].levels[level].label.clone());
                subset.insert(name.to_owned(), labels.collect());
            }
        }
        subset
    }
}

/// Seconds of a text such as `1.5 min`.
fn parse_duration(text: &str) -> Option<f64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    let scale = match text[split..].trim() {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    Some(number * scale)
}

/// Whether a text can be the name of a factor or of one of its values.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.len() <= 64
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
