//! The visible part of an update: its tables, their order and first row, and the keys that change these.

use super::rows::{APPS, AppRow, Column, LINKS, TopView};
use crate::charset;
use crate::terminal::KeyPress;
use crate::text::{Table, wrapped};

/// The tables to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownTables {
    Both,
    Apps,
    Links,
}

impl ShownTables {
    fn next(self) -> ShownTables {
        match self {
            ShownTables::Both => ShownTables::Apps,
            ShownTables::Apps => ShownTables::Links,
            ShownTables::Links => ShownTables::Both,
        }
    }

    fn name(self) -> &'static str {
        match self {
            ShownTables::Both => "apps and links",
            ShownTables::Apps => "apps",
            ShownTables::Links => "links",
        }
    }
}

/// The column by which a table is sorted, if any, and whether the order is reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sort {
    column: Option<usize>,
    reversed: bool,
}

impl Sort {
    /// Selects the next or the previous column. Before the first column comes the order of the file.
    fn step(&mut self, columns: usize, forward: bool) {
        let positions = columns + 1;
        let at = self.column.map_or(0, |column| column + 1);
        let at = (at + if forward { 1 } else { positions - 1 }) % positions;
        self.column = at.checked_sub(1);
    }
}

/// An action that a key requests besides a new picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    Redraw,
    Quit,
}

/// The current view.
#[derive(Debug)]
pub struct Page {
    tables: ShownTables,
    apps: Sort,
    links: Sort,
    /// The first visible row.
    top: usize,
    /// The number of rows that fitted in the last picture, and the number that there were.
    height: usize,
    rows: usize,
    /// Whether the apps of the last picture have several workers.
    has_workers: bool,
}

impl Page {
    /// The view from the first row, sorted by the columns of this name.
    pub fn sorted_by(column: Option<&str>) -> Page {
        let sorted = |names: Vec<&str>| Sort {
            column: column.and_then(|name| names.iter().position(|known| *known == name)),
            reversed: false,
        };
        Page {
            tables: ShownTables::Both,
            apps: sorted(APPS.iter().map(|column| column.name).collect()),
            links: sorted(LINKS.iter().map(|column| column.name).collect()),
            top: 0,
            height: 0,
            rows: 0,
            has_workers: false,
        }
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyPress) -> Reaction {
        let end = self.rows.saturating_sub(self.height);
        // A line of the previous page stays visible.
        let page = self.height.saturating_sub(1).max(1);
        match key {
            KeyPress::Char('q' | 'Q') | KeyPress::Interrupt => return Reaction::Quit,
            KeyPress::Down | KeyPress::Char('j') => self.top += 1,
            KeyPress::Up | KeyPress::Char('k') => self.top = self.top.saturating_sub(1),
            KeyPress::PageDown | KeyPress::Char(' ' | 'f') => self.top += page,
            KeyPress::PageUp | KeyPress::Char('b') => self.top = self.top.saturating_sub(page),
            KeyPress::Home | KeyPress::Char('g') => self.top = 0,
            KeyPress::End | KeyPress::Char('G') => self.top = end,
            KeyPress::Tab => self.turn_to(self.tables.next()),
            KeyPress::Char('a') => self.turn_to(ShownTables::Apps),
            KeyPress::Char('l') => self.turn_to(ShownTables::Links),
            KeyPress::Right | KeyPress::Char('>' | 's') => self.sort_step(true),
            KeyPress::Left | KeyPress::Char('<' | 'S') => self.sort_step(false),
            KeyPress::Char('r') => self.sort().reversed ^= true,
            KeyPress::Char(_) | KeyPress::Other => {}
        }
        self.top = self.top.min(end);
        Reaction::Redraw
    }

    fn turn_to(&mut self, tables: ShownTables) {
        self.tables = tables;
        self.top = 0;
    }

    /// The order that keys change. With both tables, that of the apps.
    fn sort(&mut self) -> &mut Sort {
        if self.tables == ShownTables::Links { &mut self.links } else { &mut self.apps }
    }

    fn sort_step(&mut self, forward: bool) {
        let columns =
            if self.tables == ShownTables::Links { LINKS.len() } else { apps_columns(self.has_workers).len() };
        self.sort().step(columns, forward);
        self.top = 0;
    }

