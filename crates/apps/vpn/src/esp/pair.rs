//! A pair of associations: the headers around what it protects, and what it carries.

use std::cell::Cell;

use bellows_common::addresses::read_dst_mac;
use bellows_common::headers::ecn::ECN;
use bellows_common::headers::{ETHERNET, Pattern, Template, headers, ip_length, ip_mask, reversed, uncover_to, write};
use bellows_config::SettingError;
use bellows_esp::udp::{KEEPALIVE, UDP_HEADER};
use bellows_esp::{HEADER, ICV, Limit, PairId, Spi};
use bellows_packet::Packet;
use bellows_wire::{IpPair, IpProtocol, MacAddr};

use super::SECOND;
use super::config::{Association, DontFragment, Mode, Udp};
use super::inner::Inner;
use super::plan::Way;
use super::selectors::Selectors;
use crate::path_mtu::{Bounds, PathMtu};

/// The protocol of ESP.
pub(super) const ESP: IpProtocol = IpProtocol(50);

/// The least time between two events about the port of the other end.
const TELL_MOVES_EACH: u64 = 10 * SECOND;

/// A pair.
pub(super) struct Pair {
    pub(super) id: PairId,
    /// Of packets that are sent.
    pub(super) addresses: IpPair,
    pub(super) mode: Mode,
    pub(super) udp: Option<Udp>,
    pub(super) selectors: Selectors,
    dscp: Option<u8>,
    df: DontFragment,
    /// Of packets that come out.
    dst_mac: MacAddr,
    /// The port of the other end in the keys, from which `udp` differs once packets come from elsewhere.
    known_port: u16,
    /// How often that has changed, until it is counted.
    pub(super) moves: u64,
    /// The port that was reported last, and when.
    told: (u16, Option<u64>),
    /// The headers in front of that of ESP, of packets that are sent, and as a template: in transport mode, only that of UDP
    /// is used.
    sent: Vec<u8>,
    template: Template,
    /// The sum of the words of the IPv4 header in the template.
    header_sum: u32,
    pub(super) pattern: Pattern,
    /// The UDP header that is sent, without its length.
    udp_header: [u8; UDP_HEADER],
    /// Whether a hard limit of time is reached, of what receives and of what sends.
    pub(super) is_expired: [bool; 2],
    /// The keys whose packets were dropped because of another hard limit, and which, until that is noted.
    pub(super) stopped: [Cell<Option<(Spi, &'static str)>>; 2],
    /// When the last packet was sent, if there are keepalives.
    pub(super) sent_at: u64,
    /// The MTU of the path to the other end.
    pub(super) path: PathMtu,
}

/// What a pair has learned of the way to its other end.
pub(super) struct Learned {
    path: PathMtu,
    addresses: IpPair,
    known_port: u16,
    port: Option<u16>,
    told: (u16, Option<u64>),
}

/// Bytes behind what is sealed, at most: padding to whole words, its length, the next header, and the ICV.
const MAX_BEHIND: usize = 3 + 2 + ICV;

/// The name of a limit in events.
pub(super) fn name_of(limit: Limit) -> &'static str {
    match limit {
        Limit::Packets => "packets",
        Limit::Bytes => "bytes",
    }
}

/// How long a sealed packet may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Longest {
    /// As the path's MTU.
    Path,
    /// As one of IP, which is sent as fragments.
    Ip,
}

/// What the header of a tunnel has of the packet inside.
pub(super) struct Varying {
    pub(super) traffic_class: u8,
    pub(super) dont_fragment: bool,
    pub(super) identification: u16,
}

impl Pair {
    /// Checks the keys of a pair.
    ///
    /// # Errors
    /// If a value is out of its range, or has no meaning in its mode.
    pub(super) fn check(keys: &Association) -> Result<(), SettingError> {
        let wrong =
            |key: &str, message: &str, help: &str| Err(SettingError::at("associations", message, help).in_entry(key));
        if keys.hop_limit == 0 {
            return wrong("hop_limit", "packets with a hop limit of 0 go nowhere", "give a number from 1 to 255");
        }
        if keys.dscp.is_some_and(|dscp| dscp > 63) {
            return wrong("dscp", "a DSCP has 6 bits", "give a number from 0 to 63");
        }
        if keys.udp.is_some_and(|udp| udp.local_port == 0 || udp.remote_port == 0) {
            return wrong("udp", "there is no port 0", "give numbers from 1 to 65535");
        }
        if keys.mode == Mode::Transport && !(keys.local_networks.is_empty() && keys.remote_networks.is_empty()) {
            let help = "remove `local_networks` and `remote_networks`, or choose `tunnel`";
            return wrong("mode", "transport mode carries packets between `local` and `remote` alone", help);
        }
        dst_mac(keys)?;
        Selectors::read(&keys.local_networks, &keys.remote_networks).map(drop)
    }

