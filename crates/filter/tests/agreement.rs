//! The interpreter of graphs, that of plans, and machine code say the same.

use bellows_filter::graph::Graph;
use bellows_filter::interpret::{PacketView, matches};
use bellows_filter::plan::{Mode, Plan};
use bellows_filter::random::Choices;
use proptest::collection::vec;
use proptest::prelude::*;

/// Every length of a packet, and two lengths on the wire.
fn views(bytes: &[u8]) -> impl Iterator<Item = PacketView<'_>> {
    let cut = |length: usize| PacketView { bytes: &bytes[..length], wire_length: bytes.len() as u32 };
    (0..=bytes.len()).map(cut).chain([PacketView { bytes, wire_length: 1_500 }])
}

fn agree(graphs: &[Graph], packet: &[u8]) {
    let graphs: Vec<&Graph> = graphs.iter().collect();
    let plan = Plan::new(graphs[0]).unwrap();
    let [first, all] = [Mode::First, Mode::All].map(|mode| Plan::of(&graphs, mode).unwrap());
    for view in views(packet) {
        let expected: Vec<bool> = graphs.iter().map(|graph| matches(graph, view)).collect();
        assert_eq!(plan.run(view).first.is_some(), expected[0], "{view:?} {:#?}", graphs[0]);
        let position = expected.iter().position(|&matches| matches).map(|position| position as u32);
        assert_eq!(first.run(view).first, position, "{view:?} {graphs:#?}");
        let bits = expected.iter().rev().fold(0, |bits, &matches| bits << 1 | u64::from(matches));
        assert_eq!(all.run(view).all, bits, "{view:?} {graphs:#?}");
    }
}

proptest! {
    #![proptest_config(config(if cfg!(debug_assertions) { 2_000 } else { 40_000 }))]

    #[test]
    fn random_graphs(
        graphs in vec(vec(any::<u8>(), 0..400), 1..4),
        packet in vec(any::<u8>(), 0..160),
    ) {
        let graphs: Vec<Graph> = graphs.iter().map(|bytes| Choices::new(bytes).graph()).collect();
        // A loop without progress takes all its rounds at every length.
        let has_loop = graphs.iter().flat_map(|graph| &graph.blocks).any(|block| {
            matches!(block.end, bellows_filter::graph::End::Again(_))
        });
        let packet = Choices::new(&packet).packet();
        let packet = if has_loop { &packet[packet.len() - packet.len().min(2)..] } else { &packet[..] };
        agree(&graphs, packet);
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
