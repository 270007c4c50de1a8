//! TAP devices: network interfaces whose other side is a program (`Documentation/networking/tuntap.rst` of Linux).
//!
//! Each frame is one `read(2)` or `write(2)`.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_int, c_short, c_ulong};
use rustix::io::{Errno, readv, writev};

use crate::messages::{VIRTIO_HEADER, last_error};
use crate::{PortError, PortOpenError};

/// The device that makes TAP devices.
const DEVICE: &str = "/dev/net/tun";

/// Maximum length of an interface's name, without its final zero (`IFNAMSIZ`).
pub const MAX_NAME: usize = libc::IFNAMSIZ - 1;

/// The advice for most steps of opening a device.
const USUAL: &str = "creating a TAP device needs CAP_NET_ADMIN in the network namespace: run as root, grant it to the \
                     program with `setcap cap_net_admin+ep PROGRAM`, or create the device for this user with `ip tuntap \
                     add dev NAME mode tap user USER`";

/// How to open a [`Tap`].
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// The name of the device, or a template such as `tap%d`, for which the kernel chooses the lowest free number. A
    /// device that exists is opened; otherwise it is created.
    pub name: String,
    /// Whether it is an error if the device exists.
    pub exclusive: bool,
    /// Whether the device has several queues, each of which is a [`Tap`] opened with the same options. A device that
    /// exists must have been created likewise.
    pub multi_queue: bool,
    /// Whether each frame has a virtio-net header, so that it can have [`Offloads`].
    pub virtio_header: bool,
}

impl Default for TapOptions {
    fn default() -> TapOptions {
        TapOptions { name: "tap%d".into(), exclusive: false, multi_queue: false, virtio_header: true }
    }
}

/// What the program accepts in the frames that it reads. The kernel finishes the rest before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Partial checksums. All others need it.
    pub checksum: bool,
    /// TCP GSO packets over IPv4.
    pub tso4: bool,
    /// TCP GSO packets over IPv6.
    pub tso6: bool,
    /// TCP GSO packets with congestion notifications.
    pub ecn: bool,
    /// UDP GSO packets (since Linux 6.2).
    pub uso: bool,
}

impl Offloads {
    fn bits(self) -> c_ulong {
        let bits = [
            (self.checksum, libc::TUN_F_CSUM),
            (self.tso4, libc::TUN_F_TSO4),
            (self.tso6, libc::TUN_F_TSO6),
            (self.ecn, libc::TUN_F_TSO_ECN),
            // The kernel takes both or none.
            (self.uso, libc::TUN_F_USO4 | libc::TUN_F_USO6),
        ];
        bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| c_ulong::from(*bit)).sum()
    }
}

/// One queue of a TAP device. The device is deleted when its last queue is dropped, unless it is persistent.
#[derive(Debug)]
pub struct Tap {
    device: File,
    name: String,
    has_virtio_header: bool,
}

