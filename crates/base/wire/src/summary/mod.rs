//! A packet on one line, as `tcpdump -n -t -S` prints it.
//!
//! ```
//! # use bellows_wire::summary::{LinkLayer, summarize};
//! let mut frame = [0; 42];
//! frame[12..20].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4]);
//! frame[20..22].copy_from_slice(&[0, 1]);
//! frame[38..].copy_from_slice(&[192, 0, 2, 1]);
//! assert_eq!(summarize(LinkLayer::Ethernet, &frame, 60), "ARP, Request who-has 192.0.2.1 tell 0.0.0.0, length 46");
//! ```
//!
//! Any bytes have a summary: for a truncated packet it ends where the bytes do, with the name of the incomplete
//! protocol (` [|tcp]`), and inconsistent lengths are reported with the packet's own values (`bad-hlen 16`).
//!
//! | module | protocols |
//! |---|---|
//! | `link` | Ethernet with VLAN tags, Linux cooked captures, BSD loopback |
//! | `llc` | IEEE 802.2 LLC and SNAP, the spanning tree |
//! | `arp` | ARP |
//! | `ip` | IPv4 and IPv6, fragments and extension headers, and the choice of the next layer |
//! | `tcp`, `udp`, `icmp`, `icmpv6` | the layers above |
//! | `other` | IGMP, GRE, ESP, AH, and other protocols by name |
//!
//! Application protocols are not decoded: a segment is `length 12` and a datagram `UDP, length 12`, as tcpdump prints
//! for unknown ports. Trailing spaces and hex dumps after unknown protocols are left out.

mod arp;
mod icmp;
mod icmpv6;
mod ip;
mod link;
mod llc;
mod other;
mod tcp;
mod udp;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::view::Field;
use crate::{EtherType, MacAddr};

/// The type of a packet's first header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkLayer {
    /// An Ethernet frame without its frame check sequence.
    Ethernet,
    /// IPv4 or IPv6; the first bits tell which.
    Ip,
    /// The 16-byte header of Linux's "cooked" captures.
    LinuxCooked,
    /// The 20-byte header of Linux's "cooked" captures, version 2.
    LinuxCooked2,
    /// A BSD loopback's address family, 4 bytes in either byte order.
    Loopback,
}

impl LinkLayer {
    /// The link layer of a `LINKTYPE_` number in capture files.
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 | 108 => Self::Loopback,
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Ip,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            _ => return None,
        })
    }
}

/// The summary of a packet of `length` bytes, of which `bytes` are available.
pub fn summarize(link: LinkLayer, bytes: &[u8], length: usize) -> String {
    let mut text = String::new();
    write_summary(&mut text, link, bytes, length);
    text
}

/// Appends a packet's summary, see [`summarize`]. Only the growth of the text allocates.
pub fn write_summary(text: &mut String, link: LinkLayer, bytes: &[u8], length: usize) {
    let start = text.len();
    let part = Part { protocol: "", bytes: &bytes[..bytes.len().min(length)], length };
    let mut line = SummaryLine { text, nesting: 0 };
    if let Err(Cut(protocol)) = link::packet(&mut line, link, part) {
        put!(line, " [|{protocol}]");
    }
    // A protocol with nothing to say after a colon leaves a space.
    text.truncate(start + text[start..].trim_end().len());
}

/// The bytes end inside a header of this protocol.
struct Cut(&'static str);

type Written = Result<(), Cut>;

/// The line being written.
struct SummaryLine<'a> {
    text: &'a mut String,
    /// The nesting depth of the current packet.
    nesting: usize,
}

/// The maximum nesting depth that is decoded.
const MAX_DEPTH: usize = 16;

impl SummaryLine<'_> {
    fn put(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = fmt::Write::write_fmt(self.text, arguments);
    }

    /// Writes a nested packet, unless it is nested too deeply.
    fn nested(&mut self, write: impl FnOnce(&mut Self) -> Written) -> Written {
        if self.nesting == MAX_DEPTH {
            self.put(format_args!("[nested more than {MAX_DEPTH} times]"));
            return Ok(());
        }
        self.nesting += 1;
        write(self)
    }
}

/// Appends to a line.
macro_rules! put {
    ($line:expr, $($arguments:tt)*) => { $line.put(format_args!($($arguments)*)) };
}
use put;

/// The rest of a packet from some header on.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// The protocol that reads it, as in ` [|tcp]`.
    protocol: &'static str,
    /// The available bytes, at most `length`.
    bytes: &'a [u8],
    /// The original number of bytes.
    length: usize,
}

impl<'a> Part<'a> {
    fn of(self, protocol: &'static str) -> Self {
        Self { protocol, ..self }
    }

    fn cut<T>(&self) -> Result<T, Cut> {
        Err(Cut(self.protocol))
    }

    fn get(&self, at: usize, count: usize) -> Result<&'a [u8], Cut> {
        self.bytes.get(at..at.saturating_add(count)).ok_or(Cut(self.protocol))
    }

    fn field<T: Field>(&self, at: usize) -> Result<T, Cut> {
        self.get(at, size_of::<T>()).map(T::read)
    }

    fn u8(&self, at: usize) -> Result<u8, Cut> {
        self.field(at)
    }

    fn u16(&self, at: usize) -> Result<u16, Cut> {
        self.field(at)
    }

    fn u32(&self, at: usize) -> Result<u32, Cut> {
        self.field(at)
    }

    fn ipv4(&self, at: usize) -> Result<Ipv4Addr, Cut> {
        self.field(at)
    }

    fn ipv6(&self, at: usize) -> Result<V6, Cut> {
        self.field(at).map(V6)
    }

    fn mac(&self, at: usize) -> Result<MacAddr, Cut> {
        self.field(at)
    }

    fn ether_type(&self, at: usize) -> Result<EtherType, Cut> {
        self.field(at)
    }

    /// The bytes after the first `count`.
    fn skip(self, count: usize) -> Self {
        let bytes = self.bytes.get(count..).unwrap_or_default();
        Self { bytes, length: self.length.saturating_sub(count), ..self }
    }

    /// The first bytes, if there are more than `length`; the others are padding.
    fn limit(self, length: usize) -> Self {
        Self { bytes: &self.bytes[..self.bytes.len().min(length)], length, ..self }
    }
}

/// An IPv6 address as `inet_ntop` writes it: an embedded IPv4 address (RFC 4291, section 2.5.5.1) is dotted.
#[derive(Clone, Copy)]
struct V6(Ipv6Addr);

impl fmt::Display for V6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.segments() {
            [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
                let [a, b, c, d] = (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
                write!(f, "::{a}.{b}.{c}.{d}")
            }
            _ => self.0.fmt(f),
        }
    }
}

/// The name of a number in a table.
fn name(table: &[(u16, &'static str)], number: impl Into<u16>) -> Option<&'static str> {
    let number = number.into();
    table.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}
