//! Neighbour discovery for IPv6 (RFC 4861): messages, options, and the addresses that they are sent to.

use std::net::Ipv6Addr;

use crate::view::{Error, expect, need};
use crate::{IcmpMessage, IpPair, MacAddr};

/// Message types (RFC 4861, section 4).
pub mod message_type {
    #![allow(missing_docs, reason = "the names say it")]
    pub const ROUTER_SOLICITATION: u8 = 133;
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    pub const REDIRECT: u8 = 137;
}

/// Option types (RFC 4861, section 4.6).
pub mod option_type {
    #![allow(missing_docs, reason = "the names say it")]
    pub const SOURCE_LINK_LAYER: u8 = 1;
    pub const TARGET_LINK_LAYER: u8 = 2;
    pub const PREFIX: u8 = 3;
    pub const REDIRECTED: u8 = 4;
    pub const MTU: u8 = 5;
}

/// The flags of a neighbour advertisement (RFC 4861, section 4.4), in the word behind the checksum.
pub mod flag {
    /// The sender is a router.
    pub const ROUTER: u32 = 1 << 31;
    /// The advertisement answers a solicitation.
    pub const SOLICITED: u32 = 1 << 30;
    /// The link-layer address replaces one that is known.
    pub const OVERRIDE: u32 = 1 << 29;
}

/// The hop limit of all messages: that of a packet which no router has forwarded.
pub const HOP_LIMIT: u8 = 255;

/// The group of all nodes of a link (RFC 4291, section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group of all routers of a link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The group that is asked for an address (RFC 4291, section 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// The Ethernet address of a group (RFC 2464, section 7).
pub fn multicast_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// The link-local address of a station (RFC 2464, section 5).
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let mut octets = [0; 16];
    octets[..2].copy_from_slice(&[0xfe, 0x80]);
    octets[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    octets.into()
}

/// Bytes of a message's part in front of its options. `None` for types that are not those of neighbour discovery.
fn fixed_length(kind: u8) -> Option<usize> {
    match kind {
        message_type::ROUTER_SOLICITATION => Some(8),
        message_type::ROUTER_ADVERTISEMENT => Some(16),
        message_type::NEIGHBOUR_SOLICITATION | message_type::NEIGHBOUR_ADVERTISEMENT => Some(24),
        message_type::REDIRECT => Some(40),
        _ => None,
    }
}

/// A message, whose length and options are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    bytes: &'a [u8],
    options: &'a [u8],
}

