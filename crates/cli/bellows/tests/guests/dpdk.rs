//! DPDK's virtio driver on vhost-user ports: frames come back byte by byte, and everything is counted, with all options
//! of its rings, with and without hugepages, with either side listening, and when either side dies.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::vhost::{Network, carried, moved, negotiated, port_status, socket, wait_for_driver};
use crate::support::{Running, Sandbox, Signal};
use bellows_testkit::frames::{self, Frames, assert_same};
use bellows_testkit::hugepages::Hugepages;
use bellows_testkit::skips::{is_left_out, is_skipped, skip_here};
use bellows_testkit::testpmd::{Driver, Launch, Testpmd};
use bellows_testkit::wait::PATIENCE;
use bellows_testkit::{eventually, programs, stream};

/// An Ethernet frame without VLAN tag and checksum.
const LARGEST: usize = 1_514;
const JUMBO: usize = 9_014;

/// A port of testpmd at a socket, and the frames that go there and must come back.
struct Lane {
    driver: Driver,
    name: String,
    frames: Frames,
}

impl Lane {
    fn new(number: usize, driver: Driver, frames: Frames) -> Lane {
        Lane { driver, name: format!("port{number}"), frames }
    }

    fn socket(&self, sandbox: &Sandbox) -> PathBuf {
        socket(sandbox, &self.name)
    }

    fn sent(&self, sandbox: &Sandbox) -> PathBuf {
        sandbox.path(&format!("{}-sent.pcap", self.name))
    }

    fn returned(&self, sandbox: &Sandbox) -> PathBuf {
        sandbox.path(&format!("{}-returned.pcap", self.name))
    }

    /// The driver's port, and one that replays the frames and records those that come back.
    fn devices(&self, sandbox: &Sandbox, number: usize) -> [String; 2] {
        frames::write(&self.sent(sandbox), &self.frames);
        let (sent, returned) = (self.sent(sandbox), self.returned(sandbox));
        let files = format!("rx_pcap={},tx_pcap={}", sent.display(), returned.display());
        let socket = self.socket(sandbox).display().to_string();
        [self.driver.device(number, &socket), format!("net_pcap{number},{files}")]
    }
}

/// Packed or split, mergeable or not, in order or not, vector instructions or not.
fn all_options() -> Vec<Driver> {
    let option = |set: usize, bit: usize| set >> bit & 1 == 1;
    let driver = |set| Driver {
        packed: option(set, 0),
        mergeable: option(set, 1),
        in_order: option(set, 2),
        vectorized: option(set, 3),
        ..Driver::default()
    };
    (0..16).map(driver).collect()
}

/// Lengths from the minimum to the maximum, in an irregular order.
fn mixed(largest: usize) -> impl Fn(usize) -> usize {
    move |number| match number % 4 {
        0 => 60,
        1 => largest,
        _ => 60 + number.wrapping_mul(7_919) % (largest - 59),
    }
}

fn launch(devices: Vec<String>) -> Launch {
    let processors = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = processors.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    Launch {
        cpus: list.trim().to_owned(),
        hugepages: false,
        megabytes: 256,
        devices,
        environment: vec!["--force-max-simd-bitwidth=512".into()],
        // The frames to replay must wait for the start.
        options: ["--total-num-mbufs=32768", "--no-flush-rx"].map(String::from).into(),
    }
}

fn launch_lanes(sandbox: &Sandbox, lanes: &[Lane]) -> Launch {
    let devices = lanes.iter().enumerate().flat_map(|(number, lane)| lane.devices(sandbox, number));
    launch(devices.collect())
}

fn mirrors(sandbox: &Sandbox, lanes: &[Lane], keys: &str) -> String {
    let network =
        lanes.iter().fold(Network::default(), |network, lane| network.mirror(&lane.name, &lane.socket(sandbox), keys));
    sandbox.write("mirrors.toml", &network.text())
}

