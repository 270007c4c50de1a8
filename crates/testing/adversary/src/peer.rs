//! A front end that sends what it is told, and never waits.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use bellows_ipc::{memfd, socket};
use bellows_sys::wake::WakeEvent;
use bellows_virtio::Features;
use bellows_virtio::vhost::{ProtocolFeatures, VhostRequest};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// The memory that a [`HostilePeer`] shares: its length, its guest address and its address in the process.
pub(super) const LENGTH: u64 = 16 << 20;
/// See [`LENGTH`].
pub(super) const GUEST: u64 = 0x10_0000;
/// See [`LENGTH`].
pub(super) const USER: u64 = 0x7f00_0000_0000;

/// Descriptors of each ring.
pub(super) const SIZE: u16 = 256;

/// Offsets of a ring and its parts in the memory: descriptors, the driver's area, the device's area.
const RING: u64 = 0x2_0000;
const DRIVER: u64 = 0x2000;
const DEVICE: u64 = 0x4000;

/// Bits of a descriptor's flags.
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

/// A descriptor: guest address, length, flags, next.
pub(super) type Descriptor = (u64, u32, u16, u16);

/// A front end at a device's socket.
pub(super) struct HostilePeer {
    socket: UnixStream,
    /// The memory shared with the device.
    pub(super) memory: File,
    /// Whether the device has closed the connection.
    pub(super) gone: bool,
    /// Whether the device has sent anything.
    pub(super) heard: bool,
    /// The last available index written for each ring.
    available: [u16; 2],
    /// Notifications to the device of available buffers, and from it of used ones.
    pub(super) kicks: [WakeEvent; 2],
    pub(super) calls: [WakeEvent; 2],
    /// Descriptors that an attack keeps open.
    pub(super) held: Vec<OwnedFd>,
}

impl HostilePeer {
    /// Connects.
    ///
    /// # Errors
    /// Those of [`socket::connect`], and system errors: out of memory or descriptors.
    pub(super) fn connect(path: &Path) -> io::Result<HostilePeer> {
        Ok(HostilePeer {
            socket: socket::connect(path)?,
            memory: memfd::create(LENGTH)?,
            gone: false,
            heard: false,
            available: [0; 2],
            kicks: [WakeEvent::new()?, WakeEvent::new()?],
            calls: [WakeEvent::new()?, WakeEvent::new()?],
            held: Vec::new(),
        })
    }

