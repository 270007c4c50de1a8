//! The process' part of a configuration: what a reload keeps, and the start of the other apps.

use std::sync::Arc;

use bellows_observe::layout::{Activity, account, common, doing, engine as cells};
use bellows_observe::{Slab, Succession};
use bellows_packet::{BufferUse, buffer_use};
use bellows_sys::clock::UnixClock;

use super::Parts;
use super::retire::RetiredApp;
use crate::app::erased::{try_start, try_stop};
use crate::app::{AppError, Status};
use crate::network::topology::AppAction;
use crate::panics::catch_panic;

/// What a new configuration keeps of the old one, and the statuses of its apps.
pub(crate) struct ReconfigurationPlan {
    pub(crate) app_actions: Vec<AppAction>,
    /// For each link the same link of the old configuration, if there is one.
    pub(crate) kept_links: Vec<Option<usize>>,
    /// Where the counters of the old configuration go.
    pub(crate) succession: Succession,
    /// The status of each app that has one; set when the apps have started.
    pub(crate) statuses: Vec<Option<Arc<dyn Status>>>,
    /// The number of apps that had started when one could not.
    started: usize,
}

impl ReconfigurationPlan {
    pub(super) fn new(
        app_actions: Vec<AppAction>,
        kept_links: Vec<Option<usize>>,
        succession: Succession,
    ) -> ReconfigurationPlan {
        let statuses = vec![None; app_actions.len()];
        ReconfigurationPlan { app_actions, kept_links, succession, statuses, started: 0 }
    }

    /// Starts each app that is not kept; `old` provides the apps that are replaced.
    ///
    /// If an app cannot start or panics, the apps before it give back what they took. They must still be
    /// [stopped](ReconfigurationPlan::stop_started): not here, because an engine that reloads has no time for that.
    pub(crate) fn start(
        &mut self,
        new: &mut Parts<'_>,
        mut old: Option<&mut Parts<'_>>,
    ) -> Result<(), (String, AppError)> {
        let wall_clock = UnixClock::read();
        for index in 0..new.apps() {
            self.show_start(new, index, old.as_deref(), &wall_clock);
            let buffers = buffer_use();
            let result = match (self.app_actions[index], &mut old) {
                (AppAction::Keep(_), _) => Ok(()),
                (AppAction::Replace(app), Some(old)) => {
                    try_start(&mut **new.app_mut(index), Some(&mut **old.app_mut(app)))
                }
                _ => try_start(&mut **new.app_mut(index), None),
            };
            record_start(new, index, buffer_use().since(buffers));
            if let Err(error) = result {
                if let Some(old) = &mut old {
                    self.undo_starts(new, index, old);
                }
                self.started = index;
                return Err((new.topology().apps[index].name.clone(), error));
            }
        }
        for (index, (status, action)) in self.statuses.iter_mut().zip(&self.app_actions).enumerate() {
            if action.starts_app() {
                *status = catch_panic(|| new.app(index).status()).flatten();
            }
        }
        Ok(())
    }

    /// Shows in the counters that an app is being started. In a reload readers still see the counters of the old
    /// configuration, in which a new app has no row.
    fn show_start(&self, new: &Parts<'_>, index: usize, old: Option<&Parts<'_>>, wall_clock: &UnixClock) {
        let show = |slab: &Slab, position: usize| {
            slab.set(cells::ALIVE, wall_clock.ns());
            slab.set(cells::DOING, doing::with(Activity::Start, position));
        };
        match (self.app_actions[index], old) {
            (AppAction::Keep(_), _) => return,
            (AppAction::Replace(app), Some(old)) => show(old.slab(), app),
            (_, Some(old)) => {
                let slab = old.slab();
                slab.name_new_app(&new.topology().apps[index].name);
                show(slab, doing::NEW_APP);
            }
            (_, None) => {}
        }
        show(new.slab(), index);
    }

