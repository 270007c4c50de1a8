//! The picture for terminals, in box characters or plain ASCII, or a list if the picture would be too wide.
//!
//! Links run level, and change their height in the gaps between columns, each in a track of its own. If one link leaves
//! the left column at the height where another enters the right one, the former's track must lie further left. Links
//! for which these constraints form a cycle take a detour through a free row.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::{AppExtent, ConnectedPart, Draft, DraftPart, Groups, Placement, Spacing, Turn, WireSpan};
use crate::{Graph, Link, Ports, printable, shortened};

const SPACING: Spacing =
    Spacing { apps: 1, app_to_lane: 0, lanes: 0, lane: 1, below_frame_top: 0, above_frame_bottom: 0, around_frame: 0 };
/// The space between unconnected parts of the network.
const PART_GAP: (usize, usize) = (4, 1);
const NAME_LENGTH: usize = 44;

/// The spacing of a picture.
#[derive(Clone, Copy)]
struct Density {
    /// The distance from track to track.
    track: usize,
    /// The space between a box's line and its text.
    padding: usize,
}

const DENSITIES: [Density; 2] = [Density { track: 2, padding: 1 }, Density { track: 1, padding: 0 }];

/// Draws the network in at most `width` columns, with box characters or in ASCII. A network that is too wide is listed,
/// app by app from left to right, in lines that may be longer.
pub fn text(graph: &Graph, width: usize, unicode: bool) -> String {
    let ports = Ports::of(graph);
    let shapes: Vec<AppExtent> = (0..graph.apps.len()).map(|app| Texts::of(graph, &ports, app).shape()).collect();
    let draft = Draft::of(graph.apps.len(), &ports, Groups::default());
    let body = if !draft.is_placeable() {
        list(graph, &ports, Ranked { column: &draft.column, top: &vec![0; shapes.len()] }, draft.parts, unicode)
    } else {
        let placement = draft.clone().place(&shapes, SPACING);
        let drawn = DENSITIES.iter().find_map(|&density| {
            let picture = Picture { graph, ports: &ports, placement: &placement, shapes: &shapes, density };
            picture.draw(width, unicode)
        });
        let Placement { column, top, .. } = &placement;
        drawn.unwrap_or_else(|| list(graph, &ports, Ranked { column, top }, draft.parts, unicode))
    };
    let title = graph.title.as_deref().map(|title| printable(title) + "\n\n").unwrap_or_default();
    let whole = title + &body;
    if unicode { whole } else { whole.replace('…', "~").replace('\u{fffd}', "?") }
}

/// The width of a character in a terminal.
fn cells(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => 2,
        0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

fn length(text: &str) -> usize {
    text.chars().map(cells).sum()
}

fn longest<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    texts.into_iter().map(length).max().unwrap_or(0)
}

/// Rows and columns are counted from 0; a height in the layout is a row here.
fn row(height: i32) -> usize {
    usize::try_from(height).unwrap_or(0)
}

/// The texts of an app's box.
struct Texts<'a> {
    lines: Vec<String>,
    inputs: Vec<&'a str>,
    outputs: Vec<&'a str>,
}

impl<'a> Texts<'a> {
    fn of(graph: &Graph, ports: &'a Ports, app: usize) -> Self {
        let node = &graph.apps[app];
        let mut lines = vec![shortened(&node.name, NAME_LENGTH)];
        if node.warn {
            lines[0].push_str(" !");
        }
        let worker = node.worker.as_ref().map(|worker| format!("@{worker}"));
        let rest = [Some(&node.kind), worker.as_ref(), node.note.as_ref()];
        let rest = rest.into_iter().flatten().filter(|text| !text.is_empty());
        lines.extend(rest.map(|text| shortened(text, NAME_LENGTH)));
        Texts { lines, inputs: ports.shown_inputs(app), outputs: ports.shown_outputs(app) }
    }

    fn rows(&self) -> usize {
        self.lines.len().max(self.inputs.len()).max(self.outputs.len())
    }

    /// The row below the box's top line at which `count` centred rows begin.
    fn first(&self, count: usize) -> usize {
        1 + (self.rows() - count) / 2
    }

    fn shape(&self) -> AppExtent {
        let rows = |ports: &[&str]| {
            let first = self.first(ports.len());
            (first..first + ports.len()).map(|row| i32::try_from(row).unwrap_or(0)).collect()
        };
        AppExtent {
            height: i32::try_from(self.rows() + 2).unwrap_or(i32::MAX),
            inputs: rows(&self.inputs),
            outputs: rows(&self.outputs),
        }
    }

