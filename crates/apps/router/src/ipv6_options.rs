//! Options of IPv6 extension headers: hop-by-hop options, and those for the destination (RFC 8200, section 4.2).

use bellows_vrf::{IcmpError, Reason};

/// Why a packet is dropped for its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadOptions {
    /// Nobody is told.
    Silent,
    /// The sender is told.
    Told(IcmpError),
}

/// Checks the options of an extension header at the start of `bytes`, which is at `start` in the packet. Options of kinds
/// that are not `known`, besides padding, are treated as their types say.
///
/// # Errors
/// Why the packet is dropped.
pub(crate) fn check_options(bytes: &[u8], start: usize, known: &[u8], is_multicast: bool) -> Result<(), BadOptions> {
    let told = |reason, at: usize| BadOptions::Told(IcmpError { reason, value: (start + at) as u16 });
    let length = bytes.get(1).map(|&units| (usize::from(units) + 1) * 8);
    let Some(options) = length.and_then(|length| bytes.get(..length)) else {
        return Err(told(Reason::ParameterProblem, 1));
    };
    let mut at = 2;
    while let Some(&kind) = options.get(at) {
        // Pad1 alone has no length.
        if kind == 0 {
            at += 1;
            continue;
        }
        let end = options.get(at + 1).map(|&length| at + 2 + usize::from(length));
        let Some(end) = end.filter(|&end| end <= options.len()) else {
            return Err(told(Reason::ParameterProblem, at));
        };
        // PadN. The two highest bits of what is not known say what to do.
        if kind != 1 && !known.contains(&kind) {
            match kind >> 6 {
                0 => {}
                1 => return Err(BadOptions::Silent),
                3 if is_multicast => return Err(BadOptions::Silent),
                _ => return Err(told(Reason::Unrecognized, at)),
            }
        }
        at = end;
    }
    Ok(())
}
