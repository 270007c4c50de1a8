//! The forms of networks and their counters.

use super::Kind::{Any, Decimal, Either, Flag, Integer, List, Map, Object, OrNull, Status, Text, Tuple, Word};
use super::{Form, Section, key};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    COUNTED,
    Section {
        heading: "`bellows run --json`",
        commands: &["run"],
        text: &["If the run cannot start, nothing is printed to standard output, and the exit code is 2."],
        whole: Some(Object(&RUN)),
        parts: &[&LOSS, &IMBALANCE, &UNFINISHED, &MEMORY],
        notes: &[],
    },
    Section {
        heading: "`bellows check --json`",
        commands: &["check"],
        text: &["An object; with several networks, a list of them."],
        whole: Some(Either(&[Object(&CHECK), List(&Object(&CHECK))])),
        parts: &[&DIAGNOSTIC, &POSITION, &PRIVILEGES, &APP_PRIVILEGES],
        notes: &[],
    },
    Section {
        heading: "`bellows ps --json`",
        commands: &["ps"],
        text: &["A list of objects."],
        whole: Some(List(&Object(&LISTED_NETWORK))),
        parts: &[&NETWORK, &HEALTH, &CONFIRMATION, &HANG],
        notes: &[],
    },
    Section {
        heading: "`bellows ps --probe --json`",
        commands: &["ps --probe"],
        text: &["A list of objects."],
        whole: Some(List(&Object(&PROBE))),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows events --json`",
        commands: &["events"],
        text: &["One object per line."],
        whole: Some(Object(&EVENT)),
        parts: &[],
        notes: &[
            "In the log as JSON (`--log-format json`) an event is a record with the key `event`, and its fields are keys \
             beside it.",
        ],
    },
    Section {
        heading: "`bellows events --list --json`",
        commands: &["events --list"],
        text: &["One object per line, for each kind of event."],
        whole: Some(Object(&EVENT_KIND)),
        parts: &[&EVENT_FIELD],
        notes: &[],
    },
    Section {
        heading: "`bellows show --json`",
        commands: &["show"],
        text: &[
            "`status` and `stats` are aliases of `show`. With a part, `show` prints only that part, as the next sections \
             say.",
        ],
        whole: Some(Object(&SHOWN)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show apps --json`",
        commands: &["show apps"],
        text: &[],
        whole: Some(Object(&SHOWN_APPS)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show links --json`",
        commands: &["show links"],
        text: &[],
        whole: Some(Object(&SHOWN_LINKS)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show errors --json`",
        commands: &["show errors"],
        text: &[],
        whole: Some(Object(&SHOWN_ERRORS)),
        parts: &[&DROPS],
        notes: &[],
    },
    Section {
        heading: "`bellows show config --json`",
        commands: &["show config"],
        text: &[],
        whole: Some(Object(&SHOWN_CONFIG)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show counters --json`",
        commands: &["show counters"],
        text: &[],
        whole: Some(Object(&SHOWN_COUNTERS)),
        parts: &[&COUNTER],
        notes: &[],
    },
    Section {
        heading: "`bellows show interfaces --json`",
        commands: &["show interfaces"],
        text: &[
            "An interface is an app that connects the network to the outside: it is linked on one side only (a reader, a \
             source, a writer, a sink), or its type says so (`Configure::INTERFACE`: `af-xdp`, `raw-socket`, `tap`, \
             `unix-socket`, `vhost-user`, `virtio-user`), or its status (`App::status`) has `\"interface\": true`.",
        ],
        whole: Some(Object(&SHOWN_INTERFACES)),
        parts: &[&INTERFACE, &DIRECTION, &ROUTER_INTERFACE],
        notes: &[],
    },
    Section {
        heading: "`bellows show run --json`",
        commands: &["show run"],
        text: &["The cost of each app since `since`, the start of the run or the last `bellows clear`."],
        whole: Some(Object(&SHOWN_RUN)),
        parts: &[&PERIOD, &WORKER_RATES, &COMPOUND_COST, &COST, &SAMPLED, &ADVICE, &TRIAL],
        notes: &[],
    },
    Section {
        heading: "`bellows show latency --json`",
        commands: &["show latency"],
        text: &[],
        whole: Some(Object(&SHOWN_LATENCY)),
        parts: &[&TIMES],
        notes: &[],
    },
    Section {
        heading: "`bellows top --json`",
        commands: &["top"],
        text: &[
            "One object per line and interval, until the network ends or the reader goes away; with `--once`, one. Rates \
             and what belongs to them are null in the last line of a network that has ended.",
        ],
        whole: Some(Object(&TOP)),
        parts: &[&APP_RATES, &LINK_RATES, &PERCENTILES],
        notes: &[],
    },
    Section {
        heading: "`bellows reload --json`",
        commands: &["reload"],
        text: &[],
        whole: Some(Object(&RELOAD)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows confirm --json`",
        commands: &["confirm"],
        text: &[],
        whole: Some(Object(&CONFIRMED)),
        parts: &[],
        notes: &[],
    },
];

const COUNTED: Section = Section {
    heading: "Counters",
    commands: &[],
    text: &[
        "`bellows run --json` and `bellows show --json` print an object with these keys, taken at one time, and others.",
    ],
    whole: Some(Object(&COUNTERS)),
    parts: &[&APP, &LINK, &WORKER, &CALL, &ENGINE, &GONE, &HISTOGRAM],
    notes: &[
        "Every app has these reasons for drops: `no_buffer` (the pool had no buffer for a packet or a copy), `unlinked` (an \
         output is not linked), `app_failed` (the app has panicked: packets that it held or processed, and all later \
         input), `removed` (packets inside the app when a reload removed or replaced it), and `txdrop` (one of its output \
         links was full: the sum over these links).",
        "`breaths`, `idle_breaths`, the apps' `calls`, `made`, `ended`, `held`, `leaked` and `uncounted`, the three buffer \
         counts, `alive` and the links' `waiting` and `waiting_bytes` are written ten times a second while the engine is busy and before it sleeps; all \
         others are exact at any time.",
        "The books of each app: `in_packets + made` is `out_packets` plus all `drops`, `ended` and `held`. Packets sent and \
         not received wait in a link, or were in a link that a reload removed. In the report of a run this holds to the \
         packet. The engine checks it ten times a second against the pool's own counts of buffers that each call allocated \
         and freed. `leaked` and `uncounted` are the difference.",
    ],
};

pub(super) static COUNTERS: Form = Form {
    title: "Counters",
    includes: &[],
    keys: &[
        key("version", Text, "version of Bellows"),
        key("pid", Integer, "the engine's process"),
        key("schedule", Word(&["nested", "flat", "native"]), "the schedule in use: `nested`, `flat` or `native`"),
        key("fallback_reason", Text, "a sentence: why this is not the requested schedule; empty if it is"),
        key("source", Text, "the network file as named on the command line"),
        key("ticks_per_second", Integer, "frequency of the clock that times calls, in Hz"),
        key("doing", Object(&CALL), "the app that the engine is in; null between calls").or_null(),
        key("asleep", Flag, "whether the engine sleeps"),
        key("engine", Object(&ENGINE), "the engine's own counters; with several workers, their sums"),
        key("workers", List(&Object(&WORKER)), "the workers"),
        key("apps", List(&Object(&APP)), "the apps, in the order of the network file"),
        key("links", List(&Object(&LINK)), "the links, in the order of the network file"),
        key(
            "crossings",
            List(&Object(&APP)),
            "the engine's own work for links between workers: for each link the side that packets leave (`in_packets`), and \
             the one at which they arrive (`out_packets`)",
        ),
        key("gone", Object(&GONE), "what reloads have removed"),
        key(
            "histograms",
            Map(&Object(&HISTOGRAM)),
            "distributions of times, in nanoseconds: `breath`, the duration of sampled breaths in which a packet moved; \
             `latency`, the time since a packet was created until its end, for some packets",
        ),
    ],
};

static CALL: Form = Form {
    title: "Call",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key(
            "activity",
            Word(&["call", "question", "start", "stop"]),
            "`call` (`pull`, `push` or `tick`), `question` (`held` or `is_finished`), `start` or `stop`",
        ),
    ],
};

static ENGINE: Form = Form {
    title: "Engine",
    includes: &[],
    keys: &[
        key("breaths", Integer, "all breaths"),
        key("idle_breaths", Integer, "breaths in which no packet moved"),
        key("sleeps", Integer, "number of sleeps; a sleep counts when it ends"),
        key("sleep_ns", Integer, "their total duration"),
        key("reloads", Integer, "configurations swapped in while running"),
        key("forgotten_drops", Integer, "drops of removed apps and links that `gone` does not list any more"),
        key("started", Integer, "start of the run: nanoseconds since the Unix epoch"),
        key(
            "updated",
            Integer,
            "last update of the counters that are not exact at any time: nanoseconds since the Unix epoch",
        ),
        key("buffers", Integer, "packet buffers in the pool, ordinary and large"),
        key("buffers_in_use", Integer, "packet buffers that hold packets"),
        key("buffers_lent", Integer, "packet buffers that ports have lent to the kernel"),
        key("large_buffers", Integer, "large packet buffers in the pool"),
        key("large_buffers_in_use", Integer, "large packet buffers that hold packets or are lent to the kernel"),
        key("sampled_breaths", Integer, "breaths in which calls were recorded, chosen at random, one in 256"),
        key(
            "alive",
            Integer,
            "when the engine was last outside of apps: nanoseconds since the Unix epoch. A busy engine updates it ten times \
             a second. If it is old and `asleep` is false, the engine hangs in the app that `doing` names",
        ),
        key(
            "slow_breaths",
            Integer,
            "breaths longer than `breath_limit` in `[engine]` (100 ms unless set), including work between two breaths, such \
             as starting an app in a reload",
        ),
        key(
            "standstills",
            Integer,
            "pauses longer than `breath_limit` because the whole process was stopped by a signal or a debugger, or the \
             machine was paused",
        ),
        key(
            "from_other_nodes",
            Integer,
            "packets that came from workers on other memory nodes; those of a worker whose `node` is null are not counted",
        ),
    ],
};

static WORKER: Form = Form {
    title: "Worker",
    includes: &[],
    keys: &[
        key("name", Text, "its name in the network"),
        key("doing", Object(&CALL), "the app that it is in; null between calls").or_null(),
        key("asleep", Flag, "whether it sleeps"),
        key("node", Integer, "its memory node; null on a machine with one, or if it may run on several").or_null(),
        key("counters", Map(&Integer), "those of the engine's counters that each worker counts for itself"),
        key("apps", List(&Text), "the names of its apps"),
    ],
};

pub(super) static APP: Form = Form {
    title: "App",
    includes: &[],
    keys: &[
        key("name", Text, "its name in the network"),
        key("kind", Text, "its type (`app = \"…\"`)"),
        key("worker", Text, "its worker"),
        key("in_packets", Integer, "packets received on all inputs"),
        key("in_bytes", Integer, "bytes received on all inputs"),
        key("out_packets", Integer, "packets sent on all outputs"),
        key("out_bytes", Integer, "bytes sent on all outputs"),
        key("made", Integer, "packets that it made or brought in, including packets dropped before they had a buffer"),
        key("ended", Integer, "packets that it consumed, as a sink does"),
        key("held", Integer, "packets inside it"),
        key(
            "leaked",
            Integer,
            "lost packets: 0, unless the app has a bug. Negative if the app claims more than it got",
        ),
        key(
            "uncounted",
            Integer,
            "packets freed without being counted: 0, unless the app has a bug. Negative if more were counted than freed",
        ),
        key("drops", Map(&Integer), "packets dropped, by reason"),
        key(
            "lost",
            Map(&Integer),
            "the drops that nobody asked for, by reason; drops of a rate limiter or a sampler are excluded",
        ),
        key("counters", Map(&Integer), "its other counters; `bellows apps TYPE` explains each"),
        key(
            "state",
            Word(&["polling", "slots", "active", "failed", "gone"]),
            "`polling` (pulled in every breath), `slots` (pulled when a slot says so), `active` (pushed when packets wait \
             for it), `failed` (it has panicked and is not called any more), `gone` (a reload has removed it)",
        ),
        key("panics", Integer, "number of panics"),
        key(
            "calls",
            Map(&Integer),
            "number of calls: `pull`, `push`, `tick`; every call is counted, not only sampled ones",
        ),
        key("sleeps", Integer, "sleeps of the engine that ended because of its descriptor"),
        key(
            "account",
            Map(&Integer),
            "data of the sampled breaths, for each entry (`pull`, `push`, `tick`): `pull_calls`; `pull_packets`, sent in \
             these calls (for `push`, taken); `pull_clocks`, their clocks (of the clock of `ticks_per_second`); \
             `pull_outlier_calls` and `pull_outlier_clocks`, the same for calls that took over 16 times as long as usual \
             and over 5 µs, which the other keys exclude; and for each counted event such as `instructions`, \
             `pull_instructions`: counted in some of these calls, and extrapolated to all",
        ),
    ],
};

