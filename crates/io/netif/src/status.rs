//! The status of a port, for any thread.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bellows_events::{AppDegraded, AppRecovered, LinkDown, LinkUp, PeerAwaited, PeerConnected, PeerDisconnected};
use bellows_handover::{LogLimit, with_suppressed};
use bellows_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use tracing::warn;

use crate::QueueCounts;

/// The state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum State {
    /// It has not been opened yet.
    #[default]
    Starting,
    /// It works.
    Up,
    /// It is open, but the interface is down or has no carrier.
    Down,
    /// The interface does not exist, or nobody is on the other side: it is opened as soon as that changes.
    Waiting,
    /// It cannot be opened; this is tried again.
    Failed,
}

/// What is known about the kernel's interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Interface of the kernel")]
pub struct KernelLink {
    /// Its present name.
    pub name: String,
    /// Its number in its network namespace; of `dpdk`, DPDK's number of the port.
    pub index: u32,
    /// Its Ethernet address; null without one.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub mac: Option<MacAddr>,
    /// Its MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// In Mbit/s; null if the driver does not know it.
    pub speed: Option<u32>,
    /// The driver, or the kind of device; null if unknown.
    pub driver: Option<String>,
    /// Packets that the kernel has dropped in receiving, since the interface was created.
    pub rx_dropped: u64,
    /// The same in sending.
    pub tx_dropped: u64,
    /// Packets with errors in receiving, since then.
    pub rx_errors: u64,
    /// The same in sending.
    pub tx_errors: u64,
}

fn as_text<S: Serializer>(mac: &Option<MacAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    mac.map(|mac| mac.to_string()).serialize(serializer)
}

/// What was agreed with the kernel or the other side, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Details of a port")]
pub struct PortDetails {
    /// Of `af-xdp`: `native` or `generic`, with the reason if native was tried first; of `unix-socket`: `server`,
    /// `client` or `dgram`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Of `af-xdp`: `zero-copy`, or copied by the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    /// Of `dpdk`: DPDK's release, and the memory of its own structures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Of `af-xdp` and `dpdk`: the packet pool, or copies and the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Of `af-xdp` and `dpdk`: of one buffer, or of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<String>,
    /// Of `af-xdp`: who finishes those of sent packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksums: Option<String>,
    /// Of `af-xdp`, `dpdk` and `raw-socket`: `on` or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promiscuous: Option<String>,
    /// Their number, or for `af-xdp` their numbers; not of `unix-socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<String>,
    /// Of `af-xdp`: the queues that can send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sending: Option<String>,
    /// Of `raw-socket` and `tap`: `on` or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloads: Option<String>,
    /// Of `raw-socket`: slots of each ring for arriving frames; of `dpdk`: descriptors of each queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_size: Option<String>,
    /// Of `raw-socket` with several queues: how they share the arriving frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fanout: Option<String>,
    /// Of `tap`: `created`, `opened`, or moved to another network namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Of `unix-socket`: the other side's process and user, or its socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Of `af-xdp` and `raw-socket`: addresses of a router or its host for which the kernel answers ARP requests, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_answers_for: Option<String>,
}

/// The status at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Its state.
    pub state: State,
    /// The interface, if there is one.
    pub link: Option<KernelLink>,
    /// What was negotiated with the kernel or the other side: modes, numbers of queues and the like.
    pub details: PortDetails,
    /// Number of times that it was opened.
    pub opened: u64,
    /// What it waits for, or why it cannot be opened.
    pub waits: Option<String>,
    /// The last error, as text.
    pub last_error: Option<String>,
    /// What the present queues have counted, in order.
    pub queues: Vec<QueueCounts>,
}

/// The status of a port. The control thread and the engine write it, any thread can read it.
///
/// It also logs what happens to the port: a *link*, if there is an interface on the other side, is up or down; a
/// *peer*, if there is a socket, is connected or not.
pub struct PortStatus {
    /// The name in log lines.
    name: String,
    /// The app of the port; empty if there is none.
    app: String,
    /// Whether a peer is on the other side, and no interface.
    has_peer: bool,
    state: Mutex<Contents>,
}

