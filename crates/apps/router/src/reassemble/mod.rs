//! `reassemble`: makes datagrams of their fragments.
//!
//! | file | contents |
//! |---|---|
//! | `header.rs` | reading the headers of fragments |
//! | `table.rs` | the datagrams that are being reassembled |
//! | `assemble.rs` | making a datagram of its fragments |

mod assemble;
mod header;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bellows_common::full_table::FullTable;
use bellows_config::{
    BenchFiles, BenchRow, BenchSetup, BenchStep, Bytes, Configure, Context, Duration, OutputSchema, SettingError,
};
use bellows_engine::{App, AppError, Counters, DropReason, Io, Output, Port, Ports, Status, counters};
use bellows_packet::{CAPACITY, Drain, Packet};
use bellows_vrf::{IcmpError, Reason, Tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::assemble::{Sum, Whole};
use self::header::{FrameKind, Piece};
use self::table::{Complete, Limits, ReassemblyTable, Taken, Why};

/// Makes IPv4 and IPv6 datagrams of their fragments (RFC 791; RFC 8200, section 4.5).
///
/// Packets may be behind up to two VLAN tags; all that are not fragments pass unchanged. A datagram has the headers of
/// its first fragment, and is sent when its last missing fragment arrives, in one buffer.
///
/// A fragment that overlaps another one ends its datagram, also for IPv4: all its fragments are dropped, and those that
/// are still to come (RFC 5722). An exact copy of a fragment is dropped alone. IPv6 fragments that are all of their
/// datagram pass at once, without their fragment header (RFC 6946). Messages of neighbour discovery keep one, by which
/// `nd` knows that they came in fragments and drops them (RFC 6980).
///
/// The memory is bounded: at most `capacity` datagrams, and buffers of `memory` bytes. A fragment that finds no room
/// takes the place of the oldest datagram of the source that has the most, on the link (the interface of a router, and the
/// VLANs) that has the most. Its fragments are dropped as `evicted`, and the event `table-full` names the source. So a
/// flood of fragments whose datagrams are never complete takes room from itself. Links and sources are told apart by a
/// secret hash, in 64 classes each.
///
/// When a datagram times out, its first fragment goes to `error`, if it is there and `error` is linked, tagged for
/// `ip4-icmp-error` and `ip6-icmp-error` as time exceeded; all others are dropped. IPv6 fragments with a wrong length go
/// there as well, and first fragments without all headers (RFC 8200, section 4.5). A run does not end before datagrams
/// that are not complete have timed out. A reload keeps them, unless a key has changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The maximum number of datagrams at a time, from 1 to 1,000,000.
    #[schemars(extend("x-unit" = "datagrams"), range(min = 1, max = 1000000))]
    pub capacity: usize,

    /// The maximum number of fragments of a datagram, from 2 to 1,024. A datagram with more is dropped. The longest
    /// datagram has 46 at an MTU of 1,500 bytes, and 54 at 1,280.
    #[schemars(extend("x-unit" = "fragments"), range(min = 2, max = 1024))]
    pub fragments: usize,

    /// The maximum memory of all fragments, from 64 KiB to 16 GiB. A fragment takes a buffer of the packet pool: 2,240
    /// bytes, or 73,728 if it is longer than 2,048 bytes.
    pub memory: Bytes,

    /// How long fragments of IPv4 wait for the rest, from 1 ms to 1 hour. Linux waits 30 seconds as well:
    /// identifications have 16 bits, so that in a longer time a fast sender uses them again (RFC 4963).
    #[schemars(extend("x-unit" = "time"))]
    pub timeout_ipv4: Duration,

    /// How long fragments of IPv6 wait for the rest, from 1 ms to 1 hour. RFC 8200 demands 60 seconds.
    #[schemars(extend("x-unit" = "time"))]
    pub timeout_ipv6: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            capacity: 20_000,
            fragments: 64,
            memory: Bytes::new(32 << 20),
            timeout_ipv4: Duration::from_secs(30),
            timeout_ipv6: Duration::from_secs(60),
        }
    }
}

const DATAGRAMS: std::ops::RangeInclusive<usize> = 1..=1_000_000;
const FRAGMENTS: std::ops::RangeInclusive<usize> = 2..=1_024;
const MEMORY: std::ops::RangeInclusive<u64> = 64 << 10..=16 << 30;
const TIMEOUT_NS: std::ops::RangeInclusive<u64> = 1_000_000..=3_600_000_000_000;

/// Datagrams that time out in a tick; others follow in the next breath.
const EXPIRED_AT_ONCE: usize = 64;

/// Makes datagrams of fragments.
pub struct Reassemble {
    table: ReassemblyTable,
    /// What the packets of an input are. Empty between two inputs.
    found: Vec<FrameKind>,
    /// The hashes of the fragments among them.
    hashes: Vec<u64>,
    occupancy: Arc<Occupancy>,
    /// The app's name.
    name: String,
    full: FullTable,
}

