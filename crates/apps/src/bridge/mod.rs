//! `bridge`: a learning bridge between any number of ports.

use std::sync::Arc;

use bellows_config::{Bench, BenchFiles, BenchRow, Configure, Context, SettingError, SharedObject};
use bellows_engine::{App, AppError, Counters, Io, Ports, Status, counters};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lanes::Lanes;
use crate::mac_table::{self, Learned, MacTable, PortNumber, View};

/// Passes each frame to the port at which its destination was last seen, and floods the others.
///
/// A port is an input and an output of the same name, which may be any; a port may also have only one of them. Look-up
/// of the destination comes before learning of the source, and an address that appears at another port moves at once.
/// Frames to multicast, broadcast and unknown addresses go to all outputs but that of their own port. Sources that are
/// multicast addresses or zero are not learned, nor those at more than 1,024 ports. Frames are not changed; VLAN tags play no role (IEEE 802.1D).
///
/// Bridges on several workers that name one `table` are one bridge: link the output for a port of the other worker to
/// that port as well, for example through a `join`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The table of addresses: the name of an object of type `mac-table`. By default the bridge has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,

    /// Split-horizon groups, each a list of ports: no frame goes from one port of a group to another, as for the tunnels
    /// of a full mesh.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Vec<String>>,
}

/// What is known of an input.
struct Origin {
    /// `None` if the table has too many ports.
    port: Option<PortNumber>,
    /// For each output whether frames from this input may go there.
    may_leave: Vec<bool>,
}

/// Stands for a frame that goes to all outputs, and for those that are dropped, among the numbers of outputs.
const FLOOD: u16 = u16::MAX;
const BACK: u16 = u16::MAX - 1;
const UNREACHABLE: u16 = u16::MAX - 2;
const SHORT: u16 = u16::MAX - 3;

/// A learning bridge.
pub struct Bridge {
    config: Config,
    table: Arc<MacTable>,
    /// By input.
    origins: Vec<Origin>,
    /// The output of each port of the table.
    outputs: Vec<u16>,
    lanes: Lanes,
}

