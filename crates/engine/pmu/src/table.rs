//! The numbers of events, by processor.
//!
//! Linux has generic events for cycles, instructions and branch misses, and maps each to the processor's own. No
//! generic event for cache hits and misses means the same everywhere (on AMD, Linux counts misses of the second level
//! as "cache misses"), so for these the processor's own numbers are used, on known processors.
//!
//! The layout of raw numbers is that of the devices' `format` folder in sysfs: the event in bits 0 to 7 (AMD: and 32 to
//! 35), the unit mask in bits 8 to 15 (Intel since Lion Cove: and 40 to 47).
//!
//! # Sources
//!
//! - Intel: the event files of `github.com/intel/perfmon` for each core (`*_core.json`), and SDM volume 3B, chapter
//!   "Performance-Monitoring Events"; models by SDM volume 4, table 2-1.
//! - AMD: the Processor Programming Reference of each family, section "Core Performance Monitor Counters" (PMCx029,
//!   PMCx043); models as in Linux, `arch/x86/kernel/cpu/amd.c`.
//! - Generic events: Linux, `arch/x86/events/intel/core.c` and `arch/x86/events/amd/core.c`.

use bellows_sys::cpu::Identity;
use bellows_sys::perf::{config, kind};

use crate::event::Event;

/// Cores with the same event numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Microarchitecture {
    /// Intel Haswell and Broadwell.
    Haswell,
    /// Intel Skylake up to Redwood Cove.
    Skylake,
    /// Intel Lion Cove, whose first-level cache itself has two levels.
    LionCove,
    /// AMD Zen 2.
    Zen2,
    /// AMD Zen 3.
    Zen3,
    /// AMD Zen 4 and later.
    Zen4,
    /// Another one: generic events only.
    Other,
}

impl Microarchitecture {
    pub(crate) fn of(identity: Option<Identity>) -> Microarchitecture {
        let Some(Identity { vendor, family, model }) = identity else { return Microarchitecture::Other };
        match (&vendor, family) {
            (b"GenuineIntel", 6) => intel(model),
            (b"AuthenticAMD", 0x17) if model >= 0x30 => Microarchitecture::Zen2,
            (b"AuthenticAMD", 0x19) => match model {
                0x00..=0x0f | 0x20..=0x5f => Microarchitecture::Zen3,
                _ => Microarchitecture::Zen4,
            },
            (b"AuthenticAMD", 0x1a..) => Microarchitecture::Zen4,
            _ => Microarchitecture::Other,
        }
    }
}

fn intel(model: u32) -> Microarchitecture {
    match model {
        // Haswell, Broadwell.
        0x3c | 0x3f | 0x45 | 0x46 | 0x3d | 0x47 | 0x4f | 0x56 => Microarchitecture::Haswell,
        // Skylake, Cascade Lake, Kaby Lake, Coffee Lake, Comet Lake, Cannon Lake.
        0x4e | 0x5e | 0x55 | 0x8e | 0x9e | 0xa5 | 0xa6 | 0x66 => Microarchitecture::Skylake,
        // Ice Lake, Tiger Lake, Rocket Lake.
        0x7d | 0x7e | 0x6a | 0x6c | 0x8c | 0x8d | 0xa7 => Microarchitecture::Skylake,
        // Alder Lake, Raptor Lake, Sapphire Rapids, Emerald Rapids.
        0x97 | 0x9a | 0xb7 | 0xba | 0xbf | 0x8f | 0xcf => Microarchitecture::Skylake,
        // Meteor Lake, Arrow Lake U, Granite Rapids.
        0xaa | 0xac | 0xb5 | 0xad | 0xae => Microarchitecture::Skylake,
        // Lunar Lake, Arrow Lake.
        0xbd | 0xc5 | 0xc6 => Microarchitecture::LionCove,
        _ => Microarchitecture::Other,
    }
}

/// The encoding of an event: a number, and possibly another one to subtract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) less: Option<u64>,
    /// The vendor's or the kernel's name.
    pub(crate) name: &'static str,
}

fn raw(config: u64, name: &'static str) -> Option<Encoding> {
    Some(Encoding { kind: kind::RAW, config, less: None, name })
}

