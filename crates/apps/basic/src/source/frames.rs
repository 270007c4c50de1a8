//! The contents of packets: headers and payload.

use std::iter;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use bellows_config::SettingError;
use bellows_engine::Output;
use bellows_packet::{LARGE_DATA_ROOM, Packet, Template};
use bellows_wire::{EtherType, EthernetHeader, MacAddr, Stamp, UdpFrame, VlanHeader, ethernet};
use fastrand::Rng;

use super::order::Order;
use super::{Config, Headers, Mix, Payload};
use crate::pace::Due;

pub(super) const DEFAULT_SIZE: u32 = 60;
pub(super) const SRC_MAC: &str = "02:00:00:00:00:01";
pub(super) const DST_MAC: &str = "02:00:00:00:00:02";
pub(super) const SRC_PORT: u16 = 49152;
pub(super) const DST_PORT: u16 = 9;
pub(super) const TTL: u8 = 64;

/// Maximum length of a list of sizes; each size is laid out in memory.
const MAX_SIZES: usize = 256;

/// EtherType for local experiments (IEEE 802, "Local Experimental Ethertype 1").
const EXPERIMENTAL: EtherType = EtherType(0x88b5);

/// Frame sizes of the simple IMIX, and the weight of each.
const IMIX: [(u32, u32); 3] = [(60, 7), (590, 4), (1514, 1)];

/// The packets to generate, and the state of the sequence.
pub(super) struct Frames {
    shapes: Vec<FrameShape>,
    order: Order,
    /// The current shape, and how many packets of its run are left.
    turn: usize,
    left: usize,
    mean_length: usize,
    payload: Filling,
    layout: Layout,
}

/// Packets of one size.
struct FrameShape {
    bytes: Vec<u8>,
    /// Writes the number and updates the checksum; `None` if there is no checksum.
    stamp: Option<Stamp>,
    /// For packets that fit into an ordinary buffer.
    template: Option<Template>,
}

/// [`Payload`], with the generator of random payload.
enum Filling {
    Fixed,
    Sequence,
    Random(Rng),
}

/// The headers before the payload.
enum Layout {
    None,
    Ethernet(Vec<u8>),
    Udp(UdpFrame),
}

impl Frames {
    pub(super) fn of(config: &Config) -> Result<Frames, SettingError> {
        let layout = Layout::of(config)?;
        let payload = match config.payload {
            Payload::Fixed => Filling::Fixed,
            Payload::Sequence => Filling::Sequence,
            Payload::Random => Filling::Random(Rng::with_seed(config.seed)),
        };
        let range = layout.sizes(config.payload);
        let Sizes { key, runs, shuffled } = Sizes::of(config, *range.start())?;
        let shape = |&(size, _): &(u32, u32)| {
            let size = size as usize;
            if !range.contains(&size) {
                let (least, most) = range.clone().into_inner();
                let message = format!("{size} bytes is out of range for these headers and this payload");
                return Err(SettingError::at(key, message, format!("give a size from {least} to {most}")));
            }
            FrameShape::new(&layout, size, matches!(payload, Filling::Sequence))
                .map_err(|message| SettingError::at(key, message, "change the size or the headers"))
        };
        let shapes = runs.iter().map(shape).collect::<Result<Vec<FrameShape>, SettingError>>()?;
        let weights: Vec<u32> = runs.iter().map(|&(_, weight)| weight).collect();
        let mut order = if shuffled {
            Order::shuffled(&weights, config.seed).map_err(|most| {
                let message = format!("the weights add up to more than {most}, the maximum for shuffling");
                SettingError::at("weights", message, "give smaller weights, or set `shuffle = false`")
            })?
        } else {
            Order::in_turn(&weights)
        };
        let all: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let bytes: u64 = runs.iter().map(|&(size, weight)| u64::from(size) * u64::from(weight)).sum();
        let (turn, left) = order.next_run();
        Ok(Frames { shapes, order, turn, left, mean_length: (bytes / all.max(1)) as usize, payload, layout })
    }

