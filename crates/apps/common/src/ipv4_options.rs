//! Options of IPv4 headers (RFC 791, section 3.1): the list, and the options that routers fill in.

use std::net::Ipv4Addr;

use bellows_sys::clock;
use bellows_wire::Sum;

/// Bytes of a header without options.
pub const FIXED_HEADER: usize = 20;

/// Kinds of options (RFC 791, section 3.1).
pub mod kind {
    /// No more options.
    pub const END: u8 = 0;
    /// A byte without a meaning.
    pub const NO_OPERATION: u8 = 1;
    /// Record Route.
    pub const RECORD_ROUTE: u8 = 7;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 68;
    /// Loose Source Route.
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict Source Route.
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Router Alert (RFC 2113).
    pub const ROUTER_ALERT: u8 = 148;
}

/// An option of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option {
    /// One of [`kind`].
    pub kind: u8,
    /// Where it is in the header.
    pub at: usize,
    /// Its bytes.
    pub length: usize,
}

impl Ipv4Option {
    /// Where its bytes are in the header.
    #[inline]
    pub fn range(self) -> std::ops::Range<usize> {
        self.at..self.at + self.length
    }
}

/// The options of a whole header, in order. An error is the offset of the byte that is wrong, and the last item.
#[inline]
pub fn options(header: &[u8]) -> impl Iterator<Item = Result<Ipv4Option, usize>> {
    let mut at = FIXED_HEADER;
    std::iter::from_fn(move || {
        let kind = *header.get(at)?;
        let option = |length| Ok(Ipv4Option { kind, at, length });
        let found = match (kind, header.get(at + 1)) {
            (kind::END, _) => return None,
            (kind::NO_OPERATION, _) => option(1),
            (_, None) => Err(at),
            (_, Some(&length)) if length < 2 || at + usize::from(length) > header.len() => Err(at + 1),
            (_, Some(&length)) => option(length.into()),
        };
        at = found.map_or(header.len(), |option| option.range().end);
        Some(found)
    })
}

/// Whether the checksum of a whole header is right. Hot.
#[inline]
pub fn is_checksum_right(header: &[u8]) -> bool {
    sum(header).finish() == 0
}

#[inline]
fn sum(header: &[u8]) -> Sum {
    match <&[[u8; 4]; FIXED_HEADER / 4]>::try_from(header.as_chunks().0) {
        Ok(fixed) => Sum::new().add_words(fixed),
        Err(_) => Sum::new().add_bytes(header),
    }
}

/// Writes the checksum of a whole header.
#[inline]
pub fn fill_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = sum(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The options of a header that routers fill in. They have been checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    route: Option<Ipv4Option>,
    timestamps: Option<Ipv4Option>,
}

/// Where the parts of these options are: the pointer, relative to the option and counted from 1, and the overflow count
/// and flags of a timestamp option.
const POINTER: usize = 2;
const OVERFLOW_FLAGS: usize = 3;

/// The greatest number of modules without room for their timestamps that an option can count.
const MAX_OVERFLOW: u8 = 15;

/// The flags of a timestamp option: timestamps alone, with addresses, for the addresses that the sender has listed.
const TIMES: u8 = 0;
const TIMES_AND_ADDRESSES: u8 = 1;
const LISTED_ADDRESSES: u8 = 3;

/// Bytes of an address, and of a timestamp.
const ENTRY: usize = 4;

/// Who fills in options.
pub struct Station<'a> {
    /// Its address in the direction that the packet takes.
    pub address: Ipv4Addr,
    /// Whether it has an address.
    pub is_own: &'a dyn Fn(Ipv4Addr) -> bool,
}

impl Records {
    /// Those of a whole header.
    ///
    /// # Errors
    /// The offset in the header of the byte that is wrong.
    pub fn find(header: &[u8]) -> Result<Records, usize> {
        let mut records = Records::default();
        for option in options(header) {
            let option = option?;
            let place = match option.kind {
                kind::RECORD_ROUTE => &mut records.route,
                kind::TIMESTAMP => &mut records.timestamps,
                kind::ROUTER_ALERT if option.length != 4 => return Err(option.at + 1),
                _ => continue,
            };
            // RFC 791: at most once in a datagram.
            if place.replace(option).is_some() {
                return Err(option.at);
            }
            check(option, &header[option.range()]).map_err(|at| option.at + at)?;
        }
        Ok(records)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self == Records::default()
    }

    /// Fills in a station. The header's checksum is corrected.
    pub fn fill_in(self, header: &mut [u8], station: &Station<'_>) {
        if let Some(route) = self.route.and_then(|option| header.get_mut(option.range())) {
            record(route, &station.address.octets());
        }
        if let Some(timestamps) = self.timestamps.and_then(|option| header.get_mut(option.range())) {
            stamp(timestamps, station);
        }
        fill_checksum(header);
    }

