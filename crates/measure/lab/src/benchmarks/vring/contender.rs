//! A worker's rings: a driver and a device at the two ends of each, and the device's timed calls.

use std::fs::File;
use std::sync::Arc;

use bellows_ipc::notify::Notifiers;
use bellows_packet::{Packet, Template, Vector, free_all, push_filled};
use bellows_sys::clock;
use bellows_sys::wake::PeerEvent;
use bellows_virtio::driver::{Chains, Driver, DriverConfig, QueuePair};
use bellows_virtio::ring::{Position, ReceiveRing, Setup, TransmitRing};
use bellows_virtio::vhost::{Placed, QueueLayout};
use bellows_virtio::{Memory, RegionSpec};

use super::bare::BareRing;
use super::{BATCHES, Chain, RING, Ring, RingHistory, VringTask, WARM_UP};
use crate::slices::{Sliced, Turn};
use crate::timing::lower_quartile;
use crate::workers::{Contender, fail, settle};

/// The size of packets when a ring with a history is measured.
pub(super) const HISTORY_SIZE: usize = 60;

/// Lays out a ring in a fresh process.
///
/// # Errors
/// None: a failure ends the process.
pub(super) fn lay_out(task: VringTask) -> Result<Box<dyn Contender>, String> {
    settle(task.options.common.cpu);
    Ok(Box::new(Rings::of(task)))
}

/// The worker's side: a ring for each size, and one with a history.
struct Rings {
    ring: Ring,
    costs: Vec<(usize, Bench)>,
    bare: Option<BareRing>,
    history: Option<(RingHistory, Bench)>,
    rounds: usize,
    stage: usize,
}

impl Rings {
    fn of(task: VringTask) -> Rings {
        let VringTask { ring, costs, history, options } = task;
        let bench = |size: usize| {
            let mut bench = Bench::new(ring, options.batch);
            bench.pass(size, options.rounds / 4);
            bench
        };
        let costs = if costs { options.size.iter().map(|&size| (size, bench(size))).collect() } else { Vec::new() };
        let history = history.map(|history| (history, bench(HISTORY_SIZE)));
        let bare = (!costs.is_empty()).then(|| BareRing::new(ring, options.batch));
        Rings { ring, costs, bare, history, rounds: options.rounds, stage: 0 }
    }
}

impl Contender for Rings {
    fn turn(&mut self) -> Turn {
        let batches = BATCHES.min(self.rounds).max(1);
        let (mut figures, mut parts) = (Vec::new(), Vec::new());
        if self.stage == 0 {
            for (size, bench) in &mut self.costs {
                let (cost, time) = bench.measure(*size, batches);
                figures.extend([cost.call, cost.free, cost.whole(bench.receiving)]);
                parts.push(time);
            }
        }
        if let Some((_, bench)) = &mut self.history {
            let (cost, time) = bench.measure(HISTORY_SIZE, batches);
            figures.push(cost.whole(bench.receiving));
            parts.push(time);
        }
        if self.stage == 0
            && let Some(bare) = &mut self.bare
        {
            for (size, _) in &self.costs {
                let template = Template::new(&vec![0x5a; *size]).unwrap_or_else(|| fail(&"no template"));
                let (clocks, time) = bare.measure(&template, WARM_UP, batches);
                figures.push(clocks);
                parts.push(time);
            }
        }
        Turn::of(figures, &parts)
    }

    /// Other sizes first, then other chains.
    fn advance(&mut self) {
        let Rings { ring, history, rounds, stage, .. } = self;
        *stage += 1;
        let Some((history, bench)) = history else { return };
        let others = match (*history, *stage) {
            (RingHistory::Nothing, _) => vec![(ring.chain, HISTORY_SIZE); 4],
            (RingHistory::Others, 1) => [1_500, 64, 590, 1_024].map(|size| (ring.chain, size)).to_vec(),
            (RingHistory::Others, _) => Chain::ALL.map(|chain| (chain, HISTORY_SIZE)).to_vec(),
        };
        for (chain, size) in others {
            bench.set_chain(chain);
            bench.pass(size, *rounds / 4);
        }
        bench.set_chain(ring.chain);
        bench.pass(HISTORY_SIZE, *rounds / 4);
    }
}

