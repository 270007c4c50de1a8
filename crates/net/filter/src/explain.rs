//! Expressions in words: with everything that is implied.
#![forbid(unsafe_code)]

use std::fmt::{self, Write};

use crate::syntax::{AddressKind, Connective, Id, Node, Primitive, Protocol};

/// Prints a tree with everything that its tests imply. The result is for readers; it is not an expression itself.
pub(crate) fn explain(node: &Node) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_node(&mut text, node);
    text
}

fn write_node(text: &mut String, node: &Node) -> fmt::Result {
    match node {
        Node::Primitive(primitive, _) => write_primitive(text, primitive),
        Node::Not(inner, _) => {
            text.push_str("not ");
            write_operand(text, inner)
        }
        Node::Chain { first, rest, .. } => {
            write_operand(text, first)?;
            for (connective, node) in rest {
                text.push_str(match connective {
                    Connective::And => " and ",
                    Connective::Or => " or ",
                });
                write_operand(text, node)?;
            }
            Ok(())
        }
    }
}

fn write_operand(text: &mut String, node: &Node) -> fmt::Result {
    if matches!(node, Node::Chain { .. }) {
        text.push('(');
        write_node(text, node)?;
        text.push(')');
        Ok(())
    } else {
        write_node(text, node)
    }
}

fn write_primitive(text: &mut String, primitive: &Primitive) -> fmt::Result {
    match primitive {
        Primitive::Address { qualifiers, id } => {
            let is_port = matches!(qualifiers.kind, AddressKind::Port | AddressKind::PortRange);
            let is_chosen = matches!(qualifiers.kind, AddressKind::Proto | AddressKind::ProtoChain);
            let implied = match (qualifiers.protocol, id) {
                (None, _) if is_port => "(tcp or udp or sctp) ",
                (None, _) if is_chosen => "(ip or ip6) ",
                (None, Id::Ipv6(..)) => "ip6 ",
                (None, Id::Name(_)) if qualifiers.kind != AddressKind::Net => "(ip or arp or rarp or ip6) ",
                (None, _) => "(ip or arp or rarp) ",
                (Some(_), _) => "",
            };
            text.push_str(implied);
            write!(text, "{qualifiers}{id}")
        }
        Primitive::Protocol(protocol) => write_protocol(text, *protocol),
        other => write!(text, "{other}"),
    }
}

fn write_protocol(text: &mut String, protocol: Protocol) -> fmt::Result {
    match protocol {
        Protocol::Tcp | Protocol::Udp | Protocol::Sctp | Protocol::Pim | Protocol::Ah | Protocol::Esp => {
            write!(text, "(ip or ip6) proto {protocol}")
        }
        Protocol::Icmp | Protocol::Igmp | Protocol::Igrp | Protocol::Vrrp => write!(text, "ip proto {protocol}"),
        // It has the number of VRRP.
        Protocol::Carp => text.write_str("ip proto vrrp"),
        Protocol::Icmp6 => text.write_str("ip6 proto icmp6"),
        Protocol::Esis | Protocol::Isis | Protocol::Clnp => write!(text, "iso proto {protocol}"),
        Protocol::L1
        | Protocol::L2
        | Protocol::Iih
        | Protocol::Lsp
        | Protocol::Snp
        | Protocol::Csnp
        | Protocol::Psnp => {
            write!(text, "isis proto {protocol}")
        }
        Protocol::Link | Protocol::Radio => write!(text, "{protocol}"),
        other => write!(text, "ether proto {other}"),
    }
}
