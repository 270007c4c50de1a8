//! Whether the kernel configures itself by router advertisements that come through a device of this process.
//!
//! The daemons of a router's host have to hear what other routers say: "unnumbered" BGP finds its neighbours so. The
//! kernel would take addresses and routes from it (`accept_ra`), and any station on the link can say it. So the kernel is
//! kept from obeying, and as long as that is not possible, its host hears no advertisements.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The settings of interfaces for IPv6.
const SETTINGS: &str = "/proc/sys/net/ipv6/conf";

/// A device by its network namespace and its name.
type DevicePlace = (Option<PathBuf>, String);

static KNOWN: Mutex<Vec<(DevicePlace, Weak<AtomicBool>)>> = Mutex::new(Vec::new());

/// Whether the kernel ignores router advertisements that come through a device. All who ask for a device see the same.
#[derive(Clone, Debug, Default)]
pub struct Ignored(Arc<AtomicBool>);

impl Ignored {
    /// That of a device; false until it is open.
    pub fn of(namespace: Option<&Path>, device: &str) -> Ignored {
        let place = (namespace.map(Path::to_owned), device.to_owned());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, ignored)| ignored.strong_count() > 0);
        if let Some(ignored) = known.iter().find(|(other, _)| *other == place).and_then(|(_, it)| it.upgrade()) {
            return Ignored(ignored);
        }
        let ignored = Ignored::default();
        known.push((place, Arc::downgrade(&ignored.0)));
        ignored
    }

    /// Whether the kernel ignores them. Never waits.
    #[inline]
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Notes whether the kernel ignores them.
    pub fn set(&self, is_ignored: bool) {
        self.0.store(is_ignored, Relaxed);
    }
}

/// Whether both are those of the same device.
impl PartialEq for Ignored {
    fn eq(&self, other: &Ignored) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Ignored {}

/// What `accept_ra` was before it was set to 0.
#[derive(Clone, Debug)]
pub(crate) struct Before(String);

/// Has the kernel ignore the advertisements of an interface in the namespace of this thread. Returns what it did before,
/// if it has changed.
///
/// # Errors
/// If it obeys them and cannot be changed.
pub(crate) fn ignore(name: &str) -> io::Result<Option<Before>> {
    let before = match read(name, "accept_ra") {
        // Without IPv6, there is nothing to obey.
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_without_ipv6() => return Ok(None),
        before => before?,
    };
    if before == "0" {
        return Ok(None);
    }
    match write(name, "0") {
        Ok(()) => Ok(Some(Before(before))),
        Err(_) if !obeys(name) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an interface's advertisements are obeyed, as far as is known.
pub(crate) fn obeys(name: &str) -> bool {
    let setting = |key: &str| read(name, key).ok();
    match (setting("accept_ra").as_deref(), setting("forwarding").as_deref()) {
        (Some("0"), _) => false,
        // A router's kernel obeys them only if it is told to (2).
        (Some("1"), Some(forwarding)) => forwarding == "0",
        _ => true,
    }
}

/// Gives an interface its setting back, unless somebody else has set it meanwhile.
pub(crate) fn give_back(name: &str, Before(before): &Before) {
    if read(name, "accept_ra").is_ok_and(|now| now == "0") {
        // The interface may be gone.
        let _ = write(name, before);
    }
}

fn read(name: &str, key: &str) -> io::Result<String> {
    Ok(fs::read_to_string(format!("{SETTINGS}/{name}/{key}"))?.trim().to_owned())
}

fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("{SETTINGS}/{name}/accept_ra"), value)
}

fn is_without_ipv6() -> bool {
    Path::new("/proc/sys/net/core").exists() && !Path::new(SETTINGS).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_name_a_device_see_the_same() {
        let of = |namespace: Option<&str>, device: &str| Ignored::of(namespace.map(Path::new), device);
        let one = of(Some("a"), "lan0");
        of(Some("a"), "lan0").set(true);
        assert!(one.get() && of(Some("a"), "lan0") == one);
        assert!(!of(None, "lan0").get() && of(Some("a"), "lan1") != one);
        drop(one);
        assert!(!of(Some("a"), "lan0").get(), "nobody remembers it");
    }
}
