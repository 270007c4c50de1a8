//! Multicast listeners of IPv6: version 2 (RFC 3810), and version 1 (RFC 2710). Messages are written with
//! [`ndp::MessageDraft`](crate::ndp::MessageDraft).

use std::net::Ipv6Addr;

use crate::ndp::MessageDraft;
use crate::view::{Error, expect, need};

/// Message types (RFC 2710, section 3.1; RFC 3810, section 5).
pub mod message_type {
    #![allow(missing_docs, reason = "the names say it")]
    pub const QUERY: u8 = 130;
    pub const REPORT_1: u8 = 131;
    pub const DONE: u8 = 132;
    pub const REPORT: u8 = 143;
}

/// Whether a message type of ICMPv6 is one of multicast listeners.
pub fn is_of_listeners(kind: u8) -> bool {
    matches!(kind, message_type::QUERY | message_type::REPORT_1 | message_type::DONE | message_type::REPORT)
}

/// Types of the records in a report (RFC 3810, section 5.2.12).
pub mod record_type {
    /// The listener wants what the listed sources send.
    pub const IS_INCLUDE: u8 = 1;
    /// The listener wants what all but the listed sources send.
    pub const IS_EXCLUDE: u8 = 2;
    /// As [`IS_INCLUDE`], from now on. Without sources, the listener leaves the group.
    pub const TO_INCLUDE: u8 = 3;
    /// As [`IS_EXCLUDE`], from now on. Without sources, the listener joins the group.
    pub const TO_EXCLUDE: u8 = 4;
}

/// The group that reports of version 2 are sent to: all routers that know them.
pub const REPORTS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// The hop limit of all messages.
pub const HOP_LIMIT: u8 = 1;

/// The hop-by-hop options in front of all messages: Router Alert (RFC 2711) and padding. ICMPv6 follows.
pub const ROUTER_ALERT: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];

/// Whether hop-by-hop options tell routers to look at a message of listeners (RFC 2711, section 2.1).
pub fn has_router_alert(options: &[u8]) -> bool {
    let mut rest = options.get(2..).unwrap_or_default();
    while let Some((&kind, behind)) = rest.split_first() {
        // Pad1 alone has no length.
        if kind == 0 {
            rest = behind;
            continue;
        }
        let Some((&length, data)) = behind.split_first() else { return false };
        let Some((data, others)) = data.split_at_checked(length.into()) else { return false };
        if kind == 5 && data == [0, 0] {
            return true;
        }
        rest = others;
    }
    false
}

/// Whose language a message is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 2710.
    One,
    /// RFC 3810.
    Two,
}

/// A query: who listens?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The version.
    pub version: Version,
    /// The time in which listeners answer, milliseconds.
    pub max_delay_ms: u32,
    /// The group, or the unspecified address for all groups.
    pub group: Ipv6Addr,
    /// How often the querier expects a message to be sent, because some may be lost. 0 if it does not say.
    pub robustness: u8,
    /// The addresses of sources.
    sources: &'a [[u8; 16]],
}

impl<'a> Query<'a> {
    /// A query in an ICMPv6 payload.
    ///
    /// # Errors
    /// If it is another message, or has a length that no version knows (RFC 3810, section 8.1).
    pub fn new_checked(bytes: &'a [u8]) -> Result<Query<'a>, Error> {
        const NAME: &str = "multicast listener query";
        need(NAME, bytes, 24)?;
        expect(bytes[0] == message_type::QUERY, NAME, "type", bytes[0], "130")?;
        let code = u16::from_be_bytes([bytes[4], bytes[5]]);
        let group = Ipv6Addr::from_octets(std::array::from_fn(|at| bytes[8 + at]));
        expect(group.is_unspecified() || group.is_multicast(), NAME, "group", bytes[8], "255, or none")?;
        if bytes.len() == 24 {
            let max_delay_ms = code.into();
            return Ok(Query { version: Version::One, max_delay_ms, group, robustness: 0, sources: &[] });
        }
        need(NAME, bytes, 28)?;
        let count = usize::from(u16::from_be_bytes([bytes[26], bytes[27]]));
        need(NAME, bytes, 28 + 16 * count)?;
        let sources = &bytes[28..].as_chunks().0[..count];
        let robustness = bytes[24] & 7;
        Ok(Query { version: Version::Two, max_delay_ms: delay(code), group, robustness, sources })
    }

    /// The sources, if the query is about what these send.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = Ipv6Addr> + 'a {
        self.sources.iter().map(|&octets| octets.into())
    }
}

