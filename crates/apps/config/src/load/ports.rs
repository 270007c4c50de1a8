//! The ports of compound apps: each stands for a port of a part.

use std::collections::{HashMap, HashSet};

use bellows_engine::{LinkEnd, Side};

use super::Builder;
use super::expand::CompoundPort;
use super::links::{SIDES, SidePorts, index};
use crate::diagnostics::{Diagnostic, listed, quoted};
use crate::spanned::{Place, Value};
use crate::suggest::nearest;

impl Builder<'_> {
    /// Finds the ports of parts that ports of compound apps stand for, and reports wrong ones.
    pub(super) fn check_compound_ports(&mut self) {
        let linked = self.linked_inside();
        for scope in 0..self.scopes.len() {
            for side in SIDES {
                let mut ports = std::mem::take(&mut self.scopes[scope].ports[index(side)]);
                let mut first: HashMap<LinkEnd, String> = HashMap::new();
                for port in &mut ports {
                    let mark = self.diagnostics.kept();
                    let target = self.target(scope, side, port);
                    port.target = target.filter(|end| match first.get(end) {
                        _ if linked.contains(&(side, end.clone())) => {
                            self.ambiguous(scope, side, port, "is linked between the parts as well");
                            false
                        }
                        Some(other) => {
                            self.ambiguous(scope, side, port, &format!("is the {side} {}, too", quoted(other)));
                            false
                        }
                        None => true,
                    });
                    if let Some(end) = &port.target {
                        first.insert(end.clone(), port.name.clone());
                    }
                    self.explain_port(mark, scope, side, port);
                }
                self.scopes[scope].ports[index(side)] = ports;
            }
        }
    }

    /// The ports that links between parts name.
    fn linked_inside(&self) -> HashSet<(Side, LinkEnd)> {
        let mut linked = HashSet::new();
        for (node, scope) in &self.inner_links {
            let Value::Text(text) = &node.value else { continue };
            let Some((ends, _)) = self.read_link(text, Some(*scope)) else { continue };
            for (side, (app, port)) in SIDES.into_iter().zip(ends) {
                linked.extend(port.map(|port| (side, LinkEnd { app, port })));
            }
        }
        linked
    }

    fn explain_port(&mut self, mark: usize, scope: usize, side: Side, port: &CompoundPort) {
        if self.scopes[scope].file.is_none() {
            self.diagnostics.explain(mark, port.place, &format!("for its {side} {}", quoted(&port.name)));
        }
        self.locate(mark, Some(scope));
    }

    fn ambiguous(&mut self, scope: usize, side: Side, port: &CompoundPort, why: &str) {
        let name = &self.scopes[scope].name;
        let message = format!("the {side} {} of {}: {} {why}", quoted(&port.name), quoted(name), quoted(&port.end));
        let help = match side {
            Side::Output => "put an app that copies packets between, such as `tee`",
            Side::Input => "put an app that merges streams between, such as `join`",
        };
        self.diagnostics.push(Diagnostic::error(message).at(port.place, "").help(help));
    }

    /// The part's port that a port stands for; `None` after an error, which this function reports.
    fn target(&mut self, scope: usize, side: Side, port: &CompoundPort) -> Option<LinkEnd> {
        let place = port.place;
        let Some((app, written)) = self.read_end(port.end.trim(), Some(scope)) else {
            let wrong = Diagnostic::error(format!("{} is not a port of a part", quoted(&port.end)));
            self.diagnostics.push(wrong.at(place, "").help(format!("write it as \"app.{side}\"")));
            return None;
        };
        let short = self.short_name(Some(scope), &app).to_owned();
        let known = self.by_name.get(&app).copied().filter(|&known| self.known[known].scope == Some(scope));
        let Some(known) = known else {
            self.no_such_part(scope, side, &short, place);
            return None;
        };
        let names = match self.side_ports(known, side) {
            // Its type is unknown, which has been reported.
            SidePorts::Unknown => return None,
            SidePorts::Any => return self.any_port(app, written, port),
            SidePorts::Named(names) => names,
        };
        match (written, &names[..]) {
            (Some(written), _) if names.contains(&written) => Some(LinkEnd { app, port: written }),
            (Some(written), _) => {
                self.no_such_port(Some(scope), side, &LinkEnd { app, port: written }, place);
                None
            }
            (None, [only]) => Some(LinkEnd { app, port: only.clone() }),
            (None, _) => {
                let which = Diagnostic::error(format!("{} does not say which {side}", quoted(&port.end)));
                let help = match names.is_empty() {
                    true => format!("{} has no {side}s", quoted(&short)),
                    false => format!("its {side}s: {}", listed(&names)),
                };
                self.diagnostics.push(which.at(place, "").help(help));
                None
            }
        }
    }

    /// A port of an app that has any number of them: without a name it is called as that of the compound app.
    fn any_port(&self, app: String, written: Option<String>, port: &CompoundPort) -> Option<LinkEnd> {
        Some(LinkEnd { app, port: written.unwrap_or_else(|| port.name.clone()) })
    }

    fn no_such_part(&mut self, scope: usize, side: Side, name: &str, place: Place) {
        let unknown = Diagnostic::error(format!("there is no app {}", quoted(name)));
        let known = self.apps_of(Some(scope));
        let near = nearest(name, known.iter().copied());
        let meant = near.and_then(|near| self.by_name.get(&self.full_name(Some(scope), near)).copied());
        let label = near.map_or("unknown app".to_owned(), |near| format!("did you mean `{near}`?"));
        let help = format!("{} has {}", quoted(&self.scopes[scope].name), listed(known));
        self.diagnostics.push(unknown.at(place, label).help(help));
        self.unreported.extend(meant.map(|app| (side, app)));
    }
}
