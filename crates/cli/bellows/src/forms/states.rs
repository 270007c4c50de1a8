//! The forms of the states of apps and shared objects.

use super::Kind::{Flag, Integer, List, Map, Object, Text, Word};
use super::networks::NETWORK;
use super::routed::{ESP_PAIR, STATE_OF_NEIGHBOUR};
use super::{Form, Kind, Section, key, schema_of};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows show vhost --json`",
        commands: &["show vhost"],
        text: &[],
        whole: Some(Object(&SHOWN_VHOST)),
        parts: &[
            Object(&DEVICE),
            Object(&VIRTIO),
            Object(&PEER),
            Object(&CONFINEMENT),
            Object(&FAULTS),
            Object(&GUEST_MEMORY),
            Object(&NOTIFICATIONS),
            Object(&RING),
            Object(&RING_COUNTS),
        ],
        notes: &[
            "A `virtio-user` is a driver and no device. It has no `offered`, `protocol_features`, `memory`, `logging` and \
             `notifications`; its rings are listed while it is connected, and have no `error`, `instance` and `chains`.",
            "Several apps may have queues of one device. What they report of it is the same, but for `engine_faults` and \
             `rings`.",
        ],
    },
    Section {
        heading: "`bellows show status --json`",
        commands: &["show status"],
        text: &[
            "The form of a status depends on the type of the app or shared object, as the headings below say. Types that are \
             not below have no status; those of [apps of your own](writing-an-app.md) may have one of any form. The status \
             of `vhost-user` and `virtio-user` is [above](#status-of-vhost-user-and-virtio-user).",
        ],
        whole: Some(Object(&SHOWN_STATUS)),
        parts: &[
            Object(&SHOWN_APP_STATUS),
            APP_STATUS,
            OBJECT_STATUS,
            Object(&PORT),
            Object(&PORT_DETAILS),
            Object(&PORT_QUEUE),
            Object(&KERNEL_INTERFACE),
            Object(&FILTERS),
            Object(&FILTER),
            Object(&FILTER_PROGRAM),
            Object(&ACCESS_LISTS),
            Object(&ACCESS_LIST),
            Object(&ACCESS_RULE),
            Object(&STATE_TABLE),
            Object(&CONNECTIONS),
            Object(&MAC_TABLE),
            Object(&PORT_LIMITED),
            Object(&RSS),
            Object(&REASSEMBLE),
            Object(&ESP),
            Object(&CONTROL_CHANNEL),
            Object(&CHANNEL_MESSAGE),
            Object(&CHANNEL_PEER),
            Object(&VRF),
            Object(&VRF_INTERFACE),
            Object(&DUPLICATE),
            Object(&BY_FAMILY),
            Object(&RESOLVER),
            Object(&RESOLVED),
            Object(&KERNEL_ROUTES),
        ],
        notes: &[],
    },
];

/// The form of each status, by the type of the app or shared object.
static STATUSES: &[(&str, &Form)] = &[
    ("vhost-user", &VIRTIO),
    ("virtio-user", &VIRTIO),
    ("af-xdp", &PORT),
    ("raw-socket", &PORT),
    ("tap", &PORT),
    ("unix-socket", &PORT),
    ("pcap-filter", &FILTERS),
    ("pcap-reader", &FILTERS),
    ("access-list", &ACCESS_LISTS),
    ("state-table", &STATE_TABLE),
    ("mac-table", &MAC_TABLE),
    ("bridge", &MAC_TABLE),
    ("rss", &RSS),
    ("reassemble", &REASSEMBLE),
    ("esp", &ESP),
    ("control-channel", &CONTROL_CHANNEL),
    ("vrf", &VRF),
    ("arp", &RESOLVER),
    ("nd", &RESOLVER),
    ("kernel-routes", &KERNEL_ROUTES),
];

/// The form of the status of apps or shared objects of a type, if it has one.
pub(super) fn status(kind: &str) -> Option<&'static Form> {
    STATUSES.iter().find(|(known, _)| *known == kind).map(|(_, form)| *form)
}

/// Whether a type is one of Bellows' own. Types of other crates have a status of any form.
pub(super) fn is_own(kind: &str) -> bool {
    let registry = bellows_apps::registry();
    registry.get(kind).is_some() || registry.object(kind).is_some()
}

static SHOWN_VHOST: Form = Form {
    title: "Shown devices",
    includes: &[NETWORK],
    keys: &[key(
        "devices",
        List(&Object(&DEVICE)),
        "the virtio devices and drivers of a running network, in the order of its file; only one if an app was named",
    )],
};

static DEVICE: Form = Form {
    title: "Virtio device or driver",
    includes: &[Object(&VIRTIO)],
    keys: &[key("app", Text, "the app's name in the network")],
};

static VIRTIO: Form = Form {
    title: "Status of `vhost-user` and `virtio-user`",
    includes: &[],
    keys: &[
        key("interface", Flag, "true: `show interfaces` lists apps whose status says so"),
        key(
            "device",
            Word(&["virtio-net"]),
            "`virtio-net`: `show vhost` finds devices and drivers among the apps' statuses by this key",
        ),
        key("kind", Text, "the type of the app"),
        key("place", Text, "the same as `socket`"),
        key("socket", Text, "the socket's path"),
        key(
            "mode",
            Word(&["server", "client"]),
            "whether the app listens at the socket (`server`) or connects (`client`)",
        ),
        key(
            "state",
            Word(&["listening", "waiting", "connected"]),
            "`listening` (for a peer), `waiting` (to connect again) or `connected`",
        ),
        key("connections", Integer, "number of peers so far"),
        key("errors", Map(&Integer), "errors of the protocol and of starting rings: counts by name"),
        key("last_error", Text, "the text of the last error; null without one").or_null(),
        key("waits", Text, "a sentence: the reason for waiting; null if the app is not waiting").or_null(),
        key("peer", Object(&PEER), "the process on the other side; null without a peer").or_null(),
        key("confinement", Object(&CONFINEMENT), "of the thread that speaks the protocol"),
        key(
            "engine_faults",
            Object(&FAULTS),
            "page faults of the engine's thread, with all its apps, since its start",
        ),
        key("rings", List(&Object(&RING)), "the rings of the app's queues"),
        key("offered", List(&Text), "of `vhost-user`: the offered options").or_absent(),
        key(
            "features",
            List(&Text),
            "the negotiated options, by the names that the key `disable` takes; before negotiation null, and absent for \
             `virtio-user`",
        )
        .or_null()
        .or_absent(),
        key("protocol_features", List(&Text), "of `vhost-user`: the extensions of the protocol in use").or_absent(),
        key("memory", Object(&GUEST_MEMORY), "of `vhost-user`: the peer's memory").or_absent(),
        key(
            "logging",
            Flag,
            "of `vhost-user`: whether written pages are logged, because the virtual machine is being migrated",
        )
        .or_absent(),
        key("notifications", Object(&NOTIFICATIONS), "of `vhost-user`: how the driver is notified of used buffers")
            .or_absent(),
        key("mac", Text, "of a connected `virtio-user`: its Ethernet address; null if the device gave none")
            .or_null()
            .or_absent(),
    ],
};

static PEER: Form = Form {
    title: "Peer at a socket",
    includes: &[],
    keys: &[
        key("pid", Integer, "the process, as the kernel reports it"),
        key("uid", Integer, "its user"),
        key("gid", Integer, "its group"),
    ],
};

static CONFINEMENT: Form = Form {
    title: "Confinement",
    includes: &[],
    keys: &[
        key("confined", Flag, "whether the thread can make only the system calls that it needs"),
        key("reason", Text, "why it is not confined; null if it is").or_null(),
        key("denied", Map(&Integer), "counts of denied system calls, by name"),
    ],
};

static FAULTS: Form = Form {
    title: "Page faults",
    includes: &[],
    keys: &[key("minor", Integer, "those without a disk"), key("major", Integer, "those that waited for a disk")],
};

static GUEST_MEMORY: Form = Form {
    title: "Memory of a peer",
    includes: &[],
    keys: &[
        key("regions", Integer, "number of regions; 0 before there is any"),
        key("bytes", Integer, "their size in bytes"),
    ],
};

static NOTIFICATIONS: Form = Form {
    title: "Notifications",
    includes: &[],
    keys: &[
        key("by", Word(&["io_uring", "thread"]), "`io_uring` (the kernel raises the events) or `thread`"),
        key(
            "slow_queues",
            Integer,
            "the number of queues that the thread notifies because raising their events took long",
        ),
        key(
            "slow_seconds",
            Integer,
            "for how long it has notified the first of these, in seconds; after ten, and after longer each time, the \
             kernel has another try. null if there is none",
        )
        .or_null(),
    ],
};

static RING: Form = Form {
    title: "Ring",
    includes: &[],
    keys: &[
        key(
            "index",
            Integer,
            "its number in the device, which apps may share: even ones lead to the driver, odd ones from it",
        ),
        key(
            "direction",
            Word(&["receive", "transmit"]),
            "as the driver sees it: `receive` (packets to it) or `transmit` (packets from it)",
        ),
        key(
            "state",
            Word(&["running", "stopped", "disabled", "failed"]),
            "`running`, `stopped`, `disabled` (started, but disabled by the peer) or `failed`",
        ),
        key("error", Text, "of a device: the error of a failed ring; else null").or_null().or_absent(),
        key("size", Integer, "number of descriptors"),
        key(
            "instance",
            Text,
            "of a device: the machine code that serves it, as the direction and options for which it was compiled; empty \
             while it does not run",
        )
        .or_absent(),
        key("counters", Object(&RING_COUNTS), "what it has counted"),
    ],
};

static RING_COUNTS: Form = Form {
    title: "Counts of a ring",
    includes: &[],
    keys: &[
        key("packets", Integer, "packets"),
        key("bytes", Integer, "bytes"),
        key("chains", Integer, "of a device: chains of descriptors").or_absent(),
        key("kicks", Integer, "calls to wake the other side"),
        key("errors", Map(&Integer), "packets that were dropped because something was wrong, by the name of the error"),
    ],
};

static SHOWN_STATUS: Form = Form {
    title: "Shown statuses",
    includes: &[NETWORK],
    keys: &[
        key(
            "apps",
            List(&Object(&SHOWN_APP_STATUS)),
            "the apps of a running network that have a status, in the order of its file; only one if an app was named",
        ),
        key("objects", List(&OBJECT_STATUS), "the shared objects of the network"),
    ],
};

/// What the engine says of an app.
/// The same with what the counters say of it.
static SHOWN_APP_STATUS: Form = Form {
    title: "Shown status of an app",
    includes: &[APP_STATUS],
    keys: &[key("worker", Text, "its worker; null if a reload has just removed it").or_null()],
};

static PORT: Form = Form {
    title: "Status of `af-xdp`, `raw-socket`, `tap` and `unix-socket`",
    includes: &[],
    keys: &[
        key("interface", Flag, "true: `show interfaces` lists apps whose status says so"),
        key("kind", Text, "the type of the app"),
        key("place", Text, "the interface's name, or the socket's path, as configured"),
        key(
            "state",
            Word(&["starting", "up", "down", "waiting", "failed"]),
            "`starting`, `up`, `down` (open, but the interface is down or has no carrier), `waiting` (the interface does not \
             exist, or nobody is on the other side) or `failed` (it cannot be opened; this is tried again)",
        ),
        key("opened", Integer, "number of times that it was opened"),
        key("waits", Text, "a sentence: what it waits for, or why it cannot be opened; null while it is open")
            .or_null(),
        key("last_error", Text, "the last such sentence; null without one").or_null(),
        key(
            "details",
            Object(&PORT_DETAILS),
            "what was agreed with the kernel or the other side, for people; empty before it was opened",
        ),
        key("queues", List(&Object(&PORT_QUEUE)), "the open queues, in order; empty while there are none"),
        key(
            "link",
            Object(&KERNEL_INTERFACE),
            "the kernel's interface; absent while there is none, and for `unix-socket`",
        )
        .or_absent(),
    ],
};

static PORT_DETAILS: Form = Form {
    title: "Details of a port",
    includes: &[],
    keys: &[
        key(
            "mode",
            Text,
            "of `af-xdp`: `native` or `generic`, with the reason if native was tried first; of `unix-socket`: `server`, \
             `client` or `dgram`",
        )
        .or_absent(),
        key("copy", Text, "of `af-xdp`: `zero-copy`, or copied by the kernel").or_absent(),
        key("memory", Text, "of `af-xdp`: the packet pool, or copies and the reason").or_absent(),
        key("frames", Text, "of `af-xdp`: of one buffer, or of several").or_absent(),
        key("checksums", Text, "of `af-xdp`: who finishes those of sent packets").or_absent(),
        key("promiscuous", Text, "of `af-xdp` and `raw-socket`: `on` or `off`").or_absent(),
        key("queues", Text, "their number, or for `af-xdp` their numbers; not of `unix-socket`").or_absent(),
        key("sending", Text, "of `af-xdp`: the queues that can send").or_absent(),
        key("offloads", Text, "of `raw-socket` and `tap`: `on` or `off`").or_absent(),
        key("ring_size", Text, "of `raw-socket`: slots of each ring for arriving frames").or_absent(),
        key("fanout", Text, "of `raw-socket` with several queues: how they share the arriving frames").or_absent(),
        key("device", Text, "of `tap`: `created`, `opened`, or moved to another network namespace").or_absent(),
        key("peer", Text, "of `unix-socket`: the other side's process and user, or its socket").or_absent(),
    ],
};

static PORT_QUEUE: Form = Form {
    title: "Queue of a port",
    includes: &[],
    keys: &[
        key("index", Integer, "its position among the app's queues; the others count since it was opened"),
        key("kernel_dropped", Integer, "packets that the kernel dropped because the app did not take them in time"),
        key("kernel_refused", Integer, "packets that the kernel dropped for other reasons, such as their length"),
        key(
            "rx_too_long",
            Integer,
            "packets from the other side that are longer than 73,600 bytes, or than the ring allows",
        ),
        key("rx_bad_header", Integer, "packets from the other side whose header is invalid or does not match them"),
        key("rx_no_buffer", Integer, "packets from the other side for which the pool had no buffer"),
        key("not_sent", Integer, "packets that the kernel took and then did not send"),
        key(
            "checksums_finished",
            Integer,
            "packets whose partial checksum was recognized and finished (`finish_checksums`)",
        ),
        key("vlan_tags_restored", Integer, "packets whose VLAN tag the kernel had stripped"),
        key(
            "copied",
            Integer,
            "packets that were copied because the kernel could not use the packet pool, or has them in pieces",
        ),
    ],
};

static KERNEL_INTERFACE: Form = Form {
    title: "Interface of the kernel",
    includes: &[],
    keys: &[
        key("name", Text, "its present name"),
        key("index", Integer, "its number in its network namespace"),
        key("mac", Text, "its Ethernet address; null without one").or_null(),
        key("mtu", Integer, "its MTU in bytes, without the Ethernet header"),
        key("speed", Integer, "in Mbit/s; null if the driver does not know it").or_null(),
        key("driver", Text, "the driver, or the kind of device; null if unknown").or_null(),
        key("rx_dropped", Integer, "packets that the kernel has dropped in receiving, since the interface was created"),
        key("tx_dropped", Integer, "the same in sending"),
        key("rx_errors", Integer, "packets with errors in receiving, since then"),
        key("tx_errors", Integer, "the same in sending"),
    ],
};

static FILTERS: Form = Form {
    title: "Status of `pcap-filter`, and of `pcap-reader` with a filter",
    includes: &[],
    keys: &[
        key("filters", List(&Object(&FILTER)), "the filters, in their order"),
        key("programs", List(&Object(&FILTER_PROGRAM)), "what they were compiled to, for each link type"),
    ],
};

static FILTER: Form = Form {
    title: "Filter",
    includes: &[],
    keys: &[
        key("name", Text, "the output for packets that match; `match` for `pcap-reader`"),
        key("expression", Text, "the expression, with its implied qualifiers"),
    ],
};

static FILTER_PROGRAM: Form = Form {
    title: "Program of filters",
    includes: &[],
    keys: &[
        key("link_type", Text, "the link type of the packets, in words"),
        key("code_bytes", Integer, "bytes of machine code; 0 without"),
        key("table_bytes", Integer, "bytes of the tables that it reads"),
        key("fallback_reason", Text, "a sentence: why the interpreter runs instead; null if it does not").or_null(),
    ],
};

static ACCESS_LISTS: Form = Form {
    title: "Status of `access-list`",
    includes: &[],
    keys: &[key("lists", List(&Object(&ACCESS_LIST)), "the lists of rules")],
};

static ACCESS_LIST: Form = Form {
    title: "Access list",
    includes: &[],
    keys: &[
        key("name", Text, "the interface; empty for `rules`"),
        key(
            "rules",
            List(&Object(&ACCESS_RULE)),
            "the rules, in their order, and a last one, `deny`, for packets that match no other",
        ),
    ],
};

static ACCESS_RULE: Form = Form {
    title: "Access rule",
    includes: &[],
    keys: &[
        key("rule", Text, "its text"),
        key("packets", Integer, "the number of packets that it was the first to match"),
    ],
};

static STATE_TABLE: Form = Form {
    title: "Status of `state-table`",
    includes: &[],
    keys: &[
        key("connections", Integer, "the known connections, of which some may have expired in the last minute"),
        key("established", Integer, "how many of them are established"),
        key("capacity", Integer, "how many there can be"),
        key("memory", Integer, "its memory in bytes"),
        key("protocols", Object(&CONNECTIONS), "the number of connections of each protocol"),
    ],
};

static CONNECTIONS: Form = Form {
    title: "Connections by protocol",
    includes: &[],
    keys: &[
        key("tcp", Integer, "TCP"),
        key("udp", Integer, "UDP"),
        key("icmp", Integer, "ICMP"),
        key("other", Integer, "all others"),
    ],
};

static MAC_TABLE: Form = Form {
    title: "Status of `mac-table`, and of `bridge` with a table of its own",
    includes: &[],
    keys: &[
        key("addresses", Integer, "the known addresses"),
        key("static", Integer, "how many of them are in the network file"),
        key("held", Integer, "how many of them stay at their port for a time, because they have moved too often"),
        key("capacity", Integer, "how many there can be"),
        key("memory", Integer, "its memory in bytes"),
        key("ports", Map(&Integer), "the number of addresses by port"),
        key(
            "limited",
            Map(&Object(&PORT_LIMITED)),
            "by port, the parts of the bridges' counters of these names that are about frames from the port",
        ),
    ],
};

static PORT_LIMITED: Form = Form {
    title: "Frames from a port beyond a limit",
    includes: &[],
    keys: &[
        key("table_full", Integer, "frames whose source the table had no room for"),
        key("displaced", Integer, "addresses of other ports or VLANs that gave way to new ones of this port"),
        key("port_full", Integer, "frames whose source is one more than `max_macs`"),
        key("storm_broadcast", Integer, "broadcast frames above the limit, which were dropped"),
        key("storm_multicast", Integer, "the same, multicast"),
        key("storm_unknown", Integer, "the same, to unknown addresses"),
    ],
};

static RSS: Form = Form {
    title: "Status of `rss`",
    includes: &[],
    keys: &[
        key(
            "hash",
            Word(&["fast", "toeplitz"]),
            "the hash function: `fast` (of addresses, ports and protocol) or `toeplitz` (of addresses and ports, as network \
             interfaces compute it)",
        ),
        key("symmetric", Flag, "whether both directions of a flow have the same hash, and so one output"),
        key("inner", Flag, "whether packets inside tunnels are hashed in place of their outer headers"),
        key("table_size", Integer, "entries of the table that gives each hash an output"),
        key("entries", Map(&Integer), "the number of entries by output"),
        key("entries_moving", Integer, "entries whose packets are held, because they are on the way to another output"),
    ],
};

static REASSEMBLE: Form = Form {
    title: "Status of `reassemble`",
    includes: &[],
    keys: &[
        key("datagrams", Integer, "datagrams of which some fragments are there"),
        key("capacity", Integer, "how many there can be"),
        key("fragments", Integer, "their fragments that wait for others"),
        key("bytes", Integer, "bytes of these"),
        key("memory", Integer, "the memory that they may take, in bytes"),
    ],
};

static ESP: Form = Form {
    title: "Status of `esp`",
    includes: &[],
    keys: &[
        key("pairs", List(&Object(&ESP_PAIR)), "the pairs of associations"),
        key("instructions", Text, "the instructions that the ciphers use"),
    ],
};

static CONTROL_CHANNEL: Form = Form {
    title: "Status of `control-channel`",
    includes: &[],
    keys: &[
        key("state", Word(&["up", "down"]), "of the pseudowire: `up` or `down`"),
        key("cause", Text, "why it is down; null if it is up").or_null(),
        key("since_seconds", Integer, "for how long it has been in this state"),
        key("local", Object(&CHANNEL_MESSAGE), "what this end tells the peer"),
        key("peer", Object(&CHANNEL_PEER), "what the peer said last; null before").or_null(),
    ],
};

static CHANNEL_MESSAGE: Form = Form {
    title: "Message of a control channel",
    includes: &[],
    keys: &[
        key("heartbeat_seconds", Integer, "the time within which the sender sends at least one message"),
        key("mtu", Integer, "the MTU of its circuit; null if it was left out").or_null(),
        key("description", Text, "its interface or pseudowire, in the words of its operator; null if left out")
            .or_null(),
        key("vc_id", Integer, "the number of the pseudowire; null if left out").or_null(),
    ],
};

static CHANNEL_PEER: Form = Form {
    title: "Peer of a control channel",
    includes: &[Object(&CHANNEL_MESSAGE)],
    keys: &[
        key("heard_seconds_ago", Integer, "when the message came"),
        key("dead_after_seconds", Integer, "the time without a further message after which it is dead"),
    ],
};

static VRF: Form = Form {
    title: "Status of `vrf`",
    includes: &[],
    keys: &[
        key("interfaces", Map(&Object(&VRF_INTERFACE)), "its interfaces"),
        key("duplicate_addresses", List(&Object(&DUPLICATE)), "IPv6 addresses that other stations have, too"),
        key("routes", Object(&BY_FAMILY), "the number of routes"),
        key("memory", Integer, "the memory of the compiled tables in bytes"),
        key("adjacencies", Integer, "adjacencies in use: next hops, each with its Ethernet header"),
        key("capacity", Integer, "how many there can be"),
    ],
};

static VRF_INTERFACE: Form = Form {
    title: "Interface of a routing domain",
    includes: &[],
    keys: &[
        key("port", Text, "its port"),
        key("vlans", List(&Integer), "its VLANs, the outermost first"),
        key("mac", Text, "its Ethernet address"),
        key("mtu", Integer, "its MTU"),
        key("addresses", List(&Text), "its IP addresses, with the lengths of their prefixes"),
    ],
};

static DUPLICATE: Form = Form {
    title: "Duplicate address",
    includes: &[],
    keys: &[
        key("interface", Text, "the interface; null if a reload has removed it").or_null(),
        key("address", Text, "the address"),
    ],
};

static BY_FAMILY: Form = Form {
    title: "Numbers by family",
    includes: &[],
    keys: &[key("ipv4", Integer, "of IPv4"), key("ipv6", Integer, "of IPv6")],
};

static RESOLVER: Form = Form {
    title: "Status of `arp` and `nd`",
    includes: &[],
    keys: &[key(
        "neighbours",
        List(&Object(&RESOLVED)),
        "the neighbours that it has asked for or heard of, in the order of interfaces and addresses",
    )],
};

static RESOLVED: Form = Form {
    title: "Neighbour that was asked for",
    includes: &[],
    keys: &[
        key("interface", Text, "the interface on whose link it is"),
        key("address", Text, "its IP address"),
        STATE_OF_NEIGHBOUR,
        key("mac", Text, "its Ethernet address; null if it is not known").or_null(),
        key("age_seconds", Integer, "seconds since the state or the Ethernet address was another one"),
        key("waiting", Integer, "packets that wait for it"),
    ],
};

static KERNEL_ROUTES: Form = Form {
    title: "Status of `kernel-routes`",
    includes: &[],
    keys: &[
        key("table", Text, "the table's name, or its number if it has none"),
        key("followed", Object(&BY_FAMILY), "the numbers of prefixes and metrics whose routes are followed"),
        key(
            "ignored",
            Map(&Integer),
            "the numbers of those that are not followed, by [reason](router-host.md#routes-of-the-kernel)",
        ),
        key("neighbours", Integer, "the number of neighbours that the kernel's administrator has set"),
        key("readings", Integer, "how often the table was read"),
        key("inconsistent_readings", Integer, "how often it changed meanwhile"),
        key("losses", Integer, "how often the kernel dropped changes because there were too many"),
        key("error", Text, "a sentence: what does not work; null if all does").or_null(),
    ],
};

/// The status of an app, and that of a shared object.
pub(super) const APP_STATUS: Kind = schema_of::<bellows_observe::AppStatus>();
pub(super) const OBJECT_STATUS: Kind = schema_of::<bellows_observe::ObjectStatus>();

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::forms::{Found, differences};

    #[test]
    fn every_status_is_found_by_the_name_of_its_type() {
        for (kind, form) in STATUSES {
            assert!(is_own(kind), "there is no type `{kind}`");
            assert!(form.title.contains(&format!("`{kind}`")), "`{kind}` is not in the heading `{}`", form.title);
        }
        assert!(!is_own("turnstile") && status("turnstile").is_none());
    }

    #[test]
    fn the_form_of_a_status_is_that_of_the_type_beside_it() {
        let compared = |kind: &str, status: Value| {
            let shown = json!({ "object": "one", "kind": kind, "status": status });
            differences(OBJECT_STATUS, &shown, &mut Found::new())
        };
        let lists = json!({ "lists": [{ "name": "", "rules": [] }] });
        assert_eq!(compared("access-list", lists.clone()), Vec::<String>::new());
        assert_eq!(compared("access-list", Value::Null), Vec::<String>::new());
        assert_eq!(compared("access-list", json!({ "lists": [{ "name": "" }] })), [".status.lists[].rules is missing"]);
        assert_eq!(compared("turnstile", lists.clone()), Vec::<String>::new());
        assert_eq!(compared("sink", lists), [".status: no form is that of the status of `sink`"]);
    }
}
