//! The state of one queue, as the driver's process has set it.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use bellows_ipc::notify::Notifier;
use bellows_sys::wake::PeerEvent;

use crate::inflight::{Inflight, InflightRegion, RingAccess};
use crate::ring::{Areas, Direction, Position, Setup, SetupError};
use crate::{Features, Memory};

use super::message::{VRING_LOG, VringAddresses};
use super::status::QueueState;

/// The reason why a queue has no ring.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// The driver's process asks for an impossible ring.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Without the kick, the ring would wait forever, or keep its driver waiting.
    #[error("cannot listen to the ring's kick: {0}; allow the process more open files (ulimit -n)")]
    Kick(io::Error),
}

/// Time until packets of a disabled queue are discarded. DPDK's driver enables a queue and uses it at once: its packets
/// may arrive before its message.
const DISCARD_AFTER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Queue {
    pub(super) size: u16,
    pub(super) addresses: Option<VringAddresses>,
    /// The position at which it continues, from SET_VRING_BASE.
    pub(super) base: u32,
    /// Set by SET_VRING_KICK: a descriptor, or the information that there is none.
    kick: Option<Option<File>>,
    /// The value of SET_VRING_ENABLE.
    enabled: Option<bool>,
    /// When it was last started, enabled or disabled.
    changed: Option<Instant>,
    /// The error that stopped it.
    pub(super) failed: Option<String>,
    /// Whether the engine has its ring, or it is on its way there or back.
    pub(super) running: bool,
}

impl Queue {
    /// Handles SET_VRING_KICK.
    pub(super) fn start(&mut self, kick: Option<File>) {
        self.kick = Some(kick);
        self.changed = Some(Instant::now());
        self.clear_error();
    }

    /// Handles GET_VRING_BASE.
    pub(super) fn stop(&mut self) {
        self.kick = None;
        self.clear_error();
    }

    /// Forgets an error: the driver's process has changed something, so the ring may work now.
    pub(super) fn clear_error(&mut self) {
        self.failed = None;
    }

    /// Whether it is enabled. Without protocol features queues cannot be enabled, so all are.
    pub(super) fn is_enabled(&self, features: Features) -> bool {
        self.enabled.unwrap_or(!features.has(Features::PROTOCOL_FEATURES))
    }

    /// Handles SET_VRING_ENABLE. Returns whether the value has changed.
    pub(super) fn enable(&mut self, enabled: bool) -> bool {
        self.changed = Some(Instant::now());
        self.enabled.replace(enabled) != Some(enabled)
    }

    /// Whether a ring can be created. A transmit queue that has been disabled for a while is served, too: its packets
    /// are discarded (vhost-user, "Ring states").
    pub(super) fn is_ready(&self, features: Features, direction: Direction) -> bool {
        let served = self.is_enabled(features)
            || direction == Direction::Transmit && self.discards_in().is_some_and(|wait| wait.is_zero());
        self.is_configured() && served && self.failed.is_none() && !self.running
    }

    fn is_configured(&self) -> bool {
        self.size > 0 && self.addresses.is_some() && self.kick.is_some()
    }

    /// Time until packets of the queue are discarded, if it is disabled and transmits.
    fn discards_in(&self) -> Option<Duration> {
        Some(DISCARD_AFTER.saturating_sub(self.changed?.elapsed()))
    }

    /// Time until packets are discarded, if they will be.
    pub(super) fn pulse(&self, features: Features, direction: Direction) -> Option<Duration> {
        let waits = direction == Direction::Transmit && self.is_configured() && !self.is_enabled(features);
        if waits && self.failed.is_none() && !self.running { self.discards_in() } else { None }
    }

    pub(super) fn state(&self, features: Features) -> QueueState {
        match (&self.failed, &self.kick) {
            (Some(error), _) => QueueState::Failed(error.clone()),
            (None, None) => QueueState::Stopped,
            (None, Some(_)) if !self.is_enabled(features) => QueueState::Disabled,
            (None, Some(_)) if self.running => QueueState::Running,
            (None, Some(_)) => QueueState::Stopped,
        }
    }

    /// The parts of the ring, and the record of its position.
    pub(super) fn setup(
        &self,
        memory: &Arc<Memory>,
        features: Features,
        inflight: Option<&Arc<InflightRegion>>,
        index: usize,
        call: Notifier,
    ) -> Result<(Setup, Option<Inflight>), Unusable> {
        let areas = self.areas(memory)?;
        let position = Position::from_base(features, self.base);
        let inflight = inflight.and_then(|region| Inflight::new(region, index, features, self.size));
        let ring = RingMemory { memory, areas };
        let position = match &inflight {
            Some(inflight) => inflight.resume(self.size, position, &ring),
            None => ring.trusted(position),
        };
        let setup = Setup {
            memory: Arc::clone(memory),
            features,
            size: self.size,
            areas,
            position,
            call: Some(call).filter(Notifier::is_set),
            kick: self.kick.as_ref().and_then(Option::as_ref).map(listen).transpose()?,
        };
        Ok((setup, inflight))
    }

