//! The picture of a network, from a configuration or from the counters of a running engine: the same for the command
//! that draws it and for every other reader.

use std::collections::HashMap;

use bellows_engine::{LinkEnd, MAIN, Network, Ports, closing_links};
use bellows_graph::{Edge, Graph, Node};
use bellows_observe::{AppCounts, LinkCounts, Snapshot};

use crate::networks::Change;
use crate::text::{bit_rate, packet_rate, plural};

/// An app to draw.
struct App {
    node: Node,
    /// Whether it is pulled.
    pulls: bool,
}

/// A link to draw: the app and the port at both ends.
pub type Ends = [(String, String); 2];

/// A graph, and what of a network it shows.
pub struct Picture {
    /// The graph to draw.
    pub graph: Graph,
    /// The box of each app by the app's name.
    pub boxes: HashMap<String, usize>,
    /// The ends of each link of the graph in the network.
    pub ends: Vec<Ends>,
}

/// The compound app around an app that is drawn in its place.
fn outermost(name: &str) -> &str {
    name.split_once('/').map_or(name, |(compound, _)| compound)
}

impl Picture {
    /// The picture of apps and links. The parts of each compound app are one box if `collapse` is set.
    fn of(apps: Vec<App>, links: Vec<Ends>, collapse: bool) -> Picture {
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
        Picture { graph: Graph { title: None, apps: nodes, links: edges }, boxes, ends }
    }

    /// Adds the rates of a running network to the links and apps that it shares with the picture.
    pub fn add_rates(&mut self, change: &Change) {
        let mut rates = HashMap::new();
        for (link, rate) in change.links() {
            rates.entry((link.from.as_str(), link.to.as_str())).or_insert(rate);
        }
        let Picture { graph: Graph { apps, links, .. }, boxes, ends } = self;
        for (edge, ends) in links.iter_mut().zip(ends) {
            let [from, to] = ends.each_ref().map(|(app, port)| format!("{app}.{port}"));
            let Some(rate) = rates.get(&(from.as_str(), to.as_str())) else { continue };
            edge.label = Some(format!("{} {}", packet_rate(rate.packets), bit_rate(rate.bits)));
            edge.drops = Some(rate.dropped).filter(|drops| *drops > 0.0).map(packet_rate);
        }
        let mut drops = vec![0.0; apps.len()];
        for (before, app) in change.apps() {
            // Drops at full links are written beside them.
            let own = |app: &AppCounts| app.dropped() - app.drops.get("txdrop").copied().unwrap_or(0);
            let Some(&index) = boxes.get(&app.name) else { continue };
            let rate = change.per_second(before.map_or(0, own), own(app));
            drops[index] += rate;
            apps[index].warn |= rate > 0.0 && app.drops.get("app_failed").is_some_and(|failed| *failed > 0);
        }
        for (node, drops) in apps.iter_mut().zip(drops).filter(|(_, drops)| *drops > 0.0) {
            node.note = Some(format!("drops {}", packet_rate(drops)));
        }
    }

    /// The picture of a configuration. With `collapse`, the parts of each compound app are one box.
    pub fn of_network(network: &Network, collapse: bool) -> Picture {
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
        Picture::of(network.apps.iter().map(app).collect(), links, collapse)
    }

    /// The picture of a running engine, of which only what the counters name is known.
    pub fn of_counters(counters: &Snapshot, collapse: bool) -> Picture {
        let has_workers = counters.workers.len() > 1;
        let app = |app: &AppCounts| App {
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
        let link = |link: &LinkCounts| Some([end(&link.from)?, end(&link.to)?]);
        let links = counters.links.iter().filter_map(link).collect();
        Picture::of(counters.apps.iter().map(app).collect(), links, collapse)
    }
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
        let collapsed = Picture::of(apps(), links(), true);
        let Graph { apps: nodes, links: edges, .. } = &collapsed.graph;
        let names: Vec<(&str, &str)> = nodes.iter().map(|node| (node.name.as_str(), node.kind.as_str())).collect();
        assert_eq!(names, [("s", "tee"), ("r", "2 parts"), ("tap", "tee")]);
        let shown: Vec<_> = edges.iter().map(|edge| (edge.from.0, edge.from.1.as_str(), edge.to.1.as_str())).collect();
        assert_eq!(shown, [(0, "output", "in.input"), (1, "deep/out.output", "input"), (2, "output", "in.input")]);
        assert!(edges[2].closes_loop && collapsed.ends.len() == 3);
        assert_eq!(Picture::of(apps(), links(), false).graph.apps.len(), 4);
    }
}
