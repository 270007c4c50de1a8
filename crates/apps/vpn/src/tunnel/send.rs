//! Packets that go into tunnels.

use bellows_common::headers::ETHERNET;
use bellows_common::nexts::UNUSUAL;
use bellows_common::segmentation::{self, Gso};
use bellows_engine::{DropReason, Io};
use bellows_packet::{Packet, Vector};
use bellows_sys::simd::{Loop, Simd};

use super::session::{Payload, Session, Tail, TunnelColumns};
use super::{Protocol, Tunnel};

impl<P: Protocol> Tunnel<P> {
    /// Puts packets into the tunnel of a session. Hot.
    pub(super) fn send(&mut self, io: &Io<Self>, index: usize, session: usize) {
        let Some(output) = self.wires.transports[usize::from(self.sessions[session].is_v6())] else {
            return io.drop_all(&mut io.input(index), Self::UNKNOWN_PORT);
        };
        let Tunnel { sessions, next_vectors, columns, identification, .. } = self;
        let mut input = io.input(index);
        let packets = input.packets_mut();
        if packets.is_empty() {
            return;
        }
        let numbers = next_vectors.nexts(packets.len());
        let first = *identification;
        *identification = first.wrapping_add(packets.len() as u16);
        let put_in = PutIn {
            session: &sessions[session],
            ahead: io.prefetch(),
            output,
            numbers,
            columns,
            identification: first,
            packets,
        };
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
        let numbers = self.next_vectors.nexts(count).to_vec();
        for (mut packet, number) in (&mut input).into_iter().zip(numbers) {
            self.next_vectors.make_room(io, 1);
            if number != UNUSUAL {
                self.next_vectors.push(output.into(), packet);
                continue;
            }
            let tail = Tail::of(&packet);
            match segmentation::finish(&mut packet) {
                Ok(None) => self.send_one(io, packet, session, output, tail),
                Ok(Some(gso)) => self.segment(io, packet, gso, session, output),
                Err(_) => io.drop(packet, Self::BAD_OFFLOAD),
            }
        }
        self.next_vectors.send(io);
    }

    /// Sends the segments of a GSO packet.
    fn segment(&mut self, io: &Io<Self>, mut packet: Packet, gso: Gso, session: usize, output: u16) {
        if segmentation::segment(&mut packet, gso.kind, gso.size, &mut self.segments).is_err() {
            self.segments.drain(usize::MAX).for_each(drop);
            return io.drop(packet, Self::NO_MEMORY);
        }
        io.count(Self::SEGMENTED, 1);
        let mut segments = std::mem::replace(&mut self.segments, Vector::none());
        for packet in std::iter::once(packet).chain(segments.drain(usize::MAX)) {
            self.next_vectors.make_room(io, 1);
            self.send_one(io, packet, session, output, None);
        }
        self.segments = segments;
    }

    /// Sends a packet without an offload, of which the sum of a part may be known.
    pub(super) fn send_one(
        &mut self,
        io: &Io<Self>,
        mut packet: Packet,
        session: usize,
        output: u16,
        tail: Option<Tail>,
    ) {
        let keys = &self.sessions[session];
        if keys.put_in(&mut packet, self.identification, tail) {
            self.identification = self.identification.wrapping_add(1);
            return self.next_vectors.push(output.into(), packet);
        }
        match keys.refusal::<P>(&packet) {
            Some(reason) => io.drop(packet, reason),
            None => self.send_exceeding(io, packet, session, output),
        }
    }
}

impl Session {
    /// Why a packet without an offload cannot be put in; `None` if it is longer than the path's MTU, and nothing else.
    fn refusal<P: Protocol>(&self, packet: &Packet) -> Option<DropReason<Tunnel<P>>> {
        Some(match self.shape.payload {
            _ if packet.len() < ETHERNET => Tunnel::TOO_SHORT,
            Payload::Ip { .. } if !self.carries(packet) => Tunnel::NOT_IP,
            _ if !self.fits_ip(packet) => Tunnel::TOO_LONG,
            _ if packet.headroom() < self.added => Tunnel::NO_HEADROOM,
            _ => return None,
        })
    }
}

/// Puts usual packets in. The result says whether all are usual; otherwise the numbers say which.
struct PutIn<'a> {
    session: &'a Session,
    packets: &'a mut [Packet],
    ahead: usize,
    output: u16,
    numbers: &'a mut [u16],
    columns: &'a mut TunnelColumns,
    /// That of the first packet.
    identification: u16,
}

impl Loop for PutIn<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let PutIn { session, packets, ahead, output, numbers, columns, identification } = self;
        if session.put_in_all(packets, ahead, columns, identification) {
            return true;
        }
        for (at, (packet, number)) in packets.iter_mut().zip(numbers).enumerate() {
            let is_usual = session.put_in(packet, identification.wrapping_add(at as u16), None);
            *number = if is_usual { output } else { UNUSUAL };
        }
        false
    }
}