    /// Mean packet length.
    pub(super) fn mean_length(&self) -> usize {
        self.mean_length
    }

    /// Makes the templates. Only when the app starts, because they depend on the pool.
    pub(super) fn prepare(&mut self) {
        for shape in &mut self.shapes {
            shape.template = Template::new(&shape.bytes);
        }
    }

    /// Sends at most `count` packets, and only those that are due; the first has this number. Returns how many were
    /// sent, and for how many there was no buffer. Hot.
    pub(super) fn make(
        &mut self,
        count: usize,
        number: u64,
        mut due: Option<&mut Due>,
        output: &mut Output<'_>,
    ) -> (usize, usize) {
        let mut made = 0;
        while made < count {
            let length = self.shapes[self.turn].bytes.len();
            let wanted = self.left.min(count - made);
            let wanted = due.as_mut().map_or(wanted, |due| due.take(length, wanted));
            if wanted == 0 {
                break;
            }
            let now = self.make_alike(wanted, number + made as u64, output);
            made += now;
            self.left -= now;
            if now < wanted {
                if let Some(due) = due {
                    due.put_back(length, wanted - now);
                    return (made, wanted - now);
                }
                return (made, count - made);
            }
            if self.left > 0 {
                break;
            }
            (self.turn, self.left) = self.order.next_run();
        }
        (made, 0)
    }

    /// Sends packets of the current size. Hot.
    fn make_alike(&mut self, count: usize, number: u64, output: &mut Output<'_>) -> usize {
        let shape = &self.shapes[self.turn];
        match (&self.payload, &shape.template) {
            (Filling::Fixed, Some(template)) => output.fill(count, template),
            (_, Some(_)) => self.make_each(Packet::allocate_burst(count), number, output),
            (_, None) => {
                let room = shape.bytes.len();
                self.make_each(iter::from_fn(move || Packet::with_room(room)).take(count), number, output)
            }
        }
    }

    fn make_each(&mut self, packets: impl Iterator<Item = Packet>, number: u64, output: &mut Output<'_>) -> usize {
        let shape = &self.shapes[self.turn];
        let mut made = 0;
        for mut packet in packets {
            packet.append(&shape.bytes);
            match &mut self.payload {
                Filling::Fixed => {}
                Filling::Sequence => shape.write_number(&self.layout, packet.bytes_mut(), number + made as u64),
                Filling::Random(random) => self.layout.randomize(packet.bytes_mut(), random),
            }
            output.push(packet);
            made += 1;
        }
        made
    }
}

/// The sizes in their order.
struct Sizes {
    /// The key they come from.
    key: &'static str,
    /// Each size and its weight.
    runs: Vec<(u32, u32)>,
    /// Whether they come in random order.
    shuffled: bool,
}

impl Sizes {
    /// Packets cannot be shorter than `least`.
    fn of(config: &Config, least: usize) -> Result<Sizes, SettingError> {
        let Config { size, sizes, weights, mix, shuffle, .. } = config;
        if !weights.is_empty() && weights.len() != sizes.len() {
            let message = format!("there are {} weights for {} sizes", weights.len(), sizes.len());
            return Err(SettingError::at("weights", message, "give as many `weights` as `sizes`, or none"));
        }
        if sizes.len() > MAX_SIZES {
            let help = format!("give up to {MAX_SIZES}, with `weights` for sizes that come more often");
            return Err(SettingError::at("sizes", format!("there are {} sizes", sizes.len()), help));
        }
        if weights.contains(&0) {
            return Err(SettingError::at("weights", "a weight is 0", "leave out sizes that you do not want"));
        }
        let one_of = "give only one of `size`, `sizes` and `mix`";
        if mix.is_some() && (size.is_some() || !sizes.is_empty()) {
            return Err(SettingError::at("mix", "a mix has its own sizes", one_of));
        }
        if size.is_some() && !sizes.is_empty() {
            return Err(SettingError::at("sizes", "`size` and `sizes` exclude each other", one_of));
        }
        let (key, runs) = match mix {
            Some(Mix::Imix) => ("mix", IMIX.map(|(size, run)| (size.max(least as u32), run)).to_vec()),
            None if sizes.is_empty() && *shuffle == Some(true) => {
                return Err(SettingError::at(
                    "shuffle",
                    "there is only one size",
                    "add `sizes` or `mix`, or leave it out",
                ));
            }
            None if sizes.is_empty() => ("size", vec![(size.unwrap_or(DEFAULT_SIZE), u32::MAX)]),
            None => {
                let weights = weights.iter().copied().chain(iter::repeat(1));
                ("sizes", sizes.iter().copied().zip(weights).collect())
            }
        };
        Ok(Sizes { key, runs, shuffled: shuffle.unwrap_or(mix.is_some()) })
    }
}

