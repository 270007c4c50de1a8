//! Clear packets that are sealed.

use bellows_common::headers::{ETHERNET, HEADERS_V6, read, uncover, write};
use bellows_common::nexts::{Next, UNUSUAL};
use bellows_common::segmentation::{self, Gso};
use bellows_engine::{DropReason, Io};
use bellows_esp::{HEADER, Outbound, SealError, trailer_length};
use bellows_packet::Packet;

use super::Esp;
use super::config::Mode;
use super::inner::{Inner, Split, Unfit};
use super::pair::{ESP, Longest, Pair, Varying, name_of};
use super::plan::Way;

impl Esp {
    /// Seals the packets of a pair. Hot.
    pub(super) fn seal_all(&mut self, io: &Io<Self>, index: usize, place: usize) {
        let pair = &mut self.pairs[place];
        let Some(output) = self.wires.transports[usize::from(pair.is_v6())] else {
            return io.drop_all(&mut io.input(index), Self::UNKNOWN_PORT);
        };
        if pair.is_expired[Way::Outbound as usize] {
            return io.drop_all(&mut io.input(index), Self::LIFETIME);
        }
        pair.sent_at = io.now();
        let (pair, reasons) = (&self.pairs[place], &mut self.reasons);
        let Some(outbound) = self.keyring.associations.outbound(pair.id) else {
            return io.drop_all(&mut io.input(index), Self::NO_ASSOCIATION);
        };
        let mut input = io.input(index);
        let packets = input.packets_mut();
        let longest = pair.longest_clear();
        if packets.iter().any(|packet| packet.has_offload() || packet.len() > longest) {
            drop(input);
            return self.seal_mixed(io, index, place, output);
        }
        let (numbers, ahead) = (self.next_vectors.nexts(packets.len()), io.prefetch());
        reasons.clear();
        packets.iter().take(ahead).for_each(Packet::prefetch);
        for (at, number) in numbers.iter_mut().enumerate() {
            if let Some(packet) = packets.get(at + ahead) {
                packet.prefetch();
            }
            *number = match pair.seal(outbound, &mut packets[at], Longest::Path) {
                Ok(()) => output,
                Err(reason) => {
                    reasons.push(reason);
                    UNUSUAL
                }
            };
        }
        let mut reasons = reasons.iter();
        self.next_vectors.send_all(io, index, input, |_| Next::Drop(*reasons.next().expect("one for each")));
    }

    /// Seals packets one by one, because offloads of some must be finished before, or some may be too long. They get their numbers in their order.
    #[inline(never)]
    fn seal_mixed(&mut self, io: &Io<Self>, index: usize, place: usize, output: u16) {
        for mut packet in &mut io.input(index) {
            self.next_vectors.make_room(io, 1);
            match segmentation::finish(&mut packet) {
                Ok(None) => self.seal_one(io, packet, place, output),
                Ok(Some(gso)) => self.segment(io, packet, gso, place, output),
                Err(_) => io.drop(packet, Self::BAD_OFFLOAD),
            }
        }
        self.next_vectors.send(io);
    }

    /// Seals the segments of a GSO packet.
    fn segment(&mut self, io: &Io<Self>, mut packet: Packet, gso: Gso, place: usize, output: u16) {
        let mut segments = std::mem::take(&mut self.segments);
        if segmentation::segment(&mut packet, gso.kind, gso.size, &mut segments).is_err() {
            segments.drain(usize::MAX).for_each(drop);
            io.drop(packet, Self::NO_MEMORY);
        } else {
            io.count(Self::SEGMENTED, 1);
            for packet in std::iter::once(packet).chain(segments.drain(usize::MAX)) {
                self.next_vectors.make_room(io, 1);
                self.seal_one(io, packet, place, output);
            }
        }
        self.segments = segments;
    }