impl Tap {
    /// Opens a device, or creates it, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `ENOENT` without `/dev/net/tun`; `EACCES` if it is not open to the user; `EPERM` without `CAP_NET_ADMIN`, or for a device of another user; `EBUSY` if
    /// another program has the device open, or if it is exclusive and exists; `EINVAL` for an interface of another
    /// kind or with another number of queues; `InvalidInput` for an impossible name.
    pub fn open(options: &TapOptions) -> Result<Tap, PortOpenError> {
        let mut request = request(&options.name).map_err(PortOpenError::at("name a TAP device", "choose another"))?;
        let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let advice = match &file {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "make it open to all users with `chmod a+rw /dev/net/tun`, as udev does, or run as root"
            }
            _ => "load the module with `modprobe tun`, and give a container `--device /dev/net/tun`",
        };
        let device = file.map_err(PortOpenError::at("open /dev/net/tun", advice))?;
        let flags = [
            (options.virtio_header, libc::IFF_VNET_HDR),
            (options.multi_queue, libc::IFF_MULTI_QUEUE),
            (options.exclusive, libc::IFF_TUN_EXCL),
        ];
        let flags =
            flags.iter().filter(|(is_set, _)| *is_set).fold(libc::IFF_TAP | libc::IFF_NO_PI, |all, (_, f)| all | f);
        request.ifr_ifru.ifru_flags = flags as c_short;
        control_with(&device, libc::TUNSETIFF, &mut request).map_err(|error| open_error(options, error))?;
        let name = name_of(&request);
        let tap = Tap { device, name, has_virtio_header: options.virtio_header };
        if options.virtio_header {
            // A device that exists keeps the length that it had.
            let mut length = VIRTIO_HEADER as c_int;
            let error = PortOpenError::at("set the length of virtio-net headers", USUAL);
            control_with(&tap.device, libc::TUNSETVNETHDRSZ, &mut length).map_err(error)?;
        }
        Ok(tap)
    }

    /// The name that the kernel gave to the device.
    ///
    /// It does not change here when the interface is renamed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a frame, and its virtio-net header if the options asked for it, without waiting. Returns the frame's
    /// length. The rest of a frame that is longer than the buffer is lost; such a frame fills the buffer.
    ///
    /// # Errors
    /// [`PortError::Full`] if there is no frame now; [`PortError::Gone`] if the device was deleted. A device
    /// that is down, or a queue that is detached, has no frames.
    #[inline]
    pub fn read(&self, header: &mut [u8; VIRTIO_HEADER], into: &mut [u8]) -> Result<usize, PortError> {
        self.read_parts(header, into, &mut [])
    }

    /// Writes a frame, with its virtio-net header if the options asked for it, without waiting.
    ///
    /// # Errors
    /// [`PortError::Down`] if the interface is down; [`PortError::Gone`] if the device was deleted;
    /// [`PortError::Invalid`] for a frame without an Ethernet header, or whose virtio-net header is wrong;
    /// [`PortError::Full`] beyond the limit of [`Tap::set_send_buffer`].
    #[inline]
    pub fn write(&self, header: &[u8; VIRTIO_HEADER], frame: &[u8]) -> Result<(), PortError> {
        let parts = [IoSlice::new(header), IoSlice::new(frame)];
        let first = usize::from(!self.has_virtio_header);
        writev(&self.device, &parts[first..]).map(drop).map_err(PortError::of)
    }

    /// Reads a frame as [`Tap::read`] does, the part that does not fit in the first buffer into the second one. Returns
    /// the frame's length, as far as it fitted.
    ///
    /// # Errors
    /// As for [`Tap::read`].
    #[inline]
    pub fn read_parts(
        &self,
        header: &mut [u8; VIRTIO_HEADER],
        into: &mut [u8],
        rest: &mut [u8],
    ) -> Result<usize, PortError> {
        let skipped = if self.has_virtio_header { VIRTIO_HEADER } else { 0 };
        let mut parts = [IoSliceMut::new(&mut header[..skipped]), IoSliceMut::new(into), IoSliceMut::new(rest)];
        let first = usize::from(!self.has_virtio_header);
        let length = readv(&self.device, &mut parts[first..]).map_err(PortError::of)?;
        Ok(length.saturating_sub(skipped))
    }

    /// The present name of the device, in whatever network namespace it is. `None` if it was deleted.
    pub fn present_name(&self) -> Option<String> {
        let mut request = request("").ok()?;
        control_with(&self.device, libc::TUNGETIFF, &mut request).ok()?;
        Some(name_of(&request))
    }

    /// Sets what the program accepts in frames. Applies to all queues.
    ///
    /// # Errors
    /// `EINVAL` for offloads that the kernel does not know, or that lack partial checksums.
    pub fn set_offloads(&self, offloads: Offloads) -> io::Result<()> {
        control(&self.device, libc::TUNSETOFFLOAD, offloads.bits())
    }

    /// Sets whether the device outlives its last queue.
    ///
    /// # Errors
    /// Those of `ioctl(2)`; `EBADFD` if the device was deleted.
    pub fn set_persistent(&self, is_persistent: bool) -> io::Result<()> {
        control(&self.device, libc::TUNSETPERSIST, is_persistent.into())
    }

    /// Sets the user who may open the device without `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// `EINVAL` for a user who does not exist in the user namespace; `EBADFD` if the device was deleted.
    pub fn set_owner(&self, user: u32) -> io::Result<()> {
        control(&self.device, libc::TUNSETOWNER, user.into())
    }

    /// Sets the group that may open the device without `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// As for [`Tap::set_owner`].
    pub fn set_group(&self, group: u32) -> io::Result<()> {
        control(&self.device, libc::TUNSETGROUP, group.into())
    }

    /// Sets whether the interface has a carrier, as if a cable were plugged in. It has one at first.
    ///
    /// # Errors
    /// `EBADFD` if the device was deleted.
    pub fn set_carrier(&self, is_on: bool) -> io::Result<()> {
        Ok(control_with(&self.device, libc::TUNSETCARRIER, &mut c_int::from(is_on))?)
    }

    /// Limits the bytes of frames that were written and that the host's stack has not yet dealt with. There is no
    /// limit at first.
    ///
    /// # Errors
    /// `EINVAL` for 0; `EBADFD` if the device was deleted.
    pub fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        let mut bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        Ok(control_with(&self.device, libc::TUNSETSNDBUF, &mut bytes)?)
    }

    /// Attaches the queue of a device with several queues, so that the kernel distributes frames to it, or detaches
    /// it. It is attached at first. A detached queue can still write.
    ///
    /// # Errors
    /// `EINVAL` if it is so already, or if the device has one queue.
    pub fn attach(&self, is_attached: bool) -> io::Result<()> {
        let flag = if is_attached { libc::IFF_ATTACH_QUEUE } else { libc::IFF_DETACH_QUEUE };
        let mut request = request("")?;
        request.ifr_ifru.ifru_flags = flag as c_short;
        Ok(control_with(&self.device, libc::TUNSETQUEUE, &mut request)?)
    }
}

