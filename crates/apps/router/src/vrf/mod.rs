//! `vrf`: the interfaces, routes and neighbours of a router, shared by its apps.

pub mod answers;
mod config;
mod listing;
mod neighbour_requests;
mod operator;
mod reading;
pub mod requests;
pub(crate) mod resolved;
mod shown_route;

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bellows_config::{ByName, Context, OutputSchema, SettingError, SharedObject, Succession};
use bellows_engine::{Conversation, Status};
use bellows_vrf::neighbours::NeighbourKey;
use bellows_vrf::{Forgotten, Interface, Origin, Vrf};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

pub use self::config::KERNEL;
use self::config::NEIGHBOURS;
pub use self::config::{Config, InterfaceConfig, Neighbours};
use self::reading::{check_links, enter, enter_all, interface_advertise, read_neighbour, read_policies};
use self::resolved::{ResolvedNeighbour, Shown};
use crate::ipv6_link::{AddressState, AddressStates, Advertised};
use crate::policy::{Policies, Policy};

/// The longest file of routes: some 4 million.
const MAX_FILE: u64 = 256 << 20;

/// Names that ports of rewriting apps cannot have, because other outputs have them.
pub(crate) const RESERVED: [&str; 6] = ["error", "resolve", "fragment", "resolve6", "unusual", "to-router"];

/// The output of `nd` for IPv4 packets whose senders are to get an ICMP error.
pub(crate) const ERROR4: &str = "error4";

/// The output of `arp` for the host.
pub(crate) const HOST: &str = "host";

/// The interfaces, routes and neighbours of a router.
pub struct RoutingDomain {
    vrf: Vrf,
    addresses: AddressStates,
    /// What the interfaces advertise, by their numbers from 1 on.
    advertised: Vec<Option<Advertised>>,
    /// Whether senders on the links of interfaces are redirected.
    redirects: Vec<bool>,
    policies: Policies,
    forgotten: Forgotten,
    /// What the resolvers (`arp` and `nd`) know of neighbours.
    resolvers: Mutex<Vec<Weak<Shown>>>,
}

impl RoutingDomain {
    /// A routing domain with these tables.
    pub fn new(vrf: Vrf) -> RoutingDomain {
        let addresses = AddressStates::new(vrf.interfaces());
        RoutingDomain {
            vrf,
            addresses,
            advertised: Vec::new(),
            redirects: Vec::new(),
            policies: Policies::default(),
            forgotten: Forgotten::default(),
            resolvers: Mutex::default(),
        }
    }

    /// The domain whose interfaces send these router advertisements.
    #[must_use]
    pub fn advertising(self, advertised: Vec<Option<Advertised>>) -> RoutingDomain {
        RoutingDomain { advertised, ..self }
    }

    /// The domain that redirects senders on the links of these interfaces, by their numbers from 1 on.
    #[must_use]
    pub fn redirecting(self, redirects: Vec<bool>) -> RoutingDomain {
        RoutingDomain { redirects, ..self }
    }

    /// Whether senders on an interface's link are redirected.
    pub fn redirects(&self, number: u16) -> bool {
        usize::from(number).checked_sub(1).and_then(|index| self.redirects.get(index)).is_some_and(|&is_on| is_on)
    }

    /// The states of the interfaces' IPv6 addresses.
    pub fn addresses(&self) -> &AddressStates {
        &self.addresses
    }

    /// The router advertisements of an interface.
    pub fn advertised(&self, number: u16) -> Option<&Advertised> {
        self.advertised.get(usize::from(number).checked_sub(1)?)?.as_ref()
    }

    /// The numbers of interfaces that a key names.
    pub(crate) fn numbers(&self, key: &'static str, vrf: &str, names: &[String]) -> Result<Vec<u16>, SettingError> {
        let number = |name: &String| {
            self.vrf.number(name).ok_or_else(|| {
                let message = format!("`{vrf}` has no interface `{name}`");
                SettingError::at(key, message, "give names of interfaces")
            })
        };
        names.iter().map(number).collect()
    }

    /// A routing domain whose interfaces have these policies, the first that of number 1.
    pub(crate) fn with_policies(vrf: Vrf, policies: Vec<Policy>) -> RoutingDomain {
        RoutingDomain { policies: Policies::new(policies), ..RoutingDomain::new(vrf) }
    }

    /// The domain, whose interfaces have these policies.
    #[cfg(test)]
    pub(crate) fn with_policies_of(self, policies: Vec<Policy>) -> Arc<RoutingDomain> {
        Arc::new(RoutingDomain { policies: Policies::new(policies), ..self })
    }

