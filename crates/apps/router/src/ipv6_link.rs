//! What the interfaces of a router need for IPv6 besides their addresses: whether an address may be used, and what router
//! advertisements say.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use bellows_config::{Duration, SettingError};
use bellows_vrf::Interface;
use bellows_wire::ndp::PrefixOption;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Router advertisements of an interface (RFC 4861, section 6.2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Advertise {
    /// The longest time between two advertisements, from 4 seconds to 30 minutes. Without it, 10 minutes.
    #[schemars(extend("x-unit" = "time"))]
    pub interval: Option<Duration>,

    /// The shortest time between two advertisements, from 3 seconds to three quarters of `interval`. Without it, a third.
    #[schemars(extend("x-unit" = "time"))]
    pub min_interval: Option<Duration>,

    /// How long hosts use the router as default router after an advertisement: `"0s"`, never, or from `interval` to 9,000
    /// seconds. Without it, three times `interval`.
    #[schemars(extend("x-unit" = "time"))]
    pub lifetime: Option<Duration>,

    /// The prefixes on the link. Without it, those of the interface's addresses, with the defaults of their keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<Vec<AdvertisedPrefix>>,

    /// The MTU that hosts are to use, from 1,280 bytes to that of the interface.
    #[schemars(extend("x-unit" = "bytes"), range(min = 1280, max = 65535))]
    pub mtu: Option<u16>,

    /// The hop limit that hosts are to use; 0 leaves it to them. Without it, 64.
    pub hop_limit: Option<u8>,

    /// Whether hosts get addresses by DHCPv6 (the flag M).
    pub managed: bool,

    /// Whether hosts get other configuration by DHCPv6 (the flag O).
    pub other: bool,
}

/// A prefix of router advertisements.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedPrefix {
    /// The prefix: `"2001:db8::/64"`.
    pub prefix: String,

    /// Whether its addresses are on the link.
    #[serde(default = "yes")]
    pub on_link: bool,

    /// Whether hosts may make themselves addresses of it (RFC 4862). They do so if it has 64 bits.
    #[serde(default = "yes")]
    pub autonomous: bool,

    /// How long it holds; from 4,294,967,295 seconds on, without end. Without it, 30 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "time"))]
    pub valid: Option<Duration>,

    /// How long hosts begin connections with addresses of it, at most `valid`. Without it, 7 days, or `valid` if that is
    /// less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "time"))]
    pub preferred: Option<Duration>,
}

fn yes() -> bool {
    true
}

const SECOND: u64 = 1_000_000_000;

/// RFC 4861, section 6.2.1, in seconds: MaxRtrAdvInterval, the minimum of MinRtrAdvInterval, AdvDefaultLifetime,
/// AdvValidLifetime, AdvPreferredLifetime.
const INTERVAL: std::ops::RangeInclusive<u64> = 4..=1_800;
const DEFAULT_INTERVAL: u64 = 600;
const MIN_INTERVAL: u64 = 3;
const MAX_LIFETIME: u64 = 9_000;
const DEFAULT_VALID: u32 = 2_592_000;
const DEFAULT_PREFERRED: u32 = 604_800;

/// The flags M and O of an advertisement (RFC 4861, section 4.2).
pub(crate) const MANAGED: u8 = 0x80;
pub(crate) const OTHER: u8 = 0x40;

/// Prefixes that fit into an advertisement of 1,280 bytes.
const MAX_PREFIXES: usize = 36;

/// Checked router advertisements of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// The longest and the shortest time between two, nanoseconds.
    pub interval: (u64, u64),
    /// The fields behind the checksum: hop limit, flags, lifetime as default router in seconds.
    pub hop_limit: u8,
    /// See above: the flags M (0x80) and O (0x40).
    pub flags: u8,
    /// See above.
    pub lifetime: u16,
    /// The MTU, if it is advertised.
    pub mtu: Option<u16>,
    /// The prefixes.
    pub prefixes: Vec<PrefixOption>,
}

