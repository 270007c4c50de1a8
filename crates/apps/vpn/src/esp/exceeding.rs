//! Packets that are longer than the MTU of their path when they are sealed (RFC 4301, section 8.2), and what is learned of it.

use bellows_common::fragmenter::{Fragmenter, Unfragmented};
use bellows_common::headers::{ETHERNET, read};
use bellows_common::too_big::TooBig;
use bellows_engine::{DropReason, Io};
use bellows_esp::udp::UDP_HEADER;
use bellows_esp::{ICV, Spi};
use bellows_packet::{Packet, Vector};
use bellows_wire::IpProtocol;

use super::Esp;
use super::config::Mode;
use super::inner::{Inner, Split};
use super::pair::{ESP, Longest, Pair};
use super::plan::Way;
use crate::path_mtu::{ExceedingAction, Teller};

/// What such packets take.
pub(super) struct Exceeding {
    fragmenter: Fragmenter,
    teller: Teller,
    /// The fragments of a packet behind its first: of a sealed one, and of a clear one. Empty between two packets.
    sealed: Vector,
    clear: Vector,
}

impl Exceeding {
    pub(super) fn new() -> Exceeding {
        Exceeding { fragmenter: Fragmenter::new(), teller: Teller::new(), sealed: Vector::new(), clear: Vector::new() }
    }
}

impl Esp {
    /// Sends a packet that is too long for its path, in another way.
    #[cold]
    pub(super) fn seal_exceeding(&mut self, io: &Io<Self>, packet: Packet, place: usize, output: u16) {
        match self.pairs[place].action(packet.bytes()) {
            Some(ExceedingAction::Tell(mtu)) => self.tell(io, packet, place, mtu),
            Some(ExceedingAction::FragmentInside(mtu)) => self.fragment_clear(io, packet, mtu, place, output),
            Some(ExceedingAction::FragmentOutside) => self.fragment_sealed(io, packet, place, output),
            None => io.drop(packet, Self::TOO_BIG),
        }
    }

    /// Seals the fragments of a packet. On a path of very short packets, each may become fragments once more.
    fn fragment_clear(&mut self, io: &Io<Self>, mut packet: Packet, mtu: u16, place: usize, output: u16) {
        let mut others = std::mem::replace(&mut self.exceeding.clear, Vector::none());
        match self.exceeding.fragmenter.fragment(&mut packet, mtu, &mut others) {
            Ok(()) => {
                io.count(Self::FRAGMENTED, 1);
                for packet in std::iter::once(packet).chain(others.drain(usize::MAX)) {
                    self.next_vectors.make_room(io, 1);
                    self.seal_one(io, packet, place, output);
                }
            }
            Err(error) => drop_whole(io, packet, error),
        }
        self.exceeding.clear = others;
    }

    /// Seals a packet, and sends it as fragments.
    fn fragment_sealed(&mut self, io: &Io<Self>, mut packet: Packet, place: usize, output: u16) {
        let pair = &self.pairs[place];
        let Some(outbound) = self.keyring.associations.outbound(pair.id) else {
            return io.drop(packet, Self::NO_ASSOCIATION);
        };
        if let Err(reason) = pair.seal(outbound, &mut packet, Longest::Ip) {
            return io.drop(packet, reason);
        }
        let Exceeding { fragmenter, sealed, .. } = &mut self.exceeding;
        match fragmenter.fragment(&mut packet, pair.path.mtu(), sealed) {
            Ok(()) => {
                io.count(Self::FRAGMENTED, 1);
                self.next_vectors.make_room(io, 1 + sealed.len());
                self.next_vectors.push(output.into(), packet);
                sealed.drain(usize::MAX).for_each(|fragment| self.next_vectors.push(output.into(), fragment));
            }
            Err(error) => drop_whole(io, packet, error),
        }
    }

    /// Learns from a packet that is none of ESP, if it is an ICMP error about one of a pair. Returns why it is dropped.
    #[cold]
    pub(super) fn learn(&mut self, frame: &[u8], now: u64) -> DropReason<Esp> {
        let Some(error) = TooBig::read(frame) else { return Self::OTHER_PROTOCOL };
        let place = self.by_ends.get(&error.addresses).into_iter().flatten().copied().find(|&place| {
            let spi = self.keyring.running.get(&self.names[place]).map(|it| it.current[Way::Outbound as usize].spi);
            spi.is_some_and(|spi| self.pairs[place].has_sent(&error, spi))
        });
        let is_true = place.is_some_and(|place| self.pairs[place].path.learn(&error, now));
        if is_true { Self::TOLD } else { Self::BAD_ERROR }
    }

    /// Drops a packet, and tells its sender the MTU.
    fn tell(&mut self, io: &Io<Self>, packet: Packet, place: usize, mtu: u16) {
        let (back, ends) = (self.wires.outputs[place], self.pairs[place].addresses);
        if self.exceeding.teller.send((io, Self::UNMADE), &mut self.next_vectors, back, &packet, (mtu, ends)) {
            io.count(Self::TOO_BIG_SENT, 1);
        }
        io.drop(packet, Self::TOO_BIG);
    }
}

fn drop_whole(io: &Io<Esp>, packet: Packet, error: Unfragmented) {
    io.drop(packet, if error == Unfragmented::NoBuffer { Esp::NO_MEMORY } else { Esp::TOO_BIG });
}

impl Pair {
    /// What becomes of a clear packet that is too long for the path.
    fn action(&self, frame: &[u8]) -> Option<ExceedingAction> {
        let inner = Inner::behind_ethernet(frame).ok()?;
        let headers = match self.mode {
            Mode::Tunnel => 0,
            Mode::Transport => Split::of(frame, &inner).ok()?.start - ETHERNET,
        };
        // Fragments cannot be sealed in transport mode, so that the sealed packet is fragmented. The source of one that
        // must not be is at this end, and can learn.
        if self.mode == Mode::Transport && (inner.is_v6 || !inner.dont_fragment) {
            return Some(ExceedingAction::FragmentOutside);
        }
        // Whole words with padding, its length and the next header.
        let sealed = usize::from(self.path.mtu()).checked_sub(headers + self.front() + ICV)? & !3;
        Some(ExceedingAction::of(&frame[ETHERNET..], (headers + sealed.checked_sub(2)?) as u16))
    }

    /// Whether a packet that an error quotes, between the ends of this pair, is one of it with this SPI.
    fn has_sent(&self, error: &TooBig<'_>, spi: Spi) -> bool {
        let (esp, is_ours) = match (self.udp, error.protocol) {
            (None, ESP) => (error.payload, true),
            (Some(udp), IpProtocol::UDP) => {
                let ports = [udp.local_port, udp.remote_port];
                (error.payload.get(UDP_HEADER..).unwrap_or_default(), ports == [0, 2].map(|at| read(error.payload, at)))
            }
            _ => return false,
        };
        is_ours && Spi::peek(esp).is_some_and(|number| number == spi.get())
    }
}
