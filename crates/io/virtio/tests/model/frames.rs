//! Frames whose TCP or UDP header is at a known place, and the true claims of a virtio-net header about a frame: the
//! model, which reads byte by byte what the crate reads through views.

use bellows_packet::Offload;

use super::random::Random;

/// A frame, and everything that can truly be claimed of it.
#[derive(Clone, Debug)]
pub struct Frame {
    pub bytes: Vec<u8>,
    /// Offsets of the TCP or UDP header, and of the payload.
    pub start: usize,
    pub payload: usize,
    pub is_tcp: bool,
    pub is_ipv6: bool,
}

impl Frame {
    /// The claim that the checksum is partial.
    pub fn checksum(&self) -> Offload {
        Offload {
            flags: Offload::NEEDS_CHECKSUM,
            checksum_start: self.start as u16,
            checksum_offset: if self.is_tcp { 16 } else { 6 },
            ..Offload::default()
        }
    }

    /// The claim that a frame of TCP is to be cut into segments of this size.
    pub fn gso(&self, segment_size: u16) -> Offload {
        assert!(self.is_tcp, "only TCP is cut");
        let gso_type = if self.is_ipv6 { Offload::GSO_TCP6 } else { Offload::GSO_TCP4 };
        Offload { gso_type, segment_size, header_length: self.payload as u16, ..self.checksum() }
    }
}

/// A frame of about this length: at least its headers, at most the maximum of 16-bit lengths.
pub fn frame(random: &mut Random, length: usize, is_tcp: bool, is_ipv6: bool) -> Frame {
    let mut link = random.bytes(12);
    for _ in 0..random.of(&[0, 0, 0, 1, 2]) {
        link.extend(random.of(&[[0x81, 0], [0x88, 0xa8]]));
        link.extend(random.bytes(2));
    }
    link.extend(if is_ipv6 { [0x86, 0xdd] } else { [0x08, 0] });
    let words = if is_tcp { random.of(&[0, 0, 3, 10]) } else { 0 };
    let mut upper = random.bytes(if is_tcp { 20 + 4 * words } else { 8 });
    if is_tcp {
        upper[12] = (5 + words as u8) << 4;
    }
    let protocol = if is_tcp { 6 } else { 17 };
    let mut ip = if is_ipv6 { ipv6(random, protocol) } else { ipv4(random, protocol) };
    let (start, payload) = (link.len() + ip.len(), link.len() + ip.len() + upper.len());
    let uncounted = link.len() + if is_ipv6 { 40 } else { 0 };
    let length = length.clamp(payload, uncounted + 65_535);
    let counted = ((length - uncounted) as u16).to_be_bytes();
    let at = if is_ipv6 { 4 } else { 2 };
    ip[at..at + 2].copy_from_slice(&counted);
    if !is_tcp {
        upper[4..6].copy_from_slice(&((length - start) as u16).to_be_bytes());
    }
    let bytes = [link, ip, upper, random.bytes(length - payload)].concat();
    Frame { bytes, start, payload, is_tcp, is_ipv6 }
}

fn ipv4(random: &mut Random, protocol: u8) -> Vec<u8> {
    let words = random.of(&[0, 0, 0, 2, 10]);
    let mut header = random.bytes(20 + 4 * words);
    header[0] = 0x45 + words as u8;
    header[6] &= 0x40;
    header[7] = 0;
    header[9] = protocol;
    header
}

fn ipv6(random: &mut Random, protocol: u8) -> Vec<u8> {
    let mut header = random.bytes(40);
    header[0] = 0x60;
    header[6] = protocol;
    if random.one_in(3) {
        let kind = random.of(&[0, 60]);
        header[6] = kind;
        let mut extension = random.bytes(16);
        (extension[0], extension[1]) = (protocol, 1);
        header.extend(extension);
    }
    header
}

/// The claims that follow from the bytes alone.
struct Found {
    start: usize,
    end: usize,
    is_tcp: bool,
    is_ipv6: bool,
    /// Whether segments with right checksums can be made: no routing header hides the destination.
    can_be_cut: bool,
}

