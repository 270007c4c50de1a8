//! Switches for measurements and memory checkers: environment variables that take something away from the process.

use std::env;
use std::sync::OnceLock;

/// A switch, which is set before the process starts.
#[derive(Debug)]
pub struct Switch {
    variable: &'static str,
    values: fn() -> Vec<&'static str>,
    is_set: OnceLock<bool>,
}

/// `BELLOWS_HUGE_PAGES=packets`: only packet buffers are on huge pages, so that a measurement can tell what these are worth
/// for tables.
pub static ONLY_PACKETS_ON_HUGE_PAGES: Switch = Switch::new("BELLOWS_HUGE_PAGES", || vec!["packets"]);

/// `BELLOWS_ARENA=off`: blocks of the arena come from the global allocator, which memory checkers watch.
pub static NO_ARENA: Switch = Switch::new("BELLOWS_ARENA", || vec!["off"]);

impl Switch {
    pub(crate) const fn new(variable: &'static str, values: fn() -> Vec<&'static str>) -> Switch {
        Switch { variable, values, is_set: OnceLock::new() }
    }

    /// The value, if it is one of those that the switch has.
    pub(crate) fn value(&self) -> Option<&'static str> {
        let value = env::var_os(self.variable)?;
        (self.values)().into_iter().find(|known| value == *known)
    }

    /// Whether it has a value. The variable is read once.
    pub fn is_set(&self) -> bool {
        *self.is_set.get_or_init(|| self.value().is_some())
    }

    /// Sets it for this process, unless something has already asked for it.
    pub fn set(&self) {
        let _ = self.is_set.set(true);
    }

    /// Checks that its value in the environment, if there is one, means something on this machine.
    ///
    /// # Errors
    /// A sentence without a full stop.
    pub fn check(&self) -> Result<(), String> {
        let Some(value) = env::var_os(self.variable).filter(|value| !value.is_empty()) else { return Ok(()) };
        let values = (self.values)();
        if values.iter().any(|known| value == *known) {
            return Ok(());
        }
        let (variable, value, values) = (self.variable, value.to_string_lossy(), values.join(", "));
        Err(format!("the environment variable {variable} is {value:?}, and can be on this machine: {values}"))
    }
}
