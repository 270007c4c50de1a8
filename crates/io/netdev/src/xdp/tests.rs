use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use bellows_testkit::eventually;
use bellows_testkit::skips::skip_here;
use bellows_testkit::wait::Watchdog;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::lab::{LabPort, Setup, attached, detach, frame, has_linux, in_namespace, index, ip, pair};
use super::*;
use crate::bpf::{AttachError, Mode, program_info};
use bellows_sys::memory::{HUGE_PAGE, Reservation};
use bellows_sys::wake::sleep_until_readable;

/// The first versions of Linux with frames of several buffers, and with metadata of frames to send.
const MULTI_BUFFER: (u32, u32) = (6, 6);
const CHECKSUMS: (u32, u32) = (6, 8);

const MODES: [Mode; 2] = [Mode::Native, Mode::Generic];

fn errno(result: io::Result<()>) -> Option<Errno> {
    Errno::from_io_error(&result.unwrap_err())
}

/// Chunks of any size anywhere, at odd offsets.
const UNALIGNED: Setup = Setup { chunk_size: 2304, stride: 2305, first: 777, unaligned: true, ..Setup::PLAIN };

#[test]
fn positions_are_sums_of_offset_and_distance() {
    for (address, expected) in [(0, 0), (4352, 4352), (0x100_0000_0000_1001, 0x1101), (u64::MAX, 0x1_0000_0000_fffe)] {
        assert_eq!(position(address), expected);
    }
}

/// Frames of all lengths between two sockets, several times around the rings, in both directions.
#[test]
fn frames_cross_a_pair_of_interfaces() {
    in_namespace("frames_cross_a_pair_of_interfaces", || {
        let interfaces = pair("one", "other", 1500);
        for mode in MODES {
            for setup in [Setup::PLAIN, UNALIGNED, Setup { need_wakeup: false, ..Setup::PLAIN }] {
                let setup = Setup { mode, ..setup };
                let (mut one, _one) = LabPort::open(interfaces[0], setup);
                let (mut other, _other) = LabPort::open(interfaces[1], setup);
                for number in 0..100 {
                    let expected = frame(number, 14 + usize::from(number) * 15);
                    let cross = |from: &mut LabPort, to: &mut LabPort| {
                        let chunk = to.fill(1)[0];
                        from.send(&expected);
                        let (address, bytes) = to.receive();
                        assert_eq!(bytes, expected, "{setup:?}");
                        assert_eq!(position(address), chunk + u64::from(PACKET_HEADROOM), "{setup:?}");
                    };
                    cross(&mut one, &mut other);
                    cross(&mut other, &mut one);
                }
                assert!(!one.socket.is_zero_copy().unwrap());
                let counts = one.socket.statistics().unwrap();
                assert_eq!(counts, Statistics { tx_ring_empty: counts.tx_ring_empty, ..Statistics::default() });
                // In copy mode the kernel sends only when it is told to, and never waits for chunks.
                assert!(one.rings.tx.needs_wakeup());
                assert!(!one.rings.fill.needs_wakeup());
            }
        }
    });
}

/// A frame begins where the program wants it: 256 bytes behind the offset of its chunk, at any offset.
#[test]
fn a_frame_begins_256_bytes_behind_its_chunk() {
    in_namespace("a_frame_begins_256_bytes_behind_its_chunk", || {
        let interfaces = pair("one", "other", 1500);
        let (mut one, _one) = LabPort::open(interfaces[0], UNALIGNED);
        let (mut other, _other) = LabPort::open(interfaces[1], UNALIGNED);
        for data in [256, 257, 4095, 4096, 5000, 65_537, (2 << 20) - 2048] {
            other.rings.fill.push(data - 256);
            other.rings.fill.publish();
            one.send(&frame(1, 1514));
            let (address, bytes) = other.receive();
            assert_eq!((position(address), address >> 48), (data, 256));
            assert_eq!(bytes, frame(1, 1514));
        }
        // A chunk that ends behind the memory is skipped.
        other.rings.fill.push((2 << 20) - 2303);
        other.rings.fill.push(1000);
        other.rings.fill.publish();
        one.send(&frame(2, 60));
        assert_eq!(position(other.receive().0), 1256);
    });
}

