//! Properties of expressions that may surprise.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::generate::is_shift;
use crate::link::LinkType;
use crate::mistake::{Warning, WarningKind};
use crate::options::{Options, Scope};
use crate::syntax::{AddressKind, Connective, Element, Id, Node, Primitive, Protocol};

/// The warnings that follow from the tree alone.
pub(crate) fn find(tree: &Node, options: &Options<'_>) -> Vec<Warning> {
    let mut walk = Walk { text_shifts: Vec::new(), warnings: Vec::new(), plain: None, has_escaped: false };
    walk.node(tree, &mut Vec::new());
    let mut warnings = if options.scope != Scope::Lexical { walk.warnings } else { Vec::new() };
    warnings.extend(negated(tree, false).map(|(name, range)| Warning {
        range,
        kind: WarningKind::MatchesHidden,
        message: format!(
            "`not {name}` also matches packets that have it where the test does not look: behind IPv6 extension \
             headers, in later fragments, and behind VLAN tags; the app `access-list` looks there, and refuses what \
             cannot be decided"
        ),
    }));
    if options.link_type == LinkType::Ethernet
        && walk.text_shifts.is_empty()
        && let Some((name, range)) = walk.plain
    {
        warnings.push(Warning {
            range,
            kind: WarningKind::SkipsTagged,
            message: format!("`{name}` does not match packets with a VLAN tag; `vlan and ...` matches those"),
        });
    }
    warnings
}

/// The warning that an expression means something else to libpcap 1.10 than its arithmetic says.
pub(crate) fn libpcap_differs(range: Range<usize>, has_faults: bool) -> Warning {
    let message = if has_faults {
        "for some packets the verdict is not what the arithmetic says: it is that of libpcap 1.10, whose optimiser has a \
         fault; in the scope `libpcap` it is right"
    } else {
        "libpcap 1.10 decides some packets otherwise, by a fault of its optimiser, and so does tcpdump with it; the scope \
         `libpcap-1.10` has its verdicts"
    };
    Warning { range, kind: WarningKind::LibpcapDiffers, message: message.to_owned() }
}

/// The first test that is negated of what is behind an IP header.
fn negated(node: &Node, is_negated: bool) -> Option<(String, Range<usize>)> {
    match node {
        Node::Primitive(primitive, range) => {
            (is_negated && is_above_ip(primitive)).then(|| (primitive.to_string(), range.clone()))
        }
        Node::Not(inner, _) => negated(inner, !is_negated),
        Node::Chain { first, rest, .. } => {
            let others = rest.iter().map(|(_, node)| node);
            [&**first].into_iter().chain(others).find_map(|node| negated(node, is_negated))
        }
    }
}

/// Whether a test looks behind the IP header.
fn is_above_ip(primitive: &Primitive) -> bool {
    match primitive {
        Primitive::Address { qualifiers, .. } => match qualifiers.kind {
            AddressKind::Port | AddressKind::PortRange => true,
            AddressKind::Proto => matches!(qualifiers.protocol, None | Some(Protocol::Ip6)),
            _ => false,
        },
        Primitive::Protocol(protocol) => matches!(
            protocol,
            Protocol::Tcp
                | Protocol::Udp
                | Protocol::Sctp
                | Protocol::Icmp6
                | Protocol::Pim
                | Protocol::Esp
                | Protocol::Ah
        ),
        _ => false,
    }
}

/// What a shift does to the headers after it. Equal ones shift alike.
#[derive(Clone, Debug, PartialEq)]
enum Shift {
    Vlan,
    Mpls,
    Pppoe,
    /// Each of them has its own position.
    Geneve(usize),
}

struct Walk {
    /// All shifts so far, in the order of the text, each with its test, place, and whether there is a warning of it.
    text_shifts: Vec<(Shift, String, Range<usize>, bool)>,
    warnings: Vec<Warning>,
    /// The first test of a network protocol.
    plain: Option<(String, Range<usize>)>,
    /// Whether a shift has gone beyond its lexical scope.
    has_escaped: bool,
}

