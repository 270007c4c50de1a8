//! Campaigns from the command line: runs, results, interruptions and hypotheses.

use std::fs;
use std::process::Stdio;

use crate::support::{Sandbox, Signal, json_reference, root, signal};
use bellows::json_reference::Found;
use bellows_testkit::{eventually, programs};
use serde_json::{Value, json};

/// Two sizes, of which the larger one fails, in two blocks; the command takes `sleep` seconds.
fn campaign(sleep: &str) -> String {
    format!(
        r#"
name = "sizes"
repeats = 2
command = {{ shell = "sleep {sleep}; if [ {{size}} = 9000 ]; then echo broken >&2; exit 3; fi; echo rate={{size}}.5" }}
[factors]
size = ["60", "9000"]
[score]
name = "rate"
unit = "Mpps"
pattern = 'rate=(?<rate>[0-9.]+)'
[[hypothesis]]
name = "small packets are faster"
factor = "size"
compare = ["60", "9000"]
direction = "greater"
repeats = 3
"#
    )
}

/// Two sizes with a little scatter, and a hypothesis.
const RATES: &str = r#"
name = "rates"
repeats = 2
command = { shell = "block={block}; echo rate={size}.$((block % 3))" }
[factors]
size = ["60", "64"]
[score]
pattern = 'rate=(?<rate>[0-9.]+)'
unit = "Mpps"
[[hypothesis]]
name = "smaller packets are slower"
factor = "size"
compare = ["60", "64"]
direction = "less"
repeats = 8
"#;

/// The lines of standard output as JSON.
fn lines(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn each_combination_is_run_once_a_block_and_failures_are_results() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("sizes.toml", &campaign("0"));
    let said = sandbox.bellows(&["campaign", "run", &file]).success();
    let table = sandbox.path("sizes.results/results.csv");
    assert!(said.stdout.contains("60: 60.5 Mpps") && said.stdout.contains("9000: exit-code: "), "{said:#?}");
    assert!(said.stdout.contains("4 of 4 runs have results, 2 without a score; 4 were made now: "), "{said:#?}");
    assert!(said.stdout.contains(table.to_str().unwrap()), "{said:#?}");
    let text = fs::read_to_string(&table).unwrap();
    assert!(text.starts_with("size,id,score,unit,") && text.lines().count() == 5, "{text}");
    assert_eq!(text.matches("60.5,Mpps").count(), 2, "{text}");
    // Nothing is left to do, unless there are to be more.
    let said = sandbox.bellows(&["campaign", "run", &file]).success();
    assert!(said.stdout.starts_with("4 of 4 runs have results, 2 without a score; 0 were made now"), "{said:#?}");
    let said = sandbox.bellows(&["campaign", "run", &file, "--repeats", "3", "--json"]).success();
    let rows = lines(&said.stdout);
    assert!(rows.len() == 2 && rows.iter().all(|row| row["run"].as_str().unwrap().starts_with("3.")), "{said:#?}");
    let status = sandbox.bellows(&["campaign", "status", &file, "--json"]).success().json();
    assert_eq!(
        [&status["name"], &status["rows"], &status["running"], &status["blocks"], &status["failed"]],
        [&json!("sizes"), &json!(6), &json!(false), &json!({"1": 2, "2": 2, "3": 2}), &json!({"exit-code": 3})]
    );
    let said = sandbox.bellows(&["campaign", "status", &file]).success().stdout;
    assert!(
        said.starts_with("sizes: 4 of 4 runs\n  2 runs of more blocks than planned\n")
            && said.contains("  3 without a score: exit-code\n"),
        "{said}"
    );
}

