//! Making a datagram of its fragments.

use bellows_common::ip_frame::{IpFrame, Version};
use bellows_common::ipv4_options::fill_checksum;
use bellows_packet::Packet;
use bellows_wire::IpProtocol;
use bellows_wire::ipv4::{self, Ipv4Packet};
use bellows_wire::ipv6::{self, Ipv6Packet};

use super::header::{FRAGMENT_HEADER, MAX_LENGTH, Piece, fragment_header};
use super::table::Why;
use crate::local::is_of_discovery;

/// Codepoints of explicit congestion notification: not capable, and congestion experienced.
const NOT_CAPABLE: u8 = 1 << 0;
const EXPERIENCED: u8 = 1 << 3;

/// What the fragments of a datagram make.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    /// Where the data begins in the first one, and bytes of its headers that count for the datagram's length.
    pub(super) data: u32,
    pub(super) counted: u32,
    /// Bytes of data in all.
    pub(super) length: u32,
    /// The codepoints of congestion notification that were seen, as bits.
    pub(super) congestion: u8,
}

impl Sum {
    /// That of fragments one behind the other.
    pub(super) fn of<'p>(first: &Piece, all: impl Iterator<Item = &'p Piece>) -> Sum {
        let (length, congestion) =
            all.fold((0, 0), |(length, bits), piece| (length + piece.length(), bits | piece.congestion()));
        Sum { data: first.data, counted: first.counted, length, congestion }
    }
}

/// A datagram that is being made of its fragments.
pub(super) struct Whole {
    /// A buffer with room for all, if the first fragment has none; then the datagram.
    packet: Option<Packet>,
    has_congestion: bool,
}

impl Whole {
    /// Prepares for the fragments of a datagram, of which the first is `first`.
    ///
    /// # Errors
    /// Why the datagram cannot be.
    pub(super) fn new(first: &Packet, sum: Sum) -> Result<Whole, Why> {
        if sum.counted + sum.length > MAX_LENGTH {
            return Err(Why::TooLong);
        }
        let has_congestion = sum.congestion & EXPERIENCED != 0;
        // RFC 3168, section 5.3.
        if has_congestion && sum.congestion & NOT_CAPABLE != 0 {
            return Err(Why::Congestion);
        }
        let length = (sum.data + sum.length) as usize;
        let packet = match first.tailroom() + first.len() >= length {
            true => None,
            false => Some(Packet::with_room(length).ok_or(Why::NoMemory)?),
        };
        Ok(Whole { packet, has_congestion })
    }

    /// Adds the next fragment, whose data begins at a place.
    #[inline]
    pub(super) fn add(&mut self, fragment: Packet, data: usize) {
        match &mut self.packet {
            Some(whole) if whole.len() > 0 => whole.append(&fragment.bytes()[data..]),
            Some(whole) => fragment.copy_into(whole),
            None => self.packet = Some(fragment),
        }
    }

    /// The datagram, whose fragments have all been added.
    pub(super) fn finish(self) -> Option<Packet> {
        let mut whole = self.packet?;
        whole.clear_offload();
        finish_headers(&mut whole, self.has_congestion);
        Some(whole)
    }
}

/// Whether an IPv6 packet is a message of neighbour discovery, behind whichever extension headers.
fn is_discovery(ip: &[u8]) -> bool {
    let Ok(view) = Ipv6Packet::new_checked(ip) else { return false };
    view.upper_layer().is_ok_and(|upper| {
        upper.protocol == IpProtocol::ICMPV6 && upper.payload.first().is_some_and(|&kind| is_of_discovery(kind))
    })
}

/// Makes the headers of a first fragment those of its datagram, whose data is there.
pub(super) fn finish_headers(packet: &mut Packet, has_congestion: bool) {
    let Some(ip) = IpFrame::find(packet.bytes()) else { return };
    match ip.version {
        Version::V4 => {
            let bytes = &mut packet.bytes_mut()[ip.at..];
            let total = bytes.len() as u16;
            bytes[ipv4::field::TOTAL_LEN].copy_from_slice(&total.to_be_bytes());
            let Ok(mut view) = Ipv4Packet::new_checked(bytes) else { return };
            view.set_flags_fragment(0);
            if has_congestion {
                view.set_traffic_class(view.traffic_class() | 3);
            }
            let header = view.header().len();
            fill_checksum(&mut view.into_inner()[..header]);
        }
        Version::V6 => {
            let bytes = &mut packet.bytes_mut()[ip.at..];
            let Some(at) = fragment_header(bytes) else { return };
            if has_congestion {
                // The lowest bits of the traffic class.
                bytes[1] |= 3 << 4;
            }
            // The fragment that is all of its datagram: without an offset, and with no more to come.
            bytes[at.header + 2..at.header + 4].fill(0);
            let length = (bytes.len() - ipv6::field::HEADER_LEN).min(MAX_LENGTH as usize) as u16;
            bytes[ipv6::field::PAYLOAD_LEN].copy_from_slice(&length.to_be_bytes());
            // RFC 6980: who receives it must see that it came in fragments.
            if is_discovery(bytes) {
                return;
            }
            bytes[at.named_at] = bytes[at.header];
            let length = (bytes.len() - ipv6::field::HEADER_LEN - FRAGMENT_HEADER) as u16;
            bytes[ipv6::field::PAYLOAD_LEN].copy_from_slice(&length.to_be_bytes());
            // What is in front moves over the fragment header.
            let front = ip.at + at.header;
            packet.bytes_mut().copy_within(..front, FRAGMENT_HEADER);
            packet.trim_front(FRAGMENT_HEADER);
        }
    }
}
