//! Every combination of options that can be negotiated, in both directions, against the model of the driver.
//!
//! For each combination a driver makes random chains available in random batches, and the ring serves them in random
//! batches. After every step each byte of the guest's memory, each index and each notification is compared with the
//! specification.

mod model;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use bellows_ipc::notify::{Notifier, Notifiers};
use bellows_packet::{Offload, Packet, Vector, pool};
use bellows_sys::wake::WakeEvent;
use bellows_testkit::wait::eventually;
use bellows_virtio::Features;
use bellows_virtio::ring::{Areas, Doorbell, Position, ReceiveRing, Setup, Stop, TransmitRing};

use model::chains::{Chain, Rules, header_length};
use model::features::{OFFLOADS, RING_OPTIONS, subsets};
use model::frames;
use model::guest::Guest;
use model::random::Random;
use model::{Driver, NotifyMode, driver};

const SPLIT_SIZES: [u16; 10] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

const PACKED_SIZES: [u16; 12] = [2, 3, 5, 8, 12, 32, 63, 100, 256, 511, 1000, 1024];

/// Maximum number of buffers for one packet, without those of the last chain.
const MAX_PIECES: usize = 256;

/// All sets of some options that a driver may negotiate.
fn sets(options: &[Features]) -> Vec<Features> {
    subsets(options).filter(|set| set.check().is_ok()).collect()
}

/// The device's side: one ring of either direction.
enum Device {
    Transmit(TransmitRing),
    Receive(ReceiveRing),
}

macro_rules! either {
    ($device:expr, $ring:ident => $work:expr) => {
        match $device {
            Device::Transmit($ring) => $work,
            Device::Receive($ring) => $work,
        }
    };
}

/// The contents of a chain that the device has.
struct Waiting {
    chain: Chain,
    /// To be transmitted: the data and the offload.
    packet: Vec<u8>,
    offload: Option<Offload>,
}

/// A driver and a device at the two ends of one ring.
struct Bench<'a> {
    features: Features,
    header: usize,
    size: u16,
    guest: &'a mut Guest,
    random: Random,
    driver: Box<dyn Driver>,
    device: Device,
    rules: Rules,
    /// Becomes readable when the device notifies the driver.
    call: File,
    /// Ids of the chains that the device has, the oldest first, and the first of them that is not available yet.
    queue: VecDeque<u16>,
    hidden: usize,
    waiting: HashMap<u16, Waiting>,
    /// Whether the device logs its writes.
    logging: bool,
    /// Whether the device's first call is still to come: a device that starts in the middle may send one extra
    /// notification.
    first: bool,
}

