//! What the site asks of engines over their control sockets: only when a person asks the page for it.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use bellows_engine::TapRecord;
use bellows_filter::interpret::PacketView;
use bellows_filter::{ByLinkType, Options};
use bellows_inspect::control::frame::TapEnd;
use bellows_inspect::control::{Connection, Hangup, OBSTACLE_TIMEOUT, Reply, Request, TraceEnd, ask};
use bellows_inspect::journey::{Journeys, TraceReport};
use bellows_inspect::networks::{self, Sample, State};
use bellows_inspect::reports::Subject;
use bellows_inspect::tap::{CaptureFile, Counts, Sink, TapStop, TapTaken};
use bellows_inspect::{InspectError, baseline};
use bellows_observe::RuntimeDir;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answers::{Changed, Statuses, Traced};
use crate::client::Client;

/// The maximum number of packets of a trace.
const MAX_TRACED: usize = 100;

/// The maximum number of packets of a tap.
const MAX_TAPPED: u64 = 100_000;

/// The maximum size of a tap's capture, in bytes.
const MAX_CAPTURE: u64 = 64 << 20;

/// The maximum duration of a trace or tap, in seconds.
const MAX_SECONDS: f64 = 60.0;

/// The maximum number of bytes of a packet.
const MAX_SNAP: u32 = 262_144;

/// Follows packets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    pub network: String,
    #[serde(default)]
    pub app: Option<String>,
    #[serde(default)]
    pub filter: Option<String>,
    pub count: usize,
    pub seconds: f64,
}

/// Copies the packets of a link.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tap {
    pub network: String,
    pub link: String,
    #[serde(default)]
    pub filter: Option<String>,
    pub count: u64,
    pub seconds: f64,
}

/// Starts counts again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clear {
    pub network: String,
}

/// Reads the network file again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reload {
    pub network: String,
    /// Apps to restart even if they have not changed.
    #[serde(default)]
    pub restart: Vec<String>,
}

fn request(message: String) -> InspectError {
    InspectError::Request(message)
}

/// A number within limits.
fn within<N: PartialOrd + std::fmt::Display>(what: &str, value: N, least: N, most: N) -> Result<N, InspectError> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(request(format!("{what} is {value}; give a number from {least} to {most}")))
}

/// An expression that is not empty.
fn given(filter: &Option<String>) -> Option<String> {
    filter.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The states that the apps of a network report: `show status --json`.
pub fn status(runtime_dir: &RuntimeDir) -> Result<Value, InspectError> {
    let subject = Subject::of(runtime_dir);
    match ask(runtime_dir, &Request::Apps)? {
        Reply::Apps { apps, objects } => Ok(json!(Statuses { subject, apps, objects })),
        _ => Err(InspectError::Failed(format!("`{}` did not answer with its apps' states", runtime_dir.name()))),
    }
}

/// Follows packets through a network: `trace --json`, with the reason for its end. It ends when the client is gone.
pub fn trace(runtime_dir: &RuntimeDir, order: &Trace, client: &Client) -> Result<Value, InspectError> {
    let seconds = within("the time in seconds", order.seconds, 0.1, MAX_SECONDS)?;
    let count = within("the number of packets", order.count, 1, MAX_TRACED)?;
    let asked = Request::Trace { count, app: order.app.clone(), filter: given(&order.filter), seconds };
    let (reply, mut connection) = Connection::open(runtime_dir, &asked)?;
    if reply != Reply::Tracing {
        return Err(InspectError::Failed("the network answered with something else than a trace".to_owned()));
    }
    let hangup = connection.hangup().map_err(|error| InspectError::Failed(format!("the trace has failed: {error}")))?;
    client.hang_up_when_gone(hangup);
    let mut journeys = Journeys::default();
    // The other side ends the trace when the time is over. If it does not, it hangs.
    let patience = Duration::from_secs_f64(seconds).saturating_add(OBSTACLE_TIMEOUT);
    let end = journeys.read(connection.stream(Some(patience)), |_| {})?;
    let trace = TraceReport {
        name: runtime_dir.name(),
        complete: end == TraceEnd::Complete && journeys.are_over(),
        packets: journeys.traced(),
    };
    Ok(json!(Traced { trace, end, obstacle: connection.given_up() }))
}

/// A capture in memory, of limited size.
struct Download<'b>(CaptureFile<&'b mut Vec<u8>>);

impl Download<'_> {
    fn finish(self) -> Result<(), bellows_capture::Error> {
        self.0.finish()
    }
}

impl Sink for Download<'_> {
    type Error = bellows_capture::Error;

    fn take(&mut self, record: TapRecord) -> Result<TapTaken, bellows_capture::Error> {
        let taken = self.0.take(record)?;
        Ok(if taken == TapTaken::Kept && self.0.size() >= MAX_CAPTURE { TapTaken::Last } else { taken })
    }
}

/// An expression for packets of all link types to which it applies.
fn compile(text: &str) -> Result<ByLinkType, InspectError> {
    ByLinkType::compile(text, &Options::default())
        .map_err(|mistake| request(format!("the filter `{text}` is wrong: {}; {}", mistake.message, mistake.help)))
}

/// Hangs up after a time, unless it is dropped before.
struct Deadline {
    /// Its end tells the thread that the deadline no longer matters.
    _sender: Sender<()>,
}

impl Deadline {
    fn after(time: Duration, hangup: Hangup) -> io::Result<Deadline> {
        let (sender, dropped) = channel::<()>();
        thread::Builder::new().name("deadline".to_owned()).spawn(move || {
            if dropped.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                hangup.now();
            }
        })?;
        Ok(Deadline { _sender: sender })
    }
}

