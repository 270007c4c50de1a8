//! The picture for documents: a self-contained SVG with its own background, in the reader's light or dark scheme.
//!
//! [`Drawing`] is the geometry in whole pixels, which the tests check; [`svg`] writes it out. A gap between columns
//! holds, from the left: the labels of the links that leave the column, the turns of links that run back, the curves
//! from height to height, the turns before the next column, and the arrow heads. So no label lies on a link or an app.
//!
//! An overview has names alone, for a screen that has no room for the whole text.

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::frames::{AppFrame, Framing, Rect};
use crate::layout::{AppExtent, ConnectedPart, Draft, Placement, Spacing, Turn, WireSpan};
use crate::{Graph, Link, Ports, compounds, escaped, printable, shortened};

/// What a picture of apps shows, and which way it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Everything, from left to right.
    #[default]
    Full,
    /// Names, from left to right.
    Wide,
    /// Names, from the top to the bottom, for a narrow screen.
    Tall,
}

/// The distances of a view.
struct Metrics {
    spacing: Spacing,
    margin: i32,
    /// The space between unconnected parts of the network.
    part_gap: i32,
    /// Half of the minimum height for a port; a line of a label takes twice that.
    port: i32,
    /// The space between a box's edge and its text, and between its columns of text.
    padding: i32,
    /// The minimum width of a box.
    narrowest: i32,
    /// The space between the parallel parts of links that turn.
    turn_gap: i32,
    /// The width of curves: of any, the part of the steepest one's height up to a maximum, and for each of them.
    bend: (i32, i32, i32, i32),
}

const FULL: Metrics = Metrics {
    spacing: Spacing {
        apps: 26,
        app_to_lane: 16,
        lanes: 16,
        lane: 0,
        below_frame_top: 20,
        above_frame_bottom: 10,
        around_frame: 14,
    },
    margin: 24,
    part_gap: 40,
    port: 8,
    padding: 10,
    narrowest: 72,
    turn_gap: 9,
    bend: (28, 4, 70, 2),
};

const OVERVIEW: Metrics = Metrics {
    spacing: Spacing {
        apps: 14,
        app_to_lane: 8,
        lanes: 6,
        lane: 0,
        below_frame_top: 18,
        above_frame_bottom: 7,
        around_frame: 8,
    },
    margin: 6,
    part_gap: 20,
    port: 4,
    padding: 4,
    narrowest: 40,
    turn_gap: 5,
    bend: (9, 10, 11, 0),
};

impl View {
    fn metrics(self) -> &'static Metrics {
        if self == View::Full { &FULL } else { &OVERVIEW }
    }
}

/// Height of the title line.
const TITLE: i32 = 34;
const LABEL_LINE: i32 = 12;
/// The space from an app's edge to the label of its link, and from there to the first possible bend.
const LABEL_GAP: i32 = 8;
pub const ARROW: i32 = 8;
/// The space between a frame and the curves beside it.
const FRAME_GAP: i32 = 4;
/// The maximum number of characters drawn of a name and of other text; the tooltip has all of them.
const NAME_LENGTH: usize = 44;
const TEXT_LENGTH: usize = 36;
/// The maximum number of characters of a name in an overview, and from how many on it takes two lines.
const SHORT_LENGTH: usize = 24;
const LINE_LENGTH: usize = 10;

/// An app's box, with its texts.
#[derive(Debug)]
pub struct AppBox {
    pub rect: Rect,
    /// The header's centre.
    middle: i32,
    /// Heights of the ports.
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
}

/// A stroke of a link, from the previous point.
#[derive(Clone, Copy, Debug)]
pub enum Stroke {
    Line(i32, i32),
    /// A rounded corner: the corner itself, and the end of the stroke.
    Corner((i32, i32), (i32, i32)),
    /// Level at both ends.
    Curve(i32, i32),
}

impl Stroke {
    pub fn end(self) -> (i32, i32) {
        match self {
            Stroke::Line(x, y) | Stroke::Curve(x, y) | Stroke::Corner(_, (x, y)) => (x, y),
        }
    }
}

/// A link's line. The arrow head's tip is at the end.
#[derive(Debug)]
pub struct Path {
    pub link: Link,
    pub back: bool,
    pub start: (i32, i32),
    pub strokes: Vec<Stroke>,
    /// The place of an arrow head on a lane, which shows that the link runs back.
    chevron: Option<(i32, i32)>,
}

#[derive(Debug)]
pub struct Label {
    /// The position of its link in [`Graph::links`].
    pub edge: usize,
    pub rect: Rect,
    pub text: String,
    pub drops: bool,
}

/// The positions of everything, in pixels.
#[derive(Debug)]
pub struct Drawing {
    pub width: i32,
    pub height: i32,
    pub apps: Vec<AppBox>,
    /// The frames of workers and of compound apps.
    pub frames: Vec<AppFrame>,
    pub paths: Vec<Path>,
    pub labels: Vec<Label>,
}

