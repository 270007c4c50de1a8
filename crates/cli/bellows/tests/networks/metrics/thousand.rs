//! A scrape of a network with 1,000 apps.

use std::time::{Duration, Instant};

use crate::metrics::exposition::samples;
use crate::support::metrics::Server;
use crate::support::{Sandbox, Signal};

const APPS: usize = 1_000;

/// The time of a scrape that a release must keep. A build for debugging takes many times as long.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 20 });

/// A source, a chain of tees, and a sink.
fn chain() -> String {
    let name = |index: usize| match index {
        0 => "source".to_owned(),
        index if index == APPS - 1 => "end".to_owned(),
        index => format!("app{index}"),
    };
    let links = (1..APPS).map(|index| format!("\"{}.output -> {}.input\"", name(index - 1), name(index)));
    let mut text = format!("links = [{}]\n", links.collect::<Vec<_>>().join(",\n"));
    text += "[apps.source]\napp = \"source\"\nsize = 60\nrate = \"10kpps\"\n[apps.end]\napp = \"sink\"\n";
    (1..APPS - 1).for_each(|index| text += &format!("[apps.app{index}]\napp = \"tee\"\n"));
    text
}

#[test]
fn a_thousand_apps_are_scraped_in_time() {
    let sandbox = Sandbox::new();
    let running = sandbox.start(&[&sandbox.write("chain.toml", &chain()), "--cpu", "0"]);
    let server = Server::start(&sandbox, &[]);
    let mut times = Vec::new();
    let (mut own, mut length) = (0.0, 0);
    for _ in 0..if cfg!(debug_assertions) { 3 } else { 30 } {
        let start = Instant::now();
        let text = server.get("/metrics", "").body;
        times.push(start.elapsed());
        let found = samples(&text);
        let apps = found.keys().filter(|name| name.starts_with("bellows_app_in_packets_total"));
        assert_eq!(apps.count(), APPS);
        (own, length) = (found["bellows_scrape_duration_seconds"], found.len());
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    println!(
        "a scrape of {APPS} apps, {length} samples: {:.1} ms from the request to the end of the answer (median; the \
         longest {:.1} ms), {:.1} ms of them to read and write the metrics",
        1e3 * median.as_secs_f64(),
        1e3 * times[times.len() - 1].as_secs_f64(),
        1e3 * own,
    );
    assert!(median <= LIMIT, "{median:?}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code, Some(0));
}
