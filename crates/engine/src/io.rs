//! What an app works with while it is called: its inputs, its outputs, the time, new packets, counters.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};

use bellows_observe::layout::{account, common, link as counters};
use bellows_packet::{
    BufferUse, Drain, Memory, Packet, Template, Vector, buffer_use, free_all, push_copies, push_filled,
};
use bellows_sys::clock;

use crate::app::App;
use crate::meter::Meter;
use crate::place::{OPEN, Place};
use crate::slots::SlotHandle;
use crate::watch::TXDROP;
use crate::world::Fabric;

/// What all apps of one engine share during a breath. The first fields are those that generated code knows.
#[repr(C)]
pub(crate) struct Core {
    /// The time, read at most once a breath; 0 while nobody has asked.
    pub(crate) now: Cell<u64>,
    /// Breaths in which a packet moved.
    pub(crate) moved: Cell<u64>,
    /// Not 0 if the breaths are to be interrupted after this one: an app has panicked, or wants a tick.
    pub(crate) interrupt: Cell<u32>,
    /// How many apps have panicked and are to be buried.
    pub(crate) failures: Cell<u32>,
    /// Whether a packet moved in this breath.
    pub(crate) progress: Cell<bool>,
    /// Whether a breath was interrupted between its pulls and its pushes.
    pub(crate) halfway: Cell<bool>,
    /// Whether it is not known what one of them had in hand.
    pub(crate) unwatched_panic: Cell<bool>,
    /// Which apps have panicked.
    pub(crate) failed: RefCell<Vec<usize>>,
    /// The time as a test sets it; `None` for the real one.
    pub(crate) manual_time: Cell<Option<u64>>,
    /// How many packets the running app may still take from its inputs. Counts down in a lossless network only.
    pub(crate) budget: Cell<usize>,
    /// The earliest moment that an app wants a tick.
    pub(crate) next_deadline: Cell<u64>,
    /// Vectors without a link, the last used on top: a chain of any length lives in a few hot ones.
    spare: RefCell<Vec<Memory>>,
    /// What this thread had taken from the pool and given back when the last call was over: what has changed since then is the
    /// doing of the next.
    pub(crate) buffers: Cell<BufferUse>,
    /// Whether an app has told that it can take no packet any more, since somebody looked whether all have.
    pub(crate) closed: Cell<bool>,
    pub(crate) burst: usize,
    pub(crate) lossless: bool,
    pub(crate) meter: Meter,
}

impl Core {
    pub(crate) fn new(burst: usize, lossless: bool, meter: Meter) -> Core {
        Core {
            now: Cell::new(0),
            moved: Cell::new(0),
            interrupt: Cell::new(0),
            failures: Cell::new(0),
            progress: Cell::new(false),
            halfway: Cell::new(false),
            unwatched_panic: Cell::new(false),
            failed: RefCell::default(),
            manual_time: Cell::new(None),
            budget: Cell::new(usize::MAX),
            next_deadline: Cell::new(0),
            spare: RefCell::new(Vec::with_capacity(64)),
            buffers: Cell::default(),
            closed: Cell::new(false),
            burst,
            lossless,
            meter,
        }
    }

