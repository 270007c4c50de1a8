//! A DPDK for tests: its table, with one driver that sends each packet to itself.
//!
//! The driver does what real ones may: it takes a part of a burst, moves frames within their buffers, divides them into
//! several, or gives them out in buffers of its own.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bellows_packet::HEADROOM;

use crate::memory::BUFFER;
use crate::table::{
    Give, LAYOUT, Log, Mbuf, OBJECT, OBJECT_HEADER, PoolRequest, PortInfo, PortLink, PortRequest, PortStats, Table,
    Take, VERSION,
};

/// What the driver does with the next packet that it sends to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nothing.
    AsItIs,
    /// The frame moves to another offset of its buffer.
    Moved(usize),
    /// The frame arrives in segments of at most this many bytes.
    Divided(usize),
    /// The frame arrives in a buffer that is not of the pool.
    Foreign,
    /// The packet is lost: its buffer goes back.
    Lost,
}

/// Ports, and the pool's functions.
#[derive(Default)]
pub(crate) struct Fake {
    pool: Option<FakePool>,
    pub(crate) ports: HashMap<u16, FakePort>,
}

struct FakePool {
    address: usize,
    give: Give,
    take: Take,
}

#[derive(Default)]
pub(crate) struct FakePort {
    waiting: VecDeque<usize>,
    pub(crate) ways: VecDeque<Way>,
    /// Packets that are taken of the next bursts.
    pub(crate) accepts: usize,
    pub(crate) mtu: u16,
    pub(crate) down: bool,
    pub(crate) stats: PortStats,
}

static FAKE: Mutex<Option<Fake>> = Mutex::new(None);

/// Works with the fake.
pub(crate) fn with<T>(work: impl FnOnce(&mut Fake) -> T) -> T {
    let mut fake: MutexGuard<'_, Option<Fake>> = FAKE.lock().unwrap_or_else(PoisonError::into_inner);
    work(fake.get_or_insert_default())
}

/// A marker in the field `port` of mbufs that were allocated here.
const FOREIGN: u16 = 0xfefe;

impl Fake {
    fn take(&self) -> Option<*mut Mbuf> {
        let pool = self.pool.as_ref()?;
        let mut mbuf = ptr::null_mut();
        // SAFETY: one place for one mbuf.
        let result = unsafe { (pool.take)(ptr::with_exposed_provenance_mut(pool.address), &raw mut mbuf, 1) };
        (result == 0).then_some(mbuf)
    }

    fn give(&self, mbuf: *mut Mbuf) {
        if let Some(pool) = &self.pool {
            // SAFETY: an mbuf of the pool that nobody uses any more.
            unsafe { (pool.give)(ptr::with_exposed_provenance_mut(pool.address), &raw const mbuf, 1) };
        }
    }

    /// Ends an mbuf and those behind it, as `rte_pktmbuf_free` does.
    fn end(&self, mut mbuf: *mut Mbuf) {
        while !mbuf.is_null() {
            // SAFETY: the mbufs of the fake's queues and callers are valid.
            let one = unsafe { &mut *mbuf };
            let next = std::mem::replace(&mut one.next, ptr::null_mut());
            one.segments = 1;
            if one.port == FOREIGN {
                // SAFETY: made by `foreign` below.
                unsafe {
                    drop(Vec::from_raw_parts(ptr::with_exposed_provenance_mut::<u8>(one.buffer), 0, BUFFER));
                    drop(Box::from_raw(mbuf));
                }
            } else {
                self.give(mbuf);
            }
            mbuf = next;
        }
    }
}

fn bytes_of(mut mbuf: *const Mbuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !mbuf.is_null() {
        // SAFETY: the segments of a packet that was sent, in valid buffers.
        unsafe {
            let start = ptr::with_exposed_provenance::<u8>((*mbuf).buffer + usize::from((*mbuf).data_offset));
            bytes.extend_from_slice(std::slice::from_raw_parts(start, (*mbuf).data_length.into()));
            mbuf = (*mbuf).next;
        }
    }
    bytes
}

/// Writes bytes into an mbuf of one segment.
fn fill(mbuf: *mut Mbuf, offset: usize, bytes: &[u8]) {
    // SAFETY: the mbuf's buffer has room for them, and is the fake's.
    unsafe {
        let start = ptr::with_exposed_provenance_mut::<u8>((*mbuf).buffer + offset);
        ptr::copy(bytes.as_ptr(), start, bytes.len());
        (*mbuf).data_offset = offset as u16;
        (*mbuf).data_length = bytes.len() as u16;
        (*mbuf).packet_length = bytes.len() as u32;
    }
}

