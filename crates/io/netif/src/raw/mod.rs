//! An interface through packet sockets (`packet(7)`), beside the host's own network stack.
//!
//! Frames come with virtio-net headers, also for a network that takes no offloads: only the header tells how a GSO packet
//! is to be segmented.

mod cut;
mod queue;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bellows_netdev::PortOpenError;
use bellows_netdev::ethtool::{self, Offload};
use bellows_netdev::packet_socket::{Fanout, FanoutMode, Receiver, ReceiverOptions, Sender, SenderOptions};
use bellows_packet::LargeShare;
use bellows_ports::QueueSet;
use bellows_sys::capability::{self, Set};

use self::queue::Sockets;
pub use self::queue::{RawBell, RawQueue};
use crate::finder::Finder;
use crate::interface::Interface;
use crate::joint::Joint;
use crate::keeper::{OpenError, PortSource};
use crate::status::PortStatus;
use crate::{InterfaceName, Keeper, Start, Started};

/// Bytes of a frame besides the MTU: Ethernet's header, and two VLAN tags.
const BESIDES_MTU: usize = 14 + 2 * 4;

/// The fanout groups of ports that share an interface.
static GROUPS: Joint<FanoutGroup> = Joint::new();

/// A fanout group that several ports share. It lasts as long as one of its sockets.
#[derive(Debug)]
struct FanoutGroup {
    number: u16,
    mode: FanoutMode,
}

/// How to use an interface through packet sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawConfig {
    /// The interface.
    pub interface: InterfaceName,
    /// The queues: pairs of sockets, at least 1. All ports of this process that use a part of the same interface's
    /// queues are in one fanout group.
    pub queues: QueueSet,
    /// How the kernel chooses a queue for each frame that it receives, if there are several.
    pub fanout: FanoutMode,
    /// Whether packets keep the partial checksums and segmentation that the kernel left undone, and may be sent with
    /// them.
    pub offloads: bool,
    /// Whether the interface receives frames for other hosts, too.
    pub promiscuous: bool,
    /// Whether frames go through the interface's queueing discipline. Without it, GSO packets are segmented here if the
    /// interface cannot do that.
    pub qdisc: bool,
    /// Number of frames that the kernel may hold for each queue.
    pub ring_size: usize,
    /// Time for which the kernel polls the driver when the engine looks for frames.
    pub busy_poll: Option<Duration>,
}

impl RawConfig {
    /// The capabilities that opening the interface takes, if it is in another network namespace or not.
    pub fn capabilities(in_namespace: bool) -> Set {
        if in_namespace { Set::NET_RAW | Set::SYS_ADMIN } else { Set::NET_RAW }
    }

    /// Starts the control thread of a port, whose name `name` is the thread's.
    ///
    /// # Errors
    /// Why the interface cannot be opened.
    pub fn start(self, name: &str, start: Start, status: Arc<PortStatus>) -> Started<RawQueue> {
        Keeper::start(name, RawSource::new(self), start, status)
    }
}

/// Opens the sockets of an interface.
#[derive(Debug)]
pub struct RawSource {
    config: RawConfig,
    finder: Finder,
    /// The quota of large buffers of the port.
    share: Arc<LargeShare>,
    /// The MTU for which the rings were made.
    mtu: u32,
    /// Whether somebody behind the socket segments GSO packets.
    segments: Arc<AtomicBool>,
}

impl RawSource {
    /// A source that has opened nothing yet.
    pub fn new(config: RawConfig) -> RawSource {
        let finder = Finder::new(config.interface.clone());
        RawSource { config, finder, share: Arc::new(LargeShare::new()), mtu: 0, segments: Arc::default() }
    }

    fn open_queue(&self, interface: &Interface, fanout: Option<Fanout>) -> Result<RawQueue, OpenError> {
        let RawConfig { offloads, promiscuous, qdisc, ring_size, busy_poll, .. } = self.config.clone();
        let failed = |error: PortOpenError| OpenError::Failed(format!("`{}`: {error}", interface.name));
        let options = ReceiverOptions {
            slots: ring_size,
            frame_length: interface.mtu as usize + BESIDES_MTU,
            virtio_header: true,
            promiscuous,
            fanout,
            busy_poll,
            ..ReceiverOptions::default()
        };
        let receiver = Receiver::open(interface.index, &options).map_err(failed)?;
        let options = SenderOptions {
            mtu: interface.mtu as usize,
            virtio_header: offloads,
            bypass_qdisc: !qdisc,
            ..SenderOptions::default()
        };
        let sender = Sender::open(interface.index, &options).map_err(failed)?;
        let segments = offloads.then(|| Arc::clone(&self.segments));
        Ok(RawQueue::new(Sockets { receiver, sender, group: None }, segments, Arc::clone(&self.share)))
    }

