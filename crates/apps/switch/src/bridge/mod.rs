//! `bridge`: a learning bridge between any number of ports.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs` | the keys |
//! | `decide.rs` | where frames go: the hot part |
//! | `storm.rs` | limits of frames that go to all ports |
//! | `vlans.rs` | the VLANs of ports, and the tags of frames |

mod config;
mod decide;
mod storm;
mod vlans;

use std::sync::Arc;

use bellows_common::nexts::{NextVectors, UNUSUAL};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, OutputSchema, SettingError, SharedObject};
use bellows_engine::{App, AppError, Counters, DropReason, Input, Io, Ports, Status, counters};
use bellows_packet::Packet;

pub use self::config::{Config, PortConfig, TagProtocols};
use self::decide::{
    Common, FLOOD, Frames, HELD, NO_HEADROOM, NO_OUTPUT, NOT_ALLOWED, OTHER_VLAN, SAME_GROUP, SAME_PORT, SHORT_KEY,
    TOO_SHORT, VIOLATION,
};
use self::storm::{Flood, Storm, is_reserved};
use self::vlans::{Leaves, Membership, retag};
use crate::mac_table::{self, BridgePort, Key, MacTable, MacTableStatus, PortLimit, PortNumber};

/// What is known of an input.
struct InputOrigin {
    /// `None` if the table has too many ports.
    port: Option<BridgePort>,
    max_addresses: u32,
    /// By the table's number of the destination's port: the output, or why there is none. The last one is that of all
    /// further ports.
    ways: Vec<u16>,
    /// For each output whether frames from this input may go there.
    may_leave: Vec<bool>,
    storm: Storm,
    /// `None` in a bridge without VLANs.
    membership: Option<Membership>,
}

/// The output for frames to a station at a port, or why there is none, by the [ways](InputOrigin::ways) of their input.
/// Hot.
#[inline(always)]
fn way(ways: &[u16], port: PortNumber) -> u16 {
    ways[usize::from(port).min(ways.len() - 1)]
}

/// A learning bridge.
pub struct Bridge {
    /// Its name in the network.
    name: String,
    config: Config,
    protocols: [u16; 2],
    table: Arc<MacTable>,
    /// The names of the inputs and of the outputs for which the rest was made.
    links: [Vec<String>; 2],
    /// By input.
    origins: Vec<InputOrigin>,
    /// The VLANs of each output; none in a bridge without.
    memberships: Vec<Membership>,
    /// The outputs' ports, which the bridge has.
    ports: Vec<Option<BridgePort>>,
    frames: Frames,
    next_vectors: NextVectors,
}

counters! { Bridge;
    drop SAME_PORT = "same_port", "frames whose destination is at the port that they came from";
    drop SAME_GROUP = "same_group", "frames whose destination is in the split-horizon group of their port";
    drop NO_OUTPUT = "no_output", "frames whose destination is at a port to which this bridge has no output, or that have no other port to go to";
    drop TOO_SHORT = "too_short", "packets without a whole Ethernet header or tag";
    asked drop RESERVED = "reserved", "frames to reserved addresses, which bridges do not forward";
    drop MOVE_VIOLATION = "move_violation", "frames from static addresses of other ports";
    drop MOVE_LIMITED = "move_limited", "frames from addresses of other ports that have moved too often";
    drop VLAN_NOT_ALLOWED = "vlan_not_allowed", "frames of a VLAN that is not one of their port, or of their destination's; likely: `access` or `trunk` of the port lacks it";
    drop NO_HEADROOM = "no_headroom", "packets without room for a tag";
    asked drop STORM_BROADCAST = "storm_broadcast", "broadcast frames above the limit of their port";
    asked drop STORM_MULTICAST = "storm_multicast", "multicast frames above the limit of their port";
    asked drop STORM_UNKNOWN = "storm_unknown", "frames to unknown addresses above the limit of their port";
    count HITS = "hits", "frames whose destination is known, sent to its port";
    count MISSES = "misses", "frames to all ports whose destination is a station that is not known";
    count FLOODED = "flooded", "frames to all ports: multicast, broadcast and unknown destinations";
    count LEARNED = "learned", "source addresses that were new", in "addresses";
    count MOVED = "moved", "source addresses that appeared at another port", in "addresses";
    count TABLE_FULL = "table_full", "frames whose source the table had no room for";
    count DISPLACED = "displaced", "addresses that were forgotten in a full table for new ones at a port, or in a VLAN, that has less than its share", in "addresses";
    count PORT_FULL = "port_full", "frames whose source is one more than `max_macs` of their port";
    count VIOLATIONS_FORWARDED = "violations_forwarded", "frames from static addresses of other ports, with `forward_violations`";
}