fn foreign(bytes: &[u8]) -> *mut Mbuf {
    let buffer = Vec::<u8>::with_capacity(BUFFER).leak().as_mut_ptr();
    let mbuf = Mbuf {
        buffer: buffer.expose_provenance(),
        buffer_iova: 0,
        data_offset: 0,
        references: 1,
        segments: 1,
        port: FOREIGN,
        offload_flags: 0,
        packet_type: 0,
        packet_length: 0,
        data_length: 0,
        vlan: 0,
        hash: [0; 2],
        outer_vlan: 0,
        buffer_length: BUFFER as u16,
        pool: ptr::null_mut(),
        next: ptr::null_mut(),
        rest: [0; 7],
    };
    let mbuf = Box::into_raw(Box::new(mbuf));
    fill(mbuf, HEADROOM, bytes);
    mbuf
}

unsafe extern "C" fn start(_: c_int, _: *mut *mut c_char, _: Log) -> c_int {
    0
}

unsafe extern "C" fn error_text(error: c_int) -> *const c_char {
    let text: &CStr = if error == -libc::ENODEV { c"No such device" } else { c"failed" };
    text.as_ptr()
}

unsafe extern "C" fn iova_is_virtual() -> c_int {
    1
}

unsafe extern "C" fn make_pool(request: *const PoolRequest, made: *mut *mut c_void) -> c_int {
    // SAFETY: the caller passes a request whose objects are memory of this length.
    unsafe {
        let request = &*request;
        let address = request.objects.expose_provenance();
        for index in 0..request.count as usize {
            let mbuf: *mut Mbuf = request.objects.byte_add(index * OBJECT + OBJECT_HEADER).cast();
            (*mbuf).buffer = request.buffers as usize + index * request.stride as usize;
            (*mbuf).references = 1;
            (*mbuf).segments = 1;
            (*mbuf).buffer_length = request.buffer_length as u16;
            (*mbuf).pool = request.objects;
        }
        made.write(request.objects);
        with(|fake| fake.pool = Some(FakePool { address, give: request.give, take: request.take }));
    }
    0
}

/// The number of the port is that at the end of the device's name; other devices do not exist.
unsafe extern "C" fn probe(device: *const c_char, port: *mut u16) -> c_int {
    // SAFETY: the caller passes a text and a place.
    let (name, port) = unsafe { (CStr::from_ptr(device).to_string_lossy(), &mut *port) };
    let Some(Ok(number)) = name.strip_prefix("fake").map(str::parse) else { return -libc::ENODEV };
    *port = number;
    with(|fake| match fake.ports.contains_key(&number) {
        true => -libc::EEXIST,
        false => {
            let port = FakePort { accepts: usize::MAX, mtu: 1_500, ..FakePort::default() };
            fake.ports.insert(number, port);
            0
        }
    })
}

unsafe extern "C" fn map_memory(_: u16, _: *mut c_void, _: usize, _: usize) -> c_int {
    0
}

unsafe extern "C" fn unmap_memory(_: u16, _: *mut c_void, _: usize) -> c_int {
    0
}

unsafe extern "C" fn inspect_port(_: u16, info: *mut PortInfo) -> c_int {
    // SAFETY: the caller passes a place.
    let info = unsafe { &mut *info };
    info.driver[..8].copy_from_slice(b"net_fake");
    info.bus[..4].copy_from_slice(b"vdev");
    info.max_queues = 4;
    0
}

unsafe extern "C" fn open_port(port: u16, request: *const PortRequest, info: *mut PortInfo) -> c_int {
    // SAFETY: the caller passes a request and a place.
    let (request, info) = unsafe { (&*request, &mut *info) };
    if request.descriptors == 13 {
        info.step[..8].copy_from_slice(b"start it");
        return -libc::EIO;
    }
    with(|fake| {
        let Some(port) = fake.ports.get_mut(&port) else { return -libc::ENODEV };
        if request.mtu > 0 {
            port.mtu = request.mtu as u16;
        }
        info.mtu = port.mtu;
        (info.scatters, info.gathers) = (1, 1);
        (info.receive_descriptors, info.send_descriptors) = (request.descriptors, request.descriptors);
        0
    })
}

unsafe extern "C" fn stop_port(_: u16) -> c_int {
    0
}

unsafe extern "C" fn remove_port(port: u16) -> c_int {
    let Some(port) = with(|fake| fake.ports.remove(&port)) else { return -libc::ENODEV };
    with(|fake| port.waiting.iter().for_each(|&mbuf| fake.end(ptr::with_exposed_provenance_mut(mbuf))));
    0
}

