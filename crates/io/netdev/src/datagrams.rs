//! Frames as datagrams of Unix sockets, many for each system call.
//!
//! Each datagram of a `SOCK_DGRAM` socket is one Ethernet frame, as with QEMU's `-netdev dgram`.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use crate::messages::{self, Messages};

/// Maximum number of datagrams that one call receives.
pub const MAX_DATAGRAMS: usize = messages::BATCH;

/// The message arrays of one thread, for any number of sockets.
pub struct Datagrams {
    messages: Messages,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Number of bytes in its buffer.
    pub length: usize,
    /// Whether it was longer than the buffer (`MSG_TRUNC`). The rest is lost.
    pub truncated: bool,
}

impl Datagrams {
    /// Allocates the arrays.
    pub fn new() -> Datagrams {
        Datagrams { messages: Messages::new(false) }
    }

    /// Receives the datagrams that are there, one in each buffer, without waiting: at most [`MAX_DATAGRAMS`]. The
    /// datagrams are in the buffers in the order of the iterator, from the first one on.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; those of `recvmmsg(2)`.
    pub fn receive_many<'a>(
        &mut self,
        socket: impl AsFd,
        buffers: impl IntoIterator<Item = &'a mut [u8]>,
    ) -> io::Result<impl ExactSizeIterator<Item = Datagram>> {
        let count = self.messages.receive(socket.as_fd(), buffers)?;
        Ok((0..count).map(|index| {
            let (length, truncated) = self.messages.received(index);
            Datagram { length, truncated }
        }))
    }

    /// Sends datagrams in order, without waiting. Returns the number that the other side took, and the error of the
    /// one after them: `WouldBlock` if its queue is full (`net.unix.max_dgram_qlen`, the receiver's), `EMSGSIZE` for a
    /// datagram that is longer than the send buffer, `ECONNREFUSED` or `ENOTCONN` if the other side is gone. No signal
    /// is raised.
    pub fn send_many<'a>(
        &mut self,
        socket: impl AsFd,
        datagrams: impl IntoIterator<Item = &'a [u8]>,
    ) -> (usize, Option<io::Error>) {
        let messages = datagrams.into_iter().map(|bytes| (Default::default(), bytes));
        let (taken, error) = self.messages.send(socket.as_fd(), messages);
        (taken, error.map(io::Error::from))
    }
}

impl Default for Datagrams {
    fn default() -> Datagrams {
        Datagrams::new()
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Datagrams").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn buffers(count: usize, length: usize) -> Vec<Vec<u8>> {
        vec![vec![0; length]; count]
    }

    fn receive(socket: &UnixDatagram, buffers: &mut [Vec<u8>]) -> io::Result<Vec<Datagram>> {
        let mut datagrams = Datagrams::new();
        let received = datagrams.receive_many(socket, buffers.iter_mut().map(Vec::as_mut_slice))?;
        Ok(received.collect())
    }

    #[test]
    fn datagrams_arrive_in_order_with_their_lengths() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let mut buffers = buffers(100, 2000);
        assert_eq!(receive(&far, &mut buffers).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let sent: [&[u8]; 4] = [b"one", b"", &[7; 2000], &[8; 2001]];
        let (taken, error) = Datagrams::new().send_many(&near, sent);
        assert_eq!((taken, error.is_none()), (4, true));
        let whole = |length| Datagram { length, truncated: false };
        let expected = [whole(3), whole(0), whole(2000), Datagram { length: 2000, truncated: true }];
        assert_eq!(receive(&far, &mut buffers).unwrap(), expected);
        for (buffer, sent) in buffers.iter().zip(sent) {
            let length = sent.len().min(2000);
            assert_eq!(buffer[..length], sent[..length]);
        }
    }

    /// More datagrams than one call takes, and than the socket holds.
    #[test]
    fn what_the_socket_does_not_take_is_not_counted() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let frames: Vec<Vec<u8>> = (0..5000u32).map(|index| index.to_ne_bytes().to_vec()).collect();
        let (mut sender, mut receiver) = (Datagrams::new(), Datagrams::new());
        let (mut sent, mut received, mut was_full) = (0, 0, false);
        let deadline = bellows_testkit::wait::Deadline::new("the datagrams");
        while received < frames.len() {
            deadline.check();
            let (taken, error) = sender.send_many(&near, frames[sent..].iter().map(Vec::as_slice));
            sent += taken;
            was_full |= error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            assert_eq!(error.is_some(), sent < frames.len(), "{error:?}");
            let mut space = buffers(MAX_DATAGRAMS + 1, 8);
            let Ok(datagrams) = receiver.receive_many(&far, space.iter_mut().map(Vec::as_mut_slice)) else { continue };
            let lengths: Vec<Datagram> = datagrams.collect();
            assert!(lengths.len() <= MAX_DATAGRAMS);
            for (buffer, datagram) in space.iter().zip(lengths) {
                assert_eq!(buffer[..datagram.length], frames[received]);
                received += 1;
            }
        }
        assert!(was_full, "5000 datagrams do not fit into the socket");
    }

    #[test]
    fn a_socket_without_a_peer_is_an_error() {
        let (near, far) = UnixDatagram::pair().unwrap();
        drop(far);
        // A child that another test starts has a copy of each descriptor for a moment.
        let mut datagrams = Datagrams::new();
        bellows_testkit::eventually("the end of the peer", || {
            let (taken, error) = datagrams.send_many(&near, [&b"x"[..]]);
            taken == 0 && error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        });
        assert_eq!(Datagrams::new().receive_many(&near, []).unwrap().len(), 0);
    }
}
