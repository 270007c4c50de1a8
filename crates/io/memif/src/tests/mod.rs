//! Rings against a naive model, with a peer that writes anything; and the handshake, whole and broken.

mod handshake;
mod model;
mod rings;