#[test]
fn an_interrupted_campaign_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("sizes.toml", &campaign("0.2").replace("repeats = 2", "repeats = 400"));
    let mut command = sandbox.command(&["campaign", "run", &file, "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let journal = sandbox.path("sizes.results/results.jsonl");
    let recorded = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    eventually("three runs", || recorded() >= 3);
    let refused = sandbox.bellows(&["campaign", "run", &file]);
    assert!(refused.code == Some(2) && refused.stderr.contains("is in use by another runner"), "{refused:#?}");
    let status = sandbox.bellows(&["campaign", "status", &file, "--json"]).success().json();
    assert_eq!(status["running"], json!(true));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let before = recorded();
    let stdout = String::from_utf8(output.stdout).unwrap();
    json_reference::compare(&["campaign", "run", "--json"], &stdout, &mut Found::new());
    assert!(before < 800 && lines(&stdout).len() == before);
    let quick = sandbox.bellows(&["campaign", "run", &file, "--repeats", "4", "--json"]).success();
    assert_eq!(lines(&quick.stdout).len(), 8_usize.saturating_sub(before), "{quick:#?}");
}

#[test]
fn mistakes_name_the_place_and_the_remedy() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("sizes.toml", &campaign("0").replace("{size}.5", "{sizes}.5"));
    let said = sandbox.bellows(&["campaign", "run", &file]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("sizes.toml:4") && said.stderr.contains("`size`"), "{}", said.stderr);
    let said = sandbox.bellows(&["campaign", "run", "no.toml"]);
    assert!(said.code == Some(2) && said.stderr.contains("no.toml"), "{said:#?}");
    let said = sandbox.bellows(&["campaign", "status", &file]);
    assert!(said.code == Some(2) && said.stderr.contains("has no results of a campaign"), "{said:#?}");
    // Another campaign has another folder.
    let file = sandbox.write("sizes.toml", &campaign("0"));
    sandbox.bellows(&["campaign", "run", &file]).success();
    sandbox.write("sizes.toml", &campaign("0.01"));
    let said = sandbox.bellows(&["campaign", "run", &file]);
    assert!(said.code == Some(2) && said.stderr.contains("which differs in `command`"), "{said:#?}");
    sandbox.bellows(&["campaign", "run", &file, "--results", "other"]).success();
}

#[test]
fn hypotheses_are_registered_once_and_with_their_time() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("sizes.toml", &campaign("0"));
    sandbox.bellows(&["campaign", "run", &file]).success();
    let first = sandbox.bellows(&["campaign", "register", &file, "--json"]).success().json();
    assert_eq!(first.as_array().unwrap().len(), 1);
    assert_eq!([&first[0]["rows"], &first[0]["hypothesis"]["name"]], [&json!(4), &json!("small packets are faster")]);
    assert_eq!(sandbox.bellows(&["campaign", "register", &file, "--json"]).success().json(), first, "its time stays");
    let said = sandbox.bellows(&["campaign", "register", &file]).success().stdout;
    assert!(said.contains("after 4 runs, as ") && said.contains(first[0]["hash"].as_str().unwrap()), "{said}");
    let more = sandbox.bellows(&["campaign", "run", &file, "--repeats", "3", "--json"]).success();
    assert!(lines(&more.stdout).iter().all(|row| row["registered"] == first[0]["hash"]), "{more:#?}");
    let without = campaign("0");
    let without = sandbox.write("without.toml", &without[..without.find("[[hypothesis]]").unwrap()]);
    let said = sandbox.bellows(&["campaign", "register", &without]);
    assert!(said.code == Some(2) && said.stderr.contains("states no hypothesis"), "{said:#?}");
}

#[test]
fn fresh_runs_confirm_what_was_registered() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("rates.toml", RATES);
    sandbox.bellows(&["campaign", "run", &file]).success();
    let test = || sandbox.bellows(&["campaign", "test", &file, "--json"]).success().json()[0].clone();
    assert_eq!([&test()["conclusion"], &test()["runs"]["made_before"]], [&json!("refused"), &json!(4)]);
    sandbox.bellows(&["campaign", "register", &file]).success();
    let said = sandbox.bellows(&["campaign", "test", &file]).success().stdout;
    assert!(
        said.starts_with("smaller packets are slower: refused\n") && said.contains("exploration: 60 - 64: -4"),
        "{said}"
    );
    sandbox.bellows(&["campaign", "run", &file, "--repeats", "8"]).success();
    let verdict = test();
    assert_eq!([&verdict["conclusion"], &verdict["runs"]["confirming"]], [&json!("confirmed"), &json!(12)]);
    assert!((verdict["confirmation"]["difference"].as_f64().unwrap() + 4.0).abs() < 1e-9, "{verdict:#}");
    let said = sandbox.bellows(&["campaign", "test", &file]).success().stdout;
    assert!(
        said.starts_with("smaller packets are slower: confirmed\n") && said.contains("4 runs made before"),
        "{said}"
    );
}

