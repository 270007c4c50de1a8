//! A proposal for the workers of a network's apps, from their measured costs.

use std::collections::BTreeMap;

use bellows_engine::MAIN;
use bellows_placement::{App, Link, Placement, Problem, place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounting::{Accounts, CostRow, MIN_SAMPLED_CALLS};
use crate::crossings::{CrossingCost, CrossingMeter, CrossingSource, ProcessorPair};
use crate::networks::Change;

/// The minimum number of an app's sampled packets.
pub const MIN_SAMPLED_PACKETS: u64 = 256;

/// A gain below this share of the busiest worker's load is within the precision of the measurement.
pub const MIN_GAIN: f64 = 0.02;

/// Apps with less than one packet in this many of the busiest link's need no samples.
const RARE: u64 = 100;

/// The maximum number of searches for a placement, each with the cost of crossings between the processors of the one
/// before.
const MAX_SEARCHES: usize = 3;

/// Why nothing can be proposed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLittle {
    /// No packet has moved.
    #[error("no packet has passed a link")]
    NoPackets,
    /// An app was sampled too rarely.
    #[error(
        "{sampled} packets of `{app}` were sampled in {calls} calls; {MIN_SAMPLED_PACKETS} packets in \
         {MIN_SAMPLED_CALLS} calls are needed, and the engine samples one breath in 256"
    )]
    Samples {
        /// The app.
        app: String,
        /// Its sampled packets.
        sampled: u64,
        /// Its sampled calls.
        calls: u64,
    },
}

/// A worker, and what it has to do.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Placed worker")]
pub struct Load {
    /// Its name.
    pub name: String,
    /// Its processor; null if the kernel chooses.
    pub cpu: Option<usize>,
    /// Its apps.
    pub apps: Vec<String>,
    /// Its clocks for each packet of the busiest link: measured in `today` and `measured`, expected in `proposed` and
    /// `expected`.
    pub clocks_per_packet: f64,
}

/// A placement of the network's apps.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Placement")]
pub struct PlacementPlan {
    /// The workers with apps.
    pub workers: Vec<Load>,
    /// Packets that cross for each packet of the busiest link.
    pub crossings_per_packet: f64,
    /// The links that cross.
    pub crossing_links: Vec<String>,
    /// The rate of the busiest link at which the busiest worker has no time left.
    pub packets_per_second: f64,
}

impl PlacementPlan {
    /// The worker of each app.
    pub fn apps(&self) -> BTreeMap<String, String> {
        let pairs = self.workers.iter().flat_map(|load| load.apps.iter().map(|app| (app.clone(), load.name.clone())));
        pairs.collect()
    }

    /// The processor of a worker.
    pub fn processor(&self, worker: &str) -> Option<usize> {
        self.workers.iter().find(|load| load.name == worker)?.cpu
    }

    /// The clocks for each packet of the busiest worker.
    pub fn bottleneck(&self) -> f64 {
        self.workers.iter().map(|load| load.clocks_per_packet).fold(0.0, f64::max)
    }
}

/// The traffic of a link: its ends, and its packets.
#[derive(Clone, Debug)]
struct LinkFlow {
    name: String,
    ends: [usize; 2],
    packets: u64,
}

/// A measured app.
#[derive(Clone, Debug)]
struct Measured {
    name: String,
    /// The position of its worker.
    worker: usize,
    clocks: u64,
    /// The position of the app with which it moves to another worker: its own, if it moves alone.
    leader: usize,
}

/// The measured costs of a network.
#[derive(Clone, Debug)]
pub struct Costs {
    apps: Vec<Measured>,
    flows: Vec<LinkFlow>,
    /// The workers of today, `main` first.
    workers: Vec<String>,
    /// The clocks of each worker, crossings included.
    loads: Vec<f64>,
    /// The packets of the busiest link.
    packets: u64,
    ticks_per_second: u64,
    /// The cost of a crossing.
    pub crossing: CrossingCost,
    /// The share of breaths without packets.
    pub idle_breaths: Option<f64>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The placement, without processors.
    pub plan: PlacementPlan,
    /// Whether no placement is better by this model.
    pub is_exact: bool,
}

