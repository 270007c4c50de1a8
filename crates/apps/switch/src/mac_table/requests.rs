//! The requests that a table of MAC addresses answers: a client sends them to the object, or to the bridge whose own
//! table it is, by its name, as JSON.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellows_config::nearest;
use bellows_engine::{RequestError, Requests};
use bellows_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entry::AGES;
use super::{Entry, MacTable};

/// The maximum number of addresses of an answer.
const MAX_ADDRESSES: usize = 16_384;

const NS: u64 = 1_000_000_000;

/// A request.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "Request to a table of MAC addresses")]
pub enum Request {
    /// Lists addresses, page by page, in the order of VLANs and addresses ([answer](#answer-with-mac-addresses)).
    Addresses(Page),
    /// Forgets addresses; static ones stay ([answer](#answer-to-a-flush-of-mac-addresses)).
    Flush(Selection),
}

/// Which addresses are meant. All conditions must be met.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Selection of MAC addresses")]
pub struct Selection {
    /// At the port of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// In this VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// This address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// A page of addresses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Page of MAC addresses")]
pub struct Page {
    /// Which addresses; without it, all.
    pub select: Selection,
    /// Whether to give the next ones of the same list, as the addresses were when it began.
    pub goes_on: bool,
}

/// A page of addresses.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer with MAC addresses")]
pub struct AddressesAnswer {
    /// Up to 16,384 addresses.
    addresses: Vec<ListedAddress>,
    /// Whether there are more.
    more: bool,
}

/// An entry for clients.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "MAC address")]
pub struct ListedAddress {
    /// The address.
    mac: String,
    /// Its VLAN; null in a bridge without VLANs.
    vlan: Option<u16>,
    /// The name of the port; null if a reload has just removed it.
    port: Option<String>,
    /// `learned`, `static` (of the network file) or `held` (it has moved too often, and stays for a time).
    #[schemars(extend("enum" = ["learned", "static", "held"]))]
    state: &'static str,
    /// Seconds since it was seen, in steps of 1/32 of `ageing`; null for static ones.
    age_seconds: Option<u64>,
}

/// What became of addresses.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer to a flush of MAC addresses")]
pub struct AddressFlushAnswer {
    /// The number of forgotten addresses.
    deleted: usize,
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

    fn addresses(&mut self, page: &Page) -> Result<AddressesAnswer, RequestError> {
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
        let addresses = listed.into_iter().map(|entry| shown(entry, &names, age, step_ns)).collect();
        let more = !rest.is_empty();
        self.listed = more.then_some(rest);
        Ok(AddressesAnswer { addresses, more })
    }

    fn flush(&self, select: &Selection) -> Result<AddressFlushAnswer, RequestError> {
        let is_meant = self.selected(select)?;
        let mut deleted = 0;
        // An address may be in a table that is being replaced as well.
        self.table.on_tables(|slots| {
            deleted = slots.remove(0..slots.lines(), |entry| !entry.is_static && is_meant(entry)).max(deleted);
        });
        Ok(AddressFlushAnswer { deleted })
    }
}

/// An entry for clients.
fn shown(entry: Entry, names: &[String], age: u32, step_ns: u64) -> ListedAddress {
    let state = match entry {
        Entry { is_static: true, .. } => "static",
        Entry { is_held: true, .. } => "held",
        _ => "learned",
    };
    let steps = u64::from(age.wrapping_sub(entry.age) % AGES);
    ListedAddress {
        mac: MacAddr(entry.key.mac()).to_string(),
        vlan: Some(entry.key.vlan()).filter(|vlan| *vlan > 0),
        port: names.get(usize::from(entry.port)).cloned(),
        state,
        age_seconds: (!entry.is_static).then_some(steps * step_ns / NS),
    }
}

impl Requests for Operator {
    type Request = Request;
    type Answer = Value;

    fn answer(&mut self, request: Request) -> Result<Value, RequestError> {
        Ok(match request {
            Request::Addresses(page) => json!(self.addresses(&page)?),
            Request::Flush(select) => json!(self.flush(&select)?),
        })
    }
}
