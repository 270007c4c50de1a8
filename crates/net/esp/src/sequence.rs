//! The upper half of extended sequence numbers, of which packets have the lower one (RFC 4303, appendix A2.2).

/// The number whose lower half is `low`: the one that is in the window, or else the first one above it.
///
/// `last` is the highest number that was authenticated. `None` if the number would be below 0 or need more than 64 bits.
#[inline]
pub(crate) fn infer(last: u64, window: u32, low: u32) -> Option<u64> {
    let (last_high, last_low) = ((last >> 32) as u32, last as u32);
    let bottom = last_low.wrapping_sub(window - 1);
    let high = match (last_low >= window - 1, low >= bottom) {
        // The window is within one subspace.
        (true, true) => last_high,
        (true, false) => last_high.checked_add(1)?,
        // The window begins in the subspace before.
        (false, true) => last_high.checked_sub(1)?,
        (false, false) => last_high,
    };
    Some(u64::from(high) << 32 | u64::from(low))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By definition: the lowest number with this lower half that is not below the window.
    fn model(last: u64, window: u32, low: u32) -> Option<u64> {
        let bottom = i128::from(last) - i128::from(window) + 1;
        let numbers = (-1..=1_i128).map(|step| ((i128::from(last >> 32) + step) << 32) + i128::from(low));
        numbers.filter(|number| *number >= bottom).min().and_then(|number| u64::try_from(number).ok())
    }

    fn near_boundaries() -> impl Strategy<Value = u64> {
        let half = |near: u64| prop_oneof![0..near, (1_u64 << 32) - near..1_u64 << 32, 0..1_u64 << 32];
        (half(3), half(5_000)).prop_map(|(high, low)| high << 32 | low)
    }

    proptest! {
        #[test]
        fn inferred_as_defined(last in near_boundaries(), window in 32..=4_096_u32, distance in -6_000..6_000_i64, far: u32) {
            for low in [last.wrapping_add_signed(distance) as u32, far] {
                prop_assert_eq!(infer(last, window, low), model(last, window, low), "last {:#x} low {:#x}", last, low);
            }
        }
    }

    #[test]
    fn both_ends_of_the_number_space_refuse() {
        assert_eq!(infer(5, 64, u32::MAX), None);
        assert_eq!(infer(u64::MAX, 64, 0), None);
        assert_eq!(infer(u64::MAX - 1, 64, u32::MAX), Some(u64::MAX));
        assert_eq!(infer(0x1_0000_0005, 64, u32::MAX), Some(0xffff_ffff));
        assert_eq!(infer(0xffff_fff0, 64, 2), Some(0x1_0000_0002));
    }
}
