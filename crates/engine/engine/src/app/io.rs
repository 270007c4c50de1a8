//! The interface of an app during a call: its inputs and outputs, the time, its counters and slots.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};

use bellows_observe::layout::{account, common, engine as cells, link as counters};
use bellows_observe::{Count, DropReason, Gauge, LinkEntry};
use bellows_packet::{Contents, Drain, Packet, Template, Vector, free_all, push_copies, push_filled};
use bellows_shared::Breath;
use bellows_wiring::OPEN;

use super::App;
use crate::runtime::links::{TXDROP, with_drop_reason};
use crate::runtime::node::Node;
use crate::runtime::sampling::VectorMark;
use crate::runtime::slots::SlotHandle;

/// The interface of an app to the engine during a call.
///
/// An app must give every packet that it takes from an [`Input`] to an [`Output`] or to [`Io::drop`], or keep it. A
/// packet that is dropped by Rust alone is freed but not counted, and the report names this as a bug in the app. Only
/// in apps in which packets [end](App::ENDS) (by default those without outputs) does freeing a packet mean that it
/// arrived.
pub struct Io<'a, A> {
    node: &'a Node,
    _app: PhantomData<fn(A)>,
}

// SAFETY: an Io exists for one call of an app. A worker makes it, which is registered with the readers of the process
// for as long as it exists and passes between two breaths only; or `retire`, which is registered for as long as it ends
// apps and never passes. Its reference to a node, which has cells, keeps it on the thread of the call.
unsafe impl<A> Breath for Io<'_, A> {}

impl<'a, A: App> Io<'a, A> {
    #[inline(always)]
    pub(crate) fn new(node: &'a Node) -> Io<'a, A> {
        Io { node, _app: PhantomData }
    }

    /// The number of inputs: named by the app, or linked to an app with any number of inputs.
    #[inline]
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// The inputs that hold packets, in order. It takes less than to open those that are empty. Hot.
    #[inline(always)]
    pub fn waiting_inputs(&self) -> impl Iterator<Item = usize> + use<'a, A> {
        let node = self.node;
        let holds = |link: u32| node.links().waiting.get(link as usize).is_some_and(|waiting| waiting.get() > 0);
        node.inputs.iter().enumerate().filter(move |&(_, &link)| holds(link)).map(|(index, _)| index)
    }

    /// The number of outputs: named by the app, or linked to an app with any number of outputs.
    #[inline]
    pub fn outputs(&self) -> usize {
        self.node.outputs.len()
    }

    /// Opens an input. Packets that are not taken stay in the link.
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

