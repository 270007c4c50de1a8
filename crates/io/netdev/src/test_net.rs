//! Network interfaces for tests, in a network namespace of the test's own.

use std::ffi::CString;
use std::process::Command;

use bellows_testkit::netns::wait_for_carriers;
use bellows_testkit::programs;
use bellows_testkit::skips::is_skipped;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs a test on a thread in a new network namespace, which ends with it. Its interfaces have no IPv6, so that the
/// kernel sends nothing by itself. Skips the test without the privilege or the program `ip`.
pub(crate) fn in_namespace(test: &str, work: impl FnOnce() + Send) {
    if is_skipped(test, programs::missing(&["ip"])) {
        return;
    }
    let enter = || {
        // SAFETY: only the network namespace changes, and no descriptor depends on it.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        for scope in ["all", "default"] {
            // A kernel without IPv6 has no such file.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
        }
        Ok::<(), rustix::io::Errno>(())
    };
    std::thread::scope(|scope| {
        let run = || match enter() {
            Ok(()) => work(),
            Err(error) => drop(is_skipped(test, Some(format!("no network namespace can be made: {error}")))),
        };
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `ip` with arguments that are separated by spaces. Returns its output.
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a pair of interfaces, `near` and `far`, which are up. Returns their numbers.
pub(crate) fn veth() -> [u32; 2] {
    ip("link add near type veth peer name far");
    ip("link set near up");
    ip("link set far up");
    wait_for_carriers(&["near", "far"]);
    [index("near"), index("far")]
}

/// The number of an interface.
pub(crate) fn index(name: &str) -> u32 {
    let terminated = CString::new(name).unwrap();
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(terminated.as_ptr()) };
    assert_ne!(index, 0, "{name}");
    index
}

/// A frame of this length with a local type, from one address of locally administered stations to another.
pub(crate) fn frame(length: usize, seed: u8) -> Vec<u8> {
    let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let payload = (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed));
    header.into_iter().chain(payload).take(length).collect()
}

/// A virtio-net header and a frame: a TCP GSO packet over IPv4 with `data` bytes of data, whose checksum is partial.
pub(crate) fn gso_packet(data: usize) -> ([u8; 10], Vec<u8>) {
    const IP: usize = 14;
    const TCP: usize = IP + 20;
    const HEADERS: usize = TCP + 20;
    let mut bytes = frame(HEADERS + data, 5);
    bytes[12..IP].copy_from_slice(&[8, 0]);
    let length = (bytes.len() - IP) as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    let sum = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>();
    ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    bytes[IP..TCP].copy_from_slice(&ip);
    bytes[TCP..HEADERS].copy_from_slice(&[0, 80, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    // NEEDS_CSUM, TCPV4, the length of the headers, the segment size, the checksum's start and offset.
    let [headers, start] = [HEADERS as u16, TCP as u16].map(u16::to_le_bytes);
    let segment = 1448u16.to_le_bytes();
    let header = [1, 1, headers[0], headers[1], segment[0], segment[1], start[0], start[1], 16, 0];
    (header, bytes)
}
