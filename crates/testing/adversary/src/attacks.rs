//! The list of attacks.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bellows_ipc::memfd;
use bellows_virtio::Features;
use bellows_virtio::vhost::VhostRequest;
use bellows_wire::Sum;
use fastrand::Rng;
use rustix::event::epoll;
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_setfl};

use crate::peer::{Descriptor, GUEST, HostilePeer, INDIRECT, LENGTH, NEXT, SIZE, USER, WRITE};

/// An attack by a guest, or by its process.
pub struct Attack {
    /// Its name in reports and on command lines.
    pub name: &'static str,
    /// One line that describes it.
    pub what: &'static str,
    /// The negotiated features; if `None`, nothing is negotiated and no ring set up.
    pub(crate) features: Option<Features>,
    /// Maximum number of turns on one connection.
    pub(crate) turns: u64,
    pub(crate) begin: fn(&mut HostilePeer, &mut Rng),
    pub(crate) turn: fn(&mut HostilePeer, &mut Rng),
}

/// The queue of packets to the driver, and the queue of packets from it.
const RX: usize = 0;
const TX: usize = 1;

/// Addresses in the memory after the rings: an indirect table, buffers of 2 KiB, large buffers.
const TABLE: u64 = 0x8_0000;
const BUFFERS: u64 = 0x10_0000;
const BUFFER: u64 = 0x800;
const LARGE: u64 = 0x20_0000;
const LARGE_BUFFER: u64 = 0x1_1000;

/// Bytes of the virtio-net header.
const HEADER: usize = 12;

const PLAIN: Features = Features(Features::VERSION_1.0 | Features::PROTOCOL_FEATURES.0);
const TABLES: Features = Features(PLAIN.0 | Features::INDIRECT_DESC.0);
const SENDS_LARGE: Features =
    Features(PLAIN.0 | Features::CSUM.0 | Features::HOST_TSO4.0 | Features::HOST_TSO6.0 | Features::MRG_RXBUF.0);
