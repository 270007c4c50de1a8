//! The streams that follow the replies to a trace and a tap.
//!
//! A stream runs on its client's thread. A slow client delays only that thread, since the engine's side has bounded
//! queues. A client ends a stream by closing its side of the connection, and then receives the last line.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bellows_config::nearest;
use bellows_engine::{Control, Hop, HopKind, LinkSpec, MAX_TRACED, Selector, Tap, Trace, TraceOrder, WatchError};
use bellows_filter::{ByLinkType, Options};
use bellows_inspect::control::frame::{Frame, TapEnd};
use bellows_inspect::control::{Reply, TraceEnd, TraceLine, line_of};

use super::server::ControlAnswer;
use crate::filters::diagnose;

/// The sender of a stream.
pub type Stream = Box<dyn FnOnce(&mut Listener) -> io::Result<()>>;

/// The interval at which an idle stream checks that its client is still connected.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The time within which a client reads something. One that is stopped for a while is not gone, but one that is stopped
/// for ever must not take the place of another one.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The number of bytes that are collected before they are sent.
const CHUNK: usize = 256 << 10;

/// The maximum number of steps in a trace: a packet in a loop would never end.
const MAX_HOPS: usize = 100_000;

/// The client of a stream.
pub struct Listener {
    stream: UnixStream,
}

impl Listener {
    pub(super) fn new(stream: UnixStream) -> io::Result<Listener> {
        Listener::with_timeout(stream, TIMEOUT)
    }

    fn with_timeout(stream: UnixStream, timeout: Duration) -> io::Result<Listener> {
        stream.set_write_timeout(Some(timeout))?;
        Ok(Listener { stream })
    }

    /// Whether the client has closed its side or sent anything: both mean the end.
    pub(super) fn has_hung_up(&mut self) -> io::Result<bool> {
        self.stream.set_nonblocking(true)?;
        let read = self.stream.read(&mut [0]);
        self.stream.set_nonblocking(false)?;
        Ok(read.is_ok() || read.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }
}

/// Opens a tap. Its packets follow the reply.
pub fn tap(control: &Control, link: &str, snap: usize) -> ControlAnswer {
    match control.tap(link, snap) {
        Ok(tap) => ControlAnswer::Stream(Reply::Tapping, send_packets(tap, control.clone(), link.to_owned())),
        Err(error) => watch_error(&error, control),
    }
}

/// Starts a trace of packets that match an expression, if there is one. Its steps follow the reply.
pub fn trace(control: &Control, order: TraceOrder, filter: Option<&str>, seconds: f64) -> ControlAnswer {
    let count = order.count;
    let refused = |message: String| Reply::Refused { mistake: true, message: format!("error: {message}") }.into();
    if !(1..=MAX_TRACED).contains(&count) {
        return refused(format!("{count} packets cannot be followed; give a number from 1 to {MAX_TRACED}"));
    }
    let Ok(duration) = Duration::try_from_secs_f64(seconds) else {
        return refused(format!("packets cannot be followed for {seconds} seconds; give a time from 0 on"));
    };
    // Compiled on this thread: looking up names may take long.
    let selector = match filter.map(selector).transpose() {
        Ok(selector) => selector,
        Err(message) => return Reply::Refused { mistake: true, message }.into(),
    };
    match control.trace_selected(order.clone(), selector) {
        Ok(trace) => ControlAnswer::Stream(Reply::Tracing, send_hops(trace, control.clone(), order, duration)),
        Err(error) => watch_error(&error, control),
    }
}

/// Selects packets by an expression. The error is ready to print.
fn selector(text: &str) -> Result<Selector, String> {
    let filter =
        ByLinkType::compile(text, &Options::default()).map_err(|mistake| diagnose(text, &mistake).render(false))?;
    Ok(Box::new(move |packet| filter.matches(packet)))
}

/// The error for an unknown name, with a suggestion if there is one.
fn watch_error(error: &WatchError, control: &Control) -> ControlAnswer {
    let counters = control.snapshot();
    let (name, known): (&str, Vec<String>) = match error {
        WatchError::Busy | WatchError::Over | WatchError::TooMany(_) => {
            return Reply::Refused { mistake: false, message: error.to_string() }.into();
        }
        WatchError::SendsNothing { .. } => {
            return Reply::Refused { mistake: true, message: format!("error: {error}") }.into();
        }
        WatchError::NoApp(name) => (name, counters.apps.into_iter().map(|app| app.name).collect()),
        WatchError::NoLink(name) => {
            (name, counters.links.iter().map(|link| format!("{} -> {}", link.from, link.to)).collect())
        }
    };
    // A single word that is not a link may match several links.
    let is_comparable = matches!(error, WatchError::NoApp(_)) || name.contains("->");
    let near = nearest(name, known.iter().map(String::as_str)).filter(|_| is_comparable);
    let hint = match near {
        Some(near) => format!("; did you mean `{near}`?"),
        None => format!("; there are {}", listed(name, &known)),
    };
    Reply::Refused { mistake: true, message: format!("error: {error}{hint}") }.into()
}

/// The maximum number of names in an error.
const MAX_LISTED: usize = 8;

/// The names that there are: of many those that contain the wanted one, or else the first.
fn listed(wanted: &str, known: &[String]) -> String {
    if known.len() <= MAX_LISTED {
        return known.join(", ");
    }
    let alike: Vec<&str> = known.iter().map(String::as_str).filter(|name| name.contains(wanted)).collect();
    let all = || known.iter().map(String::as_str).collect();
    let mut shown: Vec<&str> = if alike.is_empty() { all() } else { alike };
    shown.truncate(MAX_LISTED);
    format!("{} and {} more, which `bellows show` lists", shown.join(", "), known.len() - shown.len())
}

fn send_packets(mut tap: Tap, control: Control, link: String) -> Stream {
    Box::new(move |listener| {
        let mut missed = 0;
        let mut piece = Vec::new();
        loop {
            let mut wait = Instant::now() + POLL_INTERVAL;
            while let Some(records) = tap.next(wait) {
                records.into_iter().for_each(|record| Frame::Packet(record).write(&mut piece));
                if piece.len() >= CHUNK {
                    break;
                }
                // Send the packets that are already there, and do not wait for more.
                wait = Instant::now();
            }
            if tap.missed() != missed {
                missed = tap.missed();
                Frame::Missed(missed).write(&mut piece);
            }
            let end = match listener.has_hung_up()? {
                true => Some(TapEnd::Requested),
                // Send the remaining packets first.
                false if !tap.is_over() || !piece.is_empty() => None,
                false if has_link(&control, &link) => Some(TapEnd::Over),
                false => Some(TapEnd::Gone),
            };
            if let Some(why) = end {
                Frame::End(why).write(&mut piece);
            }
            listener.send(&piece)?;
            if end.is_some() {
                return Ok(());
            }
            piece.clear();
        }
    })
}

/// Whether a link is in the current network, or in the last one.
fn has_link(control: &Control, link: &str) -> bool {
    let Ok(link) = link.parse::<LinkSpec>() else { return false };
    control
        .snapshot()
        .links
        .iter()
        .any(|known| (&known.from, &known.to) == (&link.from.to_string(), &link.to.to_string()))
}

fn send_hops(mut trace: Trace, control: Control, order: TraceOrder, duration: Duration) -> Stream {
    Box::new(move |listener| {
        // A deadline too far away to represent counts as none.
        let end = Instant::now().checked_add(duration);
        let mut map = Map::new(control.clone());
        let (mut hops, mut packets) = (0, 0);
        let why = loop {
            let next_poll = Instant::now() + POLL_INTERVAL;
            let wait = end.map_or(next_poll, |end| end.min(next_poll));
            match trace.next(wait) {
                Some(hop) => {
                    hops += 1;
                    packets = hop.packet.max(packets);
                    let to = map.destination(&hop);
                    listener.send(&line_of(&TraceLine::Hop { hop, to })?)?;
                }
                // It ends early only if there is nothing left to wait for.
                None if trace.is_over() => break early_end(&control, &order, packets as usize),
                None => {}
            }
            if listener.has_hung_up()? {
                break TraceEnd::Requested;
            } else if end.is_some_and(|end| end <= Instant::now()) {
                break TraceEnd::Time;
            } else if hops == MAX_HOPS {
                break TraceEnd::Steps;
            }
        };
        // The client may start the next trace as soon as it reads the end.
        drop(trace);
        listener.send(&line_of(&TraceLine::End { why })?)
    })
}

/// The reason why a trace that has seen this many packets has ended by itself.
fn early_end(control: &Control, order: &TraceOrder, packets: usize) -> TraceEnd {
    let is_there = |app: &String| control.snapshot().apps.iter().any(|known| known.name == *app);
    match &order.app {
        _ if packets >= order.count => TraceEnd::Complete,
        Some(app) if !is_there(app) => TraceEnd::Gone,
        _ => TraceEnd::Over,
    }
}

/// The destinations of the links.
struct Map {
    control: Control,
    destinations: HashMap<String, String>,
    updated: Option<Instant>,
}

/// How long a map stays valid: a reload may change the links.
const MAP_LIFETIME: Duration = Duration::from_millis(10);

impl Map {
    fn new(control: Control) -> Map {
        Map { control, destinations: HashMap::new(), updated: None }
    }

