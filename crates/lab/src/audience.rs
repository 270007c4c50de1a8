//! Who waits for a benchmark.

/// Who waits for a benchmark.
pub trait Audience {
    /// So many of so many processes are done.
    fn progress(&mut self, done: usize, all: usize);

    /// A part of the report for people is finished.
    fn show(&mut self, text: &str);

    /// What a measuring process wrote to its standard error although it did its work.
    fn said(&mut self, text: &str);

    /// Whether the benchmark is to end with what it has so far.
    fn is_enough(&self) -> bool;
}

/// Nobody: for tests, and for programs that want the report alone.
impl Audience for () {
    fn progress(&mut self, _: usize, _: usize) {}

    fn show(&mut self, _: &str) {}

    fn said(&mut self, _: &str) {}

    fn is_enough(&self) -> bool {
        false
    }
}
