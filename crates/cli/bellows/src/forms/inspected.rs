//! The forms of what an engine does from moment to moment, of packets, filters and apps.

mod filters;
mod manuals;
#[cfg(test)]
mod tests;

use super::Kind::{Decimal, Flag, Integer, List, Object, Text, Word};
use super::networks::NETWORK;
use super::{Form, Section, key};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows timeline --json`",
        commands: &["timeline"],
        text: &["What the workers have recorded of the reported period. Durations are in nanoseconds."],
        whole: Some(Object(&TIMELINE)),
        parts: &[&MEDIAN, &SPAN, &LATE_BREATH, &SLOW_BREATH, &CAUSE, &COMPARED_CALL, &SUSPECT, &TIMELINE_EVENT],
        notes: &[
            "The calls, drops, departures and arrivals of a breath come before it in `events`. A departure is a vector of \
             packets that a recorded breath hands to another worker, and the arrival with the same `mark` is where that \
             worker takes it in; no other vector of the run has this mark. The times of all workers are by one clock. An \
             arrival is missing if a reload came between, or if its worker's ring of events has overwritten it.",
            "`bellows timeline --export FILE` writes the Trace Event format: breaths, calls and sleeps as complete events, \
             calls with their entry as category, with a thread for each worker; reloads, panics, late breaths and drops as \
             instant events, drops also as a counter; and an arrow (flow events named `crossing`, whose `id` is the mark) \
             from each departure to its arrival, if both are recorded. Times are microseconds since `first_event_unix_ns` in \
             `otherData`.",
        ],
    },
    Section {
        heading: "`bellows show breath --json`",
        commands: &["show breath"],
        text: &["The breaths of a running network."],
        whole: Some(Object(&SHOWN_BREATH)),
        parts: &[&BREATH, &BREATH_CALL, &APP_CODE, &INSTRUCTION],
        notes: &[],
    },
    Section {
        heading: "`bellows show hot --json`",
        commands: &["show hot"],
        text: &["The code locations in which the engine spends its time, from samples."],
        whole: Some(Object(&HOT_SPOTS)),
        parts: &[&HOT_FUNCTION, &SAMPLED_INSTRUCTION],
        notes: &[],
    },
    Section {
        heading: "`bellows trace --json`",
        commands: &["trace"],
        text: &[],
        whole: Some(Object(&TRACE)),
        parts: &[&TRACED_PACKET, &STEP],
        notes: &[],
    },
    Section {
        heading: "`bellows tap --json`",
        commands: &["tap"],
        text: &["One object per line for each packet that passes the link."],
        whole: Some(Object(&TAPPED_PACKET)),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows place --json`",
        commands: &["place"],
        text: &[],
        whole: Some(Object(&PLACE)),
        parts: &[&CROSSING_COST, &PORT_PROCESSORS, &PLACEMENT, &PLACED_WORKER],
        notes: &[],
    },
    Section {
        heading: "`bellows place --check --json`",
        commands: &["place --check"],
        text: &[],
        whole: Some(Object(&PLACE_CHECK)),
        parts: &[],
        notes: &[
            "The expected placement is kept in the file `placement` in the engine's folder, as `{\"pid\": …, \"started\": …, \
             \"plan\": …}`, until the run ends.",
        ],
    },
    manuals::APPS,
    manuals::ENGINE,
    filters::FILTER,
    Section {
        heading: "`bellows clear`",
        commands: &[],
        text: &[
            "`bellows clear` prints nothing to standard output. It writes the current counters to the file `baseline` in the \
             engine's folder, as `{\"at\": nanoseconds since the Unix epoch, \"counters\": …}`. A reader must check that \
             `pid` and the engine's counter `started` are those of the run.",
        ],
        whole: None,
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows schema`",
        commands: &[],
        text: &[
            "The JSON Schema (draft 2020-12) of a network file as read from TOML. `$defs` has `engine` and, for each app \
             type, `app.TYPE`. A string that is a variable, such as `\"${SIZE:-60}\"`, is valid for every key.",
        ],
        whole: None,
        parts: &[],
        notes: &[],
    },
];

