//! `esp`: IPsec's data plane, security associations that seal and open IP packets.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs`, `secret.rs` | the keys of its table |
//! | `plan.rs` | one direction of a pair, read and ready to be used |
//! | `keyring.rs` | the associations in use, and how they are replaced |
//! | `register.rs`, `records.rs`, `ivs.rs` | which keys this process has used, how far, and the files that keep it over restarts |
//! | `pair.rs`, `inner.rs`, `selectors.rs` | headers around what is protected, clear packets, networks |
//! | `seal.rs`, `open.rs` | the hot path in both directions |
//! | `changes.rs` | the events of keys |
//! | `exceeding.rs` | packets that are longer than their path's MTU, and what is learned of it |
//! | `upkeep.rs` | what depends on time: lifetimes, keepalives, old keys, the published state |
//! | `requests.rs` | the state that is shown, and new keys by command |
//!
//! Packets are sealed and opened where they are. Their sequence numbers are in the order in which they are sent.

mod changes;
pub mod config;
mod exceeding;
mod inner;
mod ivs;
mod keyring;
mod open;
mod pair;
mod plan;
mod records;
pub mod register;
mod requests;
mod seal;
mod secret;
mod selectors;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bellows_common::nexts::{NextVectors, UNUSUAL};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, OutputSchema, SettingError};
use bellows_engine::{App, AppError, Counters, DropReason, Io, Ports, Status, counters};
use bellows_packet::{CAPACITY, Vector};
use bellows_sys::stack;
use bellows_wire::IpPair;

pub use config::Config;
pub use requests::{PairState, Rekeyed, Request};
pub use secret::Secret;

use changes::{By, Changes};
use config::{Association, Direction};
use exceeding::Exceeding;
use keyring::{Keyring, Plans};
use pair::{Learned, Pair};
use plan::{AssociationPlan, Way};
use register::Claim;
use requests::{EspShared, EspStatus};

use crate::path_mtu::Bounds;
use crate::tunnel::{Ends, Entries, PortKind, Wires};

/// Seals and opens packets.
pub struct Esp {
    name: String,
    /// The pairs, in the order of their names, as the configuration has them.
    names: Vec<String>,
    associations: Vec<(IpPair, Association)>,
    bounds: Bounds,
    pairs: Vec<Pair>,
    /// Those between the same ends.
    by_ends: HashMap<IpPair, Vec<usize>>,
    /// What a predecessor has learned of the ways to other ends.
    learned: BTreeMap<String, Learned>,
    exceeding: Exceeding,
    /// The place of each pair by the number of its identity.
    places: Vec<u16>,
    /// What is put into the keyring at the start.
    plans: BTreeMap<String, Plans>,
    grace: u64,
    keyring: Keyring,
    /// Keys that were claimed for this app at its start.
    claimed: Vec<Claim>,
    changes: Changes,
    shared: Arc<EspShared>,
    /// When the state is published.
    next_publication: u64,
    /// The pairs of which no packet was authentic, as reported.
    failing: BTreeSet<String>,
    /// The ports of UDP to which packets come.
    udp_ports: BTreeSet<u16>,
    wires: Wires,
    next_vectors: NextVectors,
    segments: Vector,
    reasons: Vec<DropReason<Esp>>,
}

/// The key of the pairs.
const ASSOCIATIONS: Entries = Entries { key: "associations", one: "pair" };

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

