//! Tests of protocols, through chains of extension headers.

use super::fragment::Fragment;
use super::layout::Base;
use super::numbers::{ethertype, ip_protocol, osi, sap};
use super::{Generator, Made};
use crate::classic::ops::Ops;
use crate::classic::{Block, End, Op, Right};
use crate::graph::{ComparisonOperator, Operation, Width};
use crate::syntax::Protocol;

impl Generator<'_> {
    /// Tests the protocol within another.
    pub(super) fn protocol_in(&mut self, number: u32, outer: Option<Protocol>) -> Made<Fragment> {
        match outer {
            None => {
                let four = self.protocol_in(number, Some(Protocol::Ip))?;
                let six = self.protocol_in(number, Some(Protocol::Ip6))?;
                Ok(self.or(four, six))
            }
            Some(Protocol::Link) => self.link_type(number),
            Some(outer @ (Protocol::Ip | Protocol::Ip6)) if self.reading.is_of_access_list() => {
                let is_ipv6 = outer == Protocol::Ip6;
                let kind = if is_ipv6 { ethertype::IP6 } else { ethertype::IP };
                self.link_types_then(kind, |this| this.access_protocol(number, is_ipv6))
            }
            Some(Protocol::Ip) => {
                self.link_types_then(ethertype::IP, |this| this.equal(Base::Network, 9, Width::Byte, number))
            }
            Some(Protocol::Ip6) => self.link_types_then(ethertype::IP6, |this| {
                let fragment = this.equal(Base::Network, 6, Width::Byte, ip_protocol::FRAGMENT);
                let after = this.equal(Base::Network, 40, Width::Byte, number);
                let fragmented = this.and(fragment, after);
                let whole = this.equal(Base::Network, 6, Width::Byte, number);
                this.or(whole, fragmented)
            }),
            Some(Protocol::Iso) => {
                self.link_types_then(sap::OSI, |this| this.equal(Base::NetworkAfterLlc, 0, Width::Byte, number))
            }
            Some(Protocol::Isis) => {
                let isis = self.protocol_in(osi::ISIS, Some(Protocol::Iso))?;
                let kind = self.equal(Base::NetworkAfterLlc, 4, Width::Byte, number);
                Ok(self.and(isis, kind))
            }
            Some(outer) => self
                .mistake(format!("`{outer}` has no `proto`"), "`proto` is for `ether`, `ip`, `ip6`, `iso` and `isis`"),
        }
    }

    /// One of several PDU types of IS-IS. The first two are tested last.
    fn isis_kinds(&mut self, kinds: &[u32]) -> Made<Fragment> {
        let [first, second, rest @ ..] = kinds else { return self.mistake("no kind of IS-IS", "name one") };
        let first = self.protocol_in(*first, Some(Protocol::Isis))?;
        let second = self.protocol_in(*second, Some(Protocol::Isis))?;
        let mut all = self.or(first, second);
        for &kind in rest {
            let one = self.protocol_in(kind, Some(Protocol::Isis))?;
            all = self.or(one, all);
        }
        Ok(all)
    }

    pub(super) fn protocol(&mut self, protocol: Protocol) -> Made<Fragment> {
        let within = |number, outer| (number, outer);
        let (number, outer) = match protocol {
            Protocol::Ip => within(ethertype::IP, Some(Protocol::Link)),
            Protocol::Arp => within(ethertype::ARP, Some(Protocol::Link)),
            Protocol::Rarp => within(ethertype::RARP, Some(Protocol::Link)),
            Protocol::Ip6 => within(ethertype::IP6, Some(Protocol::Link)),
            Protocol::Atalk => within(ethertype::ATALK, Some(Protocol::Link)),
            Protocol::Aarp => within(ethertype::AARP, Some(Protocol::Link)),
            Protocol::Decnet => within(ethertype::DECNET, Some(Protocol::Link)),
            Protocol::Lat => within(ethertype::LAT, Some(Protocol::Link)),
            Protocol::Sca => within(ethertype::SCA, Some(Protocol::Link)),
            Protocol::Moprc => within(ethertype::MOPRC, Some(Protocol::Link)),
            Protocol::Mopdl => within(ethertype::MOPDL, Some(Protocol::Link)),
            Protocol::Iso => within(sap::OSI, Some(Protocol::Link)),
            Protocol::Stp => within(sap::STP, Some(Protocol::Link)),
            Protocol::Ipx => within(sap::IPX, Some(Protocol::Link)),
            Protocol::Netbeui => within(sap::NETBEUI, Some(Protocol::Link)),
            Protocol::Sctp => within(ip_protocol::SCTP, None),
            Protocol::Tcp => within(ip_protocol::TCP, None),
            Protocol::Udp => within(ip_protocol::UDP, None),
            Protocol::Pim => within(ip_protocol::PIM, None),
            Protocol::Ah => within(ip_protocol::AH, None),
            Protocol::Esp => within(ip_protocol::ESP, None),
            Protocol::Icmp => within(ip_protocol::ICMP, Some(Protocol::Ip)),
            Protocol::Igmp => within(ip_protocol::IGMP, Some(Protocol::Ip)),
            Protocol::Igrp => within(ip_protocol::IGRP, Some(Protocol::Ip)),
            Protocol::Vrrp | Protocol::Carp => within(ip_protocol::VRRP, Some(Protocol::Ip)),
            Protocol::Icmp6 => within(ip_protocol::ICMP6, Some(Protocol::Ip6)),
            Protocol::Esis => within(osi::ESIS, Some(Protocol::Iso)),
            Protocol::Isis => within(osi::ISIS, Some(Protocol::Iso)),
            Protocol::Clnp => within(osi::CLNP, Some(Protocol::Iso)),
            Protocol::L1 => {
                return self.isis_kinds(&[
                    osi::L1_HELLO,
                    osi::POINT_TO_POINT_HELLO,
                    osi::L1_LSP,
                    osi::L1_CSNP,
                    osi::L1_PSNP,
                ]);
            }
            Protocol::L2 => {
                return self.isis_kinds(&[
                    osi::L2_HELLO,
                    osi::POINT_TO_POINT_HELLO,
                    osi::L2_LSP,
                    osi::L2_CSNP,
                    osi::L2_PSNP,
                ]);
            }
            Protocol::Iih => {
                return self.isis_kinds(&[osi::L1_HELLO, osi::L2_HELLO, osi::POINT_TO_POINT_HELLO]);
            }
            Protocol::Lsp => return self.isis_kinds(&[osi::L1_LSP, osi::L2_LSP]),
            Protocol::Snp => {
                return self.isis_kinds(&[osi::L1_CSNP, osi::L2_CSNP, osi::L1_PSNP, osi::L2_PSNP]);
            }
            Protocol::Csnp => return self.isis_kinds(&[osi::L1_CSNP, osi::L2_CSNP]),
            Protocol::Psnp => return self.isis_kinds(&[osi::L1_PSNP, osi::L2_PSNP]),
            Protocol::Link => {
                return self.mistake(
                    "the link layer alone is no test",
                    "such as `ether host 00:1b:21:0a:0b:0c` or `ether proto 0x0800`",
                );
            }
            Protocol::Radio => {
                return self.mistake("`radio` is for wireless captures only", "there are no filters for them");
            }
        };
        self.protocol_in(number, outer)
    }

    /// Tests for a protocol after any number of headers.
    pub(super) fn protocol_chain(&mut self, number: u32, outer: Option<Protocol>) -> Made<Fragment> {
        if self.reading.is_of_access_list() && matches!(outer, None | Some(Protocol::Ip | Protocol::Ip6)) {
            return self.protocol_in(number, outer);
        }
        let word = self.take_word()?;
        let outer = match outer {
            None => {
                let four = self.protocol_chain(number, Some(Protocol::Ip))?;
                let six = self.protocol_chain(number, Some(Protocol::Ip6))?;
                // The word stays taken, as in libpcap, which therefore refuses many of these in one expression.
                return Ok(self.or(four, six));
            }
            Some(outer @ (Protocol::Ip | Protocol::Ip6)) => outer,
            Some(outer) => {
                return self.mistake(format!("`{outer}` has no `protochain`"), "`protochain` is for `ip` and `ip6`");
            }
        };
        if self.layout.payload.word.is_some() {
            return self.mistake(
                "`protochain` needs a header at a fixed position, which there is not after `geneve`",
                "put `protochain` before `geneve`, or use `proto`",
            );
        }
        self.is_fixed = true;
        let link = self.link_type(if outer == Protocol::Ip { ethertype::IP } else { ethertype::IP6 })?;
        let chain = self.header_loop(number, outer, word);
        self.free_word(word);
        Ok(self.and(link, chain))
    }

    /// The loop over headers of [`Generator::protocol_chain`]. The accumulator is the protocol of the header at hand,
    /// the index its position.
    fn header_loop(&mut self, number: u32, outer: Protocol, word: u8) -> Fragment {
        let network = self.layout.payload.constant.wrapping_add(self.layout.network);
        let start = if outer == Protocol::Ip {
            Ops::of(&[Op::Load(Width::Byte, network.wrapping_add(9)), Op::IndexHeaderLength(network)])
        } else {
            Ops::of(&[Op::Load(Width::Byte, network.wrapping_add(6)), Op::IndexConstant(40)])
        };
        let place = self.place.clone();
        let mut add = |ops, end| {
            self.blocks.push(Block { ops, end, part: place.clone() });
            self.blocks.len() - 1
        };
        let equal = |number, yes, no| End::Test {
            comparison: ComparisonOperator::Equal,
            right: Right::Constant(number),
            yes,
            no,
        };
        // Blocks are pushed in this order, so their indices are known.
        let head = add(start, End::Goto(0));
        let again = head + 1;
        let is_none = again + 1;
        let extensions =
            [ip_protocol::HOP_OPTIONS, ip_protocol::DESTINATION_OPTIONS, ip_protocol::ROUTING, ip_protocol::FRAGMENT];
        let extensions: &[u32] = if outer == Protocol::Ip6 { &extensions } else { &[] };
        let is_authentication = is_none + 1 + extensions.len();
        let authentication = is_authentication + 1;
        let extension = authentication + 1;
        let end = extension + usize::from(!extensions.is_empty());
        add(Ops::default(), equal(number, end, is_none));
        add(Ops::default(), equal(ip_protocol::NONE, end, is_none + 1));
        for (index, &kind) in extensions.iter().enumerate() {
            add(Ops::default(), equal(kind, extension, is_none + 2 + index));
        }
        add(Ops::default(), equal(ip_protocol::AH, authentication, end));
        // The next position is (length + 2) × 4, from the start of the network header, as in libpcap.
        add(
            Ops::of(&[
                Op::FromIndex,
                Op::LoadIndexed(Width::Byte, network),
                Op::Store(word),
                Op::FromIndex,
                Op::Constant(Operation::Add, 1),
                Op::ToIndex,
                Op::LoadIndexed(Width::Byte, network),
                Op::Constant(Operation::Add, 2),
                Op::Constant(Operation::Multiply, 4),
                Op::ToIndex,
                Op::LoadMemory(word),
            ]),
            End::Again(again),
        );
        if !extensions.is_empty() {
            add(
                Ops::of(&[
                    Op::LoadIndexed(Width::Byte, network),
                    Op::Store(word),
                    Op::LoadIndexed(Width::Byte, network.wrapping_add(1)),
                    Op::Constant(Operation::Add, 1),
                    Op::Constant(Operation::Multiply, 8),
                    Op::Index(Operation::Add),
                    Op::ToIndex,
                    Op::LoadMemory(word),
                ]),
                End::Again(again),
            );
        }
        self.blocks[head].end = End::Goto(again);
        let mut last = self.test(Ops::default(), ComparisonOperator::Equal, Right::Constant(number));
        debug_assert_eq!(last.head, end);
        last.head = head;
        last
    }
}