struct Contents {
    snapshot: Snapshot,
    lines: LogLimit,
    /// Why the engine has given the queues up.
    given_up: Option<String>,
    /// Whether the queues are open.
    is_open: bool,
    /// Whether the port works according to the log; `None` if nothing was logged.
    told: Option<bool>,
    /// The port that this one replaces, until something is logged.
    before: Option<Arc<PortStatus>>,
    /// The process on the other side and its user, if known.
    peer: Option<(u64, u64)>,
    /// Whether the port is one of a network that runs. Before, nothing is logged.
    has_begun: bool,
    losses: Losses,
}

/// Packets that the kernel drops before the port.
#[derive(Debug, Default)]
struct Losses {
    /// The count at the last look.
    count: u64,
    /// The number of looks in a row at which there were more, or no more.
    looks: u32,
    /// Whether the looks found more.
    grows: bool,
    /// Whether it was logged that packets are dropped.
    told: bool,
}

/// Looks, about a second apart, after which losses last; and those after which they are over.
const LASTING: u32 = 3;
const OVER: u32 = 10;

impl Contents {
    /// Whether the log was told last that the port does not work. It may have been told by the one before, which goes
    /// on while this one starts.
    fn was_told_down(&self) -> bool {
        let of_before = || self.before.as_ref().is_some_and(|before| before.lock().told == Some(false));
        self.told.map_or_else(of_before, |works| !works)
    }

    /// Sets what was logged.
    fn was_told(&mut self, works: bool) {
        (self.told, self.before) = (Some(works), None);
    }
}

impl PortStatus {
    /// The status of a port that logs under this name.
    pub fn new(name: String) -> PortStatus {
        let contents = Contents {
            snapshot: Snapshot::default(),
            lines: LogLimit::new(Instant::now()),
            given_up: None,
            is_open: false,
            told: None,
            before: None,
            peer: None,
            has_begun: true,
            losses: Losses::default(),
        };
        PortStatus { name, app: String::new(), has_peer: false, state: Mutex::new(contents) }
    }

    /// The same, of a port of this app.
    #[must_use]
    pub fn of_app(self, app: &str) -> PortStatus {
        PortStatus { app: app.to_owned(), ..self }
    }

    /// The same, of a port with a peer on the other side, and no interface.
    #[must_use]
    pub fn with_peer(self) -> PortStatus {
        PortStatus { has_peer: true, ..self }
    }

    /// The same, of a port that replaces another one: if that is down for the log, the log is told when this one works.
    #[must_use]
    pub fn replacing(self, before: Arc<PortStatus>) -> PortStatus {
        self.lock().before = Some(before);
        self
    }

    /// The port may be one that never comes to run: tells the log nothing until [`begins`](PortStatus::begins).
    pub(crate) fn holds_back(&self) {
        self.lock().has_begun = false;
    }

    /// The port runs from now on. What has happened so far is logged.
    pub(crate) fn begins(&self) {
        let mut contents = self.lock();
        if std::mem::replace(&mut contents.has_begun, true) {
            return;
        }
        if contents.is_open {
            self.tell(&mut contents);
        } else if let Some(why) = contents.snapshot.waits.take() {
            let state = contents.snapshot.state;
            drop(contents);
            self.fails(state, why);
        }
    }

