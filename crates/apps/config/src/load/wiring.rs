//! Errors of wiring at the places of links and apps.

use std::collections::{HashMap, HashSet};
use std::mem;

use bellows_engine::{LinkEnd, LinkSpec, Ports, Side, WiredApp, WiringError, wiring_errors};

use super::expand::CompoundPort;
use super::links::{LocatedLink, SIDES, SidePorts, UNWRITTEN, index, other};
use super::{Builder, CreatedApp, KnownApp, KnownKind};
use crate::diagnostics::{Diagnostic, listed, quoted};
use crate::spanned::Place;
use crate::suggest::nearest;

impl Builder<'_> {
    /// Reports wiring errors at the places of their links and apps.
    pub(super) fn wiring(&mut self, links: &[LocatedLink]) {
        let apps: Vec<WiredApp<'_>> = self.known.iter().map(KnownApp::wired).collect();
        let specs: Vec<LinkSpec> = links.iter().map(|link| link.spec.clone()).collect();
        let errors = wiring_errors(&apps, &specs);
        let mut incomplete = HashSet::new();
        for error in errors {
            let mark = self.diagnostics.kept();
            match error {
                // Reported when the tables were read.
                WiringError::BadName { .. } | WiringError::DuplicateApp { .. } => {}
                WiringError::DuplicateLink { link, first, .. } => {
                    let LocatedLink { named, scope, place, .. } = &links[link];
                    let ends = SIDES.map(|side| self.shown_end(*scope, named.end(side)));
                    let twice = format!("the link {} is written twice", quoted(&ends.join(" -> ")));
                    let twice = Diagnostic::error(twice).at(*place, "written again here");
                    let twice = twice.at(links[first].place, "first written here");
                    self.diagnostics.push(twice.help("remove one of them"));
                    self.locate_link(mark, *scope, *place);
                }
                WiringError::UnknownApp { link, side, name, .. } => {
                    self.unknown_app(&links[link], side, &name);
                    self.locate_link(mark, links[link].scope, links[link].place);
                }
                WiringError::UnknownPort { link, side, end, .. } => {
                    self.unknown_port(&links[link], side, &end);
                    self.locate_link(mark, links[link].scope, links[link].place);
                }
                WiringError::LinkedTwice { end, .. } if end.port == UNWRITTEN => {}
                WiringError::LinkedTwice { link, side, end, first } => {
                    self.linked_twice(&links[link], &links[first], side, &end);
                    self.locate_link(mark, links[link].scope, links[link].place);
                }
                WiringError::SelfLink { link, app } => {
                    let LocatedLink { scope, place, .. } = &links[link];
                    let app = self.short_name(*scope, &app);
                    let looped = Diagnostic::error(format!("a link leads from {} to itself", quoted(app)));
                    self.diagnostics.push(looped.at(*place, "").help("put another app between"));
                    self.locate_link(mark, *scope, *place);
                }
                WiringError::OpenPort { side, end, help } => {
                    incomplete.insert(end.app.clone());
                    self.open_port(side, &end, help);
                }
                WiringError::TooFewPorts { side, app, count, at_least, help } => {
                    self.too_few_ports(side, &app, MissingLinks::Count { count, at_least, help });
                    incomplete.insert(app);
                }
            }
        }
        self.open_compound_ports(links);
        self.idle_apps(links, &incomplete);
        self.outputs(links);
    }

    /// An end as a file calls it: apps in the same compound app by their short names.
    fn shown_end(&self, scope: Option<usize>, end: &LinkEnd) -> String {
        format!("{}.{}", self.short_name(scope, &end.app), end.port)
    }

    /// Has the apps check the keys that refer to their outputs.
    fn outputs(&mut self, links: &[LocatedLink]) {
        let mut outputs: HashMap<&str, Vec<&str>> = HashMap::new();
        for link in links {
            outputs.entry(&link.spec.from.app).or_default().push(&link.spec.from.port);
        }
        let created = mem::take(&mut self.created);
        for CreatedApp { known: app, entry, table, .. } in &created {
            let app = *app;
            if self.unlinked.contains(&app) {
                continue;
            }
            let (name, place) = (self.known[app].name.clone(), self.known[app].place);
            let outputs = outputs.get(&*name).map_or(&[][..], Vec::as_slice);
            if let Err(mistake) = entry.check_outputs(table, outputs) {
                let (mark, scope) = (self.diagnostics.kept(), self.known[app].scope);
                self.refused(mistake, &name, table, place);
                self.locate(mark, scope);
            }
        }
        self.created = created;
    }

    fn unknown_app(&mut self, link: &LocatedLink, side: Side, name: &str) {
        let short = self.short_name(link.scope, name);
        let unknown = Diagnostic::error(format!("there is no app {}", quoted(short)));
        if self.diagnostics.is_full() {
            return self.diagnostics.push(unknown);
        }
        let known = self.apps_of(link.scope);
        let near = nearest(short, known.iter().copied());
        let meant = near.and_then(|near| self.by_name.get(&self.full_name(link.scope, near)).copied());
        let label = near.map_or("unknown app".to_owned(), |near| format!("did you mean `{near}`?"));
        let place = self.end_place(link, side);
        // The app is the first part of the end.
        let place = Place { end: (place.start + short.len()).min(place.end), ..place };
        let owner = match link.scope {
            Some(scope) => quoted(&self.scopes[scope].name),
            None => "the network".to_owned(),
        };
        let help = format!("{owner} has {}", listed(known));
        self.diagnostics.push(unknown.at(place, label).help(help));
        self.unreported.extend(meant.map(|app| (side, app)));
    }

    /// The short names of the apps of a compound app, or of the network.
    pub(super) fn apps_of(&self, scope: Option<usize>) -> Vec<&str> {
        let apps = self.known.iter().filter(|known| known.scope == scope);
        apps.map(|known| self.short_name(scope, &known.name)).collect()
    }

    pub(super) fn unknown_port(&mut self, link: &LocatedLink, side: Side, end: &LinkEnd) {
        let place = self.end_place(link, side);
        let place = Place { start: place.end.saturating_sub(end.port.len()).max(place.start), ..place };
        self.no_such_port(link.scope, side, end, place);
    }

    /// Reports that an app does not have a port, at a place.
    pub(super) fn no_such_port(&mut self, scope: Option<usize>, side: Side, end: &LinkEnd, place: Place) {
        let Some(&app) = self.by_name.get(&end.app) else { return };
        let Some(kind) = self.kind_of(app) else { return };
        let name = quoted(self.short_name(scope, &end.app));
        let unknown = Diagnostic::error(format!("{name} ({kind}) has no {side} {}", quoted(&end.port)));
        let named = |side: Side| match self.side_ports(app, side) {
            SidePorts::Named(names) => names,
            SidePorts::Any | SidePorts::Unknown => Vec::new(),
        };
        let (known, other_side) = (named(side), other(side));
        let is_other = named(other_side).contains(&end.port);
        let label = match nearest(&end.port, known.iter().map(String::as_str)) {
            _ if is_other => format!("this is an {other_side}"),
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("unknown {side}"),
        };
        let help =
            if known.is_empty() { format!("it has no {side}s") } else { format!("its {side}s: {}", listed(&known)) };
        self.diagnostics.push(unknown.at(place, label).help(help));
        self.unreported.insert((side, app));
        if is_other {
            self.unreported.insert((other_side, app));
        }
    }

    fn linked_twice(&mut self, link: &LocatedLink, first: &LocatedLink, side: Side, end: &LinkEnd) {
        // Two links of one file call it the same; a link inside of a compound app calls it otherwise.
        let end = if link.scope == first.scope { link.named.end(side) } else { end };
        let shown = self.shown_end(link.scope, end);
        let twice = Diagnostic::error(format!("the {side} {} is linked twice", quoted(&shown)));
        let twice = twice.at(self.end_place(link, side), "linked again here");
        let twice = twice.at(self.end_place(first, side), "first linked here");
        let help = match side {
            Side::Output => "put an app that copies packets between, such as `tee`",
            Side::Input => "put an app that merges streams between, such as `join`",
        };
        self.diagnostics.push(twice.help(help));
    }

    /// Reports a port of an app that is not linked, as the port of the outermost compound app that has it.
    fn open_port(&mut self, side: Side, end: &LinkEnd, help: &str) {
        let (mut end, mut help) = (end.clone(), help.to_owned());
        while let Some(scope) = self.by_name.get(&end.app).and_then(|&app| self.known[app].scope) {
            let compound = &self.scopes[scope];
            let stands_for = compound.ports[index(side)].iter().find(|port| port.target.as_ref() == Some(&end));
            let Some(port) = stands_for else { break };
            if !port.help.is_empty() {
                help = port.help.to_owned();
            }
            end = LinkEnd { app: compound.name.clone(), port: port.name.clone() };
        }
        self.too_few_links(side, &end.app, MissingLinks::Port { name: &end.port, help: &help });
    }

    /// Reports an app with any number of ports that has too few. If all that it could have are ports of a compound app,
    /// they are missing there.
    fn too_few_ports(&mut self, side: Side, app: &str, lacking: MissingLinks<'_>) {
        let scope = self.by_name.get(app).and_then(|&app| self.known[app].scope);
        let compound = scope.map(|scope| &self.scopes[scope]);
        let port = compound.and_then(|compound| {
            let is_of = |port: &&CompoundPort| port.target.as_ref().is_some_and(|end| end.app == app);
            Some((compound.name.clone(), compound.ports[index(side)].iter().find(is_of)?.name.clone()))
        });
        match (port, lacking) {
            (Some((app, port)), MissingLinks::Count { help, .. }) => {
                self.open_port(side, &LinkEnd { app, port }, help);
            }
            (_, lacking) => self.too_few_links(side, app, lacking),
        }
    }

    /// Reports ports of compound apps that are not linked although the compound app needs them.
    fn open_compound_ports(&mut self, links: &[LocatedLink]) {
        let linked: HashSet<(Side, &LinkEnd)> =
            links.iter().flat_map(|link| SIDES.map(|side| (side, link.named.end(side)))).collect();
        let mut open = Vec::new();
        let is_reported =
            |side: Side, app: &str| self.by_name.get(app).is_some_and(|app| self.open.contains(&(side, *app)));
        for (scope, side) in self.scopes.iter().flat_map(|scope| SIDES.map(|side| (scope, side))) {
            let ports = &scope.ports[index(side)];
            let is_linked = |port: &&CompoundPort| {
                linked.contains(&(side, &LinkEnd { app: scope.name.clone(), port: port.name.clone() }))
            };
            let missing = ports.iter().filter(|port| port.is_required && !is_linked(port));
            for port in missing.filter(|port| !self.is_needed(side, port)) {
                open.push((side, scope.name.clone(), Some(port.name.clone()), port.help, 0, 0));
            }
            let count = ports.iter().filter(is_linked).count();
            if let Some((at_least, help)) = scope.at_least[index(side)]
                && count < at_least
                && !is_reported(side, &scope.name)
            {
                open.push((side, scope.name.clone(), None, help, count, at_least));
            }
        }
        for (side, app, port, help, count, at_least) in open {
            match port {
                Some(name) => self.too_few_links(side, &app, MissingLinks::Port { name: &name, help }),
                None => self.too_few_links(side, &app, MissingLinks::Count { count, at_least, help }),
            }
        }
    }

    /// Whether the port of an app that a compound app's port stands for must be linked, which is reported there.
    fn is_needed(&self, side: Side, port: &CompoundPort) -> bool {
        let mut port = port;
        loop {
            let Some(end) = &port.target else { return true };
            let Some(&app) = self.by_name.get(&end.app) else { return true };
            match self.known[app].kind {
                KnownKind::Unknown => return true,
                KnownKind::Compound(scope) => {
                    let inner = self.scopes[scope].ports[index(side)].iter().find(|port| port.name == end.port);
                    match inner {
                        Some(inner) => port = inner,
                        None => return true,
                    }
                }
                KnownKind::App(_, info) => {
                    let ports = if side == Side::Input { info.inputs } else { info.outputs };
                    let Ports::Named(named) = ports else { return false };
                    return named.iter().any(|port| port.name == end.port && port.required);
                }
            }
        }
    }

    fn too_few_links(&mut self, side: Side, app: &str, lacking: MissingLinks<'_>) {
        let Some(&index) = self.by_name.get(app) else { return };
        let (KnownApp { place, scope, .. }, Some(kind)) = (&self.known[index], self.kind_of(index)) else { return };
        if self.unreported.contains(&(side, index)) {
            return;
        }
        let (place, scope) = (*place, *scope);
        let app = self.short_name(scope, app);
        let example = |port: &str| match side {
            Side::Input => format!("add \"OTHER.OUTPUT -> {app}.{port}\" to `links`"),
            Side::Output => format!("add \"{app}.{port} -> OTHER.INPUT\" to `links`"),
        };
        let few = match lacking {
            MissingLinks::Port { name, help } => {
                let open = Diagnostic::error(format!("the {side} `{app}.{name}` is not linked"));
                let why = if help.is_empty() { String::new() } else { format!(": {help}") };
                open.at(place, format!("`{kind}` needs it{why}")).help(example(name))
            }
            MissingLinks::Count { count, at_least, help } => {
                let count = if count == 0 { "no".to_owned() } else { format!("only {count}") };
                let few = Diagnostic::error(format!("{} has {count} {side}s linked", quoted(app)));
                let few = few.at(place, format!("`{kind}` needs {at_least} or more: {help}"));
                few.help(format!("{}, with any name for the port", example("NAME")))
            }
        };
        let mark = self.diagnostics.kept();
        self.open.insert((side, index));
        self.diagnostics.push(few);
        self.locate_link(mark, scope, place);
    }

    /// Warns of apps that no link names, except `incomplete` ones, which have been reported.
    fn idle_apps(&mut self, links: &[LocatedLink], incomplete: &HashSet<String>) {
        let linked: HashSet<&str> = links.iter().flat_map(|link| SIDES.map(|side| &*link.spec.end(side).app)).collect();
        let mut idles = Vec::new();
        for (index, app) in self.known.iter().enumerate() {
            let KnownApp { name, place, scope, kind: KnownKind::App(_, info) } = app else { continue };
            let has_ports = !(info.inputs.is_none() && info.outputs.is_none());
            let is_unreported = SIDES.iter().any(|&side| self.unreported.contains(&(side, index)));
            if has_ports && !linked.contains(name.as_str()) && !is_unreported && !incomplete.contains(name) {
                let short = self.short_name(*scope, name);
                let idle = Diagnostic::warning(format!("{} is linked to nothing", quoted(short)));
                let idle = idle.at(*place, "no packet comes here or leaves").help("link it, or remove it");
                idles.push((idle, *scope));
            }
        }
        for (idle, scope) in idles {
            let mark = self.diagnostics.kept();
            self.diagnostics.push(idle);
            self.locate(mark, scope);
        }
    }
}

/// The links that an app lacks.
enum MissingLinks<'l> {
    Port { name: &'l str, help: &'l str },
    Count { count: usize, at_least: usize, help: &'l str },
}
