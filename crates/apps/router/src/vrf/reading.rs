//! What the keys of a routing domain say: interfaces, policies and routes, checked.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use bellows_common::addresses::{no_station, read_mac};
use bellows_config::{Context, SettingError, TextMistake, TextMistakes, nearest};
use bellows_filter::access::Site;
use bellows_netif::advertisements::Ignored;
use bellows_vrf::interface::{InterfaceAddress, VlanTag};
use bellows_vrf::route::{IpPrefix, RouteError};
use bellows_vrf::{IfExists, Interface, RouteSpec, Vrf, VrfChanges, VrfError};
use bellows_wire::{MacAddr, ndp};

use super::config::{InterfaceConfig, KERNEL, MIN_MTU_V6};
use super::operator::help_with;
use super::{ERROR4, HOST, RESERVED};
use crate::access_rules::{self, Rule, RuleError};
use crate::ipv6_link::Advertised;
use crate::policy::Policy;

/// An error in a key of an interface.
fn wrong(key: &str, message: impl Into<String>, help: &str) -> SettingError {
    SettingError::at("interfaces", message, help).in_entry(key)
}

pub(super) fn interface_advertise(
    config: &InterfaceConfig,
    interface: &Interface,
) -> Result<Option<Advertised>, SettingError> {
    config.advertise.as_ref().map(|advertise| advertise.read(interface)).transpose()
}

/// Reads what interfaces have besides their addresses.
pub(super) fn read_policies(
    interfaces: &BTreeMap<String, InterfaceConfig>,
    namespace: Option<&Path>,
    context: &Context,
) -> Result<Vec<Policy>, SettingError> {
    let mut policies: Vec<Policy> = Vec::new();
    for (name, interface) in interfaces {
        if let Some(host) = &interface.host {
            let wrong = |message: String, help: &str| wrong("host", message, help).in_entry(name);
            check_device(host)
                .map_err(|message| wrong(message, "give `host` a name of at most 15 bytes, like lan0"))?;
            if policies.iter().any(|policy| policy.host.as_ref() == Some(host)) {
                return Err(wrong(format!("two interfaces have the `host` device `{host}`"), "give each its own"));
            }
        }
        let read = |rules: &[String], key: &str, site: Site| -> Result<Vec<Rule>, SettingError> {
            let at = |place: usize, RuleError { message, help, range }: RuleError| {
                let error =
                    SettingError::at("interfaces", format!("`{}`: {message}", rules[place]), help).in_text(range);
                error.in_item(place).in_entry(key).in_entry(name)
            };
            let rule = |(place, text): (usize, &String)| Rule::parse(text).map_err(|error| at(place, error));
            let read = rules.iter().enumerate().map(rule).collect::<Result<Vec<Rule>, _>>()?;
            access_rules::warnings(&read, site).for_each(|(place, warning)| context.warn(at(place, warning)));
            Ok(read)
        };
        policies.push(Policy {
            host: interface.host.clone(),
            ignores_advertisements: interface.host.as_ref().map(|device| Ignored::of(namespace, device)),
            reverse_path: interface.reverse_path,
            access_in: read(&interface.access_in, "access_in", Site::Received)?,
            access_out: read(&interface.access_out, "access_out", Site::Sent)?,
            strict_neighbours: interface.strict_neighbours,
        });
    }
    Ok(policies)
}

