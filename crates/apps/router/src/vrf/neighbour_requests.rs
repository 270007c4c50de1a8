//! Carries out the requests of control clients that are about neighbours.

use std::collections::HashSet;
use std::net::IpAddr;

use bellows_engine::RequestError;
use bellows_vrf::command::{NeighbourCommand, Verb};
use bellows_vrf::neighbours::NeighbourKey;
use bellows_vrf::{Origin, VrfChanges, VrfError};
use bellows_wire::MacAddr;

use super::answers::{ListedNeighbour, NeighbourFlushAnswer, NeighboursAnswer};
use super::operator::{Operator, check_lines, failed};
use super::requests::{Changed, LineError, NeighbourLines, NeighbourPage, NeighbourSelection};

/// The maximum number of neighbours of an answer.
const MAX_NEIGHBOURS: usize = 16_384;

/// A neighbour before a change: its key, and the address that somebody had entered.
type NeighbourBefore = (NeighbourKey, Option<(MacAddr, Origin)>);

impl Operator {
    /// All neighbours: those that somebody entered, and those that were learned.
    pub(super) fn all_neighbours(&self) -> Vec<ListedNeighbour> {
        let tables = self.domain.tables();
        let changes = tables.lock();
        let permanent = changes.permanent().map(|((number, address), mac, origin)| {
            let interface = tables.interface(number).map_or_else(String::new, |interface| interface.name.clone());
            ListedNeighbour::entered(interface, address, mac.to_string(), origin)
        });
        let mut all: Vec<ListedNeighbour> = permanent.collect();
        drop(changes);
        let key = |one: &ListedNeighbour| (one.interface.clone(), one.address);
        let mut known: HashSet<(String, IpAddr)> = all.iter().map(key).collect();
        let learned = self.domain.learned().into_iter().map(ListedNeighbour::from);
        all.extend(learned.filter(|learned| known.insert(key(learned))));
        all.sort_by_cached_key(key);
        all
    }

    /// The neighbours that were learned and have answered.
    fn learned(&self) -> HashSet<NeighbourKey> {
        let tables = self.domain.tables();
        let answered = self.domain.learned().into_iter().filter(|one| one.mac.is_some());
        answered.filter_map(|one| Some((tables.number(&one.interface)?, one.address))).collect()
    }

    /// A page of neighbours. The list stays as it was when its first page was asked for.
    pub(super) fn neighbours(&mut self, page: &NeighbourPage) -> Result<NeighboursAnswer, RequestError> {
        let mut listed = match self.listed.take() {
            Some(rest) if page.goes_on => rest,
            None if page.goes_on => {
                let message = "the list of neighbours has ended; was the network reloaded? List them again";
                return Err(RequestError::failure(message));
            }
            _ => self.selected(&page.select)?.into(),
        };
        let rest = listed.split_off(listed.len().min(MAX_NEIGHBOURS));
        let more = !rest.is_empty();
        self.listed = more.then_some(rest);
        Ok(NeighboursAnswer { neighbours: listed.into(), more })
    }

    fn selected(&self, select: &NeighbourSelection) -> Result<Vec<ListedNeighbour>, RequestError> {
        select.dev.as_deref().map(|name| self.interface(name)).transpose()?;
        let is_meant = |one: &ListedNeighbour| {
            select.dev.as_ref().is_none_or(|dev| one.interface == *dev)
                && select.address.is_none_or(|address| one.address == address)
        };
        Ok(self.all_neighbours().into_iter().filter(is_meant).collect())
    }

    pub(super) fn change_neighbours(&self, lines: &NeighbourLines) -> Result<Changed, RequestError> {
        let NeighbourLines { commands, bare } = lines;
        check_lines(commands)?;
        let (mut changed, mut forgotten) = (Changed::default(), Vec::new());
        // Those that were learned: what their owners do with them is known when they are told.
        let learned = self.learned();
        let mut changes = self.domain.tables().lock();
        let mut undo = Vec::new();
        for (index, text) in commands.iter().enumerate() {
            let command = NeighbourCommand::parse(text, (*bare).into()).map_err(|error| LineError {
                index,
                message: error.message,
                help: error.help,
                range: (error.range.start, error.range.end),
            });
            let done = command.and_then(|command| {
                self.change_neighbour(&mut changes, &command, &learned, &mut undo, &mut forgotten)
                    .map_err(|message| LineError { index, message, help: String::new(), range: (0, text.len()) })
            });
            match done {
                Ok(Verb::Delete) => changed.deleted += 1,
                Ok(Verb::Replace) => changed.replaced += 1,
                Ok(Verb::Add | Verb::Append) => changed.added += 1,
                Err(error) => {
                    forgotten.clear();
                    for (key, before) in undo.into_iter().rev() {
                        if restore(&mut changes, key, before).map_err(|error| failed(&error))? {
                            forgotten.push(key);
                        }
                    }
                    changed = Changed { errors: vec![error], ..Changed::default() };
                    break;
                }
            }
        }
        self.forget(changes, forgotten)?;
        Ok(changed)
    }