pub(super) static LINK: Form = Form {
    title: "Link",
    includes: &[],
    keys: &[
        key("from", Text, "`app.output`"),
        key("to", Text, "`app.input`"),
        key("packets", Integer, "packets sent into it"),
        key("bytes", Integer, "bytes sent into it"),
        key("txdrop", Integer, "packets dropped because it was full"),
        key("waiting", Integer, "packets sent and not yet received"),
        key("waiting_bytes", Integer, "bytes sent and not yet received"),
        key("removed", Integer, "of a removed link: packets that waited in it at the reload, and were dropped"),
    ],
};

static GONE: Form = Form {
    title: "Gone",
    includes: &[],
    keys: &[
        key(
            "apps",
            List(&Object(&APP)),
            "apps removed by reloads, with their last counts; a name that was removed several times is listed once. At most \
             128, the last removed ones",
        ),
        key(
            "links",
            List(&Object(&LINK)),
            "links removed by reloads, with their last counts; at most 128, the last removed ones",
        ),
    ],
};

static HISTOGRAM: Form = Form {
    title: "Histogram",
    includes: &[],
    keys: &[
        key(
            "classes",
            List(&Tuple(&[Integer, Integer])),
            "a class's upper bound, and its count (empty classes are left out; a class is 6 percent wide)",
        ),
        key("maximum", Integer, "the longest time"),
    ],
};

