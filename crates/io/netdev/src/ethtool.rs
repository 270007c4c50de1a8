//! What the driver of a network interface knows and lets change: speed, name, queues, rings and offloads.
//!
//! All functions take the name of an interface in the network namespace of the calling thread. They use the ioctl
//! `SIOCETHTOOL` and the structures of `linux/ethtool.h`, as the program `ethtool` does. Reading takes no privilege,
//! changing takes `CAP_NET_ADMIN`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use bellows_sys::capability::{Set, missing};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;

/// The ioctl of all of them. The C library has no name for it on every system.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// The names of offloads, among the sets of names (`ETH_SS_FEATURES`).
const FEATURE_NAMES: u32 = 4;
/// The length of a name in such a set (`ETH_GSTRING_LEN`).
const NAME_LEN: usize = 32;
/// Most offloads that are read. Linux has fewer than 128.
const MAX_FEATURES: usize = 1024;
const WORD: usize = size_of::<u32>();

/// The socket and the name of an interface, for commands.
struct Device {
    socket: OwnedFd,
    request: libc::ifreq,
    name: String,
}

impl Device {
    fn open(name: &str) -> io::Result<Device> {
        // SAFETY: all zero is a valid structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The name ends with a zero byte.
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not an interface's name")));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Device { socket, request, name: name.to_owned() })
    }

    /// Makes the kernel carry out the command in the first word of a structure, and change the structure. Returns the
    /// kernel's result.
    ///
    /// # Safety
    /// The structure has at least the length that the command and its other words ask for: the kernel believes them.
    unsafe fn execute(&mut self, structure: &mut [u32]) -> io::Result<i32> {
        self.request.ifr_ifru.ifru_data = structure.as_mut_ptr().cast();
        // SAFETY: the request has a name that ends, and points at a structure of the command's length, which the
        // caller guarantees.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut self.request) };
        if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
    }

    /// Like [`execute`](Device::execute), for structures of a fixed length; `None` if the driver does not know the
    /// command.
    ///
    /// # Safety
    /// As there.
    unsafe fn execute_if_known(&mut self, what: &str, structure: &mut [u32]) -> io::Result<Option<i32>> {
        // SAFETY: the caller's promise.
        match unsafe { self.execute(structure) } {
            Ok(result) => Ok(Some(result)),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(self.explained(what, &error)),
        }
    }

    fn explained(&self, what: &str, error: &io::Error) -> io::Error {
        let advice = match error.raw_os_error() {
            Some(libc::EPERM) => missing(Set::NET_ADMIN).map_or_else(
                || "the network namespace belongs to another user namespace".to_owned(),
                |missing| missing.to_string(),
            ),
            Some(libc::ENODEV) => "`ip link` lists the interfaces".to_owned(),
            Some(libc::EINVAL) => "the driver does not accept these values".to_owned(),
            Some(libc::EBUSY) => "another program uses what would change".to_owned(),
            Some(libc::EOPNOTSUPP) => "the driver has no such setting".to_owned(),
            _ => "`dmesg` may know more".to_owned(),
        };
        io::Error::new(error.kind(), format!("{}: cannot {what}: {error}; {advice}", self.name))
    }
}

/// The speed of the link in Mbit/s; `None` if there is no link, no interface, or no such thing. Virtual interfaces
/// report an arbitrary speed.
pub fn speed(name: &str) -> Option<u32> {
    /// The words of `ethtool_link_settings` before the masks of link modes.
    const HEADER: usize = 12;
    /// Number of masks; each has at most 127 words.
    const MASKS: usize = 3;
    const SPEED_UNKNOWN: u32 = u32::MAX;
    /// The word that has the length of the masks, in its last byte.
    const LENGTH_WORD: usize = 3;

    let mut device = Device::open(name).ok()?;
    let mut settings = [0; HEADER + MASKS * i8::MAX as usize];
    settings[0] = ETHTOOL_GLINKSETTINGS;
    // The kernel answers a request without masks with their length, as a negative number, and then wants that length.
    // SAFETY: the structure has the header, and masks of the greatest length.
    unsafe { device.execute(&mut settings) }.ok()?;
    let [a, b, c, length] = settings[LENGTH_WORD].to_ne_bytes();
    let words = length.cast_signed().checked_neg().filter(|words| *words > 0)?;
    settings[0] = ETHTOOL_GLINKSETTINGS;
    settings[LENGTH_WORD] = u32::from_ne_bytes([a, b, c, words.cast_unsigned()]);
    // SAFETY: as above; the masks have at most 127 words each.
    unsafe { device.execute(&mut settings) }.ok()?;
    Some(settings[1]).filter(|speed| !matches!(*speed, 0 | SPEED_UNKNOWN))
}

