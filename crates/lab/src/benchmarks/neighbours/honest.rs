//! A guest that keeps to the rules.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use bellows_packet::{Packet, Vector};
use bellows_virtio::Features;
use bellows_virtio::driver::{Driver, DriverLayout};
use bellows_virtio::vhost::{DriverPort, Frontend, FrontendConfig, Mode, PeerPolicy};
use serde::{Deserialize, Serialize};

use super::clock::Shared;
use crate::workers::fail;

/// Where in a packet its number lies, and the breath in which it passed.
const NUMBER: Range<usize> = 14..22;
pub(super) const STAMP: Range<usize> = 22..30;

/// Packets that are under way at most: an engine's burst, and half of what its receive ring has room for.
const UNDER_WAY: usize = 128;

/// Packets that have not come back after this time are lost.
const LOST: Duration = Duration::from_secs(5);

/// Which packets a guest sends: their lengths, one after the other, and what they are filled with, by which it knows its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    lengths: &'static [usize],
    filler: u8,
}

/// What the honest guest sends that is watched: packets of all lengths.
pub(super) const MIXED: Traffic = Traffic { lengths: &[60, 60, 590, 1_514], filler: 0xa5 };
/// What the other honest one sends: as much as fits into an Ethernet frame, as who sends a file does.
pub(super) const BULK: Traffic = Traffic { lengths: &[1_514], filler: 0x5a };

/// What a guest has noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) sent: u64,
    /// Packets that did not come back.
    pub(super) lost: u64,
    /// Packets that came back as others, or more than once.
    pub(super) altered: u64,
    /// The most breaths from the one in which a packet was made available to the one in which it passed.
    pub(super) longest_wait: u64,
}

impl Tally {
    pub(super) fn plus(self, other: &Tally) -> Tally {
        Tally {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            altered: self.altered + other.altered,
            longest_wait: self.longest_wait.max(other.longest_wait),
        }
    }
}

/// The driver of a device that sends back what it is sent: a batch at a time, and the next when all of it is there.
pub(super) struct Honest {
    _frontend: Frontend,
    port: DriverPort<Driver>,
    packets: Vec<Packet>,
    received: Vector,
    traffic: Traffic,
    /// The number of the first packet that is under way, how many are, and how many were sent together.
    next: u64,
    under_way: usize,
    batch: usize,
    /// The breath in which they were made available, and when that was.
    available: u64,
    sent: Instant,
    tally: Tally,
}

impl Honest {
    /// One that connects to a socket until it is served.
    pub(super) fn connect(socket: &Path, traffic: Traffic) -> Honest {
        let config = FrontendConfig {
            socket: socket.to_owned(),
            mode: Mode::Client,
            pairs: 1,
            features: Features::DEVICE.without(Features::LOG_ALL | Features::MQ | Features::RING_PACKED),
            ring_size: 256,
            mac: None,
            policy: PeerPolicy::default(),
        };
        let started = DriverLayout::new(1).and_then(|layout| Frontend::start(config, layout));
        let (frontend, port) = started.unwrap_or_else(|error| fail(&format!("an honest guest: {error}")));
        frontend.begin();
        let packet = |index: usize| {
            let packet = Packet::from_bytes(&vec![traffic.filler; traffic.lengths[index % traffic.lengths.len()]]);
            packet.unwrap_or_else(|| fail(&"no packet for an honest guest"))
        };
        Honest {
            _frontend: frontend,
            port,
            packets: (0..UNDER_WAY).map(packet).collect(),
            received: Vector::new(),
            traffic,
            next: 0,
            under_way: 0,
            batch: 0,
            available: 0,
            sent: Instant::now(),
            tally: Tally::default(),
        }
    }

    /// Whether there is a device.
    pub(super) fn is_served(&mut self) -> bool {
        self.port.sync();
        self.port.driver().is_some()
    }

    /// What was noticed since this was last asked.
    pub(super) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Takes what has come; if nothing is under way, sends the next packets.
    pub(super) fn turn(&mut self, shared: &Shared) {
        self.take();
        if self.under_way == 0 {
            self.send(shared);
        }
    }

    /// Waits until what is under way has come, or is lost.
    pub(super) fn settle(&mut self) {
        while self.under_way > 0 {
            self.take();
        }
    }

    fn take(&mut self) {
        // Before what has come is looked at: this thread may be interrupted at any time.
        let looked = Instant::now();
        self.port.sync();
        let Some(driver) = self.port.driver() else {
            self.give_up();
            return;
        };
        if let Err(error) = driver.pairs[0].receive.receive(&mut self.received, usize::MAX) {
            fail(&format!("the device of an honest guest breaks the rules: {error}"));
        }
        let Traffic { lengths, filler } = self.traffic;
        for packet in self.received.drain(usize::MAX) {
            let bytes = packet.bytes();
            if bytes[0] != filler {
                continue;
            }
            let length = lengths[(self.batch - self.under_way) % lengths.len()];
            let number = |range: Range<usize>| Some(u64::from_le_bytes(bytes.get(range)?.try_into().ok()?));
            let (Some(numbered), Some(stamp)) = (number(NUMBER), number(STAMP)) else {
                self.tally.altered += 1;
                continue;
            };
            let untouched = bytes[..NUMBER.start].iter().chain(&bytes[STAMP.end..]).all(|&byte| byte == filler);
            if self.under_way == 0 || numbered != self.next || bytes.len() != length || !untouched {
                self.tally.altered += 1;
                continue;
            }
            self.tally.longest_wait = self.tally.longest_wait.max(stamp.saturating_sub(self.available));
            self.next += 1;
            self.under_way -= 1;
        }
        if self.under_way > 0 && looked.duration_since(self.sent) > LOST {
            self.give_up();
        }
    }

    /// What is under way is lost.
    fn give_up(&mut self) {
        self.tally.lost += self.under_way as u64;
        self.next += self.under_way as u64;
        self.under_way = 0;
    }

    fn send(&mut self, shared: &Shared) {
        let Some(driver) = self.port.driver() else { return };
        for (number, packet) in (self.next..).zip(&mut self.packets) {
            packet.bytes_mut()[NUMBER].copy_from_slice(&number.to_le_bytes());
        }
        match driver.pairs[0].transmit.transmit(&self.packets) {
            Ok(taken) => {
                // They have been available since a few clocks ago.
                self.available = shared.breath();
                self.sent = Instant::now();
                (self.under_way, self.batch) = (taken.count, taken.count);
                self.tally.sent += taken.count as u64;
            }
            Err(error) => fail(&format!("the device of an honest guest breaks the rules: {error}")),
        }
    }
}
