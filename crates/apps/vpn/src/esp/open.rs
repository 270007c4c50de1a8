//! Packets from the wire that are opened.

use std::ops::Range;

use bellows_common::headers::ecn::{ECN, decapsulated_ecn, set_ecn};
use bellows_common::headers::{ETHERNET, HEADERS_V4, HEADERS_V6, NotWhole, Outer, cut, is_v6, read, reversed};
use bellows_common::nexts::{Next, UNUSUAL};
use bellows_engine::{DropReason, Io};
use bellows_esp::udp::{self, UDP_HEADER};
use bellows_esp::{HEADER, ICV, Inbound, OpenError, Opened, PairId, Spi};
use bellows_packet::Packet;
use bellows_wire::IpProtocol;
use bellows_wire::udp::UdpDatagram;

use super::Esp;
use super::config::Mode;
use super::inner::{Inner, Split};
use super::pair::{ESP, Pair, name_of};
use super::plan::Way;
use super::seal::fix_lengths;

/// The shortest packet of ESP that the usual way takes; others are read field by field.
const MIN_ESP: usize = HEADER + 4 + ICV;

/// Where the packet of ESP is in a frame, and its pair.
struct Located {
    place: usize,
    spi: Spi,
    start: usize,
    end: usize,
}

impl Esp {
    /// Opens packets from the wire. Hot.
    pub(super) fn open_all(&mut self, io: &Io<Self>, index: usize) {
        let mut input = io.input(index);
        let packets = input.packets_mut();
        let (count, ahead) = (packets.len(), io.prefetch());
        self.reasons.clear();
        packets.iter().take(ahead).for_each(Packet::prefetch);
        for at in 0..count {
            if let Some(packet) = packets.get(at + ahead) {
                packet.prefetch();
            }
            let number = match self.open(&mut packets[at]) {
                Ok(output) => output,
                Err(reason) => {
                    let is_other = reason.position() == Self::OTHER_PROTOCOL.position();
                    let reason = if is_other { self.learn(packets[at].bytes(), io.now()) } else { reason };
                    self.reasons.push(reason);
                    UNUSUAL
                }
            };
            self.next_vectors.nexts(count)[at] = number;
        }
        let mut reasons = self.reasons.iter();
        self.next_vectors.send_all(io, index, input, |_| Next::Drop(*reasons.next().expect("one for each")));
    }

    /// Opens a packet. Returns its output. Hot.
    #[inline]
    fn open(&mut self, packet: &mut Packet) -> Result<u16, DropReason<Esp>> {
        let Esp { keyring, pairs, places, wires, .. } = self;
        let usual = guess(packet.bytes()).and_then(|(spi, start)| {
            let (inbound, id) = keyring.associations.inbound(spi)?;
            let place = place(places, id)?;
            let end = pairs.get(place)?.usual_end(packet.bytes(), start)?;
            Some((inbound, place, start, end))
        });
        if let Some((inbound, place, start, end)) = usual {
            return pairs[place].open(inbound, wires.outputs[place], packet, start..end);
        }
        let Located { place, spi, start, end } = self.locate(packet.bytes())?;
        let (inbound, _) = self.keyring.associations.inbound(spi).ok_or(Esp::NO_ASSOCIATION)?;
        self.pairs[place].open(inbound, self.wires.outputs[place], packet, start..end)
    }

    /// Finds the pair of any packet, field by field.
    #[inline(never)]
    fn locate(&self, frame: &[u8]) -> Result<Located, DropReason<Esp>> {
        let outer = Outer::read(frame).map_err(|error| match error {
            NotWhole::Malformed => Esp::MALFORMED,
            NotWhole::Fragment => Esp::FRAGMENT,
        })?;
        let (start, port) = match outer.protocol {
            ESP => (outer.start, None),
            IpProtocol::UDP => (outer.start + UDP_HEADER, Some(self.check_udp(&frame[outer.start..outer.end])?)),
            _ => return Err(Esp::OTHER_PROTOCOL),
        };
        let number = Spi::peek(&frame[start..outer.end]).ok_or(Esp::MALFORMED)?;
        let spi = Spi::new(number).map_err(|_| Esp::NO_ASSOCIATION)?;
        let place = self.keyring.associations.owner(spi).and_then(|id| place(&self.places, id));
        let place = place.filter(|place| *place < self.pairs.len()).ok_or(Esp::NO_ASSOCIATION)?;
        let pair = &self.pairs[place];
        let is_its_way = reversed(outer.addresses) == pair.addresses && port == pair.udp.map(|udp| udp.local_port);
        if !is_its_way {
            return Err(Esp::NO_ASSOCIATION);
        }
        Ok(Located { place, spi, start, end: outer.end })
    }

    /// The port of a datagram with a packet of ESP.
    fn check_udp(&self, payload: &[u8]) -> Result<u16, DropReason<Esp>> {
        let datagram = UdpDatagram::new_checked(payload).map_err(|_| Esp::MALFORMED)?;
        let port = read(payload, 2);
        if !self.udp_ports.contains(&port) {
            return Err(Esp::OTHER_PROTOCOL);
        }
        if datagram.datagram().len() != payload.len() {
            return Err(Esp::MALFORMED);
        }
        match udp::classify(&payload[UDP_HEADER..]) {
            udp::Payload::Esp => Ok(port),
            udp::Payload::Ike(_) => Err(Esp::IKE),
            udp::Payload::Keepalive => Err(Esp::KEEPALIVE),
            udp::Payload::TooShort => Err(Esp::MALFORMED),
        }
    }
}

