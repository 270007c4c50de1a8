//! How long queues take.

use std::time::{Duration, Instant};

use bellows_testkit::eventually;

use crate::support::{NatsServer, Trial};

/// The time from the first start of a run to the last end of one.
fn seconds_of_runs(trial: &Trial) -> f64 {
    let rows = trial.rows();
    let start = |text: &str| bellows_campaign::time::microseconds(text).unwrap() as f64 / 1e6;
    let first = rows.iter().map(|row| start(&row.start)).fold(f64::INFINITY, f64::min);
    let last = rows.iter().map(|row| start(&row.start) + row.seconds).fold(0.0, f64::max);
    last - first
}

#[test]
fn two_workers_are_nearly_twice_as_fast_and_a_run_costs_little() {
    let Some(server) = NatsServer::new("two_workers_are_nearly_twice_as_fast_and_a_run_costs_little") else { return };
    let mut seconds = Vec::new();
    for (name, workers) in [("one", 1), ("two", 2)] {
        let trial = Trial::new(&server, name, 8, "sleep 0.15; echo score=$PPID");
        let mut coordinator = trial.coordinator(&[]);
        eventually("all blocks are in the queue", || trial.status().is_some_and(|it| it["blocks_waiting"] == 8));
        let _workers: Vec<_> = (0..workers).map(|_| trial.worker(&[])).collect();
        assert!(coordinator.wait(), "{}", trial.logs());
        trial.check(8);
        seconds.push(seconds_of_runs(&trial));
    }
    let ratio = seconds[0] / seconds[1];
    assert!(ratio >= 1.9, "two workers are {ratio:.2} times as fast: {seconds:?} s");
    // 24 runs of 150 ms. What is more includes the start of a shell, and the measurement of the processor.
    let added = (seconds[0] - 24.0 * 0.15) / 24.0;
    assert!(added < 0.03, "{:.1} ms are added to a run", added * 1e3);
}

#[test]
fn workers_wait_for_a_coordinator_and_end_with_the_queue() {
    let Some(server) = NatsServer::new("workers_wait_for_a_coordinator_and_end_with_the_queue") else { return };
    let trial = Trial::new(&server, "ends", 4, "sleep 0.1; echo score=$PPID");
    let mut coordinator = trial.coordinator(&[]);
    let mut worker = trial.worker_later();
    // The coordinator ends at a signal, and the worker makes what is in the queue.
    eventually("a result", || trial.status().is_some_and(|it| it["results"].as_u64() > Some(0)));
    coordinator.signal(rustix::process::Signal::INT);
    assert!(coordinator.wait(), "{}", trial.logs());
    eventually("all results are at the server", || {
        trial.status().is_some_and(|it| it["results"] == 12 && it["blocks_waiting"] == 0 && it["blocks_given"] == 0)
    });
    assert!(trial.rows().len() < 12 && worker.is_alive());
    let status = trial.status().unwrap();
    assert_eq!((&status["coordinator"]["has_ended"], &status["workers"][0]["blocks"]), (&true.into(), &4.into()));
    let start = Instant::now();
    assert!(trial.coordinator(&[]).wait() && worker.wait(), "{}", trial.logs());
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    trial.check(4);
    assert!(trial.status().is_none(), "a queue of which all is recorded is removed");
}
