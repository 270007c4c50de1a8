//! Shells that insert candidates as they are: each is written as a word that the shell reads as the candidate, whatever
//! characters it has.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use bellows_sys::text::is_hidden;
use clap::Command;
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::{self, EnvCompleter};

/// The position of the word to complete.
const INDEX: &str = "_BELLOWS_INDEX";

/// The quotation mark with which the word begins, or another character.
const QUOTE: &str = "_BELLOWS_QUOTE";

/// What every shell reads as it is, anywhere in a word.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:@+%,=".contains(c))
}

/// The candidate as text without invisible characters; `None` if it has others.
fn shown(candidate: &CompletionCandidate) -> Option<&str> {
    candidate.get_value().to_str().filter(|value| !value.contains(is_hidden))
}

/// Completion for bash.
pub struct Bash;

/// The script for bash. A word in quotes is completed as well: the line has its first character, which `$2` has not.
const SCRIPT: &str = r#"
_clap_complete_NAME() {
    local words=("${COMP_WORDS[@]}")
    words[COMP_CWORD]="$2"
    mapfile -t COMPREPLY < <( \
        INDEX="$COMP_CWORD" \
        QUOTE="${COMP_WORDS[COMP_CWORD]:0:1}" \
        VAR="bash" \
        COMPLETER -- "${words[@]}" 2> /dev/null \
    )
    if [[ "${COMPREPLY-}" =~ [=/:][\"\']?$ ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
complete -o bashdefault -o nosort -F _clap_complete_NAME BIN
"#;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        program: &str,
        completer: &str,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let script = SCRIPT.replace("INDEX", INDEX).replace("QUOTE", QUOTE).replace("VAR=", &format!("{variable}="));
        let script = script.replace("NAME", &name.replace('-', "_")).replace("BIN", &for_bash(program, None));
        writeln!(to, "{}", script.replace("COMPLETER", &for_bash(completer, None)))
    }

    fn write_complete(
        &self,
        command: &mut Command,
        mut words: Vec<OsString>,
        folder: Option<&Path>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let index = variable(INDEX).parse().unwrap_or_default();
        let quote = variable(QUOTE).chars().next().filter(|c| matches!(c, '\'' | '"'));
        if let Some(word) = words.get_mut(index) as Option<&mut OsString> {
            *word = read_by_bash(&word.to_string_lossy(), quote).into();
        }
        let candidates = complete(command, words, index, folder)?;
        candidates.iter().filter_map(shown).try_for_each(|value| writeln!(to, "{}", for_bash(value, quote)))
    }
}

/// A value as a word of bash. If the word that it completes begins with a quotation mark, so does this.
fn for_bash(value: &str, quote: Option<char>) -> String {
    match quote {
        None if is_plain(value) => value.to_owned(),
        Some('"') => {
            let mut word = String::from("\"");
            for c in value.chars() {
                match c {
                    // An old command would take its place, and a backslash would stay.
                    '!' => word.push_str("\"'!'\""),
                    '"' | '\\' | '$' | '`' => word.extend(['\\', c]),
                    c => word.push(c),
                }
            }
            word + "\""
        }
        _ => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

/// What bash reads in a word that is not complete, and may lack the quotation mark with which it begins.
fn read_by_bash(word: &str, quote: Option<char>) -> String {
    let mut open = quote.filter(|&mark| !word.starts_with(mark));
    let (mut value, mut chars) = (String::new(), word.chars());
    while let Some(c) = chars.next() {
        match (c, open) {
            ('\'' | '"', None) => open = Some(c),
            (c, Some(mark)) if c == mark => open = None,
            ('\\', None) => value.extend(chars.next()),
            ('\\', Some('"')) => match chars.next() {
                Some(next @ ('"' | '\\' | '$' | '`')) => value.push(next),
                next => value.extend([c].into_iter().chain(next)),
            },
            _ => value.push(c),
        }
    }
    value
}

/// Completion for PowerShell.
pub struct Powershell;

impl EnvCompleter for Powershell {
    fn name(&self) -> &'static str {
        env::Powershell.name()
    }

    fn is(&self, name: &str) -> bool {
        env::Powershell.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        program: &str,
        completer: &str,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        env::Powershell.write_registration(variable, name, program, completer, to)
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let index = words.len().saturating_sub(1);
        for candidate in complete(command, words, index, folder)? {
            let Some(value) = shown(&candidate) else { continue };
            write!(to, "{}", for_powershell(value))?;
            if let Some(help) = candidate.get_help() {
                write!(to, "\t{}", help.to_string().lines().next().unwrap_or_default())?;
            }
            writeln!(to)?;
        }
        Ok(())
    }
}

/// A value as a word of PowerShell, for which some quotation marks beyond ASCII end a text, too.
fn for_powershell(value: &str) -> String {
    if is_plain(value) && !value.contains(['@', '%', ',']) {
        return value.to_owned();
    }
    let doubled = |c: char| if "'\u{2018}\u{2019}\u{201a}\u{201b}".contains(c) { vec![c, c] } else { vec![c] };
    format!("'{}'", value.chars().flat_map(doubled).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_words_stay_as_they_are() {
        for word in ["nobody/edge", "examples/a-1.toml", "edge", "eth0:1"] {
            assert_eq!((for_bash(word, None), for_powershell(word)), (word.to_owned(), word.to_owned()));
        }
        assert_eq!(for_bash("a -> b", None), "'a -> b'");
        assert_eq!(for_powershell("a'$(b)"), "'a''$(b)'");
        assert_eq!((read_by_bash("a b", Some('\'')), read_by_bash("a\\ b'c d", None)), ("a b".into(), "a bc d".into()));
    }

    /// What bash makes of words.
    fn read(words: &[String]) -> Vec<String> {
        let script = format!("set +o histexpand; printf '%s\\0' {}", words.join(" "));
        let output = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bash_reads_a_word_as_its_value(
            values in prop::collection::vec("[ -~äö$`'\"\\\\!*?#(){};&|<>]{1,12}", 1..8),
        ) {
            for quote in [None, Some('\''), Some('"')] {
                let words: Vec<String> = values.iter().map(|value| for_bash(value, quote)).collect();
                prop_assert_eq!(read(&words), values.clone(), "{:?}", words);
                for (word, value) in words.iter().zip(&values) {
                    prop_assert!(quote.is_none_or(|quote| word.starts_with(quote)));
                    prop_assert_eq!(&read_by_bash(word, quote), value);
                    // As the line editor gives it: without the mark with which it begins. One behind it is ambiguous.
                    let Some(quote) = quote else { continue };
                    let rest = word.strip_prefix(quote).unwrap();
                    prop_assert!(rest.starts_with(quote) || read_by_bash(rest, Some(quote)) == *value, "{rest:?}");
                }
            }
        }
    }
}