counters! { Esp;
    drop MALFORMED = "malformed", "packets whose headers are not whole, or say that the packet is longer than it is; packets of ESP that are too short or not aligned";
    drop FRAGMENT = "fragment", "fragments: of packets of ESP, which `reassemble` has to put together first, or to be sealed in transport mode; likely: a link on the way is shorter than the packets; set `mtu`, or link `reassemble` in front";
    drop OTHER_PROTOCOL = "other_protocol", "packets of another protocol or to another UDP port; likely: the rule of `dispatch` or `services` that leads here says too little, or `udp` is missing here";
    drop NO_ASSOCIATION = "no_association", "packets with the SPI of no association, or of one between other addresses or with another encapsulation; likely: the ends do not agree on SPIs or addresses, one has replaced keys, or only one has `udp`";
    drop REPLAYED = "replayed", "packets whose sequence number was seen before; likely, if all are: the other end was restarted with old keys and counts from 1 again; give both new keys";
    drop TOO_OLD = "too_old", "packets whose sequence number is below the replay window; with ESN they are taken for much later ones, and are `bad_icv`; likely, if all are: the other end was restarted with old keys; give both new ones; if few are: `window` is too small";
    drop BAD_ICV = "bad_icv", "packets that the other end has not sealed, or that were changed on the way; likely, if all are: the ends do not agree on `esn` (by default true here, and false on Linux), key, salt or algorithm";
    drop BAD_PADDING = "bad_padding", "authentic packets whose padding is wrong: the other end is at fault";
    drop BAD_PAYLOAD = "bad_payload", "authentic packets of a tunnel that carry no whole packet of IPv4 or IPv6; likely, if all are: the other end has transport mode";
    drop BAD_SELECTOR = "bad_selector", "packets, to send or received, with addresses that their pair does not carry; likely: `local_networks` or `remote_networks` lack them";
    drop BAD_ECN = "bad_ecn", "packets of a tunnel that met congestion and carry one whose sender cannot learn of it (RFC 6040)";
    drop LIFETIME = "lifetime", "packets beyond a hard limit of their keys; give both ends new keys, or raise `hard`";
    drop SEQUENCE_EXHAUSTED = "sequence_exhausted", "packets to send for which their key has no sequence number left; give both ends new keys, or use `esn`";
    drop TOO_SHORT = "too_short", "packets to send without a whole Ethernet header";
    drop NOT_IP = "not_ip", "packets to send that are not IP";
    drop TOO_BIG = "too_big", "packets to send that are too long, with what ESP adds, for the path's MTU or for a packet of IP, and must not be fragmented; likely: the senders do not hear ICMP errors; lower the MTU of their link";
    drop NO_ROOM = "no_room", "packets in whose buffers there is no room for what ESP puts in front and behind";
    drop BAD_OFFLOAD = "bad_offload", "packets whose checksum or segmentation was left to this app and cannot be done";
    drop NO_MEMORY = "no_memory", "packets that were to be segmented while no buffer was free";
    drop UNKNOWN_PORT = "unknown_port", "packets from inputs, or to outputs, that are not linked, or do not have the name of a pair, `ip4` or `ip6`";
    drop BAD_ERROR = "bad_icmp_error", "ICMP errors about packets that no pair has sent, or that cannot be true";
    asked drop TOLD = "told_path_mtu", "ICMP errors that tell the MTU of a pair's path";
    asked drop DUMMY = "dummy", "packets without contents, which hide the pattern of traffic (next header 59)";
    asked drop KEEPALIVE = "keepalive", "keepalives of other ends (RFC 3948)";
    asked drop IKE = "ike", "messages of IKE, which is not here";
    count UNMADE = "unmade", "packets of its own, such as keepalives, that were not made because the pool had no buffer";
    count SEGMENTED = "segmented", "packets that were segmented before they were sealed (GSO)";
    count FRAGMENTED = "fragmented", "packets that were longer than the path's MTU and were fragmented";
    count TOO_BIG_SENT = "too_big_sent", "ICMP errors that told a sender that its packet is too long for the path";
    count KEEPALIVES_SENT = "keepalives_sent", "keepalives sent";
    count PORT_MOVED = "port_moved", "changes of the UDP port of other ends, which packets are then sent to", in "changes";
    count SOFT_LIMITS = "soft_limits", "associations that have reached a soft limit", in "associations";
    count REKEYED = "rekeyed", "associations replaced by a command", in "associations";
}

