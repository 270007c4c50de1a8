//! Sorting the usual frames of an interface.

use bellows_packet::{Contents, Packet};
use bellows_vrf::Tag;
use bellows_wire::EtherType;

use super::header::{ETHERNET, load_u32, load_u64};
use super::{LookAhead, STEP, UNUSUAL};

/// The numbers of IPv4 and IPv6 packets.
pub const IP4: u16 = 0;
/// See [`IP4`].
pub const IP6: u16 = 1;

/// See [`IP4`].
pub const ARP: u16 = 2;

/// The bits of a loaded address, which are all set in that of all stations.
const ADDRESS: u64 = (1 << 48) - 1;

/// EtherTypes as they are loaded.
pub const TYPE_IP4: u32 = loaded(EtherType::IPV4);
/// See [`TYPE_IP4`].
pub const TYPE_IP6: u32 = loaded(EtherType::IPV6);
/// See [`TYPE_IP4`].
pub const TYPE_ARP: u32 = loaded(EtherType::ARP);

/// The two bytes of an EtherType, the first one in the lowest bits.
pub const fn loaded(kind: EtherType) -> u32 {
    u16::from_le_bytes(kind.0.to_be_bytes()) as u32
}

/// Numbers the frames of an interface by their protocols; if there is none, `mac` is no address. Hot.
#[inline(never)]
pub fn sort(mut packets: Contents<'_>, ahead: usize, mac: u64, tag: Tag, numbers: &mut [u16]) {
    packets.set_tags(|_| tag.0);
    let all_stations = if mac <= ADDRESS { ADDRESS } else { mac };
    let packets = packets.packets();
    let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
    for (packets, numbers) in packets.chunks(STEP).zip(numbers.chunks_mut(STEP)) {
        look_ahead.step(Packet::prefetch);
        for (packet, number) in packets.iter().zip(numbers) {
            *number = match packet.bytes().first_chunk::<ETHERNET>() {
                Some(header) if load_u64(header, 0) & ADDRESS == mac => match load_u32(header, 10) >> 16 {
                    TYPE_IP4 => IP4,
                    TYPE_IP6 => IP6,
                    TYPE_ARP => ARP,
                    _ => UNUSUAL,
                },
                Some(header) if load_u64(header, 0) & ADDRESS == all_stations => match load_u32(header, 10) >> 16 {
                    TYPE_ARP => ARP,
                    _ => UNUSUAL,
                },
                _ => UNUSUAL,
            };
        }
    }
}
