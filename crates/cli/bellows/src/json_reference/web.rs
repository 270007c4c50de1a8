//! What the servers of the live page and of metrics answer.

use bellows_metrics::MachineHealth;
use bellows_web::answers::{
    AppDetail, Changed, Drawn, Durations, LinkDetail, Listed, Live, Networks, Refused, Statuses, Traced,
};

use super::{Section, schema_of};

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
        whole: Some(schema_of::<Refused<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /api/networks`",
        commands: &[],
        text: &[],
        whole: Some(schema_of::<Networks<'static>>()),
        parts: &[schema_of::<Listed<'static>>()],
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
        whole: Some(schema_of::<Live<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /api/app`",
        commands: &[],
        text: &["`GET /api/app?network=NAME&app=APP`: an app."],
        whole: Some(schema_of::<AppDetail<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /api/link`",
        commands: &[],
        text: &["`GET /api/link?network=NAME&link=LINK`: a link, named as in a network file."],
        whole: Some(schema_of::<LinkDetail<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /api/picture`",
        commands: &[],
        text: &[
            "`GET /api/picture?network=NAME`: the picture of a network, without style. Groups of apps have the attribute \
             `data-app`, an index of `apps`; groups of links and their labels have `data-link`, an index of `links`. With \
             `view=wide` or `view=tall` it is an overview with the names of apps alone, from left to right or below each \
             other; `view=full` is the default.",
        ],
        whole: Some(schema_of::<Drawn>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`GET /api/durations`",
        commands: &[],
        text: &["`GET /api/durations?network=NAME&app=APP`: how long the calls of an app take."],
        whole: Some(schema_of::<Durations<'static>>()),
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
        whole: Some(schema_of::<Statuses>()),
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
        whole: Some(schema_of::<Traced<'static>>()),
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
        whole: Some(schema_of::<Changed>()),
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
        whole: Some(schema_of::<MachineHealth>()),
        parts: &[],
        notes: &[],
    },
];
