//! The kernel's routes and neighbours, with `rtnetlink(7)`.
//!
//! [`RouteTables`] reads them, [`RouteMonitor`] reports each change. Both work in the network namespace of the thread
//! that opened them.
//!
//! | file | contents |
//! |---|---|
//! | `parse.rs` | messages of the kernel |
//! | `monitor.rs` | changes |
//! | `names.rs` | the names of tables and protocols |

mod monitor;
mod names;
mod parse;

use std::io;
use std::net::IpAddr;

use bellows_netdev::netlink::NetlinkFamily;
use bellows_wire::MacAddr;

pub use self::monitor::{RouteEvent, RouteMonitor, events};
pub use self::names::{protocol_name, protocol_number, table_name, table_number};
use crate::netlink::{Connection, DUMP, NetlinkRequest};

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// The table that it is in.
    pub table: u32,
    /// The first address of its destinations.
    pub destination: IpAddr,
    /// Bits of the prefix, at most those of an address.
    pub length: u8,
    /// Of several routes to a prefix, the kernel prefers the one with the lowest metric.
    pub metric: u32,
    /// What becomes of packets.
    pub kind: RouteKind,
    /// The ways to the destinations, of a [`RouteKind::Unicast`].
    pub ways: Vec<Way>,
    /// What the route depends on besides the destination, or does besides forwarding, if it does.
    pub special: Option<Special>,
    /// Who entered it (`rtm_protocol`), which [`protocol_name`] names.
    pub protocol: u8,
    /// The longest packet that takes the route (`mtu`, also with `lock`), or 0 without one.
    pub mtu: u32,
    /// The number of the next hop object that it leads to (`ip nexthop`), if it does.
    pub object: Option<u32>,
}

/// What becomes of packets to a destination (`rtm_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// They take a way.
    Unicast,
    /// They are dropped without an answer.
    Blackhole,
    /// They are answered: destination unreachable.
    Unreachable,
    /// They are answered: communication prohibited.
    Prohibit,
    /// The next table of the kernel's rules decides.
    Throw,
    /// They are for this host, or for many: `local`, `broadcast`, `anycast`, `multicast`.
    Local,
}

/// A way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Way {
    /// The number of the interface.
    pub device: u32,
    /// The next router, or `None` if the destinations are on the link. Its family may be another one.
    pub gateway: Option<IpAddr>,
    /// The share of flows, from 1 to 256.
    pub weight: u16,
    /// Whether the kernel does not use it, because the interface is down or has no link.
    pub is_dead: bool,
}

impl Way {
    /// Whether both lead to the same next hop with the same weight.
    pub fn is_same(&self, other: &Way) -> bool {
        (self.device, self.gateway, self.weight) == (other.device, other.gateway, other.weight)
    }
}

/// What few routes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// It is for packets with a type of service.
    TypeOfService,
    /// It is for packets with a source prefix.
    Source,
    /// It adds a header: a label or a tunnel.
    Encapsulation,
    /// It names a next hop object without saying what that is (`net.ipv4.nexthop_compat_mode = 0`).
    NextHopObject,
}

/// How a new route relates to those with the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It comes before them.
    First,
    /// It comes behind them.
    Last,
    /// It replaces the first of them.
    Replace,
}

/// A neighbour whose link-layer address an administrator has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelNeighbour {
    /// The number of the interface.
    pub device: u32,
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address, if it is permanent (`ip neighbour add … nud permanent`).
    pub mac: Option<MacAddr>,
}

/// A connection to the kernel's tables of routes and neighbours.
#[derive(Debug)]
pub struct RouteTables {
    connection: Connection,
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

impl RouteTables {
    /// Opens a connection to the tables of this thread's network namespace.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open() -> io::Result<RouteTables> {
        Ok(RouteTables { connection: Connection::open(NetlinkFamily::Route)? })
    }

    /// Reads the routes of a table, of both families, and gives each to `each` as it comes. Returns whether the tables
    /// stayed as they were meanwhile; if not, routes may be missing.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn routes(&mut self, table: u32, mut each: impl FnMut(KernelRoute)) -> io::Result<bool> {
        let mut is_consistent = true;
        for family in [AF_INET, AF_INET6] {
            let mut body = [0; parse::ROUTE_LEN];
            body[0] = family;
            let request = NetlinkRequest::new(parse::RTM_GETROUTE, DUMP, &body);
            is_consistent &= self.connection.dump(
                || "read the routes".to_owned(),
                &request,
                |message| {
                    if let Some(route) = parse::route(message).filter(|route| route.table == table) {
                        each(route);
                    }
                },
            )?;
        }
        Ok(is_consistent)
    }

    /// Reads the neighbours that an administrator has set.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn neighbours(&mut self, mut each: impl FnMut(KernelNeighbour)) -> io::Result<bool> {
        let request = NetlinkRequest::new(parse::RTM_GETNEIGH, DUMP, &[0; parse::NEIGHBOUR_LEN]);
        self.connection.dump(
            || "read the neighbours".to_owned(),
            &request,
            |message| {
                if let Some(neighbour) = parse::neighbour(message).filter(|neighbour| neighbour.mac.is_some()) {
                    each(neighbour);
                }
            },
        )
    }
}