    /// Opens an output. Packets are sent when it is dropped.
    ///
    /// Packets sent to an output that does not exist or is not linked are dropped as `unlinked`.
    #[inline(always)]
    pub fn output(&self, index: usize) -> Output<'a> {
        let link = self.node.outputs.get(index).copied().unwrap_or(OPEN);
        let mut vector = self.node.links().take(link);
        if vector.is_none() && link != OPEN {
            vector = self.node.state().free_vectors.allocate();
        }
        vector.compact();
        Output { vector: ManuallyDrop::new(vector), link, node: self.node }
    }

    /// Whether an output is linked. Apps need not check: packets sent to an unlinked output are dropped as `unlinked`.
    #[inline]
    pub fn is_linked(&self, output: usize) -> bool {
        self.node.outputs.get(output).is_some_and(|&link| link != OPEN)
    }

    /// The name of an output: that of its link's end, also for an app that takes outputs of any names. `None` if it is
    /// not linked. Slow: meant for [`App::tick`], which is called when links have changed.
    pub fn output_name(&self, output: usize) -> Option<&'a str> {
        self.port_name(*self.node.outputs.get(output)?, |link| &link.from)
    }

    /// The name of an input, as [`Io::output_name`] finds that of an output.
    pub fn input_name(&self, input: usize) -> Option<&'a str> {
        self.port_name(*self.node.inputs.get(input)?, |link| &link.to)
    }

    /// The port at this app's end of a link.
    fn port_name(&self, link: u32, end: fn(&'a LinkEntry) -> &'a String) -> Option<&'a str> {
        let table = self.node.links();
        let position = table.links.get(link as usize)?.index;
        let directory = &table.slab.directory;
        // What has arrived of links between workers follows the links.
        let crossing = position.checked_sub(directory.links.len());
        let link = crossing.map_or(position, |crossing| directory.crossings[crossing].link);
        let app = &directory.apps[self.node.index].name;
        end(&directory.links[link]).strip_prefix(&**app)?.strip_prefix('.')
    }

    /// Forwards all packets of an input to an output, by pointer if the output is empty. Hot.
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
            // The whole vector changes hands: only its pointer is touched.
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

    /// Sends all packets of a vector of the app's own, by pointer if the output is empty: the vector gets other memory.
    /// Packets that do not fit are dropped at the link. Hot.
    #[inline]
    pub fn send(&self, output: usize, vector: &mut Vector) {
        let (state, table) = (self.node.state(), self.node.links());
        let index = self.node.outputs.get(output).copied().unwrap_or(OPEN);
        if let Some(link) = table.links.get(index as usize)
            && table.waiting[index as usize].get() == 0
        {
            let (count, bytes) = (vector.len(), vector.bytes());
            if count > 0 {
                table.waiting[index as usize].set(count as u32);
                link.bytes.set(bytes);
                // A link has no memory while it holds no packets.
                drop(link.vector.replace(mem::replace(vector, state.free_vectors.allocate())));
                state.progress.set(true);
                table.slab.add(link.cell + counters::PACKETS, count as u64);
                table.slab.add(link.cell + counters::BYTES, bytes);
            }
        } else {
            self.send_behind(output, vector);
        }
    }

    /// As [`Io::send`], behind other packets, or to an output that is not linked.
    #[inline(never)]
    fn send_behind(&self, output: usize, vector: &mut Vector) {
        let mut output = self.output(output);
        output.send_from(vector);
        vector.drain(usize::MAX).for_each(|packet| output.push(packet));
    }

    /// Gives away the vector of the only input, or a burst of it if it is much longer: `give` replaces it by an empty
    /// one, or returns false, which sets `is_full`. Returns whether packets are left that may be given away. Hot.
    #[inline(always)]
    pub(crate) fn give_vector(&self, give: impl FnOnce(&mut Vector) -> bool, is_full: &mut bool) -> bool {
        let (state, table) = (self.node.state(), self.node.links());
        let Some(&[number]) = self.node.inputs.as_array() else { return false };
        let mut vector = table.take(number);
        let all = vector.len();
        if all == 0 {
            table.put(number, vector, &state.free_vectors);
            return false;
        }
        let mut rest = Vector::none();
        if all > 2 * state.burst {
            rest = vector;
            vector = state.free_vectors.allocate();
            vector.append(&mut rest, state.burst);
        }
        let count = vector.len();
        if give(&mut vector) {
            state.progress.set(true);
            self.handed_off(count);
        } else {
            *is_full = true;
            vector.append(&mut rest, usize::MAX);
        }
        if rest.is_empty() {
            state.free_vectors.free(rest);
        } else {
            state.free_vectors.free(mem::replace(&mut vector, rest));
        }
        let is_left = !vector.is_empty();
        table.put(number, vector, &state.free_vectors);
        is_left
    }

    /// Whether the packets that wait at the only output have room for a vector of `count` packets. Hot.
    #[inline(always)]
    pub(crate) fn has_room_for(&self, count: usize) -> bool {
        let Some(&[number]) = self.node.outputs.as_array() else { return false };
        let waiting = self.node.links().waiting[number as usize].get() as usize;
        waiting == 0 || waiting + count <= self.node.state().burst
    }

    /// Takes in a vector of `count` packets for the only output, which [has room](Io::has_room_for) for it: `take`
    /// exchanges it for an empty one. Hot.
    #[inline(always)]
    pub(crate) fn take_vector(&self, count: usize, take: impl FnOnce(&mut Vector)) {
        let (state, table) = (self.node.state(), self.node.links());
        let Some(&[number]) = self.node.outputs.as_array() else { return };
        let waiting = table.waiting[number as usize].get() as usize;
        let mut vector = state.free_vectors.reuse();
        take(&mut vector);
        let bytes = vector.bytes();
        state.progress.set(true);
        self.brought_in(count);
        let link = &table.links[number as usize];
        table.slab.add(link.cell + counters::PACKETS, count as u64);
        table.slab.add(link.cell + counters::BYTES, bytes);
        if waiting > 0 {
            let mut first = table.take(number);
            first.append(&mut vector, usize::MAX);
            state.free_vectors.free(vector);
            vector = first;
        }
        table.put(number, vector, &state.free_vectors);
    }

    /// The mark of the next vector, of `packets` packets, that leaves for another worker in this breath, through a link
    /// by its position in the timeline's names: none, unless the timeline keeps the breath. Hot.
    #[inline(always)]
    pub(crate) fn mark_departure(&self, link: u32, packets: usize) -> VectorMark {
        if self.node.state().marks_departure.get() { self.depart(link, packets) } else { VectorMark::NONE }
    }

    #[cold]
    fn depart(&self, link: u32, packets: usize) -> VectorMark {
        let state = self.node.state();
        state.marks_departure.set(false);
        state.sampler.depart(link, packets as u32)
    }

    /// Records that a marked vector is about to arrive. False if it must wait for the next breath, which will be
    /// recorded.
    #[cold]
    pub(crate) fn arrive(&self, link: u32, mark: VectorMark, packets: usize) -> bool {
        let state = self.node.state();
        let arrival = state.sampler.arrive(link, mark, packets as u32);
        match arrival {
            Some(marks_departure) => state.marks_departure.set(marks_departure),
            None => state.interrupt.set(1),
        }
        arrival.is_some()
    }

    /// Counts packets that a worker on another memory node has sent.
    pub(crate) fn count_from_other_node(&self, count: usize) {
        self.node.links().count(cells::FROM_OTHER_NODES, count as u64);
    }

    /// The time in nanoseconds of a monotonic clock; constant throughout a breath.
    #[inline]
    pub fn now(&self) -> u64 {
        self.node.state().now()
    }

    /// How many packets ahead to prefetch packet data, for apps that iterate over [`Input::packets`]: the value of the
    /// network, or else [`App::PREFETCH`].
    #[inline]
    pub fn prefetch(&self) -> usize {
        self.node.prefetch
    }

    /// The burst: the number of packets that a source brings in per breath.
    #[inline]
    pub fn burst(&self) -> usize {
        self.node.state().burst
    }

    /// Whether the network is lossless: apps leave packets in their inputs that they can neither send nor keep.
    #[inline]
    pub fn is_lossless(&self) -> bool {
        self.node.state().lossless
    }

    /// Whether a trace or a tap runs: apps that do the work of several pass their packets on to these, so that each stage
    /// is seen.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.node.state().sampler.watching.get()
    }

    /// Whether the clocks of this call are recorded. Apps that do the work of several say then what each stage of it takes:
    /// they add the packets to a counter `recorded`, and the clocks to counters `STAGE_clocks`, which `show run` divides.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.node.state().sampler.is_recording()
    }

    /// Whether the run was stopped, and this is the last call in which packets leave the network: see
    /// [`App::LEAVES`].
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.node.state().leaving.get()
    }

    /// One of the app's [slots](App::slots).
    ///
    /// # Panics
    /// If the app has no such slot.
    #[inline]
    pub fn slot(&self, index: usize) -> SlotHandle<'a> {
        SlotHandle(&self.node.slots(self.node.links())[index])
    }

    /// Requests a [`tick`](App::tick) at a time, in nanoseconds as [`Io::now`] counts them, and keeps an idle engine
    /// from sleeping past it. The earliest request counts; it is cleared when it is served. Until then a sleeping
    /// engine does not check packets that the app left or holds, nor, if the app has no [slots](App::slots), whether it
    /// has something to pull.
    #[inline]
    pub fn wake_at(&self, time: u64) {
        let deadline = &self.node.deadline;
        deadline.set(deadline.get().min(time));
        self.node.state().wake_at(time);
    }

    /// Requests a [`tick`](App::tick) at the next multiple of a period of the engine's clock, for upkeep that nobody
    /// waits for: apps with the same period are called together, so that an idle engine wakes up once for all of them.
    pub fn wake_each(&self, period: u64) {
        self.wake_at((self.now() / period.max(1) + 1).saturating_mul(period));
    }

    /// Drops a packet and counts it under a drop reason.
    #[inline]
    pub fn drop(&self, packet: Packet, reason: DropReason<A>) {
        if packet.is_marked() {
            with_drop_reason(self.reason(reason), || drop(packet));
        } else {
            drop(packet);
        }
        self.count_drops(reason, 1);
    }

    /// The position of one of the app's own drop reasons among all of its drop reasons.
    fn reason(&self, reason: DropReason<A>) -> usize {
        self.node.own_drops - self.node.cell + reason.position()
    }

    /// Drops all packets of an input and counts them under a drop reason.
    pub fn drop_all(&self, input: &mut Input<'_, A>, reason: DropReason<A>) {
        let count = with_drop_reason(self.reason(reason), || input.discard());
        self.count_drops(reason, count as u64);
    }

    /// Drops all packets of a vector of the app's own and counts them under a drop reason.
    pub fn drop_vector(&self, vector: &mut Vector, reason: DropReason<A>) {
        let count = vector.len() as u64;
        with_drop_reason(self.reason(reason), || free_all(vector));
        self.count_drops(reason, count);
    }

    /// Drops up to `count` packets from the front of an input and counts them under a drop reason.
    pub fn drop_first(&self, input: &mut Input<'_, A>, count: usize, reason: DropReason<A>) {
        let before = input.len();
        with_drop_reason(self.reason(reason), || input.discard_first(count));
        self.count_drops(reason, (before - input.len()) as u64);
    }

    #[inline]
    fn count_drops(&self, reason: DropReason<A>, count: u64) {
        self.node.state().progress.set(true);
        self.lost(count, reason);
    }

    /// Counts packets as dropped that the app took earlier and no longer has: written data was lost, for example.
    #[inline]
    pub fn lost(&self, count: u64, reason: DropReason<A>) {
        const { assert!(!A::COUNTERS.drops().is_empty(), "`App::COUNTERS` lacks the app's list of counters") };
        self.node.links().slab.add(self.node.own_drops + reason.position(), count);
    }

    /// Counts packets as dropped that never were this network's, or are not any more: those that the kernel dropped before
    /// an interface got them, for example.
    pub fn dropped_outside(&self, count: u64, reason: DropReason<A>) {
        self.lost(count, reason);
        self.node.count_unbuffered_drops(count as usize);
    }

    /// Counts packets that nobody gets because the pool had no buffer, such as copies, as `no_buffer`. What an app makes
    /// later, or says to a neighbour, is no packet of anybody: it has a counter of its own.
    pub fn count_no_buffer(&self, count: usize) {
        self.node.count_common(common::NO_BUFFER, count);
        self.node.count_unbuffered_drops(count);
    }

    /// Counts packets as made that the app neither took from an input nor made in this call: another thread made them,
    /// for example.
    pub fn brought_in(&self, count: usize) {
        self.node.links().slab.add(self.node.account + account::BROUGHT_IN, count as u64);
    }

    /// Counts packets as ended here that the app passed on without sending or freeing them: another thread has them
    /// now, for example.
    pub fn handed_off(&self, count: usize) {
        self.node.links().slab.add(self.node.account + account::HANDED_OFF, count as u64);
    }

    /// Declares that the app can never again deliver packets: the reader of its pipe is gone, for example. The run ends
    /// with [`End::Closed`](crate::End::Closed) when all apps in which packets [end](App::ENDS) have declared it. Call
    /// it again in every call of the app.
    pub fn close(&self) {
        self.node.closed.set(true);
        self.node.state().closed.set(true);
    }

    /// Adds to one of the app's counters.
    #[inline]
    pub fn count(&self, counter: Count<A>, count: u64) {
        const { assert!(!A::COUNTERS.others().is_empty(), "`App::COUNTERS` lacks the app's list of counters") };
        self.node.links().slab.add(self.node.own_counters + counter.position(), count);
    }

    /// Sets one of the app's gauges.
    #[inline]
    pub fn set(&self, gauge: Gauge<A>, value: u64) {
        const { assert!(!A::COUNTERS.others().is_empty(), "`App::COUNTERS` lacks the app's list of counters") };
        self.node.links().slab.set(self.node.own_counters + gauge.position(), value);
    }

    /// Drops all packets in the inputs of an app that has failed.
    pub(crate) fn fail_inputs(&self) {
        for index in 0..self.inputs() {
            let count = with_drop_reason(common::APP_FAILED, || self.input(index).discard());
            self.node.count_common(common::APP_FAILED, count);
        }
    }
}

