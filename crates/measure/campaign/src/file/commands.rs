//! Commands, and what they may fill in.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::File;
use crate::campaign::Command;
use crate::diagnostics::{did_you_mean, listed, quoted};
use crate::table::{KeyTable, TableNode, called, text, word};
use crate::template::{Placeholder, PlaceholderValue, Template};

/// What a build command may fill in: the folder of the checked out revision, that for what it makes, and the commit.
const BUILD_NAMES: [&str; 3] = ["source", "build", "commit"];

/// What the placeholders of a command stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The levels of a run.
    Run,
    /// Nothing: it is not that of a run.
    Session,
    /// The folders of a build.
    Build,
}

impl File<'_> {
    /// A list of commands, or one command.
    pub(super) fn commands(&mut self, key: &str, node: &TableNode<'_>, scope: Scope) -> Vec<Command> {
        match node.get_ref() {
            DeValue::Array(array)
                if array.iter().any(|node| matches!(node.get_ref(), DeValue::Array(_) | DeValue::Table(_))) =>
            {
                array.iter().filter_map(|node| self.command(key, node, scope)).collect()
            }
            _ => self.command(key, node, scope).into_iter().collect(),
        }
    }

    pub(super) fn command(&mut self, key: &str, node: &TableNode<'_>, scope: Scope) -> Option<Command> {
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
                let mut table = KeyTable::new(format!("`{key}`"), table, node.span());
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
    fn template(&mut self, text: &str, node: &TableNode<'_>, scope: Scope, is_shell: bool) -> Option<Template> {
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
                Some(PlaceholderValue::Words(_)) if !is_alone => {
                    let message =
                        format!("`{key}` of {} is a list, which cannot be a part of an argument", quoted(name));
                    return Err((message, format!("make \"{{{name}.{key}}}\" an argument of its own")));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn environment(&mut self, node: &TableNode<'_>) -> BTreeMap<String, Template> {
        let Some(mut table) = KeyTable::of("`environment`", node, self.diagnostics) else { return BTreeMap::new() };
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

    pub(super) fn versions(&mut self, node: &TableNode<'_>) -> BTreeMap<String, Command> {
        let Some(mut table) = KeyTable::of("`versions`", node, self.diagnostics) else { return BTreeMap::new() };
        let rest = table.rest();
        rest.into_iter()
            .filter_map(|(name, _, node)| Some((name.to_owned(), self.command(name, node, Scope::Session)?)))
            .collect()
    }
}
