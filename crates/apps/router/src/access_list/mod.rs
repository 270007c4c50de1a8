//! `access-list`: passes the packets that rules permit.
//!
//! | file | contents |
//! |---|---|
//! | `list.rs` | the rules of a list, compiled |

mod list;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bellows_common::nexts::{Next, NextVectors};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, Status, counters};
use bellows_filter::access::{Site, Unknown};
use bellows_packet::{CAPACITY, Packet};
use bellows_vrf::route::IpPrefix;
use bellows_vrf::{IcmpError, Interface, Reason, Tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::list::{Fate, List, ListStatus, RuleCounts};
use crate::access_rules::{self, Rule, RuleAction};
use crate::forwarding::{UNUSUAL, USUAL};
use crate::vrf::RoutingDomain;

/// Passes the packets that rules permit.
///
/// A rule is `permit`, `deny` or `reject`, and behind it an expression in the language of tcpdump, or nothing for all
/// packets. The first rule that matches counts, and packets that match none are denied.
///
/// Other than in tcpdump, tests look wherever their protocol is: behind VLAN tags, IPv4 options and IPv6 extension headers,
/// and `tcp[13]` looks into IPv6, too. A packet of which a rule cannot be decided, because it is a fragment, was cut off, or
/// has headers that hide what the rule asks for, is dropped as `undecided_...`, unless a rule before that decides about it.
///
/// Rejected packets go to `error`,
/// tagged for an app `ip4-icmp-error` or `ip6-icmp-error`, which tells their senders that communication is prohibited;
/// if it is not linked, they are denied. All rules are decided in one pass over the headers. The status counts the
/// packets of each rule.
///
/// With `vrf`, an interface's packets are decided by its rules: `access_in` or `access_out` in the routing domain.
/// Packets of interfaces without rules pass. IPv6 neighbour discovery on a link, and queries for multicast groups, pass
/// `access_in` whatever it says, because nothing works without them; what is on its way to another link does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The rules for all packets: `["permit tcp dst port 22", "reject udp", "deny"]`. At most 4,096. Not with `vrf`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,

    /// The routing domain: the name of an object of type `vrf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,

    /// Whose rules count, with `vrf`.
    pub direction: Direction,
}

/// The direction of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Direction {
    /// The interface that received the packet.
    #[default]
    In,
    /// The interface of the packet's adjacency, behind a look-up.
    Out,
}

/// The most rules of a list.
const MAX_RULES: usize = 4096;

/// Neighbour discovery (RFC 4861) that no router has forwarded. It is next to the IPv6 header; elsewhere, rules decide.
const DISCOVERY: &str = "ip6[6] = 58 and ip6[40] >= 133 and ip6[40] <= 137 and ip6[7] = 255";

/// Queries and reports of multicast groups (RFC 2710, RFC 3810) behind a router alert, which stay on their link.
const LISTENERS: &str = "ip6[6] = 0 and ip6[40] = 58 and ip6[41] = 0 and (ip6[48] >= 130 and ip6[48] <= 132 or ip6[48] = 143) and ip6[7] = 1";

/// What passes whatever the rules say: neighbour discovery on the link, and that which switches need for it. This
/// router would forward messages to other destinations, and whatever is in them.
fn discovery(interface: &Interface) -> Result<Rule, SettingError> {
    let own = interface.addresses.iter().filter(|own| own.address.is_ipv6());
    let links = own.filter_map(|own| IpPrefix::of(own.address, own.length));
    let links: String = links.map(|link| format!(" or dst net {link}")).collect();
    let expression = format!(
        "permit ({DISCOVERY} and (dst net fe80::/10 or dst net ff00::/8{links})) or ({LISTENERS} and dst net ff02::/16)"
    );
    Rule::parse(&expression).map_err(|error| SettingError::at("vrf", error.message, error.help))
}

/// No list.
const NONE: u16 = u16::MAX;

/// Passes the packets that rules permit.
pub struct AccessList {
    domain: Option<Arc<RoutingDomain>>,
    direction: Direction,
    lists: Vec<List>,
    /// The list of each interface, by its number; of all packets without a routing domain.
    by_interface: Vec<u16>,
    shown: Arc<Shown>,
    next_vectors: NextVectors,
    verdicts: Vec<Fate>,
}

