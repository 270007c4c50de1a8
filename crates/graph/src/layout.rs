//! Columns, orders and heights: the layered layout from left to right.
//!
//! A link that closes a loop turns back behind its app, runs back in a lane of its own, and turns again before its
//! destination. A lane is a link's share of a column that it passes through.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::simplex::{self, Arc};
use crate::{Link, Ports};

/// The layout's view of an app: its height, and the distance of each port from its top.
#[derive(Clone, Debug)]
pub struct Shape {
    pub height: i32,
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
}

/// The space between neighbours in a column.
#[derive(Clone, Copy, Debug)]
pub struct Spacing {
    /// Between two apps.
    pub apps: i32,
    /// Between an app and a lane.
    pub app_to_lane: i32,
    /// Between two lanes.
    pub lanes: i32,
    /// The height of a lane itself.
    pub lane: i32,
}

/// A layout. Each part is connected, and has columns and heights of its own, both from 0.
#[derive(Debug)]
pub struct Placement {
    /// Column of each app.
    pub column: Vec<usize>,
    /// Top of each app.
    pub top: Vec<i32>,
    pub parts: Vec<Part>,
}

/// Apps that are connected, in the order of their first app.
#[derive(Debug)]
pub struct Part {
    pub apps: Vec<usize>,
    pub columns: usize,
    pub height: i32,
    pub wires: Vec<Wire>,
}

/// The path of a link.
#[derive(Debug)]
pub struct Wire {
    pub link: Link,
    /// Whether it runs from right to left.
    pub back: bool,
    /// Height of the output port.
    pub start: i32,
    /// Height of the input port.
    pub end: i32,
    /// The column of the first lane.
    pub first: usize,
    /// The height of its lane in each column that it passes through, from left to right.
    pub lanes: Vec<i32>,
}

impl Part {
    /// For each gap between columns, the stretches of the part's wires in it. The first gap is left of all columns, the
    /// last one is right of them.
    pub fn stretches(&self, placement: &Placement) -> Vec<Vec<WireSpan>> {
        let mut gaps = vec![Vec::new(); self.columns + 1];
        for (index, wire) in self.wires.iter().enumerate() {
            for gap in wire.gaps(placement) {
                gaps[gap].extend(wire.stretches(placement, index, gap));
            }
        }
        gaps
    }
}

/// The stretch of a wire in one gap between columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSpan {
    /// Index in [`Part::wires`].
    pub wire: usize,
    pub shape: Turn,
    /// Its first and last end along the wire.
    pub from: i32,
    pub to: i32,
}

/// The direction of a stretch in its gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// From the gap's left to its right.
    Forward,
    /// From the gap's right to its left.
    Backward,
    /// Both ends on the left: a link turns back behind its app.
    Behind,
    /// Both ends on the right: a link turns forward before the app it leads to.
    Before,
}

impl Wire {
    /// The gaps that the wire runs through, from left to right. A gap has the number of the column on its right.
    pub fn gaps(&self, placement: &Placement) -> RangeInclusive<usize> {
        let (start, end) = (placement.column[self.link.from.0], placement.column[self.link.to.0]);
        if self.back { end..=start + 1 } else { start + 1..=end }
    }

    /// The wire's own stretches in the gap left of column `gap`; `wire` is its index.
    pub fn stretches(&self, placement: &Placement, wire: usize, gap: usize) -> Vec<WireSpan> {
        let (start, end) = (placement.column[self.link.from.0], placement.column[self.link.to.0]);
        let lane = |column: usize| self.lanes[column - self.first];
        let mut stretches = Vec::new();
        let mut add = |shape, from, to| stretches.push(WireSpan { wire, shape, from, to });
        if !self.back {
            if (start + 1..=end).contains(&gap) {
                let from = if gap == start + 1 { self.start } else { lane(gap - 1) };
                let to = if gap == end { self.end } else { lane(gap) };
                add(Turn::Forward, from, to);
            }
            return stretches;
        }
        if gap == start + 1 {
            add(Turn::Behind, self.start, lane(start));
        }
        if (end + 1..=start).contains(&gap) {
            add(Turn::Backward, lane(gap), lane(gap - 1));
        }
        if gap == end {
            add(Turn::Before, lane(end), self.end);
        }
        stretches
    }
}

/// The layout before heights are assigned: cheap for networks of any size.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Column of each app.
    pub column: Vec<usize>,
    pub parts: Vec<DraftPart>,
    /// Whether each loop has a link that closes it, so that all apps have a column.
    is_ordered: bool,
}

