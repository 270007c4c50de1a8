//! The requests that a table of MAC addresses answers: a client sends them to the object, or to the bridge whose own
//! table it is, by its name, as JSON.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellows_config::nearest;
use bellows_engine::{RequestError, Requests};
use bellows_wire::MacAddr;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entry::AGES;
use super::{Entry, MacTable};

/// The maximum number of addresses of an answer.
const MAX_ADDRESSES: usize = 16_384;

const NS: u64 = 1_000_000_000;

/// A request.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Lists addresses, page by page, in the order of VLANs and addresses.
    Addresses(Page),
    /// Forgets addresses that were learned.
    Flush(Selection),
}

/// Which addresses are meant. All conditions must be met.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// At this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// In this VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// This one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// A page of addresses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Page {
    /// Which addresses.
    pub select: Selection,
    /// Whether this is the next page of the list that the client has begun, as the addresses were then.
    pub goes_on: bool,
}

/// A client's requests.
pub(super) struct Operator {
    table: Arc<MacTable>,
    /// The rest of a list that the client reads page by page.
    listed: Option<VecDeque<Entry>>,
}

impl Operator {
    pub(super) fn new(table: Arc<MacTable>) -> Operator {
        Operator { table, listed: None }
    }

    /// Tells whether an entry is meant.
    fn selected(&self, select: &Selection) -> Result<impl Fn(Entry) -> bool + use<>, RequestError> {
        let port = select.port.as_deref().map(|name| self.port(name)).transpose()?;
        let parse = |text: &String| text.parse::<MacAddr>().map_err(|error| RequestError::mistake(error.to_string()));
        let mac = select.mac.as_ref().map(parse).transpose()?;
        let vlan = select.vlan;
        Ok(move |entry: Entry| {
            port.is_none_or(|port| port == usize::from(entry.port))
                && vlan.is_none_or(|vlan| vlan == entry.key.vlan())
                && mac.is_none_or(|mac| mac.0 == entry.key.mac())
        })
    }

    /// The number of a port.
    fn port(&self, name: &str) -> Result<usize, RequestError> {
        let names = self.table.ports.names();
        names.iter().position(|known| known == name).ok_or_else(|| {
            let help = match nearest(name, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None if names.is_empty() => "no bridge has ports yet".to_owned(),
                None => format!("there are `{}`", names.join("`, `")),
            };
            RequestError::mistake(format!("there is no port `{name}`; {help}"))
        })
    }

    fn addresses(&mut self, page: &Page) -> Result<Value, RequestError> {
        let mut listed = match self.listed.take() {
            Some(rest) if page.goes_on => rest,
            None if page.goes_on => {
                let message = "the list of addresses has ended; was the network reloaded? List them again";
                return Err(RequestError::failure(message));
            }
            _ => {
                let is_meant = self.selected(&page.select)?;
                let slots = self.table.current();
                let mut all: Vec<Entry> = slots.entries(0..slots.lines()).filter(|entry| is_meant(*entry)).collect();
                all.sort_unstable_by_key(|entry| (entry.key.vlan(), entry.key.mac()));
                all.into()
            }
        };
        let rest = listed.split_off(listed.len().min(MAX_ADDRESSES));
        let names = self.table.ports.names();
        let (age, step_ns) = (self.table.age.load(Relaxed), self.table.step_ns.load(Relaxed));
        let shown: Vec<Value> = listed.into_iter().map(|entry| shown(entry, &names, age, step_ns)).collect();
        let more = !rest.is_empty();
        self.listed = more.then_some(rest);
        Ok(json!({ "addresses": shown, "more": more }))
    }

    fn flush(&self, select: &Selection) -> Result<Value, RequestError> {
        let is_meant = self.selected(select)?;
        let mut deleted = 0;
        // An address may be in a table that is being replaced as well.
        self.table.on_tables(|slots| {
            deleted = slots.remove(0..slots.lines(), |entry| !entry.is_static && is_meant(entry)).max(deleted);
        });
        Ok(json!({ "deleted": deleted }))
    }
}

/// An entry for clients.
fn shown(entry: Entry, names: &[String], age: u32, step_ns: u64) -> Value {
    let state = match entry {
        Entry { is_static: true, .. } => "static",
        Entry { is_held: true, .. } => "held",
        _ => "learned",
    };
    let steps = u64::from(age.wrapping_sub(entry.age) % AGES);
    json!({
        "mac": MacAddr(entry.key.mac()).to_string(),
        "vlan": Some(entry.key.vlan()).filter(|vlan| *vlan > 0),
        "port": names.get(usize::from(entry.port)),
        "state": state,
        "age_seconds": (!entry.is_static).then_some(steps * step_ns / NS),
    })
}

impl Requests for Operator {
    type Request = Request;
    type Answer = Value;

    fn answer(&mut self, request: Request) -> Result<Value, RequestError> {
        match request {
            Request::Addresses(page) => self.addresses(&page),
            Request::Flush(select) => self.flush(&select),
        }
    }
}