/// An upper limit on a text's width: that of DejaVu Sans, the widest of the usual sans-serif fonts.
pub fn text_width(text: &str, size: i32, bold: bool) -> i32 {
    let thousandths = |c: char| match c {
        'i' | 'j' | 'l' | '\'' => 290,
        ' ' | '.' | ',' | ':' | ';' | '|' | 'I' => 345,
        'f' | 't' | 'r' | '-' | '(' | ')' | '[' | ']' | '/' | '!' | '"' => 420,
        'm' | 'M' | 'W' | '@' | '%' => 1000,
        'w' | 'G' | 'O' | 'Q' | 'D' | 'H' | 'N' | 'U' | '&' | '#' | '+' | '=' | '<' | '>' | '~' => 840,
        'A'..='Z' | '…' => 700,
        c if c.is_ascii() => 640,
        c if (c as u32) < 0x1100 => 760,
        _ => 1050,
    };
    let sum: i32 = text.chars().map(thousandths).sum();
    let sum = if bold { sum + sum * 11 / 100 } else { sum };
    (sum * size + 999) / 1000
}

/// The texts of an app's box.
struct Texts<'a> {
    view: View,
    /// The lines of its name.
    name: Vec<String>,
    kind: String,
    note: String,
    inputs: Vec<&'a str>,
    outputs: Vec<&'a str>,
}

impl<'a> Texts<'a> {
    fn of(graph: &Graph, ports: &'a Ports, app: usize, view: View) -> Self {
        let node = &graph.apps[app];
        if view != View::Full {
            let (inputs, outputs) = (vec![""; ports.inputs[app].len()], vec![""; ports.outputs[app].len()]);
            return Texts {
                view,
                name: two_lines(&short_name(&node.name, SHORT_LENGTH)),
                kind: String::new(),
                note: String::new(),
                inputs,
                outputs,
            };
        }
        Texts {
            view,
            name: vec![shortened(&node.name, NAME_LENGTH)],
            kind: shortened(&node.kind, TEXT_LENGTH),
            note: shortened(node.note.as_deref().unwrap_or(""), TEXT_LENGTH),
            inputs: ports.shown_inputs(app),
            outputs: ports.shown_outputs(app),
        }
    }

    /// The header's lines: text, class, line height, font size.
    fn lines(&self) -> Vec<(&str, &'static str, i32, i32)> {
        let height = if self.view == View::Full { 17 } else { 15 };
        let mut lines: Vec<_> = self.name.iter().map(|line| (line.as_str(), "name", height, 13)).collect();
        if !self.kind.is_empty() {
            lines.push((&self.kind, "kind", 15, 11));
        }
        if !self.note.is_empty() {
            lines.push((&self.note, "note", 14, 10));
        }
        lines
    }

    fn header_width(&self) -> i32 {
        self.lines().iter().map(|&(text, class, _, size)| text_width(text, size, class == "name")).max().unwrap_or(0)
    }

    fn header_height(&self) -> i32 {
        self.lines().iter().map(|line| line.2).sum()
    }

    /// The width of a column of port names, including the space before the next column.
    fn ports_width(names: &[&str]) -> i32 {
        let widest = names.iter().map(|name| text_width(&shortened(name, TEXT_LENGTH), 10, false)).max().unwrap_or(0);
        if widest == 0 { 0 } else { widest + FULL.padding }
    }

    fn width(&self) -> i32 {
        let width = Self::ports_width(&self.inputs) + self.header_width() + Self::ports_width(&self.outputs);
        let metrics = self.view.metrics();
        (width + 2 * metrics.padding).max(metrics.narrowest)
    }

    /// The height of the box around the texts.
    fn height(&self) -> i32 {
        if self.view == View::Full { (self.header_height() + 14).max(40) } else { self.header_height() + 10 }
    }
}

/// An app's name without those of the compound apps around it.
pub fn short_name(name: &str, most: usize) -> String {
    let around = compounds(name).last().map_or(0, |compound| compound.len() + 1);
    shortened(&name[around..], most)
}

/// A name on one line or two.
fn two_lines(name: &str) -> Vec<String> {
    let name: Vec<char> = name.chars().collect();
    let text = |part: &[char]| part.iter().collect::<String>();
    if name.len() < LINE_LENGTH {
        return vec![text(&name)];
    }
    let breaks = (1..name.len()).filter(|&at| !name[at - 1].is_alphanumeric() && name[at].is_alphanumeric());
    match breaks.min_by_key(|&at| at.max(name.len() - at)) {
        Some(at) => vec![text(&name[..at]), text(&name[at..])],
        None => vec![text(&name)],
    }
}

/// Label texts of each link, above and below its line.
struct LinkTexts {
    above: Option<String>,
    below: Option<String>,
}

