//! Work that a packet's sender has left to others, done here for a receiver that has not agreed to do it.

use bellows_engine::{App, Io};
use bellows_packet::{CAPACITY, Offload, Packet, Vector};
use bellows_virtio::Features;
use bellows_wire::offload::{Checksums, Kind, SuperFrame, finish_checksum};

/// Where the checksum lies in a TCP header.
const TCP_CHECKSUM: u16 = 16;

/// Why a packet could not be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfinished {
    /// What it asks for makes no sense for it.
    Malformed,
    /// It has more segments than there is room for just now.
    NoRoom,
    /// The pool has no buffer for a segment.
    NoBuffer,
}

/// What a receiver does itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Able {
    /// It finishes checksums.
    pub(crate) checksums: bool,
}

impl Able {
    /// What a driver has agreed to.
    pub(crate) fn driver(features: Features) -> Able {
        Able { checksums: features.has(Features::GUEST_CSUM) }
    }

    /// What a device has agreed to.
    pub(crate) fn device(features: Features) -> Able {
        Able { checksums: features.has(Features::CSUM) }
    }
}

/// Finishes a packet that has an offload and puts what becomes of it behind what the vector holds: all or nothing.
///
/// # Errors
/// Why not; the packet comes back as it was.
fn finish(mut packet: Packet, able: Able, done: &mut Vector) -> Result<(), (Packet, Unfinished)> {
    let Some(offload) = packet.offload() else { return push(packet, done) };
    if !offload.check(packet.len()) {
        return Err((packet, Unfinished::Malformed));
    }
    if !offload.is_super_frame() {
        if !able.checksums && offload.needs_checksum() {
            let (start, offset) = (offload.checksum_start.into(), offload.checksum_offset.into());
            if finish_checksum(packet.bytes_mut(), start, offset).is_err() {
                return Err((packet, Unfinished::Malformed));
            }
            packet.clear_offload();
        }
        return push(packet, done);
    }
    match cut(&packet, offload, able, done) {
        Ok(()) => Ok(()),
        Err(why) => Err((packet, why)),
    }
}

/// Finishes a packet for a receiver that does not take it as it is: what becomes of it waits before what waits already. What
/// there is no room for is dropped, by the first of the reasons, and what makes no sense, by the second.
#[cold]
pub(crate) fn soften<A: App>(io: &Io<A>, packet: Packet, able: Able, waiting: &mut Vector, reasons: [usize; 2]) {
    let [full, malformed] = reasons;
    let mut finished = Vector::new();
    match finish(packet, able, &mut finished) {
        Ok(()) => {
            finished.append(waiting, usize::MAX);
            std::mem::swap(waiting, &mut finished);
            finished.drain(usize::MAX).for_each(|packet| io.drop(packet, full));
        }
        Err((packet, Unfinished::NoBuffer)) => {
            drop(packet);
            io.missed(1);
        }
        Err((packet, Unfinished::Malformed | Unfinished::NoRoom)) => io.drop(packet, malformed),
    }
}

fn push(packet: Packet, done: &mut Vector) -> Result<(), (Packet, Unfinished)> {
    done.push(packet).map_err(|packet| (packet, Unfinished::NoRoom))
}

