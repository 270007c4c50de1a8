//! The heights of apps, lanes and borders, once their order is known.

use std::collections::BTreeMap;

use super::order::{ColumnItem, ColumnSegment, Order};
use super::{AppExtent, ConnectedPart, GroupFrame, Placement, Spacing, Wire};
use crate::Link;
use crate::simplex::{self, Arc};

impl Order {
    /// Assigns a height to every item so that as many links as possible are straight.
    pub(super) fn heights(
        self,
        shapes: &[AppExtent],
        apps: Vec<usize>,
        links: &[Link],
        placement: &mut Placement,
        spacing: Spacing,
    ) -> ConnectedPart {
        let (variable, variables) = self.variables(links);
        let extent = |item: ColumnItem| match item {
            ColumnItem::App(app) => shapes[app].height,
            ColumnItem::Lane(_) | ColumnItem::Hook(_) => spacing.lane,
            ColumnItem::Top(_) | ColumnItem::Bottom(_) => 0,
        };
        let mut separations: BTreeMap<(usize, usize), i32> = BTreeMap::new();
        for column in &self.columns {
            let solid: Vec<usize> =
                column.iter().copied().filter(|&item| !matches!(self.items[item], ColumnItem::Hook(_))).collect();
            for pair in solid.windows(2) {
                let distance = match (self.items[pair[0]], self.items[pair[1]]) {
                    (ColumnItem::Top(_), _) => spacing.below_frame_top,
                    (upper, ColumnItem::Bottom(_)) => extent(upper) + spacing.above_frame_bottom,
                    (upper, ColumnItem::Top(_)) | (upper @ ColumnItem::Bottom(_), _) => {
                        extent(upper) + spacing.around_frame
                    }
                    (ColumnItem::App(app), ColumnItem::App(_)) => shapes[app].height + spacing.apps,
                    (ColumnItem::App(app), _) => shapes[app].height + spacing.app_to_lane,
                    (_, ColumnItem::App(_)) => spacing.lane + spacing.app_to_lane,
                    _ => spacing.lane + spacing.lanes,
                };
                let widest = separations.entry((variable[pair[0]], variable[pair[1]])).or_insert(distance);
                *widest = distance.max(*widest);
            }
        }
        let ties = self.ties(shapes, links, &variable);
        let high = heights_towards(variables, &separations, &ties, false);
        let low = heights_towards(variables, &separations, &ties, true);
        // The mean of two optimal solutions is optimal, and lies in the middle where there is a choice.
        let mut height: Vec<i32> = high.iter().zip(&low).map(|(high, low)| (high + low).div_euclid(2)).collect();
        straighten(&mut height, &separations, &ties);
        let solid = || (0..self.items.len()).filter(|&item| !matches!(self.items[item], ColumnItem::Hook(_)));
        let top = solid().map(|item| height[variable[item]]).min().unwrap_or(0);
        let bottom = solid().map(|item| height[variable[item]] + extent(self.items[item])).max().unwrap_or(0);

        let mut frames = vec![(0, 0); self.spans.len()];
        let mut lanes: Vec<BTreeMap<usize, i32>> = vec![BTreeMap::new(); links.len()];
        for item in solid() {
            let height = height[variable[item]] - top;
            match self.items[item] {
                ColumnItem::App(app) => placement.top[app] = height,
                ColumnItem::Lane(link) | ColumnItem::Hook(link) => {
                    lanes[link].insert(self.column_of[item] - 1, height);
                }
                ColumnItem::Top(group) => frames[group].0 = height,
                ColumnItem::Bottom(group) => frames[group].1 = height,
            }
        }
        let wires = links.iter().zip(lanes).map(|(&link, lanes)| Wire {
            link,
            back: link.closes_loop,
            start: placement.top[link.from.0] + shapes[link.from.0].outputs[link.from.1],
            end: placement.top[link.to.0] + shapes[link.to.0].inputs[link.to.1],
            first: lanes.keys().next().copied().unwrap_or(0),
            lanes: lanes.into_values().collect(),
        });
        let frame = |(group, span): (usize, &Option<(usize, usize)>)| {
            let (first, last) = (*span)?;
            let (top, bottom) = frames[group];
            Some(GroupFrame { group, columns: (first - 1, last - 1), top, bottom })
        };
        let frames = self.spans.iter().enumerate().filter_map(frame).collect();
        ConnectedPart { columns: self.columns.len() - 2, height: bottom - top, wires: wires.collect(), apps, frames }
    }

