//! A network as a service: its health for probes, the events that it keeps, what it tells the service manager and the
//! journal, and the unit that runs it.

mod booted;
mod events;
mod health;
mod journal;
mod notify;
mod unit;
