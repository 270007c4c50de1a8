//! The forms of routes, neighbours, associations and addresses.

use bellows_vpn::esp::PairState;

use super::Kind::{Decimal, Flag, Integer, List, Map, Object, Text, Tuple, Word};
use super::networks::{EVENT, NETWORK};
use super::{Form, Key, Kind, Section, key, schema_of};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows route show --json`",
        commands: &["route", "route show", "route list", "route ls"],
        text: &["A route has the keys of `ip -j route`."],
        whole: Some(Object(&SHOWN_ROUTES)),
        parts: &[Object(&DOMAIN), Object(&ROUTE), Object(&NEXT_HOP), Object(&METRICS), Object(&VIA)],
        notes: &[],
    },
    Section {
        heading: "`bellows route lookup --json`",
        commands: &["route lookup", "route get"],
        text: &[],
        whole: Some(Object(&SHOWN_LOOK_UP)),
        parts: &[Object(&LOOK_UP), Object(&WAY), Object(&COMPILED)],
        notes: &[],
    },
    Section {
        heading: "`bellows route add|append|replace|del --json`",
        commands: &["route add", "route append", "route replace", "route del", "route delete"],
        text: &["The change of one route. A change that is not possible prints nothing to standard output."],
        whole: Some(Object(&CHANGED_ROUTE)),
        parts: &[Object(&CHANGED), Object(&LINE_ERROR)],
        notes: &[],
    },
    Section {
        heading: "`bellows route add|append|replace|del -f FILE --json`",
        commands: &[
            "route -f",
            "route --file",
            "route add -f",
            "route add --file",
            "route append -f",
            "route append --file",
            "route replace -f",
            "route replace --file",
            "route del -f",
            "route del --file",
        ],
        text: &["If a line is wrong, nothing is printed to standard output, unless `--force` leaves such lines out."],
        whole: Some(Object(&CHANGED_ROUTES)),
        parts: &[Object(&COUNTS)],
        notes: &[],
    },
    Section {
        heading: "`bellows route replace-all --json`",
        commands: &["route replace-all", "route replace-all -f", "route replace-all --file"],
        text: &[],
        whole: Some(Object(&REPLACED_ROUTES)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows route flush --json`",
        commands: &["route flush", "neighbour flush"],
        text: &["`bellows neighbour flush --json` prints the same."],
        whole: Some(Object(&FLUSHED)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show saved --json`",
        commands: &["show saved"],
        text: &[],
        whole: Some(Object(&SHOWN_SAVED)),
        parts: &[Object(&SAVED), Object(&SAVED_ENTRY), Object(&SAVED_KEY)],
        notes: &[],
    },
    Section {
        heading: "`bellows show neighbours --json`",
        commands: &["show neighbours", "neighbour", "neighbour show", "neighbour list", "neighbour ls"],
        text: &["`bellows neighbour show --json` prints the same, of one routing domain."],
        whole: Some(Object(&SHOWN_NEIGHBOURS)),
        parts: &[Object(&NEIGHBOURS), Object(&NEIGHBOUR)],
        notes: &[],
    },
    Section {
        heading: "`bellows neighbour add|replace|del --json`",
        commands: &[
            "neighbour add",
            "neighbour replace",
            "neighbour del",
            "neighbour delete",
            "neighbour -f",
            "neighbour --file",
        ],
        text: &["With `-f FILE`, too. A change that is not possible prints nothing to standard output."],
        whole: Some(Object(&CHANGED_NEIGHBOURS)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show fib --json`",
        commands: &["show fib"],
        text: &[],
        whole: Some(Object(&SHOWN_FIB)),
        parts: &[Object(&FIB), Object(&FAMILY), Object(&FAMILY_NEXT_HOP), Object(&GROUPS), Object(&ADJACENCIES)],
        notes: &[],
    },
    Section {
        heading: "`bellows esp show --json`",
        commands: &["esp", "esp show"],
        text: &[
            "No key of a cipher is in it. The [status](#status-of-esp) of an `esp` has the same pairs without `app`.",
        ],
        whole: Some(Object(&SHOWN_ESP)),
        parts: &[Object(&SHOWN_PAIR), ESP_PAIR],
        notes: &[],
    },
    Section {
        heading: "`bellows esp rekey --json`",
        commands: &["esp rekey"],
        text: &[],
        whole: Some(Object(&REKEYED)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows esp forget --json`",
        commands: &["esp forget"],
        text: &[],
        whole: Some(Object(&FORGOTTEN)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show mac --json`",
        commands: &["show mac"],
        text: &[],
        whole: Some(Object(&SHOWN_ADDRESSES)),
        parts: &[Object(&MAC_ADDRESSES), Object(&MAC_ADDRESS)],
        notes: &[],
    },
    Section {
        heading: "`bellows clear mac --json`",
        commands: &["clear mac"],
        text: &[],
        whole: Some(Object(&CLEARED_ADDRESSES)),
        parts: &[],
        notes: &[],
    },
];

