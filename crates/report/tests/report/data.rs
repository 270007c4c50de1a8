//! Synthetic results with the shape of the document's: benchmark, pktsize, config and snabb, with a fixed seed.

use std::fmt::Write as _;

use bellows_campaign::{Results, import};
use bellows_report::{Options, Report, Source};

pub const CONFIGS: [&str; 5] = ["base", "nomrg", "noind", "filter", "ipsec"];
const SIZES: [u32; 3] = [64, 256, 1500];

/// A nearly normal number: the sum of twelve uniform ones.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// A table with the document's columns: so many repetitions of each combination. `vring-opt` is faster with `filter`.
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

pub fn source(text: &str) -> Source {
    Source::imported("table.csv".as_ref(), imported(text))
}

pub fn report(text: &str) -> Report {
    Report::of(&source(text), &Options::default()).unwrap()
}
