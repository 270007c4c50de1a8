//! An app network as a picture: SVG for documents, DOT for Graphviz, and box characters for the terminal.
//!
//! The caller fills a [`Graph`], from a network file or from the counters of a running engine; this crate neither reads
//! a config nor knows an app. All three pictures are pure functions of the graph: the same graph gives the same bytes.
//!
//! The layers, from the bottom:
//!
//! - `simplex` solves the one optimisation problem that the layout has twice: integers that keep minimum distances and
//!   minimise the weighted sum of all distances.
//! - `layout` is the layered method of Sugiyama, Tagawa and Toda (1981) with the network simplex of Gansner,
//!   Koutsofios, North and Vo ("A Technique for Drawing Directed Graphs", 1993): loops are cut, apps get a column,
//!   columns get an order with few crossings, and everything gets a height. It counts in the caller's units: pixels for
//!   `svg`, character cells for `text`.
//! - `svg` and `text` route the links through the space between the columns, and draw. `dot` needs no layout.
//!
//! A layout takes some seconds at most. For larger networks, `text` prints a list and `svg` returns `None`; likewise
//! for a network with a loop in which no link is marked as closing it.
#![forbid(unsafe_code)]

use std::collections::HashMap;

mod column;
mod dot;
mod frames;
mod layout;
mod simplex;
mod svg;
mod text;

#[cfg(test)]
mod tests;

pub use dot::dot;
pub use svg::{View, style, svg};
pub use text::text;

/// Draws the network as SVG for a page that changes the picture while it is shown; `None` if it has too many apps or
/// links for a layout.
///
/// The full picture is that of [`svg()`] without its style, which [`style`] returns, and without tooltips. An overview has
/// neither labels nor notes. Each app's group has the attribute `data-app` with its position in [`Graph::apps`]; each
/// link's group and its labels have `data-link` with the position in [`Graph::links`]. The texts of labels and notes are
/// those that the caller has given: they reserve the room for later ones.
pub fn live(graph: &Graph, view: View) -> Option<String> {
    if view == View::Tall { column::svg(graph) } else { svg::changing(graph, view) }
}

/// An app network to draw.
///
/// ```
/// use bellows_graph::{Edge, Graph, Node, text};
///
/// let app = |name: &str| Node { name: name.to_owned(), kind: "tee".to_owned(), ..Node::default() };
/// let link = |from: usize, to: usize| Edge {
///     from: (from, "output".to_owned()),
///     to: (to, "input".to_owned()),
///     ..Edge::default()
/// };
/// let graph = Graph { title: None, apps: vec![app("one"), app("two")], links: vec![link(0, 1)] };
/// let picture = "\
/// ┌─────┐   ┌─────┐
/// │ one ├──►│ two │
/// │ tee │   │ tee │
/// └─────┘   └─────┘
/// ";
/// assert_eq!(text(&graph, 80, true), picture);
/// ```
///
/// Links that name an app beyond the end of `apps` are left out. A port that only a link names is drawn after the ports
/// that the app declares.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// A heading; without it, none is drawn.
    pub title: Option<String>,
    /// The apps, in the order of the config, which breaks ties of the layout.
    pub apps: Vec<Node>,
    /// The links, in the order of the config.
    pub links: Vec<Edge>,
}

/// An app.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name in the network. A part of a compound app has the compound app's name in front, as in `router/lookup`:
    /// pictures frame it with the other parts.
    pub name: String,
    /// The type of app, such as `pcap-reader`; may be empty.
    pub kind: String,
    /// Names of the input ports, from the top.
    pub inputs: Vec<String>,
    /// Names of the output ports, from the top.
    pub outputs: Vec<String>,
    /// The worker that runs it, if there are several.
    pub worker: Option<String>,
    /// A short remark, such as its rate or its drops.
    pub note: Option<String>,
    /// Draws the app in the warning colour.
    pub warn: bool,
}

