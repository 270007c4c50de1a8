//! `virtio-user`: the driver of a virtio-net device in another process.

mod status;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use bellows_config::access::{FileGroup, FileMode, User};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError};
use bellows_engine::{AppError, Counter, Counters, DropReason, Input, Io, Port, Ports, Status, counters};
use bellows_virtio::Features;
use bellows_virtio::driver::{DeviceError, Driver, DriverLayout, QueueCounters, QueuePair, UsedBell};
use bellows_virtio::vhost::{Bell, Borrowed, Frontend, FrontendConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::status::{StatusJson, Totals};
use crate::port;
use crate::port::app::{PortApp, PortSession, Role};
use crate::port::bell::watch;
use crate::port::outgoing::{Awaits, Sender};
use crate::virtio::{self, Side, VirtioOption, VirtioStatus};

/// The driver of a virtio-net device that another process offers at a vhost-user socket.
///
/// The device is `vhost-user` of another network, or DPDK's vhost library.
///
/// `input` takes packets to the device, `output` delivers packets from it. The two sides share memory that this app
/// creates, so packets pass without system calls. Either side may vanish and come back at any time. While there is no
/// device, packets that come in are dropped as `no_device`; while the device does not keep up, packets wait in the
/// link.
///
/// TCP GSO packets and partial checksums are passed on unchanged to a device that accepts them, and finished for one
/// that does not, at most as many segments in a breath as the engine's burst. Packets from the device may have them,
/// too, with `guest-tso4`, `guest-tso6` or `guest-checksum`. Without `mergeable` and without GSO packets the device can
/// send packets of up to 2,048 bytes.
///
/// With several pairs of queues, all packets of a flow go to one pair; the pair depends on the number of pairs that the
/// device has.
///
/// If a device violates the virtio specification, the app disconnects and connects anew; each kind of violation has its
/// own counter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The socket's path, relative to the network file; at most 107 bytes.
    pub socket: PathBuf,

    /// Who opens the socket: `client` connects to it and retries until it is there, `server` waits there for the
    /// device's side.
    #[serde(default = "client")]
    pub mode: Side,

    /// Number of pairs of queues to use, from 1 to 32; the device may have fewer.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32), extend("x-unit" = "pairs"))]
    pub queues: u16,

    /// Number of descriptors of each ring: a power of two from 2 to 32768. Packets longer than 2,048 bytes take
    /// several.
    #[serde(default = "usual_size")]
    #[schemars(range(min = 2, max = 32768), extend("x-unit" = "descriptors"))]
    pub queue_size: u16,

    /// The Ethernet address to show as this side's. By default the one that the device reports, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-type" = "Ethernet address"))]
    pub mac: Option<String>,

    /// Options not to use even if the device offers them. Options that need one of them are not used either.
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

    /// Whether the thread that talks to the other side gives up all system calls that the protocol does not need
    /// (seccomp).
    #[serde(default = "port::yes")]
    pub confine: bool,
}

fn client() -> Side {
    Side::Client
}

fn one() -> u16 {
    1
}

fn usual_size() -> u16 {
    256
}

counters! { VirtioUser;
    drop NO_DEVICE = "no_device", "packets that came while there was no device";
    drop TOO_LONG = "too_long", "packets too long for the ring";
    drop BAD_OFFLOAD = "bad_offload", "packets whose offload does not match them and cannot be finished";
    drop QUEUE_FULL = "queue_full", "packets whose queue was full while others were not";
    drop POOL_LOW = "pool_low", "packets for a device that took none while they held too much of the pool";
    count EMPTY = "device_empty", "buffers from the device with a header but no packet", in "buffers";
    count OVERSIZE = "device_oversize", "packets from the device longer than 73,600 bytes";
    count BAD_HEADER = "device_bad_header",
        "packets from the device whose header is invalid or does not match them";
    table ERRORS = DEVICE_ERRORS;
}

/// A counter for each error that ends a connection.
const DEVICE_ERRORS: [Counter; DeviceError::ALL.len()] = virtio::error_counters!(DeviceError);

/// The slots of a pair, behind that of the control thread.
const fn receive_slot(pair: usize) -> usize {
    1 + 2 * pair
}

const fn transmit_slot(pair: usize) -> usize {
    2 + 2 * pair
}

/// The bells of a pair of queues.
struct Bells {
    receive: Arc<UsedBell>,
    transmit: Arc<UsedBell>,
}