/// Replays all frames at the same time, and waits until all are back.
fn play(testpmd: &mut Testpmd, lanes: &[Lane]) {
    // A full ring is retried for a second.
    testpmd.commands(&["set fwd io retry", "set burst tx delay 100 retry 10000", "start"]).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let forwarded = testpmd.forwarded().unwrap();
        let is_back = |lane: usize| forwarded.port(2 * lane + 1).1 >= lanes[lane].frames.len() as u64;
        let missing: Vec<usize> = (0..lanes.len()).filter(|lane| !is_back(*lane)).collect();
        if missing.is_empty() {
            break;
        }
        let drivers: Vec<&Driver> = missing.iter().map(|lane| &lanes[*lane].driver).collect();
        assert!(Instant::now() < deadline, "frames are not back: of {drivers:?}, {missing:?} of {forwarded:?}");
    }
    testpmd.command("stop").unwrap();
}

/// Starts a testpmd for these lanes of a running network, and checks content, counters and options.
fn exchange(sandbox: &Sandbox, running: &Running<'_>, lanes: &[Lane], launch: &Launch) {
    let before: Vec<Counted> = lanes.iter().map(|lane| Counted::of(sandbox, running, lane)).collect();
    let mut testpmd = launch.start().unwrap();
    play(&mut testpmd, lanes);
    for (lane, before) in lanes.iter().zip(before) {
        before.check(sandbox, running, lane);
        check_options(sandbox, running, lane);
    }
    testpmd.quit().unwrap();
    for lane in lanes {
        let what = format!("{} {:?}", lane.name, lane.driver);
        assert_same(&what, &frames::read(&lane.returned(sandbox)), &lane.frames);
    }
}

fn check_options(sandbox: &Sandbox, running: &Running<'_>, lane: &Lane) {
    let options = negotiated(sandbox, running, &lane.socket(sandbox));
    let Driver { packed, mergeable, in_order, .. } = lane.driver;
    for (name, wanted) in [("packed", packed), ("mergeable", mergeable), ("in-order", in_order), ("version-1", true)] {
        assert_eq!(options.contains(name), wanted, "{name} with {:?}: {options:?}", lane.driver);
    }
    let status = port_status(sandbox, running, &lane.socket(sandbox));
    for ring in status["rings"].as_array().unwrap().iter().take(2) {
        assert!(ring["instance"].as_str().is_some_and(|name| !name.is_empty()), "{status:#}");
    }
}

/// Packets that have come from the driver of a lane, and gone back to it.
#[derive(Debug, PartialEq)]
struct Counted {
    carried: u64,
    transmitted: u64,
    received: u64,
}

impl Counted {
    fn of(sandbox: &Sandbox, running: &Running<'_>, lane: &Lane) -> Counted {
        let status = port_status(sandbox, running, &lane.socket(sandbox));
        let sum = |direction: &str| moved(&status, direction).iter().sum();
        let carried = carried(running, &format!("{}.input", lane.name));
        Counted { carried, transmitted: sum("transmit"), received: sum("receive") }
    }

    /// Waits until the frames of the lane have been added to all counters: the figures of a ring may be a moment old.
    fn check(self, sandbox: &Sandbox, running: &Running<'_>, lane: &Lane) {
        let frames = lane.frames.len() as u64;
        let Counted { carried, transmitted, received } = self;
        let after =
            Counted { carried: carried + frames, transmitted: transmitted + frames, received: received + frames };
        let what = format!("{after:?} of {} with {:?}", lane.name, lane.driver);
        eventually(&what, || Counted::of(sandbox, running, lane) == after);
    }
}

fn is_missing(test: &str) -> bool {
    is_left_out(test) || is_skipped(test, programs::missing(&["dpdk-testpmd", "stdbuf"]))
}

#[test]
fn every_combination_of_options_returns_every_byte() {
    if is_missing("every_combination_of_options_returns_every_byte") {
        return;
    }
    let sandbox = Sandbox::new();
    let lane = |(number, driver)| Lane::new(number, driver, frames::random(3_000, mixed(LARGEST), number as u64));
    let lanes: Vec<Lane> = all_options().into_iter().enumerate().map(lane).collect();
    let running = sandbox.start(&[&mirrors(&sandbox, &lanes, "")]);
    exchange(&sandbox, &running, &lanes, &launch_lanes(&sandbox, &lanes));
}