/// Readable if there is a frame.
impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Whether the network namespace of the calling thread has an interface of this name, of any kind.
pub fn exists(name: &str) -> bool {
    let Ok(request) = request(name) else { return false };
    // SAFETY: the name ends with a zero.
    unsafe { libc::if_nametoindex(request.ifr_name.as_ptr()) != 0 }
}

/// A request for the interface of a name.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all fields are integers, arrays of integers and pointers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() > MAX_NAME || name.contains(['\0', '/', ' ']) {
        let message =
            format!("{name:?} is no name of an interface: that has 1 to {MAX_NAME} bytes without / and spaces");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

/// The name that the kernel wrote into a request.
fn name_of(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.map(libc::c_char::cast_unsigned);
    CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default().into_owned()
}

fn open_error(options: &TapOptions, error: Errno) -> PortOpenError {
    let usual = match error {
        Errno::BUSY if options.exclusive => "choose another name, or allow a device that exists",
        Errno::BUSY => "another program has the device open: end it, or give the device several queues",
        Errno::INVAL => {
            "an interface of this name exists that is no TAP device, or whose number of queues is another kind; see \
             `ip -d link show NAME`"
        }
        _ => USUAL,
    };
    PortOpenError::at("create or open the TAP device", usual)(error)
}

/// An operation on the device with a number.
fn control(device: &File, operation: libc::Ioctl, argument: c_ulong) -> io::Result<()> {
    // SAFETY: the operations of this module that take a number have no pointers.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), operation, argument) };
    if result < 0 { Err(last_error().into()) } else { Ok(()) }
}

