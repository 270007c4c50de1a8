//! Invariants of every picture, checked on random networks, and some example pictures.

use std::io::Write as _;
use std::process::{Command, Stdio};

use bellows_testkit::skip;

use super::frames::Rect;
use super::svg::{Drawing, Stroke};
use super::*;

/// A xorshift generator: tests repeat exactly.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    fn pick(&mut self, texts: &[&str]) -> String {
        texts[self.below(texts.len())].to_string()
    }
}

const NAMES: [&str; 8] =
    ["in", "esp-decap", "a \"quoted\" <name> & more", "ümläute", "パケット", "x\u{1}\u{7f}y", "", "\\"];

/// Up to 60 apps with loops, self-links, ports shared by several links, and apps without links.
fn anything(random: &mut Random) -> Graph {
    let apps = random.below(61);
    let maybe = |random: &mut Random, texts: &[&str]| (random.below(3) == 0).then(|| random.pick(texts));
    let mut graph = Graph { title: maybe(random, &NAMES), ..Graph::default() };
    for app in 0..apps {
        let ports = |random: &mut Random| (0..random.below(4)).map(|port| format!("p{port}")).collect();
        graph.apps.push(Node {
            name: format!("{}{app}", random.pick(&NAMES)),
            kind: random.pick(&["tee", "", "bridge.learning.with.a.name.that.goes.on.for.ever"]),
            inputs: ports(random),
            outputs: ports(random),
            note: maybe(random, &["1.2 Mpps", "drops <3> kpps"]),
            worker: None,
            warn: random.below(5) == 0,
        });
    }
    let links = if apps == 0 { 0 } else { random.below(2 * apps + 1) };
    for _ in 0..links {
        let end =
            |random: &mut Random| (random.below(apps), random.pick(&["p0", "p1", "p2", "output", "input", "<&>"]));
        let (from, to) = (end(random), end(random));
        let label = maybe(random, &["1.2 Mpps 0.6 Gb/s", "12 kpps", ""]);
        graph.links.push(Edge { from, to, label, drops: maybe(random, &["3 kpps", "many & more"]), ..Edge::default() });
    }
    with_closed_loops(graph)
}

/// The network with each link marked that closes a loop together with the links before it.
fn with_closed_loops(mut graph: Graph) -> Graph {
    let mut leads_to = vec![Vec::new(); graph.apps.len()];
    for link in &mut graph.links {
        let (from, to) = (link.from.0, link.to.0);
        let mut seen = vec![false; graph.apps.len()];
        let mut reached = vec![to];
        while let Some(app) = reached.pop() {
            if !std::mem::replace(&mut seen[app], true) {
                reached.extend(&leads_to[app]);
            }
        }
        link.closes_loop = seen[from];
        if !link.closes_loop {
            leads_to[from].push(to);
        }
    }
    graph
}

/// Networks whose apps are on workers and in compound apps, up to four within each other, of which some are in the way.
fn framed_graphs(count: usize) -> impl Iterator<Item = Graph> {
    let mut random = Random(0xf4a3e);
    (0..count).map(move |round| {
        let mut graph = anything(&mut random);
        let workers = round % 3;
        for (app, node) in graph.apps.iter_mut().enumerate() {
            let levels = random.below(5);
            let path: String = (0..levels).map(|_| random.pick(&["a/", "b/", "c/"])).collect();
            node.name = format!("{path}app{app}");
            if workers > 0 {
                node.worker = Some(format!("w{}", random.below(1 + workers)));
            }
        }
        graph
    })
}

fn random_graphs(count: usize) -> impl Iterator<Item = Graph> {
    let mut random = Random(0x5eed);
    (0..count).map(move |_| anything(&mut random))
}

/// A network from the config's notation; ports are declared in the order in which the links name them.
fn network(links: &[&str]) -> Graph {
    let mut graph = Graph::default();
    for link in links {
        let (from, to) = link.split_once(" -> ").unwrap();
        let mut end = |text: &str, output: bool| {
            let (name, port) = text.split_once('.').unwrap();
            let app = graph.apps.iter().position(|app| app.name == name).unwrap_or_else(|| {
                graph.apps.push(Node { name: name.to_string(), kind: "app".to_string(), ..Node::default() });
                graph.apps.len() - 1
            });
            let ports = if output { &mut graph.apps[app].outputs } else { &mut graph.apps[app].inputs };
            if !ports.iter().any(|other| other == port) {
                ports.push(port.to_string());
            }
            (app, port.to_string())
        };
        let (from, to) = (end(from, true), end(to, false));
        graph.links.push(Edge { from, to, ..Edge::default() });
    }
    with_closed_loops(graph)
}

fn drawing(graph: &Graph) -> Drawing {
    Drawing::of(graph, &Ports::of(graph), View::Full).unwrap()
}

