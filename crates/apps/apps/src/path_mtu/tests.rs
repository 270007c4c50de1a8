use proptest::prelude::*;

use super::*;
use crate::headers::{ETHERNET, uncover};
use crate::icmp_error::{Family, V4, V6};
use crate::tunnel::tests::{ip, pair};
use bellows_packet::Packet;
use bellows_vrf::{IcmpError, Reason};
use bellows_wire::IpProtocol;

/// The error of a router on the way about an IP packet behind an Ethernet header.
pub(crate) fn too_big(packet: &[u8], mtu: u16) -> Vec<u8> {
    let mut frame = vec![0; 2_000];
    let error = IcmpError { reason: Reason::TooBig, value: mtu };
    let (ip, to) = (&packet[ETHERNET..], &mut frame[ETHERNET..]);
    let (length, kind) = match ip[0] >> 4 {
        4 => (V4::write(ip, error, "198.51.100.9".parse().unwrap(), to), V4::ETHER_TYPE),
        _ => (V6::write(ip, error, "2001:db8:f::9".parse().unwrap(), to), V6::ETHER_TYPE),
    };
    let mut packet = Packet::from_bytes(&frame[..ETHERNET + length.unwrap()]).unwrap();
    uncover(&mut packet, kind);
    packet.bytes().to_vec()
}

/// An error with these values about a packet of this path.
fn error(is_v6: bool, mtu: u32, length: usize) -> TooBig<'static> {
    TooBig { mtu, length, addresses: pair(is_v6), protocol: IpProtocol::GRE, payload: &[] }
}

proptest! {
    /// The model remembers all errors, and looks for the last one that had an effect.
    #[test]
    fn a_path_is_as_narrow_as_believable_errors_of_ten_minutes_say(
        is_v6 in any::<bool>(),
        configured in prop::sample::select(vec![1_280u16, 1_500, 9_000, 65_535]),
        min_path_mtu in prop::sample::select(vec![68u16, 576, 1_400]),
        events in prop::collection::vec((
            prop_oneof![Just(0u32), 60u32..80, 500u32..1_600, 1_270u32..1_290, 60_000u32..70_000],
            prop::sample::select(vec![40usize, 600, 1_300, 1_500, 65_535]),
            prop::sample::select(vec![0u64, 1, 299, 300, 301, 599, 600]),
        ), 0..30),
    ) {
        let mut path = PathMtu::new(pair(is_v6), Bounds { mtu: configured, min_path_mtu });
        let (mut now, mut history): (u64, Vec<(u64, u16)>) = (7, Vec::new());
        let least = if is_v6 { 1_280 } else { min_path_mtu.min(configured) };
        for (mtu, length, seconds) in events {
            now += seconds * 1_000_000_000;
            path.forget_old(now);
            let in_effect = |history: &[(u64, u16)]| {
                let last = history.last().filter(|(since, _)| now < since + 600_000_000_000);
                last.map_or(configured, |(_, mtu)| *mtu)
            };
            prop_assert_eq!(path.mtu(), in_effect(&history));
            let told = match mtu {
                0 if !is_v6 => [68, 296, 508, 1_006, 1_492, 2_002, 4_352, 8_166, 17_914, 32_000]
                    .into_iter().rfind(|plateau| *plateau < length).unwrap_or(0) as u32,
                mtu => mtu,
            };
            let is_believable = told as usize >= (if is_v6 { 1_280 } else { 68 }) && (told as usize) < length;
            prop_assert_eq!(path.learn(&error(is_v6, mtu, length), now), is_believable);
            let lowered = u16::try_from(told).unwrap_or(u16::MAX).max(least);
            if is_believable && lowered < in_effect(&history) {
                history.push((now, lowered));
            }
            prop_assert_eq!(path.mtu(), in_effect(&history));
            prop_assert!((least..=configured).contains(&path.mtu()));
        }
    }

    #[test]
    fn errors_are_read_as_routers_write_them(
        is_v6 in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 8..1_400),
        mtu in 68u16..2_000,
        damage in prop::option::of((any::<prop::sample::Index>(), 1u8..)),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let packet = ip(pair(is_v6), IpProtocol::GRE, &payload);
        let mut frame = too_big(&packet, mtu);
        let read = TooBig::read(&frame).unwrap();
        prop_assert_eq!((read.mtu, read.length), (u32::from(mtu), packet.len() - ETHERNET));
        prop_assert_eq!((read.addresses, read.protocol), (pair(is_v6), IpProtocol::GRE));
        prop_assert!(payload.starts_with(read.payload) && read.payload.len() >= payload.len().min(500));
        // What is damaged in the message has another checksum; a cut packet is not whole.
        let message = ETHERNET + if is_v6 { 40 } else { 20 };
        if let Some((at, bits)) = damage {
            let at = message + at.index(frame.len() - message);
            frame[at] ^= bits;
            prop_assert_eq!(TooBig::read(&frame), None);
        }
        if let Some(cut) = cut {
            prop_assert_eq!(TooBig::read(&frame[..cut.index(frame.len())]), None);
        }
        prop_assert_eq!(TooBig::read(&packet), None);
    }

    #[test]
    fn what_an_error_quotes_may_be_anything(is_v6 in any::<bool>(), quoted in prop::collection::vec(any::<u8>(), 0..100), first in 0x40u8..0x70) {
        let mut message = if is_v6 { vec![2, 0, 0, 0, 0, 0, 5, 0] } else { vec![3, 4, 0, 0, 0, 0, 5, 0] };
        message.push(first);
        message.extend(quoted);
        let protocol = if is_v6 { IpProtocol::ICMPV6 } else { IpProtocol::ICMP };
        let pseudo = if is_v6 { pair(is_v6).pseudo_header(protocol, message.len()) } else { bellows_wire::Sum::new() };
        let checksum = pseudo.add_bytes(&message).finish();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        if let Some(read) = TooBig::read(&ip(pair(is_v6), protocol, &message)) {
            prop_assert!(read.payload.len() >= 8 && read.payload.len() < message.len());
        }
    }
}

#[test]
fn a_quoted_fragment_is_known_by_its_first_bytes_alone() {
    let behind = [7; 40];
    let quoted = |offset: u8| {
        let fragment = [&[47, 0, 0, offset | 1, 0, 0, 0, 9][..], &behind].concat();
        too_big(&ip(pair(true), IpProtocol::IPV6_FRAGMENT, &fragment), 1_280)
    };
    let error = quoted(0);
    let read = TooBig::read(&error).unwrap();
    assert_eq!((read.protocol, read.payload), (IpProtocol::GRE, &behind[..]));
    assert_eq!(TooBig::read(&quoted(8)), None);
    let mut first = ip(pair(false), IpProtocol::GRE, &behind);
    first[ETHERNET + 6] = 0x20;
    assert_eq!(TooBig::read(&too_big(&first, 576)).map(|read| read.payload.len()), Some(40));
    first[ETHERNET + 7] = 1;
    assert_eq!(TooBig::read(&too_big(&first, 576)), None);
}
