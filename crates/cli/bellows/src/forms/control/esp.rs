//! The requests that `esp` answers.

use crate::forms::Kind::{Any, Map, Object, Text};
use crate::forms::{Form, Section, key};

/// The requests to `esp`, and its answers.
pub(super) const REQUESTS: Section = Section {
    heading: "Requests to `esp`",
    commands: &[],
    text: &["An app `esp` answers requests for new keys, which are objects with one of these keys:"],
    whole: Some(Object(&REQUEST)),
    parts: &[Object(&REKEY), Object(&FORGET)],
    notes: &["The answers are what [`bellows esp rekey --json`](#bellows-esp-rekey---json) and \
         [`bellows esp forget --json`](#bellows-esp-forget---json) print."],
};

static REQUEST: Form = Form {
    title: "Request to `esp`",
    includes: &[],
    keys: &[
        key("rekey", Object(&REKEY), "gives a pair new keys").or_absent(),
        key("forget", Object(&FORGET), "removes what is saved of the keys of a pair; it needs `save`").or_absent(),
    ],
};

static FORGET: Form =
    Form { title: "Saved keys of a pair", includes: &[], keys: &[key("pair", Text, "the name of the pair")] };

static REKEY: Form = Form {
    title: "New keys",
    includes: &[],
    keys: &[
        key("pair", Text, "the name of the pair"),
        key(
            "inbound",
            Map(&Any),
            "the keys for receiving, as in a network file, but not `key_file`; absent if they stay. One of the directions \
             must be there",
        )
        .or_absent(),
        key("outbound", Map(&Any), "the same for sending").or_absent(),

    ],
};
