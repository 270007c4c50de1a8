//! The functions and structures of the shared object: those of `packaging/dpdk/shim.c`, in the same order.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

use bellows_packet::HEADROOM;

/// The version of the table that this file describes.
pub(crate) const VERSION: u32 = 1;

/// The name of the function that returns the table.
pub(crate) const ENTRY: &CStr = c"bellows_dpdk_table";

/// Bytes in front of each mbuf that belong to DPDK's pool.
pub(crate) const OBJECT_HEADER: usize = 64;

/// Distance from one mbuf to the next.
pub(crate) const OBJECT: usize = OBJECT_HEADER + size_of::<Mbuf>();

/// Values of the field `speed` of a link whose speed is unknown.
pub(crate) const UNKNOWN_SPEED: u32 = u32::MAX;

/// The header of a packet buffer (`struct rte_mbuf`).
#[repr(C, align(64))]
pub(crate) struct Mbuf {
    /// The start of the buffer. Never changes.
    pub(crate) buffer: usize,
    pub(crate) buffer_iova: u64,
    /// Where the bytes begin, from the start of the buffer.
    pub(crate) data_offset: u16,
    pub(crate) references: u16,
    pub(crate) segments: u16,
    pub(crate) port: u16,
    pub(crate) offload_flags: u64,
    pub(crate) packet_type: u32,
    /// Length of all segments together, and of this one.
    pub(crate) packet_length: u32,
    pub(crate) data_length: u16,
    pub(crate) vlan: u16,
    pub(crate) hash: [u32; 2],
    pub(crate) outer_vlan: u16,
    pub(crate) buffer_length: u16,
    pub(crate) pool: *mut c_void,
    /// The next segment.
    pub(crate) next: *mut Mbuf,
    pub(crate) rest: [u64; 7],
}

/// Sizes and offsets that DPDK was built with.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) mbuf: u32,
    pub(crate) headroom: u32,
    pub(crate) object_header: u32,
    pub(crate) buf_addr: u32,
    pub(crate) data_off: u32,
    pub(crate) refcnt: u32,
    pub(crate) nb_segs: u32,
    pub(crate) ol_flags: u32,
    pub(crate) pkt_len: u32,
    pub(crate) data_len: u32,
    pub(crate) buf_len: u32,
    pub(crate) pool: u32,
    pub(crate) next: u32,
}

/// Those that this crate is written for.
pub(crate) const LAYOUT: Layout = Layout {
    mbuf: size_of::<Mbuf>() as u32,
    headroom: HEADROOM as u32,
    object_header: OBJECT_HEADER as u32,
    buf_addr: offset_of!(Mbuf, buffer) as u32,
    data_off: offset_of!(Mbuf, data_offset) as u32,
    refcnt: offset_of!(Mbuf, references) as u32,
    nb_segs: offset_of!(Mbuf, segments) as u32,
    ol_flags: offset_of!(Mbuf, offload_flags) as u32,
    pkt_len: offset_of!(Mbuf, packet_length) as u32,
    data_len: offset_of!(Mbuf, data_length) as u32,
    buf_len: offset_of!(Mbuf, buffer_length) as u32,
    pool: offset_of!(Mbuf, pool) as u32,
    next: offset_of!(Mbuf, next) as u32,
};

/// A driver gives mbufs back, or takes some.
pub(crate) type Give = unsafe extern "C" fn(*mut c_void, *const *mut Mbuf, c_uint) -> c_int;
pub(crate) type Take = unsafe extern "C" fn(*mut c_void, *mut *mut Mbuf, c_uint) -> c_int;
pub(crate) type Available = unsafe extern "C" fn(*const c_void) -> c_uint;

/// A pool of mbufs whose buffers are ours.
#[repr(C)]
pub(crate) struct PoolRequest {
    pub(crate) name: *const c_char,
    pub(crate) objects: *mut c_void,
    pub(crate) object_size: u64,
    pub(crate) buffers: u64,
    pub(crate) stride: u64,
    pub(crate) count: u32,
    pub(crate) buffer_length: u32,
    pub(crate) give: Give,
    pub(crate) take: Take,
    pub(crate) available: Available,
}

/// How a port is to be.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortRequest {
    pub(crate) pool: *mut c_void,
    pub(crate) mtu: u32,
    pub(crate) queues: u16,
    pub(crate) descriptors: u16,
    pub(crate) promiscuous: u16,
    pub(crate) data_room: u16,
}

/// What a port is.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortInfo {
    pub(crate) driver: [u8; 64],
    pub(crate) device: [u8; 64],
    pub(crate) bus: [u8; 32],
    pub(crate) step: [u8; 64],
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u16,
    pub(crate) receive_descriptors: u16,
    pub(crate) send_descriptors: u16,
    pub(crate) max_queues: u16,
    pub(crate) scatters: u16,
    pub(crate) gathers: u16,
}

impl Default for PortInfo {
    fn default() -> PortInfo {
        PortInfo {
            driver: [0; 64],
            device: [0; 64],
            bus: [0; 32],
            step: [0; 64],
            mac: [0; 6],
            mtu: 0,
            receive_descriptors: 0,
            send_descriptors: 0,
            max_queues: 0,
            scatters: 0,
            gathers: 0,
        }
    }
}

