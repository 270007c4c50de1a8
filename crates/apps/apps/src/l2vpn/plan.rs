//! The keys of a VPN's end, checked, with all names resolved.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bellows_config::{SettingError, nearest};
use bellows_vpn::keyed_tunnel;
use bellows_wire::IpPair;

use super::config::{Config, Interface, Kind, Pseudowire, Transport, Vpls};

/// What a VPN's end consists of.
pub(super) struct Plan<'c> {
    /// The addresses of packets that are sent, by transport.
    pub(super) transports: BTreeMap<&'c str, IpPair>,
    pub(super) vpls: Vec<Service<'c>>,
}

/// A VPLS.
pub(super) struct Service<'c> {
    pub(super) name: &'c str,
    pub(super) config: &'c Vpls,
    pub(super) circuits: Vec<Circuit<'c>>,
}

/// A circuit: an interface without a trunk, or a part of one with a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Circuit<'c> {
    pub(super) interface: &'c str,
    pub(super) is_of_trunk: bool,
    pub(super) vlan: Option<u16>,
}

/// Bytes of a VLAN tag.
const TAG: u16 = 4;

/// The keys of GRE: those above them are for control channels.
const VC_IDS: std::ops::RangeInclusive<u16> = 1..=0x7fff;

/// An error at a key, or within its value, where the steps lead from the outside in.
fn wrong(key: &'static str, steps: &[&str], message: impl Into<String>, help: impl Into<String>) -> SettingError {
    let error = SettingError::at(key, message, help);
    steps.iter().rev().fold(error, |error, step| error.in_entry(*step))
}

/// The advice for a name that is none of these.
fn advice<'n>(meant: &str, called: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match nearest(meant, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => format!("there are no {called}; add one"),
        None => format!("the {called} are `{}`", names.join("`, `")),
    }
}

impl<'c> Plan<'c> {
    /// Reads the keys.
    ///
    /// # Errors
    /// The first value that is wrong, or that nothing uses.
    pub(super) fn read(config: &'c Config) -> Result<Plan<'c>, SettingError> {
        check_names(config)?;
        for (name, interface) in &config.interfaces {
            check_interface(name, interface)?;
        }
        if !config.interfaces.values().any(Interface::is_uplink) {
            let help = "give `mac` and `addresses` to the interface behind which the other ends are";
            return Err(wrong("interfaces", &[], "no interface is an uplink", help));
        }
        let transports = read_transports(config)?;
        let mut taken = BTreeMap::new();
        let mut vpls = Vec::new();
        for (name, service) in &config.vpls {
            check_ends(name, service)?;
            let mut circuits = Vec::new();
            for (place, text) in service.circuits.iter().enumerate() {
                let steps = [name, "circuits", &place.to_string()];
                let circuit = find_circuit(config, text, &steps)?;
                check_mtu(config, circuit, text, service, &steps)?;
                if let Some(other) = taken.insert(circuit, name) {
                    let message = format!("the VPLS `{other}` has the circuit `{text}` already");
                    return Err(wrong("vpls", &steps, message, "remove it from one of them"));
                }
                circuits.push(circuit);
            }
            vpls.push(Service { name, config: service, circuits });
        }
        check_pseudowires(config, &transports)?;
        check_use(config, &taken)?;
        Ok(Plan { transports, vpls })
    }
}

/// Names are parts of those of apps and ports.
fn check_names(config: &Config) -> Result<(), SettingError> {
    let check = |key: &'static str, steps: &[&str], name: &str| {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        match is_name {
            true => Ok(()),
            false => {
                let message = format!("`{name}` is not a name here");
                Err(wrong(key, &[steps, &[name]].concat(), message, "use letters, digits, `-` and `_`"))
            }
        }
    };
    let tables: [(&'static str, Vec<&String>); 4] = [
        ("interfaces", config.interfaces.keys().collect()),
        ("peers", config.peers.keys().collect()),
        ("transports", config.transports.keys().collect()),
        ("vpls", config.vpls.keys().collect()),
    ];
    for (key, names) in tables {
        names.into_iter().try_for_each(|name| check(key, &[], name))?;
    }
    for (name, peer) in &config.peers {
        peer.endpoints.keys().try_for_each(|endpoint| check("peers", &[name, "endpoints"], endpoint))?;
    }
    for (name, vpls) in &config.vpls {
        vpls.pseudowires.keys().try_for_each(|pseudowire| check("vpls", &[name, "pseudowires"], pseudowire))?;
    }
    Ok(())
}

