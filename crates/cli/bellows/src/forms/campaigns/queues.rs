//! The forms of queues.

use super::super::Kind::{Decimal, Flag, Integer, List, Object, Text, Word};
use super::super::{Form, Section, key};
use super::CAMPAIGN_STATUS;

pub(super) const STATUS_OF_QUEUE: Section = Section {
    heading: "`bellows campaign status --queue URL --json`",
    commands: &["campaign status --queue"],
    text: &[],
    whole: Some(Object(&QUEUED)),
    parts: &[&QUEUE, &COORDINATOR, &QUEUE_WORKER],
    notes: &[],
};

static QUEUED: Form = Form {
    title: "Campaign in a queue",
    includes: &[],
    keys: &[
        key(
            "status",
            Object(&CAMPAIGN_STATUS),
            "what `status` prints without `--queue`; null if this machine has no results of the campaign",
        )
        .or_null(),
        key("queue", Object(&QUEUE), "the queue"),
    ],
};

static QUEUE: Form = Form {
    title: "Queue",
    includes: &[],
    keys: &[
        key("queue", Text, "its name"),
        key("server", Text, "the address of the server"),
        key("name", Text, "the name of the campaign"),
        key("hash", Text, "the hash of the campaign"),
        key("sha256", Text, "the SHA-256 of the campaign file"),
        key("blocks_waiting", Integer, "blocks that no worker was given yet, or that were given back"),
        key("blocks_given", Integer, "blocks that workers have"),
        key(
            "results",
            Integer,
            "runs delivered so far, with those of abandoned blocks and those that were delivered twice",
        ),
        key(
            "lease_seconds",
            Decimal,
            "the time without a sign of life after which a worker's block is given to another one",
        ),
        key("coordinator", Object(&COORDINATOR), "the last coordinator; null if none has reported yet").or_null(),
        key("workers", List(&Object(&QUEUE_WORKER)), "the workers, the one that was heard of last first"),
    ],
};

static COORDINATOR: Form = Form {
    title: "Coordinator",
    includes: &[],
    keys: &[
        key("host", Text, "the name of its machine"),
        key("process", Integer, "its process"),
        key("folder", Text, "its folder of results"),
        key("has_ended", Flag, "whether it has ended"),
        key("last_seen_seconds", Decimal, "the time since it was last heard of"),
    ],
};

static QUEUE_WORKER: Form = Form {
    title: "Worker of a queue",
    includes: &[],
    keys: &[
        key("worker", Text, "its name"),
        key("host", Text, "the name of its machine"),
        key("process", Integer, "its process"),
        key(
            "state",
            Word(&["waiting", "running", "ended"]),
            "`waiting` (for a block), `running` (it makes a block) or `ended`",
        ),
        key(
            "is_lost",
            Flag,
            "whether it was not heard of for longer than the lease: it is dead, stopped, or cannot reach the server",
        ),
        key("block", Integer, "the block that it makes; null if it makes none").or_null(),
        key("attempt", Integer, "how often that block was given out"),
        key("run", Text, "the id of the run that it makes; null if it makes none").or_null(),
        key("run_seconds", Decimal, "how long that run has taken so far; 0 without a run"),
        key("runs", Integer, "runs of the blocks that it has delivered as a whole"),
        key("blocks", Integer, "blocks that it has delivered as a whole"),
        key("clock_seconds", Decimal, "its clock less that of the server"),
        key("last_seen_seconds", Decimal, "the time since it was last heard of"),
    ],
};