/// What is in the table, for other threads.
#[derive(Default)]
struct Occupancy {
    datagrams: AtomicUsize,
    fragments: AtomicUsize,
    bytes: AtomicUsize,
    capacity: AtomicUsize,
    memory: AtomicUsize,
}

counters! { Reassemble;
    drop OVERLAP = "overlap", "fragments of datagrams whose fragments overlap, or disagree about the end (RFC 5722)";
    drop DUPLICATE = "duplicate", "fragments that were there already";
    drop TOO_MANY = "too_many_fragments", "fragments of datagrams with more than `fragments`";
    drop TIMEOUT = "timeout", "fragments of datagrams that were not complete in time; likely: fragments are lost on the way, or a filter drops all but the first";
    drop EVICTED = "evicted", "fragments of datagrams that made room for newer ones";
    drop TOO_LONG = "too_long", "fragments of datagrams that would be longer than the longest IP packet";
    drop CONGESTION = "ecn_mismatch", "fragments of datagrams whose congestion marks contradict each other (RFC 3168)";
    drop MALFORMED = "malformed", "fragments with wrong lengths, offloads, or first headers (RFC 7112)";
    drop BAD_CHECKSUM = "bad_checksum", "IPv4 fragments whose header has a wrong checksum";
    drop NO_MEMORY = "no_memory", "fragments of complete datagrams for which the pool has no buffer";
    count REQUESTS = "reasm_reqds", "fragments that were to be reassembled (ipReasmReqds)";
    count OKS = "reasm_oks", "datagrams that were reassembled (ipReasmOKs)";
    count TIMEOUTS = "reasm_timeouts", "datagrams that were not complete in time (ipReasmTimeout)";
    count ATOMIC = "atomic", "IPv6 fragments that were all of their datagram (RFC 6946)";
    gauge DATAGRAMS = "datagrams", "datagrams in the table", in "datagrams";
    gauge FRAGMENTS_HELD = "fragments", "fragments in the table", in "packets";
}

/// The places of the outputs.
const OUTPUT: usize = 0;
const ERROR: usize = 1;

impl App for Reassemble {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "Ethernet frames")]);
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "frames without fragments"),
        Port::optional("error", "first fragments of datagrams that timed out"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;
    const ENDS: bool = true;

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        if are_whole(input.packets(), io.prefetch()) {
            drop(input);
            io.forward(0, OUTPUT);
            return;
        }
        let (mut output, mut error) = (io.output(OUTPUT), io.output(ERROR));
        let (mut found, mut hashes) = (std::mem::take(&mut self.found), std::mem::take(&mut self.hashes));
        found.extend(input.packets().iter().map(header::find_in));
        self.table.hash(found.iter().filter_map(FrameKind::piece).map(|piece| &piece.key), &mut hashes);
        let (mut rest, mut rest_hashes, mut packets) = (&found[..], &hashes[..], (&mut input).into_iter());
        while let Some((first, others)) = rest.split_first() {
            let hash = rest_hashes.first().copied().unwrap_or_default();
            let whole = header::in_order(rest, self.table.limits().fragments)
                .filter(|_| matches!(first, FrameKind::Fragment(piece) if !self.table.has(&piece.key, hash)));
            match whole {
                Some(pieces) => {
                    self.join(io, pieces, &mut packets, &mut output);
                    rest = &rest[pieces.len()..];
                    rest_hashes = &rest_hashes[pieces.len()..];
                }
                None => {
                    let packet = packets.next();
                    packet
                        .into_iter()
                        .for_each(|packet| self.take(io, packet, (first, hash), (&mut output, &mut error)));
                    rest = others;
                    rest_hashes = &rest_hashes[usize::from(first.piece().is_some())..];
                }
            }
        }
        drop(packets);
        found.clear();
        hashes.clear();
        (self.found, self.hashes) = (found, hashes);
        self.after(io);
    }

    fn tick(&mut self, io: &Io<Self>) {
        let (now, is_linked) = (io.now(), io.is_linked(ERROR));
        let mut error = io.output(ERROR);
        let expired = self.table.expire(now, EXPIRED_AT_ONCE, |packet, is_first| match is_first && is_linked {
            true => error.push(tagged(packet, IcmpError::of(Reason::ReassemblyTimeExceeded))),
            false => io.drop(packet, Self::TIMEOUT),
        });
        io.count(Self::TIMEOUTS, expired as u64);
        self.after(io);
    }

    fn held(&self) -> usize {
        self.table.held()
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old {
            self.exchange(old);
        }
        self.table.allocate();
        self.show();
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        self.exchange(old);
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(Arc::clone(&self.occupancy) as Arc<dyn Status>)
    }
}