impl Bench<'_> {
    fn new<'a>(guest: &'a mut Guest, features: Features, transmit: bool, size: u16, seed: u64) -> Bench<'a> {
        let mut random = Random::new(seed);
        guest.reset();
        let driver = driver(guest, features, size, &mut random);
        let event = WakeEvent::new().unwrap();
        let call = File::from(event.as_fd().try_clone_to_owned().unwrap());
        let device = device(guest, features, transmit, size, &*driver, driver.position(), &call);
        let logging = random.one_in(8);
        let header = header_length(features);
        let rules = Rules::new(features, size, !transmit);
        let mut bench = Bench {
            features,
            header,
            size,
            guest,
            random,
            driver,
            device,
            rules,
            call,
            queue: VecDeque::new(),
            hidden: 0,
            waiting: HashMap::new(),
            logging,
            first: true,
        };
        bench.log();
        bench
    }

    /// Makes the device log its writes into buffers and ring.
    fn log(&mut self) {
        if self.logging {
            let Areas { descriptors, device, .. } = self.driver.areas();
            let used = if self.features.has(Features::RING_PACKED) { descriptors } else { device };
            let log = self.guest.log();
            either!(&mut self.device, ring => ring.set_log(Some(log), Some(used)));
        }
    }

    /// Chains go through the ring until its indices have wrapped around.
    fn run(&mut self) {
        let enough = usize::from(self.size) * 3 / 2 + 20;
        let mut done = 0;
        let mut steps = 0;
        while done < enough {
            self.change_notify_mode();
            self.make_available();
            done += match self.device {
                Device::Transmit(_) => self.transmit(),
                Device::Receive(_) => self.receive(),
            };
            if self.random.one_in(12) {
                self.move_on();
            }
            steps += 1;
            assert!(steps < 20 * enough, "the ring does not move: {done} chains in {steps} steps");
        }
    }

    fn change_notify_mode(&mut self) {
        let count = self.random.between(0, 2 * usize::from(self.size).min(8)) as u16;
        let simple = [NotifyMode::Always, NotifyMode::Never];
        let mode = match self.features.has(Features::EVENT_IDX) && self.random.one_in(2) {
            true => self.random.of(&[NotifyMode::After(count), NotifyMode::Passed(count)]),
            false => self.random.of(&simple),
        };
        self.driver.set_notify_mode(self.guest, mode);
    }

    /// The driver adds chains, and makes them available all at once.
    fn make_available(&mut self) {
        let idle = self.queue.is_empty();
        let armed = self.random.one_in(3);
        let doorbell = either!(&self.device, ring => ring.doorbell());
        assert!(!idle || !rings(&doorbell), "the doorbell rings while nothing is available");
        if armed {
            doorbell.arm();
        }
        for _ in 0..self.random.of(&[0, 1, 2, 7, 40, 300]) {
            if self.driver.free() == 0 || !self.add() {
                break;
            }
        }
        let any = self.hidden > 0;
        if idle {
            self.driver.accept_suppression(self.guest);
            self.guest.check();
            assert!(!rings(&doorbell), "the doorbell rings for what is not available yet");
        }
        let kick = self.driver.publish(self.guest);
        self.hidden = 0;
        if idle && any {
            assert!(rings(&doorbell), "the doorbell does not ring");
            assert!(kick || !armed, "the driver is not asked to tell an armed device");
        }
        let disarmed = !self.features.has(Features::EVENT_IDX) || self.features.has(Features::RING_PACKED);
        assert!(!kick || armed || !disarmed, "the driver is asked to tell a device that is not armed");
        doorbell.disarm();
    }

    /// Adds one chain; `false` if there is no room for it.
    fn add(&mut self) -> bool {
        let most = self.driver.free();
        let (contents, offload) = match self.device {
            Device::Transmit(_) => self.packet_to_transmit(),
            Device::Receive(_) => (Vec::new(), None),
        };
        let length = match self.device {
            Device::Transmit(_) => contents.len(),
            Device::Receive(_) => self.capacity(),
        };
        let Some(chain) = self.rules.chain(self.guest, length, most, &mut self.random) else { return false };
        chain.scatter(&contents, |address, bytes| self.guest.write(address, bytes));
        let id = self.driver.add(self.guest, &chain);
        let packet = contents.get(self.header..).unwrap_or_default().to_vec();
        self.queue.push_back(id);
        self.hidden += 1;
        assert!(self.waiting.insert(id, Waiting { chain, packet, offload }).is_none());
        true
    }

    /// Room for a packet: usual sizes of drivers, and less than the specification recommends.
    fn capacity(&mut self) -> usize {
        let random = &mut self.random;
        let data = match random.between(0, 15) {
            0..=6 => random.between(64, 300),
            7..=10 => 2048,
            11..=13 => 1514,
            14 => random.between(1, 100),
            _ => 9000,
        };
        self.header + data
    }

    /// A random packet with its header, and the device's expected reading of the header.
    fn packet_to_transmit(&mut self) -> (Vec<u8>, Option<Offload>) {
        let offload = self.some_offload([Features::CSUM, Features::HOST_TSO4, Features::HOST_TSO6]);
        let (packet, claim) = some_packet(&mut self.random, offload);
        let offload = claim.map(|claim| frames::truth(&packet, claim).expect("a true claim"));
        let mut contents = header(claim.unwrap_or_default());
        contents.resize(self.header, 0);
        contents.extend(packet);
        (contents, offload)
    }

    /// An offload of a kind that these features allow, or none.
    fn some_offload(&mut self, [checksum, tso4, tso6]: [Features; 3]) -> Option<Offload> {
        if !self.features.has(checksum) || self.random.one_in(2) {
            return None;
        }
        let mut kinds = vec![Offload::GSO_NONE];
        kinds.extend(self.features.has(tso4).then_some(Offload::GSO_TCP4));
        kinds.extend(self.features.has(tso6).then_some(Offload::GSO_TCP6));
        let gso_type = self.random.of(&kinds);
        Some(Offload { flags: Offload::NEEDS_CHECKSUM, gso_type, ..Offload::default() })
    }

    /// The device takes packets. Returns how many chains came back.
    fn transmit(&mut self) -> usize {
        let most = self.random.of(&[1, 3, 32, 128, 1024]);
        let Device::Transmit(ring) = &mut self.device else { unreachable!("a transmit ring") };
        let mut packets = Vector::new();
        let count = ring.transmit(&mut packets, most).unwrap();
        assert_eq!(count, packets.len());
        let all = most.min(self.queue.len());
        assert!(count == all || count < all && ring.spent() >= all, "{count} of {all}, {} spent", ring.spent());
        for (packet, id) in packets.as_slice().iter().zip(&self.queue) {
            let waiting = &self.waiting[id];
            assert!(packet.bytes() == waiting.packet, "a packet of {} bytes differs", waiting.packet.len());
            assert_eq!(packet.offload(), waiting.offload);
        }
        self.take_back(&vec![0; count]);
        count
    }

    /// The device delivers packets. Returns how many chains came back.
    fn receive(&mut self) -> usize {
        let count = self.random.of(&[0, 1, 2, 16, 128]);
        let mut packets: Vec<Packet> = (0..count).map(|_| self.packet_to_receive()).collect();
        if self.random.one_in(4) {
            // Otherwise a small buffer might block the ring for long.
            let room = self.queue.front().map_or(0, |id| self.waiting[id].chain.capacity() - self.header);
            let small = packets.first_mut().filter(|packet| !packet.has_offload() && packet.len() > room);
            small.into_iter().for_each(|packet| packet.truncate(room.max(1)));
        }
        let Device::Receive(ring) = &mut self.device else { unreachable!("a receive ring") };
        let taken = ring.receive(&packets).unwrap();
        let is_spent = taken.stop == Stop::Spent && taken.count < packets.len() && ring.spent() >= packets.len();
        let mut chains: VecDeque<u16> = self.queue.iter().copied().collect();
        let mut lengths = Vec::new();
        for packet in &packets[..taken.count] {
            let written = self.expect(packet, &mut chains);
            lengths.extend(written);
        }
        if !is_spent {
            let expected = packets.get(taken.count).map_or(Stop::Done, |packet| self.stop(packet, &chains));
            assert_eq!(taken.stop, expected, "at packet {} of {}", taken.count, packets.len());
        }
        self.take_back(&lengths);
        lengths.len()
    }

    fn packet_to_receive(&mut self) -> Packet {
        let all = [Features::GUEST_CSUM, Features::GUEST_TSO4, Features::GUEST_TSO6];
        let offload = match self.random.one_in(60) {
            // An offload that the driver may not have negotiated.
            true => {
                let gso_type = self.random.of(&[Offload::GSO_NONE, Offload::GSO_TCP4, Offload::GSO_TCP6]);
                Some(Offload { flags: Offload::NEEDS_CHECKSUM, gso_type, ..Offload::default() })
            }
            false => self.some_offload(all),
        };
        let (bytes, claim) = some_packet(&mut self.random, offload);
        let mut packet = Packet::from_bytes(&bytes).unwrap();
        if let Some(claim) = claim {
            packet.set_offload(claim);
        }
        packet
    }

    /// Writes a packet's expected form at the driver into the shadow, in the next chains. Returns the number of bytes
    /// written into each of them.
    fn expect(&mut self, packet: &Packet, chains: &mut VecDeque<u16>) -> Vec<usize> {
        let offload = packet.offload().map(|claim| frames::truth(packet.bytes(), claim).expect("a true claim"));
        let mut bytes = header(offload.unwrap_or_default());
        bytes.resize(self.header, 0);
        bytes.extend(packet.bytes());
        let mut buffers: Vec<(u16, usize)> = Vec::new();
        let mut left = bytes.len();
        while left > 0 {
            let id = chains.pop_front().expect("a packet was taken for which there is no buffer");
            let here = left.min(self.waiting[&id].chain.capacity());
            buffers.push((id, here));
            left -= here;
        }
        let mergeable = self.features.has(Features::MRG_RXBUF);
        assert!(buffers.len() == 1 || mergeable, "a packet was taken that fits into no buffer");
        if self.header == 12 {
            bytes[10..12].copy_from_slice(&(buffers.len() as u16).to_le_bytes());
        }
        let mut rest = &bytes[..];
        for (id, length) in &buffers {
            let (here, behind) = rest.split_at(*length);
            self.waiting[id].chain.scatter(here, |address, bytes| self.guest.expect(address, bytes));
            rest = behind;
        }
        buffers.into_iter().map(|(_, length)| length).collect()
    }

    /// The reason why the device does not take a packet.
    fn stop(&self, packet: &Packet, chains: &VecDeque<u16>) -> Stop {
        if let Some(offload) = packet.offload() {
            let needed = match offload.gso_type {
                Offload::GSO_TCP4 => Features::GUEST_TSO4,
                Offload::GSO_TCP6 => Features::GUEST_TSO6,
                _ => Features::GUEST_CSUM,
            };
            if !self.features.has(needed) {
                return Stop::Offload;
            }
        }
        let capacities = chains.iter().map(|id| self.waiting[id].chain.capacity());
        let needed = self.header + packet.len();
        match self.features.has(Features::MRG_RXBUF) {
            true => {
                let pieces: usize = chains.iter().map(|id| self.waiting[id].chain.pieces().count()).sum();
                assert!(pieces >= MAX_PIECES || capacities.sum::<usize>() < needed, "there is room for the packet");
                let descriptors: usize = chains.iter().map(|id| self.waiting[id].chain.descriptors()).sum();
                let never = descriptors == usize::from(self.size) || pieces >= MAX_PIECES;
                if never { Stop::TooLong } else { Stop::Full }
            }
            false => match capacities.into_iter().next() {
                Some(capacity) => {
                    assert!(capacity < needed, "there is room for the packet");
                    Stop::TooLong
                }
                None => Stop::Full,
            },
        }
    }

    /// The driver checks what came back: the oldest chains, with these lengths.
    fn take_back(&mut self, lengths: &[usize]) {
        let reaped = self.driver.reap(self.guest);
        assert_eq!(reaped.used.len(), lengths.len(), "chains that came back");
        for (used, &length) in reaped.used.iter().zip(lengths) {
            let id = self.queue.pop_front().expect("as many as came back");
            assert_eq!(used.id, id, "the order of chains");
            let Waiting { chain, .. } = self.waiting.remove(&id).expect("in the queue");
            // A chain for which another one stands has been written completely, or only read.
            let expected =
                used.length.map_or(if chain.writable { chain.capacity() } else { 0 }, |length| length as usize);
            assert_eq!(expected, length, "the length that the device reports");
            chain.free(self.guest);
        }
        self.guest.check();
        if self.logging {
            self.guest.check_log();
        }
        let mut is_called = || self.call.read(&mut [0; 8]).is_ok();
        // Where there is no `io_uring`, a thread tells the driver.
        let called = match reaped.call_due && !self.first {
            true => {
                eventually("the driver is told", &mut is_called);
                true
            }
            false => is_called(),
        };
        // A device that starts in the middle does not know the last notification of the driver.
        if !self.first {
            assert_eq!(called, reaped.call_due, "whether the driver is told");
        }
        self.first &= lengths.is_empty();
        let counters = either!(&self.device, ring => ring.counters());
        assert!(!called || counters.calls > 0);
        assert_eq!(either!(&self.device, ring => ring.error()), None);
    }

    /// The ring goes to another device, which continues at the position of the first.
    fn move_on(&mut self) {
        let position = either!(&self.device, ring => ring.position());
        assert_eq!(position, self.driver.position());
        let position = Position::from_base(self.features, position.base());
        assert_eq!(position, self.driver.position(), "as a front end keeps it");
        let transmit = matches!(self.device, Device::Transmit(_));
        self.device = device(self.guest, self.features, transmit, self.size, &*self.driver, position, &self.call);
        self.driver.accept_suppression(self.guest);
        self.log();
        self.first = true;
    }
}