impl Advertise {
    /// Checks the keys for an interface.
    ///
    /// # Errors
    /// If one is out of its range.
    pub fn read(&self, interface: &Interface) -> Result<Advertised, SettingError> {
        let wrong = |key: &str, message: String, help: &str| {
            Err(SettingError::at("interfaces", message, help).in_entry(key).in_entry(ADVERTISE))
        };
        if !interface.addresses.iter().any(|own| own.address.is_ipv6()) {
            let message = "`advertise` is of no use without an IPv6 address".to_owned();
            let help = "give one in `addresses`, or remove `advertise`";
            return Err(SettingError::at("interfaces", message, help).in_entry(ADVERTISE));
        }
        let seconds = |time: Option<Duration>, default: u64| time.map_or(default, |time| time.nanos() / SECOND);
        let longest = seconds(self.interval, DEFAULT_INTERVAL);
        if !INTERVAL.contains(&longest) {
            let help = "give a time from \"4s\" to \"30min\"";
            return wrong("interval", "`interval` of `advertise` is out of range".to_owned(), help);
        }
        // RFC 4861: a third; for short intervals the longest one itself, of which three quarters are allowed.
        let usual = if longest >= 9 { longest / 3 } else { (longest * 3 / 4).max(MIN_INTERVAL) };
        let shortest = seconds(self.min_interval, usual);
        if shortest < MIN_INTERVAL || shortest * 4 > longest * 3 {
            let help = "give a time from \"3s\" to three quarters of `interval`";
            return wrong("min_interval", "`min_interval` of `advertise` is out of range".to_owned(), help);
        }
        let lifetime = seconds(self.lifetime, longest * 3);
        if lifetime != 0 && !(longest..=MAX_LIFETIME).contains(&lifetime) {
            let help = "give \"0s\", or a time from `interval` to \"9000s\"";
            return wrong("lifetime", "`lifetime` of `advertise` is out of range".to_owned(), help);
        }
        if self.mtu.is_some_and(|mtu| !(1280..=interface.mtu).contains(&mtu)) {
            let help = "give 1280 or more, and at most the `mtu` of the interface";
            return wrong("mtu", "`mtu` of `advertise` is out of range".to_owned(), help);
        }
        let prefixes = match &self.prefixes {
            Some(prefixes) => {
                let read = |(place, prefix): (usize, &AdvertisedPrefix)| {
                    prefix.read().map_err(|error| error.in_item(place).in_entry("prefixes").in_entry(ADVERTISE))
                };
                prefixes.iter().enumerate().map(read).collect::<Result<Vec<_>, SettingError>>()?
            }
            None => own_prefixes(interface),
        };
        if prefixes.len() > MAX_PREFIXES {
            let message = format!("{} prefixes do not fit into a router advertisement", prefixes.len());
            return wrong("prefixes", message, "give at most 36 in `prefixes` of `advertise`");
        }
        Ok(Advertised {
            interval: (longest * SECOND, shortest * SECOND),
            hop_limit: self.hop_limit.unwrap_or(64),
            flags: if self.managed { MANAGED } else { 0 } | if self.other { OTHER } else { 0 },
            lifetime: lifetime as u16,
            mtu: self.mtu,
            prefixes,
        })
    }
}

/// The key of an interface.
const ADVERTISE: &str = "advertise";

/// The prefixes of an interface's addresses, each once.
fn own_prefixes(interface: &Interface) -> Vec<PrefixOption> {
    let mut prefixes: Vec<PrefixOption> = Vec::new();
    for own in &interface.addresses {
        let IpAddr::V6(address) = own.address else { continue };
        let prefix = network(address, own.length);
        let is_known = prefixes.iter().any(|known| (known.prefix, known.length) == (prefix, own.length));
        if !address.is_unicast_link_local() && !is_known {
            let (on_link, autonomous, valid, preferred) = (true, true, DEFAULT_VALID, DEFAULT_PREFERRED);
            prefixes.push(PrefixOption { prefix, length: own.length, on_link, autonomous, valid, preferred });
        }
    }
    prefixes
}

/// An address without the bits behind a prefix.
fn network(address: Ipv6Addr, length: u8) -> Ipv6Addr {
    (u128::from(address) & !u128::MAX.checked_shr(length.into()).unwrap_or(0)).into()
}

impl AdvertisedPrefix {
    fn read(&self) -> Result<PrefixOption, SettingError> {
        let wrong = |message: String, help: &str| SettingError::at("interfaces", message, help);
        let parts = self.prefix.split_once('/');
        let parsed = parts.and_then(|(prefix, length)| Some((prefix.parse().ok()?, length.parse().ok()?)));
        let known = parsed.filter(|&(prefix, length): &(Ipv6Addr, u8)| {
            length <= 128 && network(prefix, length) == prefix && !prefix.is_multicast() && !is_link_local(prefix)
        });
        let Some((prefix, length)) = known else {
            let message = format!("`{}` in `advertise` is not a prefix that can be advertised", self.prefix);
            return Err(wrong(message, "write, for example, \"2001:db8:1::/64\", without bits behind the prefix"));
        };
        let seconds = |time: Duration| u32::try_from(time.nanos() / SECOND).unwrap_or(u32::MAX);
        let valid = self.valid.map_or(DEFAULT_VALID, seconds);
        let preferred = self.preferred.map_or(DEFAULT_PREFERRED.min(valid), seconds);
        if preferred > valid {
            let message = format!("`preferred` of `{}` is longer than `valid`", self.prefix);
            return Err(wrong(message, "make `valid` longer, or `preferred` shorter"));
        }
        Ok(PrefixOption { prefix, length, on_link: self.on_link, autonomous: self.autonomous, valid, preferred })
    }
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local()
}

