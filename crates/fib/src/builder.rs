//! Compiles routes into nodes and roots.

use std::io;

use crate::Family;
use crate::cells::Cells;
use crate::nodes::Nodes;
use crate::sweep::{Content, Leaf, sweep};
use crate::tables::{NODE, Tables};

/// Changes tables while others read them.
pub(crate) struct Builder<'t, A> {
    published: &'t Tables<A>,
    /// A larger copy, if there were more nodes than the published tables have room for.
    grown: Option<Tables<A>>,
    nodes: &'t mut Nodes,
    /// Why a node could not be made.
    error: Option<io::Error>,
}

impl<'t, A: Family> Builder<'t, A> {
    pub fn new(published: &'t Tables<A>, nodes: &'t mut Nodes) -> Builder<'t, A> {
        Builder { published, grown: None, nodes, error: None }
    }

    fn cells(&self) -> &Cells {
        &self.grown.as_ref().unwrap_or(self.published).cells
    }

    /// Compiles the slots of the root from `first` to `last`: `leaves` are the prefixes in them, in order, and `default` is
    /// the entry for what is in none of these.
    ///
    /// # Errors
    /// If there is no memory. The slots then are as they were.
    pub fn build(&mut self, leaves: &[Leaf<A>], slots: (u32, u32), default: u32) -> io::Result<()> {
        let mut entries = Vec::with_capacity((slots.1 - slots.0) as usize + 1);
        sweep(leaves, A::ROOT, slots, default, &mut |first, last, content| match content {
            Content::Entry(entry) => entries.extend((first..=last).map(|_| entry)),
            Content::Longer(leaves, default) => entries.push(A::build(self, leaves, default)),
        });
        let error = self.error.take();
        for (slot, mut entry) in (slots.0 as usize..).zip(entries) {
            // Without memory, the new nodes are those that nobody needs.
            if error.is_none() {
                let new = entry;
                entry = self.cells().load(slot);
                if entry != new {
                    self.cells().store(slot, new);
                }
            }
            self.free(entry);
        }
        error.map_or(Ok(()), Err)
    }

    /// Frees an entry's nodes, which no root leads to any more.
    pub fn free(&mut self, entry: u32) {
        if entry & NODE != 0 {
            A::free(self, entry);
        }
    }

    /// Makes a node of these words: a whole number of units. Returns the entry that leads to it.
    pub fn add(&mut self, words: &[u32]) -> u32 {
        let size = words.len() / A::UNIT;
        let first = self.nodes.allocate(size as u32);
        let end = A::place(self.nodes.end());
        if end > self.cells().length()
            && let Err(error) = self.grow(end)
        {
            self.error = Some(error);
            self.nodes.drop_node(first, size as u32);
            return 0;
        }
        // SAFETY: the node was just allocated: it is new, or all readers have passed since it was free.
        unsafe { self.cells().write(A::place(first), words) };
        NODE | first
    }

    /// Makes room for twice as many nodes.
    fn grow(&mut self, end: usize) -> io::Result<()> {
        let grown = Tables::new(2 * end)?;
        let old = self.cells();
        for at in 0..old.length() {
            grown.cells.store(at, old.load(at));
        }
        self.grown = Some(grown);
        Ok(())
    }

    /// A part of a node.
    pub fn node<const WORDS: usize>(&self, entry: u32, at: usize) -> [u32; WORDS] {
        // SAFETY: this is the only thread that writes nodes, and the copy ends the reference at once. Families read only
        // nodes that they have added.
        unsafe { *self.cells().node(A::place(entry & !crate::tables::FLAGS) + at) }
    }

    /// From now on no root leads to this node.
    pub fn drop_node(&mut self, entry: u32, words: usize) {
        self.nodes.drop_node(entry & !crate::tables::FLAGS, (words / A::UNIT) as u32);
    }

    /// The larger copy, which takes the place of the published tables.
    pub fn into_grown(self) -> Option<Tables<A>> {
        self.grown
    }
}
