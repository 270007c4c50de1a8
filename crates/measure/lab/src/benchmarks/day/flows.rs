//! The flows of a day, and the app that sends packets of them at random.

use std::path::Path;

use bellows_capture::{LinkType, Reader};
use bellows_engine::{App, Io, Port, Ports};
use bellows_packet::{LINE, Packet, Vector};
use bellows_sys::cache::prefetch;
use bellows_vrf::Tag;
use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::tcp::flags::{ACK, SYN};
use bellows_wire::{IpProtocol, connection};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::benchmarks::fib::routes::Prefixes;
use crate::benchmarks::router::circulation::VECTOR;
use crate::workers::fail;

/// The router's address on the link of the stations, and the number of these.
pub(super) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const STATIONS: u32 = 65_536;

/// Bytes of the longest headers: Ethernet, IPv6 and TCP.
const HEADERS: usize = 74;

/// Lengths and protocols of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shape {
    /// Bytes of the frame.
    pub(super) length: u16,
    pub(super) is_v6: bool,
    pub(super) is_tcp: bool,
}

/// The lengths of frames that a flow can have.
const LENGTHS: std::ops::RangeInclusive<usize> = HEADERS..=1_514;

/// The shapes of the packets in a capture, of up to so many of them.
const MAX_SHAPES: usize = 4_096;

impl Shape {
    /// Seven short frames, four of 590 bytes and one of 1,514, in each family; four of five are of TCP.
    pub(super) fn usual() -> Vec<Shape> {
        let lengths = [74, 74, 74, 74, 74, 74, 74, 590, 590, 590, 590, 1_514];
        let shape = |(place, length)| Shape { length, is_v6: place / 12 % 4 == 3, is_tcp: place % 5 != 4 };
        lengths.into_iter().cycle().take(240).enumerate().map(shape).collect()
    }

    /// Those of a capture's packets of TCP and UDP.
    ///
    /// # Errors
    /// If it cannot be read, or has none.
    pub(super) fn read(path: &Path) -> Result<Vec<Shape>, String> {
        let mut reader = Reader::open(path).map_err(|error| error.to_string())?;
        let mut shapes = Vec::new();
        while let Some(record) = reader.next_record().map_err(|error| error.to_string())? {
            let (data, length, interface) = (record.data.to_vec(), record.original_length, record.interface);
            let interface = reader.interfaces().get(interface as usize);
            if interface.is_some_and(|interface| interface.link_type == LinkType::ETHERNET) {
                shapes.extend(Shape::of(&data, length as usize));
            }
            if shapes.len() == MAX_SHAPES {
                break;
            }
        }
        match shapes.is_empty() {
            true => Err(format!("{} has no packet of TCP or UDP in a frame of Ethernet", path.display())),
            false => Ok(shapes),
        }
    }

    /// That of a frame of TCP or UDP.
    fn of(frame: &[u8], length: usize) -> Option<Shape> {
        let member = connection::of_frame(frame)?;
        let is_tcp = matches!(member.kind, connection::ConnectionKind::Tcp(_));
        let length = length.clamp(*LENGTHS.start(), *LENGTHS.end()) as u16;
        let is_usual = is_tcp || member.kind == connection::ConnectionKind::Udp;
        is_usual.then(|| Shape { length, is_v6: member.key.is_v6(), is_tcp })
    }
}

/// The headers of a flow's packets.
#[derive(Clone, Copy)]
struct DayFlow {
    headers: [u8; HEADERS],
    length: u16,
}

/// Flows from stations to destinations that are routed.
pub(super) struct Flows(Vec<DayFlow>);