counters! { Bridge;
    drop SAME_PORT = "same_port", "frames whose destination is at the port that they came from, or in its group";
    drop NO_OUTPUT = "no_output", "frames whose destination is at a port to which this bridge has no output";
    drop TOO_SHORT = "too_short", "packets without a whole Ethernet header";
    count FLOODED = "flooded", "frames to all ports: multicast, broadcast and unknown destinations";
    count LEARNED = "learned", "source addresses that were new";
    count MOVED = "moved", "source addresses that appeared at another port";
    count UNLEARNED = "unlearned", "frames whose source the table had no room for";
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

/// The two addresses of a frame: destination and source.
#[inline(always)]
fn addresses(frame: &[u8]) -> Option<[u64; 2]> {
    const LOW: u64 = (1 << 48) - 1;
    let header = frame.first_chunk::<14>()?;
    let [first, second] =
        [&header[..8], &header[4..12]].map(|bytes| bytes.iter().fold(0, |all, &byte| all << 8 | u64::from(byte)));
    Some([first >> 16, second & LOW])
}

/// The bit of a multicast address.
const MULTICAST: u64 = 1 << 40;

impl Bridge {
    /// Numbers the ports after their links.
    fn rewire(&mut self, io: &Io<Self>) {
        let outputs: Vec<&str> = (0..io.outputs()).map(|output| io.output_name(output).unwrap_or_default()).collect();
        let group = |port: &str| self.config.groups.iter().position(|group| group.iter().any(|name| name == port));
        let may_leave = |from: &str, to: &str| from != to && (group(from).is_none() || group(from) != group(to));
        let origin = |input: usize| {
            let name = io.input_name(input).unwrap_or_default();
            Origin {
                port: self.table.port(name),
                may_leave: outputs.iter().map(|output| may_leave(name, output)).collect(),
            }
        };
        self.origins = (0..io.inputs()).map(origin).collect();
        self.outputs.clear();
        for (output, name) in (0..).zip(&outputs) {
            let Some(port) = self.table.port(name).map(usize::from) else { continue };
            if self.outputs.len() <= port {
                self.outputs.resize(port + 1, UNREACHABLE);
            }
            self.outputs[port] = output;
        }
        self.lanes.resize(outputs.len());
    }

    /// Forwards the frames of an input. Hot.
    fn forward(&mut self, io: &Io<Self>, index: usize) {
        let Bridge { table, origins, outputs, lanes, .. } = self;
        let mut input = io.input(index);
        let count = input.len();
        if count == 0 {
            return;
        }
        let numbers = lanes.numbers(count);
        let view = table.view(io);
        let passes = decide(io, &view, input.packets(), &origins[index], outputs, numbers);
        if view.wants_upkeep() {
            io.wake_at(io.now());
        }
        if passes {
            return lanes.send_numbered(io, &mut input, count);
        }
        let numbers = numbers.to_vec();
        for (number, packet) in numbers.into_iter().zip(&mut input) {
            match number {
                FLOOD => flood(io, lanes, packet, &origins[index].may_leave),
                BACK => io.drop(packet, Bridge::SAME_PORT),
                UNREACHABLE => io.drop(packet, Bridge::NO_OUTPUT),
                SHORT => io.drop(packet, Bridge::TOO_SHORT),
                output => lanes.push(output.into(), packet),
            }
        }
        lanes.send(io);
    }
}

/// Learns the sources of frames, and finds the output for each. Returns whether all have exactly one. Hot.
#[inline(never)]
fn decide(
    io: &Io<Bridge>,
    view: &View<'_>,
    packets: &[Packet],
    origin: &Origin,
    outputs: &[u16],
    numbers: &mut [u16],
) -> bool {
    let prefetch = io.prefetch();
    packets.iter().take(prefetch).for_each(Packet::prefetch);
    let mut passes = true;
    let mut last_source = 0;
    for (index, (packet, number)) in packets.iter().zip(numbers).enumerate() {
        if let Some(ahead) = packets.get(index + prefetch) {
            ahead.prefetch();
        }
        *number = match addresses(packet.bytes()) {
            None => SHORT,
            Some([destination, source]) => {
                let port = if destination & MULTICAST == 0 { view.look_up(destination) } else { None };
                // A flow's frames come one after the other.
                if source != last_source && source & MULTICAST == 0 && source != 0 {
                    learn(io, view, source, origin.port);
                    last_source = source;
                }
                match port.map(|port| outputs.get(usize::from(port)).copied().unwrap_or(UNREACHABLE)) {
                    None => FLOOD,
                    // The port itself need not have an output.
                    Some(_) if port == origin.port => BACK,
                    Some(output) if origin.may_leave.get(usize::from(output)) == Some(&false) => BACK,
                    Some(output) => output,
                }
            }
        };
        passes &= *number < SHORT;
    }
    passes
}

/// Learns a source. Hot.
#[inline(always)]
fn learn(io: &Io<Bridge>, view: &View<'_>, source: u64, port: Option<PortNumber>) {
    match port.map_or(Learned::Full, |port| view.learn(source, port)) {
        Learned::Known => {}
        Learned::Moved => io.count(Bridge::MOVED, 1),
        Learned::New => io.count(Bridge::LEARNED, 1),
        Learned::Full => io.count(Bridge::UNLEARNED, 1),
    }
}

/// Sends a frame to all outputs that it may take.
fn flood(io: &Io<Bridge>, lanes: &mut Lanes, packet: Packet, may_leave: &[bool]) {
    io.count(Bridge::FLOODED, 1);
    let mut outputs = may_leave.iter().enumerate().filter_map(|(output, &may)| may.then_some(output));
    let Some(last) = outputs.next_back() else { return io.drop(packet, Bridge::SAME_PORT) };
    for output in outputs {
        match packet.copy() {
            Some(copy) => lanes.push(output, copy),
            None => io.count_no_buffer(1),
        }
    }
    lanes.push(last, packet);
}

impl Configure for Bridge {
    const NAME: &'static str = "bridge";
    type Config = Config;

    fn bench(_: &BenchFiles) -> Bench {
        let ports: &[&str] = &["input", "other"];
        Bench::Rows(vec![BenchRow { outputs: ports, ..BenchRow::default() }])
    }

    fn check_outputs(config: &Config, outputs: &[&str]) -> Result<(), SettingError> {
        let unknown = config.groups.iter().flatten().find(|name| !outputs.contains(&name.as_str()));
        let Some(name) = unknown else { return Ok(()) };
        let listed = outputs.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let message = format!("`groups` names a port `{name}` that is not linked");
        Err(SettingError::at("groups", message, format!("the linked outputs are {listed}")))
    }

    fn configure(config: Config, context: &Context) -> Result<Bridge, SettingError> {
        let table = match &config.table {
            Some(name) => context.object::<MacTable>("table", name)?,
            None => Arc::new(MacTable::configure(mac_table::Config::default(), context)?),
        };
        Ok(Bridge { config, table, origins: Vec::new(), outputs: Vec::new(), lanes: Lanes::new() })
    }
}

#[cfg(test)]
mod tests;
