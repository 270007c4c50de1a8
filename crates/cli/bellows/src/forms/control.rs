//! The forms of requests to the control socket, of replies, and of the lines in its streams.

mod esp;
mod mac_table;
mod vrf;

use super::Kind::{Any, Decimal, Either, Flag, Integer, List, Object, Text, Word};
use super::inspected::BREATH;
use super::networks::{CONFIRMED, RELOAD, TRIAL};
use super::routed::SAVED;
use super::states::{APP_STATUS, OBJECT_STATUS};
use super::{Form, Section, key};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "The control socket",
        commands: &[],
        text: &[
            "A running engine has a folder of its own name in one of the [runtime directories](#where-networks-are-found). \
             If a new run takes the name of a crashed run, the old folder is renamed to `NAME@1`. The folder has a file \
             `restarted` if the run began within ten minutes of the one before it. It contains the Unix socket `control`, \
             mode 0700.",
            "Each line sent to the socket is a request, and is answered by one line, a reply; both are JSON objects. A \
             request has at most 1 MiB and must arrive within 5 seconds, else the connection is closed; after a request to \
             an app or shared object, the next one within 10 minutes. At most 32 clients are served at a time; more are \
             turned away.",
            "For example, `{\"command\": \"trace\", \"count\": 20, \"seconds\": 5}` is answered by `{\"reply\": \"tracing\"}`.",
            "Behind the replies `tracing`, `tapping` and `trying` a stream follows. The server closes the connection after \
             the stream. A client ends a stream by closing its sending side, or by sending anything. It may read slowly, but \
             if it reads nothing for a minute, the stream ends.",
        ],
        whole: None,
        parts: &[
            Object(&PLAIN_REQUEST),
            Object(&RELOAD_REQUEST),
            Object(&TRACE_REQUEST),
            Object(&TAP_REQUEST),
            Object(&TRIAL_REQUEST),
            Object(&OBJECT_REQUEST),
            Object(&PLAIN_REPLY),
            Object(&STATUS_REPLY),
            Object(&BREATH_REPLY),
            Object(&APPS_REPLY),
            Object(&RELOAD_REPLY),
            Object(&CONFIRMATION_REPLY),
            Object(&SAVED_REPLY),
            Object(&OBJECT_REPLY),
            Object(&REFUSAL),
        ],
        notes: &[],
    },
    Section {
        heading: "The stream of a trace",
        commands: &[],
        text: &["Each line is a JSON object: a step of a packet, or in the last line the end."],
        whole: Some(Either(&[Object(&HOP), Object(&TRACE_END)])),
        parts: &[Object(&HOP), Object(&TRACE_END)],
        notes: &[],
    },
    Section {
        heading: "The stream of a trial of look-ahead",
        commands: &[],
        text: &["Each line is a JSON object: the progress, or in the last line the end."],
        whole: Some(Either(&[Object(&PROGRESS), Object(&TRIAL_END)])),
        parts: &[Object(&PROGRESS), Object(&TRIAL_END)],
        notes: &[],
    },
    Section {
        heading: "The stream of a tap",
        commands: &[],
        text: &[
            "The stream has binary frames. The first byte of a frame gives its type; numbers are little-endian.",
            "After a byte 1 comes a packet: 8 bytes of time (nanoseconds since the Unix epoch), 4 of its length, 4 of its \
             link type (as numbered by pcap), 4 with the number of bytes that follow, and these bytes.",
            "After a byte 2 come 8 bytes: the number of packets missed so far, because 32 MiB waited to be sent.",
            "A byte 3 is the end. After it comes a byte: 0 if the client has ended the stream, 1 if the link was removed, 2 \
             if the run is over. If there is no such frame, the process has died.",
        ],
        whole: None,
        parts: &[],
        notes: &[],
    },
    vrf::REQUESTS,
    mac_table::REQUESTS,
    esp::REQUESTS,
];

