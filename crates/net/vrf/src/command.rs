//! Changes of routes as people write them, in the manner of `ip -batch`.

use std::net::IpAddr;

use bellows_wire::MacAddr;

use crate::route::{RouteError, RoutePattern, RouteSpec};

/// A change of the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteCommand {
    /// Enters a route; there must be none to the prefix with the same metric.
    Add(RouteSpec),
    /// Adds ways to the route to the prefix with the same metric, or enters it.
    Append(RouteSpec),
    /// Enters a route, in place of the one to the prefix with the same metric.
    Replace(RouteSpec),
    /// Removes the best route that has all that is given.
    Delete(RoutePattern),
}

/// What to do with a route that a command enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// As [`RouteCommand::Add`].
    Add,
    /// As [`RouteCommand::Append`].
    Append,
    /// As [`RouteCommand::Replace`].
    Replace,
    /// As [`RouteCommand::Delete`].
    Delete,
}

impl Verb {
    /// The verb of a word.
    pub fn of(word: &str) -> Option<Verb> {
        match word {
            "add" => Some(Verb::Add),
            "append" => Some(Verb::Append),
            "replace" => Some(Verb::Replace),
            "del" | "delete" => Some(Verb::Delete),
            _ => None,
        }
    }
}

impl RouteCommand {
    /// Parses a line: a verb and a route, `del` and what is known of a route, or a route alone, to which `bare`
    /// applies. The words `ip` and `route` may stand in front.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str, bare: Verb) -> Result<RouteCommand, RouteError> {
        let mut rest = text.trim_start();
        let mut verb = bare;
        for prefix in ["ip", "route"] {
            if let Some((word, more)) = rest.split_once(char::is_whitespace)
                && word == prefix
            {
                rest = more.trim_start();
            }
        }
        let (word, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if let Some(found) = Verb::of(word) {
            (verb, rest) = (found, more);
        }
        let offset = text.len() - rest.len();
        let moved = |mut error: RouteError| {
            error.range = error.range.start + offset..error.range.end + offset;
            error
        };
        Ok(match verb {
            Verb::Add => RouteCommand::Add(RouteSpec::parse(rest).map_err(moved)?),
            Verb::Append => RouteCommand::Append(RouteSpec::parse(rest).map_err(moved)?),
            Verb::Replace => RouteCommand::Replace(RouteSpec::parse(rest).map_err(moved)?),
            Verb::Delete => RouteCommand::Delete(RoutePattern::parse(rest).map_err(moved)?),
        })
    }
}

/// A change of a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourCommand {
    /// What to do.
    pub verb: Verb,
    /// The neighbour.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Option<MacAddr>,
    /// The name of the interface on whose link it is.
    pub interface: Option<String>,
}

/// What `ip neighbour` writes with a value behind it.
const VALUES: [&str; 8] = ["lladdr", "dev", "nud", "proto", "protocol", "ref", "used", "probes"];

/// States, as `ip neighbour` prints them.
const STATES: [&str; 9] =
    ["PERMANENT", "REACHABLE", "STALE", "DELAY", "PROBE", "INCOMPLETE", "FAILED", "NOARP", "NONE"];

/// What `ip neighbour` prints besides. Whether a neighbour is a router changes nothing here.
const FLAGS: [&str; 5] = ["router", "managed", "extern_learn", "offload", "proxy"];

const NEIGHBOUR_HELP: &str = "write, for example, `add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan`";

