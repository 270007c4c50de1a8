//! A limit on the work of a reader before it returns.

/// A limit on the work of one or several calls of a reader: reading, decompressing, and skipping blocks without
/// packets. Packets that are already in the reader's buffer are free.
///
/// A capture may contain gigabytes without a packet, and some of its bytes decompress to millions of others. Callers
/// that must continue in time give [`Reader::next_within`](crate::Reader::next_within) a budget, and call it again
/// after other work.
///
/// The unit is bytes: those that come out of the file or its decompressor, and those of blocks without a packet, each
/// of which counts for at least [`MIN_STEP`](Budget::MIN_STEP). A step of a decompressor without output counts as
/// [`EMPTY_STEP`](Budget::EMPTY_STEP) bytes. A reader stops when the budget is spent, and may overdraw it by one last
/// step: it reads at most one [`PIECE`](Budget::PIECE), or skips one block that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// Bytes for each requested record: more than twice what an Ethernet packet needs.
    pub const PER_RECORD: u64 = 4_096;

    /// The minimum cost of a step, in bytes.
    pub const MIN_STEP: u64 = 64;

    /// The cost of a decompression step without output, in bytes: the maximum output of a zstd block.
    pub const EMPTY_STEP: u64 = 128 << 10;

    /// The size of a read, in bytes. Every budget allows at least one.
    pub const PIECE: u64 = 256 << 10;

    /// A budget for this many records, usually a burst: a [piece](Budget::PIECE), and [some bytes](Budget::PER_RECORD)
    /// for each of them.
    pub const fn for_records(records: usize) -> Budget {
        Budget { left: Budget::PIECE.saturating_add((records as u64).saturating_mul(Budget::PER_RECORD)) }
    }

    /// A budget that no file can exhaust.
    pub(crate) const fn unlimited() -> Budget {
        Budget { left: u64::MAX }
    }

    /// The remaining bytes.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Whether nothing is left.
    pub const fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Subtracts the cost of a step of this many bytes, or the minimum cost.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes.max(Budget::MIN_STEP));
    }
}
