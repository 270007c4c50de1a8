//! `pcap-reader`: reads packets from a capture file.

mod file;
mod pace;
mod pipe;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError, TrafficRate};
use bellows_engine::{App, AppError, Counters, Io, PROGRESS, PROGRESS_TOTAL, Port, Ports, Status, counters};
use bellows_packet::{LARGE_DATA_ROOM, pool};
use bellows_sys::FileError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::file::CaptureFile;
use self::pace::ReplayPace;
use self::pipe::CapturePipe;
use crate::pcap_filter::{Choices, FilterSource, FiltersStatus, Programs, ScopeChoice};

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

/// Where packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Pipe(pipe::PipeInput),
}

impl Place {
    fn of(path: &Path, from_network_file: PathBuf) -> Place {
        let is_fifo = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        if pipe::is_stdin(path) {
            Place::Pipe(pipe::PipeInput::Stdin)
        } else if is_fifo(&from_network_file) {
            Place::Pipe(pipe::PipeInput::Fifo(from_network_file))
        } else {
            Place::File(from_network_file)
        }
    }

    fn open(&self) -> Result<Box<dyn PacketSource>, AppError> {
        Ok(match self {
            Place::File(path) => Box::new(CaptureFile::open(path)?),
            Place::Pipe(place) => Box::new(CapturePipe::new(place.clone())?),
        })
    }
}

/// The packets of a file or a pipe, and the position in it.
trait PacketSource: Send {
    /// The thread of a pipe starts here.
    fn begin(&mut self) {}

    /// Sends a burst of the packets that match and are due, as far as there are room and buffers. Hot.
    fn send(&mut self, io: &Io<PcapReader>, orders: &mut Orders);

    /// A packet is due.
    fn tick(&mut self, io: &Io<PcapReader>);

    /// Number of packets inside.
    fn held(&self) -> usize;

    /// Whether the last packet has been sent.
    fn is_over(&self, repeat: Repeat) -> bool;

    /// Bytes read so far, and bytes to read in all passes (0 if there is no end).
    fn progress(&self, repeat: Repeat) -> (u64, u64);

    /// Why there are no more packets, if that is an error.
    fn take_error(&mut self) -> Option<AppError>;
}

/// Which packets leave, and when. A reload may change it while the source stays.
struct Orders {
    pace: ReplayPace,
    repeat: Repeat,
    filter: Option<Arc<Programs>>,
}

/// Sends the packets of a capture.
pub struct PcapReader {
    place: Place,
    orders: Orders,
    /// `None` before the start, and after another app has taken it over.
    source: Option<Box<dyn PacketSource>>,
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
        let source = self.source.as_mut().filter(|source| !source.is_over(self.orders.repeat));
        let Some(source) = source else { return io.slot(0).never() };
        source.send(io, &mut self.orders);
        let (sent, total) = source.progress(self.orders.repeat);
        io.set(PcapReader::SENT, sent);
        io.set(PcapReader::TOTAL, total);
    }

    fn tick(&mut self, io: &Io<Self>) {
        if let Some(source) = &mut self.source {
            source.tick(io);
        }
    }

    fn slots(&self) -> usize {
        1
    }

    fn held(&self) -> usize {
        self.source.as_ref().map_or(0, |source| source.held())
    }

    fn is_finished(&self) -> bool {
        self.source.as_ref().is_none_or(|source| source.is_over(self.orders.repeat))
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        self.orders.filter.clone().map(|filter| filter as Arc<dyn Status>)
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        let inherited = old.filter(|old| old.place == self.place).and_then(|old| old.source.take());
        self.source = Some(match inherited {
            Some(source) => source,
            None => self.place.open()?,
        });
        Ok(())
    }

    fn begin(&mut self) {
        if let Some(source) = &mut self.source {
            source.begin();
        }
    }

    fn give_back(&mut self, old: &mut Self) {
        if old.place == self.place && old.source.is_none() {
            old.source = self.source.take();
        }
    }

    fn stop(&mut self) -> Result<(), AppError> {
        self.source.take().and_then(|mut source| source.take_error()).map_or(Ok(()), Err)
    }
}

/// Whether no buffer of the pool can ever hold `length` bytes.
#[cold]
fn exceeds_buffers(length: usize) -> bool {
    length > LARGE_DATA_ROOM || pool::usage().large_packets == 0
}

impl Configure for PcapReader {
    const NAME: &'static str = "pcap-reader";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<FiltersStatus<'static>>());
    type Config = Config;

    fn bench(files: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys(format!(r#"path = {}, repeat = "forever""#, files.capture()))
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
            (Speed::Max, None) => ReplayPace::Max,
            (Speed::Recorded, None) => ReplayPace::recorded(config.factor),
            (Speed::Max, Some(rate)) if rate.is_zero() => {
                let help = "give a rate above 0, or leave it out to send as fast as possible";
                return Err(SettingError::at("rate", "a rate of 0 sends nothing", help));
            }
            (Speed::Max, Some(rate)) => ReplayPace::rate(rate),
            (Speed::Recorded, Some(_)) => {
                let help = "leave out `rate` or `speed`";
                return Err(SettingError::at("rate", "`rate` and `speed = \"recorded\"` exclude each other", help));
            }
        };
        let place = Place::of(&config.path, context.path(&config.path));
        if place == Place::Pipe(pipe::PipeInput::Stdin) && pipe::stdin_is_network() {
            let help = "give the path of a file or of a named pipe, or read the network from a file";
            return Err(SettingError::at("path", "the network itself comes from standard input", help));
        }
        match &place {
            Place::Pipe(_) if config.repeat != Repeat::default() => {
                let help = "leave `repeat` out, or save the capture to a file first";
                return Err(SettingError::at("repeat", "a pipe can be sent only once", help));
            }
            Place::Pipe(_) => {}
            Place::File(path) => {
                let looked = file::reader(path);
                looked.map_err(|FileError { message, help }| SettingError::at("path", message, help))?;
            }
        }
        if config.filter.is_none() && config.scope != ScopeChoice::default() {
            let help = "add `filter = \"tcp port 80\"`, for example, or leave `scope` out";
            return Err(SettingError::at("scope", "`scope` needs `filter`", help));
        }
        let choices = Choices { scope: config.scope.into(), ..Choices::default() };
        let compile = |text| Programs::compile(vec![FilterSource::of_key("filter", text)], &choices, context);
        let filter = config.filter.map(compile).transpose()?;
        let orders = Orders { pace, repeat: config.repeat, filter: filter.map(Arc::new) };
        Ok(PcapReader { place, orders, source: None })
    }
}