/// Whether an address may be used (RFC 4862, section 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AddressState {
    /// It may be used.
    Preferred = 0,
    /// It is not known yet whether another station has it. It must not be used.
    Tentative = 1,
    /// Another station has it. It must not be used.
    Duplicate = 2,
}

impl AddressState {
    /// The name, as Linux has it.
    pub fn name(self) -> &'static str {
        match self {
            AddressState::Preferred => "preferred",
            AddressState::Tentative => "tentative",
            AddressState::Duplicate => "duplicate",
        }
    }
}

/// The states of a router's IPv6 addresses, by the number of their interface.
#[derive(Debug)]
pub struct AddressStates {
    states: HashMap<(u16, Ipv6Addr), AtomicU8>,
    /// The interfaces of each address that is good beyond its link.
    interfaces: HashMap<Ipv6Addr, Vec<u16>>,
    /// The number of addresses that must not be used.
    barred: AtomicUsize,
}

impl AddressStates {
    /// All addresses of interfaces may be used.
    pub fn new(interfaces: &[Interface]) -> AddressStates {
        let (mut states, mut numbers) = (HashMap::new(), HashMap::<Ipv6Addr, Vec<u16>>::new());
        for (number, interface) in (1..).zip(interfaces) {
            for own in &interface.addresses {
                let IpAddr::V6(address) = own.address else { continue };
                states.insert((number, address), AtomicU8::new(AddressState::Preferred as u8));
                if !address.is_unicast_link_local() {
                    numbers.entry(address).or_default().push(number);
                }
            }
        }
        AddressStates { states, interfaces: numbers, barred: AtomicUsize::new(0) }
    }

    /// The state of an address, or `None` if the interface does not have it.
    pub fn get(&self, number: u16, address: Ipv6Addr) -> Option<AddressState> {
        let state = self.states.get(&(number, address))?.load(Relaxed);
        let states = [AddressState::Preferred, AddressState::Tentative, AddressState::Duplicate];
        states.into_iter().find(|known| *known as u8 == state)
    }

