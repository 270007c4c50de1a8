//! A device with its port: made, configured, started, and removed when the last queue is dropped.

use std::collections::BTreeSet;
use std::ffi::{CString, c_int};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bellows_netif::OpenError;
use bellows_packet::{DATA_ROOM, pool, return_free_buffers};
use tracing::warn;

use crate::environment::{Environment, collect};
use crate::memory::Memory;
use crate::source::DpdkConfig;
use crate::table::{Mbuf, PortInfo, PortLink, PortRequest, PortStats, Table, text};

/// The devices that are open, by their names. Held while one is made or removed.
static DEVICES: Mutex<Devices> = Mutex::new(Devices { open: Vec::new(), present: 0 });

struct Devices {
    open: Vec<(String, Weak<Device>)>,
    /// Number of those that a driver has, also of some that could not be removed.
    present: usize,
}

fn devices() -> MutexGuard<'static, Devices> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frames of a queue that are dropped before the device is stopped: what a device that sends to itself holds.
const MAX_DRAINED: usize = 4_096;

/// A device. Dropping it stops and removes it.
pub(crate) struct Device {
    pub(crate) table: &'static Table,
    pub(crate) memory: &'static Memory,
    pub(crate) port: u16,
    pub(crate) properties: Properties,
    config: DpdkConfig,
    queues: u16,
    /// Whether the device may reach the packet pool.
    is_mapped: bool,
    /// The numbers of the queues that are in use.
    used: Mutex<BTreeSet<u16>>,
    stats: [AtomicU64; 4],
}

/// What a device is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) driver: String,
    pub(crate) mac: [u8; 6],
    /// In bytes, without the Ethernet header.
    pub(crate) mtu: u16,
    pub(crate) receive_descriptors: u16,
    pub(crate) send_descriptors: u16,
    /// Whether frames may arrive in several buffers, and be sent from several.
    pub(crate) scatters: bool,
    pub(crate) gathers: bool,
}

impl From<&PortInfo> for Properties {
    fn from(info: &PortInfo) -> Properties {
        Properties {
            driver: text(&info.driver),
            mac: info.mac,
            mtu: info.mtu,
            receive_descriptors: info.receive_descriptors,
            send_descriptors: info.send_descriptors,
            scatters: info.scatters != 0,
            gathers: info.gathers != 0,
        }
    }
}

/// The name of the device with these arguments.
pub(crate) fn name_of(device: &str) -> &str {
    device.split(',').next().unwrap_or_default()
}

impl Device {
    /// The device of a configuration: made, or found if another app has opened it.
    ///
    /// # Errors
    /// Why it cannot be opened. Nothing is left of the attempt.
    pub(crate) fn open(environment: Environment, config: &DpdkConfig) -> Result<Arc<Device>, OpenError> {
        let mut devices = devices();
        let name = name_of(&config.device).to_owned();
        devices.open.retain(|(_, device)| device.strong_count() > 0);
        if let Some(device) = devices.open.iter().find(|(other, _)| *other == name).and_then(|(_, open)| open.upgrade())
        {
            // Dropping it takes the lock.
            drop(devices);
            return match device.config.is_shared_with(config) {
                true => Ok(device),
                false => Err(OpenError::Busy(format!("another app has {name} open with other settings"))),
            };
        }
        let device = Arc::new(Device::make(environment, config, &mut devices)?);
        devices.open.push((name, Arc::downgrade(&device)));
        Ok(device)
    }

    fn make(environment: Environment, config: &DpdkConfig, devices: &mut Devices) -> Result<Device, OpenError> {
        let Environment { table, memory, .. } = environment;
        let failed = |what: &str, error: String, said: String| {
            OpenError::Failed(format!("DPDK cannot {what} {}: {error}{said}", name_of(&config.device)))
        };
        let arguments = CString::new(config.device.as_str());
        let arguments = arguments.map_err(|_| OpenError::Failed("its name has a zero byte".to_owned()))?;
        let mut port = 0;
        // SAFETY: a text, and a place for the number.
        let (result, said) = collect(|| unsafe { (table.probe)(arguments.as_ptr(), &raw mut port) });
        if result == -libc::EEXIST {
            return Err(OpenError::Busy(format!("DPDK still has a device {}", name_of(&config.device))));
        }
        table.result(result).map_err(|error| failed("make the device", error, said))?;
        devices.present += 1;
        let queues = config.device_queues();
        match Device::start(environment, config, port, queues) {
            Ok((info, is_mapped)) => Ok(Device {
                table,
                memory,
                port,
                properties: Properties::from(&info),
                config: config.clone(),
                queues,
                is_mapped,
                used: Mutex::new(BTreeSet::new()),
                stats: [const { AtomicU64::new(0) }; 4],
            }),
            Err(error) => {
                remove(table, port, devices);
                Err(error)
            }
        }
    }

