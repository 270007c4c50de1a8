//! Network namespaces: hosts with cables between them, and what a test does there.
//!
//! A [`Lab`] makes hosts and removes them with everything in them, also if the test fails. The machine's own interfaces
//! are never touched: each interface is made inside a host.
//!
//! Addresses are those reserved for documentation (RFC 5737, 3849).

pub mod capture;
pub mod interface;
pub mod traffic;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::eventually;
use crate::programs::{self, Background, search_path};

/// The folder of the names of network namespaces.
const NAMES: &str = "/run/netns";

/// The start of all names of hosts.
const PREFIX: &str = "bellows-test-";

/// The start of a command that runs in a network namespace, without this process's environment. Its arguments are a
/// program and the program's arguments.
pub fn inside(namespace: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).env_clear().env("PATH", search_path()).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Runs a command line, whose words are separated by blanks, in a network namespace. Returns its output.
///
/// # Errors
///
/// Those of [`programs::run`].
pub fn run(namespace: &str, words: &str) -> Result<String, String> {
    programs::run(inside(namespace).args(words.split(' ')))
}

/// Runs a shell script in a network namespace. Returns its output.
///
/// # Errors
///
/// Those of [`programs::run`].
pub fn sh(namespace: &str, script: &str) -> Result<String, String> {
    programs::run(inside(namespace).args(["sh", "-c", script]))
}

/// Disables all offloads of an interface, so that frames are as on a wire: no longer than the MTU, with complete
/// checksums.
///
/// # Errors
///
/// Those of [`programs::run`].
pub fn disable_offloads(namespace: &str, interface: &str) -> Result<(), String> {
    let features = "rx off tx off sg off tso off gso off gro off";
    run(namespace, &format!("ethtool -K {interface} {features}")).map(drop)
}

/// Disables IPv6 on all interfaces of a network namespace, also on those made later, so that its kernel sends nothing by
/// itself: no neighbour discovery, and no reports of multicast groups.
///
/// # Errors
///
/// Those of [`programs::run`].
pub fn disable_ipv6(namespace: &str) -> Result<(), String> {
    let script = "for place in all default; do echo 1 >/proc/sys/net/ipv6/conf/$place/disable_ipv6; done";
    sh(namespace, script).map(drop)
}

/// Whether an IPv6 address in a network namespace is still unusable, because duplicates of it are being looked for.
///
/// # Errors
///
/// Those of [`programs::run`].
pub fn has_tentative_address(namespace: &str) -> Result<bool, String> {
    run(namespace, "ip -6 address show tentative").map(|listed| !listed.is_empty())
}

/// This program again, with arguments to be added, as the first process of its own network, mount and process
/// namespaces. When it ends, or this process does, in whatever way, the kernel kills all its programs and removes the
/// networks and mounts. `wrapper` is a program with arguments that runs it there.
///
/// # Errors
///
/// The path of this program is unknown.
pub fn in_own_namespaces(wrapper: &[&str]) -> Result<Command, String> {
    let program = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
    command.args(["--mount-proc", "--"]).args(wrapper).arg(program).env("PATH", search_path());
    Ok(command)
}

/// Hides the names of the machine's network namespaces from this process, which has a [mount namespace of its
/// own](in_own_namespaces), and the names of its own from the machine.
///
/// # Errors
///
/// Those of [`programs::run`].
pub fn hide_names() -> Result<(), String> {
    fs::create_dir_all(NAMES).map_err(|error| format!("cannot create {NAMES}: {error}"))?;
    programs::run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", NAMES])).map(drop)
}

/// The reason to skip a test that needs network namespaces and these programs, if something is missing.
pub fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let missing = programs::missing(&["ip", "ethtool"]).or_else(|| programs::missing(programs));
    if missing.is_some() {
        return missing;
    }
    let probe = programs::run(Command::new("unshare").args(["--net", "true"]));
    probe.err().map(|error| format!("no network namespace can be made: {error}"))
}

/// Hosts of one test.
pub struct Lab {
    hosts: Vec<String>,
    number: u32,
}

impl Lab {
    /// A lab without hosts.
    pub fn new() -> Lab {
        static LABS: AtomicU32 = AtomicU32::new(0);
        remove_leftovers();
        Lab { hosts: Vec::new(), number: LABS.fetch_add(1, Relaxed) }
    }

    /// Adds a host: a network namespace whose interfaces can be used at once.
    pub fn host(&mut self, name: &str) -> Host {
        let host = Host { namespace: format!("{PREFIX}{}-{}-{name}", std::process::id(), self.number) };
        programs::run(Command::new("ip").args(["netns", "add", &host.namespace])).unwrap();
        self.hosts.push(host.namespace.clone());
        // Without the search for duplicate addresses, and without queries for routers that do not exist.
        host.sh("for place in all default; do
                     echo 0 >/proc/sys/net/ipv6/conf/$place/accept_dad
                     echo 0 >/proc/sys/net/ipv6/conf/$place/dad_transmits
                     echo 0 >/proc/sys/net/ipv6/conf/$place/router_solicitations
                 done
                 ip link set lo up");
        host
    }

    /// Adds a host whose interfaces have no addresses, so that its kernel sends nothing by itself.
    pub fn silent_host(&mut self, name: &str) -> Host {
        let host = self.host(name);
        disable_ipv6(&host.namespace).unwrap();
        host
    }
}

impl Default for Lab {
    fn default() -> Lab {
        Lab::new()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in &self.hosts {
            remove(host);
        }
    }
}

fn remove(namespace: &str) {
    if let Err(why) = programs::run(Command::new("ip").args(["netns", "delete", namespace])) {
        eprintln!("{why}");
    }
}

/// Removes the hosts of tests that were killed.
fn remove_leftovers() {
    let names = fs::read_dir(NAMES).into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&name);
        }
    }
}

