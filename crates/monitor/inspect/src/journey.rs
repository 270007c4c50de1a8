//! The paths of packets through a network, assembled from the steps of a trace.
//!
//! A step says what an app did with a packet, but not how the packet came there; the links tell that. Copies share one
//! number: if an app did more than one thing with a packet that it received, the path branches.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Read};

use bellows_engine::{Hop, HopKind};
use bellows_wire::summary::{LinkLayer, summarize};
use bellows_wire::{EtherType, EthernetFrame, VlanTag};
use schemars::JsonSchema;
use serde::Serialize;

use crate::InspectError;
use crate::control::{TraceEnd, TraceLine};
use crate::text::{foreign_json, nanos, time_of_day};

/// A step: an app's action on a packet.
struct JourneyStep {
    hop: Hop,
    /// The input that received the packet.
    to: Option<String>,
    /// The step that brought it to the app.
    before: Option<usize>,
}

impl JourneyStep {
    /// The app that received a packet.
    fn destination(&self) -> Option<&str> {
        Some(self.to.as_deref()?.rsplit_once('.')?.0)
    }
}

/// The path of a packet and of its copies.
#[derive(Default)]
pub struct Journey {
    steps: Vec<JourneyStep>,
    /// Steps that brought the packet to an app that has not yet acted on it.
    open: Vec<usize>,
    /// The last step to each app.
    last: HashMap<String, usize>,
}

/// The paths of packets, by their numbers.
#[derive(Default)]
pub struct Journeys(BTreeMap<u32, Journey>);

/// The maximum size of what an engine sends for a trace, in bytes: 100,000 steps.
const MAX_TRACE: u64 = 64 << 20;

impl Journeys {
    /// Adds the steps of a trace as they arrive, until its end. `progress` sees the paths before each step.
    ///
    /// # Errors
    /// If the stream has something else than steps, or more than an engine sends.
    pub fn read(
        &mut self,
        stream: &mut impl BufRead,
        progress: impl FnMut(&Journeys),
    ) -> Result<TraceEnd, InspectError> {
        self.read_up_to(MAX_TRACE, stream, progress)
    }

    fn read_up_to(
        &mut self,
        most: u64,
        stream: &mut impl BufRead,
        mut progress: impl FnMut(&Journeys),
    ) -> Result<TraceEnd, InspectError> {
        let mut stream = stream.take(most);
        let mut line = String::new();
        loop {
            progress(self);
            line.clear();
            let read = stream.read_line(&mut line);
            if stream.limit() == 0 {
                let why = format!("the trace has more than {most} bytes; follow fewer packets");
                return Err(InspectError::Failed(why));
            }
            // A process that ends in the middle of a line sends no reason.
            if read.is_err() || !line.ends_with('\n') {
                return Ok(TraceEnd::Over);
            }
            match foreign_json(line.as_bytes()) {
                Ok(TraceLine::Hop { hop, to }) => self.add(hop, to),
                Ok(TraceLine::End { why }) => return Ok(why),
                Err(error) => {
                    return Err(InspectError::Failed(format!("the reply is not a step of a packet: {error}")));
                }
            }
        }
    }

    /// Adds a step. The steps of a packet arrive in order.
    pub fn add(&mut self, hop: Hop, to: Option<String>) {
        self.0.entry(hop.packet).or_default().add(hop, to);
    }

    /// The number of packets seen.
    pub fn packets(&self) -> usize {
        self.0.len()
    }

    /// Whether all packets have ended.
    pub fn are_over(&self) -> bool {
        self.0.values().all(|journey| journey.open.is_empty())
    }

    /// All paths, for people.
    pub fn render(&self) -> String {
        let journeys: Vec<String> = self.0.iter().map(|(packet, journey)| journey.render(*packet)).collect();
        journeys.join("\n")
    }

    /// All paths, for JSON.
    pub fn traced(&self) -> Vec<TracedPacket<'_>> {
        self.0.iter().map(|(packet, journey)| journey.traced(*packet)).collect()
    }
}

