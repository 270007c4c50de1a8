//! Apps: the trait that authors write, its interface to the engine, the type-erased app that the engine holds, and the
//! engine's own apps at the ends of links between workers.

pub(crate) mod conversation;
pub(crate) mod crossing;
pub(crate) mod erased;
pub(crate) mod io;

use std::sync::Arc;

use bellows_observe::listing::CodeLine;
use bellows_observe::{Counter, Counters};
use bellows_wiring::Ports;

use self::conversation::Conversation;
use self::io::Io;

/// Why an app cannot start or failed to finish: one sentence that names the place and the remedy.
pub type AppError = Box<dyn std::error::Error + Send + Sync>;

/// An app: it brings packets in, passes them on, or takes them out.
///
/// The engine calls [`pull`](App::pull) once a breath or when a [slot](App::slots) is ready, [`push`](App::push) when
/// an input holds packets, and [`tick`](App::tick) at the start, when its links have changed, and at times that the app
/// requested with [`Io::wake_at`]. All three use the app's links through [`Io`].
///
/// The constructor of an app must have no side effects: checking a network constructs its apps. Open files and sockets
/// and create threads in [`start`](App::start); change what exists outside in [`begin`](App::begin), when all apps have
/// started.
///
/// # Example
/// ```
/// use bellows_engine::{App, Io, Port, Ports};
///
/// /// Swaps the source and destination addresses of each packet.
/// struct Reflect;
///
/// impl App for Reflect {
///     const INPUTS: Ports = Ports::Named(&[Port::required("input", "Ethernet frames")]);
///     const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same frames, on their way back")]);
///     const PREFETCH: usize = 8;
///
///     fn push(&mut self, io: &Io<Self>) {
///         let mut output = io.output(0);
///         for mut packet in &mut io.input(0) {
///             if let Some((destination, rest)) = packet.bytes_mut().split_at_mut_checked(6) {
///                 if let Some(source) = rest.get_mut(..6) {
///                     destination.swap_with_slice(source);
///                 }
///             }
///             output.push(packet);
///         }
///     }
/// }
/// ```
pub trait App: Send + Sized + 'static {
    /// Ports through which packets come in.
    const INPUTS: Ports = Ports::NONE;

    /// Ports through which packets go out.
    const OUTPUTS: Ports = Ports::NONE;

    /// Whether the engine calls [`pull`](App::pull). The default is true for apps without inputs. An app with inputs
    /// that also brings packets in (a network interface) sets it.
    const PULLS: bool = Self::INPUTS.is_none();

    /// How many packets ahead the input iterators prefetch packet data; 0 for an app that does not read it. A network
    /// can [override it](crate::AppSpec::prefetching).
    const PREFETCH: usize = 0;

    /// Maximum number of packets that one input packet can become on one output. In a lossless network the engine gives
    /// the app no more packets than fit on every output after this multiplication. 0 for an app whose inputs do not
    /// feed its outputs, such as a network interface: it gets packets however full its outputs are.
    const MAX_FAN_OUT: usize = 1;

    /// Whether packets end in the app without being dropped: it consumes them, or sends others in their place. If not,
    /// every packet that the app frees must count as a [drop](App::COUNTERS); one that does not is reported as a bug in
    /// the app. (An app without inputs may free packets that it made; they count as not made.)
    const ENDS: bool = Self::OUTPUTS.is_none();

    /// Whether the app has something to send when the run is stopped, such as that a router is gone. It gets a last
    /// [`tick`](App::tick) then, in which [`Io::is_leaving`] is true, and what it sends still leaves the network. That is
    /// so for the end of a run alone, not for an app that a reload removes or replaces.
    const LEAVES: bool = false;

    /// Drop reasons and other counters of the app: the list of [`counters!`](crate::counters).
    ///
    /// ```
    /// use bellows_engine::{App, Counters, Io, Port, Ports, counters};
    ///
    /// struct Filter;
    ///
    /// counters! { Filter;
    ///     asked drop FILTERED = "filtered", "packets of less than 60 bytes";
    ///     count PASSED = "passed", "packets of 60 bytes and more";
    ///     gauge LONGEST = "longest", "length of the longest packet so far", in "bytes";
    /// }
    ///
    /// impl App for Filter {
    ///     const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    ///     const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "those that are long enough")]);
    ///     const COUNTERS: Counters<Filter> = Filter::COUNTED;
    ///
    ///     fn push(&mut self, io: &Io<Self>) {
    ///         let mut output = io.output(0);
    ///         for packet in &mut io.input(0) {
    ///             match packet.len() {
    ///                 ..60 => io.drop(packet, Filter::FILTERED),
    ///                 _ => {
    ///                     io.count(Filter::PASSED, 1);
    ///                     output.push(packet);
    ///                 }
    ///             }
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// A packet can only be dropped for a drop reason, not for another counter:
    ///
    /// ```compile_fail
    /// # use bellows_engine::{App, Counters, Io, Port, Ports, counters};
    /// # struct Filter;
    /// counters! { Filter;
    ///     count PASSED = "passed", "packets of 60 bytes and more";
    /// }
    /// # impl App for Filter {
    /// #     const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    /// #     const COUNTERS: Counters<Filter> = Filter::COUNTED;
    /// #     fn push(&mut self, io: &Io<Self>) {
    /// for packet in &mut io.input(0) {
    ///     io.drop(packet, Filter::PASSED); // expected `DropReason<Filter>`, found `Count<Filter>`
    /// }
    /// #     }
    /// # }
    /// ```
    ///
    /// Nor can it be dropped for a reason of another app, or for a reason that is missing in `App::COUNTERS`:
    ///
    /// ```compile_fail
    /// # use bellows_engine::{App, Counters, Io, Port, Ports, counters};
    /// # struct Filter;
    /// counters! { Filter;
    ///     drop FILTERED = "filtered", "packets of less than 60 bytes";
    /// }
    /// # impl App for Filter {
    /// #     const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    /// #     fn push(&mut self, io: &Io<Self>) {
    /// for packet in &mut io.input(0) {
    ///     io.drop(packet, Filter::FILTERED); // `const COUNTERS` is missing
    /// }
    /// #     }
    /// # }
    /// # let _ = bellows_engine::Network::new().app("filter", Filter);
    /// ```
    const COUNTERS: Counters<Self> = Counters::NONE;

    /// The number of [slots](Io::slot) that the app uses. Without slots it is pulled in every breath; with slots, in
    /// breaths in which a slot is ready.
    ///
    /// Called once, before [`start`](App::start): the answer must depend only on the app's configuration.
    fn slots(&self) -> usize {
        0
    }

    /// Brings packets in. Called once a breath, or when a [slot](App::slots) is ready. Brings in about [`Io::burst`]
    /// packets, and no more than [`Output::room`](crate::Output::room).
    fn pull(&mut self, io: &Io<Self>) {
        let _ = io;
    }

    /// Passes packets on. Called when an input holds packets. Packets left in an input come first next time. An app
    /// that leaves packets there because something outside is not ready calls [`Io::wake_at`] for a retry; otherwise
    /// the run may end as stalled.
    fn push(&mut self, io: &Io<Self>) {
        let _ = io;
    }

    /// Does work that depends on time or on the app's links. Called once at the start, after a reload that changed the
    /// links of the app but not its config, at times requested with [`Io::wake_at`], and when the run is stopped if the
    /// app [`LEAVES`](App::LEAVES).
    fn tick(&mut self, io: &Io<Self>) {
        let _ = io;
    }

    /// The number of packets inside the app: taken from its inputs or made, and neither sent nor freed. A run does not
    /// end before this is 0, and the report checks it: a packet that is neither here nor anywhere else is a bug in the
    /// app.
    fn held(&self) -> usize {
        0
    }

    /// Whether [`pull`](App::pull) will never again bring packets in. A run does not end before this is true for all
    /// apps.
    fn is_finished(&self) -> bool {
        !Self::PULLS
    }

    /// Opens the app's resources. In a reload, `old` is the app of the same name and type that this one replaces;
    /// resources taken from it stay open.
    ///
    /// # Errors
    /// Why the app cannot start. What it took from `old` must be back there by then. A network in which an app cannot
    /// start does not run; a reload is undone.
    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        let _ = old;
        Ok(())
    }

    /// The run begins: every app of the network has started, and a reload can no longer fail. Called once, before the
    /// first call with an [`Io`].
    ///
    /// Make irreversible changes outside the app here and not in [`start`](App::start): replace a file, remove an
    /// obstacle, read from a pipe. So a network that cannot start changes nothing. Check in `start` whatever can be
    /// refused; report an error that occurs here in [`stop`](App::stop).
    fn begin(&mut self) {}

    /// The run ends, or a reload removed or replaced the app: the last call with an [`Io`], for final counts.
    /// [`stop`](App::stop) follows. Not called after a panic.
    ///
    /// After a reload it is called on the thread that requested the reload, while the new configuration runs: it may
    /// wait for a disk. Packets sent here go nowhere; they count as `removed`, as do packets that the app holds.
    fn end(&mut self, io: &Io<Self>) {
        let _ = io;
    }

    /// The app's status for other threads: the state of a socket, the result of a negotiation. Called once, after
    /// [`start`](App::start); `None` for an app that has nothing to report besides its counters.
    fn status(&self) -> Option<Arc<dyn Status>> {
        None
    }

    /// Returns to `old` what [`start`](App::start) took from it: the reload failed elsewhere. The app is then
    /// [stopped](App::stop) without having [begun](App::begin).
    fn give_back(&mut self, old: &mut Self) {
        let _ = old;
    }

    /// Finishes: flushes files, ends threads. The last call; skipped if the app panicked.
    ///
    /// # Errors
    /// What could not be finished. It is reported and shows in the exit code of the run.
    fn stop(&mut self) -> Result<(), AppError> {
        Ok(())
    }
}

