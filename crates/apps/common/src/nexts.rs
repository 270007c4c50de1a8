//! Packets sorted by output, for apps with many outputs.
//!
//! An app that pushed packet by packet would need all its outputs open at once. Instead it numbers the packets of a
//! call, which are then scattered over one vector for each output, and each vector is sent by pointer.

use bellows_engine::{App, DropReason, Input, Io};
use bellows_packet::{CAPACITY, Packet, Vector};

/// The number of a packet that must be looked at more closely.
pub const UNUSUAL: u16 = 1 << 15;

/// Where an unusual packet goes next.
pub enum Next<A> {
    /// To this output.
    To(usize),
    /// It is dropped.
    Drop(DropReason<A>),
}

/// Packets of a call that are dropped together, as many as have the same reason one behind the other. Between two calls
/// there are none.
pub struct Refused<A> {
    packets: Vector,
    reason: Option<DropReason<A>>,
}

impl<A: App> Default for Refused<A> {
    fn default() -> Refused<A> {
        Refused::new()
    }
}

impl<A: App> Refused<A> {
    /// None.
    pub fn new() -> Refused<A> {
        Refused { packets: Vector::new(), reason: None }
    }

    /// Adds a packet. Hot.
    #[inline]
    pub fn push(&mut self, io: &Io<A>, packet: Packet, reason: DropReason<A>) {
        if self.reason.is_some_and(|other| other.position() != reason.position()) || self.packets.room() == 0 {
            self.drop_all(io);
        }
        self.reason = Some(reason);
        // There is room.
        drop(self.packets.push(packet));
    }

    /// Drops the packets.
    #[inline]
    pub fn drop_all(&mut self, io: &Io<A>) {
        if let Some(reason) = self.reason.take() {
            io.drop_vector(&mut self.packets, reason);
        }
    }
}

/// The packets of a call, by their outputs. Between two calls there are none.
pub struct NextVectors {
    /// One for each output, and one for packets to drop.
    vectors: Vec<Vector>,
    nexts: Vec<u16>,
    /// The positions of the reasons for which packets are dropped, in the order of their vector.
    reasons: Vec<u16>,
}

/// Changes all packets of an input together, which then go to an output by pointer; or gives the input back, if they cannot
/// be changed together. Hot.
#[inline]
pub fn forward_changed<'i, A: App>(
    io: &'i Io<A>,
    index: usize,
    output: usize,
    change: impl FnOnce(&mut [Packet]) -> bool,
) -> Option<Input<'i, A>> {
    let mut input = io.input(index);
    if !change(input.packets_mut()) {
        return Some(input);
    }
    drop(input);
    io.forward(index, output);
    None
}

/// The vectors of the outputs, without that of packets to drop.
#[inline]
fn outputs(vectors: &mut [Vector]) -> &mut [Vector] {
    vectors.split_last_mut().map_or(&mut [], |(_, outputs)| outputs)
}

impl Default for NextVectors {
    fn default() -> NextVectors {
        NextVectors::new()
    }
}

impl NextVectors {
    /// Without outputs.
    pub fn new() -> NextVectors {
        NextVectors { vectors: vec![Vector::new()], nexts: vec![0; CAPACITY], reasons: Vec::with_capacity(CAPACITY) }
    }

    /// Sets the number of outputs.
    #[inline]
    pub fn resize(&mut self, outputs: usize) {
        if outputs + 1 != self.vectors.len() {
            self.vectors.resize_with(outputs + 1, Vector::new);
        }
    }

    /// The places for the nexts of the first packets of an input: the outputs that they go to, by number.
    #[inline]
    pub fn nexts(&mut self, count: usize) -> &mut [u16] {
        &mut self.nexts[..count]
    }

    /// Adds a packet to an output's vector, which has room for a whole input.
    #[inline]
    pub fn push(&mut self, output: usize, packet: Packet) {
        let pushed = self.vectors[output].push(packet);
        debug_assert!(pushed.is_ok(), "more packets than an input holds");
    }