/// A notifier that raises an event.
fn notifier(call: &File) -> Notifier {
    let notifier = Notifiers::patient(1).unwrap().get(0);
    notifier.set(Some(call.try_clone().unwrap().into())).unwrap();
    notifier
}

/// The ring of a device, which must be the instance for these features.
fn device(
    guest: &Guest,
    features: Features,
    transmit: bool,
    size: u16,
    driver: &dyn Driver,
    position: Position,
    call: &File,
) -> Device {
    let setup = Setup {
        memory: guest.memory.clone(),
        features,
        size,
        areas: driver.areas(),
        position,
        call: Some(notifier(call)),
        kick: None,
    };
    let device = match transmit {
        true => Device::Transmit(TransmitRing::new(setup).unwrap()),
        false => Device::Receive(ReceiveRing::new(setup).unwrap()),
    };
    assert_eq!(either!(&device, ring => ring.instance().to_string()), instance(features, transmit));
    device
}

/// The name of the instance for some features.
fn instance(features: Features, transmit: bool) -> String {
    let offloads = match transmit {
        true => Features::CSUM | Features::HOST_TSO4 | Features::HOST_TSO6,
        false => Features::GUEST_CSUM | Features::GUEST_TSO4 | Features::GUEST_TSO6,
    };
    let mut words = vec![if transmit { "transmit" } else { "receive" }];
    words.push(if features.has(Features::RING_PACKED) { "packed" } else { "split" });
    words.extend((features.has(Features::MRG_RXBUF) && !transmit).then_some("mergeable"));
    words.extend(features.has(Features::IN_ORDER).then_some("in-order"));
    words.extend(features.has(Features::EVENT_IDX).then_some("event-idx"));
    words.extend(features.has(Features::INDIRECT_DESC).then_some("indirect"));
    words.push(if header_length(features) == 12 { "header-12" } else { "header-10" });
    words.extend(features.has_any(offloads).then_some("offloads"));
    words.join(" ")
}

