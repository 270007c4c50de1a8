//! AF_XDP sockets: frames between a receive queue of a network interface and the memory of this process.
//!
//! The process registers memory ([`Socket::register_memory`]) and gives chunks of it to the kernel through the fill
//! ring; frames come out of the receive ring. Frames to send go into the transmit ring, and their chunks come back out of
//! the completion ring. An XDP program of the interface has to give frames to the socket (see [`bpf`](crate::bpf)).
//!
//! A socket is closed when it *and its four rings* are dropped, because a mapped ring keeps it open. The kernel never
//! gives back the chunks in its rings. They belong to the process again when the socket is closed; without a copy, when
//! the queue can be bound again.
//!
//! A socket whose interface is deleted is of no more use ([`Kick::Gone`]). Nothing wakes a process that sleeps on it, so
//! interfaces have to be watched in another way. A socket for a new interface shares the memory of another that is still
//! bound, or registers it again.
//!
//! # Sources
//!
//! Linux, `Documentation/networking/af_xdp.rst`, `include/uapi/linux/if_xdp.h`, `net/xdp/xsk.c`; `socket(7)`.

mod copies;
mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg, xdp_mmap_offsets, xdp_options, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XSK_UNALIGNED_BUF_ADDR_MASK,
    XSK_UNALIGNED_BUF_OFFSET_SHIFT, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

pub use copies::{CHUNK, CopyMemory};
pub use ring::{CompletionRing, Descriptor, FillRing, METADATA, MORE, RxCounts, RxRing, TxRing};

/// The offset in the registered memory that an address of a ring stands for.
///
/// With unaligned chunks the kernel reports where a frame begins as the offset that was pushed to the fill ring in the
/// low 48 bits, and the distance from there to the first byte in the upper 16. Otherwise an address is the offset.
#[inline]
pub fn position(address: u64) -> u64 {
    (address & XSK_UNALIGNED_BUF_ADDR_MASK) + (address >> XSK_UNALIGNED_BUF_OFFSET_SHIFT)
}

/// Numbers of entries of a socket's rings: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Chunks to receive into.
    pub fill: u32,
    /// Chunks that were sent.
    pub completion: u32,
    /// Frames received, or parts of frames.
    pub rx: u32,
    /// Frames to send, or parts of frames.
    pub tx: u32,
}

impl Default for RingSizes {
    /// 2,048 each.
    fn default() -> RingSizes {
        RingSizes { fill: 2048, completion: 2048, rx: 2048, tx: 2048 }
    }
}

/// The rings of a socket. Each can be used on a thread of its own.
#[derive(Debug)]
pub struct Rings {
    /// Chunks to receive into.
    pub fill: FillRing,
    /// Chunks that were sent.
    pub completion: CompletionRing,
    /// Frames received.
    pub rx: RxRing,
    /// Frames to send.
    pub tx: TxRing,
}

/// Memory to register, and how it is used.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The first byte, at the start of a page.
    pub start: NonNull<u8>,
    /// Length in bytes.
    pub length: usize,
    /// Bytes of a chunk: at least 2,048, at most a page; a power of two unless chunks are unaligned.
    pub chunk_size: u32,
    /// Bytes that the kernel leaves free before a frame that it receives, besides the 256 of XDP.
    pub headroom: u32,
    /// Chunks may begin anywhere, and have any size.
    pub unaligned: bool,
    /// Bytes of metadata before each frame to send, 0 for none: a multiple of 8 below 256 (Linux 6.8).
    pub tx_metadata_length: u32,
    /// The kernel computes the checksums that metadata asks for itself, in copy mode (Linux 6.8).
    pub software_checksum: bool,
}

/// Bytes that XDP keeps free before a frame, besides [`Memory::headroom`]: `XDP_PACKET_HEADROOM`.
pub const PACKET_HEADROOM: u32 = 256;

/// The bytes of metadata that [`checksum_request`] needs: a value for [`Memory::tx_metadata_length`].
pub const METADATA_LENGTH: u32 = 16;

/// The metadata that asks for a checksum: `struct xsk_tx_metadata`. It stands directly before the frame's first byte, and
/// the descriptor has the option [`METADATA`].
///
/// The ones' complement sum of the frame's bytes from `start` on is stored, inverted, at `start + offset`, where the sum
/// of the pseudo-header must be before.
pub fn checksum_request(start: u16, offset: u16) -> [u8; METADATA_LENGTH as usize] {
    const CHECKSUM: u64 = 1 << 1;
    let mut request = [0; METADATA_LENGTH as usize];
    request[..8].copy_from_slice(&CHECKSUM.to_ne_bytes());
    request[8..10].copy_from_slice(&start.to_ne_bytes());
    request[10..12].copy_from_slice(&offset.to_ne_bytes());
    request
}

