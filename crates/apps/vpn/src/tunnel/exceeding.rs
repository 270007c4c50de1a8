//! Packets that are longer than their path's MTU.

use bellows_common::fragmenter::{Fragmenter, Unfragmented};
use bellows_common::headers::ETHERNET;
use bellows_engine::Io;
use bellows_packet::{Packet, Vector};

use super::session::Payload;
use super::{Protocol, Tunnel};
use crate::path_mtu::{ExceedingAction, Teller};

/// What such packets take.
pub(super) struct Exceeding {
    fragmenter: Fragmenter,
    teller: Teller,
    /// The fragments of a packet behind its first: around what is carried, and of that. Empty between two packets.
    outside: Vector,
    inside: Vector,
}

impl Exceeding {
    pub(super) fn new() -> Exceeding {
        Exceeding {
            fragmenter: Fragmenter::new(),
            teller: Teller::new(),
            outside: Vector::new(),
            inside: Vector::new(),
        }
    }
}

impl<P: Protocol> Tunnel<P> {
    /// Sends a packet that is too long for its path, in another way.
    #[cold]
    pub(super) fn send_exceeding(&mut self, io: &Io<Self>, packet: Packet, session: usize, output: u16) {
        let keys = &self.sessions[session];
        let action = match keys.shape.payload {
            Payload::Ethernet => ExceedingAction::FragmentOutside,
            Payload::Ip { .. } => {
                // Without the Ethernet header, which is not carried.
                let room = keys.mtu().saturating_sub(keys.added as u16);
                ExceedingAction::of(&packet.bytes()[ETHERNET..], room)
            }
        };
        match action {
            ExceedingAction::Tell(mtu) => self.tell(io, packet, session, mtu),
            ExceedingAction::FragmentInside(mtu) => self.fragment_inside(io, packet, mtu, session, output),
            ExceedingAction::FragmentOutside => self.fragment_outside(io, packet, session, output),
        }
    }

    /// Drops a packet, and tells its sender the MTU.
    fn tell(&mut self, io: &Io<Self>, packet: Packet, session: usize, mtu: u16) {
        let (back, ends) = (self.wires.outputs[session], self.sessions[session].addresses);
        if self.exceeding.teller.send((io, Self::UNMADE), &mut self.next_vectors, back, &packet, (mtu, ends)) {
            io.count(Self::TOO_BIG_SENT, 1);
        }
        io.drop(packet, Self::TOO_BIG);
    }

    /// Sends the fragments of an IP packet, each in one of the tunnel. On a path of very short packets, that becomes fragments
    /// once more.
    fn fragment_inside(&mut self, io: &Io<Self>, mut packet: Packet, mtu: u16, session: usize, output: u16) {
        let mut others = std::mem::replace(&mut self.exceeding.inside, Vector::none());
        match self.exceeding.fragmenter.fragment(&mut packet, mtu, &mut others) {
            Ok(()) => {
                io.count(Self::FRAGMENTED, 1);
                for packet in std::iter::once(packet).chain(others.drain(usize::MAX)) {
                    self.next_vectors.make_room(io, 1);
                    self.send_one(io, packet, session, output, None);
                }
            }
            Err(error) => Self::drop_whole(io, packet, error),
        }
        self.exceeding.inside = others;
    }

    /// Sends the fragments of a packet of the tunnel.
    fn fragment_outside(&mut self, io: &Io<Self>, mut packet: Packet, session: usize, output: u16) {
        let keys = &self.sessions[session];
        if !self.fragments || !keys.may_fragment() {
            return io.drop(packet, Self::TOO_BIG);
        }
        if packet.headroom() < keys.added {
            return io.drop(packet, Self::NO_HEADROOM);
        }
        keys.wrap(&mut packet, self.identification, None);
        self.identification = self.identification.wrapping_add(1);
        let Exceeding { fragmenter, outside, .. } = &mut self.exceeding;
        match fragmenter.fragment(&mut packet, keys.mtu(), outside) {
            Ok(()) => {
                io.count(Self::FRAGMENTED, 1);
                self.next_vectors.make_room(io, 1 + outside.len());
                self.next_vectors.push(output.into(), packet);
                outside.drain(usize::MAX).for_each(|fragment| self.next_vectors.push(output.into(), fragment));
            }
            Err(error) => Self::drop_whole(io, packet, error),
        }
    }

    fn drop_whole(io: &Io<Self>, packet: Packet, error: Unfragmented) {
        io.drop(packet, if error == Unfragmented::NoBuffer { Self::NO_MEMORY } else { Self::TOO_BIG });
    }
}
