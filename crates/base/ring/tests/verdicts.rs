//! Interleavings of workers that run out of work, and of the first one, which must find out that all have: `cargo test
//! -p bellows-ring --features loom`.
//!
//! Each worker is a naive one: it takes the packets that came for it, passes some on, and publishes a verdict. The end
//! is known beforehand, because each packet has a fixed way. A missed end is a deadlock, which the model checker
//! reports, and an end that comes too early leaves packets behind.
#![cfg(feature = "loom")]

use std::sync::Arc;

use bellows_ring::Bell;
use bellows_ring::requests::Requests;
use bellows_ring::verdicts::{Announced, Overview, Published, Sound, Verdict, VerdictRules};
use loom::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// Rings until it is silenced, as an `eventfd` is readable until it is read.
#[derive(Default)]
struct Event {
    is_raised: Mutex<bool>,
    changed: Condvar,
}

impl Bell for Event {
    fn ring(&self) {
        *self.is_raised.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Event {
    fn wait_and_clear(&self) {
        let mut is_raised = self.is_raised.lock().unwrap();
        while !*is_raised {
            is_raised = self.changed.wait(is_raised).unwrap();
        }
        *is_raised = false;
    }
}

/// Requests to a worker.
const PACKETS: u32 = 1;
const LOOK: u32 = 2;
const STOP: u32 = 4;

/// What other threads see of a worker.
struct Post<R> {
    requests: Requests<Event>,
    /// Packets that other workers have sent it, and those that are to go on to the first worker.
    waiting: AtomicU32,
    published: Published<R>,
    /// The worker itself while it takes a turn. Whoever has it has paused the worker.
    own: Mutex<Own>,
}

/// What a worker knows about itself.
#[derive(Default)]
struct Own {
    moved: u64,
    /// `moved` when it last had nothing left to do.
    out_of_work_at: Option<u64>,
}

impl<R: VerdictRules> Post<R> {
    fn new() -> Post<R> {
        let (requests, waiting) = (Requests::new(Event::default()), AtomicU32::new(0));
        Post { requests, waiting, published: Published::default(), own: Mutex::default() }
    }

    fn send(&self, packets: u32) {
        self.waiting.fetch_add(packets, AcqRel);
        self.requests.raise(PACKETS);
    }
}

/// A case: what the first worker does, and which of the other ones return packets to it.
#[derive(Clone, Copy)]
struct Case {
    /// The turns of the first worker. It goes on without packets to send, with the last verdict.
    turns: &'static [Turn],
    /// For each other worker, whether it returns the packets.
    returns: &'static [bool],
    /// Whether the first worker pauses the others before it decides.
    pauses: bool,
}

/// A turn of the first worker.
#[derive(Clone, Copy)]
struct Turn {
    /// The packets that it sends each of the others.
    sends: u32,
    /// Its verdict after that.
    verdict: Verdict,
    /// Whether it sleeps after that until it is woken.
    sleeps: bool,
}

const fn turn(sends: u32, verdict: Verdict) -> Turn {
    Turn { sends, verdict, sleeps: false }
}

struct Shared<R> {
    first: Post<R>,
    announced: Announced<R>,
    others: Vec<Post<R>>,
}

/// A worker other than the first: its apps are always finished.
fn serve<R: VerdictRules>(shared: &Shared<R>, index: usize, returns: bool) {
    let post = &shared.others[index];
    loop {
        if post.requests.is_pending() && post.requests.take() & STOP != 0 {
            return;
        }
        let mut own = post.own.lock().unwrap();
        let packets = post.waiting.swap(0, AcqRel);
        own.moved += u64::from(packets);
        own.out_of_work_at = Some(own.moved);
        if returns && packets > 0 {
            shared.first.send(packets);
        }
        if post.published.publish(Verdict::OutOfWork, packets > 0, &shared.announced) {
            shared.first.requests.raise(LOOK);
        }
        drop(own);
        post.requests.bell().wait_and_clear();
    }
}

/// Whether the run is over, while no worker works.
fn is_over<R: VerdictRules>(shared: &Shared<R>) -> bool {
    let owns: Vec<_> = shared.others.iter().map(|post| post.own.lock().unwrap()).collect();
    let are_out_of_work = owns.iter().all(|own| own.out_of_work_at == Some(own.moved));
    let posts = || shared.others.iter().chain([&shared.first]);
    are_out_of_work && posts().all(|post| post.waiting.load(Acquire) == 0)
}

fn check<R: VerdictRules + Send + Sync + 'static>(case: Case) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let others = case.returns.iter().map(|_| Post::new()).collect();
        let shared = Arc::new(Shared::<R> { first: Post::new(), announced: Announced::default(), others });
        let spawn = |(index, &returns): (usize, &bool)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || serve(&shared, index, returns))
        };
        let threads: Vec<_> = case.returns.iter().enumerate().map(spawn).collect();
        let mut overview = Overview::default();
        let (mut moved, mut received, mut turns) = (0, 0, case.turns.iter());
        loop {
            let after = Turn { sends: 0, sleeps: true, ..*case.turns.last().unwrap() };
            let Turn { sends, verdict, sleeps } = turns.next().copied().unwrap_or(after);
            if shared.first.requests.is_pending() {
                // It looks in any case.
                shared.first.requests.take();
            }
            let came = shared.first.waiting.swap(0, AcqRel);
            received += came;
            if sends > 0 {
                shared.others.iter().for_each(|other| other.send(sends));
            }
            moved += u64::from(sends > 0 || came > 0);
            let is_news = overview.is_news(verdict, moved, &shared.announced, |look| {
                shared.others.iter().for_each(|other| look(&other.published));
            });
            if is_news && (!case.pauses || is_over(&shared)) {
                break;
            }
            if sleeps || turns.len() == 0 {
                shared.first.requests.bell().wait_and_clear();
            }
        }
        shared.others.iter().for_each(|other| other.requests.raise(STOP));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let sent: u32 = case.turns.iter().map(|turn| turn.sends).sum();
        let returning = case.returns.iter().filter(|returns| **returns).count() as u32;
        assert_eq!(received, sent * returning, "the run ended before all packets had returned");
        for other in &shared.others {
            assert_eq!(other.own.lock().unwrap().moved, u64::from(sent), "the run ended before all packets arrived");
        }
    });
}

