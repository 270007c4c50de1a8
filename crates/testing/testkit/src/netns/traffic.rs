//! Traffic between two hosts: `ping`, `iperf3`, and files over HTTP.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::Host;
use crate::eventually;
use crate::programs::Background;
use crate::wait::Deadline;

/// The programs that this module needs.
pub const PROGRAMS: &[&str] = &["ping", "iperf3", "curl", "busybox", "ss"];

/// The port of `iperf3 --server`.
const IPERF: u16 = 5201;

/// The port of the web server.
const HTTP: u16 = 80;

/// The bytes of an Ethernet frame's payload that are the headers of a ping: of IP, and 8 of ICMP.
fn ping_headers(address: &str) -> usize {
    if is_v6(address) { 40 + 8 } else { 20 + 8 }
}

fn is_v6(address: &str) -> bool {
    address.contains(':')
}

/// Waits until a host answers.
pub fn wait_for_answer(from: &Host, to: &str) {
    eventually(&format!("an answer from {to}"), || {
        super::run(from.namespace(), &format!("ping -n -q -c 1 -W 1 {to}")).is_ok()
    });
}

/// Pings with frames of several sizes up to the MTU, which must not be fragmented. The test fails if an answer is
/// missing or has other content.
#[track_caller]
pub fn ping(from: &Host, to: &str, mtu: usize) {
    let largest = mtu - ping_headers(to);
    for size in [0, 1, 56, 57, 511, largest / 2, largest - 1, largest] {
        // Behind the first answer, ping waits only twice the time which that took: one query at a time.
        for _ in 0..2 {
            let said = from.run(&format!("ping -n -q -c 1 -W 20 -M do -s {size} {to}"));
            assert!(said.contains(" 0% packet loss") && !said.contains("wrong"), "{size} bytes to {to}: {said}");
        }
    }
}

/// Whether a ping with a frame as long as the MTU is answered.
pub fn is_answered_at(from: &Host, to: &str, mtu: usize) -> bool {
    let size = mtu - ping_headers(to);
    super::run(from.namespace(), &format!("ping -n -q -c 1 -W 1 -M do -s {size} {to}")).is_ok()
}

/// Servers of a host.
pub struct Servers {
    _programs: [Background; 2],
}

impl Servers {
    /// Starts `iperf3`, and a web server for the files of a folder.
    pub fn start(host: &Host, folder: &Path) -> Servers {
        let iperf3 = host.start("iperf3 --server");
        let web = host.start(&format!("busybox httpd -f -p [::]:{HTTP} -h {}", folder.display()));
        host.wait_for_listener(IPERF);
        host.wait_for_listener(HTTP);
        Servers { _programs: [iperf3, web] }
    }
}

/// The direction of a stream between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDirection {
    /// To the server.
    There,
    /// From the server.
    Back,
}

/// Runs `iperf3` over TCP, and returns what arrived in bits per second. The test fails if nothing does.
#[track_caller]
pub fn tcp(client: &Host, server: &str, time: Duration, direction: StreamDirection) -> f64 {
    let reverse = if direction == StreamDirection::Back { " --reverse" } else { "" };
    let report = iperf(client, &format!("--client {server} --time {}{reverse}", time.as_secs()));
    let rate = number(&report["end"]["sum_received"]["bits_per_second"], &report);
    assert!(rate > 0.0, "nothing came: {report:#}");
    rate
}

/// What `iperf3` says about packets over UDP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Udp {
    /// Packets sent.
    pub sent: u64,
    /// Packets that did not arrive.
    pub lost: u64,
}

/// Runs `iperf3` over UDP with packets of `length` bytes, at a rate in megabits per second.
#[track_caller]
pub fn udp(client: &Host, server: &str, time: Duration, megabits: u64, length: usize) -> Udp {
    let seconds = time.as_secs();
    let report =
        iperf(client, &format!("--client {server} --time {seconds} --udp --bitrate {megabits}M --length {length}"));
    let sum = &report["end"]["sum"];
    Udp { sent: number(&sum["packets"], &report) as u64, lost: number(&sum["lost_packets"], &report) as u64 }
}

