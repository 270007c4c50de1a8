//! Groups of paths: a route to several next hops, of which each flow keeps one.

mod buckets;
mod in_use;
mod table;

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellows_shared::{Breath, Published, Readers};

use crate::nodes::Nodes;

pub use table::GroupTable;

/// Numbers of routes from here on are those of groups; what is below is up to the user.
pub const FIRST_GROUP: u32 = 1 << 29;

/// The most paths of a group.
pub const MAX_PATHS: usize = 256;

/// A path of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Where packets go, below [`FIRST_GROUP`].
    pub next: u32,
    /// The share of flows, in proportion to the weights of the other paths. At least 1.
    pub weight: u16,
}

/// Why a group was not changed.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// A path with the weight 0.
    #[error("the path to {0} has the weight 0; a path that no flow shall take must be left out")]
    Weight(u32),
    /// A path to a group or to no number.
    #[error("the path to {0} is not below {FIRST_GROUP}: a group has no groups as its paths")]
    Path(u32),
    /// Two paths to the same number.
    #[error("two paths lead to {0}; give one of them the weight of both")]
    Twice(u32),
    /// More than [`MAX_PATHS`] paths.
    #[error("{0} paths are too many: a group has {MAX_PATHS} at most")]
    Paths(usize),
    /// No group has this number.
    #[error("there is no group {0}")]
    Unknown(u32),
    /// All numbers of groups are in use.
    #[error("there are {} groups already, which is the limit", table::MAX_GROUPS)]
    Groups,
    /// No memory.
    #[error("no memory for a group")]
    Memory(#[from] io::Error),
}

/// Groups that many threads read while one at a time changes them.
pub struct Groups {
    table: Published<GroupTable>,
    readers: Arc<Readers>,
    state: Mutex<GroupState>,
}

struct GroupState {
    /// By the number of the group.
    groups: Vec<Option<Group>>,
    /// The numbers in use. A reader may have one in hand when the group ends, so that it is not used again at once.
    numbers: Nodes,
    /// The buckets in use.
    units: Nodes,
    /// Each path, with each group that has it.
    members: BTreeSet<(u32, u32)>,
    /// The paths that are out of use.
    out: HashSet<u32>,
    /// The groups whose buckets do not follow from the paths in use yet.
    unsettled: BTreeSet<u32>,
}

#[derive(Clone)]
struct Group {
    paths: Vec<Path>,
    /// The first unit of buckets.
    unit: u32,
    /// The number of buckets.
    count: usize,
}

impl Group {
    fn units(&self) -> u32 {
        units(self.count)
    }
}

/// The units of a group of `count` buckets, which have as many homes.
fn units(count: usize) -> u32 {
    (2 * count / table::UNIT) as u32
}

impl Groups {
    /// No groups, for the workers of this process. `seed` is a number of its own for each router: routers in a row that
    /// choose by the same hash would not use all paths (polarisation).
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory.
    pub fn new(seed: u32) -> io::Result<Groups> {
        Groups::with_readers(Arc::clone(Readers::of_process()), seed)
    }

    /// No groups, with readers of their own.
    ///
    /// # Errors
    /// As for [`Groups::new`].
    pub fn with_readers(readers: Arc<Readers>, seed: u32) -> io::Result<Groups> {
        let table = Published::with_readers(GroupTable::new(1, seed)?, Arc::clone(&readers));
        let state = GroupState {
            groups: Vec::new(),
            numbers: Nodes::new(0),
            units: Nodes::new(0),
            members: BTreeSet::new(),
            out: HashSet::new(),
            unsettled: BTreeSet::new(),
        };
        Ok(Groups { table, readers, state: Mutex::new(state) })
    }

    /// The groups, for this breath. Hot.
    #[inline(always)]
    pub fn table<'b>(&'b self, breath: &'b impl Breath) -> &'b GroupTable {
        self.table.read(breath)
    }

    /// The right to change groups, which waits for whoever has it.
    pub fn lock(&self) -> GroupChanges<'_> {
        GroupChanges { groups: self, state: self.state.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// Changes of groups. Each takes effect at once.
pub struct GroupChanges<'g> {
    groups: &'g Groups,
    state: MutexGuard<'g, GroupState>,
}

impl GroupChanges<'_> {
    /// Adds a group. Returns its number, for routes.
    ///
    /// # Errors
    /// If the paths are not valid, there are too many groups, or there is no memory.
    pub fn add(&mut self, paths: &[Path]) -> Result<u32, GroupError> {
        check(paths)?;
        let homes = assigned(Vec::new(), paths, false);
        self.enter(paths, homes.clone(), homes)
    }