/// The driver of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its name, such as `veth`, `tun` or `virtio_net`.
    pub driver: String,
    /// Its version; the kernel's version if it has none.
    pub version: String,
    /// The device's place on its bus, such as `0000:00:04.0`; empty if there is none.
    pub bus: String,
}

/// The driver of an interface.
///
/// # Errors
/// The interface does not exist, or its driver has no name.
pub fn driver(name: &str) -> io::Result<Driver> {
    /// The words of `ethtool_drvinfo`: the command, five texts of 32 bytes, 12 reserved bytes, five numbers.
    const WORDS: usize = 1 + 5 * TEXT + 3 + 5;
    const TEXT: usize = NAME_LEN / WORD;

    let mut device = Device::open(name)?;
    let mut structure = [0; WORDS];
    structure[0] = ETHTOOL_GDRVINFO;
    // SAFETY: the structure has the length of ethtool_drvinfo.
    let done = unsafe { device.execute(&mut structure) };
    done.map_err(|error| device.explained("read its driver", &error))?;
    let text = |number: usize| text(&structure[1 + number * TEXT..][..TEXT]);
    Ok(Driver { driver: text(0), version: text(1), bus: text(3) })
}

/// A text that ends with a zero byte or with the words.
fn text(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

/// The queues of an interface, and the greatest numbers that the driver can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Queues that only receive.
    pub rx: u32,
    /// Queues that only send.
    pub tx: u32,
    /// Pairs of a receiving and a sending queue.
    pub combined: u32,
    /// Queues for other purposes, such as link events.
    pub other: u32,
    /// Greatest number of [`rx`](Channels::rx).
    pub max_rx: u32,
    /// Greatest number of [`tx`](Channels::tx).
    pub max_tx: u32,
    /// Greatest number of [`combined`](Channels::combined).
    pub max_combined: u32,
    /// Greatest number of [`other`](Channels::other).
    pub max_other: u32,
}

impl Channels {
    /// Number of queues that receive.
    pub fn receiving(&self) -> u32 {
        self.rx.saturating_add(self.combined)
    }

    /// Number of queues that send.
    pub fn sending(&self) -> u32 {
        self.tx.saturating_add(self.combined)
    }
}

/// The queues in use; `None` if the driver does not tell, as that of a bridge. A TAP interface has as many pairs as
/// programs have opened.
///
/// # Errors
/// The interface does not exist.
pub fn channels(name: &str) -> io::Result<Option<Channels>> {
    let mut device = Device::open(name)?;
    let mut structure = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: the structure has the length of ethtool_channels.
    let known = unsafe { device.execute_if_known("read its queues", &mut structure) }?;
    let [_, max_rx, max_tx, max_other, max_combined, rx, tx, other, combined] = structure;
    Ok(known.map(|_| Channels { rx, tx, combined, other, max_rx, max_tx, max_combined, max_other }))
}

/// Changes the numbers of queues; the maxima are not used. The driver may take the link down for a moment.
///
/// # Errors
/// The driver cannot have these numbers (`InvalidInput`), an `AF_XDP` socket or an XDP program uses queues that would
/// go, or `CAP_NET_ADMIN` is missing.
pub fn set_channels(name: &str, channels: &Channels) -> io::Result<()> {
    let mut device = Device::open(name)?;
    let Channels { rx, tx, combined, other, max_rx, max_tx, max_combined, max_other } = *channels;
    let mut structure = [ETHTOOL_SCHANNELS, max_rx, max_tx, max_other, max_combined, rx, tx, other, combined];
    // SAFETY: the structure has the length of ethtool_channels.
    let done = unsafe { device.execute(&mut structure) };
    let what = format!("set its queues to rx {rx}, tx {tx}, combined {combined}");
    done.map(drop).map_err(|error| device.explained(&what, &error))
}

