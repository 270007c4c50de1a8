//! Evaluation of the windows: medians with intervals, ratios, and the limiting side.

use std::fmt::Write;
use std::ops::Deref;

use super::bench::{Point, Row, Window};
use super::{Cell, Direction, Memory};

/// The share of the time above which a side counts as always at work.
const BUSY: f64 = 0.9;

/// A median with its 95 percent confidence interval, NaN without samples, and the number of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Median {
    found: bellows_stats::Median,
    count: usize,
}

impl Deref for Median {
    type Target = bellows_stats::Median;

    fn deref(&self) -> &bellows_stats::Median {
        &self.found
    }
}

impl Median {
    fn of(samples: impl Iterator<Item = f64>) -> Median {
        let samples: Vec<f64> = samples.filter(|sample| sample.is_finite()).collect();
        let unknown = bellows_stats::Median { value: f64::NAN, low: f64::NAN, high: f64::NAN };
        let found = bellows_stats::median(&samples).unwrap_or(unknown);
        Median { found, count: samples.len() }
    }

    /// Whether the machine was too disturbed for a ratio.
    fn is_undecided(&self) -> bool {
        bellows_stats::is_ratio_undecided(self.count, &self.found)
    }

    /// A ratio with its interval.
    fn written(&self) -> String {
        match self.is_undecided() {
            true => format!("undecided (± {:.2})", self.half_width()),
            false => format!("{:.3} ({:.2} – {:.2})", self.value, self.low, self.high),
        }
    }
}

/// The windows of a point in which both back ends had their processors.
fn valid_windows(row: &Row) -> impl Iterator<Item = &[Window; 2]> {
    row.windows.iter().filter(|pair| !pair.iter().any(Window::is_starved))
}

fn starved(row: &Row) -> usize {
    row.windows.iter().flatten().filter(|window| window.is_starved()).count()
}

/// A figure of one back end at one point.
fn figure(row: &Row, side: usize, of: fn(&Window) -> f64) -> Median {
    Median::of(valid_windows(row).map(|pair| of(&pair[side])))
}

/// The ratio of a figure of Bellows to that of the reference.
fn ratio(row: &Row, of: fn(&Window) -> f64) -> Median {
    Median::of(valid_windows(row).map(|pair| of(&pair[1]) / of(&pair[0])))
}

fn rate(window: &Window) -> f64 {
    window.rate
}

fn clocks(window: &Window) -> f64 {
    window.clocks
}

/// The side that limits the rate. The receiver limits if it is always at work, otherwise the sender, which works all
/// the time; in a loop it is the side that works for the larger part of the time.
fn limit(row: &Row, side: usize) -> &'static str {
    let busy = |of: fn(&Window) -> f64| {
        Median::of(valid_windows(row).map(|pair| of(&pair[side]) * pair[side].rate / row.tsc_mhz)).value
    };
    let by_client = match row.point.direction {
        Direction::GuestToHost => busy(clocks) < BUSY,
        Direction::HostToGuest => busy(|window| window.client_clocks) >= BUSY,
        Direction::Looped => busy(|window| window.client_clocks) > busy(clocks),
    };
    if by_client { "client" } else { "back end" }
}