    /// Adds a group for destinations that another group has had: as if the paths of that one were [set](GroupChanges::set)
    /// to these, but it stays as it is. If there is no such group, as for [`GroupChanges::add`].
    ///
    /// # Errors
    /// As for [`GroupChanges::add`].
    pub fn add_like(&mut self, like: u32, paths: &[Path]) -> Result<u32, GroupError> {
        check(paths)?;
        let Some(like) = self.group(like) else { return self.add(paths) };
        let is_only_loss = paths.iter().all(|path| like.paths.contains(path));
        let (buckets, homes) = self.read(like);
        let homes = assigned(homes, paths, is_only_loss);
        self.enter(paths, grown(buckets, homes.len()), homes)
    }

    /// Enters a new group with these buckets, as far as the paths in use permit, and their homes.
    fn enter(&mut self, paths: &[Path], buckets: Vec<u32>, homes: Vec<u32>) -> Result<u32, GroupError> {
        self.reclaim();
        let buckets = self.diverted(buckets, &homes, paths);
        if self.state.numbers.end() == table::MAX_GROUPS && !self.state.numbers.has_free(1) {
            return Err(GroupError::Groups);
        }
        let group = self.state.numbers.allocate(1);
        let unit = match self.place(&buckets, &homes) {
            Ok(unit) => unit,
            Err(error) => {
                self.state.numbers.drop_node(group, 1);
                return Err(error.into());
            }
        };
        self.groups.table.lock().get().set_group(group, unit, buckets.len());
        let place = group as usize;
        if self.state.groups.len() <= place {
            self.state.groups.resize(place + 1, None);
        }
        self.put(group, Group { paths: paths.to_vec(), unit, count: buckets.len() });
        Ok(FIRST_GROUP + group)
    }

    /// Replaces the paths of a group. Flows stay with their paths as far as the weights permit: if paths are only left out,
    /// none of the others' flows moves. Without paths, the group has [no route](crate::NO_ROUTE).
    ///
    /// # Errors
    /// If the paths are not valid, there is no such group, or there is no memory.
    pub fn set(&mut self, number: u32, paths: &[Path]) -> Result<(), GroupError> {
        check(paths)?;
        let old = self.group(number).ok_or(GroupError::Unknown(number))?.clone();
        self.reclaim();
        let is_only_loss = paths.iter().all(|path| old.paths.contains(path));
        let (buckets, homes) = self.read(&old);
        let homes = assigned(homes, paths, is_only_loss);
        let buckets = self.diverted(grown(buckets, homes.len()), &homes, paths);
        let group = number - FIRST_GROUP;
        let mut unit = old.unit;
        if homes.len() == old.count {
            let table = self.groups.table.lock();
            table.get().set_homes(unit, &homes);
            table.get().set_buckets(unit, &buckets);
        } else {
            unit = self.place(&buckets, &homes)?;
            self.groups.table.lock().get().set_group(group, unit, buckets.len());
            self.state.units.drop_node(old.unit, old.units());
        }
        self.put(group, Group { paths: paths.to_vec(), unit, count: buckets.len() });
        Ok(())
    }

    /// Leaves a path out of all groups that have it. Returns the numbers of these groups.
    ///
    /// # Errors
    /// As for [`GroupChanges::set`].
    pub fn lose(&mut self, next: u32) -> Result<Vec<u32>, GroupError> {
        let affected: Vec<u32> = self.groups_with(next).collect();
        let lose = |group: u32| {
            let number = FIRST_GROUP + group;
            let paths = self.paths(number).unwrap_or_default();
            let others: Vec<Path> = paths.iter().copied().filter(|path| path.next != next).collect();
            self.set(number, &others).map(|()| number)
        };
        affected.into_iter().map(lose).collect()
    }

    /// Ends a group. Routes that still lead to it have [no route](crate::NO_ROUTE). Returns whether there was such a group.
    pub fn remove(&mut self, number: u32) -> bool {
        let Some(group) = number.checked_sub(FIRST_GROUP) else { return false };
        let Some(ended) = self.take(group) else { return false };
        self.groups.table.lock().get().set_group(group, 0, 0);
        self.state.units.drop_node(ended.unit, ended.units());
        self.state.numbers.drop_node(group, 1);
        true
    }

