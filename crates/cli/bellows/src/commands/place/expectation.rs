//! The expected costs of the placement that was written last, kept in the folder of the run.

use bellows_inspect::baseline;
use bellows_inspect::networks::Sample;
use bellows_inspect::placing::PlacementPlan;
use bellows_inspect::text::foreign_json;
use bellows_observe::RuntimeDir;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::command_error::CommandError;

/// The file's name. It disappears with the folder when the run ends.
const FILE: &str = "placement";

/// A written placement and its expected costs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Expectation {
    pid: u32,
    started: u64,
    /// The placement.
    pub plan: PlacementPlan,
}

impl Expectation {
    /// The expectation of the run that these counters belong to, if there is one.
    pub fn read(runtime_dir: &RuntimeDir, now: &Sample) -> Option<Expectation> {
        let kept: Expectation = foreign_json(&runtime_dir.read(FILE).ok()?).ok()?;
        ((kept.pid, kept.started) == run(now)).then_some(kept)
    }

    /// Keeps the expectation of a placement.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(runtime_dir: &RuntimeDir, now: &Sample, plan: &PlacementPlan) -> Result<(), CommandError> {
        let (pid, started) = run(now);
        let value = json!(Expectation { pid, started, plan: plan.clone() });
        baseline::replace(runtime_dir, FILE, &value).map_err(|error| {
            CommandError::Failed(format!(
                "the network file is written, but not the expected costs, {}: {error}; \
                 check that the disk has room and that the run still exists",
                runtime_dir.file(FILE).display()
            ))
        })
    }
}

/// What distinguishes a run from others of its name.
fn run(sample: &Sample) -> (u32, u64) {
    (sample.counters.pid, sample.counters.engine("started"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_observe::Snapshot;

    fn sample(pid: u32) -> Sample {
        let engine = [("started".to_owned(), 5)].into();
        Sample { at: 9, counters: Snapshot { pid, engine, ..Snapshot::default() } }
    }

    #[test]
    fn an_expectation_belongs_to_its_run() {
        let runtime_dir = RuntimeDir::claim(&format!("test-expectation-{}", std::process::id())).unwrap();
        assert!(Expectation::read(&runtime_dir, &sample(7)).is_none());
        let plan = PlacementPlan { packets_per_second: 1e6, ..PlacementPlan::default() };
        Expectation::write(&runtime_dir, &sample(7), &plan).unwrap();
        assert_eq!(Expectation::read(&runtime_dir, &sample(7)).unwrap().plan, plan);
        assert!(Expectation::read(&runtime_dir, &sample(8)).is_none());
        std::fs::write(runtime_dir.file(FILE), "{}").unwrap();
        assert!(Expectation::read(&runtime_dir, &sample(7)).is_none());
        runtime_dir.remove().unwrap();
        let said = Expectation::write(&runtime_dir, &sample(7), &plan).unwrap_err().to_string();
        assert!(said.contains("the network file is written, but not"), "{said}");
    }
}
