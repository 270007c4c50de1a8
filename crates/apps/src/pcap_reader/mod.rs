//! `pcap-reader`: reads packets from a capture file.

mod pace;
mod pipe;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellows_capture::{Budget, Found, LinkType, Progress, Reader};
use bellows_config::{Bench, BenchFiles, Configure, Context, Resource, SettingError, TrafficRate};
use bellows_engine::{App, AppError, Counters, Io, Output, PROGRESS, PROGRESS_TOTAL, Port, Ports, Status, counters};
use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, Meta, Packet, pool};
use bellows_sys::way_out;
use rustix::fs::OFlags;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tracing::warn;

use self::pace::{Pace, Verdict};
use self::pipe::{Pipe, Place};
use crate::claims;
use crate::pcap_filter::{Choices, Programs, ScopeChoice, Source};

pub use self::pipe::reserve_stdin;

/// Reads packets from a capture file, or from a pipe.
///
/// The format is pcap in both byte orders with microseconds or nanoseconds, or pcapng with any number of interfaces,
/// plain or compressed with gzip or zstd. The file's first bytes tell the format, never its name.
///
/// Each packet carries its recorded time, its length on the wire, its interface number in the file and its link type,
/// for apps such as `pcap-writer`.
///
/// A lack of room or buffers loses no packet: packets that cannot be sent yet stay in the file. Only a packet longer
/// than the largest buffer (73,600 bytes) is dropped, as `too_long`. When a file is damaged, all whole packets before
/// the damage are sent, the counter `damaged` becomes 1, and the run ends with an error that names the file and the
/// offset.
///
/// A file may contain any amount of other data between packets, also compressed: a breath reads and decompresses at
/// most 4 KiB for each packet of a burst, and two pieces of 256 KiB; the next breath continues there.
///
/// The path may also be a pipe, or `-` for standard input: `tcpdump -U -w - | bellows run NETWORK`. Packets leave as
/// they come, the network runs until the pipe is closed, and the engine sleeps while nothing comes. A capture that ends
/// inside a packet is damaged.
///
/// With `filter`, packets that do not match are left out and counted as `not_matched`. They take no share of a `rate`, but
/// recorded pauses go on: two readers of one file with different filters keep their packets in step.
///
/// A reload that does not change `path` continues in the file; new settings apply from there.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file or pipe, relative to the network file, or `-` for standard input.
    pub path: PathBuf,

    /// Send only packets that match this expression, `"tcp port 80 or 443"` for example, in the language of tcpdump.
    /// The file gives the link type of each packet; packets of other link types than those that the app `pcap-filter`
    /// knows match nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,

    /// With `filter`: how far `vlan`, `mpls`, `pppoes` and `geneve` shift the tests behind them.
    #[serde(default)]
    pub scope: ScopeChoice,

    /// When packets leave: `max` for as soon as there is room, `recorded` to keep the recorded pauses. Packets that are
    /// late, or that have no time, follow at once.
    #[serde(default)]
    pub speed: Speed,

    /// With `speed = "recorded"`: the factor by which time runs faster, above 0.
    #[serde(default = "one")]
    #[schemars(extend("x-unit" = "times"))]
    pub factor: f64,

    /// Send at this steady rate: packets per second (`"1.5Mpps"`, or a number), bits of packet data per second
    /// (`"10Gb/s"`), bits on an Ethernet wire (`"10Gb/s L1"`), or a share of a line rate on the wire (`"30% of
    /// 10Gb/s"`). The length of a packet that was cut in the recording is what remains of it. An app that could not
    /// send catches up with up to a tenth of a second. Excludes `speed = "recorded"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<TrafficRate>,

    /// Number of times to send the whole file, 1 or more, or `"forever"`. The packets carry their recorded times in
    /// each pass; in recorded time each pass begins when the one before has ended. A pipe can be sent only once.
    #[serde(default)]
    #[schemars(extend("x-unit" = "passes"))]
    pub repeat: Repeat,
}

fn one() -> f64 {
    1.0
}

/// When packets leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Speed {
    /// As soon as there is room.
    #[default]
    Max,
    /// With the recorded pauses.
    Recorded,
}

/// Number of times a file is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// This number of times.
    Times(u64),
    /// Again and again.
    Forever,
}

