//! Opens the queues of an interface.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bellows_netdev::bpf::Mode;
use bellows_netdev::ethtool::{self, Channels};
use bellows_netdev::packet_socket::Promiscuity;
use bellows_netdev::xdp::{BindOptions, CHUNK, CopyMemory, CopyMode, RingSizes, Socket};
use bellows_packet::{Loans, pool};
use bellows_sys::capability::{self, memlock_limit};
use rustix::io::Errno;

use super::memory::{self, BindError, Membership, Sharing};
use super::program::{self, Attachment};
use super::queue::{Buffers, XdpQueue, XdpQueueOptions};
use super::{CAPABILITIES, TransmitChecksums, XdpConfig};
use crate::finder::{Finder, failed};
use crate::interface::Interface;
use crate::netdev::{self, QueueDirection};
use crate::status::{PortDetails, PortStatus};
use crate::{OpenError, PortSource};

/// Chunks without which a socket that copies is of no use.
const MIN_CHUNKS: usize = 64;

/// Memory that is left for others under the limit of locked memory.
const SPARE: u64 = 256 << 10;

/// The queues of an interface, through AF_XDP sockets.
pub struct XdpSource {
    config: XdpConfig,
    finder: Finder,
    /// The numbers of the queues that are open.
    open: Vec<u32>,
    /// Number of transmit queues of the interface.
    senders: u32,
    /// The lowest number of a queue that turned out to send nothing.
    limit: Arc<AtomicU32>,
    /// The MTU of the interface.
    mtu: Arc<AtomicU32>,
    /// Lasts while the interface is open.
    promiscuity: Option<Promiscuity>,
    /// The interface whose number of queues was changed, and what it was.
    restore: Option<(u32, Channels)>,
}

impl XdpSource {
    /// A port that opens the interface when it is asked to.
    pub fn new(config: XdpConfig) -> XdpSource {
        let finder = Finder::new(config.interface.clone());
        let limit = Arc::new(AtomicU32::new(u32::MAX));
        let (open, mtu) = (Vec::new(), Arc::default());
        XdpSource { config, finder, open, senders: 0, limit, mtu, promiscuity: None, restore: None }
    }

    /// The receive queues that the interface uses.
    fn receive_queues(interface: &Interface) -> u32 {
        let channels = ethtool::channels(&interface.name).ok().flatten().map(|channels| channels.receiving());
        // Only while the interface is up, and with newer kernels.
        let listed = || {
            let queues = netdev::queues(interface.index).ok().flatten()?;
            Some(queues.iter().filter(|queue| queue.direction == QueueDirection::Rx).count() as u32)
        };
        let used = channels.filter(|count| *count > 0).or_else(|| listed().filter(|count| *count > 0));
        used.unwrap_or(interface.rx_queues).max(1)
    }

    /// The transmit queues that the interface uses. A socket of a queue beyond them can only receive: the kernel leaves
    /// its frames in the ring, and says nothing.
    fn transmit_queues(&self, interface: &Interface) -> u32 {
        let listed = netdev::queues(interface.index).ok().flatten();
        let listed = listed.map(|queues| queues.iter().filter(|queue| queue.direction == QueueDirection::Tx).count());
        // Before Linux 6.8, and while the interface is down. It shows the network namespace in which it was mounted.
        let in_sysfs = || {
            let folder = format!("/sys/class/net/{}/queues", interface.name);
            let entries = fs::read_dir(folder).ok().filter(|_| self.config.interface.namespace.is_none())?;
            let names = entries.flatten().map(|entry| entry.file_name());
            Some(names.filter(|name| name.as_encoded_bytes().starts_with(b"tx-")).count())
        };
        let used = listed.filter(|count| *count > 0).or_else(|| in_sysfs().filter(|count| *count > 0));
        used.map_or(interface.tx_queues, |count| count as u32).max(1)
    }

    /// Whether a queue can send.
    fn transmits(&self, queue: u32) -> bool {
        queue < self.senders.min(self.limit.load(Relaxed))
    }

    /// Gives the interface as many queues as the configuration says.
    fn set_queues(&mut self, interface: &Interface) -> Result<(), OpenError> {
        let (Some(wanted), name) = (self.config.set_queues, &interface.name) else { return Ok(()) };
        let now = ethtool::channels(name).map_err(|error| failed(name, &error))?;
        let now = now.ok_or_else(|| {
            let why = "its driver cannot change them; leave `set_queues` out";
            OpenError::Failed(format!("`{name}` cannot have {wanted} queues: {why}"))
        })?;
        let new = match now.max_combined {
            0 => Channels { rx: wanted, tx: wanted, ..now },
            _ => Channels { combined: wanted, rx: 0, tx: 0, ..now },
        };
        if new != now {
            ethtool::set_channels(name, &new).map_err(|error| failed(name, &error))?;
            self.restore.get_or_insert((interface.index, now));
        }
        Ok(())
    }

