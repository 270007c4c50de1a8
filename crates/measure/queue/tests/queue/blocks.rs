//! Blocks and machines, their clocks, and the register of hypotheses.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use bellows_campaign::{
    CampaignProgress, Journal, LocalExecutor, Observer, Row, RunId, Stop, load, register, run, verdicts,
};
use bellows_sys::calendar;
use bellows_testkit::eventually;
use bellows_testkit::programs::{self, has_program};

use crate::support::{NatsServer, Trial};

/// Stops after the first run.
struct Once<'s>(&'s Stop);

impl Observer for Once<'_> {
    fn started(&mut self, _: RunId, _: &CampaignProgress) {}

    fn recorded(&mut self, _: &Row, _: &CampaignProgress) {
        self.0.set();
    }
}

/// Makes the first run of a campaign, on this machine or as if on another one. Returns the name of the machine.
fn begin(trial: &Trial, host: Option<&str>) -> String {
    let loaded = load(&trial.file).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let mut journal = Journal::open(&trial.results, &loaded.campaign, &loaded.text).unwrap();
    let mut executor = LocalExecutor::new(&loaded.campaign, &loaded.folder).unwrap();
    let stop = Stop::new().unwrap();
    run(&mut journal, &mut executor, &stop, &mut Once(&stop)).unwrap();
    drop(journal);
    let path = trial.results.join("results.jsonl");
    let mut row: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    if let Some(host) = host {
        row["machine"]["host"] = host.into();
        fs::write(&path, format!("{row}\n")).unwrap();
    }
    row["machine"]["host"].as_str().unwrap().to_owned()
}

#[test]
fn blocks_of_a_machine_that_the_server_gives_to_nobody_are_given_out_again() {
    let test = "blocks_of_a_machine_that_the_server_gives_to_nobody_are_given_out_again";
    let Some(server) = NatsServer::new(test) else { return };
    let trial = Trial::new(&server, "stuck-host", 2, "echo score=1");
    let host = begin(&trial, None).replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-");
    let mut coordinator = trial.coordinator(&[]);
    eventually("both blocks wait", || trial.status().is_some_and(|status| status["blocks_waiting"] == 2));
    // A consumer that gives out each block once, and a worker that dies with one.
    let config = serde_json::json!({
        "durable_name": format!("host-{host}"), "filter_subject": format!("bellows.stuck-host.work.host.{host}.*"),
        "deliver_policy": "all", "ack_policy": "explicit", "ack_wait": 200_000_000, "max_deliver": 1,
    });
    let body = serde_json::json!({ "stream_name": "bellows-stuck-host-work", "config": config }).to_string();
    let ask = |action: &str, body: &str| {
        server.ask(&format!("$JS.API.CONSUMER.{action}.bellows-stuck-host-work.host-{host}"), body)
    };
    let made = ask("DURABLE.CREATE", &body);
    assert!(made.contains("\"num_pending\":1"), "{made}");
    let given = ask("MSG.NEXT", "{\"batch\": 1}");
    assert!(given.contains("\"block\":1"), "{given}");
    let mut worker = trial.worker(&[]);
    assert!(coordinator.wait() && worker.wait(), "{}", trial.logs());
    trial.check(2);
}

#[test]
fn a_block_that_was_begun_on_a_machine_is_finished_there() {
    let Some(server) = NatsServer::new("a_block_that_was_begun_on_a_machine_is_finished_there") else { return };
    let trial = Trial::new(&server, "begun", 2, "echo score=1");
    begin(&trial, Some("another.machine"));
    let mut coordinator = trial.coordinator(&[]);
    let mut worker = trial.worker_later();
    eventually("the other block is made", || trial.rows().len() == 4);
    let status = trial.status().unwrap();
    assert_eq!((&status["blocks_waiting"], &status["blocks_given"]), (&1.into(), &0.into()));
    assert!(trial.logs().contains("only a worker on that machine"), "{}", trial.logs());
    coordinator.signal(rustix::process::Signal::TERM);
    assert!(coordinator.wait());
    assert!(trial.coordinator(&["--split"]).wait() && worker.wait(), "{}", trial.logs());
    let hosts = |block: u32| {
        let rows = trial.rows();
        let mut hosts: Vec<_> =
            rows.into_iter().filter(|row| row.run.block == block).map(|row| row.machine.host).collect();
        hosts.sort();
        hosts
    };
    assert_eq!((hosts(1).len(), hosts(2).len()), (3, 3));
    assert_eq!(hosts(1).iter().filter(|host| *host == "another.machine").count(), 1);

    // On the machine that began it, the rest of the block is made without more ado.
    fs::remove_dir_all(&trial.results).unwrap();
    begin(&trial, None);
    let mut coordinator = trial.coordinator(&[]);
    let mut worker = trial.worker_later();
    assert!(coordinator.wait() && worker.wait(), "{}", trial.logs());
    trial.check(2);
}