impl Default for Repeat {
    fn default() -> Repeat {
        Repeat::Times(1)
    }
}

impl Repeat {
    /// Whether there is another pass after `passes` have ended.
    fn goes_on_after(self, passes: u64) -> bool {
        match self {
            Repeat::Times(times) => passes < times,
            Repeat::Forever => true,
        }
    }
}

impl Serialize for Repeat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Repeat::Times(times) => serializer.serialize_u64(*times),
            Repeat::Forever => serializer.serialize_str("forever"),
        }
    }
}

impl<'de> Deserialize<'de> for Repeat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Repeat, D::Error> {
        struct Times;

        impl Visitor<'_> for Times {
            type Value = Repeat;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number of times, 1 or more, or \"forever\"")
            }

            fn visit_u64<E: serde::de::Error>(self, times: u64) -> Result<Repeat, E> {
                match times {
                    0 => Err(E::custom("0 times sends nothing; give 1 or more, or \"forever\"")),
                    _ => Ok(Repeat::Times(times)),
                }
            }

            fn visit_i64<E: serde::de::Error>(self, times: i64) -> Result<Repeat, E> {
                let times = u64::try_from(times);
                times
                    .map_err(|_| E::custom("the number of times is negative; give 1 or more"))
                    .and_then(|t| self.visit_u64(t))
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Repeat, E> {
                match word {
                    "forever" => Ok(Repeat::Forever),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
        }

        deserializer.deserialize_any(Times)
    }
}

impl JsonSchema for Repeat {
    fn schema_name() -> Cow<'static, str> {
        "Repeat".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "forever" }] })
    }
}

/// Sends the packets of a capture file.
pub struct PcapReader {
    path: PathBuf,
    pace: Pace,
    repeat: Repeat,
    /// The filter, and what may surprise about it, until the start.
    filter: Option<Arc<Programs>>,
    warnings: Vec<String>,
    /// `None` before the start, and after another app has taken over the file.
    reading: Option<Reading>,
    /// The pipe, if packets do not come from a file; its thread runs from `begin` on.
    place: Option<Place>,
    pipe: Option<Pipe>,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{message}; {help}")]
struct FileError {
    message: String,
    help: &'static str,
}

/// A file and the position in it.
struct Reading {
    reader: Reader,
    _claim: claims::Reading,
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

counters! { PcapReader;
    asked drop NOT_MATCHED = "not_matched", "packets that do not match the filter";
    drop TOO_LONG = "too_long", "packets longer than the largest buffer";
    gauge SENT = PROGRESS, "bytes read from the file, over all passes; 0 again when a reload gives another file", in "bytes";
    gauge TOTAL = PROGRESS_TOTAL, "bytes to read in all; 0 if there is no end", in "bytes";
    gauge DAMAGED = "damaged", "1 if the file is damaged", in "1 or 0";
}

impl App for PcapReader {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets of the file")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn pull(&mut self, io: &Io<Self>) {
        if self.is_finished() {
            io.slot(0).never();
            return;
        }
        let filter = self.filter.as_deref();
        if let Some(pipe) = &mut self.pipe {
            let mut output = io.output(0);
            let (now, pace) = (io.now(), &mut self.pace);
            return pipe.send(io, &mut output, filter, |timestamp, length| {
                match pace.judge(now, 0, timestamp, length) {
                    Verdict::Go => Ok(()),
                    Verdict::Wait { until } => Err(until),
                }
            });
        }
        let Some(reading) = &mut self.reading else { return };
        let mut output = io.output(0);
        if let Pace::Max = self.pace {
            reading.send(io, &mut output, (self.repeat, filter), |_, _, _| true);
        } else {
            let now = io.now();
            reading.send(io, &mut output, (self.repeat, filter), |pass, timestamp, length| {
                match self.pace.judge(now, pass, timestamp, length) {
                    Verdict::Go => true,
                    Verdict::Wait { until } => {
                        io.wake_at(until);
                        io.slot(0).never();
                        false
                    }
                }
            });
        }
        drop(output);
        let (sent, total) = reading.progress(self.repeat);
        io.set(PcapReader::SENT, sent);
        io.set(PcapReader::TOTAL, total);
    }

    /// A packet is due.
    fn tick(&mut self, io: &Io<Self>) {
        match &mut self.pipe {
            Some(pipe) => pipe.watch(io),
            None => io.slot(0).always(),
        }
    }

