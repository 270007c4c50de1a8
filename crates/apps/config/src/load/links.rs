//! Reading the links: their ends, ports that are left out, and the ports of parts that ports of compound apps stand for.

use std::collections::HashSet;
use std::mem;

use bellows_engine::{LinkEnd, LinkSpec, Ports, Side};

use super::{Builder, KnownKind};
use crate::diagnostics::{Diagnostic, listed, quoted};
use crate::spanned::{Node, Place, Value};

/// A link and where it is written.
pub(super) struct LocatedLink {
    /// Between ports of apps.
    pub(super) spec: LinkSpec,
    /// As it is meant in the file: its ends may be ports of compound apps.
    pub(super) named: LinkSpec,
    /// The compound app whose parts it links.
    pub(super) scope: Option<usize>,
    pub(super) place: Place,
    /// Its ends as written.
    pub(super) written: [String; 2],
}

/// A link as written: each end is an app with an optional port.
struct WrittenLink {
    scope: Option<usize>,
    place: Place,
    text: String,
    ends: [WrittenEnd; 2],
    written: [String; 2],
}

/// An app, and its port if written.
pub(super) type WrittenEnd = (String, Option<String>);

/// A port of an app.
type AppPort = (Side, String, String);

/// The ports of an app on one side.
pub(super) enum SidePorts {
    Unknown,
    Any,
    Named(Vec<String>),
}

/// Stands for an omitted port of an unknown app. No written port can have this name.
pub(super) const UNWRITTEN: &str = " ";

/// The sides of a link in written order.
pub(super) const SIDES: [Side; 2] = [Side::Output, Side::Input];

pub(super) fn index(side: Side) -> usize {
    usize::from(side == Side::Input)
}

pub(super) fn other(side: Side) -> Side {
    match side {
        Side::Output => Side::Input,
        Side::Input => Side::Output,
    }
}

