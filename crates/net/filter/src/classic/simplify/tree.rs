//! Trees of blocks: dominators, with jump pointers, and the order of a walk.

use super::{NONE, Passes};

/// A forest in which ancestors are found in logarithmic time. A parent is added before its children.
struct Ancestry {
    parent: Vec<u32>,
    jump: Vec<u32>,
    depth: Vec<u32>,
}

impl Ancestry {
    /// A forest with one root, the node `root`, of this many nodes.
    pub(super) fn new(nodes: usize, root: usize) -> Ancestry {
        let mut ancestry = Ancestry { parent: vec![NONE; nodes], jump: vec![NONE; nodes], depth: vec![0; nodes] };
        ancestry.parent[root] = root as u32;
        ancestry.jump[root] = root as u32;
        ancestry
    }

    pub(super) fn add(&mut self, node: usize, parent: u32) {
        let jump = self.jump[parent as usize];
        let above = self.jump[jump as usize];
        let depth = |node: u32| self.depth[node as usize];
        let is_even = depth(parent) - depth(jump) == depth(jump) - depth(above);
        self.jump[node] = if is_even { above } else { parent };
        self.parent[node] = parent;
        self.depth[node] = self.depth[parent as usize] + 1;
    }

    fn climb(&self, mut node: u32, depth: u32) -> u32 {
        while self.depth[node as usize] > depth {
            let jump = self.jump[node as usize];
            node = if self.depth[jump as usize] >= depth { jump } else { self.parent[node as usize] };
        }
        node
    }

    /// The last common ancestor.
    fn common(&self, one: u32, other: u32) -> u32 {
        let depth = self.depth[one as usize].min(self.depth[other as usize]);
        let (mut one, mut other) = (self.climb(one, depth), self.climb(other, depth));
        while one != other {
            let (jump, other_jump) = (self.jump[one as usize], self.jump[other as usize]);
            if jump == other_jump {
                (one, other) = (self.parent[one as usize], self.parent[other as usize]);
            } else {
                (one, other) = (jump, other_jump);
            }
        }
        one
    }
}

/// A walk through a tree, parents before their children.
pub(super) struct Walk {
    /// The nodes in its order, without the root.
    pub(super) nodes: Vec<u32>,
    /// The position of each node in this order, and the first position that is not below it.
    pub(super) enter: Vec<u32>,
    pub(super) leave: Vec<u32>,
}

impl Walk {
    /// Walks through the nodes other than the root, which are listed with parents before their children.
    pub(super) fn new(nodes: &[u32], parent: &[u32]) -> Walk {
        let mut size = vec![1u32; parent.len()];
        for &node in nodes.iter().rev() {
            size[parent[node as usize] as usize] += size[node as usize];
        }
        let mut enter = vec![0; parent.len()];
        let mut leave = vec![0; parent.len()];
        // The position of the next child.
        let mut next = vec![0; parent.len()];
        let mut order = vec![0; nodes.len()];
        for &node in nodes {
            let position = &mut next[parent[node as usize] as usize];
            enter[node as usize] = *position;
            leave[node as usize] = *position + size[node as usize];
            *position += size[node as usize];
            order[enter[node as usize] as usize] = node;
            next[node as usize] = enter[node as usize] + 1;
        }
        Walk { nodes: order, enter, leave }
    }

    /// Whether `node` is `other` or one of its ancestors; neither is the root.
    pub(super) fn is_ancestor(&self, node: usize, other: usize) -> bool {
        (self.enter[node]..self.leave[node]).contains(&self.enter[other])
    }
}

impl Passes {
    /// The blocks through which every way to a block goes.
    pub(super) fn find_dominators(&self) -> Walk {
        let mut dominators = Ancestry::new(self.blocks.len(), self.root);
        // The last common dominator of the ways that are known already.
        let mut common = vec![NONE; self.blocks.len()];
        for &block in &self.order {
            if block as usize != self.root {
                dominators.add(block as usize, common[block as usize]);
            }
            for next in self.ways(block as usize).into_iter().flat_map(|(yes, no)| [yes, no]) {
                common[next] = match common[next] {
                    NONE => block,
                    other => dominators.common(other, block),
                };
            }
        }
        Walk::new(&self.order[1..], &dominators.parent)
    }

    /// The ways through which every way to a way goes, as a tree.
    pub(super) fn find_walk(&self) -> Walk {
        let count = self.blocks.len();
        let top = 2 * count;
        let mut ways = Ancestry::new(top + 1, top);
        let mut common = vec![NONE; count];
        common[self.root] = top as u32;
        let mut added = Vec::with_capacity(2 * self.tests);
        for &block in &self.order[..self.tests] {
            let above = common[block as usize];
            for way in [2 * block, 2 * block + 1] {
                ways.add(way as usize, above);
                added.push(way);
                let next = self.target(way as usize);
                if self.ways(next).is_some() {
                    common[next] = match common[next] {
                        NONE => way,
                        other => ways.common(other, way),
                    };
                }
            }
        }
        Walk::new(&added, &ways.parent)
    }
}
