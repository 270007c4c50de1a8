//! `vhost-user`: a virtio-net device for a virtual machine or a DPDK program.

mod status;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellows_config::access::{FileGroup, FileMode, User};
use bellows_config::{Bench, BenchFiles, Configure, Context, Resource, SettingError};
use bellows_engine::{App, AppError, Counter, Counters, DropReason, Input, Io, Port, Ports, Status, counters};
use bellows_packet::Vector;
use bellows_virtio::ring::{Counters as RingCounters, Direction, Doorbell, RingError};
use bellows_virtio::vhost::{self, Backend, BackendConfig, PeerPolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::status::StatusJson;
use crate::virtio::bell::watch;
use crate::virtio::finish::{Budget, ReceiverOffloads};
use crate::virtio::outgoing::{Awaits, Outgoing, Sender, Void};
use crate::virtio::{self, Side, VirtioOption};

/// A virtio-net device, to which a virtual machine or a DPDK program connects through a vhost-user socket.
///
/// `input` takes packets to the driver on the other side, `output` delivers packets from it. Every option that driver
/// and device agree on is in effect, each ring has its own loop for its options, and `bellows show vhost NAME` tells
/// which. Either side may vanish and come back at any time, also with other options. While there is no driver, packets
/// that come in are dropped as `no_driver`; when the driver has no free buffers, packets wait in the link.
///
/// TCP GSO packets and partial checksums are passed on unchanged to a driver that accepts them, and finished for one
/// that does not, at most as many segments in a breath as the engine's burst. Packets from the driver may have them,
/// too, if the driver uses `tso4`, `tso6` or `checksum`. If a header from the driver is not true of its packet, the
/// packet is dropped and counted as `guest_bad_header`. If an app has changed a packet so that its offload is no longer
/// true and cannot be finished here, the packet is dropped as `bad_offload`.
///
/// With several pairs of queues, all packets of a flow go to one pair; the pair depends on the number of pairs that the
/// driver uses.
///
/// A driver that violates the virtio specification stops its ring, and each kind of violation has its own counter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The socket's path, relative to the network file; at most 107 bytes.
    pub socket: PathBuf,

    /// Who opens the socket: `server` waits there for the driver's side, `client` connects to it and retries until it
    /// is there.
    #[serde(default = "server")]
    pub mode: Side,

    /// Maximum number of pairs of queues that the driver may use, from 1 to 32.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32), extend("x-unit" = "pairs"))]
    pub queues: u16,

    /// The Ethernet address that the driver is told. By default the driver's side chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-type" = "Ethernet address"))]
    pub mac: Option<String>,

    /// Options that are not offered to the driver. Options that need one of them are not offered either.
    #[serde(default)]
    pub disable: Vec<VirtioOption>,

    /// The permissions of the socket's file, in `server` mode: octal text such as `"0660"`. Nobody can connect before
    /// they are set. By default those that the umask allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<FileMode>,

    /// The group of the socket's file, in `server` mode: its name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<FileGroup>,

    /// The users who may be on the other side, by name or number; list root too if it may. Others are refused and
    /// counted as `peer_refused`. By default everybody whom the socket's permissions let connect.
    #[serde(default)]
    pub peer_users: Vec<User>,

    /// Whether the driver may share a file that is not in memory. The engine then waits for each page that it touches
    /// until a disk, another process or another machine has delivered it: only for drivers that you trust.
    #[serde(default)]
    pub allow_file_memory: bool,

    /// Whether the thread that talks to the other side gives up all system calls that the protocol does not need
    /// (seccomp).
    #[serde(default = "virtio::yes")]
    pub confine: bool,
}

fn server() -> Side {
    Side::Server
}

fn one() -> u16 {
    1
}

counters! { VhostUser;
    drop NO_DRIVER = "no_driver", "packets that came while there was no driver, or none that receives";
    drop TOO_LONG = "too_long", "packets too long for the driver's buffers";
    drop BAD_OFFLOAD = "bad_offload", "packets whose offload does not match them and cannot be finished";
    drop QUEUE_FULL = "queue_full", "packets whose queue was full while others were not";
    drop DISABLED = "disabled", "packets in a queue that the driver has disabled";
    drop POOL_LOW = "pool_low", "packets for a driver that took none while they held too much of the pool";
    count EMPTY = "guest_empty", "buffers from the driver with a header but no packet", in "buffers";
    count OVERSIZE = "guest_oversize", "packets from the driver longer than 73,600 bytes";
    count BAD_HEADER = "guest_bad_header",
        "packets from the driver whose header is invalid or does not match them";
    count NO_LARGE_BUFFER = "guest_no_large_buffer",
        "packets from the driver longer than 2,048 bytes while its others held its share of the large buffers \
          (`large_packets` in [engine])";
    table ERRORS = RING_ERRORS;
}

