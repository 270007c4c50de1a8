//! `vrf`: the interfaces, routes and neighbours of a router, shared by its apps.

mod listing;
mod neighbour_requests;
mod operator;
pub mod requests;
mod shown_route;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bellows_config::{Context, SettingError, SharedObject, Succession};
use bellows_engine::{Conversation, Status};
use bellows_vrf::interface::{InterfaceAddress, VlanTag};
use bellows_vrf::neighbours::NeighbourKey;
use bellows_vrf::route::RouteError;
use bellows_vrf::{Forgotten, IfExists, Interface, Origin, RouteSpec, Vrf};
use bellows_wire::{MacAddr, ndp};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::access_rules::Rule;
use crate::dispatch;
use crate::ipv6_link::{AddressState, AddressStates, Advertise, Advertised};
use crate::policy::{Policies, Policy, ReversePath};

/// A routing domain (*virtual routing and forwarding*): interfaces, routes, and neighbours.
///
/// The apps of a router name it with `vrf`: `ethernet-input`, `ip4-lookup`, `ip4-rewrite`, and so on. Networks on the
/// links of interfaces, and the interfaces' own addresses, have routes by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The interfaces by their names.
    pub interfaces: BTreeMap<String, InterfaceConfig>,

    /// Routes in the language of `ip route`: `"198.51.100.0/24 via 192.0.2.1"`, `"default via 192.0.2.1 dev lan metric 5"`,
    /// `"blackhole 203.0.113.0/24"`, with an IPv6 next hop `"198.51.100.0/24 via inet6 fe80::1 dev lan"`; with several ways `"198.51.100.0/24 nexthop via 192.0.2.1 nexthop via 192.0.2.2 weight
    /// 2"`.
    ///
    /// `"kernel:main"` in their place, or among them, follows a table of Linux' routes, by its name or number, through
    /// an app `kernel-routes`, which the app `router` has by itself.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany")]
    pub routes: Vec<String>,

    /// A text file with one more route on each line, plain or compressed with gzip. Empty lines and those that begin with
    /// `#` do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,

    /// The maximum number of neighbours that are learned, from 16 to 1,000,000. There is room for a quarter more, up to
    /// 16,384, which next hops of routes and neighbours that were entered always find.
    #[schemars(extend("x-unit" = "neighbours"), range(min = 16, max = 1000000))]
    pub neighbours: Neighbours,

    /// What the router has besides forwarding, such as the ends of tunnels: rules as those of `dispatch`, for packets whose
    /// destination is the router. The app `router` has a pair of ports `ip4-NAME` and `ip6-NAME` for those that lead to
    /// `NAME`, by the family of the packets: `[{ to = "tunnels", protocol = "l2tp" }]`. What it is given there is sent as
    /// the router's own. Packets of a service that is not linked are handled as if there were none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<dispatch::Rule>,

    /// The network namespace of the host's devices and routes: a name of `ip netns`, or a path such as
    /// `/proc/PID/ns/net`. By default that of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_namespace: Option<PathBuf>,
}

/// A number of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Neighbours(u32);

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours(50_000)
    }
}

const NEIGHBOURS: std::ops::RangeInclusive<u32> = 16..=1_000_000;

/// An interface of a router: a port, or a VLAN of one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its Ethernet address.
    pub mac: String,

    /// Its IP addresses, each with the length of the prefix on its link: `["192.0.2.1/24", "2001:db8::1/64"]`. With an IPv6
    /// address and no link-local one, it has the link-local address that `mac` stands for (RFC 4291, appendix A).
    #[serde(default)]
    pub addresses: Vec<String>,

    /// The longest IP packet that it sends, from 68 bytes; an interface with an IPv6 address needs 1,280 or more.
    #[serde(default = "default_mtu")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68, max = 65535))]
    pub mtu: u16,

    /// The port that its frames come from and go to, if that has another name than the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,

    /// The VLAN of its frames, from 1 to 4,094. Without one, frames have no tag, or one of VLAN 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,

    /// The provider's VLAN around `vlan` (IEEE 802.1ad), from 1 to 4,094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub service_vlan: Option<u16>,

    /// Neighbours whose Ethernet addresses are known: `{ "192.0.2.7" = "02:00:00:00:00:07" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbours: BTreeMap<String, String>,

    /// Router advertisements, by which hosts on the link configure themselves (RFC 4861). Without it, none are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,

    /// Whether senders on the link are told when another station there is a better first hop: ICMP redirects (RFC 1812,
    /// section 5.2.7.2; RFC 4861, section 8).
    #[serde(default = "yes")]
    pub redirects: bool,

    /// The name of a TAP device, of at most 15 bytes, through which the host's network stack sends and receives on this
    /// interface. The app `router` creates it with the interface's addresses and MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,

    /// What the sources of packets must be (RFC 3704), checked by `ip4-reverse-path` and `ip6-reverse-path`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reverse_path: ReversePath,

    /// Rules for IP packets that come in, checked by `access-list`: `["permit tcp port 22", "reject udp", "deny"]`. The
    /// first one that matches counts; packets that match none are denied. Without rules all pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_in: Vec<String>,

    /// Rules of the same kind for IP packets that are routed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_out: Vec<String>,
}

