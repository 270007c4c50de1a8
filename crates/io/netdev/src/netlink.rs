//! Netlink sockets: messages to and from the kernel's tables of interfaces and addresses (see `netlink(7)`).
//!
//! A socket carries whole messages of bytes; what they mean is up to others. It belongs to the network namespace of the
//! thread that opens it. The kernel handles a request before the call that sends it returns, so its answers can be
//! received at once.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto, socket_with,
    sockopt,
};

/// The largest message that is received. The kernel sends an interface in less than 4 KiB, and fills at most 32 KiB
/// when it sends a whole table.
const MAX_LEN: usize = 1 << 16;

/// A family of netlink messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkFamily {
    /// Interfaces, addresses and routes: `rtnetlink(7)`.
    Route,
    /// Families that have names: `linux/genetlink.h`.
    Generic,
}

/// A netlink socket. It never waits.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket for requests. Its errors come with an explanation, if the kernel has one (`NETLINK_EXT_ACK`).
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open(family: NetlinkFamily) -> io::Result<Socket> {
        Self::with_groups(family, 0)
    }

    /// Opens a socket that also receives the notifications of groups; bit N is group N + 1.
    ///
    /// # Errors
    /// Those of `socket(2)` and `bind(2)`.
    pub fn with_groups(family: NetlinkFamily, groups: u32) -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol: Option<Protocol> = match family {
            NetlinkFamily::Route => None,
            NetlinkFamily::Generic => Some(GENERIC),
        };
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&descriptor, &SocketAddrNetlink::new(0, groups))?;
        let socket = Socket { descriptor, buffer: vec![0; MAX_LEN] };
        // An answer repeats the request unless NETLINK_CAP_ACK is set.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            socket.enable(option)?;
        }
        Ok(socket)
    }

    fn enable(&self, option: libc::c_int) -> io::Result<()> {
        let on: libc::c_int = 1;
        // SAFETY: the option's value is an int, of which the kernel reads as many bytes as are given.
        let result = unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_NETLINK,
                option,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Asks for room for `bytes` bytes of messages that wait. Without `CAP_NET_ADMIN` the system's limit applies.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        let forced = sockopt::set_socket_recv_buffer_size_force(&self.descriptor, bytes);
        Ok(forced.or_else(|_| sockopt::set_socket_recv_buffer_size(&self.descriptor, bytes))?)
    }

    /// Sends a request to the kernel, which handles it before this returns.
    ///
    /// # Errors
    /// Those of `sendto(2)`.
    pub fn send(&self, request: &[u8]) -> io::Result<()> {
        let sent = sendto(&self.descriptor, request, SendFlags::NOSIGNAL, &SocketAddrNetlink::new(0, 0))?;
        if sent == request.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Receives bytes from the kernel, which contain one or more messages. Bytes from other processes are ignored.
    ///
    /// # Errors
    /// `WouldBlock` if there are none; the error `ENOBUFS` if messages were lost, because they came faster than they
    /// were received; `InvalidData` for a message of more than 64 KiB, which is lost.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        let len = loop {
            let received = recvfrom(&self.descriptor, &mut *self.buffer, RecvFlags::TRUNC | RecvFlags::DONTWAIT);
            let (_, len, sender) = match received {
                Err(Errno::INTR) => continue,
                received => received?,
            };
            let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
            // The kernel's number is 0.
            if sender.is_some_and(|sender| sender.pid() == 0) {
                break len;
            }
        };
        self.buffer.get(..len).ok_or_else(|| {
            let message = format!("a netlink message of {len} bytes is longer than {MAX_LEN}");
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }
}

impl AsFd for Socket {
    /// Readable when there is a message, or when messages were lost.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use bellows_sys::wake::sleep_until_readable;

    /// A header without a body, of a type that every family answers with an error.
    fn invalid_request() -> Vec<u8> {
        const REQUEST_AND_ACK: u16 = 5;
        let mut bytes = 16u32.to_ne_bytes().to_vec();
        bytes.extend(0x0fu16.to_ne_bytes());
        bytes.extend(REQUEST_AND_ACK.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn answers_are_there_when_the_request_is_sent() {
        for family in [NetlinkFamily::Route, NetlinkFamily::Generic] {
            let mut socket = Socket::open(family).unwrap();
            assert_eq!(socket.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let is_readable =
                |socket: &Socket| sleep_until_readable(&[socket.as_fd()], Some(Duration::ZERO)).unwrap()[0];
            assert!(!is_readable(&socket));
            socket.send(&invalid_request()).unwrap();
            assert!(is_readable(&socket));
            let answer = socket.receive().unwrap();
            // NLMSG_ERROR with the sequence number of the request.
            assert_eq!((&answer[4..6], &answer[8..12]), (&2u16.to_ne_bytes()[..], &7u32.to_ne_bytes()[..]));
            assert_eq!(socket.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn bytes_of_other_processes_are_ignored() {
        let mut socket = Socket::open(NetlinkFamily::Route).unwrap();
        let address = rustix::net::getsockname(&socket.descriptor).unwrap();
        let address = SocketAddrNetlink::try_from(address).unwrap();
        let other = Socket::open(NetlinkFamily::Route).unwrap();
        // Without a privilege the kernel may refuse this: then there is nothing to ignore.
        let _ = sendto(&other.descriptor, b"not from the kernel", SendFlags::empty(), &address);
        assert_eq!(socket.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