/// A counter for each error that stops a ring.
const RING_ERRORS: [Counter; RingError::ALL.len()] = virtio::error_counters!(RingError);

/// The slots: one for the control thread, two for each pair.
const CONTROL: usize = 0;

const fn transmit_slot(pair: usize) -> usize {
    1 + 2 * pair
}

const fn receive_slot(pair: usize) -> usize {
    2 + 2 * pair
}

/// One pair of queues, as far as it is the app's.
struct Pair {
    /// Packets for this pair's receive ring, whose slot tells what they wait for.
    outgoing: Outgoing,
    /// The rings' doorbells, while they run.
    transmit: Option<Arc<Doorbell>>,
    receive: Option<Arc<Doorbell>>,
    /// What the app has counted of this transmit ring: empty, too long, bad header, no large buffer.
    told: RingCounters,
}

impl Pair {
    fn new() -> Pair {
        Pair { outgoing: Outgoing::new(), transmit: None, receive: None, told: RingCounters::default() }
    }
}

/// What runs, from [`App::start`] on.
struct Running {
    /// Ends the control thread when it is dropped.
    backend: Backend,
    port: vhost::Port,
    pairs: Vec<Pair>,
    /// Where a call collects what comes from the driver.
    packets: Vector,
    /// Whether a tick is due that brings the status up to date.
    noting: bool,
    /// The pair that is pulled first, each in turn.
    first: usize,
    /// What each pair may have finished in a breath.
    share: Budget,
    /// When the last ring was taken away that receives, if none does now.
    gone_at: Option<u64>,
    void: Void,
}

/// How long packets wait in the link when no ring receives: whenever the driver's side changes something about a ring, that is away
/// for a moment.
const AWAY: u64 = 2_000_000;

/// A virtio-net device at a vhost-user socket.
pub struct VhostUser {
    config: BackendConfig,
    running: Option<Running>,
    /// Whether the slots are set, which each engine does anew.
    watching: bool,
}

impl VhostUser {
    /// Takes the next connection at once, however soon the last one ended: for those who measure what connections cost.
    pub fn without_pauses(mut self) -> VhostUser {
        self.config.policy.longest_pause = Duration::ZERO;
        self
    }
}

impl App for VhostUser {
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "packets for the driver")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::optional("output", "packets from the driver")]);
    const PULLS: bool = true;
    // What goes to the driver does not come back.
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn slots(&self) -> usize {
        1 + 2 * usize::from(self.config.queues)
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        self.running = match old {
            Some(old) if old.config == self.config && old.running.is_some() => old.running.take(),
            Some(VhostUser { running: Some(running), .. }) => {
                Some(Running::new(self.config.clone(), Some(&running.backend))?)
            }
            _ => Some(Running::new(self.config.clone(), None)?),
        };
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        match &old.running {
            None => old.running = self.running.take(),
            // This one ends when it is dropped, which is not done between two breaths.
            Some(running) => running.backend.resume(),
        }
    }

    fn begin(&mut self) {
        if let Some(running) = &self.running {
            running.backend.begin();
        }
    }

    fn stop(&mut self) -> Result<(), AppError> {
        self.running = None;
        Ok(())
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        let running = self.running.as_ref()?;
        Some(Arc::new(StatusJson(running.backend.status())))
    }

    fn held(&self) -> usize {
        self.running.iter().flat_map(|running| &running.pairs).map(|pair| pair.outgoing.held()).sum()
    }

    fn tick(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            if !self.watching {
                self.watching = true;
                io.slot(CONTROL).watch(
                    Arc::new(virtio::Control(running.port.doorbell())),
                    u32::MAX,
                    running.port.expected(),
                );
                running.attach(io);
            }
            running.noting = false;
            running.port.note();
        }
    }

    fn pull(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            running.sync(io);
            running.pull(io);
            let mut held = 0;
            for pair in &mut running.pairs {
                pair.outgoing.finisher.refill(running.share);
                held += pair.outgoing.held();
            }
            // Packets that wait inside are nobody else's to push.
            if held > 0 {
                running.push(io);
            }
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            running.sync(io);
            running.push(io);
            // If nothing is pulled in the next breath, it begins here.
            running.pairs.iter_mut().for_each(|pair| pair.outgoing.finisher.refill(running.share));
        }
    }
}

