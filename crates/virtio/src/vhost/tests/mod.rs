//! The back end as driver's processes of all kinds meet it, the front end as devices do, and the two joined.

mod devices;
mod fuse;
mod hostile;
mod malformed;
mod pairs;
mod peer;
mod sessions;

pub(super) use hostile::{lingering, misbehave};
pub(super) use peer::until;