/// The status of an app, for other threads: see [`App::status`].
///
/// It is called on threads other than the engine's, at any time, even while the app is being called, stopped or
/// dropped, and after that. It must not share a lock with its app that it holds for long: the engine must never wait
/// for it.
pub trait Status: Send + Sync + 'static {
    /// The current status.
    fn status(&self) -> serde_json::Value;

    /// The machine code that the app has generated, in pieces without gaps; labels name its parts. For `show hot` and
    /// the map of `perf`.
    fn code(&self) -> Vec<Vec<CodeLine>> {
        Vec::new()
    }

    /// Begins to answer the requests of a control client. `None` if there are none to answer.
    fn converse(self: Arc<Self>) -> Option<Box<dyn Conversation>> {
        None
    }
}

/// The constants of an app type.
#[derive(Clone, Copy, Debug)]
pub struct AppInfo {
    /// [`App::INPUTS`].
    pub inputs: Ports,
    /// [`App::OUTPUTS`].
    pub outputs: Ports,
    /// [`App::PULLS`].
    pub pulls: bool,
    /// [`App::PREFETCH`].
    pub prefetch: usize,
    /// [`App::MAX_FAN_OUT`].
    pub max_fan_out: usize,
    /// [`App::ENDS`].
    pub ends: bool,
    /// The drop reasons of [`App::COUNTERS`].
    pub drops: &'static [Counter],
    /// The other counters of [`App::COUNTERS`].
    pub counters: &'static [Counter],
}

impl AppInfo {
    /// The constants of the app type `A`.
    pub const fn of<A: App>() -> AppInfo {
        AppInfo {
            inputs: A::INPUTS,
            outputs: A::OUTPUTS,
            pulls: A::PULLS,
            prefetch: A::PREFETCH,
            max_fan_out: A::MAX_FAN_OUT,
            ends: A::ENDS,
            drops: A::COUNTERS.drops(),
            counters: A::COUNTERS.others(),
        }
    }
}