/// The figures side by side, with the heading of the reference's columns.
pub fn text(rows: &[Row], reference: &str) -> String {
    let mut text = format!(
        "vhost-user · back ends before the same virtio driver, in turns: {reference} and Bellows\n\
         Mpps by the client's counters; clocks a packet of the time-stamp counter in the back end\n",
    );
    let short = reference.split(' ').next().unwrap_or_default();
    let mut heading = None;
    for row in rows {
        let Point { cell, memory, direction, size } = row.point;
        if heading.replace((memory, direction, size)) != Some((memory, direction, size)) {
            let _ = write!(text, "\n{}, {size} bytes, {} memory\n", direction.name(), memory.name());
            let _ = writeln!(
                text,
                "{:26}  {:>6} {:>7}  {:>19}  {:>6} {:>7}  {:>19}  {:>19}  windows",
                "options", short, "Bellows", "ratio of Mpps", short, "Bellows", "ratio of clocks", "limit"
            );
        }
        let (rates, works) = (ratio(row, rate), ratio(row, clocks));
        let _ = writeln!(
            text,
            "{:26}  {:>6.2} {:>7.2}  {:>19}  {:>6.1} {:>7.1}  {:>19}  {:>19}  {} of {}",
            cell.name(),
            figure(row, 0, rate).value,
            figure(row, 1, rate).value,
            rates.written(),
            figure(row, 0, clocks).value,
            figure(row, 1, clocks).value,
            works.written(),
            format!("{} / {}", limit(row, 0), limit(row, 1)),
            valid_windows(row).count(),
            row.windows.len(),
        );
    }
    text.push_str(
        "\nclocks: of DPDK, testpmd's `record-core-cycles`: rounds of its loop that moved packets, with what it does to take \
         and free buffers;\nof Bellows, all calls of the port and its partner (sink, source or join), by the accounting of \
         sampled breaths.\nlimit: of the one's / of Bellows' run. A pair of windows counts if no program waited for its processor \
         for more than 8 percent of one.\n",
    );
    let ratios = || rows.iter().flat_map(|row| [ratio(row, rate), ratio(row, clocks)]);
    let undecided = ratios().filter(Median::is_undecided).count();
    if undecided > 0 {
        let _ = writeln!(
            text,
            "undecided: {undecided} of {} ratios; the machine was too disturbed (widest half-width {:.2}); measure again when it \
             is quiet, or in more --windows",
            ratios().count(),
            ratios().map(|ratio| ratio.half_width()).fold(0.0, f64::max)
        );
    }
    let lost: usize = rows.iter().map(starved).sum();
    let shares = |at: usize| rows.iter().flat_map(|row| row.windows.iter().flatten()).map(move |window| window.ran[at]);
    let _ = writeln!(
        text,
        "starved windows: {lost} of {}; on their processors: client {:.1} %, back ends {:.1} % of the time (median)",
        rows.iter().map(|row| 2 * row.windows.len()).sum::<usize>(),
        100.0 * Median::of(shares(0)).value,
        100.0 * Median::of(shares(1)).value,
    );
    text
}

/// The figures in the shape of a benchmark's report.
pub fn json(rows: &[Row], reference: &str) -> String {
    let mut results = Vec::new();
    for row in rows {
        let Point { cell, memory, direction, size } = row.point;
        let labels = format!(
            "\"packed\": {}, \"mergeable\": {}, \"in-order\": {}, \"direction\": \"{}\", \"size\": {size}, \"memory\": \"{}\", \
             \"windows\": {}, \"starved\": {}",
            cell.packed,
            cell.mergeable,
            cell.in_order,
            direction.name(),
            memory.name(),
            valid_windows(row).count(),
            starved(row)
        );
        let mut result = |case: &str, unit: &str, median: Median, more: &str| {
            if median.value.is_finite() {
                // Shares of one back end are absolute; ratios of the two are compared.
                let (value, undecided) = match more.is_empty() && median.is_undecided() {
                    true => ("null".to_owned(), "\"undecided\": true, "),
                    false => (format!("{:.4}", median.value), ""),
                };
                results.push(format!(
                    "    {{\"case\": \"{case}\", \"unit\": \"{unit}\", \"median\": {value}, \"low\": {:.4}, \"high\": {:.4}, \
                     {undecided}\"labels\": {{{more}{labels}}}}}",
                    median.low, median.high
                ));
            }
        };
        for (side, name) in [reference.to_lowercase().as_str(), "bellows"].into_iter().enumerate() {
            let more = format!("\"back_end\": \"{name}\", \"limit\": \"{}\", ", limit(row, side));
            result("rate", "Mpps", figure(row, side, rate), &more);
            result("rate-by-back-end", "Mpps", figure(row, side, |window| window.back_rate), &more);
            result("back-end", "clocks/packet", figure(row, side, clocks), &more);
            result("client", "clocks/packet", figure(row, side, |window| window.client_clocks), &more);
            result("refused", "ratio", figure(row, side, |window| window.refused), &more);
            result("client-share", "ratio", figure(row, side, |window| window.ran[0]), &more);
            result("back-end-share", "ratio", figure(row, side, |window| window.ran[1]), &more);
        }
        result("rate", "ratio", ratio(row, rate), "");
        result("back-end", "ratio", ratio(row, clocks), "");
    }
    let version = env!("CARGO_PKG_VERSION");
    let machine =
        format!("{{\"cpu\": \"{}\", \"tsc_hz\": {:.0}}}", cpu(), rows.first().map_or(0.0, |row| row.tsc_mhz * 1e6));
    format!(
        "{{\n  \"bench\": \"peers vhost\",\n  \"version\": \"{version}\",\n  \"machine\": {machine},\n  \"results\": [\n{}\n  ]\n}}\n",
        results.join(",\n")
    )
}

