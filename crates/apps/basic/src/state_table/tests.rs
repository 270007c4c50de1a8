use std::collections::HashMap;
use std::thread;

use bellows_wire::IpProtocol;
use bellows_wire::connection::{ConnectionKind, Key, of_ip};
use bellows_wire::tcp::flags::{ACK, FIN, RST, SYN};
use proptest::prelude::*;

use super::connections::Protocol;
use super::*;

/// A second.
const S: u64 = 1_000_000_000;

/// A packet of a connection with this number, which its client sends or gets.
fn member(protocol: IpProtocol, number: u32, is_from_client: bool, flags: u8) -> Member {
    let [_, a, b, c] = number.to_be_bytes();
    let (client, server) = ([10, a, b, c, 0x12, 0x34], [9, 0, 0, 1, 0, 80]);
    let (src, dst) = if is_from_client { (client, server) } else { (server, client) };
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol.0, 0, 0];
    for part in [&src[..4], &dst[..4], &src[4..], &dst[4..]] {
        packet.extend(part);
    }
    packet.extend([0; 16]);
    packet[33] = flags;
    of_ip(&packet).unwrap()
}

fn table(capacity: usize) -> StateTable {
    StateTable::of(Config { capacity, ..Config::default() })
}

impl StateTable {
    /// The place of a single packet.
    fn place(&self, member: &Member) -> Place {
        let mut places = Vec::new();
        self.places(&[*member], &mut places);
        places[0]
    }
}

/// Whether a packet passes by its state.
fn passes(table: &StateTable, member: &Member, now: u64) -> bool {
    table.pass(member, table.place(member), now)
}

/// As a filter that matches the packet.
fn admit(table: &StateTable, member: &Member, now: u64) -> Option<Entered> {
    (!passes(table, member, now)).then(|| table.enter(member, table.place(member), now))
}

/// Three packets of a TCP connection that is then established.
fn establish(table: &StateTable, number: u32, now: u64) {
    let tcp = |is_from_client, flags| member(IpProtocol::TCP, number, is_from_client, flags);
    assert_eq!(admit(table, &tcp(true, SYN), now), Some(Entered::New));
    assert!(passes(table, &tcp(false, SYN | ACK), now) && passes(table, &tcp(true, ACK), now));
}

fn established(table: &StateTable) -> u64 {
    table.status()["established"].as_u64().unwrap()
}

#[test]
fn a_connection_expires_by_its_protocol_and_stage() {
    let config = Config::default();
    let now = 1000 * S;
    for (protocol, nanos) in [
        (IpProtocol::TCP, config.tcp_transitory.nanos()),
        (IpProtocol::UDP, config.udp.nanos()),
        (IpProtocol::GRE, config.other.nanos()),
    ] {
        let table = table(64);
        let (there, back) = (member(protocol, 1, true, SYN), member(protocol, 1, false, ACK));
        assert!(!passes(&table, &there, now) && !passes(&table, &back, now));
        assert_eq!(admit(&table, &there, now), Some(Entered::New));
        let last = now + nanos;
        assert!(passes(&table, &back, last), "{protocol:?}");
        assert!(passes(&table, &back, last + nanos), "each packet counts");
        assert!(!passes(&table, &back, last + 2 * nanos + S / 5), "{protocol:?}");
    }
    let table = table(64);
    establish(&table, 1, now);
    let back = member(IpProtocol::TCP, 1, false, ACK);
    assert!(passes(&table, &back, now + config.tcp_established.nanos()));
    assert!(passes(&table, &member(IpProtocol::TCP, 1, false, FIN | ACK), now + config.tcp_established.nanos()));
    let closed = now + config.tcp_established.nanos() + config.tcp_transitory.nanos();
    assert!(passes(&table, &back, closed));
    assert!(!passes(&table, &back, closed + config.tcp_transitory.nanos() + S));
}

#[test]
fn after_the_end_a_connection_begins_only_by_the_expression() {
    let (table, now) = (table(64), S);
    establish(&table, 1, now);
    let [syn, syn_back] = [true, false].map(|is_from_client| member(IpProtocol::TCP, 1, is_from_client, SYN));
    assert!(passes(&table, &syn, now), "while it is established, its ends decide");
    assert!(passes(&table, &member(IpProtocol::TCP, 1, false, RST), now));
    assert!(!passes(&table, &syn, now) && !passes(&table, &syn_back, now));
    assert!(passes(&table, &member(IpProtocol::TCP, 1, true, ACK), now));
    assert_eq!(admit(&table, &syn, now), Some(Entered::New));
    assert!(passes(&table, &member(IpProtocol::TCP, 1, false, SYN | ACK), now));
    assert_eq!(table.status()["connections"], 1, "it took its own place");
    assert_eq!(admit(&table, &member(IpProtocol::TCP, 2, false, RST), now), Some(Entered::Nothing));
}