/// A link from an output port to an input port.
#[derive(Clone, Debug, Default)]
pub struct Edge {
    /// Index of the app in [`Graph::apps`] and the name of its output port.
    pub from: (usize, String),
    /// Index of the app in [`Graph::apps`] and the name of its input port.
    pub to: (usize, String),
    /// Whether it closes a loop: it leads back, to an app from which its own is reached. Each loop needs such a link;
    /// otherwise [`text()`] lists the network, and [`svg()`] returns `None`.
    pub closes_loop: bool,
    /// The link's traffic, such as `1.2 Mpps 0.6 Gb/s`.
    pub label: Option<String>,
    /// The link's drops, such as `3.1 kpps`; drawn as `drops 3.1 kpps` in the warning colour.
    pub drops: Option<String>,
}

impl Edge {
    fn drops_text(&self) -> Option<String> {
        self.drops.as_ref().map(|drops| format!("drops {}", printable(drops)))
    }
}

/// A graph, or what [`Graph::without_joins`] leaves of it.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// What is left.
    pub graph: Graph,
    /// The positions of its apps in the whole graph.
    pub apps: Vec<usize>,
    /// The positions of its links in the whole graph.
    pub links: Vec<usize>,
}

impl From<Graph> for Overview {
    fn from(graph: Graph) -> Overview {
        Overview { apps: (0..graph.apps.len()).collect(), links: (0..graph.links.len()).collect(), graph }
    }
}

impl Graph {
    /// The graph without the `join`s in compound apps, which these need to have several links to one port: a link to
    /// such a join leads to where the join's own link does.
    #[must_use]
    pub fn without_joins(&self) -> Overview {
        let mut onward: Vec<Option<&Edge>> = vec![None; self.apps.len()];
        for edge in self.links.iter().filter(|edge| edge.to.0 < self.apps.len()) {
            let is_join = |app: &Node| app.kind == "join" && app.name.contains('/');
            if self.apps.get(edge.from.0).is_some_and(is_join) {
                onward[edge.from.0] = Some(edge);
            }
        }
        let apps: Vec<usize> = (0..self.apps.len()).filter(|&app| onward[app].is_none()).collect();
        let mut position = vec![usize::MAX; self.apps.len()];
        apps.iter().enumerate().for_each(|(at, &app)| position[app] = at);
        let place = |app: usize| position.get(app).copied().unwrap_or(usize::MAX);
        let mut links = Vec::new();
        let mut edges = Vec::new();
        for (at, edge) in self.links.iter().enumerate().filter(|(_, edge)| place(edge.from.0) != usize::MAX) {
            let mut edge = edge.clone();
            // Joins that lead to one another in a circle lead nowhere.
            for _ in 0..self.apps.len() {
                let Some(&Some(next)) = onward.get(edge.to.0) else { break };
                edge.to = next.to.clone();
                edge.closes_loop |= next.closes_loop;
            }
            edge.from.0 = place(edge.from.0);
            edge.to.0 = place(edge.to.0);
            edges.push(edge);
            links.push(at);
        }
        let graph = Graph {
            title: self.title.clone(),
            apps: apps.iter().map(|&app| self.apps[app].clone()).collect(),
            links: edges,
        };
        Overview { graph, apps, links }
    }

    /// The workers, each with its apps, in the order of their first apps.
    fn workers(&self) -> Vec<(&str, Vec<usize>)> {
        let mut workers: Vec<(&str, Vec<usize>)> = Vec::new();
        for (app, node) in self.apps.iter().enumerate() {
            let Some(name) = node.worker.as_deref() else { continue };
            match workers.iter_mut().find(|(known, _)| *known == name) {
                Some((_, apps)) => apps.push(app),
                None => workers.push((name, vec![app])),
            }
        }
        workers
    }

    /// Whether the ends of a link are on different workers.
    fn crosses(&self, link: Link) -> bool {
        self.apps[link.from.0].worker != self.apps[link.to.0].worker
    }
}

/// A graph whose links are resolved to port indexes.
struct Ports {
    /// For each app, the names of its input ports.
    inputs: Vec<Vec<String>>,
    /// For each app, the names of its output ports.
    outputs: Vec<Vec<String>>,
    links: Vec<Link>,
}

