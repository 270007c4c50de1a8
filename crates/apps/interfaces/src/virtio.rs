//! The common part of `vhost-user` and `virtio-user`: options by name, sockets, and their status. `unix-socket` has
//! sockets like theirs.

use std::io;
use std::path::{Path, PathBuf};

use bellows_config::access::{FileGroup, FileMode, User, file_access};
use bellows_config::{ByName, Context, Resource, SettingError};
use bellows_engine::AppError;
use bellows_ipc::socket::Peer;
use bellows_sys::access::FileAccess;
use bellows_sys::remedy;
use bellows_virtio::Features;
use bellows_virtio::vhost::{Confinement, Mode, PeerPolicy, Snapshot};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::queues::MAX_QUEUES;

/// A counter for each kind of error, with the error's name and text.
macro_rules! error_counters {
    ($error:ty) => {{
        let mut counters = [bellows_engine::Counter::new("", ""); <$error>::ALL.len()];
        let mut index = 0;
        while index < counters.len() {
            let error = <$error>::ALL[index];
            counters[index] = bellows_engine::Counter::new(error.name(), error.text()).in_unit("errors");
            index += 1;
        }
        counters
    }};
}

pub(crate) use error_counters;

/// Who opens a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Side {
    /// This app opens the socket and waits there.
    Server,
    /// The other side opens it; this app connects and retries until it is there.
    Client,
}

impl Side {
    /// The socket as a resource of the app.
    pub(crate) fn resource(self, key: &'static str, socket: PathBuf) -> Resource {
        match self {
            Side::Server => Resource::listens(key, socket),
            Side::Client => Resource::connects(key, socket),
        }
    }
}

impl From<Side> for Mode {
    fn from(side: Side) -> Mode {
        match side {
            Side::Server => Mode::Server,
            Side::Client => Mode::Client,
        }
    }
}

/// An option of a virtio-net device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum VirtioOption {
    /// Packed rings.
    Packed,
    /// Received packets spread over several buffers.
    Mergeable,
    /// Buffers used in the order in which they were made available.
    InOrder,
    /// Notifications at an index.
    EventIdx,
    /// Indirect tables of descriptors.
    Indirect,
    /// Header and data in any descriptors.
    AnyLayout,
    /// Virtio 1.0 and later.
    #[serde(rename = "version-1")]
    Version1,
    /// Partial checksums from the driver.
    Checksum,
    /// Partial checksums to the driver.
    GuestChecksum,
    /// TCP GSO packets over IPv4 from the driver.
    Tso4,
    /// TCP GSO packets over IPv6 from the driver.
    Tso6,
    /// TCP GSO packets over IPv4 to the driver.
    GuestTso4,
    /// TCP GSO packets over IPv6 to the driver.
    GuestTso6,
    /// More than one pair of queues.
    Multiqueue,
}

impl VirtioOption {
    fn feature(self) -> Features {
        match self {
            VirtioOption::Packed => Features::RING_PACKED,
            VirtioOption::Mergeable => Features::MRG_RXBUF,
            VirtioOption::InOrder => Features::IN_ORDER,
            VirtioOption::EventIdx => Features::EVENT_IDX,
            VirtioOption::Indirect => Features::INDIRECT_DESC,
            VirtioOption::AnyLayout => Features::ANY_LAYOUT,
            VirtioOption::Version1 => Features::VERSION_1,
            VirtioOption::Checksum => Features::CSUM,
            VirtioOption::GuestChecksum => Features::GUEST_CSUM,
            VirtioOption::Tso4 => Features::HOST_TSO4,
            VirtioOption::Tso6 => Features::HOST_TSO6,
            VirtioOption::GuestTso4 => Features::GUEST_TSO4,
            VirtioOption::GuestTso6 => Features::GUEST_TSO6,
            VirtioOption::Multiqueue => Features::MQ,
        }
    }
}

/// All features except the disabled options and those that need them.
pub(crate) fn features(disabled: &[VirtioOption], pairs: u16) -> Features {
    let all = if pairs > 1 { Features::DEVICE } else { Features::DEVICE.without(Features::MQ) };
    disabled.iter().fold(all, |left, option| left.without(option.feature())).coherent()
}

/// Checks a number of pairs of queues.
pub(crate) fn check_pairs(queues: u16) -> Result<u16, SettingError> {
    if (1..=MAX_QUEUES).contains(&queues) {
        return Ok(queues);
    }
    let message = format!("{queues} pairs of queues is out of range");
    Err(SettingError::at("queues", message, format!("give a number from 1 to {MAX_QUEUES}")))
}

/// Checks the path of a socket: the system accepts at most 107 bytes.
pub(crate) fn socket_path(key: &'static str, path: &Path, context: &Context) -> Result<PathBuf, SettingError> {
    let path = context.path(path);
    check_socket(key, &path)?;
    Ok(path)
}

