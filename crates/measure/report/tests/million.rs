//! A million rows are read, tested and drawn within 5 s and 500 MiB; a tenth of them in builds for debugging.

#[path = "../../campaign/tests/million/rows.rs"]
mod rows;

use std::io::{BufWriter, Write};

use bellows_report::{Report, ReportOptions, ResultSource};
use bellows_testkit::scratch;

const ROWS: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
const MAX_SECONDS: f64 = if cfg!(debug_assertions) { 15.0 } else { 5.0 };
const MAX_KIB: u64 = 500 << 10;

/// Writes a table with the document's columns, of 2 × 5 × 5 × 3 × 2 × 2 combinations.
fn write_table(mut out: impl Write) {
    let mut random = fastrand::Rng::with_seed(20);
    writeln!(out, "benchmark,pktsize,config,snabb,kernel,qemu,id,score,unit").unwrap();
    for row in 0..ROWS {
        let mut pick = |levels: &[&'static str]| levels[random.usize(..levels.len())];
        let benchmark = pick(&["iperf", "l2fwd"]);
        let (size, config) =
            (pick(&["64", "128", "256", "512", "1500"]), pick(&["base", "filter", "ipsec", "l2tp", "nomrg"]));
        let (snabb, kernel, qemu) =
            (pick(&["next", "vring-opt", "master"]), pick(&["3.18", "4.4"]), pick(&["2.4", "2.5"]));
        let unit = if benchmark == "iperf" { "Gbps" } else { "Mpps" };
        let noise = (0..4).map(|_| random.f64()).sum::<f64>() - 2.0;
        let score = if random.u8(..) == 0 {
            "NA".to_owned()
        } else {
            format!("{:.5}", 10.0 + config.len() as f64 / 5.0 + noise)
        };
        writeln!(out, "{benchmark},{size},{config},{snabb},{kernel},{qemu},{},{score},{unit}", row / 600 + 1).unwrap();
    }
}

/// The most memory that this process had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The seconds that this process has computed, which other processes do not change. It has one thread.
fn seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name in parentheses, fields 14 and 15 are ticks of 10 ms for the program and for the kernel.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

/// Reads results, and makes all forms of their report, in time.
fn draw(what: &str, open: impl Fn() -> ResultSource) -> Report {
    let begin = seconds();
    let source = open();
    let read = seconds() - begin;
    let report = Report::of(&source, &ReportOptions::default()).unwrap();
    let tested = seconds() - begin;
    let (html, pictures) = (report.html().unwrap(), report.pictures());
    let json = serde_json::to_string(&report).unwrap();
    let all = seconds() - begin;
    let drawn: usize = pictures.iter().map(|picture| picture.svg.len()).sum();
    println!(
        "{ROWS} rows of {what}: read {read:.2} s, tested {:.2} s, drawn {:.2} s, all {all:.2} s, {} MiB; page {} KiB, \
         pictures {} KiB, JSON {} KiB",
        tested - read,
        all - tested,
        peak_kib() >> 10,
        html.len() >> 10,
        drawn >> 10,
        json.len() >> 10,
    );
    assert_eq!(report.sections.iter().map(|section| section.runs).sum::<usize>(), ROWS);
    assert!(html.len() < 4 << 20, "the page has {} bytes", html.len());
    assert!(peak_kib() <= MAX_KIB, "{} KiB", peak_kib());
    assert!(all <= MAX_SECONDS, "{all} s");
    report
}

#[test]
fn a_million_rows_are_read_tested_and_drawn_in_time() {
    let folder = scratch();
    let path = folder.path().join("million.csv");
    write_table(BufWriter::new(std::fs::File::create(&path).unwrap()));
    draw("a table", || ResultSource::open(&path, None).unwrap());
    std::fs::remove_file(&path).unwrap();

    let (path, text) = (folder.path().join("million.toml"), rows::text(ROWS as u32));
    std::fs::write(&path, &text).unwrap();
    let results = folder.path().join("million.results");
    rows::write_folder(&results, &text, &rows::campaign(ROWS as u32));
    for (what, path) in [("a results folder", &results), ("a campaign", &path)] {
        let report = draw(what, || ResultSource::open(path, None).unwrap());
        assert_eq!((report.setup.runs, report.setup.failed, report.setup.machines.len()), (ROWS, ROWS / 1_000, 4));
        let tested: Vec<_> = report.confirmation.hypotheses.iter().map(|it| it.verdict.runs.confirming).collect();
        assert_eq!(tested, [ROWS / 1_000 * 999, ROWS / 2_000 * 999]);
        assert_eq!(report.sections[0].analysis.as_ref().unwrap().machines, 4);
    }
}
