//! The metrics are the counters that `show --json` has.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::{fs, thread};

use bellows_testkit::eventually;
use bellows_testkit::wait::{Watchdog, output};
use serde_json::Value;

use crate::support::metrics::{Server, get};
use crate::support::{Running, Sandbox, Signal, signal};

/// A network with drops of two kinds, a count and gauges of apps, and two workers.
pub const BUSY: &str = r#"
links = [
  "source.output -> copy.input",
  "copy.a -> shaper.input",
  "copy.b -> cut.input",
  "shaper.output -> end.input",
  "cut.output -> out.input",
]
[workers.other]
[apps.source]
app = "source"
size = 60
rate = "50kpps"
[apps.copy]
app = "tee"
[apps.shaper]
app = "rate-limiter"
rate = "10kpps"
[apps.cut]
app = "truncate"
length = 40
worker = "other"
[apps.out]
app = "sink"
worker = "other"
[apps.end]
app = "sink"
"#;

/// Samples by name and labels, as they are written.
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value in {line}"));
        let value: f64 = value.parse().unwrap_or_else(|error| panic!("{error} in {line}"));
        assert_eq!(samples.insert(name.to_owned(), value), None, "{line} occurs twice");
    }
    samples
}

/// A network whose counters stand still: its process is stopped after some packets.
pub fn stopped<'a>(sandbox: &'a Sandbox, words: &[&str], packets: u64) -> (Running<'a>, Value) {
    let running = sandbox.start(words);
    eventually("some packets", || {
        let counters = running.counters();
        counters["links"].as_array().unwrap().iter().all(|link| link["packets"].as_u64() > Some(packets))
    });
    running.signal(Signal::STOP);
    eventually("the stop", || running.counters()["state"] == "stopped");
    let counters = running.counters();
    (running, counters)
}

