//! How names and addresses are printed, so that they are read again as what they are.
#![forbid(unsafe_code)]

use std::fmt;

use crate::lexer;
use crate::syntax::Id;

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => write!(f, "{number}"),
            // A backslash also for names that would otherwise be cut into several pieces, or be numbers.
            Id::Name(name) if lexer::is_reserved(name) || !is_plain(name) => write!(f, "\\{name}"),
            Id::Name(name) | Id::Ipv4(name) | Id::Ipv6(name, None) | Id::Mac(name) => f.write_str(name),
            Id::Ipv4Prefix(address, length) | Id::Ipv6(address, Some(length)) => write!(f, "{address}/{length}"),
            Id::Ipv4Mask(address, mask) => write!(f, "{address} mask {mask}"),
        }
    }
}

/// Whether a name is read as a name without a backslash.
fn is_plain(name: &str) -> bool {
    matches!(lexer::cut(name).as_deref(), Ok([(lexer::Token::Name(read), _)]) if read == name)
}