    /// A pair between these addresses, whose keys were checked.
    ///
    /// # Errors
    /// If a network or the Ethernet address is none.
    pub(super) fn new(id: PairId, addresses: IpPair, keys: &Association, bounds: Bounds) -> Result<Pair, SettingError> {
        let selectors = Selectors::read(&keys.local_networks, &keys.remote_networks)?;
        let mut udp_header = [0; UDP_HEADER];
        if let Some(udp) = keys.udp {
            udp_header[..2].copy_from_slice(&udp.local_port.to_be_bytes());
            udp_header[2..4].copy_from_slice(&udp.remote_port.to_be_bytes());
        }
        let behind = if keys.udp.is_some() { &udp_header[..] } else { &[] };
        let protocol = if keys.udp.is_some() { IpProtocol::UDP } else { ESP };
        let mut sent = headers(addresses, protocol, keys.hop_limit, 0, behind);
        if matches!(addresses, IpPair::V4 { .. }) {
            // Each packet has its own flag.
            sent[ETHERNET + 6] = 0;
        }
        let words = sent[ETHERNET..ETHERNET + ip_length(&addresses)].as_chunks::<2>().0;
        let header_sum = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        Ok(Pair {
            id,
            addresses,
            mode: keys.mode,
            udp: keys.udp,
            selectors,
            dscp: keys.dscp,
            df: keys.df,
            dst_mac: dst_mac(keys)?,
            known_port: keys.udp.map_or(0, |udp| udp.remote_port),
            moves: 0,
            told: (keys.udp.map_or(0, |udp| udp.remote_port), None),
            template: Template::new(&sent),
            sent,
            header_sum,
            pattern: pattern(reversed(addresses), protocol, keys.udp),
            udp_header,
            is_expired: [false; 2],
            stopped: <[Cell<_>; 2]>::default(),
            sent_at: 0,
            path: PathMtu::new(addresses, bounds),
        })
    }

    /// Notes that a packet was dropped because its key is used up.
    #[cold]
    pub(super) fn note_stop(&self, way: Way, spi: Spi, limit: &'static str) {
        self.stopped[way as usize].set(Some((spi, limit)));
    }

    /// What it has learned of the way to the other end.
    pub(super) fn learned(&self) -> Learned {
        let port = self.udp.map(|udp| udp.remote_port);
        Learned { path: self.path, addresses: self.addresses, known_port: self.known_port, port, told: self.told }
    }

    /// Takes over what a predecessor has learned.
    pub(super) fn take_over(&mut self, old: Option<&Learned>) {
        let Some(old) = old else { return };
        self.path.take_over(&old.path);
        // Keys that name another port say where the other end is now.
        if let Some(port) = old.port.filter(|_| (old.addresses, old.known_port) == (self.addresses, self.known_port)) {
            self.send_to(port);
            self.told = old.told;
        }
    }

    /// The port that is to be reported, if it has moved, with the one before.
    pub(super) fn take_move(&mut self, now: u64) -> Option<[u16; 2]> {
        let port = self.udp?.remote_port;
        let (old, at) = self.told;
        if port == old || at.is_some_and(|at| now < at.saturating_add(TELL_MOVES_EACH)) {
            return None;
        }
        self.told = (port, Some(now));
        Some([old, port])
    }

    /// Sends to the port from which a packet has come that is authentic and the newest one: a translation of addresses on
    /// the way may choose another at any time (RFC 7296, section 2.23). Hot.
    #[inline(always)]
    pub(super) fn follow(&mut self, port: u16) {
        if self.udp.is_some_and(|udp| udp.remote_port != port) && port != 0 {
            self.send_to(port);
            self.moves += 1;
        }
    }

    #[cold]
    fn send_to(&mut self, port: u16) {
        let Some(udp) = &mut self.udp else { return };
        udp.remote_port = port;
        write(&mut self.udp_header, 2, port);
        write(&mut self.sent, ETHERNET + ip_length(&self.addresses) + 2, port);
        self.template = Template::new(&self.sent);
    }

    /// The longest frame that certainly fits into the path when it is sealed.
    #[inline(always)]
    pub(super) fn longest_clear(&self) -> usize {
        (ETHERNET + usize::from(self.path.mtu())).saturating_sub(self.front() + MAX_BEHIND)
    }

    /// Whether it is over IPv6.
    #[inline(always)]
    pub(super) fn is_v6(&self) -> bool {
        matches!(self.addresses, IpPair::V6 { .. })
    }

    /// Bytes of the UDP header, if there is one.
    #[inline(always)]
    pub(super) fn udp_length(&self) -> usize {
        if self.udp.is_some() { UDP_HEADER } else { 0 }
    }

    /// Bytes that go in front of what is protected: the headers of ESP and UDP, and that of IP around a tunnel.
    #[inline(always)]
    pub(super) fn front(&self) -> usize {
        let ip = match self.mode {
            Mode::Tunnel => ip_length(&self.addresses),
            Mode::Transport => 0,
        };
        ip + self.udp_length() + HEADER
    }

