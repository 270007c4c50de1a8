//! Addresses that keys of network files give to stations.

use std::net::IpAddr;

use bellows_wire::MacAddr;

/// Reads the Ethernet address of a station.
///
/// # Errors
/// What is wrong with it.
pub fn read_mac(text: &str) -> Result<MacAddr, String> {
    let mac: MacAddr = text.parse().map_err(|error| format!("{error}"))?;
    match mac.is_station() {
        true => Ok(mac),
        false if mac == MacAddr::default() => Err(format!("{text} is the address of no station")),
        false => Err(format!("{text} is a multicast address")),
    }
}

/// Reads the address to which packets come out of a tunnel: 0 if none is given.
///
/// # Errors
/// What is wrong with it, and what to give.
pub fn read_dst_mac(text: Option<&str>) -> Result<MacAddr, (String, &'static str)> {
    let help = "give a unicast address like 02:00:00:00:00:07";
    text.map_or(Ok(MacAddr::default()), |text| read_mac(text).map_err(|message| (message, help)))
}

/// The kind of an address that no station has.
pub fn no_station(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_multicast() => Some("a multicast address"),
        _ if address.is_unspecified() => Some("the unspecified address"),
        _ if address.is_loopback() => Some("a loopback address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        _ => None,
    }
}