impl Flows {
    /// `count` flows with these shapes, from so many stations, each to a prefix drawn at random.
    pub(super) fn new(count: u32, stations: u32, shapes: &[Shape], prefixes: &Prefixes) -> Flows {
        let mut random = Rng::with_seed(3);
        let mut flow = |number: u32| {
            let shape = shapes[random.usize(..shapes.len())];
            let mut headers = [0; HEADERS];
            headers[..6].copy_from_slice(&MAC);
            let [.., high, low] = random.u32(..stations).to_be_bytes();
            headers[6..12].copy_from_slice(&[6, 0, 0, 0, high, low]);
            let protocol = if shape.is_tcp { IpProtocol::TCP } else { IpProtocol::UDP };
            let (written, ports) = if shape.is_v6 {
                let prefix = prefixes.ipv6[random.usize(..prefixes.ipv6.len())];
                let header = Ipv6Header {
                    // Each is in a network of its own: one network has only its share of the connections.
                    src: (0x2001_0db8_u128 << 96 | u128::from(number) << 64 | 1).into(),
                    dst: random.u128(prefix.address()..=prefix.last()).into(),
                    next_header: protocol,
                    hop_limit: 64,
                    traffic_class: 0,
                    flow_label: 0,
                };
                headers[12..14].copy_from_slice(&[0x86, 0xdd]);
                let written = header.emit(&mut headers[14..]);
                headers[18..20].copy_from_slice(&(shape.length - 54).to_be_bytes());
                (written, 54)
            } else {
                let prefix = prefixes.ipv4[random.usize(..prefixes.ipv4.len())];
                let header = Ipv4Header {
                    src: (0x6440_0000 | number).into(),
                    dst: random.u32(prefix.address()..=prefix.last()).into(),
                    protocol,
                    ttl: 64,
                    traffic_class: 0,
                    identification: 0,
                    dont_fragment: true,
                };
                headers[12..14].copy_from_slice(&[0x08, 0x00]);
                // The header has the length of the frame.
                let mut frame = vec![0; usize::from(shape.length) - 14];
                let written = header.emit(&mut frame);
                headers[14..34].copy_from_slice(&frame[..20]);
                (written, 34)
            };
            written.unwrap_or_else(|error| fail(&error));
            let [.., high, low] = number.to_be_bytes();
            headers[ports..ports + 4].copy_from_slice(&[0x80 | high, low, 0, 80]);
            if shape.is_tcp {
                (headers[ports + 12], headers[ports + 13]) = (0x50, ACK);
            } else {
                headers[ports + 4..ports + 6].copy_from_slice(&(shape.length - ports as u16).to_be_bytes());
            }
            DayFlow { headers, length: shape.length }
        };
        Flows((0..count).map(&mut flow).collect())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Frames by which connections become established: of each flow one there, one back, and one there again.
    pub(super) fn handshakes(&self) -> impl Iterator<Item = [u8; HEADERS]> {
        self.0.iter().flat_map(|flow| {
            let is_v6 = flow.headers[12] == 0x86;
            let (protocol, from, length, ports) = if is_v6 { (20, 22, 16, 54) } else { (23, 26, 4, 34) };
            [SYN, SYN | ACK, ACK].map(|flags| {
                let mut frame = flow.headers;
                if frame[protocol] == IpProtocol::TCP.0 {
                    frame[ports + 13] = flags;
                }
                if flags == SYN | ACK {
                    frame[from..from + 2 * length].rotate_left(length);
                    frame[ports..ports + 4].rotate_left(2);
                }
                frame
            })
        })
    }
}

/// Keeps packets in flight: those that come back wait, and go as packets of other flows.
pub(super) struct DayFeed {
    flows: Flows,
    /// Packets are of the first flows, so many.
    drawn: u32,
    held: std::collections::VecDeque<Vector>,
    random: Rng,
    numbers: Vec<u32>,
}

impl DayFeed {
    /// `in_flight` packets.
    pub(super) fn new(flows: Flows, drawn: u32, in_flight: usize) -> DayFeed {
        let vector = |_| {
            let mut vector = Vector::new();
            for _ in 0..VECTOR {
                let packet = Packet::from_bytes(&[0; HEADERS]).unwrap_or_else(|| fail(&"there is no buffer"));
                drop(vector.push(packet));
            }
            vector
        };
        let held = (0..in_flight / VECTOR).map(vector).collect();
        DayFeed { drawn: drawn.min(flows.0.len() as u32), flows, held, random: Rng::with_seed(5), numbers: Vec::new() }
    }
}

impl App for DayFeed {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets that come back")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets of flows at random")]);
    const PULLS: bool = true;
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        let Some(mut vector) = self.held.pop_front() else { return };
        let DayFeed { flows, drawn, random, numbers, .. } = self;
        numbers.clear();
        numbers.extend((0..vector.len()).map(|_| random.u32(..*drawn)));
        for &number in &*numbers {
            let flow: *const u8 = (&raw const flows.0[number as usize]).cast();
            prefetch(flow);
            prefetch(flow.wrapping_add(LINE));
        }
        for (packet, &number) in vector.as_mut_slice().iter_mut().zip(&*numbers) {
            let flow = &flows.0[number as usize];
            let length = usize::from(flow.length);
            packet.truncate(length);
            packet.extend(length - packet.len());
            packet.bytes_mut()[..HEADERS].copy_from_slice(&flow.headers);
            packet.set_tag(Tag::received_on(1).0);
        }
        io.output(0).send_from(&mut vector);
        self.held.push_back(vector);
    }

    /// What comes back takes the place of the vector that went last.
    fn push(&mut self, io: &Io<Self>) {
        let mut vector = self.held.pop_back().unwrap_or_default();
        io.input(0).take_into(&mut vector);
        self.held.push_back(vector);
    }

    fn held(&self) -> usize {
        self.held.iter().map(Vector::len).sum()
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_a_connection_of_its_shape() {
        let shapes = Shape::usual();
        let flows = Flows::new(1_000, 256, &shapes, &Prefixes::generated(256));
        let keys: std::collections::HashSet<connection::Key> = flows
            .0
            .iter()
            .map(|flow| {
                let shape = Shape::of(&flow.headers, flow.length.into()).unwrap();
                assert!(shapes.contains(&shape));
                connection::of_frame(&flow.headers).unwrap().key
            })
            .collect();
        assert_eq!(keys.len(), 1_000);
        let of = |frame: [u8; HEADERS]| connection::of_frame(&frame).unwrap();
        let members: Vec<_> = flows.handshakes().map(of).collect();
        for (flow, three) in flows.0.iter().zip(members.chunks(3)) {
            let expected = of(flow.headers);
            let are_from_first: Vec<bool> = three.iter().map(|member| member.is_from_first).collect();
            assert!(three.iter().all(|member| member.key == expected.key));
            assert_eq!(are_from_first, [0, 1, 0].map(|way| (way == 1) != expected.is_from_first));
        }
    }
}
