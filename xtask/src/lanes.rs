//! Runs test programs in two lanes, side by side. Cargo runs them one after another, although many of them wait most of
//! the time: for guests, timers and servers.
//!
//! The second lane begins with the programs that mostly [wait](WAITING), the first one with all others. A lane that has
//! no more programs of its own takes those of the other. Programs that [measure](MEASURING) run at the end, alone.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellows_testkit::scratch;

use crate::programs::Program;

/// The programs with which the second lane begins, in this order, each with what it waits for.
const WAITING: &[(&str, &str)] = &[
    ("bellows/interfaces", "guests, routing daemons, and timers of protocols"),
    ("bellows/own_apps", "networks that do not answer"),
];

/// The programs that run alone, each with what others would disturb.
const MEASURING: &[(&str, &str)] = &[
    (
        "bellows/measure",
        "figures of all benchmarks, verdicts about apps that wait for memory, and the rate of a generator of frames",
    ),
    ("bellows/web", "the times of frames in a browser"),
    ("queue/queue", "the time that two workers take, beside that of one"),
    ("serve/hostile", "the time of an answer while another one waits"),
];

/// Longer than any test program takes on a slow and busy machine.
pub const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The programs that are still to be run in the lanes.
#[derive(Default)]
struct LanePlan {
    ordinary: VecDeque<Program>,
    waiting: VecDeque<Program>,
}

#[derive(Clone, Copy)]
enum Lane {
    First,
    Second,
}

impl LanePlan {
    /// Distributes the programs. Those that run alone come second.
    fn of(programs: Vec<Program>) -> (LanePlan, Vec<Program>) {
        let (measuring, others): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(|program| place(MEASURING, program).is_some());
        let (mut waiting, ordinary): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|program| place(WAITING, program).is_some());
        waiting.sort_by_key(|program| place(WAITING, program));
        (LanePlan { ordinary: ordinary.into(), waiting: waiting.into() }, measuring)
    }

    /// The next program of a lane. The second lane takes the last one of the first.
    fn next(&mut self, lane: Lane) -> Option<Program> {
        match lane {
            Lane::First => self.ordinary.pop_front().or_else(|| self.waiting.pop_front()),
            Lane::Second => self.waiting.pop_front().or_else(|| self.ordinary.pop_back()),
        }
    }
}

/// The place of a program in a list.
fn place(list: &[(&str, &str)], program: &Program) -> Option<usize> {
    list.iter().position(|(name, _)| *name == program.name)
}

/// Runs all programs, each for at most a limited time. `show` gets a line when a program starts, and all its output with
/// its heading when it ends, so that the outputs of two programs are never mixed.
///
/// # Errors
///
/// The names of the programs that have failed.
pub fn run(programs: Vec<Program>, limit: Duration, show: impl FnMut(&str) + Send) -> Result<(), String> {
    let (plan, measuring) = LanePlan::of(programs);
    let (plan, show, failed) = (Mutex::new(plan), Mutex::new(show), Mutex::new(Vec::new()));
    let run_one = |mut program: Program| {
        (*lock(&show))(&format!("    Starting {}\n", program.name));
        let ended = Ended::of(&mut program.command, limit);
        (*lock(&show))(&ended.report(&program));
        if ended.failure().is_some() {
            lock(&failed).push(program.name);
        }
    };
    let run_lane = |lane| {
        let next = || lock(&plan).next(lane);
        while let Some(program) = next() {
            run_one(program);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run_lane(Lane::First));
        scope.spawn(|| run_lane(Lane::Second));
    });
    measuring.into_iter().for_each(run_one);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(failed.join(", ")) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that has ended.
struct Ended {
    end: LaneEnd,
    /// Its standard output and error.
    output: Vec<u8>,
    seconds: f64,
    /// The processor time of the program, and of those that it has started and waited for.
    processor_seconds: f64,
}