    /// Widths of the three columns of text, including the space between them.
    fn widths(&self) -> [usize; 3] {
        let side = |ports: &[&str]| match longest(ports.iter().copied()) {
            0 => 0,
            width => width + 2,
        };
        [side(&self.inputs), longest(self.lines.iter().map(String::as_str)), side(&self.outputs)]
    }

    fn width(&self, density: Density) -> usize {
        self.widths().iter().sum::<usize>() + 2 * density.padding + 2
    }
}

struct Picture<'a> {
    graph: &'a Graph,
    ports: &'a Ports,
    placement: &'a Placement,
    shapes: &'a [AppExtent],
    density: Density,
}

/// The positions of the columns of a part.
struct Columns {
    /// First cell and number of cells of each column.
    columns: Vec<(usize, usize)>,
    /// For each gap, the tracks through it.
    tracks: Vec<Vec<Track>>,
    width: usize,
    /// Rows, including detours below the last app.
    height: usize,
}

impl Picture<'_> {
    /// The picture, if it is no wider than `width`.
    fn draw(&self, width: usize, unicode: bool) -> Option<String> {
        let labels = self.labels();
        let columns = |part| Some((part, self.columns(part, &labels, width)?));
        let parts: Vec<(&ConnectedPart, Columns)> = self.placement.parts.iter().map(columns).collect::<Option<_>>()?;
        let widest = parts.iter().map(|(_, columns)| columns.width).max().unwrap_or(0);
        let mut canvas = Canvas::default();
        let (mut x, mut y, mut shelf) = (0, 0, 0);
        for (part, columns) in &parts {
            if x > 0 && x + columns.width > widest {
                (x, y, shelf) = (0, y + shelf + PART_GAP.1, 0);
            }
            self.draw_part(&mut canvas, part, columns, &labels, (x, y));
            x += columns.width + PART_GAP.0;
            shelf = shelf.max(columns.height);
        }
        Some(canvas.text(unicode))
    }

    /// For each output port that has them, the labels of its links.
    fn labels(&self) -> BTreeMap<(usize, usize), String> {
        let mut labels: BTreeMap<(usize, usize), String> = BTreeMap::new();
        for link in &self.ports.links {
            let text = label(self.graph, *link);
            if !text.is_empty() {
                let label = labels.entry(link.from).or_default();
                if !label.is_empty() {
                    label.push_str("; ");
                }
                label.push_str(&text);
            }
        }
        labels
    }

    /// The columns of a part; `None` if they do not fit in `width`.
    fn columns(
        &self,
        part: &ConnectedPart,
        labels: &BTreeMap<(usize, usize), String>,
        width: usize,
    ) -> Option<Columns> {
        let mut widths = vec![0; part.columns];
        for &app in &part.apps {
            let widest = &mut widths[self.placement.column[app]];
            *widest = Texts::of(self.graph, self.ports, app).width(self.density).max(*widest);
        }
        let mut this = Columns { columns: Vec::new(), tracks: Vec::new(), width: 0, height: row(part.height) };
        let mut x = 0;
        let mut rooms = vec![0; part.columns + 1];
        for (&(app, _), label) in labels {
            if part.apps.binary_search(&app).is_ok() {
                // A label has a space and a piece of its line on both sides.
                let room = &mut rooms[self.placement.column[app] + 1];
                *room = (length(label) + 4).max(*room);
            }
        }
        for (gap, stretches) in part.stretches(self.placement).iter().enumerate() {
            let room = rooms[gap];
            let last = width.saturating_sub(x) / self.density.track;
            let mut tracks = Tracks::new(stretches, &mut this.height).placed(last)?;
            let count = tracks.iter().filter_map(|track| track.lane).map(|lane| lane + 1).max().unwrap_or(0);
            if gap > 0 {
                x += 1 + room;
            }
            for track in &mut tracks {
                track.x = x + track.lane.unwrap_or(0) * self.density.track;
            }
            if count > 0 {
                x += (count - 1) * self.density.track + 1;
            }
            if let Some(&column) = widths.get(gap) {
                // Room for the arrow heads, and a piece of line before them.
                x += if gap > 0 || count > 0 { 2 } else { 0 };
                this.columns.push((x, column));
                x += column;
            } else if count == 0 {
                x -= 1 + room;
            }
            this.tracks.push(tracks);
            if x > width {
                return None;
            }
        }
        this.width = x;
        Some(this)
    }

    fn draw_part(
        &self,
        canvas: &mut Canvas,
        part: &ConnectedPart,
        columns: &Columns,
        labels: &BTreeMap<(usize, usize), String>,
        (left, top): (usize, usize),
    ) {
        canvas.reserve(left + columns.width, top + columns.height);
        for &app in &part.apps {
            let (x, width) = columns.columns[self.placement.column[app]];
            self.draw_app(canvas, app, (left + x, top + row(self.placement.top[app])), width);
        }
        for (gap, tracks) in columns.tracks.iter().enumerate() {
            // The last cell of the column on the left, and the first one of that on the right.
            let from = gap.checked_sub(1).and_then(|column| columns.columns.get(column)).map_or(0, |(x, w)| x + w - 1);
            let to = columns.columns.get(gap).map_or(0, |column| column.0);
            for track in tracks {
                for &(height, side) in &track.ends {
                    let y = top + height;
                    match side {
                        BoxSide::Left => canvas.level(left + from, left + track.x, y),
                        BoxSide::Right => canvas.level(left + track.x, left + to, y),
                        BoxSide::Detour => {
                            let end = track.other_half.map_or(track.x, |half| tracks[half].x);
                            canvas.level(left + track.x, left + end, y);
                        }
                    }
                }
                let [(a, _), (b, _)] = track.ends;
                canvas.upright(left + track.x, top + a, top + b);
            }
        }
        for wire in &part.wires {
            for (index, &height) in wire.lanes.iter().enumerate() {
                let (x, width) = columns.columns[wire.first + index];
                canvas.level(left + x, left + x + width - 1, top + row(height));
                if wire.back && index == wire.lanes.len() / 2 {
                    canvas.sign(left + x + width / 2, top + row(height), Sign::Left);
                }
            }
            let (x, _) = columns.columns[self.placement.column[wire.link.to.0]];
            let y = top + row(wire.end);
            canvas.seal(left + x, y);
            canvas.sign((left + x).saturating_sub(1), y, Sign::Right);
        }
        for (&(app, port), label) in labels {
            if part.apps.binary_search(&app).is_ok() {
                let (x, width) = columns.columns[self.placement.column[app]];
                let y = row(self.placement.top[app] + self.shapes[app].outputs[port]);
                canvas.write(left + x + width + 1, top + y, &format!(" {label} "));
            }
        }
    }

    fn draw_app(&self, canvas: &mut Canvas, app: usize, (x, y): (usize, usize), width: usize) {
        let texts = Texts::of(self.graph, self.ports, app);
        let [inputs, header, outputs] = texts.widths();
        let (right, bottom) = (x + width - 1, y + texts.rows() + 1);
        canvas.level(x, right, y);
        canvas.level(x, right, bottom);
        canvas.upright(x, y, bottom);
        canvas.upright(right, y, bottom);
        let inner = x + 1 + self.density.padding;
        let spare = right - self.density.padding - inner - inputs - header - outputs;
        for (index, line) in texts.lines.iter().enumerate() {
            let centred = inner + inputs + (spare + header - length(line)) / 2;
            canvas.write(centred, y + texts.first(texts.lines.len()) + index, line);
        }
        for (index, name) in texts.inputs.iter().enumerate() {
            canvas.write(inner, y + texts.first(texts.inputs.len()) + index, name);
        }
        for (index, name) in texts.outputs.iter().enumerate() {
            let start = right - self.density.padding - length(name);
            canvas.write(start, y + texts.first(texts.outputs.len()) + index, name);
        }
    }
}