/// The rules and their counters, for other threads.
struct Shown(Vec<Arc<RuleCounts>>);

impl Status for Shown {
    fn status(&self) -> Value {
        json!(AccessListStatus { lists: self.0.iter().map(|counts| counts.status()).collect() })
    }
}

/// The status of an access list.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `access-list`")]
struct AccessListStatus {
    /// The lists of rules.
    lists: Vec<ListStatus>,
}

counters! { AccessList;
    asked drop DENIED = "denied", "packets that no rule permits";
    drop UNDECIDED_FRAGMENT = "undecided_fragment", "fragments without what a rule asks for: later ones, or too short first ones";
    drop UNDECIDED_SHORT = "undecided_short", "packets without what a rule asks for, because they were cut off or are too short";
    drop UNDECIDED_HEADERS = "undecided_headers", "packets in which other headers hide what a rule asks for";
    count PERMITTED = "permitted", "packets that a rule permits, or that no list is for";
    count REJECTED = "rejected", "packets whose senders are told";
}

/// The place of an output.
const ERROR: usize = 1;

impl App for AccessList {
    const INPUTS: Ports = Ports::Named(&[
        Port::required("input", "packets behind an Ethernet header"),
        Port::optional("options", "as `input`: packets from `ip4-options`"),
    ]);
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "those that are permitted"),
        Port::optional("error", "those whose sender is to be told"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        self.next_vectors.resize(io.outputs());
        for index in io.waiting_inputs() {
            self.pass(io, index);
        }
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(Arc::clone(&self.shown) as Arc<dyn Status>)
    }
}

impl AccessList {
    /// Passes the packets of an input that are permitted.
    fn pass(&mut self, io: &Io<Self>, index: usize) {
        let mut input = io.input(index);
        if input.is_empty() {
            return;
        }
        let packets = input.packets_mut();
        let count = packets.len();
        self.decide(packets);
        let has_error = io.is_linked(ERROR);
        let (mut permitted, mut rejected) = (0, 0);
        for ((packet, verdict), number) in packets.iter_mut().zip(&self.verdicts).zip(self.next_vectors.nexts(count)) {
            *number = match verdict {
                Fate::By(RuleAction::Permit) => {
                    permitted += 1;
                    USUAL
                }
                Fate::By(RuleAction::Reject) if has_error => {
                    rejected += 1;
                    packet.set_tag(Tag(packet.tag()).with(IcmpError::of(Reason::Prohibited).number()).0);
                    ERROR as u16
                }
                Fate::By(_) | Fate::Undecided(_) => UNUSUAL,
            };
        }
        io.count(AccessList::PERMITTED, permitted);
        io.count(AccessList::REJECTED, rejected);
        // In the order of the packets, which are asked about one by one.
        let is_sent = |fate: &&Fate| match fate {
            Fate::By(RuleAction::Reject) => has_error,
            fate => **fate == Fate::By(RuleAction::Permit),
        };
        let mut refused = self.verdicts[..count].iter().filter(|fate| !is_sent(fate));
        self.next_vectors.send_all(io, index, input, |_| {
            Next::Drop(match refused.next() {
                Some(Fate::Undecided(Unknown::Fragment)) => AccessList::UNDECIDED_FRAGMENT,
                Some(Fate::Undecided(Unknown::Missing)) => AccessList::UNDECIDED_SHORT,
                Some(Fate::Undecided(Unknown::Headers)) => AccessList::UNDECIDED_HEADERS,
                _ => AccessList::DENIED,
            })
        });
    }

    /// What becomes of each packet. Hot.
    fn decide(&mut self, packets: &[Packet]) {
        let AccessList { domain, direction, lists, by_interface, verdicts, .. } = self;
        let of = |packet: &Packet| {
            let number = match (domain.as_deref(), *direction) {
                (None, _) => 0,
                (Some(_), Direction::In) => Tag(packet.tag()).interface(),
                (Some(domain), Direction::Out) => {
                    domain.tables().adjacencies().state(Tag(packet.tag()).number()).interface()
                }
            };
            by_interface.get(usize::from(number)).copied().unwrap_or(NONE)
        };
        let mut start = 0;
        for same in packets.chunk_by(|packet, next| of(packet) == of(next)) {
            let verdicts = &mut verdicts[start..start + same.len()];
            match lists.get_mut(usize::from(of(&same[0]))) {
                Some(list) => list.decide(same, verdicts),
                None => verdicts.fill(Fate::By(RuleAction::Permit)),
            }
            start += same.len();
        }
    }