#[test]
fn hugepages_serve_as_well() {
    const TEST: &str = "hugepages_serve_as_well";
    if is_missing(TEST) {
        return;
    }
    let _hugepages = match Hugepages::reserve(400) {
        Ok(hugepages) => hugepages,
        // A machine on which hugepages may not be reserved is not at fault.
        Err(why) => return skip_here(TEST, why),
    };
    let sandbox = Sandbox::new();
    let lane = |(number, driver)| Lane::new(number, driver, frames::random(1_000, mixed(LARGEST), number as u64));
    let lanes: Vec<Lane> = all_options().into_iter().enumerate().map(lane).collect();
    let running = sandbox.start(&[&mirrors(&sandbox, &lanes, "")]);
    let launch = Launch { hugepages: true, ..launch_lanes(&sandbox, &lanes) };
    exchange(&sandbox, &running, &lanes, &launch);
}

#[test]
fn large_rings_serve_as_well() {
    if is_missing("large_rings_serve_as_well") {
        return;
    }
    let sandbox = Sandbox::new();
    let lane = |(number, driver)| {
        let driver = Driver { queue_size: 1_024, ..driver };
        Lane::new(number, driver, frames::random(3_000, mixed(LARGEST), number as u64))
    };
    let lanes: Vec<Lane> = all_options().into_iter().take(8).enumerate().map(lane).collect();
    let running = sandbox.start(&[&mirrors(&sandbox, &lanes, "")]);
    exchange(&sandbox, &running, &lanes, &launch_lanes(&sandbox, &lanes));
}

#[test]
fn a_jumbo_frame_spans_several_buffers() {
    if is_missing("a_jumbo_frame_spans_several_buffers") {
        return;
    }
    let sandbox = Sandbox::new();
    let lanes: Vec<Lane> = [(false, false), (false, true), (true, false), (true, true)]
        .map(|(packed, in_order)| Driver { packed, in_order, ..Driver::default() })
        .into_iter()
        .enumerate()
        // All of them together are fewer than the buffers that Bellows has for large packets.
        .map(|(number, driver)| Lane::new(number, driver, frames::random(160, mixed(JUMBO), number as u64)))
        .collect();
    let _running = sandbox.start(&[&mirrors(&sandbox, &lanes, "")]);
    let mut testpmd = launch_lanes(&sandbox, &lanes).start().unwrap();
    testpmd.command("port stop all").unwrap();
    for port in (0..lanes.len()).map(|lane| 2 * lane) {
        let mtu = format!("port config mtu {port} {}", JUMBO - 14);
        testpmd.commands(&[&format!("port config {port} rx_offload scatter on"), &mtu]).unwrap();
    }
    testpmd.command("port start all").unwrap();
    play(&mut testpmd, &lanes);
    testpmd.quit().unwrap();
    for lane in &lanes {
        assert_same(&lane.name, &frames::read(&lane.returned(&sandbox)), &lane.frames);
    }
}

#[test]
fn either_side_may_listen() {
    if is_missing("either_side_may_listen") {
        return;
    }
    let sandbox = Sandbox::new();
    let lane = |(number, driver)| {
        let driver = Driver { server: true, vectorized: false, ..driver };
        Lane::new(number, driver, frames::random(500, mixed(LARGEST), number as u64))
    };
    let lanes: Vec<Lane> = all_options().into_iter().take(4).enumerate().map(lane).collect();
    let running = sandbox.start(&[&mirrors(&sandbox, &lanes, "mode = \"client\"")]);
    exchange(&sandbox, &running, &lanes, &launch_lanes(&sandbox, &lanes));
}

#[test]
fn options_can_be_turned_off() {
    if is_missing("options_can_be_turned_off") {
        return;
    }
    let sandbox = Sandbox::new();
    let everything = Driver { packed: true, mergeable: true, in_order: true, ..Driver::default() };
    let lanes = [Lane::new(0, everything, frames::random(200, mixed(LARGEST), 5))];
    let network = mirrors(&sandbox, &lanes, "disable = [\"packed\", \"mergeable\", \"in-order\"]");
    let running = sandbox.start(&[&network]);
    let mut testpmd = launch_lanes(&sandbox, &lanes).start().unwrap();
    play(&mut testpmd, &lanes);
    let options = negotiated(&sandbox, &running, &lanes[0].socket(&sandbox));
    for name in ["packed", "mergeable", "in-order"] {
        assert!(!options.contains(name), "{options:?}");
    }
    testpmd.quit().unwrap();
    assert_same("without options", &frames::read(&lanes[0].returned(&sandbox)), &lanes[0].frames);
}

