//! Apps that panic: stand-ins replace them, and the run goes on.

use std::mem;

use bellows_observe::layout::{Activity, common, doing, engine as cells};
use bellows_packet::{BufferUse, buffer_use};
use bellows_sys::clock;

use super::Worker;
use crate::app::erased::{AppBox, DynApp, FailedApp, erase};
use crate::panics::catch_panic;
use crate::runtime::links::with_drop_reason;

impl Worker {
    /// The apps that panicked since the last call. Stand-ins have replaced them.
    pub(crate) fn take_failed(&mut self) -> Vec<usize> {
        mem::take(&mut self.failed)
    }

    /// Whether apps have panicked since then.
    pub(crate) fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Replaces apps by stand-ins that panicked outside of breaths.
    pub(crate) fn report_panics(&mut self, apps: &[usize]) {
        apps.iter().for_each(|&app| self.state.report_panic(app));
        if !apps.is_empty() {
            self.replace_failed();
        }
    }

    /// Replaces apps that panicked by stand-ins, and finishes an interrupted breath.
    #[cold]
    pub(super) fn replace_failed(&mut self) {
        let in_hand_is_unknown = self.state.in_hand_unknown.take();
        self.state.failures.set(0);
        for app in self.state.failed.take() {
            self.failed.push(app);
            let name = self.graph.nodes[app].name;
            self.state.sampler.on_timeline(|timeline| timeline.panic(name, clock::ticks()));
            let dead = self.graph.replace_failed(app, AppBox::from(erase(FailedApp)));
            // The app may be in any state: its packets are freed, and a second panic stops here.
            let buffers = buffer_use();
            let drop_completed = with_drop_reason(common::APP_FAILED, || catch_panic(|| drop(dead))).is_some();
            let (node, slab) = (&self.graph.nodes[app], self.graph.slab());
            let change = buffer_use().since(buffers);
            node.record(change);
            let mut lost = change.freed.wrapping_sub(change.taken);
            if !drop_completed {
                // Packets that a second panic kept from being freed are lost.
                let leaked = node.discrepancy(0).leaked.max(0).cast_unsigned();
                node.record(BufferUse { taken: 0, freed: leaked });
                lost += leaked;
            }
            slab.add(node.cell + common::APP_FAILED, lost);
            if in_hand_is_unknown {
                // In an app in which no packets end, every packet freed without a reason was in hand.
                let in_hand = node.discrepancy(0).uncounted.max(0).cast_unsigned();
                slab.add(node.cell + common::APP_FAILED, in_hand);
            }
            self.state.sampler.after_failure(self.graph.table(), app);
        }
        self.graph.recompile(&self.settings);
        self.idle_since = None;
        self.state.snapshot_buffer_use();
        if self.state.pushes_pending.replace(false) {
            self.graph.finish(&self.state);
            if self.state.failures.get() > 0 {
                self.replace_failed();
            }
        }
    }

    /// Queries every app of the worker between breaths, and the sides of its crossings. Returns the positions with the
    /// answers, or `None` if an app panicked: a stand-in has replaced it, and the run goes on.
    pub(crate) fn query_apps<T>(&mut self, query: impl Fn(&dyn DynApp) -> T) -> Option<Vec<(usize, T)>> {
        let (graph, table) = (&self.graph, self.graph.table());
        let ask = |&app: &usize| {
            table.set(cells::DOING, doing::with(Activity::Question, app));
            (app, catch_panic(|| query(&*graph.apps[app])))
        };
        let answers: Vec<(usize, Option<T>)> = graph.own.iter().map(ask).collect();
        table.set(cells::DOING, doing::NOTHING);
        let failed: Vec<usize> = answers.iter().filter(|(_, answer)| answer.is_none()).map(|(app, _)| *app).collect();
        self.report_panics(&failed);
        answers.into_iter().map(|(app, answer)| Some((app, answer?))).collect()
    }
}
