//! Routes as people write them: the language of `ip route`.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use bellows_fib::Prefix;

use crate::family::IpFamily;

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    /// Of IPv4.
    V4(Prefix<u32>),
    /// Of IPv6.
    V6(Prefix<u128>),
}

impl IpPrefix {
    /// The prefix of one address.
    pub fn host(address: IpAddr) -> IpPrefix {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        IpPrefix::of(address, bits).unwrap_or(IpPrefix::V4(Prefix::ALL))
    }

    /// The prefix of `length` bits that an address is within, or `None` if addresses are shorter.
    pub fn of(address: IpAddr, length: u8) -> Option<IpPrefix> {
        match address {
            IpAddr::V4(address) => Prefix::of(address.into(), length).map(IpPrefix::V4),
            IpAddr::V6(address) => Prefix::of(address.into(), length).map(IpPrefix::V6),
        }
    }

    /// The family.
    pub fn family(self) -> IpFamily {
        match self {
            IpPrefix::V4(_) => IpFamily::V4,
            IpPrefix::V6(_) => IpFamily::V6,
        }
    }

    /// The address, if the prefix is that of one alone.
    pub fn address_of_host(self) -> Option<IpAddr> {
        match self {
            IpPrefix::V4(prefix) if prefix.length() == 32 => Some(IpAddr::V4(prefix.address().into())),
            IpPrefix::V6(prefix) if prefix.length() == 128 => Some(IpAddr::V6(prefix.address().into())),
            _ => None,
        }
    }

    /// Whether another prefix is this one, or within it.
    pub fn covers(self, other: IpPrefix) -> bool {
        match (self, other) {
            (IpPrefix::V4(prefix), IpPrefix::V4(other)) => prefix.covers(other),
            (IpPrefix::V6(prefix), IpPrefix::V6(other)) => prefix.covers(other),
            _ => false,
        }
    }

    /// Whether the address is in here.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self, address) {
            (IpPrefix::V4(prefix), IpAddr::V4(address)) => prefix.contains(address.into()),
            (IpPrefix::V6(prefix), IpAddr::V6(address)) => prefix.contains(address.into()),
            _ => false,
        }
    }
}

impl std::str::FromStr for IpPrefix {
    type Err = bellows_fib::PrefixError;

    /// Parses an address, or one with a number of bits behind a `/`.
    fn from_str(text: &str) -> Result<IpPrefix, bellows_fib::PrefixError> {
        if text.contains(':') { text.parse().map(IpPrefix::V6) } else { text.parse().map(IpPrefix::V4) }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpPrefix::V4(prefix) => prefix.fmt(f),
            IpPrefix::V6(prefix) => prefix.fmt(f),
        }
    }
}

/// A way to a destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The router to send to, or `None` if the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The name of the interface, which may be left out if a gateway is on the link of one.
    pub interface: Option<String>,
    /// The share of flows that takes this way, from 1 to 256.
    pub weight: u16,
    /// Whether the gateway answers on the interface's link although no route says that it is there.
    pub onlink: bool,
    /// The longest packet that takes this way, if that is less than the interface's. The ways of a route have the same.
    pub mtu: Option<u16>,
}

impl NextHop {
    /// One of which nothing is known yet.
    const EMPTY: NextHop = NextHop { gateway: None, interface: None, weight: 1, onlink: false, mtu: None };
}

/// The least MTU that every link has (RFC 791; RFC 8200, section 5).
pub(crate) fn least_mtu(family: IpFamily) -> u16 {
    match family {
        IpFamily::V4 => 68,
        IpFamily::V6 => 1280,
    }
}

/// What becomes of packets to a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// They go to one of these next hops.
    Forward(Vec<NextHop>),
    /// They are dropped without an answer.
    Blackhole,
    /// They are answered: destination unreachable.
    Unreachable,
    /// They are answered: communication prohibited.
    Prohibit,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSpec {
    /// The destinations.
    pub prefix: IpPrefix,
    /// What becomes of packets to them.
    pub action: Action,
    /// Of several routes to a prefix, the one with the lowest metric is used.
    pub metric: u32,
}

/// Why a text is not a route, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RouteError {
    /// The error, as one sentence without a full stop.
    pub message: String,
    /// How to fix it.
    pub help: String,
    /// The bytes of the text that are wrong.
    pub range: Range<usize>,
}

