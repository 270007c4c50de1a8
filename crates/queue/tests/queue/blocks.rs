//! Blocks and machines, and the register of hypotheses.

use std::fs;

use bellows_campaign::{Journal, LocalExecutor, Observer, Progress, Row, RunId, Stop, load, register, run, verdicts};
use bellows_testkit::eventually;

use crate::support::{NatsServer, Trial};

/// Stops after the first run.
struct Once<'s>(&'s Stop);

impl Observer for Once<'_> {
    fn started(&mut self, _: RunId, _: &Progress) {}

    fn recorded(&mut self, _: &Row, _: &Progress) {
        self.0.set();
    }
}

#[test]
fn a_block_that_was_begun_on_a_machine_is_finished_there() {
    let Some(server) = NatsServer::new("a_block_that_was_begun_on_a_machine_is_finished_there") else { return };
    let trial = Trial::new(&server, "begun", 2, "echo score=1");
    let begin = |host: Option<&str>| {
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
    };
    begin(Some("another.machine"));
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
    begin(None);
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
