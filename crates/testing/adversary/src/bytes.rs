//! A driver's process scripted by bytes.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bellows_ipc::memfd;
use bellows_ipc::socket::send;
use bellows_sys::wake::{WakeEvent, sleep_until_readable};
use bellows_virtio::Features;
use bellows_virtio::vhost::{ProtocolFeatures, VhostRequest};
use rustix::io::Errno;

use crate::peer::{GUEST, USER};

/// Length of the shared memory.
const LENGTH: u64 = 1 << 20;

/// Maximum time for any response of the device.
const LIMIT: Duration = Duration::from_secs(20);

/// A driver's process scripted by bytes: each byte decides the next action, so that a fuzzer can find the interesting
/// ones.
///
/// It keeps reading whatever it sends. It waits at most 20 seconds for a response, and then panics, because the device
/// does not serve.
pub struct ScriptedDriver<'a> {
    socket: UnixStream,
    input: &'a [u8],
    memory: File,
    /// Incomplete replies, and the number of replies to GET_FEATURES.
    heard: Vec<u8>,
    answers: u32,
    /// Whether the device has closed the connection.
    gone: bool,
}

impl<'a> ScriptedDriver<'a> {
    /// Creates a connected driver with a script.
    ///
    /// # Panics
    /// If the system has no free memory or descriptor; also in all other methods.
    pub fn new(socket: UnixStream, input: &'a [u8]) -> ScriptedDriver<'a> {
        socket.set_nonblocking(true).expect("a socket");
        let memory = memfd::create(LENGTH).expect("memory");
        ScriptedDriver { socket, input, memory, heard: Vec::new(), answers: 0, gone: false }
    }

    /// Sends a request that every device answers.
    pub fn greet(&mut self) {
        self.send(VhostRequest::GET_FEATURES as u32, 0, &[], &[]);
    }

    /// Whether the device has answered, and so serves this connection. Does not wait.
    pub fn is_served(&mut self) -> bool {
        self.listen();
        self.answers > 0
    }

    /// Whether the script has ended, or the device has closed the connection.
    pub fn is_done(&self) -> bool {
        self.input.is_empty() || self.gone
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        *first
    }

    /// Does the next action, and reads replies.
    ///
    /// # Panics
    /// If the device does not read, or sends an invalid reply.
    pub fn say(&mut self) {
        if !self.is_done() {
            self.take_step();
            self.listen();
        }
    }

    fn take_step(&mut self) {
        match self.byte() {
            // The start of an honest front end, so that the bytes need not find it.
            200..=219 => self.begin(),
            // A ring that can run.
            220..=235 => self.ring(),
            236..=239 => self.poke(),
            240 => {
                self.settle();
                let length = u64::from(self.byte()) * 4096;
                let _ = self.memory.set_len(length);
            }
            241 => self.memory = memfd::create(LENGTH).expect("memory"),
            242..=249 => self.raw(),
            request => self.message(request.into()),
        }
    }

    /// Waits until all replies have come, or for a moment if the device waits for the rest of a message.
    fn settle(&mut self) {
        let (start, answers) = (Instant::now(), self.answers);
        self.send(VhostRequest::GET_FEATURES as u32, 0, &[], &[]);
        while self.answers == answers && !self.gone && start.elapsed() < Duration::from_millis(20) {
            let _ = sleep_until_readable(&[self.socket.as_fd()], Some(Duration::from_millis(1)));
            self.listen();
        }
    }

    fn begin(&mut self) {
        let features = self.features();
        self.send(VhostRequest::GET_PROTOCOL_FEATURES as u32, 0, &[], &[]);
        self.send(VhostRequest::SET_PROTOCOL_FEATURES as u32, 0, &ProtocolFeatures::BACKEND.0.to_le_bytes(), &[]);
        self.send(VhostRequest::SET_FEATURES as u32, 0, &features.to_le_bytes(), &[]);
        let mut body = 1_u64.to_le_bytes().to_vec();
        [GUEST, LENGTH, USER, 0].iter().for_each(|number| body.extend(number.to_le_bytes()));
        let memory = self.memory.try_clone().expect("a descriptor");
        self.send(VhostRequest::SET_MEM_TABLE as u32, 0, &body, &[memory.as_fd()]);
    }

    fn ring(&mut self) {
        let index = u32::from(self.byte() % 4);
        let size = 1_u32 << (self.byte() % 9);
        let start = USER + u64::from(index) * 0x2_0000;
        self.send(VhostRequest::SET_VRING_NUM as u32, 0, &[index.to_le_bytes(), size.to_le_bytes()].concat(), &[]);
        let base = u32::from(self.byte() & 0x0f) | u32::from(self.byte()) << 8;
        self.send(VhostRequest::SET_VRING_BASE as u32, 0, &[index.to_le_bytes(), base.to_le_bytes()].concat(), &[]);
        let mut body = [index.to_le_bytes(), u32::from(self.byte() & 1).to_le_bytes()].concat();
        [start, start + 0x4000, start + 0x2000, 0].iter().for_each(|number| body.extend(number.to_le_bytes()));
        self.send(VhostRequest::SET_VRING_ADDR as u32, 0, &body, &[]);
        let event = WakeEvent::new().expect("an event");
        self.send(VhostRequest::SET_VRING_CALL as u32, 0, &u64::from(index).to_le_bytes(), &[event.as_fd()]);
        self.send(VhostRequest::SET_VRING_KICK as u32, 0, &u64::from(index).to_le_bytes(), &[event.as_fd()]);
        self.send(VhostRequest::SET_VRING_ENABLE as u32, 0, &[index.to_le_bytes(), 1_u32.to_le_bytes()].concat(), &[]);
    }

    /// Writes into the memory, mostly into a ring.
    fn poke(&mut self) {
        let area = [0, 0x2000, 0x2002, 0x2004, 0x4000, 0x8000][usize::from(self.byte() % 6)];
        let at = u64::from(self.byte() % 4) * 0x2_0000 + area + u64::from(self.byte()) * 2;
        let count = usize::from(self.byte()).min(self.input.len());
        let (now, later) = self.input.split_at(count);
        let _ = self.memory.write_all_at(now, at);
        self.input = later;
    }

    /// Sends raw bytes.
    fn raw(&mut self) {
        let count = usize::from(self.byte()).min(self.input.len());
        let (now, later) = self.input.split_at(count);
        self.input = later;
        let files = self.files();
        self.write(now, &files.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    }

    /// Sends a message of any type, with a body of plausible numbers.
    fn message(&mut self, request: u32) {
        let shape = self.byte();
        let mut body = Vec::new();
        match shape % 8 {
            0 => {}
            1 => body.extend(self.number().to_le_bytes()),
            2 => body.extend([self.small(), self.small()].map(u32::to_le_bytes).concat()),
            3 => {
                body.extend([self.small(), self.small()].map(u32::to_le_bytes).concat());
                (0..4).for_each(|_| body.extend(self.number().to_le_bytes()));
            }
            4 => (0..5).for_each(|_| body.extend(self.number().to_le_bytes())),
            5 => (0..2).for_each(|_| body.extend(self.number().to_le_bytes())),
            6 => {
                (0..2).for_each(|_| body.extend(self.number().to_le_bytes()));
                body.extend([self.small() as u16, self.small() as u16].map(u16::to_le_bytes).concat());
            }
            _ => {
                let count = usize::from(self.byte()).min(self.input.len());
                let (now, later) = self.input.split_at(count);
                body.extend(now);
                self.input = later;
            }
        }
        let flags = if shape & 0x80 != 0 { 8 } else { 0 };
        let files = if shape & 0x40 != 0 { self.files() } else { Vec::new() };
        self.send(request, flags, &body, &files.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    }

    fn features(&mut self) -> u64 {
        let all = Features::DEVICE;
        let named = Features::NAMED;
        let mut chosen = all;
        for _ in 0..self.byte() % 8 {
            chosen = chosen.without(named[usize::from(self.byte()) % named.len()].1);
        }
        if self.byte() & 1 == 0 {
            chosen = chosen.without(Features::PROTOCOL_FEATURES);
        }
        chosen.coherent().0
    }

    fn number(&mut self) -> u64 {
        let offset = u64::from(self.byte());
        match self.byte() % 12 {
            0 => offset,
            1 => USER + offset * 0x1000,
            2 => GUEST + offset * 0x1000,
            3 => offset * 0x1000,
            4 => LENGTH,
            5 => u64::MAX - offset,
            6 => USER + LENGTH - offset,
            7 => self.features(),
            8 => 0x100 | offset,
            9 => GUEST + offset * LENGTH,
            10 => USER + offset * LENGTH,
            _ => 1 << (offset % 64),
        }
    }

    fn small(&mut self) -> u32 {
        const NUMBERS: [u32; 16] =
            [0, 1, 2, 3, 4, 5, 8, 64, 100, 256, 0x7fff, 0x8000, 0x8001, 0xffff, 1 << 20, u32::MAX];
        NUMBERS[usize::from(self.byte() % 16)]
    }

    /// Some descriptors, of all kinds.
    fn files(&mut self) -> Vec<OwnedFd> {
        let count = self.byte();
        let count = if count >= 250 { 12 } else { count % 4 };
        (0..count).map(|_| self.file()).collect()
    }

    fn file(&mut self) -> OwnedFd {
        match self.byte() % 10 {
            0..=2 => self.memory.try_clone().expect("a descriptor").into(),
            3..=5 => WakeEvent::new().expect("an event").as_fd().try_clone_to_owned().expect("a descriptor"),
            6 => memfd::create(u64::from(self.byte()) * 4096).expect("memory").into(),
            7 => std::io::pipe().expect("a pipe").0.into(),
            8 => File::open("/").expect("a folder").into(),
            _ => self.socket.try_clone().expect("a descriptor").into(),
        }
    }

    fn send(&mut self, request: u32, flags: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let header = [request, flags | 1, body.len() as u32].map(u32::to_le_bytes).concat();
        self.write(&[&header, body].concat(), files);
    }

    /// Writes all bytes, and keeps reading, so that the other side never has to wait.
    fn write(&mut self, mut bytes: &[u8], mut files: &[BorrowedFd<'_>]) {
        let start = Instant::now();
        while !bytes.is_empty() && !self.gone {
            assert!(start.elapsed() < LIMIT, "the device does not read");
            match send(&self.socket, bytes, files) {
                Ok(sent) => (bytes, files) = (&bytes[sent..], &[]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.listen(),
                // The number of messages with descriptors in flight is limited.
                Err(error) if error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error()) => {
                    std::thread::yield_now()
                }
                Err(_) => self.gone = true,
            }
        }
    }

    fn listen(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => self.gone = true,
                Ok(count) => {
                    self.heard.extend(&bytes[..count]);
                    self.understand();
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.gone = true,
            }
            return;
        }
    }

    /// Takes complete replies from the received bytes, and counts those to GET_FEATURES.
    fn understand(&mut self) {
        while self.heard.len() >= 12 {
            let number = |at: usize| u32::from_le_bytes(self.heard[at..at + 4].try_into().expect("four bytes"));
            let (request, flags, size) = (number(0), number(4), number(8) as usize);
            assert_eq!(flags, 5, "every message of a device is a reply of version 1");
            if self.heard.len() < 12 + size {
                return;
            }
            self.answers += u32::from(request == VhostRequest::GET_FEATURES as u32);
            self.heard.drain(..12 + size);
        }
    }

    /// Stops sending, and waits until the device has closed.
    ///
    /// # Panics
    /// If it does not.
    pub fn finish(mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
        let start = Instant::now();
        while !self.gone {
            assert!(start.elapsed() < LIMIT, "the device does not close");
            let _ = sleep_until_readable(&[self.socket.as_fd()], Some(Duration::from_secs(1)));
            self.listen();
        }
    }
}