impl LinkTexts {
    fn of(graph: &Graph, link: Link) -> Self {
        let edge = &graph.links[link.edge];
        LinkTexts {
            above: edge.label.as_deref().filter(|text| !text.is_empty()).map(|text| shortened(text, TEXT_LENGTH)),
            below: edge.drops_text().map(|text| shortened(&text, TEXT_LENGTH)),
        }
    }

    fn width(&self) -> i32 {
        self.above.iter().chain(&self.below).map(|text| text_width(text, 10, false)).max().unwrap_or(0)
    }
}

/// Height of a box and of the ports on its sides.
fn shape(texts: &Texts, outputs: &[(i32, i32)]) -> AppExtent {
    let port = texts.view.metrics().port;
    let room = |lines: i32| if lines == 0 { 0 } else { LABEL_LINE * lines + 1 };
    let half: Vec<i32> = outputs.iter().map(|&(above, below)| port.max(room(above)).max(room(below))).collect();
    let inputs = i32::try_from(texts.inputs.len()).unwrap_or(0);
    let sides = (2 * port * inputs).max(2 * half.iter().sum::<i32>()) + 6;
    let height = texts.height().max(sides);
    let height = height + height % 2;
    let spread = |half: &[i32]| {
        let mut top = height / 2 - half.iter().sum::<i32>();
        half.iter()
            .map(|half| {
                top += 2 * half;
                top - half
            })
            .collect()
    };
    AppExtent { height, inputs: spread(&vec![port; texts.inputs.len()]), outputs: spread(&half) }
}

/// The inputs for all parts of a drawing.
struct DrawingPlan<'a> {
    view: View,
    placement: Placement,
    framing: Framing,
    shapes: Vec<AppExtent>,
    texts: Vec<Texts<'a>>,
    /// The sizes of each app's texts.
    widths: Vec<i32>,
    /// By the position in [`Graph::links`]; none for links that are left out.
    link_texts: Vec<Option<LinkTexts>>,
}

impl<'a> DrawingPlan<'a> {
    /// `None` if the network is too large to be drawn.
    fn of(graph: &Graph, ports: &'a Ports, view: View) -> Option<Self> {
        let framing = Framing::of(graph);
        let draft = Draft::of(graph.apps.len(), ports, framing.groups.clone());
        if !draft.is_placeable() {
            return None;
        }
        let texts: Vec<Texts> = (0..graph.apps.len()).map(|app| Texts::of(graph, ports, app, view)).collect();
        let mut lines: Vec<Vec<(i32, i32)>> = ports.outputs.iter().map(|ports| vec![(0, 0); ports.len()]).collect();
        let mut link_texts: Vec<Option<LinkTexts>> = graph.links.iter().map(|_| None).collect();
        for &link in ports.links.iter().filter(|_| view == View::Full) {
            let texts = LinkTexts::of(graph, link);
            let (above, below) = &mut lines[link.from.0][link.from.1];
            *above += i32::from(texts.above.is_some());
            *below += i32::from(texts.below.is_some());
            link_texts[link.edge] = Some(texts);
        }
        let shapes: Vec<AppExtent> = texts.iter().zip(&lines).map(|(texts, lines)| shape(texts, lines)).collect();
        let placement = draft.place(&shapes, view.metrics().spacing);
        let widths = texts.iter().map(Texts::width).collect();
        Some(DrawingPlan { view, placement, framing, shapes, texts, widths, link_texts })
    }
}

impl Drawing {
    /// `None` if the network is too large to be drawn.
    pub fn of(graph: &Graph, ports: &Ports, view: View) -> Option<Self> {
        let plan = DrawingPlan::of(graph, ports, view)?;
        let blank =
            || AppBox { rect: Rect { x: 0, y: 0, width: 0, height: 0 }, middle: 0, inputs: vec![], outputs: vec![] };
        let mut drawing = Drawing {
            width: 0,
            height: 0,
            apps: graph.apps.iter().map(|_| blank()).collect(),
            frames: Vec::new(),
            paths: Vec::new(),
            labels: Vec::new(),
        };
        let columns: Vec<Columns> = plan.placement.parts.iter().map(|part| Columns::of(part, &plan)).collect();
        let widest = columns.iter().map(|columns| columns.width).max().unwrap_or(0).max(480);
        let &Metrics { margin: left, part_gap, .. } = view.metrics();
        let title = graph.title.as_deref().filter(|_| view == View::Full);
        let top = left + if title.is_some() { TITLE } else { 0 };
        let (mut x, mut y, mut shelf) = (left, top, 0);
        for (part, columns) in plan.placement.parts.iter().zip(&columns) {
            if x > left && x + columns.width > left + widest {
                (x, y, shelf) = (left, y + shelf + part_gap, 0);
            }
            drawing.add_part(&plan, part, columns, (x, y));
            drawing.width = drawing.width.max(x + columns.width + left);
            x += columns.width + part_gap;
            shelf = shelf.max(part.height);
        }
        drawing.height = y + shelf + left;
        // Outer frames first.
        drawing.frames.sort_by_key(|frame| frame.group);
        let title = title.map_or(0, |title| text_width(&printable(title), 15, true));
        drawing.width = drawing.width.max(title + 2 * left);
        Some(drawing)
    }