impl App for Bridge {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "frames that arrive at a port" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "frames that leave through a port" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        if self.origins.len() != io.inputs() {
            self.rewire(io);
        }
        for input in 0..self.origins.len() {
            self.forward(io, input);
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
        io.wake_at(self.table.upkeep(io.now()));
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let (None, Some(old)) = (&self.config.table, old)
            && old.config.table.is_none()
        {
            self.table = Arc::clone(&old.table);
        }
        Ok(())
    }

    /// That of its own table; a shared one is listed by itself.
    fn status(&self) -> Option<Arc<dyn Status>> {
        self.config.table.is_none().then(|| Arc::clone(&self.table) as Arc<dyn Status>)
    }
}

impl Bridge {
    /// Numbers the ports after their links, if these are other ones: limits of floods go on in a tick.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        let name = |name: Option<&str>| name.unwrap_or_default().to_owned();
        let links = [
            (0..io.inputs()).map(|input| name(io.input_name(input))).collect(),
            (0..io.outputs()).map(|output| name(io.output_name(output))).collect(),
        ];
        if self.links == links {
            return;
        }
        self.links = links;
        let Bridge { config, table, .. } = self;
        let outputs: Vec<&str> = (0..io.outputs()).map(|output| io.output_name(output).unwrap_or_default()).collect();
        let ports: Vec<Option<BridgePort>> = outputs.iter().map(|name| table.port(name)).collect();
        // The keys were checked when the bridge was created; a port without VLANs has none of those that others have.
        let membership = |name: &str| config.has_vlans().then(|| config.membership(name).unwrap_or_default());
        let group = |port: &str| config.groups.iter().position(|group| group.iter().any(|name| name == port));
        let origin = |input: usize| {
            let name = io.input_name(input).unwrap_or_default();
            let way = |to: &str, output: usize| match (group(name), group(to)) {
                _ if name == to => SAME_PORT,
                (Some(own), Some(other)) if own == other => SAME_GROUP,
                _ => output as u16,
            };
            let port = table.port(name);
            let mut ways = Vec::new();
            let mut set = |port: &Option<BridgePort>, way| {
                let Some(place) = port.as_ref().map(|port| usize::from(port.number)) else { return };
                if ways.len() <= place {
                    ways.resize(place + 1, NO_OUTPUT);
                }
                ways[place] = way;
            };
            outputs.iter().zip(&ports).enumerate().for_each(|(output, (to, port))| set(port, way(to, output)));
            // The port itself need not have an output.
            set(&port, SAME_PORT);
            ways.push(NO_OUTPUT);
            let may_leave = outputs.iter().enumerate().map(|(output, to)| way(to, output) < UNUSUAL).collect();
            InputOrigin {
                port,
                max_addresses: config.max_addresses(name),
                ways,
                may_leave,
                storm: config.storm(name).unwrap_or_default(),
                membership: membership(name),
            }
        };
        self.origins = (0..io.inputs()).map(origin).collect();
        self.memberships = outputs.iter().filter_map(|name| membership(name)).collect();
        self.next_vectors.resize(outputs.len());
        self.ports = ports;
    }

    /// Forwards the frames of an input. Hot.
    fn forward(&mut self, io: &Io<Self>, index: usize) {
        let Bridge { name, config, protocols, table, links, origins, memberships, frames, next_vectors, .. } = self;
        let mut input = io.input(index);
        let count = input.len();
        if count == 0 {
            return;
        }
        let origin = &mut origins[index];
        let view = table.view(io, name);
        match &origin.membership {
            None => frames.read(input.packets(), io.prefetch(), &view),
            Some(membership) => frames.read_in_vlans(input.packets(), io.prefetch(), &view, (membership, *protocols)),
        }
        let mut common = frames.decide(io, &view, count, origin, !config.forward_violations);
        if view.wants_upkeep() {
            io.wake_at(io.now());
        }
        if origin.membership.is_some() && !frames.retag(input.packets_mut(), memberships, *protocols) {
            common = Common::Unusual;
        }
        match common {
            Common::Output(output) => {
                io.count(Bridge::HITS, count as u64);
                drop(input);
                io.forward(index, output.into());
            }
            Common::Outputs => {
                io.count(Bridge::HITS, count as u64);
                next_vectors.scatter(io, &mut input, &frames.numbers[..count]);
            }
            Common::Unusual => {
                let names = (&**name, &*links[0][index]);
                Flooding { names, config, protocols: *protocols, origin, memberships }.forward(
                    io,
                    input,
                    frames,
                    next_vectors,
                )
            }
        }
    }
}