    /// The number of the queues to open.
    fn wanted(&self, available: u32, name: &str) -> Result<Vec<u32>, OpenError> {
        let Some(queues) = &self.config.queues else { return Ok((0..available).collect()) };
        match queues.iter().find(|queue| **queue >= available) {
            Some(queue) => Err(OpenError::Failed(format!(
                "`{name}` has {available} receive queues, numbered from 0, and no queue {queue}; see `ethtool -l {name}`"
            ))),
            None => Ok(queues.clone()),
        }
    }

    /// Opens one queue.
    fn open_queue(
        &self,
        interface: &Interface,
        queue: u32,
        program: &Arc<Attachment>,
        checksums: TransmitChecksums,
    ) -> Result<(XdpQueue, Opened), OpenError> {
        let name = &interface.name;
        let size = self.config.ring_size;
        let mut bind = BindOptions { copy: self.config.copy, need_wakeup: true, multi_buffer: program.multi_buffer };
        // The generic mode always copies.
        if program.mode == Mode::Generic && bind.copy == CopyMode::Auto {
            bind.copy = CopyMode::Copy;
        }
        let mut sharing = Sharing { bind, checksums };
        let mut why_copies = None;
        let (socket, membership, rings, buffers) = loop {
            let sizes = RingSizes { fill: size, completion: size, rx: size, tx: size };
            let (socket, rings) = Socket::new(sizes).map_err(|error| failed(name, &error))?;
            let socket = Arc::new(socket);
            let result = match &why_copies {
                None => bind_to_pool(&socket, interface.index, queue, sharing, size),
                Some(_) => bind_to_copies(&socket, interface.index, queue, sharing, size),
            };
            match result {
                Ok((membership, buffers)) => break (socket, membership, rings, buffers),
                Err(BindError::Register(error)) if why_copies.is_none() => {
                    why_copies = Some(explain_memory(&error));
                    sharing.checksums = TransmitChecksums::Off;
                }
                Err(BindError::Register(error)) => {
                    let why = explain_memory(&error);
                    return Err(OpenError::Failed(format!(
                        "`{name}`: the kernel accepts no memory for its sockets: {why}"
                    )));
                }
                Err(BindError::Bind(error)) if sharing.bind.multi_buffer && is_refused(&error) => {
                    sharing.bind.multi_buffer = false;
                }
                Err(BindError::Bind(error)) => return Err(explain_bind(name, queue, self.config.copy, &error)),
            }
        };
        program.sockets.insert(queue, socket.as_fd()).map_err(|error| failed(name, &error))?;
        if let Some(budget) = self.config.busy_poll {
            const MICROSECONDS: u32 = 20;
            socket.poll_busily(MICROSECONDS, budget).map_err(|error| {
                OpenError::Failed(format!("`{name}`: busy polling cannot be set: {error}; leave `busy_poll` out"))
            })?;
        }
        // An older kernel sends 32 frames a call.
        let sends = if socket.limit_sends(size).is_ok() { size } else { 32 };
        let is_zero_copy = socket.is_zero_copy().unwrap_or(false);
        let options = XdpQueueOptions {
            multi_buffer: sharing.bind.multi_buffer,
            finish_checksums: self.config.finish_checksums,
            transmit_checksums: sharing.checksums != TransmitChecksums::Off,
            polls: self.config.busy_poll.is_some(),
            waiting: size,
            number: queue,
            transmits: self.transmits(queue),
            sends,
        };
        let opened =
            Opened { is_zero_copy, multi_buffer: options.multi_buffer, checksums: sharing.checksums, why_copies };
        let limits = (Arc::clone(&self.limit), Arc::clone(&self.mtu));
        let queue = XdpQueue::new((socket, membership), limits, rings, buffers, Arc::clone(program), options)
            .map_err(|error| failed(name, &error))?;
        Ok((queue, opened))
    }

    /// Warns if the ports' queues leave few buffers for packets.
    fn compare_with_pool(&self) {
        let pool::Usage { packets, lent, .. } = pool::usage();
        if 2 * lent > packets {
            tracing::warn!(
                "{lent} of the {packets} buffers of the pool wait for frames in the kernel, which leaves too few for \
                 packets: frames may be dropped as `kernel_dropped`; choose a larger `pool` in [engine], or a smaller \
                 `ring_size` for `{}`",
                self.config.interface.name
            );
        }
    }

