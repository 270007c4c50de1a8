//! The command line. Help, completions and man pages are generated from these definitions.

use clap::Parser;

use crate::arguments::Logging;
use crate::command_error::EXIT_CODES;
use crate::commands::Subcommand;

/// Run networks of packet-processing apps, and see what they do
///
/// A network file (TOML) names apps and the links between them. `bellows run FILE` runs the network and reports where
/// each packet went. The other commands check, draw and measure networks, and inspect running ones.
#[derive(Debug, Parser)]
#[command(name = "bellows", version = env!("BELLOWS_VERSION"), after_long_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub logging: Logging,
    #[command(subcommand)]
    pub command: Subcommand,
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;

    /// The width at which lists and examples are not wrapped.
    const WIDTH: usize = 80;

    /// The help texts of a command, its arguments and its subcommands: where, how far they are indented, and the text.
    fn texts(command: &Command, path: &str) -> Vec<(String, usize, String)> {
        let path = format!("{path} {}", command.get_name());
        let own =
            [command.get_about(), command.get_long_about(), command.get_after_help(), command.get_after_long_help()];
        let own = own.into_iter().flatten().map(|text| (path.clone(), 0, text.to_string()));
        let arguments = command.get_arguments().flat_map(|argument| {
            let helps = [argument.get_help(), argument.get_long_help()].into_iter().flatten().map(ToString::to_string);
            let values = argument.get_possible_values();
            let values = values.iter().filter_map(|value| Some(value.get_help()?.to_string())).collect::<Vec<_>>();
            helps.chain(values).map(|text| (format!("{path} {}", argument.get_id()), 10, text)).collect::<Vec<_>>()
        });
        let below = command.get_subcommands().flat_map(|command| texts(command, &path));
        own.chain(arguments).chain(below).collect()
    }

    /// What would be wrapped a second time: a paragraph or an item of a list that is broken already, and a row of a list
    /// or an example that does not fit.
    fn faults(text: &str, indent: usize) -> Vec<String> {
        let depth = |line: &str| line.len() - line.trim_start().len();
        let is_row = |line: &str| line.trim().contains("  ");
        let lines: Vec<&str> = text.lines().collect();
        let mut faults = Vec::new();
        let mut is_description = false;
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let next = lines.get(index + 1).filter(|next| !next.trim().is_empty());
            let is_example = line.trim_start().starts_with("bellows ");
            if (is_row(line) || is_example && depth(line) > 0) && indent + line.chars().count() > WIDTH {
                faults.push(format!("too long: {line}"));
            }
            let Some(next) = next else {
                is_description = false;
                continue;
            };
            let heads = line.ends_with(':');
            let is_paragraph = depth(line) == 0 && depth(next) == 0 && !heads;
            let is_continued = is_row(line) && depth(next) > depth(line);
            if is_paragraph || is_continued || is_description && depth(next) >= depth(line) {
                faults.push(format!("broken: {line}\n{next}"));
            }
            is_description = depth(next) > depth(line) && !heads;
        }
        faults
    }

    #[test]
    fn help_is_wrapped_by_the_terminal_alone() {
        let broken = ["one line\nof two", "List:\n  0  what it is,\n     in short", "  key\n      what it\n      is"];
        for text in broken {
            assert_eq!(faults(text, 0).len(), 1, "{text}");
        }
        assert_eq!(faults(&format!("  key  {}", "x".repeat(64)), 10).len(), 1);
        let fine = "One.\n\nList:\n  0  nothing\n  1  all\n\nExamples:\n  bellows ps\n  bellows top\n\n  key\n      what\n  one";
        assert_eq!(faults(fine, 10), [""; 0]);
        let texts = texts(&Cli::command(), "");
        assert!(texts.len() > 300, "{}", texts.len());
        let found = |(place, indent, text): &(String, usize, String)| {
            faults(text, *indent).into_iter().map(|fault| format!("{place}: {fault}\n")).collect::<String>()
        };
        let found: String = texts.iter().map(found).collect();
        assert!(found.is_empty(), "{found}");
    }
}