/// Text in an array that ends with a zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortLink {
    pub(crate) up: u32,
    pub(crate) speed: u32,
}

/// The statistics of a port, since it was started.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortStats {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) missed: u64,
    pub(crate) receive_errors: u64,
    pub(crate) send_errors: u64,
    pub(crate) no_mbuf: u64,
}

pub(crate) type Log = unsafe extern "C" fn(*const c_char, usize);

/// The functions. Those that can fail return 0 or a negative error number.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) release: *const c_char,
    pub(crate) layout: *const Layout,
    pub(crate) start: unsafe extern "C" fn(c_int, *mut *mut c_char, Log) -> c_int,
    pub(crate) error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(crate) iova_is_virtual: unsafe extern "C" fn() -> c_int,
    pub(crate) make_pool: unsafe extern "C" fn(*const PoolRequest, *mut *mut c_void) -> c_int,
    pub(crate) probe: unsafe extern "C" fn(*const c_char, *mut u16) -> c_int,
    pub(crate) map_memory: unsafe extern "C" fn(u16, *mut c_void, usize, usize) -> c_int,
    pub(crate) unmap_memory: unsafe extern "C" fn(u16, *mut c_void, usize) -> c_int,
    pub(crate) inspect_port: unsafe extern "C" fn(u16, *mut PortInfo) -> c_int,
    pub(crate) open_port: unsafe extern "C" fn(u16, *const PortRequest, *mut PortInfo) -> c_int,
    pub(crate) stop_port: unsafe extern "C" fn(u16) -> c_int,
    pub(crate) remove_port: unsafe extern "C" fn(u16) -> c_int,
    pub(crate) get_link: unsafe extern "C" fn(u16, *mut PortLink) -> c_int,
    pub(crate) get_stats: unsafe extern "C" fn(u16, *mut PortStats) -> c_int,
    pub(crate) receive: unsafe extern "C" fn(u16, u16, *mut *mut Mbuf, u16) -> u16,
    pub(crate) transmit: unsafe extern "C" fn(u16, u16, *mut *mut Mbuf, u16) -> u16,
    pub(crate) end: unsafe extern "C" fn(*mut Mbuf),
    pub(crate) part: unsafe extern "C" fn(*mut Mbuf, *mut *const u8, *mut u32) -> *mut Mbuf,
}

// SAFETY: the table and what it points to are constants of a library that is never closed, and its functions may be called
// on any thread.
unsafe impl Sync for Table {}
// SAFETY: as above.
unsafe impl Send for Table {}

impl Table {
    /// The table at this address, if it is one for this crate.
    ///
    /// # Errors
    /// A sentence that says what does not fit.
    ///
    /// # Safety
    /// There is a table of the shared object at the address, of any version, as long as the process lives.
    pub(crate) unsafe fn checked(table: *const Table) -> Result<&'static Table, String> {
        // SAFETY: the first two fields are the same in all versions.
        let (version, size) = unsafe { ((*table).version, (*table).size) };
        if (version, size as usize) != (VERSION, size_of::<Table>()) {
            return Err(format!("it has version {version} of its interface, and this Bellows needs version {VERSION}"));
        }
        // SAFETY: the version says that it has all fields.
        let table = unsafe { &*table };
        // SAFETY: the field points to a constant.
        let layout = unsafe { *table.layout };
        if layout != LAYOUT {
            return Err(format!("DPDK was built with other packet buffers: {layout:?}, and Bellows needs {LAYOUT:?}"));
        }
        Ok(table)
    }

    /// DPDK's name and version.
    pub(crate) fn release(&self) -> String {
        // SAFETY: the field points to a constant text.
        unsafe { CStr::from_ptr(self.release) }.to_string_lossy().into_owned()
    }

    /// An error if the result of a function is one.
    pub(crate) fn result(&self, result: c_int) -> Result<(), String> {
        if result >= 0 {
            return Ok(());
        }
        // SAFETY: the function returns a text that lasts until its next call on this thread.
        let text = unsafe { CStr::from_ptr((self.error_text)(result)) };
        Err(text.to_string_lossy().into_owned())
    }
}

const _: () = assert!(size_of::<Mbuf>() == 128 && OBJECT == 192);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn only_a_table_of_this_version_and_layout_is_taken() {
        let check = |table: Table| {
            // SAFETY: it is a table, and nothing keeps a reference to it that is returned.
            unsafe { Table::checked(&table) }.map(drop)
        };
        assert_eq!(check(fake::table()), Ok(()));
        let error = check(Table { version: 2, ..fake::table() }).unwrap_err();
        assert!(error.contains("version 2"), "{error}");
        assert!(check(Table { size: 8, ..fake::table() }).is_err());
        let layout = Layout { headroom: 256, ..LAYOUT };
        let error = check(Table { layout: &raw const layout, ..fake::table() }).unwrap_err();
        assert!(error.contains("headroom: 256"), "{error}");
    }
}