impl FrameShape {
    fn new(layout: &Layout, size: usize, numbered: bool) -> Result<FrameShape, String> {
        let pattern = |payload: &mut [u8]| payload.iter_mut().zip(0u32..).for_each(|(byte, index)| *byte = index as u8);
        let bytes = match layout {
            Layout::Udp(headers) => headers.build(size, pattern).map_err(|error| error.to_string())?,
            Layout::None | Layout::Ethernet(_) => {
                let mut bytes = vec![0; size];
                let (header, payload) = bytes.split_at_mut(layout.len());
                layout.write_link_header(header);
                pattern(payload);
                bytes
            }
        };
        let stamp = match layout {
            Layout::Udp(headers) if numbered => Some(Stamp::new(headers, &bytes).map_err(|error| error.to_string())?),
            _ => None,
        };
        Ok(FrameShape { bytes, stamp, template: None })
    }

    fn write_number(&self, layout: &Layout, frame: &mut [u8], number: u64) {
        match &self.stamp {
            Some(stamp) => stamp.write(frame, number),
            None => frame[layout.len()..][..Stamp::LEN].copy_from_slice(&number.to_be_bytes()),
        }
    }
}

impl Layout {
    fn of(config: &Config) -> Result<Layout, SettingError> {
        let link_keys = [
            ("src_mac", config.src_mac.is_some()),
            ("dst_mac", config.dst_mac.is_some()),
            ("vlan", config.vlan.is_some()),
        ];
        let ip_keys = [
            ("src", config.src.is_some()),
            ("dst", config.dst.is_some()),
            ("src_port", config.src_port.is_some()),
            ("dst_port", config.dst_port.is_some()),
            ("ttl", config.ttl.is_some()),
        ];
        let refuse = |keys: &[(&'static str, bool)], help: &str| match keys.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(SettingError::at(key, format!("the packets have no header for `{key}`"), help)),
            None => Ok(()),
        };
        match config.headers {
            Headers::None => {
                refuse(&link_keys, "set `headers` to \"ethernet\", \"ipv4\" or \"ipv6\"")?;
                refuse(&ip_keys, "set `headers` to \"ipv4\" or \"ipv6\"")?;
                Ok(Layout::None)
            }
            Headers::Ethernet => {
                refuse(&ip_keys, "set `headers` to \"ipv4\" or \"ipv6\"")?;
                Layout::ethernet(config)
            }
            Headers::Ipv4 => Layout::udp(config, IpAddr::from([198, 18, 0, 1]), IpAddr::from([198, 19, 0, 1])),
            Headers::Ipv6 => {
                let address = |subnet| IpAddr::from([0x2001, 2, 0, subnet, 0, 0, 0, 1]);
                Layout::udp(config, address(0), address(1))
            }
        }
    }

    fn ethernet(config: &Config) -> Result<Layout, SettingError> {
        let (src, dst, vlan) = link_values(config)?;
        let vlan_length = if vlan.is_some() { ethernet::vlan_field::HEADER_LEN } else { 0 };
        let mut bytes = vec![0; ethernet::field::HEADER_LEN + vlan_length];
        let outer = if vlan.is_some() { EtherType::VLAN } else { EXPERIMENTAL };
        let too_short =
            |error: bellows_wire::Error| SettingError::at("headers", error.to_string(), "leave out `headers`");
        EthernetHeader { dst, src, ether_type: outer }.emit(&mut bytes).map_err(too_short)?;
        if let Some(id) = vlan {
            let tag = VlanHeader { id, priority: 0, drop_eligible: false, ether_type: EXPERIMENTAL };
            tag.emit(&mut bytes[ethernet::field::HEADER_LEN..]).map_err(too_short)?;
        }
        Ok(Layout::Ethernet(bytes))
    }

    fn udp(config: &Config, default_src: IpAddr, default_dst: IpAddr) -> Result<Layout, SettingError> {
        let (src_mac, dst_mac, vlan) = link_values(config)?;
        let address = |key: &'static str, given: Option<IpAddr>, default: IpAddr| match given {
            Some(address) if address.is_ipv4() != default.is_ipv4() => {
                let (family, other) = if default.is_ipv4() { ("IPv4", "ipv6") } else { ("IPv6", "ipv4") };
                let help = format!("give an {family} address, or set `headers` to \"{other}\"");
                Err(SettingError::at(key, format!("{address} is not an {family} address"), help))
            }
            given => Ok(given.unwrap_or(default)),
        };
        Ok(Layout::Udp(UdpFrame {
            src_mac,
            dst_mac,
            vlan,
            src: address("src", config.src, default_src)?,
            dst: address("dst", config.dst, default_dst)?,
            src_port: config.src_port.unwrap_or(SRC_PORT),
            dst_port: config.dst_port.unwrap_or(DST_PORT),
            ttl: config.ttl.unwrap_or(TTL),
        }))
    }

