//! TAP devices: interfaces of the host whose other side is the network of apps.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use bellows_netdev::tap::{self, Offloads, Tap, TapOptions};
use bellows_netdev::{PortError, PortOpenError, VIRTIO_HEADER};
use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, LargeShare, Offload, Packet, Vector};
use bellows_ports::offload::{admit, header_for};
use bellows_ports::{Accepted, QueueBell, QueueSet, Rejection, SendQueue, Taken};
use bellows_sys::capability::{self, Set};
use bellows_wire::MacAddr;

use crate::advertisements::{self, Ignored};
use crate::arp_guard::Claim;
use crate::finder::Finder;
use crate::interface::{Interface, Interfaces};
use crate::joint::Joint;
use crate::keeper::{OpenError, PortSource};
use crate::release::wait_for_other_owners;
use crate::status::PortStatus;
use crate::virtio_header::{from_header, to_header};
use crate::{InterfaceName, Keeper, Queue, QueueCounts, QueueError, Start, Started};

/// The name for which the kernel chooses a number.
const ANY_NAME: &str = "tap%d";

/// A TAP device, and the settings of its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The device's name. A device that exists is used, otherwise it is created. `None` for a new one with a name that
    /// the kernel chooses.
    pub name: Option<String>,
    /// The network namespace of the device: see [`InterfaceName::namespace`].
    pub namespace: Option<PathBuf>,
    /// The queues, at least 1. Several ports may have a part of a device's queues each, with the same settings.
    pub queues: QueueSet,
    /// Whether packets keep partial checksums and are segmented late.
    pub offloads: bool,
    /// Whether a device that is created here stays when the port ends.
    pub persistent: bool,
    /// The user who may open a device that is created here.
    pub owner: Option<u32>,
    /// The group that may open a device that is created here.
    pub group: Option<u32>,
    /// The host's addresses on the interface, with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The MTU, in bytes.
    pub mtu: Option<u32>,
    /// The host's Ethernet address on the interface.
    pub mac: Option<MacAddr>,
    /// Whether the kernel may configure the interface by router advertisements.
    pub accept_ra: bool,
    /// Whether to set the interface up.
    pub up: bool,
}

impl TapConfig {
    /// The capabilities that creating the device takes, if it is in another network namespace or not.
    pub fn capabilities(in_namespace: bool) -> Set {
        if in_namespace { Set::NET_ADMIN | Set::SYS_ADMIN } else { Set::NET_ADMIN }
    }

    /// Starts the control thread of a port, whose name `name` is the thread's.
    ///
    /// # Errors
    /// Why the device cannot be opened.
    pub fn start(self, name: &str, start: Start, status: Arc<PortStatus>) -> Started<TapQueue> {
        Keeper::start(name, TapSource::new(self), start, status)
    }
}

/// Opens or creates a TAP device.
#[derive(Debug)]
pub struct TapSource {
    config: TapConfig,
    finder: Finder,
    share: Arc<LargeShare>,
    /// The name that the kernel chose.
    chosen: Option<String>,
    /// One of the open queues, to find out whether the device exists.
    open: Option<Arc<Tap>>,
    device: Option<Arc<Device>>,
    /// The addresses that the host has through it, or is about to get.
    expected: Option<Claim>,
    /// Whether the kernel ignores router advertisements, if it is to.
    ignored: Option<Ignored>,
}

/// The devices that are open.
static DEVICES: Joint<Device> = Joint::new();

/// A device, for all ports of this process that have it open.
#[derive(Debug)]
struct Device {
    /// What a device that existed before gets back when the last port closes it.
    before: Option<Mutex<Before>>,
}

/// The settings of a device as they were found.
#[derive(Clone, Debug)]
struct Before {
    interface: Interface,
    /// The addresses that were added.
    added: Vec<(IpAddr, u8)>,
    /// How the kernel treated router advertisements, if that was changed.
    accept_ra: Option<advertisements::Before>,
}

impl Device {
    /// Adds addresses to those that are removed at the end.
    fn add(&self, added: Vec<(IpAddr, u8)>) {
        if let Some(before) = &self.before {
            before.lock().unwrap_or_else(PoisonError::into_inner).added.extend(added);
        }
    }
}