fn yes() -> bool {
    true
}

/// A text, or a list of them.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "this must be a route, or a list of routes")]
#[schemars(inline)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    })
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The beginning of a text that names a table of the kernel among routes.
pub(crate) const KERNEL: &str = "kernel:";

fn default_mtu() -> u16 {
    1500
}

/// The minimum MTU of IPv6 (RFC 8200, section 5).
const MIN_MTU_V6: u16 = 1280;

/// The longest file of routes: some 4 million.
const MAX_FILE: u64 = 256 << 20;

/// Names that ports of rewriting apps cannot have, because other outputs have them.
pub(crate) const RESERVED: [&str; 4] = ["error", "resolve", "fragment", "resolve6"];

/// The output of `nd` for IPv4 packets whose senders are to be told.
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
    /// The states of those who resolve neighbours.
    resolvers: Mutex<Vec<Weak<dyn Status>>>,
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

    /// Whether all is the same as in another domain but interfaces, routes and neighbours.
    fn has_settings_of(&self, other: &RoutingDomain) -> bool {
        (&self.advertised, &self.redirects, &self.policies) == (&other.advertised, &other.redirects, &other.policies)
    }

    /// What the interfaces have besides their addresses.
    #[inline]
    pub(crate) fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The neighbours that those who resolve them are to forget.
    pub(crate) fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// Adds one who resolves neighbours, and whose state has a list `neighbours`.
    pub(crate) fn add_resolver(&self, status: Weak<dyn Status>) {
        let mut resolvers = self.resolvers.lock().unwrap_or_else(PoisonError::into_inner);
        resolvers.retain(|known| known.strong_count() > 0);
        resolvers.push(status);
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

    /// The neighbours that were learned, as those who resolve them show them.
    fn learned(&self) -> Vec<Value> {
        let resolvers = self.resolvers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lists = resolvers.iter().filter_map(Weak::upgrade).map(|resolver| resolver.status()["neighbours"].take());
        lists.filter_map(|list| list.as_array().cloned()).flatten().collect()
    }

    /// The tables.
    #[inline(always)]
    pub fn tables(&self) -> &Vrf {
        &self.vrf
    }
}

impl SharedObject for RoutingDomain {
    const NAME: &'static str = "vrf";
    type Config = Config;