fn check_socket(key: &'static str, path: &Path) -> Result<(), SettingError> {
    const MAX_SOCKET_PATH: usize = 107;
    let length = path.as_os_str().len();
    if path.file_name().is_none() {
        return Err(SettingError::at(
            key,
            "the path has no file name",
            "give the path of a socket, such as /run/vm0.sock",
        ));
    }
    if length > MAX_SOCKET_PATH {
        let message = format!("the path has {length} bytes, but the maximum for a socket is {MAX_SOCKET_PATH}");
        return Err(SettingError::at(key, message, "choose a folder with a shorter name, such as /run/bellows"));
    }
    Ok(())
}

/// The reason why an app could not start at a socket. Adds the socket's name and a way out to an error of the system;
/// other errors have them.
pub(crate) fn explain_start(socket: &Path, error: io::Error) -> AppError {
    if error.raw_os_error().is_none() {
        return error.into();
    }
    let usual = "cannot start a thread: end other programs, or raise the limits with `ulimit -u` and `ulimit -v`";
    format!("the socket {} cannot be used: {error}; {}", socket.display(), remedy(&error, usual)).into()
}

/// The policy towards the other side that the keys of an app set. Files that do not live in memory are not allowed.
pub(crate) fn peer_policy(
    side: Side,
    mode: Option<FileMode>,
    group: Option<FileGroup>,
    users: &[User],
    confine: bool,
) -> Result<PeerPolicy, SettingError> {
    let socket_access = socket_access(side, mode, group)?;
    let users = users.iter().map(|user| user.id()).collect();
    Ok(PeerPolicy { socket_access, users, any_file: false, confine, ..PeerPolicy::default() })
}

/// The permissions of the socket's file: only the side that opens it can set them.
pub(crate) fn socket_access(
    side: Side,
    mode: Option<FileMode>,
    group: Option<FileGroup>,
) -> Result<FileAccess, SettingError> {
    let key = mode.map(|_| "socket_mode").or(group.map(|_| "socket_group"));
    match key {
        Some(key) if side == Side::Client => {
            let message = "the other side opens the socket, so this app cannot set its permissions";
            Err(SettingError::at(key, message, "leave the key out, or set `mode = \"server\"`"))
        }
        _ => Ok(file_access(mode, group)),
    }
}

/// The status of a device or driver.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `vhost-user` and `virtio-user`")]
pub struct VirtioStatus {
    /// True: `show interfaces` lists apps whose status says so.
    interface: bool,
    /// `virtio-net`: `show vhost` finds devices and drivers among the apps' statuses by this key.
    #[schemars(extend("enum" = ["virtio-net"]))]
    device: &'static str,
    /// The type of the app.
    kind: &'static str,
    /// The same as `socket`.
    place: PathBuf,
    /// The socket's path.
    socket: PathBuf,
    /// Whether the app listens at the socket (`server`) or connects (`client`).
    #[schemars(extend("enum" = ["server", "client"]))]
    mode: &'static str,
    /// `listening` (for a peer), `waiting` (to connect again) or `connected`.
    #[schemars(extend("enum" = ["listening", "waiting", "connected"]))]
    state: &'static str,
    /// Number of peers so far.
    connections: u64,
    /// Errors of the protocol and of starting rings: counts by name.
    errors: ByName<u64>,
    /// The text of the last error; null without one.
    last_error: Option<String>,
    /// A sentence: the reason for waiting; null if the app is not waiting.
    waits: Option<String>,
    /// The process on the other side; null without a peer.
    peer: Option<PeerStatus>,
    /// Of the thread that speaks the protocol.
    confinement: ConfinementStatus,
    /// Page faults of the engine's thread, with all its apps, since its start.
    engine_faults: PageFaults,
    /// Of `vhost-user`: the offered options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offered: Option<Vec<&'static str>>,
    /// The negotiated options, by the names that the key `disable` takes; before negotiation null, and absent for
    /// `virtio-user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(crate) features: Option<Option<Vec<&'static str>>>,
    /// Of `vhost-user`: the extensions of the protocol in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol_features: Option<Vec<&'static str>>,
    /// Of `vhost-user`: the peer's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<PeerMemory>,
    /// Of `vhost-user`: whether written pages are logged, because the virtual machine is being migrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logging: Option<bool>,
    /// Of `vhost-user`: how the driver is notified of used buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notifications: Option<NotificationStatus>,
    /// The rings of the app's queues.
    pub(crate) rings: Vec<RingStatus>,
    /// Of a connected `virtio-user`: its Ethernet address; null if the device gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(crate) mac: Option<Option<String>>,
}

/// What the status says of the process on the other side.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Peer at a socket")]
struct PeerStatus {
    /// The process, as the kernel reports it.
    pid: u32,
    /// Its user.
    uid: u32,
    /// Its group.
    gid: u32,
}

/// What the status says of the control thread.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Confinement")]
struct ConfinementStatus {
    /// Whether the thread can make only the system calls that it needs.
    confined: bool,
    /// Why it is not confined; null if it is.
    reason: Option<String>,
    /// Counts of denied system calls, by name.
    denied: ByName<u64>,
}

/// Numbers of page faults.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Page faults")]
struct PageFaults {
    /// Those without a disk.
    minor: u64,
    /// Those that waited for a disk.
    major: u64,
}

