//! `bellows metrics`: what it says of networks, and what other programs make of it.

#[path = "../support/strace.rs"]
mod strace;
#[path = "../support/mod.rs"]
mod support;

mod documents;
mod exposition;
mod health;
mod hostile;
mod peers;
mod reloads;
mod routers;
mod thousand;
mod traced;