    /// Address at which writes into the ring itself are logged, if they are: the used ring of a split ring, or all of a
    /// packed one.
    pub(super) fn logged(&self, setup: &Setup) -> Option<u64> {
        let packed = setup.features.has(Features::RING_PACKED);
        let written = if packed { setup.areas.descriptors } else { setup.areas.device };
        self.addresses.is_some_and(|addresses| addresses.flags & VRING_LOG != 0).then_some(written)
    }

    /// The guest addresses of the areas. The driver's process gives its own addresses.
    fn areas(&self, memory: &Memory) -> Result<Areas, SetupError> {
        let addresses = self.addresses.ok_or(SetupError::Outside { area: "descriptor", address: 0 })?;
        let find = |area, address| memory.guest_of_user(address).ok_or(SetupError::Outside { area, address });
        Ok(Areas {
            descriptors: find("descriptor", addresses.descriptors)?,
            driver: find("driver", addresses.available)?,
            device: find("device", addresses.used)?,
        })
    }

    /// Discards the record of the position: the queue has stopped in order.
    pub(super) fn forget_inflight(&self, region: Option<&Arc<InflightRegion>>, index: usize, features: Features) {
        if let Some(inflight) = region.and_then(|region| Inflight::new(region, index, features, self.size.max(1))) {
            inflight.forget();
        }
    }
}

fn listen(kick: &File) -> Result<PeerEvent, Unusable> {
    kick.try_clone().and_then(|kick| PeerEvent::new(kick.into())).map_err(Unusable::Kick)
}

/// The state in the ring itself before it runs.
struct RingMemory<'a> {
    memory: &'a Memory,
    areas: Areas,
}

impl RingMemory<'_> {
    fn half(&self, address: u64) -> Option<u16> {
        let host = self.memory.translate(address, 2).filter(|host| host.cast::<u16>().is_aligned())?;
        // SAFETY: two bytes are mapped there, aligned, as long as the memory is; other processes may change them.
        Some(unsafe { host.cast::<u16>().read_volatile() })
    }

    /// The actual position of a ring. A split ring continues at its used index, because nothing was in flight when its
    /// last device ended (DPDK's driver reports 0 to a device that has come back, whatever its ring contains).
    fn trusted(&self, position: Position) -> Position {
        match (position, self.used_index()) {
            (Position::Split { .. }, Some(used)) => Position::Split { avail: used, used },
            (position, _) => position,
        }
    }
}

impl RingAccess for RingMemory<'_> {
    fn used_index(&self) -> Option<u16> {
        self.half(self.areas.device.checked_add(2)?)
    }

    fn flags(&self, index: u16) -> Option<u16> {
        self.half(self.areas.descriptors.checked_add(16 * u64::from(index) + 14)?)
    }

    fn write_used(&self, index: u16, word: u64) {
        let at = self.areas.descriptors.checked_add(16 * u64::from(index) + 8);
        let host = at.and_then(|at| self.memory.translate(at, 8)).map(NonNull::cast::<u64>);
        if let Some(host) = host.filter(|host| host.is_aligned()) {
            // SAFETY: eight bytes are mapped there, aligned, as long as the memory is; other processes may change them.
            unsafe { AtomicU64::from_ptr(host.as_ptr()) }.store(word.to_le(), Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    use bellows_sys::wake::WakeEvent;

    use super::*;

    #[test]
    #[ignore = "leaves the process without descriptors; run by a_ring_whose_event_cannot_be_had_is_refused"]
    fn has_no_descriptor_left() {
        let event = File::from(WakeEvent::new().unwrap().as_fd().try_clone_to_owned().unwrap());
        let mut taken = Vec::new();
        let error = loop {
            match listen(&event) {
                Ok(kick) => taken.push(kick),
                Err(error) => break error,
            }
        };
        assert!(!taken.is_empty());
        let message = error.to_string();
        assert!(message.starts_with("cannot listen to the ring's kick: "), "{message}");
        assert!(message.ends_with("ulimit -n)"), "{message}");
    }

    #[test]
    fn a_ring_whose_event_cannot_be_had_is_refused() {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "vhost::queue::tests::has_no_descriptor_left", "--ignored"]);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
    }
}
