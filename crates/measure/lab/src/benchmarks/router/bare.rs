//! What the figures of the router are measured against: the floor, and a naive loop.

use std::hint::black_box;

use bellows_packet::Packet;

use super::circulation::VECTOR;
use super::traffic::{Family, Traffic};
use crate::benchmarks::fib::routes::Prefixes;

/// Vectors of packets that take turns, and a table with an entry for each /24 of IPv4 or /48 of IPv6 that is routed.
pub(super) struct BareRouter {
    packets: Vec<Packet>,
    traffic: Traffic,
    table: Vec<u32>,
    /// Ethernet headers, by the numbers in the table.
    headers: Vec<[u8; 14]>,
    keys: [u32; VECTOR],
    next: usize,
}

/// How far ahead the floor prefetches, packets.
const AHEAD: usize = 8;

impl BareRouter {
    pub(super) fn new(traffic: Traffic, prefixes: &Prefixes) -> BareRouter {
        let packets = traffic.packets(prefixes);
        let table = (0..traffic.keys()).map(|key| key % traffic.next_hops() as u32).collect();
        let headers = vec![[7; 14]; traffic.next_hops()];
        BareRouter { packets, traffic, table, headers, keys: [0; VECTOR], next: 0 }
    }

    fn vector(&mut self) -> std::ops::Range<usize> {
        let start = self.next;
        self.next = (start + VECTOR) % self.packets.len();
        start..start + VECTOR
    }

    /// The floor of one vector: a prefetched read of each header line, and one table load for each key.
    #[inline(never)]
    pub(super) fn floor(&mut self) {
        let vector = self.vector();
        let BareRouter { packets, traffic, table, keys, .. } = self;
        let packets = &packets[vector];
        packets.iter().take(AHEAD).for_each(Packet::prefetch);
        for (index, (packet, key)) in packets.iter().zip(keys.iter_mut()).enumerate() {
            if let Some(packet) = packets.get(index + AHEAD) {
                packet.prefetch();
            }
            *key = traffic.key(packet.bytes());
        }
        let sum = keys.iter().fold(0u32, |sum, &key| sum.wrapping_add(table.get(key as usize).copied().unwrap_or(0)));
        black_box(sum);
    }

    /// A router in one loop without look-ahead: checks a header, looks its key up, and rewrites it.
    #[inline(never)]
    pub(super) fn naive(&mut self) {
        let vector = self.vector();
        let BareRouter { packets, traffic, table, headers, .. } = self;
        for packet in &mut packets[vector] {
            let frame = packet.bytes_mut();
            if !traffic.family.is_right(frame) {
                continue;
            }
            let Some(&number) = table.get(traffic.key(frame) as usize) else { continue };
            frame[..14].copy_from_slice(&headers[number as usize]);
            traffic.family.age(frame);
        }
    }

    /// Undoes what [`BareRouter::naive`] did to all packets, untimed.
    pub(super) fn restore(&mut self) {
        self.packets.iter_mut().for_each(|packet| self.traffic.family.rejuvenate(packet.bytes_mut()));
    }

    /// The number of packets.
    pub(super) fn in_flight(&self) -> usize {
        self.packets.len()
    }
}

impl Family {
    /// Whether a frame's IP header is that of a packet to forward.
    #[inline(always)]
    fn is_right(self, frame: &[u8]) -> bool {
        match self {
            Family::Ip4 => {
                let sum = frame[14..34]
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|word| u32::from(u16::from_be_bytes(*word)))
                    .sum::<u32>();
                frame[14] == 0x45 && frame[22] > 1 && (sum & 0xffff) + (sum >> 16) == 0xffff
            }
            Family::Ip6 => frame[14] >> 4 == 6 && frame[21] > 1,
        }
    }

    /// Takes a hop off.
    #[inline(always)]
    fn age(self, frame: &mut [u8]) {
        match self {
            Family::Ip4 => {
                frame[22] -= 1;
                let checksum = u32::from(u16::from_be_bytes([frame[24], frame[25]])) + 0x100;
                let checksum = (checksum + (checksum >> 16)) as u16;
                frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
            Family::Ip6 => frame[21] -= 1,
        }
    }
}