    /// Whether an output takes another packet behind those of its vector. Packets beyond that are dropped at the link.
    #[inline]
    pub fn has_room<A: App>(&self, io: &Io<A>, output: usize) -> bool {
        io.output(output).room() > self.vectors[output].len()
    }

    /// Sends the packets if a vector has no room for `count` more.
    #[inline]
    pub fn make_room<A: App>(&mut self, io: &Io<A>, count: usize) {
        if self.vectors.iter().any(|vector| vector.len() + count > CAPACITY) {
            self.send(io);
        }
    }

    /// Sends the first packets of an input to their [nexts](NextVectors::nexts). Hot.
    #[inline]
    pub fn send_numbered<A: App>(&mut self, io: &Io<A>, input: &mut Input<'_, A>, count: usize) {
        let NextVectors { vectors, nexts, .. } = self;
        input.scatter(&nexts[..count], outputs(vectors));
        self.send(io);
    }

    /// As [`NextVectors::send_numbered`], with the nexts of the caller. Hot.
    #[inline]
    pub fn scatter<A: App>(&mut self, io: &Io<A>, input: &mut Input<'_, A>, nexts: &[u16]) {
        input.scatter(nexts, outputs(&mut self.vectors));
        self.send(io);
    }

    /// Sends all packets of an input to the outputs with their numbers, by pointer if all go to one. `decide` says
    /// where [unusual](UNUSUAL) ones go. Hot.
    #[inline]
    pub fn send_all<A: App>(
        &mut self,
        io: &Io<A>,
        index: usize,
        mut input: Input<'_, A>,
        decide: impl FnMut(&mut Packet) -> Next<A>,
    ) {
        let count = input.len();
        let Some((&first, others)) = self.nexts[..count].split_first() else { return };
        let mix = |(any, differences), &number| (any | number, differences | (number ^ first));
        let (any, differences) = others.iter().fold((first, 0), mix);
        if any & UNUSUAL != 0 {
            self.send_unusual(io, input, decide);
        } else if differences == 0 {
            drop(input);
            io.forward(index, first.into());
        } else {
            self.send_numbered(io, &mut input, count);
        }
    }

    /// Decides about unusual packets where they are, so that all are moved together.
    #[inline(never)]
    fn send_unusual<A: App>(
        &mut self,
        io: &Io<A>,
        mut input: Input<'_, A>,
        mut decide: impl FnMut(&mut Packet) -> Next<A>,
    ) {
        let NextVectors { vectors, nexts, reasons } = self;
        let (count, drops) = (input.len(), vectors.len() - 1);
        let nexts = &mut nexts[..count];
        reasons.clear();
        for (packet, next) in input.packets_mut().iter_mut().zip(&mut *nexts) {
            if *next == UNUSUAL {
                let output = match decide(packet) {
                    Next::To(output) => output,
                    Next::Drop(reason) => {
                        reasons.push(reason.position() as u16);
                        drops
                    }
                };
                *next = output as u16;
            }
        }
        input.scatter(nexts, vectors);
        drop(input);
        if let Some(&first) = reasons.first() {
            let reason = |position: u16| DropReason::at_position(position.into());
            let dropped = &mut vectors[drops];
            if reasons.iter().all(|&other| other == first) {
                io.drop_vector(dropped, reason(first));
            } else {
                dropped.drain(usize::MAX).zip(&*reasons).for_each(|(packet, &it)| io.drop(packet, reason(it)));
            }
        }
        self.send(io);
    }

    /// Sends the packets. Those that do not fit are dropped at the link. Hot.
    #[inline]
    pub fn send<A: App>(&mut self, io: &Io<A>) {
        for (index, vector) in outputs(&mut self.vectors).iter_mut().enumerate() {
            if !vector.is_empty() {
                io.send(index, vector);
            }
        }
    }
}
