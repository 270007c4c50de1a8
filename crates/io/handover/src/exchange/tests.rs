//! A model of the exchange, and threads that try to break it.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64};

use bellows_sys::wake::sleep_until_readable;
use bellows_testkit::eventually;
use bellows_testkit::wait::Defer;
use proptest::prelude::*;

use super::*;

const SLOTS: usize = 3;

fn new<T>() -> (Lender<T>, Borrower<T>, Stopper<T>, Arc<Signal>) {
    let signal = Arc::new(Signal::new().unwrap());
    let (lender, borrower, ender) = exchange(SLOTS, Arc::clone(&signal)).unwrap();
    (lender, borrower, ender, signal)
}

fn readable(descriptor: BorrowedFd<'_>) -> bool {
    sleep_until_readable(&[descriptor], Some(Duration::ZERO)).unwrap()[0]
}

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Offered(u32),
    Engine(u32),
    Wanted(u32),
    Returned(u32),
    GivenUp(u32),
}

#[derive(Clone, Debug)]
enum Step {
    Offer(usize),
    Want(usize),
    /// A recall that need not wait.
    Collect(usize),
    News,
    Sync,
    /// Whether the control thread is changing something.
    GiveUp(usize, bool),
    EndOfPort,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = 0..SLOTS;
    let step = prop_oneof![
        4 => slot.clone().prop_map(Step::Offer),
        3 => slot.clone().prop_map(Step::Want),
        4 => slot.clone().prop_map(Step::Collect),
        2 => Just(Step::News),
        5 => Just(Step::Sync),
        2 => (slot, any::<bool>()).prop_map(|(slot, busy)| Step::GiveUp(slot, busy)),
        1 => Just(Step::EndOfPort),
    ];
    prop::collection::vec(step, 0..60)
}

/// A value that the engine gave up arrives.
fn model_give_up(model: &mut [Place; SLOTS], outgoing: &mut Vec<(usize, u32)>) {
    for (slot, thing) in outgoing.drain(..) {
        let wanted = matches!(model[slot], Place::Wanted(_));
        model[slot] = if wanted { Place::Returned(thing) } else { Place::GivenUp(thing) };
    }
}

/// Exchanges everything at once; returns whether anything was exchanged.
fn model_exchange(model: &mut [Place; SLOTS], outgoing: &mut Vec<(usize, u32)>) -> bool {
    let before = *model;
    model_give_up(model, outgoing);
    for place in &mut *model {
        match *place {
            Place::Offered(thing) => *place = Place::Engine(thing),
            Place::Wanted(thing) => *place = Place::Returned(thing),
            _ => {}
        }
    }
    *model != before
}

proptest! {
    #[test]
    fn things_are_where_a_model_says(steps in steps()) {
        let (lender, mut borrower, _ender, signal) = new();
        let mut held: Vec<Option<u32>> = vec![None; SLOTS];
        let mut model = [Place::Nowhere; SLOTS];
        // Given up, and not yet handed over.
        let mut outgoing: Vec<(usize, u32)> = Vec::new();
        let mut rung = false;
        let mut ended = false;
        for (number, step) in (1..).zip(steps) {
            match step {
                Step::Offer(slot) => {
                    if model[slot] == Place::Nowhere {
                        lender.offer(slot, number);
                        (model[slot], rung) = (Place::Offered(number), rung || !ended);
                    }
                }
                Step::Want(slot) => {
                    lender.want(slot);
                    if let Place::Engine(thing) = model[slot] {
                        (model[slot], rung) = (Place::Wanted(thing), true);
                    }
                }
                Step::Collect(slot) => {
                    if matches!(model[slot], Place::Engine(_) | Place::Wanted(_)) {
                        continue;
                    }
                    let expected = match model[slot] {
                        Place::Offered(thing) | Place::Returned(thing) | Place::GivenUp(thing) => Recalled::Back(thing),
                        _ => Recalled::Nothing,
                    };
                    prop_assert_eq!(lender.recall(slot, Duration::ZERO, || unreachable!()), expected);
                    model[slot] = Place::Nowhere;
                }
                Step::News => {
                    let first = model.iter().position(|place| matches!(place, Place::GivenUp(_)));
                    let expected = first.map(|slot| {
                        let Place::GivenUp(thing) = model[slot] else { unreachable!() };
                        model[slot] = Place::Nowhere;
                        (slot, thing)
                    });
                    prop_assert_eq!(lender.given_up(), expected);
                }
                Step::Sync | Step::EndOfPort if ended => {}
                Step::Sync => {
                    let changed = rung && model_exchange(&mut model, &mut outgoing);
                    rung = false;
                    prop_assert_eq!(borrower.sync(&mut held), changed);
                }
                Step::GiveUp(slot, busy) => {
                    let Some(thing) = held[slot].take() else { continue };
                    outgoing.push((slot, thing));
                    let changing = busy.then(|| lender.0.lock());
                    borrower.give_up(slot, thing, &mut held);
                    drop(changing);
                    if !busy {
                        model_exchange(&mut model, &mut outgoing);
                    }
                    rung = busy;
                }
                Step::EndOfPort => {
                    borrower.end(&mut held);
                    model_give_up(&mut model, &mut outgoing);
                    for place in &mut model {
                        match *place {
                            Place::Engine(thing) => *place = Place::Offered(thing),
                            Place::Wanted(thing) => *place = Place::Returned(thing),
                            _ => {}
                        }
                    }
                    ended = true;
                }
            }
            for (slot, place) in model.iter().enumerate() {
                let with_engine = match place {
                    Place::Engine(thing) | Place::Wanted(thing) => Some(*thing),
                    _ => None,
                };
                let on_the_way = outgoing.iter().any(|(gone, _)| *gone == slot);
                prop_assert_eq!(held[slot], with_engine.filter(|_| !on_the_way));
            }
            // The word and the descriptor agree.
            let bell = borrower.bell();
            prop_assert_eq!(bell.word().load(Relaxed) != borrower.expected(), rung);
            prop_assert_eq!(readable(bell.descriptor()), rung);
        }
        signal.clear();
    }
}