const TAKES_LARGE: Features = Features(SENDS_LARGE.0 | Features::GUEST_CSUM.0 | Features::GUEST_TSO4.0);

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "empty-tables",
        what: "receive buffers are tables of 1,024 empty buffers",
        features: Some(TABLES),
        turns: 64,
        begin: |peer, _| {
            peer.table(TABLE, &chain(1_024, 0, WRITE));
            peer.descriptors(RX, &[(GUEST + TABLE, 16 * 1_024, INDIRECT, 0); SIZE as usize]);
        },
        turn: |peer, rng| start_again(peer, rng, RX),
    },
    Attack {
        name: "small-receive-buffers",
        what: "receive buffers are tables of 256 buffers of 6 bytes",
        features: Some(TABLES),
        turns: 1_000,
        begin: |peer, _| {
            peer.table(TABLE, &chain(256, 6, WRITE));
            peer.descriptors(RX, &[(GUEST + TABLE, 16 * 256, INDIRECT, 0); SIZE as usize]);
        },
        turn: |peer, _| peer.refill(RX),
    },
    Attack {
        name: "scarce-receive-buffers",
        what: "receive buffers of one byte are made available one by one",
        features: Some(Features(PLAIN.0 | Features::MRG_RXBUF.0)),
        turns: 1_000,
        begin: |peer, _| peer.descriptors(RX, &[(GUEST + BUFFERS, 13, WRITE, 0); SIZE as usize]),
        turn: |peer, _| {
            let next = peer.used(RX).wrapping_add(1);
            peer.set_available(RX, next);
        },
    },
    Attack {
        name: "dropped-chains",
        what: "every packet is a header without data, and dropped",
        features: Some(PLAIN),
        turns: 1_000,
        begin: |peer, _| peer.descriptors(TX, &[(GUEST + BUFFERS, HEADER as u32, 0, 0); SIZE as usize]),
        turn: |peer, _| peer.refill(TX),
    },
    Attack {
        name: "pieces",
        what: "packets of 1,500 bytes in 255 pieces",
        features: Some(TABLES),
        turns: 1_000,
        begin: |peer, _| {
            peer.table(TABLE, &chain(255, 6, 0));
            peer.descriptors(TX, &[(GUEST + TABLE, 16 * 255, INDIRECT, 0); SIZE as usize]);
        },
        turn: |peer, _| peer.refill(TX),
    },
    Attack {
        name: "long-tables",
        what: "packets in tables of 4,096 descriptors",
        features: Some(TABLES),
        turns: 64,
        begin: |peer, _| {
            peer.table(TABLE, &chain(4_096, 1, 0));
            peer.descriptors(TX, &[(GUEST + TABLE, 16 * 4_096, INDIRECT, 0); SIZE as usize]);
        },
        turn: |peer, rng| start_again(peer, rng, TX),
    },
    Attack {
        name: "loops",
        what: "chains and tables that lead back to themselves",
        features: Some(TABLES),
        turns: 64,
        begin: |peer, _| {
            peer.table(TABLE, &[(GUEST + BUFFERS, 1, NEXT, 0)]);
            let chains = |number: u16| match number % 3 {
                0 => (GUEST + BUFFERS, 1, NEXT, number),
                1 => (GUEST + TABLE, 16, INDIRECT, 0),
                _ => (GUEST + BUFFERS, 1, NEXT, number - 1),
            };
            peer.descriptors(TX, &(0..SIZE).map(chains).collect::<Vec<_>>());
        },
        turn: |peer, rng| start_again(peer, rng, TX),
    },
    Attack {
        name: "wild-rings",
        what: "random descriptors and indices, with a restart for each error",
        features: Some(TABLES),
        turns: 64,
        begin: |_, _| {},
        turn: |peer, rng| {
            let index = rng.usize(0..2);
            let places = [GUEST + BUFFERS, GUEST + LENGTH - 8, GUEST - 4, 0, u64::MAX, GUEST + TABLE, GUEST];
            let descriptor = |_| -> Descriptor {
                let length = [0, 1, 11, 12, 13, 60, 1_500, 2_060, 65_562, u32::MAX][rng.usize(0..10)];
                (places[rng.usize(0..places.len())], length, rng.u16(0..8), rng.u16(0..SIZE + 2))
            };
            let descriptors: Vec<Descriptor> = (0..SIZE).map(descriptor).collect();
            peer.descriptors(index, &descriptors);
            start_again(peer, rng, index);
        },
    },
    Attack {
        name: "false-claims",
        what: "3,000 meaningless bytes with arbitrary headers",
        features: Some(TAKES_LARGE),
        turns: 1_000,
        begin: |peer, _| {
            give_receive_buffers(peer);
            for slot in 0..u64::from(SIZE) {
                peer.write(LARGE + slot * 0x1000, &[0xee; HEADER + 3_000]);
            }
            let slots = (0..SIZE).map(|slot| (GUEST + LARGE + u64::from(slot) * 0x1000, 3_012, 0, 0));
            peer.descriptors(TX, &slots.collect::<Vec<_>>());
        },
        turn: |peer, rng| {
            peer.refill(RX);
            for slot in (0..u64::from(SIZE)).step_by(16) {
                let claim = HeaderClaim {
                    kind: [0, 1, 3, 4, 5, 0x81][rng.usize(0..6)],
                    header: rng.u16(..),
                    segment: [0, 1, 48, 536, 1_460, u16::MAX][rng.usize(0..6)],
                    start: rng.u16(0..3_100),
                    offset: [0, 6, 16, u16::MAX][rng.usize(0..4)],
                };
                peer.write(LARGE + slot * 0x1000, &claim.header(rng.u8(0..3)));
            }
            peer.refill(TX);
        },
    },
    Attack {
        name: "small-segments",
        what: "GSO packets of 60,000 bytes with minimal segments, finished by the engine",
        features: Some(SENDS_LARGE),
        turns: 1_000,
        begin: |peer, _| {
            give_receive_buffers(peer);
            give_super_frames(peer, &[48, 1, 100]);
        },
        turn: |peer, _| {
            peer.refill(RX);
            peer.refill(TX);
        },
    },
    Attack {
        name: "parked",
        what: "GSO packets and packets for a port that takes none",
        features: Some(TAKES_LARGE),
        turns: 1_000,
        begin: |peer, _| give_super_frames(peer, &[1_460]),
        turn: |peer, _| peer.refill(TX),
    },
    Attack {
        name: "full-events",
        what: "call events that are full, and block writers",
        features: Some(PLAIN),
        turns: 1_000,
        begin: |peer, _| {
            give_receive_buffers(peer);
            give_packets(peer);
            for event in &peer.calls {
                let _ = fcntl_setfl(event.as_fd(), OFlags::empty());
            }
        },
        turn: |peer, _| {
            for event in &peer.calls {
                // Emptied first: writing must not block this thread.
                let blocks = fcntl_setfl(event.as_fd(), OFlags::NONBLOCK);
                let _ = rustix::io::write(event.as_fd(), &(u64::MAX - 1).to_ne_bytes());
                let _ = blocks.and_then(|()| fcntl_setfl(event.as_fd(), OFlags::empty()));
            }
            peer.refill(RX);
            peer.refill(TX);
        },
    },
    Attack {
        name: "many-waiters",
        what: "hundreds of waiters on each call event",
        features: Some(PLAIN),
        turns: 1_000,
        begin: |peer, _| {
            give_receive_buffers(peer);
            give_packets(peer);
            let _ = add_waiters(peer, 400);
        },
        turn: |peer, _| {
            peer.refill(RX);
            peer.refill(TX);
        },
    },
    Attack {
        name: "kicks",
        what: "a hundred kicks without work",
        features: Some(PLAIN),
        turns: 1_000,
        begin: |_, _| {},
        turn: |peer, _| (0..100).for_each(|number| peer.kicks[number % 2].raise()),
    },
    Attack {
        name: "strange-descriptors",
        what: "pipes, sockets, devices, folders and files in place of memory and events",
        features: None,
        turns: 1,
        begin: |_, _| {},
        turn: |peer, rng| {
            let Ok(stranger) = stranger(rng) else { return };
            let request = [
                VhostRequest::SET_VRING_CALL,
                VhostRequest::SET_VRING_KICK,
                VhostRequest::SET_VRING_ERR,
                VhostRequest::SET_MEM_TABLE,
                VhostRequest::SET_LOG_BASE,
                VhostRequest::SET_INFLIGHT_FD,
            ][rng.usize(0..6)];
            peer.numbers(VhostRequest::SET_FEATURES, &[PLAIN.0], &[]);
            match request {
                VhostRequest::SET_MEM_TABLE => {
                    peer.numbers(request, &[1, GUEST, LENGTH, USER, 0], &[stranger.as_fd()]);
                }
                VhostRequest::SET_LOG_BASE => peer.numbers(request, &[LENGTH, 0], &[stranger.as_fd()]),
                VhostRequest::SET_INFLIGHT_FD => peer.numbers(request, &[LENGTH, 0, 0x100_0002], &[stranger.as_fd()]),
                _ => peer.numbers(request, &[0], &[stranger.as_fd()]),
            }
        },
    },
    Attack {
        name: "memory-changes",
        what: "the memory is shared anew all the time, while rings run",
        features: Some(PLAIN),
        turns: 1_000,
        begin: |peer, _| {
            give_receive_buffers(peer);
            give_packets(peer);
        },
        turn: |peer, rng| {
            peer.refill(RX);
            peer.refill(TX);
            match rng.u8(0..4) {
                0 => peer.share_memory(),
                1 => {
                    let Ok(memory) = peer.memory.try_clone() else { return };
                    let region = [8, GUEST + LENGTH, 1 << 20, USER + LENGTH, 0];
                    peer.numbers(VhostRequest::ADD_MEM_REG, &region, &[memory.as_fd()]);
                    peer.numbers(VhostRequest::REM_MEM_REG, &region, &[memory.as_fd()]);
                }
                _ => {}
            }
        },
    },
    Attack {
        name: "vanishing-memory",
        what: "the file is truncated while rings run",
        features: Some(PLAIN),
        turns: 2,
        begin: |peer, _| {
            give_receive_buffers(peer);
            give_packets(peer);
            peer.refill(RX);
            peer.refill(TX);
        },
        turn: |peer, _| {
            peer.refill(TX);
            let _ = peer.memory.set_len(0x4_0000);
        },
    },
    Attack {
        name: "address-space",
        what: "regions of 16 TiB",
        features: None,
        turns: 1,
        begin: |_, _| {},
        turn: |peer, _| {
            peer.numbers(VhostRequest::SET_FEATURES, &[PLAIN.0], &[]);
            for number in 0..8 {
                let Ok(memory) = memfd::create(1 << 44) else { return };
                let at = number << 44;
                peer.numbers(VhostRequest::SET_MEM_TABLE, &[1, at, 1 << 44, USER + at, 0], &[memory.as_fd()]);
            }
        },
    },
    Attack {
        name: "states",
        what: "rings that are disabled, stopped, started anywhere, logged and reset",
        features: Some(Features(PLAIN.0 | Features::LOG_ALL.0)),
        turns: 200,
        begin: |peer, _| {
            give_receive_buffers(peer);
            give_packets(peer);
        },
        turn: |peer, rng| {
            let index = rng.usize(0..2);
            peer.refill(RX);
            peer.refill(TX);
            match rng.u8(0..9) {
                0..=3 => peer.words(VhostRequest::SET_VRING_ENABLE, &[index as u32, rng.u32(0..2)]),
                4 => peer.restart(index),
                5 => peer.start(index, rng.u16(..)),
                6 => {
                    peer.send(VhostRequest::RESET_DEVICE, &[], &[]);
                    (0..2).for_each(|index| peer.restart(index));
                }
                7 => {
                    let Ok(memory) = peer.memory.try_clone() else { return };
                    peer.numbers(VhostRequest::SET_LOG_BASE, &[rng.u64(0..LENGTH), 0], &[memory.as_fd()]);
                }
                _ => {
                    let Ok(memory) = peer.memory.try_clone() else { return };
                    peer.write(LARGE, &std::array::from_fn::<u8, 512, _>(|_| rng.u8(..)));
                    peer.words(VhostRequest::GET_VRING_BASE, &[index as u32, 0]);
                    let queues = u64::from(SIZE) << 16 | 2;
                    peer.numbers(VhostRequest::SET_INFLIGHT_FD, &[0x1_0000, LARGE, queues], &[memory.as_fd()]);
                    peer.start(index, rng.u16(..));
                }
            }
        },
    },
    Attack {
        name: "holes",
        what: "the pages of the buffers are freed, so that each access is a page fault",
        features: Some(PLAIN),
        turns: 1_000,
        begin: |peer, _| {
            give_receive_buffers(peer);
            let slots = (0..SIZE).map(|slot| (GUEST + LARGE + u64::from(slot) * 0x1000, HEADER as u32 + 60, 0, 0));
            peer.descriptors(TX, &slots.collect::<Vec<_>>());
        },
        turn: |peer, _| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&peer.memory, flags, BUFFERS, LENGTH - BUFFERS);
            peer.refill(RX);
            peer.refill(TX);
        },
    },
    Attack {
        name: "connections",
        what: "connections that send half a message, nonsense, or nothing, and end",
        features: None,
        turns: 1,
        begin: |_, _| {},
        turn: |peer, rng| match rng.u8(0..4) {
            0 => peer.raw(&[1, 0, 0], &[]),
            1 => peer.raw(&std::array::from_fn::<u8, 64, _>(|_| rng.u8(..)), &[]),
            2 => {
                let message = [rng.u32(0..64), 1, 8, rng.u32(..), rng.u32(..)];
                peer.raw(message.map(u32::to_le_bytes).as_flattened(), &[]);
            }
            _ => {}
        },
    },
];

