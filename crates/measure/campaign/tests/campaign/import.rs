//! Tables from elsewhere.

use std::io::Write;

use bellows_campaign::{
    ColumnNames, Conclusion, ImportError, Imported, Journal, Results, Status, import, import_columns, import_file,
    import_folder, load, register, verdicts,
};
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
    assert_eq!((results.failures(), results.ids.as_slice()), (1, &[1, 1][..]));
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
        ("a,score\n x,1\n x,1\nx,1\n", 4, "`x` of the column `a` was written with other spaces", "same spaces"),
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
    let endless = import_file(std::path::Path::new("/dev/zero")).unwrap_err().to_string();
    assert!(endless.contains("longer than 1 MiB, so this is no table"), "{endless}");
    let folder = import_file(std::path::Path::new("/tmp")).unwrap_err().to_string();
    assert!(folder.contains("it is a folder"), "{folder}");
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

#[test]
fn other_columns_are_taken_by_their_names() {
    let names = ColumnNames {
        score: "rate".to_owned(),
        id: "run".to_owned(),
        default_unit: "Mpps".to_owned(),
        ignored: vec!["comment".to_owned()],
        ..ColumnNames::default()
    };
    let read = |text: &str| bellows_campaign::import_columns(text.as_bytes(), "table.csv", &names);
    let results = read("size,score,run,rate,comment\n64,low,3,1.5,x\n").unwrap();
    assert_eq!(results.factors.iter().map(|factor| factor.name.as_str()).collect::<Vec<_>>(), ["size"]);
    assert_eq!((results.scores[0], results.ids[0], results.units.word(results.unit[0])), (1.5, 3, "Mpps"));
    for (header, missing) in [("run,comment", "rate"), ("rate,comment", "run"), ("rate,run", "comment")] {
        let error = read(&format!("{header}\n")).unwrap_err().to_string();
        assert!(error.contains(&format!("there is no column `{missing}`; there are `")), "{error}");
    }
}

/// A results folder from a table: its rows are those of the table.
#[test]
fn a_table_becomes_a_results_folder() {
    let folder = bellows_testkit::scratch();
    let text = format!(
        "{HEADER}iperf,NA,filter,next,3.18.29,2.4.1,1,12.5,Gbps\niperf,NA,filter,vring-opt,3.18.29,2.4.1,1,NA,Gbps\n\
         iperf,NA,filter,next,3.18.29,2.4.1,2,13.25,Gbps\niperf,NA,filter,vring-opt,3.18.29,2.4.1,2,15,Gbps\n\
         iperf,NA,filter,vring-opt,3.18.29,2.4.1,3,15.5,Gbps\n"
    );
    let table = bellows_testkit::scratch::write(&folder, "bench.csv", &text);
    let made = folder.path().join("made/results");
    let Imported { runs, failed, file } = import_folder(&table, &made, &ColumnNames::default()).unwrap();
    assert_eq!((runs, failed), (5, 1));
    let (results, expected) = (Results::read(&made).unwrap(), imported(&text).unwrap());
    let words = |results: &Results| -> Vec<Vec<String>> {
        let levels = |row: usize| results.factors.iter().map(move |it| it.levels.word(it.rows[row]).to_owned());
        let others = |row: usize| [results.units.word(results.unit[row]).to_owned(), results.ids[row].to_string()];
        (0..results.len()).map(|row| levels(row).chain(others(row)).collect()).collect()
    };
    assert_eq!(words(&results), words(&expected));
    assert_eq!(format!("{:?}", results.scores), format!("{:?}", expected.scores));
    assert!(results.starts.is_empty() && results.start(0).is_none());
    let status = Status::read(&made).unwrap();
    assert_eq!((status.name.as_str(), status.rows, status.span), ("bench", 5, None));
    let info = std::fs::read_to_string(made.join("campaign.json")).unwrap();
    assert!(info.contains("\"imported\"") && info.contains("bench.csv"), "{info}");

    // It is exploration for ever.
    let stated = "\n[[hypothesis]]\nname = 'faster'\nfactor = 'snabb'\ncompare = ['vring-opt', 'next']\n";
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + stated).unwrap();
    let loaded = load(&file).unwrap();
    let verdict = verdicts(&made, &loaded.campaign).unwrap().remove(0);
    assert_eq!((verdict.conclusion, verdict.runs.made_before), (Conclusion::Refused, 4));
    assert!((verdict.exploration.unwrap().difference - 2.375).abs() < 1e-12, "{verdict:?}");
    let error = register(&made, &loaded.campaign, &loaded.campaign.hypotheses[0]).unwrap_err().to_string();
    assert!(error.contains("were imported from") && error.contains("another folder"), "{error}");
    assert!(Journal::open(&made, &loaded.campaign, "").is_err());

    // Never a second time.
    let before = std::fs::read(made.join("results.jsonl")).unwrap();
    let error = import_folder(&table, &made, &ColumnNames::default()).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(std::fs::read(made.join("results.jsonl")).unwrap(), before);
}