/// What the status says of a peer's memory.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Memory of a peer")]
pub(crate) struct PeerMemory {
    /// Number of regions; 0 before there is any.
    pub(crate) regions: usize,
    /// Their size in bytes.
    pub(crate) bytes: u64,
}

/// What the status says of notifications.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Notifications")]
pub(crate) struct NotificationStatus {
    /// `io_uring` (the kernel raises the events) or `thread`.
    #[schemars(extend("enum" = ["io_uring", "thread"]))]
    pub(crate) by: &'static str,
    /// The number of queues that the thread notifies because raising their events took long.
    pub(crate) slow_queues: usize,
    /// For how long it has notified the first of these, in seconds; after ten, and after longer each time, the kernel has
    /// another try. Null if there is none.
    pub(crate) slow_seconds: Option<u64>,
}

/// What the status says of a ring.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Ring")]
pub(crate) struct RingStatus {
    /// Its number in the device, which apps may share: even ones lead to the driver, odd ones from it.
    pub(crate) index: usize,
    /// As the driver sees it: `receive` (packets to it) or `transmit` (packets from it).
    #[schemars(extend("enum" = ["receive", "transmit"]))]
    pub(crate) direction: &'static str,
    /// `running`, `stopped`, `disabled` (started, but disabled by the peer) or `failed`.
    #[schemars(extend("enum" = ["running", "stopped", "disabled", "failed"]))]
    pub(crate) state: &'static str,
    /// Of a device: the error of a failed ring; else null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub(crate) error: Option<Option<String>>,
    /// Number of descriptors.
    pub(crate) size: u16,
    /// Of a device: the machine code that serves it, as the direction and options for which it was compiled; empty while
    /// it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
    /// What it has counted.
    pub(crate) counters: RingCounts,
}

/// What a ring has counted.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Counts of a ring")]
pub(crate) struct RingCounts {
    /// Packets.
    pub(crate) packets: u64,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Of a device: chains of descriptors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chains: Option<u64>,
    /// Calls to wake the other side.
    pub(crate) kicks: u64,
    /// Packets that were dropped because something was wrong, by the name of the error.
    pub(crate) errors: ByName<u64>,
}

impl VirtioStatus {
    /// The part that is the same for both sides.
    pub(crate) fn of<S>(
        kind: &'static str,
        socket: &Path,
        mode: Mode,
        is_connected: bool,
        snapshot: Snapshot<S>,
    ) -> VirtioStatus {
        let Snapshot { peer, connections, confinement, faults, errors, last_error, waits, side: _ } = snapshot;
        let (mode, waiting) = match mode {
            Mode::Server => ("server", "listening"),
            Mode::Client => ("client", "waiting"),
        };
        let denied = confinement.denied().into_iter().collect();
        let (confined, reason) = match confinement {
            Confinement::Starting => (false, Some("the control thread has not started yet".to_owned())),
            Confinement::Confined(_) => (true, None),
            Confinement::Not(why) => (false, Some(why.to_string())),
        };
        VirtioStatus {
            interface: true,
            device: "virtio-net",
            kind,
            place: socket.to_owned(),
            socket: socket.to_owned(),
            mode,
            state: if is_connected { "connected" } else { waiting },
            connections,
            errors: errors.into_iter().collect(),
            last_error,
            waits,
            peer: peer.map(|Peer { pid, uid, gid }| PeerStatus { pid, uid, gid }),
            confinement: ConfinementStatus { confined, reason, denied },
            engine_faults: PageFaults { minor: faults.minor, major: faults.major },
            offered: None,
            features: None,
            protocol_features: None,
            memory: None,
            logging: None,
            notifications: None,
            rings: Vec::new(),
            mac: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_names_that_reports_use() {
        for (name, feature) in Features::NAMED {
            let option: VirtioOption = serde_json::from_value((*name).into()).unwrap();
            assert_eq!(option.feature(), *feature);
        }
    }

    #[test]
    fn a_disabled_option_also_disables_its_dependents() {
        let left = features(&[VirtioOption::Version1, VirtioOption::GuestChecksum], 1);
        assert!(!left.has_any(Features::RING_PACKED | Features::IN_ORDER | Features::GUEST_TSO4 | Features::MQ));
        assert!(left.has(Features::HOST_TSO4 | Features::MRG_RXBUF));
    }

    #[test]
    fn sockets_and_numbers_that_cannot_be_are_refused() {
        assert!(socket_access(Side::Client, None, None).unwrap().is_default());
        let mode = "0660".parse().ok();
        assert_eq!(socket_access(Side::Server, mode, None).unwrap().mode, Some(0o660));
        let error = socket_access(Side::Client, mode, None).unwrap_err();
        assert!(format!("{error:?}").contains("socket_mode"), "{error:?}");
        assert!(
            check_socket("socket", "/".as_ref()).is_err() && check_socket("socket", "a".repeat(200).as_ref()).is_err()
        );
        assert!(check_pairs(0).is_err() && check_pairs(33).is_err() && check_pairs(32).is_ok());
    }
}
