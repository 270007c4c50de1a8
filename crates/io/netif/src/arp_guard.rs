//! Keeps the kernel from answering ARP for the addresses of a router.
//!
//! The kernel answers a request on every interface for each address that it has on any (`arp_ignore` is 0). If the
//! host behind a router has the router's addresses, and a port shares its interface with the kernel, neighbours would
//! get the port's own Ethernet address. So while a port is open, its interface answers only for its own addresses, if
//! the kernel has an address of a router of this process, or is about to get one from it. The same holds for every other
//! device that hears the interface's frames: its VLANs, MACVLANs and IPVLANs, and a bridge that it is a port of.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bellows_sys::capability::{Set, missing};
use bellows_sys::namespace;

use crate::interface::{Interface, Interfaces};
use crate::status::PortStatus;

/// Values of `arp_ignore` with which an interface answers only for its own addresses, or for none.
const ONLY_OWN: u32 = 1;
const NONE: u32 = 8;

/// How often a port looks for devices that hear its interface, unless addresses have changed: listing all devices is
/// what costs most of a check.
const DEVICES_AFTER: Duration = Duration::from_secs(10);

/// The claims and the ports of this process.
static KNOWN: Mutex<Known> = Mutex::new(Known { claims: Vec::new(), ports: Vec::new(), next: 0 });

struct Known {
    claims: Vec<Claimed>,
    ports: Vec<Weak<Mutex<GuardedPort>>>,
    next: u64,
}

struct Claimed {
    number: u64,
    /// The namespace of a host that gets the addresses; `None` for a router, which answers for them.
    host: Option<u64>,
    addresses: Vec<Ipv4Addr>,
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    fn update(&mut self) {
        self.ports.retain(|port| port.strong_count() > 0);
        for port in self.ports.iter().filter_map(Weak::upgrade) {
            lock(&port).update(&self.claims);
        }
    }
}

/// Addresses that a router of this process answers for, or that its host has. Ends when it is dropped.
#[derive(Debug)]
pub struct Claim(u64);

impl Claim {
    /// The addresses of a router. Ports that are open obey before this returns.
    pub fn of_router(addresses: Vec<Ipv4Addr>) -> Claim {
        Claim::new(None, addresses)
    }

    /// Addresses that the kernel is about to get in the namespace of this thread.
    pub(crate) fn of_host(addresses: Vec<Ipv4Addr>) -> Claim {
        Claim::new(Some(this_namespace()), addresses)
    }

    fn new(host: Option<u64>, addresses: Vec<Ipv4Addr>) -> Claim {
        let mut known = known();
        known.next += 1;
        let number = known.next;
        known.claims.push(Claimed { number, host, addresses });
        known.update();
        Claim(number)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut known = known();
        known.claims.retain(|claim| claim.number != self.0);
        known.update();
    }
}

/// A port whose interface the kernel hears, too. Gives the interface its setting back when it is dropped.
#[derive(Debug)]
pub(crate) struct Guard(Arc<Mutex<GuardedPort>>);

fn lock(port: &Mutex<GuardedPort>) -> MutexGuard<'_, GuardedPort> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guard {
    /// Guards an interface in the namespace of this thread; `None` if the kernel gives no sockets to do so.
    pub(crate) fn new(interface: &Interface) -> Option<Guard> {
        let port = GuardedPort {
            interfaces: Interfaces::open().ok()?,
            index: interface.index,
            name: interface.name.clone(),
            namespace: this_namespace(),
            of_all: of_all(),
            present: Vec::new(),
            hearing: Vec::new(),
            listed: None,
            silenced: BTreeMap::new(),
            refused: None,
            answered: Vec::new(),
            told: Vec::new(),
        };
        let port = Arc::new(Mutex::new(port));
        let mut known = known();
        lock(&port).update(&known.claims);
        known.ports.push(Arc::downgrade(&port));
        Some(Guard(port))
    }

    pub(crate) fn index(&self) -> u32 {
        lock(&self.0).index
    }

    /// Looks for addresses that the kernel has got meanwhile, and reports those for which it answers.
    pub(crate) fn check(&self, name: &str, status: &PortStatus) {
        let known = known();
        let mut port = lock(&self.0);
        name.clone_into(&mut port.name);
        port.update(&known.claims);
        status.update(|snapshot| {
            let addresses: Vec<String> = port.answered.iter().map(Ipv4Addr::to_string).collect();
            snapshot.details.kernel_answers_for = (!addresses.is_empty()).then(|| addresses.join(", "));
        });
        if port.told != port.answered {
            port.told = port.answered.clone();
            for address in &port.told {
                let remedy = port.refused.as_ref().map_or_else(
                    || remedy(&port.name, *address),
                    |error| format!("arp_ignore of {} cannot be set: {error}", port.name),
                );
                tracing::warn!("{}: {}; {remedy}", port.name, sentence(&port.name, *address));
            }
        }
    }
}