/// Whether no packet is a fragment. Hot.
#[inline(never)]
fn are_whole(packets: &[Packet], ahead: usize) -> bool {
    packets.iter().take(ahead).for_each(Packet::prefetch);
    let mut all = true;
    for (index, packet) in packets.iter().enumerate() {
        if let Some(packet) = packets.get(index + ahead) {
            packet.prefetch();
        }
        all &= header::is_whole(packet);
    }
    all
}

/// The packet, with the answer to it.
fn tagged(mut packet: Packet, error: IcmpError) -> Packet {
    packet.set_tag(Tag(packet.tag()).with(error.number()).0);
    packet
}

impl Reassemble {
    fn new(limits: Limits) -> Reassemble {
        Reassemble {
            table: ReassemblyTable::new(limits),
            found: Vec::with_capacity(CAPACITY),
            hashes: Vec::with_capacity(CAPACITY),
            occupancy: Arc::default(),
            name: String::new(),
            full: FullTable::new("datagrams"),
        }
    }

    /// Exchanges the datagrams with another app of the same limits.
    fn exchange(&mut self, other: &mut Reassemble) {
        if self.table.limits() == other.table.limits() {
            std::mem::swap(&mut self.table, &mut other.table);
        }
    }

    /// Takes a packet that may be a fragment, whose key then has this hash.
    fn take(
        &mut self,
        io: &Io<Self>,
        mut packet: Packet,
        (found, hash): (&FrameKind, u64),
        (output, error): (&mut Output<'_>, &mut Output<'_>),
    ) {
        let mut refuse = |packet, told: Option<IcmpError>, reason| match told.filter(|_| io.is_linked(ERROR)) {
            Some(told) => error.push(tagged(packet, told)),
            None => io.drop(packet, reason),
        };
        match found {
            FrameKind::Whole => output.push(packet),
            FrameKind::Malformed(told) => refuse(packet, *told, Self::MALFORMED),
            FrameKind::TooLong(told) => refuse(packet, *told, Self::TOO_LONG),
            FrameKind::BadChecksum => io.drop(packet, Self::BAD_CHECKSUM),
            FrameKind::Atomic(piece) => {
                packet.truncate(piece.end as usize);
                assemble::finish_headers(&mut packet, false);
                io.count(Self::ATOMIC, 1);
                output.push(packet);
            }
            FrameKind::Fragment(piece) => {
                packet.truncate(piece.end as usize);
                self.add(io, packet, (piece, hash), output);
            }
        }
    }

    /// Adds a fragment to its datagram.
    fn add(&mut self, io: &Io<Self>, packet: Packet, piece: (&Piece, u64), output: &mut Output<'_>) {
        io.count(Self::REQUESTS, 1);
        let origin = (Tag(packet.tag()).interface(), io.now());
        let taken = self.table.take(packet, piece, origin, |packet, why| io.drop(packet, reason(why)));
        if let Some(evicted) = self.table.take_evicted() {
            self.full.tell(&self.name, evicted.class.into(), io.now(), || {
                (evicted.key.source().to_string(), "its oldest fragments make room for others; is it flooding?")
            });
        }
        match taken {
            Taken::Kept => {}
            Taken::Dropped(packet, why) => io.drop(packet, reason(why)),
            Taken::Complete(complete) => self.assemble(io, complete, output),
        }
    }

    /// Sends a complete datagram.
    fn assemble(&mut self, io: &Io<Self>, complete: Complete, output: &mut Output<'_>) {
        let prepared = self.table.first(&complete).ok_or(Why::NoMemory).and_then(|(first, sum)| Whole::new(first, sum));
        match prepared {
            Ok(mut whole) => {
                self.table.finish(complete, |packet, data| whole.add(packet, data));
                send(io, whole, output);
            }
            Err(why) => self.table.finish(complete, |packet, _| io.drop(packet, reason(why))),
        }
    }

    /// Sends a datagram whose fragments are the next packets, in order, without entering them in the table. Hot.
    fn join(&self, io: &Io<Self>, pieces: &[FrameKind], packets: &mut Drain<'_>, output: &mut Output<'_>) {
        let pieces = || pieces.iter().filter_map(FrameKind::piece);
        let mut fragments = pieces().zip(packets).map(|(piece, mut packet)| {
            packet.truncate(piece.end as usize);
            (packet, piece)
        });
        let Some((first, piece)) = fragments.next() else { return };
        io.count(Self::REQUESTS, pieces().count() as u64);
        match Whole::new(&first, Sum::of(piece, pieces())) {
            Ok(mut whole) => {
                whole.add(first, piece.data as usize);
                fragments.for_each(|(packet, piece)| whole.add(packet, piece.data as usize));
                send(io, whole, output);
            }
            Err(why) => {
                io.drop(first, reason(why));
                fragments.for_each(|(packet, _)| io.drop(packet, reason(why)));
            }
        }
    }

