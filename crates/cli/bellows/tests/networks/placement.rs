//! `place`: workers for apps, from their measured costs.

use std::fs;

use bellows_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{Running, Said, Sandbox};

/// Two chains of apps that take time.
const CHAINS: &str = r#"# Two chains.
links = [
  "first.output -> north.input",
  "north.output -> north-end.input",
  "second.output -> south.input",
  "south.output -> south-end.input",
]
[apps.first]
app = "source"
headers = "ipv4"
size = 60
[apps.north]
app = "counter" # counts
[apps.north-end]
app = "sink"
[apps.second]
app = "source"
headers = "ipv4"
size = 60
[apps.south]
app = "counter"
[apps.south-end]
app = "sink"
"#;

/// What `place --json` says with these options.
fn placed(sandbox: &Sandbox, options: &[&str]) -> Value {
    sandbox.place(&[&["--json"], options].concat()).success().json()
}

/// The apps of each worker.
fn apps(plan: &Value) -> Vec<Value> {
    plan["workers"].as_array().unwrap().iter().map(|worker| worker["apps"].clone()).collect()
}

fn refused(said: &Said, wanted: &str) {
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.stderr.contains(wanted), "`{wanted}` is not in {said:#?}");
}

fn start<'s>(sandbox: &'s Sandbox, more: &[&str]) -> (Running<'s>, String) {
    let network = sandbox.write("chains.toml", CHAINS);
    let running = sandbox.start(&[&[network.as_str()], more].concat());
    (running, network)
}

#[test]
fn two_chains_get_two_workers() {
    let sandbox = Sandbox::new();
    let (running, network) = start(&sandbox, &[]);
    let chains = [json!(["first", "north", "north-end"]), json!(["second", "south", "south-end"])];

    // Equal costs are measured as equal once single interruptions no longer matter.
    eventually("samples", || running.counters()["engine"]["sampled_breaths"].as_u64().unwrap() > 500);
    let shown = placed(&sandbox, &["--workers", "2"]);
    assert_eq!(apps(&shown["proposed"]), chains);
    assert_eq!((&shown["exact"], &shown["written"]), (&json!(true), &json!([])));
    // A machine with one processor, or a busy one, has no measured cost, but a reason.
    let crossing = &shown["crossing"];
    let has_pairs = crossing["pairs"].as_array().is_some_and(|pairs| !pairs.is_empty());
    assert_eq!(
        (has_pairs, has_pairs),
        (crossing["measured"] == true, crossing["why_assumed"].is_null()),
        "{crossing:#}"
    );
    assert!(crossing["send"].as_f64().unwrap() > 0.0, "{crossing:#}");
    let clocks = |plan: &Value| plan["workers"][0]["clocks_per_packet"].as_f64().unwrap();
    assert!(clocks(&shown["proposed"]) < 0.8 * clocks(&shown["today"]), "{shown:#}");
    assert_eq!(fs::read_to_string(&network).unwrap(), CHAINS, "nothing is written without --write");
    refused(&sandbox.place(&["--check"]), "no placement has been written");

    let said = sandbox.place(&["chains", "--workers", "2", "--write", "--no-cpus"]).success();
    assert!(said.stderr.contains("written to") && said.stderr.contains("bellows reload chains"), "{said:#?}");
    let written = fs::read_to_string(&network).unwrap();
    assert!(written.starts_with("# Two chains.\n") && written.contains("\"counter\" # counts"), "{written}");
    assert_eq!(written.matches("worker = \"worker-1\"\n").count(), 3, "{written}");
    assert!(written.contains("[workers.worker-1]") && !written.contains("cpu"), "{written}");
    refused(&sandbox.place(&["--check"]), "runs on `main`, not on `worker-1`");
    refused(&sandbox.place(&["--workers", "1", "--write"]), "has changed since the network read it");

    sandbox.bellows(&["reload"]).success();
    let checked = sandbox.place(&["--check", "--json"]).success().json();
    for plan in [&checked["expected"], &checked["measured"]] {
        assert_eq!(apps(plan), chains, "{checked:#}");
        for worker in plan["workers"].as_array().unwrap() {
            assert!(worker["clocks_per_packet"].as_f64().unwrap() > 1.0, "{checked:#}");
        }
        assert!(plan["packets_per_second"].as_f64().unwrap() > 1e4, "{checked:#}");
    }
    // Other processes share the machine, so this finds wrong units and sums rather than wrong models.
    let ratio = clocks(&checked["measured"]) / clocks(&checked["expected"]);
    assert!((0.2..5.0).contains(&ratio), "{checked:#}");
    let text = sandbox.place(&["chains", "--check", "--time", "500ms"]).success().stdout;
    assert!(text.contains("EXPECTED  MEASURED") && text.contains("second, south, south-end"), "{text}");

    let again = sandbox.place(&["--workers", "2", "--write", "--no-cpus", "--time", "4s"]).success();
    assert!(again.stderr.contains("has this placement already"), "{again:#?}");
    let folder = running.folder();
    sandbox.bellows(&["stop"]).success();
    running.wait().success();
    assert!(!folder.exists(), "the expectation is gone with the run");
}