static RUN: Form = Form {
    title: "Report of a run",
    includes: &[&COUNTERS],
    keys: &[
        key("name", Text, "the name of the run"),
        key(
            "end",
            Word(&["done", "stopped", "closed", "stalled"]),
            "`done` (all sources are finished and no packets are left), `stopped`, `closed` (no app in which packets end \
             can take more: the reader of standard output has ended), or `stalled` (packets wait that no app will ever \
             take)",
        ),
        key(
            "stopped_by",
            Word(&["duration", "signal", "request"]),
            "`duration`, `signal` or `request`; null unless `end` is `stopped`",
        )
        .or_null(),
        key("elapsed_seconds", Decimal, "duration of the run"),
        key(
            "busiest_link",
            Text,
            "the link with the most packets in the whole run, across reloads; null without links",
        )
        .or_null(),
        key("packets_per_second", Decimal, "through that link, averaged over the whole run"),
        key("bits_per_second", Decimal, "through that link, averaged over the whole run"),
        key("stalled", List(&Text), "links in which packets wait, if `end` is `stalled`"),
        key("panicked", List(&Text), "names of the apps that panicked"),
        key("unfinished", List(&Object(&UNFINISHED)), "apps that could not finish their work"),
        key(
            "imbalances",
            List(&Object(&IMBALANCE)),
            "apps whose books do not balance. Each is a bug in the app and makes the run fail",
        ),
        key("losses", List(&Object(&LOSS)), "drops that nobody asked for"),
        key(
            "log_lines_lost",
            Integer,
            "log lines that could not be written to standard error: its disk was full, or its reader had ended or was too \
             slow",
        ),
        key("warnings", List(&Text), "sentences; the causes of a failed run come first"),
        key("memory", Object(&MEMORY), "the packet pool"),
    ],
};