/// A value that knows who may access it.
struct Token {
    with_engine: AtomicBool,
    living: Arc<AtomicU64>,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.living.fetch_sub(1, Relaxed);
    }
}

struct Touched(Vec<Option<Arc<Token>>>);

impl Held<Arc<Token>> for Touched {
    fn take(&mut self, slot: usize, token: Arc<Token>) {
        assert!(!token.with_engine.swap(true, Relaxed));
        self.0[slot] = Some(token);
    }

    fn give(&mut self, slot: usize) -> Option<Arc<Token>> {
        let token = self.0[slot].take()?;
        assert!(token.with_engine.swap(false, Relaxed));
        Some(token)
    }
}

/// A control thread that offers and recalls as fast as it can, against an engine that sleeps now and then, gives values
/// up, and ends at some point.
#[test]
fn nothing_is_lost_or_touched_twice_under_any_interleaving() {
    let living = Arc::new(AtomicU64::new(0));
    for round in 0..20 {
        let (lender, mut borrower, _ender, signal) = new::<Arc<Token>>();
        let (mut held, mut breath) = (Touched((0..SLOTS).map(|_| None).collect()), 0_u32);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Also if this thread fails: otherwise the engine would wait forever.
                let _end = Defer(|| {
                    stop.store(true, Relaxed);
                    signal.raise();
                });
                let mut random = fastrand(round);
                for _ in 0..2_000 {
                    let slot = random() as usize % SLOTS;
                    while let Some((_, token)) = lender.given_up() {
                        assert!(!token.with_engine.load(Relaxed));
                    }
                    match lender.recall(slot, Duration::from_secs(20), || panic!("the engine does not answer")) {
                        Recalled::Back(token) => assert!(!token.with_engine.load(Relaxed)),
                        Recalled::Nothing => {}
                        Recalled::Ended => unreachable!(),
                    }
                    living.fetch_add(1, Relaxed);
                    let (with_engine, living) = (AtomicBool::new(false), Arc::clone(&living));
                    lender.offer(slot, Arc::new(Token { with_engine, living }));
                }
            });
            let bell = borrower.bell();
            while !stop.load(Relaxed) {
                breath += 1;
                if breath.is_multiple_of(64) {
                    // Asleep: only the descriptor wakes it, or the end of the test.
                    sleep_until_readable(&[bell.descriptor()], Some(Duration::from_millis(1))).unwrap();
                }
                borrower.sync(&mut held);
                if breath.is_multiple_of(7) {
                    let slot = breath as usize % SLOTS;
                    if let Some(token) = held.give(slot) {
                        borrower.give_up(slot, token, &mut held);
                    }
                }
                if round % 2 == 1 && breath == 5_000 {
                    borrower.end(&mut held);
                    break;
                }
            }
        });
        drop((lender, borrower, held));
    }
    assert_eq!(living.load(Relaxed), 0);
}

/// Pseudo-random numbers.
fn fastrand(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    }
}

#[test]
fn a_wait_is_complained_about_once_and_ends_with_the_exchange() {
    let (lender, mut borrower, ender, _signal) = new();
    let mut held: Vec<Option<u32>> = vec![None; SLOTS];
    lender.offer(1, 7);
    borrower.sync(&mut held);
    let complaints = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let recall = scope.spawn(|| {
            lender.recall(1, Duration::from_millis(1), || {
                complaints.fetch_add(1, Relaxed);
            })
        });
        let end = Defer(|| ender.end());
        eventually("a complaint", || complaints.load(Relaxed) > 0);
        drop(end);
        assert_eq!(recall.join().unwrap(), Recalled::Ended);
    });
    assert_eq!(complaints.load(Relaxed), 1);
    assert!(readable(borrower.bell().descriptor()));
    assert!(borrower.sync(&mut held));
    assert_eq!(held, [None; SLOTS]);
}