/// What the output of commands for one routing domain has in common.
static DOMAIN: Form = Form {
    title: "Routing domain",
    includes: &[],
    keys: &[key("name", Text, "the name of the network"), key("vrf", Text, "that of the routing domain")],
};

static SHOWN_ROUTES: Form = Form {
    title: "Shown routes",
    includes: &[Object(&DOMAIN)],
    keys: &[
        key("routes", List(&Object(&ROUTE)), "the routes, in the order of families, prefixes and metrics"),
        key(
            "next",
            Tuple(&[Text, Integer]),
            "where a limited list goes on: the prefix and the metric of its last route; \
             null at the end",
        )
        .or_null(),
    ],
};

pub(super) static ROUTE: Form = Form {
    title: "Route",
    includes: &[],
    keys: &[
        key("route", Text, "the route in the language of `ip route`"),
        key(
            "type",
            Word(&["blackhole", "unreachable", "prohibit", "local", "multicast", "martian"]),
            "`blackhole`, `unreachable`, `prohibit`, `local`, `multicast` or `martian`; absent if it forwards packets",
        )
        .or_absent(),
        key("dst", Text, "the prefix"),
        key("metric", Integer, "the metric"),
        key("gateway", Text, "the next router, if there is one way; absent on the link itself").or_absent(),
        key("via", Object(&VIA), "the same, if its address is of the other family").or_absent(),
        key("dev", Text, "the interface, if there is one way").or_absent(),
        key("flags", List(&Word(&["onlink"])), ONLINK).or_absent(),
        key("nexthops", List(&Object(&NEXT_HOP)), "the ways, if there are several").or_absent(),
        key("metrics", List(&Object(&METRICS)), "the route's MTU, if it is less than that of the interface")
            .or_absent(),
        key(
            "protocol",
            Text,
            "who entered it: the origin, but for a route of Linux its protocol there, such as `bgp`, `ospf` or `static`, or \
             the number of one without a name",
        ),
        key(
            "origin",
            Word(&["static", "control", "kernel", "connected", "neighbour"]),
            "`static` (the network file), `control` (a command), `kernel` (a table of Linux that is followed), `connected` \
             (an interface) or `neighbour`",
        ),
    ],
};

static NEXT_HOP: Form = Form {
    title: "Next hop of a route",
    includes: &[],
    keys: &[
        key("gateway", Text, "the next router; absent on the link itself").or_absent(),
        key("via", Object(&VIA), "the same, if its address is of the other family").or_absent(),
        key("dev", Text, "the interface"),
        key("flags", List(&Word(&["onlink"])), ONLINK).or_absent(),
        key("weight", Integer, "its weight"),
    ],
};

static METRICS: Form = Form {
    title: "Metrics of a route",
    includes: &[],
    keys: &[key("mtu", Integer, "the longest packet that takes the route, bytes")],
};

/// What is said of a next router that no prefix of its interface contains.
const ONLINK: &str = "`onlink` if the next router is on no link of the interface by its addresses; absent otherwise";

static VIA: Form = Form {
    title: "Router of the other family",
    includes: &[],
    keys: &[
        key("family", Word(&["inet", "inet6"]), "`inet` (IPv4) or `inet6` (IPv6)"),
        key("host", Text, "its address"),
    ],
};

static SHOWN_LOOK_UP: Form = Form {
    title: "Shown look-up",
    includes: &[Object(&DOMAIN), Object(&LOOK_UP)],
    keys: &[key("from", Object(&LOOK_UP), "the same for the source, if one was given").or_absent()],
};

pub(super) static LOOK_UP: Form = Form {
    title: "Look-up",
    includes: &[],
    keys: &[
        key("address", Text, "the address"),
        key("route", Object(&ROUTE), "its route; null without one, and then the keys below are absent").or_null(),
        key("next", Integer, "the number of the adjacency or group").or_absent(),
        key("ways", List(&Object(&WAY)), "the ways; none if the route does not forward packets").or_absent(),
        key("compiled", Object(&COMPILED), "where the prefix is in the tables").or_absent(),
    ],
};