static LOSS: Form = Form {
    title: "Loss",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("reason", Text, "the drop reason"),
        key("help", Text, "the meaning of that reason"),
        key("packets", Integer, "the number of packets"),
    ],
};

static IMBALANCE: Form = Form {
    title: "Imbalance",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("leaked", Integer, "as in [App](#app)"),
        key("uncounted", Integer, "as in [App](#app)"),
    ],
};

static UNFINISHED: Form = Form {
    title: "Unfinished app",
    includes: &[],
    keys: &[key("app", Text, "the app"), key("reason", Text, "why it could not finish")],
};

static MEMORY: Form = Form {
    title: "Memory",
    includes: &[],
    keys: &[
        key("pages", Word(&["hugetlb", "thp", "4k"]), "`hugetlb` or `thp`: 2 MiB pages; `4k`"),
        key("buffers", Integer, "packet buffers in the pool"),
        key("buffers_in_use", Integer, "those that hold packets: 0, unless an app leaked buffers"),
    ],
};

static CHECK: Form = Form {
    title: "Checked network",
    includes: &[],
    keys: &[
        key("network", Text, "the file"),
        key("ok", Flag, "whether it can run"),
        key("apps", Integer, "the number of its apps; 0 if it is not ok"),
        key("links", Integer, "the number of its links; 0 if it is not ok"),
        key("diagnostics", List(&Object(&DIAGNOSTIC)), "errors, or warnings and notes"),
        key("privileges", Object(&PRIVILEGES), "with `--privileges`; null if the network is not ok")
            .or_null()
            .or_absent(),
    ],
};

pub(super) static DIAGNOSTIC: Form = Form {
    title: "Diagnostic",
    includes: &[&POSITION],
    keys: &[
        key("severity", Word(&["error", "warning", "note"]), "`error`, `warning` or `note`"),
        key("message", Text, "the error"),
        key("help", List(&Text), "possible fixes, in sentences"),
        key("related", List(&Object(&POSITION)), "other positions"),
    ],
};

static POSITION: Form = Form {
    title: "Position",
    includes: &[],
    keys: &[
        key("file", Text, "the file; null if the message has none").or_null(),
        key("line", Integer, "the line, from 1; null if the message has no position").or_null(),
        key("column", Integer, "the column, in characters from 1; null without a position").or_null(),
        key("end_line", Integer, "the line of the end; null without a position").or_null(),
        key("end_column", Integer, "the column of the end, exclusive; null without a position").or_null(),
        key("label", Text, "the text below the underlined text"),
    ],
};

static PRIVILEGES: Form = Form {
    title: "Privileges",
    includes: &[],
    keys: &[
        key("capabilities", List(&Text), "the names of all that it needs: `CAP_NET_RAW`"),
        key("apps", List(&Object(&APP_PRIVILEGES)), "the apps that need any"),
        key("address_families", List(&Text), "families of sockets that it opens besides Unix sockets"),
        key("system_calls", List(&Text), "those beyond systemd's `@system-service`"),
        key("devices", List(&Text), "devices that it opens"),
        key("system_network", Flag, "whether it uses interfaces or routes of the system"),
        key("locked_memory", Flag, "whether it locks memory"),
        key("written_folders", List(&Text), "folders in which it creates files or sockets"),
    ],
};

static APP_PRIVILEGES: Form = Form {
    title: "Privileges of an app",
    includes: &[],
    keys: &[key("app", Text, "the app"), key("capabilities", List(&Text), "the capabilities that it needs")],
};

pub(super) static NETWORK: Form = Form {
    title: "Network",
    includes: &[],
    keys: &[
        key("name", Text, "its name, as commands accept it"),
        key("user", Text, "its owner"),
        key(
            "state",
            Word(&["running", "stopped", "crashed"]),
            "the state of its process: `running`, `stopped` (by a signal or a debugger) or `crashed`",
        ),
    ],
};

pub(super) static HEALTH: Form = Form {
    title: "Health",
    includes: &[],
    keys: &[
        key(
            "health",
            Word(&["running", "degraded", "stalled", "crashed"]),
            "`running`, `degraded`, `stalled` or `crashed`; [the meanings](operating.md#health)",
        ),
        key("reasons", List(&Text), "why it is no better, in sentences"),
        key(
            "confirmation",
            Object(&CONFIRMATION),
            "the change that [awaits its confirmation](operating.md#changes-that-undo-themselves); null if there is none",
        )
        .or_null(),
    ],
};