use Verdict::{OutOfWork, Works};

/// A packet goes to another worker, which keeps it.
const SENT: Case = Case { turns: &[turn(0, Works), turn(1, OutOfWork)], returns: &[false], pauses: true };

/// A packet comes back.
const RETURNED: Case = Case { returns: &[true], ..SENT };

/// After the packet is sent, an app of the first worker has work for a while, but moves no packet.
/// It has heard of the other's first verdict before.
const INTERRUPTED: Case = Case {
    turns: &[Turn { sleeps: true, ..turn(0, Works) }, turn(1, OutOfWork), turn(0, Works), turn(0, OutOfWork)],
    ..SENT
};

#[test]
fn the_end_is_found_when_the_last_packet_has_arrived() {
    check::<Sound>(SENT);
}

#[test]
fn the_end_is_found_when_a_packet_has_come_back() {
    check::<Sound>(RETURNED);
}

#[test]
fn the_end_is_found_after_an_interruption() {
    check::<Sound>(INTERRUPTED);
}

#[test]
fn the_end_is_found_with_three_workers() {
    const CASE: Case = Case { turns: &[turn(1, OutOfWork)], returns: &[false, true], pauses: true };
    check::<Sound>(CASE);
}

#[test]
#[should_panic(expected = "the run ended before all packets")]
fn an_end_that_is_decided_by_verdicts_alone_is_found() {
    check::<Sound>(Case { pauses: false, ..SENT });
}

/// A worker informs the first one only of verdicts that change.
struct Silent;

impl VerdictRules for Silent {
    const TELLS_MOVES: bool = false;
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_worker_that_does_not_tell_that_packets_have_moved_is_found() {
    check::<Silent>(SENT);
}

/// The first worker takes the state after packets have moved for the one before.
struct Uncounted;

impl VerdictRules for Uncounted {
    const COUNTS_MOVES: bool = false;
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_state_that_seems_to_be_known_is_found() {
    check::<Uncounted>(SENT);
}

/// The first worker looks at the verdicts before it announces that it waits.
struct LateAnnouncement;

impl VerdictRules for LateAnnouncement {
    const ANNOUNCES_FIRST: bool = false;
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_announcement_after_the_look_is_found() {
    check::<LateAnnouncement>(INTERRUPTED);
}

/// A processor may let a worker look at the announcement before its change is seen.
struct NoFences;

impl VerdictRules for NoFences {
    const HAS_FENCES: bool = false;
}

#[test]
#[should_panic(expected = "deadlock")]
fn missing_fences_are_found() {
    check::<NoFences>(INTERRUPTED);
}
