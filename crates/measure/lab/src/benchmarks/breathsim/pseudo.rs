//! The pseudo-apps, each of its own type, their network, and the same work without an engine.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use bellows_engine::{App, AppError, End, Engine, Io, Network, Port, Ports, Settings, Watched};
use bellows_packet::Packet;

use crate::workers::fail;

/// The work of a busy app: adds to its counter again and again.
///
/// Each addition is a load, an add and a store, which the optimizer may not combine. Each app adds a different number,
/// which costs the same and prevents the compiler from merging the apps' functions.
#[inline(always)]
fn increments<const N: u64>(counter: &mut u64, work: u64) {
    for _ in 0..work {
        *counter += N;
        black_box(&*counter);
    }
}

/// Pseudo-app number N.
struct Pseudo<const N: u64> {
    counter: u64,
    work: u64,
    /// Receives the final count.
    counted: Arc<AtomicU64>,
}

impl<const N: u64> App for Pseudo<N> {
    const INPUTS: Ports =
        Ports::Named(&[Port::required("input", "a packet, which stays there and keeps the app busy")]);

    fn push(&mut self, _: &Io<Self>) {
        increments::<N>(&mut self.counter, self.work);
    }

    fn stop(&mut self) -> Result<(), AppError> {
        self.counted.store(self.counter, Relaxed);
        Ok(())
    }
}

/// A word that says whether the feeder is to send.
#[derive(Default)]
struct FeederOrder(AtomicU32);

impl Watched for FeederOrder {
    fn word(&self) -> Option<&AtomicU32> {
        Some(&self.0)
    }
}

/// Sends one packet on each output when told to, once. Until then the breath tests its slot and does not call it.
struct Feeder {
    order: Arc<FeederOrder>,
}

impl App for Feeder {
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "one packet" };

    fn slots(&self) -> usize {
        1
    }

    fn tick(&mut self, io: &Io<Self>) {
        io.slot(0).watch(Arc::clone(&self.order), u32::MAX, 0);
    }

    fn pull(&mut self, io: &Io<Self>) {
        io.slot(0).never();
        for output in 0..io.outputs() {
            for packet in Packet::allocate_burst(1) {
                io.output(output).push(packet);
            }
        }
    }
}

fn add<const N: u64>(network: Network, work: u64, counted: &Arc<AtomicU64>) -> Network {
    let name = format!("app{N}");
    let network = network.app(&name, Pseudo::<N> { counter: 0, work, counted: Arc::clone(counted) });
    network.link(&format!("feeder.output{N} -> {name}.input")).unwrap_or_else(|error| fail(&error))
}

type Add = fn(Network, u64, &Arc<AtomicU64>) -> Network;

fn push_of<const N: u64>() -> usize {
    black_box(<Pseudo<N> as App>::push as fn(&mut Pseudo<N>, &Io<Pseudo<N>>) as usize)
}

macro_rules! numbered {
    ($($number:literal)*) => {
        /// Adds the app of each number to a network.
        const ADD: &[Add] = &[$(add::<$number>),*];

        /// The code address of each app.
        const PUSHES: &[fn() -> usize] = &[$(push_of::<$number>),*];

        /// The work of as many apps as there are counters, in straight-line code.
        fn straight(counters: &mut [u64], work: u64) {
            $(
                let Some(counter) = counters.get_mut($number - 1) else { return };
                increments::<$number>(counter, work);
            )*
        }
    };
}

numbered! {
     1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
}

/// The maximum number of pseudo-apps in a network: the number of their types.
pub const MAX_APPS: usize = ADD.len();

/// Whether each app has its own code after compiling and linking.
fn are_distinct() -> bool {
    PUSHES.iter().map(|push| push()).collect::<BTreeSet<usize>>().len() == PUSHES.len()
}

/// An engine with pseudo-apps.
pub struct Simulation {
    engine: Engine,
    order: Arc<FeederOrder>,
    work: u64,
    counted: Vec<Arc<AtomicU64>>,
}

impl Simulation {
    /// An engine with idle apps, or the reason why its schedule is unavailable.
    pub fn new(apps: usize, work: u64, settings: Settings) -> Result<Simulation, String> {
        if !are_distinct() {
            fail(
                &"this program was built with one function for several pseudo-apps; build it without merging functions",
            );
        }
        let order = Arc::new(FeederOrder::default());
        let counted: Vec<Arc<AtomicU64>> = (0..apps).map(|_| Arc::default()).collect();
        let network = Network::new().app("feeder", Feeder { order: Arc::clone(&order) });
        let network = ADD.iter().zip(&counted).fold(network, |network, (add, counted)| add(network, work, counted));
        let engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
        match engine.snapshot().fallback_reason {
            fallback_reason if fallback_reason.is_empty() => Ok(Simulation { engine, order, work, counted }),
            fallback_reason => Err(fallback_reason),
        }
    }

    /// Takes `breaths` breaths.
    pub fn breathe(&mut self, breaths: u64) {
        self.engine.breathe_times(breaths);
    }

    /// Makes all apps busy from the next breath on.
    pub fn get_busy(&self) {
        self.order.0.store(1, Relaxed);
    }

    /// Ends the run, and fails unless every app was called in exactly `busy` breaths.
    pub fn finish(self, busy: u64) -> Result<(), String> {
        let Simulation { engine, work, counted, .. } = self;
        engine.finish(End::Stopped);
        for (number, counted) in (1..).zip(&counted) {
            let (counted, expected) = (counted.load(Relaxed), number * work * busy);
            if counted != expected {
                return Err(format!(
                    "app{number} counted to {counted} instead of {expected}: the engine did not call it in each of the \
                     {busy} busy breaths and in no other, so that the time means nothing"
                ));
            }
        }
        Ok(())
    }
}

/// The work of busy apps without an engine.
pub struct Bare {
    counters: Vec<u64>,
    work: u64,
}

impl Bare {
    pub fn new(apps: usize, work: u64) -> Bare {
        Bare { counters: vec![0; apps], work }
    }

    pub fn breathe(&mut self, breaths: u64) {
        for _ in 0..breaths {
            straight(&mut self.counters, self.work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_app_has_code_of_its_own() {
        assert_eq!(MAX_APPS, 64);
        assert!(are_distinct());
    }

    #[test]
    fn the_work_is_the_same_without_an_engine() {
        let mut bare = Bare::new(3, 100);
        bare.breathe(2);
        assert_eq!(bare.counters, [200, 400, 600]);
    }
}