    fn configure(config: Config, context: &Context) -> Result<RoutingDomain, SettingError> {
        let count = config.neighbours.0;
        if !NEIGHBOURS.contains(&count) {
            let help = format!("give a number from {} to {}", NEIGHBOURS.start(), NEIGHBOURS.end());
            return Err(SettingError::at("neighbours", format!("a table of {count} neighbours is impossible"), help));
        }
        let (mut interfaces, mut advertised) = (Vec::new(), Vec::new());
        let policies = read_policies(&config.interfaces)?;
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
            for (address, mac) in &interface.neighbours {
                let wrong = |message: String, help: &str| SettingError::at("interfaces", message, help).in_entry(name);
                let address: IpAddr = address.parse().map_err(|_| {
                    wrong(
                        format!("`{address}` in `neighbours` is not an IP address"),
                        "write, for example, \"192.0.2.7\"",
                    )
                })?;
                let mac = read_mac(mac).map_err(|message| wrong(message, "correct it in `neighbours`"))?;
                changes
                    .enter_neighbour((number, address), mac, Origin::Static)
                    .map_err(|error| wrong(error.to_string(), "give larger `neighbours`"))?;
            }
        }
        for (place, text) in config.routes.iter().enumerate() {
            enter(&mut changes, text).map_err(|error| {
                let message = format!("route {}, `{text}`: {}", place + 1, error.message);
                SettingError::at("routes", message, error.help).in_item(place).in_text(error.range)
            })?;
        }
        if let Some(path) = &config.file {
            let text = context.read_text_up_to("file", path, MAX_FILE)?;
            for (line, text) in (1..).zip(text.lines().map(str::trim)) {
                if text.is_empty() || text.starts_with('#') {
                    continue;
                }
                enter(&mut changes, text).map_err(|error| {
                    let message = format!("`{}`, line {line}, `{text}`: {}", path.display(), error.message);
                    SettingError::at("file", message, error.help)
                })?;
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

fn interface_advertise(config: &InterfaceConfig, interface: &Interface) -> Result<Option<Advertised>, SettingError> {
    config.advertise.as_ref().map(|advertise| advertise.read(interface)).transpose()
}

/// Reads what interfaces have besides their addresses.
fn read_policies(interfaces: &BTreeMap<String, InterfaceConfig>) -> Result<Vec<Policy>, SettingError> {
    let mut policies: Vec<Policy> = Vec::new();
    for (name, interface) in interfaces {
        let wrong = |message: String, help: &str| SettingError::at("interfaces", message, help).in_entry(name);
        if let Some(host) = &interface.host {
            check_device(host)
                .map_err(|message| wrong(message, "give `host` a name of at most 15 bytes, like lan0"))?;
            if policies.iter().any(|policy| policy.host.as_ref() == Some(host)) {
                return Err(wrong(format!("two interfaces have the `host` device `{host}`"), "give each its own"));
            }
        }
        let read = |rules: &[String], key: &str| -> Result<Vec<Rule>, SettingError> {
            let rule = |(place, text): (usize, &String)| {
                Rule::parse(text).map_err(|error| {
                    let at = match text.get(error.range.clone()) {
                        None | Some("") => String::new(),
                        Some(part) => format!(", at `{part}`"),
                    };
                    wrong(format!("rule {} of `{key}`, `{text}`{at}: {}", place + 1, error.message), &error.help)
                })
            };
            rules.iter().enumerate().map(rule).collect()
        };
        policies.push(Policy {
            host: interface.host.clone(),
            reverse_path: interface.reverse_path,
            access_in: read(&interface.access_in, "access_in")?,
            access_out: read(&interface.access_out, "access_out")?,
        });
    }
    Ok(policies)
}

/// Whether a network device can have a name.
fn check_device(name: &str) -> Result<(), String> {
    let is_name = (1..=MAX_DEVICE).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.chars().all(|character| character.is_ascii_graphic() && !matches!(character, '/' | ':' | '%'));
    if is_name { Ok(()) } else { Err(format!("`{name}` cannot be a device's name")) }
}

/// The longest name of a network device, bytes.
const MAX_DEVICE: usize = bellows_sys::tap::MAX_NAME;

/// Enters a route.
fn enter(changes: &mut bellows_vrf::VrfChanges<'_>, text: &str) -> Result<(), RouteError> {
    if text.starts_with(KERNEL) {
        return Err(RouteError {
            message: "an app follows a table of the kernel".to_owned(),
            help: "add an app `kernel-routes`, or use the app `router`, which has one".to_owned(),
            range: 0..text.len(),
        });
    }
    let route = RouteSpec::parse(text)?;
    changes.add(&route, IfExists::Refuse).map_err(|error| RouteError {
        message: error.to_string(),
        help: "correct the route, or the interfaces".to_owned(),
        range: 0..text.len(),
    })
}

impl InterfaceConfig {
    fn read(&self, name: &str) -> Result<Interface, SettingError> {
        let wrong = |message: String, help: &str| SettingError::at("interfaces", message, help);
        let mac = read_mac(&self.mac)
            .map_err(|message| wrong(message, "give `mac` a unicast address like 02:00:00:00:00:01"))?;
        let mut addresses = Vec::new();
        for text in &self.addresses {
            addresses.push(read_address(text).ok_or_else(|| {
                let help = "write an address and the bits of the prefix on the link: \"192.0.2.1/24\"";
                wrong(format!("`{text}` in `addresses` is not an interface's address"), help)
            })?);
        }
        let is_link_local =
            |own: &InterfaceAddress| matches!(own.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let has_v6 = addresses.iter().any(|own| own.address.is_ipv6());
        if has_v6 && !addresses.iter().any(is_link_local) {
            addresses.push(InterfaceAddress { address: ndp::link_local(mac).into(), length: 64 });
        }
        if self.mtu < 68 || has_v6 && self.mtu < MIN_MTU_V6 {
            return Err(wrong(
                format!("an `mtu` of {} is too small", self.mtu),
                "give 68 or more, and 1280 or more for an interface with an IPv6 address",
            ));
        }
        let port = self.port.clone().unwrap_or_else(|| name.to_owned());
        if RESERVED.contains(&port.as_str()) || [HOST, ERROR4].contains(&port.as_str()) {
            return Err(wrong(format!("a port cannot have the name `{port}`"), "give another `port`"));
        }
        let vlans = [(0x88a8, self.service_vlan), (0x8100, self.vlan)];
        let tags: Vec<VlanTag> =
            vlans.into_iter().filter_map(|(protocol, id)| Some(VlanTag { protocol, id: id? })).collect();
        if let Some(tag) = tags.iter().find(|tag| !(1..=4094).contains(&tag.id)) {
            return Err(wrong(format!("there is no VLAN {}", tag.id), "give a number from 1 to 4094"));
        }
        if self.service_vlan.is_some() && self.vlan.is_none() {
            return Err(wrong("`service_vlan` is around no `vlan`".to_owned(), "give `vlan` as well"));
        }
        Ok(Interface { name: name.to_owned(), port, mac, mtu: self.mtu, tags, addresses })
    }
}

/// The Ethernet address of a station.
fn read_mac(text: &str) -> Result<MacAddr, String> {
    let mac: MacAddr = text.parse().map_err(|error| format!("{error}"))?;
    match mac.is_station() {
        true => Ok(mac),
        false if mac == MacAddr::default() => Err(format!("{text} is the address of no station")),
        false => Err(format!("{text} is a multicast address")),
    }
}

/// An address and the length of its prefix.
fn read_address(text: &str) -> Option<InterfaceAddress> {
    let (address, length) = text.split_once('/')?;
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let is_possible = match address {
        IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_unspecified() && !v4.is_broadcast() && !v4.is_loopback(),
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unspecified() && !v6.is_loopback(),
    };
    ((1..=bits).contains(&length) && is_possible).then_some(InterfaceAddress { address, length })
}

impl Status for RoutingDomain {
    fn status(&self) -> Value {
        let changes = self.vrf.lock();
        let interfaces: serde_json::Map<String, Value> = self
            .vrf
            .interfaces()
            .iter()
            .map(|interface| {
                let addresses: Vec<String> =
                    interface.addresses.iter().map(|own| format!("{}/{}", own.address, own.length)).collect();
                let tags: Vec<u16> = interface.tags.iter().map(|tag| tag.id).collect();
                let value = json!({
                    "port": interface.port,
                    "vlans": tags,
                    "mac": interface.mac.to_string(),
                    "mtu": interface.mtu,
                    "addresses": addresses,
                });
                (interface.name.clone(), value)
            })
            .collect();
        let (v4, v6) = changes.sizes();
        let duplicates: Vec<Value> = self
            .addresses
            .all(AddressState::Duplicate)
            .into_iter()
            .map(|(number, address)| {
                let name = self.vrf.interface(number).map(|interface| interface.name.as_str());
                json!({ "interface": name, "address": address.to_string() })
            })
            .collect();
        json!({
            "interfaces": interfaces,
            "duplicate_addresses": duplicates,
            "routes": { "ipv4": v4.routes, "ipv6": v6.routes },
            "memory": v4.bytes + v6.bytes,
            "adjacencies": self.vrf.adjacencies().used(),
            "capacity": self.vrf.adjacencies().capacity(),
        })
    }

    fn converse(self: Arc<Self>) -> Option<Box<dyn Conversation>> {
        Some(Box::new(operator::Operator::new(self)))
    }
}
