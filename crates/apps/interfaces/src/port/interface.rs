//! The app of the kernel's interfaces and of sockets that carry frames: all of them are queues that a control thread
//! opens.

use std::sync::Arc;

use bellows_config::SettingError;
use bellows_engine::{AppError, Counter, Counters, DropReason, Input, Io, Port, Ports, Status, counters};
use bellows_handover::Bell;
use bellows_netif::status::{KernelLink, PortDetails, PortStatus, Snapshot, State};
use bellows_netif::{Keeper, OpenError, Queue, QueueCounts, QueueError, Queues, Start, Started};
use bellows_ports::QueueBell;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::app::{PortApp, PortSession, Role};
use super::bell::{AnyBell, watch};
use super::outgoing::{Awaits, Sender};
use super::{deliver, turns};

/// A kind of port: what differs between the apps.
pub trait InterfaceKind: Send + Sized + 'static {
    /// The checked configuration.
    type Config: Clone + PartialEq + Send + 'static;
    /// Its queues.
    type Queue: Queue;
    /// The app's name in network files.
    const NAME: &'static str;

    /// The interface or the socket, for messages.
    fn place(config: &Self::Config) -> String;

    /// Whether another process is on the other side, and no interface.
    const HAS_PEER: bool = false;

    /// Whether the port may start before the interface or the other side exists.
    fn may_be_missing(config: &Self::Config) -> bool;

    /// Whether both use the same interface or socket, so that one must end before the other can open it.
    fn excludes(config: &Self::Config, other: &Self::Config) -> bool;

    /// Starts the control thread.
    ///
    /// # Errors
    /// Why the queues cannot be opened.
    fn start(config: Self::Config, start: Start, status: Arc<PortStatus>) -> Started<Self::Queue>;
}

/// The default of `ring_size`, in packets.
pub(crate) fn usual_ring_size() -> u32 {
    2_048
}

/// A port of this kind.
pub type InterfacePort<K> = PortApp<InterfaceRole<K>>;

counters! { for[K: InterfaceKind] InterfacePort<K>;
    drop NO_INTERFACE = "no_interface", "packets that came while the interface was missing or down; likely: it was renamed or is not `up`";
    drop TOO_LONG = "too_long", "packets longer than the interface or the other side takes; likely: the `mtu` of the router or tunnel is above the interface's";
    drop BAD_OFFLOAD = "bad_offload", "packets whose offload does not match them and cannot be finished";
    drop QUEUE_FULL = "queue_full", "packets whose queue was full while others were not";
    drop POOL_LOW = "pool_low", "packets for another side that took none while they held too much of the pool";
    drop KERNEL_DROPPED = "kernel_dropped", "packets that the kernel dropped because this app did not take them in time; likely: more comes than one worker can do; see `bellows top`, and give the app a worker of its own";
    drop KERNEL_REFUSED = "kernel_refused", "packets that the kernel dropped for other reasons, such as their length";
    drop RX_TOO_LONG = "rx_too_long", "packets from the other side that are longer than 73,600 bytes, or than the ring allows";
    drop RX_BAD_HEADER = "rx_bad_header", "packets from the other side whose header is invalid or does not match them";
    drop RX_NO_BUFFER = "rx_no_buffer", "packets from the other side for which the pool had no buffer";
    drop NOT_SENT = "not_sent", "packets that the kernel took and then did not send";
    drop MISSED = "missed", "packets that the device dropped because this app did not take them in time (DPDK's `imissed`); likely: more comes than one worker can do; see `bellows top`, and use several `queues` and workers";
    drop NO_MBUF = "no_mbuf", "packets that the driver dropped because the pool had no buffer (DPDK's `rx_nombuf`)";
    drop ERRORS = "errors", "packets that the device received with errors (DPDK's `ierrors`)";
    table COUNTS = COUNTS;
}

/// A counter for each count of a queue that is no drop.
const COUNTS: [Counter; QueueCounts::NAMES.len() - QueueCounts::DROPS] = {
    let mut counters = [Counter::new("", ""); QueueCounts::NAMES.len() - QueueCounts::DROPS];
    let mut index = 0;
    while index < counters.len() {
        let (name, help, unit) = QueueCounts::NAMES[QueueCounts::DROPS + index];
        let counter = Counter::new(name, help);
        counters[index] = match unit {
            Some(unit) => counter.in_unit(unit),
            None => counter,
        };
        index += 1;
    }
    counters
};

/// The slots of all queues together, behind that of the control thread.
const RECEIVE: usize = 1;
const TRANSMIT: usize = 2;