pub(super) static TIMELINE: Form = Form {
    title: "Timeline",
    includes: &[&NETWORK],
    keys: &[
        key(
            "start",
            Integer,
            "start of the reported period: nanoseconds since the Unix epoch; null if nothing was recorded",
        )
        .or_null(),
        key("nanos", Integer, "its length; 0 if nothing was recorded"),
        key(
            "median_ns",
            Integer,
            "median duration of the first worker's recorded breaths that moved packets; 0 without any",
        ),
        key("workers", List(&Object(&MEDIAN)), "the workers"),
        key(
            "spans",
            List(&Object(&SPAN)),
            "the period in spans of a second or more, of which the first and the last may be shorter, for one worker after the other",
        ),
        key("slowest", List(&Object(&SLOW_BREATH)), "the slowest breaths, the slowest first"),
        key(
            "suspects",
            List(&Object(&SUSPECT)),
            "the causes of breaths that took more than twice the worker's median, the most frequent first",
        ),
        key(
            "events",
            List(&Object(&TIMELINE_EVENT)),
            "with `--all`: all events, for one worker after the other, in the order in which they were written",
        )
        .or_absent(),
    ],
};

static MEDIAN: Form = Form {
    title: "Median of a worker",
    includes: &[],
    keys: &[
        key("name", Text, "the worker"),
        key("median_ns", Integer, "median duration of its recorded breaths that moved packets; 0 without any"),
    ],
};

static SPAN: Form = Form {
    title: "Span",
    includes: &[],
    keys: &[
        key("worker", Text, "the worker"),
        key("start", Integer, "its start: nanoseconds since the Unix epoch"),
        key("nanos", Integer, "its length"),
        key("recorded", Integer, "the number of recorded breaths"),
        key("breaths", Integer, "the estimated number of all breaths"),
        key("median_ns", Integer, "the median duration of those that moved packets; null without any").or_null(),
        key("longest_ns", Integer, "the longest duration; null without breaths").or_null(),
        key("dropped", Integer, "packets dropped in the recorded breaths"),
        key("sleeps", Integer, "sleeps that ended in the span"),
        key("asleep_ns", Integer, "the time asleep"),
        key("reloads", List(&Integer), "the number of packets that each reload dropped"),
        key("panics", List(&Text), "the apps that panicked"),
        key(
            "late",
            List(&Object(&LATE_BREATH)),
            "the breaths that ended in the span and took longer than `breath_limit`",
        ),
    ],
};

static LATE_BREATH: Form = Form {
    title: "Late breath",
    includes: &[],
    keys: &[
        key("nanos", Integer, "its duration"),
        key("app", Text, "the app in which the engine was most of the time; null if in none, or if unknown").or_null(),
        key(
            "on_processor_micros",
            Integer,
            "the time that the engine's thread was on a processor, in microseconds; null if unknown",
        )
        .or_null(),
        key("standstill", Flag, "whether the process was stopped"),
    ],
};

static SLOW_BREATH: Form = Form {
    title: "Slow breath",
    includes: &[],
    keys: &[
        key("worker", Text, "the worker"),
        key("start", Integer, "its start: nanoseconds since the Unix epoch"),
        key("nanos", Integer, "its duration"),
        key("cause", Object(&CAUSE), "why it was slow; null if it took no more than twice the median").or_null(),
        key("between_ns", Integer, "the time between its calls"),
        key("usual_between_ns", Integer, "the median of this time"),
        key("calls", List(&Object(&COMPARED_CALL)), "its calls, in order"),
    ],
};

static CAUSE: Form = Form {
    title: "Cause",
    includes: &[],
    keys: &[
        key("what", Word(&["app", "between"]), "`app` (a call of an app), or `between` (time between the calls)"),
        key("app", Text, "the app; absent for `between`").or_absent(),
        key("entry", Word(&["pull", "push", "tick"]), "`pull`, `push` or `tick`; absent for `between`").or_absent(),
    ],
};

static COMPARED_CALL: Form = Form {
    title: "Call of a slow breath",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("entry", Word(&["pull", "push", "tick"]), "`pull`, `push` or `tick`"),
        key("nanos", Integer, "its duration"),
        key("packets", Integer, "the packets that it took or sent"),
        key("usual_ns", Integer, "the median duration of the app's recorded calls; null if there are no others")
            .or_null(),
        key("usual_packets", Integer, "the median of their packets; null if there are no others").or_null(),
    ],
};