#[test]
fn rows_know_the_hypotheses_that_were_registered_before_their_runs() {
    let test = "rows_know_the_hypotheses_that_were_registered_before_their_runs";
    let Some(server) = NatsServer::new(test) else { return };
    let trial = Trial::new(&server, "register", 16, "sleep 0.05; echo score={n}");
    let mut text = fs::read_to_string(&trial.file).unwrap();
    text += "[[hypothesis]]\nname = 'more'\nfactor = 'n'\ncompare = [2, 1]\ndirection = 'greater'\n";
    fs::write(&trial.file, text).unwrap();
    let mut coordinator = trial.coordinator(&[]);
    let mut worker = trial.worker_later();
    eventually("some runs are made", || trial.rows().len() > 6);
    let campaign = load(&trial.file).unwrap().campaign;
    let record = register(&trial.results, &campaign, &campaign.hypotheses[0]).unwrap();
    assert!(coordinator.wait() && worker.wait(), "{}", trial.logs());
    let rows = trial.rows();
    assert!(rows.len() == 48 && rows[..6].iter().all(|row| row.known.is_none()));
    assert!(rows[33..].iter().all(|row| row.known == Some(record.hash) && row.registered == Some(record.hash)));
    // No row knows a record that was not there when it was recorded.
    assert!(rows.iter().all(|row| row.known.is_none() || row.registered.is_some()));
    let verdict = &verdicts(&trial.results, &campaign).unwrap()[0];
    assert!(verdict.runs.confirming > 0 && verdict.runs.made_before > 0, "{verdict:?}");
}

/// A library that puts a process' clock ahead by `CLOCK_AHEAD` seconds.
const CLOCK: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, \"clock_gettime\");
    int result = real(clock, time);
    const char *ahead = getenv(\"CLOCK_AHEAD\");
    if (clock == CLOCK_REALTIME && ahead) time->tv_sec += atol(ahead);
    return result;
}
";

#[test]
fn clocks_that_are_an_hour_off_change_nothing() {
    let test = "clocks_that_are_an_hour_off_change_nothing";
    if !has_program(test, "cc") {
        return;
    }
    let Some(server) = NatsServer::new(test) else { return };
    let trial = Trial::new(&server, "clocks", 12, "sleep 0.03; echo score={n}");
    let mut text = fs::read_to_string(&trial.file).unwrap();
    text += "[[hypothesis]]\nname = 'more'\nfactor = 'n'\ncompare = [2, 1]\ndirection = 'greater'\n";
    fs::write(&trial.file, text).unwrap();
    let (source, library) = (trial.path("clock.c"), trial.path("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let compiled = programs::run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
    compiled.unwrap_or_else(|error| panic!("{error}"));
    let library = library.to_str().unwrap();
    let unix_seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let before = unix_seconds();
    let mut coordinator = trial.coordinator(&[]);
    eventually("there is a queue", || trial.status().is_some());
    // Most runs are made on a machine whose clock is slow, with a lease of a second.
    let clock = |ahead: &'static str| trial.worker_in(&[], &[("LD_PRELOAD", library), ("CLOCK_AHEAD", ahead)]);
    let (mut slow, mut fast) = (clock("-3600"), clock("3600"));
    let seen = |wanted: f64| {
        let status = trial.status();
        let workers = status.as_ref().and_then(|status| status["workers"].as_array());
        workers.into_iter().flatten().any(|worker| {
            let ahead = worker["clock_seconds"].as_f64().unwrap();
            (ahead - wanted).abs() < 5.0 && worker["is_lost"] == false
        })
    };
    eventually("the status knows both clocks", || seen(-3_600.0) && seen(3_600.0));
    eventually("some runs are made", || trial.rows().len() > 6);
    let campaign = load(&trial.file).unwrap().campaign;
    let record = register(&trial.results, &campaign, &campaign.hypotheses[0]).unwrap();
    assert!(coordinator.wait() && slow.wait() && fast.wait(), "{}", trial.logs());
    let after = unix_seconds();
    let rows = trial.rows();
    assert_eq!(rows.len(), 36, "{}", trial.logs());
    assert!(!trial.logs().contains("was given to another worker"), "{}", trial.logs());
    // Starts are in the coordinator's clock.
    for row in &rows {
        let start = calendar::microseconds(&row.start).unwrap() as f64 / 1e6;
        assert!((before - 1.0..after + 1.0).contains(&start), "{} {before} {after}", row.start);
    }
    // What can confirm the hypothesis started after it, by the worker's knowledge or by the coordinator's clock.
    let microseconds = |time: &str| calendar::microseconds(time).unwrap();
    let is_later = |row: &Row| row.known.is_some() || microseconds(&row.start) > microseconds(&record.time);
    let later = rows[record.rows..].iter().filter(|row| is_later(row)).count();
    let verdict = &verdicts(&trial.results, &campaign).unwrap()[0];
    assert!(later > 0 && later < 30, "{later}");
    assert_eq!((verdict.runs.confirming, verdict.runs.made_before), (later, 36 - later), "{verdict:?}");
}