impl Sender for VhostUser {
    const TOO_LONG: DropReason<VhostUser> = VhostUser::TOO_LONG;
    const BAD_OFFLOAD: DropReason<VhostUser> = VhostUser::BAD_OFFLOAD;
    const POOL_LOW: DropReason<VhostUser> = VhostUser::POOL_LOW;
}

impl Running {
    /// Starts, in place of a back end that runs if there is one.
    fn new(config: BackendConfig, before: Option<&Backend>) -> Result<Running, AppError> {
        let pairs = (0..config.queues).map(|_| Pair::new()).collect();
        let socket = config.socket.clone();
        let started = match before {
            Some(before) => before.succeed(config),
            None => Backend::start(config),
        };
        let (backend, port) = started.map_err(|error| virtio::explain_start(&socket, error))?;
        let share = Budget::share(1, 1);
        Ok(Running {
            backend,
            port,
            pairs,
            packets: Vector::new(),
            noting: false,
            first: 0,
            share,
            gone_at: None,
            void: Void::default(),
        })
    }

    /// Exchanges rings with the control thread, if that wants something.
    #[inline]
    fn sync(&mut self, io: &Io<VhostUser>) {
        if self.port.sync() {
            self.attach(io);
        }
        io.slot(CONTROL).expect(self.port.expected());
    }

    /// Watches the rings that run now.
    #[cold]
    fn attach(&mut self, io: &Io<VhostUser>) {
        let received = self.pairs.iter().any(|pair| pair.receive.is_some());
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            let transmit = self.port.transmit()[index].as_ref().map(|ring| ring.doorbell());
            if !same(&transmit, &pair.transmit) {
                watch(io, transmit_slot(index), transmit.as_ref());
                pair.transmit = transmit;
                pair.told = RingCounters::default();
            }
            let receive = self.port.receive()[index].as_ref().map(|ring| ring.doorbell());
            if !same(&receive, &pair.receive) {
                io.slot(receive_slot(index)).never();
                pair.receive = receive;
                pair.outgoing.awaits = Awaits::Nothing;
            }
        }
        self.share = Budget::share(io.burst(), self.pairs.iter().filter(|pair| pair.receive.is_some()).count());
        match self.pairs.iter().position(|pair| pair.receive.is_some()) {
            Some(running) => {
                self.gone_at = None;
                self.move_stranded(io, running);
            }
            None if received => self.gone_at = Some(io.now()),
            None => {}
        }
    }

    /// What waits for a queue that has gone goes to one that runs.
    fn move_stranded(&mut self, io: &Io<VhostUser>, running: usize) {
        for index in 0..self.pairs.len() {
            if self.pairs[index].receive.is_none() && self.pairs[index].outgoing.held() > 0 {
                let from = &mut self.pairs[index].outgoing;
                let waiting = std::mem::take(&mut from.waiting);
                let (ready, rest) = from.finisher.empty();
                for mut stranded in [ready, waiting] {
                    self.pairs[running].outgoing.waiting.append(&mut stranded, usize::MAX);
                    stranded.drain(usize::MAX).for_each(|packet| io.drop(packet, VhostUser::QUEUE_FULL));
                }
                // Some segments of it have gone, so it cannot begin anew.
                rest.into_iter().for_each(|packet| io.drop(packet, VhostUser::QUEUE_FULL));
            }
        }
    }

    /// Brings packets from the driver. Hot.
    #[inline]
    fn pull(&mut self, io: &Io<VhostUser>) {
        let mut output = io.output(0);
        let linked = io.is_linked(0);
        let mut left = if linked { io.burst().min(output.room()) } else { io.burst() };
        let mut failed = None;
        for index in virtio::turns(&mut self.first, self.pairs.len()) {
            let pair = &mut self.pairs[index];
            let (Some(ring), Some(doorbell)) = (&mut self.port.transmit()[index], &pair.transmit) else { continue };
            if left == 0 {
                break;
            }
            match ring.transmit(&mut self.packets, left) {
                Ok(used) => {
                    let brought = self.packets.len();
                    if used != brought {
                        count_strange(io, &mut pair.told, &ring.counters());
                    }
                    // What was looked at counts, whether it was a packet or not.
                    left = left.saturating_sub(ring.spent().max(brought));
                    if ring.is_discarding() {
                        self.packets.drain(usize::MAX).for_each(|packet| io.drop(packet, VhostUser::DISABLED));
                    }
                    virtio::deliver(&mut self.packets, &mut output, linked);
                }
                Err(error) => failed = Some((index, error)),
            }
            io.slot(transmit_slot(index)).moved(doorbell.quiet());
        }
        drop(output);
        if let Some((pair, error)) = failed {
            self.fail(io, Direction::Transmit, pair, error);
        }
        self.will_note(io);
    }

    /// Takes packets to the driver. Hot.
    #[inline]
    fn push(&mut self, io: &Io<VhostUser>) {
        let mut input = io.input(0);
        let rings = self.port.receive().iter().flatten().count();
        if rings == 0 {
            let until = self.gone_at.map_or(0, |gone| gone + AWAY);
            if io.now() < until {
                io.wake_at(until);
                self.void.spare(&input);
                return;
            }
            let queues = self.pairs.iter_mut().map(|pair| &mut pair.outgoing);
            self.void.swallow(io, queues, &mut input, VhostUser::NO_DRIVER);
            return;
        }
        if rings > 1 {
            let running = self.pairs.iter_mut().filter(|pair| pair.receive.is_some());
            let mut queues: Vec<&mut Vector> = running.map(|pair| &mut pair.outgoing.waiting).collect();
            virtio::share_out(io, &mut input, &mut queues, VhostUser::QUEUE_FULL);
        }
        for index in 0..self.pairs.len() {
            if let Err(error) = self.push_pair(io, index, &mut input, rings == 1) {
                self.fail(io, Direction::Receive, index, error);
            }
        }
        self.will_note(io);
    }

    /// Gives one queue what waits for it, and what is in the link if it is the only one.
    #[inline]
    fn push_pair(
        &mut self,
        io: &Io<VhostUser>,
        index: usize,
        input: &mut Input<'_, VhostUser>,
        only: bool,
    ) -> Result<(), RingError> {
        let pair = &mut self.pairs[index];
        let Some(ring) = &mut self.port.receive()[index] else { return Ok(()) };
        let able = ReceiverOffloads::driver(ring.features());
        let awaits = pair.outgoing.push(io, ring, able, input, only)?;
        pair.outgoing.tell(io, receive_slot(index), pair.receive.as_ref(), awaits);
        Ok(())
    }

    /// Asks for a tick that brings the status up to date.
    #[inline]
    fn will_note(&mut self, io: &Io<VhostUser>) {
        if !self.noting {
            self.noting = true;
            io.wake_at(io.now() + virtio::NOTED_WITHIN);
        }
    }

    /// A ring has met what it cannot go on with.
    #[cold]
    fn fail(&mut self, io: &Io<VhostUser>, direction: Direction, pair: usize, error: RingError) {
        let position = RingError::ALL.iter().position(|known| *known == error).unwrap_or(0);
        io.count(VhostUser::ERRORS.row(position), 1);
        self.port.fail(direction, pair, error);
        self.attach(io);
    }
}

