//! `pcap-writer`: writes packets to a capture file.

mod output;
mod place;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use bellows_capture::{OutputFormat, WriterOptions};
use bellows_config::access::{FileGroup, FileMode, file_access};
use bellows_config::{BenchFiles, BenchSetup, Bytes, Configure, Context, Resource, SettingError};
use bellows_engine::{App, AppError, Counters, Io, Port, Ports, counters};
use bellows_sys::FileError;
use bellows_sys::access::FileAccess;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::output::{NotWritten, OpenError, Output, Rotation, Written};

/// Writes packets to a capture file that tcpdump and Wireshark can read.
///
/// Packets end here. The file is created beside the old one, with its permissions, and replaces it when every app has
/// started: a network that cannot start, or a reload that fails, leaves the old file unchanged. (A file with several
/// names, or one whose folder is not writable, is emptied at that moment instead. A symbolic link stays, and its target
/// is replaced. A file `out.pcap.bellows-new-PID-N` was left by a process that was killed while it started; the next
/// run removes it.) The file is written through a buffer that is flushed every second, so it can be read while it
/// grows. A run without packets leaves a valid file without packets. A file that a `pcap-reader` or another
/// `pcap-writer` has open is an error, and is not touched.
///
/// With `path = "-"` the capture goes to standard output: `bellows run NETWORK | tcpdump -n -r -`. The report then goes
/// to standard error, and packets wait in the link while the reader does not keep up. When the reader ends (`| head`),
/// packets are dropped as `write_failed`. The run then ends with an error, unless packets also end in another app, such
/// as a `sink`, a `vhost-user` or a `pcap-writer` of a file.
///
/// A packet that was read from a capture keeps its time, its length on the wire, and its link type; all others are
/// written as Ethernet frames of their own length, with the current time. A pcap file has one link type, that of its
/// first packet: packets of another one are dropped as `link_type`. A pcapng file has an interface for each port and
/// link type that packets came from, up to 1,024; packets from further ones are dropped as `link_type`, too. Packets
/// whose time pcap cannot express, after 2106-02-07, are dropped as `timestamp`.
///
/// When writing fails (a full disk), the file is truncated to its last whole packet, the log says so, and the app tries
/// again every second: the buffer is written as soon as there is room, and packets that do not fit into the buffer are
/// dropped as `write_failed`. Packets counted as `written` are in the file. A run that has lost packets this way ends
/// with an error that names the file.
///
/// With `rotate`, a full file is renamed to a name with a number, and a new file takes its place: of `out.pcap`, the
/// oldest is `out.1.pcap`, the next `out.2.pcap`, and `out.pcap` is the current one. Files of an earlier run with these
/// names are replaced.
///
/// A reload that does not change `path`, `format`, `resolution`, `snaplen`, `mode` or `group` continues the same file.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file, relative to the network file, or `-` for standard output. Its folder must exist.
    pub path: PathBuf,

    /// The format: `pcap`, which every tool reads, or `pcapng`, which can contain several interfaces and link types. By
    /// default the file name decides: `pcapng` for names that end in `.pcapng`, else `pcap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,

    /// Maximum number of bytes to keep of a packet, 1 or more; by default all, up to the 262,144 that tools accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 1))]
    pub snaplen: Option<u32>,

    /// The unit of times in a pcap file: `ns`, or `us` for old tools. pcapng files always have nanoseconds.
    #[serde(default)]
    pub resolution: Resolution,

    /// The time to write for each packet: `original` for the packet's own (also 0, an unknown time), or the current
    /// time if it has none; `now` for the current time always.
    #[serde(default)]
    pub timestamps: Timestamps,

    /// Start a new file before the current one gets larger than this. By default there is one file of any size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "bytes"))]
    pub rotate: Option<Bytes>,

    /// Number of files to keep, 1 or more, including the current one; older files are removed. By default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "files"), range(min = 1))]
    pub keep: Option<u64>,

    /// The permissions of the file, in octal, regardless of the umask: `"0640"` lets the group read it, and nobody
    /// else. The file, and each file of a rotation, has them before its first packet is written. By default those of
    /// the file that is replaced, or those that the umask allows. The owner must be able to read and write the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,

    /// The group of the file, by name or number: one of the user's groups, or any for root. By default that of the file
    /// that is replaced, or the one that the system assigns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<FileGroup>,
}

/// The format of a file to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Format {
    /// Classic pcap.
    Pcap,
    /// pcapng.
    Pcapng,
}

/// The unit of times in a pcap file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum Resolution {
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Nanoseconds.
    #[default]
    #[serde(rename = "ns")]
    Nanoseconds,
}

/// The time to write for each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Timestamps {
    /// The packet's own.
    #[default]
    Original,
    /// The time of writing.
    Now,
}

/// Maximum time that packets stay in the buffer, in nanoseconds.
const FLUSH_EVERY: u64 = 1_000_000_000;

/// Writes packets to a file.
pub struct PcapWriter {
    /// The app's name, for the log.
    name: String,
    path: PathBuf,
    options: WriterOptions,
    access: FileAccess,
    rotation: Rotation,
    timestamps: Timestamps,
    /// `None` before the start, and after another app has taken over the file.
    output: Option<Output>,
    /// Whether a tick to flush is requested.
    will_flush: bool,
}