/// An open input: the packets that wait in its link, oldest first.
///
/// Iterate over `&mut input`; breaking out of the loop leaves the rest in the link.
pub struct Input<'a, A> {
    vector: ManuallyDrop<Vector>,
    before: usize,
    /// The number of packets that may be taken in total.
    allowed: usize,
    changed: bool,
    link: u32,
    node: &'a Node,
    _app: PhantomData<fn(A)>,
}

impl<A: App> Input<'_, A> {
    /// The number of packets that the app may take: all that wait, or as many as a lossless network allows.
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

    /// The packets, for apps that iterate over them more than once.
    #[inline(always)]
    pub fn packets(&self) -> &[Packet] {
        &self.vector.as_slice()[..self.len()]
    }

    /// The packets, mutable, for apps that iterate over them more than once and then [forward](Output::forward) them.
    #[inline(always)]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        self.changed = true;
        let count = self.len();
        &mut self.vector.as_mut_slice()[..count]
    }

    /// The packets, whose bytes and tags may change in place, but not their lengths: forwarding them then costs nothing
    /// for each. Hot.
    #[inline(always)]
    pub fn contents_mut(&mut self) -> Contents<'_> {
        let count = self.len();
        Contents::of(&mut self.vector.as_mut_slice()[..count])
    }

    /// Moves the packets to the end of a vector of the app's own, as many as fit; by pointer if that vector is empty.
    /// Returns the number of packets moved.
    #[inline]
    pub fn take_into(&mut self, vector: &mut Vector) -> usize {
        self.recount();
        let max = self.budget();
        vector.append(&mut self.vector, max)
    }

    /// As [`Input::take_into`], of the first `count` packets.
    #[inline]
    pub fn take_first_into(&mut self, count: usize, vector: &mut Vector) -> usize {
        self.recount();
        let max = self.budget().min(count);
        vector.append(&mut self.vector, max)
    }

    /// Moves packets from the front to vectors of the app's own, each to the vector with its number, as
    /// [`Vector::scatter`] does. Returns the number of packets moved. Hot.
    ///
    /// # Panics
    /// If there is no vector with one of the numbers.
    #[inline]
    pub fn scatter(&mut self, numbers: &[u16], vectors: &mut [Vector]) -> usize {
        self.recount();
        let count = numbers.len().min(self.budget());
        self.vector.scatter(&numbers[..count], vectors)
    }

    /// Frees the packets, for apps in which they end. Returns the number of packets.
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

    /// Frees the first packets, for apps that work on [`Input::packets`] and are done with these.
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

    /// Prefetches packet data as the network sets, or else the [app](App::PREFETCH).
    #[inline(always)]
    fn into_iter(self) -> Drain<'i> {
        let max = self.budget();
        self.vector.drain(max).prefetching(self.node.prefetch)
    }
}