impl<K: InterfaceKind> Sender for InterfacePort<K> {
    const TOO_LONG: DropReason<Self> = Self::TOO_LONG;
    const BAD_OFFLOAD: DropReason<Self> = Self::BAD_OFFLOAD;
    const POOL_LOW: DropReason<Self> = Self::POOL_LOW;
}

/// A port while it runs.
pub struct InterfaceRole<K: InterfaceKind> {
    // Dropped in this order: the control thread gets the queues back, closes them and gives the interface back.
    /// The bell of the queue, if there is only one.
    bell: Option<Arc<<K::Queue as Queue>::Bell>>,
    queues: Queues<K::Queue>,
    /// Ends the control thread when it is dropped.
    keeper: Keeper<K::Queue>,
    session: PortSession,
    /// What the app's counters have of the present queues.
    told: QueueCounts,
    config: K::Config,
    /// Whether a queue has taken packets that wait for room on the other side.
    has_unsent: bool,
    /// Whether nothing is received, because the output is not linked.
    is_deaf: bool,
}

impl<K: InterfaceKind> Role for InterfaceRole<K> {
    type Config = K::Config;
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "packets to send")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::optional("output", "packets that have arrived")]);
    const COUNTERS: Counters<InterfacePort<K>> = InterfacePort::<K>::COUNTED;

    fn slots(_config: &K::Config) -> usize {
        2
    }

    fn start(app: &str, config: K::Config, before: Option<&Self>) -> Result<Self, AppError> {
        let later = before.is_some_and(|before| K::excludes(&config, &before.config));
        let start = Start { may_be_missing: K::may_be_missing(&config), later };
        let status = PortStatus::new(K::place(&config)).of_app(app);
        let status = if K::HAS_PEER { status.with_peer() } else { status };
        let status = Arc::new(match before {
            Some(before) => status.replacing(before.keeper.status()),
            None => status,
        });
        let started = K::start(config.clone(), start, status);
        let (keeper, queues) = started.map_err(|error| {
            let waits = matches!(error, OpenError::Missing(_)) && !K::HAS_PEER && !start.may_be_missing;
            let remedy = if waits { "; `wait = true` starts without it and waits for it" } else { "" };
            format!("{}: {error}{remedy}", K::place(&config))
        })?;
        let (session, told) = (PortSession::new(1), QueueCounts::default());
        Ok(InterfaceRole { keeper, queues, bell: None, session, told, config, has_unsent: false, is_deaf: false })
    }

    fn begin(&self) {
        self.keeper.begin();
    }

    fn resume(&self) {}

    fn status(&self) -> Arc<dyn Status> {
        Arc::new(StatusJson { kind: K::NAME, place: K::place(&self.config), status: self.keeper.status() })
    }

    fn doorbell(&self) -> Arc<Bell> {
        self.queues.doorbell()
    }

    #[inline]
    fn expected(&self) -> u32 {
        self.queues.expected()
    }

    fn note(&mut self, io: &Io<InterfacePort<K>>) {
        let Some(queues) = self.queues.get() else { return };
        let mut sum = QueueCounts::default();
        let counts: Vec<QueueCounts> = queues.iter_mut().map(Queue::counts).collect();
        counts.iter().for_each(|one| sum = sum.plus(one));
        let told = std::mem::replace(&mut self.told, sum);
        for (row, (now, before)) in sum.values().into_iter().zip(told.values()).enumerate() {
            if now > before {
                match Self::DROPS.get(row) {
                    Some(reason) => io.dropped_outside(now - before, *reason),
                    None => io.count(InterfacePort::<K>::COUNTS.row(row - Self::DROPS.len()), now - before),
                }
            }
        }
        self.keeper.status().note(counts.into_iter());
    }

    fn session(&self) -> &PortSession {
        &self.session
    }

    #[inline]
    fn session_mut(&mut self) -> &mut PortSession {
        &mut self.session
    }

    #[inline]
    fn exchange(&mut self) -> bool {
        self.queues.sync()
    }

    #[cold]
    fn attach(&mut self, io: &Io<InterfacePort<K>>) {
        self.told = QueueCounts::default();
        let queues = self.queues.get().map_or(&mut [][..], |queues| &mut queues[..]);
        self.session.grow(queues.len());
        self.session.set_open(io.burst(), 0..queues.iter().take_while(|queue| queue.sends()).count());
        self.session.outgoing.iter_mut().for_each(|outgoing| outgoing.awaits = Awaits::Nothing);
        io.slot(TRANSMIT).never();
        self.has_unsent = false;
        let is_empty = queues.is_empty();
        self.listen(io);
        if is_empty {
            self.drop_stranded(io);
        }
        self.session.will_note(io, true);
    }

    #[cold]
    fn listen(&mut self, io: &Io<InterfacePort<K>>) {
        let receives = io.is_linked(0);
        let mut can_ignore = true;
        for queue in self.queues.get().into_iter().flatten() {
            match queue.set_receiving(receives) {
                Ok(can) => can_ignore &= can,
                Err(error) if receives => {
                    // One that is opened anew receives.
                    self.keeper.status().gives_up(format!("frames cannot be received: {error}"));
                    self.queues.give_up();
                    self.session.set_open(io.burst(), 0..0);
                    self.drop_stranded(io);
                    break;
                }
                Err(error) => self.keeper.status().cannot_ignore(&error),
            }
        }
        self.is_deaf = !receives && can_ignore;
        let receives = !self.is_deaf;
        let queues = self.queues.get().map_or(&mut [][..], |queues| &mut queues[..]);
        if receives && queues.iter().any(Queue::is_polled) {
            self.bell = None;
            io.slot(RECEIVE).always();
            return;
        }
        self.bell = match queues {
            [only] if receives => Some(only.bell()),
            _ => None,
        };
        match queues {
            [_, _, ..] if receives => {
                let bells = queues.iter().map(|queue| queue.bell()).collect();
                io.slot(RECEIVE).watch(Arc::new(AnyBell(bells)), 0, 0);
            }
            _ => watch(io, RECEIVE, self.bell.as_ref()),
        }
    }

    fn may_end(&self) -> bool {
        !self.has_unsent
    }

    #[inline]
    fn pull(&mut self, io: &Io<InterfacePort<K>>) {
        let Some(queues) = self.queues.get() else { return };
        let mut output = io.output(0);
        let is_linked = io.is_linked(0);
        let mut left = match is_linked {
            true => io.burst().min(output.room()),
            false if self.is_deaf => 0,
            false => io.burst(),
        };
        let (most, had_unsent) = (left, self.has_unsent);
        let mut failed = None;
        for index in turns(&mut self.session.first, queues.len()) {
            if left == 0 {
                break;
            }
            if let Err(error) = queues[index].receive(&mut self.session.packets, left) {
                failed = Some(error);
            }
            left -= self.session.packets.len().min(left);
            deliver(&mut self.session.packets, &mut output, is_linked);
        }
        drop(output);
        if let Some(bell) = &self.bell {
            io.slot(RECEIVE).moved(bell.quiet());
        }
        let failed = failed.or_else(|| self.flush_rest(io).err());
        let has_happened = left < most || had_unsent || failed.is_some();
        if let Some(error) = failed {
            self.fail(io, &error);
        }
        self.session.will_note(io, has_happened);
    }

    #[inline]
    fn push(&mut self, io: &Io<InterfacePort<K>>) {
        let mut input = io.input(0);
        let count = self.session.open();
        if count == 0 {
            self.swallow(io, &mut input);
            return;
        }
        if count > 1 {
            self.session.share_out(io, &mut input, InterfacePort::<K>::QUEUE_FULL);
        }
        let mut waits = false;
        self.has_unsent = false;
        for index in 0..count {
            match self.push_queue(io, index, &mut input, count == 1) {
                Ok(awaits) => waits |= awaits != Awaits::Nothing,
                Err(error) => {
                    self.fail(io, &error);
                    self.swallow(io, &mut input);
                    break;
                }
            }
        }
        // The kernel does not notify when there is room again, so waiting packets are tried in every breath.
        if waits || self.has_unsent {
            io.slot(TRANSMIT).always();
        } else {
            io.slot(TRANSMIT).never();
        }
        self.session.will_note(io, true);
    }
}

