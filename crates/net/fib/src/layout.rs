//! What the layouts of the two families have in common, and the builder that compiles routes into one.

use std::io;
use std::marker::PhantomData;

use crate::Prefix;
use crate::cells::Cells;
use crate::codes::Codes;
use crate::entry::NODE;
use crate::nodes::Nodes;
use crate::search::Search;
use crate::sweep::{Content, Leaf, SweepTable, Window, sweep};

/// IPv4, as `u32`, or IPv6, as `u128`.
#[expect(private_bounds, reason = "nobody else implements it")]
pub trait AddressFamily: Layout {}

/// The layout of compiled tables.
pub(crate) trait Layout: SweepTable {
    /// The bits of the root.
    const ROOT_WIDTH: u8;

    /// The words in front of the units: the root, and what else is always there.
    const FIXED: usize;

    /// The place of the dictionary: a number for each code.
    const DICTIONARY: usize;

    /// The words in a unit, in which nodes are measured.
    const UNIT: usize;

    /// The units that are always in use.
    const FIRST: u32;

    /// The most units.
    const MAX_UNITS: u32;

    /// The word that a unit begins with.
    #[inline(always)]
    fn place(unit: u32) -> usize {
        Self::FIXED + unit as usize * Self::UNIT
    }

    /// Makes a table without routes of zeroed memory.
    fn prepare(cells: &Cells);

    /// Whether all `routes` routes should be compiled anew, because the table has become slower than it would be then.
    fn is_worn(codes: &Codes, routes: usize) -> bool {
        // If routes have too many numbers for codes, this is rare enough to cost changes hardly anything.
        codes.missed() > 4 * routes + (1 << 16)
    }

    /// The entry of a cell for addresses that have all the same number, given as an entry of [`entry`](crate::entry).
    fn same(builder: &mut Builder<'_, Self>, entry: u32) -> u32
    where
        Self: AddressFamily;

    /// The smallest cells that a prefix reaches, or that it is in: their window, and the cell of its slot 0.
    fn reach(cells: &Cells, prefix: Prefix<Self>) -> (Window, usize);

    /// Makes the nodes for a cell with prefixes that are longer than its `offset` bits. `default` is as for
    /// [`Layout::same`].
    fn build(builder: &mut Builder<'_, Self>, leaves: &[Leaf<Self>], offset: u8, default: u32) -> u32
    where
        Self: AddressFamily;

    /// Frees what the entry of a cell with this offset leads to.
    fn free(builder: &mut Builder<'_, Self>, entry: u32, offset: u8)
    where
        Self: AddressFamily;

    /// Looks up at most a batch of keys, as many as there are places for numbers. Hot.
    fn look_up<S: Search>(cells: &Cells, keys: &[Self], next: &mut [u32]);
}

/// The cells of a table that a prefix reaches.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    pub window: Window,
    /// The first and the last slot of the window.
    pub slots: (u32, u32),
    /// The cell of slot 0.
    pub cell: usize,
}

/// Changes tables while others read them.
pub(crate) struct Builder<'t, A> {
    published: &'t Cells,
    /// A larger copy, if there were more nodes than there was room for.
    grown: Option<Cells>,
    nodes: &'t mut Nodes,
    codes: &'t mut Codes,
    /// Why a node could not be made.
    error: Option<io::Error>,
    family: PhantomData<A>,
}

impl<'t, A: AddressFamily> Builder<'t, A> {
    pub fn new(published: &'t Cells, nodes: &'t mut Nodes, codes: &'t mut Codes) -> Builder<'t, A> {
        Builder { published, grown: None, nodes, codes, error: None, family: PhantomData }
    }

    pub fn cells(&self) -> &Cells {
        self.grown.as_ref().unwrap_or(self.published)
    }

    /// The code of a number, or [`ESCAPE`](crate::codes::ESCAPE) if there are too many.
    pub fn code(&mut self, entry: u32) -> u16 {
        let cells = self.grown.as_ref().unwrap_or(self.published);
        self.codes.of(cells, A::DICTIONARY, entry)
    }

    /// The cells to compile anew when the routes to a prefix have changed, and the prefix of these cells.
    pub fn reach(&self, prefix: Prefix<A>) -> (Prefix<A>, Reach) {
        let (window, cell) = A::reach(self.cells(), prefix);
        let prefix = prefix.shortened(window.end());
        (prefix, Reach { window, slots: (prefix.address().bits(window), prefix.last().bits(window)), cell })
    }

    /// Compiles cells: `leaves` are the prefixes in them, in order, and `default` is the entry for what is in none of
    /// these.
    ///
    /// # Errors
    /// If there is no memory. The cells then are as they were.
    pub fn build(&mut self, leaves: &[Leaf<A>], reach: Reach, default: u32) -> io::Result<()> {
        let Reach { window, slots, cell } = reach;
        let mut entries = Vec::with_capacity((slots.1 - slots.0) as usize + 1);
        sweep(leaves, window, slots, default, &mut |first, last, content| match content {
            Content::Entry(entry) => {
                // Each may need a node of its own, which the others must not share.
                entries.extend((first..=last).map(|_| A::same(self, entry)));
            }
            Content::Longer(leaves, default) => entries.push(A::build(self, leaves, window.end(), default)),
        });
        let error = self.error.take();
        for (at, mut entry) in (cell + slots.0 as usize..).zip(entries) {
            // Without memory, the new nodes are those that nobody needs.
            if error.is_none() {
                let new = entry;
                entry = self.cells().load(at);
                if entry != new {
                    self.cells().store(at, new);
                }
            }
            A::free(self, entry, window.end());
        }
        error.map_or(Ok(()), Err)
    }

    /// Room for a node of these units, or `None` if there is no memory: then the cells are left as they were.
    pub fn reserve(&mut self, units: u32) -> Option<u32> {
        let first = self.nodes.allocate(units);
        let end = self.nodes.end();
        let has_room = if end > A::MAX_UNITS {
            Err(io::ErrorKind::OutOfMemory.into())
        } else if A::place(end) > self.cells().length() {
            self.grow(A::place(end))
        } else {
            Ok(())
        };
        if let Err(error) = has_room {
            self.error = Some(error);
            self.nodes.drop_node(first, units);
            return None;
        }
        Some(first)
    }

    /// Writes a node where there is room for it.
    pub fn write(&mut self, unit: u32, words: &[u32]) {
        // SAFETY: the room was just reserved: it is new, or all readers have passed since it was free.
        unsafe { self.cells().write(A::place(unit), words) };
    }

    /// Makes a node of these words: a whole number of units. Returns the entry that leads to it, or 0 if there is no memory.
    pub fn add(&mut self, words: &[u32]) -> u32 {
        let Some(first) = self.reserve((words.len() / A::UNIT) as u32) else { return 0 };
        self.write(first, words);
        NODE | first
    }

    /// Makes room for twice as many nodes.
    fn grow(&mut self, end: usize) -> io::Result<()> {
        let grown = Cells::new(2 * end)?;
        let old = self.cells();
        for at in 0..old.length() {
            grown.store(at, old.load(at));
        }
        self.grown = Some(grown);
        Ok(())
    }

    /// A word of a node.
    pub fn word(&self, at: usize) -> u32 {
        self.cells().load(at)
    }

    /// From now on no root leads to this node.
    pub fn drop_node(&mut self, unit: u32, units: u32) {
        self.nodes.drop_node(unit, units);
    }

    /// The larger copy, which takes the place of the published one.
    pub fn into_grown(self) -> Option<Cells> {
        self.grown
    }
}
