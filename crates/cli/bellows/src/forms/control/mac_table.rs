//! The requests that a table of MAC addresses answers.

use crate::forms::Kind::{Flag, Integer, List, Object, Text};
use crate::forms::routed::MAC_ADDRESS;
use crate::forms::{Form, Section, key};

/// The requests to a table of MAC addresses, and its answers.
pub(super) const REQUESTS: Section = Section {
    heading: "Requests to a table of MAC addresses",
    commands: &[],
    text: &[
        "A table of MAC addresses (type `mac-table`, or `bridge` for one that has its own) answers these requests, \
         objects with one of these keys:",
    ],
    whole: Some(Object(&REQUEST)),
    parts: &[Object(&PAGE), Object(&SELECTION), Object(&ADDRESSES_ANSWER), Object(&FLUSH_ANSWER)],
    notes: &[],
};

static REQUEST: Form = Form {
    title: "Request to a table of MAC addresses",
    includes: &[],
    keys: &[
        key(
            "addresses",
            Object(&PAGE),
            "lists addresses, page by page, in the order of VLANs and addresses ([answer](#answer-with-mac-addresses))",
        )
        .or_absent(),
        key(
            "flush",
            Object(&SELECTION),
            "forgets addresses; static ones stay ([answer](#answer-to-a-flush-of-mac-addresses))",
        )
        .or_absent(),
    ],
};

static PAGE: Form = Form {
    title: "Page of MAC addresses",
    includes: &[],
    keys: &[
        key("select", Object(&SELECTION), "which addresses; without it, all").or_absent(),
        key("goes_on", Flag, "whether to give the next ones of the same list, as the addresses were when it began")
            .or_absent(),
    ],
};

static SELECTION: Form = Form {
    title: "Selection of MAC addresses",
    includes: &[],
    keys: &[
        key("port", Text, "at the port of this name").or_absent(),
        key("vlan", Integer, "in this VLAN").or_absent(),
        key("mac", Text, "this address").or_absent(),
    ],
};

static ADDRESSES_ANSWER: Form = Form {
    title: "Answer with MAC addresses",
    includes: &[],
    keys: &[
        key("addresses", List(&Object(&MAC_ADDRESS)), "up to 16,384 addresses"),
        key("more", Flag, "whether there are more"),
    ],
};

static FLUSH_ANSWER: Form = Form {
    title: "Answer to a flush of MAC addresses",
    includes: &[],
    keys: &[key("deleted", Integer, "the number of forgotten addresses")],
};