/// The lengths of an interface's hardware rings, in descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Of each receiving queue.
    pub rx: u32,
    /// Of each sending queue.
    pub tx: u32,
    /// Greatest length of a receiving queue.
    pub max_rx: u32,
    /// Greatest length of a sending queue.
    pub max_tx: u32,
}

/// The lengths of the rings; `None` if the driver does not report them.
///
/// # Errors
/// The interface does not exist.
pub fn rings(name: &str) -> io::Result<Option<Rings>> {
    let mut device = Device::open(name)?;
    let mut structure = [ETHTOOL_GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: the structure has the length of ethtool_ringparam.
    let known = unsafe { device.execute_if_known("read its rings", &mut structure) }?;
    let [_, max_rx, _, _, max_tx, rx, _, _, tx] = structure;
    Ok(known.map(|_| Rings { rx, tx, max_rx, max_tx }))
}

/// A group of features that is switched as one, as by `ethtool -K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums of frames that are sent (`tx`). Without it the kernel switches off TCP segmentation, too.
    TxChecksum,
    /// Checksums of frames that are received (`rx`).
    RxChecksum,
    /// Segmentation of TCP packets by the device (`tso`).
    Tso,
    /// Segmentation by the kernel just before the device (`gso`).
    Gso,
    /// Received packets combined by the kernel (`gro`).
    Gro,
    /// Received packets combined by the device (`lro`).
    Lro,
}

impl Offload {
    /// Whether a feature of the kernel belongs to this group.
    fn has(self, feature: &str) -> bool {
        match self {
            Offload::TxChecksum => feature.starts_with("tx-checksum-"),
            Offload::RxChecksum => feature == "rx-checksum",
            Offload::Tso => feature.starts_with("tx-tcp") && feature.ends_with("-segmentation"),
            Offload::Gso => feature == "tx-generic-segmentation",
            Offload::Gro => feature == "rx-gro",
            Offload::Lro => feature == "rx-lro",
        }
    }
}

/// One feature of a device, as `ethtool -k` lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name, such as `tx-checksum-ip-generic`.
    pub name: String,
    /// Whether it can be changed.
    pub can_change: bool,
    /// Whether it was asked for.
    pub is_wanted: bool,
    /// Whether it is on. A wanted feature is off if it needs another that is off.
    pub is_active: bool,
}

/// The features of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features(pub Vec<Feature>);

impl Features {
    /// Whether any feature of the group is on.
    pub fn is_active(&self, offload: Offload) -> bool {
        self.of(offload).any(|feature| feature.is_active)
    }

    fn of(&self, offload: Offload) -> impl Iterator<Item = &Feature> {
        self.0.iter().filter(move |feature| offload.has(&feature.name))
    }
}

/// Words of a block of 32 features: available, requested, active, never changed.
const BLOCK: usize = 4;

/// The features of a device.
///
/// # Errors
/// The interface does not exist.
pub fn features(name: &str) -> io::Result<Features> {
    let mut device = Device::open(name)?;
    let names = feature_names(&mut device).map_err(|error| device.explained("read its features", &error))?;
    let blocks = names.len().div_ceil(u32::BITS as usize);
    let mut structure = vec![0; 2 + blocks * BLOCK];
    (structure[0], structure[1]) = (ETHTOOL_GFEATURES, blocks as u32);
    // SAFETY: the structure has as many blocks as its second word says.
    let done = unsafe { device.execute(&mut structure) };
    done.map_err(|error| device.explained("read its features", &error))?;
    let feature = |(number, name): (usize, String)| {
        let block = &structure[2 + number / 32 * BLOCK..][..BLOCK];
        let [available, wanted, active, constant] = [0, 1, 2, 3].map(|word| block[word] >> (number % 32) & 1 != 0);
        Feature { name, can_change: available && !constant, is_wanted: wanted, is_active: active }
    };
    Ok(Features(names.into_iter().enumerate().map(feature).collect()))
}

