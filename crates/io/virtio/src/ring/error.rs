//! The errors of a ring: at its setup, and later in its driver's writes.

use crate::features::Conflict;
use crate::named::named_errors;

/// The reason why a ring cannot be set up. The driver asked for an impossible ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A size of 0, above 32,768, or, for a split ring, not a power of two.
    #[error(
        "a ring cannot have {size} descriptors: the size must be from 1 to 32,768, and a power of two unless it is packed"
    )]
    Size {
        /// The requested size.
        size: u16,
    },
    /// An area is not aligned as the specification requires.
    #[error("the ring's {area} area is at {address:#x}, which is not aligned to {alignment} bytes")]
    Alignment {
        /// `descriptor`, `driver` or `device`.
        area: &'static str,
        /// Its guest address.
        address: u64,
        /// The required alignment.
        alignment: u64,
    },
    /// An area is not inside one region of the memory.
    #[error("the ring's {area} area at {address:#x} is not in the memory that the driver shares")]
    Outside {
        /// `descriptor`, `driver` or `device`.
        area: &'static str,
        /// Its guest address.
        address: u64,
    },
    /// A position beyond the ring's end.
    #[error("the ring is to continue at descriptor {index}, but has only {size}")]
    Position {
        /// The position.
        index: u16,
        /// Number of descriptors of the ring.
        size: u16,
    },
    /// Options that exclude each other.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

named_errors! {
    /// A violation of the specification by the driver, malicious or not, which stops the ring.
    RingError;

    /// The available index is further ahead than the ring's size.
    IndexJump = "index_jump": "the driver's index is further ahead than the ring's size",
    /// A head or a link of a chain names a descriptor that does not exist.
    NoSuchDescriptor = "no_such_descriptor": "a chain leads to a descriptor beyond the ring's end",
    /// A buffer is outside the shared memory.
    OutsideMemory = "outside_memory": "a descriptor's buffer is outside the memory that the driver shares",
    /// A chain has more descriptors than its ring: it probably loops.
    ChainTooLong = "chain_too_long": "a chain has more descriptors than its ring: it probably loops",
    /// A chain has more than 256 buffers, or parts of buffers in different memory regions.
    TooManyPieces = "too_many_pieces": "a chain has more than 256 buffers",
    /// An empty buffer.
    EmptyBuffer = "empty_buffer": "a descriptor's buffer has a length of 0",
    /// An indirect descriptor, although indirect descriptors were not negotiated.
    IndirectNotNegotiated = "indirect_not_negotiated": "an indirect descriptor although `indirect` was not negotiated",
    /// An indirect descriptor in a table, or one that continues in another descriptor.
    IndirectNested = "indirect_nested": "an indirect descriptor where none is allowed",
    /// A table whose length is 0, not a multiple of a descriptor, or more than 1,024 descriptors.
    IndirectLength = "indirect_length": "an indirect table with an invalid length",
    /// A table outside the shared memory.
    IndirectOutsideMemory = "indirect_outside_memory": "an indirect table outside the memory that the driver shares",
    /// A read-only buffer where the device has to write.
    ReadOnlyBuffer = "read_only_buffer": "a read-only buffer in a receive queue",
    /// A write-only buffer where the device has to read.
    WriteOnlyBuffer = "write_only_buffer": "a write-only buffer in a transmit queue",
    /// A chain shorter than the header.
    NoHeader = "no_header": "a chain too short for the virtio-net header",
    /// Part of the memory is gone: its file was truncated.
    MemoryGone = "memory_gone": "the file of the driver's memory was truncated",
}