/// What a tap has copied.
#[derive(Debug, PartialEq)]
pub struct Captured {
    /// A pcap file, with nanoseconds.
    pub bytes: Vec<u8>,
    pub packets: u64,
    pub missed: u64,
    /// Packets whose link type is not that of the first one, or one to which the filter does not apply.
    pub left_out: u64,
    /// Why it ended.
    pub end: &'static str,
}

/// Copies the packets that pass a link into a pcap file, until the client is gone at most.
pub fn tap(runtime_dir: &RuntimeDir, order: &Tap, client: &Client) -> Result<Captured, InspectError> {
    let seconds = within("the time in seconds", order.seconds, 0.1, MAX_SECONDS)?;
    let most = within("the number of packets", order.count, 1, MAX_TAPPED)?;
    let filter = given(&order.filter).as_deref().map(compile).transpose()?;
    let failed = |error: &dyn std::fmt::Display| InspectError::Failed(format!("the capture has failed: {error}"));
    let asked = Request::Tap { link: order.link.clone(), snap: MAX_SNAP as usize };
    let (reply, mut connection) = Connection::open(runtime_dir, &asked)?;
    if reply != Reply::Tapping {
        return Err(InspectError::Failed("the network answered with something else than packets".to_owned()));
    }
    let time = Duration::from_secs_f64(seconds);
    let deadline = Deadline::after(time, connection.hangup().map_err(|error| failed(&error))?);
    let deadline = deadline.map_err(|error| failed(&error))?;
    client.hang_up_when_gone(connection.hangup().map_err(|error| failed(&error))?);
    let is_wanted = |record: &TapRecord| match &filter {
        None => Some(true),
        Some(filter) => filter.of(record.link_type).map(|program| {
            let packet = PacketView { bytes: &record.bytes, wire_length: record.length };
            program.decide(packet).first.is_some()
        }),
    };
    let (mut counts, mut bytes) = (Counts::default(), Vec::new());
    let mut download = Download(CaptureFile::new(&mut bytes, "the capture", MAX_SNAP));
    let stream = connection.stream(Some(time.saturating_add(OBSTACLE_TIMEOUT)));
    let end = counts.read(stream, Some(most), is_wanted, &mut download).map_err(|error| failed(&error))?;
    download.finish().map_err(|error| failed(&error))?;
    drop(deadline);
    if let Some(reason) = connection.given_up() {
        return Err(InspectError::Failed(format!("no packets come from `{}`: {reason}", runtime_dir.name())));
    }
    let end = match end {
        TapStop::Count => "packets",
        TapStop::Full => "size",
        TapStop::Told(TapEnd::Requested) => "time",
        TapStop::Told(TapEnd::Gone) => "gone",
        TapStop::Told(TapEnd::Over) => "over",
    };
    let Counts { packets, missed, foreign, undecided } = counts;
    Ok(Captured { bytes, packets, missed, left_out: foreign + undecided, end })
}

/// Starts the counts of `show run`, `show latency` and `top` again, as `bellows clear` does.
pub fn clear(runtime_dir: &RuntimeDir) -> Result<Value, InspectError> {
    networks::refuse_foreign(runtime_dir, "clear", "only its user may restart its counts")?;
    let name = runtime_dir.name();
    if networks::state(runtime_dir) == State::Crashed {
        return Err(request(format!("`{name}` has crashed: its counters are evidence and are not cleared")));
    }
    let mut observer = networks::open(runtime_dir.for_reading())?;
    baseline::write(runtime_dir, &Sample::settled(&mut observer))?;
    Ok(json!(Changed { name, cleared: Some(true), reloaded: None }))
}

/// Has a network read its file again.
pub fn reload(runtime_dir: &RuntimeDir, order: &Reload) -> Result<Value, InspectError> {
    networks::refuse_foreign(runtime_dir, "reload", "only its user may reload it")?;
    match ask(runtime_dir, &Request::Reload { network: None, restart: order.restart.clone(), confirm_ns: None })? {
        Reply::Reloaded(report) => {
            Ok(json!(Changed { name: runtime_dir.name(), cleared: None, reloaded: Some(report) }))
        }
        _ => Err(InspectError::Failed(format!("`{}` did not answer with a report", runtime_dir.name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told() {
        assert_eq!(within("the number of packets", 5, 1, 10), Ok(5));
        let refused = within("the number of packets", 11, 1, 10).unwrap_err().to_string();
        assert_eq!(refused, "the number of packets is 11; give a number from 1 to 10");
        assert!(within("the time", f64::NAN, 0.1, 60.0).is_err() && within("the time", -1.0, 0.1, 60.0).is_err());
    }

    #[test]
    fn mistakes_in_filters_are_told() {
        assert!(compile("arp").is_ok_and(|filter| filter.of(1).is_some() && filter.of(40_000).is_none()));
        let refused = compile("tcp prot 80").err().unwrap().to_string();
        assert!(refused.contains("`tcp prot 80` is wrong: "), "{refused}");
        assert_eq!((given(&Some("  ".to_owned())), given(&Some(" udp ".to_owned()))), (None, Some("udp".to_owned())));
    }

    #[test]
    fn requests_with_unknown_keys_are_errors() {
        let trace = serde_json::from_str::<Trace>(r#"{"network":"a","count":1,"seconds":1,"x":1}"#);
        assert!(trace.is_err());
        let tap = serde_json::from_str::<Tap>(r#"{"network":"a","link":"a -> b","count":1,"seconds":0.5}"#).unwrap();
        assert_eq!((tap.filter, tap.seconds), (None, 0.5));
    }
}