    fn slots(&self) -> usize {
        1
    }

    fn held(&self) -> usize {
        let waiting = self.reading.as_ref().and_then(|reading| reading.waiting.as_ref());
        usize::from(matches!(waiting, Some(Waiting::Packet(_))))
    }

    fn is_finished(&self) -> bool {
        match &self.pipe {
            Some(pipe) => pipe.is_over(),
            None => self.reading.as_ref().is_none_or(|reading| reading.is_over(self.repeat)),
        }
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        self.filter.clone().map(|filter| filter as Arc<dyn Status>)
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        self.warnings.drain(..).for_each(|warning| warn!("{warning}"));
        if let Some(place) = &self.place {
            let inherited = old.filter(|old| old.place == self.place).and_then(|old| old.pipe.take());
            self.pipe = Some(match inherited {
                Some(pipe) => pipe,
                None => Pipe::new(place.clone())?,
            });
            return Ok(());
        }
        let inherited = old.filter(|old| old.path == self.path).and_then(|old| old.reading.take());
        self.reading = Some(match inherited {
            Some(reading) => reading,
            None => Reading::open(&self.path)?,
        });
        Ok(())
    }

    fn begin(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            pipe.begin();
        }
    }

    fn give_back(&mut self, old: &mut Self) {
        if old.pipe.is_none() && old.place.is_some() && old.place == self.place {
            old.pipe = self.pipe.take();
        }
        if old.reading.is_none() {
            old.reading = self.reading.take();
        }
    }