/// Refuses keys of uplinks at ports, and those of ports at uplinks.
fn check_interface(name: &str, interface: &Interface) -> Result<(), SettingError> {
    if interface.is_uplink() {
        return match interface.trunk {
            None => Ok(()),
            Some(_) => {
                let help = "leave out `mac` for a port of circuits, or `trunk` for an uplink, which can have a `vlan`";
                Err(wrong("interfaces", &[name, "trunk"], "an uplink has no circuits", help))
            }
        };
    }
    let given = [
        ("addresses", !interface.addresses.is_empty()),
        ("vlan", interface.vlan.is_some()),
        ("neighbours", !interface.neighbours.is_empty()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((key, _)) => {
            let message = format!("`{key}` is for uplinks, and this interface is none: it has no `mac`");
            Err(wrong("interfaces", &[name, key], message, format!("add `mac`, or leave out `{key}`")))
        }
    }
}

fn read_transports(config: &Config) -> Result<BTreeMap<&str, IpPair>, SettingError> {
    let mut local = config.peers.iter().filter(|(_, peer)| peer.local).map(|(name, _)| name.as_str());
    let local = match (local.next(), local.next()) {
        (Some(local), None) => local,
        (None, _) => {
            let help = "give one of them `local = true`";
            return Err(wrong("peers", &[], "no peer is this end", help).of_absence());
        }
        (Some(one), Some(other)) => {
            let message = format!("both `{one}` and `{other}` are this end");
            return Err(wrong("peers", &[other, "local"], message, "give `local = true` to one alone"));
        }
    };
    let mut transports = BTreeMap::new();
    for (name, transport) in &config.transports {
        let addresses = read_transport(config, local, name, transport)?;
        if let Some((other, _)) = transports.iter().find(|(_, known)| **known == addresses) {
            let message = format!("`{name}` has the ends of `{other}`");
            let help = "use one transport for both: it carries any number of pseudowires";
            return Err(wrong("transports", &[name], message, help));
        }
        transports.insert(name.as_str(), addresses);
    }
    Ok(transports)
}

fn read_transport(config: &Config, here: &str, name: &str, transport: &Transport) -> Result<IpPair, SettingError> {
    let ends = [("local", &transport.local), ("remote", &transport.remote)].map(|(key, text)| {
        let (peer, address) = read_endpoint(config, text, &[name, key])?;
        match (peer == here, key) {
            (true, "remote") => {
                let message = format!("`{text}` is an endpoint of this end");
                Err(wrong("transports", &[name, key], message, "name one of another peer"))
            }
            (false, "local") => {
                let message = format!("`{text}` is an endpoint of another end");
                let help = format!("name one of `{here}`, which has `local = true`");
                Err(wrong("transports", &[name, key], message, help))
            }
            _ => Ok(address),
        }
    });
    let [local, remote] = ends;
    let (local, remote) = (local?, remote?);
    let pair = IpPair::new(local, remote).ok_or_else(|| {
        let message = format!("`{local}` and `{remote}` are addresses of two families");
        wrong("transports", &[name], message, "name endpoints of one family")
    })?;
    if !has_address(config, local) {
        let message = format!("no uplink has the address `{local}`");
        let help =
            format!("add it to `addresses` of an uplink: \"{local}/{}\"", if local.is_ipv6() { 128 } else { 32 });
        return Err(wrong("transports", &[name, "local"], message, help).of_absence());
    }
    check_keys(name, transport)?;
    Ok(pair)
}

/// Refuses keys in the table, which would be shown with the table of the part that has them.
fn check_keys(name: &str, transport: &Transport) -> Result<(), SettingError> {
    let Some(ipsec) = &transport.ipsec else { return Ok(()) };
    let directions = [("inbound", &ipsec.inbound), ("outbound", &ipsec.outbound)];
    match directions.into_iter().find(|(_, direction)| direction.key.is_some()) {
        None => Ok(()),
        Some((direction, _)) => {
            let help = "put it into a file that only you can read, and name that with `key_file`";
            let steps = [name, "ipsec", direction, "key"];
            Err(wrong("transports", &steps, "the keys of a transport are in files", help))
        }
    }
}

/// Whether an uplink has an address. Those that are none are for the router to refuse.
fn has_address(config: &Config, address: IpAddr) -> bool {
    let mut all = config.interfaces.values().flat_map(|interface| &interface.addresses);
    all.any(|text| text.split('/').next().is_some_and(|text| text.parse() == Ok(address)))
}

/// An endpoint's peer and address.
fn read_endpoint<'t>(config: &Config, text: &'t str, steps: &[&str]) -> Result<(&'t str, IpAddr), SettingError> {
    let wrong = |message: String, help: String| wrong("transports", steps, message, help);
    let Some((name, endpoint)) = text.split_once('.') else {
        return Err(wrong(format!("`{text}` is no endpoint"), "write `PEER.ENDPOINT`".to_owned()));
    };
    let peers = || config.peers.keys().map(String::as_str);
    let peer = config
        .peers
        .get(name)
        .ok_or_else(|| wrong(format!("there is no peer `{name}`"), advice(name, "peers", peers())))?;
    let endpoints = || peer.endpoints.keys().map(String::as_str);
    let address = peer.endpoints.get(endpoint).ok_or_else(|| {
        wrong(format!("the peer `{name}` has no endpoint `{endpoint}`"), advice(endpoint, "endpoints", endpoints()))
    })?;
    match address.parse() {
        Ok(address) => Ok((name, address)),
        Err(_) => {
            let message = format!("`{address}` is no IP address");
            let help = "write it as 192.0.2.1 or 2001:db8::1";
            Err(self::wrong("peers", &[name, "endpoints", endpoint], message, help))
        }
    }
}

