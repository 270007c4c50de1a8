//! The apps of a VPN's end, and the links between them.
//!
//! ```text
//!  uplink ── router ── tunnel of a transport ── control channel of a pseudowire ──┐
//!                      (each kind by itself)                                    bridge of a VPLS ── circuit
//!            router ── …                     ── …                               ──┘             ── trunk ── port
//! ```
//!
//! With `ipsec`, ESP is between the router and the tunnels of a transport.

use std::collections::{BTreeMap, BTreeSet};

use bellows_basic::join::{self, Join};
use bellows_config::{Configure, Parts};
use bellows_router::ReversePath;
use bellows_router::dispatch::{self, Dispatch, Protocol, Rule};
use bellows_router::vrf;
use bellows_switch::bridge::Bridge;
use bellows_switch::vlan::mux::VlanMux;
use bellows_vpn::control_channel::{self, ControlChannel};
use bellows_vpn::esp::config::{Association, DontFragment, Mode};
use bellows_vpn::esp::{self, Esp};
use bellows_vpn::gre::{self, Gre};
use bellows_vpn::keyed_tunnel::{self, KeyedTunnel};
use bellows_vpn::tunnel;
use bellows_wire::IpPair;

use super::config::{Config, ControlChannel as ControlKeys, Interface, Ipsec, Kind, Pseudowire};
use super::plan::{Circuit, Plan, Service};
use crate::router::{self, Router};

/// The name of the router among the parts.
const ROUTER: &str = "router";

/// The session of L2TPv3 that has control messages.
const CONTROL_SESSION: u32 = 0xffff_fffe;

/// What is added to a key of GRE for control messages.
const CONTROL_KEY: u32 = 0x8000;

/// Where frames come from and go to.
enum CircuitEnd {
    /// A port of the VPN's end.
    Outside(String),
    /// A port of a part, as links name it.
    Part(String),
}

/// Adds all parts.
pub(super) fn build(config: &Config, plan: &Plan<'_>, parts: &mut Parts) {
    add_router(config, plan, parts);
    for (&name, &addresses) in &plan.transports {
        let kinds = kinds(config, name);
        for &kind in &kinds {
            add_tunnel(config, name, addresses, kind, parts);
        }
        match config.transports.get(name).and_then(|transport| transport.ipsec.as_ref()) {
            Some(ipsec) => add_esp(name, addresses, ipsec, &kinds, parts),
            None => kinds.iter().for_each(|&kind| connect_service(parts, addresses, &tunnel_name(name, kind))),
        }
    }
    for (name, interface) in &config.interfaces {
        if let Some(trunk) = &interface.trunk {
            let app = format!("trunk-{name}");
            parts.app::<VlanMux>(&app, trunk.clone()).from_key(format!("interfaces.{name}.trunk"));
            connect(parts, CircuitEnd::Outside(name.clone()), &format!("{app}.trunk"));
        }
    }
    for service in &plan.vpls {
        add_vpls(service, parts);
    }
}

/// Connects an end with a port of a part, both ways.
fn connect(parts: &mut Parts, end: CircuitEnd, port: &str) {
    match end {
        CircuitEnd::Outside(name) => {
            parts.input(&name, port);
            parts.output(name, port);
        }
        CircuitEnd::Part(other) => {
            parts.link(format!("{other} -> {port}"));
            parts.link(format!("{port} -> {other}"));
        }
    }
}

