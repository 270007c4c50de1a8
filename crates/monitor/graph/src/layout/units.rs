//! Groups in the order of items: each column is a sequence of items and of groups, which are such sequences in turn.

use super::order::{ColumnItem, Order};

/// What lies beside each other in a column or in a group.
#[derive(Clone, Debug)]
enum Unit {
    Item(usize),
    /// A group between its borders.
    Group {
        top: usize,
        inside: Vec<Unit>,
        bottom: usize,
    },
}

impl Unit {
    /// Appends the items from the top.
    fn write(&self, items: &mut Vec<usize>) {
        match self {
            Unit::Item(item) => items.push(*item),
            Unit::Group { top, inside, bottom } => {
                items.push(*top);
                inside.iter().for_each(|unit| unit.write(items));
                items.push(*bottom);
            }
        }
    }
}

fn flat(units: &[Unit]) -> Vec<usize> {
    let mut items = Vec::new();
    units.iter().for_each(|unit| unit.write(&mut items));
    items
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The rising sequence that is nearest to the values: neighbours that fall get their mean.
fn rising(values: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for &value in values {
        blocks.push((value, 1));
        while let [.., (a, m), (b, n)] = blocks[..]
            && a > b
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push(((a * m as f64 + b * n as f64) / (m + n) as f64, m + n));
        }
    }
    blocks.into_iter().flat_map(|(value, count)| std::iter::repeat_n(value, count)).collect()
}

impl Order {
    /// The most pairs of groups that are tried the other way round in a round.
    const MAX_PAIRS: usize = 200;

    /// The units of a column whose groups are together.
    fn units(&self, column: usize) -> Vec<Unit> {
        let mut open: Vec<(usize, Vec<Unit>)> = Vec::new();
        let mut units = Vec::new();
        for &item in &self.columns[column] {
            match self.items[item] {
                ColumnItem::Top(_) => open.push((item, std::mem::take(&mut units))),
                ColumnItem::Bottom(_) => {
                    let Some((top, before)) = open.pop() else { continue };
                    let inside = std::mem::replace(&mut units, before);
                    units.push(Unit::Group { top, inside, bottom: item });
                }
                _ => units.push(Unit::Item(item)),
            }
        }
        units
    }

    /// The items of a column in the order of their keys. Items without a key stay where they are, groups stay together,
    /// and beside other groups as they are.
    pub(super) fn sorted(&self, column: usize, key: impl Fn(usize) -> Option<f64>) -> Vec<usize> {
        flat(&self.sorted_units(self.units(column), &key))
    }

    fn sorted_units(&self, units: Vec<Unit>, key: &impl Fn(usize) -> Option<f64>) -> Vec<Unit> {
        let mut units: Vec<Unit> = units
            .into_iter()
            .map(|unit| match unit {
                Unit::Group { top, inside, bottom } => {
                    Unit::Group { top, inside: self.sorted_units(inside, key), bottom }
                }
                item @ Unit::Item(_) => item,
            })
            .collect();
        let mut keys: Vec<Option<f64>> = units
            .iter()
            .map(|unit| match unit {
                Unit::Item(item) => key(*item),
                Unit::Group { top, .. } => {
                    let items = flat(std::slice::from_ref(unit));
                    mean(items.into_iter().filter_map(key)).or(Some(self.place[*top] as f64))
                }
            })
            .collect();
        let groups: Vec<usize> = (0..units.len()).filter(|&at| matches!(units[at], Unit::Group { .. })).collect();
        let of_groups: Vec<f64> = groups.iter().filter_map(|&at| keys[at]).collect();
        for (&at, value) in groups.iter().zip(rising(&of_groups)) {
            keys[at] = Some(value);
        }
        let slots: Vec<usize> = (0..units.len()).filter(|&at| keys[at].is_some()).collect();
        let mut order = slots.clone();
        order.sort_by(|&a, &b| keys[a].unwrap_or(0.0).total_cmp(&keys[b].unwrap_or(0.0)));
        let sorted: Vec<Unit> = order.into_iter().map(|at| units[at].clone()).collect();
        for (slot, unit) in slots.into_iter().zip(sorted) {
            units[slot] = unit;
        }
        units
    }

    /// A starting order with the items of each group brought together, and groups in the same order everywhere.
    pub(super) fn grouped(&self, start: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
        if self.spans.iter().all(Option::is_none) {
            return start;
        }
        // Where an item is in its column, from 0 to 1; and the mean of that for each group.
        let mut at = vec![0.0; self.items.len()];
        let mut sums = vec![(0.0, 0.0); self.spans.len()];
        for column in &start {
            for (place, &item) in column.iter().enumerate() {
                at[item] = (place as f64 + 0.5) / column.len() as f64;
                for group in self.groups.chain(self.within[item]) {
                    sums[group].0 += at[item];
                    sums[group].1 += 1.0;
                }
            }
        }
        let group_at: Vec<f64> = sums.into_iter().map(|(sum, count): (f64, f64)| sum / count.max(1.0)).collect();
        let columns = start.into_iter().map(|column| flat(&self.gathered(&column, None, &at, &group_at)));
        columns.collect()
    }