/// What `show --json` says must be in the metrics, by the names of its keys.
pub fn assert_same(samples: &BTreeMap<String, f64>, shown: &Value) {
    let network = shown["name"].as_str().unwrap();
    let mut compared = 0;
    let mut same = |name: &str, labels: &str, value: f64| {
        let sample = format!("{name}{{network=\"{network}\"{labels}}}");
        let found = samples.get(&sample).unwrap_or_else(|| panic!("no {sample}"));
        assert!((found - value).abs() <= 1e-9 * value.abs().max(1.0), "{sample} is {found}, not {value}");
        compared += 1;
    };
    let number = |value: &Value| value.as_f64().unwrap();
    let engine = |name: &str| number(&shown["engine"][name]);
    same("bellows_pool_buffers", "", engine("buffers"));
    same("bellows_pool_buffers_in_use", "", engine("buffers_in_use"));
    same("bellows_pool_buffers_lent", "", engine("buffers_lent"));
    same("bellows_pool_large_buffers", "", engine("large_buffers"));
    same("bellows_pool_large_buffers_in_use", "", engine("large_buffers_in_use"));
    same("bellows_network_reloads_total", "", engine("reloads"));
    same("bellows_network_started_timestamp_seconds", "", engine("started") / 1e9);
    same("bellows_network_clock_hertz", "", number(&shown["ticks_per_second"]));
    for worker in shown["workers"].as_array().unwrap() {
        let labels = format!(",worker=\"{}\"", worker["name"].as_str().unwrap());
        let counters = &worker["counters"];
        for (name, key) in [
            ("bellows_worker_breaths_total", "breaths"),
            ("bellows_worker_idle_breaths_total", "idle_breaths"),
            ("bellows_worker_sleeps_total", "sleeps"),
            ("bellows_worker_sampled_breaths_total", "sampled_breaths"),
            ("bellows_worker_slow_breaths_total", "slow_breaths"),
            ("bellows_worker_standstills_total", "standstills"),
            ("bellows_worker_from_other_nodes_packets_total", "from_other_nodes"),
        ] {
            same(name, &labels, number(&counters[key]));
        }
        same("bellows_worker_sleep_seconds_total", &labels, number(&counters["sleep_ns"]) / 1e9);
    }
    for link in shown["links"].as_array().unwrap() {
        let labels = format!(",link=\"{} -> {}\"", link["from"].as_str().unwrap(), link["to"].as_str().unwrap());
        for (name, key) in [
            ("bellows_link_packets_total", "packets"),
            ("bellows_link_bytes_total", "bytes"),
            ("bellows_link_txdrop_packets_total", "txdrop"),
            ("bellows_link_waiting_packets", "waiting"),
            ("bellows_link_waiting_bytes", "waiting_bytes"),
        ] {
            same(name, &labels, number(&link[key]));
        }
    }
    let lists = ["apps", "crossings"].map(|key| shown[key].as_array().unwrap().clone());
    let mut dropped = 0.0;
    for (app, is_app) in lists[0].iter().map(|app| (app, true)).chain(lists[1].iter().map(|app| (app, false))) {
        let text = |key: &str| app[key].as_str().unwrap();
        let labels = format!(",app=\"{}\",type=\"{}\"", text("name"), text("kind"));
        for (name, key) in [
            ("bellows_app_in_packets_total", "in_packets"),
            ("bellows_app_in_bytes_total", "in_bytes"),
            ("bellows_app_out_packets_total", "out_packets"),
            ("bellows_app_out_bytes_total", "out_bytes"),
            ("bellows_app_made_packets_total", "made"),
            ("bellows_app_ended_packets_total", "ended"),
            ("bellows_app_held_packets", "held"),
            ("bellows_app_leaked_packets", "leaked"),
            ("bellows_app_uncounted_packets", "uncounted"),
            ("bellows_app_panics_total", "panics"),
            ("bellows_app_sleeps_total", "sleeps"),
        ] {
            same(name, &labels, number(&app[key]));
        }
        same("bellows_app_failed", &labels, f64::from(u8::from(text("state") == "failed")));
        same("bellows_app_degraded", &labels, 0.0);
        same("bellows_app_info", &format!("{labels},worker=\"{}\"", text("worker")), 1.0);
        let drops = app["drops"].as_object().unwrap();
        for (reason, count) in drops {
            same("bellows_app_dropped_packets_total", &format!("{labels},reason=\"{reason}\""), number(count));
            dropped += if is_app { number(count) } else { 0.0 };
        }
        let lost: f64 = app["lost"].as_object().unwrap().values().map(number).sum();
        same("bellows_app_lost_packets_total", &labels, lost);
        for (entry, calls) in app["calls"].as_object().unwrap() {
            if number(calls) == 0.0 {
                continue;
            }
            let labels = format!("{labels},entry=\"{entry}\"");
            same("bellows_app_calls_total", &labels, number(calls));
            for what in ["calls", "packets", "clocks", "outlier_calls", "outlier_clocks"] {
                let name = format!("bellows_app_sampled_{what}_total");
                same(&name, &labels, number(&app["account"][format!("{entry}_{what}")]));
            }
        }
    }
    same("bellows_network_dropped_packets_total", "", dropped);
    for (which, histogram) in shown["histograms"].as_object().unwrap() {
        // Over all workers.
        let classes = histogram["classes"].as_array().unwrap();
        let sum = |ending: &str| -> f64 {
            let start = format!("bellows_{which}_seconds{ending}");
            samples.iter().filter(|(name, _)| name.starts_with(&start)).map(|(_, value)| value).sum()
        };
        let count: f64 = classes.iter().map(|class| number(&class[1])).sum();
        assert_eq!(sum("_count"), count, "{which}");
        let exact: f64 = classes.iter().map(|class| number(&class[0]) * number(&class[1])).sum::<f64>() / 1e9;
        assert!((sum("_sum") - exact).abs() <= 0.04 * exact, "{which}: {} is far from {exact}", sum("_sum"));
        let below = classes.iter().filter(|class| number(&class[0]) <= 1e6).map(|class| number(&class[1]));
        let bucket: f64 = samples
            .iter()
            .filter(|(name, _)| name.starts_with(&format!("bellows_{which}_seconds_bucket")))
            .filter(|(name, _)| name.contains("le=\"0.001\""))
            .map(|(_, value)| value)
            .sum();
        assert_eq!(bucket, below.sum::<f64>(), "{which}");
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn metrics_are_the_counters_of_a_network() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("busy.toml", BUSY);
    let (running, shown) = stopped(&sandbox, &[&network], 1_000);
    let text = sandbox.bellows(&["metrics"]).success().stdout;
    let samples = samples(&text);
    assert_same(&samples, &shown);
    // What types of apps declare.
    let own = |app: &str, counter: &str| {
        let apps = shown["apps"].as_array().unwrap();
        let app = apps.iter().find(|found| found["name"] == app).unwrap();
        app["counters"][counter].as_f64().unwrap()
    };
    let cut = samples["bellows_truncate_cut_packets_total{network=\"busy\",app=\"cut\",type=\"truncate\"}"];
    assert!(cut > 0.0 && cut == own("cut", "cut"), "{cut}");
    // Ports are the ends of the network.
    let ports = |which: &str, port: &str, kind: &str| {
        samples[&format!("bellows_port_{which}_total{{network=\"busy\",port=\"{port}\",type=\"{kind}\"}}")]
    };
    assert!(ports("received_packets", "source", "source") > 1_000.0 && ports("sent_bytes", "end", "sink") > 0.0);
    assert!(!text.contains("port=\"copy\""));
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let build = samples.keys().find(|name| name.starts_with("bellows_build_info")).unwrap();
    let program = sandbox.bellows(&["--version"]).success().stdout;
    let (_, built) = program.trim_end().trim_end_matches(')').split_once(" (").unwrap();
    let (revision, features) = built.split_once("; features: ").unwrap();
    assert_eq!(*build, format!("bellows_build_info{{{version},revision=\"{revision}\",features=\"{features}\"}}"));
    // The process is stopped, and its counters can be read.
    assert_eq!(samples["bellows_network_up{network=\"busy\"}"], 1.0);
    assert_eq!(samples["bellows_network_health{network=\"busy\",state=\"stalled\"}"], 1.0);
    assert_eq!(samples["bellows_network_health{network=\"busy\",state=\"running\"}"], 0.0);
    running.signal(Signal::CONT);
}

/// Large buffers are a small part of the pool: their use is no part of it that anybody sees among all.
#[test]
fn large_buffers_have_metrics_of_their_own() {
    const LARGE: &str = r#"
links = ["source.output -> queue.input", "queue.output -> end.input"]
[apps.source]
app = "source"
size = 9000
rate = "10kpps"
[apps.queue]
app = "delay"
time = "1h"
[apps.end]
app = "sink"
"#;
    let sandbox = Sandbox::new();
    let running = sandbox.start(&[&sandbox.write("large.toml", LARGE)]);
    let scraped = || samples(&sandbox.bellows(&["metrics"]).success().stdout);
    let of = |found: &BTreeMap<String, f64>, name: &str| found[&format!("bellows_pool_{name}{{network=\"large\"}}")];
    eventually("all large buffers in use", || {
        let found = scraped();
        let [large, in_use] = ["large_buffers", "large_buffers_in_use"].map(|name| of(&found, name));
        large > 0.0 && in_use == large && of(&found, "buffers_in_use") < 0.1 * of(&found, "buffers")
    });
    let shown = sandbox.bellows(&["show", "counters", "large"]).success().stdout;
    let told = sandbox.bellows(&["show", "large"]).success().stdout;
    assert!(told.contains("512 of 512 large ones taken"), "{told}");
    assert!(shown.contains("large_buffers_in_use"), "{shown}");
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn both_formats_have_the_same_samples() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("busy.toml", BUSY);
    let (_running, _) = stopped(&sandbox, &[&network], 1_000);
    let server = Server::start(&sandbox, &[]);
    let text = server.get("/metrics", "");
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n";
    let open = server.get("/metrics", accept);
    assert_eq!((text.status, open.status), (200, 200));
    assert!(text.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", text.head);
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(open.head.contains(kind), "{}", open.head);
    assert!(open.body.ends_with("\n# EOF\n") && !text.body.contains("# EOF"));
    assert!(open.body.contains("# UNIT bellows_link_bytes bytes\n"));
    let without_time = |text: &str| {
        let mut samples = samples(text);
        assert!(samples.remove("bellows_scrape_duration_seconds").is_some());
        samples
    };
    assert_eq!(without_time(&text.body), without_time(&open.body));
    assert_eq!(server.get("/metrics", "Origin: http://attacker.example\r\n").status, 403);
    assert!(server.get("/", "").body.contains("/health"));
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_file_is_replaced_and_removed_at_the_end() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("busy.toml", BUSY);
    let running = sandbox.start(&[&network]);
    let path = sandbox.path("bellows.prom");
    let file = path.display().to_string();
    sandbox.bellows(&["metrics", "--file", &file]).success();
    let packets = || {
        let samples = samples(&fs::read_to_string(&path).unwrap());
        samples["bellows_link_packets_total{network=\"busy\",link=\"source.output -> copy.input\"}"]
    };
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    let first = packets();
    let mut child = sandbox.command(&["metrics", "--file", &file, "--every", "50ms"]).spawn().unwrap();
    let _watchdog = Watchdog::new(&child);
    // Whoever reads meanwhile finds a whole file.
    eventually("a newer file", || packets() > first + 1_000.0);
    let count = |folder: &std::path::Path| fs::read_dir(folder).unwrap().count();
    let folder = sandbox.path("");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!path.exists());
    assert_eq!(count(&folder), 2, "only the network's file and the runtime directory are there");
    drop(running);
    let said = sandbox.bellows(&["metrics", "--file", &sandbox.path("none/x.prom").display().to_string()]);
    assert!(said.code == Some(1) && said.stderr.contains("check the path, or create the folder"), "{said:?}");
    let said = sandbox.bellows(&["metrics", "--file", &sandbox.path("x.txt").display().to_string()]).success();
    assert!(said.stderr.contains(".prom"), "{said:?}");
}

/// The folder of a textfile collector may be writable by others.
#[test]
fn a_file_is_written_through_no_link_of_others_and_all_may_read_it() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("collected");
    fs::create_dir(&folder).unwrap();
    let victim = sandbox.write("victim", "precious");
    // The shell's process becomes that of the command, so its number is known before.
    let script = "umask 077; ln -s \"$0\" \".bellows.prom.$$\"; ln -s \"$0\" bellows.prom; exec \"$@\"";
    let inner = sandbox.command(&["metrics", "--file", "bellows.prom"]);
    let mut command = Command::new("sh");
    command.args(["-c", script, &victim]).arg(inner.get_program()).args(inner.get_args()).current_dir(&folder);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let said = output(&mut command).unwrap();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    let written = fs::symlink_metadata(folder.join("bellows.prom")).unwrap();
    assert!(written.is_file() && written.permissions().mode() & 0o777 == 0o644, "{written:?}");
    assert!(fs::read_to_string(folder.join("bellows.prom")).unwrap().contains("bellows_build_info"));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing but the link stays beside the file");
}

