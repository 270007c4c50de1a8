//! The requests that a routing domain answers.

use crate::forms::Kind::{Any, Flag, Integer, List, Object, Text, Tuple, Word};
use crate::forms::routed::{ADJACENCIES, FAMILY, GROUPS, LINE_ERROR, LOOK_UP, NEIGHBOUR, ROUTE};
use crate::forms::{Form, Section, key};

/// The requests to a routing domain, and its answers.
pub(super) const REQUESTS: Section = Section {
    heading: "Requests to a routing domain",
    commands: &[],
    text: &[
        "A routing domain (type `vrf`) answers these requests. Each takes effect as a whole or not at all. A list of lines \
         has at most 4,096; what is staged ends with the connection.",
        "A whole request is, for example, `{\"command\": \"object\", \"kind\": \"vrf\", \"request\": {\"fib\": {}}}`. Its \
         `request` is an object with one of these keys:",
    ],
    whole: Some(Object(&REQUEST)),
    parts: &[
        Object(&CHANGE),
        Object(&ROUTE_PAGE),
        Object(&ROUTE_SELECTION),
        Object(&ROUTES_ANSWER),
        Object(&FLUSH_ANSWER),
        Object(&LOOK_UP_REQUEST),
        Object(&LOOK_UP_ANSWER),
        Object(&STAGE),
        Object(&STAGE_ANSWER),
        Object(&SWAP),
        Object(&SWAP_ANSWER),
        Object(&FIB_ANSWER),
        Object(&NEIGHBOUR_PAGE),
        Object(&NEIGHBOUR_SELECTION),
        Object(&NEIGHBOURS_ANSWER),
        Object(&CHANGE_NEIGHBOURS),
        Object(&FLUSH_NEIGHBOURS_ANSWER),
    ],
    notes: &[],
};

static REQUEST: Form = Form {
    title: "Request to a routing domain",
    includes: &[],
    keys: &[
        key("change", Object(&CHANGE), "changes routes ([answer](#changes))").or_absent(),
        key("routes", Object(&ROUTE_PAGE), "lists routes, page by page ([answer](#answer-with-routes))").or_absent(),
        key("flush", Object(&ROUTE_PAGE), "removes the routes of a page ([answer](#answer-to-a-flush))").or_absent(),
        key("look-up", Object(&LOOK_UP_REQUEST), "the route of an address ([answer](#answer-to-a-look-up))")
            .or_absent(),
        key(
            "stage",
            Object(&STAGE),
            "adds to the routes that `swap` enters, and that have no effect before ([answer](#answer-to-stage))",
        )
        .or_absent(),
        key(
            "swap",
            Object(&SWAP),
            "replaces all static routes and those of commands by the staged ones ([answer](#answer-to-swap))",
        )
        .or_absent(),
        key("fib", Any, "`{}`: figures of the tables ([answer](#answer-with-tables))").or_absent(),
        key(
            "neighbours",
            Object(&NEIGHBOUR_PAGE),
            "lists neighbours, page by page ([answer](#answer-with-neighbours))",
        )
        .or_absent(),
        key("change-neighbours", Object(&CHANGE_NEIGHBOURS), "changes neighbours ([answer](#changes))").or_absent(),
        key(
            "flush-neighbours",
            Object(&NEIGHBOUR_SELECTION),
            "forgets neighbours: those of commands, and those that were learned, which are asked anew \
             ([answer](#answer-to-a-flush-of-neighbours))",
        )
        .or_absent(),
    ],
};

static CHANGE: Form = Form {
    title: "Change of routes",
    includes: &[],
    keys: &[
        key("commands", List(&Text), "lines in the language of `ip -batch`: `add 198.51.100.0/24 via 192.0.2.1`"),
        key(
            "bare",
            Word(&["add", "append", "replace", "delete"]),
            "what lines without a verb mean: `add` (without this key), `append`, `replace` or `delete`",
        )
        .or_absent(),
        key(
            "force",
            Flag,
            "whether wrong lines are left out and the others carried out; otherwise one wrong line prevents all",
        )
        .or_absent(),
    ],
};

static ROUTE_PAGE: Form = Form {
    title: "Page of routes",
    includes: &[],
    keys: &[
        key("select", Object(&ROUTE_SELECTION), "which routes; without it, all static and control ones").or_absent(),
        key("after", Tuple(&[Text, Integer]), "`next` of the page before: a prefix and a metric").or_absent(),
        key(
            "limit",
            Integer,
            "of `routes`: the maximum number of routes, up to 4,096, or up to 16,384 with `text`; without it, as many",
        )
        .or_absent(),
        key("only_count", Flag, "of `routes`: whether the answer has the number of routes in their place").or_absent(),
        key(
            "text",
            Word(&["plain", "json"]),
            "of `routes`: the answer has a text of lines, which is much faster for long lists: those of `bellows route show` \
             (`plain`), or each a [route](#route) as JSON (`json`)",
        )
        .or_absent(),
    ],
};

