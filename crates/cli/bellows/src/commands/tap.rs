//! `bellows tap`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellows_capture::{Error, ErrorKind, LinkType};
use bellows_engine::TapRecord;
use bellows_filter::{self as filter, Options};
use bellows_inspect::control::frame::TapEnd;
use bellows_inspect::control::{Connection, Reply, Request};
use bellows_inspect::journey::summary;
use bellows_inspect::networks::Access;
use bellows_inspect::tap::{CaptureFile, Counts, Sink, TapStop, TapTaken};
use bellows_inspect::text::sanitize;
use bellows_sys::FileError;
use bellows_wire::EthernetFrame;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::arguments::NetworkName;
use crate::command_error::CommandError;
use crate::filters::{Compiler, diagnose};
use crate::operating::network;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{count, date_and_time, plural};
use crate::watch::{EventFlag, Status, catch_signals, on_broken_pipe, on_signal};

/// Print or capture the packets of a link of a running network
///
/// Without -w each packet is printed on a line as `tcpdump -n -tttt` does, with the time in UTC; with -e the line
/// begins with the Ethernet addresses.
///
/// The link is written as in the network file: `bellows tap NAME 'a.output -> b.input' -w - | tcpdump -n -r -`. The
/// capture ends after the given number of packets, with Ctrl-C, when its reader closes the pipe, or with the link. A
/// network runs a little slower while a link is captured, and never waits for the capture: packets that cannot be
/// stored in time are missed, and counted. If the process is stopped or an app hangs for five seconds, the command
/// gives up and prints the reason.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub struct Arguments {
    #[command(flatten)]
    network: NetworkName,
    /// The link, such as `a.output -> b.input`
    #[arg(value_name = "LINK", required = true)]
    link: String,
    /// Keep only packets that match this expression, such as 'tcp port 80'
    ///
    /// The language is that of tcpdump; `bellows filter EXPR` explains an expression. Packets of link types that filters
    /// do not know are left out, and counted.
    #[arg(long, short, value_name = "EXPR")]
    filter: Option<String>,
    /// Pcap file to write, or - for standard output
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Begin each line with the Ethernet addresses
    #[arg(short = 'e', conflicts_with = "write")]
    addresses: bool,
    /// Print each packet as a line of JSON (see docs/json.md)
    #[arg(long, conflicts_with = "write")]
    json: bool,
    /// Stop after this number of packets
    #[arg(long, short, value_name = "PACKETS")]
    count: Option<u64>,
    /// Bytes to keep of each packet
    #[arg(long, short, value_name = "BYTES", default_value_t = MAX_SNAP_LENGTH, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SNAP_LENGTH)))]
    snap_length: u32,
}

/// The maximum number of bytes to keep of a packet.
const MAX_SNAP_LENGTH: u32 = 262_144;

/// The file name that stands for standard output.
const STDOUT: &str = "-";

