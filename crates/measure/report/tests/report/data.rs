//! Synthetic results with the shape of the document's: benchmark, pktsize, config and snabb, with a fixed seed.

use std::fmt::Write as _;

use bellows_campaign::{Results, import};
use bellows_report::{Report, ReportOptions, ResultSource};

pub const CONFIGS: [&str; 5] = ["base", "nomrg", "noind", "filter", "ipsec"];
const SIZES: [u32; 3] = [64, 256, 1500];

/// A nearly normal number: the sum of twelve uniform ones.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// A table with the document's columns: `repeats` repetitions of each combination. `vring-opt` is faster with `filter`.
pub fn document(repeats: u32, seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text = String::from("benchmark,pktsize,config,snabb,kernel,qemu,id,score,unit\n");
    for id in 1..=repeats {
        let mut runs = Vec::new();
        for (place, config) in CONFIGS.iter().enumerate() {
            for snabb in ["next", "vring-opt"] {
                let effect = if snabb == "vring-opt" && *config == "filter" { 0.68 } else { 0.0 };
                let score = 11.0 + place as f64 * 0.9 + effect + normal(&mut random) * 0.6;
                runs.push(("iperf", String::new(), *config, snabb, Some(score), "Gbps"));
                for (row, size) in SIZES.iter().enumerate() {
                    let slow = if snabb == "next" && random.u8(..) < 60 { 1.8 } else { 0.0 };
                    let score = 5.2 - row as f64 * 0.7 - place as f64 * 0.2 - slow + normal(&mut random) * 0.15;
                    let is_failed = *config == "ipsec" && random.u8(..) < 40;
                    runs.push(("l2fwd", size.to_string(), *config, snabb, (!is_failed).then_some(score), "Mpps"));
                }
            }
        }
        random.shuffle(&mut runs);
        for (benchmark, size, config, snabb, score, unit) in runs {
            let score = score.map_or("NA".to_owned(), |score| format!("{score:.4}"));
            writeln!(text, "{benchmark},{size},{config},{snabb},3.18.29,2.4.1,{id},{score},{unit}").unwrap();
        }
    }
    text
}

pub fn imported(text: &str) -> Results {
    import(text.as_bytes(), "table.csv").unwrap()
}

pub fn source(text: &str) -> ResultSource {
    ResultSource::imported("table.csv".as_ref(), imported(text))
}

pub fn report(text: &str) -> Report {
    Report::of(&source(text), &ReportOptions::default()).unwrap()
}

/// Tables of odd shapes, by name.
pub fn shapes() -> Vec<(&'static str, String)> {
    let table = |rows: &mut dyn Iterator<Item = String>| {
        format!("version,config,id,score,unit\n{}\n", rows.collect::<Vec<String>>().join("\n"))
    };
    let noise = |row: usize| (row * 7919 % 101) as f64 / 10.0;
    let long = "x".repeat(300);
    vec![
        ("document", document(6, 1)),
        ("no rows", "version,config,id,score,unit\n".to_owned()),
        ("one row", "version,config,id,score,unit\na,b,1,5,s\n".to_owned()),
        ("only scores", "score\n1\n2\n4\n".to_owned()),
        ("one level", table(&mut (0..20).map(|row| format!("a,b,{row},{},s", noise(row))))),
        ("all failures", table(&mut (0..20).map(|row| format!("v{},c{},{row},NA,s", row % 2, row / 2 % 3)))),
        ("one run a cell", table(&mut (0..12).map(|row| format!("v{},c{},1,{},s", row % 2, row / 2, noise(row))))),
        ("identical", table(&mut (0..40).map(|row| format!("v{},c{},{row},7,s", row % 2, row / 2 % 3)))),
        (
            "60 levels",
            table(&mut (0..600).map(|row| format!("v{},c{:02},{row},{},s", row % 2, row / 2 % 60, noise(row)))),
        ),
        (
            "60 versions",
            table(&mut (0..600).map(|row| format!("v{:02},c{},{row},{},s", row % 60, row / 60 % 2, noise(row)))),
        ),
        ("300 versions", table(&mut (0..900).map(|row| format!("v{:03},c,{row},{},s", row % 300, noise(row))))),
        ("negative", table(&mut (0..40).map(|row| format!("v{},c{},{row},{},s", row % 2, row / 2 % 3, -noise(row))))),
        ("huge", table(&mut (0..40).map(|row| format!("v{},c,{row},{}e300,s", row % 2, noise(row) - 5.0)))),
        ("tiny", table(&mut (0..40).map(|row| format!("v{},c,{row},{}e-300,s", row % 2, noise(row))))),
        (
            "markup",
            table(
                &mut (0..40).map(|row| {
                    format!("<script>alert({})</script>,\"a&b\"\"]]>\",{row},{},</svg>", row % 2, noise(row))
                }),
            ),
        ),
        (
            "control",
            table(
                &mut (0..40).map(|row| format!("\u{1b}[31m{},\u{0}\u{202e}\u{ffff},{row},{},µs", row % 2, noise(row))),
            ),
        ),
        ("long", table(&mut (0..40).map(|row| format!("{long}{},{long},{row},{},{long}", row % 2, noise(row))))),
        (
            "right to left",
            table(&mut (0..40).map(|row| format!("גרסה {},إعداد {},{row},{},שניות", row % 2, row / 2 % 3, noise(row)))),
        ),
        ("wide", table(&mut (0..40).map(|row| format!("版本{},设置,{row},{},秒", row % 2, noise(row))))),
        (
            "several scores",
            format!(
                "version,measure,score,unit\n{}",
                (0..60)
                    .map(|row| { format!("v{},m{},{},u{}\n", row % 2, row / 2 % 3, noise(row), row / 2 % 3) })
                    .collect::<String>()
            ),
        ),
    ]
}
