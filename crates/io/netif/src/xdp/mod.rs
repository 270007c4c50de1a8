//! Interfaces through AF_XDP sockets: the kernel receives frames into the packet pool and sends them from there.
//!
//! | file | contents |
//! |---|---|
//! | `memory.rs` | the packet pool as the memory of sockets |
//! | `program.rs` | the XDP program of an interface |
//! | `queue.rs` | one queue |
//! | `source.rs` | opening the queues of an interface |

mod memory;
mod program;
mod queue;
mod source;

use bellows_netdev::bpf::Mode;
pub use bellows_netdev::bpf::{Filter, Match, MatchError};
pub use bellows_netdev::xdp::CopyMode;
use bellows_sys::capability::Set;
pub use queue::{XdpBell, XdpQueue};
pub use source::XdpSource;

use crate::InterfaceName;

/// The configuration of a port through AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The interface.
    pub interface: InterfaceName,
    /// The receive queues to take frames from; `None` for all.
    pub queues: Option<Vec<u32>>,
    /// Where the XDP program runs.
    pub mode: XdpMode,
    /// Whether frames are copied by the kernel.
    pub copy: CopyMode,
    /// Poll the interface in calls of the engine, for at most this many frames a call.
    pub busy_poll: Option<u16>,
    /// The frames to take.
    pub filter: Filter,
    /// Whether to recognize and finish partial checksums of received frames.
    pub finish_checksums: bool,
    /// Who finishes partial checksums of frames to send.
    pub transmit_checksums: TransmitChecksums,
    /// Number of frames that may wait in each direction: a power of two.
    pub ring_size: u32,
    /// Whether the interface receives frames for other hosts, too.
    pub promiscuous: bool,
    /// Number of queues to give the interface while the port has it.
    pub set_queues: Option<u32>,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver if it can, else in the kernel.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel.
    Generic,
}

impl XdpMode {
    fn allows(self, mode: Mode) -> bool {
        match self {
            XdpMode::Auto => true,
            XdpMode::Native => mode == Mode::Native,
            XdpMode::Generic => mode == Mode::Generic,
        }
    }
}

/// Who finishes partial checksums of frames to send, other than this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransmitChecksums {
    /// Nobody.
    #[default]
    Off,
    /// The device, if it offers that.
    Device,
    /// The kernel (`XDP_UMEM_TX_SW_CSUM`), in copy mode.
    Software,
}

/// The capabilities that it takes to open an interface.
pub const CAPABILITIES: Set = Set::NET_RAW.union(Set::NET_ADMIN).union(Set::BPF);
