//! What rows say of machines and programs.

use crate::line::Line;
use crate::words::Words;

/// Names, each with its number of runs.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    names: Words,
    runs: Vec<usize>,
}

impl Counts {
    fn add(&mut self, name: &str) {
        let number = self.names.intern(name) as usize;
        if number == self.runs.len() {
            self.runs.push(0);
        }
        self.runs[number] += 1;
    }

    /// The names with their numbers of runs, in the order of the runs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.all().iter().map(String::as_str).zip(self.runs.iter().copied())
    }
}

/// What rows say of machines and programs. Rows of imported results do not say it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The names of machines.
    pub machines: Counts,
    /// Processors, each with those that commands could run on.
    pub processors: Counts,
    /// Kernels.
    pub kernels: Counts,
    /// Versions: `program: version`.
    pub versions: Counts,
    /// A name that is being put together.
    text: String,
}

impl Observed {
    /// Counts a run.
    pub(crate) fn add(&mut self, line: &Line<'_>) {
        let machine = &line.machine;
        if !machine.host.0.is_empty() {
            self.machines.add(&machine.host.0);
        }
        if !machine.cpu.0.is_empty() || !machine.cpus.0.is_empty() {
            self.text.clear();
            self.text.extend([&*machine.cpu.0, ", processors ", &*machine.cpus.0]);
            self.processors.add(&self.text);
        }
        if !machine.os.0.is_empty() {
            self.kernels.add(&machine.os.0);
        }
        for (program, version) in &line.versions.0 {
            self.text.clear();
            self.text.extend([&*program.0, ": ", &*version.0]);
            self.versions.add(&self.text);
        }
    }
}