impl Journey {
    fn add(&mut self, hop: Hop, to: Option<String>) {
        let waiting = self.open.iter().position(|&step| self.steps[step].destination() == Some(&hop.app));
        let before = match waiting {
            // First in, first out.
            Some(at) => Some(self.open.remove(at)),
            // The app has copied the packet that it received.
            None => self.last.get(&hop.app).copied(),
        };
        let step = JourneyStep { hop, to, before };
        if let Some(app) = step.destination() {
            self.last.insert(app.to_owned(), self.steps.len());
            self.open.push(self.steps.len());
        }
        self.steps.push(step);
    }

    /// The time of the first step.
    fn start(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.hop.at_ns)
    }

    /// The steps after each step, and the steps without a predecessor.
    fn branches(&self) -> (Vec<Vec<usize>>, Vec<usize>) {
        let (mut after, mut first) = (vec![Vec::new(); self.steps.len()], Vec::new());
        for (index, step) in self.steps.iter().enumerate() {
            match step.before {
                Some(before) => after[before].push(index),
                None => first.push(index),
            }
        }
        (after, first)
    }

    fn render(&self, packet: u32) -> String {
        let mut text = format!("packet {packet}, {}\n", time_of_day(self.start()));
        let (after, first) = self.branches();
        // The steps still to write, the next one last, each with its indentation.
        let mut stack: Vec<(usize, usize)> = first.into_iter().rev().map(|step| (step, 0)).collect();
        while let Some((index, depth)) = stack.pop() {
            let step = &self.steps[index];
            let time = format!("+{}", nanos(step.hop.at_ns.saturating_sub(self.start())));
            let margin = " ".repeat(2 * depth);
            text += &format!("{time:>10}  {margin}{}\n", self.describe(step));
            for line in self.contents(step) {
                text += &format!("{:10}  {margin}  {line}\n", "");
            }
            if let Some(app) = step.destination().filter(|_| self.open.contains(&index)) {
                text += &format!("{:>10}  {margin}{app}: still there, or on the way to it\n", "");
            }
            let deeper = depth + usize::from(after[index].len() > 1);
            stack.extend(after[index].iter().rev().map(|&step| (step, deeper)));
        }
        text
    }

    fn describe(&self, step: &JourneyStep) -> String {
        let app = &step.hop.app;
        match (&step.hop.what, &step.to) {
            (HopKind::Sent { port, tag, .. }, to) => {
                let to = to.as_deref().unwrap_or("a link that is gone");
                let tag = if *tag == 0 { String::new() } else { format!(", tag {tag}") };
                format!("{app}.{port} -> {to}{tag}")
            }
            (HopKind::Dropped { reason }, _) => format!("{app}: dropped, {reason}"),
            (HopKind::Ended, _) => format!("{app}: ended"),
        }
    }

    /// The description of a packet that was sent: its changes since the step before.
    fn contents(&self, step: &JourneyStep) -> Vec<String> {
        let HopKind::Sent { length, bytes, link_type, .. } = &step.hop.what else { return Vec::new() };
        let summary = |length: u32, bytes: &[u8]| summary(*link_type, bytes, length);
        let now = summary(*length, bytes);
        let before = step.before.map(|before| &self.steps[before].hop.what);
        let Some(HopKind::Sent { length: old_length, bytes: old_bytes, .. }) = before else { return vec![now] };
        let mut lines = Vec::new();
        let is_ethernet = LinkLayer::from_number(*link_type) == Some(LinkLayer::Ethernet);
        if is_ethernet && addresses(bytes) != addresses(old_bytes) {
            lines.push(format!("Ethernet {}", addresses(bytes)));
        }
        if now != summary(*old_length, old_bytes) {
            lines.push(now);
        }
        if lines.is_empty() && (length, bytes) != (old_length, old_bytes) {
            lines.push("other bytes have changed".to_owned());
        }
        lines
    }

    fn step<'j>(&self, step: &'j JourneyStep) -> TracedStep<'j> {
        TracedStep {
            app: &step.hop.app,
            what: match &step.hop.what {
                HopKind::Sent { port, length, bytes, tag, link_type } => TracedHop::Sent {
                    port,
                    to: step.to.as_deref(),
                    length: *length,
                    tag: *tag,
                    data: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                    link_type: *link_type,
                    summary: summary(*link_type, bytes, *length),
                },
                HopKind::Dropped { reason } => TracedHop::Dropped { reason },
                HopKind::Ended => TracedHop::Ended,
            },
            after_ns: step.hop.at_ns.saturating_sub(self.start()),
            before: step.before,
        }
    }

    fn traced(&self, packet: u32) -> TracedPacket<'_> {
        TracedPacket {
            packet,
            at_ns: self.start(),
            steps: self.steps.iter().map(|step| self.step(step)).collect(),
            inside: self.open.iter().filter_map(|&step| self.steps[step].destination()).collect(),
        }
    }
}