/// A chain of `count` descriptors, each with this many bytes of the first buffer.
fn chain(count: u16, length: u32, flags: u16) -> Vec<Descriptor> {
    let link = |number: u16| if number + 1 < count { (NEXT, number + 1) } else { (0, 0) };
    (0..count).map(|number| (GUEST + BUFFERS, length, flags | link(number).0, link(number).1)).collect()
}

/// Makes the whole ring available; in one turn of eight it starts anew, because its error has stopped it.
fn start_again(peer: &mut HostilePeer, rng: &mut Rng, index: usize) {
    if rng.u8(0..8) == 0 {
        peer.restart(index);
    }
    peer.refill(index);
}

/// Makes a buffer of 2 KiB available in the receive ring for each descriptor.
fn give_receive_buffers(peer: &mut HostilePeer) {
    let slots = (0..SIZE).map(|slot| (GUEST + BUFFERS + u64::from(slot) * BUFFER, BUFFER as u32, WRITE, 0));
    peer.descriptors(RX, &slots.collect::<Vec<_>>());
}

/// Makes packets of 60 bytes available in the transmit ring.
fn give_packets(peer: &mut HostilePeer) {
    peer.descriptors(TX, &[(GUEST + LARGE, HEADER as u32 + 60, 0, 0); SIZE as usize]);
}

