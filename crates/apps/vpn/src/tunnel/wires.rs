//! The ports of an app with sessions: `ip4` and `ip6` have packets in tunnels, the others have the names of sessions.

use bellows_common::nexts::UNUSUAL;
use bellows_engine::{App, Io};

/// The names of the ports with the packets of tunnels.
pub(crate) const TRANSPORTS: [&str; 2] = ["ip4", "ip6"];

/// What a port is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortKind {
    /// Of packets in tunnels, over IPv6 or IPv4.
    Transport {
        is_v6: bool,
    },
    Session(usize),
    Unknown,
}

impl PortKind {
    /// The kind of a port, by its name and those of sessions, which are sorted.
    fn of(names: &[String], name: Option<&str>) -> PortKind {
        match name {
            Some("ip4") => PortKind::Transport { is_v6: false },
            Some("ip6") => PortKind::Transport { is_v6: true },
            Some(name) => {
                let place = names.binary_search_by(|other| other.as_str().cmp(name));
                place.map_or(PortKind::Unknown, PortKind::Session)
            }
            None => PortKind::Unknown,
        }
    }
}

/// The linked ports of an app.
#[derive(Default)]
pub(crate) struct Wires {
    /// What each input is.
    pub(crate) inputs: Vec<PortKind>,
    /// The output of each session; `UNUSUAL` if there is none.
    pub(crate) outputs: Vec<u16>,
    /// Those of IPv4 and IPv6.
    pub(crate) transports: [Option<u16>; 2],
}

impl Wires {
    /// Finds the ports of an app whose sessions have these names, which are sorted.
    #[cold]
    pub(crate) fn find<A: App>(io: &Io<A>, names: &[String]) -> Wires {
        let inputs = (0..io.inputs()).map(|input| PortKind::of(names, io.input_name(input))).collect();
        let mut wires = Wires { inputs, outputs: vec![UNUSUAL; names.len()], transports: [None; 2] };
        for output in 0..io.outputs() {
            match PortKind::of(names, io.output_name(output)) {
                PortKind::Transport { is_v6 } => wires.transports[usize::from(is_v6)] = Some(output as u16),
                PortKind::Session(session) => wires.outputs[session] = output as u16,
                PortKind::Unknown => {}
            }
        }
        wires
    }
}