    /// The time in nanoseconds, the same throughout a breath.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        if self.now.get() == 0 {
            self.now.set(self.manual_time.get().unwrap_or_else(clock::now));
        }
        self.now.get()
    }

    pub(crate) fn forget_time(&self) {
        self.now.set(0);
    }

    /// Ends a breath in which apps were called. Generated code does the same by itself.
    #[inline(always)]
    pub(crate) fn end_breath(&self) {
        self.moved.set(self.moved.get() + u64::from(self.progress.replace(false)));
        self.now.set(0);
    }

    /// What has been taken from the pool and given back until now was not the doing of the next call.
    #[inline]
    pub(crate) fn settle_buffers(&self) {
        self.buffers.set(buffer_use());
    }

    pub(crate) fn report_panic(&self, app: usize) {
        self.failed.borrow_mut().push(app);
        self.failures.set(self.failures.get() + 1);
        self.interrupt.set(1);
    }

    /// Asks for a tick not later than at this time.
    #[inline]
    fn wake_at(&self, time: u64) {
        self.next_deadline.set(self.next_deadline.get().min(time));
        self.interrupt.set(1);
    }

    /// Sets part of the budget aside for an input that is opened: as many packets as it holds, or what is left.
    #[inline(always)]
    fn reserve(&self, waiting: usize) -> usize {
        if !self.lossless {
            return usize::MAX;
        }
        let reserved = self.budget.get().min(waiting);
        self.budget.set(self.budget.get() - reserved);
        reserved
    }

    /// Memory for a link that gets its first packets.
    #[inline]
    fn borrow_vector(&self) -> Vector {
        self.spare.borrow_mut().pop().map_or_else(new_vector, Vector::from)
    }

    /// Takes back the memory of a link that has been emptied.
    #[inline]
    fn return_vector(&self, vector: Vector) {
        if let Some(memory) = vector.into_memory() {
            self.spare.borrow_mut().push(memory);
        }
    }
}

#[cold]
fn new_vector() -> Vector {
    Vector::new()
}

impl Fabric {
    /// Takes the packets out of a link, with the memory they are in.
    #[inline(always)]
    pub(crate) fn take(&self, index: u32) -> Vector {
        self.links.get(index as usize).map_or(Vector::none(), |link| link.vector.replace(Vector::none()))
    }

    /// Puts into a link what is to wait there.
    #[inline(always)]
    pub(crate) fn put(&self, index: u32, vector: Vector, core: &Core) {
        let Some(link) = self.links.get(index as usize) else { return };
        let other = link.vector.replace(Vector::none());
        let vector = if other.is_none() { vector } else { self.join(index, other, vector, core) };
        self.waiting[index as usize].set(vector.len() as u32);
        if vector.is_empty() {
            link.bytes.set(0);
            core.return_vector(vector);
        } else {
            link.bytes.set(vector.bytes());
            mem::forget(link.vector.replace(vector));
        }
    }

    /// Looks at the packets that wait in a link, from outside the calls of apps.
    pub(crate) fn with_vector<T>(&self, index: u32, work: impl FnOnce(&mut [Packet]) -> T) -> T {
        let link = &self.links[index as usize].vector;
        let mut vector = link.replace(Vector::none());
        let result = work(vector.as_mut_slice());
        mem::forget(link.replace(vector));
        result
    }

    /// An app had two handles on one link open at a time: what the one left goes behind what the other did.
    #[cold]
    fn join(&self, index: u32, mut first: Vector, mut second: Vector, core: &Core) -> Vector {
        first.append(&mut second, usize::MAX);
        self.slab.add(self.links[index as usize].cell + counters::DROPS, second.len() as u64);
        Place::dropping(TXDROP as usize, || free_all(&mut second));
        core.return_vector(second);
        first
    }
}

/// What an app works with while it is called.
///
/// All packets that an app takes from an [`Input`] and does not send to an [`Output`] or keep must be given to [`Io::drop`]:
/// a packet that is merely dropped is freed, but in no count, and the report of the run names that as a bug in the app. Only in
/// apps in which packets [end](App::ENDS), as all do without outputs, is a packet that is freed one that has arrived.
pub struct Io<'a, A> {
    place: &'a Place,
    _app: PhantomData<fn(A)>,
}

impl<'a, A: App> Io<'a, A> {
    #[inline(always)]
    pub(crate) fn new(place: &'a Place) -> Io<'a, A> {
        Io { place, _app: PhantomData }
    }

    /// How many inputs there are: those that the app names, or those that are linked to an app with any number.
    #[inline]
    pub fn inputs(&self) -> usize {
        self.place.inputs.len()
    }

    /// How many outputs there are: those that the app names, or those that are linked to an app with any number.
    #[inline]
    pub fn outputs(&self) -> usize {
        self.place.outputs.len()
    }

    /// Opens an input. What is not taken out of it stays in line.
    ///
    /// An input that does not exist or is not linked is empty.
    #[inline(always)]
    pub fn input(&self, index: usize) -> Input<'a, A> {
        let link = self.place.inputs.get(index).copied().unwrap_or(OPEN);
        let vector = ManuallyDrop::new(self.place.fabric().take(link));
        let before = vector.len();
        let allowed = self.place.core().reserve(before);
        Input { vector, before, allowed, changed: false, link, place: self.place, _app: PhantomData }
    }

