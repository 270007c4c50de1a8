//! Keys, directions, windows, limits and IVs over any order of reloads, renames, new keys, restarts and jumps of clocks,
//! beside a model.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use bellows_esp::{Algorithm, HEADER, Inbound, InboundSettings, Keys, MAX_TRAILER, Outbound, OutboundSettings, Spi};
use bellows_testkit::scratch::scratch;
use proptest::prelude::*;

use super::*;
use crate::esp::config::{Direction, Limits};
use crate::esp::keyring::{Keyring, NewKeys, Plans};
use crate::esp::plan::AssociationPlan;
use crate::esp::register::{Places, own};

/// The keys of a test, and the SPI of each.
const KEYS: usize = 5;

/// The names of pairs.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A pair of a configuration: its keys, limits and window.
#[derive(Clone, Copy, Debug)]
struct Pairing {
    name: usize,
    inbound: usize,
    outbound: usize,
    hard: Option<u64>,
    window: u32,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As it should.
    Clean,
    /// The process is killed.
    Killed,
    /// The machine loses its power: what is in memory is gone.
    PowerLoss,
    /// All files are lost.
    Lost,
    /// The files are those of an earlier time.
    Restored,
}

#[derive(Clone, Debug)]
enum Step {
    Reload(Vec<Pairing>),
    Rekey {
        name: usize,
        way: bool,
        key: usize,
    },
    Send {
        name: usize,
        count: usize,
    },
    /// The other end seals with a key.
    Receive {
        key: usize,
        count: usize,
    },
    /// Somebody sends captured packets again.
    Replay,
    /// Time passes, by the clock that never goes back.
    Pass(u32),
    Restart(End),
}

fn pairing() -> impl Strategy<Value = Pairing> {
    let hard = prop_oneof![2 => Just(None), 1 => (1..12_u64).prop_map(Some)];
    (0..NAMES.len(), 0..KEYS, 0..KEYS, hard, prop_oneof![Just(32_u32), Just(64)])
        .prop_map(|(name, inbound, outbound, hard, window)| Pairing { name, inbound, outbound, hard, window })
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        4 => Just(End::Clean),
        4 => Just(End::Killed),
        1 => Just(End::PowerLoss),
        1 => Just(End::Lost),
        1 => Just(End::Restored),
    ];
    prop_oneof![
        4 => prop::collection::vec(pairing(), 1..3).prop_map(Step::Reload),
        2 => (0..NAMES.len(), any::<bool>(), 0..KEYS).prop_map(|(name, way, key)| Step::Rekey { name, way, key }),
        4 => (0..NAMES.len(), 1..5_usize).prop_map(|(name, count)| Step::Send { name, count }),
        4 => (0..KEYS, 1..5_usize).prop_map(|(key, count)| Step::Receive { key, count }),
        2 => Just(Step::Replay),
        1 => any::<u32>().prop_map(Step::Pass),
        2 => end.prop_map(Step::Restart),
    ]
}

/// What a model knows of a key.
#[derive(Default)]
struct Known {
    /// IVs of packets that this end, and the other end, has sealed.
    own_ivs: BTreeSet<u64>,
    peer_ivs: BTreeSet<u64>,
    sent: u64,
    received: u64,
    last: u64,
    /// Numbers of packets that were delivered.
    delivered: BTreeSet<u64>,
    /// How long it was in use, by direction.
    nanoseconds: [u64; 2],
}

/// The world around a keyring.
struct World {
    /// Removed at the end.
    folder: Box<dyn AsRef<Path>>,
    keyring: Option<Keyring>,
    materials: Vec<String>,
    now: u64,
    hard: HashMap<String, Option<u64>>,
    known: Vec<Known>,
    /// The other end: what seals with each key.
    peers: Vec<Outbound>,
    captured: Vec<(usize, Vec<u8>)>,
    /// Whether files were lost, so that only secrecy is promised.
    has_lost: bool,
    /// Whether the lasting file has all that a process that was killed has left.
    is_settled: bool,
    /// Whether a machine lost its power, so that some packets of the other end may be refused.
    has_skipped: bool,
    backup: Option<PathBuf>,
}