/// Finds the TCP or UDP header of a frame.
fn find(bytes: &[u8]) -> Option<Found> {
    let byte = |at: usize| bytes.get(at).map(|byte| usize::from(*byte));
    let word = |at: usize| Some(byte(at)? << 8 | byte(at + 1)?);
    let (mut at, mut tags) = (12, 0);
    while matches!(word(at)?, 0x8100 | 0x88a8) {
        (at, tags) = (at + 4, tags + 1);
    }
    if tags > 8 {
        return None;
    }
    let (ether_type, mut at) = (word(at)?, at + 2);
    let (mut protocol, end, mut can_be_cut);
    match ether_type {
        0x0800 => {
            let first = byte(at)?;
            let (header, length) = ((first & 15) * 4, word(at + 2)?);
            if first >> 4 != 4 || header < 20 || length < header || word(at + 6)? & 0x3fff != 0 {
                return None;
            }
            (protocol, end, can_be_cut) = (byte(at + 9)?, at + length, true);
            byte(at + 19)?;
            at += header;
        }
        0x86dd => {
            if byte(at)? >> 4 != 6 {
                return None;
            }
            (protocol, end, can_be_cut) = (byte(at + 6)?, at + 40 + word(at + 4)?, true);
            byte(at + 39)?;
            at += 40;
            for extension in 0.. {
                let length = match protocol {
                    0 | 43 | 60 if extension < 16 => 8 + 8 * byte(at + 1)?,
                    44 | 51 => return None,
                    0 | 43 | 60 => return None,
                    _ => break,
                };
                if at + length > end {
                    return None;
                }
                // In transit, to an address that is last in a list, or first in a segment routing header.
                if protocol == 43 && byte(at + 3)? > 0 {
                    let known = matches!(byte(at + 2)?, 0 | 2 | 4);
                    can_be_cut = known && length >= 24;
                }
                protocol = byte(at)?;
                at += length;
            }
        }
        _ => return None,
    }
    if end > bytes.len() || at > end {
        return None;
    }
    let is_tcp = protocol == 6;
    let end = match protocol {
        6 if end - at >= 20 && (20..=end - at).contains(&((byte(at + 12)? >> 4) * 4)) => end,
        17 if end - at >= 8 && (8..=end - at).contains(&word(at + 4)?) => at + word(at + 4)?,
        _ => return None,
    };
    Some(Found { start: at, end, is_tcp, is_ipv6: ether_type == 0x86dd, can_be_cut })
}

/// The true offload of the packet, if these fields, without the hints, are true.
pub fn truth(bytes: &[u8], claim: Offload) -> Option<Offload> {
    let found = find(bytes)?;
    let offset = if found.is_tcp { 16 } else { 6 };
    let at_the_header = claim.checksum_start as usize == found.start && claim.checksum_offset == offset;
    if claim.flags & 1 == 0 || !at_the_header || found.end != bytes.len() {
        return None;
    }
    let plain = Offload { flags: 1, header_length: 0, segment_size: 0, ..claim };
    if claim.gso_type == 0 {
        return Some(plain);
    }
    let header = if found.is_tcp { usize::from(bytes[found.start + 12] >> 4) * 4 } else { return None };
    let (size, all_headers) = (usize::from(claim.segment_size), found.start + header);
    let payload = bytes.len() - all_headers;
    let kind = if found.is_ipv6 { Offload::GSO_TCP6 } else { Offload::GSO_TCP4 };
    let is_sound = claim.gso_type & !0x80 == kind && found.can_be_cut && all_headers <= 256;
    let is_reasonable = size > 0 && size + header - 20 >= 48 && payload <= 1024 * size;
    let whole = Offload { header_length: all_headers as u16, segment_size: claim.segment_size, ..plain };
    (is_sound && is_reasonable).then_some(whole)
}

/// The frame with its checksum finished at the place of the claim; `None` if that is not in the frame.
pub fn finished(bytes: &[u8], claim: Offload) -> Option<Vec<u8>> {
    let (start, offset) = (usize::from(claim.checksum_start), usize::from(claim.checksum_offset));
    let covered = match find(bytes) {
        Some(found) if (found.start, if found.is_tcp { 16 } else { 6 }) == (start, offset) => found.end,
        _ => bytes.len(),
    };
    if offset % 2 == 1 || start + offset + 2 > covered {
        return None;
    }
    let sum = bytes[start..covered]
        .chunks(2)
        .fold(0_u64, |sum, pair| sum + (u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or_default())));
    let folded = (0..4).fold(sum, |sum, _| (sum & 0xffff) + (sum >> 16));
    let checksum = match !(folded as u16) {
        0 => 0xffff,
        checksum => checksum,
    };
    let mut bytes = bytes.to_vec();
    bytes[start + offset..][..2].copy_from_slice(&checksum.to_be_bytes());
    Some(bytes)
}