/// Whether a doorbell shows that there is work.
fn rings(doorbell: &Doorbell) -> bool {
    doorbell.word().load(Relaxed) & doorbell.mask() != doorbell.quiet()
}

/// Mostly short packets, some long ones, and GSO packets if they are allowed.
fn packet_length(random: &mut Random, offload: Option<Offload>) -> usize {
    match random.between(0, 99) {
        0..=59 => random.between(60, 200),
        60..=69 => random.between(1, 64).max(if offload.is_some() { 60 } else { 1 }),
        70..=89 => random.between(200, 1600),
        90..=97 => 1514,
        98 => random.between(1600, 9014),
        _ if offload.is_some_and(|offload| offload.is_gso()) => random.between(9014, 65_550),
        _ => 2049,
    }
}

/// A packet of any bytes, or a frame for which such an offload can be true, with the claim about it. In the claim,
/// fields that are hints have any values.
fn some_packet(random: &mut Random, offload: Option<Offload>) -> (Vec<u8>, Option<Offload>) {
    let length = packet_length(random, offload);
    let Some(Offload { gso_type, .. }) = offload else { return (random.bytes(length), None) };
    let is_gso = gso_type != Offload::GSO_NONE;
    let is_tcp = is_gso || random.one_in(2);
    let is_ipv6 = if is_gso { gso_type == Offload::GSO_TCP6 } else { random.one_in(2) };
    let frame = frames::frame(random, length, is_tcp, is_ipv6);
    let claim = if is_gso { frame.gso(random.between(64, 9000) as u16) } else { frame.checksum() };
    let segment_size = if is_gso { claim.segment_size } else { random.word() };
    (frame.bytes, Some(Offload { header_length: random.word(), segment_size, ..claim }))
}

