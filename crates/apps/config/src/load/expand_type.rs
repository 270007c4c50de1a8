//! Compound apps that a type describes: its configs of parts become tables.

use std::cell::Cell;
use std::path::Path;

use bellows_engine::{Ports, Side};
use serde_json::Value as Json;

use super::expand::{CompoundPort, Contents, NewApp};
use super::links::index;
use super::{Builder, KnownKind, Owner, Wrong};
use crate::app_keys::Common;
use crate::compound::{CompoundEntry, Parts};
use crate::configure::Context;
use crate::diagnostics::{Diagnostic, quoted};
use crate::path_bases::Bases;
use crate::source::NamedTable;
use crate::spanned::{Key, Node, Place, Table, Value, of_json};

impl Builder<'_> {
    /// Adds the parts of a compound app that a type describes.
    pub(super) fn expand_type(&mut self, known: usize, entry: &CompoundEntry, mut named: NamedTable, lacks: Wrong) {
        let Some(scope) = self.add_scope(known, entry.name(), None) else { return };
        named.key.name.clone_from(&self.known[known].name);
        let inherited = self.inherited(&mut named, entry.schema());
        let NamedTable { key, mut table, folder, bases } = named;
        let called = format!("compound app type `{}`", entry.name());
        let others: Vec<&str> = Common::KEYS.iter().copied().chain(["parts"]).collect();
        let owner = Owner { called: &called, others: &others };
        let mut wrong = self.check(entry.schema(), &mut table, key.place, owner, entry.read);
        wrong.add(lacks);
        let context = Context::new(&folder, &key.name).with_bases(bases.clone()).with_objects(&self.objects);
        let context = context.with_texts(self.overrides.texts());
        // Of a table in which something is wrong, what else is written in it is checked, and nothing is linked.
        let expanded = Cell::new(None);
        let expand = |table: &Table| (entry.expand)(table, &context).map(|parts| expanded.set(Some(parts)));
        let is_right = self.configure(&key, &mut table, &mut wrong, expand).is_some();
        self.diagnostics.add_files(context.texts());
        drop(context);
        let Some(parts) = expanded.into_inner() else { return };
        let mut contents = self.made_contents(&key, &table, parts, (&folder, &bases), &wrong);
        if !is_right {
            (contents.links, contents.ports) = (Vec::new(), Default::default());
            let first = self.known.len();
            let is_written = |app: &NewApp| app.generated != Some(key.place) || inherited.sets(&app.named.key.name);
            contents.apps.retain(is_written);
            let inherited = inherited.of_only(&contents.apps);
            self.populate(scope, contents, inherited);
            (first..self.known.len()).for_each(|part| self.leave_unlinked(part));
            return;
        }
        self.known[known].kind = KnownKind::Compound(scope);
        self.declare(scope, entry, key.place, &mut contents);
        self.populate(scope, contents, inherited);
    }

    /// The contents that a type has made.
    fn made_contents(
        &mut self,
        key: &Key,
        table: &Table,
        parts: Parts,
        (folder, bases): (&Path, &Bases),
        wrong: &Wrong,
    ) -> Contents {
        let mut contents = Contents::default();
        let place_of =
            |builder: &Self, from: Option<&str>| from.and_then(|from| builder.place(table, from)).unwrap_or(key.place);
        let written = |from: Option<&str>| from.and_then(|from| table.table_at(from)).unwrap_or(table);
        let named = |name: String, place: Place, mut table: Table, common: &serde_json::Map<String, Json>| {
            table.0.extend(
                common
                    .iter()
                    .filter_map(|(name, value)| Some((Key { name: name.clone(), place }, of_json(value, place)?))),
            );
            NamedTable { key: Key { name, place }, table, folder: folder.to_owned(), bases: bases.clone() }
        };
        for part in parts.apps {
            let from = part.from_key.as_deref();
            let place = place_of(self, from);
            let Some(mut made) = self.made_table(&part.name, part.config, place) else { continue };
            made.adopt_places(written(from));
            if let Some(Value::List(items)) = from.and_then(|from| table.get(from)).map(|node| &node.value) {
                made.adopt_items(items);
            }
            let table = made;
            let named = named(part.name, place, table, &part.common);
            contents.apps.push(NewApp { named, kind: Some(part.kind), generated: Some(place), lacks: wrong.whole() });
        }
        for object in parts.objects {
            let from = object.from_key.as_deref();
            let place = place_of(self, from);
            let Some(mut made) = self.made_table(&object.name, object.config, place) else { continue };
            made.adopt_places(written(from));
            let table = made;
            let named = named(object.name, place, table, &serde_json::Map::new());
            // Without a key, it has those of the compound app.
            let lacks = if from.is_none() { wrong.clone() } else { wrong.whole() };
            contents.objects.push((named, Some(object.kind), lacks));
        }
        let link = |text| Node { place: key.place, value: Value::Text(text), untyped: None };
        contents.links = parts.links.into_iter().map(link).collect();
        let port =
            |(name, end)| CompoundPort { name, place: key.place, end, target: None, is_required: false, help: "" };
        contents.ports[index(Side::Input)] = parts.inputs.into_iter().map(port).collect();
        contents.ports[index(Side::Output)] = parts.outputs.into_iter().map(port).collect();
        contents
    }

    /// The table of a config that a type has made.
    fn made_table(&mut self, part: &str, config: Result<Json, String>, place: Place) -> Option<Table> {
        match config.map(|config| of_json(&config, place)) {
            Ok(Some(Node { value: Value::Table(table), .. })) => Some(table),
            Ok(None) => Some(Table::default()),
            Ok(Some(node)) => {
                let wrong = format!("the config of the part {} is {}, not a table", quoted(part), node.value.called());
                self.diagnostics.push(Diagnostic::error(wrong).at(place, ""));
                None
            }
            Err(error) => {
                let wrong = format!("the config of the part {} cannot be serialized: {error}", quoted(part));
                self.diagnostics.push(Diagnostic::error(wrong).at(place, ""));
                None
            }
        }
    }

    /// Compares the ports that a type declares with those of its parts.
    fn declare(&mut self, scope: usize, entry: &CompoundEntry, place: Place, contents: &mut Contents) {
        for (side, declared) in [(Side::Input, entry.inputs()), (Side::Output, entry.outputs())] {
            let given = &mut contents.ports[index(side)];
            let named = match declared {
                Ports::Named(named) => named,
                Ports::Any { at_least, help } => {
                    given.iter_mut().for_each(|port| port.help = help);
                    self.scopes[scope].at_least[index(side)] = Some((at_least, help));
                    continue;
                }
            };
            let mut wrong = |message: String| {
                let wrong = Diagnostic::error(format!("compound app type `{}` {message}", entry.name()));
                self.diagnostics.push(wrong.at(place, "").help("this is an error in the type, not in the network"));
            };
            for port in named.iter().filter(|port| port.required && !given.iter().any(|it| it.name == port.name)) {
                wrong(format!("gives no part its {side} `{}`", port.name));
            }
            for given in given {
                match named.iter().find(|port| given.name == port.name) {
                    Some(port) => (given.is_required, given.help) = (port.required, port.help),
                    None => wrong(format!("does not declare its {side} {}", quoted(&given.name))),
                }
            }
        }
    }
}
