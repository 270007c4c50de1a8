//! The overview for a narrow screen: the apps below each other, and the links in lanes beside them, those that lead down
//! on the right and those that lead up on the left. All links of an app share a lane on each side.

use std::fmt::Write as _;

use crate::layout::Draft;
use crate::svg::{ARROW, class_of, link_class, short_name, text_width};
use crate::{Graph, Ports, compounds, escaped, shortened};

const MARGIN: i32 = 6;
/// The height of a row, and of the box in it.
const ROW: i32 = 24;
const BOX: i32 = 19;
const PADDING: i32 = 8;
/// The space between two lanes, and between a box and the first lane.
const LANE: i32 = 5;
const BESIDE: i32 = ARROW + 6;
const CORNER: i32 = 4;
/// The maximum number of characters of a name.
const NAME_LENGTH: usize = 24;

/// The lane of each app's links on one side, and the number of lanes.
struct Lanes {
    of: Vec<i32>,
    count: i32,
}

impl Lanes {
    /// Lanes for the links between rows that lead to lower or to higher ones. Short ones are beside the boxes.
    fn of(apps: usize, links: impl Iterator<Item = (usize, usize, usize)>) -> Lanes {
        let mut spans: Vec<Option<(usize, usize)>> = vec![None; apps];
        for (app, from, to) in links {
            let (first, last) = spans[app].unwrap_or((from, from));
            spans[app] = Some((first.min(to), last.max(to)));
        }
        let mut order: Vec<(usize, (usize, usize))> =
            spans.into_iter().enumerate().filter_map(|(app, span)| Some((app, span?))).collect();
        order.sort_by_key(|(_, (first, last))| (last - first, *first));
        let mut taken: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut of = vec![0; apps];
        for (app, span) in order {
            let is_free = |lane: &Vec<(usize, usize)>| lane.iter().all(|other| span.1 < other.0 || other.1 < span.0);
            let lane = taken.iter().rposition(|lane| !is_free(lane)).map_or(0, |blocked| blocked + 1);
            if lane == taken.len() {
                taken.push(Vec::new());
            }
            taken[lane].push(span);
            of[app] = i32::try_from(lane).unwrap_or(0);
        }
        Lanes { of, count: i32::try_from(taken.len()).unwrap_or(0) }
    }

    fn width(&self) -> i32 {
        if self.count == 0 { 0 } else { BESIDE + LANE * (self.count - 1) }
    }
}

/// Draws the network; `None` if it is too large.
pub fn svg(graph: &Graph) -> Option<String> {
    let ports = Ports::of(graph);
    let apps = graph.apps.len();
    let draft = Draft::of(apps, &ports, crate::layout::Groups::default());
    if !draft.is_placeable() {
        return None;
    }
    let mut row = vec![0; apps];
    let mut order: Vec<usize> = Vec::new();
    for part in &draft.parts {
        let mut apps = part.apps.clone();
        apps.sort_by_key(|&app| (draft.column[app], app));
        order.extend(apps);
    }
    order.iter().enumerate().for_each(|(index, &app)| row[app] = index);
    // The names of the compound apps around are left out if all have the same.
    let mut around = graph.apps.iter().filter_map(|app| compounds(&app.name).last().copied());
    let first = around.next();
    let is_short = around.all(|other| Some(other) == first);
    let names: Vec<String> = graph
        .apps
        .iter()
        .map(|app| if is_short { short_name(&app.name, NAME_LENGTH) } else { shortened(&app.name, NAME_LENGTH) })
        .collect();
    let wide = names.iter().map(|name| text_width(name, 13, true)).max().unwrap_or(0) + 2 * PADDING;
    let leads_down = |link: &&crate::Link| row[link.to.0] > row[link.from.0];
    let ends = |link: &crate::Link| (link.from.0, row[link.from.0], row[link.to.0]);
    let down = Lanes::of(apps, ports.links.iter().filter(leads_down).map(ends));
    let up = Lanes::of(apps, ports.links.iter().filter(|link| !leads_down(link)).map(ends));
    let left = MARGIN + up.width();
    let (width, height) = (left + wide + down.width() + MARGIN, 2 * MARGIN + ROW * i32::try_from(apps).ok()?);
    let top = |app: usize| MARGIN + ROW * i32::try_from(row[app]).unwrap_or(0);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bellows-graph\" role=\"group\" width=\"{width}\" \
         height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>"
    );
    for link in &ports.links {
        let (from, to) = (link.from.0, link.to.0);
        // Packets leave at the lower half of a box and arrive at the upper one.
        let (start, end) = (top(from) + BOX * 2 / 3, top(to) + BOX / 3);
        let is_down = leads_down(&link);
        let (edge, side, lanes) = if is_down { (left + wide, 1, &down) } else { (left, -1, &up) };
        let x = edge + side * (BESIDE + LANE * lanes.of[from]);
        let corner = if is_down { CORNER } else { -CORNER };
        let (bend, tip) = (x - side * CORNER, edge + side * (ARROW - 2));
        let data = format!(
            "M{edge} {start}H{bend}Q{x} {start} {x} {}V{}Q{x} {end} {bend} {end}H{tip}",
            start + corner,
            end - corner
        );
        let _ = writeln!(
            out,
            "<g class=\"{}\" data-link=\"{}\"><path class=\"wire\" d=\"{data}\"/><path class=\"tip\" \
             d=\"M{edge} {end}l{} -4v8z\"/></g>",
            link_class(graph, *link, !is_down),
            link.edge,
            side * ARROW,
        );
    }
    for (app, name) in names.iter().enumerate() {
        let y = top(app);
        let _ = writeln!(
            out,
            "<g class=\"{}\" data-app=\"{app}\"><rect x=\"{left}\" y=\"{y}\" width=\"{wide}\" height=\"{BOX}\" rx=\"5\"/>\n\
             <text class=\"name middle\" x=\"{}\" y=\"{}\">{}</text>\n</g>",
            class_of(graph, &ports, app),
            left + wide / 2,
            y + 14,
            escaped(name),
        );
    }
    out.push_str("</svg>\n");
    Some(out)
}
