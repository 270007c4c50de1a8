//! Apps that do the work of several others in one loop: each is put in front of these wherever a network has them one
//! behind the other.

use std::collections::HashSet;
use std::path::PathBuf;

use bellows_engine::{LinkEnd, LinkSpec, MAIN, Ports, Side};

use super::checks::Wrong;
use super::{Builder, CreatedApp, KnownApp, KnownKind, Pending};
use crate::entry::Entry;
use crate::fusion::Fusion;
use crate::path_bases::Bases;
use crate::source::NamedTable;
use crate::spanned::{Key, Node, Place, Table, Value};

/// The type of the app that brings several streams to one input.
const JOIN: &str = "join";

impl<'r> Builder<'r> {
    /// Adds the apps and their links to a network without errors.
    pub(super) fn fuse(&mut self, links: &mut Vec<LinkSpec>) {
        let registry = self.registry;
        let fusing = registry.entries().filter_map(|entry| Some((entry, entry.fusion()?)));
        for (entry, fusion) in fusing {
            for head in 0..self.created.len() {
                let chains = fusion.stages.iter();
                if let Some(chain) = chains.filter_map(|kinds| self.chain(head, kinds, (entry, fusion), links)).next() {
                    self.put_in_front(&chain, (entry, fusion), links);
                }
            }
        }
    }

    /// The stages from this first one on, by their positions among the created apps, if they have these types and are
    /// alike in all that the app has once.
    fn chain(
        &self,
        head: usize,
        kinds: &[&str],
        (entry, fusion): (&Entry, Fusion),
        links: &[LinkSpec],
    ) -> Option<Vec<usize>> {
        let (first, others) = kinds.split_first()?;
        let mut at = &self.created[head];
        let may_be = |app: &CreatedApp<'_>, kind: &str| app.entry.name() == kind && app.common.fuse != Some(false);
        if !may_be(at, first) {
            return None;
        }
        let from = links.iter().find(|link| link.to == self.first_port(at, Side::Input)).map(|link| &link.from)?;
        if from.port == fusion.rest && self.created_app(&from.app).is_some_and(|app| app.entry.name() == entry.name()) {
            return None;
        }
        let mut chain = vec![head];
        let mut shared = shared_by(at, fusion);
        for kind in others {
            let from = self.first_port(at, Side::Output);
            let to = &links.iter().find(|link| link.from == from)?.to;
            let next = self.created.iter().position(|app| self.known[app.known].name == to.app)?;
            at = &self.created[next];
            let is_first =
                matches!(at.entry.info().inputs, Ports::Any { .. }) || self.first_port(at, Side::Input) == *to;
            let value = shared_by(at, fusion);
            let is_same = value.is_none() || shared.is_none() || value == shared;
            if !may_be(at, kind) || !is_first || !is_same || !self.is_beside(head, next) {
                return None;
            }
            shared = shared.or(value);
            chain.push(next);
        }
        Some(chain)
    }

    /// Whether two apps are parts of the same compound app, or of none, on the same worker.
    fn is_beside(&self, one: usize, other: usize) -> bool {
        let [one, other] = [one, other].map(|app| &self.created[app]);
        let scope = |app: &CreatedApp<'_>| self.known[app.known].scope;
        scope(one) == scope(other) && one.common.worker() == other.common.worker()
    }

    /// The end of the first port of an app on a side. Apps with ports of any names have none of this name.
    fn first_port(&self, app: &CreatedApp<'_>, side: Side) -> LinkEnd {
        let info = app.entry.info();
        let port = match if side == Side::Input { info.inputs } else { info.outputs } {
            Ports::Named([first, ..]) => first.name,
            Ports::Named([]) | Ports::Any { .. } => "",
        };
        LinkEnd { app: self.known[app.known].name.clone(), port: port.to_owned() }
    }

