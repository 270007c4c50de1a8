//! The forms of manuals.

use crate::forms::Kind::{Any, Either, Flag, Integer, List, Object, Text, Word};
use crate::forms::{Form, Section, key};

/// The manuals of apps and shared objects.
pub(super) const APPS: Section = Section {
    heading: "`bellows apps --json`",
    commands: &["apps"],
    text: &[
        "A list of the manuals of all apps and compound apps; with a name one manual, which may be that of a type of \
         shared objects.",
    ],
    whole: Some(Either(&[List(&Object(&MANUAL)), Object(&MANUAL)])),
    parts: &[&MANUAL_PORT, &MANUAL_PORTS, &MANUAL_KEY, &MANUAL_DROP, &MANUAL_COUNTER],
    notes: &[],
};

/// The manual of `[engine]`.
pub(super) const ENGINE: Section = Section {
    heading: "`bellows apps engine --json`",
    commands: &["apps engine"],
    text: &[],
    whole: Some(Object(&ENGINE_MANUAL)),
    parts: &[],
    notes: &[],
};

static MANUAL: Form = Form {
    title: "Manual",
    includes: &[],
    keys: &[
        key("name", Text, "the type"),
        key("compound", Flag, "true for a compound app; absent for others").or_absent(),
        key("summary", Text, "the first sentence of the description"),
        key("description", Text, "what it does; paragraphs have empty lines between them"),
        key(
            "inputs",
            Either(&[List(&Object(&MANUAL_PORT)), Object(&MANUAL_PORTS)]),
            "the inputs; absent for a shared object",
        )
        .or_absent(),
        key(
            "outputs",
            Either(&[List(&Object(&MANUAL_PORT)), Object(&MANUAL_PORTS)]),
            "the outputs; absent for a shared object",
        )
        .or_absent(),
        key("keys", List(&Object(&MANUAL_KEY)), "the keys of its table"),
        key(
            "drops",
            List(&Object(&MANUAL_DROP)),
            "the drop reasons; absent for a compound app, whose parts have them, and for a shared object",
        )
        .or_absent(),
        key("counters", List(&Object(&MANUAL_COUNTER)), "the other counters; absent like `drops`").or_absent(),
        key(
            "schema",
            Any,
            "the JSON Schema (2020-12) of its table without the key `app`; the unit of a key is in `x-unit`",
        ),
    ],
};

static MANUAL_PORT: Form = Form {
    title: "Port of an app",
    includes: &[],
    keys: &[
        key("name", Text, "its name"),
        key("required", Flag, "whether it must be linked"),
        key("help", Text, "what packets it takes or sends"),
    ],
};

static MANUAL_PORTS: Form = Form {
    title: "Ports of any name",
    includes: &[],
    keys: &[
        key("any", Flag, "true"),
        key("at_least", Integer, "how many must be linked"),
        key("help", Text, "what packets they take or send"),
    ],
};

static MANUAL_KEY: Form = Form {
    title: "Key of a table",
    includes: &[],
    keys: &[
        key(
            "name",
            Text,
            "its name; `table.key` in an inner table, `list[].key` in a list of tables, `table.NAME.key` in a table \
             whose keys are names",
        ),
        key("description", Text, "its meaning; paragraphs have empty lines between them"),
        key("type", Text, "the type in words, such as `integer 1 to 1,024`"),
        key("unit", Text, "the unit of a number; null without one, or if the type names it").or_null(),
        key("default", Any, "the default; null without one, or if it cannot be shown").or_null(),
        key("required", Flag, "whether it must be given"),
    ],
};

static MANUAL_DROP: Form = Form {
    title: "Drop reason",
    includes: &[],
    keys: &[
        key("name", Text, "its name"),
        key("help", Text, "its meaning"),
        key(
            "asked",
            Flag,
            "whether such drops are the purpose of the app; all others are losses, which reports warn about",
        ),
    ],
};

static MANUAL_COUNTER: Form = Form {
    title: "Counter of an app",
    includes: &[],
    keys: &[key("name", Text, "its name"), key("help", Text, "its meaning")],
};

static ENGINE_MANUAL: Form = Form {
    title: "Manual of the engine",
    includes: &[],
    keys: &[
        key("name", Word(&["engine"]), "`engine`"),
        key("description", Text, "what the table `[engine]` is for"),
        key("keys", List(&Object(&MANUAL_KEY)), "the keys of the table `[engine]`"),
        key("schema", Any, "its JSON Schema"),
        key("worker_keys", List(&Object(&MANUAL_KEY)), "the keys of the tables `[workers.NAME]`"),
        key("worker_schema", Any, "their JSON Schema"),
        key("common_keys", List(&Object(&MANUAL_KEY)), "the keys that every app's table may have"),
        key("common_schema", Any, "the JSON Schema of these"),
    ],
};