fn label(graph: &Graph, link: Link) -> String {
    let edge = &graph.links[link.edge];
    let texts = [edge.label.as_deref().map(printable), edge.drops_text()];
    texts.into_iter().flatten().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoxSide {
    Left,
    Right,
    /// The other half of a link that takes a detour.
    Detour,
}

/// A piece of a link in a gap: an upright line between its two ends, or a level one if both have one height.
#[derive(Clone, Debug)]
struct Track {
    ends: [(usize, BoxSide); 2],
    /// Its track in the gap; `None` for a level line.
    lane: Option<usize>,
    /// The other half of a link that takes a detour. The half on the right has the higher number.
    other_half: Option<usize>,
    x: usize,
    /// Links that turn at once lie left and those that turn before an app lie right. Between them are first those that
    /// run down, lowest first, then those that run up, highest first, which saves crossings.
    rank: (u8, i64),
}

impl Track {
    fn of(stretch: &WireSpan) -> Self {
        let (from, to) = (row(stretch.from), row(stretch.to));
        let (first, last) = match stretch.shape {
            Turn::Forward => ((from, BoxSide::Left), (to, BoxSide::Right)),
            Turn::Backward => ((to, BoxSide::Left), (from, BoxSide::Right)),
            Turn::Behind => ((from, BoxSide::Left), (to, BoxSide::Left)),
            Turn::Before => ((from, BoxSide::Right), (to, BoxSide::Right)),
        };
        let signed = |row: usize| i64::try_from(row).unwrap_or(0);
        let span = signed(from.abs_diff(to));
        let rank = match stretch.shape {
            Turn::Behind => (0, span),
            Turn::Before => (2, -span),
            _ if last.0 > first.0 => (1, -signed(first.0)),
            _ => (1, signed(first.0)),
        };
        Track { ends: [first, last], lane: None, other_half: None, x: 0, rank }
    }

    fn is_level(&self) -> bool {
        self.ends[0].0 == self.ends[1].0
    }

    fn span(&self) -> (usize, usize) {
        let [(a, _), (b, _)] = self.ends;
        (a.min(b), a.max(b))
    }

    /// The rows at its ends on a side.
    fn rows(&self, side: BoxSide) -> impl Iterator<Item = usize> + use<> {
        self.ends.into_iter().filter(move |end| end.1 == side).map(|end| end.0)
    }
}

/// The state of a row in which tracks begin on the left.
#[derive(Default)]
struct TrackRow {
    /// The number of these tracks without a lane. Until it is 0, no track that ends on the right in this row may get
    /// one: it must turn right of them, or their level pieces would share cells.
    waiting: usize,
    /// One past the last lane of those that have one.
    taken: usize,
    /// The tracks that end in this row on the right.
    followers: Vec<usize>,
}

/// The assignment of lanes to the tracks of a gap.
struct Tracks<'h> {
    tracks: Vec<Track>,
    /// Tracks that need a lane and have none.
    waiting: BTreeSet<usize>,
    /// The tracks among them that may get one now, by rank.
    ready: BTreeSet<((u8, i64), usize)>,
    rows: BTreeMap<usize, TrackRow>,
    lanes: Vec<Vec<(usize, usize)>>,
    /// The number of rows. It grows if a detour needs a row below all others.
    height: &'h mut usize,
}