    /// Opens an output. Packets leave when it is dropped.
    ///
    /// What is sent to an output that does not exist or is not linked is dropped as `unlinked`.
    #[inline(always)]
    pub fn output(&self, index: usize) -> Output<'a> {
        let link = self.place.outputs.get(index).copied().unwrap_or(OPEN);
        let mut vector = self.place.fabric().take(link);
        if vector.is_none() && link != OPEN {
            vector = self.place.core().borrow_vector();
        }
        vector.compact();
        Output { vector: ManuallyDrop::new(vector), link, place: self.place }
    }

    /// Whether an output is linked. An app need not ask; what it sends to one that is not is dropped as `unlinked`.
    #[inline]
    pub fn is_linked(&self, output: usize) -> bool {
        self.place.outputs.get(output).is_some_and(|&link| link != OPEN)
    }

    /// Hands all that waits in an input to an output, by pointer if the output is empty. Hot.
    #[inline]
    pub fn forward(&self, input: usize, output: usize) {
        let (core, fabric) = (self.place.core(), self.place.fabric());
        let (from, to) = (self.place.inputs.get(input), self.place.outputs.get(output));
        let link = |index: Option<&u32>| fabric.links.get(*index? as usize);
        if !core.lossless
            && let (Some(&from_index), Some(&to_index)) = (from, to)
            && let (Some(from), Some(to)) = (link(from), link(to))
            && fabric.waiting[to_index as usize].get() == 0
        {
            // The whole link changes hands: nothing of the vector but its pointer is touched.
            let count = fabric.waiting[from_index as usize].replace(0);
            let bytes = from.bytes.replace(0);
            to.bytes.set(bytes);
            fabric.waiting[to_index as usize].set(count);
            from.vector.swap(&to.vector);
            if count == 0 {
                return;
            }
            core.progress.set(true);
            fabric.slab.add(to.cell + counters::PACKETS, count.into());
            fabric.slab.add(to.cell + counters::BYTES, bytes);
        } else {
            self.output(output).forward(&mut self.input(input));
        }
    }

    /// The time, in nanoseconds of a clock that never goes back; the same throughout a breath.
    #[inline]
    pub fn now(&self) -> u64 {
        self.place.core().now()
    }

    /// How many packets ahead their data is to be fetched, for apps that go over [`Input::packets`] themselves: as the network
    /// says, or else [`App::PREFETCH`].
    #[inline]
    pub fn prefetch(&self) -> usize {
        self.place.prefetch
    }

    /// How many packets a source brings in at a time.
    #[inline]
    pub fn burst(&self) -> usize {
        self.place.core().burst
    }

    /// Whether the network is lossless: apps leave in their inputs what they cannot send or keep.
    #[inline]
    pub fn is_lossless(&self) -> bool {
        self.place.core().lossless
    }

    /// One of the app's [slots](App::slots).
    ///
    /// # Panics
    /// If the app has no such slot.
    #[inline]
    pub fn slot(&self, index: usize) -> SlotHandle<'a> {
        SlotHandle(&self.place.slots(self.place.fabric())[index])
    }

    /// Asks for a [`tick`](App::tick) at a time, in nanoseconds as [`Io::now`] counts them, and keeps an idle engine
    /// from sleeping beyond it. The earliest wish counts; it is forgotten once it has been fulfilled. A sleeping
    /// engine does not look before then at packets that the app has left or holds, nor, if it has no [slots](App::slots),
    /// whether it has something to pull.
    #[inline]
    pub fn wake_at(&self, time: u64) {
        let deadline = &self.place.deadline;
        deadline.set(deadline.get().min(time));
        self.place.core().wake_at(time);
    }

    /// Drops a packet for a reason: the position in [`App::DROPS`].
    ///
    /// # Panics
    /// If there is no such reason.
    #[inline]
    pub fn drop(&self, packet: Packet, reason: usize) {
        if packet.is_marked() {
            Place::dropping(self.reason(reason), || drop(packet));
        } else {
            drop(packet);
        }
        self.count_drops(reason, 1);
    }

    /// The position of one of the app's own reasons among all of its drops.
    fn reason(&self, reason: usize) -> usize {
        self.place.own_drops - self.place.cell + reason
    }

    /// Drops all that waits in an input for a reason: the position in [`App::DROPS`].
    ///
    /// # Panics
    /// If there is no such reason.
    pub fn drop_all(&self, input: &mut Input<'_, A>, reason: usize) {
        let count = Place::dropping(self.reason(reason), || input.discard());
        self.count_drops(reason, count as u64);
    }

    /// The same of the first `count` packets alone, as far as there are so many.
    ///
    /// # Panics
    /// If there is no such reason.
    pub fn drop_first(&self, input: &mut Input<'_, A>, count: usize, reason: usize) {
        let before = input.len();
        Place::dropping(self.reason(reason), || input.discard_first(count));
        self.count_drops(reason, (before - input.len()) as u64);
    }

    #[inline]
    fn count_drops(&self, reason: usize, count: u64) {
        assert!(reason < A::DROPS.len(), "the app has no reason {reason} to drop a packet");
        self.place.core().progress.set(true);
        self.place.fabric().slab.add(self.place.own_drops + reason, count);
    }

    /// Counts packets as dropped that the app took earlier and has no more: what it had written was lost, say.
    ///
    /// # Panics
    /// If there is no such reason.
    pub fn lost(&self, count: u64, reason: usize) {
        assert!(reason < A::DROPS.len(), "the app has no reason {reason} to drop a packet");
        self.place.fabric().slab.add(self.place.own_drops + reason, count);
    }

    /// Counts packets that were not made because the pool had no buffer for them, as `no_buffer`.
    pub fn missed(&self, count: usize) {
        self.place.count_common(common::NO_BUFFER, count);
        self.place.count_unmade(count);
    }

    /// Tells that the app has got packets which it did not take from an input and did not make in this call: another thread has
    /// made them, say. They count as made.
    pub fn brought_in(&self, count: usize) {
        self.place.fabric().slab.add(self.place.account + account::BROUGHT_IN, count as u64);
    }

    /// Tells that the app has given packets to others without sending or freeing them: another thread has them now, say. They
    /// count as having ended here.
    pub fn handed_off(&self, count: usize) {
        self.place.fabric().slab.add(self.place.account + account::HANDED_OFF, count as u64);
    }

    /// Tells that nothing that the app is given can go anywhere any more, ever: the reader of the pipe that it writes to has
    /// gone, say. When all apps say so in which packets [end](App::ENDS), the run is over: [`End::Closed`](crate::End::Closed).
    /// To be told again whenever the app is called.
    pub fn close(&self) {
        self.place.closed.set(true);
        self.place.core().closed.set(true);
    }

    /// Adds to a counter of the app's own: the position in [`App::COUNTERS`].
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn count(&self, counter: usize, count: u64) {
        assert!(counter < A::COUNTERS.len(), "the app has no counter {counter}");
        self.place.fabric().slab.add(self.place.own_counters + counter, count);
    }

    /// Sets a counter of the app's own, for those that are gauges.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn set(&self, counter: usize, value: u64) {
        assert!(counter < A::COUNTERS.len(), "the app has no counter {counter}");
        self.place.fabric().slab.set(self.place.own_counters + counter, value);
    }

    /// Drops all that waits in the inputs of an app that has failed.
    pub(crate) fn fail_inputs(&self) {
        for index in 0..self.inputs() {
            let count = Place::dropping(common::APP_FAILED, || self.input(index).discard());
            self.place.count_common(common::APP_FAILED, count);
        }
    }
}

