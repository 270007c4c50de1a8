//! The table of each benchmark.

use super::super::Kind::{Decimal, Either, Flag, Integer, Text, Word};
use super::super::key;
use super::{Benchmark, Row};

/// All benchmarks, in the order of the help.
pub(super) static BENCHMARKS: &[Benchmark] = &[
    APPS, BLIT, CROSSING, ENGINE, ESP, FIB, FILTER, FLOODS, HISTORY, L2VPN, NEIGHBOURS, NOTIFY, PREFETCH, RELOAD,
    ROUTER, SCRAPE, VRING, WORKERS, APPBENCH, BREATHSIM,
];

const APPS: Benchmark = Benchmark {
    name: "apps",
    text: &[
        "An app that needs keys has typical ones. The apps of a router have a routing domain, and packets that the apps in \
         front of them have passed on.",
    ],
    every: &["name", "apps", "resident", "schedule", "burst"],
    rows: &[Row::of(&["app"], "clocks/packet", "from source to sink through an app, minus the same without")
        .sometimes(&["traffic"])],
    labels: &[
        key("name", Text, "the app, and which of its rows"),
        key("apps", Text, "the app with its keys, as for `appbench`"),
        key(
            "resident",
            Word(&["l1", "l2", "l3", "dram", "own"]),
            "where packets come from: a cache (`l1`, `l2`, `l3`) or memory (`dram`); `own` for an app that brings its packets \
             itself",
        ),
        key("traffic", Text, "the packets, as for `appbench`, if the row has packets of its own"),
    ],
};

const BLIT: Benchmark = Benchmark {
    name: "blit",
    text: &[],
    every: &["size", "batch", "where", "clocks", "memcpy"],
    rows: &[
        Row::of(&["copy"], "ratio", "the time of `memcpy` over that of a blitter: above 1 the blitter is faster"),
        Row::of(&["deferred"], "ratio", "the same for a blitter that defers all copies to the barrier"),
    ],
    labels: &[
        key(
            "size",
            Either(&[Integer, Word(&["imix"])]),
            "bytes of a copy, or `imix`: 60, 576 and 1,500 bytes as 7 : 4 : 1, in random order",
        ),
        key("batch", Integer, "copies between barriers"),
        key(
            "where",
            Word(&["l1", "l2", "l3", "cold"]),
            "where sources and destinations are: in a cache (`l1`, `l2`, `l3`), or in none (`cold`)",
        ),
        key("clocks", Decimal, "clocks of a copy by the blitter"),
        key("memcpy", Decimal, "clocks of a copy by `memcpy`"),
    ],
};

const CROSSING: Benchmark = Benchmark {
    name: "crossing",
    text: &[
        "`reference` and `of_reference` are those of a bare ring between the same processors; of wake-ups, of one with an \
         eventfd on which the receiver sleeps.",
    ],
    every: &[],
    rows: &[
        Row::of(&["throughput"], "Mpps", "packets from one worker to another"),
        Row::of(&["latency"], "ns", "the time of a packet from one worker to another"),
        Row::of(&["wake-up"], "ns", "the time of a packet to a worker that sleeps"),
        Row::of(
            &["wake-up-sender"],
            "clocks/packet",
            "the sending thread's clocks from the making of such a packet until it goes on: until the sender's next breath, or \
             until `write(2)` to the eventfd has returned",
        ),
    ],
    labels: &[],
};

const ENGINE: Benchmark = Benchmark {
    name: "engine",
    text: &[
        "`reference` is the work of the apps without an engine, measured in the same turns. Figures in clocks for each packet \
         have it, and `overhead`.",
    ],
    every: &["schedule"],
    rows: &[
        Row::of(&["source-sink", "source-tee-sinks"], "clocks/packet", "a packet through these apps")
            .with(&["size", "burst"]),
        Row::of(&["chain"], "clocks/packet", "each further app").with(&["apps", "how", "size", "burst"]),
        Row::of(&["in-flight"], "clocks/packet", "from source to sink with that many packets in flight")
            .with(&["packets", "size", "burst"]),
        Row::of(&["pcap-reader"], "Mpps", "a capture in the page cache into the network").with(&["size", "burst"]),
        Row::of(&["idle"], "ns/breath", "an idle breath").with(&["apps", "links"]),
        Row::of(&["sampling"], "ratio", "a packet's cost from source to sink with sampled breaths relative to without")
            .with(&["size", "burst"]),
        Row::of(&["timeline"], "ratio", "the same with a timeline relative to without").with(&["size", "burst"]),
        Row::of(&["timeline-event"], "clocks/event", "writing an event to the timeline").with(&["calls"]),
    ],
    labels: &[
        key("apps", Integer, "apps of the chain, or of the idle network"),
        key("links", Integer, "links of the idle network"),
        key(
            "how",
            Word(&["forward", "loop"]),
            "how the apps pass packets on: `forward` (the vector as a whole) or `loop` (over its packets)",
        ),
        key("packets", Integer, "packets in flight"),
        key("calls", Integer, "calls of apps in a breath"),
    ],
};