/// The names of all features of this kernel; some are empty.
fn feature_names(device: &mut Device) -> io::Result<Vec<String>> {
    // The mask of sets, in two words, and one length.
    let mut structure = [ETHTOOL_GSSET_INFO, 0, 1 << FEATURE_NAMES, 0, 0];
    // SAFETY: the structure is an ethtool_sset_info with room for the length of the only set in the mask.
    unsafe { device.execute(&mut structure) }?;
    let count = structure[4] as usize;
    if count > MAX_FEATURES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the kernel has {count} features")));
    }
    // The number of names is the kernel's own, and does not change while it runs.
    let mut structure = vec![0; 3 + count * NAME_LEN / WORD];
    structure[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, FEATURE_NAMES, count as u32]);
    // SAFETY: the structure has room for all names of the set, whose number the kernel has just told.
    unsafe { device.execute(&mut structure) }?;
    Ok(structure[3..].chunks_exact(NAME_LEN / WORD).map(text).collect())
}

/// Switches a group of features on or off. Returns the features that were wanted otherwise, as they were before:
/// [`set_features`] gives them back. Features that the driver cannot change stay as they are, so read
/// [`Features::is_active`] afterwards.
///
/// # Errors
/// The interface does not exist, or `CAP_NET_ADMIN` is missing.
pub fn set_offload(name: &str, offload: Offload, on: bool) -> io::Result<Vec<Feature>> {
    let features = features(name)?;
    let changed = features.of(offload).filter(|feature| feature.can_change && feature.is_wanted != on);
    let before: Vec<_> = changed.cloned().collect();
    let after: Vec<_> = before.iter().map(|feature| Feature { is_wanted: on, ..feature.clone() }).collect();
    set_features(name, &after)?;
    Ok(before)
}