static WAY: Form = Form {
    title: "Way",
    includes: &[],
    keys: &[
        key("interface", Text, "the interface"),
        key("neighbour", Text, "the next router, or the address itself on the link"),
        key("weight", Integer, "its weight"),
        key("share", Decimal, "its share of flows now, from 0 to 1"),
        key("in_use", Flag, "false if the neighbour does not answer, so that other ways have its flows"),
        key("adjacency", Integer, "the index of the adjacency"),
        key(
            "kind",
            Word(&["complete", "incomplete", "glean", "unused"]),
            "of the adjacency: `complete` (it has the neighbour's Ethernet address), `incomplete` (it has none yet), `glean` \
             (of a link, whose stations are asked one by one) or `unused`",
        ),
        key(
            "state",
            Word(&["incomplete", "reachable", "delay", "probe", "failed", "permanent"]),
            "the state of the [neighbour](#neighbour): `incomplete`, `reachable`, `delay`, `probe`, `failed` or `permanent`; \
             null if unknown",
        )
        .or_null(),
        key("mac", Text, "its Ethernet address; null if unknown").or_null(),
    ],
};

static COMPILED: Form = Form {
    title: "Compiled route",
    includes: &[],
    keys: &[
        key(
            "bits",
            Tuple(&[Integer, Integer]),
            "the bits of an address by which the cells of the prefix are chosen: the first one, and the one after the last",
        ),
        key("cells", Tuple(&[Integer, Integer]), "the first and the last of these cells"),
    ],
};

static CHANGED_ROUTE: Form = Form {
    title: "Changed route",
    includes: &[Object(&DOMAIN)],
    keys: &[key("changed", Object(&CHANGED), "what has changed")],
};

pub(super) static CHANGED: Form = Form {
    title: "Changes",
    includes: &[],
    keys: &[
        key("added", Integer, "the number of routes or neighbours that are new"),
        key("replaced", Integer, "the number of those that are in the place of others"),
        key("deleted", Integer, "the number of those that are gone"),
        key(
            "errors",
            List(&Object(&LINE_ERROR)),
            "lines that are wrong: none in the output of a command; those of a \
             [request to a routing domain](#requests-to-a-routing-domain)",
        ),
    ],
};

pub(super) static LINE_ERROR: Form = Form {
    title: "Wrong line",
    includes: &[],
    keys: &[
        key("index", Integer, "its position in the request, from 0 on"),
        key("message", Text, "what is wrong"),
        key("help", Text, "how to fix it; may be empty"),
        key(
            "range",
            Tuple(&[Integer, Integer]),
            "the bytes of the line that are wrong: the first one, and the one after the last",
        ),
    ],
};

static COUNTS: Form = Form {
    title: "Counts of lines",
    includes: &[],
    keys: &[
        key("added", Integer, "the number of routes or neighbours that are new"),
        key("replaced", Integer, "the number of those that are in the place of others"),
        key("deleted", Integer, "the number of those that are gone"),
        key(
            "skipped",
            Integer,
            "lines that were left out: routes that follow from interfaces and neighbours, and neighbours without an Ethernet \
             address",
        ),
        key("failed", Integer, "lines that were wrong, and were left out because of `--force`"),
    ],
};

static CHANGED_ROUTES: Form = Form {
    title: "Changed routes",
    includes: &[Object(&DOMAIN), Object(&COUNTS)],
    keys: &[key("seconds", Decimal, "how long it took")],
};

static CHANGED_NEIGHBOURS: Form =
    Form { title: "Changed neighbours", includes: &[Object(&DOMAIN), Object(&COUNTS)], keys: &[] };

static REPLACED_ROUTES: Form = Form {
    title: "Replaced routes",
    includes: &[Object(&DOMAIN)],
    keys: &[
        key("before", Integer, "the number of routes that were replaced"),
        key("after", Integer, "the number of routes in their place"),
        key("repeated", Integer, "lines in whose place later ones are"),
        key("skipped", Integer, "lines that were left out: routes that follow from interfaces and neighbours"),
        key("seconds", Decimal, "how long it took"),
    ],
};

static FLUSHED: Form = Form {
    title: "Flushed",
    includes: &[Object(&DOMAIN)],
    keys: &[key("deleted", Integer, "the number of routes or neighbours that were removed")],
};

static SHOWN_NEIGHBOURS: Form = Form {
    title: "Shown neighbours",
    includes: &[],
    keys: &[
        key("name", Text, "the name of the network"),
        key("vrfs", List(&Object(&NEIGHBOURS)), "the routing domains"),
    ],
};

