//! The thread that follows a table of the kernel.
//!
//! It subscribes to changes first, reads the table then, and applies the changes that came meanwhile. If changes were
//! lost, or if the kernel may have removed routes without a word, it reads the table again: routes that are still there
//! stay in the routing domain all the time, and those that are not are removed at the end.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bellows_handover::{ControlThread, Signal};
use bellows_netif::interface::{Interface, Interfaces};
use bellows_netif::route::{KernelNeighbour, RouteEvent, RouteMonitor, RouteTables};
use bellows_sys::namespace;
use bellows_sys::wake::sleep_until_readable;
use tracing::{error, warn};

use super::install::{Devices, install, retract};
use super::neighbours::Neighbours;
use super::set::{KernelRouteKey, RouteSet, Standing};
use super::shown::Shown;
use crate::vrf::RoutingDomain;

/// What a follower follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    /// The number of the table.
    pub(super) table: u32,
    /// The network namespace, or that of the process.
    pub(super) namespace: Option<PathBuf>,
    /// The maximum number of prefixes.
    pub(super) limit: usize,
}

/// Changes of the routing domain that are made under one lock.
const BATCH: usize = 4096;

/// The time from a change of an interface to reading the table again, so that several changes make one reading.
const SETTLING: Duration = Duration::from_millis(20);

/// The time between two readings that did not succeed, and after a loss.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest sleep.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long the first reading is waited for.
const FIRST_READING: Duration = Duration::from_secs(10);

/// The owner's handle of the thread.
pub(super) struct Follower {
    signal: Arc<Signal>,
    thread: Option<ControlThread>,
    first: Option<Receiver<io::Result<()>>>,
    left: Arc<Mutex<Option<FollowedState>>>,
}

/// What a follower has put into the routing domain, and leaves to its successor.
pub(super) struct FollowedState {
    set: RouteSet,
    neighbours: Neighbours,
}