fn cut(packet: &Packet, offload: Offload, able: Able, done: &mut Vector) -> Result<(), Unfinished> {
    let kind = if offload.gso_type & !Offload::GSO_ECN == Offload::GSO_TCP4 { Kind::Tcp4 } else { Kind::Tcp6 };
    let frame = SuperFrame::new(packet.bytes(), kind, offload.segment_size).map_err(|_| Unfinished::Malformed)?;
    if frame.count() > CAPACITY {
        // There never will be room.
        return Err(Unfinished::Malformed);
    }
    if frame.count() > done.room() {
        return Err(Unfinished::NoRoom);
    }
    // A vector of their own, so that no half of a packet leaves.
    let mut segments = Vector::new();
    let checksums = if able.checksums { Checksums::Partial } else { Checksums::Whole };
    for segment in frame.segments(checksums) {
        let mut made = Packet::with_room(segment.len()).ok_or(Unfinished::NoBuffer)?;
        segment.write(made.extend(segment.len()));
        made.set_tag(packet.tag());
        if let Some(meta) = packet.meta() {
            made.set_meta(meta);
        }
        if able.checksums {
            made.set_offload(Offload {
                flags: Offload::NEEDS_CHECKSUM,
                checksum_start: frame.tcp_start() as u16,
                checksum_offset: TCP_CHECKSUM,
                ..Offload::default()
            });
        }
        segments.push(made).map_err(|_| Unfinished::NoRoom)?;
    }
    done.append(&mut segments, usize::MAX);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_wire::{
        EtherType, EthernetHeader, IpPair, IpProtocol, Ipv4Header, MacAddr, TcpHeader, verify_checksums,
    };

    /// A super-frame of TCP over IPv4 with so many bytes of a stream, as a guest hands it over.
    fn super_frame(payload: usize, segment_size: u16) -> Packet {
        let mut frame = vec![0; 54 + payload];
        for (index, byte) in frame[54..].iter_mut().enumerate() {
            *byte = (index * 7) as u8;
        }
        let addresses = IpPair::V4 { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into() };
        let tcp = TcpHeader { src_port: 1, dst_port: 2, sequence: 99, acknowledgment: 0, flags: 0x18, window: 9 };
        tcp.emit(&mut frame[34..], &addresses).unwrap();
        let ip = Ipv4Header {
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
            protocol: IpProtocol::TCP,
            ttl: 64,
            traffic_class: 0,
            identification: 1,
            dont_fragment: true,
        };
        ip.emit(&mut frame[14..]).unwrap();
        let ethernet = EthernetHeader { dst: MacAddr::BROADCAST, src: MacAddr([2; 6]), ether_type: EtherType::IPV4 };
        ethernet.emit(&mut frame).unwrap();
        let sum = addresses.pseudo_header(IpProtocol::TCP, 20 + payload);
        frame[50..52].copy_from_slice(&(!sum.finish()).to_be_bytes());
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_offload(Offload {
            flags: Offload::NEEDS_CHECKSUM,
            gso_type: Offload::GSO_TCP4,
            header_length: 54,
            segment_size,
            checksum_start: 34,
            checksum_offset: 16,
        });
        packet
    }

    #[test]
    fn a_super_frame_becomes_segments_with_right_checksums_for_who_finishes_nothing() {
        let mut done = Vector::new();
        finish(super_frame(3000, 1448), Able::default(), &mut done).unwrap();
        let lengths: Vec<usize> = done.as_slice().iter().map(Packet::len).collect();
        assert_eq!(lengths, [54 + 1448, 54 + 1448, 54 + 104]);
        for packet in done.as_slice() {
            assert!(!packet.has_offload());
            verify_checksums(packet.bytes()).unwrap();
        }
    }

    #[test]
    fn who_finishes_checksums_gets_segments_with_unfinished_ones() {
        let mut done = Vector::new();
        finish(super_frame(3000, 1448), Able { checksums: true }, &mut done).unwrap();
        for packet in done.drain(usize::MAX) {
            assert!(verify_checksums(packet.bytes()).is_err());
            let mut whole = Vector::new();
            finish(packet, Able::default(), &mut whole).unwrap();
            verify_checksums(whole.as_slice()[0].bytes()).unwrap();
        }
    }

    #[test]
    fn what_makes_no_sense_or_has_no_room_comes_back_whole() {
        let mut done = Vector::new();
        for _ in 0..CAPACITY - 2 {
            done.push(Packet::from_bytes(&[0; 60]).unwrap()).unwrap();
        }
        let (packet, why) = finish(super_frame(3000, 1448), Able::default(), &mut done).unwrap_err();
        assert_eq!((why, packet.len(), done.len()), (Unfinished::NoRoom, 3054, CAPACITY - 2));
        let (many, why) = finish(super_frame(3000, 1), Able::default(), &mut Vector::new()).unwrap_err();
        assert_eq!((why, many.len()), (Unfinished::Malformed, 3054), "more than a vector holds");
        let mut bad = packet;
        bad.set_offload(Offload { checksum_start: 4000, ..bad.offload().unwrap() });
        let (bad, why) = finish(bad, Able::default(), &mut done).unwrap_err();
        assert_eq!((why, bad.len()), (Unfinished::Malformed, 3054));
    }
}