#[test]
fn frames_without_room_are_counted() {
    in_namespace("frames_without_room_are_counted", || {
        let interfaces = pair("one", "other", 4000);
        let (mut one, _one) = LabPort::open(interfaces[0], Setup { mode: Mode::Generic, ..Setup::PLAIN });
        let (mut other, _other) = LabPort::open(interfaces[1], Setup { mode: Mode::Generic, ..UNALIGNED });
        one.send(&frame(1, 60));
        eventually("an empty fill ring", || other.socket.statistics().unwrap().fill_ring_empty > 0);
        other.fill(1);
        one.send(&frame(1, 2049));
        eventually("a frame that is too long", || other.socket.statistics().unwrap().rx_dropped > 0);
        one.send(&frame(1, 2048));
        assert_eq!(other.receive().1.len(), 2048);
        for _ in 0..2 {
            other.fill(64);
            (0..64).for_each(|number| one.send(&frame(number, 60)));
        }
        eventually("a full ring", || other.socket.statistics().unwrap().rx_ring_full > 0);
        one.rings.tx.push(1 << 40, 60, 0);
        one.rings.tx.publish();
        let _ = one.socket.kick().unwrap();
        assert_eq!(one.socket.statistics().unwrap().tx_invalid, 1);
    });
}

/// Frames of more than one chunk, both ways.
#[test]
fn frames_of_several_buffers_cross_whole() {
    const TEST: &str = "frames_of_several_buffers_cross_whole";
    if !has_linux(TEST, MULTI_BUFFER) {
        return;
    }
    in_namespace(TEST, || {
        let interfaces = pair("one", "other", 9000);
        for mode in MODES {
            let setup = Setup { mode, multi_buffer: true, ..UNALIGNED };
            let (mut one, _one) = LabPort::open(interfaces[0], setup);
            let (mut other, _other) = LabPort::open(interfaces[1], setup);
            for (number, length) in [60, 2048, 2049, 4096, 9014].into_iter().enumerate() {
                let expected = frame(number as u8, length);
                other.fill(5);
                one.push(&expected, 2304);
                one.flush(length.div_ceil(2304) as u32);
                let (parts, bytes) = other.receive_parts();
                assert_eq!(parts.len(), length.div_ceil(2048), "{mode:?} {length}");
                assert!(bytes == expected, "{mode:?} {length}");
            }
        }
    });
}

fn xdp_error(port: &LabPort, interface: u32) -> AttachError {
    match port.attach(interface) {
        Ok(_) => panic!("the program is attached"),
        Err(error) => error,
    }
}

/// A driver rejects a program that reads one buffer if frames may be larger than a page.
#[test]
fn a_program_for_frames_of_one_buffer_is_refused_for_large_frames() {
    in_namespace("a_program_for_frames_of_one_buffer_is_refused_for_large_frames", || {
        let interfaces = pair("one", "other", 9000);
        let single = LabPort::new(Setup::PLAIN);
        let error = xdp_error(&single, interfaces[0]);
        assert!(matches!(error, AttachError::FramesTooLarge(_)), "{error}");
        let several = LabPort::new(Setup { multi_buffer: true, ..Setup::PLAIN });
        detach(several.attach(interfaces[0]).unwrap(), "one");
        let generic = LabPort::new(Setup { mode: Mode::Generic, ..Setup::PLAIN });
        detach(generic.attach(interfaces[0]).unwrap(), "one");
        ip("link set other mtu 1500");
        let attached = single.attach(interfaces[0]).unwrap();
        let grow =
            || Command::new("ip").args(["link", "set", "other", "mtu", "9000"]).output().unwrap().status.success();
        assert!(!grow(), "the program limits the MTU of the peer");
        detach(attached, "one");
        assert!(grow());
    });
}