    /// Starts the port of a device. Returns what it is, and whether it was given the packet pool.
    fn start(
        environment: Environment,
        config: &DpdkConfig,
        port: u16,
        queues: u16,
    ) -> Result<(PortInfo, bool), OpenError> {
        let Environment { table, memory, .. } = environment;
        let name = name_of(&config.device);
        let failed = |what: &str, result: c_int, said: String| match table.result(result) {
            Ok(()) => Ok(()),
            Err(error) => Err(OpenError::Failed(format!("{name}: DPDK cannot {what}: {error}{said}"))),
        };
        let mut info = PortInfo::default();
        // SAFETY: a port that exists, and a place for the answer.
        let (result, said) = collect(|| unsafe { (table.inspect_port)(port, &raw mut info) });
        failed("ask for the properties", result, said)?;
        if info.max_queues < queues {
            let most = info.max_queues;
            return Err(OpenError::Failed(format!("{name} has at most {most} queues, and `queues` asks for {queues}")));
        }
        // Only drivers of cards need permission to reach memory.
        let is_mapped = text(&info.bus) != "vdev";
        if is_mapped {
            let area = pool::area();
            let (start, page) = (std::ptr::with_exposed_provenance_mut(area.start), bellows_sys::code::page_size());
            let length = area.length.next_multiple_of(page);
            // SAFETY: the pool's memory, from a page boundary, is never unmapped.
            let (result, said) = collect(|| unsafe { (table.map_memory)(port, start, length, page) });
            failed(
                "let the device reach the packet pool (`ulimit -l` must be unlimited, and the card have the driver vfio-pci)",
                result,
                said,
            )?;
        }
        let request = PortRequest {
            pool: memory.pool(),
            mtu: config.mtu.map_or(0, u32::from),
            queues,
            descriptors: config.descriptors,
            promiscuous: config.promiscuous.into(),
            data_room: DATA_ROOM as u16,
        };
        // SAFETY: the pool is DPDK's, and lasts.
        let (result, said) = collect(|| unsafe { (table.open_port)(port, &raw const request, &raw mut info) });
        // Buffers that this thread has taken for the device, but not needed.
        return_free_buffers();
        failed(&text(&info.step), result, said)?;
        Ok((info, is_mapped))
    }

    /// Number of queues.
    pub(crate) fn queues(&self) -> u16 {
        self.queues
    }

    /// Takes a queue for its only user. False if it is in use.
    pub(crate) fn take_queue(&self, queue: u16) -> bool {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(queue)
    }

    /// The user of a queue ends.
    pub(crate) fn leave_queue(&self, queue: u16) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).remove(&queue);
    }

    /// Asks the device for its statistics, which takes some drivers a millisecond; and keeps them.
    pub(crate) fn update_stats(&self) -> Option<PortStats> {
        let mut stats = PortStats::default();
        // SAFETY: the port exists as long as this value.
        let result = unsafe { (self.table.get_stats)(self.port, &raw mut stats) };
        if result < 0 {
            return None;
        }
        let values = [stats.missed, stats.no_mbuf, stats.receive_errors, stats.send_errors];
        self.stats.iter().zip(values).for_each(|(kept, value)| kept.store(value, Relaxed));
        Some(stats)
    }

    /// The statistics that were kept: frames missed, without a buffer, with errors; and packets not sent.
    pub(crate) fn stats(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|index: usize| self.stats[index].load(Relaxed))
    }

    /// The state of the link; `None` if the device does not say.
    pub(crate) fn link(&self) -> Option<PortLink> {
        let mut link = PortLink::default();
        // SAFETY: the port exists as long as this value.
        let result = unsafe { (self.table.get_link)(self.port, &raw mut link) };
        (result >= 0).then_some(link)
    }

    /// Drops frames that nobody will receive. They were on loan and never became packets.
    fn drain(&self) {
        for queue in 0..self.queues {
            let mut drained = 0;
            while drained < MAX_DRAINED {
                let mut mbufs = [std::ptr::null_mut::<Mbuf>(); 64];
                // SAFETY: no other thread uses the queue, because the values that do keep the device.
                let count = unsafe { (self.table.receive)(self.port, queue, mbufs.as_mut_ptr(), mbufs.len() as u16) };
                // SAFETY: the driver has given these up.
                mbufs[..usize::from(count)].iter().for_each(|&mbuf| unsafe { (self.table.end)(mbuf) });
                drained += usize::from(count);
                if count == 0 {
                    break;
                }
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut devices = devices();
        self.drain();
        let (_, _) = collect(|| {
            // SAFETY: nobody uses the port any more.
            unsafe { (self.table.stop_port)(self.port) }
        });
        if self.is_mapped {
            let area = pool::area();
            let length = area.length.next_multiple_of(bellows_sys::code::page_size());
            let start = std::ptr::with_exposed_provenance_mut(area.start);
            // SAFETY: the same memory that was mapped.
            let _ = unsafe { (self.table.unmap_memory)(self.port, start, length) };
        }
        remove(self.table, self.port, &mut devices);
        if devices.present == 0 {
            // SAFETY: no device is left, so no driver has a buffer any more.
            let kept = unsafe { self.memory.loans.end_everything() };
            if kept > 0 {
                warn!("{}: the driver has kept {kept} packet buffers, which are taken back", self.config.device);
            }
        }
        return_free_buffers();
    }
}

/// Removes the device of a port that is stopped.
fn remove(table: &Table, port: u16, devices: &mut Devices) {
    // SAFETY: nobody uses the port any more.
    let (result, said) = collect(|| unsafe { (table.remove_port)(port) });
    match table.result(result) {
        Ok(()) => devices.present -= 1,
        Err(error) => warn!("DPDK cannot remove a device: {error}{said}"),
    }
}
