//! Messages of the kernel are read, whatever their bytes are.

use bellows_exercise::netlink::read;
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes that are attributes more often than random ones are: 16-bit lengths and kinds, and contents.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let one = (0u16..32, vec(0u8..24, 0..40)).prop_map(|(kind, content)| {
        let length = content.len() as u16 + 4;
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    });
    (vec(0u8..32, 12), vec(one, 0..12)).prop_map(|(header, rest)| [header, rest.concat()].concat())
}

#[test]
fn a_route_in_a_message_is_found() {
    // `rtmsg`: IPv4, 24 bits, table 254, protocol 4, unicast; then RTA_DST, RTA_OIF and RTA_VIA with an IPv6 address.
    let header = [2, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    let destination = [8, 0, 1, 0, 203, 0, 113, 0];
    let device = [8, 0, 4, 0, 7, 0, 0, 0];
    let via = [&[22, 0, 18, 0, 10, 0][..], &[0xfe; 16], &[0, 0]].concat();
    let body = [&header[..], &destination, &device, &via].concat();
    // The place of `RTM_NEWROUTE` among the kinds. The half of it that comes behind has no way.
    assert_eq!(read(4, &body), 1);
    assert_eq!(read(4, &body[..4]), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_read(choice: u8, bytes in vec(any::<u8>(), 0..300), small in vec(0u8..32, 0..300)) {
        read(choice, &bytes);
        read(choice, &small);
    }

    #[test]
    fn any_attributes_are_read(choice: u8, body in attributes()) {
        read(choice, &body);
    }
}
