//! What a router may do with the options of an IPv4 packet that it forwards (RFC 791, section 3.1; RFC 1812, sections
//! 5.3.13.5 and 5.3.13.6).

use std::net::Ipv4Addr;

/// Checks that options are those of the packet that came, and that the router has entered itself where it must.
///
/// # Errors
/// What is wrong.
pub(super) fn are_kept(came: &[u8], left: &[u8], is_own: impl Fn(Ipv4Addr) -> bool) -> Result<(), String> {
    if came.len() != left.len() {
        return Err("its options have another length".to_owned());
    }
    let mut at = 0;
    while at < came.len() && came[at] != 0 {
        let length = if came[at] == 1 { 1 } else { came.get(at + 1).map_or(0, |&length| usize::from(length)) };
        let is_wrong = length == 0 || came[at] != 1 && length < 2 || at + length > came.len();
        if is_wrong || matches!(came[at], 131 | 137) {
            return Err(format!("forwarded with the options {came:02x?}"));
        }
        let (before, after) = (&came[at..at + length], &left[at..at + length]);
        let expected = match before[0] {
            7 if length < 3 || before[2] < 4 => None,
            68 if length < 4 || before[2] < 5 => None,
            7 => entered(before, after, &[AddressEntry::Own], &is_own),
            68 => stamped(before, after, &is_own),
            _ => Some(before.to_vec()),
        };
        if expected.as_deref() != Some(after) {
            return Err(format!("the option {before:02x?} became {after:02x?}"));
        }
        at += length;
    }
    if came[at..] == left[at..] { Ok(()) } else { Err("bytes behind its options have changed".to_owned()) }
}

/// What is entered: an address of the router, or anything, which is a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressEntry {
    Own,
    Time,
}

/// The option with entries behind the others; their values are those that were found. `None` if there is room for a part of
/// them alone, or if an address is not the router's.
fn entered(
    before: &[u8],
    after: &[u8],
    entries: &[AddressEntry],
    is_own: impl Fn(Ipv4Addr) -> bool,
) -> Option<Vec<u8>> {
    let mut option = before.to_vec();
    let start = usize::from(before[2]) - 1;
    if start >= before.len() {
        return Some(option);
    }
    for (number, entry) in entries.iter().enumerate() {
        let range = start + 4 * number..start + 4 * number + 4;
        let found: [u8; 4] = after.get(range.clone())?.try_into().ok()?;
        if *entry == AddressEntry::Own && !is_own(found.into()) {
            return None;
        }
        option[range].copy_from_slice(&found);
        option[2] += 4;
    }
    Some(option)
}

/// A timestamp option as it must be afterwards.
fn stamped(before: &[u8], after: &[u8], is_own: impl Fn(Ipv4Addr) -> bool) -> Option<Vec<u8>> {
    let (next, flags) = (usize::from(before[2]), before[3] & 15);
    let is_full = next > before.len();
    match flags {
        0 | 1 if is_full => {
            let mut option = before.to_vec();
            option[3] = option[3].checked_add(16)?;
            Some(option)
        }
        0 => entered(before, after, &[AddressEntry::Time], is_own),
        1 => entered(before, after, &[AddressEntry::Own, AddressEntry::Time], is_own),
        3 if !is_full => {
            let listed: [u8; 4] = before.get(next - 1..next + 3)?.try_into().ok()?;
            before.get(next + 6)?;
            if is_own(listed.into()) {
                entered(before, after, &[AddressEntry::Own, AddressEntry::Time], is_own)
            } else {
                Some(before.to_vec())
            }
        }
        _ if !is_full && next + 3 > before.len() => None,
        _ => Some(before.to_vec()),
    }
}