#[test]
fn the_example_of_the_manual_runs() {
    let sandbox = Sandbox::new();
    let file = root().join("crates/measure/campaign/examples/checksums.toml");
    let words = ["campaign", "run", file.to_str().unwrap(), "--results", "checksums.results", "--repeats", "1"];
    let said = sandbox.bellows(&words).success();
    assert!(
        said.stdout.contains("5 of 5 runs have results; 5 were made now: checksums.results/results.csv"),
        "{said:#?}"
    );
}

#[test]
fn a_report_is_text_or_a_page_with_pictures() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("rates.toml", &RATES.replace("repeats = 2", "repeats = 6"));
    sandbox.bellows(&["campaign", "run", &file]).success();
    let said = sandbox.bellows(&["campaign", "report", &file]).success().stdout;
    assert!(said.starts_with("rates\n12 runs of 2 combinations") && said.contains("EXPLORATION: "), "{said}");
    let json = sandbox.bellows(&["campaign", "report", &file, "--json"]).success().json();
    assert_eq!(json["title"], json!("rates"));
    let said = sandbox.bellows(&["campaign", "report", &file, "-o", "page.html", "--svg", "pictures"]).success();
    assert!(said.stdout.is_empty() && said.stderr.starts_with("wrote page.html\nwrote pictures/"), "{said:#?}");
    let page = fs::read_to_string(sandbox.path("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"), "{}", &page[..80]);
    let loads = ["<script", "src=\"http", "href=\"http", "url(http", "@import"];
    assert!(!loads.iter().any(|word| page.contains(word)) && page.contains("size"));
    assert!(fs::read_dir(sandbox.path("pictures")).unwrap().count() >= 3);
    let said = sandbox.bellows(&["campaign", "report", &file, "--by", "sizes"]);
    assert!(said.code == Some(2) && said.stderr.contains("the results have no factor"), "{said:#?}");
    let said = sandbox.bellows(&["campaign", "report", "no.csv"]);
    assert!(said.code == Some(2) && said.stderr.contains("no.csv"), "{said:#?}");
}

#[test]
fn a_table_becomes_a_folder_that_can_be_reported() {
    let sandbox = Sandbox::new();
    let rows: Vec<String> = (1..=6).map(|id| format!("64,new,{id},{}.{id},Gb/s", 7 + id % 3)).collect();
    let old: Vec<String> = (1..=6).map(|id| format!("64,old,{id},5.{id},Gb/s")).collect();
    let table = format!("pktsize,snabb,id,score,unit\n{}\n{}\n", rows.join("\n"), old.join("\n"));
    let table = sandbox.write("bench.csv", &table);
    let said = sandbox.bellows(&["campaign", "import", &table, "bench.results"]).success().stdout;
    assert_eq!(said, "12 runs: bench.results/campaign.toml\n");
    let said = sandbox.bellows(&["campaign", "report", "bench.results", "--by", "snabb"]).success().stdout;
    assert!(said.contains("12 runs of 2 combinations") && said.contains("Gb/s"), "{said}");
    let said = sandbox.bellows(&["campaign", "import", &table, "bench.results"]);
    assert!(said.code == Some(2) && said.stderr.contains("exists already"), "{said:#?}");
}

