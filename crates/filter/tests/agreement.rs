//! The interpreter of graphs, that of plans, and machine code say the same.

use bellows_filter::Program;
use bellows_filter::graph::Graph;
use bellows_filter::interpret::{PacketView, matches};
use bellows_filter::plan::Mode;
use bellows_filter::program::Options;
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
    let one = Program::new(graphs[0]).unwrap();
    let plan = one.plan();
    let program = |mode| Program::with(&graphs, mode, Options::default()).unwrap();
    let [first, all] = [Mode::First, Mode::All].map(program);
    for program in [&one, &first, &all] {
        assert_eq!(program.fallback(), None);
    }
    for view in views(packet) {
        let expected: Vec<bool> = graphs.iter().map(|graph| matches(graph, view)).collect();
        let expected_one = expected[0];
        assert_eq!(one.decide(view).first.is_some(), expected_one, "code, {view:?} {:#?}", graphs[0]);
        assert_eq!(plan.run(view).first.is_some(), expected[0], "{view:?} {:#?}", graphs[0]);
        let position = expected.iter().position(|&matches| matches).map(|position| position as u32);
        assert_eq!(first.decide(view).first, position, "code, {view:?} {graphs:#?}");
        assert_eq!(first.plan().run(view).first, position, "{view:?} {graphs:#?}");
        let bits = expected.iter().rev().fold(0, |bits, &matches| bits << 1 | u64::from(matches));
        assert_eq!(all.decide(view).all, bits, "code, {view:?} {graphs:#?}");
        assert_eq!(all.plan().run(view).all, bits, "{view:?} {graphs:#?}");
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
