//! What other routers of a link advertise, beside what this one does (RFC 4861, section 6.2.7).

use std::collections::HashMap;
use std::net::Ipv6Addr;

use bellows_engine::{Count, Io};
use bellows_vrf::Interface;
use bellows_wire::ndp::{Message, PrefixOption, option_type};
use tracing::warn;

use super::Nd;
use crate::ipv6_link::{Advertised, MANAGED, OTHER};

/// The shortest time between two lines in the log about one kind of disagreement on a link.
const PAUSE: u64 = 3_600_000_000_000;

/// When a disagreement was last logged, by the number of the interface and the kind.
pub(super) type Told = HashMap<(u16, Disagreement), u64>;

/// What two routers disagree about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Disagreement {
    HopLimit,
    Flags,
    Mtu,
    Lifetimes,
}

impl Disagreement {
    fn count(self) -> Count<Nd> {
        match self {
            Disagreement::HopLimit => Nd::HOP_LIMIT_DIFFERS,
            Disagreement::Flags => Nd::FLAGS_DIFFER,
            Disagreement::Mtu => Nd::MTU_DIFFERS,
            Disagreement::Lifetimes => Nd::LIFETIMES_DIFFER,
        }
    }
}

/// What the other router says, and what this one does.
type DisagreementTexts<'a> = &'a dyn Fn() -> [String; 2];

/// Finds what an advertisement says that makes hosts change from one value to another with each one they hear. What either
/// router leaves open is no disagreement, and neither are other prefixes. This router leaves the times of neighbour
/// discovery open.
fn differences(message: &Message<'_>, ours: &Advertised, mut found: impl FnMut(Disagreement, DisagreementTexts<'_>)) {
    let [hop_limit, flags, ..] = message.word().to_be_bytes();
    if ![hop_limit, ours.hop_limit].contains(&0) && hop_limit != ours.hop_limit {
        found(Disagreement::HopLimit, &|| [hop_limit, ours.hop_limit].map(|limit| format!("the hop limit {limit}")));
    }
    if (flags ^ ours.flags) & (MANAGED | OTHER) != 0 {
        let text = |flags: u8| format!("managed = {}, other = {}", flags & MANAGED != 0, flags & OTHER != 0);
        found(Disagreement::Flags, &|| [flags, ours.flags].map(text));
    }
    for (_, option) in message.options() {
        if let (Some(ours), Some(theirs)) = (ours.mtu.map(u32::from), mtu_of(option))
            && ours != theirs
        {
            found(Disagreement::Mtu, &|| [theirs, ours].map(|mtu| format!("the MTU {mtu}")));
        }
        let Some(theirs) = PrefixOption::read(option) else { continue };
        let is_same = |own: &&PrefixOption| (own.prefix, own.length) == (theirs.prefix, theirs.length);
        let lifetimes = |it: &PrefixOption| (it.valid, it.preferred);
        if let Some(own) = ours.prefixes.iter().find(is_same).filter(|own| lifetimes(own) != lifetimes(&theirs)) {
            let text = |it: &PrefixOption| {
                let PrefixOption { prefix, length, valid, preferred, .. } = it;
                format!("{prefix}/{length} valid for {valid} s and preferred for {preferred} s")
            };
            found(Disagreement::Lifetimes, &|| [&theirs, own].map(text));
        }
    }
}

/// The MTU of an option (RFC 4861, section 4.6.4).
fn mtu_of(option: &[u8]) -> Option<u32> {
    let &[option_type::MTU, 1, _, _, a, b, c, d] = option else { return None };
    Some(u32::from_be_bytes([a, b, c, d]))
}

/// Whether a disagreement is to be logged again.
fn is_due(told: &mut Told, key: (u16, Disagreement), now: u64) -> bool {
    let is_due = told.get(&key).is_none_or(|&last| now >= last + PAUSE);
    if is_due {
        told.insert(key, now);
    }
    is_due
}

