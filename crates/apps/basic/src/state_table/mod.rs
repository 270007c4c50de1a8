//! `state-table`: the connections that filters have let through, shared by the filters of all workers.
//!
//! | file | contents |
//! |---|---|
//! | `connections.rs` | the connections, which all threads read and change |

mod connections;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use bellows_common::capacity;
use bellows_config::{Context, Duration, OutputSchema, SettingError, SharedObject};
use bellows_engine::Status;
use bellows_wire::connection::Member;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::connections::{Connections, Stage, Timeouts, WAYS, units};
pub(crate) use self::connections::{Entered, Place};

/// The connections that filters have let through.
///
/// Apps of type `pcap-filter` that name it with `state_table` pass the packets of these connections in both directions,
/// and enter the connections of the packets that match their expressions. A connection has a protocol, two addresses and,
/// for TCP, UDP and SCTP, two ports. An ICMP echo has an identifier, and the requester stays the one that requests. VLAN
/// identifiers belong to a connection.
///
/// A connection is established when its first end has sent, the other end has answered, and the first end has sent again.
/// The memory is fixed. Where there is no free place, a new connection takes that of the one that is not established
/// (or, with TCP, has had a FIN or RST) and has been idle for the longest time. If all of these were used within two
/// seconds, those of the address (of IPv6 the network of 64 bits) that has begun the most go first, and an address that
/// has begun more than others takes no places from them. Established ones stay until they expire, but where all places for
/// a new one have such, an address that has begun two more of them than the new one's gives one up; if there is none, the
/// new one is not entered. The event `table-full` names an address that has begun most of them. Which connections compete
/// for a place is random for each table, so nobody can aim at one.
///
/// A connection expires between its timeout and 0.14 seconds later. The defaults are those of RFC 5382, 4787 and 5508.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How many connections the table is meant for, from 64 to 1,048,576: of so many, less than one percent find no
    /// place. Each takes 96 bytes, or up to twice as many, because the table's size is a power of two.
    #[schemars(extend("x-unit" = "connections"), range(min = 64, max = 1048576))]
    pub capacity: usize,

    /// How long an established TCP connection is known without a packet.
    #[schemars(extend("x-unit" = "time"))]
    pub tcp_established: Duration,

    /// How long a TCP connection is known without a packet before it is established, and after a FIN or RST.
    #[schemars(extend("x-unit" = "time"))]
    pub tcp_transitory: Duration,

    /// How long UDP ports are known without a packet.
    #[schemars(extend("x-unit" = "time"))]
    pub udp: Duration,

    /// How long an ICMP echo is known without a packet.
    #[schemars(extend("x-unit" = "time"))]
    pub icmp: Duration,

    /// How long a connection of another protocol is known without a packet. All times are from 1 second to 7 days.
    #[schemars(extend("x-unit" = "time"))]
    pub other: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            capacity: 65_536,
            // RFC 5382, REQ-5.
            tcp_established: Duration::from_secs(2 * 3600 + 4 * 60),
            tcp_transitory: Duration::from_secs(240),
            // RFC 4787, REQ-5.
            udp: Duration::from_secs(300),
            // RFC 5508, REQ-1.
            icmp: Duration::from_secs(60),
            // As in Linux.
            other: Duration::from_secs(600),
        }
    }
}

const TIMEOUT_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=7 * 86_400_000_000_000;

/// Buckets that are looked through at a time: some microseconds.
const BUCKETS_AT_A_TIME: usize = 256;

/// The time in which all buckets are looked through for connections that have expired.
const ROUND_NS: u64 = 60_000_000_000;

/// A table of connections.
pub struct StateTable {
    config: Config,
    connections: Connections,
    /// The time of the next look, and the bucket at which it begins.
    looks_at: AtomicU64,
    bucket: AtomicUsize,
}

impl StateTable {
    fn of(config: Config) -> StateTable {
        let [tcp_established, tcp_transitory, udp, icmp, other] =
            config.timeouts().map(|(_, time)| Timeouts::units(time));
        let timeouts = Timeouts { tcp_established, tcp_transitory, others: [0, udp, icmp, other] };
        // Half full at its capacity, because connections are not spread evenly over the buckets.
        let buckets = (2 * config.capacity / WAYS).next_power_of_two();
        StateTable {
            config,
            connections: Connections::new(buckets, timeouts),
            looks_at: AtomicU64::new(0),
            bucket: AtomicUsize::new(0),
        }
    }