/// The first ten bytes of the header.
fn header(offload: Offload) -> Vec<u8> {
    let mut bytes = vec![offload.flags, offload.gso_type];
    let words = [offload.header_length, offload.segment_size, offload.checksum_start, offload.checksum_offset];
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// Prints the combination if it fails.
struct Context(String);

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.0);
        }
    }
}

/// Each set of ring options with each set of offloads, so that each set of ring options meets every ring size.
fn every_combination(transmit: bool, packed: bool) {
    pool::ensure().unwrap();
    let mut guest = Guest::new(&mut Random::new(1));
    let sizes = if packed { &PACKED_SIZES[..] } else { &SPLIT_SIZES[..] };
    let rings = sets(&RING_OPTIONS).into_iter().filter(|set| set.has(Features::RING_PACKED) == packed);
    for (row, ring) in rings.enumerate() {
        for (column, offloads) in sets(&OFFLOADS).into_iter().enumerate() {
            let features = ring | offloads;
            let size = sizes[(row + column) % sizes.len()];
            let seed = (row * 1000 + column) as u64;
            let direction = if transmit { "transmit" } else { "receive" };
            let _context = Context(format!("{direction}: {features}; a ring of {size}, seed {seed}"));
            Bench::new(&mut guest, features, transmit, size, seed).run();
        }
    }
}

#[test]
fn split_rings_transmit() {
    every_combination(true, false);
}

#[test]
fn split_rings_receive() {
    every_combination(false, false);
}

#[test]
fn packed_rings_transmit() {
    every_combination(true, true);
}

#[test]
fn packed_rings_receive() {
    every_combination(false, true);
}

#[test]
fn there_are_as_many_combinations_as_the_rules_allow() {
    // Packed and in-order need version 1; segmentation needs checksums.
    assert_eq!(sets(&RING_OPTIONS).len(), 16 * (4 + 1));
    assert_eq!(sets(&OFFLOADS).len(), 5 * 5);
}