/// The encoding of an event on this core; `None` if it is not known.
pub(crate) fn encoding(event: Event, core: Microarchitecture) -> Option<Encoding> {
    let kernel = |kind, config, name| Some(Encoding { kind, config, less: None, name });
    match event {
        Event::Cycles => kernel(kind::HARDWARE, config::CYCLES, "cpu-cycles"),
        // Linux has none for Zen 2 and 3, and returns ENOENT.
        Event::RefCycles => kernel(kind::HARDWARE, config::REF_CYCLES, "ref-cycles"),
        Event::Instructions => kernel(kind::HARDWARE, config::INSTRUCTIONS, "instructions"),
        Event::BranchMisses => kernel(kind::HARDWARE, config::BRANCH_MISSES, "branch-misses"),
        Event::L1Hits | Event::L2Hits | Event::L3Hits | Event::L3Misses => cache(event, core),
        Event::TaskClock => kernel(kind::SOFTWARE, config::TASK_CLOCK, "task-clock"),
        Event::PageFaults => kernel(kind::SOFTWARE, config::PAGE_FAULTS, "page-faults"),
        Event::MinorFaults => kernel(kind::SOFTWARE, config::MINOR_FAULTS, "minor-faults"),
        Event::MajorFaults => kernel(kind::SOFTWARE, config::MAJOR_FAULTS, "major-faults"),
        Event::ContextSwitches => kernel(kind::SOFTWARE, config::CONTEXT_SWITCHES, "context-switches"),
        Event::CpuMigrations => kernel(kind::SOFTWARE, config::CPU_MIGRATIONS, "cpu-migrations"),
    }
}

/// Where loads hit. Intel counts loads retired, AMD counts fills requested by a load or store in flight.
fn cache(event: Event, core: Microarchitecture) -> Option<Encoding> {
    match (event, core) {
        // Event 0xd1; unit mask 0x01 L1_HIT, 0x02 L2_HIT, 0x04 L3_HIT, 0x20 L3_MISS. Loads that hit a line in flight
        // (unit mask 0x40, HIT_LFB or FB_HIT) are in none of them.
        (Event::L1Hits, Microarchitecture::Haswell) => raw(0x01d1, "mem_load_uops_retired.l1_hit"),
        (Event::L2Hits, Microarchitecture::Haswell) => raw(0x02d1, "mem_load_uops_retired.l2_hit"),
        (Event::L3Hits, Microarchitecture::Haswell) => raw(0x04d1, "mem_load_uops_retired.l3_hit"),
        (Event::L3Misses, Microarchitecture::Haswell) => raw(0x20d1, "mem_load_uops_retired.l3_miss"),
        (Event::L1Hits, Microarchitecture::Skylake) => raw(0x01d1, "mem_load_retired.l1_hit"),
        // Unit mask 0x101: 0x01 alone would be L1_HIT_L0.
        (Event::L1Hits, Microarchitecture::LionCove) => raw(0x0100_0000_01d1, "mem_load_retired.l1_hit"),
        (Event::L2Hits, Microarchitecture::Skylake | Microarchitecture::LionCove) => {
            raw(0x02d1, "mem_load_retired.l2_hit")
        }
        (Event::L3Hits, Microarchitecture::Skylake | Microarchitecture::LionCove) => {
            raw(0x04d1, "mem_load_retired.l3_hit")
        }
        (Event::L3Misses, Microarchitecture::Skylake | Microarchitecture::LionCove) => {
            raw(0x20d1, "mem_load_retired.l3_miss")
        }
        // PMCx043, data cache fills on demand, by source: 0x01 the L2, 0x02 the core complex (its L3, or the L2 of
        // another of its cores); the others are further away, and Zen 2 does not have 0x04 (another complex of the
        // node) and 0x80 (extension memory, since Zen 4). No event counts hits of the L1: it is loads dispatched
        // (PMCx029, unit mask 0x01 loads, 0x04 loads that store) minus all fills.
        (Event::L1Hits, Microarchitecture::Zen2) => less_fills(0x5b, "ls_dispatch.loads less ls_refills_from_sys"),
        (Event::L1Hits, Microarchitecture::Zen3) => less_fills(0x5f, "ls_dispatch.loads less ls_dmnd_fills_from_sys"),
        (Event::L1Hits, Microarchitecture::Zen4) => less_fills(0xdf, "ls_dispatch.loads less ls_dmnd_fills_from_sys"),
        (Event::L2Hits, Microarchitecture::Zen2) => raw(0x0143, "ls_refills_from_sys.ls_mabresp_lcl_l2"),
        (Event::L3Hits, Microarchitecture::Zen2) => raw(0x0243, "ls_refills_from_sys.ls_mabresp_lcl_cache"),
        (Event::L3Misses, Microarchitecture::Zen2) => raw(0x5843, "ls_refills_from_sys: memory and remote caches"),
        (Event::L2Hits, Microarchitecture::Zen3 | Microarchitecture::Zen4) => {
            raw(0x0143, "ls_dmnd_fills_from_sys.local_l2")
        }
        (Event::L3Hits, Microarchitecture::Zen3 | Microarchitecture::Zen4) => {
            raw(0x0243, "ls_dmnd_fills_from_sys.local_ccx")
        }
        (Event::L3Misses, Microarchitecture::Zen3) => raw(0x5c43, "ls_dmnd_fills_from_sys: memory and other caches"),
        (Event::L3Misses, Microarchitecture::Zen4) => raw(0xdc43, "ls_dmnd_fills_from_sys: memory and other caches"),
        _ => None,
    }
}

