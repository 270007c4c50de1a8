//! Captures for tests: frames of random bytes, written to and read from pcap files.

use std::fs;
use std::path::Path;

/// Frames, each different from all others.
pub type Frames = Vec<Vec<u8>>;

/// `count` frames with random content. `lengths` gives the length of each in bytes, of at least 22.
pub fn random(count: usize, lengths: impl Fn(usize) -> usize, seed: u64) -> Frames {
    let mut random = Random(seed | 1);
    let frame = |number: usize| {
        let mut frame: Vec<u8> = (0..lengths(number)).map(|_| random.next() as u8).collect();
        // Locally administered addresses and an experimental EtherType, so that nothing else claims the frames. Many
        // addresses make many flows.
        frame[..8].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0]);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[14..22].copy_from_slice(&(number as u64).to_be_bytes());
        frame
    };
    (0..count).map(frame).collect()
}

/// xorshift64*, Vigna 2016.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}

/// Writes frames to a pcap file.
pub fn write(path: &Path, frames: &Frames) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1u32] {
        file.extend(word.to_le_bytes());
    }
    for (number, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        for word in [number as u32, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    fs::write(path, file).unwrap();
}

/// Reads the frames of a pcap file written on this machine.
pub fn read(path: &Path) -> Frames {
    let file = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let mut frames = Frames::new();
    let mut at = 24;
    while at + 16 <= file.len() {
        let (kept, length) = (word(at + 8), word(at + 12));
        assert_eq!(kept, length, "frame {} is not whole", frames.len());
        frames.push(file[at + 16..at + 16 + kept].to_vec());
        at += 16 + kept;
    }
    assert_eq!(at, file.len(), "{} ends within a frame", path.display());
    frames
}

/// Fails unless both lists are equal, and names the first difference.
pub fn assert_same(what: &str, found: &Frames, expected: &Frames) {
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        if found != expected {
            let same = found.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
            let lengths = (found.len(), expected.len());
            panic!("{what}: frame {number} differs from byte {same} on; it has {} bytes of {}", lengths.0, lengths.1);
        }
    }
    assert_eq!(found.len(), expected.len(), "{what}: so many frames came");
}

/// Whether a frame is one that [`random`] made.
pub fn is_ours(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x88, 0xb5])
}