/// The path that means standard output.
const STDOUT: &str = "-";

/// Maximum time that packets stay in the buffer on their way to standard output, in nanoseconds.
const FLUSH_STDOUT_EVERY: u64 = 50_000_000;

/// Time until a full pipe is tried again, in nanoseconds.
const RETRY_AFTER: u64 = 1_000_000;

/// Whether an app writes to standard output.
static STDOUT_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether a capture goes to standard output in this process, so that nothing else may be written there.
pub fn has_stdout() -> bool {
    STDOUT_IS_TAKEN.load(Relaxed)
}

counters! { PcapWriter;
    drop LINK_TYPE = "link_type", "packets of a link type or port that the file cannot contain";
    drop TIMESTAMP = "timestamp", "packets whose time the file cannot express";
    drop WRITE_FAILED = "write_failed", "packets lost because the file could not be written";
    count FILES = "full_files", "full files that were replaced by a new one", in "files";
    count CUT = "cut", "packets of which only the first bytes were written";
    gauge WRITTEN = "written", "packets in the files; up to a second behind while the network runs";
}

impl App for PcapWriter {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to write")]);
    const PREFETCH: usize = 8;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let flush_every = if self.is_stdout() { FLUSH_STDOUT_EVERY } else { FLUSH_EVERY };
        let Some(output) = &mut self.output else { return };
        let mut now = None;
        let mut now = || *now.get_or_insert_with(wall_clock);
        let mut cut = 0;
        let mut input = io.input(0);
        if !output.accepts() {
            io.wake_at(io.now().saturating_add(RETRY_AFTER));
            return;
        }
        for packet in &mut input {
            let meta = packet.meta();
            let timestamp = match (self.timestamps, meta) {
                (Timestamps::Original, Some(meta)) => meta.timestamp,
                _ => now(),
            };
            match output.write(packet.bytes(), timestamp, meta, self.rotation) {
                Ok(Written::Whole) => {}
                Ok(Written::Cut) => cut += 1,
                Err(NotWritten::LinkType) => io.drop(packet, PcapWriter::LINK_TYPE),
                Err(NotWritten::Timestamp) => io.drop(packet, PcapWriter::TIMESTAMP),
                Err(NotWritten::Failed) => io.drop(packet, PcapWriter::WRITE_FAILED),
            }
            if !output.accepts() {
                break;
            }
        }
        drop(input);
        io.count(PcapWriter::FILES, output.take_full_files());
        io.count(PcapWriter::CUT, cut);
        if !self.will_flush {
            self.will_flush = true;
            io.wake_at(io.now().saturating_add(flush_every));
        }
        account(io, output);
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.will_flush = false;
        if let Some(output) = &mut self.output {
            if !output.flush() {
                // Tries again, whether packets come or not.
                self.will_flush = true;
                io.wake_at(io.now().saturating_add(FLUSH_EVERY));
            }
            account(io, output);
            io.set(PcapWriter::WRITTEN, output.written());
        }
    }

    fn begin(&mut self) {
        if let Some(output) = &mut self.output {
            output.begin();
        }
    }

    fn end(&mut self, io: &Io<Self>) {
        if let Some(output) = &mut self.output {
            output.end();
            account(io, output);
            io.set(PcapWriter::WRITTEN, output.written());
        }
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        let old = old.filter(|old| old.path == self.path && old.output.is_some());
        self.output = match old {
            Some(old) if (old.options, old.access) != (self.options, self.access) => {
                return Err(OpenError::OtherFormat { path: self.path.clone() }.into());
            }
            Some(old) => old.output.take().map(|output| output.of_app(&self.name)).inspect(Output::tell_trouble),
            None if self.is_stdout() => {
                if std::io::stdout().is_terminal() {
                    return Err(OpenError::Terminal.into());
                }
                if STDOUT_IS_TAKEN.swap(true, Relaxed) {
                    return Err(OpenError::StdoutTaken.into());
                }
                Some(Output::stdout(self.options)?.of_app(&self.name))
            }
            None => Some(Output::open(&self.path, self.options, self.access)?.of_app(&self.name)),
        };
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        if old.output.is_none() {
            old.output = self.output.take();
        }
    }

    fn stop(&mut self) -> Result<(), AppError> {
        self.output.take().map_or(Ok(()), Output::finish)
    }
}

impl PcapWriter {
    fn is_stdout(&self) -> bool {
        self.path == Path::new(STDOUT)
    }
}

/// Counts the packets lost from the buffer, and calls `close` if the reader is gone.
fn account(io: &Io<PcapWriter>, output: &mut Output) {
    if output.reader_is_gone() {
        io.close();
    }
    let lost = output.take_uncounted();
    if lost > 0 {
        io.lost(lost, PcapWriter::WRITE_FAILED);
    }
}

/// Nanoseconds since the Unix epoch.
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}

impl Configure for PcapWriter {
    const NAME: &'static str = "pcap-writer";
    type Config = Config;