enum LaneEnd {
    Exited(ExitStatus),
    /// It ran for longer than this.
    Killed(Duration),
    NotRun(io::Error),
}

impl Ended {
    /// Runs a program to its end.
    fn of(command: &mut Command, limit: Duration) -> Ended {
        Ended::try_of(command, limit).unwrap_or_else(|error| Ended {
            end: LaneEnd::NotRun(error),
            output: Vec::new(),
            seconds: 0.0,
            processor_seconds: 0.0,
        })
    }

    fn try_of(command: &mut Command, limit: Duration) -> io::Result<Ended> {
        // Not a pipe, which a process that is left behind would hold open.
        let mut file = unnamed_file()?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
        let start = Instant::now();
        let mut child = command.spawn()?;
        let mut processor_seconds = 0.0;
        let end = loop {
            processor_seconds = self::processor_seconds(child.id()).unwrap_or(processor_seconds);
            if let Some(status) = child.try_wait()? {
                break LaneEnd::Exited(status);
            }
            if start.elapsed() >= limit {
                kill(&mut child);
                break LaneEnd::Killed(limit);
            }
            thread::sleep((start.elapsed() / 10).clamp(Duration::from_millis(1), Duration::from_millis(50)));
        };
        let seconds = start.elapsed().as_secs_f64();
        let mut output = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut output)?;
        Ok(Ended { end, output, seconds, processor_seconds })
    }

    /// Why the program has failed, if it has; empty for failed tests, which it has named itself.
    fn failure(&self) -> Option<String> {
        match &self.end {
            LaneEnd::Exited(status) if status.success() => None,
            // The exit code of Rust's test harness.
            LaneEnd::Exited(status) if status.code() == Some(101) => Some(String::new()),
            LaneEnd::Exited(status) => Some(format!(": {status}")),
            LaneEnd::Killed(limit) => Some(format!(": it ran for more than {} s and was killed", limit.as_secs_f64())),
            LaneEnd::NotRun(error) => Some(format!(": it cannot be run: {error}")),
        }
    }

    /// What is shown at the end.
    fn report(&self, program: &Program) -> String {
        let Program { name, heading, selection, .. } = program;
        let mut text = format!("{heading}\n");
        text += &String::from_utf8_lossy(&self.output);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        // Cargo says so itself for each program that it runs.
        let is_said = text.contains("error: doctest failed, to rerun pass ");
        if let Some(why) = self.failure().filter(|_| !is_said) {
            text += &format!("error: test failed, to rerun pass `{selection}`{why}\n");
        }
        let Ended { seconds, processor_seconds, .. } = self;
        text + &format!("    Finished {name} in {seconds:.1} s, {processor_seconds:.1} s of processor time\n")
    }
}

/// A file that is gone when nobody has it open any more.
fn unnamed_file() -> io::Result<File> {
    let folder = scratch::make().map_err(io::Error::other)?;
    File::options().read(true).append(true).create(true).open(folder.path().join("output"))
}

/// The fields of `/proc/PID/stat` after the name of the program.
fn stat(pid: u32) -> Option<Vec<u64>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    // The first one is a letter, and some are negative.
    Some(fields.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

/// The processor time that a process has used, and those that it has started and waited for.
fn processor_seconds(pid: u32) -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    // In user mode, in the kernel, and both for its children.
    Some(stat(pid)?.get(11..15)?.iter().sum::<u64>() as f64 / TICKS_PER_SECOND)
}

/// Kills a program, and all that it has started. They are in the process group of this program, so that Ctrl-C reaches
/// all of them.
fn kill(child: &mut Child) {
    let send = |signal: &str, pids: &[u32]| {
        let pids = pids.iter().map(u32::to_string);
        let _ = Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status();
    };
    // It must start nothing more.
    send("-STOP", &[child.id()]);
    send("-KILL", &family(child.id()));
    let _ = child.kill();
    let _ = child.wait();
}