impl TapSource {
    /// A source that has opened nothing yet.
    pub fn new(config: TapConfig) -> TapSource {
        let name = config.name.clone().unwrap_or_else(|| ANY_NAME.to_owned());
        let ignored = config.name.as_deref().filter(|_| !config.accept_ra);
        let ignored = ignored.map(|device| Ignored::of(config.namespace.as_deref(), device));
        let finder = Finder::new(InterfaceName { name, namespace: config.namespace.clone() });
        TapSource {
            config,
            finder,
            share: Arc::new(LargeShare::new()),
            chosen: None,
            open: None,
            device: None,
            expected: None,
            ignored,
        }
    }

    /// Opens the queues of the device, and creates it with the first one if it does not exist.
    fn open_taps(&mut self, exists: bool) -> Result<Vec<Arc<Tap>>, OpenError> {
        let config = &self.config;
        let mut options = TapOptions {
            name: self.chosen.as_ref().or(config.name.as_ref()).map_or(ANY_NAME, String::as_str).to_owned(),
            exclusive: false,
            multi_queue: config.queues.is_part() || config.queues.count() > 1,
            virtio_header: config.offloads,
        };
        let mut taps = Vec::new();
        for _ in 0..config.queues.count().max(1) {
            let tap = Tap::open(&options).map_err(open_error)?;
            tap.name().clone_into(&mut options.name);
            taps.push(Arc::new(tap));
        }
        let Some(first) = taps.first() else { return Ok(taps) };
        let on = config.offloads;
        let offloads = Offloads { checksum: on, tso4: on, tso6: on, ..Offloads::default() };
        first.set_offloads(offloads).map_err(|error| failed("set the offloads of the TAP device", &error))?;
        if !exists {
            let owner = config.owner.map_or(Ok(()), |owner| first.set_owner(owner));
            owner.map_err(|error| failed("set the owner of the TAP device", &error))?;
            let group = config.group.map_or(Ok(()), |group| first.set_group(group));
            group.map_err(|error| failed("set the group of the TAP device", &error))?;
        }
        if config.name.is_none() {
            self.chosen = Some(first.name().to_owned());
        }
        self.finder.rename(first.name());
        Ok(taps)
    }

    /// Has the kernel ignore router advertisements, before it hears any.
    fn ignore_advertisements(&self, name: &str) -> Option<advertisements::Before> {
        if self.config.accept_ra {
            return None;
        }
        let done = advertisements::ignore(name);
        if let Some(ignored) = &self.ignored {
            ignored.set(done.is_ok());
        }
        match done {
            Ok(before) => before,
            Err(error) => {
                tracing::warn!(
                    "{name}: the host hears no router advertisements, because its kernel would obey them: accept_ra \
                     cannot be set to 0: {error}; `sysctl net.ipv6.conf.{name}.accept_ra=0` lets them pass"
                );
                None
            }
        }
    }

