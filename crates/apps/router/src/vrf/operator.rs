//! Carries out the requests of control clients: changes of routes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bellows_config::nearest;
use bellows_engine::{RequestError, Requests};
use bellows_vrf::command::{RouteCommand, Verb};
use bellows_vrf::route::RouteError;
use bellows_vrf::{Done, RouteSpec, Staged, Vrf, VrfChanges, VrfError};
use serde_json::{Value, json};

use super::RoutingDomain;
use super::answers::{FlushAnswer, ListedNeighbour, StageAnswer, SwapAnswer, next_page};
use super::listing::{MAX_LOOKS, read_after};
use super::requests::{Change, Changed, LineError, MAX_LINES, MAX_ROUTES, Page, Request, RoutesToStage, SwapOfRoutes};

/// How often, and in which intervals, it is tried to give back what workers may have in hand.
const SETTLING: (usize, Duration) = (1_000, Duration::from_micros(50));

/// A client's requests.
pub(super) struct Operator {
    pub(super) domain: Arc<RoutingDomain>,
    /// Routes that are to replace all others.
    staged: Option<Staged>,
    /// The rest of a list of neighbours that the client reads page by page.
    pub(super) listed: Option<VecDeque<ListedNeighbour>>,
}

/// An error that tables or memory cause.
pub(super) fn failed(error: &VrfError) -> RequestError {
    match error {
        VrfError::Memory(_) | VrfError::Exhausted(_) => RequestError::failure(error.to_string()),
        _ => RequestError::mistake(error.to_string()),
    }
}

/// What the tables say of a line.
pub(super) fn refused(vrf: &Vrf, index: usize, text: &str, error: &VrfError) -> LineError {
    let range = error.place_in(text);
    LineError { index, message: error.to_string(), help: help_with(vrf, error), range: (range.start, range.end) }
}

/// How to put an error right, if its text does not say so.
pub(super) fn help_with(vrf: &Vrf, error: &VrfError) -> String {
    match error {
        VrfError::NoInterface(meant) => {
            let names = vrf.interfaces().iter().map(|interface| &*interface.name);
            match nearest(meant, names) {
                Some(name) => format!("did you mean `{name}`?"),
                None => "`bellows show interfaces` lists the interfaces".to_owned(),
            }
        }
        VrfError::Exhausted(_) => "give a larger number of `neighbours` in the network file".to_owned(),
        _ => String::new(),
    }
}

fn unreadable(index: usize, error: RouteError) -> LineError {
    LineError { index, message: error.message, help: error.help, range: (error.range.start, error.range.end) }
}

/// Refuses a request of too many lines.
pub(super) fn check_lines(lines: &[String]) -> Result<(), RequestError> {
    if lines.len() > MAX_LINES {
        let message = format!("{} lines are too many for one request: send up to {MAX_LINES}", lines.len());
        return Err(RequestError::mistake(message));
    }
    Ok(())
}

impl Operator {
    pub(super) fn new(domain: Arc<RoutingDomain>) -> Operator {
        Operator { domain, staged: None, listed: None }
    }

    fn change(&self, change: &Change) -> Result<Changed, RequestError> {
        check_lines(&change.commands)?;
        // Parsed without the lock.
        let verb = Verb::from(change.bare);
        let commands: Vec<_> = change.commands.iter().map(|text| RouteCommand::parse(text, verb)).collect();
        let mut changed = Changed::default();
        let mut changes = self.domain.vrf.lock();
        let mut batch = changes.batch();
        for (index, (command, text)) in commands.into_iter().zip(&change.commands).enumerate() {
            let done = match command {
                Ok(command) => batch.apply(&command).map_err(|error| refused(&self.domain.vrf, index, text, &error)),
                Err(error) => Err(unreadable(index, error)),
            };
            match done {
                Ok(Done::Added) => changed.added += 1,
                Ok(Done::Replaced) => changed.replaced += 1,
                Ok(Done::Deleted) => changed.deleted += 1,
                Err(error) => {
                    changed.errors.push(error);
                    if !change.force {
                        batch.undo();
                        changed = Changed { errors: changed.errors, ..Changed::default() };
                        break;
                    }
                }
            }
        }
        self.commit(changes)?;
        Ok(changed)
    }