    /// The whole update, as wide as it is unless a terminal limits its width.
    pub fn text(&self, view: &TopView, width: Option<usize>, rich: bool) -> String {
        let apps = table(apps_columns(view.has_workers), &view.apps, self.apps, width).render(rich);
        let links = table(LINKS, &view.links, self.links, width).render(rich);
        format!("{}\n{apps}\n{links}", head(view, width))
    }

    /// As many lines as the terminal has rows: the part of an update that fits, and the keys.
    pub fn screen(&mut self, view: &TopView, (columns, rows): (usize, usize), rich: bool) -> String {
        self.has_workers = view.has_workers;
        let width = Some(columns);
        let apps = || table(apps_columns(view.has_workers), &view.apps, self.apps, width).render(rich);
        let links = || table(LINKS, &view.links, self.links, width).render(rich);
        let head = head(view, width);
        let (fixed, body) = match self.tables {
            ShownTables::Both => (String::new(), format!("{}\n{}", apps(), links())),
            // The headings do not scroll.
            ShownTables::Apps => heading_apart(&apps()),
            ShownTables::Links => heading_apart(&links()),
        };
        let body: Vec<&str> = body.lines().collect();
        let mut lines: Vec<&str> = head.lines().chain([""]).chain(fixed.lines()).collect();
        // The last line shows the keys.
        lines.truncate(rows.saturating_sub(1));
        self.rows = body.len();
        self.height = rows.saturating_sub(1 + lines.len());
        self.top = self.top.min(self.rows.saturating_sub(self.height));
        lines.extend(body.iter().skip(self.top).take(self.height));
        lines.resize(rows.saturating_sub(1), "");
        let footer = self.footer(columns);
        let footer = if rich { format!("\x1b[7m{footer:columns$}\x1b[0m") } else { footer };
        lines.iter().map(|line| format!("{line}\n")).collect::<String>() + &footer
    }

    /// The keys and their current settings, cut to the width.
    fn footer(&self, columns: usize) -> String {
        let sort = if self.tables == ShownTables::Links { self.links } else { self.apps };
        let heading = |column: usize| match self.tables {
            ShownTables::Links => LINKS[column].heading,
            ShownTables::Both | ShownTables::Apps => APPS[column].heading,
        };
        let by = sort.column.map_or("file order", heading);
        let mut parts = vec![
            "q quit".to_owned(),
            format!("Tab {}", self.tables.name()),
            format!("← → sort: {by}"),
            "r reverse".to_owned(),
        ];
        if self.rows > self.height {
            let last = (self.top + self.height).min(self.rows);
            parts.push(format!("↑ ↓ PgUp PgDn {}-{last} of {}", self.top + 1, self.rows));
        }
        let footer = charset::localized(&parts.join("  ")).into_owned();
        footer.chars().take(columns).collect()
    }
}

/// The columns of apps.
fn apps_columns(has_workers: bool) -> &'static [Column<AppRow>] {
    if has_workers { APPS } else { &APPS[..APPS.len() - 1] }
}

/// The first line of a table, and the rest.
fn heading_apart(table: &str) -> (String, String) {
    let (heading, rows) = table.split_once('\n').unwrap_or((table, ""));
    (heading.to_owned(), rows.to_owned())
}

/// The lines about the network as a whole, wrapped to the width.
fn head(view: &TopView, width: Option<usize>) -> String {
    let Some(width) = width else { return view.head.clone() };
    view.head.lines().flat_map(|line| wrapped(line, width)).map(|line| line + "\n").collect()
}

/// The space between two columns of a [`Table`].
const GAP: usize = 2;

/// The columns that fit into a width, and the width of the one that is cut if it is to be cut. The column by which the
/// rows are sorted stays as long as the first one.
fn fitting(widths: &[usize], ranks: &[u8], least: usize, width: usize) -> (Vec<usize>, usize) {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    loop {
        let others: usize = shown[1..].iter().map(|&column| widths[column] + GAP).sum();
        let room = width.saturating_sub(others);
        if room >= least.min(widths[0]) || shown.len() == 1 {
            return (shown, room.min(widths[0]));
        }
        let least_important = (1..shown.len()).min_by_key(|&at| ranks[shown[at]]).unwrap_or(0);
        shown.remove(least_important);
    }
}

