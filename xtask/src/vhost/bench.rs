//! The measurement: fresh processes at each point, and windows in which one of the two back ends works.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bellows_testkit::hugepages::Hugepages;
use bellows_testkit::scratch;
use bellows_testkit::testpmd::Testpmd;

use super::processes::{self, Bellows, Work};
use super::{Cell, Direction, Memory, Options};
use crate::measured::{self, Scheduled, signal};
use crate::{TaskError, tools};

/// Maximum share of a window that a process may wait for its processor.
const STARVED: f64 = 0.08;

/// Maximum number of tried windows, as a multiple of the requested number.
const ATTEMPTS: usize = 4;

/// Warm-up time after the start of the client.
const WARM_UP: Duration = Duration::from_millis(150);

/// Bursts of 32 in flight in a loop: as many as a ring of 256 holds, with some room left.
const BURSTS_IN_LOOP: usize = 6;

/// Pages of 2 MiB for all programs.
const HUGEPAGES: usize = 320;

/// One combination of options, direction and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub cell: Cell,
    pub memory: Memory,
    pub direction: Direction,
    pub size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Reference,
    Bellows,
}

/// The program that Bellows is compared with.
enum Reference {
    Dpdk(Testpmd),
    OtherBuild(Bellows),
}

impl Reference {
    fn pid(&self) -> u32 {
        match self {
            Reference::Dpdk(dpdk) => dpdk.pid(),
            Reference::OtherBuild(bellows) => bellows.pid(),
        }
    }

    fn work(&mut self) -> Result<Work, TaskError> {
        match self {
            Reference::Dpdk(dpdk) => Work::of(dpdk),
            Reference::OtherBuild(bellows) => bellows.work(),
        }
    }
}

/// The results of one back end in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// Millions of packets a second, by the client's counters.
    pub rate: f64,
    /// The same by the counters of the back end.
    pub back_rate: f64,
    /// Clocks a packet of the back end, in calls or iterations that moved packets.
    pub clocks: f64,
    /// Clocks a packet of the client.
    pub client_clocks: f64,
    /// The share of the client's packets that found no room in the ring.
    pub refused: f64,
    /// The share of the window that the client and the back end waited for their processors.
    pub waited: [f64; 2],
    /// The share of the window that they ran.
    pub ran: [f64; 2],
}

impl Window {
    pub fn is_starved(&self) -> bool {
        self.waited.iter().any(|waited| *waited > STARVED)
    }
}

/// All windows of one point, in consecutive pairs: reference and Bellows.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub point: Point,
    pub windows: Vec<[Window; 2]>,
    /// Clocks of the time-stamp counter in a microsecond.
    pub tsc_mhz: f64,
}

/// Hugepages reserved for the comparison, and returned afterwards.
fn reserve_hugepages() -> Result<Hugepages, TaskError> {
    Hugepages::reserve(HUGEPAGES)
        .map_err(|why| TaskError::failed(format!("{why}, or leave `hugepages` out of --memory")))
}

/// Measures at all points.
pub fn measure(options: &Options) -> Result<Vec<Row>, TaskError> {
    if !tools::is_root() {
        eprintln!("not root: the programs run without priority, so more windows will be starved");
    }
    measured::raise_own_priority();
    let points = options.points();
    let (mut rows, mut hugepages) = (Vec::new(), None);
    for (number, &point) in points.iter().enumerate() {
        let Point { cell, memory, direction, size } = point;
        let (name, memory_name, way) = (cell.name(), memory.name(), direction.name());
        eprintln!("measuring {} of {}: {way}, {size} bytes, {name}, {memory_name} memory", number + 1, points.len());
        match memory {
            Memory::Plain => hugepages = None,
            Memory::Hugepages if hugepages.is_none() => hugepages = Some(reserve_hugepages()?),
            Memory::Hugepages => {}
        }
        // One failed point does not discard half an hour of work.
        let row = measure_at(options, point).or_else(|failure| {
            eprintln!("trying again: {failure}");
            measure_at(options, point)
        });
        rows.push(row?);
    }
    Ok(rows)
}

fn measure_at(options: &Options, point: Point) -> Result<Row, TaskError> {
    let folder = scratch::make().map_err(TaskError::failed)?;
    Bench::start(options, point, folder.path())?.measure(options)
}

/// The programs at one point.
struct Bench {
    point: Point,
    client: Testpmd,
    reference: Reference,
    bellows: Bellows,
}

impl Bench {
    fn start(options: &Options, point: Point, folder: &Path) -> Result<Bench, TaskError> {
        let Point { cell, memory, direction, size } = point;
        let sockets = [folder.join("reference.sock"), folder.join("bellows.sock")];
        let reference = match &options.against {
            None => Reference::Dpdk(processes::dpdk(options, memory, direction, size, &sockets[0])?),
            Some(program) => {
                let folder = folder.join("other");
                let made = fs::create_dir_all(&folder);
                made.map_err(|error| TaskError::failed(format!("cannot make {}: {error}", folder.display())))?;
                let other = Bellows::start(options, Some(program), direction, size, &sockets[0], &folder)?;
                Reference::OtherBuild(other)
            }
        };
        let bellows = Bellows::start(options, None, direction, size, &sockets[1], folder)?;
        let client = processes::client(options, cell, memory, size, [&sockets[0], &sockets[1]])?;
        Ok(Bench { point, client, reference, bellows })
    }

