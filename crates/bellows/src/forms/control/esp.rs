//! The requests that `esp` answers.

use crate::forms::Kind::{Any, Integer, Map, Object, Text};
use crate::forms::{Form, Section, key};

/// The requests to `esp`, and its answers.
pub(super) const REQUESTS: Section = Section {
    heading: "Requests to `esp`",
    commands: &[],
    text: &["An app `esp` answers requests for new keys, which are objects with this key:"],
    whole: Some(Object(&REQUEST)),
    parts: &[&REKEY, &ANSWER],
    notes: &[],
};

static REQUEST: Form = Form {
    title: "Request to `esp`",
    includes: &[],
    keys: &[key("rekey", Object(&REKEY), "gives a pair new keys ([answer](#answer-of-esp))")],
};

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

static ANSWER: Form = Form {
    title: "Answer of `esp`",
    includes: &[],
    keys: &[
        key("pair", Text, "the name of the pair"),
        key("inbound", Integer, "the new SPI for receiving; null if it stays").or_null(),
        key("outbound", Integer, "the new SPI for sending; null if it stays").or_null(),
    ],
};