    fn flush(&self, page: &Page) -> Result<FlushAnswer, RequestError> {
        let (filter, after) = (self.filter(&page.select)?, read_after(page)?);
        let mut changes = self.domain.vrf.lock();
        if !filter.protocols.is_empty() || filter.origins.iter().any(|origin| origin.is_kernel()) {
            return Err(RequestError::mistake("routes of Linux cannot be flushed: remove them there"));
        }
        if let Some(origin) = filter.origins.iter().find(|origin| !origin.is_entered()) {
            let message = format!("routes with the origin `{}` follow from interfaces and neighbours", origin.name());
            return Err(RequestError::mistake(format!("{message}: they cannot be flushed")));
        }

        let (listed, rest) = changes.list(&filter, after, MAX_ROUTES, MAX_LOOKS);
        let deleted = changes.batch().flush(listed.iter().map(|route| (route.prefix, route.metric)));
        self.commit(changes)?;
        Ok(FlushAnswer { deleted, next: next_page(rest) })
    }

    /// Adds to the staged routes; without any after an error.
    fn stage(&mut self, routes: &[String]) -> Result<StageAnswer, RequestError> {
        check_lines(routes)?;
        let parsed: Vec<_> = routes.iter().map(|text| RouteSpec::parse(text)).collect();
        let mut staged = self.staged.take().unwrap_or_default();
        let mut changes = self.domain.vrf.lock();
        for (index, (route, text)) in parsed.into_iter().zip(routes).enumerate() {
            let entered = match route {
                Ok(route) => {
                    changes.stage(&mut staged, &route).map_err(|error| refused(&self.domain.vrf, index, text, &error))
                }
                Err(error) => Err(unreadable(index, error)),
            };
            if let Err(error) = entered {
                changes.discard(staged);
                self.commit(changes)?;
                return Ok(StageAnswer { staged: 0, errors: vec![error] });
            }
        }
        drop(changes);
        let count = staged.len();
        self.staged = Some(staged);
        Ok(StageAnswer { staged: count, errors: Vec::new() })
    }

    fn swap(&mut self, routes: usize) -> Result<SwapAnswer, RequestError> {
        if routes == 0 {
            return Err(RequestError::mistake("no routes are to replace all others: flush them instead"));
        }
        let count = self.staged.as_ref().map_or(0, Staged::len);
        if count != routes {
            let message =
                format!("{count} routes are staged, not {routes}; was the network reloaded? Stage them again");
            return Err(RequestError::failure(message));
        }
        let staged = self.staged.take().unwrap_or_default();
        let mut changes = self.domain.vrf.lock();
        let swapped = changes.swap(staged);
        self.commit(changes)?;
        Ok(swapped.into())
    }

    /// Makes changes take effect, and gives back what they leave.
    pub(super) fn commit(&self, mut changes: VrfChanges<'_>) -> Result<(), RequestError> {
        let committed = changes.commit();
        drop(changes);
        self.settle();
        committed.map_err(|error| failed(&error))
    }

    /// Gives back what workers may have had in hand when the tables changed, so that they do not have to do it. Others
    /// take turns in between.
    fn settle(&self) {
        let (tries, interval) = SETTLING;
        for _ in 0..tries {
            let mut changes = self.domain.vrf.lock();
            if changes.give_back(MAX_LINES) {
                // The memory of former tables is given back with a commit.
                let _ = changes.commit();
                return;
            }
            drop(changes);
            thread::sleep(interval);
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Some(staged) = self.staged.take() {
            let mut changes = self.domain.vrf.lock();
            changes.discard(staged);
            // Without memory, the next change gives them back.
            let _ = self.commit(changes);
        }
    }
}

impl Requests for Operator {
    type Request = Request;
    type Answer = Value;

    fn answer(&mut self, request: Request) -> Result<Value, RequestError> {
        Ok(match request {
            Request::Change(change) => json!(self.change(&change)?),
            Request::Flush(page) => json!(self.flush(&page)?),
            Request::Routes(page) => json!(self.routes(&page)?),
            Request::LookUp(look_up) => json!(self.look_up(&look_up)?),
            Request::Stage(RoutesToStage { routes }) => json!(self.stage(&routes)?),
            Request::Swap(SwapOfRoutes { routes }) => json!(self.swap(routes)?),
            Request::Fib {} => json!(self.fib()),
            Request::Neighbours(page) => json!(self.neighbours(&page)?),
            Request::ChangeNeighbours(lines) => json!(self.change_neighbours(&lines)?),
            Request::FlushNeighbours(select) => json!(self.flush_neighbours(&select)?),
        })
    }
}
