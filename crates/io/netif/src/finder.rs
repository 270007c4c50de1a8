//! Finds the interface of a port, and watches it.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use bellows_netdev::ethtool;
use bellows_sys::namespace;

use crate::OpenError;
use crate::arp_guard::Guard;
use crate::interface::{Event, Interface, Interfaces, Monitor};
use crate::status::{KernelLink, PortStatus};

/// The interface of a port, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceName {
    /// Its name.
    pub name: String,
    /// The network namespace that it is in: a name of `ip netns`, or a path such as `/proc/PID/ns/net`. `None` for that
    /// of the process.
    pub namespace: Option<PathBuf>,
}

/// Finds and watches the interface of a port, on the port's control thread.
#[derive(Debug)]
pub(crate) struct Finder {
    wanted: InterfaceName,
    sockets: Option<(Interfaces, Monitor)>,
    /// The interface as it was last seen.
    current: Option<Interface>,
    /// Keeps the kernel from answering for a router, at ports whose frames it sees as well.
    guard: Option<Guard>,
}

impl Finder {
    pub(crate) fn new(wanted: InterfaceName) -> Finder {
        Finder { wanted, sockets: None, current: None, guard: None }
    }

    /// Keeps the kernel from answering ARP on this interface for the addresses of this process's routers. For
    /// [`PortSource::open`](crate::PortSource::open), before anything is received.
    pub(crate) fn guard(&mut self, interface: &Interface) {
        if self.guard.as_ref().is_none_or(|guard| guard.index() != interface.index) {
            self.guard = Guard::new(interface);
        }
    }

    /// Gives the kernel its settings back. For [`PortSource::close`](crate::PortSource::close).
    pub(crate) fn release(&mut self) {
        self.guard = None;
    }

    /// Enters the interface's namespace and begins to watch. For [`PortSource::prepare`](crate::PortSource::prepare).
    ///
    /// # Errors
    /// The namespace cannot be entered; the kernel gives no netlink sockets.
    pub(crate) fn prepare(&mut self) -> Result<(), OpenError> {
        if let Some(path) = &self.wanted.namespace {
            namespace::enter_network(path).map_err(|error| OpenError::Failed(error.to_string()))?;
        }
        let watching = || Ok((Interfaces::open()?, Monitor::open()?));
        let sockets = watching().map_err(|error: std::io::Error| {
            OpenError::Failed(format!("cannot ask the kernel for interfaces: {error}; is netlink permitted?"))
        })?;
        self.sockets = Some(sockets);
        Ok(())
    }

    /// What becomes readable when an interface changes.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.sockets.iter().map(|(_, monitor)| monitor.as_fd()).collect()
    }

    /// Requests of interfaces.
    ///
    /// # Panics
    /// Before [`prepare`](Finder::prepare).
    pub(crate) fn interfaces(&mut self) -> &mut Interfaces {
        &mut self.sockets.as_mut().expect("prepare() was called").0
    }

    /// The interface that it follows, whatever its name is by now; without one, as [`find`](Finder::find).
    ///
    /// # Errors
    /// Those of [`find`](Finder::find).
    pub(crate) fn find_again(&mut self) -> Result<Interface, OpenError> {
        let Some(index) = self.current.as_ref().map(|current| current.index) else { return self.find() };
        match self.interfaces().by_index(index).map_err(|error| failed(&self.wanted.name, &error))? {
            Some(found) => {
                self.follow(found.clone());
                Ok(found)
            }
            None => self.find(),
        }
    }

    /// Looks for the interface by its name.
    ///
    /// # Errors
    /// [`OpenError::Missing`], with the names that there are.
    pub(crate) fn find(&mut self) -> Result<Interface, OpenError> {
        let name = self.wanted.name.clone();
        let found = self.interfaces().by_name(&name).map_err(|error| failed(&name, &error))?;
        let Some(found) = found else {
            let there = self.interfaces().list().unwrap_or_default();
            let names: Vec<&str> = there.iter().map(|interface| interface.name.as_str()).collect();
            let place = self.wanted.namespace.as_ref();
            let place = place.map(|path| format!(" in the namespace {}", path.display())).unwrap_or_default();
            return Err(OpenError::Missing(format!(
                "there is no interface `{name}`{place}; there are: {}",
                names.join(", ")
            )));
        };
        self.follow(found.clone());
        Ok(found)
    }

    /// Looks for an interface of this name from now on.
    pub(crate) fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.wanted.name);
    }

    /// Watches this interface from now on, whatever its name.
    pub(crate) fn follow(&mut self, interface: Interface) {
        self.current = Some(interface);
    }

    /// The interface as it was last seen.
    pub(crate) fn current(&self) -> Option<&Interface> {
        self.current.as_ref()
    }

    /// Handles what has happened, and updates the status. False if the interface is gone. For
    /// [`PortSource::check`](crate::PortSource::check).
    pub(crate) fn check(&mut self, status: &PortStatus) -> bool {
        // Also if there is none, because the descriptor stays readable until then.
        self.drain();
        let Some(index) = self.current.as_ref().map(|current| current.index) else { return false };
        // The present state, and not that of an event, which may be old. It brings the statistics, too.
        match self.interfaces().by_index(index) {
            Ok(Some(now)) => {
                report(&now, status);
                if let Some(guard) = &self.guard {
                    guard.check(&now.name, status);
                }
                self.follow(now);
                true
            }
            Ok(None) => {
                self.forget(status);
                false
            }
            // The kernel is busy; the next check comes soon.
            Err(_) => true,
        }
    }

    /// Handles what has happened while there is no interface. For [`PortSource::idle`](crate::PortSource::idle).
    pub(crate) fn idle(&mut self, status: &PortStatus) {
        self.drain();
        self.forget(status);
    }

    fn forget(&mut self, status: &PortStatus) {
        self.current = None;
        status.update(|snapshot| snapshot.link = None);
    }

    /// Reads the events, so that the descriptor is not readable any more.
    fn drain(&mut self) {
        if let Some((_, monitor)) = &mut self.sockets {
            while let Ok(Some(event)) = monitor.next_event() {
                let _: Event = event;
            }
        }
    }
}

/// An error of a request, as text.
pub(crate) fn failed(name: &str, error: &std::io::Error) -> OpenError {
    OpenError::Failed(format!("the interface `{name}` cannot be used: {error}"))
}

/// Records the interface in the status.
pub(crate) fn report(interface: &Interface, status: &PortStatus) {
    let works = interface.is_up && interface.has_link;
    let driver = ethtool::driver(&interface.name).ok().map(|driver| driver.driver);
    let link = KernelLink {
        name: interface.name.clone(),
        index: interface.index,
        mac: interface.mac,
        mtu: interface.mtu,
        speed: ethtool::speed(&interface.name),
        driver: driver.or_else(|| interface.kind.clone()),
        rx_dropped: interface.statistics.rx_dropped,
        tx_dropped: interface.statistics.tx_dropped,
        rx_errors: interface.statistics.rx_errors,
        tx_errors: interface.statistics.tx_errors,
    };
    status.update(|snapshot| snapshot.link = Some(link));
    status.carries(works);
}
