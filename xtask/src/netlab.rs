//! The hosts of the quickstart capture, and their traffic.
//!
//! Each host is a Linux network namespace. Three clients and a router share a bridge; a name server and a web server
//! are behind the router. `tcpdump` captures on the bridge:
//!
//! ```text
//!  alice 192.0.2.10  ─┐
//!  bob   192.0.2.11  ─┼─ bridge ─ 192.0.2.1 router 198.51.100.1 ─ services: dns 198.51.100.53, www 198.51.100.80
//!  carol 192.0.2.12  ─┘ (tcpdump)
//! ```
//!
//! Addresses, names and MAC addresses are those reserved for documentation (RFC 5737, 3849, 2606 and 7042).
//!
//! The code here runs inside its own namespaces (network, mounts and processes; see `quickstart.rs`), so the kernel
//! removes everything, whatever happens to the recording.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bellows_testkit::netns;
use bellows_testkit::netns::capture::Capture;
use bellows_testkit::programs::{self, Background};

use crate::{TaskError, tools};

/// The output file of `tcpdump`, in the scratch folder.
pub const CAPTURE: &str = "quickstart.pcap";

/// A host's end of a virtual cable.
struct CablePort {
    host: &'static str,
    mac: &'static str,
    ip4: &'static [&'static str],
    ip6: &'static [&'static str],
}

const LAN: &[CablePort] = &[
    CablePort { host: "router", mac: "00:00:5e:00:53:01", ip4: &["192.0.2.1/24"], ip6: &["2001:db8:1::1/64"] },
    CablePort { host: "alice", mac: "00:00:5e:00:53:0a", ip4: &["192.0.2.10/24"], ip6: &["2001:db8:1::a/64"] },
    CablePort { host: "bob", mac: "00:00:5e:00:53:0b", ip4: &["192.0.2.11/24"], ip6: &["2001:db8:1::b/64"] },
    CablePort { host: "carol", mac: "00:00:5e:00:53:0c", ip4: &["192.0.2.12/24"], ip6: &["2001:db8:1::c/64"] },
];
const ROUTER: CablePort =
    CablePort { host: "router", mac: "00:00:5e:00:53:02", ip4: &["198.51.100.1/24"], ip6: &["2001:db8:2::1/64"] };
const SERVICES: CablePort = CablePort {
    host: "services",
    mac: "00:00:5e:00:53:50",
    ip4: &["198.51.100.53/24", "198.51.100.80/24"],
    ip6: &["2001:db8:2::53/64", "2001:db8:2::80/64"],
};

const RESOLV_CONF: &str = "nameserver 198.51.100.53\n";
const HOSTS: &str = "127.0.0.1 localhost\n";
const NSSWITCH: &str = "hosts: files dns\n";

/// The name server's zones; the text of `notes` is too long for a UDP answer, so a client retries over TCP.
const DNSMASQ_CONF: &str = "\
no-resolv
no-hosts
user=root
pid-file=
log-facility=-
local=/example.org/example.com/example.net/
host-record=www.example.org,198.51.100.80,2001:db8:2::80
host-record=dns.example.org,198.51.100.53,2001:db8:2::53
host-record=router.example.org,192.0.2.1,2001:db8:1::1
host-record=alice.example.org,192.0.2.10,2001:db8:1::a
host-record=bob.example.org,192.0.2.11,2001:db8:1::b
host-record=carol.example.org,192.0.2.12,2001:db8:1::c
host-record=legacy.example.net,198.51.100.80
cname=shop.example.com,www.example.org
mx-host=example.org,mail.example.org,10
host-record=mail.example.org,198.51.100.80,2001:db8:2::80
txt-record=example.org,v=spf1 -all
";

/// The files on the web server, and their sizes in bytes.
const FILES: &[(&str, usize)] = &[
    ("hello.txt", 100),
    ("news.html", 900),
    ("index.html", 4_000),
    ("style.css", 14_000),
    ("picture.svg", 48_000),
    ("manual.txt", 160_000),
];

/// A command line that a client runs; the words are separated by blanks.
struct Talk {
    words: String,
    /// The expected exit code: some commands are meant to fail.
    exit: i32,
}

/// Records the capture into the folder `scratch`.
pub fn record(scratch: &Path) -> Result<(), TaskError> {
    let lab = Lab { scratch: scratch.to_owned() };
    lab.isolate()?;
    lab.build()?;
    let mut recorder = lab.start_recorder()?;
    lab.connect()?;
    let _servers = lab.start_servers()?;
    lab.wait_for_addresses()?;
    lab.run_clients()?;
    // The effects of the last commands (answers, closing connections) belong to the capture, too.
    thread::sleep(Duration::from_millis(300));
    recorder.stop().map_err(TaskError::failed)
}

struct Lab {
    scratch: PathBuf,
}

