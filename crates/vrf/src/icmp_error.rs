//! Why a packet is to be answered by an ICMP error.

/// Why a packet cannot be forwarded. Each reason is an ICMP type and code for both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// There is no route (RFC 792: 3/0; RFC 4443: 1/0).
    NoRoute = 0,
    /// The destination's address did not resolve (3/1; 1/3).
    HostUnreachable = 1,
    /// The protocol is not served here (3/2; parameter problem 4/1).
    ProtocolUnreachable = 2,
    /// The port is not served here (3/3; 1/4).
    PortUnreachable = 3,
    /// The packet is too long for the next link (3/4 with its MTU; 2/0).
    TooBig = 4,
    /// A source route is not followed (3/5; parameter problem 4/0).
    SourceRoute = 5,
    /// Forbidden by a rule (3/13; 1/1).
    Prohibited = 6,
    /// The time to live or hop limit ran out on the way (11/0; 3/0).
    TimeExceeded = 7,
    /// Fragments did not arrive in time (11/1; 3/1).
    ReassemblyTimeExceeded = 8,
    /// A field of the header is wrong, whose offset the error tells (12/0; 4/0).
    ParameterProblem = 9,
    /// An IPv6 option or extension header is not known, at an offset (4/2; 4/1).
    Unrecognized = 10,
    /// There is a better first hop on the sender's link (5/1; 137/0). The packet is forwarded all the same.
    Redirect = 11,
    /// The packet would leave the zone of its source's scope: IPv6 alone (1/2).
    BeyondScope = 12,
    /// A first fragment without all headers up to that of the upper layer: IPv6 alone (4/3, RFC 7112).
    IncompleteHeaders = 13,
}

const REASONS: [Reason; 14] = [
    Reason::NoRoute,
    Reason::HostUnreachable,
    Reason::ProtocolUnreachable,
    Reason::PortUnreachable,
    Reason::TooBig,
    Reason::SourceRoute,
    Reason::Prohibited,
    Reason::TimeExceeded,
    Reason::ReassemblyTimeExceeded,
    Reason::ParameterProblem,
    Reason::Unrecognized,
    Reason::Redirect,
    Reason::BeyondScope,
    Reason::IncompleteHeaders,
];

/// The answer to a packet, as the number of its [tag](crate::Tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Why the packet is answered.
    pub reason: Reason,
    /// The MTU in bytes for [`Reason::TooBig`], the offset of the field for [`Reason::ParameterProblem`] and
    /// [`Reason::Unrecognized`], else 0.
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
        let reason = REASONS.get((number >> 16) as usize).copied().unwrap_or(Reason::NoRoute);
        IcmpError { reason, value: number as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tag;

    #[test]
    fn errors_fit_into_tags() {
        for reason in REASONS {
            let error = IcmpError { reason, value: 0xabcd };
            let tag = Tag::received_on(0xfff).with(error.number());
            assert_eq!((tag.interface(), IcmpError::from_number(tag.number())), (0xfff, error));
        }
    }
}
