//! The graphs of all workers together, while none of them runs.

use std::sync::Arc;

use bellows_observe::Slab;

use super::Graph;
use crate::app::crossing::{Inbound, Outbound};
use crate::app::erased::AppBox;
use crate::network::topology::Topology;
use crate::runtime::node::Node;

/// The graphs of one configuration, by worker; there is at least one.
pub(crate) struct Parts<'a> {
    graphs: Vec<&'a mut Graph>,
}

impl<'a> Parts<'a> {
    /// The graphs of all workers of one configuration, in order.
    pub(crate) fn new(graphs: Vec<&'a mut Graph>) -> Parts<'a> {
        Parts { graphs }
    }

    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.graphs[0].topology
    }

    pub(crate) fn slab(&self) -> &Arc<Slab> {
        self.graphs[0].slab()
    }

    /// The number of apps, without the sides of crossings.
    pub(crate) fn apps(&self) -> usize {
        self.topology().apps.len()
    }

    /// The worker's graph in which an app is, or a side of a crossing.
    pub(crate) fn home(&self, app: usize) -> &Graph {
        self.graphs[self.topology().homes[app]]
    }

    pub(crate) fn home_mut(&mut self, app: usize) -> &mut Graph {
        let home = self.topology().homes[app];
        self.graphs[home]
    }

    pub(crate) fn app(&self, app: usize) -> &AppBox {
        &self.home(app).apps[app]
    }

    pub(crate) fn app_mut(&mut self, app: usize) -> &mut AppBox {
        &mut self.home_mut(app).apps[app]
    }

    pub(crate) fn node(&self, app: usize) -> &Node {
        &self.home(app).nodes[app]
    }

    /// A worker's graph.
    pub(crate) fn graph(&self, worker: usize) -> &Graph {
        self.graphs[worker]
    }

    /// The side of a crossing that sends.
    pub(crate) fn outbound(&mut self, crossing: usize) -> Option<&mut Outbound> {
        let app = self.topology().side(crossing, 0);
        self.app_mut(app).as_any().downcast_mut()
    }

    /// Makes a crossing send nothing for a while, so that what is between the workers can be received. Returns its link.
    pub(crate) fn empty(&mut self, crossing: usize) -> String {
        if let Some(side) = self.outbound(crossing) {
            side.close_for_a_while();
        }
        let topology = self.topology();
        topology.links[topology.crossings[crossing]].to_string()
    }

    /// The side of a crossing that receives.
    pub(crate) fn inbound(&mut self, crossing: usize) -> Option<&mut Inbound> {
        let app = self.topology().side(crossing, 1);
        self.app_mut(app).as_any().downcast_mut()
    }

    /// Whether packets of a crossing can move: what waits at the worker that sends has room in the ring, or nothing that
    /// has arrived keeps what is in the ring.
    pub(crate) fn is_moving(&mut self, crossing: usize) -> bool {
        let topology = self.topology();
        let place = topology.place(topology.crossings[crossing]);
        let waits = |(worker, position): (usize, usize)| {
            let graph = self.graph(worker);
            graph.table().waiting[graph.number(position)].get() > 0
        };
        let [is_unsent, has_arrived] = [place.from, place.to].map(waits);
        is_unsent && self.outbound(crossing).is_some_and(Outbound::has_room)
            || !has_arrived && self.inbound(crossing).is_some_and(Inbound::is_waiting)
    }

    /// The number of packets and bytes that wait in a link: those that were sent and have not been received.
    pub(crate) fn waiting_in(&self, link: usize) -> (u64, u64) {
        use bellows_observe::layout::link::{BYTES, PACKETS};
        let place = self.topology().place(link);
        let end = |(worker, position): (usize, usize)| {
            let graph = self.graph(worker);
            let number = graph.number(position);
            (graph.table().links[number].cell, graph.table().waiting_in(number))
        };
        if place.from == place.to {
            return end(place.from).1;
        }
        let ((sent, _), (arrived, waiting)) = (end(place.from), end(place.to));
        let count = |cell: usize| self.slab().get(cell);
        let received = |cell: usize, waiting: u64| count(arrived + cell).wrapping_sub(waiting);
        (
            count(sent + PACKETS).wrapping_sub(received(PACKETS, waiting.0)),
            count(sent + BYTES).wrapping_sub(received(BYTES, waiting.1)),
        )
    }
}