/// A process, and all that it and these have started.
fn family(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u64)> = pids.filter_map(|pid| Some((pid, *stat(pid)?.get(1)?))).collect();
    let mut family = vec![pid];
    let mut known = 0;
    while let Some(&member) = family.get(known) {
        family.extend(parents.iter().filter(|(_, parent)| *parent == u64::from(member)).map(|(child, _)| child));
        known += 1;
    }
    family
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use bellows_testkit::eventually;

    use super::*;
    use crate::programs;

    /// A program that runs a script.
    fn script(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let heading = format!("     Running tests/{name}.rs (deps/{name}-0123)");
        Program { name: name.to_owned(), heading, selection: format!("-p x --test {name}"), command }
    }

    /// Runs programs, and returns what is shown.
    fn shown(programs: Vec<Program>) -> (Vec<String>, Result<(), String>) {
        let mut shown = Vec::new();
        let verdict = run(programs, LIMIT, |text| shown.push(text.to_owned()));
        (shown, verdict)
    }

    fn names<'p>(programs: impl IntoIterator<Item = &'p Program>) -> Vec<&'p str> {
        programs.into_iter().map(|program| &*program.name).collect()
    }

    #[test]
    fn the_named_programs_are_there() {
        let all = programs::in_workspace().ok().unwrap();
        for (name, _) in WAITING.iter().chain(MEASURING) {
            assert!(all.iter().any(|known| known == name), "there is no test program {name}");
        }
    }

    #[test]
    fn each_lane_begins_with_its_own_programs_and_takes_those_of_the_other() {
        let programs = ["x/1", "bellows/measure", "x/2", "bellows/interfaces", "x/3"];
        let all = || programs.iter().map(|name| script(name, "")).collect::<Vec<_>>();
        let (mut plan, measuring) = LanePlan::of(all());
        assert_eq!(names(&plan.ordinary), ["x/1", "x/2", "x/3"]);
        assert_eq!(names(&plan.waiting), ["bellows/interfaces"]);
        assert_eq!(names(&measuring), ["bellows/measure"]);
        let mut take = |lanes: &[Lane]| -> Vec<String> {
            lanes.iter().filter_map(|lane| plan.next(*lane)).map(|program| program.name).collect()
        };
        use Lane::{First, Second};
        let order = take(&[First, Second, Second, First, First]);
        assert_eq!(order, ["x/1", "bellows/interfaces", "x/3", "x/2"]);
        let (mut plan, _) = LanePlan::of(all());
        let first: Vec<String> = std::iter::from_fn(|| plan.next(First)).map(|program| program.name).collect();
        assert_eq!(first, ["x/1", "x/2", "x/3", "bellows/interfaces"]);
    }

    #[test]
    fn lanes_run_side_by_side_and_a_measuring_program_alone() {
        let folder = scratch();
        // Each of both needs the other at the same time.
        let meet = |own: &str, other: &str| {
            let folder = folder.path().display();
            format!(
                "cd {folder}; touch {own}; until test -e {other}; do sleep 0.01; done; sleep 0.2; touch {own}-ended"
            )
        };
        let measuring = format!("cd {}; test -e one-ended && test -e two-ended", folder.path().display());
        let programs = vec![
            script("bellows/measure", &measuring),
            script("x/ordinary", &meet("one", "two")),
            script("bellows/interfaces", &meet("two", "one")),
        ];
        let (shown, verdict) = shown(programs);
        assert_eq!(verdict, Ok(()), "{shown:?}");
        assert_eq!(shown.len(), 6);
        assert_eq!(shown[4], "    Starting bellows/measure\n");
    }

    #[test]
    fn outputs_are_not_mixed() {
        let folder = scratch();
        // They take turns, and the last lines have no ends.
        let lines = |own: &str, other: &str| {
            let folder = folder.path().display();
            format!(
                "cd {folder}; for i in 1 2 3 4; do echo {own} $i >&$((i % 2 + 1)); touch {own}$i; \
                 until test -e {other}$i; do sleep 0.01; done; done; printf {own}"
            )
        };
        let programs =
            vec![script("first", &lines("first", "second")), script("bellows/interfaces", &lines("second", "first"))];
        let (shown, verdict) = shown(programs);
        assert_eq!(verdict, Ok(()), "{shown:?}");
        for (name, own) in [("first", "first"), ("bellows/interfaces", "second")] {
            let text = format!(
                "     Running tests/{name}.rs (deps/{name}-0123)\n{own} 1\n{own} 2\n{own} 3\n{own} 4\n{own}\n    Finished {name} in "
            );
            assert_eq!(shown.iter().filter(|block| block.starts_with(&text)).count(), 1, "{shown:?}");
        }
    }

    #[test]
    fn a_program_that_fails_is_named_with_the_reason() {
        let ended = |script: &str| {
            let mut command = Command::new("sh");
            Ended::of(command.args(["-c", script]), LIMIT).failure()
        };
        assert_eq!(ended("exit 0"), None);
        assert_eq!(ended("exit 101"), Some(String::new()));
        assert_eq!(ended("exit 3").as_deref(), Some(": exit status: 3"));
        let killed = format!(": {}", ExitStatus::from_raw(9));
        assert_eq!(ended("kill -KILL $$").as_deref(), Some(&*killed));
        let missing = Ended::of(&mut Command::new("/no/such/program"), LIMIT).failure().unwrap();
        assert!(missing.starts_with(": it cannot be run: "), "{missing}");

        let programs = vec![script("fine", "echo fine"), script("dies", "echo first; kill -SEGV $$")];
        let (shown, verdict) = shown(programs);
        assert_eq!(verdict, Err("dies".to_owned()));
        let report = shown.iter().find(|text| text.contains("Running tests/dies.rs")).unwrap();
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!(lines[1], "first");
        assert!(lines[2].starts_with("error: test failed, to rerun pass `-p x --test dies`: signal: 11"), "{report}");
        // The count of tests knows it, too.
        let mut tally = crate::tally::Tally::default();
        shown.iter().flat_map(|text| text.lines()).for_each(|line| tally.read_line(line));
        assert_eq!(tally.failed, 1);
        assert!(tally.failures[0].starts_with("tests/dies.rs (`-p x --test dies`: signal: 11"), "{:?}", tally.failures);
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let mut command = Command::new("sh");
        let ended = Ended::of(command.args(["-c", "echo first; sleep 1000"]), Duration::from_millis(500));
        assert_eq!(ended.failure().as_deref(), Some(": it ran for more than 0.5 s and was killed"));
    }

    #[test]
    fn what_a_program_has_started_is_killed_with_it() {
        let folder = scratch();
        let path = folder.path().join("pids");
        // The last one is in a session, and so in a process group, of its own.
        let script = format!(
            "exec 3>{}; sh -c 'echo $$ >&3; sleep 1000 & echo $! >&3; wait' & \
             setsid sh -c 'echo $$ >&3; exec sleep 1000' & wait",
            path.display()
        );
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let pids = || -> Vec<u32> {
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.parse().ok()).collect()
        };
        eventually("the programs", || pids().len() == 3);
        kill(&mut child);
        // Until their new parent has waited for them, they are zombies.
        let is_alive = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
        };
        eventually("the end of all", || !pids().iter().any(is_alive));
    }

    #[test]
    fn processor_time_includes_that_of_programs_that_were_started() {
        let busy = "sh -c 'i=0; while test $i -lt 200000; do i=$((i + 1)); done'; sleep 0.2";
        let mut command = Command::new("sh");
        let ended = Ended::of(command.args(["-c", busy]), LIMIT);
        assert!(ended.failure().is_none());
        assert!(ended.processor_seconds > 0.01 && ended.seconds > 0.2, "{}", ended.processor_seconds);
    }
}