fn looped() -> Graph {
    network(&[
        "source.output -> join.new",
        "join.output -> work.input",
        "work.output -> split.input",
        "split.done -> sink.input",
        "split.retry -> join.again",
    ])
}

/// Whether two areas share more than an edge.
fn overlap(a: Rect, b: Rect) -> bool {
    a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
}

/// Whether an area lies within another one.
fn contains(outer: Rect, inner: Rect) -> bool {
    outer.x <= inner.x
        && outer.y <= inner.y
        && inner.x + inner.width <= outer.x + outer.width
        && inner.y + inner.height <= outer.y + outer.height
}

/// A stroke's area, at least a pixel wide and high.
fn area(from: (i32, i32), stroke: Stroke) -> Rect {
    let to = stroke.end();
    let corner = if let Stroke::Corner(corner, _) = stroke { corner } else { to };
    let least = |a: i32, b: i32, c: i32| a.min(b).min(c);
    let most = |a: i32, b: i32, c: i32| a.max(b).max(c);
    let (x, y) = (least(from.0, to.0, corner.0), least(from.1, to.1, corner.1));
    let (right, bottom) = (most(from.0, to.0, corner.0), most(from.1, to.1, corner.1));
    Rect { x, y, width: (right - x).max(1), height: (bottom - y).max(1) }
}

#[test]
fn nothing_overlaps_and_links_join_their_ports() {
    let graphs = random_graphs(400).chain(framed_graphs(150)).map(|graph| (graph, View::Full));
    let overviews = random_graphs(40).chain(framed_graphs(30)).map(|graph| (graph, View::Wide));
    for (graph, view) in graphs.chain(overviews) {
        let ports = Ports::of(&graph);
        let drawing = Drawing::of(&graph, &ports, view).unwrap();
        let canvas = Rect { x: 0, y: 0, width: drawing.width, height: drawing.height };
        let inside = |rect: Rect| {
            rect.x >= 0 && rect.y >= 0 && rect.x + rect.width <= canvas.width && rect.y + rect.height <= canvas.height
        };
        let boxes: Vec<Rect> = drawing.apps.iter().map(|app| app.rect).collect();
        let labels: Vec<Rect> = drawing.labels.iter().map(|label| label.rect).collect();
        for (index, &rect) in boxes.iter().chain(&labels).enumerate() {
            assert!(inside(rect), "{rect:?} is outside of {canvas:?}");
            for &other in boxes.iter().chain(&labels).skip(index + 1) {
                assert!(!overlap(rect, other), "{rect:?} and {other:?} overlap in {graph:?}");
            }
        }
        assert_eq!(drawing.paths.len(), ports.links.len());
        let mut uprights: Vec<Rect> = Vec::new();
        for path in &drawing.paths {
            let (from, to) = (&drawing.apps[path.link.from.0], &drawing.apps[path.link.to.0]);
            assert_eq!(path.start, (from.rect.x + from.rect.width, from.outputs[path.link.from.1]));
            assert_eq!(path.strokes.last().unwrap().end(), (to.rect.x, to.inputs[path.link.to.1]));
            let mut at = path.start;
            for &stroke in &path.strokes {
                let area = area(at, stroke);
                if matches!(stroke, Stroke::Line(x, _) if x == at.0) {
                    assert!(!uprights.iter().any(|&other| overlap(area, other)), "two links run as one in {graph:?}");
                    uprights.push(area);
                }
                assert!(inside(area), "{stroke:?} is outside of {canvas:?}");
                for &rect in &boxes {
                    assert!(!overlap(area, rect), "{:?} runs through {rect:?} in {graph:?}", path.link);
                }
                for &label in &labels {
                    assert!(!overlap(area, label), "{:?} runs through the label {label:?} in {graph:?}", path.link);
                }
                at = stroke.end();
            }
        }
        for app in &drawing.apps {
            let rows = [&app.inputs, &app.outputs];
            for heights in rows {
                assert!(heights.windows(2).all(|pair| pair[0] < pair[1]), "ports out of order");
                assert!(heights.iter().all(|&y| app.rect.y < y && y < app.rect.y + app.rect.height));
            }
        }
    }
}

/// The numbers of an attribute in an SVG's line.
fn numbers_of(line: &str, name: &str) -> i32 {
    let value = line.split_once(&format!(" {name}=\"")).unwrap().1;
    value.split('"').next().unwrap().parse().unwrap()
}