/// A network namespace.
#[derive(Clone, Debug)]
pub struct Host {
    namespace: String,
}

impl Host {
    /// The name of the namespace, as `ip netns` lists it.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The file of the namespace.
    pub fn path(&self) -> PathBuf {
        Path::new(NAMES).join(&self.namespace)
    }

    /// The start of a command on this host: see [`inside`].
    pub fn command(&self) -> Command {
        inside(&self.namespace)
    }

    /// Runs a command line whose words are separated by blanks, and returns its output. The test fails if it does.
    #[track_caller]
    pub fn run(&self, words: &str) -> String {
        run(&self.namespace, words).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Runs a shell script, and returns its output. The test fails if it does.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        sh(&self.namespace, script).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts a command line whose words are separated by blanks.
    #[track_caller]
    pub fn start(&self, words: &str) -> Background {
        let mut command = self.command();
        command.args(words.split(' ')).stderr(Stdio::null());
        Background::start(&mut command).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Waits until a TCP server listens at a port.
    pub fn wait_for_listener(&self, port: u16) {
        let filter = format!("ss --no-header --listening --tcp --numeric sport = {port}");
        eventually("a TCP server", || !self.run(&filter).is_empty());
    }

    /// Disables all offloads of an interface: see [`disable_offloads`].
    pub fn disable_offloads(&self, interface: &str) {
        disable_offloads(&self.namespace, interface).unwrap();
    }

    /// Waits until all addresses can be used.
    pub fn wait_for_addresses(&self) {
        eventually("usable addresses", || !has_tentative_address(&self.namespace).unwrap());
    }
}

/// An end of a cable: a veth interface.
#[derive(Clone, Debug)]
pub struct CableEnd {
    /// Where it is.
    pub host: Host,
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: String,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Receive queues and transmit queues in use.
    pub queues: usize,
    /// Receive queues and transmit queues that may be in use.
    pub max_queues: usize,
}

impl CableEnd {
    /// An end with one queue, and without addresses.
    pub fn new(host: &Host, name: &str, mac: &str) -> CableEnd {
        CableEnd {
            host: host.clone(),
            name: name.to_owned(),
            mac: mac.to_owned(),
            addresses: Vec::new(),
            queues: 1,
            max_queues: 1,
        }
    }

    /// Adds an address with its prefix length.
    pub fn address(mut self, address: &str) -> CableEnd {
        self.addresses.push(address.to_owned());
        self
    }

    /// Has `queues` queues, and may get more up to a maximum.
    pub fn queues(mut self, queues: usize, max: usize) -> CableEnd {
        (self.queues, self.max_queues) = (queues, max);
        self
    }

    /// The interface of this end.
    pub fn interface(&self) -> interface::HostInterface {
        interface::HostInterface::new(&self.host, &self.name)
    }

    fn words(&self) -> String {
        let CableEnd { name, mac, max_queues, .. } = self;
        format!("name {name} address {mac} numrxqueues {max_queues} numtxqueues {max_queues}")
    }

    fn set_up(&self, mtu: usize) {
        let CableEnd { host, name, queues, .. } = self;
        if self.max_queues > 1 {
            // Exits with an error if the number is already right.
            let _ = run(host.namespace(), &format!("ethtool -L {name} rx {queues} tx {queues}"));
        }
        for address in &self.addresses {
            let unique = if address.contains(':') { " nodad" } else { "" };
            host.run(&format!("ip address add {address} dev {name}{unique}"));
        }
        host.run(&format!("ip link set {name} mtu {mtu} up"));
    }
}

/// Connects two ends, which may be in different hosts, with a veth pair, and waits until it works.
pub fn connect(ends: [&CableEnd; 2], mtu: usize) {
    let [one, other] = ends;
    let peer = format!("peer {} netns {}", other.words(), other.host.namespace());
    one.host.run(&format!("ip link add {} type veth {peer}", one.words()));
    one.set_up(mtu);
    other.set_up(mtu);
    for end in ends {
        eventually("a cable that works", || end.interface().is_operational());
    }
}

/// Waits until interfaces of this thread's network namespace, which were just set up, send what they get. Before a thread
/// of the kernel has seen their carrier, they discard it without a word (the queueing discipline `noop`).
pub fn wait_for_carriers(names: &[&str]) {
    let shown = |name: &&str| programs::run(Command::new("ip").args(["-o", "link", "show", "dev", name]));
    let sends = |shown: String| shown.contains(" state UP ") && !shown.contains(" qdisc noop ");
    eventually("carriers", || names.iter().all(|name| sends(shown(name).unwrap())));
}

/// Removes a cable: both ends.
pub fn disconnect(end: &CableEnd) {
    end.host.run(&format!("ip link delete {}", end.name));
}
