//! A router without traffic: what it takes of a processor, and how often it wakes up.

use std::fs;
use std::time::{Duration, Instant};

use bellows_testkit::skips::skip_here;

use crate::bridge::is_missing;
use crate::host::{HOSTS, Hosted, ROUTER};
use crate::support::Running;

const NAME: &str = "idle::a_router_without_traffic_takes_next_to_nothing_of_a_processor";

/// The time in which the router must come to rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// The share of a processor that an idle router may take.
const MAX_SHARE: f64 = 0.005;

/// Its threads' sleeps in a second.
const MAX_WAKE_UPS: f64 = 12.0;

/// What a wake-up without work takes of a processor where `MAX_SHARE` can be judged, in nanoseconds. It is some 10 µs,
/// and a multiple of that on a virtual machine whose host is busy.
const QUIET: u64 = 30_000;

/// The time of a measurement.
const SPAN: Duration = Duration::from_secs(3);

/// What the threads of a process have used.
#[derive(Clone, Copy, Debug)]
struct Used {
    at: Instant,
    /// On a processor.
    nanos: u64,
    /// Sleeps that have ended.
    sleeps: u64,
}

impl Used {
    fn by(running: &Running<'_>) -> Used {
        let (mut nanos, mut sleeps) = (0, 0);
        for thread in fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap().flatten() {
            // A thread may end meanwhile.
            let read = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let first = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let (times, status) = (read("schedstat"), read("status"));
            nanos += first(&times);
            sleeps += status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).map_or(0, first);
        }
        Used { at: Instant::now(), nanos, sleeps }
    }

    /// The share of a processor, and sleeps a second, since an earlier time.
    fn since(&self, before: &Used) -> (f64, f64) {
        let seconds = (self.at - before.at).as_secs_f64();
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        (per_second(self.nanos, before.nanos) / 1e9, per_second(self.sleeps, before.sleeps))
    }
}

/// Sleeps for a span, in as many parts as the router may. Returns what this thread took of a processor for each part, in
/// nanoseconds.
fn bare_wake_up(span: Duration) -> u64 {
    let parts = (MAX_WAKE_UPS * span.as_secs_f64()) as u32;
    let nanos = || -> u64 {
        let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        times.split_whitespace().next().unwrap().parse().unwrap()
    };
    let before = nanos();
    (0..parts).for_each(|_| std::thread::sleep(span / parts));
    (nanos() - before) / u64::from(parts)
}

/// The host's TAP devices are asked for packets in every breath, unlike packet sockets.
#[test]
fn a_router_without_traffic_takes_next_to_nothing_of_a_processor() {
    if is_missing(NAME, &[]) {
        return;
    }
    let hosted = Hosted::new();
    let running = hosted.start("routes = \"kernel:main\"", ["", ""]);
    // The neighbours are known from here on.
    hosted.hosts[0].run(&format!("ping -c 3 -i 0.2 -W 5 {}", HOSTS[1][0]));
    hosted.hosts[0].run(&format!("ping -c 1 -W 5 {}", ROUTER[0][1]));
    let begin = Instant::now();
    let mut least_bare = u64::MAX;
    // Hosts talk for a while after they have come, and the machine may be busy.
    loop {
        let before = Used::by(&running);
        let bare = bare_wake_up(SPAN);
        let (share, wake_ups) = Used::by(&running).since(&before);
        least_bare = least_bare.min(bare);
        if share <= MAX_SHARE && wake_ups <= MAX_WAKE_UPS {
            break;
        }
        let found = format!(
            "{:.2} % of a processor, {wake_ups:.1} wake-ups a second, where one without work takes {bare} ns",
            100.0 * share,
        );
        eprintln!("{found}");
        if begin.elapsed() > PATIENCE {
            assert!(wake_ups <= MAX_WAKE_UPS && least_bare > QUIET, "the router does not rest: {found}");
            skip_here(NAME, format!("this machine cannot tell what an idle router takes: {found}"));
            break;
        }
    }
    // It is there at once for a packet.
    hosted.hosts[0].run(&format!("ping -c 3 -i 0.2 -W 5 {}", HOSTS[1][0]));
    hosted.stop(running);
}
