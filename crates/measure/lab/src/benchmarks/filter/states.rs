//! What a table of states costs a packet of an established connection: the same filter, with the table and without.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bellows_basic::pcap_filter::{self, PcapFilter};
use bellows_basic::sink::Sink;
use bellows_basic::state_table::{self, StateTable};
use bellows_config::{Context, SharedObject};
use bellows_engine::{App, Engine, Io, Network, Port, Ports, Settings};
use bellows_packet::Packet;
use bellows_sys::clock;
use bellows_wire::tcp::flags::{ACK, SYN};
use fastrand::Rng;

use super::filters::{LENGTH, TCP, ethernet};
use super::{IN_FLIGHT, VECTOR};
use crate::networks::linked;
use crate::slices::{Sliced, Turn};
use crate::workers::{Contender, fail};

/// Connections of the measurements.
pub(super) const CONNECTIONS: [u32; 3] = [1, 1_000, 100_000];

/// The capacity of the tables, for any number of connections.
const CAPACITY: usize = 131_072;

/// Timed slices of a figure in a turn, each of [`IN_FLIGHT`] packets.
const SLICES: usize = 12;

/// Packets that are ready to be sent: the others are made while nothing is timed.
type Ready = Arc<Mutex<VecDeque<Packet>>>;

fn with_ready<T>(ready: &Ready, work: impl FnOnce(&mut VecDeque<Packet>) -> T) -> T {
    work(&mut ready.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Sends the packets that are ready.
struct Sender(Ready);

impl App for Sender {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets that are ready")]);

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        with_ready(&self.0, |ready| {
            let count = ready.len().min(VECTOR).min(output.room());
            io.brought_in(count);
            ready.drain(..count).for_each(|packet| output.push(packet));
        });
    }
}

/// A network of a sender, a filter and a sink.
struct Testbed {
    engine: Engine,
    ready: Ready,
}

impl Testbed {
    fn new(table: Option<Arc<StateTable>>) -> Testbed {
        let config = pcap_filter::Config { filter: Some("tcp".to_owned()), ..pcap_filter::Config::default() };
        let filter = PcapFilter::with_table(config, table, &Context::default()).unwrap_or_else(|error| fail(&error));
        let ready = Ready::default();
        let network = Network::new().app("sender", Sender(Arc::clone(&ready))).app("filter", filter).app("sink", Sink);
        let network = linked(network, ["sender.output -> filter.input", "filter.match -> sink.input"]);
        let engine = Engine::new(network, Settings::default(), None).unwrap_or_else(|error| fail(&error));
        Testbed { engine, ready }
    }

    /// Sends packets, and returns the clocks from the first to the last one.
    fn send(&mut self, frames: impl Iterator<Item = [u8; LENGTH]>) -> u64 {
        let packet = |frame: [u8; LENGTH]| {
            Packet::from_bytes(&frame).unwrap_or_else(|| fail(&"there is no buffer for a packet"))
        };
        with_ready(&self.ready, |ready| ready.extend(frames.map(packet)));
        let start = clock::ticks();
        while with_ready(&self.ready, |ready| !ready.is_empty()) {
            self.engine.breathe();
        }
        clock::ticks() - start
    }

    /// A counter of the filter.
    fn counter(&self, name: &str) -> u64 {
        let snapshot = self.engine.snapshot();
        let filter = snapshot.apps.iter().find(|app| app.name == "filter");
        filter.and_then(|app| app.counters.get(name).copied()).unwrap_or_default()
    }
}

/// The worker's side: networks whose filter has a table, and has none.
pub(super) struct States {
    with_table: Testbed,
    without: Testbed,
    connections: u32,
    random: Rng,
}

/// A segment of a connection.
fn segment(connection: u32, is_from_client: bool, flags: u8) -> [u8; LENGTH] {
    let [_, a, b, c] = connection.to_be_bytes();
    let (client, server) = ([10, a, b, c, 0xc3, 0x50], [9, 0, 0, 1, 0, 80]);
    let (from, to) = if is_from_client { (client, server) } else { (server, client) };
    let header = [0x45, 0, 0, 50, 0, 0, 0, 0, 64, TCP, 0, 0];
    let mut tcp = [0; 16];
    (tcp[8], tcp[9]) = (0x50, flags);
    let payload = [&header[..], &from[..4], &to[..4], &from[4..], &to[4..], &tcp].concat();
    ethernet(0x0800, &payload).try_into().unwrap_or([0; LENGTH])
}

impl States {
    /// Lays out the networks, with established connections.
    pub(super) fn new(connections: u32) -> States {
        let config = state_table::Config { capacity: CAPACITY, ..state_table::Config::default() };
        let table = StateTable::configure(config, &Context::default()).unwrap_or_else(|error| fail(&error));
        let mut with_table = Testbed::new(Some(Arc::new(table)));
        for first in (0..connections).step_by(IN_FLIGHT) {
            let all = first..connections.min(first + IN_FLIGHT as u32);
            for (is_from_client, flags) in [(true, SYN), (false, SYN | ACK), (true, ACK)] {
                with_table.send(all.clone().map(|connection| segment(connection, is_from_client, flags)));
            }
        }
        States { with_table, without: Testbed::new(None), connections, random: Rng::with_seed(17) }
    }

    /// Frames of connections at random, in both directions.
    fn frames(&mut self, count: usize) -> Vec<[u8; LENGTH]> {
        let States { random, connections, .. } = self;
        (0..count).map(|_| segment(random.u32(..*connections), random.bool(), ACK)).collect()
    }

    /// The clocks of [`IN_FLIGHT`] packets with the table and without, of which this many are ready at a time.
    fn slice(&mut self, in_flight: usize) -> [u64; 2] {
        let mut clocks = [0; 2];
        for _ in 0..IN_FLIGHT / in_flight {
            let frames = self.frames(in_flight);
            for (testbed, clocks) in [&mut self.with_table, &mut self.without].into_iter().zip(&mut clocks) {
                *clocks += testbed.send(frames.iter().copied());
            }
        }
        clocks
    }
}

impl Contender for States {
    fn turn(&mut self) -> Turn {
        let (mut figures, mut parts) = (Vec::new(), Vec::new());
        for in_flight in [VECTOR, IN_FLIGHT] {
            let slices: Vec<[u64; 2]> = (0..SLICES).map(|_| self.slice(in_flight)).collect();
            let [with_table, without] = [0, 1]
                .map(|testbed| Sliced::of(&slices.iter().map(|each| (1, each[testbed] as f64)).collect::<Vec<_>>()));
            figures.push((with_table.clocks - without.clocks) / IN_FLIGHT as f64);
            parts.extend([with_table, without]);
        }
        Turn::of(figures, &parts)
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let (matched, passed) = (self.with_table.counter("matched"), self.with_table.counter("passed_by_state"));
        let without = self.without.counter("matched");
        // A few connections of many may have found no place.
        let first = matched - passed;
        let entered = u64::from(self.connections);
        if without == 0 || first > entered + matched / 50 || first == 0 {
            return Err(format!("of {matched} packets {passed} passed by state, and {without} without a table"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn packets_of_established_connections_pass_by_their_states() {
        for connections in [1, 1_000] {
            let mut states = States::new(connections);
            assert_eq!(states.with_table.counter("states_entered"), u64::from(connections));
            let before = states.with_table.counter("passed_by_state");
            let turn = states.turn();
            assert_eq!(turn.figures.len(), 2);
            let sent = 2 * (SLICES * IN_FLIGHT) as u64;
            assert_eq!(states.with_table.counter("passed_by_state") - before, sent);
            assert_eq!((states.without.counter("matched"), states.without.counter("passed_by_state")), (sent, 0));
            assert_eq!(Box::new(states).finish(), Ok(()));
        }
        let mut states = States::new(1);
        states.connections = 2;
        let frames: HashSet<[u8; LENGTH]> = states.frames(100).into_iter().collect();
        assert_eq!(frames.len(), 4, "both directions of two connections");
    }
}