/// An operation on the device with a value in memory, of the type that the operation asks for.
fn control_with<T>(device: &File, operation: libc::Ioctl, argument: &mut T) -> Result<(), Errno> {
    // SAFETY: the argument is valid for the call. The operations of this module with an argument in memory read an int,
    // or read and write a struct ifreq, and are called with these.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), operation, std::ptr::from_mut(argument)) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use bellows_testkit::eventually;
    use bellows_testkit::wait::{Deadline, PATIENCE};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::packet_socket::{Receiver, ReceiverOptions, Sender, SenderOptions};
    use crate::test_net::{frame, gso_packet, in_namespace, index, ip};
    use bellows_sys::wake::sleep_until_readable;

    const ALL: Offloads = Offloads { checksum: true, tso4: true, tso6: true, ecn: true, uso: true };

    fn open(name: &str) -> Tap {
        let tap = Tap::open(&TapOptions { name: name.into(), ..TapOptions::default() }).unwrap();
        ip(&format!("link set {} up", tap.name()));
        tap
    }

    /// Waits for the end of a device whose descriptor was closed: another test may be starting a program, which has a
    /// copy of each descriptor for a moment.
    fn ends(name: &str) {
        eventually("the device ends", || !exists(name));
    }

    /// Waits for a frame that the host sends.
    fn read(tap: &Tap, header: &mut [u8; VIRTIO_HEADER], into: &mut [u8]) -> usize {
        let deadline = Deadline::new("a frame");
        loop {
            deadline.check();
            match tap.read(header, into) {
                Ok(length) => return length,
                Err(PortError::Full) => drop(sleep_until_readable(&[tap.as_fd()], Some(PATIENCE)).unwrap()),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn frames_and_gso_packets_pass_both_ways() {
        in_namespace("frames_and_gso_packets_pass_both_ways", || {
            let tap = open("tap%d");
            assert_eq!(tap.name(), "tap0");
            tap.set_offloads(ALL).unwrap();
            let host = index("tap0");
            let options = ReceiverOptions { virtio_header: true, ..ReceiverOptions::default() };
            let mut receiver = Receiver::open(host, &options).unwrap();
            let options = SenderOptions { virtio_header: true, ..SenderOptions::default() };
            let mut sender = Sender::open(host, &options).unwrap();
            let (mut header, mut bytes) = ([0; VIRTIO_HEADER], vec![0; 70_000]);
            assert!(matches!(tap.read(&mut header, &mut bytes), Err(PortError::Full)));
            let (gso, packet) = gso_packet(65_400);
            let none = [0; VIRTIO_HEADER];
            let small = frame(60, 1);
            for (sent_header, sent) in [(none, &small), (gso, &packet), (none, &frame(1514, 2)), (gso, &packet)] {
                assert_eq!(sender.send([(Some(sent_header), sent.as_slice())]).taken, 1);
                assert_eq!(read(&tap, &mut header, &mut bytes), sent.len());
                assert_eq!((header, &bytes[..sent.len()]), (sent_header, sent.as_slice()));
                tap.write(&sent_header, sent).unwrap();
                eventually("the frame", || receiver.word().load(Relaxed) != 0);
                let mut received = receiver.next_frame().unwrap();
                assert_eq!(received.virtio_header(), Some(sent_header));
                assert_eq!(received.bytes(), sent);
            }
            assert_eq!(sender.send([(None, small.as_slice())]).taken, 1);
            let mut short = [0; 20];
            assert_eq!(read(&tap, &mut header, &mut short), 20, "the rest is lost");
            assert!(matches!(tap.read(&mut header, &mut short), Err(PortError::Full)));
        });
    }

    /// What the program does not accept is finished by the kernel.
    #[test]
    fn without_offloads_frames_are_segmented() {
        in_namespace("without_offloads_frames_are_segmented", || {
            let tap = open("tap0");
            tap.set_offloads(Offloads::default()).unwrap();
            let without_checksum = Offloads { tso4: true, ..Offloads::default() };
            assert_eq!(tap.set_offloads(without_checksum).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            let options = SenderOptions { virtio_header: true, ..SenderOptions::default() };
            let mut sender = Sender::open(index("tap0"), &options).unwrap();
            let mut bypassing = Sender::open(index("tap0"), &SenderOptions { bypass_qdisc: true, ..options }).unwrap();
            let (gso, packet) = gso_packet(4000);
            let sent = bypassing.send([(Some(gso), packet.as_slice())]);
            assert!(sent.taken == 0 && matches!(sent.error, Some(PortError::Dropped)), "{sent:?}");
            assert_eq!(sender.send([(Some(gso), packet.as_slice())]).taken, 1);
            let (mut header, mut bytes) = ([0; VIRTIO_HEADER], vec![0; 70_000]);
            let lengths = [1448, 1448, 4000 - 2 * 1448].map(|data| data + 54);
            for length in lengths {
                assert_eq!(read(&tap, &mut header, &mut bytes), length);
                assert_eq!(header, [0; VIRTIO_HEADER]);
            }
        });
    }

    #[test]
    fn a_device_without_headers_passes_bare_frames() {
        in_namespace("a_device_without_headers_passes_bare_frames", || {
            let options = TapOptions { name: "bare".into(), virtio_header: false, ..TapOptions::default() };
            let tap = Tap::open(&options).unwrap();
            ip("link set bare up");
            let mut sender = Sender::open(index("bare"), &SenderOptions::default()).unwrap();
            let mut receiver = Receiver::open(index("bare"), &ReceiverOptions::default()).unwrap();
            let small = frame(61, 1);
            assert_eq!(sender.send([(None, small.as_slice())]).taken, 1);
            let (mut header, mut bytes) = ([7; VIRTIO_HEADER], [0; 100]);
            assert_eq!(read(&tap, &mut header, &mut bytes), 61);
            assert_eq!((header, &bytes[..61]), ([7; VIRTIO_HEADER], small.as_slice()));
            tap.write(&header, &small).unwrap();
            eventually("the frame", || receiver.word().load(Relaxed) != 0);
            assert_eq!(receiver.next_frame().unwrap().bytes(), small);
        });
    }

    #[test]
    fn a_device_that_is_down_or_deleted_is_reported() {
        in_namespace("a_device_that_is_down_or_deleted_is_reported", || {
            let tap = open("tap0");
            let (mut header, mut bytes, small) = ([0; VIRTIO_HEADER], [0; 100], frame(60, 1));
            let zeros = [0; VIRTIO_HEADER];
            assert!(matches!(tap.write(&zeros, &small[..13]), Err(PortError::Invalid)));
            let impossible = [0, 77, 0, 0, 0, 0, 0, 0, 0, 0];
            assert!(matches!(tap.write(&impossible, &small), Err(PortError::Invalid)));
            ip("link set tap0 down");
            assert!(matches!(tap.write(&zeros, &small), Err(PortError::Down)));
            assert!(matches!(tap.read(&mut header, &mut bytes), Err(PortError::Full)));
            ip("link set tap0 up");
            tap.write(&zeros, &small).unwrap();
            ip("link delete tap0");
            assert!(!exists("tap0"));
            assert_eq!(sleep_until_readable(&[tap.as_fd()], Some(Duration::from_secs(10))).unwrap(), [true]);
            assert!(matches!(tap.write(&zeros, &small), Err(PortError::Gone)));
            assert!(matches!(tap.read(&mut header, &mut bytes), Err(PortError::Gone)));
            assert_eq!(tap.set_carrier(true).unwrap_err().raw_os_error(), Some(libc::EBADFD));
        });
    }

    #[test]
    fn a_device_ends_with_its_queues_unless_it_is_persistent() {
        in_namespace("a_device_ends_with_its_queues_unless_it_is_persistent", || {
            assert!(!exists("tap7") && !exists("a name that is far too long"));
            let tap = open("tap7");
            assert!(exists("tap7"));
            drop(tap);
            ends("tap7");
            let tap = open("tap7");
            tap.set_owner(12_345).unwrap();
            tap.set_group(23_456).unwrap();
            tap.set_persistent(true).unwrap();
            tap.set_send_buffer(1 << 20).unwrap();
            assert!(tap.set_send_buffer(0).is_err());
            let listed = ip("-d link show tap7");
            assert!(listed.contains("user 12345 group 23456"), "{listed}");
            tap.set_carrier(false).unwrap();
            eventually("no carrier", || ip("link show tap7").contains("NO-CARRIER"));
            tap.set_carrier(true).unwrap();
            eventually("a carrier", || ip("link show tap7").contains("LOWER_UP"));
            let options = TapOptions { name: "tap7".into(), ..TapOptions::default() };
            let busy = Tap::open(&options).unwrap_err().to_string();
            assert!(busy.contains("another program"), "{busy}");
            drop(tap);
            assert!(exists("tap7"));
            let exclusive = Tap::open(&TapOptions { exclusive: true, ..options.clone() }).unwrap_err().to_string();
            assert!(exclusive.contains("choose another name"), "{exclusive}");
            let several = Tap::open(&TapOptions { multi_queue: true, ..options.clone() }).unwrap_err().to_string();
            assert!(several.contains("number of queues"), "{several}");
            let mut again = None;
            eventually("nobody has it open", || {
                again = Tap::open(&options).ok();
                again.is_some()
            });
            let tap = again.unwrap();
            tap.set_persistent(false).unwrap();
            drop(tap);
            ends("tap7");
        });
    }

    #[test]
    fn queues_are_attached_and_detached() {
        in_namespace("queues_are_attached_and_detached", || {
            let options = TapOptions { name: "many".into(), multi_queue: true, ..TapOptions::default() };
            let queues = [Tap::open(&options).unwrap(), Tap::open(&options).unwrap()];
            ip("link set many up");
            queues[1].attach(false).unwrap();
            assert!(queues[1].attach(false).is_err(), "it is detached");
            let (mut header, mut bytes, small) = ([0; VIRTIO_HEADER], [0; 100], frame(60, 1));
            queues[1].write(&header, &small).unwrap();
            assert!(matches!(queues[1].read(&mut header, &mut bytes), Err(PortError::Full)));
            let mut sender = Sender::open(index("many"), &SenderOptions::default()).unwrap();
            for _ in 0..10 {
                assert_eq!(sender.send([(None, small.as_slice())]).taken, 1);
                assert_eq!(read(&queues[0], &mut header, &mut bytes), 60, "all frames go to the queue that is left");
            }
            queues[1].attach(true).unwrap();
            queues[1].write(&[0; VIRTIO_HEADER], &small).unwrap();
            drop(queues);
            ends("many");
        });
    }

    #[test]
    fn impossible_devices_are_errors() {
        in_namespace("impossible_devices_are_errors", || {
            let message = |name: &str| {
                Tap::open(&TapOptions { name: name.into(), ..TapOptions::default() }).unwrap_err().to_string()
            };
            assert!(message("a/b").contains("no name of an interface"));
            assert!(message("a name that is far too long").contains("15 bytes"));
            ip("link add other type veth peer name side");
            assert!(message("other").contains("no TAP device"), "{}", message("other"));
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::NET_ADMIN;
            set_capabilities(None, sets).unwrap();
            assert!(message("tap0").contains("CAP_NET_ADMIN"), "{}", message("tap0"));
        });
    }
}
