//! The Internet checksum: RFC 1071 over whole slices, RFC 1624 for incremental updates.
//!
//! The checksum is the complement of the ones' complement sum of big-endian 16-bit words. Ones' complement addition is
//! independent of byte order and word width as long as carries are added back. So [`Sum`] adds 32-bit words in the
//! machine's byte order into 64 bits, a loop that compilers vectorise, and folds at the end.

/// A ones' complement sum of several pieces. Each piece but the last must have an even length.
///
/// ```
/// # use bellows_wire::Sum;
/// // The worked example of RFC 1071, section 3.
/// let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
/// assert_eq!(Sum::new().add_bytes(&data).finish(), !0xddf2);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const fn new() -> Self {
        Sum(0)
    }

    /// Adds bytes; a last odd byte counts as if a zero byte followed. Exact for slices under 16 GiB. Hot.
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        let (words, tail) = bytes.as_chunks::<4>();
        let mut sum = self.0;
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        let last = match *tail {
            [a] => [a, 0, 0, 0],
            [a, b] => [a, b, 0, 0],
            [a, b, c] => [a, b, c, 0],
            _ => [0; 4],
        };
        sum += u64::from(u32::from_ne_bytes(last));
        Sum(fold_to_33_bits(sum))
    }

    /// Adds bytes whose number the compiler knows, a multiple of 4: a header without options. Hot.
    #[inline]
    pub fn add_words<const WORDS: usize>(self, words: &[[u8; 4]; WORDS]) -> Self {
        let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
        Sum(fold_to_33_bits(self.0 + sum))
    }

    /// Adds a 16-bit field.
    pub const fn add_u16(self, value: u16) -> Self {
        Sum(fold_to_33_bits(self.0 + value.to_be() as u64))
    }

    /// Adds a 64-bit field at an even offset. Hot.
    pub const fn add_u64(self, value: u64) -> Self {
        let value = value.to_be();
        Sum(fold_to_33_bits(self.0 + (value >> 32) + (value & 0xffff_ffff)))
    }

    /// Subtracts another sum: adds its complement.
    pub const fn subtract(self, other: Sum) -> Self {
        Sum(fold_to_33_bits(self.0 + !other.fold() as u64))
    }

    /// The checksum of the sum. Over data that includes its own correct checksum, this is 0.
    pub const fn finish(self) -> u16 {
        !u16::from_be(self.fold())
    }

    /// The checksum in UDP's form: 0xffff instead of 0, which means "no checksum" (RFC 768).
    pub const fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// The sum in 16 bits, in the machine's byte order. 0 only if everything added is 0.
    const fn fold(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }
}

const fn fold_to_33_bits(sum: u64) -> u64 {
    (sum & 0xffff_ffff) + (sum >> 32)
}

/// The checksum after `old`, at an even offset of the covered data, has become `new` (RFC 1624, equation 3).
///
/// The shorter of the two is extended with zero bytes. For IPv4 headers, TCP and ICMP; not for UDP.
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    updated_sum(checksum, old, new).finish()
}

/// Like [`update`], for UDP: a datagram without a checksum (0) stays without one, and a checksum never becomes 0.
pub fn update_udp(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    if checksum == 0 { 0 } else { updated_sum(checksum, old, new).finish_udp() }
}

fn updated_sum(checksum: u16, old: &[u8], new: &[u8]) -> Sum {
    Sum::new().add_u16(!checksum).subtract(Sum::new().add_bytes(old)).add_bytes(new)
}
