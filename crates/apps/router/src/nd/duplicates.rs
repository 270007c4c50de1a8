//! Whether other stations have an address of the router (RFC 4862, section 5.4).

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bellows_engine::Io;
use bellows_vrf::route::IpPrefix;
use bellows_wire::MacAddr;
use tracing::warn;

use super::Nd;
use crate::forwarding::conflicts::Claim;
use crate::ipv6_link::AddressState;

/// RFC 4861, section 10: MAX_RTR_SOLICITATION_DELAY, by which the first message of an interface is delayed, and
/// RETRANS_TIMER; nanoseconds.
const MAX_DELAY_NS: u64 = 1_000_000_000;
const RETRANSMIT_NS: u64 = 1_000_000_000;

/// The time after which the tables are tried again when another thread is changing them.
const RETRY_NS: u64 = 1_000_000;

/// The time after which a probe is tried again that its link had no room for.
const FULL_NS: u64 = 10_000_000;

/// The addresses that are being probed.
#[derive(Debug, Default)]
pub(super) struct Probes {
    probes: Vec<Probe>,
    /// Duplicates that still have a route.
    duplicates: Vec<Ipv6Addr>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u16,
    address: Ipv6Addr,
    /// When the probe is sent, or its time is over.
    at: u64,
    is_sent: bool,
}

impl Probes {
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.probes.iter().map(|probe| probe.at).min()
    }
}

impl Nd {
    /// The addresses that may be used, by what makes them the same in another configuration.
    pub(super) fn usable_addresses(&self) -> HashSet<(String, MacAddr, Ipv6Addr)> {
        let domain = &self.resolver.domain;
        let usable = domain.addresses().all(AddressState::Preferred);
        let named = usable.into_iter().filter(|_| self.has_begun).filter_map(|(number, address)| {
            let interface = domain.tables().interface(number)?;
            Some((interface.name.clone(), interface.mac, address))
        });
        named.collect()
    }

    /// Begins to probe the addresses of all interfaces, or announces those that need no probe.
    pub(super) fn begin_addresses(&mut self, io: &Io<Self>) {
        let domain = Arc::clone(&self.resolver.domain);
        for (number, interface) in (1..).zip(domain.tables().interfaces()) {
            // All of an interface begin at the same time, which differs from that of other stations.
            let at = io.now() + self.random.u64(..MAX_DELAY_NS);
            let mut joins_at = at;
            for own in &interface.addresses {
                let IpAddr::V6(address) = own.address else { continue };
                let is_verified = self.verified.contains(&(interface.name.clone(), interface.mac, address));
                if domain.addresses().get(number, address) == Some(AddressState::Duplicate) {
                    continue;
                }
                if is_verified || !self.detects_duplicates {
                    // The app before this one may have begun to probe it.
                    domain.addresses().set(number, address, AddressState::Preferred);
                    self.announce(io, number, address);
                    joins_at = io.now();
                } else if self.resolver.output(number).is_some() {
                    domain.addresses().set(number, address, AddressState::Tentative);
                    self.probes.probes.push(Probe { number, address, at, is_sent: false });
                }
                self.next_vectors.make_room(io, 1);
            }
            self.join_groups(number, joins_at);
        }
        if !self.probes.probes.is_empty() {
            self.resolver.watch_from(io.now() + MAX_DELAY_NS + RETRANSMIT_NS);
        }
    }

    /// Sends the probes that are due. Addresses that nobody else has claimed by the end of the time may be used.
    pub(super) fn probe_addresses(&mut self, io: &Io<Self>) {
        let now = io.now();
        for index in 0..self.probes.probes.len() {
            let Probe { number, address, at, is_sent } = self.probes.probes[index];
            if at > now {
                continue;
            }
            if is_sent {
                self.resolver.domain.addresses().set(number, address, AddressState::Preferred);
                self.announce(io, number, address);
                if address.is_unicast_link_local() {
                    // Reports from no address are repeated from this one (RFC 3590).
                    self.join_groups(number, now);
                }
            } else {
                let is_sent = self.probe(io, number, address);
                let pause = if is_sent { RETRANSMIT_NS } else { FULL_NS };
                self.probes.probes[index] = Probe { is_sent, at: now + pause, ..self.probes.probes[index] };
            }
            self.next_vectors.make_room(io, 1);
        }
        let addresses = self.resolver.domain.addresses();
        self.probes.probes.retain(|probe| addresses.is_barred(probe.number, probe.address));
    }

    /// Gives up an address that another station has.
    #[cold]
    pub(super) fn found_duplicate(&mut self, io: &Io<Self>, number: u16, address: Ipv6Addr, station: MacAddr) {
        let domain = Arc::clone(&self.resolver.domain);
        domain.addresses().set(number, address, AddressState::Duplicate);
        self.probes.probes.retain(|probe| (probe.number, probe.address) != (number, address));
        if !address.is_unicast_link_local() {
            self.probes.duplicates.push(address);
        }
        self.leave_groups(number, io.now());
        io.count(Nd::DUPLICATES, 1);
        self.tell_claim(io, number, address, station, "the router does not use it");
    }

    /// Logs that a station claims an address of the router that this uses.
    pub(super) fn keep_claimed(&mut self, io: &Io<Self>, number: u16, address: Ipv6Addr, station: MacAddr) {
        self.tell_claim(io, number, address, station, "the router uses it all the same");
    }

    fn tell_claim(&mut self, io: &Io<Self>, number: u16, address: Ipv6Addr, station: MacAddr, outcome: &str) {
        let domain = Arc::clone(&self.resolver.domain);
        let name = domain.tables().interface(number).map_or("", |interface| &interface.name);
        let claim = Claim { interface: (number, name), address: address.into(), station, outcome };
        self.conflicts.tell(claim, io.now());
    }

    /// Removes the routes that make duplicate addresses the router's own, unless another thread is changing the tables.
    pub(super) fn remove_duplicates(&mut self, io: &Io<Self>) {
        if self.probes.duplicates.is_empty() {
            return;
        }
        let domain = Arc::clone(&self.resolver.domain);
        let Some(mut tables) = domain.tables().try_lock() else { return io.wake_at(io.now() + RETRY_NS) };
        for address in self.probes.duplicates.drain(..) {
            tables.remove(IpPrefix::host(address.into()), Some(0));
        }
        if tables.commit().is_err() {
            // The next change commits it.
            warn!("no memory for the forwarding table: routes to duplicate addresses remain for now");
        }
    }
}
