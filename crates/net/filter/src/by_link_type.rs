//! Programs for packets that begin differently.

use bellows_packet::{Meta, Packet};

use crate::expression::Expression;
use crate::interpret::PacketView;
use crate::link::LinkType;
use crate::mistake::Mistake;
use crate::options::Options;
use crate::program::Program;

/// What packets without metadata are.
const WITHOUT_META: Meta = Meta { timestamp: 0, original_length: 0, ingress_port: 0, link_type: 1 };

/// A program for each of some link types. Packets of other link types match nothing.
pub struct ByLinkType(Vec<(LinkType, Program)>);

/// The expression for each of some link types; `None` where libpcap refuses it.
///
/// # Errors
/// The mistake for the first link type, if the expression is refused for all.
pub fn parse_each(
    text: &str,
    link_types: &[LinkType],
    options: &Options<'_>,
) -> Result<Vec<Option<Expression>>, Mistake> {
    let mut first = None;
    let mut parse = |&link_type: &LinkType| {
        let expression = Expression::parse(text, &Options { link_type, ..*options });
        expression.map_err(|mistake| first.get_or_insert(mistake).clone()).ok()
    };
    let parsed: Vec<Option<Expression>> = link_types.iter().map(&mut parse).collect();
    match first {
        Some(mistake) if parsed.iter().all(Option::is_none) => Err(mistake),
        _ => Ok(parsed),
    }
}

impl ByLinkType {
    /// These programs.
    pub fn new(programs: Vec<(LinkType, Program)>) -> ByLinkType {
        ByLinkType(programs)
    }

    /// The expression for each link type for which it makes sense.
    ///
    /// # Errors
    /// The mistake for Ethernet, if it makes sense for none.
    pub fn compile(text: &str, options: &Options<'_>) -> Result<ByLinkType, Mistake> {
        let parsed = parse_each(text, &LinkType::ALL, options)?;
        let each = LinkType::ALL.into_iter().zip(parsed);
        let programs = each.filter_map(|(link_type, expression)| Some((link_type, expression?.program(text))));
        programs.map(|(link_type, program)| Ok((link_type, program?))).collect::<Result<_, _>>().map(ByLinkType)
    }

    /// The programs, in the order in which they were given.
    pub fn programs(&self) -> &[(LinkType, Program)] {
        &self.0
    }

    /// The program for packets of a link type, by its number in captures. Hot.
    #[inline]
    pub fn of(&self, number: u32) -> Option<&Program> {
        let link_type = LinkType::from_number(number).ok()?;
        self.0.iter().find(|(known, _)| *known == link_type).map(|(_, program)| program)
    }

    /// The number of a packet's link type. A packet without metadata begins with an Ethernet header. Hot.
    #[inline]
    pub fn number(packet: &Packet) -> u32 {
        packet.meta().unwrap_or(WITHOUT_META).link_type
    }

    /// Whether a packet matches. Hot.
    #[inline]
    pub fn matches(&self, packet: &Packet) -> bool {
        self.matches_bytes(packet.bytes(), &packet.meta().unwrap_or(WITHOUT_META))
    }

    /// As [`ByLinkType::matches`], for a packet that is not in a buffer yet. Hot.
    #[inline]
    pub fn matches_bytes(&self, bytes: &[u8], meta: &Meta) -> bool {
        let wire_length = meta.original_length.max(bytes.len() as u32);
        self.of(meta.link_type).is_some_and(|program| program.decide(PacketView { bytes, wire_length }).first.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_decided_by_its_link_type() {
        let filter = ByLinkType::compile("udp and len > 100", &Options::default()).unwrap();
        let ip = [&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17][..], &[0; 36]].concat();
        let frame = [&[2; 12][..], &[8, 0], &ip].concat();
        let matches = |bytes: &[u8], link_type, original_length| {
            filter.matches_bytes(bytes, &Meta { link_type, original_length, ..WITHOUT_META })
        };
        assert!(matches(&frame, 1, 101) && !matches(&frame, 1, 100) && !matches(&frame, 1, 0), "its length counts");
        assert!(matches(&ip, 101, 101) && matches(&ip, 228, 101) && !matches(&ip, 229, 101));
        assert!(!matches(&frame, 101, 101) && !matches(&ip, 1, 101));
        assert!(!matches(&frame, 147, 101), "there are no filters for this link type");
    }

    #[test]
    fn an_expression_may_make_sense_for_some_link_types_alone() {
        let options = Options::default();
        let vlan = ByLinkType::compile("vlan 5", &options).unwrap();
        assert!(vlan.of(1).is_some() && vlan.of(101).is_none());
        let inbound = ByLinkType::compile("inbound", &options).unwrap();
        assert!(inbound.of(113).is_some() && inbound.of(1).is_none());
        assert_eq!(ByLinkType::compile("tcp prot 80", &options).err().map(|mistake| mistake.range), Some(4..8));
    }
}