    fn change_neighbour(
        &self,
        changes: &mut VrfChanges<'_>,
        command: &NeighbourCommand,
        learned: &HashSet<NeighbourKey>,
        undo: &mut Vec<NeighbourBefore>,
        forgotten: &mut Vec<NeighbourKey>,
    ) -> Result<Verb, String> {
        let NeighbourCommand { verb, address, mac, interface } = command;
        let tables = self.domain.tables();
        let number = match interface {
            Some(name) => tables.number(name).ok_or_else(|| VrfError::NoInterface(name.clone()).to_string())?,
            None => changes.link_of(*address).map_err(|error| error.to_string())?,
        };
        let key = (number, *address);
        let before = changes.permanent_of(key);
        let name = tables.interface(number).map_or("", |interface| &*interface.name);
        match (verb, before) {
            (Verb::Delete, Some((_, Origin::Static))) => {
                return Err(format!("the neighbour {address} is in the network file: remove it there"));
            }
            (Verb::Delete, Some((_, Origin::Kernel(_)))) => {
                return Err(format!("the neighbour {address} comes from Linux: remove it there"));
            }
            (Verb::Delete, Some(_)) => {
                changes.remove_neighbour(key, Origin::Control);
                // What was heard of it meanwhile has not reached the tables, and would not until it changes.
                forgotten.push(key);
            }
            (Verb::Delete, None) if learned.contains(&key) => forgotten.push(key),
            (Verb::Delete, None) => return Err(format!("there is no neighbour {address} on `{name}`")),
            (Verb::Add, Some(_)) => {
                return Err(format!("there is a neighbour {address} on `{name}` already: replace it"));
            }
            (_, _) => {
                let mac = mac.ok_or("the neighbour's Ethernet address is missing: give it with `lladdr`")?;
                changes.enter_neighbour(key, mac, Origin::Control).map_err(|error| error.to_string())?;
            }
        }
        undo.push((key, before));
        Ok(match verb {
            Verb::Delete => Verb::Delete,
            _ if before.is_some() => Verb::Replace,
            _ => Verb::Add,
        })
    }

    /// Makes changes take effect, and has neighbours that were learned be asked anew.
    fn forget(&self, mut changes: VrfChanges<'_>, forgotten: Vec<NeighbourKey>) -> Result<(), RequestError> {
        self.domain.forgotten().forget(forgotten.iter().copied());
        forgotten.into_iter().for_each(|(number, address)| changes.unresolve(number, address));
        self.commit(changes)
    }

    pub(super) fn flush_neighbours(&self, select: &NeighbourSelection) -> Result<NeighbourFlushAnswer, RequestError> {
        let selected = self.selected(select)?;
        let tables = self.domain.tables();
        let mut changes = tables.lock();
        let mut forgotten = Vec::new();
        for one in selected {
            let (Some(number), address) = (tables.number(&one.interface), one.address) else { continue };
            match changes.permanent_of((number, address)).map(|(_, origin)| origin) {
                Some(Origin::Control) => drop(changes.remove_neighbour((number, address), Origin::Control)),
                Some(_) => continue,
                // Those that have not answered are being asked.
                None if one.mac.is_none() => continue,
                None => {}
            }
            forgotten.push((number, address));
        }
        let deleted = forgotten.len();
        self.forget(changes, forgotten)?;
        Ok(NeighbourFlushAnswer { deleted })
    }
}

/// Takes back a change. Returns whether the tables then know nothing of the neighbour, even if it was learned.
fn restore(
    changes: &mut VrfChanges<'_>,
    key: NeighbourKey,
    before: Option<(MacAddr, Origin)>,
) -> Result<bool, VrfError> {
    match before {
        Some((mac, Origin::Control)) => changes.enter_neighbour(key, mac, Origin::Control).map(|()| false),
        _ => Ok(changes.remove_neighbour(key, Origin::Control)),
    }
}
