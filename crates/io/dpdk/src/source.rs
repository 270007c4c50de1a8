//! Opening the queues of a device, for its control thread.

use std::sync::Arc;

use bellows_netif::status::{KernelLink, PortStatus};
use bellows_netif::{OpenError, PortSource};
use bellows_ports::QueueSet;
use bellows_wire::MacAddr;
use tracing::warn;

use crate::DpdkQueue;
use crate::device::{Device, name_of};
use crate::environment::Environment;
use crate::table::UNKNOWN_SPEED;

/// A device of DPDK, and how it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkConfig {
    /// Its address on the PCI bus, or a driver's name with a number and arguments, such as `net_tap0,iface=tap0`.
    pub device: String,
    /// The queues, at least 1. Several ports may have a part of a device's queues each, with the same settings.
    pub queues: QueueSet,
    /// Number of the device's queues, if the port has only a part of them.
    pub device_queues: Option<u16>,
    /// Number of frames that may wait in each direction of each queue.
    pub descriptors: u16,
    /// The MTU, in bytes, if it is to be set.
    pub mtu: Option<u16>,
    /// Whether the device receives frames for other hosts, too.
    pub promiscuous: bool,
}

impl DpdkConfig {
    /// The device's name: what comes before its arguments.
    pub fn name(&self) -> &str {
        name_of(&self.device)
    }

    /// Number of queues of the device: those of this port, or of all ports that share it.
    pub(crate) fn device_queues(&self) -> u16 {
        let highest = self.queues.numbers().last().map_or(1, |number| number + 1);
        self.device_queues.unwrap_or(highest).max(1)
    }

    /// Whether both can use one device, each with a part of its queues.
    pub(crate) fn is_shared_with(&self, other: &DpdkConfig) -> bool {
        let common = |config: &DpdkConfig| DpdkConfig { queues: QueueSet::Whole(0), ..config.clone() };
        self.queues.is_part() && other.queues.is_part() && common(self) == common(other)
    }
}

/// Opens a device.
pub struct DpdkSource {
    config: DpdkConfig,
    device: Option<Arc<Device>>,
    /// Number of buffers that a driver gave back without having them, of which the log knows.
    foreign: u64,
}

impl DpdkSource {
    /// A source that has opened nothing yet.
    pub fn new(config: DpdkConfig) -> DpdkSource {
        DpdkSource { config, device: None, foreign: 0 }
    }

    fn report(&self, device: &Device, environment: &Environment, status: &PortStatus) {
        let properties = &device.properties;
        let on = |is_on| if is_on { "of several buffers" } else { "of one buffer" };
        status.update(|snapshot| {
            let details = &mut snapshot.details;
            details.memory = Some("packet pool".to_owned());
            details.library = Some(environment.describe());
            details.frames = Some(on(properties.gathers).to_owned());
            details.promiscuous = Some(if self.config.promiscuous { "on" } else { "off" }.to_owned());
            details.queues = Some(self.config.queues.to_string());
            let descriptors = (properties.receive_descriptors, properties.send_descriptors);
            details.ring_size = Some(format!("{} to receive, {} to send", descriptors.0, descriptors.1));
        });
    }
}

impl PortSource for DpdkSource {
    type Queue = DpdkQueue;

    fn open(&mut self, status: &PortStatus) -> Result<Vec<DpdkQueue>, OpenError> {
        let environment = Environment::get().map_err(OpenError::Failed)?;
        let device = Device::open(environment, &self.config)?;
        let mut queues = Vec::new();
        for number in self.config.queues.numbers() {
            if number >= device.queues() {
                let count = device.queues();
                let device = self.config.name();
                return Err(OpenError::Failed(format!(
                    "{device} has {count} queues, so there is no queue {number}; `device_queues` sets their number"
                )));
            }
            let queue = DpdkQueue::new(&device, number, self.config.descriptors);
            queues.push(queue.ok_or_else(|| OpenError::Busy(format!("queue {number} is in use")))?);
        }
        self.report(&device, &environment, status);
        self.device = Some(device);
        Ok(queues)
    }

    fn check(&mut self, status: &PortStatus) -> Option<String> {
        let device = self.device.as_ref()?;
        let stats = device.update_stats().unwrap_or_default();
        let link = device.link();
        let foreign = device.memory.foreign();
        if std::mem::replace(&mut self.foreign, foreign) < foreign {
            let driver = &device.properties.driver;
            warn!("a driver of DPDK ({driver}?) has given back {foreign} packet buffers that it did not have");
        }
        let properties = &device.properties;
        status.update(|snapshot| {
            snapshot.link = Some(KernelLink {
                name: self.config.name().to_owned(),
                index: device.port.into(),
                mac: (properties.mac != [0; 6]).then_some(MacAddr(properties.mac)),
                mtu: properties.mtu.into(),
                speed: link.map(|link| link.speed).filter(|&speed| speed != UNKNOWN_SPEED && speed > 0),
                driver: Some(properties.driver.clone()),
                rx_dropped: stats.missed + stats.no_mbuf,
                tx_dropped: 0,
                rx_errors: stats.receive_errors,
                tx_errors: stats.send_errors,
            });
        });
        status.carries(link.is_none_or(|link| link.up != 0));
        None
    }

    fn close(&mut self) {
        self.device = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(device: &str, queues: QueueSet) -> DpdkConfig {
        DpdkConfig {
            device: device.to_owned(),
            queues,
            device_queues: None,
            descriptors: 64,
            mtu: None,
            promiscuous: true,
        }
    }

    #[test]
    fn apps_share_a_device_if_they_agree() {
        let part = |numbers: &[u16]| config("net_ring0,arg=1", QueueSet::Part(numbers.to_vec()));
        assert_eq!(part(&[0]).name(), "net_ring0");
        assert!(part(&[0]).is_shared_with(&part(&[1])));
        assert!(!part(&[0]).is_shared_with(&config("net_ring0,arg=1", QueueSet::Whole(1))));
        assert!(!part(&[0]).is_shared_with(&DpdkConfig { mtu: Some(9_000), ..part(&[1]) }));
        assert_eq!((part(&[0, 3]).device_queues(), config("x", QueueSet::Whole(2)).device_queues()), (4, 2));
        assert_eq!(DpdkConfig { device_queues: Some(8), ..part(&[0]) }.device_queues(), 8);
    }
}
