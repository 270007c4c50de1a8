//! What tests of whole engines share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use bellows_engine::{Control, Engine, Network, Outcome, Settings};
use bellows_observe::{AppCounts, Snapshot};

/// Runs a network on a thread of its own, as its first worker wants it, while `act` does something with it. Then stops
/// it.
pub fn with_running<T>(network: Network, settings: Settings, act: impl FnOnce(&Control) -> T) -> (T, Outcome) {
    let main = network.workers.first().cloned().unwrap_or_default();
    let mut engine = Engine::new(network, settings, None).unwrap();
    let control = engine.control();
    let running = thread::spawn(move || {
        main.settle().unwrap();
        let end = engine.run();
        engine.finish(end)
    });
    let acted = catch_unwind(AssertUnwindSafe(|| act(&control)));
    control.stop();
    let outcome = running.join().unwrap();
    (acted.unwrap_or_else(|panic| resume_unwind(panic)), outcome)
}

/// Checks every term of the books as a reader of a report sees it.
pub fn check_books(snapshot: &Snapshot) {
    assert_eq!(snapshot.imbalances(), []);
    let apps = || snapshot.apps.iter().chain(&snapshot.gone.apps);
    for app in apps() {
        let [came, went] = [app.in_packets + app.made, app.out_packets + app.dropped() + app.ended + app.held];
        assert_eq!(came, went, "{app:#?}");
    }
    let sum = |of: fn(&AppCounts) -> u64| apps().map(of).sum::<u64>();
    let waiting: u64 = snapshot.links.iter().map(|link| link.waiting).sum();
    assert_eq!(sum(|app| app.made), snapshot.dropped() + sum(|app| app.ended) + sum(|app| app.held) + waiting);
}

/// A processor that this process may run on.
pub fn allowed_processor() -> usize {
    bellows_sys::cpu::allowed_to_process()[0]
}