static SUSPECT: Form = Form {
    title: "Suspect",
    includes: &[&CAUSE],
    keys: &[
        key("worker", Text, "the worker"),
        key("breaths", Integer, "the number of breaths that it made slow"),
        key("usual_share", Decimal, "its share of the time of breaths that are not slow, from 0 to 1"),
    ],
};

static TIMELINE_EVENT: Form = Form {
    title: "Event of a timeline",
    includes: &[],
    keys: &[
        key("worker", Text, "the worker"),
        key("start", Integer, "nanoseconds since the Unix epoch"),
        key("duration", Integer, "its duration"),
        key(
            "what",
            Word(&["breath", "call", "drops", "departure", "arrival", "sleep", "reload", "panic", "late"]),
            "`breath`; `call` of an app; `drops` of packets; `departure` of packets to another worker, and their `arrival`; \
             `sleep`; `reload`, on the first worker; `panic` of an app; or `late`: a breath, or work between two breaths, \
             longer than `breath_limit`, sampled or not",
        ),
        key(
            "every",
            Integer,
            "of a breath: one in `every` breaths is recorded; 0 if this one was only because of an arrival",
        )
        .or_absent(),
        key("slow", Flag, "of a breath: recorded because it was slow").or_absent(),
        key("caused", Flag, "of a breath: recorded because marked packets arrived from another worker").or_absent(),
        key(
            "app",
            Text,
            "of a call, drops or a panic: the app; of a late breath: the app in which the engine was most of the time, null \
             if in none, or if unknown",
        )
        .or_null()
        .or_absent(),
        key("entry", Word(&["pull", "push", "tick"]), "of a call: `pull`, `push` or `tick`").or_absent(),
        key("packets", Integer, "of a call, drops, a departure or an arrival: the number of packets").or_absent(),
        key("link", Text, "of a departure or an arrival: the link, as written in the file").or_absent(),
        key("mark", Integer, "of a departure or an arrival: the number that both have in common").or_absent(),
        key("dropped", Integer, "of a reload: packets in removed parts").or_absent(),
        key(
            "on_processor_micros",
            Integer,
            "of a late breath: the time that the engine's thread was on a processor, in microseconds; null if unknown",
        )
        .or_null()
        .or_absent(),
        key("standstill", Flag, "of a late breath: whether the process was stopped").or_absent(),
    ],
};

pub(super) static SHOWN_BREATH: Form = Form {
    title: "Shown breaths",
    includes: &[&BREATH],
    keys: &[
        key(
            "app_code",
            List(&Object(&APP_CODE)),
            "machine code that apps of all workers have generated, such as filters; absent if there is none",
        )
        .or_absent(),
        key("further", List(&Object(&BREATH)), "the breaths of the other workers; absent if there are none")
            .or_absent(),
    ],
};

static BREATH: Form = Form {
    title: "Breath",
    includes: &[],
    keys: &[
        key("worker", Text, "the worker that takes these breaths: `main` is the first one"),
        key("schedule", Word(&["nested", "flat", "native"]), "the schedule in use: `nested`, `flat` or `native`"),
        key("fallback_reason", Text, "a sentence: why this is not the requested schedule; absent if it is").or_absent(),
        key("calls", List(&Object(&BREATH_CALL)), "the calls of a breath, in order"),
        key("assembling_ns", Integer, "time to assemble the code; 0 without code"),
        key(
            "code",
            List(&Object(&INSTRUCTION)),
            "the machine code, instruction by instruction; empty unless the schedule is `native`",
        ),
    ],
};

static BREATH_CALL: Form = Form {
    title: "Call of a breath",
    includes: &[],
    keys: &[
        key("entry", Word(&["pull", "push"]), "`pull` or `push`"),
        key("app", Text, "the app"),
        key("function", Text, "the function, compiled for the app's type"),
        key(
            "tests",
            List(&Text),
            "the conditions before the call, one of which must hold: the app's slots (`slot 0`, …), or links that must hold \
             packets (as written in the file); empty if the call is made in every breath",
        ),
    ],
};