    /// Asks for the next tick, and shows what is in the table.
    fn after(&self, io: &Io<Self>) {
        if let Some(time) = self.table.next_timeout() {
            io.wake_at(time.max(io.now()));
        }
        io.set(Self::DATAGRAMS, self.table.used() as u64);
        io.set(Self::FRAGMENTS_HELD, self.table.held() as u64);
        self.show();
    }

    fn show(&self) {
        let (occupancy, limits) = (&self.occupancy, self.table.limits());
        occupancy.datagrams.store(self.table.used(), Relaxed);
        occupancy.fragments.store(self.table.held(), Relaxed);
        occupancy.bytes.store(self.table.bytes(), Relaxed);
        occupancy.capacity.store(limits.datagrams, Relaxed);
        occupancy.memory.store(limits.bytes, Relaxed);
    }
}

/// Sends a datagram whose fragments have all been added.
fn send(io: &Io<Reassemble>, whole: Whole, output: &mut Output<'_>) {
    if let Some(packet) = whole.finish() {
        io.count(Reassemble::OKS, 1);
        output.push(packet);
    }
}

/// The counter of dropped fragments.
fn reason(why: Why) -> DropReason<Reassemble> {
    match why {
        Why::Overlap => Reassemble::OVERLAP,
        Why::Duplicate => Reassemble::DUPLICATE,
        Why::TooManyFragments => Reassemble::TOO_MANY,
        Why::TooLong => Reassemble::TOO_LONG,
        Why::Congestion => Reassemble::CONGESTION,
        Why::Evicted => Reassemble::EVICTED,
        Why::NoMemory => Reassemble::NO_MEMORY,
    }
}

impl Status for Occupancy {
    fn status(&self) -> Value {
        json!(ReassembleStatus {
            datagrams: self.datagrams.load(Relaxed),
            capacity: self.capacity.load(Relaxed),
            fragments: self.fragments.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            memory: self.memory.load(Relaxed),
        })
    }
}

/// The status of a reassembler.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `reassemble`")]
struct ReassembleStatus {
    /// Datagrams of which some fragments are there.
    datagrams: usize,
    /// How many there can be.
    capacity: usize,
    /// Their fragments that wait for others.
    fragments: usize,
    /// Bytes of these.
    bytes: usize,
    /// The memory that they may take, in bytes.
    memory: usize,
}

impl Configure for Reassemble {
    const NAME: &'static str = "reassemble";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<ReassembleStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        // Even numbers of packets, so that the last fragments are not alone.
        let in_halves = BenchRow {
            label: "two fragments each",
            traffic: "may-fragment:1401-1514",
            before: vec![BenchStep::new("fragment", "mtu = 1280", "input", "output")],
            ..BenchRow::default()
        };
        BenchSetup::Rows(vec![BenchRow { label: "no fragments", ..BenchRow::default() }, in_halves])
    }

    fn configure(config: Config, context: &Context) -> Result<Reassemble, SettingError> {
        let out_of_range =
            |key, value: String, help: String| SettingError::at(key, format!("{value} is out of range"), help);
        if !DATAGRAMS.contains(&config.capacity) {
            let (from, to) = (DATAGRAMS.start(), DATAGRAMS.end());
            let help = format!("give a number from {from} to {to}");
            return Err(out_of_range("capacity", format!("a capacity of {} datagrams", config.capacity), help));
        }
        if !FRAGMENTS.contains(&config.fragments) {
            let help = format!("give a number from {} to {}", FRAGMENTS.start(), FRAGMENTS.end());
            return Err(out_of_range("fragments", format!("a maximum of {} fragments", config.fragments), help));
        }
        if !MEMORY.contains(&config.memory.bytes()) {
            return Err(out_of_range(
                "memory",
                format!("a memory of {}", config.memory),
                "give 64KiB to 16GiB".to_owned(),
            ));
        }
        let timeouts = [("timeout_ipv4", config.timeout_ipv4), ("timeout_ipv6", config.timeout_ipv6)];
        for (key, timeout) in timeouts {
            if !TIMEOUT_NS.contains(&timeout.nanos()) {
                return Err(out_of_range(key, "the time".to_owned(), "give a time from 1ms to 1h".to_owned()));
            }
        }
        let limits = Limits {
            datagrams: config.capacity,
            fragments: config.fragments,
            bytes: config.memory.bytes() as usize,
            timeouts: timeouts.map(|(_, timeout)| timeout.nanos()),
        };
        Ok(Reassemble { name: context.app.clone(), ..Reassemble::new(limits) })
    }
}
