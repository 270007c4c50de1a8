//! The subcommands, one file each: arguments and action.

#[cfg(feature = "measure")]
pub mod appbench;
pub mod apps;
#[cfg(feature = "measure")]
pub mod bench;
#[cfg(feature = "measure")]
pub mod breathsim;
#[cfg(feature = "measure")]
pub mod campaign;
pub mod check;
pub mod clear;
pub mod completions;
pub mod confirm;
pub mod esp;
pub mod events;
pub mod filter;
pub mod graph;
pub mod man;
#[cfg(feature = "http")]
pub mod metrics;
pub mod neighbour;
pub mod new;
pub mod place;
pub mod ps;
pub mod reload;
pub mod route;
pub mod run;
pub mod schema;
pub mod show;
pub mod stop;
pub mod tap;
pub mod timeline;
pub mod top;
pub mod trace;
#[cfg(feature = "http")]
pub mod web;

use crate::subcommand::subcommands;

subcommands! {
    /// The subcommand to run.
    pub enum Subcommand {
        Run(run),
        Check(check),
        Apps(apps),
        Schema(schema),
        Graph(graph),
        Filter(filter),
        Ps(ps),
        Events(events),
        Show(show),
        Top(top),
        #[cfg(feature = "http")]
        Metrics(metrics),
        #[cfg(feature = "http")]
        Web(web),
        Trace(trace),
        Tap(tap),
        Route(route),
        Neighbour(neighbour),
        Esp(esp),
        Clear(clear),
        Timeline(timeline),
        Place(place),
        Reload(reload),
        Confirm(confirm),
        Stop(stop),
        #[cfg(feature = "measure")]
        Appbench(appbench),
        #[cfg(feature = "measure")]
        Bench(bench),
        #[cfg(feature = "measure")]
        Breathsim(breathsim),
        #[cfg(feature = "measure")]
        Campaign(campaign),
        New(new),
        Completions(completions),
        Man(man),
    }
}