/// A link between ports, both by index.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Its position in [`Graph::links`].
    edge: usize,
    /// App and output port.
    from: (usize, usize),
    /// App and input port.
    to: (usize, usize),
    closes_loop: bool,
}

impl Ports {
    fn of(graph: &Graph) -> Self {
        let declared = |ports: fn(&Node) -> &Vec<String>| {
            graph.apps.iter().map(|app| ports(app).iter().map(|name| printable(name)).collect()).collect()
        };
        let mut ports =
            Ports { inputs: declared(|app| &app.inputs), outputs: declared(|app| &app.outputs), links: Vec::new() };
        let (mut inputs, mut outputs) = (PortIndex::of(&ports.inputs), PortIndex::of(&ports.outputs));
        for (edge, &Edge { ref from, ref to, closes_loop, .. }) in graph.links.iter().enumerate() {
            if from.0 < graph.apps.len() && to.0 < graph.apps.len() {
                let output = outputs.find_or_add(&mut ports.outputs, from);
                let input = inputs.find_or_add(&mut ports.inputs, to);
                ports.links.push(Link { edge, from: (from.0, output), to: (to.0, input), closes_loop });
            }
        }
        ports
    }

    /// The input ports' labels: empty if the name adds nothing.
    fn shown_inputs(&self, app: usize) -> Vec<&str> {
        shown(&self.inputs[app], "input")
    }

    /// The output ports' labels: empty if the name adds nothing.
    fn shown_outputs(&self, app: usize) -> Vec<&str> {
        shown(&self.outputs[app], "output")
    }

    /// A link in the config's notation: `capture.output -> copy.input`.
    fn describe(&self, graph: &Graph, link: Link, arrow: &str) -> String {
        format!(
            "{}.{} {arrow} {}.{}",
            printable(&graph.apps[link.from.0].name),
            self.outputs[link.from.0][link.from.1],
            printable(&graph.apps[link.to.0].name),
            self.inputs[link.to.0][link.to.1],
        )
    }
}

fn shown<'a>(ports: &'a [String], default: &str) -> Vec<&'a str> {
    match ports {
        [only] if only == default => vec![""],
        ports => ports.iter().map(String::as_str).collect(),
    }
}

/// The index of each app's ports, by app and name: a `tee` may have thousands.
struct PortIndex(HashMap<(usize, String), usize>);

impl PortIndex {
    fn of(ports: &[Vec<String>]) -> Self {
        let mut index = HashMap::new();
        for (app, names) in ports.iter().enumerate() {
            for (at, name) in names.iter().enumerate() {
                index.entry((app, name.clone())).or_insert(at);
            }
        }
        PortIndex(index)
    }

    /// The index of a port, which is appended to the app's ports if it is new.
    fn find_or_add(&mut self, ports: &mut [Vec<String>], (app, name): &(usize, String)) -> usize {
        let (names, name) = (&mut ports[*app], printable(name));
        *self.0.entry((*app, name)).or_insert_with_key(|(_, name)| {
            names.push(name.clone());
            names.len() - 1
        })
    }
}

/// The maximum number of frames of compound apps around an app.
const MAX_FRAMES: usize = 8;

/// The full names of the compound apps around an app, outermost first: `a` and `a/b` for `a/b/c`.
fn compounds(name: &str) -> Vec<&str> {
    let compounds = name.match_indices('/').map(|(at, _)| &name[..at]);
    compounds.filter(|compound| !compound.is_empty()).take(MAX_FRAMES).collect()
}

/// `text` without characters that XML forbids or a terminal interprets.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c }).collect()
}

/// `text` for XML and for Graphviz's HTML-like labels, in content and in attributes.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// `text` cut in the middle to at most `most` characters.
pub fn shortened(text: &str, most: usize) -> String {
    let characters: Vec<char> = printable(text).chars().collect();
    if characters.len() <= most {
        return characters.into_iter().collect();
    }
    let kept = most.saturating_sub(1);
    let tail = kept / 2;
    let mut short: String = characters[..kept - tail].iter().collect();
    short.push('…');
    short.extend(&characters[characters.len() - tail..]);
    short
}