#[test]
fn an_overview_names_each_app_inside_its_box_and_runs_its_way() {
    for graph in random_graphs(60).chain(framed_graphs(60)) {
        for view in [View::Wide, View::Tall] {
            let picture = live(&graph, view).unwrap();
            assert!(!picture.contains("data-link") || !graph.links.is_empty());
            let (width, height) = (numbers_of(&picture, "width"), numbers_of(&picture, "height"));
            let apps: Vec<&str> = picture.split("<g class=\"app").skip(1).collect();
            assert_eq!(apps.len(), graph.apps.len());
            for (app, node) in apps.iter().zip(&graph.apps) {
                let (rect, texts) = app.split_once("/>").unwrap();
                let rect = rect.split_once("<rect").unwrap().1;
                let [x, y, wide, high] = ["x", "y", "width", "height"].map(|name| numbers_of(rect, name));
                assert!(x >= 0 && y >= 0 && x + wide <= width && y + high <= height, "{app} of {width} x {height}");
                let texts = texts.split("</g>").next().unwrap();
                let lines: Vec<&str> = texts.lines().filter(|line| line.starts_with("<text")).collect();
                let written: String = lines.iter().map(|line| line.split(['<', '>']).nth(2).unwrap()).collect();
                let around = compounds(&node.name).last().map_or(0, |compound| compound.len() + 1);
                let (whole, short) = (&*node.name, &node.name[around..]);
                let names = [short, whole].map(|name| escaped(&shortened(name, 24)));
                assert!(written == names[0] || view == View::Tall && written == names[1], "{written}, {names:?}");
                for line in lines {
                    let (middle, baseline) = (numbers_of(line, "x"), numbers_of(line, "y"));
                    assert!(
                        (middle - x - wide / 2).abs() <= 1 && y + 10 < baseline && baseline + 2 <= y + high,
                        "{app}"
                    );
                }
            }
        }
    }
    let sizes = |view: View| {
        let drawn = live(&looped(), view).unwrap();
        (numbers_of(&drawn, "width"), numbers_of(&drawn, "height"))
    };
    let (wide, tall, full) = (sizes(View::Wide), sizes(View::Tall), sizes(View::Full));
    assert!(wide.0 > wide.1 && 4 * wide.0 < 3 * full.0 && 4 * tall.0 < 3 * wide.0, "{wide:?}, {tall:?}, {full:?}");
}

#[test]
fn a_column_has_each_link_on_the_side_of_its_direction() {
    for graph in random_graphs(60).chain(framed_graphs(60)) {
        let picture = live(&graph, View::Tall).unwrap();
        let width = numbers_of(&picture, "width");
        let boxes: Vec<[i32; 4]> = picture
            .lines()
            .filter(|line| line.starts_with("<g class=\"app"))
            .map(|line| ["x", "y", "width", "height"].map(|name| numbers_of(line.split_once("<rect").unwrap().1, name)))
            .collect();
        for [x, y, ..] in &boxes {
            assert_eq!(boxes.iter().filter(|other| (other[1] - y).abs() < 19).count(), 1, "one app a row, from {x}");
        }
        let links: Vec<&str> = picture.lines().filter(|line| line.starts_with("<g class=\"link")).collect();
        assert_eq!(links.len(), Ports::of(&graph).links.len());
        for line in links {
            let edge = &graph.links[usize::try_from(numbers_of(line, "data-link")).unwrap()];
            let (from, to) = (boxes[edge.from.0], boxes[edge.to.0]);
            let data = line.split_once(" d=\"M").unwrap().1.split('"').next().unwrap();
            let numbers: Vec<i32> =
                data.split(|c: char| !c.is_ascii_digit()).filter_map(|text| text.parse().ok()).collect();
            let is_down = to[1] > from[1];
            let side = if is_down { from[0] + from[2] } else { from[0] };
            assert_eq!((numbers[0], numbers[1] > from[1]), (side, true), "{line}");
            let lane = numbers[3];
            assert!(if is_down { side < lane && lane < width } else { 0 < lane && lane < side }, "{line} of {width}");
            assert_eq!(line.contains(" back\""), !is_down, "{line}");
        }
    }
}

#[test]
fn links_lead_right_unless_they_close_a_loop() {
    for graph in random_graphs(200) {
        for path in drawing(&graph).paths {
            let end = path.strokes.last().unwrap().end();
            assert_eq!(path.back, end.0 <= path.start.0, "{:?}", path.link);
        }
    }
    let drawing = drawing(&looped());
    let back: Vec<usize> = drawing.paths.iter().filter(|path| path.back).map(|path| path.link.edge).collect();
    assert_eq!(back, [4]);
}

#[test]
fn a_chain_is_straight() {
    let chain = network(&["a.output -> b.input", "b.output -> c.input", "c.output -> d.input"]);
    for path in drawing(&chain).paths {
        assert_eq!(path.strokes.len(), 1, "{path:?}");
    }
}

#[test]
fn a_long_link_past_a_chain_bends_at_its_ends_alone() {
    let past =
        network(&["s.a -> b.input", "b.output -> c.input", "c.output -> d.input", "d.output -> t.x", "s.b -> t.y"]);
    let drawing = drawing(&past);
    let long = drawing.paths.iter().find(|path| path.link.edge == 4).unwrap();
    let curves = long.strokes.iter().filter(|stroke| matches!(stroke, Stroke::Curve(..))).count();
    assert!(curves <= 2, "{long:?}");
}