    /// Looks whether the kernel has dropped packets before the port since the last look, and logs it if that lasts, or is
    /// over. Called about once a second.
    pub(crate) fn look_for_losses(&self) {
        let mut contents = self.lock();
        let now = contents.snapshot.queues.iter().map(|counts| counts.kernel_dropped).sum();
        let losses = &mut contents.losses;
        let before = std::mem::replace(&mut losses.count, now);
        // The queues of an interface that was opened anew count from 0.
        let grows = now > before;
        losses.looks = if grows == losses.grows { losses.looks.saturating_add(1) } else { 1 };
        losses.grows = grows;
        let (app, port) = (self.app.as_str(), self.name.as_str());
        match (losses.told, grows) {
            (false, true) if losses.looks >= LASTING => {
                losses.told = true;
                AppDegraded { app }.log(format_args!(
                    "{port}: the kernel drops packets before the app takes them (`kernel_dropped`, {now} so far): the \
                     network is too slow for them; give it a larger `ring_size`, or several queues and workers"
                ));
            }
            (true, false) if losses.looks >= OVER => {
                losses.told = false;
                AppRecovered { app }.log(format_args!("{port}: the kernel drops no more packets"));
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present status.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot.clone()
    }

    /// Changes the status.
    pub fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.lock().snapshot);
    }

    /// Records the counts of the queues. Called by the engine, which does not wait: a reader at this moment gets the
    /// counts of the last time.
    pub fn note(&self, counts: impl Iterator<Item = QueueCounts>) {
        if let Ok(mut contents) = self.state.try_lock() {
            contents.snapshot.queues.clear();
            contents.snapshot.queues.extend(counts);
        }
    }

    /// Notes why the engine gives the queues up. Called by the engine before it does.
    pub fn gives_up(&self, why: String) {
        self.lock().given_up = Some(why);
    }

    /// Notes that frames cannot be kept from the port, although nobody takes them. Logged once.
    pub fn cannot_ignore(&self, error: &io::Error) {
        let why = format!("frames that nobody takes cannot be kept from the port, and count as dropped: {error}");
        let mut contents = self.lock();
        if contents.snapshot.last_error.as_ref() != Some(&why) {
            warn!("{}: {why}", self.name);
            contents.snapshot.last_error = Some(why);
        }
    }

    /// Why the engine has given the queues up, if it has said so.
    pub(crate) fn take_given_up(&self) -> Option<String> {
        self.lock().given_up.take()
    }

    /// Records the process on the other side, and its user.
    pub(crate) fn meets(&self, peer: Option<(u64, u64)>) {
        self.lock().peer = peer;
    }

    /// Records that the interface works, or is down or has no carrier, and logs a change while the queues are open.
    pub fn carries(&self, works: bool) {
        let mut contents = self.lock();
        contents.snapshot.state = if works { State::Up } else { State::Down };
        if contents.is_open && contents.has_begun {
            self.tell_link(&mut contents);
        }
    }

    /// Records that the queues are open, and logs it if they were not.
    pub(crate) fn opens(&self) {
        let mut contents = self.lock();
        let snapshot = &mut contents.snapshot;
        snapshot.opened += 1;
        snapshot.waits = None;
        if matches!(snapshot.state, State::Starting | State::Waiting | State::Failed) {
            snapshot.state = State::Up;
        }
        contents.is_open = true;
        if contents.has_begun {
            self.tell(&mut contents);
        }
    }

    /// Logs that the queues are open.
    fn tell(&self, contents: &mut Contents) {
        if self.has_peer { self.tell_peer(contents) } else { self.tell_link(contents) }
    }

    /// Logs whether the link is up, if that is not what the log was told last. The end of a link that is down is always
    /// logged; its beginning only as often as lines may be, and then again at the next call.
    fn tell_link(&self, contents: &mut Contents) {
        let (app, port) = (self.app.as_str(), self.name.as_str());
        if contents.snapshot.state == State::Up {
            if contents.was_told_down() {
                let again = if contents.snapshot.opened > 1 { " again" } else { "" };
                LinkUp { app, port }.log(format_args!("{port}: open{again}, and the link is up"));
            }
            contents.was_told(true);
        } else if contents.told != Some(false)
            && let Some(suppressed) = contents.lines.take(Instant::now())
        {
            let line = with_suppressed("the interface is down or has no carrier", suppressed);
            LinkDown { app, port }.log(format_args!("{port}: {line}"));
            contents.was_told(false);
        }
    }