/// The paths of packets through a network, as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Trace")]
pub struct TraceReport<'j> {
    /// The network.
    pub name: String,
    /// Whether all packets were followed to their ends.
    pub complete: bool,
    /// The packets.
    pub packets: Vec<TracedPacket<'j>>,
}

/// The path of a packet and its copies, as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Traced packet")]
pub struct TracedPacket<'j> {
    /// Its number, from 1.
    packet: u32,
    /// Time of its first step: nanoseconds since the Unix epoch.
    at_ns: u64,
    /// The steps of the packet and its copies, in order.
    steps: Vec<TracedStep<'j>>,
    /// The apps that the packet or a copy was in, or on its way to, when the trace ended.
    inside: Vec<&'j str>,
}

/// A step of a packet, as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Step")]
struct TracedStep<'j> {
    /// The app.
    app: &'j str,
    /// What it did.
    #[serde(flatten)]
    what: TracedHop<'j>,
    /// Nanoseconds since the first step.
    after_ns: u64,
    /// The position in the list of the step that brought the packet to this app; null for the first. Several steps with
    /// the same `before` are those of copies.
    before: Option<usize>,
}

/// What an app did with a packet, as JSON.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum TracedHop<'j> {
    /// On to another app.
    Sent {
        /// Sent: the output.
        port: &'j str,
        /// Sent: the linked input (`app.input`); null if a reload has removed it.
        to: Option<&'j str>,
        /// Sent: the packet's length in bytes.
        length: u32,
        /// Sent: its tag.
        tag: u32,
        /// Sent: its first 256 bytes, in hexadecimal.
        data: String,
        /// Sent: the link type of its outermost header, as numbered by pcap.
        link_type: u32,
        /// Sent: a description in tcpdump's format.
        summary: String,
    },
    /// For a reason.
    Dropped {
        /// Dropped: the drop reason.
        reason: &'j str,
    },
    /// It consumed the packet.
    Ended,
}

/// A packet on one line, decoded if its link type is known.
pub fn summary(link_type: u32, bytes: &[u8], length: u32) -> String {
    match LinkLayer::from_number(link_type) {
        Some(layer) => summarize(layer, bytes, length as usize),
        None => format!("link type {link_type}, length {length}"),
    }
}