#[test]
fn the_same_network_gives_the_same_pictures() {
    for graph in random_graphs(20) {
        let again = graph.clone();
        assert_eq!(svg(&graph), svg(&again));
        assert_eq!(dot(&graph), dot(&again));
        assert_eq!(text(&graph, 400, true), text(&again, 400, true));
    }
}

#[test]
fn links_to_apps_that_are_not_there_are_left_out() {
    let mut graph = looped();
    graph.links.push(Edge { from: (99, "output".to_string()), to: (0, "input".to_string()), ..Edge::default() });
    assert_eq!(drawing(&graph).paths.len(), 5);
    assert!(svg(&Graph::default()).unwrap().contains("0 apps"));
}

/// The text of every element, or the reason why the document is not well-formed. It knows what [`svg`] writes:
/// elements, attributes in double quotes, and the five entities.
fn xml_texts(document: &str) -> Result<Vec<String>, String> {
    let mut open: Vec<String> = Vec::new();
    let mut texts = Vec::new();
    let mut rest = document;
    while let Some(start) = rest.find('<') {
        let text = unescaped(&rest[..start])?;
        if !text.trim().is_empty() {
            if open.is_empty() {
                return Err(format!("text outside of the root: {text}"));
            }
            texts.push(text);
        }
        let end = rest.find('>').filter(|&end| end > start).ok_or("a tag without end")?;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        while !attributes.trim().is_empty() {
            let (key, value) = attributes.split_once("=\"").ok_or_else(|| format!("no value: {attributes}"))?;
            if !key.trim().chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | ':')) {
                return Err(format!("bad attribute {key}"));
            }
            let (value, more) = value.split_once('"').ok_or_else(|| format!("no end: {value}"))?;
            unescaped(value)?;
            attributes = more;
        }
        if !empty {
            open.push(name.to_string());
        }
    }
    if open.is_empty() && rest.trim().is_empty() { Ok(texts) } else { Err(format!("left open: {open:?} {rest}")) }
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        plain.push_str(&rest[..start]);
        let (entity, more) = rest[start + 1..].split_once(';').ok_or("an entity without end")?;
        plain.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            _ => return Err(format!("unknown entity {entity}")),
        });
        rest = more;
    }
    plain.push_str(rest);
    match plain.chars().find(|&c| c.is_control() && c != '\n') {
        Some(c) => Err(format!("control character {c:?}")),
        None => Ok(plain),
    }
}

#[test]
fn the_svg_is_well_formed_and_has_every_name() {
    assert!(xml_texts("<a><b></a>").is_err());
    assert!(xml_texts("<a>&nbsp;</a>").is_err());
    for graph in random_graphs(100) {
        let document = svg(&graph).unwrap();
        let texts = xml_texts(&document).unwrap_or_else(|error| panic!("{error} in {document}"));
        for app in &graph.apps {
            assert!(texts.contains(&printable(&app.name)), "{} is not in {document}", app.name);
        }
        for label in graph.links.iter().filter_map(|link| link.label.as_ref()).filter(|label| !label.is_empty()) {
            assert!(texts.contains(label), "{label} is not in {document}");
        }
    }
}

/// What is left of a picture without the attributes and elements in which the two forms differ.
fn geometry(picture: &str) -> String {
    let mut text = String::new();
    let mut rest = picture;
    while let Some(start) = rest.find('<') {
        let (content, tag) = rest.split_at(start);
        text += content;
        let (tag, after) = tag.split_at(tag.find('>').unwrap() + 1);
        rest = after;
        let name = tag[1..].split([' ', '>']).next().unwrap();
        if ["title", "desc", "style"].contains(&name) {
            rest = &after[after.find(&format!("</{name}>")).unwrap() + name.len() + 3..];
            continue;
        }
        let words = tag.split(' ').filter(|word| !word.starts_with("data-") && !word.starts_with("role="));
        text += words.collect::<Vec<_>>().join(" ").trim_end_matches('>');
    }
    text.replace(" lossy\"", "\"").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_live_picture_is_the_picture_with_its_apps_and_links_numbered() {
    for graph in random_graphs(10).chain(framed_graphs(5)) {
        let (alone, live) = (svg(&graph).unwrap(), live(&graph, View::Full).unwrap());
        assert_eq!(geometry(&live), geometry(&alone));
        let numbers = |attribute: &str| -> Vec<usize> {
            let values = live.split(attribute).skip(1).map(|rest| rest.split('"').next().unwrap());
            values.map(|number| number.parse().unwrap()).collect()
        };
        assert_eq!(numbers("data-app=\""), (0..graph.apps.len()).collect::<Vec<_>>());
        let groups = live.lines().filter(|line| line.starts_with("<g class=\"link")).count();
        assert_eq!(groups, alone.lines().filter(|line| line.starts_with("<g class=\"link")).count());
        assert!(numbers("data-link=\"").iter().all(|link| *link < graph.links.len()));
        assert!(!live.contains("<style") && style().contains(".bellows-graph .wire"));
    }
}

/// Runs `dot` and returns its output, or prints a note if it is not installed.
fn graphviz(test: &str, source: &str) -> Option<std::process::Output> {
    let child =
        Command::new("dot").arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(test, "dot is not installed");
            return None;
        }
        Err(error) => panic!("dot: {error}"),
    };
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

