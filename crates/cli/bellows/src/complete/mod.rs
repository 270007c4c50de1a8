//! Shell completion: subcommands and options, the parts of `show`, app types, running networks, and their apps and
//! links.
//!
//! A shell's script (`bellows completions SHELL`) calls the program with the words typed so far, and with the shell's
//! name in the variable [`VARIABLE`]. The candidates are computed at each call.
//!
//! A candidate becomes part of a command that runs when a person presses Enter, and may be the name of a file, or come
//! from another user's network. Zsh, fish and elvish quote what they insert; for bash and PowerShell it is [quoted] here.

mod quoted;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use bellows_config::Registry;
use bellows_observe::{Directory, Observer, RuntimeDir};
use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter};
use clap_complete::env::{CompleteEnv, Elvish, EnvCompleter, Fish, Shells, Zsh};
use quoted::{Bash, Powershell};

/// The variable by which a shell's script requests candidates.
const VARIABLE: &str = "BELLOWS_COMPLETE";

/// The shells that have a script.
const SHELLS: Shells<'_> = Shells(&[&Bash, &Elvish, &Fish, &Powershell, &Zsh]);

/// A part of `show`, and its description.
pub type DescribedPart = (&'static str, &'static str);

/// Answers a shell that requests candidates.
pub fn answer(
    definition: &Command,
    registry: &Registry,
    parts: &[DescribedPart],
    arguments: &[OsString],
) -> Option<ExitCode> {
    std::env::var(VARIABLE).ok()?;
    let apps: Vec<(String, String)> = registry.summaries().map(|(name, summary)| (name.to_owned(), summary)).collect();
    let factory = || with_candidates(definition.clone(), &apps, parts);
    let folder = std::env::current_dir().ok();
    match CompleteEnv::with_factory(factory).shells(SHELLS).var(VARIABLE).try_complete(arguments, folder.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        // At the prompt nobody wants to read an error.
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// The script for a shell; `None` for an unknown shell.
pub fn script(shell: &str, name: &str) -> Option<String> {
    let completer: &dyn EnvCompleter = SHELLS.completer(shell)?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, name, name, &program(name), &mut script).ok()?;
    let mut script = String::from_utf8(script).ok()?;
    if shell == "zsh" {
        // A file in `fpath` is run by the first completion, and must answer it.
        let function = format!("_clap_dynamic_completer_{}", name.replace('-', "_"));
        script += &format!("if [[ \"${{funcstack[1]}}\" == \"_{name}\" ]]; then\n    {function} \"$@\"\nfi\n");
    }
    Some(script)
}

/// The command by which a script finds this program: its name if it is on the path, else its current path.
fn program(name: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let here = || std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
    if on_path { name.to_owned() } else { here().unwrap_or_else(|| name.to_owned()) }
}

/// The command line's definition, with candidates for its arguments.
pub fn with_candidates(definition: Command, apps: &[(String, String)], parts: &[DescribedPart]) -> Command {
    let parts = parts.to_vec();
    let mut types = apps.to_vec();
    let app_types = candidates(move || types.clone());
    types = apps.to_vec();
    types.push(("engine".to_owned(), "the settings in [engine]".to_owned()));
    let manuals = candidates(move || types.clone());
    let networks = || candidates(networks);
    let running_apps = || candidates(app_names);
    let network_files = || ArgValueCompleter::new(PathCompleter::any().filter(is_network_file));
    // What an argument of this name means in every command.
    let usual = definition.mut_subcommands(|command| {
        let is_about_networks = command.get_arguments().any(|argument| argument.get_id() == "named");
        command.mut_args(|argument| match argument.get_id().as_str() {
            "network" | "path" | "paths" => argument.add(network_files()),
            "named" | "name" | "names" if is_about_networks => argument.add(networks()),
            "app" if is_about_networks => argument.add(running_apps()),
            _ => argument,
        })
    });
    [
        ("apps", "name", manuals),
        ("appbench", "apps", app_types),
        ("show", "first", candidates(move || parts_and_networks(&parts))),
        ("show", "second", candidates(networks_and_devices)),
        ("tap", "link", candidates(link_names)),
        ("clear", "name", candidates(cleared)),
        ("clear", "second", networks()),
        ("place", "keep", running_apps()),
        ("route", "words", candidates(route_actions)),
        ("esp", "words", candidates(esp_words)),
    ]
    .into_iter()
    .fold(usual, |definition, (command, argument, completer)| with_completer(definition, command, argument, completer))
}

/// Sets the candidates of a subcommand's argument, if it has this argument.
fn with_completer(definition: Command, command: &'static str, argument: &str, completer: ArgValueCompleter) -> Command {
    if !has_argument(&definition, command, argument) {
        return definition;
    }
    definition.mut_subcommand(command, |command| command.mut_arg(argument, |argument| argument.add(completer)))
}

fn has_argument(definition: &Command, command: &str, argument: &str) -> bool {
    definition.find_subcommand(command).is_some_and(|command| command.get_arguments().any(|it| it.get_id() == argument))
}

/// A completer that collects all candidates with their descriptions, and keeps those that begin with the word.
fn candidates(all: impl Fn() -> Vec<(String, String)> + Send + Sync + 'static) -> ArgValueCompleter {
    ArgValueCompleter::new(move |word: &OsStr| {
        let word = word.to_string_lossy();
        let all = all().into_iter().filter(|(value, _)| value.starts_with(&*word));
        all.map(|(value, help)| CompletionCandidate::new(value).help(Some(help.into()))).collect()
    })
}

/// What `clear` can clear.
fn cleared() -> Vec<(String, String)> {
    [("mac".to_owned(), "MAC addresses that bridges have learned".to_owned())].into_iter().chain(networks()).collect()
}

/// The actions of `route`.
fn route_actions() -> Vec<(String, String)> {
    let actions = [
        ("add", "enter a route"),
        ("append", "add next hops to a route"),
        ("replace", "enter a route in place of one"),
        ("del", "remove a route"),
        ("replace-all", "replace all routes by those of a file"),
        ("show", "print routes"),
        ("lookup", "print the route of an address"),
        ("flush", "remove routes"),
    ];
    actions.map(|(action, what)| (action.to_owned(), what.to_owned())).to_vec()
}

/// The words of `esp`.
fn esp_words() -> Vec<(String, String)> {
    let actions = [
        ("show", "print the pairs of associations"),
        ("rekey", "replace the keys of a pair"),
        ("forget", "remove the saved keys of a pair"),
    ];
    actions.map(|(action, what)| (action.to_owned(), what.to_owned())).into_iter().chain(networks()).collect()
}

/// The running and crashed networks.
fn networks() -> Vec<(String, String)> {
    let state =
        |runtime_dir: &RuntimeDir| if runtime_dir.process().is_some() { "running network" } else { "crashed network" };
    RuntimeDir::all().iter().map(|runtime_dir| (runtime_dir.name(), state(runtime_dir).to_owned())).collect()
}

/// The candidates after `show`.
fn parts_and_networks(parts: &[DescribedPart]) -> Vec<(String, String)> {
    let parts = parts.iter().map(|(name, what)| ((*name).to_owned(), (*what).to_owned()));
    parts.chain(networks()).collect()
}

/// The candidates after a part of `show`; `show vhost` also accepts an app.
fn networks_and_devices() -> Vec<(String, String)> {
    networks().into_iter().chain(devices()).collect()
}

/// The apps and links named by the counters of all networks.
fn directories() -> Vec<(String, Directory)> {
    let directory =
        |runtime_dir: RuntimeDir| Some((runtime_dir.name(), Observer::open(runtime_dir).ok()?.directory().clone()));
    RuntimeDir::all().into_iter().filter_map(directory).collect()
}

/// The apps of all networks.
fn app_names() -> Vec<(String, String)> {
    let apps = |(network, directory): (String, Directory)| {
        directory.apps.into_iter().map(move |app| (app.name, format!("{} in {network}", app.kind)))
    };
    directories().into_iter().flat_map(apps).collect()
}

/// The apps that `show vhost` accepts.
fn devices() -> Vec<(String, String)> {
    let kinds = ["vhost-user in ", "virtio-user in "];
    app_names().into_iter().filter(|(_, what)| kinds.iter().any(|kind| what.starts_with(kind))).collect()
}

/// The links of all networks, as written in the network file.
fn link_names() -> Vec<(String, String)> {
    let links = |(network, directory): (String, Directory)| {
        let links = directory.links.into_iter().map(|link| format!("{} -> {}", link.from, link.to));
        links.map(move |link| (link, format!("link of {network}")))
    };
    directories().into_iter().flat_map(links).collect()
}

/// Files that may be networks, and folders, where all files may be.
fn is_network_file(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_script() {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            assert!(script(shell, "bellows").unwrap().contains(VARIABLE), "{shell}");
        }
        assert_eq!(script("tcsh", "bellows"), None);
    }
}