/// Adds the router, which has the uplinks, and the tunnels as services.
fn add_router(config: &Config, plan: &Plan<'_>, parts: &mut Parts) {
    let uplinks = config.interfaces.iter().filter_map(|(name, interface)| Some((name.clone(), uplink(interface)?)));
    let interfaces: BTreeMap<String, vrf::InterfaceConfig> = uplinks.collect();
    let names: Vec<String> = interfaces.keys().cloned().collect();
    let services = plan.transports.iter().flat_map(|(&name, &addresses)| {
        let [local, remote] = texts(addresses);
        let rules = match is_protected(config, name) {
            true => vec![rule(esp_name(name), "esp")],
            false => {
                kinds(config, name).into_iter().map(|kind| rule(tunnel_name(name, kind), kind.protocol())).collect()
            }
        };
        rules.into_iter().map(move |rule| Rule {
            source: Some(remote.clone()),
            destination: Some(local.clone()),
            ..rule
        })
    });
    let services = services.collect();
    let domain = vrf::Config { interfaces, routes: config.routes.clone(), services, ..vrf::Config::default() };
    parts.compound::<Router>(ROUTER, router::Config(domain));
    for name in names {
        connect(parts, CircuitEnd::Outside(name.clone()), &format!("{ROUTER}.{name}"));
    }
}

/// A rule for all packets of a protocol.
fn rule(to: String, protocol: &str) -> Rule {
    Rule { to, protocol: Some(Protocol::Name(protocol.to_owned())), ..Rule::default() }
}

/// The kinds of tunnels that a transport has.
fn kinds(config: &Config, transport: &str) -> BTreeSet<Kind> {
    pseudowires_of(config, transport).map(|(.., pseudowire)| pseudowire.tunnel).collect()
}

/// An uplink as an interface of the router.
fn uplink(interface: &Interface) -> Option<vrf::InterfaceConfig> {
    Some(vrf::InterfaceConfig {
        mac: interface.mac.clone()?,
        addresses: interface.addresses.clone(),
        mtu: interface.mtu,
        port: None,
        vlan: interface.vlan,
        service_vlan: None,
        neighbours: interface.neighbours.clone(),
        advertise: None,
        redirects: true,
        host: None,
        reverse_path: ReversePath::default(),
        access_in: Vec::new(),
        access_out: Vec::new(),
        strict_neighbours: false,
    })
}

/// The pseudowires of a transport, with the names of their VPLS and their own.
fn pseudowires_of<'c>(
    config: &'c Config,
    transport: &'c str,
) -> impl Iterator<Item = (&'c String, &'c String, &'c Pseudowire)> {
    let all = config
        .vpls
        .iter()
        .flat_map(|(vpls, service)| service.pseudowires.iter().map(move |(name, pseudowire)| (vpls, name, pseudowire)));
    all.filter(move |(.., pseudowire)| pseudowire.transport == transport)
}

/// The local and the remote address.
fn texts(addresses: IpPair) -> [String; 2] {
    match addresses {
        IpPair::V4 { src, dst } => [src.to_string(), dst.to_string()],
        IpPair::V6 { src, dst } => [src.to_string(), dst.to_string()],
    }
}

fn tunnel_name(transport: &str, kind: Kind) -> String {
    format!("{}-{transport}", kind.name())
}

fn esp_name(transport: &str) -> String {
    format!("{}-{transport}", Esp::NAME)
}

fn is_protected(config: &Config, transport: &str) -> bool {
    config.transports.get(transport).is_some_and(|transport| transport.ipsec.is_some())
}

fn family(addresses: IpPair) -> &'static str {
    if matches!(addresses, IpPair::V6 { .. }) { "ip6" } else { "ip4" }
}

/// The session of a pseudowire, which is a port of its tunnel.
fn session(vpls: &str, pseudowire: &str) -> String {
    format!("{vpls}:{pseudowire}")
}

/// That of its control channel.
fn control_session(vpls: &str, pseudowire: &str) -> String {
    format!("{}:control", session(vpls, pseudowire))
}

/// Connects a tunnel or ESP with the router, which has a service of its name.
fn connect_service(parts: &mut Parts, addresses: IpPair, app: &str) {
    let family = family(addresses);
    connect(parts, CircuitEnd::Part(format!("{ROUTER}.{family}-{app}")), &format!("{app}.{family}"));
}