impl<'a> Message<'a> {
    /// A message in an ICMPv6 payload.
    ///
    /// # Errors
    /// If it is another one, too short, or has an option without a length, or one that does not fit (RFC 4861, section
    /// 4.6).
    pub fn new_checked(bytes: &'a [u8]) -> Result<Message<'a>, Error> {
        const NAME: &str = "neighbour discovery";
        need(NAME, bytes, 4)?;
        let length = fixed_length(bytes[0]);
        expect(length.is_some(), NAME, "type", bytes[0], "133 to 137")?;
        let length = length.unwrap_or_default();
        need(NAME, bytes, length)?;
        let options = &bytes[length..];
        let mut rest = options;
        while !rest.is_empty() {
            need("an option of neighbour discovery", rest, 2)?;
            let units = rest[1];
            expect(units != 0, NAME, "an option's length", units, "1 or more")?;
            need("an option of neighbour discovery", rest, usize::from(units) * 8)?;
            rest = &rest[usize::from(units) * 8..];
        }
        Ok(Message { bytes, options })
    }

    /// The type.
    pub fn kind(&self) -> u8 {
        self.bytes[0]
    }

    /// The code, which is 0.
    pub fn code(&self) -> u8 {
        self.bytes[1]
    }

    /// The word behind the checksum.
    pub fn word(&self) -> u32 {
        self.bytes.get(4..8).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// The target of a solicitation, an advertisement of a neighbour or a redirect.
    pub fn target(&self) -> Ipv6Addr {
        self.bytes.get(8..24).and_then(|bytes| bytes.first_chunk::<16>()).map_or(Ipv6Addr::UNSPECIFIED, |b| (*b).into())
    }

    /// The options: the type of each and all its bytes.
    pub fn options(&self) -> impl Iterator<Item = (u8, &'a [u8])> {
        let mut rest = self.options;
        std::iter::from_fn(move || {
            let length = usize::from(*rest.get(1)?) * 8;
            let (option, others) = rest.split_at_checked(length)?;
            rest = others;
            Some((option[0], option))
        })
    }

    /// Whether there is an option of a type, of any length.
    pub fn has(&self, kind: u8) -> bool {
        self.options().any(|(of, _)| of == kind)
    }

    /// The Ethernet address of the first option of a type. Options of other lengths than that of Ethernet do not count.
    pub fn link_layer(&self, kind: u8) -> Option<MacAddr> {
        let mut options = self.options().filter(|(of, option)| *of == kind && option.len() == 8);
        options.next().and_then(|(_, option)| option[2..].first_chunk().map(|bytes| MacAddr(*bytes)))
    }
}

/// Bytes of the longest message that is [drafted](MessageDraft): it fits into the minimum MTU (RFC 8200, section 5).
pub const MAX_DRAFT: usize = 1280 - 40;

/// A message that is being written.
#[derive(Clone, Debug)]
pub struct MessageDraft {
    bytes: [u8; MAX_DRAFT],
    length: usize,
}

impl MessageDraft {
    /// A message of a type, with the word behind its checksum.
    pub fn new(kind: u8, word: u32) -> MessageDraft {
        let mut draft = MessageDraft { bytes: [0; MAX_DRAFT], length: 8 };
        draft.bytes[0] = kind;
        draft.bytes[4..8].copy_from_slice(&word.to_be_bytes());
        draft
    }

    /// Adds bytes, unless they do not fit. Messages and options consist of whole units of 8 bytes.
    pub fn put(&mut self, bytes: &[u8]) -> &mut MessageDraft {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
        self
    }

    /// Adds an option with an Ethernet address.
    pub fn put_link_layer(&mut self, kind: u8, mac: MacAddr) -> &mut MessageDraft {
        let mut option = [kind, 1, 0, 0, 0, 0, 0, 0];
        option[2..].copy_from_slice(&mac.0);
        self.put(&option)
    }

    /// Adds the MTU of the link (RFC 4861, section 4.6.4).
    pub fn put_mtu(&mut self, mtu: u16) -> &mut MessageDraft {
        let [high, low] = mtu.to_be_bytes();
        self.put(&[option_type::MTU, 1, 0, 0, 0, 0, high, low])
    }

    /// Adds a prefix (RFC 4861, section 4.6.2).
    pub fn put_prefix(&mut self, prefix: &PrefixOption) -> &mut MessageDraft {
        let mut option = [0; 32];
        option[..3].copy_from_slice(&[option_type::PREFIX, 4, prefix.length]);
        option[3] = u8::from(prefix.on_link) << 7 | u8::from(prefix.autonomous) << 6;
        option[4..8].copy_from_slice(&prefix.valid.to_be_bytes());
        option[8..12].copy_from_slice(&prefix.preferred.to_be_bytes());
        option[16..].copy_from_slice(&prefix.prefix.octets());
        self.put(&option)
    }

    /// The message, with its checksum for these addresses.
    pub fn finish(&mut self, addresses: &IpPair) -> &[u8] {
        let message = &mut self.bytes[..self.length];
        if let Ok(mut view) = IcmpMessage::new_checked(&mut *message) {
            view.fill_checksum(addresses);
        }
        message
    }
}

/// A prefix of a router advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixOption {
    /// The prefix; bits behind its length are 0.
    pub prefix: Ipv6Addr,
    /// Bits of the prefix.
    pub length: u8,
    /// Whether addresses of the prefix are on the link.
    pub on_link: bool,
    /// Whether hosts may make themselves addresses of the prefix (RFC 4862).
    pub autonomous: bool,
    /// Seconds for which the prefix holds; `u32::MAX` is without end.
    pub valid: u32,
    /// Seconds for which hosts open connections with addresses of the prefix, at most `valid`.
    pub preferred: u32,
}

impl PrefixOption {
    /// The prefix of an option, which is given with its type and length. `None` for other options, and for prefixes of
    /// more than 128 bits.
    pub fn read(option: &[u8]) -> Option<PrefixOption> {
        let option = option.first_chunk::<32>().filter(|option| option[..2] == [option_type::PREFIX, 4])?;
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|index| option[at + index]));
        let (length, flags) = (option[2], option[3]);
        let address = u128::from_be_bytes(std::array::from_fn(|index| option[16 + index]));
        let mask = u128::MAX.checked_shl(128_u32.checked_sub(length.into())?).unwrap_or(0);
        Some(PrefixOption {
            prefix: Ipv6Addr::from(address & mask),
            length,
            on_link: flags & 0x80 != 0,
            autonomous: flags & 0x40 != 0,
            valid: word(4),
            preferred: word(8),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0x12, 0x34]);

    #[test]
    fn addresses_are_those_of_the_rfcs() {
        assert_eq!(link_local(MAC).to_string(), "fe80::ff:fe00:1234");
        assert_eq!(link_local(MacAddr([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde])).to_string(), "fe80::3656:78ff:fe9a:bcde");
        // RFC 4291, section 2.7.1.
        let group = solicited_node("4037::1:800:200e:8c6c".parse().unwrap());
        assert_eq!(group.to_string(), "ff02::1:ff0e:8c6c");
        assert_eq!(multicast_mac(group).to_string(), "33:33:ff:0e:8c:6c");
    }