/// A network with a port whose packets all end in a sink.
fn drain(sandbox: &Sandbox, port: &Path) -> String {
    let network = Network::default().port("port", port, "").app("end", "sink", "");
    sandbox.write("drain.toml", &network.link("port.output -> end.input").text())
}

#[test]
fn a_flood_is_counted_alike_on_both_sides() {
    if is_missing("a_flood_is_counted_alike_on_both_sides") {
        return;
    }
    let sandbox = Sandbox::new();
    let port = socket(&sandbox, "port");
    let running = sandbox.start(&[&drain(&sandbox, &port)]);
    for (packed, size) in [(false, 64), (true, 64), (false, 1_518), (true, 1_518)] {
        let before = carried(&running, "end.input");
        let driver = Driver { packed, ..Driver::default() };
        let mut testpmd = launch(vec![driver.device(0, &port.display().to_string())]).start().unwrap();
        testpmd.commands(&["set fwd txonly", &format!("set txpkts {size}"), "start"]).unwrap();
        eventually("many packets", || carried(&running, "end.input") - before > 300_000);
        testpmd.command("stop").unwrap();
        let sent = testpmd.command("show port stats 0").unwrap();
        let sent = sent.split("TX-packets:").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        let sent: u64 = sent.parse().unwrap();
        eventually(&format!("{sent} packets of {size} bytes, packed {packed}"), || {
            carried(&running, "end.input") - before == sent
        });
    }
}

#[test]
fn all_packets_for_the_driver_arrive() {
    const PACKETS: u64 = 300_000;
    if is_missing("all_packets_for_the_driver_arrive") {
        return;
    }
    let sandbox = Sandbox::new();
    let drivers = [(false, false), (false, true), (true, false), (true, true)].map(|(packed, mergeable)| Driver {
        packed,
        mergeable,
        ..Driver::default()
    });
    let sockets = [0, 1, 2, 3].map(|number| socket(&sandbox, &format!("port{number}")));
    let ports = |network: Network| {
        let end = network.app("all", "join", "").app("end", "sink", "").link("all.output -> end.input");
        sockets.iter().enumerate().fold(end, |network, (number, socket)| {
            let name = format!("port{number}");
            network.port(&name, socket, "").link(&format!("{name}.output -> all.{name}"))
        })
    };
    // The driver discards the packets in its rings when it starts, so the packets must come later.
    let idle = Network::default().app("none", "source", "rate = 0.0003").link("none.output -> all.none");
    let file = sandbox.write("fill.toml", &ports(idle).text());
    let running = sandbox.start(&[&file]);
    let device =
        |(number, (driver, socket)): (usize, (&Driver, &PathBuf))| driver.device(number, &socket.display().to_string());
    let mut testpmd = launch(drivers.iter().zip(&sockets).enumerate().map(device).collect()).start().unwrap();
    testpmd.commands(&["set fwd rxonly", "start"]).unwrap();
    sockets.iter().for_each(|socket| wait_for_driver(&sandbox, &running, socket));

    // A source checks for room: nothing is dropped on the way to a full ring.
    let keys = format!("mix = \"imix\"\ncount = {PACKETS}");
    let full = (0..drivers.len()).fold(Network::default(), |network, number| {
        let source = format!("source{number}");
        network.app(&source, "source", &keys).link(&format!("{source}.output -> port{number}.input"))
    });
    sandbox.write("fill.toml", &ports(full).text());
    sandbox.bellows(&["reload", &running.name]).success();
    for (number, driver) in drivers.iter().enumerate() {
        let mut received = || testpmd.forwarded().unwrap().port(number).0;
        eventually(&format!("all packets with {driver:?}"), || received() >= PACKETS);
        assert_eq!(received(), PACKETS, "{driver:?}");
    }
}

