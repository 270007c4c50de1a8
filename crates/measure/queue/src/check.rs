//! Whether results are those of a campaign, and their times.

use bellows_campaign::{Campaign, Factor, Plan};
use bellows_sys::calendar;

use crate::messages::Delivery;

/// Clocks that differ by less are the same, in nanoseconds.
const SAME_CLOCK: i64 = 100_000_000;

/// Whether a result is one of a campaign.
pub(crate) fn check(delivery: &Delivery, campaign: &Campaign, plan: &Plan) -> Result<(), String> {
    let row = &delivery.row;
    let levels = plan.levels(row.run).ok_or("the campaign has no such run")?;
    if row.campaign != plan.hash() {
        return Err(format!("it is of another campaign, {}", row.campaign.short()));
    }
    let mut factors = campaign.factors.iter().zip(levels);
    let is_right = |(factor, level): (&Factor, &usize)| {
        row.levels.get(&factor.name).is_some_and(|label| *label == factor.levels[*level].label)
    };
    if row.levels.len() != levels.len() || !factors.all(is_right) {
        return Err("its levels are not those of the run".to_owned());
    }
    if delivery.of as usize > plan.combinations() {
        return Err("its block has more runs than the campaign has combinations".to_owned());
    }
    Ok(())
}

/// A worker's time in the clock of this machine, if they differ. `difference` is this clock less that of the worker, in
/// nanoseconds.
pub(crate) fn in_our_clock(start: &str, difference: i64) -> String {
    match calendar::microseconds(start) {
        Some(time) if difference.saturating_abs() >= SAME_CLOCK => {
            calendar::of_microseconds(time.saturating_add(difference / 1_000))
        }
        _ => start.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bellows_campaign::{RunId, parse};
    use serde_json::json;

    use super::*;
    use crate::test_rows::delivery;

    #[test]
    fn starts_are_those_of_the_coordinators_clock() {
        let start = "2026-01-31T09:08:07.006Z";
        assert_eq!(in_our_clock(start, 99_000_000), start);
        assert_eq!(in_our_clock(start, -3_600_000_000_000), "2026-01-31T08:08:07.006Z");
        assert_eq!(in_our_clock(start, 100_000_000), "2026-01-31T09:08:07.106Z");
        assert_eq!(in_our_clock("yesterday", 1 << 40), "yesterday");
        assert_eq!(in_our_clock(start, i64::MIN), "1970-01-01T00:00:00.000Z");
        assert_eq!(in_our_clock("9999-12-31T23:59:59Z", i64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn results_of_other_campaigns_do_not_count() {
        let text = "name = 'x'\ncommand = ['true']\n[factors]\nn = [1, 2]\n[score]\njson = 'x'\nunit = '1'\n";
        let campaign = parse("x.toml", text).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        let plan = Plan::new(&campaign);
        let mut right = delivery("a", 2, RunId { block: 1, combination: 2 });
        right.row.campaign = plan.hash();
        right.row.levels.insert("n".to_owned(), "2".to_owned());
        let why = |change: fn(&mut Delivery)| {
            let mut delivery = right.clone();
            change(&mut delivery);
            check(&delivery, &campaign, &plan).err().unwrap_or_default()
        };
        assert_eq!(why(|_| {}), "");
        assert!(why(|it| it.row.run.combination = 3).contains("no such run"));
        assert!(why(|it| it.row.run.combination = 1).contains("levels"));
        assert!(why(|it| drop(it.row.levels.insert("m".to_owned(), "1".to_owned()))).contains("levels"));
        assert!(why(|it| it.of = 3).contains("more runs"));
        let other = |it: &mut Delivery| it.row.campaign = serde_json::from_value(json!("1".repeat(64))).unwrap();
        assert!(why(other).contains("another campaign"));
    }
}