/// How frames come from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// Without a copy if the driver can do that.
    #[default]
    Auto,
    /// With a copy.
    Copy,
    /// Without a copy, or not at all.
    ZeroCopy,
}

/// The options of [`Socket::bind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindOptions {
    /// How frames come from the driver.
    pub copy: CopyMode,
    /// The kernel says in the rings when it has to be woken, and need not be otherwise.
    pub need_wakeup: bool,
    /// Frames may have several descriptors (Linux 6.6).
    pub multi_buffer: bool,
}

/// The kernel's counts of a socket. It does not count entries of the fill ring that are no chunk, which it skips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames dropped for other reasons than those below: larger than a chunk, for one.
    pub rx_dropped: u64,
    /// Frames to send with an invalid descriptor.
    pub tx_invalid: u64,
    /// Frames dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Times that the fill ring was empty when a frame came.
    pub fill_ring_empty: u64,
    /// Times that the kernel found nothing to send.
    pub tx_ring_empty: u64,
}

/// What came of telling the kernel to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// The kernel has done what there was to do.
    Done,
    /// There is more to do, or no room to do it now: kick again, later (`EAGAIN`, `EBUSY`, `ENOBUFS`).
    Again,
    /// The interface is down (`ENETDOWN`). The socket works again when it is up.
    Down,
    /// The socket is not bound: its interface is gone (`ENXIO`). It never works again.
    Gone,
}