#[test]
fn two_programs_are_compared_by_pairs() {
    let sandbox = Sandbox::new();
    let program = |name: &str, rate: u32| {
        let path = programs::script(sandbox.path(name), &format!("#!/bin/sh\necho rate={rate}.$(($1 % 3))\n"));
        path.display().to_string()
    };
    let (old, new) = (program("old", 20), program("new", 30));
    let file = sandbox.write(
        "two.toml",
        r#"
name = "two"
repeats = 8
command = ["{version.program}", "{block}"]
[build]
[factors]
size = ["60", "64"]
[score]
pattern = 'rate=(?<rate>[0-9.]+)'
unit = "Mpps"
better = "higher"
"#,
    );
    let words = ["campaign", "compare", &file, &old, &new];
    let said = sandbox.bellows(&words).success().stdout;
    assert!(said.contains("faster") && said.contains("8 pairs"), "{said}");
    let json =
        sandbox.bellows(&[&words[..], &["--json", "--margin", "2%", "--fail-if-slower"]].concat()).success().json();
    assert_eq!(json["results"].as_array().unwrap().len(), 2, "{json:#}");
    let back = ["campaign", "compare", &file, words[4], words[3], "--fail-if-slower", "--results", "back"];
    let said = sandbox.bellows(&back);
    assert!(said.code == Some(1) && said.stdout.contains("slower"), "{said:#?}");
    let said = sandbox.bellows(&["campaign", "run", &file]);
    assert!(said.code == Some(2) && said.stderr.contains("compare"), "{said:#?}");
    // Of many combinations, those without a difference have a line of their own only if they are asked for.
    let sizes: Vec<String> = (1..=13).map(|size| size.to_string()).collect();
    let text = fs::read_to_string(&file).unwrap().replace("\"60\", \"64\"", &sizes.join(", "));
    let many = sandbox.write("many.toml", &text.replace("repeats = 8", "repeats = 2"));
    let words = ["campaign", "compare", &many, &old, &program("same", 20)];
    let (some, all) =
        (sandbox.bellows(&words).success().stdout, sandbox.bellows(&[&words[..], &["--all"]].concat()).success());
    assert!(some.contains("13 figures") && !some.contains("size 7: "), "{some}");
    let listed = (1..=13).filter(|size| all.stdout.contains(&format!("size {size}: no difference"))).count();
    assert_eq!(listed, 13, "{}", all.stdout);
}

/// A build whose benchmarks report these clocks a packet and as many Mpps, and a program that has none.
fn build(sandbox: &Sandbox, name: &str, clocks: u32) -> String {
    let report = format!(
        r#"{{"bench":"$2","results":[
            {{"case":"one","unit":"clocks/packet","median":{clocks}.$(($$ % 10)),"labels":{{"words":"$*","clocks":1.5}}}},
            {{"case":"two","unit":"Mpps","median":{clocks}.5,"labels":{{}}}}]}}"#
    );
    let script = format!("#!/bin/sh\n[ \"$2\" != none ] || exit 9\ncat <<END\n{report}\nEND\nexit 3\n");
    programs::script(sandbox.path(name), &script).display().to_string()
}

#[test]
fn two_builds_are_compared_by_a_benchmark() {
    let sandbox = Sandbox::new();
    let (old, new) = (build(&sandbox, "old", 40), build(&sandbox, "new", 20));
    let compare = |words: &[&str]| sandbox.bellows(&[&["campaign", "compare"], words].concat());
    let said = compare(&["--bench", "engine --case 'a b{c}'", &old, &new, "--all"]).success().stdout;
    assert!(said.contains("one (words bench engine --case a b{c} --processes 1 --json): "), "{said}");
    assert!(said.contains("% faster") && said.contains("% slower") && said.contains("15 pairs"), "{said}");
    // Nothing but the builds is kept, and what is given is.
    assert!(!sandbox.path("bench.results").exists() && sandbox.path("bench.builds").exists());
    let kept = ["--repeats", "2", "--results", "kept", "--builds", "built"];
    let said = compare(&[&["--bench", "breathsim --processes=3", &old, &new, "--json"], &kept[..]].concat()).success();
    assert!(said.stdout.contains("words breathsim --processes=3 --json"), "{said:?}");
    assert!(sandbox.path("kept/results.csv").exists() && sandbox.path("built").exists());
    // More packets a second are better, and so are fewer clocks.
    let said = compare(&["--bench", "l2vpn --case two", &new, &old, "--fail-if-slower"]);
    assert!(said.code == Some(1) && said.stdout.contains("--orders 1"), "{said:?}");
    // This program is the new one.
    let said = compare(&["--bench", "history --case other --tees 1 --rounds 2", "old", "--repeats", "1"]);
    assert_eq!(said.code, Some(0), "{said:?}");

    let said = compare(&["--bench", "engine", &old, &new, &new]);
    assert!(said.code == Some(2) && said.stderr.contains("two versions at most"), "{said:?}");
    let said = compare(&["--bench", "engine", "nowhere", &new]);
    assert!(said.code == Some(2) && said.stderr.contains("OLD") && said.stderr.contains("nowhere"), "{said:?}");
    let said = compare(&["--bench", "none", &old, &new, "--repeats", "2"]).stdout;
    assert!(said.contains("exit") && said.contains("9"), "{said}");
}