impl Execute for Arguments {
    const READS: &'static [&'static str] = &["tap NAME LINK -c 1"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let link = &self.link;
        if self.write.as_deref() == Some(Path::new(STDOUT)) && terminal::shows_stdout() {
            return Err(CommandError::Usage(
                "standard output is a terminal, which cannot show a capture; send it on with `| tcpdump -n -r -`, \
                 or name a file with `-w FILE`"
                    .to_owned(),
            ));
        }
        let mut filter = self.filter.as_deref().map(compile).transpose()?;
        let runtime_dir = network(self.network.get(), Access::Read)?;
        // Expressions may look at any byte.
        let snap = if filter.is_some() { MAX_SNAP_LENGTH } else { self.snap_length };
        let request = Request::Tap { link: link.clone(), snap: snap as usize };
        let signals = catch_signals()?;
        let (reply, mut connection) = Connection::open(&runtime_dir, &request)?;
        if reply != Reply::Tapping {
            return Err(CommandError::Failed(format!("unexpected reply: {reply:?}")));
        }
        let interrupted = on_signal(signals, connection.hangup()?);
        let mut counts = Counts::default();
        let is_wanted = |record: &TapRecord| filter.as_mut().map_or(Some(true), |filter| is_match(filter, record));
        let (end, unread) = match &self.write {
            Some(path) => {
                let Destination { file, name, unread, status } = Destination::open(path, &connection)?;
                let mut file = FileSink { file: CaptureFile::new(file, name, self.snap_length), status };
                let end = counts.read(connection.stream(None), self.count, is_wanted, &mut file);
                let end = end.and_then(|end| file.file.finish().map(|()| end));
                (end.map_err(|error| (is_broken_pipe(&error), error.to_string())), unread)
            }
            None => {
                let stdout = io::stdout().as_fd().try_clone_to_owned()?;
                let unread = on_broken_pipe(stdout, connection.hangup()?);
                let mut lines = LineSink { out: io::BufWriter::new(io::stdout().lock()), arguments: &self };
                let end = counts.read(connection.stream(None), self.count, is_wanted, &mut lines);
                let end = end.and_then(|end| lines.out.flush().map(|()| end));
                let failed = |error: io::Error| {
                    (error.kind() == io::ErrorKind::BrokenPipe, format!("cannot write the output: {error}"))
                };
                (end.map_err(failed), unread)
            }
        };
        let end = match end {
            Err((true, _)) => None,
            Ok(TapStop::Count | TapStop::Full | TapStop::Told(TapEnd::Requested)) if unread.get() => None,
            why => Some(why.map_err(|(_, error)| CommandError::Failed(error))?),
        };
        let given_up = connection.given_up().map(str::to_owned);
        let why = match end {
            _ if given_up.is_some() => String::new(),
            // The reader has closed the pipe, and nobody reads a summary; after Ctrl-C somebody does.
            None if !interrupted.get() => return Ok(ExitCode::SUCCESS),
            None | Some(TapStop::Count | TapStop::Full | TapStop::Told(TapEnd::Requested)) => String::new(),
            Some(TapStop::Told(TapEnd::Gone)) => format!("`{link}` is gone\n"),
            Some(TapStop::Told(TapEnd::Over)) => format!("`{}` has ended\n", runtime_dir.name()),
        };
        let Counts { packets, missed, foreign, undecided } = counts;
        let foreign = match foreign {
            0 => String::new(),
            _ => format!(", {} left out: not the link type of the first one", count(foreign)),
        };
        let undecided = match undecided {
            0 => String::new(),
            _ => format!(", {} left out: the expression does not apply to their link type", count(undecided)),
        };
        let packets = plural(packets, "packet");
        terminal::notice(&format!("{why}{packets} captured, {} missed{foreign}{undecided}\n", count(missed)));
        match given_up {
            Some(reason) => {
                Err(CommandError::Failed(format!("no more packets come from `{}`: {reason}", runtime_dir.name())))
            }
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

/// The output of a capture.
struct Destination {
    file: File,
    name: String,
    /// Whether it is a pipe whose reader is gone.
    unread: EventFlag,
    status: Status,
}

impl Destination {
    /// Opens a file, or standard output.
    fn open(path: &Path, connection: &Connection) -> Result<Destination, CommandError> {
        if path == Path::new(STDOUT) {
            let stdout = io::stdout().as_fd().try_clone_to_owned()?;
            let unread = on_broken_pipe(stdout.try_clone()?, connection.hangup()?);
            let name = "standard output".to_owned();
            return Ok(Destination { file: File::from(stdout), name, unread, status: Status::hidden() });
        }
        let name = path.display().to_string();
        let refused = |error| CommandError::Usage(FileError::writing(path, &error).to_string());
        let file = File::create(path).map_err(refused)?;
        Ok(Destination { file, name, unread: EventFlag::default(), status: Status::on_terminal() })
    }
}

/// The expression, checked with Ethernet, the usual link type.
fn compile(text: &str) -> Result<Compiler<'_>, CommandError> {
    let mut compiler = Compiler::new(text, Options::default());
    match compiler.get(filter::LinkType::default()) {
        Ok(_) => Ok(compiler),
        Err(mistake) => Err(CommandError::Diagnosed(diagnose(text, &mistake).render(terminal::stderr_is_rich()))),
    }
}

/// Whether a packet matches the expression; nothing if that does not apply to the packet's link type.
fn is_match(compiler: &mut Compiler<'_>, record: &TapRecord) -> Option<bool> {
    let link_type = filter::LinkType::from_number(record.link_type).ok()?;
    let compiled = compiler.get(link_type).ok()?;
    Some(compiled.matches(&record.bytes, record.length))
}

/// A capture file, and a line about it on the terminal.
struct FileSink {
    file: CaptureFile<File>,
    status: Status,
}

impl Sink for FileSink {
    type Error = Error;

    fn take(&mut self, record: TapRecord) -> Result<TapTaken, Error> {
        self.file.take(record)
    }

    fn pause(&mut self, counts: &Counts) -> Result<(), Error> {
        self.file.pause(counts)?;
        let Counts { packets, missed, .. } = *counts;
        self.status.update(|| format!("{} captured, {} missed", plural(packets, "packet"), count(missed)));
        Ok(())
    }
}

/// A line for each packet.
struct LineSink<'a, W: Write> {
    out: W,
    arguments: &'a Arguments,
}

impl<W: Write> Sink for LineSink<'_, W> {
    type Error = io::Error;

    fn take(&mut self, mut record: TapRecord) -> io::Result<TapTaken> {
        record.bytes.truncate(self.arguments.snap_length as usize);
        writeln!(self.out, "{}", line(&record, self.arguments))?;
        Ok(TapTaken::Kept)
    }

    fn pause(&mut self, _: &Counts) -> io::Result<()> {
        self.out.flush()
    }
}

/// A packet as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Tapped packet")]
pub struct TappedPacket {
    /// When it passed: nanoseconds since the Unix epoch.
    time_ns: u64,
    /// Its length in bytes.
    length: u32,
    /// Number of captured bytes (`--snap-length`).
    captured: usize,
    /// The link type of its outermost header, as numbered by pcap.
    link_type: u32,
    /// A description in the format of `tcpdump -n`.
    summary: String,
}

/// A packet on one line.
fn line(record: &TapRecord, arguments: &Arguments) -> String {
    let TapRecord { at, length, link_type, bytes } = record;
    let summary = summary(*link_type, bytes, *length);
    if arguments.json {
        let captured = bytes.len();
        let packet = TappedPacket { time_ns: *at, length: *length, captured, link_type: *link_type, summary };
        return json!(packet).to_string();
    }
    let ethernet = EthernetFrame::new_checked(&bytes[..]).ok();
    let addresses = match ethernet.filter(|_| arguments.addresses && LinkType(*link_type) == LinkType::ETHERNET) {
        Some(frame) => format!("{} > {}, length {length}: ", frame.src(), frame.dst()),
        None => String::new(),
    };
    sanitize(&format!("{} {addresses}{summary}", date_and_time(*at)))
}

fn is_broken_pipe(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Write { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}
