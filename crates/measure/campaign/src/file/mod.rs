//! Reads a campaign file: TOML to a [`Campaign`], with errors that point at the text.
//!
//! | module | part of the file |
//! |---|---|
//! | `factors` | `[factors]` and `exclude` |
//! | `commands` | `command`, `prepare` and the others, `[environment]`, `[versions]` |
//! | `settings` | `time_limit`, `cpus`, `disturbance` |
//! | `scores` | `[score]` |
//! | `hypotheses` | `[[hypothesis]]` |
//! | `builds` | `[build]` and `paired` |

mod builds;
mod commands;
mod factors;
mod hypotheses;
mod scores;
mod settings;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellows_sys::FileError;
use toml::de::DeTable;

use crate::campaign::{Campaign, Disturbance, Exclusion, Factor};
use crate::diagnostics::Diagnostics;
use crate::plan::MAX_RUNS;
use crate::table::KeyTable;
use commands::Scope;

/// Maximum size of a campaign file, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Maximum number of repeats.
const MAX_REPEATS: u64 = 1_000_000;

const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(3_600);

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
        let FileError { message, help } = FileError::reading(path, &error);
        (message, help)
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
        let mut table = KeyTable::new("a campaign file", root, 0..0);
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
}

/// Whether a text can be the name of a factor or of one of its values.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.len() <= 64
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