/// An input that is open: the packets that wait in its link, the oldest first.
///
/// Iterate over `&mut input`; breaking out of the loop leaves the rest queued.
pub struct Input<'a, A> {
    vector: ManuallyDrop<Vector>,
    before: usize,
    /// How many packets may be taken in all.
    allowed: usize,
    changed: bool,
    link: u32,
    place: &'a Place,
    _app: PhantomData<fn(A)>,
}

impl<A: App> Input<'_, A> {
    /// How many packets the app may take: those that wait, or as many of them as a lossless network allows.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.vector.len().min(self.budget())
    }

    /// Whether there is nothing to take.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn budget(&self) -> usize {
        self.allowed - (self.before - self.vector.len())
    }

    /// The packets, for apps that go over them more than once.
    #[inline(always)]
    pub fn packets(&self) -> &[Packet] {
        &self.vector.as_slice()[..self.len()]
    }

    /// The packets, to be changed in place, for apps that go over them more than once and then
    /// [forward](Output::forward) them.
    #[inline(always)]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        self.changed = true;
        let count = self.len();
        &mut self.vector.as_mut_slice()[..count]
    }

    /// Takes the packets out whole, behind those that a vector of the app's own holds; by pointer if that is empty.
    /// Returns how many: as many as fit.
    #[inline]
    pub fn take_into(&mut self, vector: &mut Vector) -> usize {
        self.recount();
        let most = self.budget();
        vector.append(&mut self.vector, most)
    }

    /// Frees the packets, for apps at which they end. Returns how many.
    #[inline(always)]
    pub fn discard(&mut self) -> usize {
        let count = self.len();
        if count == self.vector.len() {
            free_all(&mut self.vector);
        } else {
            self.vector.drain(count).for_each(drop);
        }
        count
    }

    /// Frees the first packets, for apps that work on [`Input::packets`] and have done with these.
    #[inline]
    pub fn discard_first(&mut self, count: usize) {
        if count == self.vector.len() {
            self.discard();
        } else {
            let count = count.min(self.budget());
            self.vector.drain(count).for_each(drop);
        }
    }

    #[inline(always)]
    fn recount(&mut self) {
        if mem::take(&mut self.changed) {
            self.vector.recount();
        }
    }
}