/// Counts what a ring dropped because of what the driver put there.
#[cold]
fn count_strange(io: &Io<VhostUser>, told: &mut RingCounters, now: &RingCounters) {
    io.count(VhostUser::EMPTY, now.empty.saturating_sub(told.empty));
    io.count(VhostUser::OVERSIZE, now.too_long.saturating_sub(told.too_long));
    io.count(VhostUser::BAD_HEADER, now.bad_header.saturating_sub(told.bad_header));
    io.count(VhostUser::NO_LARGE_BUFFER, now.no_large_buffer.saturating_sub(told.no_large_buffer));
    *told = *now;
}

/// Whether two doorbells are those of one ring.
fn same(one: &Option<Arc<Doorbell>>, other: &Option<Arc<Doorbell>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

impl Configure for VhostUser {
    const NAME: &'static str = "vhost-user";
    const INTERFACE: bool = true;
    type Config = Config;

    fn bench(_: &BenchFiles) -> Bench {
        Bench::Unmeasured("it needs another process on its socket; use `bellows bench vring`")
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        vec![config.mode.resource(context.path(&config.socket))]
    }

    fn configure(config: Config, context: &Context) -> Result<VhostUser, SettingError> {
        let socket = context.path(&config.socket);
        virtio::check_socket(&socket)?;
        let queues = virtio::check_pairs(config.queues)?;
        let mac = virtio::read_mac(config.mac.as_deref())?;
        let features = virtio::features(&config.disable, queues);
        let access = virtio::socket_access(config.mode, config.socket_mode, config.socket_group)?;
        let users = config.peer_users.iter().map(|user| user.id()).collect();
        let policy = PeerPolicy {
            socket_access: access,
            users,
            any_file: config.allow_file_memory,
            confine: config.confine,
            ..PeerPolicy::default()
        };
        let config = BackendConfig { socket, mode: config.mode.into(), queues, features, mac, policy };
        Ok(VhostUser { config, running: None, watching: false })
    }
}
