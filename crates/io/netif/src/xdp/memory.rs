//! The packet pool as the memory of AF_XDP sockets.
//!
//! All sockets of the process that work alike share one registration, so the kernel locks the pool's pages once. A
//! socket joins through any other one that is bound; when the interfaces of all others are gone, it registers the pool
//! anew.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bellows_netdev::xdp::{BindOptions, METADATA_LENGTH, Memory, PACKET_HEADROOM, Socket};
use bellows_packet::{DATA_ROOM, pool};
use rustix::io::Errno;

use super::TransmitChecksums;

/// What sockets that share a registration have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sharing {
    pub(super) bind: BindOptions,
    pub(super) checksums: TransmitChecksums,
}

/// One registration of the pool.
struct SharedMemory {
    sharing: Sharing,
    /// The sockets that use it. Each is closed as soon as it is not listed here any more, by its queue.
    members: Mutex<Vec<Arc<Socket>>>,
}

impl SharedMemory {
    fn members(&self) -> MutexGuard<'_, Vec<Arc<Socket>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket's place among those that share a registration. When this is dropped, no other socket is shared through it.
pub(super) struct Membership {
    memory: Arc<SharedMemory>,
    socket: Arc<Socket>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.memory.members().retain(|member| !Arc::ptr_eq(member, &self.socket));
    }
}

/// All registrations.
static REGISTERED: Mutex<Vec<Weak<SharedMemory>>> = Mutex::new(Vec::new());

/// Registers the pool as the socket's memory and binds the socket to a queue.
///
/// # Errors
/// Those of [`Socket::register_memory`] and [`Socket::bind`].
pub(super) fn bind(
    socket: &Arc<Socket>,
    interface: u32,
    queue: u32,
    sharing: Sharing,
) -> Result<Membership, BindError> {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    registered.retain(|memory| memory.strong_count() > 0);
    for memory in registered.iter().filter_map(Weak::upgrade).filter(|memory| memory.sharing == sharing) {
        let mut members = memory.members();
        for member in members.iter() {
            match socket.bind_shared(interface, queue, member.as_fd()) {
                Ok(()) => {
                    members.push(Arc::clone(socket));
                    drop(members);
                    return Ok(Membership { memory, socket: Arc::clone(socket) });
                }
                // The socket through which to share is not bound any more.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::BADF) => {}
                // What one driver can do, another one cannot.
                Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => break,
                Err(error) => return Err(BindError::Bind(error)),
            }
        }
    }
    register(socket, sharing.checksums).map_err(BindError::Register)?;
    socket.bind(interface, queue, sharing.bind).map_err(BindError::Bind)?;
    let memory = Arc::new(SharedMemory { sharing, members: Mutex::new(vec![Arc::clone(socket)]) });
    registered.push(Arc::downgrade(&memory));
    Ok(Membership { memory, socket: Arc::clone(socket) })
}

/// The step that failed.
#[derive(Debug)]
pub(super) enum BindError {
    /// The memory could not be registered.
    Register(io::Error),
    /// The socket could not be bound.
    Bind(io::Error),
}

#[expect(unsafe_code, reason = "the kernel gets the memory of packets that nobody has")]
fn register(socket: &Socket, checksums: TransmitChecksums) -> io::Result<()> {
    let area = pool::area();
    let start = NonNull::new(std::ptr::with_exposed_provenance_mut(area.start)).ok_or(io::ErrorKind::OutOfMemory)?;
    let memory = Memory {
        start,
        length: area.length,
        // The kernel leaves some room before a frame; the rest is the data room of a buffer.
        chunk_size: PACKET_HEADROOM + DATA_ROOM as u32,
        headroom: 0,
        unaligned: true,
        tx_metadata_length: if checksums == TransmitChecksums::Off { 0 } else { METADATA_LENGTH },
        software_checksum: checksums == TransmitChecksums::Software,
    };
    // SAFETY: the pool's memory is mapped, readable and writable until the process ends. The rings of the socket, and of
    // those that share the memory, belong to queues, which push the positions of lent buffers alone (`Loans`): neither
    // packets nor free buffers refer to these until the kernel has given them back, or until the socket and all its
    // mappings are gone, before which nobody drops a queue's loans (`XdpBell`). The kernel writes a frame from `PACKET_HEADROOM` bytes behind the address
    // on, which is where the data of the lent buffer begin, and no more bytes than the data room; to send, it reads a
    // packet's bytes and the metadata before them, which lie in the packet's buffer.
    unsafe { socket.register_memory(&memory) }
}