/// A VPLS joins two ends at least, whose names as ports of its bridge differ.
fn check_ends(name: &str, vpls: &Vpls) -> Result<(), SettingError> {
    if vpls.circuits.is_empty() {
        return Err(wrong("vpls", &[name, "circuits"], "a VPLS without circuits carries nothing", "name one"));
    }
    if vpls.circuits.len() + vpls.pseudowires.len() < 2 {
        let message = "a VPLS with one circuit and no pseudowire carries nothing";
        return Err(wrong("vpls", &[name], message, "add a table `pseudowires.NAME`, or another circuit"));
    }
    match vpls.pseudowires.keys().find(|pseudowire| vpls.circuits.contains(pseudowire)) {
        Some(pseudowire) if !vpls.is_cross_connect() => {
            let message = format!("the bridge has a circuit `{pseudowire}` as well");
            Err(wrong("vpls", &[name, "pseudowires", pseudowire], message, "give the pseudowire another name"))
        }
        _ => Ok(()),
    }
}

fn find_circuit<'c>(config: &'c Config, text: &'c str, steps: &[&str]) -> Result<Circuit<'c>, SettingError> {
    let wrong = |message: String, help: String| wrong("vpls", steps, message, help);
    let (name, vlan) = match text.split_once('.') {
        Some((name, vlan)) => (name, Some(vlan)),
        None => (text, None),
    };
    let ports = || config.interfaces.iter().filter(|(_, interface)| !interface.is_uplink());
    let names = || ports().map(|(name, _)| name.as_str());
    let interface = match config.interfaces.get(name) {
        Some(interface) if interface.is_uplink() => {
            return Err(wrong(format!("`{name}` is an uplink"), advice("", "ports of circuits", names())));
        }
        Some(interface) => interface,
        None => {
            return Err(wrong(format!("there is no interface `{name}`"), advice(name, "ports of circuits", names())));
        }
    };
    let is_of_trunk = interface.trunk.is_some();
    let vlan = match vlan {
        None => None,
        Some(_) if !is_of_trunk => {
            let help = format!("add `trunk = {{}}` to the interface, or write `{name}`");
            return Err(wrong(format!("`{name}` is no trunk, and has no VLANs"), help));
        }
        Some(digits) => match digits.parse() {
            Ok(vlan @ 1..=4094) => Some(vlan),
            _ => {
                let help = format!("give a number from 1 to 4094: `{name}.100`");
                return Err(wrong(format!("there is no VLAN `{digits}`"), help));
            }
        },
    };
    Ok(Circuit { interface: name, is_of_trunk, vlan })
}

/// Frames of a VPLS fit its circuits, and no longer ones come from them.
fn check_mtu(
    config: &Config,
    circuit: Circuit<'_>,
    text: &str,
    vpls: &Vpls,
    steps: &[&str],
) -> Result<(), SettingError> {
    let port = config.interfaces.get(circuit.interface).map_or(0, |interface| interface.mtu);
    let tag = if circuit.vlan.is_some() { TAG } else { 0 };
    if port.checked_sub(tag) == Some(vpls.mtu) {
        return Ok(());
    }
    let has = match tag {
        0 => format!("{port}"),
        _ => format!("{port} less {tag} for the tag of its VLAN"),
    };
    let message = format!("the MTU of the circuit `{text}` is {has}, that of its VPLS {}", vpls.mtu);
    let needed = u32::from(vpls.mtu) + u32::from(tag);
    let help = format!("set `mtu = {needed}` of the interface `{}`, or that of the VPLS", circuit.interface);
    Err(wrong("vpls", steps, message, help))
}