    /// Opens the queues, in a fanout group if there are several, or if other ports have some.
    fn open_queues(&self, interface: &Interface) -> Result<Vec<RawQueue>, OpenError> {
        let RawConfig { queues: wanted, fanout: mode, .. } = &self.config;
        // The first port makes the group, and the others join it.
        let mut groups = wanted.is_part().then(|| GROUPS.lock());
        let mut group = groups.as_mut().and_then(|groups| groups.find(interface));
        if group.as_ref().is_some_and(|group| group.mode != *mode) {
            // Perhaps of an app that this one replaces, and that ends soon.
            return Err(OpenError::Busy(format!(
                "another app of this process distributes the frames of `{}` over its queues in another way; give both \
                 the same `fanout`",
                interface.name
            )));
        }
        let mut queues: Vec<RawQueue> = Vec::with_capacity(wanted.count());
        for _ in 0..wanted.count().max(1) {
            let number = group.as_ref().map(|group| group.number).or(queues.first().and_then(RawQueue::fanout_group));
            // The kernel reassembles no fragments: the network shall see what the wire carries.
            let fanout = Fanout { group: number, mode: *mode, defragment: false, rollover: false };
            let mut queue = self.open_queue(interface, self.is_grouped().then_some(fanout))?;
            if let (Some(groups), None, Some(number)) = (&mut groups, &group, queue.fanout_group()) {
                group = Some(groups.add(interface, FanoutGroup { number, mode: *mode }));
            }
            queue.join(group.clone());
            queues.push(queue);
        }
        Ok(queues)
    }

    /// Whether its sockets are in a fanout group.
    fn is_grouped(&self) -> bool {
        self.config.queues.is_part() || self.config.queues.count() > 1
    }

    /// Finds out who segments GSO packets: the kernel does so behind a queueing discipline, else only the interface can.
    fn look_for_segmentation(&self) {
        let segments = self.config.qdisc
            || self.finder.current().is_some_and(|interface| {
                ethtool::features(&interface.name).is_ok_and(|features| features.is_active(Offload::Tso))
            });
        self.segments.store(segments, Relaxed);
    }

    fn report(&self, status: &PortStatus, queues: &[RawQueue]) {
        let config = &self.config;
        let on = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let slots = queues.first().map_or(0, |queue| queue.slots());
        let mode = match config.fanout {
            FanoutMode::Hash => "hash",
            FanoutMode::LoadBalance => "load-balance",
            FanoutMode::Processor => "cpu",
            FanoutMode::Queue => "queue",
        };
        status.update(|snapshot| {
            let details = &mut snapshot.details;
            details.queues = Some(self.config.queues.to_string());
            details.ring_size = Some(slots.to_string());
            details.offloads = Some(on(config.offloads));
            details.promiscuous = Some(on(config.promiscuous));
            if self.is_grouped() {
                details.fanout = Some(mode.to_owned());
            }
        });
    }
}

impl PortSource for RawSource {
    type Queue = RawQueue;

    fn prepare(&mut self) -> Result<(), OpenError> {
        if let Some(missing) = capability::missing(RawConfig::capabilities(self.config.interface.namespace.is_some())) {
            return Err(OpenError::Failed(missing.to_string()));
        }
        self.finder.prepare()
    }

    fn open(&mut self, status: &PortStatus) -> Result<Vec<RawQueue>, OpenError> {
        let interface = self.finder.find_again()?;
        if self.is_grouped() && !interface.is_up {
            let name = &interface.name;
            let message = format!("`{name}` is down, and several queues need it up; `ip link set {name} up` does that");
            return Err(OpenError::Missing(message));
        }
        self.finder.guard(&interface);
        let queues = self.open_queues(&interface)?;
        self.mtu = interface.mtu;
        self.look_for_segmentation();
        self.report(status, &queues);
        Ok(queues)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.finder.descriptors()
    }

    fn check(&mut self, status: &PortStatus) -> Option<String> {
        let is_there = self.finder.check(status);
        self.look_for_segmentation();
        if !is_there {
            return Some(format!("the interface `{}` is gone", self.config.interface.name));
        }
        // The rings' slots have the length of frames, and the ring for sending takes no other frames.
        let other_mtu = self.finder.current().is_some_and(|now| now.mtu != self.mtu);
        other_mtu.then(|| "the MTU has changed".to_owned())
    }

    fn idle(&mut self, status: &PortStatus) {
        self.finder.idle(status);
    }

    fn close(&mut self) {
        self.finder.release();
    }
}
