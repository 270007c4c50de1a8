//! How long queues take.

use std::time::{Duration, Instant};

use bellows_campaign::{Journal, LocalExecutor, Row, Stop, load, read_rows, run};
use bellows_sys::calendar;
use bellows_testkit::eventually;

use crate::support::{NatsServer, Trial};

/// When the run of a row started and ended, in seconds.
fn span(row: &Row) -> (f64, f64) {
    let start = calendar::microseconds(&row.start).unwrap() as f64 / 1e6;
    (start, start + row.seconds)
}

/// The time from the first start of a run to the last end of one.
fn seconds_of_runs(rows: &[Row]) -> f64 {
    let first = rows.iter().map(|row| span(row).0).fold(f64::INFINITY, f64::min);
    rows.iter().map(|row| span(row).1).fold(0.0, f64::max) - first
}

/// The median time between two runs of a block.
fn seconds_between_runs(rows: &[Row]) -> f64 {
    let pairs = rows.windows(2).filter(|pair| pair[0].run.block == pair[1].run.block);
    let mut gaps: Vec<f64> = pairs.map(|pair| span(&pair[1]).0 - span(&pair[0]).1).collect();
    gaps.sort_by(f64::total_cmp);
    gaps[gaps.len() / 2]
}

/// The rows of a campaign that is made without a queue.
fn local_rows(trial: &Trial) -> Vec<Row> {
    let loaded = load(&trial.file).unwrap();
    let mut journal = Journal::open(&trial.path("local"), &loaded.campaign, &loaded.text).unwrap();
    let mut executor = LocalExecutor::new(&loaded.campaign, &loaded.folder).unwrap();
    run(&mut journal, &mut executor, &Stop::new().unwrap(), &mut ()).unwrap();
    read_rows(&trial.path("local")).unwrap()
}

#[test]
fn two_workers_are_nearly_twice_as_fast_and_a_run_costs_little() {
    let Some(server) = NatsServer::new("two_workers_are_nearly_twice_as_fast_and_a_run_costs_little") else { return };
    let (mut seconds, mut between) = (Vec::new(), Vec::new());
    for (name, workers) in [("one", 1), ("two", 2)] {
        let trial = Trial::new(&server, name, 8, "sleep 0.3; echo score=$PPID");
        let mut coordinator = trial.coordinator(&[]);
        eventually("all blocks are in the queue", || trial.status().is_some_and(|it| it["blocks_waiting"] == 8));
        let _workers: Vec<_> = (0..workers).map(|_| trial.worker(&[])).collect();
        assert!(coordinator.wait(), "{}", trial.logs());
        trial.check(8);
        let rows = trial.rows();
        seconds.push(seconds_of_runs(&rows));
        if workers == 1 {
            between = vec![seconds_between_runs(&rows), seconds_between_runs(&local_rows(&trial))];
        }
    }
    let ratio = seconds[0] / seconds[1];
    assert!(ratio >= 1.9, "two workers are {ratio:.2} times as fast: {seconds:?} s");
    println!("{ratio:.3} times as fast; between two runs {between:?} s with a queue and without");
    assert!(between[0] - between[1] < 0.01, "between two runs: {between:?} s with a queue and without");
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