impl<A> Drop for Input<'_, A> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes the field, and it is not used afterwards.
        let vector = unsafe { ManuallyDrop::take(&mut self.vector) };
        close_input(self.node, self.link, vector, self.before, self.allowed, self.changed);
    }
}

/// By value, so that an open input or output can live in registers.
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
    table.put(link, vector, &state.free_vectors);
}

/// An open output: packets sent to it leave, and are counted, when it is dropped.
pub struct Output<'a> {
    vector: ManuallyDrop<Vector>,
    link: u32,
    node: &'a Node,
}

impl Output<'_> {
    /// The number of packets that can be sent before packets are dropped. Only apps that bring packets in need to
    /// check.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.vector.room()
    }

    /// Sends a packet. If the link is full, the packet is dropped and counted as `txdrop`. Hot.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) {
        if let Err(packet) = self.vector.push(packet) {
            drop_at_link(self.node, self.link, packet);
        }
    }

    /// Sends up to `count` new packets made from a template, as many as there are room and buffers for. Returns the
    /// number of packets. Hot.
    #[inline(always)]
    pub fn fill(&mut self, count: usize, template: &Template) -> usize {
        push_filled(&mut self.vector, count, template)
    }

    /// Sends a copy of each packet. Copies without room count as `txdrop`, copies without a buffer as `no_buffer`. Hot.
    #[inline]
    pub fn push_copies(&mut self, packets: &[Packet]) {
        let fitting = packets.len().min(self.room());
        let made = push_copies(&mut self.vector, packets);
        if made < packets.len() {
            count_missing_copies(self.node, self.link, packets.len() - fitting, fitting - made);
        }
    }

    /// Sends the packets of a vector of the app's own, by pointer if this output is empty. Packets that do not fit stay
    /// in the vector.
    #[inline]
    pub fn send_from(&mut self, vector: &mut Vector) {
        self.vector.append(vector, usize::MAX);
    }

    /// Sends all packets of an input, by pointer if this output is empty. Hot.
    #[inline]
    pub fn forward<A: App>(&mut self, input: &mut Input<'_, A>) {
        input.recount();
        let max = input.budget();
        self.vector.append(&mut input.vector, max);
        if !input.is_empty() && (!self.node.state().lossless || self.link == OPEN) {
            let count = with_drop_reason(link_drop_reason(self.link), || input.discard());
            count_link_drops(self.node, self.link, count);
        }
    }
}