impl<'h> Tracks<'h> {
    fn new(stretches: &[WireSpan], height: &'h mut usize) -> Self {
        let mut this = Tracks {
            tracks: stretches.iter().map(Track::of).collect(),
            waiting: BTreeSet::new(),
            ready: BTreeSet::new(),
            rows: BTreeMap::new(),
            lanes: Vec::new(),
            height,
        };
        for index in 0..this.tracks.len() {
            this.enter(index);
        }
        for index in 0..this.tracks.len() {
            this.make_ready(index);
        }
        this
    }

    /// Adds a track.
    fn enter(&mut self, index: usize) {
        let track = &self.tracks[index];
        for (row, side) in track.ends {
            let row = self.rows.entry(row).or_default();
            match side {
                _ if track.is_level() => {}
                BoxSide::Left => row.waiting += 1,
                BoxSide::Right => row.followers.push(index),
                BoxSide::Detour => {}
            }
        }
        if !track.is_level() {
            self.waiting.insert(index);
        }
    }

    /// Makes a track ready for a lane, if it waits for one and nothing holds it back.
    fn make_ready(&mut self, index: usize) {
        let track = &self.tracks[index];
        let is_held = track.rows(BoxSide::Right).any(|row| self.rows[&row].waiting > 0)
            || self.half_before(index).is_some_and(|half| self.waiting.contains(&half));
        if self.waiting.contains(&index) && !is_held {
            self.ready.insert((track.rank, index));
        }
    }

    /// The left half of a detour whose right half is this.
    fn half_before(&self, index: usize) -> Option<usize> {
        self.tracks[index].other_half.filter(|&half| half < index)
    }

    /// Assigns a lane to every track; `None` if that needs a lane beyond `last`.
    fn placed(mut self, last: usize) -> Option<Vec<Track>> {
        while !self.waiting.is_empty() {
            let Some((_, next)) = self.ready.pop_first() else {
                self.detour();
                continue;
            };
            let lane = self.free_lane(next);
            if lane > last {
                return None;
            }
            self.take(next, lane);
        }
        Some(self.tracks)
    }

