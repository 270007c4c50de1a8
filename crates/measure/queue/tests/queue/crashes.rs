//! Workers, coordinators and the server, killed and stopped at random moments.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bellows_queue::ABANDONED;
use bellows_testkit::eventually;
use bellows_testkit::soak::cases;
use rustix::process::Signal;

use crate::support::{NatsServer, Trial};

/// Longer than the coordinator takes to find out what is missing, twice.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn every_run_counts_once_whoever_is_killed() {
    let Some(mut server) = NatsServer::new("every_run_counts_once_whoever_is_killed") else { return };
    let trial = Trial::new(&server, "crashes", 14, "sleep 0.1; echo score=$PPID");
    let mut random = fastrand::Rng::with_seed(20);
    let mut coordinator = trial.coordinator(&[]);
    let mut workers: Vec<_> = (0..3).map(|_| trial.worker_later()).collect();
    let mut kills = [0; 3];
    for _ in 0..cases(14) {
        sleep(Duration::from_millis(random.u64(100..700)));
        let whom = random.usize(0..3);
        kills[whom] += 1;
        match whom {
            0 => {
                let worker = random.usize(0..workers.len());
                workers[worker].kill();
                workers[worker] = trial.worker(&[]);
            }
            1 => {
                server.kill();
                sleep(Duration::from_millis(random.u64(0..1_500)));
                server.restart();
            }
            _ => {
                coordinator.kill();
                coordinator = trial.coordinator(&[]);
            }
        }
        // Those that did not reach the server when they were started.
        if !coordinator.is_alive() && trial.rows().len() < 42 {
            coordinator = trial.coordinator(&[]);
        }
        for worker in &mut workers {
            if !worker.is_alive() && trial.rows().len() < 42 {
                *worker = trial.worker(&[]);
            }
        }
    }
    assert!(kills.iter().all(|count| *count > 0), "{kills:?}");
    let start = Instant::now();
    let mut worker = trial.worker(&[]);
    while trial.rows().len() < 42 {
        let runs = trial.rows().len();
        assert!(start.elapsed() < PATIENCE, "{runs} runs\n{:#}\n{}", trial.status().unwrap_or_default(), trial.logs());
        if !coordinator.is_alive() {
            coordinator = trial.coordinator(&[]);
        }
        if !worker.is_alive() {
            worker = trial.worker(&[]);
        }
        sleep(Duration::from_millis(200));
    }
    trial.check(14);
}

#[test]
fn a_worker_that_was_stopped_leaves_its_block_to_another() {
    let Some(server) = NatsServer::new("a_worker_that_was_stopped_leaves_its_block_to_another") else { return };
    let trial = Trial::new(&server, "stopped", 2, "sleep 0.6; echo score=$PPID");
    let mut coordinator = trial.coordinator(&[]);
    let mut first = trial.worker_later();
    eventually("a run was delivered", || trial.status().is_some_and(|it| it["results"].as_u64() > Some(0)));
    first.signal(Signal::STOP);
    let mut second = trial.worker(&[]);
    eventually("the other one has its block", || {
        let status = trial.status().unwrap_or_default();
        let workers = status["workers"].as_array().cloned().unwrap_or_default();
        workers.iter().any(|worker| worker["block"] == 1 && worker["attempt"].as_u64() > Some(1))
    });
    let lost = trial.status().unwrap()["workers"].as_array().unwrap().iter().any(|worker| worker["is_lost"] == true);
    assert!(lost, "the stopped worker is not heard of");
    first.signal(Signal::CONT);
    assert!(coordinator.wait() && first.wait() && second.wait(), "{}", trial.logs());
    trial.check(2);
    assert!(trial.logs().contains("block 1 was given to another worker meanwhile"), "{}", trial.logs());
    let abandoned = fs::read_to_string(trial.results.join(ABANDONED)).unwrap();
    let of_first = format!("-{}-", first.0.id());
    assert!((1..3).contains(&abandoned.lines().count()), "{abandoned}");
    assert!(abandoned.lines().all(|line| line.contains(&of_first)), "{abandoned}");
}

#[test]
fn blocks_that_a_damaged_server_gives_to_nobody_are_given_out_again() {
    let test = "blocks_that_a_damaged_server_gives_to_nobody_are_given_out_again";
    let Some(server) = NatsServer::new(test) else { return };
    let trial = Trial::new(&server, "stuck", 3, "sleep 0.1; echo score=$PPID");
    let mut coordinator = trial.coordinator(&[]);
    eventually("all blocks are in the queue", || trial.status().is_some_and(|it| it["blocks_waiting"] == 3));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pull = runtime.block_on(async {
        let client = async_nats::connect(&trial.url).await.unwrap();
        let ask = async |subject: &str, payload: serde_json::Value| {
            client.request(format!("$JS.API.CONSUMER.{subject}"), payload.to_string().into()).await.unwrap()
        };
        // A consumer that gives out each block once, and a worker that dies with one.
        ask("DELETE.bellows-stuck-work.any", serde_json::Value::Null).await;
        let config = serde_json::json!({
            "durable_name": "any", "filter_subject": "bellows.stuck.work.any.*", "ack_policy": "explicit",
            "ack_wait": 200_000_000, "max_deliver": 1, "deliver_policy": "all",
        });
        let made = serde_json::json!({ "stream_name": "bellows-stuck-work", "config": config });
        ask("DURABLE.CREATE.bellows-stuck-work.any", made).await;
        let subject = "$JS.API.CONSUMER.MSG.NEXT.bellows-stuck-work.any";
        let request = async_nats::Request::new().payload("{\"batch\": 1}".into()).inbox(client.new_inbox());
        client.send_request(subject, request).await.unwrap()
    });
    assert!(pull.subject.ends_with("any.1") && pull.reply.is_some(), "{pull:?}");
    let mut worker = trial.worker(&[]);
    assert!(coordinator.wait() && worker.wait(), "{}", trial.logs());
    trial.check(3);
}