/// Apps that are connected, and the links between them in their order.
#[derive(Clone, Debug)]
pub struct DraftPart {
    pub apps: Vec<usize>,
    pub links: Vec<Link>,
}

/// The maximum number of apps and lanes in a layout: some seconds of work, and more than anyone can follow.
const MAX_ITEMS: usize = 100_000;

impl Draft {
    /// The columns of this many apps, and the connected parts.
    pub fn of(apps: usize, ports: &Ports) -> Draft {
        let column = columns(apps, &ports.links);
        let is_ordered = column.is_some();
        let column = column.unwrap_or_else(|| vec![0; apps]);
        let mut parts: Vec<DraftPart> =
            parts(apps, &ports.links).into_iter().map(|apps| DraftPart { apps, links: Vec::new() }).collect();
        let mut part_of = vec![0; apps];
        for (index, part) in parts.iter().enumerate() {
            part.apps.iter().for_each(|&app| part_of[app] = index);
        }
        for &link in &ports.links {
            parts[part_of[link.from.0]].links.push(link);
        }
        Draft { column, parts, is_ordered }
    }

    /// Whether it can be laid out, and is not too large for that.
    pub fn is_placeable(&self) -> bool {
        let lanes = |link: &Link| self.column[link.from.0].abs_diff(self.column[link.to.0]);
        let lanes: usize = self.parts.iter().flat_map(|part| &part.links).map(lanes).sum();
        self.is_ordered && self.column.len() + lanes <= MAX_ITEMS
    }

    /// Lays out the apps, whose `shapes` must have a place for every port.
    pub fn place(self, shapes: &[Shape], spacing: Spacing) -> Placement {
        let mut placement = Placement { column: self.column, top: vec![0; shapes.len()], parts: Vec::new() };
        for DraftPart { apps, links } in self.parts {
            let mut order = Order::new(shapes, &apps, &links, &placement.column);
            order.improve();
            let part = order.heights(shapes, apps, &links, &mut placement, spacing);
            placement.parts.push(part);
        }
        placement
    }
}

