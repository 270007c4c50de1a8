//! Networks at the limits of the language: their native code is generated and aligned as for small ones.

#![cfg(target_arch = "x86_64")]

use bellows_engine::{App, Engine, Io, Network, Ports, Schedule, Settings};

const PORTS: Ports = Ports::Any { at_least: 0, help: "packets" };

/// An app that is pulled and pushed.
struct Node;

impl App for Node {
    const INPUTS: Ports = PORTS;
    const OUTPUTS: Ports = PORTS;
    const PULLS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        io.slot(1).never();
    }

    fn push(&mut self, io: &Io<Self>) {
        (0..io.inputs()).for_each(|input| _ = io.input(input).discard());
    }

    fn slots(&self) -> usize {
        2
    }
}

/// Nodes in a row, each linked twice to the next.
fn row(nodes: usize) -> Network {
    let network = (0..nodes).fold(Network::new(), |network, node| network.app(&format!("n{node}"), Node));
    (1..nodes).fold(network, |network, node| {
        let link = |network: Network, port| network.link(&format!("n{}.{port} -> n{node}.{port}", node - 1)).unwrap();
        link(link(network, "a"), "b")
    })
}

#[test]
fn ten_thousand_apps_and_twenty_thousand_links_have_code_with_aligned_loops() {
    for nodes in [1, 2, 10_000] {
        let settings = Settings { schedule: Schedule::Native, ..Settings::default() };
        let mut engine = Engine::new(row(nodes), settings, None).unwrap();
        engine.breathe_times(1_000);
        let listing = engine.control().listing();
        assert_eq!((listing.schedule.as_str(), listing.fallback_reason), ("native", None));
        for first in ["pull n0", "sampled pull n0"] {
            let line = listing.code.iter().find(|line| line.label.as_deref() == Some(first)).unwrap();
            assert_eq!(line.address % 64, 0, "{first} of {nodes}");
        }
        let calls = listing.code.iter().filter(|line| line.text.starts_with("call ")).count();
        assert_eq!(calls, 2 * (nodes + nodes - 1));
    }
}
