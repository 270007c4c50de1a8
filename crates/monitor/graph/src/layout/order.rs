//! The order of the items of each column: few crossings, with the items of a group together.

use super::{AppExtent, Groups};
use crate::Link;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnItem {
    App(usize),
    /// A link, by its index in the part, in a column that it passes through.
    Lane(usize),
    /// The place where a link turns, in the column beyond: it takes no room, but makes crossings of the turn count.
    Hook(usize),
    /// The upper border of a group's frame.
    Top(usize),
    /// The lower border of a group's frame.
    Bottom(usize),
}

impl ColumnItem {
    pub(super) fn is_border(self) -> bool {
        matches!(self, ColumnItem::Top(_) | ColumnItem::Bottom(_))
    }
}

/// A stretch between neighbouring columns of a link, or of a border. The fractions give the position of each end within
/// its item.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnSegment {
    /// None for a border.
    pub(super) link: Option<usize>,
    pub(super) left: (usize, f64),
    pub(super) right: (usize, f64),
}

/// The order of items in each column. Column `c` of the layout is `c + 1` here, to leave room for hooks.
pub(super) struct Order {
    pub(super) items: Vec<ColumnItem>,
    pub(super) column_of: Vec<usize>,
    pub(super) segments: Vec<ColumnSegment>,
    /// For each item, the segments on its left and on its right.
    pub(super) on_left: Vec<Vec<usize>>,
    pub(super) on_right: Vec<Vec<usize>>,
    pub(super) columns: Vec<Vec<usize>>,
    /// For each item, its position in its column.
    pub(super) place: Vec<usize>,
    /// For each item, the group in which it is placed. A border is an item of the group around its own.
    pub(super) within: Vec<Option<usize>>,
    pub(super) groups: Groups,
    /// For each group with apps here, its first and last column.
    pub(super) spans: Vec<Option<(usize, usize)>>,
}

/// Rounds of crossing reduction from each starting order, and without an improvement.
const ROUNDS: usize = 24;
const IDLE_ROUNDS: usize = 6;

/// The maximum number of items and segments to visit for reducing crossings. After that the best order so far is used.
const MAX_VISITS: usize = 30_000_000;

/// The maximum number of items for which shuffled starting orders are tried as well.
const MAX_SHUFFLED: usize = 600;

impl Order {
    pub(super) fn new(shapes: &[AppExtent], apps: &[usize], links: &[Link], column: &[usize], groups: &Groups) -> Self {
        let columns = apps.iter().map(|&app| column[app] + 1).max().unwrap_or(0);
        let mut order = Order {
            items: Vec::new(),
            column_of: Vec::new(),
            segments: Vec::new(),
            on_left: Vec::new(),
            on_right: Vec::new(),
            columns: vec![Vec::new(); columns + 2],
            place: Vec::new(),
            within: Vec::new(),
            groups: groups.clone(),
            spans: groups.spans(apps.iter().copied(), column),
        };
        order.spans.iter_mut().flatten().for_each(|(first, last)| (*first, *last) = (*first + 1, *last + 1));
        for &app in apps {
            order.add(ColumnItem::App(app), column[app] + 1, groups.of(app).next());
        }
        let fraction = |port: usize, ports: usize| (port as f64 + 1.0) / (ports as f64 + 1.0);
        for (index, &link) in links.iter().enumerate() {
            let item = |app: usize| apps.binary_search(&app).unwrap_or(0);
            let from = (item(link.from.0), fraction(link.from.1, shapes[link.from.0].outputs.len()));
            let to = (item(link.to.0), fraction(link.to.1, shapes[link.to.0].inputs.len()));
            let (start, end) = (column[link.from.0] + 1, column[link.to.0] + 1);
            let mut left = from;
            let group = groups.of_both(link.from.0, link.to.0);
            if link.closes_loop {
                let before = (order.add(ColumnItem::Hook(index), end - 1, group), 0.5);
                let first = (order.add(ColumnItem::Lane(index), end, group), 0.5);
                order.join(Some(index), before, to);
                order.join(Some(index), before, first);
                left = first;
                for column in end + 1..=start {
                    let lane = (order.add(ColumnItem::Lane(index), column, group), 0.5);
                    order.join(Some(index), left, lane);
                    left = lane;
                }
                let behind = (order.add(ColumnItem::Hook(index), start + 1, group), 0.5);
                order.join(Some(index), left, behind);
                order.join(Some(index), from, behind);
            } else {
                for column in start + 1..end {
                    let lane = (order.add(ColumnItem::Lane(index), column, group), 0.5);
                    order.join(Some(index), left, lane);
                    left = lane;
                }
                order.join(Some(index), left, to);
            }
        }
        for group in 0..order.spans.len() {
            let Some((first, last)) = order.spans[group] else { continue };
            for border in [ColumnItem::Top(group), ColumnItem::Bottom(group)] {
                let mut left = None;
                for column in first..=last {
                    let right = order.add(border, column, groups.outer[group]);
                    if let Some(left) = left {
                        order.join(None, (left, 0.5), (right, 0.5));
                    }
                    left = Some(right);
                }
            }
        }
        order
    }

