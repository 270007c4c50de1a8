//! `vhost-user`: a virtio-net device for a virtual machine or a DPDK program.

mod status;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellows_config::access::{FileGroup, FileMode, User};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError};
use bellows_engine::{AppError, Counter, Counters, DropReason, Input, Io, Port, Ports, Status, counters};
use bellows_virtio::ring::{Counters as RingCounters, Direction, Doorbell, RingError};
use bellows_virtio::vhost::{self, Backend, BackendConfig, Bell, PeerPolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::status::StatusJson;
use crate::port;
use crate::port::app::{PortApp, PortSession, Role};
use crate::port::bell::watch;
use crate::port::outgoing::{Awaits, Sender};
use crate::port::queues::{MAX_QUEUES, Queues};
use crate::virtio::{self, Side, VirtioOption, VirtioStatus};

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
/// Several apps, each with a worker of its own, may share a device: they name the same `socket`, each lists other pairs
/// (`queues = [0]` and `queues = [1]`, without gaps), and all other keys are equal. The device offers the pairs of all of
/// them. A packet for the driver takes a pair of the app that it comes to. An app whose pairs the driver does not use has
/// no driver.
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

    /// Maximum number of pairs of queues that the driver may use, from 1 to 32. If several apps share the device, the
    /// list of this app's pairs, such as `[0, 1]`.
    #[serde(default)]
    pub queues: Queues,

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
    #[serde(default = "port::yes")]
    pub confine: bool,
}

fn server() -> Side {
    Side::Server
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

/// The slots of a pair, behind that of the control thread.
const fn transmit_slot(pair: usize) -> usize {
    1 + 2 * pair
}

const fn receive_slot(pair: usize) -> usize {
    2 + 2 * pair
}

/// The rings of a pair of queues.
#[derive(Default)]
struct RingPair {
    /// Their doorbells, while they run.
    transmit: Option<Arc<Doorbell>>,
    receive: Option<Arc<Doorbell>>,
    /// The counts of the transmit ring that the app's counters include already.
    told: RingCounters,
}

/// The device's side, while it runs.
pub struct DeviceRole {
    /// Ends the control thread when it is dropped.
    backend: Backend,
    port: vhost::Port,
    pairs: Vec<RingPair>,
    session: PortSession,
    /// When the last ring was taken away that receives, if none does now.
    gone_at: Option<u64>,
}

/// How long packets wait in the link when no ring receives: whenever the driver's side changes something about a ring, that is away
/// for a moment.
const AWAY: u64 = 2_000_000;

/// A virtio-net device at a vhost-user socket.
pub type VhostUser = PortApp<DeviceRole>;

impl VhostUser {
    /// Takes the next connection at once, however soon the last one ended: for those who measure what connections cost.
    pub fn without_pauses(mut self) -> VhostUser {
        self.config.policy.longest_pause = Duration::ZERO;
        self
    }
}

impl Sender for VhostUser {
    const TOO_LONG: DropReason<VhostUser> = VhostUser::TOO_LONG;
    const BAD_OFFLOAD: DropReason<VhostUser> = VhostUser::BAD_OFFLOAD;
    const POOL_LOW: DropReason<VhostUser> = VhostUser::POOL_LOW;
}

impl Role for DeviceRole {
    type Config = BackendConfig;
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "packets for the driver")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::optional("output", "packets from the driver")]);
    const COUNTERS: Counters<VhostUser> = VhostUser::COUNTED;

    fn slots(config: &BackendConfig) -> usize {
        2 * config.queues.count()
    }

    fn start(_app: &str, config: BackendConfig, before: Option<&DeviceRole>) -> Result<DeviceRole, AppError> {
        let count = config.queues.count();
        let pairs = (0..count).map(|_| RingPair::default()).collect();
        let session = PortSession::new(count);
        let socket = config.socket.clone();
        let started = match before {
            Some(before) => before.backend.succeed(config),
            None => Backend::start(config),
        };
        let (backend, port) = started.map_err(|error| virtio::explain_start(&socket, error))?;
        Ok(DeviceRole { backend, port, pairs, session, gone_at: None })
    }

    fn begin(&self) {
        self.port.begin();
        self.backend.begin();
    }

    fn resume(&self) {
        self.backend.resume();
    }

    fn status(&self) -> Arc<dyn Status> {
        Arc::new(StatusJson(self.backend.status()))
    }

    fn doorbell(&self) -> Arc<Bell> {
        self.port.doorbell()
    }

    #[inline]
    fn expected(&self) -> u32 {
        self.port.expected()
    }

    fn note(&mut self, _io: &Io<VhostUser>) {
        self.port.note();
    }

    fn session(&self) -> &PortSession {
        &self.session
    }

    #[inline]
    fn session_mut(&mut self) -> &mut PortSession {
        &mut self.session
    }

    #[inline]
    fn exchange(&mut self) -> bool {
        self.port.sync()
    }

    #[cold]
    fn attach(&mut self, io: &Io<VhostUser>) {
        let received = self.pairs.iter().any(|pair| pair.receive.is_some());
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            let ring = self.port.transmit()[index].as_ref();
            let transmit = ring.map(|ring| ring.doorbell());
            if !same(&transmit, &pair.transmit) {
                watch(io, transmit_slot(index), transmit.as_ref());
                pair.transmit = transmit;
                // Another app may have had the ring.
                pair.told = ring.map(|ring| ring.counters()).unwrap_or_default();
            }
            let receive = self.port.receive()[index].as_ref().map(|ring| ring.doorbell());
            if !same(&receive, &pair.receive) {
                io.slot(receive_slot(index)).never();
                pair.receive = receive;
                self.session.outgoing[index].awaits = Awaits::Nothing;
            }
        }
        let receiving = self.pairs.iter().enumerate().filter(|(_, pair)| pair.receive.is_some());
        self.session.set_open(io.burst(), receiving.map(|(index, _)| index));
        match self.pairs.iter().position(|pair| pair.receive.is_some()) {
            Some(running) => {
                self.gone_at = None;
                self.move_stranded(io, running);
            }
            None if received => self.gone_at = Some(io.now()),
            None => {}
        }
    }

    #[inline]
    fn pull(&mut self, io: &Io<VhostUser>) {
        let mut output = io.output(0);
        let linked = io.is_linked(0);
        let mut left = if linked { io.burst().min(output.room()) } else { io.burst() };
        let most = left;
        let mut failed = None;
        for index in port::turns(&mut self.session.first, self.pairs.len()) {
            let pair = &mut self.pairs[index];
            let (Some(ring), Some(doorbell)) = (&mut self.port.transmit()[index], &pair.transmit) else { continue };
            if left == 0 {
                break;
            }
            match ring.transmit(&mut self.session.packets, left) {
                Ok(used) => {
                    let brought = self.session.packets.len();
                    if used != brought {
                        count_strange(io, &mut pair.told, &ring.counters());
                    }
                    // What was looked at counts, whether it was a packet or not.
                    left = left.saturating_sub(ring.spent().max(brought));
                    if ring.is_discarding() {
                        self.session.packets.drain(usize::MAX).for_each(|packet| io.drop(packet, VhostUser::DISABLED));
                    }
                    port::deliver(&mut self.session.packets, &mut output, linked);
                }
                Err(error) => failed = Some((index, error)),
            }
            io.slot(transmit_slot(index)).moved(doorbell.quiet());
        }
        drop(output);
        let has_happened = left < most || failed.is_some();
        if let Some((pair, error)) = failed {
            self.fail(io, Direction::Transmit, pair, error);
        }
        self.session.will_note(io, has_happened);
    }

    #[inline]
    fn push(&mut self, io: &Io<VhostUser>) {
        let mut input = io.input(0);
        let rings = self.session.open();
        if rings == 0 {
            let until = self.gone_at.map_or(0, |gone| gone + AWAY);
            if io.now() < until {
                io.wake_at(until);
                self.session.void.spare(&input);
                return;
            }
            let PortSession { outgoing, void, .. } = &mut self.session;
            void.swallow(io, outgoing, &mut input, VhostUser::NO_DRIVER);
            return;
        }
        if rings > 1 {
            self.session.share_out(io, &mut input, VhostUser::QUEUE_FULL);
        }
        for index in 0..self.pairs.len() {
            if let Err(error) = self.push_pair(io, index, &mut input, rings == 1) {
                self.fail(io, Direction::Receive, index, error);
            }
        }
        self.session.will_note(io, true);
    }
}