pub(super) static CONFIRMATION: Form = Form {
    title: "Awaited confirmation",
    includes: &[],
    keys: &[
        key("seconds_left", Integer, "the time after which the former network is put back, rounded up"),
        key("failure", Text, "why it could not be put back when the time was over; null before that").or_null(),
    ],
};

static HANG: Form = Form {
    title: "Hang",
    includes: &[],
    keys: &[
        key("worker", Text, "the worker; null if it is the only one").or_null(),
        key("app", Text, "the app that it is in; null if it is in none").or_null(),
        key(
            "activity",
            Word(&["call", "question", "start", "stop"]),
            "`call`, `question`, `start` or `stop`, as in [Call](#call); null if it is in no app",
        )
        .or_null(),
        key("seconds", Decimal, "the time since it was last outside of apps"),
    ],
};

static LISTED_NETWORK: Form = Form {
    title: "Listed network",
    includes: &[&NETWORK, &HEALTH],
    keys: &[
        key("pid", Integer, "its process, also of a crashed one; null if it is not known").or_null(),
        key("uptime_seconds", Decimal, "the time that it has been running; null if it has crashed").or_null(),
        key("packets_per_second", Decimal, "through the busiest link, over 0.2 s; null if it has crashed").or_null(),
        key("network", Text, "the file"),
        key("schedule", Text, "the schedule in use"),
        key("failed", List(&Text), "names of the apps that have panicked and are not called any more"),
        key("hang", Object(&HANG), "null, unless the engine has been inside apps for 2 seconds").or_null(),
    ],
};

pub(super) static PROBE: Form = Form {
    title: "Probed network",
    includes: &[&HEALTH],
    keys: &[key("name", Text, "its name, as commands accept it"), key("user", Text, "its owner")],
};

pub(super) static EVENT: Form = Form {
    title: "Event",
    includes: &[],
    keys: &[
        key("network", Text, "the name of the network, as commands accept it"),
        key("user", Text, "its owner"),
        key("time", Text, "when it happened, by RFC 3339 in UTC"),
        key("time_ns", Integer, "the same in nanoseconds since the Unix epoch"),
        key(
            "id",
            Text,
            "what tells the event from all others of the network, also across its runs: `LOG-NUMBER`. Numbers have no gaps, \
             except where events are missing; null for `events-missing`, which tells of a hole in the history",
        )
        .or_null(),
        key("level", Word(&["error", "warn", "info"]), "`error`, `warn` or `info`"),
        key("event", Text, "its name, one of [these](operating.md#events)"),
        key("message", Text, "the message, for people; perhaps several lines"),
        key("pid", Integer, "the process that wrote it, or the one that has crashed; null for `events-missing`").or_null(),
        key("fields", Map(&Any), "the fields that have a value"),
    ],
};

static EVENT_KIND: Form = Form {
    title: "Kind of event",
    includes: &[],
    keys: &[
        key("event", Text, "its name"),
        key("level", Word(&["error", "warn", "info"]), "`error`, `warn` or `info`"),
        key("help", Text, "when it happens"),
        key("fields", List(&Object(&EVENT_FIELD)), "its fields"),
    ],
};

static EVENT_FIELD: Form = Form {
    title: "Field of an event",
    includes: &[],
    keys: &[key("name", Text, "its name"), key("help", Text, "its meaning")],
};

static SHOWN: Form = Form {
    title: "Shown network",
    includes: &[&NETWORK, &COUNTERS],
    keys: &[
        key("failed", List(&Text), "names of the apps that have panicked and are not called any more"),
        key("hang", Object(&HANG), "null, unless the engine has been inside apps for 2 seconds").or_null(),
        key("config", Text, "the text of the network file and all that it includes"),
    ],
};

static SHOWN_APPS: Form = Form {
    title: "Shown apps",
    includes: &[&NETWORK],
    keys: &[key("apps", List(&Object(&APP)), "the apps, in the order of the network file")],
};

static SHOWN_LINKS: Form = Form {
    title: "Shown links",
    includes: &[&NETWORK],
    keys: &[key("links", List(&Object(&LINK)), "the links, in the order of the network file")],
};

static SHOWN_ERRORS: Form = Form {
    title: "Shown errors",
    includes: &[&NETWORK],
    keys: &[key("errors", List(&Object(&DROPS)), "what was dropped")],
};

static DROPS: Form = Form {
    title: "Drops",
    includes: &[],
    keys: &[
        key("app", Text, "the app; absent for packets in removed links, and for parts removed long ago").or_absent(),
        key("link", Text, "the removed link, in place of the app").or_absent(),
        key("reason", Text, "the drop reason; `all reasons` of parts removed long ago"),
        key("packets", Integer, "the number of packets"),
        key("help", Text, "what the reason means, with the likely cause; absent if it is the purpose of the app")
            .or_absent(),
        key("removed", Flag, "whether a reload has removed the app or the link"),
    ],
};

static SHOWN_CONFIG: Form = Form {
    title: "Shown configuration",
    includes: &[&NETWORK],
    keys: &[
        key("source", Text, "the network file as named on the command line"),
        key("config", Text, "its text and all that it includes"),
    ],
};

static SHOWN_COUNTERS: Form = Form {
    title: "Shown counters",
    includes: &[&NETWORK],
    keys: &[key("counters", List(&Object(&COUNTER)), "every counter, including zeros")],
};

