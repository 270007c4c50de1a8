//! Tests of ports.

use super::fragment::Fragment;
use super::layout::Base;
use super::numbers::{ethertype, ip_protocol};
use super::{Generator, Made};
use crate::graph::{ComparisonOperator, Width};
use crate::port_list::PortList;
use crate::syntax::{Direction, Protocol};

/// Ports to compare with.
#[derive(Clone, Copy)]
pub(super) enum Ports {
    One(u32),
    Range(u32, u32),
}

impl Generator<'_> {
    pub(super) fn is_not_later_fragment(&mut self) -> Fragment {
        self.compare(Base::Network, 6, Width::Half, ComparisonOperator::AnyBit, 0x1fff).negated()
    }

    /// A range of ports, or one of which both ends are given.
    fn port_at(&mut self, base: Base, offset: u32, ports: Ports) -> Fragment {
        match ports {
            Ports::One(port) => self.equal(base, offset, Width::Half, port),
            Ports::Range(first, last) => {
                let (first, last) = (first.min(last), first.max(last));
                let least = self.compare(base, offset, Width::Half, ComparisonOperator::GreaterOrEqual, first);
                let most = self.compare(base, offset, Width::Half, ComparisonOperator::Greater, last).negated();
                self.and(least, most)
            }
        }
    }

    fn ports_of(&mut self, ports: Ports, protocol: u32, direction: Direction, is_ipv6: bool) -> Made<Fragment> {
        let base = if is_ipv6 { Base::Transport6 } else { Base::Transport4 };
        let mut is_protocol = self.equal(Base::Ip, if is_ipv6 { 6 } else { 9 }, Width::Byte, protocol);
        if !is_ipv6 && !self.reading.is_of_access_list() {
            let fragment = self.is_not_later_fragment();
            is_protocol = self.and(is_protocol, fragment);
        }
        let port =
            self.directed(direction, |this, is_source| Ok(this.port_at(base, if is_source { 0 } else { 2 }, ports)))?;
        Ok(self.and(is_protocol, port))
    }

    /// Ports of one IP protocol, or of all that have ports, over one version of IP.
    pub(super) fn ports_over(
        &mut self,
        ports: Ports,
        protocol: Option<u32>,
        direction: Direction,
        is_ipv6: bool,
    ) -> Made<Fragment> {
        let link = self.link_type(if is_ipv6 { ethertype::IP6 } else { ethertype::IP })?;
        let test = match protocol {
            Some(protocol) => self.ports_of(ports, protocol, direction, is_ipv6)?,
            None => {
                let tcp = self.ports_of(ports, ip_protocol::TCP, direction, is_ipv6)?;
                let udp = self.ports_of(ports, ip_protocol::UDP, direction, is_ipv6)?;
                let both = self.or(tcp, udp);
                let sctp = self.ports_of(ports, ip_protocol::SCTP, direction, is_ipv6)?;
                self.or(sctp, both)
            }
        };
        Ok(self.and(link, test))
    }

    pub(super) fn ports(&mut self, ports: Ports, protocol: Option<u32>, direction: Direction) -> Made<Fragment> {
        let (Ports::One(last) | Ports::Range(_, last)) = ports;
        let (Ports::One(first) | Ports::Range(first, _)) = ports;
        if let Some(port) = [first, last].into_iter().find(|&port| port > 65_535) {
            return self.mistake(format!("{port} is not a port"), "ports are numbers from 0 to 65535");
        }
        let four = self.ports_over(ports, protocol, direction, false)?;
        let six = self.ports_over(ports, protocol, direction, true)?;
        Ok(self.or(six, four))
    }

    /// A long list of ports.
    pub(super) fn port_list(&mut self, list: &PortList) -> Made<Fragment> {
        self.place = list.range.clone();
        let protocol = self.port_protocol(list.protocol)?;
        let four = self.port_list_over(list, protocol, false)?;
        let six = self.port_list_over(list, protocol, true)?;
        let any = self.or(six, four);
        Ok(if list.is_negated { any.negated() } else { any })
    }

    /// A long list of ports over one version of IP: the protocols first, so that they share the tests of the ports.
    fn port_list_over(&mut self, list: &PortList, protocol: Option<u32>, is_ipv6: bool) -> Made<Fragment> {
        let (base, field) = if is_ipv6 { (Base::Transport6, 6) } else { (Base::Transport4, 9) };
        let mut header = self.link_type(if is_ipv6 { ethertype::IP6 } else { ethertype::IP })?;
        let all = [ip_protocol::TCP, ip_protocol::UDP, ip_protocol::SCTP];
        let protocols = protocol.as_ref().map_or(&all[..], std::slice::from_ref);
        let mut is_protocol = self.equal(Base::Ip, field, Width::Byte, protocols[0]);
        for &other in &protocols[1..] {
            let other = self.equal(Base::Ip, field, Width::Byte, other);
            is_protocol = self.or(is_protocol, other);
        }
        header = self.and(header, is_protocol);
        if !is_ipv6 && !self.reading.is_of_access_list() {
            let fragment = self.is_not_later_fragment();
            header = self.and(header, fragment);
        }
        let ports = self.directed(list.direction, |this, is_source| {
            Ok(this.among(base, if is_source { 0 } else { 2 }, &list.ports))
        })?;
        Ok(self.and(header, ports))
    }

    /// The IP protocol of the qualifiers of a port.
    pub(super) fn port_protocol(&self, protocol: Option<Protocol>) -> Made<Option<u32>> {
        match protocol {
            None => Ok(None),
            Some(Protocol::Tcp) => Ok(Some(ip_protocol::TCP)),
            Some(Protocol::Udp) => Ok(Some(ip_protocol::UDP)),
            Some(Protocol::Sctp) => Ok(Some(ip_protocol::SCTP)),
            Some(protocol) => self.mistake(
                format!("`{protocol}` has no ports"),
                "ports are of `tcp`, `udp` or `sctp`, or of any of them: `port …`",
            ),
        }
    }
}
