//! Link types: how packets begin.
#![forbid(unsafe_code)]

use std::fmt;

/// How the packets of a capture or an interface begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// An IPv4 or IPv6 header.
    Raw,
    /// An IPv4 header.
    Ipv4,
    /// An IPv6 header.
    Ipv6,
    /// A header of 16 bytes that Linux makes up ("cooked") for captures of the interface `any`.
    Cooked,
    /// The second version of that header, with 20 bytes and the interface's index.
    Cooked2,
    /// The address family in four bytes, in the byte order of the machine that captured.
    Null,
    /// The address family in four bytes, the highest first.
    Loop,
}

/// A link type for which there are no filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there are no filters for link type {0}{named}; there are for Ethernet (1), raw IP (101, 228, 229), Linux cooked \
     (113, 276), NULL (0) and LOOP (108)",
    named = OtherName(*.0)
)]
pub struct UnsupportedLinkType(
    /// Its number in capture files.
    pub u32,
);

/// The name of another link type, in parentheses.
struct OtherName(u32);

impl fmt::Display for OtherName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            6 => "Token Ring",
            7 => "ARCNET",
            8 => "SLIP",
            9 | 50 => "PPP",
            10 => "FDDI",
            104 => "Cisco HDLC",
            105 => "802.11",
            107 => "Frame Relay",
            119 => "802.11 with Prism header",
            127 => "802.11 with radiotap header",
            143 => "DOCSIS",
            163 => "802.11 with AVS header",
            187 | 201 => "Bluetooth",
            189 | 220 => "USB",
            192 => "per-packet information",
            195 | 230 => "802.15.4",
            227 => "CAN",
            239 => "NFLOG",
            _ => return Ok(()),
        };
        write!(f, " ({name})")
    }
}

impl LinkType {
    /// All link types.
    pub const ALL: [LinkType; 8] = [
        LinkType::Ethernet,
        LinkType::Raw,
        LinkType::Ipv4,
        LinkType::Ipv6,
        LinkType::Cooked,
        LinkType::Cooked2,
        LinkType::Null,
        LinkType::Loop,
    ];

    /// The link type with this number in capture files (`LINKTYPE_*`).
    ///
    /// # Errors
    ///
    /// Other link types have no filters.
    pub fn from_number(number: u32) -> Result<LinkType, UnsupportedLinkType> {
        Ok(match number {
            0 => LinkType::Null,
            1 => LinkType::Ethernet,
            // 12 and 14 are what some systems call it within programs.
            12 | 14 | 101 => LinkType::Raw,
            108 => LinkType::Loop,
            113 => LinkType::Cooked,
            228 => LinkType::Ipv4,
            229 => LinkType::Ipv6,
            276 => LinkType::Cooked2,
            other => return Err(UnsupportedLinkType(other)),
        })
    }

    /// Its number in capture files.
    pub fn number(self) -> u32 {
        match self {
            LinkType::Null => 0,
            LinkType::Ethernet => 1,
            LinkType::Raw => 101,
            LinkType::Loop => 108,
            LinkType::Cooked => 113,
            LinkType::Ipv4 => 228,
            LinkType::Ipv6 => 229,
            LinkType::Cooked2 => 276,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkType::Ethernet => "Ethernet",
            LinkType::Raw => "raw IP",
            LinkType::Ipv4 => "raw IPv4",
            LinkType::Ipv6 => "raw IPv6",
            LinkType::Cooked => "Linux cooked captures",
            LinkType::Cooked2 => "Linux cooked captures of version 2",
            LinkType::Null => "NULL",
            LinkType::Loop => "LOOP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_link_types_belong_together() {
        for number in [0, 1, 101, 108, 113, 228, 229, 276] {
            assert_eq!(LinkType::from_number(number).map(LinkType::number), Ok(number));
        }
        let error = LinkType::from_number(127).unwrap_err().to_string();
        assert!(error.starts_with("there are no filters for link type 127 (802.11 with radiotap header); "), "{error}");
        assert!(LinkType::from_number(147).unwrap_err().to_string().contains("type 147; "));
    }
}