#[test]
fn a_table_that_is_no_campaign_leaves_nothing() {
    let folder = bellows_testkit::scratch();
    for (text, why) in [
        ("a,id,score\nx,1,1\ny,1,1\nx,1,2\n", "row 3 below the header: the repetition 1"),
        ("a,id,score\nx,1,1\ny,0,1\n", "row 2 below the header: the repetition is 0; number repetitions from 1"),
        ("a,score\n", "has no rows"),
        ("a b,score\nx,1\n", "cannot be factors"),
        ("a,score\n,1\n", "cannot be factors"),
        ("score\n1\n", "cannot be factors"),
        ("a,score\nx,fast\n", "no finite number"),
    ] {
        let table = bellows_testkit::scratch::write(&folder, "table.csv", text);
        let error = import_folder(&table, &folder.path().join("made"), &ColumnNames::default()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{why}");
    }
    // Without a column of repetitions they are counted; several measures are scores of one run.
    let text = "a,measure,score\nx,one,1\nx,two,2\nx,one,3\ny,one,4\n";
    let table = bellows_testkit::scratch::write(&folder, "table.csv", text);
    let made = folder.path().join("made");
    assert_eq!(import_folder(&table, &made, &ColumnNames::default()).unwrap().runs, 3);
    let results = Results::read(&made).unwrap();
    assert_eq!((results.scores.as_slice(), results.ids.as_slice()), (&[1.0, 2.0, 3.0, 4.0][..], &[1, 1, 2, 1][..]));
}

/// What is beside the new folder stays, also if it is called like what is made meanwhile.
#[test]
fn an_import_removes_nothing_that_it_did_not_make() {
    let folder = bellows_testkit::scratch();
    let table = bellows_testkit::scratch::write(&folder, "table.csv", "a,id,score\nx,1,1\nx,1,2\n");
    let mut kept = Vec::new();
    for name in ["made.part", "made.part-1"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        kept.push(folder.path().join(name).join("notes.txt"));
        std::fs::write(kept.last().unwrap(), "mine").unwrap();
    }
    let made = folder.path().join("made");
    assert!(import_folder(&table, &made, &ColumnNames::default()).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    std::fs::write(&table, "a,id,score\nx,1,1\nx,2,2\n").unwrap();
    // As a shell completes the name of a folder.
    let with_slash = folder.path().join("made/");
    assert_eq!(import_folder(&table, &with_slash, &ColumnNames::default()).unwrap().runs, 2);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    assert_eq!(Results::read(&made).unwrap().len(), 2);
    assert!(kept.iter().all(|path| std::fs::read(path).is_ok_and(|text| text == b"mine")));
}

/// The time that an import takes grows with the rows, however many measures they have.
#[test]
fn a_table_of_many_measures_is_imported() {
    let folder = bellows_testkit::scratch();
    let rows = |count: usize, unit: fn(usize) -> String| {
        let lines = (0..count).map(|number| format!("x,{number},1.5,{}\n", unit(number)));
        "a,measure,score,unit\n".to_owned() + &lines.collect::<String>()
    };
    let made = folder.path().join("made");
    for (text, column) in [
        (rows(80_000, |_| "s".to_owned()), "measure"),
        (rows(10_001, |_| "s".to_owned()), "measure"),
        (rows(10_001, |number| number.to_string()).replace("measure", "run"), "unit"),
    ] {
        let table = bellows_testkit::scratch::write(&folder, "table.csv", &text);
        let error = import_folder(&table, &made, &ColumnNames::default()).unwrap_err().to_string();
        let expected = format!("the column `{column}` of {} has more than 10000 different values; ", table.display());
        assert!(error.starts_with(&expected), "{error}");
    }
    let table = bellows_testkit::scratch::write(&folder, "table.csv", rows(10_000, |number| format!("u{number}")));
    assert_eq!(import_folder(&table, &made, &ColumnNames::default()).unwrap().runs, 1);
    let results = Results::read(&made).unwrap();
    assert_eq!((results.len(), results.units.word(results.unit[9_999])), (10_000, "u9999"));
    let info = bellows_campaign::Info::read(&made).unwrap();
    assert_eq!((info.scores[9_999].name.as_str(), info.scores[9_999].unit.as_str()), ("9999", "u9999"));
}

/// Parts of files.
const WORDS: [&str; 36] = [
    "name = 'x'\n",
    "command = ['true', '{a}']\n",
    "command = {shell = 'echo {a.b}'}\n",
    "[factors]\n",
    "a = [1, 2]\n",
    "a = [{label = 'x', b = ['y']}]\n",
    "[score]\n",
    "unit = '1'\n",
    "json = 'x[0].y'\n",
    "pattern = '(?<x>.)'\n",
    "[[hypothesis]]\n",
    "factor = 'a'\n",
    "compare = [1, 2]\n",
    "exclude = [{a = 1}]\n",
    "repeats = 3\n",
    "explored = 2\n",
    "a,score\n",
    "a,id,score,unit\n",
    "x,1\n",
    "x,1,2,y\n",
    "\"",
    ",",
    "\n",
    "{",
    "}",
    "\0",
    "{\"run\":\"1.2\",",
    "\"campaign\":\"0000000000000000000000000000000000000000000000000000000000000000\",",
    "\"levels\":{\"a\":\"x\"},",
    "\"scores\":[{\"name\":\"s\",\"unit\":\"u\",\"value\":1.5}],",
    "\"scores\":[],",
    "\"start\":\"2026-01-31T09:08:07.006Z\",",
    "\"seconds\":1.0,",
    "\"machine\":{\"host\":\"h\",\"cpu\":\"c\",\"cpus\":\"0\",\"os\":\"o\",\"load\":0.0,\"steal\":null,\"yardstick_before\":1.0,\"yardstick_after\":1.0}",
    "}\n",
    "\"registered\":null,",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// As the fuzz target does it.
    #[test]
    fn any_bytes_are_each_kind_of_file_or_none(
        kind in 0..4u8, bytes in proptest::collection::vec(any::<u8>(), 0..80),
        words in proptest::collection::vec(proptest::sample::select(&WORDS[..]), 0..30),
    ) {
        bellows_campaign::exercise(&[&[kind], bytes.as_slice()].concat());
        bellows_campaign::exercise(&[&[kind], words.concat().as_bytes()].concat());
    }

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

#[test]
fn the_own_table_keeps_times_and_machines() {
    let text = "size,id,score,unit,start,host\n64,1,2,s,2026-01-31T09:08:07.006Z,lab\n\
                64,2,3,s,2026-01-31T09:08:08.006Z,other\n";
    let results = imported(text).unwrap();
    assert_eq!(results.start(1).unwrap(), "2026-01-31T09:08:08.006Z");
    assert_eq!((results.machines.word(results.machine[0]), results.factors.len()), ("lab", 1));
    let folder = bellows_testkit::scratch();
    let table = bellows_testkit::scratch::write(&folder, "own.csv", text);
    let made = folder.path().join("made");
    import_folder(&table, &made, &ColumnNames::default()).unwrap();
    let again = Results::read(&made).unwrap();
    assert_eq!((again.starts, again.machines.all()), (results.starts, results.machines.all()));
    let status = Status::read(&made).unwrap();
    assert_eq!((status.machines.len(), status.planned.runs), (2, None));
    // A time that is none: those of the other rows say nothing of the order.
    let text = text.replace("2026-01-31T09:08:07.006Z", "yesterday");
    assert!(imported(&text).unwrap().starts.is_empty());
}

#[test]
fn repetitions_without_a_column_are_numbered() {
    let results = imported("size,score\n64,1\n64,2\n1500,3\n64,4\n").unwrap();
    assert_eq!(results.ids, [1, 2, 1, 3]);
}

#[test]
fn scores_cannot_be_ignored() {
    let names = ColumnNames { ignored: vec!["score".to_owned()], ..ColumnNames::default() };
    let error = import_columns(&b"size,score\n64,1\n"[..], "table.csv", &names).unwrap_err().to_string();
    assert!(error.contains("`score` of scores cannot be left out"), "{error}");
    // Another column that would have a meaning.
    let names = ColumnNames { ignored: vec!["id".to_owned()], ..ColumnNames::default() };
    let results = import_columns(&b"size,id,score\n64,x,1\n64,y,2\n"[..], "table.csv", &names).unwrap();
    assert_eq!((results.ids, results.factors.len()), (vec![1, 2], 1));
}
