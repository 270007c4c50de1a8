//! What can be wrong with a ring: at its setup, and later with what its driver writes there.

use crate::features::Conflict;
use crate::named::named_errors;

/// Why a ring cannot be set up. The driver asked for something that no ring can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A size of 0, beyond 32,768, or, for a split ring, no power of two.
    #[error("a ring of {size} descriptors: the size must be from 1 to 32,768, and a power of two unless it is packed")]
    Size {
        /// What was asked for.
        size: u16,
    },
    /// An area that does not start where the specification wants it.
    #[error("the ring's {area} area is at {address:#x}, which is not aligned to {alignment} bytes")]
    Alignment {
        /// `descriptor`, `driver` or `device`.
        area: &'static str,
        /// Its guest address.
        address: u64,
        /// What it must be a multiple of.
        alignment: u64,
    },
    /// An area that does not lie in one region of the memory.
    #[error("the ring's {area} area at {address:#x} does not lie in the memory that the driver shares")]
    Outside {
        /// `descriptor`, `driver` or `device`.
        area: &'static str,
        /// Its guest address.
        address: u64,
    },
    /// A position beyond the ring's end.
    #[error("the ring is to go on at descriptor {index}, but has {size}")]
    Position {
        /// Where it is to go on.
        index: u16,
        /// How many descriptors it has.
        size: u16,
    },
    /// Options that do not go together.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

named_errors! {
    /// What stops a ring: its driver broke the rules of the specification, out of malice or not.
    RingError;

    /// The available index is further ahead than the ring is long.
    IndexJump = "index_jump": "the driver's index is further ahead than the ring is long",
    /// A head or a link of a chain names a descriptor that does not exist.
    NoSuchDescriptor = "no_such_descriptor": "a chain leads to a descriptor beyond the ring's end",
    /// A buffer lies outside the memory that is shared.
    OutsideMemory = "outside_memory": "a descriptor's buffer lies outside the memory that the driver shares",
    /// A chain has more descriptors than it may have: it probably loops.
    ChainTooLong = "chain_too_long": "a chain has more descriptors than its ring: it probably loops",
    /// A chain has more than 256 buffers, or parts of buffers that lie in different regions of the memory.
    TooManyPieces = "too_many_pieces": "a chain has more than 256 buffers",
    /// A buffer of no bytes.
    EmptyBuffer = "empty_buffer": "a descriptor's buffer has a length of 0",
    /// An indirect descriptor although that was not negotiated.
    IndirectNotNegotiated = "indirect_not_negotiated": "an indirect descriptor, which was not negotiated",
    /// An indirect descriptor in a table, or one that goes on in another descriptor.
    IndirectNested = "indirect_nested": "an indirect descriptor where none may be",
    /// A table of no descriptors, of half ones, or of more than 1,024.
    IndirectLength = "indirect_length": "an indirect table whose length is no number of descriptors",
    /// A table outside the memory that is shared.
    IndirectOutsideMemory = "indirect_outside_memory": "an indirect table outside the memory that the driver shares",
    /// A buffer that the device may only read, where it has to write.
    ReadOnlyBuffer = "read_only_buffer": "a buffer that may only be read was made available to receive into",
    /// A buffer that the device may only write, where it has to read.
    WriteOnlyBuffer = "write_only_buffer": "a buffer that may only be written was made available to transmit from",
    /// A chain that is shorter than the header.
    NoHeader = "no_header": "a chain too short for the virtio-net header",
    /// A part of the memory was taken away: its file was cut short.
    MemoryGone = "memory_gone": "the file of the driver's memory was cut short",
}
