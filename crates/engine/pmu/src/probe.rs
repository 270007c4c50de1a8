//! Checks whether the processor's counters can be used, and why not.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::OnceLock;

use bellows_sys::cpu;
use bellows_sys::perf::{Counter, EventSpec, kind};

use crate::event::Event;
use crate::table::{Encoding, Microarchitecture, encoding};

/// The processor's counters that this process may use.
#[derive(Clone, Debug)]
pub struct Pmu {
    core: Microarchitecture,
    /// The device of the performance cores, if there are also others.
    hybrid: Option<u32>,
    user_only: bool,
    rdpmc: bool,
    events: Vec<Event>,
}

/// The reason why the processor's counters cannot be used. Displayed as one sentence, which also names the substitute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPmu {
    /// The kernel lists no processor with counters.
    Absent,
    /// The kernel lists them, but opening one fails with this error.
    Refused(String),
    /// The kernel is built without them.
    NoPerfEvents,
    /// They are not permitted to this user: `kernel.perf_event_paranoid`, if it can be read.
    NotPermitted(Option<i32>),
}

impl std::error::Error for NoPmu {}

impl fmt::Display for NoPmu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPmu::Absent => {
                formatter.write_str("this machine has no performance counters, as most virtual machines have none")
            }
            NoPmu::Refused(error) => write!(formatter, "this machine has no usable performance counters ({error})"),
            NoPmu::NoPerfEvents => {
                formatter.write_str("this kernel is built without performance counters (CONFIG_PERF_EVENTS)")
            }
            NoPmu::NotPermitted(Some(paranoid @ 3..)) => write!(
                formatter,
                "the performance counters are not permitted: kernel.perf_event_paranoid is {paranoid}; allow them with \
                 `sysctl kernel.perf_event_paranoid=2` or with the capability CAP_PERFMON"
            ),
            NoPmu::NotPermitted(Some(paranoid)) => write!(
                formatter,
                "the performance counters are not permitted, although kernel.perf_event_paranoid is {paranoid}: allow \
                 perf_event_open in the container's seccomp profile, or run outside of it"
            ),
            NoPmu::NotPermitted(None) => formatter
                .write_str("the performance counters are not permitted: the capability CAP_PERFMON allows them"),
        }?;
        formatter.write_str("; clocks are those of the time-stamp counter, and the kernel's own events can be counted")
    }
}

impl Pmu {
    /// The counters of this machine, probed at the first call. See [the crate](crate) for the order of the checks.
    ///
    /// # Errors
    /// The reason why there are none.
    pub fn probe() -> Result<&'static Pmu, &'static NoPmu> {
        static PMU: OnceLock<Result<Pmu, NoPmu>> = OnceLock::new();
        let devices = Path::new("/sys/bus/event_source/devices");
        PMU.get_or_init(|| probe(devices, Microarchitecture::of(cpu::identity()), paranoia, try_to_count)).as_ref()
    }

    /// The events that this processor counts, in the order of [`Event::ALL`]: the default events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Whether only user mode is counted, because the user has no access to the kernel's events.
    pub fn is_user_only(&self) -> bool {
        self.user_only
    }

    /// Whether counters are read with RDPMC, without a system call.
    pub fn has_rdpmc(&self) -> bool {
        self.rdpmc
    }

    /// The vendor's or the kernel's name of an event; `None` if this processor is not known to count it.
    pub fn vendor_name(&self, event: Event) -> Option<&'static str> {
        encoding(event, self.core).map(|encoding| encoding.name)
    }

    /// The events to open for an event, in the order to add and to subtract.
    pub(crate) fn encode(&self, event: Event) -> Option<(EventSpec, Option<EventSpec>)> {
        encoding(event, self.core).map(|encoding| in_full(encoding, self.hybrid, self.user_only))
    }
}

impl fmt::Display for Pmu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.events.iter().map(|event| event.name()).collect();
        let modes = if self.user_only { "in user mode only" } else { "in user and kernel mode" };
        let how = if self.rdpmc { "RDPMC" } else { "system calls" };
        write!(formatter, "performance counters for {}, {modes}, read with {how}", names.join(", "))
    }
}

