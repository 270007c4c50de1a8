//! The keys with which this process has sealed packets, and how far: no key seals two packets with the same number.
//!
//! The number of a packet is also its IV. Two packets under the same key and IV give away what both carry (RFC 4106,
//! section 3). So a key is used by one app at a time, and one that is used again goes on behind its last number: also
//! after its pair was removed by a reload and added by another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bellows_esp::Fingerprint;

/// One who seals: an app and its successors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User(u64);

impl User {
    /// Another one than all before.
    pub(super) fn new() -> User {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        User(NEXT.fetch_add(1, Relaxed))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    user: Option<User>,
    /// The highest number that was used, as far as it has been told.
    last: u64,
}

static KEYS: Mutex<Option<HashMap<Fingerprint, Entry>>> = Mutex::new(None);

fn keys() -> MutexGuard<'static, Option<HashMap<Fingerprint, Entry>>> {
    KEYS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a user use these keys. Returns those that it did not use before.
///
/// # Errors
/// With the first one that is in use by another; then nothing has changed.
pub(super) fn claim(user: User, wanted: &[Fingerprint]) -> Result<Vec<Fingerprint>, Fingerprint> {
    let mut keys = keys();
    let keys = keys.get_or_insert_default();
    let is_others = |key: &&Fingerprint| keys.get(key).and_then(|entry| entry.user).is_some_and(|other| other != user);
    if let Some(taken) = wanted.iter().find(is_others) {
        return Err(*taken);
    }
    let mut new = Vec::new();
    for key in wanted {
        if keys.entry(*key).or_default().user.replace(user).is_none() {
            new.push(*key);
        }
    }
    Ok(new)
}

/// Notes the last number that was used with a key.
pub(super) fn note(key: Fingerprint, last: u64) {
    let mut keys = keys();
    let entry = keys.get_or_insert_default().entry(key).or_default();
    entry.last = entry.last.max(last);
}

/// Notes that a key is not in use any more.
pub(super) fn release(key: Fingerprint) {
    if let Some(entry) = keys().get_or_insert_default().get_mut(&key) {
        entry.user = None;
    }
}

/// The last number that was noted for a key; 0 for a new one.
pub(super) fn last(key: Fingerprint) -> u64 {
    keys().get_or_insert_default().get(&key).map_or(0, |entry| entry.last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_user_at_a_time_and_goes_on_behind_its_last_number() {
        let key = |number: u8| Fingerprint::of(&("a test of spent", number));
        let [one, other] = [User::new(), User::new()];
        assert_eq!(claim(one, &[key(1), key(2)]), Ok(vec![key(1), key(2)]));
        assert_eq!(claim(one, &[key(1), key(3)]), Ok(vec![key(3)]));
        assert_eq!(claim(other, &[key(4), key(2)]), Err(key(2)));
        assert_eq!(claim(one, &[key(4)]), Ok(vec![key(4)]), "a claim that failed has claimed nothing");
        note(key(2), 70);
        note(key(2), 60);
        release(key(2));
        assert_eq!(claim(other, &[key(2)]), Ok(vec![key(2)]));
        assert_eq!((last(key(2)), last(key(1))), (70, 0));
    }
}
