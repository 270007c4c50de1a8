//! ICMP errors of both families: which packets are answered, and the answers.
//!
//! | file | contents |
//! |---|---|
//! | `family.rs` | what differs between the families |
//! | `v4.rs`, `v6.rs` | a family's own rules and messages |

mod family;
mod v4;
mod v6;

use bellows_vrf::IcmpType;
use bellows_wire::IpPair;
use bellows_wire::icmp::IcmpMessage;

pub use self::family::{Family, Unanswered};
pub use self::v4::V4;
pub use self::v6::V6;

/// Writes an ICMP message behind an IP header of `header` bytes: its type, the word behind the checksum, and what it
/// quotes. Returns the length with the IP header.
fn compose(
    to: &mut [u8],
    header: usize,
    quoted: &[u8],
    IcmpType { kind, code, .. }: IcmpType,
    word: u32,
    addresses: &IpPair,
) -> Option<usize> {
    let length = header + 8 + quoted.len();
    let message = to.get_mut(header..length)?;
    message[..4].copy_from_slice(&[kind, code, 0, 0]);
    message[4..8].copy_from_slice(&word.to_be_bytes());
    message[8..].copy_from_slice(quoted);
    IcmpMessage::new_checked(message).ok()?.fill_checksum(addresses);
    Some(length)
}