impl<K: InterfaceKind> InterfaceRole<K> {
    /// The first counts of a queue, which are drops.
    const DROPS: [DropReason<InterfacePort<K>>; QueueCounts::DROPS] = [
        InterfacePort::<K>::KERNEL_DROPPED,
        InterfacePort::<K>::KERNEL_REFUSED,
        InterfacePort::<K>::RX_TOO_LONG,
        InterfacePort::<K>::RX_BAD_HEADER,
        InterfacePort::<K>::RX_NO_BUFFER,
        InterfacePort::<K>::NOT_SENT,
        InterfacePort::<K>::MISSED,
        InterfacePort::<K>::NO_MBUF,
        InterfacePort::<K>::ERRORS,
    ];

    /// Sends what waits for one queue, and what is in the link if it is the only one.
    #[inline]
    fn push_queue(
        &mut self,
        io: &Io<InterfacePort<K>>,
        index: usize,
        input: &mut Input<'_, InterfacePort<K>>,
        only: bool,
    ) -> Result<Awaits, QueueError> {
        let Some(queue) = self.queues.get().and_then(|queues| queues.get_mut(index)) else {
            return Ok(Awaits::Nothing);
        };
        let accepted = queue.accepted();
        let awaits = self.session.outgoing[index].push(io, queue, accepted, input, only);
        // What was taken before an error goes out, too.
        queue.flush()?;
        self.has_unsent |= queue.has_unsent();
        awaits
    }