    pub(super) fn seal_one(&mut self, io: &Io<Self>, mut packet: Packet, place: usize, output: u16) {
        let pair = &self.pairs[place];
        let Some(outbound) = self.keyring.associations.outbound(pair.id) else {
            return io.drop(packet, Self::NO_ASSOCIATION);
        };
        match pair.seal(outbound, &mut packet, Longest::Path) {
            Ok(()) => self.next_vectors.push(output.into(), packet),
            Err(reason) if reason.position() == Self::TOO_BIG.position() => {
                self.seal_exceeding(io, packet, place, output);
            }
            Err(reason) => io.drop(packet, reason),
        }
    }
}

impl Pair {
    /// Seals a packet without an offload. Hot.
    #[inline]
    pub(super) fn seal(
        &self,
        outbound: &mut Outbound,
        packet: &mut Packet,
        longest: Longest,
    ) -> Result<(), DropReason<Esp>> {
        let inner = Inner::behind_ethernet(packet.bytes()).map_err(reason)?;
        match self.mode {
            Mode::Tunnel => self.seal_whole(outbound, packet, inner, longest),
            Mode::Transport => self.seal_part(outbound, packet, inner, longest),
        }
    }

    /// Seals a whole packet, in a new one. Hot.
    #[inline(always)]
    fn seal_whole(
        &self,
        outbound: &mut Outbound,
        packet: &mut Packet,
        inner: Inner,
        longest: Longest,
    ) -> Result<(), DropReason<Esp>> {
        let ip = &packet.bytes()[ETHERNET..];
        let [source, destination] = inner.addresses(ip);
        if !self.selectors.pass(source, destination) {
            return Err(Esp::BAD_SELECTOR);
        }
        self.make_room(packet, inner.length, inner.length, longest)?;
        packet.set_tag(0);
        let frame = packet.bytes_mut();
        self.write_headers(
            frame,
            &Varying {
                traffic_class: self.traffic_class(inner.traffic_class),
                dont_fragment: self.dont_fragment(inner.dont_fragment, longest),
                identification: outbound.last_sequence().wrapping_add(1) as u16,
            },
        );
        let start = ETHERNET + self.front();
        seal(self, outbound, frame, start, inner.length, inner.next_header())?;
        self.finish_udp(frame, HEADERS_V6);
        Ok(())
    }

    /// Seals what a packet carries. Hot.
    #[inline(always)]
    fn seal_part(
        &self,
        outbound: &mut Outbound,
        packet: &mut Packet,
        inner: Inner,
        longest: Longest,
    ) -> Result<(), DropReason<Esp>> {
        let frame = packet.bytes();
        if !self.is_between_ends(&inner, &frame[ETHERNET..]) {
            return Err(Esp::BAD_SELECTOR);
        }
        let split = Split::of(frame, &inner).map_err(reason)?;
        let length = ETHERNET + inner.length - split.start;
        self.make_room(packet, inner.length, length, longest)?;
        packet.set_tag(0);
        let (front, udp) = (self.front(), self.udp_length());
        let frame = packet.bytes_mut();
        frame.copy_within(front..front + split.start, 0);
        let protocol = if udp == 0 { ESP.0 } else { bellows_wire::IpProtocol::UDP.0 };
        let next_header = std::mem::replace(&mut frame[split.next_header_at], protocol);
        fix_lengths(frame, inner.is_v6, split.start);
        if udp != 0 {
            self.write_udp(frame, split.start);
        }
        uncover(packet, inner.kind());
        let frame = packet.bytes_mut();
        seal(self, outbound, frame, split.start + front, length, next_header)?;
        self.finish_udp(frame, split.start);
        Ok(())
    }