static PLAIN_REQUEST: Form = Form {
    title: "Plain request",
    includes: &[],
    keys: &[key(
        "command",
        Word(&["status", "stop", "breath", "apps", "saved", "confirm", "undo"]),
        "`status`: which run it is ([reply](#reply-with-the-run)); `stop`: end the run as a signal would \
         ([reply](#plain-reply)); `saved`: what commands have saved ([reply](#reply-with-what-is-saved)); `confirm`: keep the change that awaits its confirmation \
         ([reply](#reply-to-a-confirmation)); `undo`: put the network before it back ([reply](#reply-to-a-reload)); \
         `breath`: its breaths ([reply](#reply-with-breaths)); `apps`: the states of its apps and \
         shared objects ([reply](#reply-with-states))",
    )],
};

static RELOAD_REQUEST: Form = Form {
    title: "Request to reload",
    includes: &[],
    keys: &[
        key("command", Word(&["reload"]), "`reload` ([reply](#reply-to-a-reload))"),
        key("network", Text, "an absolute path: another network file in place of that of the run").or_absent(),
        key("restart", List(&Text), "apps to restart even if they have not changed").or_absent(),
        key(
            "confirm_ns",
            Integer,
            "the time after which the former network is put back unless a request `confirm` comes: 1 s to 24 h",
        )
        .or_absent(),
    ],
};

static TRACE_REQUEST: Form = Form {
    title: "Request for a trace",
    includes: &[],
    keys: &[
        key("command", Word(&["trace"]), "`trace` ([reply](#plain-reply) and [stream](#the-stream-of-a-trace))"),
        key("count", Integer, "how many packets to follow, from 1 to 10,000"),
        key("app", Text, "follow the packets that this app sends; without it, those that any app brings in")
            .or_absent(),
        key("filter", Text, "follow only packets that match this [expression](filtering.md)").or_absent(),
        key("seconds", Decimal, "after this time the trace ends"),
    ],
};

static TAP_REQUEST: Form = Form {
    title: "Request for a tap",
    includes: &[],
    keys: &[
        key("command", Word(&["tap"]), "`tap` ([reply](#plain-reply) and [stream](#the-stream-of-a-tap))"),
        key("link", Text, "the link, as written in the file: `a.output -> b.input`"),
        key("snap", Integer, "copy at most this number of bytes of each packet"),
    ],
};

static TRIAL_REQUEST: Form = Form {
    title: "Request for a trial of look-ahead",
    includes: &[],
    keys: &[
        key(
            "command",
            Word(&["look-ahead"]),
            "`look-ahead` ([reply](#plain-reply) and [stream](#the-stream-of-a-trial-of-look-ahead))",
        ),
        key("seconds", Decimal, "after this time the trial ends; at most 600"),
    ],
};

static OBJECT_REQUEST: Form = Form {
    title: "Request to an app or shared object",
    includes: &[],
    keys: &[
        key("command", Word(&["object"]), "`object` ([reply](#answer))"),
        key("name", Text, "the name of the app or shared object; may be absent if there is only one of the type")
            .or_absent(),
        key("kind", Text, "its type; may be absent if there is a name").or_absent(),
        key(
            "request",
            Any,
            "the request, which depends on the type: a [routing domain](#requests-to-a-routing-domain), a [table of MAC \
             addresses](#requests-to-a-table-of-mac-addresses), [`esp`](#requests-to-esp), or a type [of your \
             own](writing-an-app.md#requests)",
        ),
        key(
            "save",
            Flag,
            "whether changes of routes and neighbours, and new keys, are there again when a network of the name starts",
        )
        .or_absent(),
    ],
};

static PLAIN_REPLY: Form = Form {
    title: "Plain reply",
    includes: &[],
    keys: &[key(
        "reply",
        Word(&["stopping", "tracing", "tapping", "trying"]),
        "`stopping` (to `stop`: the run is about to end), `tracing` (to `trace`), `tapping` (to `tap`) or `trying` (to \
         `look-ahead`)",
    )],
};

static STATUS_REPLY: Form = Form {
    title: "Reply with the run",
    includes: &[],
    keys: &[
        key("reply", Word(&["status"]), "`status`"),
        key("name", Text, "the name of the run"),
        key("pid", Integer, "its process"),
        key("network", Text, "the network file as named on the command line"),
        key("uptime_seconds", Decimal, "the time since it began"),
    ],
};

