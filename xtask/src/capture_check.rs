//! Checks the quickstart capture and describes its contents, as `tcpdump` sees them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{TaskError, tools};

const MIN_PACKETS: usize = 1_000;
const MAX_BYTES: u64 = 1_500_000;

/// The rows of the table in examples/README.md: protocol, and its `tcpdump` filter. Each must occur.
const PROTOCOLS: &[(&str, &str)] = &[
    ("IPv4", "ip"),
    ("IPv6", "ip6"),
    ("ARP", "arp"),
    ("DNS over UDP, IPv4", "ip and udp port 53"),
    ("DNS over UDP, IPv6", "ip6 and udp port 53"),
    ("DNS over TCP", "tcp port 53"),
    ("HTTP (TCP), IPv4", "ip and tcp port 80"),
    ("HTTP (TCP), IPv6", "ip6 and tcp port 80"),
    ("ICMP echo", "icmp[icmptype] == icmp-echo or icmp[icmptype] == icmp-echoreply"),
    ("ICMP errors", "icmp[icmptype] == icmp-unreach or icmp[icmptype] == icmp-timxceed"),
    ("ICMPv6 echo", "ip6[6] == 58 and (ip6[40] == 128 or ip6[40] == 129)"),
    ("ICMPv6 errors", "ip6[6] == 58 and ip6[40] < 128"),
    ("IPv6 neighbour discovery", "ip6[6] == 58 and ip6[40] >= 133 and ip6[40] <= 137"),
    ("IPv6 multicast listener reports", "ip6[6] == 0 and ip6[48] == 143"),
    ("IPv4 fragments", "ip[6:2] & 0x3fff != 0"),
    ("IPv6 fragments", "ip6[6] == 44"),
    ("refused TCP connections (RST)", "tcp[tcpflags] & tcp-rst != 0"),
];

/// The messages of `tcpdump -vv` about wrong checksums in IPv4, TCP, UDP, ICMP and ICMPv6.
const COMPLAINTS: &[&str] = &["bad cksum", "(incorrect", "bad udp cksum", "wrong icmp cksum", "bad icmp6 cksum"];

/// Rejects a capture that is unfit for a newcomer's first run; otherwise describes it as Markdown.
pub fn describe(capture: &Path) -> Result<String, TaskError> {
    let bytes = fs::read(capture).map_err(|error| unfit(capture, &format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unfit(capture, &format!("{} bytes are more than {MAX_BYTES}", bytes.len())));
    }
    check_host_name(capture, &bytes)?;
    let long = count(capture, "greater 1515")?;
    if long > 0 {
        return Err(unfit(capture, &format!("{long} frames are longer than 1514 bytes")));
    }
    check_checksums(capture)?;
    check_time_order(capture)?;
    let packets = count(capture, "")?;
    if packets < MIN_PACKETS {
        return Err(unfit(capture, &format!("{packets} packets are fewer than {MIN_PACKETS}")));
    }

    let mut table = format!("{packets} packets, {} bytes:\n\n", bytes.len());
    table.push_str("| protocol | packets | `tcpdump` filter |\n|---|---:|---|\n");
    for (protocol, filter) in PROTOCOLS {
        let count = count(capture, filter)?;
        if count == 0 {
            return Err(unfit(capture, &format!("no packet is {protocol} ({filter})")));
        }
        let _ = writeln!(table, "| {protocol} | {count} | `{filter}` |");
    }
    Ok(table)
}

fn unfit(capture: &Path, why: &str) -> TaskError {
    TaskError::failed(format!("{}: {why}", capture.display()))
}

/// Rejects a capture that contains the name of the recording machine, which is private.
fn check_host_name(capture: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    // A shorter name occurs by chance, in sequence numbers for example.
    if name.len() >= 5 && bytes.windows(name.len()).any(|window| window == name.as_bytes()) {
        return Err(unfit(capture, &format!("holds this machine's name, {name}")));
    }
    Ok(())
}

fn check_checksums(capture: &Path) -> Result<(), TaskError> {
    let wrong = |line: &&str| COMPLAINTS.iter().any(|complaint| line.contains(complaint));
    match tcpdump(capture, &["-vv"])?.lines().find(wrong) {
        Some(line) => Err(unfit(capture, &format!("a checksum is wrong: {}", line.trim()))),
        None => Ok(()),
    }
}

/// Rejects packets out of time order, for which a reader in recorded time would be late.
fn check_time_order(capture: &Path) -> Result<(), TaskError> {
    let text = tcpdump(capture, &["-tt"])?;
    let times: Vec<f64> = text.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    if times.is_sorted() {
        Ok(())
    } else {
        Err(unfit(capture, "packets are not in the order of their times; record again while the machine is quiet"))
    }
}

fn count(capture: &Path, filter: &str) -> Result<usize, TaskError> {
    Ok(tcpdump(capture, &["-t", filter])?.lines().filter(|line| !line.starts_with(['\t', ' '])).count())
}

fn tcpdump(capture: &Path, arguments: &[&str]) -> Result<String, TaskError> {
    let output = Command::new("tcpdump")
        .args(["-n", "-r"])
        .arg(capture)
        .args(arguments)
        .env("PATH", tools::search_path())
        .output()
        .map_err(|error| TaskError::failed(format!("cannot run tcpdump: {error}")))?;
    if !output.status.success() {
        return Err(unfit(capture, &format!("tcpdump: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
