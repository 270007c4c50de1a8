//! The forms of requests to the control socket, of replies, and of the lines in its streams.

use bellows_inspect::control::{Reply, Request, TraceLine, TrialLine};
use bellows_router::vrf;
use bellows_router::vrf::answers::{
    FibAnswer, FlushAnswer, LookUpAnswer, NeighbourFlushAnswer, NeighboursAnswer, RoutesAnswer, StageAnswer, SwapAnswer,
};
use bellows_switch::mac_table;
use bellows_switch::mac_table::requests::{AddressFlushAnswer, AddressesAnswer};

use super::{Section, request_of, schema_of};

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
        parts: &[request_of::<Request>(), schema_of::<Reply>()],
        notes: &[],
    },
    Section {
        heading: "The stream of a trace",
        commands: &[],
        text: &["Each line is a JSON object: a step of a packet, or in the last line the end."],
        whole: Some(schema_of::<TraceLine>()),
        parts: &[schema_of::<TraceLine>()],
        notes: &[],
    },
    Section {
        heading: "The stream of a trial of look-ahead",
        commands: &[],
        text: &["Each line is a JSON object: the progress, or in the last line the end."],
        whole: Some(schema_of::<TrialLine>()),
        parts: &[schema_of::<TrialLine>()],
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
    Section {
        heading: "Requests to a routing domain",
        commands: &[],
        text: &[
            "A routing domain (type `vrf`) answers these requests. Each takes effect as a whole or not at all. A list of \
             lines has at most 4,096; what is staged ends with the connection.",
            "A whole request is, for example, `{\"command\": \"object\", \"kind\": \"vrf\", \"request\": {\"fib\": {}}}`. \
             Its `request` is an object with one of these keys:",
        ],
        whole: Some(request_of::<vrf::requests::Request>()),
        parts: &[
            schema_of::<RoutesAnswer>(),
            schema_of::<FlushAnswer>(),
            schema_of::<LookUpAnswer>(),
            schema_of::<StageAnswer>(),
            schema_of::<SwapAnswer>(),
            schema_of::<FibAnswer>(),
            schema_of::<NeighboursAnswer>(),
            schema_of::<NeighbourFlushAnswer>(),
        ],
        notes: &[],
    },
    Section {
        heading: "Requests to a table of MAC addresses",
        commands: &[],
        text: &[
            "A table of MAC addresses (type `mac-table`, or `bridge` for one that has its own) answers these requests, \
             objects with one of these keys:",
        ],
        whole: Some(request_of::<mac_table::requests::Request>()),
        parts: &[schema_of::<AddressesAnswer>(), schema_of::<AddressFlushAnswer>()],
        notes: &[],
    },
    Section {
        heading: "Requests to `esp`",
        commands: &[],
        text: &["An app `esp` answers requests for new keys, which are objects with one of these keys:"],
        whole: Some(request_of::<bellows_vpn::esp::Request>()),
        parts: &[],
        notes: &["The answers are what [`bellows esp rekey --json`](#bellows-esp-rekey---json) and \
             [`bellows esp forget --json`](#bellows-esp-forget---json) print."],
    },
];
