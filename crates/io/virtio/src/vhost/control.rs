//! The common part of the control threads of both sides: confinement, shutdown, and the rate of connections.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bellows_ipc::confine::{Denials, control_thread};
use bellows_ipc::{mapping, socket};
use tracing::error;

use super::endpoint::FIRST_PAUSE;

/// Whether a control thread is limited to the system calls that the protocol needs.
#[derive(Clone, Debug, Default)]
pub enum Confinement {
    /// It has not started yet.
    #[default]
    Starting,
    /// It is confined; the denied calls are counted here.
    Confined(Arc<Denials>),
    /// It is not, for this reason.
    Not(String),
}

impl Confinement {
    /// Confines this thread, if `wanted`.
    pub(super) fn begin(wanted: bool) -> Confinement {
        if !wanted {
            return Confinement::Not("the key `confine` is false".to_owned());
        }
        control_thread().map_or_else(Confinement::Not, Confinement::Confined)
    }

    /// The number of denials of each call, by name.
    pub fn denied(&self) -> BTreeMap<String, u64> {
        if let Confinement::Confined(denials) = self { denials.by_name() } else { BTreeMap::new() }
    }

    /// The log line, if more was denied than `told`; and the number of denials.
    pub(super) fn news(&self, told: u64) -> Option<(String, u64)> {
        let Confinement::Confined(denials) = self else { return None };
        let total = denials.total();
        if total == told {
            return None;
        }
        let calls: Vec<String> = denials.by_name().iter().map(|(call, times)| format!("{call} {times}")).collect();
        Some((
            format!("system calls denied to the control thread, which does not need them: {}", calls.join(", ")),
            total,
        ))
    }
}

/// Prepares what a control thread needs and cannot get once it is confined.
///
/// # Errors
/// If the handler for truncated mappings cannot be installed.
pub(super) fn prepare() -> io::Result<()> {
    mapping::prepare()?;
    // Without /proc, the first descriptor of an event is refused with the reason.
    let _ = socket::prepare();
    Ok(())
}

/// Logs that a thread was abandoned.
pub(super) fn abandoned(socket: &Path) {
    error!(
        "{}: the control thread hangs in a system call and is abandoned: something that the peer has sent, a \
         descriptor or memory, blocks it; it ends with the process",
        socket.display()
    );
}

/// The delay before the next connection: connections that end at once come again at once.
#[derive(Debug)]
pub(super) struct ReconnectPace {
    pause: Duration,
    longest: Duration,
}

/// A connection that has lasted this long was a session, not an attempt.
const SESSION: Duration = Duration::from_secs(1);

impl ReconnectPace {
    pub(super) fn new(longest: Duration) -> ReconnectPace {
        ReconnectPace { pause: Duration::ZERO, longest }
    }

    /// The delay after a connection that has lasted for `lasted`.
    pub(super) fn after(&mut self, lasted: Duration) -> Duration {
        self.pause = match lasted < SESSION {
            true => (2 * self.pause).max(FIRST_PAUSE).min(self.longest),
            false => Duration::ZERO,
        };
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_connections_are_taken_ever_more_slowly_and_long_ones_at_once() {
        let mut pace = ReconnectPace::new(Duration::from_secs(1));
        let mut milliseconds = |lasted: u64| pace.after(Duration::from_millis(lasted)).as_millis();
        let pauses: Vec<u128> = (0..8).map(|_| milliseconds(5)).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!((milliseconds(1000), milliseconds(999)), (0, 20));
    }
}