/// The driver's side, while it runs.
pub struct DriverRole {
    /// Ends the control thread when it is dropped.
    frontend: Frontend,
    port: Borrowed<Driver>,
    /// The bells of each pair, while there is a device.
    bells: Vec<Option<Bells>>,
    session: PortSession,
    totals: Arc<Totals>,
    /// What the app's counters have of this driver's queues.
    told: QueueCounters,
}

/// The driver of a virtio-net device at a vhost-user socket.
pub type VirtioUser = PortApp<DriverRole>;

impl Sender for VirtioUser {
    const TOO_LONG: DropReason<VirtioUser> = VirtioUser::TOO_LONG;
    const BAD_OFFLOAD: DropReason<VirtioUser> = VirtioUser::BAD_OFFLOAD;
    const POOL_LOW: DropReason<VirtioUser> = VirtioUser::POOL_LOW;
}

impl Role for DriverRole {
    type Config = FrontendConfig;
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "packets for the device")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::optional("output", "packets from the device")]);
    const COUNTERS: Counters<VirtioUser> = VirtioUser::COUNTED;

    fn slots(config: &FrontendConfig) -> usize {
        2 * usize::from(config.pairs)
    }

    fn start(_app: &str, config: FrontendConfig, before: Option<&DriverRole>) -> Result<DriverRole, AppError> {
        let (bells, session) = ((0..config.pairs).map(|_| None).collect(), PortSession::new(config.pairs.into()));
        let socket = config.socket.clone();
        let started = DriverLayout::new(config.pairs).and_then(|layout| match before {
            Some(before) => before.frontend.succeed(config, layout),
            None => Frontend::start(config, layout),
        });
        let (frontend, port) = started.map_err(|error| virtio::explain_start(&socket, error))?;
        let (totals, told) = (Arc::default(), QueueCounters::default());
        Ok(DriverRole { frontend, port, bells, session, totals, told })
    }

    fn begin(&self) {
        self.frontend.begin();
    }

    fn resume(&self) {
        self.frontend.resume();
    }

    fn status(&self) -> Arc<dyn Status> {
        Arc::new(StatusJson { frontend: self.frontend.status(), totals: Arc::clone(&self.totals) })
    }

    fn doorbell(&self) -> Arc<Bell> {
        self.port.doorbell()
    }

    #[inline]
    fn expected(&self) -> u32 {
        self.port.expected()
    }

    fn note(&mut self, _io: &Io<VirtioUser>) {
        let queues = self.port.get().map_or(&[][..], |driver| &driver.pairs);
        self.totals.set(queues.iter().map(|pair| [pair.receive.counters(), pair.transmit.counters()]));
        self.frontend.status().note();
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
    fn attach(&mut self, io: &Io<VirtioUser>) {
        let queues = self.port.get().map_or(&[][..], |driver| &driver.pairs);
        for (index, bells) in self.bells.iter_mut().enumerate() {
            *bells = queues
                .get(index)
                .map(|queues: &QueuePair| Bells { receive: queues.receive.bell(), transmit: queues.transmit.bell() });
            self.session.outgoing[index].awaits = Awaits::Nothing;
            watch(io, receive_slot(index), bells.as_ref().map(|bells| &bells.receive));
            io.slot(transmit_slot(index)).never();
        }
        self.session.set_open(io.burst(), 0..queues.len());
        // The queues of another driver count from 0.
        self.told = strange(queues);
    }

    #[inline]
    fn pull(&mut self, io: &Io<VirtioUser>) {
        let Some(driver) = self.port.get() else { return };
        let mut output = io.output(0);
        let linked = io.is_linked(0);
        let mut left = if linked { io.burst().min(output.room()) } else { io.burst() };
        let most = left;
        let mut failed = None;
        for index in port::turns(&mut self.session.first, driver.pairs.len()) {
            let queues = &mut driver.pairs[index];
            if left == 0 {
                break;
            }
            match queues.receive.receive(&mut self.session.packets, left) {
                Ok(count) => {
                    left -= count;
                    port::deliver(&mut self.session.packets, &mut output, linked);
                }
                Err(error) => failed = Some(error),
            }
            if let Some(bells) = &self.bells[index] {
                io.slot(receive_slot(index)).moved(bells.receive.quiet());
            }
        }
        let now = strange(&driver.pairs);
        drop(output);
        if now != self.told {
            self.count_strange(io, now);
        }
        let has_happened = left < most || failed.is_some();
        if let Some(error) = failed {
            self.fail(io, error);
        }
        self.session.will_note(io, has_happened);
    }

    #[inline]
    fn push(&mut self, io: &Io<VirtioUser>) {
        let mut input = io.input(0);
        let Some(queues) = self.port.get().map(|driver| driver.pairs.len()) else {
            let PortSession { outgoing, void, .. } = &mut self.session;
            void.swallow(io, outgoing, &mut input, VirtioUser::NO_DEVICE);
            return;
        };
        if queues > 1 {
            self.session.share_out(io, &mut input, VirtioUser::QUEUE_FULL);
        }
        for index in 0..queues {
            if let Err(error) = self.push_pair(io, index, &mut input, queues == 1) {
                self.fail(io, error);
                break;
            }
        }
        self.session.will_note(io, true);
    }
}

