//! Packets on their way from one worker to another while neighbours and routes come and go: none may get the header of
//! another neighbour.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use bellows_fib::{TableReader, Tables};
use bellows_shared::Readers;
use bellows_wire::MacAddr;

use super::{IfExists, Vrf};
use crate::adjacency::{Adjacencies, special};
use crate::interface::{Interface, InterfaceAddress};
use crate::route::{IpPrefix, RouteSpec};

/// Vectors between two workers: that of the sender, and the places of the ring.
const PLACES: usize = 9;

/// Neighbours, and as many routes through others.
const COUNT: u8 = 20;

/// Adjacencies, of which there are too few: each is that of many next hops in turn.
const CAPACITY: usize = 12;

fn neighbour(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 1, 10 + number])
}

fn gateway(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 1, 110 + number])
}

/// What is tried.
#[derive(Clone, Copy)]
struct Plan {
    /// One breath of all workers is taken for enough: the error that the test must find.
    is_hasty: bool,
    /// Something in between holds packets for any number of breaths.
    holds: bool,
    spare: usize,
    rest: u64,
}

/// What became of packets.
#[derive(Debug, Default)]
struct Outcome {
    /// Those to whose next hop the adjacency led.
    right: usize,
    /// Those that found another one.
    wrong: usize,
    /// Those that found none.
    lost: usize,
}

/// A packet: the index that the look-up found, and the next hop.
type Tagged = (u32, IpAddr);

/// Two workers: one looks up, the other one rewrites.
struct Workers<'v> {
    vrf: &'v Vrf,
    first: TableReader<'v, Tables<u32>>,
    second: bellows_shared::Reader,
    between: VecDeque<Vec<Tagged>>,
    outcome: Outcome,
}

impl Workers<'_> {
    fn look_up(&mut self) {
        let all = (0..COUNT).map(|number| (neighbour(number), neighbour(number)));
        let all: Vec<_> =
            all.chain((0..COUNT).map(|number| (IpAddr::from([20, number, 0, 1]), gateway(number)))).collect();
        let keys: Vec<u32> = all
            .iter()
            .filter_map(|(destination, _)| match destination {
                IpAddr::V4(destination) => Some(u32::from(*destination)),
                IpAddr::V6(_) => None,
            })
            .collect();
        let mut found = vec![0; keys.len()];
        let has_room = self.between.len() < PLACES;
        let between = &mut self.between;
        // Its end is that of the breath.
        self.first.read(|tables| {
            tables.look_up(&keys, &mut found);
            let is_adjacency = |(index, _): &Tagged| (special::FIRST..bellows_fib::FIRST_GROUP).contains(index);
            let tagged = found.iter().zip(&all).map(|(&index, &(_, next))| (index, next)).filter(is_adjacency);
            if has_room {
                between.push_back(tagged.collect());
            }
        });
    }

    fn rewrite(&mut self) {
        for (index, next) in self.between.pop_front().unwrap_or_default() {
            match self.vrf.adjacencies().get(index) {
                None => self.outcome.lost += 1,
                Some(adjacency) if adjacency.next_hop.is_none_or(|own| own == next) => self.outcome.right += 1,
                Some(_) => self.outcome.wrong += 1,
            }
        }
        self.second.quiescent();
    }
}

fn run(seed: u64, plan: Plan) -> Outcome {
    let interface = Interface {
        name: "a".to_owned(),
        port: "a".to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: vec![InterfaceAddress { address: IpAddr::from([10, 0, 1, 1]), length: 24 }],
    };
    let readers = Arc::new(Readers::new());
    let adjacencies = Adjacencies::with_rest(CAPACITY, plan.spare, plan.rest);
    let vrf = Vrf::with(vec![interface], CAPACITY / 2, 7, adjacencies, Arc::clone(&readers)).unwrap();
    vrf.lock().next_hops.retired.is_hasty = plan.is_hasty;
    let mut workers = Workers {
        vrf: &vrf,
        first: vrf.v4.reader(),
        second: readers.register(|| ()),
        between: VecDeque::new(),
        outcome: Outcome::default(),
    };
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..4_000 {
        let number = random.u8(..COUNT);
        let mut changes = vrf.lock();
        let prefix = format!("20.{number}.0.0/16");
        match random.u8(..10) {
            // Without room, packets take another way: nothing changes.
            0 => drop(changes.resolve(1, neighbour(number), MacAddr([4, 0, 0, 0, 0, number]))),
            1 => changes.unresolve(1, neighbour(number)),
            2 => {
                let route = RouteSpec::parse(&format!("{prefix} via {}", gateway(number))).unwrap();
                let _ = changes.add(&route, IfExists::Replace);
            }
            3 => drop(changes.remove(IpPrefix::V4(prefix.parse().unwrap()), None)),
            4..=6 => workers.look_up(),
            _ if plan.holds && random.u8(..50) != 0 => workers.second.quiescent(),
            _ => workers.rewrite(),
        }
        changes.commit().unwrap();
    }
    workers.outcome
}

/// The sum of several runs.
fn all(plan: Plan) -> Outcome {
    (0..30).map(|seed| run(seed, plan)).fold(Outcome::default(), |sum, one| Outcome {
        right: sum.right + one.right,
        wrong: sum.wrong + one.wrong,
        lost: sum.lost + one.lost,
    })
}

#[test]
fn packets_between_two_workers_keep_their_next_hops() {
    let plan = Plan { is_hasty: false, holds: false, spare: 0, rest: 0 };
    let outcome = all(plan);
    assert!(outcome.right > 10_000 && (outcome.wrong, outcome.lost) == (0, 0), "{outcome:?}");
    let hasty = all(Plan { is_hasty: true, ..plan });
    assert!(hasty.wrong > 0, "the test does not find an index that is used again too early: {hasty:?}");
}

#[test]
fn packets_that_are_held_find_no_other_neighbour() {
    let plan = Plan { is_hasty: false, holds: true, spare: 64, rest: u64::MAX };
    let outcome = all(plan);
    assert!(outcome.right > 0 && outcome.lost > 0 && outcome.wrong == 0, "{outcome:?}");
    let early = all(Plan { spare: 0, rest: 0, ..plan });
    assert!(early.wrong > 0, "the test does not find an index that is used again too early: {early:?}");
}