thread_local! {
    /// The state folder of the test.
    static STATE: std::cell::RefCell<PathBuf> = const { std::cell::RefCell::new(PathBuf::new()) };
}

fn state_folder() -> Result<PathBuf, String> {
    Ok(STATE.with_borrow(Clone::clone))
}

fn spi(key: usize) -> Spi {
    Spi::new(0x1000 + key as u32).unwrap()
}

impl World {
    fn new() -> World {
        let materials: Vec<String> = (0..KEYS).map(|_| key("aes-128-gcm")).collect();
        let peer = |index: usize| {
            let keys = Keys::parse(Algorithm::Aes128Gcm, &materials[index]).unwrap();
            // As most implementations have it.
            Outbound::new(spi(index), &keys, OutboundSettings { iv_offset: 0, ..OutboundSettings::default() })
        };
        let mut world = World {
            folder: Box::new(scratch()),
            keyring: None,
            peers: (0..KEYS).map(peer).collect(),
            materials,
            now: 0,
            hard: HashMap::new(),
            known: (0..KEYS).map(|_| Known::default()).collect(),
            captured: Vec::new(),
            has_lost: false,
            is_settled: true,
            has_skipped: false,
            backup: None,
        };
        world.start();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        (*self.folder).as_ref().join(name)
    }

    fn start(&mut self) {
        STATE.set(self.path("state"));
        own::begin(Some(Places { network: "edge".into(), live: self.path("live"), lasting: state_folder }));
        self.keyring = Some(Keyring::new(0));
    }

    fn keyring(&mut self) -> &mut Keyring {
        self.keyring.as_mut().unwrap()
    }

    fn plan(&self, key: usize, way: Way, hard: Option<u64>, window: u32) -> AssociationPlan {
        let direction = Direction {
            spi: spi(key).get(),
            algorithm: crate::esp::config::Algorithm::Aes128Gcm,
            key: Some(crate::esp::Secret::new(&self.materials[key])),
            key_file: None,
            esn: true,
            window: (way == Way::Inbound).then_some(window),
            resync_after: None,
            soft: Limits::default(),
            hard: Limits { packets: hard, ..Limits::default() },
        };
        let Ok(plan) = AssociationPlan::read(&direction, way, &|_: &Path| unreachable!()) else { panic!("a good key") };
        plan
    }

    /// Whether a key was used in the other direction.
    fn is_refused(&self, key: usize, way: Way) -> bool {
        !self.has_lost
            && match way {
                Way::Inbound => self.known[key].sent > 0,
                Way::Outbound => self.known[key].received > 0,
            }
    }

    fn reload(&mut self, pairs: &[Pairing]) {
        let plans: BTreeMap<String, Plans> = pairs
            .iter()
            .map(|pair| {
                let inbound = self.plan(pair.inbound, Way::Inbound, pair.hard, pair.window);
                let outbound = self.plan(pair.outbound, Way::Outbound, pair.hard, pair.window);
                (NAMES[pair.name].to_owned(), Plans { inbound, outbound })
            })
            .collect();
        // As the app checks it before.
        let by_name: BTreeMap<usize, Pairing> = pairs.iter().map(|pair| (pair.name, *pair)).collect();
        let keys: Vec<usize> = by_name.values().flat_map(|pair| [pair.inbound, pair.outbound]).collect();
        if keys.iter().collect::<BTreeSet<_>>().len() < keys.len() {
            return;
        }
        let keyring = self.keyring.as_mut().unwrap();
        if keyring.prepare(&plans).is_err() {
            return;
        }
        keyring.put(plans);
        self.is_settled = true;
        let running: Vec<(String, [usize; 2])> = keyring
            .running
            .iter()
            .map(|(name, running)| (name.clone(), running.current.map(|spec| spec.spi.get() as usize - 0x1000)))
            .collect();
        for (_, [inbound, outbound]) in &running {
            assert!(!self.is_refused(*inbound, Way::Inbound), "a key that has sealed receives");
            assert!(!self.is_refused(*outbound, Way::Outbound), "a key that has received seals");
        }
        self.hard = by_name.values().map(|pair| (NAMES[pair.name].to_owned(), pair.hard)).collect();
    }

