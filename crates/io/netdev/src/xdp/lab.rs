//! For the tests: network namespaces with pairs of virtual interfaces, and ports on them.

use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::process::Command;
use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use bellows_testkit::netns::wait_for_carriers;
use bellows_testkit::skip;
use bellows_testkit::skips::skip_here;
use bellows_testkit::wait::{Deadline, eventually, output};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netdevice};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::{BindOptions, CopyMode, Kick, MORE, Memory, RingSizes, Rings, Socket, position};
use crate::bpf::{AttachError, BpfLink, Filter, Mode, Program, SocketMap};
use bellows_sys::memory::{HUGE_PAGE, Reservation};
use bellows_sys::wake::sleep_until_readable;

/// Runs a test on a thread in a network namespace of its own, which ends with the thread and its sockets.
pub fn in_namespace(test: &str, body: impl FnOnce() + Send) {
    if let Some(reason) = bellows_testkit::programs::missing(&["ip"]) {
        return skip(test, reason);
    }
    match Socket::new(RINGS) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT) => {
            return skip_here(test, "the kernel has no AF_XDP sockets");
        }
        _ => {}
    }
    let work = || {
        // SAFETY: a new network namespace changes no descriptor.
        match unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            Ok(()) => {}
            Err(Errno::PERM) => return skip(test, "a network namespace takes CAP_SYS_ADMIN"),
            Err(error) => panic!("a new network namespace: {error}"),
        }
        // Otherwise the kernel sends frames of its own.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        body();
    };
    thread::scope(|scope| {
        if let Err(panic) = scope.spawn(work).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Whether the kernel is of this version or newer; if not, the test is skipped.
pub fn has_linux(test: &str, version: (u32, u32)) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|other: char| !other.is_ascii_digit()).map_while(|number| number.parse().ok());
    let running = (numbers.next().unwrap(), numbers.next().unwrap_or(0));
    if running < version {
        skip_here(test, format!("needs Linux {}.{}, not {}", version.0, version.1, release.trim()));
    }
    running >= version
}

/// Runs `ip` in the thread's namespace and returns what it prints.
pub fn ip(arguments: &str) -> String {
    let result = output(Command::new("ip").args(arguments.split_ascii_whitespace())).unwrap();
    assert!(result.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&result.stderr));
    String::from_utf8(result.stdout).unwrap()
}

/// Makes two interfaces that are connected, both up, and returns their numbers.
pub fn pair(one: &str, other: &str, mtu: u32) -> [u32; 2] {
    ip(&format!("link add {one} mtu {mtu} type veth peer name {other} mtu {mtu}"));
    for name in [one, other] {
        ip(&format!("link set {name} up"));
    }
    wait_for_carriers(&[one, other]);
    [one, other].map(index)
}

/// The number of an interface.
pub fn index(name: &str) -> u32 {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    netdevice::name_to_index(&socket, name).unwrap()
}

/// The number of the XDP program of an interface.
pub fn attached(name: &str) -> Option<NonZeroU32> {
    let shown = ip(&format!("-d link show dev {name}"));
    let (_, id) = shown.split_once("prog/xdp id ")?;
    id.split_ascii_whitespace().next().unwrap().parse().ok()
}

/// Closes a program and waits until the interface has none: a child that another test has just started shares the
/// descriptor until it executes its own program.
pub fn detach(program: Attached, name: &str) {
    drop(program);
    eventually("a closed program is gone", || attached(name).is_none());
}

/// Small rings, so that the tests go around them.
const RINGS: RingSizes = RingSizes { fill: 64, completion: 64, rx: 64, tx: 64 };

/// How a port uses its memory and its interface.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub mode: Mode,
    pub chunk_size: u32,
    /// Bytes from one chunk to the next.
    pub stride: u64,
    /// Where the first chunk begins.
    pub first: u64,
    pub unaligned: bool,
    pub multi_buffer: bool,
    pub need_wakeup: bool,
    pub tx_metadata_length: u32,
}

impl Setup {
    /// Chunks of a page.
    pub const PLAIN: Setup = Setup {
        mode: Mode::Native,
        chunk_size: 4096,
        stride: 4096,
        first: 0,
        unaligned: false,
        multi_buffer: false,
        need_wakeup: true,
        tx_metadata_length: 0,
    };

    pub fn options(&self) -> BindOptions {
        BindOptions { copy: CopyMode::Auto, need_wakeup: self.need_wakeup, multi_buffer: self.multi_buffer }
    }

    pub fn memory(&self, area: &Reservation) -> Memory {
        Memory {
            start: area.start(),
            length: area.length(),
            chunk_size: self.chunk_size,
            headroom: 0,
            unaligned: self.unaligned,
            tx_metadata_length: self.tx_metadata_length,
            software_checksum: self.tx_metadata_length != 0,
        }
    }
}

/// A socket with registered memory, not bound.
pub struct LabPort {
    pub socket: Socket,
    pub rings: Rings,
    pub setup: Setup,
    memory: NonNull<u8>,
    length: u64,
    /// The number of the next chunk to use, for receiving or sending.
    next: u64,
}

impl LabPort {
    pub fn new(setup: Setup) -> LabPort {
        let area = Reservation::new(HUGE_PAGE).unwrap();
        let (socket, rings) = Socket::new(RINGS).unwrap();
        let port = LabPort { socket, rings, setup, memory: area.start(), length: area.length() as u64, next: 0 };
        // SAFETY: the area is mapped until the process ends, and only the port's methods access it: chunks that they
        // push to the rings, by pointers, when the kernel has given them back or before.
        unsafe { port.socket.register_memory(&setup.memory(&area)) }.unwrap();
        port
    }

