//! Tests of link layers: what the payload is, and kinds of frames.

use super::fragment::Fragment;
use super::layout::{Base, LinkHeader};
use super::numbers::{COOKED_802_2, COOKED_802_3, COOKED_OUTGOING, MAX_ETHERNET_LENGTH, ethertype, sap};
use super::{Generator, Made};
use crate::classic::ops::Ops;
use crate::classic::{Op, Right};
use crate::graph::{ComparisonOperator, Width};
use crate::link::LinkType;
use crate::mistake::NETMASK_UNKNOWN;
use crate::syntax::{Direction, Llc, Protocol};

impl Generator<'_> {
    pub(super) fn link_name(&self) -> String {
        match self.layout.link {
            LinkHeader::Outer(link) => link.to_string(),
            LinkHeader::Ppp => "PPP".to_owned(),
            LinkHeader::Geneve => "Ethernet".to_owned(),
        }
    }

    /// The test that a packet within Geneve has an Ethernet header: then its payload starts elsewhere.
    pub(super) fn has_inner_ethernet(&mut self) -> Option<Fragment> {
        if self.layout.link != LinkHeader::Geneve {
            return None;
        }
        let (header, payload) = (self.layout.link_header.word?, self.layout.payload.word?);
        let ops = Ops::of(&[Op::LoadMemory(header), Op::IndexMemory(payload)]);
        Some(self.test(ops, ComparisonOperator::Equal, Right::Index).negated())
    }

    /// Tests what follows the link header: an EtherType, or up to 1500 an LLC service access point.
    pub(super) fn link_type(&mut self, kind: u32) -> Made<Fragment> {
        if self.reading.is_of_access_list() {
            return Ok(self.access_type(kind));
        }
        if self.layout.mpls_labels > 0 {
            return self.mpls_payload(kind);
        }
        Ok(match self.layout.link {
            LinkHeader::Outer(LinkType::Ethernet) | LinkHeader::Geneve => self.ethernet_type(kind),
            LinkHeader::Outer(LinkType::Cooked) => self.cooked_type(kind),
            LinkHeader::Outer(LinkType::Cooked2) => self.equal(Base::LinkType, 0, Width::Half, kind),
            LinkHeader::Outer(LinkType::Raw) => match kind {
                ethertype::IP => self.masked(Base::LinkHeader, 0, Width::Byte, 0x40, 0xf0),
                ethertype::IP6 => self.masked(Base::LinkHeader, 0, Width::Byte, 0x60, 0xf0),
                _ => self.constant(false),
            },
            LinkHeader::Outer(LinkType::Ipv4) => self.constant(kind == ethertype::IP),
            LinkHeader::Outer(LinkType::Ipv6) => self.constant(kind == ethertype::IP6),
            LinkHeader::Outer(LinkType::Null | LinkType::Loop) => match kind {
                ethertype::IP => self.address_family(2),
                ethertype::IP6 => {
                    // Of NetBSD and OpenBSD, FreeBSD, and macOS.
                    let first = self.address_family(24);
                    let second = self.address_family(28);
                    let both = self.or(first, second);
                    let third = self.address_family(30);
                    self.or(third, both)
                }
                _ => self.constant(false),
            },
            LinkHeader::Ppp => {
                let kind = match kind {
                    ethertype::IP => 0x21,
                    ethertype::IP6 => 0x57,
                    ethertype::DECNET => 0x27,
                    ethertype::ATALK => 0x29,
                    ethertype::NS => 0x25,
                    sap::OSI => 0x23,
                    sap::STP => 0x31,
                    sap::IPX => 0x2b,
                    other => other,
                };
                self.equal(Base::LinkType, 0, Width::Half, kind)
            }
        })
    }

    fn address_family(&mut self, family: u32) -> Fragment {
        let is_host_order = self.layout.link == LinkHeader::Outer(LinkType::Null);
        let family = if is_host_order { u32::from_be_bytes(family.to_ne_bytes()) } else { family };
        self.equal(Base::LinkHeader, 0, Width::Word, family)
    }

    fn is_length(&mut self) -> Fragment {
        self.compare(Base::LinkType, 0, Width::Half, ComparisonOperator::Greater, MAX_ETHERNET_LENGTH).negated()
    }

    pub(super) fn ethernet_type(&mut self, kind: u32) -> Fragment {
        match kind {
            sap::OSI | sap::IP | sap::NETBEUI => {
                let length = self.is_length();
                let saps = self.equal(Base::Llc, 0, Width::Half, kind << 8 | kind);
                self.and(length, saps)
            }
            sap::IPX => {
                let sap = self.equal(Base::Llc, 0, Width::Byte, sap::IPX);
                let novell = self.equal(Base::Llc, 0, Width::Half, 0xffff);
                let either = self.or(sap, novell);
                let snap = self.snap(0, ethertype::IPX);
                let any = self.or(snap, either);
                let length = self.is_length();
                let with_length = self.and(length, any);
                let with_type = self.equal(Base::LinkType, 0, Width::Half, ethertype::IPX);
                self.or(with_type, with_length)
            }
            ethertype::ATALK | ethertype::AARP => {
                let length = self.is_length();
                let organisation = if kind == ethertype::ATALK { 0x08_0007 } else { 0 };
                let snap = self.snap(organisation, kind);
                let with_length = self.and(length, snap);
                let with_type = self.equal(Base::LinkType, 0, Width::Half, kind);
                self.or(with_type, with_length)
            }
            _ if kind <= MAX_ETHERNET_LENGTH => {
                let length = self.is_length();
                let sap = self.equal(Base::LinkType, 2, Width::Byte, kind);
                self.and(length, sap)
            }
            _ => self.equal(Base::LinkType, 0, Width::Half, kind),
        }
    }

    fn cooked_type(&mut self, kind: u32) -> Fragment {
        let is_802_2 = |this: &mut Self| this.equal(Base::LinkType, 0, Width::Half, COOKED_802_2);
        match kind {
            sap::OSI | sap::IP | sap::NETBEUI => {
                let llc = is_802_2(self);
                let saps = self.equal(Base::Llc, 0, Width::Half, kind << 8 | kind);
                self.and(llc, saps)
            }
            sap::IPX => {
                let sap = self.equal(Base::Llc, 0, Width::Byte, sap::IPX);
                let snap = self.snap(0, ethertype::IPX);
                let either = self.or(sap, snap);
                let llc = is_802_2(self);
                let with_llc = self.and(llc, either);
                let novell = self.equal(Base::LinkType, 0, Width::Half, COOKED_802_3);
                let any = self.or(novell, with_llc);
                let with_type = self.equal(Base::LinkType, 0, Width::Half, ethertype::IPX);
                self.or(with_type, any)
            }
            ethertype::ATALK | ethertype::AARP => {
                let llc = is_802_2(self);
                let organisation = if kind == ethertype::ATALK { 0x08_0007 } else { 0 };
                let snap = self.snap(organisation, kind);
                let with_llc = self.and(llc, snap);
                let with_type = self.equal(Base::LinkType, 0, Width::Half, kind);
                self.or(with_type, with_llc)
            }
            _ if kind <= MAX_ETHERNET_LENGTH => {
                let llc = is_802_2(self);
                let sap = self.equal(Base::LinkHeader, self.layout.payload.constant, Width::Byte, kind);
                self.and(llc, sap)
            }
            _ => self.equal(Base::LinkType, 0, Width::Half, kind),
        }
    }

    fn snap(&mut self, organisation: u32, kind: u32) -> Fragment {
        let [_, a, b, c] = organisation.to_be_bytes();
        let [_, _, d, e] = kind.to_be_bytes();
        let sap = sap::SNAP as u8;
        self.bytes(Base::Llc, 0, &[sap, sap, 0x03, a, b, c, d, e])
    }

    /// Tests what follows the last MPLS label.
    fn mpls_payload(&mut self, kind: u32) -> Made<Fragment> {
        let version = match kind {
            ethertype::IP => 0x40,
            ethertype::IP6 => 0x60,
            _ => {
                return self
                    .mistake("after `mpls`, only IPv4 and IPv6 can be told apart", "put this test before `mpls`");
            }
        };
        let bottom = self.masked(Base::Network, 2u32.wrapping_neg(), Width::Byte, 0x01, 0x01);
        let version = self.masked(Base::Network, 0, Width::Byte, version, 0xf0);
        Ok(self.and(bottom, version))
    }

    pub(super) fn link_types_then(&mut self, kind: u32, test: impl FnOnce(&mut Self) -> Fragment) -> Made<Fragment> {
        let link = self.link_type(kind)?;
        let test = test(self);
        Ok(self.and(link, test))
    }

    pub(super) fn llc(&mut self, kind: Llc) -> Made<Fragment> {
        // Within Geneve as on Ethernet.
        self.require_ethernet("LLC headers")?;
        let length = self.is_length();
        let not_novell = self.equal(Base::Llc, 0, Width::Half, 0xffff).negated();
        let is_llc = self.and(length, not_novell);
        let control = match kind {
            Llc::Any => return Ok(is_llc),
            Llc::Information => self.compare(Base::Llc, 2, Width::Byte, ComparisonOperator::AnyBit, 0x01).negated(),
            Llc::Supervisory => self.masked(Base::Llc, 2, Width::Byte, 0x01, 0x03),
            Llc::Unnumbered => self.masked(Base::Llc, 2, Width::Byte, 0x03, 0x03),
            Llc::SupervisoryCode(_, code) => self.masked(Base::Llc, 2, Width::Byte, code.into(), 0x0f),
            Llc::UnnumberedCode(_, code) => self.masked(Base::Llc, 2, Width::Byte, code.into(), 0xef),
        };
        Ok(self.and(is_llc, control))
    }

    pub(super) fn broadcast(&mut self, protocol: Option<Protocol>) -> Made<Fragment> {
        match protocol {
            None | Some(Protocol::Link) => {
                self.require_ethernet("broadcast addresses")?;
                self.ethernet_host([0xff; 6], Direction::Destination)
            }
            Some(Protocol::Ip) => {
                let Some(mask) = self.options.netmask else {
                    let help = "write the address: `ip dst host 10.0.0.255`, or `ether broadcast`; `tcpdump -r` does not \
                                know the mask either and takes 0.0.0.0, with which no network's own broadcasts match";
                    return self.mistake(NETMASK_UNKNOWN, help);
                };
                let host = !mask.to_bits();
                if host & host.wrapping_add(1) != 0 {
                    return self.mistake(
                        format!("{mask} is no mask of a network: after the first 0 bit there is a 1 bit"),
                        "masks are those of prefix lengths, such as 255.255.255.0",
                    );
                }
                if host < 2 {
                    return self.mistake(
                        format!("a network with the mask {mask} has no broadcast addresses"),
                        "write the address, `ip dst host 255.255.255.255`, or `ether broadcast`",
                    );
                }
                self.link_types_then(ethertype::IP, |this| {
                    let zeros = this.masked(Base::Network, 16, Width::Word, 0, host);
                    let ones = this.masked(Base::Network, 16, Width::Word, host, host);
                    this.or(zeros, ones)
                })
            }
            Some(protocol) => {
                self.mistake(format!("`{protocol}` has no broadcast addresses"), "`broadcast` is for `ether` and `ip`")
            }
        }
    }

    pub(super) fn multicast(&mut self, protocol: Option<Protocol>) -> Made<Fragment> {
        match protocol {
            None | Some(Protocol::Link) => {
                self.require_ethernet("multicast addresses")?;
                let inner = self.has_inner_ethernet();
                let multicast = self.compare(Base::LinkHeader, 0, Width::Byte, ComparisonOperator::AnyBit, 1);
                Ok(self.after(inner, multicast))
            }
            Some(Protocol::Ip) => self.link_types_then(ethertype::IP, |this| {
                this.compare(Base::Network, 16, Width::Byte, ComparisonOperator::GreaterOrEqual, 224)
            }),
            Some(Protocol::Ip6) => {
                self.link_types_then(ethertype::IP6, |this| this.equal(Base::Network, 24, Width::Byte, 255))
            }
            Some(protocol) => self.mistake(
                format!("`{protocol}` has no multicast addresses"),
                "`multicast` is for `ether`, `ip` and `ip6`",
            ),
        }
    }

    pub(super) fn outbound(&mut self, is_outbound: bool) -> Made<Fragment> {
        let outgoing = match self.layout.link {
            LinkHeader::Outer(LinkType::Cooked) => self.equal(Base::LinkHeader, 0, Width::Half, COOKED_OUTGOING),
            LinkHeader::Outer(LinkType::Cooked2) => self.equal(Base::LinkHeader, 10, Width::Byte, COOKED_OUTGOING),
            _ => {
                return self.mistake(
                    format!("there is no direction in {}", self.link_name()),
                    "`inbound` and `outbound` are for link type Linux cooked only",
                );
            }
        };
        Ok(if is_outbound { outgoing } else { outgoing.negated() })
    }
}
