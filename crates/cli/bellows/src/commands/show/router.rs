//! The interfaces of routing domains, for `bellows show interfaces`.

use bellows_engine::ObjectStatus;
use bellows_observe::{AppCounts, LinkCounts, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

use crate::text::{Align, Table, UNKNOWN, count};

/// An interface of a routing domain.
#[derive(Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Router interface")]
pub(super) struct RouterInterface {
    /// The routing domain.
    vrf: String,
    /// Its name.
    interface: String,
    /// Its port.
    port: String,
    /// Its VLANs, the outermost first.
    vlans: Vec<u64>,
    /// Its Ethernet address.
    mac: String,
    /// Its MTU.
    mtu: u64,
    /// Its IP addresses.
    addresses: Vec<String>,
    /// `up`, or `receives`, `sends` or `unlinked` if its port is not linked both ways.
    #[schemars(extend("enum" = ["up", "receives", "sends", "unlinked"]))]
    state: &'static str,
    /// Packets that its port has received, with all its VLANs; null if not known.
    rx_packets: Option<u64>,
    /// Packets that its port has sent, with all its VLANs; null if not known.
    tx_packets: Option<u64>,
    /// Packets that the output of its port has dropped; null if not known.
    tx_dropped: Option<u64>,
}

/// The interfaces of all routing domains among these objects.
pub(super) fn interfaces(objects: &[ObjectStatus], counters: &Snapshot) -> Vec<RouterInterface> {
    objects.iter().filter(|object| object.kind == "vrf").flat_map(|object| of_domain(object, counters)).collect()
}

/// The apps that send packets to the outputs of ports.
const SENDERS: [&str; 4] = ["ip4-forward", "ip6-forward", "ip4-rewrite", "ip6-rewrite"];

fn of_domain(object: &ObjectStatus, counters: &Snapshot) -> Vec<RouterInterface> {
    // Parts of the same compound app; the apps of the whole network for a domain that is not a part.
    let compound = object.object.rsplit_once('/').map_or("", |(compound, _)| compound);
    let is_near = |app: &str| app.rsplit_once('/').map_or("", |(compound, _)| compound) == compound;
    let kind_of = |name: &str| counters.apps.iter().find(|app| app.name == name).map_or("", |app| &*app.kind);
    let received = |port: &str| {
        let is_input = |link: &&LinkCounts| {
            let (app, input) = link.to.rsplit_once('.').unwrap_or_default();
            input == port && is_near(app) && kind_of(app) == "ethernet-input"
        };
        counters.links.iter().find(is_input).map(|link| link.packets)
    };
    // The output of a port is the app to which several send what leaves by it.
    let output = |port: &str| -> Option<&AppCounts> {
        let leads_there = |link: &&LinkCounts| {
            let (app, sent) = link.from.rsplit_once('.').unwrap_or_default();
            sent == port && is_near(app) && SENDERS.contains(&kind_of(app))
        };
        let link = counters.links.iter().find(leads_there)?;
        let (app, _) = link.to.rsplit_once('.')?;
        counters.apps.iter().find(|known| known.name == app)
    };
    let is_linked =
        |app: &str| counters.links.iter().any(|link| link.from.strip_prefix(app).is_some_and(|rest| rest == ".output"));
    let interfaces = object.status["interfaces"].as_object().into_iter().flatten();
    let interface = |(name, status): (&String, &serde_json::Value)| {
        let word = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        let port = word("port");
        let (rx_packets, sender) = (received(&port), output(&port));
        let list = |key: &str| status[key].as_array().cloned().unwrap_or_default();
        RouterInterface {
            vrf: object.object.clone(),
            interface: name.clone(),
            vlans: list("vlans").iter().filter_map(serde_json::Value::as_u64).collect(),
            mac: word("mac"),
            mtu: status["mtu"].as_u64().unwrap_or_default(),
            addresses: list("addresses").iter().filter_map(|it| it.as_str().map(str::to_owned)).collect(),
            state: match (rx_packets.is_some(), sender.is_some_and(|app| is_linked(&app.name))) {
                (true, true) => "up",
                (true, false) => "receives",
                (false, true) => "sends",
                (false, false) => "unlinked",
            },
            rx_packets,
            tx_packets: sender.map(|app| app.out_packets),
            tx_dropped: sender.map(AppCounts::dropped),
            port,
        }
    };
    interfaces.map(interface).collect()
}

/// A table of the interfaces; nothing if there are none.
pub(super) fn render(interfaces: &[RouterInterface], rich: bool) -> String {
    if interfaces.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("ROUTER INTERFACE", Align::Left),
        ("PORT", Align::Left),
        ("STATE", Align::Left),
        ("MAC", Align::Left),
        ("MTU", Align::Right),
        ("RX PACKETS", Align::Right),
        ("TX PACKETS", Align::Right),
        ("DROPPED", Align::Right),
        ("ADDRESSES", Align::Left),
        ("VRF", Align::Left),
    ]);
    let known = |number: Option<u64>| number.map_or_else(|| UNKNOWN.to_owned(), count);
    for one in interfaces {
        let vlans: String = one.vlans.iter().map(|vlan| format!(", VLAN {vlan}")).collect();
        table.row([
            one.interface.clone(),
            one.port.clone() + &vlans,
            one.state.to_owned(),
            one.mac.clone(),
            count(one.mtu),
            known(one.rx_packets),
            known(one.tx_packets),
            known(one.tx_dropped),
            one.addresses.join(" "),
            one.vrf.clone(),
        ]);
    }
    format!("\n{}", table.render(rich))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn interfaces_have_the_counters_of_their_ports() {
        let app = |name: &str, kind: &str, out_packets| AppCounts {
            name: name.to_owned(),
            kind: kind.to_owned(),
            out_packets,
            ..AppCounts::default()
        };
        let link = |from: &str, to: &str, packets| LinkCounts {
            from: from.to_owned(),
            to: to.to_owned(),
            packets,
            ..LinkCounts::default()
        };
        let counters = Snapshot {
            apps: vec![
                app("r/ethernet-input", "ethernet-input", 7),
                app("r/ip4-rewrite", "ip4-rewrite", 5),
                app("r/lan-output", "interface-output", 6),
            ],
            links: vec![
                link("nic.output", "r/ethernet-input.lan", 7),
                link("r/ip4-rewrite.lan", "r/lan-output.ip4", 5),
                link("r/lan-output.output", "nic.input", 6),
            ],
            ..Snapshot::default()
        };
        let interface = |port: &str, vlans: &[u16]| json!({ "port": port, "vlans": vlans, "mac": "02:00:00:00:00:01", "mtu": 1500, "addresses": ["192.0.2.1/24"] });
        let status = json!({ "interfaces": { "lan": interface("lan", &[]), "wan": interface("wan", &[5]) } });
        let object = ObjectStatus { object: "r/vrf".to_owned(), kind: "vrf".to_owned(), status };
        let found = interfaces(&[object], &counters);
        let figures: Vec<_> =
            found.iter().map(|one| (&*one.interface, one.state, one.rx_packets, one.tx_packets)).collect();
        assert_eq!(figures, [("lan", "up", Some(7), Some(6)), ("wan", "unlinked", None, None)]);
        let text = render(&found, false);
        assert!(text.contains("wan, VLAN 5") && text.contains("192.0.2.1/24"), "{text}");
        assert_eq!(render(&[], false), "");
    }
}