    /// The first lane that is free over the track's extent, right of all lanes that it must be right of.
    fn free_lane(&self, index: usize) -> usize {
        let track = &self.tracks[index];
        let half = self.half_before(index).and_then(|half| self.tracks[half].lane).map(|lane| lane + 1);
        let least = track.rows(BoxSide::Right).map(|row| self.rows[&row].taken).chain(half).max().unwrap_or(0);
        let span = track.span();
        let apart = |taken: &(usize, usize)| span.1 < taken.0 || taken.1 < span.0;
        let free = (least..self.lanes.len()).find(|&lane| self.lanes[lane].iter().all(apart));
        free.unwrap_or(self.lanes.len().max(least))
    }

    /// Assigns a lane to the track, which releases those that waited for it.
    fn take(&mut self, index: usize, lane: usize) {
        let track = &mut self.tracks[index];
        track.lane = Some(lane);
        self.lanes.resize(self.lanes.len().max(lane + 1), Vec::new());
        self.lanes[lane].push(track.span());
        self.waiting.remove(&index);
        let mut freed: Vec<usize> = track.other_half.into_iter().collect();
        for row in track.rows(BoxSide::Left) {
            let row = self.rows.entry(row).or_default();
            row.waiting -= 1;
            row.taken = row.taken.max(lane + 1);
            if row.waiting == 0 {
                freed.append(&mut row.followers);
            }
        }
        freed.into_iter().for_each(|track| self.make_ready(track));
    }

    /// Splits the first waiting track that has both predecessors and successors in two, which meet in a free row.
    fn detour(&mut self) {
        let through = |track: &Track| track.ends[0].1 == BoxSide::Left && track.ends[1].1 == BoxSide::Right;
        let Some(&first) = self.waiting.iter().find(|&&index| through(&self.tracks[index])) else {
            // Every other kind of track is unconstrained on one side, so none of them waits for ever.
            self.waiting.clear();
            return;
        };
        let (low, high) = self.tracks[first].span();
        let is_taken = |row: &usize| self.rows.contains_key(row);
        let inside = (low + 1..high).min_by_key(|row| (is_taken(row), row.abs_diff((low + high) / 2)));
        let free = inside.filter(|row| !is_taken(row)).or_else(|| (0..*self.height).find(|row| !is_taken(row)));
        let free = free.unwrap_or(*self.height);
        *self.height = (*self.height).max(free + 1);
        let second = self.tracks.len();
        let mut rest = self.tracks[first].clone();
        rest.ends[0] = (free, BoxSide::Detour);
        rest.other_half = Some(first);
        self.tracks.push(rest);
        self.tracks[first].ends[1] = (free, BoxSide::Detour);
        self.tracks[first].other_half = Some(second);
        self.enter(second);
        self.make_ready(first);
    }
}

const UP: u8 = 1;
const RIGHT: u8 = 2;
const DOWN: u8 = 4;
const LEFT: u8 = 8;

/// Box characters by the directions of the lines in a cell.
const LINES: [char; 16] = [' ', '│', '─', '└', '│', '│', '┌', '├', '─', '┘', '─', '┴', '┐', '┤', '┬', '┼'];
const ASCII_LINES: [char; 16] = [' ', '|', '-', '+', '|', '|', '+', '+', '-', '+', '-', '+', '+', '+', '+', '+'];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Left,
    Right,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lines(u8),
    Character(char),
    Sign(Sign),
    /// The second half of a wide character.
    Covered,
}

#[derive(Default)]
struct Canvas {
    rows: Vec<Vec<Cell>>,
    width: usize,
}

impl Canvas {
    fn reserve(&mut self, width: usize, height: usize) {
        self.width = self.width.max(width);
        let width = self.width;
        self.rows.iter_mut().for_each(|row| row.resize(width, Cell::Lines(0)));
        self.rows.resize(self.rows.len().max(height), vec![Cell::Lines(0); width]);
    }

    fn set(&mut self, x: usize, y: usize, cell: Cell) {
        if let Some(place) = self.rows.get_mut(y).and_then(|row| row.get_mut(x)) {
            *place = cell;
        }
    }