    /// Logs that a peer has come.
    fn tell_peer(&self, contents: &mut Contents) {
        let (app, port) = (self.app.as_str(), self.name.as_str());
        if contents.was_told_down() {
            AppRecovered { app }.log(format_args!("{port}: open again"));
        }
        contents.was_told(true);
        let Contents { snapshot, lines, peer, .. } = contents;
        if let Some(suppressed) = lines.take(Instant::now()) {
            let again = if snapshot.opened > 1 { "open again" } else { "open" };
            let (peer_pid, peer_uid) = peer.unzip();
            PeerConnected { app, port, peer_pid, peer_uid }
                .log(format_args!("{port}: {}", with_suppressed(again, suppressed)));
        }
    }

    /// Sets why the port does not work, and logs it if that has changed.
    pub(crate) fn fails(&self, state: State, why: String) {
        let mut contents = self.lock();
        contents.snapshot.state = state;
        let was_open = std::mem::take(&mut contents.is_open);
        if !contents.has_begun {
            contents.snapshot.waits = Some(why.clone());
            contents.snapshot.last_error = Some(why);
            return;
        }
        let is_error = state == State::Failed || !self.has_peer;
        // What could not be logged before is logged now.
        let is_told = contents.snapshot.waits.as_ref() == Some(&why) && (!is_error || contents.told == Some(false));
        if !is_error && contents.was_told_down() {
            AppRecovered { app: &self.app }.log(format_args!("{}: the error is over", self.name));
            contents.was_told(true);
        }
        if !is_told && let Some(suppressed) = contents.lines.take(Instant::now()) {
            let (app, port) = (self.app.as_str(), self.name.as_str());
            let line = format!("{port}: {}", with_suppressed(&why, suppressed));
            match (is_error, was_open) {
                (true, _) if self.has_peer => AppDegraded { app }.log(line),
                (true, _) => LinkDown { app, port }.log(line),
                (false, true) => PeerDisconnected { app, port }.log(line),
                (false, false) => PeerAwaited { app, port }.log(line),
            }
            if is_error {
                contents.was_told(false);
            }
        }
        contents.snapshot.waits = Some(why.clone());
        contents.snapshot.last_error = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use bellows_events::NAME_FIELD;
    use tracing::field::{Field, Visit};
    use tracing::span;

    use super::*;

    /// The names of the events that were logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    struct Name(String);

    impl Visit for Name {
        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == NAME_FIELD {
                value.clone_into(&mut self.0);
            }
        }

        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    impl tracing::Subscriber for Log {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut name = Name(String::new());
            event.record(&mut name);
            self.0.lock().unwrap().push(name.0);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    fn logged(work: impl FnOnce()) -> Vec<String> {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), work);
        let names = log.0.lock().unwrap();
        names.clone()
    }

    #[test]
    fn a_link_is_told_when_it_changes() {
        let status = PortStatus::new("eth0".to_owned()).of_app("left");
        let names = logged(|| {
            status.carries(true);
            status.opens();
            status.carries(true);
            status.carries(false);
            status.carries(false);
            status.carries(true);
            status.fails(State::Waiting, "gone".to_owned());
            status.fails(State::Waiting, "gone".to_owned());
            status.fails(State::Failed, "no descriptors".to_owned());
            status.carries(true);
            status.opens();
        });
        assert_eq!(names, ["link-down", "link-up", "link-down", "link-down", "link-up"]);
    }

    #[test]
    fn a_kernel_that_refuses_to_keep_frames_away_is_told_of_once() {
        let status = PortStatus::new("eth0".to_owned()).of_app("left");
        let refuse = |number| status.cannot_ignore(&io::Error::from_raw_os_error(number));
        assert_eq!(logged(|| (0..3).for_each(|_| refuse(1))).len(), 1);
        assert!(status.snapshot().last_error.is_some_and(|why| why.contains("Operation not permitted")));
        assert_eq!(logged(|| refuse(12)).len(), 1, "another reason");
    }

