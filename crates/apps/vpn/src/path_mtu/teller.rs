//! Errors to the senders of packets that are too long for a tunnel (RFC 2003, section 5.2; RFC 2473, section 7).

use std::net::Ipv4Addr;

use bellows_common::headers::{ETHERNET, ether_type, uncover};
use bellows_common::icmp::{Family, V4, V6};
use bellows_common::limit::SharedLimit;
use bellows_common::nexts::{NextVectors, UNUSUAL};
use bellows_engine::{App, Count, Io};
use bellows_packet::Packet;
use bellows_vrf::{IcmpError, Reason};
use bellows_wire::{EtherType, IpPair};

/// Errors a second, and those at once after a pause: as those of a router.
const RATE: u32 = 1_000;
const BURST: u32 = 50;

/// Classes of the outputs by which errors go back. Each is sure of its part of one half of the rate.
const CLASSES: u16 = 64;

/// The source of errors of IPv4 where no address of IPv4 is (RFC 7600, section 4.8).
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Writes errors.
pub(crate) struct Teller {
    limit: SharedLimit,
    /// Room for one behind an Ethernet header.
    frame: Vec<u8>,
}

/// An error that is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untold {
    /// There is no buffer for it.
    NoBuffer,
    /// There are too many, this end has no address, or none must be sent about such a packet.
    Not,
}

impl Teller {
    pub(crate) fn new() -> Teller {
        let limit = SharedLimit::new(RATE, BURST, usize::from(CLASSES) - 1);
        Teller { limit, frame: vec![0; ETHERNET + V6::MAX_LENGTH.max(V4::MAX_LENGTH)] }
    }

    /// Sends an ICMP error to the sender of a packet by an output. Returns whether it was sent; if there is no buffer,
    /// that counts as `unmade`.
    pub(crate) fn send<A: App>(
        &mut self,
        (io, unmade): (&Io<A>, Count<A>),
        next_vectors: &mut NextVectors,
        back: u16,
        packet: &Packet,
        (mtu, ends): (u16, IpPair),
    ) -> bool {
        if back == UNUSUAL {
            return false;
        }
        match self.tell(packet.bytes(), (mtu, ends), back % CLASSES, io.now()) {
            Ok(error) => {
                next_vectors.push(back.into(), error);
                return true;
            }
            Err(Untold::NoBuffer) => io.count(unmade, 1),
            Err(Untold::Not) => {}
        }
        false
    }

    /// The error about an IP packet behind an Ethernet header, from the end of a tunnel between these addresses.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn tell(
        &mut self,
        frame: &[u8],
        (mtu, ends): (u16, IpPair),
        class: u16,
        now: u64,
    ) -> Result<Packet, Untold> {
        if !self.limit.admits(class, now) {
            return Err(Untold::Not);
        }
        let kind = ether_type(frame).ok_or(Untold::Not)?;
        let (ip, error) = (&frame[ETHERNET..], IcmpError { reason: Reason::TooBig, value: mtu });
        let to = &mut self.frame[ETHERNET..];
        let length = match (kind, ends) {
            (EtherType::IPV4, IpPair::V4 { src, .. }) => write::<V4>(ip, error, src, to),
            (EtherType::IPV4, IpPair::V6 { .. }) => write::<V4>(ip, error, DUMMY, to),
            (_, IpPair::V6 { src, .. }) => write::<V6>(ip, error, src, to),
            (_, IpPair::V4 { .. }) => None,
        };
        let length = length.ok_or(Untold::Not)?;
        let mut packet = Packet::from_bytes(&self.frame[..ETHERNET + length]).ok_or(Untold::NoBuffer)?;
        uncover(&mut packet, kind);
        self.limit.pay(class, now);
        Ok(packet)
    }
}

/// Writes an error, if one may be sent. Returns its length.
fn write<F: Family>(ip: &[u8], error: IcmpError, own: F::Address, to: &mut [u8]) -> Option<usize> {
    F::may_answer(ip, error, None).ok()?;
    F::write(ip, error, own, to)
}
