//! What an app works with while it is called: its inputs, its outputs, the time, new packets, counters.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};

use bellows_observe::layout::{account, common, link as counters};
use bellows_observe::{Count, DropReason, Gauge};
use bellows_packet::{Drain, Packet, Template, Vector, free_all, push_copies, push_filled};
use bellows_wiring::OPEN;

use super::App;
use crate::runtime::links::{TXDROP, dropping};
use crate::runtime::node::Node;
use crate::runtime::slots::SlotHandle;

/// What an app works with while it is called.
///
/// All packets that an app takes from an [`Input`] and does not send to an [`Output`] or keep must be given to [`Io::drop`]:
/// a packet that is merely dropped is freed, but in no count, and the report of the run names that as a bug in the app. Only in
/// apps in which packets [end](App::ENDS), as all do without outputs, is a packet that is freed one that has arrived.
pub struct Io<'a, A> {
    node: &'a Node,
    _app: PhantomData<fn(A)>,
}

impl<'a, A: App> Io<'a, A> {
    #[inline(always)]
    pub(crate) fn new(node: &'a Node) -> Io<'a, A> {
        Io { node, _app: PhantomData }
    }

    /// How many inputs there are: those that the app names, or those that are linked to an app with any number.
    #[inline]
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// How many outputs there are: those that the app names, or those that are linked to an app with any number.
    #[inline]
    pub fn outputs(&self) -> usize {
        self.node.outputs.len()
    }

    /// Opens an input. What is not taken out of it stays in line.
    ///
    /// An input that does not exist or is not linked is empty.
    #[inline(always)]
    pub fn input(&self, index: usize) -> Input<'a, A> {
        let link = self.node.inputs.get(index).copied().unwrap_or(OPEN);
        let vector = ManuallyDrop::new(self.node.links().take(link));
        let before = vector.len();
        let allowed = self.node.state().reserve(before);
        Input { vector, before, allowed, changed: false, link, node: self.node, _app: PhantomData }
    }

