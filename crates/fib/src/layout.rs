//! What the layouts of the two families have in common, and the builder that compiles routes into one.

use std::io;
use std::marker::PhantomData;

use crate::cells::Cells;
use crate::entry::{FLAGS, NODE};
use crate::nodes::Nodes;
use crate::search::Search;
use crate::sweep::{Content, Leaf, Table, Window, sweep};

/// IPv4, as `u32`, or IPv6, as `u128`.
#[expect(private_bounds, reason = "nobody else implements it")]
pub trait Family: Layout {}

/// The layout of compiled tables.
pub(crate) trait Layout: Table {
    /// The bits that index the root.
    const ROOT: Window;

    /// The words in a unit, in which nodes are measured.
    const UNIT: usize;

    /// The units of the first node. It is all zeros, and any number may be looked up in it.
    const FIRST: u32;

    /// The word that a unit begins with.
    #[inline(always)]
    fn place(unit: u32) -> usize {
        (1 << Self::ROOT.width) + unit as usize * Self::UNIT
    }

    /// Makes the nodes for a slot of the root with prefixes that are longer.
    fn build(builder: &mut Builder<'_, Self>, leaves: &[Leaf<Self>], default: u32) -> u32
    where
        Self: Family;

    /// Frees a node and all that it leads to.
    fn free(builder: &mut Builder<'_, Self>, entry: u32)
    where
        Self: Family;

    /// Looks up at most a batch of keys, as many as there are places for entries. Hot.
    fn look_up<S: Search>(cells: &Cells, keys: &[Self], next: &mut [u32]);
}

/// Changes tables while others read them.
pub(crate) struct Builder<'t, A> {
    published: &'t Cells,
    /// A larger copy, if there were more nodes than there was room for.
    grown: Option<Cells>,
    nodes: &'t mut Nodes,
    /// Why a node could not be made.
    error: Option<io::Error>,
    family: PhantomData<A>,
}

impl<'t, A: Family> Builder<'t, A> {
    pub fn new(published: &'t Cells, nodes: &'t mut Nodes) -> Builder<'t, A> {
        Builder { published, grown: None, nodes, error: None, family: PhantomData }
    }

    fn cells(&self) -> &Cells {
        self.grown.as_ref().unwrap_or(self.published)
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
        let grown = Cells::new(2 * end)?;
        let old = self.cells();
        for at in 0..old.length() {
            grown.store(at, old.load(at));
        }
        self.grown = Some(grown);
        Ok(())
    }

    /// A part of a node.
    pub fn node<const WORDS: usize>(&self, entry: u32, at: usize) -> [u32; WORDS] {
        // SAFETY: this is the only thread that writes nodes, and the copy ends the reference at once. Families read only
        // nodes that they have added.
        unsafe { *self.cells().node(A::place(entry & !FLAGS) + at) }
    }

    /// From now on no root leads to this node.
    pub fn drop_node(&mut self, entry: u32, words: usize) {
        self.nodes.drop_node(entry & !FLAGS, (words / A::UNIT) as u32);
    }

    /// The larger copy, which takes the place of the published one.
    pub fn into_grown(self) -> Option<Cells> {
        self.grown
    }
}
