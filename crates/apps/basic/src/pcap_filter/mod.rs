//! `pcap-filter`: passes packets that match expressions in the language of tcpdump.
//!
//! | file | contents |
//! |---|---|
//! | `filters.rs` | the keys `filter`, `file` and `filters`: expressions in the order of the file |
//! | `programs.rs` | their programs, for one link type or for each that packets have; and what other threads see of them |
//! | `decider.rs` | verdicts on a vector |
//! | `states.rs` | packets of connections that a filter has let through |

mod decider;
mod filters;
mod programs;
mod states;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, Status, counters};
use bellows_filter::plan::DecisionMode;
use bellows_filter::{NETMASK_UNKNOWN, Scope};
use bellows_packet::{CAPACITY, Vector, free_all};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::decider::{Decider, spread};
pub(crate) use self::filters::FilterSource;
pub use self::filters::Filters;
pub(crate) use self::programs::{Choices, FiltersStatus, Programs};
use self::states::States;
use crate::state_table::StateTable;

/// Passes packets that match an expression in the language of tcpdump, or sorts them by several.
///
/// With `filter` (or `file`), packets that match go to the output `match`. With `filters`, each filter has an output of
/// its name; a packet goes to the first one that matches, or with `which = "all"` to each. Packets that match no filter go
/// to the output `rest`; if that is not linked, they are dropped as `not_matched`. Each output keeps the order of its
/// packets. Several filters cost little more than one, because they are decided in one pass over the headers.
///
/// The language is that of `man pcap-filter`, and verdicts are those of libpcap. A packet that was cut short matches only
/// by what is there of it. Names of hosts and services are resolved when the app is created. `bellows
/// check` and `bellows run` warn of expressions that can match nothing, for example.
///
/// Tests look where tcpdump looks: not behind IPv6 extension headers, and not for ports in later fragments. To keep
/// packets out of a network, use the app `access-list`, which looks there and refuses what it cannot decide about.
///
/// With `state_table`, packets of the connections in that table go to `match` whatever the expression says, in both
/// directions, and the connection of each other packet that matches is entered. Without `filter` and `file`, only packets
/// of connections in the table match: the app for the way back. ICMP errors about a packet of a connection pass as well.
/// Fragments behind the first, other ICMP messages and frames without IP are decided by the expression alone. Sequence
/// numbers are not checked.
///
/// A reload exchanges filters between two packets, and loses no packet and no state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The expression: `"tcp port 80 or 443"`. An empty one matches every packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,

    /// A text file with the expression. A reload reads it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,

    /// Up to 64 expressions by the names of their outputs: `{ web = "tcp port 80 or 443", dns = "port 53" }`. They are
    /// tried in the order in which they are written.
    #[serde(skip_serializing_if = "Filters::is_empty")]
    pub filters: Filters,

    /// The table of connections: the name of an object of type `state-table`, which other filters may share. Not with
    /// `filters`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_table: Option<String>,

    /// Where a packet goes that matches several `filters`.
    pub which: Which,

    /// How packets begin.
    pub link_type: LinkType,

    /// How far `vlan`, `mpls`, `pppoes` and `geneve` shift the tests behind them.
    pub scope: ScopeChoice,

    /// The mask of the network, such as `"255.255.255.0"`, for `ip broadcast`, which is refused without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netmask: Option<Ipv4Addr>,
}

/// Where a packet goes that matches several filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Which {
    /// To the output of the first one.
    #[default]
    First,
    /// To the output of each; the last one in the order of the filters gets the packet itself, the others get copies.
    All,
}

/// How packets begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum LinkType {
    /// With an Ethernet header.
    #[default]
    Ethernet,
    /// With an IPv4 or IPv6 header.
    Raw,
    /// With the header of captures of Linux' interface `any`.
    LinuxSll,
    /// With the second version of that header.
    LinuxSll2,
    /// With the address family in the byte order of the machine that captured.
    Null,
    /// With the address family, the highest byte first.
    Loop,
    /// As the metadata of each packet tells, which readers of captures set; packets without metadata with an Ethernet
    /// header. Packets of other link types match nothing, nor do those of a link type for which libpcap refuses the
    /// expression.
    ByPacket,
}

impl LinkType {
    /// The only link type, or `None` if each packet has its own.
    fn only(self) -> Option<bellows_filter::LinkType> {
        Some(match self {
            LinkType::Ethernet => bellows_filter::LinkType::Ethernet,
            LinkType::Raw => bellows_filter::LinkType::Raw,
            LinkType::LinuxSll => bellows_filter::LinkType::Cooked,
            LinkType::LinuxSll2 => bellows_filter::LinkType::Cooked2,
            LinkType::Null => bellows_filter::LinkType::Null,
            LinkType::Loop => bellows_filter::LinkType::Loop,
            LinkType::ByPacket => return None,
        })
    }
}