const ESP: Benchmark = Benchmark {
    name: "esp",
    text: &[],
    every: &["bytes", "what"],
    rows: &[
        Row::of(&["aes-128-gcm", "aes-256-gcm"], "clocks/packet", "a packet through the app, or the cipher alone")
            .with(&["instructions"]),
        Row::of(&["aes-128-gcm", "aes-256-gcm"], "ratio", "the app relative to the cipher alone")
            .with(&["instructions"]),
        Row::of(&["chacha20-poly1305"], "clocks/packet", "as of the other ciphers"),
        Row::of(&["chacha20-poly1305"], "ratio", "as of the other ciphers"),
    ],
    labels: &[
        key("bytes", Integer, "bytes of the packets that are sealed"),
        key(
            "what",
            Word(&["seal", "open", "bare seal", "bare open", "seal to bare", "open to bare"]),
            "the app (`seal`, `open`), or the cipher alone over as many bytes (`bare seal`, `bare open`); of ratios, \
             `seal to bare` or `open to bare`",
        ),
        key("instructions", Text, "the instructions that AES-GCM uses on this processor"),
    ],
};

const FIB: Benchmark = Benchmark {
    name: "fib",
    text: &[],
    every: &[],
    rows: &[
        Row::of(&["ipv4", "ipv6"], "clocks/look-up", "a look-up, in batches of 128")
            .with(&["next_hops", "keys", "count", "table"]),
        Row::of(&["ipv4", "ipv6"], "MiB", "the memory of a table").with(&["next_hops", "table"]),
        Row::of(&["ipv4", "ipv6"], "ratio", "a look-up in another table relative to one in Bellows'")
            .with(&["next_hops", "keys", "count", "of"]),
        Row::of(&["changes"], "changes/s", "changes of routes")
            .with(&["commit", "beside_reader"])
            .sometimes(&["target", "verdict"]),
        Row::of(&["changes"], "look-ups/s", "look-ups of a thread while another one changes routes")
            .with(&["commit", "tables"]),
        Row::of(
            &["changes"],
            "ratio",
            "the look-ups beside changes of their own tables relative to those beside changes of others",
        )
        .with(&["commit", "of", "target", "verdict"]),
        Row::of(
            &["replace"],
            "µs",
            "how much longer than usual a thread's look-ups take when all routes are replaced, in batches of 128 for each \
             family",
        )
        .with(&["what"])
        .sometimes(&["target", "verdict"]),
        Row::of(&["load"], "ms", "from a text to both tables").with(&["what", "target", "verdict"]),
        Row::of(&["load"], "MiB", "the memory of both tables with all routes").with(&["what", "target", "verdict"]),
    ],
    labels: &[
        key("next_hops", Integer, "next hops of the table"),
        key(
            "keys",
            Word(&["uniform", "by prefix"]),
            "how the keys are drawn: `uniform` (of IPv6, in 2000::/3) or `by prefix` (a prefix, then an address in it)",
        ),
        key("count", Integer, "how many different keys"),
        key(
            "table",
            Word(&["bellows", "plain DIR-24-8", "binary search"]),
            "`bellows`, or a naive table: `plain DIR-24-8` (IPv4 only) or `binary search`",
        ),
        key("commit", Integer, "the changes in each commit"),
        key("beside_reader", Flag, "whether another thread looks up meanwhile"),
        key(
            "tables",
            Word(&["changing", "unchanged"]),
            "the tables that the thread looks up are `changing`, or others change and they are `unchanged`",
        ),
        key(
            "what",
            Word(&[
                "longest batch",
                "first batch in new tables",
                "all batches until the caches are full",
                "time",
                "memory",
            ]),
            "the `longest batch` next to the swap (16 before it, 16 after it), the `first batch in new tables`, or \
             `all batches until the caches are full` together; of loading, `time` or `memory`",
        ),
    ],
};