impl Costs {
    /// From the change between two samples.
    ///
    /// # Errors
    /// If too little was measured.
    pub fn of(change: &Change) -> Result<Costs, TooLittle> {
        let accounts = Accounts::of(change);
        let counters = &change.after.counters;
        let mut workers: Vec<String> = counters.workers.iter().map(|worker| worker.name.clone()).collect();
        if workers.is_empty() {
            workers.push(MAIN.to_owned());
        }
        let worker_of = |name: &str| workers.iter().position(|worker| worker == name).unwrap_or(0);
        let mut loads = vec![0.0; workers.len()];
        for row in accounts.rows.iter().filter(|row| row.is_used()) {
            loads[worker_of(&row.worker)] += row.clocks();
        }
        let rows_of = |name: &str| accounts.rows.iter().filter(|row| row.app == name && row.is_used()).collect();
        let app = |name: &String, worker: &str| {
            let rows: Vec<&CostRow> = rows_of(name);
            let clocks = rows.iter().map(|row| row.clocks()).sum::<f64>() as u64;
            Measured { name: name.clone(), worker: worker_of(worker), clocks, leader: 0 }
        };
        let mut apps: Vec<Measured> = counters.apps.iter().map(|counts| app(&counts.name, &counts.worker)).collect();
        apps.iter_mut().enumerate().for_each(|(at, app)| app.leader = at);
        let flows = flows(change, &apps);
        let packets = flows.iter().map(|flow| flow.packets).max().unwrap_or(0);
        if packets == 0 {
            return Err(TooLittle::NoPackets);
        }
        for (at, app) in apps.iter().enumerate() {
            let moved = flows.iter().filter(|flow| flow.ends.contains(&at)).map(|flow| flow.packets).max().unwrap_or(0);
            if moved.saturating_mul(RARE) >= packets {
                check(&app.name, &rows_of(&app.name))?;
            }
        }
        let crossing = crossing_cost(change, &accounts);
        let ticks_per_second = counters.ticks_per_second;
        let idle_breaths = change.idle_breaths();
        Ok(Costs { apps, flows, workers, loads, packets, ticks_per_second, crossing, idle_breaths })
    }

