//! `kernel-routes`: follows a table of Linux' routes.
//!
//! | file | contents |
//! |---|---|
//! | `set.rs` | the routes of the table as they were last heard of |
//! | `install.rs` | from these to routes of the routing domain |
//! | `follower.rs` | the thread that hears of changes and reads the table |
//! | `shown.rs` | the status |

mod follower;
mod install;
mod neighbours;
mod set;
mod shown;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, SettingError, SystemAccess};
use bellows_engine::{App, AppError, Status};
use bellows_netif::route::{protocol_name, table_name, table_number};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::follower::{Followed, Follower};
use self::shown::{KernelRoutesStatus, Shown};
use crate::vrf::RoutingDomain;

/// Follows a table of Linux' routes: a routing domain has the same ones, and each change takes effect there, too, also
/// those of next hop objects (`ip nexthop`) and their groups.
///
/// Routes count whose devices are those of the domain's interfaces (`host`), with several ways and weights, and those
/// that say `blackhole`, `unreachable` or `prohibit`. Routes of the domain's own come before those of the kernel with
/// the same prefix and metric. IPv4 routes may have IPv6 next hops (RFC 8950), which `nd` finds. Not followed are routes
/// to other devices, those to destinations that no router forwards to, and those that depend on the type of service or the
/// source or add a header; the status counts them by reason. Routes that find no room are tried again. Neighbours that an
/// administrator has set (`nud permanent`) are followed as well, and do not expire.
///
/// A thread does this, and forwarding does not wait for it. If the kernel's messages come too fast and some are lost,
/// the thread reads the table again; routes that are still there are never missing meanwhile. A reload that does not
/// change the routing domain keeps all routes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,

    /// The table: a number, or a name of `/etc/iproute2/rt_tables`.
    #[serde(default = "main")]
    pub table: String,

    /// The network namespace of the table: a name of `ip netns`, or a path such as `/proc/PID/ns/net`. By default that
    /// of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PathBuf>,

    /// The maximum number of prefixes, from 1 to 16,000,000.
    #[serde(default = "limit")]
    #[schemars(extend("x-unit" = "routes"), range(min = 1, max = 16000000))]
    pub limit: u32,
}

impl Config {
    /// The defaults, for a routing domain and a table.
    pub fn of(vrf: &str, table: &str, namespace: Option<PathBuf>) -> Config {
        Config { vrf: vrf.to_owned(), table: table.to_owned(), namespace, limit: limit() }
    }
}

fn main() -> String {
    "main".to_owned()
}

fn limit() -> u32 {
    4_000_000
}

/// Follows a table of Linux' routes.
pub struct KernelRoutes {
    domain: Arc<RoutingDomain>,
    followed: Followed,
    shown: Arc<Shown>,
    follower: Option<Follower>,
    /// That of another table, which ends when the run begins.
    before: Option<Follower>,
}

impl App for KernelRoutes {
    const PULLS: bool = false;

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old.filter(|old| Arc::ptr_eq(&old.domain, &self.domain) && old.follower.is_some()) {
            if old.followed == self.followed {
                self.follower = old.follower.take();
                self.shown = Arc::clone(&old.shown);
            } else {
                self.before = old.follower.take();
            }
            return Ok(());
        }
        let follower = self.follow(None).and_then(|mut follower| follower.wait().map(|()| follower));
        self.follower = Some(follower.map_err(|error| {
            let table = table_name(self.followed.table);
            format!("the kernel's routes of the table {table} cannot be followed: {error}")
        })?);
        Ok(())
    }

    fn begin(&mut self) {
        if let Some(before) = self.before.take() {
            // The routes stay until the new table has been read.
            match self.follow(before.end()) {
                Ok(follower) => self.follower = Some(follower),
                Err(error) => self.shown.fails(&error.to_string()),
            }
        }
    }

    fn give_back(&mut self, old: &mut Self) {
        // One for another routing domain is not the old one's.
        if old.follower.is_none() {
            old.follower = self.before.take().or_else(|| self.follower.take());
        }
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(Arc::clone(&self.shown) as Arc<dyn Status>)
    }

    fn stop(&mut self) -> Result<(), AppError> {
        if let Some(state) = self.follower.take().and_then(Follower::end) {
            state.retract(&self.domain);
        }
        Ok(())
    }
}

impl KernelRoutes {
    fn follow(&self, state: Option<follower::FollowedState>) -> std::io::Result<Follower> {
        Follower::start(self.followed.clone(), Arc::clone(&self.domain), Arc::clone(&self.shown), state)
    }
}

impl Configure for KernelRoutes {
    const NAME: &'static str = "kernel-routes";
    const SYSTEM: SystemAccess = SystemAccess { families: &["AF_NETLINK"], ..SystemAccess::NONE };
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<KernelRoutesStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured("no packets pass through it; `bellows bench fib` measures changes of routes")
    }

    fn configure(config: Config, context: &Context) -> Result<KernelRoutes, SettingError> {
        let table = table_number(&config.table).ok_or_else(|| {
            let message = format!("there is no routing table `{}`", config.table);
            SettingError::at("table", message, "give a number, or a name of /etc/iproute2/rt_tables such as `main`")
        })?;
        if !(1..=16_000_000).contains(&config.limit) {
            return Err(SettingError::at("limit", "the limit is out of range", "give a number from 1 to 16000000"));
        }
        let followed = Followed { table, namespace: config.namespace, limit: config.limit as usize };
        // Files can be read now.
        let _ = protocol_name(0);
        let shown = Arc::new(Shown::new(table_name(table)));
        Ok(KernelRoutes { domain: context.object("vrf", &config.vrf)?, followed, shown, follower: None, before: None })
    }
}