    /// The input that received a packet.
    fn destination(&mut self, hop: &Hop) -> Option<String> {
        let HopKind::Sent { port, .. } = &hop.what else { return None };
        if self.updated.is_none_or(|updated| updated.elapsed() > MAP_LIFETIME) {
            let links = self.control.snapshot().links.into_iter();
            self.destinations = links.map(|link| (link.from, link.to)).collect();
            self.updated = Some(Instant::now());
        }
        self.destinations.get(&format!("{}.{port}", hop.app)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_lists_a_few_names() {
        let links = |count: usize| (0..count).map(|link| format!("a{link}.o -> b.i")).collect::<Vec<_>>();
        assert_eq!(listed("x", &links(2)), "a0.o -> b.i, a1.o -> b.i");
        assert!(!listed("x", &links(MAX_LISTED)).contains("more"));
        let few = listed("x", &links(60));
        assert!(
            few.starts_with("a0.o -> b.i, a1.o") && few.ends_with(" and 52 more, which `bellows show` lists"),
            "{few}"
        );
        assert_eq!(listed("a59", &links(60)), "a59.o -> b.i and 59 more, which `bellows show` lists");
    }

    #[test]
    fn a_client_that_does_not_read_ends_its_stream() {
        let (server, mut client) = UnixStream::pair().unwrap();
        let mut listener = Listener::with_timeout(server, Duration::from_millis(50)).unwrap();
        let start = Instant::now();
        let sent = (0..1_000).map(|_| listener.send(&[0; CHUNK])).take_while(Result::is_ok).count();
        assert!(sent < 100 && start.elapsed() < Duration::from_secs(20), "{sent} pieces are in the socket");
        assert!(client.read(&mut [0; CHUNK]).unwrap() > 0);
        // It has left room, and is sent to again.
        assert!(listener.send(&[0]).is_ok());
    }
}