/// The file of the frames that a driver's queue has got back from [`replay`].
fn returned(sandbox: &Sandbox, queue: usize) -> PathBuf {
    sandbox.path(&format!("returned{queue}.pcap"))
}

/// Starts a testpmd that sends frames of its own on each queue of a driver, and writes what returns to files.
fn replay(sandbox: &Sandbox, driver: &Driver, port: &Path, frames: &[Frames]) -> Testpmd {
    let mut files = String::new();
    for (queue, frames) in frames.iter().enumerate() {
        let sent = sandbox.path(&format!("sent{queue}.pcap"));
        frames::write(&sent, frames);
        files += &format!(",rx_pcap={},tx_pcap={}", sent.display(), returned(sandbox, queue).display());
    }
    let mut launch = launch(vec![driver.device(0, &port.display().to_string()), format!("net_pcap0{files}")]);
    launch.options.extend(["rxq", "txq"].map(|option| format!("--{option}={}", frames.len())));
    let mut testpmd = launch.start().unwrap();
    testpmd.commands(&["set fwd io retry", "set burst tx delay 100 retry 10000", "start"]).unwrap();
    testpmd
}

#[test]
fn several_queues_share_the_work() {
    const QUEUES: usize = 3;
    if is_missing("several_queues_share_the_work") {
        return;
    }
    for packed in [false, true] {
        let sandbox = Sandbox::new();
        let port = socket(&sandbox, "port");
        let network = Network::default().mirror("port", &port, &format!("queues = {QUEUES}"));
        let running = sandbox.start(&[&sandbox.write("queues.toml", &network.text())]);
        let driver = Driver { packed, queues: QUEUES, ..Driver::default() };
        let sent: Vec<Frames> =
            (0..QUEUES).map(|queue| frames::random(700, mixed(LARGEST), 11 + queue as u64)).collect();
        let mut testpmd = replay(&sandbox, &driver, &port, &sent);
        let all = (QUEUES * 700) as u64;
        eventually("all frames are back", || testpmd.forwarded().unwrap().port(1).1 == all);
        eventually("the counters of all rings", || {
            let status = port_status(&sandbox, &running, &port);
            let received = moved(&status, "receive");
            moved(&status, "transmit") == [700; QUEUES] && received.iter().sum::<u64>() == all && !received.contains(&0)
        });
        testpmd.quit().unwrap();
        // The device chooses the queue on which a packet returns.
        let mut sent = sent.concat();
        let mut returned: Frames = (0..QUEUES).flat_map(|queue| frames::read(&returned(&sandbox, queue))).collect();
        sent.sort();
        returned.sort();
        assert_same("several queues", &returned, &sent);
    }
}

/// Two apps at one socket, `zero` and `one`, each with a pair of queues; or the first one alone. `back` says whether they
/// return what the driver sends.
fn shared(port: &Path, worker: Option<&str>, back: bool) -> String {
    let apps = [("zero", 0, Some("main")), ("one", 1, worker)];
    let apps = apps.into_iter().filter_map(|(name, queue, worker)| Some((name, queue, worker?)));
    let network = apps.fold(Network::default(), |network, (name, queue, worker)| {
        let worker = format!("worker = \"{worker}\"\n");
        let next = format!("{name}_next");
        let network = network
            .port(name, port, &format!("queues = [{queue}]\n{worker}"))
            .app(&next, if back { "counter" } else { "sink" }, &worker)
            .link(&format!("{name}.output -> {next}.input"));
        if back { network.link(&format!("{next}.output -> {name}.input")) } else { network }
    });
    format!("{}[workers.two]\n", network.text())
}

/// Packets that each app has taken from the driver of its device, for which there was one connection.
fn taken(sandbox: &Sandbox, running: &Running<'_>) -> Vec<u64> {
    let shown = sandbox.bellows(&["show", "vhost", &running.name, "--json"]).success().json();
    let devices = shown["devices"].as_array().unwrap();
    assert!(devices.iter().all(|device| device["connections"] == 1), "{shown:#}");
    devices.iter().flat_map(|device| moved(device, "transmit")).collect()
}