/// The kernel's description of an event to count.
fn in_full(encoding: Encoding, hybrid: Option<u32>, user_only: bool) -> (EventSpec, Option<EventSpec>) {
    let what = |config| match (encoding.kind, hybrid) {
        // Generic events have the device in their upper half.
        (kind::HARDWARE, Some(device)) => {
            EventSpec { kind: kind::HARDWARE, config: u64::from(device) << 32 | config, user_only }
        }
        (kind::RAW, Some(device)) => EventSpec { kind: device, config, user_only },
        (kind, _) => EventSpec { kind, config, user_only },
    };
    (what(encoding.config), encoding.less.map(what))
}

/// The device of the processor's counters in sysfs.
enum CounterDevice {
    Unlisted,
    Uniform,
    /// Performance cores beside others: their type.
    Hybrid(u32),
}

fn device(devices: &Path) -> CounterDevice {
    // If nothing can be listed (a container without /sys), assume this.
    let Ok(entries) = fs::read_dir(devices) else { return CounterDevice::Uniform };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    if names.iter().any(|name| name == "cpu" || name.to_string_lossy().starts_with("armv")) {
        return CounterDevice::Uniform;
    }
    let kind = fs::read_to_string(devices.join("cpu_core/type")).ok();
    kind.and_then(|text| text.trim().parse().ok()).map_or(CounterDevice::Unlisted, CounterDevice::Hybrid)
}

/// Probes in the order that [the crate](crate) describes. `try_to_count` returns whether RDPMC may be used.
fn probe(
    devices: &Path,
    core: Microarchitecture,
    paranoia: impl Fn() -> Option<i32>,
    try_to_count: impl Fn(&EventSpec) -> io::Result<bool>,
) -> Result<Pmu, NoPmu> {
    let hybrid = match device(devices) {
        CounterDevice::Unlisted => return Err(NoPmu::Absent),
        CounterDevice::Uniform => None,
        CounterDevice::Hybrid(device) => Some(device),
    };
    let cycles = |user_only| {
        let encoding = encoding(Event::Cycles, core).expect("every core counts cycles");
        try_to_count(&in_full(encoding, hybrid, user_only).0)
    };
    let (rdpmc, user_only) = match cycles(false) {
        Ok(rdpmc) => (rdpmc, false),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => match cycles(true) {
            Ok(rdpmc) => (rdpmc, true),
            Err(error) => return Err(refusal(&error, paranoia)),
        },
        Err(error) => return Err(refusal(&error, paranoia)),
    };
    let can_count = |event: &Event| {
        let encoding = encoding(*event, core).map(|encoding| in_full(encoding, hybrid, user_only));
        encoding.is_some_and(|(what, less)| [Some(what), less].iter().flatten().all(|what| try_to_count(what).is_ok()))
    };
    let events = Event::HARDWARE.into_iter().filter(can_count).collect();
    Ok(Pmu { core, hybrid, user_only, rdpmc, events })
}

fn refusal(error: &io::Error, paranoia: impl Fn() -> Option<i32>) -> NoPmu {
    match error.kind() {
        ErrorKind::PermissionDenied => NoPmu::NotPermitted(paranoia()),
        ErrorKind::Unsupported => NoPmu::NoPerfEvents,
        ErrorKind::NotFound => NoPmu::Absent,
        _ => NoPmu::Refused(format!("perf_event_open: {error}")),
    }
}