fn check_pseudowires(config: &Config, transports: &BTreeMap<&str, IpPair>) -> Result<(), SettingError> {
    let mut known = BTreeMap::new();
    for (vpls, service) in &config.vpls {
        for (name, pseudowire) in &service.pseudowires {
            let steps = [vpls.as_str(), "pseudowires", name];
            check_pseudowire(pseudowire, transports, &steps)?;
            let number = (&pseudowire.transport, pseudowire.tunnel, pseudowire.vc_id);
            if let Some((other, its_vpls)) = known.insert(number, (name, vpls)) {
                let message = format!("the pseudowire `{other}` of `{its_vpls}` has the same transport and VC ID");
                let help = match pseudowire.tunnel {
                    Kind::Gre => "give one of them another `vc_id`",
                    Kind::L2tpv3 => "give one of them another transport, or use GRE with a `vc_id`",
                };
                return Err(wrong("vpls", &steps, message, help));
            }
        }
    }
    Ok(())
}

fn check_pseudowire(
    pseudowire: &Pseudowire,
    transports: &BTreeMap<&str, IpPair>,
    steps: &[&str; 3],
) -> Result<(), SettingError> {
    let wrong = |key: &str, message: String, help: &str| wrong("vpls", &[&steps[..], &[key]].concat(), message, help);
    let name = pseudowire.transport.as_str();
    let Some(addresses) = transports.get(name) else {
        let help = advice(name, "transports", transports.keys().copied());
        return Err(wrong("transport", format!("there is no transport `{name}`"), &help));
    };
    let cookies = [("send_cookie", &pseudowire.send_cookie), ("expect_cookie", &pseudowire.expect_cookie)];
    if pseudowire.in_order && pseudowire.control_channel.is_some() {
        let message = "an end with a control channel sends no sequence numbers".to_owned();
        return Err(wrong("in_order", message, "leave it out"));
    }
    match pseudowire.tunnel {
        Kind::L2tpv3 => {
            if pseudowire.in_order {
                let help = "leave it out, or use `tunnel = \"gre\"`";
                return Err(wrong("in_order", "L2TPv3 has no sequence numbers here".to_owned(), help));
            }
            if matches!(addresses, IpPair::V4 { .. }) {
                let message = format!("L2TPv3 goes over IPv6, and the transport `{name}` is of IPv4");
                return Err(wrong("tunnel", message, "use `tunnel = \"gre\"`, or a transport of IPv6"));
            }
            if pseudowire.vc_id != 0 {
                let help = "leave it out, or use `tunnel = \"gre\"`";
                return Err(wrong("vc_id", "the VC ID of L2TPv3 is 0".to_owned(), help));
            }
            for (key, cookie) in cookies {
                keyed_tunnel::read_cookie(cookie.as_deref()).map_err(|error| wrong(key, error.message, &error.help))?;
            }
        }
        Kind::Gre => {
            if let Some((key, _)) = cookies.into_iter().find(|(_, cookie)| cookie.is_some()) {
                let help = "leave it out, or use `tunnel = \"l2tpv3\"`";
                return Err(wrong(key, "GRE has no cookies".to_owned(), help));
            }
            if !VC_IDS.contains(&pseudowire.vc_id) {
                let message = format!("GRE has no VC ID {}", pseudowire.vc_id);
                return Err(wrong("vc_id", message, "give a number from 1 to 32767"));
            }
        }
    }
    Ok(())
}

/// Refuses transports and ports that nothing uses, which may be misspelled elsewhere.
fn check_use(config: &Config, circuits: &BTreeMap<Circuit<'_>, &String>) -> Result<(), SettingError> {
    let pseudowires = || config.vpls.values().flat_map(|vpls| vpls.pseudowires.values());
    let is_used = |name: &str| pseudowires().any(|pseudowire| pseudowire.transport == name);
    if let Some(name) = config.transports.keys().find(|name| !is_used(name)) {
        let message = format!("no pseudowire uses the transport `{name}`");
        let help = "remove it, or name it as `transport` of a pseudowire";
        return Err(wrong("transports", &[name], message, help).of_absence());
    }
    let is_circuit = |name: &str| circuits.keys().any(|circuit| circuit.interface == name);
    let mut ports = config.interfaces.iter().filter(|(_, interface)| !interface.is_uplink());
    match ports.find(|(name, _)| !is_circuit(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("no VPLS has a circuit of the interface `{name}`");
            let help = "name it among `circuits` of a VPLS, or remove it";
            Err(wrong("interfaces", &[name], message, help).of_absence())
        }
    }
}
