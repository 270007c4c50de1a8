//! No memory that is given back has a key in it.
//!
//! The allocator of this test looks for the keys in every block before it is freed. All tests are in one function, so
//! that no other thread has memory in between.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bellows_esp::{
    Algorithm, Associations, Cipher, Inbound, InboundSettings, KeyProgress, Keys, Outbound, OutboundSettings, Spi,
};

/// The bytes of every key, which nothing else has: half of the shortest key.
const PATTERN: [u8; 8] = [0xc5, 0x1e, 0x93, 0x6b, 0xf0, 0x0d, 0xa8, 0x77];

/// How many blocks had a key when they were freed.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// How many bytes were not zero when they were freed.
static NONZERO: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with initialised memory, so that every byte may be read.
struct Searching;

// SAFETY: it is the system's allocator. All memory comes zeroed, and is read only while it is allocated.
unsafe impl GlobalAlloc for Searching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about the layout is that of this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is allocated, of this size, and was initialised by `alloc`.
        let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
        let has_key = bytes.windows(PATTERN.len()).any(|window| window == PATTERN);
        FOUND.fetch_add(has_key.into(), Relaxed);
        NONZERO.fetch_add(bytes.iter().filter(|byte| **byte != 0).count(), Relaxed);
        // SAFETY: the caller's promise about block and layout is that of this function.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Searching = Searching;

/// By how much it grows meanwhile.
fn growth(counter: &AtomicUsize, action: impl FnOnce()) -> usize {
    let before = counter.load(Relaxed);
    action();
    counter.load(Relaxed) - before
}

/// How many blocks with a key are freed meanwhile.
fn found(action: impl FnOnce()) -> usize {
    growth(&FOUND, action)
}

fn text(algorithm: Algorithm) -> String {
    let digits: String = PATTERN.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.repeat(algorithm.key_length() / PATTERN.len()) + "01020304"
}

#[test]
fn keys_are_zeroed_before_their_memory_is_freed() {
    // The test can fail: a copy that is not zeroed is found.
    assert_eq!(found(|| drop(PATTERN.to_vec())), 1);
    assert_eq!(growth(&NONZERO, || drop(PATTERN.to_vec())), PATTERN.len());

    for algorithm in Algorithm::ALL {
        let text = text(algorithm);
        let keys = || Keys::parse(algorithm, &text).unwrap();
        assert_eq!(found(|| drop(keys())), 0, "{algorithm}");
        assert_eq!(found(|| drop(Keys::parse(algorithm, &text[2..]))), 0, "{algorithm}: text without its first byte");
        let cipher = || Cipher::new(&keys());
        assert_eq!(found(|| drop(cipher())), 0, "{algorithm}");
        // Nor do round keys and tables remain, which are made of it.
        let cipher_in_use = cipher();
        assert_eq!(growth(&NONZERO, || drop(cipher_in_use)), 0, "{algorithm}");
        let inbound = |spi| {
            let spi = Spi::new(spi).unwrap();
            Inbound::with_cipher(spi, cipher(), InboundSettings::default(), KeyProgress::new()).unwrap()
        };
        let outbound = || {
            let spi = Spi::new(1_000).unwrap();
            Outbound::with_cipher(spi, cipher(), OutboundSettings::default(), KeyProgress::new())
        };
        let replaced = found(|| {
            let mut associations = Associations::new(0);
            let pair = associations.add(inbound(1_000), outbound()).unwrap();
            associations.replace_inbound(pair, inbound(1_001)).unwrap();
            drop(associations.replace_outbound(pair, outbound()).unwrap());
            associations.remove_old(0);
            associations.remove(pair).unwrap();
        });
        assert_eq!(replaced, 0, "{algorithm}");
    }
}