    /// A socket that will share the memory of this one.
    pub fn sharing(&self) -> LabPort {
        let (socket, rings) = Socket::new(RINGS).unwrap();
        // The upper half of the chunks.
        let next = self.length / self.setup.stride / 2;
        LabPort { socket, rings, next, ..*self }
    }

    /// Binds the socket to queue 0 as its setup says, as soon as another one has left it.
    pub fn bind(&self, interface: u32) {
        let deadline = Deadline::new("the queue is free");
        while let Err(error) = self.socket.bind(interface, 0, self.setup.options()) {
            assert_eq!(Errno::from_io_error(&error), Some(Errno::BUSY), "{error}");
            deadline.check();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A new port, bound to an interface whose frames come to it.
    pub fn open(interface: u32, setup: Setup) -> (LabPort, Attached) {
        let port = LabPort::new(setup);
        port.bind(interface);
        let attached = port.attach(interface).unwrap();
        (port, attached)
    }

    /// Attaches a program that gives all frames of the interface to this socket.
    pub fn attach(&self, interface: u32) -> Result<Attached, AttachError> {
        let map = SocketMap::new(1).unwrap();
        map.insert(0, self.socket.as_fd()).unwrap();
        let program = Program::load(&Filter::all(), &map, self.setup.multi_buffer).unwrap();
        Ok(Attached { _link: program.attach(interface, self.setup.mode)?, _map: map })
    }

    /// The offset of the next chunk.
    fn chunk(&mut self) -> u64 {
        let chunks = (self.length - self.setup.first - u64::from(self.setup.chunk_size)) / self.setup.stride;
        let offset = self.setup.first + self.next % chunks * self.setup.stride;
        self.next += 1;
        offset
    }

    /// Gives the kernel chunks to receive into, and returns their offsets.
    pub fn fill(&mut self, count: u32) -> Vec<u64> {
        assert!(self.rings.fill.free() >= count);
        let chunks: Vec<u64> = (0..count).map(|_| self.chunk()).collect();
        chunks.iter().for_each(|chunk| self.rings.fill.push(*chunk));
        self.rings.fill.publish();
        chunks
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.length);
        // SAFETY: the bytes are inside the memory, of which this port alone uses this part.
        unsafe { self.memory.add(offset as usize).copy_from(NonNull::from(bytes).cast(), bytes.len()) };
    }

    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        assert!(offset + length as u64 <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: the bytes are inside the memory, and the kernel does not write to a chunk that it has given back.
        unsafe { self.memory.add(offset as usize).copy_to(NonNull::from(bytes.as_mut_slice()).cast(), length) };
        bytes
    }

    /// Puts a frame into the transmit ring, in parts of at most this length.
    pub fn push(&mut self, frame: &[u8], part: usize) {
        let last = frame.len().div_ceil(part) - 1;
        for (index, bytes) in frame.chunks(part).enumerate() {
            let offset = self.chunk();
            self.write(offset, bytes);
            self.rings.tx.push(offset, bytes.len() as u32, if index < last { MORE } else { 0 });
        }
        self.rings.tx.publish();
    }

    /// Sends what is in the transmit ring and takes the completions of `count` chunks.
    pub fn flush(&mut self, count: u32) -> Vec<u64> {
        let deadline = Deadline::new("frames are sent");
        let mut sent = Vec::new();
        while sent.len() < count as usize {
            deadline.check();
            let kicked = self.socket.kick().unwrap();
            assert!(matches!(kicked, Kick::Done | Kick::Again), "{kicked:?}");
            let available = self.rings.completion.available();
            sent.extend((0..available).map(|index| self.rings.completion.get(index)));
            self.rings.completion.release(available);
        }
        assert_eq!(sent.len(), count as usize);
        sent
    }

    /// Sends a frame.
    pub fn send(&mut self, frame: &[u8]) {
        self.push(frame, frame.len());
        self.flush(1);
    }

    /// Waits for a frame, and returns where it begins and its bytes.
    pub fn receive(&mut self) -> (u64, Vec<u8>) {
        let (parts, bytes) = self.receive_parts();
        assert_eq!(parts.len(), 1, "one part");
        (parts[0], bytes)
    }

    /// Waits for a frame, and returns where its parts begin and all its bytes.
    pub fn receive_parts(&mut self) -> (Vec<u64>, Vec<u8>) {
        let deadline = Deadline::new("a frame arrives");
        let mut parts = Vec::new();
        let mut bytes = Vec::new();
        loop {
            deadline.check();
            let before = self.rings.rx.counts().consumed();
            if self.rings.rx.available() == 0 {
                sleep_until_readable(&[self.socket.as_fd()], Some(Duration::from_millis(100))).unwrap();
                continue;
            }
            assert_ne!(self.rings.rx.counts().produced().load(std::sync::atomic::Ordering::Relaxed), before);
            let descriptor = self.rings.rx.get(0);
            self.rings.rx.release(1);
            parts.push(descriptor.address);
            bytes.extend(self.read(position(descriptor.address), descriptor.length as usize));
            if !descriptor.more {
                return (parts, bytes);
            }
        }
    }
}

/// The program of an interface, until it is dropped.
pub struct Attached {
    _link: BpfLink,
    _map: SocketMap,
}

/// A frame of a number and a length.
pub fn frame(number: u8, length: usize) -> Vec<u8> {
    let header = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    header.into_iter().chain((0..length - header.len()).map(|index| (index as u8).wrapping_add(number))).collect()
}
