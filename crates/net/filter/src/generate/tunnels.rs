//! Tests that shift those after them: `vlan`, `mpls`, `pppoes` and `geneve`.

use super::fragment::{Exits, Fragment};
use super::layout::{Base, LinkHeader, Position};
use super::numbers::{GENEVE_PORT, ethertype, ip_protocol};
use super::ports::Ports;
use super::{Generator, Made};
use crate::classic::ops::Ops;
use crate::classic::{Block, End, Op, Right};
use crate::graph::{ComparisonOperator, Operation, Width};
use crate::link::LinkType;
use crate::syntax::{Direction, Primitive};

impl Generator<'_> {
    pub(super) fn vlan(&mut self, number: Option<u32>) -> Made<Fragment> {
        if self.layout.mpls_labels > 0 {
            return self.mistake("there are no VLAN tags after `mpls`", "put `vlan` before `mpls`");
        }
        self.require_ethernet("VLAN tags")?;
        if let (Some(places), Some(position)) = (self.reading.places(), &mut self.layout.link_type) {
            let at = position.constant;
            position.constant = at.wrapping_add(4);
            return self.access_tag(&places, at, number);
        }
        let c = self.link_type(ethertype::VLAN)?;
        let s = self.link_type(ethertype::PROVIDER_VLAN)?;
        let both = self.or(c, s);
        let old = self.link_type(ethertype::OLD_PROVIDER_VLAN)?;
        let mut tag = self.or(both, old);
        if let Some(number) = number {
            if number > 0xfff {
                return self.mistake(format!("{number} is not a VLAN"), "VLANs are numbers from 0 to 4095");
            }
            let identifier = self.masked(Base::Network, 0, Width::Half, number, 0xfff);
            tag = self.and(tag, identifier);
        }
        self.layout.payload.constant = self.layout.payload.constant.wrapping_add(4);
        if let Some(position) = &mut self.layout.link_type {
            position.constant = position.constant.wrapping_add(4);
        }
        Ok(tag)
    }

    pub(super) fn mpls(&mut self, label: Option<u32>) -> Made<Fragment> {
        let mut test = if self.layout.mpls_labels > 0 {
            self.masked(Base::Label, 2, Width::Byte, 0, 0x01)
        } else {
            match self.layout.link {
                LinkHeader::Outer(LinkType::Ethernet) | LinkHeader::Geneve => self.link_type(ethertype::MPLS)?,
                LinkHeader::Ppp => self.link_type(0x0281)?,
                LinkHeader::Outer(_) => {
                    return self.mistake(
                        format!("there are no MPLS labels in {}", self.link_name()),
                        "`mpls` is for link type Ethernet only",
                    );
                }
            }
        };
        if let Some(label) = label {
            if label > 0xf_ffff {
                return self.mistake(format!("{label} is not an MPLS label"), "labels are numbers from 0 to 1048575");
            }
            let label = self.masked(Base::Shim, 0, Width::Word, label << 12, 0xffff_f000);
            test = self.and(test, label);
        }
        self.layout.network = self.layout.network.wrapping_add(4);
        self.layout.network_after_llc = self.layout.network_after_llc.wrapping_add(4);
        self.layout.mpls_labels += 1;
        Ok(test)
    }

    pub(super) fn pppoe_session(&mut self, session: Option<u32>) -> Made<Fragment> {
        let mut test = self.link_type(ethertype::PPPOE_SESSION)?;
        if let Some(session) = session {
            if session > 0xffff {
                return self
                    .mistake(format!("{session} is not a PPPoE session"), "sessions are numbers from 0 to 65535");
            }
            let session = self.masked(Base::Shim, 0, Width::Word, session, 0xffff);
            test = self.and(test, session);
        }
        if self.reading.is_of_access_list() {
            // Later tests look behind it in any case.
            return Ok(test);
        }
        let layout = &mut self.layout;
        layout.link = LinkHeader::Ppp;
        layout.link_header = Position {
            constant: layout.payload.constant.wrapping_add(layout.network).wrapping_add(6),
            word: layout.payload.word,
        };
        layout.link_type = Some(layout.link_header);
        layout.payload.constant = layout.link_header.constant.wrapping_add(2);
        layout.network = 0;
        layout.network_after_llc = 0;
        Ok(test)
    }

    pub(super) fn geneve(&mut self, network: Option<u32>) -> Made<Fragment> {
        let four = self.geneve_over(network, false)?;
        let six = self.geneve_over(network, true)?;
        let is_geneve = self.or(four, six);
        self.is_fixed = true;

        // The accumulator is the length of the IP header here, and the variable part of its position.
        let udp = self.layout.payload.constant.wrapping_add(self.layout.network).wrapping_add(8);
        let link_type = self.take_word()?;
        let link_header = self.take_word()?;
        let payload = self.take_word()?;
        let ops = Ops::of(&[
            Op::Constant(Operation::Add, udp),
            Op::ToIndex,
            Op::Constant(Operation::Add, 2),
            Op::Store(link_type),
            Op::LoadIndexed(Width::Byte, 0),
            Op::Constant(Operation::And, 0x3f),
            Op::Constant(Operation::Multiply, 4),
            Op::Constant(Operation::Add, 8),
            Op::Index(Operation::Add),
            Op::Store(link_header),
            Op::LoadIndexed(Width::Half, 2),
            Op::IndexMemory(link_header),
        ]);
        let is_bridged = self.test(ops, ComparisonOperator::Equal, Right::Constant(ethertype::TRANSPARENT_BRIDGING));
        // With an Ethernet header inside, its type counts, and the payload is behind it.
        let bridged = self.blocks.len();
        self.blocks.push(Block {
            ops: Ops::of(&[
                Op::FromIndex,
                Op::Constant(Operation::Add, 12),
                Op::Store(link_type),
                Op::Constant(Operation::Add, 2),
                Op::ToIndex,
            ]),
            end: End::Goto(bridged),
            part: self.place.clone(),
        });
        let ops = Ops::of(&[Op::StoreIndex(payload), Op::LoadConstant(0)]);
        let last = self.test(ops, ComparisonOperator::Equal, Right::Constant(0));
        self.patch(is_bridged.yes, bridged);
        self.patch(is_bridged.no, last.head);
        self.patch(Exits::one(2 * bridged), last.head);
        let offsets = Fragment { head: is_bridged.head, yes: last.yes, no: last.no };

        let variable = |word| Position { constant: 0, word: Some(word) };
        self.layout.link = LinkHeader::Geneve;
        self.layout.link_header = variable(link_header);
        self.layout.link_type = Some(variable(link_type));
        self.layout.payload = variable(payload);
        self.layout.network = 0;
        Ok(self.and(is_geneve, offsets))
    }

    /// Tests for Geneve over a version of IP, and leaves the length of the IP header in the accumulator.
    fn geneve_over(&mut self, network: Option<u32>, is_ipv6: bool) -> Made<Fragment> {
        let base = if is_ipv6 { Base::Transport6 } else { Base::Transport4 };
        let ports = Ports::One(GENEVE_PORT);
        let port = self.ports_over(ports, Some(ip_protocol::UDP), Direction::Destination, is_ipv6)?;
        let version = self.masked(base, 8, Width::Byte, 0, 0xc0);
        let version = match self.reading.is_of_access_list() {
            true => self.has_upper_bytes(16, is_ipv6, version),
            false => version,
        };
        let mut test = self.and(port, version);
        if let Some(network) = network {
            if network > 0xff_ffff {
                return self.mistake(
                    format!("{network} is not a virtual network of Geneve"),
                    "they are numbers from 0 to 16777215",
                );
            }
            let network = self.masked(base, 12, Width::Word, network << 8, 0xffff_ff00);
            test = self.and(test, network);
        }
        let ops = if !is_ipv6 {
            let mut ops = self.index_transport4();
            ops.push(Op::FromIndex);
            ops
        } else if let Some(word) = self.layout.payload.word {
            Ops::of(&[Op::IndexMemory(word), Op::LoadConstant(40), Op::Index(Operation::Add), Op::ToIndex])
        } else {
            Ops::of(&[Op::LoadConstant(40), Op::ToIndex])
        };
        let always = self.test(ops, ComparisonOperator::Equal, Right::Index);
        Ok(self.and(test, always))
    }
}

/// Whether a test shifts what comes after it.
pub(crate) fn is_shift(primitive: &Primitive) -> bool {
    matches!(primitive, Primitive::Vlan(_) | Primitive::Mpls(_) | Primitive::PppoeSession(_) | Primitive::Geneve(_))
}
