//! A virtio device whose pairs of queues two apps share, each on a worker of its own, against the driver of another
//! network: nothing is lost while the apps move, and the device goes on when they change.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use bellows_config::{Configure, Context, Overrides, Registry, load_str};
use bellows_engine::{Control, End, Engine, Settings};
use bellows_rig::Rig;
use bellows_testkit::scratch;
use bellows_testkit::wait::Deadline;
use serde_json::{Value, json};

const FLOWS: usize = 32;

/// Two apps that return what comes, with their queues and the worker of the second one.
const BOTH: [(&str, &str); 2] = [("zero", "[0]"), ("one", "[1]")];

fn network(socket: &Path, apps: &[(&str, &str)], worker: &str, keys: &str) -> String {
    let mut text = "[workers.two]\n".to_owned();
    let mut links = Vec::new();
    for (name, queues) in apps {
        let worker = if *name == "zero" { "main" } else { worker };
        let socket = socket.display();
        text += &format!("[apps.{name}]\napp = \"vhost-user\"\nsocket = \"{socket}\"\nqueues = {queues}\n{keys}\n");
        text += &format!("worker = \"{worker}\"\n[apps.{name}-back]\napp = \"counter\"\nworker = \"{worker}\"\n");
        links.push(format!("{name}.output -> {name}-back.input"));
        links.push(format!("{name}-back.output -> {name}.input"));
    }
    format!("links = {links:?}\n[engine]\nname = \"shared\"\n{text}")
}

fn load(text: &str) -> Result<bellows_engine::Network, String> {
    let registry = bellows_interfaces::register(bellows_basic::register(Registry::new()));
    let loaded = load_str(text, "net.toml", Path::new("."), &registry, &Overrides::default());
    loaded.map(|loaded| loaded.network).map_err(|diagnostics| diagnostics.render(false))
}

fn status(control: &Control, app: &str) -> Value {
    let statuses = control.statuses();
    statuses.iter().find(|status| status.app == app).unwrap_or_else(|| panic!("no {app}")).status.clone()
}

/// The other network: a driver with two pairs of queues.
struct Driver {
    rig: Rig,
    next: u32,
}

impl Driver {
    fn new(socket: &Path) -> Driver {
        let config = json!({ "socket": socket, "queues": 2 });
        let app = bellows_interfaces::virtio_user::VirtioUser::configure(
            serde_json::from_value(config).unwrap(),
            &Context::default(),
        );
        Driver { rig: Rig::new(app.unwrap(), &["input"], &["output"]), next: 0 }
    }

