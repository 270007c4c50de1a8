//! Mistakes in expressions, and warnings about them.
#![forbid(unsafe_code)]

use std::ops::Range;

/// The message of a mistake that [`Options::netmask`](crate::Options::netmask) avoids.
pub const NETMASK_UNKNOWN: &str = "`ip broadcast` needs the mask of the network, which is not known";

/// What is wrong with an expression, where, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Mistake {
    /// The place: bytes of the text. It is empty at the end of the text.
    pub range: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// A way out.
    pub help: String,
}

impl Mistake {
    pub(crate) fn new(range: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Mistake {
        Mistake { range, message: message.into(), help: help.into() }
    }
}

/// A property of an expression that may surprise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The place: bytes of the text.
    pub range: Range<usize>,
    /// What it is.
    pub kind: WarningKind,
    /// A sentence about it, and what to write instead.
    pub message: String,
}

/// The kind of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarningKind {
    /// `vlan`, `mpls`, `pppoes` or `geneve` shifts what comes after it, in another branch of an `or`, after a `not` or
    /// outside of parentheses.
    ShiftEscapes,
    /// A part, or the whole, matches no packet.
    MatchesNothing,
    /// A part, or the whole, matches every packet.
    MatchesEverything,
    /// A network protocol is tested without `vlan`, so packets with a VLAN tag do not match. It is worth a note where
    /// an expression is explained, and noise elsewhere.
    SkipsTagged,
    /// A test of what is behind the IP header is negated, so packets match in which it is not at the place where the test
    /// looks.
    MatchesHidden,
    /// libpcap 1.10 decides some packets otherwise, by a fault of its optimiser.
    LibpcapDiffers,
}
