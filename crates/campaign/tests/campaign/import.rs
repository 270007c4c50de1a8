//! Tables from elsewhere.

use std::io::Write;

use bellows_campaign::{ImportError, Results, import, import_file};
use proptest::prelude::*;

const HEADER: &str = "benchmark,pktsize,config,snabb,kernel,qemu,id,score,unit\n";

fn imported(text: &str) -> Result<Results, ImportError> {
    import(text.as_bytes(), "table.csv")
}

#[test]
fn the_columns_of_virtual_machine_benchmarks_are_understood() {
    let text = format!(
        "{HEADER}iperf,NA,filter,next,3.18.29,2.4.1,1,12.5,Gbps\niperf,NA,filter,vring-opt,3.18.29,2.4.1,6,NA,Gbps\n\
         l2fwd,256,base,next,3.18.29,2.4.1,2,3.25,Mpps\n"
    );
    let results = imported(&text).unwrap();
    let names: Vec<&str> = results.factors.iter().map(|factor| factor.name.as_str()).collect();
    assert_eq!(names, ["benchmark", "pktsize", "config", "snabb", "kernel", "qemu"]);
    assert_eq!((results.len(), results.failures()), (3, 1));
    assert_eq!((results.ids.clone(), results.scores[2]), (vec![1, 6, 2], 3.25));
    let snabb = results.factor("snabb").unwrap();
    assert_eq!(
        (snabb.levels.all(), snabb.rows.as_slice()),
        (&["next", "vring-opt"].map(str::to_owned)[..], &[0, 1, 0][..])
    );
    assert_eq!(results.units.word(results.unit[2]), "Mpps");
    assert_eq!(results.reasons.word(results.failure[1]), "no score");
}

#[test]
fn tables_of_other_programs_are_understood() {
    let text = "\u{feff}\"size\", score\r\n\"6,4\", 1e3\r\n\"a\nb\",nan\r\n";
    let results = imported(text).unwrap();
    assert_eq!((results.factors[0].levels.all(), results.scores[0]), (&["6,4", "a\nb"].map(str::to_owned)[..], 1000.0));
    assert_eq!((results.failures(), results.ids.as_slice()), (1, &[0, 0][..]));
    assert!(imported("size,score\n").unwrap().is_empty());
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (text, line, why, help) in [
        ("a,b\n1,2\n", 1, "no column `score`; there are `a`, `b`", "`score`"),
        ("", 1, "no column `score`", "`score`"),
        ("a,a,score\n", 1, "two columns `a`", "rename"),
        ("a,,score\n", 1, "no name", "name each"),
        ("a,score\nx,1\ny,fast\n", 3, "`fast` is no finite number", "NA"),
        ("a,score\nx,1\ny,inf\n", 3, "`inf` is no finite number", "NA"),
        ("a,score\nx,1\ny\n", 3, "1 fields, the header 2", "commas"),
        ("a,id,score\nx,-1,1\n", 2, "`-1` is no whole number", "from 1"),
    ] {
        let error = imported(text).unwrap_err().to_string();
        let is_told =
            error.starts_with(&format!("table.csv, line {line}: ")) && error.contains(why) && error.contains(help);
        assert!(is_told, "{text}: {error}");
    }
    let latin = import(&b"a,score\n\xe9,1\n"[..], "table.csv").unwrap_err().to_string();
    assert!(latin.contains("line 2: the line is not UTF-8"), "{latin}");
    let times: String = (0..10_002).map(|time| format!("{time},1\n")).collect();
    let error = imported(&format!("time,score\n{times}")).unwrap_err().to_string();
    assert!(error.contains("more than 10000 different values; remove it"), "{error}");
    let missing = import_file(std::path::Path::new("/missing.csv")).unwrap_err().to_string();
    assert!(missing.contains("check the path"), "{missing}");
}

#[test]
fn a_million_rows_are_read_in_about_a_second() {
    let folder = bellows_testkit::scratch();
    let path = folder.path().join("large.csv");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    write!(file, "{HEADER}").unwrap();
    for row in 0..1_000_000u32 {
        let (config, snabb, size) = (row % 5, row / 5 % 2, 64 << (row / 10 % 5));
        let score = f64::from(row % 1_777) / 97.0;
        writeln!(file, "l2fwd,{size},config{config},v{snabb},3.18.29,2.4.1,{},{score},Mpps", row / 50 + 1).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    let mut fastest = f64::INFINITY;
    for _ in 0..3 {
        // Without the time that other tests take meanwhile.
        let start = bellows_sys::cpu::thread_time();
        let results = import_file(&path).unwrap();
        fastest = fastest.min((bellows_sys::cpu::thread_time() - start) as f64 / 1e9);
        assert_eq!((results.len(), results.factors.len()), (1_000_000, 6));
        assert_eq!((results.ids[999_999], results.scores[999_999]), (20_000, f64::from(999_999 % 1_777) / 97.0));
    }
    println!("{fastest:.2} s");
    // The dependencies of tests are not optimized much; a release build takes a third of this.
    assert!(fastest < 4.0, "{fastest:.2} s");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let peak: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak < 400_000, "{peak} KiB");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_a_table_or_have_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..60), text in "[a-c0-9,\"\r\n.NA-]{0,60}",
    ) {
        for source in [bytes, format!("a,id,score\n{text}").into_bytes(), format!("score,{text}").into_bytes()] {
            if let Ok(results) = import(source.as_slice(), "fuzz.csv") {
                let all = [results.ids.len(), results.unit.len(), results.failure.len(), results.disturbed.len()];
                prop_assert!(all.iter().all(|length| *length == results.len()));
                prop_assert!(results.factors.iter().all(|factor| factor.rows.len() == results.len()));
            }
        }
    }
}
