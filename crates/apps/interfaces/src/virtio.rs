//! The common part of `vhost-user` and `virtio-user`: options by name, sockets, and their status. `unix-socket` has
//! sockets like theirs.

use std::io;
use std::path::{Path, PathBuf};

use bellows_config::access::{FileGroup, FileMode, User, file_access};
use bellows_config::{Context, Resource, SettingError};
use bellows_engine::AppError;
use bellows_ipc::socket::Peer;
use bellows_sys::access::FileAccess;
use bellows_sys::way_out;
use bellows_virtio::Features;
use bellows_virtio::vhost::{Confinement, Mode, PeerPolicy, Snapshot};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

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
    format!("the socket {} cannot be used: {error}; {}", socket.display(), way_out(&error, usual)).into()
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

/// The part of an app's status that is the same for both sides.
pub(crate) fn common_status<S>(
    kind: &str,
    socket: &Path,
    mode: Mode,
    is_connected: bool,
    snapshot: &Snapshot<S>,
) -> Value {
    let Snapshot { peer, connections, confinement, faults, errors, last_error, waits, side: _ } = snapshot;
    let (mode, waiting) = match mode {
        Mode::Server => ("server", "listening"),
        Mode::Client => ("client", "waiting"),
    };
    let errors: Map<String, Value> = errors.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
    let (confined, why) = match confinement {
        Confinement::Starting => (false, Some("the control thread has not started yet")),
        Confinement::Confined(_) => (true, None),
        Confinement::Not(why) => (false, Some(&**why)),
    };
    json!({
        "interface": true,
        "device": "virtio-net",
        "kind": kind,
        "place": socket,
        "socket": socket,
        "mode": mode,
        "state": if is_connected { "connected" } else { waiting },
        "connections": connections,
        "errors": errors,
        "last_error": last_error,
        "waits": waits,
        "peer": peer.map(|Peer { pid, uid, gid }| json!({ "pid": pid, "uid": uid, "gid": gid })),
        "confinement": { "confined": confined, "reason": why, "denied": confinement.denied() },
        "engine_faults": { "minor": faults.minor, "major": faults.major },
    })
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
