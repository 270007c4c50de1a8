//! The addresses of a session.

use std::net::IpAddr;

use bellows_config::SettingError;
use bellows_wire::IpPair;

/// The addresses of a session as its keys have them.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'s> {
    pub local: Option<&'s str>,
    pub remote: &'s str,
}

impl Ends<'_> {
    /// The addresses of packets that are sent, from the keys of the session `name`, and the app's key `local`.
    ///
    /// # Errors
    /// If one is no address of a station, or if they are of two families, or if there is none of this end.
    pub(super) fn read(&self, name: &str, local: Option<&str>) -> Result<IpPair, SettingError> {
        let local = match (self.local, local) {
            (Some(local), _) => read(local).map_err(|error| error.in_entry(name))?,
            (None, Some(local)) => read(local).map_err(|error| SettingError { key: Some("local"), ..error })?,
            (None, None) => {
                let message = format!("the session `{name}` has no address of this end");
                return Err(SettingError::at("sessions", message, "give `local`, of the app or of the session"));
            }
        };
        let remote = read(self.remote).map_err(|error| error.in_entry(name))?;
        if local == remote {
            let message = format!("both ends have the address `{local}`");
            return Err(SettingError::at("sessions", message, "give that of the other end").in_entry(name));
        }
        IpPair::new(local, remote).ok_or_else(|| {
            let message = format!("`{local}` and `{remote}` are addresses of two families");
            SettingError::at("sessions", message, "give two IPv4 or two IPv6 addresses").in_entry(name)
        })
    }
}

/// An address of a station.
fn read(text: &str) -> Result<IpAddr, SettingError> {
    let wrong = |message: String, help: &str| Err(SettingError::at("sessions", message, help));
    let Ok(address) = text.parse::<IpAddr>() else {
        return wrong(format!("`{text}` is no IP address"), "write it as 192.0.2.1 or 2001:db8::1");
    };
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_multicast() || address.is_unspecified() || address.is_loopback() || is_broadcast {
        return wrong(format!("`{text}` is not the address of a station"), "give a unicast address");
    }
    Ok(address)
}
