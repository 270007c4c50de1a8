//! Packets of the guest that somebody on the way keeps, changes and sends again.

use bellows_testkit::frames::{self, Frames};
use bellows_testkit::guest::PATIENCE;
use bellows_testkit::wait::within;

use super::peer::{Line, PAIRS};
use super::{Ends, drops, run_in_background, unanswered, wait_for_answers, wait_for_background};

/// The file of what the guest has sent, and of what comes in its place.
const HELD: &str = "held.pcap";
const FORGED: &str = "forged.pcap";

const ETHERNET: usize = 14;

/// Where ESP begins in a frame, if it has some and is no fragment.
fn esp_at(frame: &[u8]) -> Option<usize> {
    match (frame[12], frame[13], frame[ETHERNET + 6], frame[ETHERNET + 9]) {
        (8, 0, _, 50) => Some(ETHERNET + 20),
        (0x86, 0xdd, 50, _) => Some(ETHERNET + 40),
        // Linux puts options for the destination, of GRE over IPv6, in front of ESP.
        (0x86, 0xdd, 60, _) if frame[ETHERNET + 40] == 50 => Some(ETHERNET + 48),
        _ => None,
    }
}

/// A frame whose packet is shorter by some bytes.
fn shortened(frame: &[u8], bytes: u8) -> Vec<u8> {
    let mut frame = frame[..frame.len() - usize::from(bytes)].to_vec();
    let length_at = ETHERNET + if frame[ETHERNET] >> 4 == 6 { 4 } else { 2 };
    let subtract = |frame: &mut Vec<u8>, at: usize| {
        let length = u16::from_be_bytes([frame[at], frame[at + 1]]) - u16::from(bytes);
        frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
    };
    subtract(&mut frame, length_at);
    if length_at == ETHERNET + 2 {
        let sum = u16::from_be_bytes([frame[ETHERNET + 10], frame[ETHERNET + 11]]);
        let (sum, carry) = sum.overflowing_add(bytes.into());
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    }
    frame
}

/// A frame in which a bit is not what it was.
fn flipped(frame: &[u8], at: usize, bit: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at] ^= bit;
    frame
}

/// What somebody makes of a frame that has not been received, and the counter of each.
fn forged(frame: &[u8], esp: usize) -> [(Vec<u8>, &'static str); 7] {
    [
        (flipped(frame, esp, 0x40), "no_association"),
        (flipped(frame, esp + 4, 0x40), "bad_icv"),
        (flipped(frame, esp + 8, 1), "bad_icv"),
        (flipped(frame, esp + 16, 1), "bad_icv"),
        (flipped(frame, frame.len() - 1, 0x80), "bad_icv"),
        (shortened(frame, 4), "bad_icv"),
        (shortened(frame, 1), "malformed"),
    ]
}

/// Changed packets are refused, and those that they were made of are not; but these are when they come again.
pub(super) fn is_refused(ends: &mut Ends<'_>) {
    let before = unanswered(&mut ends.guest);
    ends.reload(Line::Held(HELD));
    for pair in &PAIRS {
        for [near, far] in pair.stations() {
            let (status, said) = ends.guest.try_run(&format!("ping -c 3 -i 0.1 -W 1 -s 200 -I {near} {far}"));
            assert_ne!(status, "0", "nothing passes: {said}");
        }
    }
    ends.reload(Line::Plain);
    let held: Frames = frames::read(&ends.sandbox.path(HELD));
    let held: Vec<(Vec<u8>, usize)> =
        held.into_iter().filter_map(|frame| esp_at(&frame).map(|at| (frame, at))).collect();
    assert!(held.len() >= 18, "{}", held.len());
    let (mut sent, mut expected) = (Frames::new(), drops(&ends.running));
    for (frame, counter) in held.iter().flat_map(|(frame, esp)| forged(frame, *esp)) {
        sent.push(frame);
        *expected.entry(counter.to_owned()).or_default() += 1;
    }
    for _ in 0..3 {
        sent.extend(held.iter().map(|(frame, _)| frame.clone()));
    }
    *expected.entry("replayed".to_owned()).or_default() += 2 * held.len() as u64;
    frames::write(&ends.sandbox.path(FORGED), &sent);
    let [near, far] = &PAIRS[0].stations()[0];
    run_in_background(&mut ends.guest, &format!("ping -q -i 0.02 -c 100 -W 100 -I {near} {far}"));
    ends.reload(Line::Injected(FORGED));
    within(PATIENCE, "all are counted", || drops(&ends.running).values().sum::<u64>() >= expected.values().sum());
    wait_for_background(&mut ends.guest);
    // Also those that were held.
    wait_for_answers(ends, before);
    assert_eq!(drops(&ends.running), expected);
    PAIRS.iter().for_each(|pair| ends.ping(pair));
    assert_eq!(drops(&ends.running), expected);
}

/// A line that doubles and reorders all packets is as good as any, and one that damages many is so later on.
pub(super) fn lines_do_no_harm(ends: &mut Ends<'_>) {
    let before = drops(&ends.running);
    let changed = |ends: &Ends<'_>, counter: &str| {
        let count = |drops: &std::collections::BTreeMap<String, u64>| drops.get(counter).copied().unwrap_or(0);
        count(&drops(&ends.running)) - count(&before)
    };
    let unanswered_before = unanswered(&mut ends.guest);
    ends.reload(Line::Impaired("duplicate = 1\nreorder = 0.2"));
    for [near, far] in PAIRS.iter().flat_map(|pair| pair.stations()) {
        ends.guest.run(&format!("ping -q -i 0.01 -c 20 -W 100 -I {near} {far}"));
    }
    wait_for_answers(ends, unanswered_before);
    within(PATIENCE, "replayed packets", || changed(ends, "replayed") >= 120);
    assert_eq!(["bad_icv", "too_old", "malformed", "no_association"].map(|name| changed(ends, name)), [0; 4]);
    ends.reload(Line::Impaired("corrupt = 0.5"));
    for [near, far] in PAIRS.iter().flat_map(|pair| pair.stations()) {
        ends.guest.try_run(&format!("ping -q -i 0.01 -c 20 -W 1 -s 1000 -I {near} {far}"));
    }
    assert!(changed(ends, "bad_icv") > 10, "{:?}", drops(&ends.running));
    ends.reload(Line::Plain);
    for pair in &PAIRS {
        // A neighbour may have to be asked once more.
        for [near, far] in pair.stations() {
            ends.guest.eventually(&format!("ping -c 1 -W 1 -I {near} {far}"));
        }
        ends.ping(pair);
    }
}