impl NeighbourCommand {
    /// Parses a line in the language of `ip neighbour`: `[add|replace|del] ADDRESS [lladdr ADDRESS] [dev INTERFACE]
    /// [nud STATE]`.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str, bare: Verb) -> Result<NeighbourCommand, RouteError> {
        let at = |word: &str| {
            let start = word.as_ptr().addr().saturating_sub(text.as_ptr().addr()).min(text.len());
            start..start + word.len()
        };
        let wrong =
            |word: &str, message: String, help: &str| RouteError { message, help: help.to_owned(), range: at(word) };
        let end = || &text[text.trim_end().len()..];
        let mut words = text.split_whitespace().peekable();
        for skipped in [&["ip"][..], &["neigh", "neighbour", "neighbor"]] {
            words.next_if(|word| skipped.contains(word));
        }
        let verb = words.next_if(|word| Verb::of(word).is_some()).and_then(Verb::of).unwrap_or(bare);
        let first = words.next().ok_or_else(|| wrong(end(), "a neighbour is missing".to_owned(), NEIGHBOUR_HELP))?;
        let address =
            first.parse().map_err(|_| wrong(first, format!("`{first}` is not an IP address"), NEIGHBOUR_HELP))?;
        let mut command = NeighbourCommand { verb, address, mac: None, interface: None };
        while let Some(word) = words.next() {
            if !VALUES.contains(&word) {
                let is_known = |known: &&str| known.eq_ignore_ascii_case(word);
                if STATES.iter().any(is_known) || FLAGS.contains(&word) {
                    continue;
                }
                return Err(wrong(word, format!("`{word}` is not part of a neighbour"), NEIGHBOUR_HELP));
            }
            let value = words
                .next()
                .ok_or_else(|| wrong(end(), format!("`{word}` needs a value"), "write it behind the word"))?;
            match word {
                "lladdr" => {
                    let mac: MacAddr = value
                        .parse()
                        .map_err(|error| wrong(value, format!("{error}"), "write, for example, 02:00:00:00:00:07"))?;
                    if !mac.is_station() {
                        let message = format!("`{value}` is not the Ethernet address of a station");
                        return Err(wrong(value, message, "give a unicast address"));
                    }
                    command.mac = Some(mac);
                }
                "dev" => command.interface = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_bare_routes() {
        let route = || RouteSpec::parse("198.51.100.0/24 via 192.0.2.1").unwrap();
        for (text, meaning) in [
            ("198.51.100.0/24 via 192.0.2.1", RouteCommand::Replace(route())),
            ("add 198.51.100.0/24 via 192.0.2.1", RouteCommand::Add(route())),
            ("  ip route  add 198.51.100.0/24 via 192.0.2.1", RouteCommand::Add(route())),
            ("route append 198.51.100.0/24 via 192.0.2.1", RouteCommand::Append(route())),
            ("replace 198.51.100.0/24 via 192.0.2.1 proto static", RouteCommand::Replace(route())),
        ] {
            assert_eq!(RouteCommand::parse(text, Verb::Replace), Ok(meaning), "{text}");
        }
        let RouteCommand::Delete(pattern) = RouteCommand::parse("del 198.51.100.0/24", Verb::Add).unwrap() else {
            panic!("not a deletion");
        };
        assert_eq!((pattern.prefix, pattern.metric, pattern.action), (route().prefix, None, None));
        let RouteCommand::Delete(pattern) =
            RouteCommand::parse("delete blackhole 198.51.100.0/24 metric 7", Verb::Add).unwrap()
        else {
            panic!("not a deletion");
        };
        assert_eq!((pattern.metric, pattern.action), (Some(7), Some(crate::route::Action::Blackhole)));
    }

    #[test]
    fn errors_are_where_they_are_in_the_line() {
        for (text, part) in [
            ("add 198.51.100.0/33 via 192.0.2.1", "198.51.100.0/33"),
            (" ip route del 198.51.100.0/24 metrik 7", "metrik"),
            ("expunge 198.51.100.0/24", "expunge"),
        ] {
            let error = RouteCommand::parse(text, Verb::Add).unwrap_err();
            assert_eq!(&text[error.range.clone()], part, "{text}: {error}");
        }
    }

    #[test]
    fn neighbours_are_written_as_ip_writes_them() {
        let command =
            NeighbourCommand::parse("192.0.2.7 dev lan lladdr 02:00:00:00:00:07 PERMANENT", Verb::Add).unwrap();
        let expected = NeighbourCommand {
            verb: Verb::Add,
            address: IpAddr::from([192, 0, 2, 7]),
            mac: Some(MacAddr([2, 0, 0, 0, 0, 7])),
            interface: Some("lan".to_owned()),
        };
        assert_eq!(command, expected);
        for line in [
            "192.0.2.7 dev lan lladdr 02:00:00:00:00:07 router STALE",
            "192.0.2.7 dev lan lladdr 02:00:00:00:00:07 used 3/2/1 probes 4 extern_learn REACHABLE proto zebra",
        ] {
            assert_eq!(NeighbourCommand::parse(line, Verb::Add).as_ref(), Ok(&expected), "{line}");
        }
        let command = NeighbourCommand::parse("ip neigh del fe80::7 dev lan", Verb::Add).unwrap();
        assert_eq!((command.verb, command.mac), (Verb::Delete, None));
        for (text, part, message) in [
            ("add", "", "a neighbour is missing"),
            ("add lan", "lan", "`lan` is not an IP address"),
            ("add 192.0.2.7 lladdr 1:2", "1:2", ""),
            ("add 192.0.2.7 lladdr 01:00:00:00:00:07", "01:00:00:00:00:07", "is not the Ethernet address of a station"),
            ("add 192.0.2.7 dev", "", "`dev` needs a value"),
            ("add 192.0.2.7 device lan", "device", "`device` is not part of a neighbour"),
        ] {
            let error = NeighbourCommand::parse(text, Verb::Add).unwrap_err();
            assert_eq!(&text[error.range.clone()], part, "{text}: {error}");
            assert!(error.message.contains(message), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_a_neighbour_or_an_error_within_it(
            text in "(ip|neigh|add|del|replace|[0-9a-f.:]{0,17}|lladdr|dev|nud| |é){0,10}"
        ) {
            if let Err(error) = NeighbourCommand::parse(&text, Verb::Add) {
                proptest::prop_assert!(text.get(error.range.clone()).is_some(), "{:?}", error);
            }
        }

        #[test]
        fn any_line_is_a_command_or_an_error_within_it(
            text in "(ip|route|add|del|append|replace|default|[0-9a-f.:/]{0,12}|via|dev|nexthop|metric| |é){0,12}"
        ) {
            if let Err(error) = RouteCommand::parse(&text, Verb::Add) {
                proptest::prop_assert!(!error.message.is_empty() && error.range.start <= text.len());
            }
        }
    }
}