impl DeviceRole {
    /// What waits for a queue that has gone goes to one that runs.
    fn move_stranded(&mut self, io: &Io<VhostUser>, running: usize) {
        for index in 0..self.pairs.len() {
            if self.pairs[index].receive.is_none() && self.session.outgoing[index].held() > 0 {
                let from = &mut self.session.outgoing[index];
                let waiting = std::mem::take(&mut from.waiting);
                let (ready, rest) = from.finisher.empty();
                for mut stranded in [ready, waiting] {
                    self.session.outgoing[running].waiting.append(&mut stranded, usize::MAX);
                    stranded.drain(usize::MAX).for_each(|packet| io.drop(packet, VhostUser::QUEUE_FULL));
                }
                // Some segments of it have gone, so it cannot begin anew.
                rest.into_iter().for_each(|packet| io.drop(packet, VhostUser::QUEUE_FULL));
            }
        }
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
        let (pair, outgoing) = (&self.pairs[index], &mut self.session.outgoing[index]);
        let Some(ring) = &mut self.port.receive()[index] else { return Ok(()) };
        let able = ring.features().accepted_by_driver();
        let awaits = outgoing.push(io, ring, able, input, only)?;
        outgoing.tell(io, receive_slot(index), pair.receive.as_ref(), awaits);
        Ok(())
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
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<VirtioStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured("it needs another process on its socket; use `bellows bench vring`")
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        let socket = config.mode.resource("socket", context.path(&config.socket));
        vec![config.queues.share(socket, config, |key| key != "queues").without_gaps()]
    }

    fn configure(config: Config, context: &Context) -> Result<VhostUser, SettingError> {
        let queues = config.queues.check("pair of queues", "pairs of queues")?;
        let Config { mode, socket_mode, socket_group, peer_users, confine, .. } = &config;
        let policy = virtio::peer_policy(*mode, *socket_mode, *socket_group, peer_users, *confine)?;
        let policy = PeerPolicy { any_file: config.allow_file_memory, ..policy };
        // Other apps may have further pairs.
        let most = if queues.is_part() { MAX_QUEUES } else { queues.count() as u16 };
        let features = virtio::features(&config.disable, most);
        let mac = port::read_mac(config.mac.as_deref())?;
        let socket = virtio::socket_path("socket", &config.socket, context)?;
        let config =
            BackendConfig { app: context.app.clone(), socket, mode: config.mode.into(), queues, features, mac, policy };
        Ok(PortApp::new(&context.app, config))
    }
}