    /// Adds an item to a column and to a group, or to the group around it that has the column.
    fn add(&mut self, item: ColumnItem, column: usize, group: Option<usize>) -> usize {
        let has_column = |&group: &usize| self.spans[group].is_some_and(|(a, b)| (a..=b).contains(&column));
        self.within.push(self.groups.chain(group).find(has_column));
        self.items.push(item);
        self.column_of.push(column);
        self.on_left.push(Vec::new());
        self.on_right.push(Vec::new());
        self.place.push(0);
        self.items.len() - 1
    }

    fn join(&mut self, link: Option<usize>, left: (usize, f64), right: (usize, f64)) {
        self.on_right[left.0].push(self.segments.len());
        self.on_left[right.0].push(self.segments.len());
        self.segments.push(ColumnSegment { link, left, right });
    }

    /// Finds an order with few crossings: barycentre sweeps and exchanges of neighbours from several starts.
    pub(super) fn improve(&mut self) {
        let mut starts = vec![self.searched(false), self.searched(true)];
        if self.items.len() <= MAX_SHUFFLED {
            let mut random = 0x9e37_79b9_7f4a_7c15;
            for _ in 0..4 {
                let mut start = starts[0].clone();
                start.iter_mut().for_each(|column| shuffle(column, &mut random));
                starts.push(start);
            }
        }
        let mut best: Option<(usize, Vec<Vec<usize>>)> = None;
        let mut looks = 0;
        for start in starts {
            let start = self.grouped(start);
            self.adopt(start);
            let (mut idle, mut least) = (0, usize::MAX);
            for round in 0..ROUNDS {
                self.sweep(round % 2 == 0);
                looks += (1 + self.exchange_neighbours() + self.exchange_groups())
                    * (self.items.len() + self.segments.len());
                let crossings = self.crossings();
                if best.as_ref().is_none_or(|(fewest, _)| crossings < *fewest) {
                    best = Some((crossings, self.columns.clone()));
                }
                idle = if crossings < least { 0 } else { idle + 1 };
                least = least.min(crossings);
                if least == 0 || idle == IDLE_ROUNDS || looks > MAX_VISITS {
                    break;
                }
            }
            if best.as_ref().is_some_and(|(fewest, _)| *fewest == 0) || looks > MAX_VISITS {
                break;
            }
        }
        if let Some((_, columns)) = best {
            self.adopt(columns);
        }
    }

    pub(super) fn adopt(&mut self, columns: Vec<Vec<usize>>) {
        self.columns = columns;
        for column in 0..self.columns.len() {
            self.number(column);
        }
    }

    pub(super) fn number(&mut self, column: usize) {
        for (place, &item) in self.columns[column].iter().enumerate() {
            self.place[item] = place;
        }
    }