#[test]
fn apps_of_two_workers_share_a_device() {
    const FRAMES: u64 = 700;
    if is_missing("apps_of_two_workers_share_a_device") {
        return;
    }
    for packed in [false, true] {
        let sandbox = Sandbox::new();
        let port = socket(&sandbox, "port");
        let write = |worker, back| sandbox.write("shared.toml", &shared(&port, worker, back));
        let running = sandbox.start(&[&write(Some("two"), true)]);
        let reload = |worker, back, kept: usize| {
            write(worker, back);
            let report = sandbox.bellows(&["reload", &running.name, "--json"]).success().json();
            assert_eq!(report["kept"].as_array().unwrap().len(), kept, "{report}");
        };
        let driver = Driver { packed, queues: 2, ..Driver::default() };
        let sent = [0, 1].map(|queue| frames::random(FRAMES as usize, mixed(LARGEST), 31 + queue));
        let mut testpmd = replay(&sandbox, &driver, &port, &sent);
        eventually("all frames are back", || testpmd.forwarded().unwrap().port(1).1 == 2 * FRAMES);
        eventually("the counters of both apps", || taken(&sandbox, &running) == [FRAMES; 2]);
        testpmd.commands(&["stop", "set portlist 0", "clear port stats 0", "set fwd txonly"]).unwrap();

        // The driver sends on both pairs as fast as it can. An app moves, goes, and returns.
        reload(Some("two"), false, 2);
        testpmd.command("start").unwrap();
        let grows = |what: &str, app: usize| {
            let before = taken(&sandbox, &running)[app];
            eventually(what, || taken(&sandbox, &running)[app] > before + 1_000);
        };
        for worker in ["main", "two", "main", "two"] {
            reload(Some(worker), false, 4);
            (0..2).for_each(|app| grows(&format!("packets of app {app} with worker {worker}"), app));
        }
        reload(None, false, 2);
        grows("packets of the app that is left", 0);
        reload(Some("two"), false, 2);
        grows("packets of the app that has returned", 1);
        testpmd.command("stop").unwrap();
        let stats = testpmd.command("show port stats 0").unwrap();
        let flood = stats.split("TX-packets:").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        let all = 2 * FRAMES + flood.parse::<u64>().unwrap();
        eventually(&format!("{all} packets"), || taken(&sandbox, &running).iter().sum::<u64>() == all);
        testpmd.quit().unwrap();
        for (queue, sent) in sent.iter().enumerate() {
            // Each app returns packets on its own pair.
            assert_same(&format!("queue {queue}"), &frames::read(&returned(&sandbox, queue)), sent);
        }
        running.signal(Signal::INT);
        running.wait().success();
    }
}

#[test]
fn offloads_of_one_driver_are_finished_for_another() {
    const SEGMENT: usize = 500;
    if is_missing("offloads_of_one_driver_are_finished_for_another") {
        return;
    }
    for packed in [false, true] {
        let sandbox = Sandbox::new();
        let [rich, plain] = ["rich", "plain"].map(|name| socket(&sandbox, name));
        let network =
            Network::default().port("rich", &rich, "").port("plain", &plain, "").link("rich.output -> plain.input");
        let running = sandbox.start(&[&sandbox.write("segments.toml", &network.text())]);
        let [sent, nothing, returned] =
            ["sent", "nothing", "returned"].map(|name| sandbox.path(&format!("{name}.pcap")));
        let bytes: Vec<u8> = frames::random(200, |_| 1_400, 21).concat();
        let sent_frames = stream::cut(&bytes, 1_400);
        frames::write(&sent, &sent_frames);
        frames::write(&nothing, &Frames::new());

        let driver = Driver { packed, ..Driver::default() };
        let pair = |socket: &Path, from: &Path, to: &str| {
            let files = format!("net_pcap0,rx_pcap={}{to}", from.display());
            launch(vec![driver.device(0, &socket.display().to_string()), files])
        };
        let mut receiver = pair(&plain, &nothing, &format!(",tx_pcap={}", returned.display())).start().unwrap();
        receiver.commands(&["set fwd io", "start"]).unwrap();
        wait_for_driver(&sandbox, &running, &plain);
        let mut sender = pair(&rich, &sent, "").start().unwrap();
        // Both are offloaded to the device; testpmd finds the headers of each TCP frame.
        let set = ["port stop 0", "csum set tcp hw 0", &format!("tso set {SEGMENT} 0"), "port start 0"];
        sender.commands(&set).unwrap();
        sender.commands(&["set fwd csum", "set burst tx delay 100 retry 10000", "start"]).unwrap();
        let options = negotiated(&sandbox, &running, &rich);
        assert!(options.contains("checksum") && options.contains("tso4"), "{options:?}");
        let options = negotiated(&sandbox, &running, &plain);
        assert!(!options.contains("guest-checksum") && !options.contains("guest-tso4"), "{options:?}");

        let segments = 200 * 1_400usize.div_ceil(SEGMENT) as u64;
        eventually("all segments", || receiver.forwarded().unwrap().port(1).1 >= segments);
        assert_eq!(carried(&running, "plain.input"), 200, "GSO packets are cut where they leave");
        receiver.quit().unwrap();
        let (joined, largest) = stream::join(&frames::read(&returned));
        assert_eq!(largest, SEGMENT);
        assert!(joined == bytes, "the stream is not the same");
    }
}

