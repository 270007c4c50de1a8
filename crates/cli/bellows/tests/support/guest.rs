//! Bellows inside a guest.

use bellows_testkit::guest::Guest;
use serde_json::Value;

/// What a command prints in the guest.
pub fn json(guest: &mut Guest, words: &str) -> Value {
    let said = guest.run(&format!("bellows {words} --json 2>/dev/null"));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"))
}

/// Starts a network in the guest, and waits until it runs.
pub fn start(guest: &mut Guest, network: &str) {
    guest.run(&format!("bellows run /{network} >/tmp/said 2>&1 &"));
    // What it said is shown if this fails.
    guest.eventually("bellows show >/dev/null 2>&1 || { cat /tmp/said; false; }");
}