    fn rekey(&mut self, name: usize, way: Way, key: usize) {
        let hard = self.hard.get(NAMES[name]).copied().flatten();
        let plan = self.plan(key, way, hard, 64);
        let mut keys = NewKeys::default();
        *match way {
            Way::Inbound => &mut keys.inbound,
            Way::Outbound => &mut keys.outbound,
        } = Some(plan);
        let keyring = self.keyring();
        let result = keyring.rekey(NAMES[name], keys);
        keyring.release_unused();
        if result.is_ok() {
            assert!(!self.is_refused(key, way), "a key of the other direction was accepted");
        }
    }

    fn send(&mut self, name: usize, count: usize) {
        let (keyring, hard) = (self.keyring.as_mut().unwrap(), self.hard.get(NAMES[name]).copied().flatten());
        let Some(running) = keyring.running.get(NAMES[name]) else { return };
        let key = running.current[Way::Outbound as usize].spi.get() as usize - 0x1000;
        let known = &mut self.known[key];
        for _ in 0..count {
            let mut buffer = vec![0; HEADER + 20 + MAX_TRAILER];
            let sealed = keyring.associations.outbound(running.id).unwrap().seal(&mut buffer, HEADER..HEADER + 20, 4);
            let is_within = hard.is_none_or(|hard| known.sent < hard);
            if !self.has_lost {
                assert_eq!(sealed.is_ok(), is_within, "a limit of {hard:?} after {} packets", known.sent);
            }
            if sealed.is_err() {
                continue;
            }
            let number = u64::from(u32::from_be_bytes(*buffer[4..].first_chunk().unwrap()));
            let iv = u64::from_be_bytes(*buffer[8..].first_chunk().unwrap());
            assert!(known.own_ivs.insert(iv), "an IV was used twice");
            assert!(!known.peer_ivs.contains(&iv), "an IV of the other end was used");
            assert!(self.has_lost || number > known.last, "number {number} after {}", known.last);
            known.last = known.last.max(number);
            known.sent += 1;
        }
    }

    /// Whether a packet was delivered.
    fn deliver(&mut self, key: usize, packet: &[u8]) -> bool {
        let number = u64::from(u32::from_be_bytes(*packet[4..].first_chunk().unwrap()));
        let is_delivered = self.keyring().associations.open(&mut packet.to_vec()).is_ok();
        if is_delivered {
            let is_new = self.known[key].delivered.insert(number);
            assert!(is_new || self.has_lost, "packet {number} was delivered twice");
            self.known[key].received += 1;
        }
        is_delivered
    }

    fn receive(&mut self, key: usize, count: usize) {
        // The other end seals with no key with which this end has sealed.
        if self.known[key].sent > 0 {
            return;
        }
        let mut is_delivered = false;
        for _ in 0..count {
            let mut packet = vec![0; HEADER + 20 + MAX_TRAILER];
            let range = self.peers[key].seal(&mut packet, HEADER..HEADER + 20, 4).unwrap();
            packet.truncate(range.end);
            self.known[key].peer_ivs.insert(u64::from_be_bytes(*packet[8..].first_chunk().unwrap()));
            is_delivered = self.deliver(key, &packet);
            self.captured.push((key, packet));
        }
        let running = self.keyring.as_ref().unwrap().running.iter();
        let receiver = running.into_iter().find(|(_, it)| it.current[Way::Inbound as usize].spi == spi(key));
        if let Some((name, _)) = receiver.filter(|_| !self.has_lost) {
            let hard = self.hard.get(name).copied().flatten();
            let is_within = hard.is_none_or(|hard| self.known[key].received <= hard);
            assert!(is_within || !is_delivered, "more packets than the limit of {hard:?}");
            assert!(is_delivered || hard.is_some() || self.has_skipped, "a new packet was not delivered");
        }
    }