/// The milliseconds of a maximum response code (RFC 3810, section 5.1.3).
fn delay(code: u16) -> u32 {
    match code {
        0..0x8000 => code.into(),
        _ => (u32::from(code & 0xfff) | 0x1000) << ((code >> 12 & 7) + 3),
    }
}

impl MessageDraft {
    /// Adds a record of a report of version 2 (RFC 3810, section 5.2).
    pub fn put_record(&mut self, kind: u8, group: Ipv6Addr, sources: &[Ipv6Addr]) -> &mut MessageDraft {
        let [high, low] = (sources.len() as u16).to_be_bytes();
        self.put(&[kind, 0, high, low]).put(&group.octets());
        sources.iter().for_each(|source| _ = self.put(&source.octets()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(code: u16, group: &str, rest: &[u8]) -> Vec<u8> {
        let [high, low] = code.to_be_bytes();
        [&[130, 0, 0, 0, high, low, 0, 0][..], &group.parse::<Ipv6Addr>().unwrap().octets(), rest].concat()
    }

    #[test]
    fn queries_of_both_versions_are_read() {
        let bytes = query(10_000, "::", &[]);
        let read = Query::new_checked(&bytes).unwrap();
        assert_eq!((read.version, read.max_delay_ms, read.group), (Version::One, 10_000, Ipv6Addr::UNSPECIFIED));
        let source: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let rest = [&[0x0a, 125, 0, 1][..], &source.octets(), &[7; 4]].concat();
        let bytes = query(0x8fff, "ff02::1:ff00:1", &rest);
        let read = Query::new_checked(&bytes).unwrap();
        assert_eq!((read.version, read.robustness, read.group.to_string()), (Version::Two, 2, "ff02::1:ff00:1".into()));
        assert_eq!((read.max_delay_ms, read.sources().collect::<Vec<_>>()), (0x1fff << 3, vec![source]));
        // RFC 3810, section 5.1.3: the longest time is 8,387,584 milliseconds.
        let bytes = query(0xffff, "::", &[0; 4]);
        assert_eq!(Query::new_checked(&bytes).unwrap().max_delay_ms, 8_387_584);
    }

    #[test]
    fn queries_of_other_lengths_are_rejected() {
        let bytes = query(1, "ff02::1:ff00:1", &[2, 125, 0, 2, 0, 0]);
        for length in (0..24).chain(25..bytes.len() + 1) {
            assert!(Query::new_checked(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Query::new_checked(&query(1, "2001:db8::1", &[])).is_err(), "not a group");
        assert!(Query::new_checked(&[131; 24]).is_err());
    }

    #[test]
    fn the_router_alert_is_found_among_options() {
        assert!(has_router_alert(&ROUTER_ALERT));
        assert!(has_router_alert(&[58, 0, 1, 0, 5, 2, 0, 0]) && has_router_alert(&[58, 0, 0, 0, 5, 2, 0, 0]));
        for other in
            [&[58, 0, 1, 4, 0, 0, 0, 0][..], &[58, 0, 5, 2, 0, 1, 1, 0], &[58, 0, 1, 3, 5, 2, 0, 0], &[58], &[]]
        {
            assert!(!has_router_alert(other), "{other:?}");
        }
    }

    #[test]
    fn records_are_laid_out_as_the_rfc_draws_them() {
        let (group, source) = ("ff02::2".parse().unwrap(), "fe80::9".parse().unwrap());
        let mut draft = MessageDraft::new(message_type::REPORT, 1);
        draft.put_record(record_type::IS_INCLUDE, group, &[source]);
        let bytes = draft.finish(&crate::IpPair::V6 { src: source, dst: REPORTS });
        assert_eq!((&bytes[4..12], bytes.len()), (&[0, 0, 0, 1, 1, 0, 0, 1][..], 44));
        assert_eq!((&bytes[12..28], &bytes[28..]), (&group.octets()[..], &source.octets()[..]));
    }
}