/// An AF_XDP socket.
///
/// Readable for `poll(2)` if there is an entry in the receive ring, writable if there is room in the transmit ring. In
/// copy mode, `poll(2)` also sends what is in the transmit ring.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Socket {
    /// Makes a socket with its rings.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `EAFNOSUPPORT` if the kernel has no AF_XDP; `EINVAL` for a size that is not a
    /// power of two; `ENOMEM`; `EMFILE` without free descriptors.
    pub fn new(sizes: RingSizes) -> io::Result<(Socket, Rings)> {
        let descriptor = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let socket = descriptor.as_fd();
        set_xdp_umem_fill_ring_size(socket, sizes.fill)?;
        set_xdp_umem_completion_ring_size(socket, sizes.completion)?;
        set_xdp_rx_ring_size(socket, sizes.rx)?;
        set_xdp_tx_ring_size(socket, sizes.tx)?;
        let offsets = xdp_mmap_offsets(socket)?;
        let rings = Rings {
            fill: FillRing::map(socket, offsets.fr, sizes.fill)?,
            completion: CompletionRing::map(socket, offsets.cr, sizes.completion)?,
            rx: RxRing::map(socket, offsets.rx, sizes.rx)?,
            tx: TxRing::map(socket, offsets.tx, sizes.tx)?,
        };
        Ok((Socket { descriptor }, rings))
    }

    /// Registers the memory of this socket, and of those that [share](Socket::bind_shared) it, which need no memory of
    /// their own. The kernel locks it, and unlocks it when all of them are closed.
    ///
    /// # Errors
    /// `ENOBUFS` if the memory exceeds the limit of locked memory (`ulimit -l`, `RLIMIT_MEMLOCK`) of a process without
    /// `CAP_IPC_LOCK`; `EINVAL` for a start, length or size that [`Memory`] does not allow, or an option that the kernel
    /// does not know; `EFAULT` and `ENOMEM` if it cannot be locked; `EBUSY` if the socket has memory.
    ///
    /// # Safety
    /// From now on until all those sockets and their rings are dropped, the safe functions of the rings make the kernel
    /// write to any part of the memory (the chunks pushed to a [`FillRing`]) and read any part (the frames pushed to a
    /// [`TxRing`]), at any time between pushing and the end of all those sockets. So the memory must be mapped, readable
    /// and writable for all that time, and whoever has the rings must push only chunks that no reference of the program
    /// points into, until the kernel has given them back through the [`RxRing`] or the [`CompletionRing`].
    pub unsafe fn register_memory(&self, memory: &Memory) -> io::Result<()> {
        const SOFTWARE_CHECKSUM: u32 = 1 << 1;
        /// Without it, kernels from 6.11 on ignore the length.
        const METADATA_LENGTH: u32 = 1 << 2;
        let flags = [
            (memory.unaligned, XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG.bits()),
            (memory.software_checksum, SOFTWARE_CHECKSUM),
            (memory.tx_metadata_length != 0, METADATA_LENGTH),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
        set_xdp_umem_reg(
            &self.descriptor,
            XdpUmemReg {
                addr: memory.start.as_ptr().expose_provenance() as u64,
                len: memory.length as u64,
                chunk_size: memory.chunk_size,
                headroom: memory.headroom,
                flags: XdpUmemRegFlags::from_bits_retain(flags),
                tx_metadata_len: memory.tx_metadata_length,
            },
        )?;
        Ok(())
    }

    /// Binds the socket, with registered memory, to a receive and transmit queue of an interface.
    ///
    /// # Errors
    /// `EBUSY` if another socket is bound to the queue, or was until a moment ago (15 to 40 ms on an idle system: try
    /// again), or if this socket was ever bound; `ENODEV` if there is no such interface; `EINVAL` if there is no such
    /// queue, or if the kernel does not know an option; `EOPNOTSUPP` if the driver cannot do without a copy, or cannot
    /// send several buffers without one.
    pub fn bind(&self, interface: u32, queue: u32, options: BindOptions) -> io::Result<()> {
        let mut flags = match options.copy {
            CopyMode::Auto => SocketAddrXdpFlags::empty(),
            CopyMode::Copy => SocketAddrXdpFlags::XDP_COPY,
            CopyMode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
        flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, options.need_wakeup);
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, options.multi_buffer);
        Ok(bind(&self.descriptor, &SocketAddrXdp::new(flags, interface, queue))?)
    }

    /// Binds the socket, without memory of its own, to another queue or interface than `owner`, whose memory and
    /// [`BindOptions`] it takes on: any socket that is bound and uses the memory.
    ///
    /// # Errors
    /// As for [`Socket::bind`]; `EBADF` if the owner is not bound, or no longer because its interface is gone.
    pub fn bind_shared(&self, interface: u32, queue: u32, owner: BorrowedFd<'_>) -> io::Result<()> {
        let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface, queue);
        Ok(bind(&self.descriptor, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: owner })?)
    }

    /// Tells the kernel to send what is in the transmit ring. In copy mode, it sends in this call, a limited number of
    /// frames (see [`Socket::limit_sends`]). A frame of more than 18 descriptors is dropped, as is one whose descriptor
    /// is invalid: both are counted, and their chunks come back.
    ///
    /// # Errors
    /// Others than those of [`Kick`].
    pub fn kick(&self) -> io::Result<Kick> {
        outcome(send(&self.descriptor, &[], SendFlags::DONTWAIT))
    }

    /// Tells the kernel to receive: wakes the driver if the fill ring [asks for it](FillRing::needs_wakeup), and polls
    /// the interface if [busy polling](Socket::poll_busily) is on.
    ///
    /// # Errors
    /// Others than those of [`Kick`].
    pub fn wake(&self) -> io::Result<Kick> {
        outcome(recv(&self.descriptor, &mut [0; 0], RecvFlags::DONTWAIT).map(|(_, length)| length))
    }

    /// Makes the calls of this process poll the interface, for at most `budget` frames a call, and the interface raise
    /// no interrupts while they do. `microseconds`: how long a call of `poll(2)` or a wait may poll; 0 switches it off.
    ///
    /// The interface's settings `napi_defer_hard_irqs` and `gro_flush_timeout` must allow it.
    ///
    /// # Errors
    /// `EPERM` for more than the system's defaults without `CAP_NET_ADMIN`; `ENOPROTOOPT` before Linux 5.11; `EINVAL`
    /// for a number that is too large.
    pub fn poll_busily(&self, microseconds: u32, budget: u16) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, (microseconds != 0).into())?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, budget.into())
    }

    /// Limits the number of frames that one [`Socket::kick`] sends in copy mode. The default is 32.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if the kernel cannot change it (before Linux 6.18); `EACCES` for 0, or more than the transmit ring
    /// has entries.
    pub fn limit_sends(&self, frames: u32) -> io::Result<()> {
        const MAX_TX_SKB_BUDGET: libc::c_int = 9;
        self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, frames)
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: u32) -> io::Result<()> {
        let length = size_of::<u32>() as libc::socklen_t;
        // SAFETY: the kernel reads 4 bytes of the value, which outlives the call.
        let result = unsafe {
            let value = (&raw const value).cast();
            libc::setsockopt(self.descriptor.as_raw_fd(), level, name, value, length)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The kernel's counts.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let counts = xdp_statistics(&self.descriptor)?;
        Ok(Statistics {
            rx_dropped: counts.rx_dropped,
            tx_invalid: counts.tx_invalid_descs,
            rx_ring_full: counts.rx_ring_full.unwrap_or(0),
            fill_ring_empty: counts.rx_fill_ring_empty_descs.unwrap_or(0),
            tx_ring_empty: counts.tx_ring_empty_descs.unwrap_or(0),
        })
    }

    /// Whether frames come without a copy, once the socket is bound.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        Ok(xdp_options(&self.descriptor)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }
}

fn outcome(result: rustix::io::Result<usize>) -> io::Result<Kick> {
    match result {
        Ok(_) => Ok(Kick::Done),
        Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => Ok(Kick::Again),
        Err(Errno::NETDOWN) => Ok(Kick::Down),
        Err(Errno::NXIO) => Ok(Kick::Gone),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod lab;
#[cfg(test)]
mod tests;