    fn add_part(&mut self, plan: &DrawingPlan, part: &ConnectedPart, columns: &Columns, (left, top): (i32, i32)) {
        let DrawingPlan { placement, framing, shapes, texts, widths, link_texts, .. } = plan;
        for frame in &part.frames {
            let side = framing.side(frame.group);
            let (first, last) = (&columns.gaps[frame.columns.0], &columns.gaps[frame.columns.1 + 1]);
            let (x, right) = (first.curves.1 + first.before - side, last.curves.0 - last.behind + side);
            let (width, height) = (right - x, frame.bottom - frame.top);
            let rect = Rect { x: left + x, y: top + frame.top, width, height };
            self.frames.push(framing.frame(frame.group, rect));
        }
        for &app in &part.apps {
            let column = placement.column[app];
            let width = columns.box_width(column, widths[app]);
            let x = left + columns.left[column] + (columns.columns[column] - width) / 2;
            let y = top + placement.top[app];
            let rect = Rect { x, y, width, height: shapes[app].height };
            let (before, after) = (Texts::ports_width(&texts[app].inputs), Texts::ports_width(&texts[app].outputs));
            let middle = x + width / 2 + (before - after) / 2;
            let heights = |ports: &[i32]| ports.iter().map(|port| y + port).collect();
            self.apps[app] =
                AppBox { rect, middle, inputs: heights(&shapes[app].inputs), outputs: heights(&shapes[app].outputs) };
        }
        for (index, wire) in part.wires.iter().enumerate() {
            let from = self.apps[wire.link.from.0].rect;
            let to = self.apps[wire.link.to.0].rect;
            let mut pen = Pen::new(from.x + from.width, top + wire.start);
            let gaps = wire.gaps(placement);
            let gaps: Vec<usize> = if wire.back { gaps.rev().collect() } else { gaps.collect() };
            for gap in gaps {
                for stretch in wire.stretches(placement, index, gap) {
                    pen.cross(columns, gap, &stretch, (left, top));
                }
            }
            pen.line(to.x, top + wire.end);
            let chevron = wire.back.then(|| {
                let middle = wire.lanes.len() / 2;
                let column = wire.first + middle;
                (left + columns.left[column] + columns.columns[column] / 2, top + wire.lanes[middle])
            });
            self.paths.push(Path { link: wire.link, back: wire.back, start: pen.start, strokes: pen.strokes, chevron });
        }
        let mut stacked = std::collections::BTreeMap::new();
        for wire in &part.wires {
            let Some(texts) = &link_texts[wire.link.edge] else { continue };
            let app = self.apps[wire.link.from.0].rect;
            let x = app.x + app.width + LABEL_GAP;
            let port = top + wire.start;
            let (above, below) = stacked.entry(wire.link.from).or_insert((0, 0));
            if let Some(text) = &texts.above {
                *above += LABEL_LINE;
                let rect = Rect { x, y: port - *above - 1, width: text_width(text, 10, false), height: LABEL_LINE };
                self.labels.push(Label { edge: wire.link.edge, rect, text: text.clone(), drops: false });
            }
            if let Some(text) = &texts.below {
                let rect = Rect { x, y: port + *below + 1, width: text_width(text, 10, false), height: LABEL_LINE };
                *below += LABEL_LINE;
                self.labels.push(Label { edge: wire.link.edge, rect, text: text.clone(), drops: true });
            }
        }
    }
}

/// The positions of the columns and gaps of a part, from its left edge.
struct Columns {
    left: Vec<i32>,
    columns: Vec<i32>,
    gaps: Vec<Gap>,
    width: i32,
    /// The radius of corners, which lie within a turn's space.
    corner: i32,
}

/// The gap left of a column, or right of the last one.
struct Gap {
    /// The start and end of the curves.
    curves: (i32, i32),
    /// The space before the curves for frames that end here, and behind them for those that begin.
    behind: i32,
    before: i32,
    /// For each turn: its stretch, and its position.
    at: Vec<(WireSpan, i32)>,
}