impl App for Esp {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "`ip4` and `ip6`, and the names of pairs" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "`ip4` and `ip6`, and the names of pairs" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 2;

    fn push(&mut self, io: &Io<Self>) {
        if self.wires.inputs.len() != io.inputs() {
            self.rewire(io);
        }
        for index in 0..self.wires.inputs.len() {
            let kind = self.wires.inputs[index];
            match kind {
                PortKind::Transport { .. } => self.open_all(io, index),
                PortKind::Session(place) => self.seal_all(io, index, place),
                PortKind::Unknown => io.drop_all(&mut io.input(index), Self::UNKNOWN_PORT),
            }
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        if self.changes.take_lost_key() {
            // From here, because this thread has computed with the key in frames as shallow as this one.
            stack::wipe();
        }
        self.rewire(io);
        self.keep_up(io);
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old {
            std::mem::swap(&mut self.keyring, &mut old.keyring);
            std::mem::swap(&mut self.changes, &mut old.changes);
            std::mem::swap(&mut self.shared, &mut old.shared);
            let prepared = self.keyring.prepare(&self.plans);
            self.claimed = prepared.inspect_err(|_| self.give_back(old))?;
            self.learned = old.names.iter().cloned().zip(old.pairs.iter().map(Pair::learned)).collect();
        } else {
            self.claimed = self.keyring.prepare(&self.plans)?;
        }
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        self.keyring.give_back(std::mem::take(&mut self.claimed));
        std::mem::swap(&mut self.keyring, &mut old.keyring);
        std::mem::swap(&mut self.changes, &mut old.changes);
        std::mem::swap(&mut self.shared, &mut old.shared);
    }

    fn begin(&mut self) {
        self.claimed.clear();
        self.keyring.associations.set_grace(self.grace);
        let before = changes::specs(&self.keyring);
        self.keyring.put(std::mem::take(&mut self.plans));
        self.changes.note(By::Reload, &before, &self.keyring);
        stack::wipe();
        self.make_pairs();
    }

    fn stop(&mut self) -> Result<(), AppError> {
        // Of an app that has not begun.
        self.keyring.give_back(std::mem::take(&mut self.claimed));
        stack::wipe();
        Ok(())
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(Arc::clone(&self.shared) as Arc<dyn Status>)
    }
}

impl Esp {
    /// Makes the headers of the pairs, whose associations are there.
    fn make_pairs(&mut self) {
        self.places.clear();
        self.pairs.clear();
        self.by_ends.clear();
        let learned = std::mem::take(&mut self.learned);
        for (name, (addresses, association)) in self.names.iter().zip(&self.associations) {
            let Some(running) = self.keyring.running.get(name) else { continue };
            // Values were checked by `configure`.
            let Ok(mut pair) = Pair::new(running.id, *addresses, association, self.bounds) else { continue };
            pair.take_over(learned.get(name));
            self.by_ends.entry(*addresses).or_default().push(self.pairs.len());
            let number = running.id.number() as usize;
            if self.places.len() <= number {
                self.places.resize(number + 1, UNUSUAL);
            }
            self.places[number] = self.pairs.len() as u16;
            self.pairs.push(pair);
        }
        debug_assert_eq!(self.pairs.len(), self.names.len());
    }

    /// Finds the ports.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        self.wires = Wires::find(io, &self.names);
        self.next_vectors.resize(io.outputs());
    }
}

