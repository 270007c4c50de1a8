//! Rules whose meaning may be another than it seems.

use std::ops::Range;

use super::{Expressed, reached};
use crate::mistake::WarningKind;
use crate::syntax::{AddressKind, Arithmetic, Connective, Direction, Element, Id, Node, Primitive, Protocol, Relation};

/// What becomes of packets that match a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// They pass.
    Pass,
    /// They do not.
    Refuse,
}

/// Which packets come to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// All frames of a link.
    Link,
    /// IP packets that a router has received, without their VLAN tags.
    Received,
    /// IP packets that a router sends, without VLAN tags, behind the Ethernet header with which they came.
    Sent,
}

/// Something about a rule that may surprise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surprise {
    /// The position of the rule.
    pub rule: usize,
    /// The place: bytes of the expression.
    pub range: Range<usize>,
    /// What it is.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// What may surprise about a list of rules.
pub fn surprises(rules: &[(Effect, Expressed)], site: Site) -> Vec<Surprise> {
    let expressed: Vec<Expressed> = rules.iter().map(|(_, rule)| rule.clone()).collect();
    let reached = reached(&expressed);
    let mut all = Vec::new();
    let is_icmp6 = |primitive: &Primitive| matches!(primitive, Primitive::Protocol(Protocol::Icmp6));
    let has_icmp6 = rules.iter().any(|(_, rule)| has(rule, &is_icmp6));
    for (number, ((effect, rule), is_reached)) in rules.iter().zip(&reached).enumerate() {
        let whole = rule.tree.as_ref().map_or(0..0, Node::range);
        let pins_extension = has(rule, &pins_extension);
        let mut walk = Walk { effect: *effect, site, has_icmp6, pins_extension, rule: number, all: &mut all };
        if !is_reached {
            let alone = super::reached(std::slice::from_ref(rule));
            let (message, help) = match alone.first() {
                Some(false) => ("this rule matches no packet: its tests exclude each other", "correct or remove it"),
                _ => (
                    "no packet comes to this rule: those before it decide about all that it matches",
                    "move it up, or remove it",
                ),
            };
            walk.add(whole, message, help);
            continue;
        }
        for warning in rule.warnings.iter().filter(|warning| warning.kind == WarningKind::MatchesEverything) {
            walk.add(warning.range.clone(), &warning.message, "leave it out");
        }
        if let Some(tree) = &rule.tree {
            walk.node(tree, false);
        }
    }
    if !rules.is_empty() && rules.iter().all(|(effect, _)| *effect == Effect::Refuse) {
        let rule = rules.len() - 1;
        let range = rules[rule].1.tree.as_ref().map_or(0..0, Node::range);
        let message = "no rule permits anything, and what matches no rule is denied: nothing passes".to_owned();
        all.push(Surprise { rule, range, message, help: "add `permit` as the last rule to pass the rest".to_owned() });
    }
    all
}

/// Whether a test of a rule is one of these.
fn has(rule: &Expressed, is: &dyn Fn(&Primitive) -> bool) -> bool {
    fn any(node: &Node, is: &dyn Fn(&Primitive) -> bool) -> bool {
        match node {
            Node::Primitive(primitive, _) => is(primitive),
            Node::Not(inner, _) => any(inner, is),
            Node::Chain { first, rest, .. } => any(first, is) || rest.iter().any(|(_, node)| any(node, is)),
        }
    }
    rule.tree.as_ref().is_some_and(|tree| any(tree, is))
}

fn elements(arithmetic: &Arithmetic) -> Vec<Element> {
    arithmetic.elements.iter().map(|(element, _)| *element).collect()
}

/// Whether a number is a byte at a place of a header.
fn is_byte(arithmetic: &Arithmetic, of: Protocol, at: u32) -> bool {
    matches!(elements(arithmetic)[..], [
        Element::Number(number),
        Element::Load { protocol, size: None | Some(1) }
    ] if number == at && protocol == of)
}

/// Whether a test asks for an extension header next to the header of IPv6, so that places behind it are meant.
fn pins_extension(primitive: &Primitive) -> bool {
    let Primitive::Relation { left, relation: Relation::Equal, right } = primitive else { return false };
    is_byte(left, Protocol::Ip6, 6) && matches!(elements(right)[..], [Element::Number(0 | 43 | 44 | 51 | 60)])
}