    /// A variable for each item. The lanes of a link share one, which keeps it straight, unless two such links cross, or
    /// it crosses a border. A border has one variable in all columns.
    fn variables(&self, links: &[Link]) -> (Vec<usize>, usize) {
        let mut variable: Vec<usize> = (0..self.items.len()).collect();
        let mut inner: Vec<usize> = (0..self.segments.len())
            .filter(|&segment| {
                let ColumnSegment { left, right, .. } = self.segments[segment];
                let [left, right] = [self.items[left.0], self.items[right.0]];
                left.is_border() || matches!((left, right), (ColumnItem::Lane(_), ColumnItem::Lane(_)))
            })
            .collect();
        let mut length = vec![0_usize; links.len()];
        let link = |segment: usize| self.segments[segment].link;
        inner.iter().filter_map(|&segment| link(segment)).for_each(|link| length[link] += 1);
        // Borders come first: they cross no other border.
        inner.sort_by_key(|&segment| std::cmp::Reverse(link(segment).map_or(usize::MAX, |link| length[link])));
        let mut straight: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.columns.len()];
        let mut joined = vec![None; self.items.len()];
        for segment in inner {
            let ColumnSegment { left: (left, _), right: (right, _), .. } = self.segments[segment];
            let (a, b) = (self.place[left], self.place[right]);
            let others = &mut straight[self.column_of[left]];
            if others.iter().all(|&(c, d)| (a < c) == (b < d)) {
                others.push((a, b));
                joined[right] = Some(left);
            }
        }
        // Left ends come before right ends in the list of items, so one pass carries a variable along the whole link.
        for item in 0..self.items.len() {
            if let Some(left) = joined[item] {
                variable[item] = variable[left];
            }
        }
        (variable, self.items.len())
    }

    /// Pairs of heights that should be equal.
    fn ties(&self, shapes: &[AppExtent], links: &[Link], variable: &[usize]) -> Vec<Tie> {
        let mut ties = Vec::new();
        let output = |link: Link| shapes[link.from.0].outputs[link.from.1];
        let input = |link: Link| shapes[link.to.0].inputs[link.to.1];
        let mut turns: BTreeMap<usize, Vec<(usize, i32)>> = BTreeMap::new();
        for segment in &self.segments {
            let (left, right) = (segment.left.0, segment.right.0);
            let Some(link) = segment.link.map(|link| links[link]) else { continue };
            let offset = |item: usize, port: i32| if matches!(self.items[item], ColumnItem::App(_)) { port } else { 0 };
            let (a, b) = ((variable[left], offset(left, output(link))), (variable[right], offset(right, input(link))));
            match (self.items[left], self.items[right]) {
                (ColumnItem::Hook(_), _) => turns.entry(left).or_default().push(b),
                (_, ColumnItem::Hook(_)) => turns.entry(right).or_default().push(a),
                (ColumnItem::App(_), ColumnItem::App(_)) => {
                    let only = self.on_right[left].len() == 1 && self.on_left[right].len() == 1;
                    ties.push(Tie { a, b, weight: if only { 6 } else { 2 } });
                }
                (ColumnItem::Lane(_), ColumnItem::Lane(_)) if a.0 == b.0 => {}
                (ColumnItem::Lane(_), ColumnItem::Lane(_)) => ties.push(Tie { a, b, weight: 8 }),
                _ => ties.push(Tie { a, b, weight: 3 }),
            }
        }
        // A frame is no higher than needed.
        let mut tops: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (item, &column) in self.column_of.iter().enumerate() {
            match self.items[item] {
                ColumnItem::Top(group) => drop(tops.insert((group, column), item)),
                ColumnItem::Bottom(group) if self.spans[group].is_some_and(|(first, _)| first == column) => {
                    if let Some(&top) = tops.get(&(group, column)) {
                        ties.push(Tie { a: (variable[top], 0), b: (variable[item], 0), weight: 1 });
                    }
                }
                _ => {}
            }
        }
        for ends in turns.values() {
            if let [a, b] = ends[..] {
                ties.push(Tie { a, b, weight: 1 });
            }
        }
        ties
    }
}