    /// Has apps move to another worker with others: pairs of an app and the one that it follows.
    pub fn tie<'a>(&mut self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let position = |apps: &[Measured], name: &str| apps.iter().position(|app| app.name == name);
        for (follower, leader) in pairs {
            let positions = position(&self.apps, follower).zip(position(&self.apps, leader));
            let Some((follower, leader)) =
                positions.map(|(one, other)| (self.apps[one].leader, self.apps[other].leader))
            else {
                continue;
            };
            self.apps.iter_mut().filter(|app| app.leader == follower).for_each(|app| app.leader = leader);
        }
    }

    fn per_packet(&self, clocks: f64) -> f64 {
        clocks / self.packets as f64
    }

    fn plan(&self, workers: Vec<Load>, of_app: impl Fn(usize) -> usize) -> PlacementPlan {
        let crossing: Vec<&LinkFlow> =
            self.flows.iter().filter(|flow| of_app(flow.ends[0]) != of_app(flow.ends[1])).collect();
        let crossed = crossing.iter().map(|flow| flow.packets as f64).sum();
        let mut plan = PlacementPlan {
            workers,
            crossings_per_packet: self.per_packet(crossed),
            crossing_links: crossing.iter().map(|flow| flow.name.clone()).collect(),
            packets_per_second: 0.0,
        };
        plan.packets_per_second = self.ticks_per_second as f64 / plan.bottleneck().max(f64::MIN_POSITIVE);
        plan
    }

    /// The present placement with its measured loads.
    pub fn today(&self) -> PlacementPlan {
        let load = |(worker, name): (usize, &String)| Load {
            name: name.clone(),
            cpu: None,
            apps: self.apps_on(|app| app.worker == worker),
            clocks_per_packet: self.per_packet(self.loads[worker]),
        };
        let loads = self.workers.iter().enumerate().map(load).filter(|load| !load.apps.is_empty()).collect();
        self.plan(loads, |app| self.apps[app].worker)
    }

    fn apps_on(&self, is_on: impl Fn(&Measured) -> bool) -> Vec<String> {
        self.apps.iter().filter(|app| is_on(app)).map(|app| app.name.clone()).collect()
    }

    /// The names of the apps.
    pub fn apps(&self) -> impl Iterator<Item = &str> {
        self.apps.iter().map(|app| app.name.as_str())
    }

    /// The number of workers that hold these apps today.
    pub fn workers_of(&self, kept: &[String]) -> usize {
        self.kept_workers(kept).len()
    }

    fn kept_workers(&self, kept: &[String]) -> Vec<usize> {
        let mut workers: Vec<usize> =
            self.apps.iter().filter(|app| kept.contains(&app.name)).map(|app| app.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }

    /// Packets of an app, in both directions.
    pub fn packets_of(&self, app: &str) -> u64 {
        let is_end = |flow: &&LinkFlow| flow.ends.iter().any(|&end| self.apps[end].name == app);
        self.flows.iter().filter(is_end).map(|flow| flow.packets).sum()
    }

    /// Packets that cross between each worker of a plan and those before it.
    pub fn crossings(&self, plan: &PlacementPlan) -> Vec<Vec<(usize, u64)>> {
        let place: BTreeMap<&str, usize> = plan
            .workers
            .iter()
            .enumerate()
            .flat_map(|(at, load)| load.apps.iter().map(move |app| (app.as_str(), at)))
            .collect();
        let mut crossings = vec![Vec::new(); plan.workers.len()];
        for flow in &self.flows {
            let [one, other] = flow.ends.map(|end| place[self.apps[end].name.as_str()]);
            if one != other {
                crossings[one.max(other)].push((one.min(other), flow.packets));
            }
        }
        crossings
    }

    /// The best placement on this many workers; the kept apps stay where they are.
    ///
    /// # Panics
    /// If the kept apps are on more workers than that.
    pub fn propose(&self, workers: usize, kept: &[String]) -> Proposal {
        let names = self.names(workers, kept);
        let clocks = |flow: &LinkFlow, each: f64| (flow.packets as f64 * each) as u64;
        let position = |app: &Measured| names.iter().position(|name| *name == self.workers[app.worker]);
        let fixed = |app: &Measured| position(app).filter(|_| kept.contains(&app.name));
        // Apps that move together are one to the search.
        let leaders: Vec<usize> = (0..self.apps.len()).filter(|&at| self.apps[at].leader == at).collect();
        let group = |app: usize| leaders.iter().position(|&leader| leader == self.apps[app].leader).unwrap_or(0);
        let groups: Vec<usize> = (0..self.apps.len()).map(group).collect();
        let members =
            |group: usize| self.apps.iter().zip(&groups).filter(move |(_, of)| **of == group).map(|(app, _)| app);
        let whole = |group: usize| App {
            clocks: members(group).map(|app| app.clocks).sum(),
            fixed: members(group).find_map(fixed),
        };
        let apps = (0..leaders.len()).map(whole).collect();
        let link = |flow: &LinkFlow| Link {
            from: groups[flow.ends[0]],
            to: groups[flow.ends[1]],
            packets: flow.packets,
            send_clocks: clocks(flow, self.crossing.send),
            receive_clocks: clocks(flow, self.crossing.receive),
        };
        let between = self.flows.iter().filter(|flow| groups[flow.ends[0]] != groups[flow.ends[1]]);
        let problem = Problem { apps, links: between.map(link).collect(), workers };
        let today: Option<Vec<usize>> = leaders.iter().map(|&leader| position(&self.apps[leader])).collect();
        let found = place(&problem, today.as_deref());
        let found = match today {
            Some(today) if is_as_good(&problem, &today, &found) => Placement { workers: today, ..found },
            _ => found,
        };
        let of_app: Vec<usize> = groups.iter().map(|&group| found.workers[group]).collect();
        let labels = self.labels(&problem, &of_app, &names);
        let loads = problem.loads(&found.workers);
        let load = |part: usize| Load {
            name: names[labels[part]].clone(),
            cpu: None,
            apps: self
                .apps
                .iter()
                .zip(&of_app)
                .filter(|(_, at)| **at == part)
                .map(|(app, _)| app.name.clone())
                .collect(),
            clocks_per_packet: self.per_packet(loads[part] as f64),
        };
        let mut parts: Vec<usize> = (0..workers).collect();
        parts.sort_by_key(|&part| labels[part]);
        let loads = parts.into_iter().map(load).filter(|load| !load.apps.is_empty()).collect();
        Proposal { plan: self.plan(loads, |app| of_app[app]), is_exact: found.is_exact }
    }

    /// As [`propose`](Costs::propose). Unless the network has crossings of its own, the cost of a crossing is measured:
    /// at first between the processors that `pairs` returns without a placement, then between those of the placement
    /// found, because another cost may lead to another placement.
    ///
    /// # Panics
    /// As [`propose`](Costs::propose).
    pub fn propose_measured(
        &mut self,
        workers: usize,
        kept: &[String],
        meter: &mut CrossingMeter,
        pairs: impl Fn(&Costs, Option<&PlacementPlan>) -> Vec<ProcessorPair>,
    ) -> Proposal {
        if workers < 2 {
            self.assume("nothing crosses with one worker");
        }
        if workers < 2 || self.crossing.measured {
            return self.propose(workers, kept);
        }
        self.crossing = meter.between(&pairs(self, None));
        let mut proposal = self.propose(workers, kept);
        for _ in 1..MAX_SEARCHES {
            let crossing = meter.between(&pairs(self, Some(&proposal.plan)));
            if crossing.source != CrossingSource::Processors || crossing.is_near(&self.crossing) {
                break;
            }
            self.crossing = crossing;
            proposal = self.propose(workers, kept);
        }
        proposal
    }

    /// Says why the cost of a crossing is assumed, unless it is measured.
    pub fn assume(&mut self, why: &str) {
        if !self.crossing.measured {
            self.crossing = CrossingCost::assumed(why);
        }
    }

    /// The names of the workers to use: those of kept apps, then the others of today, then new ones.
    fn names(&self, workers: usize, kept: &[String]) -> Vec<String> {
        let kept = self.kept_workers(kept);
        assert!(kept.len() <= workers, "too few workers for the kept apps");
        let others = (0..self.workers.len()).filter(|worker| !kept.contains(worker));
        let known = kept.iter().copied().chain(others).map(|worker| self.workers[worker].clone());
        let new = (1..).map(|number| format!("worker-{number}")).filter(|name| !self.workers.contains(name));
        let mut names: Vec<String> = known.chain(new).take(workers).collect();
        // The engine's own thread is listed first.
        names.sort_by_key(|name| {
            (name != MAIN, self.workers.iter().position(|known| known == name).unwrap_or(usize::MAX))
        });
        names
    }

    /// The name of each part of a placement: parts without fixed apps take the name of the worker with which they share
    /// most, so that few apps move.
    fn labels(&self, problem: &Problem, found: &[usize], names: &[String]) -> Vec<usize> {
        let mut labels: Vec<Option<usize>> = vec![None; names.len()];
        problem.apps.iter().filter_map(|app| app.fixed).for_each(|worker| labels[worker] = Some(worker));
        let shared = |part: usize, name: usize| {
            let apps = self.apps.iter().zip(found);
            apps.filter(|(app, at)| **at == part && self.workers[app.worker] == names[name]).count()
        };
        let mut pairs: Vec<(usize, usize, usize)> = (0..names.len())
            .flat_map(|part| (0..names.len()).map(move |name| (part, name)))
            .map(|(part, name)| (shared(part, name), part, name))
            .collect();
        let first_app = |part: usize| found.iter().position(|at| *at == part).unwrap_or(usize::MAX);
        // Parts without apps take what remains.
        pairs.sort_by_key(|&(apps, part, name)| {
            (first_app(part) == usize::MAX, std::cmp::Reverse(apps), first_app(part), name, part)
        });
        for (_, part, name) in pairs {
            if labels[part].is_none() && !labels.contains(&Some(name)) {
                labels[part] = Some(name);
            }
        }
        labels.into_iter().flatten().collect()
    }
}