    /// Writes the Ethernet header of a packet that comes out. Hot.
    #[inline(always)]
    pub(super) fn uncover(&self, packet: &mut Packet, inner: &Inner) {
        uncover_to(self.dst_mac, packet, inner.kind());
    }

    /// The traffic class of a tunnel around a packet with this one (RFC 6040: ECN is copied).
    #[inline(always)]
    pub(super) fn traffic_class(&self, inner: u8) -> u8 {
        self.dscp.map_or(inner, |dscp| dscp << 2 | inner & ECN)
    }

    /// The flag of a tunnel around a packet with this one, or around one that is too long and is sent as fragments.
    #[inline(always)]
    pub(super) fn dont_fragment(&self, inner: bool, longest: Longest) -> bool {
        match self.df {
            DontFragment::Copy => inner && longest == Longest::Path,
            DontFragment::Set => true,
            DontFragment::Clear => false,
        }
    }

    /// Writes the headers of Ethernet, IP and UDP of a tunnel. Hot.
    #[inline(always)]
    pub(super) fn write_headers(&self, frame: &mut [u8], varying: &Varying) {
        self.template.write(frame);
        let length = (frame.len() - ETHERNET) as u16;
        let class = u16::from(varying.traffic_class);
        if self.is_v6() {
            write(frame, ETHERNET, 0x6000 | class << 4);
            write(frame, ETHERNET + 4, length - 40);
        } else {
            let flags = if varying.dont_fragment { 0x4000 } else { 0 };
            write(frame, ETHERNET, 0x4500 | class);
            write(frame, ETHERNET + 2, length);
            write(frame, ETHERNET + 4, varying.identification);
            write(frame, ETHERNET + 6, flags);
            let varying = [class, length, varying.identification, flags].map(u32::from);
            let sum = self.header_sum + varying.iter().sum::<u32>();
            let sum = (sum & 0xffff) + (sum >> 16);
            write(frame, ETHERNET + 10, !((sum + (sum >> 16)) as u16));
        }
        if self.udp.is_some() {
            let start = ETHERNET + ip_length(&self.addresses);
            write(frame, start + 4, (frame.len() - start) as u16);
        }
    }

    /// A packet that keeps the translation of addresses on the way alive (RFC 3948, section 4).
    pub(super) fn keepalive(&self) -> Vec<u8> {
        let front = ETHERNET + ip_length(&self.addresses);
        let mut frame = vec![0; front + UDP_HEADER];
        frame.extend(KEEPALIVE);
        self.write_headers(&mut frame, &Varying { traffic_class: 0, dont_fragment: false, identification: 0 });
        self.write_udp_checksum(&mut frame, front);
        frame
    }

    /// Writes the checksum of a UDP datagram, whose header begins at `start`, with a packet of ESP that is sealed. Over IPv4
    /// it stays 0 (RFC 3948, section 2.1); over IPv6, receivers such as Linux drop that (RFC 8200, section 8.1).
    #[inline(always)]
    pub(super) fn finish_udp(&self, frame: &mut [u8], start: usize) {
        if self.udp.is_some() && self.is_v6() {
            self.write_udp_checksum(frame, start);
        }
    }

    #[inline(never)]
    fn write_udp_checksum(&self, frame: &mut [u8], start: usize) {
        write(frame, start + 6, 0);
        let sum = self.addresses.pseudo_header(IpProtocol::UDP, frame.len() - start).add_bytes(&frame[start..]);
        write(frame, start + 6, sum.finish_udp());
    }

    /// Writes the UDP header in front of a packet of ESP in transport mode.
    pub(super) fn write_udp(&self, frame: &mut [u8], start: usize) {
        let length = (frame.len() - start) as u16;
        frame[start..start + UDP_HEADER].copy_from_slice(&self.udp_header);
        write(frame, start + 4, length);
    }
}

fn dst_mac(keys: &Association) -> Result<MacAddr, SettingError> {
    read_dst_mac(keys.dst_mac.as_deref())
        .map_err(|(message, help)| SettingError::at("associations", message, help).in_entry("dst_mac"))
}

/// What the headers of received packets must be, up to that of ESP.
fn pattern(addresses: IpPair, protocol: IpProtocol, udp: Option<Udp>) -> Pattern {
    let port = udp.map(|udp| udp.local_port.to_be_bytes());
    let behind = port.map_or(Vec::new(), |[high, low]| vec![0, 0, high, low, 0, 0, 0, 0]);
    let expected = headers(addresses, protocol, 0, 0, &behind);
    let mut mask = vec![0; ETHERNET];
    mask.extend(ip_mask(&addresses));
    if udp.is_some() {
        mask.extend([0, 0, 0xff, 0xff, 0, 0, 0, 0]);
    }
    Pattern::new(&expected, &mask)
}
