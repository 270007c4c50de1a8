//! All traces and taps, on the thread of a worker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

fn lock(trace: &Mutex<TraceWatch>) -> MutexGuard<'_, TraceWatch> {
    trace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new trace or tap, on its way to the engine.
pub enum Order {
    /// Packets to follow.
    Trace(TraceWatch),
    /// A link whose packets to copy.
    Tap(TapWatch),
}

/// All traces and taps of a worker.
pub struct Watch {
    /// The trace, which all workers share, because packets cross from one to another.
    trace: Option<Arc<Mutex<TraceWatch>>>,
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
    /// Distributes new orders, and those that are being carried out, over the workers of a network, and drops those
    /// whose receiver is gone or whose app or link does not exist. A tap goes to the worker that sends into its link, a
    /// trace to all.
    pub fn distribute<N: Network>(orders: Vec<Order>, workers: &mut [(&mut Watch, &N)]) {
        let mut trace = workers.iter().find_map(|(watch, _)| watch.trace.clone());
        let mut taps: Vec<TapWatch> =
            workers.iter_mut().flat_map(|(watch, _)| std::mem::take(&mut watch.taps)).collect();
        for order in orders {
            match order {
                Order::Trace(new) => trace = Some(Arc::new(Mutex::new(new))),
                Order::Tap(tap) => taps.push(tap),
            }
        }
        for mut tap in taps {
            if let Some((watch, _)) = workers.iter_mut().find(|(_, network)| tap.find(*network)) {
                watch.taps.push(tap);
            }
        }
        for (watch, network) in workers {
            watch.trace = trace.clone().filter(|trace| lock(trace).find(*network));
        }
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
        if let Some(trace) = &self.trace {
            lock(trace).note_elsewhere(marked_events);
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
                    lock(trace).follow(packets, network, call, link, (start, at));
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
        self.trace.take_if(|trace| {
            let mut trace = lock(trace);
            trace.note(network, app, at, marked_events);
            trace.is_complete()
        });
    }

    /// Nanoseconds since the Unix epoch.
    fn moment(&self, ticks: u64) -> u64 {
        self.origin.1 + clock::ticks_to_ns(ticks.saturating_sub(self.origin.0))
    }
}