    /// The paths of a group.
    pub fn paths(&self, number: u32) -> Option<&[Path]> {
        self.group(number).map(|group| &*group.paths)
    }

    /// The share of flows that a path has now, from 0 to 1.
    pub fn share(&self, number: u32, next: u32) -> Option<f64> {
        let (buckets, _) = self.read(self.group(number)?);
        Some(buckets.iter().filter(|&&bucket| bucket == next).count() as f64 / buckets.len() as f64)
    }

    /// All groups by number, with their paths.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[Path])> {
        (FIRST_GROUP..).zip(&self.state.groups).filter_map(|(number, group)| Some((number, &*group.as_ref()?.paths)))
    }

    fn group(&self, number: u32) -> Option<&Group> {
        self.state.groups.get(number.checked_sub(FIRST_GROUP)? as usize)?.as_ref()
    }

    /// The buckets of a group, and their homes.
    fn read(&self, group: &Group) -> (Vec<u32>, Vec<u32>) {
        let table = self.groups.table.lock();
        (table.get().buckets(group.unit, group.count), table.get().homes(group.unit, group.count))
    }

    /// Enters a group, in place of what it was.
    fn put(&mut self, number: u32, group: Group) {
        self.take(number);
        let members = group.paths.iter().map(|path| (path.next, number));
        self.state.members.extend(members);
        self.state.groups[number as usize] = Some(group);
    }

    /// Takes a group out of the lists.
    fn take(&mut self, number: u32) -> Option<Group> {
        let group = self.state.groups.get_mut(number as usize).and_then(Option::take)?;
        for path in &group.paths {
            self.state.members.remove(&(path.next, number));
        }
        self.state.unsettled.remove(&number);
        Some(group)
    }

    /// Writes buckets and their homes where nobody reads them. Returns the first unit.
    fn place(&mut self, buckets: &[u32], homes: &[u32]) -> io::Result<u32> {
        let size = units(buckets.len());
        let unit = self.state.units.allocate(size);
        let mut table = self.groups.table.lock();
        let end = self.state.units.end();
        if end > table.get().units() {
            match table.get().grown(2 * end) {
                Ok(grown) => table.replace(grown),
                Err(error) => {
                    self.state.units.drop_node(unit, size);
                    return Err(error);
                }
            }
        }
        table.get().set_homes(unit, homes);
        table.get().set_buckets(unit, buckets);
        Ok(unit)
    }

    /// Makes available what no reader can have in hand any more.
    fn reclaim(&mut self) {
        self.groups.table.lock().reclaim();
        self.state.numbers.reclaim();
        self.state.units.reclaim();
    }
}

impl Drop for GroupChanges<'_> {
    fn drop(&mut self) {
        let GroupState { numbers, units, .. } = &mut *self.state;
        for nodes in [numbers, units] {
            if nodes.has_dropped() {
                nodes.retire(self.groups.readers.start_grace_period());
            }
        }
    }
}

/// Buckets for these paths, which keep what they have in `buckets`.
fn assigned(buckets: Vec<u32>, paths: &[Path], is_only_loss: bool) -> Vec<u32> {
    let wanted = buckets::count(paths);
    let mut buckets = if buckets.is_empty() { vec![crate::NO_ROUTE; wanted] } else { grown(buckets, wanted) };
    buckets::assign(&mut buckets, paths, is_only_loss);
    buckets
}

/// At least `wanted` buckets. More of them do not move flows: the new ones begin as parts of the old ones.
fn grown(mut buckets: Vec<u32>, wanted: usize) -> Vec<u32> {
    while buckets.len() < wanted {
        buckets = buckets.iter().flat_map(|&next| [next, next]).collect();
    }
    buckets
}

fn check(paths: &[Path]) -> Result<(), GroupError> {
    if paths.len() > MAX_PATHS {
        return Err(GroupError::Paths(paths.len()));
    }
    let mut numbers = Vec::with_capacity(paths.len());
    for &Path { next, weight } in paths {
        if weight == 0 {
            return Err(GroupError::Weight(next));
        }
        if next >= FIRST_GROUP {
            return Err(GroupError::Path(next));
        }
        numbers.push(next);
    }
    numbers.sort_unstable();
    numbers.array_windows().find(|[one, other]| one == other).map_or(Ok(()), |[next, _]| Err(GroupError::Twice(*next)))
}
