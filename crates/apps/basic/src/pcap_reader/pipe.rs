//! Captures from a pipe: a thread reads them, so that the engine never waits.

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use bellows_capture::{Interface, LinkType, Reader, Record};
use bellows_engine::{AppError, Io, Watched};
use bellows_packet::{DATA_ROOM, Meta, Packet};
use bellows_sys::FileError;
use bellows_sys::wake::{WakeEvent, sleep_until_readable};
use rustix::fs::{Access, OFlags, access};

use super::pace::DepartureVerdict;
use super::{Orders, PacketSource, PcapReader, Repeat, exceeds_buffers};

/// Maximum bytes of packets that wait for the engine; the thread stops reading when it is reached.
const MAX_WAITING: usize = 1 << 20;

/// Where the bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PipeInput {
    Stdin,
    Fifo(PathBuf),
}

/// The names of standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// Whether an app reads standard input, and whether the network is read from there.
static STDIN_IS_TAKEN: AtomicBool = AtomicBool::new(false);
static STDIN_IS_NETWORK: AtomicBool = AtomicBool::new(false);

/// Reserves standard input for the network: no app may read it from now on.
pub fn reserve_stdin() {
    STDIN_IS_NETWORK.store(true, SeqCst);
}

pub(super) fn stdin_is_network() -> bool {
    STDIN_IS_NETWORK.load(SeqCst)
}

impl PipeInput {
    fn name(&self) -> String {
        match self {
            PipeInput::Stdin => "standard input".to_owned(),
            PipeInput::Fifo(path) => path.display().to_string(),
        }
    }

    /// Checks what can be checked without touching the pipe.
    fn look(&self) -> Result<(), AppError> {
        match self {
            PipeInput::Stdin if io::IsTerminal::is_terminal(&io::stdin()) => Err(
                "standard input is a terminal, which sends no capture; put `tcpdump -w - |` in front, or name a file"
                    .into(),
            ),
            PipeInput::Stdin if STDIN_IS_TAKEN.swap(true, SeqCst) => {
                Err("another app reads standard input, or has read it; give one of them the path of a file".into())
            }
            PipeInput::Stdin => Ok(()),
            PipeInput::Fifo(path) => access(path, Access::READ_OK)
                .map_err(|error| FileError::reading(path, &error.into()).to_string().into()),
        }
    }

    fn open(&self) -> io::Result<File> {
        match self {
            PipeInput::Stdin => Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?)),
            // The open does not wait for a writer.
            PipeInput::Fifo(path) => File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path),
        }
    }
}

/// A waiting packet: its bytes follow those of the packet before in the batch.
struct Head {
    length: usize,
    /// How many of the bytes a filter sees.
    visible: usize,
    meta: Meta,
}

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    heads: Vec<Head>,
    /// Bytes read from the pipe.
    consumed: u64,
    end: Option<Result<(), bellows_capture::Error>>,
}

impl Batch {
    /// Memory taken by its packets, in bytes.
    fn size(&self) -> usize {
        self.bytes.len() + self.heads.len() * size_of::<Head>()
    }
}

/// The state that the thread and the engine share.
struct Feed {
    batch: Mutex<Batch>,
    /// Signalled when the engine has taken a batch, or the thread is to end.
    taken: Condvar,
    /// Counts the packets added, and the end.
    added: AtomicU32,
    is_asleep: AtomicBool,
    event: WakeEvent,
    is_over: AtomicBool,
    over: WakeEvent,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.added.fetch_add(1, SeqCst);
        fence(SeqCst);
        if self.is_asleep.swap(false, SeqCst) {
            self.event.raise();
        }
    }

    /// Adds a packet as soon as there is room. Returns false if the app has ended.
    fn add(&self, record: &Record<'_>, interface: &Interface, consumed: u64) -> bool {
        let mut batch = self.lock();
        // Packets may be empty, but their heads take memory.
        while batch.size() + record.data.len() > MAX_WAITING && !batch.heads.is_empty() {
            if self.is_over.load(SeqCst) {
                return false;
            }
            batch = self.taken.wait(batch).unwrap_or_else(PoisonError::into_inner);
        }
        batch.bytes.extend_from_slice(record.data);
        let length = record.data.len();
        let meta = Meta {
            timestamp: record.timestamp,
            original_length: record.original_length.max(length as u32),
            ingress_port: record.interface,
            link_type: interface.link_type.0,
        };
        batch.heads.push(Head { length, visible: interface.visible(length), meta });
        batch.consumed = consumed;
        drop(batch);
        self.tell();
        !self.is_over.load(SeqCst)
    }
}