    /// The units of the column's items that lie within a group, or in none.
    fn gathered(&self, column: &[usize], group: Option<usize>, at: &[f64], group_at: &[f64]) -> Vec<Unit> {
        let mut units: Vec<(f64, usize, Unit)> = Vec::new();
        for &item in column.iter().filter(|&&item| self.within[item] == group) {
            match self.items[item] {
                ColumnItem::Top(inner) => {
                    let inside = self.gathered(column, Some(inner), at, group_at);
                    let bottom = column.iter().copied().find(|&other| self.items[other] == ColumnItem::Bottom(inner));
                    let bottom = bottom.unwrap_or(item);
                    units.push((group_at[inner], inner, Unit::Group { top: item, inside, bottom }));
                }
                ColumnItem::Bottom(_) => {}
                _ => units.push((at[item], 0, Unit::Item(item))),
            }
        }
        units.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        units.into_iter().map(|(_, _, unit)| unit).collect()
    }

    /// Moves an item past a group that lies next to it, if that saves crossings. One of the items at `lower` and before
    /// it is a border of the group, the other one lies beside the group.
    pub(super) fn pass_group(&mut self, column: usize, lower: usize) -> bool {
        let items = &self.columns[column];
        let (a, b) = (items[lower - 1], items[lower]);
        let count = |pairs: &mut dyn Iterator<Item = (usize, usize)>| -> usize {
            pairs.map(|(upper, lower)| self.crossings_of(upper, lower)).sum()
        };
        match (self.items[a], self.items[b]) {
            (ColumnItem::Bottom(group), other) if !other.is_border() => {
                let Some(first) = items.iter().position(|&item| self.items[item] == ColumnItem::Top(group)) else {
                    return false;
                };
                let block = &items[first..lower];
                if count(&mut block.iter().map(|&x| (b, x))) >= count(&mut block.iter().map(|&x| (x, b))) {
                    return false;
                }
                self.columns[column][first..=lower].rotate_right(1);
            }
            (other, ColumnItem::Top(group)) if !other.is_border() => {
                let Some(last) = items.iter().position(|&item| self.items[item] == ColumnItem::Bottom(group)) else {
                    return false;
                };
                let block = &items[lower..=last];
                if count(&mut block.iter().map(|&x| (x, a))) >= count(&mut block.iter().map(|&x| (a, x))) {
                    return false;
                }
                self.columns[column][lower - 1..=last].rotate_left(1);
            }
            _ => return false,
        }
        self.number(column);
        true
    }

    /// Exchanges groups that lie next to each other, in all columns, where that saves crossings. Returns the number of
    /// looks at all items.
    pub(super) fn exchange_groups(&mut self) -> usize {
        let mut pairs = Vec::new();
        for a in (0..self.spans.len()).filter(|&a| self.spans[a].is_some()) {
            let beside = |&b: &usize| self.groups.outer[a] == self.groups.outer[b] && self.spans[b].is_some();
            pairs.extend((a + 1..self.spans.len()).filter(beside).map(|b| (a, b)));
        }
        pairs.truncate(Self::MAX_PAIRS);
        let mut crossings = if pairs.is_empty() { 0 } else { self.crossings() };
        let mut looks = 0;
        for (a, b) in pairs {
            let Some(exchanged) = self.exchanged(a, b) else { continue };
            let before = std::mem::take(&mut self.columns);
            self.adopt(exchanged);
            let after = self.crossings();
            looks += 1;
            if after < crossings {
                crossings = after;
            } else {
                self.adopt(before);
            }
        }
        looks
    }

    /// The order with two groups the other way round in all columns that both have; `None` if there are none, or if
    /// another group lies between them.
    fn exchanged(&self, a: usize, b: usize) -> Option<Vec<Vec<usize>>> {
        let ((a_first, a_last), (b_first, b_last)) = (self.spans[a]?, self.spans[b]?);
        let shared = a_first.max(b_first)..=a_last.min(b_last);
        if shared.is_empty() {
            return None;
        }
        let mut columns = self.columns.clone();
        for column in shared {
            let items = &self.columns[column];
            let range = |group| {
                let top = items.iter().position(|&item| self.items[item] == ColumnItem::Top(group))?;
                let bottom = items.iter().position(|&item| self.items[item] == ColumnItem::Bottom(group))?;
                Some((top, bottom + 1))
            };
            let (mut upper, mut lower) = (range(a)?, range(b)?);
            if upper.0 > lower.0 {
                (upper, lower) = (lower, upper);
            }
            let between = &items[upper.1..lower.0];
            if between.iter().any(|&item| self.items[item].is_border()) {
                return None;
            }
            let exchanged =
                [&items[..upper.0], &items[lower.0..lower.1], between, &items[upper.0..upper.1], &items[lower.1..]];
            columns[column] = exchanged.concat();
        }
        Some(columns)
    }
}