/// Whether a placement is as good as the best one found, within what can be measured.
fn is_as_good(problem: &Problem, workers: &[usize], best: &Placement) -> bool {
    let cost = problem.cost(workers);
    cost.load as f64 * (1.0 - MIN_GAIN) <= best.cost.load as f64 && cost.crossing <= best.cost.crossing
}

/// Rejects an app that was sampled too rarely.
fn check(name: &str, rows: &[&CostRow]) -> Result<(), TooLittle> {
    let sum = |of: fn(&CostRow) -> u64| rows.iter().map(|row| of(row)).fold(0, u64::saturating_add);
    let (calls, sampled) = (sum(|row| row.sampled.calls), sum(|row| row.sampled.packets));
    match calls >= MIN_SAMPLED_CALLS && sampled >= MIN_SAMPLED_PACKETS {
        true => Ok(()),
        false => Err(TooLittle::Samples { app: name.to_owned(), sampled, calls }),
    }
}

fn flows(change: &Change, apps: &[Measured]) -> Vec<LinkFlow> {
    let position: BTreeMap<&str, usize> = apps.iter().enumerate().map(|(at, app)| (app.name.as_str(), at)).collect();
    let app = |end: &str| position.get(end.rsplit_once('.').map_or(end, |(app, _)| app)).copied();
    let flow = |(before, link): (Option<&bellows_observe::LinkCounts>, &bellows_observe::LinkCounts)| {
        let packets = link.packets.saturating_sub(before.map_or(0, |before| before.packets));
        let ends = [app(&link.from)?, app(&link.to)?];
        Some(LinkFlow { name: format!("{} -> {}", link.from, link.to), ends, packets })
    };
    change.link_counts().filter_map(flow).collect()
}