    /// Opens an output. Packets leave when it is dropped.
    ///
    /// What is sent to an output that does not exist or is not linked is dropped as `unlinked`.
    #[inline(always)]
    pub fn output(&self, index: usize) -> Output<'a> {
        let link = self.node.outputs.get(index).copied().unwrap_or(OPEN);
        let mut vector = self.node.links().take(link);
        if vector.is_none() && link != OPEN {
            vector = self.node.state().spare.borrow();
        }
        vector.compact();
        Output { vector: ManuallyDrop::new(vector), link, node: self.node }
    }

    /// Whether an output is linked. An app need not ask; what it sends to one that is not is dropped as `unlinked`.
    #[inline]
    pub fn is_linked(&self, output: usize) -> bool {
        self.node.outputs.get(output).is_some_and(|&link| link != OPEN)
    }

    /// Hands all that waits in an input to an output, by pointer if the output is empty. Hot.
    #[inline]
    pub fn forward(&self, input: usize, output: usize) {
        let (state, table) = (self.node.state(), self.node.links());
        let (from, to) = (self.node.inputs.get(input), self.node.outputs.get(output));
        let link = |index: Option<&u32>| table.links.get(*index? as usize);
        if !state.lossless
            && let (Some(&from_index), Some(&to_index)) = (from, to)
            && let (Some(from), Some(to)) = (link(from), link(to))
            && table.waiting[to_index as usize].get() == 0
        {
            // The whole link changes hands: nothing of the vector but its pointer is touched.
            let count = table.waiting[from_index as usize].replace(0);
            let bytes = from.bytes.replace(0);
            to.bytes.set(bytes);
            table.waiting[to_index as usize].set(count);
            from.vector.swap(&to.vector);
            if count == 0 {
                return;
            }
            state.progress.set(true);
            table.slab.add(to.cell + counters::PACKETS, count.into());
            table.slab.add(to.cell + counters::BYTES, bytes);
        } else {
            self.output(output).forward(&mut self.input(input));
        }
    }

    /// The time, in nanoseconds of a clock that never goes back; the same throughout a breath.
    #[inline]
    pub fn now(&self) -> u64 {
        self.node.state().now()
    }

    /// How many packets ahead their data is to be fetched, for apps that go over [`Input::packets`] themselves: as the network
    /// says, or else [`App::PREFETCH`].
    #[inline]
    pub fn prefetch(&self) -> usize {
        self.node.prefetch
    }

    /// How many packets a source brings in at a time.
    #[inline]
    pub fn burst(&self) -> usize {
        self.node.state().burst
    }

    /// Whether the network is lossless: apps leave in their inputs what they cannot send or keep.
    #[inline]
    pub fn is_lossless(&self) -> bool {
        self.node.state().lossless
    }

    /// One of the app's [slots](App::slots).
    ///
    /// # Panics
    /// If the app has no such slot.
    #[inline]
    pub fn slot(&self, index: usize) -> SlotHandle<'a> {
        SlotHandle(&self.node.slots(self.node.links())[index])
    }

    /// Asks for a [`tick`](App::tick) at a time, in nanoseconds as [`Io::now`] counts them, and keeps an idle engine
    /// from sleeping beyond it. The earliest wish counts; it is forgotten once it has been fulfilled. A sleeping
    /// engine does not look before then at packets that the app has left or holds, nor, if it has no [slots](App::slots),
    /// whether it has something to pull.
    #[inline]
    pub fn wake_at(&self, time: u64) {
        let deadline = &self.node.deadline;
        deadline.set(deadline.get().min(time));
        self.node.state().wake_at(time);
    }

    /// Drops a packet for a reason.
    #[inline]
    pub fn drop(&self, packet: Packet, reason: DropReason<A>) {
        if packet.is_marked() {
            dropping(self.reason(reason), || drop(packet));
        } else {
            drop(packet);
        }
        self.count_drops(reason, 1);
    }

    /// The position of one of the app's own reasons among all of its drops.
    fn reason(&self, reason: DropReason<A>) -> usize {
        self.node.own_drops - self.node.cell + reason.position()
    }

    /// Drops all that waits in an input for a reason.
    pub fn drop_all(&self, input: &mut Input<'_, A>, reason: DropReason<A>) {
        let count = dropping(self.reason(reason), || input.discard());
        self.count_drops(reason, count as u64);
    }

    /// The same of the first `count` packets alone, as far as there are so many.
    pub fn drop_first(&self, input: &mut Input<'_, A>, count: usize, reason: DropReason<A>) {
        let before = input.len();
        dropping(self.reason(reason), || input.discard_first(count));
        self.count_drops(reason, (before - input.len()) as u64);
    }

    #[inline]
    fn count_drops(&self, reason: DropReason<A>, count: u64) {
        self.node.state().progress.set(true);
        self.lost(count, reason);
    }

    /// Counts packets as dropped that the app took earlier and has no more: what it had written was lost, say.
    #[inline]
    pub fn lost(&self, count: u64, reason: DropReason<A>) {
        const { assert!(!A::COUNTERS.drops().is_empty(), "`App::COUNTERS` lacks the app's list of counters") };
        self.node.links().slab.add(self.node.own_drops + reason.position(), count);
    }

    /// Counts packets that were not made because the pool had no buffer for them, as `no_buffer`.
    pub fn count_no_buffer(&self, count: usize) {
        self.node.count_common(common::NO_BUFFER, count);
        self.node.count_unmade(count);
    }

    /// Tells that the app has got packets which it did not take from an input and did not make in this call: another thread has
    /// made them, say. They count as made.
    pub fn brought_in(&self, count: usize) {
        self.node.links().slab.add(self.node.account + account::BROUGHT_IN, count as u64);
    }

    /// Tells that the app has given packets to others without sending or freeing them: another thread has them now, say. They
    /// count as having ended here.
    pub fn handed_off(&self, count: usize) {
        self.node.links().slab.add(self.node.account + account::HANDED_OFF, count as u64);
    }

    /// Tells that nothing that the app is given can go anywhere any more, ever: the reader of the pipe that it writes to has
    /// gone, say. When all apps say so in which packets [end](App::ENDS), the run is over: [`End::Closed`](crate::End::Closed).
    /// To be told again whenever the app is called.
    pub fn close(&self) {
        self.node.closed.set(true);
        self.node.state().closed.set(true);
    }

    /// Adds to a counter of the app's own.
    #[inline]
    pub fn count(&self, counter: Count<A>, count: u64) {
        const { assert!(!A::COUNTERS.others().is_empty(), "`App::COUNTERS` lacks the app's list of counters") };
        self.node.links().slab.add(self.node.own_counters + counter.position(), count);
    }

    /// Sets a gauge of the app's own.
    #[inline]
    pub fn set(&self, gauge: Gauge<A>, value: u64) {
        const { assert!(!A::COUNTERS.others().is_empty(), "`App::COUNTERS` lacks the app's list of counters") };
        self.node.links().slab.set(self.node.own_counters + gauge.position(), value);
    }

    /// Drops all that waits in the inputs of an app that has failed.
    pub(crate) fn fail_inputs(&self) {
        for index in 0..self.inputs() {
            let count = dropping(common::APP_FAILED, || self.input(index).discard());
            self.node.count_common(common::APP_FAILED, count);
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
    node: &'a Node,
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
        self.vector.drain(most).prefetching(self.node.prefetch)
    }
}