/// A flood of first packets from all over the world, also of answered ones: memory stays, and so do connections.
#[test]
fn a_flood_leaves_established_connections() {
    let table = table(1024);
    let memory = table.status()["memory"].clone();
    for number in 0..128 {
        establish(&table, number, S);
    }
    let mut became: HashMap<&str, u32> = HashMap::new();
    for number in 0..200_000 {
        let now = S + u64::from(number) * 1_000_000;
        let entered = admit(&table, &member(IpProtocol::TCP, 1_000_000 + number, true, SYN), now).unwrap();
        let name = match entered {
            Entered::New => "new",
            Entered::Evicted => "evicted",
            Entered::Refused => "refused",
            Entered::Expired | Entered::Nothing => "other",
        };
        *became.entry(name).or_default() += 1;
        if number % 3 == 0 {
            passes(&table, &member(IpProtocol::TCP, 1_000_000 + number, false, SYN | ACK), now);
        }
    }
    assert_eq!(established(&table), 128);
    for number in 0..128 {
        assert!(passes(&table, &member(IpProtocol::TCP, number, false, ACK), 201 * S), "{number}");
    }
    assert_eq!(table.status()["memory"], memory);
    assert!(became["evicted"] > 190_000, "{became:?}");
    // The newest are in, so that a handshake has its time: a place is taken over only by the oldest of its bucket.
    let last = (199_950..200_000)
        .filter(|number| passes(&table, &member(IpProtocol::TCP, 1_000_000 + number, false, SYN | ACK), 201 * S));
    assert!(last.count() >= 45);
}

#[test]
fn a_table_full_of_established_connections_refuses_others() {
    let table = table(64);
    for number in 0..10_000 {
        let tcp = |is_from_client, flags| member(IpProtocol::TCP, number, is_from_client, flags);
        admit(&table, &tcp(true, SYN), S);
        passes(&table, &tcp(false, SYN | ACK), S);
        passes(&table, &tcp(true, ACK), S);
    }
    assert_eq!(established(&table), 128);
    let other = member(IpProtocol::UDP, 20_000, true, 0);
    assert_eq!(admit(&table, &other, S), Some(Entered::Refused));
    // Later their time has come.
    let later = S + Config::default().tcp_established.nanos() + S;
    assert_eq!(admit(&table, &other, later), Some(Entered::Expired));
}

/// A packet of a connection that one client has begun, with this number as its port.
fn of_one(number: u16, is_from_client: bool, flags: u8) -> Member {
    let [high, low] = number.to_be_bytes();
    let (client, server) = ([172, 16, 0, 1, high, low], [9, 0, 0, 1, 0, 80]);
    let (src, dst) = if is_from_client { (client, server) } else { (server, client) };
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, IpProtocol::TCP.0, 0, 0];
    for part in [&src[..4], &dst[..4], &src[4..], &dst[4..]] {
        packet.extend(part);
    }
    packet.extend([0; 16]);
    packet[33] = flags;
    of_ip(&packet).unwrap()
}

#[test]
fn a_client_that_fills_the_table_keeps_no_others_out() {
    for is_answered in [false, true] {
        let table = table(1024);
        let fill = |now: u64| {
            for number in 0..30_000 {
                admit(&table, &of_one(number, true, SYN), now);
                if is_answered {
                    passes(&table, &of_one(number, false, SYN | ACK), now);
                    passes(&table, &of_one(number, true, ACK), now);
                }
            }
        };
        fill(S);
        assert_eq!(table.status()["connections"], 2048);
        assert_eq!(established(&table), if is_answered { 2048 } else { 0 });
        for number in 0..200 {
            let entered = admit(&table, &member(IpProtocol::TCP, number, true, SYN), 2 * S);
            assert_eq!(entered, Some(Entered::Evicted), "{number}");
            if number % 50 == 0 {
                fill(2 * S);
            }
            assert!(passes(&table, &member(IpProtocol::TCP, number, false, SYN | ACK), 2 * S), "{number}");
            assert!(passes(&table, &member(IpProtocol::TCP, number, true, ACK), 2 * S), "{number}");
        }
        fill(2 * S);
        let others = (0..200).filter(|&number| passes(&table, &member(IpProtocol::TCP, number, false, ACK), 2 * S));
        assert_eq!(others.count(), 200);
        let of_client = table.place(&of_one(1, true, SYN));
        assert_eq!(table.fullest(of_client), Some([172, 16, 0, 1].into()));
    }
}

#[test]
fn a_table_has_room_for_its_capacity() {
    let table = table(4096);
    for number in 0..4096 {
        admit(&table, &member(IpProtocol::UDP, number, true, 0), S);
    }
    let found = table.status()["connections"].as_u64().unwrap();
    assert!(found > 4096 * 98 / 100, "{found}");
}

