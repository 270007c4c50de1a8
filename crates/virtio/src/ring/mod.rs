//! The device's side of one ring.