/// The addresses and VLANs of an Ethernet frame; empty for other bytes.
fn addresses(frame: &[u8]) -> String {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else { return String::new() };
    let mut text = format!("{} > {}", ethernet.src(), ethernet.dst());
    let (mut ether_type, mut rest) = (ethernet.ether_type(), &frame[14..]);
    while let (EtherType::VLAN | EtherType::SERVICE_VLAN, Ok(tag)) = (ether_type, VlanTag::new_checked(rest)) {
        text += &format!(", VLAN {}", tag.id());
        (ether_type, rest) = (tag.ether_type(), &rest[4..]);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const START: u64 = 1_700_000_000_000_000_000;

    fn sent(port: &str, bytes: &[u8]) -> HopKind {
        HopKind::Sent { port: port.to_owned(), length: bytes.len() as u32, bytes: bytes.to_vec(), tag: 0, link_type: 1 }
    }

    fn journeys(steps: &[(u64, &str, HopKind, Option<&str>)]) -> Journeys {
        let mut journeys = Journeys::default();
        for (after, app, what, to) in steps {
            let hop = Hop { packet: 1, at_ns: START + after, app: (*app).to_owned(), what: what.clone() };
            journeys.add(hop, to.map(str::to_owned));
        }
        journeys
    }

    fn frame(last: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
        frame.extend([0; 19]);
        frame.push(last);
        frame
    }

    #[test]
    fn a_trace_is_read_to_its_end_and_not_further() {
        let end = format!("{}\n", serde_json::to_string(&TraceLine::End { why: TraceEnd::Complete }).unwrap());
        let read = |bytes: &[u8], most| Journeys::default().read_up_to(most, &mut &*bytes, |_| {});
        assert_eq!(read(end.as_bytes(), 1_000), Ok(TraceEnd::Complete));
        assert_eq!(read(b"{\"hop\"", 1_000), Ok(TraceEnd::Over));
        assert!(read(b"{}\n", 1_000).is_err());
        // A line without an end, from a process that is no engine.
        let mut endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let refused = Journeys::default().read_up_to(1 << 20, &mut endless, |_| {}).unwrap_err().to_string();
        assert!(refused.contains("more than 1048576 bytes"), "{refused}");
    }

    #[test]
    fn copies_are_branches_and_unfinished_packets_are_marked() {
        let frame = frame(1);
        let mut moved = frame.clone();
        moved[11] = 9;
        let mut other = moved.clone();
        other.push(0);
        let told = journeys(&[
            (0, "source", sent("output", &frame), Some("copy.input")),
            (150, "copy", sent("a", &frame), Some("hold.input")),
            (150, "copy", sent("b", &moved), Some("change.input")),
            (1_250, "change", sent("output", &other), Some("end.input")),
            (1_400, "end", HopKind::Ended, None),
        ]);
        let expected = "\
packet 1, 22:13:20.000000000 UTC
     +0 ns  source.output -> copy.input
              ARP, Request who-has 0.0.0.1 tell 0.0.0.0, length 28
   +150 ns    copy.a -> hold.input
              hold: still there, or on the way to it
   +150 ns    copy.b -> change.input
                Ethernet 02:00:00:00:00:09 > 02:00:00:00:00:02
  +1.25 µs    change.output -> end.input
                ARP, Request who-has 0.0.0.1 tell 0.0.0.0, length 29
  +1.40 µs    end: ended
";
        assert_eq!(told.render(), expected);
        let json = json!(told.traced());
        assert_eq!(json[0]["inside"], json!(["hold"]));
        let before: Vec<&Value> = json[0]["steps"].as_array().unwrap().iter().map(|step| &step["before"]).collect();
        assert_eq!(before, [&json!(null), &json!(0), &json!(0), &json!(2), &json!(3)]);
        assert_eq!(json[0]["steps"][3]["after_ns"], json!(1_250));
    }

    #[test]
    fn consecutive_copies_are_distinguished() {
        let told = journeys(&[
            (0, "twice", sent("output", &frame(1)), Some("end.input")),
            (0, "twice", sent("output", &frame(1)), Some("end.input")),
            (9, "end", HopKind::Dropped { reason: "full".to_owned() }, None),
            (9, "end", HopKind::Ended, None),
        ]);
        let json = json!(told.traced());
        let before: Vec<&Value> = json[0]["steps"].as_array().unwrap().iter().map(|step| &step["before"]).collect();
        assert_eq!(before, [&json!(null), &json!(null), &json!(0), &json!(1)]);
        assert!(told.render().contains("end: dropped, full") && json[0]["inside"] == json!([]));
    }

    #[test]
    fn a_packet_in_a_loop_is_shown_to_its_end() {
        let steps: Vec<_> =
            (0..50_000).map(|round| (round, "loop", sent("output", &frame(round as u8)), Some("loop.input"))).collect();
        assert_eq!(journeys(&steps).render().matches("loop.output -> loop.input").count(), 50_000);
    }

    #[test]
    fn changes_outside_the_summary_are_mentioned() {
        let mut long = frame(1);
        long.extend([0; 10]);
        let mut changed = long.clone();
        changed[50] = 1;
        let told = journeys(&[
            (0, "source", sent("output", &long), Some("change.input")),
            (1, "change", sent("output", &changed), Some("end.input")),
        ]);
        assert!(told.render().contains("other bytes have changed"), "{}", told.render());
        let mut tagged = long.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(addresses(&tagged), "02:00:00:00:00:01 > 02:00:00:00:00:02, VLAN 5");
        assert_eq!(addresses(&[0; 9]), "");
    }
}