/// Where the packet of ESP begins in a frame with usual headers, and its SPI. Hot.
#[inline(always)]
fn guess(frame: &[u8]) -> Option<(Spi, usize)> {
    let (ip_end, protocol_at) = match is_v6(frame) {
        true => (HEADERS_V6, ETHERNET + 6),
        false => (HEADERS_V4, ETHERNET + 9),
    };
    let is_udp = *frame.get(protocol_at)? == IpProtocol::UDP.0;
    let start = ip_end + if is_udp { UDP_HEADER } else { 0 };
    Some((Spi::new(Spi::peek(frame.get(start..)?)?).ok()?, start))
}

/// The place of a pair. Hot.
#[inline(always)]
fn place(places: &[u16], id: PairId) -> Option<usize> {
    places.get(id.number() as usize).map(|place| usize::from(*place))
}

impl Pair {
    /// The end of a packet whose headers are those that the pair expects, found by one comparison. Hot.
    #[inline(always)]
    fn usual_end(&self, frame: &[u8], start: usize) -> Option<usize> {
        let end = match self.is_v6() {
            true => HEADERS_V6 + usize::from(read(frame, ETHERNET + 4)),
            false => ETHERNET + usize::from(read(frame, ETHERNET + 2)),
        };
        let is_whole = self.udp.is_none() || start - UDP_HEADER + usize::from(read(frame, start - 4)) == end;
        let is_usual = self.pattern.is_start_of(frame) & (end <= frame.len()) & (end >= start + MIN_ESP) & is_whole;
        is_usual.then_some(end)
    }

    /// Opens a packet: `esp` are its bytes behind the headers. Returns the output. Hot.
    #[inline(always)]
    fn open(
        &mut self,
        inbound: &mut Inbound,
        output: u16,
        packet: &mut Packet,
        esp: Range<usize>,
    ) -> Result<u16, DropReason<Esp>> {
        if output == UNUSUAL {
            return Err(Esp::UNKNOWN_PORT);
        }
        if self.is_expired[Way::Inbound as usize] {
            return Err(Esp::LIFETIME);
        }
        let opened = inbound.open(&mut packet.bytes_mut()[esp.clone()]).map_err(|error| {
            if let OpenError::Expired(limit) = error {
                self.note_stop(Way::Inbound, inbound.spi(), name_of(limit));
            }
            reason(error)
        })?;
        // One that was overtaken, or held back by somebody, says nothing of where the other end is now.
        if self.udp.is_some() && opened.sequence == inbound.last_sequence() {
            self.follow(read(packet.bytes(), esp.start - UDP_HEADER));
        }
        if opened.is_dummy() {
            return Err(Esp::DUMMY);
        }
        packet.clear_offload();
        match self.mode {
            Mode::Tunnel => self.take_out(packet, esp.start, &opened)?,
            Mode::Transport => self.take_apart(packet, esp.start, &opened)?,
        }
        Ok(output)
    }

    /// Takes the packet out of which the opened one consists. Hot.
    #[inline(always)]
    fn take_out(&self, packet: &mut Packet, start: usize, opened: &Opened) -> Result<(), DropReason<Esp>> {
        let outer = Inner::read(&packet.bytes()[ETHERNET..]).map_or(0, |outer| outer.traffic_class);
        let range = start + opened.payload.start..start + opened.payload.end;
        let ip = &mut packet.bytes_mut()[range.clone()];
        let inner = Inner::read(ip).filter(|inner| inner.next_header() == opened.next_header);
        // Bytes behind the packet hide its length (RFC 4303, section 2.7).
        let inner = inner.ok_or(Esp::BAD_PAYLOAD)?;
        let [source, destination] = inner.addresses(ip);
        if !self.selectors.pass(destination, source) {
            return Err(Esp::BAD_SELECTOR);
        }
        let ecn = decapsulated_ecn(inner.traffic_class, outer).ok_or(Esp::BAD_ECN)?;
        if ecn != inner.traffic_class & ECN {
            set_ecn(ip, inner.is_v6, ecn);
        }
        cut(packet, range.start - ETHERNET, range.start + inner.length);
        self.uncover(packet, &inner);
        Ok(())
    }

    /// Puts the headers of a packet in front of what was opened. Hot.
    #[inline(always)]
    fn take_apart(&self, packet: &mut Packet, start: usize, opened: &Opened) -> Result<(), DropReason<Esp>> {
        let headers = start - self.udp_length();
        let is_v6 = self.is_v6();
        let next_header_at = match is_v6 {
            true if headers != HEADERS_V6 => {
                let split = Split::before(packet.bytes(), headers).filter(|split| split.start == headers);
                split.ok_or(Esp::MALFORMED)?.next_header_at
            }
            true => ETHERNET + 6,
            false => ETHERNET + 9,
        };
        let removed = start + opened.payload.start - headers;
        let frame = packet.bytes_mut();
        frame[next_header_at] = opened.next_header;
        frame.copy_within(..headers, removed);
        cut(packet, removed, start + opened.payload.end);
        fix_lengths(packet.bytes_mut(), is_v6, headers);
        if let Some(inner) = Inner::read(&packet.bytes()[ETHERNET..]) {
            self.uncover(packet, &inner);
        }
        Ok(())
    }
}

/// The counter of a packet that is not opened.
fn reason(error: OpenError) -> DropReason<Esp> {
    match error {
        OpenError::TooShort | OpenError::Misaligned => Esp::MALFORMED,
        OpenError::UnknownSpi => Esp::NO_ASSOCIATION,
        OpenError::Replayed => Esp::REPLAYED,
        OpenError::TooOld => Esp::TOO_OLD,
        OpenError::BadIcv => Esp::BAD_ICV,
        OpenError::BadPadding => Esp::BAD_PADDING,
        OpenError::Expired(_) => Esp::LIFETIME,
    }
}