/// Words that `ip route` prints and that say nothing about where packets go, each followed by a value.
const IGNORED_PAIRS: [&str; 6] = ["proto", "protocol", "origin", "scope", "src", "pref"];

/// Words of the same kind without a value.
const IGNORED: [&str; 5] = ["linkdown", "offload", "trap", "unicast", "rt_offload"];

/// Words of `ip route` that say what this router does not do by routes, and what to do in their place.
const OTHERS: [(&str, &str); 7] = [
    ("table", "each routing domain has one table, and commands name the domain with `--vrf`; leave it out"),
    ("tos", "routes follow destinations alone; leave it out"),
    ("dsfield", "routes follow destinations alone; leave it out"),
    ("from", "routes follow destinations alone; leave it out"),
    ("encap", "link an app for the tunnel, such as `gre`, and route to its interface"),
    ("nhid", "write the next hops themselves"),
    ("advmss", "the router ends no connections; leave it out"),
];

/// What to do in place of a word of `ip route` that has no meaning here.
pub fn in_place_of(word: &str) -> Option<&'static str> {
    OTHERS.iter().find(|(other, _)| *other == word).map(|(_, help)| *help)
}

const HELP: &str = "write, for example, `198.51.100.0/24 via 192.0.2.1 dev lan metric 5` or `blackhole 203.0.113.0/24`";

/// The words of a text, and where they are.
struct RouteWords<'t> {
    text: &'t str,
    at: usize,
    last: Range<usize>,
}

impl<'t> RouteWords<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let rest = &self.text[self.at..];
        let start = self.at + rest.find(|character: char| !character.is_whitespace())?;
        let length = self.text[start..].find(char::is_whitespace).unwrap_or(self.text.len() - start);
        self.at = start + length;
        self.last = start..self.at;
        Some(&self.text[self.last.clone()])
    }

    fn peek(&self) -> Option<&'t str> {
        RouteWords { text: self.text, at: self.at, last: 0..0 }.next()
    }

    fn error(&self, message: impl Into<String>, help: impl Into<String>) -> RouteError {
        RouteError { message: message.into(), help: help.into(), range: self.last.clone() }
    }

    /// The value behind a word.
    fn value(&mut self, of: &str, what: &str) -> Result<&'t str, RouteError> {
        match self.next() {
            Some(value) => Ok(value),
            None => {
                self.last = self.text.trim_end().len()..self.text.len().max(1);
                Err(self.error(format!("`{of}` needs {what}"), format!("write `{of}` and {what} behind it")))
            }
        }
    }

    fn number<N: std::str::FromStr>(&mut self, of: &str, what: &str) -> Result<N, RouteError> {
        let word = self.value(of, what)?;
        word.parse().map_err(|_| self.error(format!("`{word}` is not {what}"), format!("give `{of}` {what}")))
    }

    /// The number behind `mtu`, or behind `mtu lock`, which keeps what Linux finds out of a path from changing it.
    fn mtu(&mut self, family: IpFamily) -> Result<u16, RouteError> {
        if self.peek() == Some("lock") {
            self.next();
        }
        let least = least_mtu(family);
        let what = format!("a number of bytes from {least} to 65535");
        let mtu: u16 = self.number("mtu", &what)?;
        if mtu < least {
            return Err(self.error(format!("an MTU of {mtu} is too small"), format!("give {what}")));
        }
        Ok(mtu)
    }

    /// The address behind `via`. One of the other family has the family's name in front, as `ip route` writes it.
    fn gateway(&mut self, family: IpFamily) -> Result<IpAddr, RouteError> {
        let what = "an address of the route's family";
        let mut word = self.value("via", what)?;
        let named = match word {
            "inet" => Some(IpFamily::V4),
            "inet6" => Some(IpFamily::V6),
            _ => None,
        };
        if named.is_some() {
            word = self.value("via", what)?;
        }
        let address: Option<IpAddr> = word.parse().ok();
        let wanted = named.unwrap_or(family);
        if let Some(address) = address.filter(|&address| IpFamily::of(address) == wanted) {
            return Ok(address);
        }
        let is_v6 = address.is_some_and(|address| address.is_ipv6());
        let help = match (family, is_v6, named) {
            (IpFamily::V4, true, None) => format!("an IPv4 route to an IPv6 next hop is written `via inet6 {word}`"),
            _ => "write the next router's address behind `via`".to_owned(),
        };
        let what = if named.is_some() { "an address of the family that is named" } else { what };
        Err(self.error(format!("`{word}` is not {what}"), help))
    }
}

