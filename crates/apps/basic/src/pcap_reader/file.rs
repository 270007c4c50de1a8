//! Captures in files.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bellows_capture::{Budget, Found, Interface, LinkType, Progress, Reader};
use bellows_engine::{AppError, Io, Output};
use bellows_packet::{DATA_ROOM, Meta, Packet};
use bellows_sys::FileError;
use rustix::fs::OFlags;

use super::pace::{DepartureVerdict, ReplayPace};
use super::{Orders, PacketSource, PcapReader, Repeat, exceeds_buffers};
use crate::claims;
use crate::pcap_filter::Programs;

/// A file and the position in it.
pub(super) struct CaptureFile {
    pub(super) reader: Reader,
    _claim: claims::FileReading,
    /// A record that has been read from the file but not sent.
    waiting: Option<Waiting>,
    /// Number of times the file has been sent to its end.
    passes: u64,
    /// Whether the reader is at the end of a pass.
    at_end: bool,
    /// The last pass had no record, so another pass would have none either.
    barren: bool,
    error: Option<bellows_capture::Error>,
}

enum Waiting {
    /// It is not due yet.
    Packet(Packet),
    /// There was no buffer that is large enough.
    Bytes(Box<[u8]>, Meta),
}

impl PacketSource for CaptureFile {
    fn send(&mut self, io: &Io<PcapReader>, orders: &mut Orders) {
        let mut output = io.output(0);
        let filter = orders.filter.as_deref();
        if let ReplayPace::Max = orders.pace {
            self.send_burst(io, &mut output, orders.repeat, filter, |_, _, _| true);
        } else {
            let now = io.now();
            self.send_burst(io, &mut output, orders.repeat, filter, |pass, timestamp, length| {
                match orders.pace.judge(now, pass, timestamp, length) {
                    DepartureVerdict::Go => true,
                    DepartureVerdict::Wait { until } => {
                        io.wake_at(until);
                        io.slot(0).never();
                        false
                    }
                }
            });
        }
    }

    fn tick(&mut self, io: &Io<PcapReader>) {
        io.slot(0).always();
    }

    fn held(&self) -> usize {
        usize::from(matches!(self.waiting, Some(Waiting::Packet(_))))
    }

    fn is_over(&self, repeat: Repeat) -> bool {
        let last_pass_is_over = self.at_end && (self.barren || !repeat.goes_on_after(self.passes));
        self.waiting.is_none() && (self.error.is_some() || last_pass_is_over)
    }

    fn progress(&self, repeat: Repeat) -> (u64, u64) {
        let Progress { consumed, total } = self.reader.progress();
        let size = total.unwrap_or(0);
        let this_pass = if self.at_end { 0 } else { consumed };
        let all = match repeat {
            Repeat::Times(times) => size.saturating_mul(times),
            Repeat::Forever => 0,
        };
        (size.saturating_mul(self.passes).saturating_add(this_pass), all)
    }

    fn take_error(&mut self) -> Option<AppError> {
        self.error.take().map(Into::into)
    }
}

impl CaptureFile {
    pub(super) fn open(path: &Path) -> Result<CaptureFile, FileError> {
        let file = open_file(path)?;
        let claim =
            file.try_clone().and_then(claims::FileReading::claim).map_err(|error| FileError::reading(path, &error))?;
        let Some(claim) = claim else {
            let message = format!("{}: another app of this network is about to overwrite it", path.display());
            return Err(FileError { message, help: "give one of the two another path".to_owned() });
        };
        let reader = read_start(path, file)?;
        Ok(CaptureFile { reader, _claim: claim, waiting: None, passes: 0, at_end: false, barren: false, error: None })
    }

