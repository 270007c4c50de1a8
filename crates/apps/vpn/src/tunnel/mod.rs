//! Tunnels that put a fixed header in front of what they carry: `keyed-tunnel`, `gre`, `vxlan` and `geneve`.
//!
//! All sessions of an app share the ports `ip4` and `ip6`, and each has a port of its own name. What differs between the protocols is a [`Protocol`]: the header behind that of IP, and how a received one is read.
//!
//! A header that is sent is a [template](bellows_common::headers::Template) with a few fields set for each packet. A
//! received one is compared with a [pattern](bellows_common::headers::Pattern) as a whole, so that one comparison checks
//! the addresses, the protocol, the session and the cookie. What does not match is read field by field (`received.rs`),
//! to be accepted in another form (options, extension headers) or refused by name.

mod deliver;
mod ends;
mod exceeding;
mod index;
#[cfg(test)]
pub(crate) mod path_tests;
mod paths;
mod received;
mod send;
mod session;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod udp;
mod wires;

use std::collections::BTreeMap;

use bellows_common::nexts::NextVectors;
use bellows_config::{BenchFiles, BenchRow, BenchSetup, BenchStep, Configure, Context, SettingError};
use bellows_engine::{App, AppError, Counters, Io, Ports, counters};
use bellows_packet::Vector;
use bellows_sys::keyed_hash::{KeyWords, KeyedHash};
use bellows_wire::{IpPair, IpProtocol};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use ends::Ends;
pub(crate) use ends::Entries;
pub use received::{Refusal, Seen};
pub use session::{Checksum, Payload, TunnelHeaders};
#[cfg(test)]
pub(crate) use wires::TRANSPORTS;
pub(crate) use wires::{PortKind, Wires};

use exceeding::Exceeding;
use index::Index;
use paths::Paths;
use session::{Session, TunnelColumns};

use crate::path_mtu::{self, Bounds};

/// What is one protocol's own.
pub trait Protocol: Send + Sized + 'static {
    /// The app's name.
    const NAME: &'static str;

    /// The protocol in the IP header.
    const PROTOCOL: IpProtocol;

    /// The keys of the app.
    type Config: Keys + Clone + DeserializeOwned + Serialize + JsonSchema + Send + Sync + 'static;

    /// The headers of a session, which is over IPv6 or not.
    ///
    /// # Errors
    /// If a value is out of its range; `sessions` is the key.
    fn shape(session: &<Self::Config as Keys>::Session, is_v6: bool) -> Result<TunnelHeaders, SettingError>;

    /// Reads a received header behind that of IP.
    ///
    /// # Errors
    /// If it is none of this protocol.
    fn read(payload: &[u8]) -> Result<Seen, Refusal>;

    /// How to measure the app.
    fn bench() -> BenchSetup;
}

/// The keys of an app: those that all tunnels have, and those of its sessions.
pub trait Keys {
    /// The keys of a session.
    type Session;

    /// The keys that all tunnels have.
    fn common(&self) -> &Config<Self::Session>;

    /// The addresses of a session.
    fn ends(session: &Self::Session) -> Ends<'_>;
}

/// Makes a type of keys around [`Config`], whose sessions have the keys `local` and `remote`, that of an app.
macro_rules! keys {
    ($config:ident, $session:ident) => {
        impl $crate::tunnel::Keys for $config {
            type Session = $session;

            fn common(&self) -> &$crate::tunnel::Config<$session> {
                &self.0
            }

            fn ends(session: &$session) -> $crate::tunnel::Ends<'_> {
                $crate::tunnel::Ends { local: session.local.as_deref(), remote: &session.remote }
            }
        }

        impl From<$crate::tunnel::Config<$session>> for $config {
            fn from(keys: $crate::tunnel::Config<$session>) -> $config {
                $config(keys)
            }
        }
    };
}

pub(crate) use keys;

/// The keys that all tunnels have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config<S> {
    /// The address of this end for all sessions that do not name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,

    /// The hop limit, or time to live, of packets that are sent, from 1 to 255.
    #[serde(default = "hop_limit")]
    #[schemars(range(min = 1))]
    pub hop_limit: u8,

    /// The traffic class, or type of service, of packets that are sent: DSCP and ECN, from 0 to 255.
    #[serde(default)]
    pub traffic_class: u8,

    /// Whether packets that are sent have the ECN bits of the packet inside, in place of those of `traffic_class`, so that its
    /// receiver learns of congestion on the way (RFC 6040, normal mode). The other end must know of it.
    #[serde(default)]
    pub copy_ecn: bool,

    /// The longest packet that is sent, with its headers, from 68 bytes, over IPv6 from 1,280. It is the path's MTU unless a
    /// router on the way says that one of its links has less (RFC 1191, RFC 8201); what is learned holds for ten minutes.
    #[serde(default = "path_mtu::no_limit")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68))]
    pub mtu: u16,

    /// The least MTU of a path that routers of IPv4 are believed, from 68 bytes; those of IPv6 are believed 1,280.
    #[serde(default = "path_mtu::min_path_mtu")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68))]
    pub min_path_mtu: u16,

    /// The flag "don't fragment" of IPv4 packets that are sent: `"set"` or `"clear"`. Without it, routers on the way fragment
    /// packets that are too long, and none says that they are; packets have identifications.
    #[serde(default)]
    pub df: DontFragment,

    /// Whether packets that are longer than the path's MTU are sent as fragments, over IPv6, and over IPv4 if `df` is
    /// `"clear"`. Otherwise they are dropped as `too_big`.
    #[serde(default = "yes")]
    pub fragment: bool,

    /// The sessions, by the names of their ports.
    pub sessions: BTreeMap<String, S>,
}

