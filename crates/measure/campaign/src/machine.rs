//! The machine of a run: what it is, and what it did meanwhile.

use std::fs;

use bellows_sys::{clock, cpu};

use crate::campaign::Disturbance;
use crate::row::Machine;

/// Ticks per second of `/proc/stat` (`USER_HZ`), on every architecture that Bellows runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// What does not change.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    host: String,
    cpu: String,
    os: String,
    cpus: Vec<usize>,
}

/// A reading before a run.
pub(crate) struct Before {
    yardstick: f64,
    stolen: Vec<(usize, u64)>,
    load: f64,
}

/// The name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Facts {
    /// This machine, for commands on these processors.
    pub(crate) fn of(cpus: &[usize]) -> Facts {
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Facts {
            host: host(),
            cpu: cpu::model(),
            os: format!("{} {}", text(uname.sysname()), text(uname.release())),
            cpus: cpus.to_vec(),
        }
    }

    pub(crate) fn before(&self) -> Before {
        Before { yardstick: yardstick(), stolen: self.stolen(), load: load() }
    }

    /// The machine during a run of some seconds, and what disturbed the run.
    pub(crate) fn after(&self, before: &Before, seconds: f64, limits: &Disturbance) -> (Machine, Vec<String>) {
        let stolen = stolen_between(&before.stolen, &self.stolen());
        let machine = Machine {
            host: self.host.clone(),
            cpu: self.cpu.clone(),
            cpus: cpu::ranges(&self.cpus),
            os: self.os.clone(),
            load: before.load,
            steal: (!stolen.is_empty()).then(|| stolen.iter().map(|(_, seconds)| seconds).sum()),
            yardstick_before: before.yardstick,
            yardstick_after: yardstick(),
        };
        let disturbed = disturbances(&machine, &stolen, seconds, limits);
        (machine, disturbed)
    }

    /// The steal time of each of the processors, in ticks. Nothing if the system does not report it.
    fn stolen(&self) -> Vec<(usize, u64)> {
        stolen(&fs::read_to_string("/proc/stat").unwrap_or_default(), &self.cpus)
    }
}

fn stolen(stat: &str, cpus: &[usize]) -> Vec<(usize, u64)> {
    let of_line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let number = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks = fields.nth(7)?.parse().ok()?;
        cpus.contains(&number).then_some((number, ticks))
    };
    stat.lines().filter_map(of_line).collect()
}

/// The steal time of each processor between two readings, in seconds. One that was switched on or off has none.
fn stolen_between(before: &[(usize, u64)], after: &[(usize, u64)]) -> Vec<(usize, f64)> {
    let of_cpu = |&(cpu, after): &(usize, u64)| {
        let (_, before) = before.iter().find(|(other, _)| *other == cpu)?;
        Some((cpu, after.saturating_sub(*before) as f64 / TICKS_PER_SECOND))
    };
    after.iter().filter_map(of_cpu).collect()
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// The processor's speed: the lower quartile of some measurements, which an interruption makes longer only.
fn yardstick() -> f64 {
    let mut steps: Vec<f64> = (0..40).map(|_| clock::calibration_step()).collect();
    steps.sort_by(f64::total_cmp);
    steps[steps.len() / 4] * 1e9 / clock::ticks_per_second() as f64
}

/// What disturbed a run, as sentences without a full stop. `stolen` has the seconds that the host took from each
/// processor: one that is taken slows a run, however many others there are.
fn disturbances(machine: &Machine, stolen: &[(usize, f64)], seconds: f64, limits: &Disturbance) -> Vec<String> {
    let mut disturbed = Vec::new();
    if let Some((cpu, most)) = stolen.iter().max_by(|(_, one), (_, other)| one.total_cmp(other))
        && *most > limits.steal * seconds
    {
        disturbed.push(format!("the host took {most:.2} s of {seconds:.2} s from processor {cpu}"));
    }
    let (before, after) = (machine.yardstick_before, machine.yardstick_after);
    let change = before.max(after) / before.min(after) - 1.0;
    if change > limits.speed {
        let direction = if after > before { "slower" } else { "faster" };
        let percent = 100.0 * change;
        disturbed.push(format!("the processor was {percent:.0} percent {direction} after the run than before"));
    }
    disturbed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_is_that_of_the_processors() {
        let stat =
            "cpu  9 9 9 9 9 9 9 99 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 0 0 0 0 0 0 0 20\ncpu10 0 0 0 0 0 0 0 300\n";
        assert_eq!(stolen(stat, &[0]), [(0, 8)]);
        assert_eq!(stolen(stat, &[0, 1]), [(0, 8), (1, 20)]);
        assert_eq!(stolen(stat, &[10]), [(10, 300)]);
        assert_eq!(stolen(stat, &[5]), []);
        assert_eq!(stolen("cpu0 1 2", &[0]), []);
        assert_eq!(stolen_between(&[(0, 8), (1, 20), (2, 5)], &[(0, 8), (1, 70), (3, 9)]), [(0, 0.0), (1, 0.5)]);
    }

    #[test]
    fn a_run_is_disturbed_above_the_limits_only() {
        let facts = Facts::of(&[0]);
        let (quiet, _) = facts.after(&facts.before(), 1.0, &Disturbance::default());
        let quiet = Machine { yardstick_before: 1.0, yardstick_after: 1.05, ..quiet };
        let limits = Disturbance { steal: 0.02, speed: 0.1 };
        let found = |machine: &Machine, stolen: &[(usize, f64)]| disturbances(machine, stolen, 10.0, &limits);
        assert!(found(&quiet, &[]).is_empty() && found(&quiet, &[(0, 0.19), (1, 0.19)]).is_empty());
        // One of many processors, which is 1.6 percent of the time of all.
        let mut many: Vec<(usize, f64)> = (0..64).map(|cpu| (cpu, 0.0)).collect();
        many[40].1 = 10.0;
        assert_eq!(found(&quiet, &many), ["the host took 10.00 s of 10.00 s from processor 40"]);
        assert_eq!(found(&quiet, &[(0, 0.21)]).len(), 1);
        assert_eq!(found(&Machine { yardstick_after: 1.2, ..quiet.clone() }, &[]).len(), 1);
        assert_eq!(found(&Machine { yardstick_after: 0.8, ..quiet }, &[(0, 5.0)]).len(), 2);
    }

    #[test]
    fn the_yardstick_is_a_few_nanoseconds() {
        let before = Facts::of(&[0]).before();
        assert!((0.2..50.0).contains(&before.yardstick), "{} ns", before.yardstick);
    }
}