/// A neighbour of an interface, as a key and its value name it.
///
/// # Errors
/// If it is no other station on the link.
pub(super) fn read_neighbour(link: &Interface, address: &str, mac: &str) -> Result<(IpAddr, MacAddr), SettingError> {
    let wrong = |message: String, help: &str| {
        SettingError::at("interfaces", message, help).in_entry(address).in_entry("neighbours").in_entry(&link.name)
    };
    let parsed = address.parse::<IpAddr>();
    let parsed =
        parsed.map_err(|_| wrong(format!("`{address}` is not an IP address"), "write, for example, \"192.0.2.7\""))?;
    let is_on_link = link.has_on_link(parsed) || matches!(parsed, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if !is_on_link {
        let message = format!("`{address}` is not on the link of `{}`", link.name);
        return Err(wrong(message, "give an address within a prefix of `addresses`"));
    }
    let mac = read_mac(mac).map_err(|message| wrong(message, "give a unicast address like 02:00:00:00:00:07"))?;
    Ok((parsed, mac))
}

/// Refuses a link that another interface has as well: packets to it would leave by one of them alone.
pub(super) fn check_links(interface: &Interface, others: &[Interface]) -> Result<(), SettingError> {
    for own in &interface.addresses {
        let link = IpPrefix::of(own.address, own.length);
        let is_same =
            |other: &InterfaceAddress| !is_link_local(own) && IpPrefix::of(other.address, other.length) == link;
        let Some(other) = others.iter().find(|other| other.addresses.iter().any(is_same)) else { continue };
        let message = format!(
            "the interfaces `{}` and `{}` have the same link, that of {}/{}",
            other.name, interface.name, own.address, own.length
        );
        return Err(wrong("addresses", message, "give each interface a prefix of its own"));
    }
    Ok(())
}

/// Whether a network device can have a name.
fn check_device(name: &str) -> Result<(), String> {
    let is_name = (1..=MAX_DEVICE).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.chars().all(|character| character.is_ascii_graphic() && !matches!(character, '/' | ':' | '%'));
    if is_name { Ok(()) } else { Err(format!("`{name}` cannot be a device's name")) }
}

/// The longest name of a network device, bytes.
const MAX_DEVICE: usize = bellows_netdev::tap::MAX_NAME;

/// The most interfaces that an error lists.
const MAX_LISTED: usize = 20;

/// Enters a route.
pub(super) fn enter(vrf: &Vrf, changes: &mut VrfChanges<'_>, text: &str) -> Result<(), RouteError> {
    if text.starts_with(KERNEL) {
        return Err(RouteError {
            message: "an app follows a table of the kernel".to_owned(),
            help: "add an app `kernel-routes`, or use the app `router`, which has one".to_owned(),
            range: 0..text.len(),
        });
    }
    if let Some((word, table)) = text.split_once(':')
        && nearest(word, [KERNEL.trim_end_matches(':')]).is_some()
    {
        return Err(RouteError {
            message: "this is no route".to_owned(),
            help: format!("did you mean `{KERNEL}{table}`?"),
            range: 0..text.len(),
        });
    }
    let route = RouteSpec::parse(text)?;
    changes.add(&route, IfExists::Refuse).map(drop).map_err(|error| {
        let advice = match (help_with(vrf, &error), &error) {
            (advice, VrfError::NoInterface(_)) if !advice.starts_with("did you mean") => {
                let names: Vec<&str> = vrf.interfaces().iter().take(MAX_LISTED).map(|link| &*link.name).collect();
                format!("the interfaces are `{}`", names.join("`, `"))
            }
            (advice, _) => advice,
        };
        // What follows from an error in `interfaces` is not reported.
        let help = match error.is_about_interfaces() {
            true if advice.is_empty() => "correct the route, or `interfaces`".to_owned(),
            false if advice.is_empty() => "correct the route".to_owned(),
            _ => advice,
        };
        RouteError { message: error.to_string(), help, range: error.place_in(text) }
    })
}

/// Enters the routes of a text, one on each line. Those that are wrong are left out.
pub(super) fn enter_all(vrf: &Vrf, changes: &mut VrfChanges<'_>, text: &str) -> TextMistakes {
    let mut mistakes = TextMistakes::default();
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let start = end + (line.len() - line.trim_start().len());
        end += line.len();
        let route = line.trim();
        if route.is_empty() || route.starts_with('#') {
            continue;
        }
        if let Err(RouteError { message, help, range }) = enter(vrf, changes, route) {
            mistakes.add(TextMistake { range: start + range.start..start + range.end, message, help });
        }
    }
    mistakes
}