/// Adds ESP between the router and the tunnels of a transport. The protocol distinguishes two tunnels.
fn add_esp(transport: &str, addresses: IpPair, ipsec: &Ipsec, kinds: &BTreeSet<Kind>, parts: &mut Parts) {
    let [local, remote] = texts(addresses);
    let pair = Association {
        remote,
        local: None,
        mode: Mode::Transport,
        inbound: ipsec.inbound.clone(),
        outbound: ipsec.outbound.clone(),
        udp: None,
        hop_limit: esp::config::hop_limit(),
        dscp: None,
        df: DontFragment::default(),
        dst_mac: None,
        local_networks: Vec::new(),
        remote_networks: Vec::new(),
    };
    let associations = BTreeMap::from([(transport.to_owned(), pair)]);
    let keys = esp::Config::between(local, associations);
    let app = esp_name(transport);
    parts.app::<Esp>(&app, keys).from_key(format!("transports.{transport}.ipsec"));
    connect_service(parts, addresses, &app);
    let (clear, family) = (format!("{app}.{transport}"), family(addresses));
    let tunnels = || kinds.iter().map(|&kind| (kind, tunnel_name(transport, kind)));
    if kinds.len() == 1 {
        return tunnels()
            .for_each(|(_, tunnel)| connect(parts, CircuitEnd::Part(clear.clone()), &format!("{tunnel}.{family}")));
    }
    let (dispatch, join) = (format!("dispatch-{transport}"), format!("join-{transport}"));
    let rules = tunnels().map(|(kind, _)| rule(kind.name().to_owned(), kind.protocol())).collect();
    parts.app::<Dispatch>(&dispatch, dispatch::Config { rules });
    parts.app::<Join>(&join, join::Config {});
    parts.link(format!("{clear} -> {dispatch}.input"));
    parts.link(format!("{join}.output -> {clear}"));
    for (kind, tunnel) in tunnels() {
        parts.link(format!("{dispatch}.{} -> {tunnel}.{family}", kind.name()));
        parts.link(format!("{tunnel}.{family} -> {join}.{}", kind.name()));
    }
}

/// Adds the tunnel of a kind.
fn add_tunnel(config: &Config, transport: &str, addresses: IpPair, kind: Kind, parts: &mut Parts) {
    let [local, remote] = texts(addresses);
    let pseudowires = || pseudowires_of(config, transport).filter(|(.., pseudowire)| pseudowire.tunnel == kind);
    let name = tunnel_name(transport, kind);
    let key = format!("transports.{transport}");
    let (df, copy_ecn) = match config.transports.get(transport) {
        Some(transport) => (transport.df, transport.copy_ecn),
        None => Default::default(),
    };
    match kind {
        Kind::L2tpv3 => {
            let sessions = sessions(pseudowires(), |pseudowire, is_control| keyed_tunnel::KeyedTunnelSession {
                remote: remote.clone(),
                local: None,
                expect_session: if is_control { CONTROL_SESSION } else { keyed_tunnel::any_session() },
                send_session: None,
                expect_cookie: pseudowire.expect_cookie.clone(),
                send_cookie: pseudowire.send_cookie.clone(),
                sublayer: keyed_tunnel::Sublayer::None,
            });
            let keys = tunnel::Config { copy_ecn, ..tunnel::Config::between(local, df, sessions) };
            parts.app::<KeyedTunnel>(&name, keys.into()).from_key(key);
        }
        Kind::Gre => {
            let sessions = sessions(pseudowires(), |pseudowire, is_control| gre::Session {
                remote: remote.clone(),
                local: None,
                key: Some(u32::from(pseudowire.vc_id) + if is_control { CONTROL_KEY } else { 0 }),
                checksum: false,
                in_order: pseudowire.in_order && !is_control,
                payload: gre::Carried::Ethernet,
                dst_mac: None,
            });
            let keys = tunnel::Config { copy_ecn, ..tunnel::Config::between(local, df, sessions) };
            parts.app::<Gre>(&name, keys.into()).from_key(key);
        }
    }
}

