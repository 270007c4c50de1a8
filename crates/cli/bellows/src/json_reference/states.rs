//! The states of apps and shared objects.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bellows_config::OutputSchema;
use bellows_observe::{AppStatus, ObjectStatus};

use super::{Kind, Section, printed, schema_of};
use crate::commands::show::status::{ShownApp, ShownStatuses};
use crate::commands::show::vhost::ShownDevices;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows show vhost --json`",
        commands: &["show vhost"],
        text: &[],
        whole: Some(schema_of::<ShownDevices>()),
        parts: &[],
        notes: &[
            "A `virtio-user` is a driver and no device. It has no `offered`, `protocol_features`, `memory`, `logging` and \
             `notifications`; its rings are listed while it is connected, and have no `error`, `instance` and `chains`.",
            "Several apps may have queues of one device. What they report of it is the same, but for `engine_faults` and \
             `rings`.",
        ],
    },
    Section {
        heading: "`bellows show status --json`",
        commands: &["show status"],
        text: &[
            "The form of a status depends on the type of the app or shared object, as the headings below say. Types that are \
             not below have no status; those of [apps of your own](writing-an-app.md) may have one of any form. The status \
             of `vhost-user` and `virtio-user` is [above](#status-of-vhost-user-and-virtio-user).",
        ],
        whole: Some(schema_of::<ShownStatuses>()),
        parts: &[schema_of::<ShownApp>(), schema_of::<AppStatus>(), schema_of::<ObjectStatus>(), Kind::Status],
        notes: &[],
    },
];

/// The schema of the status of each type of apps and shared objects in the catalogue, which has none if it has no status.
/// Types of other crates have a status of any form.
pub(super) fn statuses() -> &'static BTreeMap<&'static str, Option<OutputSchema>> {
    static STATUSES: LazyLock<BTreeMap<&'static str, Option<OutputSchema>>> = LazyLock::new(|| {
        let registry = bellows_apps::registry();
        let apps = registry.entries().map(|entry| (entry.name(), entry.status()));
        apps.chain(registry.objects().map(|entry| (entry.name(), entry.status()))).collect()
    });
    &STATUSES
}

/// The schema of the status of apps or shared objects of a type, if the type is in the catalogue.
pub(super) fn status(kind: &str) -> Option<Option<OutputSchema>> {
    statuses().get(kind).copied()
}

/// All statuses that are described.
pub(super) fn all() -> Vec<Kind> {
    statuses().values().filter_map(|status| status.map(printed)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::json_reference::{Found, differences};

    #[test]
    fn every_status_is_found_by_the_name_of_its_type() {
        let described = statuses().iter().filter_map(|(kind, status)| Some((kind, (*status)?)));
        for (kind, described) in described {
            let form = printed(described).form().expect("a status is an object");
            assert!(form.title.contains(&format!("`{kind}`")), "`{kind}` is not in the heading `{}`", form.title);
        }
        assert!(status("turnstile").is_none() && all().len() > 15);
    }

    #[test]
    fn the_form_of_a_status_is_that_of_the_type_beside_it() {
        let compared = |kind: &str, status: Value| {
            let shown = json!({ "object": "one", "kind": kind, "status": status });
            differences(schema_of::<ObjectStatus>(), &shown, &mut Found::new())
        };
        let lists = json!({ "lists": [{ "name": "", "rules": [] }] });
        assert_eq!(compared("access-list", lists.clone()), Vec::<String>::new());
        assert_eq!(compared("access-list", Value::Null), Vec::<String>::new());
        assert_eq!(compared("access-list", json!({ "lists": [{ "name": "" }] })), [".status.lists[].rules is missing"]);
        assert_eq!(compared("turnstile", lists.clone()), Vec::<String>::new());
        assert_eq!(compared("sink", lists), [".status: `sink` does not say what its status is"]);
    }
}