unsafe extern "C" fn get_link(port: u16, link: *mut PortLink) -> c_int {
    let up = with(|fake| fake.ports.get(&port).is_some_and(|port| !port.down));
    // SAFETY: the caller passes a place.
    unsafe { link.write(PortLink { up: up.into(), speed: 10_000 }) };
    0
}

unsafe extern "C" fn get_stats(port: u16, stats: *mut PortStats) -> c_int {
    let now = with(|fake| fake.ports.get(&port).map(|port| port.stats).unwrap_or_default());
    // SAFETY: the caller passes a place.
    unsafe { stats.write(now) };
    0
}

unsafe extern "C" fn receive(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16 {
    if queue > 0 {
        return 0;
    }
    with(|fake| {
        let Some(port) = fake.ports.get_mut(&port) else { return 0 };
        let count = port.waiting.len().min(count.into());
        for (index, mbuf) in port.waiting.drain(..count).enumerate() {
            // SAFETY: the caller passes an array of the length that it names.
            unsafe { mbufs.add(index).write(ptr::with_exposed_provenance_mut(mbuf)) };
        }
        count as u16
    })
}

unsafe extern "C" fn transmit(port: u16, _: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16 {
    // SAFETY: the caller passes an array of this length.
    let mbufs = unsafe { std::slice::from_raw_parts(mbufs, count.into()) };
    with(|fake| {
        let Some(accepts) = fake.ports.get(&port).map(|port| port.accepts) else { return 0 };
        let count = mbufs.len().min(accepts);
        let mut arrived = Vec::new();
        for &mbuf in &mbufs[..count] {
            let way = fake.ports.get_mut(&port).and_then(|port| port.ways.pop_front()).unwrap_or(Way::AsItIs);
            let bytes = bytes_of(mbuf);
            match way {
                Way::AsItIs => arrived.push(mbuf),
                Way::Lost => fake.end(mbuf),
                Way::Foreign if bytes.len() <= BUFFER - HEADROOM => {
                    fake.end(mbuf);
                    arrived.push(foreign(&bytes));
                }
                // SAFETY: the mbuf was just sent.
                Way::Moved(offset) if unsafe { (*mbuf).segments } == 1 && offset + bytes.len() <= BUFFER => {
                    fill(mbuf, offset, &bytes);
                    arrived.push(mbuf);
                }
                Way::Divided(length) => {
                    let parts: Option<Vec<*mut Mbuf>> = bytes.chunks(length).map(|_| fake.take()).collect();
                    fake.end(mbuf);
                    let mut parts = parts.unwrap();
                    for (index, part) in bytes.chunks(length).enumerate() {
                        fill(parts[index], HEADROOM, part);
                        // SAFETY: just taken.
                        unsafe {
                            let next = parts.get(index + 1).copied().unwrap_or(ptr::null_mut());
                            (*parts[index]).next = next
                        };
                    }
                    // SAFETY: as above; a packet has bytes, so there is a first part.
                    unsafe {
                        (*parts[0]).segments = parts.len() as u16;
                        (*parts[0]).packet_length = bytes.len() as u32;
                    }
                    arrived.push(parts[0]);
                }
                Way::Foreign | Way::Moved(_) => arrived.push(mbuf),
            }
        }
        if let Some(port) = fake.ports.get_mut(&port) {
            port.accepts -= count;
            port.waiting.extend(arrived.iter().map(|mbuf| mbuf.expose_provenance()));
        }
        count as u16
    })
}

unsafe extern "C" fn end(mbuf: *mut Mbuf) {
    with(|fake| fake.end(mbuf));
}

unsafe extern "C" fn part(mbuf: *mut Mbuf, bytes: *mut *const u8, length: *mut u32) -> *mut Mbuf {
    // SAFETY: the caller passes an mbuf of a frame, and places.
    unsafe {
        bytes.write(ptr::with_exposed_provenance((*mbuf).buffer + usize::from((*mbuf).data_offset)));
        length.write((*mbuf).data_length.into());
        (*mbuf).next
    }
}

/// Its table.
pub(crate) const fn table() -> Table {
    Table {
        version: VERSION,
        size: size_of::<Table>() as u32,
        release: c"DPDK 0.0.0".as_ptr(),
        layout: &LAYOUT,
        start,
        error_text,
        iova_is_virtual,
        make_pool,
        probe,
        map_memory,
        unmap_memory,
        inspect_port,
        open_port,
        stop_port,
        remove_port,
        get_link,
        get_stats,
        receive,
        transmit,
        end,
        part,
    }
}

/// The same, forever.
pub(crate) static TABLE: Table = table();