/// The sessions of pseudowires and their control channels. `make` is given whether it is for a control channel.
fn sessions<'c, S>(
    pseudowires: impl Iterator<Item = (&'c String, &'c String, &'c Pseudowire)>,
    make: impl Fn(&Pseudowire, bool) -> S,
) -> BTreeMap<String, S> {
    let mut sessions = BTreeMap::new();
    for (vpls, name, pseudowire) in pseudowires {
        sessions.insert(session(vpls, name), make(pseudowire, false));
        if pseudowire.control_channel.is_some() {
            sessions.insert(control_session(vpls, name), make(pseudowire, true));
        }
    }
    sessions
}

/// Adds the bridge and the control channels of a VPLS, and connects its ends.
fn add_vpls(service: &Service<'_>, parts: &mut Parts) {
    let Service { name, config, circuits } = service;
    let pseudowires: Vec<(&String, String)> = config
        .pseudowires
        .iter()
        .map(|(pseudowire, keys)| (pseudowire, add_pseudowire(service, pseudowire, keys, parts)))
        .collect();
    if config.is_cross_connect() {
        for (&circuit, (_, port)) in circuits.iter().zip(&pseudowires) {
            connect(parts, circuit_end(circuit), port);
        }
        return;
    }
    let mut keys = config.bridge.clone();
    if pseudowires.len() > 1 {
        keys.groups.insert(0, config.pseudowires.keys().cloned().collect());
    }
    let bridge = format!("bridge-{name}");
    parts.app::<Bridge>(&bridge, keys).from_key(format!("vpls.{name}.bridge"));
    for (pseudowire, port) in pseudowires {
        connect(parts, CircuitEnd::Part(port), &format!("{bridge}.{pseudowire}"));
    }
    for &circuit in circuits {
        let port = match circuit.vlan {
            Some(vlan) => format!("{}:{vlan}", circuit.interface),
            None => circuit.interface.to_owned(),
        };
        connect(parts, circuit_end(circuit), &format!("{bridge}.{port}"));
    }
}

/// Where the frames of a circuit come from.
fn circuit_end(circuit: Circuit<'_>) -> CircuitEnd {
    let Circuit { interface, is_of_trunk, vlan } = circuit;
    match vlan {
        Some(vlan) => CircuitEnd::Part(format!("trunk-{interface}.vlan{vlan}")),
        None if is_of_trunk => CircuitEnd::Part(format!("trunk-{interface}.native")),
        None => CircuitEnd::Outside(interface.to_owned()),
    }
}

/// Adds the control channel of a pseudowire, if it has one. Returns the port that has the frames.
fn add_pseudowire(service: &Service<'_>, name: &str, pseudowire: &Pseudowire, parts: &mut Parts) -> String {
    let tunnel = tunnel_name(&pseudowire.transport, pseudowire.tunnel);
    let frames = format!("{tunnel}.{}", session(service.name, name));
    let Some(ControlKeys { heartbeat, dead_factor, max_heartbeat, description }) = &pseudowire.control_channel else {
        return frames;
    };
    let called = format!("{}.{name}", service.name);
    let keys = control_channel::Config {
        mtu: service.config.mtu,
        vc_id: pseudowire.vc_id.into(),
        description: Some(description.clone().unwrap_or_else(|| called.clone())),
        heartbeat: *heartbeat,
        dead_factor: *dead_factor,
        max_heartbeat: *max_heartbeat,
    };
    let app = format!("{}-{called}", ControlChannel::NAME);
    let key = format!("vpls.{}.pseudowires.{name}.control_channel", service.name);
    parts.app::<ControlChannel>(&app, keys).from_key(key);
    connect(parts, CircuitEnd::Part(frames), &format!("{app}.tunnel"));
    let messages = format!("{tunnel}.{}", control_session(service.name, name));
    connect(parts, CircuitEnd::Part(messages), &format!("{app}.control"));
    format!("{app}.circuit")
}
