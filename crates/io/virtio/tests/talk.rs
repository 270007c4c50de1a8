//! Random front ends: the back end replies, refuses or closes, and never panics, hangs or leaks.

use bellows_exercise::backend::Host;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Bytes of which many begin something useful.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let step = prop_oneof![any::<u8>(), 0_u8..40, Just(200), Just(220), Just(236)];
    prop::collection::vec(step, 0..200)
}

#[test]
fn a_back_end_survives_every_front_end() {
    let mut host = Host::start();
    // One host for all of them: each meets the state that the one before left.
    let host = std::cell::RefCell::new(&mut host);
    TestRunner::default()
        .run(&bytes(), |bytes| {
            host.borrow_mut().talk(&bytes);
            Ok(())
        })
        .unwrap();
}

/// The scripted start leads to rings that run.
#[test]
fn some_front_ends_get_as_far_as_packets() {
    let mut host = Host::start();
    // All options; rings of 256 descriptors at position 0 on each queue.
    let ring = |index: u8| [220, index, 8, 0, 0x80, 0];
    let bytes = [&[200, 0, 1][..], &ring(0), &ring(1), &ring(2), &ring(3), &[240, 0]].concat();
    // The rings run on a thread that may not be scheduled while one front end talks.
    let mut talks = 0;
    while talks < 20 || host.rings() == 0 && talks < 5_000 {
        host.talk(&bytes);
        talks += 1;
    }
    let status = host.status().snapshot();
    let errors: Vec<_> = status.errors.iter().map(|(name, _)| *name).collect();
    assert_eq!(status.connections, talks);
    assert!(!errors.iter().any(|name| name.starts_with("message")), "{errors:?}");
    assert!(host.rings() > 0, "no ring ever ran: {status:?}");
}