/// The largest frame to send is one of 18 chunks. A larger one is dropped and counted, and its chunks come back.
#[test]
fn a_frame_to_send_has_at_most_18_parts() {
    const TEST: &str = "a_frame_to_send_has_at_most_18_parts";
    if !has_linux(TEST, MULTI_BUFFER) {
        return;
    }
    in_namespace(TEST, || {
        let interfaces = pair("one", "other", 65_535);
        let setup = Setup { multi_buffer: true, ..Setup::PLAIN };
        let (mut one, _one) = LabPort::open(interfaces[0], setup);
        let (mut other, _other) = LabPort::open(interfaces[1], setup);
        let mut send = |length: usize, part: usize| {
            other.fill(other.rings.fill.free());
            let expected = frame(1, length);
            one.push(&expected, part);
            one.flush(length.div_ceil(part) as u32);
            match one.socket.statistics().unwrap().tx_invalid {
                0 => assert!(other.receive_parts().1 == expected, "{length}"),
                invalid => return invalid,
            }
            0
        };
        for (length, part) in [(1800, 100), (20_000, 4096), (65_549, 4096)] {
            assert_eq!(send(length, part), 0);
        }
        assert_eq!(send(1900, 100), 19);
    });
}

/// A queue is taken until its socket *and* the rings are dropped, and some milliseconds longer.
#[test]
fn a_queue_is_free_a_moment_after_its_socket_is_closed() {
    in_namespace("a_queue_is_free_a_moment_after_its_socket_is_closed", || {
        let interfaces = pair("one", "other", 1500);
        for _ in 0..3 {
            let (port, attached) = LabPort::open(interfaces[0], Setup::PLAIN);
            let second = LabPort::new(Setup::PLAIN);
            let bind = || second.socket.bind(interfaces[0], 0, BindOptions::default());
            assert_eq!(errno(bind()), Some(Errno::BUSY));
            let LabPort { socket, rings, .. } = port;
            drop(socket);
            detach(attached, "one");
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(errno(bind()), Some(Errno::BUSY), "the rings keep the socket open");
            drop(rings);
            second.bind(interfaces[0]);
        }
    });
}

#[test]
fn binding_without_a_copy_is_refused_by_a_driver_that_copies() {
    in_namespace("binding_without_a_copy_is_refused_by_a_driver_that_copies", || {
        let interfaces = pair("one", "other", 1500);
        let port = LabPort::new(Setup::PLAIN);
        let bind = |interface, queue, options| errno(port.socket.bind(interface, queue, options));
        let zero_copy = BindOptions { copy: CopyMode::ZeroCopy, ..BindOptions::default() };
        assert_eq!(bind(interfaces[0], 0, zero_copy), Some(Errno::OPNOTSUPP));
        assert_eq!(bind(interfaces[0], 1, BindOptions::default()), Some(Errno::INVAL));
        assert_eq!(bind(9999, 0, BindOptions::default()), Some(Errno::NODEV));
        ip("link set one down");
        port.bind(interfaces[0]);
        assert_eq!(port.socket.kick().unwrap(), Kick::Down);
    });
}

/// Two sockets with one memory, on two interfaces: what one receives, the other sends.
#[test]
fn memory_is_shared_by_sockets_of_several_interfaces() {
    in_namespace("memory_is_shared_by_sockets_of_several_interfaces", || {
        let left = pair("left", "far-left", 1500);
        let right = pair("right", "far-right", 1500);
        let (mut source, _source) = LabPort::open(left[1], Setup::PLAIN);
        let (mut sink, _sink) = LabPort::open(right[1], Setup::PLAIN);
        let (mut one, one_attached) = LabPort::open(left[0], UNALIGNED);
        let mut other = one.sharing();
        other.socket.bind_shared(right[0], 0, one.socket.as_fd()).unwrap();
        let _other = other.attach(right[0]).unwrap();
        let mut forward = |one: &mut LabPort, other: &mut LabPort| {
            one.fill(1);
            sink.fill(1);
            source.send(&frame(3, 100));
            let (parts, bytes) = one.receive_parts();
            other.rings.tx.push(position(parts[0]), bytes.len() as u32, 0);
            other.rings.tx.publish();
            // Linux 6.18 clears the lowest bit.
            assert_eq!(other.flush(1)[0] | 1, position(parts[0]) | 1);
            assert_eq!(sink.receive().1, frame(3, 100));
        };
        forward(&mut one, &mut other);

        // The owner's interface is deleted: the other socket goes on, but the owner can be shared no more.
        drop(one_attached);
        ip("link delete left");
        let left = pair("left", "far-left", 1500);
        let mut third = one.sharing();
        assert_eq!(errno(third.socket.bind_shared(left[0], 0, one.socket.as_fd())), Some(Errno::BADF));
        drop(one);
        // Any other socket with the memory can be named in its place.
        third.socket.bind_shared(left[0], 0, other.socket.as_fd()).unwrap();
        let _third = third.attach(left[0]).unwrap();
        let (mut source, _source) = LabPort::open(left[1], Setup::PLAIN);
        third.fill(1);
        source.send(&frame(4, 100));
        assert_eq!(third.receive().1, frame(4, 100));
    });
}

