//! From the kernel's routes to those of a routing domain.

use bellows_netif::route::{RouteKind, Special};
use bellows_vrf::route::{Action, IpPrefix, NextHop};
use bellows_vrf::{IfExists, Origin, RouteSpec, VrfChanges, VrfError};
use std::collections::HashMap;

use super::set::{Deed, KernelRouteKey, RouteSet, Standing};

/// The names of the router's interfaces by the kernel's numbers of their devices.
pub(super) type Devices = HashMap<u32, String>;

/// Gives a routing domain what the kernel has for these keys now. Takes effect with the commit.
pub(super) fn install(changes: &mut VrfChanges<'_>, set: &mut RouteSet, devices: &Devices, keys: &[KernelRouteKey]) {
    for &key in keys {
        let Some(standing) = set.standing(key) else { continue };
        let was_followed = standing == Standing::Followed && changes.origin(key).is_kernel();
        let wanted = set.deed(key).map(|deed| (meaning(key.0, &deed, devices), Origin::Kernel(deed.protocol)));
        let standing = match wanted {
            Some((Ok(action), origin)) => match add(changes, key, action, origin, was_followed) {
                Ok(()) => Standing::Followed,
                Err(standing) => standing,
            },
            Some((Err(standing), _)) => standing,
            // The kernel has it no more.
            None => Standing::New,
        };
        if was_followed && standing != Standing::Followed {
            changes.remove(key.0, Some(key.1));
        }
        set.set_standing(key, standing);
    }
}

/// Removes the routes of these keys from a routing domain.
pub(super) fn retract(changes: &mut VrfChanges<'_>, set: &mut RouteSet, keys: &[KernelRouteKey]) {
    for &key in keys {
        if set.standing(key) == Some(Standing::Followed) {
            // Others may have put theirs in its place.
            if changes.origin(key).is_kernel() {
                changes.remove(key.0, Some(key.1));
            }
            set.set_standing(key, Standing::New);
        }
    }
}

/// Enters a route, in place of one that was followed before.
fn add(
    changes: &mut VrfChanges<'_>,
    (prefix, metric): KernelRouteKey,
    action: Action,
    origin: Origin,
    replaces: bool,
) -> Result<(), Standing> {
    let if_exists = if replaces { IfExists::Replace } else { IfExists::Refuse };
    changes.add_from(&RouteSpec { prefix, action, metric }, if_exists, origin).map_err(|error| match error {
        VrfError::Exists(..) => Standing::Static,
        VrfError::NoInterface(_) | VrfError::Gateway(_) | VrfError::LinkLocal(_) => Standing::OtherDevice,
        VrfError::Exhausted(_) | VrfError::Group(_) | VrfError::Memory(_) => Standing::NoRoom,
        _ => Standing::BadNextHop,
    })
}

/// What the router does with packets, or why it does nothing.
fn meaning(prefix: IpPrefix, deed: &Deed, devices: &Devices) -> Result<Action, Standing> {
    if prefix.reserved().is_some() {
        return Err(Standing::Reserved);
    }
    match (deed.special, deed.kind) {
        (Some(Special::TypeOfService | Special::Source | Special::Encapsulation | Special::NextHopObject), _)
        | (None, RouteKind::Throw | RouteKind::Local) => return Err(Standing::Unsupported),
        (None, RouteKind::Blackhole) => return Ok(Action::Blackhole),
        (None, RouteKind::Unreachable) => return Ok(Action::Unreachable),
        (None, RouteKind::Prohibit) => return Ok(Action::Prohibit),
        (None, RouteKind::Unicast) => {}
    }
    let mut hops: Vec<NextHop> = Vec::new();
    let mut why = Standing::OtherDevice;
    let mtu = (deed.mtu != 0).then(|| u16::try_from(deed.mtu).unwrap_or(u16::MAX));
    for way in &deed.ways {
        let Some(name) = devices.get(&way.device) else { continue };
        match way.gateway {
            _ if way.is_dead => why = Standing::NoLink,
            gateway => {
                let same = |hop: &&mut NextHop| hop.gateway == gateway && hop.interface.as_ref() == Some(name);
                match hops.iter_mut().find(same) {
                    // The kernel may have a way twice, which gets the share of both.
                    Some(hop) => hop.weight = (hop.weight + way.weight).min(MAX_WEIGHT),
                    // Linux has decided that the gateway is there.
                    None => {
                        let (interface, weight) = (Some(name.clone()), way.weight);
                        hops.push(NextHop { gateway, interface, weight, onlink: true, mtu });
                    }
                }
            }
        }
    }
    if hops.is_empty() { Err(why) } else { Ok(Action::Forward(hops)) }
}

/// The greatest weight of a way.
const MAX_WEIGHT: u16 = 256;
