//! The rules of a list, compiled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bellows_config::Context;
use bellows_filter::graph::Graph;
use bellows_filter::plan::{MAX_FILTERS, Mode};
use bellows_filter::program::Options as Code;
use bellows_filter::{LinkType, Options, Program, SystemNames, parse_each};
use bellows_packet::{CAPACITY, Packet};
use serde_json::{Value, json};

use crate::access_rules::{Action, Rule};

/// The rules that one program has, besides one that matches everything.
const RULES: usize = MAX_FILTERS - 1;

/// A rule and how many packets it was the first for.
pub(super) struct Counted {
    pub(super) rule: Rule,
    packets: AtomicU64,
}

/// The rules of a list with their counters, for other threads.
pub(super) struct Counts {
    /// What the list is for: an interface, or nothing.
    name: String,
    rules: Vec<Counted>,
}

impl Counts {
    /// The rules and their counters.
    pub(super) fn value(&self) -> Value {
        let rule = |counted: &Counted| {
            let Rule { action, expression } = &counted.rule;
            let text = format!("{} {expression}", action.name());
            json!({ "rule": text.trim(), "packets": counted.packets.load(Ordering::Relaxed) })
        };
        json!({ "name": self.name, "rules": self.rules.iter().map(rule).collect::<Vec<_>>() })
    }
}

/// A list of rules. Packets that match none are denied.
pub(super) struct List {
    programs: Vec<Program>,
    /// The rules, the last one of which matches everything.
    counts: Arc<Counts>,
    /// What each rule does.
    actions: Vec<Action>,
    /// Packets of a call by their rules.
    totals: Vec<u64>,
    numbers: Vec<u16>,
}

impl List {
    /// Compiles rules.
    ///
    /// # Errors
    /// The text of a rule, and what is wrong with it.
    pub(super) fn compile(name: &str, rules: &[Rule], context: &Context) -> Result<List, (String, String)> {
        let options = Options { names: &SystemNames, ..Options::default() };
        let parse = |expression: &str| {
            let parsed = parse_each(expression, &[LinkType::Ethernet], &options);
            let parsed = parsed.map_err(|mistake| (expression.to_owned(), mistake.message))?;
            let expression_of = parsed.into_iter().next().flatten();
            expression_of.ok_or_else(|| (expression.to_owned(), "it has no meaning for Ethernet".to_owned()))
        };
        let everything = parse("")?;
        let mut programs = Vec::new();
        for rules in rules.chunks(RULES) {
            let parsed: Vec<_> = rules.iter().map(|rule| parse(&rule.expression)).collect::<Result<_, _>>()?;
            let graphs: Vec<&Graph> = parsed.iter().chain([&everything]).map(|it| it.graph()).collect();
            let code = Code { for_perf: context.for_perf, ..Code::default() };
            let program = Program::with(&graphs, Mode::First, code);
            programs.push(program.map_err(|error| (rules[0].expression.clone(), error.to_string()))?);
        }
        let rest = Rule { action: Action::Deny, expression: String::new() };
        let all: Vec<Rule> = rules.iter().cloned().chain([rest]).collect();
        let actions: Vec<Action> = all.iter().map(|rule| rule.action).collect();
        let rules = all.into_iter().map(|rule| Counted { rule, packets: AtomicU64::new(0) }).collect();
        let totals = vec![0; actions.len()];
        let counts = Arc::new(Counts { name: name.to_owned(), rules });
        Ok(List { programs, counts, actions, totals, numbers: vec![0; CAPACITY] })
    }

    /// The rules and their counters.
    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// What becomes of packets. Hot.
    pub(super) fn decide(&mut self, packets: &[Packet], verdicts: &mut [Action]) {
        let List { programs, counts, actions, totals, numbers } = self;
        let numbers = &mut numbers[..packets.len()];
        let last = actions.len() - 1;
        match programs.split_first() {
            None => numbers.fill(last as u16),
            Some((first, others)) => {
                first.first(packets, numbers);
                if !others.is_empty() {
                    decide_more(others, packets, numbers, last);
                }
            }
        }
        for (number, verdict) in numbers.iter().zip(verdicts) {
            *verdict = actions[usize::from(*number)];
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

/// Decides packets that match no rule of the first program by the others.
fn decide_more(programs: &[Program], packets: &[Packet], numbers: &mut [u16], last: usize) {
    let mut more = [0; CAPACITY];
    let more = &mut more[..packets.len()];
    for (index, program) in programs.iter().enumerate() {
        let (before, behind) = (RULES * (index + 1), (RULES * (index + 2)).min(last));
        if !numbers.iter().any(|&number| usize::from(number) == before) {
            return;
        }
        program.first(packets, more);
        for (number, &more) in numbers.iter_mut().zip(&*more) {
            if usize::from(*number) == before {
                *number = (before + usize::from(more)).min(behind) as u16;
            }
        }
    }
}