static COUNTER: Form = Form {
    title: "Counter",
    includes: &[],
    keys: &[
        key("owner", Word(&["app", "link", "engine"]), "`app`, `link` or `engine`"),
        key("name", Text, "of the app, or the link as written in the file; empty for the engine"),
        key("counter", Text, "the counter's name"),
        key("value", Integer, "its value"),
        key("help", Text, "its meaning; absent if it is unknown to this program").or_absent(),
    ],
};

static SHOWN_INTERFACES: Form = Form {
    title: "Shown interfaces",
    includes: &[&NETWORK],
    keys: &[
        key("seconds", Decimal, "the interval of rates; null for a crashed network").or_null(),
        key("interfaces", List(&Object(&INTERFACE)), "the interfaces"),
        key("routers", List(&Object(&ROUTER_INTERFACE)), "the interfaces of routing domains"),
    ],
};

static INTERFACE: Form = Form {
    title: "Interface",
    includes: &[],
    keys: &[
        key("app", Text, "the app's name in the network"),
        key("kind", Text, "the app's type"),
        key(
            "state",
            Text,
            "`up`, `failed` (it has panicked), `stopped` (the network's process is stopped) or `crashed` (the network has \
             crashed), or the `state` in its status, such as `listening` (`vhost-user`) or `waiting` \
             ([ports at interfaces](#status-of-af-xdp-raw-socket-tap-and-unix-socket))",
        ),
        key("rx", Object(&DIRECTION), "packets into the network"),
        key("tx", Object(&DIRECTION), "packets from the network"),
        key("dropped", Integer, "packets dropped in total"),
        key("drops", Map(&Integer), "packets dropped, by reason"),
        key("status", Status, "its status; null if it has none, or if the network does not answer").or_null(),
    ],
};

static DIRECTION: Form = Form {
    title: "Direction",
    includes: &[],
    keys: &[
        key("packets", Integer, "packets"),
        key("bytes", Integer, "bytes"),
        key("packets_per_second", Decimal, "over 0.2 s; null for a crashed network").or_null(),
        key("bits_per_second", Decimal, "over 0.2 s; null for a crashed network").or_null(),
    ],
};

static ROUTER_INTERFACE: Form = Form {
    title: "Router interface",
    includes: &[],
    keys: &[
        key("vrf", Text, "the routing domain"),
        key("interface", Text, "its name"),
        key("port", Text, "its port"),
        key("vlans", List(&Integer), "its VLANs, the outermost first"),
        key("mac", Text, "its Ethernet address"),
        key("mtu", Integer, "its MTU"),
        key("addresses", List(&Text), "its IP addresses"),
        key(
            "state",
            Word(&["up", "receives", "sends", "unlinked"]),
            "`up`, or `receives`, `sends` or `unlinked` if its port is not linked both ways",
        ),
        key("rx_packets", Integer, "packets that its port has received, with all its VLANs; null if not known")
            .or_null(),
        key("tx_packets", Integer, "packets that its port has sent, with all its VLANs; null if not known").or_null(),
        key("tx_dropped", Integer, "packets that the output of its port has dropped; null if not known").or_null(),
    ],
};

static PERIOD: Form = Form {
    title: "Period",
    includes: &[],
    keys: &[
        key("since", Integer, "start of the counts: nanoseconds since the Unix epoch"),
        key("cleared", Flag, "whether `since` is the time of a `bellows clear`"),
        key("seconds", Decimal, "time since then; for a crashed network, until its last update"),
    ],
};

static SHOWN_RUN: Form = Form {
    title: "Costs",
    includes: &[&NETWORK, &PERIOD],
    keys: &[
        key("schedule", Text, "the schedule in use"),
        key("ticks_per_second", Integer, "clocks in a second"),
        key("breaths", Integer, "all breaths"),
        key("idle_breaths", Integer, "breaths in which no packet moved"),
        key("sampled_breaths", Integer, "breaths in which calls were recorded"),
        key("sleeps", Integer, "sleeps"),
        key("asleep", Decimal, "the share of the time asleep, from 0 to 1; the mean of all workers"),
        key(
            "in_apps",
            Decimal,
            "the share of the time in calls of apps, from 0 to 1, estimated; the mean of all workers; null without samples",
        )
        .or_null(),
        key("packets_per_second", Decimal, "through the busiest link"),
        key("bits_per_second", Decimal, "through the busiest link"),
        key("drops_per_second", Decimal, "packets dropped for any reason"),
        key("workers", List(&Object(&WORKER_RATES)), "the workers"),
        key("compounds", List(&Object(&COMPOUND_COST)), "the compound apps, the sums of their parts"),
        key(
            "rows",
            List(&Object(&COST)),
            "one row for each app and entry that was called (with `--all`, for all), in the order of `--sort`; the two sides \
             of a link between workers are listed like apps",
        ),
        key("advice", Object(&ADVICE), "with `--advise`: the result of a trial of look-ahead").or_absent(),
    ],
};

