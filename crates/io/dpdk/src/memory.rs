//! The packet pool as the pool of packet buffers of DPDK's drivers.
//!
//! Each ordinary buffer of the pool has a header of DPDK's (an mbuf) in a table beside the pool, which always describes
//! this buffer. Drivers take free buffers by [`take`] and give them back by [`give`], so their free list is Bellows' pool.
//! What drivers have is on loan.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

use bellows_packet::{DATA_ROOM, HEADROOM, SharedLoans, pool};
use bellows_sys::memory::Reservation;

use crate::table::{Mbuf, OBJECT, OBJECT_HEADER, PoolRequest, Table};

/// Bytes of a buffer for DPDK: from the headroom on.
pub(crate) const BUFFER: usize = HEADROOM + DATA_ROOM;

/// The mbufs of the pool's buffers, and the loans of drivers.
pub(crate) struct Memory {
    /// The headers of the pool's objects, each with its mbuf.
    objects: NonNull<u8>,
    pub(crate) loans: SharedLoans,
    /// DPDK's pool.
    pool: *mut c_void,
    /// Buffers that a driver has given back without having them.
    foreign: AtomicU64,
}

// SAFETY: the table of mbufs and the pool are never unmapped. An mbuf is used by whoever has its buffer: the owner of the
// packet, or the driver.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

/// Made with the first device.
static MEMORY: OnceLock<Memory> = OnceLock::new();

impl Memory {
    /// The memory, which is made at the first call.
    ///
    /// # Errors
    /// A sentence: out of memory, or why DPDK makes no pool.
    pub(crate) fn get(table: &Table) -> Result<&'static Memory, String> {
        static MAKING: Mutex<()> = Mutex::new(());
        let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = MEMORY.get() {
            return Ok(memory);
        }
        pool::ensure().map_err(|error| error.to_string())?;
        let loans = SharedLoans::new();
        let count = loans.buffers();
        let reserved =
            Reservation::new(count * OBJECT).map_err(|error| format!("no memory for DPDK's mbufs: {error}"))?;
        let request = PoolRequest {
            name: c"bellows".as_ptr(),
            objects: reserved.start().as_ptr().cast(),
            object_size: OBJECT as u64,
            buffers: loans.headroom(0) as u64,
            stride: pool::config().stride as u64,
            count: count as u32,
            buffer_length: BUFFER as u32,
            give,
            take,
            available,
        };
        let mut made = ptr::null_mut();
        // SAFETY: the objects are memory of this length, which nobody else uses and which is never unmapped; so are the
        // buffers, whose contents DPDK does not touch here.
        let result = unsafe { (table.make_pool)(&raw const request, &raw mut made) };
        table.result(result).map_err(|error| format!("DPDK makes no pool of packet buffers: {error}"))?;
        let memory = Memory { objects: reserved.start(), loans, pool: made, foreign: AtomicU64::new(0) };
        Ok(MEMORY.get_or_init(|| memory))
    }

    /// DPDK's pool.
    pub(crate) fn pool(&self) -> *mut c_void {
        self.pool
    }

    /// The mbuf of a buffer.
    #[inline(always)]
    pub(crate) fn mbuf(&self, buffer: usize) -> *mut Mbuf {
        debug_assert!(buffer < self.loans.buffers());
        // No address outside of the table is used: numbers of buffers come from the pool, or are checked by the loans.
        self.objects.as_ptr().wrapping_add(buffer * OBJECT + OBJECT_HEADER).cast()
    }

    /// The number of the buffer of an mbuf; of none if it is not in the table.
    #[inline(always)]
    pub(crate) fn buffer(&self, mbuf: *const Mbuf) -> usize {
        (mbuf.addr().wrapping_sub(self.objects.addr().get() + OBJECT_HEADER)) / OBJECT
    }

    /// Number of buffers that drivers have given back without having them.
    pub(crate) fn foreign(&self) -> u64 {
        self.foreign.load(Relaxed)
    }

    /// Records buffers that came back without being lent.
    #[cold]
    pub(crate) fn note_foreign(&self, count: usize) {
        self.foreign.fetch_add(count as u64, Relaxed);
    }
}

/// A driver takes free buffers: all that it asks for, or none.
///
/// Called on a worker within a burst, and on control threads.
unsafe extern "C" fn take(_pool: *mut c_void, mbufs: *mut *mut Mbuf, count: c_uint) -> c_int {
    let Some(memory) = MEMORY.get() else { return -libc::ENOENT };
    // SAFETY: the driver passes an array of this length.
    let mbufs = unsafe { slice::from_raw_parts_mut(mbufs.cast::<MaybeUninit<*mut Mbuf>>(), count as usize) };
    let mut slots = mbufs.iter_mut();
    let lent = memory.loans.lend(count as usize, |buffer| {
        if let Some(slot) = slots.next() {
            slot.write(memory.mbuf(buffer));
        }
    });
    if lent == count as usize {
        return 0;
    }
    // SAFETY: these slots were written above.
    let lent = mbufs[..lent].iter().map(|mbuf| memory.buffer(unsafe { mbuf.assume_init() }));
    // SAFETY: the driver does not get them.
    unsafe { memory.loans.end(lent) };
    -libc::ENOBUFS
}

/// A driver gives buffers back.
unsafe extern "C" fn give(_pool: *mut c_void, mbufs: *const *mut Mbuf, count: c_uint) -> c_int {
    let Some(memory) = MEMORY.get() else { return -libc::ENOENT };
    // SAFETY: the driver passes an array of this length.
    let mbufs = unsafe { slice::from_raw_parts(mbufs, count as usize) };
    // SAFETY: the driver gives them up, once.
    let foreign = unsafe { memory.loans.end(mbufs.iter().map(|&mbuf| memory.buffer(mbuf))) };
    if foreign > 0 {
        memory.note_foreign(foreign);
    }
    0
}

/// Number of free buffers, roughly.
unsafe extern "C" fn available(_pool: *const c_void) -> c_uint {
    let usage = pool::usage();
    usage.packets.saturating_sub(usage.in_use + usage.lent) as c_uint
}
