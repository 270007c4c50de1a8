//! Changes of interfaces, as the kernel reports them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use bellows_netdev::netlink::{NetlinkFamily, Socket};
use rustix::io::Errno;

use super::Interface;
use super::parse::{RTM_DELLINK, RTM_NEWLINK, interface};
use crate::netlink::messages;

/// `RTNLGRP_LINK`, as a bit.
const LINK_GROUP: u32 = 1;

/// A change of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The interface is new, or something about it has changed: state, link, MTU, name, offloads, …
    ///
    /// A rename keeps the number. Not reported are changes of IP addresses and of statistics, nor an XDP program that is
    /// attached or detached by a BPF link. Whether a change of queues is reported depends on the driver.
    Changed(Box<Interface>),
    /// The interface was deleted, or moved to another network namespace.
    Removed {
        /// Its number.
        index: u32,
        /// Its last name.
        name: String,
    },
    /// Changes came faster than they were read, and some were lost: all interfaces have to be listed again.
    Overrun,
}

/// A subscription to the changes of all interfaces of a network namespace. Never waits; its descriptor is readable when
/// there may be an event.
///
/// To miss nothing, open it before listing the interfaces.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    waiting: VecDeque<Event>,
}

impl Monitor {
    /// Subscribes to the changes in this thread's network namespace, from now on.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open() -> io::Result<Monitor> {
        Ok(Monitor { socket: Socket::with_groups(NetlinkFamily::Route, LINK_GROUP)?, waiting: VecDeque::new() })
    }

    /// The next change; `None` if there is none at the moment.
    ///
    /// # Errors
    /// Those of `recvfrom(2)`, none of which is expected.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            match self.socket.receive() {
                Ok(bytes) => self.waiting.extend(events(bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_overrun(&error) => return Ok(Some(Event::Overrun)),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether messages were lost: too many, or one that is too long.
fn is_overrun(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOBUFS) || error.kind() == io::ErrorKind::InvalidData
}

fn events(bytes: &[u8]) -> impl Iterator<Item = Event> {
    messages(bytes).filter_map(|message| {
        let interface = interface(&message)?;
        match message.kind {
            RTM_NEWLINK => Some(Event::Changed(Box::new(interface))),
            RTM_DELLINK => Some(Event::Removed { index: interface.index, name: interface.name }),
            _ => None,
        }
    })
}
