//! What the shells complete: beside the subcommands and options, the parts of `show`, app types, running networks, and
//! their apps and links.
//!
//! A shell's script (`bellows completions SHELL`) calls the program with the words typed so far, and with the shell's name in
//! the variable [`VARIABLE`]. The candidates are those of the moment.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use bellows_config::{Entry, Registry};
use bellows_observe::{Directory, Observer, RuntimeDir};
use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter};
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};

/// The variable by which a shell's script asks for candidates.
const VARIABLE: &str = "BELLOWS_COMPLETE";

/// A part of `show`, and what it shows.
pub type Part = (&'static str, &'static str);

/// Answers a shell that asks for candidates.
pub fn answer(definition: &Command, registry: &Registry, parts: &[Part], arguments: &[OsString]) -> Option<ExitCode> {
    let shell = std::env::var(VARIABLE).ok()?;
    let apps: Vec<(String, String)> = registry.entries().map(described).collect();
    // Only bash takes candidates as they are; the others quote them.
    let quote = shell == "bash";
    let factory = || with_candidates(definition.clone(), &apps, parts, quote);
    let folder = std::env::current_dir().ok();
    match CompleteEnv::with_factory(factory).var(VARIABLE).try_complete(arguments, folder.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        // At the prompt nobody wants to read why.
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// The script for a shell; `None` for one that is not known.
pub fn script(shell: &str, name: &str) -> Option<String> {
    let shells = Shells::builtins();
    let completer: &dyn EnvCompleter = shells.completer(shell)?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, name, name, &program(name), &mut script).ok()?;
    let mut script = String::from_utf8(script).ok()?;
    if shell == "zsh" {
        // As a file in `fpath` the script is run when the first completion is asked for, and is to answer it.
        let function = format!("_clap_dynamic_completer_{}", name.replace('-', "_"));
        script += &format!("if [[ \"${{funcstack[1]}}\" == \"_{name}\" ]]; then\n    {function} \"$@\"\nfi\n");
    }
    Some(script)
}

/// How a script finds this program: by its name if it is on the path, else where it is now.
fn program(name: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let here = || std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
    if on_path { name.to_owned() } else { here().unwrap_or_else(|| name.to_owned()) }
}

fn described(entry: &Entry) -> (String, String) {
    (entry.name().to_owned(), entry.summary())
}

/// The definition, in which arguments know their candidates.
pub fn with_candidates(definition: Command, apps: &[(String, String)], parts: &[Part], quote: bool) -> Command {
    let parts = parts.to_vec();
    let mut types = apps.to_vec();
    let app_types = candidates(move || types.clone());
    types = apps.to_vec();
    types.push(("engine".to_owned(), "the settings in [engine]".to_owned()));
    let manuals = candidates(move || types.clone());
    let networks = || candidates(networks);
    let running_apps = || candidates(app_names);
    let network_files = || ArgValueCompleter::new(PathCompleter::any().filter(is_network_file));
    let links = ArgValueCompleter::new(move |word: &OsStr| link_candidates(word, quote));
    let mut definition = definition;
    for (command, argument, completer) in [
        ("apps", "name", manuals),
        ("appbench", "apps", app_types),
        ("appbench", "network", network_files()),
        ("run", "path", network_files()),
        ("check", "path", network_files()),
        ("graph", "network", network_files()),
        ("graph", "name", networks()),
        ("show", "first", candidates(move || parts_and_networks(&parts))),
        ("show", "second", candidates(networks_and_devices)),
        ("show", "app", running_apps()),
        ("top", "name", networks()),
        ("trace", "name", networks()),
        ("trace", "app", running_apps()),
        ("tap", "name", networks()),
        ("tap", "link", links),
        ("clear", "name", networks()),
        ("timeline", "name", networks()),
        ("reload", "name", networks()),
        ("reload", "network", network_files()),
        ("stop", "names", networks()),
    ] {
        definition = with_completer(definition, command, argument, completer);
    }
    definition
}

/// Gives an argument of a subcommand its candidates, if it has the argument.
fn with_completer(definition: Command, command: &'static str, argument: &str, completer: ArgValueCompleter) -> Command {
    if !has_argument(&definition, command, argument) {
        return definition;
    }
    definition.mut_subcommand(command, |command| command.mut_arg(argument, |argument| argument.add(completer)))
}

fn has_argument(definition: &Command, command: &str, argument: &str) -> bool {
    definition.find_subcommand(command).is_some_and(|command| command.get_arguments().any(|it| it.get_id() == argument))
}

/// A completer that asks for all candidates, each with what it means, and takes those that begin as the word does.
fn candidates(all: impl Fn() -> Vec<(String, String)> + Send + Sync + 'static) -> ArgValueCompleter {
    ArgValueCompleter::new(move |word: &OsStr| {
        let word = word.to_string_lossy();
        let all = all().into_iter().filter(|(value, _)| value.starts_with(&*word));
        all.map(|(value, help)| CompletionCandidate::new(value).help(Some(help.into()))).collect()
    })
}

/// The networks that run or have crashed.
fn networks() -> Vec<(String, String)> {
    let state =
        |runtime_dir: &RuntimeDir| if runtime_dir.process().is_some() { "running network" } else { "crashed network" };
    RuntimeDir::all().iter().map(|runtime_dir| (runtime_dir.name(), state(runtime_dir).to_owned())).collect()
}

/// What can follow `show`.
fn parts_and_networks(parts: &[Part]) -> Vec<(String, String)> {
    let parts = parts.iter().map(|(name, what)| ((*name).to_owned(), (*what).to_owned()));
    parts.chain(networks()).collect()
}

/// What can follow a part; `show vhost` also takes an app.
fn networks_and_devices() -> Vec<(String, String)> {
    networks().into_iter().chain(devices()).collect()
}

/// What the counters of all networks are of.
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

/// The apps that `show vhost` takes.
fn devices() -> Vec<(String, String)> {
    let kinds = ["vhost-user in ", "virtio-user in "];
    app_names().into_iter().filter(|(_, what)| kinds.iter().any(|kind| what.starts_with(kind))).collect()
}

/// The links of all networks, as the network file has them. They hold blanks, which some shells want quoted.
fn link_candidates(word: &OsStr, quote: bool) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    let typed = word.trim_start_matches(['\'', '"']);
    let links = |(network, directory): (String, Directory)| {
        directory.links.into_iter().map(move |link| (format!("{} -> {}", link.from, link.to), network.clone()))
    };
    let links = directories().into_iter().flat_map(links).filter(|(link, _)| link.starts_with(typed));
    let written = |link: String| if quote { format!("'{link}'") } else { link };
    links
        .map(|(link, network)| CompletionCandidate::new(written(link)).help(Some(format!("link of {network}").into())))
        .collect()
}

/// Files that may be networks; all files lie in folders that are offered too.
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