fn number(value: &Value, report: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number is missing in {report:#}"))
}

/// Runs `iperf3` and returns its report. A server that has not noticed the end of the previous run refuses the next one,
/// which is then tried again.
#[track_caller]
fn iperf(client: &Host, words: &str) -> Value {
    let deadline = Deadline::new("a server of iperf3 that is not busy");
    loop {
        let said = client.run(&format!("iperf3 --json --connect-timeout 20000 {words}"));
        let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"));
        match report["error"].as_str() {
            None => return report,
            Some(error) if error.contains("busy") => thread::sleep(Duration::from_millis(100)),
            Some(error) => panic!("iperf3 {words}: {error}"),
        }
        deadline.check();
    }
}

/// A URL on a server with this address.
pub fn url(server: &str, file: &str) -> String {
    if is_v6(server) { format!("http://[{server}]:{HTTP}/{file}") } else { format!("http://{server}:{HTTP}/{file}") }
}

/// Fetches a file from a server's folder. The test fails unless all its bytes arrive unchanged.
#[track_caller]
pub fn fetch(client: &Host, server: &str, folder: &Path, file: &str) {
    let copy = folder.join(format!("{}-{file}", client.namespace()));
    let url = url(server, file);
    client.run(&format!("curl -q --globoff --silent --show-error --max-time 60 --output {} {url}", copy.display()));
    let [sent, received] = [folder.join(file), copy].map(|path| fs::read(path).unwrap());
    let same = sent.iter().zip(&received).take_while(|(sent, received)| sent == received).count();
    assert!(sent == received, "{url}: {} of {} bytes came, equal up to {same}", received.len(), sent.len());
}

/// Packets that a host has received with a wrong checksum.
pub fn checksum_errors(host: &Host) -> u64 {
    let kept = host.run("cat /proc/net/snmp /proc/net/snmp6");
    sum_of_checksum_errors(&kept)
}

/// The sum of all counters of checksum errors in the text of `/proc/net/snmp`, which has a line of names and one of
/// numbers for each protocol, and of `/proc/net/snmp6`, which has a line for each counter.
pub fn sum_of_checksum_errors(text: &str) -> u64 {
    const NAME: &str = "InCsumErrors";
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let column = |names: &Vec<&str>, numbers: &Vec<&str>| {
        let column = names.iter().position(|word| *word == NAME)?;
        (names[0] == numbers[0]).then(|| numbers[column].parse::<u64>().ok()).flatten()
    };
    let rows = lines.iter().filter(|line| line.len() == 2 && line[0].ends_with(NAME));
    let rows = rows.filter_map(|line| line[1].parse::<u64>().ok());
    lines.windows(2).filter_map(|pair| column(&pair[0], &pair[1])).chain(rows).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_errors_of_all_protocols_are_added() {
        let text = "\
Icmp: InMsgs InErrors InCsumErrors InDestUnreachs
Icmp: 9 1 1 0
Tcp: RtoAlgorithm MaxConn InCsumErrors
Tcp: 1 -1 20
Udp: InDatagrams NoPorts
Udp: 5 6
Icmp6InCsumErrors               \t300
Udp6InDatagrams                 \t7
";
        assert_eq!(sum_of_checksum_errors(text), 321);
        assert_eq!(sum_of_checksum_errors(""), 0);
    }

    #[test]
    fn addresses_in_a_url_are_in_brackets_if_they_have_colons() {
        assert_eq!(url("2001:db8::1", "file"), "http://[2001:db8::1]:80/file");
        assert_eq!(url("192.0.2.1", "file"), "http://192.0.2.1:80/file");
        assert_eq!((ping_headers("2001:db8::1"), ping_headers("192.0.2.1")), (48, 28));
    }
}
