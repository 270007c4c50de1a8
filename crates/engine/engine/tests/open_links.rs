//! Apps that open links in unusual ways: the books still balance.

use std::mem;

use bellows_engine::{App, Io, Port, Ports, Settings};
use bellows_observe::Imbalance;
use bellows_packet::{Packet, Vector};
use bellows_rig::Rig;

const INPUTS: Ports = Ports::Any { at_least: 0, help: "packets" };
const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);

/// The counters of the only link to the collector: packets, bytes, drops.
fn sent(rig: &Rig) -> (u64, u64, u64) {
    let snapshot = rig.snapshot();
    let link = snapshot.links.iter().find(|link| link.from == "app.output").unwrap();
    (link.packets, link.bytes, link.txdrop)
}

#[test]
fn two_outputs_open_on_one_link_count_every_packet_once() {
    struct Twice;
    impl App for Twice {
        const OUTPUTS: Ports = OUTPUTS;

        fn tick(&mut self, io: &Io<Self>) {
            let (mut first, mut second) = (io.output(0), io.output(0));
            for index in 0..8 {
                let packet = Packet::from_bytes(&[index; 4]).unwrap();
                if index < 3 { first.push(packet) } else { second.push(packet) }
            }
        }
    }
    let mut rig = Rig::new(Twice, &[], &["output"]);
    rig.settle();
    assert_eq!(sent(&rig), (8, 32, 0));
    assert_eq!(rig.received("output").len(), 8);
}

#[test]
fn vectors_are_sent_by_pointer_or_behind_other_packets() {
    #[derive(Default)]
    struct Sends {
        vector: Vector,
        is_done: bool,
    }
    impl App for Sends {
        const OUTPUTS: Ports = OUTPUTS;

        fn tick(&mut self, io: &Io<Self>) {
            if mem::replace(&mut self.is_done, true) {
                return;
            }
            let mut index = 0u32;
            // The last packets find the link full.
            for count in [0, 3, 0, 5, 1_020] {
                for _ in 0..count {
                    self.vector.push(Packet::from_bytes(&index.to_be_bytes()).unwrap()).unwrap();
                    index += 1;
                }
                io.send(0, &mut self.vector);
                assert!(self.vector.is_empty() && self.vector.room() > 0);
            }
            io.send(1, &mut self.vector);
            self.vector.push(Packet::from_bytes(b"unlinked").unwrap()).unwrap();
            io.send(1, &mut self.vector);
            assert!(self.vector.is_empty() && self.vector.room() > 0);
        }
    }
    let mut rig = Rig::new(Sends::default(), &[], &["output"]);
    rig.settle();
    assert_eq!(sent(&rig), (1_024, 4_096, 4));
    assert!(rig.received("output").into_iter().eq((0..1_024u32).map(|index| index.to_be_bytes().to_vec())));
}

#[test]
fn two_inputs_open_at_once_share_the_room_of_a_lossless_network() {
    struct Zip;
    impl App for Zip {
        const INPUTS: Ports = INPUTS;
        const OUTPUTS: Ports = OUTPUTS;

        fn push(&mut self, io: &Io<Self>) {
            let mut output = io.output(0);
            let (mut left, mut right) = (io.input(0), io.input(1));
            for packet in &mut left {
                output.push(packet);
            }
            for packet in &mut right {
                output.push(packet);
            }
        }
    }
    let settings = Settings { lossless: true, ..Settings::default() };
    let mut rig = Rig::with_settings(Zip, &["left", "right"], &["output"], settings);
    rig.send("left", vec![[1u8; 4]; 1_000]);
    rig.send("right", vec![[2u8; 4]; 1_000]);
    rig.settle();
    assert_eq!(sent(&rig), (2_000, 8_000, 0));
    assert_eq!(rig.received("output").len(), 2_000);
}

#[test]
fn an_app_that_forwards_nothing_does_not_keep_the_engine_busy() {
    struct Eager;
    impl App for Eager {
        const INPUTS: Ports = INPUTS;
        const OUTPUTS: Ports = OUTPUTS;
        const PULLS: bool = true;

        fn pull(&mut self, io: &Io<Self>) {
            io.forward(0, 0);
        }
    }
    let mut rig = Rig::new(Eager, &["input"], &["output"]);
    rig.send("input", [b"packet"]);
    rig.settle();
    assert_eq!(rig.received("output"), [b"packet".to_vec()]);
    assert!(!rig.breathe());
}

#[test]
fn a_forgotten_iterator_leaks_its_packets_as_the_books_show_and_corrupts_no_counter() {
    struct Forgetful {
        forget: bool,
    }
    impl App for Forgetful {
        const INPUTS: Ports = INPUTS;
        const OUTPUTS: Ports = OUTPUTS;

        fn push(&mut self, io: &Io<Self>) {
            let mut input = io.input(0);
            let mut output = io.output(0);
            if std::mem::take(&mut self.forget) {
                std::mem::forget((&mut input).into_iter());
            }
            for packet in &mut input {
                output.push(packet);
            }
        }
    }
    let mut rig = Rig::new(Forgetful { forget: true }, &["input"], &["output"]);
    rig.send("input", [[0u8; 12]; 2]);
    rig.settle();
    rig.send("input", [[1u8; 12]; 3]);
    rig.settle();
    assert_eq!(rig.received("output"), [[1u8; 12].to_vec(), [1; 12].to_vec(), [1; 12].to_vec()]);
    let snapshot = rig.snapshot();
    let fed = snapshot.links.iter().find(|link| link.to == "app.input").unwrap();
    assert_eq!((fed.packets, fed.bytes, fed.waiting), (5, 60, 0));
    assert_eq!(sent(&rig), (3, 36, 0));
    assert_eq!(rig.imbalances(), [Imbalance { app: "app".to_owned(), leaked: 2, uncounted: 0 }]);
}
