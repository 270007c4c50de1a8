//! `bellows metrics`: what it says of networks, and what other programs make of it.

mod documents;
mod exposition;
mod health;
mod hostile;
mod peers;
mod reloads;
mod routers;
mod thousand;
mod traced;