impl RouteSpec {
    /// Parses a route in the language of `ip route`: `[blackhole|unreachable|prohibit] PREFIX [via ADDRESS] [dev
    /// INTERFACE] [onlink] [metric NUMBER] [mtu NUMBER]`, or with several ways `PREFIX nexthop via ADDRESS [dev
    /// INTERFACE] [onlink] [weight NUMBER] nexthop …`. An IPv4 route to an IPv6 next hop has `via inet6 ADDRESS` (RFC
    /// 8950). A prefix `default` is all of IPv4, or of IPv6 if a next hop's address is of that without `inet6` in
    /// front. What else `ip route` prints (`proto`, `scope`, `src`, `pref`) is ignored.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<RouteSpec, RouteError> {
        let RoutePattern { prefix, action, metric, at } = RoutePattern::parse(text)?;
        let action = action.ok_or_else(|| RouteError {
            message: "the route has no next hop".to_owned(),
            help: HELP.to_owned(),
            range: at,
        })?;
        Ok(RouteSpec { prefix, action, metric: metric.unwrap_or_default() })
    }
}

/// What is known of a route: at least its destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePattern {
    /// The destinations.
    pub prefix: IpPrefix,
    /// What becomes of packets to them.
    pub action: Option<Action>,
    /// The metric.
    pub metric: Option<u32>,
    /// The bytes of the text that give the prefix.
    at: Range<usize>,
}

impl RoutePattern {
    /// Parses a route as [`RouteSpec::parse`] does; next hops may be missing.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<RoutePattern, RouteError> {
        let mut words = RouteWords { text, at: 0, last: 0..text.len() };
        let mut word = words.next().ok_or_else(|| words.error("a route is missing", HELP))?;
        while IGNORED.contains(&word) {
            word = words.value(word, "a prefix")?;
        }
        let action = match word {
            "blackhole" => Some(Action::Blackhole),
            "unreachable" => Some(Action::Unreachable),
            "prohibit" => Some(Action::Prohibit),
            _ => None,
        };
        if action.is_some() {
            word = words.value(word, "a prefix")?;
        }
        let prefix = match word {
            "default" if text.contains(':') && !text.split_whitespace().any(|word| word == "inet6") => {
                IpPrefix::V6(Prefix::ALL)
            }
            "default" => IpPrefix::V4(Prefix::ALL),
            word if word.contains(':') => {
                word.parse().map(IpPrefix::V6).map_err(|error| words.error(format!("{error}"), HELP))?
            }
            word => word.parse().map(IpPrefix::V4).map_err(|error| words.error(format!("{error}"), HELP))?,
        };
        let (mut metric, mut mtu, mut hops, mut single) = (None, None, Vec::new(), NextHop::EMPTY);
        let prefix_at = words.last.clone();
        while let Some(word) = words.next() {
            match word {
                "via" => single.gateway = Some(words.gateway(prefix.family())?),
                "dev" => single.interface = Some(words.value("dev", "the name of an interface")?.to_owned()),
                "onlink" => hops.last_mut().unwrap_or(&mut single).onlink = true,
                "metric" => metric = Some(words.number("metric", "a number up to 4294967295")?),
                "mtu" => mtu = Some(words.mtu(prefix.family())?),
                "nexthop" => hops.push(words.next_hop(prefix.family())?),
                word if IGNORED_PAIRS.contains(&word) => drop(words.value(word, "a value")?),
                word if IGNORED.contains(&word) => {}
                word => {
                    let help = in_place_of(word).unwrap_or(HELP);
                    return Err(words.error(format!("`{word}` is not part of a route here"), help));
                }
            }
        }
        hops.iter_mut().chain([&mut single]).for_each(|hop| hop.mtu = mtu);
        let has_single = single.gateway.is_some() || single.interface.is_some();
        words.last = prefix_at.clone();
        let action = match (action, has_single, hops.is_empty()) {
            (Some(action), false, true) => Some(action),
            (Some(_), ..) => {
                return Err(words.error("a route that forwards nothing has a next hop", "leave out `via` and `dev`"));
            }
            (None, true, true) => Some(Action::Forward(vec![single])),
            (None, false, false) => Some(Action::Forward(hops)),
            (None, true, false) => {
                return Err(
                    words.error("the route has both a next hop and `nexthop`", "write each way behind a `nexthop`")
                );
            }
            (None, false, true) => None,
        };
        Ok(RoutePattern { prefix, action, metric, at: prefix_at })
    }
}