    fn describe(&self, status: &PortStatus, program: &Attachment, opened: &Opened) {
        let mode = match (program.mode, &program.fallback) {
            (Mode::Native, _) => "native".to_owned(),
            (Mode::Generic, None) => "generic".to_owned(),
            (Mode::Generic, Some(why)) => format!("generic ({why})"),
        };
        let memory = match &opened.why_copies {
            None => format!("the packet pool, {} MiB of which are locked", pool::area().length >> 20),
            Some(why) => format!("copies ({why})"),
        };
        let checksums = match opened.checksums {
            TransmitChecksums::Off => "finished by bellows",
            TransmitChecksums::Device => "finished by the device",
            TransmitChecksums::Software => "finished by the kernel",
        };
        let list = |queues: &[u32]| queues.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let sending: Vec<u32> = self.open.iter().copied().filter(|queue| self.transmits(*queue)).collect();
        let sending = match &sending[..] {
            [] => "none, because the interface has no transmit queues of these numbers".to_owned(),
            some => list(some),
        };
        status.update(|snapshot| {
            let copy = if opened.is_zero_copy { "zero-copy" } else { "copied by the kernel" };
            let frames = if opened.multi_buffer { "of several buffers, too" } else { "of one buffer" };
            let promiscuous = if self.config.promiscuous { "on" } else { "off" };
            snapshot.details = PortDetails {
                mode: Some(mode),
                copy: Some(copy.to_owned()),
                memory: Some(memory),
                frames: Some(frames.to_owned()),
                checksums: Some(checksums.to_owned()),
                promiscuous: Some(promiscuous.to_owned()),
                queues: Some(list(&self.open)),
                sending: Some(sending),
                ..PortDetails::default()
            };
        });
    }
}

/// What came of opening a queue.
struct Opened {
    is_zero_copy: bool,
    multi_buffer: bool,
    checksums: TransmitChecksums,
    /// Why the kernel does not use the packet pool.
    why_copies: Option<String>,
}

type Bound = (Option<Membership>, Buffers);

fn bind_to_pool(
    socket: &Arc<Socket>,
    interface: u32,
    queue: u32,
    sharing: Sharing,
    size: u32,
) -> Result<Bound, BindError> {
    let membership = memory::bind(socket, interface, queue, sharing)?;
    Ok((Some(membership), Buffers::Pool(Loans::new(2 * size as usize))))
}

/// Binds a socket to memory of its own, as much as may be locked.
fn bind_to_copies(
    socket: &Arc<Socket>,
    interface: u32,
    queue: u32,
    sharing: Sharing,
    size: u32,
) -> Result<Bound, BindError> {
    let limit = memlock_limit().map_or(u64::MAX, |limit| limit.saturating_sub(SPARE)) / CHUNK as u64;
    let mut chunks = (2 * size as usize).min(usize::try_from(limit).unwrap_or(usize::MAX)).max(MIN_CHUNKS);
    loop {
        let memory = CopyMemory::new(chunks).map_err(BindError::Register)?;
        match memory.register(socket) {
            Ok(()) => {
                socket.bind(interface, queue, sharing.bind).map_err(BindError::Bind)?;
                return Ok((None, Buffers::copies(memory)));
            }
            // Others of this user have locked memory, too.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) && chunks > MIN_CHUNKS => {
                chunks = (chunks / 2).max(MIN_CHUNKS);
            }
            Err(error) => return Err(BindError::Register(error)),
        }
    }
}

fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Why the pool cannot be registered, and what to do about it.
fn explain_memory(error: &io::Error) -> String {
    let mebibytes = (pool::area().length >> 20) + 1;
    match Errno::from_io_error(error) {
        Some(Errno::NOBUFS) => {
            let limit = memlock_limit().map_or("unlimited".to_owned(), |limit| format!("{} KiB", limit >> 10));
            format!(
                "the pool has {mebibytes} MiB, and the limit of locked memory is {limit}: raise it (`ulimit -l`, or \
                 `LimitMEMLOCK=` of a service), grant CAP_IPC_LOCK, or choose a smaller `pool` in [engine]"
            )
        }
        _ => format!("{error}"),
    }
}

