//! Where routes come from.

use std::collections::HashMap;

use bellows_fib::Prefix;

use crate::route::IpPrefix;

/// Who entered a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The configuration.
    #[default]
    Static,
    /// A command.
    Control,
    /// Linux, whose table is followed, with the number of who entered the route there (`rtm_protocol`).
    Kernel(u8),
    /// The addresses of the interfaces, and what every router has.
    Connected,
    /// A neighbour on the link, whose Ethernet address is known.
    Neighbour,
}

impl Origin {
    /// All origins.
    pub const ALL: [Origin; 5] =
        [Origin::Static, Origin::Control, Origin::Kernel(0), Origin::Connected, Origin::Neighbour];

    /// The name, as `proto` gives it.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Static => "static",
            Origin::Control => "control",
            Origin::Kernel(_) => "kernel",
            Origin::Connected => "connected",
            Origin::Neighbour => "neighbour",
        }
    }

    /// The origin of a name.
    pub fn named(name: &str) -> Option<Origin> {
        Origin::ALL.into_iter().find(|origin| origin.name() == name)
    }

    /// The place in [`Origin::ALL`].
    pub fn index(self) -> usize {
        match self {
            Origin::Static => 0,
            Origin::Control => 1,
            Origin::Kernel(_) => 2,
            Origin::Connected => 3,
            Origin::Neighbour => 4,
        }
    }

    /// Whether it is Linux.
    pub fn is_kernel(self) -> bool {
        matches!(self, Origin::Kernel(_))
    }

    /// Whether commands can change the route.
    pub fn is_entered(self) -> bool {
        matches!(self, Origin::Static | Origin::Control)
    }

    /// Whether the route keeps its next hops in the table. Those of interfaces and neighbours follow from them.
    pub(crate) fn is_use(self) -> bool {
        self.is_entered() || self.is_kernel()
    }
}

/// A route among all routes: there is at most one to a prefix with the same metric.
pub type RouteKey = (IpPrefix, u32);

/// Something by route, in as little memory as the families permit.
#[derive(Clone, Debug)]
pub(crate) struct ByRoute<T> {
    v4: HashMap<(Prefix<u32>, u32), T>,
    v6: HashMap<(Prefix<u128>, u32), T>,
}

impl<T> Default for ByRoute<T> {
    fn default() -> ByRoute<T> {
        ByRoute { v4: HashMap::new(), v6: HashMap::new() }
    }
}

impl<T: Copy> ByRoute<T> {
    pub fn get(&self, (prefix, metric): RouteKey) -> Option<T> {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.get(&(prefix, metric)).copied(),
            IpPrefix::V6(prefix) => self.v6.get(&(prefix, metric)).copied(),
        }
    }

    /// Sets what there is to say of a route. Returns what it was.
    pub fn set(&mut self, (prefix, metric): RouteKey, value: Option<T>) -> Option<T> {
        match (prefix, value) {
            (IpPrefix::V4(prefix), Some(value)) => self.v4.insert((prefix, metric), value),
            (IpPrefix::V6(prefix), Some(value)) => self.v6.insert((prefix, metric), value),
            (IpPrefix::V4(prefix), None) => self.v4.remove(&(prefix, metric)),
            (IpPrefix::V6(prefix), None) => self.v6.remove(&(prefix, metric)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (RouteKey, T)> {
        let v4 = self.v4.iter().map(|(&(prefix, metric), &value)| ((IpPrefix::V4(prefix), metric), value));
        v4.chain(self.v6.iter().map(|(&(prefix, metric), &value)| ((IpPrefix::V6(prefix), metric), value)))
    }
}