    /// Whether all is the same as in another domain but interfaces, routes and neighbours.
    fn has_settings_of(&self, other: &RoutingDomain) -> bool {
        (&self.advertised, &self.redirects, &self.policies) == (&other.advertised, &other.redirects, &other.policies)
    }

    /// What the interfaces have besides their addresses.
    #[inline]
    pub(crate) fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The neighbours that `arp` and `nd` are to forget.
    pub(crate) fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// Registers what a resolver (`arp` or `nd`) knows of neighbours.
    pub(crate) fn add_resolver(&self, shown: Weak<Shown>) {
        let mut resolvers = self.resolvers.lock().unwrap_or_else(PoisonError::into_inner);
        resolvers.retain(|known| known.strong_count() > 0);
        resolvers.push(shown);
    }

    /// Follows a new configuration with the same interfaces.
    fn follow(&self, new: &Vrf) {
        let entered = || self.vrf.lock().permanent().map(|(key, ..)| key).collect::<HashSet<NeighbourKey>>();
        let before = entered();
        match self.vrf.follow(new) {
            Ok(done) => {
                tracing::info!(
                    "{} routes of the configuration are new or other ones, {} are gone",
                    done.changed,
                    done.removed
                );
                if done.lost > 0 {
                    tracing::error!(
                        "{} routes of the configuration could not be entered: there is no room for their next hops; \
                         give larger `neighbours`",
                        done.lost
                    );
                }
            }
            Err(error) => tracing::error!("not all routes of the configuration could be entered: {error}"),
        }
        // What was heard of them meanwhile has not reached the tables.
        let after = entered();
        self.forgotten.forget(before.difference(&after).copied());
    }

    /// The learned neighbours, as their resolvers show them.
    fn learned(&self) -> Vec<ResolvedNeighbour> {
        let resolvers = self.resolvers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        resolvers.iter().filter_map(Weak::upgrade).flat_map(|shown| shown.neighbours()).collect()
    }

    /// The tables.
    #[inline(always)]
    pub fn tables(&self) -> &Vrf {
        &self.vrf
    }
}

impl SharedObject for RoutingDomain {
    const NAME: &'static str = "vrf";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<RoutingDomainStatus>());
    type Config = Config;

    fn configure(config: Config, context: &Context) -> Result<RoutingDomain, SettingError> {
        let count = config.neighbours.0;
        if !NEIGHBOURS.contains(&count) {
            let help = format!("give a number from {} to {}", NEIGHBOURS.start(), NEIGHBOURS.end());
            return Err(SettingError::at("neighbours", format!("a table of {count} neighbours is impossible"), help));
        }
        let (mut interfaces, mut advertised) = (Vec::new(), Vec::new());
        let policies = read_policies(&config.interfaces, config.host_namespace.as_deref(), context)?;
        for (name, interface) in &config.interfaces {
            let interface = interface.read(name).map_err(|error| error.in_entry(name))?;
            let is_same = |other: &&Interface| (&other.port, &other.tags) == (&interface.port, &interface.tags);
            if let Some(other) = interfaces.iter().find(is_same) {
                let message = format!(
                    "the interfaces `{}` and `{name}` have the same frames of port `{}`",
                    other.name, interface.port
                );
                return Err(
                    SettingError::at("interfaces", message, "give one of them another `port` or `vlan`").in_entry(name)
                );
            }
            check_links(&interface, &interfaces).map_err(|error| error.in_entry(name))?;
            let advertise = interface_advertise(&config.interfaces[name], &interface);
            advertised.push(advertise.map_err(|error| error.in_entry(name))?);
            interfaces.push(interface);
        }
        let no_room = |error: bellows_vrf::VrfError| {
            SettingError::at("interfaces", error.to_string(), "give fewer interfaces, or larger `neighbours`")
        };
        let vrf = Vrf::new(interfaces, count as usize, fastrand::u32(..)).map_err(no_room)?;
        let mut changes = vrf.lock();
        for (name, interface) in &config.interfaces {
            let number = vrf.number(name).unwrap_or_default();
            let Some(link) = vrf.interface(number) else { continue };
            for (address, mac) in &interface.neighbours {
                let (address, mac) = read_neighbour(link, address, mac)?;
                changes.enter_neighbour((number, address), mac, Origin::Static).map_err(|error| {
                    SettingError::at("neighbours", error.to_string(), "give a larger number of them")
                })?;
            }
        }
        // Routes to links come first: routers of the others may be on them.
        let (others, links): (Vec<_>, Vec<_>) =
            config.routes.iter().enumerate().partition(|(_, text)| text.split_whitespace().any(|word| word == "via"));
        for (place, text) in links.into_iter().chain(others) {
            enter(&vrf, &mut changes, text).map_err(|error| {
                let message = format!("`{text}`: {}", error.message);
                SettingError::at("routes", message, error.help).in_item(place).in_text(error.range)
            })?;
        }
        if let Some(path) = &config.file {
            let text = context.read_text_up_to("file", path, MAX_FILE)?;
            if let Some(wrong) = enter_all(&vrf, &mut changes, &text).of_file(&context.path(path), text) {
                return Err(SettingError::in_file("file", wrong));
            }
        }
        changes.commit().map_err(no_room)?;
        drop(changes);
        let redirects = config.interfaces.values().map(|interface| interface.redirects).collect();
        Ok(RoutingDomain::with_policies(vrf, policies).advertising(advertised).redirecting(redirects))
    }

