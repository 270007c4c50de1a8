//! The visible part of an update: its tables, their order and first row, and the keys that change these.

use super::rows::{APPS, AppRow, Column, LINKS, View};
use crate::charset;
use crate::terminal::Key;
use crate::text::Table;

/// The tables to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    Both,
    Apps,
    Links,
}

impl Tables {
    fn next(self) -> Tables {
        match self {
            Tables::Both => Tables::Apps,
            Tables::Apps => Tables::Links,
            Tables::Links => Tables::Both,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Tables::Both => "apps and links",
            Tables::Apps => "apps",
            Tables::Links => "links",
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
    tables: Tables,
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
            tables: Tables::Both,
            apps: sorted(APPS.iter().map(|column| column.name).collect()),
            links: sorted(LINKS.iter().map(|column| column.name).collect()),
            top: 0,
            height: 0,
            rows: 0,
            has_workers: false,
        }
    }

    /// Handles a key.
    pub fn press(&mut self, key: Key) -> Reaction {
        let end = self.rows.saturating_sub(self.height);
        // A line of the previous page stays visible.
        let page = self.height.saturating_sub(1).max(1);
        match key {
            Key::Char('q' | 'Q') | Key::Interrupt => return Reaction::Quit,
            Key::Down | Key::Char('j') => self.top += 1,
            Key::Up | Key::Char('k') => self.top = self.top.saturating_sub(1),
            Key::PageDown | Key::Char(' ' | 'f') => self.top += page,
            Key::PageUp | Key::Char('b') => self.top = self.top.saturating_sub(page),
            Key::Home | Key::Char('g') => self.top = 0,
            Key::End | Key::Char('G') => self.top = end,
            Key::Tab => self.turn_to(self.tables.next()),
            Key::Char('a') => self.turn_to(Tables::Apps),
            Key::Char('l') => self.turn_to(Tables::Links),
            Key::Right | Key::Char('>' | 's') => self.sort_step(true),
            Key::Left | Key::Char('<' | 'S') => self.sort_step(false),
            Key::Char('r') => self.sort().reversed ^= true,
            Key::Char(_) | Key::Other => {}
        }
        self.top = self.top.min(end);
        Reaction::Redraw
    }

    fn turn_to(&mut self, tables: Tables) {
        self.tables = tables;
        self.top = 0;
    }

    /// The order that keys change. With both tables, that of the apps.
    fn sort(&mut self) -> &mut Sort {
        if self.tables == Tables::Links { &mut self.links } else { &mut self.apps }
    }

    fn sort_step(&mut self, forward: bool) {
        let columns = if self.tables == Tables::Links { LINKS.len() } else { apps_columns(self.has_workers).len() };
        self.sort().step(columns, forward);
        self.top = 0;
    }

    /// The whole update, for outputs other than terminals.
    pub fn text(&self, view: &View, rich: bool) -> String {
        let apps = table(apps_columns(view.has_workers), &view.apps, self.apps).render(rich);
        let links = table(LINKS, &view.links, self.links).render(rich);
        format!("{}\n{apps}\n{links}", view.head)
    }