impl Drop for Output<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes the field, and it is not used afterwards.
        let vector = unsafe { ManuallyDrop::take(&mut self.vector) };
        close_output(self.node, self.link, vector);
    }
}

/// By value, so that an open input or output can live in registers.
#[inline(never)]
fn close_output(node: &Node, index: u32, vector: Vector) {
    let (state, table) = (node.state(), node.links());
    if vector.is_none() {
        return;
    }
    // If the app had two outputs open on one link, both are counted, with the current contents of the link.
    let other = table.take(index);
    let vector = if other.is_none() { vector } else { table.join(index, other, vector, &state.free_vectors) };
    let link = &table.links[index as usize];
    let sent = (vector.len() as u64).wrapping_sub(table.waiting[index as usize].get().into());
    if sent > 0 {
        state.progress.set(true);
        table.slab.add(link.cell + counters::PACKETS, sent);
        table.slab.add(link.cell + counters::BYTES, vector.bytes().wrapping_sub(link.bytes.get()));
    }
    table.put(index, vector, &state.free_vectors);
}

#[cold]
#[inline(never)]
fn drop_at_link(node: &Node, index: u32, packet: Packet) {
    with_drop_reason(link_drop_reason(index), || drop(packet));
    count_link_drops(node, index, 1);
}

/// The reason for drops at a link: it is full, or missing.
fn link_drop_reason(index: u32) -> usize {
    if index == OPEN { common::UNLINKED } else { TXDROP as usize }
}

/// Counts copies that were not made because the link is full or missing, or because the pool had no buffers.
#[cold]
#[inline(never)]
fn count_missing_copies(node: &Node, index: u32, refused: usize, no_buffer: usize) {
    node.count_unbuffered_drops(refused + no_buffer);
    if no_buffer > 0 {
        node.count_common(common::NO_BUFFER, no_buffer);
    }
    if refused > 0 {
        count_link_drops(node, index, refused);
    }
}

/// Counts packets that were dropped at a full or missing link.
#[cold]
#[inline(never)]
fn count_link_drops(node: &Node, index: u32, count: usize) {
    node.state().progress.set(true);
    match node.links().links.get(index as usize) {
        Some(full) => node.links().slab.add(full.cell + counters::DROPS, count as u64),
        None => node.count_common(common::UNLINKED, count),
    }
}