/// Clocks per packet.
#[derive(Clone, Copy, Debug)]
struct RingCost {
    /// The device's call.
    call: f64,
    /// Freeing the packets afterwards.
    free: f64,
}

impl RingCost {
    /// The total that a figure counts: the call, plus freeing if packets go to the driver.
    fn whole(self, receiving: bool) -> f64 {
        self.call + if receiving { self.free } else { 0.0 }
    }
}

/// The driver's name for a layout.
impl From<Chain> for Chains {
    fn from(chain: Chain) -> Chains {
        match chain {
            Chain::Single => Chains::Single,
            Chain::Chained => Chains::Chained,
            Chain::Indirect => Chains::Indirect,
        }
    }
}

/// A driver and a device at the two ends of a ring.
struct Bench {
    queues: QueuePair,
    transmit: TransmitRing,
    receive: ReceiveRing,
    receiving: bool,
    batch: usize,
    /// The packets of a batch.
    vector: Vector,
}

impl Bench {
    fn new(ring: Ring, batch: usize) -> Bench {
        let features = ring.features();
        let config = DriverConfig { features, pairs: 1, ring_size: RING, chains: ring.chain.into() };
        let notifiers = Notifiers::new(4, 0).unwrap_or_else(|error| fail(&error));
        let placed: Placed<Driver> = Driver::place(config, &notifiers).unwrap_or_else(|error| fail(&error));
        let Placed { mut driver, memory, queues } = placed;
        let specs = memory.into_iter().map(|shared| RegionSpec {
            guest: shared.address,
            length: shared.length,
            user: shared.address,
            offset: shared.offset,
            file: shared.file,
        });
        let memory = Arc::new(Memory::map(specs.collect()).unwrap_or_else(|error| fail(&error)));
        let calls = [notifiers.get(2), notifiers.get(3)];
        let mut setups = queues.into_iter().zip(calls).map(|(QueueLayout { areas, size, call, kick }, notifier)| {
            notifier.set(call.map(Into::into)).unwrap_or_else(|error| fail(&error));
            let listen = |kick: File| PeerEvent::new(kick.into()).unwrap_or_else(|error| fail(&error));
            Setup {
                memory: Arc::clone(&memory),
                features,
                size,
                areas,
                position: Position::start(features),
                call: Some(notifier),
                kick: kick.map(listen),
            }
        });
        let mut setup = || setups.next().unwrap_or_else(|| fail(&"a pair of queues"));
        let mut receive = ReceiveRing::new(setup()).unwrap_or_else(|error| fail(&error));
        let mut transmit = TransmitRing::new(setup()).unwrap_or_else(|error| fail(&error));
        receive.set_copies(ring.copies.how());
        transmit.set_copies(ring.copies.how());
        // As in a polling engine: the driver's kicks would be system calls between the device's calls.
        receive.doorbell().disarm();
        transmit.doorbell().disarm();
        let queues = driver.pairs.pop().unwrap_or_else(|| fail(&"a pair of queues"));
        Bench { queues, transmit, receive, receiving: ring.receive, batch, vector: Vector::new() }
    }

    fn set_chain(&mut self, chain: Chain) {
        self.queues.transmit.set_chains(chain.into());
        self.queues.receive.set_chains(chain.into());
    }

    /// Times `batches` batches of packets of one size, after a warm-up.
    fn measure(&mut self, size: usize, batches: usize) -> (RingCost, Sliced) {
        self.pass(size, WARM_UP);
        let template = Template::new(&vec![0x5a; size]).unwrap_or_else(|| fail(&"no template"));
        let times: Vec<(f64, f64)> = (0..batches).map(|_| self.batch(&template)).collect();
        let [calls, frees]: [Vec<f64>; 2] = [|(call, _): &(f64, f64)| *call, |(_, free): &(f64, f64)| *free]
            .map(|part: fn(&(f64, f64)) -> f64| times.iter().map(part).collect());
        let packets = self.batch as u64;
        let slices: Vec<(u64, f64)> =
            times.iter().map(|(call, free)| (packets, (call + free) * packets as f64)).collect();
        (RingCost { call: lower_quartile(&calls), free: lower_quartile(&frees) }, Sliced::of(&slices))
    }

