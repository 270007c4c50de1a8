//! The network in Graphviz's language, for users who want its layouts and formats.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::{Graph, Ports, compounds, escaped};

const WARNING: &str = "#b93a0d";

/// Writes the network as a Graphviz digraph: a table with named ports for each app.
pub fn dot(graph: &Graph) -> String {
    let ports = Ports::of(graph);
    let ids = ids(graph);
    let mut out = String::from("digraph bellows {\n");
    if let Some(title) = &graph.title {
        let _ = writeln!(out, "  label=<{}>;\n  labelloc=t;", escaped(title));
    }
    out.push_str(
        "  rankdir=LR;\n  ranksep=0.6;\n  node [shape=plain, fontname=\"Helvetica\", fontsize=11];\n  \
         edge [fontname=\"Helvetica\", fontsize=9, arrowsize=0.7, color=\"#66748a\"];\n",
    );
    let mut apps = Apps { graph, ports: &ports, ids: &ids, clusters: 0, out };
    let without = (0..graph.apps.len()).filter(|&app| graph.apps[app].worker.is_none()).collect();
    apps.write(without, 0, "  ");
    for (worker, members) in graph.workers() {
        apps.begin_cluster(&format!("worker {}", escaped(worker)), "rounded,dashed", "  ");
        apps.write(members, 0, "    ");
        apps.out.push_str("  }\n");
    }
    let mut out = apps.out;
    for link in &ports.links {
        let edge = &graph.links[link.edge];
        let label = edge.label.as_deref().filter(|label| !label.is_empty()).map(escaped);
        let drops = edge.drops_text().map(|drops| format!("<FONT COLOR=\"{WARNING}\">{}</FONT>", escaped(&drops)));
        let mut attributes = Vec::new();
        if label.is_some() || drops.is_some() {
            let lines: Vec<String> = [label, drops].into_iter().flatten().collect();
            attributes.push(format!("label=<{}>", lines.join("<BR/>")));
        }
        if edge.drops.is_some() {
            attributes.push(format!("color=\"{WARNING}\""));
        }
        if graph.crosses(*link) {
            attributes.push("style=dashed".to_owned());
        }
        let attributes = if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
        let _ = writeln!(
            out,
            "  {}:o{}:e -> {}:i{}:w{attributes};",
            ids[link.from.0], link.from.1, ids[link.to.0], link.to.1
        );
    }
    out.push_str("}\n");
    out
}

/// Writes apps, with clusters of compound apps.
struct Apps<'g> {
    graph: &'g Graph,
    ports: &'g Ports,
    ids: &'g [String],
    /// The number of clusters so far.
    clusters: usize,
    out: String,
}

impl Apps<'_> {
    fn begin_cluster(&mut self, label: &str, style: &str, indent: &str) {
        let _ = writeln!(
            self.out,
            "{indent}subgraph cluster_{} {{\n{indent}  label=<{label}>; fontname=\"Helvetica\"; fontsize=10; \
             style=\"{style}\"; color=\"#8996a9\";",
            self.clusters
        );
        self.clusters += 1;
    }

    /// Writes apps that are in the same compound apps down to a level.
    fn write(&mut self, apps: Vec<usize>, level: usize, indent: &str) {
        let mut inner: Vec<(&str, Vec<usize>)> = Vec::new();
        for app in apps {
            let Some(compound) = compounds(&self.graph.apps[app].name).get(level).copied() else {
                let label = table(self.graph, self.ports, app);
                let _ = writeln!(self.out, "{indent}{} [label=<{label}>];", self.ids[app]);
                continue;
            };
            match inner.iter_mut().find(|(known, _)| *known == compound) {
                Some((_, apps)) => apps.push(app),
                None => inner.push((compound, vec![app])),
            }
        }
        for (compound, apps) in inner {
            self.begin_cluster(&escaped(compound), "rounded", indent);
            self.write(apps, level + 1, &format!("{indent}  "));
            let _ = writeln!(self.out, "{indent}}}");
        }
    }
}

/// An identifier for each app: its name, quoted, if all names are simple and distinct.
fn ids(graph: &Graph) -> Vec<String> {
    let simple = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ' '))
    };
    let names: BTreeSet<&str> = graph.apps.iter().map(|app| app.name.as_str()).collect();
    if names.len() == graph.apps.len() && names.iter().all(|name| simple(name)) {
        graph.apps.iter().map(|app| format!("\"{}\"", app.name)).collect()
    } else {
        (0..graph.apps.len()).map(|app| format!("app{app}")).collect()
    }
}

/// The app's label: input ports, header and output ports side by side.
fn table(graph: &Graph, ports: &Ports, app: usize) -> String {
    let node = &graph.apps[app];
    let mut header = format!("<B>{}</B>", escaped(&node.name));
    if node.name.is_empty() {
        header = String::from(" ");
    }
    if !node.kind.is_empty() {
        let _ = write!(header, "<BR/><FONT POINT-SIZE=\"9\">{}</FONT>", escaped(&node.kind));
    }
    if let Some(note) = node.note.as_deref().filter(|note| !note.is_empty()) {
        let colour = if node.warn { format!(" COLOR=\"{WARNING}\"") } else { String::new() };
        let _ = write!(header, "<BR/><FONT POINT-SIZE=\"9\"{colour}>{}</FONT>", escaped(note));
    }
    let column = |names: &[&str], letter: char| {
        if names.is_empty() {
            return String::new();
        }
        let cells = names.iter().enumerate().map(|(port, name)| {
            let name = if name.is_empty() { " ".to_string() } else { escaped(name) };
            format!("<TR><TD PORT=\"{letter}{port}\"><FONT POINT-SIZE=\"9\">{name}</FONT></TD></TR>")
        });
        let cells: String = cells.collect();
        format!("<TD><TABLE BORDER=\"0\" CELLBORDER=\"0\" CELLSPACING=\"0\" CELLPADDING=\"1\">{cells}</TABLE></TD>")
    };
    let (fill, outline) = if node.warn { ("#fdf1e7", "#d0661a") } else { ("#f4f6f9", "#8996a9") };
    format!(
        "<TABLE BORDER=\"1\" CELLBORDER=\"0\" CELLSPACING=\"0\" CELLPADDING=\"4\" STYLE=\"ROUNDED\" \
         BGCOLOR=\"{fill}\" COLOR=\"{outline}\"><TR>{}<TD>{header}</TD>{}</TR></TABLE>",
        column(&ports.shown_inputs(app), 'i'),
        column(&ports.shown_outputs(app), 'o'),
    )
}
