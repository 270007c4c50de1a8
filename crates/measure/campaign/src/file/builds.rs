//! How two versions are made, and which factor they are.

use std::path::{Component, Path, PathBuf};

use super::commands::Scope;
use super::{DEFAULT_TIME_LIMIT, File, is_name};
use crate::campaign::{Build, LAST_TAG};
use crate::diagnostics::quoted;
use crate::folder::is_column;
use crate::table::{KeyTable, TableNode, text};

/// The factor whose levels are two builds, unless the file gives it another name.
const VERSION: &str = "version";

impl File<'_> {
    /// The table `build`, and the name of its factor.
    pub(super) fn build(&mut self, node: &TableNode<'_>) -> (Build, String) {
        let mut build = Build {
            command: None,
            program: None,
            toolchain: None,
            time_limit: DEFAULT_TIME_LIMIT,
            base: None,
            otherwise: None,
            versions: None,
        };
        let mut factor = VERSION.to_owned();
        let Some(mut table) = KeyTable::of("`build`", node, self.diagnostics) else { return (build, factor) };
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
        build.toolchain = table.take("toolchain").and_then(|node| self.command("toolchain", node, Scope::Session));
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
    pub(super) fn paired(&mut self, node: &TableNode<'_>, has_build: bool) -> Option<String> {
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
}