    fn bench(files: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys(format!(r#"path = {}, rotate = "16MiB", keep = 1"#, files.written()))
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        let path = context.path(&config.path);
        vec![match config.rotate {
            _ if config.path.as_os_str() == "-" => Resource::standard_output("path"),
            Some(_) => Resource::writes_numbered("path", path),
            None => Resource::writes("path", path),
        }]
    }

    fn configure(config: Config, context: &Context) -> Result<PcapWriter, SettingError> {
        let is_stdout = config.path == Path::new(STDOUT);
        let path = if is_stdout { config.path.clone() } else { context.path(&config.path) };
        if !is_stdout {
            check_path(&path)?;
        } else if config.rotate.is_some() {
            let message = "standard output cannot be rotated";
            return Err(SettingError::at("rotate", message, "leave `rotate` out, or give the path of a file"));
        }
        let access = file_access(config.mode, config.group);
        check_access(&path, is_stdout, access)?;
        let ends_in = |ending: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending));
        let by_name = if ends_in("pcapng") { Format::Pcapng } else { Format::Pcap };
        if config.snaplen == Some(0) {
            return Err(SettingError::at(
                "snaplen",
                "a `snaplen` of 0 keeps nothing of a packet",
                "leave `snaplen` out to keep all of it",
            ));
        }
        if config.rotate == Some(Bytes::new(0)) {
            return Err(SettingError::at(
                "rotate",
                "a file of 0 bytes has no room for packets",
                "leave `rotate` out to write one file",
            ));
        }
        if config.rotate.is_some() && std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            let message = format!("{} is a device, which cannot be rotated", path.display());
            return Err(SettingError::at("rotate", message, "leave `rotate` out, or give the path of a file"));
        }
        if config.keep == Some(0) {
            return Err(SettingError::at("keep", "`keep` of 0 keeps no file", "give 1 or more, or leave `keep` out"));
        }
        if config.keep.is_some() && config.rotate.is_none() {
            let help = "add `rotate = \"100MB\"`, for example, or leave `keep` out";
            return Err(SettingError::at("keep", "without `rotate` there is only one file", help));
        }
        let format = match (config.format.unwrap_or(by_name), config.resolution) {
            (Format::Pcapng, Resolution::Microseconds) => {
                let help = "leave `resolution` out, or set `format = \"pcap\"`";
                return Err(SettingError::at("resolution", "pcapng files always have nanoseconds", help));
            }
            (Format::Pcapng, Resolution::Nanoseconds) => OutputFormat::Pcapng,
            (Format::Pcap, Resolution::Microseconds) => OutputFormat::PcapMicroseconds,
            (Format::Pcap, Resolution::Nanoseconds) => OutputFormat::PcapNanoseconds,
        };
        let options = WriterOptions { format, snap_length: config.snaplen.unwrap_or(0), ..WriterOptions::default() };
        let rotation = Rotation { limit: config.rotate.map(Bytes::bytes), keep: config.keep };
        let timestamps = config.timestamps;
        Ok(PcapWriter {
            name: context.app.clone(),
            path,
            options,
            access,
            rotation,
            timestamps,
            output: None,
            will_flush: false,
        })
    }
}

/// Checks whether permissions and a group are possible for the file.
fn check_access(path: &Path, is_stdout: bool, access: FileAccess) -> Result<(), SettingError> {
    const OWNER: u32 = 0o600;
    if let Some(mode) = access.mode.filter(|mode| mode & OWNER != OWNER) {
        let message = format!("with the mode {mode:04o} the owner cannot read and write the file");
        return Err(SettingError::at(
            "mode",
            message,
            format!("give {:04o}, or another mode that includes 0600", mode | OWNER),
        ));
    }
    let key = if access.mode.is_some() { "mode" } else { "group" };
    let is_device = || std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    let what = match () {
        () if access.is_default() => return Ok(()),
        () if is_stdout => "standard output",
        () if is_device() => "a device",
        () => return Ok(()),
    };
    let help = format!("leave `{key}` out, or give the path of a file");
    Err(SettingError::at(key, format!("{what} keeps its permissions and group"), help))
}

/// Checks, without touching anything, whether a file can be created.
fn check_path(path: &Path) -> Result<(), SettingError> {
    use std::os::unix::fs::FileTypeExt;
    let wrong =
        |message: &str, help: &str| Err(SettingError::at("path", format!("{}: {message}", path.display()), help));
    if let Some(ending) = path.extension().filter(|&ending| ending == "gz" || ending == "zst") {
        let help = format!("leave `.{}` off the name, and compress the file afterwards", ending.display());
        return wrong("files are written uncompressed", &help);
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => wrong("is a folder", "give the name of a file in it"),
        Ok(found) if !found.is_file() && !found.file_type().is_char_device() => {
            wrong("is not a regular file", "give a regular file; a full pipe would stop the whole network")
        }
        Ok(_) => Ok(()),
        Err(error) => match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) if !folder.is_dir() => {
                let FileError { message, help } = FileError::writing(path, &error);
                Err(SettingError::at("path", message, help))
            }
            _ => Ok(()),
        },
    }
}