    fn replay(&mut self) {
        for (key, packet) in self.captured.clone() {
            self.deliver(key, &packet);
        }
    }

    fn pass(&mut self, time: u32) {
        self.now += u64::from(time);
        let now = self.now;
        for running in self.keyring().running.values_mut() {
            running.ages.iter_mut().for_each(|age| {
                age.pass(now);
            });
        }
        let ages: Vec<(usize, usize, u64)> = self
            .keyring()
            .running
            .values()
            .flat_map(|it| [0, 1].map(|way| (it.current[way].spi.get() as usize - 0x1000, way, it.ages[way].at(now))))
            .collect();
        for (key, way, age) in ages {
            assert!(self.has_lost || age >= self.known[key].nanoseconds[way], "a key became younger");
            self.known[key].nanoseconds[way] = age;
        }
    }

    fn restart(&mut self, end: End) {
        if self.backup.is_none() {
            own::write();
            self.backup = Some(self.path("backup"));
            copy(&self.path("state"), &self.path("backup"));
        }
        if end == End::PowerLoss {
            own::write();
            self.has_lost |= !self.is_settled;
            self.has_skipped = true;
        }
        self.is_settled &= end != End::Killed;
        if end != End::Clean {
            own::kill();
        }
        self.keyring = None;
        self.hard.clear();
        // The clock begins anew.
        self.now = 0;
        match end {
            End::Clean | End::Killed => {}
            End::PowerLoss => drop(fs::remove_dir_all(self.path("live"))),
            End::Lost | End::Restored => {
                drop(fs::remove_dir_all(self.path("live")));
                drop(fs::remove_dir_all(self.path("state")));
                if end == End::Restored {
                    copy(&self.path("backup"), &self.path("state"));
                }
                self.has_lost = true;
            }
        }
        self.start();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Reload(pairs) => self.reload(pairs),
            Step::Rekey { name, way, key } => {
                self.rekey(*name, if *way { Way::Outbound } else { Way::Inbound }, *key);
            }
            Step::Send { name, count } => self.send(*name, *count),
            Step::Receive { key, count } => self.receive(*key, *count),
            Step::Replay => self.replay(),
            Step::Pass(time) => self.pass(*time),
            Step::Restart(end) => self.restart(*end),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        own::kill();
    }
}

/// Copies a folder of folders of files, if it is there.
fn copy(from: &Path, to: &Path) {
    let Ok(entries) = fs::read_dir(from) else { return };
    fs::create_dir_all(to).unwrap();
    std::os::unix::fs::chown(to, None, None).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in entries {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(bellows_testkit::soak::cases(200)))]
    #[test]
    fn keys_are_used_as_the_model_has_it(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
    }
}

/// A pair with these keys.
fn pair_of(inbound: usize, outbound: usize) -> Pairing {
    Pairing { name: 0, inbound, outbound, hard: None, window: 64 }
}