/// How far tests shift later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ScopeChoice {
    /// To the end of the expression, as in libpcap: the second test of `vlan 5 or vlan 6` looks for a second tag.
    #[default]
    Libpcap,
    /// As `libpcap`, with the faults of the optimiser of libpcap 1.10, which decides a few expressions with arithmetic
    /// otherwise than they say.
    #[serde(rename = "libpcap-1.10")]
    LibpcapFaults,
    /// Through what is joined to them by `and`: each side of `vlan 5 or vlan 6` looks for the first tag.
    Lexical,
}

impl From<ScopeChoice> for Scope {
    fn from(choice: ScopeChoice) -> Scope {
        match choice {
            ScopeChoice::Libpcap => Scope::Libpcap,
            ScopeChoice::LibpcapFaults => Scope::LibpcapFaults,
            ScopeChoice::Lexical => Scope::Lexical,
        }
    }
}

/// Passes packets that match.
pub struct PcapFilter {
    /// The outputs of the filters, in their order.
    names: Vec<String>,
    programs: Arc<Programs>,
    decider: Decider,
    states: Option<States>,
    which: Which,
    /// The output of each filter, and behind them `rest`; empty before the first tick, in which outputs are known.
    outputs: Vec<usize>,
    /// The packets of a call, by filter, and behind them the rest. Between two calls there are none.
    lanes: Vec<Vector>,
    numbers: Vec<u16>,
    sets: Vec<u64>,
}

/// The output of packets that match no filter.
const REST: &str = "rest";

/// An output that is not linked.
const UNLINKED: usize = usize::MAX;

counters! { PcapFilter;
    asked drop NOT_MATCHED = "not_matched", "packets that match no filter, if `rest` is not linked";
    count MATCHED = "matched", "packets that match a filter, or belong to a connection";
    count REST_PACKETS = "rest", "packets that match no filter";
    count PASSED_BY_STATE = "passed_by_state", "packets that belong to a connection in the state table";
    count STATES_ENTERED = "states_entered", "connections that were entered", in "connections";
    count STATES_EVICTED = "states_evicted", "connections, not established, that made room for new ones", in "connections";
    count STATES_REFUSED = "states_refused", "packets that match whose connection found no room";
    count STATES_EXPIRED = "states_expired", "connections that were removed after their timeout", in "connections";
}

impl App for PcapFilter {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to decide about")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "the packets that match; `rest`: those that match nothing" };
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        if self.outputs.is_empty() {
            self.rewire(io);
        }
        match self.which {
            Which::First => self.push_first(io),
            Which::All => self.push_all(io),
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
        if let Some(states) = &self.states {
            states.expire(io);
        }
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(Arc::clone(&self.programs) as Arc<dyn Status>)
    }
}

impl PcapFilter {
    /// Compiles the expressions. The table stands for the key `state_table`, which only names one.
    ///
    /// # Errors
    /// An expression is wrong, or keys exclude each other.
    pub fn with_table(
        config: Config,
        table: Option<Arc<StateTable>>,
        context: &Context,
    ) -> Result<PcapFilter, SettingError> {
        // With one filter, which states need, both say the same.
        let which = if table.is_some() { Which::First } else { config.which };
        let mode = match which {
            Which::First => DecisionMode::First,
            Which::All => DecisionMode::All,
        };
        let Config { link_type, scope, netmask, .. } = config;
        let choices = Choices { link_type: link_type.only(), scope: scope.into(), netmask, mode };
        let compiled = Programs::compile(config.expressions(context)?, &choices, context);
        let programs = compiled.map_err(|mut error| {
            if error.message.ends_with(NETMASK_UNKNOWN) {
                error.help.push_str(", or give the mask: `netmask = \"255.255.255.0\"`");
            }
            error
        })?;
        let programs = Arc::new(programs);
        let decider = Decider::new(&programs);
        let names: Vec<String> = config.names().1.into_iter().map(str::to_owned).collect();
        let mut lanes = Vec::new();
        lanes.resize_with(names.len() + 1, Vector::new);
        Ok(PcapFilter {
            names,
            programs,
            decider,
            states: table.map(|table| States::new(&context.app, table, link_type.only())),
            which,
            outputs: Vec::new(),
            lanes,
            numbers: vec![0; CAPACITY],
            sets: vec![0; CAPACITY],
        })
    }