static WORKER_RATES: Form = Form {
    title: "Rates of a worker",
    includes: &[],
    keys: &[
        key("name", Text, "its name"),
        key("breaths", Decimal, "breaths per second"),
        key("idle_breaths", Decimal, "the share of idle breaths, from 0 to 1; null without breaths").or_null(),
        key("asleep", Decimal, "the share of the time asleep, from 0 to 1"),
        key("node", Integer, "its memory node; null on a machine with one, or if it may run on several").or_null(),
        key("from_other_nodes", Decimal, "packets per second from workers on other memory nodes"),
        key("apps", List(&Text), "the names of its apps"),
    ],
};

static COMPOUND_COST: Form = Form {
    title: "Cost of a compound app",
    includes: &[],
    keys: &[
        key("name", Text, "its full name; a compound app within another one has an entry of its own, too"),
        key("parts", Integer, "the number of apps in it, whose names begin with `NAME/`"),
        key(
            "packets",
            Integer,
            "packets that came in by links from other apps or, without such links, went out; null without either",
        )
        .or_null(),
        key("clocks_per_packet", Decimal, "the clocks of all parts for each of these packets; null without samples")
            .or_null(),
        key("share", Decimal, "the share of all clocks spent in apps, from 0 to 1; null without samples").or_null(),
    ],
};

pub(super) static COST: Form = Form {
    title: "Cost of an app",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("kind", Text, "its type"),
        key("worker", Text, "its worker"),
        key("state", Text, "its state, as in [App](#app)"),
        key("entry", Word(&["pull", "push", "tick"]), "the entry: `pull`, `push` or `tick`"),
        key("calls", Integer, "number of calls; exact"),
        key("packets", Integer, "packets taken (`push`) or sent (`pull`, `tick`); null if unknown").or_null(),
        key(
            "packets_estimated",
            Flag,
            "whether `packets` is estimated from samples, because the app sends at several entries; otherwise it is exact",
        ),
        key("sleeps", Integer, "sleeps that ended because of the app's descriptor, in the first of its rows"),
        key("share", Decimal, "the calls' share of all clocks spent in apps, from 0 to 1; null without samples")
            .or_null(),
        key("packets_per_call", Decimal, "packets divided by calls; null if the packets are unknown, or without calls")
            .or_null(),
        key("clocks_per_packet", Decimal, "from the samples; null if fewer than 16 calls were sampled, or no packets")
            .or_null(),
        key("clocks_per_call", Decimal, "from the samples; null if fewer than 16 calls were sampled").or_null(),
        key(
            "instructions_per_cycle",
            Decimal,
            "from the samples; null if fewer than 16 calls were sampled, or nothing was counted",
        )
        .or_null(),
        key("events_per_packet", Map(&OrNull(&Decimal)), "each counted event per packet, such as `instructions`"),
        key("sampled", Object(&SAMPLED), "the samples"),
    ],
};

static SAMPLED: Form = Form {
    title: "Sampled calls",
    includes: &[],
    keys: &[
        key("calls", Integer, "calls"),
        key("packets", Integer, "packets taken or sent in them"),
        key("clocks", Integer, "their clocks"),
        key("outlier_calls", Integer, "calls that took far longer than usual, which the other keys exclude"),
        key("outlier_clocks", Integer, "the clocks of these"),
        key("events", Map(&Integer), "counted events"),
    ],
};

static ADVICE: Form = Form {
    title: "Advice",
    includes: &[],
    keys: &[
        key("seconds", Decimal, "how long the trial was to take"),
        key(
            "end",
            Word(&["time", "requested", "over"]),
            "why it ended: `time`, `requested` (Ctrl-C), or `over` if the network was reloaded or has ended",
        ),
        key("advice", List(&Text), "what follows, in sentences"),
        key("apps", List(&Object(&TRIAL)), "each app that had calls with at least 8 packets in the trial"),
    ],
};

pub(super) static TRIAL: Form = Form {
    title: "Trial of an app",
    includes: &[],
    keys: &[
        key("app", Text, "its name"),
        key("calls", Tuple(&[Integer, Integer]), "calls without and with prefetches before them"),
        key("packets_per_call", Decimal, "the median"),
        key("clocks", Decimal, "the median of the clocks a packet, of calls without prefetches"),
        key("fetch", Decimal, "that of the prefetches"),
        key("clocks_after", Decimal, "that of the calls after them"),
        key(
            "saved",
            Decimal,
            "the share of `clocks` that the prefetches save, less what they cost; negative if they cost more",
        ),
        key(
            "p",
            Decimal,
            "the probability that calls alone take so much longer by chance; 1 if they do not take longer",
        ),
        key(
            "verdict",
            Word(&["missing", "sufficient", "unknown"]),
            "`missing` if the app waits for data of its packets, `sufficient` if not, `unknown` with fewer than 16 calls of \
             each kind, or fewer than 50 without a finding",
        ),
    ],
};

static SHOWN_LATENCY: Form = Form {
    title: "Shown latency",
    includes: &[&NETWORK, &PERIOD],
    keys: &[
        key("latency", Object(&TIMES), "the time from a packet's source to its end"),
        key("breath", Object(&TIMES), "the duration of a breath in which packets moved"),
    ],
};

