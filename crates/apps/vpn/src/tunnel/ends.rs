//! The addresses of a session.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bellows_common::addresses::no_station;
use bellows_config::SettingError;
use bellows_wire::IpPair;

use super::wires::TRANSPORTS;

/// The addresses of a session as its keys have them.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'s> {
    /// The key `local`: without it, the address of the app.
    pub local: Option<&'s str>,
    /// The key `remote`.
    pub remote: &'s str,
}

/// The key whose entries have ends, and what one of them is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    pub(crate) key: &'static str,
    pub(crate) one: &'static str,
}

/// Entries of an app.
const MAX_ENTRIES: usize = 4_096;

impl Entries {
    /// Checks that there are entries, not too many, and that their names can be those of ports.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check<S>(self, entries: &BTreeMap<String, S>) -> Result<(), SettingError> {
        let Entries { key, one } = self;
        let (message, help) = if entries.is_empty() {
            (format!("there is no {one}"), format!("add a table `{key}.NAME`"))
        } else if entries.len() > MAX_ENTRIES {
            let help = format!("spread them over several apps of up to {MAX_ENTRIES}");
            (format!("{} {one}s are too many for one app", entries.len()), help)
        } else if let Some(name) = TRANSPORTS.iter().find(|name| entries.contains_key(**name)) {
            (
                format!("a {one} cannot be called `{name}`"),
                "that is the port of what is on the wire; rename it".to_owned(),
            )
        } else {
            return Ok(());
        };
        Err(SettingError::at(key, message, help))
    }

    /// Checks that outputs have names of ports.
    ///
    /// # Errors
    /// If one has not.
    pub(crate) fn check_outputs<S>(self, entries: &BTreeMap<String, S>, outputs: &[&str]) -> Result<(), SettingError> {
        let is_unknown = |name: &&&str| !TRANSPORTS.contains(*name) && !entries.contains_key(**name);
        let Some(name) = outputs.iter().find(is_unknown) else { return Ok(()) };
        let message = format!("an output is called `{name}`, but no {}", self.one);
        Err(SettingError::at(self.key, message, format!("name outputs `ip4`, `ip6`, or as a {}", self.one)))
    }
}

impl Ends<'_> {
    /// The addresses of packets that are sent, from the keys of the entry `name`, and the app's key `local`.
    ///
    /// # Errors
    /// If one is no address of a station, or if they are of two families, or if there is none of this end.
    pub(crate) fn read(&self, entries: Entries, name: &str, local: Option<&str>) -> Result<IpPair, SettingError> {
        let local = match (self.local, local) {
            (Some(local), _) => read(entries, local).map_err(|error| error.in_entry(name))?,
            (None, Some(local)) => {
                read(entries, local).map_err(|error| SettingError { key: Some("local"), ..error })?
            }
            (None, None) => {
                let message = format!("the {} `{name}` has no address of this end", entries.one);
                return Err(SettingError::at(
                    entries.key,
                    message,
                    format!("give `local`, of the app or of the {}", entries.one),
                ));
            }
        };
        let remote = read(entries, self.remote).map_err(|error| error.in_entry(name))?;
        if local == remote {
            let message = format!("both ends have the address `{local}`");
            return Err(SettingError::at(entries.key, message, "give that of the other end").in_entry(name));
        }
        IpPair::new(local, remote).ok_or_else(|| {
            let message = format!("`{local}` and `{remote}` are addresses of two families");
            SettingError::at(entries.key, message, "give two IPv4 or two IPv6 addresses").in_entry(name)
        })
    }
}

/// An address of a station.
fn read(entries: Entries, text: &str) -> Result<IpAddr, SettingError> {
    let wrong = |message: String, help: &str| Err(SettingError::at(entries.key, message, help));
    let Ok(address) = text.parse::<IpAddr>() else {
        return wrong(format!("`{text}` is no IP address"), "write it as 192.0.2.1 or 2001:db8::1");
    };
    if let Some(kind) = no_station(address) {
        return wrong(format!("`{text}` is {kind}"), "give the unicast address of a station");
    }
    Ok(address)
}
