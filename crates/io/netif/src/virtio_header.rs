//! The virtio-net header in front of a frame, to and from the kernel: ten bytes, little-endian on x86-64.

use bellows_netdev::VIRTIO_HEADER;
use bellows_packet::Offload;

/// What a header says about its frame.
#[inline]
pub(crate) fn from_header(header: [u8; VIRTIO_HEADER]) -> Offload {
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    Offload {
        flags: header[0],
        gso_type: header[1],
        header_length: half(2),
        segment_size: half(4),
        checksum_start: half(6),
        checksum_offset: half(8),
    }
}

/// The header that says this.
#[inline]
pub(crate) fn to_header(offload: Offload) -> [u8; VIRTIO_HEADER] {
    let Offload { flags, gso_type, header_length, segment_size, checksum_start, checksum_offset } = offload;
    let [a, b, c, d] = [header_length, segment_size, checksum_start, checksum_offset].map(u16::to_le_bytes);
    [flags, gso_type, a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_are_read_as_they_are_written(header: [u8; VIRTIO_HEADER]) {
            prop_assert_eq!(to_header(from_header(header)), header);
        }
    }
}