struct Walk<'a> {
    effect: Effect,
    site: Site,
    has_icmp6: bool,
    pins_extension: bool,
    rule: usize,
    all: &'a mut Vec<Surprise>,
}

impl Walk<'_> {
    fn add(&mut self, range: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.all.push(Surprise { rule: self.rule, range, message: message.into(), help: help.into() });
    }

    fn node(&mut self, node: &Node, is_negated: bool) {
        match node {
            Node::Primitive(primitive, range) => self.primitive(primitive, range, is_negated),
            Node::Not(inner, range) => {
                if self.effect == Effect::Pass && !is_negated && self.rule_is(node) && self.site == Site::Link {
                    self.add(
                        range.clone(),
                        format!("`{node}` also matches what is not IP at all, such as ARP"),
                        format!("write `(ip or ip6) and {node}`, or `permit` what is not IP in a rule of its own"),
                    );
                }
                self.node(inner, !is_negated);
            }
            Node::Chain { first, rest, range } => {
                let or = rest.iter().position(|(connective, _)| *connective == Connective::Or);
                if or.is_some_and(|or| rest[or..].iter().any(|(connective, _)| *connective == Connective::And)) {
                    self.add(
                        range.clone(),
                        "`and` and `or` bind equally, from left to right: the last `and` is about all that is before it",
                        "put parentheses around what belongs together",
                    );
                }
                self.node(first, is_negated);
                rest.iter().for_each(|(_, node)| self.node(node, is_negated));
            }
        }
    }

    /// Whether a node is not within another. Only nodes of one rule are walked through.
    fn rule_is(&self, node: &Node) -> bool {
        node.range().start == 0
    }

    fn primitive(&mut self, primitive: &Primitive, range: &Range<usize>, is_negated: bool) {
        let refuses = self.effect == Effect::Refuse;
        if self.site != Site::Link && is_never_routed(primitive) {
            let message = format!("`{primitive}` matches nothing here, where only IP packets come, without VLAN tags");
            return self.add(range.clone(), message, "give the rule to the interface of the VLAN, or remove it");
        }
        let is_of_link = match primitive {
            Primitive::Address { id: Id::Mac(_), .. } | Primitive::Byte { .. } => true,
            Primitive::Broadcast(protocol) | Primitive::Multicast(protocol) => {
                matches!(protocol, None | Some(Protocol::Link))
            }
            Primitive::Relation { left, right, .. } => [left, right].into_iter().any(loads_link),
            _ => false,
        };
        if self.site == Site::Sent && is_of_link {
            let message = format!("`{primitive}` is about the Ethernet header with which the packet came in");
            self.add(range.clone(), message, "write the rule into `access_in`, or ask for IP addresses");
        }
        match primitive {
            Primitive::Address { qualifiers, id } => {
                let is_host = matches!(qualifiers.kind, AddressKind::Default | AddressKind::Host);
                let is_port = matches!(qualifiers.kind, AddressKind::Port | AddressKind::PortRange);
                let is_any = qualifiers.direction == Direction::Any;
                if is_port && is_any && !refuses && !is_negated {
                    let of = if qualifiers.protocol.is_none() { " of TCP, UDP and SCTP" } else { "" };
                    let message =
                        format!("`{primitive}` also permits packets from this port{of}, which any sender can choose");
                    self.add(
                        range.clone(),
                        message,
                        "write `dst port`; or `src or dst port`, if that is what you mean",
                    );
                }
                if is_host && matches!(id, Id::Number(_)) && qualifiers.protocol != Some(Protocol::Decnet) {
                    let message = format!("`{primitive}` is the address of a host, not a port");
                    self.add(range.clone(), message, "write `port`, or the address with dots");
                }
                if let (Id::Ipv4(text), true) = (id, is_host)
                    && text.split('.').count() < 4
                    && qualifiers.protocol != Some(Protocol::Decnet)
                {
                    let message = format!("`{text}` is no whole address: it stands for a network");
                    self.add(range.clone(), message, "write all four numbers, or `net`");
                }
                let is_ipv4 = matches!(id, Id::Ipv4(_) | Id::Ipv4Prefix(..) | Id::Ipv4Mask(..) | Id::Name(_));
                let is_address = is_host || qualifiers.kind == AddressKind::Net;
                if is_address && is_ipv4 && refuses && qualifiers.protocol.is_none() && self.site == Site::Link {
                    let message = format!("`{primitive}` also refuses ARP about this address");
                    self.add(range.clone(), message, "write `ip` in front of it, or permit `arp` before");
                }
                if qualifiers.protocol == Some(Protocol::Ip)
                    && matches!(qualifiers.kind, AddressKind::Proto | AddressKind::ProtoChain)
                    && refuses
                {
                    let message = format!("`{primitive}` does not match packets of IPv6");
                    self.add(range.clone(), message, "write `proto` without `ip` for both");
                }
            }
            Primitive::Protocol(Protocol::Icmp) if refuses && !self.has_icmp6 => {
                self.add(range.clone(), "`icmp` is that of IPv4 alone", "write `icmp or icmp6` for both");
            }
            Primitive::Relation { left, right, relation } => {
                let is_flags = |arithmetic: &Arithmetic| is_byte(arithmetic, Protocol::Tcp, 13);
                if matches!(relation, Relation::Equal | Relation::NotEqual) && (is_flags(left) || is_flags(right)) {
                    let message =
                        format!("`{primitive}` is about all flags: those for congestion (ECN) are set in some SYNs");
                    self.add(
                        range.clone(),
                        message,
                        "write `tcp[tcpflags] & (tcp-syn | tcp-ack) = tcp-syn`, for example",
                    );
                }
                for arithmetic in [left, right] {
                    self.arithmetic(arithmetic);
                }
            }
            _ => {}
        }
    }

    /// Warns of bytes at places where other headers may be.
    fn arithmetic(&mut self, arithmetic: &Arithmetic) {
        let mut before = None;
        for (element, range) in &arithmetic.elements {
            if let (&Element::Load { protocol, .. }, Some(&Element::Number(at))) = (element, before) {
                let (what, help) = match (protocol, at) {
                    (Protocol::Ip, 20..) => {
                        ("options may be here", "name the protocol whose bytes you mean: `tcp[13]`")
                    }
                    (Protocol::Ip6, _) if self.pins_extension => continue,
                    (Protocol::Ip6, 6) => (
                        "this is the number of the next header, which need not be the upper layer",
                        "write `ip6 proto NUMBER`, or the name of the protocol",
                    ),
                    (Protocol::Ip6, 40..) => {
                        ("extension headers may be here", "name the protocol whose bytes you mean: `tcp[13]`")
                    }
                    (Protocol::Link, 12..) if self.site == Site::Link => {
                        ("VLAN tags may be here", "name the protocol whose bytes you mean: `ip[8]`")
                    }
                    (Protocol::Link, 14..) => {
                        ("options may be here", "name the protocol whose bytes you mean: `tcp[13]`")
                    }
                    _ => ("", ""),
                };
                if !what.is_empty() {
                    self.add(range.clone(), format!("`{protocol}[{at}]` is at a fixed place: {what}"), help);
                }
            }
            before = Some(element);
        }
    }
}

