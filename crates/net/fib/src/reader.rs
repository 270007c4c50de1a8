//! Reading tables on threads that are no workers.

use bellows_shared::{Breath, Published, Reader};

use crate::fib::Tables;
use crate::layout::AddressFamily;

/// A thread's access to a table, for threads without breaths: control threads, tests and benchmarks.
pub struct TableReader<'f, A: AddressFamily> {
    tables: &'f Published<Tables<A>>,
    reader: Reader,
}

/// The time within [`TableReader::read`].
struct Reading;

// SAFETY: the type is used only in `TableReader::read`, whose reader is enrolled with the readers of the table and borrowed
// exclusively, so that it passes and ends only afterwards. The value stays on the stack of the thread.
unsafe impl Breath for Reading {}

impl<'f, A: AddressFamily> TableReader<'f, A> {
    /// An access; `reader` must be one of the table's.
    pub(crate) fn new(tables: &'f Published<Tables<A>>, reader: Reader) -> TableReader<'f, A> {
        TableReader { tables, reader }
    }

    /// Calls a function with the tables as they are. While it runs, memory of replaced tables is kept.
    pub fn read<T>(&mut self, with: impl FnOnce(&Tables<A>) -> T) -> T {
        let result = with(self.tables.read(&Reading));
        self.reader.pass();
        result
    }
}
