//! The keys of a bridge.

use std::collections::BTreeMap;

use bellows_config::{Rate, SettingError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::storm::Storm;
use super::vlans::Membership;
pub use crate::vlan::header::TagProtocols;

/// Passes each frame to the port at which its destination was last seen, and floods the others (IEEE 802.1Q).
///
/// A port is an input and an output of the same name, which may be any; a port may also have only one of them. Look-up
/// of the destination comes before learning of the source, and an address that appears at another port moves at once,
/// unless its table has a limit of moves. Frames to multicast, broadcast and unknown addresses go to all outputs but that
/// of their own port. Sources that are multicast addresses or zero are not learned, nor those at more than 4,096 ports.
/// Frames to the reserved addresses 01:80:c2:00:00:00 to 01:80:c2:00:00:0f (spanning tree, LLDP, flow control) are for
/// the next bridge alone, and are dropped.
///
/// Without VLANs, frames are not changed, and tags play no role. A bridge has VLANs as soon as one of its `ports` has
/// `access` or `trunk`; then every port needs one of them. Addresses are learned for each VLAN, and frames leave a port
/// with a tag or without one, as the port says. A tag of VLAN 0 has a priority alone: its frame is in the VLAN of
/// frames without a tag, and keeps the priority where it leaves with a tag.
///
/// Bridges on several workers that name one `table` are one bridge: link the output for a port of the other worker to
/// that port as well, for example through a `join`. Their keys `ports` should be the same. Storm control is at the
/// bridge that has the input.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The table of addresses: the name of an object of type `mac-table`, which has keys for static addresses, ageing and
    /// moves. By default the bridge has a table of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,

    /// Split-horizon groups, each a list of ports: no frame goes from one port of a group to another, as for the tunnels
    /// of a full mesh.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Vec<String>>,

    /// What is special about ports, by their names: `ports.uplink = { trunk = "5,10-20", native = 1 }`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, PortConfig>,

    /// The tag protocol identifiers of tags, in a bridge with VLANs: `"802.1q"` (0x8100), `"802.1ad"` (0x88a8), or `"any"`
    /// of both. New tags then have the first. By default `"802.1q"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpid: Option<TagProtocols>,

    /// The most broadcast frames that are taken from each port; further ones are dropped. By default there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets/s"))]
    pub storm_broadcast: Option<Rate>,

    /// The most multicast frames that are taken from each port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets/s"))]
    pub storm_multicast: Option<Rate>,

    /// The most frames to unknown addresses that are taken from each port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets/s"))]
    pub storm_unknown: Option<Rate>,

    /// How many of the frames that a limit is for may come at once after a pause. By default a tenth of a second's, at
    /// least 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets"), range(min = 1))]
    pub storm_burst: Option<u32>,

    /// Forward frames to the reserved addresses like other multicast frames.
    pub forward_reserved: bool,

    /// Forward frames from a static address at another port than its own. The address stays at its port.
    pub forward_violations: bool,
}

/// What is special about a port.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub struct PortConfig {
    /// The VLAN of the port, from 1 to 4,094: its frames have no tag, or one of VLAN 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub access: Option<u16>,

    /// The VLANs whose frames have tags at this port: numbers and ranges, such as `"5,10-20"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,

    /// The VLAN of frames without a tag at a trunk. Without it, they are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub native: Option<u16>,

    /// The most addresses that are known at the port. Further ones are not learned, and those of other ports do not move
    /// to it; their frames are forwarded. By default there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "addresses"))]
    pub max_macs: Option<u32>,

    /// The most broadcast frames that are taken from this port, in place of the bridge's `storm_broadcast`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets/s"))]
    pub storm_broadcast: Option<Rate>,

    /// The most multicast frames, in place of `storm_multicast`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets/s"))]
    pub storm_multicast: Option<Rate>,

    /// The most frames to unknown addresses, in place of `storm_unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets/s"))]
    pub storm_unknown: Option<Rate>,
}

/// The key of ports.
const PORTS: &str = "ports";

impl Config {
    /// Whether the bridge has VLANs.
    pub(super) fn has_vlans(&self) -> bool {
        self.ports.values().any(|port| port.access.is_some() || port.trunk.is_some())
    }

    /// The VLANs of a port, in a bridge with VLANs.
    ///
    /// # Errors
    /// If they are not right.
    pub(super) fn membership(&self, name: &str) -> Result<Membership, SettingError> {
        let default = PortConfig::default();
        let port = self.ports.get(name).unwrap_or(&default);
        Membership::read(port).map_err(|error| error.in_entry(name))
    }

    /// The limits of floods from a port.
    ///
    /// # Errors
    /// If a rate is out of range.
    pub(super) fn storm(&self, name: &str) -> Result<Storm, SettingError> {
        let port = self.ports.get(name);
        let rate = |own: fn(&PortConfig) -> Option<Rate>, common: Option<Rate>| port.and_then(own).or(common);
        Storm::new(
            [
                rate(|port| port.storm_broadcast, self.storm_broadcast),
                rate(|port| port.storm_multicast, self.storm_multicast),
                rate(|port| port.storm_unknown, self.storm_unknown),
            ],
            self.storm_burst,
        )
    }

    /// The most addresses at a port.
    pub(super) fn max_addresses(&self, name: &str) -> u32 {
        self.ports.get(name).and_then(|port| port.max_macs).unwrap_or(u32::MAX)
    }

    /// Checks the keys by themselves.
    ///
    /// # Errors
    /// The first one that is not right.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let has_vlans = self.has_vlans();
        if !has_vlans && self.tpid.is_some() {
            let message = "`tpid` is for a bridge with VLANs, and no port has any";
            return Err(SettingError::at("tpid", message, "give ports `access` or `trunk`, or leave `tpid` out"));
        }
        if self.storm_burst == Some(0) {
            return Err(SettingError::at("storm_burst", "a burst of 0 lets nothing through", "give 1 or more"));
        }
        self.storm("")?;
        for (name, port) in &self.ports {
            self.storm(name).map_err(|error| error.in_entry(name))?;
            if has_vlans {
                self.membership(name)?;
            } else if port.native.is_some() {
                let help = "give `trunk` as well, or `access` in its place";
                return Err(SettingError::at(PORTS, "`native` is for a trunk", help).in_entry(name));
            }
        }
        Ok(())
    }

    /// Checks the names of ports.
    ///
    /// # Errors
    /// If a port is not linked, or has no VLANs in a bridge that has some.
    pub(super) fn check_ports(&self, outputs: &[&str]) -> Result<(), SettingError> {
        let listed = || outputs.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let check = |key: &'static str, name: &String| match outputs.contains(&name.as_str()) {
            true => Ok(()),
            false => {
                let message = format!("`{key}` names a port `{name}` that is not linked");
                Err(SettingError::at(key, message, format!("the linked outputs are {}", listed())))
            }
        };
        self.groups.iter().flatten().try_for_each(|name| check("groups", name))?;
        self.ports.keys().try_for_each(|name| check(PORTS, name))?;
        let without = outputs.iter().find(|name| self.has_vlans() && !self.ports.contains_key(**name));
        match without {
            Some(name) => {
                let message = format!("the port `{name}` has no VLAN, but others have");
                Err(SettingError::at(PORTS, message, format!("give `ports.{name}` either `access` or `trunk`")))
            }
            None => Ok(()),
        }
    }
}