/// Two points, each a variable and an offset, and the cost of each unit of distance between their heights.
struct Tie {
    a: (usize, i32),
    b: (usize, i32),
    weight: i32,
}

/// An optimal solution for the heights. Upside down, the method tends to the other end of equally good solutions.
fn heights_towards(
    variables: usize,
    separations: &BTreeMap<(usize, usize), i32>,
    ties: &[Tie],
    upside_down: bool,
) -> Vec<i32> {
    let sign = if upside_down { -1 } else { 1 };
    let mut arcs: Vec<Arc> = separations
        .iter()
        .map(|(&(upper, lower), &distance)| {
            let (tail, head) = if upside_down { (lower, upper) } else { (upper, lower) };
            Arc { tail, head, distance, weight: 0 }
        })
        .collect();
    // A further variable for each tie is at most the smaller of its two points; the sum of its distances is the tie's
    // length.
    for (index, tie) in ties.iter().enumerate() {
        for (point, offset) in [tie.a, tie.b] {
            arcs.push(Arc { tail: variables + index, head: point, distance: -sign * offset, weight: tie.weight });
        }
    }
    let mut heights = simplex::solve(variables + ties.len(), &arcs);
    heights.truncate(variables);
    heights.iter_mut().for_each(|height| *height *= sign);
    heights
}

/// Moves single items so that more of their ties are straight, if the ties' total length does not grow.
fn straighten(height: &mut [i32], separations: &BTreeMap<(usize, usize), i32>, ties: &[Tie]) {
    const ROUNDS: usize = 6;
    let mut bounds: Vec<Vec<(usize, i32, bool)>> = vec![Vec::new(); height.len()];
    for (&(upper, lower), &distance) in separations {
        bounds[upper].push((lower, distance, false));
        bounds[lower].push((upper, distance, true));
    }
    // For each variable, its ties: the other variable, the offset at which the tie is straight, and the weight.
    let mut tied: Vec<Vec<(usize, i32, i32)>> = vec![Vec::new(); height.len()];
    for &Tie { a, b, weight } in ties {
        if a.0 != b.0 {
            tied[a.0].push((b.0, b.1 - a.1, weight));
            tied[b.0].push((a.0, a.1 - b.1, weight));
        }
    }
    for _ in 0..ROUNDS {
        let mut moved = false;
        for variable in 0..height.len() {
            let cost = |at: i32| {
                tied[variable].iter().fold((0, 0), |(length, bent), &(other, offset, weight)| {
                    let miss = (height[other] + offset - at).abs();
                    (length + miss * weight, bent + if miss == 0 { 0 } else { weight })
                })
            };
            let fits = |at: i32| {
                bounds[variable].iter().all(|&(other, distance, other_is_upper)| {
                    if other_is_upper { at - height[other] >= distance } else { height[other] - at >= distance }
                })
            };
            let now = cost(height[variable]);
            let better = tied[variable]
                .iter()
                .map(|&(other, offset, _)| height[other] + offset)
                .filter(|&at| fits(at) && cost(at).0 <= now.0 && cost(at).1 < now.1)
                .min_by_key(|&at| (cost(at).1, at));
            if let Some(at) = better {
                height[variable] = at;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
}