    /// The places for the connections of packets: ask for those of a whole vector before the next step. Hot.
    #[inline(always)]
    pub(crate) fn places(&self, members: &[Member], places: &mut Vec<Place>) {
        self.connections.places(members, places);
    }

    /// Whether a packet belongs to a connection in the table, which goes on with it. Hot.
    #[inline(always)]
    pub(crate) fn pass(&self, member: &Member, place: Place, now: u64) -> bool {
        self.connections.pass(member, place, units(now))
    }

    /// Enters the connection of a packet that does not belong to one in the table. Hot.
    #[inline(always)]
    pub(crate) fn enter(&self, member: &Member, place: Place, now: u64) -> Entered {
        self.connections.enter(member, place, units(now))
    }

    /// Who has begun more than half of the connections that compete with one for a place.
    pub(crate) fn fullest(&self, place: Place) -> Option<IpAddr> {
        self.connections.fullest(place)
    }

    /// Removes expired connections from a part of the table, if it is time. Returns their number, and when to call
    /// again. Meant for [`App::tick`](bellows_engine::App::tick) of each filter.
    pub(crate) fn expire(&self, now: u64) -> (usize, u64) {
        let buckets = self.connections.buckets();
        let part = BUCKETS_AT_A_TIME.min(buckets);
        let next = now + ROUND_NS * part as u64 / buckets as u64;
        let due = self.looks_at.load(Relaxed);
        if now < due {
            return (0, due);
        }
        // One of the filters does it.
        if self.looks_at.compare_exchange(due, next, Relaxed, Relaxed).is_err() {
            return (0, next);
        }
        let start = self.bucket.fetch_add(part, Relaxed) & (buckets - 1);
        (self.connections.expire(start..start + part, units(now)), next)
    }
}

impl Config {
    /// The timeouts in nanoseconds, by their keys.
    fn timeouts(&self) -> [(&'static str, u64); 5] {
        [
            ("tcp_established", self.tcp_established.nanos()),
            ("tcp_transitory", self.tcp_transitory.nanos()),
            ("udp", self.udp.nanos()),
            ("icmp", self.icmp.nanos()),
            ("other", self.other.nanos()),
        ]
    }
}

impl Status for StateTable {
    fn status(&self) -> Value {
        let (mut by_protocol, mut established) = ([0u64; 4], 0u64);
        for state in self.connections.states() {
            by_protocol[state.protocol as usize] += 1;
            established += u64::from(state.stage == Stage::Established);
        }
        let [tcp, udp, icmp, other] = by_protocol;
        json!(StateTableStatus {
            connections: by_protocol.iter().sum(),
            established,
            capacity: self.config.capacity,
            memory: self.connections.memory(),
            protocols: ConnectionsByProtocol { tcp, udp, icmp, other },
        })
    }
}

/// The status of a table of connections.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `state-table`")]
struct StateTableStatus {
    /// The known connections, of which some may have expired in the last minute.
    connections: u64,
    /// How many of them are established.
    established: u64,
    /// How many there can be.
    capacity: usize,
    /// Its memory in bytes.
    memory: usize,
    /// The number of connections of each protocol.
    protocols: ConnectionsByProtocol,
}

/// Numbers of connections.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Connections by protocol")]
struct ConnectionsByProtocol {
    /// TCP.
    tcp: u64,
    /// UDP.
    udp: u64,
    /// ICMP.
    icmp: u64,
    /// All others.
    other: u64,
}

impl SharedObject for StateTable {
    const NAME: &'static str = "state-table";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<StateTableStatus>());
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<StateTable, SettingError> {
        capacity::check(config.capacity, "connections")?;
        if let Some((key, _)) = config.timeouts().iter().find(|(_, time)| !TIMEOUT_NS.contains(time)) {
            return Err(SettingError::at(key, "the time is out of range", "give a time from \"1s\" to \"168h\""));
        }
        Ok(StateTable::of(config))
    }
}