    /// Removes what is behind a packet of IP, and makes room around it: `protected` bytes of it are sealed.
    #[inline(always)]
    fn make_room(
        &self,
        packet: &mut Packet,
        length: usize,
        protected: usize,
        longest: Longest,
    ) -> Result<(), DropReason<Esp>> {
        let (front, behind) = (self.front(), trailer_length(protected));
        let longest = if longest == Longest::Path { self.path.mtu() } else { u16::MAX };
        if length + front + behind > usize::from(longest) {
            return Err(Esp::TOO_BIG);
        }
        packet.truncate(ETHERNET + length);
        if packet.tailroom() < behind || packet.headroom() < front {
            shift(packet, front, behind)?;
        }
        packet.extend(behind);
        packet.prepend(front);
        Ok(())
    }

    /// Whether a packet goes from this end to the other.
    #[inline(always)]
    fn is_between_ends(&self, inner: &Inner, ip: &[u8]) -> bool {
        let addresses = inner.addresses(ip);
        match self.addresses {
            bellows_wire::IpPair::V4 { src, dst } => addresses == [&src.octets()[..], &dst.octets()[..]],
            bellows_wire::IpPair::V6 { src, dst } => addresses == [&src.octets()[..], &dst.octets()[..]],
        }
    }
}

/// Shifts a packet in its buffer, so that there is room for `front` bytes in front and `behind` bytes behind.
#[cold]
fn shift(packet: &mut Packet, front: usize, behind: usize) -> Result<(), DropReason<Esp>> {
    let (length, headroom, tailroom) = (packet.len(), packet.headroom(), packet.tailroom());
    if headroom + tailroom < front + behind {
        return Err(Esp::NO_ROOM);
    }
    if tailroom < behind {
        let by = behind - tailroom;
        packet.prepend(by).copy_within(by.., 0);
        packet.truncate(length);
    } else {
        let by = front - headroom;
        packet.extend(by);
        packet.bytes_mut().copy_within(..length, by);
        packet.trim_front(by);
    }
    Ok(())
}

/// Seals bytes of a frame.
#[inline(always)]
fn seal(
    pair: &Pair,
    outbound: &mut Outbound,
    frame: &mut [u8],
    start: usize,
    length: usize,
    next_header: u8,
) -> Result<(), DropReason<Esp>> {
    debug_assert_eq!(frame.len(), start + length + trailer_length(length));
    let from = start - HEADER;
    match outbound.seal(&mut frame[from..], HEADER..HEADER + length, next_header) {
        Ok(_) => Ok(()),
        Err(SealError::SequenceExhausted) => {
            pair.note_stop(Way::Outbound, outbound.spi(), "sequence");
            Err(Esp::SEQUENCE_EXHAUSTED)
        }
        Err(SealError::Expired(limit)) => {
            pair.note_stop(Way::Outbound, outbound.spi(), name_of(limit));
            Err(Esp::LIFETIME)
        }
        Err(SealError::Range | SealError::Headroom | SealError::Tailroom) => Err(Esp::NO_ROOM),
    }
}

/// Sets the length of an IP packet to that of its frame, and the checksum of IPv4; `start` is the end of its headers.
#[inline(always)]
pub(super) fn fix_lengths(frame: &mut [u8], is_v6: bool, start: usize) {
    let length = (frame.len() - ETHERNET) as u16;
    if is_v6 {
        return write(frame, ETHERNET + 4, length.wrapping_sub(40));
    }
    write(frame, ETHERNET + 2, length);
    write(frame, ETHERNET + 10, 0);
    let checksum = bellows_wire::Sum::new().add_bytes(&frame[ETHERNET..start]).finish();
    write(frame, ETHERNET + 10, checksum);
    debug_assert_eq!(read(frame, ETHERNET + 2), length);
}

/// The counter of a packet that cannot be sealed.
fn reason(unfit: Unfit) -> DropReason<Esp> {
    match unfit {
        Unfit::TooShort => Esp::TOO_SHORT,
        Unfit::NotIp => Esp::NOT_IP,
        Unfit::Malformed => Esp::MALFORMED,
        Unfit::Fragment => Esp::FRAGMENT,
    }
}