/// A flag of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum DontFragment {
    /// Set.
    #[default]
    Set,
    /// Not set.
    Clear,
}

impl<S> Config<S> {
    /// The defaults, for sessions of this end.
    pub fn between(local: String, df: DontFragment, sessions: BTreeMap<String, S>) -> Config<S> {
        Config {
            local: Some(local),
            hop_limit: hop_limit(),
            traffic_class: 0,
            copy_ecn: false,
            mtu: path_mtu::no_limit(),
            min_path_mtu: path_mtu::min_path_mtu(),
            df,
            fragment: true,
            sessions,
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds { mtu: self.mtu, min_path_mtu: self.min_path_mtu }
    }
}

fn yes() -> bool {
    true
}

fn hop_limit() -> u8 {
    64
}

/// The measurement of packets that go into a tunnel over IPv6, and of those that come out of it. Of a session, what the
/// sender has and what the receiver has.
pub(crate) fn bench(app: &str, [sent, expected]: [&str; 2]) -> BenchSetup {
    let keys = |local: &str, remote: &str, session: &str| {
        format!("local = \"{local}\", sessions = {{ site = {{ remote = \"{remote}\", {session} }} }}")
    };
    let (here, there) = ("2001:db8::1", "2001:db8::2");
    let into = BenchRow {
        label: "into a tunnel",
        keys: keys(here, there, sent),
        inputs: &["site"],
        outputs: &["ip6"],
        ..BenchRow::default()
    };
    let out = BenchRow {
        label: "out of a tunnel",
        keys: keys(there, here, expected),
        inputs: &["ip6"],
        outputs: &["site"],
        before: vec![BenchStep::new(app, &into.keys, "site", "ip6")],
        ..BenchRow::default()
    };
    BenchSetup::Rows(vec![into, out])
}

/// Puts packets into tunnels, and takes them out.
pub struct Tunnel<P: Protocol> {
    sessions: Vec<Session>,
    names: Vec<String>,
    index: Index,
    paths: Paths,
    wires: Wires,
    next_vectors: NextVectors,
    segments: Vector,
    columns: TunnelColumns,
    /// For packets that are longer than their path's MTU.
    exceeding: Exceeding,
    /// Whether those are fragmented.
    fragments: bool,
    /// That of the next IPv4 packet which may be fragmented: those between two ends differ as long as there are some left
    /// (RFC 6864, section 4).
    identification: u16,
    protocol: std::marker::PhantomData<P>,
}

/// The key of the sessions.
const SESSIONS: Entries = Entries { key: "sessions", one: "session" };

counters! { for[P: Protocol] Tunnel<P>;
    drop MALFORMED = "malformed", "packets whose header is not whole, or says that the packet is longer than it is";
    drop FRAGMENT = "fragment", "fragments, which `reassemble` has to put together first; likely: a link on the way is shorter than the packets; lower `mtu` at the other end, or link `reassemble` in front";
    drop OTHER_PROTOCOL = "other_protocol", "packets of another protocol or to another port; likely: the rule of `dispatch` or `services` that leads here says too little, or the ends have different ports";
    drop BAD_HEADER = "bad_header", "packets whose header has a version, flags or options that this end does not know; likely: the other end speaks a variant, such as VXLAN-GPE, GRE with routing, or L2TPv2";
    drop NO_SESSION = "no_session", "packets to no session: of another station, to another address, or with another number; likely: the ends do not agree on `local` and `remote`, the VNI, the key or the session's number, or the other end has a control channel";
    drop BAD_COOKIE = "bad_cookie", "packets of a session with another cookie than the expected one; likely: `send_cookie` of the other end is not `expect_cookie` here";
    drop BAD_FLAGS = "bad_flags", "packets of a session with other flags than the expected ones; likely: only one end has a key, a checksum or sequence numbers";
    drop OUT_OF_ORDER = "out_of_order", "packets with a sequence number that is not behind that of the packet before; likely, if all are: the other end has begun anew while this one has not";
    drop BAD_CHECKSUM = "bad_checksum", "packets with a wrong checksum; likely, if all are: a capture or a virtual interface in front has left the checksum to hardware (`ethtool -K … tx off`), or a translation of addresses has not renewed it";
    drop BAD_ECN = "bad_ecn", "packets that met congestion and carry one whose sender cannot learn of it (RFC 6040)";
    drop BAD_PAYLOAD = "bad_payload", "packets that carry another protocol than their session does; likely: one end carries Ethernet and the other IP";
    drop TOO_SHORT = "too_short", "packets to send without a whole Ethernet header";
    drop TOO_LONG = "too_long", "packets to send that are too long for a header of IP";
    drop TOO_BIG = "too_big", "packets to send that are longer than the path's MTU, and must not be fragmented; likely: the senders do not hear ICMP errors; lower the MTU of their link";
    drop NOT_IP = "not_ip", "packets to send that are not IP, for a session that carries IP; likely: the session is to carry Ethernet frames";
    drop NO_HEADROOM = "no_headroom", "packets without room for the headers of the tunnel";
    drop BAD_OFFLOAD = "bad_offload", "packets whose checksum or segmentation was left to this app and cannot be done";
    drop NO_MEMORY = "no_memory", "packets that were to be segmented while no buffer was free";
    drop UNKNOWN_PORT = "unknown_port", "packets from inputs, or to outputs, that are not linked, or do not have the name of a session, `ip4` or `ip6`";
    drop BAD_ERROR = "bad_icmp_error", "ICMP errors about packets that no session has sent, or that cannot be true";
    asked drop TOLD = "told_path_mtu", "ICMP errors that tell the MTU of a session's path";
    count UNMADE = "unmade", "packets with errors to senders that were not made because the pool had no buffer";
    count SEGMENTED = "segmented", "packets that were segmented before they were sent (GSO)";
    count FRAGMENTED = "fragmented", "packets that were longer than the path's MTU and were fragmented";
    count TOO_BIG_SENT = "too_big_sent", "ICMP errors that told a sender that its packet is too long for the tunnel";
}

impl<P: Protocol> App for Tunnel<P> {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "`ip4` and `ip6`, and the names of sessions" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "`ip4` and `ip6`, and the names of sessions" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        if self.wires.inputs.len() != io.inputs() {
            self.rewire(io);
        }
        for index in 0..self.wires.inputs.len() {
            match self.wires.inputs[index] {
                PortKind::Transport { .. } => self.deliver(io, index),
                PortKind::Session(session) => self.send(io, index, session),
                PortKind::Unknown => io.drop_all(&mut io.input(index), Self::UNKNOWN_PORT),
            }
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
        self.paths.forget_old(&mut self.sessions, io.now());
        self.paths.expires().into_iter().for_each(|at| io.wake_at(at));
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old {
            self.paths.take_over(&old.paths, &mut self.sessions);
            self.identification = old.identification;
            for session in &self.sessions {
                let before = old.index.find(session.received, session.shape.id).map(|place| &old.sessions[place]);
                session.last_sequence.set(before.and_then(|before| before.last_sequence.get()));
            }
        }
        Ok(())
    }
}

impl<P: Protocol> Tunnel<P> {
    /// Finds the ports.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        self.wires = Wires::find(io, &self.names);
        self.next_vectors.resize(io.outputs());
    }
}

