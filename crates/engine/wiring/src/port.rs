//! The ports of an app.

/// A named port of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name in links: `app.name`.
    pub name: &'static str,
    /// Whether the port must be linked.
    pub required: bool,
    /// One line about the packets that pass through it.
    pub help: &'static str,
}

impl Port {
    /// A port that must be linked.
    pub const fn required(name: &'static str, help: &'static str) -> Port {
        Port { name, required: true, help }
    }

    /// A port that may stay open. Packets sent to an open output are dropped as `unlinked`.
    pub const fn optional(name: &'static str, help: &'static str) -> Port {
        Port { name, required: false, help }
    }
}

/// The inputs, or the outputs, of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Exactly these ports. The app addresses them by their position in the list.
    Named(&'static [Port]),
    /// Any number of ports with any names. The app addresses them by the order of their links.
    Any {
        /// The minimum number of linked ports.
        at_least: usize,
        /// One line about the packets that pass through them.
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
