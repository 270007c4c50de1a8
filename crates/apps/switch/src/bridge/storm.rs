//! Limits of the frames that go to all ports.

use bellows_common::limit::Limit;
use bellows_config::{Rate, SettingError};

use crate::mac_table::Key;

/// A kind of frames that go to all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    Broadcast,
    Multicast,
    /// To a station that is not known.
    Unknown,
}

/// The keys of the limits, by kinds.
const KEYS: [&str; 3] = ["storm_broadcast", "storm_multicast", "storm_unknown"];

/// Frames a second that a limit may have.
const RATES: std::ops::RangeInclusive<f64> = 1.0..=1e9;

/// The smallest burst that is not asked for.
const MIN_BURST: u32 = 16;

/// The part of a second whose frames may come at once.
const BURST: u32 = 10;

impl Flood {
    /// The kind of frames to a destination that is not known.
    pub(super) fn of(destination: Key) -> Flood {
        const BROADCAST: [u8; 6] = [0xff; 6];
        match destination.mac() {
            BROADCAST => Flood::Broadcast,
            [first, ..] if first & 1 == 1 => Flood::Multicast,
            _ => Flood::Unknown,
        }
    }
}

/// Whether a destination is one that bridges do not forward (IEEE 802.1Q, table 8-1).
pub(super) fn is_reserved(destination: Key) -> bool {
    matches!(destination.mac(), [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
}

/// The limits of a port, by kinds.
#[derive(Debug, Default)]
pub(super) struct Storm {
    limits: [Option<Limit>; 3],
    /// When each was last reported, in nanoseconds.
    told: [Option<u64>; 3],
}

/// The least time between two events of a limit.
const EVENT_INTERVAL: u64 = 600_000_000_000;

impl Storm {
    /// Limits with these rates, in the order of [`Flood`].
    ///
    /// # Errors
    /// If a rate is out of range.
    pub(super) fn new(rates: [Option<Rate>; 3], burst: Option<u32>) -> Result<Storm, SettingError> {
        let mut limits = [None; 3];
        for ((limit, rate), key) in limits.iter_mut().zip(rates).zip(KEYS) {
            let Some(rate) = rate else { continue };
            if !RATES.contains(&rate.per_second()) {
                let message = format!("a limit of {rate} packets/s is out of range");
                return Err(SettingError::at(key, message, "give 1 to 1G, or leave it out for no limit"));
            }
            let rate = rate.per_second() as u32;
            *limit = Some(Limit::new(rate, burst.unwrap_or((rate / BURST).max(MIN_BURST))));
        }
        Ok(Storm { limits, told: [None; 3] })
    }

    /// Whether a frame of this kind may pass. If so, it counts.
    pub(super) fn passes(&mut self, kind: Flood, now: u64) -> bool {
        let Some(limit) = &mut self.limits[kind as usize] else { return true };
        let admits = limit.admits(now);
        if admits {
            limit.pay(now);
        }
        admits
    }

    /// Reports that frames of a kind from a port were dropped, unless that was reported a short time ago.
    #[cold]
    pub(super) fn tell(&mut self, (bridge, port): (&str, &str), kind: Flood, now: u64) {
        let told = &mut self.told[kind as usize];
        if told.is_some_and(|then| now.wrapping_sub(then) < EVENT_INTERVAL) {
            return;
        }
        *told = Some(now);
        let limit = KEYS[kind as usize];
        bellows_events::Storm { app: bridge, port, limit }.log(format_args!(
            "a storm at the port `{port}` of `{bridge}`: frames above `{limit}` are dropped; is there a loop?"
        ));
    }
}