fn loads_link(arithmetic: &Arithmetic) -> bool {
    arithmetic.elements.iter().any(|(element, _)| matches!(element, Element::Load { protocol: Protocol::Link, .. }))
}

/// Whether a test is for what a router does not forward, or for headers that it has removed.
fn is_never_routed(primitive: &Primitive) -> bool {
    match primitive {
        Primitive::Vlan(_)
        | Primitive::Mpls(_)
        | Primitive::PppoeDiscovery
        | Primitive::PppoeSession(_)
        | Primitive::Llc(_) => true,
        Primitive::Protocol(protocol) => matches!(
            protocol,
            Protocol::Arp
                | Protocol::Rarp
                | Protocol::Atalk
                | Protocol::Aarp
                | Protocol::Decnet
                | Protocol::Lat
                | Protocol::Sca
                | Protocol::Moprc
                | Protocol::Mopdl
                | Protocol::Iso
                | Protocol::Stp
                | Protocol::Ipx
                | Protocol::Netbeui
        ),
        Primitive::Address { qualifiers, id } => {
            let is_ip = |name: &str| matches!(name, "ip" | "ip6");
            qualifiers.protocol == Some(Protocol::Link)
                && qualifiers.kind == AddressKind::Proto
                && !matches!(id, Id::Number(0x0800 | 0x86dd))
                && !matches!(id, Id::Name(name) if is_ip(name))
                || matches!(qualifiers.protocol, Some(Protocol::Arp | Protocol::Rarp))
        }
        _ => false,
    }
}
