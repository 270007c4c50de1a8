//! Packets that go into tunnels.

use bellows_engine::{DropReason, Io};
use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};

use super::session::{Note, Payload, Session};
use super::{Protocol, Tunnel};
use crate::forwarding::ETHERNET;
use crate::lanes::UNUSUAL;
use crate::segmentation::{self, Gso};

impl<P: Protocol> Tunnel<P> {
    /// Puts packets into the tunnel of a session. Hot.
    pub(super) fn send(&mut self, io: &Io<Self>, index: usize, session: usize) {
        let Some(output) = self.wires.transports[usize::from(self.sessions[session].is_v6())] else {
            return io.drop_all(&mut io.input(index), Self::UNKNOWN_PORT);
        };
        let Tunnel { sessions, lanes, notes, .. } = self;
        let mut input = io.input(index);
        let packets = input.packets_mut();
        if packets.is_empty() {
            return;
        }
        let numbers = lanes.numbers(packets.len());
        let notes = &mut notes[..packets.len()];
        let put_in = PutIn { session: &sessions[session], packets, ahead: io.prefetch(), output, numbers, notes };
        let are_usual = Simd::chosen().run(put_in);
        if are_usual {
            // All go the same way.
            drop(input);
            return io.forward(index, output.into());
        }
        drop(input);
        self.send_mixed(io, index, session, output);
    }

    /// Sends a vector of which some packets have their headers, and looks at the others one by one.
    #[inline(never)]
    fn send_mixed(&mut self, io: &Io<Self>, index: usize, session: usize, output: u16) {
        let mut input = io.input(index);
        let count = input.len();
        let numbers = self.lanes.numbers(count).to_vec();
        for (mut packet, number) in (&mut input).into_iter().zip(numbers) {
            self.lanes.make_room(io, 1);
            if number != UNUSUAL {
                self.lanes.push(output.into(), packet);
                continue;
            }
            match self.sessions[session].prepare::<P>(&mut packet) {
                Ok(None) => self.lanes.push(output.into(), packet),
                Ok(Some(gso)) => self.segment(io, packet, gso, session, output),
                Err(reason) => io.drop(packet, reason),
            }
        }
        self.lanes.send(io);
    }

    /// Sends the segments of a GSO packet.
    fn segment(&mut self, io: &Io<Self>, mut packet: Packet, gso: Gso, session: usize, output: u16) {
        if segmentation::segment(&mut packet, gso.kind, gso.size, &mut self.segments).is_err() {
            self.segments.drain(usize::MAX).for_each(drop);
            return io.drop(packet, Self::NO_MEMORY);
        }
        io.count(Self::SEGMENTED, 1);
        self.lanes.make_room(io, 1 + self.segments.len());
        let session = &self.sessions[session];
        for mut packet in std::iter::once(packet).chain(self.segments.drain(usize::MAX)) {
            if session.put_in(&mut packet) {
                self.lanes.push(output.into(), packet);
            } else {
                let reason = session.refusal::<P>(&packet);
                io.drop(packet, reason);
            }
        }
    }
}

impl Session {
    /// Puts a packet in after its offload has been done; a GSO packet stays as it is, to be segmented.
    fn prepare<P: Protocol>(&self, packet: &mut Packet) -> Result<Option<Gso>, DropReason<Tunnel<P>>> {
        if let Some(gso) = segmentation::finish(packet).map_err(|_| Tunnel::BAD_OFFLOAD)? {
            return Ok(Some(gso));
        }
        if self.put_in(packet) { Ok(None) } else { Err(self.refusal(packet)) }
    }

    /// Why a packet without an offload cannot be put in.
    fn refusal<P: Protocol>(&self, packet: &Packet) -> DropReason<Tunnel<P>> {
        match self.shape.payload {
            _ if packet.len() < ETHERNET => Tunnel::TOO_SHORT,
            Payload::Ip { .. } if !self.carries(packet) => Tunnel::NOT_IP,
            _ if !self.fits(packet) => Tunnel::TOO_LONG,
            _ => Tunnel::NO_HEADROOM,
        }
    }
}

/// Puts usual packets in. The result says whether all are usual; otherwise the numbers say which.
struct PutIn<'a> {
    session: &'a Session,
    packets: &'a mut [Packet],
    ahead: usize,
    output: u16,
    numbers: &'a mut [u16],
    notes: &'a mut [Note],
}

impl Loop for PutIn<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let PutIn { session, packets, ahead, output, numbers, notes } = self;
        if session.put_in_all(packets, ahead, notes) {
            return true;
        }
        for (packet, number) in packets.iter_mut().zip(numbers) {
            *number = if session.put_in(packet) { output } else { UNUSUAL };
        }
        false
    }
}
