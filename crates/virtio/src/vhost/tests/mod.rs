//! The back end, as driver's processes of all kinds meet it.

mod malformed;
mod peer;
mod sessions;