    /// Makes all other options ones without a meaning. The header's checksum is not corrected.
    pub fn keep_alone(self, header: &mut [u8]) {
        let kept = [self.route, self.timestamps].map(|option| option.map_or(0..0, Ipv4Option::range));
        for (at, byte) in header.iter_mut().enumerate().skip(FIXED_HEADER) {
            if !kept.iter().any(|range| range.contains(&at)) {
                *byte = kind::NO_OPERATION;
            }
        }
    }
}

/// Checks an option that routers fill in.
///
/// # Errors
/// The offset in the option of the byte that is wrong.
fn check(option: Ipv4Option, bytes: &[u8]) -> Result<(), usize> {
    let fixed = if option.kind == kind::TIMESTAMP { OVERFLOW_FLAGS + 1 } else { POINTER + 1 };
    if bytes.len() < fixed {
        return Err(1);
    }
    let next = usize::from(bytes[POINTER]);
    // Room for a part of an entry is an error; none is not.
    if next <= fixed || !is_full(bytes) && next - 1 + needed(option.kind, bytes) > bytes.len() {
        return Err(POINTER);
    }
    let overflows = option.kind == kind::TIMESTAMP && is_full(bytes) && counts_overflow(bytes[OVERFLOW_FLAGS]);
    if overflows && bytes[OVERFLOW_FLAGS] >> 4 == MAX_OVERFLOW {
        return Err(OVERFLOW_FLAGS);
    }
    Ok(())
}

/// Whether an option has no room left.
fn is_full(option: &[u8]) -> bool {
    usize::from(option[POINTER]) > option.len()
}

/// Bytes that the next entry of an option takes.
fn needed(kind: u8, option: &[u8]) -> usize {
    match kind {
        kind::TIMESTAMP if matches!(flags(option), TIMES_AND_ADDRESSES | LISTED_ADDRESSES) => 2 * ENTRY,
        _ => ENTRY,
    }
}

/// The flags of a timestamp option.
fn flags(option: &[u8]) -> u8 {
    option[OVERFLOW_FLAGS] & 0xf
}

/// Whether modules without room are counted: not by an option that lists who enters a timestamp.
fn counts_overflow(byte: u8) -> bool {
    matches!(byte & 0xf, TIMES | TIMES_AND_ADDRESSES)
}

/// Writes the next entry of an option, if there is room.
fn record(option: &mut [u8], entry: &[u8]) {
    let start = usize::from(option[POINTER]).saturating_sub(1);
    if let Some(room) = option.get_mut(start..start + entry.len()) {
        room.copy_from_slice(entry);
        option[POINTER] += entry.len() as u8;
    }
}

/// Writes the next timestamp of an option.
fn stamp(option: &mut [u8], station: &Station<'_>) {
    if is_full(option) {
        // There is room for another one in the count: it was checked.
        option[OVERFLOW_FLAGS] += if counts_overflow(option[OVERFLOW_FLAGS]) { 1 << 4 } else { 0 };
        return;
    }
    let time = || timestamp().to_be_bytes();
    match flags(option) {
        TIMES => record(option, &time()),
        TIMES_AND_ADDRESSES => {
            record(option, &station.address.octets());
            record(option, &time());
        }
        LISTED_ADDRESSES => {
            let next = usize::from(option[POINTER]) - 1;
            let listed = option.get(next..).and_then(<[u8]>::first_chunk::<ENTRY>).copied();
            if let Some(listed) = listed.filter(|&listed| (station.is_own)(listed.into())) {
                record(option, &listed);
                record(option, &time());
            }
        }
        // Others have no meaning that is known.
        _ => {}
    }
}

