//! Groups of sockets that share the frames of an interface.

/// A group of sockets that share the frames of an interface (`PACKET_FANOUT`): each frame goes to one of them. All
/// sockets of a group have the same mode and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// The number of the group in the network namespace. `None` makes a new group with a number that is free:
    /// [`fanout_group`](super::Receiver::fanout_group) returns it.
    pub group: Option<u16>,
    /// How a socket is chosen.
    pub mode: FanoutMode,
    /// Whether IP fragments are reassembled first, so that all fragments go to one socket
    /// (`PACKET_FANOUT_FLAG_DEFRAG`).
    pub defragment: bool,
    /// Whether another socket gets the frame if the chosen one's ring is full (`PACKET_FANOUT_FLAG_ROLLOVER`).
    pub rollover: bool,
}

/// How a [`Fanout`] group chooses a socket for each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutMode {
    /// By the hash of addresses and ports: each flow to one socket.
    Hash,
    /// In turn.
    LoadBalance,
    /// By the processor that received the frame.
    Processor,
    /// By the receive queue of the interface.
    Queue,
}

impl Fanout {
    /// The argument of `PACKET_FANOUT`. Of a group, the flag counts, and not the option of its sockets, whether they
    /// ignore outgoing frames (since Linux 5.17).
    pub(super) fn argument(self, outgoing: bool) -> u32 {
        let mode = match self.mode {
            FanoutMode::Hash => libc::PACKET_FANOUT_HASH,
            FanoutMode::LoadBalance => libc::PACKET_FANOUT_LB,
            FanoutMode::Processor => libc::PACKET_FANOUT_CPU,
            FanoutMode::Queue => libc::PACKET_FANOUT_QM,
        };
        let flags = [
            (self.group.is_none(), libc::PACKET_FANOUT_FLAG_UNIQUEID),
            (self.defragment, libc::PACKET_FANOUT_FLAG_DEFRAG),
            (self.rollover, libc::PACKET_FANOUT_FLAG_ROLLOVER),
            (!outgoing, libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(mode, |flags, (_, flag)| flags | flag);
        flags << 16 | u32::from(self.group.unwrap_or(0))
    }
}
