//! The assignment of workers to processors.
//!
//! [`assign`] gives each worker a processor of its own, as long as there are enough. It minimises, in this order: the
//! pairs of workers that share a processor or a core; the packets that ports exchange with processors away from their
//! interrupts, and the packets that cross between workers, each counted by the [`distance`]; the workers that change
//! their processor.

/// A processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Its number in the system.
    pub number: usize,
    /// Its core: processors with the same core are its threads.
    pub core: usize,
    /// Its memory node.
    pub node: usize,
}

/// A worker that needs a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// The processor that it runs on today, by number.
    pub today: Option<usize>,
    /// Packets of its ports, each with the numbers of the processors that handle their interrupts.
    pub ports: Vec<(u64, Vec<usize>)>,
    /// Packets that cross to other workers, by their positions.
    pub crossings: Vec<(usize, u64)>,
}

/// How far a processor is from another: 0 if it is the same, 1 within a core, 2 within a memory node, else 4.
pub fn distance(one: Processor, other: Processor) -> u64 {
    match () {
        () if one.number == other.number => 0,
        () if one.core == other.core => 1,
        () if one.node == other.node => 2,
        () => 4,
    }
}

/// The order of assignments.
type Cost = (u64, u128, u64);

/// Assigns each worker to a position among these processors. `all` are those of the machine, which include those with
/// interrupts.
///
/// # Panics
/// If there are no processors.
pub fn assign(workers: &[Worker], usable: &[Processor], all: &[Processor]) -> Vec<usize> {
    assert!(!usable.is_empty(), "no processors");
    let cost = |assigned: &[usize]| cost(workers, usable, all, assigned);
    // Each worker in turn where it is best, once for each place of the first.
    let greedy = |first: usize| {
        let mut assigned = Vec::with_capacity(workers.len());
        for worker in 0..workers.len() {
            let best = (0..usable.len()).min_by_key(|&place| {
                let tried: Vec<usize> = assigned.iter().copied().chain([place]).collect();
                cost(&tried)
            });
            assigned.push(if worker == 0 { first } else { best.unwrap_or(0) });
        }
        improved(assigned, usable.len(), &cost)
    };
    (0..usable.len().min(MAX_STARTS)).map(greedy).min_by_key(|assigned| cost(assigned)).unwrap_or_default()
}

/// The maximum number of places tried for the first worker.
const MAX_STARTS: usize = 16;

/// Exchanges and replaces processors as long as that improves the assignment.
fn improved(mut assigned: Vec<usize>, places: usize, cost: &impl Fn(&[usize]) -> Cost) -> Vec<usize> {
    let mut best = cost(&assigned);
    loop {
        let before = best;
        for worker in 0..assigned.len() {
            for place in 0..places {
                let mut tried = assigned.clone();
                // Its present worker, if any, takes the other place.
                if let Some(other) = tried.iter().position(|&taken| taken == place) {
                    tried[other] = tried[worker];
                }
                tried[worker] = place;
                let reached = cost(&tried);
                if reached < best {
                    (best, assigned) = (reached, tried);
                }
            }
        }
        if best == before {
            return assigned;
        }
    }
}

/// The cost of the first workers' assignment.
fn cost(workers: &[Worker], usable: &[Processor], all: &[Processor], assigned: &[usize]) -> Cost {
    let (mut shared, mut far, mut changed) = (0, 0_u128, 0);
    for (at, (worker, &place)) in workers.iter().zip(assigned).enumerate() {
        let own = usable[place];
        let others = assigned[..at].iter().map(|&other| usable[other]);
        // A shared processor is worse than a shared core.
        shared += others.map(|other| [1000, 1, 0, 0, 0][distance(own, other) as usize]).sum::<u64>();
        for (packets, interrupts) in &worker.ports {
            let handlers = all.iter().filter(|processor| interrupts.contains(&processor.number));
            let nearest = handlers.map(|&handler| distance(own, handler)).min().unwrap_or(0);
            far += u128::from(*packets) * u128::from(nearest);
        }
        for &(other, packets) in worker.crossings.iter().filter(|(other, _)| *other < at) {
            far += u128::from(packets) * u128::from(distance(own, usable[assigned[other]]));
        }
        changed += u64::from(worker.today.is_some_and(|today| today != own.number));
    }
    (shared, far, changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two memory nodes of two cores with two threads each, numbered as Linux does: the second threads come last.
    fn machine() -> Vec<Processor> {
        (0..8).map(|number| Processor { number, core: number % 4, node: number % 4 / 2 }).collect()
    }

    fn numbers(workers: &[Worker], usable: &[Processor]) -> Vec<usize> {
        assign(workers, usable, &machine()).into_iter().map(|place| usable[place].number).collect()
    }

    #[test]
    fn workers_have_cores_of_their_own_in_one_memory_node() {
        let crossing = Worker { crossings: vec![(0, 10)], ..Worker::default() };
        let found = numbers(&[Worker::default(), crossing], &machine());
        let [one, other] = [machine()[found[0]], machine()[found[1]]];
        assert_eq!((one.core != other.core, one.node), (true, other.node), "{found:?}");
    }

    #[test]
    fn ports_are_beside_their_interrupts() {
        let port = |number| Worker { ports: vec![(100, vec![number])], ..Worker::default() };
        assert_eq!(numbers(&[port(3), port(1)], &machine()), [3, 1]);
        // The other thread of the same core, if that is usable alone.
        let usable = [machine()[0], machine()[7]];
        assert_eq!(numbers(&[port(3)], &usable), [7]);
    }

    #[test]
    fn cores_of_their_own_come_before_short_ways() {
        let port = |number| Worker { ports: vec![(100, vec![number])], ..Worker::default() };
        let found = numbers(&[port(2), port(6)], &machine());
        assert!(machine()[found[0]].core != machine()[found[1]].core, "{found:?}");
        assert_eq!(machine()[found[0]].node, machine()[found[1]].node);
    }

    #[test]
    fn a_worker_stays_on_its_processor() {
        let on = |today| Worker { today, ..Worker::default() };
        assert_eq!(numbers(&[on(Some(5)), on(None), on(Some(2))], &machine())[..3], [5, 0, 2]);
    }

    #[test]
    fn more_workers_than_processors_share_them_evenly() {
        let found = numbers(&vec![Worker::default(); 4], &machine()[..2]);
        assert_eq!(found.iter().filter(|&&number| number == 0).count(), 2, "{found:?}");
    }
}
