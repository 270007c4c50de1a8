//! A results folder of a million runs that nobody made, with all that a runner records.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use bellows_campaign::{Campaign, JOURNAL, Journal, Plan, Register, RunId, parse, register};

/// Combinations of the factors' levels.
const COMBINATIONS: u32 = 2 * 4 * 5 * 5;

/// The campaign file of `runs` runs, on four machines.
pub fn text(runs: u32) -> String {
    let blocks = runs / COMBINATIONS;
    format!(
        "name = 'million'\ncommand = ['true']\nrepeats = {blocks}\n\
         [factors]\nsnabb = ['next', 'vring-opt']\npktsize = [64, 256, 1024, 1500]\n\
         config = ['base', 'filter', 'ipsec', 'l2tpv3', 'l2tpv3_ipsec']\nqemu = ['2.1.3', '2.2.1', '2.3.1', '2.4.1', '2.5.1']\n\
         [score]\npattern = '(?<score>.)'\nunit = 'Gbps'\nbetter = 'higher'\n\
         [[hypothesis]]\nname = 'it is faster'\nterm = ['snabb', 'config']\ndirection = 'greater'\n\
         compare = [{{ snabb = 'vring-opt', config = 'filter' }}, {{ snabb = 'next', config = 'filter' }}]\n\
         [[hypothesis]]\nname = 'large packets are faster'\nfactor = 'pktsize'\ncompare = [1500, 64]\nexplored = {}\n",
        blocks / 2
    )
}

pub fn campaign(runs: u32) -> Campaign {
    parse("million.toml", &text(runs)).unwrap()
}

/// A score with noise that looks random, and a small effect of the first factor.
pub fn score(number: u32, is_new: bool) -> f64 {
    let noise = f64::from(number.wrapping_mul(2_654_435_761) >> 8) / f64::from(1u32 << 24);
    10.0 + noise + if is_new { 0.02 } else { 0.0 }
}

/// Makes the results folder of a campaign. A block belongs to a machine. A run in 1,000 has failed.
pub fn write_folder(folder: &Path, text: &str, campaign: &Campaign) {
    drop(Journal::open(folder, campaign, text).unwrap());
    for hypothesis in &campaign.hypotheses {
        register(folder, campaign, hypothesis).unwrap();
    }
    let head = Register::read(folder).unwrap().head().unwrap();
    let plan = Plan::new(campaign);
    let hash = plan.hash();
    let mut journal = BufWriter::new(File::create(folder.join(JOURNAL)).unwrap());
    let mut number = 0;
    for block in 1..=plan.repeats() {
        for combination in 1..=COMBINATIONS {
            let run = RunId { block, combination };
            let levels = plan.levels(run).unwrap();
            let [snabb, pktsize, config, qemu] =
                [0, 1, 2, 3].map(|factor: usize| campaign.factors[factor].levels[levels[factor]].label.as_str());
            let score = score(number, snabb == "vring-opt");
            let (value, failure) = match number % 1_000 {
                999 => (
                    "null".to_owned(),
                    r#""failure":{"kind":"exit-code","why":"the command ended with exit code 1","stderr":"no such device\n"},"#,
                ),
                _ => (score.to_string(), ""),
            };
            let [hour, minute, second] = [number / 3_600, number / 60, number].map(|time| time % 60);
            writeln!(
                journal,
                r#"{{"run":"{run}","campaign":"{hash}","levels":{{"config":"{config}","pktsize":"{pktsize}","qemu":"{qemu}","snabb":"{snabb}"}},"scores":[{{"name":"score","unit":"Gbps","value":{value}}}],{failure}"start":"2026-01-{day:02}T{hour:02}:{minute:02}:{second:02}.123Z","seconds":0.8123,"machine":{{"host":"lugano-{host}","cpu":"Intel(R) Xeon(R) CPU E5-1650 v3 @ 3.50GHz","cpus":"0-3, 8","os":"Linux 6.12.41+deb13-amd64","load":0.42,"steal":0.0,"yardstick_before":1.1428571428571428,"yardstick_after":1.1438571428571428}},"versions":{{"qemu":"QEMU emulator version {qemu} (Debian 1:{qemu}+dfsg-3)","snabb":"{snabb}"}},"registered":"{head}"}}"#,
                day = 2 + number / 86_400,
                hour = hour % 24,
                host = block % 4,
            )
            .unwrap();
            number += 1;
        }
    }
    journal.flush().unwrap();
}