#[test]
fn graphviz_accepts_the_dot() {
    let hostile = Graph {
        title: Some("<b> & \"title\"".to_string()),
        apps: NAMES.map(|name| Node { name: name.to_string(), ..Node::default() }).to_vec(),
        ..Graph::default()
    };
    for graph in random_graphs(12).filter(|graph| graph.links.len() < 60).chain([looped(), hostile]) {
        let source = dot(&graph);
        let Some(output) = graphviz("graphviz_accepts_the_dot", &source) else { return };
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaints.is_empty(), "{complaints}\n{source}");
        let picture = String::from_utf8_lossy(&output.stdout);
        assert_eq!(picture.matches("class=\"edge\"").count(), graph.links.len(), "{source}");
    }
}

#[test]
fn a_terminal_shows_a_loop() {
    let picture = "\
┌────────┐    ┌─────────────┐   ┌──────┐   ┌──────────────┐    ┌──────┐
│ source ├───►│ new    join ├──►│ work ├──►│ split   done ├───►│ sink │
│  app   │ ┌─►│ again  app  │   │ app  │   │  app   retry ├─┐  │ app  │
└────────┘ │  └─────────────┘   └──────┘   └──────────────┘ │  └──────┘
           └────────────────────────◄───────────────────────┘
";
    assert_eq!(text(&looped(), 80, true), picture);
}

#[test]
fn a_terminal_without_box_characters_shows_labels() {
    let mut graph = network(&["in.output -> copy.input", "copy.a -> out.input", "copy.b -> count.input"]);
    graph.title = Some("quickstart".to_string());
    graph.links[0].label = Some("1.2 Mpps".to_string());
    graph.links[0].drops = Some("3 kpps".to_string());
    let picture = "\
quickstart

                                                   +-------+
                                                +->|  out  |
+-----+                             +---------+ |  |  app  |
| in  +- 1.2 Mpps, drops 3 kpps --->| copy  a +-+  +-------+
| app |                             | app   b +-+
+-----+                             +---------+ |  +-------+
                                                +->| count |
                                                   |  app  |
                                                   +-------+
";
    assert_eq!(text(&graph, 80, false), picture);
}

#[test]
fn a_network_that_is_too_wide_is_listed() {
    let list = "\
source  app
  └─ output ─► join.new
join    app
  └─ output ─► work.input
work    app
  └─ output ─► split.input
split   app
  ├─ done   ─► sink.input
  └─ retry  ─► join.again   ↺
sink    app
";
    assert_eq!(text(&looped(), 40, true), list);
}

#[test]
fn a_terminal_picture_keeps_to_its_width() {
    for graph in random_graphs(100) {
        for width in [0, 80, 200] {
            let picture = text(&graph, width, true);
            let title = graph.title.as_ref().map_or(0, |_| 2);
            if picture.contains('►') && picture.contains('┌') {
                for line in picture.lines().skip(title) {
                    assert!(line.chars().count() <= width, "{line}");
                }
            }
        }
    }
}

/// Follows the line that begins at `(x, y)` to the right, straight on at crossings, to an arrow head.
fn followed(rows: &[Vec<char>], mut x: usize, mut y: usize) -> Result<(usize, usize), String> {
    let (mut dx, mut dy) = (1_isize, 0_isize);
    for _ in 0..1_000_000 {
        x = x.checked_add_signed(dx).ok_or("off the left")?;
        y = y.checked_add_signed(dy).ok_or("off the top")?;
        let cell = rows.get(y).and_then(|row| row.get(x)).copied().unwrap_or(' ');
        (dx, dy) = match (cell, (dx, dy)) {
            ('►', (1, 0)) => return Ok((x, y)),
            ('─' | '◄', (_, 0)) | ('│', (0, _)) | ('┼', _) => (dx, dy),
            ('┐', (1, 0)) | ('┌', (-1, 0)) => (0, 1),
            ('┘', (1, 0)) | ('└', (-1, 0)) => (0, -1),
            ('┐', (0, -1)) | ('┘', (0, 1)) => (-1, 0),
            ('┌', (0, -1)) | ('└', (0, 1)) => (1, 0),
            _ => return Err(format!("{cell} at column {x}, row {y}")),
        };
    }
    Err("a circle".to_string())
}

