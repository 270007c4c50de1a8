//! The subcommands, a file each: what each takes, and what it does.

pub mod appbench;
pub mod apps;
pub mod bench;
pub mod breathsim;
pub mod check;
pub mod clear;
pub mod completions;
pub mod graph;
pub mod man;
pub mod ps;
pub mod reload;
pub mod run;
pub mod schema;
pub mod show;
pub mod stop;
pub mod tap;
pub mod timeline;
pub mod top;
pub mod trace;
pub mod watch;
pub mod watching;