    #[test]
    fn what_is_written_is_read() {
        let addresses = IpPair::V6 { src: link_local(MAC), dst: ALL_NODES };
        let target: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let mut draft = MessageDraft::new(message_type::NEIGHBOUR_ADVERTISEMENT, flag::ROUTER | flag::OVERRIDE);
        draft.put(&target.octets()).put_link_layer(option_type::TARGET_LINK_LAYER, MAC);
        let bytes = draft.finish(&addresses);
        let sum = addresses.pseudo_header(crate::IpProtocol::ICMPV6, bytes.len()).add_bytes(bytes);
        let message = Message::new_checked(bytes).unwrap();
        assert_eq!((bytes.len(), sum.finish(), message.kind(), message.code()), (32, 0, 136, 0));
        assert_eq!((message.word(), message.target()), (0xa000_0000, target));
        assert_eq!(message.link_layer(option_type::TARGET_LINK_LAYER), Some(MAC));
        assert_eq!(message.link_layer(option_type::SOURCE_LINK_LAYER), None);
    }

    #[test]
    fn router_advertisements_are_laid_out_as_the_rfc_draws_them() {
        let prefix = PrefixOption {
            prefix: "2001:db8:1::".parse().unwrap(),
            length: 64,
            on_link: true,
            autonomous: true,
            valid: u32::MAX,
            preferred: 0x0102_0304,
        };
        let mut draft = MessageDraft::new(message_type::ROUTER_ADVERTISEMENT, 0x4080_0708);
        draft.put(&[0; 8]).put_mtu(1400).put_prefix(&prefix);
        let bytes = draft.finish(&IpPair::V6 { src: link_local(MAC), dst: ALL_NODES });
        assert_eq!((&bytes[4..8], &bytes[16..24]), (&[0x40, 0x80, 7, 8][..], &[5, 1, 0, 0, 0, 0, 5, 0x78][..]));
        let expected = [3, 4, 64, 0xc0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8, 0, 1];
        assert_eq!((&bytes[24..46], bytes.len()), (&expected[..], 56));
        assert_eq!(Message::new_checked(bytes).unwrap().options().map(|(kind, _)| kind).collect::<Vec<_>>(), [5, 3]);
    }

    #[test]
    fn a_prefix_that_is_written_is_read() {
        for (length, on_link, autonomous) in
            [(64, true, false), (0, false, true), (128, true, true), (63, false, false)]
        {
            let all = u128::from_be_bytes([0xa5; 16]);
            let bits = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            let prefix =
                PrefixOption { prefix: (all & bits).into(), length, on_link, autonomous, valid: 7, preferred: 5 };
            let mut draft = MessageDraft::new(message_type::ROUTER_ADVERTISEMENT, 0);
            draft.put(&[0; 8]).put_prefix(&prefix);
            let bytes = draft.finish(&IpPair::V6 { src: ALL_NODES, dst: ALL_NODES }).to_vec();
            assert_eq!(PrefixOption::read(&bytes[16..]), Some(prefix));
            // Bits behind the prefix do not count (RFC 4861, section 4.6.2).
            let mut noisy = bytes.clone();
            noisy[32..48].fill(0xa5);
            assert_eq!(PrefixOption::read(&noisy[16..]), Some(prefix));
            for (at, value) in [(16, 5), (17, 3), (18, 129)] {
                let mut other = bytes.clone();
                other[at] = value;
                assert_eq!(PrefixOption::read(&other[16..]), None);
            }
            assert_eq!(PrefixOption::read(&bytes[16..47]), None);
        }
    }

    #[test]
    fn messages_that_are_too_short_or_have_bad_options_are_rejected() {
        let option = [1, 1, 2, 0, 0, 0, 0, 1];
        let whole = [&[135, 0, 0, 0][..], &[0; 20], &option].concat();
        assert!(Message::new_checked(&whole).is_ok());
        for length in (0..24).chain(25..32) {
            assert!(Message::new_checked(&whole[..length]).is_err(), "{length}");
        }
        for (at, value) in [(0, 132), (0, 138), (25, 0), (25, 2)] {
            let mut wrong = whole.clone();
            wrong[at] = value;
            assert!(Message::new_checked(&wrong).is_err(), "byte {at} is {value}");
        }
        let longer = [&whole[..24], &[1, 2], &[0; 14]].concat();
        let longer = Message::new_checked(&longer).unwrap();
        assert_eq!((longer.link_layer(1), longer.has(1), longer.has(2)), (None, true, false), "not Ethernet's");
    }

    #[test]
    fn a_draft_takes_no_more_than_fits() {
        let mut draft = MessageDraft::new(message_type::REDIRECT, 0);
        (0..200).for_each(|_| _ = draft.put(&[1; 32]));
        let length = draft.finish(&IpPair::V6 { src: ALL_NODES, dst: ALL_NODES }).len();
        assert!(length <= MAX_DRAFT && length > MAX_DRAFT - 32);
    }
}
