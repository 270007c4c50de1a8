//! The state of an interface: counters, settings, attached programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::{Host, run};

/// An interface of a host.
#[derive(Clone, Debug)]
pub struct HostInterface {
    host: Host,
    name: String,
}

impl fmt::Display for HostInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.name, self.host.namespace())
    }
}

impl HostInterface {
    /// Names an interface, which need not exist.
    pub fn new(host: &Host, name: &str) -> HostInterface {
        HostInterface { host: host.clone(), name: name.to_owned() }
    }

    /// Whether it exists.
    pub fn exists(&self) -> bool {
        self.link().is_some()
    }

    /// Whether it exists, is up, and has a carrier.
    pub fn is_operational(&self) -> bool {
        self.link().is_some_and(|link| link["operstate"] == "UP")
    }

    /// What `ip -d -s -s -j link` prints about it, if it exists.
    fn link(&self) -> Option<Value> {
        let listed = self.host.run("ip -d -s -s -j link show");
        let listed: Value = serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error} in {listed}"));
        let links = listed.as_array().unwrap_or_else(|| panic!("no list in {listed:#}"));
        links.iter().find(|link| link["ifname"] == *self.name).cloned()
    }

    #[track_caller]
    fn existing_link(&self) -> Value {
        self.link().unwrap_or_else(|| panic!("there is no {self}"))
    }

    /// Its counters.
    #[track_caller]
    pub fn counters(&self) -> Counters {
        Counters::read(&self.existing_link())
    }

    /// The number of users who want it to be promiscuous.
    #[track_caller]
    pub fn promiscuity(&self) -> u64 {
        number(&self.existing_link(), "promiscuity")
    }

    /// The numbers of the XDP programs that are attached to it.
    pub fn xdp_programs(&self) -> Vec<u64> {
        let mut programs = self.link().map_or(Vec::new(), |link| xdp_programs(&link["xdp"]));
        // One that a BPF link attaches is listed twice.
        programs.dedup();
        programs
    }

    /// Its settings, to be compared later with [`differences`].
    #[track_caller]
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::new();
        flatten("link", &self.existing_link(), &mut settings);
        // The clock and the traffic change the first two. An interface that is deleted and made again gets another
        // number.
        settings.retain(|name, _| {
            !["link.stats64", "link.ifindex", "link.link_index"].iter().any(|one| name.starts_with(one))
        });
        for (option, what) in [("-k", "features"), ("-l", "channels"), ("-g", "rings"), ("-c", "coalescing")] {
            // Not all interfaces have all of these.
            let listed = run(self.host.namespace(), &format!("ethtool {option} {}", self.name)).unwrap_or_default();
            let mut section = String::new();
            for line in listed.lines() {
                match line.split_once(':') {
                    Some((title, "")) => section = title.to_owned(),
                    Some((name, value)) => {
                        settings.insert(format!("{what}.{section}.{}", name.trim()), value.trim().to_owned());
                    }
                    None => {}
                }
            }
        }
        // When an XDP program of the peer is gone, the kernel computes these anew. After `ethtool -K tx off` the result is
        // another one.
        settings.retain(|name, _| !name.contains("segmentation"));
        settings
    }
}

/// The settings of an interface by name.
pub type Settings = BTreeMap<String, String>;

/// The settings that are not equal, one in a line: name, before, now.
pub fn differences(before: &Settings, now: &Settings) -> String {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let lines = names.into_iter().filter(|name| before.get(*name) != now.get(*name)).map(|name| {
        let [before, now] = [before, now].map(|settings| settings.get(name).map_or("absent", String::as_str));
        format!("{name}: {before}, now {now}\n")
    });
    lines.collect()
}

/// All values of an object, with the path to each.
fn flatten(path: &str, value: &Value, into: &mut Settings) {
    match value {
        Value::Object(values) => {
            values.iter().for_each(|(name, value)| flatten(&format!("{path}.{name}"), value, into))
        }
        value => {
            into.insert(path.to_owned(), value.to_string());
        }
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value:#}"))
}

/// The numbers of all programs below `xdp` of a link: there is one object for each mode.
fn xdp_programs(xdp: &Value) -> Vec<u64> {
    match xdp {
        Value::Array(values) => values.iter().flat_map(xdp_programs).collect(),
        Value::Object(values) => match values.get("id").and_then(Value::as_u64) {
            Some(id) => vec![id],
            None => values.values().flat_map(xdp_programs).collect(),
        },
        _ => Vec::new(),
    }
}

/// The kernel's counters of an interface, in packets except for the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received and dropped, for any reason.
    pub rx_lost: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets to send that were dropped, for any reason.
    pub tx_lost: u64,
}

impl Counters {
    fn read(link: &Value) -> Counters {
        let [rx, tx] = ["rx", "tx"].map(|direction| &link["stats64"][direction]);
        Counters {
            rx_packets: number(rx, "packets"),
            rx_bytes: number(rx, "bytes"),
            rx_lost: number(rx, "dropped") + number(rx, "errors"),
            tx_packets: number(tx, "packets"),
            tx_bytes: number(tx, "bytes"),
            tx_lost: number(tx, "dropped") + number(tx, "errors"),
        }
    }

    /// What was counted since an earlier time.
    pub fn since(&self, before: &Counters) -> Counters {
        Counters {
            rx_packets: self.rx_packets - before.rx_packets,
            rx_bytes: self.rx_bytes - before.rx_bytes,
            rx_lost: self.rx_lost - before.rx_lost,
            tx_packets: self.tx_packets - before.tx_packets,
            tx_bytes: self.tx_bytes - before.tx_bytes,
            tx_lost: self.tx_lost - before.tx_lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_of_all_modes_are_found() {
        assert_eq!(xdp_programs(&json!({ "mode": 1, "prog": { "id": 7, "name": "x" } })), [7]);
        let both =
            json!({ "mode": 4, "attached": [{ "mode": 1, "prog": { "id": 7 } }, { "mode": 2, "prog": { "id": 8 } }] });
        assert_eq!(xdp_programs(&both), [7, 8]);
        assert_eq!(xdp_programs(&Value::Null), [0u64; 0]);
    }

    #[test]
    fn differences_are_named() {
        let of = |value: Value| {
            let mut settings = Settings::new();
            flatten("link", &value, &mut settings);
            settings
        };
        let before = of(json!({ "mtu": 1500, "linkinfo": { "kind": "veth" }, "flags": ["UP"] }));
        let now = of(json!({ "mtu": 9000, "linkinfo": { "kind": "veth" }, "promiscuity": 1, "flags": ["UP"] }));
        assert_eq!(differences(&before, &now), "link.mtu: 1500, now 9000\nlink.promiscuity: absent, now 1\n");
        assert_eq!(differences(&now, &now), "");
    }
}
