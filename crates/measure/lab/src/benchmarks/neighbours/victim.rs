//! A guest that follows the virtio specification.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use bellows_packet::{Packet, Vector};
use bellows_virtio::Features;
use bellows_virtio::driver::{Driver, DriverLayout};
use bellows_virtio::vhost::{Borrowed, Frontend, FrontendConfig, Mode, PeerPolicy};
use serde::{Deserialize, Serialize};

use super::clock::ClockShared;
use crate::workers::fail;

/// The places in a packet of its number, and of the breath in which it passed.
const NUMBER: Range<usize> = 14..22;
pub(super) const STAMP: Range<usize> = 22..30;

/// The maximum number of packets in flight: an engine's burst, and half of the guest's receive ring.
const MAX_IN_FLIGHT: usize = 128;

/// Packets that have not come back after this time count as lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(5);

/// The packets that a guest sends: their lengths in turn, and the fill byte by which the guest recognizes its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    lengths: &'static [usize],
    filler: u8,
}

/// The traffic of the watched guest: packets of different lengths.
pub(super) const MIXED: Traffic = Traffic { lengths: &[60, 60, 590, 1_514], filler: 0xa5 };
/// The traffic of the other honest guest: full Ethernet frames, as in a file transfer.
pub(super) const BULK: Traffic = Traffic { lengths: &[1_514], filler: 0x5a };

/// The packet counts of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GuestCounts {
    pub(super) sent: u64,
    /// Packets that did not come back.
    pub(super) lost: u64,
    /// Packets that came back altered, or more than once.
    pub(super) altered: u64,
    /// The maximum number of breaths from making a packet available to its passing.
    pub(super) longest_wait: u64,
}

impl GuestCounts {
    pub(super) fn plus(self, other: &GuestCounts) -> GuestCounts {
        GuestCounts {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            altered: self.altered + other.altered,
            longest_wait: self.longest_wait.max(other.longest_wait),
        }
    }
}

/// The driver of a device that returns its packets. It sends one batch at a time, and the next when all have come back.
pub(super) struct HonestGuest {
    _frontend: Frontend,
    port: Borrowed<Driver>,
    packets: Vec<Packet>,
    received: Vector,
    traffic: Traffic,
    /// The number of the first packet in flight, the count in flight, and the size of the batch.
    next: u64,
    in_flight: usize,
    batch: usize,
    /// The breath and the time in which the batch was made available.
    available: u64,
    sent: Instant,
    counts: GuestCounts,
}

impl HonestGuest {
    /// Starts a guest that connects to a socket.
    pub(super) fn connect(socket: &Path, traffic: Traffic) -> HonestGuest {
        let config = FrontendConfig {
            app: String::new(),
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
        HonestGuest {
            _frontend: frontend,
            port,
            packets: (0..MAX_IN_FLIGHT).map(packet).collect(),
            received: Vector::new(),
            traffic,
            next: 0,
            in_flight: 0,
            batch: 0,
            available: 0,
            sent: Instant::now(),
            counts: GuestCounts::default(),
        }
    }

    /// Whether the device is connected.
    pub(super) fn is_served(&mut self) -> bool {
        self.port.sync();
        self.port.get().is_some()
    }

    /// Takes the packet counts since the last call.
    pub(super) fn take_counts(&mut self) -> GuestCounts {
        std::mem::take(&mut self.counts)
    }

    /// Receives packets; if none is in flight, sends the next batch.
    pub(super) fn turn(&mut self, shared: &ClockShared) {
        self.take();
        if self.in_flight == 0 {
            self.send(shared);
        }
    }

    /// Waits until the packets in flight have come back or are lost.
    pub(super) fn settle(&mut self) {
        while self.in_flight > 0 {
            self.take();
        }
    }

    fn take(&mut self) {
        // Read the clock before receiving, because this thread may be interrupted at any time.
        let looked = Instant::now();
        self.port.sync();
        let Some(driver) = self.port.get() else {
            self.count_lost();
            return;
        };
        if let Err(error) = driver.pairs[0].receive.receive(&mut self.received, usize::MAX) {
            fail(&format!("the device of an honest guest violates the specification: {error}"));
        }
        let Traffic { lengths, filler } = self.traffic;
        for packet in self.received.drain(usize::MAX) {
            let bytes = packet.bytes();
            if bytes[0] != filler {
                continue;
            }
            let length = lengths[(self.batch - self.in_flight) % lengths.len()];
            let number = |range: Range<usize>| Some(u64::from_le_bytes(bytes.get(range)?.try_into().ok()?));
            let (Some(numbered), Some(stamp)) = (number(NUMBER), number(STAMP)) else {
                self.counts.altered += 1;
                continue;
            };
            let untouched = bytes[..NUMBER.start].iter().chain(&bytes[STAMP.end..]).all(|&byte| byte == filler);
            if self.in_flight == 0 || numbered != self.next || bytes.len() != length || !untouched {
                self.counts.altered += 1;
                continue;
            }
            self.counts.longest_wait = self.counts.longest_wait.max(stamp.saturating_sub(self.available));
            self.next += 1;
            self.in_flight -= 1;
        }
        if self.in_flight > 0 && looked.duration_since(self.sent) > LOSS_TIMEOUT {
            self.count_lost();
        }
    }

    /// Counts the packets in flight as lost.
    fn count_lost(&mut self) {
        self.counts.lost += self.in_flight as u64;
        self.next += self.in_flight as u64;
        self.in_flight = 0;
    }

    fn send(&mut self, shared: &ClockShared) {
        let Some(driver) = self.port.get() else { return };
        for (number, packet) in (self.next..).zip(&mut self.packets) {
            packet.bytes_mut()[NUMBER].copy_from_slice(&number.to_le_bytes());
        }
        match driver.pairs[0].transmit.transmit(&self.packets) {
            Ok(taken) => {
                // The packets became available a few clocks ago.
                self.available = shared.breath();
                self.sent = Instant::now();
                (self.in_flight, self.batch) = (taken.count, taken.count);
                self.counts.sent += taken.count as u64;
            }
            Err(error) => fail(&format!("the device of an honest guest violates the specification: {error}")),
        }
    }
}
