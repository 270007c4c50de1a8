//! Running networks, from outside: reports, counters, changes, routes, traces, metrics, services.

mod changes;
mod compounds;
mod costs;
mod decoders;
mod discovery;
mod esp;
mod examples;
mod hardened;
mod metrics;
mod observe;
mod placement;
mod postmortem;
mod routes;
mod run;
mod service;
mod states;
mod switching;
mod vpn;
mod watch;
mod whole_runs;

#[path = "../support/mod.rs"]
mod support;
