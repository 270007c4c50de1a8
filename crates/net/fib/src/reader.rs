//! Reading tables on threads that are no workers.

use bellows_shared::{Breath, Published, Reader};

/// A thread's access to a table, for threads without breaths: control threads, tests and benchmarks.
pub struct TableReader<'f, T> {
    tables: &'f Published<T>,
    reader: Reader,
}

/// The time within [`TableReader::read`].
struct Reading;

// SAFETY: the type is used only in `TableReader::read`, whose reader is registered with the readers of the table and
// borrowed exclusively, so that it passes and ends only afterwards. The value stays on the stack of the thread.
unsafe impl Breath for Reading {}

impl<'f, T: Send + Sync + 'static> TableReader<'f, T> {
    /// An access; `reader` must be one of the table's.
    pub(crate) fn new(tables: &'f Published<T>, reader: Reader) -> TableReader<'f, T> {
        TableReader { tables, reader }
    }

    /// Calls a function with the tables as they are. While it runs, memory of replaced tables is kept.
    pub fn read<R>(&mut self, with: impl FnOnce(&T) -> R) -> R {
        let result = with(self.tables.read(&Reading));
        self.reader.quiescent();
        result
    }
}
