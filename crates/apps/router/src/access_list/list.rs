//! The rules of a list, compiled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bellows_config::Context;
use bellows_filter::access::{AccessList, Expressed, Unknown};
use bellows_filter::program::ProgramOptions as Code;
use bellows_packet::{CAPACITY, Packet};
use schemars::JsonSchema;
use serde::Serialize;

use crate::access_rules::{Rule, RuleAction};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// What a rule says.
    By(RuleAction),
    /// It is dropped, because no rule can decide about it.
    Undecided(Unknown),
}

/// A rule and how many packets it was the first for.
struct Counted {
    action: RuleAction,
    expression: String,
    packets: AtomicU64,
}

/// The rules of a list with their counters, for other threads.
pub(super) struct RuleCounts {
    /// What the list is for: an interface, or nothing.
    name: String,
    rules: Vec<Counted>,
}

impl RuleCounts {
    /// The rules and their counters.
    pub(super) fn status(&self) -> ListStatus {
        let rule = |counted: &Counted| {
            let Counted { action, expression, packets } = counted;
            let text = format!("{} {expression}", action.name());
            RuleStatus { rule: text.trim().to_owned(), packets: packets.load(Ordering::Relaxed) }
        };
        ListStatus { name: self.name.clone(), rules: self.rules.iter().map(rule).collect() }
    }
}

/// What the status says of a list.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Access list")]
pub(super) struct ListStatus {
    /// The interface; empty for `rules`.
    name: String,
    /// The rules, in their order, and a last one, `deny`, for packets that match no other.
    rules: Vec<RuleStatus>,
}

/// What the status says of a rule.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Access rule")]
struct RuleStatus {
    /// Its text.
    rule: String,
    /// The number of packets that it was the first to match.
    packets: u64,
}

/// A list of rules. Packets that match none are denied, and so are those that it cannot decide about.
pub(super) struct List {
    rules: AccessList,
    /// The rules, the last one of which matches everything.
    counts: Arc<RuleCounts>,
    /// What becomes of the packets of each rule, and behind them of those that are undecided, by the reason.
    fates: Vec<Fate>,
    /// Packets of a call, in the same order.
    totals: Vec<u64>,
    numbers: Vec<u16>,
}

impl List {
    /// Compiles rules.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn compile(name: &str, rules: &[Rule], context: &Context) -> Result<List, String> {
        let expressed: Vec<Expressed> = rules.iter().map(|rule| rule.expressed.clone()).collect();
        let code = Code { for_perf: context.for_perf, ..Code::default() };
        let compiled = AccessList::compile(&expressed, code).map_err(|error| error.to_string())?;
        let undecided = Unknown::ALL.map(Fate::Undecided);
        let fates = rules.iter().map(|rule| Fate::By(rule.action)).chain([Fate::By(RuleAction::Deny)]).chain(undecided);
        let fates: Vec<Fate> = fates.collect();
        let counted = |(action, expression): (RuleAction, &str)| Counted {
            action,
            expression: expression.to_owned(),
            packets: AtomicU64::new(0),
        };
        let all = rules.iter().map(|rule| (rule.action, rule.expression.as_str())).chain([(RuleAction::Deny, "")]);
        let counts = Arc::new(RuleCounts { name: name.to_owned(), rules: all.map(counted).collect() });
        let totals = vec![0; fates.len()];
        Ok(List { rules: compiled, counts, fates, totals, numbers: vec![0; CAPACITY] })
    }

    /// The rules and their counters.
    pub(super) fn counts(&self) -> Arc<RuleCounts> {
        Arc::clone(&self.counts)
    }

    /// What becomes of packets. Hot.
    pub(super) fn decide(&mut self, packets: &[Packet], verdicts: &mut [Fate]) {
        let List { rules, counts, fates, totals, numbers } = self;
        let numbers = &mut numbers[..packets.len()];
        rules.decide(packets, numbers);
        for (number, verdict) in numbers.iter().zip(verdicts) {
            *verdict = fates[usize::from(*number)];
            totals[usize::from(*number)] += 1;
        }
        for (total, counted) in totals.iter_mut().zip(&counts.rules) {
            if *total > 0 {
                // Nobody else writes it.
                counted.packets.store(counted.packets.load(Ordering::Relaxed) + *total, Ordering::Relaxed);
                *total = 0;
            }
        }
    }
}