static NEIGHBOURS: Form = Form {
    title: "Neighbours",
    includes: &[],
    keys: &[
        key("vrf", Text, "the name of the routing domain"),
        key("neighbours", List(&Object(&NEIGHBOUR)), "its neighbours, in the order of interfaces and addresses"),
    ],
};

/// What a router knows of a neighbour.
const STATE_OF_NEIGHBOUR: Key = key(
    "state",
    Word(&["incomplete", "reachable", "delay", "probe", "failed", "permanent"]),
    "`incomplete` (it was asked, and has not answered yet), `reachable`, `delay` (its Ethernet address is known, but \
             not whether it receives what is sent there: it is asked soon), `probe` (it is asked again), `failed` (a next \
             hop of a route with several ways that does not answer) or `permanent` (somebody has entered it)",
);

pub(super) static NEIGHBOUR: Form = Form {
    title: "Neighbour",
    includes: &[],
    keys: &[
        key("address", Text, "the IP address"),
        key("interface", Text, "the interface on whose link it is"),
        key("mac", Text, "the Ethernet address; null if it is not known").or_null(),
        STATE_OF_NEIGHBOUR,
        key(
            "age_seconds",
            Integer,
            "seconds since the state or the Ethernet address was another one; null for permanent \
             ones",
        )
        .or_null(),
        key("waiting", Integer, "packets that wait for it"),
        key(
            "protocol",
            Word(&["static", "control", "kernel"]),
            "the origin of permanent ones: `static` (the network file), `control` (a command) or `kernel` (Linux)",
        )
        .or_absent(),
    ],
};

static SHOWN_FIB: Form = Form {
    title: "Shown tables",
    includes: &[],
    keys: &[key("name", Text, "the name of the network"), key("vrfs", List(&Object(&FIB)), "the routing domains")],
};

static FIB: Form = Form {
    title: "Tables of a routing domain",
    includes: &[],
    keys: &[
        key("vrf", Text, "its name"),
        key("ipv4", Object(&FAMILY), "the tables of IPv4"),
        key("ipv6", Object(&FAMILY), "the tables of IPv6"),
        key("groups", Object(&GROUPS), "the routes with several ways"),
        key("adjacencies", Object(&ADJACENCIES), "the next hops, each with its Ethernet header"),
    ],
};

pub(super) static FAMILY: Form = Form {
    title: "Tables of a family",
    includes: &[],
    keys: &[
        key("routes", Integer, "the number of routes"),
        key("bytes", Integer, "the size of the compiled tables"),
        key("lengths", Map(&Integer), "routes by the length of their prefix"),
        key("origins", Map(&Integer), "routes by their `origin`, as in a [route](#route)"),
        key("prefixes_with_several_routes", Integer, "prefixes with routes of several metrics"),
        key("distinct_next_hops", Integer, "different next hops, a group counting once"),
        key("next_hops", List(&Object(&FAMILY_NEXT_HOP)), "the 64 of them with the most routes, these first"),
    ],
};

static FAMILY_NEXT_HOP: Form = Form {
    title: "Next hop of a family",
    includes: &[],
    keys: &[
        key("next", Integer, "the number of the adjacency or group"),
        key("to", Text, "where it leads, in words"),
        key("routes", Integer, "its routes"),
    ],
};

pub(super) static GROUPS: Form = Form {
    title: "Groups of ways",
    includes: &[],
    keys: &[
        key("count", Integer, "different groups of ways"),
        key("ways", Integer, "their ways"),
        key("out_of_use", Integer, "those of them that are out of use because they do not answer"),
    ],
};

pub(super) static ADJACENCIES: Form = Form {
    title: "Adjacencies",
    includes: &[],
    keys: &[key("used", Integer, "how many are in use"), key("capacity", Integer, "how many there can be")],
};

static SHOWN_ESP: Form = Form {
    title: "Shown associations",
    includes: &[NETWORK],
    keys: &[
        key("instructions", Text, "the instructions that the ciphers use"),
        key("pairs", List(&Object(&SHOWN_PAIR)), "the pairs of associations; only those that were named"),
        key(
            "events",
            List(&EVENT),
            "what happened to them, the latest last: the events of these apps that the network has kept, or those of the \
             pair that was named",
        ),
    ],
};

static SHOWN_PAIR: Form =
    Form { title: "Pair of an app", includes: &[ESP_PAIR], keys: &[key("app", Text, "the app of type `esp`")] };

/// A pair of associations, as an app shows it.
pub(super) const ESP_PAIR: Kind = schema_of::<PairState>();