#[test]
fn every_line_in_a_terminal_leads_from_its_output_to_its_input() {
    let mut random = Random(77);
    for _ in 0..300 {
        let apps = 1 + random.below(40);
        let mut graph = Graph::default();
        graph.apps.resize_with(apps, || Node { name: "app".to_string(), ..Node::default() });
        let links = random.below(2 * apps + 1);
        for link in 0..links {
            let (from, to) = ((random.below(apps), format!("out{link}")), (random.below(apps), format!("in{link}")));
            graph.links.push(Edge { from, to, ..Edge::default() });
        }
        let picture = text(&with_closed_loops(graph), usize::MAX, true);
        let rows: Vec<Vec<char>> = picture.lines().map(|line| line.chars().collect()).collect();
        let find = |wanted: &str| {
            let wanted: Vec<char> = wanted.chars().collect();
            let found =
                |(y, row): (usize, &Vec<char>)| row.windows(wanted.len()).position(|w| w == wanted).map(|x| (x, y));
            rows.iter().enumerate().find_map(found).unwrap_or_else(|| panic!("{wanted:?} is not in\n{picture}"))
        };
        for link in 0..links {
            let output = format!("out{link} ├");
            let (x, y) = find(&output);
            let end = followed(&rows, x + output.chars().count() - 1, y);
            assert_eq!(end, Ok(find(&format!("►│ in{link} "))), "out{link} in\n{picture}");
        }
    }
}