impl Builder<'_> {
    /// Reads the links of the network, then those of the parts, and fills in omitted ports where they are unambiguous.
    pub(super) fn links(&mut self, nodes: Vec<Node>) -> Vec<LocatedLink> {
        let inner = mem::take(&mut self.inner_links).into_iter().map(|(node, scope)| (node, Some(scope)));
        let mut written = Vec::new();
        for (node, scope) in nodes.into_iter().map(|node| (node, None)).chain(inner) {
            let mark = self.diagnostics.kept();
            let place = node.place;
            written.extend(self.written_link(node, scope));
            self.locate_link(mark, scope, place);
        }
        let mut taken: HashSet<AppPort> = HashSet::new();
        for link in &written {
            for (side, (app, port)) in SIDES.iter().zip(&link.ends) {
                taken.extend(port.as_ref().map(|port| (*side, app.clone(), port.clone())));
            }
        }
        for scope in &self.scopes {
            for side in SIDES {
                let targets = scope.ports[index(side)].iter().filter_map(|port| port.target.clone());
                taken.extend(targets.map(|end| (side, end.app, end.port)));
            }
        }
        let mut links = Vec::new();
        for link in written {
            let mark = self.diagnostics.kept();
            let (scope, place) = (link.scope, link.place);
            links.extend(self.with_ports(link, &mut taken).and_then(|link| self.resolved(link)));
            self.locate_link(mark, scope, place);
        }
        links
    }

    /// Adds to the diagnostics since a mark that they are about links between the parts of a compound app.
    pub(super) fn locate_link(&mut self, mark: usize, scope: Option<usize>, place: Place) {
        if scope.is_some_and(|scope| self.scopes[scope].file.is_none()) {
            self.diagnostics.explain(mark, place, "in the links of its parts");
        }
        self.locate(mark, scope);
    }

    fn written_link(&mut self, node: Node, scope: Option<usize>) -> Option<WrittenLink> {
        const HELP: &str = "write it as \"app.output -> other.input\"";
        let place = node.place;
        match node.value {
            Value::Broken => self.is_partial = true,
            Value::Text(text) => match self.read_link(&text, scope) {
                Some((ends, written)) => return Some(WrittenLink { scope, place, text, ends, written }),
                None => {
                    self.leave_meant_unlinked(&text, scope);
                    let wrong = Diagnostic::error(format!("{} is not a link", quoted(&text)));
                    self.diagnostics.push(wrong.at(place, "").help(HELP));
                }
            },
            other => {
                let mut texts = vec![&other];
                while let Some(value) = texts.pop() {
                    match value {
                        Value::Text(text) => self.leave_meant_unlinked(text, scope),
                        Value::List(items) => texts.extend(items.iter().map(|item| &item.value)),
                        Value::Table(table) => texts.extend(table.0.iter().map(|(_, node)| &node.value)),
                        _ => {}
                    }
                }
                let wrong = Diagnostic::error("a link must be text");
                self.diagnostics.push(wrong.at(place, format!("this is {}", other.called())).help(HELP));
            }
        }
        None
    }

    /// Leaves out what follows from links of an app that are not known.
    pub(super) fn leave_unlinked(&mut self, app: usize) {
        self.unreported.extend(SIDES.map(|side| (side, app)));
        self.unlinked.insert(app);
    }

    /// Leaves out what follows from a text that is no link, of the apps that it may mean: `a.output => b.input`.
    fn leave_meant_unlinked(&mut self, text: &str, scope: Option<usize>) {
        if self.diagnostics.is_full() {
            return;
        }
        let words = text.split(|c: char| !LinkEnd::is_name(c.encode_utf8(&mut [0; 4])));
        for word in words.filter(|word| word.len() <= 2 * LinkEnd::MAX_NAME) {
            // Names may have the characters of arrows, and ports are behind the last dot.
            let cuts: Vec<usize> = word.match_indices(['-', '=', ':', '.', ',']).map(|(at, _)| at).collect();
            let starts = cuts.iter().map(|at| at + 1).chain([0]);
            for start in starts {
                let ends = cuts.iter().copied().chain([word.len()]).filter(|end| *end > start);
                let named: Vec<usize> = ends
                    .filter_map(|end| self.by_name.get(&self.full_name(scope, &word[start..end])).copied())
                    .collect();
                named.into_iter().for_each(|app| self.leave_unlinked(app));
            }
        }
    }

    /// The ends of a link, each an app with an optional port, and their text; `None` if the text is not a link.
    pub(super) fn read_link(&self, text: &str, scope: Option<usize>) -> Option<([WrittenEnd; 2], [String; 2])> {
        let (from, to) = text.split_once("->")?;
        let (from, to) = (from.trim(), to.trim());
        Some(([self.read_end(from, scope)?, self.read_end(to, scope)?], [from.to_owned(), to.to_owned()]))
    }

    /// An end: the full name of an app, and an optional port.
    pub(super) fn read_end(&self, text: &str, scope: Option<usize>) -> Option<WrittenEnd> {
        if !LinkEnd::is_name(text) && text.parse::<LinkEnd>().is_err() {
            return None;
        }
        let full = |name: &str| self.full_name(scope, name);
        match text.rsplit_once('.') {
            // An app's name may contain dots.
            Some((app, _)) if self.by_name.contains_key(&full(text)) && !self.by_name.contains_key(&full(app)) => {
                Some((full(text), None))
            }
            Some((app, port)) => (!app.is_empty() && !port.is_empty()).then(|| (full(app), Some(port.to_owned()))),
            None => Some((full(text), None)),
        }
    }

    /// The ports of an app on one side.
    pub(super) fn side_ports(&self, app: usize, side: Side) -> SidePorts {
        match self.known[app].kind {
            KnownKind::Unknown => SidePorts::Unknown,
            KnownKind::App(_, info) => {
                let ports = match side {
                    Side::Input => info.inputs,
                    Side::Output => info.outputs,
                };
                match ports {
                    Ports::Any { .. } => SidePorts::Any,
                    Ports::Named(named) => SidePorts::Named(named.iter().map(|port| port.name.to_owned()).collect()),
                }
            }
            KnownKind::Compound(scope) => {
                let ports = &self.scopes[scope].ports[index(side)];
                SidePorts::Named(ports.iter().map(|port| port.name.clone()).collect())
            }
        }
    }

    /// An app's type in messages.
    pub(super) fn kind_of(&self, app: usize) -> Option<&str> {
        match self.known[app].kind {
            KnownKind::Unknown => None,
            KnownKind::App(kind, _) => Some(kind),
            KnownKind::Compound(scope) => Some(&self.scopes[scope].kind),
        }
    }

    /// The link with omitted ports filled in, or `None` if they are ambiguous, which this function reports.
    fn with_ports(&mut self, link: WrittenLink, taken: &mut HashSet<AppPort>) -> Option<LocatedLink> {
        let WrittenLink { scope, place, text, ends, written } = link;
        let mut ports: [Option<String>; 2] = [None, None];
        let mut choices: [Vec<String>; 2] = [Vec::new(), Vec::new()];
        for side in SIDES {
            let (app, port) = &ends[index(side)];
            let other = &ends[1 - index(side)].0;
            ports[index(side)] = match (port, self.by_name.get(app)) {
                (Some(port), _) => Some(port.clone()),
                // The unknown app is reported with the other wiring errors.
                (None, None) => Some(UNWRITTEN.to_owned()),
                (None, Some(&known)) => match self.side_ports(known, side) {
                    SidePorts::Unknown => {
                        self.unreported.insert((side, known));
                        None
                    }
                    SidePorts::Any => {
                        let name = self.short_name(scope, other).replace('.', "-");
                        let mut names =
                            std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}-{number}")));
                        names.find(|name| !taken.contains(&(side, app.clone(), name.clone())))
                    }
                    SidePorts::Named(named) if named.len() == 1 => named.into_iter().next(),
                    SidePorts::Named(named) => {
                        self.unreported.insert((side, known));
                        let is_free = |port: &&String| !taken.contains(&(side, app.clone(), (*port).clone()));
                        choices[index(side)] = named.iter().filter(is_free).cloned().collect();
                        if choices[index(side)].is_empty() {
                            choices[index(side)] = named;
                        }
                        None
                    }
                },
            };
            if let Some(port) = &ports[index(side)] {
                taken.insert((side, app.clone(), port.clone()));
            }
        }
        if let [Some(from), Some(to)] = ports {
            let [(from_app, _), (to_app, _)] = ends;
            let spec = LinkSpec { from: LinkEnd { app: from_app, port: from }, to: LinkEnd { app: to_app, port: to } };
            return Some(LocatedLink { spec: spec.clone(), named: spec, scope, place, written });
        }
        // The other end is linked all the same.
        for side in SIDES {
            let known = self.by_name.get(&ends[index(side)].0);
            self.unreported.extend(known.map(|&app| (side, app)));
        }
        for side in SIDES {
            let (app, port) = &ends[index(side)];
            if port.is_some() || ports[index(side)].is_some() {
                continue;
            }
            let kind = self.by_name.get(app).and_then(|&known| self.kind_of(known)).map(str::to_owned);
            let Some(kind) = kind else { continue };
            let end = self.written_place(&written, place, side);
            let app = self.short_name(scope, app);
            if choices[index(side)].is_empty() {
                let none = Diagnostic::error(format!("{} ({kind}) has no {side}s", quoted(app)));
                self.diagnostics.push(none.at(end, "nothing can be linked here"));
                continue;
            }
            let which = Diagnostic::error(format!("{} does not say which {side} of {}", quoted(&text), quoted(app)));
            let of = |side: Side, port: &str| format!("{}.{port}", self.short_name(scope, &ends[index(side)].0));
            let line = |port: &String| {
                let other = other(side);
                let other_port = ports[index(other)].as_deref().or(choices[index(other)].first().map(String::as_str));
                let other_end = of(other, other_port.filter(|port| *port != UNWRITTEN).unwrap_or("PORT"));
                match side {
                    Side::Output => format!("\"{} -> {other_end}\"", of(side, port)),
                    Side::Input => format!("\"{other_end} -> {}\"", of(side, port)),
                }
            };
            let lines: Vec<String> = choices[index(side)].iter().take(4).map(line).collect();
            let help = format!("write {}", lines.join(" or "));
            self.diagnostics.push(which.at(end, format!("`{kind}` has several {side}s")).help(help));
        }
        None
    }

    /// The link between ports of apps that are not compound. `None` after an error, which this function reports.
    fn resolved(&mut self, link: LocatedLink) -> Option<LocatedLink> {
        let ends = SIDES.map(|side| self.resolved_end(&link, side));
        let named = SIDES.map(|side| link.named.end(side).clone());
        let [Some(from), Some(to)] = ends.clone() else {
            // The other end is linked all the same.
            for (side, end) in SIDES.iter().zip(ends.into_iter().flatten().chain(named)) {
                self.unreported.extend(self.by_name.get(&end.app).map(|&app| (*side, app)));
            }
            return None;
        };
        Some(LocatedLink { spec: LinkSpec { from, to }, ..link })
    }

    fn resolved_end(&mut self, link: &LocatedLink, side: Side) -> Option<LinkEnd> {
        let mut end = link.named.end(side).clone();
        let Some(&app) = self.by_name.get(&end.app) else { return Some(end) };
        if self.known[app].scope != link.scope {
            self.inner_part(link, side, app);
            return None;
        }
        while let Some(KnownKind::Compound(scope)) = self.by_name.get(&end.app).map(|&app| self.known[app].kind) {
            let Some(port) = self.scopes[scope].ports[index(side)].iter().find(|port| port.name == end.port) else {
                self.unknown_port(link, side, &end);
                return None;
            };
            end = port.target.clone()?;
        }
        Some(end)
    }

    /// Reports a link to a part of a compound app from outside.
    fn inner_part(&mut self, link: &LocatedLink, side: Side, app: usize) {
        let Some(owner) = self.known[app].scope.map(|scope| &self.scopes[scope]) else { return };
        let name = quoted(self.short_name(link.scope, &self.known[app].name));
        let inside = Diagnostic::error(format!("{name} is a part of {}", quoted(&owner.name)));
        let inside = inside.at(self.end_place(link, side), "links outside cannot name it");
        let ports = &owner.ports[index(side)];
        let names = ports.iter().map(|port| format!("{}.{}", owner.name, port.name));
        let help = match ports.is_empty() {
            true => format!("{} has no {side}s", quoted(&owner.name)),
            false => format!("link one of its {side}s: {}", listed(names)),
        };
        let owner = self.by_name.get(&owner.name).copied();
        self.diagnostics.push(inside.help(help));
        self.unreported.extend(owner.map(|owner| (side, owner)));
    }

    /// The part of a link's text that names one end, or all of it if escapes hide that part.
    pub(super) fn end_place(&self, link: &LocatedLink, side: Side) -> Place {
        self.written_place(&link.written, link.place, side)
    }

    fn written_place(&self, ends: &[String; 2], place: Place, side: Side) -> Place {
        let written = self.diagnostics.text(place);
        let name = &ends[index(side)];
        let arrow = written.find("->");
        let offset = match side {
            Side::Output => written.find(name).filter(|offset| Some(*offset) < arrow),
            Side::Input => arrow.and_then(|arrow| Some(arrow + written[arrow..].find(name)?)),
        };
        match offset {
            Some(offset) => {
                let start = place.start + offset;
                Place { start, end: start + name.len(), ..place }
            }
            None => place,
        }
    }
}