    /// Number of bytes before the payload.
    fn len(&self) -> usize {
        match self {
            Layout::None => 0,
            Layout::Ethernet(header) => header.len(),
            Layout::Udp(headers) => headers.header_len(),
        }
    }

    /// The possible packet sizes.
    fn sizes(&self, payload: Payload) -> RangeInclusive<usize> {
        let number = if payload == Payload::Sequence { Stamp::LEN } else { 0 };
        let most = match self {
            Layout::Udp(headers) => headers.max_len().min(LARGE_DATA_ROOM),
            Layout::None | Layout::Ethernet(_) => LARGE_DATA_ROOM,
        };
        (self.len() + number).max(1)..=most
    }

    fn write_link_header(&self, bytes: &mut [u8]) {
        if let Layout::Ethernet(header) = self {
            bytes.copy_from_slice(header);
        }
    }

    /// Fills the payload with random bytes and corrects the checksums.
    fn randomize(&self, frame: &mut [u8], random: &mut Rng) {
        random.fill(&mut frame[self.len()..]);
        if let Layout::Udp(headers) = self {
            let written = headers.emit(frame);
            debug_assert!(written.is_ok(), "these headers have built a frame of this length before");
        }
    }
}

/// Source address, destination address and VLAN.
fn link_values(config: &Config) -> Result<(MacAddr, MacAddr, Option<u16>), SettingError> {
    let address = |key: &'static str, given: &Option<String>, default: &str| {
        given.as_deref().unwrap_or(default).parse().map_err(|error: bellows_wire::MacAddrError| {
            let message = format!("`{}` is not an Ethernet address", error.text);
            SettingError::at(key, message, format!("write it like \"{default}\""))
        })
    };
    if let Some(id) = config.vlan.filter(|id| *id > 4094) {
        return Err(SettingError::at("vlan", format!("VLAN {id} does not exist"), "give an identifier from 0 to 4094"));
    }
    Ok((address("src_mac", &config.src_mac, SRC_MAC)?, address("dst_mac", &config.dst_mac, DST_MAC)?, config.vlan))
}
