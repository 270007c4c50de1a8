//! The back end against driver's processes of all kinds, the front end against devices, and both together.

mod devices;
mod fuse;
mod hostile;
mod malformed;
mod pairs;
mod peer;
mod sessions;
mod shared;

pub(super) use hostile::{lingering, misbehave};
pub(super) use peer::until;