    /// As many lines as the terminal has rows: the part of an update that fits, and the keys.
    pub fn screen(&mut self, view: &View, (columns, rows): (usize, usize), rich: bool) -> String {
        self.has_workers = view.has_workers;
        let apps = || table(apps_columns(view.has_workers), &view.apps, self.apps).render(rich);
        let links = || table(LINKS, &view.links, self.links).render(rich);
        let (fixed, body) = match self.tables {
            Tables::Both => (String::new(), format!("{}\n{}", apps(), links())),
            // The headings do not scroll.
            Tables::Apps => heading_apart(&apps()),
            Tables::Links => heading_apart(&links()),
        };
        let body: Vec<&str> = body.lines().collect();
        let mut lines: Vec<&str> = view.head.lines().chain([""]).chain(fixed.lines()).collect();
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
        let sort = if self.tables == Tables::Links { self.links } else { self.apps };
        let heading = |column: usize| match self.tables {
            Tables::Links => LINKS[column].heading,
            Tables::Both | Tables::Apps => APPS[column].heading,
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

fn table<Row>(columns: &'static [Column<Row>], rows: &[Row], sort: Sort) -> Table {
    let mut rows: Vec<&Row> = rows.iter().collect();
    if let Some(column) = sort.column.and_then(|index| columns.get(index)) {
        rows.sort_by(|one, other| column.compare(one, other));
    }
    if sort.reversed {
        rows.reverse();
    }
    let mut table = Table::new(&[]);
    for (index, column) in columns.iter().enumerate() {
        let falls = column.number.is_some() != sort.reversed;
        let heading = match sort.column == Some(index) {
            true => charset::localized(&format!("{}{}", column.heading, if falls { "▼" } else { "▲" })).into_owned(),
            false => column.heading.to_owned(),
        };
        table.column(heading, column.align());
    }
    for row in rows {
        table.row(columns.iter().map(|column| (column.text)(row)));
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

    fn press(page: &mut Page, keys: &[Key]) {
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
        press(&mut page, &[Key::Char('a')]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].starts_with("APP ") && lines[3].starts_with("app0 ") && lines[10].starts_with("app7 "));
        assert!(lines[11].ends_with("1-8 of 30"), "{lines:#?}");
        press(&mut page, &[Key::Down, Key::Char('j'), Key::Up]);
        assert!(seen(&mut page, 30)[3].starts_with("app1 "));
        press(&mut page, &[Key::PageDown]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].starts_with("APP ") && lines[3].starts_with("app8 "), "{lines:#?}");
        press(&mut page, &[Key::End, Key::Down, Key::PageDown]);
        assert!(seen(&mut page, 30)[10].starts_with("app29 "));
        // After a reload to a smaller network, the view does not stay scrolled past its end.
        assert!(seen(&mut page, 3)[3].starts_with("app0 "));
        press(&mut page, &[Key::Home]);
        assert!(seen(&mut page, 30)[3].starts_with("app0 "));
    }

    #[test]
    fn links_have_a_view_of_their_own() {
        let mut page = Page::sorted_by(None);
        press(&mut page, &[Key::Tab, Key::Tab]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].starts_with("LINK ") && lines[3].starts_with("app0.output -> app1.input"), "{lines:#?}");
        press(&mut page, &[Key::Char('a'), Key::Char('l')]);
        assert!(seen(&mut page, 30)[2].starts_with("LINK "));
    }

    #[test]
    fn rows_are_sorted_by_the_column_that_is_marked() {
        let mut page = Page::sorted_by(Some("in-rate"));
        press(&mut page, &[Key::Char('a')]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].contains("IN RATE▼") && lines[3].starts_with("app29 "), "{lines:#?}");
        assert!(lines[11].contains("sort: IN RATE"), "{lines:#?}");
        press(&mut page, &[Key::Char('r')]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].contains("IN RATE▲") && lines[3].starts_with("app0 "), "{lines:#?}");
        press(&mut page, &[Key::Char('r'), Key::Left, Key::Left]);
        let lines = seen(&mut page, 30);
        assert!(lines[2].contains("APP▲") && lines[4].starts_with("app1 ") && lines[5].starts_with("app10 "));
        press(&mut page, &[Key::Left]);
        assert!(seen(&mut page, 30)[11].contains("file order"));
        press(&mut page, &[Key::Left]);
        assert!(seen(&mut page, 30)[11].contains("SHARE"));
        // `dropped` is a column of both tables.
        let both = Page::sorted_by(Some("dropped"));
        assert!(both.apps.column.is_some() && both.links.column.is_some());
    }

    #[test]
    fn the_smallest_terminals_are_no_trouble() {
        for size in [(1, 1), (3, 2), (80, 3), (20, 5)] {
            let mut page = Page::sorted_by(None);
            let screen = page.screen(&view(30), size, true);
            assert_eq!(screen.lines().count(), size.1, "{screen}");
            press(&mut page, &[Key::PageDown, Key::End, Key::Up, Key::Tab]);
            page.screen(&view(30), size, false);
        }
        assert_eq!(Page::sorted_by(None).press(Key::Char('q')), Reaction::Quit);
    }
}