impl RouteWords<'_> {
    /// The parts of a way behind `nexthop`.
    fn next_hop(&mut self, family: IpFamily) -> Result<NextHop, RouteError> {
        let mut hop = NextHop::EMPTY;
        let began = self.last.clone();
        while let Some(word) = self.peek() {
            match word {
                "via" | "dev" | "weight" | "onlink" => drop(self.next()),
                _ => break,
            }
            match word {
                "via" => hop.gateway = Some(self.gateway(family)?),
                "dev" => hop.interface = Some(self.value("dev", "the name of an interface")?.to_owned()),
                "onlink" => hop.onlink = true,
                _ => {
                    hop.weight = self.number("weight", "a number from 1 to 256")?;
                    if !(1..=256).contains(&hop.weight) {
                        return Err(self.error(
                            format!("a weight of {} is out of range", hop.weight),
                            "give a number from 1 to 256",
                        ));
                    }
                }
            }
        }
        if hop.gateway.is_none() && hop.interface.is_none() {
            self.last = began;
            return Err(self.error("the way has no next hop", "write `nexthop via ADDRESS` or `nexthop dev INTERFACE`"));
        }
        Ok(hop)
    }
}

/// The route in the language of `ip route`.
impl fmt::Display for RouteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.action.write(self.prefix, self.metric, f)
    }
}

impl Action {
    /// The longest packet that takes the route's ways, if that is less than their interfaces'.
    pub fn mtu(&self) -> Option<u16> {
        match self {
            Action::Forward(hops) => hops.iter().find_map(|hop| hop.mtu),
            Action::Blackhole | Action::Unreachable | Action::Prohibit => None,
        }
    }

