//! Sequence numbers of more than 32 bits, and new keys while packets pass.

use bellows_testkit::guest::PATIENCE;
use bellows_testkit::wait::within;

use super::peer::{Keys, PAIRS, Way, route};
use super::{Ends, run_in_background, unanswered, wait_for_answers, wait_for_background};

/// Has the sequence numbers of what the guest sends pass 2^32.
pub(super) fn pass_32_bits(ends: &mut Ends<'_>) {
    let before = unanswered(&mut ends.guest);
    for pair in &PAIRS {
        let id = ends.keys.id(pair, Way::FromGuest);
        // A jump of less than 2^32 - window: a longer one would be taken for one back.
        for last in ["0x80000000", "0xfffffff8"] {
            ends.guest.run(&format!("ip xfrm state delete {id}"));
            let state = ends.keys.state(pair, Way::FromGuest, &format!("replay-oseq {last}"));
            ends.guest.run(&state);
            let [near, far] = &pair.stations()[0];
            ends.guest.run(&format!("ping -q -c 20 -i 0.01 -W 100 -I {near} {far}"));
        }
        wait_for_answers(ends, before);
        let sequence = || {
            let shown = ends.sandbox.bellows(&["esp", "show", pair.name, "--json"]).success().json();
            shown["pairs"][0]["inbound"]["sequence"].as_u64()
        };
        within(PATIENCE, "a number above 32 bits", || sequence().is_some_and(|number| number > 1 << 32));
    }
}

/// How often keys are renewed while packets pass.
const ROUNDS: u32 = 6;

/// Renews all keys again and again while pings and a file pass in all pairs: by commands, and by reloads. Nothing is lost.
pub(super) fn under_traffic(ends: &mut Ends<'_>) {
    let before = unanswered(&mut ends.guest);
    // They go on until the last renewal, however long that takes.
    let pings = |ping: &str| format!("( {ping} || exit 1; until test -e /tmp/renewed; do {ping} || exit 1; done )");
    let ping = "ping -q -i 0.05 -c 100 -W 100 -s 1000";
    for pair in &PAIRS {
        let [near, far] = &pair.stations()[0];
        run_in_background(&mut ends.guest, &pings(&format!("{ping} -I {near} {far}")));
        run_in_background(&mut ends.guest, &pings(&format!("far {ping} {near}")));
    }
    let [near, far] = &PAIRS[1].stations()[0];
    route(&mut ends.guest, near);
    run_in_background(&mut ends.guest, &format!("exchange 1 {near} {far}"));
    for round in 0..ROUNDS {
        let keys = Keys { round: ends.keys.round + 1, ..ends.keys };
        match round % 2 {
            0 => by_commands(ends, keys),
            _ => ends.renew(keys),
        }
    }
    ends.guest.run("touch /tmp/renewed");
    wait_for_background(&mut ends.guest);
    wait_for_answers(ends, before);
    ends.forget_old();
    ends.assert_nothing_refused();
}

/// Gives all pairs new keys by commands.
fn by_commands(ends: &mut Ends<'_>, keys: Keys) {
    ends.keys = keys;
    let file = |way: Way| if way == Way::ToGuest { "out.key" } else { "in.key" };
    for pair in &PAIRS {
        let rekey = |way: Way, key: &str| {
            let path = ends.sandbox.write_secret(file(way), &keys.key(pair, way));
            let spi = format!("{:#x}", keys.spi(pair, way));
            ends.sandbox.bellows(&["esp", "rekey", pair.name, key, &spi, keys.algorithm, &path]).success();
        };
        ends.guest.run(&keys.state(pair, Way::ToGuest, ""));
        rekey(Way::ToGuest, "--outbound");
        rekey(Way::FromGuest, "--inbound");
        ends.guest.run(&keys.state(pair, Way::FromGuest, ""));
    }
}
