//! How much a reader may do before it gives way.

/// The work that one call of a reader, or several, may do: reading and decompressing, and passing over blocks that hold
/// no packets. Packets that lie in the reader's buffer cost nothing of it.
///
/// A capture may hold gigabytes without a packet, and some of its bytes decompress to millions of others. Who must go
/// on in time gives [`Reader::next_within`](crate::Reader::next_within) a budget, and asks again when it has done other
/// things.
///
/// Work counts in bytes: those that come out of the file or its decompressor, and those of blocks without a packet, of
/// which each counts for at least [`MIN_STEP`](Budget::MIN_STEP). A step of a decompressor that yields nothing
/// counts as [`BARREN_STEP`](Budget::BARREN_STEP) bytes. A reader stops when the budget is spent, which the last step
/// may overdraw: it reads one [`PIECE`](Budget::PIECE) at most, or passes over one block that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// Bytes for each record that is wanted: enough for those of an Ethernet, and twice that.
    pub const PER_RECORD: u64 = 4_096;

    /// What the smallest step counts for, in bytes.
    pub const MIN_STEP: u64 = 64;

    /// What a step of a decompressor counts for that yields nothing, in bytes: a block of zstd decompresses to as many.
    pub const BARREN_STEP: u64 = 128 << 10;

    /// What is read at once, in bytes: each budget allows for it.
    pub const PIECE: u64 = 256 << 10;

    /// One for so many records, usually a burst: a [piece](Budget::PIECE), and [something](Budget::PER_RECORD) for each
    /// of them.
    pub const fn for_records(records: usize) -> Budget {
        Budget { left: Budget::PIECE.saturating_add((records as u64).saturating_mul(Budget::PER_RECORD)) }
    }

    /// One that no file can spend.
    pub(crate) const fn unlimited() -> Budget {
        Budget { left: u64::MAX }
    }

    /// Bytes that are left.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Whether nothing is left.
    pub const fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Takes a step that counts for so many bytes, or the least.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes.max(Budget::MIN_STEP));
    }
}
