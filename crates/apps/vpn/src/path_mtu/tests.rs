use bellows_exercise::packets::pair;
use bellows_wire::IpProtocol;
use proptest::prelude::*;

use super::*;

/// An error with these values about a packet of this path.
fn error(is_v6: bool, mtu: u32, length: usize) -> TooBig<'static> {
    TooBig { mtu, length, addresses: pair(is_v6), protocol: IpProtocol::GRE, payload: &[] }
}

proptest! {
    /// The model remembers all errors, and looks for the last one that had an effect.
    #[test]
    fn a_path_is_as_narrow_as_believable_errors_of_ten_minutes_say(
        is_v6 in any::<bool>(),
        configured in prop::sample::select(vec![1_280u16, 1_500, 9_000, 65_535]),
        min_path_mtu in prop::sample::select(vec![68u16, 576, 1_400]),
        events in prop::collection::vec((
            prop_oneof![Just(0u32), 60u32..80, 500u32..1_600, 1_270u32..1_290, 60_000u32..70_000],
            prop::sample::select(vec![40usize, 600, 1_300, 1_500, 65_535]),
            prop::sample::select(vec![0u64, 1, 299, 300, 301, 599, 600]),
        ), 0..30),
    ) {
        let mut path = PathMtu::new(pair(is_v6), Bounds { mtu: configured, min_path_mtu });
        let (mut now, mut history): (u64, Vec<(u64, u16)>) = (7, Vec::new());
        let least = if is_v6 { 1_280 } else { min_path_mtu.min(configured) };
        for (mtu, length, seconds) in events {
            now += seconds * 1_000_000_000;
            path.forget_old(now);
            let in_effect = |history: &[(u64, u16)]| {
                let last = history.last().filter(|(since, _)| now < since + 600_000_000_000);
                last.map_or(configured, |(_, mtu)| *mtu)
            };
            prop_assert_eq!(path.mtu(), in_effect(&history));
            let told = match mtu {
                0 if !is_v6 => [68, 296, 508, 1_006, 1_492, 2_002, 4_352, 8_166, 17_914, 32_000]
                    .into_iter().rfind(|plateau| *plateau < length).unwrap_or(0) as u32,
                mtu => mtu,
            };
            let is_believable = told as usize >= (if is_v6 { 1_280 } else { 68 }) && (told as usize) < length;
            prop_assert_eq!(path.learn(&error(is_v6, mtu, length), now), is_believable);
            let lowered = u16::try_from(told).unwrap_or(u16::MAX).max(least);
            if is_believable && lowered < in_effect(&history) {
                history.push((now, lowered));
            }
            prop_assert_eq!(path.mtu(), in_effect(&history));
            prop_assert!((least..=configured).contains(&path.mtu()));
        }
    }
}