static ROUTE_SELECTION: Form = Form {
    title: "Selection of routes",
    includes: &[],
    keys: &[
        key(
            "prefix",
            Tuple(&[Word(&["exact", "root", "match"]), Text]),
            "`exact`, `root` (it and all within it) or `match` (it and all that it is within), and a prefix",
        )
        .or_absent(),
        key("family", Integer, "4 or 6").or_absent(),
        key("dev", Text, "through this interface").or_absent(),
        key("via", Text, "through the router of this address").or_absent(),
        key(
            "origins",
            List(&Text),
            "of these origins, as in `origin` of a [route](#route), or with these protocols in Linux; without it, static and \
             control routes",
        )
        .or_absent(),
    ],
};

static ROUTES_ANSWER: Form = Form {
    title: "Answer with routes",
    includes: &[],
    keys: &[
        key("routes", List(&Object(&ROUTE)), "the routes; absent with `only_count` or `text`").or_absent(),
        key("count", Integer, "with `only_count` or `text`: the number of routes").or_absent(),
        key("text", Text, "with `text`: the routes, one a line").or_absent(),
        key(
            "next",
            Tuple(&[Text, Integer]),
            "the `after` of the next page; null at the end. A page may be empty and not the last one",
        )
        .or_null(),
    ],
};

static FLUSH_ANSWER: Form = Form {
    title: "Answer to a flush",
    includes: &[],
    keys: &[
        key("deleted", Integer, "the number of removed routes"),
        key("next", Tuple(&[Text, Integer]), "the `after` of the next page; null at the end").or_null(),
    ],
};

static LOOK_UP_REQUEST: Form = Form {
    title: "Request for a look-up",
    includes: &[],
    keys: &[
        key("address", Text, "the destination"),
        key("from", Text, "the source, whose way back is told").or_absent(),
    ],
};

static LOOK_UP_ANSWER: Form = Form {
    title: "Answer to a look-up",
    includes: &[Object(&LOOK_UP)],
    keys: &[key("from", Object(&LOOK_UP), "the same for the source, if one was given").or_absent()],
};

static STAGE: Form = Form {
    title: "Routes to stage",
    includes: &[],
    keys: &[key("routes", List(&Text), "routes in the language of `ip route`")],
};

static STAGE_ANSWER: Form = Form {
    title: "Answer to `stage`",
    includes: &[],
    keys: &[
        key("staged", Integer, "the number of all staged routes"),
        key("errors", List(&Object(&LINE_ERROR)), "wrong lines; with any, nothing is staged any more"),
    ],
};

static SWAP: Form = Form {
    title: "Swap of routes",
    includes: &[],
    keys: &[key("routes", Integer, "how many routes are staged: a reload may have ended what was staged")],
};

static SWAP_ANSWER: Form = Form {
    title: "Answer to `swap`",
    includes: &[],
    keys: &[
        key("before", Integer, "the number of routes that were replaced"),
        key("after", Integer, "the number of routes in their place"),
        key("repeated", Integer, "staged routes in whose place later ones are"),
    ],
};

static FIB_ANSWER: Form = Form {
    title: "Answer with tables",
    includes: &[],
    keys: &[
        key("ipv4", Object(&FAMILY), "the tables of IPv4"),
        key("ipv6", Object(&FAMILY), "the tables of IPv6"),
        key("groups", Object(&GROUPS), "the routes with several ways"),
        key("adjacencies", Object(&ADJACENCIES), "the next hops, each with its Ethernet header"),
    ],
};

static NEIGHBOUR_PAGE: Form = Form {
    title: "Page of neighbours",
    includes: &[],
    keys: &[
        key("select", Object(&NEIGHBOUR_SELECTION), "which neighbours; without it, all").or_absent(),
        key("goes_on", Flag, "whether to give the next ones of the same list, as the neighbours were when it began")
            .or_absent(),
    ],
};

static NEIGHBOUR_SELECTION: Form = Form {
    title: "Selection of neighbours",
    includes: &[],
    keys: &[
        key("dev", Text, "on the link of this interface").or_absent(),
        key("address", Text, "with this IP address").or_absent(),
    ],
};

static NEIGHBOURS_ANSWER: Form = Form {
    title: "Answer with neighbours",
    includes: &[],
    keys: &[
        key("neighbours", List(&Object(&NEIGHBOUR)), "up to 16,384 neighbours"),
        key("more", Flag, "whether there are more"),
    ],
};

static CHANGE_NEIGHBOURS: Form = Form {
    title: "Change of neighbours",
    includes: &[],
    keys: &[
        key(
            "commands",
            List(&Text),
            "lines in the language of `ip neighbour`: `add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan`",
        ),
        key(
            "bare",
            Word(&["add", "append", "replace", "delete"]),
            "what lines without a verb mean: `add` (without this key), `append`, `replace` or `delete`",
        )
        .or_absent(),
    ],
};

static FLUSH_NEIGHBOURS_ANSWER: Form = Form {
    title: "Answer to a flush of neighbours",
    includes: &[],
    keys: &[key("deleted", Integer, "the number of forgotten neighbours")],
};
