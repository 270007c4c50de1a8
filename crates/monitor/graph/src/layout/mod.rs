//! Columns, orders and heights: the layered layout from left to right.
//!
//! A link that closes a loop turns back behind its app, runs back in a lane of its own, and turns again before its
//! destination. A lane is a link's share of a column that it passes through.
//!
//! Groups of apps get frames: a frame is two borders, one above and one below the group's apps in every column from its
//! first to its last one. The order keeps the items of a group together between its borders, and two groups beside each
//! other the same way round in all columns that they share. So frames are rectangles that are nested or apart.

use std::ops::RangeInclusive;

use crate::simplex::{self, Arc};
use crate::{Link, Ports};

mod heights;
mod order;
mod units;

use order::Order;

/// The layout's view of an app: its height, and the distance of each port from its top.
#[derive(Clone, Debug)]
pub struct AppExtent {
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
    /// Between a frame's upper border and what is inside, where the name is.
    pub below_frame_top: i32,
    /// Between what is inside a frame and its lower border.
    pub above_frame_bottom: i32,
    /// Between a frame and what is outside, above and below.
    pub around_frame: i32,
}

/// Groups of apps that get a frame.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// For each group, the one that it lies in, whose number is smaller.
    pub outer: Vec<Option<usize>>,
    /// For each app, its innermost group. It is empty if there are no groups.
    pub of_app: Vec<Option<usize>>,
}

impl Groups {
    /// A group and those that it lies in, innermost first.
    fn chain(&self, group: Option<usize>) -> impl Iterator<Item = usize> {
        std::iter::successors(group, |&group| self.outer[group])
    }

    /// The groups of an app, innermost first.
    fn of(&self, app: usize) -> impl Iterator<Item = usize> {
        self.chain(self.of_app.get(app).copied().flatten())
    }

    /// The innermost group of both apps.
    fn of_both(&self, a: usize, b: usize) -> Option<usize> {
        self.of(a).find(|&group| self.of(b).any(|other| other == group))
    }

    /// The columns from the first to the last one with an app of the group, for each group of these apps.
    fn spans(&self, apps: impl Iterator<Item = usize>, column: &[usize]) -> Vec<Option<(usize, usize)>> {
        let mut spans: Vec<Option<(usize, usize)>> = vec![None; self.outer.len()];
        for app in apps {
            let at = column[app];
            for group in self.of(app) {
                let (first, last) = spans[group].unwrap_or((at, at));
                spans[group] = Some((first.min(at), last.max(at)));
            }
        }
        spans
    }
}

/// A layout. Each part is connected, and has columns and heights of its own, both from 0.
#[derive(Debug)]
pub struct Placement {
    /// Column of each app.
    pub column: Vec<usize>,
    /// Top of each app.
    pub top: Vec<i32>,
    pub parts: Vec<ConnectedPart>,
}

/// Apps that are connected or in a group, in the order of their first app.
#[derive(Debug)]
pub struct ConnectedPart {
    pub apps: Vec<usize>,
    pub columns: usize,
    pub height: i32,
    pub wires: Vec<Wire>,
    /// The frames of the groups that have apps here.
    pub frames: Vec<GroupFrame>,
}

/// The place of a group's frame.
#[derive(Clone, Copy, Debug)]
pub struct GroupFrame {
    pub group: usize,
    /// Its first and last column.
    pub columns: (usize, usize),
    pub top: i32,
    pub bottom: i32,
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

impl ConnectedPart {
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
    /// Index in [`ConnectedPart::wires`].
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
    groups: Groups,
}

/// Apps that are connected or in a group, and the links between them in their order.
#[derive(Clone, Debug)]
pub struct DraftPart {
    pub apps: Vec<usize>,
    pub links: Vec<Link>,
}

/// The maximum number of apps and lanes in a layout: some seconds of work, and more than anyone can follow.
const MAX_ITEMS: usize = 100_000;

/// The maximum number of columns of all frames. With more, the groups are left out.
const MAX_FRAME_COLUMNS: usize = 5_000;

impl Draft {
    /// The columns of this many apps, and the parts that are connected by links or groups.
    pub fn of(apps: usize, ports: &Ports, groups: Groups) -> Draft {
        let column = columns(apps, &ports.links);
        let is_ordered = column.is_some();
        let column = column.unwrap_or_else(|| vec![0; apps]);
        let spans = groups.spans(0..apps, &column);
        let framed: usize = spans.iter().flatten().map(|&(first, last)| last - first + 1).sum();
        let groups = if framed > MAX_FRAME_COLUMNS { Groups::default() } else { groups };
        let mut parts: Vec<DraftPart> =
            parts(apps, &ports.links, &groups).into_iter().map(|apps| DraftPart { apps, links: Vec::new() }).collect();
        let mut part_of = vec![0; apps];
        for (index, part) in parts.iter().enumerate() {
            part.apps.iter().for_each(|&app| part_of[app] = index);
        }
        for &link in &ports.links {
            parts[part_of[link.from.0]].links.push(link);
        }
        Draft { column, parts, is_ordered, groups }
    }

    /// Whether it can be laid out, and is not too large for that.
    pub fn is_placeable(&self) -> bool {
        let lanes = |link: &Link| self.column[link.from.0].abs_diff(self.column[link.to.0]);
        let lanes: usize = self.parts.iter().flat_map(|part| &part.links).map(lanes).sum();
        self.is_ordered && self.column.len() + lanes <= MAX_ITEMS
    }

    /// Lays out the apps, whose `shapes` must have a place for every port.
    pub fn place(self, shapes: &[AppExtent], spacing: Spacing) -> Placement {
        let mut placement = Placement { column: self.column, top: vec![0; shapes.len()], parts: Vec::new() };
        for DraftPart { apps, links } in self.parts {
            let mut order = Order::new(shapes, &apps, &links, &placement.column, &self.groups);
            order.improve();
            let part = order.heights(shapes, apps, &links, &mut placement, spacing);
            placement.parts.push(part);
        }
        placement
    }
}

/// The apps of each connected part, both in ascending order.
fn parts(apps: usize, links: &[Link], groups: &Groups) -> Vec<Vec<usize>> {
    let mut neighbours = vec![Vec::new(); apps];
    let mut first_of_group = vec![None; groups.outer.len()];
    let grouped = (0..apps).flat_map(|app| groups.of(app).map(move |group| (app, group)));
    let joined: Vec<(usize, usize)> =
        grouped.map(|(app, group)| (*first_of_group[group].get_or_insert(app), app)).collect();
    for (a, b) in links.iter().map(|link| (link.from.0, link.to.0)).chain(joined) {
        neighbours[a].push(b);
        neighbours[b].push(a);
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
