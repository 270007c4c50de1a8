//! `bellows graph`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bellows_config::Registry;
use bellows_engine::{LinkEnd, MAIN, Network, Ports, closing_links};
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
/// workers are dashed. The parts of a compound app are framed as well; in text their names begin with that of the compound
/// app.
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
    /// Draw each compound app as one box, whose ports are called after those of its parts
    #[arg(long)]
    collapse: bool,
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
        let from_file = file.map(|path| draft(path, &self.overrides, self.collapse, &program.registry)).transpose()?;
        let graph = match (&self.name, from_file) {
            (Some(name), from_file) => {
                let mut observer = networks::open(networks::pick(Some(name))?)?;
                let before = Sample::take(&mut observer);
                if networks::state(observer.runtime_dir()).is_alive() {
                    thread::sleep(RATE_INTERVAL);
                }
                let change = Change::between(before, Sample::take(&mut observer));
                let mut drawn = from_file.unwrap_or_else(|| of_counters(&change.after.counters, self.collapse));
                match networks::state(observer.runtime_dir()) {
                    State::Running | State::Stopped => {
                        drawn.graph.title = Some(name.clone());
                        drawn.add_rates(&change);
                    }
                    State::Crashed => {
                        drawn.graph.title = Some(format!("{name} (crashed)"));
                        terminal::warn(&format!("`{name}` has crashed; its rates are not known\n"));
                    }
                }
                drawn.graph
            }
            (None, Some(drawn)) => drawn.graph,
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
fn draft(path: &Path, overrides: &[String], collapse: bool, registry: &Registry) -> Result<Drawn, CommandError> {
    let file = NetworkFile { path: path.to_owned(), overrides: overrides.to_vec(), for_perf: false };
    match file.load(registry) {
        Ok(loaded) => Ok(of_network(&loaded.network, collapse)),
        Err(mistakes) => Err(CommandError::Diagnosed(mistakes.render(terminal::stderr_is_rich()))),
    }
}

/// An app to draw.
struct App {
    node: Node,
    /// Whether it is pulled.
    pulls: bool,
}

/// A link to draw: the app and the port at both ends.
type Ends = [(String, String); 2];

/// A graph, and what of a network it shows.
struct Drawn {
    graph: Graph,
    /// The box of each app by the app's name.
    boxes: HashMap<String, usize>,
    /// The ends of each link in the network.
    ends: Vec<Ends>,
}

/// The compound app around an app that is drawn in its place.
fn outermost(name: &str) -> &str {
    name.split_once('/').map_or(name, |(compound, _)| compound)
}

impl Drawn {
    /// The picture of apps and links. The parts of each compound app are one box if `collapse` is set.
    fn of(apps: Vec<App>, links: Vec<Ends>, collapse: bool) -> Drawn {
        let (mut nodes, mut pulls, mut boxes) = (Vec::<Node>::new(), Vec::<bool>::new(), HashMap::new());
        let mut parts: HashMap<String, (usize, usize)> = HashMap::new();
        for App { node, pulls: is_pulled } in apps {
            let name = node.name.clone();
            let compound = outermost(&name).to_owned();
            let is_part = collapse && compound != name;
            let known = parts.get_mut(&compound).filter(|_| is_part);
            let index = match known {
                Some((index, count)) => {
                    *count += 1;
                    let whole = &mut nodes[*index];
                    whole.kind = plural(*count as u64, "part");
                    if whole.worker != node.worker {
                        whole.worker = Some("several".to_owned());
                    }
                    pulls[*index] |= is_pulled;
                    *index
                }
                None => {
                    let index = nodes.len();
                    if is_part {
                        parts.insert(compound.clone(), (index, 1));
                    }
                    let (kind, worker) = (plural(1, "part"), node.worker.clone());
                    nodes.push(if is_part { Node { name: compound, kind, worker, ..Node::default() } } else { node });
                    pulls.push(is_pulled);
                    index
                }
            };
            boxes.entry(name).or_insert(index);
        }
        let (mut edges, mut ends) = (Vec::new(), Vec::new());
        for link in links {
            let end = |(app, port): &(String, String)| {
                let index = *boxes.get(app)?;
                let inner = app.strip_prefix(&nodes[index].name).and_then(|inner| inner.strip_prefix('/'));
                Some((index, inner.map_or(port.clone(), |part| format!("{part}.{port}"))))
            };
            let (Some(from), Some(to)) = (end(&link[0]), end(&link[1])) else { continue };
            let is_inside = from.0 == to.0 && link[0].0 != link[1].0;
            if !is_inside {
                edges.push(Edge { from, to, ..Edge::default() });
                ends.push(link);
            }
        }
        mark_loops(&mut edges, &pulls);
        Drawn { graph: Graph { title: None, apps: nodes, links: edges }, boxes, ends }
    }

    /// Adds the rates of a running network to the links and apps that it shares with the picture.
    fn add_rates(&mut self, change: &Change) {
        let mut rates = HashMap::new();
        for (link, rate) in change.links() {
            rates.entry((link.from.as_str(), link.to.as_str())).or_insert(rate);
        }
        let Drawn { graph: Graph { apps, links, .. }, boxes, ends } = self;
        for (edge, ends) in links.iter_mut().zip(ends) {
            let [from, to] = ends.each_ref().map(|(app, port)| format!("{app}.{port}"));
            let Some(rate) = rates.get(&(from.as_str(), to.as_str())) else { continue };
            edge.label = Some(format!("{} {}", packet_rate(rate.packets), bit_rate(rate.bits)));
            edge.drops = Some(rate.dropped).filter(|drops| *drops > 0.0).map(packet_rate);
        }
        let mut drops = vec![0.0; apps.len()];
        for (before, app) in change.apps() {
            // Drops at full links are written beside them.
            let own = |app: &bellows_observe::AppCounts| app.dropped() - app.drops.get("txdrop").copied().unwrap_or(0);
            let Some(&index) = boxes.get(&app.name) else { continue };
            let rate = change.per_second(before.map_or(0, own), own(app));
            drops[index] += rate;
            apps[index].warn |= rate > 0.0 && app.drops.get("app_failed").is_some_and(|failed| *failed > 0);
        }
        for (node, drops) in apps.iter_mut().zip(drops).filter(|(_, drops)| *drops > 0.0) {
            node.note = Some(format!("drops {}", packet_rate(drops)));
        }
    }
}

/// The network of a file.
fn of_network(network: &Network, collapse: bool) -> Drawn {
    let names = |ports: Ports| match ports {
        Ports::Named(ports) => ports.iter().map(|port| port.name.to_owned()).collect(),
        Ports::Any { .. } => Vec::new(),
    };
    let has_workers = network.apps.iter().any(|app| app.worker != MAIN);
    let app = |app: &bellows_engine::AppSpec| App {
        node: Node {
            name: app.name.clone(),
            kind: app.kind.clone(),
            inputs: names(app.info().inputs),
            outputs: names(app.info().outputs),
            worker: has_workers.then(|| app.worker.clone()),
            ..Node::default()
        },
        pulls: app.info().pulls,
    };
    let end = |end: &LinkEnd| (end.app.clone(), end.port.clone());
    let links = network.links.iter().map(|link| [end(&link.from), end(&link.to)]).collect();
    Drawn::of(network.apps.iter().map(app).collect(), links, collapse)
}

/// The network of a running engine, of which only what the counters name is known.
fn of_counters(counters: &Snapshot, collapse: bool) -> Drawn {
    let has_workers = counters.workers.len() > 1;
    let app = |app: &bellows_observe::AppCounts| App {
        node: Node {
            name: app.name.clone(),
            kind: app.kind.clone(),
            worker: has_workers.then(|| app.worker.clone()),
            ..Node::default()
        },
        // How a failed app was called is no longer known.
        pulls: matches!(&*app.state, "polling" | "slots"),
    };
    let end = |end: &str| end.rsplit_once('.').map(|(app, port)| (app.to_owned(), port.to_owned()));
    let link = |link: &bellows_observe::LinkCounts| Some([end(&link.from)?, end(&link.to)?]);
    let links = counters.links.iter().filter_map(link).collect();
    Drawn::of(counters.apps.iter().map(app).collect(), links, collapse)
}

/// Marks the links that close a loop, as the engine does. `pulls` says of each app whether it is pulled.
fn mark_loops(links: &mut [Edge], pulls: &[bool]) {
    let sources: Vec<usize> = (0..pulls.len()).filter(|&app| pulls[app]).collect();
    let ends: Vec<(usize, usize)> = links.iter().map(|link| (link.from.0, link.to.0)).collect();
    for (link, closes) in links.iter_mut().zip(closing_links(pulls.len(), &ends, &sources)) {
        link.closes_loop = closes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapsed_compound_app_is_one_box() {
        let app = |name: &str| App {
            node: Node { name: name.to_owned(), kind: "tee".to_owned(), ..Node::default() },
            pulls: name == "s",
        };
        let apps = || ["s", "r/in", "r/deep/out", "tap"].map(app).into();
        let link = |from: &str, to: &str| [(from.to_owned(), "output".to_owned()), (to.to_owned(), "input".to_owned())];
        let links =
            || vec![link("s", "r/in"), link("r/in", "r/deep/out"), link("r/deep/out", "tap"), link("tap", "r/in")];
        let collapsed = Drawn::of(apps(), links(), true);
        let Graph { apps: nodes, links: edges, .. } = &collapsed.graph;
        let names: Vec<(&str, &str)> = nodes.iter().map(|node| (node.name.as_str(), node.kind.as_str())).collect();
        assert_eq!(names, [("s", "tee"), ("r", "2 parts"), ("tap", "tee")]);
        let shown: Vec<_> = edges.iter().map(|edge| (edge.from.0, edge.from.1.as_str(), edge.to.1.as_str())).collect();
        assert_eq!(shown, [(0, "output", "in.input"), (1, "deep/out.output", "input"), (2, "output", "in.input")]);
        assert!(edges[2].closes_loop && collapsed.ends.len() == 3);
        assert_eq!(Drawn::of(apps(), links(), false).graph.apps.len(), 4);
    }

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