impl Columns {
    fn of(part: &ConnectedPart, plan: &DrawingPlan) -> Self {
        let DrawingPlan { view, placement, framing, widths, link_texts, .. } = plan;
        let &Metrics { turn_gap, bend: (least, part_of_height, most, for_each), .. } = view.metrics();
        let mut room_for_frames = vec![(0, 0); part.columns + 1];
        for frame in &part.frames {
            let room = framing.side(frame.group) + FRAME_GAP;
            let (ends, begins) = (frame.columns.1 + 1, frame.columns.0);
            room_for_frames[ends].0 = room.max(room_for_frames[ends].0);
            room_for_frames[begins].1 = room.max(room_for_frames[begins].1);
        }
        let mut columns = vec![0; part.columns];
        for &app in &part.apps {
            let widest = &mut columns[placement.column[app]];
            *widest = widths[app].max(*widest);
        }
        let mut this = Columns { left: Vec::new(), columns, gaps: Vec::new(), width: 0, corner: turn_gap - 1 };
        let mut x = 0;
        let mut leaving = vec![Vec::new(); part.columns + 1];
        for wire in &part.wires {
            leaving[placement.column[wire.link.from.0] + 1].push(wire);
        }
        for (gap, stretches) in part.stretches(placement).into_iter().enumerate() {
            let room = leaving[gap].iter().map(|wire| {
                let text = link_texts[wire.link.edge].as_ref().map_or(0, LinkTexts::width);
                let column = this.columns[gap - 1];
                let width = this.box_width(gap - 1, widths[wire.link.from.0]);
                if text == 0 { 0 } else { 2 * LABEL_GAP + text - (column - width) / 2 }
            });
            let turns = x + room.max().unwrap_or(0).max(0);
            let (behind, behind_lanes) = nested(&stretches, Turn::Behind);
            let (before, before_lanes) = nested(&stretches, Turn::Before);
            let curves = stretches.iter().filter(|stretch| {
                matches!(stretch.shape, Turn::Forward | Turn::Backward) && stretch.from != stretch.to
            });
            let steepest = curves.clone().map(|stretch| (stretch.to - stretch.from).abs()).max().unwrap_or(0);
            let bend = if gap == 0 || gap == part.columns {
                0
            } else {
                let count = i32::try_from(curves.count()).unwrap_or(0).min(20);
                least + (steepest / part_of_height).min(most) + for_each * count
            };
            let (room_behind, room_before) = room_for_frames[gap];
            let start = turns + behind_lanes * turn_gap + if behind_lanes > 0 { turn_gap } else { 0 } + room_behind;
            let end = start + bend;
            let arrows = if gap == 0 { stretches.len().min(1) } else { usize::from(gap < part.columns) };
            x = end
                + room_before
                + before_lanes * turn_gap
                + if before_lanes > 0 { turn_gap } else { 0 }
                + if arrows > 0 { ARROW + 4 } else { 0 };
            let mut at = Vec::new();
            at.extend(behind.into_iter().map(|(stretch, lane)| (stretch, turns + (lane + 1) * turn_gap)));
            let before_edge = x - ARROW - 4;
            at.extend(before.into_iter().map(|(stretch, lane)| (stretch, before_edge - (lane + 1) * turn_gap)));
            this.gaps.push(Gap { curves: (start, end), behind: room_behind, before: room_before, at });
            if gap < part.columns {
                this.left.push(x);
                x += this.columns[gap];
            }
        }
        this.width = x;
        this
    }

    /// The width of a box whose text takes `width`: that of its column unless that is much wider.
    fn box_width(&self, column: usize, width: i32) -> i32 {
        if self.columns[column] * 2 <= width * 3 {
            self.columns[column]
        } else {
            width + (self.columns[column] - width) % 2
        }
    }
}

/// Assigns a lane to each turn of the kind, with short turns nearest to the column, and counts the lanes.
fn nested(stretches: &[WireSpan], kind: Turn) -> (Vec<(WireSpan, i32)>, i32) {
    let mut turns: Vec<WireSpan> = stretches.iter().copied().filter(|stretch| stretch.shape == kind).collect();
    turns.sort_by_key(|turn| ((turn.to - turn.from).abs(), turn.from));
    let mut lanes: Vec<Vec<(i32, i32)>> = Vec::new();
    let mut placed = Vec::new();
    for turn in turns {
        let span = (turn.from.min(turn.to) - 6, turn.from.max(turn.to) + 6);
        // Outside of every turn whose heights overlap with it.
        let lane = lanes
            .iter()
            .rposition(|taken| taken.iter().any(|other| span.0 <= other.1 && other.0 <= span.1))
            .map_or(0, |blocked| blocked + 1);
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        lanes[lane].push(span);
        placed.push((turn, i32::try_from(lane).unwrap_or(0)));
    }
    (placed, i32::try_from(lanes.len()).unwrap_or(0))
}

/// Draws a link.
struct Pen {
    start: (i32, i32),
    at: (i32, i32),
    strokes: Vec<Stroke>,
}

impl Pen {
    fn new(x: i32, y: i32) -> Self {
        Pen { start: (x, y), at: (x, y), strokes: Vec::new() }
    }

    fn stroke(&mut self, stroke: Stroke) {
        self.at = stroke.end();
        // One line instead of two consecutive ones on the same height.
        if let (Some(Stroke::Line(_, last)), Stroke::Line(_, y)) = (self.strokes.last(), stroke)
            && *last == y
        {
            self.strokes.pop();
        }
        self.strokes.push(stroke);
    }

