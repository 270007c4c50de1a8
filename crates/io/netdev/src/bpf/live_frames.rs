//! A generator of frames inside the kernel, faster than any socket.

use std::io;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

use super::assembler::{Assembler, Operation, R1, R2};
use super::{Program, TestSettings};

/// `BPF_F_TEST_XDP_LIVE_FRAMES`: what the program decides happens.
const LIVE_FRAMES: u32 = 1 << 1;

/// `BPF_FUNC_redirect`: its arguments are an interface's number and flags.
const REDIRECT: i32 = 23;

/// Frames that the kernel passes on at a time; 64 is the kernel's own default.
const BATCH: u32 = 64;

/// Sends copies of a frame out of one interface, for measurements.
///
/// `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES` (Linux ≥ 5.18, `linux/bpf.h`) runs an XDP program on copies
/// of one frame, from a pool of pages, and does what the program decides. This one redirects each frame to an
/// interface, which transmits it with its driver's XDP function. No socket, no queueing discipline and no socket buffer
/// is involved. A veth interface accepts such frames only while its peer polls (`NAPI`): while the peer has an XDP
/// program or generic receive offload.
#[derive(Debug)]
pub struct LiveFrames {
    program: Program,
}

impl LiveFrames {
    /// Loads the program that redirects frames to the interface of this name, in the caller's network namespace.
    ///
    /// # Errors
    /// `ENODEV` without such an interface, and those of `bpf(2)`: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`.
    pub fn to_interface(name: &str) -> io::Result<LiveFrames> {
        let any_socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let index = name_to_index(any_socket, name)?;
        let mut assembler = Assembler::default();
        assembler.compute(Operation::Move, R1, index.cast_signed());
        assembler.compute(Operation::Move, R2, 0);
        assembler.call(REDIRECT);
        assembler.exit();
        let instructions = assembler.finish().map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(LiveFrames { program: Program::verify(&instructions, false, &mut [])? })
    }

    /// Sends `count` copies of a frame as fast as this processor can. Frames that the interface does not take are lost.
    /// A call takes some milliseconds to prepare.
    ///
    /// # Errors
    /// Those of `bpf(2)`: `EINTR` after a signal, when fewer were sent; `EINVAL` for a frame shorter than 14 bytes or
    /// longer than a page has room for, or before Linux 5.18.
    pub fn send(&self, frame: &[u8], count: u32) -> io::Result<()> {
        let settings = TestSettings { repeat: count, flags: LIVE_FRAMES, batch: BATCH };
        self.program.test_run(frame, &settings).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use bellows_testkit::programs::{self, missing};
    use bellows_testkit::skips::is_skipped;
    use bellows_testkit::{eventually, skip};

    use super::*;
    use crate::test_net::{in_namespace, veth};

    const TEST: &str = "frames_leave_through_the_interface";
    const FRAMES: u32 = 1_000;

    /// The packets that an interface of this thread's network namespace has received.
    fn received(interface: &str) -> u64 {
        let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':')).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn send_over_a_pair() {
        veth();
        let frames = match LiveFrames::to_interface("near") {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return skip(TEST, "needs CAP_BPF and CAP_NET_ADMIN");
            }
            frames => frames.unwrap(),
        };
        assert_eq!(frames.send(&[0; 13], 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // The peer does not poll: the interface takes no frame, and the call succeeds.
        frames.send(&[0; 60], FRAMES).unwrap();
        assert!(received("far") < u64::from(FRAMES));
        programs::run(Command::new("ethtool").args(["-K", "far", "gro", "on"])).unwrap();
        let before = received("far");
        // The peer's ring has 256 places and is emptied on this processor, after each batch.
        eventually("frames arrive", || {
            frames.send(&[0; 60], FRAMES).unwrap();
            received("far") >= before + u64::from(FRAMES)
        });
        assert_eq!(LiveFrames::to_interface("none").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn frames_leave_through_the_interface() {
        if !is_skipped(TEST, missing(&["ethtool"])) {
            in_namespace(TEST, send_over_a_pair);
        }
    }
}