    /// Applies the settings that the configuration asks for. Returns the addresses that were added.
    fn set_up(&mut self, interface: &Interface, added: &mut Vec<(IpAddr, u8)>) -> io::Result<()> {
        let (config, index) = (&self.config, interface.index);
        let interfaces = self.finder.interfaces();
        if let Some(mac) = config.mac.filter(|mac| interface.mac != Some(*mac)) {
            interfaces.set_mac(index, mac)?;
        }
        if let Some(mtu) = config.mtu.filter(|mtu| interface.mtu != *mtu) {
            interfaces.set_mtu(index, mtu)?;
        }
        // Before the kernel has them, so that it never answers for them at the ports of a router.
        let addresses: Vec<Ipv4Addr> = config.addresses.iter().filter_map(|(address, _)| as_ipv4(address)).collect();
        self.expected = (!addresses.is_empty()).then(|| Claim::of_host(addresses));
        for &(address, prefix) in &config.addresses {
            match interfaces.add_address(index, address, prefix) {
                Ok(()) => added.push((address, prefix)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        if config.up && !interface.is_up {
            interfaces.set_up(index, true)?;
        }
        Ok(())
    }

    fn report(&self, status: &PortStatus, exists: bool) {
        status.update(|snapshot| {
            let details = &mut snapshot.details;
            details.queues = Some(self.config.queues.to_string());
            details.offloads = Some(if self.config.offloads { "on" } else { "off" }.to_owned());
            details.device = Some(if exists { "opened" } else { "created" }.to_owned());
        });
    }
}

fn as_ipv4(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    }
}

fn failed(what: &str, error: &io::Error) -> OpenError {
    OpenError::Failed(format!("cannot {what}: {error}"))
}

fn open_error(error: PortOpenError) -> OpenError {
    let kind = error.source.kind();
    if let (true, Some(missing)) = (error.takes_privileges(), capability::missing(Set::NET_ADMIN)) {
        return OpenError::Failed(format!("the TAP device cannot be opened: {missing}"));
    }
    let text = error.to_string();
    if kind == io::ErrorKind::ResourceBusy { OpenError::Busy(text) } else { OpenError::Failed(text) }
}

/// Gives an interface its settings back, as far as it still exists.
fn give_back(interfaces: &mut Interfaces, before: &Before) {
    let Before { interface, added, accept_ra } = before;
    let index = interface.index;
    let Ok(Some(now)) = interfaces.by_index(index) else { return };
    if let Some(accept_ra) = accept_ra {
        advertisements::give_back(&now.name, accept_ra);
    }
    // An interface that is changed by others meanwhile may refuse; the rest is given back all the same.
    for &(address, prefix) in added {
        let _ = interfaces.remove_address(index, address, prefix);
    }
    if now.mtu != interface.mtu {
        let _ = interfaces.set_mtu(index, interface.mtu);
    }
    if let Some(mac) = interface.mac.filter(|mac| now.mac != Some(*mac)) {
        let _ = interfaces.set_mac(index, mac);
    }
    if now.is_up != interface.is_up {
        let _ = interfaces.set_up(index, interface.is_up);
    }
}

impl PortSource for TapSource {
    type Queue = TapQueue;

    fn prepare(&mut self) -> Result<(), OpenError> {
        let entering = if self.config.namespace.is_some() { Set::SYS_ADMIN } else { Set::EMPTY };
        if let Some(missing) = capability::missing(entering) {
            return Err(OpenError::Failed(missing.to_string()));
        }
        self.finder.prepare()
    }

    fn open(&mut self, status: &PortStatus) -> Result<Vec<TapQueue>, OpenError> {
        // The first port creates the device and sets it up, and the others find it so.
        let mut devices = DEVICES.lock();
        let exists = self.config.name.as_deref().is_some_and(tap::exists);
        let taps = self.open_taps(exists)?;
        let interface = self.finder.find()?;
        let open = devices.find(&interface);
        let accept_ra = self.ignore_advertisements(&interface.name);
        let mut before = Before { interface: interface.clone(), added: Vec::new(), accept_ra };
        let done = self.set_up(&interface, &mut before.added);
        if let Err(error) = done {
            if exists && open.is_none() {
                give_back(self.finder.interfaces(), &before);
            }
            let why = capability::missing(Set::NET_ADMIN).filter(|_| error.kind() == io::ErrorKind::PermissionDenied);
            let why = why.map(|missing| format!("; {missing}")).unwrap_or_default();
            return Err(failed("set up the TAP device", &io::Error::new(error.kind(), format!("{error}{why}"))));
        }
        let device = match open {
            Some(device) => {
                device.add(before.added);
                device
            }
            None => devices.add(&interface, Device { before: exists.then(|| Mutex::new(before)) }),
        };
        let existed = device.before.is_some();
        self.device = Some(device);
        self.open = taps.first().cloned();
        // Last, so that nothing stays of an attempt that failed before.
        if let Some(first) = self.open.as_ref().filter(|_| self.config.persistent && !exists) {
            first.set_persistent(true).map_err(|error| failed("make the TAP device persistent", &error))?;
        }
        self.report(status, existed);
        let queue = |tap| TapQueue::new(tap, self.config.offloads, Arc::clone(&self.share));
        Ok(taps.into_iter().map(queue).collect())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.finder.descriptors()
    }

    fn check(&mut self, status: &PortStatus) -> Option<String> {
        if let (Some(ignored), Some(name)) = (&self.ignored, &self.config.name)
            && !ignored.get()
        {
            // Somebody may have set it meanwhile.
            ignored.set(!advertisements::obeys(name));
        }
        if self.finder.check(status) {
            return None;
        }
        // An interface that was moved to another network namespace is not seen any more, but works.
        if self.open.as_ref().is_some_and(|tap| tap.present_name().is_some()) {
            status.update(|snapshot| {
                snapshot.details.device = Some("moved to another network namespace".to_owned());
            });
            status.carries(true);
            return None;
        }
        Some("the TAP device was deleted".to_owned())
    }

    fn idle(&mut self, status: &PortStatus) {
        self.finder.idle(status);
    }

    fn close(&mut self) {
        self.open = None;
        let _devices = DEVICES.lock();
        let before = self.device.take().and_then(Arc::into_inner).and_then(|device| device.before);
        if let Some(before) = before {
            give_back(self.finder.interfaces(), &before.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        self.expected = None;
    }
}

/// One queue of a TAP device: a system call for each frame.
pub struct TapQueue {
    bell: Arc<TapBell>,
    offloads: bool,
    share: Arc<LargeShare>,
    /// The end of a frame that is longer than an ordinary buffer.
    rest: Vec<u8>,
    counts: QueueCounts,
}

/// The bell of a [`TapQueue`]: its descriptor. There is no memory that says whether a frame is there.
pub struct TapBell(Arc<Tap>);

impl QueueBell for TapBell {
    fn word(&self) -> Option<&AtomicU32> {
        None
    }

    fn mask(&self) -> u32 {
        0
    }

    fn quiet(&self) -> u32 {
        0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

impl TapQueue {
    fn new(tap: Arc<Tap>, offloads: bool, share: Arc<LargeShare>) -> TapQueue {
        // One byte more, so that a frame that is too long is noticed.
        let rest = vec![0; LARGE_DATA_ROOM - DATA_ROOM + 1];
        TapQueue { bell: Arc::new(TapBell(tap)), offloads, share, rest, counts: QueueCounts::default() }
    }

    /// Puts a frame together whose end is in `rest`.
    #[cold]
    fn join(&mut self, first: &Packet, length: usize) -> Option<Packet> {
        if length > LARGE_DATA_ROOM {
            self.counts.rx_too_long += 1;
            return None;
        }
        let Some(mut packet) = Packet::with_room_of(&self.share, length) else {
            self.counts.rx_no_buffer += 1;
            return None;
        };
        packet.append(first.bytes());
        packet.append(&self.rest[..length - first.len()]);
        Some(packet)
    }
}

impl Queue for TapQueue {
    type Bell = TapBell;

    fn set_receiving(&mut self, _receives: bool) -> io::Result<bool> {
        // The kernel drops what does not fit into its queue.
        Ok(true)
    }

    fn bell(&self) -> Arc<TapBell> {
        Arc::clone(&self.bell)
    }

    fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError> {
        let most = most.min(packets.room() + packets.len());
        let mut header = [0; VIRTIO_HEADER];
        while packets.len() < most {
            // Without a buffer the frames wait in the kernel, which drops and counts those that are too many.
            let Some(mut packet) = Packet::with_room(DATA_ROOM) else { break };
            let read = self.bell.0.read_parts(&mut header, packet.extend(DATA_ROOM), &mut self.rest);
            let length = match read {
                Ok(length) => length,
                Err(PortError::Full) => break,
                Err(error) => return Err(QueueError::from_port(error)),
            };
            if length <= DATA_ROOM {
                packet.truncate(length);
            } else {
                match self.join(&packet, length) {
                    Some(whole) => packet = whole,
                    None => continue,
                }
            }
            let claim = from_header(header);
            if self.offloads && (claim.needs_checksum() || claim.is_gso()) && !admit(&mut packet, claim, Accepted::ALL)
            {
                self.counts.rx_bad_header += 1;
                continue;
            }
            // There is room: it was checked above.
            let _ = packets.push(packet);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), QueueError> {
        Ok(())
    }

    fn accepted(&self) -> Accepted {
        if self.offloads { Accepted::ALL } else { Accepted::default() }
    }

    fn counts(&mut self) -> QueueCounts {
        self.counts
    }
}

impl SendQueue for TapQueue {
    type Error = QueueError;

    fn send(&mut self, packets: &[Packet]) -> Result<Taken, QueueError> {
        let accepted = self.accepted();
        for (count, packet) in packets.iter().enumerate() {
            let header = if packet.has_offload() { header_for(packet, accepted) } else { Some(Offload::default()) };
            let Some(header) = header else { return Ok(Taken { count, stop: Some(Rejection::Offload) }) };
            match self.bell.0.write(&to_header(header), packet.bytes()) {
                Ok(()) => {}
                Err(PortError::Full | PortError::Dropped) => {
                    return Ok(Taken { count, stop: Some(Rejection::Full) });
                }
                // It will never be valid.
                Err(PortError::Invalid) => self.counts.not_sent += 1,
                Err(PortError::TooLong) => return Ok(Taken { count, stop: Some(Rejection::TooLong) }),
                // The next call brings the error again.
                Err(_) if count > 0 => return Ok(Taken { count, stop: None }),
                Err(error) => return Err(QueueError::from_port(error)),
            }
        }
        Ok(Taken { count: packets.len(), stop: None })
    }
}

impl Drop for TapQueue {
    fn drop(&mut self) {
        wait_for_other_owners(&self.bell);
    }
}