static BREATH_REPLY: Form =
    Form { title: "Reply with breaths", includes: &[BREATH], keys: &[key("reply", Word(&["breath"]), "`breath`")] };

static APPS_REPLY: Form = Form {
    title: "Reply with states",
    includes: &[],
    keys: &[
        key("reply", Word(&["apps"]), "`apps`"),
        key("apps", List(&APP_STATUS), "the apps that have a status, in the order of the network file"),
        key("objects", List(&OBJECT_STATUS), "the shared objects"),
    ],
};

static RELOAD_REPLY: Form =
    Form { title: "Reply to a reload", includes: &[RELOAD], keys: &[key("reply", Word(&["reloaded"]), "`reloaded`")] };

static CONFIRMATION_REPLY: Form = Form {
    title: "Reply to a confirmation",
    includes: &[CONFIRMED],
    keys: &[key("reply", Word(&["confirmed"]), "`confirmed`")],
};

static SAVED_REPLY: Form = Form {
    title: "Reply with what is saved",
    includes: &[Object(&SAVED)],
    keys: &[key("reply", Word(&["saved"]), "`saved`")],
};

static OBJECT_REPLY: Form = Form {
    title: "Answer",
    includes: &[],
    keys: &[
        key("reply", Word(&["answer"]), "`answer`"),
        key("name", Text, "the name of the app or shared object"),
        key("answer", Any, "its answer, which depends on the request"),
    ],
};

static REFUSAL: Form = Form {
    title: "Refusal",
    includes: &[],
    keys: &[
        key("reply", Word(&["refused"]), "`refused`: any request may be"),
        key("mistake", Flag, "whether the caller can fix it"),
        key("message", Text, "what is wrong; perhaps several lines"),
    ],
};

static HOP: Form = Form {
    title: "Hop",
    includes: &[],
    keys: &[
        key("event", Word(&["hop"]), "`hop`"),
        key("packet", Integer, "the packet's number, from 1; copies have the number of their original"),
        key("at", Integer, "when it was: nanoseconds since the Unix epoch"),
        key("app", Text, "the app"),
        key("what", Word(&["sent", "dropped", "ended"]), "what it did with the packet: `sent`, `dropped` or `ended`"),
        key("port", Text, "sent: the output").or_absent(),
        key("to", Text, "sent: the linked input (`app.input`), if the link is there").or_absent(),
        key("length", Integer, "sent: the packet's length in bytes").or_absent(),
        key("bytes", List(&Integer), "sent: its first 256 bytes").or_absent(),
        key("tag", Integer, "sent: its tag").or_absent(),
        key("link_type", Integer, "sent: the link type of its outermost header, as numbered by pcap").or_absent(),
        key("reason", Text, "dropped: the drop reason").or_absent(),
    ],
};

static TRACE_END: Form = Form {
    title: "End of a trace",
    includes: &[],
    keys: &[
        key("event", Word(&["end"]), "`end`"),
        key(
            "why",
            Word(&["complete", "time", "requested", "steps", "gone", "over"]),
            "`complete` (all packets were followed to their ends), `time` (the time is over), `requested` (the client has ended \
             the stream), `steps` (there were 100,000), `gone` (a reload has removed the app) or `over` (the run has ended)",
        ),
    ],
};

static PROGRESS: Form = Form {
    title: "Progress of a trial",
    includes: &[],
    keys: &[key("event", Word(&["progress"]), "`progress`"), key("calls", Integer, "the number of calls so far")],
};

static TRIAL_END: Form = Form {
    title: "End of a trial",
    includes: &[],
    keys: &[
        key("event", Word(&["end"]), "`end`"),
        key(
            "why",
            Word(&["time", "requested", "over"]),
            "`time` (the time is over), `requested` (the client has ended the stream), or `over` if the network was reloaded \
             or has ended",
        ),
        key("results", List(&TRIAL), "each app that had calls with at least 8 packets in the trial"),
    ],
};