    /// Sends what the queues have taken and could not send, also while no packets come.
    #[inline]
    fn flush_rest(&mut self, io: &Io<InterfacePort<K>>) -> Result<(), QueueError> {
        if !self.has_unsent {
            return Ok(());
        }
        self.has_unsent = false;
        for queue in self.queues.get().into_iter().flatten() {
            queue.flush()?;
            self.has_unsent |= queue.has_unsent();
        }
        // If packets still wait inside or in the link, the push in this breath sets the slot again.
        if !self.has_unsent {
            io.slot(TRANSMIT).never();
        }
        Ok(())
    }

    /// Drops packets that cannot be sent.
    #[cold]
    fn swallow(&mut self, io: &Io<InterfacePort<K>>, input: &mut Input<'_, InterfacePort<K>>) {
        let PortSession { outgoing, void, .. } = &mut self.session;
        void.swallow(io, outgoing, input, InterfacePort::<K>::NO_INTERFACE);
    }

    /// Drops what waits for queues that are gone, as long as nothing is pushed that would do it.
    fn drop_stranded(&mut self, io: &Io<InterfacePort<K>>) {
        for outgoing in &mut self.session.outgoing {
            while outgoing.drop_some(io, io.burst(), InterfacePort::<K>::NO_INTERFACE) > 0 {}
        }
    }

    /// A queue has failed. Those of an interface that is down stay.
    #[cold]
    fn fail(&mut self, io: &Io<InterfacePort<K>>, error: &QueueError) {
        if matches!(error, QueueError::Down) {
            // What is left is sent with the next packets.
            self.has_unsent = false;
            io.slot(TRANSMIT).never();
            return;
        }
        if let QueueError::System(error) = error {
            self.keeper.status().gives_up(error.to_string());
        }
        self.note(io);
        self.queues.give_up();
        self.attach(io);
    }
}

/// Maximum length of the other names of an interface (`ip link property add altname`), in bytes.
const MAX_NAME: usize = 127;

/// Checks the name of an interface.
pub(crate) fn check_interface(name: &str) -> Result<(), SettingError> {
    let why = match name {
        "" => "the interface's name is empty".to_owned(),
        _ if name.len() > MAX_NAME || name.contains(['/', '\0']) || name.contains(char::is_whitespace) => {
            format!("`{name}` cannot be an interface's name")
        }
        _ => return Ok(()),
    };
    Err(SettingError::at("interface", why, "give a name such as eth0; `ip link` lists them"))
}

/// The status, as JSON.
struct StatusJson {
    kind: &'static str,
    place: String,
    status: Arc<PortStatus>,
}

impl Status for StatusJson {
    fn status(&self) -> Value {
        let Snapshot { state, link, details, opened, waits, last_error, queues } = self.status.snapshot();
        let queue = |(index, counts)| QueueStatus { counts, index };
        json!(InterfacePortStatus {
            interface: true,
            kind: self.kind,
            place: &self.place,
            state,
            opened,
            waits,
            last_error,
            details,
            queues: queues.into_iter().enumerate().map(queue).collect(),
            link,
        })
    }
}

/// The status of a port.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `af-xdp`, `dpdk`, `raw-socket`, `tap` and `unix-socket`")]
pub struct InterfacePortStatus<'a> {
    /// True: `show interfaces` lists apps whose status says so.
    interface: bool,
    /// The type of the app.
    kind: &'static str,
    /// The interface's name, or the socket's path, as configured.
    place: &'a str,
    /// The state of the port.
    state: State,
    /// Number of times that it was opened.
    opened: u64,
    /// A sentence: what it waits for, or why it cannot be opened; null while it is open.
    waits: Option<String>,
    /// The last such sentence; null without one.
    last_error: Option<String>,
    /// What was agreed with the kernel or the other side, for people; empty before it was opened.
    details: PortDetails,
    /// The open queues, in order; empty while there are none.
    queues: Vec<QueueStatus>,
    /// The kernel's interface; absent while there is none, and for `unix-socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<KernelLink>,
}

/// What the status says of a queue.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Queue of a port")]
struct QueueStatus {
    #[serde(flatten)]
    counts: QueueCounts,
    /// Its position among the app's queues; the others count since it was opened.
    index: usize,
}
