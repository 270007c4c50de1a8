//! A listener to multicast groups on one link: which reports are due (RFC 3810, and RFC 2710 for older queriers).
//!
//! The router listens to what all sources send, so that a group is either joined or not.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use bellows_wire::mld::{Query, Version, record_type};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// RFC 3810, section 9: Robustness Variable, Query Interval, Unsolicited Report Interval; of version 1 (RFC 2710,
/// section 7.10) that interval is longer.
const ROBUSTNESS: u8 = 2;
const QUERY_INTERVAL: u64 = 125 * SECOND;
const UNSOLICITED_INTERVAL: u64 = SECOND;
const UNSOLICITED_INTERVAL_1: u64 = 10 * SECOND;

/// The sources of a query that are kept in mind. A query for more is answered as one for all.
const MAX_SOURCES: usize = 64;

/// A record of a report of version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: u8,
    pub(super) group: Ipv6Addr,
    pub(super) sources: Vec<Ipv6Addr>,
}

/// A message that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Of version 2, to all routers. It may have more records than one packet has room for.
    Report(Vec<Record>),
    /// Of version 1, to the group.
    Report1(Ipv6Addr),
    /// Of version 1: nobody here listens to the group any more.
    Done(Ipv6Addr),
}

/// An answer to a query for one group.
#[derive(Clone, Debug)]
struct Answer {
    at: u64,
    /// The sources that the query is about; without any, it is about all.
    sources: Vec<Ipv6Addr>,
}

#[derive(Clone, Debug)]
struct Group {
    /// Whether it is joined; otherwise it is being left.
    is_joined: bool,
    /// Reports of this change that are still to be sent, and when the next one is.
    changes: u8,
    change_at: u64,
    answer: Option<Answer>,
    /// Whether this node was the last one to report it, for version 1.
    reported: bool,
}

/// The groups of a link.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    groups: BTreeMap<Ipv6Addr, Group>,
    /// When a query for all groups is answered.
    answer_at: Option<u64>,
    /// Until when the querier is one of version 1.
    older_until: Option<u64>,
    robustness: u8,
}

impl Listener {
    pub(super) fn new() -> Listener {
        Listener { groups: BTreeMap::new(), answer_at: None, older_until: None, robustness: ROBUSTNESS }
    }

    /// A listener that knows what this one knows of the querier, and leaves the groups that this one has joined, unless
    /// it joins them as well.
    pub(super) fn successor(&self, now: u64) -> Listener {
        let mut next = self.clone();
        next.answer_at = None;
        let joined: Vec<Ipv6Addr> = next.joined().collect();
        joined.into_iter().for_each(|group| next.leave(group, now));
        next
    }

    /// The groups that are joined.
    pub(super) fn joined(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.groups.iter().filter(|(_, group)| group.is_joined).map(|(&address, _)| address)
    }

    /// Joins a group, or reports it again; the first report is sent at a time.
    pub(super) fn join(&mut self, group: Ipv6Addr, at: u64) {
        let (changes, reported) = (self.robustness, self.groups.get(&group).is_some_and(|group| group.reported));
        let answer = self.groups.remove(&group).filter(|group| group.is_joined).and_then(|group| group.answer);
        self.groups.insert(group, Group { is_joined: true, changes, change_at: at, answer, reported });
    }

    /// Leaves a group that is joined.
    pub(super) fn leave(&mut self, group: Ipv6Addr, at: u64) {
        let robustness = self.robustness;
        if let Some(group) = self.groups.get_mut(&group).filter(|group| group.is_joined) {
            *group = Group { is_joined: false, changes: robustness, change_at: at, answer: None, ..*group };
        }
    }

    /// Takes in a query (RFC 3810, sections 6.2 and 8.2.1).
    pub(super) fn hear_query(&mut self, query: &Query<'_>, now: u64, random: &mut fastrand::Rng) {
        let longest = u64::from(query.max_delay_ms) * MILLISECOND;
        match query.version {
            Version::One => {
                if self.older_until.is_none() {
                    self.cancel();
                }
                self.older_until = Some(now + u64::from(self.robustness) * QUERY_INTERVAL + longest);
            }
            Version::Two if query.robustness > 0 => self.robustness = query.robustness,
            Version::Two => {}
        }
        let is_older = self.older_until.is_some();
        if query.group.is_unspecified() && is_older {
            for group in self.groups.values_mut() {
                group.hear(now + random.u64(..=longest), Vec::new());
            }
            return;
        }
        let at = now + random.u64(..=longest);
        if self.answer_at.is_some_and(|earlier| earlier <= at) {
            return;
        }
        if query.group.is_unspecified() {
            self.answer_at = Some(at);
        } else if let Some(group) = self.groups.get_mut(&query.group) {
            let sources =
                if is_older || query.sources().len() > MAX_SOURCES { Vec::new() } else { query.sources().collect() };
            group.hear(at, sources);
        }
    }

