//! The type-erased app: how the engine holds and calls an app of any type.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use bellows_observe::layout::account;

use super::io::Io;
use super::{App, AppError, Status};
use crate::panics::catch_panic;
use crate::runtime::node::Node;

/// The entry points of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryPoint {
    Pull,
    Push,
    Tick,
}

/// Calls one app at one entry point, as a schedule does. If the app panics, the thread's state records it.
///
/// Uses the C calling convention, because generated code calls it.
///
/// Safety: [`Node::app`] points at an app of the type that the function was made for, and nothing else refers to the
/// app during the call.
pub(crate) type Call = unsafe extern "C" fn(&Node);

/// The nested schedule's call of an app of any type.
pub(crate) trait NestedCall: Sync {
    /// Calls the app if it has work, which it checks itself.
    ///
    /// Safety: as for [`Call`].
    unsafe fn breathe(&self, entry: EntryPoint, node: &Node);
}

struct Caller<A>(PhantomData<fn(A)>);

impl<A: App> NestedCall for Caller<A> {
    unsafe fn breathe(&self, entry: EntryPoint, node: &Node) {
        let has_work = match entry {
            EntryPoint::Pull => node.is_ready_to_pull(),
            EntryPoint::Push => node.has_input(),
            EntryPoint::Tick => true,
        };
        if has_work {
            // SAFETY: the function was made for A; the rest is the caller's promise.
            unsafe { call_of::<A>(entry, node.state().lossless)(node) }
        }
    }
}

fn call_of<A: App>(entry: EntryPoint, lossless: bool) -> Call {
    match (entry, lossless) {
        (EntryPoint::Pull, false) => pull::<A>,
        (EntryPoint::Push, false) => push::<A>,
        (EntryPoint::Tick, false) => tick::<A>,
        (EntryPoint::Pull, true) => pull_lossless::<A>,
        (EntryPoint::Push, true) => push_lossless::<A>,
        (EntryPoint::Tick, true) => tick_lossless::<A>,
    }
}

/// An app of any type.
pub(crate) trait DynApp: Send {
    fn nested_call(&self) -> &'static dyn NestedCall;
    fn entry(&self, entry: EntryPoint, lossless: bool) -> Call;
    fn type_id(&self) -> TypeId;
    fn type_name(&self) -> &'static str;
    fn slots(&self) -> usize;
    fn held(&self) -> usize;
    fn has_last_tick(&self) -> bool;
    fn is_finished(&self) -> bool;
    fn start(&mut self, old: Option<&mut dyn DynApp>) -> Result<(), AppError>;
    fn begin(&mut self);
    fn end(&mut self, node: &Node);
    fn status(&self) -> Option<Arc<dyn Status>>;
    fn give_back(&mut self, old: &mut dyn DynApp);
    fn stop(&mut self) -> Result<(), AppError>;
    fn as_any(&mut self) -> &mut dyn Any;
}

/// Safety: as for [`Call`], for the type A.
unsafe extern "C" fn pull<A: App>(node: &Node) {
    // SAFETY: the caller's promise.
    let app = unsafe { &mut *node.app.get().cast::<A>() };
    node.begin_call(account::PULL);
    if catch_panic(|| app.pull(&Io::new(node))).is_none() {
        node.report_panic();
    }
    node.end_call();
}

/// Safety: as for [`Call`], for the type A.
unsafe extern "C" fn push<A: App>(node: &Node) {
    // SAFETY: the caller's promise.
    let app = unsafe { &mut *node.app.get().cast::<A>() };
    node.begin_call(account::PUSH);
    if catch_panic(|| app.push(&Io::new(node))).is_none() {
        node.report_panic();
    }
    node.end_call();
}

/// Safety: as for [`Call`], for the type A.
unsafe extern "C" fn tick<A: App>(node: &Node) {
    // SAFETY: the caller's promise.
    let app = unsafe { &mut *node.app.get().cast::<A>() };
    node.begin_call(account::TICK);
    if catch_panic(|| app.tick(&Io::new(node))).is_none() {
        node.report_panic();
    }
    node.end_call();
}

/// In a lossless network: gives the app no more packets than fit on every output after its fan-out.
///
/// Safety: as for [`Call`], for the type A.
unsafe extern "C" fn pull_lossless<A: App>(node: &Node) {
    node.set_budget();
    // SAFETY: the caller's promise.
    unsafe { pull::<A>(node) }
}

