//! The ports at network interfaces: a network of two ports bridges two hosts, which are network namespaces, and other
//! programs talk through it. Interfaces change meanwhile, the process is killed, privileges are missing.

mod access;
mod bridge;
mod changes;
mod checksums;
mod dpdk;
mod ecmp;
mod ends;
mod examples;
mod floods;
mod fragments;
mod frames;
mod guest;
mod guests;
mod hops;
mod host;
mod idle;
mod ipsec;
mod joined;
mod keys;
mod killed;
mod listing;
mod privileges;
mod router;
mod router6;
mod routes;
mod shared;
mod soak;
mod switched;
mod traffic;
mod tunnels;
mod vlans;

#[path = "../support/mod.rs"]
mod support;
