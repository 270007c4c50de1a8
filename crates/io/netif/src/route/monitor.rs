//! Changes of routes and neighbours, as the kernel reports them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use bellows_netdev::netlink::{NetlinkFamily, Socket};
use rustix::io::Errno;

use super::parse::{RTM_DELROUTE, RTM_NEWROUTE, neighbour, next_hop_object, route};
use super::{Insertion, KernelNeighbour, KernelRoute};
use crate::interface::Interface;
use crate::interface::parse::{RTM_NEWLINK, interface};
use crate::netlink::{NetlinkMessage, messages, u32_at};

/// `RTNLGRP_LINK`, `RTNLGRP_NEIGH`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV6_IFADDR`,
/// `RTNLGRP_IPV6_ROUTE` and `RTNLGRP_NEXTHOP`, as bits.
const GROUPS: u32 = 1 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 31;

const RTM_DELADDR: u16 = 21;

const REPLACE: u16 = 0x100;
const APPEND: u16 = 0x800;

/// Room for changes that wait: a daemon that exchanges a table of the Internet sends some hundred bytes for each route.
const RECEIVE_BUFFER: usize = 32 << 20;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteEvent {
    /// There is a new route.
    Added(KernelRoute, Insertion),
    /// A route is gone. One of IPv6 with several ways may have lost these ways alone.
    Removed(KernelRoute),
    /// A neighbour has changed.
    Neighbour(KernelNeighbour),
    /// An interface has changed; `None` if it is gone. IPv4 routes may have gone with it without an event.
    Interface(u32, Option<Box<Interface>>),
    /// An interface has lost an address, and IPv4 routes may have gone with it without an event: those to its link, and
    /// those of any interface whose preferred source it was.
    AddressRemoved(u32),
    /// A next hop object is new, has changed, or is gone. IPv4 routes may have gone with it, or with a member of the group
    /// that it is, without an event.
    NextHopObject(u32),
    /// Changes came faster than they were read, and some were lost: everything has to be read again.
    Overrun,
}

/// A subscription to the changes of all tables of a network namespace. Never waits; its descriptor is readable when
/// there may be an event.
///
/// To miss nothing, open it before reading the tables.
#[derive(Debug)]
pub struct RouteMonitor {
    socket: Socket,
}

impl RouteMonitor {
    /// Subscribes to the changes in this thread's network namespace, from now on.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open() -> io::Result<RouteMonitor> {
        let socket = Socket::with_groups(NetlinkFamily::Route, GROUPS)?;
        // A small one loses changes, which is noticed.
        let _ = socket.set_receive_buffer(RECEIVE_BUFFER);
        Ok(RouteMonitor { socket })
    }

    /// Gives the changes of the next bytes that the kernel has sent to `each`. False if there are none at the moment.
    ///
    /// # Errors
    /// Those of `recvfrom(2)`, none of which is expected.
    pub fn next(&mut self, mut each: impl FnMut(RouteEvent)) -> io::Result<bool> {
        match self.socket.receive() {
            Ok(bytes) => {
                events(bytes).for_each(each);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if is_overrun(&error) => {
                each(RouteEvent::Overrun);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for RouteMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The changes that messages of the kernel report, in any bytes.
pub fn events(bytes: &[u8]) -> impl Iterator<Item = RouteEvent> + '_ {
    messages(bytes).filter_map(|message| event(&message))
}

/// Whether messages were lost: too many, or one that is too long.
fn is_overrun(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOBUFS) || error.kind() == io::ErrorKind::InvalidData
}

fn event(message: &NetlinkMessage<'_>) -> Option<RouteEvent> {
    match message.kind {
        RTM_NEWROUTE => {
            let insertion = match message.flags {
                flags if flags & REPLACE != 0 => Insertion::Replace,
                flags if flags & APPEND != 0 => Insertion::Last,
                _ => Insertion::First,
            };
            Some(RouteEvent::Added(route(message)?, insertion))
        }
        RTM_DELROUTE => Some(RouteEvent::Removed(route(message)?)),
        // `struct ifaddrmsg`: family, prefix, flags, scope, interface.
        RTM_DELADDR => Some(RouteEvent::AddressRemoved(u32_at(message.body, 4)?)),
        _ => {
            if let Some(interface) = interface(message) {
                let index = interface.index;
                let now = (message.kind == RTM_NEWLINK).then(|| Box::new(interface));
                return Some(RouteEvent::Interface(index, now));
            }
            if let Some(number) = next_hop_object(message) {
                return Some(RouteEvent::NextHopObject(number));
            }
            neighbour(message).map(RouteEvent::Neighbour)
        }
    }
}