    fn frame(&mut self) -> Vec<u8> {
        let number = self.next;
        self.next += 1;
        let flow = (number as usize % FLOWS) as u8;
        [&[2, 0, 0, 0, 0, flow, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &number.to_be_bytes(), &[0; 42]].concat()
    }

    /// Frames that have returned, by flow.
    fn returned(&mut self) -> Vec<u32> {
        self.rig.breathe();
        let frames = self.rig.received("output");
        frames.iter().map(|frame| u32::from_be_bytes(frame[14..18].try_into().unwrap())).collect()
    }

    /// Sends until frames of all flows return, and then none is on its way any more.
    fn settle(&mut self) {
        let deadline = Deadline::new("frames of all flows");
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < FLOWS {
            deadline.check();
            let frames: Vec<Vec<u8>> = (0..FLOWS).map(|_| self.frame()).collect();
            self.rig.send("input", frames);
            thread::sleep(std::time::Duration::from_millis(2));
            seen.extend(self.returned().into_iter().map(|number| number as usize % FLOWS));
        }
        let mut quiet = 0;
        while quiet < 50 {
            thread::sleep(std::time::Duration::from_millis(1));
            quiet = if self.returned().is_empty() { quiet + 1 } else { 0 };
        }
    }

    /// Sends frames, and calls `meanwhile` now and then. Each must return once, those of a flow in order.
    fn pass(&mut self, mut meanwhile: impl FnMut(usize)) {
        const BATCHES: usize = 200;
        let first = self.next;
        let mut returned = Vec::new();
        for batch in 0..BATCHES {
            let frames: Vec<Vec<u8>> = (0..FLOWS).map(|_| self.frame()).collect();
            self.rig.send("input", frames);
            returned.extend(self.returned());
            meanwhile(batch);
            // No more than the rings have room for.
            let deadline = Deadline::new("frames of a batch");
            while returned.len() + 4 * FLOWS < (self.next - first) as usize {
                deadline.check();
                returned.extend(self.returned());
                thread::yield_now();
            }
        }
        let deadline = Deadline::new("all frames");
        while returned.len() < BATCHES * FLOWS {
            deadline.check();
            returned.extend(self.returned());
            thread::yield_now();
        }
        let mut flows = BTreeMap::<usize, Vec<u32>>::new();
        returned.iter().for_each(|number| flows.entry(*number as usize % FLOWS).or_default().push(*number));
        assert!(flows.values().all(|numbers| numbers.is_sorted()), "a flow out of order");
        returned.sort_unstable();
        assert!(returned.iter().copied().eq(first..self.next), "frames lost or doubled");
    }
}

fn packets(control: &Control, app: &str) -> u64 {
    let rings = status(control, app)["rings"].clone();
    let numbers: Vec<u64> = rings.as_array().unwrap().iter().map(|ring| ring["index"].as_u64().unwrap()).collect();
    assert_eq!(numbers, if app == "zero" { [0, 1] } else { [2, 3] }, "{rings}");
    rings[1]["counters"]["packets"].as_u64().unwrap()
}

fn steer(control: &Control, socket: &Path) {
    let reload = |apps: &[(&str, &str)], worker: &str, keys: &str| {
        control.reload(load(&network(socket, apps, worker, keys)).unwrap()).unwrap()
    };
    let mut driver = Driver::new(socket);
    driver.settle();
    // The second app moves, and keeps its rings.
    driver.pass(|batch| {
        if batch % 20 == 10 {
            let worker = if batch % 40 == 10 { "main" } else { "two" };
            assert_eq!(reload(&BOTH, worker, "").kept.len(), 4);
        }
    });
    let counts = ["zero", "one"].map(|app| packets(control, app));
    assert!(counts.iter().all(|count| *count > 1_000), "both workers have traffic: {counts:?}");
    assert_eq!(status(control, "one")["connections"], 1);

    // Each gets the queues of the other, one is removed, and returns: the driver stays.
    for apps in [&[("zero", "[1]"), ("one", "[0]")][..], &BOTH[..1], &BOTH, &[("zero", "[1, 0]")], &BOTH] {
        let report = reload(apps, "two", "");
        assert_eq!(report.unfinished, []);
        if apps == BOTH {
            driver.settle();
            driver.pass(|_| ());
        }
    }
    assert_eq!(status(control, "zero")["connections"], 1);

    // Other options make another device, to which the driver connects again.
    reload(&BOTH, "two", "disable = [\"packed\"]");
    driver.settle();
    driver.pass(|_| ());
    assert_eq!(status(control, "zero")["connections"], 1);
    let features = status(control, "one")["features"].clone();
    assert!(!features.as_array().unwrap().contains(&json!("packed")), "{features}");
}

#[test]
fn two_apps_on_two_workers_share_a_device() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let loaded = load(&network(&socket, &BOTH, "two", "")).unwrap();
    let mut engine = Engine::new(loaded, Settings::default(), None).unwrap();
    let control = engine.control();
    let steering = thread::spawn(move || {
        let stop = bellows_testkit::wait::Defer(|| control.stop());
        steer(&control, &socket);
        drop(stop);
    });
    let end = engine.run();
    steering.join().unwrap();
    assert!(matches!(end, End::Stopped), "{end:?}");
}

#[test]
fn lists_that_do_not_fit_together_are_explained() {
    let folder = scratch();
    let socket = folder.path().join("s");
    let refused = |apps: &[(&str, &str)]| load(&network(&socket, apps, "two", "")).expect_err("an error");
    let said = refused(&[("zero", "[0, 1]"), ("one", "[1]")]);
    assert!(said.contains("`zero` and `one` use the same queue 1 of"), "{said}");
    let said = refused(&[("zero", "[0]"), ("one", "[2]")]);
    assert!(said.contains("no app uses queue 1 of"), "{said}");
    let said = refused(&[("zero", "[0]"), ("one", "2")]);
    assert!(said.contains("is the socket that `zero` uses"), "{said}");
    let keys = |worker: &str| network(&socket, &BOTH, worker, "confine = false").replacen("confine = false\n", "", 1);
    let said = load(&keys("two")).expect_err("an error");
    assert!(said.contains("different values of `confine`"), "{said}");
}
