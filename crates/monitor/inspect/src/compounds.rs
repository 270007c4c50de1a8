//! The cost of compound apps: the sums of their parts.
//!
//! The counters know apps only. A part is recognised by its name: `router/lookup` is a part of `router`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::accounting::Accounts;
use crate::networks::Change;

/// The maximum depth of compound apps that are reported.
const MAX_DEPTH: usize = 8;

/// The sum of a compound app's parts.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Cost of a compound app")]
pub struct CompoundCost {
    /// Its full name; a compound app within another one has an entry of its own, too.
    pub name: String,
    /// The number of apps in it, whose names begin with `NAME/`.
    pub parts: usize,
    /// Packets that came in by links from other apps or, without such links, went out; null without either.
    pub packets: Option<u64>,
    /// The clocks of all parts for each of these packets; null without samples.
    ///
    /// The clocks of all parts for each of these packets, estimated from the samples; `None` if nothing was sampled.
    pub clocks_per_packet: Option<f64>,
    /// The share of all clocks spent in apps, from 0 to 1; null without samples.
    pub share: Option<f64>,
}

/// What is added up.
#[derive(Default)]
struct Sum {
    parts: usize,
    came_in: Option<u64>,
    went_out: Option<u64>,
    clocks: Option<f64>,
    share: Option<f64>,
}

/// The full names of the compound apps around an app, outermost first.
fn around(app: &str) -> impl Iterator<Item = &str> {
    app.match_indices('/').map(|(at, _)| &app[..at]).filter(|name| !name.is_empty()).take(MAX_DEPTH)
}

fn is_inside(app: &str, compound: &str) -> bool {
    app.strip_prefix(compound).is_some_and(|rest| rest.starts_with('/'))
}

/// The costs of all compound apps, sorted by name.
pub fn costs(change: &Change, accounts: &Accounts) -> Vec<CompoundCost> {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (_, app) in change.apps() {
        for name in around(&app.name) {
            sums.entry(name).or_default().parts += 1;
        }
    }
    for row in &accounts.rows {
        for name in around(&row.app) {
            let Some(sum) = sums.get_mut(name) else { continue };
            if let Some(share) = row.share {
                sum.share = Some(sum.share.unwrap_or(0.0) + share);
                sum.clocks = Some(sum.clocks.unwrap_or(0.0) + row.clocks());
            }
        }
    }
    for (before, link) in change.link_counts() {
        let packets = link.packets.saturating_sub(before.map_or(0, |before| before.packets));
        let (from, to) = (app_of(&link.from), app_of(&link.to));
        let add = |count: &mut Option<u64>| *count = Some(count.unwrap_or(0).saturating_add(packets));
        for name in around(to).filter(|name| !is_inside(from, name)) {
            sums.get_mut(name).into_iter().for_each(|sum| add(&mut sum.came_in));
        }
        for name in around(from).filter(|name| !is_inside(to, name)) {
            sums.get_mut(name).into_iter().for_each(|sum| add(&mut sum.went_out));
        }
    }
    let cost = |(name, sum): (&str, Sum)| {
        let packets = sum.came_in.or(sum.went_out);
        let clocks_per_packet =
            sum.clocks.zip(packets.filter(|packets| *packets > 0)).map(|(clocks, packets)| clocks / packets as f64);
        CompoundCost { name: name.to_owned(), parts: sum.parts, packets, clocks_per_packet, share: sum.share }
    };
    sums.into_iter().map(cost).collect()
}

/// The app of a link's end.
fn app_of(end: &str) -> &str {
    end.rsplit_once('.').map_or(end, |(app, _)| app)
}

#[cfg(test)]
mod tests {
    use bellows_observe::{AppCounts, LinkCounts, Snapshot};

    use super::*;
    use crate::networks::Sample;
    use crate::testing::{SINK, any_apps, app, second};
    use proptest::prelude::*;

    fn change(apps: Vec<AppCounts>, links: &[(&str, &str, u64)]) -> Change {
        let link = |(from, to, packets): &(&str, &str, u64)| LinkCounts {
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            packets: *packets,
            ..LinkCounts::default()
        };
        let links = links.iter().map(link).collect();
        let whole = second(Vec::new(), apps);
        let after = Snapshot { links, ..whole.after.counters };
        Change::between(whole.before, Sample { at: whole.after.at, counters: after })
    }

    #[test]
    fn parts_are_added_up() {
        let part = |name: &str| app(name, [12_800, 12_800], &[("push", 100)], &SINK);
        let apps = ["s", "r/in", "r/deep/a", "r/deep/b", "end"].map(part).into();
        let links = [
            ("s.output", "r/in.input", 12_800),
            ("r/in.output", "r/deep/a.input", 6_400),
            ("r/deep/a.output", "r/deep/b.input", 6_400),
            ("r/deep/b.output", "end.input", 100),
        ];
        let change = change(apps, &links);
        let costs = costs(&change, &Accounts::of(&change));
        let [outer, inner] = &costs[..] else { panic!("{costs:?}") };
        assert_eq!((outer.name.as_str(), outer.parts, outer.packets), ("r", 3, Some(12_800)));
        assert_eq!((inner.name.as_str(), inner.parts, inner.packets), ("r/deep", 2, Some(6_400)));
        let close = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9;
        assert!(close(outer.clocks_per_packet, 60.0) && close(outer.share, 0.6), "{outer:?}");
        assert!(close(inner.clocks_per_packet, 80.0) && close(inner.share, 0.4), "{inner:?}");
    }

    #[test]
    fn sources_count_what_goes_out_and_without_samples_nothing_is_known() {
        let apps = vec![app("r/s", [0, 7], &[("pull", 1)], &[]), app("end", [7, 0], &[("push", 1)], &[])];
        let change = change(apps, &[("r/s.output", "end.input", 7)]);
        let found = costs(&change, &Accounts::of(&change));
        let expected = CompoundCost { name: "r".to_owned(), parts: 1, packets: Some(7), ..CompoundCost::default() };
        assert_eq!(found, [expected]);
        let none = second(Vec::new(), vec![app("a", [0, 0], &[], &[])]);
        assert_eq!(costs(&none, &Accounts::of(&none)), []);
    }

    proptest! {
        #[test]
        fn counters_of_damaged_files_have_sums(before in any_apps(), after in any_apps()) {
            let change = second(before, after);
            for cost in costs(&change, &Accounts::of(&change)) {
                prop_assert!(cost.parts > 0);
            }
        }
    }
}