#[test]
fn two_hundred_apps_are_laid_out_at_once() {
    let mut random = Random(200);
    let mut graph = Graph::default();
    graph.apps.resize_with(200, || Node { name: "app".to_string(), ..Node::default() });
    for link in 0..600 {
        let (from, to) = ((random.below(200), format!("o{link}")), (random.below(200), format!("i{link}")));
        graph.links.push(Edge { from, to, ..Edge::default() });
    }
    let graph = with_closed_loops(graph);
    let start = std::time::Instant::now();
    assert!(svg(&graph).unwrap().len() > 100_000);
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_loop_without_a_marked_closing_link_is_listed() {
    let mut graph = looped();
    assert!(svg(&graph).is_some());
    graph.links[4].closes_loop = false;
    assert_eq!(svg(&graph), None);
    let list = text(&graph, 200, true);
    assert!(list.contains("retry  ─► join.again") && !list.contains(['┌', '↺']), "{list}");
    assert!(dot(&graph).contains("->"));
    // A link that does not lead back, but past another link.
    let mut past = network(&["a.output -> b.input", "b.output -> c.input", "a.past -> c.past"]);
    past.links[2].closes_loop = true;
    assert_eq!(svg(&past), None);
    let to_itself = network(&["a.output -> a.input"]);
    assert!(svg(&to_itself).is_some());
}

#[test]
fn a_network_too_large_for_a_picture_is_listed() {
    let mut graph = Graph::default();
    graph.apps.resize_with(500, Node::default);
    graph.apps.iter_mut().enumerate().for_each(|(index, app)| app.name = format!("app{index}"));
    let link = |from, output: &str, to, input: &str| Edge {
        from: (from, output.to_string()),
        to: (to, input.to_string()),
        ..Edge::default()
    };
    graph.links.extend((1..500).map(|app| link(app - 1, "next", app, "input")));
    assert!(svg(&graph).is_some());
    graph.links.extend((0..300).map(|number| link(0, &format!("far{number}"), 499, &format!("from{number}"))));
    assert!(svg(&graph).is_none(), "300 links pass 498 columns each");
    let listed = text(&graph, usize::MAX, true);
    assert_eq!(listed.lines().count(), graph.apps.len() + graph.links.len());
    assert!(listed.contains("far299 ─► app499.from299"), "{listed}");
}

mod simplex_solutions {
    use super::super::simplex::{Arc, solve};
    use super::Random;

    fn cost(at: &[i32], arcs: &[Arc]) -> i32 {
        arcs.iter().map(|arc| arc.weight * (at[arc.head] - at[arc.tail])).sum()
    }

    fn feasible(at: &[i32], arcs: &[Arc]) -> bool {
        arcs.iter().all(|arc| at[arc.head] - at[arc.tail] >= arc.distance)
    }

    /// The minimum cost of all solutions with values below `end`, by exhaustive search.
    fn least(count: usize, arcs: &[Arc], end: i32) -> i32 {
        let mut at = vec![0; count];
        let mut least = i32::MAX;
        loop {
            if feasible(&at, arcs) {
                least = least.min(cost(&at, arcs));
            }
            let Some(place) = at.iter().position(|&value| value + 1 < end) else { return least };
            at[place] += 1;
            at[..place].fill(0);
        }
    }

    #[test]
    fn are_optimal() {
        let mut random = Random(3);
        for _ in 0..200 {
            let count = 2 + random.below(4);
            let arcs: Vec<Arc> = (0..random.below(9))
                .map(|_| {
                    let tail = random.below(count - 1);
                    let head = tail + 1 + random.below(count - 1 - tail);
                    let number = |random: &mut Random, end| i32::try_from(random.below(end)).unwrap();
                    Arc { tail, head, distance: number(&mut random, 3) - 1, weight: number(&mut random, 4) }
                })
                .collect();
            let at = solve(count, &arcs);
            assert!(feasible(&at, &arcs), "{at:?} {arcs:?}");
            assert_eq!(cost(&at, &arcs), least(count, &arcs, 9), "{at:?} {arcs:?}");
        }
    }
}

/// Apps in a row, on these workers.
fn on_workers(workers: &[&str]) -> Graph {
    let node = |(index, worker): (usize, &&str)| Node {
        name: format!("app{index}"),
        kind: "tee".to_owned(),
        worker: (!worker.is_empty()).then(|| (*worker).to_owned()),
        ..Node::default()
    };
    let link =
        |from: usize| Edge { from: (from, "output".to_owned()), to: (from + 1, "input".to_owned()), ..Edge::default() };
    let apps: Vec<Node> = workers.iter().enumerate().map(node).collect();
    Graph { title: None, links: (0..apps.len() - 1).map(link).collect(), apps }
}

#[test]
fn workers_are_frames_and_their_crossings_are_dashed() {
    let graph = on_workers(&["main", "main", "disk", "main"]);
    let dot = dot(&graph);
    assert_eq!(dot.matches("subgraph cluster_").count(), 2, "{dot}");
    assert!(dot.contains("label=<worker disk>") && dot.matches("style=dashed").count() == 2, "{dot}");
    let drawing = crate::svg::Drawing::of(&graph, &Ports::of(&graph), View::Full).unwrap();
    let frames: Vec<&str> = drawing.frames.iter().map(|frame| &*frame.name).collect();
    assert_eq!(frames, ["main", "disk"], "a frame for each worker");
    let svg = svg(&graph).unwrap();
    assert_eq!(svg.matches("<g class=\"worker\">").count(), 2, "{svg}");
    assert_eq!(svg.matches("link crossing").count(), 2, "{svg}");
    let text = text(&graph, 120, true);
    assert_eq!((text.matches("@main").count(), text.matches("@disk").count()), (3, 1), "{text}");
    // Without workers, nothing is said about them.
    let plain = on_workers(&["", ""]);
    let pictures = [crate::dot(&plain), crate::svg(&plain).unwrap(), crate::text(&plain, 80, true)].concat();
    assert!(["cluster", "worker", "crossing", "dashed", "@main"].iter().all(|word| !pictures.contains(word)));
}

#[test]
fn parts_of_compound_apps_are_framed() {
    let mut graph = on_workers(&["", "", "", ""]);
    for (node, name) in graph.apps.iter_mut().zip(["first", "edge/a", "edge/in/b", "last"]) {
        node.name = name.to_owned();
    }
    let drawing = crate::svg::Drawing::of(&graph, &Ports::of(&graph), View::Full).unwrap();
    let frames: Vec<_> = drawing.frames.iter().map(|frame| (frame.class, frame.name.as_str(), frame.rect)).collect();
    let [("compound", "edge", outer), ("compound", "edge/in", inner)] = frames[..] else { panic!("{frames:?}") };
    assert!(contains(outer, inner), "the frames are nested");
    assert!(outer.x >= 0 && outer.y >= 0 && outer.y + outer.height <= drawing.height, "it is in the picture");
    let is_inside = |app: usize| contains(outer, drawing.apps[app].rect);
    assert_eq!([0, 1, 2, 3].map(is_inside), [false, true, true, false]);
    let svg = svg(&graph).unwrap();
    assert_eq!(svg.matches("<g class=\"compound\">").count(), 2);
    assert!(!svg.contains("dasharray:2 3"), "there are no workers");
    let dot = dot(&graph);
    let nested = "  subgraph cluster_0 {\n    label=<edge>;";
    assert!(dot.contains(nested) && dot.contains("    subgraph cluster_1 {\n      label=<edge/in>;"), "{dot}");
    assert!(dot.contains("\n      \"edge/in/b\" [label") && dot.contains("\n  \"last\" [label"), "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
    let text = text(&graph, 120, true);
    assert!(text.contains("►│ edge/in/b ├"), "{text}");
}

/// The frames around an app, outermost first, each as the path of worker and compound apps that leads to it.
fn framed_by(node: &Node) -> Vec<(Option<String>, String)> {
    let worker = node.worker.clone();
    let compounds = compounds(&node.name).into_iter().map(|name| (worker.clone(), name.to_owned()));
    worker.clone().map(|worker| (Some(worker), String::new())).into_iter().chain(compounds).collect()
}

#[test]
fn frames_are_nested_or_apart_and_have_no_strangers() {
    let mut framed = 0;
    for graph in framed_graphs(200) {
        let drawing = drawing(&graph);
        // The apps that each frame must have.
        let mut wanted: std::collections::BTreeMap<(Option<String>, String), Vec<usize>> = Default::default();
        for (app, node) in graph.apps.iter().enumerate() {
            framed_by(node).into_iter().for_each(|path| wanted.entry(path).or_default().push(app));
        }
        assert_eq!(drawing.frames.len(), wanted.len(), "one frame for each compound app on each worker");
        let mut inside: Vec<Vec<usize>> = Vec::new();
        for frame in &drawing.frames {
            let canvas = Rect { x: 0, y: 0, width: drawing.width, height: drawing.height };
            assert!(contains(canvas, frame.rect), "{frame:?} is not in the picture of {graph:?}");
            let apps = 0..graph.apps.len();
            let (members, others): (Vec<usize>, Vec<usize>) =
                apps.partition(|&app| contains(frame.rect, drawing.apps[app].rect));
            assert!(wanted.values().any(|apps| *apps == members), "{frame:?} has {members:?} of {graph:?}");
            for other in others {
                assert!(!overlap(frame.rect, drawing.apps[other].rect), "app {other} is in {frame:?} of {graph:?}");
            }
            inside.push(members);
        }
        for (a, members) in inside.iter().enumerate() {
            for (b, others) in inside.iter().enumerate().skip(a + 1) {
                let (outer, inner) = (drawing.frames[a].rect, drawing.frames[b].rect);
                if contains(outer, inner) || contains(inner, outer) {
                    assert!(members.iter().any(|app| others.contains(app)), "strangers in {outer:?} of {graph:?}");
                } else {
                    assert!(!overlap(outer, inner), "{outer:?} and {inner:?} overlap in {graph:?}");
                }
            }
        }
        framed += inside.len();
    }
    assert!(framed > 2_000, "{framed} frames");
}

#[test]
fn a_frame_leaves_out_an_app_between_the_parts() {
    let mut graph = on_workers(&["", "", ""]);
    for (node, name) in graph.apps.iter_mut().zip(["edge/a", "other", "edge/b"]) {
        node.name = name.to_owned();
    }
    let drawing = crate::svg::Drawing::of(&graph, &Ports::of(&graph), View::Full).unwrap();
    let [frame] = &drawing.frames[..] else { panic!("{:?}", drawing.frames) };
    assert_eq!([0, 1, 2].map(|app| contains(frame.rect, drawing.apps[app].rect)), [true, false, true]);
    assert!(!overlap(frame.rect, drawing.apps[1].rect), "{drawing:?}");
    for workers in [["main", "main", "main"], ["main", "main", "disk"]] {
        let mut graph = on_workers(&workers);
        graph.apps.iter_mut().zip(["edge/a", "edge/b", "edge/c"]).for_each(|(node, name)| node.name = name.to_owned());
        let dot = dot(&graph);
        let both = workers.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(dot.matches("label=<edge>").count(), both, "a cluster for each worker\n{dot}");
    }
}

#[test]
fn joins_in_compound_apps_are_left_out() {
    let app = |name: &str, kind: &str| Node { name: name.to_owned(), kind: kind.to_owned(), ..Node::default() };
    let link = |from: usize, to: usize, closes_loop| Edge {
        from: (from, "output".to_owned()),
        to: (to, format!("from{from}")),
        closes_loop,
        ..Edge::default()
    };
    let apps = ["a/in", "a/one-join", "a/two-join", "join", "a/out"]
        .map(|name| app(name, if name.ends_with("join") { "join" } else { "tee" }));
    let links = vec![link(0, 1, false), link(1, 2, true), link(2, 4, false), link(3, 2, false), link(4, 3, false)];
    let graph = Graph { title: None, apps: apps.to_vec(), links };
    let Overview { graph: overview, apps, links } = graph.without_joins();
    assert_eq!((apps, links), (vec![0, 3, 4], vec![0, 3, 4]));
    let ends: Vec<_> =
        overview.links.iter().map(|edge| (edge.from.0, &*edge.to.1, edge.to.0, edge.closes_loop)).collect();
    assert_eq!(ends, [(0, "from2", 2, true), (1, "from2", 2, false), (2, "from4", 1, false)]);
    // Joins that lead to one another end nowhere, and are not followed for ever.
    let circle = Graph { links: vec![link(0, 1, false), link(1, 2, false), link(2, 1, true)], ..graph };
    assert_eq!(circle.without_joins().apps, [0, 3, 4]);
}
