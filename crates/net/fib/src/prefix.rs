//! Addresses and prefixes of both families.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address as a number: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + fmt::Debug + Send + Sync + 'static {
    /// The bits of an address: 32 or 128.
    const BITS: u8;

    /// The lowest address.
    const ZERO: Self;

    /// The first `length` bits, then zeros.
    fn network(self, length: u8) -> Self;

    /// The first `length` bits, then ones.
    fn last(self, length: u8) -> Self;

    /// The number of bits that both addresses begin with.
    fn common_bits(self, other: Self) -> u8;

    /// The address in its usual notation.
    fn shown(self) -> impl fmt::Display;

    /// Parses the usual notation.
    fn parsed(text: &str) -> Option<Self>;
}

macro_rules! address {
    ($number:ty, $notation:ty) => {
        impl Address for $number {
            const BITS: u8 = <$number>::BITS as u8;
            const ZERO: Self = 0;

            fn network(self, length: u8) -> Self {
                self & !Self::ZERO.last(length)
            }

            fn last(self, length: u8) -> Self {
                self | <$number>::MAX.checked_shr(length.into()).unwrap_or(0)
            }

            fn common_bits(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            fn shown(self) -> impl fmt::Display {
                <$notation>::from(self)
            }

            fn parsed(text: &str) -> Option<Self> {
                text.parse::<$notation>().ok().map(Self::from)
            }
        }
    };
}

address!(u32, Ipv4Addr);
address!(u128, Ipv6Addr);

/// All addresses that begin with the same bits.
///
/// Prefixes are ordered by their first address, then by their length: a prefix comes before all others within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// All addresses.
    pub const ALL: Prefix<A> = Prefix { address: A::ZERO, length: 0 };

    /// The prefix of `length` bits that `address` is within, or `None` if addresses are shorter.
    pub fn of(address: A, length: u8) -> Option<Prefix<A>> {
        (length <= A::BITS).then(|| Prefix { address: address.network(length), length })
    }

    /// The first address.
    pub fn address(self) -> A {
        self.address
    }

    /// The number of bits that all addresses have in common.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The last address.
    pub fn last(self) -> A {
        self.address.last(self.length)
    }

    /// The prefix of the first `length` bits, or itself if it has no more.
    pub fn shortened(self, length: u8) -> Prefix<A> {
        let length = length.min(self.length);
        Prefix { address: self.address.network(length), length }
    }

    /// Whether all addresses of `other` are in here.
    pub fn covers(self, other: Prefix<A>) -> bool {
        other.shortened(self.length) == self
    }

    /// Whether the address is in here.
    pub fn contains(self, address: A) -> bool {
        address.network(self.length) == self.address
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address.shown(), self.length)
    }
}

impl<A: Address> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The part before the slash is not an address of this family.
    #[error("expected an address before the `/`")]
    Address,
    /// The part behind the slash is not a number, or more than an address has bits.
    #[error("expected a number of bits from 0 to {0} behind the `/`")]
    Length(u8),
    /// The address has ones behind the prefix.
    #[error("the address has bits behind the first {0}; they must be 0")]
    HostBits(u8),
}

/// Parses `192.0.2.0/24`; an address alone is a prefix of all of its bits.
impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix<A>, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, length.parse().map_err(|_| PrefixError::Length(A::BITS))?),
            None => (text, A::BITS),
        };
        let address = A::parsed(address).ok_or(PrefixError::Address)?;
        let prefix = Prefix::of(address, length).ok_or(PrefixError::Length(A::BITS))?;
        if prefix.address != address {
            return Err(PrefixError::HostBits(length));
        }
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_prefixes() {
        let all = Prefix::<u32>::ALL;
        assert_eq!((all.address(), all.last()), (0, u32::MAX));
        let host = Prefix::<u128>::of(u128::MAX, 128).unwrap();
        assert_eq!((host.address(), host.last()), (u128::MAX, u128::MAX));
        assert_eq!(Prefix::of(0_u32, 33), None);
    }

    #[test]
    fn notation() {
        for text in ["0.0.0.0/0", "192.0.2.0/24", "192.0.2.7/32"] {
            assert_eq!(text.parse::<Prefix<u32>>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "2001:db8::7/128"] {
            assert_eq!(text.parse::<Prefix<u128>>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.7".parse::<Prefix<u32>>().unwrap().length(), 32);
        assert_eq!("192.0.2.0/33".parse::<Prefix<u32>>(), Err(PrefixError::Length(32)));
        assert_eq!("192.0.2.0/x".parse::<Prefix<u32>>(), Err(PrefixError::Length(32)));
        assert_eq!("192.0.2.0/23".parse::<Prefix<u32>>().unwrap().length(), 23);
        assert_eq!("192.0.3.0/23".parse::<Prefix<u32>>(), Err(PrefixError::HostBits(23)));
        assert_eq!("2001:db8::/32".parse::<Prefix<u32>>(), Err(PrefixError::Address));
    }

    #[test]
    fn a_prefix_is_ordered_before_those_within_it() {
        let [wide, narrow, next] =
            ["10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9"].map(|text| text.parse::<Prefix<u32>>().unwrap());
        assert!(wide < narrow && narrow < next);
        assert!(wide.covers(narrow) && wide.covers(wide) && !narrow.covers(wide));
        assert!(narrow.contains(0x0a7f_ffff) && !narrow.contains(0x0a80_0000));
    }
}
