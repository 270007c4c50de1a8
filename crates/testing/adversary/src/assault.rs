//! Attacks that are repeated in short turns.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::Path;

use bellows_ipc::socket;
use bellows_virtio::vhost::VhostRequest;
use fastrand::Rng;

use crate::attacks::Attack;
use crate::bytes::ScriptedDriver;
use crate::peer::{HostilePeer, USER};
use crate::rings::{REGION, RingInput, START};

/// Repeats one attack.
pub struct Assault<'a> {
    socket: &'a Path,
    how: How<'a>,
    rng: Rng,
    /// Number of connections to the device.
    pub connections: u64,
}

enum How<'a> {
    Attack { attack: &'a Attack, peer: Option<HostilePeer>, turns: u64 },
    Messages { inputs: Inputs<'a>, talker: Option<ScriptedDriver<'a>> },
    Rings { inputs: Inputs<'a>, peer: Option<HostilePeer>, steps: VecDeque<(usize, &'a [u8])> },
}

/// Inputs saved by a fuzzer, replayed in a loop.
struct Inputs<'a> {
    all: &'a [Vec<u8>],
    next: usize,
}

impl<'a> Inputs<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        self.next = if self.next < self.all.len() { self.next } else { 0 };
        let input = self.all.get(self.next)?;
        self.next += 1;
        Some(input)
    }
}

/// Messages sent in a turn.
const MESSAGES_PER_TURN: usize = 4;

impl<'a> Assault<'a> {
    /// Starts an attack on a socket; the same seed gives the same attack.
    pub fn new(socket: &'a Path, attack: &'a Attack, seed: u64) -> Assault<'a> {
        Assault::with(socket, How::Attack { attack, peer: None, turns: 0 }, seed)
    }

    /// Sends the messages of inputs of the fuzzer `vhost_messages`.
    pub fn of_messages(socket: &'a Path, inputs: &'a [Vec<u8>], seed: u64) -> Assault<'a> {
        let inputs = Inputs { all: inputs, next: seed as usize % inputs.len().max(1) };
        Assault::with(socket, How::Messages { inputs, talker: None }, seed)
    }

    /// Writes into rings what inputs of the fuzzer `vring` describe.
    pub fn of_rings(socket: &'a Path, inputs: &'a [Vec<u8>], seed: u64) -> Assault<'a> {
        let inputs = Inputs { all: inputs, next: seed as usize % inputs.len().max(1) };
        Assault::with(socket, How::Rings { inputs, peer: None, steps: VecDeque::new() }, seed)
    }

    fn with(socket: &'a Path, how: How<'a>, seed: u64) -> Assault<'a> {
        Assault { socket, how, rng: Rng::with_seed(seed), connections: 0 }
    }

    /// Attacks for one short turn. Waits for nobody, except 20 ms where a message requires it.
    pub fn turn(&mut self) {
        match &mut self.how {
            How::Attack { attack, peer, turns } => {
                if peer.as_ref().is_some_and(|peer| peer.gone) || *turns >= attack.turns {
                    *peer = None;
                }
                if peer.is_none() {
                    let Ok(mut new) = HostilePeer::connect(self.socket) else { return };
                    (self.connections, *turns) = (self.connections + 1, 0);
                    if let Some(features) = attack.features {
                        new.begin(features);
                        (attack.begin)(&mut new, &mut self.rng);
                        (0..2).for_each(|index| new.start(index, 0));
                    }
                    *peer = Some(new);
                }
                if let Some(peer) = peer {
                    peer.listen();
                    // A connection that the device has not accepted yet is useless.
                    if attack.features.is_some() && !peer.heard {
                        return;
                    }
                    (attack.turn)(peer, &mut self.rng);
                    *turns += 1;
                }
            }
            How::Messages { inputs, talker } => {
                if talker.as_ref().is_none_or(ScriptedDriver::is_done) {
                    *talker = None;
                    let Ok(stream) = socket::connect(self.socket) else { return };
                    let Some(input) = inputs.next() else { return };
                    self.connections += 1;
                    talker.insert(ScriptedDriver::new(stream, input)).greet();
                }
                // Sending to a device that does not listen yet would wait.
                if let Some(talker) = talker
                    && talker.is_served()
                {
                    (0..MESSAGES_PER_TURN).for_each(|_| talker.say());
                }
            }
            How::Rings { inputs, peer, steps } => {
                if peer.as_ref().is_none_or(|peer| peer.gone) {
                    *peer = HostilePeer::connect(self.socket).ok();
                    self.connections += u64::from(peer.is_some());
                    steps.clear();
                }
                let Some(peer) = peer else { return };
                peer.listen();
                match steps.pop_front() {
                    Some((at, bytes)) => peer.write(at as u64, bytes),
                    None => {
                        let Some(input) = inputs.next().and_then(RingInput::parse) else { return };
                        set_up(peer, &input);
                        steps.extend(input.steps());
                    }
                }
            }
        }
    }
}

/// Makes the device run the ring of an input, on a connection that has run others.
fn set_up(peer: &mut HostilePeer, input: &RingInput<'_>) {
    let Ok(memory) = peer.memory.try_clone() else { return };
    for index in 0..2 {
        peer.words(VhostRequest::GET_VRING_BASE, &[index, 0]);
    }
    peer.numbers(VhostRequest::SET_FEATURES, &[input.features.0], &[]);
    let mut image = vec![0; 2 * REGION];
    image[..input.image.len()].copy_from_slice(input.image);
    peer.write(0, &image);
    peer.numbers(VhostRequest::SET_MEM_TABLE, &[1, START, 2 * REGION as u64, USER, 0], &[memory.as_fd()]);
    let index = if input.receives { 0 } else { 1 };
    peer.words(VhostRequest::SET_VRING_NUM, &[index, input.size.into()]);
    peer.words(VhostRequest::SET_VRING_BASE, &[index, input.base]);
    let mut body = [index.to_le_bytes(), 0_u32.to_le_bytes()].concat();
    for address in [input.areas.descriptors, input.areas.device, input.areas.driver] {
        body.extend((address - START + USER).to_le_bytes());
    }
    body.extend(0_u64.to_le_bytes());
    peer.send(VhostRequest::SET_VRING_ADDR, &body, &[]);
    peer.tell_events(index as usize);
}