    /// A starting order: items in the order of a depth-first search along or against the links.
    fn searched(&self, against: bool) -> Vec<Vec<usize>> {
        let mut columns = vec![Vec::new(); self.columns.len()];
        let mut seen = vec![false; self.items.len()];
        let mut roots: Vec<usize> = (0..self.items.len()).collect();
        roots.sort_by_key(|&item| if against { usize::MAX - self.column_of[item] } else { self.column_of[item] });
        for root in roots {
            let mut stack = vec![root];
            while let Some(item) = stack.pop() {
                if std::mem::replace(&mut seen[item], true) {
                    continue;
                }
                columns[self.column_of[item]].push(item);
                let segments = if against { &self.on_left[item] } else { &self.on_right[item] };
                let mut next: Vec<&ColumnSegment> = segments.iter().map(|&segment| &self.segments[segment]).collect();
                next.sort_by(|a, b| {
                    let fraction = |segment: &ColumnSegment| if against { segment.right.1 } else { segment.left.1 };
                    fraction(a).total_cmp(&fraction(b))
                });
                stack.extend(next.iter().rev().map(|segment| if against { segment.left.0 } else { segment.right.0 }));
            }
        }
        columns
    }

    /// Sorts each column by the mean position of its neighbours in the column before.
    fn sweep(&mut self, rightwards: bool) {
        let count = self.columns.len();
        for step in 1..count {
            let column = if rightwards { step } else { count - 1 - step };
            let mean = |item: usize| {
                let segments = if rightwards { &self.on_left[item] } else { &self.on_right[item] };
                let position = |&segment: &usize| {
                    let (end, fraction) =
                        if rightwards { self.segments[segment].left } else { self.segments[segment].right };
                    self.place[end] as f64 + fraction
                };
                (!segments.is_empty()).then(|| segments.iter().map(position).sum::<f64>() / segments.len() as f64)
            };
            self.columns[column] = self.sorted(column, mean);
            self.number(column);
        }
    }

    /// Exchanges neighbours in a column as long as that saves crossings. Returns the number of passes over all columns.
    fn exchange_neighbours(&mut self) -> usize {
        const PASSES: usize = 8;
        for pass in 1..=PASSES {
            let mut saved = false;
            for column in 0..self.columns.len() {
                for upper in 1..self.columns[column].len() {
                    let (a, b) = (self.columns[column][upper - 1], self.columns[column][upper]);
                    if self.within[a] != self.within[b] {
                        continue;
                    }
                    if self.items[a].is_border() || self.items[b].is_border() {
                        saved |= self.pass_group(column, upper);
                        continue;
                    }
                    if self.crossings_of(b, a) < self.crossings_of(a, b) {
                        self.columns[column].swap(upper - 1, upper);
                        self.place[a] = upper;
                        self.place[b] = upper - 1;
                        saved = true;
                    }
                }
            }
            if !saved {
                return pass;
            }
        }
        PASSES
    }

    /// Crossings between the segments of two items of a column if `upper` lies above `lower`.
    pub(super) fn crossings_of(&self, upper: usize, lower: usize) -> usize {
        let count = |segments: &[Vec<usize>], far: fn(&ColumnSegment) -> (usize, f64)| {
            let position = |&segment: &usize| {
                let (item, fraction) = far(&self.segments[segment]);
                self.place[item] as f64 + fraction
            };
            let below: Vec<f64> = segments[lower].iter().map(position).collect();
            segments[upper].iter().map(position).map(|end| below.iter().filter(|&&other| other < end).count()).sum()
        };
        let left: usize = count(&self.on_left, |segment| segment.left);
        let right: usize = count(&self.on_right, |segment| segment.right);
        left + right
    }

    pub(super) fn crossings(&self) -> usize {
        let mut total = 0;
        for column in &self.columns {
            let mut ends: Vec<(f64, f64)> = column
                .iter()
                .flat_map(|&item| &self.on_right[item])
                .map(|&segment| {
                    let ColumnSegment { left, right, .. } = self.segments[segment];
                    (self.place[left.0] as f64 + left.1, self.place[right.0] as f64 + right.1)
                })
                .collect();
            ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let mut passed: Vec<f64> = Vec::with_capacity(ends.len());
            for (_, right) in ends {
                let at = passed.partition_point(|&other| other <= right);
                total += passed.len() - at;
                passed.insert(at, right);
            }
        }
        total
    }
}

/// Fisher and Yates' shuffle with a xorshift generator.
fn shuffle(items: &mut [usize], random: &mut u64) {
    for end in (1..items.len()).rev() {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        items.swap(end, usize::try_from(*random % (end as u64 + 1)).unwrap_or(0));
    }
}
