//! Receives progress and partial reports from a benchmark.

/// Receives progress and partial reports from a benchmark, and can end it early.
pub trait Audience {
    /// `done` of `all` processes have finished.
    fn progress(&mut self, done: usize, all: usize);

    /// A part of the text report is finished.
    fn show(&mut self, text: &str);

    /// A worker succeeded and wrote this to its standard error.
    fn said(&mut self, text: &str);

    /// Whether the benchmark should end with the figures that it has so far.
    fn is_enough(&self) -> bool;
}

/// Ignores everything, for tests and for programs that need only the report.
impl Audience for () {
    fn progress(&mut self, _: usize, _: usize) {}

    fn show(&mut self, _: &str) {}

    fn said(&mut self, _: &str) {}

    fn is_enough(&self) -> bool {
        false
    }
}