impl InterfaceConfig {
    pub(super) fn read(&self, name: &str) -> Result<Interface, SettingError> {
        let mac = read_mac(&self.mac)
            .map_err(|message| wrong("mac", message, "give a unicast address like 02:00:00:00:00:01"))?;
        let mut addresses = Vec::new();
        for (place, text) in self.addresses.iter().enumerate() {
            let wrong = |message: String, help: &str| {
                SettingError::at("interfaces", message, help).in_item(place).in_entry("addresses")
            };
            let address = read_address(text).ok_or_else(|| {
                let help = "write an address and the bits of the prefix on the link: \"192.0.2.1/24\"";
                let alone = text.split_once('/').map_or(&**text, |(address, _)| address);
                match alone.parse().ok().and_then(no_station) {
                    Some(kind) => wrong(format!("`{text}` is {kind}"), "give the address of one station"),
                    None => wrong(format!("`{text}` is not an interface's address"), help),
                }
            })?;
            if is_of_link(&address) {
                let message = format!("`{text}` is the link itself, or all stations there");
                return Err(wrong(message, "give the address of one station"));
            }
            addresses.push(address);
        }
        let has_v6 = addresses.iter().any(|own| own.address.is_ipv6());
        if has_v6 && !addresses.iter().any(is_link_local) {
            addresses.push(InterfaceAddress { address: ndp::link_local(mac).into(), length: 64 });
        }
        if self.mtu < 68 || has_v6 && self.mtu < MIN_MTU_V6 {
            let help = "give 68 or more, and 1280 or more for an interface with an IPv6 address";
            return Err(wrong("mtu", format!("an MTU of {} is too small", self.mtu), help));
        }
        let port = self.port.clone().unwrap_or_else(|| name.to_owned());
        if RESERVED.contains(&port.as_str()) || [HOST, ERROR4].contains(&port.as_str()) {
            return Err(wrong("port", format!("a port cannot have the name `{port}`"), "give another `port`"));
        }
        let vlans = [("service_vlan", 0x88a8, self.service_vlan), ("vlan", 0x8100, self.vlan)];
        let given = vlans.into_iter().filter_map(|(key, protocol, id)| Some((key, VlanTag { protocol, id: id? })));
        for (key, tag) in given.clone() {
            if !(1..=4094).contains(&tag.id) {
                return Err(wrong(key, format!("there is no VLAN {}", tag.id), "give a number from 1 to 4094"));
            }
        }
        let tags: Vec<VlanTag> = given.map(|(_, tag)| tag).collect();
        if self.service_vlan.is_some() && self.vlan.is_none() {
            return Err(wrong("service_vlan", "`service_vlan` is around no `vlan`", "give `vlan` as well"));
        }
        Ok(Interface { name: name.to_owned(), port, mac, mtu: self.mtu, tags, addresses })
    }
}

/// An address and the length of its prefix.
fn read_address(text: &str) -> Option<InterfaceAddress> {
    let (address, length) = text.split_once('/')?;
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    ((1..=bits).contains(&length) && no_station(address).is_none()).then_some(InterfaceAddress { address, length })
}

fn is_link_local(own: &InterfaceAddress) -> bool {
    matches!(own.address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Whether an address is that of a link, or of all stations there; links of two stations have no such addresses (RFC 3021).
fn is_of_link(own: &InterfaceAddress) -> bool {
    match own.address {
        IpAddr::V4(v4) if own.length < 31 => {
            let host = u32::MAX >> own.length;
            [0, host].contains(&(u32::from(v4) & host))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is wrong with an interface of these keys.
    fn mistake(keys: &Value) -> Option<String> {
        let mut all = json!({"mac": "02:00:00:00:00:01", "addresses": ["192.0.2.1/24"]});
        let given = keys.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(given);
        let config: InterfaceConfig = serde_json::from_value(all).unwrap();
        config.read("lan").err().map(|error| error.message)
    }

    #[test]
    fn mistakes_in_interfaces_are_named() {
        let no_address = |text: &str| format!("`{text}` is not an interface's address");
        let of_link = |text: &str| format!("`{text}` is the link itself, or all stations there");
        for (keys, message) in [
            (json!({"mac": "02:00"}), None),
            (json!({"mac": "03:00:00:00:00:01"}), Some("03:00:00:00:00:01 is a multicast address".to_owned())),
            (json!({"addresses": ["192.0.2.1"]}), Some(no_address("192.0.2.1"))),
            (json!({"addresses": ["192.0.2.1/33"]}), Some(no_address("192.0.2.1/33"))),
            (json!({"addresses": ["224.0.0.1/24"]}), Some("`224.0.0.1/24` is a multicast address".to_owned())),
            (json!({"addresses": ["192.0.2.0/24"]}), Some(of_link("192.0.2.0/24"))),
            (json!({"addresses": ["10.3.255.255/14"]}), Some(of_link("10.3.255.255/14"))),
            (json!({"mtu": 67}), Some("an MTU of 67 is too small".to_owned())),
            (json!({"mtu": 1279, "addresses": ["2001:db8::1/64"]}), Some("an MTU of 1279 is too small".to_owned())),
            (json!({"port": "error"}), Some("a port cannot have the name `error`".to_owned())),
            (json!({"vlan": 4095}), Some("there is no VLAN 4095".to_owned())),
            (json!({"service_vlan": 7}), Some("`service_vlan` is around no `vlan`".to_owned())),
        ] {
            let found = mistake(&keys);
            assert!(found.is_some() && (message.is_none() || found == message), "{keys}: {found:?}");
        }
        for right in
            [json!({"addresses": ["192.0.2.0/31"]}), json!({"addresses": ["192.0.2.255/32"]}), json!({"vlan": 5})]
        {
            assert_eq!(mistake(&right), None, "{right}");
        }
    }
}
