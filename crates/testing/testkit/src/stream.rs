//! A TCP stream for tests: cut into frames, and reassembled with all headers and checksums verified.

use crate::frames::Frames;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const TCP: usize = 20;

const SOURCE: [u8; 4] = [192, 0, 2, 1];
const DESTINATION: [u8; 4] = [198, 51, 100, 2];

/// Frames of a stream, each with this many bytes of it, and without the TCP checksum.
pub fn cut(stream: &[u8], length: usize) -> Frames {
    let frame = |(number, payload): (usize, &[u8])| {
        let sequence = (number * length) as u32;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0]);
        frame.extend(((IPV4 + TCP + payload.len()) as u16).to_be_bytes());
        frame.extend([0, number as u8, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(SOURCE.iter().chain(&DESTINATION));
        let header = sum(&frame[ETHERNET..]);
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&(!header).to_be_bytes());
        frame.extend([0x12, 0x34, 0x56, 0x78]);
        frame.extend(sequence.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    };
    stream.chunks(length).enumerate().map(frame).collect()
}

/// The stream in these frames, each of which must be complete and correct, and the largest payload.
pub fn join(frames: &Frames) -> (Vec<u8>, usize) {
    let mut parts: Vec<(u32, &[u8])> = frames.iter().map(|frame| payload_of(frame)).collect();
    parts.sort();
    let mut stream = Vec::new();
    for (sequence, payload) in &parts {
        assert_eq!(*sequence as usize, stream.len(), "the stream has a gap, or a part comes twice");
        stream.extend(*payload);
    }
    (stream, parts.iter().map(|(_, payload)| payload.len()).max().unwrap_or(0))
}

fn payload_of(frame: &[u8]) -> (u32, &[u8]) {
    let ip = &frame[ETHERNET..];
    assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len(), "the length in the IPv4 header");
    assert_eq!(sum(&ip[..IPV4]), 0xffff, "the checksum of the IPv4 header");
    let tcp = &ip[IPV4..];
    let pseudo = [&SOURCE[..], &DESTINATION, &[0, 6], &(tcp.len() as u16).to_be_bytes(), tcp].concat();
    assert_eq!(sum(&pseudo), 0xffff, "the checksum of TCP");
    (u32::from_be_bytes(tcp[4..8].try_into().unwrap()), &tcp[TCP..])
}

/// The ones' complement sum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
