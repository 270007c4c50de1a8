//! What a step through a file finds, in either format.

/// A record in the buffer.
pub(crate) struct Located {
    pub(crate) at: usize,
    pub(crate) length: usize,
    pub(crate) timestamp: u64,
    pub(crate) original_length: u32,
    pub(crate) interface: u32,
}

/// What a step through a file has found.
pub(crate) enum Step {
    Packet(Located),
    /// A block that holds no packet.
    Other,
    End,
    /// The budget is spent.
    Pause,
}