/// What frames need that do not all go to one output.
struct Flooding<'b> {
    /// Of the bridge, and of the port that the frames come from.
    names: (&'b str, &'b str),
    config: &'b Config,
    protocols: [u16; 2],
    origin: &'b mut InputOrigin,
    memberships: &'b [Membership],
}

impl Flooding<'_> {
    /// Forwards frames one by one, in order.
    fn forward(
        &mut self,
        io: &Io<Bridge>,
        mut input: Input<'_, Bridge>,
        frames: &Frames,
        next_vectors: &mut NextVectors,
    ) {
        let mut hits = 0;
        for ((number, destination), packet) in frames.numbers.iter().zip(frames.destinations()).zip(&mut input) {
            match *number {
                FLOOD => match self.refusal(io, destination) {
                    Some(reason) => io.drop(packet, reason),
                    None => self.flood(io, next_vectors, packet, destination.vlan()),
                },
                SAME_PORT => io.drop(packet, Bridge::SAME_PORT),
                SAME_GROUP => io.drop(packet, Bridge::SAME_GROUP),
                NO_OUTPUT => io.drop(packet, Bridge::NO_OUTPUT),
                VIOLATION => io.drop(packet, Bridge::MOVE_VIOLATION),
                HELD => io.drop(packet, Bridge::MOVE_LIMITED),
                NO_HEADROOM => io.drop(packet, Bridge::NO_HEADROOM),
                TOO_SHORT => io.drop(packet, Bridge::TOO_SHORT),
                NOT_ALLOWED => io.drop(packet, Bridge::VLAN_NOT_ALLOWED),
                output => {
                    hits += 1;
                    next_vectors.push(output.into(), packet);
                }
            }
        }
        io.count(Bridge::HITS, hits);
        next_vectors.send(io);
    }

    /// Why a frame is not sent to all ports, if it is not.
    fn refusal(&mut self, io: &Io<Bridge>, destination: Key) -> Option<DropReason<Bridge>> {
        if destination == SHORT_KEY {
            return Some(Bridge::TOO_SHORT);
        }
        if destination == OTHER_VLAN {
            return Some(Bridge::VLAN_NOT_ALLOWED);
        }
        if !self.config.forward_reserved && is_reserved(destination) {
            return Some(Bridge::RESERVED);
        }
        let kind = Flood::of(destination);
        if !self.origin.storm.passes(kind, io.now()) {
            self.origin.storm.tell(self.names, kind, io.now());
            let (limit, reason) = match kind {
                Flood::Broadcast => (PortLimit::StormBroadcast, Bridge::STORM_BROADCAST),
                Flood::Multicast => (PortLimit::StormMulticast, Bridge::STORM_MULTICAST),
                Flood::Unknown => (PortLimit::StormUnknown, Bridge::STORM_UNKNOWN),
            };
            self.origin.port.iter().for_each(|port| port.count(limit));
            return Some(reason);
        }
        if kind == Flood::Unknown {
            io.count(Bridge::MISSES, 1);
        }
        None
    }

    /// Sends a frame to all outputs that it may take.
    fn flood(&self, io: &Io<Bridge>, next_vectors: &mut NextVectors, packet: Packet, vlan: u16) {
        let leaves = |output: usize| match self.memberships.get(output) {
            // Without VLANs a frame stays as it is.
            None => Some(None),
            Some(membership) => match membership.leaves(vlan) {
                Leaves::Not => None,
                leaves => Some(Some(leaves == Leaves::Tagged)),
            },
        };
        let may_leave = self.origin.may_leave.iter().enumerate().filter(|(_, may)| **may);
        let mut outputs = may_leave.filter_map(|(output, _)| Some((output, leaves(output)?)));
        let Some(last) = outputs.next_back() else { return io.drop(packet, Bridge::NO_OUTPUT) };
        io.count(Bridge::FLOODED, 1);
        let mut send = |(output, is_tagged): (usize, Option<bool>), mut packet: Packet| {
            if is_tagged.is_none_or(|is_tagged| retag(&mut packet, self.protocols, vlan, is_tagged)) {
                next_vectors.push(output, packet);
            } else {
                io.drop(packet, Bridge::NO_HEADROOM);
            }
        };
        for output in outputs {
            match packet.copy() {
                Some(copy) => send(output, copy),
                None => io.count_no_buffer(1),
            }
        }
        send(last, packet);
    }
}

