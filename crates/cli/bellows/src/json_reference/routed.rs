//! The forms of routes, neighbours, associations and addresses.

use bellows_router::vrf::answers::FoundRoute;
use bellows_vpn::esp::{PairState, Rekeyed};

use super::{Section, schema_of};
use crate::commands::clear::ForgottenAddresses;
use crate::commands::esp::ShownAssociations;
use crate::commands::neighbour::ChangedNeighbours;
use crate::commands::route::batch::{ChangedRoutes, ReplacedRoutes};
use crate::commands::route::query::{ShownLookUp, ShownRoutes};
use crate::commands::route::{ChangedRoute, Flushed};
use crate::commands::show::fib::ShownTables;
use crate::commands::show::mac::ShownAddresses;
use crate::commands::show::neighbours::ShownNeighbours;
use crate::commands::show::saved::ShownSaved;
use crate::operating::{DomainNames, LineCounts};
use crate::saved::ForgottenKeys;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows route show --json`",
        commands: &["route", "route show", "route list", "route ls"],
        text: &["A route has the keys of `ip -j route`."],
        whole: Some(schema_of::<ShownRoutes>()),
        parts: &[schema_of::<DomainNames>()],
        notes: &[],
    },
    Section {
        heading: "`bellows route lookup --json`",
        commands: &["route lookup", "route get"],
        text: &[],
        whole: Some(schema_of::<ShownLookUp>()),
        parts: &[schema_of::<FoundRoute>()],
        notes: &[],
    },
    Section {
        heading: "`bellows route add|append|replace|del --json`",
        commands: &["route add", "route append", "route replace", "route del", "route delete"],
        text: &["The change of one route. A change that is not possible prints nothing to standard output."],
        whole: Some(schema_of::<ChangedRoute>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows route add|append|replace|del -f FILE --json`",
        commands: &[
            "route -f",
            "route --file",
            "route add -f",
            "route add --file",
            "route append -f",
            "route append --file",
            "route replace -f",
            "route replace --file",
            "route del -f",
            "route del --file",
        ],
        text: &["If a line is wrong, nothing is printed to standard output, unless `--force` leaves such lines out."],
        whole: Some(schema_of::<ChangedRoutes>()),
        parts: &[schema_of::<LineCounts>()],
        notes: &[],
    },
    Section {
        heading: "`bellows route replace-all --json`",
        commands: &["route replace-all", "route replace-all -f", "route replace-all --file"],
        text: &[],
        whole: Some(schema_of::<ReplacedRoutes>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows route flush --json`",
        commands: &["route flush", "neighbour flush"],
        text: &["`bellows neighbour flush --json` prints the same."],
        whole: Some(schema_of::<Flushed>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show saved --json`",
        commands: &["show saved"],
        text: &[],
        whole: Some(schema_of::<ShownSaved>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show neighbours --json`",
        commands: &["show neighbours", "neighbour", "neighbour show", "neighbour list", "neighbour ls"],
        text: &["`bellows neighbour show --json` prints the same, of one routing domain."],
        whole: Some(schema_of::<ShownNeighbours>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows neighbour add|replace|del --json`",
        commands: &[
            "neighbour add",
            "neighbour replace",
            "neighbour del",
            "neighbour delete",
            "neighbour -f",
            "neighbour --file",
        ],
        text: &["With `-f FILE`, too. A change that is not possible prints nothing to standard output."],
        whole: Some(schema_of::<ChangedNeighbours>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show fib --json`",
        commands: &["show fib"],
        text: &[],
        whole: Some(schema_of::<ShownTables>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows esp show --json`",
        commands: &["esp", "esp show"],
        text: &[
            "No key of a cipher is in it. The [status](#status-of-esp) of an `esp` has the same pairs without `app`.",
        ],
        whole: Some(schema_of::<ShownAssociations<'static>>()),
        parts: &[schema_of::<PairState>()],
        notes: &[],
    },
    Section {
        heading: "`bellows esp rekey --json`",
        commands: &["esp rekey"],
        text: &[],
        whole: Some(schema_of::<Rekeyed>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows esp forget --json`",
        commands: &["esp forget"],
        text: &[],
        whole: Some(schema_of::<ForgottenKeys>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show mac --json`",
        commands: &["show mac"],
        text: &[],
        whole: Some(schema_of::<ShownAddresses>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows clear mac --json`",
        commands: &["clear mac"],
        text: &[],
        whole: Some(schema_of::<ForgottenAddresses>()),
        parts: &[],
        notes: &[],
    },
];

#[cfg(test)]
mod tests {
    use bellows_router::vrf::requests::{Changed, LineError};
    use serde_json::json;

    use crate::json_reference::lacking;

    #[test]
    fn changes_with_a_wrong_line_have_their_forms() {
        let error = LineError { index: 3, message: "no".to_owned(), help: String::new(), range: (0, 2) };
        let changed = json!(Changed { added: 1, replaced: 0, deleted: 0, errors: vec![error] });
        assert_eq!(lacking("Changes", &changed), Vec::<String>::new());
        assert_eq!(lacking("Wrong line", &changed["errors"][0]), Vec::<String>::new());
    }
}