#[test]
fn connections_that_have_expired_are_removed_in_a_minute() {
    let table = table(16_384);
    for number in 0..1000 {
        admit(&table, &member(IpProtocol::UDP, number, true, 0), S);
    }
    let (mut now, mut expired, mut looks) = (S, 0, 0);
    while now < 400 * S {
        let (count, next) = table.expire(now);
        assert!(next > now && next - now <= 60 * S);
        assert!(count == 0 || now > 300 * S);
        assert_eq!(table.expire(now).0, 0, "it is not time yet");
        (now, expired, looks) = (next, expired + count, looks + 1);
    }
    assert_eq!((expired, table.status()["connections"].as_u64()), (1000, Some(0)));
    assert!((100..120).contains(&looks), "{looks}");
}

#[test]
fn two_tables_place_connections_differently() {
    let (one, other) = (table(65_536), table(65_536));
    let same = (0..1000).filter(|&number| {
        let member = member(IpProtocol::TCP, number, true, SYN);
        one.place(&member).bucket() == other.place(&member).bucket()
    });
    assert!(same.count() < 10);
}

/// What the model knows of a connection.
#[derive(Clone, Copy, Debug)]
struct Known {
    bucket: usize,
    sent: [bool; 2],
    beginner: u32,
    first: bool,
    stage: Stage,
    protocol: Protocol,
    time: u64,
}

impl Known {
    /// The times before which it has not expired, and after which it has.
    fn ends(&self) -> [u64; 2] {
        let config = Config::default();
        let timeout = match (self.protocol, self.stage) {
            (Protocol::Tcp, Stage::Established) => config.tcp_established,
            (Protocol::Tcp, _) => config.tcp_transitory,
            (Protocol::Udp, _) => config.udp,
            (Protocol::Icmp, _) => config.icmp,
            (Protocol::Other, _) => config.other,
        };
        [self.time + timeout.nanos(), self.time + timeout.nanos() + S / 5]
    }

    fn has_expired(&self, now: u64) -> bool {
        now > self.ends()[1]
    }
}

#[derive(Clone, Debug)]
struct Step {
    number: u32,
    is_from_client: bool,
    protocol: IpProtocol,
    flags: u8,
    /// Whether the filter matches it.
    matches: bool,
    pause: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, RST]);
    let protocol = prop::sample::select(vec![IpProtocol::TCP, IpProtocol::TCP, IpProtocol::UDP, IpProtocol::GRE]);
    // Whole seconds, so that no time is near a timeout.
    let pause = prop_oneof![20 => Just(0), 4 => 1..10u64, 1 => 100..1000u64, 1 => Just(8000)];
    (0..40u32, any::<bool>(), protocol, flags, prop::bool::weighted(0.6), pause).prop_map(
        |(number, is_from_client, protocol, flags, matches, pause)| Step {
            number,
            is_from_client,
            protocol,
            flags,
            matches,
            pause: pause * S,
        },
    )
}