    fn line(&mut self, x: i32, y: i32) {
        if self.at != (x, y) {
            self.stroke(Stroke::Line(x, y));
        }
    }

    fn curve(&mut self, x: i32, y: i32) {
        if self.at.1 == y { self.line(x, y) } else { self.stroke(Stroke::Curve(x, y)) }
    }

    fn cross(&mut self, columns: &Columns, gap: usize, stretch: &WireSpan, (left, top): (i32, i32)) {
        let Gap { curves, at, .. } = &columns.gaps[gap];
        let (begin, end) = (left + curves.0, left + curves.1);
        let (from, to) = (top + stretch.from, top + stretch.to);
        match stretch.shape {
            Turn::Forward => {
                self.line(begin, from);
                self.curve(end, to);
            }
            Turn::Backward => {
                self.line(end, from);
                self.curve(begin, to);
            }
            Turn::Behind | Turn::Before => {
                let x = at.iter().find(|(other, _)| other == stretch).map_or(self.at.0, |&(_, x)| left + x);
                self.turn(x, from, to, stretch.shape == Turn::Behind, columns.corner);
            }
        }
    }

    /// Out to `x`, up or down, and back the way it came.
    fn turn(&mut self, x: i32, from: i32, to: i32, rightwards: bool, corner: i32) {
        let radius = corner.min((to - from).abs() / 2);
        let aside = if rightwards { x - radius } else { x + radius };
        let along = if to > from { radius } else { -radius };
        self.line(aside, from);
        self.stroke(Stroke::Corner((x, from), (x, from + along)));
        self.line(x, to - along);
        self.stroke(Stroke::Corner((x, to), (aside, to)));
    }
}

impl Path {
    /// The path's data, without the piece under the arrow head.
    fn data(&self) -> String {
        let mut data = format!("M{} {}", self.start.0, self.start.1);
        let mut at = self.start;
        let count = self.strokes.len();
        for (index, stroke) in self.strokes.iter().enumerate() {
            let short = if index + 1 == count { ARROW - 2 } else { 0 };
            let end = stroke.end();
            let _ = match *stroke {
                Stroke::Line(x, y) if y == at.1 => write!(data, "H{}", x - short),
                Stroke::Line(x, y) => write!(data, "V{y}M{x} {y}"),
                Stroke::Corner((cx, cy), (x, y)) => write!(data, "Q{cx} {cy} {x} {y}"),
                Stroke::Curve(x, y) => {
                    let bend = (x - at.0) / 2;
                    write!(data, "C{} {} {} {} {x} {y}", at.0 + bend, at.1, x - bend, y)
                }
            };
            at = end;
        }
        data
    }
}

/// The style of one colour scheme.
struct Colours {
    paper: &'static str,
    ink: &'static str,
    faint: &'static str,
    wire: &'static str,
    /// Fill and outline.
    app: (&'static str, &'static str),
    source: (&'static str, &'static str),
    sink: (&'static str, &'static str),
    warn: (&'static str, &'static str),
    warning: &'static str,
}

const LIGHT: Colours = Colours {
    paper: "#ffffff",
    ink: "#1a2230",
    faint: "#566375",
    wire: "#66748a",
    app: ("#f4f6f9", "#8996a9"),
    source: ("#ecf6f0", "#5f9c7b"),
    sink: ("#f1effb", "#8a80bd"),
    warn: ("#fdf1e7", "#d0661a"),
    warning: "#b93a0d",
};

const DARK: Colours = Colours {
    paper: "#12171f",
    ink: "#e8edf4",
    faint: "#a3afbf",
    wire: "#8b9ab0",
    app: ("#1d2530", "#5f6e83"),
    source: ("#182b23", "#4f8f6c"),
    sink: ("#24213a", "#7d73b5"),
    warn: ("#382414", "#d9792f"),
    warning: "#ff9a5c",
};

impl Colours {
    fn rules(&self) -> String {
        let Colours { paper, ink, faint, wire, app, source, sink, warn, warning } = self;
        let boxes = [(".app", app), (".source", source), (".sink", sink), (".warn", warn)]
            .map(|(class, (fill, stroke))| format!("{ROOT} {class} rect{{fill:{fill};stroke:{stroke}}}"))
            .concat();
        format!(
            "{ROOT} .paper{{fill:{paper}}}{ROOT} text{{fill:{ink}}}{ROOT} .kind,{ROOT} .note,\
             {ROOT} .port{{fill:{faint}}}{ROOT} .wire{{stroke:{wire}}}{ROOT} .gap{{stroke:{paper}}}{ROOT} .tip{{fill:{wire}}}{boxes}\
             {ROOT} .open{{fill:{paper};stroke:{wire}}}{ROOT} .lossy .wire{{stroke:{warning}}}\
             {ROOT} .lossy .tip,{ROOT} .drops,{ROOT} .warn .note{{fill:{warning}}}"
        )
    }
}