impl<P: Protocol> Configure for Tunnel<P> {
    const NAME: &'static str = P::NAME;
    type Config = P::Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        P::bench()
    }

    fn check_outputs(config: &P::Config, outputs: &[&str]) -> Result<(), SettingError> {
        SESSIONS.check_outputs(&config.common().sessions, outputs)
    }

    fn configure(config: P::Config, _: &Context) -> Result<Tunnel<P>, SettingError> {
        let common = config.common();
        SESSIONS.check(&common.sessions)?;
        if common.hop_limit == 0 {
            let message = "packets with a hop limit of 0 go nowhere";
            return Err(SettingError::at("hop_limit", message, "give a number from 1 to 255"));
        }
        let mut sessions = Vec::with_capacity(common.sessions.len());
        for (name, session) in &common.sessions {
            let addresses = P::Config::ends(session).read(SESSIONS, name, common.local.as_deref())?;
            let shape =
                P::shape(session, matches!(addresses, IpPair::V6 { .. })).map_err(|error| error.in_entry(name))?;
            sessions.push(Session::new(addresses, P::PROTOCOL, common, shape));
        }
        common.bounds().check(sessions.iter().any(Session::is_v6))?;
        let paths = Paths::new(&mut sessions, common.bounds());
        let index = Index::new::<P>(&sessions).map_err(|(one, other)| {
            let names: Vec<&String> = common.sessions.keys().collect();
            let message =
                format!("the sessions `{}` and `{}` have the same addresses and number", names[one], names[other]);
            SettingError::at("sessions", message, "give one of them another number or address")
        })?;
        Ok(Tunnel {
            names: common.sessions.keys().cloned().collect(),
            sessions,
            index,
            paths,
            wires: Wires::default(),
            next_vectors: NextVectors::new(),
            segments: Vector::new(),
            columns: TunnelColumns::new(),
            exceeding: Exceeding::new(),
            fragments: common.fragment,
            identification: KeyedHash::new().hash(KeyWords::Two(&[0; 2])) as u16,
            protocol: std::marker::PhantomData,
        })
    }
}
