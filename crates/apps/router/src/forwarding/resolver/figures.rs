//! How many neighbours and routes there are, as gauges of the resolver's app.

use bellows_engine::{App, Gauge, Io};
use bellows_vrf::IpFamily;
use bellows_vrf::neighbours::NeighbourState;

use super::Resolver;

/// The time between two settings of the gauges.
const PERIOD: u64 = 1_000_000_000;

/// The gauges of a routing domain, for the addresses of one family.
pub(crate) struct Figures<A> {
    /// The numbers of neighbours in these states.
    pub(crate) neighbours: [(NeighbourState, Gauge<A>); 5],
    /// The number of routes.
    pub(crate) routes: Gauge<A>,
    /// The memory of the forwarding table.
    pub(crate) fib_bytes: Gauge<A>,
}

impl Resolver {
    /// Sets the gauges, once a second. [`Resolver::upkeep`] has the app called as often.
    pub(crate) fn set_figures<A: App>(&mut self, io: &Io<A>, figures: &Figures<A>) {
        if io.now() < self.next_figures {
            return;
        }
        self.next_figures = io.now() + PERIOD;
        let tables = self.domain.tables();
        for &(state, gauge) in &figures.neighbours {
            let entered = if state == NeighbourState::Permanent { tables.permanent_of_family(self.family) } else { 0 };
            io.set(gauge, (self.neighbours.in_state(state) + entered) as u64);
        }
        // While another thread changes the routes, the last figures stand.
        if let Some(changes) = tables.try_lock() {
            let (v4, v6) = changes.sizes();
            let size = if self.family == IpFamily::V4 { v4 } else { v6 };
            io.set(figures.routes, size.routes as u64);
            io.set(figures.fib_bytes, size.bytes as u64);
        }
    }
}
