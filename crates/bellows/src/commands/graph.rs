//! `bellows graph`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bellows_config::Registry;
use bellows_engine::{MAIN, Network, Ports, closing_links};
use bellows_graph::{Edge, Graph, Node};
use bellows_inspect::networks::{self, Change, Sample, State};
use bellows_observe::Snapshot;
use clap::{Args, ValueEnum};

use crate::arguments::NetworkFile;
use crate::charset;
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{bit_rate, packet_rate, plural};

/// Draw a network, or a running one with its rates
///
/// If apps have several workers, each worker's apps are framed, or named with it after an `@` in text, and links between
/// workers are dashed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Network file (TOML), or - for standard input; optional with --name
    #[arg(value_name = "NETWORK", required_unless_present = "name")]
    network: Option<PathBuf>,
    /// Override a key of the file, such as `engine.burst=32` (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "network")]
    overrides: Vec<String>,
    /// Show the rates of this running network
    ///
    /// Without a file, the network is drawn as it runs.
    #[arg(long)]
    name: Option<String>,
    /// The picture's format [default: that of the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to this file: .txt, .dot, .gv or .svg [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The formats of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Box characters, for the terminal
    Text,
    /// For Graphviz
    Dot,
    /// For documents and browsers
    Svg,
}

impl Format {
    /// The format for a file's extension. A file without an extension gets text.
    fn of_file(path: &Path) -> Result<Format, CommandError> {
        let Some(extension) = path.extension() else { return Ok(Format::Text) };
        let extension = extension.to_string_lossy().to_lowercase();
        match &*extension {
            "svg" => Ok(Format::Svg),
            "dot" | "gv" => Ok(Format::Dot),
            "txt" | "text" => Ok(Format::Text),
            other => Err(CommandError::Usage(unknown_extension(path, other))),
        }
    }
}

/// The error for an extension without a format. It suggests commands that make the usual formats.
fn unknown_extension(path: &Path, extension: &str) -> String {
    let path = path.display();
    let way_out = match extension {
        "png" | "jpg" | "jpeg" | "gif" | "webp" | "bmp" | "pdf" | "ps" | "eps" => {
            let dot = format!("`bellows graph … --format dot | dot -T{extension} -o {path}`");
            match extension {
                "png" => format!("`bellows graph … --format svg | rsvg-convert -o {path}` or {dot} draws it"),
                "pdf" | "ps" | "eps" => {
                    format!("`bellows graph … --format svg | rsvg-convert -f {extension} -o {path}` or {dot} draws it")
                }
                _ => format!("{dot} draws it"),
            }
        }
        _ => "--format overrides the file's extension".to_owned(),
    };
    format!("cannot draw {path}: the formats are .svg, .dot (or .gv) and .txt; {way_out}")
}

/// The file name that stands for standard output.
const STDOUT: &str = "-";

