//! Receives progress and partial reports from a benchmark.

/// Receives progress and partial reports from a benchmark, and can end it early.
pub trait Observer {
    /// `done` of `all` processes have finished.
    fn progress(&mut self, done: usize, all: usize);

    /// A part of the text report is finished.
    fn show(&mut self, text: &str);

    /// A worker succeeded and wrote this to its standard error.
    fn worker_stderr(&mut self, text: &str);

    /// Whether the benchmark should end with the figures that it has so far.
    fn should_stop(&self) -> bool;
}

/// Ignores everything, for tests and for programs that need only the report.
impl Observer for () {
    fn progress(&mut self, _: usize, _: usize) {}

    fn show(&mut self, _: &str) {}

    fn worker_stderr(&mut self, _: &str) {}

    fn should_stop(&self) -> bool {
        false
    }
}