    /// Undoes the starts before the app that failed: these apps give back what they took. Buffers that were allocated
    /// or freed meanwhile go to the accounts of the apps that run on.
    fn undo_starts(&self, new: &mut Parts<'_>, failed: usize, old: &mut Parts<'_>) {
        for index in 0..=failed {
            let AppAction::Replace(app) = self.app_actions[index] else { continue };
            let buffers = buffer_use();
            if index < failed {
                let _ = catch_panic(|| new.app_mut(index).give_back(&mut **old.app_mut(app)));
            }
            let change = buffer_use().since(buffers);
            let (node, successor) = (old.node(app), new.node(index));
            let kept = catch_panic(|| new.app(index).held()).unwrap_or(0) as u64;
            node.record(BufferUse {
                taken: change.taken + successor.taken.get(),
                freed: change.freed + successor.freed.get() + kept,
            });
            let lost = change.freed + kept + new.slab().get(successor.cell + common::REMOVED);
            old.slab().add(node.cell + common::REMOVED, lost);
        }
        old.slab().set(cells::DOING, doing::NOTHING);
    }

    /// Marks the apps that panicked for a restart, even if they did not change. Returns their names.
    pub(crate) fn restart_panicked(&mut self, new: &Parts<'_>, old: &Parts<'_>) -> Vec<String> {
        let mut revived = Vec::new();
        for (action, identity) in self.app_actions.iter_mut().zip(&new.topology().apps) {
            let Some(app) = action.old_app() else { continue };
            if old.slab().get(old.node(app).account + account::FAILED) > 0 {
                *action = AppAction::Replace(app);
                revived.push(identity.name.clone());
            }
        }
        revived
    }

    /// Calls `begin` of the apps that were started; in a reload, with the `old` graphs. Returns the apps that panicked.
    pub(crate) fn begin(&self, parts: &mut Parts<'_>, old: Option<&Parts<'_>>) -> Vec<usize> {
        let new: Vec<usize> = (0..parts.apps()).filter(|&index| self.app_actions[index].starts_app()).collect();
        let wall_clock = UnixClock::read();
        let mut begin = |index: usize| {
            self.show_start(parts, index, old, &wall_clock);
            let buffers = buffer_use();
            let has_begun = catch_panic(|| parts.app_mut(index).begin()).is_some();
            record_start(parts, index, buffer_use().since(buffers));
            has_begun
        };
        let panicked = new.into_iter().filter(|&index| !begin(index)).collect();
        for parts in old.into_iter().chain([&*parts]) {
            parts.slab().set(cells::DOING, doing::NOTHING);
        }
        panicked
    }

    /// The apps of the old configuration that do not run on, and where their late counts go.
    pub(crate) fn retired_apps(&self, parts: &Parts<'_>) -> Vec<RetiredApp> {
        let replaced = self.app_actions.iter().enumerate().filter_map(|(index, action)| match *action {
            // The other counters of the app may be gauges of the new app by now.
            AppAction::Replace(app) => Some(RetiredApp { app, cell: Some(parts.node(index).cell), counters: false }),
            _ => None,
        });
        let removed = self.succession.removed_apps();
        replaced.chain(removed.map(|(app, cell)| RetiredApp { app, cell, counters: true })).collect()
    }

    /// Stops the apps that started before one could not.
    pub(crate) fn stop_started(&mut self, parts: &mut Parts<'_>) {
        for index in 0..std::mem::take(&mut self.started) {
            if self.app_actions[index].starts_app() {
                // The start error is reported; an app that never ran has nothing to finish.
                let _ = try_stop(&mut **parts.app_mut(index));
            }
        }
    }
}

/// Records the buffers that an app allocated or freed while it started. Packets that it freed were inside the app that
/// it replaces.
fn record_start(parts: &Parts<'_>, index: usize, change: BufferUse) {
    let node = parts.node(index);
    let freed = change.freed.saturating_sub(change.taken);
    node.record(BufferUse { taken: change.taken.saturating_sub(change.freed), freed });
    parts.slab().add(node.cell + common::REMOVED, freed);
}