impl Configure for Esp {
    const NAME: &'static str = "esp";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<EspStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let keys = "local = \"2001:db8::1\", associations = { in-0 = { remote = \"2001:db8::2\", \
                    inbound = { spi = 0x1001, algorithm = \"aes-128-gcm\", key = \"1111111111111111111111111111111101020304\" }, \
                    outbound = { spi = 0x1002, algorithm = \"aes-128-gcm\", key = \"2222222222222222222222222222222201020304\" } } }";
        BenchSetup::Rows(vec![BenchRow {
            label: "into a tunnel",
            keys: keys.to_owned(),
            inputs: &["in-0"],
            outputs: &["ip6"],
            ..BenchRow::default()
        }])
    }

    fn check_outputs(config: &Config, outputs: &[&str]) -> Result<(), SettingError> {
        ASSOCIATIONS.check_outputs(&config.associations, outputs)
    }

    fn configure(config: Config, context: &Context) -> Result<Esp, SettingError> {
        ASSOCIATIONS.check(&config.associations)?;
        let grace = u64::from(config.grace_seconds) * SECOND;
        let mut esp = Esp::empty(context.app.clone(), grace, config.bounds());
        for (name, mut association) in config.associations {
            let at = |error: SettingError| error.in_entry(&*name);
            let ends = Ends { local: association.local.as_deref(), remote: &association.remote };
            let addresses = ends.read(ASSOCIATIONS, &name, config.local.as_deref())?;
            let read_secret = |path: &std::path::Path| context.read_secret("associations", path);
            let plan = |direction: &Direction, way: Way| {
                if direction.key.is_some() {
                    context.note_secret("associations", &[&name, way.key(), "key"]);
                }
                AssociationPlan::read(direction, way, &read_secret).map_err(|error| at(error.in_entry(way.key())))
            };
            let Association { inbound, outbound, .. } = &association;
            let plans = Plans { inbound: plan(inbound, Way::Inbound)?, outbound: plan(outbound, Way::Outbound)? };
            // The ciphers have the keys from here on.
            (association.inbound.key, association.outbound.key) = (None, None);
            esp.check(&name, &plans).map_err(at)?;
            Pair::check(&association).map_err(at)?;
            esp.udp_ports.extend(association.udp.map(|udp| udp.local_port));
            esp.plans.insert(name.clone(), plans);
            esp.associations.push((addresses, association));
            esp.names.push(name);
        }
        esp.bounds.check(esp.associations.iter().any(|(ends, _)| matches!(ends, IpPair::V6 { .. })))?;
        Ok(esp)
    }
}

impl Esp {
    fn empty(name: String, grace: u64, bounds: Bounds) -> Esp {
        Esp {
            name,
            names: Vec::new(),
            associations: Vec::new(),
            bounds,
            pairs: Vec::new(),
            by_ends: HashMap::new(),
            learned: BTreeMap::new(),
            exceeding: Exceeding::new(),
            places: Vec::new(),
            plans: BTreeMap::new(),
            grace,
            keyring: Keyring::new(grace),
            claimed: Vec::new(),
            changes: Changes::default(),
            shared: Arc::default(),
            next_publication: 0,
            failing: BTreeSet::new(),
            udp_ports: BTreeSet::new(),
            wires: Wires::default(),
            next_vectors: NextVectors::new(),
            segments: Vector::new(),
            reasons: Vec::with_capacity(CAPACITY),
        }
    }

    /// Checks that no other pair has a key of this one, or receives with its SPI.
    fn check(&self, name: &str, plans: &Plans) -> Result<(), SettingError> {
        let keys = |plans: &Plans| [plans.inbound.spec.fingerprint, plans.outbound.spec.fingerprint];
        let own = keys(plans);
        let help = "a key is for one direction of one pair: packets of two with the same number would give away what they carry";
        if own[0] == own[1] {
            return Err(SettingError::at("associations", "both directions have the same key", help));
        }
        for (other, others) in &self.plans {
            if keys(others).iter().any(|key| own.contains(key)) {
                let message = format!("the pairs `{other}` and `{name}` have a key in common");
                return Err(SettingError::at("associations", message, help));
            }
            if others.inbound.spec.spi == plans.inbound.spec.spi {
                let message = format!("the pairs `{other}` and `{name}` receive with the same SPI");
                return Err(SettingError::at(
                    "associations",
                    message,
                    "choose another SPI for `inbound`, here and at the other end",
                ));
            }
        }
        Ok(())
    }
}