/// Milliseconds since midnight, universal time.
fn timestamp() -> u32 {
    const DAY_MS: u64 = 86_400_000;
    (clock::unix_ns() / 1_000_000 % DAY_MS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(options: &[u8]) -> Vec<u8> {
        let mut header = vec![0; FIXED_HEADER];
        header[0] = 0x45 + (options.len() / 4) as u8;
        header.extend(options);
        fill_checksum(&mut header);
        header
    }

    const OWN: [u8; 4] = [10, 0, 0, 1];

    /// The options after a station with two addresses has filled them in.
    fn filled(options: &[u8]) -> Vec<u8> {
        let mut header = header(options);
        let is_own = |address: Ipv4Addr| [OWN, [10, 0, 9, 1]].contains(&address.octets());
        Records::find(&header).unwrap().fill_in(&mut header, &Station { address: OWN.into(), is_own: &is_own });
        assert_eq!(Sum::new().add_bytes(&header).finish(), 0, "the checksum is right");
        header[FIXED_HEADER..].to_vec()
    }

    #[test]
    fn a_route_is_recorded_while_there_is_room() {
        assert_eq!(filled(&[7, 7, 4, 0, 0, 0, 0, 0]), [7, 7, 8, 10, 0, 0, 1, 0]);
        assert_eq!(filled(&[1, 7, 11, 8, 9, 9, 9, 9, 0, 0, 0, 0]), [1, 7, 11, 12, 9, 9, 9, 9, 10, 0, 0, 1]);
        let full = [7, 7, 8, 9, 9, 9, 9, 0];
        assert_eq!(filled(&full), full);
        let past_the_end = [7, 7, 255, 9, 9, 9, 9, 0];
        assert_eq!(filled(&past_the_end), past_the_end);
    }

    /// Whether a time is that of today within a few seconds, or of yesterday's end.
    fn is_now(time: &[u8]) -> bool {
        let (found, now) = (u32::from_be_bytes(*time.first_chunk().unwrap()), timestamp());
        found.abs_diff(now) < 10_000 || found.abs_diff(now) > 86_390_000
    }

    #[test]
    fn timestamps_are_entered_as_the_flags_say() {
        let times = filled(&[68, 12, 5, 0x20, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((&times[..4], is_now(&times[4..]), &times[8..]), (&[68, 12, 9, 0x20][..], true, &[0; 4][..]));
        let with_address = filled(&[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((&with_address[..8], is_now(&with_address[8..])), (&[68, 12, 13, 1, 10, 0, 0, 1][..], true));
        // An address that is not that of the direction, but one's own.
        let listed = filled(&[68, 12, 5, 3, 10, 0, 9, 1, 0, 0, 0, 0]);
        assert_eq!((&listed[..8], is_now(&listed[8..])), (&[68, 12, 13, 3, 10, 0, 9, 1][..], true));
        for unchanged in [[68, 12, 5, 3, 10, 0, 9, 2, 0, 0, 0, 0], [68, 12, 13, 3, 1, 1, 1, 1, 2, 2, 2, 2]] {
            assert_eq!(filled(&unchanged), unchanged);
        }
        let unknown = [68, 8, 5, 2, 0, 0, 0, 0];
        assert_eq!(filled(&unknown), unknown);
        assert_eq!(filled(&[68, 8, 9, 0xe1, 1, 2, 3, 4]), [68, 8, 9, 0xf1, 1, 2, 3, 4], "one more without room");
    }

    #[test]
    fn errors_point_at_the_byte_that_is_wrong() {
        for (options, at) in [
            // A length that is missing, too short, or too long.
            (&[1, 1, 1, 7][..], 23),
            (&[7, 1, 4, 0], 21),
            (&[1, 7, 200, 4], 22),
            (&[148, 3, 0, 0], 21),
            (&[148, 5, 0, 0, 0, 0, 0, 0], 21),
            (&[7, 2, 0, 0], 21),
            (&[68, 3, 5, 0], 21),
            // A pointer into the option's own header, or without room for a whole entry.
            (&[7, 7, 3, 0, 0, 0, 0, 0], 22),
            (&[7, 7, 5, 0, 0, 0, 0, 0], 22),
            (&[1, 68, 8, 4, 0, 0, 0, 0, 0, 0, 0, 0], 23),
            (&[68, 8, 6, 0, 0, 0, 0, 0], 22),
            (&[68, 8, 5, 1, 0, 0, 0, 0], 22),
            (&[68, 8, 5, 3, 0, 0, 0, 0], 22),
            // A count that is at its end.
            (&[68, 8, 9, 0xf0, 0, 0, 0, 0], 23),
            // An option that is there already.
            (&[7, 3, 4, 1, 7, 3, 4, 0], 24),
        ] {
            assert_eq!(Records::find(&header(options)), Err(at), "{options:?}");
        }
        for right in [&[][..], &[0, 7, 200, 4], &[148, 4, 0, 0], &[68, 8, 9, 0xf3, 0, 0, 0, 0], &[130, 3, 0, 0]] {
            assert!(Records::find(&header(right)).is_ok(), "{right:?}");
        }
    }

    #[test]
    fn others_can_be_taken_out() {
        let mut header = header(&[148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0]);
        Records::find(&header).unwrap().keep_alone(&mut header);
        assert_eq!(header[FIXED_HEADER..], [1, 1, 1, 1, 7, 7, 4, 0, 0, 0, 0, 1]);
    }

    proptest! {
        #[test]
        fn any_list_is_refused_or_stays_a_right_one(
            mut list in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..12, Just(7), Just(68)], 0..40),
        ) {
            list.resize(list.len().next_multiple_of(4), 0);
            let mut header = header(&list);
            if let Ok(records) = Records::find(&header) {
                records.fill_in(&mut header, &Station { address: OWN.into(), is_own: &|_| true });
                prop_assert_eq!(Sum::new().add_bytes(&header).finish(), 0);
                let kinds = |header: &[u8]| options(header).collect::<Vec<_>>();
                let mut before = vec![0; FIXED_HEADER];
                before.extend(&list);
                prop_assert_eq!(kinds(&before), kinds(&header));
            }
        }
    }
}
