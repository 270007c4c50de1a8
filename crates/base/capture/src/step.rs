//! The result of a step through a file, in either format.

/// A record in the buffer.
pub(crate) struct Located {
    pub(crate) at: usize,
    pub(crate) length: usize,
    pub(crate) timestamp: u64,
    pub(crate) original_length: u32,
    pub(crate) interface: u32,
}

/// The result of a step through a file.
pub(crate) enum Step {
    Packet(Located),
    /// A block without a packet.
    Other,
    End,
    /// The budget is spent.
    Pause,
}