    fn measure(mut self, options: &Options) -> Result<Row, TaskError> {
        let mut windows: Vec<[Window; 2]> = Vec::new();
        let (mut pair, mut sound) = (0, 0);
        // Starved windows are repeated, up to a limit.
        while sound < options.windows && pair < ATTEMPTS * options.windows {
            // Each goes first equally often.
            let (first, second) = match pair % 2 {
                0 => (Side::Reference, Side::Bellows),
                _ => (Side::Bellows, Side::Reference),
            };
            let (one, other) = (self.window(first, options.window)?, self.window(second, options.window)?);
            sound += usize::from(!one.is_starved() && !other.is_starved());
            windows.push(if first == Side::Reference { [one, other] } else { [other, one] });
            pair += 1;
        }
        Ok(Row { point: self.point, windows, tsc_mhz: tsc_mhz(&self.client) })
    }

    fn window(&mut self, side: Side, length: Duration) -> Result<Window, TaskError> {
        let port = side as usize;
        let (works, stopped) = match side {
            Side::Reference => (self.reference.pid(), self.bellows.pid()),
            Side::Bellows => (self.bellows.pid(), self.reference.pid()),
        };
        signal(stopped, "-STOP");
        signal(works, "-CONT");
        self.start_client(port)?;
        thread::sleep(WARM_UP);
        // Reading a back end's counters takes time from it, so the client's counters do not span that.
        let back_before = self.read_back_end(side)?;
        let before = self.look(side)?;
        thread::sleep(length);
        let after = self.look(side)?;
        let back_after = self.read_back_end(side)?;
        self.client.command("stop").map_err(TaskError::failed)?;
        Ok(self.compare([&before, &after], [&back_before, &back_after]))
    }

    fn start_client(&mut self, port: usize) -> Result<(), TaskError> {
        let port = format!("set portlist {port}");
        let commands: &[&str] = match self.point.direction {
            Direction::GuestToHost => &[&port, "set fwd txonly", "start"],
            Direction::HostToGuest => &[&port, "set fwd rxonly", "start"],
            Direction::Looped => {
                // Flushes an earlier window's packets from the loop, so that each window starts with the same number.
                self.client.commands(&[&port, "set fwd rxonly", "start"]).map_err(TaskError::failed)?;
                thread::sleep(WARM_UP / 3);
                &["stop", "set fwd io", &format!("start tx_first {BURSTS_IN_LOOP}")]
            }
        };
        self.client.commands(commands).map_err(TaskError::failed)
    }

    fn read_back_end(&mut self, side: Side) -> Result<(Instant, Work), TaskError> {
        let work = match side {
            Side::Reference => self.reference.work()?,
            Side::Bellows => self.bellows.work()?,
        };
        Ok((Instant::now(), work))
    }

    fn look(&mut self, side: Side) -> Result<Look, TaskError> {
        let back_end = match side {
            Side::Reference => self.reference.pid(),
            Side::Bellows => self.bellows.pid(),
        };
        let forwarded = self.client.forwarded().map_err(TaskError::failed)?;
        let at = Instant::now();
        let (received, sent, refused) = forwarded.port(side as usize);
        let packets = match self.point.direction {
            Direction::GuestToHost => sent,
            Direction::HostToGuest | Direction::Looped => received,
        };
        Ok(Look {
            at,
            packets: packets as f64,
            refused: refused as f64,
            clocks: forwarded.cycles.map_or(0.0, |(clocks, _)| clocks as f64),
            scheduled: [self.client.pid(), back_end].map(Scheduled::of),
        })
    }

    fn compare(&self, [before, after]: [&Look; 2], [back_before, back_after]: [&(Instant, Work); 2]) -> Window {
        let seconds = (after.at - before.at).as_secs_f64();
        let packets = after.packets - before.packets;
        let refused = after.refused - before.refused;
        let (back_packets, clocks) = back_after.1.since(&back_before.1);
        let [client, back_end] = [0, 1].map(|side| {
            after.scheduled[side].since(&before.scheduled[side]).map(|nanoseconds| nanoseconds / 1e9 / seconds)
        });
        Window {
            rate: packets / seconds / 1e6,
            back_rate: back_packets / (back_after.0 - back_before.0).as_secs_f64() / 1e6,
            clocks,
            client_clocks: (after.clocks - before.clocks) / packets,
            refused: if refused > 0.0 { refused / (refused + packets) } else { 0.0 },
            waited: [client[1], back_end[1]],
            ran: [client[0], back_end[0]],
        }
    }
}

/// The client's counters, and the run times of client and back end, at one time.
struct Look {
    at: Instant,
    packets: f64,
    refused: f64,
    clocks: f64,
    scheduled: [Scheduled; 2],
}

/// The frequency of the time-stamp counter, which testpmd prints after its clocks: `at 2600 MHz Clock`.
fn tsc_mhz(client: &Testpmd) -> f64 {
    let said = client.said();
    let number = said.rsplit_once(" MHz Clock").and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    number.unwrap_or(f64::NAN)
}