    /// The lists of a routing domain's interfaces.
    fn of_interfaces(
        domain: &RoutingDomain,
        direction: Direction,
        context: &Context,
    ) -> Result<(Vec<List>, Vec<u16>), SettingError> {
        let (mut lists, mut by_interface) = (Vec::new(), vec![NONE]);
        for (number, interface) in (1..).zip(domain.tables().interfaces()) {
            let rules = domain.policies().of(number).map_or(&[][..], |policy| match direction {
                Direction::In => &policy.access_in,
                Direction::Out => &policy.access_out,
            });
            if rules.is_empty() {
                by_interface.push(NONE);
                continue;
            }
            let rules = match direction {
                Direction::In => [&[discovery(interface)?][..], rules].concat(),
                // Discovery on the link is sent without a look-up. What has one is on its way to somewhere else.
                Direction::Out => rules.to_vec(),
            };
            by_interface.push(lists.len() as u16);
            lists.push(compile("vrf", &interface.name, &rules, context)?);
        }
        Ok((lists, by_interface))
    }
}

/// Compiles the rules that a key leads to.
fn compile(key: &'static str, name: &str, rules: &[Rule], context: &Context) -> Result<List, SettingError> {
    if rules.len() > MAX_RULES {
        let message = format!("{} rules are more than one list has", rules.len());
        return Err(SettingError::at(key, message, format!("give at most {MAX_RULES}")));
    }
    let simpler = |message| SettingError::at(key, message, "give simpler rules, or fewer");
    List::compile(name, rules, context).map_err(simpler)
}

impl Configure for AccessList {
    const NAME: &'static str = "access-list";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<AccessListStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::with_keys("rules = [\"deny tcp port 5555\", \"deny src net 10.0.0.0/8\", \"permit\"]")
    }

    fn configure(config: Config, context: &Context) -> Result<AccessList, SettingError> {
        let (domain, lists, by_interface) = match (&config.vrf, config.rules.is_empty()) {
            (Some(_), false) => {
                let help = "give the rules to interfaces of the routing domain, or leave out `vrf`";
                return Err(SettingError::at("rules", "`rules` and `vrf` exclude each other", help));
            }
            (Some(vrf), true) => {
                let domain: Arc<RoutingDomain> = context.object("vrf", vrf)?;
                let (lists, by_interface) = AccessList::of_interfaces(&domain, config.direction, context)?;
                (Some(domain), lists, by_interface)
            }
            (None, true) => {
                let help = "give rules such as `[\"permit tcp port 22\", \"deny\"]`, or `vrf`";
                return Err(SettingError::at("rules", "a list without rules denies everything", help));
            }
            (None, false) => {
                let mut rules = Vec::new();
                for (place, text) in config.rules.iter().enumerate() {
                    rules.push(Rule::parse(text).map_err(|error| {
                        let message = format!("`{text}`: {}", error.message);
                        SettingError::at("rules", message, error.help).in_item(place).in_text(error.range)
                    })?);
                }
                for (place, warning) in access_rules::warnings(&rules, Site::Link) {
                    let message = format!("`{}`: {}", config.rules[place], warning.message);
                    let warning = SettingError::at("rules", message, warning.help).in_text(warning.range);
                    context.warn(warning.in_item(place));
                }
                (None, vec![compile("rules", "", &rules, context)?], vec![0])
            }
        };
        let shown = Arc::new(Shown(lists.iter().map(List::counts).collect()));
        let verdicts = vec![Fate::By(RuleAction::Deny); CAPACITY];
        let direction = config.direction;
        Ok(AccessList { domain, direction, lists, by_interface, shown, next_vectors: NextVectors::new(), verdicts })
    }
}