    /// Writes the route to a prefix, as [`RouteSpec`] does.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn write(&self, prefix: IpPrefix, metric: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Blackhole => write!(f, "blackhole {prefix}")?,
            Action::Unreachable => write!(f, "unreachable {prefix}")?,
            Action::Prohibit => write!(f, "prohibit {prefix}")?,
            Action::Forward(hops) => {
                write!(f, "{prefix}")?;
                for hop in hops {
                    if hops.len() > 1 {
                        f.write_str(" nexthop")?;
                    }
                    if let Some(gateway) = hop.gateway {
                        let is_other = IpFamily::of(gateway) != prefix.family();
                        write!(f, " via {}{gateway}", if is_other { "inet6 " } else { "" })?;
                    }
                    if let Some(interface) = &hop.interface {
                        write!(f, " dev {interface}")?;
                    }
                    if hop.onlink {
                        f.write_str(" onlink")?;
                    }
                    if hops.len() > 1 {
                        write!(f, " weight {}", hop.weight)?;
                    }
                }
            }
        }
        if metric != 0 {
            write!(f, " metric {metric}")?;
        }
        match self.mtu() {
            Some(mtu) => write!(f, " mtu {mtu}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_written_as_they_are_read() {
        for text in [
            "198.51.100.0/24 via 192.0.2.1",
            "0.0.0.0/0 via 192.0.2.1 dev lan metric 5",
            "2001:db8::/32 via fe80::1 dev lan",
            "192.0.2.0/24 dev lan",
            "198.51.100.0/24 via inet6 fe80::1 dev lan",
            "198.51.100.0/24 nexthop via 192.0.2.1 weight 1 nexthop via inet6 fe80::1 dev lan weight 2",
            "blackhole 203.0.113.0/24",
            "prohibit 2001:db8:1::/48 metric 7",
            "198.51.100.0/24 nexthop via 192.0.2.1 weight 1 nexthop via 192.0.2.2 dev wan weight 3 metric 2",
            "198.51.100.0/24 via 203.0.113.1 dev lan onlink metric 5",
            "198.51.100.0/24 via 192.0.2.1 dev lan metric 5 mtu 1400",
            "198.51.100.0/24 nexthop via 192.0.2.1 weight 1 nexthop via 192.0.2.2 weight 3 mtu 68",
            "2001:db8::/32 dev lan mtu 1280",
            "198.51.100.0/24 nexthop via 192.0.2.1 weight 1 nexthop via 203.0.113.1 dev wan onlink weight 3",
        ] {
            assert_eq!(RouteSpec::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_ip_route_prints_is_read() {
        for (text, meaning) in [
            (
                "default via 192.0.2.1 dev lan proto dhcp src 192.0.2.7 metric 100",
                "0.0.0.0/0 via 192.0.2.1 dev lan metric 100",
            ),
            ("default via fe80::1 dev lan proto ra metric 1024 pref medium", "::/0 via fe80::1 dev lan metric 1024"),
            ("default via inet6 fe80::1 dev lan proto bgp metric 20", "0.0.0.0/0 via inet6 fe80::1 dev lan metric 20"),
            ("192.0.2.0/24 dev lan proto kernel scope link src 192.0.2.7", "192.0.2.0/24 dev lan"),
            ("unicast 198.51.100.7 via inet 192.0.2.1", "198.51.100.7/32 via 192.0.2.1"),
            (
                "198.51.100.0/24 metric 2 nexthop dev a weight 2 nexthop dev b",
                "198.51.100.0/24 nexthop dev a weight 2 nexthop dev b weight 1 metric 2",
            ),
            ("192.0.2.0/24 dev lan mtu lock 1400 proto static", "192.0.2.0/24 dev lan mtu 1400"),
            (
                "198.51.100.0/24 proto bgp metric 20 nexthop via 203.0.113.1 dev a weight 1 onlink linkdown",
                "198.51.100.0/24 via 203.0.113.1 dev a onlink metric 20",
            ),
        ] {
            assert_eq!(RouteSpec::parse(text).map(|route| route.to_string()), Ok(meaning.to_owned()), "{text}");
        }
    }

    #[test]
    fn errors_have_places() {
        for (text, part, message) in [
            ("", "", "a route is missing"),
            (
                "198.51.100.0/33 via 192.0.2.1",
                "198.51.100.0/33",
                "expected a number of bits from 0 to 32 behind the `/`",
            ),
            (
                "198.51.100.7/24 via 192.0.2.1",
                "198.51.100.7/24",
                "the address has bits behind the first 24; they must be 0",
            ),
            ("198.51.100.0/24", "198.51.100.0/24", "the route has no next hop"),
            ("198.51.100.0/24 via fe80::1", "fe80::1", "`fe80::1` is not an address of the route's family"),
            (
                "198.51.100.0/24 via inet6 192.0.2.1",
                "192.0.2.1",
                "`192.0.2.1` is not an address of the family that is named",
            ),
            ("198.51.100.0/24 via 192.0.2.1 metrik 5", "metrik", "`metrik` is not part of a route here"),
            ("198.51.100.0/24 dev lan mtu 67", "67", "an MTU of 67 is too small"),
            ("2001:db8::/32 dev lan mtu lock 1279", "1279", "an MTU of 1279 is too small"),
            ("198.51.100.0/24 dev lan mtu 65536", "65536", "`65536` is not a number of bytes from 68 to 65535"),
            ("198.51.100.0/24 dev lan metric x", "x", "`x` is not a number up to 4294967295"),
            (
                "blackhole 198.51.100.0/24 via 192.0.2.1",
                "198.51.100.0/24",
                "a route that forwards nothing has a next hop",
            ),
            ("198.51.100.0/24 nexthop via 192.0.2.1 weight 0", "0", "a weight of 0 is out of range"),
            ("198.51.100.0/24 nexthop weight 1", "nexthop", "the way has no next hop"),
        ] {
            let error = RouteSpec::parse(text).unwrap_err();
            assert_eq!((&text[error.range.clone()], &*error.message), (part, message), "{text}");
        }
        let error = RouteSpec::parse("198.51.100.0/24 via").unwrap_err();
        assert_eq!(error.message, "`via` needs an address of the route's family");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_route_or_an_error_within_it(text in "(default|[0-9a-f.:/]{0,12}|via|dev|nexthop|weight|metric| |é){0,12}") {
            if let Err(error) = RouteSpec::parse(&text) {
                assert!(!error.message.is_empty() && error.range.start <= text.len());
            }
        }
    }
}