/// `kernel.perf_event_paranoid`: at 2 users may count in user mode; distributions have higher values that forbid it.
pub(crate) fn paranoia() -> Option<i32> {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

fn try_to_count(what: &EventSpec) -> io::Result<bool> {
    let counter = Counter::open(what, None)?;
    Ok(counter.page().is_ok_and(|page| page.can_sample()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use bellows_testkit::scratch::{TempDir, scratch};

    use super::*;

    fn devices(names: &[&str]) -> TempDir {
        let folder = scratch();
        for name in names {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("type"), "10\n").unwrap();
        }
        folder
    }

    fn error(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const ENOSYS: i32 = 38;

    #[test]
    fn a_machine_that_lists_no_counters_is_not_asked_for_one() {
        let devices = devices(&["software", "msr", "breakpoint"]);
        let asked = |_: &EventSpec| -> io::Result<bool> { unreachable!("sysfs has said no") };
        let why = probe(devices.path(), Microarchitecture::Skylake, || Some(2), asked).unwrap_err();
        assert_eq!(why, NoPmu::Absent);
        let text = why.to_string();
        assert!(text.contains("virtual machines") && text.contains("time-stamp counter"), "{text}");
    }

    #[test]
    fn each_error_gives_advice() {
        let devices = devices(&["cpu"]);
        let cases = [
            (ENOENT, Some(2), "has no performance counters"),
            (ENOSYS, None, "CONFIG_PERF_EVENTS"),
            (22, Some(2), "(perf_event_open: Invalid argument"),
            (EACCES, Some(4), "kernel.perf_event_paranoid is 4; allow them with `sysctl kernel.perf_event_paranoid=2`"),
            (EPERM, Some(1), "although kernel.perf_event_paranoid is 1: allow perf_event_open in the container's"),
            (EPERM, None, "CAP_PERFMON"),
        ];
        for (number, paranoid, expected) in cases {
            let why = probe(devices.path(), Microarchitecture::Skylake, || paranoid, |_| Err(error(number)))
                .unwrap_err()
                .to_string();
            assert!(why.contains(expected), "{why}");
            assert!(
                why.ends_with(
                    "; clocks are those of the time-stamp counter, and the kernel's own events can be counted"
                )
            );
        }
    }

    #[test]
    fn a_user_without_kernel_access_counts_in_user_mode() {
        let devices = devices(&["cpu"]);
        let guarded = |what: &EventSpec| if what.user_only { Ok(true) } else { Err(error(EACCES)) };
        let pmu = probe(devices.path(), Microarchitecture::Skylake, || Some(2), guarded).unwrap();
        assert_eq!(pmu.events(), Event::HARDWARE);
        assert!(pmu.is_user_only() && pmu.has_rdpmc());
        assert!(pmu.to_string().contains("in user mode only, read with RDPMC"));
        assert!(pmu.encode(Event::L3Misses).unwrap().0.user_only);
        assert_eq!(pmu.vendor_name(Event::L3Misses), Some("mem_load_retired.l3_miss"));
    }

    #[test]
    fn uncounted_events_are_left_out() {
        let devices = devices(&["cpu"]);
        let without_reference = |what: &EventSpec| match what.config {
            9 => Err(error(ENOENT)),
            _ => Ok(false),
        };
        let pmu = probe(devices.path(), Microarchitecture::Zen2, || Some(-1), without_reference).unwrap();
        assert!(!pmu.events().contains(&Event::RefCycles) && pmu.events().len() == 7);
        assert!(pmu.to_string().ends_with("in user and kernel mode, read with system calls"));
        let pmu = probe(devices.path(), Microarchitecture::Other, || Some(-1), |_| Ok(true)).unwrap();
        assert_eq!(pmu.events(), &Event::HARDWARE[..4]);
    }

    #[test]
    fn beside_other_cores_the_performance_cores_are_asked() {
        let devices = devices(&["cpu_atom", "cpu_core"]);
        let asked = RefCell::new(Vec::new());
        let note = |what: &EventSpec| {
            asked.borrow_mut().push((what.kind, what.config));
            Ok(true)
        };
        probe(devices.path(), Microarchitecture::LionCove, || Some(0), note).unwrap();
        let asked = asked.into_inner();
        assert_eq!(asked[0], (kind::HARDWARE, 10 << 32));
        assert!(asked.contains(&(10, 0x20d1)) && asked.contains(&(10, 0x0100_0000_01d1)));
    }

    #[test]
    fn without_sysfs_the_kernel_is_asked() {
        let folder = scratch();
        let pmu = probe(&folder.path().join("none"), Microarchitecture::Other, || None, |_| Ok(true));
        assert!(pmu.is_ok());
    }

    #[test]
    fn this_machine_gives_a_plain_answer() {
        match Pmu::probe() {
            Ok(pmu) => assert!(pmu.events().contains(&Event::Cycles)),
            Err(why) => assert!(why.to_string().contains("time-stamp counter")),
        }
    }
}