const FILTER: Benchmark = Benchmark {
    name: "filter",
    text: &["The `notes` sum up the verdicts."],
    every: &[],
    rows: &[
        Row::of(
            &["document", "portrange", "tcp-port", "src-net", "host"],
            "clocks/packet",
            "the decision of a filter",
        )
        .with(&["filter", "packets", "in_flight"]),
        Row::of(&["ports", "prefixes"], "clocks/packet", "the decision of a long list, and that of one of its items")
            .with(&["filter", "packets", "in_flight"]),
        Row::of(&["ports", "prefixes"], "ratio", "the list relative to the item").with(&[
            "filter",
            "packets",
            "in_flight",
            "of",
            "target",
            "verdict",
        ]),
        Row::of(
            &["history"],
            "ratio",
            "the decision of a filter that first met only some packets, relative to that of one that met nothing before",
        )
        .with(&["filter", "packets", "in_flight", "first", "clocks", "target", "verdict"]),
        Row::of(&["states"], "clocks/packet", "what a table of states adds for a packet of an established connection")
            .with(&["connections", "in_flight"])
            .sometimes(&["target", "verdict"]),
        Row::of(&["compile"], "µs", "from the text of a filter to its machine code")
            .with(&["text", "bytes", "compiled", "target", "verdict"]),
    ],
    labels: &[
        key("filter", Text, "the expression; of a long list, how many items of which kind"),
        key(
            "packets",
            Word(&["matching", "other", "mixed"]),
            "the packets: `matching`, `other` (none matches) or `mixed`",
        ),
        key(
            "first",
            Word(&["matching", "other", "foreign"]),
            "which packets the filter met first: `matching`, `other` or `foreign` (other protocols)",
        ),
        key("clocks", Decimal, "the cost of a decision without a history"),
        key("connections", Integer, "established connections in the table"),
        key(
            "text",
            Word(&["document", "ports", "carried ports", "portranges", "hosts", "alternating", "groups"]),
            "the text: `document` is that of the case; the others are as long as a text may be, lists of `ports`, of ports \
             after a single word `port` (`carried ports`), of `portranges`, of `hosts`, of ports and hosts in turn \
             (`alternating`), and of `groups` in parentheses",
        ),
        key("bytes", Integer, "length of the text"),
        key("compiled", Word(&["first", "again"]), "`first` in a process, or `again`"),
    ],
};

const FLOODS: Benchmark = Benchmark {
    name: "floods",
    text: &[],
    every: &["figure"],
    rows: &[
        Row::each(FLOOD, "clocks/packet", "a packet to forward, and a packet of the flood"),
        Row::each(FLOOD, "ratio", "the second over the first"),
        Row::each(FLOOD, "share", "the share of packets to forward that were lost"),
    ],
    labels: &[key(
        "figure",
        Word(&["forwarded", "flood", "ratio", "lost"]),
        "`forwarded`: a packet to forward without a flood; `flood`: what a packet of the flood adds; `ratio`; `lost`",
    )],
};

const FLOOD: &str = "the kind of flood: `time4`, `no-route6`, `arp-request` and so on";

const HISTORY: Benchmark = Benchmark {
    name: "history",
    text: &[],
    every: &["schedule", "clocks"],
    rows: &[
        Row::of(&["idle-first"], "ratio", "a packet's cost after idle seconds relative to that from the start")
            .with(&["tees"])
            .sometimes(&["workers"]),
        Row::of(&["other-first"], "ratio", "a packet's cost after other packets relative to that from the start")
            .with(&["tees"])
            .sometimes(&["workers"]),
        Row::of(
            &["mix-change"],
            "ratio",
            "a packet's cost after a change of the mix relative to before, beside a network with a constant mix",
        )
        .sometimes(&["workers"]),
        Row::of(
            &["control"],
            "ratio",
            "with `--control`, instead of the others: a packet's cost in a network that has that many more packets in a breath, \
             which are not counted, relative to a network without them",
        )
        .with(&["tees", "more_packets"])
        .sometimes(&["workers"]),
    ],
    labels: &[
        key("clocks", Decimal, "the cost of a packet without a history"),
        key("tees", Integer, "length of the chain of tees"),
        key("more_packets", Integer, "packets in a breath that are not counted"),
    ],
};