pub(super) static TIMES: Form = Form {
    title: "Times",
    includes: &[&PERCENTILES],
    keys: &[
        key("samples", Integer, "the number of times"),
        key("p99_9_ns", Integer, "the 99.9th percentile; null without samples").or_null(),
        key("maximum_ns", Integer, "the longest time; null without samples").or_null(),
        key("classes", List(&Tuple(&[Integer, Integer])), "as in [Histogram](#histogram)"),
    ],
};

static PERCENTILES: Form = Form {
    title: "Percentiles",
    includes: &[],
    keys: &[
        key("p50_ns", Integer, "the median; null without samples").or_null(),
        key("p99_ns", Integer, "the 99th percentile; null without samples").or_null(),
    ],
};

static TOP: Form = Form {
    title: "Update",
    includes: &[],
    keys: &[
        key("name", Text, "the network's name, as commands accept it"),
        key("user", Text, "its owner"),
        key(
            "state",
            Word(&["running", "stopped", "crashed", "ended"]),
            "`running` or `stopped`; in the last line `ended` or `crashed`",
        ),
        key("at", Integer, "time of the reading: nanoseconds since the Unix epoch"),
        key("seconds", Decimal, "time since the previous line, the interval of the rates"),
        key("uptime_seconds", Decimal, "uptime of the network"),
        key("failed", List(&Text), "names of the apps that have panicked and are not called any more"),
        key("hang", Object(&HANG), "null, unless the engine has been inside apps for 2 seconds").or_null(),
        key("packets_per_second", Decimal, "through the busiest link").or_null(),
        key("bits_per_second", Decimal, "through the busiest link").or_null(),
        key("asleep", Decimal, "the share of the time asleep, from 0 to 1").or_null(),
        key("idle_breaths", Decimal, "the share of breaths without packets, from 0 to 1; null without breaths")
            .or_null(),
        key("workers", List(&Object(&WORKER_RATES)), "the workers").or_null(),
        key("sleeps_per_second", Decimal, "sleeps").or_null(),
        key("slow_breaths", Integer, "as in [Engine](#engine), since the run began"),
        key("standstills", Integer, "as in [Engine](#engine), since the run began"),
        key("buffers", Integer, "as in [Engine](#engine)"),
        key("buffers_in_use", Integer, "as in [Engine](#engine)"),
        key("buffers_lent", Integer, "as in [Engine](#engine)"),
        key("latency", Object(&PERCENTILES), "the time from a packet's source to its end, within `seconds`"),
        key("breath", Object(&PERCENTILES), "the duration of breaths in which packets moved, within `seconds`"),
        key("apps", List(&Object(&APP_RATES)), "the apps"),
        key("links", List(&Object(&LINK_RATES)), "the links"),
    ],
};

static APP_RATES: Form = Form {
    title: "Rates of an app",
    includes: &[],
    keys: &[
        key("name", Text, "its name in the network"),
        key("kind", Text, "its type"),
        key("worker", Text, "its worker"),
        key("in_packets_per_second", Decimal, "packets received on all inputs").or_null(),
        key("out_packets_per_second", Decimal, "packets sent on all outputs").or_null(),
        key("drops_per_second", Decimal, "packets dropped for any reason").or_null(),
        key("dropped", Integer, "packets dropped since the last `bellows clear`, or the start of the run"),
        key("clocks_per_packet", Decimal, "as in [Cost of an app](#cost-of-an-app)").or_null(),
        key("packets_per_call", Decimal, "as in [Cost of an app](#cost-of-an-app)").or_null(),
        key("share", Decimal, "the share of all clocks spent in apps, from 0 to 1; null without samples").or_null(),
    ],
};

static LINK_RATES: Form = Form {
    title: "Rates of a link",
    includes: &[],
    keys: &[
        key("from", Text, "`app.output`"),
        key("to", Text, "`app.input`"),
        key("packets_per_second", Decimal, "packets sent into it").or_null(),
        key("bits_per_second", Decimal, "bits sent into it").or_null(),
        key("packets", Integer, "packets sent into it since the last `bellows clear`, or the start of the run"),
        key("dropped", Integer, "packets dropped because it was full, in the same time"),
        key("waiting", Integer, "packets sent and not yet received"),
    ],
};

pub(super) static CONFIRMED: Form = Form {
    title: "Confirmed change",
    includes: &[],
    keys: &[
        key("network", Text, "the network file that stays"),
        key("seconds_left", Integer, "the time that was left, rounded up"),
    ],
};

pub(super) static RELOAD: Form = Form {
    title: "Reload",
    includes: &[],
    keys: &[
        key("kept", List(&Text), "apps that continue unchanged"),
        key("replaced", List(&Text), "apps that replaced one of the same name and type"),
        key("revived", List(&Text), "apps that had panicked and were restarted"),
        key("added", List(&Text), "new apps"),
        key("removed", List(&Text), "removed apps"),
        key("links_added", List(&Text), "new links, as written in the file"),
        key("links_removed", List(&Text), "removed links, as written in the file"),
        key("dropped", Integer, "packets in removed parts"),
        key("swap_ns", Integer, "time from the request until the new network runs"),
        key("pause_ns", Integer, "time without packet movement"),
        key("warnings", List(&Text), "sentences"),
        key(
            "confirm_ns",
            Integer,
            "with `--confirm`: the time after which the former network is put back unless this one is confirmed",
        )
        .or_absent(),
    ],
};
