//! The ports of an app.

/// One port that an app names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name in links: `app.name`.
    pub name: &'static str,
    /// Whether a network without a link here is a mistake.
    pub required: bool,
    /// What goes through it, in one line.
    pub help: &'static str,
}

impl Port {
    /// A port that must be linked.
    pub const fn required(name: &'static str, help: &'static str) -> Port {
        Port { name, required: true, help }
    }

    /// A port that may stay open. What an app sends to an open output is dropped as `unlinked`.
    pub const fn optional(name: &'static str, help: &'static str) -> Port {
        Port { name, required: false, help }
    }
}

/// The inputs, or the outputs, of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// These and no others; the app addresses them by their position here.
    Named(&'static [Port]),
    /// As many as the network links, with any names; the app addresses them by the order of their links.
    Any {
        /// How many must be linked at least.
        at_least: usize,
        /// What goes through them, in one line.
        help: &'static str,
    },
}

impl Ports {
    /// No ports.
    pub const NONE: Ports = Ports::Named(&[]);

    /// Whether there are no ports.
    pub const fn is_none(&self) -> bool {
        matches!(self, Ports::Named([]))
    }
}