    fn take_over(self, running: &Arc<RoutingDomain>) -> Succession<RoutingDomain> {
        let (new, old) = (&self.vrf, &running.vrf);
        let is_same = new.interfaces() == old.interfaces() && self.has_settings_of(running);
        if is_same && new.adjacencies().capacity() == old.adjacencies().capacity() {
            let running = Arc::clone(running);
            return Succession::Change(Box::new(move || running.follow(&self.vrf)));
        }
        match self.vrf.inherit(old) {
            Ok(done) if done.lost > 0 => tracing::warn!(
                "{} routes and neighbours of commands are lost, because no interface has their next hops on its link",
                done.lost
            ),
            Ok(_) => {}
            Err(error) => tracing::error!("not all routes of commands could be kept: {error}"),
        }
        Succession::Object(self)
    }
}

/// The status of a routing domain.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `vrf`")]
struct RoutingDomainStatus {
    /// Its interfaces.
    interfaces: ByName<InterfaceStatus>,
    /// IPv6 addresses that other stations have, too.
    duplicate_addresses: Vec<DuplicateAddress>,
    /// The number of routes.
    routes: NumbersByFamily,
    /// The memory of the compiled tables in bytes.
    memory: usize,
    /// Adjacencies in use: next hops, each with its Ethernet header.
    adjacencies: usize,
    /// How many there can be.
    capacity: usize,
}

/// What the status says of an interface.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Interface of a routing domain")]
struct InterfaceStatus {
    /// Its port.
    port: String,
    /// Its VLANs, the outermost first.
    vlans: Vec<u16>,
    /// Its Ethernet address.
    mac: String,
    /// Its MTU.
    mtu: u16,
    /// Its IP addresses, with the lengths of their prefixes.
    addresses: Vec<String>,
}

/// An address that another station has.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Duplicate address")]
struct DuplicateAddress {
    /// The interface; null if a reload has removed it.
    interface: Option<String>,
    /// The address.
    address: String,
}

/// A number for each family.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Numbers by family")]
pub(crate) struct NumbersByFamily {
    /// Of IPv4.
    pub(crate) ipv4: usize,
    /// Of IPv6.
    pub(crate) ipv6: usize,
}

impl Status for RoutingDomain {
    fn status(&self) -> Value {
        let changes = self.vrf.lock();
        let interface = |interface: &Interface| InterfaceStatus {
            port: interface.port.clone(),
            vlans: interface.tags.iter().map(|tag| tag.id).collect(),
            mac: interface.mac.to_string(),
            mtu: interface.mtu,
            addresses: interface.addresses.iter().map(|own| format!("{}/{}", own.address, own.length)).collect(),
        };
        let (v4, v6) = changes.sizes();
        let duplicates = self.addresses.all(AddressState::Duplicate).into_iter();
        let duplicate = |(number, address): (u16, Ipv6Addr)| DuplicateAddress {
            interface: self.vrf.interface(number).map(|interface| interface.name.clone()),
            address: address.to_string(),
        };
        json!(RoutingDomainStatus {
            interfaces: self.vrf.interfaces().iter().map(|it| (it.name.as_str(), interface(it))).collect(),
            duplicate_addresses: duplicates.map(duplicate).collect(),
            routes: NumbersByFamily { ipv4: v4.routes, ipv6: v6.routes },
            memory: v4.bytes + v6.bytes,
            adjacencies: self.vrf.adjacencies().used(),
            capacity: self.vrf.adjacencies().capacity(),
        })
    }

    fn converse(self: Arc<Self>) -> Option<Box<dyn Conversation>> {
        Some(Box::new(operator::Operator::new(self)))
    }
}
