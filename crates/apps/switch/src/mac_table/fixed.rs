//! The addresses that the network file gives to ports.

use std::collections::{BTreeMap, HashMap};

use bellows_common::addresses::read_mac;
use bellows_config::SettingError;

use super::entry::Key;
use crate::vlan::header::check_vlan;

/// The key of the addresses.
const KEY: &str = "static";

/// The word between an address and its VLAN.
const VLAN: &str = "vlan";

/// Reads addresses with their ports: `02:00:00:00:00:01`, or `02:00:00:00:00:01 vlan 5`.
///
/// # Errors
/// If one is no address of a station, or is given twice.
pub(super) fn read(table: &BTreeMap<String, String>) -> Result<HashMap<Key, String>, SettingError> {
    let mut all = HashMap::new();
    for (address, port) in table {
        let wrong = |message: String| {
            let help = "write `\"02:00:00:00:00:01\" = \"PORT\"`, or `\"02:00:00:00:00:01 vlan 5\" = \"PORT\"`";
            SettingError::at(KEY, message, help).in_entry(address)
        };
        let key = read_key(address).map_err(wrong)?;
        if port.is_empty() {
            return Err(wrong(format!("the address {address} has no port")));
        }
        if all.insert(key, port.clone()).is_some() {
            return Err(wrong(format!("the address {address} is given twice")));
        }
    }
    Ok(all)
}

fn read_key(text: &str) -> Result<Key, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mac, vlan) = match *words {
        [mac] => (mac, 0),
        [mac, VLAN, vlan] => {
            let number = vlan.parse().ok().and_then(|number| check_vlan(number).ok());
            (mac, number.ok_or_else(|| format!("`{vlan}` is not a VLAN: they are 1 to 4094"))?)
        }
        _ => return Err(format!("`{text}` is not an address")),
    };
    let [a, b, c, d, e, f] = read_mac(mac)?.0;
    Ok(Key::new(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), vlan))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(address: &str, port: &str) -> Result<HashMap<Key, String>, String> {
        read(&BTreeMap::from([(address.to_owned(), port.to_owned())])).map_err(|error| error.message)
    }

    #[test]
    fn addresses_have_ports_and_may_have_vlans() {
        let key = |vlan| Key::new(0x01_00_00_00_00_02, vlan);
        assert_eq!(read_one("02:00:00:00:00:01", "a"), Ok(HashMap::from([(key(0), "a".to_owned())])));
        assert_eq!(read_one("02:00:00:00:00:01 vlan 5", "b"), Ok(HashMap::from([(key(5), "b".to_owned())])));
        assert_eq!((key(5).mac(), key(5).vlan()), ([2, 0, 0, 0, 0, 1], 5));
    }

    #[test]
    fn what_is_no_station_is_refused() {
        for (address, said) in [
            ("01:00:5e:00:00:01", "multicast"),
            ("00:00:00:00:00:00", "no station"),
            ("02:00:00:00:00:01 vlan 0", "not a VLAN"),
            ("02:00:00:00:00:01 vlan 4095", "not a VLAN"),
            ("02:00:00:00:00:01 5", "not an address"),
            ("02:00:00:00:00", "not a MAC address"),
        ] {
            let error = read_one(address, "a").unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert!(read_one("02:00:00:00:00:01", "").unwrap_err().contains("has no port"));
        let twice = ["02:00:00:00:00:0a", "02:00:00:00:00:0A"].map(|address| (address.to_owned(), "a".to_owned()));
        assert!(read(&BTreeMap::from(twice)).unwrap_err().message.contains("given twice"));
    }
}