    fn created_app(&self, name: &str) -> Option<&CreatedApp<'r>> {
        self.created.iter().find(|app| self.known[app.known].name == name)
    }

    /// Adds the app in front of its stages, and links it.
    fn put_in_front(&mut self, chain: &[usize], (entry, fusion): (&'r Entry, Fusion), links: &mut Vec<LinkSpec>) {
        let Some(&first) = chain.first() else { return };
        let names: Vec<String> = chain.iter().map(|&app| self.known[self.created[app].known].name.clone()).collect();
        let head = &self.created[first];
        let (scope, place) = (self.known[head.known].scope, self.known[head.known].place);
        let input = self.first_port(head, Side::Input);
        let Some(link) = links.iter().position(|link| link.to == input) else { return };
        let of_head = self.short_name(scope, &names[0]);
        // That of `w1-ip4-input` is `w1-ip4-forward`.
        let short = match of_head.strip_suffix(head.entry.name()) {
            Some(start) => format!("{start}{}", entry.name()),
            None => format!("{of_head}-{}", entry.name()),
        };
        let shared = chain.iter().find_map(|&app| shared_by(&self.created[app], fusion)).map(str::to_owned);
        let distance = head.common.prefetch();
        let worker = head.common.worker().to_owned();
        let shared = shared.into_iter().map(|value| (fusion.shared, Value::Text(value)));
        let distance = distance.into_iter().map(|distance| ("prefetch", Value::Integer(distance.into())));
        let made = self.make(entry, &short, (scope, place), shared.chain(distance).collect(), &worker, &names[0]);
        let Some(name) = made else { return };
        for stage in &names[1..] {
            self.tie(stage, &names[0]);
        }
        let end = |port: &str| LinkEnd { app: name.clone(), port: port.to_owned() };
        links[link].to = end(fused_input(entry));
        links.push(LinkSpec { from: end(fusion.rest), to: input });
        let kinds: Vec<&str> = chain.iter().map(|&app| self.created[app].entry.name()).collect();
        let stage_output = |(kind, output): &(&str, &str)| {
            let stage = kinds.iter().position(|it| it == kind)?;
            Some(LinkEnd { app: names[stage].clone(), port: (*output).to_owned() })
        };
        for (output, sources) in fusion.outputs {
            let sources: Vec<LinkEnd> = sources.iter().filter_map(stage_output).collect();
            let found: Vec<usize> =
                sources.iter().filter_map(|from| links.iter().position(|link| link.from == *from)).collect();
            let Some(&link) = found.first() else { continue };
            let is_same = found.iter().all(|&it| links[it].to.app == links[link].to.app);
            let is_alone = found.len() == 1 || self.has_any_inputs(&links[link].to.app);
            // What a stage would drop goes on to the stages, which count it.
            if found.len() == sources.len() && is_same && is_alone {
                self.lead(&end(output), link, links);
            }
        }
        let is_other = |port: &str| {
            let is_of_last = |(kind, output): &(&str, &str)| *output == port && kinds.last() == Some(kind);
            fusion.lacks.contains(&port) || fusion.outputs.iter().any(|(_, from)| from.iter().any(is_of_last))
        };
        let same: Vec<usize> = (0..links.len())
            .filter(|&at| Some(&links[at].from.app) == names.last() && !is_other(&links[at].from.port))
            .collect();
        for link in same {
            let port = links[link].from.port.clone();
            self.lead(&end(&port), link, links);
        }
    }

    fn has_any_inputs(&self, app: &str) -> bool {
        self.created_app(app).is_some_and(|app| matches!(app.entry.info().inputs, Ports::Any { .. }))
    }

    /// Links an output to where a link leads, if need be by an app that joins both.
    fn lead(&mut self, from: &LinkEnd, link: usize, links: &mut Vec<LinkSpec>) {
        let target = links[link].to.clone();
        let short_of = |builder: &Self, app: &str| {
            let scope = builder.by_name.get(app).and_then(|&app| builder.known[app].scope);
            builder.short_name(scope, app).replace('/', "-")
        };
        if self.has_any_inputs(&target.app) {
            let port = unused_port(&target.app, &short_of(self, &from.app), links);
            links.push(LinkSpec { from: from.clone(), to: LinkEnd { app: target.app, port } });
            return;
        }
        let registry = self.registry;
        let (Some(entry), Some(&known)) = (registry.get(JOIN), self.by_name.get(&target.app)) else { return };
        let KnownApp { scope, place, .. } = self.known[known];
        let short = format!("{}-{}-{JOIN}", self.short_name(scope, &target.app), target.port);
        let worker = self.created_app(&target.app).map_or(MAIN, |app| app.common.worker()).to_owned();
        let Some(join) = self.make(entry, &short, (scope, place), Vec::new(), &worker, &target.app) else { return };
        let output = LinkEnd { app: join.clone(), port: "output".to_owned() };
        links.push(LinkSpec { from: output, to: target });
        let first = short_of(self, &links[link].from.app);
        links[link].to = LinkEnd { app: join.clone(), port: first };
        let port = unused_port(&join, &short_of(self, &from.app), links);
        links.push(LinkSpec { from: from.clone(), to: LinkEnd { app: join, port } });
    }

    /// Creates an app that no file names, in front of the app that it was made for. Returns its name, or `None` if that
    /// would be too long.
    fn make(
        &mut self,
        entry: &'r Entry,
        short: &str,
        (scope, place): (Option<usize>, Place),
        keys: Vec<(&str, Value)>,
        worker: &str,
        made_for: &str,
    ) -> Option<String> {
        let names = (1..).map(|number| if number == 1 { short.to_owned() } else { format!("{short}-{number}") });
        let short = names.into_iter().find(|short| !self.by_name.contains_key(&self.full_name(scope, short)))?;
        if !self.is_name(&short, scope) {
            return None;
        }
        let name = self.full_name(scope, &short);
        let known = self.known.len();
        self.by_name.insert(name.clone(), known);
        let kind = KnownKind::App(entry.name(), *entry.info());
        self.known.push(KnownApp { name: name.clone(), place, scope, kind });
        let worker = (worker != MAIN).then(|| ("worker", Value::Text(worker.to_owned())));
        let entries = keys.into_iter().chain(worker);
        let entries =
            entries.map(|(name, value)| (Key { name: name.to_owned(), place }, Node { place, value, untyped: None }));
        let table = Table(entries.collect());
        let named = NamedTable { key: Key { name: short, place }, table, folder: PathBuf::new(), bases: Bases::new() };
        let pending = Pending { known, entry, is_known: true, named, generated: Some(place), lacks: Wrong::default() };
        self.create_app(pending);
        let at = self.made.iter().position(|app| app.name == made_for);
        let mut made = self.made.pop_if(|app| app.name == name)?;
        made.moves_with = Some(made_for.to_owned());
        made.is_made = true;
        self.made.insert(at.unwrap_or(self.made.len()), made);
        Some(name)
    }

    /// Has an app move to other workers with another one.
    fn tie(&mut self, app: &str, with: &str) {
        if let Some(spec) = self.made.iter_mut().find(|spec| spec.name == app) {
            spec.moves_with = Some(with.to_owned());
        }
    }
}

/// The value of the key that stages have in common.
fn shared_by<'a>(app: &'a CreatedApp<'_>, fusion: Fusion) -> Option<&'a str> {
    match &app.table.get(fusion.shared)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The input of an app that does the work of several others.
fn fused_input(entry: &Entry) -> &'static str {
    match entry.info().inputs {
        Ports::Named([first, ..]) => first.name,
        Ports::Named([]) | Ports::Any { .. } => "input",
    }
}

/// A name for an input of an app that takes any, which no link has.
fn unused_port(app: &str, name: &str, links: &[LinkSpec]) -> String {
    let taken: HashSet<&str> = links.iter().filter(|link| link.to.app == app).map(|link| &*link.to.port).collect();
    // With a number it must still be a name.
    let name = if name.len() < LinkEnd::MAX_NAME - 8 { name } else { "more" };
    let names = (1..).map(|number| if number == 1 { name.to_owned() } else { format!("{name}-{number}") });
    names.into_iter().find(|name| !taken.contains(&**name)).unwrap_or_default()
}
