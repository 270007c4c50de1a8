//! What an app is: the trait that authors write, what it works with, and the face of it that the engine holds.

pub(crate) mod erased;
pub(crate) mod io;

use std::sync::Arc;

use bellows_observe::{Counter, Counters};
use bellows_wiring::Ports;

use self::io::Io;

/// Why an app cannot start, or failed to finish: one sentence that names the place and the way out.
pub type AppError = Box<dyn std::error::Error + Send + Sync>;

/// An app: something that brings packets in, moves them on, or takes them out.
///
/// The engine calls [`pull`](App::pull) once a breath or when a [slot](App::slots) says so, [`push`](App::push) when an input holds packets, and
/// [`tick`](App::tick) at the start and when a moment comes that the app asked for with [`Io::wake_at`]. All three work on the
/// app's links through [`Io`].
///
/// Making an app (its constructor) must have no side effects: a network is checked by making its apps. Files,
/// sockets and threads are opened in [`start`](App::start), and what exists is changed in [`begin`](App::begin), when all
/// apps have started.
///
/// # Example
/// ```
/// use bellows_engine::{App, Io, Port, Ports};
///
/// /// Turns each packet round: what was its source address becomes its destination.
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
    /// Ports that packets come from.
    const INPUTS: Ports = Ports::NONE;

    /// Ports that packets go to.
    const OUTPUTS: Ports = Ports::NONE;

    /// Whether [`pull`](App::pull) is called. Apps without inputs are; an app with inputs that also brings packets in
    /// (a network interface) says so.
    const PULLS: bool = Self::INPUTS.is_none();

    /// How many packets ahead the inputs' iterators fetch the packets' data; 0 for an app that does not read it. A
    /// network can [say otherwise](crate::AppSpec::prefetching).
    const PREFETCH: usize = 0;

    /// The most packets that one packet from an input can become on one output. In a lossless network the app is
    /// given no more packets than fit on every output, multiplied by this. 0 for an app of which nothing that goes in comes
    /// out again, as a network interface: it is given packets however full its outputs are.
    const MAX_FAN_OUT: usize = 1;

    /// Whether packets end in the app without being dropped: it consumes them, or passes on others in their place. If not, every
    /// packet that it frees must be in a count of [drops](App::COUNTERS), and one that is not is reported as a bug in the app. (An app without
    /// inputs may free a packet that it has made too many: that one counts as not made.)
    const ENDS: bool = Self::OUTPUTS.is_none();

    /// Why this app drops packets, and what else it counts: the list of [`counters!`](crate::counters).
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
    /// A packet is dropped for a reason, and for nothing else:
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
    /// Nor for the reason of another app, or for one that `App::COUNTERS` does not have:
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

    /// How many [slots](Io::slot) the app wants. With none it is pulled in every breath; with some, in those breaths in
    /// which a slot says that there is something to pull.
    ///
    /// Asked once, before [`start`](App::start): the answer must follow from the app's configuration alone.
    fn slots(&self) -> usize {
        0
    }

    /// Brings packets in. Called once a breath, or when a [slot](App::slots) says so; moves about [`Io::burst`] packets
    /// and looks at [`Output::room`](crate::Output::room).
    fn pull(&mut self, io: &Io<Self>) {
        let _ = io;
    }

    /// Moves packets on. Called when an input holds packets. What is left in an input comes first next time; an app
    /// that leaves packets there because something outside is not ready says with [`Io::wake_at`] when to ask again,
    /// or the run may end as stalled.
    fn push(&mut self, io: &Io<Self>) {
        let _ = io;
    }

    /// Does what is due. Called once at the start, and when a moment comes that [`Io::wake_at`] named.
    fn tick(&mut self, io: &Io<Self>) {
        let _ = io;
    }

    /// How many packets are inside the app: those that it has taken from its inputs or made, and neither sent nor freed. A run
    /// does not end before this is 0, and the report checks it: packets that are neither here nor anywhere else are a bug.
    fn held(&self) -> usize {
        0
    }

    /// Whether [`pull`](App::pull) will bring in nothing more, ever. A run does not end before all apps say so.
    fn is_finished(&self) -> bool {
        !Self::PULLS
    }

    /// Opens what the app works with. In a reload, `old` is the app of the same name and type whose place this one
    /// takes; whatever is taken out of it stays open.
    ///
    /// # Errors
    /// Why it cannot start; what it took out of `old` must be back there then. A network in which an app cannot start
    /// does not run, and a reload is undone.
    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        let _ = old;
        Ok(())
    }

    /// The run begins: every app of the network has started, and in a reload nothing can fail any more. Called once,
    /// before the first other call with an [`Io`].
    ///
    /// What exists outside and would be changed for good is changed here and not in [`start`](App::start): a file is
    /// replaced, what lies in the way is removed, a pipe is read. So a network that cannot start leaves all as it was. What
    /// can be refused is found out in `start`; what fails here all the same is for [`stop`](App::stop) to report.
    fn begin(&mut self) {}

    /// The run ends, or a reload has removed or replaced the app: the last call with an [`Io`], so that the counters tell all
    /// that the app has done. It is still to be [stopped](App::stop). Not called after a panic.
    ///
    /// After a reload it is called on the thread that asked for it, while the new configuration runs: it may wait for a disk.
    /// Packets that it sends then go nowhere; they are counted as `removed`, as those that it holds are.
    fn end(&mut self, io: &Io<Self>) {
        let _ = io;
    }

    /// What other threads may ask while the app runs: how a socket stands, what was negotiated. Asked for once, after
    /// [`start`](App::start); what is answered with `None` has nothing to tell but its counters.
    fn status(&self) -> Option<Arc<dyn Status>> {
        None
    }

    /// Gives back to `old` what [`start`](App::start) took out of it: the reload failed elsewhere. The app is
    /// [stopped](App::stop) then, without having [begun](App::begin).
    fn give_back(&mut self, old: &mut Self) {
        let _ = old;
    }

    /// Finishes: flushes files, ends threads. The last call, unless the app panicked before.
    ///
    /// # Errors
    /// What could not be finished. It is reported, and the run's exit code says so.
    fn stop(&mut self) -> Result<(), AppError> {
        Ok(())
    }
}

/// What an app tells of itself to whoever asks: see [`App::status`].
///
/// It is asked on threads other than the engine's, at any time, also while and after the app is called, stopped and dropped. So
/// that the engine never waits for it, it shares with its app no lock that it holds for long.
pub trait Status: Send + Sync + 'static {
    /// The state as it is now.
    fn status(&self) -> serde_json::Value;
}

/// What the engine knows of an app's type.
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
    /// Those of [`App::COUNTERS`] that are reasons for drops.
    pub drops: &'static [Counter],
    /// The others.
    pub counters: &'static [Counter],
}

impl AppInfo {
    /// Those of one type of app.
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
