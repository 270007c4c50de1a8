//! The networks between which a tunnel carries packets.

use std::str::FromStr;

use bellows_config::SettingError;
use bellows_fib::{Address, Prefix};

/// Networks of both families; none stand for all addresses.
#[derive(Clone, Debug, Default)]
struct Networks {
    v4: Vec<Prefix<u32>>,
    v6: Vec<Prefix<u128>>,
    are_any: bool,
}

impl Networks {
    fn read(key: &'static str, texts: &[String]) -> Result<Networks, SettingError> {
        let mut networks = Networks { are_any: texts.is_empty(), ..Networks::default() };
        for (at, text) in texts.iter().enumerate() {
            let wrong = |reason: String| {
                let help = "write it as 192.0.2.0/24 or 2001:db8::/32";
                SettingError::at("associations", format!("`{text}` is no network: {reason}"), help)
                    .in_item(at)
                    .in_entry(key)
            };
            if text.contains(':') {
                networks.v6.push(Prefix::from_str(text).map_err(|error| wrong(error.to_string()))?);
            } else {
                networks.v4.push(Prefix::from_str(text).map_err(|error| wrong(error.to_string()))?);
            }
        }
        Ok(networks)
    }

    /// Whether an address is in one of them: 4 or 16 bytes.
    fn contain(&self, address: &[u8]) -> bool {
        match (<[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
            _ if self.are_any => true,
            (Ok(v4), _) => contains(&self.v4, u32::from_be_bytes(v4)),
            (_, Ok(v6)) => contains(&self.v6, u128::from_be_bytes(v6)),
            _ => false,
        }
    }
}

fn contains<A: Address>(networks: &[Prefix<A>], address: A) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// The networks at both ends of a tunnel.
#[derive(Clone, Debug, Default)]
pub(super) struct Selectors {
    local: Networks,
    remote: Networks,
    /// Whether all packets pass.
    are_any: bool,
}

impl Selectors {
    /// Reads the networks.
    ///
    /// # Errors
    /// If a text is none.
    pub(super) fn read(local: &[String], remote: &[String]) -> Result<Selectors, SettingError> {
        let (local, remote) = (Networks::read("local_networks", local)?, Networks::read("remote_networks", remote)?);
        Ok(Selectors { are_any: local.are_any && remote.are_any, local, remote })
    }

    /// Whether a packet of which these are the addresses of the local and the remote side may pass. Hot.
    #[inline]
    pub(super) fn pass(&self, local: &[u8], remote: &[u8]) -> bool {
        self.are_any || self.local.contain(local) && self.remote.contain(remote)
    }
}