#[test]
fn stages_and_the_loop_in_front_of_them_get_one_worker() {
    const ROUTER: &str = r#"
links = [
  "first.output -> ip4-input.input",
  "ip4-input.output -> ip4-lookup.in",
  "ip4-lookup.output -> ip4-rewrite.input",
  "ip4-rewrite.out -> first-end.input",
  "second.output -> south.input",
  "south.output -> south-end.input",
]
[apps.first]
app = "source"
headers = "ipv4"
[apps.ip4-input]
app = "ip4-input"
[apps.ip4-lookup]
app = "ip4-lookup"
vrf = "table"
[apps.ip4-rewrite]
app = "ip4-rewrite"
vrf = "table"
[apps.first-end]
app = "sink"
[apps.second]
app = "source"
[apps.south]
app = "counter"
[apps.south-end]
app = "sink"
[objects.table]
object = "vrf"
routes = ["default via 192.0.2.2"]
[objects.table.interfaces.out]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
neighbours = { "192.0.2.2" = "04:00:00:00:00:01" }
"#;
    let sandbox = Sandbox::new();
    let network = sandbox.write("router.toml", ROUTER);
    let running = sandbox.start(&[network.as_str()]);
    let names = |running: &Running<'_>| -> Vec<String> {
        let counters = running.counters();
        let apps = counters["apps"].as_array().unwrap().iter();
        apps.map(|app| format!("{} on {}", app["name"].as_str().unwrap(), app["worker"].as_str().unwrap())).collect()
    };
    assert!(names(&running).contains(&"ip4-forward on main".to_owned()), "{:?}", names(&running));
    eventually("samples", || running.counters()["engine"]["sampled_breaths"].as_u64().unwrap() > 500);
    sandbox.place(&["--workers", "2", "--write", "--no-cpus", "--keep", "second"]).success();
    let written = fs::read_to_string(&network).unwrap();
    assert!(!written.contains("forward") && !written.contains("join"), "{written}");
    sandbox.bellows(&["reload"]).success();
    let now = names(&running);
    let stages = ["ip4-forward", "ip4-input", "ip4-lookup", "ip4-rewrite"];
    assert!(stages.iter().all(|stage| now.contains(&format!("{stage} on worker-1"))), "{now:?}\n{written}");
    sandbox.place(&["--check"]).success();
}

#[test]
fn options_limit_the_choice() {
    let sandbox = Sandbox::new();
    let (_running, network) = start(&sandbox, &["--set", "apps.north.worker=main"]);
    let kept = placed(&sandbox, &["--workers", "2", "--keep", "south", "--keep", "first"]);
    assert_eq!(kept["proposed"]["workers"][0]["name"], "main");
    let main = kept["proposed"]["workers"][0]["apps"].as_array().unwrap();
    assert!(main.contains(&json!("south")) && main.contains(&json!("first")), "{kept:#}");
    let assumed = placed(&sandbox, &["--workers", "2", "--assume-crossings"]);
    assert_eq!((&assumed["crossing"]["source"], &assumed["crossing"]["send"]), (&json!("assumed"), &json!(20.0)));
    refused(&sandbox.place(&["--keep", "nort"]), "did you mean `north`?");
    refused(&sandbox.place(&["--cpus", "4000"]), "--cpus: there is no processor 4000 for this network");
    refused(&sandbox.place(&["--cpus", "first"]), "give processors, counted from 0");
    refused(&sandbox.place(&["other"]), "no network named `other`");

    let processor = allowed_processor();
    let crowded = sandbox.place(&["--workers", "2", "--cpus", &processor]).success().stdout;
    assert!(crowded.contains("warning: 2 workers share 1 processor"), "{crowded}");

    // The setting would put the app back on the first worker at the reload.
    let contradicting = sandbox.place(&["--workers", "2", "--keep", "second", "--write", "--no-cpus"]);
    refused(&contradicting, "was started with `--set apps.north.worker=main`");
    assert_eq!(fs::read_to_string(network).unwrap(), CHAINS);
}

/// A processor that this process may use.
fn allowed_processor() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split([',', '-']).next().unwrap().to_owned()
}

#[test]
fn a_file_that_cannot_be_written_stays() {
    let sandbox = Sandbox::new();
    let (_running, network) = start(&sandbox, &[]);
    placed(&sandbox, &["--workers", "2"]);
    // No file may grow, as on a full disk.
    let limited = Sandbox::of("/bin/sh".into());
    let script = "ulimit -f 0; exec \"$0\" place chains --workers 2 --write";
    let mut command = limited.command(&["-c", script, env!("CARGO_BIN_EXE_bellows")]);
    let output = command.env("BELLOWS_RUNTIME_DIR", sandbox.path("run/bellows")).output().unwrap();
    let said = Said::from(output);
    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!(said.stderr.contains(&format!("cannot write `{network}`")), "{said:#?}");
    assert_eq!(fs::read_to_string(&network).unwrap(), CHAINS);
    let names: Vec<_> = fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "no other file remains: {names:?}");

    fs::remove_file(&network).unwrap();
    let said = sandbox.place(&["--workers", "2", "--write"]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.stderr.contains("cannot read"), "{said:#?}");
}

#[test]
fn an_idle_network_has_too_little_to_go_by() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("idle.toml", crate::support::IDLE);
    let _running = sandbox.start(&[&network]);
    let said = sandbox.bellows(&["place"]);
    refused(&said, "not enough is measured of `idle`");
    refused(&said, "give it load and wait");
}