#[test]
fn a_restarted_end_goes_on_and_its_peer_needs_nobody() {
    for end in [End::Clean, End::Killed, End::PowerLoss] {
        let mut world = World::new();
        let keys = Keys::parse(Algorithm::Aes128Gcm, &world.materials[1]).unwrap();
        let mut peer = Inbound::new(spi(1), &keys, InboundSettings::default()).unwrap();
        let mut accepted = 0;
        for _ in 0..4 {
            world.reload(&[pair_of(0, 1)]);
            for _ in 0..100 {
                let keyring = world.keyring.as_mut().unwrap();
                let id = keyring.running["a"].id;
                let mut buffer = vec![0; HEADER + 20 + MAX_TRAILER];
                let range =
                    keyring.associations.outbound(id).unwrap().seal(&mut buffer, HEADER..HEADER + 20, 4).unwrap();
                accepted += u64::from(peer.open(&mut buffer[range]).is_ok());
            }
            world.receive(0, 10);
            world.restart(end);
        }
        assert_eq!(accepted, 400, "{end:?}");
        world.reload(&[pair_of(0, 1)]);
        world.replay();
        world.receive(0, 30);
        let lost = if end == End::PowerLoss { 30 } else { 0 };
        assert!(world.known[0].received + lost >= 70, "{end:?}: {}", world.known[0].received);
    }
}

#[test]
fn another_name_of_the_network_changes_nothing() {
    let mut world = World::new();
    world.reload(&[pair_of(0, 1)]);
    world.send(0, 50);
    world.receive(0, 50);
    world.restart(End::Clean);
    own::begin(Some(Places { network: "new".into(), live: world.path("live"), lasting: state_folder }));
    world.reload(&[pair_of(0, 1)]);
    world.send(0, 5);
    world.replay();
    world.receive(0, 5);
}

#[test]
fn two_networks_do_not_use_a_key_in_the_same_direction() {
    let mut world = World::new();
    world.reload(&[pair_of(0, 1)]);
    let places = |network: &str| Places { network: network.into(), live: world.path("live"), lasting: state_folder };
    let process = own::take();
    own::begin(Some(places("other")));
    let mut other = Keyring::new(0);
    let plans = |world: &World, inbound: usize, outbound: usize| {
        let inbound = world.plan(inbound, Way::Inbound, None, 64);
        BTreeMap::from([("x".to_owned(), Plans { inbound, outbound: world.plan(outbound, Way::Outbound, None, 64) })])
    };
    for (inbound, outbound, way) in [(0, 2, "inbound"), (2, 1, "outbound")] {
        let error = other.prepare(&plans(&world, inbound, outbound)).unwrap_err();
        assert!(error.contains(&format!("its key of `{way}` is in use by the running network `edge`")), "{error}");
    }
    // The other end may be on the same machine.
    assert!(other.prepare(&plans(&world, 1, 0)).is_ok());
    own::begin(Some(places("edge")));
    let error = Keyring::new(0).prepare(&plans(&world, 3, 4)).unwrap_err();
    assert!(error.contains("are in use by another process"), "{error}");
    own::replace(process);
}

#[test]
fn files_that_are_damaged_or_open_to_others_are_not_used() {
    let mut world = World::new();
    world.reload(&[pair_of(0, 1)]);
    world.send(0, 1);
    world.restart(End::Clean);
    let file = world.path("state/esp-keys/edge.json");
    let good = fs::read_to_string(&file).unwrap();
    assert!(!world.materials.iter().any(|material| good.contains(&material[..16])), "a key is in the file");
    let plans = |world: &World| {
        let (inbound, outbound) = (world.plan(0, Way::Inbound, None, 64), world.plan(1, Way::Outbound, None, 64));
        BTreeMap::from([("a".to_owned(), Plans { inbound, outbound })])
    };
    for bad in ["", "{}", "{\"version\":1}", &good[..good.len() / 2], &good.replace("\"version\":1", "\"version\":9")] {
        fs::write(&file, bad).unwrap();
        let plans = plans(&world);
        let error = world.keyring().prepare(&plans).unwrap_err();
        assert!(error.contains("edge.json") && error.contains("restore it, or remove it"), "{error}");
    }
    fs::write(&file, good).unwrap();
    let folder = world.path("state/esp-keys");
    fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o770)).unwrap();
    let plans = plans(&world);
    let error = world.keyring().prepare(&plans).unwrap_err();
    assert!(error.contains("belongs to this user alone"), "{error}");
}