    /// Sends a burst of the packets that match, as far as there are room and buffers, and as long as `goes` allows it for
    /// a packet's pass, time and, if it matches, length; the first packet that it rejects waits. Hot.
    #[inline(always)]
    fn send_burst(
        &mut self,
        io: &Io<PcapReader>,
        output: &mut Output<'_>,
        repeat: Repeat,
        filter: Option<&Programs>,
        mut goes: impl FnMut(u64, u64, Option<usize>) -> bool,
    ) {
        let mut left = io.burst().min(output.room());
        if left == 0 {
            return;
        }
        // The number of packets sent, or the packet if it has to wait.
        let mut offer = |pass: u64, timestamp: u64, packet: Packet, interface: Option<&Interface>| {
            let is_wanted = filter.is_none_or(|filter| {
                let bytes = packet.bytes();
                let visible = interface.map_or(bytes.len(), |interface| interface.visible(bytes.len()));
                packet.meta().is_some_and(|meta| filter.by_link_type().matches_bytes(&bytes[..visible], &meta))
            });
            if !goes(pass, timestamp, is_wanted.then(|| packet.len())) {
                return Err(Waiting::Packet(packet));
            }
            if is_wanted {
                output.push(packet);
            } else {
                io.drop(packet, PcapReader::NOT_MATCHED);
            }
            Ok(usize::from(is_wanted))
        };
        if let Some(waiting) = self.waiting.take() {
            let Some(packet) = self.make(waiting) else { return };
            let (timestamp, port) = packet.meta().map_or((0, 0), |meta| (meta.timestamp, meta.ingress_port));
            match offer(self.passes, timestamp, packet, self.reader.interfaces().get(port as usize)) {
                Ok(sent) => left -= sent,
                Err(waiting) => return self.waiting = Some(waiting),
            }
        }
        if self.error.is_some() || (self.at_end && !self.begin_pass(io, repeat)) {
            return;
        }
        // A buffer is allocated before a record is read: if the pool is empty the record stays in the file. The end of
        // a pass uses up one, too.
        let mut burst = Packet::allocate_burst(2 * left);
        // A file may contain gigabytes between two records.
        let mut budget = Budget::for_records(io.burst());
        while left > 0
            && let Some(mut packet) = burst.next()
        {
            let record = match self.reader.next_within(&mut budget) {
                Ok(Found::Record(record)) => record,
                Ok(Found::Pause) => return,
                Ok(Found::End) => {
                    self.end_pass();
                    if self.begin_pass(io, repeat) {
                        continue;
                    }
                    return;
                }
                Err(error) => return self.fail(io, error),
            };
            let mut meta = Meta {
                timestamp: record.timestamp,
                original_length: record.original_length.max(record.data.len() as u32),
                ingress_port: record.interface,
                link_type: 0,
            };
            if record.data.len() <= DATA_ROOM {
                packet.append(record.data);
            } else if let Some(large) = Packet::from_bytes(record.data) {
                packet = large;
            } else if exceeds_buffers(record.data.len()) {
                io.drop(packet, PcapReader::TOO_LONG);
                continue;
            } else {
                let bytes = record.data.into();
                meta.link_type = self.link_type(meta.ingress_port);
                self.waiting = Some(Waiting::Bytes(bytes, meta));
                return;
            }
            meta.link_type = self.link_type(meta.ingress_port);
            packet.set_meta(meta);
            let interface = self.reader.interfaces().get(meta.ingress_port as usize);
            match offer(self.passes, meta.timestamp, packet, interface) {
                Ok(sent) => left -= sent,
                Err(waiting) => return self.waiting = Some(waiting),
            }
        }
    }

    #[inline(always)]
    fn link_type(&self, interface: u32) -> u32 {
        self.reader.interfaces().get(interface as usize).map_or(LinkType::ETHERNET.0, |interface| interface.link_type.0)
    }

    /// Makes a packet of a waiting record, if there is a buffer now.
    #[cold]
    fn make(&mut self, waiting: Waiting) -> Option<Packet> {
        match waiting {
            Waiting::Packet(packet) => Some(packet),
            Waiting::Bytes(bytes, meta) => match Packet::from_bytes(&bytes) {
                Some(mut packet) => {
                    packet.set_meta(meta);
                    Some(packet)
                }
                None => {
                    self.waiting = Some(Waiting::Bytes(bytes, meta));
                    None
                }
            },
        }
    }

    #[cold]
    fn end_pass(&mut self) {
        self.passes += 1;
        self.at_end = true;
        self.barren = self.reader.records() == 0;
    }

    /// Rewinds to the first record, if there is another pass.
    #[cold]
    fn begin_pass(&mut self, io: &Io<PcapReader>, repeat: Repeat) -> bool {
        if self.is_over(repeat) {
            return false;
        }
        match self.reader.rewind() {
            Ok(()) => self.at_end = false,
            Err(error) => self.fail(io, error),
        }
        !self.at_end
    }

    #[cold]
    fn fail(&mut self, io: &Io<PcapReader>, error: bellows_capture::Error) {
        io.set(PcapReader::DAMAGED, 1);
        self.error = Some(error);
    }
}

/// Opens a regular file.
fn open_file(path: &Path) -> Result<File, FileError> {
    // The path is checked before opening, because opening a device may have effects, and again afterwards, because the
    // file may have changed. Reading a pipe here would wait.
    let is_file = |found: io::Result<Metadata>| match found {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => {
            let message = format!("{} is not a regular file", path.display());
            let help = "give a capture file, a pipe, or `-` for standard input".to_owned();
            Err(FileError { message, help })
        }
        Err(error) => Err(FileError::reading(path, &error)),
    };
    is_file(std::fs::metadata(path))?;
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let file = file.map_err(|error| FileError::reading(path, &error))?;
    is_file(file.metadata())?;
    Ok(file)
}

/// Opens a capture, and reads its start.
pub(super) fn reader(path: &Path) -> Result<Reader, FileError> {
    read_start(path, open_file(path)?)
}

fn read_start(path: &Path, file: File) -> Result<Reader, FileError> {
    let reader = Reader::from_file(file, path.to_string_lossy());
    reader.map_err(|error| FileError { message: error.to_string(), help: "give a pcap or pcapng file".to_owned() })
}