#[test]
fn the_number_of_runs_for_a_difference_follows_from_the_scatter() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("rates.toml", &RATES.replace("repeats = 2", "repeats = 6"));
    sandbox.bellows(&["campaign", "run", &file]).success();
    let needed = |effect: &str| {
        let words = ["campaign", "power", &file, "--by", "size", "--effect", effect, "--json"];
        sandbox.bellows(&words).success().json()["repeats"].as_u64().unwrap()
    };
    assert!(needed("0.05") > needed("0.5") && needed("0.5") >= 2);
    let said = sandbox.bellows(&["campaign", "power", &file, "--by", "size", "--effect", "2 percent"]);
    assert!(said.code == Some(2) && said.stderr.contains("2%"), "{said:#?}");
}

#[cfg(not(feature = "nats"))]
#[test]
fn a_build_without_queues_says_how_to_get_them() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("rates.toml", RATES);
    for action in ["run", "worker", "status", "purge"] {
        let said = sandbox.bellows(&["campaign", action, &file, "--queue", "nats://127.0.0.1:1"]);
        assert!(said.code == Some(2) && said.stderr.contains("--features nats"), "{said:#?}");
    }
    assert!(!sandbox.path("rates.results").exists());
}

#[cfg(feature = "nats")]
#[test]
fn workers_make_the_runs_of_a_queue() {
    if !bellows_testkit::programs::has_program("workers_make_the_runs_of_a_queue", "nats-server") {
        return;
    }
    let sandbox = Sandbox::new();
    let program = bellows_testkit::programs::find_program("nats-server").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let store = sandbox.path("store");
    let mut server = std::process::Command::new(program);
    server.args(["--jetstream", "--addr", "127.0.0.1", "--port", &port.to_string(), "--store_dir"]).arg(&store);
    let _server = Killed(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("a server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("nats://127.0.0.1:{port}");
    let file = sandbox.write("rates.toml", &RATES.replace("repeats = 2", "repeats = 4"));
    let coordinator = sandbox.command(&["campaign", "run", &file, "--queue", &url]).stdout(Stdio::piped()).spawn();
    let coordinator = coordinator.unwrap();
    let status = || sandbox.bellows(&["campaign", "status", &file, "--queue", &url, "--json"]);
    eventually("a queue", || status().code == Some(0));
    let found = status().success().json();
    assert_eq!([&found["queue"]["name"], &found["queue"]["blocks_waiting"]], [&json!("rates"), &json!(4)], "{found:#}");
    let text = sandbox.bellows(&["campaign", "status", &file, "--queue", &url]).success().stdout;
    assert!(text.contains("queue rates at nats://127.0.0.1") && text.contains("4 blocks wait"), "{text}");
    let worked = sandbox.bellows(&["campaign", "worker", &file, "--queue", &url]).success().stdout;
    assert!(worked.contains("8 runs of 4 whole blocks; the queue is gone"), "{worked}");
    let output = coordinator.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("8 of 8 runs have results; 8 were made now"), "{said}");
    let purged = sandbox.bellows(&["campaign", "purge", &file, "--queue", &url]);
    assert!(purged.code == Some(2) && purged.stderr.contains("has no queue `rates`"), "{purged:#?}");
}

/// A process that ends with the test.
#[cfg(feature = "nats")]
struct Killed(std::process::Child);

#[cfg(feature = "nats")]
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