static APP_CODE: Form = Form {
    title: "Code of an app",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("code", List(&Object(&INSTRUCTION)), "a piece of machine code; an app may have several"),
    ],
};

pub(super) static INSTRUCTION: Form = Form {
    title: "Instruction",
    includes: &[],
    keys: &[
        key("address", Integer, "its address in the process's memory"),
        key("bytes", Text, "its bytes, in hexadecimal"),
        key("text", Text, "the instruction in NASM syntax; calls have the name of the function"),
        key(
            "label",
            Text,
            "at the start of a section of the code, its purpose: of a breath, such as `push sink [source.output -> \
             sink.input]`, with `sampled` before it in the sampled body; of a filter, the part of the expression that it \
             decides, `entry` or `verdict`",
        )
        .or_absent(),
    ],
};

static HOT_SPOTS: Form = Form {
    title: "Hot spots",
    includes: &[],
    keys: &[
        key("name", Text, "the network"),
        key("pid", Integer, "its process"),
        key("schedule", Text, "the schedule in use"),
        key("seconds", Decimal, "duration of the sampling"),
        key("threads", Integer, "number of sampled threads: one for each worker"),
        key("samples", Integer, "samples taken"),
        key("lost", Integer, "samples lost for lack of room"),
        key("running", Decimal, "the share of the time that the threads were on a processor, from 0 to 1, on average"),
        key("user_only", Flag, "whether kernel mode is excluded for lack of permission"),
        key("app", Text, "the requested app (`--app`); null for all").or_null(),
        key("selected", Integer, "number of samples of that app; without `--app`, of all samples"),
        key(
            "functions",
            List(&Object(&HOT_FUNCTION)),
            "the functions of these samples, most samples first; a function appears once for each app that it ran for",
        ),
    ],
};

static HOT_FUNCTION: Form = Form {
    title: "Hot function",
    includes: &[],
    keys: &[
        key(
            "function",
            Text,
            "its name without modules; the name of the file, or `[kernel]`, if the function is unknown",
        ),
        key("symbol", Text, "its full name; null if unknown").or_null(),
        key("module", Text, "its file; `assembled` for the code of the breath, whose functions are its sections"),
        key(
            "apps",
            List(&Text),
            "the app; several apps of one type if it is unknown which of them; none if it ran for the engine itself",
        ),
        key("samples", Integer, "its samples"),
        key("share", Decimal, "their share of `selected`, from 0 to 1"),
        key(
            "instructions",
            List(&Object(&SAMPLED_INSTRUCTION)),
            "the sampled instructions, in the order of their addresses; none if the code cannot be read",
        ),
    ],
};

static SAMPLED_INSTRUCTION: Form = Form {
    title: "Sampled instruction",
    includes: &[],
    keys: &[
        key(
            "address",
            Integer,
            "its address in the module's file, as `objdump` shows it; for `assembled`, in the process's memory",
        ),
        key("bytes", Text, "its bytes, in hexadecimal"),
        key("text", Text, "the instruction in NASM syntax; calls have the name of the function"),
        key("samples", Integer, "its samples"),
        key("share", Decimal, "their share of the function's samples, from 0 to 1"),
    ],
};

pub(super) static TRACE: Form = Form {
    title: "Trace",
    includes: &[],
    keys: &[
        key("name", Text, "the network"),
        key("complete", Flag, "whether all packets were followed to their ends"),
        key("packets", List(&Object(&TRACED_PACKET)), "the packets"),
    ],
};

static TRACED_PACKET: Form = Form {
    title: "Traced packet",
    includes: &[],
    keys: &[
        key("packet", Integer, "its number, from 1"),
        key("at", Integer, "time of its first step: nanoseconds since the Unix epoch"),
        key("steps", List(&Object(&STEP)), "the steps of the packet and its copies, in order"),
        key("inside", List(&Text), "the apps that the packet or a copy was in, or on its way to, when the trace ended"),
    ],
};

