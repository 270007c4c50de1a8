//! The subcommands, one file each: arguments and action.

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