/// The time over which rates are measured.
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum width of a text picture without a terminal.
const DEFAULT_WIDTH: usize = 120;

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        let output = self.output.as_deref().filter(|path| *path != Path::new(STDOUT));
        let format = match (self.format, output) {
            (Some(format), _) => format,
            (None, Some(path)) => Format::of_file(path)?,
            (None, None) => Format::Text,
        };
        let file = self.network.as_ref();
        let from_file = file.map(|path| draft(path, &self.overrides, &program.registry)).transpose()?;
        let graph = match (&self.name, from_file) {
            (Some(name), from_file) => {
                let mut observer = networks::open(networks::pick(Some(name))?)?;
                let before = Sample::take(&mut observer);
                if networks::state(observer.runtime_dir()).is_alive() {
                    thread::sleep(RATE_INTERVAL);
                }
                let change = Change::between(before, Sample::take(&mut observer));
                let mut graph = from_file.unwrap_or_else(|| of_counters(&change.after.counters));
                match networks::state(observer.runtime_dir()) {
                    State::Running | State::Stopped => {
                        graph.title = Some(name.clone());
                        add_rates(&mut graph, &change);
                    }
                    State::Crashed => {
                        graph.title = Some(format!("{name} (crashed)"));
                        terminal::warn(&format!("`{name}` has crashed; its rates are not known\n"));
                    }
                }
                graph
            }
            (None, Some(graph)) => graph,
            (None, None) => {
                return Err(CommandError::Usage("name a network file, or a running network by --name".to_owned()));
            }
        };
        let picture = match format {
            Format::Svg => bellows_graph::svg(&graph).ok_or_else(|| too_large(&graph))?,
            Format::Dot => bellows_graph::dot(&graph),
            Format::Text => {
                let width = terminal::size().filter(|_| output.is_none()).map_or(DEFAULT_WIDTH, |(columns, _)| columns);
                bellows_graph::text(&graph, width, charset::is_unicode())
            }
        };
        let picture = if picture.ends_with('\n') { picture } else { picture + "\n" };
        match (output, format) {
            // SVG and DOT are always UTF-8, wherever they are stored.
            (Some(path), Format::Svg | Format::Dot) => write(path, &picture)?,
            (Some(path), Format::Text) => write(path, &charset::localized(&picture))?,
            (None, Format::Svg | Format::Dot) => terminal::print(&charset::shown_markup(&picture))?,
            (None, Format::Text) => terminal::print(&picture)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write(path: &Path, picture: &str) -> Result<(), CommandError> {
    fs::write(path, picture)
        .map_err(|error| CommandError::Usage(format!("cannot write {}: {error}; check the folder", path.display())))
}

fn too_large(graph: &Graph) -> CommandError {
    CommandError::Usage(format!(
        "{} and {} are too many for a picture; `--format text` lists them, `--format dot` leaves the layout to Graphviz",
        plural(graph.apps.len() as u64, "app"),
        plural(graph.links.len() as u64, "link")
    ))
}

/// The network of a file, without rates.
fn draft(path: &Path, overrides: &[String], registry: &Registry) -> Result<Graph, CommandError> {
    let file = NetworkFile { path: path.to_owned(), overrides: overrides.to_vec(), for_perf: false };
    match file.load(registry) {
        Ok(loaded) => Ok(of_network(&loaded.network)),
        Err(mistakes) => Err(CommandError::Diagnosed(mistakes.render(terminal::stderr_is_rich()))),
    }
}

/// The first position of each name in a list.
fn indexes<'a>(names: impl Iterator<Item = &'a str>) -> HashMap<&'a str, usize> {
    let mut indexes = HashMap::new();
    for (index, name) in names.enumerate() {
        indexes.entry(name).or_insert(index);
    }
    indexes
}

/// The network of a file.
fn of_network(network: &Network) -> Graph {
    let names = |ports: Ports| match ports {
        Ports::Named(ports) => ports.iter().map(|port| port.name.to_owned()).collect(),
        Ports::Any { .. } => Vec::new(),
    };
    let has_workers = network.apps.iter().any(|app| app.worker != MAIN);
    let node = |app: &bellows_engine::AppSpec| Node {
        name: app.name.clone(),
        kind: app.kind.clone(),
        inputs: names(app.info().inputs),
        outputs: names(app.info().outputs),
        worker: has_workers.then(|| app.worker.clone()),
        ..Node::default()
    };
    let index = indexes(network.apps.iter().map(|app| app.name.as_str()));
    let edge = |link: &bellows_engine::LinkSpec| {
        let from = (*index.get(link.from.app.as_str())?, link.from.port.clone());
        let to = (*index.get(link.to.app.as_str())?, link.to.port.clone());
        Some(Edge { from, to, ..Edge::default() })
    };
    let mut links: Vec<Edge> = network.links.iter().filter_map(edge).collect();
    mark_loops(&mut links, network.apps.iter().map(|app| app.info().pulls));
    Graph { title: None, apps: network.apps.iter().map(node).collect(), links }
}