    /// Finds the outputs of the filters.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        let position = |name: &str| (0..io.outputs()).find(|&output| io.output_name(output) == Some(name));
        let names = self.names.iter().map(String::as_str).chain([REST]);
        self.outputs = names.map(|name| position(name).unwrap_or(UNLINKED)).collect();
    }

    /// Sends each packet to the first filter that matches. Hot.
    fn push_first(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        let (count, filters) = (input.len(), self.names.len());
        if count == 0 {
            return;
        }
        let numbers = &mut self.numbers[..count];
        let one = if self.states.is_none() { self.decider.one(input.packets()) } else { None };
        let (rest, same) = match one {
            Some(matches) => {
                let matched = matches.count();
                let same = (matched % count == 0).then_some(usize::from(matched == 0));
                if same.is_none() {
                    spread(matches, numbers);
                }
                (count - matched, same)
            }
            None => {
                self.decider.first(input.packets(), numbers);
                if let Some(states) = &mut self.states {
                    states.decide(io, input.packets(), numbers);
                }
                let first = numbers[0];
                let rest = numbers.iter().filter(|&&number| usize::from(number) == filters).count();
                (rest, numbers.iter().all(|&number| number == first).then_some(usize::from(first)))
            }
        };
        Self::tally(io, count, rest);
        if let Some(lane) = same {
            drop(input);
            return self.pass_whole(io, lane);
        }
        input.scatter(&self.numbers[..count], &mut self.lanes);
        self.send(io);
    }

    /// Sends a copy of each packet to each filter that matches. Hot.
    fn push_all(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        let (count, filters) = (input.len(), self.names.len());
        if count == 0 {
            return;
        }
        let sets = &mut self.sets[..count];
        self.decider.all(input.packets(), sets);
        let first = sets[0];
        Self::tally(io, count, sets.iter().filter(|&&set| set == 0).count());
        if sets.iter().all(|&set| set == first) {
            for filter in copied(first) {
                io.output(self.outputs[filter]).push_copies(input.packets());
            }
            drop(input);
            return self.pass_whole(io, last(first).unwrap_or(filters));
        }
        let mut missing = 0;
        for (&set, packet) in self.sets[..count].iter().zip(&mut input) {
            for filter in copied(set) {
                match packet.copy() {
                    // A lane has room for a whole input.
                    Some(copy) => drop(self.lanes[filter].push(copy)),
                    None => missing += 1,
                }
            }
            drop(self.lanes[last(set).unwrap_or(filters)].push(packet));
        }
        if missing > 0 {
            io.count_no_buffer(missing);
        }
        drop(input);
        self.send(io);
    }

    /// Sends a whole input to one output, or drops it.
    #[inline]
    fn pass_whole(&self, io: &Io<Self>, lane: usize) {
        match self.outputs[lane] {
            UNLINKED if lane == self.names.len() => io.drop_all(&mut io.input(0), PcapFilter::NOT_MATCHED),
            output => io.forward(0, output),
        }
    }

    /// Sends the packets that are in lanes. Hot.
    fn send(&mut self, io: &Io<Self>) {
        let rest = self.names.len();
        for (index, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| !lane.is_empty()) {
            match self.outputs[index] {
                UNLINKED if index == rest => discard(io, lane),
                output => io.send(output, lane),
            }
        }
    }

    #[inline]
    fn tally(io: &Io<Self>, count: usize, rest: usize) {
        io.count(PcapFilter::MATCHED, (count - rest) as u64);
        io.count(PcapFilter::REST_PACKETS, rest as u64);
    }
}

/// Drops packets that match nothing.
fn discard(io: &Io<PcapFilter>, lane: &mut Vector) {
    if lane.as_slice().iter().any(|packet| packet.is_marked()) {
        lane.drain(usize::MAX).for_each(|packet| io.drop(packet, PcapFilter::NOT_MATCHED));
    } else {
        io.lost(lane.len() as u64, PcapFilter::NOT_MATCHED);
        free_all(lane);
    }
}

/// The filters of a set that get copies: all but the last.
#[inline]
fn copied(set: u64) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        let filter = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (left != 0).then_some(filter)
    })
}

/// The last filter of a set.
#[inline]
fn last(set: u64) -> Option<usize> {
    set.checked_ilog2().map(|filter| filter as usize)
}

impl Configure for PcapFilter {
    const NAME: &'static str = "pcap-filter";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<FiltersStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let row =
            |label, keys: &str, outputs| BenchRow { label, keys: keys.to_owned(), outputs, ..BenchRow::default() };
        BenchSetup::Rows(vec![
            row("", "filter = \"udp\"", &["match", "rest"]),
            row("no match", "filter = \"tcp port 80\"", &["match", "rest"]),
            row("2 filters", "filters = { web = \"tcp port 80\", udp = \"udp\" }", &["web", "udp", "rest"]),
        ])
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        config.file.iter().map(|file| Resource::reads("file", context.path(file))).collect()
    }

    fn check_outputs(config: &Config, outputs: &[&str]) -> Result<(), SettingError> {
        let (key, names) = config.names();
        if let Some(unknown) = outputs.iter().find(|&&output| output != REST && !names.contains(&output)) {
            let known: Vec<String> = names.iter().chain([&REST]).map(|name| format!("`{name}`")).collect();
            let message = format!("the output `{unknown}` is linked, but there is no filter of this name");
            return Err(SettingError::at(key, message, format!("the outputs are {}", known.join(", "))));
        }
        if let Some(missing) = names.iter().find(|name| !outputs.contains(name)) {
            let message = format!("the output `{missing}` is not linked");
            let help = format!("add a link from it, such as `\"APP.{missing} -> sink\"`");
            return Err(SettingError::at(key, message, help).in_entry(*missing));
        }
        Ok(())
    }

    fn configure(config: Config, context: &Context) -> Result<PcapFilter, SettingError> {
        let table = config.state_table.as_ref().map(|name| context.object("state_table", name)).transpose()?;
        PcapFilter::with_table(config, table, context)
    }
}