    /// Sends raw bytes. Bytes that the socket does not accept are lost; a connection that has ended is
    /// [gone](HostilePeer::gone).
    pub(super) fn raw(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        match socket::send(&self.socket, bytes, files) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // The number of messages with descriptors in flight is limited.
            Err(error) if error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error()) => {}
            Err(_) => self.gone = true,
        }
    }

    /// Sends a request.
    pub(super) fn send(&mut self, request: VhostRequest, body: &[u8], files: &[BorrowedFd<'_>]) {
        let header = [request as u32, 1, body.len() as u32].map(u32::to_le_bytes).concat();
        self.raw(&[&header, body].concat(), files);
    }

    /// Sends a request with a body of 32-bit numbers.
    pub(super) fn words(&mut self, request: VhostRequest, words: &[u32]) {
        self.send(request, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>(), &[]);
    }

    /// Sends a request with a body of 64-bit numbers.
    pub(super) fn numbers(&mut self, request: VhostRequest, numbers: &[u64], files: &[BorrowedFd<'_>]) {
        self.send(request, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>(), files);
    }

    /// Reads and discards the device's replies.
    pub(super) fn listen(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match socket::receive(&self.socket, &mut bytes) {
                Ok(received) if received.bytes > 0 => self.heard = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => {
                    self.gone = true;
                    return;
                }
            }
        }
    }

    /// Negotiates these features and shares the memory, whose pages all exist: the device need not create them.
    pub(super) fn begin(&mut self, features: Features) {
        let _ = fallocate(&self.memory, FallocateFlags::empty(), 0, LENGTH);
        if features.has(Features::PROTOCOL_FEATURES) {
            self.numbers(VhostRequest::GET_PROTOCOL_FEATURES, &[], &[]);
            self.numbers(VhostRequest::SET_PROTOCOL_FEATURES, &[ProtocolFeatures::BACKEND.0], &[]);
        }
        self.numbers(VhostRequest::SET_FEATURES, &[features.0], &[]);
        self.share_memory();
    }

    /// Shares the memory, again if it has been shared before.
    pub(super) fn share_memory(&mut self) {
        let Ok(memory) = self.memory.try_clone() else { return };
        self.numbers(VhostRequest::SET_MEM_TABLE, &[1, GUEST, LENGTH, USER, 0], &[memory.as_fd()]);
    }

    /// Starts a ring anew at this position. The entries of the ring name the descriptors in order.
    pub(super) fn start(&mut self, index: usize, position: u16) {
        let number = index as u32;
        let start = index as u64 * RING;
        let entries: Vec<u8> = (0..SIZE).flat_map(u16::to_le_bytes).collect();
        self.write(start + DRIVER + 4, &entries);
        self.set_available(index, position);
        self.write(start + DEVICE + 2, &position.to_le_bytes());
        self.words(VhostRequest::SET_VRING_NUM, &[number, SIZE.into()]);
        self.words(VhostRequest::SET_VRING_BASE, &[number, position.into()]);
        let mut body = [number.to_le_bytes(), 0_u32.to_le_bytes()].concat();
        for address in [USER + start, USER + start + DEVICE, USER + start + DRIVER, 0] {
            body.extend(address.to_le_bytes());
        }
        self.send(VhostRequest::SET_VRING_ADDR, &body, &[]);
        self.tell_events(index);
        self.words(VhostRequest::SET_VRING_ENABLE, &[number, 1]);
    }

    /// Passes the events of a ring to the device; the second one starts the ring.
    pub(super) fn tell_events(&mut self, index: usize) {
        let copies = [&self.calls[index], &self.kicks[index]].map(|event| event.as_fd().try_clone_to_owned());
        let [Ok(call), Ok(kick)] = copies else { return };
        self.numbers(VhostRequest::SET_VRING_CALL, &[index as u64], &[call.as_fd()]);
        self.numbers(VhostRequest::SET_VRING_KICK, &[index as u64], &[kick.as_fd()]);
    }

    /// Stops a ring and starts it again at the device's position.
    pub(super) fn restart(&mut self, index: usize) {
        let used = self.used(index);
        self.words(VhostRequest::GET_VRING_BASE, &[index as u32, 0]);
        self.start(index, used);
    }

    /// Writes into the shared memory, as far as it exists.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) {
        let _ = self.memory.write_all_at(bytes, at);
    }

    /// Writes descriptors of a ring, starting with the first.
    pub(super) fn descriptors(&self, index: usize, descriptors: &[Descriptor]) {
        self.table(index as u64 * RING, descriptors);
    }

    /// Writes descriptors at any address.
    pub(super) fn table(&self, at: u64, descriptors: &[Descriptor]) {
        let mut bytes = Vec::with_capacity(16 * descriptors.len());
        for (address, length, flags, next) in descriptors {
            bytes.extend(address.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(next.to_le_bytes());
        }
        self.write(at, &bytes);
    }

    /// The device's position on a ring.
    pub(super) fn used(&self, index: usize) -> u16 {
        let mut bytes = [0; 2];
        // If it cannot be read, it is 0.
        let _ = self.memory.read_exact_at(&mut bytes, index as u64 * RING + DEVICE + 2);
        u16::from_le_bytes(bytes)
    }

    /// Makes everything that the device has used available again: the whole ring is.
    pub(super) fn refill(&mut self, index: usize) {
        let all = self.used(index).wrapping_add(SIZE);
        self.set_available(index, all);
    }

    /// Makes `count` descriptors available.
    pub(super) fn set_available(&mut self, index: usize, position: u16) {
        if self.available[index] != position {
            self.available[index] = position;
            self.write(index as u64 * RING + DRIVER + 2, &position.to_le_bytes());
        }
    }
}
