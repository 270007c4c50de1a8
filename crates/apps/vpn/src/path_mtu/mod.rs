//! The MTU of the path to another end of tunnels (RFC 1191, RFC 8201), which routers on the way report by ICMP errors.
//!
//! | file | contents |
//! |---|---|
//! | `teller.rs` | the errors to senders of packets that are too long for a tunnel |
//!
//! Each app with sessions learns by itself: only it knows the numbers, cookies and keys that a quoted packet must have,
//! so that strangers cannot make a path narrow. `dispatch` hands it the errors about its packets.

mod teller;
#[cfg(test)]
pub(crate) mod tests;

use bellows_config::SettingError;
use bellows_wire::IpPair;

pub(crate) use teller::Teller;

use bellows_common::too_big::TooBig;

/// How long a path stays narrow before a longer packet is tried again (RFC 1191, section 6.3), in nanoseconds.
const AGE: u64 = 600 * 1_000_000_000;

/// The minimum MTU of IPv4 (RFC 1191, section 3) and of IPv6 (RFC 8200, section 5).
const MIN_V4: u16 = 68;
const MIN_V6: u16 = 1_280;

/// The MTUs of old links, for routers that do not report that of theirs (RFC 1191, section 7).
const PLATEAUS: [u16; 11] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];

/// The greatest MTU: the packet's length has 16 bits.
pub(crate) const fn no_limit() -> u16 {
    u16::MAX
}

/// The least MTU that routers of IPv4 are believed, if the keys of an app do not set one. Every station takes packets
/// of 576 bytes (RFC 791, section 3.1).
pub(crate) const fn min_path_mtu() -> u16 {
    576
}

/// The keys of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The MTU of paths of which nothing was learned.
    pub(crate) mtu: u16,
    /// The least MTU that is learned for IPv4.
    pub(crate) min_path_mtu: u16,
}

impl Bounds {
    /// Checks the keys of an app with sessions over IPv6 or not.
    ///
    /// # Errors
    /// If a value is out of its range.
    pub(crate) fn check(self, has_v6: bool) -> Result<(), SettingError> {
        let least = if has_v6 { MIN_V6 } else { MIN_V4 };
        if self.mtu < least {
            let message = format!("an `mtu` of {} is too small", self.mtu);
            return Err(SettingError::at("mtu", message, format!("give a number from {least} to 65535")));
        }
        if self.min_path_mtu < MIN_V4 {
            let message = format!("every link takes packets of {MIN_V4} bytes");
            return Err(SettingError::at("min_path_mtu", message, format!("give a number from {MIN_V4} to 65535")));
        }
        Ok(())
    }
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathMtu {
    is_v6: bool,
    /// The MTU of which nothing was learned, and the least one.
    configured: u16,
    least: u16,
    /// What was learned, and until when it holds.
    learned: Option<(u16, u64)>,
}

impl PathMtu {
    /// A path of which nothing was learned.
    pub(crate) fn new(addresses: IpPair, bounds: Bounds) -> PathMtu {
        let is_v6 = matches!(addresses, IpPair::V6 { .. });
        let least = if is_v6 { MIN_V6 } else { bounds.min_path_mtu };
        PathMtu { is_v6, configured: bounds.mtu, least: least.min(bounds.mtu), learned: None }
    }

    /// The longest packet.
    pub(crate) fn mtu(&self) -> u16 {
        self.learned.map_or(self.configured, |(mtu, _)| mtu)
    }

    /// When what was learned is forgotten.
    pub(crate) fn expires(&self) -> Option<u64> {
        self.learned.map(|(_, until)| until)
    }

    /// Learns from an error about a packet of this path. Returns whether it can be true.
    pub(crate) fn learn(&mut self, error: &TooBig<'_>, now: u64) -> bool {
        let Some(told) = self.told(error) else { return false };
        let mtu = told.max(self.least);
        if mtu < self.mtu() {
            self.learned = Some((mtu, now + AGE));
        }
        true
    }

    /// The MTU that an error reports, or `None` if there can be no such link.
    fn told(&self, error: &TooBig<'_>) -> Option<u16> {
        let told = match error.mtu {
            0 if !self.is_v6 => PLATEAUS.into_iter().find(|&plateau| usize::from(plateau) < error.length)?,
            told => u16::try_from(told).ok()?,
        };
        let least = if self.is_v6 { MIN_V6 } else { MIN_V4 };
        // RFC 8201, section 4: less is no MTU of IPv6. A packet that fits was not too long.
        (told >= least && usize::from(told) < error.length).then_some(told)
    }

    /// Forgets what is too old. Returns whether that changes the MTU.
    pub(crate) fn forget_old(&mut self, now: u64) -> bool {
        self.learned.take_if(|(_, until)| *until <= now).is_some()
    }

    /// Takes over what a predecessor with these addresses has learned.
    pub(crate) fn take_over(&mut self, old: &PathMtu) {
        self.learned = old.learned.filter(|(mtu, _)| (self.least..self.configured).contains(mtu));
    }
}

/// What becomes of an IP packet that is too long for the tunnel that would carry it as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExceedingAction {
    /// It is dropped, and its sender told this MTU.
    Tell(u16),
    /// It becomes fragments of this MTU, each of which is carried.
    FragmentInside(u16),
    /// It is carried, and the packet around it becomes fragments.
    FragmentOutside,
}

impl ExceedingAction {
    /// For a packet with a whole header, if the tunnel has room for `room` bytes, by RFC 2473, section 7, and RFC 4459,
    /// section 3: also over IPv4.
    pub(crate) fn of(ip: &[u8], room: u16) -> ExceedingAction {
        let is_v6 = ip.first().is_some_and(|first| first >> 4 == 6);
        let told = room.max(if is_v6 { MIN_V6 } else { MIN_V4 });
        let half = |at: usize| ip.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |it| u16::from_be_bytes(*it));
        let length = if is_v6 { 40 + usize::from(half(4)) } else { usize::from(half(2)) };
        let must_be_whole = is_v6 || half(6) & 0x4000 != 0;
        // Its sender cannot make it shorter.
        match length <= usize::from(told) {
            true => ExceedingAction::FragmentOutside,
            false if must_be_whole => ExceedingAction::Tell(told),
            false => ExceedingAction::FragmentInside(told),
        }
    }
}
