//! Why a packet is to be answered by an ICMP error.

/// The type and code of an ICMP or ICMPv6 error, and the contents of the word behind its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpType {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The word behind the checksum.
    pub word: Word,
}

/// The word behind the checksum of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// 0.
    Unused,
    /// The MTU of the next link.
    Mtu,
    /// The offset of the wrong field.
    Pointer,
    /// The offset of the field that names the protocol: that of the fixed header if the error has no other.
    NextHeader,
    /// The better first hop.
    NextHop,
}

/// Lists what the errors are counted as: the symbol, the counter's name and its description.
macro_rules! sent {
    ($($symbol:ident = $name:literal, $help:literal;)*) => {
        /// What an error that was sent is counted as.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Sent {
            $(#[doc = concat!("The counter `", $name, "`.")] $symbol,)*
        }

        impl Sent {
            /// The names of the counters and their descriptions, in the order of the symbols.
            pub const COUNTERS: [(&'static str, &'static str); [$($name),*].len()] = [$(($name, $help)),*];
        }
    };
}

sent! {
    Redirect = "redirects_sent", "messages that tell a better first hop";
    Unreachable = "unreachable_sent", "errors that say that a destination cannot be reached";
    TooBig = "too_big_sent", "errors that say that a packet is too long for a link";
    TimeExceeded = "time_exceeded_sent", "errors that say that a time ran out";
    ParameterProblem = "parameter_problem_sent", "errors that say that a header is wrong";
}

/// Lists the reasons: for each its number in [tags](crate::Tag), the type, the code and the word of the error in both
/// families, and the counter of errors that were sent.
macro_rules! reasons {
    ($(
        $(#[$doc:meta])*
        $reason:ident = $number:literal,
            v4($kind4:literal, $code4:literal, $word4:ident), v6($kind6:literal, $code6:literal, $word6:ident), $sent:ident;
    )*) => {
        /// Why a packet cannot be forwarded. Each reason is an ICMP type and code for both families.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $reason = $number,)* }

        $(const _: () = assert!($number < 1 << 4, "the number of a reason has four bits in tags");)*

        impl Reason {
            /// All reasons.
            pub const ALL: [Reason; [$($number),*].len()] = [$(Reason::$reason),*];

            const fn of_number(number: u32) -> Option<Reason> {
                match number {
                    $($number => Some(Reason::$reason),)*
                    _ => None,
                }
            }

            /// The error of ICMP (RFC 792).
            pub const fn v4(self) -> IcmpType {
                match self {
                    $(Reason::$reason => IcmpType { kind: $kind4, code: $code4, word: Word::$word4 },)*
                }
            }

            /// The error of ICMPv6 (RFC 4443).
            pub const fn v6(self) -> IcmpType {
                match self {
                    $(Reason::$reason => IcmpType { kind: $kind6, code: $code6, word: Word::$word6 },)*
                }
            }

            /// What an error that was sent is counted as.
            pub const fn sent(self) -> Sent {
                match self { $(Reason::$reason => Sent::$sent,)* }
            }
        }
    };
}

reasons! {
    /// There is no route.
    NoRoute = 0, v4(3, 0, Unused), v6(1, 0, Unused), Unreachable;
    /// The destination's address did not resolve.
    HostUnreachable = 1, v4(3, 1, Unused), v6(1, 3, Unused), Unreachable;
    /// The protocol is not served here.
    ProtocolUnreachable = 2, v4(3, 2, Unused), v6(4, 1, NextHeader), Unreachable;
    /// The port is not served here.
    PortUnreachable = 3, v4(3, 3, Unused), v6(1, 4, Unused), Unreachable;
    /// The packet is too long for the next link.
    TooBig = 4, v4(3, 4, Mtu), v6(2, 0, Mtu), TooBig;
    /// A source route is not followed.
    SourceRoute = 5, v4(3, 5, Unused), v6(4, 0, Pointer), Unreachable;
    /// Forbidden by a rule.
    Prohibited = 6, v4(3, 13, Unused), v6(1, 1, Unused), Unreachable;
    /// The time to live or hop limit ran out on the way.
    TimeExceeded = 7, v4(11, 0, Unused), v6(3, 0, Unused), TimeExceeded;
    /// Fragments did not arrive in time.
    ReassemblyTimeExceeded = 8, v4(11, 1, Unused), v6(3, 1, Unused), TimeExceeded;
    /// A field of the header is wrong.
    ParameterProblem = 9, v4(12, 0, Pointer), v6(4, 0, Pointer), ParameterProblem;
    /// An IPv6 option or extension header is not known.
    Unrecognized = 10, v4(12, 0, Pointer), v6(4, 2, Pointer), ParameterProblem;
    /// There is a better first hop on the sender's link. The packet is forwarded all the same.
    Redirect = 11, v4(5, 1, NextHop), v6(137, 0, NextHop), Redirect;
    /// The packet would leave the zone of its source's scope: IPv6 alone.
    BeyondScope = 12, v4(3, 0, Unused), v6(1, 2, Unused), Unreachable;
    /// A first fragment without all headers up to that of the upper layer: IPv6 alone (RFC 7112).
    IncompleteHeaders = 13, v4(12, 0, Pointer), v6(4, 3, Unused), ParameterProblem;
}

/// The answer to a packet, as the number of its [tag](crate::Tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Why the packet is answered.
    pub reason: Reason,
    /// The MTU in bytes or the offset of a field, if the [`Word`] of the reason in a family is one, else 0.
    pub value: u16,
}

impl IcmpError {
    /// An error without a value.
    pub const fn of(reason: Reason) -> IcmpError {
        IcmpError { reason, value: 0 }
    }

    /// The number for a tag.
    pub const fn number(self) -> u32 {
        (self.reason as u32) << 16 | self.value as u32
    }

    /// The error of a tag's number. Numbers that stand for none are those of a missing route.
    pub fn from_number(number: u32) -> IcmpError {
        let reason = Reason::of_number(number >> 16).unwrap_or(Reason::NoRoute);
        IcmpError { reason, value: number as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tag;

    #[test]
    fn errors_fit_into_tags() {
        for reason in Reason::ALL {
            let error = IcmpError { reason, value: 0xabcd };
            let tag = Tag::received_on(0xfff).with(error.number());
            assert_eq!((tag.interface(), IcmpError::from_number(tag.number())), (0xfff, error));
        }
    }

    #[test]
    fn numbers_of_no_reason_are_those_of_a_missing_route() {
        for number in 0..1 << 4 {
            let known = Reason::ALL.into_iter().find(|reason| *reason as u32 == number);
            let expected = IcmpError { reason: known.unwrap_or(Reason::NoRoute), value: 7 };
            assert_eq!(IcmpError::from_number(number << 16 | 7), expected, "{number}");
        }
    }
}