proptest! {
    /// Against a map without a limit, from which what the table says it evicted is removed.
    #[test]
    fn connections_are_those_of_a_map(steps in prop::collection::vec(step(), 0..400)) {
        let table = table(64);
        let mut model: HashMap<Key, Known> = HashMap::default();
        let mut now = S / 2;
        for step in steps {
            now += step.pause;
            let member = member(step.protocol, step.number, step.is_from_client, step.flags);
            let flags = if let ConnectionKind::Tcp(flags) = member.kind { flags } else { 0 };
            let is_new_syn = flags & (SYN | ACK) == SYN;
            let known = model.get(&member.key).copied();
            let may_pass = known.filter(|known| {
                !(known.has_expired(now) || known.stage == Stage::Closing && is_new_syn)
            });
            let passed = passes(&table, &member, now);
            prop_assert_eq!(passed, may_pass.is_some(), "{:?} {:?}", step, known);
            if let Some(mut known) = may_pass {
                let from = usize::from(member.is_from_first);
                let both = known.sent == [true; 2];
                known.sent[from] = true;
                known.time = now;
                if flags & (FIN | RST) != 0 {
                    known.stage = Stage::Closing;
                } else if known.stage != Stage::Closing && known.sent == [true; 2] && known.stage != Stage::Established {
                    let again = both && known.first == member.is_from_first && flags & SYN == 0;
                    known.stage = if again { Stage::Established } else { Stage::Answered };
                }
                model.insert(member.key, known);
                continue;
            }
            if !step.matches {
                continue;
            }
            let bucket = table.place(&member).bucket();
            let entered = table.enter(&member, table.place(&member), now);
            // By its client, or by the server, which all have in common.
            let own = if step.is_from_client { step.number } else { u32::MAX };
            let begins = |known: &Known| known.beginner;
            let others = |model: &HashMap<Key, Known>| -> Vec<(Key, Known)> {
                let live = model.iter().filter(|(_, known)| known.bucket == bucket && !known.has_expired(now));
                live.map(|(key, known)| (*key, *known)).collect()
            };
            match entered {
                Entered::Nothing => {
                    prop_assert!(flags & RST != 0);
                    continue;
                }
                Entered::Refused => {
                    let others = others(&model);
                    let begun = |known: &Known| begins(known) == own;
                    let own_count = others.iter().filter(|(_, known)| begun(known)).count();
                    let may_go = |(_, known): &(Key, Known)| {
                        let count = others.iter().filter(|(_, other)| begins(other) == begins(known)).count();
                        known.stage != Stage::Established && (count >= own_count || begun(known))
                    };
                    prop_assert!(others.len() == WAYS && !others.iter().any(may_go));
                    continue;
                }
                Entered::Evicted => {
                    let others = others(&model);
                    prop_assert_eq!(others.len(), WAYS);
                    // An error about a connection leaves it as it is.
                    let is_gone = |key| !passes(&table, &Member { key, is_error: true, ..member }, now);
                    let gone: Vec<_> = others.iter().filter(|(key, _)| is_gone(*key)).collect();
                    prop_assert_eq!(gone.len(), 1);
                    let count = |of: u32| others.iter().filter(|(_, other)| begins(other) == of).count();
                    let has_several = count(begins(&gone[0].1)) >= count(own) + 2;
                    let open = || others.iter().filter(|(_, of)| of.stage != Stage::Established);
                    if gone[0].1.stage == Stage::Established {
                        prop_assert!(open().next().is_none() && has_several);
                    } else {
                        let longest = open().map(|(_, of)| of.time).min();
                        // Those who have begun the most go first, and nobody who has less goes for one who has more.
                        let is_passed_over = |of: &Known| count(begins(of)) < count(own) && begins(of) != own;
                        let are_passed_over =
                            open().filter(|(_, of)| of.time < gone[0].1.time).all(|(_, of)| is_passed_over(of));
                        prop_assert!(Some(gone[0].1.time) == longest || has_several || are_passed_over);
                    }
                    model.remove(&gone[0].0);
                }
                Entered::New | Entered::Expired => {}
            }
            let protocol = match step.protocol {
                IpProtocol::TCP => Protocol::Tcp,
                IpProtocol::UDP => Protocol::Udp,
                _ => Protocol::Other,
            };
            let stage = if flags & FIN != 0 { Stage::Closing } else { Stage::Opening };
            let mut sent = [false; 2];
            sent[usize::from(member.is_from_first)] = true;
            model.insert(member.key, Known { bucket, sent, beginner: own, first: member.is_from_first, stage, protocol, time: now });
        }
    }
}

/// Threads that enter and use the same connections, and evict others of the same buckets: no packet passes by the state
/// of another connection, and what is established stays.
#[test]
fn threads_share_a_table() {
    let table = table(64);
    // The odd numbers are never entered, and no bucket has only established connections.
    let kept: Vec<u32> = (0..20).map(|number| 2 * number).collect();
    for &number in &kept {
        establish(&table, number, S);
    }
    let kept_in_buckets = established(&table);
    thread::scope(|scope| {
        for first in 0..3u32 {
            let (table, kept) = (&table, &kept);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(first.into());
                for round in 0..20_000 {
                    let number = 1000 + 2 * random.u32(..500);
                    let new = member(IpProtocol::UDP, number, true, 0);
                    table.enter(&new, table.place(&new), S + round);
                    let stranger = member(IpProtocol::UDP, 1001 + 2 * random.u32(..500), random.bool(), 0);
                    assert!(!passes(table, &stranger, S + round));
                    let known = member(IpProtocol::TCP, kept[random.usize(..kept.len())], random.bool(), ACK);
                    assert!(passes(table, &known, S + round));
                }
            });
        }
    });
    assert_eq!(established(&table), kept_in_buckets);
}

#[test]
fn keys_are_checked() {
    let error = |config: Value| {
        let config: Config = serde_json::from_value(config).unwrap();
        StateTable::configure(config, &Context::default()).err().and_then(|error| error.key)
    };
    assert_eq!(error(json!({ "capacity": 63 })), Some("capacity"));
    assert_eq!(error(json!({ "udp": "10ms" })), Some("udp"));
    assert_eq!(error(json!({ "tcp_established": "169h" })), Some("tcp_established"));
    assert_eq!(error(json!({ "capacity": 64, "icmp": "1s", "other": "168h" })), None);
}