const L2VPN: Benchmark = Benchmark {
    name: "l2vpn",
    text: &["The `notes` sum up the verdicts."],
    every: &["schedule", "clocks"],
    rows: &[
        Row::of(
            &["phases"],
            "ratio",
            "a packet's cost in a phase after others, relative to a process that had this phase alone",
        )
        .with(&["phase"]),
        Row::of(&["first"], "ratio", "the same in a process's first phase, over all phases"),
        Row::of(
            &["after-idle"],
            "ratio",
            "a packet's cost after idle seconds relative to that from the start, over all phases",
        ),
        Row::of(
            &["apps"],
            "ratio",
            "the cost of the whole relative to the sum of its apps, each measured alone with the packets that it gets in the \
             whole",
        )
        .with(&["phase", "sum", "apps", "target", "verdict"]),
    ],
    labels: &[
        key("phase", Text, "name of the phase"),
        key("clocks", Decimal, "the cost of a packet without a history; of `apps`, that of the whole"),
        key("sum", Decimal, "the sum of the apps"),
        key("apps", Integer, "how many apps"),
    ],
};

const NEIGHBOURS: Benchmark = Benchmark {
    name: "neighbours",
    text: &[],
    every: &[
        "what",
        "page_faults",
        "median_clocks",
        "breaths",
        "processes",
        "connections",
        "packets",
        "lost",
        "longest_wait",
    ],
    rows: &[Row::each(
        "the name of an attack",
        "clocks/breath",
        "p99.9 of a breath during the attack; `reference` is the same with an honest guest in place of the attacker",
    )],
    labels: &[
        key("what", Text, "a description of the attack"),
        key("page_faults", Integer, "page faults of the engine's thread"),
        key("median_clocks", Decimal, "the median of a breath; null if it is unknown").or_null(),
        key("breaths", Integer, "breaths during the attack"),
        key("processes", Integer, "processes in which breaths with the attack and without were measured"),
        key("connections", Integer, "connections of the attacker"),
        key("packets", Integer, "packets that the honest guest sent"),
        key("lost", Integer, "how many of these were lost"),
        key("longest_wait", Integer, "the breaths that one of these waited at most"),
    ],
};

const NOTIFY: Benchmark = Benchmark {
    name: "notify",
    text: &[],
    every: &[],
    rows: &[
        Row::of(
            &["write", "poll-write", "direct", "helper"],
            "clocks/call",
            "notifying a peer, on the thread that does it; `reference` and `of_reference` are those of `write` in the same \
             processes",
        )
        .with(&["peer"]),
        Row::of(
            &["write", "poll-write", "direct", "helper"],
            "ns",
            "from the start of the call until the peer runs; absent if nobody waits",
        )
        .with(&["peer"]),
        Row::of(&["fault-4k", "fault-2m"], "clocks/page", "the first store to a page of a peer's memory").with(&["page"]),
    ],
    labels: &[
        key(
            "peer",
            Word(&["idle", "poll", "epoll", "read"]),
            "how the peer sleeps: in `poll`, `epoll` or `read`; `idle` if nobody waits",
        ),
        key(
            "page",
            Word(&["untouched", "touched"]),
            "`untouched` (never accessed) or `touched` (accessed by the peer)",
        ),
    ],
};

const PREFETCH: Benchmark = Benchmark {
    name: "prefetch",
    text: &[],
    every: &["node", "without"],
    rows: &[
        Row::of(&["nodes"], "clocks/packet", "a node of a router, or the sum of all")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        Row::of(&["nodes"], "ratio", "the same relative to the router as it is")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        Row::of(&["load"], "clocks/packet", "a node, or the sum of all, at a fixed load")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        Row::of(&["load"], "ratio", "the same relative to the router as it is")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        Row::of(&["load"], "packets/call", "packets of a call").with(&["routes", "in_flight"]).sometimes(&["ahead"]),
        Row::of(&["load"], "missed share", "the share of packets that the router did not take in time")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        Row::of(&["hot"], "share of samples", "the share of the nodes' samples that the first node has")
            .with(&["routes", "in_flight"]),
        Row::of(&["hot"], "share at the first use", "the share of these at its first use of packet data")
            .with(&["routes", "in_flight"]),
        Row::of(&["hot"], "share at one instruction", "the share of these at its hottest instruction")
            .with(&["routes", "in_flight"]),
        Row::of(&["verdict"], "share of runs", "the share of runs in which a trial of look-ahead accused the node")
            .with(&["routes", "in_flight"]),
        Row::of(&["live"], "share of runs", "the same of an app of a network"),
    ],
    labels: &[
        key(
            "node",
            Text,
            "the node, or app of the network; `sum` for all nodes together, `all` for the router as a whole",
        ),
        key("without", Text, "the node or app that does not look ahead, `none` or `all`"),
        key("ahead", Integer, "the distance of all nodes, if it is not their own"),
    ],
};