    fn stop(&mut self) -> Result<(), AppError> {
        if let Some(error) = self.pipe.take().and_then(|mut pipe| pipe.error.take()) {
            return Err(error);
        }
        match self.reading.take().and_then(|reading| reading.error) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl Reading {
    fn open(path: &Path) -> Result<Reading, FileError> {
        let file = open_file(path)?;
        let claim = file.try_clone().and_then(claims::Reading::claim).map_err(|error| cannot_open(path, &error))?;
        let Some(claim) = claim else {
            let message = format!("{}: another app of this network is about to overwrite it", path.display());
            return Err(FileError { message, help: "give one of the two another path" });
        };
        let reader = reader(path, file)?;
        Ok(Reading { reader, _claim: claim, waiting: None, passes: 0, at_end: false, barren: false, error: None })
    }

    fn is_over(&self, repeat: Repeat) -> bool {
        let last_pass_is_over = self.at_end && (self.barren || !repeat.goes_on_after(self.passes));
        self.waiting.is_none() && (self.error.is_some() || last_pass_is_over)
    }

    /// Sends a burst of the packets that match, as far as there are room and buffers, and as long as `goes` allows it for
    /// a packet's pass, time and, if it matches, length; the first packet that it rejects waits. Hot.
    #[inline(always)]
    fn send(
        &mut self,
        io: &Io<PcapReader>,
        output: &mut Output<'_>,
        (repeat, filter): (Repeat, Option<&Programs>),
        mut goes: impl FnMut(u64, u64, Option<usize>) -> bool,
    ) {
        let mut left = io.burst().min(output.room());
        if left == 0 {
            return;
        }
        // The number of packets sent, or the packet if it has to wait.
        let mut offer = |pass: u64, timestamp: u64, packet: Packet| {
            let is_wanted = filter.is_none_or(|filter| filter.by_link_type().matches(&packet));
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
            let timestamp = packet.meta().map_or(0, |meta| meta.timestamp);
            match offer(self.passes, timestamp, packet) {
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
            match offer(self.passes, meta.timestamp, packet) {
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

    /// Bytes read so far, and bytes to read in all passes (0 if there is no end).
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
}

/// Whether no buffer of the pool can ever hold `length` bytes.
#[cold]
fn exceeds_buffers(length: usize) -> bool {
    length > LARGE_DATA_ROOM || pool::usage().large_packets == 0
}

impl Configure for PcapReader {
    const NAME: &'static str = "pcap-reader";
    type Config = Config;

    fn bench(files: &BenchFiles) -> Bench {
        Bench::with_keys(format!(r#"path = {}, repeat = "forever""#, files.capture()))
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        vec![if pipe::is_stdin(&config.path) {
            Resource::standard_input("path")
        } else {
            Resource::reads("path", context.path(&config.path))
        }]
    }

    fn configure(config: Config, context: &Context) -> Result<PcapReader, SettingError> {
        if !(config.factor > 0.0 && config.factor.is_finite()) {
            let message = format!("a factor of {} is out of range", config.factor);
            return Err(SettingError::at("factor", message, "give a number above 0, such as 10 for ten times as fast"));
        }
        if config.factor != 1.0 && config.speed != Speed::Recorded {
            let help = "add `speed = \"recorded\"`, or leave `factor` out";
            return Err(SettingError::at("factor", "`factor` needs `speed = \"recorded\"`", help));
        }
        let pace = match (config.speed, config.rate) {
            (Speed::Max, None) => Pace::Max,
            (Speed::Recorded, None) => Pace::recorded(config.factor),
            (Speed::Max, Some(rate)) if rate.is_zero() => {
                let help = "give a rate above 0, or leave it out to send as fast as possible";
                return Err(SettingError::at("rate", "a rate of 0 sends nothing", help));
            }
            (Speed::Max, Some(rate)) => Pace::rate(rate),
            (Speed::Recorded, Some(_)) => {
                let help = "leave out `rate` or `speed`";
                return Err(SettingError::at("rate", "`rate` and `speed = \"recorded\"` exclude each other", help));
            }
        };
        let path = context.path(&config.path);
        let place = if pipe::is_stdin(&config.path) { Some(Place::Stdin) } else { fifo(&path) };
        if place == Some(Place::Stdin) && pipe::stdin_is_network() {
            let help = "give the path of a file or of a named pipe, or read the network from a file";
            return Err(SettingError::at("path", "the network itself comes from standard input", help));
        }
        if place.is_some() && config.repeat != Repeat::default() {
            let help = "leave `repeat` out, or save the capture to a file first";
            return Err(SettingError::at("repeat", "a pipe can be sent only once", help));
        }
        if place.is_none() {
            let looked = open_file(&path).and_then(|file| reader(&path, file));
            looked.map_err(|FileError { message, help }| SettingError::at("path", message, help))?;
        }
        if config.filter.is_none() && config.scope != ScopeChoice::default() {
            let help = "add `filter = \"tcp port 80\"`, for example, or leave `scope` out";
            return Err(SettingError::at("scope", "`scope` needs `filter`", help));
        }
        let choices = Choices { scope: config.scope.into(), ..Choices::default() };
        let compile = |text| Programs::compile(vec![Source::of_key("filter", text)], &choices, context);
        let (filter, warnings) = config.filter.map(compile).transpose()?.unzip();
        Ok(PcapReader {
            path,
            pace,
            repeat: config.repeat,
            filter: filter.map(Arc::new),
            warnings: warnings.unwrap_or_default(),
            reading: None,
            place,
            pipe: None,
        })
    }
}

/// A pipe, if the path is one. The pipe is not touched.
fn fifo(path: &Path) -> Option<Place> {
    let is_fifo = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    is_fifo.then(|| Place::Fifo(path.to_owned()))
}

/// Opens a regular file.
fn open_file(path: &Path) -> Result<File, FileError> {
    // The path is checked before opening, because opening a device may have effects, and again afterwards, because the
    // file may have changed. Reading a pipe here would wait.
    let is_file = |found: io::Result<Metadata>| match found {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => {
            let message = format!("{} is not a regular file", path.display());
            Err(FileError { message, help: "give a capture file, a pipe, or `-` for standard input" })
        }
        Err(error) => Err(cannot_open(path, &error)),
    };
    is_file(std::fs::metadata(path))?;
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let file = file.map_err(|error| cannot_open(path, &error))?;
    is_file(file.metadata())?;
    Ok(file)
}

fn cannot_open(path: &Path, error: &io::Error) -> FileError {
    let message = format!("{}: cannot be opened: {error}", path.display());
    FileError { message, help: way_out(error, "check the path; it is relative to the network file") }
}

/// Reads the start of a capture.
fn reader(path: &Path, file: File) -> Result<Reader, FileError> {
    let reader = Reader::from_file(file, path.to_string_lossy());
    reader.map_err(|error| FileError { message: error.to_string(), help: "give a pcap or pcapng file" })
}
