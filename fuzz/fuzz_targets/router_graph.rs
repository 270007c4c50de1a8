//! Arbitrary frames into whole routers, one after the other: what leaves them is what the RFCs and their keys allow, and
//! their books balance.
//!
//! An input is a capture, or a list of frames: where each one goes and how it is changed, its length, and its bytes.

#![no_main]

use std::io::Cursor;

use bellows_capture::Reader;
use bellows_exercise::router::{ALL_KEYS, PLAIN, PORTS, Router, seal};
use libfuzzer_sys::fuzz_target;

/// Frames of an input: more take long, and teach little.
const MAX_FRAMES: usize = 32;

/// A frame, and what is done to it.
struct Sent {
    port: usize,
    /// Whether it is for the router. Most frames for others end at the first check.
    is_addressed: bool,
    is_sealed: bool,
    frame: Vec<u8>,
}

/// The frames of a capture.
fn captured(input: &[u8]) -> Option<Vec<Sent>> {
    let mut reader = Reader::new(Cursor::new(input.to_vec()), "input").ok()?;
    let mut frames = Vec::new();
    while let (Ok(Some(record)), true) = (reader.next_record(), frames.len() < MAX_FRAMES) {
        let (port, frame) = (frames.len() % PORTS.len(), record.data.to_vec());
        let is_to_many = frame.first().is_some_and(|first| first & 1 == 1);
        frames.push(Sent { port, is_addressed: !is_to_many, is_sealed: true, frame });
    }
    Some(frames)
}

/// The frames of a list.
fn listed(mut input: &[u8]) -> Vec<Sent> {
    let mut frames = Vec::new();
    while let ([flags, high, low, rest @ ..], true) = (input, frames.len() < MAX_FRAMES) {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (frame, others) = rest.split_at(length);
        let [port, is_addressed, is_sealed] = [0, 1, 2].map(|bit| flags >> bit & 1);
        frames.push(Sent {
            port: port.into(),
            is_addressed: is_addressed == 1,
            is_sealed: is_sealed == 1,
            frame: frame.to_vec(),
        });
        input = others;
    }
    frames
}

fuzz_target!(|input: &[u8]| {
    let network = if input.last().is_some_and(|last| last & 1 == 1) { &ALL_KEYS } else { &PLAIN };
    let mut router = Router::of(network);
    for Sent { port, is_addressed, is_sealed, mut frame } in captured(input).unwrap_or_else(|| listed(input)) {
        if is_addressed {
            network.address(port, &mut frame);
        }
        if is_sealed {
            seal(&mut frame);
        }
        router.check(port, &frame);
    }
});