fn table<Row>(columns: &'static [Column<Row>], rows: &[Row], sort: Sort, width: Option<usize>) -> Table {
    let mut rows: Vec<&Row> = rows.iter().collect();
    if let Some(column) = sort.column.and_then(|index| columns.get(index)) {
        rows.sort_by(|one, other| column.compare(one, other));
    }
    if sort.reversed {
        rows.reverse();
    }
    let heading = |(index, column): (usize, &Column<Row>)| {
        let falls = column.number.is_some() != sort.reversed;
        match sort.column == Some(index) {
            true => charset::localized(&format!("{}{}", column.heading, if falls { "▼" } else { "▲" })).into_owned(),
            false => column.heading.to_owned(),
        }
    };
    let headings: Vec<String> = columns.iter().enumerate().map(heading).collect();
    let (mut shown, mut room) = ((0..columns.len()).collect(), usize::MAX);
    if let Some(width) = width {
        let length = |text: &str| charset::localized(text).chars().count();
        let widest = |(column, heading): (&Column<Row>, &String)| {
            rows.iter().map(|row| length(&(column.text)(row))).chain([length(heading)]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = columns.iter().zip(&headings).map(widest).collect();
        let rank =
            |(index, column): (usize, &Column<Row>)| if sort.column == Some(index) { u8::MAX } else { column.rank };
        let ranks: Vec<u8> = columns.iter().enumerate().map(rank).collect();
        let least = columns[0].cut.map_or(0, |(_, least)| least);
        (shown, room) = fitting(&widths, &ranks, least, width);
    }
    let mut table = Table::new(&[]);
    shown.iter().for_each(|&index| table.column(headings[index].clone(), columns[index].align()));
    for row in rows {
        table.row(shown.iter().map(|&index| match columns[index].cut {
            Some((cut, _)) if room < usize::MAX => cut(row, room),
            _ => (columns[index].text)(row),
        }));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::view;
    use super::*;

    const SIZE: (usize, usize) = (100, 12);

    fn seen(page: &mut Page, apps: usize) -> Vec<String> {
        let screen = page.screen(&view(apps), SIZE, false);
        let lines: Vec<String> = screen.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), SIZE.1, "{screen}");
        lines
    }

    fn press(page: &mut Page, keys: &[KeyPress]) {
        assert!(keys.iter().all(|key| page.press(*key) == Reaction::Redraw));
    }

    #[test]
    fn a_small_network_is_seen_whole_with_its_keys() {
        let lines = seen(&mut Page::sorted_by(None), 3);
        assert_eq!(lines[0], "net (process 7): running");
        let text = lines.join("\n");
        assert!(text.contains("app2 ") && text.contains("app1.output -> app2.input"), "{text}");
        assert!(lines[11].starts_with("q quit  Tab apps and links  ← → sort: file order"), "{text}");
        assert!(!lines[11].contains("PgDn"), "{text}");
    }

    #[test]
    fn a_large_network_scrolls_by_lines_and_pages_below_its_headings() {
        let mut page = Page::sorted_by(None);
        press(&mut page, &[KeyPress::Char('a')]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].starts_with("APP ") && lines[3].starts_with("app0 ") && lines[10].starts_with("app7 "));
        assert!(lines[11].ends_with("1-8 of 30"), "{lines:#?}");
        press(&mut page, &[KeyPress::Down, KeyPress::Char('j'), KeyPress::Up]);
        assert!(seen(&mut page, 30)[3].starts_with("app1 "));
        press(&mut page, &[KeyPress::PageDown]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].starts_with("APP ") && lines[3].starts_with("app8 "), "{lines:#?}");
        press(&mut page, &[KeyPress::End, KeyPress::Down, KeyPress::PageDown]);
        assert!(seen(&mut page, 30)[10].starts_with("app29 "));
        // After a reload to a smaller network, the view does not stay scrolled past its end.
        assert!(seen(&mut page, 3)[3].starts_with("app0 "));
        press(&mut page, &[KeyPress::Home]);
        assert!(seen(&mut page, 30)[3].starts_with("app0 "));
    }

    #[test]
    fn links_have_a_view_of_their_own() {
        let mut page = Page::sorted_by(None);
        press(&mut page, &[KeyPress::Tab, KeyPress::Tab]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].starts_with("LINK ") && lines[3].starts_with("app0.output -> app1.input"), "{lines:#?}");
        press(&mut page, &[KeyPress::Char('a'), KeyPress::Char('l')]);
        assert!(seen(&mut page, 30)[2].starts_with("LINK "));
    }

    #[test]
    fn rows_are_sorted_by_the_column_that_is_marked() {
        let mut page = Page::sorted_by(Some("in-rate"));
        press(&mut page, &[KeyPress::Char('a')]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].contains("IN RATE▼") && lines[3].starts_with("app29 "), "{lines:#?}");
        assert!(lines[11].contains("sort: IN RATE"), "{lines:#?}");
        press(&mut page, &[KeyPress::Char('r')]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].contains("IN RATE▲") && lines[3].starts_with("app0 "), "{lines:#?}");
        press(&mut page, &[KeyPress::Char('r'), KeyPress::Left, KeyPress::Left]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].contains("APP▲") && lines[4].starts_with("app1 ") && lines[5].starts_with("app10 "));
        press(&mut page, &[KeyPress::Left]);
        assert!(seen(&mut page, 30)[11].contains("file order"));
        press(&mut page, &[KeyPress::Left]);
        assert!(seen(&mut page, 30)[11].contains("SHARE"));
        // `dropped` is a column of both tables.
        let both = Page::sorted_by(Some("dropped"));
        assert!(both.apps.column.is_some() && both.links.column.is_some());
    }

    #[test]
    fn a_narrow_terminal_keeps_what_matters_most() {
        let mut view = view(8);
        view.head = "a head that says more than there are columns on the narrowest terminal of all\n".into();
        let long = |name: &str| format!("site-{name}/customer-edge-with-a-long-name/part");
        for app in &mut view.apps {
            app.lengthen(&long);
        }
        for link in &mut view.links {
            link.lengthen(&long);
        }
        let costs = ["CLOCKS/PKT", "PKTS/CALL", "SHARE"];
        let all = ["APP", "TYPE", "IN RATE", "OUT RATE", "DROP RATE", "DROPPED", costs[0], costs[1], costs[2]];
        for has_workers in [false, true] {
            view.has_workers = has_workers;
            for width in 1..=220 {
                let mut page = Page::sorted_by(None);
                let screen = page.screen(&view, (width, 60), false);
                let lines: Vec<&str> = screen.lines().collect();
                let tables = lines.iter().position(|line| line.starts_with('A')).unwrap();
                // One word is as wide as it is; the screen cuts it.
                let widest = lines[tables..59].iter().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= width.max("APP".len().max("LINK".len())), "{widest} of {width}\n{screen}");
                let has = |heading: &str| lines[tables].contains(heading);
                assert!(width < 80 || costs.iter().all(|cost| has(cost)), "{width}\n{screen}");
                assert!(width < 80 || has("IN RATE") && has("DROP RATE"), "{width}\n{screen}");
                assert!(width < 60 || has("CLOCKS/PKT") && has("SHARE") && has("DROP RATE"), "{width}\n{screen}");
                assert!(width < 160 || all.iter().all(|heading| has(heading)), "{width}\n{screen}");
                assert!(width < 40 || lines[tables + 1].starts_with("site-"), "{width}\n{screen}");
            }
            let mut page = Page::sorted_by(None);
            let screen = page.screen(&view, (80, 60), false);
            assert!(screen.contains("…") && screen.lines().any(|line| line.contains(" -> site-")), "{screen}");
        }
        // The column by which rows are sorted stays.
        let screen = Page::sorted_by(Some("type")).screen(&view, (60, 60), false);
        assert!(screen.contains("TYPE▲"), "{screen}");
        // What is no terminal gets everything.
        let text = Page::sorted_by(None).text(&view, None, false);
        assert!(all.iter().all(|heading| text.contains(heading)) && text.contains(&long("app7")), "{text}");
    }

    #[test]
    fn the_smallest_terminals_are_no_trouble() {
        for size in [(1, 1), (3, 2), (80, 3), (20, 5)] {
            let mut page = Page::sorted_by(None);
            let screen = page.screen(&view(30), size, true);
            assert_eq!(screen.lines().count(), size.1, "{screen}");
            press(&mut page, &[KeyPress::PageDown, KeyPress::End, KeyPress::Up, KeyPress::Tab]);
            page.screen(&view(30), size, false);
        }
        assert_eq!(Page::sorted_by(None).press(KeyPress::Char('q')), Reaction::Quit);
    }
}