/// Asks for features, or for their absence, as each [`Feature::is_wanted`] says.
///
/// # Errors
/// The interface or a feature does not exist, or `CAP_NET_ADMIN` is missing.
pub fn set_features(name: &str, features: &[Feature]) -> io::Result<()> {
    if features.is_empty() {
        return Ok(());
    }
    let mut device = Device::open(name)?;
    let names = feature_names(&mut device).map_err(|error| device.explained("read its features", &error))?;
    let blocks = names.len().div_ceil(u32::BITS as usize);
    // Blocks of two words: which features are meant, and which of them are wanted.
    let mut structure = vec![0; 2 + blocks * 2];
    (structure[0], structure[1]) = (ETHTOOL_SFEATURES, blocks as u32);
    for feature in features {
        let number = names.iter().position(|name| *name == feature.name).ok_or_else(|| {
            let message =
                format!("{name}: this kernel has no feature `{}`; `ethtool -k {name}` lists them", feature.name);
            io::Error::new(io::ErrorKind::NotFound, message)
        })?;
        let block = &mut structure[2 + number / 32 * 2..][..2];
        block[0] |= 1 << (number % 32);
        block[1] |= u32::from(feature.is_wanted) << (number % 32);
    }
    // SAFETY: the structure has as many blocks as its second word says.
    let done = unsafe { device.execute(&mut structure) };
    // A result above zero says that some features stay off or on, which is visible in `features`.
    done.map(drop).map_err(|error| device.explained("change its features", &error))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use bellows_testkit::skips::is_skipped;
    use proptest::prelude::*;

    use super::*;
    use bellows_sys::namespace::enter_new_network;

    /// Runs a test in a network namespace with the veth pair `one` and `two`, of four queues each.
    fn with_pair(name: &str, work: fn()) {
        let lacks = missing(Set::SYS_ADMIN | Set::NET_ADMIN).map(|missing| missing.to_string());
        if is_skipped(name, lacks.or_else(|| bellows_testkit::programs::missing(&["ip"]))) {
            return;
        }
        let in_namespace = move || {
            enter_new_network().unwrap();
            let pair = "link add one numrxqueues 4 numtxqueues 4 type veth peer two numrxqueues 4 numtxqueues 4";
            for arguments in [pair, "link set one up", "link set two up"] {
                let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
                assert!(status.success(), "ip {arguments}");
            }
            work();
        };
        std::thread::spawn(in_namespace).join().unwrap();
    }

    #[test]
    fn a_driver_tells_its_name_and_speed() {
        with_pair("a_driver_tells_its_name_and_speed", || {
            assert_eq!(driver("one").unwrap().driver, "veth");
            assert_eq!(speed("one"), Some(10_000));
            assert_eq!((speed("lo"), speed("three")), (None, None));
            assert_eq!(channels("lo").unwrap(), None);
            assert_eq!(rings("lo").unwrap(), None);
            for error in [driver("three").unwrap_err(), channels("three").unwrap_err(), features("three").unwrap_err()]
            {
                assert!(error.to_string().contains("three: ") && error.to_string().contains("ip link"), "{error}");
            }
        });
    }

    #[test]
    fn queues_change_within_their_limits() {
        with_pair("queues_change_within_their_limits", || {
            let first = channels("one").unwrap().unwrap();
            assert_eq!((first.max_rx, first.max_tx), (4, 4));
            set_channels("one", &Channels { rx: 2, tx: 3, ..first }).unwrap();
            let second = channels("one").unwrap().unwrap();
            assert_eq!((second.receiving(), second.sending()), (2, 3));
            let error = set_channels("one", &Channels { rx: 5, ..first }).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("rx 5"), "{error}");
            set_channels("one", &first).unwrap();
            assert_eq!(channels("one").unwrap().unwrap(), first);
        });
    }

    #[test]
    fn offloads_are_switched_and_given_back() {
        with_pair("offloads_are_switched_and_given_back", || {
            let first = features("one").unwrap();
            assert!(first.is_active(Offload::TxChecksum) && first.is_active(Offload::Tso));
            let before = set_offload("one", Offload::TxChecksum, false).unwrap();
            assert!(!before.is_empty() && before.iter().all(|feature| feature.is_wanted));
            let second = features("one").unwrap();
            assert!(!second.is_active(Offload::TxChecksum));
            let segmentation = second.0.iter().find(|feature| feature.name == "tx-tcp-segmentation").unwrap();
            assert!(segmentation.is_wanted && !segmentation.is_active, "it needs checksums");
            assert_eq!(set_offload("one", Offload::TxChecksum, false).unwrap(), []);
            set_features("one", &before).unwrap();
            assert_eq!(features("one").unwrap(), first);
            for offload in [Offload::Gro, Offload::Gso, Offload::Tso, Offload::RxChecksum, Offload::Lro] {
                for on in [false, true] {
                    set_offload("one", offload, on).unwrap();
                    let changeable = first.of(offload).any(|feature| feature.can_change);
                    let active = features("one").unwrap().is_active(offload);
                    assert!(!changeable || active == on, "{offload:?} {on}");
                }
            }
            let unknown = Feature { name: "none".into(), ..before[0].clone() };
            assert!(set_features("one", &[unknown]).unwrap_err().to_string().contains("ethtool -k one"));
        });
    }

    #[test]
    fn features_are_those_that_ethtool_lists() {
        if !bellows_testkit::programs::has_program("features_are_those_that_ethtool_lists", "ethtool") {
            return;
        }
        with_pair("features_are_those_that_ethtool_lists", || {
            let output = Command::new("ethtool").args(["-k", "one"]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let all = features("one").unwrap();
            let mut compared = 0;
            for feature in &all.0 {
                let line = text.lines().find_map(|line| line.trim().strip_prefix(&feature.name)?.strip_prefix(": "));
                let Some(line) = line else { continue };
                assert_eq!(line.starts_with("on"), feature.is_active, "{feature:?}: {line}");
                assert_eq!(line.contains("[fixed]"), !feature.can_change, "{feature:?}: {line}");
                compared += 1;
            }
            assert!(compared > 30, "{compared} of {}", all.0.len());
        });
    }

    #[test]
    fn changes_without_the_privilege_name_it() {
        with_pair("changes_without_the_privilege_name_it", || {
            bellows_sys::capability::retain(Set::EMPTY).unwrap();
            let channels = channels("one").unwrap().unwrap();
            for error in [
                set_channels("one", &channels).unwrap_err(),
                set_offload("one", Offload::TxChecksum, false).unwrap_err(),
            ] {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
            }
        });
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_as_a_name(name: String) {
            // All of these are no interfaces, or too long.
            let name = format!("/{name}");
            prop_assert!(driver(&name).is_err());
            prop_assert_eq!(speed(&name), None);
        }

        #[test]
        fn texts_end_with_a_zero_byte_or_the_words(bytes in any::<[u8; 8]>()) {
            let words = [0, 4].map(|at| u32::from_ne_bytes(bytes[at..][..4].try_into().unwrap()));
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            prop_assert_eq!(text(&words), String::from_utf8_lossy(&bytes[..end]));
        }
    }
}