/// What is wrong if the kernel answers for an address.
fn sentence(name: &str, address: Ipv4Addr) -> String {
    format!("the kernel answers ARP on {name} for {address}, which is an address of the router")
}

/// What to do about an address of the interface itself.
fn remedy(name: &str, address: Ipv4Addr) -> String {
    format!("remove the address from {name}: `ip address show to {address}` shows it, `ip address delete` removes it")
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Nobody else may set it anew meanwhile, but a port that shares a bridge with this one needs it still.
        let mut known = known();
        known.ports.retain(|port| !std::ptr::eq(port.as_ptr(), Arc::as_ptr(&self.0)));
        lock(&self.0).restore(&[]);
        known.update();
    }
}

#[derive(Debug)]
struct GuardedPort {
    interfaces: Interfaces,
    index: u32,
    name: String,
    namespace: u64,
    /// `arp_ignore` of all interfaces: the greater value counts.
    of_all: u32,
    /// The addresses of the kernel.
    present: Vec<(u32, Ipv4Addr)>,
    /// The devices that hear the interface, and when they were listed.
    hearing: Vec<u32>,
    listed: Option<Instant>,
    /// The devices whose setting was changed here, with the values before and since.
    silenced: BTreeMap<u32, [u32; 2]>,
    /// Why it could not be set.
    refused: Option<String>,
    /// The addresses of routers for which the kernel answers here.
    answered: Vec<Ipv4Addr>,
    /// What was logged about these.
    told: Vec<Ipv4Addr>,
}

impl GuardedPort {
    fn update(&mut self, claims: &[Claimed]) {
        let of_routers: Vec<Ipv4Addr> =
            claims.iter().filter(|claim| claim.host.is_none()).flat_map(|claim| claim.addresses.clone()).collect();
        if of_routers.is_empty() {
            self.answered.clear();
            return self.restore(&[]);
        }
        // If the kernel is busy, the next check comes soon.
        let Ok(present) = self.interfaces.ipv4_addresses() else { return };
        if present != self.present || self.listed.is_none_or(|listed| listed.elapsed() >= DEVICES_AFTER) {
            let Ok(all) = self.interfaces.list() else { return };
            self.hearing = hearing(&all, self.index);
            self.present = present;
            self.listed = Some(Instant::now());
        }
        let has = |address: &Ipv4Addr, is_here: bool| is_present(&self.present, &self.hearing, address, is_here);
        let expected = |address: &Ipv4Addr| {
            claims.iter().any(|claim| claim.host == Some(self.namespace) && claim.addresses.contains(address))
        };
        let mut here: Vec<Ipv4Addr> = of_routers.iter().copied().filter(|address| has(address, true)).collect();
        let mut elsewhere = of_routers;
        elsewhere.retain(|address| has(address, false) || expected(address));
        if elsewhere.is_empty() {
            self.restore(&[]);
        } else if let Err(error) = self.silence() {
            self.refused = Some(error.to_string());
            here.extend(elsewhere);
        } else {
            self.refused = None;
        }
        here.sort_unstable();
        here.dedup();
        self.answered = here;
    }

    /// Lets these devices answer only for their own addresses, and no others.
    fn silence(&mut self) -> io::Result<()> {
        let hearing = self.hearing.clone();
        self.restore(&hearing);
        for index in hearing {
            let now = self.interfaces.arp_ignore(index)?.unwrap_or(0);
            if is_silent(now.max(self.of_all)) {
                continue;
            }
            let value = if self.of_all <= ONLY_OWN { ONLY_OWN } else { NONE };
            self.interfaces.set_arp_ignore(index, value)?;
            self.silenced.entry(index).and_modify(|[_, since]| *since = value).or_insert([now, value]);
        }
        Ok(())
    }

