//! All traces and taps, on the engine's thread.

use bellows_observe::MAX_TRACED;
use bellows_packet::MarkedEvent;
use bellows_sys::clock;

use crate::network::{Call, Network};
use crate::tap::TapWatch;
use crate::trace::TraceWatch;

/// The reasons why packets cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Packets end at the app, so none can be followed from there.
    #[error("app `{app}` sends no packets: they end there{}", .before.first().map_or_else(String::new, |first| {
        format!("; follow those that {} to it: `--app {first}`", match &before[..] {
            [one] => format!("`{one}` sends"),
            all => format!("one of {} sends", all.iter().map(|app| format!("`{app}`")).collect::<Vec<_>>().join(", ")),
        })
    }))]
    SendsNothing {
        /// The app.
        app: String,
        /// The apps that send packets to it.
        before: Vec<String>,
    },
    /// There is no such app.
    #[error("there is no app `{0}` in the running network")]
    NoApp(String),
    /// There is no such link.
    #[error("there is no link `{0}` in the running network")]
    NoLink(String),
    /// Only one trace is possible at a time.
    #[error("another trace is going on; wait for its end")]
    Busy,
    /// A trace of too many packets.
    #[error("{0} packets are too many for a trace; follow at most {MAX_TRACED}")]
    TooMany(usize),
    /// The run is over.
    #[error("the run is over")]
    Over,
}

/// A new trace or tap, on its way to the engine.
pub enum Order {
    /// Packets to follow.
    Trace(TraceWatch),
    /// A link whose packets to copy.
    Tap(TapWatch),
}

/// All traces and taps.
pub struct Watch {
    trace: Option<TraceWatch>,
    taps: Vec<TapWatch>,
    /// For each output of the app that is being called, the number of packets sent before the call.
    sent: Vec<u64>,
    /// The same time by the clock, and in nanoseconds since the Unix epoch.
    origin: (u64, u64),
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { trace: None, taps: Vec::new(), sent: Vec::new(), origin: (clock::ticks(), clock::unix_ns()) }
    }
}

impl Watch {
    /// Accepts new orders, and drops those whose receiver is gone. Returns true if anything is left to watch.
    pub fn take(&mut self, orders: Vec<Order>, network: &impl Network) -> bool {
        for order in orders {
            match order {
                Order::Trace(trace) => self.trace = Some(trace),
                Order::Tap(tap) => self.taps.push(tap),
            }
        }
        self.find(network);
        !self.is_empty()
    }

    /// Finds the watched apps and links in the current network; those that do not exist are no longer watched.
    pub fn find(&mut self, network: &impl Network) {
        self.trace.take_if(|trace| !trace.find(network));
        self.taps.retain_mut(|tap| tap.find(network));
    }

    /// A reload has removed packets. Whether they were followed is unknown.
    pub fn end_trace(&mut self) {
        self.trace = None;
    }

    /// Whether there are no traces and taps.
    pub fn is_empty(&self) -> bool {
        self.trace.is_none() && self.taps.is_empty()
    }

    /// Records the packet counts of an app's outputs before a call, and that packets were freed outside of calls.
    pub fn before(&mut self, network: &impl Network, call: &Call<'_>, marked_events: &[MarkedEvent]) {
        if let Some(trace) = &mut self.trace {
            trace.note_elsewhere(marked_events);
        }
        self.sent.clear();
        self.sent.extend(call.outputs.iter().map(|&link| network.sent(link)));
    }

    /// Processes the packets of a call that took from `start` to `end`, by the clock.
    pub fn after(
        &mut self,
        network: &impl Network,
        call: &Call<'_>,
        start: u64,
        end: u64,
        marked_events: &[MarkedEvent],
    ) {
        let at = self.moment(end);
        let Watch { trace, taps, sent: before, .. } = self;
        for (&link, &before) in call.outputs.iter().zip(&*before) {
            let new = network.sent(link).wrapping_sub(before) as usize;
            if new == 0 {
                continue;
            }
            network.with_packets(link, |packets| {
                let new = packets.len().saturating_sub(new);
                let packets = &mut packets[new..];
                for tap in taps.iter().filter(|tap| tap.is_of(link)) {
                    tap.copy(packets, at);
                }
                if let Some(trace) = trace {
                    trace.follow(packets, network, call, link, (start, at));
                }
            });
        }
        self.note(network, call.app, at, marked_events);
    }

    /// Processes the ends of packets in an app that has failed.
    pub fn failed(&mut self, network: &impl Network, app: usize, marked_events: &[MarkedEvent]) {
        self.note(network, app, self.moment(clock::ticks()), marked_events);
    }

    fn note(&mut self, network: &impl Network, app: usize, at: u64, marked_events: &[MarkedEvent]) {
        if let Some(trace) = &mut self.trace {
            trace.note(network, app, at, marked_events);
            if trace.is_complete() {
                self.trace = None;
            }
        }
    }

    /// Nanoseconds since the Unix epoch.
    fn moment(&self, ticks: u64) -> u64 {
        self.origin.1 + clock::ticks_to_ns(ticks.saturating_sub(self.origin.0))
    }
}
