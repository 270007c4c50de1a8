//! Comparisons of many figures of several benches, as of a release.

use bellows_campaign::{Better, Campaign, CompareOptions, Comparison, PairConclusion, Row};
use bellows_testkit::scratch;

use crate::support::{campaign, go_on, rows};

/// Two benches of a program whose reports have figures in clocks and nanoseconds, a measured label that differs in each
/// run, and the exit code 3, which the shell maps. The new version's figure `rx 3` takes more, `tx 4` less.
fn release(repeats: usize, noise: usize) -> Campaign {
    let text = r#"
name = "release"
paired = "build"
repeats = REPEATS
command = { shell = '''
    report() {{
        printf '{{"results":['
        size=1
        while [ $size -le 8 ]; do
            noise=$(( {block} * 31 % 17 + ({block} + size) * {build.salt} % 7 * NOISE ))
            rx=$(( 1000 + noise )); tx=$(( 2000 + noise ))
            [ $size = 3 ] && rx=$(( rx + {build.more} ))
            [ $size = 4 ] && tx=$(( tx - {build.more} ))
            labels='"burst":32,"clocks":'$(( {block} + {build.salt} )).$size',"size":'$size
            printf '{{"case":"rx","unit":"clocks/packet","labels":{{%s}},"median":%s}},' "$labels" $rx
            printf '{{"case":"tx","unit":"ns","labels":{{%s}},"median":%s}},' "$labels" $tx
            size=$(( size + 1 ))
        done
        printf '{{"case":"rx","unit":"ns","labels":{{"burst":32,"clocks":0.5}},"median":7}},'
        printf '{{"case":"rx","unit":"ns","labels":{{"burst":32,"clocks":1.5}},"median":null,"undecided":true}}]}}\n'
        return 3
    }}
    report; code=$?; [ $code = 3 ] || exit $code
''' }
[factors]
build = [{ label = "last", more = 0, salt = 3 }, { label = "now", more = 400, salt = 5 }]
bench = ["vring", "link"]
[[score]]
reads = "bellows-bench"
unit = "clocks/packet"
better = "lower"
[[score]]
reads = "bellows-bench"
unit = "ns"
better = "lower"
"#;
    campaign(&text.replace("REPEATS", &repeats.to_string()).replace("NOISE", &noise.to_string()))
}

fn compared(campaign: &Campaign) -> Comparison {
    let folder = scratch();
    go_on(folder.path(), campaign);
    Comparison::read(folder.path(), campaign, &CompareOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn measured_labels_are_no_part_of_a_name() {
    let rows: Vec<Row> = rows(&release(2, 1));
    let names = |row: &Row| row.scores.iter().map(|it| (it.name.clone(), it.unit.clone())).collect::<Vec<_>>();
    let first = names(&rows[0]);
    assert_eq!(first.len(), 18);
    assert!(first.contains(&("rx (burst 32, size 3)".to_owned(), "clocks/packet".to_owned())), "{first:?}");
    assert_eq!(first[16].0, "rx (burst 32)");
    assert_eq!(first[17].0, "rx (burst 32) #2");
    assert!(rows.iter().all(|row| names(row) == first && row.failure.is_none()), "{rows:#?}");
}

#[test]
fn many_results_begin_with_the_answer_and_what_differs() {
    let found = compared(&release(12, 1));
    assert_eq!(found.results.len(), 36);
    assert!(found.knows_better() && found.is_slower());
    let text = found.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[1],
        "slower: 2 of 36 figures; faster: 2; no difference that 12 pairs can show: 30; without enough pairs: 2"
    );
    for (line, start) in [
        (2, "vring rx, size 3: now is 39."),
        (3, "link rx, size 3: now is 39."),
        (4, "vring tx, size 4: now is 19."),
        (5, "link tx, size 4: now is 19."),
    ] {
        let sides = [lines[line], lines[line ^ 1]];
        assert!(sides.iter().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(lines[2].contains(" % slower (") && lines[4].contains(" % faster ("), "{text}");
    assert!(text.contains("\nvring, 15 figures: no difference; differences from 0."), "{text}");
    assert!(text.contains("; 1 without scatter\n"), "{text}");
    assert!(text.contains("\nrx (burst 32) #2, 2 figures: too few pairs with both scores; make more"), "{text}");
    assert!(!text.contains("size 5"), "{text}");

    let all = format!("{found:#}");
    let of_results = all.lines().filter(|line| line.starts_with("bench ")).count();
    assert!(of_results == 36 && all.contains("bench link, rx (burst 32, size 5): no difference"), "{all}");
}

#[test]
fn two_pairs_are_too_few_for_an_interval() {
    let found = compared(&release(2, 40));
    let text = found.to_string();
    assert!(text.contains("with too few pairs to find any; make more with `--repeats`"), "{text}");
    let all = format!("{found:#}");
    assert!(all.contains("(2 pairs are too few for an interval; ") && !all.contains("inf %"), "{all}");
    assert!(!all.contains("-100 to "), "{all}");
}

/// What is better is said of each unit; a figure whose declarations disagree has no better side.
#[test]
fn each_unit_has_its_better_side() {
    let with = |scores: &str| {
        let shell = r#"printf '{{"results":[{{"case":"a","unit":"ns","median":%s}},{{"case":"b","unit":"Mpps","median":%s}},'  $(( {build.more} + {block} )) $(( {build.more} + {block} * 2 )); printf '{{"case":"c","unit":"ratio","median":%s}}]}}' $(( {build.more} + {block} * 3 ))"#;
        campaign(&format!(
            "name = 'units'\npaired = 'build'\nrepeats = 6\ncommand = {{ shell = '''{shell}''' }}\n[factors]\n\
             build = [{{ label = 'last', more = 1000 }}, {{ label = 'now', more = 2000 }}]\n{scores}"
        ))
    };
    let of = |unit: &str, better: &str| format!("[[score]]\nreads = 'bellows-bench'\nunit = '{unit}'\n{better}\n");
    let scores = [of("Mpps", "better = 'higher'"), of("ns", "better = 'lower'"), of("ratio", "")].concat();
    let found = compared(&with(&scores));
    let said: Vec<_> = found.results.iter().map(|it| (it.score.as_str(), it.better, it.conclusion)).collect();
    assert_eq!(
        said,
        [
            ("b", Some(Better::Higher), PairConclusion::Faster),
            ("a", Some(Better::Lower), PairConclusion::Slower),
            ("c", None, PairConclusion::Higher),
        ]
    );
    assert!(!found.knows_better());
}