fn less_fills(sources: u64, name: &'static str) -> Option<Encoding> {
    Some(Encoding { kind: kind::RAW, config: 0x0529, less: Some(sources << 8 | 0x43), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(vendor: &[u8; 12], family: u32, model: u32) -> Microarchitecture {
        Microarchitecture::of(Some(Identity { vendor: *vendor, family, model }))
    }

    #[test]
    fn cores_are_distinguished_by_family_and_model() {
        let cases = [
            (b"GenuineIntel", 6, 0x3f, Microarchitecture::Haswell),
            (b"GenuineIntel", 6, 0x8f, Microarchitecture::Skylake),
            (b"GenuineIntel", 6, 0xbd, Microarchitecture::LionCove),
            (b"GenuineIntel", 6, 0x5c, Microarchitecture::Other),
            (b"AuthenticAMD", 0x17, 0x08, Microarchitecture::Other),
            (b"AuthenticAMD", 0x17, 0x71, Microarchitecture::Zen2),
            (b"AuthenticAMD", 0x19, 0x21, Microarchitecture::Zen3),
            (b"AuthenticAMD", 0x19, 0x11, Microarchitecture::Zen4),
            (b"AuthenticAMD", 0x1a, 0x44, Microarchitecture::Zen4),
            (b"HygonGenuine", 0x18, 0x00, Microarchitecture::Other),
        ];
        for (vendor, family, model, expected) in cases {
            assert_eq!(core(vendor, family, model), expected, "family {family:#x}, model {model:#x}");
        }
        assert_eq!(Microarchitecture::of(None), Microarchitecture::Other);
    }

    /// The cache levels partition the loads of a known core: no two count the same source.
    #[test]
    fn no_source_of_data_is_counted_twice() {
        for core in [
            Microarchitecture::Haswell,
            Microarchitecture::Skylake,
            Microarchitecture::LionCove,
            Microarchitecture::Zen2,
            Microarchitecture::Zen3,
            Microarchitecture::Zen4,
        ] {
            let numbers = [Event::L2Hits, Event::L3Hits, Event::L3Misses].map(|event| encoding(event, core).unwrap());
            let masks = numbers.map(|number| number.config >> 8 & 0xff);
            assert_eq!(masks[0] & masks[1] | masks[1] & masks[2] | masks[0] & masks[2], 0, "{core:?}");
            let first = encoding(Event::L1Hits, core).unwrap();
            match first.less {
                Some(all) => assert_eq!(all >> 8, masks[0] | masks[1] | masks[2], "{core:?}"),
                None => assert_eq!((first.config & 0xff, first.config >> 8 & 0xff), (0xd1, 1), "{core:?}"),
            }
        }
    }

    #[test]
    fn a_core_that_is_not_known_has_the_generic_events_alone() {
        for event in Event::ALL {
            let is_cache = [Event::L1Hits, Event::L2Hits, Event::L3Hits, Event::L3Misses].contains(&event);
            assert_eq!(encoding(event, Microarchitecture::Other).is_none(), is_cache, "{event}");
        }
    }
}
