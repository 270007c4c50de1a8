//! Paths that are out of use for a time: others take their flows meanwhile, and give them back.

use super::{FIRST_GROUP, GroupChanges, Path, buckets};

impl GroupChanges<'_> {
    /// Takes a path out of use in all groups, also in those to come, or puts it to use again. Its flows move with
    /// [`GroupChanges::settle`], those of others never: a path that is put to use again gets back what it had, and its share
    /// of what others that are still out of use had. A group of which no path is in use uses all.
    pub fn set_out_of_use(&mut self, next: u32, is_out: bool) {
        let has_changed = if is_out { self.state.out.insert(next) } else { self.state.out.remove(&next) };
        if has_changed {
            let groups: Vec<u32> = self.groups_with(next).collect();
            self.state.unsettled.extend(groups);
        }
    }

    /// Whether a path is out of use.
    pub fn is_out_of_use(&self, next: u32) -> bool {
        self.state.out.contains(&next)
    }

    /// Moves flows off paths that are out of use and back, in groups of up to `max_buckets`, or in one group. Returns
    /// whether all are where they belong; if not, call it again.
    pub fn settle(&mut self, max_buckets: usize) -> bool {
        let mut left = max_buckets;
        while let Some(number) = self.state.unsettled.pop_first() {
            let Some(group) = self.group(FIRST_GROUP + number) else { continue };
            let (buckets, homes) = self.read(group);
            let buckets = self.diverted(buckets, &homes, &group.paths);
            self.groups.table.lock().get().set_buckets(group.unit, &buckets);
            left = left.saturating_sub(buckets.len());
            if left == 0 {
                break;
            }
        }
        self.is_settled()
    }

    /// Whether the flows of all groups are where they belong.
    pub fn is_settled(&self) -> bool {
        self.state.unsettled.is_empty()
    }

    /// The groups that have a path.
    pub(super) fn groups_with(&self, next: u32) -> impl Iterator<Item = u32> {
        self.state.members.range((next, 0)..=(next, u32::MAX)).map(|&(_, group)| group)
    }

    /// These buckets, as they follow from the paths that are in use.
    pub(super) fn diverted(&self, mut buckets: Vec<u32>, homes: &[u32], paths: &[Path]) -> Vec<u32> {
        buckets::divert(homes, &mut buckets, paths, |next| self.is_out_of_use(next));
        buckets
    }
}
