//! A generator of frames inside the kernel, faster than any socket.
//!
//! `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES` (Linux ≥ 5.18, `linux/bpf.h`) runs an XDP program on copies
//! of one frame, from a pool of pages, and does what the program decides. Ours redirects each frame to an interface,
//! which transmits it with its driver's XDP function. No socket, no queueing discipline and no socket buffer is
//! involved. A veth interface accepts such frames only while its peer polls (`NAPI`): while the peer has an XDP program
//! or generic receive offload.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

/// Commands of `bpf(2)`.
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TEST_RUN: libc::c_long = 10;

const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;

/// The helper `bpf_redirect(index, flags)`.
const HELPER_REDIRECT: i32 = 23;

/// Frames that the kernel passes on at a time; 64 is the kernel's own default.
const BATCH: u32 = 64;

/// An instruction of BPF: operation, registers (destination in the low half), offset, constant.
#[repr(C)]
struct Instruction {
    operation: u8,
    registers: u8,
    offset: i16,
    constant: i32,
}

/// The start of `union bpf_attr` for `BPF_PROG_LOAD`; the kernel takes the rest as zero.
#[repr(C)]
struct Load {
    program_type: u32,
    instructions: u32,
    start: u64,
    license: u64,
}

/// `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    padding: u32,
}

/// Sends copies of a frame out of one interface.
#[derive(Debug)]
pub struct LiveFrames {
    program: OwnedFd,
}

impl LiveFrames {
    /// Loads the program that redirects frames to the interface of this name, in the caller's network namespace.
    ///
    /// # Errors
    /// `ENODEV` without such an interface, and those of `bpf(2)`: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`.
    pub fn to_interface(name: &str) -> io::Result<LiveFrames> {
        let any_socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let index = name_to_index(any_socket, name)?;
        let instruction = |operation, registers, constant| Instruction { operation, registers, offset: 0, constant };
        let program = [
            instruction(0xb7, 1, index as i32),    // r1 = index
            instruction(0xb7, 2, 0),               // r2 = 0, no flags
            instruction(0x85, 0, HELPER_REDIRECT), // r0 = bpf_redirect(r1, r2)
            instruction(0x95, 0, 0),               // return r0
        ];
        let load = Load {
            program_type: BPF_PROG_TYPE_XDP,
            instructions: program.len() as u32,
            start: program.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
        };
        // SAFETY: the kernel reads `load` of the given size, and through it the program of `instructions` instructions
        // and a string; all outlive the call.
        let descriptor = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
        let descriptor = i32::try_from(descriptor).unwrap_or(-1);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
        let program = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(LiveFrames { program })
    }

    /// Sends `count` copies of a frame as fast as this processor can. Frames that the interface does not take are lost.
    /// A call takes some milliseconds to prepare.
    ///
    /// # Errors
    /// Those of `bpf(2)`: `EINTR` after a signal, when fewer were sent; `EINVAL` for a frame shorter than 14 bytes or
    /// longer than a page holds, or before Linux 5.18.
    pub fn send(&self, frame: &[u8], count: u32) -> io::Result<()> {
        // The program's context, `struct xdp_md`, says where the frame ends.
        let context = [0u32, frame.len() as u32, 0, 0, 0, 0];
        let mut run = TestRun {
            program: self.program.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat: count,
            context_size_in: size_of_val(&context) as u32,
            context_in: context.as_ptr() as u64,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            batch: BATCH,
            ..TestRun::default()
        };
        // SAFETY: the kernel reads and writes `run` of the given size, and reads the frame and the context of the given
        // sizes; all outlive the call. Nothing is written elsewhere, because the addresses for output are null.
        let sent = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut run, size_of::<TestRun>()) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::thread;

    use bellows_testkit::programs::missing;
    use bellows_testkit::skips::is_skipped;
    use bellows_testkit::{eventually, skip};
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::*;

    const FRAMES: u32 = 1_000;

    /// The packets that an interface of this thread's network namespace has received.
    fn received(interface: &str) -> u64 {
        let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':')).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn run(command: &str) {
        let mut words = command.split(' ');
        let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn send_over_a_pair() {
        run("ip link add one type veth peer name other");
        run("ip link set one up");
        run("ip link set other up");
        let frames = LiveFrames::to_interface("one").unwrap();
        assert_eq!(frames.send(&[0; 13], 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // The peer does not poll: the interface takes no frame, and the call succeeds.
        frames.send(&[0; 60], FRAMES).unwrap();
        assert!(received("other") < u64::from(FRAMES));
        run("ethtool -K other gro on");
        let before = received("other");
        // The peer's ring has 256 places and is emptied on this processor, after each batch.
        eventually("frames arrive", || {
            frames.send(&[0; 60], FRAMES).unwrap();
            received("other") >= before + u64::from(FRAMES)
        });
        assert_eq!(LiveFrames::to_interface("none").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn frames_leave_through_the_interface() {
        const TEST: &str = "frames_leave_through_the_interface";
        let root = (!rustix::process::geteuid().is_root()).then(|| "not root".to_owned());
        if is_skipped(TEST, root.or_else(|| missing(&["ip", "ethtool"]))) {
            return;
        }
        let in_a_namespace = || {
            // SAFETY: the flag gives this thread its own network, and leaves it the process's descriptors.
            match unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
                Ok(()) => send_over_a_pair(),
                Err(error) => skip(TEST, format!("no network namespace: {error}")),
            }
        };
        thread::spawn(in_a_namespace).join().unwrap();
    }
}
