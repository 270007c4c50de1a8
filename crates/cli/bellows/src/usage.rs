//! The output for command lines that cannot be parsed, and for requests for help.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::terminal;

/// Subcommand names of other programs, and the equivalents here.
const OTHER_WORDS: &[(&[&str], &str)] = &[
    (
        &["start", "exec", "launch", "up"],
        "`bellows run NETWORK` runs a network in the foreground; a service manager or `&` puts it into the background",
    ),
    (&["kill", "quit", "down", "shutdown"], "`bellows stop NAME` ends a running network"),
    (
        &["restart"],
        "`bellows reload NAME` swaps a changed network in; `bellows stop NAME` and `bellows run NETWORK` start it anew",
    ),
    (&["capture", "dump", "tcpdump", "pcap"], "`bellows tap NAME LINK` captures the packets of a link"),
    (&["test", "lint", "verify"], "`bellows check NETWORK` finds the mistakes in a network file"),
    (
        &["watch", "monitor", "htop"],
        "`bellows top NAME` shows live rates; `bellows run --watch` reloads a changed file",
    ),
    (
        &[
            "counters",
            "links",
            "interfaces",
            "interface",
            "int",
            "errors",
            "latency",
            "config",
            "hot",
            "vhost",
            "breath",
        ],
        "it is a part of `show`: `bellows show PART NAME`",
    ),
    (&["plot", "draw", "dot"], "`bellows graph NETWORK` draws a network"),
    (
        &["log", "logs", "history"],
        "`bellows events NAME` prints what happened; the log of a network goes to the standard error of its `bellows run`",
    ),
    (&["health", "healthcheck", "probe"], "`bellows ps NAME --probe` exits with a code for the health of a network"),
    (
        &["benchmark", "perf"],
        "`bellows appbench APP` measures an app, `bellows bench` the engine, and `bellows show run` a running network",
    ),
];

/// Suggests the subcommand that a typo means, as for all other names. The parser takes `rnu` for the alias `r`.
fn suggest(error: &mut clap::Error, definition: &clap::Command) {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let names = definition.get_subcommands().map(clap::Command::get_name);
    if let Some(near) = bellows_config::nearest(word, names) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near.to_owned()]));
    }
}

/// Prints help to standard output, and an error with a hint to standard error.
pub fn print(mut error: clap::Error, definition: &clap::Command) -> ExitCode {
    suggest(&mut error, definition);
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((_, remedy)) = OTHER_WORDS.iter().find(|(words, _)| words.contains(&word.as_str()))
    {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*remedy).to_owned().into()]));
    }
    let text = error.render().to_string();
    if error.use_stderr() {
        terminal::fail(&text);
    } else if let Err(error) = terminal::print(&text) {
        terminal::fail(&format!("error: cannot write the output: {error}\n"));
        return ExitCode::from(1);
    }
    ExitCode::from(error.exit_code() as u8)
}
