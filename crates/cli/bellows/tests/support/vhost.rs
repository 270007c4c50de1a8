//! Networks with vhost-user ports, and the output of `bellows show vhost` for them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use bellows_testkit::eventually;
use serde_json::Value;

use super::{Running, Sandbox};

/// The text of a network file, grown app by app.
#[derive(Default)]
pub struct Network {
    links: Vec<String>,
    apps: String,
}

impl Network {
    /// Adds an app with its keys, one on each line.
    pub fn app(mut self, name: &str, kind: &str, keys: &str) -> Network {
        let _ = writeln!(self.apps, "[apps.{name}]\napp = \"{kind}\"\n{keys}");
        self
    }

    /// Adds a `vhost-user` port at a socket.
    pub fn port(self, name: &str, socket: &Path, keys: &str) -> Network {
        let socket = format!("socket = \"{}\"\n{keys}", socket.display());
        self.app(name, "vhost-user", &socket)
    }

    /// Adds a port that returns packets to its driver.
    pub fn mirror(self, name: &str, socket: &Path, keys: &str) -> Network {
        let back = format!("{name}_back");
        self.port(name, socket, keys)
            .app(&back, "counter", "")
            .link(&format!("{name}.output -> {back}.input"))
            .link(&format!("{back}.output -> {name}.input"))
    }

    pub fn link(mut self, link: &str) -> Network {
        self.links.push(format!("    \"{link}\",\n"));
        self
    }

    /// The whole text.
    pub fn text(&self) -> String {
        format!("links = [\n{}]\n{}", self.links.concat(), self.apps)
    }
}

/// The folder of a sandbox's sockets.
pub fn socket(sandbox: &Sandbox, name: &str) -> PathBuf {
    sandbox.path(&format!("{name}.sock"))
}

/// Packets that a link has carried.
pub fn carried(running: &Running<'_>, to: &str) -> u64 {
    let counters = running.counters();
    let links = counters["links"].as_array().unwrap();
    let link = links.iter().find(|link| link["to"] == to).unwrap_or_else(|| panic!("no link to {to} in {counters:#}"));
    link["packets"].as_u64().unwrap()
}

/// The state of the port at a socket, from `bellows show vhost`.
pub fn port_status(sandbox: &Sandbox, running: &Running<'_>, socket: &Path) -> Value {
    let shown = sandbox.bellows(&["show", "vhost", &running.name, "--json"]).success().json();
    let socket = socket.display().to_string();
    let status = find(&shown, &socket).unwrap_or_else(|| panic!("no port at {socket} in {shown:#}")).clone();
    check_confinement(&status);
    status
}

/// The control thread is confined, if the system supports it, and needs no call that is denied.
fn check_confinement(status: &Value) {
    let confinement = &status["confinement"];
    let cannot =
        confinement["reason"].as_str().is_some_and(|reason| reason.contains("kernel") || reason.contains("seccomp"));
    assert!(confinement["confined"] == true || cannot, "{status:#}");
    assert!(confinement["denied"].as_object().is_some_and(|denied| denied.is_empty()), "{status:#}");
}

/// The same for a process that may be just starting: `None` until it answers.
fn early_status(sandbox: &Sandbox, running: &Running<'_>, socket: &Path) -> Option<Value> {
    let said = sandbox.bellows(&["show", "vhost", &running.name, "--json"]);
    let shown = (said.code == Some(0)).then(|| said.json())?;
    find(&shown, &socket.display().to_string()).cloned()
}

fn find<'a>(value: &'a Value, socket: &str) -> Option<&'a Value> {
    if value["socket"] == socket {
        return Some(value);
    }
    match value {
        Value::Array(values) => values.iter().find_map(|value| find(value, socket)),
        Value::Object(values) => values.values().find_map(|value| find(value, socket)),
        _ => None,
    }
}

/// The names of the options that the port at a socket and its driver have negotiated.
pub fn negotiated(sandbox: &Sandbox, running: &Running<'_>, socket: &Path) -> BTreeSet<String> {
    let status = port_status(sandbox, running, socket);
    let names = status["features"].as_array().unwrap_or_else(|| panic!("no features in {status:#}"));
    names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Waits until a driver has started the rings of the port at a socket.
pub fn wait_for_driver(sandbox: &Sandbox, running: &Running<'_>, socket: &Path) {
    eventually("a driver at the port", || {
        let status = early_status(sandbox, running, socket);
        let rings = status.as_ref().and_then(|status| status["rings"].as_array());
        rings.is_some_and(|rings| rings.len() >= 2 && rings.iter().any(|ring| ring["instance"].is_string()))
    });
}

/// Packets that the rings of the port at a socket have moved, in one direction: `transmit` is from the driver.
pub fn moved(status: &Value, direction: &str) -> Vec<u64> {
    let rings = status["rings"].as_array().unwrap_or_else(|| panic!("no rings in {status:#}"));
    let rings = rings.iter().filter(|ring| ring["direction"] == direction);
    rings.map(|ring| ring["counters"]["packets"].as_u64().unwrap()).collect()
}