/// The network of a running engine, of which only what the counters name is known.
fn of_counters(counters: &Snapshot) -> Graph {
    let has_workers = counters.workers.len() > 1;
    let node = |app: &bellows_observe::AppCounts| Node {
        name: app.name.clone(),
        kind: app.kind.clone(),
        worker: has_workers.then(|| app.worker.clone()),
        ..Node::default()
    };
    let index = indexes(counters.apps.iter().map(|app| app.name.as_str()));
    let end = |end: &str| {
        let (app, port) = end.rsplit_once('.')?;
        Some((*index.get(app)?, port.to_owned()))
    };
    let edge = |link: &bellows_observe::LinkCounts| {
        Some(Edge { from: end(&link.from)?, to: end(&link.to)?, ..Edge::default() })
    };
    let mut links: Vec<Edge> = counters.links.iter().filter_map(edge).collect();
    // How a failed app was called is no longer known.
    mark_loops(&mut links, counters.apps.iter().map(|app| matches!(&*app.state, "polling" | "slots")));
    Graph { title: None, apps: counters.apps.iter().map(node).collect(), links }
}

/// Marks the links that close a loop, as the engine does. `pulled` says of each app whether it is pulled.
fn mark_loops(links: &mut [Edge], pulls: impl Iterator<Item = bool>) {
    let pulls: Vec<bool> = pulls.collect();
    let sources: Vec<usize> = (0..pulls.len()).filter(|&app| pulls[app]).collect();
    let ends: Vec<(usize, usize)> = links.iter().map(|link| (link.from.0, link.to.0)).collect();
    for (link, closes) in links.iter_mut().zip(closing_links(pulls.len(), &ends, &sources)) {
        link.closes_loop = closes;
    }
}

/// Adds the rates of a running network to the links and apps that it shares with a picture.
fn add_rates(graph: &mut Graph, change: &Change) {
    let mut rates = HashMap::new();
    for (link, rate) in change.links() {
        rates.entry((link.from.as_str(), link.to.as_str())).or_insert(rate);
    }
    let Graph { apps, links, .. } = graph;
    let end = |(app, port): &(usize, String)| Some(format!("{}.{port}", apps.get(*app)?.name));
    for edge in links {
        let (Some(from), Some(to)) = (end(&edge.from), end(&edge.to)) else { continue };
        let Some(rate) = rates.get(&(from.as_str(), to.as_str())) else { continue };
        edge.label = Some(format!("{} {}", packet_rate(rate.packets), bit_rate(rate.bits)));
        edge.drops = Some(rate.dropped).filter(|drops| *drops > 0.0).map(packet_rate);
    }
    let names: Vec<String> = apps.iter().map(|node| node.name.clone()).collect();
    let index = indexes(names.iter().map(String::as_str));
    for (before, app) in change.apps() {
        // Drops at full links are written beside them.
        let own = |app: &bellows_observe::AppCounts| app.dropped() - app.drops.get("txdrop").copied().unwrap_or(0);
        let drops = change.per_second(before.map_or(0, own), own(app));
        if let Some(&index) = index.get(app.name.as_str())
            && drops > 0.0
        {
            let node = &mut apps[index];
            node.note = Some(format!("drops {}", packet_rate(drops)));
            node.warn = app.drops.get("app_failed").is_some_and(|failed| *failed > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_names_the_format() {
        let of = |name: &str| Format::of_file(Path::new(name)).ok();
        assert_eq!(["a.svg", "A.SVG", "a.dot", "a.gv", "a.txt", "a"].map(of), {
            use Format::{Dot, Svg, Text};
            [Svg, Svg, Dot, Dot, Text, Text].map(Some)
        });
        for (name, way_out) in
            [("c.png", "rsvg-convert -o c.png"), ("c.gif", "dot -Tgif -o c.gif"), ("c.doc", "--format")]
        {
            let Err(CommandError::Usage(message)) = Format::of_file(Path::new(name)) else {
                panic!("{name} is accepted")
            };
            assert!(message.contains(way_out) && message.contains(".svg"), "{message}");
        }
    }
}