impl DriverRole {
    /// Gives one queue what waits for it, and what is in the link if it is the only one.
    #[inline]
    fn push_pair(
        &mut self,
        io: &Io<VirtioUser>,
        index: usize,
        input: &mut Input<'_, VirtioUser>,
        only: bool,
    ) -> Result<(), DeviceError> {
        let outgoing = &mut self.session.outgoing[index];
        let Some(driver) = self.port.get() else { return Ok(()) };
        let able = driver.features().accepted_by_device();
        let awaits = outgoing.push(io, &mut driver.pairs[index].transmit, able, input, only)?;
        outgoing.tell(io, transmit_slot(index), self.bells[index].as_ref().map(|bells| &bells.transmit), awaits);
        Ok(())
    }

    /// Counts what was dropped because of what the device sent.
    #[cold]
    fn count_strange(&mut self, io: &Io<VirtioUser>, now: QueueCounters) {
        let told = std::mem::replace(&mut self.told, now);
        io.count(VirtioUser::EMPTY, now.empty.saturating_sub(told.empty));
        io.count(VirtioUser::OVERSIZE, now.too_long.saturating_sub(told.too_long));
        io.count(VirtioUser::BAD_HEADER, now.bad_header.saturating_sub(told.bad_header));
        io.count_no_buffer(now.no_buffer.saturating_sub(told.no_buffer) as usize);
    }

    /// The device has done what it must not.
    #[cold]
    fn fail(&mut self, io: &Io<VirtioUser>, error: DeviceError) {
        let position = DeviceError::ALL.iter().position(|known| *known == error).unwrap_or(0);
        io.count(VirtioUser::ERRORS.row(position), 1);
        self.port.give_up();
        self.attach(io);
    }
}

/// What queues have dropped, and could not receive for want of buffers. The other counts are 0.
fn strange(queues: &[QueuePair]) -> QueueCounters {
    queues.iter().fold(QueueCounters::default(), |sums, queues| {
        let QueueCounters { empty, too_long, bad_header, no_buffer, .. } = queues.receive.counters();
        QueueCounters {
            empty: sums.empty + empty,
            too_long: sums.too_long + too_long,
            bad_header: sums.bad_header + bad_header,
            no_buffer: sums.no_buffer + no_buffer,
            ..sums
        }
    })
}

impl Configure for VirtioUser {
    const NAME: &'static str = "virtio-user";
    const INTERFACE: bool = true;
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<VirtioStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured("it needs another process on its socket; use `bellows bench vring`")
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        vec![config.mode.resource("socket", context.path(&config.socket))]
    }

    fn configure(config: Config, context: &Context) -> Result<VirtioUser, SettingError> {
        let ring_size = config.queue_size;
        if !(2..=32_768).contains(&ring_size) || !ring_size.is_power_of_two() {
            let message = format!("a ring cannot have {ring_size} descriptors");
            return Err(SettingError::at("queue_size", message, "give a power of two from 2 to 32768"));
        }
        let pairs = virtio::check_pairs(config.queues)?;
        let Config { mode, socket_mode, socket_group, peer_users, confine, .. } = &config;
        let policy = virtio::peer_policy(*mode, *socket_mode, *socket_group, peer_users, *confine)?;
        // Only a device needs the log of written pages, for live migration.
        let features = virtio::features(&config.disable, pairs).without(Features::LOG_ALL);
        let mac = port::read_mac(config.mac.as_deref())?;
        let socket = virtio::socket_path("socket", &config.socket, context)?;
        let config = FrontendConfig {
            app: context.app.clone(),
            socket,
            mode: config.mode.into(),
            pairs,
            features,
            ring_size,
            mac,
            policy,
        };
        Ok(PortApp::new(&context.app, config))
    }
}