    /// Another node reports a group in version 1, so that this one need not (RFC 2710, section 4).
    pub(super) fn hear_report(&mut self, group: Ipv6Addr) {
        if let (Some(group), true) = (self.groups.get_mut(&group), self.older_until.is_some())
            && group.answer.take().is_some()
        {
            group.reported = false;
        }
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let of_groups = self.groups.values().flat_map(|group| {
            let change = (group.changes > 0).then_some(group.change_at);
            [change, group.answer.as_ref().map(|answer| answer.at)]
        });
        of_groups.chain([self.answer_at, self.older_until]).flatten().min()
    }

    /// The messages that are due.
    pub(super) fn due(&mut self, now: u64, random: &mut fastrand::Rng) -> Vec<Message> {
        if self.older_until.is_some_and(|until| until <= now) {
            self.older_until = None;
            self.cancel();
        }
        let messages =
            if self.older_until.is_some() { self.due_older(now, random) } else { self.due_newer(now, random) };
        self.groups.retain(|_, group| group.is_joined || group.changes > 0);
        messages
    }

    /// The messages that report all groups as left, for the end.
    pub(super) fn leave_all(&mut self, now: u64, random: &mut fastrand::Rng) -> Vec<Message> {
        let joined: Vec<Ipv6Addr> = self.joined().collect();
        joined.into_iter().for_each(|group| self.leave(group, now));
        self.due(now, random)
    }

    /// Another version of the querier: nothing is repeated or answered any more (RFC 3810, section 8.2.1).
    fn cancel(&mut self) {
        self.answer_at = None;
        self.groups.retain(|_, group| group.is_joined);
        for group in self.groups.values_mut() {
            group.answer = None;
            // What has not been reported yet is reported.
            if group.changes < self.robustness {
                group.changes = 0;
            }
        }
    }

    fn due_newer(&mut self, now: u64, random: &mut fastrand::Rng) -> Vec<Message> {
        let (mut changes, mut answers) = (Vec::new(), Vec::new());
        let answers_all = self.answer_at.is_some_and(|at| at <= now);
        if answers_all {
            self.answer_at = None;
        }
        for (&address, group) in &mut self.groups {
            if group.takes_change(now, random.u64(1..=UNSOLICITED_INTERVAL)) {
                let kind = if group.is_joined { record_type::TO_EXCLUDE } else { record_type::TO_INCLUDE };
                changes.push(Record { kind, group: address, sources: Vec::new() });
            }
            let answer = group.answer.take_if(|answer| answer.at <= now);
            if !group.is_joined || !answers_all && answer.is_none() {
                continue;
            }
            // An answer for all sources is one for these, too.
            let sources = if answers_all { Vec::new() } else { answer.map_or(Vec::new(), |answer| answer.sources) };
            let kind = if sources.is_empty() { record_type::IS_EXCLUDE } else { record_type::IS_INCLUDE };
            answers.push(Record { kind, group: address, sources });
        }
        [changes, answers].into_iter().filter(|records| !records.is_empty()).map(Message::Report).collect()
    }

    fn due_older(&mut self, now: u64, random: &mut fastrand::Rng) -> Vec<Message> {
        let mut messages = Vec::new();
        for (&address, group) in &mut self.groups {
            let changes = group.takes_change(now, random.u64(1..=UNSOLICITED_INTERVAL_1));
            let answers = group.answer.take_if(|answer| answer.at <= now).is_some();
            if !group.is_joined {
                // Once is enough; and who reported the group after this node listens on.
                if changes && group.reported {
                    messages.push(Message::Done(address));
                }
                group.changes = 0;
            } else if changes || answers {
                group.reported = true;
                messages.push(Message::Report1(address));
            }
        }
        messages
    }
}

impl Group {
    /// A query for the group, to be answered at a time, unless that is due earlier (RFC 3810, section 6.2).
    fn hear(&mut self, at: u64, sources: Vec<Ipv6Addr>) {
        if !self.is_joined {
            return;
        }
        let Some(answer) = &mut self.answer else {
            self.answer = Some(Answer { at, sources });
            return;
        };
        answer.at = answer.at.min(at);
        if sources.is_empty() || answer.sources.is_empty() {
            answer.sources.clear();
            return;
        }
        sources.into_iter().for_each(|source| {
            if !answer.sources.contains(&source) {
                answer.sources.push(source);
            }
        });
        if answer.sources.len() > MAX_SOURCES {
            answer.sources.clear();
        }
    }

    /// Whether a report of a change is due now. The next one follows after a pause.
    fn takes_change(&mut self, now: u64, pause: u64) -> bool {
        let is_due = self.changes > 0 && self.change_at <= now;
        if is_due {
            self.changes -= 1;
            self.change_at = now + pause;
        }
        is_due
    }
}