/// The apps of each connected part, both in ascending order.
fn parts(apps: usize, links: &[Link]) -> Vec<Vec<usize>> {
    let mut neighbours = vec![Vec::new(); apps];
    for link in links {
        neighbours[link.from.0].push(link.to.0);
        neighbours[link.to.0].push(link.from.0);
    }
    let mut seen = vec![false; apps];
    let mut parts = Vec::new();
    for root in 0..apps {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        let mut part = vec![root];
        let mut next = 0;
        while next < part.len() {
            for &neighbour in &neighbours[part[next]] {
                if !std::mem::replace(&mut seen[neighbour], true) {
                    part.push(neighbour);
                }
            }
            next += 1;
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts
}

/// The column of each app: links are short in total, and lead to the right unless they close a loop. `None` if a loop
/// has no such link, or if such a link leads from the loop's start to its end.
fn columns(apps: usize, links: &[Link]) -> Option<Vec<usize>> {
    let mut arcs = Vec::new();
    for link in links {
        let (from, to) = (link.from.0, link.to.0);
        if !link.closes_loop {
            arcs.push(Arc { tail: from, head: to, distance: 1, weight: 2 });
        } else if from != to {
            // The rest of the loop leads right from `to` to `from`, so this arc closes no cycle.
            arcs.push(Arc { tail: to, head: from, distance: 1, weight: 1 });
        }
    }
    let columns = simplex::has_no_cycle(apps, &arcs).then(|| simplex::solve(apps, &arcs))?;
    Some(columns.into_iter().map(|column| usize::try_from(column).unwrap_or(0)).collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    App(usize),
    /// A link, by its index in the part, in a column that it passes through.
    Lane(usize),
    /// The place where a link turns, in the column beyond: it takes no room, but makes crossings of the turn count.
    Hook(usize),
}

/// A link's stretch between neighbouring columns. The fractions give the position of each end within its item.
#[derive(Clone, Copy, Debug)]
struct Segment {
    link: usize,
    left: (usize, f64),
    right: (usize, f64),
}

/// The order of items in each column. Column `c` of the layout is `c + 1` here, to leave room for hooks.
struct Order {
    items: Vec<Item>,
    column_of: Vec<usize>,
    segments: Vec<Segment>,
    /// For each item, the segments on its left and on its right.
    on_left: Vec<Vec<usize>>,
    on_right: Vec<Vec<usize>>,
    columns: Vec<Vec<usize>>,
    /// For each item, its position in its column.
    place: Vec<usize>,
}

/// Rounds of crossing reduction from each starting order, and without an improvement.
const ROUNDS: usize = 24;
const IDLE_ROUNDS: usize = 6;

/// The maximum number of items and segments to visit for reducing crossings. After that the best order so far is used.
const MAX_VISITS: usize = 30_000_000;

/// The maximum number of items for which shuffled starting orders are tried as well.
const MAX_SHUFFLED: usize = 600;

impl Order {
    fn new(shapes: &[Shape], apps: &[usize], links: &[Link], column: &[usize]) -> Self {
        let columns = apps.iter().map(|&app| column[app] + 1).max().unwrap_or(0);
        let mut order = Order {
            items: Vec::new(),
            column_of: Vec::new(),
            segments: Vec::new(),
            on_left: Vec::new(),
            on_right: Vec::new(),
            columns: vec![Vec::new(); columns + 2],
            place: Vec::new(),
        };
        for &app in apps {
            order.add(Item::App(app), column[app] + 1);
        }
        let fraction = |port: usize, ports: usize| (port as f64 + 1.0) / (ports as f64 + 1.0);
        for (index, &link) in links.iter().enumerate() {
            let item = |app: usize| apps.binary_search(&app).unwrap_or(0);
            let from = (item(link.from.0), fraction(link.from.1, shapes[link.from.0].outputs.len()));
            let to = (item(link.to.0), fraction(link.to.1, shapes[link.to.0].inputs.len()));
            let (start, end) = (column[link.from.0] + 1, column[link.to.0] + 1);
            let mut left = from;
            if link.closes_loop {
                let before = (order.add(Item::Hook(index), end - 1), 0.5);
                let first = (order.add(Item::Lane(index), end), 0.5);
                order.join(index, before, to);
                order.join(index, before, first);
                left = first;
                for column in end + 1..=start {
                    let lane = (order.add(Item::Lane(index), column), 0.5);
                    order.join(index, left, lane);
                    left = lane;
                }
                let behind = (order.add(Item::Hook(index), start + 1), 0.5);
                order.join(index, left, behind);
                order.join(index, from, behind);
            } else {
                for column in start + 1..end {
                    let lane = (order.add(Item::Lane(index), column), 0.5);
                    order.join(index, left, lane);
                    left = lane;
                }
                order.join(index, left, to);
            }
        }
        order
    }

    fn add(&mut self, item: Item, column: usize) -> usize {
        self.items.push(item);
        self.column_of.push(column);
        self.on_left.push(Vec::new());
        self.on_right.push(Vec::new());
        self.place.push(0);
        self.items.len() - 1
    }

    fn join(&mut self, link: usize, left: (usize, f64), right: (usize, f64)) {
        self.on_right[left.0].push(self.segments.len());
        self.on_left[right.0].push(self.segments.len());
        self.segments.push(Segment { link, left, right });
    }

    /// Finds an order with few crossings: barycentre sweeps and exchanges of neighbours from several starts.
    fn improve(&mut self) {
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
            self.adopt(start);
            let (mut idle, mut least) = (0, usize::MAX);
            for round in 0..ROUNDS {
                self.sweep(round % 2 == 0);
                looks += (1 + self.exchange_neighbours()) * (self.items.len() + self.segments.len());
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

    fn adopt(&mut self, columns: Vec<Vec<usize>>) {
        self.columns = columns;
        for column in 0..self.columns.len() {
            self.number(column);
        }
    }

    fn number(&mut self, column: usize) {
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
                let mut next: Vec<&Segment> = segments.iter().map(|&segment| &self.segments[segment]).collect();
                next.sort_by(|a, b| {
                    let fraction = |segment: &Segment| if against { segment.right.1 } else { segment.left.1 };
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
            let mut sorted: Vec<(f64, usize)> =
                self.columns[column].iter().filter_map(|&item| Some((mean(item)?, item))).collect();
            let slots: Vec<usize> =
                (0..self.columns[column].len()).filter(|&place| mean(self.columns[column][place]).is_some()).collect();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (slot, (_, item)) in slots.into_iter().zip(sorted) {
                self.columns[column][slot] = item;
            }
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
    fn crossings_of(&self, upper: usize, lower: usize) -> usize {
        let count = |segments: &[Vec<usize>], far: fn(&Segment) -> (usize, f64)| {
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

    fn crossings(&self) -> usize {
        let mut total = 0;
        for column in &self.columns {
            let mut ends: Vec<(f64, f64)> = column
                .iter()
                .flat_map(|&item| &self.on_right[item])
                .map(|&segment| {
                    let Segment { left, right, .. } = self.segments[segment];
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

    /// Assigns a height to every item so that as many links as possible are straight.
    fn heights(
        self,
        shapes: &[Shape],
        apps: Vec<usize>,
        links: &[Link],
        placement: &mut Placement,
        spacing: Spacing,
    ) -> Part {
        let (variable, variables) = self.variables(links);
        let mut separations: BTreeMap<(usize, usize), i32> = BTreeMap::new();
        for column in &self.columns {
            let solid: Vec<usize> =
                column.iter().copied().filter(|&item| !matches!(self.items[item], Item::Hook(_))).collect();
            for pair in solid.windows(2) {
                let distance = match (self.items[pair[0]], self.items[pair[1]]) {
                    (Item::App(app), Item::App(_)) => shapes[app].height + spacing.apps,
                    (Item::App(app), _) => shapes[app].height + spacing.app_to_lane,
                    (_, Item::App(_)) => spacing.lane + spacing.app_to_lane,
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
        let extent = |item: usize| match self.items[item] {
            Item::App(app) => shapes[app].height,
            Item::Lane(_) | Item::Hook(_) => spacing.lane,
        };
        let solid = || (0..self.items.len()).filter(|&item| !matches!(self.items[item], Item::Hook(_)));
        let top = solid().map(|item| height[variable[item]]).min().unwrap_or(0);
        let bottom = solid().map(|item| height[variable[item]] + extent(item)).max().unwrap_or(0);

        let mut lanes: Vec<BTreeMap<usize, i32>> = vec![BTreeMap::new(); links.len()];
        for item in solid() {
            let height = height[variable[item]] - top;
            match self.items[item] {
                Item::App(app) => placement.top[app] = height,
                Item::Lane(link) | Item::Hook(link) => {
                    lanes[link].insert(self.column_of[item] - 1, height);
                }
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
        Part { columns: self.columns.len() - 2, height: bottom - top, wires: wires.collect(), apps }
    }

    /// A variable for each item. The lanes of a link share one, which keeps it straight, unless two such links cross.
    fn variables(&self, links: &[Link]) -> (Vec<usize>, usize) {
        let mut variable: Vec<usize> = (0..self.items.len()).collect();
        let mut inner: Vec<usize> = (0..self.segments.len())
            .filter(|&segment| {
                let Segment { left, right, .. } = self.segments[segment];
                matches!((self.items[left.0], self.items[right.0]), (Item::Lane(_), Item::Lane(_)))
            })
            .collect();
        let mut length = vec![0; links.len()];
        inner.iter().for_each(|&segment| length[self.segments[segment].link] += 1);
        inner.sort_by_key(|&segment| std::cmp::Reverse(length[self.segments[segment].link]));
        let mut straight: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.columns.len()];
        let mut joined = vec![None; self.items.len()];
        for segment in inner {
            let Segment { left: (left, _), right: (right, _), .. } = self.segments[segment];
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
    fn ties(&self, shapes: &[Shape], links: &[Link], variable: &[usize]) -> Vec<Tie> {
        let mut ties = Vec::new();
        let output = |link: Link| shapes[link.from.0].outputs[link.from.1];
        let input = |link: Link| shapes[link.to.0].inputs[link.to.1];
        let mut turns: BTreeMap<usize, Vec<(usize, i32)>> = BTreeMap::new();
        for segment in &self.segments {
            let (left, right) = (segment.left.0, segment.right.0);
            let link = links[segment.link];
            let offset = |item: usize, port: i32| if matches!(self.items[item], Item::App(_)) { port } else { 0 };
            let (a, b) = ((variable[left], offset(left, output(link))), (variable[right], offset(right, input(link))));
            match (self.items[left], self.items[right]) {
                (Item::Hook(_), _) => turns.entry(left).or_default().push(b),
                (_, Item::Hook(_)) => turns.entry(right).or_default().push(a),
                (Item::App(_), Item::App(_)) => {
                    let only = self.on_right[left].len() == 1 && self.on_left[right].len() == 1;
                    ties.push(Tie { a, b, weight: if only { 6 } else { 2 } });
                }
                (Item::Lane(_), Item::Lane(_)) if a.0 == b.0 => {}
                (Item::Lane(_), Item::Lane(_)) => ties.push(Tie { a, b, weight: 8 }),
                _ => ties.push(Tie { a, b, weight: 3 }),
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

/// Fisher and Yates' shuffle with a xorshift generator.
fn shuffle(items: &mut [usize], random: &mut u64) {
    for end in (1..items.len()).rev() {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        items.swap(end, usize::try_from(*random % (end as u64 + 1)).unwrap_or(0));
    }
}