fn explain_bind(name: &str, queue: u32, copy: CopyMode, error: &io::Error) -> OpenError {
    match Errno::from_io_error(error) {
        Some(Errno::BUSY) => OpenError::Busy(format!(
            "queue {queue} of `{name}` belongs to another AF_XDP socket: {error}; end the program that has it"
        )),
        Some(Errno::NETDOWN) => {
            OpenError::Missing(format!("`{name}` is down; set it up with `ip link set dev {name} up`"))
        }
        _ if copy == CopyMode::ZeroCopy && is_refused(error) => OpenError::Failed(format!(
            "the driver of `{name}` cannot receive without a copy: {error}; set `zero_copy = \"auto\"`"
        )),
        _ => OpenError::Failed(format!("queue {queue} of `{name}` cannot be bound: {error}")),
    }
}

impl PortSource for XdpSource {
    type Queue = XdpQueue;

    fn prepare(&mut self) -> Result<(), OpenError> {
        if let Some(missing) = capability::missing(CAPABILITIES) {
            return Err(OpenError::Failed(format!("AF_XDP sockets and the XDP program need privileges: {missing}")));
        }
        self.finder.prepare()
    }

    fn open(&mut self, status: &PortStatus) -> Result<Vec<XdpQueue>, OpenError> {
        let interface = self.finder.find_again()?;
        self.mtu.store(interface.mtu, Relaxed);
        // Frames of other queues, and those that `pass` names, reach the kernel.
        self.finder.guard(&interface);
        self.set_queues(&interface)?;
        let checksums = match self.config.transmit_checksums {
            TransmitChecksums::Device if !offers_checksums(interface.index) => TransmitChecksums::Off,
            wanted => wanted,
        };
        let entries = XdpSource::receive_queues(&interface).max(interface.rx_queues);
        let XdpConfig { filter, mode, .. } = &self.config;
        let program = program::attach(&interface, self.finder.interfaces(), filter, *mode, entries)?;
        // Only now: with a program, virtio-net receives from further queues.
        let available = XdpSource::receive_queues(&interface);
        self.open = self.wanted(available, &interface.name)?;
        let senders = self.transmit_queues(&interface);
        if senders != self.senders {
            // What the kernel has refused says nothing of others.
            self.limit.store(u32::MAX, Relaxed);
        }
        self.senders = senders;
        let mut queues = Vec::new();
        let mut last = None;
        for queue in self.open.clone() {
            let (queue, opened) = self.open_queue(&interface, queue, &program, checksums)?;
            queues.push(queue);
            last = Some(opened);
        }
        if self.config.promiscuous {
            let promiscuity = Promiscuity::new(interface.index);
            let promiscuity =
                promiscuity.map_err(|error| OpenError::Failed(format!("`{}`: {error}", interface.name)))?;
            self.promiscuity = Some(promiscuity);
        }
        self.compare_with_pool();
        if let Some(opened) = last {
            self.describe(status, &program, &opened);
        }
        Ok(queues)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.finder.descriptors()
    }

    fn check(&mut self, status: &PortStatus) -> Option<String> {
        if !self.finder.check(status) {
            return Some(format!("the interface `{}` is gone", self.config.interface.name));
        }
        let interface = self.finder.current()?;
        self.mtu.store(interface.mtu, Relaxed);
        let available = XdpSource::receive_queues(interface);
        if interface.is_up && self.transmit_queues(interface) != self.senders {
            return Some(format!("`{}` has another number of transmit queues now", interface.name));
        }
        let fits = match &self.config.queues {
            None => self.open.len() == available as usize,
            Some(queues) => queues.iter().all(|queue| *queue < available),
        };
        (!fits).then(|| format!("`{}` has {available} receive queues now", interface.name))
    }

    fn idle(&mut self, status: &PortStatus) {
        self.finder.idle(status);
    }

    fn close(&mut self) {
        self.promiscuity = None;
        self.finder.release();
        let Some((index, channels)) = self.restore.take() else { return };
        let Ok(Some(interface)) = self.finder.interfaces().by_index(index) else { return };
        // The kernel keeps queues whose sockets were closed a moment ago.
        const PATIENCE: Duration = Duration::from_secs(1);
        let start = Instant::now();
        while let Err(error) = ethtool::set_channels(&interface.name, &channels) {
            if start.elapsed() > PATIENCE {
                tracing::warn!("`{}` cannot be given its number of queues back: {error}", interface.name);
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether the driver finishes checksums of AF_XDP frames.
fn offers_checksums(interface: u32) -> bool {
    let features = netdev::xdp_features(interface).ok().flatten();
    features.and_then(|features| features.xsk).is_some_and(|xsk| xsk.tx_checksum)
}