/// Safety: as for [`Call`], for the type A.
unsafe extern "C" fn push_lossless<A: App>(node: &Node) {
    if node.set_budget() > 0 {
        // SAFETY: the caller's promise.
        unsafe { push::<A>(node) }
    }
}

/// Safety: as for [`Call`], for the type A.
unsafe extern "C" fn tick_lossless<A: App>(node: &Node) {
    node.set_budget();
    // SAFETY: the caller's promise.
    unsafe { tick::<A>(node) }
}

/// An app on cache lines of its own: apps of several workers may be adjacent in memory. Some processors fetch lines in
/// pairs.
#[repr(C, align(128))]
struct OwnLines<A>(A);

/// Erases the type of an app.
pub(crate) fn erase<A: App>(app: A) -> Box<dyn DynApp> {
    Box::new(OwnLines(app))
}

impl<A: App> DynApp for OwnLines<A> {
    fn nested_call(&self) -> &'static dyn NestedCall {
        &Caller::<A>(PhantomData)
    }

    fn entry(&self, entry: EntryPoint, lossless: bool) -> Call {
        call_of::<A>(entry, lossless)
    }

    fn type_id(&self) -> TypeId {
        TypeId::of::<A>()
    }

    fn type_name(&self) -> &'static str {
        std::any::type_name::<A>()
    }

    fn slots(&self) -> usize {
        App::slots(&self.0)
    }

    fn held(&self) -> usize {
        App::held(&self.0)
    }

    fn has_last_tick(&self) -> bool {
        A::LEAVES
    }

    fn is_finished(&self) -> bool {
        App::is_finished(&self.0)
    }

    fn start(&mut self, old: Option<&mut dyn DynApp>) -> Result<(), AppError> {
        App::start(&mut self.0, old.and_then(|old| old.as_any().downcast_mut::<A>()))
    }

    fn begin(&mut self) {
        App::begin(&mut self.0);
    }

    fn end(&mut self, node: &Node) {
        App::end(&mut self.0, &Io::new(node));
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        App::status(&self.0)
    }

    fn give_back(&mut self, old: &mut dyn DynApp) {
        if let Some(old) = old.as_any().downcast_mut::<A>() {
            App::give_back(&mut self.0, old);
        }
    }

    fn stop(&mut self) -> Result<(), AppError> {
        App::stop(&mut self.0)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        &mut self.0
    }
}

/// The owner of an app that [`Node::app`] may also point at: unlike a box it does not claim exclusive access.
pub(crate) struct AppBox(NonNull<dyn DynApp>);

// SAFETY: the value owns the app, which may be sent.
unsafe impl Send for AppBox {}

impl AppBox {
    pub(crate) fn address(&self) -> *mut () {
        self.0.as_ptr().cast()
    }
}

impl From<Box<dyn DynApp>> for AppBox {
    fn from(app: Box<dyn DynApp>) -> AppBox {
        AppBox(NonNull::from(Box::leak(app)))
    }
}

impl Deref for AppBox {
    type Target = dyn DynApp;

    fn deref(&self) -> &(dyn DynApp + 'static) {
        // SAFETY: the pointer came from a box and lives as long as the value. The only other access to the app is
        // through a node, in breaths, and nothing holds this reference then (Engine is borrowed exclusively).
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for AppBox {
    fn deref_mut(&mut self) -> &mut (dyn DynApp + 'static) {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for AppBox {
    fn drop(&mut self) {
        // SAFETY: the pointer came from Box::leak, and its owner ends here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Stands in for an app that panicked: drops its input.
pub(crate) struct FailedApp;

impl App for FailedApp {
    const PULLS: bool = false;

    fn push(&mut self, io: &Io<Self>) {
        io.fail_inputs();
    }
}

/// Starts an app. A panic becomes an error.
pub(crate) fn try_start(app: &mut dyn DynApp, old: Option<&mut dyn DynApp>) -> Result<(), AppError> {
    catch_panic(|| app.start(old)).unwrap_or_else(|| Err("it panicked while starting".into()))
}

/// Stops an app. A panic becomes an error.
pub(crate) fn try_stop(app: &mut dyn DynApp) -> Result<(), String> {
    match catch_panic(|| app.stop()) {
        Some(result) => result.map_err(|error| error.to_string()),
        None => Err("it panicked while stopping".to_owned()),
    }
}