impl Nd {
    /// Compares the advertisement of another router with that of this one, if it advertises itself on the link.
    pub(super) fn compare(
        &mut self,
        io: &Io<Self>,
        number: u16,
        interface: &Interface,
        router: Ipv6Addr,
        message: &Message<'_>,
    ) {
        let Nd { resolver, told, .. } = self;
        let Some(ours) = resolver.domain.advertised(number) else { return };
        differences(message, ours, |kind, texts| {
            io.count(kind.count(), 1);
            if is_due(told, (number, kind), io.now()) {
                let ([theirs, ours], name) = (texts(), &interface.name);
                warn!(
                    "the router {router} on the link of the interface `{name}` advertises {theirs}, this one {ours}: hosts \
                     change from one to the other; give both routers the same (here: the key `advertise` of `{name}`)"
                );
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_wire::IpPair;
    use bellows_wire::ndp::{ALL_NODES, MessageDraft, message_type};

    fn prefix(address: &str, valid: u32) -> PrefixOption {
        let prefix = address.parse().unwrap();
        PrefixOption { prefix, length: 64, on_link: true, autonomous: true, valid, preferred: 600 }
    }

    /// The kinds of disagreement with an advertisement of these values.
    fn kinds(hop_limit: u8, flags: u8, mtu: Option<u16>, prefixes: &[PrefixOption]) -> Vec<Disagreement> {
        let ours = Advertised {
            interval: (1, 1),
            hop_limit: 64,
            flags: MANAGED,
            lifetime: 1800,
            mtu: Some(1400),
            prefixes: vec![prefix("2001:db8:1::", 3600)],
        };
        let mut draft =
            MessageDraft::new(message_type::ROUTER_ADVERTISEMENT, u32::from_be_bytes([hop_limit, flags, 0, 9]));
        draft.put(&[0; 8]);
        mtu.into_iter().for_each(|mtu| _ = draft.put_mtu(mtu));
        prefixes.iter().for_each(|prefix| _ = draft.put_prefix(prefix));
        let bytes = draft.finish(&IpPair::V6 { src: ALL_NODES, dst: ALL_NODES });
        let mut found = Vec::new();
        differences(&Message::new_checked(bytes).unwrap(), &ours, |kind, texts| {
            let [theirs, ours] = texts();
            assert_ne!(theirs, ours);
            found.push(kind);
        });
        found
    }

    #[test]
    fn only_what_makes_hosts_change_is_a_disagreement() {
        let same = prefix("2001:db8:1::", 3600);
        assert_eq!(kinds(64, MANAGED, Some(1400), &[same]), []);
        assert_eq!(kinds(0, MANAGED, None, &[]), [], "left open");
        assert_eq!(kinds(64, MANAGED | 0x20, None, &[prefix("2001:db8:9::", 7)]), [], "others of each");
        assert_eq!(kinds(63, MANAGED, None, &[]), [Disagreement::HopLimit]);
        assert_eq!(kinds(64, 0, None, &[]), [Disagreement::Flags]);
        assert_eq!(kinds(64, OTHER | MANAGED, None, &[]), [Disagreement::Flags]);
        assert_eq!(kinds(64, MANAGED, Some(1500), &[]), [Disagreement::Mtu]);
        assert_eq!(kinds(64, MANAGED, None, &[prefix("2001:db8:1::", 3601)]), [Disagreement::Lifetimes]);
        assert_eq!(kinds(1, 0, Some(1), &[same, prefix("2001:db8:1::", 1)]).len(), 4);
    }

    #[test]
    fn the_log_is_told_once_an_hour() {
        let mut told = Told::new();
        let keys = [(1, Disagreement::Mtu), (1, Disagreement::Flags), (2, Disagreement::Mtu)];
        for (now, expected) in [(5, true), (5, false), (PAUSE + 4, false), (PAUSE + 5, true), (PAUSE + 6, false)] {
            assert_eq!(keys.map(|key| is_due(&mut told, key, now)), [expected; 3], "{now}");
        }
    }
}