impl Walk {
    /// Walks through a node. `scope` are the shifts of the lexical scope.
    fn node(&mut self, node: &Node, scope: &mut Vec<Shift>) {
        match node {
            Node::Primitive(primitive, range) => self.primitive(primitive, range, scope),
            Node::Not(inner, _) => {
                let before = scope.len();
                self.node(inner, scope);
                self.has_escaped |= scope.len() > before;
                scope.truncate(before);
            }
            Node::Chain { first, rest, .. } => {
                let start = scope.len();
                self.node(first, scope);
                for (connective, node) in rest {
                    match connective {
                        Connective::And => self.node(node, scope),
                        Connective::Or => {
                            let ended = scope.split_off(start);
                            self.has_escaped |= !ended.is_empty();
                            self.node(node, scope);
                            if scope[start..] != ended {
                                self.has_escaped |= scope.len() > start;
                                scope.truncate(start);
                            }
                        }
                    }
                }
            }
        }
    }

    fn primitive(&mut self, primitive: &Primitive, range: &Range<usize>, scope: &mut Vec<Shift>) {
        if self.has_escaped && depends_on_headers(primitive) {
            let differing = self
                .text_shifts
                .iter()
                .enumerate()
                .find(|(index, (shift, ..))| scope.get(*index) != Some(shift))
                .map(|(index, _)| index);
            if let Some(index) = differing
                && let (_, name, place, is_warned @ false) = &mut self.text_shifts[index]
            {
                *is_warned = true;
                self.warnings.push(Warning {
                    range: place.clone(),
                    kind: WarningKind::ShiftEscapes,
                    message: format!(
                        "`{name}` shifts everything after it, also `{primitive}`, across `or`, `not` and parentheses: \
                         `{primitive}` looks behind one more header than it seems to; it does not in the lexical scope"
                    ),
                });
            }
        }
        if is_shift(primitive) {
            let shift = match primitive {
                Primitive::Mpls(_) => Shift::Mpls,
                Primitive::PppoeSession(_) => Shift::Pppoe,
                Primitive::Geneve(_) => Shift::Geneve(self.text_shifts.len()),
                _ => Shift::Vlan,
            };
            scope.push(shift.clone());
            self.text_shifts.push((shift, primitive.to_string(), range.clone(), false));
        } else if self.plain.is_none() && is_above_link(primitive) {
            self.plain = Some((primitive.to_string(), range.clone()));
        }
    }
}

fn has_load(elements: &[(Element, Range<usize>)], is_it: impl Fn(Protocol) -> bool) -> bool {
    elements.iter().any(|(element, _)| matches!(element, Element::Load { protocol, .. } if is_it(*protocol)))
}

/// Whether a test looks at headers, whose positions may be shifted.
fn depends_on_headers(primitive: &Primitive) -> bool {
    match primitive {
        Primitive::Less(_) | Primitive::Greater(_) => false,
        Primitive::Relation { left, right, .. } => {
            has_load(&left.elements, |_| true) || has_load(&right.elements, |_| true)
        }
        _ => true,
    }
}

/// Whether a test looks at the network protocol or above.
fn is_above_link(primitive: &Primitive) -> bool {
    match primitive {
        Primitive::Address { qualifiers, id } => {
            !matches!(id, Id::Mac(_))
                && (qualifiers.protocol != Some(Protocol::Link) || qualifiers.kind == AddressKind::Proto)
        }
        Primitive::Protocol(_) => true,
        Primitive::Broadcast(protocol) | Primitive::Multicast(protocol) => {
            !matches!(protocol, None | Some(Protocol::Link))
        }
        Primitive::Relation { left, right, relation: _ } => {
            let is_above = |protocol| protocol != Protocol::Link;
            has_load(&left.elements, is_above) || has_load(&right.elements, is_above)
        }
        _ => false,
    }
}