#[test]
fn giving_up_a_value_wakes_the_control_thread() {
    let (lender, mut borrower, _ender, signal) = new();
    let mut held: Vec<Option<u32>> = vec![None; SLOTS];
    lender.offer(2, 9);
    borrower.sync(&mut held);
    assert!(!readable(signal.as_fd()));
    let thing = held[2].take().unwrap();
    borrower.give_up(2, thing, &mut held);
    assert!(readable(signal.as_fd()));
    assert_eq!(lender.given_up(), Some((2, 9)));
    assert_eq!(lender.given_up(), None);
}

/// A control thread that recalls and offers as fast as it can, while engines take over slots from one another.
#[test]
fn ends_that_follow_one_another_pass_values_on() {
    const ENDS: usize = 4;
    const ROUNDS: usize = 300;
    let living = Arc::new(AtomicU64::new(0));
    let signal = Arc::new(Signal::new().unwrap());
    let (lender, stopper) = shared_exchange::<Arc<Token>>(Arc::clone(&signal));
    let _grown = stopper.borrower(vec![SLOTS - 1]).unwrap();
    let fresh = || {
        living.fetch_add(1, Relaxed);
        Arc::new(Token { with_engine: AtomicBool::new(false), living: Arc::clone(&living) })
    };
    (0..SLOTS).for_each(|slot| lender.offer(slot, fresh()));
    let (stop, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let engines: Vec<_> = (0..ENDS)
            .map(|number| {
                let (stopper, taken) = (&stopper, &taken);
                scope.spawn(move || {
                    let mut random = fastrand(number as u64);
                    for _ in 0..ROUNDS {
                        // Two of the slots in any order.
                        let first = random() as usize % SLOTS;
                        let mut borrower = stopper.borrower(vec![first, (first + 1) % SLOTS]).unwrap();
                        let mut held = Touched(vec![None, None]);
                        borrower.claim();
                        for _ in 0..random() % 50 {
                            taken.fetch_add(u64::from(borrower.sync(&mut held)), Relaxed);
                        }
                        borrower.end(&mut held);
                        assert!(held.0.iter().all(Option::is_none));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut random = fastrand(99);
            while !stop.load(Relaxed) {
                let slot = random() as usize % SLOTS;
                match lender.recall(slot, Duration::from_secs(20), || panic!("no engine answers")) {
                    Recalled::Back(token) => assert!(!token.with_engine.load(Relaxed)),
                    other => assert_eq!(std::mem::discriminant(&other), std::mem::discriminant(&Recalled::Nothing)),
                }
                lender.offer(slot, fresh());
            }
        });
        let _stop = Defer(|| stop.store(true, Relaxed));
        engines.into_iter().for_each(|engine| engine.join().unwrap());
    });
    assert!(taken.load(Relaxed) > 0);
    let back = (0..SLOTS).map(|slot| lender.recall(slot, Duration::ZERO, || ()));
    assert!(back.into_iter().all(|back| matches!(back, Recalled::Back(_))), "no value is left behind");
    assert_eq!(living.load(Relaxed), 0);
}

#[test]
fn a_slot_has_one_owner_and_a_holder_keeps_its_value() {
    let signal = Arc::new(Signal::new().unwrap());
    let (lender, stopper) = shared_exchange::<u32>(signal);
    let mut old = stopper.borrower(vec![0, 1]).unwrap();
    lender.offer(1, 7);
    let (mut with_old, mut with_new) = (vec![None; 2], vec![None]);
    assert!(!old.sync(&mut with_old), "it has claimed nothing");
    old.claim();
    assert!(old.sync(&mut with_old) && with_old == [None, Some(7)]);

    let mut new = stopper.borrower(vec![1]).unwrap();
    new.claim();
    assert!(!new.sync(&mut with_new), "the other one still has it");
    lender.offer(0, 8);
    assert!(old.sync(&mut with_old) && with_old == [Some(8), Some(7)], "it has its other slot");
    old.end(&mut with_old);
    assert!(readable(new.bell().descriptor()), "it is woken");
    assert!(new.sync(&mut with_new) && with_new == [Some(7)]);
    assert_eq!(lender.recall(0, Duration::ZERO, || ()), Recalled::Back(8), "nobody has claimed it");

    lender.want(1);
    assert!(new.sync(&mut with_new) && with_new == [None]);
    assert_eq!(lender.recall(1, Duration::ZERO, || ()), Recalled::Back(7));
    new.end(&mut with_new);
    lender.offer(1, 9);
    let next = stopper.borrower(vec![1]).unwrap();
    next.claim();
    assert!(readable(next.bell().descriptor()), "it was offered before");
}