/// An owner whose interface is never deleted.
#[test]
fn a_socket_on_the_loopback_interface_can_own_the_memory() {
    const TEST: &str = "a_socket_on_the_loopback_interface_can_own_the_memory";
    if !has_linux(TEST, MULTI_BUFFER) {
        return;
    }
    in_namespace(TEST, || {
        let interfaces = pair("one", "other", 9000);
        let owner = LabPort::new(Setup { multi_buffer: true, ..UNALIGNED });
        owner.bind(index("lo"));
        let mut one = owner.sharing();
        one.socket.bind_shared(interfaces[0], 0, owner.socket.as_fd()).unwrap();
        let (mut other, _other) = LabPort::open(interfaces[1], Setup { multi_buffer: true, ..UNALIGNED });
        // The options are the owner's.
        other.fill(5);
        one.push(&frame(1, 9000), 2304);
        one.flush(4);
        assert!(other.receive_parts().1 == frame(1, 9000));
    });
}

/// The child of the next test.
#[test]
#[ignore = "holds a program until it is killed; run by a_program_is_gone_with_its_process"]
fn holds_a_program() {
    let (_port, _attached) = LabPort::open(index("one"), Setup::PLAIN);
    println!("ready");
    std::thread::sleep(bellows_testkit::wait::PATIENCE);
}

