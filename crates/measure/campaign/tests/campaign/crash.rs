//! A runner in a process of its own, killed and interrupted at random moments.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bellows_campaign::{Plan, Results, RunId, Status, TABLE, import_file, load, read_rows};
use bellows_testkit::{eventually, scratch};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{long, processes_with};

/// The example program, which is built with the tests.
fn runner(file: &Path, folder: &Path) -> Command {
    let tests = std::env::current_exe().unwrap();
    let program: PathBuf = tests.parent().unwrap().parent().unwrap().join("examples/campaign");
    let mut command = Command::new(program);
    command.arg(file).arg(folder).stdout(Stdio::null());
    command
}

/// A runner that does not outlive its test.
struct Runner(Child);

impl Runner {
    fn start(file: &Path, folder: &Path) -> Runner {
        Runner(runner(file, folder).spawn().unwrap())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn a_runner_killed_at_any_moment_goes_on_and_counts_every_run_once() {
    let folder = scratch();
    let text = "name = 'crashes'\nrepeats = 40\ncommand = { shell = 'sleep 0.01{n}; echo score={n}' }\n\
                [factors]\nn = [1, 2, 3]\n[score]\npattern = 'score=(?<x>.)'\nunit = '1'\n";
    let file = bellows_testkit::scratch::write(&folder, "file.toml", text);
    let results = folder.path().join("results");
    let made = || read_rows(&results).map_or(0, |rows| rows.len());
    for round in 0..25u64 {
        let mut child = runner(&file, &results).stderr(Stdio::null()).spawn().unwrap();
        // Moments that differ by less than a run lasts.
        std::thread::sleep(Duration::from_micros(25_000 + round * 7_919 % 60_000));
        if round % 3 == 2 {
            interrupt(&child)
        } else {
            child.kill().unwrap()
        }
        child.wait().unwrap();
        // On a busy machine the moments are later than planned, and more is done by then.
        if made() > 60 {
            break;
        }
    }
    let made = made();
    assert!((1..120).contains(&made), "it was killed before it was done, {made} runs");
    let output = runner(&file, &results).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = read_rows(&results).unwrap();
    let runs: Vec<RunId> = rows.iter().map(|row| row.run).collect();
    assert_eq!(runs, Plan::new(&load(&file).unwrap().campaign).runs().collect::<Vec<_>>());
    assert!(rows.iter().all(|row| row.scores[0].value.map(|value| value.to_string()).as_ref() == row.levels.get("n")));
    let (journal, table) = (Results::read(&results).unwrap(), import_file(&results.join(TABLE)).unwrap());
    assert_eq!((&journal.scores, &journal.ids), (&table.scores, &table.ids));
    let status = Status::read(&results).unwrap();
    assert_eq!((status.rows, status.blocks.len(), status.running), (120, 40, false));
    assert!(status.failed.is_empty() && status.span.is_some());
}

#[test]
fn an_interrupted_runner_ends_at_once_and_a_killed_one_leaves_nothing_to_the_next() {
    let folder = scratch();
    let sleep = format!("sleep {}", long(57));
    // The shell, and the two that it starts.
    let processes = || processes_with(&sleep);
    let text = format!(
        "name = 'long'\ntime_limit = 100\ncommand = {{ shell = '{sleep} & {sleep}' }}\n\
         [factors]\nn = [1]\n[score]\njson = 'x'\nunit = '1'\n"
    );
    let file = bellows_testkit::scratch::write(&folder, "file.toml", &text);
    let results = folder.path().join("results");
    let mut killed = Runner::start(&file, &results);
    eventually("the run lasts", || processes().len() == 3);
    assert!(Status::read(&results).unwrap().running);
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let before = processes();
    assert_eq!(before.len(), 3, "nobody has ended them");
    let mut next = Runner::start(&file, &results);
    eventually("the run lasts again, alone", || {
        let now = processes();
        now.len() == 3 && now.is_disjoint(&before)
    });
    interrupt(&next.0);
    assert_eq!(next.0.wait().unwrap().code(), Some(130));
    eventually("no process is left", || processes().is_empty());
    assert_eq!(Status::read(&results).unwrap().rows, 0, "a run that was interrupted is not recorded");
}