/// The prefix of every rule, so that an SVG embedded in a page does not change the page's style.
const ROOT: &str = ".bellows-graph";

/// The style of links between workers.
const CROSSINGS: &str = ".bellows-graph .crossing .wire{stroke-dasharray:2 3}";

/// Whether a picture stands alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A file, or a part of a document: it has its own style.
    Alone,
    /// A part of a live page, which has the style and tells apps and links apart by their positions in the graph.
    Live(View),
}

impl Form {
    fn view(self) -> View {
        match self {
            Form::Alone => View::Full,
            Form::Live(view) => view,
        }
    }
}

/// Draws the network as SVG; `None` if it has too many apps or links for a layout.
pub fn svg(graph: &Graph) -> Option<String> {
    draw(graph, Form::Alone)
}

/// An overview or the full picture for a page that changes it: see [`live`](crate::live).
pub(crate) fn changing(graph: &Graph, view: View) -> Option<String> {
    draw(graph, Form::Live(view))
}

/// The style of all pictures, in both colour schemes.
pub fn style() -> String {
    format!(
        "{ROOT} text{{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,\
         sans-serif;font-size:10px}}{ROOT} .title{{font-size:15px;font-weight:600}}{ROOT} .name{{font-size:13px;font-weight:bold}}\
         {ROOT} .kind{{font-size:11px}}{ROOT} .middle{{text-anchor:middle}}{ROOT} .end{{text-anchor:end}}\
         {ROOT} .wire{{fill:none;stroke-width:1.5}}{ROOT} .gap{{fill:none;stroke-width:5.5}}\
         {ROOT} .back .wire{{stroke-dasharray:5 3}}{ROOT} .app rect{{stroke-width:1.2}}\n{}\n\
         @media (prefers-color-scheme:dark){{{}}}",
        LIGHT.rules(),
        DARK.rules(),
    )
}