#[test]
fn a_driver_may_die_and_another_take_its_place() {
    if is_missing("a_driver_may_die_and_another_take_its_place") {
        return;
    }
    let sandbox = Sandbox::new();
    let mut lanes = [Lane::new(0, Driver::default(), frames::random(500, mixed(LARGEST), 3))];
    let running = sandbox.start(&[&mirrors(&sandbox, &lanes, "")]);
    // Each dies in the middle of a flood, and the next one negotiates other options.
    for set in [5, 2, 7, 0] {
        let driver = all_options()[set];
        let mut testpmd =
            launch(vec![driver.device(0, &lanes[0].socket(&sandbox).display().to_string())]).start().unwrap();
        let before = carried(&running, "port0.input");
        testpmd.commands(&["set fwd txonly", "start"]).unwrap();
        eventually("a flood", || carried(&running, "port0_back.input") > before + 10_000);
        testpmd.kill();
        eventually("the flood is over", || {
            let before = carried(&running, "port0.input");
            std::thread::sleep(Duration::from_millis(50));
            before == carried(&running, "port0.input")
        });
        lanes[0].driver = all_options()[set ^ 7];
        exchange(&sandbox, &running, &lanes, &launch_lanes(&sandbox, &lanes));
    }
}

#[test]
fn bellows_may_die_and_return() {
    if is_missing("bellows_may_die_and_return") {
        return;
    }
    for packed in [false, true] {
        let sandbox = Sandbox::new();
        let driver = Driver { packed, server: true, ..Driver::default() };
        let lanes = [Lane::new(0, driver, frames::random(800, mixed(LARGEST), 9))];
        let network = mirrors(&sandbox, &lanes, "mode = \"client\"");
        let mut running = sandbox.start(&[&network]);
        let mut testpmd = launch_lanes(&sandbox, &lanes).start().unwrap();
        testpmd.commands(&["set portlist 0", "set fwd txonly"]).unwrap();
        for _ in 0..2 {
            testpmd.command("start").unwrap();
            eventually("a flood", || carried(&running, "port0_back.input") > 10_000);
            running.signal(Signal::KILL);
            drop(running);
            testpmd.command("stop").unwrap();
            running = sandbox.start(&[&network]);
            wait_for_driver(&sandbox, &running, &lanes[0].socket(&sandbox));
        }
        // The remaining flood packets of the dead process must not be taken for returned frames.
        testpmd.commands(&["set fwd rxonly", "start"]).unwrap();
        eventually("quiet", || {
            let mut look = || (carried(&running, "port0.input"), testpmd.forwarded().unwrap().port(0).0);
            let before = look();
            std::thread::sleep(Duration::from_millis(100));
            before == look()
        });
        testpmd.commands(&["stop", "set portlist 0,1"]).unwrap();
        play(&mut testpmd, &lanes);
        eventually("all frames", || carried(&running, "port0.input") >= 800);
        testpmd.quit().unwrap();
        let mut returned = frames::read(&lanes[0].returned(&sandbox));
        returned.retain(|frame| frames::is_ours(frame));
        assert_same("after Bellows has died", &returned, &lanes[0].frames);
    }
}