static STEP: Form = Form {
    title: "Step",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("what", Word(&["sent", "dropped", "ended"]), "what it did with the packet: `sent`, `dropped` or `ended`"),
        key("after_ns", Integer, "nanoseconds since the first step"),
        key(
            "before",
            Integer,
            "the position in the list of the step that brought the packet to this app; null for the first. Several steps \
             with the same `before` are those of copies",
        )
        .or_null(),
        key("port", Text, "sent: the output").or_absent(),
        key("to", Text, "sent: the linked input (`app.input`); null if a reload has removed it")
            .or_null()
            .or_absent(),
        key("length", Integer, "sent: the packet's length in bytes").or_absent(),
        key("tag", Integer, "sent: its tag").or_absent(),
        key("link_type", Integer, "sent: the link type of its outermost header, as numbered by pcap").or_absent(),
        key("data", Text, "sent: its first 256 bytes, in hexadecimal").or_absent(),
        key("summary", Text, "sent: a description in tcpdump's format").or_absent(),
        key("reason", Text, "dropped: the drop reason").or_absent(),
    ],
};

static TAPPED_PACKET: Form = Form {
    title: "Tapped packet",
    includes: &[],
    keys: &[
        key("time_ns", Integer, "when it passed: nanoseconds since the Unix epoch"),
        key("length", Integer, "its length in bytes"),
        key("captured", Integer, "number of captured bytes (`--snap-length`)"),
        key("link_type", Integer, "the link type of its outermost header, as numbered by pcap"),
        key("summary", Text, "a description in the format of `tcpdump -n`"),
    ],
};

static PLACE: Form = Form {
    title: "Proposal",
    includes: &[&NETWORK],
    keys: &[
        key("seconds", Decimal, "the measured time"),
        key("ticks_per_second", Integer, "clocks in a second"),
        key("packets_per_second", Decimal, "through the busiest link"),
        key("idle_breaths", Decimal, "the share of breaths without packets, from 0 to 1; null without breaths")
            .or_null(),
        key("crossing", Object(&CROSSING_COST), "the cost of a packet that crosses from worker to worker"),
        key("ports", List(&Object(&PORT_PROCESSORS)), "apps at interfaces of the kernel"),
        key("today", Object(&PLACEMENT), "the present placement"),
        key("proposed", Object(&PLACEMENT), "the proposed placement"),
        key("exact", Flag, "whether all placements were tried"),
        key("warnings", List(&Text), "sentences"),
        key("written", List(&Text), "with `--write`, the files that were changed; otherwise empty"),
    ],
};

static CROSSING_COST: Form = Form {
    title: "Cost of a crossing",
    includes: &[],
    keys: &[
        key("send", Decimal, "clocks for each packet, of the sender's worker"),
        key("receive", Decimal, "clocks for each packet, of the receiver's worker"),
        key("measured", Flag, "whether they were measured in this network"),
    ],
};

static PORT_PROCESSORS: Form = Form {
    title: "Processors of a port",
    includes: &[],
    keys: &[
        key("app", Text, "the app"),
        key("interface", Text, "its interface"),
        key("processors", List(&Integer), "those on which the kernel receives its packets; null if unknown").or_null(),
        key("source", Text, "a sentence: how they are known, or why not"),
    ],
};

static PLACEMENT: Form = Form {
    title: "Placement",
    includes: &[],
    keys: &[
        key("workers", List(&Object(&PLACED_WORKER)), "the workers with apps"),
        key("crossings_per_packet", Decimal, "packets that cross for each packet of the busiest link"),
        key("crossing_links", List(&Text), "the links that cross"),
        key("packets_per_second", Decimal, "the rate of the busiest link at which the busiest worker has no time left"),
    ],
};

static PLACED_WORKER: Form = Form {
    title: "Placed worker",
    includes: &[],
    keys: &[
        key("name", Text, "its name"),
        key("cpu", Integer, "its processor; null if the kernel chooses").or_null(),
        key("apps", List(&Text), "its apps"),
        key(
            "clocks_per_packet",
            Decimal,
            "its clocks for each packet of the busiest link: measured in `today` and `measured`, expected in `proposed` and \
             `expected`",
        ),
    ],
};

static PLACE_CHECK: Form = Form {
    title: "Comparison of placements",
    includes: &[&NETWORK],
    keys: &[
        key("seconds", Decimal, "the measured time"),
        key("packets_per_second", Decimal, "through the busiest link"),
        key("expected", Object(&PLACEMENT), "the placement as it was written"),
        key("measured", Object(&PLACEMENT), "the placement as it was measured"),
    ],
};
