//! Packets sorted by output, for apps with many outputs.
//!
//! An app that pushed packet by packet would need all its outputs open at once. Instead it numbers the packets of a
//! call, which are then scattered over one vector for each output, and each vector is sent by pointer.

use bellows_engine::{App, Input, Io};
use bellows_packet::{CAPACITY, Packet, Vector};

/// The packets of a call, by their outputs. Between two calls there are none.
pub(crate) struct Lanes {
    vectors: Vec<Vector>,
    numbers: Vec<u16>,
}

impl Lanes {
    pub(crate) fn new() -> Lanes {
        Lanes { vectors: Vec::new(), numbers: vec![0; CAPACITY] }
    }

    /// Sets the number of outputs.
    #[inline]
    pub(crate) fn resize(&mut self, outputs: usize) {
        if outputs != self.vectors.len() {
            self.vectors.resize_with(outputs, Vector::new);
        }
    }

    /// The places for the outputs of the first packets of an input.
    #[inline]
    pub(crate) fn numbers(&mut self, count: usize) -> &mut [u16] {
        &mut self.numbers[..count]
    }

    /// Adds a packet to an output's lane. A lane has room for a whole input.
    #[inline]
    pub(crate) fn push(&mut self, output: usize, packet: Packet) {
        let pushed = self.vectors[output].push(packet);
        debug_assert!(pushed.is_ok(), "more packets than an input holds");
    }

    /// Sends the first packets of an input to the outputs with their [numbers](Lanes::numbers). Hot.
    #[inline]
    pub(crate) fn send_numbered<A: App>(&mut self, io: &Io<A>, input: &mut Input<'_, A>, count: usize) {
        input.scatter(&self.numbers[..count], &mut self.vectors);
        self.send(io);
    }

    /// Sends the packets. Those that do not fit are dropped at the link. Hot.
    #[inline]
    pub(crate) fn send<A: App>(&mut self, io: &Io<A>) {
        for (index, lane) in self.vectors.iter_mut().enumerate().filter(|(_, lane)| !lane.is_empty()) {
            let mut output = io.output(index);
            output.send_from(lane);
            if !lane.is_empty() {
                lane.drain(usize::MAX).for_each(|packet| output.push(packet));
            }
        }
    }
}