/// The cost of the network's own crossings. Those whose sender often found the ring full are left out, because its cost
/// is then that of trying again.
fn crossing_cost(change: &Change, accounts: &Accounts) -> CrossingCost {
    let names: Vec<&str> = change.after.counters.crossings.iter().map(|side| side.name.as_str()).collect();
    let row = |name: &str, entry: &str| accounts.rows.iter().find(|row| row.app == name && row.entry == entry);
    let mut sums = [[0.0; 2]; 2];
    for sides in names.chunks_exact(2) {
        let (Some(left), Some(arrived)) = (row(sides[0], "push"), row(sides[1], "pull")) else { continue };
        let is_free = left.packets_per_call() >= arrived.packets_per_call().map(|each| each / 2.0);
        for (sum, row) in sums.iter_mut().zip([left, arrived]) {
            if is_free && row.sampled.clocks_per_packet().is_some() && row.sampled.packets >= MIN_SAMPLED_PACKETS {
                sum[0] += row.sampled.clocks as f64;
                sum[1] += row.sampled.packets as f64;
            }
        }
    }
    let [send, receive] = sums.map(|[clocks, packets]| clocks / packets);
    match send.is_finite() && receive.is_finite() {
        true => CrossingCost::in_network(send, receive),
        false => CrossingCost::assumed("too few packets cross in this network"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crossings::{PairCost, RECEIVE_CLOCKS, SEND_CLOCKS};
    use crate::testing::{app, second};
    use bellows_observe::{AppCounts, LinkCounts, WorkerCounts};

    /// A source or another app that takes `clocks` for each of a million packets.
    fn costing(name: &str, worker: &str, clocks: u64) -> AppCounts {
        let entry = if name.starts_with('s') { "pull" } else { "push" };
        let keys = ["calls", "packets", "clocks"].map(|key| format!("{entry}_{key}"));
        let account: Vec<(&str, u64)> = keys.iter().map(String::as_str).zip([100, 10_000, 10_000 * clocks]).collect();
        let counts = app(name, [1_000_000, 1_000_000], &[(entry, 10_000)], &account);
        AppCounts { worker: worker.to_owned(), ..counts }
    }

    fn network(apps: Vec<AppCounts>, links: &[(&str, &str)]) -> Change {
        let mut change = second(vec![], apps);
        let counters = &mut change.after.counters;
        let link = |&(from, to): &(&str, &str)| LinkCounts {
            from: format!("{from}.output"),
            to: format!("{to}.input"),
            packets: 1_000_000,
            ..LinkCounts::default()
        };
        counters.links = links.iter().map(link).collect();
        let mut names: Vec<String> = counters.apps.iter().map(|app| app.worker.clone()).collect();
        names.dedup();
        counters.workers = names.into_iter().map(|name| WorkerCounts { name, ..WorkerCounts::default() }).collect();
        Change::between(change.before, change.after)
    }

    fn chains() -> Change {
        let apps = [("s1", 100), ("a1", 300), ("s2", 100), ("a2", 200)];
        network(apps.map(|(name, clocks)| costing(name, "main", clocks)).to_vec(), &[("s1", "a1"), ("s2", "a2")])
    }

    #[test]
    fn chains_are_spread_over_workers() {
        let costs = Costs::of(&chains()).unwrap();
        let CrossingCost { send, receive, source, .. } = costs.crossing;
        assert_eq!((send, receive, source), (SEND_CLOCKS, RECEIVE_CLOCKS, CrossingSource::Assumed));
        let today = costs.today();
        assert_eq!((today.workers.len(), today.bottleneck(), today.packets_per_second), (1, 700.0, 1e9 / 700.0));
        let Proposal { plan, is_exact } = costs.propose(2, &[]);
        let names: Vec<(&str, Vec<&str>)> = plan
            .workers
            .iter()
            .map(|load| (load.name.as_str(), load.apps.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(names, [("main", vec!["s1", "a1"]), ("worker-1", vec!["s2", "a2"])]);
        assert_eq!((plan.bottleneck(), plan.crossings_per_packet, is_exact), (400.0, 0.0, true));
        assert_eq!(costs.crossings(&plan), [vec![], vec![]]);
        assert_eq!(plan.apps()["a2"], "worker-1");
    }

    #[test]
    fn apps_that_are_tied_move_together() {
        let mut costs = Costs::of(&chains()).unwrap();
        let names: Vec<String> = costs.apps().map(str::to_owned).collect();
        let worker_of = |proposal: &Proposal, app: usize| proposal.plan.apps()[&names[app]].clone();
        let apart = costs.propose(2, &[]);
        // The first app and one that goes elsewhere by itself.
        let other = (1..names.len()).find(|&app| worker_of(&apart, app) != worker_of(&apart, 0)).unwrap();
        costs.tie([(&*names[other], &*names[0])]);
        let tied = costs.propose(2, &[]);
        assert_eq!(worker_of(&tied, other), worker_of(&tied, 0));
        assert_eq!(tied.plan.apps().len(), names.len());
    }

    #[test]
    fn kept_apps_stay_and_workers_keep_their_names() {
        let apps = vec![costing("s1", "main", 100), costing("a1", "disk", 400), costing("b1", "other", 10)];
        let costs = Costs::of(&network(apps, &[("s1", "a1"), ("a1", "b1")])).unwrap();
        let plan = costs.propose(2, &["b1".to_owned()]).plan;
        assert_eq!(plan.apps()["b1"], "other", "{plan:?}");
        assert_eq!(costs.workers_of(&["b1".to_owned(), "s1".to_owned()]), 2);
        let free = costs.propose(2, &[]).plan;
        // A second crossing would cost more than it saves.
        assert_eq!((&*free.apps()["a1"], free.crossing_links.len()), ("disk", 1), "{free:?}");
        assert_eq!(costs.packets_of("a1"), 2_000_000);
    }

    #[test]
    fn crossings_of_the_network_give_their_own_cost() {
        let mut change = chains();
        let side = |name: &str, entry: &str, calls: u64, clocks: u64| {
            let keys = ["calls", "packets", "clocks"].map(|key| format!("{entry}_{key}"));
            let account: Vec<(&str, u64)> = keys.iter().map(String::as_str).zip([100, 1_000, clocks]).collect();
            let [taken, sent] = if entry == "push" { [1_000_000, 0] } else { [0, 1_000_000] };
            app(name, [taken, sent], &[(entry, calls)], &account)
        };
        let both = |calls| vec![side("x, leaving", "push", calls, 7_000), side("x, arriving", "pull", 10_000, 2_000)];
        change.after.counters.crossings = both(10_000);
        let cost = Costs::of(&Change::between(change.before.clone(), change.after.clone())).unwrap().crossing;
        assert_eq!(cost, CrossingCost::in_network(7.0, 2.0));
        // A sender that tries again and again.
        change.after.counters.crossings = both(100_000);
        assert!(!Costs::of(&Change::between(change.before, change.after)).unwrap().crossing.measured);
    }

    /// A chain of two apps, whose placement on two workers takes two equal parts and a crossing.
    fn chain() -> Costs {
        let apps = vec![costing("s1", "main", 100), costing("a1", "main", 100)];
        Costs::of(&network(apps, &[("s1", "a1")])).unwrap()
    }

    /// A meter of crossings that cost this many clocks to send, given the receiver.
    fn meter(send: fn(usize) -> f64) -> CrossingMeter {
        CrossingMeter::new(move |sender, receiver| {
            let send = send(receiver);
            Ok(PairCost { sender, receiver, packets_per_vector: 128, send, receive: 2.0, latency_ns: 100.0 })
        })
    }

    #[test]
    fn a_chain_is_split_at_a_cheap_crossing_and_not_at_a_dear_one() {
        for (mut meter, expected) in [(meter(|_| 10.0), vec![110.0, 102.0]), (meter(|_| 150.0), vec![200.0])] {
            let mut costs = chain();
            let plan = costs.propose_measured(2, &[], &mut meter, |_, _| vec![([0, 1], 1)]).plan;
            let loads: Vec<f64> = plan.workers.iter().map(|load| load.clocks_per_packet).collect();
            assert_eq!(loads, expected);
            assert_eq!((costs.crossing.source, costs.crossing.pairs.len()), (CrossingSource::Processors, 1));
        }
    }

    #[test]
    fn crossings_between_the_processors_of_a_placement_lead_to_another_one() {
        let far_if_placed = |_: &Costs, plan: Option<&PlacementPlan>| match plan {
            Some(plan) if plan.crossing_links.is_empty() => Vec::new(),
            Some(_) => vec![([0, 2], 1)],
            None => vec![([0, 1], 1)],
        };
        let mut costs = chain();
        let mut meter = meter(|receiver| if receiver == 2 { 150.0 } else { 10.0 });
        let plan = costs.propose_measured(2, &[], &mut meter, far_if_placed).plan;
        assert_eq!((plan.workers.len(), costs.crossing.send), (1, 150.0));
    }

    #[test]
    fn nothing_is_measured_that_is_known_or_does_not_matter() {
        let mut never = CrossingMeter::new(|_, _| panic!("this pair is not needed"));
        let mut costs = chain();
        costs.propose_measured(1, &[], &mut never, |_, _| vec![([0, 1], 1)]);
        assert_eq!(costs.crossing.why_assumed.as_deref(), Some("nothing crosses with one worker"));
        costs.crossing = CrossingCost::in_network(7.0, 2.0);
        costs.propose_measured(2, &[], &mut never, |_, _| vec![([0, 1], 1)]);
        assert_eq!(costs.crossing, CrossingCost::in_network(7.0, 2.0));
    }

    #[test]
    fn what_is_lacking_is_named() {
        let apps = vec![
            costing("s1", "main", 1),
            app("a1", [9, 0], &[("push", 9)], &[("push_packets", 5), ("push_calls", 1)]),
        ];
        let lacking = Costs::of(&network(apps.clone(), &[("s1", "a1")])).unwrap_err();
        assert_eq!(lacking, TooLittle::Samples { app: "a1".to_owned(), sampled: 5, calls: 1 });
        assert!(lacking.to_string().contains("5 packets of `a1` were sampled in 1 calls; 256 packets"), "{lacking}");
        assert_eq!(Costs::of(&network(apps, &[])).unwrap_err(), TooLittle::NoPackets);
    }
}