/// The name of the processor.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or(String::new(), |(_, name)| name.replace(['"', '\\'], ""))
}

/// A table for each direction: options as rows, sizes as columns, and the spread between the best row and the worst.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    for memory in [Memory::Plain, Memory::Hugepages] {
        for direction in [Direction::GuestToHost, Direction::HostToGuest, Direction::Looped] {
            let here = |row: &&Row| row.point.memory == memory && row.point.direction == direction;
            let rows: Vec<&Row> = rows.iter().filter(here).collect();
            if !rows.is_empty() {
                let _ = write!(text, "#### {}, {} memory\n\n{}\n", direction.name(), memory.name(), matrix(&rows));
            }
        }
    }
    text
}

fn matrix(rows: &[&Row]) -> String {
    let (mut sizes, mut cells): (Vec<usize>, Vec<Cell>) = (Vec::new(), Vec::new());
    for row in rows {
        if !sizes.contains(&row.point.size) {
            sizes.push(row.point.size);
        }
        if !cells.contains(&row.point.cell) {
            cells.push(row.point.cell);
        }
    }
    let mut text = String::from("| options |");
    for size in &sizes {
        let _ = write!(text, " {size} B: Mpps | clocks |");
    }
    let _ = writeln!(text, "\n|---|{}", "---|---|".repeat(sizes.len()));
    let at = |cell: Cell, size: usize| rows.iter().find(|row| row.point.cell == cell && row.point.size == size);
    for &cell in &cells {
        let _ = write!(text, "| {} |", cell.name());
        for &size in &sizes {
            let both = |of: fn(&Window) -> f64, digits: usize| {
                at(cell, size).map_or_else(String::new, |row| {
                    let [dpdk, bellows] = [0, 1].map(|side| figure(row, side, of).value);
                    let ratio = ratio(row, of);
                    let told = if ratio.is_undecided() { "?".to_owned() } else { format!("{:.2}", ratio.value) };
                    format!("{bellows:.digits$} / {dpdk:.digits$} = {told}")
                })
            };
            let _ = write!(text, " {} | {} |", both(rate, 1), both(clocks, 0));
        }
        text.push('\n');
    }
    let _ = write!(text, "| best row over worst |");
    for &size in &sizes {
        let spread = |of: fn(&Window) -> f64| {
            let [dpdk, bellows] = [0, 1].map(|side| {
                let figures = cells.iter().filter_map(|&cell| Some(figure(at(cell, size)?, side, of).value));
                let (least, most) = figures.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), figure| {
                    (least.min(figure), most.max(figure))
                });
                most / least
            });
            format!("{bellows:.2} / {dpdk:.2}")
        };
        let _ = write!(text, " {} | {} |", spread(rate), spread(clocks));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(rate: f64, clocks: f64) -> Window {
        Window { rate, back_rate: rate, clocks, client_clocks: 100.0, ran: [1.0; 2], ..Window::default() }
    }

    fn row(cell: usize, size: usize, windows: &[(f64, f64)]) -> Row {
        let point = Point { cell: Cell::all()[cell], memory: Memory::Plain, direction: Direction::GuestToHost, size };
        // DPDK takes twice as many clocks at nine tenths of the rate.
        let windows = windows.iter().map(|&(rate, clocks)| [window(rate * 0.9, clocks * 2.0), window(rate, clocks)]);
        Row { point, windows: windows.collect(), tsc_mhz: 2_600.0 }
    }

    #[test]
    fn medians_have_the_intervals_of_the_sign_test() {
        let median = Median::of((1..=9).map(f64::from));
        assert_eq!((median.value, median.low, median.high), (5.0, 2.0, 8.0));
        assert_eq!(Median::of([1.0, 4.0].into_iter()).value, 2.5);
        assert!(Median::of([f64::NAN].into_iter()).value.is_nan());
    }

    #[test]
    fn an_undecided_ratio_is_not_printed() {
        let windows: Vec<(f64, f64)> = (0..9).map(|_| (10.0, 50.0)).collect();
        let mut row = row(0, 64, &windows);
        for (number, pair) in row.windows.iter_mut().enumerate() {
            pair[0].rate *= 1.0 + 0.1 * number as f64;
        }
        let rows = [row];
        assert!(ratio(&rows[0], rate).is_undecided() && !ratio(&rows[0], clocks).is_undecided());
        let text = text(&rows, "DPDK");
        for part in
            ["undecided (± 0.", "0.500 (0.50 – 0.50)", "undecided: 1 of 2 ratios; the machine was too disturbed"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let json = json(&rows, "DPDK");
        assert!(json.contains("{\"case\": \"rate\", \"unit\": \"ratio\", \"median\": null, "), "{json}");
        assert!(json.contains("\"undecided\": true, \"labels\""), "{json}");
        assert!(markdown(&rows).contains("10.0 / 12.6 = ?"), "{}", markdown(&rows));
        let few = [(10.0, 50.0), (20.0, 50.0)].map(|(rate, _)| rate);
        assert!(!Median::of(few.into_iter()).is_undecided(), "too few windows have no interval");
    }

    #[test]
    fn a_starved_window_takes_its_partner_with_it() {
        let mut row = row(0, 64, &[(10.0, 50.0), (20.0, 60.0), (30.0, 70.0)]);
        row.windows[1][0].waited = [0.0, 0.1];
        assert_eq!((valid_windows(&row).count(), starved(&row)), (2, 1));
        assert_eq!(figure(&row, 1, rate).value, 20.0);
        assert!((ratio(&row, clocks).value - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_side_always_at_work_is_the_limit() {
        let mut row = row(0, 64, &[(10.0, 250.0)]);
        assert_eq!(limit(&row, 1), "back end", "250 clocks a packet at 10 Mpps are most of 2,600 MHz");
        assert_eq!(limit(&row, 0), "back end");
        row.windows[0][1].clocks = 50.0;
        assert_eq!(limit(&row, 1), "client");
        row.point.direction = Direction::HostToGuest;
        assert_eq!(limit(&row, 1), "back end", "100 clocks a packet at 10 Mpps are less than half of them");
        row.point.direction = Direction::Looped;
        assert_eq!(limit(&row, 1), "client", "100 clocks against 50");
    }

    #[test]
    fn all_shapes_have_the_same_figures() {
        let rows = [row(0, 64, &[(10.0, 50.0)]), row(7, 64, &[(15.0, 40.0)]), row(0, 256, &[(8.0, 60.0)])];
        let text = text(&rows, "DPDK");
        for part in
            ["guest-to-host, 64 bytes, plain memory", "1.111 (1.11 – 1.11)", "0.500 (0.50", "starved windows: 0 of 6"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let markdown = markdown(&rows);
        for part in [
            "| split | 10.0 / 9.0 = 1.11 | 50 / 100 = 0.50 | 8.0 /",
            "| packed+mergeable+in-order |",
            "| 1.50 / 1.50 | 1.25 / 1.25 |",
        ] {
            assert!(markdown.contains(part), "{part} is not in {markdown}");
        }
        let json = json(&rows, "DPDK");
        for part in [
            "\"bench\": \"peers vhost\"",
            "{\"case\": \"rate\", \"unit\": \"ratio\", \"median\": 1.1111",
            "\"back_end\": \"bellows\"",
        ] {
            assert!(json.contains(part), "{part} is not in {json}");
        }
    }
}