    fn join(&mut self, x: usize, y: usize, directions: u8) {
        if let Some(Cell::Lines(lines)) = self.rows.get_mut(y).and_then(|row| row.get_mut(x)) {
            *lines |= directions;
        }
    }

    fn level(&mut self, a: usize, b: usize, y: usize) {
        for x in a.min(b)..a.max(b) {
            self.join(x, y, RIGHT);
            self.join(x + 1, y, LEFT);
        }
    }

    fn upright(&mut self, x: usize, a: usize, b: usize) {
        for y in a.min(b)..a.max(b) {
            self.join(x, y, DOWN);
            self.join(x, y + 1, UP);
        }
    }

    /// Closes a box's left side, where an arrow head replaces the line that leads to it.
    fn seal(&mut self, x: usize, y: usize) {
        if let Some(Cell::Lines(lines)) = self.rows.get_mut(y).and_then(|row| row.get_mut(x)) {
            *lines &= !LEFT;
        }
    }

    fn sign(&mut self, x: usize, y: usize, sign: Sign) {
        self.set(x, y, Cell::Sign(sign));
    }

    fn write(&mut self, mut x: usize, y: usize, text: &str) {
        for c in text.chars().filter(|&c| cells(c) > 0) {
            self.set(x, y, Cell::Character(c));
            if cells(c) == 2 {
                self.set(x + 1, y, Cell::Covered);
            }
            x += cells(c);
        }
    }

    fn text(&self, unicode: bool) -> String {
        let lines = if unicode { LINES } else { ASCII_LINES };
        let [left, right] = if unicode { ['◄', '►'] } else { ['<', '>'] };
        let mut text = String::new();
        for row in &self.rows {
            let line: String = row
                .iter()
                .filter_map(|&cell| match cell {
                    Cell::Lines(directions) => Some(lines[usize::from(directions)]),
                    Cell::Character(c) => Some(c),
                    Cell::Sign(Sign::Left) => Some(left),
                    Cell::Sign(Sign::Right) => Some(right),
                    Cell::Covered => None,
                })
                .collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The positions of the apps in a picture, drawn or not.
struct Ranked<'a> {
    column: &'a [usize],
    top: &'a [i32],
}

/// The network as a list: each app with the links that leave it.
fn list(graph: &Graph, ports: &Ports, ranked: Ranked, parts: Vec<DraftPart>, unicode: bool) -> String {
    let [middle, last, arrow, back] =
        if unicode { ["├─", "└─", "─►", "↺"] } else { ["|-", "`-", "->", "(loop)"] };
    let mut text = String::new();
    for DraftPart { mut apps, mut links } in parts {
        apps.sort_by_key(|&app| (ranked.column[app], ranked.top[app]));
        // The links of an app follow one another, in the order of its ports.
        links.sort_by_key(|link| link.from);
        if !text.is_empty() {
            text.push('\n');
        }
        let widest = longest(apps.iter().map(|&app| graph.apps[app].name.as_str()));
        let target = |link: &Link| {
            let to = link.to;
            format!("{}.{}", printable(&graph.apps[to.0].name), ports.inputs[to.0][to.1])
        };
        let output = |link: &Link| ports.outputs[link.from.0][link.from.1].as_str();
        let outputs = longest(links.iter().map(output));
        let targets = links.iter().map(|link| length(&target(link))).max().unwrap_or(0);
        for app in apps {
            let node = &graph.apps[app];
            let note = node.note.as_deref().map(|note| format!("  {}", printable(note))).unwrap_or_default();
            let warning = if node.warn { "  !" } else { "" };
            let name = padded(&printable(&node.name), widest);
            let worker = node.worker.as_deref().map(|worker| format!(" @{}", printable(worker))).unwrap_or_default();
            push_line(&mut text, &format!("{name}  {}{worker}{note}{warning}", printable(&node.kind)));
            let first = links.partition_point(|link| link.from.0 < app);
            let end = links.partition_point(|link| link.from.0 <= app);
            for (index, link) in links[first..end].iter().enumerate() {
                let branch = if first + index + 1 == end { last } else { middle };
                let (output, target) = (padded(output(link), outputs), padded(&target(link), targets));
                let back = if link.closes_loop { back } else { "" };
                let label = label(graph, *link);
                let gap = if back.is_empty() || label.is_empty() { "" } else { " " };
                push_line(&mut text, &format!("  {branch} {output} {arrow} {target}  {back}{gap}{label}"));
            }
        }
    }
    text
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(length(text))))
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}