impl<A> Drop for Input<'_, A> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the field is not used after this, the only place that takes it.
        let vector = unsafe { ManuallyDrop::take(&mut self.vector) };
        close_input(self.node, self.link, vector, self.before, self.allowed, self.changed);
    }
}

/// By value, so that an open input can live in registers.
#[inline(never)]
fn close_input(node: &Node, link: u32, mut vector: Vector, before: usize, allowed: usize, changed: bool) {
    let (state, table) = (node.state(), node.links());
    if changed {
        vector.recount();
    }
    let taken = before - vector.len();
    if taken > 0 {
        state.progress.set(true);
    }
    if state.lossless {
        state.budget.set(state.budget.get().saturating_add(allowed - taken));
    }
    table.put(link, vector, &state.spare);
}

/// An output that is open: packets sent to it leave, and are counted, when it is dropped.
pub struct Output<'a> {
    vector: ManuallyDrop<Vector>,
    link: u32,
    node: &'a Node,
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
            refuse(self.node, self.link, packet);
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
            count_missing_copies(self.node, self.link, packets.len() - fitting, fitting - made);
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
        if !input.is_empty() && (!self.node.state().lossless || self.link == OPEN) {
            let count = dropping(refusal(self.link), || input.discard());
            refuse_many(self.node, self.link, count);
        }
    }
}

impl Drop for Output<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the field is not used after this, the only place that takes it.
        let vector = unsafe { ManuallyDrop::take(&mut self.vector) };
        close_output(self.node, self.link, vector);
    }
}

/// By value, so that an open output can live in registers.
#[inline(never)]
fn close_output(node: &Node, index: u32, vector: Vector) {
    let (state, table) = (node.state(), node.links());
    if vector.is_none() {
        return;
    }
    // Should an app have had two outputs open on one link, both are counted with what the link holds now.
    let other = table.take(index);
    let vector = if other.is_none() { vector } else { table.join(index, other, vector, &state.spare) };
    let link = &table.links[index as usize];
    let sent = (vector.len() as u64).wrapping_sub(table.waiting[index as usize].get().into());
    if sent > 0 {
        state.progress.set(true);
        table.slab.add(link.cell + counters::PACKETS, sent);
        table.slab.add(link.cell + counters::BYTES, vector.bytes().wrapping_sub(link.bytes.get()));
    }
    table.put(index, vector, &state.spare);
}

#[cold]
#[inline(never)]
fn refuse(node: &Node, index: u32, packet: Packet) {
    dropping(refusal(index), || drop(packet));
    refuse_many(node, index, 1);
}

/// Why a link does not take packets: it is full, or missing.
fn refusal(index: u32) -> usize {
    if index == OPEN { common::UNLINKED } else { TXDROP as usize }
}

/// Counts copies that were not made, because of a full or missing link or for want of buffers.
#[cold]
#[inline(never)]
fn count_missing_copies(node: &Node, index: u32, refused: usize, no_buffer: usize) {
    node.count_unmade(refused + no_buffer);
    if no_buffer > 0 {
        node.count_common(common::NO_BUFFER, no_buffer);
    }
    if refused > 0 {
        refuse_many(node, index, refused);
    }
}

/// Counts packets that a full or missing link did not take.
#[cold]
#[inline(never)]
fn refuse_many(node: &Node, index: u32, count: usize) {
    node.state().progress.set(true);
    match node.links().links.get(index as usize) {
        Some(full) => node.links().slab.add(full.cell + counters::DROPS, count as u64),
        None => node.count_common(common::UNLINKED, count),
    }
}