impl<'i, A: App> IntoIterator for &'i mut Input<'_, A> {
    type Item = Packet;
    type IntoIter = Drain<'i>;

    /// Fetches the data of packets ahead as the network says, or else the [app](App::PREFETCH).
    #[inline(always)]
    fn into_iter(self) -> Drain<'i> {
        let most = self.budget();
        self.vector.drain(most).prefetching(self.place.prefetch)
    }
}

impl<A> Drop for Input<'_, A> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the field is not used after this, the only place that takes it.
        let vector = unsafe { ManuallyDrop::take(&mut self.vector) };
        close_input(self.place, self.link, vector, self.before, self.allowed, self.changed);
    }
}

/// By value, so that an open input can live in registers.
#[inline(never)]
fn close_input(place: &Place, link: u32, mut vector: Vector, before: usize, allowed: usize, changed: bool) {
    let (core, fabric) = (place.core(), place.fabric());
    if changed {
        vector.recount();
    }
    let taken = before - vector.len();
    if taken > 0 {
        core.progress.set(true);
    }
    if core.lossless {
        core.budget.set(core.budget.get().saturating_add(allowed - taken));
    }
    fabric.put(link, vector, core);
}

/// An output that is open: packets sent to it leave, and are counted, when it is dropped.
pub struct Output<'a> {
    vector: ManuallyDrop<Vector>,
    link: u32,
    place: &'a Place,
}

