//! What a packet carries from one app of a router to the next.

/// The tag of a packet within a router: the interface that received it, and a number whose meaning depends on the link.
///
/// | link | number |
/// |---|---|
/// | to a look-up | none |
/// | from a look-up to a rewrite | index of the [adjacency](crate::Adjacencies) |
/// | to an app that sends ICMP errors | the [error](crate::IcmpError) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u32);

impl Tag {
    /// Bits of the number.
    pub const NUMBER_BITS: u32 = 20;

    const NUMBER: u32 = (1 << Tag::NUMBER_BITS) - 1;

    /// The tag of a packet that this interface received; 0 for packets of the router's own.
    #[inline(always)]
    pub const fn received_on(interface: u16) -> Tag {
        Tag((interface as u32) << Tag::NUMBER_BITS)
    }

    /// The interface that received the packet; 0 for packets of the router's own.
    #[inline(always)]
    pub const fn interface(self) -> u16 {
        (self.0 >> Tag::NUMBER_BITS) as u16
    }

    /// The number.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0 & Tag::NUMBER
    }

    /// The tag with another number, of which the lower 20 bits count.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, number: u32) -> Tag {
        Tag(self.0 & !Tag::NUMBER | number & Tag::NUMBER)
    }
}