    /// Passes `batches` untimed batches of packets of one size.
    fn pass(&mut self, size: usize, batches: usize) {
        let template = Template::new(&vec![0x5a; size]).unwrap_or_else(|| fail(&"no template"));
        for _ in 0..batches {
            self.batch(&template);
        }
    }

    /// One batch. Returns clocks per packet of the device's call, and of freeing the packets.
    fn batch(&mut self, template: &Template) -> (f64, f64) {
        if self.receiving { self.rx(template) } else { self.tx(template) }
    }

    /// A batch to the driver.
    fn rx(&mut self, template: &Template) -> (f64, f64) {
        let batch = self.batch;
        self.fill(template);
        let start = clock::ticks();
        let taken = self.receive.receive(self.vector.as_slice());
        let middle = clock::ticks();
        free_all(&mut self.vector);
        let end = clock::ticks();
        if taken.map(|taken| taken.count).ok() != Some(batch) {
            fail(&format!("the ring took {taken:?} instead of {batch} packets"));
        }
        let came = self.queues.receive.receive(&mut self.vector, batch);
        self.check(came.ok(), template);
        (self.per_packet(middle - start), self.per_packet(end - middle))
    }

    /// A batch from the driver.
    fn tx(&mut self, template: &Template) -> (f64, f64) {
        let batch = self.batch;
        self.fill(template);
        let sent = self.queues.transmit.transmit(self.vector.as_slice());
        if sent.map(|sent| sent.count).ok() != Some(batch) {
            fail(&format!("the driver sent {sent:?} instead of {batch} packets"));
        }
        free_all(&mut self.vector);
        let start = clock::ticks();
        let came = self.transmit.transmit(&mut self.vector, batch);
        let middle = clock::ticks();
        let bytes = self.vector.bytes();
        free_all(&mut self.vector);
        let end = clock::ticks();
        if came.ok() != Some(batch) || bytes != (batch * template.len()) as u64 {
            fail(&format!("the ring brought {came:?} instead of {batch} packets"));
        }
        (self.per_packet(middle - start), self.per_packet(end - middle))
    }

    fn fill(&mut self, template: &Template) {
        let filled = push_filled(&mut self.vector, self.batch, template);
        if filled != self.batch {
            fail(&"the pool has too few packets");
        }
    }

    /// Checks that the received packets are those that were sent.
    fn check(&mut self, came: Option<usize>, template: &Template) {
        let right = |packet: &Packet| packet.len() == template.len();
        if came != Some(self.batch) || !self.vector.as_slice().iter().all(right) {
            fail(&format!("the driver received {came:?} instead of {} packets", self.batch));
        }
        free_all(&mut self.vector);
    }

    /// Clocks per packet of a batch, without reading the clock.
    fn per_packet(&self, ticks: u64) -> f64 {
        ticks.saturating_sub(clock::cost()) as f64 / self.batch as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arguments, FIGURES, RingGroup, rings};
    use super::*;
    use crate::bench::parsed;

    #[test]
    fn a_ring_is_measured_in_both_directions_and_with_every_layout() {
        clock::calibrate();
        let options = parsed::<Arguments>(&["--rounds", "8", "--batch", "32", "--with", "indirect"]);
        for ring in rings(&options, true).into_iter().chain(rings(&options, false)) {
            let mut rings = Rings::of(VringTask { ring, costs: true, history: None, options: options.clone() });
            let figures = rings.turn().figures;
            assert!(
                figures.len() == 3 * FIGURES + 3 && figures[2..].iter().step_by(3).all(|&whole| whole > 0.0),
                "{ring:?}: {figures:?}"
            );
        }
        let group = RingGroup { rings: &rings(&options, false)[..2], costs: true, history: true };
        let tasks = group.tasks(&options);
        assert_eq!((tasks.len(), tasks[2].history, group.turns(&options)), (3, Some(RingHistory::Nothing), vec![1; 3]));
        let figures = |task: &VringTask| {
            let mut rings = Rings::of(task.clone());
            let mut stage = || {
                let figures = rings.turn().figures.len();
                rings.advance();
                figures
            };
            [stage(), stage(), stage()]
        };
        assert_eq!((figures(&tasks[0]), figures(&tasks[2])), ([13, 1, 1], [1, 1, 1]), "costs in the first stage only");
    }
}