#[test]
fn a_program_is_gone_with_its_process() {
    in_namespace("a_program_is_gone_with_its_process", || {
        let interfaces = pair("one", "other", 1500);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "xdp::tests::holds_a_program"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let _watchdog = Watchdog::new(&child);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "the child has its program");
        let id = attached("one").expect("the child's program").get();
        assert_eq!(program_info(id).unwrap().name, "bellows");
        // Another program is refused in either mode.
        let port = LabPort::new(Setup::PLAIN);
        let generic = LabPort::new(Setup { mode: Mode::Generic, ..Setup::PLAIN });
        for error in [&port, &generic].map(|port| xdp_error(port, interfaces[0])) {
            assert!(matches!(error, AttachError::Occupied(_)), "{error}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(attached("one"), None);
        port.bind(interfaces[0]);
        detach(port.attach(interfaces[0]).unwrap(), "one");
    });
}

/// The sum of 16-bit words as of RFC 1071, with the carries added.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[test]
fn the_kernel_finishes_checksums_on_request() {
    const TEST: &str = "the_kernel_finishes_checksums_on_request";
    if !has_linux(TEST, CHECKSUMS) {
        return;
    }
    in_namespace(TEST, || {
        const START: usize = 34;
        const OFFSET: usize = 6;
        let interfaces = pair("one", "other", 1500);
        let (mut one, _one) =
            LabPort::open(interfaces[0], Setup { tx_metadata_length: METADATA_LENGTH, ..Setup::PLAIN });
        let (mut other, _other) = LabPort::open(interfaces[1], Setup::PLAIN);
        let mut packet = frame(9, 101);
        // As after a pseudo-header: any number.
        packet[START + OFFSET..][..2].copy_from_slice(&0x1234_u16.to_be_bytes());
        let address = 8192 + 256;
        one.write(address - u64::from(METADATA_LENGTH), &checksum_request(START as u16, OFFSET as u16));
        one.write(address, &packet);
        one.rings.tx.push(address, packet.len() as u32, METADATA);
        one.rings.tx.publish();
        other.fill(1);
        one.flush(1);
        let (_, bytes) = other.receive();
        assert_eq!(sum(&bytes[START..]), !0x1234, "{bytes:02x?}");
    });
}

#[test]
fn an_interface_that_goes_down_or_away_is_reported() {
    in_namespace("an_interface_that_goes_down_or_away_is_reported", || {
        let interfaces = pair("one", "other", 1500);
        let (mut one, _one) = LabPort::open(interfaces[0], Setup::PLAIN);
        let (mut other, _other) = LabPort::open(interfaces[1], Setup::PLAIN);
        other.fill(4);
        ip("link set one down");
        one.push(&frame(1, 60), 60);
        assert_eq!(one.socket.kick().unwrap(), Kick::Down);
        assert_eq!(one.socket.wake().unwrap(), Kick::Down);
        let is_polled = |port: &LabPort| sleep_until_readable(&[port.socket.as_fd()], Some(Duration::ZERO)).unwrap()[0];
        assert!(!is_polled(&one));
        assert_eq!(other.socket.kick().unwrap(), Kick::Done, "although its peer is down");
        ip("link set one up");
        one.flush(1);
        assert_eq!(other.receive().1, frame(1, 60));
        ip("link delete one");
        for port in [&one, &other] {
            assert_eq!([port.socket.kick().unwrap(), port.socket.wake().unwrap()], [Kick::Gone; 2]);
            assert!(!is_polled(port), "a sleeping process is not told");
        }
        // The chunks in its rings are not given back.
        assert_eq!((other.rings.fill.free(), other.rings.rx.available()), (61, 0));
        // Its socket cannot be used for another interface.
        let interfaces = pair("one", "other", 1500);
        assert_eq!(errno(one.socket.bind(interfaces[0], 0, BindOptions::default())), Some(Errno::BUSY));
        LabPort::open(interfaces[0], Setup::PLAIN);
    });
}

#[test]
fn options_are_set() {
    in_namespace("options_are_set", || {
        let interfaces = pair("one", "other", 1500);
        let (one, _one) = LabPort::open(interfaces[0], Setup::PLAIN);
        one.socket.poll_busily(20, 64).unwrap();
        assert_eq!(one.socket.wake().unwrap(), Kick::Done);
        one.socket.poll_busily(0, 8).unwrap();
        match one.socket.limit_sends(64) {
            Ok(()) => {
                assert_eq!(errno(one.socket.limit_sends(0)), Some(Errno::ACCESS));
                assert_eq!(errno(one.socket.limit_sends(65)), Some(Errno::ACCESS), "the ring has 64 entries");
            }
            Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::NOPROTOOPT)),
        }
    });
}

#[test]
fn memory_that_cannot_be_registered_is_an_error() {
    const TEST: &str = "memory_that_cannot_be_registered_is_an_error";
    if !has_linux(TEST, CHECKSUMS) {
        return;
    }
    in_namespace(TEST, || {
        let limit = getrlimit(Resource::Memlock).current.filter(|limit| *limit < 1 << 30);
        let Some(limit) = limit else { return skip_here(TEST, "the limit of locked memory is too high to exceed it") };
        let area = Reservation::new(limit as usize + HUGE_PAGE).unwrap();
        let memory = UNALIGNED.memory(&area);
        let register = |memory: Memory| {
            let (socket, _rings) = Socket::new(RingSizes::default()).unwrap();
            // SAFETY: no chunk is given to the kernel.
            unsafe { socket.register_memory(&memory) }
        };
        for impossible in [
            Memory { start: area.start().map_addr(|start| start.saturating_add(64)), ..memory },
            Memory { chunk_size: 2047, ..memory },
            Memory { chunk_size: 4097, ..memory },
            Memory { unaligned: false, ..memory },
            Memory { headroom: 2048, ..memory },
            Memory { tx_metadata_length: 12, ..memory },
            Memory { tx_metadata_length: 256, ..memory },
        ] {
            assert_eq!(errno(register(impossible)), Some(Errno::INVAL), "{impossible:?}");
        }
        register(memory).unwrap();
        // The capability is this thread's alone.
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, sets).unwrap();
        assert_eq!(errno(register(memory)), Some(Errno::NOBUFS));
    });
}