const RELOAD: Benchmark = Benchmark {
    name: "reload",
    text: &["`p99`, `maximum` and `histogram` are over all reloads."],
    every: &["schedule", "apps", "links"],
    rows: &[
        Row::of(&["swap"], "ns", "from the request until the network runs").sometimes(&["workers"]),
        Row::of(&["pause"], "ns", "the change itself, while no worker runs").sometimes(&["workers"]),
        Row::of(
            &["gap"],
            "ns",
            "from the start of the last breath before the change to that of the first after it, on the worker for which this \
             takes longest",
        )
        .sometimes(&["workers"]),
        Row::of(&["parse"], "ns", "from the network file's text to the network").sometimes(&["workers"]),
    ],
    labels: &[
        key("apps", Integer, "apps of the network"),
        key("links", Integer, "its links"),
    ],
};

const ROUTER: Benchmark = Benchmark {
    name: "router",
    text: &[],
    every: &["node", "routes", "in_flight"],
    rows: &[
        Row::of(&["ip4", "ip6", "internet4", "internet6"], "clocks/packet", "a node of a router, or the sum of nodes"),
        Row::of(
            &["ip4", "ip6", "internet4", "internet6"],
            "ratio",
            "with `--floor`: the sum relative to the floor or the naive loop",
        ),
        Row::of(
            &["checksum"],
            "ratio",
            "the input node that trusts the checksums of headers over that which verifies them",
        ),
        Row::of(
            &["look-ahead"],
            "ratio",
            "the input node without prefetching over that with it, for packets that come from memory",
        ),
    ],
    labels: &[key(
        "node",
        Word(&[
            "ethernet-input",
            "input",
            "lookup",
            "rewrite",
            "output",
            "sum",
            "floor",
            "naive",
            "sum to floor",
            "sum to naive",
        ]),
        "`ethernet-input`, `input`, `lookup`, `rewrite`, `output`, or the `sum` of all but the first one; with `--floor` also \
         `floor` (a prefetched read of each header line and one table load for each key), `naive` (a router in one loop), and \
         the ratios `sum to floor` and `sum to naive`",
    )],
};

const SCRAPE: Benchmark = Benchmark {
    name: "scrape",
    text: &[
        "The figure is the geometric mean over all processes, with its interval by Student's t. The verdict is `holds` if the \
         interval holds 1 and half of its width is at most 0.01, `fails` if it does not hold 1, else `undecided`.",
    ],
    every: &["apps", "period_seconds", "without", "with", "scrapes", "scrape_ms", "of", "target", "verdict"],
    rows: &[Row::of(
        &["small", "chain"],
        "ratio",
        "packets per second with scrapes relative to those without, in this network",
    )],
    labels: &[
        key("apps", Integer, "apps of the network"),
        key("period_seconds", Decimal, "the time between two scrapes"),
        key("without", Decimal, "million packets per second without scrapes"),
        key("with", Decimal, "the same with scrapes"),
        key("scrapes", Integer, "how many scrapes there were"),
        key("scrape_ms", Decimal, "the median time of one, in milliseconds"),
    ],
};

const VRING: Benchmark = Benchmark {
    name: "vring",
    text: &[],
    every: &[
        "packed",
        "mergeable",
        "in-order",
        "event-idx",
        "indirect",
        "offloads",
        "header",
        "chain",
        "size",
        "copies",
        "batch",
    ],
    rows: &[
        Row::of(
            &["rx"],
            "clocks/packet",
            "cost of a device's ring per packet to the driver, including freeing the packet",
        )
        .with(&["free"]),
        Row::of(&["tx"], "clocks/packet", "cost of a device's ring per packet from the driver").with(&["free"]),
        Row::of(
            &["other-sizes"],
            "ratio",
            "the cost for one ring after other packets relative to before, beside a ring without them",
        )
        .with(&["direction"]),
        Row::of(
            &["other-chains"],
            "ratio",
            "the cost for one ring after other chains relative to before, beside a ring without them",
        )
        .with(&["direction"]),
    ],
    labels: &[
        key("packed", Flag, "whether the ring is packed"),
        key("mergeable", Flag, "whether buffers are mergeable"),
        key("in-order", Flag, "whether the device uses buffers in order"),
        key("event-idx", Flag, "whether notifications are suppressed by index"),
        key("indirect", Flag, "whether indirect tables are negotiated"),
        key("offloads", Flag, "whether checksum offloads are negotiated"),
        key("header", Integer, "bytes of the header of a packet: 10 or 12"),
        key(
            "chain",
            Word(&["single", "chained", "indirect"]),
            "the descriptors of a packet: a `single` one; one for the header and one for the data (`chained`); these in an \
             `indirect` table",
        ),
        key(
            "copies",
            Word(&["blitter", "memcpy", "none"]),
            "how the ring copies: by a `blitter`, by `memcpy`, or not at all (`none`)",
        ),
        key("batch", Integer, "packets of a batch"),
        key("free", Decimal, "clocks to free a packet"),
        key("direction", Word(&["rx", "tx"]), "to the driver (`rx`) or from it (`tx`)"),
    ],
};