    /// Gives the devices their setting back, but for these.
    fn restore(&mut self, but: &[u32]) {
        for (index, [before, since]) in std::mem::take(&mut self.silenced) {
            if but.contains(&index) {
                self.silenced.insert(index, [before, since]);
                continue;
            }
            // An interface that is gone needs nothing, and what somebody else has set meanwhile stays.
            if self.interfaces.arp_ignore(index).ok().flatten() != Some(since) {
                continue;
            }
            if let Err(error) = self.interfaces.set_arp_ignore(index, before) {
                let found = self.interfaces.by_index(index).ok().flatten();
                let name = found.map_or_else(|| self.name.clone(), |interface| interface.name);
                tracing::warn!(
                    "{name} cannot be given its setting back: {error}; `sysctl net.ipv4.conf.{name}.arp_ignore={before}` \
                     does that"
                );
            }
        }
    }
}

/// The devices of the kernel that hear the frames of an interface: itself, its VLANs and the like, and what it is a port
/// of.
fn hearing(all: &[Interface], index: u32) -> Vec<u32> {
    const ABOVE: [&str; 5] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"];
    const AROUND: [&str; 3] = ["bridge", "bond", "team"];
    let is =
        |interface: &Interface, kinds: &[&str]| interface.kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
    let mut hearing = vec![index];
    let mut next = 0;
    while let Some(&index) = hearing.get(next) {
        let master = all.iter().find(|interface| interface.index == index).and_then(|interface| interface.master);
        let above = all.iter().filter(|interface| {
            (interface.lower == Some(index) && is(interface, &ABOVE))
                || (Some(interface.index) == master && is(interface, &AROUND))
        });
        for interface in above {
            if !hearing.contains(&interface.index) {
                hearing.push(interface.index);
            }
        }
        next += 1;
    }
    hearing
}

/// Whether one of these devices, or another one, has an address.
fn is_present(present: &[(u32, Ipv4Addr)], devices: &[u32], address: &Ipv4Addr, is_here: bool) -> bool {
    present.iter().any(|(index, found)| found == address && devices.contains(index) == is_here)
}

/// Whether an interface with this value answers only for its own addresses.
fn is_silent(value: u32) -> bool {
    matches!(value, 1 | 2 | NONE)
}

/// `arp_ignore` of all interfaces in the namespace of this thread.
fn of_all() -> u32 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/conf/all/arp_ignore").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The network namespace of this thread.
pub(crate) fn this_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())
}

/// What keeps a router from being the only one to answer for its addresses behind a port on this interface, and what to
/// do about it: of what a port cannot mend. Nothing if the interface does not exist yet.
pub fn find_conflicts(namespace: Option<&Path>, name: &str, addresses: &[Ipv4Addr]) -> Vec<(String, String)> {
    let find = move || -> Option<Vec<(String, String)>> {
        if let Some(path) = namespace {
            namespace::enter_network(path).ok()?;
        }
        let mut interfaces = Interfaces::open().ok()?;
        let interface = interfaces.by_name(name).ok()??;
        let present = interfaces.ipv4_addresses().ok()?;
        let hearing = hearing(&interfaces.list().ok()?, interface.index);
        let of_all = of_all();
        let mut is_silent = true;
        for &index in &hearing {
            is_silent &= self::is_silent(interfaces.arp_ignore(index).ok()??.max(of_all));
        }
        let unprivileged = missing(Set::NET_ADMIN).filter(|_| !is_silent);
        let mut found = Vec::new();
        for &address in addresses {
            let has = |is_here: bool| is_present(&present, &hearing, &address, is_here);
            if has(true) {
                found.push((sentence(name, address), remedy(name, address)));
            } else if let (true, Some(missing)) = (has(false), &unprivileged) {
                let help = format!("`sysctl net.ipv4.conf.{name}.arp_ignore=1` prevents that; {missing}");
                found.push((sentence(name, address), help));
            }
        }
        Some(found)
    };
    // Entering a namespace changes the thread.
    thread::scope(|scope| scope.spawn(find).join().ok().flatten()).unwrap_or_default()
}