impl Lab {
    /// Mounts our own resolver files over the machine's, and our own folder where `ip netns` keeps names.
    fn isolate(&self) -> Result<(), TaskError> {
        for (place, text) in [("resolv.conf", RESOLV_CONF), ("hosts", HOSTS), ("nsswitch.conf", NSSWITCH)] {
            let ours = self.write(place, text)?;
            let place = Path::new("/etc").join(place);
            if place.exists() {
                run(Command::new("mount").arg("--bind").args([&ours, &place]))?;
            }
        }
        netns::hide_names().map_err(TaskError::failed)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf, TaskError> {
        let path = self.scratch.join(name);
        fs::write(&path, text).map_err(|error| cannot("write", &path, error))?;
        Ok(path)
    }

    /// Creates the hosts and the bridge; the cables stay down, so that the capture has each host coming up.
    fn build(&self) -> Result<(), TaskError> {
        for host in ["switch", "router", "alice", "bob", "carol", "services"] {
            sh(&format!("ip netns add {host}"))?;
            sh(&format!("ip -n {host} link set lo up"))?;
        }
        // The bridge is only a wire here: it has no address and sends no queries.
        netns::disable_ipv6("switch").map_err(TaskError::failed)?;
        sh("ip -n switch link add bridge type bridge mcast_snooping 0 stp_state 0 forward_delay 0")?;
        sh("ip -n switch link set bridge up")?;
        inside("router", "echo 1 > /proc/sys/net/ipv4/ip_forward")?;
        inside("router", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")?;
        for port in LAN {
            let CablePort { host, mac, .. } = port;
            sh(&format!("ip -n {host} link add lan address {mac} type veth peer name {host} netns switch"))?;
            sh(&format!("ip -n switch link set {host} master bridge up"))?;
            no_offloads("switch", host)?;
            no_offloads(host, "lan")?;
        }
        sh(&format!(
            "ip -n router link add servers address {} type veth peer name lan address {} netns services",
            ROUTER.mac, SERVICES.mac
        ))?;
        no_offloads("router", "servers")?;
        no_offloads("services", "lan")
    }

    fn start_recorder(&self) -> Result<Capture, TaskError> {
        Capture::start("switch", "bridge", "", &self.scratch.join(CAPTURE)).map_err(TaskError::failed)
    }

    /// Brings the cables up and gives the hosts their addresses and routes.
    fn connect(&self) -> Result<(), TaskError> {
        let lan = LAN.iter().map(|port| (port, "lan"));
        for (port, link) in lan.chain([(&ROUTER, "servers"), (&SERVICES, "lan")]) {
            let host = port.host;
            for address in port.ip4.iter().chain(port.ip6) {
                sh(&format!("ip -n {host} address add {address} dev {link}"))?;
            }
            sh(&format!("ip -n {host} link set {link} up"))?;
        }
        for client in ["alice", "bob", "carol"] {
            sh(&format!("ip -n {client} route add default via 192.0.2.1"))?;
            sh(&format!("ip -n {client} -6 route add default via 2001:db8:1::1"))?;
        }
        sh("ip -n services route add default via 198.51.100.1")?;
        sh("ip -n services -6 route add default via 2001:db8:2::1")
    }

    fn start_servers(&self) -> Result<[Background; 2], TaskError> {
        let mut conf = DNSMASQ_CONF.to_owned();
        for line in 1..=12 {
            let _ =
                writeln!(conf, "txt-record=notes.example.org,note {line} of twelve: long enough to need a second try");
        }
        let conf = self.write("dnsmasq.conf", conf)?;
        let site = self.scratch.join("site");
        fs::create_dir_all(&site).map_err(|error| cannot("create", &site, error))?;
        for (name, size) in FILES {
            self.write(&format!("site/{name}"), web_page(*size))?;
        }
        let log = |name: &str| {
            let path = self.scratch.join(name);
            File::create(&path).map_err(|error| cannot("write", &path, error))
        };
        let mut dns = netns::inside("services");
        let conf = format!("--conf-file={}", conf.display());
        dns.args(["dnsmasq", "--keep-in-foreground", &conf]).stderr(log("dnsmasq.log")?);
        let mut web = netns::inside("services");
        web.args(["busybox", "httpd", "-f", "-p", "[::]:80", "-h"]).arg(site).stderr(log("httpd.log")?);
        Ok([spawn(&mut dns)?, spawn(&mut web)?])
    }

    /// Waits for duplicate address detection, before which an IPv6 address is unusable.
    fn wait_for_addresses(&self) -> Result<(), TaskError> {
        let deadline = Instant::now() + Duration::from_secs(10);
        for host in ["router", "alice", "bob", "carol", "services"] {
            while netns::has_tentative_address(host).map_err(TaskError::failed)? {
                if Instant::now() > deadline {
                    return Err(TaskError::failed(format!("{host}: an IPv6 address stayed tentative for 10 seconds")));
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// All clients run at the same time.
    fn run_clients(&self) -> Result<(), TaskError> {
        thread::scope(|scope| {
            let clients = ["alice", "bob", "carol"].map(|host| scope.spawn(move || hold(host, &script(host))));
            clients.into_iter().try_for_each(|client| {
                client.join().unwrap_or_else(|_| Err(TaskError::failed("a client's thread panicked")))
            })
        })
    }
}

/// The commands of a client.
fn script(host: &str) -> Vec<Talk> {
    let mut script = Vec::new();
    let mut say = |exit: i32, words: &str| script.push(Talk { words: words.to_owned(), exit });
    let neighbour = match host {
        "alice" => "bob",
        "bob" => "carol",
        _ => "alice",
    };
    for round in 0..4 {
        let family = if round % 2 == 0 { "-4" } else { "-6" };
        say(0, &format!("ping {family} -n -q -c 12 -i 0.03 -s {} {neighbour}.example.org", 24 + 300 * round));
        say(0, "dig -r +short @198.51.100.53 www.example.org A");
        say(0, "dig -r +short @2001:db8:2::53 www.example.org AAAA");
        say(0, "dig -r +short @198.51.100.53 example.org MX");
        say(0, "dig -r +short @2001:db8:2::53 shop.example.com A");
        say(0, &format!("dig -r +short @198.51.100.53 missing-{round}.example.net A"));
        for (file, size) in FILES {
            // Large files only once, or the capture would contain little else.
            if *size < 20_000 || (round == 1 && *size < 100_000) || (round == 2 && host == "alice") {
                say(0, &format!("{CURL} {family} http://www.example.org/{file}"));
            }
        }
        say(0, &format!("{CURL} http://legacy.example.net/hello.txt http://shop.example.com/news.html"));
        say(0, &format!("ping {family} -n -q -c 10 -i 0.03 www.example.org"));
        // Forces a new neighbour discovery.
        say(0, "ip neighbour flush all");
    }
    // Answers over TCP: on request, and because an answer over UDP would be too long.
    say(0, "dig -r +short +tcp @198.51.100.53 www.example.org A");
    say(0, "dig -r +short +noedns @198.51.100.53 notes.example.org TXT");
    say(0, "dig -r +short @198.51.100.53 -x 192.0.2.11");
    // Fragments, in both families.
    say(0, "ping -4 -n -q -c 3 -i 0.05 -s 3000 www.example.org");
    say(0, "ping -6 -n -q -c 3 -i 0.05 -s 3000 www.example.org");
    // Common errors: a missing page, a closed port in TCP and in UDP, an expiring hop limit.
    say(22, &format!("{CURL} --fail http://www.example.org/missing.html"));
    say(7, &format!("{CURL} http://www.example.org:8080/"));
    say(9, "dig -r +tries=1 +time=1 -p 5353 @198.51.100.53 www.example.org A");
    say(1, "ping -4 -n -q -c 2 -i 0.05 -W 1 -t 1 www.example.org");
    say(1, "ping -6 -n -q -c 2 -i 0.05 -W 1 -t 1 www.example.org");
    script
}

/// Without the machine's own settings and proxies, and without printing the page.
const CURL: &str = "curl -q --silent --noproxy * --output /dev/null";

fn hold(host: &str, script: &[Talk]) -> Result<(), TaskError> {
    for Talk { words, exit } in script {
        let mut command = netns::inside(host);
        let output = command
            .args(words.split(' '))
            .output()
            .map_err(|error| TaskError::failed(format!("{host}: cannot run `{words}`: {error}")))?;
        if output.status.code() != Some(*exit) {
            return Err(TaskError::failed(format!(
                "{host}: `{words}`: {} instead of {exit}\n{}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )));
        }
    }
    Ok(())
}

/// Text of exactly `size` bytes.
fn web_page(size: usize) -> Vec<u8> {
    let lines = (1..).flat_map(|line| format!("line {line} of a page on www.example.org\n").into_bytes());
    lines.take(size).collect()
}

fn no_offloads(host: &str, link: &str) -> Result<(), TaskError> {
    netns::disable_offloads(host, link).map_err(TaskError::failed)
}

fn inside(host: &str, script: &str) -> Result<(), TaskError> {
    netns::sh(host, script).map(drop).map_err(TaskError::failed)
}

/// Runs a command line whose words are separated by blanks.
fn sh(words: &str) -> Result<(), TaskError> {
    let mut words = words.split(' ');
    run(Command::new(words.next().unwrap_or_default()).args(words).env("PATH", tools::search_path()))
}

fn run(command: &mut Command) -> Result<(), TaskError> {
    programs::run(command).map(drop).map_err(TaskError::failed)
}

fn spawn(command: &mut Command) -> Result<Background, TaskError> {
    Background::start(command).map_err(TaskError::failed)
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> TaskError {
    TaskError::failed(format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_size() {
        for (_, size) in FILES {
            assert_eq!(web_page(*size).len(), *size);
        }
    }

    #[test]
    fn every_host_speaks_documentation_addresses_only() {
        for port in LAN.iter().chain([&ROUTER, &SERVICES]) {
            assert!(port.mac.starts_with("00:00:5e:00:53:"), "{}", port.mac);
            assert!(port.ip4.iter().all(|ip| ip.starts_with("192.0.2.") || ip.starts_with("198.51.100.")));
            assert!(port.ip6.iter().all(|ip| ip.starts_with("2001:db8:")));
        }
    }
}