const WORKERS: Benchmark = Benchmark {
    name: "workers",
    text: &[
        "`reference` and `of_reference` are what two processes with half of the work each carry on the same processors, in \
         neighbouring slices: of `chain` the mean of both, else their sum.",
    ],
    every: &[],
    rows: &[Row::of(&["chain", "rss", "rss-both", "vhost"], "Mpps", "what two workers carry")],
    labels: &[],
};

const APPBENCH: Benchmark = Benchmark {
    name: "appbench",
    text: &[
        "Impossible figures are left out: a baseline if the network does not work without the app, clocks if the load is fixed \
         (`--offered`). `notes` state what a reader must know: a difference that is within noise, the signature of a missing \
         prefetch and the distance to use, the wiring of the ports, why the processor's counters are unavailable.",
    ],
    every: &["app", "schedule", "burst"],
    rows: &[
        Row::of(&["clocks"], "clocks/packet", "clocks of the time-stamp counter").with(&["run", "packets"]).sometimes(WHERE),
        Row::each(
            "the name of an event: `cycles`, `ref_cycles`, `instructions` and so on; `estimated_cycles` (of the core) where the \
             processor counts none; with `--counters valgrind` the events of callgrind",
            "events/packet",
            "events",
        )
        .with(&["run", "packets"])
        .sometimes(WHERE),
        Row::of(
            &["account"],
            "clocks/packet",
            "the live accounting of the measured apps, per packet that came to them; with the labels `run` and `recorded`, of the \
             app of that name",
        )
        .sometimes(&["run", "recorded", "against", "network", "resident", "prefetch"]),
        Row::of(&["gap"], "clocks/packet", "the difference in `clocks`, minus `account`; not with `--against`")
            .sometimes(&["network", "resident", "prefetch"]),
        Row::of(&["vector"], "packets/call", "packets per call of the app `recorded`")
            .with(&["run", "recorded"])
            .sometimes(WHERE),
    ],
    labels: &[
        key("app", Text, "the apps as on the command line, or the app's name in the network"),
        key(
            "run",
            Word(&["baseline", "with-app", "difference"]),
            "the network: the `baseline`, that `with-app`, or the `difference`",
        ),
        key("packets", Integer, "number of packets measured in all processes"),
        key("recorded", Text, "name of an app in the network"),
        key("against", Text, "with `--against`: the apps of the baseline"),
        key("network", Text, "with `--network`: the file"),
        key(
            "resident",
            Word(&["l1", "l2", "l3", "dram"]),
            "with `--resident`: packets come from a cache (`l1`, `l2`, `l3`) or from memory (`dram`)",
        ),
        key("prefetch", Integer, "with `--prefetch`: the distance in packets"),
    ],
};

/// The labels of what is measured where.
const WHERE: &[&str] = &["against", "network", "resident", "prefetch"];

const BREATHSIM: Benchmark = Benchmark {
    name: "breathsim",
    text: &[
        "`reference` is the same increments without an engine, to which `overhead` refers; an idle network has neither. `notes` \
         state the lasting cost of having been idle first, and the schedules that are unavailable on this machine.",
    ],
    every: &["schedule", "apps", "busy_after", "work", "breaths"],
    rows: &[Row::of(&["breath"], "ns/breath", "a breath: the median slice of its turns")],
    labels: &[
        key("apps", Integer, "number of pseudo-apps"),
        key(
            "busy_after",
            Either(&[Integer, Word(&["never"])]),
            "number of idle breaths before the apps become busy, 0 for busy from the start; or `never`",
        ),
        key("work", Integer, "increments that a busy app makes in a breath"),
        key("breaths", Integer, "number of timed breaths"),
    ],
};