static REKEYED: Form = Form {
    title: "Rekeyed pair",
    includes: &[],
    keys: &[
        key("pair", Text, "the name of the pair"),
        key("inbound", Integer, "the new SPI for receiving; null if it stays").or_null(),
        key("outbound", Integer, "the new SPI for sending; null if it stays").or_null(),
        key("old_inbound", Integer, "the SPI for receiving that was replaced; null if it stays").or_null(),
        key("old_outbound", Integer, "the SPI for sending that was replaced; null if it stays").or_null(),
        key("grace_seconds", Integer, "how long packets with the old key are received; null if it stays").or_null(),
    ],
};

static FORGOTTEN: Form = Form {
    title: "Forgotten keys",
    includes: &[],
    keys: &[
        key("pair", Text, "the name of the pair"),
        key("forgotten", Integer, "the number of keys that are saved no longer"),
    ],
};

static SHOWN_ADDRESSES: Form = Form {
    title: "Shown MAC addresses",
    includes: &[],
    keys: &[
        key("name", Text, "the name of the network"),
        key("tables", List(&Object(&MAC_ADDRESSES)), "the tables of MAC addresses; only the one that was named"),
    ],
};

static MAC_ADDRESSES: Form = Form {
    title: "Table of MAC addresses",
    includes: &[],
    keys: &[
        key("table", Text, "its name: that of an object, or of a bridge that has one of its own"),
        key("addresses", List(&Object(&MAC_ADDRESS)), "its addresses, in the order of VLANs and addresses"),
    ],
};

pub(super) static MAC_ADDRESS: Form = Form {
    title: "MAC address",
    includes: &[],
    keys: &[
        key("mac", Text, "the address"),
        key("vlan", Integer, "its VLAN; null in a bridge without VLANs").or_null(),
        key("port", Text, "the name of the port; null if a reload has just removed it").or_null(),
        key(
            "state",
            Word(&["learned", "static", "held"]),
            "`learned`, `static` (of the network file) or `held` (it has moved too often, and stays for a time)",
        ),
        key("age_seconds", Integer, "seconds since it was seen, in steps of 1/32 of `ageing`; null for static ones")
            .or_null(),
    ],
};

static CLEARED_ADDRESSES: Form = Form {
    title: "Forgotten MAC addresses",
    includes: &[],
    keys: &[
        key("name", Text, "the name of the network"),
        key("deleted", Integer, "the number of addresses that were forgotten"),
    ],
};

static SHOWN_SAVED: Form =
    Form { title: "What is saved", includes: &[Object(&SAVED)], keys: &[key("name", Text, "the network's name")] };

pub(super) static SAVED: Form = Form {
    title: "Saved changes",
    includes: &[],
    keys: &[
        key("file", Text, "the file; null if there is no state folder").or_null(),
        key("entries", List(&Object(&SAVED_ENTRY)), "what is in there"),
        key("keys_file", Text, "the file with keys of IPsec; null if there is no state folder").or_null(),
        key("keys", List(&Object(&SAVED_KEY)), "what is said of the keys in there: all but the keys"),
    ],
};

static SAVED_KEY: Form = Form {
    title: "Saved key",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("pair", Text, "its pair of associations"),
        key("direction", Word(&["inbound", "outbound"]), "what the key is for: `inbound` or `outbound`"),
        key("spi", Integer, "its SPI"),
        key("algorithm", Text, "its cipher"),
        key("saved_unix_ns", Integer, "when it was saved, in nanoseconds since 1970"),
        key("problem", Text, "why it could not be used when the network started; null if it could").or_null(),
    ],
};

static SAVED_ENTRY: Form = Form {
    title: "Saved entry",
    includes: &[],
    keys: &[
        key("vrf", Text, "the routing domain"),
        key("what", Word(&["route", "neighbour"]), "`route` or `neighbour`"),
        key("command", Text, "the command that enters it when the network starts"),
        key("problem", Text, "why that was not possible; null if it was").or_null(),
    ],
};

#[cfg(test)]
mod tests {
    use bellows_router::vrf::requests::{Changed, LineError};
    use serde_json::json;

    use crate::forms::lacking;

    #[test]
    fn changes_with_a_wrong_line_have_their_forms() {
        let error = LineError { index: 3, message: "no".to_owned(), help: String::new(), range: (0, 2) };
        let changed = json!(Changed { added: 1, replaced: 0, deleted: 0, errors: vec![error] });
        assert_eq!(lacking("Changes", &changed), Vec::<String>::new());
        assert_eq!(lacking("Wrong line", &changed["errors"][0]), Vec::<String>::new());
    }
}