impl Watched for Feed {
    fn word(&self) -> Option<&AtomicU32> {
        Some(&self.added)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.event.as_fd()]
    }

    fn arm(&self) {
        self.is_asleep.store(true, SeqCst);
        fence(SeqCst);
    }

    fn disarm(&self) {
        self.is_asleep.store(false, SeqCst);
        self.event.clear();
    }
}

/// The pipe as the thread reads it, until the app ends.
struct Stream {
    file: File,
    feed: Arc<Feed>,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            sleep_until_readable(&[self.file.as_fd(), self.feed.over.as_fd()], None)?;
            if self.feed.is_over.load(SeqCst) {
                return Err(io::Error::other("the run is over"));
            }
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}

/// The body of the thread.
fn read(file: File, name: &str, feed: &Arc<Feed>) -> Result<(), bellows_capture::Error> {
    let stream = Stream { file, feed: Arc::clone(feed) };
    let mut reader = Reader::new(stream, name)?;
    let mut interfaces: Vec<Interface> = Vec::new();
    loop {
        let consumed = reader.progress().consumed;
        let known = interfaces.len();
        let Some(record) = reader.next_record()? else { return Ok(()) };
        let interface = match interfaces.get(record.interface as usize) {
            Some(interface) => interface,
            None => {
                // Interfaces described since the last packet: they can be read once the record is copied.
                let data = record.data.to_vec();
                let record = Record { data: &data, ..record };
                let more = reader.interfaces().get(known..).unwrap_or_default();
                interfaces.extend_from_slice(more);
                let interface = interfaces.get(record.interface as usize);
                if !feed.add(&record, interface.unwrap_or(&Interface::new(LinkType::ETHERNET)), consumed) {
                    return Ok(());
                }
                continue;
            }
        };
        if !feed.add(&record, interface, consumed) {
            return Ok(());
        }
    }
}

/// A pipe and the packets that have come through it.
pub(super) struct CapturePipe {
    place: PipeInput,
    feed: Arc<Feed>,
    has_begun: bool,
    batch: Batch,
    /// Packets and bytes of the batch that have been sent.
    next: usize,
    at: usize,
    /// The value of the feed's word when everything has been taken.
    seen: u32,
    is_watching: bool,
    is_over: bool,
    error: Option<AppError>,
}

impl CapturePipe {
    /// Checks whether the pipe can be read, without touching it.
    pub(super) fn new(place: PipeInput) -> Result<CapturePipe, AppError> {
        place.look()?;
        let feed = Feed {
            batch: Mutex::default(),
            taken: Condvar::new(),
            added: AtomicU32::new(0),
            is_asleep: AtomicBool::new(false),
            event: WakeEvent::new()?,
            is_over: AtomicBool::new(false),
            over: WakeEvent::new()?,
        };
        Ok(CapturePipe {
            place,
            feed: Arc::new(feed),
            has_begun: false,
            batch: Batch::default(),
            next: 0,
            at: 0,
            seen: 0,
            is_watching: false,
            is_over: false,
            error: None,
        })
    }

    /// Takes the packets that the thread has added. False if there are none, or the thread is adding one just now.
    fn take(&mut self) -> bool {
        let Ok(mut shared) = self.feed.batch.try_lock() else { return false };
        self.batch.bytes.clear();
        self.batch.heads.clear();
        self.batch.end = None;
        mem::swap(&mut *shared, &mut self.batch);
        drop(shared);
        self.feed.taken.notify_one();
        (self.next, self.at) = (0, 0);
        true
    }

    fn look_for_end(&mut self, io: &Io<PcapReader>) {
        if self.next < self.batch.heads.len() {
            return;
        }
        if let Some(end) = self.batch.end.take() {
            self.is_over = true;
            self.seen = self.seen.wrapping_add(1);
            if let Err(error) = end {
                io.set(PcapReader::DAMAGED, 1);
                self.error = Some(error.into());
            }
        }
    }
}