#[test]
fn a_run_that_lasts_longer_than_the_lease_keeps_its_block() {
    let Some(server) = NatsServer::new("a_run_that_lasts_longer_than_the_lease_keeps_its_block") else { return };
    let trial = Trial::new(&server, "long", 1, "sleep 2.5; echo score=$PPID");
    let mut coordinator = trial.coordinator(&[]);
    let mut workers = [trial.worker_later(), trial.worker_later()];
    assert!(coordinator.wait() && workers.iter_mut().all(|worker| worker.wait()), "{}", trial.logs());
    trial.check(1);
    assert_eq!(trial.logs().matches("started").count(), 3, "{}", trial.logs());
}

#[test]
fn commands_of_a_worker_that_was_killed_are_ended_by_the_next() {
    let Some(server) = NatsServer::new("commands_of_a_worker_that_was_killed_are_ended_by_the_next") else { return };
    // No other test run has this number.
    let sleep = format!("sleep 100.{}", std::process::id());
    let trial = Trial::new(&server, "strays", 1, &format!("{sleep}; echo score=$PPID"));
    let _coordinator = trial.coordinator(&[]);
    let mut first = trial.worker_later();
    let sleeping = || {
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let commands = processes.filter_map(|path| Some((path.clone(), fs::read(path.join("cmdline")).ok()?)));
        let has_text = |words: &[u8]| String::from_utf8_lossy(words).replace('\0', " ").contains(&sleep);
        commands.filter(|(_, words)| has_text(words)).map(|(path, _)| path).collect::<Vec<_>>()
    };
    eventually("the run lasts", || !sleeping().is_empty());
    first.kill();
    let before = sleeping();
    assert!(!before.is_empty(), "nobody has ended it");
    let second = trial.worker(&[]);
    eventually("the old commands are ended", || before.iter().all(|path| !path.exists() || !sleeping().contains(path)));
    second.signal(Signal::TERM);
}

#[test]
fn an_interrupted_worker_gives_its_block_back_at_once() {
    let Some(server) = NatsServer::new("an_interrupted_worker_gives_its_block_back_at_once") else { return };
    let folder = bellows_testkit::scratch();
    let flag = folder.path().join("flag");
    let line = format!("test -e {} || sleep 100; echo score=$PPID", flag.display());
    let trial = Trial::new(&server, "back", 1, &line);
    // Far longer than the test lasts.
    let mut coordinator = trial.coordinator(&["--lease", "200000"]);
    let mut first = trial.worker_later();
    eventually("it makes a run", || trial.status().is_some_and(|it| it["workers"][0]["run"].is_string()));
    first.signal(Signal::TERM);
    assert!(first.wait(), "{}", trial.logs());
    fs::write(&flag, "").unwrap();
    let mut second = trial.worker(&[]);
    assert!(coordinator.wait() && second.wait(), "{}", trial.logs());
    trial.check(1);
}

#[test]
fn results_that_come_again_count_once() {
    let Some(server) = NatsServer::new("results_that_come_again_count_once") else { return };
    let trial = Trial::new(&server, "again", 3, "echo score=$PPID");
    let mut coordinator = trial.coordinator(&[]);
    eventually("all blocks are in the queue", || trial.status().is_some_and(|it| it["blocks_waiting"] == 3));
    coordinator.kill();
    let _worker = trial.worker(&[]);
    eventually("all results are at the server", || trial.status().is_some_and(|it| it["results"] == 9));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(&trial.url).await.unwrap();
        let ask =
            async |subject: &str, payload: String| client.request(subject.to_owned(), payload.into()).await.unwrap();
        // The server's window for duplicates is over after 100 ms.
        let stream = "bellows-again-results";
        let info = ask(&format!("$JS.API.STREAM.INFO.{stream}"), String::new()).await;
        let mut config = serde_json::from_slice::<serde_json::Value>(&info.payload).unwrap()["config"].take();
        config["duplicate_window"] = 100_000_000.into();
        let changed = ask(&format!("$JS.API.STREAM.UPDATE.{stream}"), config.to_string()).await;
        assert!(!String::from_utf8_lossy(&changed.payload).contains("error"), "{changed:?}");
        for _ in 0..2 {
            for sequence in [9, 1, 4, 5, 2, 9] {
                let found = ask(&format!("$JS.API.DIRECT.GET.{stream}"), format!("{{\"seq\": {sequence}}}")).await;
                let headers = found.headers.unwrap();
                let subject = headers.get("Nats-Subject").unwrap().to_string();
                let mut again = async_nats::HeaderMap::new();
                again.insert("Nats-Msg-Id", headers.get("Nats-Msg-Id").unwrap().to_string());
                tokio::time::sleep(Duration::from_millis(300)).await;
                client.request_with_headers(subject, again, found.payload).await.unwrap();
            }
        }
    });
    let results = trial.status().unwrap()["results"].as_u64().unwrap();
    assert_eq!(results, 9 + 12, "the server has taken all of them");
    assert!(trial.coordinator(&[]).wait(), "{}", trial.logs());
    trial.check(3);
    assert!(!trial.results.join(ABANDONED).exists());
}