impl Follower {
    /// Starts the thread, which continues from what a predecessor has left.
    ///
    /// # Errors
    /// System errors: out of threads or descriptors.
    pub(super) fn start(
        followed: Followed,
        domain: Arc<RoutingDomain>,
        shown: Arc<Shown>,
        state: Option<FollowedState>,
    ) -> io::Result<Follower> {
        let signal = Arc::new(Signal::new()?);
        let left = Arc::new(Mutex::new(None));
        let (first, result) = channel();
        let (own_signal, own_left) = (Arc::clone(&signal), Arc::clone(&left));
        let thread = ControlThread::start("kernel-routes", move || {
            let limit = followed.limit;
            let mut state = state.unwrap_or_else(|| FollowedState::new(limit));
            state.set.set_limit(limit);
            let worker = FollowerWorker {
                followed,
                domain,
                shown,
                signal: own_signal,
                state,
                devices: Devices::new(),
                has_other_devices: false,
                changed: Vec::new(),
                due: None,
            };
            *own_left.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker.run(&first));
        })?;
        Ok(Follower { signal, thread: Some(thread), first: Some(result), left })
    }

    /// Waits until the table has been read once, or some seconds.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        let Some(first) = self.first.take() else { return Ok(()) };
        match first.recv_timeout(FIRST_READING) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                warn!("the kernel's routes are not all read yet; the network starts without the rest");
                Ok(())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the thread that reads them has panicked; this is a bug in bellows"))
            }
        }
    }

    /// Ends the thread, and returns what it leaves.
    pub(super) fn end(mut self) -> Option<FollowedState> {
        self.finish();
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn finish(&mut self) {
        self.signal.end();
        if self.thread.take().is_some_and(|thread| !thread.end()) {
            error!("the thread that follows the kernel's routes hangs and is abandoned; it ends with the process");
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.finish();
    }
}

impl FollowedState {
    fn new(limit: usize) -> FollowedState {
        FollowedState { set: RouteSet::new(limit), neighbours: Neighbours::default() }
    }

    /// Removes everything from the routing domain.
    pub(super) fn retract(mut self, domain: &RoutingDomain) {
        let keys = self.set.keys();
        for keys in keys.chunks(BATCH) {
            let mut changes = domain.tables().lock();
            retract(&mut changes, &mut self.set, keys);
            // Without memory the next commit tries again.
            let _ = changes.commit();
        }
        self.neighbours.retract(domain);
    }
}

/// What the thread asks the kernel with.
struct Sockets {
    tables: RouteTables,
    interfaces: Interfaces,
    monitor: RouteMonitor,
}

impl Sockets {
    fn open(followed: &Followed) -> io::Result<Sockets> {
        if let Some(path) = &followed.namespace {
            namespace::enter_network(path)?;
        }
        // The subscription comes first, so that no change is missed.
        let monitor = RouteMonitor::open()?;
        Ok(Sockets { tables: RouteTables::open()?, interfaces: Interfaces::open()?, monitor })
    }
}

/// The state of the thread.
struct FollowerWorker {
    followed: Followed,
    domain: Arc<RoutingDomain>,
    shown: Arc<Shown>,
    signal: Arc<Signal>,
    state: FollowedState,
    devices: Devices,
    /// Whether routes may lead to other devices than when they were installed. It stays if a reading fails.
    has_other_devices: bool,
    /// Keys whose routes have changed and that the routing domain has not yet.
    changed: Vec<KernelRouteKey>,
    /// When the table is to be read again.
    due: Option<Instant>,
}

impl FollowerWorker {
    fn run(mut self, first: &Sender<io::Result<()>>) -> FollowedState {
        let mut sockets = match Sockets::open(&self.followed) {
            Ok(sockets) => sockets,
            Err(error) => {
                self.shown.fails(&error.to_string());
                let _ = first.send(Err(error));
                return self.state;
            }
        };
        let result = self.read(&mut sockets);
        if let Err(error) = &result {
            self.shown.fails(&error.to_string());
        }
        let _ = first.send(result);
        let (mut retried, mut behind) = (Instant::now(), None);
        while !self.signal.has_ended() {
            let now = Instant::now();
            if self.due.is_some_and(|due| due <= now) {
                self.due = None;
                if let Err(error) = self.read(&mut sockets) {
                    self.shown.fails(&error.to_string());
                    self.due = Some(now + PAUSE);
                }
            }
            let until_due = self.due.map_or(INTERVAL, |due| due.saturating_duration_since(Instant::now()));
            let descriptors = [self.signal.as_fd(), sockets.monitor.as_fd()];
            // The only errors are a lack of memory, and then the next attempt comes at once.
            let _ = sleep_until_readable(&descriptors, Some(until_due.min(INTERVAL)));
            self.signal.clear();
            if let Err(error) = self.hear(&mut sockets) {
                self.shown.fails(&error.to_string());
                self.read_within(PAUSE);
            }
            if retried.elapsed() >= INTERVAL {
                retried = Instant::now();
                behind = self.retry(behind);
                self.retry_neighbours();
            }
        }
        self.state
    }

    /// Enters routes in whose place there were others, of the routing domain or of another table, if those are gone, and
    /// those for whose next hops there was no room, if there is now: nobody tells that. Returns behind which key to go on,
    /// if there are more.
    fn retry(&mut self, mut behind: Option<KernelRouteKey>) -> Option<KernelRouteKey> {
        loop {
            let keys = self.state.set.waiting(behind, BATCH);
            let last = keys.last().copied().filter(|_| keys.len() == BATCH);
            if keys.is_empty() {
                return None;
            }
            let before = self.followed_now();
            self.changed.extend(keys);
            self.flush();
            self.show();
            // Where some find room, others may.
            if last.is_none() || self.followed_now() == before || self.signal.has_ended() {
                return last;
            }
            behind = last;
        }
    }

    /// The number of routes that the routing domain has.
    fn followed_now(&self) -> usize {
        self.state.set.count(Standing::Followed).iter().sum()
    }

    /// Has the table read again soon.
    fn read_within(&mut self, time: Duration) {
        let due = Instant::now() + time;
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Reads everything, and makes the routing domain have it.
    fn read(&mut self, sockets: &mut Sockets) -> io::Result<()> {
        let began = Instant::now();
        let devices = self.find_devices(&sockets.interfaces.list()?);
        self.has_other_devices |= devices != self.devices;
        self.devices = devices;
        self.state.set.begin_reading();
        let is_consistent = sockets.tables.routes(self.followed.table, |route| {
            if self.signal.has_ended() {
                return;
            }
            if let Some(key) = self.state.set.read(route) {
                self.changed.push(key);
                if self.changed.len() >= BATCH {
                    self.flush();
                }
            }
        })?;
        if self.signal.has_ended() {
            return Ok(());
        }
        if is_consistent {
            let gone = self.state.set.end_reading();
            self.changed.extend(gone);
        }
        if std::mem::take(&mut self.has_other_devices) {
            self.changed = self.state.set.keys();
        }
        self.flush();
        let is_consistent = self.read_neighbours(sockets)? && is_consistent;
        if !is_consistent {
            self.read_within(PAUSE.max(began.elapsed()));
        }
        if self.state.set.has_room_again() {
            // Routes that this reading did not find were still there when there was no room for others.
            self.read_within(PAUSE);
        }
        self.shown.has_read(is_consistent);
        self.show();
        Ok(())
    }

    /// The numbers of the devices that belong to interfaces of the router.
    fn find_devices(&self, interfaces: &[Interface]) -> Devices {
        let (tables, policies) = (self.domain.tables(), self.domain.policies());
        let name_of = |device: &Interface| {
            let is = |(number, _): &(u16, &bellows_vrf::Interface)| {
                policies.of(*number).is_some_and(|policy| policy.host.as_ref() == Some(&device.name))
            };
            let (_, interface) = (1..).zip(tables.interfaces()).find(is)?;
            Some((device.index, interface.name.clone()))
        };
        interfaces.iter().filter_map(name_of).collect()
    }

    /// Takes in the changes that have come.
    fn hear(&mut self, sockets: &mut Sockets) -> io::Result<()> {
        let mut events = Vec::new();
        let mut is_changed = false;
        while sockets.monitor.next(|event| events.push(event))? {
            is_changed = true;
            for event in events.drain(..) {
                self.take(event);
            }
            if self.changed.len() >= BATCH {
                self.flush();
            }
            if self.signal.has_ended() {
                return Ok(());
            }
        }
        self.state.set.catch_up();
        if is_changed {
            self.flush();
            if self.state.set.has_room_again() {
                self.read_within(PAUSE);
            }
            self.show();
        }
        Ok(())
    }

    /// Notes a key that has changed, and whether its routes are surely those of the kernel.
    fn note(&mut self, heard: Option<(KernelRouteKey, bool)>) {
        let Some((key, is_sure)) = heard else { return };
        self.changed.push(key);
        if !is_sure {
            self.read_within(SETTLING);
        }
    }

    fn take(&mut self, event: RouteEvent) {
        match event {
            RouteEvent::Added(route, insertion) if route.table == self.followed.table => {
                let heard = self.state.set.added(route, insertion);
                self.note(heard);
            }
            RouteEvent::Removed(route) if route.table == self.followed.table => {
                let heard = self.state.set.removed(route);
                self.note(heard);
            }
            RouteEvent::Added(..) | RouteEvent::Removed(_) => {}
            RouteEvent::Neighbour(neighbour) => self.set_neighbour(&neighbour),
            RouteEvent::Interface(index, now) => {
                let known = self.devices.get(&index);
                let is_ours = now.as_ref().is_some_and(|now| !self.find_devices(std::slice::from_ref(now)).is_empty());
                if known.is_some() || is_ours {
                    self.read_within(SETTLING);
                }
            }
            // Routes through any device may have had the address as their source (`src`).
            RouteEvent::AddressRemoved(_) => self.read_within(SETTLING),
            // Linux removes or changes IPv4 routes to it without an event.
            RouteEvent::NextHopObject(number) => {
                if self.state.set.leads_to(number) {
                    self.read_within(SETTLING);
                }
            }
            RouteEvent::Overrun => {
                self.shown.has_lost();
                self.read_within(PAUSE);
            }
        }
    }

    /// Makes the routing domain have what has changed.
    fn flush(&mut self) {
        for keys in std::mem::take(&mut self.changed).chunks(BATCH) {
            let mut changes = self.domain.tables().lock();
            install(&mut changes, &mut self.state.set, &self.devices, keys);
            if let Err(error) = changes.commit() {
                self.shown.fails(&error.to_string());
            }
        }
    }

    fn show(&self) {
        let FollowedState { set, neighbours } = &self.state;
        self.shown.set_routes(set, neighbours.followed(), neighbours.refused());
    }

    /// The number of the interface that a device belongs to.
    fn interface_of(&self, device: u32) -> Option<u16> {
        self.domain.tables().number(self.devices.get(&device)?)
    }

    /// Reads the neighbours that an administrator has set.
    fn read_neighbours(&mut self, sockets: &mut Sockets) -> io::Result<bool> {
        self.state.neighbours.begin_reading();
        let mut neighbours = Vec::new();
        let is_consistent = sockets.tables.neighbours(|neighbour| neighbours.push(neighbour))?;
        neighbours.iter().for_each(|neighbour| self.set_neighbour(neighbour));
        if is_consistent {
            let gone = self.state.neighbours.end_reading(&neighbours);
            gone.iter().for_each(|neighbour| self.set_neighbour(neighbour));
        }
        Ok(is_consistent)
    }

    fn set_neighbour(&mut self, neighbour: &KernelNeighbour) {
        let interface = self.interface_of(neighbour.device);
        if let Err(error) = self.state.neighbours.set(&self.domain, neighbour, interface) {
            self.shown.fails(&error.to_string());
        }
    }

    /// Enters neighbours that were refused before, if there is room for them now.
    fn retry_neighbours(&mut self) {
        let before = self.state.neighbours.followed();
        for neighbour in self.state.neighbours.waiting(BATCH) {
            self.set_neighbour(&neighbour);
        }
        if self.state.neighbours.followed() != before {
            self.show();
        }
    }
}