    /// Changes the state of an address.
    pub fn set(&self, number: u16, address: Ipv6Addr, state: AddressState) {
        let Some(cell) = self.states.get(&(number, address)) else { return };
        let before = cell.swap(state as u8, Relaxed);
        match (before == AddressState::Preferred as u8, state == AddressState::Preferred) {
            (true, false) => _ = self.barred.fetch_add(1, Relaxed),
            (false, true) => _ = self.barred.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Whether an interface has an address that may be used.
    pub fn is_usable(&self, number: u16, address: Ipv6Addr) -> bool {
        self.get(number, address) == Some(AddressState::Preferred)
    }

    /// Whether an address is one of an interface's that must not be used.
    pub fn is_barred(&self, number: u16, address: Ipv6Addr) -> bool {
        self.are_some_barred() && self.get(number, address).is_some_and(|state| state != AddressState::Preferred)
    }

    /// Whether there is any address that must not be used.
    #[inline]
    pub fn are_some_barred(&self) -> bool {
        self.barred.load(Relaxed) > 0
    }

    /// Whether packets that an interface receives are not for the router although it has their destination: the address
    /// must not be used on that link, or on any other that has it.
    pub fn is_barred_on_link(&self, number: u16, address: Ipv6Addr) -> bool {
        if !self.are_some_barred() {
            return false;
        }
        match (self.get(number, address), self.interfaces.get(&address)) {
            (Some(state), _) => state != AddressState::Preferred,
            (None, Some(numbers)) => numbers.iter().all(|&number| self.is_barred(number, address)),
            (None, None) => false,
        }
    }

    /// The addresses in a state, in order.
    pub fn all(&self, state: AddressState) -> Vec<(u16, Ipv6Addr)> {
        let mut all: Vec<_> =
            self.states.iter().filter(|(_, cell)| cell.load(Relaxed) == state as u8).map(|(&key, _)| key).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_vrf::interface::InterfaceAddress;
    use bellows_wire::MacAddr;
    use serde_json::json;

    fn interface(addresses: &[(&str, u8)]) -> Interface {
        let address = |&(address, length): &(&str, u8)| InterfaceAddress { address: address.parse().unwrap(), length };
        Interface {
            name: "a".to_owned(),
            port: "a".to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: addresses.iter().map(address).collect(),
        }
    }

    fn read(keys: serde_json::Value) -> Result<Advertised, String> {
        let keys: Advertise = serde_json::from_value(keys).unwrap();
        keys.read(&interface(&[("2001:db8:1::1", 64), ("2001:db8:1::2", 64), ("fe80::1", 64), ("192.0.2.1", 24)]))
            .map_err(|error| error.message)
    }

    #[test]
    fn the_defaults_are_those_of_the_rfc() {
        let advertised = read(json!({})).unwrap();
        assert_eq!(advertised.interval, (600 * SECOND, 200 * SECOND));
        assert_eq!((advertised.lifetime, advertised.hop_limit, advertised.flags, advertised.mtu), (1800, 64, 0, None));
        let prefix = PrefixOption {
            prefix: "2001:db8:1::".parse().unwrap(),
            length: 64,
            on_link: true,
            autonomous: true,
            valid: 2_592_000,
            preferred: 604_800,
        };
        assert_eq!(advertised.prefixes, [prefix]);
        assert_eq!(read(json!({ "interval": "4s" })).unwrap().interval, (4 * SECOND, 3 * SECOND));
    }

    #[test]
    fn keys_are_checked() {
        let given = read(json!({
            "interval": "10s",
            "min_interval": "3s",
            "lifetime": "0s",
            "mtu": 1400,
            "hop_limit": 0,
            "managed": true,
            "prefixes": [{ "prefix": "2001:db8:9::/48", "autonomous": false, "valid": "1h" }],
        }));
        let given = given.unwrap();
        assert_eq!((given.lifetime, given.mtu, given.flags), (0, Some(1400), 0x80));
        assert_eq!((given.prefixes[0].valid, given.prefixes[0].preferred), (3600, 3600));
        for (keys, message) in [
            (json!({ "interval": "3s" }), "`interval`"),
            (json!({ "interval": "2000s" }), "`interval`"),
            (json!({ "interval": "10s", "min_interval": "8s" }), "`min_interval`"),
            (json!({ "min_interval": "2s" }), "`min_interval`"),
            (json!({ "lifetime": "100s" }), "`lifetime`"),
            (json!({ "lifetime": "9001s" }), "`lifetime`"),
            (json!({ "mtu": 1501 }), "`mtu`"),
            (json!({ "mtu": 1279 }), "`mtu`"),
            (json!({ "prefixes": [{ "prefix": "2001:db8::1/64" }] }), "`2001:db8::1/64`"),
            (json!({ "prefixes": [{ "prefix": "fe80::/64" }] }), "`fe80::/64`"),
            (json!({ "prefixes": [{ "prefix": "2001:db8::/129" }] }), "`2001:db8::/129`"),
            (json!({ "prefixes": [{ "prefix": "2001:db8::/64", "valid": "1s", "preferred": "2s" }] }), "`preferred`"),
        ] {
            let error = read(keys.clone()).unwrap_err();
            assert!(error.contains(message), "{keys}: {error}");
        }
        let error = Advertise::default().read(&interface(&[("192.0.2.1", 24)])).unwrap_err();
        assert!(error.message.contains("without an IPv6 address"));
        let many: Vec<_> = (0..37).map(|number| json!({ "prefix": format!("2001:db8:{number:x}::/64") })).collect();
        assert!(read(json!({ "prefixes": many })).unwrap_err().contains("37 prefixes"));
    }

    #[test]
    fn addresses_have_states() {
        let states = AddressStates::new(&[interface(&[("2001:db8::1", 64), ("192.0.2.1", 24)])]);
        let address = "2001:db8::1".parse().unwrap();
        assert!(states.is_usable(1, address) && !states.is_usable(2, address) && !states.is_barred(1, address));
        for state in [AddressState::Tentative, AddressState::Duplicate] {
            states.set(1, address, state);
            assert_eq!((states.get(1, address), states.all(state)), (Some(state), vec![(1, address)]));
            assert!(states.is_barred(1, address) && !states.is_usable(1, address));
        }
    }

    #[test]
    fn an_address_that_must_not_be_used_is_barred_on_all_links() {
        let (one, other) = (interface(&[("2001:db8::1", 64), ("fe80::1", 64)]), interface(&[("fe80::1", 64)]));
        let third = interface(&[("2001:db8::1", 64)]);
        let states = AddressStates::new(&[one, other, third]);
        let (global, local) = ("2001:db8::1".parse().unwrap(), "fe80::1".parse().unwrap());
        let barred = |address| [1, 2, 3].map(|number| states.is_barred_on_link(number, address));
        assert_eq!((barred(global), barred(local)), ([false; 3], [false; 3]));
        [global, local].into_iter().for_each(|address| states.set(1, address, AddressState::Tentative));
        assert_eq!(barred(global), [true, false, false], "the third interface has the address, too");
        assert_eq!(barred(local), [true, false, false], "each link has its own");
        states.set(3, global, AddressState::Tentative);
        assert_eq!(barred(global), [true; 3]);
        [1, 3].into_iter().for_each(|number| states.set(number, global, AddressState::Preferred));
        assert_eq!(barred(global), [false; 3]);
    }
}
