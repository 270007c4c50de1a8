//! The forms of what the servers of the live page and of metrics answer.

use super::Kind::{Decimal, Flag, Integer, List, Map, Object, OrNull, Text, Word};
use super::inspected::TRACE;
use super::networks::{APP, COST, LINK, NETWORK, PROBE, RELOAD, TIMES};
use super::states::{APP_STATUS, OBJECT_STATUS};
use super::{Form, Section, key};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows web`",
        commands: &[],
        text: &[
            "The server of the [live page](web.md) answers the requests below with JSON. Some of its answers are what \
             commands print: `GET /api/counters?network=NAME` that of [`show --json`](#bellows-show---json), \
             `GET /api/costs?network=NAME` that of [`show run --json`](#bellows-show-run---json), \
             `GET /api/latency?network=NAME` that of [`show latency --json`](#bellows-show-latency---json), and \
             `GET /api/timeline?network=NAME` that of \
             [`timeline --last=60s --slowest=12 --json`](#bellows-timeline---json).",
            "`POST /api/tap` answers with a pcap file, with the header fields `bellows-packets`, `bellows-missed`, \
             `bellows-left-out` (packets of other link types than the first one, or than those to which the filter applies) \
             and `bellows-end` (`packets`, `time`, `size`, `gone` or `over`). The body: `network`, `link`, `count` (1 to \
             100,000), `seconds` (0.1 to 60), and optionally `filter`.",
            "Rates have five significant digits. What is not known is null: rates before the second reading, or of a network \
             that no longer runs. The answer to a request that cannot be answered has a status of 400 or more, and is an \
             object. Requests that are refused before they reach a network, such as those without the token, are answered \
             with a line of text.",
        ],
        whole: Some(Object(&ERROR)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /api/networks`",
        commands: &[],
        text: &[],
        whole: Some(Object(&NETWORKS)),
        parts: &[&WATCHED],
        notes: &[],
    },
    Section {
        heading: "`GET /api/live`",
        commands: &[],
        text: &[
            "`GET /api/live?network=NAME`: a network, with its figures. Keys that may be absent are missing while its \
             counters cannot be read; `bits_per_second`, `breaths_per_second`, `idle_breaths`, `asleep`, `workers`, `latency` \
             and `breath` also before the second reading, and if it no longer runs.",
        ],
        whole: Some(Object(&LIVE)),
        parts: &[&LIVE_WORKER, &LIVE_TIMES, &NETWORK_HISTORY, &HAPPENING, &KEPT, &LIVE_APP, &LIVE_LINK],
        notes: &[],
    },
    Section {
        heading: "`GET /api/app`",
        commands: &[],
        text: &["`GET /api/app?network=NAME&app=APP`: an app."],
        whole: Some(Object(&APP_ANSWER)),
        parts: &[&APP_HISTORY],
        notes: &[],
    },
    Section {
        heading: "`GET /api/link`",
        commands: &[],
        text: &["`GET /api/link?network=NAME&link=LINK`: a link, named as in a network file."],
        whole: Some(Object(&LINK_ANSWER)),
        parts: &[&LINK_HISTORY],
        notes: &[],
    },
    Section {
        heading: "`GET /api/picture`",
        commands: &[],
        text: &[
            "`GET /api/picture?network=NAME`: the picture of a network, without style. Groups of apps have the attribute \
             `data-app`, the app's index; groups of links and their labels have `data-link`, an index of `links`. With \
             `view=wide` or `view=tall` it is an overview with the names of apps alone, from left to right or below each \
             other; `view=full` is the default.",
        ],
        whole: Some(Object(&PICTURE)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /api/durations`",
        commands: &[],
        text: &["`GET /api/durations?network=NAME&app=APP`: how long the calls of an app take."],
        whole: Some(Object(&DURATIONS)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /api/status`",
        commands: &[],
        text: &[
            "`GET /api/status?network=NAME`: what `show status --json` prints, without the workers. The server asks the \
             engine.",
        ],
        whole: Some(Object(&STATUS)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`POST /api/trace`",
        commands: &[],
        text: &[
            "Follows packets. The body: `network`, `count` (1 to 100), `seconds` (0.1 to 60), and optionally `app` and \
             `filter`.",
        ],
        whole: Some(Object(&TRACE_ANSWER)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`POST /api/change`",
        commands: &[],
        text: &[
            "Only with `--allow-changes`. The body: `change`, which is `clear` or `reload`, `network`, and optionally for a \
             reload `restart`, a list of apps.",
        ],
        whole: Some(Object(&CHANGE)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /health` of `bellows metrics`",
        commands: &[],
        text: &[
            "The health of all networks, or with `GET /health?network=NAME` of one. The status is 200 while packets move, as \
             [metrics and health](metrics.md#health) says.",
        ],
        whole: Some(Object(&MACHINE_HEALTH)),
        parts: &[],
        notes: &[],
    },
];

static ERROR: Form = Form { title: "Error", includes: &[], keys: &[key("error", Text, "a sentence")] };

static NETWORKS: Form = Form {
    title: "Networks of the page",
    includes: &[],
    keys: &[
        key("version", Text, "version of Bellows"),
        key("allow_changes", Flag, "whether `POST /api/change` is allowed"),
        key("networks", List(&Object(&WATCHED)), "the networks, those of this user first"),
    ],
};

static WATCHED: Form = Form {
    title: "Network of the page",
    includes: &[],
    keys: &[
        key("name", Text, "its name"),
        key("user", Text, "its owner"),
        key("foreign", Flag, "whether it is another user's"),
        key(
            "state",
            Word(&["running", "stopped", "crashed"]),
            "the state of its process: `running`, `stopped` (by a signal or a debugger) or `crashed`; null if the run has \
             ended",
        )
        .or_null(),
        key(
            "health",
            Word(&["running", "degraded", "stalled", "crashed", "ended"]),
            "`running`, `degraded`, `stalled` or `crashed`; [the meanings](operating.md#health); or `ended`",
        ),
        key("reasons", List(&Text), "why it is no better, in sentences"),
        key(
            "confirmation",
            Text,
            "a sentence about a change that [awaits its confirmation](operating.md#changes-that-undo-themselves); null if \
             there is none",
        )
        .or_null(),
        key("pid", Integer, "its process; null if it is not known").or_null(),
        key("uptime_seconds", Decimal, "the time that it has been running; null if it no longer runs").or_null(),
        key("packets_per_second", Decimal, "through the busiest link").or_null(),
        key("dropped_per_second", Decimal, "packets dropped").or_null(),
        key("network", Text, "its file; null if its counters cannot be read").or_null(),
        key("schedule", Text, "the schedule in use; null if its counters cannot be read").or_null(),
    ],
};

static LIVE: Form = Form {
    title: "Live figures",
    includes: &[&WATCHED],
    keys: &[
        key("structure", Text, "a text that changes with its apps and links"),
        key("events", List(&Object(&HAPPENING)), "what the server has seen happen while a page was open; the last 100"),
        key(
            "kept",
            List(&Object(&KEPT)),
            "the last 100 [events](operating.md#events) that the network has kept, also from before and from earlier runs \
             of its name",
        ),
        key("history", Object(&NETWORK_HISTORY), "its last minutes"),
        key("at", Integer, "when its counters were read: milliseconds since the Unix epoch").or_absent(),
        key("version", Text, "the version of Bellows that it runs").or_absent(),
        key("reloads", Integer, "configurations swapped in while running").or_absent(),
        key("dropped", Integer, "packets dropped in all").or_absent(),
        key("buffers", Integer, "packet buffers in the pool").or_absent(),
        key("buffers_in_use", Integer, "packet buffers that hold packets").or_absent(),
        key("buffers_lent", Integer, "packet buffers that ports have lent to the kernel").or_absent(),
        key("bits_per_second", Decimal, "through the busiest link").or_absent(),
        key("breaths_per_second", Decimal, "breaths of all workers").or_absent(),
        key("idle_breaths", Decimal, "the share of breaths in which no packet moved; null without breaths")
            .or_null()
            .or_absent(),
        key("asleep", Decimal, "the share of the time that the engine slept").or_absent(),
        key("workers", List(&Object(&LIVE_WORKER)), "the workers").or_absent(),
        key("latency", Object(&LIVE_TIMES), "the times from a packet's source to its end").or_absent(),
        key("breath", Object(&LIVE_TIMES), "the durations of breaths in which packets move").or_absent(),
        key("apps", List(&Object(&LIVE_APP)), "the apps, in the order of the network file").or_absent(),
        key("links", List(&Object(&LIVE_LINK)), "the links, in the order of the network file").or_absent(),
    ],
};

static LIVE_WORKER: Form = Form {
    title: "Worker with its figures",
    includes: &[],
    keys: &[
        key("name", Text, "its name in the network"),
        key("apps", Integer, "the number of its apps"),
        key("breaths", Decimal, "breaths a second"),
        key("idle_breaths", Decimal, "the share of these in which no packet moved; null without breaths").or_null(),
        key("asleep", Decimal, "the share of the time that it slept"),
        key("node", Integer, "its memory node; null on a machine with one, or if it may run on several").or_null(),
    ],
};

static LIVE_TIMES: Form = Form {
    title: "Times of the last second",
    includes: &[],
    keys: &[
        key("p50_ns", Integer, "the median; null without times").or_null(),
        key("p99_ns", Integer, "the 99th percentile; null without times").or_null(),
        key("maximum_ns", Integer, "the longest; null without times").or_null(),
    ],
};

static NETWORK_HISTORY: Form = Form {
    title: "History of a network",
    includes: &[],
    keys: &[
        key("at", List(&Integer), "milliseconds since the Unix epoch"),
        key("packets", List(&Decimal), "packets a second through the busiest link"),
        key("dropped", List(&Decimal), "packets dropped a second"),
        key("asleep", List(&Decimal), "the share of the time that the engine slept"),
    ],
};

static HAPPENING: Form = Form {
    title: "Event that the server has seen",
    includes: &[],
    keys: &[
        key("at", Integer, "milliseconds since the Unix epoch"),
        key(
            "what",
            Word(&[
                "running",
                "restarted",
                "reloaded",
                "stopped",
                "continued",
                "failed",
                "slow",
                "dropping",
                "crashed",
                "ended",
            ]),
            "`running` (seen for the first time), `restarted` (another run has begun), `reloaded`, `stopped`, `continued`, \
             `failed` (an app has panicked), `slow` (breaths exceeded `breath_limit`), `dropping` (the first drops), \
             `crashed` or `ended`",
        ),
        key("text", Text, "a sentence"),
    ],
};

static KEPT: Form = Form {
    title: "Event that the network has kept",
    includes: &[],
    keys: &[
        key("at", Integer, "milliseconds since the Unix epoch"),
        key("what", Text, "its name"),
        key("level", Word(&["error", "warn", "info"]), "`error`, `warn` or `info`"),
        key("text", Text, "the message"),
    ],
};

static LIVE_APP: Form = Form {
    title: "App with its figures",
    includes: &[],
    keys: &[
        key("name", Text, "its name in the network"),
        key("type", Text, "its type"),
        key("worker", Text, "its worker"),
        key("state", Text, "its state, as in [App](#app)"),
        key("received", Decimal, "packets received a second").or_null(),
        key("sent", Decimal, "packets sent a second").or_null(),
        key("dropped", Decimal, "packets dropped a second").or_null(),
        key("dropped_inside", Decimal, "those of `dropped` that were not dropped at full links").or_null(),
        key("dropped_packets", Integer, "packets dropped in all"),
        key("clocks", Decimal, "clocks a packet in the last seconds; null if too few calls were sampled").or_null(),
        key("share", Decimal, "its share of all clocks in the last seconds; null without samples").or_null(),
        key("packets_per_call", Decimal, "packets a call in the last seconds; null without calls").or_null(),
    ],
};

static LIVE_LINK: Form = Form {
    title: "Link with its figures",
    includes: &[],
    keys: &[
        key("from", Text, "`app.output`"),
        key("to", Text, "`app.input`"),
        key("packets", Decimal, "packets a second").or_null(),
        key("bits", Decimal, "bits a second").or_null(),
        key("dropped", Decimal, "packets dropped a second because it was full").or_null(),
        key("dropped_packets", Integer, "packets dropped in all because it was full"),
        key("waiting", Integer, "packets sent and not yet received"),
    ],
};

static APP_ANSWER: Form = Form {
    title: "App of the page",
    includes: &[],
    keys: &[
        key("app", Object(&APP), "its counters"),
        key("index", Integer, "its index in the network's apps, from 0"),
        key("helps", Map(&Text), "the meanings of its drop reasons and counters"),
        key("rows", List(&Object(&COST)), "its costs, as in `show run --json`"),
        key("cleared", Flag, "whether these count since a `clear`, and not since the start of the run"),
        key("seconds", Decimal, "the time to which they belong"),
        key("links", List(&Integer), "the indices of its links in the network's"),
        key("history", Object(&APP_HISTORY), "its last minutes"),
    ],
};

static APP_HISTORY: Form = Form {
    title: "History of an app",
    includes: &[],
    keys: &[
        key("at", List(&Integer), "milliseconds since the Unix epoch"),
        key("received", List(&Decimal), "packets received a second"),
        key("sent", List(&Decimal), "packets sent a second"),
        key("dropped", List(&Decimal), "packets dropped a second"),
        key("clocks", List(&OrNull(&Decimal)), "clocks a packet; null if not known"),
    ],
};

static LINK_ANSWER: Form = Form {
    title: "Link of the page",
    includes: &[],
    keys: &[
        key("link", Object(&LINK), "its counters"),
        key("index", Integer, "its index in the network's links, from 0"),
        key("history", Object(&LINK_HISTORY), "its last minutes"),
    ],
};

static LINK_HISTORY: Form = Form {
    title: "History of a link",
    includes: &[],
    keys: &[
        key("at", List(&Integer), "milliseconds since the Unix epoch"),
        key("packets", List(&Decimal), "packets a second"),
        key("bits", List(&Decimal), "bits a second"),
        key("dropped", List(&Decimal), "packets dropped a second"),
        key("waiting", List(&Decimal), "packets sent and not yet received"),
    ],
};

static PICTURE: Form = Form {
    title: "Picture of a network",
    includes: &[],
    keys: &[
        key("structure", Text, "that of `GET /api/live`"),
        key("svg", Text, "the picture; null if the network is too large, or its counters cannot be read").or_null(),
        key(
            "links",
            List(&OrNull(&Integer)),
            "for each link of the picture its index in the network's links; null if it is not one of these",
        ),
    ],
};

static DURATIONS: Form = Form {
    title: "Durations of calls",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("seconds", Decimal, "the time in which they were recorded"),
        key("durations", Object(&TIMES), "its recorded calls that moved packets, of breaths chosen at random"),
    ],
};

static STATUS: Form = Form {
    title: "Statuses of the page",
    includes: &[&NETWORK],
    keys: &[
        key("apps", List(&Object(&APP_STATUS)), "the apps that have a status"),
        key("objects", List(&Object(&OBJECT_STATUS)), "the shared objects of the network"),
    ],
};

static TRACE_ANSWER: Form = Form {
    title: "Trace of the page",
    includes: &[&TRACE],
    keys: &[
        key(
            "end",
            Word(&["complete", "time", "steps", "gone", "over"]),
            "`complete` (all packets have ended), `time` (it is over), `steps` (the packets take too many), `gone` (the app \
             to follow from no longer exists) or `over` (the run is)",
        ),
        key("obstacle", Text, "why nothing more came; null if nothing was in the way").or_null(),
    ],
};

static CHANGE: Form = Form {
    title: "Change of a network",
    includes: &[],
    keys: &[
        key("name", Text, "the name of the network"),
        key("cleared", Flag, "true, for `clear`").or_absent(),
        key("reloaded", Object(&RELOAD), "the report, for `reload`").or_absent(),
    ],
};

static MACHINE_HEALTH: Form = Form {
    title: "Health of all networks",
    includes: &[],
    keys: &[
        key(
            "health",
            Word(&["running", "degraded", "stalled", "crashed"]),
            "the worst: `running`, `degraded`, `stalled` or `crashed`; [the meanings](operating.md#health); null if there \
             is no network",
        )
        .or_null(),
        key("networks", List(&Object(&PROBE)), "the networks"),
    ],
};