impl PacketSource for CapturePipe {
    /// Opens the pipe and starts the thread, when the run begins.
    fn begin(&mut self) {
        if mem::replace(&mut self.has_begun, true) {
            return;
        }
        let name = self.place.name();
        let feed = Arc::clone(&self.feed);
        let started = self.place.open().and_then(|file| {
            let work = move || {
                let end = read(file, &name, &feed);
                feed.lock().end = Some(end);
                feed.tell();
            };
            thread::Builder::new().name("pcap-reader".to_owned()).spawn(work)
        });
        if let Err(error) = started {
            self.error = Some(FileError::reading(Path::new(&self.place.name()), &error).to_string().into());
            self.is_over = true;
        }
    }

    fn send(&mut self, io: &Io<PcapReader>, orders: &mut Orders) {
        if self.next == self.batch.heads.len() && !self.take() {
            return;
        }
        let (now, mut output) = (io.now(), io.output(0));
        let mut left = io.burst().min(output.room());
        let mut burst = Packet::allocate_burst(left.min(self.batch.heads.len() - self.next));
        while left > 0
            && let Some(head) = self.batch.heads.get(self.next)
            && let Some(mut packet) = burst.next()
        {
            let data = &self.batch.bytes[self.at..self.at + head.length];
            let is_wanted = orders
                .filter
                .as_ref()
                .is_none_or(|filter| filter.by_link_type().matches_bytes(&data[..head.visible], &head.meta));
            let length = is_wanted.then_some(head.length);
            if let DepartureVerdict::Wait { until } = orders.pace.judge(now, 0, head.meta.timestamp, length) {
                io.wake_at(until);
                io.slot(0).never();
                self.is_watching = false;
                return;
            }
            let mut is_too_long = false;
            if !is_wanted {
                // Counted below.
            } else if data.len() <= DATA_ROOM {
                packet.append(data);
            } else if let Some(large) = Packet::from_bytes(data) {
                packet = large;
            } else if exceeds_buffers(data.len()) {
                is_too_long = true;
            } else {
                break;
            }
            packet.set_meta(head.meta);
            self.at += head.length;
            self.next += 1;
            self.seen = self.seen.wrapping_add(1);
            if !is_wanted {
                io.drop(packet, PcapReader::NOT_MATCHED);
            } else if is_too_long {
                io.drop(packet, PcapReader::TOO_LONG);
            } else {
                output.push(packet);
                left -= 1;
            }
        }
        drop(burst);
        self.look_for_end(io);
        if self.is_watching {
            io.slot(0).expect(self.seen);
        }
    }

    /// Lets the engine watch the pipe again.
    fn tick(&mut self, io: &Io<PcapReader>) {
        self.is_watching = true;
        io.slot(0).watch(Arc::clone(&self.feed), u32::MAX, self.seen);
    }

    fn held(&self) -> usize {
        0
    }

    fn is_over(&self, _: Repeat) -> bool {
        self.is_over
    }

    fn progress(&self, _: Repeat) -> (u64, u64) {
        (self.batch.consumed, 0)
    }

    fn take_error(&mut self) -> Option<AppError> {
        self.error.take()
    }
}

impl Drop for CapturePipe {
    fn drop(&mut self) {
        self.feed.is_over.store(true, SeqCst);
        self.feed.over.raise();
        drop(self.feed.lock());
        self.feed.taken.notify_all();
        if !self.has_begun && self.place == PipeInput::Stdin {
            STDIN_IS_TAKEN.store(false, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_without_bytes_do_not_fill_the_memory() {
        let feed = Arc::new(Feed {
            batch: Mutex::default(),
            taken: Condvar::new(),
            added: AtomicU32::new(0),
            is_asleep: AtomicBool::new(false),
            event: WakeEvent::new().unwrap(),
            is_over: AtomicBool::new(false),
            over: WakeEvent::new().unwrap(),
        });
        let most = MAX_WAITING / size_of::<Head>() + 1;
        let adding = {
            let feed = Arc::clone(&feed);
            let record = Record { data: &[], timestamp: 1, original_length: 0, interface: 0 };
            thread::spawn(move || {
                (0..2 * most).take_while(|_| feed.add(&record, &Interface::new(LinkType::ETHERNET), 1)).count()
            })
        };
        let heads = || feed.lock().heads.len();
        let start = std::time::Instant::now();
        while heads() < most - 1 && start.elapsed().as_secs() < 60 {
            thread::yield_now();
        }
        thread::sleep(std::time::Duration::from_millis(50));
        assert!(heads() <= most, "{}", heads());
        feed.is_over.store(true, SeqCst);
        feed.taken.notify_all();
        assert!(adding.join().unwrap() <= most);
    }
}