impl Output<'_> {
    /// How many packets can be sent before they are dropped. Only apps that bring packets in need to look.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.vector.room()
    }

    /// Sends a packet. On a full link it is dropped and counted as `txdrop`. Hot.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) {
        if let Err(packet) = self.vector.push(packet) {
            refuse(self.place, self.link, packet);
        }
    }

    /// Sends new packets made from a template: as many as there is room and there are buffers for, at most `count`.
    /// Returns how many. Hot.
    #[inline(always)]
    pub fn fill(&mut self, count: usize, template: &Template) -> usize {
        push_filled(&mut self.vector, count, template)
    }

    /// Sends a copy of each packet. Those for which there is no room are counted as `txdrop`, those for which there
    /// is no buffer as `no_buffer`. Hot.
    #[inline]
    pub fn push_copies(&mut self, packets: &[Packet]) {
        let fitting = packets.len().min(self.room());
        let made = push_copies(&mut self.vector, packets);
        if made < packets.len() {
            count_missing_copies(self.place, self.link, packets.len() - fitting, fitting - made);
        }
    }

    /// Sends what a vector of the app's own holds, by pointer if nothing waits in this output. What does not fit stays
    /// in the vector.
    #[inline]
    pub fn send_from(&mut self, vector: &mut Vector) {
        self.vector.append(vector, usize::MAX);
    }

    /// Sends all that waits in an input, by pointer if nothing waits in this output. Hot.
    #[inline]
    pub fn forward<A: App>(&mut self, input: &mut Input<'_, A>) {
        input.recount();
        let most = input.budget();
        self.vector.append(&mut input.vector, most);
        if !input.is_empty() && (!self.place.core().lossless || self.link == OPEN) {
            let count = Place::dropping(refusal(self.link), || input.discard());
            refuse_many(self.place, self.link, count);
        }
    }
}

impl Drop for Output<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the field is not used after this, the only place that takes it.
        let vector = unsafe { ManuallyDrop::take(&mut self.vector) };
        close_output(self.place, self.link, vector);
    }
}

/// By value, so that an open output can live in registers.
#[inline(never)]
fn close_output(place: &Place, index: u32, vector: Vector) {
    let (core, fabric) = (place.core(), place.fabric());
    if vector.is_none() {
        return;
    }
    // Should an app have had two outputs open on one link, both are counted with what the link holds now.
    let other = fabric.take(index);
    let vector = if other.is_none() { vector } else { fabric.join(index, other, vector, core) };
    let link = &fabric.links[index as usize];
    let sent = (vector.len() as u64).wrapping_sub(fabric.waiting[index as usize].get().into());
    if sent > 0 {
        core.progress.set(true);
        fabric.slab.add(link.cell + counters::PACKETS, sent);
        fabric.slab.add(link.cell + counters::BYTES, vector.bytes().wrapping_sub(link.bytes.get()));
    }
    fabric.put(index, vector, core);
}

#[cold]
#[inline(never)]
fn refuse(place: &Place, index: u32, packet: Packet) {
    Place::dropping(refusal(index), || drop(packet));
    refuse_many(place, index, 1);
}

/// Why a link does not take packets: it is full, or missing.
fn refusal(index: u32) -> usize {
    if index == OPEN { common::UNLINKED } else { TXDROP as usize }
}

/// Counts copies that were not made, because of a full or missing link or for want of buffers.
#[cold]
#[inline(never)]
fn count_missing_copies(place: &Place, index: u32, refused: usize, no_buffer: usize) {
    place.count_unmade(refused + no_buffer);
    if no_buffer > 0 {
        place.count_common(common::NO_BUFFER, no_buffer);
    }
    if refused > 0 {
        refuse_many(place, index, refused);
    }
}

/// Counts packets that a full or missing link did not take.
#[cold]
#[inline(never)]
fn refuse_many(place: &Place, index: u32, count: usize) {
    place.core().progress.set(true);
    match place.fabric().links.get(index as usize) {
        Some(full) => place.fabric().slab.add(full.cell + counters::DROPS, count as u64),
        None => place.count_common(common::UNLINKED, count),
    }
}