fn draw(graph: &Graph, form: Form) -> Option<String> {
    let ports = Ports::of(graph);
    let view = form.view();
    let drawing = Drawing::of(graph, &ports, view)?;
    let linked = Linked::of(&ports);
    let mut out = String::new();
    let Drawing { width, height, .. } = drawing;
    let title = escaped(graph.title.as_deref().unwrap_or("App network"));
    let role = if form == Form::Alone { "img" } else { "group" };
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bellows-graph\" role=\"{role}\" width=\"{width}\" \
         height=\"{height}\" viewBox=\"0 0 {width} {height}\">",
    );
    if form == Form::Alone {
        let description = escaped(&description(graph, &ports));
        let _ = writeln!(out, "<title>{title}</title>\n<desc>{description}</desc>\n<style>{}</style>", style());
        if drawing.frames.iter().any(|frame| frame.class == "worker") {
            let _ = writeln!(out, "<style>{CROSSINGS}</style>");
        }
    }
    let _ = writeln!(out, "<rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>");
    if graph.title.is_some() && view == View::Full {
        let (x, y) = (FULL.margin, FULL.margin + 12);
        let _ = writeln!(out, "<text class=\"title\" x=\"{x}\" y=\"{y}\">{title}</text>");
    }
    for AppFrame { rect: Rect { x, y, width, height }, name, class, .. } in &drawing.frames {
        let dashes = if *class == "worker" { " stroke-dasharray=\"2 3\"" } else { "" };
        let _ = writeln!(
            out,
            "<g class=\"{class}\"><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"9\" fill=\"none\" \
             stroke=\"#8996a9\"{dashes}/><text class=\"kind\" x=\"{}\" y=\"{}\">{}</text></g>",
            x + 8,
            y + 13,
            escaped(&shortened(name, frame_name_length(*width)))
        );
    }
    for path in &drawing.paths {
        write_path(&mut out, graph, &ports, path, form);
    }
    for (index, app) in drawing.apps.iter().enumerate() {
        write_app(&mut out, graph, &ports, &linked, index, app, form);
    }
    for Label { edge, rect, text, drops } in &drawing.labels {
        let class = if *drops { " class=\"drops\"" } else { "" };
        let link = if matches!(form, Form::Live(_)) { format!(" data-link=\"{edge}\"") } else { String::new() };
        let _ = writeln!(out, "<text{class}{link} x=\"{}\" y=\"{}\">{}</text>", rect.x, rect.y + 9, escaped(text));
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// The number of characters that surely have room at the top of a frame.
fn frame_name_length(width: i32) -> usize {
    usize::try_from((width - 12) / 7).unwrap_or(0).min(NAME_LENGTH)
}

/// The ports that have a link, each as app and port.
struct Linked {
    inputs: HashSet<(usize, usize)>,
    outputs: HashSet<(usize, usize)>,
}

impl Linked {
    fn of(ports: &Ports) -> Self {
        Linked {
            inputs: ports.links.iter().map(|link| link.to).collect(),
            outputs: ports.links.iter().map(|link| link.from).collect(),
        }
    }
}

fn description(graph: &Graph, ports: &Ports) -> String {
    const LISTED: usize = 40;
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut description =
        format!("App network of {} and {}", count(graph.apps.len(), "app"), count(ports.links.len(), "link"));
    let links: Vec<String> = ports.links.iter().take(LISTED).map(|&link| ports.describe(graph, link, "to")).collect();
    if !links.is_empty() {
        description.push_str(": ");
        description.push_str(&links.join(", "));
    }
    if ports.links.len() > LISTED {
        description.push_str(", and more");
    }
    description + "."
}

/// The classes of a link.
pub fn link_class(graph: &Graph, link: Link, is_back: bool) -> String {
    let mut class = String::from("link");
    if graph.crosses(link) {
        class.push_str(" crossing");
    }
    if is_back {
        class.push_str(" back");
    }
    class
}

/// The classes of an app.
pub fn class_of(graph: &Graph, ports: &Ports, app: usize) -> String {
    let mut class = String::from("app");
    match (ports.inputs[app].is_empty(), ports.outputs[app].is_empty()) {
        (true, false) => class.push_str(" source"),
        (false, true) => class.push_str(" sink"),
        _ => {}
    }
    if graph.apps[app].warn {
        class.push_str(" warn");
    }
    class
}

fn write_path(out: &mut String, graph: &Graph, ports: &Ports, path: &Path, form: Form) {
    let edge = &graph.links[path.link.edge];
    let mut class = link_class(graph, path.link, path.back);
    if edge.drops.is_some() && form == Form::Alone {
        class.push_str(" lossy");
    }
    let start = match form {
        Form::Alone => {
            let title = [Some(ports.describe(graph, path.link, "->")), edge.label.clone(), edge.drops_text()];
            let title = title.into_iter().flatten().collect::<Vec<_>>().join(", ");
            format!("><title>{}</title>", escaped(&title))
        }
        Form::Live(_) => format!(" data-link=\"{}\">", path.link.edge),
    };
    let data = path.data();
    let _ = writeln!(
        out,
        "<g class=\"{class}\"{start}<path class=\"gap\" d=\"{data}\"/><path class=\"wire\" d=\"{data}\"/>",
    );
    let (x, y) = path.strokes.last().map_or(path.start, |stroke| stroke.end());
    let _ = write!(out, "<path class=\"tip\" d=\"M{x} {y}l-{ARROW} -4v8z\"/>");
    if let Some((x, y)) = path.chevron {
        let _ = write!(out, "<path class=\"tip\" d=\"M{} {y}l{ARROW} -4v8z\"/>", x - ARROW / 2);
    }
    out.push_str("</g>\n");
}

fn write_app(out: &mut String, graph: &Graph, ports: &Ports, linked: &Linked, index: usize, app: &AppBox, form: Form) {
    let node = &graph.apps[index];
    let view = form.view();
    let texts = Texts::of(graph, ports, index, view);
    let class = class_of(graph, ports, index);
    let title: Vec<&str> =
        [&node.name, &node.kind, node.note.as_ref().unwrap_or(&node.kind)].map(String::as_str).to_vec();
    let title = if node.note.is_some() { &title[..] } else { &title[..2] };
    let Rect { x, y, width, height } = app.rect;
    let start = match form {
        Form::Alone => format!("><title>{}</title>", escaped(&title.join(", "))),
        Form::Live(_) => format!(" data-app=\"{index}\">"),
    };
    let _ = writeln!(
        out,
        "<g class=\"{class}\"{start}<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>",
    );
    let mut line = y + (height - texts.header_height()) / 2;
    for (text, class, line_height, size) in texts.lines() {
        let baseline = line + (line_height + size) / 2 - 2;
        let _ = writeln!(
            out,
            "<text class=\"{class} middle\" x=\"{}\" y=\"{baseline}\">{}</text>",
            app.middle,
            escaped(text)
        );
        line += line_height;
    }
    if view != View::Full {
        out.push_str("</g>\n");
        return;
    }
    let sides = [
        (x, x + 8, "port", &texts.inputs, &app.inputs, &linked.inputs),
        (x + width, x + width - 8, "port end", &texts.outputs, &app.outputs, &linked.outputs),
    ];
    for (edge, text, class, names, heights, linked) in sides {
        for (at, (name, height)) in names.iter().zip(heights).enumerate() {
            if !linked.contains(&(index, at)) {
                let _ = writeln!(out, "<circle class=\"open\" cx=\"{edge}\" cy=\"{height}\" r=\"2.5\"/>");
            }
            if !name.is_empty() {
                let name = escaped(&shortened(name, TEXT_LENGTH));
                let _ = writeln!(out, "<text class=\"{class}\" x=\"{text}\" y=\"{}\">{name}</text>", height + 3);
            }
        }
    }
    out.push_str("</g>\n");
}