/// Makes TCP GSO packets with these segment sizes available in the transmit ring, one after the other.
fn give_super_frames(peer: &mut HostilePeer, segments: &[u16]) {
    for (number, &segment) in segments.iter().enumerate() {
        let claim = HeaderClaim { kind: 1, header: 54, segment, start: 34, offset: 16 };
        let packet = [&claim.header(1)[..], &gso_packet(60_000)].concat();
        peer.write(LARGE + number as u64 * LARGE_BUFFER, &packet);
    }
    let slot = |slot: u16| {
        let number = u64::from(slot) % segments.len() as u64;
        (GUEST + LARGE + number * LARGE_BUFFER, HEADER as u32 + 60_000, 0, 0)
    };
    peer.descriptors(TX, &(0..SIZE).map(slot).collect::<Vec<_>>());
}

/// The contents of a virtio-net header (specification, 5.1.6).
struct HeaderClaim {
    kind: u8,
    header: u16,
    segment: u16,
    start: u16,
    offset: u16,
}

impl HeaderClaim {
    fn header(&self, flags: u8) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        (bytes[0], bytes[1]) = (flags, self.kind);
        for (at, number) in [(2, self.header), (4, self.segment), (6, self.start), (8, self.offset)] {
            bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

/// An Ethernet frame of this length with one TCP segment over IPv4.
fn gso_packet(length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let ip = &mut frame[14..];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    (ip[8], ip[9]) = (64, 6);
    ip[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    let sum = Sum::new().add_bytes(&ip[..20]).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    // Data offset, ACK.
    (ip[32], ip[33]) = (0x50, 0x10);
    frame
}

/// Makes an epoll wait for both call events, this many times each.
fn add_waiters(peer: &mut HostilePeer, count: usize) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for number in 0..count {
        let copy = peer.calls[number % 2].as_fd().try_clone_to_owned()?;
        epoll::add(&epoll, &copy, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        peer.held.push(copy);
    }
    peer.held.push(epoll);
    Ok(())
}

/// A descriptor that is neither memory nor an event.
fn stranger(rng: &mut Rng) -> io::Result<OwnedFd> {
    Ok(match rng.u8(0..6) {
        0 => std::io::pipe()?.0.into(),
        1 => std::io::pipe()?.1.into(),
        2 => UnixStream::pair()?.0.into(),
        3 => File::open("/dev/zero")?.into(),
        4 => File::open("/")?.into(),
        _ => File::open(std::env::current_exe()?)?.into(),
    })
}
