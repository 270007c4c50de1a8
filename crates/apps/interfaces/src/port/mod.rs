//! The common part of the apps that connect a network to the outside: virtual machines, other processes, interfaces.
//!
//! | file | contents |
//! |---|---|
//! | `app.rs` | the app of all ports, and the trait of what differs |
//! | `bell.rs` | slots that watch the bells of queues |
//! | `interface.rs` | the apps of interfaces and sockets whose queues a control thread opens |
//! | `queues.rs` | the key `queues`: how many, or which ones of a port that several apps share |
//! | `outgoing.rs` | packets on their way to the other side |
//! | `finish.rs` | work on packets that the other side does not accept as they are |

pub(crate) mod app;
pub(crate) mod bell;
pub(crate) mod finish;
pub(crate) mod interface;
pub(crate) mod outgoing;
pub(crate) mod queues;
#[cfg(test)]
pub(crate) mod samples;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_config::SettingError;
use bellows_engine::{Output, Watched};
use bellows_handover::Bell;
use bellows_packet::Vector;
use bellows_wire::MacAddr;

/// The control thread's bell, as the engine watches it.
pub(crate) struct Control(pub(crate) Arc<Bell>);

impl Watched for Control {
    fn word(&self) -> Option<&AtomicU32> {
        Some(self.0.word())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.0.descriptor()]
    }
}

/// Maximum time until the queues' counters appear in the status, in nanoseconds.
pub(crate) const NOTED_WITHIN: u64 = 20_000_000;

/// The same while no packets move.
pub(crate) const NOTED_AT_REST: u64 = 1_000_000_000;

/// The pairs of queues in the order in which they are pulled: a different one first each time, so that none takes all
/// the room.
pub(crate) fn turns(first: &mut usize, count: usize) -> impl Iterator<Item = usize> + use<> {
    *first = if *first + 1 < count { *first + 1 } else { 0 };
    let first = *first;
    (first..count).chain(0..first)
}

/// Sends packets from the other side. If there is no link they are dropped as `unlinked`, so that the other side does
/// not wait forever.
#[inline]
pub(crate) fn deliver(packets: &mut Vector, output: &mut Output<'_>, is_linked: bool) {
    if is_linked {
        output.send_from(packets);
    } else {
        packets.drain(usize::MAX).for_each(|packet| output.push(packet));
    }
}

/// Reads an Ethernet address for a device.
pub(crate) fn read_mac(text: Option<&str>) -> Result<Option<[u8; 6]>, SettingError> {
    let Some(text) = text else { return Ok(None) };
    let MacAddr(bytes) = text.parse().map_err(|error: bellows_wire::MacAddrError| {
        SettingError::at(
            "mac",
            format!("`{}` is not an Ethernet address", error.text),
            "write it like 02:00:00:00:00:01",
        )
    })?;
    if bytes[0] & 1 != 0 {
        let help = "give a unicast address, with an even first byte such as 02";
        return Err(SettingError::at("mac", format!("{text} is a multicast address"), help));
    }
    Ok(Some(bytes))
}

/// The default of keys that are on.
pub(crate) fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_first_in_its_turn() {
        let mut first = 0;
        let orders: Vec<Vec<usize>> = (0..4).map(|_| turns(&mut first, 3).collect()).collect();
        assert_eq!(orders, [[1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]);
        assert_eq!(turns(&mut 7, 1).collect::<Vec<_>>(), [0], "also when there are fewer than before");
    }

    #[test]
    fn addresses_of_many_stations_are_refused() {
        assert_eq!(read_mac(Some("02:00:00:00:00:01")).unwrap(), Some([2, 0, 0, 0, 0, 1]));
        assert!(read_mac(Some("03:00:00:00:00:01")).is_err());
        assert!(read_mac(Some("02:00")).is_err());
    }
}
