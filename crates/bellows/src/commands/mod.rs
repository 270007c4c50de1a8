//! The subcommands, a file each: what each takes, and what it does.

use crate::subcommand::subcommands;

subcommands! {
    /// What to do.
    pub enum Subcommand {
        Run(run),
        Check(check),
        Apps(apps),
        Schema(schema),
        Graph(graph),
        Ps(ps),
        Show(show),
        Top(top),
        Trace(trace),
        Tap(tap),
        Clear(clear),
        Timeline(timeline),
        Reload(reload),
        Stop(stop),
        Appbench(appbench),
        Bench(bench),
        Breathsim(breathsim),
        Completions(completions),
        Man(man),
    }
}