impl Configure for Bridge {
    const NAME: &'static str = "bridge";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<MacTableStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        // The receivers of the traffic are at the other port.
        let known = |label, traffic, receivers: std::ops::Range<u32>| {
            let station = |number: u32| {
                let [high, middle, low] = [number >> 16, number >> 8, number].map(|number| number as u8);
                format!("\"02:00:00:{high:02x}:{middle:02x}:{low:02x}\" = \"other\"")
            };
            let stations: Vec<String> = receivers.map(station).collect();
            let keys = format!("capacity = 262144\nstatic = {{ {} }}", stations.join(", "));
            BenchRow {
                label,
                traffic,
                keys: "table = \"macs\"".to_owned(),
                objects: format!("[objects.macs]\nobject = \"mac-table\"\n{keys}\n"),
                inputs: &["input"],
                outputs: &["input", "other"],
                ..BenchRow::default()
            }
        };
        let flooded = BenchRow { label: "flooded", outputs: &["input", "other"], ..BenchRow::default() };
        BenchSetup::Rows(vec![
            known("known", "", 2..3),
            known("1024 stations", "stations:1024", 1 << 16..(1 << 16) + 512),
            known("65536 stations", "stations:65536", 1 << 16..(1 << 16) + (1 << 15)),
            flooded,
        ])
    }

    fn check_outputs(config: &Config, outputs: &[&str]) -> Result<(), SettingError> {
        config.check_ports(outputs)
    }

    fn configure(config: Config, context: &Context) -> Result<Bridge, SettingError> {
        config.check()?;
        let table = match &config.table {
            Some(name) => context.object::<MacTable>("table", name)?,
            None => Arc::new(MacTable::configure(mac_table::Config::default(), context)?),
        };
        Ok(Bridge {
            name: context.app.clone(),
            protocols: config.tpid.unwrap_or(TagProtocols::Customer).numbers(),
            config,
            table,
            links: [Vec::new(), Vec::new()],
            origins: Vec::new(),
            memberships: Vec::new(),
            ports: Vec::new(),
            frames: Frames::new(),
            next_vectors: NextVectors::new(),
        })
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
