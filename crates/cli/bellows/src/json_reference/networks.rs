//! Networks and their counters.

use bellows_config::Position;
use bellows_inspect::control::{Confirmation, ReloadReport};
use bellows_inspect::events::NewsLine;
use bellows_inspect::health::{Checkup, NetworkHealth};
use bellows_inspect::reports::{Latency, Period, Shown, Subject};
use bellows_observe::Snapshot;

use super::Kind::Either;
use super::{Section, schema_of};
use crate::commands::check::Checked;
use crate::commands::events::Declaration;
use crate::commands::ps;
use crate::commands::show::counters::ShownCounters;
use crate::commands::show::interfaces::ShownInterfaces;
use crate::commands::show::run::ShownCosts;
use crate::commands::show::{ShownApps, ShownConfig, ShownErrors, ShownLinks};
use crate::commands::top::rows::Update;
use crate::report::RunReport;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    COUNTED,
    Section {
        heading: "`bellows run --json`",
        commands: &["run"],
        text: &["If the run cannot start, nothing is printed to standard output, and the exit code is 2."],
        whole: Some(schema_of::<RunReport>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows check --json`",
        commands: &["check"],
        text: &["An object; with several networks, a list of them."],
        whole: Some(Either(&[schema_of::<Checked>(), schema_of::<Vec<Checked>>()])),
        parts: &[schema_of::<Position>()],
        notes: &[],
    },
    Section {
        heading: "`bellows ps --json`",
        commands: &["ps"],
        text: &["A list of objects."],
        whole: Some(schema_of::<Vec<ps::NetworkRow>>()),
        parts: &[schema_of::<Subject>(), schema_of::<Checkup>()],
        notes: &[],
    },
    Section {
        heading: "`bellows ps --probe --json`",
        commands: &["ps --probe"],
        text: &["A list of objects."],
        whole: Some(schema_of::<Vec<NetworkHealth>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows events --json`",
        commands: &["events"],
        text: &["One object per line."],
        whole: Some(schema_of::<NewsLine<'static>>()),
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
        whole: Some(schema_of::<Declaration>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show --json`",
        commands: &["show"],
        text: &[
            "`status` and `stats` are aliases of `show`. With a part, `show` prints only that part, as the next sections \
             say.",
        ],
        whole: Some(schema_of::<Shown<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show apps --json`",
        commands: &["show apps"],
        text: &[],
        whole: Some(schema_of::<ShownApps<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show links --json`",
        commands: &["show links"],
        text: &[],
        whole: Some(schema_of::<ShownLinks<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show errors --json`",
        commands: &["show errors"],
        text: &[],
        whole: Some(schema_of::<ShownErrors<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show config --json`",
        commands: &["show config"],
        text: &[],
        whole: Some(schema_of::<ShownConfig<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show counters --json`",
        commands: &["show counters"],
        text: &[],
        whole: Some(schema_of::<ShownCounters>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show interfaces --json`",
        commands: &["show interfaces"],
        text: &[
            "An interface is an app that connects the network to the outside: it is linked on one side only (a reader, a \
             source, a writer, a sink), or its type says so (`Configure::INTERFACE`: `af-xdp`, `dpdk`, `raw-socket`, `tap`, \
             `unix-socket`, `vhost-user`, `virtio-user`), or its status (`App::status`) has `\"interface\": true`.",
        ],
        whole: Some(schema_of::<ShownInterfaces>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show run --json`",
        commands: &["show run"],
        text: &["The cost of each app since `since_ns`, the start of the run or the last `bellows clear`."],
        whole: Some(schema_of::<ShownCosts<'static>>()),
        parts: &[schema_of::<Period>()],
        notes: &[],
    },
    Section {
        heading: "`bellows show latency --json`",
        commands: &["show latency"],
        text: &[],
        whole: Some(schema_of::<Latency<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows top --json`",
        commands: &["top"],
        text: &[
            "One object per line and interval, until the network ends or the reader goes away; with `--once`, one. Rates \
             and what belongs to them are null in the last line of a network that has ended.",
        ],
        whole: Some(schema_of::<Update<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows reload --json`",
        commands: &["reload"],
        text: &[],
        whole: Some(schema_of::<ReloadReport>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows confirm --json`",
        commands: &["confirm"],
        text: &[],
        whole: Some(schema_of::<Confirmation>()),
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
    whole: Some(schema_of::<Snapshot>()),
    parts: &[],
    notes: &[
        "Every app has these reasons for drops: `no_buffer` (the pool had no buffer for a packet or a copy), `unlinked` (an \
         output is not linked), `app_failed` (the app has panicked: packets that it held or processed, and all later \
         input), `removed` (packets inside the app when a reload removed or replaced it), and `txdrop` (one of its output \
         links was full: the sum over these links).",
        "`breaths`, `idle_breaths`, the apps' `calls`, `made`, `ended`, `held`, `leaked` and `uncounted`, the three buffer \
         counts, `alive` and the links' `waiting` and `waiting_bytes` are written ten times a second while the engine is busy and before it sleeps; all \
         others are exact at any time.",
        "If `alive` of an engine is old and `asleep` is false, it hangs in the app that `doing` names. A sleep counts when it \
         ends. Sampled breaths are chosen at random, one in 256. `slow_breaths` counts work between two breaths, too, such as \
         starting an app in a reload; `breath_limit` is 100 ms unless set.",
        "The books of each app: `in_packets + made` is `out_packets` plus all `drops`, `ended` and `held`. Packets sent and \
         not received wait in a link, or were in a link that a reload removed. In the report of a run this holds to the \
         packet. The engine checks it ten times a second against the pool's own counts of buffers that each call allocated \
         and freed. `leaked` and `uncounted` are the difference.",
    ],
};
