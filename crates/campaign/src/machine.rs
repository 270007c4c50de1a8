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
    stolen: Option<u64>,
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
        let stolen = self.stolen().zip(before.stolen).map(|(after, before)| after.saturating_sub(before));
        let machine = Machine {
            host: self.host.clone(),
            cpu: self.cpu.clone(),
            cpus: cpu::ranges(&self.cpus),
            os: self.os.clone(),
            load: before.load,
            steal: stolen.map(|ticks| ticks as f64 / TICKS_PER_SECOND),
            yardstick_before: before.yardstick,
            yardstick_after: yardstick(),
        };
        let disturbed = disturbances(&machine, self.cpus.len(), seconds, limits);
        (machine, disturbed)
    }

    /// The steal time of the processors, in ticks.
    fn stolen(&self) -> Option<u64> {
        stolen(&fs::read_to_string("/proc/stat").ok()?, &self.cpus)
    }
}

fn stolen(stat: &str, cpus: &[usize]) -> Option<u64> {
    let mut sum = None;
    for line in stat.lines() {
        let mut fields = line.split_ascii_whitespace();
        let number = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if number.is_some_and(|number: usize| cpus.contains(&number)) {
            let ticks: u64 = fields.nth(7)?.parse().ok()?;
            sum = Some(sum.unwrap_or(0) + ticks);
        }
    }
    sum
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

/// What disturbed a run, as sentences without a full stop.
pub(crate) fn disturbances(machine: &Machine, cpus: usize, seconds: f64, limits: &Disturbance) -> Vec<String> {
    let mut disturbed = Vec::new();
    if let Some(steal) = machine.steal
        && steal > limits.steal * seconds * cpus.max(1) as f64
    {
        disturbed.push(format!("the host took {steal:.2} s of {seconds:.2} s on {cpus} processors"));
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
        assert_eq!(stolen(stat, &[0]), Some(8));
        assert_eq!(stolen(stat, &[0, 1]), Some(28));
        assert_eq!(stolen(stat, &[10]), Some(300));
        assert_eq!(stolen(stat, &[5]), None);
        assert_eq!(stolen("cpu0 1 2", &[0]), None);
    }

    #[test]
    fn a_run_is_disturbed_above_the_limits_only() {
        let facts = Facts::of(&[0]);
        let (quiet, _) = facts.after(&facts.before(), 1.0, &Disturbance::default());
        let quiet = Machine { steal: Some(0.0), yardstick_before: 1.0, yardstick_after: 1.05, ..quiet };
        let limits = Disturbance { steal: 0.02, speed: 0.1 };
        let count = |machine: &Machine| disturbances(machine, 2, 10.0, &limits).len();
        assert_eq!(count(&quiet), 0);
        assert_eq!(count(&Machine { steal: Some(0.39), ..quiet.clone() }), 0);
        assert_eq!(count(&Machine { steal: Some(0.41), ..quiet.clone() }), 1);
        assert_eq!(count(&Machine { yardstick_after: 1.2, ..quiet.clone() }), 1);
        assert_eq!(count(&Machine { yardstick_after: 0.8, steal: Some(5.0), ..quiet }), 2);
    }

    #[test]
    fn the_yardstick_is_a_few_nanoseconds() {
        let before = Facts::of(&[0]).before();
        assert!((0.2..50.0).contains(&before.yardstick), "{} ns", before.yardstick);
    }
}