#[test]
fn a_period_of_0_writes_nothing() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("bellows.prom");
    let said = sandbox.bellows(&["metrics", "--file", &path.display().to_string(), "--every", "0s"]);
    assert!(said.code == Some(2) && said.stderr.contains("such as 15s"), "{said:?}");
    assert!(!path.exists());
}

#[test]
fn a_token_and_an_address_are_checked() {
    let sandbox = Sandbox::new();
    let token = sandbox.write("token", "0123456789abcdef\n");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&sandbox, &["--token-file", &token]);
    assert_eq!(server.get("/metrics", "").status, 401);
    assert_eq!(server.get("/metrics?token=0123456789abcdef", "").status, 401);
    // Silent clients take no place from those that know the token.
    let _held: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(&server.place).unwrap()).collect();
    assert_eq!(server.get("/metrics", "Authorization: Bearer 0123456789abcdef\r\n").status, 200);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let said = sandbox.bellows(&["metrics", "--listen", "127.0.0.1:0", "--token-file", &token]);
    assert!(said.code == Some(2) && said.stderr.contains("`chmod 600 "), "{said:?}");
    let said = sandbox.bellows(&["metrics", "--listen", &server.place]);
    assert!(said.code == Some(2) && said.stderr.contains("another address or port"), "{said:?}");
    let said = sandbox.bellows(&["metrics", "--listen", "9400"]);
    assert!(said.code == Some(2) && said.stderr.contains("127.0.0.1:9400"), "{said:?}");
    let said = sandbox.bellows(&["metrics", "--every", "1s"]);
    assert!(said.code == Some(2) && said.stderr.contains("--file"), "{said:?}");
}

#[test]
fn a_server_ends_by_a_signal_while_it_is_scraped() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &[]);
    let place = server.place.clone();
    let scraper = thread::spawn(move || {
        let mut scrapes = 0;
        while std::net::TcpStream::connect(&place).is_ok() {
            let asked = std::panic::catch_unwind(|| get(&place, "/metrics", ""));
            if asked.is_err() {
                break;
            }
            scrapes += 1;
        }
        scrapes
    });
    thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(server.end(), Some(0));
    assert!(scraper.join().unwrap() > 3);
    let said = sandbox.command(&["metrics"]).stdout(Stdio::null()).status().unwrap();
    assert!(said.success(), "without a network there are metrics of the program itself");
}