    /// A reload may take a link down for a moment, which only the port before may see.
    #[test]
    fn a_link_that_was_down_for_the_port_before_is_told_when_it_is_up() {
        let port = || PortStatus::new("eth0".to_owned());
        let old = Arc::new(port());
        let fails = || old.fails(State::Waiting, "taken away".to_owned());
        let opens = |status: &PortStatus| {
            status.carries(true);
            status.opens();
        };
        let names = logged(|| {
            opens(&old);
            opens(&port().replacing(Arc::clone(&old)));
        });
        assert_eq!(names, [""; 0], "it was not down");
        let new = port().replacing(Arc::clone(&old));
        let names = logged(|| {
            fails();
            opens(&new);
            opens(&new);
        });
        assert_eq!(names, ["link-down", "link-up"]);
        let names = logged(|| {
            let new = port().replacing(Arc::clone(&old));
            new.fails(State::Waiting, "missing".to_owned());
            opens(&new);
        });
        assert_eq!(names, ["link-down", "link-up"]);
        let old = Arc::new(port().with_peer());
        let names = logged(|| {
            old.fails(State::Failed, "in use".to_owned());
            port().with_peer().replacing(Arc::clone(&old)).fails(State::Waiting, "nobody".to_owned());
            port().with_peer().replacing(old).opens();
        });
        assert_eq!(names, ["app-degraded", "app-recovered", "peer-awaited", "app-recovered", "peer-connected"]);
    }

    #[test]
    fn a_peer_comes_and_goes_and_only_an_error_degrades() {
        let status = PortStatus::new("/run/s".to_owned()).with_peer();
        let names = logged(|| {
            status.fails(State::Waiting, "nobody".to_owned());
            status.opens();
            status.fails(State::Waiting, "gone".to_owned());
            status.fails(State::Waiting, "nobody".to_owned());
            status.fails(State::Failed, "no descriptors".to_owned());
            status.opens();
        });
        let wanted = ["peer-awaited", "peer-connected", "peer-disconnected", "peer-awaited"];
        assert_eq!(names, [&wanted[..], &["app-degraded", "app-recovered", "peer-connected"]].concat());
    }

    /// A port of a network that does not start, or of a reload that fails, has no link that could be down.
    #[test]
    fn a_port_that_never_runs_tells_nothing() {
        let port = |fails: bool, begins: bool| {
            let status = PortStatus::new("eth0".to_owned()).of_app("left");
            logged(|| {
                status.holds_back();
                status.carries(false);
                if fails {
                    status.fails(State::Waiting, "there is no interface".to_owned());
                } else {
                    status.opens();
                }
                if begins {
                    status.begins();
                    status.begins();
                }
            })
        };
        for fails in [false, true] {
            assert_eq!(port(fails, false), [""; 0]);
            assert_eq!(port(fails, true), ["link-down"]);
        }
    }

    #[test]
    fn losses_in_the_kernel_that_last_degrade_the_app() {
        let status = PortStatus::new("eth0".to_owned()).of_app("left");
        let mut dropped = 0;
        let mut look = |more: u64| {
            dropped += more;
            status.note([QueueCounts { kernel_dropped: dropped, ..QueueCounts::default() }].into_iter());
            logged(|| status.look_for_losses())
        };
        for more in [5, 0, 5, 5, 0] {
            assert_eq!(look(more), [""; 0], "a burst is no state");
        }
        let names: Vec<String> = [1; 9].into_iter().flat_map(&mut look).collect();
        assert_eq!(names, ["app-degraded"]);
        let names: Vec<String> = [0, 0, 1].into_iter().chain([0; 30]).flat_map(&mut look).collect();
        assert_eq!(names, ["app-recovered"]);
    }

    /// However often a link goes down, what was logged last is the truth in the end.
    #[test]
    fn a_link_that_flaps_is_told_seldom_and_never_wrongly() {
        let status = PortStatus::new("eth0".to_owned());
        let names = logged(|| {
            status.carries(true);
            status.opens();
            for _ in 0..1_000 {
                status.carries(false);
                status.carries(true);
            }
        });
        assert!((10..30).contains(&names.len()), "{}", names.len());
        assert_eq!(names.last().unwrap(), "link-up");
    }
}
