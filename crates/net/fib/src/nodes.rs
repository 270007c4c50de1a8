//! The allocation of nodes: of a few sizes, freed only when no reader can have a reference to them.

use std::collections::VecDeque;

use bellows_shared::GracePeriod;

/// Where nodes are, and where there is room.
pub(crate) struct Nodes {
    /// Free places by size, in units.
    free: Vec<Vec<u32>>,
    /// The first unit that was never used.
    end: u32,
    /// Nodes that no root leads to since the last [retirement](Nodes::retire).
    dropped: Vec<NodePlace>,
    retired: VecDeque<(GracePeriod, Vec<NodePlace>)>,
    /// Units in nodes that roots lead to.
    used: usize,
}

/// A node's first unit and its size.
#[derive(Clone, Copy)]
struct NodePlace {
    first: u32,
    size: u32,
}

impl Nodes {
    /// An empty list of nodes behind the first one.
    pub fn new(first: u32) -> Nodes {
        Nodes { free: Vec::new(), end: first, dropped: Vec::new(), retired: VecDeque::new(), used: first as usize }
    }

    /// Room for a node of `size` units.
    pub fn allocate(&mut self, size: u32) -> u32 {
        self.used += size as usize;
        if let Some(first) = self.free.get_mut(size as usize).and_then(Vec::pop) {
            return first;
        }
        let first = self.end;
        self.end += size;
        first
    }

    /// Whether there is room for a node of this size in front of the end.
    pub fn has_free(&self, size: u32) -> bool {
        self.free.get(size as usize).is_some_and(|places| !places.is_empty())
    }

    /// From the next retirement on, no root leads to this node.
    pub fn drop_node(&mut self, first: u32, size: u32) {
        self.used -= size as usize;
        self.dropped.push(NodePlace { first, size });
    }

    /// Whether there are nodes to retire.
    pub fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// No root leads to the dropped nodes any more; they are free when all readers have passed.
    pub fn retire(&mut self, grace_period: GracePeriod) {
        self.retired.push_back((grace_period, std::mem::take(&mut self.dropped)));
    }

    /// Makes the room of retired nodes available that nobody can read any more.
    pub fn reclaim(&mut self) {
        while self.retired.front_mut().is_some_and(|(grace_period, _)| grace_period.is_over()) {
            let (_, places) = self.retired.pop_front().expect("there is a first one");
            for NodePlace { first, size } in places {
                let size = size as usize;
                if self.free.len() <= size {
                    self.free.resize_with(size + 1, Vec::new);
                }
                self.free[size].push(first);
            }
        }
    }

    /// Units that were ever used.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Units in nodes that roots lead to.
    pub fn used(&self) -> usize {
        self.used
    }
}
